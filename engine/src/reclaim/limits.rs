//! # Limits: what the heap may have
//!
//! ```text
//! 0                                    7/8 soft      soft             hard
//! ├── in use, cached, metadata ──┬── free ──┤·····································┤
//!                                └─ at most 1/16 of soft, less as it comes near ┘ └─ ENOMEM
//! ```
//! Limited is what the heap has and what may be resident ([`Board::held`](crate::stat::Board::held)): areas in use and
//! lazy, pages that slabs, page lists and the program have, free dirty pages, chunks of metadata. Not address space, not
//! what is clean, no descriptors of pages (less than a hundredth of them), no per-CPU memory and no counters.
//!
//! | knob | what is done | by whom | how often |
//! |---|---|---|---|
//! | `soft_limit` | what may stay free is at most [`room`] | whoever purges | as any limit of [`super`] |
//! | | in use, cached and metadata alone pass 7/8: all caches are drained, barns keep nothing | slow paths, the keeper | rests [`RESTS`] times as long as it took, [`PERIOD`] ticks at least |
//! | `hard_limit` | a request that would pass it drains and purges all, and is tried once more | that request | the same rest for drains that would find less than a [`LEAST`]th; what is known to be free, always |
//! | | then it is refused | | |
//!
//! Fast paths know nothing of this: a limit is looked at where memory is taken from a zone or from free address space.
//! What passes a hard limit is what takes memory at the same moment from different places: a refill of a page list (of
//! `sheaf_bytes`, or one block) for each node. Areas are exact: two at once are both refused rather than both granted.
//!
//! Nothing here but the reading of the limits opens a file or waits for an answer: it runs inside `malloc`.
//!
//! Units: bytes, ticks. Locks: [`Reclaim::lock`](super::Reclaim::lock) for what is done, with nothing else held; the state here is a heuristic.
//! Cost: some ten loads where a limit is set.

use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicU32, AtomicU64};
use crate::cache::near;

/// Drains for a limit rest so many times as long as the last one took: they take a 17th of the time at most.
const RESTS: u64 = 16;
/// Ticks from one drain for the soft limit to the next, at least: some 16 ms.
const PERIOD: u64 = 1 << 25;
/// One part in this many of the soft limit may be free and resident.
const SHARE: u64 = 16;
/// And one part in this many always may: less is not worth a purge, nor, of the hard limit, a drain that rests.
const LEAST: u64 = 128;

/// Bytes that may be free and resident under a soft limit, with so many bytes in use.
#[must_use]
pub fn room(soft: u64, busy: u64) -> u64 {
    near(soft).saturating_sub(busy).clamp(soft / LEAST, soft / SHARE)
}

/// What was done for the limits lately.
#[derive(Debug, Default)]
pub struct Limits {
    /// Ticks before which no slow path drains for the soft limit, and for the hard one.
    relieve: AtomicU64,
    squeeze: AtomicU64,
    /// Times that a request gave all back.
    squeezed: AtomicU32,
    /// Bytes that were free and resident after the last of them: what cannot be given back.
    left: AtomicU64,
    /// Bytes that caches had after the last drain for the hard limit: what cannot be drained.
    stayed: AtomicU64,
}

// (Relaxed, all: whoever acts on them holds the lock, or loses a turn.)
impl Limits {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            relieve: AtomicU64::new(0),
            squeeze: AtomicU64::new(0),
            squeezed: AtomicU32::new(0),
            left: AtomicU64::new(0),
            stayed: AtomicU64::new(0),
        }
    }
    /// Whether it is time to drain for the soft limit; true for one caller.
    pub fn relieves(&self, now: u64) -> bool {
        let next = self.relieve.load(Relaxed);
        now >= next && self.relieve.compare_exchange(next, now + PERIOD, Relaxed, Relaxed).is_ok()
    }
    /// That began at `start` and has ended.
    pub fn relieved(&self, start: u64, now: u64) {
        self.relieve.fetch_max(now + now.saturating_sub(start) * RESTS, Relaxed);
    }
    /// How often a request has given all back.
    pub fn squeezed(&self) -> u32 {
        self.squeezed.load(Relaxed)
    }
    /// Whether it is time to drain for a hard limit of `hard` bytes: at once where caches have much that they had not after the last
    /// drain (which takes long where others have the CPU, and would rest for seconds).
    pub fn squeezes(&self, now: u64, hard: u64, cached: impl FnOnce() -> u64) -> bool {
        now >= self.squeeze.load(Relaxed) || cached().saturating_sub(self.stayed.load(Relaxed)) > hard / LEAST
    }
    /// Whether a purge would find something of `free` bytes.
    pub fn finds(&self, free: u64) -> bool {
        free > self.left.load(Relaxed)
    }
    /// A drain for the hard limit began at `start` and has ended, and caches have `stayed` bytes still.
    pub fn drained(&self, start: u64, now: u64, stayed: u64) {
        self.squeeze.store(now + now.saturating_sub(start) * RESTS, Relaxed);
        self.stayed.store(stayed, Relaxed);
    }
    /// A request has given all back, and `left` bytes are free and resident still.
    pub fn end(&self, left: u64) {
        self.left.store(left, Relaxed);
        self.squeezed.fetch_add(1, Relaxed);
    }
    /// No drain rests any more: for tests, where one may have taken long because others had the CPU.
    #[cfg(test)]
    pub fn end_rest(&self) {
        self.squeeze.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_what_is_free_goes_towards_nothing() {
        let soft = 1 << 20;
        assert_eq!(room(soft, 0), soft / 16);
        assert_eq!(room(soft, soft / 8 * 7 - soft / 16), soft / 16);
        assert_eq!(room(soft, soft / 8 * 7 - soft / 32), soft / 32);
        for busy in [soft / 8 * 7, soft, soft * 2] {
            assert_eq!(room(soft, busy), soft / 128);
        }
        // What is free and what is not stay below the limit together, as long as the latter is not near it.
        for busy in (0..near(soft)).step_by(1000) {
            assert!(busy + room(soft, busy) < soft);
        }
    }

    #[test]
    fn drains_rest_as_long_as_they_pay() {
        let limits = Limits::new();
        assert!(Limits::new().relieves(0), "at the tick itself");
        assert!(limits.relieves(1) && !limits.relieves(1) && !limits.relieves(PERIOD));
        limits.relieved(1, 1 + PERIOD);
        assert!(!limits.relieves(PERIOD * 17) && limits.relieves(2 + PERIOD * 17));
        let squeezes = |now, cached| limits.squeezes(now, 1 << 20, || cached);
        assert!(squeezes(0, 0) && limits.finds(1) && !limits.finds(0));
        limits.drained(100, 200, 50);
        limits.end(500);
        assert!(!squeezes(1799, 0) && squeezes(1800, 0));
        assert!(!limits.finds(500) && limits.finds(501) && limits.squeezed() == 1);
        limits.end(0);
        assert!(!squeezes(1799, 0) && limits.finds(1) && limits.squeezed() == 2);
        // A 128th more than could not be drained is not left for that.
        assert!(!squeezes(300, (1 << 13) + 50) && squeezes(300, (1 << 13) + 51));
    }
}
