//! # The side arena: memory beside a fork
//!
//! ```text
//! first ──► chunk ──► chunk ──► …        a chunk: blocks, one behind the other (see `chunk`)
//! put off ──► entry ──► entry ──► …      an entry: a block that holds the address of what is to be freed; or that itself, or its descriptor
//! ```
//! While a fork is in flight nobody comes into the heap ([`crate::arch::gate`]), so threads that allocate, the forking one among
//! them, get blocks from here, and what they free is put off until the fork is over. A chunk is empty again when the last of its blocks has been
//! freed. That may take long, one fork may, where it waits for its CPU or the C library for a stream's lock, the next may come at
//! once, and a torn child's never ends: so until then a block that is freed is kept for others of its length, of this fork or a later one. Of a
//! block that is large the pages go back when it is freed.
//!
//! Nothing here has a lock, so a child finds every chunk and list whole, whatever other threads were at. Blocks that they had, or were
//! about to have, are the child's loss, and so is a chunk that one of them was emptying.
//!
//! Units: bytes. Invariant: a chunk is never unmapped, so that any thread may walk the list. Locks: none. Cost: a walk of the chunks, of
//! which there is one as a rule, and a compare-and-swap; a system call for a chunk.
#![allow(unsafe_code)] // hands out memory

mod chunk;

use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::arch::atomic::settle;
use crate::arch::atomic::{AtomicU64, AtomicUsize};
use crate::page::{Desc, Kind};
use chunk::{CHUNK, Chunk, Shape};
use core::ptr::NonNull;

/// Bytes of a chunk, at most, unless a request is larger: one block that stays keeps all of its chunk.
const LARGE: usize = 8 << 20;
/// Bytes that the hard limit never refuses: a fork's own frames cannot wait until something is free.
pub const LEAST: u64 = CHUNK as u64;
/// Lists of longer blocks in which a request looks that has no other memory: two doublings.
const WIDER: usize = 8;
/// Largest request, and alignment.
const MOST: usize = 1 << 46;
/// In a link of what is put off: the entry lies in the object that is to be freed.
const ITSELF: usize = 1;
/// The same: it is the descriptor of the area that is to be freed, whose address that is.
const AREA: usize = 2;

/// What a request of so many bytes needs, whatever it is aligned to.
fn any(size: usize) -> Shape {
    Shape::of(size.min(MOST), 1)
}

/// Where a note of what is to be freed may lie: of an area always, else if there is no memory for one.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// In the object: all of slabs have 16 bytes, aligned.
    Object,
    /// In an area's descriptor. (A program may have protected an area that it frees; and so it is known to be nobody's.) It is `Front` while its link is the
    /// next of what is put off.
    Area(&'a Desc),
    /// There is none.
    Nowhere,
}

/// What is put off.
#[repr(C)]
struct Entry {
    next: usize,
    address: usize,
}

/// See the module. Zero bytes.
#[repr(C)]
#[derive(Debug)]
pub struct Side {
    first: AtomicUsize,
    put_off: AtomicUsize,
    /// Bytes that are used, in all chunks, but for pages that have gone back.
    held: AtomicU64,
    /// What [`Side::tell`] has told of that.
    told: AtomicU64,
}

impl Default for Side {
    fn default() -> Self {
        Self::new()
    }
}

