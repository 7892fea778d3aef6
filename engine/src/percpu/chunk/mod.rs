//! # A chunk of per-CPU memory
//!
//! ```text
//! units      ┌ nobody's ──────────────────────┬ index 0 ┬ … ┬ index `indices` - 1 ┐   UNIT bytes each
//!            │ page 0 │ page 1 │ … │ page 63  │ page 0 …                          │   one mapping
//!            └─▲──────┴────────┴───┴──────────┴─────────┴───┴─────────────────────┘
//! metadata   words[w]: alloc, bound   reach[w]   used[page]   populated dirty   keys   (apart)
//! ```
//! One bit of two bitmaps ([`super::bitmap`]) for each 4-byte granule of a unit; they are the
//! truth. Everything else is either exact or a bound on the safe side:
//!
//! | field | is |
//! |---|---|
//! | `used[page]` | allocated granules, exact |
//! | `reach[word]` | at least the longest free run that begins in the word, or 255 |
//! | `contig_hint` | at least the longest free run of the chunk |
//! | `cursors[key]` | no fit for this size and alignment begins in a word below |
//! | `populated` bit | something was allocated here since the page was last given back, or it was populated on purpose |
//! | `dirty` bit | something was freed here since then; a clean page is zero where nothing is allocated |
//!
//! A search that fails in a word sets its `reach` to what is true, and one that fails in the
//! chunk the hint to the largest `reach`. A free looks at the free run around it, 256 granules
//! to either side, and raises all that it makes wrong. So no bound is ever too low: what is
//! skipped has no fit. And an allocation makes few of them too high, each of which costs one
//! look.
//!
//! **Parked.** A freed allocation of at most [`PARK_MOST`] granules may be kept whole, for whoever asks for its size: 16 of
//! a chunk ([`Body::park`]). Both bitmaps, `free` and `used` hold it as allocated, and no bound has to be raised; `live`
//! does not count it, and [`Body::find`] refuses to free it again. [`Body::free_parked`] frees them. A chunk without a
//! live allocation has none.
//!
//! The search is first fit. It begins at the cursor of its key (size and alignment); keys
//! hash into [`KEYS`] places and push each other out; one that was pushed out is looked for where
//! the last free was, and around. Words are skipped by `reach`, 64 at a time.
//!
//! Units: granules of 4 bytes, words of 64 granules, pages of 16 words.
//! Locks: the chunk's own. Cost: about 280 instructions for a first fit in the cursor's word,
//! 300 for a free; half of each for what is parked and taken again.
#![allow(unsafe_code)] // a chunk is found by its address

mod fill;
mod give;
mod park;
mod take;

use super::bitmap::{self, GRANULE_SHIFT, MapWord, WORD_BITS};
use super::totals::{DRIFT, Totals};
use super::units::UNIT;
use crate::arch::atomic::AtomicPtr;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::lock::Lock;
use crate::arch::{PAGE, PAGE_SHIFT, prefetch};
use core::mem::offset_of;

/// Bytes of a granule.
pub const GRANULE: usize = 1 << GRANULE_SHIFT;
/// Granules of a unit.
pub const BITS: u32 = (UNIT >> GRANULE_SHIFT) as u32;
const WORDS: u32 = BITS / WORD_BITS;
/// Pages of a unit.
pub const PAGES: u32 = (UNIT >> PAGE_SHIFT) as u32;
/// Granules of a page.
pub const PAGE_BITS: u32 = (PAGE >> GRANULE_SHIFT) as u32;
/// A word's `reach` from which on it may be more.
const REACH: u32 = u8::MAX as u32;
/// No free begins or ends here.
const NO_RUN: (u32, u32) = (u32::MAX, u32::MAX);
/// Sizes and alignments whose cursor a chunk keeps.
pub const KEYS: usize = 16;
/// Freed allocations that a chunk keeps whole.
pub const PARKED: usize = 16;
/// Granules of one, at most.
pub const PARK_MOST: u32 = 64;
/// [`Body::slot`] of a chunk that is on no list.
pub const NO_SLOT: u32 = 0;

const _: () = assert!(PAGES <= 64, "a page is a bit of a word");
const _: () = assert!(PAGES == 1 || size_of::<Chunk>() <= UNIT * 8 / 100, "metadata is at most 8 % of a unit");

