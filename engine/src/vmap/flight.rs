//! # Flights: memory on its way to the system
//!
//! ```text
//! queue (lock) ──take: a slice──► in flight: system calls, no lock ──settle──► down
//!                                 several threads, a slice each
//! ```
//! A slice in a thread's hand would be lost in a forked child, where that thread is not. So that thread is inside the
//! heap's gate, or abroad, until the slice has landed, and a fork waits for it ([`crate::arch::gate`]). It waits for what flies, not for
//! what is queued: as long as one wants to be, purges end after their slice.
//!
//! Units: slices. Locks: the queue's, after `Reclaim::purging`, held for loads and stores. Cost: the lock and three locked
//! instructions for a slice.

use crate::arch::atomic::AtomicU32;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::settle;
use crate::arch::lock::{Guard, Lock};

/// A queue and what was taken from it.
#[derive(Debug)]
pub struct Flights<T> {
    queue: Lock<T>,
    flying: AtomicU32,
    /// Slices that were ever taken; wraps.
    begun: AtomicU32,
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
        Self { queue: Lock::new(queue), flying: AtomicU32::new(0), begun: AtomicU32::new(0) }
    }

    /// The queue, to look at or to put something on; what is taken under this guard alone must not leave it.
    pub fn lock(&self) -> Guard<'_, T> {
        self.queue.lock()
    }

    /// Slices in flight; a look.
    pub fn flying(&self) -> u32 {
        // (A child may inherit a frame whose slice it no longer counts.)
        self.flying.load(Relaxed).cast_signed().max(0).cast_unsigned()
    }

    /// Slices that were taken until now, and whether one flies: what is looked for between two looks that differ, or during a flight, may
    /// have been in somebody's hand.
    pub fn taken(&self) -> (u32, bool) {
        (self.begun.load(Relaxed), self.flying() > 0)
    }

    /// Takes a slice, if `take` finds one.
    pub fn begin<R>(&self, take: impl FnOnce(&mut T) -> Option<R>) -> Option<(Flight<'_>, R)> {
        let mut queue = self.queue.lock();
        let slice = take(&mut queue)?;
        // Under the lock: who finds the queue without it sees that it flies. Relaxed, as all here: for looks. (The gate orders
        // what a fork must see.)
        self.flying.fetch_add(1, Relaxed);
        self.begun.fetch_add(1, Relaxed);
        Some((Flight { flying: &self.flying }, slice))
    }

    /// In a forked child: nothing that threads of the parent had in hand will land.
    pub fn lose(&self) {
        settle!(self.flying, 0);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.flying.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flights_are_counted_until_they_land() {
        let flights = Flights::new(5);
        assert_eq!((flights.flying(), flights.taken()), (0, (0, false)));
        assert!(flights.begin(|_| None::<()>).is_none());
        assert_eq!((flights.flying(), flights.taken()), (0, (0, false)));
        let (one, taken) = flights.begin(|queue| Some(core::mem::replace(queue, 7))).expect("a slice");
        assert_eq!((taken, *flights.lock()), (5, 7));
        let (two, ()) = flights.begin(|_| Some(())).expect("a slice");
        assert_eq!((flights.flying(), flights.taken()), (2, (2, true)));
        drop(one);
        assert_eq!((flights.flying(), flights.taken()), (1, (2, true)));
        // In a child nothing lands but what its own frame had, which it no longer counts.
        flights.lose();
        assert_eq!((flights.flying(), flights.taken()), (0, (2, false)));
        drop(two);
        assert_eq!((flights.flying(), flights.taken()), (0, (2, false)));
    }
}
