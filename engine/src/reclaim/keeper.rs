//! # The housekeeper: one thread that gives back what an idle program does not use
//!
//! ```text
//! none ──slow allocation, heap has grown──► started ──► awake ◄──slow free── parked
//!   ▲                                                    │  └──nothing left──► ▲
//!   └───────────────── small again ──────────────────────┘
//! ```
//! Every [`PERIOD`] it looks at what happened since the last look:
//!
//! | the program | what may stay free and resident | besides |
//! |---|---|---|
//! | works | the limit of [`super`] | sets of CPUs that did nothing for [`QUIET`] periods are drained |
//! | idle (no slow allocation worth the name) | half of what the period before left | |
//! | idle for the knob's seconds | nothing | all sets are drained, free pages inside slabs go back |
//!
//! What may stay is nothing while the system says that something waits for memory. From the memory cgroup it learns
//! what the limits are that nobody gave as a number (see [`super::limits`]).
//!
//! An idle program that has nothing left to give back costs nothing: the
//! thread parks until a slow free wakes it, or a request from outside (`heap::desk`), which it serves at any time.
//! It sleeps on the board's *bell*, which other processes can ring; who rings changes the word, so that nothing
//! that rang between a look and the sleep is missed.
//!
//! A process that begins to filter its own system calls ([`Keeper::confine`]) gets no
//! thread any more, and one that runs only gives memory back: a filter may kill
//! on any call but those that manage memory. Whoever makes other calls does so between [`Keeper::enter`] and
//! [`Keeper::leave`], for which a filter waits. One that wants a user namespace, which a
//! second thread forbids, sees it leave ([`Keeper::dismiss`]).
//!
//! It reads files with a table of descriptors of its own, or not at all: a program that has one thread may count on
//! what number its next file gets, and one that closes all its files on having closed its own only.
//!
//! Units: bytes, periods. Invariant: at most one thread, none in a forked child.
//! Locks: none held while it sleeps. Cost: a look is a few hundred loads.

use crate::arch::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::arch::atomic::{AtomicBool, AtomicU32};
use crate::arch::sys::{self, Clock};

/// Nanoseconds between two looks.
pub const PERIOD: u64 = 1_000_000_000;
/// Periods without an operation after which a CPU's set is drained.
pub const QUIET: u32 = 3;
/// Looks between two at the cgroup's limit, which hardly ever changes.
const RECENT: u64 = 8;
/// Hundredths of a per cent of the last ten seconds in which something waited for memory: it is short.
pub const SHORT: u64 = 100;
/// Slow allocations in a period that are not worth the name of work.
const NOISE: u64 = 64;

/// There is none.
const NONE: u32 = 0;
/// Somebody is starting it.
const STARTING: u32 = 1;
/// It looks every period.
const AWAKE: u32 = 2;
/// It sleeps until it is woken.
const PARKED: u32 = 3;
/// It is to end, or could not be started: for good.
const DISMISSED: u32 = 4;

/// The state of the one thread.
#[derive(Debug)]
pub struct Keeper {
    state: AtomicU32,
    confined: AtomicBool,
    /// Threads of ours that make calls for which a filter may kill.
    exposed: AtomicU32,
    /// The thread has files of its own.
    files: AtomicBool,
}

/// What one look decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// The program works: the usual limit.
    Usual,
    /// It has been idle for so many periods: halve what is left.
    Halve,
    /// It has been idle for long: give everything back.
    All,
}

/// What the thread remembers between looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    seen: u64,
    idle: u64,
    rest: bool,
    looks: u64,
}

impl Watch {
    /// `allocs` slow allocations and reuses of areas were counted so far; all is to be given back after `patience`
    /// idle periods.
    pub fn look(&mut self, allocs: u64, patience: u64) -> Duty {
        let since = allocs.wrapping_sub(self.seen);
        self.seen = allocs;
        self.idle = if since > NOISE { 0 } else { self.idle + 1 };
        match self.idle {
            0 => Duty::Usual,
            idle if idle < patience => Duty::Halve,
            _ => Duty::All,
        }
    }

    /// Whether to look at the cgroup's limits now, too: every [`RECENT`] looks.
    pub fn looks_at_limits(&mut self) -> bool {
        self.looks += 1;
        self.looks.is_multiple_of(RECENT)
    }

    /// After a look that gave `bytes` back: whether there is nothing left to do.
    pub fn rests(&mut self, duty: Duty, bytes: usize) -> bool {
        let nothing = duty == Duty::All && bytes == 0;
        // Twice: what the first of them drained becomes free pages for the second.
        let rests = nothing && self.rest;
        self.rest = nothing;
        rests
    }
}

impl Default for Keeper {
    fn default() -> Self {
        Self::new()
    }
}

