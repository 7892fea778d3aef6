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
    extern crate std;
    use super::*;

    #[test]
    fn a_slot_begins_where_it_says() {
        for n in 0..=BITS {
            let slot = slot_of(n);
            assert!(least(slot) <= n, "{n}");
            assert!(slot as usize + 1 == SLOTS || least(slot + 1) > n, "{n}");
        }
    }

    /// Lists beside a naive one: chunks come first where they are added, and a slot without any is not found.
    #[test]
    fn chunks_are_found_in_the_slots_of_their_hints() {
        let chunks: &'static [Chunk] = (0..4).map(|_| Chunk::new()).collect::<std::vec::Vec<_>>().leak();
        let mut slots = Slots::new();
        let mut naive: [std::vec::Vec<usize>; SLOTS] = [const { std::vec::Vec::new() }; SLOTS];
        let check = |slots: &Slots, naive: &[std::vec::Vec<usize>; SLOTS]| {
            for slot in 0..SLOTS as u32 {
                let next = (slot..SLOTS as u32).find(|&at| !naive[at as usize].is_empty());
                assert_eq!(slots.next(slot), next);
                let (mut at, mut before) = (slots.first(slot).cast_const(), null_mut());
                for &number in &naive[slot as usize] {
                    let chunk = &chunks[number];
                    assert!(core::ptr::eq(at, chunk), "{number} in {slot}");
                    assert!(core::ptr::eq(chunk.prev.load(Relaxed), before));
                    (at, before) = (chunk.next.load(Relaxed), (&raw const *chunk).cast_mut());
                }
                assert!(at.is_null());
            }
        };
        for chunk in chunks {
            chunk.body.lock().free = BITS;
        }
        // Which one, and its hint: 0 takes it off, twice.
        for (number, hint) in [
            (0, 100),
            (1, 100),
            (2, 100),
            (1, 0),
            (1, 40),
            (2, 0),
            (0, 0),
            (0, BITS),
            (3, BITS),
            (2, 3),
            (1, 0),
            (0, 0),
            (2, 0),
            (3, 0),
        ] {
            let (chunk, mut body) = (&chunks[number], chunks[number].body.lock());
            if hint == 0 {
                slots.remove(chunk, &mut body);
                assert_eq!((body.slot, body.raise_at), (NO_SLOT, u32::MAX));
                naive.iter_mut().for_each(|slot| slot.retain(|&other| other != number));
                check(&slots, &naive);
                slots.remove(chunk, &mut body);
            } else {
                body.contig_hint = hint;
                slots.add(chunk, &mut body);
                assert_eq!(body.slot, slot_of(hint));
                assert!(body.raise_at > BITS || slot_of(body.raise_at) == body.slot + 1);
                naive[body.slot as usize].insert(0, number);
            }
            check(&slots, &naive);
        }
        assert_eq!(slots.next(SLOTS as u32), None);
    }
}
