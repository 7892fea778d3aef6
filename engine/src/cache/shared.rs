//! # What a shared or forked board needs
//!
//! What is done with it is [`super::share`]'s.

use crate::arch::atomic::{AtomicBool, AtomicUsize};

/// What a shared or forked board needs. Zero: private, and never forked.
#[derive(Debug)]
pub(super) struct Share {
    /// Of a shared board: tallies that have their pages, and bytes of texts that do (`ensure` in [`super::share`]). No tallies: nobody
    /// else sees the board; [`SETS_MAX`](crate::stat::board::SETS_MAX): further ones are private.
    pub sure: AtomicUsize,
    pub sure_texts: AtomicUsize,
    /// The board's texts; 0 until there are any.
    pub text: AtomicUsize,
    /// A word that is not zero, but in a forked child that nobody has told so; 0: there is none (`watch`, there).
    pub witness: AtomicUsize,
    /// Whether one was asked for, which the system may have refused.
    pub watches: AtomicBool,
    /// Of a shared board that was forked: a private copy of it and of the sets while a fork is under way; or 0.
    pub copy: AtomicUsize,
    /// Sets (and tallies) that the copy has room for.
    pub copied: AtomicUsize,
}

impl Share {
    pub const fn new() -> Self {
        Self {
            sure: AtomicUsize::new(0),
            sure_texts: AtomicUsize::new(0),
            text: AtomicUsize::new(0),
            witness: AtomicUsize::new(0),
            watches: AtomicBool::new(false),
            copy: AtomicUsize::new(0),
            copied: AtomicUsize::new(0),
        }
    }
}
