//! # Mutation testing of the engine
//!
//! Rebuilding for each of thousands of changes takes days. Here all are in one build, each behind a switch:
//!
//! ```text
//! checkout ──copy──▶ find (syntax) ──▶ weave: `(if crate::mutants::on(17) {a <= b} else {(a < b)})` ──▶ cargo
//!                      ▲                                                                                 │
//!                      └── what the compiler rejects is left out ◀───────────────────────────────────────┤
//!                                                                                                        ▼
//!   survivors ◀── each mutant, against those that reach it ◀── each test once: its time, its places
//! ```

mod copy;
mod find;
mod run;
#[cfg(test)]
mod tests;
mod weave;

use std::collections::HashSet;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use copy::Sources;
use find::Mutant;
use run::{Fate, Tests};

const HELP: &str = "\
Mutation testing of the engine: its sources are changed in thousands of ways, and a test must notice each.

  .ci/mutants [OPTION...] [PATH...]   files and directories under engine/src (all of it); one build in target/mutants

  --list            says what would be changed, and ends
  --unreached       names what no test reaches, too
  --caught          says of each mutant that was caught which tests ran then
  --again FILE      only mutants that FILE names, which an earlier run printed
  --jobs N          tests side by side (2)
  --seconds N       tests of a mutant take this long without it, at most (60); the others are left out
  --scratch PATH    where the copy is built, instead of target/mutants: two runs need two
  --help

A mutant that no test notices survives. Survivors that are argued stand in .ci/mutants.known; ends with 1 if there is
another, with 2 if nothing could be tried.
";
/// Survivors that are argued.
const KNOWN: &str = ".ci/mutants.known";

struct Options {
    paths: Vec<String>,
    list: bool,
    unreached: bool,
    caught: bool,
    again: Option<HashSet<String>>,
    scratch: PathBuf,
    jobs: usize,
    seconds: u64,
}

fn options() -> Result<Option<Options>, String> {
    let mut options = Options {
        paths: Vec::new(),
        list: false,
        unreached: false,
        caught: false,
        again: None,
        scratch: "target/mutants".into(),
        jobs: 2,
        seconds: 60,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match &*word {
            "--help" | "-h" => return Ok(None),
            "--list" => options.list = true,
            "--unreached" => options.unreached = true,
            "--caught" => options.caught = true,
            "--again" => options.again = Some(names(&value()?)?),
            "--scratch" => options.scratch = value()?.into(),
            "--jobs" => options.jobs = number(value()?)?.max(1) as usize,
            "--seconds" => options.seconds = number(value()?)?,
            _ if word.starts_with('-') => return Err(format!("{word} is no option; --help")),
            _ if !Path::new(&word).exists() => return Err(format!("{word}: there is no such file")),
            _ => options.paths.push(word),
        }
    }
    if options.paths.is_empty() {
        options.paths.push("engine/src".into());
    }
    Ok(Some(options))
}

/// A mutant as `.ci/mutants.known` names it: lines move.
fn name(mutant: &Mutant) -> String {
    format!("{}: {}: {} -> {}", mutant.path, mutant.function, mutant.original, mutant.changed)
}

/// The names of those that an earlier run printed.
fn names(file: &str) -> Result<HashSet<String>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let name = |line: &str| {
        let (path, rest) = line[line.find("engine/")?..].split_once(':')?;
        // LINE:COLUMN:
        Some(format!("{path}:{}", rest.splitn(3, ':').nth(2)?))
    };
    Ok(text.lines().filter_map(name).collect())
}

fn place(mutant: &Mutant) -> String {
    let Mutant { path, line, column, function, original, changed, .. } = mutant;
    format!("{path}:{line}:{column}: {function}: {original} -> {changed}")
}

/// Where it is up to, for a terminal.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
        let _ = std::io::stderr().flush();
    }
}

