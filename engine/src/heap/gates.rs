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
//! Units: bytes, the largest size that passes; windows of addresses. Invariant: when nobody is at them, `others` is `small` or, where
//! `windows` is 0, 0. (Between two stores of who begins to serve others they may pass a gate that has just been shut; nobody shuts one for
//! good that was open.) Locks: none. Cost: a store or two.

use crate::arch::atomic::AtomicUsize;
use crate::arch::atomic::Ordering::{Release, SeqCst};

/// See the module.
#[derive(Debug)]
pub struct Gates {
    /// Sizes from 1 to this are the fast path's.
    pub(super) small: AtomicUsize,
    /// The same of the thread that the fallback favours (`cpu::bias`).
    pub(super) biased: AtomicUsize,
    /// As `small`, for others.
    pub(super) others: AtomicUsize,
    /// Windows below this are looked into for them.
    pub(super) windows: AtomicUsize,
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

    /// What each lets pass: `small`, `biased`, `others`, `windows`.
    #[cfg(any(test, allotment_models))]
    #[must_use]
    pub fn sizes(&self) -> [usize; 4] {
        [&self.small, &self.biased, &self.others, &self.windows].map(|gate| gate.load(SeqCst))
    }

    /// Sets the gate of others by the rest; also in a forked child, where who was at it is not. SeqCst, all: of two that each change one of the others and then come here the second sees both,
    /// and whoever stores here last has looked once more behind it.
    pub fn follow(&self) {
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
