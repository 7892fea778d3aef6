//! # The page-fault test of the seed's table, in user space
//!
//! Threads allocate pages, write a byte of each, and free all, over and over, with 0 and with 100 drains a second of
//! all CPUs, in paired slices ([`paired`]). Time is that of the working threads (the drainer's own
//! is a metric apart), for a million pages of all threads together. Beside Allotment, which gives most of what a pass has
//! freed back to the system as it is set by default, and beside Allotment that may keep it: per-CPU spinlocks, and the
//! kernel itself (one mapping a pass, which faults at every page, and of which nothing is drained: how far its two
//! columns lie apart is noise).
//!
//! [`table`] prints the medians as the seed does: `Amean system-1 58.52 ( 0.00%) 58.92 * -0.68%*`. Minus is a loss; in
//! asterisks is a change of which the runs agree on the sign (six or more: less than 5 % by chance).
#![allow(unsafe_code)] // a mapping of its own

use super::blocks::{Blocks, Ours, touch};
use crate::bench::paired;
use crate::bench::rivals::buddy::PAGE;
use crate::bench::rivals::lists::Spinning;
use crate::bench::rows::Row;
use crate::bench::suite::{Job, Who, who};
use crate::bench::team::cpus;
use crate::bench::worker::sample;
use crate::clock::Used;
use allotment::drain::{self, DrainMode};
use std::fmt::Write as _;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The case.
pub const NAME: &str = "pft";
/// What it does.
pub const ABOUT: &str = "page-fault test: allocate, write a byte, free; 0 and 100 drains a second of all CPUs";
/// Numbers of threads.
pub const THREADS: [usize; 3] = [1, 2, 4];
/// Keys and names of who competes.
pub const WHO: [Who; 4] = [
    who("ours", "allotment"),
    who(KEPT, "allotment, free memory kept"),
    who("spinning", "per-CPU spinlocks"),
    who("kernel", "mmap, munmap (nothing to drain)"),
];
/// Allotment that may keep what is free, as the alternatives do, which never give memory back.
pub const KEPT: &str = "kept";
/// Its knobs.
pub const KEEP: &str = "lazy_floor=1G,lazy_ceiling=1G";
/// Pages of a pass of one thread.
const PASS: usize = 2048;
/// How long a slice is to take, ms.
const SLICE: u64 = 100;
/// Pairs of slices of a full run.
const PAIRS: u64 = 15;

/// System and user seconds of this thread.
fn thread_times() -> [f64; 2] {
    let used = Used::by(libc::RUSAGE_THREAD);
    [used.system_ns, used.user_ns].map(|ns| ns as f64 / 1e9)
}

/// One pass.
trait Pass: Sync {
    fn pass(&self, pages: &mut Vec<usize>);
    fn drain(&self);
}

fn pass(blocks: &impl Blocks, pages: &mut Vec<usize>) {
    pages.clear();
    for _ in 0..PASS {
        let page = blocks.alloc(0).expect("memory");
        touch(page, PAGE);
        pages.push(page);
    }
    pages.iter().for_each(|&page| blocks.free(page, 0));
}

impl Pass for Ours<true> {
    fn pass(&self, pages: &mut Vec<usize>) {
        pass(self, pages);
    }
    fn drain(&self) {
        drain::all(DrainMode::Auto);
    }
}
impl Pass for Spinning {
    fn pass(&self, pages: &mut Vec<usize>) {
        pass(self, pages);
    }
    fn drain(&self) {
        self.drain_all();
    }
}
/// One mapping a pass.
struct Faults;
impl Pass for Faults {
    fn pass(&self, _: &mut Vec<usize>) {
        // SAFETY: a mapping of this pass.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let (bytes, access) = (PASS * PAGE, libc::PROT_READ | libc::PROT_WRITE);
            let memory = libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0);
            assert!(memory != libc::MAP_FAILED, "memory");
            libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE);
            touch(memory as usize, bytes);
            libc::munmap(memory, bytes);
        }
    }
    fn drain(&self) {}
}

/// System, user and elapsed seconds of a slice.
type Slice = [f64; 3];

