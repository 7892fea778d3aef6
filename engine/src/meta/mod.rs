//! # `meta`: memory for our own structures
//!
//! ```text
//! chunk (never huge pages)  [ blocks …            | untouched ]
//! any.free[k]    ──► block of 64 << k bytes ──► …   (links live in the free blocks)
//! stable.free[k] ──► block that is one of this size for ever ──► …
//! ```
//! Sheaves, slab descriptors: blocks of 64 to 8,192 bytes, powers of two, from
//! chunks that are never given back. Where there is no chunk more, larger free blocks are split. What was a sheaf's block is only ever one of that
//! size again: who still looks at it finds a head (`cache::sheaf`; the kernel's `SLAB_TYPESAFE_BY_RCU`).
//! Invariant: a block is on one free list, or handed out, or untouched.
//! Lock: `meta` (a leaf, see ARCHITECTURE.md). Cost: a lock and a few loads; a system call per chunk.
#![allow(unsafe_code)] // carves raw memory

use crate::arch::lock::Lock;
use crate::arch::sys::{self, Access, Advice, Errno};
use crate::arch::{PAGE, mix};
use crate::stat::{Board, Level};
use core::ptr::NonNull;

const SMALLEST: u32 = 6;
const SIZES: usize = 8;
/// Where in its GiB the first chunk is looked for: from the middle on, behind the sets; log2 of the distance of places, and of how many there are.
const PLACES: (usize, u32, u32) = (1 << 29, 22, 6);
/// The first chunk; each is twice as large as the one before, up to the last.
const FIRST: usize = 64 << 10;
const MOST: usize = 1 << 20;

/// The GiB in which our own structures are looked for first (near each other they cost fewer page tables, which forks copy): below the windows
/// of memory (`page::windows`), where hardly ever anybody is. Which of 2,048 follows from where chance placed the library.
#[must_use]
pub fn place() -> usize {
    const HERE: u8 = 0;
    (0x1000 + (mix(core::ptr::from_ref(&HERE) as u64) >> (u64::BITS - 11)) as usize) << 30
}

/// The allocator of our own structures.
#[derive(Debug)]
pub struct Meta {
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    any: Free,
    stable: Free,
    at: usize,
    end: usize,
    /// Bytes of the last chunk.
    chunk: usize,
    /// The system gave not even a page when it was asked last.
    refused: bool,
}

/// Free blocks by size, linked.
#[derive(Debug)]
struct Free([usize; SIZES]);

impl Free {
    /// The first of this size.
    fn pop(&mut self, index: usize) -> Option<usize> {
        let head = self.0[index];
        // SAFETY: a block on the list is ours and its first word is the link.
        (head != 0).then(|| self.0[index] = unsafe { *(head as *const usize) }).map(|()| head)
    }

    /// A block that is free from now on.
    fn push(&mut self, index: usize, block: usize) {
        // SAFETY: the block is ours and at least a word long.
        unsafe { (block as *mut usize).write(self.0[index]) };
        self.0[index] = block;
    }

    /// A range that is free from now on, as the largest blocks that are aligned.
    fn carve(&mut self, mut at: usize, end: usize) {
        while at + Meta::size(0) <= end {
            let aligned = at.trailing_zeros().min((end - at).ilog2());
            let index = (aligned.saturating_sub(SMALLEST) as usize).min(SIZES - 1);
            self.push(index, at);
            at += Meta::size(index);
        }
    }

    /// A block of this size out of a larger one.
    fn split(&mut self, index: usize) -> Option<usize> {
        let (larger, block) = (index + 1..SIZES).find_map(|larger| Some((larger, self.pop(larger)?)))?;
        self.carve(block + Meta::size(index), block + Meta::size(larger));
        Some(block)
    }

    /// Whether there is none of this size, and none larger.
    fn is_dry(&self, index: usize) -> bool {
        self.0[index..].iter().all(|&head| head == 0)
    }
}

impl State {
    const fn new() -> Self {
        let [any, stable] = [const { Free([0; SIZES]) }; 2];
        Self { any, stable, at: 0, end: 0, chunk: 0, refused: false }
    }

    /// A chunk of so many bytes, behind the last if nobody is there; where the system makes no mapping more, only there.
    fn more(&self, chunk: usize) -> Result<usize, Errno> {
        let hint = if self.end == 0 { self.first() } else { self.end };
        let why = match sys::map(hint, chunk, Access::ReadWrite) {
            Ok(fresh) => {
                // SAFETY: fresh and ours. A refusal costs memory only.
                let _ = unsafe { sys::advise(fresh, chunk, Advice::NoHuge) };
                return Ok(fresh);
            }
            Err(why) => why,
        };
        let last = self.end.checked_sub(PAGE).ok_or(why)?;
        // SAFETY: the last page of the last chunk; nothing is there behind it, or nothing is done.
        unsafe { sys::grow(last, PAGE, chunk) }.map(|_| self.end).map_err(|_| why)
    }

    /// Where to begin: another place for each of these in a process.
    fn first(&self) -> usize {
        let (from, distance, places) = PLACES;
        place() + from + ((mix(core::ptr::from_ref(self) as u64) >> (u64::BITS - places)) << distance) as usize
    }

    /// Goes on in a fresh chunk; what is left of the last becomes free blocks.
    fn take(&mut self, board: &Board, fresh: usize, chunk: usize) {
        self.refused = false;
        [Level::Meta, Level::Mapped, Level::Reserved].into_iter().for_each(|level| _ = board.raise(level, chunk));
        if fresh != self.end {
            self.any.carve(self.at, self.end);
            self.at = fresh;
            board.raise(Level::Mappings, 1);
        }
        (self.end, self.chunk) = (fresh + chunk, chunk);
    }

