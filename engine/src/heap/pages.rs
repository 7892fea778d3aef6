//! # Pages as a product: blocks of an order for the program itself
//!
//! ```text
//! alloc ─► this CPU's list of the order (the sheaf's pop) ─► descriptor: USER
//!            │ empty, another node, flags, order without a list
//!            └─► list refilled from the zone; or the zone itself
//! free ──► descriptor says USER and the order? ─► unmark ─► push
//! ```
//! A block in somebody's hand is marked in its first page's descriptor and unmarked
//! before it is free, so that a doubled, interior or foreign free is seen at once. (Of
//! two threads that free one block at the same moment both may pass; the
//! zone refuses the second when it comes back.) Blocks of malloc's own have no mark.
//!
//! Cost: of a listed order one sequence, four loads and a store each way; in bulk
//! a store per block and a zone's lock per batch. Beyond the list a thread waits while another one forks. In a torn child there are
//! none, and those that are freed stay away.

use super::state::{Environment, Heap};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::gate::Inside;
use crate::arch::outcome::Outcome;
use crate::arch::{PAGE, prefetch};
use crate::cpu::NODES;
use crate::page::{BatchWord, Error, FAR_BIT, Flags, LISTED, ListStats, ORDERS, Pfn, USER_BITS, USER_TAG, ZoneStats};
use crate::slab::class::CLASSES;
use crate::stat::BadPointer;
use crate::stat::Event;

/// By order: its class's offset in a set; 0, a class that is always empty and full, for those without a list.
const OFFSET: [u16; 16] = {
    let (mut offsets, mut at) = ([0; 16], 0);
    while at < LISTED.len() {
        offsets[LISTED[at]] = ((CLASSES + at) * 16) as u16;
        at += 1;
    }
    offsets
};
/// Blocks whose descriptors are fetched ahead in a bulk free.
const AHEAD: usize = 16;

/// How many nodes may serve in another's place.
const fn others(flags: Flags) -> usize {
    if flags.has(Flags::THIS_NODE) { 0 } else { NODES }
}

impl<E: Environment> Heap<E> {
    /// A block of 2^`order` pages, aligned to its size; near the node that runs us unless another is named.
    ///
    /// # Errors
    /// [`Error`]; nothing was changed.
    #[inline]
    pub fn pages_alloc(&self, order: usize, node: Option<usize>, flags: Flags) -> Result<usize, Error> {
        if node.is_none()
            && flags == Flags::NONE
            && order < ORDERS
            && let Outcome::Done(block) = self.pop_quick(OFFSET[order] as usize)
        {
            self.mark(block, order, 0);
            return Ok(block);
        }
        self.pages_alloc_cold(order, node, flags)
    }

