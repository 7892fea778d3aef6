//! # What passes between a zone and its users: words of pages
//!
//! A zone gives a [`Batch`] and takes a [`Gather`], both by words of 64 pages, so that neighbours cost one step together
//! and addresses are made outside the lock. Units: pages, blocks of an order by where they begin. Locks: none.
//! Cost: a step for each word.
#![allow(unsafe_code)] // arrays that are filled from the front

use super::block::{self, BLOCK_SHIFT, Bits, WORDS};
use super::pfn::{Pfn, each};
use super::windows::Windows;
use crate::arch::PAGE;
use core::mem::MaybeUninit;

/// What a zone gave: for each word of 64 pages where the blocks begin.
#[derive(Debug)]
pub struct Batch {
    words: [MaybeUninit<BatchWord>; Self::ROOM],
    len: usize,
}

/// Blocks that begin in one word.
#[derive(Clone, Copy, Debug)]
pub struct BatchWord {
    /// The first page of the word.
    pub first: Pfn,
    /// Where they begin.
    pub starts: u64,
    /// All of them read as zero.
    pub clean: bool,
}

impl Batch {
    pub(super) const ROOM: usize = 2 * WORDS;

    pub(super) const fn new() -> Self {
        Self { words: [MaybeUninit::uninit(); Self::ROOM], len: 0 }
    }
    pub(super) const fn is_full(&self) -> bool {
        self.len > Self::ROOM - WORDS
    }
    pub(super) fn add(&mut self, number: u32, starts: &Bits, clean: bool) {
        for (word, &starts) in starts.iter().enumerate().filter(|(_, starts)| **starts != 0) {
            let first = Pfn((number << BLOCK_SHIFT) + word as u32 * 64);
            self.words[self.len] = MaybeUninit::new(BatchWord { first, starts, clean });
            self.len += 1;
        }
    }
    pub(super) fn words(&self) -> &[BatchWord] {
        // SAFETY: the first `len` were written.
        unsafe { self.words[..self.len].assume_init_ref() }
    }
}

impl BatchWord {
    /// The addresses of its blocks.
    #[inline(always)]
    pub fn addresses(&self, windows: &Windows, mut take: impl FnMut(usize)) {
        let base = windows.address(self.first);
        each(self.starts, |bit| take(base + bit * PAGE));
    }
}

/// What a zone is to take: pages by word, so that neighbours cost one step together. (Room for fewer words, 16 at least,
/// is for paths that may be deep in a small stack.)
#[derive(Debug)]
pub struct Gather<const ROOM: usize> {
    words: [MaybeUninit<(u32, u64)>; ROOM],
    len: usize,
}

impl<const ROOM: usize> Default for Gather<ROOM> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const ROOM: usize> Gather<ROOM> {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [MaybeUninit::uninit(); ROOM], len: 0 }
    }
    /// Whether a block of `order` fits, wherever it is.
    #[inline]
    #[must_use]
    pub const fn has_room(&self, order: usize) -> bool {
        self.len < ROOM && self.len + ((1 << order) / 64) <= ROOM
    }
    /// Forgets it all.
    pub const fn clear(&mut self) {
        self.len = 0;
    }
    /// Whether there is nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Adds a block; false, and nothing done, if one of its pages was just added.
    #[inline]
    pub fn add(&mut self, block: Pfn, order: usize) -> bool {
        debug_assert!(self.has_room(order) && block.0.is_multiple_of(1 << order));
        let word = block.0 / 64;
        if order >= 6 {
            for at in 0..1 << (order - 6) {
                self.push(word + at, u64::MAX);
            }
            return true;
        }
        let bits = block::span(block.0 as usize % 64, 1 << order);
        if let Some(last) = self.words[..self.len].last_mut()
            // SAFETY: the first `len` were written.
            && let last = unsafe { last.assume_init_mut() }
            && last.0 == word
        {
            let fresh = last.1 & bits == 0;
            last.1 |= bits;
            return fresh;
        }
        self.push(word, bits);
        true
    }
    fn push(&mut self, word: u32, bits: u64) {
        self.words[self.len] = MaybeUninit::new((word, bits));
        self.len += 1;
    }
    pub(super) fn words(&self) -> &[(u32, u64)] {
        // SAFETY: the first `len` were written.
        unsafe { self.words[..self.len].assume_init_ref() }
    }
}
