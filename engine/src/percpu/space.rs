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

use super::api::{Ask, request};
use super::bitmap::{FAR, runs_of};
use super::chunk::{After, Body, Chunk, GRANULE, NO_SLOT, PAGES, PARK_MOST};
use super::claim::{Claim, HOLE_MOST};
use super::memory::{Memory, Pool};
use super::slots::{SLOTS, Slots, slot_of};
use super::taken::Taken;
use super::totals::{Sizes, Totals};
use super::units::{Handle, UNIT, Units};
use crate::arch::atomic::AtomicBool;
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::lock::{Guard, Lock};
use crate::arch::sys;
use crate::arch::{PAGE, PAGE_SHIFT};
use crate::stat::BadPointer;
use core::num::NonZeroUsize;
use core::ptr::null_mut;

pub use super::api::{Balanced, Error, How};

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
/// Empty pages that a chunk has before it gives them.
const QUARTER: u32 = PAGES.div_ceil(4);
/// How many frees of a bulk wait for memory at once.
const AHEAD: usize = 8;

#[derive(Debug)]
pub(super) struct State {
    slots: Slots,
    pool: Pool,
    /// Where the next chunk might go.
    hint: usize,
    /// The listed chunk without an allocation that is kept.
    idle: *mut Chunk,
    /// Highest claim ever, plus one.
    claims: usize,
    pub(super) chunks: usize,
    pub(super) chunks_most: usize,
    /// Of chunks that were given back.
    pub(super) gone: Sizes,
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
    pub(crate) memory: Memory,
    pub(super) state: Lock<State>,
    /// The first chunk's metadata.
    pub(super) first: Chunk,
    /// It may be used.
    opened: AtomicBool,
}

impl Default for Space {
    fn default() -> Self {
        Self::new()
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
            memory: Memory::new(),
            state: Lock::new(State {
                slots: Slots::new(),
                pool: Pool::new(),
                hint: 0,
                idle: null_mut(),
                claims: 0,
                chunks: 0,
                chunks_most: 0,
                gone: Sizes::new(),
            }),
            first: Chunk::new(),
            opened: AtomicBool::new(false),
        }
    }

    /// Allows allocation. The first chunk is mapped by the first one.
    ///
    /// # Safety
    /// [`Units::open`] was called; the space is where it will always be.
    pub unsafe fn open(&self) {
        self.opened.store(true, Release);
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
        let mut body = self.memory.chunk_of(address)?.body.lock_elided();
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
        let (address, rest) = claim.recall(holes, n, mask)?;
        let mut body = self.memory.chunk_of(address)?.body.lock_elided();
        // Not from a chunk that another index has claimed; and one without allocations goes.
        if body.owner != 0 && body.owner != at as u32 + 1 || body.live == 0 {
            return None;
        }
        let taken = body.take_at(address, n, &self.totals)?;
        body.note_size(size as u32);
        drop(body);
        if rest != 0 {
            claim.remember(address + n as usize * GRANULE, (rest / GRANULE) as u32);
        }
        Some(taken)
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
            // Whoever wrote a unit raised `high` before; that it is seen here follows from what
            // ordered its use of the memory before the free.
            taken.zero(n as usize * GRANULE, self.written());
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

    #[cold]
    #[inline(never)]
    fn alloc_slow(&'static self, size: usize, n: u32, mask: u32, how: How) -> Result<Handle, Error> {
        // Acquire: pairs with `open`.
        if !self.opened.load(Acquire) {
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
            let base = self.memory.map_chunk(&mut state.hint, self.units.indices() + 1)?;
            self.totals.empty_most.store(EMPTY_LEAST, Relaxed);
            self.memory.publish(&self.first);
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
        body.free_parked(&self.totals);
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
        body.fold(&self.totals);
        let base = core::mem::replace(&mut body.base, 0);
        let entry = self.memory.entry(base);
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
        state.gone.add(body.allocs, body.smallest, body.largest);
        state.hint = base;
        state.pool.keep(chunk);
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
        if !self.totals.parked.load(Relaxed) {
            return false;
        }
        self.totals.parked.store(false, Relaxed);
        for chunk in self.memory.chunks() {
            let body = if wait { Some(chunk.body.lock_elided()) } else { chunk.body.try_lock() };
            let Some(mut body) = body else {
                self.totals.parked.store(true, Relaxed);
                continue;
            };
            body.free_parked(&self.totals);
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
        let chunk = self.memory.metadata(&mut state.pool)?;
        match self.memory.map_chunk(&mut state.hint, self.units.indices() + 1) {
            Some(base) => {
                self.enlist(state, chunk, base, 0);
                Some(chunk)
            }
            None => {
                state.pool.keep(chunk);
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
        self.memory.entry(base).store((&raw const *chunk) as usize, Release);
    }

    /// Frees what [`Space::alloc`] gave, by its address.
    ///
    /// # Errors
    /// [`BadPointer`]; nothing was changed.
    ///
    /// # Safety
    /// Nobody uses the allocation any more, if it is one.
    #[inline]
    pub unsafe fn free(&'static self, address: usize) -> Result<(), BadPointer> {
        let Some(chunk) = self.memory.chunk_of(address) else { return Err(BadPointer::Foreign) };
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
            if !self.totals.parked.load(Relaxed) {
                self.totals.parked.store(true, Relaxed);
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
    pub unsafe fn free_bulk(&'static self, addresses: &[usize], mut bad: impl FnMut(usize, BadPointer)) {
        for (at, &address) in addresses.iter().enumerate() {
            if let Some(&ahead) = addresses.get(at + AHEAD)
                && let Some(chunk) = self.memory.chunk_of(ahead)
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
        if body.slot != NO_SLOT {
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

    /// Gives empty pages back, and keeps a few filled for [`How::Populated`], by the kernel's
    /// rules: a chunk gives its empty pages if they are a quarter of it and more than [`HIGH`]
    /// are elsewhere. Cost: a visit of each chunk, a system call for each run of pages in each
    /// unit in use.
    pub fn balance(&'static self) -> Balanced {
        let _inside = self.units.gate.enter_patiently();
        let mut done = Balanced::default();
        let mut populated = 0;
        self.settle_all(&mut self.state.lock(), true);
        for chunk in self.memory.chunks() {
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
        let mut given = 0;
        for (page, count) in runs_of(body.empty_pages()) {
            let (offset, len) = (page << PAGE_SHIFT, count << PAGE_SHIFT);
            let clean = self.written().all(|unit| self.memory.give_back(body.base + unit * UNIT + offset, len));
            // What failed stays dirty, and populated: it is offered again.
            body.depopulated((u64::MAX >> (64 - count)) << page, clean, &self.totals);
            given += if clean { count } else { 0 };
        }
        given
    }

    /// Fills empty pages until there are [`HIGH`]; how many. From the end of a chunk, where
    /// first fit comes last.
    fn populate(&self) -> usize {
        let mut filled = 0;
        for chunk in self.memory.chunks() {
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
                if !(1..=self.units.high()).all(|unit| self.memory.fill(body.base + unit * UNIT + (page << PAGE_SHIFT)))
                {
                    return filled;
                }
                body.repopulated(1 << page, &self.totals);
                filled += 1;
            }
        }
        filled
    }
}

const _: () = assert!(RESERVED.is_multiple_of(PAGE));

#[cfg(test)]
mod tests;
