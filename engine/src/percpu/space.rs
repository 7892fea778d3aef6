//! # Per-CPU memory
//!
//! ```text
//! alloc(size, align) ─► claims[index]: a freed one of this very size   one lock, of its chunk
//!                            │ none
//!                            ▼ a hole that a free has left             one lock, of its chunk
//!                            │ none
//!                            ▼ the claimed chunk: first fit            one lock, of the chunk
//!                            │ no fit, or no chunk
//!                            ▼
//!             slots, fullest first ─► what is parked ─► idle claims of others ─► a new chunk    the space's lock
//!
//! free(address) ─► leaves[address >> 33][address >> 18] ─► chunk: parks it, or frees it       one lock, of the chunk
//! ```
//! A handle is an address in nobody's unit; index `i` has its copy `(i + 1) × UNIT` further.
//! Any size from 1 byte to a unit, any power-of-two alignment to a page, zeroed.
//!
//! | a chunk is | `owner` | `slot` | `base` |
//! |---|---|---|---|
//! | claimed: one index allocates in it | that claim + 1 | none | set |
//! | listed: whoever finds a fit claims it | 0 | by its hint | set |
//! | without memory: its metadata waits | 0 | none | 0 |
//!
//! Two threads on two indices allocate from two chunks and share no lock. A chunk that another
//! index has claimed is not looked at unless that index has allocated nothing since somebody
//! last looked, or memory has run out; so there is at most one chunk more than needed for each
//! index in use, and none with one thread.
//!
//! **Exact before it grows.** A chunk is made only if a linear scan of all chunks that are
//! listed, or idle, would find no fit: hints skip a chunk only where they prove it, and what is parked
//! anywhere is freed before (`settle_all`).
//!
//! **Sheaves.** A chunk parks freed small allocations ([`super::chunk`]), and the index that freed one remembers where
//! (its claim), 16 of a size. The chunk is right and the claim may be wrong, so a race loses a place to look at and
//! no memory. Numbers are of the chunk, and count what is parked as free.
//!
//! **Zeroing.** Fresh pages are zero and not written. A page in which something has been freed
//! is dirty; allocations there zero their bytes in the units of indices below
//! [`Units::high`], and in nobody's.
//!
//! **Population.** The system fills pages when they are touched. Empty pages go back in bulk
//! ([`Space::balance`]), chunks without an allocation as a whole, all but one. Who must not
//! call the system uses [`How::Populated`]; from then on [`LOW`] to [`HIGH`] empty pages are
//! kept filled in the units in use.
//!
//! Invariants: a chunk is in one row of the table; metadata is never unmapped; the first
//! chunk is never given back. Locks: `space`, then a chunk's; `space` is held across `mmap`
//! and `munmap` of a chunk, a chunk's lock across `madvise` of its own pages.
//! Cost: see [`super::chunk`]; the slow path is one more lock and one visit of a chunk, a
//! system call per chunk made or given back.
#![allow(unsafe_code)] // addresses of chunks and copies

#[cfg(test)]
extern crate std;

use super::bitmap::FAR;
use super::chunk::{After, Body, Chunk, GRANULE, PAGES, PARK_MOST, Taken, Totals};
use super::slots::{SLOTS, Slots, slot_of};
use super::units::{Handle, UNIT, UNIT_SHIFT, Units};
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use crate::arch::lock::{Guard, Lock};
use crate::arch::sys::{self, Access, Advice};
use crate::arch::{PAGE, PAGE_SHIFT};
use core::num::NonZeroUsize;
use core::ptr::null_mut;

pub use super::chunk::Wrong;

/// Claims: an index has that of its number, modulo this. (10 KiB each, of every process that locks its memory.)
pub const CLAIMS: usize = 64;
/// Bytes of the first chunk that only [`How::Reserved`] takes.
pub const RESERVED: usize = if UNIT >= SMALL_UNIT { 8 << 10 } else { 0 };
/// Models have units of a page, without a reserved region.
const SMALL_UNIT: usize = 64 << 10;
/// Empty populated pages to keep, once somebody wants them.
pub const LOW: isize = 2;
/// Empty populated pages to have after a [`Space::balance`].
pub const HIGH: isize = 4;
/// Empty pages go back when this many more have become so, and an eighth of those populated.
pub const EMPTY_LEAST: isize = 64;
/// Slots above the asked one's where a chunk is looked for first: there are four for each power of two.
const ROOMY: u32 = 8;

const ADDRESS_BITS: u32 = 47;
const LEAF_BITS: u32 = 15;
const LEAVES: usize = 1 << (ADDRESS_BITS - UNIT_SHIFT - LEAF_BITS);
const LEAF_BYTES: usize = size_of::<AtomicUsize>() << LEAF_BITS;
/// Empty pages that a chunk has before it gives them.
const QUARTER: u32 = PAGES.div_ceil(4);
/// Bytes of chunks' metadata that are mapped at once; the first time, and later: a huge page,
/// because frees at random places miss the TLB more than the cache.
const AREA: usize = 512 << 10;
const AREA_HUGE: usize = 2 << 20;

/// Why there is no allocation. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The size is zero.
    Size,
    /// The alignment is no power of two, or above a page.
    Align,
    /// More than a unit holds.
    TooLarge,
    /// The system has no more memory; for [`How::Populated`] and [`How::Reserved`], there is
    /// none of that kind.
    Exhausted,
    /// [`Space::open`] has not been called.
    Closed,
}

