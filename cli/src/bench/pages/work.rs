//! # What a worker of suite `pages` does
//!
//! Pairs (allocate, free), windows (of 64 live blocks the oldest is replaced), and bulk (so many pages, then all back,
//! in order or shuffled). Nothing is touched but where a case says so: then one byte of every page is written.
//!
//! Unit: ns of a CPU. `pair`, `alloc`, `free`: wall time × CPUs busy / operations of all threads, where CPUs busy =
//! min(threads, CPUs): a lock that threads sleep for is seen. `…-cpu`: the threads' own clocks, which what else the
//! machine does cannot touch. One thread is measured by its own clock only.
#![allow(unsafe_code)] // blocks of memory that one owner holds

use super::super::counters::ops::stay;
use super::super::drain::work::hurry;
use super::super::harness::cpus;
use super::super::process;
use super::buddy::{Buddy, PAGE};
use super::lists::Spinning;
use super::{ours, pft};
use crate::clock::thread_ns;
use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

/// What is measured, and in what.
pub const METRICS: &[(&str, &str)] = &[
    ("pair", "ns/op"),
    ("pair-cpu", "ns/op"),
    // Of a fresh process: address space is opened, descriptors are touched.
    ("first", "ns/page"),
    ("alloc", "ns/page"),
    ("free", "ns/page"),
    ("alloc-cpu", "ns/page"),
    ("free-cpu", "ns/page"),
];

/// Who competes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// In the worker's argument; of `libc` there is one contender for each peer.
    pub key: &'static str,
    /// In tables.
    pub name: &'static str,
    /// Does one in so many of the operations.
    part: u64,
}
const OURS: Who = Who { key: "ours", name: "allotment", part: 1 };
const SINGLY: Who = Who { key: "singly", name: "allotment, one by one", part: 1 };
const BUDDY: Who = Who { key: "buddy", name: "locked buddy", part: 4 };
const SPINNING: Who = Who { key: "spinning", name: "per-CPU spinlocks", part: 1 };
const LIBC: Who = Who { key: "libc", name: "aligned_alloc", part: 10 };
const KERNEL: Who = Who { key: "kernel", name: "mmap, munmap", part: 50 };
/// Not in order: a hole in a mapping is one mapping more, of which 65,530 are allowed.
const KERNEL_FEW: Who = Who { key: "kernel", name: "mmap, munmap (1/50)", part: 50 };
const LIBC_FEW: Who = Who { key: "libc", name: "aligned_alloc (1/10)", part: 10 };

/// What is done.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A window of so many live blocks of an order, and whether they are touched; 0: pairs.
    Window(usize, usize, bool),
    /// Pages, and whether they are freed shuffled.
    Bulk(bool),
}

/// A case.
#[derive(Debug)]
pub struct Work {
    /// Its name.
    pub name: &'static str,
    /// What is done.
    pub about: &'static str,
    /// Numbers of threads; 0 is twice the CPUs.
    pub threads: &'static [usize],
    /// Who competes.
    pub who: &'static [Who],
    kind: Kind,
}

const ALL: &[Who] = &[OURS, SPINNING, BUDDY, LIBC, KERNEL];
const BULK: &[Who] = &[OURS, SINGLY, SPINNING, BUDDY, LIBC_FEW, KERNEL_FEW];

macro_rules! window {
    ($name:literal, $order:literal, $live:literal, $touch:literal, $threads:expr, $about:literal) => {
        Work { name: $name, about: $about, threads: $threads, who: ALL, kind: Kind::Window($order, $live, $touch) }
    };
}

/// The cases.
pub const CASES: &[Work] = &[
    window!("pair-0", 0, 0, false, &[1, 2, 0], "a page (order 0): allocate, free; untouched"),
    window!("pair-1", 1, 0, false, &[1, 2, 0], "order 1"),
    window!("pair-2", 2, 0, false, &[1, 2, 0], "order 2"),
    window!("pair-3", 3, 0, false, &[1, 2, 0], "order 3"),
    window!("pair-9", 9, 0, false, &[1, 2, 0], "order 9: 2 MiB"),
    window!("window-0", 0, 64, false, &[1, 2, 0], "replace the oldest of 64 pages; untouched"),
    window!("window-3", 3, 64, false, &[1, 2, 0], "order 3"),
    window!("window-9", 9, 64, false, &[1, 2, 0], "order 9"),
    window!("touch-0", 0, 64, true, &[1, 2], "replace the oldest of 64 pages, write a byte of each new one"),
    window!("touch-9", 9, 64, true, &[1, 2], "order 9, write a byte of each of its 512 pages"),
    Work {
        name: "bulk-ordered",
        about: "1,000,000 pages, untouched, in calls of 1,024 where there are such; freed in order",
        threads: &[1, 2],
        who: BULK,
        kind: Kind::Bulk(false),
    },
    Work {
        name: "bulk-shuffled",
        about: "the same, freed shuffled",
        threads: &[1, 2],
        who: BULK,
        kind: Kind::Bulk(true),
    },
];

