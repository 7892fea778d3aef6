//! # Steering a running process
//!
//! `tune`, `drain` and `purge` ask at the mailbox and say what was done.

use super::ask::{LONG, SOON, ask, refusal};
use super::find::Target;
use super::view::View;
use super::{text, who};
use crate::args;
use crate::code::Failure;
use crate::term::{bytes, count, finish, plural, print};
use crate::{conf, proc};
use allotment_engine::knob::{self, BY_CGROUP, Id, TABLE};
use allotment_engine::stat::board::{EVERY_CPU, IDLE_CPUS, Request};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

/// Asks, and takes nothing but `Done`.
fn request(
    target: &Target,
    order: Request,
    arguments: [u64; 2],
    patience: std::time::Duration,
) -> Result<[u64; 8], String> {
    let (answer, results) = ask(target, order, arguments, patience).map_err(|silence| silence.line(target.pid))?;
    refusal(target.pid, answer).map_or(Ok(results), Err)
}

/// One word of `allotment tune`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Print(usize),
    Set(usize, u64),
}

/// Reads the words before anything is done.
fn wishes(words: &[std::ffi::OsString]) -> Result<Vec<Wish>, String> {
    let wish = |word: &std::ffi::OsString| {
        let word = word.as_bytes();
        if let Some(at) = TABLE.iter().position(|knob| knob.name.as_bytes() == word) {
            return Ok(Wish::Print(at));
        }
        if word.first().is_some_and(u8::is_ascii_digit) {
            let word = word.escape_ascii();
            return Err(format!("`{word}` is a value, and of no knob: KEY=VALUE, as in `lazy_floor=8MiB`"));
        }
        if !word.contains(&b'=') {
            // A name, with the nearest one.
            let asked = [word, b"=".as_slice()].concat();
            return knob::parse(&asked)
                .map(|(at, _)| Wish::Print(at))
                .map_err(|wrong| wrong.explain(&asked).to_string());
        }
        let (at, value) = knob::parse(word).map_err(|wrong| wrong.explain(word).to_string())?;
        if conf::is_fixed(at) {
            return Err(format!("{}: read at the start only; set it by `allotment run --set`", TABLE[at].name));
        }
        Ok(Wish::Set(at, value))
    };
    words.iter().map(wish).collect()
}

/// Sets a knob: what it was.
///
/// # Errors
/// One line.
pub fn set(target: &Target, at: usize, value: u64) -> Result<u64, String> {
    let view = View::take(target, false)?;
    let before = view.knob(at);
    // (1 is the cgroup's.)
    let held = view.report.memory.in_use;
    if at == Id::HardLimit as usize && value > BY_CGROUP && value < held {
        return Err(format!(
            "hard_limit={} is below what process {} has in use ({}): it would refuse whatever is asked of it; nothing was \
             changed (soft_limit gives back what is free)",
            TABLE[at].show(value),
            target.pid,
            bytes(held)
        ));
    }
    request(target, Request::Tune, [at as u64, value], SOON)?;
    Ok(before)
}

/// Reads `KEY=VALUE` and sets it: a line that says what was done.
///
/// # Errors
/// One line.
pub fn tune_word(target: &Target, word: &str) -> Result<String, String> {
    match wishes(&[word.into()])?[..] {
        [Wish::Set(at, value)] => Ok(changed(at, set(target, at, value)?, value)),
        [Wish::Print(at)] => Ok(text::knob(at, View::take(target, false)?.knob(at))),
        _ => Err("KEY=VALUE is needed".into()),
    }
}

/// `lazy_floor: 1M → 64M`.
fn changed(at: usize, before: u64, value: u64) -> String {
    let knob = &TABLE[at];
    format!("{}: {} → {}", knob.name, knob.show(before), knob.show(value))
}

/// `allotment tune`.
pub fn tune(asked: &args::Tune) -> ExitCode {
    finish(tune_as(asked))
}

fn tune_as(asked: &args::Tune) -> Result<(), Failure> {
    let wishes = wishes(&asked.knobs).map_err(Failure::usage)?;
    let target = who::target(&asked.target)?;
    if wishes.is_empty() {
        return Ok(print(text::knobs(&View::take(&target, false)?))?);
    }
    for wish in wishes {
        let line = match wish {
            Wish::Print(at) => text::knob(at, View::take(&target, false)?.knob(at)),
            Wish::Set(at, value) => changed(at, set(&target, at, value)?, value),
        };
        print(line + "\n")?;
    }
    Ok(())
}

/// What a drain took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Drained {
    bytes: u64,
    objects: u64,
    reached: u64,
    unreached: u64,
    fences: u64,
    answers: u64,
}

