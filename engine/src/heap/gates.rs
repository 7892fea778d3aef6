//! # The gates of the fast paths
//!
//! ```text
//! small    ► malloc                                   0 until the heap is open, while allocations are sampled or checked, in the fallback
//! biased   ► malloc, of the thread that the fallback favours                                  0 likewise, and where there are sequences
//! others   ► who asks by another name (C++'s `new`): `small` once he is served, else 0
//! windows  ► what he gives back (C++'s `delete`): all once he is served, else 0
//! ```
//! A fast path compares one word with what it is asked for, and goes on where that is less. So whether somebody is served at all costs
//! nothing: his gate is shut.
//!
//! Units: bytes, the largest size that passes; windows of addresses. Invariant: behind whoever changed one last, `others` is `small` or, where
//! `windows` is 0, 0. Locks: none. Cost: a store or two.

use crate::arch::atomic::AtomicUsize;
use crate::arch::atomic::Ordering::{Release, SeqCst};

/// See the module.
#[derive(Debug)]
pub struct Gates {
    /// Sizes from 1 to this are the fast path's.
    pub small: AtomicUsize,
    /// The same of the thread that the fallback favours (`cpu::bias`).
    pub biased: AtomicUsize,
    /// As `small`, for others.
    pub others: AtomicUsize,
    /// Windows below this are looked into for them.
    pub windows: AtomicUsize,
}

impl Default for Gates {
    fn default() -> Self {
        Self::new()
    }
}

impl Gates {
    /// Shut.
    #[must_use]
    pub const fn new() -> Self {
        let [small, biased, others, windows] = [const { AtomicUsize::new(0) }; 4];
        Self { small, biased, others, windows }
    }

    /// Opens or shuts (0) them.
    pub fn set(&self, small: usize, biased: usize) {
        // Release (and SeqCst, see `follow`): whoever passes a gate sees an open heap.
        self.small.store(small, SeqCst);
        self.biased.store(biased, Release);
        self.follow();
    }

    /// From now on others are served, and so many windows are.
    pub fn serve_others(&self, windows: usize) {
        // SeqCst: see `follow`.
        self.windows.store(windows, SeqCst);
        self.follow();
    }

    /// Sets the gate of others by the rest. SeqCst, all: of two that each change one of the others and then come here the second sees both,
    /// and whoever stores here last has looked once more behind it.
    fn follow(&self) {
        let wanted = || if self.windows.load(SeqCst) != 0 { self.small.load(SeqCst) } else { 0 };
        loop {
            let gate = wanted();
            self.others.store(gate, SeqCst);
            if wanted() == gate {
                break;
            }
        }
    }
}
