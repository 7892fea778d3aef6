//! # The side arena: memory beside a fork
//!
//! ```text
//! first ──► chunk ──► chunk ──► …        a chunk:  ┌ next, bytes, words ┬ block ┬ block ┬ … ┬ untouched ┐
//!                                                   └ used ─────────────────────────────────►
//! put off ──► entry ──► entry ──► …      an entry: a block that holds the address of what is to be freed; or that itself
//! kept[k][n] ──► block ──► block ──► …   of a chunk what is freed, by alignment (16, 64, a page) and length: 16 bytes apart up to 128,
//!                                         then four to a doubling
//! ```
//! While a fork is in flight nobody comes into the heap ([`crate::arch::gate`]), so threads that allocate, the forking one among
//! them, get blocks from here, and what they free is put off until the fork is over. A block is a header with its size and
//! the memory behind; blocks of a chunk lie one behind the other, and when the last of them has been freed the chunk is
//! empty again. That may take long, one fork may, where it waits for its CPU or the C library for a stream's lock, the next may come at
//! once, and a torn child's never ends: so until then a block that is freed is kept for others of its length, of this fork or a later one. Of a
//! block that is large the pages go back when it is freed.
//!
//! Nothing here has a lock, so a child finds every chunk and list whole, whatever other threads were at. Blocks that they had, or were
//! about to have, are the child's loss, and so is a chunk that one of them was emptying. Who takes a kept block is counted in its chunk before,
//! who frees one after it is kept: a chunk without blocks in use has all of them in its lists, and nobody looks there. A list's head counts its
//! changes beside the address, so that no block is taken by who saw another list (the same count comes again after a million changes).
//!
//! | word of a chunk | bits |
//! |---|---|
//! | bytes used from its beginning | 0–47 |
//! | blocks in use; all ones: no more, or it is being emptied | 48–63 |
//!
//! Units: bytes. Invariants: a chunk is never unmapped, so that any thread may walk the list; a block's header is written before its
//! address is known to anybody. Locks: none. Cost: a walk of the chunks, of which there is one as a rule, and a
//! compare-and-swap; a system call for a chunk.
#![allow(unsafe_code)] // hands out memory

use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::arch::atomic::{AtomicU64, AtomicUsize};
use crate::arch::sys::{self, Access, Advice};
use core::ptr::NonNull;

/// Bytes of a chunk, at least.
const CHUNK: usize = 256 << 10;
/// The same, at most, unless a request is larger: one block that stays keeps all of its chunk.
const LARGE: usize = 8 << 20;
/// Bytes before a block.
const HEADER: usize = 16;
/// Bytes from which a freed block's pages go back at once.
const GOES: usize = 64 << 10;
/// Bytes that the hard limit never refuses: a fork's own frames cannot wait until something is free.
pub const LEAST: u64 = CHUNK as u64;
/// Largest request, and alignment.
const MOST: usize = 1 << 46;
/// In a link of what is put off: the entry lies in the object that is to be freed.
const ITSELF: usize = 1;

/// Lists of kept blocks: of up to 2 GiB.
const LISTS: usize = 8 + 4 * 24;
/// What kept blocks are aligned to; one that is aligned to more is not kept.
const ALIGNS: [usize; 3] = [16, 64, PAGE];
/// In a kept block's link: its pages have gone back.
const GONE: usize = 1;

const USED: u64 = (1 << 48) - 1;
const BLOCK: u64 = 1 << 48;
/// The word of a chunk without blocks.
const EMPTY: u64 = size_of::<Chunk>() as u64;
/// Blocks that a chunk may have in use.
const BLOCKS: u64 = 0xffff;
/// The word of one that is being emptied.
const SHUT: u64 = EMPTY + BLOCKS * BLOCK;

/// The head of a chunk.
#[repr(C, align(16))]
#[derive(Debug)]
struct Chunk {
    next: usize,
    bytes: usize,
    word: AtomicU64,
    /// Bytes of freed blocks whose pages have gone back.
    gone: AtomicU64,
    /// Kept blocks: the first's address / 16, and behind 44 bits how often that changed.
    kept: [[AtomicU64; LISTS]; ALIGNS.len()],
}

