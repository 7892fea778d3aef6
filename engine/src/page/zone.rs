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
//! | < `low` | the housekeeper opens more ([`Zone::prepare_more`]) |
//! | > `high` | a purge takes dirty pages here first |
//!
//! A zone of less than 32 MiB has none: a small process opens no page more for them.
//!
//! Units: pages, blocks by number. Invariants: a block's keys are those of its bitmaps, and it is on the
//! lists of its keys; the zone's counts are the sums of its blocks'; what [`Zone::take_dirty`] gave is in
//! no bitmap until [`Zone::cleaned`]. A bit that would be set twice is a double free: it is refused. Lock: one per
//! zone, held for one batch, never across advice, but across the opening of address space. Cost: a
//! lock and two locked adds per batch, some ten instructions per word of 64 pages.
//! (Linux `mm/page_alloc.c` links free blocks through their descriptors instead: a line per block and merge.)
#![allow(unsafe_code)] // blocks, by number

use super::api::{Flags, ZoneStats};
use super::block::{self, BLOCK_PAGES, BLOCK_SHIFT, Bits, Block, DIRTY, FREE, WORDS};
use super::region::{self, Owner, Pfn, Regions, each};
use crate::arch::atomic::AtomicUsize;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::lock::Lock;
use crate::arch::{PAGE, sys};
use crate::stat::{Board, Level};
use core::mem::MaybeUninit;

/// Orders 0–10.
pub const ORDERS: usize = 11;
/// The order of a pair of blocks.
const PAIR: usize = ORDERS - 1;
/// The order of a block.
const WHOLE: usize = BLOCK_SHIFT as usize;
/// Pages of a zone that is large enough for watermarks.
const MARKED: usize = 8 * 1024;
/// Blocks that [`Zone::take_dirty`] gives at once, at most: 8 MiB.
const DIRTY_BLOCKS: usize = 4;

/// One node's free pages.
#[derive(Debug)]
pub struct Zone {
    state: Lock<State>,
    // What others may read without the lock; written under it.
    managed: AtomicUsize,
    free: AtomicUsize,
    dirty: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// By [`FREE`] and [`DIRTY`].
    lists: [List; 2],
    /// A page of the newest window.
    newest: Pfn,
}

/// Blocks by key: first and last of each list, and which lists have any.
#[derive(Debug)]
struct List {
    first: [u32; ORDERS],
    last: [u32; ORDERS],
    any: u32,
}

/// Where free pages are kept from the requests that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below it only [`Flags::ATOMIC`] takes pages as they are.
    pub min: usize,
    /// Below it the housekeeper opens more.
    pub low: usize,
    /// Above it a purge begins here.
    pub high: usize,
}

/// What a zone gave: for each word of 64 pages where the blocks begin.
#[derive(Debug)]
pub struct Batch {
    words: [MaybeUninit<Word>; Self::ROOM],
    len: usize,
}

/// Blocks that begin in one word.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// The first page of the word.
    pub first: Pfn,
    /// Where they begin.
    pub starts: u64,
    /// All of them read as zero.
    pub clean: bool,
}

impl Batch {
    const ROOM: usize = 2 * WORDS;

    const fn new() -> Self {
        Self { words: [MaybeUninit::uninit(); Self::ROOM], len: 0 }
    }
    const fn is_full(&self) -> bool {
        self.len > Self::ROOM - WORDS
    }
    fn add(&mut self, number: u32, starts: &Bits, clean: bool) {
        for (word, &starts) in starts.iter().enumerate().filter(|(_, starts)| **starts != 0) {
            let first = Pfn((number << BLOCK_SHIFT) + word as u32 * 64);
            self.words[self.len] = MaybeUninit::new(Word { first, starts, clean });
            self.len += 1;
        }
    }
    fn words(&self) -> &[Word] {
        // SAFETY: the first `len` were written.
        unsafe { self.words[..self.len].assume_init_ref() }
    }
}

