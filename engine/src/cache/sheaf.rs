//! # Sheaves and barns
//!
//! A *sheaf* is a block with up to 28, 124, 252, 508 or 1,020 pointers to free objects of
//! one class (256 bytes to 8 KiB: what its CPU is entitled to when it is installed);
//! whole sheaves change hands, objects hardly ever do. A *barn*
//! keeps full and empty sheaves of one class on one node, so that what one CPU
//! frees and another allocates moves a sheaf per lock. (Linux `mm/slub.c`, 2025.)
//!
//! ```text
//! barn.full  ──► sheaf {count 1020, slots 1020} ──► sheaf ──► …     at most FULL_MAX, within the budget
//! barn.empty ──► sheaf {count 0, slots 124}  ──► …
//! ```
//! Invariants: a sheaf is in one place (a set's main or spare, a barn, or a
//! slow path's hand); nothing is ever written into the objects themselves. In a set the slots from the objects to the upper barrier are no
//! barriers ([`layout`](super::layout)). What was a sheaf's block once is one of that size for ever, at a multiple of that: so whoever finds a word finds the head,
//! and may look at it whoever has the sheaf by now.
//! Lock: one per barn, a leaf. Cost: a lock and three stores per sheaf.
#![allow(unsafe_code)] // sheaves are raw blocks

use super::layout::{Block, FREE, SLOT, Word};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicPtr, AtomicU16, AtomicU64};
use crate::arch::lock::Lock;
use crate::meta::Meta;
use crate::stat::Board;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// Most full sheaves that a barn keeps.
pub const FULL_MAX: u32 = 32;

/// A sheaf in hand: owned by the slow path that holds it.
///
/// # Invariants
/// The block is a live sheaf that is in no set and no barn.
#[derive(Debug)]
pub struct Sheaf(NonNull<Block>);

