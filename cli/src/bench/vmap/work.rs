//! # What a worker of suite `vmap` does
//!
//! Blocks are touched in one byte where the case says nothing else, as `test_vmalloc` does. Unit of `op`: ns of
//! wall time of one thread for an allocation with its free (the kernel's per-worker average); threads that do not
//! disturb each other keep it.
#![allow(unsafe_code)] // malloc, mmap and their opposites, on blocks that one owner holds

use super::super::process;
use super::purge::{self, Way};
use crate::proc;
use std::hint::black_box;
use std::path::Path;
use std::ptr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What is measured, and in what.
pub const METRICS: &[(&str, &str)] = &[
    ("op", "ns/op"),
    ("failed", "calls"),
    ("total", "ms"),
    ("worst", "us"),
    ("kept", "MiB"),
    ("later", "MiB"),
    // Of purges; then what the threads that free meanwhile see, on average and in 64 operations at worst.
    ("average", "us"),
    ("p50", "us"),
    ("free", "ns/op"),
    ("stall", "us"),
];

/// A page.
pub const PAGE: usize = 4096;
/// In place of the kernel's page.
const UNIT: usize = 16 * PAGE;
/// Operations of a thread in a full run.
const OPS: u64 = 200_000;
/// What is freed block by block.
const GIB: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    FixSize,
    FullFit,
    LongBusyList,
    RandomSize,
    FixAlign,
    RandomSizeAlign,
    AlignShift,
    /// The first three, one after the other.
    Mask7,
    /// A size again and again.
    Size(usize),
    /// A gibibyte in blocks, freed by its own thread or by another.
    Free(usize, bool),
    /// The same, and what is resident seven seconds later.
    Later(usize),
    Settle,
    Purge,
}

/// A case.
#[derive(Debug)]
pub struct Work {
    /// Its name.
    pub name: &'static str,
    /// What is done.
    pub about: &'static str,
    /// Numbers of threads; 0 is one for each CPU (and none beside a purge).
    pub threads: &'static [usize],
    kind: Kind,
}

impl Work {
    /// The contenders, if they are ways to settle.
    pub fn ways(&self) -> Option<&'static [Way]> {
        match self.kind {
            Kind::Settle => Some(&purge::ACCOUNTING),
            Kind::Purge => Some(&purge::WHOLE),
            _ => None,
        }
    }
    /// Whether `mmap` can do the same.
    pub fn maps(&self) -> bool {
        !matches!(self.kind, Kind::FixAlign | Kind::RandomSizeAlign | Kind::AlignShift)
    }
}

macro_rules! works {
    ($($name:literal $kind:expr, $threads:expr, $about:literal;)*) => {
        /// The cases.
        pub const WORKS: &[Work] =
            &[$(Work { name: $name, about: $about, threads: $threads, kind: $kind }),*];
    };
}

works! {
    "fix_size_alloc" Kind::FixSize, &[1, 0], "64 KiB and free";
    "full_fit_alloc" Kind::FullFit, &[1, 0], "64 KiB into the holes of a heap of which every second block is free";
    "long_busy_list_alloc" Kind::LongBusyList, &[1, 0], "6.4 MiB and 64 KiB beside 15,000 live areas";
    "random_size_alloc" Kind::RandomSize, &[1, 0], "64 KiB to 6.4 MiB";
    "fix_align_alloc" Kind::FixAlign, &[1, 0], "320 KiB aligned to 16 KiB";
    "random_size_align_alloc" Kind::RandomSizeAlign, &[1, 0], "64 to 640 KiB aligned to 1 B to 4 MiB";
    "align_shift_alloc" Kind::AlignShift, &[1], "64 KiB aligned to every power of two: most must be refused";
    "mask7" Kind::Mask7, &[0], "the seed's run: the first three, one after the other";
    "64k" Kind::Size(64 << 10), &[1, 0], "64 KiB, one byte touched";
    "256k" Kind::Size(256 << 10), &[1, 0], "256 KiB";
    "1m" Kind::Size(1 << 20), &[1, 0], "1 MiB";
    "4m" Kind::Size(4 << 20), &[1, 0], "4 MiB";
    "16m" Kind::Size(16 << 20), &[1, 0], "16 MiB";
    "64m" Kind::Size(64 << 20), &[1, 0], "64 MiB";
    "free-64k" Kind::Free(64 << 10, false), &[1], "1 GiB in blocks of 64 KiB, freed one by one";
    "free-64k-other" Kind::Free(64 << 10, true), &[1], "the same, by another thread";
    "free-1m" Kind::Free(1 << 20, false), &[1], "1 GiB in blocks of 1 MiB";
    "free-1m-other" Kind::Free(1 << 20, true), &[1], "the same, by another thread";
    "later" Kind::Later(64 << 10), &[1], "1 GiB in blocks of 64 KiB, and seven idle seconds";
    "settle" Kind::Settle, &[0, 1], "the accounting of a purge of 600,000 areas while so many threads free";
    "purge" Kind::Purge, &[0, 1], "a purge of 600,000 areas while so many threads free and take others";
}

