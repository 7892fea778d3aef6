//! # What a worker of suite `percpu` does
//!
//! A history: allocate objects, touch them in this CPU's copy, free them in an order, allocate as many again. Only the
//! calls are timed; touching is not. Handles that are freed at random lie in memory in that order, so that
//! reading them is not measured. Unit: ns of a CPU for one call.
#![allow(unsafe_code)] // frees addresses, writes copies

use super::area::{AreaMap, UNIT};
use crate::bench::suite::{Job, Metric, Who, Work, lower, who, work};
use crate::bench::team::{self, Random, Start, share, together};
use crate::bench::worker::sample;
use crate::clock::thread_ns;
use allotment::percpu::{self, How};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What is measured, and in what.
pub const METRICS: &[Metric] = &[
    lower("alloc", "ns/op"),
    lower("free", "ns/op"),
    lower("again", "ns/op"),
    lower("unaligned", "ns/op"),
    lower("pair", "ns/op"),
    lower("alloc-cpu", "ns/op"),
    lower("free-cpu", "ns/op"),
    lower("again-cpu", "ns/op"),
    // By the wall, of short slices: medians and the best ones.
    lower("alone", "ns/pair"),
    lower("alone-best", "ns/pair"),
    lower("both", "ns/pair"),
    lower("both-best", "ns/pair"),
    // Time of a pair with both for that of one alone: 1 is twice the throughput.
    lower("slowdown", "x"),
    lower("slowdown-best", "x"),
    // Chunks at the end for each at first.
    lower("growth", "x"),
    lower("metadata", "B/object"),
];

const OURS: Who = who("ours", "allotment");
const BULK: Who = who("bulk", "allotment, free_bulk of 64");
const UNTOUCHED: Who = who("untouched", "allotment, untouched memory");
const AREA: Who = who("area", "area map (1/5)");
const AREA_FEW: Who = who("area-few", "area map (1/50)");
const MEMSET: Who = who("memset", "memset only");
const MISS: Who = who("miss", "one dependent load");

/// In which order objects are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Forward,
    Alternating,
    Reverse,
    Random,
}

/// What is done.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Objects of a size, freed in an order.
    History(usize, Order),
    /// 4 bytes at 8, fresh.
    Aligned,
    /// The same over 4-byte holes.
    Holes,
    /// Replaces random objects of up to this many bytes.
    Churn(usize),
    /// Frees 92 % sparing each chunk's first page, and allocates as many again.
    Reuse(usize),
    /// Threads on their own.
    Threads,
    /// Two threads on two CPUs, in slices, against each of them alone.
    Slices,
}

