//! # What a worker of suite `malloc` does
//!
//! Only the C functions are called, through `libc`, so that whatever is
//! preloaded is what is measured; what they return goes through `black_box`.
//! One thread's part of a workload is a function of its number of operations.
//!
//! Unit of the result: ns per operation = wall time × CPUs busy / operations
//! of all threads, where CPUs busy = min(threads, CPUs). Peak memory is the
//! kernel's `VmHWM` of this process alone.
#![allow(unsafe_code)] // malloc and free, on pointers that one owner holds

use super::queue::Queue;
use crate::bench::rows::mib;
use crate::bench::suite::{Job, Metric, TWICE_CPUS, Work, lower, work};
use crate::bench::team::{Random, cpus, together};
use crate::bench::worker::sample;
use crate::proc::Status;
use allotment_engine::arch::PAGE;
use std::hint::black_box;
use std::time::Instant;

/// What is measured.
pub const METRICS: &[Metric] = &[lower("op", "ns/op"), lower("rss", "MiB")];

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Operations of one thread in a full run.
    ops: u64,
    /// Does that many (or a few more) and says how many it did.
    body: fn(&Team, usize, u64) -> u64,
}

const fn load(ops: u64, body: fn(&Team, usize, u64) -> u64) -> Load {
    Load { ops, body }
}

/// The loads. Full runs take 0.1 to 0.5 s each.
pub const WORKS: &[Work<Load>] = &[
    work("pair-64", "malloc(64) and free, one after the other", &[1, 2, TWICE_CPUS], &[], load(16_000_000, pair)),
    work("batch-1000", "1,000 × malloc(64), then 1,000 × free in the same order", &[1, 2], &[], load(8_000_000, batch)),
    work(
        "mixed",
        "replace a random one of 4,000 objects of 16 to 8,192 bytes",
        &[1, 2, TWICE_CPUS],
        &[],
        load(2_000_000, mixed),
    ),
    work(
        "pass",
        "malloc in one thread, free in another, 64 to 512 bytes",
        &[2, TWICE_CPUS],
        &[],
        load(1_500_000, pass),
    ),
    work(
        "churn",
        "as a server: threads come, inherit 1,000 objects, replace them, go",
        &[1, 2, TWICE_CPUS],
        &[],
        load(2_000_000, churn),
    ),
    work("realloc-half", "grow a block from 4 KiB to 64 MiB by half, touching it", &[1], &[], load(200, grow_half)),
    work("realloc-4k", "grow a block from 4 KiB to 64 MiB by 4 KiB, touching it", &[1], &[], load(49_149, grow_page)),
    work(
        "large-64k",
        "malloc(64 KiB), touch one page, free",
        &[1, 2],
        &[],
        load(300_000, |_, _, ops| large(ops, 64 << 10, false)),
    ),
    work(
        "large-64k-all",
        "malloc(64 KiB), touch all pages, free",
        &[1, 2],
        &[],
        load(100_000, |_, _, ops| large(ops, 64 << 10, true)),
    ),
    work(
        "large-1m",
        "malloc(1 MiB), touch one page, free",
        &[1, 2],
        &[],
        load(60_000, |_, _, ops| large(ops, 1 << 20, false)),
    ),
    work(
        "large-1m-all",
        "malloc(1 MiB), touch all pages, free",
        &[1, 2],
        &[],
        load(2_000, |_, _, ops| large(ops, 1 << 20, true)),
    ),
    work(
        "large-32m",
        "malloc(32 MiB), touch one page, free",
        &[1],
        &[],
        load(10_000, |_, _, ops| large(ops, 32 << 20, false)),
    ),
    work(
        "large-32m-all",
        "malloc(32 MiB), touch all pages, free",
        &[1],
        &[],
        load(40, |_, _, ops| large(ops, 32 << 20, true)),
    ),
    work(
        "calloc-small",
        "replace a random one of 4,000 zeroed objects of 16 to 2,048 bytes",
        &[1, 2],
        &[],
        load(2_000_000, calloc_small),
    ),
    work("calloc-256k", "calloc(256 KiB), read every page, free", &[1], &[], load(10_000, calloc_large)),
];