/// What a free leaves for the space to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct After {
    /// The largest free run belongs into a higher slot, or nothing is allocated any more.
    pub relocate: bool,
    /// More pages are empty than may be.
    pub balance: bool,
    /// The free run that it left: address, and granules; 0 if it is long.
    pub hole: (usize, u32),
}

impl After {
    /// Whether there is anything to do.
    #[inline]
    pub fn any(self) -> bool {
        self.relocate | self.balance
    }
}

/// What a chunk's lock guards. In the order of use: what is parked and taken again touches the first two lines
/// and one of sizes, with the lock; a free one more, a page's and its words'.
#[derive(Debug)]
#[repr(C)]
pub struct Body {
    /// Address of nobody's unit; 0: no memory.
    pub base: usize,
    /// Pages in which something was freed since they were last known to be zero.
    dirty: u64,
    /// Who allocates here: a claim's number plus one; 0: anybody who finds it in a slot.
    pub owner: u32,
    /// Live allocations (the kernel's `nr_alloc` of a chunk), without what is parked; 0: nothing is.
    pub live: u32,
    /// `live` when it was last added to the space's.
    folded: u32,
    /// Granules of the reserved region, at the beginning; the first chunk only.
    pub reserved: u32,
    /// Which places of `parked` are taken.
    kept: u16,
    /// The word in which to look first for what has no cursor.
    rover: u16,
    /// The chunk that is never given back, nor any page of it.
    pub first: bool,
    /// Its words reach 255.
    growing: bool,
    /// Allocations ever.
    pub allocs: u64,
    /// What is parked: `start << 8 | granules`; 0: nothing.
    parked: [u32; PARKED],
    /// Smallest allocation ever, bytes.
    pub smallest: u32,
    /// Largest allocation ever, bytes.
    pub largest: u32,
    /// Free granules, without the reserved region and what is parked.
    pub free: u32,
    /// At least the longest free run.
    pub contig_hint: u32,
    /// A free that raises `contig_hint` to this asks for a higher slot.
    pub raise_at: u32,
    /// The slot that it is listed in. Changed under the space's lock and this one.
    pub slot: u32,
    /// The free run around the last free, if nothing was allocated since.
    run: (u32, u32),
    /// Pages that are filled, or will be at the first touch.
    pub populated: u64,
    /// Populated pages without an allocation, but for those of the reserved region (as in the kernel).
    pub empty: u32,
    /// `allocs` when another index last looked for idle chunks.
    pub seen: u64,
    sizes: [u16; KEYS],
    masks: [u16; KEYS],
    cursors: [u16; KEYS],
    used: [u16; PAGES as usize],
    reach: [u8; WORDS as usize],
    pub(super) words: [MapWord; WORDS as usize + 1],
}

/// A chunk's metadata. It is never unmapped, so that an old pointer to it finds at worst a
/// chunk without memory, or another one.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Chunk {
    /// See [`Body`].
    pub body: Lock<Body>,
    /// Neighbours in a slot. Space's lock.
    pub next: AtomicPtr<Chunk>,
    /// The other way.
    pub prev: AtomicPtr<Chunk>,
    /// All chunks that ever were. Written once, before it is seen.
    pub older: AtomicPtr<Chunk>,
}

impl Chunk {
    /// Without memory: all zero bytes.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            body: Lock::new(Body::NONE),
            next: AtomicPtr::new(core::ptr::null_mut()),
            prev: AtomicPtr::new(core::ptr::null_mut()),
            older: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Asks for the line of the bitmaps that a free of this address needs.
    #[inline]
    pub fn prefetch(&self, address: usize) {
        let word = address % UNIT / (WORD_BITS as usize * GRANULE);
        let words = self.body.as_ptr().cast::<u8>().wrapping_add(offset_of!(Body, words));
        prefetch(words.cast::<MapWord>().wrapping_add(word));
    }
}

/// A page's bit.
#[inline]
fn bit(page: u32) -> u64 {
    1 << page
}

