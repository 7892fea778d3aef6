//! Each system call of the library refused in turn, under a program that checks every byte (`c/refused.c`).
//!
//! A run without refusals tells where the library makes calls, and how often. Then each place is refused at one of its
//! passes, from one on for ever, and each kind of call altogether, by each error. The program must end in time: as if
//! nothing had been, or with answers of `ENOMEM` that lost nothing; without a line of ours, and with no memory kept.
//!
//! `cargo test --test command refused::` tries the first pass of every place. `ALLOTMENT_TEST_LONG=1` tries all that a bound lets
//! through, and prints the table of docs/refused.md (see there). `ALLOTMENT_TEST_REFUSE=TEXT` tries those whose name
//! contains this, as failures are named.

use crate::common::trace::{self, End, Run, Site, Which};
use crate::common::{ALLOTMENT, Scratch, long, preloaded, program, skip};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// When a run counts as hung. (Beside many others, on a machine that is busy.)
const HANG: Duration = Duration::from_secs(60);
/// Runs side by side; and of those that wait for the keeper most of the time.
const BESIDE: usize = 6;
const BESIDE_IDLE: usize = 24;

const ERRORS: [(&str, i32); 5] = [
    ("ENOMEM", libc::ENOMEM),
    ("EAGAIN", libc::EAGAIN),
    ("EPERM", libc::EPERM),
    ("ENOSYS", libc::ENOSYS),
    ("EINTR", libc::EINTR),
];

/// What the program does, and where.
#[derive(Clone, Copy, Debug)]
struct Load {
    case: &'static str,
    conf: &'static str,
    fallback: bool,
}

const TINY: &str =
    "sheaf_objects=2,cache_floor=0,lazy_floor=0,lazy_ceiling=0,huge_bytes=1M,move_bytes=64K,move_limit=4";

const LOADS: [(&str, &str); 10] = [
    ("heap", ""),
    ("life", ""),
    ("heap", TINY),
    ("free", "async_free_threshold=1,huge_bytes=0,max_active=3"),
    ("end", "reap_bytes=1M,reap_parent=any"),
    ("bounded", "hard_limit=48M,publish=on"),
    ("mixed", "publish=on,profile_bytes=64K,keeper_bytes=1"),
    ("asked", "publish=on,keeper_bytes=1"),
    (IDLE, "keeper_bytes=1,idle_seconds=1"),
    (IDLE, "publish=on,profile_bytes=64K,keeper_bytes=1,idle_seconds=1"),
];
const IDLE: &str = "idle";

impl fmt::Display for Load {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let mode = if self.fallback { "fallback" } else { "sequences" };
        write!(out, "{} [{}] {mode}", self.case, self.conf)
    }
}

/// One refusal.
#[derive(Clone, Debug)]
struct Try {
    load: Load,
    which: Which,
    error: usize,
}

impl fmt::Display for Try {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let error = ERRORS[self.error].0;
        match &self.which {
            Which::None => write!(out, "{}", self.load),
            Which::One(site, number) => {
                write!(out, "{}: {} at {:#x}, no. {number}: {error}", self.load, site.name, site.offset)
            }
            Which::From(site, number) => {
                write!(out, "{}: {} at {:#x}, from no. {number} on: {error}", self.load, site.name, site.offset)
            }
            Which::All(name) => write!(out, "{}: {name}, always: {error}", self.load),
        }
    }
}