/// Pairs of a full run, all threads together.
const PAIRS: u64 = 20_000_000;
/// Pages of a full bulk.
const PAGES: u64 = 1_000_000;
/// Blocks of a call.
const CALL: usize = 1024;

/// Who gives blocks.
pub trait Blocks: Sync {
    /// A block's address.
    fn alloc(&self, order: usize) -> Option<usize>;
    /// Takes it back.
    fn free(&self, block: usize, order: usize);
    /// Fills `into`; how many there are.
    fn alloc_bulk(&self, order: usize, into: &mut [usize]) -> usize {
        into.iter_mut().map_while(|place| self.alloc(order).map(|block| *place = block)).count()
    }
    /// Takes all back.
    fn free_bulk(&self, order: usize, blocks: &[usize]) {
        blocks.iter().for_each(|&block| self.free(block, order));
    }
}

/// Ours, in bulk or not.
#[derive(Debug)]
pub struct Ours<const BULK: bool>;
impl<const BULK: bool> Blocks for Ours<BULK> {
    #[inline(always)]
    fn alloc(&self, order: usize) -> Option<usize> {
        ours::alloc(order)
    }
    #[inline(always)]
    fn free(&self, block: usize, _: usize) {
        // SAFETY: the worker frees what it has, once.
        unsafe { ours::free(block) };
    }
    fn alloc_bulk(&self, order: usize, into: &mut [usize]) -> usize {
        if BULK {
            return ours::alloc_bulk(order, into);
        }
        into.iter_mut().map_while(|place| self.alloc(order).map(|block| *place = block)).count()
    }
    fn free_bulk(&self, order: usize, blocks: &[usize]) {
        if BULK {
            // SAFETY: as above.
            return unsafe { ours::free_bulk(blocks) };
        }
        blocks.iter().for_each(|&block| self.free(block, order));
    }
}

impl Blocks for Buddy {
    #[inline(always)]
    fn alloc(&self, order: usize) -> Option<usize> {
        self.lock().alloc(order)
    }
    #[inline(always)]
    fn free(&self, block: usize, order: usize) {
        self.lock().free(block, order);
    }
    /// A lock for each call.
    fn alloc_bulk(&self, order: usize, into: &mut [usize]) -> usize {
        let mut held = self.lock();
        into.iter_mut().map_while(|place| held.alloc(order).map(|block| *place = block)).count()
    }
    fn free_bulk(&self, order: usize, blocks: &[usize]) {
        let mut held = self.lock();
        blocks.iter().for_each(|&block| held.free(block, order));
    }
}

impl Blocks for Spinning {
    #[inline(always)]
    fn alloc(&self, order: usize) -> Option<usize> {
        Self::alloc(self, order)
    }
    #[inline(always)]
    fn free(&self, block: usize, order: usize) {
        Self::free(self, block, order);
    }
}

/// Whatever is preloaded, or the C library's own.
#[derive(Debug)]
struct Libc;
impl Blocks for Libc {
    #[inline(always)]
    fn alloc(&self, order: usize) -> Option<usize> {
        // SAFETY: plain calls.
        let block = unsafe { libc::aligned_alloc(PAGE << order, PAGE << order) };
        (!block.is_null()).then_some(block as usize)
    }
    #[inline(always)]
    fn free(&self, block: usize, _: usize) {
        // SAFETY: the worker frees what it has, once.
        unsafe { libc::free(block as *mut libc::c_void) };
    }
}

/// A mapping for each block (which aligns it to a page only).
#[derive(Debug)]
pub struct Kernel;
impl Blocks for Kernel {
    fn alloc(&self, order: usize) -> Option<usize> {
        // SAFETY: a new mapping.
        let block = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), PAGE << order, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        (block != libc::MAP_FAILED).then_some(block as usize)
    }
    fn free(&self, block: usize, order: usize) {
        // SAFETY: the worker's own mapping.
        let refused = unsafe { libc::munmap(block as *mut libc::c_void, PAGE << order) };
        assert!(refused == 0, "munmap refused: too many mappings?");
    }
}

/// Writes a byte of each page.
#[inline(always)]
pub fn touch(block: usize, bytes: usize) {
    for page in (block..block + bytes).step_by(PAGE) {
        // SAFETY: a live block of the worker's.
        unsafe { (page as *mut u8).write_volatile(7) };
    }
}

