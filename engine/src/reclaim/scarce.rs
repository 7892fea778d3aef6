//! # Scarcity: what a limit leaves is usable by every layer
//!
//! Where the system gives no more memory (`ulimit -v`, `ulimit -d`, `mlockall`, a filter), free pages change hands:
//! ```text
//! zone: free bits of some blocks ──give back──► free run of the areas       (for an area)
//! areas: free run, zero          ─────────────► free bits of its blocks     (for objects and pages)
//! ```
//! What the system refuses to take back changes hands with its contents: a dirty run, dirty pages.
//! Nothing is mapped or unmapped. What was freed last may be cached: sets, barns and lazy areas are emptied first.
//!
//! Where nothing was found, nothing is looked for again until something was freed ([`super::barren`]).
//!
//! Lock: `Reclaim::purging`; each layer's own while it gives or takes.
//! Cost: a drain, a purge and a look at all blocks of a zone for a request that would fail; a few refused system calls; for the
//! next one a look at the tallies.
#![allow(unsafe_code)] // gives contents of free pages up

use super::mm::{ALL_CLASSES, Mm};
use crate::arch::PAGE;
use crate::cpu::NODES;
use crate::page::{Kind, Pfn};
use crate::stat::Level;
use core::iter;

/// Pages that go to the areas at a time, if there are so many together.
const PIECE: usize = 512;
/// Looks for what may be elsewhere.
const LOOKS: usize = 4;
/// Pages that our own structures are fed at a time, if there are so many together.
const FED: [usize; 3] = [32, 8, 1];
/// Pages of a run that is worth to be joined with what the other side has.
const WORTH: usize = 16;

