//! # The words of a set, shared by assembly and Rust
//!
//! ```text
//! word   63 ............ 20   19 .. 10   9 .. 0
//!        top (address)        room       count
//! ```
//! `top` is the address behind the last object of the sheaf, so that one
//! subtraction pops. A zero word has neither count nor room: it refuses both.
//!
//! Invariant of a word with a sheaf: `top == &sheaf.objects[count]`, which lies below [`seq::REACH`], and
//! `count + room <= OBJECTS`.

use crate::arch::atomic::AtomicU64;
use crate::arch::seq::{self, BITS, TOP};

/// Bytes of a slot of a sheaf.
pub const SLOT: u64 = 8;
const _: () = assert!(size_of::<AtomicU64>() == SLOT as usize);
/// The highest count and room.
const MOST: u64 = (1 << BITS) - 1;
/// Objects that the largest sheaf has slots for: with its head it is a power of two.
pub const OBJECTS: usize = MOST as usize - 1;

/// A sheaf in use, as a set holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Word(pub u64);

impl Word {
    /// No sheaf.
    pub const NONE: Self = Self(0);
    /// Of a sheaf whose slots begin at `objects`.
    #[must_use]
    pub const fn new(objects: u64, count: u64, limit: u64) -> Self {
        debug_assert!(objects + if count > limit { count } else { limit } * SLOT < seq::REACH as u64);
        let room = limit.saturating_sub(count);
        Self((objects + count * SLOT) << TOP | room << BITS | count)
    }
    /// Objects in it.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.0 & MOST
    }
    /// Objects that it still takes.
    #[must_use]
    pub const fn room(self) -> u64 {
        self.0 >> BITS & MOST
    }
    /// Address behind the last object.
    #[must_use]
    pub const fn top(self) -> u64 {
        self.0 >> TOP
    }
    /// Address of the first slot; 0 for [`Word::NONE`].
    #[must_use]
    pub const fn objects(self) -> u64 {
        self.top() - self.count() * SLOT
    }
    /// What is not 0 of a word that has room, or a count.
    #[must_use]
    pub const fn mask(room: bool) -> u64 {
        if room { MOST << BITS } else { MOST }
    }
    /// One object more.
    #[must_use]
    pub const fn pushed(self) -> Self {
        Self(self.0.wrapping_add(seq::ONE as u64))
    }
    /// One object fewer.
    #[must_use]
    pub const fn popped(self) -> Self {
        Self(self.0.wrapping_sub(seq::ONE as u64))
    }
}
