//! # The words of a set, shared by assembly and Rust
//!
//! ```text
//! block  ┌─────────── head ───────────┐
//!        │ next │ counts │ barrier │ object │ … │ object │ free │ … │ free │ barrier │ …
//!                                   slot 0               ▲                  slot `end`
//!                                                        word
//! ```
//! A word is the address of the slot behind a sheaf's last object. Whether there is an object to pop the slot before it says, and whether there
//! is room for one that slot itself: both ends of a sheaf are *barriers*, numbers that no object is. So a sequence that pops or pushes compares
//! what it reads (or is about to write), and takes the word as it is. A zero word is no sheaf, and refuses both: what the kernel wiped for a child is
//! empty at once.
//!
//! How large a sheaf's block is its lower barrier says ([`Block`]).
#![allow(unsafe_code)] // slots by address

use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicPtr, AtomicU16, AtomicU64};
use crate::arch::seq::BARRIER;

/// Bytes of a slot of a sheaf.
pub const SLOT: u64 = 8;
const _: () = assert!(size_of::<AtomicU64>() == SLOT as usize);
/// What a slot holds that is free and no barrier.
pub const FREE: usize = usize::MAX;
/// Objects that the largest sheaf has slots for: with its head and its upper barrier it is a power of two.
pub const OBJECTS: usize = Block::objects(Block::LARGEST);

/// A sheaf in use, as a set holds it; or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    /// No sheaf.
    pub const NONE: Self = Self(0);
    /// Whether what a slot holds is no object.
    #[must_use]
    pub const fn is_barrier(slot: u64) -> bool {
        slot <= BARRIER
    }
    /// From a word to the slot that is an object where the sheaf has one, or no barrier where it has `room`.
    #[must_use]
    pub const fn witness(room: bool) -> isize {
        if room { 0 } else { -(SLOT as isize) }
    }
    /// Whether it has room, or else an object. (A look, where the sheaf is in use.)
    #[must_use]
    pub fn serves(self, room: bool) -> bool {
        let witness = self.0.wrapping_add_signed(Self::witness(room) as i64) as usize;
        // SAFETY: a slot of a sheaf, or a barrier; sheaves are never unmapped. Relaxed: a look, or whoever owns the sheaf.
        self != Self::NONE && !Self::is_barrier(unsafe { &*(witness as *const AtomicU64) }.load(Relaxed))
    }
    /// Its block, the objects in it, and those that it still takes; none of no sheaf. (Of a sheaf that is in use, or was, it is a look.)
    fn look(self) -> Option<(&'static Block, u64, u64)> {
        let block = Block::of(self)?;
        let count = (self.0 - block.first()) / SLOT;
        Some((block, count, block.end().saturating_sub(count)))
    }
    /// Objects in it.
    #[must_use]
    pub fn count(self) -> u64 {
        self.look().map_or(0, |(_, count, _)| count)
    }
    /// Objects that it still takes.
    #[must_use]
    pub fn room(self) -> u64 {
        self.look().map_or(0, |(.., room)| room)
    }
    /// Address of the first slot; 0 of no sheaf.
    #[must_use]
    pub fn objects(self) -> u64 {
        self.look().map_or(0, |(block, ..)| block.first())
    }
    /// One object more.
    #[must_use]
    pub const fn pushed(self) -> Self {
        Self(self.0 + SLOT)
    }
    /// One object fewer.
    #[must_use]
    pub const fn popped(self) -> Self {
        Self(self.0 - SLOT)
    }
}

/// The head of a block; the slots follow. All of it Relaxed: who has the sheaf writes it, and locks and sets order what he hands on; anybody
/// else only looks.
#[repr(C)]
#[derive(Debug)]
pub struct Block {
    /// In a barn.
    pub(super) next: AtomicPtr<Self>,
    /// Objects, of a sheaf that is in no set.
    pub(super) count: AtomicU16,
    /// The slot that is the upper barrier.
    pub(super) end: AtomicU16,
    /// Slots below this are no barriers, but for `end`.
    pub(super) clean: AtomicU16,
    /// The lower barrier: which of [`Block::SIZES`], from [`Block::FIRST`] on.
    pub(super) lower: AtomicU64,
}

impl Block {
    /// Bytes of blocks, as powers of two.
    pub(super) const SIZES: [u32; 5] = [8, 10, 11, 12, 13];
    /// Bytes of the largest.
    pub const LARGEST: usize = 1 << Self::SIZES[Self::SIZES.len() - 1];
    /// The lower barrier of the smallest: neither that of no sheaf, nor what sequences return for aborted.
    pub(super) const FIRST: u64 = 2;

    /// Objects in a block of so many bytes: it has a slot more, for the upper barrier.
    pub const fn objects(bytes: usize) -> usize {
        (bytes - size_of::<Self>()) / SLOT as usize - 1
    }
    /// Which size the smallest block has whose sheaf may hold so many objects, but for four that the head and the barrier take.
    pub(super) fn size(objects: usize) -> usize {
        let fits = |bits: &u32| objects * SLOT as usize <= 1 << bits;
        Self::SIZES.iter().position(fits).unwrap_or(Self::SIZES.len() - 1)
    }
    /// The block of a word; `None` of no sheaf. (Out of line, for the sake of its callers' frames.)
    #[inline(never)]
    pub fn of(word: Word) -> Option<&'static Self> {
        if word == Word::NONE {
            return None;
        }
        // What lies between the head and the word are objects, or were. So the first multiple of a size that says it is one is, among those
        // which lie so far below the word that what they would say it in does, too: behind the word there may be anything.
        (Self::FIRST..).zip(Self::SIZES).find_map(|(lower, bits)| {
            let at = (word.0 as usize - size_of::<Self>()) >> bits << bits;
            // SAFETY: of a word's block, which is of this size at least and never unmapped, or the loop had ended. All atomics that are
            // looked at without having it.
            let block = unsafe { &*(at as *const Self) };
            (block.lower.load(Relaxed) == lower).then_some(block)
        })
    }
    pub(super) fn bytes(&self) -> usize {
        1 << Self::SIZES[(self.lower.load(Relaxed) - Self::FIRST) as usize]
    }
    /// Address of its first slot.
    pub fn first(&self) -> u64 {
        (&raw const *self) as u64 + size_of::<Self>() as u64
    }
    /// The slot that is the upper barrier.
    pub fn end(&self) -> u64 {
        self.end.load(Relaxed).into()
    }
}
const _: () = assert!(Block::FIRST + Block::SIZES.len() as u64 - 1 <= BARRIER);
const _: () = assert!(core::mem::offset_of!(Block, lower) + SLOT as usize == size_of::<Block>());
