//! # Zones: the buddy allocator of one NUMA node
//!
//! ```text
//! free[order] ──► block ⇄ block ⇄ …      orders 0–10: 4 KiB – 4 MiB, linked through descriptors
//! ```
//! The buddy of page p at order o is p XOR 2ᵒ. A free block carries [`DIRTY`] if any of
//! its pages may be resident. Allocation prefers dirty blocks (they cost no fault), from
//! the list's front; clean ones wait at its end.
//!
//! Invariants: a free block is on the list of its order, its first descriptor says
//! `Free` and its order, and its buddy is not free with the same order (else they are
//! one). Lock: one per zone, held for one batch at a time, never across advice.
//! Cost: a few descriptor writes per split or merge. (Linux `mm/page_alloc.c`.)

use super::region::{Kind, Paging, Pfn, Regions};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::lock::Lock;
use crate::arch::{PAGE, sys};
use crate::stat::{Board, Level};

/// Orders 0–10.
pub const ORDERS: usize = 11;
/// In the descriptor's rest: some page of the block may be resident.
const DIRTY: u32 = 1 << 4;
/// Pages opened at a time, at least: 2 MiB; a sixteenth of what is there later.
const STEP: usize = 512;

/// One node's free pages.
#[derive(Debug)]
pub struct Zone {
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    first: [Pfn; ORDERS],
    last: [Pfn; ORDERS],
    /// Pages not opened yet of the newest window.
    next: Pfn,
    end: Pfn,
    opened: usize,
}

impl Default for Zone {
    fn default() -> Self {
        Self::new()
    }
}

impl Zone {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: Lock::new(State {
                first: [Pfn::NONE; ORDERS],
                last: [Pfn::NONE; ORDERS],
                next: Pfn::NONE,
                end: Pfn::NONE,
                opened: 0,
            }),
        }
    }

    /// Up to `n` blocks of `order` to `take`, for a zone of this `node`; how many, and whether the zone had to grow.
    pub fn alloc(
        &self,
        regions: &Regions,
        board: &Board,
        node: usize,
        order: usize,
        n: usize,
        mut take: impl FnMut(Pfn),
    ) -> (usize, bool) {
        let mut state = self.state.lock();
        let mut grew = false;
        for got in 0..n {
            let block = state.pop(regions, board, order).or_else(|| {
                grew = true;
                state.grow(regions, board, node, order).then(|| state.pop(regions, board, order)).flatten()
            });
            let Some(block) = block else { return (got, grew) };
            take(block);
        }
        (n, grew)
    }

    /// Takes a block back.
    pub fn free(&self, regions: &Regions, board: &Board, blocks: impl Iterator<Item = Pfn>, order: usize) {
        let mut state = self.state.lock();
        for block in blocks {
            state.push(regions, board, block, order, DIRTY);
        }
    }

    /// Takes one dirty free block of at least `order` out, to be given back to the system;
    /// it must come back through [`Zone::cleaned`].
    pub fn take_dirty(&self, regions: &Regions, board: &Board, order: usize) -> Option<(Pfn, usize)> {
        let mut state = self.state.lock();
        for order in (order..ORDERS).rev() {
            let block = state.first[order];
            if block != Pfn::NONE && regions.desc(block).rest() & DIRTY != 0 {
                state.unlink(regions, board, block, order);
                regions.desc(block).set(Kind::Pages, order as u32);
                return Some((block, order));
            }
        }
        None
    }

    /// Takes back what [`Zone::take_dirty`] gave, clean if the system really took it.
    pub fn cleaned(&self, regions: &Regions, board: &Board, block: Pfn, order: usize, clean: bool) {
        self.state.lock().push(regions, board, block, order, if clean { 0 } else { DIRTY });
    }

    /// Free blocks by order (`/proc/buddyinfo`).
    #[must_use]
    pub fn buddyinfo(&self, regions: &Regions) -> [usize; ORDERS] {
        let state = self.state.lock();
        core::array::from_fn(|order| {
            let mut count = 0;
            let mut at = state.first[order];
            while at != Pfn::NONE {
                count += 1;
                at = regions.desc(at).links().1;
            }
            count
        })
    }

    /// In numbers.
    #[must_use]
    pub fn stats(&self, regions: &Regions, node: usize) -> super::ZoneStats {
        let by_order = self.buddyinfo(regions);
        let free = by_order.iter().enumerate().map(|(order, n)| n << order).sum();
        super::ZoneStats { node, managed: self.state.lock().opened, free, by_order, ..super::ZoneStats::default() }
    }

    /// Checks the invariants; for tests.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn verify(&self, regions: &Regions) {
        let state = self.state.lock();
        for order in 0..ORDERS {
            let (mut previous, mut at) = (Pfn::NONE, state.first[order]);
            while at != Pfn::NONE {
                let desc = regions.desc(at);
                assert_eq!(desc.kind(), Kind::Free);
                assert_eq!(desc.rest() as usize & 15, order);
                assert_eq!(desc.links().0, previous);
                assert!(at.0.is_multiple_of(1 << order));
                let buddy = Pfn(at.0 ^ 1 << order);
                if order + 1 < ORDERS && regions.contains(buddy) {
                    let other = regions.desc(buddy);
                    assert!(other.kind() != Kind::Free || other.rest() as usize & 15 != order, "unmerged buddies");
                }
                (previous, at) = (at, desc.links().1);
            }
            assert_eq!(state.last[order], previous);
        }
    }

    /// See [`Lock::fork_begin`].
    pub fn fork_begin(&self) {
        self.state.fork_begin();
    }
    /// See [`Lock::fork_end`].
    pub fn fork_end(&self) {
        self.state.fork_end();
    }
}

