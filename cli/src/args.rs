//! # What can be asked of the command
//!
//! One structure per command; clap makes the parser and the help from it.

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "allotment",
    version,
    about = "Runs programs on Allotment, the per-CPU malloc, watches, steers and measures it",
    after_help = "Examples:
  allotment run -- redis-server                  any program, on Allotment
  allotment run --stats -- make -j4              and say at its end what the heap did
  allotment stat PID                             what the heap of a running program holds
  allotment top PID                              the same, live
  allotment tune PID lazy_floor=64M              change a knob of it
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
    /// Look into a running program's heap: sections as in /proc, JSON, OpenMetrics
    Stat(Stat),
    /// Watch a running program's heap live
    Top(Top),
    /// Read and set the knobs of a running program
    Tune(Tune),
    /// Empty the per-CPU caches of a running program
    Drain(Drain),
    /// Give all free memory of a running program back to the system
    Purge(Purge),
    /// Measure Allotment beside other allocators, interleaved, with medians
    Bench(Bench),
    /// What one run of one benchmark does, under a preloaded library
    #[command(hide = true)]
    BenchWorker(BenchWorker),
    /// Show who allocates and what is still in use, from the samples of a running process
    Profile(Profile),
    /// Say what this machine offers, which mode results and what to change
    Doctor(Doctor),
    /// Print where the preloadable library is, for LD_PRELOAD and /etc/ld.so.preload
    #[command(after_help = "Examples:
  LD_PRELOAD=$(allotment lib) python3 script.py  without the command in between
  cp $(allotment lib) rootfs/usr/lib/            for an image that has no command

The path is that of the installed library, if it is this very version, else of a copy in
root's /var/cache/allotment or another user's ~/.cache/allotment.

Exit codes: 0 printed, 1 no folder can hold it.")]
    Lib,
    /// Write what is installed beside the command into DIRECTORY (`packaging/install` does)
    #[command(hide = true)]
    Unpack(Unpack),
}

/// `allotment unpack`.
#[derive(Debug, ClapArgs)]
pub struct Unpack {
    /// Gets the library, man pages and completions of shells
    pub directory: PathBuf,
}

/// `allotment run`.
#[derive(Debug, ClapArgs)]
#[command(override_usage = "allotment run [OPTIONS] [--] PROGRAM [ARGUMENT]...\n       allotment run --knobs")]
#[command(after_help = "Examples:
  allotment run -- python3 script.py
  allotment run --stats -- make -j4              statistics on standard error at the end
  allotment run --stats=heap.json -- ./server    the same as JSON in a file
  allotment run --profile=heap.pb.gz -- ./server who allocated, for `go tool pprof`
  allotment run --leaks --set profile_bytes=1 -- ./tool
  allotment run --set mode=fallback --set lazy_floor=64M -- ./server

Exit codes: the program's own; if a signal ended it, `allotment` dies by the same
signal. 2 the command line is wrong (a knob of `--set`, too), 125 `run` itself failed,
126 the program cannot be executed, 127 there is no such program.

Environment: ALLOTMENT_CONF=KEY=VALUE,... is merged, `--set` goes before it; what
is wrong there is said and left out.
ALLOTMENT_PRELOAD_SO=PATH preloads that library instead of the built-in one.
Knobs (docs/tuning.md): `allotment run --knobs`.")]
pub struct Run {
    /// Print statistics when the program has ended, on standard error or to FILE (JSON if it ends in .json; `-`: standard output)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub stats: Option<Option<PathBuf>>,
    /// Set a knob; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<OsString>,
    /// Sample the heap and write who allocated to FILE (default allotment-PID.pb.gz) when the program has ended
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub profile: Option<Option<PathBuf>>,
    /// Sample the heap and print, when the program has ended, what was still in use
    #[arg(long)]
    pub leaks: bool,
    /// List the knobs with their defaults and ranges
    #[arg(long)]
    pub knobs: bool,
    /// The program and its arguments; options of `run` stand before it
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, required_unless_present = "knobs")]
    pub program: Vec<OsString>,
}

/// Sections of `allotment stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum StatSection {
    /// Levels, sums and events, a name and a number each
    Vmstat,
    /// Zones of pages and the lists of each CPU, as /proc/zoneinfo
    Zoneinfo,
    /// Free blocks of pages by order, as /proc/buddyinfo
    Buddyinfo,
    /// Size classes, as /proc/slabinfo
    Slabinfo,
    /// Areas above 16 KiB, as /proc/vmallocinfo
    Vmallocinfo,
    /// Per-CPU memory, as the kernel's percpu_stats
    PercpuStats,
    /// How long purges, drains, refills and large frees took: histograms
    Latency,
    /// What each CPU's set holds
    Sets,
    /// The knobs
    Knobs,
}

