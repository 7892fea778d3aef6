//! # Control: what other processes ask of this one
//!
//! ```text
//! allotment tune, drain, purge, stat ──request──► mailbox ──► heap, reclaim
//!                                    ◄──reply, texts──┘
//! ```
//! [`mailbox`] takes requests and answers them, [`texts`] writes what must be walked to be seen. Both are called by the
//! keeper, and texts by the program itself, too.

pub mod mailbox;
pub mod texts;

#[cfg(test)]
mod tests;