fn main() -> ExitCode {
    let done = match options() {
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Some(options)) => go(&options),
        Err(error) => Err(error),
    };
    match done {
        Ok(new) => ExitCode::from(u8::from(new > 0)),
        Err(error) => {
            progress("");
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Tries all; gives how many survive that are not known.
fn go(options: &Options) -> Result<usize, String> {
    let begin = Instant::now();
    let root = Path::new(".");
    let sources = Sources::read(root, &options.paths).map_err(|error| error.to_string())?;
    if options.list {
        sources.mutants().for_each(|(number, mutant)| println!("{number} {}", place(mutant)));
        return Ok(0);
    }
    let scratch = std::fs::create_dir_all(&options.scratch).and_then(|()| options.scratch.canonicalize());
    let scratch = scratch.map_err(|error| format!("{}: {error}", options.scratch.display()))?;
    progress("building");
    let (program, rejected) = sources.build(&scratch)?;
    let mutants: Vec<_> = sources
        .mutants()
        .filter(|(number, mutant)| {
            !rejected.contains(number) && options.again.as_ref().is_none_or(|again| again.contains(&name(mutant)))
        })
        .collect();
    progress("running each test");
    let tests = Tests::record(&program, &scratch, options.jobs, Duration::from_secs(options.seconds))?;
    let (count, seconds) = tests.count();
    progress("");
    eprintln!(
        "{} mutants ({} more the compiler rejects, {} would be in constants), {count} tests of {seconds:.0} s in all, {} s so far",
        mutants.len(),
        rejected.len(),
        sources.constant(),
        begin.elapsed().as_secs(),
    );

    let known = std::fs::read_to_string(KNOWN).map_err(|error| format!("{KNOWN}: {error}"))?;
    let known: HashSet<&str> = known.lines().map(str::trim).collect();
    let numbers: Vec<_> = mutants.iter().map(|(number, _)| *number).collect();
    let (mut tried, mut survived, mut new) = (0, 0, 0);
    let fates = tests.try_all(&numbers, |index, (fate, tests)| {
        let (number, mutant) = mutants[index];
        tried += 1;
        let is_known = known.contains(&*name(mutant));
        let say = |what: &str| {
            progress("");
            println!("{what}: {}", place(mutant));
        };
        match fate {
            Fate::Survived | Fate::SurvivedSoFar => {
                survived += 1;
                new += usize::from(!is_known);
                match (is_known, fate) {
                    (true, _) => say("known"),
                    (_, Fate::Survived) => say("survives"),
                    _ => say("survives the quicker tests"),
                }
            }
            Fate::NotReached if options.unreached => say("not reached"),
            Fate::Caught | Fate::TooLong if options.caught => {
                let how = if *fate == Fate::Caught { "caught" } else { "caught by time" };
                say(&format!("{how}: {number} by {tests}"));
            }
            Fate::Caught | Fate::TooLong if is_known => say("known, but caught"),
            _ => {}
        }
        progress(&format!("{tried} of {}, {survived} survived", numbers.len()));
    });
    progress("");
    for path in &options.paths {
        let is_here = |mutant: &Mutant| Path::new(&mutant.path).starts_with(path.trim_end_matches('/'));
        let here = mutants.iter().zip(&fates).filter(|((_, mutant), _)| is_here(mutant));
        let here: Vec<_> = here.map(|((_, mutant), (fate, _))| (known.contains(&*name(mutant)), *fate)).collect();
        let count = |wanted: &[Fate]| here.iter().filter(|(_, fate)| wanted.contains(fate)).count();
        let survivors = [Fate::Survived, Fate::SurvivedSoFar];
        println!(
            "{path}: {} mutants, {} caught ({} by time), {} survived ({} of them known), {} not reached",
            here.len(),
            count(&[Fate::Caught, Fate::TooLong]),
            count(&[Fate::TooLong]),
            count(&survivors),
            here.iter().filter(|(is_known, fate)| *is_known && survivors.contains(fate)).count(),
            count(&[Fate::NotReached]),
        );
    }
    println!("{} seconds", begin.elapsed().as_secs());
    Ok(new)
}