impl StatSection {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Vmstat,
        Self::Zoneinfo,
        Self::Buddyinfo,
        Self::Slabinfo,
        Self::Vmallocinfo,
        Self::PercpuStats,
        Self::Latency,
        Self::Sets,
        Self::Knobs,
    ];
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vmstat => "vmstat",
            Self::Zoneinfo => "zoneinfo",
            Self::Buddyinfo => "buddyinfo",
            Self::Slabinfo => "slabinfo",
            Self::Vmallocinfo => "vmallocinfo",
            Self::PercpuStats => "percpu_stats",
            Self::Latency => "latency",
            Self::Sets => "sets",
            Self::Knobs => "knobs",
        }
    }
}

/// `allotment stat`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  allotment stat                                 the programs that can be looked into
  allotment stat 4242                            a summary
  allotment stat redis-server                    the same, by name
  allotment stat 4242 slabinfo buddyinfo         two sections
  allotment stat 4242 vmstat --watch 1           every second, with rates
  allotment stat 4242 --json | jq .memory
  allotment stat 4242 --openmetrics              for Prometheus' textfile collector, or a server
  allotment stat --all --openmetrics --output /var/lib/prometheus/node-exporter/allotment.prom
  cp /dev/shm/allotment-*-4242 board; allotment stat board    (of one that publish=on made)

A program can be looked into by its own user and root, if `allotment run` started it
or ALLOTMENT_CONF has publish=on. It writes some sections itself when it is asked;
if it cannot answer, the last text is shown and its age said.

Exit codes: 0 done, 1 no such process, not publishing, or not readable, 2 wrong command line.
Formats: docs/observing.md.")]
pub struct Stat {
    /// A process, by its number or its program's name, or a copy of its board; without it, list the processes
    #[arg(value_name = "PID|NAME|FILE")]
    pub target: Option<OsString>,
    /// Sections; a summary if none is named
    #[arg(value_name = "SECTION")]
    pub sections: Vec<StatSection>,
    /// Print one JSON object (with --watch: one a line)
    #[arg(long, conflicts_with_all = ["openmetrics", "all", "output"])]
    pub json: bool,
    /// Print OpenMetrics text, all families
    #[arg(long, conflicts_with_all = ["watch", "sections"])]
    pub openmetrics: bool,
    /// With --openmetrics: of every process that may be looked into, a bounded number of series each
    // (What conflicts with --openmetrics does with these two: clap does not require it beside such.)
    #[arg(long, requires = "openmetrics", conflicts_with_all = ["target", "no_ask", "watch"])]
    pub all: bool,
    /// With --openmetrics: write FILE, which appears when it is whole (- for standard output)
    #[arg(long, value_name = "FILE", requires = "openmetrics", conflicts_with_all = ["watch", "sections"])]
    pub output: Option<PathBuf>,
    /// Print again every SECONDS, until the program ends or nobody reads on
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub watch: Option<f64>,
    /// With --watch: so many times
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Do not ask the process: only what it counts all the time, and what it wrote when it was asked last
    #[arg(long)]
    pub no_ask: bool,
}

/// `allotment top`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  allotment top 4242
  allotment top                                  the only program there is

Keys: q quit, h help, 1-4 or tab panes, s sort, space pause, + - interval,
d drain, p purge, t tune. Works in 80x24, over ssh and without colour (NO_COLOR).

Exit codes: 0 done, also when the program ended, 1 no such process, not publishing, or no terminal, 2 wrong command line.")]
pub struct Top {
    /// A process, by its number or its program's name; without it the only one that publishes
    #[arg(value_name = "PID|NAME")]
    pub target: Option<String>,
    /// Seconds between looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: f64,
}

/// `allotment tune`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  allotment tune 4242                            every knob: value, default, range
  allotment tune 4242 lazy_floor                 one
  allotment tune 4242 lazy_floor=64M drain=gentle

Knobs: docs/tuning.md. Those that are read at the start only are refused.

Exit codes: 0 done, 1 no such process, not publishing, no answer or refused, 2 wrong command line, key or value.")]
pub struct Tune {
    /// A process, by its number or its program's name
    #[arg(value_name = "PID|NAME")]
    pub target: String,
    /// A knob to print, or to set
    #[arg(value_name = "KEY[=VALUE]")]
    pub knobs: Vec<OsString>,
}

/// `allotment drain`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  allotment drain 4242                           every CPU
  allotment drain 4242 --cpu 3 --gentle
  allotment drain 4242 --idle                    only CPUs that run none of its threads

Gentle interrupts nobody: owners give their set up at their next slow path, or are
reported as unreached. Expedited interrupts each busy CPU once. By default CPUs that
the kernel keeps quiet are asked gently, others are interrupted (docs/drain.md).

