//! # `allotment profile`: who allocates, and what is still in use
//!
//! ```text
//!  /dev/shm/allotment-…-PID.heap ── read ─► stacks ── symbols ─┬► pprof's format ──┐
//!                                                              └► named ◄───────────┘
//!                                                                   └► text, folded stacks, flame graph, differences
//! ```
//! What is read was sampled by the process itself (knob `profile_bytes`); all amounts are estimates, unless the knob
//! is 1. `allotment run --profile` and `--leaks` read the same when the program has ended.

mod named;
mod pprof;
mod read;
mod symbols;

use crate::args::Profile as Asked;
use crate::clock::monotonic_ns;
use crate::code::Failure;
use crate::file::{self, Found, unwritten};
use crate::observe::who;
use crate::proc::Maps;
use crate::term::{Paint, bytes, count, finish, plain, plural, print, printable, say};
use named::{Named, Stack, Which};
use read::{Amount, Profile};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use symbols::Symbols;

/// Stacks that a text shows.
const SHOWN: usize = 20;

/// Does what was asked.
pub fn profile(asked: &Asked) -> ExitCode {
    // A terminal would obey a compressed file.
    if asked.output.as_deref() == Some(Path::new("-")) && io::stdout().is_terminal() {
        return finish(Err(Failure::usage("standard output is a terminal: redirect it, or name a file")));
    }
    finish(apart(asked).map_err(Failure::usage).and_then(|()| Ok(show(asked)?)))
}

/// Whether a text is printed: if no file was asked for, or by name.
fn is_text(asked: &Asked) -> bool {
    let is_written = asked.output.is_some() || asked.folded.is_some() || asked.flamegraph.is_some();
    !is_written || asked.text || asked.leaks
}

/// That no two things go to one place.
fn apart(asked: &Asked) -> Result<(), String> {
    let output = is_text(asked).then_some(Path::new("-"));
    let files = [&asked.output, &asked.folded, &asked.flamegraph].map(Option::as_deref);
    let all: Vec<&Path> = files.into_iter().chain([output]).flatten().collect();
    let twice = all.iter().enumerate().find(|&(at, path)| all[..at].iter().any(|other| file::is_same(other, path)));
    match twice {
        None => Ok(()),
        Some((_, &path)) if path == Path::new("-") => Err("standard output has room for one thing: name files".into()),
        Some((_, path)) => Err(format!("{} has room for one thing: name two files", path.display())),
    }
}

fn show(asked: &Asked) -> Result<(), String> {
    let what = &printable(&asked.source);
    let named = match load(&asked.source)? {
        Loaded::Named(_) if asked.output.is_some() || asked.seconds.is_some() => {
            return Err(format!("{what} is in pprof's format: of a process or a .heap file there is more to be had"));
        }
        Loaded::Named(named) => named,
        Loaded::Heap(file, pid) => {
            let read = || Profile::read(&file).map_err(|why| format!("{what}: {why}"));
            let mut profile = read()?;
            if let Some(seconds) = asked.seconds {
                std::thread::sleep(Duration::from_secs(seconds));
                profile = read()?.since(&profile);
            }
            let mut symbols = Symbols::new(&profile, pid, None);
            if let Some(path) = &asked.output {
                save(path, &profile, &mut symbols, asked.seconds)?;
            }
            Named::of(&profile, &mut symbols)
        }
    };
    let named = match &asked.diff {
        Some(base) => named.less(&base_of(base)?),
        None => named,
    };
    let of = asked.diff.as_ref().map_or_else(|| what.clone(), |base| format!("{what} less {}", printable(base)));
    draw(asked, &named, &of)?;
    if !is_text(asked) {
        return Ok(());
    }
    print(text(&named, &of, asked.leaks, asked.since(), Paint::of(&io::stdout())))
}

/// What is compared with.
fn base_of(source: &str) -> Result<Named, String> {
    Ok(match load(source)? {
        Loaded::Named(named) => named,
        Loaded::Heap(file, pid) => {
            let profile = Profile::read(&file).map_err(|why| format!("{source}: {why}"))?;
            Named::of(&profile, &mut Symbols::new(&profile, pid, None))
        }
    })
}

