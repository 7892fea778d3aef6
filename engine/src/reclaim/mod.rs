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
#![allow(unsafe_code)] // gives pages back

pub mod keeper;
pub mod limits;
pub mod policy;
pub mod workers;

use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicBool, AtomicU32, AtomicU64};
use crate::arch::lock::{Guard, Lock};
use crate::arch::{PAGE, sys};
use crate::cache::Cache;
use crate::knob::{Id, Knobs};
use crate::page::{Pages, give_back};
use crate::stat::{Event, Level};
use crate::vmap::{SLICE, Vmap};
use keeper::{Keeper, Tending};
use limits::Limits;
use policy::{Rules, Use};
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

    /// Bytes that may be free and resident.
    fn limit(&self, cache: &Cache) -> u64 {
        // Relaxed: told before the calls are forbidden, or a heuristic.
        if self.is_frozen() {
            return u64::MAX;
        }
        if self.short.load(Relaxed) {
            return 0;
        }
        let (board, knobs) = (cache.sets.board(), &cache.knobs);
        let in_use = board.in_use();
        let rules = Rules {
            share: knobs.get(Id::LazyShare),
            floor: knobs.get(Id::LazyFloor),
            ceiling: knobs.get(Id::LazyCeiling),
            soft: Some(knobs.soft_limit()).filter(|&soft| soft != u64::MAX),
        };
        let now = Use {
            in_use,
            below_recent: self.recent(cache, in_use),
            busy: if rules.soft.is_some() { board.held().saturating_sub(Self::idle(cache)) } else { 0 },
            is_alone: self.is_alone(knobs),
        };
        policy::may_stay(now, rules, || self.cpus())
    }

    /// Whether there is no housekeeper, and none to be had: nobody gives back later what is not given back now.
    fn is_alone(&self, knobs: &Knobs) -> bool {
        self.keeper.is_out() || knobs.get(Id::IdleSeconds) == 0
    }

    /// How far the bytes in use are below their recent high. (Relaxed and racy: a heuristic.)
    fn recent(&self, cache: &Cache, in_use: u64) -> u64 {
        let board = cache.sets.board();
        let above = board.level(Level::Recent).saturating_sub(in_use);
        if above == 0 {
            return 0;
        }
        let now = policy::period(cache.sets.clock.ticks());
        if self.shrunk.load(Relaxed) != now && self.shrunk.swap(now, Relaxed) != now {
            board.set(Level::Recent, policy::decayed(in_use, above));
        }
        above
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

    /// Bytes that are free and resident.
    fn idle(cache: &Cache) -> u64 {
        cache.sets.board().level(Level::Lazy) + cache.sets.board().level(Level::PagesDirty)
    }

    /// Whether more is free and resident than may be.
    #[must_use]
    pub fn is_passed(&self, cache: &Cache) -> bool {
        Self::idle(cache) > self.limit(cache)
    }

    /// The same, exactly.
    #[must_use]
    pub fn free_resident(cache: &Cache) -> u64 {
        cache.sets.level(Level::Lazy) + cache.sets.board().level(Level::PagesDirty)
    }

    /// Whether workers are there for what is queued: it is so much that they were called.
    fn is_manned(&self, cache: &Cache, vmap: Vmap<'_>) -> bool {
        let threshold = cache.knobs.size(Id::AsyncFreeThreshold);
        threshold != 0 && self.workers.alive() > 0 && vmap.areas.backlog() >= threshold
    }

    /// After a slow free, or an allocation of `bytes`: a slice of a purge if the limit is passed or one is under way.
    pub fn check(&self, cache: &Cache, pages: &Pages, vmap: Vmap<'_>, bytes: usize) {
        let (idle, limit) = (Self::idle(cache), self.limit(cache));
        if idle <= limit && !vmap.areas.is_pending() {
            return;
        }
        if idle > limit && self.is_alone(&cache.knobs) {
            // (One does; what others add meanwhile they come with themselves.)
            if let Some(purging) = self.purging.try_lock() {
                drop(purging);
                self.balance(cache, pages, vmap);
            }
            return;
        }
        let help = policy::help(idle, limit, bytes);
        if !help.is_pressed && (vmap.areas.flying() > 0 || self.is_manned(cache, vmap)) {
            return;
        }
        // Two at a time are as fast as more on any machine but one of many nodes.
        let active = (cache.knobs.get(Id::MaxActive) as u32).max(2);
        for _ in 0..NAPS {
            if vmap.areas.flying() < active {
                break;
            }
            self.nap();
        }
        // What was gathered needs no lock.
        let done = vmap.purge_pending(help.most);
        if done >= help.most || idle <= limit {
            return;
        }
        // Otherwise one at a time is enough.
        let Some(_purging) = self.purging.try_lock().or_else(|| self.wait(help.waits)) else { return };
        Self::slice(cache, pages, vmap, limit, help.most - done);
    }

    /// The right to purge, waited for so long that the freer is slowed down and no longer.
    fn wait(&self, waits: bool) -> Option<Guard<'_, ()>> {
        (0..if waits { NAPS } else { 0 }).find_map(|_| {
            self.nap();
            self.purging.try_lock()
        })
    }

    fn nap(&self) {
        let cpus = self.cpus.load(Relaxed);
        sys::futex_wait_for(&self.cpus, cpus, NAP);
    }

    /// One slice; the bytes given back.
    fn slice(cache: &Cache, pages: &Pages, vmap: Vmap<'_>, limit: u64, most: usize) -> usize {
        let (board, keep) = (cache.sets.board(), policy::keep(limit));
        let passed = Self::idle(cache) > limit;
        let areas = if passed && board.level(Level::Lazy) > keep { vmap.purge(most) } else { vmap.purge_pending(most) };
        let blocks = if passed && board.level(Level::PagesDirty) > keep {
            Self::purge_pages(cache, pages, policy::least_order(most), keep, || vmap.gate.is_wanted())
        } else {
            0
        };
        areas + blocks
    }

    /// The same until the limit is kept and no purge is under way, for who has time; the bytes given back.
    pub fn balance(&self, cache: &Cache, pages: &Pages, vmap: Vmap<'_>) -> usize {
        let mut bytes = 0;
        loop {
            let _held = self.lock();
            let slice = Self::slice(cache, pages, vmap, self.limit(cache), SLICE);
            bytes += slice;
            if slice == 0 || vmap.gate.is_wanted() {
                return bytes;
            }
        }
    }

    /// The right to drain and to give back.
    pub fn lock(&self) -> Guard<'_, ()> {
        self.purging.lock()
    }
    /// The same if nobody has it.
    pub fn try_lock(&self) -> Option<Guard<'_, ()>> {
        self.purging.try_lock()
    }

    /// Gives back until at most `keep` bytes of areas are left, or, if it `ends` for others, until somebody waits; the
    /// bytes given back. The lock is held.
    fn purge_areas(cache: &Cache, vmap: Vmap<'_>, keep: u64, ends: bool) -> usize {
        let (mut bytes, mut gathered) = (0, false);
        while cache.sets.level(Level::Lazy) > keep && !(ends && vmap.gate.is_wanted()) {
            bytes += if vmap.areas.is_pending() {
                vmap.purge_pending(SLICE)
            } else if !gathered {
                gathered = true;
                vmap.purge(SLICE)
            } else {
                break;
            };
        }
        vmap.put_back();
        bytes
    }

    /// Leaves at most half of what is free and resident; the bytes given back.
    pub fn halve(&self, held: Guard<'_, ()>, cache: &Cache, pages: &Pages, vmap: Vmap<'_>) -> usize {
        let (lazy, dirty) = (cache.sets.level(Level::Lazy), cache.sets.board().level(Level::PagesDirty));
        self.purge_to(held, cache, pages, vmap, lazy.max(dirty) / 2, true)
    }

    /// Gives all that is free back, or less if a fork waits; the bytes.
    pub fn purge(&self, held: Guard<'_, ()>, cache: &Cache, pages: &Pages, vmap: Vmap<'_>) -> usize {
        self.purge_to(held, cache, pages, vmap, 0, true)
    }

    /// The same, whoever waits: for a request that would be refused otherwise.
    pub fn purge_all(&self, held: Guard<'_, ()>, cache: &Cache, pages: &Pages, vmap: Vmap<'_>) -> usize {
        self.purge_to(held, cache, pages, vmap, 0, false)
    }

    /// Gives back until at most `keep` bytes of each kind are left; the bytes given back.
    fn purge_to(
        &self,
        _held: Guard<'_, ()>,
        cache: &Cache,
        pages: &Pages,
        vmap: Vmap<'_>,
        keep: u64,
        ends: bool,
    ) -> usize {
        let blocks = if cache.sets.board().level(Level::PagesDirty) > keep {
            Self::purge_pages(cache, pages, 0, keep, || ends && vmap.gate.is_wanted())
        } else {
            0
        };
        blocks + Self::purge_areas(cache, vmap, keep, ends)
    }

    /// Gives dirty free blocks of at least `order` back until `keep` bytes are left, or somebody waits; the bytes given back.
    fn purge_pages(cache: &Cache, pages: &Pages, order: usize, keep: u64, waits: impl Fn() -> bool) -> usize {
        let board = cache.sets.board();
        let mut given = 0;
        // First where there is much.
        let (much, little) = (pages.zones.iter().filter(|zone| zone.above_high()), pages.zones.iter());
        for zone in much.chain(little) {
            while board.level(Level::PagesDirty) > keep
                && !(given > 0 && waits())
                && let Some((first, len)) = zone.take_dirty(&pages.regions, board, order)
            {
                let bytes = PAGE * len;
                // SAFETY: the pages are free and in our hand.
                let clean = unsafe { give_back(pages.regions.address(first), bytes) };
                zone.cleaned(&pages.regions, board, first, len, clean);
                if !clean {
                    cache.sets.count(Event::PurgeRefused, 1);
                    break;
                }
                given += bytes;
            }
        }
        cache.sets.count(Event::PurgeBytes, given as u64);
        given
    }
}