    /// The block is somebody's from here on.
    #[inline(always)]
    fn mark(&self, block: usize, order: usize, far: u32) {
        if let Some((_, desc)) = self.pages.windows.look(block) {
            // Relaxed: the thread that frees the block was handed it after this.
            desc.tag.store(USER_TAG | far | (order as u32) << 8, Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn pages_alloc_cold(&self, order: usize, node: Option<usize>, flags: Flags) -> Result<usize, Error> {
        if order >= ORDERS {
            return Err(Error::Order);
        }
        if node.is_some_and(|node| node >= NODES) {
            return Err(Error::Node);
        }
        let _inside = self.enter_patiently().ok_or(Error::Exhausted)?;
        if !self.opened() {
            return Err(Error::Exhausted);
        }
        let here = self.cache.sets.cpus.node();
        let atomic = flags.has(Flags::ATOMIC);
        let source = self.page_source();
        // What another node's blocks a list holds is not known.
        let offset =
            if flags.has(Flags::THIS_NODE) || node.is_some_and(|node| node != here) { 0 } else { OFFSET[order] };
        let class = offset as usize / 16;
        let listed = match class {
            0 => None,
            _ if atomic => match self.cache.sets.pop(class) {
                Outcome::Done(block) => Some(block),
                _ => None,
            },
            _ => self.cache.alloc(&source, class),
        };
        let one = || {
            let mut found = None;
            let take = |word: &BatchWord, zone| {
                let far = if zone == here { 0 } else { FAR_BIT };
                word.addresses(&self.pages.windows, |block| found = Some((block, far, word.clean)));
            };
            source.alloc_many(node.unwrap_or(here), order, 1, flags, others(flags), take);
            found
        };
        let found = match listed {
            Some(block) => Some((block, 0, false)),
            None => one(),
        };
        let found = found.or_else(|| {
            let bytes = PAGE << order;
            if atomic || !self.mm().is_limited(bytes) {
                return None;
            }
            self.mm().squeezed(bytes, one)
        });
        self.cache.sets.count(Event::AllocSlowpath, 1);
        if found.is_none() {
            self.cache.sets.count(Event::NoMemory, 1);
        }
        let (block, far, clean) = found.ok_or(Error::Exhausted)?;
        self.cache.sets.board().grown();
        self.mark(block, order, far);
        if flags.has(Flags::ZERO) && !clean {
            // SAFETY: ours, fresh, and that long.
            unsafe { core::ptr::write_bytes(block as *mut u8, 0, PAGE << order) };
        }
        if !atomic && self.reclaim.keeper.is_none() {
            self.mm().consider_keeper();
        }
        Ok(block)
    }

    /// Takes a block back.
    ///
    /// # Errors
    /// Why the address is no block of [`Heap::pages_alloc`]; nothing was changed.
    ///
    /// # Safety
    /// If it is one, nobody uses it any more.
    #[inline]
    pub unsafe fn pages_free(&self, block: usize) -> Result<(), BadPointer> {
        if let Some((_, desc)) = self.pages.windows.look(block) {
            // Relaxed: as in `mark`.
            let tag = desc.tag.load(Relaxed);
            if tag & !ORDER_BITS == USER_TAG && block.is_multiple_of(PAGE) {
                desc.tag.store(tag & !USER_BITS, Relaxed);
                let order = tag as usize >> 8 & 15;
                // SAFETY: the caller's promise, and its mark was ours to take.
                if unsafe { self.push_quick(OFFSET[order] as usize, block) }.is_done() {
                    return Ok(());
                }
                // SAFETY: as above.
                unsafe { self.pages_free_cold(block, order) };
                return Ok(());
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.pages_free_odd(block) }
    }

    /// Unmarks a block; its page and order.
    #[inline(always)]
    fn unmark(&self, block: usize, inside: Option<&Inside<'_>>) -> Result<(Pfn, usize), BadPointer> {
        let Some((pfn, desc)) = self.pages.windows.look(block) else { return Err(self.what_else(block, inside)) };
        // Relaxed: as in `mark`.
        let tag = desc.tag.load(Relaxed);
        if !block.is_multiple_of(PAGE) || tag & !(ORDER_BITS | FAR_BIT) != USER_TAG {
            return Err(self.what_else(block, inside));
        }
        desc.tag.store(tag & !USER_BITS, Relaxed);
        Ok((pfn, tag as usize >> 8 & 15))
    }

    /// Why an address is no block. (Where nobody is inside a zone's lock may be held for ever, and what came to it before is not known.)
    #[cold]
    fn what_else(&self, address: usize, inside: Option<&Inside<'_>>) -> BadPointer {
        let windows = &self.pages.windows;
        let Some((pfn, desc)) = windows.look(address) else { return BadPointer::Foreign };
        let was_one = address.is_multiple_of(PAGE) && desc.tag.load(Relaxed) as u8 == USER_TAG as u8;
        let is_free =
            || inside.is_some() && self.pages.zones[windows.zone(pfn)].is_free(windows, self.cache.sets.board(), pfn);
        if self.slab_source().class_of(address).is_some() {
            BadPointer::Foreign
        } else if was_one || is_free() {
            BadPointer::Double
        } else {
            BadPointer::Interior
        }
    }

    /// Another node's block, or no block at all.
    ///
    /// # Safety
    /// As [`Heap::pages_free`].
    #[cold]
    #[inline(never)]
    unsafe fn pages_free_odd(&self, block: usize) -> Result<(), BadPointer> {
        if !self.is_open() {
            return Err(BadPointer::Foreign);
        }
        let inside = self.enter_patiently();
        match self.unmark(block, inside.as_ref()) {
            Ok(found) => {
                if inside.is_some() {
                    self.page_source().free_all(core::iter::once(found));
                }
                Ok(())
            }
            Err(wrong) => {
                self.cache.sets.count(Event::BadFree, 1);
                Err(wrong)
            }
        }
    }

    /// # Safety
    /// The block is the caller's, unmarked.
    #[cold]
    #[inline(never)]
    unsafe fn pages_free_cold(&self, block: usize, order: usize) {
        let Some(_inside) = self.enter_patiently() else { return };
        match OFFSET[order] {
            0 => {
                let found = self.pages.windows.find(block).map(|(_, pfn)| (pfn, order));
                self.page_source().free_all(found.into_iter());
            }
            // SAFETY: the caller's promise.
            offset => unsafe { self.cache.free(&self.page_source(), offset as usize / 16, block) },
        }
        self.mm().check(0);
        self.mm().wake_keeper();
        self.cache.sets.count(Event::FreeSlowpath, 1);
    }

    /// Blocks to fill `into` with their addresses; how many there are (fewer only without memory).
    pub fn pages_alloc_bulk(&self, order: usize, node: Option<usize>, flags: Flags, into: &mut [usize]) -> usize {
        if order >= ORDERS || node.is_some_and(|node| node >= NODES) {
            return 0;
        }
        let Some(_inside) = self.enter_patiently() else { return 0 };
        if !self.opened() {
            return 0;
        }
        let here = self.cache.sets.cpus.node();
        let (node, source, windows) = (node.unwrap_or(here), self.page_source(), &self.pages.windows);
        let (mut got, mut squeezed) = (0, false);
        while got < into.len() {
            let n = into.len() - got;
            let more = source.alloc_many(node, order, n, flags, others(flags), |word, zone| {
                let far = if zone == here { 0 } else { FAR_BIT };
                windows.set_tags(word.first, word.starts, USER_TAG | far | (order as u32) << 8);
                word.addresses(windows, |block| {
                    into[got] = block;
                    got += 1;
                    if flags.has(Flags::ZERO) && !word.clean {
                        // SAFETY: ours, fresh, and that long.
                        unsafe { core::ptr::write_bytes(block as *mut u8, 0, PAGE << order) };
                    }
                });
            });
            if more == 0 {
                // Once, where the hard limit is in the way.
                let bytes = PAGE << order;
                let again = !flags.has(Flags::ATOMIC) && !squeezed && self.mm().is_limited(bytes);
                squeezed = true;
                if !again || self.mm().squeezed(bytes, || Some(())).is_none() {
                    break;
                }
            }
        }
        self.cache.sets.count(Event::AllocSlowpath, 1);
        self.cache.sets.board().grown();
        got
    }

    /// Takes blocks back, of whatever orders.
    ///
    /// # Errors
    /// The first address that is no block, and why. All others were taken.
    ///
    /// # Safety
    /// Nobody uses those that are blocks any more.
    pub unsafe fn pages_free_bulk(&self, blocks: &[usize]) -> Result<(), (usize, BadPointer)> {
        if !self.is_open() {
            return blocks.first().map_or(Ok(()), |&first| Err((first, BadPointer::Foreign)));
        }
        let inside = self.enter_patiently();
        let mut bad = Ok(());
        let windows = &self.pages.windows;
        let found = blocks.iter().enumerate().filter_map(|(at, &block)| {
            // Descriptors in no order lie in no cache.
            if let Some((_, desc)) = blocks.get(at + AHEAD).and_then(|&ahead| windows.look(ahead)) {
                prefetch(desc);
            }
            let found = self.unmark(block, inside.as_ref());
            if let Err(wrong) = found {
                self.cache.sets.count(Event::BadFree, 1);
                bad = bad.and(Err((block, wrong)));
            }
            found.ok()
        });
        if inside.is_none() {
            found.for_each(|_| ());
            return bad;
        }
        self.page_source().free_all(found);
        self.mm().check(0);
        self.mm().wake_keeper();
        self.cache.sets.count(Event::FreeSlowpath, 1);
        bad
    }

    /// A node's zone in numbers; `None` if it has no memory, or none that is known of (a torn child).
    pub fn zone_stats(&self, node: usize) -> Option<ZoneStats> {
        let _inside = self.enter_patiently()?;
        let zone = self.pages.zones.get(node).filter(|zone| zone.managed() > 0)?;
        let stats = zone.stats(&self.pages.windows, self.cache.sets.board(), node);
        Some(stats)
    }

    /// The page lists of all indices.
    pub fn page_lists(&self) -> impl Iterator<Item = ListStats> + '_ {
        // (Before it is open there are none.)
        self.cache.sets.used().flat_map(move |index| {
            LISTED.iter().enumerate().filter_map(move |(at, &order)| {
                let (count, limit, batch) = self.cache.sets.list(index, CLASSES + at)?;
                Some(ListStats { index, order, count, high: limit * 2, batch })
            })
        })
    }
}

/// Where a tag keeps the order.
const ORDER_BITS: u32 = 15 << 8;

#[cfg(test)]
mod tests;
