//! # A chunk of the side arena
//!
//! ```text
//! ┌ next, bytes, words ┬ block ┬ block ┬ … ┬ untouched ┐
//! └ used ─────────────────────────────────►
//! kept[k][n] ──► block ──► block ──► …   what is freed, by alignment (16, 64, a page) and length: 16 bytes apart up to 128, then four to a doubling
//! ```
//! A block is a header with its size and the memory behind; blocks lie one behind the other, and when the last of them has been freed the chunk is
//! empty again. Until then a block that is freed is kept for others of its length. Who takes a kept block is counted in its chunk before,
//! who frees one after it is kept: a chunk without blocks in use has all of them in its lists, and nobody looks there. A list's head counts its
//! changes beside where in its chunk the first block is, so that no block is taken by who saw another list (the same count comes again after 2³⁶ changes). What lies
//! more than 4 GiB behind its chunk's beginning is in no list.
//!
//! | word of a chunk | bits |
//! |---|---|
//! | bytes used from its beginning | 0–47 |
//! | blocks in use; all ones: no more, or it is being emptied | 48–63 |
//!
//! Units: bytes. Invariant: a chunk is never unmapped; a block's header is written before its address is known to anybody. Locks: none.
//! Cost: a compare-and-swap or two; a system call for a large block that is freed, and for a chunk that becomes empty.
#![allow(unsafe_code)] // hands out memory

use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicU64, AtomicUsize};
use crate::arch::sys::{self, Access, Advice};
use core::ptr::NonNull;

/// Bytes of a chunk, at least.
pub(super) const CHUNK: usize = 256 << 10;
/// Bytes before a block.
pub(super) const HEADER: usize = 16;
/// Bytes from which a freed block's pages go back at once.
pub(super) const GOES: usize = 64 << 10;
/// Lists of kept blocks: of up to 2 GiB.
pub(super) const LISTS: usize = 8 + 4 * 24;
/// What kept blocks are aligned to; one that is aligned to more is not kept.
const ALIGNS: [usize; 3] = [16, 64, PAGE];
/// In a kept block's link: its pages have gone back.
const GONE: usize = 1;
/// Of a list's head: where the first block is, in sixteens of bytes from the chunk's beginning; the rest counts changes.
const PLACES: u64 = (1 << 28) - 1;

pub(super) const USED: u64 = (1 << 48) - 1;
pub(super) const BLOCK: u64 = 1 << 48;
/// The word of a chunk without blocks.
pub(super) const EMPTY: u64 = size_of::<Chunk>() as u64;
/// Blocks that a chunk may have in use.
pub(super) const BLOCKS: u64 = 0xffff;
/// The word of one that is being emptied.
pub(super) const SHUT: u64 = EMPTY + BLOCKS * BLOCK;

/// The head of a chunk.
#[repr(C, align(16))]
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) next: usize,
    pub(super) bytes: usize,
    pub(super) word: AtomicU64,
    /// Bytes of freed blocks whose pages have gone back.
    pub(super) gone: AtomicU64,
    /// Kept blocks: the first's address / 16, and behind 44 bits how often that changed.
    pub(super) kept: [[AtomicU64; LISTS]; ALIGNS.len()],
}

/// Before a block: its bytes and which of [`ALIGNS`] it has, or 0 of one that is free; its address's complement, or of one that is kept
/// the next one. (Atomic: who takes a kept block may look at one that another has just taken.)
#[repr(C)]
struct Header {
    size: AtomicUsize,
    link: AtomicUsize,
}

/// Of a header's size what is the kind.
const KIND: usize = 15;

/// What a request needs.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Bytes of its block.
    pub(super) size: usize,
    align: usize,
    /// Which of [`ALIGNS`] that is, or their number.
    kind: usize,
    /// Its list.
    pub(super) list: usize,
}

impl Shape {
    pub(super) const fn of(size: usize, align: usize) -> Self {
        let mut kind = 0;
        while kind < ALIGNS.len() && ALIGNS[kind] < align {
            kind += 1;
        }
        let align = if kind < ALIGNS.len() { ALIGNS[kind] } else { align };
        let units = if size == 0 { 1 } else { size.div_ceil(16) };
        if units <= 8 {
            return Self { size: units * 16, align, kind, list: units - 1 };
        }
        let doubling = (units - 1).ilog2() as usize;
        let steps = (units - 1) >> (doubling - 2);
        Self { size: ((steps + 1) << (doubling - 2)) * 16, align, kind, list: 8 + 4 * (doubling - 3) + steps - 4 }
    }

    /// That of the next list.
    pub(super) const fn longer(self) -> Self {
        Self::of(self.size + 1, self.align)
    }

    /// Whether its pages stay when it is freed.
    pub(super) const fn stays(self) -> bool {
        self.size < GOES
    }