/// Numbers that only look random.
fn shuffle(values: &mut [usize], seed: u64) {
    let mut state = 0x2545_f491_4f6c_dd1d ^ seed;
    for at in (1..values.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        values.swap(at, (state % (at as u64 + 1)) as usize);
    }
}

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
fn together(threads: usize, body: impl Fn(usize, &Barrier) -> Result<Phases, String> + Sync) -> Result<Phases, String> {
    let start = Barrier::new(threads);
    let all: Vec<Result<Phases, String>> = std::thread::scope(|scope| {
        let begin = |thread| {
            let (start, body) = (&start, &body);
            scope.spawn(move || {
                if threads > 1 {
                    stay(thread);
                }
                body(thread, start)
            })
        };
        let handles: Vec<_> = (0..threads).map(begin).collect();
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
    let share = threads.min(cpus()) as f64 / threads as f64;
    let phases = (0..all[0].len()).map(|phase| {
        let slowest = all.iter().map(|phases| phases[phase][0]).fold(0.0, f64::max);
        let mean = all.iter().map(|phases| phases[phase][1]).sum::<f64>() / threads as f64;
        [slowest * share, mean]
    });
    Ok(phases.collect())
}

/// ns for each of `count`, by the wall and by this thread's clock.
fn timed(count: usize, what: impl FnOnce() -> Result<(), String>) -> Result<[f64; 2], String> {
    let (began, cpu) = (Instant::now(), thread_ns());
    what()?;
    let cpu = thread_ns() - cpu;
    Ok([began.elapsed().as_nanos() as f64 / count as f64, cpu as f64 / count as f64])
}

fn bulk(blocks: &impl Blocks, count: usize, shuffled: bool, thread: usize, start: &Barrier) -> Result<Phases, String> {
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
            shuffle(&mut pages, (thread * 3 + round) as u64);
        }
        start.wait();
        phases.push(timed(count, || {
            pages.chunks(CALL).for_each(|call| blocks.free_bulk(0, call));
            Ok(())
        })?);
    }
    Ok(phases)
}

fn sample(metric: &str, value: f64) {
    println!("sample {metric} {value}");
}

fn run(blocks: &impl Blocks, who: Who, kind: Kind, threads: usize, scale: u64) -> Result<(), String> {
    let of = |all: u64| (all * scale / 100 / who.part / threads as u64).max(200) as usize;
    match kind {
        Kind::Window(order, live, touched) => {
            // Huge blocks from the system, and touched memory, are slower still.
            let slow = match (order == 9, touched) {
                (true, true) => 500,
                (false, true) => 10,
                (true, false) if who.key == "libc" => 10,
                _ => 1,
            };
            let pairs = (of(PAIRS) / slow).max(200);
            let phases = together(threads, |_, start| {
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
        Kind::Bulk(shuffled) => {
            let count = of(PAGES);
            let phases = together(threads, |thread, start| bulk(blocks, count, shuffled, thread, start))?;
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

/// Runs `CASE:WHO` and prints its samples.
pub fn work(what: &str, threads: usize, scale: u64, expect: Option<&Path>) -> Result<(), String> {
    if let Some(expect) = expect {
        process::owns_malloc(expect)?;
    }
    if scale > 0 {
        hurry();
    }
    let (name, key) = what.split_once(':').unwrap_or((what, "ours"));
    if name == pft::NAME {
        return pft::work(key, threads, scale);
    }
    let case = CASES.iter().find(|case| case.name == name).ok_or_else(|| format!("no case {name}"))?;
    let who = case.who.iter().find(|who| who.key == key).ok_or_else(|| format!("no {key} in {name}"))?;
    match key {
        "ours" => run(&Ours::<true>, *who, case.kind, threads, scale),
        "singly" => run(&Ours::<false>, *who, case.kind, threads, scale),
        "buddy" => run(&Buddy::new(), *who, case.kind, threads, scale),
        "spinning" => run(&Spinning::new(), *who, case.kind, threads, scale),
        "kernel" => run(&Kernel, *who, case.kind, threads, scale),
        _ => run(&Libc, *who, case.kind, threads, scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every case runs, tiny, with everybody.
    #[test]
    fn cases_run() {
        for case in CASES {
            for who in case.who {
                for threads in [1, 2] {
                    work(&format!("{}:{}", case.name, who.key), threads, 0, None)
                        .unwrap_or_else(|why| panic!("{}: {}: {why}", case.name, who.key));
                }
            }
        }
        assert!(work("pair-0:nobody", 1, 1, None).is_err());
        assert!(work("nothing:ours", 1, 1, None).is_err());
    }

    #[test]
    fn a_page_handed_out_twice_is_refused() {
        struct Same;
        impl Blocks for Same {
            fn alloc(&self, _: usize) -> Option<usize> {
                Some(PAGE)
            }
            fn free(&self, _: usize, _: usize) {}
        }
        assert!(bulk(&Same, 10, false, 0, &Barrier::new(1)).is_err_and(|why| why.contains("twice")));
    }
}