Exit codes: 0 done, 1 no such process, not publishing, no answer or refused, 2 wrong command line.")]
pub struct Drain {
    /// A process, by its number or its program's name
    #[arg(value_name = "PID|NAME")]
    pub target: String,
    /// Only this CPU
    #[arg(long, value_name = "N", conflicts_with = "idle")]
    pub cpu: Option<u32>,
    /// Only CPUs that run none of its threads
    #[arg(long)]
    pub idle: bool,
    /// Interrupt nobody
    #[arg(long, conflicts_with = "expedited")]
    pub gentle: bool,
    /// Interrupt busy CPUs, isolated ones too
    #[arg(long)]
    pub expedited: bool,
    /// Print JSON: bytes, objects, reached, unreached, fences, answers
    #[arg(long)]
    pub json: bool,
}

/// `allotment purge`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  allotment purge 4242

Drains every CPU, then gives lazily freed areas and free pages back to the system.

Exit codes: 0 done, 1 no such process, not publishing, no answer or refused, 2 wrong command line.")]
pub struct Purge {
    /// A process, by its number or its program's name
    #[arg(value_name = "PID|NAME")]
    pub target: String,
    /// Print JSON: bytes, resident_before, resident_after
    #[arg(long)]
    pub json: bool,
}

/// Seconds between looks.
fn seconds(word: &str) -> Result<f64, String> {
    let seconds: f64 = word.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.05..=86_400.0).contains(&seconds) { Ok(seconds) } else { Err("0.05 to 86400 seconds".into()) }
}

/// `allotment bench`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  allotment bench malloc --quick
  allotment bench malloc apps --json rows.json --report out/
  sudo allotment bench malloc --realtime         other work cannot disturb it
  allotment bench malloc/pair-64 --peers glibc,mimalloc --runs 11
  allotment bench malloc --peers mine=/opt/lib/libmine.so
  allotment bench --list

All contenders of a case run in turn (A B C A B C ...), each in a process of its
own, and every one is checked to have taken malloc over. `*` marks a winner: one whose
runs beat each other contender's as chance would in 1 of 100 (rank-sum test; 5 runs at
least). What other work the machine did is measured and recorded.

Exit codes: 0 done, 1 a contender failed, 2 wrong command line.")]
pub struct Bench {
    /// Suites, or SUITE/CASE; all suites if none is named
    #[arg(value_name = "SUITE")]
    pub suites: Vec<String>,
    /// Only these peers: names or NAME=PATH, separated by commas (default: all that are installed)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub peers: Option<Vec<String>>,
    /// Write the rows as JSON (- for standard output, without the table)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write one page for a browser, report.html, into DIR
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Fewer and shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Runs of each contender (default 7, quick 3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Run before all other work, by SCHED_RR priority (root)
    #[arg(long)]
    pub realtime: bool,
    /// Set a knob of Allotment; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<OsString>,
    /// List suites, cases and peers
    #[arg(long)]
    pub list: bool,
}

/// `allotment profile`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  allotment profile 4711                         by stack, most in use first
  allotment profile 4711 -o heap.pb.gz && go tool pprof -http : heap.pb.gz
  allotment profile 4711 --flamegraph heap.svg
  allotment profile 4711 --seconds 60            what one minute allocates and leaves
  allotment profile 4711 --diff heap.pb.gz       what there is more of than there was

The process samples itself while its knob `profile_bytes` is not 0, from the start
(`allotment run --set profile_bytes=512K -- PROGRAM`) or from now on (`allotment tune
PID profile_bytes=512K`); see docs/profile.md.

Exit codes: 0 done, 1 there is no such process or profile, 2 wrong command line.")]
pub struct Profile {
    /// A running process, by its number or its program's name, or a profile's file
    #[arg(value_name = "PID|NAME|FILE")]
    pub source: String,
    /// Write pprof's format to FILE (- for standard output)
    #[arg(short, long, value_name = "FILE", conflicts_with = "diff")]
    pub output: Option<PathBuf>,
    /// Write folded stacks to FILE (- for standard output): a line each, outermost function first, and its bytes in use
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Draw a flame graph to FILE (SVG; - for standard output)
    #[arg(long, value_name = "FILE")]
    pub flamegraph: Option<PathBuf>,
    /// In these two, what was ever allocated instead of what is in use
    #[arg(long)]
    pub allocated: bool,
    /// Only what there is more or less of than in BASE: a process, or a file in either format
    #[arg(long, value_name = "BASE", conflicts_with = "seconds")]
    pub diff: Option<String>,
    /// Print the text beside writing files
    #[arg(long)]
    pub text: bool,
    /// Only what is still in use
    #[arg(long)]
    pub leaks: bool,
    /// What so many seconds from now on allocate and leave
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub seconds: Option<u64>,
}

impl Profile {
    /// What amounts are in comparison with, if they are.
    pub fn since(&self) -> Option<String> {
        self.diff.clone().or_else(|| self.seconds.map(|seconds| format!("{seconds} s before")))
    }
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