impl Body {
    const NONE: Self = Self {
        base: 0,
        dirty: 0,
        owner: 0,
        raise_at: 0,
        contig_hint: 0,
        free: 0,
        live: 0,
        reserved: 0,
        first: false,
        growing: false,
        kept: 0,
        parked: [0; PARKED],
        rover: 0,
        run: (0, 0),
        sizes: [0; KEYS],
        masks: [0; KEYS],
        cursors: [0; KEYS],
        allocs: 0,
        smallest: 0,
        largest: 0,
        populated: 0,
        empty: 0,
        folded: 0,
        seen: 0,
        slot: NO_SLOT,
        used: [0; PAGES as usize],
        reach: [0; WORDS as usize],
        words: [MapWord::FREE; WORDS as usize + 1],
    };

    /// Gives the chunk memory, all of it free and zero. (Its words are: a chunk is given back
    /// when nothing in it is allocated.)
    pub fn begin(&mut self, base: usize, reserved: u32, first: bool) {
        self.first = first;
        self.base = base;
        self.reserved = reserved;
        self.run = NO_RUN;
        self.rover = (reserved / WORD_BITS) as u16;
        self.free = BITS - reserved;
        self.contig_hint = self.free;
        (self.live, self.folded, self.empty, self.seen) = (0, 0, 0, 0);
        (self.allocs, self.smallest, self.largest) = (0, u32::MAX, 0);
        (self.populated, self.dirty) = (0, 0);
        self.cursors = [(reserved / WORD_BITS) as u16; KEYS];
        self.reach = [REACH as u8; WORDS as usize];
        // Never searched but by `take_reserved`.
        self.reach[..(reserved / WORD_BITS) as usize].fill(0);
        self.words[WORDS as usize] = MapWord::END;
    }

    /// At least the longest free run.
    #[inline]
    pub fn contig(&self) -> u32 {
        self.contig_hint.min(self.free)
    }

    /// Changes `live`, and tells the space now and then.
    #[inline]
    fn count(&mut self, by: i32, totals: &Totals) {
        self.live = self.live.wrapping_add_signed(by);
        if self.live.wrapping_sub(self.folded).wrapping_add(DRIFT) > 2 * DRIFT {
            self.fold(totals);
        }
    }

    /// Adds what `live` has changed to the space's. Relaxed: statistics.
    #[cold]
    #[inline(never)]
    pub fn fold(&mut self, totals: &Totals) {
        let by = self.live.wrapping_sub(self.folded) as i32 as usize;
        self.folded = self.live;
        let live = totals.live().fetch_add(by, Relaxed).wrapping_add(by);
        if live as isize > totals.live_most().load(Relaxed) as isize {
            totals.live_most().fetch_max(live, Relaxed);
        }
    }

    /// Notes the size that was asked for.
    #[inline]
    pub fn note_size(&mut self, bytes: u32) {
        if bytes > self.largest {
            self.largest = bytes;
        }
        if bytes < self.smallest {
            self.smallest = bytes;
        }
    }

    /// Live allocations from a granule on, by both bitmaps: begin and end.
    pub fn live_from(&self, from: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut at = from;
        core::iter::from_fn(move || {
            while at < BITS {
                let word = self.words[(at / WORD_BITS) as usize];
                let begins = (word.alloc & word.bound) >> (at % WORD_BITS);
                if begins == 0 {
                    at = (at / WORD_BITS + 1) * WORD_BITS;
                    continue;
                }
                let start = at + begins.trailing_zeros();
                at = bitmap::end(&self.words, start);
                if !self.parked().any(|parked| parked == (start, at)) {
                    return Some((start, at));
                }
            }
            None
        })
    }
}

/// Pages that `[start, end)` touches.
#[inline]
fn pages(start: u32, end: u32) -> u64 {
    let (first, last) = (start / PAGE_BITS, (end - 1) / PAGE_BITS);
    (u64::MAX << first) & (u64::MAX >> (63 - last))
}

/// `[start, end)` by pages: page, and how many granules of it.
fn parts(start: u32, end: u32) -> impl Iterator<Item = (u32, u32)> {
    (start / PAGE_BITS..=(end - 1) / PAGE_BITS).map(move |page| {
        let from = start.max(page * PAGE_BITS);
        (page, end.min((page + 1) * PAGE_BITS) - from)
    })
}

#[cfg(test)]
mod tests;
