//! # What sequences are given
//!
//! Where they find what they work on: the same for every processor.
//!
//! ```text
//! board ──► [ void set ][ … ][ slots[cpu_id] ]        board is a `cache::Sets`
//!                 ▲               │ offset from board to the set of this CPU; 0 is the void set
//!                 └───────────────┴──► set: words[class]{spare, main} …
//!                                           ├─ + TALLY ─► tally: events, …
//!                                           └─ + COUNTS ─► {allocs, frees} per class: in the tally, too
//!
//! handle ──► [ nobody's unit ][ unit of index 0 ][ unit of index 1 ] …      UNIT bytes each
//!             at               at + UNIT          at + 2 × UNIT
//! ```
//! `class` is the byte offset of the class's pair of words (16 × class id).

use super::atomic::AtomicUsize;

/// Bytes from the board to `slots`. (`cache` asserts that its types agree with these.)
pub const SLOTS: usize = 5256;
/// Indices that can ever be: Linux's largest number of CPUs on x86-64.
pub const INDICES: usize = 8192;
/// Bytes from a set to its tally: a bit that no address of a set has (`cache` aligns them), so that adding it is setting it.
pub const TALLY: usize = 1 << 26;
/// Bytes from a set to its tally's counts by class.
pub const COUNTS: usize = TALLY + 2048;
/// Bytes from a class's pair of words to the main one. Objects begin at multiples of 16, as pairs do: so what a program stores at the
/// beginning of an object is never at the page offset of a word that a sequence loads next. (Where it is, an Intel processor takes the
/// one for the other if their pages' physical addresses agree in some bits: docs/performance.md.)
pub const MAIN: usize = 8;
/// The largest number in a slot of a sheaf that is no object but one of its ends.
pub const BARRIER: u64 = 7;

/// Where this thread's rseq area is, and which of its words is the index.
#[derive(Clone, Copy, Debug, Default)]
pub struct RseqArea {
    /// Offset of the area from the thread pointer.
    pub base: isize,
    /// Offset of the index word (`cpu_id_start` or `mm_cid`) from the thread pointer.
    pub index: isize,
}

/// log2 of [`UNIT`].
pub const UNIT_SHIFT: u32 = 18;
/// Bytes from a CPU index's copy to the next index's.
pub const UNIT: usize = 1 << UNIT_SHIFT;

/// Where a sequence on per-CPU memory finds what it needs.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Offset of this thread's area from the thread pointer.
    pub base: isize,
    /// The switch: indices below it may be written.
    pub high: &'a AtomicUsize,
    /// The address in nobody's unit.
    pub at: usize,
}
