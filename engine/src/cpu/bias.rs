//! # The bias: in the fallback one thread has the sets to itself
//!
//! ```text
//! owner    0                       nobody has: who uses a set takes its lock
//!          thread                  that thread uses its set without a lock
//!          thread | GOING          being taken away: nobody uses a set until the owner has been seen outside
//!          thread | GOING, FENCED  likewise, behind the barrier: a look at `inside` tells
//!          thread | GOING, DENIED  likewise, and the system gives no barrier: the owner itself makes an end when it comes
//!
//! the owner:  inside := 1 ──► still the owner? ──► slot, set, one store that commits ──► inside := 0
//! another:    owner |= GOING ────┐
//! a drain:    slot := other set ─┴► barrier of all CPUs ──► inside = 0? ──► what was there is nobody's, or the drainer's
//! ```
//! The barrier (membarrier, a plain one) stands for the fence between the owner's store and its loads: after it, either the owner's
//! `inside` is seen, or the owner sees what was stored before. So the owner pays no locked instruction, as with sequences.
//!
//! As a rule the owner itself gives it up, at an allocation of the C library's for the second thread, and nobody needs a barrier.
//! Once gone it is never given again. A thread of ours beside a program of one thread does not take it: it goes past the sets.
//! So does a handler that interrupts the owner inside, and whoever finds the bias on its way.
//!
//! Invariant: only the owner writes `inside`. Nobody waits for the owner but a fence, for a moment: it may be stopped, or in a
//! handler that waits for others. Locks: none. Cost: inside and out two stores and four loads; taking it away 1–10 µs, once.

use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::arch::atomic::{AtomicU32, AtomicUsize, compiler_fence};
use crate::arch::operands::INDICES;
use crate::arch::sys;

/// See the module. (No bits of a thread's pointer: those are aligned.)
const GOING: usize = 1;
/// As above.
const FENCED: usize = 2;
/// As above.
const DENIED: usize = 4;
const FLAGS: usize = GOING | FENCED | DENIED;
/// Naps that a fence waits for the owner to come out.
const NAPS: u32 = 8;
/// ns of one.
const NAP: u64 = 50_000;

/// See the module. Nobody's at first; zero bytes.
#[derive(Debug)]
pub struct Bias {
    owner: AtomicUsize,
    /// 1 while the owner is inside.
    inside: AtomicU32,
    /// Those who wait for the owner sleep here for a while; it never changes.
    nap: AtomicU32,
    /// The index whose set is the owner's, whatever CPU runs it.
    index: AtomicUsize,
}

/// The owner is inside, until this is dropped.
#[derive(Debug)]
pub struct Inside<'a>(&'a Bias);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: whoever sees the owner outside sees what it did.
        self.0.inside.store(0, Release);
    }
}

impl Default for Bias {
    fn default() -> Self {
        Self::new()
    }
}

