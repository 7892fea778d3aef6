//! # `allotment doctor`: what this machine offers
//!
//! One [`Finding`] for each thing that decides how Allotment runs: what is here, what that means, and what to
//! change if it is not the best.
//!
//! ```text
//! sequences   kernel, C library, membarrier, and a self-test: a program is run
//! area        the rseq area: length, words, when they are written; time slices
//! memory      huge pages, overcommit, limits, cgroup, pressure, advice that the kernel takes
//! ```
//! Nothing is changed. What cannot be read is said to be not known, and is no fault.

mod area;
mod finding;
mod memory;
mod sequences;

use crate::args;
use crate::code::Failure;
use crate::term::{Paint, finish, print};
use finding::{Finding, Verdict};
use serde::Serialize;
use std::process::ExitCode;

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    mode: String,
    reason: String,
    findings: Vec<Finding>,
}

/// Looks, and prints it.
pub fn doctor(asked: &args::Doctor) -> ExitCode {
    finish(look(asked))
}

fn look(asked: &args::Doctor) -> Result<(), Failure> {
    let mut findings = sequences::findings();
    findings.extend(memory::findings());
    let test = sequences::self_test().map_err(|why| format!("the self-test could not be run: {why}"))?;
    let is_best = test.mode == "sequences";
    let report = Report { mode: test.mode, reason: test.reason, findings };
    print(if asked.json {
        serde_json::to_string_pretty(&report).map_or_else(|_| String::new(), |text| text + "\n")
    } else {
        text(&report, Paint::of(&std::io::stdout()))
    })?;
    if is_best { Ok(()) } else { Err(Failure::said()) }
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

#[cfg(test)]
mod tests {
    use super::*;

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