/// Before a block: its bytes and which of [`ALIGNS`] it has, or 0 of one that is free; its address's complement, or of one that is kept
/// the next one. (Atomic: who takes a kept block may look at one that another has just taken.)
#[repr(C)]
struct Header {
    size: AtomicUsize,
    link: AtomicUsize,
}

impl Header {
    fn begin(&self, address: usize, size: usize) {
        self.link.store(!address, Relaxed);
        self.size.store(size, Relaxed);
    }
}

/// Of a header's size what is the kind.
const KIND: usize = 15;

/// Which of [`ALIGNS`] a request has, or their number, and what its block is aligned to.
fn kind(align: usize) -> (usize, usize) {
    let kind = ALIGNS.partition_point(|&least| least < align);
    (kind, ALIGNS.get(kind).map_or(align, |&least| least))
}

/// # Safety
/// A block begins there, or did.
unsafe fn header<'a>(address: usize) -> &'a Header {
    // SAFETY: the caller's promise; chunks stay.
    unsafe { &*((address - HEADER) as *const Header) }
}

/// The bytes of a block for `size`, and its list.
const fn length(size: usize) -> (usize, usize) {
    let units = if size == 0 { 1 } else { size.div_ceil(16) };
    if units <= 8 {
        return (units * 16, units - 1);
    }
    let doubling = (units - 1).ilog2() as usize;
    let steps = (units - 1) >> (doubling - 2);
    (((steps + 1) << (doubling - 2)) * 16, 8 + 4 * (doubling - 3) + steps - 4)
}

/// The whole pages of a block, if it is large: where they begin and end.
const fn large_pages(address: usize, size: usize) -> (usize, usize) {
    if size < GOES {
        return (0, 0);
    }
    (address.next_multiple_of(PAGE), (address + size) / PAGE * PAGE)
}

/// Of a list's head the address of the first block.
const fn first_of(head: u64) -> usize {
    (head << 20 >> 16) as usize
}