impl Word {
    /// The addresses of its blocks.
    #[inline(always)]
    pub fn addresses(&self, regions: &Regions, mut take: impl FnMut(usize)) {
        let base = regions.address(self.first);
        each(self.starts, |bit| take(base + bit * PAGE));
    }
}

/// What a zone is to take: pages by word, so that neighbours cost one step together. (Room for fewer words, 16 at least,
/// is for paths that may be deep in a small stack.)
#[derive(Debug)]
pub struct Gather<const ROOM: usize = 64> {
    words: [MaybeUninit<(u32, u64)>; ROOM],
    len: usize,
}

impl<const ROOM: usize> Default for Gather<ROOM> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const ROOM: usize> Gather<ROOM> {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [MaybeUninit::uninit(); ROOM], len: 0 }
    }
    /// Whether there may be no room for another block.
    #[inline]
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len > ROOM - 2 * WORDS
    }
    /// Forgets it all.
    pub const fn clear(&mut self) {
        self.len = 0;
    }
    /// Whether there is nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Adds a block; false, and nothing done, if one of its pages was just added.
    #[inline]
    pub fn add(&mut self, block: Pfn, order: usize) -> bool {
        debug_assert!(!self.is_full() && block.0.is_multiple_of(1 << order));
        let word = block.0 / 64;
        if order >= 6 {
            for at in 0..1 << (order - 6) {
                self.push(word + at, u64::MAX);
            }
            return true;
        }
        let bits = block::span(block.0 as usize % 64, 1 << order);
        if let Some(last) = self.words[..self.len].last_mut()
            // SAFETY: the first `len` were written.
            && let last = unsafe { last.assume_init_mut() }
            && last.0 == word
        {
            let fresh = last.1 & bits == 0;
            last.1 |= bits;
            return fresh;
        }
        self.push(word, bits);
        true
    }
    fn push(&mut self, word: u32, bits: u64) {
        self.words[self.len] = MaybeUninit::new((word, bits));
        self.len += 1;
    }
    fn words(&self) -> &[(u32, u64)] {
        // SAFETY: the first `len` were written.
        unsafe { self.words[..self.len].assume_init_ref() }
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self::new()
    }
}

/// What is asked of a zone.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Whose zone it is.
    pub node: usize,
    /// New memory is bound to this node: there are others, and the process filters no system calls.
    pub bind: bool,
    /// The order of the blocks.
    pub order: usize,
    /// And how.
    pub flags: Flags,
    /// The hard limit in bytes (`u64::MAX`: none): what passes it is not given.
    pub limit: u64,
}

impl Zone {
    /// Empty; zero bytes.
    #[must_use]
    pub const fn new() -> Self {
        const EMPTY: List = List { first: [0; ORDERS], last: [0; ORDERS], any: 0 };
        Self {
            state: Lock::new(State { lists: [EMPTY; 2], newest: Pfn::NONE }),
            managed: AtomicUsize::new(0),
            free: AtomicUsize::new(0),
            dirty: AtomicUsize::new(0),
        }
    }

    // (Relaxed, all three: numbers.)
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
    /// Whether the housekeeper should open more.
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
    pub fn prepare_more(&self, regions: &Regions, board: &Board, node: usize, bind: bool) -> bool {
        self.below_low() && self.change(regions, board, |change| change.grow(node, bind, 0))
    }

