//! # Zones: the free pages of one NUMA node
//!
//! ```text
//! free[key]  ──► block ⇄ block ⇄ …     by the largest order of its free pages, and
//! dirty[key] ──► block ⇄ block ⇄ …     by that of those of them that may be resident
//!                  └─ 512 pages: two bitmaps, two cache lines (see `block`)
//! ```
//! A request takes the smallest sufficient run: from the list of the smallest sufficient key, so
//! that fragmented blocks are used up and whole ones stay whole; dirty pages, which cost no fault,
//! before clean ones. The lock is held for some words of bits; addresses and descriptors are
//! made from them outside ([`Batch`], [`Gather`]), so that even threads that take a million pages hardly ever wait.
//!
//! | key | the block has |
//! |---|---|
//! | none (on no list) | no free page |
//! | 0–8 | a free run of 2^key pages, none longer |
//! | 9 | all of its pages free |
//! | 10 (of `free` only) | the same, and so has its buddy: order 10 |
//!
//! ## Watermarks, in pages ([`Zone::watermarks`])
//! | free | |
//! |---|---|
//! | < `min` | only [`Flags::ATOMIC`] takes what is there; others open more address space first |
//! | < `low` | the keeper opens more ([`Zone::prepare_more`]) |
//! | > `high` | a purge takes dirty pages here first |
//!
//! A zone of less than 32 MiB has none: a small process opens no page more for them.
//!
//! ## Huge pages
//! ```text
//! window  │ small pages │ asks for huge pages ─► its end │     from a size on ([`Growth::huge`]), by what it grows
//!                          free, clean ──first page──► all 512 resident: dirty ──a part given back──► the window is small again
//! ```
//! With the first page of such a block all of it is resident, so the rest is dirty from then on, and taken before anything clean: at
//! most one block is partly used by it. Where a part goes back to the system the kernel's own thread would make it resident again
//! (`khugepaged`), so the window's whole range asks for none from then on, in one call; what it grows by next asks anew.
//! (mimalloc and jemalloc leave that to the system; Google's tcmalloc keeps account of each huge page.)
//!
//! Units: pages, blocks by number. Invariants: a block's keys are those of its bitmaps, and it is on the
//! lists of its keys; the zone's counts are the sums of its blocks'; what [`Zone::take_dirty`] gave is in
//! no bitmap until [`Zone::cleaned`]. A bit that would be set twice is a double free: it is refused. Lock: one per
//! zone, held for one batch, never across advice, but across the opening of address space. Cost: a
//! lock and two locked adds per batch, some ten instructions per word of 64 pages.
//! (Linux `mm/page_alloc.c` links free blocks through their descriptors instead: a line per block and merge.)

mod change;

use super::api::{Flags, ZoneStats};
use super::batch::{Batch, BatchWord, Gather};
use super::block::{self, BLOCK_PAGES, DIRTY, FREE, ORDERS, WORDS};
use super::pfn::Pfn;
use super::windows::Windows;
use crate::arch::PAGE;
use crate::arch::atomic::AtomicUsize;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::lock::Lock;
use crate::arch::sys::{self, Advice};
use crate::stat::{Board, Level};
pub use change::Growth;
use change::{Change, PAIR, State, WHOLE};

/// Pages of a zone that is large enough for watermarks.
const MARKED: usize = 8 * 1024;

/// One node's free pages.
#[derive(Debug)]
pub struct Zone {
    state: Lock<State>,
    // What others may read without the lock; written under it.
    managed: AtomicUsize,
    free: AtomicUsize,
    dirty: AtomicUsize,
    /// Largest order of which dirty pages are free, plus one.
    dirty_key: AtomicUsize,
}

/// Where free pages are kept from the requests that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below it only [`Flags::ATOMIC`] takes pages as they are.
    pub min: usize,
    /// Below it the keeper opens more.
    pub low: usize,
    /// Above it a purge begins here.
    pub high: usize,
}

/// What is asked of a zone.
#[derive(Clone, Copy, Debug)]
pub struct ZoneRequest {
    /// How it grows, if it must.
    pub growth: Growth,
    /// The order of the blocks.
    pub order: usize,
    /// And how.
    pub flags: Flags,
    /// The hard limit in bytes (`u64::MAX`: none): what passes it is not given.
    pub limit: u64,
}

impl Default for Zone {
    fn default() -> Self {
        Self::new()
    }
}