/// Another first block.
const fn changed(head: u64, address: usize) -> u64 {
    ((head >> 44) + 1) << 44 | (address as u64) << 16 >> 20
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
        self.held.store(held, Relaxed);
        self.told.store(held, Relaxed);
        held
    }

    fn took(&self, (block, bytes): (NonNull<u8>, u64)) -> NonNull<u8> {
        self.held.fetch_add(bytes, Relaxed);
        block
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
        let (kind, align) = kind(align);
        let (size, list) = length(size);
        if let Some(block) = self.chunks().find_map(|chunk| self.take_kept(chunk, size, list, kind)) {
            return Some(block);
        }
        loop {
            if let Some(block) = self.chunks().find_map(|chunk| chunk.take(size, align, kind)) {
                return Some(self.took(block));
            }
            self.add(size, align)?;
        }
    }

    /// Whether a request of so many bytes takes a block that was kept, as far as can be seen.
    #[must_use]
    pub fn has_kept(&self, size: usize) -> bool {
        let list = length(size).1;
        self.chunks().filter_map(|chunk| chunk.list(list, 0)).any(|list| first_of(list.load(Relaxed)) != 0)
    }

    /// The same, where its pages have not gone back.
    #[must_use]
    pub fn holds(&self, size: usize) -> bool {
        size < GOES && length(size).0 < GOES && self.has_kept(size)
    }

    /// Whether there is room for a block of so many bytes, or can be.
    pub fn has_room(&self, size: usize) -> bool {
        if self.has_kept(size) {
            return true;
        }
        let size = length(size.min(MOST)).0;
        self.chunks().any(|chunk| chunk.has_room(size)) || self.add(size, 16).is_some()
    }

    /// A chunk more, in which there is room for such a block.
    fn add(&self, size: usize, align: usize) -> Option<()> {
        // As much again as there is: there are few, however much a long fork takes. If that is refused, what is needed.
        let total = self.chunks().fold(CHUNK, |total, chunk| total.max(2 * chunk.bytes)).min(LARGE);
        let least = (size_of::<Chunk>() + HEADER + size + align).next_multiple_of(PAGE);
        let (bytes, base) = [least.max(total), least].into_iter().find_map(|bytes| {
            let base = sys::map(0, bytes, Access::ReadWrite).ok()?;
            Some((bytes, base))
        })?;
        let at = base as *mut Chunk;
        // SAFETY: our own fresh mapping, which nobody else knows: zeros, which are a chunk's.
        unsafe { ((*at).bytes, (*at).word) = (bytes, AtomicU64::new(EMPTY)) };
        let mut first = self.first.load(Relaxed);
        loop {
            // SAFETY: as above: nobody else knows the chunk yet.
            unsafe { (*at).next = first };
            // Release: pairs with `chunks`.
            match self.first.compare_exchange(first, base, Release, Relaxed) {
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
        let chunk = self.chunk_of(address)?;
        let is_one = address.is_multiple_of(16) && address >= chunk.base() + size_of::<Chunk>() + HEADER;
        // SAFETY: memory of a chunk.
        let header = is_one.then(|| unsafe { header(address) })?;
        let size = header.size.load(Relaxed);
        // (What a free leaves there is no header.)
        (header.link.load(Relaxed) == !address && size > 0).then_some(size & !KIND)
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// [`Side::size`] knew it, and nobody uses it any more.
    pub unsafe fn free(&self, address: usize) {
        let Some(chunk) = self.chunk_of(address) else { return };
        // SAFETY: the caller's promise.
        let (size, kind) = match unsafe { header(address) }.size.swap(0, Relaxed) {
            // (Nobody's already.)
            0 => return,
            size => (size & !KIND, size & KIND),
        };
        let (first, end) = large_pages(address, size);
        // SAFETY: whole pages of the block, which is nobody's. If it is refused they stay.
        let gone = end > first && unsafe { sys::advise(first, end - first, Advice::DontNeed) }.is_ok();
        if gone {
            chunk.gone.fetch_add((end - first) as u64, Relaxed);
            self.held.fetch_sub((end - first) as u64, Relaxed);
        }
        if let Some(list) = chunk.list(length(size).1, kind) {
            chunk.keep(list, address, if gone { GONE } else { 0 });
        }
        self.give(chunk);
    }

    /// A block less in a chunk.
    fn give(&self, chunk: &Chunk) {
        self.held.fetch_sub(chunk.give(), Relaxed);
    }

    /// A block that a chunk has kept in that list, of `size` bytes each.
    fn take_kept(&self, chunk: &Chunk, size: usize, list: usize, kind: usize) -> Option<NonNull<u8>> {
        let list = chunk.list(list, kind)?;
        if first_of(list.load(Relaxed)) == 0 || !chunk.count() {
            return None;
        }
        let Some((address, gone)) = chunk.take_first(list) else {
            // Somebody was first.
            self.give(chunk);
            return None;
        };
        if gone {
            let (first, end) = large_pages(address, size);
            chunk.gone.fetch_sub((end - first) as u64, Relaxed);
            self.held.fetch_add((end - first) as u64, Relaxed);
        }
        // SAFETY: a block that is ours.
        unsafe { header(address) }.begin(address, size | kind);
        NonNull::new(address as *mut u8)
    }

    /// Notes that the object at an address is to be freed: in the object, if there is no memory for that and it `holds` a note; else false.
    /// (All objects of slabs have 16 bytes, aligned. A program may have protected an area that it frees.)
    pub fn put_off(&self, address: usize, holds: impl FnOnce() -> bool) -> bool {
        let (at, itself) = match self.alloc(size_of::<Entry>(), 16) {
            Some(block) => (block.as_ptr() as usize, 0),
            None if holds() => (address, ITSELF),
            None => return false,
        };
        let mut next = self.put_off.load(Relaxed);
        loop {
            // SAFETY: a block of ours, or an object that the program has given up, aligned to 16.
            unsafe { (at as *mut Entry).write(Entry { next, address }) };
            // SeqCst: see `Heap::free_aside`.
            match self.put_off.compare_exchange(next, at | itself, SeqCst, Relaxed) {
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
        self.put_off.load(Relaxed) != 0
    }

    /// Everything that was put off, which is not any more. (All of it is taken at once, so no entry comes back to the
    /// list while somebody looks at it.) `is_object` knows the objects in which a note may lie.
    pub fn take(&self, is_object: impl Fn(usize) -> bool) -> impl Iterator<Item = usize> {
        // SeqCst: see `Heap::free_aside`. It acquires what was written into the entries.
        let mut at = self.put_off.swap(0, SeqCst);
        core::iter::from_fn(move || {
            let entry = at & !ITSELF;
            let is_one = if at == entry { at != 0 && self.size(at).is_some() } else { is_object(entry) };
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

impl Chunk {
    fn base(&self) -> usize {
        (&raw const *self) as usize
    }

    /// Bytes that are used and whose pages have not gone back.
    fn held(&self) -> u64 {
        ((self.word.load(Relaxed) & USED) - EMPTY).saturating_sub(self.gone.load(Relaxed))
    }

    fn has(&self, address: usize) -> bool {
        (self.base()..self.base() + self.bytes).contains(&address)
    }

    fn has_room(&self, size: usize) -> bool {
        let word = self.word.load(Relaxed);
        (word & USED) as usize + HEADER + size <= self.bytes && word >> 48 < BLOCKS
    }

    /// A block, and by how many bytes more are used.
    fn take(&self, size: usize, align: usize, kind: usize) -> Option<(NonNull<u8>, u64)> {
        let mut word = self.word.load(Relaxed);
        loop {
            let used = self.base() + (word & USED) as usize;
            let address = (used + HEADER).next_multiple_of(align);
            let end = address + size - self.base();
            if end > self.bytes || word >> 48 == BLOCKS {
                return None;
            }
            let new = (word & !USED) + BLOCK + end as u64;
            // Acquire: those who had this memory before have left it; see `give`.
            match self.word.compare_exchange_weak(word, new, Acquire, Relaxed) {
                Ok(_) => {
                    // SAFETY: memory of the chunk that is this block's alone.
                    unsafe { header(address) }.begin(address, size | kind);
                    return Some((NonNull::new(address as *mut u8)?, end as u64 - (word & USED)));
                }
                Err(now) => word = now,
            }
        }
    }

    /// A list of kept blocks.
    fn list(&self, list: usize, kind: usize) -> Option<&AtomicU64> {
        self.kept.get(kind)?.get(list)
    }

    /// Keeps a block, which its user still counts.
    fn keep(&self, list: &AtomicU64, address: usize, gone: usize) {
        // SAFETY: a block that is ours.
        let link = unsafe { &header(address).link };
        let mut head = list.load(Relaxed);
        loop {
            link.store(first_of(head) | gone, Relaxed);
            // Release: what its user did is over before it is another's; and the link is seen.
            match list.compare_exchange_weak(head, changed(head, address), Release, Relaxed) {
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
            let address = first_of(head);
            if address == 0 {
                return None;
            }
            // SAFETY: memory of a chunk, which is never unmapped. (Somebody may have taken the block: then the exchange fails.)
            let link = unsafe { header(address) }.link.load(Relaxed);
            // (Somebody may have written before his block: then the rest is lost.)
            let next = Some(link & !GONE).filter(|&next| self.has(next)).unwrap_or(0);
            match list.compare_exchange_weak(head, changed(head, next), Acquire, Acquire) {
                Ok(_) => return Some((address, link & GONE != 0)),
                Err(now) => head = now,
            }
        }
    }

    /// One block more is in use, unless there are as many as can be.
    fn count(&self) -> bool {
        // Acquire: lists are as who emptied the chunk has left them.
        let more = |word: u64| (word >> 48 < BLOCKS).then(|| word + BLOCK);
        self.word.fetch_update(Acquire, Relaxed, more).is_ok()
    }

    /// One block less; the last leaves the chunk empty, and its pages to the system if there are many. By how many bytes less are used.
    fn give(&self) -> u64 {
        // AcqRel: what the block's owner did is over before the memory is somebody else's.
        let word = self.word.fetch_sub(BLOCK, AcqRel) - BLOCK;
        // If the exchange fails somebody allocates. While it is shut nobody does. AcqRel, as below: as above.
        if word & !USED != 0 || self.word.compare_exchange(word, SHUT, AcqRel, Relaxed).is_err() {
            return 0;
        }
        // Relaxed: nobody else looks.
        for list in self.kept.iter().flatten() {
            let head = list.load(Relaxed);
            if first_of(head) != 0 {
                list.store(changed(head, 0), Relaxed);
            }
        }
        let used = word as usize;
        if used > CHUNK {
            // SAFETY: free memory of a mapping of ours, but for its first page. If it is refused it stays.
            let _ = unsafe { sys::advise(self.base() + PAGE, used.next_multiple_of(PAGE) - PAGE, Advice::DontNeed) };
        }
        let held = word - EMPTY - self.gone.swap(0, Relaxed);
        self.word.store(EMPTY, Release);
        held
    }
}

#[cfg(test)]
#[allow(clippy::undocumented_unsafe_blocks)]
mod tests {
    use super::*;
    use crate::arch::sys::fault;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn blocks_are_apart_aligned_and_known() {
        let side = Side::new();
        let mut blocks = Vec::new();
        for (n, align) in (0..600).map(|n| (n, 16 << (n % 10))) {
            let size = n * 37 % 5000;
            let at = side.alloc(size, align).expect("memory").as_ptr();
            assert_eq!(at as usize % align, 0);
            let real = side.size(at as usize).expect("a block");
            assert!(real >= size && side.size(at as usize + 16).is_none());
            unsafe { at.write_bytes(n as u8, real) };
            blocks.push((at, real, n as u8));
        }
        assert!(side.chunks().count() > 2 && side.size(&raw const side as usize).is_none());
        let largest: Vec<_> = side.chunks().map(|chunk| chunk.bytes).collect();
        assert!(largest.windows(2).all(|pair| pair[0] == 2 * pair[1]), "as much again as there is: {largest:?}");
        for &(at, size, byte) in &blocks {
            assert!((0..size).all(|i| unsafe { *at.add(i) } == byte));
            assert!(
                (16..size).step_by(16).all(|inside| side.size(at as usize + inside).is_none()),
                "whatever it holds"
            );
            unsafe { side.free(at as usize) };
            assert!(side.size(at as usize).is_none(), "freed");
        }
        assert!(side.chunks().all(|chunk| chunk.word.load(Relaxed) == EMPTY) && side.held() == 0);
        let huge = side.alloc(8 << 20, 4096).expect("memory").as_ptr();
        unsafe { huge.write_bytes(1, 8 << 20) };
        unsafe { side.free(huge as usize) };
        let again = side.alloc(8 << 20, 4096).expect("memory").as_ptr();
        assert!(core::ptr::eq(huge, again) && unsafe { *huge.add(5 << 20) } == 0, "given back and used again");
        // A large one goes back though its chunk has another, which stays.
        let other = side.alloc(100, 16).expect("memory").as_ptr();
        unsafe { (again.write_bytes(1, 8 << 20), other.write_bytes(2, 100)) };
        unsafe { side.free(again as usize) };
        assert_eq!(unsafe { *again.add(5 << 20) }, 0);
        assert!((0..100).all(|at| unsafe { *other.add(at) } == 2));
        assert!(side.alloc(MOST + 1, 16).is_none() && side.alloc(usize::MAX, 16).is_none());
    }

    #[test]
    fn a_chunk_is_used_to_its_last_byte_and_by_as_many_blocks_as_it_counts() {
        let side = Side::new();
        assert!(!side.is_used());
        let rest = 192 << 10;
        let others = CHUNK - size_of::<Chunk>() - rest - HEADER - 48;
        let first = side.alloc(32, 16).expect("memory").as_ptr() as usize;
        assert!((0..others / 32).all(|_| side.alloc(16, 16).is_some()) && others.is_multiple_of(32));
        assert!(side.is_used() && side.has_room(rest) && side.chunks().count() == 1);
        let last = side.alloc(rest, 16).expect("room").as_ptr() as usize;
        let end = first - HEADER - size_of::<Chunk>() + CHUNK;
        assert_eq!((side.chunks().count(), side.size(last), last + rest), (1, Some(rest), end));
        assert!(side.has_room(16) && side.chunks().count() == 2, "no room is left there");
        // Whatever is more than a chunk has.
        for size in (CHUNK - 128..=CHUNK + 16).step_by(16).flat_map(|size| [size, size + PAGE - 128]) {
            let side = Side::new();
            let block = side.alloc(size, 16).and_then(|block| side.size(block.as_ptr() as usize));
            assert_eq!(block, Some(length(size).0));
        }
        let side = Side::new();
        let large = side.alloc(4 << 20, 16).expect("memory").as_ptr() as usize;
        unsafe { side.free(large) };
        let blocks: Vec<_> = (0..70_000).map(|_| side.alloc(1, 1).expect("memory").as_ptr() as usize).collect();
        assert_eq!(side.chunks().count(), 2, "room for more, but no number");
        let mut sorted = blocks.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[0] + 32 <= pair[1]));
        blocks.into_iter().for_each(|block| unsafe { side.free(block) });
        assert!(side.chunks().all(|chunk| chunk.word.load(Relaxed) == EMPTY) && side.held() == 0);
    }

    /// Without memory for a note it lies in the object itself, where that holds one.
    #[test]
    fn without_memory_a_note_lies_in_the_object() {
        #[repr(align(16))]
        struct Object([usize; 2]);
        let side = Side::new();
        let mut objects: Vec<_> = (0..4).map(|_| Object([7; 2])).collect();
        let at: Vec<_> = objects.iter_mut().map(|object| (&raw mut object.0) as usize).collect();
        let is_object = |entry: usize| at.contains(&entry);
        fault::storm(1, 1);
        assert!(!side.has_room(100) && !side.put_off(at[0], || false) && !side.is_owing());
        assert!(at[..3].iter().all(|&address| side.put_off(address, || true)));
        fault::storm(0, 1);
        assert!(side.put_off(at[3], || panic!("there is memory")));
        assert_eq!(side.take(is_object).collect::<Vec<_>>(), [at[3], at[2], at[1], at[0]]);
        assert!(!side.is_owing() && side.held() == 0);
        // Somebody who writes to what was freed leads nobody astray.
        let side = Side::new();
        for (entry, found) in [([1 << 60, 3], 1), ([1 << 60, at[2]], 2), ([1 << 60 | ITSELF, at[2]], 2)] {
            fault::storm(1, 1);
            assert!(at.iter().all(|&address| side.put_off(address, || true)));
            fault::storm(0, 1);
            unsafe { (at[2] as *mut [usize; 2]).write(entry) };
            assert_eq!(side.take(is_object).collect::<Vec<_>>(), [at[3], at[2]][..found]);
        }
        // Nor does what is freed twice.
        fault::storm(1, 1);
        assert!([0, 1, 0, 0].iter().all(|&twice| side.put_off(at[twice], || true)));
        fault::storm(0, 1);
        assert_eq!(side.take(is_object).collect::<Vec<_>>(), [at[0]]);
        // Where the system refuses as much as usual, what is needed.
        assert!(side.has_room(100) && side.has_room(192 << 10) && side.chunks().count() == 1);
        assert!(side.has_room(CHUNK) && side.chunks().count() == 2);
    }

    #[test]
    fn lengths_are_a_quarter_apart_at_most() {
        for size in (0..5000).chain((5..27).flat_map(|shift| [(1 << shift) - 1, 1 << shift, (1 << shift) + 1])) {
            let (bytes, list) = length(size);
            assert!(bytes >= size && bytes % 16 == 0 && bytes <= (size + 15).max(16) + size / 4, "{size}: {bytes}");
            assert!(list < LISTS && length(bytes) == (bytes, list) && length(bytes + 1).1 == list + 1);
        }
        assert!(length(MOST).1 >= LISTS);
        let head = changed(changed(u64::MAX << 44, 0xffff_f7a0_0040), 0xffff_ffff_fff0);
        assert_eq!((first_of(head), head >> 44), (0xffff_ffff_fff0, 1));
    }

    #[test]
    fn what_is_kept_serves_others_of_its_length_and_goes_in_the_end() {
        let side = Side::new();
        let take = |size: usize| side.alloc(size, 16).expect("memory").as_ptr() as usize;
        let free = |block: usize| unsafe { side.free(block) };
        let sizes = [1, 16, 100, 1000, 5000, 60_000, 3 << 20];
        free(take(8 << 20));
        let (stays, blocks) = (take(100), sizes.map(take));
        let before = side.held();
        assert!(side.chunks().count() == 1 && !side.has_kept(1000));
        blocks.iter().for_each(|&block| free(block));
        assert!(blocks.iter().all(|&block| side.size(block).is_none()) && !side.is_owing());
        assert!(side.held() < before - (3 << 20) + 2 * PAGE as u64, "a large one's pages have gone");
        assert!([16, 1000, 60_000, 3 << 20].iter().all(|&size| side.has_kept(size)) && !side.has_kept(200));
        assert!(side.holds(1000) && ![200, 60_000, 3 << 20].iter().any(|&size| side.holds(size)));
        // (Both of 16 bytes, the last first.)
        assert_eq!([take(16), take(8)], [blocks[1], blocks[0]]);
        assert_eq!(sizes[2..].iter().map(|&size| take(size)).collect::<Vec<_>>(), blocks[2..]);
        assert!(side.held() == before && ![16, 1000, 3 << 20].iter().any(|&size| side.has_kept(size)));
        let more = take(1000);
        assert!(more != blocks[3]);
        // Freed twice it is there once.
        (0..2).for_each(|_| free(blocks[4]));
        let again = take(5000);
        assert!(again == blocks[4] && take(5000) != again);
        // With the last one in use a chunk is empty, and its lists are.
        for base in side.chunks().map(Chunk::base).collect::<Vec<_>>() {
            for at in (base + size_of::<Chunk>() + HEADER..base + side.chunk_of(base).unwrap().bytes).step_by(16) {
                if side.size(at).is_some() {
                    assert!(at == stays || side.held() > 0);
                    free(at);
                }
            }
        }
        assert!(side.chunks().all(is_empty) && side.held() == 0);
        assert!(
            !sizes.iter().any(|&size| side.has_kept(size)) && side.chunks().all(|chunk| chunk.gone.load(Relaxed) == 0)
        );
    }

    fn is_empty(chunk: &Chunk) -> bool {
        let is_kept = chunk.kept.iter().flatten().any(|list| first_of(list.load(Relaxed)) != 0);
        assert!(!is_kept || chunk.word.load(Relaxed) != EMPTY, "kept of nothing");
        chunk.word.load(Relaxed) == EMPTY
    }

    /// What is aligned serves again what is aligned so; where the system gives nothing, what is kept is room.
    #[test]
    fn kept_blocks_serve_their_alignment_again() {
        for align in [16, 32, 64, 1024, PAGE] {
            let side = Side::new();
            let stays = side.alloc(1, 16).expect("memory").as_ptr() as usize;
            for size in (0..4000).map(|n| n % 3 * 700 + 1) {
                let block = side.alloc(size, align).expect("memory").as_ptr() as usize;
                assert!(block.is_multiple_of(align) && side.size(block) == Some(length(size).0));
                unsafe { side.free(block) };
            }
            assert!(side.held() < 16 * PAGE as u64 && side.chunks().count() == 1, "{align}: {}", side.held());
            unsafe { side.free(stays) };
            assert!(side.held() == 0 && side.chunks().all(is_empty), "{align}");
        }
        // More is not kept; nor is there a list for it.
        let side = Side::new();
        let block = side.alloc(100, 2 * PAGE).expect("memory").as_ptr() as usize;
        let stays = side.alloc(1000, 16).expect("memory").as_ptr() as usize;
        unsafe { side.free(block) };
        assert!(side.held() > 1000 && !side.has_kept(100));
        // All of a chunk is taken, one block is kept.
        while side.chunks().count() == 1 && side.chunks().any(|chunk| chunk.has_room(1024)) {
            assert!(side.alloc(1000, 16).is_some());
        }
        unsafe { side.free(stays) };
        fault::storm(1, 1);
        assert!(side.has_kept(1000) && side.has_room(1000) && !side.has_room(2000) && !side.has_kept(2000));
        assert_eq!(side.alloc(1001, 16).map(|block| block.as_ptr() as usize), Some(stays));
        assert!(!side.has_room(1000));
        fault::storm(0, 1);
    }

    /// Beside blocks that stay, memory is what is in use at a time, however many come and go.
    #[test]
    fn what_comes_and_goes_beside_what_stays_takes_no_more() {
        let side = Side::new();
        let mut live: [usize; 300] = core::array::from_fn(|_| side.alloc(1, 16).expect("memory").as_ptr() as usize);
        let (mut random, mut most) = (1_usize, 0);
        for n in 0..60_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 40) % live.len();
            unsafe { side.free(live[at]) };
            live[at] = side.alloc((random >> 20) % 4000, 16).expect("memory").as_ptr() as usize;
            if n == 20_000 {
                most = side.held();
            }
        }
        assert!(side.held() < most + most / 4 && most < 3 << 20, "{most} {}", side.held());
        live.iter().for_each(|&block| unsafe { side.free(block) });
        assert!(side.held() == 0 && side.chunks().all(is_empty));
    }

    /// One that is being emptied gives nothing, and one that has as many blocks as it counts nothing that it keeps.
    #[test]
    fn a_chunk_that_is_shut_gives_nothing() {
        let side = Side::new();
        let blocks = [(); 2].map(|()| side.alloc(100, 16).expect("memory").as_ptr() as usize);
        unsafe { side.free(blocks[0]) };
        let chunk = side.chunks().next().unwrap();
        let word = chunk.word.swap(SHUT, Relaxed);
        assert!(!chunk.count() && !chunk.has_room(16) && chunk.take(16, 16, 0).is_none() && chunk.held() == 0);
        assert!(side.take_kept(chunk, 112, 6, 0).is_none() && side.has_kept(100));
        chunk.word.store(word | (BLOCKS * BLOCK), Relaxed);
        assert!(!chunk.count() && side.take_kept(chunk, 112, 6, 0).is_none());
        chunk.word.store(word, Relaxed);
        assert!(side.take_kept(chunk, 112, 6, 0).is_some_and(|block| block.as_ptr() as usize == blocks[0]));
        blocks.iter().for_each(|&block| unsafe { side.free(block) });
        assert!(is_empty(chunk) && side.held() == 0);
    }

    /// Blocks go round between threads; none is two threads' at once, and the memory is what is in use.
    #[test]
    fn threads_have_kept_blocks_once_each() {
        let side = Side::new();
        crate::tests::threads::scope(|scope| {
            for thread in 1..=4_usize {
                let side = &side;
                scope.spawn(move || {
                    let mut live: [(usize, usize); 8] = [(0, 0); 8];
                    for n in 0..40_000 {
                        let at = n * 7 % 8;
                        let (block, size) = live[at];
                        if block != 0 {
                            let words = unsafe { core::slice::from_raw_parts(block as *const usize, size / 8) };
                            assert!(words.iter().all(|&word| word == (thread << 32) + n - 8), "torn");
                            unsafe { side.free(block) };
                        }
                        let size = [16, 48, 160, 1024][n / 8 % 4];
                        let block = side.alloc(size, 16).expect("memory").as_ptr() as usize;
                        unsafe { core::slice::from_raw_parts_mut(block as *mut usize, size / 8) }
                            .fill((thread << 32) + n);
                        live[at] = (block, size);
                        // (Now and then nothing is in use, and a chunk is emptied.)
                        if n % 500 == 499 {
                            live.iter().for_each(|&(block, _)| unsafe { side.free(block) });
                            live = [(0, 0); 8];
                        }
                    }
                    live.iter().filter(|&&(block, _)| block != 0).for_each(|&(block, _)| unsafe { side.free(block) });
                });
            }
        });
        assert!(side.held() == 0 && side.chunks().all(is_empty), "{}", side.held());
        assert!(side.chunks().count() < 8);
    }

    #[test]
    fn what_threads_put_off_is_found_once() {
        let side = Side::new();
        let mut seen = [0_u8; 8001];
        crate::tests::threads::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let side = &side;
                    scope.spawn(move || (1..=2000).for_each(|n| assert!(side.put_off(thread * 2000 + n, || false))))
                })
                .collect();
            while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                side.take(|_| false).for_each(|n| seen[n] += 1);
            }
        });
        side.take(|_| false).for_each(|n| seen[n] += 1);
        assert!(seen[1..].iter().all(|&n| n == 1) && !side.is_owing());
    }
}
