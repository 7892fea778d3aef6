//! # The recent high: the most that was in use in the last second or so
//!
//! ```text
//! board: Recent ── the highest since the last look ──► window ──► the last eight of them ──► their highest
//! ```
//! Exact, not decaying: a program that works in waves finds its pages again as long as a wave comes in every second.
//!
//! Units: bytes; windows of [`policy::window`](super::policy::window). Locks: none; relaxed and racy, a heuristic. Cost: nine loads.

use super::policy::WINDOWS;
use crate::arch::atomic::AtomicU64;
use crate::arch::atomic::Ordering::Relaxed;
use crate::stat::{Board, Level};

/// Highs of the last windows.
#[derive(Debug)]
pub struct Highs {
    /// The window of the last look.
    last: AtomicU64,
    highs: [AtomicU64; WINDOWS],
}

impl Highs {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: AtomicU64::new(0), highs: [const { AtomicU64::new(0) }; WINDOWS] }
    }

    /// The recent high in this window, with so much in use; at least that.
    pub fn look(&self, board: &Board, window: u64, in_use: u64) -> u64 {
        let last = self.last.load(Relaxed);
        if window != last && self.last.compare_exchange(last, window, Relaxed, Relaxed).is_ok() {
            let passed = window.wrapping_sub(last).min(WINDOWS as u64);
            // When in the windows that have passed it was is not known: as if in the last of them.
            (1..=passed).for_each(|back| self.slot(window.wrapping_sub(back)).store(0, Relaxed));
            self.slot(window.wrapping_sub(1)).store(board.level(Level::Recent), Relaxed);
            board.set(Level::Recent, in_use);
        }
        let highest = self.highs.iter().map(|high| high.load(Relaxed)).max().unwrap_or(0);
        highest.max(board.level(Level::Recent)).max(in_use)
    }

    fn slot(&self, window: u64) -> &AtomicU64 {
        &self.highs[window as usize % WINDOWS]
    }
}

impl Default for Highs {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    #[test]
    fn a_high_counts_for_eight_windows_and_no_longer() {
        // SAFETY: a board of zeroes is one.
        #[allow(unsafe_code, reason = "as the heap makes it")]
        let board = unsafe { Box::<Board>::new_zeroed().assume_init() };
        let highs = Highs::new();
        assert_eq!(highs.look(&board, 100, 7), 7);
        board.set(Level::Recent, 500);
        assert_eq!(highs.look(&board, 100, 7), 500, "in this window");
        for window in 101..=108 {
            assert_eq!(highs.look(&board, window, 7), 500, "{window}");
        }
        assert_eq!(highs.look(&board, 109, 7), 7);
        // Nobody looked for long: what was highest meanwhile counts from now on.
        board.set(Level::Recent, 900);
        assert_eq!(
            (highs.look(&board, 1000, 8), highs.look(&board, 1007, 8), highs.look(&board, 1008, 8)),
            (900, 900, 8)
        );
        assert_eq!(highs.look(&board, 1008, 2000), 2000, "what is in use is the least");
        // Nor is one there again that was passed over.
        board.set(Level::Recent, 500);
        let looks = [2001, 2005, 2008, 2011].map(|window| highs.look(&board, window, 7));
        assert_eq!(looks, [500, 500, 500, 7]);
    }
}
