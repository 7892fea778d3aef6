//! # The purge: what a free, an allocation, the keeper and a limit give back
//!
//! See the table of [`super`]. How much may stay and how much is given back at once are numbers: [`policy`].
//!
//! Lock: `purging`; a slice of areas that was gathered goes without it.
#![allow(unsafe_code)] // gives pages back

use super::mm::Mm;
use super::policy::{self, Rules, Use};
use super::state::NAPS;
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::lock::Guard;
use crate::knob::Id;
use crate::stat::{Event, Level};
use crate::vmap::SLICE;

impl Mm<'_> {
    /// Bytes that may be free and resident.
    fn limit(&self) -> u64 {
        // Relaxed: told before the calls are forbidden, or a heuristic.
        if self.reclaim.is_frozen() {
            return u64::MAX;
        }
        if self.reclaim.is_short() {
            return 0;
        }
        let (board, knobs) = (self.cache.sets.board(), &self.cache.knobs);
        let (in_use, window) = (board.in_use(), self.window());
        let rules = Rules {
            share: knobs.get(Id::LazyShare),
            floor: knobs.get(Id::LazyFloor),
            ceiling: knobs.get(Id::LazyCeiling),
            soft: Some(knobs.soft_limit()).filter(|&soft| soft != u64::MAX),
        };
        let now = Use {
            in_use,
            below_recent: self.reclaim.highs.look(board, window, in_use) - in_use,
            given: self.reclaim.given.lately(window),
            busy: if rules.soft.is_some() { board.held().saturating_sub(self.idle()) } else { 0 },
            is_alone: self.is_alone(),
        };
        policy::may_stay(now, rules, || self.reclaim.cpus())
    }

    /// Whether there is no keeper, and none to be had: nobody gives back later what is not given back now.
    fn is_alone(&self) -> bool {
        let now = || self.cache.sets.clock.ticks();
        self.reclaim.keeper.is_out(now) || self.cache.knobs.get(Id::IdleSeconds) == 0
    }

    /// The window that we are in.
    fn window(&self) -> u64 {
        policy::window(self.cache.sets.clock.ticks())
    }

    /// Bytes that are free and resident.
    fn idle(&self) -> u64 {
        self.cache.sets.board().level(Level::Lazy) + self.cache.sets.board().level(Level::PagesDirty)
    }

    /// Whether more is free and resident than may be.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.idle() > self.limit()
    }

    /// The same, exactly.
    #[must_use]
    pub fn free_resident(&self) -> u64 {
        self.cache.sets.level(Level::Lazy) + self.cache.sets.board().level(Level::PagesDirty)
    }

    /// Bytes from which zeros are fresh memory, of which perhaps little will be used, and not dirty memory cleared.
    #[must_use]
    pub fn sparse(&self) -> usize {
        policy::sparse(self.is_much())
    }

    /// Whether so much is free and resident that fresh memory would soon be purged for.
    pub(super) fn is_much(&self) -> bool {
        policy::is_much(self.idle(), self.limit())
    }

    /// Whether workers are there for what is queued: it is so much that they were called.
    fn is_manned(&self) -> bool {
        let threshold = self.cache.knobs.size(Id::AsyncFreeThreshold);
        threshold != 0 && self.reclaim.workers.alive() > 0 && self.areas.backlog() >= threshold
    }

    /// After a slow free, or an allocation of `bytes`: a slice of a purge if the limit is passed or one is under way.
    pub fn check(&self, bytes: usize) {
        let (idle, limit) = (self.idle(), self.limit());
        if idle <= limit && !self.areas.is_pending() {
            return;
        }
        if idle > limit && self.is_alone() {
            // (One does; what others add meanwhile they come with themselves.)
            if let Some(purging) = self.reclaim.purging.try_lock() {
                drop(purging);
                // (To what may stay now, however long that takes: a keeper may be had meanwhile, and yet nobody start it.)
                self.balance_to(|| limit);
            }
            return;
        }
        let help = policy::help(idle, limit, bytes);
        if !help.is_pressed && (self.areas.flying() > 0 || self.is_manned()) {
            return;
        }
        // Two at a time are as fast as more on any machine but one of many nodes.
        let active = (self.cache.knobs.get(Id::MaxActive) as u32).max(2);
        for _ in 0..NAPS {
            if self.areas.flying() < active {
                break;
            }
            self.reclaim.nap();
        }
        // What was gathered needs no lock.
        let done = self.vmap().purge_pending(help.most);
        if done >= help.most || idle <= limit {
            return;
        }
        // Otherwise one at a time is enough.
        let Some(_purging) = self.reclaim.purging.try_lock().or_else(|| self.wait(help.waits)) else { return };
        self.slice(limit, help.most - done);
    }

    /// The right to purge, waited for so long that the freer is slowed down and no longer.
    fn wait(&self, waits: bool) -> Option<Guard<'_, ()>> {
        (0..if waits { NAPS } else { 0 }).find_map(|_| {
            self.reclaim.nap();
            self.reclaim.purging.try_lock()
        })
    }

    /// One slice; the bytes given back.
    fn slice(&self, limit: u64, most: usize) -> usize {
        let (board, idle) = (self.cache.sets.board(), self.idle());
        // Areas first, of which long ones go: where they are large, few calls give back much.
        let above = if idle > limit { idle - policy::keep(limit) } else { 0 };
        let areas = if above > 0 && board.level(Level::Lazy) > 0 {
            self.vmap().purge(most.min(usize::try_from(above).unwrap_or(most)))
        } else {
            self.vmap().purge_pending(most)
        };
        let (left, dirty) = (above.saturating_sub(areas as u64), board.level(Level::PagesDirty));
        let blocks = if left > 0 && dirty > 0 {
            self.purge_pages(policy::least_order(most), dirty.saturating_sub(left), || self.gate.is_wanted())
        } else {
            0
        };
        self.reclaim.given.add(self.window(), areas + blocks);
        areas + blocks
    }

    /// The same until the limit is kept and no purge is under way, for a thread that has time; the bytes given back.
    pub fn balance(&self) -> usize {
        self.balance_to(|| self.limit())
    }

    fn balance_to(&self, limit: impl Fn() -> u64) -> usize {
        let mut bytes = 0;
        loop {
            let _held = self.reclaim.lock();
            let slice = self.slice(limit(), SLICE);
            bytes += slice;
            if slice == 0 || self.gate.is_wanted() {
                return bytes;
            }
        }
    }

    /// Gives back until at most `keep` bytes of areas are left, or, if it `ends` for others, until somebody waits; the
    /// bytes given back. The lock is held.
    fn purge_areas(&self, keep: u64, ends: bool) -> usize {
        let (mut bytes, mut gathered) = (0, false);
        while self.cache.sets.level(Level::Lazy) > keep && !(ends && self.gate.is_wanted()) {
            bytes += if self.areas.is_pending() {
                self.vmap().purge_pending(SLICE)
            } else if !gathered {
                gathered = true;
                self.vmap().purge_first_of_all(SLICE)
            } else {
                break;
            };
        }
        self.vmap().put_back();
        bytes
    }

    /// Before addresses are asked for: where there are many times those that are used, what is dirty lies between free runs, in pieces that nobody
    /// takes, so that none is long enough. All of it goes back, and they merge. (Asked as they grow by as much as is used.)
    pub fn mend(&self) {
        let mapped = self.cache.sets.board().level(Level::Mapped);
        // Relaxed: policy.
        if mapped > self.reclaim.scattered.load(Relaxed).max(policy::MANY) {
            self.mend_scattered(mapped);
        }
    }

    #[cold]
    #[inline(never)]
    fn mend_scattered(&self, mapped: u64) {
        let used = self.cache.sets.board().in_use() + self.idle();
        self.reclaim.scattered.store(policy::asked_again(mapped, used), Relaxed);
        if policy::is_scattered(mapped, used)
            && !self.reclaim.is_frozen()
            && let Some(_purging) = self.reclaim.purging.try_lock()
        {
            self.purge_areas(0, true);
        }
    }

    /// Leaves what an idle program may keep till the next look; the bytes given back.
    pub fn fall(&self, held: Guard<'_, ()>) -> usize {
        let (lazy, dirty) = (self.cache.sets.level(Level::Lazy), self.cache.sets.board().level(Level::PagesDirty));
        self.purge_to(held, policy::after_idle(lazy.max(dirty)), true)
    }

    /// Gives all that is free back, or less if a fork waits; the bytes.
    pub fn purge(&self, held: Guard<'_, ()>) -> usize {
        self.purge_to(held, 0, true)
    }

    /// The same, whoever waits: for a request that would be refused otherwise.
    pub fn purge_all(&self, held: Guard<'_, ()>) -> usize {
        self.purge_to(held, 0, false)
    }

    /// Gives back until at most `keep` bytes of each kind are left; the bytes given back.
    fn purge_to(&self, _held: Guard<'_, ()>, keep: u64, ends: bool) -> usize {
        let blocks = if self.cache.sets.board().level(Level::PagesDirty) > keep {
            self.purge_pages(0, keep, || ends && self.gate.is_wanted())
        } else {
            0
        };
        blocks + self.purge_areas(keep, ends)
    }

    /// Gives dirty free blocks of at least `order` back until `keep` bytes are left, or somebody waits; the bytes given back.
    fn purge_pages(&self, order: usize, keep: u64, waits: impl Fn() -> bool) -> usize {
        let board = self.cache.sets.board();
        let mut given = 0;
        // First where there is much.
        let (much, little) = (self.pages.zones.iter().filter(|zone| zone.above_high()), self.pages.zones.iter());
        for zone in much.chain(little) {
            while board.level(Level::PagesDirty) > keep
                && !(given > 0 && waits())
                && let Some((first, len)) = zone.take_dirty(&self.pages.windows, board, order)
            {
                let bytes = PAGE * len;
                // SAFETY: the pages are free and in our hand.
                let clean = unsafe { self.pages.give_back(board, first, len) };
                zone.cleaned(&self.pages.windows, board, first, len, clean);
                if !clean {
                    self.cache.sets.count(Event::PurgeRefused, 1);
                    break;
                }
                given += bytes;
            }
        }
        self.cache.sets.count(Event::PurgeBytes, given as u64);
        given
    }
}

#[cfg(test)]
mod tests;
