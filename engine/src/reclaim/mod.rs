//! # `reclaim`: memory that goes back
//!
//! What is free but still resident (lazily freed areas, dirty free pages) may
//! be at most one part in `lazy_share` of the bytes in use, at least
//! `lazy_floor`, at most `lazy_ceiling` for each doubling of the CPUs; and on top
//! of that what the program used a moment ago and may well use again: the
//! distance to its recent high, which shrinks by a quarter every 2²⁸ ticks
//! (an eighth of a second). So a program that works in waves does not fault its
//! memory in anew with each, and what is resident never exceeds its own recent
//! high by more than the limit; and never more than the soft limit leaves, and nothing under memory pressure
//! (see [`limits`]). `trim` drains the per-CPU sets first and then gives back everything. What a program that has
//! become idle does not free any more, the [`keeper`] gives back.
//!
//! | free and resident | a free gives back |
//! |---|---|
//! | below the limit | nothing, or the next slice of a purge under way that no [`workers`] have taken over |
//! | above it | one slice of [`HELP`](policy::HELP) bytes; nothing if somebody else purges |
//! | above it, no housekeeper to be had | all that is above |
//! | above twice the limit | [`HELP_MORE`](policy::HELP_MORE) or as much as it allocates, beside others; from that above the limit it waits [`NAPS`] naps at most where too many are at it |
//!
//! So a freer pays for what it adds (the kernel only schedules work, and its backlog grows without bound), and
//! no free waits for a whole purge: those run in slices, and end after one for which a fork waits. An allocation
//! above the limit gives back as much as it takes: what is resident does not grow by it.
//!
//! Lock: `purging` (to gather, to give pages back, to drain), before all others; slices of areas go without it,
//! see `vmap::flight`. Cost: a few loads when the levels have changed; a purge is system calls.
pub mod drain;
pub mod free;
pub mod keeper;
pub mod life;
pub mod limits;
pub mod mm;
pub mod policy;
mod purge;
pub mod reaper;
mod scarce;
pub mod workers;

use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicBool, AtomicU32, AtomicU64};
use crate::arch::lock::{Guard, Lock};
use crate::arch::sys;
use keeper::{Keeper, Tending, Youth};
use limits::Limits;
pub use mm::{Host, Mm};
use reaper::Reaper;
use scarce::Barren;
use workers::Workers;

/// Naps that a free takes at most then while somebody else purges.
pub const NAPS: u32 = 16;
/// ns of a nap.
const NAP: u64 = 50_000;

/// The purger.
#[derive(Debug)]
pub struct Reclaim {
    /// Held by a purge, across its system calls.
    purging: Lock<()>,
    cpus: AtomicU32,
    /// Memory is short: nothing may be free and resident, whatever the knobs say.
    short: AtomicBool,
    /// No call that gives memory back is allowed any more.
    frozen: AtomicBool,
    /// The [`policy::period`] in which the recent high last shrank.
    shrunk: AtomicU64,
    /// Whether somebody has read what the system says about CPUs and nodes.
    learnt: AtomicU32,
    /// What was done for the limits lately.
    pub limits: Limits,
    /// What blocks of pages and areas were looked for in vain.
    barren: [Barren; 2],
    /// Which process leaves a reaper.
    pub reaper: Reaper,
    /// How long there was no need of a housekeeper.
    pub youth: Youth,
    /// The housekeeper.
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
            frozen: AtomicBool::new(false),
            shrunk: AtomicU64::new(0),
            learnt: AtomicU32::new(0),
            limits: Limits::new(),
            barren: [const { Barren::new() }; 2],
            reaper: Reaper::new(),
            youth: Youth::new(),
            keeper: Keeper::new(),
            tending: Tending::new(),
            workers: Workers::new(),
        }
    }

    /// CPUs that there are for us. (Asked for when it matters: small programs start with few calls, and a filter that was
    /// inherited may kill for them.)
    fn cpus(&self) -> u32 {
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

    /// Whether memory is short. For whoever knows the pressure (the housekeeper).
    pub fn set_short(&self, is_short: bool) {
        // Relaxed: for a heuristic.
        self.short.store(is_short, Relaxed);
    }

    /// Nobody looks at the pressure any more: memory was short once, and nothing may stay of that.
    pub fn relax(&self) {
        self.set_short(false);
    }

    /// Waits a moment.
    fn nap(&self) {
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
