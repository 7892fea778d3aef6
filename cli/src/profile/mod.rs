//! # `allotment profile`: who allocates, and what is still in use
//!
//! ```text
//!  /dev/shm/allotment-…-PID.heap ── read ─► stacks ── symbols ─► text, or pprof's format
//! ```
//! What is read was sampled by the process itself (knob `profile_bytes`); all amounts are estimates, unless the knob
//! is 1. `allotment run --profile` and `--leaks` read the same when the program has ended.

mod pprof;
mod read;
mod symbols;

use crate::args::Profile as Asked;

use crate::term::{Paint, bytes, count, finish, print, say};
use read::{Amount, Profile, Stack};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use symbols::Symbols;

/// Stacks that a text shows.
const SHOWN: usize = 20;

/// Does what was asked.
pub fn profile(asked: &Asked) -> ExitCode {
    finish(show(asked))
}

fn show(asked: &Asked) -> Result<(), String> {
    let (file, pid) = open(&asked.source)?;
    let what = &asked.source;
    let read = || Profile::read(&file).map_err(|why| format!("{what}: {why}"));
    let mut profile = read()?;
    if let Some(seconds) = asked.seconds {
        std::thread::sleep(Duration::from_secs(seconds));
        profile = read()?.since(&profile);
    }
    let mut symbols = Symbols::new(&profile, pid, None);
    if let Some(path) = &asked.output {
        save(path, &profile, &mut symbols, asked.seconds)?;
        if !asked.text && !asked.leaks {
            return Ok(());
        }
    }
    let paint = Paint::of(&io::stdout());
    let text = text(&profile, &mut symbols, what, asked.leaks, asked.seconds, paint);
    print(text)
}

/// The profile of a process, or a file; which process, if it runs.
fn open(source: &str) -> Result<(File, Option<u32>), String> {
    let Ok(pid) = source.parse::<u32>() else {
        let file = File::open(source).map_err(|error| format!("{source}: {error}"))?;
        // It may be that of a process that still runs.
        let pid = source.strip_suffix(".heap").and_then(|name| name.rsplit('-').next()?.parse().ok());
        return Ok((file, pid.filter(|&pid| is_mapped_by(pid, source))));
    };
    let path = read::of_process(pid)?;
    let file = match File::open(&path) {
        Ok(file) if is_mapped_by(pid, &path.to_string_lossy()) => file,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(format!("process {pid} belongs to somebody else"));
        }
        _ => {
            return Err(format!(
                "process {pid} has no heap profile: `allotment tune {pid} profile_bytes=512K` switches it on, or `allotment run --set \
                 profile_bytes=512K -- PROGRAM` from the start; and it must have allocated so much since"
            ));
        }
    };
    Ok((file, Some(pid)))
}

/// Whether a process has the file of that name mapped: a program before its last exec may have left one.
fn is_mapped_by(pid: u32, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.lines().any(|line| line.ends_with(name)))
}

/// Writes pprof's format.
fn save(path: &Path, profile: &Profile, symbols: &mut Symbols, seconds: Option<u64>) -> Result<(), String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let duration = match seconds {
        Some(seconds) => seconds * 1_000_000_000,
        None => crate::run::monotonic_ns().saturating_sub(profile.start_ns),
    };
    let failed = |error: io::Error| format!("cannot write {}: {error}", path.display());
    let file = File::create(path).map_err(failed)?;
    pprof::write(io::BufWriter::new(file), profile, symbols, now, duration).map_err(failed)
}

/// What is left of a stack without the allocator's own frames (of a program that has Allotment built in).
fn callers<'a>(frames: &'a [u64], symbols: &mut Symbols) -> &'a [u64] {
    let skipped =
        frames.iter().take_while(|&&frame| symbols.at(frame).iter().all(symbols::Function::is_allocators)).count();
    // One that is nothing else is shown as it is.
    if skipped < frames.len() { &frames[skipped..] } else { frames }
}

/// An amount of memory; of a difference it may be below zero.
fn memory(amount: Amount) -> String {
    let sign = if amount.bytes < 0 { "-" } else { "" };
    format!("{sign}{}", bytes(amount.bytes.unsigned_abs()))
}
fn objects(amount: Amount) -> String {
    let sign = if amount.whole() < 0 { "-" } else { "" };
    format!("{sign}{} object{}", count(amount.whole().unsigned_abs()), if amount.whole() == 1 { "" } else { "s" })
}

