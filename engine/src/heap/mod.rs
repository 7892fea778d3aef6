//! # `heap`: what malloc means
//!
//! ```text
//! malloc ─► size ≤ gates.small? ─► class ─► pop (sequence) ─► object
//!            │ no                           │ refused, aborted
//!            └────────► cold path ◄─────────┘   set, barn, slab, pages; or an area
//! free ───► class byte of the address > 0? ─► push (sequence)
//! ```
//! The gate is closed until the heap is open, and in the fallback for ever: no
//! size passes it, and no address has a class byte, so the fast paths have no
//! test of their own for that. The same where every `malloc` and `free` is checked (knob `bad_free=abort`).
//!
//! Invariant: an address that the program holds belongs to a slab (class byte
//! not 0 in sequences) or begins an area; anything else is foreign.
//! Cost: the golden table of the fast paths is in `cli/tests/golden`.
//!
//! | file | does |
//! |---|---|
//! | [`door`], [`gates`], [`side`], [`samples`], [`countdown`] | parts of its state |
//! | [`state`] | the state; what the outermost layer decides ([`Environment`]) |
//! | [`enter`], [`profile`], [`open`], [`front`], [`run`] | coming in; sampling; opening; areas that a CPU freed a moment ago; the long one of which others are cut |
//! | [`free`], [`alloc`] | the routes |
//! | [`resize`], [`bulk`], [`area`], [`pages`] | `realloc`; many at once; areas and blocks for programs |
//! | [`fork`], [`back`], [`walk`] | forks; giving back when somebody asks; what there is |
//!
//! Each uses only what stands before it; but what the front misses beside a fork is put off by [`free`].
#![allow(unsafe_code)] // hands out memory

mod alloc;
mod area;
mod back;
mod bulk;
mod countdown;
mod door;
mod enter;
mod fork;
mod free;
mod front;
mod gates;
mod open;
mod pages;
mod profile;
mod resize;
mod run;
pub mod samples;
pub mod side;
mod state;
mod walk;

pub use alloc::Refused;
pub use open::Opening;
pub use state::{Environment, Heap};

#[cfg(test)]
mod tests;
