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
//! **Parked.** A freed allocation of at most [`PARK_MOST`] granules may be kept whole, for who asks for its size: 16 of
//! a chunk ([`Body::park`]). Both bitmaps, `free` and `used` hold it as allocated, and no bound has to be raised; `live`
//! does not count it, and [`Body::find`] refuses to free it again. [`Body::settle`] frees them. A chunk without a
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

use super::bitmap::{self, FAR, GRANULE_SHIFT, WORD_BITS, Word};
use super::units::UNIT;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicIsize, AtomicPtr, AtomicU32, AtomicUsize};
use crate::arch::lock::Lock;
use crate::arch::{PAGE, PAGE_SHIFT, prefetch};
use core::mem::offset_of;
use core::num::NonZeroUsize;
use core::ops::Range;

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
/// `live` is added to the space's number when it has moved further than this.
pub const DRIFT: u32 = 128;
/// Freed allocations that a chunk keeps whole.
pub const PARKED: usize = 16;
/// Granules of one, at most.
pub const PARK_MOST: u32 = 64;
/// [`Body::slot`] of a chunk that is on no list.
pub const NO_SLOT: u32 = 0;

const _: () = assert!(PAGES <= 64, "a page is a bit of a word");
const _: () = assert!(PAGES == 1 || size_of::<Chunk>() <= UNIT * 8 / 100, "metadata is at most 8 % of a unit");

/// Where a new allocation lies. Two words, an option of it too, so that it is returned in registers:
/// one that is written to memory in parts and read as a whole waits for every store before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its address, and bit 0 for `low`.
    at: NonZeroUsize,
    /// Pages of it that are not known to be zero.
    pub dirty: u64,
}

impl Taken {
    /// Always some: a chunk with memory does not begin at 0.
    #[inline]
    fn new(address: usize, dirty: u64, low: bool) -> Option<Self> {
        NonZeroUsize::new(address | usize::from(low)).map(|at| Self { at, dirty })
    }
    /// Its address in nobody's unit.
    #[inline]
    pub fn address(self) -> usize {
        self.at.get() & !1
    }
    /// It has begun a page, and fewer empty populated ones are left than shall be kept.
    #[inline]
    pub fn low(self) -> bool {
        self.at.get() & 1 != 0
    }
    /// The same, and nothing to do.
    pub fn without_low(self) -> Self {
        NonZeroUsize::new(self.address()).map_or(self, |at| Self { at, ..self })
    }
}
const _: () = assert!(size_of::<Option<Taken>>() == 16);

/// Why something cannot be freed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Not an address of per-CPU memory.
    Foreign,
    /// Inside a live allocation.
    Interior,
    /// Free already.
    Double,
}

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
    /// 1: something was parked since all chunks were last settled.
    pub parked: AtomicU32,
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
            parked: AtomicU32::new(0),
            empty: Apart(AtomicIsize::new(0)),
            live: Apart((AtomicUsize::new(0), AtomicUsize::new(0))),
        }
    }
    /// Populated pages without an allocation (`nr_empty_pop_pages`).
    pub fn empty(&self) -> &AtomicIsize {
        &self.empty.0
    }
    /// Live allocations, less what chunks have not yet told ([`DRIFT`] each at most, either way).
    pub fn live(&self) -> &AtomicUsize {
        &self.live.0.0
    }
    /// The most that `live` ever was.
    pub fn live_most(&self) -> &AtomicUsize {
        &self.live.0.1
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
    told: u32,
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
    pub(super) words: [Word; WORDS as usize + 1],
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
        prefetch(words.cast::<Word>().wrapping_add(word));
    }
}