/// Does a job.
pub fn run(job: &Job) -> Result<(), String> {
    let load = job.find(WORKS)?.kind;
    let ops = job.part(load.ops, 1);
    let team = Team::new(job.threads);
    // Every thread warms up alone, then all start together.
    let parts = together(job.threads, |number, start| {
        (load.body)(&team, number, ops / 20 + 1);
        start.wait();
        // Each thread reads the clock itself: a thread that only watched
        // could wake after the work is done, and would call it free.
        let began = Instant::now();
        let done = (load.body)(&team, number, ops);
        Part { began, ended: Instant::now(), done }
    })?;
    let (wall, total) = whole(&parts);
    let busy = job.threads.min(cpus()) as f64;
    let peak = Status::of(std::process::id()).map_or(0, |status| status.peak);
    sample("op", wall * busy / total.max(1) as f64);
    sample("rss", mib(peak));
    Ok(())
}

/// One thread's part of a run.
struct Part {
    began: Instant,
    ended: Instant,
    done: u64,
}

/// Nanoseconds from the first beginning to the last end, and all operations.
fn whole(parts: &[Part]) -> (f64, u64) {
    let first = parts.iter().map(|part| part.began).min();
    let last = parts.iter().map(|part| part.ended).max();
    let wall = first.zip(last).map_or(0, |(first, last)| last.duration_since(first).as_nanos());
    (wall as f64, parts.iter().map(|part| part.done).sum())
}

/// What threads share: one queue for each pair of neighbours.
struct Team {
    queues: Vec<Queue>,
}

impl Team {
    fn new(threads: usize) -> Self {
        Self { queues: (0..threads.div_ceil(2)).map(|_| Queue::new()).collect() }
    }
}

/// A pointer from malloc; the value has one owner at a time.
type Object = *mut libc::c_void;

fn malloc(bytes: usize) -> Object {
    // SAFETY: any size may be asked for.
    let object = black_box(unsafe { libc::malloc(black_box(bytes)) });
    assert!(!object.is_null(), "out of memory");
    object
}

/// Gives an object back, or nothing if it is null.
fn free(object: Object) {
    // SAFETY: `object` is null or came from the C allocator, and its only owner gives it away.
    unsafe { libc::free(black_box(object)) }
}

/// Writes one byte at `at`, which lies inside the object.
fn touch(object: Object, at: usize) {
    // SAFETY: every caller stays below the size that it asked for.
    unsafe { object.cast::<u8>().add(at).write_volatile(1) }
}

fn pair(_: &Team, _: usize, ops: u64) -> u64 {
    for _ in 0..ops {
        let object = malloc(64);
        touch(object, 0);
        free(object);
    }
    ops
}

fn batch(_: &Team, _: usize, ops: u64) -> u64 {
    const BATCH: u64 = 1000;
    let mut objects = [std::ptr::null_mut(); BATCH as usize];
    let rounds = ops.div_ceil(BATCH);
    for _ in 0..rounds {
        for object in &mut objects {
            *object = malloc(64);
            touch(*object, 0);
        }
        for object in objects {
            free(object);
        }
    }
    rounds * BATCH
}

/// Sizes from 16 to 16 << `doublings`, every doubling equally often.
fn size(random: &mut Random, doublings: usize) -> usize {
    let base = 16_usize << random.below(doublings);
    base + 1 + random.below(base)
}

fn mixed(_: &Team, number: usize, ops: u64) -> u64 {
    const LIVE: usize = 4000;
    let mut random = Random::new(number as u64);
    let mut objects = vec![std::ptr::null_mut(); LIVE];
    for _ in 0..ops {
        let at = random.below(LIVE);
        free(objects[at]);
        objects[at] = malloc(size(&mut random, 9));
        touch(objects[at], 0);
    }
    objects.into_iter().for_each(free);
    ops
}

fn calloc_small(_: &Team, number: usize, ops: u64) -> u64 {
    const LIVE: usize = 4000;
    let mut random = Random::new(number as u64);
    let mut objects: Vec<Object> = vec![std::ptr::null_mut(); LIVE];
    for _ in 0..ops {
        let at = random.below(LIVE);
        free(objects[at]);
        // SAFETY: any size may be asked for.
        objects[at] = black_box(unsafe { libc::calloc(1, black_box(size(&mut random, 7))) });
        touch(objects[at], 0);
    }
    objects.into_iter().for_each(free);
    ops
}

fn calloc_large(_: &Team, _: usize, ops: u64) -> u64 {
    const BYTES: usize = 256 << 10;
    for _ in 0..ops {
        // SAFETY: any size may be asked for; the reads stay inside.
        let (object, sum) = unsafe {
            let object = black_box(libc::calloc(1, black_box(BYTES)));
            assert!(!object.is_null(), "out of memory");
            let read = |at| u64::from(object.cast::<u8>().add(at).read_volatile());
            (object, (0..BYTES).step_by(PAGE).map(read).sum::<u64>())
        };
        assert_eq!(sum, 0, "calloc gave memory that is not zero");
        // The next one must be cleared again.
        touch(object, BYTES / 2);
        free(object);
    }
    ops
}

