//! # Purges of very many areas, with the seed's two ways to settle
//!
//! ```text
//!   accounting   a walk over 600,000 records:  each: counter -= pages    once: sum += pages … counter -= sum
//!   whole        the engine's own purge of 600,000 areas, as it is, or telling its level of each area besides
//!   meanwhile    threads that free, and tell the same counter
//! ```
//! The first is the seed's loop alone: nothing is given back. The second is all that a purge does (gather, sort,
//! merge, give back, settle), on areas with one page touched each. Units: µs of a purge, ns of what another thread
//! does meanwhile.
#![allow(unsafe_code)] // builds the engine's areas from their parts, touches memory

use crate::bench::suite::{Who, who};
use crate::bench::worker::sample;
use allotment_engine::arch::gate::Gate;
use allotment_engine::arch::{PAGE, seq, sys};
use allotment_engine::cache::{Cache, sets};
use allotment_engine::page::Windows;
use allotment_engine::stat::{Level, Mode};
use allotment_engine::vmap::{Areas, Vmap};
use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

/// Areas that are purged, as in the seed.
const AREAS: usize = 600_000;
/// Bytes of each.
const AREA: usize = 9 * PAGE;
/// Bytes of what others free meanwhile.
const OTHER: usize = 10 * PAGE;
/// Walks of the accounting in a run, and whole purges.
const WALKS: usize = 20;
const PURGES: usize = 4;

/// Ways of the accounting alone.
pub const ACCOUNTING: [Who; 2] = [who("each", "settled per area"), who("once", "settled per purge")];
/// Ways of the whole purge.
pub const WHOLE: [Who; 2] = [who("once", "allotment"), who("each", "allotment, per area")];

/// What the engine has for its areas.
struct World {
    areas: Areas,
    windows: Box<Windows>,
    cache: Box<Cache>,
    gate: Gate,
}

impl World {
    fn new() -> Result<Self, String> {
        // SAFETY: both are made to begin as zeros.
        let (windows, cache) =
            unsafe { (Box::<Windows>::new_zeroed().assume_init(), Box::<Cache>::new_zeroed().assume_init()) };
        let world = Self { areas: Areas::new(), windows, cache, gate: Gate::new() };
        let base = sys::map(0, sets::BYTES, sys::Access::ReadWrite).map_err(|errno| format!("{errno:?}"))?;
        // SAFETY: fresh and zeroed, and never unmapped.
        unsafe { world.cache.sets.open(base, Mode::Fallback, seq::RseqArea::default(), None) };
        world.cache.knobs.reset();
        Ok(world)
    }
    fn vmap(&self) -> Vmap<'_> {
        Vmap { areas: &self.areas, windows: &self.windows, cache: &self.cache, gate: &self.gate }
    }
    fn alloc(&self, bytes: usize) -> Option<usize> {
        let address = self.vmap().alloc(bytes, PAGE)?.address;
        // SAFETY: an area of ours.
        unsafe { (address as *mut u8).write_volatile(1) };
        Some(address)
    }
    fn free(&self, address: usize) {
        if let Some(area) = self.vmap().find(address) {
            self.vmap().free(&area);
        }
    }
    /// The level as one shared counter, which the seed's both sides change.
    fn tell(&self, bytes: isize) {
        self.cache.sets.board().shift(Level::Lazy, bytes);
    }
}