/// The first word from `from` on that reaches `least`, which is not 0.
#[inline]
fn next_reach(reach: &[u8; WORDS as usize], from: usize, least: u8) -> Option<usize> {
    const BLOCK: usize = 64;
    const GROUP: usize = 8;
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Vector instructions.
    let any = |block: &[u8; BLOCK]| block.iter().fold(0, |any, byte| any | byte.saturating_sub(least - 1)) != 0;
    // 0x80 for each byte that does. The low seven bits are compared by an add that cannot carry;
    // they decide alone if `least` has no eighth bit, and together with that if it has.
    let add = ONES * (0x80 - u64::from(least & 0x7f));
    let either = if least < 0x80 { u64::MAX } else { 0 };
    let each = |group: &[u8; GROUP]| {
        let high = u64::from_le_bytes(*group);
        let low = (high & !(ONES << 7)) + add;
        (high & low | (high | low) & either) & (ONES << 7)
    };
    let groups = reach.as_chunks::<GROUP>().0;
    let mut group = from / GROUP;
    let mut found = each(groups.get(group)?) & u64::MAX << (from % GROUP * 8);
    while found == 0 {
        group += 1;
        if group.is_multiple_of(BLOCK / GROUP) {
            let blocks = &reach.as_chunks::<BLOCK>().0[group / (BLOCK / GROUP)..];
            group += blocks.iter().position(any)? * (BLOCK / GROUP);
        }
        found = each(groups.get(group)?);
    }
    Some(group * GROUP + (found.trailing_zeros() / 8) as usize)
}
/// A page's bit.
#[inline]
fn bit(page: u32) -> u64 {
    1 << page
}
/// Where a key's cursor is kept.
#[inline]
fn place(n: u32, mask: u32) -> usize {
    (n.wrapping_mul(0x9E37_79B1) ^ mask.wrapping_mul(0x85EB_CA6B)) as usize >> 28 & (KEYS - 1)
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
        told: 0,
        seen: 0,
        slot: NO_SLOT,
        used: [0; PAGES as usize],
        reach: [0; WORDS as usize],
        words: [Word::FREE; WORDS as usize + 1],
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
        (self.live, self.told, self.empty, self.seen) = (0, 0, 0, 0);
        (self.allocs, self.smallest, self.largest) = (0, u32::MAX, 0);
        (self.populated, self.dirty) = (0, 0);
        self.cursors = [(reserved / WORD_BITS) as u16; KEYS];
        self.reach = [REACH as u8; WORDS as usize];
        // Never searched but by `take_reserved`.
        self.reach[..(reserved / WORD_BITS) as usize].fill(0);
        self.words[WORDS as usize] = Word::END;
    }

    /// At least the longest free run.
    #[inline]
    pub fn contig(&self) -> u32 {
        self.contig_hint.min(self.free)
    }

    /// Allocates `n` granules at a multiple of `mask + 1`, first fit.
    #[inline]
    pub fn take(&mut self, n: u32, mask: u32, totals: &Totals) -> Option<Taken> {
        let key = place(n, mask);
        let known = self.sizes[key] == (n - 1) as u16 && self.masks[key] == mask as u16;
        let at = u32::from(if known { self.cursors[key] } else { self.rover });
        // Nothing begins in a word that is full: on to the next.
        let at = (at + u32::from(self.words[at as usize].alloc == u64::MAX)).min(WORDS);
        if n <= WORD_BITS {
            let fits = bitmap::runs(!self.words[at as usize].alloc, n) & bitmap::aligned(at, mask);
            if fits != 0 {
                *(if known { &mut self.cursors[key] } else { &mut self.rover }) = at as u16;
                return self.commit(at * WORD_BITS + fits.trailing_zeros(), n, totals);
            }
        }
        let start = if known { self.search(n, mask, key) } else { self.search_anew(n, mask, key) }?;
        self.commit(start, n, totals)
    }

    /// From the key's cursor on.
    #[inline(never)]
    fn search(&mut self, n: u32, mask: u32, key: usize) -> Option<u32> {
        let start = self.search_in(u32::from(self.cursors[key])..WORDS, n, mask);
        self.cursors[key] = start.map_or(WORDS, |start| start / WORD_BITS) as u16;
        if start.is_none() {
            self.lower(n, mask);
        }
        start
    }

    /// From the rover on, and around; a key that is asked for again gets its cursor.
    #[inline(never)]
    fn search_anew(&mut self, n: u32, mask: u32, key: usize) -> Option<u32> {
        let floor = self.reserved / WORD_BITS;
        (self.sizes[key], self.masks[key], self.cursors[key]) = ((n - 1) as u16, mask as u16, floor as u16);
        let rover = u32::from(self.rover);
        let start = self.search_in(rover..WORDS, n, mask).or_else(|| self.search_in(floor..rover, n, mask));
        match start {
            Some(start) => self.rover = (start / WORD_BITS) as u16,
            None => {
                self.cursors[key] = WORDS as u16;
                self.lower(n, mask);
            }
        }
        start
    }

    /// The lowest fit that begins in some words; what has none there gets its true reach.
    #[inline]
    fn search_in(&mut self, words: Range<u32>, n: u32, mask: u32) -> Option<u32> {
        if n > self.contig() {
            return None;
        }
        let mut at = words.start;
        let least = n.min(REACH) as u8;
        while let Some(word) = next_reach(&self.reach, at as usize, least).filter(|&word| (word as u32) < words.end) {
            at = word as u32;
            match bitmap::look(&self.words, at, n, mask) {
                Ok(start) => return Some(start),
                Err(next) => {
                    self.run = NO_RUN;
                    self.reach[word] = bitmap::longest(&self.words, at, REACH).min(REACH) as u8;
                    at = next;
                }
            }
        }
        None
    }

    /// Nothing fits in the whole chunk.
    #[cold]
    fn lower(&mut self, n: u32, mask: u32) {
        let most = u32::from(self.reach.iter().fold(0, |most, &reach| most.max(reach)));
        let most = if most == REACH { self.contig_hint } else { most };
        // Without alignment a longer run would have been a fit.
        self.contig_hint = self.contig_hint.min(if mask == 0 { most.min(n - 1) } else { most });
    }

    /// Takes `[start, start + n)`, which is free.
    #[inline]
    fn commit(&mut self, start: u32, n: u32, totals: &Totals) -> Option<Taken> {
        bitmap::set(&mut self.words, start, n);
        self.run = NO_RUN;
        if n >= WORD_BITS {
            // Words that are full now need no look that finds it out.
            let full = start.div_ceil(WORD_BITS)..(start + n) / WORD_BITS;
            self.reach[full.start as usize..full.end.max(full.start) as usize].fill(0);
        }
        let page = start / PAGE_BITS;
        let mut low = false;
        if (start + n) / PAGE_BITS == page {
            if self.used[page as usize] == 0 {
                low = self.enter_page(page, totals);
            }
            self.used[page as usize] += n as u16;
        } else {
            low = self.commit_pages(start, n, totals);
        }
        self.free -= if start >= self.reserved { n } else { 0 };
        let dirty = self.dirty & pages(start, start + n);
        self.count(1, totals);
        self.allocs += 1;
        Taken::new(self.base + ((start as usize) << GRANULE_SHIFT), dirty, low)
    }

    /// Changes `live`, and tells the space now and then.
    #[inline]
    fn count(&mut self, by: i32, totals: &Totals) {
        self.live = self.live.wrapping_add_signed(by);
        if self.live.wrapping_sub(self.told).wrapping_add(DRIFT) > 2 * DRIFT {
            self.tell(totals);
        }
    }

    /// The part of [`Body::commit`] for what ends at a page's end or crosses it.
    #[cold]
    #[inline(never)]
    fn commit_pages(&mut self, start: u32, n: u32, totals: &Totals) -> bool {
        let mut low = false;
        for (page, part) in parts(start, start + n) {
            if self.used[page as usize] == 0 {
                low |= self.enter_page(page, totals);
            }
            self.used[page as usize] += part as u16;
        }
        low
    }

    /// The first allocation in an empty page; whether too few others are empty and populated.
    #[inline]
    fn enter_page(&mut self, page: u32, totals: &Totals) -> bool {
        if self.populated & bit(page) == 0 {
            // The system fills it when it is touched.
            self.populated |= bit(page);
        } else if page >= self.reserved / PAGE_BITS {
            self.empty -= 1;
            totals.empty().fetch_sub(1, Relaxed);
        }
        // Relaxed: hints when to look.
        let least = totals.empty_least.load(Relaxed);
        least != 0 && totals.empty().load(Relaxed) < least
    }

    /// Adds what `live` has changed to the space's. Relaxed: statistics.
    #[cold]
    #[inline(never)]
    pub fn tell(&mut self, totals: &Totals) {
        let by = self.live.wrapping_sub(self.told) as i32 as usize;
        self.told = self.live;
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

    /// Allocates `n` granules at this address, if they are free.
    #[inline]
    pub fn take_at(&mut self, address: usize, n: u32, totals: &Totals) -> Option<Taken> {
        let offset = address.wrapping_sub(self.base);
        if offset >= UNIT || self.base == 0 {
            return None;
        }
        let start = (offset >> GRANULE_SHIFT) as u32;
        if start < self.reserved || !bitmap::is_free(&self.words, start, n) {
            return None;
        }
        self.commit(start, n, totals)
    }

    /// Keeps the live allocation `[start, start + n)` whole instead of freeing it, if there is room: to both bitmaps
    /// it stays one, to who counts it is free. Its place.
    #[inline]
    pub fn park(&mut self, start: u32, n: u32, totals: &Totals) -> Option<usize> {
        let place = self.kept.trailing_ones() as usize;
        // The last one: then the chunk may go.
        if place >= PARKED || self.live == 1 || start < self.reserved {
            return None;
        }
        self.parked[place] = start << 8 | n;
        self.kept |= 1 << place;
        self.count(-1, totals);
        Some(place)
    }

    /// Allocates what is parked at this address and place, with `n` granules.
    #[inline]
    pub fn unpark(&mut self, address: usize, place: usize, n: u32, totals: &Totals) -> Option<Taken> {
        let offset = address.wrapping_sub(self.base);
        if offset >= UNIT || self.base == 0 {
            return None;
        }
        let start = (offset >> GRANULE_SHIFT) as u32;
        let place = place % PARKED;
        if self.parked[place] != start << 8 | n {
            return None;
        }
        self.forget(place);
        self.count(1, totals);
        self.allocs += 1;
        // Its pages are dirty, said or not.
        Taken::new(address, pages(start, start + n), false)
    }

    /// Whether this is parked.
    #[inline]
    fn is_parked(&self, start: u32, n: u32) -> bool {
        // Vector instructions.
        self.parked.iter().fold(0, |any, &what| any | u32::from(what == start << 8 | n)) != 0
    }
    #[inline]
    fn forget(&mut self, place: usize) {
        self.parked[place] = 0;
        self.kept &= !(1 << place);
    }

    /// What is parked.
    fn parked(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let parked = self.parked.iter().filter(|&&what| what != 0);
        parked.map(|&what| (what >> 8, (what >> 8) + (what & 0xff)))
    }

    /// Frees all that is parked; whether more pages are empty than may be.
    #[inline(never)]
    pub fn settle(&mut self, totals: &Totals) -> bool {
        let mut balance = false;
        while self.kept != 0 {
            let place = self.kept.trailing_zeros() as usize;
            let what = self.parked[place];
            self.forget(place);
            balance |= self.release(what >> 8, (what >> 8) + (what & 0xff), totals).balance;
        }
        balance
    }

    /// Allocates in pages that are populated only, first fit; no bound is used or changed.
    #[cold]
    pub fn take_populated(&mut self, n: u32, mask: u32, totals: &Totals) -> Option<Taken> {
        if n > self.contig() {
            return None;
        }
        let mut page = self.reserved / PAGE_BITS;
        while page < PAGES {
            let mut end = page;
            while end < PAGES && self.populated & bit(end) != 0 {
                end += 1;
            }
            if let Some(start) = self.scan(page * PAGE_BITS, end * PAGE_BITS, n, mask) {
                return self.commit(start, n, totals);
            }
            page = end + 1;
        }
        None
    }

    /// Allocates in the reserved region, first fit.
    #[cold]
    pub fn take_reserved(&mut self, n: u32, mask: u32, totals: &Totals) -> Option<Taken> {
        let start = self.scan(0, self.reserved, n, mask)?;
        self.commit(start, n, totals)
    }

    /// The lowest fit in `[from, to)`, which are pages' edges.
    fn scan(&self, from: u32, to: u32, n: u32, mask: u32) -> Option<u32> {
        let mut at = from / WORD_BITS;
        while at < to / WORD_BITS {
            match bitmap::look(&self.words, at, n, mask) {
                // A later one ends later.
                Ok(start) => return (start + n <= to).then_some(start),
                Err(next) => at = next,
            }
        }
        None
    }

    /// The live allocation that begins at this address of unit 0.
    ///
    /// # Errors
    /// [`Wrong`]: there is none.
    #[inline]
    pub fn find(&self, address: usize) -> Result<(u32, u32), Wrong> {
        let offset = address.wrapping_sub(self.base);
        if offset >= UNIT || self.base == 0 {
            return Err(Wrong::Foreign);
        }
        let start = (offset >> GRANULE_SHIFT) as u32;
        let word = self.words[(start / WORD_BITS) as usize];
        let at = start % WORD_BITS;
        if (word.alloc & word.bound) >> at & 1 == 0 || !offset.is_multiple_of(GRANULE) {
            return Err(self.wrong(start));
        }
        let end = bitmap::end(&self.words, start);
        if self.kept != 0 && end - start <= PARK_MOST && self.is_parked(start, end - start) {
            return Err(Wrong::Double);
        }
        Ok((start, end))
    }

    /// Why nothing live begins here.
    #[cold]
    fn wrong(&self, start: u32) -> Wrong {
        let word = self.words[(start / WORD_BITS) as usize];
        let parked = self.parked().any(|(begin, end)| (begin..end).contains(&start));
        if word.alloc >> (start % WORD_BITS) & 1 == 0 || parked { Wrong::Double } else { Wrong::Interior }
    }

    /// Frees a live allocation.
    #[inline]
    pub fn give(&mut self, start: u32, end: u32, totals: &Totals) -> After {
        self.count(-1, totals);
        let mut after = self.release(start, end, totals);
        if self.live == 0 && self.kept != 0 {
            after.balance |= self.settle(totals);
        }
        after.relocate |= self.live == 0 && self.slot != NO_SLOT;
        after
    }

    /// Frees `[start, end)`, which is not counted.
    #[inline]
    fn release(&mut self, start: u32, end: u32, totals: &Totals) -> After {
        bitmap::clear(&mut self.words, start, end);
        let page = start / PAGE_BITS;
        let mut after = After::default();
        if end / PAGE_BITS == page {
            self.used[page as usize] -= (end - start) as u16;
            self.dirty |= bit(page);
            if self.used[page as usize] == 0 {
                after.balance = self.leave_page(page, totals);
            }
        } else {
            after.balance = self.give_pages(start, end, totals);
        }
        if start >= self.reserved {
            self.free += end - start;
            let (from, n) = self.raise(start, end);
            after.hole = (self.base + ((from as usize) << GRANULE_SHIFT), n);
            after.relocate = self.contig_hint >= self.raise_at;
        }
        after
    }

    /// Raises every bound that the free run around `[start, end)` makes wrong.
    #[inline]
    fn raise(&mut self, start: u32, end: u32) -> (u32, u32) {
        // Frees in order go on where the last one ended.
        let (begin, end_before) = self.run;
        let on = start == end_before;
        let from = if on {
            begin.max(start.saturating_sub(FAR))
        } else {
            bitmap::free_from(&self.words, start, self.reserved)
        };
        let to = if end == begin { end_before.min(end + FAR) } else { bitmap::free_to(&self.words, end) };
        // Words further left reached all of 255 before; runs that begin right of `end` are as
        // they were. A run that grows in order reaches 255 at once, so that its words are not
        // raised again and again.
        let nearest = if on & self.growing { start } else { from.max(start.saturating_sub(REACH)) };
        let behind = if on { to } else { end };
        for word in nearest / WORD_BITS..=(behind - 1) / WORD_BITS {
            let reach = &mut self.reach[word as usize];
            let run = if on { REACH } else { to - nearest.max(word * WORD_BITS) };
            *reach = (*reach).max(run.min(REACH) as u8);
        }
        (self.run, self.growing) = ((from, to), on);
        self.rover = (from / WORD_BITS) as u16;
        let (left, right) = (start - from >= FAR, to - end >= FAR);
        let hole = (from, if left | right { 0 } else { to - from });
        self.contig_hint = self.contig_hint.max(if left | right { self.free } else { to - from });
        // A fit that was none before begins at most its size before `start`, in the run. All of
        // it in 16 bits, saturating: an error at the chunk's end lowers a cursor for nothing.
        let from = if left { self.reserved } else { from } as u16;
        let last = if right { BITS - 1 } else { to - 1 } as u16;
        let start = start as u16;
        for key in 0..KEYS {
            let lowest = from.max(start.saturating_sub(self.sizes[key]));
            let lowest = lowest.saturating_add(self.masks[key]) & !self.masks[key];
            let fits = last.saturating_sub(lowest) >= self.sizes[key];
            let cursor = if fits { lowest / WORD_BITS as u16 } else { u16::MAX };
            self.cursors[key] = self.cursors[key].min(cursor);
        }
        hole
    }

    /// The part of [`Body::give`] for what ends at a page's end or crosses it.
    #[cold]
    #[inline(never)]
    fn give_pages(&mut self, start: u32, end: u32, totals: &Totals) -> bool {
        let mut balance = false;
        for (page, part) in parts(start, end) {
            self.used[page as usize] -= part as u16;
            self.dirty |= bit(page);
            if self.used[page as usize] == 0 {
                balance |= self.leave_page(page, totals);
            }
        }
        balance
    }

    /// The last allocation of a page has gone; whether too many are empty.
    #[inline]
    fn leave_page(&mut self, page: u32, totals: &Totals) -> bool {
        if page < self.reserved / PAGE_BITS {
            return false;
        }
        self.empty += 1;
        // Relaxed: a hint when to look.
        totals.empty().fetch_add(1, Relaxed) >= totals.empty_most.load(Relaxed)
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

    /// Pages that are empty and populated.
    pub fn empty_pages(&self) -> u64 {
        self.unused_pages() & self.populated
    }
    /// Pages that are empty and not populated.
    pub fn bare_pages(&self) -> u64 {
        self.unused_pages() & !self.populated
    }
    /// Pages without an allocation, but for the reserved region's.
    fn unused_pages(&self) -> u64 {
        let pages = self.reserved / PAGE_BITS..PAGES;
        pages.filter(|&page| self.used[page as usize] == 0).fold(0, |mask, page| mask | bit(page))
    }
    /// The system took these empty pages back; `clean` says whether all of them are zero now.
    pub fn depopulated(&mut self, pages: u64, clean: bool, totals: &Totals) {
        if clean {
            self.populated &= !pages;
            self.dirty &= !pages;
            self.empty -= pages.count_ones();
            totals.empty().fetch_sub(pages.count_ones() as isize, Relaxed);
        }
    }
    /// The system filled these empty pages.
    pub fn repopulated(&mut self, pages: u64, totals: &Totals) {
        self.populated |= pages;
        self.empty += pages.count_ones();
        totals.empty().fetch_add(pages.count_ones() as isize, Relaxed);
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
impl Body {
    /// Every claim of the module's table, by a linear scan; `live` allocations as (start, granules).
    #[allow(clippy::unwrap_used)]
    pub fn verify(&self, live: &[(u32, u32)]) {
        extern crate std;
        use std::vec::Vec;
        let taken: Vec<bool> = (0..BITS).map(|at| self.words[(at / 64) as usize].alloc >> (at % 64) & 1 == 1).collect();
        assert!(self.kept == 0 || self.live != 0, "a chunk that may go keeps something");
        let parked = self.parked().map(|(start, end)| (start, end - start));
        let all: Vec<(u32, u32)> = live.iter().copied().chain(parked).collect();
        let mut count = 0;
        for &(start, n) in &all {
            assert!(taken[start as usize..(start + n) as usize].iter().all(|taken| *taken), "lost bits");
            assert_eq!(bitmap::end(&self.words, start), start + n, "length of {start}");
            count += n;
        }
        assert_eq!(taken.iter().filter(|taken| **taken).count() as u32, count, "leaked bits");
        assert_eq!(self.live as usize, live.len());
        let outside: u32 = all.iter().filter(|(start, _)| *start >= self.reserved).map(|(_, n)| n).sum();
        assert_eq!(self.free, BITS - self.reserved - outside);
        for page in 0..PAGES {
            let bits = &taken[(page * PAGE_BITS) as usize..((page + 1) * PAGE_BITS) as usize];
            assert_eq!(u32::from(self.used[page as usize]), bits.iter().filter(|taken| **taken).count() as u32);
            assert!(self.used[page as usize] == 0 || self.populated & bit(page) != 0);
        }
        assert_eq!(self.empty, self.empty_pages().count_ones());
        // Free runs by where they begin.
        let mut run = std::vec![0_u32; BITS as usize + 1];
        for at in (self.reserved..BITS).rev() {
            run[at as usize] = if taken[at as usize] { 0 } else { run[at as usize + 1] + 1 };
        }
        let longest = run.iter().copied().max().unwrap();
        assert!(self.contig() >= longest, "hint {} below the longest run {longest}", self.contig());
        for word in self.reserved / WORD_BITS..WORDS {
            let longest = (word * 64..word * 64 + 64).map(|at| run[at as usize]).max().unwrap();
            assert!(u32::from(self.reach[word as usize]) >= longest.min(REACH), "reach of {word}");
        }
        for key in 0..KEYS {
            let (n, mask) = (u32::from(self.sizes[key]) + 1, u32::from(self.masks[key]));
            let below = u32::from(self.cursors[key]).min(WORDS) * WORD_BITS;
            let fit = (0..below).filter(|at| at & mask == 0).find(|&at| run[at as usize] >= n);
            assert_eq!(fit, None, "{n} at {mask:#x} fits below its cursor {below}");
        }
        let (from, to) = self.run;
        assert!(from > to || self.run == NO_RUN || run[from as usize] >= to - from, "remembered run");
    }

    /// Whether nothing is parked.
    pub fn keeps_nothing(&self) -> bool {
        self.kept == 0
    }

    /// Whether `n` granules fit anywhere, by a linear scan.
    pub fn fits(&self, n: u32, mask: u32) -> bool {
        let mut at = self.reserved;
        while at + n <= BITS {
            let start = (at + mask) & !mask;
            match (start..(start + n).min(BITS))
                .rev()
                .find(|at| self.words[(at / 64) as usize].alloc >> (at % 64) & 1 == 1)
            {
                Some(taken) => at = taken + 1,
                None => return start + n <= BITS,
            }
        }
        false
    }
}
