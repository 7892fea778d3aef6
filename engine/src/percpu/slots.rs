//! # Slots: chunks by their largest free run
//!
//! ```text
//! lists[slot] ──► chunk ⇄ chunk ⇄ …      slot: 0 none, 1 full, exact below 8 granules, then four for each power of two
//! full        one bit per list that is not empty
//! ```
//! A chunk is listed by [`Body::contig`], which is at least its largest free run: it may stand
//! too high, and moves down when a search proves it, and never too low for long: the free
//! that raises the hint to the next slot moves it.
//!
//! Invariants: a chunk is on the list of [`Body::slot`], or on none; the claimed ones are on
//! none. Locks: all of it is the space's; `slot` and `raise_at` change under the chunk's, too.
//! Cost: a few loads.
#![allow(unsafe_code)] // links between chunks

use super::chunk::{BITS, Body, Chunk, NO_SLOT};
use crate::arch::atomic::Ordering::Relaxed;
use core::ptr::null_mut;

/// Number of slots.
pub const SLOTS: usize = slot_of(BITS) as usize + 1;
const _: () = assert!(SLOTS <= 64, "a slot is a bit of a word");

/// The slot of a chunk whose largest run may be `n` granules.
#[inline]
pub const fn slot_of(n: u32) -> u32 {
    if n < 4 {
        return n + 1;
    }
    let log = n.ilog2();
    (log - 1) * 4 + (n >> (log - 2) & 3) + 1
}

/// The smallest hint that belongs in a slot.
#[inline]
pub const fn least(slot: u32) -> u32 {
    let at = slot - 1;
    if at < 4 { at } else { (4 + at % 4) << (at / 4 - 1) }
}

/// See the module.
#[derive(Debug)]
pub struct Slots {
    lists: [*mut Chunk; SLOTS],
    full: u64,
}

// SAFETY: chunks live for ever; the lists are behind the space's lock.
unsafe impl Send for Slots {}

impl Slots {
    /// All empty.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { lists: [null_mut(); SLOTS], full: 0 }
    }

    /// The first slot from `slot` on that is not empty.
    pub fn next(&self, slot: u32) -> Option<u32> {
        let at = self.full & u64::MAX.checked_shl(slot).unwrap_or(0);
        (at != 0).then(|| at.trailing_zeros())
    }
    /// The first chunk of a slot; null if there is none.
    pub fn first(&self, slot: u32) -> *mut Chunk {
        self.lists[slot as usize]
    }

    /// Lists a chunk that is on no list by its hint.
    pub fn add(&mut self, chunk: &'static Chunk, body: &mut Body) {
        debug_assert!(body.slot == NO_SLOT);
        body.contig_hint = body.contig();
        let slot = slot_of(body.contig());
        body.slot = slot;
        body.raise_at = if slot as usize + 1 == SLOTS { u32::MAX } else { least(slot + 1) };
        let head = &mut self.lists[slot as usize];
        chunk.prev.store(null_mut(), Relaxed);
        chunk.next.store(*head, Relaxed);
        // SAFETY: chunks live for ever.
        if let Some(next) = unsafe { head.as_ref() } {
            next.prev.store((&raw const *chunk).cast_mut(), Relaxed);
        }
        *head = (&raw const *chunk).cast_mut();
        self.full |= 1 << slot;
    }

    /// Takes a chunk off its list, if it is on one.
    pub fn remove(&mut self, chunk: &'static Chunk, body: &mut Body) {
        if body.slot == NO_SLOT {
            return;
        }
        let (prev, next) = (chunk.prev.load(Relaxed), chunk.next.load(Relaxed));
        // SAFETY: chunks live for ever.
        unsafe {
            match prev.as_ref() {
                Some(prev) => prev.next.store(next, Relaxed),
                None => {
                    self.lists[body.slot as usize] = next;
                    if next.is_null() {
                        self.full &= !(1 << body.slot);
                    }
                }
            }
            if let Some(next) = next.as_ref() {
                next.prev.store(prev, Relaxed);
            }
        }
        body.slot = NO_SLOT;
        body.raise_at = u32::MAX;
    }

    /// Moves a chunk to where its hint belongs.
    pub fn relocate(&mut self, chunk: &'static Chunk, body: &mut Body) {
        if body.slot != NO_SLOT && body.slot != slot_of(body.contig()) {
            self.remove(chunk, body);
            self.add(chunk, body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_begins_where_it_says() {
        for n in 0..=BITS {
            let slot = slot_of(n);
            assert!(least(slot) <= n, "{n}");
            assert!(slot as usize + 1 == SLOTS || least(slot + 1) > n, "{n}");
        }
    }
}
