//! # Sheaves and barns
//!
//! A *sheaf* is a block with up to 30, 126, 254, 510 or 1,022 pointers to free objects of
//! one class (256 bytes to 8 KiB: what its CPU is entitled to when it is installed);
//! whole sheaves change hands, objects hardly ever do. A *barn*
//! keeps full and empty sheaves of one class on one node, so that what one CPU
//! frees and another allocates moves a sheaf per lock. (Linux `mm/slub.c`, 2025.)
//!
//! ```text
//! barn.full  ──► sheaf {count 1022, slots 1022} ──► sheaf ──► …     at most FULL_MAX, within the budget
//! barn.empty ──► sheaf {count 0, slots 126}  ──► …
//! ```
//! Invariants: a sheaf is in one place (a set's main or spare, a barn, or a
//! slow path's hand); nothing is ever written into the objects themselves.
//! Lock: one per barn, a leaf. Cost: a lock and three stores per sheaf.
#![allow(unsafe_code)] // sheaves are raw blocks

use super::layout::{OBJECTS, SLOT, Word};
use crate::arch::lock::Lock;
use crate::meta::Meta;
use crate::stat::Board;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// Most full sheaves that a barn keeps.
pub const FULL_MAX: u32 = 32;

/// The head of a block; the slots follow.
#[repr(C)]
struct Block {
    next: *mut Block,
    count: u32,
    slots: u32,
}
const _: () = assert!(size_of::<Block>() == 16 && Block::bytes(30) == 256 && Block::bytes(OBJECTS) == 8192);

impl Block {
    /// Slots of the smallest block whose sheaf may hold so many objects, but for two that the head takes.
    const fn slots(objects: usize) -> usize {
        match objects {
            ..=32 => 30,
            33..=128 => 126,
            129..=256 => 254,
            257..=512 => 510,
            _ => OBJECTS,
        }
    }
    /// Bytes of a block with so many slots.
    const fn bytes(slots: usize) -> usize {
        size_of::<Self>() + slots * SLOT as usize
    }
}

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
    /// A new empty sheaf in the block that some `objects` need; `None` without memory that a word reaches.
    fn in_block(meta: &Meta, board: &Board, objects: usize) -> Option<Self> {
        let slots = Block::slots(objects);
        let block: NonNull<Block> = meta.alloc_low(board, Block::bytes(slots))?.cast();
        // SAFETY: a block of that size is ours; only the head needs values.
        unsafe { block.write(Block { next: core::ptr::null_mut(), count: 0, slots: slots as u32 }) };
        Some(Self(block))
    }
    /// The same objects in a block for `objects`, if this one is smaller and there is memory.
    #[must_use]
    pub fn fitting(mut self, meta: &Meta, board: &Board, objects: usize) -> Self {
        if self.slots() >= Block::slots(objects) {
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
        let objects = word.objects() as usize;
        let mut sheaf = Self(NonNull::new(objects.checked_sub(size_of::<Block>())? as *mut Block)?);
        sheaf.set_len(word.count() as usize);
        Some(sheaf)
    }
    /// As a set holds it, entitled to `limit` objects.
    #[must_use]
    pub fn into_word(self, limit: usize) -> Word {
        Word::new(self.first() as u64, self.len() as u64, limit.min(self.slots()) as u64)
    }
    /// Its first slot.
    fn first(&self) -> *mut usize {
        // SAFETY: the slots begin behind the head, in the same block.
        unsafe { self.0.add(1) }.as_ptr().cast()
    }
    /// Objects that its block has slots for.
    #[must_use]
    pub fn slots(&self) -> usize {
        // SAFETY: owned and live.
        unsafe { (*self.0.as_ptr()).slots as usize }
    }
    /// Objects in it.
    #[must_use]
    pub fn len(&self) -> usize {
        // SAFETY: owned and live.
        unsafe { (*self.0.as_ptr()).count as usize }
    }
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn set_len(&mut self, count: usize) {
        // SAFETY: owned and live.
        unsafe { (*self.0.as_ptr()).count = count as u32 };
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
        // SAFETY: slot `len` is inside the block, which is ours.
        unsafe { self.first().add(len).write(object) };
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
        // SAFETY: owned, from `Meta::alloc` with this size, and unused from here on.
        unsafe { meta.free(self.0.cast(), Block::bytes(self.slots())) };
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
        let block = NonNull::new(*list)?;
        // SAFETY: a block on the list is a live sheaf.
        *list = unsafe { (*block.as_ptr()).next };
        Some(Sheaf(block))
    }
    fn put(list: &mut *mut Block, sheaf: Sheaf) {
        // SAFETY: the sheaf is ours; from here on the list's.
        unsafe { (*sheaf.0.as_ptr()).next = *list };
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
            unsafe {
                sum += (*block.as_ptr()).count as usize;
                at = (*block.as_ptr()).next;
            }
        }
        sum
    }
}