fn slices(system: &impl Pass, threads: usize, pairs: usize, passes: usize) -> (Vec<[Slice; 2]>, f64) {
    let (on, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let (begin, end) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    let slices = 2 * pairs;
    std::thread::scope(|scope| {
        let drainer = scope.spawn(|| paired::disturb(&on, &stop, || system.drain()));
        let work = || {
            let mut pages = Vec::with_capacity(PASS);
            let mut times = Vec::new();
            system.pass(&mut pages);
            for _ in 0..slices {
                begin.wait();
                let before = thread_times();
                (0..passes).for_each(|_| system.pass(&mut pages));
                let after = thread_times();
                times.push([after[0] - before[0], after[1] - before[1]]);
                end.wait();
            }
            times
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut elapsed = Vec::new();
        for with in paired::order(pairs) {
            on.store(with, Relaxed);
            begin.wait();
            let began = Instant::now();
            end.wait();
            elapsed.push(began.elapsed().as_secs_f64());
        }
        stop.store(true, Relaxed);
        let workers: Vec<_> = workers.into_iter().map(|worker| worker.join().expect("no panic")).collect();
        let mut taken = vec![[[0.0; 3]; 2]; pairs];
        for (at, with) in paired::order(pairs).enumerate() {
            let slice = &mut taken[at / 2][usize::from(with)];
            slice[2] = elapsed[at];
            for times in &workers {
                slice[0] += times[at][0];
                slice[1] += times[at][1];
            }
        }
        let spent = drainer.join().expect("no panic");
        // It worked in half of the time only.
        (taken, 100.0 * spent / (elapsed.iter().sum::<f64>() / 2.0))
    })
}

fn run(system: &impl Pass, job: &Job) {
    let threads = job.threads;
    let pairs = job.part(PAIRS, 1) as usize;
    // How many passes fill a slice.
    let passes = if job.scale == 0 {
        1
    } else {
        let mut pages = Vec::with_capacity(PASS);
        (0..4).for_each(|_| system.pass(&mut pages));
        let began = Instant::now();
        (0..8).for_each(|_| system.pass(&mut pages));
        let one = began.elapsed().as_nanos() as u64 / 8 * threads.div_ceil(cpus()) as u64;
        (SLICE * 1_000_000 / one.max(1)).max(1) as usize
    };
    let (slices, drainer) = slices(system, threads, pairs, passes);
    let million = (passes * PASS * threads * pairs) as f64 / 1e6;
    for (at, what) in ["system", "user", "elapsed"].into_iter().enumerate() {
        let sums = [0, 1].map(|with| slices.iter().map(|pair| pair[with][at]).sum::<f64>());
        let pairs: Vec<[f64; 2]> = slices.iter().map(|pair| [pair[0][at], pair[1][at]]).collect();
        // Ticks make a slice's system and user times coarse: only their sums say something.
        let change = match what {
            "elapsed" => paired::spread(&paired::changes(&pairs)).median,
            _ if sums[0] > 0.0 => 100.0 * (sums[1] - sums[0]) / sums[0],
            _ => 0.0,
        };
        sample(what, sums[0] / million);
        sample(&format!("{what}-100"), sums[1] / million);
        sample(&format!("{what}-change"), change);
    }
    sample("drainer", drainer);
}

/// Does a job of this case.
pub fn measure(job: &Job) -> Result<(), String> {
    match job.who.as_str() {
        "ours" | KEPT => run(&Ours::<true>, job),
        "spinning" => run(&Spinning::new(), job),
        "kernel" => run(&Faults, job),
        _ => return Err(job.nobody()),
    }
    Ok(())
}

/// The seed's table, of rows of this case; nothing without them.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for Who { name, .. } in WHO {
        let of = |metric: &str, threads: usize| {
            let all = rows.iter().filter(|row| row.suite == "pages" && row.case == NAME && row.name == name);
            all.into_iter().find(|row| row.metric == metric && row.threads == threads)
        };
        let mut lines = String::new();
        for what in ["system", "user", "elapsed"] {
            for threads in THREADS {
                let find = |suffix: &str| of(&format!("{what}{suffix}"), threads);
                let (Some(without), Some(with), Some(change)) = (find(""), find("-100"), find("-change")) else {
                    continue;
                };
                // Less time is better: plus.
                let sure = change.runs >= 6 && (change.min > 0.0 || change.max < 0.0);
                let [open, close] = if sure { ['*'; 2] } else { ['(', ')'] };
                let _ = writeln!(
                    lines,
                    "Amean {:<10} {:>8.3} (  0.00%) {:>8.3} {open}{:>7.2}%{close}",
                    format!("{what}-{threads}"),
                    without.median,
                    with.median,
                    // (No minus before a zero.)
                    0.0 - change.median
                );
            }
        }
        if !lines.is_empty() {
            let _ = writeln!(text, "pft timings, s for a million pages: {name}\n{:>27} {:>18}", "0", "100 drains/s");
            text.push_str(&lines);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(metric: &str, median: f64, spread: f64, runs: usize) -> Row {
        Row {
            values: Vec::new(),
            suite: "pages".into(),
            case: NAME.into(),
            name: WHO[0].name.into(),
            threads: 1,
            metric: metric.into(),
            unit: "s/Mpage".into(),
            median,
            min: median - spread,
            max: median + spread,
            runs,
            higher_is_better: false,
        }
    }

    #[test]
    fn signs_are_the_seeds() {
        let mut rows = vec![row("system", 58.52, 1.0, 7), row("system-100", 58.92, 1.0, 7)];
        assert_eq!(table(&rows), "");
        rows.push(row("system-change", 0.68, 0.1, 7));
        assert!(table(&rows).contains("Amean system-1     58.520 (  0.00%)   58.920 *  -0.68%*\n"), "{}", table(&rows));
        rows[2] = row("system-change", -1.25, 2.0, 7);
        assert!(table(&rows).contains(" (   1.25%)\n"), "runs do not agree: {}", table(&rows));
        rows[2] = row("system-change", -1.25, 0.1, 3);
        assert!(table(&rows).contains(" (   1.25%)\n"), "three runs are too few: {}", table(&rows));
    }
}