    /// The whole pages of such a block, if it is large: where they begin and end.
    const fn large_pages(self, address: usize) -> (usize, usize) {
        if self.stays() {
            return (0, 0);
        }
        (address.next_multiple_of(PAGE), (address + self.size) / PAGE * PAGE)
    }
}

/// # Safety
/// A block begins there, or did.
unsafe fn header<'a>(address: usize) -> &'a Header {
    // SAFETY: the caller's promise; chunks stay.
    unsafe { &*((address - HEADER) as *const Header) }
}

/// A block that is its user's from now on.
///
/// # Safety
/// Memory of a chunk that is this block's alone.
unsafe fn begin(address: usize, shape: Shape) -> Option<NonNull<u8>> {
    // SAFETY: the caller's promise.
    let header = unsafe { header(address) };
    header.link.store(!address, Relaxed);
    header.size.store(shape.size | shape.kind, Relaxed);
    NonNull::new(address as *mut u8)
}

/// (`held`: of all chunks the bytes that are used, but for pages that have gone back.)
impl Chunk {
    /// Bytes of one that has room for such a block.
    pub(super) const fn least(shape: Shape) -> usize {
        (size_of::<Self>() + HEADER + shape.size + shape.align).next_multiple_of(PAGE)
    }

    /// An empty one of so many bytes.
    pub(super) fn map(bytes: usize) -> Option<*mut Self> {
        let at = sys::map(0, bytes, Access::ReadWrite).ok()? as *mut Self;
        // SAFETY: our own fresh mapping, which nobody else knows: zeros, which are a chunk's.
        unsafe { ((*at).bytes, (*at).word) = (bytes, AtomicU64::new(EMPTY)) };
        Some(at)
    }

    pub(super) fn base(&self) -> usize {
        (&raw const *self) as usize
    }

    /// Bytes that are used and whose pages have not gone back.
    pub(super) fn held(&self) -> u64 {
        ((self.word.load(Relaxed) & USED) - EMPTY).saturating_sub(self.gone.load(Relaxed))
    }

    pub(super) fn has(&self, address: usize) -> bool {
        (self.base()..self.base() + self.bytes).contains(&address)
    }

    pub(super) fn has_room(&self, shape: Shape) -> bool {
        let word = self.word.load(Relaxed);
        (word & USED) as usize + HEADER + shape.size <= self.bytes && word >> 48 < BLOCKS
    }

    /// A fresh block.
    pub(super) fn take(&self, shape: Shape, held: &AtomicU64) -> Option<NonNull<u8>> {
        let mut word = self.word.load(Relaxed);
        loop {
            let used = self.base() + (word & USED) as usize;
            let address = (used + HEADER).next_multiple_of(shape.align);
            let end = address + shape.size - self.base();
            if end > self.bytes || word >> 48 == BLOCKS {
                return None;
            }
            let new = (word & !USED) + BLOCK + end as u64;
            // Acquire: those who had this memory before have left it; see `give`.
            match self.word.compare_exchange_weak(word, new, Acquire, Relaxed) {
                Ok(_) => {
                    held.fetch_add(end as u64 - (word & USED), Relaxed);
                    // SAFETY: memory of the chunk that is this block's alone.
                    return unsafe { begin(address, shape) };
                }
                Err(now) => word = now,
            }
        }
    }

    /// The list of kept blocks for such requests.
    fn list(&self, shape: Shape) -> Option<&AtomicU64> {
        self.kept.get(shape.kind)?.get(shape.list)
    }

    /// Of a list's head the address of the first block, or 0.
    pub(super) fn first_of(&self, head: u64) -> usize {
        match (head & PLACES) as usize * 16 {
            0 => 0,
            offset => self.base() + offset,
        }
    }

    /// Whether a block there may be in a list.
    fn has_place(&self, address: usize) -> bool {
        self.has(address) && ((address - self.base()) / 16) as u64 <= PLACES
    }

    /// Another first block, which has a place, or none.
    pub(super) fn changed(&self, head: u64, address: usize) -> u64 {
        let place = (address.saturating_sub(self.base()) / 16) as u64;
        debug_assert!(place <= PLACES, "too far for a list");
        (head & !PLACES).wrapping_add(PLACES + 1) | place
    }

    /// Whether there is one, as far as can be seen.
    pub(super) fn has_kept(&self, shape: Shape) -> bool {
        self.list(shape).is_some_and(|list| self.first_of(list.load(Relaxed)) != 0)
    }

