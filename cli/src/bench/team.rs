//! # Threads that measure together
//!
//! Who begins when, on which CPU, by which clock; and the same random numbers for everybody.
#![allow(unsafe_code)] // affinity, priority

use crate::clock::thread_ns;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Where threads wait for each other, as often as they like, to begin together.
#[derive(Debug)]
pub struct Start {
    threads: usize,
    /// Each has a CPU.
    have_cpus: bool,
    barrier: Barrier,
    /// Threads that came through, of all times.
    awake: AtomicUsize,
}

impl Start {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads, have_cpus: threads <= cpus(), barrier: Barrier::new(threads), awake: AtomicUsize::new(0) }
    }

    /// Waits for all; where each has a CPU until all are awake, too: to wake a CPU that sleeps takes up to a millisecond, which is none
    /// of what is measured.
    pub fn wait(&self) {
        self.barrier.wait();
        let number = self.awake.fetch_add(1, Relaxed) + 1;
        if self.have_cpus {
            let all = number.next_multiple_of(self.threads);
            while self.awake.load(Relaxed) < all {
                std::hint::spin_loop();
            }
        }
    }
}

/// Runs `part` on so many threads, which know their number; what each answers, in that order. They begin together where
/// they wait at the start.
///
/// # Errors
/// A thread panicked.
pub fn together<T: Send>(threads: usize, part: impl Fn(usize, &Start) -> T + Sync) -> Result<Vec<T>, String> {
    let start = Start::new(threads);
    std::thread::scope(|scope| {
        let (start, part) = (&start, &part);
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || part(thread, start))).collect();
        handles.into_iter().map(|handle| handle.join().map_err(|_| "a thread failed".to_owned())).collect()
    })
}

/// How many CPUs so many threads keep busy, for each of them: what wall time is multiplied by.
pub fn share(threads: usize) -> f64 {
    threads.min(cpus()) as f64 / threads as f64
}

/// ns for each of `count`, by the wall and by this thread's clock.
///
/// # Errors
/// What was done failed.
pub fn timed(count: usize, what: impl FnOnce() -> Result<(), String>) -> Result<[f64; 2], String> {
    let cpu = thread_ns();
    let began = Instant::now();
    what()?;
    let wall = began.elapsed();
    let cpu = thread_ns() - cpu;
    Ok([wall.as_nanos() as f64 / count as f64, cpu as f64 / count as f64])
}

/// A bit for each CPU that Linux can have (`libc::cpu_set_t` ends at 1,024, and the kernel refuses less than it has).
type Mask = [u64; 8192 / 64];

/// The CPUs that the calling thread may run on.
pub fn allowed() -> Vec<usize> {
    let mut allowed: Mask = [0; 8192 / 64];
    // SAFETY: a set of ours, for the calling thread; a refusal leaves it empty.
    unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), (&raw mut allowed).cast()) };
    (0..size_of_val(&allowed) * 8).filter(|&cpu| allowed[cpu / 64] >> (cpu % 64) & 1 == 1).collect()
}

/// Keeps the calling thread on one CPU; whether it may be.
pub fn pin(cpu: usize) -> bool {
    let mut one: Mask = [0; 8192 / 64];
    one[cpu / 64] |= 1 << (cpu % 64);
    // SAFETY: a set of ours, for the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of_val(&one), (&raw const one).cast()) == 0 }
}

/// Keeps the calling thread on the `number`th CPU that it may use (they are taken in turn), so that threads that are to
/// meet do not take turns on one. A refusal costs meetings only.
pub fn stay(number: usize) {
    let cpus = allowed();
    if let Some(&cpu) = cpus.get(number % cpus.len().max(1)) {
        pin(cpu);
    }
}

/// The number of the CPU that runs us.
pub fn this_cpu() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::sched_getcpu() }.max(0) as usize
}

/// Other programs have to wait, if that is allowed.
pub fn hurry() {
    // SAFETY: a number of this process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) };
}

/// xorshift: the same numbers for every contender.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Another sequence for each seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    /// Below `bound`.
    #[inline(always)]
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
    /// Into any order.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for at in (1..values.len()).rev() {
            values.swap(at, self.below(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_answer_in_their_order() {
        let answers = together(3, |thread, start| {
            start.wait();
            thread * 2
        });
        assert_eq!(answers, Ok(vec![0, 2, 4]));
        // Again and again: none is a turn ahead.
        let turns = AtomicUsize::new(0);
        let threads = cpus().min(3);
        let ahead = together(threads, |_, start| {
            (0..100).all(|turn| {
                start.wait();
                let before = turns.fetch_add(1, Relaxed);
                start.wait();
                before / threads == turn
            })
        });
        assert_eq!(ahead, Ok(vec![true; threads]));
        assert!(together(2, |thread, _| assert_eq!(thread, 0, "on purpose")).is_err());
    }

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let cpus = allowed();
        std::thread::spawn(move || {
            stay(cpus.len() + 1);
            assert_eq!(allowed(), [cpus[1 % cpus.len()]]);
        })
        .join()
        .expect("it stays");
    }

    #[test]
    fn a_shuffle_loses_nothing() {
        let mut values: Vec<u32> = (0..100).collect();
        Random::new(3).shuffle(&mut values);
        assert!(values.windows(2).any(|two| two[0] > two[1]));
        values.sort_unstable();
        assert_eq!(values, (0..100).collect::<Vec<_>>());
    }
}
