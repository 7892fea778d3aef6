//! # The keeper: one thread that gives back what an idle program does not use
//!
//! ```text
//! none ──slow path, heap has grown──► started ──► awake ──nothing left for two looks──► hibernating, a period ──► ▲
//!   ▲                                    │           ▲                                    │   (or, where others
//!   └─ refused: tried again later ◄──────┘           └──────────────slow free─────────────┘   may ask, for long)
//!   └─◄── a slow path does what a look would have done, once a period ([`Tending`])
//! ```
//! Every [`PERIOD`] it looks at what happened since the last look:
//!
//! | the program | what may stay free and resident | besides |
//! |---|---|---|
//! | works | the limit of [`super`] | sets of CPUs that did nothing for [`QUIET`] periods, or that cache areas which nobody asked for as long, are drained |
//! | idle (no slow allocation worth the name) | half of what the period before left | |
//! | idle for the knob's seconds | nothing | all sets are drained, free pages inside slabs go back |
//!
//! What may stay is nothing while the system says that something waits for memory. From the memory cgroup it learns
//! what the limits are that nobody gave as a number (see [`super::limits`]).
//!
//! Where there is none, and none can be had (refused, a program that filters its system calls, the knob), slow paths
//! give back at once what passes the limit, which counts less of what the program used a moment ago, and do the rest when
//! a period is over.
//!
//! **It is no reason for anything.** The C library does not know the thread ([`crate::arch::crew`]). Every [`LIFE`] it
//! looks whether any other is left, and leaves if none is: the process ends with the status of its own last one. It ends when
//! it has nothing left to do, but where others may look into the process. It acts as the thread that started it: when the
//! process's user or group changes it ends, at once where the change is seen coming ([`Keeper::hold`]: nobody has a
//! thread of ours until [`Keeper::release`]), else at the next look.
//!
//! A program of one thread is one when its `fork` returns, for whoever counts: the thread ends before the fork, and a
//! slow path starts the next a tenth of a second later at the earliest ([`Keeper::rest`]). The program may idle from then
//! on: what the thread would give back goes before the fork, and what is freed before another may start at once ([`Keeper::is_out`]).
//! A program that forks more often has none; slow paths and the end of a fork do its work.
//!
//! It sleeps on the board's *bell*, which other processes can ring; a process that rings changes the word, so that nothing
//! that rang between a look and the sleep is missed.
//!
//! A process that begins to filter its own system calls ([`Keeper::confine`]) has no thread of ours any more: a filter may
//! kill on any call but those that manage memory. Whoever makes other calls does so between [`Keeper::enter`] and
//! [`Keeper::leave`], for which a filter waits.
//!
//! It reads files with a table of descriptors of its own, or not at all: a program that has one thread may count on
//! what number its next file gets, and one that closes all its files on having closed its own only.
//!
//! Units: bytes, periods, ticks. Invariant: at most one thread, none in a forked child, none while it is held.
//! Locks: none held while it sleeps. Cost: a look is a few hundred loads; two system calls every [`LIFE`].

use crate::arch::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::arch::atomic::settle;
use crate::arch::atomic::{AtomicBool, AtomicU32, AtomicU64};
use crate::arch::sys::{self, Clock};

/// Nanoseconds between two looks.
pub const PERIOD: u64 = 1_000_000_000;
/// Nanoseconds between two looks whether the process has any thread but ours.
pub const LIFE: u64 = PERIOD / 2;
/// Ticks of a period, some: for a thread that may not ask for the time.
const TICKS: u64 = 1 << 31;
/// Ticks after the fork of a program of one thread, or after a hold, before which none is started: a tenth of a second, some.
const REST: u64 = 1 << 28;
/// A start that was refused is tried again after a period; after each further one twice as late, up to so many times.
const PATIENCE: u32 = 6;
/// Periods without an operation after which a CPU's set is drained.
pub const QUIET: u32 = 3;
/// Looks between two at the cgroup's limit, which hardly ever changes.
const RECENT: u64 = 8;
/// Hundredths of a per cent of the last ten seconds in which something waited for memory: it is short.
pub const SHORT: u64 = 100;
/// Slow allocations in a period that are not worth the name of work.
const NOISE: u64 = 64;

/// How far the keeper is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum State {
    /// There is none.
    None,
    /// Somebody starts it.
    Starting,
    /// It looks every period, or sleeps until the next.
    Awake,
    /// It sleeps until something is freed, or asked for.
    Hibernating,
}