    /// A kept block.
    pub(super) fn take_kept(&self, shape: Shape, held: &AtomicU64) -> Option<NonNull<u8>> {
        if !self.has_kept(shape) || !self.count() {
            return None;
        }
        let Some((address, gone)) = self.take_first(self.list(shape)?) else {
            // Somebody was first.
            self.give(held);
            return None;
        };
        if gone {
            let (first, end) = shape.large_pages(address);
            self.gone.fetch_sub((end - first) as u64, Relaxed);
            held.fetch_add((end - first) as u64, Relaxed);
        }
        // SAFETY: a block that is ours.
        unsafe { begin(address, shape) }
    }

    /// Bytes of the block at an address; `None` if none begins there.
    pub(super) fn size(&self, address: usize) -> Option<usize> {
        let is_one = address.is_multiple_of(16) && address >= self.base() + size_of::<Self>() + HEADER;
        // SAFETY: memory of a chunk.
        let header = is_one.then(|| unsafe { header(address) })?;
        let size = header.size.load(Relaxed);
        // (What a free leaves there is no header.)
        (header.link.load(Relaxed) == !address && size > 0).then_some(size & !KIND)
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// [`Chunk::size`] knew it, and nobody uses it any more.
    pub(super) unsafe fn free(&self, address: usize, held: &AtomicU64) {
        // SAFETY: the caller's promise.
        let (size, kind) = match unsafe { header(address) }.size.swap(0, Relaxed) {
            // (Nobody's already.)
            0 => return,
            size => (size & !KIND, size & KIND),
        };
        let shape = Shape { kind, ..Shape::of(size, 1) };
        let (first, end) = shape.large_pages(address);
        // SAFETY: whole pages of the block, which is nobody's. If it is refused they stay.
        let gone = end > first && unsafe { sys::advise(first, end - first, Advice::DontNeed) }.is_ok();
        if gone {
            self.gone.fetch_add((end - first) as u64, Relaxed);
            held.fetch_sub((end - first) as u64, Relaxed);
        }
        if let Some(list) = self.list(shape) {
            self.keep(list, address, if gone { GONE } else { 0 });
        }
        self.give(held);
    }

    /// Keeps a block, which its user still counts.
    fn keep(&self, list: &AtomicU64, address: usize, gone: usize) {
        if !self.has_place(address) {
            return;
        }
        // SAFETY: a block that is ours.
        let link = unsafe { &header(address).link };
        let mut head = list.load(Relaxed);
        loop {
            link.store(self.first_of(head) | gone, Relaxed);
            // Release: what its user did is over before it is another's; and the link is seen.
            match list.compare_exchange_weak(head, self.changed(head, address), Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// The first block of a list, and whether its pages have gone back. Who asks has counted it.
    fn take_first(&self, list: &AtomicU64) -> Option<(usize, bool)> {
        // Acquire, both: see `keep`.
        let mut head = list.load(Acquire);
        loop {
            let address = self.first_of(head);
            if address == 0 {
                return None;
            }
            // SAFETY: memory of a chunk, which is never unmapped. (Somebody may have taken the block: then the exchange fails.)
            let link = unsafe { header(address) }.link.load(Relaxed);
            // (Somebody may have written before his block: then the rest is lost.)
            let next = Some(link & !GONE).filter(|&next| self.has_place(next)).unwrap_or(0);
            match list.compare_exchange_weak(head, self.changed(head, next), Acquire, Acquire) {
                Ok(_) => return Some((address, link & GONE != 0)),
                Err(now) => head = now,
            }
        }
    }

    /// One block more is in use, unless there are as many as can be.
    pub(super) fn count(&self) -> bool {
        // Acquire: lists are as who emptied the chunk has left them.
        let more = |word: u64| (word >> 48 < BLOCKS).then(|| word + BLOCK);
        self.word.fetch_update(Acquire, Relaxed, more).is_ok()
    }

    /// One block less; the last leaves the chunk empty, and its pages to the system if there are many.
    fn give(&self, held: &AtomicU64) {
        // AcqRel: what the block's owner did is over before the memory is somebody else's.
        let word = self.word.fetch_sub(BLOCK, AcqRel) - BLOCK;
        // If the exchange fails somebody allocates. While it is shut nobody does. AcqRel, as below: as above.
        if word & !USED != 0 || self.word.compare_exchange(word, SHUT, AcqRel, Relaxed).is_err() {
            return;
        }
        // Relaxed: nobody else looks.
        for list in self.kept.iter().flatten() {
            let head = list.load(Relaxed);
            if self.first_of(head) != 0 {
                list.store(self.changed(head, 0), Relaxed);
            }
        }
        let used = word as usize;
        if used > CHUNK {
            // SAFETY: free memory of a mapping of ours, but for its first page. If it is refused it stays.
            let _ = unsafe { sys::advise(self.base() + PAGE, used.next_multiple_of(PAGE) - PAGE, Advice::DontNeed) };
        }
        held.fetch_sub(word - EMPTY - self.gone.swap(0, Relaxed), Relaxed);
        self.word.store(EMPTY, Release);
    }
}