impl Zone {
    /// Empty; zero bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: Lock::new(State::new()),
            managed: AtomicUsize::new(0),
            free: AtomicUsize::new(0),
            dirty: AtomicUsize::new(0),
            dirty_key: AtomicUsize::new(0),
        }
    }

    // (Relaxed, all of these: numbers.)
    /// Pages opened so far.
    pub fn managed(&self) -> usize {
        self.managed.load(Relaxed)
    }

    /// Pages that are free.
    pub fn free_pages(&self) -> usize {
        self.free.load(Relaxed)
    }

    /// Pages that are free and may be resident.
    pub fn dirty_pages(&self) -> usize {
        self.dirty.load(Relaxed)
    }

    /// Whether a block of that order is free and dirty.
    pub fn has_dirty(&self, order: usize) -> bool {
        self.dirty_key.load(Relaxed) > order
    }

    /// The kernel's: `min` is 4 √KiB KiB (32 MiB: 0.7 MiB, 4 GiB: 8 MiB); `low` is a quarter of that or a
    /// thousandth of the zone above it, and `high` as much above `low`.
    #[must_use]
    pub fn watermarks(&self) -> Watermarks {
        let managed = self.managed();
        if managed < MARKED {
            return Watermarks { min: 0, low: 0, high: 0 };
        }
        // 4 × √(4 × pages) KiB are √(4 × pages) pages.
        let min = (managed * 4).isqrt();
        let more = (min / 4).max(managed / 1000);
        Watermarks { min, low: min + more, high: min + 2 * more }
    }

    /// Whether the keeper should open more.
    #[must_use]
    pub fn below_low(&self) -> bool {
        self.free_pages() < self.watermarks().low
    }

    /// Whether a purge should begin here.
    #[must_use]
    pub fn above_high(&self) -> bool {
        self.free_pages() > self.watermarks().high
    }

    /// Opens the next step if free pages are below `low`; whether it did.
    pub fn prepare_more(&self, windows: &Windows, board: &Board, growth: Growth) -> bool {
        self.below_low() && self.change(windows, board, |change| change.grow(growth, 0))
    }

    /// Changes the zone, and afterwards what its counts and the board say.
    fn change<T>(&self, windows: &Windows, board: &Board, body: impl FnOnce(&mut Change<'_>) -> T) -> T {
        let mut state = self.state.lock();
        let managed = self.managed();
        let room = usize::MAX;
        let mut change = Change { state: &mut state, windows, board, managed, free: 0, dirty: 0, opened: 0, room };
        let result = body(&mut change);
        let Change { free, dirty, opened, .. } = change;
        self.dirty_key.store((u32::BITS - state.lists[DIRTY].any.leading_zeros()) as usize, Relaxed);
        if opened != 0 {
            self.managed.store(managed.wrapping_add_signed(opened), Relaxed);
            board.shift(Level::PagesManaged, opened * PAGE as isize);
        }
        // On the board, too, under the lock: else a reader could see less than nothing.
        for (count, level, by) in [(&self.free, Level::PagesFree, free), (&self.dirty, Level::PagesDirty, dirty)] {
            if by != 0 {
                count.store(count.load(Relaxed).wrapping_add_signed(by), Relaxed);
                board.shift(level, by * PAGE as isize);
            }
        }
        result
    }

    /// At most `n` blocks, words of them to `take`; how many, and whether the zone had to grow. None only without
    /// memory; but fewer than there are if one holding of the lock does not give more.
    pub fn alloc(
        &self,
        windows: &Windows,
        board: &Board,
        want: ZoneRequest,
        n: usize,
        take: impl FnMut(&BatchWord),
    ) -> (usize, bool) {
        let ZoneRequest { growth, order, flags, limit } = want;
        let mut batch = Batch::new();
        let min = self.watermarks().min;
        let (got, grew) = self.change(windows, board, |change| {
            change.limit(limit);
            if flags.has(Flags::ATOMIC) {
                return (change.take(order, n, &mut batch), false);
            }
            let soon = n.min((Batch::ROOM * 64) >> order) << order;
            let mut grew = min > 0 && self.free_pages() < soon + min && change.grow(growth, order);
            let mut got = change.take(order, n, &mut batch);
            // (A pair may need a second step.)
            for _ in 0..2 {
                if got > 0 || change.room < 1 << order || !change.grow(growth, order) {
                    break;
                }
                grew = true;
                got = change.take(order, n, &mut batch);
            }
            (got, grew)
        });
        batch.words().iter().for_each(take);
        (got, grew)
    }

    /// The same from what is free above `min`, for another node.
    pub fn alloc_spare(
        &self,
        windows: &Windows,
        board: &Board,
        ZoneRequest { order, limit, .. }: ZoneRequest,
        n: usize,
        take: impl FnMut(&BatchWord),
    ) -> usize {
        let spare = self.free_pages().saturating_sub(self.watermarks().min) >> order;
        if spare == 0 {
            return 0;
        }
        let mut batch = Batch::new();
        let got = self.change(windows, board, |change| {
            change.limit(limit);
            change.take(order, n.min(spare), &mut batch)
        });
        batch.words().iter().for_each(take);
        got
    }

    /// Takes pages back; how many of them were free already.
    pub fn free<const ROOM: usize>(&self, windows: &Windows, board: &Board, gather: &Gather<ROOM>) -> usize {
        self.change(windows, board, |change| change.put_all(gather.words(), true))
    }

    /// Takes the longest run of dirty pages of a block out, or all of several blocks if that is what they are, to
    /// be given back to the system; at least 2^`order` pages. It must come back through [`Zone::cleaned`].
    pub fn take_dirty(&self, windows: &Windows, board: &Board, order: usize) -> Option<(Pfn, usize)> {
        // (Looking is free.)
        if self.dirty_pages() == 0 {
            return None;
        }
        self.change(windows, board, |change| change.take_dirty(order))
    }

    /// Takes an aligned block of up to 2 MiB out of the zone for good, a dirty one if there is one and else, unless that `must` be, a clean one that is no
    /// part of a huge page: its first page, nobody's now, and whether it is zero.
    pub fn hand_over_block(&self, windows: &Windows, board: &Board, order: usize, must: bool) -> Option<(Pfn, bool)> {
        if must && !self.has_dirty(order) {
            return None;
        }
        let mut batch = Batch::new();
        self.change(windows, board, |change| {
            // (Another thread may have taken the dirty one.)
            if change.has_dirty(order) || !must && change.has_small(order) {
                change.opened -= (change.take(order, 1, &mut batch) << order) as isize;
            }
        });
        let &BatchWord { first, starts, clean } = batch.words().first()?;
        let first = first.add(starts.trailing_zeros() as usize);
        // (Who has it now may give a part of it back.)
        self.end_huge(windows, board, first);
        Some((first, clean))
    }

    /// Gives pages in the caller's hand back to the system; whether it took them. Where they are a part of a huge page, their
    /// window asks for none from now on: the kernel's own thread would make them resident again.
    ///
    /// # Safety
    /// They are the zone's, the caller's alone, and nothing in them is needed.
    #[allow(unsafe_code, reason = "advises what is the caller's")]
    pub unsafe fn give_back(&self, windows: &Windows, board: &Board, first: Pfn, pages: usize) -> bool {
        let is_part = !(first.0 as usize).is_multiple_of(BLOCK_PAGES) || !pages.is_multiple_of(BLOCK_PAGES);
        if is_part {
            self.end_huge(windows, board, first);
        }
        // SAFETY: the caller's promise.
        unsafe { sys::give_back(windows.address(first), pages * PAGE) }
    }

    /// A page's window asks for no huge pages from now on.
    #[allow(unsafe_code, reason = "advises what is the zone's")]
    fn end_huge(&self, windows: &Windows, board: &Board, page: Pfn) {
        if !windows.has_huge(page) {
            return;
        }
        let state = self.state.lock();
        let ended = windows.end_huge(board, page);
        drop(state);
        if let Some((at, bytes)) = ended {
            // SAFETY: the zone's; this advice keeps contents. (Whoever touches a block before it is counted by what it took.)
            let _ = unsafe { sys::advise(at, bytes, Advice::NoHuge) };
        }
    }

    /// Takes back what [`Zone::take_dirty`] gave, clean if the system really took it.
    pub fn cleaned(&self, windows: &Windows, board: &Board, first: Pfn, pages: usize, clean: bool) {
        let refused = self.change(windows, board, |change| change.put_range(first, first.add(pages), !clean));
        debug_assert_eq!(refused, 0, "freed while it was given back");
    }

    /// Takes a free run of at least `least` pages that is `wanted` out of the zone for good, up to `most` of it: the first, and
    /// how many. They are nobody's now, and may be dirty. Cost: a look at each block, in the lock.
    pub fn hand_over(
        &self,
        windows: &Windows,
        board: &Board,
        node: usize,
        least: usize,
        most: usize,
        wanted: impl Fn(Pfn, usize) -> bool,
    ) -> Option<(Pfn, usize)> {
        if self.free_pages() < least {
            return None;
        }
        self.change(windows, board, |change| {
            let (first, pages) = change.find_run(node, least, most, wanted)?;
            change.clear_range(first, first.add(pages));
            change.opened -= pages as isize;
            Some((first, pages))
        })
    }

    /// Pages that were nobody's are the zone's from now on.
    pub fn take_over(&self, windows: &Windows, board: &Board, first: Pfn, pages: usize, clean: bool) {
        let refused = self.change(windows, board, |change| {
            change.opened += pages as isize;
            change.put_range(first, first.add(pages), !clean)
        });
        debug_assert_eq!(refused, 0, "they were the zone's already");
    }

    /// Whether a page is free in the zone (not in a list).
    #[must_use]
    pub fn is_free(&self, windows: &Windows, board: &Board, page: Pfn) -> bool {
        self.change(windows, board, |change| {
            let at = page.0 as usize % BLOCK_PAGES;
            change.block(page.block()).bits[FREE][at / 64] >> (at % 64) & 1 == 1
        })
    }

    /// Free blocks by order (`/proc/buddyinfo`). The lock is held for a block at a time.
    #[must_use]
    pub fn buddyinfo(&self, windows: &Windows, board: &Board, node: usize) -> [usize; ORDERS] {
        let mut orders = [0; ORDERS];
        let mut halves = 0;
        for number in windows.blocks_of(node) {
            let (of_block, key) = self.change(windows, board, |change| {
                let block = change.block(number);
                (block::by_order(&block.bits[FREE]), block.key[FREE])
            });
            if key as usize == PAIR + 1 {
                halves += 1;
            } else {
                orders.iter_mut().zip(of_block).for_each(|(sum, n)| *sum += n);
            }
        }
        orders[PAIR] = halves / 2;
        // (One whose buddy changed between the two looks.)
        orders[WHOLE] += halves % 2;
        orders
    }

    /// In numbers.
    #[must_use]
    pub fn stats(&self, windows: &Windows, board: &Board, node: usize) -> ZoneStats {
        let Watermarks { min, low, high } = self.watermarks();
        let by_order = self.buddyinfo(windows, board, node);
        let (managed, free, dirty) = (self.managed(), self.free_pages(), self.dirty_pages());
        ZoneStats { node, managed, free, dirty, min, low, high, by_order }
    }

    /// Checks the invariants; for tests.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn verify(&self, windows: &Windows, board: &Board, node: usize) {
        let counts = self.change(windows, board, |change| {
            let mut counts = [0; 2];
            let mut listed = [0; 2];
            for which in [FREE, DIRTY] {
                for key in 0..ORDERS {
                    let (first, last) = (change.state.lists[which].first[key], change.state.lists[which].last[key]);
                    assert_eq!(change.state.lists[which].any >> key & 1 == 1, first != 0);
                    let (mut previous, mut at) = (0, first);
                    while at != 0 {
                        let block = change.block(at);
                        assert_eq!((block.previous[which], block.key[which] as usize), (previous, key + 1));
                        listed[which] += 1;
                        (previous, at) = (at, block.next[which]);
                    }
                    assert_eq!(last, previous);
                }
            }
            for number in windows.blocks_of(node) {
                let buddy = windows.block(number ^ 1).is_some() && change.block(number ^ 1).count[FREE] == 512;
                let block = change.block(number);
                assert!((0..WORDS).all(|word| block.bits[DIRTY][word] & !block.bits[FREE][word] == 0));
                for which in [FREE, DIRTY] {
                    assert_eq!(block.count[which] as usize, block::ones(&block.bits[which]));
                    let largest = block::largest(&block.bits[which]);
                    let pair = which == FREE && largest == Some(WHOLE) && buddy;
                    let key = if pair { PAIR + 1 } else { largest.map_or(0, |order| order + 1) };
                    assert_eq!(block.key[which] as usize, key, "block {number}, bitmap {which}");
                    counts[which] += block.count[which] as usize;
                    listed[which] -= i32::from(key > 0);
                }
            }
            assert_eq!(listed, [0; 2], "blocks on lists and blocks with free pages");
            counts
        });
        assert_eq!(counts, [self.free_pages(), self.dirty_pages()]);
        assert!(self.managed() >= counts[FREE]);
    }
}

#[cfg(test)]
mod tests;
