//! # Flights: memory on its way to the system, and forks that wait for it
//!
//! ```text
//! queue (lock) ──take: a slice──► in flight: system calls, no lock ──settle──► down
//!                                 several threads, a slice each
//! fork: asks, waits until nothing flies, holds the queue ──► nobody takes a slice until it is over
//! ```
//! A slice in a thread's hand would be lost in a forked child, where that thread is not. So a slice is taken
//! from the queue under its lock and counted there, and a fork has the queue only while the count is 0. It waits
//! for what flies, not for what is queued: as long as it asks, nobody takes a slice but itself.
//!
//! Units: slices. Invariant: who holds the queue as a fork knows that nobody else has a slice. Locks: the queue's,
//! after `Reclaim::purging`, held for loads and stores. Cost: the lock and two locked instructions for a slice.

use crate::arch::atomic::AtomicU32;
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::lock::{Guard, Lock};
use crate::arch::sys;

/// ns between two looks of a fork, and of who lets it go first.
const LOOK: u64 = 50_000;

/// A queue and what was taken from it.
#[derive(Debug)]
pub struct Flights<T> {
    queue: Lock<T>,
    flying: AtomicU32,
    /// Whether a fork wants the queue or has it.
    asked: AtomicU32,
}

/// A slice in a thread's hand.
#[derive(Debug)]
pub struct Flight<'a> {
    flying: &'a AtomicU32,
}

impl<T> Flights<T> {
    /// Nothing flies.
    #[must_use]
    pub const fn new(queue: T) -> Self {
        Self { queue: Lock::new(queue), flying: AtomicU32::new(0), asked: AtomicU32::new(0) }
    }

    /// The queue, to look at or to put something on; what is taken under this guard alone must not leave it.
    pub fn lock(&self) -> Guard<'_, T> {
        self.queue.lock()
    }

    /// Slices in flight; a look.
    pub fn flying(&self) -> u32 {
        self.flying.load(Relaxed)
    }

    /// Whether a fork waits for slices to land; a look.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Relaxed) != 0
    }

    /// Takes a slice, if `take` finds one.
    pub fn begin<R>(&self, take: impl FnOnce(&mut T) -> Option<R>) -> Option<(Flight<'_>, R)> {
        loop {
            let mut queue = self.queue.lock();
            // The fork's own thread passes through: it lands before it forks.
            if self.is_asked() && !self.queue.is_forking() {
                drop(queue);
                sys::futex_wait_for(&self.asked, 1, LOOK);
                continue;
            }
            let slice = take(&mut queue)?;
            // Relaxed: a fork reads it with the queue in its hand.
            self.flying.fetch_add(1, Relaxed);
            return Some((Flight { flying: &self.flying }, slice));
        }
    }

    /// Before a fork: nothing flies, and nobody else takes a slice until [`Flights::fork_end`]. One fork at a time
    /// (the caller has `Reclaim::purging`). The only thread of a process that finds a slice in flight has
    /// interrupted itself, as in `Lock::fork_begin`.
    pub fn fork_begin(&self) {
        self.asked.store(1, Relaxed);
        loop {
            self.queue.fork_begin();
            // Acquire: what was settled in flight is seen, and copied to the child.
            let flying = self.flying.load(Acquire);
            if flying == 0 || sys::single_threaded() {
                return;
            }
            self.queue.fork_end();
            sys::futex_wait_for(&self.flying, flying, LOOK);
        }
    }

    /// After a fork, in the parent and in the child.
    pub fn fork_end(&self) {
        self.asked.store(0, Relaxed);
        self.queue.fork_end();
        sys::futex_wake(&self.asked, u32::MAX >> 1);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        // Release: pairs with the fork's Acquire.
        self.flying.fetch_sub(1, Release);
    }
}
