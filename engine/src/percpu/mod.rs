//! # `percpu`: what exists once per CPU
//!
//! One set per CPU index ([`layout`]), one pointer to it that is the only
//! switch ([`sets`]), how somebody else empties one ([`drain`]), sheaves and barns ([`sheaf`]), and the way from a refused
//! fast path to the source of objects ([`cache`]). [`steps`] and [`sim`] are
//! the sequences once more, for the fallback and for tests. [`units`] is where
//! counters and per-CPU memory find this thread's copy.

pub mod bitmap;
pub mod cache;
pub mod chunk;
pub mod drain;
pub mod layout;
pub mod report;
pub mod sets;
pub mod sheaf;
pub mod sim;
pub mod slots;
pub mod space;
pub mod steps;
pub mod units;

pub use cache::{Cache, Source};
pub use sets::{NODES, Sets, Simulation};
pub use sheaf::Sheaf;
pub use units::{Handle, Units};
