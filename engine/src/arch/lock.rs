//! # Locks
//!
//! [`Lock`]: a value behind a futex mutex of one word.
//!
//! | state | meaning |
//! |---|---|
//! | 0 | free |
//! | 1 | held |
//! | 2 | held, somebody may sleep |
//!
//! A fork finds all of them free, but those that frames of its own thread hold (see [`super::gate`]).
//!
//! [`Owned`]: a lock that knows its owner, so that a signal's handler passes through what the frame below it holds. It
//! guards what forks and vforks change, whoever is interrupted; a thread outside the gate may take it.
//!
//! Ordering: taking is Acquire, releasing Release, which orders the guarded value.
//! Cost: uncontended one compare-and-swap and one swap; taken by [`Lock::lock_brief`] without the swap; by either of the elided ways, in a
//! process of one thread, none.
#![allow(unsafe_code)] // hands out the guarded value

use super::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use super::naps::Naps;
use super::sys;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED: u32 = 2;

/// A value behind a lock. In this order: a large value begins on the line of its lock.
#[derive(Debug)]
#[repr(C)]
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to the value.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// It is released by a store, unless somebody is seen to sleep.
    by_store: bool,
}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the value.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.wait(|| sys::futex_wait(&self.state, WAITED));
        }
        Guard { lock: self, by_store: false }
    }

    /// As [`Lock::lock`], without a locked instruction while the process has one thread: nobody
    /// else can come between the load and the store, and a signal handler leaves the word as it
    /// found it. (A thread started by the C library, inside the section, would be waited for.)
    #[inline]
    pub fn lock_elided(&self) -> Guard<'_, T> {
        self.take_alone().unwrap_or_else(|| self.lock())
    }

    #[inline]
    fn take_alone(&self) -> Option<Guard<'_, T>> {
        if !sys::single_threaded() || self.state.load(Relaxed) != FREE {
            return None;
        }
        self.state.store(HELD, Relaxed);
        Some(Guard { lock: self, by_store: true })
    }

    /// As [`Lock::lock_elided`], for sections of some ns, one after the other: released without a locked instruction. Who began to wait between
    /// the look and the store is not woken, and so looks again by himself. Whoever takes this lock takes it so.
    #[inline]
    pub fn lock_brief(&self) -> Guard<'_, T> {
        if let Some(guard) = self.take_alone() {
            return guard;
        }
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            let mut naps = Naps::for_ever();
            self.wait(|| sys::futex_wait_for(&self.state, WAITED, naps.longer()));
        }
        Guard { lock: self, by_store: true }
    }

    /// The value if nobody holds it now.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).ok()?;
        Some(Guard { lock: self, by_store: false })
    }

    /// Takes a contended lock; `sleep` waits for the word to be another than [`WAITED`].
    #[cold]
    #[inline(never)]
    fn wait(&self, mut sleep: impl FnMut()) {
        for _ in 0..100 {
            if self.state.load(Relaxed) == FREE && self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
                return;
            }
            core::hint::spin_loop();
        }
        // From now on somebody may sleep: the word says so until it is released.
        while self.state.swap(WAITED, Acquire) != FREE {
            sleep();
        }
    }

    fn release(&self) {
        if self.state.swap(FREE, Release) == WAITED {
            sys::futex_wake(&self.state, 1);
        }
    }

    /// Where the value is. Not to be read without a guard.
    pub fn as_ptr(&self) -> *const T {
        self.value.get()
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to the value.
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
        if self.by_store && self.lock.state.load(Relaxed) == HELD {
            self.lock.state.store(FREE, Release);
        } else {
            self.lock.release();
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Owned {
    /// The thread pointer of the thread that has it; 0: none.
    owner: AtomicUsize,
    /// Threads that want it sleep here for a while; it never changes.
    nap: AtomicU32,
}

/// The right to what an [`Owned`] guards.
#[derive(Debug)]
pub struct Held<'a> {
    lock: &'a Owned,
    through: bool,
}

impl Default for Owned {
    fn default() -> Self {
        Self::new()
    }
}

impl Owned {
    /// Nobody's.
    #[must_use]
    pub const fn new() -> Self {
        Self { owner: AtomicUsize::new(0), nap: AtomicU32::new(0) }
    }

    /// Waits for it, unless a frame of this thread has it.
    pub fn lock(&self) -> Held<'_> {
        let (me, mut naps) = (sys::thread_pointer(), Naps::for_ever());
        loop {
            match self.owner.compare_exchange(0, me, Acquire, Relaxed) {
                Ok(_) => return Held { lock: self, through: false },
                Err(owner) if owner == me => return Held { lock: self, through: true },
                Err(_) => sys::futex_wait_for(&self.nap, 0, naps.longer()),
            }
        }
    }

    /// The same if nobody has it now, not even a frame of this thread.
    pub fn try_lock(&self) -> Option<Held<'_>> {
        self.owner.compare_exchange(0, sys::thread_pointer(), Acquire, Relaxed).ok()?;
        Some(Held { lock: self, through: false })
    }

    /// In a forked child: whoever had it, unless this thread, is not here.
    pub fn inherit(&self) {
        if self.owner.load(Relaxed) != sys::thread_pointer() {
            self.owner.store(0, Relaxed);
        }
    }
}

