//! # `stat`: counters
//!
//! Events and levels (one enum each, [`event`]), the heap profile ([`profile`]) and the board on which a
//! process shows them ([`board`]); what is wrong with a pointer ([`bad_pointer`]). Lower layers count in cells handed to them;
//! a reader takes no lock.

pub mod bad_pointer;
pub mod board;
pub mod event;
pub mod profile;
pub mod version;

pub use bad_pointer::BadPointer;
pub use board::{Board, ClassLevels, Index, Mode, Reason, Tally};
pub use event::{Event, Level, Timing};