/// From where to allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    /// From anywhere.
    #[default]
    Normal,
    /// From pages that are populated, without a system call and without waiting (the kernel's
    /// atomic allocation). A page is populated if anything was ever allocated in it, or a
    /// balance has filled it.
    Populated,
    /// From the reserved region of the first chunk.
    Reserved,
}

/// What a [`Space::balance`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balanced {
    /// Pages of a unit given back.
    pub depopulated: usize,
    /// Pages of a unit filled.
    pub populated: usize,
}

/// How many frees of a bulk wait for memory at once.
const AHEAD: usize = 8;
/// Parked allocations of a size that a claim remembers.
const SHEAF: usize = 16;
/// Holes that a claim remembers for each slot.
const DEPTH: usize = 4;
/// Slots of holes.
const HOLES: usize = slot_of(HOLE_MOST) as usize + 1;
/// Granules of a hole that is remembered, at most; of more this many are.
const HOLE_MOST: u32 = 4 * FAR;

/// What an index allocates from; on lines of its own.
#[repr(C, align(64))]
#[derive(Debug)]
struct Claim {
    chunk: AtomicPtr<Chunk>,
    /// Sizes of which something is parked: bit `granules - 1`.
    sizes: AtomicU64,
    /// How many.
    parked_counts: [AtomicU8; PARK_MOST as usize],
    /// Where: the last ones, by size. Only where to look: the chunk says whether it is still so. Relaxed,
    /// and a race loses some, which stay parked until the chunk is settled.
    parked: [[AtomicU64; SHEAF]; PARK_MOST as usize],
    /// Slots that have holes.
    full: AtomicU64,
    /// How many.
    counts: [AtomicU8; HOLES],
    /// Free runs that frees have left, by slot, the last ones: address and, below, granules. Only
    /// where to look: the bitmap says whether it is still so. Relaxed, and a race loses some.
    holes: [[AtomicU64; DEPTH]; HOLES],
}

impl Claim {
    const fn new() -> Self {
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
    fn has_room(&self, n: u32) -> bool {
        n <= PARK_MOST && (self.parked_counts[n as usize - 1].load(Relaxed) as usize) < SHEAF
    }
    #[inline]
    fn push(&self, address: usize, place: usize, n: u32) {
        let count = self.parked_counts[n as usize - 1].load(Relaxed) as usize % SHEAF;
        self.parked[n as usize - 1][count].store((address as u64) << 8 | place as u64, Relaxed);
        self.parked_counts[n as usize - 1].store(count as u8 + 1, Relaxed);
        self.sizes.store(self.sizes.load(Relaxed) | 1 << (n - 1), Relaxed);
    }
    /// The last one of `n` granules, if it is so aligned: its address, and place in its chunk.
    #[inline]
    fn pop(&self, n: u32, mask: u32) -> Option<(usize, usize)> {
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

    #[inline]
    fn remember(&self, address: usize, n: u32) {
        let slot = slot_of(n) as usize;
        // The last one is overwritten when there is no room.
        let count = (self.counts[slot].load(Relaxed) as usize).min(DEPTH - 1);
        self.holes[slot][count].store((address as u64) << 16 | u64::from(n), Relaxed);
        self.counts[slot].store(count as u8 + 1, Relaxed);
        self.full.store(self.full.load(Relaxed) | 1 << slot, Relaxed);
    }

    #[inline]
    fn recall(&self, slot: usize) -> u64 {
        let count = (self.counts[slot].load(Relaxed) as usize).clamp(1, DEPTH) - 1;
        self.counts[slot].store(count as u8, Relaxed);
        if count == 0 {
            self.full.store(self.full.load(Relaxed) & !(1 << slot), Relaxed);
        }
        self.holes[slot][count].load(Relaxed)
    }
}

#[derive(Debug)]
pub(super) struct State {
    slots: Slots,
    /// Metadata without memory, by `next`.
    spare: *mut Chunk,
    /// Untouched metadata.
    area: usize,
    area_end: usize,
    /// Where the next chunk might go.
    hint: usize,
    /// The listed chunk without an allocation that is kept.
    idle: *mut Chunk,
    /// Highest claim ever, plus one.
    claims: usize,
    pub(super) chunks: usize,
    pub(super) chunks_most: usize,
    /// Of chunks that were given back.
    pub(super) allocs: u64,
    pub(super) smallest: u32,
    pub(super) largest: u32,
}

// SAFETY: chunks live for ever; the pointers are used under the lock.
unsafe impl Send for State {}

/// See the module.
#[derive(Debug)]
pub struct Space {
    /// Where copies are.
    pub units: Units,
    pub(super) totals: Totals,
    claims: [Claim; CLAIMS],
    leaves: [AtomicUsize; LEAVES],
    /// All chunks that ever were, by `older`.
    newest: AtomicPtr<Chunk>,
    pub(super) state: Lock<State>,
    /// The first chunk's metadata.
    pub(super) first: Chunk,
    /// What the system refuses, in tests.
    #[cfg(test)]
    pub(crate) refuse: AtomicU32,
    /// 1 once it may be used.
    opened: AtomicU32,
}

impl Default for Space {
    fn default() -> Self {
        Self::new()
    }
}

/// Size and alignment as granules and mask.
#[inline]
fn request(size: usize, align: usize) -> Result<(u32, u32), Error> {
    // One test for the usual case; `size` 0 wraps.
    if size.wrapping_sub(1) >= UNIT || !align.is_power_of_two() || align > PAGE {
        return Err(wrong_request(size, align));
    }
    Ok((size.div_ceil(GRANULE) as u32, (align.div_ceil(GRANULE) - 1) as u32))
}
#[cold]
fn wrong_request(size: usize, align: usize) -> Error {
    if size == 0 {
        Error::Size
    } else if !align.is_power_of_two() || align > PAGE {
        Error::Align
    } else {
        Error::TooLarge
    }
}

impl Space {
    /// Without memory: all zero bytes, so that a process that uses none pays for none.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            units: Units::new(),
            totals: Totals::new(),
            claims: [const { Claim::new() }; CLAIMS],
            leaves: [const { AtomicUsize::new(0) }; LEAVES],
            newest: AtomicPtr::new(null_mut()),
            state: Lock::new(State {
                slots: Slots::new(),
                spare: null_mut(),
                area: 0,
                area_end: 0,
                hint: 0,
                idle: null_mut(),
                claims: 0,
                chunks: 0,
                chunks_most: 0,
                allocs: 0,
                smallest: 0,
                largest: 0,
            }),
            first: Chunk::new(),
            #[cfg(test)]
            refuse: AtomicU32::new(0),
            opened: AtomicU32::new(0),
        }
    }

