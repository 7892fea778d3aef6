//! # `allotment doctor`: what this machine offers
//!
//! One [`Finding`] for each thing that decides how Allotment runs: what is here, what that means, and what to
//! change if it is not the best.
//!
//! ```text
//! sequences   kernel, C library, rseq, membarrier, and a self-test: a program is run
//! memory      huge pages, overcommit, limits, cgroup, pressure, advice that the kernel takes
//! ```
//! Nothing is changed. What cannot be read is said to be not known, and is no fault.

mod memory;
mod sequences;

use crate::code;
use crate::term::{Paint, finish, print, say};
use serde::Serialize;
use std::process::ExitCode;

/// How good what was found is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As Allotment likes it, or of no consequence.
    Good,
    /// It works, with something less.
    Notice,
    /// The best mode cannot be had.
    Bad,
}

/// What there is, what it means, and what to change.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    value: String,
    means: &'static str,
    verdict: Verdict,
    advice: Option<String>,
}

impl Finding {
    fn new(name: &'static str, value: impl Into<String>, means: &'static str) -> Self {
        Self { name, value: value.into(), means, verdict: Verdict::Good, advice: None }
    }
    /// Something less than the best.
    fn notice_if(self, worse: bool, advice: impl Into<String>) -> Self {
        self.judged(worse, Verdict::Notice, advice)
    }
    /// The best mode is out of reach.
    fn bad_if(self, bad: bool, advice: impl Into<String>) -> Self {
        self.judged(bad, Verdict::Bad, advice)
    }
    fn judged(mut self, applies: bool, verdict: Verdict, advice: impl Into<String>) -> Self {
        if applies {
            self.verdict = verdict;
            self.advice = Some(advice.into());
        }
        self
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    mode: String,
    reason: String,
    findings: Vec<Finding>,
}

/// Looks, and prints it.
pub fn doctor(args: &crate::args::Doctor) -> ExitCode {
    let mut findings = sequences::findings();
    findings.extend(memory::findings());
    let test = match sequences::self_test() {
        Ok(test) => test,
        Err(why) => {
            say(&format!("the self-test could not be run: {why}"));
            return code::FAILED.into();
        }
    };
    let best = test.mode == "sequences";
    let report = Report { mode: test.mode, reason: test.reason, findings };
    let text = if args.json {
        serde_json::to_string_pretty(&report).map_or_else(|_| String::new(), |text| text + "\n")
    } else {
        text(&report, Paint::of(&std::io::stdout()))
    };
    match print(text) {
        Ok(()) if best => code::DONE.into(),
        Ok(()) => code::FAILED.into(),
        failed => finish(failed),
    }
}

fn text(report: &Report, paint: Paint) -> String {
    let width = report.findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0) + 2;
    let mut text = String::new();
    let mut line = |name: &str, rest: &str| {
        text.push_str(&format!("{name:<width$}{rest}"));
        text.push('\n');
    };
    for finding in &report.findings {
        line(finding.name, &finding.value);
        line("", &paint.faint(finding.means));
        if let Some(advice) = &finding.advice {
            let mark = if finding.verdict == Verdict::Bad { "!!" } else { "->" };
            line("", &paint.notice(&format!("{mark} {advice}")));
        }
    }
    line("mode", &paint.bold(&format!("{} ({})", report.mode, report.reason)));
    text
}

/// The first line of a file.
pub fn read_line(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()?.lines().next().map(|line| line.trim().to_owned())
}

/// The chosen word of the huge-page setting.
pub fn huge_pages() -> Option<String> {
    chosen(&read_line("/sys/kernel/mm/transparent_hugepage/enabled")?).map(str::to_owned)
}

/// `always [madvise] never` → `madvise`.
fn chosen(line: &str) -> Option<&str> {
    line.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("never"), None);
    }

    #[test]
    fn advice_stands_below_what_it_is_about() {
        let findings = vec![
            Finding::new("a", "1", "is one").notice_if(false, "no"),
            Finding::new("bcd", "2", "is two").notice_if(true, "take three").bad_if(false, "no"),
            Finding::new("e", "5", "is five").bad_if(true, "take six"),
        ];
        let report = Report { mode: "fallback".into(), reason: "asked for".into(), findings };
        let wanted = "a    1\n     is one\nbcd  2\n     is two\n     -> take three\ne    5\n     is five\n     !! take six\nmode fallback (asked for)\n";
        assert_eq!(text(&report, Paint::none()), wanted);
    }
}
