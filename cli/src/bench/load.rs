//! # Loads on the C functions
//!
//! ```text
//!   a suite's table of Load ──► run: threads warm up alone, start together, do it ──► op, rss, faults
//! ```
//! Only the C functions are called, through `libc`, so that whatever is preloaded is what is measured; what they return
//! goes through `black_box`. One thread's part of a load is a function of its number of operations. Everything that the
//! loads themselves keep lies in vectors that are made once.
//!
//! Units: ns per operation = wall time × CPUs busy / operations of all threads, where CPUs busy = min(threads, CPUs) (of
//! threads that sleep: their time on CPUs / operations); peak
//! memory is the kernel's `VmHWM` of this process alone; faults are the kernel's, per 1,000 operations, of the measured part.
#![allow(unsafe_code)] // malloc and free, on pointers that one owner holds

use super::queue::Queue;
use super::rows::mib;
use super::suite::{Case, Job, Metric, Setup, Suite, Work, lower};
use super::team::{Random, cpus, together};
use super::worker::{contenders, sample};
use crate::clock::thread_ns;
use crate::proc::Status;
use allotment_engine::arch::PAGE;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel};
use std::time::Instant;

/// What is measured.
pub const METRICS: &[Metric] = &[lower("op", "ns/op"), lower("rss", "MiB"), lower("faults", "1/1,000")];

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Operations of one thread in a full run.
    pub ops: u64,
    /// Does that many (or a few more) and says how many it did.
    pub body: fn(&Team, usize, u64) -> u64,
    /// Its threads sleep in between: what counts is their time on a CPU.
    pub sleeps: bool,
}

/// See [`Load`].
pub const fn load(ops: u64, body: fn(&Team, usize, u64) -> u64) -> Load {
    Load { ops, body, sleeps: false }
}

impl Load {
    /// Of threads that sleep in between.
    pub const fn sleeps(self) -> Self {
        Self { sleeps: true, ..self }
    }
}

/// The cases of a suite of loads: every peer's malloc in each.
pub fn cases(suite: Suite, works: &'static [Work<Load>], setup: &Setup) -> Vec<Case> {
    Case::of(works, |work, threads| contenders(suite, setup, work, threads))
}

/// What the threads of a load share.
#[derive(Debug)]
pub struct Team {
    /// How many there are.
    pub threads: usize,
    /// One from each of the first half to each of the second, and one for each pair of neighbours.
    pub queues: Vec<Queue>,
    /// Objects that whoever comes takes and replaces.
    pub shared: Vec<AtomicPtr<libc::c_void>>,
    /// Where all of them meet.
    pub meeting: Barrier,
}

impl Team {
    /// For so many.
    pub fn new(threads: usize) -> Self {
        let pairs = threads.div_ceil(2);
        Self {
            threads,
            queues: (0..pairs * pairs).map(|_| Queue::new()).collect(),
            shared: (0..20_000).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect(),
            meeting: Barrier::new(threads),
        }
    }
    /// Puts an object into a shared place; what was there is the caller's.
    pub fn exchange(&self, at: usize, object: Object) -> Object {
        // AcqRel: the object's bytes go to whoever takes it, and come from whoever put it.
        self.shared[at % self.shared.len()].swap(object, AcqRel)
    }
}

/// Does a job of a suite's table.
///
/// # Errors
/// There is no such case; a thread failed.
pub fn run(job: &Job, works: &'static [Work<Load>]) -> Result<(), String> {
    let load = job.find(works)?.kind;
    let ops = job.part(load.ops, 1);
    let team = Team::new(job.threads);
    // Every thread warms up (alone, unless its load needs others), then all start together.
    let parts = together(job.threads, |number, start| {
        (load.body)(&team, number, ops / 20 + 1);
        start.wait();
        let before = [faults(), thread_ns()];
        // Each thread reads the clock itself: a thread that only watched
        // could wake after the work is done, and would call it free.
        let began = Instant::now();
        let done = (load.body)(&team, number, ops);
        let ended = Instant::now();
        let cpu = thread_ns() - before[1];
        start.wait();
        Part { began, ended, cpu, done, faults: [before[0], faults()] }
    })?;
    let (wall, total) = whole(&parts);
    let busy = job.threads.min(cpus()) as f64;
    let peak = Status::of(std::process::id()).map_or(0, |status| status.peak);
    let first = parts.iter().map(|part| part.faults[0]).min().unwrap_or(0);
    let last = parts.iter().map(|part| part.faults[1]).max().unwrap_or(0);
    let cpu = parts.iter().map(|part| part.cpu as f64).sum();
    sample("op", if load.sleeps { cpu } else { wall * busy } / total.max(1) as f64);
    sample("rss", mib(peak));
    // (Whole ones: what a process of any history takes now and then says nothing.)
    sample("faults", ((last - first) as f64 * 1000.0 / total.max(1) as f64).round());
    Ok(())
}