/// How blocks are had.
#[derive(Clone, Copy)]
struct Blocks {
    map: bool,
}

impl Blocks {
    #[inline(always)]
    fn alloc(self, size: usize) -> *mut u8 {
        // SAFETY: fresh memory.
        unsafe {
            let block = if self.map {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                match libc::mmap(ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) {
                    libc::MAP_FAILED => ptr::null_mut(),
                    block => block,
                }
            } else {
                libc::malloc(size)
            };
            let block = black_box(block.cast::<u8>());
            if !block.is_null() {
                block.write_volatile(1);
            }
            block
        }
    }
    #[inline(always)]
    fn aligned(self, size: usize, align: usize) -> *mut u8 {
        let mut block = ptr::null_mut();
        // SAFETY: fresh memory, if it is given.
        unsafe {
            if libc::posix_memalign(&raw mut block, align.max(8), size) != 0 {
                return ptr::null_mut();
            }
            block.cast::<u8>().write_volatile(1);
        }
        black_box(block.cast())
    }
    #[inline(always)]
    fn free(self, block: *mut u8, size: usize) {
        // SAFETY: a block of ours, given up (null is allowed).
        unsafe {
            if !self.map {
                libc::free(block.cast());
            } else if !block.is_null() {
                libc::munmap(block.cast(), size);
            }
        }
    }
    fn many(self, count: usize, size: usize) -> Vec<usize> {
        (0..count).map(|_| self.alloc(size) as usize).collect()
    }
}

/// Operations done, those that failed, and ns.
#[derive(Clone, Copy, Default)]
struct Part {
    ops: u64,
    failed: u64,
    ns: f64,
}

struct Random(u64);
impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

fn pairs(blocks: Blocks, ops: u64, mut next: impl FnMut() -> (usize, usize)) -> Part {
    let mut failed = 0;
    let began = Instant::now();
    for _ in 0..ops {
        let (size, align) = next();
        let block = if align == 0 { blocks.alloc(size) } else { blocks.aligned(size, align) };
        failed += u64::from(block.is_null());
        blocks.free(block, size);
    }
    Part { ops, failed, ns: began.elapsed().as_nanos() as f64 }
}

/// One thread's part of a case of `test_vmalloc`.
fn loops(kind: Kind, blocks: Blocks, ops: u64, seed: u64) -> Part {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed << 32);
    match kind {
        Kind::FixSize => pairs(blocks, ops, || (UNIT, 0)),
        Kind::FullFit => {
            // fls(CPUs) × 8,192 pairs of the kernel's, with a unit of 16 pages.
            let count = (2048).min(ops as usize * 2);
            let live = blocks.many(count, UNIT);
            live.iter().step_by(2).for_each(|&block| blocks.free(block as *mut u8, UNIT));
            let part = pairs(blocks, ops, || (UNIT, 0));
            live.iter().skip(1).step_by(2).for_each(|&block| blocks.free(block as *mut u8, UNIT));
            part
        }
        Kind::LongBusyList => {
            let live = blocks.many(15_000.min(ops as usize), UNIT);
            let mut failed = 0;
            let began = Instant::now();
            for _ in 0..ops {
                let (long, short) = (blocks.alloc(100 * UNIT), blocks.alloc(UNIT));
                failed += u64::from(long.is_null()) + u64::from(short.is_null());
                blocks.free(long, 100 * UNIT);
                blocks.free(short, UNIT);
            }
            let ns = began.elapsed().as_nanos() as f64;
            live.iter().for_each(|&block| blocks.free(block as *mut u8, UNIT));
            Part { ops: 2 * ops, failed, ns }
        }
        Kind::RandomSize => pairs(blocks, ops, || ((1 + random.below(100)) * UNIT, 0)),
        Kind::FixAlign => pairs(blocks, ops, || (5 * UNIT, 4 * PAGE)),
        Kind::RandomSizeAlign => pairs(blocks, ops, || ((1 + random.below(10)) * UNIT, 1 << random.below(23))),
        Kind::AlignShift => {
            let mut shift = 0;
            pairs(blocks, ops.min(64 * 100), || {
                shift = (shift + 1) % 64;
                (UNIT, 1 << shift)
            })
        }
        Kind::Size(size) => pairs(blocks, if size >= 16 << 20 { ops / 10 + 1 } else { ops }, || (size, 0)),
        _ => [Kind::FixSize, Kind::FullFit, Kind::LongBusyList].into_iter().fold(Part::default(), |sum, kind| {
            let part = loops(kind, blocks, ops / 3 + 1, seed);
            Part { ops: sum.ops + part.ops, failed: sum.failed + part.failed, ns: sum.ns + part.ns }
        }),
    }
}

