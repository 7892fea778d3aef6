//! # Whether a CPU's run serves what it is for
//!
//! ```text
//!           cut: out ──► comes back: 4 more may be out ──► cut, cut, cut … while one is out
//!  none ──────▲  │
//!   ▲ eighth ┘   └─► the run goes, one out: none
//! ```
//! Of the run (`heap::run`) areas are cut, and come back to it. Where programs keep what they get that tears up what was freed last, which the
//! shortest dirty run that is long enough would not: 200 blocks of any size took a tenth more memory. So it is cut while what was cut comes back,
//! and else once in a while, to see.
//!
//! Units: areas. Locks: none; hints, which a thread that was moved may change for another CPU. Cost: a load and a store.

use crate::arch::atomic::AtomicU8;
use crate::arch::atomic::Ordering::Relaxed;
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};

/// An area was cut, and has not come back.
const OUT: u8 = 0x80;
/// How many more may be cut while one is out. None, where one was out when the run went.
const CREDIT: u8 = 0x0f;
/// What one that came back is worth.
const TRUST: u8 = 4;
/// Where there is none: one request more that would have been served. When these are all, one is.
const TRY: u8 = 0x10;
const TRIES: u8 = 0x70;

/// The class of another's that was served last, from the first of areas on; and how often again, up to three times, from which on it is that class's.
const CLASS: u8 = 0x3f;
const TIME: u8 = 0x40;
const TIMES: u8 = 0xc0;
const _: () = assert!(CLASSES_MAX - FIRST_FRONT <= CLASS as usize);

/// What is known.
#[derive(Debug)]
pub struct Runs {
    state: AtomicU8,
    /// [`CLASS`] and [`TIMES`].
    class: AtomicU8,
}

impl Runs {
    /// Nothing: zero bytes.
    #[allow(clippy::new_without_default, reason = "a part of a set")]
    #[must_use]
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(0), class: AtomicU8::new(0) }
    }

    // (Relaxed, all: hints.)

    /// Whether what was cut lately came back.
    #[inline]
    pub fn lasts(&self) -> bool {
        self.state.load(Relaxed) & CREDIT != 0
    }

    /// The same, or it is time to see whether it does.
    pub fn would_lend(&self) -> bool {
        let state = self.state.load(Relaxed);
        state & CREDIT != 0 || state & TRIES == TRIES
    }

    /// The same for a request that would be served.
    #[inline]
    pub fn may_lend(&self) -> bool {
        let may = self.would_lend();
        if !may {
            self.state.store(self.state.load(Relaxed).wrapping_add(TRY), Relaxed);
        }
        may
    }

    /// An area was cut.
    #[inline]
    pub fn lent(&self) {
        let state = self.state.load(Relaxed);
        self.state.store(OUT | (state & CREDIT).saturating_sub(state / OUT), Relaxed);
    }

    /// One for a request of a class of its own; whether the last ones were, too.
    pub fn lends_again(&self, class: usize) -> bool {
        let (class, last) = ((class - FIRST_FRONT) as u8 & CLASS, self.class.load(Relaxed));
        let times = if last & CLASS == class { (last & TIMES).saturating_add(TIME) } else { 0 };
        self.class.store(times & TIMES | class, Relaxed);
        times >= TIMES
    }

    /// It came back.
    #[inline]
    pub fn came_back(&self) {
        self.state.store(TRUST, Relaxed);
    }

    /// The run goes, whether what was cut of it is in use or not.
    pub fn goes(&self) {
        if self.state.load(Relaxed) & OUT != 0 {
            self.state.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_lends_while_what_it_lent_comes_back() {
        let runs = Runs::new();
        let asked = |runs: &Runs| (0..100).take_while(|_| !runs.may_lend()).count();
        // Nothing is known: one in a while.
        assert!(!runs.lasts() && !runs.would_lend());
        assert_eq!(asked(&runs), 7);
        assert!(runs.would_lend() && !runs.lasts());
        runs.lent();
        assert_eq!(asked(&runs), 7);
        // It comes back: some may be out.
        runs.lent();
        runs.came_back();
        for _ in 0..5 {
            assert!(runs.lasts() && runs.may_lend());
            runs.lent();
        }
        assert!(!runs.lasts());
        // What is out when the run goes was kept; what was not out was not.
        runs.came_back();
        runs.goes();
        assert!(runs.lasts());
        runs.lent();
        runs.goes();
        assert!(!runs.lasts());
        assert_eq!(asked(&runs), 7);
    }

    #[test]
    fn the_class_that_was_served_last_is_known() {
        let runs = Runs::new();
        let classes = [1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 2];
        let again = [false, false, false, false, false, false, false, true, true, false, false];
        assert_eq!(classes.map(|class| runs.lends_again(FIRST_FRONT + class)), again);
    }
}