/// The cases: 1,000,000 objects.
pub const WORKS: &[Work<Kind>] = &[
    work(
        "4-ordered",
        "4 bytes: allocate, free in order, again",
        &[1],
        &[OURS, UNTOUCHED, AREA],
        Kind::History(4, Order::Forward),
    ),
    work(
        "4-alternating",
        "the same, freed alternating",
        &[1],
        &[OURS, UNTOUCHED, AREA],
        Kind::History(4, Order::Alternating),
    ),
    work("4-reverse", "the same, freed in reverse", &[1], &[OURS, UNTOUCHED, AREA], Kind::History(4, Order::Reverse)),
    work(
        "4-random",
        "the same, freed at random",
        &[1],
        &[OURS, UNTOUCHED, BULK, AREA, MISS],
        Kind::History(4, Order::Random),
    ),
    work("16-ordered", "16 bytes", &[1], &[OURS, UNTOUCHED, AREA], Kind::History(16, Order::Forward)),
    work("16-alternating", "freed alternating", &[1], &[OURS, UNTOUCHED, AREA], Kind::History(16, Order::Alternating)),
    work("16-reverse", "freed in reverse", &[1], &[OURS, UNTOUCHED, AREA], Kind::History(16, Order::Reverse)),
    work("16-random", "freed at random", &[1], &[OURS, UNTOUCHED, BULK, AREA, MISS], Kind::History(16, Order::Random)),
    work("64-ordered", "64 bytes", &[1], &[OURS, UNTOUCHED, AREA], Kind::History(64, Order::Forward)),
    work("64-alternating", "freed alternating", &[1], &[OURS, UNTOUCHED, AREA], Kind::History(64, Order::Alternating)),
    work("64-reverse", "freed in reverse", &[1], &[OURS, UNTOUCHED, AREA], Kind::History(64, Order::Reverse)),
    work("64-random", "freed at random", &[1], &[OURS, UNTOUCHED, BULK, AREA, MISS], Kind::History(64, Order::Random)),
    work("128-ordered", "128 bytes", &[1], &[OURS, UNTOUCHED, AREA], Kind::History(128, Order::Forward)),
    work(
        "128-alternating",
        "freed alternating",
        &[1],
        &[OURS, UNTOUCHED, AREA],
        Kind::History(128, Order::Alternating),
    ),
    work("128-reverse", "freed in reverse", &[1], &[OURS, UNTOUCHED, AREA], Kind::History(128, Order::Reverse)),
    work(
        "128-random",
        "freed at random",
        &[1],
        &[OURS, UNTOUCHED, BULK, AREA, MISS],
        Kind::History(128, Order::Random),
    ),
    work("1024-ordered", "1,024 bytes", &[1], &[OURS, UNTOUCHED, AREA], Kind::History(1024, Order::Forward)),
    work(
        "1024-alternating",
        "half of them freed and again",
        &[1],
        &[OURS, AREA, MEMSET],
        Kind::History(1024, Order::Alternating),
    ),
    work("1024-reverse", "freed in reverse", &[1], &[OURS, UNTOUCHED, AREA], Kind::History(1024, Order::Reverse)),
    work(
        "1024-random",
        "freed at random",
        &[1],
        &[OURS, UNTOUCHED, BULK, AREA, MISS],
        Kind::History(1024, Order::Random),
    ),
    work("4-at-8", "4 bytes at 8-byte alignment", &[1], &[OURS, AREA_FEW], Kind::Aligned),
    work("4-at-8-holes", "the same over a heap of 4-byte holes", &[1], &[OURS, AREA_FEW], Kind::Holes),
    work(
        "churn-256",
        "replace a random one of 100,000 objects of 4 to 256 bytes",
        &[1],
        &[OURS, AREA, MEMSET],
        Kind::Churn(256),
    ),
    work("churn-1024", "the same, 4 to 1,024 bytes", &[1], &[OURS, AREA, MEMSET], Kind::Churn(1024)),
    work("reuse-4", "free 92 % of 4 bytes, again", &[1], &[OURS, AREA], Kind::Reuse(4)),
    work("reuse-64", "free 92 % of 64 bytes, again", &[1], &[OURS, AREA], Kind::Reuse(64)),
    work("threads", "64 bytes: each thread its own objects", &[1, 2], &[OURS], Kind::Threads),
    work(
        "two-cpus",
        "64 bytes: two pinned threads at once against each alone, in slices of 2,000 pairs, by the wall",
        &[2],
        &[OURS],
        Kind::Slices,
    ),
];

/// Objects of a full run.
const OBJECTS: u64 = 1_000_000;
/// Objects of a churn.
const LIVE: usize = 100_000;

/// What a history needs.
trait Alloc {
    fn alloc(&mut self, size: usize, align: usize) -> Result<usize, String>;
    fn free(&mut self, address: usize) -> Result<(), String>;
    fn free_all(&mut self, addresses: &[usize]) -> Result<(), String> {
        addresses.iter().try_for_each(|&address| self.free(address))
    }
    /// Writes all of it, as its user would.
    fn touch(&self, address: usize, size: usize);
    fn chunks(&self) -> usize;
    fn metadata(&self) -> usize;
}

/// Whether memory is written, and whether frees come in bulk.
struct Ours(bool, bool);

impl Alloc for Ours {
    #[inline(always)]
    fn alloc(&mut self, size: usize, align: usize) -> Result<usize, String> {
        percpu::alloc(size, align, How::Normal).map(|handle| handle.address()).map_err(|error| error.to_string())
    }
    #[inline(always)]
    fn free(&mut self, address: usize) -> Result<(), String> {
        // SAFETY: a history frees what it has.
        unsafe { percpu::free(address) }.map_err(|bad| bad.to_string())
    }
    #[inline(always)]
    fn free_all(&mut self, addresses: &[usize]) -> Result<(), String> {
        if !self.1 {
            return addresses.iter().try_for_each(|&address| self.free(address));
        }
        // SAFETY: as above.
        addresses.chunks(64).try_for_each(|some| unsafe { percpu::free_bulk(some) }).map_err(|bad| bad.to_string())
    }
    fn touch(&self, address: usize, size: usize) {
        if self.0 {
            // SAFETY: a live allocation, and one thread.
            unsafe {
                let handle = percpu::Handle::new(std::num::NonZeroUsize::new_unchecked(address));
                percpu::this_cpu(handle).write_bytes(7, size);
            }
        }
    }
    fn chunks(&self) -> usize {
        percpu::stats().chunks
    }
    fn metadata(&self) -> usize {
        percpu::stats().metadata
    }
}