/// Tells of a number.
pub fn sample(metric: &str, value: f64) {
    println!("sample {metric} {value}");
}

fn resident() -> f64 {
    proc::resident(std::process::id()).unwrap_or(0) as f64 / f64::from(1 << 20)
}

fn freed(size: usize, other: bool, later: bool, blocks: Blocks, scale: u64) -> Result<(), String> {
    let before = resident();
    let count = (GIB / size * scale as usize / 100).max(2);
    let mut live = blocks.many(count, size);
    for &block in &live {
        if block == 0 {
            return Err("no memory".into());
        }
        // SAFETY: a live block of that size.
        unsafe { ptr::write_bytes(block as *mut u8, 1, size) };
    }
    let mut free = move || {
        let (mut worst, began) = (0, Instant::now());
        for block in live.drain(..) {
            let one = Instant::now();
            blocks.free(block as *mut u8, size);
            worst = worst.max(one.elapsed().as_nanos());
        }
        (began.elapsed().as_nanos(), worst)
    };
    let (total, worst) = if other { std::thread::spawn(free).join().map_err(|_| "a thread failed")? } else { free() };
    sample("total", total as f64 / 1e6);
    sample("worst", worst as f64 / 1e3);
    sample("kept", resident() - before);
    if later {
        std::thread::sleep(Duration::from_secs(if scale >= 20 { 7 } else { 1 }));
        sample("later", resident() - before);
    }
    Ok(())
}

/// Runs `CASE:WAY` and prints its samples.
pub fn work(what: &str, threads: usize, scale: u64, expect: Option<&Path>) -> Result<(), String> {
    let (name, way) = what.split_once(':').unwrap_or((what, "malloc"));
    let work = WORKS.iter().find(|work| work.name == name).ok_or_else(|| format!("no case {name}"))?;
    if let Some(expect) = expect {
        process::owns_malloc(expect)?;
    }
    let blocks = Blocks { map: way == "mmap" };
    match work.kind {
        Kind::Settle => return purge::accounting(way, threads, scale),
        Kind::Purge => return purge::whole(way, threads, scale),
        Kind::Free(size, other) => return freed(size, other, false, blocks, scale),
        Kind::Later(size) => return freed(size, false, true, blocks, scale),
        _ => {}
    }
    // System calls are a hundred times as slow.
    let ops = (OPS * scale / if blocks.map { 2000 } else { 100 }).max(10);
    let start = Barrier::new(threads);
    let parts: Vec<Part> = std::thread::scope(|scope| {
        let begin = |number: usize| {
            let start = &start;
            scope.spawn(move || {
                loops(work.kind, blocks, ops / 20 + 1, number as u64);
                start.wait();
                loops(work.kind, blocks, ops, number as u64)
            })
        };
        let handles: Vec<_> = (0..threads).map(begin).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    if parts.len() != threads {
        return Err("a thread failed".into());
    }
    let failed: u64 = parts.iter().map(|part| part.failed).sum();
    if failed > 0 && work.kind != Kind::AlignShift {
        return Err(format!("{failed} allocations failed"));
    }
    sample("op", parts.iter().map(|part| part.ns / part.ops as f64).sum::<f64>() / threads as f64);
    if work.kind == Kind::AlignShift {
        sample("failed", failed as f64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every case runs, tiny, in every way.
    #[test]
    fn works_run() {
        for case in WORKS {
            let ways: &[&str] = if case.ways().is_some() {
                &["each", "once"]
            } else if case.maps() {
                &["malloc", "mmap"]
            } else {
                &["malloc"]
            };
            for way in ways {
                work(&format!("{}:{way}", case.name), 2, 0, None).unwrap_or_else(|why| panic!("{}: {why}", case.name));
            }
        }
        assert!(work("nothing:malloc", 1, 1, None).is_err());
    }
}
