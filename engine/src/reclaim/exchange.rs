//! # Exchange: what one side has left is used by the other before fresh memory is
//!
//! ```text
//!            ┌── dirty block ──► │                           before a slab is made and the zone has no dirty block
//! areas ◄────┼── clean block ─── │ ──► zone
//!            └ the other way round                           before an area takes fresh pages
//! ```
//! Blocks whose sizes drift across the bound of small objects leave pages on one side while the other takes fresh ones: more would be free and
//! resident than may be, and what is given back here is faulted in there. So while so much is that fresh memory would soon be purged for,
//! a block of pages changes hands as it is, and one that is clean goes the other way, if there is one: neither side grows for it.
//! Blocks are at least of the order [`TO_ZONE`] or [`TO_AREAS`], and aligned: what has changed hands comes back in few pieces. Nothing is mapped, given back or touched.
//!
//! Lock: `Reclaim::purging`, if nobody has it (a page is in one of both, or in the hand of who holds it); each layer's own
//! while it gives or takes. Cost: a load or two where there is nothing to do; else 2 MiB at most, and a store for each page.

use super::mm::Mm;
use crate::arch::PAGE;
use crate::page::{ORDERS, Pfn};
use crate::stat::Level;

/// Pages of a block that goes to a zone, at least, as an order: those of the largest slabs.
const TO_ZONE: usize = 5;
/// The same of one that goes to the areas. (A zone from which slabs go one by one has few that are longer: with 64 pages 5,000 blocks that grow to
/// 20 KB each took 162 MiB, with these 149.)
const TO_AREAS: usize = 4;

impl Mm<'_> {
    /// Before a slab of 2^`order` pages is made, perhaps: its zone gets a dirty block of the areas' if it has none. Where those have
    /// few, `more` may come of what is cached, or not. (Out of line, both: what follows needs none of their frames.)
    #[inline(never)]
    pub fn dirty_to_zone(&self, order: usize, more: impl FnOnce() -> bool) {
        let (windows, board) = (&self.pages.windows, self.cache.sets.board());
        let zone = &self.pages.zones[self.cache.sets.cpus.node()];
        if zone.has_dirty(order) {
            return;
        }
        let order = order.max(TO_ZONE);
        let have = || board.level(Level::Lazy) >= (PAGE << order) as u64;
        if !if have() { self.is_much() } else { more() && have() } {
            return;
        }
        if let Some(_held) = self.reclaim.purging.try_lock()
            && let Some(dirty) = self.vmap().hand_over_dirty(1 << order, false)
        {
            let back = zone.hand_over_block(windows, board, order, false);
            self.to_zone(dirty, 1 << order, false);
            if let Some((first, clean)) = back {
                self.vmap().take_over(first, 1 << order, clean);
            }
        }
    }

    /// Before an area of so many bytes takes fresh pages: the areas get a dirty block of the zone's that is long enough.
    #[inline(never)]
    pub fn dirty_to_areas(&self, bytes: usize) {
        let (windows, board) = (&self.pages.windows, self.cache.sets.board());
        let zone = &self.pages.zones[self.cache.sets.cpus.node()];
        let order = bytes.div_ceil(PAGE).next_power_of_two().ilog2().max(TO_AREAS as u32) as usize;
        if order >= ORDERS - 1 || !zone.has_dirty(order) || !self.is_much() {
            return;
        }
        if let Some(_held) = self.reclaim.purging.try_lock()
            && let Some((dirty, clean)) = zone.hand_over_block(windows, board, order, true)
        {
            let back = self.vmap().hand_over_block(1 << order, false);
            self.vmap().take_over(dirty, 1 << order, clean);
            if let Some(first) = back {
                self.to_zone(first, 1 << order, true);
            }
        }
    }

    /// Pages that were nobody's are their zone's from now on.
    pub(super) fn to_zone(self, first: Pfn, pages: usize, clean: bool) {
        let (windows, board) = (&self.pages.windows, self.cache.sets.board());
        self.pages.zones[windows.zone(first)].take_over(windows, board, first, pages, clean);
    }
}

#[cfg(test)]
mod tests;
