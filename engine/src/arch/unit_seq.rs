//! # Sequences on per-CPU memory
//!
//! What [`super::seq`] is for sets, for memory that exists once per CPU index.

pub use super::operands::{Place, UNIT, UNIT_SHIFT};
pub use super::outcome::Outcome;
pub use super::platform::unit_seq::{add, down, move_within, swap, up};
