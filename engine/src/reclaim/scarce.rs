//! # Scarcity: what a limit leaves is usable by every layer
//!
//! Where the system gives no more memory (`ulimit -v`, `ulimit -d`, `mlockall`, a filter), free pages change hands:
//! ```text
//! zone: free bits of some blocks ──give back──► free run of the areas       (for an area)
//! areas: free run, zero          ─────────────► free bits of its blocks     (for objects and pages)
//! ```
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
use crate::page::give_back;
use crate::stat::Level;

/// Pages that go to the areas at a time, if there are so many together.
const PIECE: usize = 512;
/// Times that a thread may be moved to another CPU while it looks for what CPUs have cached.
const MOVES: usize = 4;
/// Runs of a zone that are worth to be joined with free runs of the areas.
const WORTH: usize = 16;

impl Mm<'_> {
    /// A block of 2^`order` pages, or what is made of such, that the system refuses: tried again with what is cached, and
    /// then with what the areas have.
    #[cold]
    pub fn scrape_pages<T>(&self, order: usize, again: impl Fn() -> Option<T>) -> Option<T> {
        self.reclaim.barren[0].look(&self.cache.sets, PAGE << order, || self.scrape_pages_anew(order, again))
    }

    fn scrape_pages_anew<T>(&self, order: usize, again: impl Fn() -> Option<T>) -> Option<T> {
        let _held = self.reclaim.lock();
        self.cache.empty_barns(&self.everything(), ALL_CLASSES);
        again()
            .or_else(|| {
                let moved = || self.areas_to_pages(1 << order);
                let purged = || {
                    self.vmap().purge(usize::MAX);
                    moved()
                };
                if moved() || purged() { again() } else { None }
            })
            .or_else(|| {
                // The last that there can be: what CPUs have cached. Areas of theirs are lazy then, and pages in the lists of
                // the CPU that does this: once more from another, if the thread was moved meanwhile.
                let here = || self.cache.sets.cpus.index();
                (0..MOVES).find_map(|_| {
                    let index = here();
                    self.empty_caches(|_| true);
                    self.vmap().purge(usize::MAX);
                    self.areas_to_pages(1 << order);
                    again().map(Some).or_else(|| (here() == index).then_some(None))
                })?
            })
            .or_else(|| if self.feed_meta() { again() } else { None })
    }

    /// A few pages of the areas' or a zone's for our own structures, if they are short of memory.
    fn feed_meta(&self) -> bool {
        const PAGES: usize = 4;
        let (windows, board, meta) = (&self.pages.windows, self.cache.sets.board(), &self.cache.meta);
        if !meta.is_dry() {
            return false;
        }
        if !self.areas_to_pages(PAGES) && !(0..NODES).any(|node| self.pages.zones[node].free_pages() >= PAGES) {
            return false;
        }
        (0..NODES).any(|node| {
            let zone = &self.pages.zones[node];
            let Some((first, pages)) = zone.hand_over(windows, board, node, PAGES, PAGES) else { return false };
            let at = windows.address(first);
            // SAFETY: free pages, in our hand.
            unsafe { core::ptr::write_bytes(at as *mut u8, 0, pages * PAGE) };
            meta.feed(board, at, pages * PAGE);
            true
        })
    }

    /// An area of so many bytes that the system refuses: tried again with what is lazy, cached, and the zones'.
    #[cold]
    pub fn scrape_area<T>(&self, bytes: usize, again: impl Fn() -> Option<T>) -> Option<T> {
        // What nothing could give is refused at once.
        if (bytes as u64) > self.cache.sets.board().level(Level::Mapped) {
            return None;
        }
        self.reclaim.barren[1].look(&self.cache.sets, bytes, || self.scrape_area_anew(bytes, again))
    }

    fn scrape_area_anew<T>(&self, bytes: usize, again: impl Fn() -> Option<T>) -> Option<T> {
        let held = self.reclaim.lock();
        // Lazy areas of other sizes become free runs and merge with their neighbours.
        self.vmap().purge(usize::MAX);
        drop(held);
        self.vmap().wait_giants();
        let _held = self.reclaim.lock();
        again().or_else(|| {
            self.empty_caches(|_| true);
            // (Areas that were a CPU's front are lazy now.)
            self.vmap().purge(usize::MAX);
            let pages = bytes.div_ceil(PAGE);
            if self.pages_to_areas(pages, PIECE)
                && let Some(area) = again()
            {
                return Some(area);
            }
            // Pieces, that may touch free runs or each other.
            let mut any = false;
            while self.pages_to_areas(WORTH, usize::MAX) {
                any = true;
            }
            if any { again() } else { None }
        })
    }

    /// A free run of the areas becomes one of its zone; false if there is none of at least `least` pages.
    fn areas_to_pages(&self, least: usize) -> bool {
        let (windows, board) = (&self.pages.windows, self.cache.sets.board());
        let Some((first, pages)) = self.vmap().hand_over(least) else { return false };
        self.pages.zones[windows.zone(first)].take_over(windows, board, first, pages, true);
        true
    }

    /// A free run of the zones becomes one of the areas; false if there is none of at least `least` pages.
    fn pages_to_areas(&self, least: usize, most: usize) -> bool {
        let (windows, board) = (&self.pages.windows, self.cache.sets.board());
        (0..NODES).any(|node| {
            let zone = &self.pages.zones[node];
            let Some((first, pages)) = zone.hand_over(windows, board, node, least, most) else { return false };
            // SAFETY: free pages, in our hand.
            let is_clean = unsafe { give_back(windows.address(first), pages * PAGE) };
            if is_clean {
                self.vmap().take_over(first, pages);
            } else {
                zone.take_over(windows, board, first, pages, false);
            }
            is_clean
        })
    }
}