    /// Whether a block of this size has a place in the chunk: made one, if the system gives another.
    fn has_place(&mut self, board: &Board, index: usize) -> bool {
        let size = Meta::size(index);
        if self.at.next_multiple_of(size) + size <= self.end {
            return true;
        }
        let want = (2 * self.chunk).clamp(FIRST, MOST);
        // A limit may refuse that and allow a page. (Where it refused all, that is what is asked for.) Wherever it lies, a chunk
        // has a block of this size in it.
        let chunks = [want, FIRST, PAGE].into_iter().skip(if self.refused { 2 } else { 0 });
        for chunk in chunks.filter(|&chunk| chunk + PAGE >= 2 * size) {
            if let Ok(fresh) = self.more(chunk) {
                self.take(board, fresh, chunk);
                return true;
            }
        }
        // (Where a page would not do, it was not asked for.)
        self.refused |= size <= PAGE;
        false
    }

    /// A block of this size that is none of the stable ones.
    fn alloc(&mut self, board: &Board, index: usize) -> Option<usize> {
        if let Some(block) = self.any.pop(index) {
            return Some(block);
        }
        if self.refused
            && let Some(block) = self.any.split(index)
        {
            return Some(block);
        }
        if !self.has_place(board, index) {
            return self.any.split(index);
        }
        let size = Meta::size(index);
        let (from, at) = (self.at, self.at.next_multiple_of(size));
        self.any.carve(from, at);
        self.at = at + size;
        Some(at)
    }
}

impl Default for Meta {
    fn default() -> Self {
        Self::new()
    }
}

impl Meta {
    /// Largest block.
    pub const LARGEST: usize = 1 << (SMALLEST as usize + SIZES - 1);

    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { state: Lock::new(State::new()) }
    }

    /// Bytes of the blocks of a free list.
    const fn size(index: usize) -> usize {
        1 << (SMALLEST as usize + index)
    }

    fn size_index(bytes: usize) -> usize {
        debug_assert!(bytes <= Self::LARGEST);
        (bytes.next_power_of_two().trailing_zeros().max(SMALLEST) - SMALLEST) as usize
    }

    /// A block of at least `bytes` (at most [`Meta::LARGEST`]), aligned to its rounded
    /// size, with whatever was in it; `None` when the system has no more memory.
    pub fn alloc(&self, board: &Board, bytes: usize) -> Option<NonNull<u8>> {
        NonNull::new(self.state.lock().alloc(board, Self::size_index(bytes))? as *mut u8)
    }

    /// The same, and a block of this size for ever: never given to anybody else.
    pub fn alloc_stable(&self, board: &Board, bytes: usize) -> Option<NonNull<u8>> {
        let index = Self::size_index(bytes);
        let mut state = self.state.lock();
        let block = state.stable.pop(index).or_else(|| state.alloc(board, index));
        NonNull::new(block? as *mut u8)
    }

    /// Has the largest chunk in stock, untouched: whoever asks the system for nothing from now on still gets sheaves on other CPUs.
    pub fn stock(&self, board: &Board) {
        let mut state = self.state.lock();
        if state.end - state.at < MOST
            && let Ok(fresh) = state.more(MOST)
        {
            state.take(board, fresh, MOST);
        }
    }

    /// Whether the next block of a page may take a chunk more.
    pub fn is_dry(&self) -> bool {
        let (state, index) = (self.state.lock(), Self::size_index(PAGE));
        state.any.is_dry(index) && state.at.next_multiple_of(PAGE) + PAGE > state.end
    }

    /// Takes whole pages for good, where the system gives none.
    pub fn feed(&self, board: &Board, at: usize, bytes: usize) {
        self.state.lock().any.carve(at, at + bytes);
        board.raise(Level::Meta, bytes);
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// `block` came from [`Meta::alloc`] with the same `bytes` and is unused.
    pub unsafe fn free(&self, block: NonNull<u8>, bytes: usize) {
        self.state.lock().any.push(Self::size_index(bytes), block.as_ptr() as usize);
    }

    /// Takes a stable one back, of which the first word is overwritten.
    ///
    /// # Safety
    /// `block` came from [`Meta::alloc_stable`] with the same `bytes` and is unused, but for looks behind its first word.
    pub unsafe fn free_stable(&self, block: NonNull<u8>, bytes: usize) {
        self.state.lock().stable.push(Self::size_index(bytes), block.as_ptr() as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(4096))]
    struct Pages([u8; 3 * PAGE]);

    /// Any part of three pages becomes blocks that are aligned and beside each other, and those any smaller ones.
    #[test]
    fn what_is_left_of_a_chunk_is_split_to_the_last_block() {
        let mut pages = Box::new(Pages([0; 3 * PAGE]));
        let base = pages.0.as_mut_ptr() as usize;
        for (from, to) in [(0, 3 * PAGE), (64, 3 * PAGE), (PAGE - 64, 2 * PAGE + 192), (1024, 1024), (4096, 4096 + 63)]
        {
            for index in 0..SIZES {
                let mut state = Free([0; SIZES]);
                state.carve(base + from, base + to);
                let size = Meta::size(index);
                let mut got = std::vec::Vec::new();
                while let Some(block) = state.pop(index).or_else(|| state.split(index)) {
                    assert!(block % size == 0 && block >= base + from && block + size <= base + to);
                    got.push(block);
                }
                got.sort_unstable();
                assert!(got.windows(2).all(|two| two[0] + size <= two[1]));
                let all = ((base + to) / size).saturating_sub((base + from).div_ceil(size));
                assert_eq!(got.len(), all, "blocks of {size} from {from} to {to}");
            }
        }
    }
}
