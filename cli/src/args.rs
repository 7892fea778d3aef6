//! # What can be asked of the command
//!
//! One structure per command; clap makes the parser and the help from it.

use clap::{Args as ClapArgs, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "allotment",
    version,
    about = "Runs programs on Allotment, the per-CPU malloc, and measures it",
    after_help = "Examples:
  allotment run -- redis-server                  any program, on Allotment
  allotment run --stats -- make -j4              and say at its end what the heap did
  allotment bench malloc --quick                 beside the allocators installed here
  allotment doctor                               what this machine offers

Exit codes: 0 done, 1 failed, 2 wrong command line; `run` passes the program's own.
`allotment COMMAND --help` has the rest."
)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program on Allotment; its exit status and signals pass through
    Run(Run),
    /// Measure Allotment beside other allocators, interleaved, with medians
    Bench(Bench),
    /// What one run of one benchmark does, under a preloaded library
    #[command(hide = true)]
    BenchWorker(BenchWorker),
    /// Say what this machine offers, which mode results and what to change
    Doctor(Doctor),
}

/// `allotment run`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  allotment run -- python3 script.py
  allotment run --stats -- make -j4              statistics on standard error at the end
  allotment run --stats=heap.json -- ./server    the same as JSON in a file
  allotment run --set mode=fallback --set lazy_floor=64M -- ./server

Exit codes: the program's own; if a signal ended it, `allotment` dies by the same
signal. 2 the command line is wrong, 125 `run` itself failed, 126 the program
cannot be executed, 127 there is no such program.

Environment: ALLOTMENT_CONF=KEY=VALUE,... is merged, `--set` goes before it.
ALLOTMENT_PRELOAD_SO=PATH preloads that library instead of the built-in one.
Knobs (docs/tuning.md): `allotment run --knobs`.")]
pub struct Run {
    /// Print statistics when the program has ended, on standard error or to FILE (JSON if it ends in .json)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub stats: Option<Option<PathBuf>>,
    /// Set a knob; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<OsString>,
    /// List the knobs with their defaults and ranges
    #[arg(long)]
    pub knobs: bool,
    /// The program and its arguments
    #[arg(
        value_name = "PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "knobs"
    )]
    pub program: Vec<OsString>,
}

/// `allotment bench`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  allotment bench malloc --quick
  allotment bench malloc apps --json rows.json --report out/
  allotment bench malloc/pair-64 --peers glibc,mimalloc --runs 11
  allotment bench malloc --peers mine=/opt/lib/libmine.so
  allotment bench --list

All contenders of a case run in turn (A B C A B C ...), each in a process of its
own, and every one is checked to have taken malloc over. `*` marks the best median.

Exit codes: 0 done, 1 a contender failed, 2 wrong command line.")]
pub struct Bench {
    /// Suites, or SUITE/CASE; all suites if none is named
    #[arg(value_name = "SUITE")]
    pub suites: Vec<String>,
    /// Only these peers: names or NAME=PATH, separated by commas (default: all that are installed)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub peers: Option<Vec<String>>,
    /// Write the rows as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write report.md and one drawing per suite into DIR
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Fewer and shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Runs of each contender (default 7, quick 3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Set a knob of Allotment; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<OsString>,
    /// List suites, cases and peers
    #[arg(long)]
    pub list: bool,
}

/// `allotment doctor`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  allotment doctor
  allotment doctor --json | jq '.findings[] | select(.verdict != \"good\")'

A program is run for a moment: what it finds decides the mode, and the exit code.

Exit codes: 0 Allotment runs in its best mode here, 1 it runs in a lesser one.")]
pub struct Doctor {
    /// Print JSON: mode, reason, and for each finding name, value, means, verdict (good, notice, bad), advice
    #[arg(long)]
    pub json: bool,
}

/// `allotment bench-worker`, started by `bench`.
#[derive(Debug, ClapArgs)]
pub struct BenchWorker {
    /// The suite
    pub suite: String,
    /// The case
    pub case: String,
    /// Threads
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Per cent of the full number of operations
    #[arg(long, default_value_t = 100)]
    pub scale: u64,
    /// The library that must own malloc
    #[arg(long)]
    pub expect: Option<PathBuf>,
}
