//! The engine's events and its board, with two classes and few sets.

#[path = "../../engine/src/stat/bad_pointer.rs"]
pub mod bad_pointer;
#[path = "../../engine/src/stat/event.rs"]
pub mod event;
#[path = "../../engine/src/stat/version.rs"]
pub mod version;

pub use bad_pointer::BadPointer;
pub use board::{Board, Mode, Tally};
pub use event::{Event, Level, Timing};

/// `engine/src/stat/board.rs` with smaller bounds (see `build.rs`).
pub mod board {
    include!(concat!(env!("OUT_DIR"), "/board.rs"));
}