impl Drained {
    /// One line.
    pub fn line(&self) -> String {
        let mut line = format!(
            "{} in {} object{} from {} set{}; {} fence{}, {} answer{}",
            bytes(self.bytes),
            count(self.objects),
            plural(self.objects),
            self.reached,
            plural(self.reached),
            self.fences,
            plural(self.fences),
            self.answers,
            plural(self.answers)
        );
        if self.unreached > 0 {
            line += &format!("; {} set{} could not be reached", self.unreached, plural(self.unreached));
        }
        line
    }
}

/// Drains.
///
/// # Errors
/// One line.
pub fn drain_now(target: &Target, cpu: u64, way: u64) -> Result<Drained, String> {
    let [bytes, objects, reached, unreached, fences, answers, ..] = request(target, Request::Drain, [cpu, way], LONG)?;
    Ok(Drained { bytes, objects, reached, unreached, fences, answers })
}

/// `allotment drain`.
pub fn drain(asked: &args::Drain) -> ExitCode {
    finish(drain_as(asked))
}

fn drain_as(asked: &args::Drain) -> Result<(), Failure> {
    let possible = proc::possible_cpus();
    if let Some(cpu) = asked.cpu.filter(|&cpu| !proc::is_listed(cpu, &possible)) {
        return Err(Failure::usage(format!("there is no CPU {cpu}: this machine has {possible}")));
    }
    let which = match asked.cpu {
        Some(cpu) => cpu.into(),
        None if asked.idle => IDLE_CPUS,
        None => EVERY_CPU,
    };
    let way = if asked.gentle { 1 } else { 2 * u64::from(asked.expedited) };
    let drained = drain_now(&who::target(&asked.target)?, which, way)?;
    Ok(print(if asked.json { format!("{:#}\n", serde_json::json!(drained)) } else { drained.line() + "\n" })?)
}

/// What a purge gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Purged {
    bytes: u64,
    resident_before: u64,
    resident_after: u64,
}

impl Purged {
    /// One line.
    pub fn line(&self) -> String {
        let [gave, before, after] = [self.bytes, self.resident_before, self.resident_after].map(bytes);
        format!("{gave} given back; resident {before} → {after}")
    }
}

/// Purges.
///
/// # Errors
/// One line.
pub fn purge_now(target: &Target) -> Result<Purged, String> {
    let resident = || proc::resident(target.pid).unwrap_or(0);
    let resident_before = resident();
    let [bytes, ..] = request(target, Request::Purge, [0; 2], LONG)?;
    Ok(Purged { bytes, resident_before, resident_after: resident() })
}

/// `allotment purge`.
pub fn purge(asked: &args::Purge) -> ExitCode {
    finish(who::target(&asked.target).and_then(|target| {
        let purged = purge_now(&target)?;
        if asked.json { print(format!("{:#}\n", serde_json::json!(purged))) } else { print(purged.line() + "\n") }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_before_anything_is_done() {
        let read = |words: &[&str]| wishes(&words.iter().map(std::ffi::OsString::from).collect::<Vec<_>>());
        let (floor, drain) = (Id::LazyFloor as usize, Id::Drain as usize);
        assert_eq!(read(&["lazy_floor", "drain=off"]), Ok(vec![Wish::Print(floor), Wish::Set(drain, 3)]));
        for (word, part) in [
            ("lazy_flor=1", "`lazy_floor`"),
            ("lazy_flor", "`lazy_floor`"),
            ("lazy_floor=x", "`lazy_floor` cannot be `x`"),
            ("lazy_floor=", "bytes from"),
            ("mode=fallback", "start only"),
            ("8MiB", "KEY=VALUE"),
        ] {
            let line = read(&[word]).expect_err(word);
            assert!(line.contains(part) && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn what_was_done_is_one_line() {
        let drained = Drained { bytes: 2048, objects: 1234, reached: 1, unreached: 0, fences: 1, answers: 0 };
        assert_eq!(drained.line(), "2.0 KiB in 1,234 objects from 1 set; 1 fence, 0 answers");
        let missed = Drained { unreached: 2, ..drained };
        assert!(missed.line().ends_with("2 sets could not be reached"));
        let purged = Purged { bytes: 1 << 20, resident_before: 3 << 20, resident_after: 2 << 20 };
        assert_eq!(purged.line(), "1.0 MiB given back; resident 3.0 MiB → 2.0 MiB");
        assert_eq!(changed(Id::LazyFloor as usize, 1 << 20, 64 << 20), "lazy_floor: 1M → 64M");
    }
}