/// Folded stacks and the flame graph.
fn draw(asked: &Asked, named: &Named, of: &str) -> Result<(), String> {
    let which = if asked.allocated { Which::Allocated } else { Which::Live };
    let is_difference = asked.diff.is_some();
    let lines = named.folded(which, is_difference);
    if let Some(path) = &asked.folded {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        file::write(Some(path), text.as_bytes())?;
    }
    if let Some(path) = &asked.flamegraph {
        let title = format!("Heap of {of}");
        // (What cannot be drawn leaves the file as it was.)
        let mut picture = Vec::new();
        named::draw(&lines, &title, which, is_difference, &mut picture).map_err(|why| why.to_string())?;
        file::write(Some(path), &picture)?;
    }
    Ok(())
}

/// What can be shown.
enum Loaded {
    /// Samples, and whose, if it runs.
    Heap(File, Option<u32>),
    /// A file in pprof's format.
    Named(Named),
}

fn load(source: &str) -> Result<Loaded, String> {
    let (file, pid) = open(source)?;
    if pid.is_none() && pprof::is_one(&file) {
        return pprof::read(&file).map(Loaded::Named).map_err(|why| format!("{source}: {why}"));
    }
    Ok(Loaded::Heap(file, pid))
}

/// The profile of a process, or a file; which process, if it runs.
fn open(source: &str) -> Result<(File, Option<u32>), String> {
    let by_name = || match source.contains('/') {
        true => Ok(None),
        false => Ok(who::named(source)?.map(|target| target.pid)),
    };
    if let Some(pid) = source.parse().map_or_else(|_| by_name(), |pid| Ok::<_, String>(Some(pid)))? {
        return Ok((read::of_process(pid)?, Some(pid)));
    }
    let wrong = |error: io::Error| format!("{source}: {}", plain(&error));
    let found = Found::at(Path::new(source), true).map_err(wrong)?;
    let file = found.open(false).map_err(wrong)?;
    // It may be that of a process that still runs.
    let pid = source.strip_suffix(".heap").and_then(|name| name.rsplit('-').next()?.parse().ok());
    Ok((file, pid.filter(|&pid| Maps::of(pid).is_ok_and(|maps| maps.has(&found.info)))))
}

/// Writes pprof's format.
fn save(path: &Path, profile: &Profile, symbols: &mut Symbols, seconds: Option<u64>) -> Result<(), String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let duration = match seconds {
        Some(seconds) => seconds * 1_000_000_000,
        None => monotonic_ns().saturating_sub(profile.start_ns),
    };
    let mut content = Vec::new();
    pprof::write(&mut content, profile, symbols, now, duration).map_err(|error| unwritten(path, &error))?;
    file::write(Some(path), &content)
}

/// An amount of memory; of a difference it may be below zero.
fn memory(amount: Amount) -> String {
    let sign = if amount.bytes < 0 { "-" } else { "" };
    format!("{sign}{}", bytes(amount.bytes.unsigned_abs()))
}
fn objects(amount: Amount) -> String {
    let sign = if amount.whole() < 0 { "-" } else { "" };
    let number = amount.whole().unsigned_abs();
    format!("{sign}{} object{}", count(number), plural(number))
}

/// How an amount differs from one before, in words: `1.0 MiB in 3 objects more`.
fn change(amount: Amount) -> String {
    let number = amount.whole().unsigned_abs();
    let (size, objects) = (bytes(amount.bytes.unsigned_abs()), format!("{} object{}", count(number), plural(number)));
    match (amount.bytes.signum(), amount.whole().signum()) {
        (-1, 1) => format!("{size} less in {objects} more"),
        (1, -1) => format!("{size} more in {objects} fewer"),
        (-1, _) | (_, -1) => format!("{size} in {objects} less"),
        _ => format!("{size} in {objects} more"),
    }
}

