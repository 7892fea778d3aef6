//! # `vmap`: areas of whole pages, above 16 KiB
//!
//! ```text
//! busy ───────── free ──────────► dirty runs (neighbours merged)
//!  ▲ └──── shortest run that it fits into ──┘      │ gather: of long ones the highest
//!  │                                               ▼
//!  └── lowest fit ── free runs (clean, in the tree) ◄── purge ── pending (sorted, merged)
//! ```
//! A freed area keeps its pages: an allocation takes a part of a dirty run and faults nothing; only where there is none
//! fresh memory is used. (What a CPU freed a moment ago and takes again is a layer above: `heap::front`.) A purge takes
//! dirty runs, of the longest those that lie highest first, gives them back to the system in slices without any lock, and settles the counters once
//! (Linux `mm/vmalloc.c`, `__purge_vmap_area_lazy`). No rounding: 36 KiB cost 36 KiB.
//!
//! | kind of the first page's descriptor | resident | in |
//! |---|---|---|
//! | `Area` | yes | the program's hands |
//! | `Front` | yes | a CPU's set |
//! | `Lazy` | yes | pending, a purge's hand; with a guard or moved: [`lists`] of its space |
//! | `Dirty` | yes | [`dirty`] |
//! | `Run` | no (zero when touched) | [`tree`] |
//!
//! Huge-page areas live in a space (and windows) of their own. All others are of one space, too, until threads are in each other's way
//! there: from then on every fourth CPU has one of its own ([`Vmap::home`]). What has a space's number goes back there when it is freed, whoever frees
//! it; a space that has no dirty run long enough takes a large piece of another's ([`reuse`]), so that what is resident is everybody's. Areas above half
//! a window (*giant* ones) have a window of their own, are not reused but given back: at once or soon, in slices,
//! by several threads (see [`purge`]), then unmapped.
//!
//! | file | does |
//! |---|---|
//! | [`tree`], [`dirty`], [`lists`], [`flight`] | the structures |
//! | [`space`] | the flags of areas, a space and its growth |
//! | [`areas`] | finding areas, levels, the hard limit: what the next ones are made of |
//! | [`giant`], [`purge`] | back to the system |
//! | [`free`], [`reuse`], [`alloc`], [`resize`] | what is asked for |
//! | [`clear`] | zeros where old contents are |
//! | [`wide`] | what was freed last of what no CPU keeps |
//! | [`handover`], [`walk`] | what zones get and give; all areas, one by one |
//!
//! Each uses only what stands before it.
//!
//! Units: pages inside, bytes at the door. Locks: one per space (`areas`), held across no advice but of fresh memory.
//! Cost: of a dirty run a lock and ≈ 40 loads and stores; else O(log n).
#![allow(unsafe_code)] // address space by number

mod alloc;
mod areas;
mod clear;
pub mod dirty;
pub mod flight;
mod free;
mod giant;
mod handover;
pub mod lists;
mod purge;
mod resize;
mod reuse;
mod space;
mod sparse;
pub mod tree;
mod walk;
pub mod wide;

pub use areas::{Area, Areas, DIFFERENTIAL, Freed, Fresh, Ticket, Vmap};
pub use purge::{BATCH, SLICE, TURN};
pub use space::PLAIN;
pub use sparse::copy;
pub use walk::Shown;

#[cfg(test)]
mod tests;
