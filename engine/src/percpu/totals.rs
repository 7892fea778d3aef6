//! # What all chunks of a space count together
//!
//! Exact numbers of pages, and of live allocations what chunks have folded ([`DRIFT`]); hints when to look for more of
//! them. Units: pages, allocations. Locks: none; relaxed words on lines of their own. Cost: a locked add where a page
//! becomes empty or is entered, and once in [`DRIFT`] allocations.

use crate::arch::atomic::{AtomicBool, AtomicIsize, AtomicUsize};

/// `live` is added to the space's number when it has moved further than this.
pub const DRIFT: u32 = 128;

/// A word on a line of its own with what changes with it.
#[derive(Debug)]
#[repr(align(64))]
struct Apart<T>(T);

/// What all chunks of a space count together. Allocations read what asks for a balance, once a page;
/// it does not lie with what they change.
#[derive(Debug)]
pub struct Totals {
    /// When a free asks for a balance. Set with the first chunk.
    pub empty_most: AtomicIsize,
    /// When an allocation does.
    pub empty_least: AtomicIsize,
    /// Something was parked since all chunks were last settled.
    pub parked: AtomicBool,
    empty: Apart<AtomicIsize>,
    live: Apart<(AtomicUsize, AtomicUsize)>,
}

impl Totals {
    /// Nothing.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            empty_most: AtomicIsize::new(0),
            empty_least: AtomicIsize::new(0),
            parked: AtomicBool::new(false),
            empty: Apart(AtomicIsize::new(0)),
            live: Apart((AtomicUsize::new(0), AtomicUsize::new(0))),
        }
    }
    /// Populated pages without an allocation (`nr_empty_pop_pages`).
    pub fn empty(&self) -> &AtomicIsize {
        &self.empty.0
    }
    /// Live allocations, less what chunks have not yet folded ([`DRIFT`] each at most, either way).
    pub fn live(&self) -> &AtomicUsize {
        &self.live.0.0
    }
    /// The most that `live` ever was.
    pub fn live_most(&self) -> &AtomicUsize {
        &self.live.0.1
    }
}

/// What allocations there were: how many, and the smallest and largest in bytes (0: none).
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Ever.
    pub allocs: u64,
    /// Smallest.
    pub smallest: u32,
    /// Largest.
    pub largest: u32,
}

impl Sizes {
    /// None.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { allocs: 0, smallest: 0, largest: 0 }
    }
    /// Adds those of a chunk.
    pub fn add(&mut self, allocs: u64, smallest: u32, largest: u32) {
        if allocs == 0 {
            return;
        }
        self.smallest = if self.allocs == 0 { smallest } else { self.smallest.min(smallest) };
        self.allocs += allocs;
        self.largest = self.largest.max(largest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_chunks_are_added_up() {
        let mut sizes = Sizes::new();
        let all = |sizes: &Sizes| (sizes.allocs, sizes.smallest, sizes.largest);
        // A chunk without an allocation has no smallest one.
        for (chunk, sum) in [
            ((0, u32::MAX, 0), (0, 0, 0)),
            ((3, 8, 20), (3, 8, 20)),
            ((0, u32::MAX, 0), (3, 8, 20)),
            ((2, 12, 16), (5, 8, 20)),
            ((1, 4, 4), (6, 4, 20)),
            ((1, 30, 30), (7, 4, 30)),
        ] {
            sizes.add(chunk.0, chunk.1, chunk.2);
            assert_eq!(all(&sizes), sum, "with {chunk:?}");
        }
    }
}
