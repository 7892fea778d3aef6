//! # Sequences on malloc's sets
//!
//! The door: what they do is in [`super::contract`], what they are given in [`super::operands`], how each processor does it
//! in its directory.

pub use super::operands::{BARRIER, COUNTS, MAIN, RseqArea, SLOTS, TALLY};
pub use super::outcome::Outcome;
pub use super::platform::seq::{EXCHANGES, add, exchange, pop, pop_batch, push, push_batch, swap, switch};
