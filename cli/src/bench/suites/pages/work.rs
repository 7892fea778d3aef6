//! # What a worker of suite `pages` does
//!
//! Pairs (allocate, free), windows (of 64 live blocks the oldest is replaced), and bulk (so many pages, then all back,
//! in order or shuffled). Nothing is touched but where a case says so: then one byte of every page is written.
//!
//! Unit: ns of a CPU. `pair`, `alloc`, `free`: wall time × CPUs busy / operations of all threads, where CPUs busy =
//! min(threads, CPUs): a lock that threads sleep for is seen. `…-cpu`: the threads' own clocks, which what else the
//! machine does cannot touch. One thread is measured by its own clock only.

use super::blocks::{Blocks, Kernel, Libc, Ours, touch};
use super::pft;
use crate::bench::rivals::buddy::{Buddy, PAGE};
use crate::bench::rivals::lists::Spinning;
use crate::bench::suite::{Job, Metric, TWICE_CPUS, Who, Work, lower, who, work};
use crate::bench::team::{Random, Start, hurry, share, stay, timed, together};
use crate::bench::worker::sample;
use std::hint::black_box;

/// What is measured, and in what.
pub const METRICS: &[Metric] = &[
    lower("pair", "ns/op"),
    lower("pair-cpu", "ns/op"),
    // Of a fresh process: address space is opened, descriptors are touched.
    lower("first", "ns/page"),
    lower("alloc", "ns/page"),
    lower("free", "ns/page"),
    lower("alloc-cpu", "ns/page"),
    lower("free-cpu", "ns/page"),
    // Of the page-fault test.
    lower("system", "s/Mpage"),
    lower("system-100", "s/Mpage"),
    lower("user", "s/Mpage"),
    lower("user-100", "s/Mpage"),
    lower("elapsed", "s/Mpage"),
    lower("elapsed-100", "s/Mpage"),
    lower("system-change", "%"),
    lower("user-change", "%"),
    lower("elapsed-change", "%"),
    lower("drainer", "% of a CPU"),
];

const OURS: Who = who("ours", "allotment");
const SINGLY: Who = who("singly", "allotment, one by one");
const BUDDY: Who = who("buddy", "locked buddy");
const SPINNING: Who = who("spinning", "per-CPU spinlocks");
/// One contender for each peer.
const LIBC: Who = who(PEERS, "aligned_alloc");
const KERNEL: Who = who("kernel", "mmap, munmap");
/// Not in order: a hole in a mapping is one mapping more, of which 65,530 are allowed.
const KERNEL_FEW: Who = who("kernel", "mmap, munmap (1/50)");
const LIBC_FEW: Who = who(PEERS, "aligned_alloc (1/10)");

/// The key of the peers.
pub const PEERS: &str = "libc";

/// Does one in so many of the operations.
fn part(who: &str) -> u64 {
    match who {
        "buddy" => 4,
        PEERS => 10,
        "kernel" => 50,
        _ => 1,
    }
}

/// What is done.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A window of so many live blocks of an order, and whether they are touched; 0: pairs.
    Window(usize, usize, bool),
    /// Pages, and whether they are freed shuffled.
    Bulk(bool),
    /// The page-fault test.
    Faults,
}

const ALL: &[Who] = &[OURS, SPINNING, BUDDY, LIBC, KERNEL];
const BULK: &[Who] = &[OURS, SINGLY, SPINNING, BUDDY, LIBC_FEW, KERNEL_FEW];

/// The cases.
pub const WORKS: &[Work<Kind>] = &[
    work("pair-0", "a page (order 0): allocate, free; untouched", &[1, 2, TWICE_CPUS], ALL, Kind::Window(0, 0, false)),
    work("pair-1", "order 1", &[1, 2, TWICE_CPUS], ALL, Kind::Window(1, 0, false)),
    work("pair-2", "order 2", &[1, 2, TWICE_CPUS], ALL, Kind::Window(2, 0, false)),
    work("pair-3", "order 3", &[1, 2, TWICE_CPUS], ALL, Kind::Window(3, 0, false)),
    work("pair-9", "order 9: 2 MiB", &[1, 2, TWICE_CPUS], ALL, Kind::Window(9, 0, false)),
    work("window-0", "replace the oldest of 64 pages; untouched", &[1, 2, TWICE_CPUS], ALL, Kind::Window(0, 64, false)),
    work("window-3", "order 3", &[1, 2, TWICE_CPUS], ALL, Kind::Window(3, 64, false)),
    work("window-9", "order 9", &[1, 2, TWICE_CPUS], ALL, Kind::Window(9, 64, false)),
    work(
        "touch-0",
        "replace the oldest of 64 pages, write a byte of each new one",
        &[1, 2],
        ALL,
        Kind::Window(0, 64, true),
    ),
    work("touch-9", "order 9, write a byte of each of its 512 pages", &[1, 2], ALL, Kind::Window(9, 64, true)),
    work(
        "bulk-ordered",
        "1,000,000 pages, untouched, in calls of 1,024 where there are such; freed in order",
        &[1, 2],
        BULK,
        Kind::Bulk(false),
    ),
    work("bulk-shuffled", "the same, freed shuffled", &[1, 2], BULK, Kind::Bulk(true)),
    work(pft::NAME, pft::ABOUT, &pft::THREADS, &pft::WHO, Kind::Faults),
];

/// Pairs of a full run, all threads together.
const PAIRS: u64 = 20_000_000;
/// Pages of a full bulk.
const PAGES: u64 = 1_000_000;
/// Blocks of a call.
const CALL: usize = 1024;

const DRY: &str = "no memory";