/// Page faults of this process so far.
fn faults() -> u64 {
    // SAFETY: all-zero bytes are a valid rusage, and the kernel fills ours.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_minflt as u64
    }
}

/// One thread's part of a run.
struct Part {
    began: Instant,
    ended: Instant,
    /// ns on a CPU.
    cpu: u64,
    done: u64,
    faults: [u64; 2],
}

/// Nanoseconds from the first beginning to the last end, and all operations.
fn whole(parts: &[Part]) -> (f64, u64) {
    let first = parts.iter().map(|part| part.began).min();
    let last = parts.iter().map(|part| part.ended).max();
    let wall = first.zip(last).map_or(0, |(first, last)| last.duration_since(first).as_nanos());
    (wall as f64, parts.iter().map(|part| part.done).sum())
}

/// A pointer from malloc; the value has one owner at a time.
pub type Object = *mut libc::c_void;

/// `malloc` of a size that must be had.
pub fn malloc(bytes: usize) -> Object {
    // SAFETY: any size may be asked for.
    let object = black_box(unsafe { libc::malloc(black_box(bytes)) });
    assert!(!object.is_null(), "out of memory");
    object
}

/// Gives an object back, or nothing if it is null.
pub fn free(object: Object) {
    // SAFETY: `object` is null or came from the C allocator, and its only owner gives it away.
    unsafe { libc::free(black_box(object)) }
}

/// Writes one byte at `at`, which lies inside the object.
pub fn touch(object: Object, at: usize) {
    // SAFETY: every caller stays below the size that it asked for.
    unsafe { object.cast::<u8>().add(at).write_volatile(1) }
}

/// The byte at `at`, which lies inside the object.
pub fn look(object: Object, at: usize) -> u8 {
    // SAFETY: every caller stays below the size that it asked for, and the object was filled or zeroed.
    unsafe { object.cast::<u8>().add(at).read_volatile() }
}

/// Writes a byte into each page of the first `bytes`, which the object has.
pub fn touch_all(object: Object, bytes: usize) {
    (0..bytes).step_by(PAGE).for_each(|at| touch(object, at));
}

/// `realloc` to a size that must be had.
pub fn realloc(object: Object, bytes: usize) -> Object {
    // SAFETY: `object` is its only owner's, and is replaced by what comes back.
    let object = black_box(unsafe { libc::realloc(object, black_box(bytes)) });
    assert!(!object.is_null(), "out of memory");
    object
}

/// `calloc` of a size that must be had.
pub fn calloc(bytes: usize) -> Object {
    // SAFETY: any size may be asked for.
    let object = black_box(unsafe { libc::calloc(1, black_box(bytes)) });
    assert!(!object.is_null(), "out of memory");
    object
}

/// Sizes from 16 to 16 << `doublings`, every doubling equally often.
pub fn size(random: &mut Random, doublings: usize) -> usize {
    let base = 16_usize << random.below(doublings);
    base + 1 + random.below(base)
}

/// Replaces a random one of `live` objects, `ops` times; each of a size that `size` chooses, its first byte written.
pub fn replace(live: usize, number: usize, ops: u64, size: impl Fn(&mut Random) -> usize) -> u64 {
    replace_with(live, number, ops, size, |object, _| touch(object, 0))
}

/// The same, and `with` every new object and its size something is done.
pub fn replace_with(
    live: usize,
    number: usize,
    ops: u64,
    size: impl Fn(&mut Random) -> usize,
    with: impl Fn(Object, usize),
) -> u64 {
    let mut random = Random::new(number as u64);
    let mut objects = vec![std::ptr::null_mut(); live];
    for _ in 0..ops {
        let at = random.below(live);
        free(objects[at]);
        let bytes = size(&mut random);
        objects[at] = malloc(bytes);
        with(objects[at], bytes);
    }
    objects.into_iter().for_each(free);
    ops
}

/// Objects that one thread leaves to another.
pub struct Heirloom(pub Vec<Object>);

// SAFETY: the objects are plain memory, and the vector has one owner at a time.
unsafe impl Send for Heirloom {}

/// Runs every load small, in this process, whatever its malloc is.
#[cfg(test)]
pub mod tests {
    use super::*;

    /// Each load of a table does at least what it was asked.
    pub fn all_do(works: &'static [Work<Load>]) {
        for work in works {
            let threads = if work.threads.contains(&1) { 1 } else { 2 };
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
        let part = |began, ended, done| Part { began: at(began), ended: at(ended), cpu: 0, done, faults: [0, 0] };
        assert_eq!(whole(&[part(10, 50, 3), part(20, 90, 4)]), (80.0, 7));
    }

    #[test]
    fn sizes_stay_in_their_range() {
        let mut random = Random::new(3);
        assert!((0..10_000).map(|_| size(&mut random, 9)).all(|size| (17..=8192).contains(&size)));
    }
}