impl Held<'_> {
    /// Whether a frame below has it, and may be in the middle of something.
    #[must_use]
    pub fn is_through(&self) -> bool {
        self.through
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.through {
            // (Not a store, which may wait in a buffer: others nap until they see it.)
            self.lock.owner.swap(0, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::tests::{in_a_single_child, sleeps_until};
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
    fn an_owner_passes_through_and_others_wait() {
        let (lock, count) = (Owned::new(), AtomicU32::new(0));
        let held = lock.lock();
        assert!(!held.is_through() && lock.lock().is_through() && lock.try_lock().is_none());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let held = lock.lock();
                assert!(!held.is_through());
                count.load(Relaxed)
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!other.is_finished());
            count.store(7, Relaxed);
            drop(held);
            assert_eq!(other.join().ok(), Some(7));
        });
        let held = lock.lock();
        lock.inherit();
        assert!(lock.lock().is_through());
        drop(held);
        std::thread::scope(|scope| _ = scope.spawn(|| core::mem::forget(lock.lock())));
        lock.inherit();
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_lock_is_held_from_its_taking_to_its_release() {
        std::thread::spawn(|| ()).join().unwrap();
        let lock = Lock::new(0);
        let is_held = || (lock.state.load(Relaxed), lock.try_lock().is_none());
        for way in 0..4 {
            let guard = match way {
                0 => lock.lock(),
                1 => lock.lock_elided(),
                3 => lock.lock_brief(),
                _ => lock.try_lock().unwrap(),
            };
            assert_eq!(guard.by_store, way == 3, "others may come");
            assert_eq!(is_held(), (HELD, true));
            drop(guard);
            assert_eq!(is_held(), (FREE, false));
        }
        assert!(core::ptr::eq(lock.as_ptr(), &raw const *lock.lock()));
        lock.wait(|| unreachable!());
        assert_eq!(is_held(), (HELD, true), "nobody sleeps");
        lock.release();
        in_a_single_child(|| {
            let lock = Lock::new(0);
            let guard = lock.lock_elided();
            assert!(guard.by_store && lock.state.load(Relaxed) == HELD && lock.try_lock().is_none());
            drop(guard);
            assert_eq!(lock.state.load(Relaxed), FREE);
        });
    }

    #[test]
    fn who_waits_sleeps_and_is_woken_also_by_one_who_was_alone() {
        for by_store in [false, true] {
            let lock = Lock::new(7);
            let guard = lock.lock();
            core::mem::forget(guard);
            let guard = Guard { lock: &lock, by_store };
            assert_eq!(sleeps_until(|| *lock.lock(), || drop(guard)), 7);
            assert_eq!(lock.state.load(Relaxed), FREE);
        }
    }

    /// One that was not seen to wait is not woken; it looks again.
    #[test]
    fn who_waits_for_what_is_brief_needs_no_wake() {
        let lock = Lock::new(0_u64);
        core::mem::forget(lock.lock_brief());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| *lock.lock_brief());
            while lock.state.load(Relaxed) != WAITED {
                std::thread::yield_now();
            }
            lock.state.store(FREE, Release);
            assert_eq!(waits.join().ok(), Some(0));
            for _ in 0..4 {
                scope.spawn(|| (0..100_000).for_each(|_| *lock.lock_brief() += 1));
            }
        });
        assert_eq!(*lock.lock_brief(), 400_000);
    }
}
