//! # `reclaim`: memory that goes back
//!
//! What is free but still resident (lazily freed areas, dirty free pages) may
//! be at most one part in `lazy_share` of the bytes in use, at least
//! `lazy_floor`, at most `lazy_ceiling` for each doubling of the CPUs; and on top
//! of that what the program used a moment ago and may well use again: the
//! distance to its recent high, which shrinks by a quarter every 2²⁸ ticks
//! (an eighth of a second). So a program that works in waves does not fault its
//! memory in anew with each, and what is resident never exceeds its own recent
//! high by more than the limit. A free that passes it purges; `trim` drains the
//! per-CPU sets first and then gives back everything. What a program that has
//! become idle does not free any more, the [`keeper`] gives back.
//!
//! Lock: `purging`, before all others; who finds it held skips the purge.
//! Cost: two loads per slow free; a purge is system calls.
#![allow(unsafe_code)] // gives pages back

pub mod keeper;

use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicU32, AtomicU64};
use crate::arch::lock::{Guard, Lock};
use crate::arch::{PAGE, sys};
use crate::knob::Id;
use crate::page::{Pages, give_back};
use crate::percpu::Cache;
use crate::stat::{Board, Event, Level};
use crate::vmap::Vmap;
use keeper::Keeper;

/// Orders of free blocks worth a system call when a limit was passed; a trim takes all.
const PURGE_ORDER: usize = 4;

/// log2 of the ticks after which the recent high shrinks.
const DECAY: u32 = 28;

/// The purger.
#[derive(Debug)]
pub struct Reclaim {
    /// Held by a purge, across its system calls; a fork waits for it.
    purging: Lock<()>,
    cpus: AtomicU32,
    /// Ticks >> [`DECAY`] when the recent high last shrank.
    shrunk: AtomicU64,
    /// Whether somebody has read what the system says about CPUs and nodes.
    learnt: AtomicU32,
    /// The housekeeper.
    pub keeper: Keeper,
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
            shrunk: AtomicU64::new(0),
            learnt: AtomicU32::new(0),
            keeper: Keeper::new(),
        }
    }

    /// Asks how many CPUs there are for us; when the heap opens (a filter may forbid it later).
    pub fn prepare(&self) {
        self.cpus.store(sys::cpus_allowed(), Relaxed);
    }

    /// True once: the caller is to read what the system says about CPUs and nodes.
    pub fn learns(&self) -> bool {
        // Relaxed: what is learnt is policy.
        self.learnt.load(Relaxed) == 0 && self.learnt.swap(1, Relaxed) == 0
    }

    /// See [`Lock::fork_begin`].
    pub fn fork_begin(&self) {
        self.purging.fork_begin();
    }
    /// See [`Lock::fork_end`].
    pub fn fork_end(&self) {
        self.purging.fork_end();
    }

    /// Bytes that may be free and resident.
    fn limit(&self, cache: &Cache) -> u64 {
        let (board, knobs) = (cache.sets.board(), &cache.knobs);
        let cpus = self.cpus.load(Relaxed);
        let in_use = board.level(Level::Areas) + board.level(Level::Taken);
        // fls(cpus), as in the kernel.
        let ceiling = knobs.get(Id::LazyCeiling).saturating_mul(u64::from(32 - cpus.leading_zeros()));
        let base = (in_use / knobs.get(Id::LazyShare)).max(knobs.get(Id::LazyFloor)).min(ceiling);
        base + self.recent(board, in_use)
    }

    /// How far the bytes in use are below their recent high. (Relaxed and racy: a heuristic.)
    fn recent(&self, board: &Board, in_use: u64) -> u64 {
        let above = board.level(Level::Recent).saturating_sub(in_use);
        if above == 0 {
            return 0;
        }
        let now = sys::ticks() >> DECAY;
        if self.shrunk.load(Relaxed) != now && self.shrunk.swap(now, Relaxed) != now {
            board.set(Level::Recent, in_use + above - above / 4);
        }
        above
    }

    /// Whether more is free and resident than may be.
    #[must_use]
    pub fn is_passed(&self, cache: &Cache) -> bool {
        let board = cache.sets.board();
        board.level(Level::Lazy) + board.level(Level::PagesDirty) > self.limit(cache)
    }

    /// After a slow free: purges if the limit is passed.
    pub fn check(&self, cache: &Cache, pages: &Pages, vmap: Vmap<'_>) {
        if !self.is_passed(cache) {
            return;
        }
        let limit = self.limit(cache);
        // One at a time is enough.
        let Some(_purging) = self.purging.try_lock() else { return };
        Self::purge_to(cache, pages, vmap, PURGE_ORDER, limit / 2);
    }

    /// Gives back until at most `keep` bytes of each kind are left (of pages only blocks of at
    /// least `order`); the bytes given back.
    fn purge_to(cache: &Cache, pages: &Pages, vmap: Vmap<'_>, order: usize, keep: u64) -> usize {
        let board = cache.sets.board();
        let areas = if board.level(Level::Lazy) > keep { vmap.purge() } else { 0 };
        let blocks =
            if board.level(Level::PagesDirty) > keep { Self::purge_pages(cache, pages, order, keep) } else { 0 };
        areas + blocks
    }

    /// The right to drain and to give back. A fork waits for it, so that no child misses what
    /// is in somebody's hand meanwhile.
    pub fn lock(&self) -> Guard<'_, ()> {
        self.purging.lock()
    }

    /// Leaves at most half of what is free and resident; the bytes given back.
    pub fn halve(_held: &Guard<'_, ()>, cache: &Cache, pages: &Pages, vmap: Vmap<'_>) -> usize {
        let board = cache.sets.board();
        let keep = board.level(Level::Lazy).max(board.level(Level::PagesDirty)) / 2;
        Self::purge_to(cache, pages, vmap, 0, keep)
    }

    /// Gives back all that is free; the bytes.
    pub fn purge(_held: &Guard<'_, ()>, cache: &Cache, pages: &Pages, vmap: Vmap<'_>) -> usize {
        Self::purge_to(cache, pages, vmap, 0, 0)
    }

    /// Gives dirty free blocks of at least `order` back until `keep` bytes are left; the bytes given back.
    fn purge_pages(cache: &Cache, pages: &Pages, order: usize, keep: u64) -> usize {
        let board = cache.sets.board();
        let mut given = 0;
        for zone in &pages.zones {
            while board.level(Level::PagesDirty) > keep
                && let Some((block, order)) = zone.take_dirty(&pages.regions, board, order)
            {
                let bytes = PAGE << order;
                // SAFETY: the block is free and in our hand.
                let clean = unsafe { give_back(pages.regions.address(block), bytes) };
                zone.cleaned(&pages.regions, board, block, order, clean);
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
