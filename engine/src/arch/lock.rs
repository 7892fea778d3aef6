//! # A lock that `fork` can hold
//!
//! A futex mutex of one word. Before a fork the forking thread takes every
//! lock of the engine and marks it [`FORK`] with its own thread pointer; until
//! the fork is over that thread (and nobody else) passes through, because
//! other libraries' fork handlers, which run between ours, call `malloc`.
//!
//! | state | meaning |
//! |---|---|
//! | 0 | free |
//! | 1 | held |
//! | 2 | held, somebody may sleep |
//! | 3 | held by a fork; `owner` passes through |
//!
//! Ordering: taking is Acquire, releasing Release, which orders the guarded value.
//! Cost: uncontended one compare-and-swap and one swap.
#![allow(unsafe_code)] // hands out the guarded value

use super::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use super::sys;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED: u32 = 2;
const FORK: u32 = 3;

/// A value behind a lock. In this order: a large value begins on the line of its lock.
#[derive(Debug)]
#[repr(C)]
pub struct Lock<T> {
    state: AtomicU32,
    owner: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to the value.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    through: bool,
    elided: bool,
}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), owner: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits for the value.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
            return Guard { lock: self, through: false, elided: false };
        }
        Guard { lock: self, through: self.wait(), elided: false }
    }

    /// As [`Lock::lock`], without a locked instruction while the process has one thread: nobody
    /// else can come between the load and the store, and a signal handler leaves the word as it
    /// found it. (A thread started by the C library, inside the section, would be waited for.)
    #[inline]
    pub fn lock_elided(&self) -> Guard<'_, T> {
        if sys::single_threaded() && self.state.load(Relaxed) == FREE {
            self.state.store(HELD, Relaxed);
            return Guard { lock: self, through: false, elided: true };
        }
        self.lock()
    }

    /// The value if nobody holds it now.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).ok()?;
        Some(Guard { lock: self, through: false, elided: false })
    }

    /// Takes a contended lock; true if the caller is the forking thread, which passes through.
    #[cold]
    #[inline(never)]
    fn wait(&self) -> bool {
        for _ in 0..100 {
            if self.state.load(Relaxed) == FREE && self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
                return false;
            }
            core::hint::spin_loop();
        }
        loop {
            match self.state.load(Acquire) {
                // Acquire above pairs with the Release of `mark`, so that `owner` is the fork's.
                FORK if self.owner.load(Relaxed) == sys::thread_pointer() => return true,
                FORK => sys::futex_wait(&self.state, FORK),
                // From now on somebody may sleep: the word says so until it is released.
                FREE => {
                    if self.state.compare_exchange(FREE, WAITED, Acquire, Relaxed).is_ok() {
                        return false;
                    }
                }
                seen => {
                    if seen == WAITED || self.state.compare_exchange(HELD, WAITED, Relaxed, Relaxed).is_ok() {
                        sys::futex_wait(&self.state, WAITED);
                    }
                }
            }
        }
    }

    fn release(&self) {
        if self.state.swap(FREE, Release) >= WAITED {
            sys::futex_wake(&self.state, u32::MAX >> 1);
        }
    }

    /// Before a fork: takes the lock and lets only this thread through. The only thread of
    /// a process that finds it held has interrupted itself (it forks in a signal handler):
    /// it goes on without, and its child may only do what a signal handler may.
    pub fn fork_begin(&self) {
        match self.try_lock() {
            Some(guard) => core::mem::forget(guard),
            None if sys::single_threaded() => return,
            None => core::mem::forget(self.lock()),
        }
        self.owner.store(sys::thread_pointer(), Relaxed);
        // A sleeper that set WAITED sleeps on until `fork_end` wakes all.
        self.state.store(FORK, Release);
    }

    /// Where the value is. Not to be read without a guard.
    pub fn as_ptr(&self) -> *const T {
        self.value.get()
    }

    /// Whether a fork holds it: to whoever has a guard, that it is the forking thread that passes through.
    pub fn is_forking(&self) -> bool {
        self.state.load(Relaxed) == FORK
    }

    /// After a fork, in the parent and in the child: free again.
    pub fn fork_end(&self) {
        if self.state.load(Relaxed) == FORK {
            self.owner.store(0, Relaxed);
            self.release();
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to the value. A forking thread that
        // passes through is the only one that can hold a guard meanwhile, and
        // the engine never takes a lock that it holds already.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.elided && self.lock.state.load(Relaxed) == HELD {
            self.lock.state.store(FREE, Release);
        } else if !self.through {
            self.lock.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    #[test]
    fn counts_under_contention() {
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 400_000);
    }

    #[test]
    fn the_forking_thread_passes_and_others_wait() {
        let lock = Lock::new(0_u64);
        lock.fork_begin();
        *lock.lock() += 1;
        *lock.lock() += 1;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| *lock.lock());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!other.is_finished());
            lock.fork_end();
            assert_eq!(other.join().ok(), Some(2));
        });
    }
}