/// The state of the one thread.
#[derive(Debug)]
pub struct Keeper {
    state: AtomicU32,
    /// Those who want no thread of ours to be there now.
    holds: AtomicU32,
    confined: AtomicBool,
    /// Threads of ours that make calls for which a filter may kill.
    exposed: AtomicU32,
    /// The thread has files of its own.
    files: AtomicBool,
    /// The process's first thread has ended, and others of its own lived on.
    outlived: AtomicBool,
    /// How often in a row it could not be had, and ticks before which nobody tries again.
    refusals: AtomicU32,
    retry: AtomicU64,
    /// A fork was the last to end it, or a hold.
    resting: AtomicBool,
}

/// What one look decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// The program works: the usual limit.
    Usual,
    /// It has been idle for some periods: a part of what is left ([`after_idle`](super::policy::after_idle)).
    Fall,
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
            idle if idle < patience => Duty::Fall,
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

/// What slow paths do in turn where there is no keeper.
#[derive(Debug, Default)]
pub struct Tending {
    /// Ticks before which nobody does it again; 0: never done.
    next: AtomicU64,
    /// Slow allocations when it was last done.
    seen: AtomicU64,
    turns: AtomicU64,
}

impl Tending {
    /// Not yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(0), seen: AtomicU64::new(0), turns: AtomicU64::new(0) }
    }

    /// What is due at `now` after `allocs` slow allocations, as [`Watch::look`] would say, and whether the limits are to
    /// be looked at: for one caller a period. (Relaxed, all: policy.)
    pub fn is_due(&self, now: u64, allocs: impl FnOnce() -> u64, patience: u64) -> Option<(Duty, bool)> {
        let next = self.next.load(Relaxed);
        if now < next || self.next.compare_exchange(next, now + TICKS, Relaxed, Relaxed).is_err() {
            return None;
        }
        let allocs = allocs();
        let since = allocs.wrapping_sub(self.seen.swap(allocs, Relaxed));
        // (Nobody looked while nothing was slow: the program was idle for as long.)
        let periods = if next == 0 { 0 } else { 1 + (now - next) / TICKS };
        let duty = match periods {
            _ if since > NOISE || periods == 0 => Duty::Usual,
            periods if periods < patience => Duty::Fall,
            _ => Duty::All,
        };
        Some((duty, self.turns.fetch_add(1, Relaxed).is_multiple_of(RECENT) || periods >= RECENT))
    }

    /// Something is due now, after a long silence: for tests, which wait for no period.
    #[cfg(test)]
    pub(super) fn end_rest(&self) {
        self.next.store(1, Relaxed);
    }

    /// At `now`, after `allocs`, a thread ends that has looked till now: the next look is due a period later.
    pub fn put_off(&self, now: u64, allocs: u64) {
        self.next.fetch_max(now + TICKS, Relaxed);
        self.seen.store(allocs, Relaxed);
    }
}

/// Slow allocations after which a process that publishes is no trifle.
pub const FEW: u32 = 32;
/// Ticks before which not even they start a thread: the program may still be starting.
const EARLY: u64 = 1 << 25;
/// Ticks after which any slow allocation does.
const SOON: u64 = 1 << 28;

/// How long a process has used the heap, and how much, without a keeper. (Relaxed, all: policy.)
#[derive(Debug, Default)]
pub struct Youth {
    born: AtomicU64,
    slow: AtomicU32,
}

