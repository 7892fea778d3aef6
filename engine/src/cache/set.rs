//! # What one CPU caches
//!
//! ```text
//! set: [ spare, main ] by class │ … │ limits, batches by class │ … │ near: a barn by class of small objects
//!        ▲ sequences, at fixed offsets      └─ slow paths
//! ```
//! Objects that come and go on one CPU pass main, spare and its own barn, four sheaves in all, before anybody else's line is touched.
//!
//! Invariant: a page at most; its first words are where `arch::operands` says. Zero bytes are an empty set. Locks: those of
//! `near`, leaves like the node's barns.

use super::layout::Word;
use super::runs::Runs;
use super::sheaf::Barn;
use crate::arch::atomic::Ordering::{Acquire, Relaxed};
use crate::arch::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};

/// Classes whose objects a set has a barn of its own for: objects of at most 2 KiB.
pub const NEAR: usize = if CLASSES_MAX < 43 { CLASSES_MAX } else { 43 };

/// In [`Set::batches`] of a class of areas: it was asked for one that it did not have.
pub const LACKED: u16 = 1;
/// Likewise: it was asked for one at all since the set was made, or drained.
pub const WANTED: u16 = 2;
/// And what was asked for when its sheaf was full last: the lowest bits of allocations.
pub const SEEN: u16 = 0xfc;

/// In [`Set::mark`]: nothing is wanted.
pub(super) const NONE: u32 = 0;
/// See [`super::drain`].
pub(super) const ASKED: u32 = 1;
/// See [`super::drain`].
pub(super) const PARKED: u32 = 2;
/// See [`super::drain`].
pub(super) const UNFENCED: u32 = 3;

/// The two sheaves that a set has of a class.
#[repr(C)]
#[derive(Debug)]
pub struct Pair {
    /// The one that is exchanged with it before anybody else is asked.
    pub spare: AtomicU64,
    /// The one that push and pop work on.
    pub main: AtomicU64,
}

impl Pair {
    /// The word of main. (A look, where the set is in use.)
    pub fn main(&self) -> Word {
        // Acquire: what it names should be seen whole.
        Word(self.main.load(Acquire))
    }
    /// Objects in both. (Racy where the set is in use.)
    pub fn held(&self) -> usize {
        [&self.main, &self.spare].into_iter().map(|word| Word(word.load(Relaxed)).count() as usize).sum()
    }
}

/// Everything that one CPU caches.
#[repr(C)]
#[derive(Debug)]
pub struct Set {
    /// By class. A class's offset in a set is 16 × its number, as in a tally.
    pub pairs: [Pair; CLASSES_MAX],
    /// Fallback mode: who is inside.
    pub held: crate::arch::lock::Lock<()>,
    /// Objects that a sheaf of a class is entitled to (the kernel's `high` is two of them); doubles
    /// with use, within the budget, and decays. What all of them may hold is the level `charged`.
    /// (Of the classes of areas: see [`super::front`].)
    pub limits: [AtomicU16; CLASSES_MAX],
    /// Objects that the next refill from the source takes: doubles with refills, halves with flushes. (Of a class of areas: [`LACKED`],
    /// [`WANTED`], [`SEEN`], and in the other byte what `done` is of others.)
    pub batches: [AtomicU16; CLASSES_MAX],
    /// The lowest byte of a class's operations when [`super::idle`] looked last.
    pub done: [AtomicU8; FIRST_FRONT],
    /// Where among the classes it looks next; and among those of areas.
    pub hands: [AtomicU8; 2],
    /// What is known of the run among its areas.
    pub runs: Runs,
    /// A class of this set was refused what it would have been entitled to but for the budget.
    pub starves: AtomicBool,
    /// Memory was taken for a class.
    pub grew: AtomicBool,
    /// What somebody wants of the owner, or it has done: see [`super::drain`].
    pub mark: AtomicU32,
    /// The NUMA node of the CPU that fetched it last.
    pub node: AtomicU32,
    /// Operations when the keeper looked last: on all classes, on page lists, on areas.
    pub seen: [AtomicU64; 3],
    /// Looks since that changed.
    pub quiet: [AtomicU32; 3],
    /// Pages that the limits of the classes of areas come to.
    pub fronts: AtomicU32,
    /// Full sheaves in all of `near`.
    pub near_full: AtomicU32,
    /// By class: what goes to and fro on this CPU only need not meet others in the node's barn.
    pub near: [Barn; NEAR],
}

impl Set {
    /// A full sheaf has left one of `near`.
    pub fn near_left(&self) {
        // Relaxed: exact in the end, and a look till then.
        self.near_full.fetch_sub(1, Relaxed);
    }

    /// The set that refuses everything.
    #[allow(clippy::declare_interior_mutable_const, reason = "a constructor for statics")]
    pub const VOID: Self = Self {
        pairs: [const { Pair { main: AtomicU64::new(0), spare: AtomicU64::new(0) } }; CLASSES_MAX],
        held: crate::arch::lock::Lock::new(()),
        limits: [const { AtomicU16::new(0) }; CLASSES_MAX],
        batches: [const { AtomicU16::new(0) }; CLASSES_MAX],
        done: [const { AtomicU8::new(0) }; FIRST_FRONT],
        hands: [const { AtomicU8::new(0) }; 2],
        runs: Runs::new(),
        starves: AtomicBool::new(false),
        grew: AtomicBool::new(false),
        mark: AtomicU32::new(0),
        node: AtomicU32::new(0),
        seen: [const { AtomicU64::new(0) }; 3],
        quiet: [const { AtomicU32::new(0) }; 3],
        fronts: AtomicU32::new(0),
        near_full: AtomicU32::new(0),
        near: [const { Barn::new() }; NEAR],
    };
}
