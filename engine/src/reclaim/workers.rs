//! # Workers: threads that give back what a large free has left
//!
//! ```text
//!            large free, keeper: call            call              a second without one
//! none ──────────────────────────────────► working ◄──────── idle ─────────────────────────► gone
//!                                             │  ▲
//!                          starts one more ◄──┘  └── a turn at a time, while something is queued
//! ```
//! They are threads of this process: what they do is the program's own time, in its cgroup, on its CPUs, with its
//! priority (the kernel's review of Aaron Lu's parallel free, 2017, refused threads that were not). The first one is started by whoever has
//! so much to free that it pays, and asks the system how many there may be (it reads files with a table of
//! descriptors of its own, or none); it starts the next while there is a threshold's worth of work for each.
//!
//! | `max_active` | threads that give back at a time |
//! |---|---|
//! | 1 | one: the caller of a synchronous free, or one worker |
//! | n | n: the caller of a synchronous free and n − 1 workers, or n workers |
//! | 0 | of two for each node, the CPUs we may run on and the CPUs of the cgroup's quota the least; one while half the last ten seconds somebody waited for a CPU. Deferred: one less, which stays the program's |
//!
//! The C library does not know them ([`crate::arch::crew`]): they keep no process alive for longer than a second, and are
//! gone before credentials or namespaces change. No worker in a process that filters its system calls, none where the
//! keeper is off; none in a forked child until it frees something large.
//!
//! Units: threads, pages. Invariant: `alive` threads run [`super::Mm::work`], or are being started. Locks:
//! none. Cost: a call is a locked instruction, two with a sleeper to wake.

use crate::arch::atomic::AtomicU32;
use crate::arch::atomic::Ordering::{Relaxed, SeqCst};
use crate::arch::atomic::settle;
use crate::arch::sys::{self, Clock};

/// ns that a worker waits for more, in naps: a deferred free wakes no thread, which might take its CPU before it has
/// returned.
pub const LINGER: u64 = 1_000_000_000;
/// ns of a nap.
pub const NAP: u64 = 4_000_000;
/// Hundredths of a per cent of the last ten seconds in which somebody waited for a CPU: there is none to spare.
const BUSY: u64 = 5_000;
/// Seconds, nearly, between two looks at what the system allows: log2 of ns.
const FRESH: u32 = 30;

/// The workers of a heap.
#[derive(Debug)]
pub struct Workers {
    alive: AtomicU32,
    sleeping: AtomicU32,
    /// Changes with each call; idle ones sleep here.
    calls: AtomicU32,
    /// What the system allowed when it was last asked, and when that was (0: never).
    allowed: AtomicU32,
    asked: AtomicU32,
}

/// What the system allows.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Nodes with memory.
    pub nodes: u32,
    /// CPUs that the caller may run on.
    pub cpus: u32,
    /// CPUs that the cgroup pays for, rounded up; `None` without a quota.
    pub quota: Option<u32>,
    /// In how much of the last ten seconds somebody waited for a CPU: hundredths of a per cent.
    pub pressure: u64,
}

impl Allowance {
    /// Threads at a time.
    #[must_use]
    pub fn threads(&self) -> u32 {
        let most = (2 * self.nodes).min(self.cpus).min(self.quota.unwrap_or(u32::MAX)).max(1);
        if self.pressure >= BUSY { 1 } else { most }
    }
}

impl Default for Workers {
    fn default() -> Self {
        Self::new()
    }
}