/// The report for eyes.
fn text(profile: &Named, what: &str, leaks: bool, since: Option<String>, paint: Paint) -> String {
    let (allocated, live) = profile.totals();
    let mut text = String::new();
    let of = if profile.ended { ", ended" } else { "" };
    let process = (profile.pid != 0).then(|| format!("process {}{of}", profile.pid));
    let mean = match (profile.mean, profile.pid) {
        // (Of a file in pprof's format: it may be a word for none.)
        (0 | 1, 0) => None,
        (0, _) => Some("off now".to_owned()),
        (1, _) => Some("every allocation".to_owned()),
        (mean, _) => Some(format!("a sample every {}", bytes(mean))),
    };
    let samples = profile.samples.map(|number| format!("{} sample{}", count(number), plural(number)));
    let how: Vec<String> = [mean, samples].into_iter().flatten().collect();
    let known: Vec<String> = process.into_iter().chain((!how.is_empty()).then(|| how.join(", "))).collect();
    let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join("; ")) };
    let title = if leaks { "still in use" } else { "heap profile" };
    let _ = writeln!(text, "{}", paint.bold(&format!("{title}: {what}{known}")));
    let is_difference = since.is_some();
    let plainly = |amount| format!("{} in {}", memory(amount), objects(amount));
    let in_use = since.as_ref().map_or_else(|| plainly(live), |since| format!("{} than {since}", change(live)));
    // (What so many seconds allocated is no difference.)
    let ever = if is_difference && profile.samples.is_none() { change(allocated) } else { plainly(allocated) };
    let estimates = if profile.is_exact { "" } else { " (estimates)" };
    let _ = writeln!(text, "  in use {in_use}; allocated {ever}{estimates}");
    if leaks {
        let _ = writeln!(
            text,
            "  what was sampled and not freed, by who allocated it; whether it was still needed nobody knows here"
        );
    }
    let [lost_room, lost_busy, lost_bytes] = profile.lost;
    if lost_room.saturating_add(lost_busy) > 0 {
        let _ = writeln!(
            text,
            "  {}",
            paint.notice(&format!(
                "lost: {} samples for lack of room, {} in signal handlers, for {} that are missing here",
                count(lost_room),
                count(lost_busy),
                bytes(lost_bytes)
            ))
        );
    }
    let mut stacks: Vec<&Stack> = profile
        .stacks
        .iter()
        .filter(|stack| stack.live.samples != 0 || !leaks && stack.allocated.samples != 0)
        .collect();
    // Of a difference what became less is as much worth a look as what became more.
    let size = |bytes: i64| if is_difference { bytes.saturating_abs() } else { bytes };
    stacks.sort_by_key(|stack| std::cmp::Reverse((size(stack.live.bytes), size(stack.allocated.bytes))));
    let rest = stacks.split_off(stacks.len().min(SHOWN));
    for stack in stacks {
        let percent = if live.bytes > 0 { stack.live.bytes as f64 * 100.0 / live.bytes as f64 } else { 0.0 };
        let share = if is_difference { String::new() } else { format!("{percent:.1} % ") };
        let _ = writeln!(
            text,
            "\n{} {share}in {}; allocated {} in {}",
            paint.bold(&format!("{:>10}", memory(stack.live))),
            objects(stack.live),
            memory(stack.allocated),
            objects(stack.allocated)
        );
        for function in &stack.functions {
            let place = match (function.file.as_str(), function.line) {
                ("", _) => String::new(),
                (file, 0) => format!("  {file}"),
                (file, line) => format!("  {file}:{line}"),
            };
            let _ = writeln!(text, "           {}{}", function.name, paint.faint(&place));
        }
        if stack.functions.is_empty() {
            let _ = writeln!(text, "           (no stack)");
        }
    }
    if !rest.is_empty() {
        let none = Amount::default();
        let live = rest.iter().fold(none, |sum, stack| sum.plus(stack.live));
        let _ =
            writeln!(text, "\n{:>10} in {} from {} more stacks", memory(live), objects(live), count(rest.len() as u64));
    }
    text
}

/// What `allotment run` shows when a program that it started has ended.
pub struct Heir {
    /// For pprof's file.
    pub save: bool,
    /// Its name, if one was given.
    pub path: Option<std::path::PathBuf>,
    /// On standard error.
    pub leaks: bool,
}

/// Removes what a process left to be read after its end.
pub fn remove_of_child(pid: u32) {
    let _ = fs::remove_file(read::of_child(pid));
}

/// The name of a process's profile where none was given.
pub fn default_name(pid: u32) -> std::path::PathBuf {
    format!("allotment-{pid}.pb.gz").into()
}