impl State {
    fn account(board: &Board, order: usize, dirty: bool, more: bool) {
        let bytes = PAGE << order;
        let change = if more { Board::raise_quietly } else { Board::lower };
        change(board, Level::PagesFree, bytes);
        if dirty {
            change(board, Level::PagesDirty, bytes);
        }
    }

    /// Puts a block on its list: dirty ones in front, clean ones at the end.
    fn link(&mut self, regions: &Regions, board: &Board, block: Pfn, order: usize, dirty: u32) {
        let desc = regions.desc(block);
        desc.set(Kind::Free, order as u32 | dirty);
        desc.set_len(1 << order);
        if dirty != 0 {
            let next = self.first[order];
            desc.set_links(Pfn::NONE, next);
            if next == Pfn::NONE {
                self.last[order] = block;
            } else {
                let other = regions.desc(next);
                other.set_links(block, other.links().1);
            }
            self.first[order] = block;
        } else {
            let previous = self.last[order];
            desc.set_links(previous, Pfn::NONE);
            if previous == Pfn::NONE {
                self.first[order] = block;
            } else {
                let other = regions.desc(previous);
                other.set_links(other.links().0, block);
            }
            self.last[order] = block;
        }
        Self::account(board, order, dirty != 0, true);
    }

    fn unlink(&mut self, regions: &Regions, board: &Board, block: Pfn, order: usize) {
        let desc = regions.desc(block);
        let (previous, next) = desc.links();
        if previous == Pfn::NONE {
            self.first[order] = next;
        } else {
            let other = regions.desc(previous);
            other.set_links(other.links().0, next);
        }
        if next == Pfn::NONE {
            self.last[order] = previous;
        } else {
            let other = regions.desc(next);
            other.set_links(previous, other.links().1);
        }
        Self::account(board, order, desc.rest() & DIRTY != 0, false);
    }

    /// Merges upward and links.
    fn push(&mut self, regions: &Regions, board: &Board, block: Pfn, order: usize, mut dirty: u32) {
        let (mut block, mut order) = (block, order);
        regions.desc(block).set(Kind::None, 0);
        while order + 1 < ORDERS {
            let buddy = Pfn(block.0 ^ 1 << order);
            if !regions.contains(buddy) {
                break;
            }
            let desc = regions.desc(buddy);
            if desc.kind() != Kind::Free || desc.rest() as usize & 15 != order {
                break;
            }
            dirty |= desc.rest() & DIRTY;
            self.unlink(regions, board, buddy, order);
            desc.set(Kind::None, 0);
            block = Pfn(block.0 & !(1 << order));
            order += 1;
        }
        self.link(regions, board, block, order, dirty);
    }

    /// Takes the smallest sufficient block, dirty before clean, and splits it.
    fn pop(&mut self, regions: &Regions, board: &Board, order: usize) -> Option<Pfn> {
        let is_dirty = |pfn: Pfn| regions.desc(pfn).rest() & DIRTY != 0;
        let any = |o: &usize| self.first[*o] != Pfn::NONE;
        let from =
            (order..ORDERS).find(|o| any(o) && is_dirty(self.first[*o])).or_else(|| (order..ORDERS).find(any))?;
        let block = self.first[from];
        let dirty = regions.desc(block).rest() & DIRTY;
        self.unlink(regions, board, block, from);
        for half in (order..from).rev() {
            self.link(regions, board, block.add(1 << half), half, dirty);
        }
        regions.desc(block).set(Kind::Pages, order as u32);
        regions.desc(block).set_len(1 << order);
        Some(block)
    }

    /// Opens more address space; false when the system refuses.
    fn grow(&mut self, regions: &Regions, board: &Board, node: usize, order: usize) -> bool {
        if self.next.0 + (1 << order) > self.end.0 {
            let Some((first, pages)) = regions.reserve(board, Paging::Small, 1 << order, node) else { return false };
            self.next = first;
            self.end = first.add(pages);
            if node > 0 {
                sys::bind(regions.address(first), pages * PAGE, node);
            }
        }
        let block = STEP.max(1 << order);
        let step = (self.opened / 16).next_multiple_of(block).clamp(block, 16 * 1024);
        let Some(fresh) = regions.open(board, self.next.add(block), step) else { return false };
        let (mut at, end) = (self.next, fresh.end);
        self.opened += (end.0 - at.0) as usize;
        self.next = end;
        while at < end {
            let fit = (end.0 - at.0).ilog2().min(at.0.trailing_zeros()).min(ORDERS as u32 - 1);
            self.push(regions, board, at, fit as usize, 0);
            at = at.add(1 << fit);
        }
        true
    }
}

/// Whether a page's descriptor says that it begins a block in use; its order.
#[must_use]
pub fn order_of(regions: &Regions, pfn: Pfn) -> Option<usize> {
    let desc = regions.desc(pfn);
    // Relaxed: the caller holds the block.
    let tag = desc.tag.load(Relaxed);
    (tag as u8 == Kind::Pages as u8).then_some((tag >> 8) as usize & 15)
}
