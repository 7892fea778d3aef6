//! # Frees: what a granule's end of life changes
//!
//! The allocation that begins at an address, by both bitmaps, and why there is none; its release, and the bounds that the
//! free run around it makes wrong. Locks: the chunk's. Cost: see [`super`].

use super::{After, BITS, Body, GRANULE, KEYS, NO_SLOT, PAGE_BITS, PARK_MOST, REACH, bit, parts};
use crate::arch::atomic::Ordering::Relaxed;
use crate::percpu::bitmap::{self, FAR, GRANULE_SHIFT, WORD_BITS};
use crate::percpu::totals::Totals;
use crate::percpu::units::UNIT;
use crate::stat::BadPointer;

impl Body {
    /// The live allocation that begins at this address of unit 0.
    ///
    /// # Errors
    /// [`BadPointer`]: there is none.
    #[inline]
    pub fn find(&self, address: usize) -> Result<(u32, u32), BadPointer> {
        let offset = address.wrapping_sub(self.base);
        if offset >= UNIT || self.base == 0 {
            return Err(BadPointer::Foreign);
        }
        let start = (offset >> GRANULE_SHIFT) as u32;
        let word = self.words[(start / WORD_BITS) as usize];
        let at = start % WORD_BITS;
        if (word.alloc & word.bound) >> at & 1 == 0 || !offset.is_multiple_of(GRANULE) {
            return Err(self.why_not(start));
        }
        let end = bitmap::end(&self.words, start);
        if self.kept != 0 && end - start <= PARK_MOST && self.is_parked(start, end - start) {
            return Err(BadPointer::Double);
        }
        Ok((start, end))
    }

    /// Why nothing live begins here.
    #[cold]
    fn why_not(&self, start: u32) -> BadPointer {
        let word = self.words[(start / WORD_BITS) as usize];
        let parked = self.parked().any(|(begin, end)| (begin..end).contains(&start));
        if word.alloc >> (start % WORD_BITS) & 1 == 0 || parked { BadPointer::Double } else { BadPointer::Interior }
    }

    /// Frees a live allocation.
    #[inline]
    pub fn give(&mut self, start: u32, end: u32, totals: &Totals) -> After {
        self.count(-1, totals);
        let mut after = self.release(start, end, totals);
        if self.live == 0 && self.kept != 0 {
            after.balance |= self.free_parked(totals);
        }
        after.relocate |= self.live == 0 && self.slot != NO_SLOT;
        after
    }

    /// Frees `[start, end)`, which is not counted.
    #[inline]
    pub(super) fn release(&mut self, start: u32, end: u32, totals: &Totals) -> After {
        bitmap::clear(&mut self.words, start, end);
        let page = start / PAGE_BITS;
        let mut after = After::default();
        if end / PAGE_BITS == page {
            self.used[page as usize] -= (end - start) as u16;
            self.dirty |= bit(page);
            if self.used[page as usize] == 0 {
                after.balance = self.leave_page(page, totals);
            }
        } else {
            after.balance = self.give_pages(start, end, totals);
        }
        if start >= self.reserved {
            self.free += end - start;
            let (from, n) = self.raise(start, end);
            after.hole = (self.base + ((from as usize) << GRANULE_SHIFT), n);
            after.relocate = self.contig_hint >= self.raise_at;
        }
        after
    }

    /// Raises every bound that the free run around `[start, end)` makes wrong.
    #[inline]
    fn raise(&mut self, start: u32, end: u32) -> (u32, u32) {
        // Frees in order go on where the last one ended.
        let (begin, end_before) = self.run;
        let on = start == end_before;
        let from = if on {
            begin.max(start.saturating_sub(FAR))
        } else {
            bitmap::free_from(&self.words, start, self.reserved)
        };
        let to = if end == begin { end_before.min(end + FAR) } else { bitmap::free_to(&self.words, end) };
        // Words further left reached all of 255 before; runs that begin right of `end` are as
        // they were. A run that grows in order reaches 255 at once, so that its words are not
        // raised again and again.
        let nearest = if on & self.growing { start } else { from.max(start.saturating_sub(REACH)) };
        let behind = if on { to } else { end };
        for word in nearest / WORD_BITS..=(behind - 1) / WORD_BITS {
            let reach = &mut self.reach[word as usize];
            let run = if on { REACH } else { to - nearest.max(word * WORD_BITS) };
            *reach = (*reach).max(run.min(REACH) as u8);
        }
        (self.run, self.growing) = ((from, to), on);
        self.rover = (from / WORD_BITS) as u16;
        let (left, right) = (start - from >= FAR, to - end >= FAR);
        let hole = (from, if left | right { 0 } else { to - from });
        self.contig_hint = self.contig_hint.max(if left | right { self.free } else { to - from });
        // A fit that was none before begins at most its size before `start`, in the run. All of
        // it in 16 bits, saturating: an error at the chunk's end lowers a cursor for nothing.
        let from = if left { self.reserved } else { from } as u16;
        let last = if right { BITS - 1 } else { to - 1 } as u16;
        let start = start as u16;
        for key in 0..KEYS {
            let lowest = from.max(start.saturating_sub(self.sizes[key]));
            let lowest = lowest.saturating_add(self.masks[key]) & !self.masks[key];
            let fits = last.saturating_sub(lowest) >= self.sizes[key];
            let cursor = if fits { lowest / WORD_BITS as u16 } else { u16::MAX };
            self.cursors[key] = self.cursors[key].min(cursor);
        }
        hole
    }

    /// The part of [`Body::give`] for what ends at a page's end or crosses it.
    #[cold]
    #[inline(never)]
    fn give_pages(&mut self, start: u32, end: u32, totals: &Totals) -> bool {
        let mut balance = false;
        for (page, part) in parts(start, end) {
            self.used[page as usize] -= part as u16;
            self.dirty |= bit(page);
            if self.used[page as usize] == 0 {
                balance |= self.leave_page(page, totals);
            }
        }
        balance
    }

    /// The last allocation of a page has gone; whether too many are empty.
    #[inline]
    fn leave_page(&mut self, page: u32, totals: &Totals) -> bool {
        if page < self.reserved / PAGE_BITS {
            return false;
        }
        self.empty += 1;
        // Relaxed: a hint when to look.
        totals.empty().fetch_add(1, Relaxed) >= totals.empty_most.load(Relaxed)
    }
}