impl Bias {
    /// Nobody's.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            owner: AtomicUsize::new(0),
            inside: AtomicU32::new(0),
            nap: AtomicU32::new(0),
            index: AtomicUsize::new(0),
        }
    }

    /// Makes the calling thread the owner, of the set of `index`. Nobody uses a set yet, and barriers work.
    ///
    /// # Panics
    /// There is no such index: the owner's fast path does not look.
    pub fn grant(&self, index: usize) {
        assert!(index < INDICES, "{index} is no index");
        self.index.store(index, Relaxed);
        // Relaxed: whoever comes later is started by this thread, or waits until the heap is open.
        self.owner.store(sys::thread_pointer(), Relaxed);
    }

    /// Whether a thread was made the owner, and nobody has taken that away.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        let owner = self.owner.load(Relaxed);
        owner != 0 && owner & FLAGS == 0
    }

    /// Whether the calling thread is the owner.
    #[inline]
    #[must_use]
    pub fn is_mine(&self) -> bool {
        // Relaxed: no other thread writes or takes away this one's name unseen (see `enter`).
        self.owner.load(Relaxed) == sys::thread_pointer()
    }

    /// The same while it is taken away, too.
    #[must_use]
    pub fn was_mine(&self) -> bool {
        self.owner.load(Relaxed) & !FLAGS == sys::thread_pointer()
    }

    /// The owner's index.
    #[inline]
    #[must_use]
    pub fn index(&self) -> usize {
        self.index.load(Relaxed)
    }

    /// The owner goes inside, for one operation; `None` for every other thread, and where it is inside already.
    #[inline(always)]
    #[must_use]
    pub fn enter(&self) -> Option<Inside<'_>> {
        let me = sys::thread_pointer();
        // Relaxed: a thread that is not the owner reads some other name, whenever it looks.
        if self.owner.load(Relaxed) != me || self.inside.load(Relaxed) != 0 {
            return None;
        }
        self.inside.store(1, Relaxed);
        // For the processor the barrier of whoever takes away, or drains, stands here.
        compiler_fence(SeqCst);
        let inside = Inside(self);
        if self.owner.load(Relaxed) == me { Some(inside) } else { None }
    }

    /// Whether the calling thread may use sets, by the bias or under their locks; what it has not taken away yet it takes away by
    /// `barrier`, which says whether the system gave one.
    #[inline]
    pub fn allows(&self, barrier: impl FnOnce() -> bool) -> bool {
        // Acquire: what the owner did is seen.
        match self.owner.load(Acquire) {
            0 => true,
            owner => self.allows_me(owner, barrier),
        }
    }

    #[cold]
    fn allows_me(&self, owner: usize, barrier: impl FnOnce() -> bool) -> bool {
        if owner == sys::thread_pointer() {
            return self.inside.load(Relaxed) == 0;
        }
        if owner & FLAGS == 0 && sys::program_is_single() {
            return false;
        }
        self.take(barrier)
    }

    /// Takes the bias away; whether it is nobody's now.
    pub fn take(&self, barrier: impl FnOnce() -> bool) -> bool {
        let mut owner = self.owner.load(Acquire);
        if owner == 0 {
            return true;
        }
        if owner & !FLAGS == sys::thread_pointer() {
            // The owner's own end: it is outside, or this is a handler above it.
            return self.inside.load(Relaxed) == 0 && self.end();
        }
        if owner & GOING == 0 {
            // SeqCst, before the barrier: the owner sees it, or is seen inside.
            owner = match self.owner.compare_exchange(owner, owner | GOING, SeqCst, Acquire) {
                Ok(_) => owner | GOING,
                Err(now) => now,
            };
        }
        if owner & FLAGS == GOING {
            let fate = if barrier() { FENCED } else { DENIED };
            // SeqCst: who sees it is behind the barrier. (Who fails finds that another has said so, or that it is over.)
            let _ = self.owner.compare_exchange(owner, owner | fate, SeqCst, Relaxed);
            owner |= fate;
        }
        // Acquire pairs with the Release of `Inside`. (Whose bias ended meanwhile is outside.)
        owner == 0 || owner & FENCED != 0 && self.inside.load(Acquire) == 0 && self.end()
    }

    /// The owner is outside, and stays there.
    fn end(&self) -> bool {
        // Release: whoever finds it nobody's sees what the owner did.
        self.owner.store(0, Release);
        true
    }

    /// After it what the owner had begun is done and seen, and it sees what the caller had stored (before a full fence of its own); false
    /// if the system gives no barrier, or the owner does not come out. The caller is not the owner inside.
    pub fn fence(&self, barrier: impl FnOnce() -> bool) -> bool {
        // Acquire: a bias that is nobody's stays so, and what its owner did is seen.
        let owner = self.owner.load(Acquire);
        if owner == 0 || owner & !FLAGS == sys::thread_pointer() {
            return self.inside.load(Relaxed) == 0;
        }
        if owner & FENCED == 0 && !barrier() {
            return false;
        }
        for _ in 0..NAPS {
            // Acquire pairs with the Release of `Inside`.
            if self.inside.load(Acquire) == 0 {
                return true;
            }
            sys::futex_wait_for(&self.nap, 0, NAP);
        }
        false
    }

    /// In a forked child: an owner that is not here has left it.
    pub fn inherit(&self) {
        if !self.was_mine() {
            self.inside.store(0, Relaxed);
            self.owner.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
