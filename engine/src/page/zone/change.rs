//! # A zone while its lock is held
//!
//! The lists of blocks by key, and every change of a block's bits: what is taken, what is put back, which key that makes.
//! Counts are gathered here and told when the change is over. Units: pages, blocks by number. Invariants: see
//! [`super`]. Locks: the zone's, held by who made the [`Change`]. Cost: some ten instructions a word.
#![allow(unsafe_code)] // blocks, by number

use crate::arch::{PAGE, sys};
use crate::page::batch::Batch;
use crate::page::block::{self, BLOCK_PAGES, BLOCK_SHIFT, Bits, Block, DIRTY, FREE, ORDERS, WORDS};
use crate::page::pfn::Pfn;
use crate::page::window::Owner;
use crate::page::windows::{self, Windows};
use crate::stat::Board;

/// The order of a pair of blocks.
pub(super) const PAIR: usize = ORDERS - 1;

/// The order of a block.
pub(super) const WHOLE: usize = BLOCK_SHIFT as usize;

/// Blocks that [`Change::take_dirty`] gives at once, at most: 8 MiB.
const DIRTY_BLOCKS: usize = 4;

/// How a zone grows.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Whose zone it is.
    pub node: usize,
    /// New memory is bound to this node: there are others, and the process filters no system calls.
    pub bind: bool,
    /// Pages of a zone from which on it asks for huge ones for what it grows by.
    pub huge: usize,
}

#[derive(Debug)]
pub(super) struct State {
    /// By [`FREE`] and [`DIRTY`].
    pub(super) lists: [List; 2],
    /// A page of the newest window.
    pub(super) newest: Pfn,
}

/// Blocks by key: first and last of each list, and which lists have any.
#[derive(Debug)]
pub(super) struct List {
    pub(super) first: [u32; ORDERS],
    pub(super) last: [u32; ORDERS],
    pub(super) any: u32,
}

impl State {
    /// Nothing; zero bytes.
    pub(super) const fn new() -> Self {
        const EMPTY: List = List { first: [0; ORDERS], last: [0; ORDERS], any: 0 };
        Self { lists: [EMPTY; 2], newest: Pfn::NONE }
    }
}

/// A zone while its lock is held, and how its counts are to change.
pub(super) struct Change<'a> {
    pub(super) state: &'a mut State,
    pub(super) windows: &'a Windows,
    pub(super) board: &'a Board,
    pub(super) managed: usize,
    pub(super) free: isize,
    pub(super) dirty: isize,
    pub(super) opened: isize,
    /// Clean pages that may be taken: what is dirty the heap has anyway.
    pub(super) room: usize,
}

impl Change<'_> {
    pub(super) fn block(&mut self, number: u32) -> &mut Block {
        let mut block = self.windows.block(number).expect("a block of a zone");
        // SAFETY: of this zone, whose lock we hold; borrowed as we are, so one at a time.
        unsafe { block.as_mut() }
    }

    /// What the heap has is to stay below `limit` bytes.
    pub(super) fn limit(&mut self, limit: u64) {
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
            } else if self.windows.block(buddy).is_some() && self.block(buddy).key[FREE] as usize == WHOLE + 1 {
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
    pub(super) fn put_range(&mut self, first: Pfn, end: Pfn, dirty: bool) -> usize {
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
    pub(super) fn put_all(&mut self, words: &[(u32, u64)], dirty: bool) -> usize {
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

    /// Whether a block of that order is dirty.
    pub(super) fn has_dirty(&self, order: usize) -> bool {
        self.state.lists[DIRTY].any >> order != 0
    }
    /// Whether one is free, and what [`Change::take`] would take, if none is dirty, asks for no huge page.
    pub(super) fn has_small(&self, order: usize) -> bool {
        let list = &self.state.lists[FREE];
        let at = list.any >> order;
        at != 0 && !self.windows.is_huge(list.first[order + at.trailing_zeros() as usize])
    }

    /// Up to `n` blocks of `order` into the batch, while it has room; how many.
    pub(super) fn take(&mut self, order: usize, n: usize, batch: &mut Batch) -> usize {
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
            if which == FREE && order < WHOLE && self.fault_in(number) {
                continue;
            }
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

    /// Before the first page of a block of huge ones is touched, with which all of them are resident: they are dirty from now
    /// on; whether that is so.
    fn fault_in(&mut self, number: u32) -> bool {
        let block = self.block(number);
        if block.count[FREE] as usize != BLOCK_PAGES || block.count[DIRTY] > 0 || !self.windows.is_huge(number) {
            return false;
        }
        let block = self.block(number);
        block.bits[DIRTY] = [u64::MAX; WORDS];
        block.count[DIRTY] = BLOCK_PAGES as u16;
        self.dirty += BLOCK_PAGES as isize;
        self.room = self.room.saturating_sub(BLOCK_PAGES);
        self.rekey(number, [Some(WHOLE); 2], true);
        true
    }

    /// See `Zone::take_dirty`.
    pub(super) fn take_dirty(&mut self, order: usize) -> Option<(Pfn, usize)> {
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
                && self.windows.block(other).is_some()
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

    /// The first free run of at least `least` pages that is `wanted`, across blocks, up to `most` of it (but `least`).
    pub(super) fn find_run(
        &mut self,
        node: usize,
        least: usize,
        most: usize,
        wanted: impl Fn(Pfn, usize) -> bool,
    ) -> Option<(Pfn, usize)> {
        let windows = self.windows;
        let most = most.max(least);
        let (mut first, mut len) = (Pfn::NONE, 0);
        for number in windows.blocks_of(node) {
            let begin = Pfn(number << BLOCK_SHIFT);
            if first.add(len) != begin || !first.same_window(begin) {
                len = 0;
            }
            let (bits, mut at) = (self.block(number).bits[FREE], 0);
            while at < BLOCK_PAGES {
                let ahead = bits[at / 64] >> (at % 64);
                let left = 64 - at % 64;
                if ahead & 1 == 0 {
                    if len >= least && wanted(first, len) {
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
                if len >= most && wanted(first, most) {
                    return Some((first, most));
                }
            }
        }
        (len >= least && wanted(first, len)).then_some((first, len))
    }

    /// Takes free pages out of the bitmaps.
    pub(super) fn clear_range(&mut self, first: Pfn, end: Pfn) {
        let (mut at, end) = (first.0 as usize, end.0 as usize);
        while at < end {
            let base = at & !(BLOCK_PAGES - 1);
            let to = end.min(base + BLOCK_PAGES);
            self.clear((base >> BLOCK_SHIFT) as u32, &block::range(at - base, to - base), to - at);
            at = to;
        }
    }

    /// Maps more memory; false when the system refuses.
    pub(super) fn grow(&mut self, Growth { node, bind, huge }: Growth, order: usize) -> bool {
        let (windows, board, newest) = (self.windows, self.board, self.state.newest);
        let have = self.managed.saturating_add_signed(self.opened);
        let want = windows::step(have);
        let longer = (newest != Pfn::NONE).then(|| {
            let end = windows.end(newest).0 as usize;
            let need = end.next_multiple_of(1 << order) - end + (1 << order);
            windows.extend(board, newest, need, want)
        });
        let fresh = longer.flatten().or_else(|| windows.reserve(board, Owner::Zone(node), 1 << order, want));
        let Some((first, pages)) = fresh else { return false };
        self.state.newest = first;
        if bind {
            sys::bind(windows.address(first), pages * PAGE, node);
        }
        if have >= huge {
            windows.make_huge(board, first, pages);
        }
        self.opened += pages as isize;
        self.put_range(first, first.add(pages), false);
        true
    }
}