impl Mm<'_> {
    /// A block of 2^`order` pages, or what is made of such, that the system refuses: tried again with what is cached, and
    /// then with what the areas have.
    #[cold]
    pub fn scrape_pages<T>(&self, order: usize, again: impl Fn() -> Option<T>) -> Option<T> {
        self.reclaim.barren[0]
            .look(&self.cache.sets, PAGE << order, || self.wherever(|| self.scrape_pages_anew(order, &again)))
    }

    fn scrape_pages_anew<T>(&self, order: usize, again: impl Fn() -> Option<T>) -> Option<T> {
        let _held = self.reclaim.lock();
        self.cache.empty_barns(&self.everything(), ALL_CLASSES);
        // (A slab needs a descriptor, however many pages there are.)
        let again = || again().or_else(|| self.feed_meta().then(&again).flatten());
        // (A run of so many pages need not have a block that is aligned.)
        let moved = |least: usize| iter::from_fn(|| self.areas_to_pages(least).then(again)).flatten().next();
        let purged = || {
            self.vmap().purge(usize::MAX);
            moved(1 << order)
        };
        again()
            .or_else(|| moved(1 << order).or_else(purged))
            .or_else(|| {
                // What CPUs have cached. Areas of theirs are lazy then, and pages in the lists of the CPU that does this.
                self.empty_caches(|_| true);
                again().or_else(purged)
            })
            // Pieces, that may complete a block beside free pages of the zone's.
            .or_else(|| moved(WORTH))
            // What a system that refuses to take it back leaves dirty.
            .or_else(|| iter::from_fn(|| self.dirty_to_pages(1 << order).then(again)).flatten().next())
    }

    /// What `look` finds; again while what it looks for may have been elsewhere meanwhile: in the hand of a thread that purges, or
    /// with the CPU from which this thread was moved. The caller holds no lock.
    fn wherever<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        let state = || (self.cache.sets.cpus.index(), self.areas.taken());
        (0..LOOKS).find_map(|_| {
            let before = state();
            look().map(Some).or_else(|| {
                self.vmap().wait_flights();
                (state() == before && !before.1.1).then_some(None)
            })
        })?
    }

    /// Pages of the areas' or a zone's for our own structures, if they are short of memory.
    fn feed_meta(&self) -> bool {
        let (windows, board, meta) = (&self.pages.windows, self.cache.sets.board(), &self.cache.meta);
        meta.is_dry() && {
            let of_node =
                |pages, node: usize| self.pages.zones[node].hand_over(windows, board, node, pages, pages, |_, _| true);
            // (For good: so some that lie together, behind all that is free, rather than one here and one there that nothing can grow over.)
            self.vmap().purge(usize::MAX);
            let of_zones = |pages| (0..NODES).find_map(|node| of_node(pages, node));
            let of_areas = |pages| Some((self.vmap().hand_over_last(pages)?, pages));
            let run = FED.into_iter().find_map(|pages| of_areas(pages).or_else(|| of_zones(pages)));
            run.is_some_and(|(first, pages)| {
                meta.feed(board, windows.address(first), pages * PAGE);
                true
            })
        }
    }

    /// An area of so many bytes that the system refuses: tried again with what is lazy, cached, and the zones'.
    #[cold]
    pub fn scrape_area<T>(&self, bytes: usize, again: impl Fn() -> Option<T>) -> Option<T> {
        // What nothing could give is refused at once.
        if (bytes as u64) > self.cache.sets.board().level(Level::Mapped) {
            return None;
        }
        self.reclaim.barren[1].look(&self.cache.sets, bytes, || self.wherever(|| self.scrape_area_anew(bytes, &again)))
    }

    fn scrape_area_anew<T>(&self, bytes: usize, again: impl Fn() -> Option<T>) -> Option<T> {
        let _held = self.reclaim.lock();
        // Lazy areas of other sizes become free runs and merge with their neighbours.
        self.vmap().purge(usize::MAX);
        again().or_else(|| {
            self.empty_caches(|_| true);
            // (Areas that were a CPU's front are lazy now.)
            self.vmap().purge(usize::MAX);
            // (Of nothing an area has a page, too.)
            let pages = bytes.max(1).div_ceil(PAGE);
            if self.pages_to_areas(pages, PIECE)
                && let Some(area) = again()
            {
                return Some(area);
            }
            // Pieces, that may touch free runs or each other.
            let mut any = false;
            while self.pages_to_areas(WORTH, usize::MAX) || self.pages_between_areas() {
                any = true;
            }
            if any { again() } else { None }
        })
    }

    /// A free run of the areas becomes one of its zone; false if there is none of at least `least` pages.
    fn areas_to_pages(&self, least: usize) -> bool {
        self.vmap().hand_over(least).inspect(|&(first, pages)| self.to_zone(first, pages, true)).is_some()
    }

    /// So many pages of the areas' that are dirty become their zone's; false if there are none in a row.
    fn dirty_to_pages(&self, pages: usize) -> bool {
        self.vmap().hand_over_dirty(pages, true).inspect(|&first| self.to_zone(first, pages, false)).is_some()
    }

    /// A free run of the zones becomes one of the areas; false if there is none of at least `least` pages.
    fn pages_to_areas(&self, least: usize, most: usize) -> bool {
        self.run_to_areas(least, most, |_, _| true)
    }

    /// The same of a run, however short, behind which one of the areas begins.
    fn pages_between_areas(&self) -> bool {
        let windows = &self.pages.windows;
        self.run_to_areas(1, usize::MAX, |first, pages| {
            let behind = first.add(pages);
            windows.contains(behind) && first.same_window(behind) && windows.desc(behind).kind() == Kind::Run
        })
    }

    fn run_to_areas(&self, least: usize, most: usize, wanted: impl Fn(Pfn, usize) -> bool) -> bool {
        let (windows, board) = (&self.pages.windows, self.cache.sets.board());
        (0..NODES).any(|node| {
            let zone = &self.pages.zones[node];
            let Some((first, pages)) = zone.hand_over(windows, board, node, least, most, &wanted) else { return false };
            // SAFETY: free pages, in our hand.
            let is_clean = unsafe { self.pages.give_back(board, first, pages) };
            self.vmap().take_over(first, pages, is_clean);
            true
        })
    }
}

#[cfg(test)]
mod tests;
