//! # `allotment bench`: Allotment beside others
//!
//! ```text
//!   SUITES ──► cases ──► measure: A B C, A B C, … ──► rows ──► table, JSON, report
//!                           └─ contenders: closures here, whole programs (process), workers under a preload (worker)
//! ```
//!
//! What a suite is made of stands in [`suite`]; a later one joins by one file in [`suites`].

mod load;
mod machine;
mod measure;
mod noise;
mod paired;
mod peer;
mod process;
mod queue;
mod report;
mod rivals;
mod rows;
mod suite;
mod suites;
mod table;
mod team;
mod worker;

use crate::args::{Bench, BenchWorker};
use crate::code::Failure;
use crate::conf::{self, Merged};
use crate::file::Reserved;
use crate::term::{Paint, finish, print, say};
use crate::{file, proc, run};
use measure::{Progress, measure};
use rows::{Results, Row};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use suite::{Case, Job, Setup, Suite};
use suites::SUITES;

/// Runs of each contender.
const RUNS: u32 = 7;
const RUNS_QUICK: u32 = 3;

/// Measures what was asked.
pub fn bench(asked: &Bench) -> ExitCode {
    finish(bench_all(asked))
}

/// One run of one case of a suite whose runs are processes of their own.
pub fn work(asked: &BenchWorker) -> ExitCode {
    let job = Job::new(&asked.case, asked.threads, asked.scale);
    finish(find(&asked.suite).and_then(|suite| worker::work(suite, &job, asked.expect.as_deref())))
}

fn find(name: &str) -> Result<&'static Suite, String> {
    let names = || SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ");
    let suite = SUITES.iter().find(|suite| suite.name == name);
    suite.ok_or_else(|| format!("there is no suite {name}; there are {}", names()))
}

/// A directory that goes with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("allotment-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bench_all(asked: &Bench) -> Result<(), Failure> {
    let Merged { conf, wrong } = conf::merged(&asked.set);
    wrong.into_iter().next().map_or(Ok(()), |line| Err(Failure::usage(line)))?;
    let library = run::locate_library()?;
    let (peers, missing) = peer::peers(library.path(), asked.peers.as_deref()).map_err(Failure::usage)?;
    let program = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let scratch = Scratch::new()?;
    let setup = Setup { peers, quick: asked.quick, program, conf, scratch: scratch.0.clone() };
    let mut chosen = choose(&asked.suites, &setup).map_err(Failure::usage)?;
    if asked.list {
        return Ok(print(list(&chosen, &setup, &missing))?);
    }
    if asked.realtime {
        noise::realtime()?;
    }
    // Known before hours are spent.
    let is_standard = asked.json.as_deref() == Some(Path::new("-"));
    let json = asked.json.as_deref().filter(|_| !is_standard).map(Reserved::at).transpose()?;
    let page = asked.report.as_deref().map(report::reserved).transpose()?;
    let runs = asked.runs.unwrap_or(if asked.quick { RUNS_QUICK } else { RUNS }) as usize;
    let total = chosen.iter().flat_map(|(_, cases)| cases).map(|case| case.contenders.len() * (runs + 1)).sum();
    let before = proc::load();
    let mut progress = Progress::new(total);
    let mut results = Results { skipped: missing, ..Results::default() };
    for (suite, cases) in &mut chosen {
        for case in cases {
            measure(suite, case, runs, &mut progress, &mut results);
        }
    }
    progress.clear();
    let mut machine = machine::row(&setup.peers, runs);
    let others = machine::others([before, proc::load()], &results.others);
    machine.case += &format!(
        "; load {} before, {} after{}",
        table::figure(others[0].values[0]),
        table::figure(others[0].values[1]),
        if noise::is_realtime() { "; in real time" } else { "" }
    );
    let paint = Paint::of(&std::io::stdout());
    let own: String = SUITES.iter().map(|suite| (suite.table)(&results.rows)).collect();
    let rows = json_of([&machine].into_iter().chain(&others).chain(&results.rows))?;
    // (On standard output the rows stand alone.)
    let printed = if is_standard {
        results.skipped.iter().chain(&results.failures).for_each(|line| say(line));
        print(&rows)
    } else {
        print(table::whole(&machine.case, &results, paint) + &own)
    };
    if let Some(json) = json {
        file::write(Some(json.path()), rows.as_bytes())?;
    }
    if let Some(page) = page {
        let command: Vec<String> = std::env::args().collect();
        report::report(page.path(), &command.join(" "), &machine.case, &results)?;
    }
    // (After the files: hours may be in them.)
    printed?;
    if results.failures.is_empty() { Ok(()) } else { Err(Failure::said()) }
}

/// The machine's rows, then all others, one a line.
fn json_of<'a>(rows: impl Iterator<Item = &'a Row>) -> Result<String, String> {
    let lines: Result<Vec<String>, _> = rows.map(serde_json::to_string).collect();
    Ok(format!("[\n{}\n]\n", lines.map_err(|error| error.to_string())?.join(",\n")))
}

type Chosen = Vec<(&'static str, Vec<Case>)>;

/// The cases that were asked for: `SUITE` or `SUITE/CASE`; all for none.
fn choose(words: &[String], setup: &Setup) -> Result<Chosen, String> {
    let mut chosen: Chosen = Vec::new();
    let all: Vec<String> = SUITES.iter().map(|suite| suite.name.to_owned()).collect();
    for word in if words.is_empty() { &all } else { words } {
        let (name, case) = word.split_once('/').map_or((word.as_str(), None), |(suite, case)| (suite, Some(case)));
        let suite = find(name)?;
        let mut cases = (suite.cases)(setup);
        if let Some(case) = case {
            let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
            if !names.contains(&case) {
                return Err(format!("suite {name} has no case {case}; `allotment bench --list` names them"));
            }
            cases.retain(|candidate| candidate.name == case);
        }
        chosen.push((suite.name, cases));
    }
    Ok(chosen)
}

/// What there is to choose from.
fn list(chosen: &Chosen, setup: &Setup, missing: &[String]) -> String {
    let mut text = String::new();
    for suite in SUITES {
        let Some((_, cases)) = chosen.iter().find(|(name, _)| *name == suite.name) else { continue };
        text.push_str(&format!("{}: {}\n", suite.name, suite.about));
        let mut last = "";
        for case in cases {
            if case.name == last {
                continue;
            }
            last = case.name;
            let threads: Vec<String> =
                cases.iter().filter(|other| other.name == case.name).map(|case| case.threads.to_string()).collect();
            let skipped = case.skipped.as_ref().map_or_else(String::new, |why| format!(" (skipped: {why})"));
            text.push_str(&format!("  {:<14} {}; threads {}{skipped}\n", case.name, case.about, threads.join(", ")));
        }
    }
    text.push_str("peers:\n");
    for peer in &setup.peers {
        let file = peer.library.as_ref().map_or_else(|| "no preload".to_owned(), |path| path.display().to_string());
        text.push_str(&format!("  {:<14} {} ({file})\n", peer.name, peer.version));
    }
    for line in missing {
        text.push_str(&format!("  {line}\n"));
    }
    text
}
