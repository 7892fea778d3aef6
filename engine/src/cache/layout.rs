//! # The words of a set, shared by assembly and Rust
//!
//! ```text
//! word   63 ............ 16   15 .. 8   7 .. 0
//!        top (address)        room      count
//! ```
//! `top` is the address behind the last object of the sheaf, so that one
//! subtraction pops. A zero word has neither count nor room: it refuses both.
//!
//! Invariant of a word with a sheaf: `top == &sheaf.objects[count]` and
//! `count + room <= OBJECTS`.

use crate::arch::atomic::AtomicU64;

/// Bytes of a slot of a sheaf. (8; a model checker's atomics are larger.)
pub const SLOT: u64 = size_of::<AtomicU64>() as u64;
/// What one more object adds to a word.
pub const ONE: u64 = (SLOT << 16) - (1 << 8) + 1;
/// Objects that the largest sheaf has slots for. (A word has eight bits for them.)
pub const OBJECTS: usize = 254;

/// A sheaf in use, as a set holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Word(pub u64);

impl Word {
    /// No sheaf.
    pub const NONE: Self = Self(0);
    /// Of a sheaf whose slots begin at `objects`.
    #[must_use]
    pub const fn new(objects: u64, count: u64, limit: u64) -> Self {
        let room = limit.saturating_sub(count);
        Self((objects + count * SLOT) << 16 | room << 8 | count)
    }
    /// Objects in it.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.0 & 0xff
    }
    /// Objects that it still takes.
    #[must_use]
    pub const fn room(self) -> u64 {
        self.0 >> 8 & 0xff
    }
    /// Address behind the last object.
    #[must_use]
    pub const fn top(self) -> u64 {
        self.0 >> 16
    }
    /// Address of the first slot; 0 for [`Word::NONE`].
    #[must_use]
    pub const fn objects(self) -> u64 {
        self.top() - self.count() * SLOT
    }
    /// One object more.
    #[must_use]
    pub const fn pushed(self) -> Self {
        Self(self.0.wrapping_add(ONE))
    }
    /// One object fewer.
    #[must_use]
    pub const fn popped(self) -> Self {
        Self(self.0.wrapping_sub(ONE))
    }
}
