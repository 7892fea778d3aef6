//! # `stat`: counters
//!
//! Events and levels (one enum each, [`event`]), the heap profile ([`profile`]) and the board on which a
//! process shows them ([`board`]). Lower layers count in cells handed to them;
//! a reader takes no lock.

pub mod board;
pub mod event;
pub mod profile;

pub use board::{Board, ClassLevels, Index, Mode, Reason, Tally};
pub use event::{Event, Level, Timing};