impl Alloc for AreaMap {
    #[inline(always)]
    fn alloc(&mut self, size: usize, align: usize) -> Result<usize, String> {
        Self::alloc(self, size, align).ok_or_else(|| "full".to_owned())
    }
    #[inline(always)]
    fn free(&mut self, address: usize) -> Result<(), String> {
        Self::free(self, address);
        Ok(())
    }
    fn touch(&self, address: usize, size: usize) {
        // SAFETY: a live allocation.
        unsafe { (address as *mut u8).write_bytes(7, size) };
    }
    fn chunks(&self) -> usize {
        Self::chunks(self)
    }
    fn metadata(&self) -> usize {
        Self::metadata(self)
    }
}

/// Of all orders.
const SEED: u64 = 7;

fn arrange(handles: &mut Vec<usize>, order: Order) {
    match order {
        Order::Forward => {}
        Order::Reverse => handles.reverse(),
        Order::Random => Random::new(SEED).shuffle(handles),
        Order::Alternating => {
            let (even, odd) = (handles.iter().step_by(2), handles.iter().skip(1).step_by(2));
            *handles = even.chain(odd).copied().collect();
        }
    }
}

/// ns for each of `count` calls.
fn timed(count: usize, what: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    team::timed(count, what).map(|[wall, _]| wall)
}

fn fill(heap: &mut impl Alloc, handles: &mut [usize], size: usize, align: usize) -> Result<f64, String> {
    timed(handles.len(), || {
        for handle in handles {
            *handle = heap.alloc(size, align)?;
        }
        Ok(())
    })
}
fn empty(heap: &mut impl Alloc, handles: &[usize]) -> Result<f64, String> {
    timed(handles.len(), || heap.free_all(handles))
}

fn history(heap: &mut impl Alloc, size: usize, order: Order, count: usize) -> Result<(), String> {
    let mut handles = vec![1; count];
    sample("alloc", fill(heap, &mut handles, size, size.min(8))?);
    handles.iter().for_each(|&handle| heap.touch(handle, size));
    let chunks = heap.chunks();
    sample("metadata", heap.metadata() as f64 / count as f64);
    arrange(&mut handles, order);
    // Half of them, so that most memory stays, and again; then all, and again.
    let half = handles.len() / 2;
    let mut free = empty(heap, &handles[..half])? * half as f64;
    let mut again = fill(heap, &mut handles[..half], size, size.min(8))? * half as f64;
    handles[..half].iter().for_each(|&handle| heap.touch(handle, size));
    if !(size >= 1024 && order == Order::Alternating) {
        free += empty(heap, &handles)? * count as f64;
        again += fill(heap, &mut handles, size, size.min(8))? * count as f64;
        free /= (half + count) as f64;
        again /= (half + count) as f64;
    } else {
        free /= half as f64;
        again /= half as f64;
    }
    sample("free", free);
    sample("again", again);
    sample("growth", heap.chunks() as f64 / chunks as f64);
    Ok(())
}

fn aligned(heap: &mut impl Alloc, count: usize, holes: bool) -> Result<(), String> {
    let mut handles = vec![1; count];
    if holes {
        let mut small = vec![1; 2 * count];
        fill(heap, &mut small, 4, 4)?;
        small.iter().skip(1).step_by(2).try_for_each(|&handle| heap.free(handle))?;
        sample("alloc", fill(heap, &mut handles, 4, 8)?);
        // The holes themselves, for whoever does not mind.
        sample("unaligned", fill(heap, &mut handles, 4, 4)?);
        return Ok(());
    }
    sample("alloc", fill(heap, &mut handles, 4, 8)?);
    sample("unaligned", fill(heap, &mut handles, 4, 4)?);
    Ok(())
}