impl Try {
    fn name(&self) -> &str {
        match &self.which {
            Which::None => "",
            Which::One(site, _) | Which::From(site, _) => &site.name,
            Which::All(name) => name,
        }
    }
    fn run(&self, bench: &Bench) -> std::io::Result<Run> {
        let mut command = Command::new(&bench.program);
        command.arg(self.load.case).env_clear().env("LD_PRELOAD", &bench.library).env("ALLOTMENT_CONF", self.load.conf);
        command.env("REFUSED_COMMAND", ALLOTMENT);
        if self.load.fallback {
            command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
        }
        // What is never allowed to give memory back keeps it.
        let gives_back = matches!(self.name(), "madvise DONTNEED" | "process_madvise" | "munmap" | "mmap over");
        if gives_back && !matches!(self.which, Which::One(..)) {
            command.env("REFUSED_KEEPS", "1");
        }
        // Without fences what another CPU caches stays with it: areas up to 16 MiB, and slabs of some objects.
        if self.name().starts_with("membarrier") {
            command.env("REFUSED_FENCES", "1");
        }
        trace::run(command, &bench.library, &self.which, ERRORS[self.error].1, HANG, bench.scratch.path())
    }
}

/// By what a call does: the places where it is made, and what came of each error.
type Table = BTreeMap<String, (BTreeSet<u64>, [Tally; ERRORS.len()])>;

/// What every run needs.
struct Bench {
    program: PathBuf,
    library: PathBuf,
    scratch: Scratch,
}

/// What came of runs.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    runs: u32,
    /// In which no such call was made (others took another way).
    missed: u32,
    /// That were answered ENOMEM somewhere.
    nothing: u32,
    failed: u32,
}

/// The library that the command preloads.
fn library() -> PathBuf {
    let said = Command::new(ALLOTMENT).args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).output().unwrap();
    Path::new(String::from_utf8(said.stdout).unwrap().trim()).canonicalize().unwrap()
}

/// Whether a run is as it must be: whether it was answered ENOMEM, or what is wrong.
fn judge(run: &Run) -> Result<bool, String> {
    match (&run.end, run.out.as_str()) {
        _ if !run.err.is_empty() => Err(format!("{:?}, and says {}", run.end, run.err.trim())),
        (End::Exit(0), "ok\n") => Ok(false),
        (End::Exit(0), "ok, with refusals\n") => Ok(true),
        (End::Hang(threads), _) => Err(format!("hangs\n{threads}")),
        (end, out) => Err(format!("{end:?} {out}")),
    }
}

/// Calls for each of `all`, so many at a time; in their order.
fn beside<T: Sync, R: Send>(all: &[T], at_a_time: usize, each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_a_time.min(all.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(one) = all.get(number) else { break };
                    let result = each(one);
                    done.lock().unwrap().push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|one| one.0);
    done.into_iter().map(|one| one.1).collect()
}

/// Which passes of `count` are tried: the first ones, some in between, and the last.
fn passes(count: u32) -> BTreeSet<u32> {
    let between = [count / 3, count / 2, count * 3 / 4, count - 1, count];
    (1..=count.min(3)).chain(between.into_iter().filter(|&pass| pass > 0)).collect()
}

/// The refusals of a load. A place that no load had before is tried in full; in the short form, its first pass by two errors.
fn plan(load: Load, sites: &BTreeMap<Site, u32>, had: &mut BTreeSet<Site>) -> Vec<Try> {
    let mut all = vec![];
    let mut add = |which: Which, error: usize| {
        // Signals that were blocked are let through by the same call: one that worked and never will again is no kernel's.
        if !matches!(&which, Which::From(site, _) if site.name == "rt_sigprocmask") {
            all.push(Try { load, which, error });
        }
    };
    // From place to place another error.
    let another = |number: u64| 1 + number as usize % (ERRORS.len() - 1);
    for (site, &count) in sites {
        let (is_new, number) = (had.insert(site.clone()), site.offset + u64::from(load.fallback));
        match (long(), is_new) {
            (false, false) => {}
            (false, true) => {
                add(Which::One(site.clone(), 1), 0);
                add(Which::From(site.clone(), 1), another(number));
            }
            // Had in full: what is after it is another.
            (true, false) => {
                add(Which::One(site.clone(), 1), another(number + 1));
                add(
                    Which::One(site.clone(), if number.is_multiple_of(2) { count } else { count / 2 + 1 }),
                    another(number),
                );
                add(Which::From(site.clone(), 1), 0);
            }
            (true, true) => {
                for error in 0..ERRORS.len() {
                    add(Which::One(site.clone(), 1), error);
                    add(Which::From(site.clone(), 1), error);
                }
                for pass in passes(count).into_iter().filter(|&pass| pass > 1) {
                    add(Which::One(site.clone(), pass), 0);
                    add(Which::One(site.clone(), pass), another(number + u64::from(pass)));
                }
                if count > 1 {
                    add(Which::From(site.clone(), count / 2 + 1), another(number));
                }
            }
        }
    }
    if long() {
        for (number, name) in sites.keys().map(|site| &site.name).collect::<BTreeSet<_>>().into_iter().enumerate() {
            let number = number as u64 + u64::from(load.fallback);
            add(Which::All(name.clone()), 0);
            add(Which::All(name.clone()), another(number));
            add(Which::All(name.clone()), another(number + 1));
        }
    }
    all
}

