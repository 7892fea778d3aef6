//! # `allotment run`: a program on Allotment
//!
//! ```text
//!   without --stats   allotment ──exec──► PROGRAM          same process, nothing in between
//!   with --stats, or  allotment ──fork──► child ──exec──► PROGRAM
//!   for a launcher       │  ◄──── signals on, status back ────┘
//!                        └─ reads the board (a memfd) that the program's library
//!                           opened through /proc/<allotment>/fd/<n>
//! ```
//!
//! With a hard limit it is as with --stats: whether it refused something stands on the board, and is said at the end.
//!
//! The board is given as `ALLOTMENT_SHARE=PATH:PID`; only the process with that
//! id publishes, at its last exec, so that a shell shim that starts 33 others
//! shows none of them. One that has become another user cannot open it, publishes as any other process
//! does, and leaves that file for `run` to read. A launcher (`setpriv`, `su`, `env`, a script) is attended, too, so that
//! somebody is there to say that what it started runs without Allotment ([`watch`]).

mod launch;
mod library;
mod origin;
mod program;
mod signals;
mod watch;

pub use library::{EMBEDDED as LIBRARY, locate as locate_library};
pub use origin::is_output_closed;
pub use program::search;

use crate::args::Run;
use crate::code::{self, Failure};
use crate::conf::{self, Merged};
use crate::file::{self, Reserved};
use crate::observe::{self, Texts, View};
use crate::profile::{self, Heir};
use crate::report::{End, Missing, Snapshot};
use crate::term::{self, Paint, plain, say};
use allotment_engine::knob::{Id, TABLE};
use allotment_engine::stat::Event;
use allotment_engine::stat::board::{CONF_ENV, SHARE_BYTES, SHARE_ENV};
use allotment_engine::stat::profile::HEIR_ENV;
use launch::{Environment, NotStarted};
use program::Reach;
use signals::Finish;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::process::ExitCode;
use watch::Watch;

/// What is set unless the environment or `--set` says otherwise.
const PUBLISHED: &str = "publish=on";
/// The same where a profile is asked for.
const SAMPLED: &str = "profile_bytes=512K";

/// Runs what was asked.
pub fn run(asked: &Run) -> ExitCode {
    if asked.knobs {
        return term::finish(term::print(conf::table()));
    }
    if let (Some(Some(stats)), Some(Some(profile))) = (&asked.stats, &asked.profile)
        && file::is_same(stats, profile)
    {
        let line = format!("{} has room for one thing: name two files", stats.display());
        return term::finish(Err(Failure::usage(line)));
    }
    // Whoever runs a program by this command may look into it.
    let defaults = if is_profiled(asked) { &[PUBLISHED, SAMPLED][..] } else { &[PUBLISHED] };
    let Merged { conf, wrong } = conf::merged_over(defaults, &asked.set);
    if !wrong.is_empty() {
        wrong.iter().for_each(|line| say(line));
        return code::USAGE.into();
    }
    observe::sweep();
    match start(asked, conf) {
        Ok(exit) => exit,
        Err(line) => term::finish(Err(Failure { code: code::RUN_FAILED, line })),
    }
}

/// `allotment lib`: where the library is.
pub fn lib() -> ExitCode {
    term::finish(library::locate().and_then(|library| {
        if library.is_held() {
            return Err(
                "no folder can hold the library: it needs one that nobody else may change and that executes".to_owned()
            );
        }
        term::print([library.path().as_os_str().as_bytes(), b"\n"].concat())
    }))
}

/// Whether the heap is to be sampled.
fn is_profiled(asked: &Run) -> bool {
    asked.profile.is_some() || asked.leaks
}

/// Everything up to the program's end.
fn start(asked: &Run, conf: Option<OsString>) -> Result<ExitCode, String> {
    let limit = conf.as_deref().and_then(conf::hard_limit);
    let output = match &asked.stats {
        Some(Some(path)) => Some(Output::file(path)?),
        Some(None) => Some(Output::Terminal),
        None => None,
    };
    let profile = match &asked.profile {
        Some(Some(path)) if path != Path::new("-") => Some(Reserved::at(path)?),
        // (Its name is not known yet: whether the folder takes a file.)
        Some(None) => Reserved::at(&profile::default_name(std::process::id())).map(|_| None)?,
        _ => None,
    };
    let library = library::locate()?;
    let found = program::search(&asked.program[0]);
    let reach = found.as_deref().map_or(Reach::Unknown, program::inspect);
    // (A static launcher may start what is not.)
    let is_launcher = matches!(reach, Reach::Static(_)) || program::is_launcher(&asked.program, found.as_deref());
    let why_not = reach.why_not().filter(|_| !is_launcher);
    let is_said = why_not.is_some();
    if let Some(why) = why_not {
        say(&format!("{} is run without Allotment: {why}", asked.program[0].display()));
    }
    let mut environment = Environment::inherited();
    environment.set("LD_PRELOAD", &preload(library.path(), std::env::var_os("LD_PRELOAD").as_deref()));
    if let Some(conf) = &conf {
        environment.set(CONF_ENV, conf);
    }
    // (Where the library lives in a descriptor of ours somebody must keep it; whether the limit refused something stands on the board.)
    let is_attended = output.is_some() || limit.is_some() || library.is_held() || is_profiled(asked) || is_launcher;
    if !is_attended {
        let failure = launch::replace(&asked.program, environment);
        return end(asked, Err(failure), (None, None), limit, reach, found.as_deref());
    }
    environment.set(HEIR_ENV, OsStr::new(&std::process::id().to_string()));
    let share = match launch::memfd(c"allotment-board", SHARE_BYTES as u64) {
        Ok(share) => Some(share),
        Err(error) => {
            if output.is_some() {
                say(&format!("no statistics: cannot make the shared board: {}", plain(&error)));
            }
            None
        }
    };
    let output = output.filter(|_| share.is_some());
    let share = share.as_ref().map(|share| (SHARE_ENV, share));
    let finish = launch::attend(&asked.program, environment, share, is_said);
    end(asked, finish, (output, profile), limit, reach, found.as_deref())
}

