//! # `allotment`: the command
//!
//! Runs programs on Allotment and measures it. What each part owns:
//!
//! ```text
//!   bench ──── contenders, repetitions, tables; suites and their workers
//!   unpack ─── what is installed beside the command
//!   run ────── the library's file, the program's start, signals and end
//!   profile ── samples of a heap: reading, names, text, pprof's format
//!   observe ── stat, top, tune, drain, purge: a running process's board and mailbox
//!   doctor ─── what this machine offers
//!   report ─── the board of a process: reading, adding up, text and JSON
//!   file, proc ─ files that others may have made; what `/proc` and `/sys` say
//!   args, conf, term, code, clock ─ what can be asked, knobs, terminals, exit codes, times
//! ```
//! A module uses only those below it: ARCHITECTURE.md has the ranks, `tests/layers.rs` checks them.
//!
//! The command's own heap is the system's. Exit codes are in [`code`].

mod args;
mod bench;
mod clock;
mod code;
mod conf;
mod doctor;
mod file;
mod observe;
mod proc;
mod profile;
mod report;
mod run;
mod term;
mod unpack;

use clap::Parser as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

fn main() -> ExitCode {
    term::IS_CLOSED.store(run::is_output_closed(), Relaxed);
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
        args::Command::Lib => run::lib(),
        args::Command::Unpack(asked) => unpack::unpack(&asked),
    }
}
