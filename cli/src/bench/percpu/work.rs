//! # What a worker of suite `percpu` does
//!
//! A history: allocate objects, touch them in this CPU's copy, free them in an order, allocate as many again. Only the
//! calls are timed; touching is not. Handles that are freed at random lie in memory in that order, so that
//! reading them is not measured. Unit: ns of a CPU for one call.
#![allow(unsafe_code)] // frees addresses, writes copies

use super::super::harness::cpus;
use super::area::AreaMap;
use crate::clock::thread_ns;
use allotment::percpu::{self, How};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// What is measured, and in what.
pub const METRICS: &[(&str, &str)] = &[
    ("alloc", "ns/op"),
    ("free", "ns/op"),
    ("again", "ns/op"),
    ("unaligned", "ns/op"),
    ("pair", "ns/op"),
    ("alloc-cpu", "ns/op"),
    ("free-cpu", "ns/op"),
    ("again-cpu", "ns/op"),
    // By the wall, of short slices: medians and the best ones.
    ("alone", "ns/pair"),
    ("alone-best", "ns/pair"),
    ("both", "ns/pair"),
    ("both-best", "ns/pair"),
    // Time of a pair with both for that of one alone: 1 is twice the throughput.
    ("slowdown", "x"),
    ("slowdown-best", "x"),
    // Chunks at the end for each at first.
    ("growth", "x"),
    ("metadata", "B/object"),
];

/// Who competes.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// In the worker's argument.
    pub key: &'static str,
    /// In tables.
    pub name: &'static str,
}
const OURS: Who = Who { key: "ours", name: "allotment" };
const BULK: Who = Who { key: "bulk", name: "allotment, free_bulk of 64" };
const UNTOUCHED: Who = Who { key: "untouched", name: "allotment, untouched memory" };
const AREA: Who = Who { key: "area", name: "area map (1/5)" };
const AREA_FEW: Who = Who { key: "area-few", name: "area map (1/50)" };
const MEMSET: Who = Who { key: "memset", name: "memset only" };
const MISS: Who = Who { key: "miss", name: "one dependent load" };

/// In which order objects are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Forward,
    Alternating,
    Reverse,
    Random,
}