/// Every load in both modes, as far as the name of one that is wanted allows.
fn loads(only: &str) -> Vec<Try> {
    LOADS
        .iter()
        .flat_map(|&(case, conf)| [false, true].map(|fallback| Load { case, conf, fallback }))
        .filter(|load| {
            let load = load.to_string();
            !only.contains('[') || only.starts_with(&load) || load.contains(only)
        })
        .map(|load| Try { load, which: Which::None, error: 0 })
        .collect()
}

/// What the loads do without refusals. Nothing where nobody can be traced.
fn learn(test: &str, bench: &Bench, loads: &[Try]) -> Option<Vec<Run>> {
    let mut runs = vec![];
    for (one, run) in loads.iter().zip(beside(loads, BESIDE_IDLE, |one| one.run(bench))) {
        let run = match run {
            Ok(run) => run,
            Err(error) => {
                skip(test, &format!("nothing can be traced here: {error}"));
                return None;
            }
        };
        judge(&run).unwrap_or_else(|wrong| panic!("{one}: {wrong}"));
        runs.push(run);
    }
    Some(runs)
}

#[test]
fn each_call_refused_in_turn() {
    let Some(program) = program("refused.c") else { return };
    if !preloaded() {
        return;
    }
    let bench = Bench { program: program.into(), library: library(), scratch: Scratch::new("refused") };
    let only = std::env::var("ALLOTMENT_TEST_REFUSE").unwrap_or_default();
    let begin = Instant::now();
    let loads = loads(&only);
    let Some(runs) = learn("each_call_refused_in_turn", &bench, &loads) else { return };
    let (mut tries, mut had) = (vec![], BTreeSet::new());
    let mut table: Table = BTreeMap::new();
    for (one, run) in loads.iter().zip(runs) {
        for site in run.sites.keys() {
            table.entry(site.name.clone()).or_default().0.insert(site.offset);
        }
        tries.extend(plan(one.load, &run.sites, &mut had));
    }
    tries.retain(|one| one.to_string().contains(&only));
    let said = AtomicUsize::new(0);
    let is_idle = |one: &Try| one.load.case == IDLE;
    tries.sort_by_key(is_idle);
    let (busy, idle) = tries.split_at(tries.partition_point(|one| !is_idle(one)));
    let each = |one: &Try| {
        let run = one.run(&bench).expect("as before");
        let good = judge(&run);
        if let Err(wrong) = &good
            && said.fetch_add(1, Relaxed) < 40
        {
            let _ = writeln!(std::io::stderr(), "{one}: {wrong}");
        }
        (run.refused, good)
    };
    let runs = [beside(busy, BESIDE, each), beside(idle, BESIDE_IDLE, each)].concat();
    let mut failed = vec![];
    for (one, (refused, good)) in tries.iter().zip(runs) {
        let tally = &mut table.get_mut(one.name()).unwrap().1[one.error];
        tally.runs += 1;
        tally.missed += u32::from(refused == 0);
        match good {
            Ok(nothing) => tally.nothing += u32::from(nothing),
            Err(wrong) => {
                tally.failed += 1;
                failed.push(format!("{one}: {}", wrong.lines().next().unwrap_or_default()));
            }
        }
    }
    let text = show(&table, tries.len(), begin.elapsed());
    if long() || !only.is_empty() {
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    assert!(failed.is_empty(), "{} of {} runs failed:\n{}", failed.len(), tries.len(), failed.join("\n"));
}

/// The table of docs/refused.md.
fn show(table: &Table, runs: usize, took: Duration) -> String {
    let mut text = format!("{runs} runs in {} s\n\n| call | places |", took.as_secs());
    ERRORS.iter().for_each(|error| write!(text, " {} |", error.0).unwrap());
    text += "\n|---|---|";
    text += &"---|".repeat(ERRORS.len());
    for (name, (places, tallies)) in table {
        write!(text, "\n| `{name}` | {} |", places.len()).unwrap();
        for tally in tallies {
            write!(text, " {}", tally.runs - tally.missed).unwrap();
            if tally.nothing > 0 {
                write!(text, " ({})", tally.nothing).unwrap();
            }
            if tally.failed > 0 {
                write!(text, " **{} failed**", tally.failed).unwrap();
            }
            text += " |";
        }
    }
    text
}

/// A filter that was there before the program began kills for one call: where the program lives under glibc, it lives.
/// (Not with `membarrier` unless told, and not with publishing, a profile or threads of ours: README.)
#[test]
fn what_a_filter_kills_for_is_not_called() {
    let (Some(program), Some(deny)) = (program("refused.c"), program("deny.c")) else { return };
    if !preloaded() {
        return;
    }
    let bench = Bench { program: program.into(), library: library(), scratch: Scratch::new("killed") };
    let all = loads("");
    let Some(runs) = learn("what_a_filter_kills_for_is_not_called", &bench, &all) else { return };
    let numbers: BTreeMap<u64, &str> =
        runs.iter().flat_map(|run| run.sites.keys()).map(|site| (site.number, site.name.as_str())).collect();
    let cases: &[&str] = if long() { &["heap", "life", "free"] } else { &["heap", "life"] };
    // (glibc's `realloc` and its locks make these, too, if not here.)
    let numbers = numbers.into_iter().filter(|one| !matches!(one.0 as i64, libc::SYS_mremap | libc::SYS_futex));
    let numbers: Vec<_> = numbers.flat_map(|one| cases.iter().map(move |&case| (one, case))).collect();
    let failed = beside(&numbers, BESIDE, |&((number, name), case)| {
        let run = |conf: Option<&str>| {
            let mut command = Command::new(&deny);
            command.args(["0", &number.to_string(), "--"]).arg(&bench.program).arg(case).env_clear();
            if let Some(conf) = conf {
                command.env("LD_PRELOAD", &bench.library).env("ALLOTMENT_CONF", conf);
            }
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let begin = Instant::now();
            loop {
                if let Some(status) = child.try_wait().unwrap() {
                    return status.to_string();
                }
                if begin.elapsed() > HANG {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    return "hangs".to_owned();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let glibc = run(None);
        let any = ["idle_seconds=0,mode=fallback", "idle_seconds=0"];
        let confs = &any[..if number as i64 == libc::SYS_membarrier { 1 } else { 2 }];
        let ours = confs.iter().map(|&conf| (conf, run(Some(conf))));
        let ours: Vec<_> = ours.filter(|one| one.1 != glibc && glibc == "exit status: 0").collect();
        ours.into_iter().map(|(conf, end)| format!("{case} [{conf}], killed for {name}: {end}")).collect::<Vec<_>>()
    });
    let failed = failed.concat();
    assert!(failed.is_empty(), "of {} filters:\n{}", numbers.len(), failed.join("\n"));
}
