//! # What a worker of suite `vmap` does
//!
//! Blocks are touched in one byte where the case says nothing else, as `test_vmalloc` does. Unit of `op`: ns of
//! wall time of one thread for an allocation with its free (the kernel's per-worker average); threads that do not
//! disturb each other keep it.
#![allow(unsafe_code)] // malloc, mmap and their opposites, on blocks that one owner holds

use super::purge;
use crate::bench::rows::mib;
use crate::bench::suite::{CPUS, Job, Metric, Work, lower, work};
use crate::bench::team::{Random, together};
use crate::bench::worker::sample;
use crate::proc;
use allotment_engine::arch::PAGE;
use std::hint::black_box;
use std::ptr;
use std::time::{Duration, Instant};

/// What is measured, and in what.
pub const METRICS: &[Metric] = &[
    lower("op", "ns/op"),
    lower("failed", "calls"),
    lower("total", "ms"),
    lower("worst", "us"),
    lower("kept", "MiB"),
    lower("later", "MiB"),
    // Of purges; then what the threads that free meanwhile see, on average and in 64 operations at worst.
    lower("average", "us"),
    lower("p50", "us"),
    lower("free", "ns/op"),
    lower("stall", "us"),
];

/// In place of the kernel's page.
const UNIT: usize = 16 * PAGE;
/// Operations of a thread in a full run.
const OPS: u64 = 200_000;
/// What is freed block by block.
const GIB: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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

impl Work<Kind> {
    /// Whether `mmap` can do the same.
    pub fn maps(&self) -> bool {
        self.who.is_empty() && !matches!(self.kind, Kind::FixAlign | Kind::RandomSizeAlign | Kind::AlignShift)
    }
}

/// The cases.
pub const WORKS: &[Work<Kind>] = &[
    work("fix_size_alloc", "64 KiB and free", &[1, CPUS], &[], Kind::FixSize),
    work(
        "full_fit_alloc",
        "64 KiB into the holes of a heap of which every second block is free",
        &[1, CPUS],
        &[],
        Kind::FullFit,
    ),
    work("long_busy_list_alloc", "6.4 MiB and 64 KiB beside 15,000 live areas", &[1, CPUS], &[], Kind::LongBusyList),
    work("random_size_alloc", "64 KiB to 6.4 MiB", &[1, CPUS], &[], Kind::RandomSize),
    work("fix_align_alloc", "320 KiB aligned to 16 KiB", &[1, CPUS], &[], Kind::FixAlign),
    work("random_size_align_alloc", "64 to 640 KiB aligned to 1 B to 4 MiB", &[1, CPUS], &[], Kind::RandomSizeAlign),
    work(
        "align_shift_alloc",
        "64 KiB aligned to every power of two: most must be refused",
        &[1],
        &[],
        Kind::AlignShift,
    ),
    work("mask7", "the seed's run: the first three, one after the other", &[CPUS], &[], Kind::Mask7),
    work("64k", "64 KiB, one byte touched", &[1, CPUS], &[], Kind::Size(64 << 10)),
    work("256k", "256 KiB", &[1, CPUS], &[], Kind::Size(256 << 10)),
    work("1m", "1 MiB", &[1, CPUS], &[], Kind::Size(1 << 20)),
    work("4m", "4 MiB", &[1, CPUS], &[], Kind::Size(4 << 20)),
    work("16m", "16 MiB", &[1, CPUS], &[], Kind::Size(16 << 20)),
    work("64m", "64 MiB", &[1, CPUS], &[], Kind::Size(64 << 20)),
    work("free-64k", "1 GiB in blocks of 64 KiB, freed one by one", &[1], &[], Kind::Free(64 << 10, false)),
    work("free-64k-other", "the same, by another thread", &[1], &[], Kind::Free(64 << 10, true)),
    work("free-1m", "1 GiB in blocks of 1 MiB", &[1], &[], Kind::Free(1 << 20, false)),
    work("free-1m-other", "the same, by another thread", &[1], &[], Kind::Free(1 << 20, true)),
    work("later", "1 GiB in blocks of 64 KiB, and seven idle seconds", &[1], &[], Kind::Later(64 << 10)),
    work(
        "settle",
        "the accounting of a purge of 600,000 areas while so many threads free",
        &[0, 1],
        &purge::ACCOUNTING,
        Kind::Settle,
    ),
    work(
        "purge",
        "a purge of 600,000 areas while so many threads free and take others",
        &[0, 1],
        &purge::WHOLE,
        Kind::Purge,
    ),
];

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
    let mut random = Random::new(seed);
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

fn resident() -> f64 {
    mib(proc::resident(std::process::id()).unwrap_or(0))
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

/// Does a job.
pub fn run(job: &Job) -> Result<(), String> {
    let (kind, threads, scale) = (job.find(WORKS)?.kind, job.threads, job.scale);
    let blocks = Blocks { map: job.who == "mmap" };
    match kind {
        Kind::Settle => return purge::accounting(&job.who, threads, scale),
        Kind::Purge => return purge::whole(&job.who, threads, scale),
        Kind::Free(size, other) => return freed(size, other, false, blocks, scale),
        Kind::Later(size) => return freed(size, false, true, blocks, scale),
        _ => {}
    }
    // System calls are a hundred times as slow.
    let ops = job.part(if blocks.map { OPS / 20 } else { OPS }, 10);
    let parts = together(threads, |number, start| {
        loops(kind, blocks, ops / 20 + 1, number as u64);
        start.wait();
        loops(kind, blocks, ops, number as u64)
    })?;
    let failed: u64 = parts.iter().map(|part| part.failed).sum();
    if failed > 0 && kind != Kind::AlignShift {
        return Err(format!("{failed} allocations failed"));
    }
    sample("op", parts.iter().map(|part| part.ns / part.ops as f64).sum::<f64>() / threads as f64);
    if kind == Kind::AlignShift {
        sample("failed", failed as f64);
    }
    Ok(())
}