    /// Allows allocation. The first chunk is mapped by the first one.
    ///
    /// # Safety
    /// [`Units::open`] was called; the space is where it will always be.
    pub unsafe fn open(&self) {
        self.opened.store(1, Release);
    }

    /// Allocates `size` bytes, zeroed in every unit; the address is in nobody's.
    ///
    /// # Errors
    /// [`Error`]. Cost: see the module.
    #[inline]
    pub fn alloc(&'static self, size: usize, align: usize, how: How) -> Result<Handle, Error> {
        let (n, mask) = request(size, align)?;
        let _inside = self.units.gate.enter_patiently();
        if how == How::Normal {
            let claim = self.units.here() % CLAIMS;
            // What was freed of this very size.
            if n <= PARK_MOST
                && self.claims[claim].sizes.load(Relaxed) >> (n - 1) & 1 != 0
                && let Some(taken) = self.unpark(claim, size, n, mask)
            {
                return Ok(self.finish(taken, n));
            }
            // A hole: none in a program that only allocates.
            let holes = self.claims[claim].full.load(Relaxed);
            if holes != 0
                && n <= FAR
                && let Some(taken) = self.fill_hole(claim, holes, size, n, mask)
            {
                return Ok(self.finish(taken, n));
            }
            if let Some(chunk) = self.claimed(claim) {
                let mut body = chunk.body.lock_elided();
                // Another thread may have taken the claim away since it was read.
                if body.owner == claim as u32 + 1
                    && let Some(taken) = body.take(n, mask, &self.totals)
                {
                    body.note_size(size as u32);
                    drop(body);
                    return Ok(self.finish(taken, n));
                }
            }
        }
        self.alloc_slow(size, n, mask, how)
    }

    /// Allocates what a free has left whole, in whatever chunk.
    #[inline(never)]
    fn unpark(&'static self, claim: usize, size: usize, n: u32, mask: u32) -> Option<Taken> {
        let (address, place) = self.claims[claim].pop(n, mask)?;
        let mut body = self.chunk_of(address)?.body.lock_elided();
        // Not from a chunk that another index has claimed.
        if body.owner != 0 && body.owner != claim as u32 + 1 {
            return None;
        }
        let taken = body.unpark(address, place, n, &self.totals)?;
        body.note_size(size as u32);
        Some(taken)
    }

    /// Allocates in a hole that a free has left, in whatever chunk.
    #[inline(never)]
    fn fill_hole(&'static self, at: usize, holes: u64, size: usize, n: u32, mask: u32) -> Option<Taken> {
        let claim = &self.claims[at];
        // All in it are large enough.
        let slot = slot_of(n - 1) + 1;
        let holes = holes >> slot;
        if holes == 0 {
            return None;
        }
        let slot = slot + holes.trailing_zeros();
        let hole = claim.recall(slot as usize);
        let (begin, end) = ((hole >> 16) as usize, (hole >> 16) as usize + (hole & 0xffff) as usize * GRANULE);
        let align = (mask as usize + 1) * GRANULE;
        let address = begin.next_multiple_of(align);
        let rest = end.checked_sub(address + n as usize * GRANULE)?;
        let mut body = self.chunk_of(address)?.body.lock_elided();
        // Not from a chunk that another index has claimed; and one without allocations goes.
        if body.owner != 0 && body.owner != at as u32 + 1 || body.live == 0 {
            return None;
        }
        let taken = body.take_at(address, n, &self.totals)?;
        body.note_size(size as u32);
        drop(body);
        if rest != 0 {
            claim.remember(end - rest, (rest / GRANULE) as u32);
        }
        Some(taken)
    }

