//! # The door: how far a heap is
//!
//! ```text
//! Closed ──first request──► Opening ──another comes──► Awaited ──┬──► Open
//!    ▲                         └──────────────────────────────────┤
//!    └────────────────── without memory ─────────────────────────┘
//! ```
//! What opens it is [`super::open`]'s.
//!
//! Invariant: whoever sees [`State::Open`] sees all of the heap. Cost: a load.

use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicU32, AtomicUsize};
use crate::arch::sys;

/// How far a heap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    /// Nobody has asked, or there was no memory.
    Closed,
    /// Somebody opens it.
    Opening,
    /// It can be used.
    Open,
    /// Somebody opens it, and others sleep until it is done.
    Awaited,
}

/// Where threads wait for a heap to open.
#[derive(Debug)]
pub(super) struct Door {
    /// A [`State`]; a futex.
    pub(super) state: AtomicU32,
    /// The thread that is opening it.
    pub(super) opener: AtomicUsize,
}

impl Door {
    pub(super) const fn new() -> Self {
        Self { state: AtomicU32::new(State::Closed as u32), opener: AtomicUsize::new(0) }
    }
    pub(super) fn is(&self, state: State) -> bool {
        // Acquire: whoever sees it open sees all of it.
        self.state.load(Acquire) == state as u32
    }
    /// From one state to another; false if it was not that one.
    pub(super) fn turns(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u32, to as u32, Acquire, Relaxed).is_ok()
    }
    /// It is open, or cannot be opened.
    pub(super) fn end(&self, state: State) {
        // Release: whoever sees it open sees all of it.
        if self.state.swap(state as u32, Release) == State::Awaited as u32 {
            sys::futex_wake(&self.state, u32::MAX >> 1);
        }
    }
}
