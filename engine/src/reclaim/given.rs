//! # What was given back lately
//!
//! ```text
//! slices of purges ── bytes ──► this second │ the one before ──► together
//! ```
//! A program that gives back more in that time than twice its recent high takes it again each time (see [`policy`](super::policy::churns)).
//!
//! Units: bytes; windows of [`policy::window`](super::policy::window), of which eight are the second. Locks: none; relaxed and racy, a heuristic.
//! Cost: three loads; a locked add for each slice of a purge.

use super::policy::WINDOWS;
use crate::arch::atomic::AtomicU64;
use crate::arch::atomic::Ordering::Relaxed;

/// Bytes of this second and of the one before.
#[derive(Debug)]
pub struct Given {
    /// The second of the last that were given.
    last: AtomicU64,
    now: AtomicU64,
    before: AtomicU64,
}

impl Given {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: AtomicU64::new(0), now: AtomicU64::new(0), before: AtomicU64::new(0) }
    }

    const fn second(window: u64) -> u64 {
        window / WINDOWS as u64
    }

    /// So many bytes more in this window.
    pub fn add(&self, window: u64, bytes: usize) {
        let (second, last) = (Self::second(window), self.last.load(Relaxed));
        if second != last && self.last.compare_exchange(last, second, Relaxed, Relaxed).is_ok() {
            let now = self.now.swap(0, Relaxed);
            self.before.store(if second.wrapping_sub(last) == 1 { now } else { 0 }, Relaxed);
        }
        self.now.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes of this second and of the one before.
    #[must_use]
    pub fn lately(&self, window: u64) -> u64 {
        match Self::second(window).wrapping_sub(self.last.load(Relaxed)) {
            0 => self.now.load(Relaxed).saturating_add(self.before.load(Relaxed)),
            1 => self.now.load(Relaxed),
            _ => 0,
        }
    }
}

#[cfg(test)]
impl Given {
    /// Bytes of the last second in which any were given and of the one before, however long ago.
    pub fn kept(&self) -> u64 {
        self.now.load(Relaxed) + self.before.load(Relaxed)
    }
}

impl Default for Given {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_counts_to_the_end_of_the_next_second() {
        let given = Given::new();
        assert_eq!(given.lately(0), 0);
        given.add(80, 5);
        given.add(87, 6);
        assert_eq!((given.lately(87), given.lately(88), given.lately(95), given.lately(96)), (11, 11, 11, 0));
        given.add(90, 7);
        assert_eq!((given.lately(95), given.lately(96), given.lately(103), given.lately(104)), (18, 7, 7, 0));
        // Nobody gave for long.
        given.add(1000, 1);
        assert_eq!((given.lately(1000), given.lately(1015), given.lately(1016)), (1, 1, 0));
    }
}