    #[inline]
    fn chunk_of(&self, address: usize) -> Option<&'static Chunk> {
        // SAFETY: chunks live for ever; an entry is null or one of them.
        self.leaf(address).0.and_then(|entry| unsafe { (entry.load(Acquire) as *const Chunk).as_ref() })
    }

    #[inline]
    fn claimed(&self, claim: usize) -> Option<&'static Chunk> {
        // Acquire: pairs with the Release of whoever claimed it, so that its body is seen made.
        // SAFETY: chunks live for ever.
        unsafe { self.claims[claim].chunk.load(Acquire).as_ref() }
    }

    /// Zeroes what is not known to be zero.
    #[inline]
    fn finish(&'static self, taken: Taken, n: u32) -> Handle {
        if taken.dirty != 0 {
            self.zero(taken, n);
        }
        if taken.low() {
            self.balance();
        }
        // SAFETY: an address in unit 0 of a chunk, allocated.
        unsafe { Handle::new(NonZeroUsize::new_unchecked(taken.address())) }
    }

    /// Units that may have been written: nobody's is 0.
    #[inline]
    fn written(&self) -> core::ops::RangeInclusive<usize> {
        usize::from(!self.units.nobody_used())..=self.units.high()
    }

    #[inline]
    fn zero(&self, taken: Taken, n: u32) {
        let (address, bytes) = (taken.address(), n as usize * GRANULE);
        // Whoever wrote a unit raised `high` before; that it is seen here follows from what
        // ordered its use of the memory before the free.
        if address % PAGE + bytes > PAGE {
            return self.zero_pages(taken, bytes);
        }
        let (mut at, units) = (address + self.written().start() * UNIT, self.written().count());
        for _ in 0..units {
            // SAFETY: the allocation's bytes in a unit; nobody else has it yet.
            unsafe { zero_bytes(at, bytes) };
            at += UNIT;
        }
    }

    /// What crosses pages: only the dirty ones are written.
    #[cold]
    #[inline(never)]
    fn zero_pages(&self, taken: Taken, bytes: usize) {
        let base = taken.address() & !(UNIT - 1);
        let (begin, end) = (taken.address() - base, taken.address() - base + bytes);
        for page in (begin >> PAGE_SHIFT)..=((end - 1) >> PAGE_SHIFT) {
            if taken.dirty >> page & 1 == 0 {
                continue;
            }
            let (from, to) = (begin.max(page * PAGE), end.min((page + 1) * PAGE));
            for unit in self.written() {
                // SAFETY: as in `zero`.
                unsafe { core::ptr::write_bytes((base + unit * UNIT + from) as *mut u8, 0, to - from) };
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&'static self, size: usize, n: u32, mask: u32, how: How) -> Result<Handle, Error> {
        // Acquire: pairs with `open`.
        if self.opened.load(Acquire) == 0 {
            return Err(Error::Closed);
        }
        let taken = match how {
            How::Normal => self.alloc_anywhere(size, n, mask),
            How::Populated => self.alloc_populated(size, n, mask),
            How::Reserved => {
                let mut state = self.state.lock();
                self.first_chunk(&mut state).and_then(|first| {
                    let mut body = first.body.lock();
                    let taken = body.take_reserved(n, mask, &self.totals)?;
                    body.note_size(size as u32);
                    Some(taken)
                })
            }
        };
        taken.map(|taken| self.finish(taken, n)).ok_or(Error::Exhausted)
    }

    /// The first chunk, made if it is not yet.
    fn first_chunk(&'static self, state: &mut State) -> Option<&'static Chunk> {
        if self.first.body.lock().base == 0 {
            let base = self.map_chunk(state)?;
            self.totals.empty_most.store(EMPTY_LEAST, Relaxed);
            self.publish(&self.first);
            self.enlist(state, &self.first, base, RESERVED);
        }
        Some(&self.first)
    }

    fn alloc_anywhere(&'static self, size: usize, n: u32, mask: u32) -> Option<Taken> {
        let claim = self.units.here() % CLAIMS;
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.chunks == 0 {
            self.first_chunk(state)?;
        }
        if let Some(chunk) = self.claimed(claim) {
            let mut body = chunk.body.lock();
            if body.owner == claim as u32 + 1 {
                // Another thread of this index may have found one since.
                if let Some(taken) = body.take(n, mask, &self.totals) {
                    body.note_size(size as u32);
                    return Some(taken);
                }
                self.release(state, chunk, &mut body);
            }
        }
        let ask = Ask { claim, size: size as u32, n, mask };
        if let Some(taken) = self.pick(state, ask) {
            return Some(taken);
        }
        if self.settle_all(state, true)
            && let Some(taken) = self.pick(state, ask)
        {
            return Some(taken);
        }
        if self.release_idle(state, claim)
            && let Some(taken) = self.pick(state, ask)
        {
            return Some(taken);
        }
        if let Some(chunk) = self.make(state) {
            let mut body = chunk.body.lock();
            return self.take_and_claim(state, chunk, &mut body, ask);
        }
        // No more memory: then also from what others have claimed.
        (0..state.claims).find_map(|other| {
            let mut body = self.claimed(other)?.body.lock();
            // (Its owner may be another claim by now: that one is in use as well.)
            let taken = (body.base != 0).then(|| body.take(n, mask, &self.totals))??;
            body.note_size(size as u32);
            Some(taken)
        })
    }

    /// Looks in listed chunks, fullest first; claims the one that has a fit.
    fn pick(&'static self, state: &mut State, ask: Ask) -> Option<Taken> {
        let own = slot_of(ask.n);
        // First where there is room for more of the kind, then where there is enough (but for the
        // alignment), then in the own slot, of which some hold less than asked.
        let roomy = (own + ROOMY).min(SLOTS as u32 - 1);
        self.pick_range(state, roomy..SLOTS as u32, ask)
            .or_else(|| self.pick_range(state, own + 1..roomy, ask))
            .or_else(|| self.pick_range(state, own..own + 1, ask))
    }

    fn pick_range(&'static self, state: &mut State, range: core::ops::Range<u32>, ask: Ask) -> Option<Taken> {
        let mut slot = range.start;
        while let Some(at) = state.slots.next(slot).filter(|at| *at < range.end) {
            if let Some(taken) = self.pick_in(state, at, ask) {
                return Some(taken);
            }
            slot = at + 1;
        }
        None
    }

    fn pick_in(&'static self, state: &mut State, slot: u32, ask: Ask) -> Option<Taken> {
        let mut at = state.slots.first(slot);
        // SAFETY: chunks live for ever.
        while let Some(chunk) = unsafe { at.as_ref::<'static>() } {
            at = chunk.next.load(Relaxed);
            let mut body = chunk.body.lock_elided();
            if let Some(taken) = self.take_and_claim(state, chunk, &mut body, ask) {
                return Some(taken);
            }
            // The search has proven less than the slot says.
            state.slots.relocate(chunk, &mut body);
        }
        None
    }

    fn take_and_claim(&self, state: &mut State, chunk: &'static Chunk, body: &mut Body, ask: Ask) -> Option<Taken> {
        let taken = body.take(ask.n, ask.mask, &self.totals)?;
        body.note_size(ask.size);
        state.slots.remove(chunk, body);
        if core::ptr::eq(state.idle, chunk) {
            state.idle = null_mut();
        }
        body.owner = ask.claim as u32 + 1;
        state.claims = state.claims.max(ask.claim + 1);
        // Release: see `claimed`.
        self.claims[ask.claim].chunk.store((&raw const *chunk).cast_mut(), Release);
        Some(taken)
    }

    /// Gives a claim up: its chunk is listed.
    fn release(&'static self, state: &mut State, chunk: &'static Chunk, body: &mut Body) {
        self.claims[body.owner as usize - 1].chunk.store(null_mut(), Relaxed);
        body.owner = 0;
        body.settle(&self.totals);
        state.slots.add(chunk, body);
        self.settle_idle(state, chunk, body);
    }

    /// A listed chunk without an allocation is the one that is kept, or goes back to the system.
    fn settle_idle(&'static self, state: &mut State, chunk: &'static Chunk, body: &mut Body) {
        if body.live != 0 || body.first || core::ptr::eq(state.idle, chunk) {
            return;
        }
        if state.idle.is_null() {
            state.idle = (&raw const *chunk).cast_mut();
            return;
        }
        // One is kept already. Without base and entry nobody reaches this one. Both locks are held across
        // the call, so that no forked child finds the chunk nowhere.
        state.slots.remove(chunk, body);
        body.tell(&self.totals);
        let base = core::mem::replace(&mut body.base, 0);
        let entry = self.leaf(base).expect_made();
        entry.store(0, Relaxed);
        // SAFETY: nothing in it is allocated, and nobody else would unmap it.
        let unmapped = unsafe { sys::unmap(base, (self.units.indices() + 1) * UNIT) };
        if unmapped.is_err() {
            body.base = base;
            state.slots.add(chunk, body);
            // Release: as in `enlist`.
            entry.store((&raw const *chunk) as usize, Release);
            return;
        }
        self.totals.empty().fetch_sub(body.empty as isize, Relaxed);
        state.chunks -= 1;
        state.allocs += body.allocs;
        state.smallest = smaller(state.smallest, body.smallest);
        state.largest = state.largest.max(body.largest);
        state.hint = base;
        self.keep_metadata(state, chunk);
    }

    /// Gives up the claims of other indices that have allocated nothing since they were last
    /// looked at; with one thread, all. Whether there were any.
    fn release_idle(&'static self, state: &mut State, claim: usize) -> bool {
        let alone = sys::single_threaded();
        let mut any = false;
        for other in (0..state.claims).filter(|&other| other != claim) {
            let Some(chunk) = self.claimed(other) else { continue };
            let mut body = chunk.body.lock();
            if alone || body.seen == body.allocs {
                self.release(state, chunk, &mut body);
                any = true;
            } else {
                body.seen = body.allocs;
            }
        }
        any
    }

    /// Frees what is parked in all chunks (that nobody holds, if it shall not wait), so that a search finds it;
    /// whether there was anything. Cost: a visit of each chunk, if anything was parked since the last time.
    #[cold]
    pub(super) fn settle_all(&'static self, state: &mut State, wait: bool) -> bool {
        // Relaxed: what is parked and not seen here is parked later; what this thread knows of, it sees.
        if self.totals.parked.load(Relaxed) == 0 {
            return false;
        }
        self.totals.parked.store(0, Relaxed);
        for chunk in self.chunks() {
            let body = if wait { Some(chunk.body.lock_elided()) } else { chunk.body.try_lock() };
            let Some(mut body) = body else {
                self.totals.parked.store(1, Relaxed);
                continue;
            };
            body.settle(&self.totals);
            state.slots.relocate(chunk, &mut body);
        }
        true
    }

    /// Without a system call, and without waiting for anybody.
    fn alloc_populated(&'static self, size: usize, n: u32, mask: u32) -> Option<Taken> {
        let take = |chunk: &'static Chunk| {
            let mut body = chunk.body.try_lock()?;
            let taken = (body.base != 0).then(|| body.take_populated(n, mask, &self.totals))??;
            body.note_size(size as u32);
            // A balance would call the system: the next normal allocation does it.
            Some(taken.without_low())
        };
        self.totals.empty_least.store(LOW, Relaxed);
        if let Some(taken) = self.claimed(self.units.here() % CLAIMS).and_then(take) {
            return Some(taken);
        }
        let mut state = self.state.try_lock()?;
        self.settle_all(&mut state, false);
        let mut slot = slot_of(n);
        while let Some(at) = state.slots.next(slot) {
            let mut chunk = state.slots.first(at);
            // SAFETY: chunks live for ever.
            while let Some(here) = unsafe { chunk.as_ref() } {
                if let Some(taken) = take(here) {
                    if core::ptr::eq(state.idle, chunk) {
                        state.idle = null_mut();
                    }
                    return Some(taken);
                }
                chunk = here.next.load(Relaxed);
            }
            slot = at + 1;
        }
        // Others' claims.
        (0..state.claims).find_map(|other| take(self.claimed(other)?))
    }

    /// Makes a chunk; it is listed.
    fn make(&'static self, state: &mut State) -> Option<&'static Chunk> {
        let chunk = self.metadata(state)?;
        match self.map_chunk(state) {
            Some(base) => {
                self.enlist(state, chunk, base, 0);
                Some(chunk)
            }
            None => {
                self.keep_metadata(state, chunk);
                None
            }
        }
    }

    fn enlist(&'static self, state: &mut State, chunk: &'static Chunk, base: usize, reserved: usize) {
        let mut body = chunk.body.lock();
        body.begin(base, (reserved / GRANULE) as u32, core::ptr::eq(chunk, &raw const self.first));
        state.slots.add(chunk, &mut body);
        state.chunks += 1;
        state.chunks_most = state.chunks_most.max(state.chunks);
        // Release: whoever finds the chunk finds it made.
        self.leaf(base).expect_made().store((&raw const *chunk) as usize, Release);
    }

    /// The entry of a unit's address, if its leaf is there.
    #[inline]
    fn leaf(&self, address: usize) -> Entry<'_> {
        let unit = address >> UNIT_SHIFT;
        let Some(leaf) = self.leaves.get(unit >> LEAF_BITS) else { return Entry(None) };
        // Acquire: pairs with the Release of `map_chunk`.
        let leaf = leaf.load(Acquire);
        if leaf == 0 {
            return Entry(None);
        }
        let at = leaf + (unit & ((1 << LEAF_BITS) - 1)) * size_of::<AtomicUsize>();
        // SAFETY: a leaf is an array of that many words, for ever.
        Entry(Some(unsafe { &*(at as *const AtomicUsize) }))
    }

    /// Maps `indices + 1` units, and the leaf that they need.
    fn map_chunk(&self, state: &mut State) -> Option<usize> {
        let len = (self.units.indices() + 1) * UNIT;
        let base = self.map_aligned(state.hint, len, UNIT)?;
        // Chunks lie side by side, downwards, so that they are one mapping for the system.
        state.hint = base.saturating_sub(len);
        // SAFETY: fresh and ours. A refusal costs memory only.
        let _ = unsafe { sys::advise(base, len, Advice::NoHuge) };
        let leaf = &self.leaves[base >> UNIT_SHIFT >> LEAF_BITS];
        if leaf.load(Relaxed) == 0 {
            let Some(made) = self.map(0, LEAF_BYTES) else {
                // SAFETY: nobody has it yet.
                let _ = unsafe { sys::unmap(base, len) };
                return None;
            };
            // Release: whoever finds the leaf finds it mapped.
            leaf.store(made, Release);
        }
        Some(base)
    }

    /// Maps `len` bytes at a multiple of `align`, near `hint` if that is free.
    fn map_aligned(&self, hint: usize, len: usize, align: usize) -> Option<usize> {
        let at = self.map(hint, len)?;
        if at.is_multiple_of(align) {
            return Some(at);
        }
        // SAFETY: nobody has it yet. (Here and below a refusal leaves address space behind, unused.)
        let _ = unsafe { sys::unmap(at, len) };
        let wide = self.map(0, len + align)?;
        let at = wide.next_multiple_of(align);
        // SAFETY: as above; both ends.
        unsafe {
            if at > wide {
                let _ = sys::unmap(wide, at - wide);
            }
            let _ = sys::unmap(at + len, wide + align - at);
        }
        Some(at)
    }

    fn map(&self, hint: usize, len: usize) -> Option<usize> {
        #[cfg(test)]
        if self.refuse.load(Relaxed) & Self::REFUSE_MAP != 0 {
            return None;
        }
        sys::map(hint, len, Access::ReadWrite).ok()
    }

    /// A chunk's metadata, without memory.
    fn metadata(&'static self, state: &mut State) -> Option<&'static Chunk> {
        // SAFETY: chunks live for ever.
        if let Some(chunk) = unsafe { state.spare.as_ref() } {
            state.spare = chunk.next.load(Relaxed);
            return Some(chunk);
        }
        if state.area + size_of::<Chunk>() > state.area_end {
            let (bytes, advice) = if state.area == 0 { (AREA, Advice::NoHuge) } else { (AREA_HUGE, Advice::Huge) };
            let area = self.map_aligned(0, bytes, bytes)?;
            // SAFETY: fresh and ours. A refusal costs time or memory only.
            let _ = unsafe { sys::advise(area, bytes, advice) };
            (state.area, state.area_end) = (area, area + bytes);
        }
        let at = state.area as *mut Chunk;
        state.area += size_of::<Chunk>();
        // SAFETY: fresh zeroed memory of its size and alignment, never unmapped. Zero bytes are
        // a chunk without memory.
        let chunk = unsafe { &*at };
        self.publish(chunk);
        Some(chunk)
    }

    /// Lets walks find a chunk for the first time. The space's lock is held.
    fn publish(&self, chunk: &'static Chunk) {
        chunk.older.store(self.newest.load(Relaxed), Relaxed);
        // Release: whoever walks finds it made. (Under the space's lock: no other store.)
        self.newest.store((&raw const *chunk).cast_mut(), Release);
    }
    fn keep_metadata(&self, state: &mut State, chunk: &'static Chunk) {
        chunk.next.store(state.spare, Relaxed);
        state.spare = (&raw const *chunk).cast_mut();
    }

    /// Frees what [`Space::alloc`] gave, by its address.
    ///
    /// # Errors
    /// [`Wrong`]; nothing was changed.
    ///
    /// # Safety
    /// Nobody uses the allocation any more, if it is one.
    #[inline]
    pub unsafe fn free(&'static self, address: usize) -> Result<(), Wrong> {
        let Some(chunk) = self.chunk_of(address) else { return Err(Wrong::Foreign) };
        let _inside = self.units.gate.enter_patiently();
        let at = self.units.here() % CLAIMS;
        let claim = &self.claims[at];
        let mut body = chunk.body.lock_elided();
        let (start, end) = body.find(address)?;
        if claim.has_room(end - start)
            && (body.owner == 0 || body.owner == at as u32 + 1)
            && let Some(place) = body.park(start, end - start, &self.totals)
        {
            drop(body);
            claim.push(address, place, end - start);
            // Relaxed: see `settle_all`. Stored to seldom, so that threads do not share it.
            if self.totals.parked.load(Relaxed) == 0 {
                self.totals.parked.store(1, Relaxed);
            }
            return Ok(());
        }
        let after = body.give(start, end, &self.totals);
        drop(body);
        if after.hole.1 != 0 {
            claim.remember(after.hole.0, after.hole.1.min(HOLE_MOST));
        }
        if after.any() {
            self.after_free(chunk, after);
        }
        Ok(())
    }

    /// Frees several, and hands what is wrong to `bad`. The bitmaps' lines of later ones are asked for while earlier
    /// ones are freed: at random places one of them waits for memory as long as [`AHEAD`] do.
    ///
    /// # Safety
    /// As [`Space::free`], for each.
    pub unsafe fn free_bulk(&'static self, addresses: &[usize], mut bad: impl FnMut(usize, Wrong)) {
        for (at, &address) in addresses.iter().enumerate() {
            if let Some(&ahead) = addresses.get(at + AHEAD)
                && let Some(chunk) = self.chunk_of(ahead)
            {
                chunk.prefetch(ahead);
            }
            // SAFETY: the caller's promise.
            if let Err(wrong) = unsafe { self.free(address) } {
                bad(address, wrong);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn after_free(&'static self, chunk: &'static Chunk, after: After) {
        if after.relocate {
            self.relocate(chunk);
        }
        if after.balance {
            self.balance();
        }
    }

    /// Moves a listed chunk to where it belongs: into a slot, or back to the system.
    fn relocate(&'static self, chunk: &'static Chunk) {
        let mut state = self.state.lock();
        let mut body = chunk.body.lock();
        // What a look without the lock saw may be otherwise by now.
        if body.slot != super::chunk::NO_SLOT {
            state.slots.relocate(chunk, &mut body);
            self.settle_idle(&mut state, chunk, &mut body);
        }
    }

    /// Chunks that have memory.
    #[must_use]
    pub fn chunk_count(&self) -> usize {
        let _inside = self.units.gate.enter_patiently();
        self.state.lock().chunks
    }

    /// All chunks that ever were.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &'static Chunk> + use<> {
        // Acquire: pairs with the Release of who made it. SAFETY: chunks live for ever.
        let mut at = unsafe { self.newest.load(Acquire).as_ref::<'static>() };
        core::iter::from_fn(move || {
            let here = at?;
            // SAFETY: as above.
            at = unsafe { here.older.load(Acquire).as_ref() };
            Some(here)
        })
    }

    /// Gives empty pages back, and keeps a few filled for [`How::Populated`], by the kernel's
    /// rules: a chunk gives its empty pages if they are a quarter of it and more than [`HIGH`]
    /// are elsewhere. Cost: a visit of each chunk, a system call for each run of pages in each
    /// unit in use.
    pub fn balance(&'static self) -> Balanced {
        let _inside = self.units.gate.enter_patiently();
        let mut done = Balanced::default();
        let mut populated = 0;
        self.settle_all(&mut self.state.lock(), true);
        for chunk in self.chunks() {
            let mut body = chunk.body.lock();
            if body.base == 0 {
                continue;
            }
            let elsewhere = self.totals.empty().load(Relaxed) - body.empty as isize;
            if !body.first && body.empty >= QUARTER && elsewhere > HIGH {
                done.depopulated += self.depopulate(&mut body);
            }
            populated += body.populated.count_ones() as isize;
        }
        // Relaxed: hints when to look again.
        let rest = self.totals.empty().load(Relaxed);
        self.totals.empty_most.store(rest + EMPTY_LEAST.max(populated / 8), Relaxed);
        if self.totals.empty_least.load(Relaxed) > 0 {
            done.populated = self.populate();
        }
        done
    }

    /// Gives a chunk's empty pages back; how many.
    fn depopulate(&self, body: &mut Guard<'_, Body>) -> usize {
        let pages = body.empty_pages();
        let mut given = 0;
        for (page, count) in runs_of(pages) {
            let (offset, len) = (page << PAGE_SHIFT, count << PAGE_SHIFT);
            let clean = self.written().all(|unit| self.give_back(body.base + unit * UNIT + offset, len));
            // What failed stays dirty, and populated: it is offered again.
            body.depopulated((u64::MAX >> (64 - count)) << page, clean, &self.totals);
            given += if clean { count } else { 0 };
        }
        given
    }

    fn give_back(&self, at: usize, len: usize) -> bool {
        #[cfg(test)]
        if self.refuse.load(Relaxed) & Self::REFUSE_DONT_NEED != 0 {
            return false;
        }
        // SAFETY: empty pages of a chunk whose lock is held.
        unsafe {
            // Locked pages want it said.
            sys::advise(at, len, Advice::DontNeed).or_else(|_| sys::advise(at, len, Advice::DontNeedLocked)).is_ok()
        }
    }

    /// Fills empty pages until there are [`HIGH`]; how many. From the end of a chunk, where
    /// first fit comes last.
    fn populate(&self) -> usize {
        let mut filled = 0;
        for chunk in self.chunks() {
            let mut body = chunk.body.lock();
            if body.base == 0 {
                continue;
            }
            let mut bare = body.bare_pages();
            while bare != 0 {
                if self.totals.empty().load(Relaxed) >= HIGH {
                    return filled;
                }
                let page = bare.ilog2() as usize;
                bare &= !(1 << page);
                if !(1..=self.units.high()).all(|unit| self.fill(body.base + unit * UNIT + (page << PAGE_SHIFT))) {
                    return filled;
                }
                body.repopulated(1 << page, &self.totals);
                filled += 1;
            }
        }
        filled
    }

    fn fill(&self, at: usize) -> bool {
        #[cfg(test)]
        if self.refuse.load(Relaxed) & Self::REFUSE_POPULATE != 0 {
            return false;
        }
        // SAFETY: a page of a chunk; its contents stay.
        unsafe { sys::advise(at, PAGE, Advice::PopulateWrite).is_ok() }
    }

    #[cfg(test)]
    pub(crate) const REFUSE_MAP: u32 = 1;
    #[cfg(test)]
    pub(crate) const REFUSE_DONT_NEED: u32 = 2;
    #[cfg(test)]
    pub(crate) const REFUSE_POPULATE: u32 = 4;

    /// Something of each chunk that has memory.
    #[cfg(test)]
    pub fn bodies<T>(&'static self, look: impl Fn(&Body) -> T) -> std::vec::Vec<T> {
        let bodies = self.chunks().map(|chunk| chunk.body.lock());
        bodies.filter(|body| body.base != 0).map(|body| look(&body)).collect()
    }

    /// Every invariant, while nobody else is here.
    #[cfg(test)]
    #[allow(clippy::unwrap_used)]
    pub fn verify(&'static self) {
        let state = self.state.lock();
        let (mut chunks, mut empty, mut listed) = (0, 0, std::vec![]);
        for chunk in self.chunks() {
            let body = chunk.body.lock();
            if body.base == 0 {
                assert_eq!((body.owner, body.slot), (0, super::chunk::NO_SLOT));
                continue;
            }
            chunks += 1;
            empty += body.empty as isize;
            body.verify(&body.live_from(0).map(|(start, end)| (start, end - start)).collect::<std::vec::Vec<_>>());
            assert!(core::ptr::eq(self.chunk_of(body.base).unwrap(), chunk));
            if body.owner == 0 {
                assert!(slot_of(body.contig()) <= body.slot || body.contig_hint < body.raise_at, "listed too low");
                listed.push((body.slot, &raw const *chunk));
            } else {
                assert_eq!(body.slot, super::chunk::NO_SLOT);
                assert!(core::ptr::eq(self.claimed(body.owner as usize - 1).unwrap(), chunk));
            }
        }
        assert_eq!(chunks, state.chunks);
        assert_eq!(empty, self.totals.empty().load(Relaxed));
        let mut found = 0;
        for slot in 0..SLOTS as u32 {
            let mut at = state.slots.first(slot);
            // SAFETY: chunks live for ever.
            while let Some(chunk) = unsafe { at.as_ref() } {
                assert!(listed.contains(&(slot, at.cast_const())));
                found += 1;
                at = chunk.next.load(Relaxed);
            }
        }
        assert_eq!(found, listed.len());
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
struct Ask {
    claim: usize,
    size: u32,
    n: u32,
    mask: u32,
}

/// A place in the map from addresses to chunks.
struct Entry<'a>(Option<&'a AtomicUsize>);

impl<'a> Entry<'a> {
    /// Of a chunk: `map_chunk` made the leaf.
    fn expect_made(self) -> &'a AtomicUsize {
        match self.0 {
            Some(entry) => entry,
            None => unreachable!("a chunk's leaf is made with it"),
        }
    }
}

/// The smaller of two smallest sizes, of which 0 is none.
pub(super) fn smaller(one: u32, other: u32) -> u32 {
    if one == 0 || other != 0 && other < one { other } else { one }
}

/// Runs of set bits: first, and how many.
fn runs_of(mut pages: u64) -> impl Iterator<Item = (usize, usize)> {
    core::iter::from_fn(move || {
        if pages == 0 {
            return None;
        }
        let page = pages.trailing_zeros();
        let count = (pages >> page).trailing_ones();
        pages &= !((u64::MAX >> (64 - count)) << page);
        Some((page as usize, count as usize))
    })
}

/// Zeroes a multiple of a granule.
///
/// # Safety
/// The bytes are ours.
#[inline]
unsafe fn zero_bytes(at: usize, bytes: usize) {
    let to = at as *mut u8;
    // SAFETY: the caller's promise; all stores lie in `[at, at + bytes)`.
    unsafe {
        match bytes {
            4 => to.cast::<u32>().write(0),
            8..16 => {
                to.cast::<u64>().write_unaligned(0);
                to.add(bytes - 8).cast::<u64>().write_unaligned(0);
            }
            16..32 => {
                to.cast::<u128>().write_unaligned(0);
                to.add(bytes - 16).cast::<u128>().write_unaligned(0);
            }
            _ => to.write_bytes(0, bytes),
        }
    }
}

const _: () = assert!(RESERVED.is_multiple_of(PAGE));
