//! # Naps: how long who waits sleeps between two looks
//!
//! Twice as long each time, from 50 µs to 3.2 ms: who waits is late by as long as he has waited, at most. Many that wait for one thread
//! leave it the CPU so: a thousand that looked each 50 µs would keep it from running at all.
//!
//! Units: ns; looks of 50 µs. Locks: none.

/// ns of the first nap.
pub const LOOK: u64 = 50_000;
/// ns of the longest.
const LONGEST: u64 = 64 * LOOK;

/// The naps of one wait.
#[derive(Debug)]
pub struct Naps {
    next: u64,
    left: u64,
}

impl Naps {
    /// As many as it takes.
    #[must_use]
    pub const fn for_ever() -> Self {
        Self { next: LOOK, left: u64::MAX }
    }

    /// Together as long as so many of the first.
    #[must_use]
    pub const fn within(looks: u32) -> Self {
        Self { next: LOOK, left: looks as u64 * LOOK }
    }

    /// The next one of as many as it takes.
    pub fn longer(&mut self) -> u64 {
        self.next().unwrap_or(LONGEST)
    }
}

impl Iterator for Naps {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        let nap = self.next.min(self.left);
        self.next = (2 * self.next).min(LONGEST);
        if self.left != u64::MAX {
            self.left -= nap;
        }
        (nap > 0).then_some(nap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_double_and_end() {
        assert!(Naps::within(0).next().is_none() && Naps::within(1).eq([LOOK]));
        assert!(Naps::within(8).eq([LOOK, 2 * LOOK, 4 * LOOK, LOOK]));
        assert_eq!(Naps::within(2000).sum::<u64>(), 2000 * LOOK);
        assert!(Naps::within(2000).all(|nap| nap <= LONGEST) && Naps::within(2000).count() < 50);
        assert!(Naps::for_ever().skip(1000).take(1000).all(|nap| nap == LONGEST));
    }
}