impl Keeper {
    /// Not started.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(NONE),
            confined: AtomicBool::new(false),
            exposed: AtomicU32::new(0),
            files: AtomicBool::new(false),
        }
    }

    /// Whether nobody has tried to start it.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.state.load(Relaxed) == NONE
    }

    /// Claims the start: true for one caller, who starts the thread or leaves it at that.
    pub fn claim(&self) -> bool {
        // Relaxed: the claim publishes nothing; thread creation orders what the thread reads.
        !self.is_confined() && self.state.compare_exchange(NONE, STARTING, Relaxed, Relaxed).is_ok()
    }

    /// The process is about to filter its system calls: returns when no thread of ours makes any but those that
    /// manage memory, or is just being created; after a second at most.
    pub fn confine(&self) {
        // SeqCst: with `enter`, one of the two sees the other.
        self.confined.store(true, SeqCst);
        for _ in 0..1000 {
            let exposed = self.exposed.load(SeqCst);
            if exposed == 0 && self.state.load(Relaxed) != STARTING {
                return;
            }
            sys::futex_wait_for(&self.exposed, exposed, 1_000_000);
        }
    }

    /// Whether a thread of ours may make calls for which a filter may kill, until it leaves.
    #[must_use]
    pub fn enter(&self) -> bool {
        // SeqCst: as in `confine`.
        self.exposed.fetch_add(1, SeqCst);
        let enters = !self.confined.load(SeqCst);
        if !enters {
            self.leave();
        }
        enters
    }

    /// Ends an [`Keeper::enter`] that was granted.
    pub fn leave(&self) {
        // SeqCst: what was done is done before `confine` returns; and it is woken, or sees the new number.
        if self.exposed.fetch_sub(1, SeqCst) == 1 && self.confined.load(SeqCst) {
            sys::futex_wake(&self.exposed, u32::MAX >> 1);
        }
    }

    /// The time, if the thread may ask for it.
    fn now(&self, clock: &Clock) -> Option<u64> {
        self.enter().then(|| {
            let now = clock.now_ns();
            self.leave();
            now
        })
    }

    /// Whether [`Keeper::confine`] was called.
    #[inline]
    pub fn is_confined(&self) -> bool {
        self.confined.load(Relaxed)
    }

    /// The thread, which has entered, leaves the program's files to the program.
    pub fn look_for_files(&self) {
        // Relaxed: the thread's own.
        self.files.store(sys::own_files().is_ok(), Relaxed);
    }

    /// Whether the thread may open files.
    pub fn may_read(&self) -> bool {
        self.files.load(Relaxed) && !self.is_confined()
    }

    /// The thread runs; false if it was dismissed meanwhile.
    pub fn begin(&self) -> bool {
        self.state.compare_exchange(STARTING, AWAKE, Release, Relaxed).is_ok()
    }

    /// Ends the thread for good, soon; whether there was one.
    pub fn dismiss(&self, bell: &AtomicU32) -> bool {
        // AcqRel: as in `wake`.
        let was = self.state.swap(DISMISSED, AcqRel);
        ring(bell);
        matches!(was, STARTING | AWAKE | PARKED)
    }

    /// Whether the thread is to end.
    pub fn is_dismissed(&self) -> bool {
        self.state.load(Relaxed) == DISMISSED
    }

    /// Sleeps `ns` at most, unless somebody rang since `bell` was read as `rung`.
    pub fn sleep(&self, bell: &AtomicU32, rung: u32, ns: u64) {
        sys::futex_wait_shared_for(bell, rung, Some(ns));
    }

    /// Sleeps until [`Keeper::wake`], or for good if dismissed; serves who asks meanwhile. `left` says how much there
    /// is to give back; `before` is what it was before the last look, which found nothing to do.
    ///
    /// Who frees looks whether the thread is parked after it has freed, without a fence between: it may read the state
    /// of a moment before. So the first sleep is for one period only. What was freed by then is seen behind it.
    pub fn park(&self, clock: &Clock, bell: &AtomicU32, serve: impl Fn() -> bool, before: u64, left: impl Fn() -> u64) {
        if self.state.compare_exchange(AWAKE, PARKED, Release, Relaxed).is_err() {
            return;
        }
        // (Who filters system calls may not be asked for the time: then a ring ends the period.)
        let end = self.now(clock).map(|now| now + PERIOD);
        let mut looks_again = true;
        loop {
            // Acquire: what was done before the ring is seen, in the state and at the desk.
            let rung = bell.load(Acquire);
            // Acquire: what the waker freed is seen.
            if self.state.load(Acquire) != PARKED {
                return;
            }
            if serve() {
                continue;
            }
            if !looks_again {
                sys::futex_wait_shared_for(bell, rung, None);
                continue;
            }
            let rest = end.and_then(|end| Some(end.saturating_sub(self.now(clock)?)));
            if rest != Some(0) {
                sys::futex_wait_shared_for(bell, rung, Some(rest.unwrap_or(PERIOD)));
                if rest.is_some() {
                    continue;
                }
            }
            looks_again = false;
            if left() > before {
                // Whoever wakes it at this moment means the same.
                let _ = self.state.compare_exchange(PARKED, AWAKE, AcqRel, Relaxed);
                return;
            }
        }
    }

    /// Whether the thread sleeps until it is woken.
    #[inline]
    pub fn is_parked(&self) -> bool {
        self.state.load(Relaxed) == PARKED
    }

    /// Wakes the thread if it is parked.
    #[cold]
    pub fn wake(&self, bell: &AtomicU32) {
        // AcqRel: pairs with `park`; one caller wakes.
        if self.state.compare_exchange(PARKED, AWAKE, AcqRel, Relaxed).is_ok() {
            ring(bell);
        }
    }

    /// There is no thread any more: this is a forked child.
    pub fn gone(&self) {
        self.exposed.store(0, Relaxed);
        self.state.store(NONE, Release);
    }

    /// The thread ends by itself; another may be started, unless it was dismissed meanwhile.
    pub fn end(&self) {
        let _ = self.state.compare_exchange(AWAKE, NONE, Release, Relaxed);
    }
}