    /// Changes the zone, and afterwards what its counts and the board say.
    fn change<T>(&self, regions: &Regions, board: &Board, body: impl FnOnce(&mut Change<'_>) -> T) -> T {
        let mut state = self.state.lock();
        let managed = self.managed();
        let room = usize::MAX;
        let mut change = Change { state: &mut state, regions, board, managed, free: 0, dirty: 0, opened: 0, room };
        let result = body(&mut change);
        let Change { free, dirty, opened, .. } = change;
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
        regions: &Regions,
        board: &Board,
        want: Want,
        n: usize,
        take: impl FnMut(&Word),
    ) -> (usize, bool) {
        let Want { node, bind, order, flags, limit } = want;
        let mut batch = Batch::new();
        let min = self.watermarks().min;
        let (got, grew) = self.change(regions, board, |change| {
            change.limit(limit);
            if flags.has(Flags::ATOMIC) {
                return (change.take(order, n, &mut batch), false);
            }
            let soon = n.min((Batch::ROOM * 64) >> order) << order;
            let mut grew = min > 0 && self.free_pages() < soon + min && change.grow(node, bind, order);
            let mut got = change.take(order, n, &mut batch);
            // (A pair may need a second step.)
            for _ in 0..2 {
                if got > 0 || change.room < 1 << order || !change.grow(node, bind, order) {
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
        regions: &Regions,
        board: &Board,
        Want { order, limit, .. }: Want,
        n: usize,
        take: impl FnMut(&Word),
    ) -> usize {
        let spare = self.free_pages().saturating_sub(self.watermarks().min) >> order;
        if spare == 0 {
            return 0;
        }
        let mut batch = Batch::new();
        let got = self.change(regions, board, |change| {
            change.limit(limit);
            change.take(order, n.min(spare), &mut batch)
        });
        batch.words().iter().for_each(take);
        got
    }

    /// Takes pages back; how many of them were free already.
    pub fn free<const ROOM: usize>(&self, regions: &Regions, board: &Board, gather: &Gather<ROOM>) -> usize {
        self.change(regions, board, |change| change.put_all(gather.words(), true))
    }

    /// Takes the longest run of dirty pages of a block out, or all of several blocks if that is what they are, to
    /// be given back to the system; at least 2^`order` pages. It must come back through [`Zone::cleaned`].
    pub fn take_dirty(&self, regions: &Regions, board: &Board, order: usize) -> Option<(Pfn, usize)> {
        // (Looking is free.)
        if self.dirty_pages() == 0 {
            return None;
        }
        self.change(regions, board, |change| change.take_dirty(order))
    }

    /// Takes back what [`Zone::take_dirty`] gave, clean if the system really took it.
    pub fn cleaned(&self, regions: &Regions, board: &Board, first: Pfn, pages: usize, clean: bool) {
        let refused = self.change(regions, board, |change| change.put_range(first, first.add(pages), !clean));
        debug_assert_eq!(refused, 0, "freed while it was given back");
    }

    /// Takes a free run of at least `least` pages out of the zone for good, up to about `most` of it: the first, and
    /// how many. They are nobody's now, and may be dirty. Cost: a look at each block, in the lock.
    pub fn hand_over(
        &self,
        regions: &Regions,
        board: &Board,
        node: usize,
        least: usize,
        most: usize,
    ) -> Option<(Pfn, usize)> {
        if self.free_pages() < least {
            return None;
        }
        self.change(regions, board, |change| {
            let (first, pages) = change.find_run(node, least, most)?;
            change.clear_range(first, first.add(pages));
            change.opened -= pages as isize;
            Some((first, pages))
        })
    }

    /// Pages that were nobody's are the zone's from now on.
    pub fn take_over(&self, regions: &Regions, board: &Board, first: Pfn, pages: usize, clean: bool) {
        let refused = self.change(regions, board, |change| {
            change.opened += pages as isize;
            change.put_range(first, first.add(pages), !clean)
        });
        debug_assert_eq!(refused, 0, "they were the zone's already");
    }

    /// Whether a page is free in the zone (not in a list).
    #[must_use]
    pub fn is_free(&self, regions: &Regions, board: &Board, page: Pfn) -> bool {
        self.change(regions, board, |change| {
            let at = page.0 as usize % BLOCK_PAGES;
            change.block(page.block()).bits[FREE][at / 64] >> (at % 64) & 1 == 1
        })
    }

    /// Free blocks by order (`/proc/buddyinfo`). The lock is held for a block at a time.
    #[must_use]
    pub fn buddyinfo(&self, regions: &Regions, board: &Board, node: usize) -> [usize; ORDERS] {
        let mut orders = [0; ORDERS];
        let mut halves = 0;
        for number in regions.blocks_of(node) {
            let (of_block, key) = self.change(regions, board, |change| {
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
    pub fn stats(&self, regions: &Regions, board: &Board, node: usize) -> ZoneStats {
        let Watermarks { min, low, high } = self.watermarks();
        let by_order = self.buddyinfo(regions, board, node);
        let (managed, free, dirty) = (self.managed(), self.free_pages(), self.dirty_pages());
        ZoneStats { node, managed, free, dirty, min, low, high, by_order }
    }

    /// Checks the invariants; for tests.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn verify(&self, regions: &Regions, board: &Board, node: usize) {
        let counts = self.change(regions, board, |change| {
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
            for number in regions.blocks_of(node) {
                let buddy = regions.block(number ^ 1).is_some() && change.block(number ^ 1).count[FREE] == 512;
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

/// A zone while its lock is held, and how its counts are to change.
struct Change<'a> {
    state: &'a mut State,
    regions: &'a Regions,
    board: &'a Board,
    managed: usize,
    free: isize,
    dirty: isize,
    opened: isize,
    /// Clean pages that may be taken: what is dirty the heap has anyway.
    room: usize,
}

impl Change<'_> {
    fn block(&mut self, number: u32) -> &mut Block {
        let mut block = self.regions.block(number).expect("a block of a zone");
        // SAFETY: of this zone, whose lock we hold; borrowed as we are, so one at a time.
        unsafe { block.as_mut() }
    }

    /// What the heap has is to stay below `limit` bytes.
    fn limit(&mut self, limit: u64) {
        if limit < u64::MAX {
            self.room = usize::try_from(limit.saturating_sub(self.board.held())).unwrap_or(usize::MAX) / PAGE;
        }
    }

    /// Puts a block on the list of a key; dirty ones in front, where they are taken first, and of
    /// those that are dirty here and there whole ones at the end.
    fn relist(&mut self, number: u32, which: usize, key: u8) {
        let block = self.block(number);
        let (old, previous, next) = (block.key[which], block.previous[which], block.next[which]);
        let in_front = if which == FREE { block.count[DIRTY] > 0 } else { (block.count[FREE] as usize) < BLOCK_PAGES };
        block.key[which] = key;
        if old > 0 {
            let at = old as usize - 1;
            if previous == 0 {
                self.state.lists[which].first[at] = next;
            } else {
                self.block(previous).next[which] = next;
            }
            if next == 0 {
                self.state.lists[which].last[at] = previous;
            } else {
                self.block(next).previous[which] = previous;
            }
            let list = &mut self.state.lists[which];
            if list.first[at] == 0 {
                list.any &= !(1 << at);
            }
        }
        if key > 0 {
            let list = &mut self.state.lists[which];
            let at = key as usize - 1;
            list.any |= 1 << at;
            let (previous, next) = if in_front { (0, list.first[at]) } else { (list.last[at], 0) };
            if previous == 0 {
                list.first[at] = number;
            }
            if next == 0 {
                list.last[at] = number;
            }
            if previous != 0 {
                self.block(previous).next[which] = number;
            }
            if next != 0 {
                self.block(next).previous[which] = number;
            }
            let block = self.block(number);
            (block.previous[which], block.next[which]) = (previous, next);
        }
    }

    /// The largest order of the block's free pages is this now. `anew`: it became dirty or clean.
    fn rekey_free(&mut self, number: u32, largest: Option<usize>, anew: bool) {
        let old = self.block(number).key[FREE] as usize;
        let mut key = largest.map_or(0, |order| order + 1);
        if key == WHOLE + 1 {
            let buddy = number ^ 1;
            if old == PAIR + 1 {
                key = old;
            } else if self.regions.block(buddy).is_some() && self.block(buddy).key[FREE] as usize == WHOLE + 1 {
                self.relist(buddy, FREE, PAIR as u8 + 1);
                key = PAIR + 1;
            }
        } else if old == PAIR + 1 {
            self.relist(number ^ 1, FREE, WHOLE as u8 + 1);
        }
        if key != old || anew && key > 0 {
            self.relist(number, FREE, key as u8);
        }
    }
    fn rekey_dirty(&mut self, number: u32, largest: Option<usize>) {
        let key = largest.map_or(0, |order| order as u8 + 1);
        if key != self.block(number).key[DIRTY] {
            self.relist(number, DIRTY, key);
        }
    }

    /// Takes `n` pages, all free, out of the bitmaps.
    fn clear(&mut self, number: u32, pages: &Bits, n: usize) {
        let block = self.block(number);
        let mut dirty = *pages;
        for (word, dirty) in dirty.iter_mut().enumerate() {
            *dirty &= block.bits[DIRTY][word];
            block.bits[DIRTY][word] ^= *dirty;
            block.bits[FREE][word] &= !pages[word];
        }
        block.count[FREE] -= n as u16;
        let of_them = if block::is_none(&dirty) { 0 } else { block::ones(&dirty) };
        block.count[DIRTY] -= of_them as u16;
        let cleaned = of_them > 0 && block.count[DIRTY] == 0;
        let left = [block.count[FREE], block.count[DIRTY]].map(|count| count > 0);
        let [free, dirty] =
            [FREE, DIRTY].map(|which| left[which].then(|| block::largest(&block.bits[which])).flatten());
        self.free -= n as isize;
        self.dirty -= of_them as isize;
        self.rekey_free(number, free, cleaned);
        if of_them > 0 {
            self.rekey_dirty(number, dirty);
        }
    }

    /// Sets pages free; how many of them were free already, and are left as they are.
    fn put(&mut self, number: u32, pages: &Bits, dirty: bool) -> usize {
        let refused = (0..WORDS).map(|at| if pages[at] == 0 { 0 } else { self.set(number, at, pages[at], dirty) });
        let refused = refused.sum();
        let block = self.block(number);
        let largest = [FREE, DIRTY].map(|which| block::largest(&block.bits[which]));
        self.rekey(number, largest, dirty);
        refused
    }

    /// The same for some of the 64 pages of one word, which is cheaper: runs only grow, so the largest
    /// was it before or lies here.
    fn put_word(&mut self, word: u32, bits: u64, dirty: bool) -> usize {
        let (number, at) = (word / WORDS as u32, word as usize % WORDS);
        let refused = self.set(number, at, bits, dirty);
        let block = self.block(number);
        let largest = [FREE, DIRTY].map(|which| {
            let before = block.key[which] as usize;
            // (That of a pair: it is whole.)
            let here = block::largest_at(&block.bits[which], at).map_or(0, |order| order + 1);
            here.max(before).min(WHOLE + 1).checked_sub(1)
        });
        self.rekey(number, largest, dirty);
        refused
    }

    /// Sets bits of a word, and counts; how many were set already.
    fn set(&mut self, number: u32, at: usize, bits: u64, dirty: bool) -> usize {
        let block = self.block(number);
        let fresh = bits & !block.bits[FREE][at];
        let n = if fresh == u64::MAX { 64 } else { fresh.count_ones() };
        block.bits[FREE][at] |= fresh;
        block.count[FREE] += n as u16;
        if dirty {
            block.bits[DIRTY][at] |= fresh;
            block.count[DIRTY] += n as u16;
            self.dirty += n as isize;
        }
        self.free += n as isize;
        if fresh == bits { 0 } else { (bits ^ fresh).count_ones() as usize }
    }

    /// Some pages of the block became free, of which these are the largest orders now.
    fn rekey(&mut self, number: u32, [free, dirty]: [Option<usize>; 2], became_dirty: bool) {
        let block = self.block(number);
        let first = became_dirty && block.key[DIRTY] == 0 && block.count[DIRTY] > 0;
        if became_dirty {
            self.rekey_dirty(number, dirty);
        }
        self.rekey_free(number, free, first);
    }

    /// The same from one page to another.
    fn put_range(&mut self, first: Pfn, end: Pfn, dirty: bool) -> usize {
        let (mut at, end) = (first.0 as usize, end.0 as usize);
        let mut refused = 0;
        while at < end {
            let base = at & !(BLOCK_PAGES - 1);
            let to = end.min(base + BLOCK_PAGES);
            refused += self.put((base >> BLOCK_SHIFT) as u32, &block::range(at - base, to - base), dirty);
            at = to;
        }
        refused
    }

    /// The same for words of pages, block by block.
    fn put_all(&mut self, words: &[(u32, u64)], dirty: bool) -> usize {
        let mut refused = 0;
        for words in words.chunk_by(|one, next| one.0 / WORDS as u32 == next.0 / WORDS as u32) {
            if let &[(word, bits)] = words {
                refused += self.put_word(word, bits, dirty);
                continue;
            }
            let mut pages = [0; WORDS];
            for &(word, bits) in words {
                let of_word = &mut pages[word as usize % WORDS];
                refused += (*of_word & bits).count_ones() as usize;
                *of_word |= bits;
            }
            refused += self.put(words[0].0 / WORDS as u32, &pages, dirty);
        }
        refused
    }

    /// Up to `n` blocks of `order` into the batch, while it has room; how many.
    fn take(&mut self, order: usize, n: usize, batch: &mut Batch) -> usize {
        let mut got = 0;
        while got < n && !batch.is_full() {
            if order == PAIR {
                let [even, odd] = match self.state.lists[FREE].first[PAIR] & !1 {
                    0 => break,
                    even => [even, even + 1],
                };
                let dirty = self.block(even).count[DIRTY] as usize + self.block(odd).count[DIRTY] as usize;
                if 2 * BLOCK_PAGES - dirty > self.room {
                    break;
                }
                self.room -= 2 * BLOCK_PAGES - dirty;
                let clean = dirty == 0;
                batch.add(even, &[1, 0, 0, 0, 0, 0, 0, 0], clean);
                [even, odd].into_iter().for_each(|number| self.clear(number, &[u64::MAX; WORDS], BLOCK_PAGES));
                got += 1;
                continue;
            }
            // Dirty before clean; of either the smallest that suffices.
            let of =
                |list: &List| (list.any >> order != 0).then(|| order + (list.any >> order).trailing_zeros() as usize);
            let lists = &self.state.lists;
            let (which, number) = match (of(&lists[DIRTY]), of(&lists[FREE])) {
                (Some(key), _) => (DIRTY, lists[DIRTY].first[key]),
                (None, Some(key)) => (FREE, lists[FREE].first[key]),
                (None, None) => break,
            };
            let most = if which == DIRTY { n - got } else { (n - got).min(self.room >> order) };
            if most == 0 {
                break;
            }
            let block = self.block(number);
            let (starts, some) = block::pick(&block.bits[which], block.count[which] as usize, order, most);
            debug_assert!(some > 0, "a block on the wrong list");
            let pages = if order == 0 { starts } else { block::pages_of(&starts, order) };
            let clean = (0..WORDS).all(|word| block.bits[DIRTY][word] & pages[word] == 0);
            batch.add(number, &starts, clean);
            let dirty = self.dirty;
            self.clear(number, &pages, some << order);
            self.room -= (some << order) - (dirty - self.dirty) as usize;
            got += some;
        }
        got
    }

    fn take_dirty(&mut self, order: usize) -> Option<(Pfn, usize)> {
        let key = (self.state.lists[DIRTY].any.checked_ilog2()?) as usize;
        if key < order.min(WHOLE) {
            return None;
        }
        let number = self.state.lists[DIRTY].first[key];
        if key < WHOLE {
            let (at, len) = block::longest(&self.block(number).bits[DIRTY]);
            self.clear(number, &block::range(at, at + len), len);
            return Some((Pfn(number << BLOCK_SHIFT).add(at), len));
        }
        // All of a block, and of those around it.
        let same = |number: u32, other: u32| Pfn(number << BLOCK_SHIFT).same_window(Pfn(other << BLOCK_SHIFT));
        let mut whole = |other: u32| {
            same(number, other)
                && self.regions.block(other).is_some()
                && self.block(other).count[DIRTY] as usize == BLOCK_PAGES
        };
        let (mut first, mut end) = (number, number + 1);
        while ((end - first) as usize) < DIRTY_BLOCKS && whole(end) {
            end += 1;
        }
        while ((end - first) as usize) < DIRTY_BLOCKS && whole(first - 1) {
            first -= 1;
        }
        (first..end).for_each(|number| self.clear(number, &[u64::MAX; WORDS], BLOCK_PAGES));
        Some((Pfn(first << BLOCK_SHIFT), (end - first) as usize * BLOCK_PAGES))
    }

    /// The first free run of at least `least` pages, across blocks, up to about `most` of it.
    fn find_run(&mut self, node: usize, least: usize, most: usize) -> Option<(Pfn, usize)> {
        let regions = self.regions;
        let (mut first, mut len) = (Pfn::NONE, 0);
        for number in regions.blocks_of(node) {
            let begin = Pfn(number << BLOCK_SHIFT);
            if first.add(len) != begin || !first.same_window(begin) {
                len = 0;
            }
            let (bits, mut at) = (self.block(number).bits[FREE], 0);
            while at < BLOCK_PAGES {
                let ahead = bits[at / 64] >> (at % 64);
                let left = 64 - at % 64;
                if ahead & 1 == 0 {
                    if len >= least {
                        return Some((first, len));
                    }
                    len = 0;
                    at += (ahead.trailing_zeros() as usize).min(left);
                    continue;
                }
                if len == 0 {
                    first = begin.add(at);
                }
                let more = (ahead.trailing_ones() as usize).min(left);
                (len, at) = (len + more, at + more);
                if len >= most.max(least) {
                    return Some((first, len));
                }
            }
        }
        (len >= least).then_some((first, len))
    }

    /// Takes free pages out of the bitmaps.
    fn clear_range(&mut self, first: Pfn, end: Pfn) {
        let (mut at, end) = (first.0 as usize, end.0 as usize);
        while at < end {
            let base = at & !(BLOCK_PAGES - 1);
            let to = end.min(base + BLOCK_PAGES);
            self.clear((base >> BLOCK_SHIFT) as u32, &block::range(at - base, to - base), to - at);
            at = to;
        }
    }

    /// Maps more memory; false when the system refuses.
    fn grow(&mut self, node: usize, bind: bool, order: usize) -> bool {
        let (regions, board, newest, want) = (
            self.regions,
            self.board,
            self.state.newest,
            region::step(self.managed.saturating_add_signed(self.opened)),
        );
        let longer = (newest != Pfn::NONE).then(|| {
            let end = regions.end(newest).0 as usize;
            let need = end.next_multiple_of(1 << order) - end + (1 << order);
            regions.extend(board, newest, need, want)
        });
        let fresh = longer.flatten().or_else(|| regions.reserve(board, Owner::Zone(node), 1 << order, want));
        let Some((first, pages)) = fresh else { return false };
        self.state.newest = first;
        if bind {
            sys::bind(regions.address(first), pages * PAGE, node);
        }
        self.opened += pages as isize;
        self.put_range(first, first.add(pages), false);
        true
    }
}
