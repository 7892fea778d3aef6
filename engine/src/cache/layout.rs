//! # The shape of a set, shared by assembly and Rust
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

use crate::arch::atomic::{AtomicU8, AtomicU32, AtomicU64};
use crate::stat::board::CLASSES_MAX;

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

/// The two sheaves that a set has of a class.
#[repr(C)]
#[derive(Debug)]
pub struct Pair {
    /// The one that push and pop work on.
    pub main: AtomicU64,
    /// The one that is exchanged with it before anybody else is asked.
    pub spare: AtomicU64,
}

/// Everything that one CPU index caches.
#[repr(C)]
#[derive(Debug)]
pub struct Set {
    /// By class. A class's offset in a set is 16 × its number, as in a tally.
    pub pairs: [Pair; CLASSES_MAX],
    /// The CPU whose sequences may use this set.
    pub cpu: AtomicU32,
    /// Fallback mode: who is inside.
    pub held: crate::arch::lock::Lock<()>,
    /// Objects that a sheaf of a class is entitled to (the kernel's `high` is two of them); doubles
    /// with use, within the budget, and decays. What all of them may hold is the level `charged`.
    /// (Of the classes of areas: see `heap::front`.)
    pub limits: [AtomicU8; CLASSES_MAX],
    /// Objects that the next refill from the source takes: doubles with refills, halves with flushes.
    pub batches: [AtomicU8; CLASSES_MAX],
    /// What somebody wants of the owner, or it has done: see [`super::drain`].
    pub mark: AtomicU32,
    /// The NUMA node of `cpu`.
    pub node: AtomicU32,
    /// Operations when the keeper looked last: on all classes, on page lists, on areas.
    pub seen: [AtomicU64; 3],
    /// Looks since that changed.
    pub quiet: [AtomicU32; 3],
}

impl Set {
    /// The set that refuses everything.
    #[allow(clippy::declare_interior_mutable_const, reason = "a constructor for statics")]
    pub const VOID: Self = Self {
        pairs: [const { Pair { main: AtomicU64::new(0), spare: AtomicU64::new(0) } }; CLASSES_MAX],
        cpu: AtomicU32::new(0),
        held: crate::arch::lock::Lock::new(()),
        limits: [const { AtomicU8::new(0) }; CLASSES_MAX],
        batches: [const { AtomicU8::new(0) }; CLASSES_MAX],
        mark: AtomicU32::new(0),
        node: AtomicU32::new(0),
        seen: [const { AtomicU64::new(0) }; 3],
        quiet: [const { AtomicU32::new(0) }; 3],
    };
}