/// So many pairs, or as many replacements of the oldest of `live` blocks.
#[inline(always)]
fn window(blocks: &impl Blocks, kind: (usize, usize, bool), pairs: u64) -> Result<(), String> {
    let (order, live, touched) = kind;
    let mut ring = Vec::with_capacity(live);
    for _ in 0..live {
        ring.push(blocks.alloc(order).ok_or(DRY)?);
    }
    let mut at = 0;
    for _ in 0..pairs {
        if let Some(oldest) = ring.get_mut(at) {
            blocks.free(*oldest, order);
            *oldest = blocks.alloc(order).ok_or(DRY)?;
            if touched {
                touch(*oldest, PAGE << order);
            }
            at = if at + 1 == live { 0 } else { at + 1 };
        } else {
            let block = blocks.alloc(order).ok_or(DRY)?;
            blocks.free(black_box(block), order);
        }
    }
    ring.into_iter().for_each(|block| blocks.free(block, order));
    Ok(())
}

/// A phase of every thread: its wall and CPU ns for each operation.
type Phases = Vec<[f64; 2]>;

/// Lets `threads` do what `body` does, together; the mean of each phase, by wall × CPUs busy and by the threads' clocks.
fn phases(threads: usize, body: impl Fn(usize, &Start) -> Result<Phases, String> + Sync) -> Result<Phases, String> {
    let all = together(threads, |thread, start| {
        if threads > 1 {
            stay(thread);
        }
        body(thread, start)
    })?;
    let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
    let phases = (0..all[0].len()).map(|phase| {
        let slowest = all.iter().map(|phases| phases[phase][0]).fold(0.0, f64::max);
        let mean = all.iter().map(|phases| phases[phase][1]).sum::<f64>() / threads as f64;
        [slowest * share(threads), mean]
    });
    Ok(phases.collect())
}

fn bulk(blocks: &impl Blocks, count: usize, shuffled: bool, thread: usize, start: &Start) -> Result<Phases, String> {
    let mut pages = vec![1; count];
    let mut phases = Vec::new();
    let mut dry = false;
    // Freed and allocated again twice, once fresh.
    for round in 0..3 {
        start.wait();
        phases.push(timed(count, || {
            pages.chunks_mut(CALL).for_each(|call| dry |= blocks.alloc_bulk(0, call) != call.len());
            if dry { Err(DRY.into()) } else { Ok(()) }
        })?);
        if round == 0 {
            let mut sorted = pages.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if sorted.len() != count || sorted.iter().any(|page| page % PAGE != 0) {
                return Err("pages were handed out twice or not aligned".into());
            }
        }
        if shuffled {
            Random::new((thread * 3 + round) as u64).shuffle(&mut pages);
        }
        start.wait();
        phases.push(timed(count, || {
            pages.chunks(CALL).for_each(|call| blocks.free_bulk(0, call));
            Ok(())
        })?);
    }
    Ok(phases)
}

fn measure(blocks: &impl Blocks, kind: Kind, job: &Job) -> Result<(), String> {
    let threads = job.threads;
    let of = |all: u64| (job.part(all, 0) / part(&job.who) / threads as u64).max(200) as usize;
    match kind {
        Kind::Window(order, live, touched) => {
            // Huge blocks from the system, and touched memory, are slower still.
            let slow = match (order == 9, touched) {
                (true, true) => 500,
                (false, true) => 10,
                (true, false) if job.who == PEERS => 10,
                _ => 1,
            };
            let pairs = (of(PAIRS) / slow).max(200);
            let phases = self::phases(threads, |_, start| {
                // What opens address space is not measured.
                window(blocks, (order, live.max(1), touched), 100)?;
                start.wait();
                Ok(vec![timed(pairs, || window(blocks, (order, live, touched), pairs as u64))?])
            })?;
            let [wall, cpu] = phases[0];
            sample("pair", if threads == 1 { cpu } else { wall });
            if threads > 1 {
                sample("pair-cpu", cpu);
            }
        }
        Kind::Faults => return pft::measure(job),
        Kind::Bulk(shuffled) => {
            let count = of(PAGES);
            let phases = self::phases(threads, |thread, start| bulk(blocks, count, shuffled, thread, start))?;
            let mean = |a: usize, b: usize, clock: usize| f64::midpoint(phases[a][clock], phases[b][clock]);
            let clock = usize::from(threads == 1);
            sample("first", phases[0][clock]);
            sample("alloc", mean(2, 4, clock));
            sample("free", (phases[1][clock] + phases[3][clock] + phases[5][clock]) / 3.0);
            if threads > 1 {
                sample("alloc-cpu", mean(2, 4, 1));
                sample("free-cpu", (phases[1][1] + phases[3][1] + phases[5][1]) / 3.0);
            }
        }
    }
    Ok(())
}

/// Does a job.
pub fn run(job: &Job) -> Result<(), String> {
    let kind = job.find(WORKS)?.kind;
    if job.scale > 0 {
        hurry();
    }
    match job.who.as_str() {
        "ours" => measure(&Ours::<true>, kind, job),
        "singly" => measure(&Ours::<false>, kind, job),
        "buddy" => measure(&Buddy::new(), kind, job),
        "spinning" => measure(&Spinning::new(), kind, job),
        "kernel" => measure(&Kernel, kind, job),
        _ => measure(&Libc, kind, job),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_handed_out_twice_is_refused() {
        struct Same;
        impl Blocks for Same {
            fn alloc(&self, _: usize) -> Option<usize> {
                Some(PAGE)
            }
            fn free(&self, _: usize, _: usize) {}
        }
        assert!(bulk(&Same, 10, false, 0, &Start::new(1)).is_err_and(|why| why.contains("twice")));
    }
}