impl Workers {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        const fn zero() -> AtomicU32 {
            AtomicU32::new(0)
        }
        Self { alive: zero(), sleeping: zero(), calls: zero(), allowed: zero(), asked: zero() }
    }

    /// How many there are.
    #[inline]
    pub fn alive(&self) -> u32 {
        self.alive.load(Relaxed)
    }

    /// How many threads the system allowed when somebody asked; `None` before.
    pub fn allowed(&self) -> Option<u32> {
        // Relaxed, as below: a number for a heuristic.
        Some(self.allowed.load(Relaxed)).filter(|&threads| threads > 0)
    }

    /// Asks the system what it allows, if that is a second old.
    pub fn ask(&self, clock: &Clock, ask: impl FnOnce() -> Allowance) {
        let now = ((clock.now_ns() >> FRESH) as u32).wrapping_add(1).max(1);
        if self.asked.load(Relaxed) != now && self.asked.swap(now, Relaxed) != now {
            self.allowed.store(ask().threads(), Relaxed);
        }
    }

    /// Something was queued: nobody goes to sleep, or away, without a look at it. A thread that sleeps looks at the end of its
    /// nap, or now if he is to be woken.
    pub fn call(&self, wakes: bool) {
        // SeqCst, as in `sleep` and `leave`: either the call sees the sleeper or the sleeper sees the call.
        self.calls.fetch_add(1, SeqCst);
        if wakes && self.sleeping.load(SeqCst) > 0 {
            sys::futex_wake(&self.calls, u32::MAX >> 1);
        }
    }

    /// What to give to [`Workers::sleep`] and [`Workers::leave`]; read before the queue is.
    pub fn calls(&self) -> u32 {
        self.calls.load(SeqCst)
    }

    /// Claims the start of one more, if fewer than `most` are there; the caller starts it or calls
    /// [`Workers::unclaim`].
    pub fn claim(&self, most: u32) -> bool {
        let mut alive = self.alive.load(Relaxed);
        while alive < most {
            // SeqCst: as in `leave`.
            match self.alive.compare_exchange(alive, alive + 1, SeqCst, Relaxed) {
                Ok(_) => return true,
                Err(now) => alive = now,
            }
        }
        false
    }

    /// It could not be started.
    pub fn unclaim(&self) {
        self.alive.fetch_sub(1, SeqCst);
    }

    /// Sleeps until the next call, `ns` at most; whether there was one.
    pub fn sleep(&self, seen: u32, ns: u64) -> bool {
        self.sleeping.fetch_add(1, SeqCst);
        if self.calls.load(SeqCst) == seen {
            sys::futex_wait_for(&self.calls, seen, ns);
        }
        self.sleeping.fetch_sub(1, SeqCst);
        self.calls() != seen
    }

    /// A worker goes; false if it was called at that moment, and nobody else was there to come.
    pub fn leave(&self, seen: u32) -> bool {
        self.alive.fetch_sub(1, SeqCst);
        // A thread that calls changes `calls` first and then looks for one alive.
        self.calls() == seen || !self.claim(1)
    }

    /// A worker goes because there are more than `most`; false if there are not.
    pub fn leave_to(&self, most: u32) -> bool {
        let fewer = |alive| (alive > most).then(|| alive - 1);
        self.alive.fetch_update(SeqCst, Relaxed, fewer).is_ok()
    }

    /// In a forked child: they stayed behind.
    pub fn gone(&self) {
        settle!(self.alive, 0);
        settle!(self.sleeping, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    #[test]
    fn the_least_of_what_is_allowed_counts() {
        let all = Allowance { nodes: 2, cpus: 64, quota: None, pressure: 0 };
        assert_eq!(all.threads(), 4);
        assert_eq!(Allowance { nodes: 3, ..all }.threads(), 6);
        assert_eq!(Allowance { cpus: 3, ..all }.threads(), 3);
        assert_eq!(Allowance { quota: Some(2), ..all }.threads(), 2);
        assert_eq!(Allowance { pressure: BUSY, ..all }.threads(), 1);
        assert_eq!(Allowance { nodes: 0, cpus: 0, quota: Some(0), pressure: 0 }.threads(), 1);
    }

    #[test]
    fn the_system_is_asked_once_a_second() {
        let workers = Workers::new();
        let mut asked = 0;
        assert_eq!(workers.allowed(), None);
        for _ in 0..100 {
            workers.ask(&Clock::new(), || {
                asked += 1;
                Allowance { nodes: 2, cpus: 64, quota: None, pressure: 0 }
            });
            assert_eq!(workers.allowed(), Some(4));
        }
        assert!((1..=2).contains(&asked), "{asked}");
    }

    #[test]
    fn only_those_leave_who_are_too_many() {
        let workers = Workers::new();
        assert!(workers.claim(2) && workers.claim(2) && !workers.claim(2));
        assert!(workers.leave_to(1) && !workers.leave_to(1));
        assert_eq!(workers.alive(), 1);
    }

    /// A sleeper that nobody wakes sleeps for ever here.
    #[test]
    fn a_call_wakes_all_who_sleep_and_nobody_sleeps_behind_it() {
        const FOR_EVER: u64 = 1 << 62;
        let (workers, called) = (Workers::new(), AtomicU32::new(0));
        let seen = workers.calls();
        assert!(!workers.sleep(seen, 1000) && workers.sleep(seen.wrapping_sub(1), FOR_EVER));
        crate::tests::threads::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    assert!(workers.sleep(seen, FOR_EVER) && called.load(SeqCst) == 1);
                });
            }
            while workers.sleeping.load(SeqCst) < 3 {
                std::thread::yield_now();
            }
            // (Asleep by then, unless others have the CPU.)
            std::thread::sleep(std::time::Duration::from_millis(5));
            called.store(1, SeqCst);
            workers.call(true);
        });
        assert_eq!((workers.calls(), workers.sleeping.load(SeqCst)), (seen + 1, 0));
        assert!(workers.claim(1));
        workers.unclaim();
        assert!(workers.alive() == 0 && workers.claim(1) && workers.leave(seen + 1));
        // Who was called at the end stays, but where another has come in his place.
        assert!(workers.claim(1) && !workers.leave(seen) && workers.claim(2) && workers.leave(seen));
        workers.sleeping.store(2, SeqCst);
        workers.gone();
        assert_eq!((workers.alive(), workers.sleeping.load(SeqCst)), (0, 0));
    }

    #[test]
    fn no_call_is_missed_by_who_sleeps_or_leaves() {
        let workers = Workers::new();
        let done = AtomicU32::new(0);
        let workers = &workers;
        let done = &done;
        crate::tests::threads::scope(|scope| {
            for round in 1..=2000_u32 {
                // As `Heap` does it.
                let body = move || loop {
                    let seen = workers.calls();
                    done.store(seen, SeqCst);
                    if !workers.sleep(seen, 1000) && workers.leave(seen) {
                        break;
                    }
                };
                workers.call(round % 2 == 0);
                if workers.claim(1) {
                    scope.spawn(body);
                }
                if round % 64 == 0 {
                    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
                    while done.load(SeqCst) != round {
                        assert!(std::time::Instant::now() < end, "a call was missed");
                        std::thread::yield_now();
                    }
                }
            }
        });
        assert_eq!(workers.alive(), 0);
    }
}
