//! # `allotment`: the command
//!
//! Runs programs on Allotment and measures it. What each part owns:
//!
//! ```text
//!   args ── what can be asked, with the help texts
//!   conf ── `--set` and `ALLOTMENT_CONF`
//!   run ─── the library's file, the program's start, signals and end
//!   report ─ the board of a process: reading, adding up, text and JSON
//!   observe ─ stat, top, tune, drain, purge: a running process's board and mailbox
//!   bench ── contenders, repetitions, tables; workers that malloc
//!   profile ─ samples of a heap: reading, names, text, pprof's format
//!   doctor ─ what this machine offers
//!   file ── files that others may have made    term ── what goes to terminals
//! ```
//!
//! The command's own heap is the system's. Exit codes are in [`code`].

mod args;
mod bench;
mod conf;
mod doctor;
mod file;
mod observe;
mod profile;
mod report;
mod run;
mod term;

use clap::Parser as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;

/// Exit codes of the command itself; a program's own status passes through `run`.
pub mod code {
    /// Everything was done.
    pub const DONE: u8 = 0;
    /// A part of what was asked failed.
    pub const FAILED: u8 = 1;
    /// The command line is wrong (clap's own code too).
    pub const USAGE: u8 = 2;
    /// `run` itself failed before the program began.
    pub const RUN_FAILED: u8 = 125;
    /// The program was found and cannot be executed.
    pub const CANNOT_EXECUTE: u8 = 126;
    /// There is no such program.
    pub const NOT_FOUND: u8 = 127;
}

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => error.exit(),
        // Help and version.
        Err(error) => {
            let text = error.render();
            return term::finish(term::print(if std::io::stdout().is_terminal() {
                text.ansi().to_string()
            } else {
                text.to_string()
            }));
        }
    };
    match args.command {
        args::Command::Run(run) => run::run(&run),
        args::Command::Stat(stat) => observe::stat(&stat),
        args::Command::Top(top) => observe::top(&top),
        args::Command::Tune(tune) => observe::tune(&tune),
        args::Command::Drain(drain) => observe::drain(&drain),
        args::Command::Purge(purge) => observe::purge(&purge),
        args::Command::Bench(bench) => bench::bench(&bench),
        args::Command::BenchWorker(worker) => bench::work(&worker),
        args::Command::Profile(asked) => profile::profile(&asked),
        args::Command::Doctor(doctor) => doctor::doctor(&doctor),
    }
}