/// What is done.
#[derive(Clone, Copy, Debug)]
enum Kind {
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

/// A case.
#[derive(Debug)]
pub struct Work {
    /// Its name.
    pub name: &'static str,
    /// What is done.
    pub about: &'static str,
    /// Numbers of threads.
    pub threads: &'static [usize],
    /// Who competes.
    pub who: &'static [Who],
    kind: Kind,
}

macro_rules! history {
    ($name:literal, $size:literal, $order:ident, $about:literal, $who:expr) => {
        Work { name: $name, about: $about, threads: &[1], who: $who, kind: Kind::History($size, Order::$order) }
    };
}

/// The cases: 1,000,000 objects.
pub const CASES: &[Work] = &[
    history!("4-ordered", 4, Forward, "4 bytes: allocate, free in order, again", &[OURS, UNTOUCHED, AREA]),
    history!("4-alternating", 4, Alternating, "the same, freed alternating", &[OURS, UNTOUCHED, AREA]),
    history!("4-reverse", 4, Reverse, "the same, freed in reverse", &[OURS, UNTOUCHED, AREA]),
    history!("4-random", 4, Random, "the same, freed at random", &[OURS, UNTOUCHED, BULK, AREA, MISS]),
    history!("16-ordered", 16, Forward, "16 bytes", &[OURS, UNTOUCHED, AREA]),
    history!("16-alternating", 16, Alternating, "freed alternating", &[OURS, UNTOUCHED, AREA]),
    history!("16-reverse", 16, Reverse, "freed in reverse", &[OURS, UNTOUCHED, AREA]),
    history!("16-random", 16, Random, "freed at random", &[OURS, UNTOUCHED, BULK, AREA, MISS]),
    history!("64-ordered", 64, Forward, "64 bytes", &[OURS, UNTOUCHED, AREA]),
    history!("64-alternating", 64, Alternating, "freed alternating", &[OURS, UNTOUCHED, AREA]),
    history!("64-reverse", 64, Reverse, "freed in reverse", &[OURS, UNTOUCHED, AREA]),
    history!("64-random", 64, Random, "freed at random", &[OURS, UNTOUCHED, BULK, AREA, MISS]),
    history!("128-ordered", 128, Forward, "128 bytes", &[OURS, UNTOUCHED, AREA]),
    history!("128-alternating", 128, Alternating, "freed alternating", &[OURS, UNTOUCHED, AREA]),
    history!("128-reverse", 128, Reverse, "freed in reverse", &[OURS, UNTOUCHED, AREA]),
    history!("128-random", 128, Random, "freed at random", &[OURS, UNTOUCHED, BULK, AREA, MISS]),
    history!("1024-ordered", 1024, Forward, "1,024 bytes", &[OURS, UNTOUCHED, AREA]),
    history!("1024-alternating", 1024, Alternating, "half of them freed and again", &[OURS, AREA, MEMSET]),
    history!("1024-reverse", 1024, Reverse, "freed in reverse", &[OURS, UNTOUCHED, AREA]),
    history!("1024-random", 1024, Random, "freed at random", &[OURS, UNTOUCHED, BULK, AREA, MISS]),
    Work {
        name: "4-at-8",
        about: "4 bytes at 8-byte alignment",
        threads: &[1],
        who: &[OURS, AREA_FEW],
        kind: Kind::Aligned,
    },
    Work {
        name: "4-at-8-holes",
        about: "the same over a heap of 4-byte holes",
        threads: &[1],
        who: &[OURS, AREA_FEW],
        kind: Kind::Holes,
    },
    Work {
        name: "churn-256",
        about: "replace a random one of 100,000 objects of 4 to 256 bytes",
        threads: &[1],
        who: &[OURS, AREA, MEMSET],
        kind: Kind::Churn(256),
    },
    Work {
        name: "churn-1024",
        about: "the same, 4 to 1,024 bytes",
        threads: &[1],
        who: &[OURS, AREA, MEMSET],
        kind: Kind::Churn(1024),
    },
    Work {
        name: "reuse-4",
        about: "free 92 % of 4 bytes, again",
        threads: &[1],
        who: &[OURS, AREA],
        kind: Kind::Reuse(4),
    },
    Work {
        name: "reuse-64",
        about: "free 92 % of 64 bytes, again",
        threads: &[1],
        who: &[OURS, AREA],
        kind: Kind::Reuse(64),
    },
    Work {
        name: "threads",
        about: "64 bytes: each thread its own objects",
        threads: &[1, 2],
        who: &[OURS],
        kind: Kind::Threads,
    },
    Work {
        name: "two-cpus",
        about: "64 bytes: two pinned threads at once against each alone, in slices of 2,000 pairs, by the wall",
        threads: &[2],
        who: &[OURS],
        kind: Kind::Slices,
    },
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

/// Numbers that only look random.
struct Random(u64);
impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
    fn shuffle<T>(&mut self, values: &mut [T]) {
        for at in (1..values.len()).rev() {
            values.swap(at, self.below(at + 1));
        }
    }
}
const SEED: u64 = 0x2545_f491_4f6c_dd1d;

fn arrange(handles: &mut Vec<usize>, order: Order) {
    match order {
        Order::Forward => {}
        Order::Reverse => handles.reverse(),
        Order::Random => Random(SEED).shuffle(handles),
        Order::Alternating => {
            let (even, odd) = (handles.iter().step_by(2), handles.iter().skip(1).step_by(2));
            *handles = even.chain(odd).copied().collect();
        }
    }
}

fn sample(metric: &str, value: f64) {
    println!("sample {metric} {value}");
}

/// ns for each of `count` calls.
fn timed(count: usize, what: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let began = Instant::now();
    what()?;
    Ok(began.elapsed().as_nanos() as f64 / count as f64)
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
        // The holes themselves, for who does not mind.
        sample("unaligned", fill(heap, &mut handles, 4, 4)?);
        return Ok(());
    }
    sample("alloc", fill(heap, &mut handles, 4, 8)?);
    sample("unaligned", fill(heap, &mut handles, 4, 4)?);
    Ok(())
}

