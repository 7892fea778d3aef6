//! # The limits, kept: what slow paths do when one is near
//!
//! What is limited, and how often what is done: [`crate::reclaim::limits`]. Nothing here opens a file or waits for an
//! answer: it runs inside `malloc`. Lock: `Reclaim::purging`, with nothing else held.

use super::{ALL_CLASSES, Environment, Heap};
use crate::arch::{cgroup, sys};
use crate::cache::drain::CpuSet;
use crate::cache::{DrainMode, DrainReport};
use crate::reclaim::Reclaim;
use crate::stat::{Event, Mode, Timing};

/// Bytes in use from which a heap asks whose it is.
const LARGE: u64 = 16 << 20;

impl<E: Environment> Heap<E> {
    /// Reads what the memory cgroup allows, for the limits that are its.
    pub(super) fn learn_limits(&self) {
        self.cache.knobs.set_cgroup(cgroup::memory_high(), cgroup::memory_limit());
    }

    /// The same for the housekeeper, which may not read files everywhere.
    pub(super) fn learn_limits_if_allowed(&self) {
        if self.reclaim.keeper.may_read() {
            self.learn_limits();
        }
    }

    /// Before a slow path takes more memory: drains all caches if the soft limit is near. (What is known to be free,
    /// every purge keeps below the limit.)
    #[inline]
    pub(super) fn approach(&self) {
        if self.pid() == 0 && self.cache.sets.board().in_use() >= LARGE && !self.is_confined() {
            // (A filter that was inherited may kill for it: then nobody has asked.)
            self.learn_pid(!sys::status().0);
        }
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
    pub(super) fn empty_caches(&self, mut runs: impl FnMut(u32) -> bool) {
        let Some(way) = self.background() else {
            return self.cache.empty_barns(&self.everything(), ALL_CLASSES);
        };
        self.empty_caches_by(way, &mut runs);
    }

    /// The same, some way.
    pub(super) fn empty_caches_by(&self, way: DrainMode, runs: &mut dyn FnMut(u32) -> bool) {
        let (sets, everything) = (&self.cache.sets, self.everything());
        // A filter may kill for a fence.
        let confined = self.reclaim.keeper.is_confined();
        let fences = !confined || sets.mode() == Mode::Fallback || sys::single_threaded();
        let start = self.cache.sets.clock.ticks();
        // Twice: slabs that the first pass empties become pages in this CPU's lists.
        for _ in 0..2 {
            for window in CpuSet::windows(sets.top()) {
                let mut all = CpuSet::around(window);
                let reachable = |&index: &usize| fences || sets.is_parked(index);
                all.window(sets.top()).filter(reachable).for_each(|index| all.insert(index));
                self.cache.drain(&everything, &all, way, |cpu| !confined && runs(cpu), &mut DrainReport::default());
            }
            self.cache.empty_barns(&everything, ALL_CLASSES);
        }
        sets.time(Timing::Drain, start);
    }

    /// Whether the hard limit refuses so many bytes more.
    #[inline]
    pub(super) fn is_limited(&self, bytes: usize) -> bool {
        let limit = self.cache.knobs.hard_limit();
        limit < u64::MAX && self.cache.sets.board().held().saturating_add(bytes as u64) > limit
    }

    /// Gives all that is free back, for a request that the hard limit refuses; whether it is worth another try.
    #[cold]
    pub(super) fn squeeze(&self) -> bool {
        let limits = &self.reclaim.limits;
        let seen = limits.squeezed();
        let held = self.reclaim.lock();
        if limits.squeezed() != seen {
            // Somebody has, while this one waited.
            return true;
        }
        let start = self.cache.sets.clock.ticks();
        let drains = limits.squeezes(start);
        if drains {
            self.empty_caches(|_| true);
        }
        let end = self.cache.sets.clock.ticks();
        if !drains && !limits.finds(Reclaim::free_resident(&self.cache)) {
            return false;
        }
        self.reclaim.purge_all(held, &self.cache, &self.pages, self.vmap());
        self.vmap().wait_giants();
        limits.end(Reclaim::free_resident(&self.cache), drains.then_some((start, end)));
        true
    }

    /// A refused request of so many bytes, tried again after [`Heap::squeeze`]; counted if it is refused again. One that
    /// no squeeze could serve is refused at once.
    #[cold]
    pub(super) fn squeezed<T>(&self, bytes: usize, again: impl FnOnce() -> Option<T>) -> Option<T> {
        let could = bytes as u64 <= self.cache.knobs.hard_limit();
        let served = if could && self.squeeze() { again() } else { None };
        if served.is_none() {
            self.cache.sets.count(Event::LimitRefused, 1);
        }
        served
    }
}
