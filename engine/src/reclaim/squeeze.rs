//! # The limits, kept: what slow paths do when one is near
//!
//! What is limited, and how often what is done: [`super::limits`]. Nothing here but the reading of the limits opens a file, and
//! nothing waits for an answer: it runs inside `malloc`. Lock: `Reclaim::purging`, with nothing else held.

use super::mm::{ALL_CLASSES, Mm, bytes_of};
use crate::arch::{PAGE, cgroup, sys};
use crate::cache::cpuset::CpuSet;
use crate::cache::{DrainMode, DrainReport, front};
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};
use crate::stat::{Event, Level, Mode, Timing};

/// Times that a request is tried which the hard limit refuses and then does not, before a squeeze.
const ASKS: usize = 4;

impl Mm<'_> {
    /// Reads what the memory cgroup allows, for the limits that are its.
    pub fn learn_limits(&self) {
        self.cache.knobs.set_cgroup(cgroup::memory_high(), cgroup::memory_limit());
    }

    /// The same for the keeper, which may not read files everywhere.
    pub fn learn_limits_if_allowed(&self) {
        if self.reclaim.keeper.may_read() {
            self.learn_limits();
        }
    }

    /// Before a slow path takes more memory: drains all caches if the soft limit is near. (What is known to be free,
    /// every purge keeps below the limit.)
    #[inline]
    pub fn approach(&self) {
        if self.cache.is_tight() {
            self.relieve();
        }
    }

    #[cold]
    fn relieve(&self) {
        let (limits, start) = (&self.reclaim.limits, self.cache.sets.clock.ticks());
        if !limits.relieves(start) {
            return;
        }
        let Some(held) = self.reclaim.try_lock() else { return };
        self.cache.sets.count(Event::SoftLimit, 1);
        self.empty_caches(|_| true);
        drop(held);
        limits.relieved(start, self.cache.sets.clock.ticks());
    }

    /// Empties all caches that can be reached into the free memory of the heap, as far as the knob `drain` lets drains
    /// go that nobody asked for. `runs`: see `Cache::drain`. The caller holds `Reclaim::purging`.
    pub fn empty_caches(&self, mut runs: impl FnMut(u32) -> bool) {
        let Some(mode) = self.background() else {
            return self.cache.empty_barns(&self.everything(), ALL_CLASSES);
        };
        self.empty_caches_by(mode, &mut runs);
    }

    /// The same, some way.
    pub fn empty_caches_by(&self, mode: DrainMode, runs: &mut dyn FnMut(u32) -> bool) {
        let (sets, everything) = (&self.cache.sets, self.everything());
        self.vmap().empty_wide();
        // A filter may kill for a fence.
        let confined = self.reclaim.keeper.is_confined();
        if confined
            && sys::program_is_single()
            && let Some(crew) = self.host.crew()
        {
            crew.resign();
        }
        let mut where_allowed = |cpu| !confined && runs(cpu);
        let fences = !confined || sets.mode() == Mode::Fallback || sys::single_threaded();
        let start = self.cache.sets.clock.ticks();
        // Twice: slabs that the first pass empties become pages in this CPU's lists.
        for _ in 0..2 {
            // What this CPU caches is given up by its owner, which is here: that takes no fence.
            sets.park();
            for window in CpuSet::windows(sets.top()) {
                let mut all = CpuSet::around(window);
                let reachable = |&index: &usize| fences || sets.is_parked(index);
                sets.used_of(window).filter(reachable).for_each(|index| all.insert(index));
                self.cache.drain(&everything, &mut all, mode, &mut where_allowed, &mut DrainReport::default());
            }
            self.cache.empty_barns(&everything, ALL_CLASSES);
        }
        sets.time(Timing::Drain, start);
    }

    /// Whether the hard limit refuses so many bytes more.
    #[inline]
    pub fn is_limited(&self, bytes: usize) -> bool {
        let limit = self.cache.knobs.hard_limit();
        limit < u64::MAX && self.cache.sets.board().held().saturating_add(bytes as u64) > limit
    }

    /// What `alloc` finds for a request of so many bytes; where it finds nothing, after a squeeze if the hard limit refused it, or by
    /// `scrape` if the system did. (What the limit refused may fit by now, as another thread has freed something: it is asked again. For
    /// that everything free must not change hands, or each side would map anew what the other has.)
    #[inline]
    pub fn take<T>(
        &self,
        bytes: usize,
        alloc: impl Fn() -> Option<T>,
        scrape: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        for _ in 0..ASKS {
            let found = alloc();
            if found.is_some() {
                return found;
            }
            if self.is_limited(bytes) {
                break;
            }
            let is_refused = || self.pages.windows.is_refused() || self.cache.meta.is_dry();
            if self.cache.knobs.hard_limit() == u64::MAX || is_refused() {
                return scrape();
            }
        }
        self.squeezed(bytes, alloc)
    }

    /// Gives all that is free back, for a request that the hard limit refuses; whether it is worth another try.
    #[cold]
    pub fn squeeze(&self) -> bool {
        let limits = &self.reclaim.limits;
        let seen = limits.squeezed();
        let held = self.reclaim.lock();
        if limits.squeezed() != seen {
            // Somebody has, while this one waited.
            return true;
        }
        let start = self.cache.sets.clock.ticks();
        let drains = limits.squeezes(start, self.cache.knobs.hard_limit(), || self.cached_bytes());
        if drains {
            self.empty_caches(|_| true);
            limits.drained(start, self.cache.sets.clock.ticks(), self.cached_bytes());
        }
        if !drains && !limits.finds(self.free_resident()) {
            return false;
        }
        self.purge_all(held);
        self.vmap().wait_flights();
        limits.end(self.free_resident());
        true
    }

    /// Bytes that all caches have, more or less: a look at every list of every set.
    fn cached_bytes(&self) -> u64 {
        let sets = &self.cache.sets;
        let blocks = (1..ALL_CLASSES).map(|class| (class, bytes_of(class)));
        let areas = (FIRST_FRONT..CLASSES_MAX).map(|class| (class, front::length(class) * PAGE));
        let lists: usize = blocks.chain(areas).map(|(class, bytes)| sets.cached(class) * bytes).sum();
        sets.board().level(Level::Barns) + (lists + self.vmap().wide_bytes()) as u64
    }

    /// A refused request of so many bytes, tried again after [`Mm::squeeze`]; counted if it is refused again. One that
    /// no squeeze could serve is refused at once.
    #[cold]
    pub fn squeezed<T>(&self, bytes: usize, again: impl FnOnce() -> Option<T>) -> Option<T> {
        let could = bytes as u64 <= self.cache.knobs.hard_limit();
        let served = if could && self.squeeze() { again() } else { None };
        if served.is_none() {
            self.cache.sets.count(Event::LimitRefused, 1);
        }
        served
    }
}

#[cfg(test)]
mod tests;
