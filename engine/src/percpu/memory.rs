//! # What a space has of the system
//!
//! ```text
//! leaves[address >> 33] ──► [address >> 18] ──► chunk        two loads from an address to its chunk; 0: none
//! newest ──► chunk ──► older ──► …                           all that ever were
//! ```
//! Mappings of chunks, of leaves and of metadata, their pages, and the ways from an address to a chunk.
//!
//! Units: bytes. Invariants: leaves and metadata are never unmapped; a chunk's leaf is made with it. Locks: what changes
//! something is called under the space's. Cost: two loads to find a chunk; a system call for each mapping.
#![allow(unsafe_code)] // chunks and leaves by address

use super::chunk::Chunk;
use super::units::{UNIT, UNIT_SHIFT};
#[cfg(test)]
use crate::arch::atomic::AtomicU32;
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicPtr, AtomicUsize};
use crate::arch::sys::{self, Access, Advice};
use crate::arch::{ADDRESS_BITS, PAGE};
use core::ptr::null_mut;

const LEAF_BITS: u32 = 15;
const LEAVES: usize = 1 << (ADDRESS_BITS - UNIT_SHIFT - LEAF_BITS);
const LEAF_BYTES: usize = size_of::<AtomicUsize>() << LEAF_BITS;
/// Bytes of chunks' metadata that are mapped at once; the first time, and later: a huge page,
/// because frees at random places miss the TLB more than the cache.
const AREA: usize = 512 << 10;
const AREA_HUGE: usize = 2 << 20;

/// See the module. All zero bytes at first.
#[derive(Debug)]
pub struct Memory {
    leaves: [AtomicUsize; LEAVES],
    /// All chunks that ever were, by `older`.
    newest: AtomicPtr<Chunk>,
    /// What the system refuses, in tests.
    #[cfg(test)]
    pub(crate) refuse: AtomicU32,
}

/// Metadata that has no chunk. The space's lock guards it.
#[derive(Debug)]
pub struct Pool {
    /// That of chunks which went back, by `next`.
    spare: *mut Chunk,
    /// Untouched.
    area: usize,
    area_end: usize,
}

// SAFETY: chunks live for ever; the pointers are used under the lock.
unsafe impl Send for Pool {}

impl Pool {
    /// None.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { spare: null_mut(), area: 0, area_end: 0 }
    }
    /// Keeps what has no memory any more.
    pub fn keep(&mut self, chunk: &'static Chunk) {
        chunk.next.store(self.spare, Relaxed);
        self.spare = (&raw const *chunk).cast_mut();
    }
}

impl Memory {
    #[cfg(test)]
    pub(crate) const REFUSE_MAP: u32 = 1;
    #[cfg(test)]
    pub(crate) const REFUSE_DONT_NEED: u32 = 2;
    #[cfg(test)]
    pub(crate) const REFUSE_POPULATE: u32 = 4;

    /// None.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            leaves: [const { AtomicUsize::new(0) }; LEAVES],
            newest: AtomicPtr::new(null_mut()),
            #[cfg(test)]
            refuse: AtomicU32::new(0),
        }
    }

    /// The chunk of an address in nobody's unit.
    #[inline]
    pub fn chunk_of(&self, address: usize) -> Option<&'static Chunk> {
        // SAFETY: chunks live for ever; an entry is null or one of them.
        self.leaf(address).and_then(|entry| unsafe { (entry.load(Acquire) as *const Chunk).as_ref() })
    }

    /// The entry of a chunk with memory, by its base.
    pub fn entry(&self, base: usize) -> &AtomicUsize {
        match self.leaf(base) {
            Some(entry) => entry,
            None => unreachable!("a chunk's leaf is made with it"),
        }
    }

    /// The entry of a unit's address, if its leaf is there.
    #[inline]
    fn leaf(&self, address: usize) -> Option<&AtomicUsize> {
        let unit = address >> UNIT_SHIFT;
        let leaf = self.leaves.get(unit >> LEAF_BITS)?;
        // Acquire: pairs with the Release of `map_chunk`.
        let leaf = leaf.load(Acquire);
        if leaf == 0 {
            return None;
        }
        let at = leaf + (unit & ((1 << LEAF_BITS) - 1)) * size_of::<AtomicUsize>();
        // SAFETY: a leaf is an array of that many words, for ever.
        Some(unsafe { &*(at as *const AtomicUsize) })
    }

    /// Maps so many units, and the leaf that they need.
    pub fn map_chunk(&self, hint: &mut usize, units: usize) -> Option<usize> {
        let len = units * UNIT;
        let base = self.map_aligned(*hint, len, UNIT)?;
        // Chunks lie side by side, downwards, so that they are one mapping for the system.
        *hint = base.saturating_sub(len);
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
    pub(crate) fn map_aligned(&self, hint: usize, len: usize, align: usize) -> Option<usize> {
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
    pub fn metadata(&self, pool: &mut Pool) -> Option<&'static Chunk> {
        // SAFETY: chunks live for ever.
        if let Some(chunk) = unsafe { pool.spare.as_ref() } {
            pool.spare = chunk.next.load(Relaxed);
            return Some(chunk);
        }
        if pool.area + size_of::<Chunk>() > pool.area_end {
            let (bytes, advice) = if pool.area == 0 { (AREA, Advice::NoHuge) } else { (AREA_HUGE, Advice::Huge) };
            let area = self.map_aligned(0, bytes, bytes)?;
            // SAFETY: fresh and ours. A refusal costs time or memory only.
            let _ = unsafe { sys::advise(area, bytes, advice) };
            (pool.area, pool.area_end) = (area, area + bytes);
        }
        let at = pool.area as *mut Chunk;
        pool.area += size_of::<Chunk>();
        // SAFETY: fresh zeroed memory of its size and alignment, never unmapped. Zero bytes are
        // a chunk without memory.
        let chunk = unsafe { &*at };
        self.publish(chunk);
        Some(chunk)
    }

    /// Lets walks find a chunk for the first time. The space's lock is held.
    pub fn publish(&self, chunk: &'static Chunk) {
        chunk.older.store(self.newest.load(Relaxed), Relaxed);
        // Release: whoever walks finds it made. (Under the space's lock: no other store.)
        self.newest.store((&raw const *chunk).cast_mut(), Release);
    }

    /// All chunks that ever were.
    pub fn chunks(&self) -> impl Iterator<Item = &'static Chunk> + use<> {
        // Acquire: pairs with the Release of `publish`. SAFETY: chunks live for ever.
        let mut at = unsafe { self.newest.load(Acquire).as_ref::<'static>() };
        core::iter::from_fn(move || {
            let here = at?;
            // SAFETY: as above.
            at = unsafe { here.older.load(Acquire).as_ref() };
            Some(here)
        })
    }

    /// Gives pages back; whether all of them read as zero now.
    pub fn give_back(&self, at: usize, len: usize) -> bool {
        #[cfg(test)]
        if self.refuse.load(Relaxed) & Self::REFUSE_DONT_NEED != 0 {
            return false;
        }
        // SAFETY: empty pages of a chunk whose lock the caller holds.
        unsafe { sys::give_back(at, len) }
    }

    /// Fills a page; whether it is.
    pub fn fill(&self, at: usize) -> bool {
        #[cfg(test)]
        if self.refuse.load(Relaxed) & Self::REFUSE_POPULATE != 0 {
            return false;
        }
        // SAFETY: a page of a chunk; its contents stay.
        unsafe { sys::advise(at, PAGE, Advice::PopulateWrite).is_ok() }
    }
}