/// Runs `free` again and again on `threads` threads beside `purge`, which says how long its purges took, in µs.
fn beside(threads: usize, free: impl Fn() + Sync, purge: impl FnOnce() -> Vec<f64>) -> Result<(), String> {
    let stop = AtomicBool::new(false);
    let other = || {
        let (mut done, mut worst, began) = (0_u32, 0, Instant::now());
        while !stop.load(Acquire) {
            // The clock costs more than the counter: 64 at a time.
            let some = Instant::now();
            (0..64).for_each(|_| free());
            worst = worst.max(some.elapsed().as_nanos());
            done += 64;
        }
        (began.elapsed().as_nanos() as f64 / f64::from(done.max(1)), worst as f64 / 1e3)
    };
    let (times, others) = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(other)).collect();
        let times = purge();
        stop.store(true, Release);
        (times, handles.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>())
    });
    let others: Vec<(f64, f64)> =
        others.into_iter().map(|part| part.map_err(|_| "a thread failed")).collect::<Result<_, _>>()?;
    let mut sorted = times;
    sorted.sort_by(f64::total_cmp);
    let (Some(&worst), count) = (sorted.last(), sorted.len()) else { return Err("no memory".into()) };
    sample("average", sorted.iter().sum::<f64>() / count as f64);
    sample("p50", sorted[count / 2]);
    sample("worst", worst);
    if !others.is_empty() {
        sample("free", others.iter().map(|other| other.0).sum::<f64>() / others.len() as f64);
        sample("stall", others.iter().map(|other| other.1).fold(0.0, f64::max));
    }
    histogram(&sorted);
    Ok(())
}

/// An area of the accounting's: as long as a cache line.
#[repr(align(64))]
struct Record {
    next: usize,
    pages: usize,
}

/// The seed's loop: a purge walks its list and takes each area's pages from the shared counter, or their sum once;
/// threads that free add to the counter meanwhile.
pub fn accounting(way: &str, threads: usize, scale: u64) -> Result<(), String> {
    let world = World::new()?;
    let count = (AREAS * scale as usize / 100).max(1000);
    let mut records: Vec<Record> = (0..count).map(|at| Record { next: at + 1, pages: 1 + at % 16 }).collect();
    records[count - 1].next = usize::MAX;
    let walk = || {
        let began = Instant::now();
        let (mut at, mut sum) = (0, 0);
        while at != usize::MAX {
            let record = &records[at];
            match way {
                "each" => world.tell(-(record.pages as isize)),
                _ => sum += record.pages,
            }
            at = record.next;
        }
        world.tell(-(black_box(sum) as isize));
        began.elapsed().as_nanos() as f64 / 1e3
    };
    beside(threads, || world.tell(1), || (0..WALKS).map(|_| walk()).collect())
}

/// Whole purges, with threads that free and take areas meanwhile.
pub fn whole(way: &str, threads: usize, scale: u64) -> Result<(), String> {
    let world = World::new()?;
    let count = (AREAS * scale as usize / 100).max(1000);
    let other = || {
        if let Some(area) = world.alloc(OTHER) {
            if way == "each" {
                world.tell(OTHER as isize);
            }
            world.free(area);
        }
    };
    let mut live = Vec::with_capacity(count);
    let purge = || {
        let one = |_| {
            live.extend((0..count).filter_map(|_| world.alloc(AREA)));
            let full = live.len() == count;
            live.drain(..).for_each(|area| world.free(area));
            let began = Instant::now();
            if way == "each" {
                (0..count).for_each(|_| world.tell(-(AREA as isize)));
                world.tell((count * AREA) as isize);
            }
            let bytes = world.vmap().purge(usize::MAX);
            // The other threads may each hold an area that they took from the freed ones.
            (full && bytes + threads * OTHER >= count * AREA).then(|| began.elapsed().as_nanos() as f64 / 1e3)
        };
        (0..PURGES).map_while(one).collect()
    };
    beside(threads, other, purge)
}

/// The seed's form, for whoever runs the worker by hand.
fn histogram(times: &[f64]) {
    let mut buckets = [0_usize; 32];
    times.iter().for_each(|&us| buckets[(us.max(1.0) as u64).ilog2().min(31) as usize] += 1);
    let most = buckets.iter().max().copied().unwrap_or(1).max(1);
    let first = buckets.iter().position(|&n| n > 0).unwrap_or(0);
    let last = buckets.iter().rposition(|&n| n > 0).unwrap_or(0);
    println!("{:>20} : count    distribution", "usecs");
    for (at, &n) in buckets.iter().enumerate().take(last + 1).skip(first) {
        let from = if at == 0 { 0 } else { 1_u64 << at };
        println!("{from:>9} -> {:<7} : {n:<8} |{:<40}|", (2_u64 << at) - 1, "*".repeat(n * 40 / most));
    }
}
