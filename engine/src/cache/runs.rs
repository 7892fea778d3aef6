//! # Whether a CPU's run serves what it is for
//!
//! ```text
//! count  0 … 110: not cut │ 111: cut, to see │ 112 … 127: cut │ 120 … 127: lent, too; each of them while nothing is out
//!        a request that is not served: 1 more │ one that comes back: 112, then 1 more │ a request while one is out, or the run goes so: 0
//! ```
//! Of the run (`heap::run`) areas are cut, and come back to it. Where programs keep what they get that tears up what was freed last, which the
//! shortest dirty run that is long enough would not: 200 blocks of any size took a tenth more memory, two temporary blocks of some megabytes beside short ones that
//! are kept six times as many page faults, and where short ones were lent of it a hundred times the address space. So it is cut where programs take and free one such block at a
//! time, and else of a hundred requests once, to see.
//!
//! Units: areas. Locks: none; hints, which a thread that was moved may change for another CPU. Cost: a load and a store.

use crate::arch::atomic::AtomicU8;
use crate::arch::atomic::Ordering::Relaxed;
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};

/// An area was cut, and has not come back.
const OUT: u8 = 0x80;
/// The count: the last request that is not served; from which on requests of other classes are; the most.
const TRIAL: u8 = 111;
const LENDS: u8 = 120;
const MOST: u8 = 0x7f;

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

    /// Whether what is cut comes back before the next is.
    #[inline]
    pub fn lasts(&self) -> bool {
        self.state.load(Relaxed) & MOST > TRIAL
    }

    /// The same, or it is time to see whether it does; and nothing is out.
    #[inline]
    pub fn would_cut(&self) -> bool {
        (TRIAL..=MOST).contains(&self.state.load(Relaxed))
    }

    /// The same for a request that would be served.
    #[inline]
    pub fn may_cut(&self) -> bool {
        let may = self.would_cut();
        if !may {
            let state = self.state.load(Relaxed);
            self.state.store(if state & OUT == 0 { state + 1 } else { 0 }, Relaxed);
        }
        may
    }

    /// Whether requests of other classes are served.
    #[inline]
    pub fn may_lend(&self) -> bool {
        (LENDS..=MOST).contains(&self.state.load(Relaxed))
    }

    /// An area was cut.
    #[inline]
    pub fn cut(&self) {
        self.state.store(self.state.load(Relaxed) | OUT, Relaxed);
    }

    /// One for a request of a class of its own; whether the last ones were, too.
    pub fn lends_again(&self, class: usize) -> bool {
        let (class, last) = ((class - FIRST_FRONT) as u8 & CLASS, self.class.load(Relaxed));
        let times = if last & CLASS == class { (last & TIMES).saturating_add(TIME) } else { 0 };
        self.class.store(times & TIMES | class, Relaxed);
        times >= TIMES
    }

    /// What was cut came back. (What was out when another was asked for is forgotten.)
    #[inline]
    pub fn came_back(&self) {
        let state = self.state.load(Relaxed);
        if state & OUT != 0 {
            self.state.store(((state & MOST) + 1).clamp(TRIAL + 1, MOST), Relaxed);
        }
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

    fn asked(runs: &Runs) -> u8 {
        (0..u8::MAX).take_while(|_| !runs.may_cut()).count() as u8
    }

    #[test]
    fn a_run_is_cut_while_what_was_cut_comes_back_at_once() {
        let runs = Runs::new();
        // Nothing is known: one in a while.
        assert!(!runs.lasts() && !runs.would_cut());
        assert_eq!(asked(&runs), TRIAL);
        assert!(runs.would_cut() && !runs.lasts());
        // It is kept: another is asked for while it is out. That it comes back later says nothing.
        runs.cut();
        assert!(!runs.would_cut() && !runs.may_cut());
        runs.came_back();
        assert_eq!(asked(&runs), TRIAL);
        // It comes back.
        runs.cut();
        runs.came_back();
        for _ in 0..200 {
            assert!(runs.lasts() && runs.may_cut());
            runs.cut();
            assert!(!runs.would_cut());
            runs.came_back();
        }
        // What is out when the run goes was kept; what was not out was not.
        runs.goes();
        assert!(runs.lasts());
        runs.cut();
        runs.goes();
        assert!(!runs.lasts());
        assert_eq!(asked(&runs), TRIAL);
    }

    #[test]
    fn a_run_lends_while_all_comes_back_at_once() {
        let runs = Runs::new();
        assert_eq!(asked(&runs), TRIAL);
        for _ in TRIAL..LENDS {
            assert!(!runs.may_lend());
            runs.cut();
            runs.came_back();
        }
        assert!(runs.may_lend());
        runs.cut();
        assert!(!runs.may_lend(), "one is out");
        runs.came_back();
        assert!(runs.may_lend());
        runs.cut();
        assert!(!runs.may_cut());
        runs.came_back();
        assert!(!runs.may_lend());
    }

    #[test]
    fn the_class_that_was_served_last_is_known() {
        let runs = Runs::new();
        let classes = [1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 2];
        let again = [false, false, false, false, false, false, false, true, true, false, false];
        assert_eq!(classes.map(|class| runs.lends_again(FIRST_FRONT + class)), again);
    }
}
