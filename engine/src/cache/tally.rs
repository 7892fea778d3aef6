//! # Tallies: what each CPU counts
//!
//! ```text
//! fast path ─► its class's word of its set's tally (in the sequence)
//! slow path ─► an event, a level's differential, a histogram of the same tally; nobody's (0) where that cannot be
//! reader    ─► the board's word and all tallies, added
//! ```
//! Words are added to by sequences of the CPU that has their set, so a sum is exact when nobody adds. Units: operations, bytes, ticks. Locks: none.
//! Cost: a sequence; a fold of a level is one locked instruction.
#![allow(unsafe_code)] // words of a tally by offset

use super::sets::Sets;
use crate::arch::atomic::AtomicU64;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::arch::seq;
use crate::stat::board::{self, LEVEL_THRESHOLD, TALLY_BYTES, TIMES, Times, fold};
use crate::stat::{Event, Level, Mode, Tally, Timing};

impl Sets {
    /// Adds `n` to the word at offset `at` of this CPU's tally, modulo 2⁶⁴; to that of nobody's tally if that cannot be done.
    fn add(&self, at: usize, n: u64) {
        if self.mode() == Mode::Sequences {
            for _ in 0..3 {
                // SAFETY: `self` is the board, `at` a word of a tally.
                if unsafe { seq::add(self.board_pointer(), self.area(), at, n) } == Outcome::Done(()) {
                    return;
                }
            }
        }
        // Tally 0 belongs to no set: everybody adds to it with a locked add.
        self.word(self.tally(0), at).fetch_add(n, Relaxed);
    }

    pub(super) fn word<'a>(&self, tally: &'a Tally, at: usize) -> &'a AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at < TALLY_BYTES);
        // SAFETY: a tally is words, and a page.
        unsafe { &*(&raw const *tally).cast::<u8>().add(at).cast::<AtomicU64>() }
    }

    /// Counts events in this CPU's tally.
    pub fn count(&self, event: Event, n: u64) {
        self.add(core::mem::offset_of!(Tally, events) + event as usize * 8, n);
    }

    /// Notes in this CPU's tally how long something took that began at `start` (see [`Clock`](crate::arch::sys::Clock)).
    pub fn time(&self, timing: Timing, start: u64) {
        let ticks = self.clock.ticks().saturating_sub(start);
        let at = core::mem::offset_of!(Tally, times) + timing as usize * size_of::<Times>();
        self.add(at + core::mem::offset_of!(Times, buckets) + board::bucket(ticks) * 8, 1);
        self.add(at + core::mem::offset_of!(Times, ticks), ticks);
    }

    /// How often something took how long, by [`board::bucket`], and its ticks together: over all tallies.
    #[must_use]
    pub fn times(&self, timing: Timing) -> ([u64; TIMES], u64) {
        let (mut counts, mut ticks) = ([0; TIMES], 0);
        for times in self.tallies().map(|tally| &tally.times[timing as usize]) {
            counts.iter_mut().zip(&times.buckets).for_each(|(sum, bucket)| *sum += bucket.load(Relaxed));
            ticks += times.ticks.load(Relaxed);
        }
        (counts, ticks)
    }

    /// Changes a level by this CPU's differential, which is folded into the board's word when it has grown past
    /// [`LEVEL_THRESHOLD`]; whether it was. Cost: a sequence and a few loads, no locked instruction but to fold.
    pub fn shift(&self, level: Level, by: isize) -> bool {
        let at = core::mem::offset_of!(Tally, levels) + level as usize * 8;
        if self.mode() != Mode::Sequences {
            self.board().levels[level as usize].fetch_add(by as u64, Relaxed);
            return true;
        }
        self.add(at, by as u64);
        // The tally of this CPU; 0 while closed, whose differential is folded at once.
        let tally = self.present().map_or_else(|| self.tally(0), |set| self.tally_of(set));
        let word = self.word(tally, at);
        let differential = word.load(Relaxed);
        if differential.cast_signed().unsigned_abs() <= LEVEL_THRESHOLD {
            return false;
        }
        // What is added here is taken from whatever tally this thread finds itself at: the sum is the same, and
        // a reader between the two is off by it. Relaxed: a level publishes nothing.
        self.board().levels[level as usize].fetch_add(differential, Relaxed);
        self.add(at, differential.wrapping_neg());
        true
    }

    /// A level: the board's word, all differentials, and what nodes of `vmap` have not told. Exact when nobody changes it.
    #[must_use]
    pub fn level(&self, level: Level) -> u64 {
        let at = core::mem::offset_of!(Tally, levels) + level as usize * 8;
        let word = self.board().levels[level as usize].load(Relaxed);
        let sum = self.tallies().fold(word, |sum, tally| sum.wrapping_add(self.word(tally, at).load(Relaxed)));
        fold(level, sum, self.board().differentials())
    }

    /// Objects of a class went out of slabs (or came back, if negative).
    pub fn take(&self, class: usize, objects: isize) {
        self.add(core::mem::offset_of!(Tally, taken) + class * 8, objects as u64);
    }

    /// Objects of a class that are out of slabs, in use or cached. Exact when nobody changes it.
    #[must_use]
    pub fn taken(&self, class: usize) -> u64 {
        let sum = self.tallies().fold(0_u64, |sum, tally| sum.wrapping_add(tally.taken[class].load(Relaxed)));
        sum.cast_signed().max(0) as u64
    }

    /// Objects of all classes that were ever freed, in sets and past them.
    #[must_use]
    pub fn frees(&self) -> u64 {
        let all = self.tallies().flat_map(|tally| tally.class.iter());
        all.fold(0_u64, |sum, ops| sum.wrapping_add(ops.frees.load(Relaxed)))
    }

    /// An object of `class` that came out is no allocation.
    pub fn uncount_alloc(&self, class: usize) {
        self.uncount(class, core::mem::offset_of!(board::ClassOps, allocs));
    }

    /// One that was put in is no free.
    pub fn uncount_free(&self, class: usize) {
        self.uncount(class, core::mem::offset_of!(board::ClassOps, frees));
    }

    fn uncount(&self, class: usize, which: usize) {
        let at = core::mem::offset_of!(Tally, class) + class * size_of::<board::ClassOps>();
        self.add(at + which, 1_u64.wrapping_neg());
    }

    /// Counts operations that went past the sets.
    pub fn count_direct(&self, class: usize, allocs: u64, frees: u64) {
        let ops = &self.tally(0).class[class];
        ops.allocs.fetch_add(allocs, Relaxed);
        ops.frees.fetch_add(frees, Relaxed);
    }

    pub(super) fn tallies(&self) -> impl Iterator<Item = &Tally> {
        (0..self.tallied()).map(|number| self.tally(number))
    }
    /// Tallies that are in use. (In a child that nobody has told, the board itself may say more: its parent goes on.)
    pub(super) fn tallied(&self) -> usize {
        self.made.load(Relaxed) + 1
    }
    /// Sum of an event over all tallies.
    #[must_use]
    pub fn event(&self, event: Event) -> u64 {
        self.tallies().map(|tally| tally.event(event)).fold(0, u64::wrapping_add)
    }
}