/// Wakes who sleeps on the bell, or is about to.
fn ring(bell: &AtomicU32) {
    // Release: pairs with the look before the sleep.
    bell.fetch_add(1, Release);
    sys::futex_wake_shared(bell);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idleness_grows_until_all_is_due_and_work_ends_it() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(1000, 3), Duty::Usual);
        assert_eq!(watch.look(1000 + NOISE, 3), Duty::Halve);
        assert_eq!(watch.look(1000 + NOISE, 3), Duty::Halve);
        assert_eq!(watch.look(1000 + NOISE, 3), Duty::All);
        assert_eq!(watch.look(1001 + 2 * NOISE, 3), Duty::Usual);
    }

    #[test]
    fn limits_are_looked_at_now_and_then() {
        let mut watch = Watch::default();
        let looks = (0..2 * RECENT).filter(|_| watch.looks_at_limits()).count();
        assert_eq!(looks, 2);
    }

    #[test]
    fn it_rests_after_two_looks_in_vain() {
        let mut watch = Watch::default();
        assert!(!watch.rests(Duty::All, 0));
        assert!(!watch.rests(Duty::All, 4096));
        assert!(!watch.rests(Duty::All, 0));
        assert!(watch.rests(Duty::All, 0));
        assert!(!watch.rests(Duty::Halve, 0));
    }

    #[test]
    fn one_thread_starts_and_a_parked_one_is_woken() {
        let (keeper, bell) = (Keeper::new(), AtomicU32::new(0));
        assert!(keeper.is_none() && keeper.claim() && !keeper.claim() && !keeper.is_none());
        assert!(keeper.begin());
        std::thread::scope(|scope| {
            let parked = scope.spawn(|| keeper.park(&Clock::new(), &bell, || false, 0, || 0));
            while !parked.is_finished() {
                keeper.wake(&bell);
                std::thread::yield_now();
            }
        });
        keeper.end();
        assert!(keeper.claim() && keeper.begin() && keeper.dismiss(&bell) && keeper.is_dismissed());
        keeper.park(&Clock::new(), &bell, || false, 0, || 0); // returns
        assert!(!keeper.claim() && !keeper.is_confined(), "for good, and only that");
        keeper.gone();
        keeper.confine();
        assert!(!keeper.claim() && !keeper.dismiss(&bell), "confined");
    }

    /// Or a filter would kill the process in the middle of a look.
    #[test]
    fn a_filter_waits_for_who_looks() {
        let (keeper, outside) = (Keeper::new(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while keeper.enter() {
                        std::thread::sleep(std::time::Duration::from_millis(3));
                        assert_eq!(outside.load(SeqCst), 0, "the filter came while a thread looked");
                        keeper.leave();
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            keeper.confine();
            outside.store(1, SeqCst);
        });
        assert!(!keeper.enter() && keeper.exposed.load(Relaxed) == 0 && keeper.now(&Clock::new()).is_none());
    }

    #[test]
    fn who_parks_serves_and_sees_what_was_freed_at_that_moment() {
        let (keeper, bell, served) = (Keeper::new(), AtomicU32::new(0), AtomicU32::new(0));
        assert!(keeper.claim() && keeper.begin());
        // Nobody wakes it: there is more than before its last look.
        let looks = AtomicU32::new(0);
        keeper.park(&Clock::new(), &bell, || false, 0, || u64::from(looks.fetch_add(1, Relaxed)) + 1);
        assert!(!keeper.is_parked() && looks.load(Relaxed) == 1);
        let serve = || served.compare_exchange(1, 2, Relaxed, Relaxed).is_ok();
        std::thread::scope(|scope| {
            let parked = scope.spawn(|| keeper.park(&Clock::new(), &bell, serve, 0, || 0));
            while !keeper.is_parked() {
                std::thread::yield_now();
            }
            served.store(1, Relaxed);
            ring(&bell);
            while served.load(Relaxed) != 2 {
                std::thread::yield_now();
            }
            assert!(!parked.is_finished(), "serving does not wake it");
            keeper.wake(&bell);
        });
    }
}
