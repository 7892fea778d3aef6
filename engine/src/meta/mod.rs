//! # `meta`: memory for our own structures
//!
//! ```text
//! chunk (never huge pages)  [ blocks …            | untouched ]
//! free[k] ──► block of 64 << k bytes ──► …   (links live in the free blocks)
//! ```
//! Sheaves, slab descriptors: blocks of 64 to 4,096 bytes, powers of two, from
//! chunks that are never given back. Invariant: a block is on one free list, or
//! handed out, or untouched. Lock: `meta` (a leaf, see ARCHITECTURE.md).
//! Cost: a lock and a few loads; a system call per chunk.
#![allow(unsafe_code)] // carves raw memory

use crate::arch::PAGE;
use crate::arch::lock::Lock;
use crate::arch::sys::{self, Access, Advice};
use crate::stat::{Board, Level};
use core::ptr::NonNull;

const SMALLEST: u32 = 6;
const SIZES: usize = 7;
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
}

impl State {
    /// A chunk of so many bytes, elsewhere; where the system makes no mapping more, right behind the last.
    fn more(&self, chunk: usize) -> Option<usize> {
        if let Ok(fresh) = sys::map(0, chunk, Access::ReadWrite) {
            // SAFETY: fresh and ours. A refusal costs memory only.
            let _ = unsafe { sys::advise(fresh, chunk, Advice::NoHuge) };
            return Some(fresh);
        }
        let last = self.end.checked_sub(PAGE)?;
        // SAFETY: the last page of the last chunk; nothing is there behind it, or nothing is done.
        unsafe { sys::grow(last, PAGE, chunk) }.is_ok().then_some(self.end)
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
        Self { state: Lock::new(State { free: [0; SIZES], at: 0, end: 0, chunk: 0 }) }
    }

    fn size_index(bytes: usize) -> usize {
        debug_assert!(bytes <= Self::LARGEST);
        (bytes.next_power_of_two().trailing_zeros().max(SMALLEST) - SMALLEST) as usize
    }

    /// A block of at least `bytes` (at most [`Meta::LARGEST`]), aligned to its rounded
    /// size, with whatever was in it; `None` when the system has no more memory.
    pub fn alloc(&self, board: &Board, bytes: usize) -> Option<NonNull<u8>> {
        let index = Self::size_index(bytes);
        let size = 1 << (SMALLEST as usize + index);
        let mut state = self.state.lock();
        let head = state.free[index];
        if head != 0 {
            // SAFETY: a block on the list is ours and its first word is the link.
            state.free[index] = unsafe { *(head as *const usize) };
            return NonNull::new(head as *mut u8);
        }
        let mut at = state.at.next_multiple_of(size);
        if at + size > state.end {
            let want = (2 * state.chunk).clamp(FIRST, MOST);
            // A limit may refuse that and allow a page.
            let mut chunks = [want, FIRST, PAGE].into_iter();
            let (fresh, chunk) = chunks.find_map(|chunk| Some((state.more(chunk)?, chunk)))?;
            board.raise(Level::Meta, chunk);
            board.raise(Level::Mapped, chunk);
            board.raise(Level::Reserved, chunk);
            if fresh != state.end {
                at = fresh;
                board.raise(Level::Mappings, 1);
            }
            (state.end, state.chunk) = (fresh + chunk, chunk);
        }
        state.at = at + size;
        NonNull::new(at as *mut u8)
    }

    /// Whether the next block may take a chunk more.
    pub fn is_dry(&self) -> bool {
        let state = self.state.lock();
        state.end - state.at < 2 * Self::LARGEST
    }

    /// Takes memory that reads as zero for good, where the system gives none.
    pub fn feed(&self, board: &Board, at: usize, bytes: usize) {
        let mut state = self.state.lock();
        (state.at, state.end) = (at, at + bytes);
        board.raise(Level::Meta, bytes);
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// `block` came from [`Meta::alloc`] with the same `bytes` and is unused.
    pub unsafe fn free(&self, block: NonNull<u8>, bytes: usize) {
        let index = Self::size_index(bytes);
        let mut state = self.state.lock();
        // SAFETY: the block is ours again and at least a word long.
        unsafe { block.cast::<usize>().write(state.free[index]) };
        state.free[index] = block.as_ptr() as usize;
    }
}
