//! # What was decided and done lately
//!
//! The state of [`super`]: words that anybody may read, and the right to purge. Everything but that lock is policy: what is read
//! late costs a purge too many or too few.

use super::barren::Barren;
use super::given::Given;
use super::highs::Highs;
use super::keeper::{Keeper, Tending, Youth};
use super::limits::Limits;
use super::workers::Workers;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::settle;
use crate::arch::atomic::{AtomicBool, AtomicU32, AtomicU64};
use crate::arch::lock::{Guard, Lock};
use crate::arch::{sys, topology};

/// Naps that a free takes at most then while somebody else purges.
pub const NAPS: u32 = 16;
/// ns of a nap.
const NAP: u64 = 50_000;

/// The purger.
#[derive(Debug)]
pub struct Reclaim {
    /// Held by a purge, across its system calls.
    pub(super) purging: Lock<()>,
    cpus: AtomicU32,
    /// Memory is short: nothing may be free and resident, whatever the knobs say.
    pub(super) short: AtomicBool,
    /// What asks for huge pages may get some.
    huge: AtomicBool,
    /// No call that gives memory back is allowed any more.
    frozen: AtomicBool,
    /// What was in use lately.
    pub(super) highs: Highs,
    /// What was given back lately because it was more than may stay.
    pub(super) given: Given,
    /// Whether somebody has read what the system says about CPUs and nodes.
    learnt: AtomicU32,
    /// What was done for the limits lately.
    pub limits: Limits,
    /// What blocks of pages and areas were looked for in vain.
    pub(super) barren: [Barren; 2],
    /// Bytes mapped above which it is asked whether free addresses lie in pieces, if they are [many](super::policy::MANY).
    pub(super) scattered: AtomicU64,
    /// Which process leaves a reaper.
    pub reaper: Reaper,
    /// How long there was no need of a keeper.
    pub youth: Youth,
    /// The keeper.
    pub keeper: Keeper,
    /// What is done in its place.
    pub tending: Tending,
    /// Those who help it, and large frees.
    pub workers: Workers,
}

impl Default for Reclaim {
    fn default() -> Self {
        Self::new()
    }
}

impl Reclaim {
    /// Idle.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            purging: Lock::new(()),
            cpus: AtomicU32::new(0),
            short: AtomicBool::new(false),
            huge: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            highs: Highs::new(),
            given: Given::new(),
            learnt: AtomicU32::new(0),
            limits: Limits::new(),
            barren: [const { Barren::new() }; 2],
            scattered: AtomicU64::new(0),
            reaper: Reaper::new(),
            youth: Youth::new(),
            keeper: Keeper::new(),
            tending: Tending::new(),
            workers: Workers::new(),
        }
    }

    /// CPUs that there are for us. (Asked for when it matters: small programs start with few calls, and a filter that was
    /// inherited may kill for them.)
    pub(super) fn cpus(&self) -> u32 {
        let cpus = self.cpus.load(Relaxed);
        if cpus != 0 {
            return cpus;
        }
        let cpus = if self.keeper.is_confined() { 1 } else { sys::cpus_told() };
        self.cpus.store(cpus, Relaxed);
        cpus
    }

    /// True once: the caller is to read what the system says about CPUs and nodes.
    pub fn learns(&self) -> bool {
        // Relaxed: what is learnt is policy.
        self.learnt.load(Relaxed) == 0 && self.learnt.swap(1, Relaxed) == 0
    }

    /// From now on nothing is given back: the process forbids itself every such call (`SECCOMP_MODE_STRICT`).
    pub fn freeze(&self) {
        // Relaxed: as in `limit`.
        self.frozen.store(true, Relaxed);
    }
    /// Whether that is so.
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Relaxed)
    }

    /// Whether memory is short. For whoever knows the pressure (the keeper).
    pub fn set_short(&self, is_short: bool) {
        // Relaxed: for a heuristic.
        settle!(self.short, is_short);
    }

    /// Whether memory is short.
    pub fn is_short(&self) -> bool {
        self.short.load(Relaxed)
    }

    /// Asks whether the system gives huge pages to this process. For the keeper.
    pub fn learn_huge(&self) {
        // Relaxed: as above.
        self.huge.store(topology::huge_pages(), Relaxed);
    }
    /// Whether it does.
    pub fn has_huge(&self) -> bool {
        self.huge.load(Relaxed)
    }

    /// Nobody looks at the pressure any more: memory was short once, and nothing may stay of that.
    pub fn relax(&self) {
        self.set_short(false);
    }

    /// Waits a moment.
    pub(super) fn nap(&self) {
        let cpus = self.cpus.load(Relaxed);
        sys::futex_wait_for(&self.cpus, cpus, NAP);
    }

    /// The right to drain and to give back.
    pub fn lock(&self) -> Guard<'_, ()> {
        self.purging.lock()
    }
    /// The same if nobody has it.
    pub fn try_lock(&self) -> Option<Guard<'_, ()>> {
        self.purging.try_lock()
    }
}

/// Which process began, and which one ended, to leave a reaper.
#[derive(Debug, Default)]
pub struct Reaper {
    pub(super) reaping: AtomicU32,
    pub(super) reaped: AtomicU32,
}

impl Reaper {
    /// None has.
    #[must_use]
    pub const fn new() -> Self {
        Self { reaping: AtomicU32::new(0), reaped: AtomicU32::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_asked_for_once_and_not_behind_a_filter() {
        let (asked, confined) = (Reclaim::new(), Reclaim::new());
        assert_eq!(asked.cpus(), sys::cpus_told());
        asked.keeper.confine();
        confined.keeper.confine();
        assert_eq!((asked.cpus(), confined.cpus()), (sys::cpus_told(), 1));
    }
}