impl Youth {
    /// Not begun.
    #[must_use]
    pub const fn new() -> Self {
        Self { born: AtomicU64::new(0), slow: AtomicU32::new(0) }
    }
    /// Begins at `now` ticks: the heap opens, or is a forked child's.
    pub fn begin(&self, now: u64) {
        self.born.store(now, Relaxed);
        self.slow.store(0, Relaxed);
    }
    /// Counts a slow allocation; whether it should start the keeper because others look at this process.
    pub fn is_over(&self, now: u64) -> bool {
        let age = now.saturating_sub(self.born.load(Relaxed));
        let slow = self.slow.fetch_add(1, Relaxed);
        age > SOON || age > EARLY && slow >= FEW
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
            state: AtomicU32::new(State::None as u32),
            holds: AtomicU32::new(0),
            confined: AtomicBool::new(false),
            exposed: AtomicU32::new(0),
            files: AtomicBool::new(false),
            outlived: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
            retry: AtomicU64::new(0),
            resting: AtomicBool::new(false),
        }
    }

    /// Whether there is none, and nobody starts it.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.state.load(Relaxed) == State::None as u32
    }

    /// Whether none can be had for now: not allowed, refused, or so soon after a fork of a program of one thread, which may
    /// do nothing any more that would start the next. (One that has not left yet, for want of a CPU, is about to.)
    pub fn is_out(&self, now: impl FnOnce() -> u64) -> bool {
        // Relaxed: policy.
        self.is_confined() || self.refusals.load(Relaxed) > 0 || self.is_resting() && now() < self.retry.load(Relaxed)
    }

    /// Claims the start at `now` ticks: true for one caller, who starts the thread or calls [`Keeper::refused`].
    pub fn claim(&self, now: u64) -> bool {
        // SeqCst: with `hold`, one of the two sees the other. (Relaxed for the time: policy.)
        if self.is_held() || now < self.retry.load(Relaxed) {
            return false;
        }
        let is_ours = self.state.compare_exchange(State::None as u32, State::Starting as u32, SeqCst, Relaxed).is_ok();
        if is_ours && self.is_held() {
            self.state.store(State::None as u32, Release);
            return false;
        }
        if is_ours {
            self.resting.store(false, Relaxed);
        }
        is_ours
    }

    /// The claimed start was refused, or what was started may not see what it must: later, at `now` ticks and some.
    pub fn refused(&self, now: u64) {
        // Relaxed: policy.
        let before = self.refusals.fetch_add(1, Relaxed);
        self.retry.store(now.saturating_add(TICKS << before.min(PATIENCE)), Relaxed);
        self.end();
    }

    /// Around a fork, or a hold: none is started for a while from `now` ticks on.
    pub fn rest(&self, now: u64) {
        // Relaxed, as below: policy.
        self.retry.fetch_max(now.saturating_add(REST), Relaxed);
        self.resting.store(true, Relaxed);
    }

    /// Whether none was started since a [`Keeper::rest`].
    pub fn is_resting(&self) -> bool {
        self.resting.load(Relaxed)
    }

    /// No thread of ours is to be there until [`Keeper::release`]: those that are leave soon. (The caller waits for them.)
    pub fn hold(&self, bell: Option<&AtomicU32>) {
        // SeqCst: as in `claim`.
        self.holds.fetch_add(1, SeqCst);
        if let Some(bell) = bell {
            ring(bell);
        }
    }

    /// Whether somebody starts it just now.
    pub fn is_starting(&self) -> bool {
        // SeqCst: as in `claim`.
        self.state.load(SeqCst) == State::Starting as u32
    }

    /// The opposite of one [`Keeper::hold`].
    pub fn release(&self) {
        // (A child that a handler forked above the frame that holds has forgotten it.)
        let _ = self.holds.fetch_update(SeqCst, SeqCst, |holds| holds.checked_sub(1));
    }

    /// Whether threads of ours are to leave, and none is to be started.
    pub fn is_held(&self) -> bool {
        // SeqCst: as in `claim`.
        self.holds.load(SeqCst) > 0 || self.confined.load(SeqCst)
    }

    /// The process is about to filter its system calls: returns when no thread of ours makes any but those that
    /// manage memory, or is just being created; after a second at most.
    pub fn confine(&self) {
        // SeqCst: with `enter` and `claim`, one of the two sees the other.
        self.confined.store(true, SeqCst);
        for _ in 0..1000 {
            let exposed = self.exposed.load(SeqCst);
            if exposed == 0 && self.state.load(SeqCst) != State::Starting as u32 {
                return;
            }
            sys::futex_wait_for(&self.exposed, exposed, 1_000_000);
        }
    }

    /// Whether a thread of ours may make calls for which a filter may kill, until it leaves.
    #[must_use]
    pub fn enter(&self) -> bool {
        // (Without a call that the filter may kill for.)
        if self.is_confined() {
            return false;
        }
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

    /// How many have entered.
    #[cfg(test)]
    pub(super) fn exposed(&self) -> u32 {
        self.exposed.load(Relaxed)
    }

    /// Whether [`Keeper::confine`] was called.
    #[inline]
    pub fn is_confined(&self) -> bool {
        self.confined.load(Relaxed)
    }

    /// The thread, which has entered, leaves the program's files and places to the program.
    pub fn withdraw(&self) {
        // Relaxed: the thread's own.
        self.files.store(sys::own_files().is_ok(), Relaxed);
        sys::own_root();
    }

    /// Whether the thread may open files.
    pub fn may_read(&self) -> bool {
        self.files.load(Relaxed) && !self.is_confined()
    }

    /// The process's first thread has ended, and another lives.
    pub fn outlives(&self) {
        // Relaxed: read again by the same thread, or after it has ended.
        self.outlived.store(true, Relaxed);
    }

    /// Whether [`Keeper::outlives`] was called.
    pub fn is_outlived(&self) -> bool {
        self.outlived.load(Relaxed)
    }

    /// The thread runs; false if it is not to.
    pub fn begin(&self) -> bool {
        if self.is_held() {
            self.end();
            return false;
        }
        self.state.store(State::Awake as u32, Release);
        true
    }

    /// It has seen what it must: the next start that is refused is the first.
    pub fn is_well(&self) {
        // Relaxed: policy.
        self.refusals.store(0, Relaxed);
    }

    /// Sleeps `ns` at most, unless somebody rang since `bell` was read as `rung`.
    pub fn sleep(&self, bell: &AtomicU32, rung: u32, ns: u64) {
        sys::futex_wait_shared_for(bell, rung, Some(ns));
    }

    /// Sleeps until [`Keeper::wake`] (true), or until it is to end (false). `left` says how much there is to give back;
    /// `before` is what it was before the last look, which found nothing to do. `lives` is asked every [`LIFE`].
    ///
    /// A thread that frees looks whether the thread is hibernating after it has freed, without a fence between: it may read the state
    /// of a moment before. So it sleeps for one period at least; what was freed by then is seen behind it. Then it ends,
    /// unless others may ask (`is_watched`): it serves those who do.
    pub fn hibernate(
        &self,
        clock: &Clock,
        bell: &AtomicU32,
        is_watched: bool,
        (serve, lives): (impl Fn() -> bool, impl Fn() -> bool),
        (before, left): (u64, impl Fn() -> u64),
    ) -> bool {
        // (Nobody else changes the state of one that is awake.)
        self.state.store(State::Hibernating as u32, Release);
        let end = clock.now_ns() + PERIOD;
        let mut looks_again = true;
        loop {
            // Acquire: what was done before the ring is seen, in the state and at the mailbox.
            let rung = bell.load(Acquire);
            // Acquire: what the waker freed is seen.
            if self.state.load(Acquire) != State::Hibernating as u32 {
                return true;
            }
            if self.is_held() || !lives() {
                return false;
            }
            if serve() {
                continue;
            }
            let rest = end.saturating_sub(clock.now_ns());
            if rest == 0 {
                if core::mem::take(&mut looks_again) && left() > before {
                    // Whoever wakes it at this moment means the same.
                    let _ =
                        self.state.compare_exchange(State::Hibernating as u32, State::Awake as u32, AcqRel, Relaxed);
                    return true;
                }
                if !is_watched {
                    // The thread that has just woken it relies on it.
                    return self
                        .state
                        .compare_exchange(State::Hibernating as u32, State::None as u32, AcqRel, Relaxed)
                        .is_err();
                }
            }
            self.sleep(bell, rung, if rest == 0 { LIFE } else { rest.min(LIFE) });
        }
    }

    /// Whether the thread sleeps until it is woken.
    #[inline]
    pub fn is_hibernating(&self) -> bool {
        self.state.load(Relaxed) == State::Hibernating as u32
    }

    /// Wakes the thread if it is hibernating.
    #[cold]
    pub fn wake(&self, bell: &AtomicU32) {
        // AcqRel: pairs with `hibernate`; one caller wakes.
        if self.state.compare_exchange(State::Hibernating as u32, State::Awake as u32, AcqRel, Relaxed).is_ok() {
            ring(bell);
        }
    }

    /// There is no thread any more: this is a forked child.
    pub fn gone(&self) {
        settle!(self.exposed, 0);
        settle!(self.holds, 0);
        settle!(self.outlived, false);
        self.end();
    }

    /// The thread ends; another may be started.
    pub fn end(&self) {
        settle!(self.files, false);
        if !self.is_none() {
            // Release: whoever starts the next comes behind what this one did.
            self.state.store(State::None as u32, Release);
        }
    }
}

/// Wakes the thread that sleeps on the bell, or is about to.
fn ring(bell: &AtomicU32) {
    // Release: pairs with the look before the sleep.
    bell.fetch_add(1, Release);
    sys::futex_wake_shared(bell);
}

#[cfg(test)]
mod tests;
