//! # What an index allocates from
//!
//! The chunk that it has claimed, and where it has freed lately: parked allocations by size, holes by slot. Only places to
//! look at: chunks and bitmaps say whether it is still so. So all of it is relaxed, and a race loses a place and no memory.
//!
//! **Sheaves.** A chunk parks freed small allocations ([`super::chunk`]), and the index that freed one remembers where
//! (its claim), 16 of a size. The chunk is right and the claim may be wrong, so a race loses a place to look at and
//! no memory. Numbers are of the chunk, and count what is parked as free.
//!
//! Units: granules. Locks: none. Cost: some loads and stores on lines of its own.

use super::bitmap::FAR;
use super::chunk::{Chunk, GRANULE, PARK_MOST};
use super::slots::slot_of;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicPtr, AtomicU8, AtomicU64};
use core::ptr::null_mut;

/// Parked allocations of a size that a claim remembers.
const SHEAF: usize = 16;
/// Holes that a claim remembers for each slot.
const DEPTH: usize = 4;
/// Slots of holes.
const HOLES: usize = slot_of(HOLE_MOST) as usize + 1;
/// Granules of a hole that is remembered, at most; of more this many are.
pub const HOLE_MOST: u32 = 4 * FAR;

/// What an index allocates from; on lines of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Claim {
    /// The chunk; null: none. Stored by [`super::space`].
    pub chunk: AtomicPtr<Chunk>,
    /// Sizes of which something is parked: bit `granules - 1`.
    pub sizes: AtomicU64,
    /// How many.
    parked_counts: [AtomicU8; PARK_MOST as usize],
    /// Where: the last ones, by size. Only where to look: the chunk says whether it is still so. Relaxed,
    /// and a race loses some, which stay parked until the chunk is settled.
    parked: [[AtomicU64; SHEAF]; PARK_MOST as usize],
    /// Slots that have holes.
    pub full: AtomicU64,
    /// How many.
    counts: [AtomicU8; HOLES],
    /// Free runs that frees have left, by slot, the last ones: address and, below, granules. Only
    /// where to look: the bitmap says whether it is still so. Relaxed, and a race loses some.
    holes: [[AtomicU64; DEPTH]; HOLES],
}

impl Claim {
    /// Nothing.
    pub const fn new() -> Self {
        Self {
            chunk: AtomicPtr::new(null_mut()),
            sizes: AtomicU64::new(0),
            parked_counts: [const { AtomicU8::new(0) }; PARK_MOST as usize],
            parked: [const { [const { AtomicU64::new(0) }; SHEAF] }; PARK_MOST as usize],
            full: AtomicU64::new(0),
            counts: [const { AtomicU8::new(0) }; HOLES],
            holes: [const { [const { AtomicU64::new(0) }; DEPTH] }; HOLES],
        }
    }

    /// Whether another one of `n` granules can be parked.
    #[inline]
    pub fn has_room(&self, n: u32) -> bool {
        n <= PARK_MOST && (self.parked_counts[n as usize - 1].load(Relaxed) as usize) < SHEAF
    }
    /// Remembers where one is parked.
    #[inline]
    pub fn push(&self, address: usize, place: usize, n: u32) {
        let count = self.parked_counts[n as usize - 1].load(Relaxed) as usize % SHEAF;
        self.parked[n as usize - 1][count].store((address as u64) << 8 | place as u64, Relaxed);
        self.parked_counts[n as usize - 1].store(count as u8 + 1, Relaxed);
        self.sizes.store(self.sizes.load(Relaxed) | 1 << (n - 1), Relaxed);
    }
    /// The last one of `n` granules, if it is so aligned: its address, and place in its chunk.
    #[inline]
    pub fn pop(&self, n: u32, mask: u32) -> Option<(usize, usize)> {
        let count = (self.parked_counts[n as usize - 1].load(Relaxed) as usize).clamp(1, SHEAF) - 1;
        let parked = self.parked[n as usize - 1][count].load(Relaxed);
        let (address, place) = ((parked >> 8) as usize, (parked & 0xff) as usize);
        if address & (mask as usize * GRANULE) != 0 {
            return None;
        }
        self.parked_counts[n as usize - 1].store(count as u8, Relaxed);
        if count == 0 {
            self.sizes.store(self.sizes.load(Relaxed) & !(1 << (n - 1)), Relaxed);
        }
        Some((address, place))
    }

    /// Remembers a hole of `n` granules, at most [`HOLE_MOST`].
    #[inline]
    pub fn remember(&self, address: usize, n: u32) {
        let slot = slot_of(n) as usize;
        // The last one is overwritten when there is no room.
        let count = (self.counts[slot].load(Relaxed) as usize).min(DEPTH - 1);
        self.holes[slot][count].store((address as u64) << 16 | u64::from(n), Relaxed);
        self.counts[slot].store(count as u8 + 1, Relaxed);
        self.full.store(self.full.load(Relaxed) | 1 << slot, Relaxed);
    }

    /// A hole in which `n` granules fit, so aligned, of the slots `holes`: where they go, and the bytes behind them. It is
    /// forgotten, and so is one that was the last of its slot and does not do.
    #[inline]
    pub fn recall(&self, holes: u64, n: u32, mask: u32) -> Option<(usize, usize)> {
        // All in it are large enough.
        let slot = slot_of(n - 1) + 1;
        let holes = holes >> slot;
        if holes == 0 {
            return None;
        }
        let hole = self.pop_hole((slot + holes.trailing_zeros()) as usize);
        let (begin, end) = ((hole >> 16) as usize, (hole >> 16) as usize + (hole & 0xffff) as usize * GRANULE);
        let address = begin.next_multiple_of((mask as usize + 1) * GRANULE);
        Some((address, end.checked_sub(address + n as usize * GRANULE)?))
    }

    /// The last hole of a slot that has any: address, and below 16 bits of granules.
    #[inline]
    fn pop_hole(&self, slot: usize) -> u64 {
        let count = (self.counts[slot].load(Relaxed) as usize).clamp(1, DEPTH) - 1;
        self.counts[slot].store(count as u8, Relaxed);
        if count == 0 {
            self.full.store(self.full.load(Relaxed) & !(1 << slot), Relaxed);
        }
        self.holes[slot][count].load(Relaxed)
    }
}