fn churn(heap: &mut impl Alloc, most: usize, count: usize, live: usize) -> Result<(), String> {
    let mut random = Random::new(SEED);
    let mut handles = Vec::with_capacity(live);
    for _ in 0..live {
        let size = 4 + random.below(most - 3);
        handles.push(heap.alloc(size, 4)?);
        heap.touch(handles[handles.len() - 1], size);
    }
    let chunks = heap.chunks();
    let mut turn = |random: &mut Random, count: usize| {
        timed(count, || {
            for _ in 0..count {
                let at = random.below(live);
                heap.free(handles[at])?;
                handles[at] = heap.alloc(4 + random.below(most - 3), 4)?;
            }
            Ok(())
        })
    };
    // Until it is as it stays.
    turn(&mut random, count.min(2 * live))?;
    let pair = turn(&mut random, count)?;
    sample("pair", pair);
    sample("growth", heap.chunks() as f64 / chunks as f64);
    Ok(())
}

fn reuse(heap: &mut impl Alloc, size: usize, count: usize) -> Result<(), String> {
    let mut random = Random::new(SEED);
    let mut handles = vec![1; count];
    fill(heap, &mut handles, size, 4)?;
    handles.iter().for_each(|&handle| heap.touch(handle, size));
    let chunks = heap.chunks();
    let mut freed = Vec::new();
    for handle in handles {
        // 92 % of all: of what is not in a first page (of 64) a little more.
        if handle % UNIT >= 4096 && random.below(1000) < 935 {
            freed.push(handle);
        }
    }
    sample("free", empty(heap, &freed)?);
    sample("again", fill(heap, &mut freed, size, 4)?);
    sample("growth", heap.chunks() as f64 / chunks as f64);
    Ok(())
}

/// Each thread allocates and frees its own; the process has more than one in any case. By the wall (the slowest
/// thread, for each of its calls: threads that scale keep it), and by the threads' own clocks.
fn threads(count: usize, threads: usize) -> Result<(), String> {
    let times = together(threads, |_, start| {
        let mut heap = Ours(true, false);
        let mut handles = vec![1; count / threads];
        let calls = handles.len() as f64;
        let mut times = [0.0; 6];
        for (phase, time) in times.chunks_exact_mut(2).enumerate() {
            start.wait();
            let began = thread_ns();
            time[0] = match phase {
                1 => empty(&mut heap, &handles)?,
                _ => fill(&mut heap, &mut handles, 64, 8)?,
            };
            time[1] = (thread_ns() - began) as f64 / calls;
            if phase == 0 {
                handles.iter().for_each(|&handle| heap.touch(handle, 64));
            }
        }
        Ok(times)
    })?;
    let times = times.into_iter().collect::<Result<Vec<[f64; 6]>, String>>()?;
    let metrics = ["alloc", "alloc-cpu", "free", "free-cpu", "again", "again-cpu"];
    for (at, metric) in metrics.into_iter().enumerate() {
        let slowest = times.iter().map(|times| times[at]).fold(0.0, f64::max);
        sample(metric, slowest * share(threads));
    }
    Ok(())
}

/// Pairs of a slice.
const SLICE: usize = 2000;
/// What a slice is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Alone(usize),
    Both,
}

/// Pins the calling thread to the `nth` CPU that it may run on.
fn stand_on(nth: usize) -> Result<(), String> {
    let cpu = *team::allowed().get(nth).ok_or("fewer than two CPUs")?;
    if team::pin(cpu) { Ok(()) } else { Err("cannot be pinned".into()) }
}

/// Two threads take turns alone and run at once, in slices so short that what else the machine does hits few of them.
fn slices(count: usize) -> Result<(), String> {
    let rounds = (count / SLICE).max(3);
    let ready = AtomicUsize::new(0);
    let work = |me: usize, start: &Start| -> Result<[Vec<f64>; 2], String> {
        // (Both come to every barrier, whatever went wrong.)
        let mut error = stand_on(me).err();
        let mut heap = Ours(true, false);
        let mut handles = vec![1; SLICE];
        let mut times = [vec![], vec![]];
        for round in 0..rounds {
            for turn in [Turn::Alone(0), Turn::Both, Turn::Alone(1)] {
                start.wait();
                if turn == Turn::Both {
                    // Awake, both of them. Relaxed: only a moment.
                    ready.fetch_add(1, Relaxed);
                    while ready.load(Relaxed) < 2 * (round + 1) {
                        std::hint::spin_loop();
                    }
                } else if turn != Turn::Alone(me) {
                    continue;
                }
                let pair = timed(SLICE, || {
                    fill(&mut heap, &mut handles, 64, 8)?;
                    empty(&mut heap, &handles)?;
                    Ok(())
                });
                match pair {
                    Ok(pair) => times[usize::from(turn == Turn::Both)].push(pair),
                    Err(why) => error = Some(why),
                }
            }
        }
        error.map_or(Ok(times), Err)
    };
    let times = together(2, work)?;
    let mut all = [vec![], vec![]];
    for times in times {
        let [alone, both] = times?;
        all[0].extend(alone);
        all[1].extend(both);
    }
    all.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    let [alone, both] = all;
    let (alone, alone_best, both, both_best) = (alone[alone.len() / 2], alone[0], both[both.len() / 2], both[0]);
    sample("alone", alone);
    sample("alone-best", alone_best);
    sample("both", both);
    sample("both-best", both_best);
    sample("slowdown", both / alone);
    sample("slowdown-best", both_best / alone_best);
    Ok(())
}