fn churn(heap: &mut impl Alloc, most: usize, count: usize, live: usize) -> Result<(), String> {
    let mut random = Random(SEED);
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
    let mut random = Random(SEED);
    let mut handles = vec![1; count];
    fill(heap, &mut handles, size, 4)?;
    handles.iter().for_each(|&handle| heap.touch(handle, size));
    let chunks = heap.chunks();
    let mut freed = Vec::new();
    for handle in handles {
        // 92 % of all: of what is not in a first page (of 64) a little more.
        if handle % super::area::UNIT >= 4096 && random.below(1000) < 935 {
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
    let start = Barrier::new(threads);
    let times: Vec<Result<[f64; 6], String>> = std::thread::scope(|scope| {
        let work = || {
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
                handles.iter().for_each(|&handle| {
                    if phase == 0 {
                        heap.touch(handle, 64)
                    }
                });
            }
            Ok(times)
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    let times = times.into_iter().collect::<Result<Vec<_>, _>>()?;
    let metrics = ["alloc", "alloc-cpu", "free", "free-cpu", "again", "again-cpu"];
    for (at, metric) in metrics.into_iter().enumerate() {
        let slowest = times.iter().map(|times| times[at]).fold(0.0, f64::max);
        sample(metric, slowest * threads.min(cpus()) as f64 / threads as f64);
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
fn pin(nth: usize) -> Result<(), String> {
    // SAFETY: the calling thread's own set, read and written.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0 {
            return Err("no affinity".to_owned());
        }
        let cpu = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).nth(nth);
        let cpu = cpu.ok_or("fewer than two CPUs")?;
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut one);
        if libc::sched_setaffinity(0, size_of_val(&one), &raw const one) != 0 {
            return Err("cannot be pinned".to_owned());
        }
    }
    Ok(())
}

/// Two threads take turns alone and run at once, in slices so short that what else the machine does hits few of them.
fn slices(count: usize) -> Result<(), String> {
    let rounds = (count / SLICE).max(3);
    let (start, ready) = (Barrier::new(2), AtomicUsize::new(0));
    let work = &|me: usize| -> Result<[Vec<f64>; 2], String> {
        // (Both come to every barrier, whatever went wrong.)
        let mut error = pin(me).err();
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
    let times = std::thread::scope(|scope| {
        let threads = [0, 1].map(|me| scope.spawn(move || work(me)));
        threads.map(|thread| thread.join().unwrap_or_else(|_| Err("a thread died".to_owned())))
    });
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
    let mut random = Random(SEED);
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
    Random(SEED).shuffle(&mut order);
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

/// Runs `CASE:WHO` and prints its samples.
pub fn work(what: &str, count_threads: usize, scale: u64) -> Result<(), String> {
    let (name, who) = what.split_once(':').unwrap_or((what, "ours"));
    let case = CASES.iter().find(|case| case.name == name).ok_or_else(|| format!("no case {name}"))?;
    let count = (OBJECTS * scale / 100).max(1000) as usize;
    match (who, case.kind) {
        ("memset", Kind::History(size, _)) => memset(size, count),
        ("memset", Kind::Churn(most)) => memset_churn(most, count, LIVE.min(count)),
        ("miss", Kind::History(size, _)) => miss(size, count),
        (_, Kind::Threads) => threads(count, count_threads),
        (_, Kind::Slices) => slices(count),
        ("area", kind) => run(&mut AreaMap::new(), kind, count / 5, LIVE.min(count) / 5),
        ("area-few", kind) => run(&mut AreaMap::new(), kind, count / 50, LIVE.min(count) / 5),
        ("bulk", kind) => run(&mut Ours(true, true), kind, count, LIVE.min(count)),
        ("ours", kind) => run(&mut Ours(true, false), kind, count, LIVE.min(count)),
        ("untouched", kind) => run(&mut Ours(false, false), kind, count, LIVE.min(count)),
        _ => Err(format!("no {who} in {name}")),
    }
}

fn run(heap: &mut impl Alloc, kind: Kind, count: usize, live: usize) -> Result<(), String> {
    match kind {
        Kind::History(size, order) => history(heap, size, order, count),
        Kind::Aligned => aligned(heap, count, false),
        Kind::Holes => aligned(heap, count, true),
        Kind::Churn(most) => churn(heap, most, count, live),
        Kind::Reuse(size) => reuse(heap, size, count),
        Kind::Threads | Kind::Slices => Ok(()),
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
                work(&format!("{}:{}", case.name, who.key), 1, 0).unwrap_or_else(|why| panic!("{}: {why}", case.name));
            }
        }
        assert!(work("4-ordered:nobody", 1, 1).is_err());
        assert!(work("nothing:ours", 1, 1).is_err());
    }
}