impl Sheaf {
    /// A new empty sheaf for some `objects`, in the smallest block if there is memory for no other; `None` without memory.
    pub fn new(meta: &Meta, board: &Board, objects: usize) -> Option<Self> {
        Self::in_block(meta, board, objects).or_else(|| Self::in_block(meta, board, 1))
    }
    /// A new empty sheaf in the block that some `objects` need; `None` without memory.
    fn in_block(meta: &Meta, board: &Board, objects: usize) -> Option<Self> {
        let size = Block::size(objects);
        let block: NonNull<Block> = meta.alloc_stable(board, 1 << Block::SIZES[size])?.cast();
        let [count, end, clean] = [const { AtomicU16::new(0) }; 3];
        let (next, lower) = (AtomicPtr::new(core::ptr::null_mut()), AtomicU64::new(Block::FIRST + size as u64));
        let head = Block { next, count, end, clean, lower };
        // SAFETY: a block of that size is ours; only the head needs values.
        unsafe { block.write(head) };
        Some(Self(block))
    }
    fn block(&self) -> &Block {
        // SAFETY: owned and live.
        unsafe { self.0.as_ref() }
    }
    /// The same objects in a block for `objects`, if this one is smaller and there is memory.
    #[must_use]
    pub fn fitting(mut self, meta: &Meta, board: &Board, objects: usize) -> Self {
        if self.block().bytes() >= 1 << Block::SIZES[Block::size(objects)] {
            return self;
        }
        let Some(mut larger) = Self::in_block(meta, board, objects) else { return self };
        self.objects().iter().for_each(|&object| _ = larger.push(object));
        self.clear();
        self.discard(meta);
        larger
    }
    /// The sheaf that a set gave up with `word`; `None` if that was no sheaf.
    ///
    /// # Safety
    /// `word` was taken out of a set by a committed swap or by a drain.
    #[must_use]
    pub unsafe fn from_word(word: Word) -> Option<Self> {
        let block = Block::of(word)?;
        let mut sheaf = Self(NonNull::from(block));
        sheaf.set_len(((word.0 - block.first()) / SLOT) as usize);
        Some(sheaf)
    }
    /// As a set holds it, entitled to `limit` objects. (Out of line, for the sake of its callers' frames.)
    #[inline(never)]
    #[must_use]
    pub fn into_word(mut self, limit: usize) -> Word {
        let (len, end) = (self.len(), self.len().max(limit.min(self.slots())));
        let [last, clean] = [&self.block().end, &self.block().clean].map(|at| usize::from(at.load(Relaxed)));
        // What was the barrier may be an object by now; and what objects were pushed is clean.
        if last >= len {
            self.set_slot(last, FREE);
        }
        (clean.max(len)..end).for_each(|at| self.set_slot(at, FREE));
        self.set_slot(end, 0);
        self.block().end.store(end as u16, Relaxed);
        self.block().clean.store(clean.max(end) as u16, Relaxed);
        Word(self.first() as u64 + len as u64 * SLOT)
    }
    fn set_slot(&mut self, at: usize, value: usize) {
        debug_assert!(at <= self.slots());
        // SAFETY: a slot of the block, which is ours.
        unsafe { self.first().add(at).write(value) };
    }
    /// Its first slot.
    fn first(&self) -> *mut usize {
        // SAFETY: the slots begin behind the head, in the same block.
        unsafe { self.0.add(1) }.as_ptr().cast()
    }
    /// Objects that its block has slots for.
    #[must_use]
    pub fn slots(&self) -> usize {
        Block::objects(self.block().bytes())
    }
    /// Objects in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.block().count.load(Relaxed).into()
    }
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn set_len(&mut self, count: usize) {
        self.block().count.store(count as u16, Relaxed);
    }
    /// Its objects.
    #[must_use]
    pub fn objects(&mut self) -> &mut [usize] {
        // SAFETY: owned and live; the first `count` slots were written.
        unsafe { core::slice::from_raw_parts_mut(self.first(), self.len()) }
    }
    /// Fills the first `n` slots of an empty sheaf: `fill` writes them, the last ones first, and says how many.
    pub fn fill(&mut self, n: usize, fill: impl FnOnce(&mut [MaybeUninit<usize>]) -> usize) {
        assert!(self.is_empty() && n <= self.slots());
        // SAFETY: slots of the block, which is ours.
        let slots = unsafe { core::slice::from_raw_parts_mut(self.first().cast(), n) };
        let got = fill(slots);
        slots.copy_within(n - got.., 0);
        self.set_len(got);
    }
    /// One object more; false when all slots are taken.
    pub fn push(&mut self, object: usize) -> bool {
        let len = self.len();
        if len == self.slots() {
            return false;
        }
        self.set_slot(len, object);
        self.set_len(len + 1);
        true
    }
    /// Its `n` newest objects go to `other`, which is empty and has slots for them.
    pub fn give_newest(&mut self, other: &mut Self, n: usize) {
        let rest = self.len() - n;
        assert!(other.is_empty() && n <= other.slots());
        // SAFETY: `n` slots of each block, both of which are ours; those here were written.
        unsafe { other.first().copy_from_nonoverlapping(self.first().add(rest), n) };
        other.set_len(n);
        self.set_len(rest);
    }
    /// Forgets its `n` oldest objects; as many of the newest take their place.
    pub fn forget_oldest(&mut self, n: usize) {
        let rest = self.len() - n;
        self.objects().copy_within(rest.max(n).., 0);
        self.set_len(rest);
    }
    /// Forgets its objects.
    pub fn clear(&mut self) {
        self.set_len(0);
    }
    /// Gives an empty sheaf's block back.
    pub fn discard(self, meta: &Meta) {
        debug_assert!(self.is_empty());
        // SAFETY: owned, from `Meta::alloc_stable` with this size, and unused from here on.
        unsafe { meta.free_stable(self.0.cast(), self.block().bytes()) };
    }
}

/// Full and empty sheaves of one class on one node.
#[derive(Debug)]
pub struct Barn {
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    full: *mut Block,
    empty: *mut Block,
    full_count: u16,
    empty_count: u16,
    /// Fewest full ones since [`Barn::take_unused`] was asked.
    least: u16,
}

// SAFETY: the blocks of the lists belong to the barn.
unsafe impl Send for State {}

impl Default for Barn {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn take(list: &mut *mut Block) -> Option<Sheaf> {
        let sheaf = Sheaf(NonNull::new(*list)?);
        *list = sheaf.block().next.load(Relaxed);
        Some(sheaf)
    }
    fn put(list: &mut *mut Block, sheaf: Sheaf) {
        sheaf.block().next.store(*list, Relaxed);
        *list = sheaf.0.as_ptr();
    }
    fn take_full(&mut self) -> Option<Sheaf> {
        Self::take(&mut self.full).inspect(|_| {
            self.full_count -= 1;
            self.least = self.least.min(self.full_count);
        })
    }
    fn take_empty(&mut self) -> Option<Sheaf> {
        Self::take(&mut self.empty).inspect(|_| self.empty_count -= 1)
    }
    fn put_empty(&mut self, empty: Sheaf) {
        self.empty_count += 1;
        Self::put(&mut self.empty, empty);
    }
    fn put_full(&mut self, full: Sheaf, most: u32) -> Result<(), Sheaf> {
        if u32::from(self.full_count) >= most {
            return Err(full);
        }
        self.full_count += 1;
        Self::put(&mut self.full, full);
        Ok(())
    }
}