impl Heir {
    /// Reads what process `pid` left, tells, and removes it. What was sampled before `last_start` (`CLOCK_MONOTONIC`, ns) is of a
    /// program that the process was before its last exec: that is no leak.
    pub fn tell(&self, pid: u32, name: &str, program: Option<&Path>, last_start: u64) {
        let path = read::of_child(pid);
        let file = Found::at(&path, false).and_then(|found| found.open(false));
        let _ = fs::remove_file(&path);
        let profile = match file {
            Ok(file) => Profile::read(&file),
            Err(_) => Err("was not sampled: too little was allocated, Allotment was not reached, or its file found no room (/dev/shm, ulimit -f)"
                .to_owned()),
        };
        let profile = match profile {
            Ok(profile) => profile,
            Err(why) => return say(&format!("{name}: {why}")),
        };
        let is_before = profile.start_ns < last_start;
        if is_before {
            say(&format!("{name}: what was sampled is of the program before its last exec, none of the one after it"));
        }
        let mut symbols = Symbols::new(&profile, None, program);
        if self.save {
            let path = self.path.clone().unwrap_or_else(|| default_name(pid));
            match save(&path, &profile, &mut symbols, None) {
                Ok(()) => say(&format!("heap profile in {} (`go tool pprof` reads it)", path.display())),
                Err(line) => say(&line),
            }
        }
        if self.leaks && !is_before {
            let paint = Paint::of(&io::stderr());
            let text = text(&Named::of(&profile, &mut symbols), &printable(name), true, None, paint);
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;
    use symbols::Function;

    /// A profile of one stack.
    fn named(pid: u32, mean: u64, bytes: i64, objects: i64) -> Named {
        let functions = vec![Function { name: "main".into(), ..Function::default() }];
        let amount = Amount { samples: 1, bytes, objects: objects << 16 };
        let stack = Stack { functions, allocated: amount, live: amount, ..Stack::default() };
        let samples = (pid != 0).then_some(2);
        Named { pid, mean, is_exact: mean == 1, samples, stacks: vec![stack], ..Named::default() }
    }

    /// The first two lines.
    fn head(profile: &Named, since: Option<&str>) -> String {
        let text = text(profile, "it", false, since.map(str::to_owned), Paint::none());
        text.lines().take(2).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn only_what_is_known_is_said() {
        let amounts = "  in use 1.0 KiB in 3 objects; allocated 1.0 KiB in 3 objects";
        for (pid, mean, known, estimates) in [
            (7, 1, " (process 7; every allocation, 2 samples)", ""),
            (7, 0, " (process 7; off now, 2 samples)", " (estimates)"),
            (7, 2048, " (process 7; a sample every 2.0 KiB, 2 samples)", " (estimates)"),
            (0, 2048, " (a sample every 2.0 KiB)", " (estimates)"),
            (0, 1, "", ""),
            (0, 0, "", " (estimates)"),
        ] {
            let said = head(&named(pid, mean, 1024, 3), None);
            assert_eq!(said, format!("heap profile: it{known}|{amounts}{estimates}"));
        }
    }

    #[test]
    fn a_difference_is_more_or_less() {
        for (bytes, objects, said) in [
            (3072, 5, "2.0 KiB in 2 objects more"),
            (1024, 3, "0 B in 0 objects more"),
            (512, 1, "512 B in 2 objects less"),
            (1024, 2, "0 B in 1 object less"),
            (512, 3, "512 B in 0 objects less"),
            (2048, 2, "1.0 KiB more in 1 object fewer"),
            (512, 4, "512 B less in 1 object more"),
        ] {
            let less = named(7, 1, bytes, objects).less(&named(0, 1, 1024, 3));
            let title = "heap profile: it (process 7; every allocation)";
            assert_eq!(head(&less, Some("base")), format!("{title}|  in use {said} than base; allocated {said}"));
        }
        assert!(head(&named(7, 1, 9, 1).less(&named(0, 9, 1, 1)), Some("base")).ends_with("(estimates)"));
    }

    #[test]
    fn what_cannot_be_drawn_leaves_the_file_as_it_was() {
        let path = std::env::temp_dir().join(format!("allotment-drawn-{}.svg", std::process::id()));
        fs::write(&path, "an older one").unwrap();
        let line = ["allotment", "profile", "1", "--flamegraph", path.to_str().unwrap()];
        let Command::Profile(asked) = Args::parse_from(line).command else { panic!("another command") };
        assert_eq!(draw(&asked, &Named::default(), "nothing").unwrap_err(), "there is nothing to draw");
        assert_eq!(fs::read_to_string(&path).unwrap(), "an older one");
        fs::remove_file(&path).unwrap();
    }
}