fn large(ops: u64, bytes: usize, all: bool) -> u64 {
    for _ in 0..ops {
        let object = malloc(bytes);
        let until = if all { bytes } else { 1 };
        (0..until).step_by(PAGE).for_each(|at| touch(object, at));
        free(object);
    }
    ops
}

/// Grows blocks to 64 MiB by `step` until `ops` reallocs are done.
fn grow(ops: u64, step: fn(usize) -> usize) -> u64 {
    const MOST: usize = 64 << 20;
    let mut done = 0;
    while done < ops {
        let mut bytes = PAGE;
        let mut object = malloc(bytes);
        touch(object, 0);
        while bytes < MOST && done < ops {
            let more = step(bytes).min(MOST);
            // SAFETY: `object` is ours and is replaced by what comes back.
            object = black_box(unsafe { libc::realloc(object, black_box(more)) });
            assert!(!object.is_null(), "out of memory");
            (bytes..more).step_by(PAGE).for_each(|at| touch(object, at));
            bytes = more;
            done += 1;
        }
        free(object);
    }
    done
}

fn grow_half(_: &Team, _: usize, ops: u64) -> u64 {
    // 24 steps reach 64 MiB: whole growths only, for the last steps cost most.
    grow(ops.next_multiple_of(24), |bytes| bytes + bytes / 2)
}

fn grow_page(_: &Team, _: usize, ops: u64) -> u64 {
    // 16,383 steps reach 64 MiB: whole growths here too, quick runs included.
    grow(ops.next_multiple_of(16_383), |bytes| bytes + PAGE)
}

/// Even threads make, odd ones free; both count half of each object.
fn pass(team: &Team, number: usize, ops: u64) -> u64 {
    let queue = &team.queues[number / 2];
    if number.is_multiple_of(2) {
        let mut random = Random::new(number as u64);
        let mut known = queue.seen_head();
        for _ in 0..ops {
            let object = malloc(64 + random.below(449));
            touch(object, 0);
            queue.put(object, &mut known);
        }
        ops
    } else {
        let mut known = queue.own_head();
        for _ in 0..ops {
            let object = queue.take(&mut known);
            touch(object, 1);
            free(object);
        }
        0
    }
}

/// Objects that one generation of threads leaves to the next.
struct Heirloom(Vec<Object>);

// SAFETY: the objects are plain memory, and the vector has one owner at a time.
unsafe impl Send for Heirloom {}

fn churn(_: &Team, number: usize, ops: u64) -> u64 {
    const LIVE: usize = 1000;
    const LIFE: u64 = 10_000;
    let mut random = Random::new(number as u64);
    let mut heirloom = Heirloom((0..LIVE).map(|_| malloc(size(&mut random, 6))).collect());
    let generations = ops.div_ceil(LIFE);
    for generation in 0..generations {
        let seed = number.wrapping_mul(7919).wrapping_add(generation as usize);
        let born = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let mut heirloom = heirloom;
            let objects = &mut { &mut heirloom }.0;
            let mut random = Random::new(seed as u64);
            for _ in 0..LIFE {
                let at = random.below(LIVE);
                free(objects[at]);
                objects[at] = malloc(size(&mut random, 6));
                touch(objects[at], 0);
            }
            heirloom
        });
        heirloom = born.expect("a thread").join().expect("it ends");
    }
    heirloom.0.into_iter().for_each(free);
    generations * LIFE
}

/// Runs every load small, in this process, whatever its malloc is.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_does_what_it_was_asked() {
        for work in WORKS {
            let threads = if work.name == "pass" { 2 } else { 1 };
            let (load, team) = (work.kind, Team::new(threads));
            let ops = (load.ops / 2000).max(1);
            let done = together(threads, |number, _| (load.body)(&team, number, ops)).expect("no panic");
            assert!(done.iter().sum::<u64>() >= ops, "{}", work.name);
        }
    }

    #[test]
    fn time_is_from_the_first_beginning_to_the_last_end() {
        let zero = Instant::now();
        let at = |ns| zero + std::time::Duration::from_nanos(ns);
        let parts = [Part { began: at(10), ended: at(50), done: 3 }, Part { began: at(20), ended: at(90), done: 4 }];
        assert_eq!(whole(&parts), (80.0, 7));
    }

    #[test]
    fn sizes_stay_in_their_range() {
        let mut random = Random::new(3);
        assert!((0..10_000).map(|_| size(&mut random, 9)).all(|size| (17..=8192).contains(&size)));
    }
}