impl Barn {
    /// An empty barn.
    #[must_use]
    pub const fn new() -> Self {
        let none = core::ptr::null_mut();
        Self { state: Lock::new(State { full: none, empty: none, full_count: 0, empty_count: 0, least: 0 }) }
    }

    /// A sheaf with objects, if there is one.
    pub fn take_full(&self) -> Option<Sheaf> {
        self.state.lock_elided().take_full()
    }
    /// A sheaf with objects, if there was one more than anybody wanted since this was asked last.
    pub fn take_unused(&self) -> Option<Sheaf> {
        let mut state = self.state.lock_elided();
        let unused = if state.least > 0 { state.take_full() } else { None };
        state.least = state.full_count;
        unused
    }
    /// The same of all such, one after the other: what is wanted behind the last is none.
    pub fn next_unused(&self) -> Option<Sheaf> {
        let mut state = self.state.lock_elided();
        let Some(less) = state.least.checked_sub(1) else {
            state.least = state.full_count;
            return None;
        };
        state.least = less;
        state.take_full()
    }
    /// Takes a sheaf with objects for an empty one.
    ///
    /// # Errors
    /// The empty sheaf, when there is none.
    pub fn trade_empty(&self, empty: Sheaf) -> Result<Sheaf, Sheaf> {
        let mut state = self.state.lock_elided();
        let Some(full) = state.take_full() else { return Err(empty) };
        state.put_empty(empty);
        Ok(full)
    }
    /// Keeps a sheaf with objects, if there are not `most` of them, for an empty one if there is one.
    ///
    /// # Errors
    /// The sheaf, when the barn has enough.
    pub fn trade_full(&self, full: Sheaf, most: u32) -> Result<Option<Sheaf>, Sheaf> {
        let mut state = self.state.lock_elided();
        state.put_full(full, most)?;
        Ok(state.take_empty())
    }
    /// An empty sheaf, a new one for some `objects` if there is none; `None` without memory.
    pub fn take_empty(&self, meta: &Meta, board: &Board, objects: usize) -> Option<Sheaf> {
        let kept = self.state.lock_elided().take_empty();
        kept.or_else(|| Sheaf::new(meta, board, objects))
    }
    /// Likewise, if there are not `most` sheaves with objects.
    pub fn take_empty_below(&self, most: u32, meta: &Meta, board: &Board, objects: usize) -> Option<Sheaf> {
        let has_room = u32::from(self.state.lock_elided().full_count) < most;
        if has_room { self.take_empty(meta, board, objects) } else { None }
    }
    /// Keeps a sheaf with objects.
    ///
    /// # Errors
    /// The sheaf, when the barn has `most` of them.
    pub fn put_full(&self, full: Sheaf, most: u32) -> Result<(), Sheaf> {
        self.state.lock_elided().put_full(full, most)
    }
    /// Keeps an empty sheaf, or discards it when the barn has enough.
    pub fn put_empty(&self, meta: &Meta, sheaf: Sheaf) {
        debug_assert!(sheaf.is_empty());
        {
            let mut state = self.state.lock_elided();
            if u32::from(state.empty_count) < FULL_MAX {
                return state.put_empty(sheaf);
            }
        }
        sheaf.discard(meta);
    }
    /// Empty sheaves now (for tests).
    #[must_use]
    pub fn empties(&self) -> usize {
        self.state.lock_elided().empty_count as usize
    }
    /// Objects in full sheaves now (for statistics and tests).
    #[must_use]
    pub fn objects(&self) -> usize {
        let state = self.state.lock_elided();
        let mut at = state.full;
        let mut sum = 0;
        while let Some(block) = NonNull::new(at) {
            // SAFETY: blocks on the list are live while the lock is held.
            let block = unsafe { block.as_ref() };
            sum += usize::from(block.count.load(Relaxed));
            at = block.next.load(Relaxed);
        }
        sum
    }
}
