//! # `meta`: memory for our own structures
//!
//! ```text
//! chunk (never huge pages)  [ blocks …            | untouched ]
//! free[k] ──► block of 64 << k bytes ──► …   (links live in the free blocks)
//! ```
//! Sheaves, slab descriptors: blocks of 64 to 8,192 bytes, powers of two, from
//! chunks that are never given back, and lie where the words of sets reach. Where there is no chunk more, larger free blocks are split.
//! Invariant: a block is on one free list, or handed out, or untouched.
//! Lock: `meta` (a leaf, see ARCHITECTURE.md). Cost: a lock and a few loads; a system call per chunk.
#![allow(unsafe_code)] // carves raw memory

use crate::arch::lock::Lock;
use crate::arch::operands::REACH;
use crate::arch::sys::{self, Advice};
use crate::arch::{PAGE, mix};
use crate::stat::{Board, Level};
use core::ptr::NonNull;

const SMALLEST: u32 = 6;
const SIZES: usize = 8;
/// The terabyte in which the first chunk is looked for: below class bytes and sets, where the kernel chooses nothing by itself.
const PLACE: usize = 2 << 40;
/// log2 of the distance of places, and of how many there are.
const PLACES: (u32, u32) = (22, 18);
/// The first chunk; each is twice as large as the one before, up to the last.
const FIRST: usize = 64 << 10;
const MOST: usize = 1 << 20;

/// The allocator of our own structures.
#[derive(Debug)]
pub struct Meta {
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    free: [usize; SIZES],
    at: usize,
    end: usize,
    /// Bytes of the last chunk.
    chunk: usize,
    /// The system gave not even a page when it was asked last.
    refused: bool,
}

impl State {
    /// A chunk of so many bytes, behind the last if nobody is there; where the system makes no mapping more, only there.
    fn more(&self, chunk: usize) -> Option<usize> {
        let hint = if self.end == 0 { self.first() } else { self.end };
        if let Ok(fresh) = sys::map_below(REACH, hint, chunk) {
            // SAFETY: fresh and ours. A refusal costs memory only.
            let _ = unsafe { sys::advise(fresh, chunk, Advice::NoHuge) };
            return Some(fresh);
        }
        let last = self.end.checked_sub(PAGE)?;
        // SAFETY: the last page of the last chunk; nothing is there behind it, or nothing is done.
        unsafe { sys::grow(last, PAGE, chunk) }.is_ok().then_some(self.end)
    }

    /// Where to begin: another place for each of these in a process, and in each process, if it is where chance placed the library.
    fn first(&self) -> usize {
        PLACE + ((mix(core::ptr::from_ref(self) as u64) >> (u64::BITS - PLACES.1)) << PLACES.0) as usize
    }

    /// Goes on in a fresh chunk; what is left of the last becomes free blocks.
    fn take(&mut self, board: &Board, fresh: usize, chunk: usize) {
        self.refused = false;
        board.raise(Level::Meta, chunk);
        board.raise(Level::Mapped, chunk);
        board.raise(Level::Reserved, chunk);
        if fresh != self.end {
            self.carve(self.at, self.end);
            self.at = fresh;
            board.raise(Level::Mappings, 1);
        }
        (self.end, self.chunk) = (fresh + chunk, chunk);
    }

    /// The first free block of this size.
    fn pop(&mut self, index: usize) -> Option<usize> {
        let head = self.free[index];
        // SAFETY: a block on the list is ours and its first word is the link.
        (head != 0).then(|| self.free[index] = unsafe { *(head as *const usize) }).map(|()| head)
    }

    /// A block that is free from now on.
    fn push(&mut self, index: usize, block: usize) {
        // SAFETY: the block is ours and at least a word long.
        unsafe { (block as *mut usize).write(self.free[index]) };
        self.free[index] = block;
    }

    /// What is left of a chunk becomes free blocks, the largest that are aligned.
    fn carve(&mut self, mut at: usize, end: usize) {
        while at + Meta::size(0) <= end {
            let aligned = at.trailing_zeros().min((end - at).ilog2());
            let index = (aligned.saturating_sub(SMALLEST) as usize).min(SIZES - 1);
            self.push(index, at);
            at += Meta::size(index);
        }
    }

    /// A block of this size out of a larger free one.
    fn split(&mut self, index: usize) -> Option<usize> {
        let (larger, block) = (index + 1..SIZES).find_map(|larger| Some((larger, self.pop(larger)?)))?;
        self.carve(block + Meta::size(index), block + Meta::size(larger));
        Some(block)
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
        Self { state: Lock::new(State { free: [0; SIZES], at: 0, end: 0, chunk: 0, refused: false }) }
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
        let index = Self::size_index(bytes);
        let size = Self::size(index);
        let mut state = self.state.lock();
        if let Some(block) = state.pop(index) {
            return NonNull::new(block as *mut u8);
        }
        if state.at.next_multiple_of(size) + size > state.end {
            if state.refused
                && let Some(block) = state.split(index)
            {
                return NonNull::new(block as *mut u8);
            }
            let want = (2 * state.chunk).clamp(FIRST, MOST);
            // A limit may refuse that and allow a page. (Where it refused all, that is what is asked for.) Wherever it lies, a chunk
            // has a block of this size in it.
            let chunks = [want, FIRST, PAGE].into_iter().skip(if state.refused { 2 } else { 0 });
            let mut holding = chunks.filter(|&chunk| chunk + PAGE >= 2 * size);
            let Some((fresh, chunk)) = holding.find_map(|chunk| Some((state.more(chunk)?, chunk))) else {
                // (Where a page would not do, it was not asked for.)
                state.refused |= size <= PAGE;
                return NonNull::new(state.split(index)? as *mut u8);
            };
            state.take(board, fresh, chunk);
        }
        let (from, at) = (state.at, state.at.next_multiple_of(size));
        state.carve(from, at);
        state.at = at + size;
        NonNull::new(at as *mut u8)
    }

    /// Has the largest chunk in stock, untouched: whoever asks the system for nothing from now on still gets sheaves on other CPUs.
    pub fn stock(&self, board: &Board) {
        let mut state = self.state.lock();
        if state.end - state.at < MOST
            && let Some(fresh) = state.more(MOST)
        {
            state.take(board, fresh, MOST);
        }
    }

    /// Whether the next block of a page may take a chunk more.
    pub fn is_dry(&self) -> bool {
        let state = self.state.lock();
        state.free[Self::size_index(PAGE)..].iter().all(|&head| head == 0)
            && state.at.next_multiple_of(PAGE) + PAGE > state.end
    }

    /// Takes whole pages for good, where the system gives none.
    pub fn feed(&self, board: &Board, at: usize, bytes: usize) {
        self.state.lock().carve(at, at + bytes);
        board.raise(Level::Meta, bytes);
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// `block` came from [`Meta::alloc`] with the same `bytes` and is unused.
    pub unsafe fn free(&self, block: NonNull<u8>, bytes: usize) {
        self.state.lock().push(Self::size_index(bytes), block.as_ptr() as usize);
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
                let mut state = State { free: [0; SIZES], at: 0, end: 0, chunk: 0, refused: false };
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