impl Side {
    /// Without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            first: AtomicUsize::new(0),
            put_off: AtomicUsize::new(0),
            held: AtomicU64::new(0),
            told: AtomicU64::new(0),
        }
    }

    /// Bytes that may be resident: of blocks in use, and of small ones that were freed beside them.
    #[must_use]
    pub fn held(&self) -> u64 {
        // Relaxed, as all of these: numbers.
        self.held.load(Relaxed)
    }

    /// Has `shift` make up for what has changed. (Of several threads at once the last tells the latest.)
    pub fn tell(&self, shift: impl Fn(isize)) {
        loop {
            let now = self.held();
            let told = self.told.swap(now, Relaxed);
            if now != told {
                shift(now.wrapping_sub(told) as isize);
            }
            if self.held() == now {
                return;
            }
        }
    }

    /// In a forked child, which tells all of it anew: the bytes. (A thread that it has not may have been at it.)
    #[must_use]
    pub fn inherit(&self) -> u64 {
        let held = self.chunks().map(Chunk::held).sum();
        settle!(self.held, held);
        settle!(self.told, held);
        held
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        // Acquire: pairs with the Release in `alloc`: a chunk's head is seen.
        let mut at = self.first.load(Acquire);
        core::iter::from_fn(move || {
            // SAFETY: 0 or a chunk, which is never unmapped.
            let chunk = unsafe { (at as *const Chunk).as_ref() }?;
            at = chunk.next;
            Some(chunk)
        })
    }

    /// `size` bytes aligned to `align`, a power of two, with whatever contents.
    pub fn alloc(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if size > MOST || align > MOST {
            return None;
        }
        let shape = Shape::of(size, align);
        loop {
            if let Some(block) = self.take_block(shape, 0) {
                return Some(block);
            }
            self.add(shape)?;
        }
    }

    /// The same of the chunks that there are, where there is no other memory: also a block that was kept for what is several times as long.
    pub fn alloc_left(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if size > MOST || align > MOST {
            return None;
        }
        self.take_block(Shape::of(size, align), WIDER)
    }

    /// A block that was kept, in its list or one of so many behind it, or that nobody had.
    fn take_block(&self, shape: Shape, wider: usize) -> Option<NonNull<u8>> {
        let kept = |shape| self.chunks().find_map(|chunk| chunk.take_kept(shape, &self.held));
        let shapes = core::iter::successors(Some(shape), |shape| Some(shape.longer()));
        let block = shapes.take(1 + wider).find_map(kept);
        block.or_else(|| self.chunks().find_map(|chunk| chunk.take(shape, &self.held)))
    }

    /// Whether a request of so many bytes takes a block that was kept, as far as can be seen.
    #[must_use]
    pub fn has_kept(&self, size: usize) -> bool {
        self.chunks().any(|chunk| chunk.has_kept(any(size)))
    }

    /// The same, where its pages have not gone back.
    #[must_use]
    pub fn holds(&self, size: usize) -> bool {
        any(size).stays() && self.has_kept(size)
    }

    /// Whether there is room for a block of so many bytes, or can be.
    pub fn has_room(&self, size: usize) -> bool {
        let shape = any(size);
        self.has_kept(size) || self.chunks().any(|chunk| chunk.has_room(shape)) || self.add(shape).is_some()
    }

    /// A chunk more, in which there is room for such a block.
    fn add(&self, shape: Shape) -> Option<()> {
        // As much again as there is: there are few, however much a long fork takes. If that is refused, what is needed.
        let total = self.chunks().fold(CHUNK, |total, chunk| total.max(2 * chunk.bytes)).min(LARGE);
        let least = Chunk::least(shape);
        let at = [least.max(total), least].into_iter().find_map(Chunk::map)?;
        let mut first = self.first.load(Relaxed);
        loop {
            // SAFETY: a fresh chunk, which nobody else knows yet.
            unsafe { (*at).next = first };
            // Release: pairs with `chunks`.
            match self.first.compare_exchange(first, at as usize, Release, Relaxed) {
                Ok(_) => return Some(()),
                Err(now) => first = now,
            }
        }
    }

    fn chunk_of(&self, address: usize) -> Option<&Chunk> {
        self.chunks().find(|chunk| chunk.has(address))
    }

    /// Bytes of the block at an address; `None` if it is none of these.
    #[must_use]
    pub fn size(&self, address: usize) -> Option<usize> {
        self.chunk_of(address)?.size(address)
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// [`Side::size`] knew it, and nobody uses it any more.
    pub unsafe fn free(&self, address: usize) {
        if let Some(chunk) = self.chunk_of(address) {
            // SAFETY: the caller's promise.
            unsafe { chunk.free(address, &self.held) };
        }
    }

    /// Notes that the object at an address is to be freed: of an area in its descriptor, else in the `place` that it has, if there is no memory
    /// for that; false if it has none, or is noted there.
    pub fn put_off(&self, address: usize, place: Place<'_>) -> bool {
        let (link, desc) = match place {
            Place::Area(desc) if desc.kind() == Kind::Area => {
                desc.set(Kind::Front, desc.rest());
                (address | AREA, Some(desc))
            }
            Place::Area(_) => return false,
            place => match (self.alloc(size_of::<Entry>(), 16), place) {
                (Some(block), _) => (block.as_ptr() as usize, None),
                (None, Place::Object) => (address | ITSELF, None),
                (None, _) => return false,
            },
        };
        let mut next = self.put_off.load(Relaxed);
        loop {
            match desc {
                Some(desc) => desc.link.store(next as u64, Relaxed),
                // SAFETY: a block of ours, or an object that the program has given up, aligned to 16.
                None => unsafe { ((link & !ITSELF) as *mut Entry).write(Entry { next, address }) },
            }
            // SeqCst: see `Heap::free_aside`. It releases the entry.
            match self.put_off.compare_exchange(next, link, SeqCst, Relaxed) {
                Ok(_) => return true,
                Err(now) => next = now,
            }
        }
    }

    /// Whether it was ever used.
    #[must_use]
    pub fn is_used(&self) -> bool {
        // Relaxed: whoever has a block got it from a thread that knew.
        self.first.load(Relaxed) != 0
    }

    /// Whether anything is put off.
    #[inline]
    pub fn is_owing(&self) -> bool {
        // SeqCst: see `Heap::free_aside`. (On x86-64 a load like any other.)
        self.put_off.load(SeqCst) != 0
    }

    /// Everything that was put off, which is not any more. (All of it is taken at once, so no entry comes back to the
    /// list while somebody looks at it.) `place` knows where notes may lie.
    pub fn take<'a>(&self, place: impl Fn(usize) -> Place<'a>) -> impl Iterator<Item = usize> {
        // SeqCst: see `Heap::free_aside`. It acquires what was written into the entries.
        let mut at = self.put_off.swap(0, SeqCst);
        core::iter::from_fn(move || {
            if at & AREA != 0
                && let Place::Area(desc) = place(at & !AREA)
                && desc.kind() == Kind::Front
            {
                let area = at & !AREA;
                at = desc.link.swap(0, Relaxed) as usize;
                desc.set(Kind::Area, desc.rest());
                return Some(area);
            }
            let entry = at & !ITSELF;
            let is_object = || matches!(place(entry), Place::Object);
            let is_one = if at == entry { at != 0 && self.size(at).is_some() } else { is_object() };
            if !is_one {
                // The end; or somebody writes to what was freed: the rest is lost.
                at = 0;
                return None;
            }
            // SAFETY: an entry that was on the list, ours by the swap; at least, memory of ours that holds one.
            let Entry { next, address } = unsafe { (entry as *const Entry).read() };
            if at == entry {
                // SAFETY: as above.
                unsafe { self.free(entry) };
            } else if address == entry {
                // SAFETY: as above. (Freed twice it is there twice, and leads back to itself.)
                unsafe { (entry as *mut Entry).write(Entry { next, address: 0 }) };
            } else {
                // It was there already, or somebody writes to what was freed: the rest is lost.
                at = 0;
                return None;
            }
            at = next;
            Some(address)
        })
    }
}

#[cfg(test)]
mod tests;