/// What follows the program's end: statistics, and the same status.
fn end(
    asked: &Run,
    finish: Result<(Finish, Watch), NotStarted>,
    (output, profile): (Option<Output>, Option<Reserved>),
    limit: Option<u64>,
    reach: Reach,
    found: Option<&Path>,
) -> Result<ExitCode, String> {
    let name = asked.program[0].display();
    match finish {
        Err(NotStarted::Own(line)) => Err(line),
        Err(NotStarted::Exec(error)) => {
            let missing = error.raw_os_error() == Some(libc::ENOENT);
            let hint = if missing && found.is_some() { " (its interpreter is missing)" } else { "" };
            say(&format!("cannot run '{name}': {}{hint}", plain(&error)));
            Ok(if missing { code::NOT_FOUND } else { code::CANNOT_EXECUTE }.into())
        }
        Ok((finish, mut watch)) => {
            let program = found.unwrap_or_else(|| Path::new(&asked.program[0]));
            let board = watch.end(finish.name.as_deref(), program, libc::WIFEXITED(finish.end.status));
            match board {
                Some(board) if output.is_some() || limit.is_some() => {
                    statistics(asked, &finish, &board, output.as_ref(), limit);
                }
                // (Where it was given no board, that there is none says nothing.)
                None if watch.was_given() && !watch.is_said() && (output.is_some() || !watch.is_on()) => {
                    say(&match reach.why_not() {
                        Some(why) => format!("{name} is run without Allotment: {why}"),
                        None => format!("{name} ended without ever reaching Allotment: {}", Missing::Empty.reason()),
                    })
                }
                _ => {}
            }
            if !is_profiled(asked) {
                profile::remove_of_child(finish.end.pid);
            }
            if is_profiled(asked) {
                let path = asked.profile.clone().flatten();
                let heir = Heir { save: asked.profile.is_some(), path, leaks: asked.leaks };
                heir.tell(finish.end.pid, &name.to_string(), found, watch.last_start());
            }
            // (The end may be a signal.)
            drop((output, profile));
            Ok(launch::end_like(finish.end.status))
        }
    }
}

/// Prints what the program left on its board.
fn statistics(asked: &Run, finish: &Finish, share: &File, output: Option<&Output>, limit: Option<u64>) {
    let end = End { program: term::printable(&asked.program[0].to_string_lossy()), ..finish.end.clone() };
    let texts = Texts::read(share).unwrap_or_default();
    let view = Snapshot::read(share).map(|snapshot| View::new(finish.end.pid, false, snapshot, texts, None, end));
    match view {
        Ok(view) => {
            let refused = view.report.event(Event::LimitRefused);
            if let Some(limit) = limit.filter(|_| refused > 0) {
                let (name, plural) = (asked.program[0].display(), term::plural(refused));
                let limit = TABLE[Id::HardLimit as usize].show(limit);
                let refused = term::count(refused);
                say(&format!("{name} was refused memory {refused} time{plural} under hard_limit={limit}"));
            }
            output.into_iter().for_each(|output| output.write(&view));
        }
        Err(_) if output.is_none() => {}
        Err(missing) => {
            let (name, why) = (asked.program[0].display(), missing.reason());
            say(&format!("{name} ended without ever reaching Allotment: {why}"));
        }
    }
}

/// Where the statistics go.
enum Output {
    Terminal,
    Standard,
    File { name: Reserved, json: bool },
}

impl Output {
    /// Before the program starts, so that a wrong path is known at once.
    fn file(path: &Path) -> Result<Self, String> {
        if path == Path::new("-") {
            return Ok(Self::Standard);
        }
        let name = Reserved::at(path)?;
        let json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        Ok(Self::File { name, json })
    }
    fn write(&self, view: &View) {
        let written = match self {
            Self::Terminal => {
                let paint = Paint::of(&std::io::stderr());
                // One write: the lines of several programs shall not mix.
                std::io::stderr().lock().write_all(view.report.text(paint).as_bytes())
            }
            Self::Standard => return term::print(view.report.text(Paint::none())).unwrap_or_else(|line| say(&line)),
            Self::File { name, json } => File::create(name.path()).and_then(|mut file| match json {
                true => writeln!(file, "{:#}", observe::object(view, &[])),
                false => file.write_all(view.report.text(Paint::none()).as_bytes()),
            }),
        };
        if let Err(error) = written {
            term::say(&format!("cannot write the statistics: {}", plain(&error)));
        }
    }
}

/// `LD_PRELOAD` with our library first and no other Allotment behind it.
fn preload(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().as_bytes().to_vec();
    for entry in before.unwrap_or_default().as_bytes().split(|byte| matches!(byte, b' ' | b':')) {
        let file = entry.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if !entry.is_empty() && entry != library.as_os_str().as_bytes() && !file.starts_with(b"liballotment") {
            value.push(b':');
            value.extend_from_slice(entry);
        }
    }
    OsString::from_vec(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preload_goes_in_front_and_once() {
        let library = Path::new("/c/liballotment-1.so");
        assert_eq!(preload(library, None), "/c/liballotment-1.so");
        let before = OsStr::new("/a.so /c/liballotment-1.so:/old/liballotment-2.so b.so");
        assert_eq!(preload(library, Some(before)), "/c/liballotment-1.so:/a.so:b.so");
    }
}