/// What zeroing alone costs: every second KiB of touched memory.
fn memset(size: usize, count: usize) -> Result<(), String> {
    let mut memory = vec![7_u8; count * size];
    let again = timed(count / 2, || {
        memory.chunks_exact_mut(2 * size).for_each(|pair| black_box(&mut pair[..size]).fill(0));
        Ok(())
    })?;
    sample("again", again);
    Ok(())
}

/// What the zeroing of a churn costs, with choosing what: nothing is allocated.
fn memset_churn(most: usize, count: usize, live: usize) -> Result<(), String> {
    let mut random = Random::new(SEED);
    let room = most.div_ceil(2) + 2;
    let mut memory = vec![7_u8; live * room + most];
    let mut handles: Vec<usize> = (0..live).map(|at| at * room).collect();
    random.shuffle(&mut handles);
    let pair = timed(count, || {
        for _ in 0..count {
            let begin = handles[random.below(live)];
            let size = 4 + random.below(most - 3);
            black_box(&mut memory[begin..begin + size]).fill(0);
        }
        Ok(())
    })?;
    sample("pair", pair);
    Ok(())
}

/// What a load costs that depends on the one before, over as many bytes as there are bits.
fn miss(size: usize, count: usize) -> Result<(), String> {
    const LINE: usize = 8;
    let lines = (count * size / 16 / 64).max(16);
    let mut order: Vec<usize> = (0..lines).collect();
    Random::new(SEED).shuffle(&mut order);
    let mut memory = vec![0_usize; lines * LINE];
    for at in 0..lines {
        memory[order[at] * LINE] = order[(at + 1) % lines] * LINE;
    }
    let mut at = 0;
    let free = timed(count, || {
        for _ in 0..count {
            at = memory[at];
        }
        Ok(())
    })?;
    black_box(at);
    sample("free", free);
    Ok(())
}

/// Does a job.
pub fn run(job: &Job) -> Result<(), String> {
    let kind = job.find(WORKS)?.kind;
    let count = job.part(OBJECTS, 1000) as usize;
    let live = LIVE.min(count);
    match (job.who.as_str(), kind) {
        ("memset", Kind::History(size, _)) => memset(size, count),
        ("memset", Kind::Churn(most)) => memset_churn(most, count, live),
        ("miss", Kind::History(size, _)) => miss(size, count),
        (_, Kind::Threads) => threads(count, job.threads),
        (_, Kind::Slices) => slices(count),
        ("area", kind) => measure(&mut AreaMap::new(), kind, count / 5, live / 5),
        ("area-few", kind) => measure(&mut AreaMap::new(), kind, count / 50, live / 5),
        ("bulk", kind) => measure(&mut Ours(true, true), kind, count, live),
        ("ours", kind) => measure(&mut Ours(true, false), kind, count, live),
        ("untouched", kind) => measure(&mut Ours(false, false), kind, count, live),
        _ => Err(job.nobody()),
    }
}

fn measure(heap: &mut impl Alloc, kind: Kind, count: usize, live: usize) -> Result<(), String> {
    match kind {
        Kind::History(size, order) => history(heap, size, order, count),
        Kind::Aligned => aligned(heap, count, false),
        Kind::Holes => aligned(heap, count, true),
        Kind::Churn(most) => churn(heap, most, count, live),
        Kind::Reuse(size) => reuse(heap, size, count),
        Kind::Threads | Kind::Slices => Ok(()),
    }
}