/// The report for eyes.
fn text(
    profile: &Profile,
    symbols: &mut Symbols,
    what: &str,
    leaks: bool,
    seconds: Option<u64>,
    paint: Paint,
) -> String {
    let (allocated, live) = profile.totals();
    let mut text = String::new();
    let mean = match profile.mean {
        0 => "off now".to_owned(),
        1 => "every allocation".to_owned(),
        mean => format!("a sample every {}", bytes(mean)),
    };
    let of = if profile.ended { ", ended" } else { "" };
    let title = if leaks { "still in use" } else { "heap profile" };
    let _ = writeln!(
        text,
        "{}",
        paint.bold(&format!(
            "{title}: {what} (process {}{of}; {mean}, {} samples)",
            profile.pid,
            count(allocated.samples.unsigned_abs())
        ))
    );
    let during = seconds.map_or_else(String::new, |seconds| format!(" more than {seconds} s before"));
    let _ = writeln!(
        text,
        "  in use {} in {}{during}; allocated {} in {}{}",
        memory(live),
        objects(live),
        memory(allocated),
        objects(allocated),
        if profile.mean == 1 { "" } else { " (estimates)" }
    );
    if leaks {
        let _ = writeln!(
            text,
            "  what was sampled and not freed, by who allocated it; whether it was still needed nobody knows here"
        );
    }
    if profile.lost_room + profile.lost_busy > 0 {
        let _ = writeln!(
            text,
            "  {}",
            paint.notice(&format!(
                "lost: {} samples for lack of room, {} in signal handlers, for {} that are missing here",
                count(profile.lost_room),
                count(profile.lost_busy),
                bytes(profile.lost_bytes)
            ))
        );
    }
    let mut stacks: Vec<&Stack> = profile
        .stacks
        .iter()
        .filter(|stack| stack.live.samples != 0 || !leaks && stack.allocated.samples != 0)
        .collect();
    stacks.sort_by_key(|stack| std::cmp::Reverse((stack.live.bytes, stack.allocated.bytes)));
    let rest = stacks.split_off(stacks.len().min(SHOWN));
    for stack in stacks {
        let share = if live.bytes > 0 { stack.live.bytes as f64 * 100.0 / live.bytes as f64 } else { 0.0 };
        let _ = writeln!(
            text,
            "\n{} {share:.1} % in {}; allocated {} in {}",
            paint.bold(&format!("{:>10}", memory(stack.live))),
            objects(stack.live),
            memory(stack.allocated),
            objects(stack.allocated)
        );
        for &frame in callers(&stack.frames, symbols) {
            for function in symbols.at(frame) {
                let place = match (function.file.as_str(), function.line) {
                    ("", _) => String::new(),
                    (file, 0) => format!("  {file}"),
                    (file, line) => format!("  {file}:{line}"),
                };
                let _ = writeln!(text, "           {}{}", function.name, paint.faint(&place));
            }
        }
        if stack.frames.is_empty() {
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

impl Heir {
    /// Reads what process `pid` left, tells, and removes it.
    pub fn tell(&self, pid: u32, name: &str, program: Option<&Path>) {
        let path = read::of_child(pid);
        let file = File::open(&path);
        let _ = fs::remove_file(&path);
        let profile = match file {
            Ok(file) => Profile::read(&file),
            Err(_) => Err("was not sampled: too little was allocated, or Allotment was not reached".to_owned()),
        };
        let profile = match profile {
            Ok(profile) => profile,
            Err(why) => return say(&format!("{name}: {why}")),
        };
        let mut symbols = Symbols::new(&profile, None, program);
        if self.save {
            let path = self.path.clone().unwrap_or_else(|| format!("allotment-{pid}.pb.gz").into());
            match save(&path, &profile, &mut symbols, None) {
                Ok(()) => say(&format!("heap profile in {} (`go tool pprof` reads it)", path.display())),
                Err(line) => say(&line),
            }
        }
        if self.leaks {
            let paint = Paint::of(&io::stderr());
            let text = text(&profile, &mut symbols, name, true, None, paint);
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
    }
}
