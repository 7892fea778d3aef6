//! # `percpu`: per-CPU memory for programs
//!
//! What Linux's `mm/percpu.c` is: allocations of any size of which every CPU index has a copy. [`units`] is where a thread finds
//! its own, [`space`] where allocations come from: chunks ([`chunk`]) with bitmaps ([`bitmap`]), kept by how much room they have
//! ([`slots`]), claimed by indices (`claim`), found by addresses (`memory`), and what there is of them ([`report`]). Counters are made of it ([`crate::counter`]).

pub mod api;
pub mod bitmap;
pub mod chunk;
pub(crate) mod claim;
pub(crate) mod memory;
pub mod report;
pub mod slots;
pub mod space;
pub(crate) mod taken;
pub(crate) mod totals;
pub mod units;

pub use units::{Handle, Units};
