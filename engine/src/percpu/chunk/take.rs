//! # Searches: where an allocation goes
//!
//! First fit from the cursor of its size and alignment, by words that reach far enough; what a search finds out it writes
//! into the bounds. Two others look at the bitmap alone: in populated pages, and in the reserved region.
//!
//! Locks: the chunk's. Cost: see [`super`].

use super::{Body, KEYS, NO_RUN, PAGE_BITS, PAGES, REACH, WORDS, bit, pages, parts};
use crate::arch::atomic::Ordering::Relaxed;
use crate::percpu::bitmap::{self, GRANULE_SHIFT, WORD_BITS};
use crate::percpu::taken::Taken;
use crate::percpu::totals::Totals;
use crate::percpu::units::UNIT;
use core::ops::Range;

/// The first word from `from` on that reaches `least`, which is not 0.
#[inline]
pub(super) fn next_reach(reach: &[u8; WORDS as usize], from: usize, least: u8) -> Option<usize> {
    const BLOCK: usize = 64;
    const GROUP: usize = 8;
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Vector instructions.
    let any = |block: &[u8; BLOCK]| block.iter().fold(0, |any, byte| any | byte.saturating_sub(least - 1)) != 0;
    // 0x80 for each byte that does. The low seven bits are compared by an add that cannot carry;
    // they decide alone if `least` has no eighth bit, and together with that if it has.
    let add = ONES * (0x80 - u64::from(least & 0x7f));
    let either = if least < 0x80 { u64::MAX } else { 0 };
    let each = |group: &[u8; GROUP]| {
        let high = u64::from_le_bytes(*group);
        let low = (high & !(ONES << 7)) + add;
        (high & low | (high | low) & either) & (ONES << 7)
    };
    let groups = reach.as_chunks::<GROUP>().0;
    let mut group = from / GROUP;
    let mut found = each(groups.get(group)?) & u64::MAX << (from % GROUP * 8);
    while found == 0 {
        group += 1;
        if group.is_multiple_of(BLOCK / GROUP) {
            let blocks = &reach.as_chunks::<BLOCK>().0[group / (BLOCK / GROUP)..];
            group += blocks.iter().position(any)? * (BLOCK / GROUP);
        }
        found = each(groups.get(group)?);
    }
    Some(group * GROUP + (found.trailing_zeros() / 8) as usize)
}

/// Where a key's cursor is kept.
#[inline]
pub(super) fn place(n: u32, mask: u32) -> usize {
    (n.wrapping_mul(0x9E37_79B1) ^ mask.wrapping_mul(0x85EB_CA6B)) as usize >> 28 & (KEYS - 1)
}

impl Body {
    /// Allocates `n` granules at a multiple of `mask + 1`, first fit.
    #[inline]
    pub fn take(&mut self, n: u32, mask: u32, totals: &Totals) -> Option<Taken> {
        let key = place(n, mask);
        let known = self.sizes[key] == (n - 1) as u16 && self.masks[key] == mask as u16;
        let at = u32::from(if known { self.cursors[key] } else { self.rover });
        // Nothing begins in a word that is full: on to the next.
        let at = (at + u32::from(self.words[at as usize].alloc == u64::MAX)).min(WORDS);
        if n <= WORD_BITS {
            let fits = bitmap::runs(!self.words[at as usize].alloc, n) & bitmap::aligned(at, mask);
            if fits != 0 {
                *(if known { &mut self.cursors[key] } else { &mut self.rover }) = at as u16;
                return self.commit(at * WORD_BITS + fits.trailing_zeros(), n, totals);
            }
        }
        let start = if known { self.search(n, mask, key) } else { self.search_anew(n, mask, key) }?;
        self.commit(start, n, totals)
    }

    /// From the key's cursor on.
    #[inline(never)]
    fn search(&mut self, n: u32, mask: u32, key: usize) -> Option<u32> {
        let start = self.search_in(u32::from(self.cursors[key])..WORDS, n, mask);
        self.cursors[key] = start.map_or(WORDS, |start| start / WORD_BITS) as u16;
        if start.is_none() {
            self.lower(n, mask);
        }
        start
    }

    /// From the rover on, and around; a key that is asked for again gets its cursor.
    #[inline(never)]
    fn search_anew(&mut self, n: u32, mask: u32, key: usize) -> Option<u32> {
        let floor = self.reserved / WORD_BITS;
        (self.sizes[key], self.masks[key], self.cursors[key]) = ((n - 1) as u16, mask as u16, floor as u16);
        let rover = u32::from(self.rover);
        let start = self.search_in(rover..WORDS, n, mask).or_else(|| self.search_in(floor..rover, n, mask));
        match start {
            Some(start) => self.rover = (start / WORD_BITS) as u16,
            None => {
                self.cursors[key] = WORDS as u16;
                self.lower(n, mask);
            }
        }
        start
    }

    /// The lowest fit that begins in some words; what has none there gets its true reach.
    #[inline]
    fn search_in(&mut self, words: Range<u32>, n: u32, mask: u32) -> Option<u32> {
        if n > self.contig() {
            return None;
        }
        let mut at = words.start;
        let least = n.min(REACH) as u8;
        while let Some(word) = next_reach(&self.reach, at as usize, least).filter(|&word| (word as u32) < words.end) {
            at = word as u32;
            match bitmap::look(&self.words, at, n, mask) {
                Ok(start) => return Some(start),
                Err(next) => {
                    self.run = NO_RUN;
                    self.reach[word] = bitmap::longest(&self.words, at, REACH).min(REACH) as u8;
                    at = next;
                }
            }
        }
        None
    }

    /// Nothing fits in the whole chunk.
    #[cold]
    fn lower(&mut self, n: u32, mask: u32) {
        let most = u32::from(self.reach.iter().fold(0, |most, &reach| most.max(reach)));
        let most = if most == REACH { self.contig_hint } else { most };
        // Without alignment a longer run would have been a fit.
        self.contig_hint = self.contig_hint.min(if mask == 0 { most.min(n - 1) } else { most });
    }

    /// Takes `[start, start + n)`, which is free.
    #[inline]
    fn commit(&mut self, start: u32, n: u32, totals: &Totals) -> Option<Taken> {
        bitmap::set(&mut self.words, start, n);
        self.run = NO_RUN;
        if n >= WORD_BITS {
            // Words that are full now need no look that finds it out.
            let full = start.div_ceil(WORD_BITS)..(start + n) / WORD_BITS;
            self.reach[full.start as usize..full.end.max(full.start) as usize].fill(0);
        }
        let page = start / PAGE_BITS;
        let mut low = false;
        if (start + n) / PAGE_BITS == page {
            if self.used[page as usize] == 0 {
                low = self.enter_page(page, totals);
            }
            self.used[page as usize] += n as u16;
        } else {
            low = self.commit_pages(start, n, totals);
        }
        self.free -= if start >= self.reserved { n } else { 0 };
        let dirty = self.dirty & pages(start, start + n);
        self.count(1, totals);
        self.allocs += 1;
        Taken::new(self.base + ((start as usize) << GRANULE_SHIFT), dirty, low)
    }

    /// The part of [`Body::commit`] for what ends at a page's end or crosses it.
    #[cold]
    #[inline(never)]
    fn commit_pages(&mut self, start: u32, n: u32, totals: &Totals) -> bool {
        let mut low = false;
        for (page, part) in parts(start, start + n) {
            if self.used[page as usize] == 0 {
                low |= self.enter_page(page, totals);
            }
            self.used[page as usize] += part as u16;
        }
        low
    }

    /// The first allocation in an empty page; whether too few others are empty and populated.
    #[inline]
    fn enter_page(&mut self, page: u32, totals: &Totals) -> bool {
        if self.populated & bit(page) == 0 {
            // The system fills it when it is touched.
            self.populated |= bit(page);
        } else if page >= self.reserved / PAGE_BITS {
            self.empty -= 1;
            totals.empty().fetch_sub(1, Relaxed);
        }
        // Relaxed: hints when to look.
        let least = totals.empty_least.load(Relaxed);
        least != 0 && totals.empty().load(Relaxed) < least
    }

    /// Allocates `n` granules at this address, if they are free.
    #[inline]
    pub fn take_at(&mut self, address: usize, n: u32, totals: &Totals) -> Option<Taken> {
        let offset = address.wrapping_sub(self.base);
        if offset >= UNIT || self.base == 0 {
            return None;
        }
        let start = (offset >> GRANULE_SHIFT) as u32;
        if start < self.reserved || !bitmap::is_free(&self.words, start, n) {
            return None;
        }
        self.commit(start, n, totals)
    }

    /// Allocates in pages that are populated only, first fit; no bound is used or changed.
    #[cold]
    pub fn take_populated(&mut self, n: u32, mask: u32, totals: &Totals) -> Option<Taken> {
        if n > self.contig() {
            return None;
        }
        let mut page = self.reserved / PAGE_BITS;
        while page < PAGES {
            let mut end = page;
            while end < PAGES && self.populated & bit(end) != 0 {
                end += 1;
            }
            if let Some(start) = self.scan(page * PAGE_BITS, end * PAGE_BITS, n, mask) {
                return self.commit(start, n, totals);
            }
            page = end + 1;
        }
        None
    }

    /// Allocates in the reserved region, first fit.
    #[cold]
    pub fn take_reserved(&mut self, n: u32, mask: u32, totals: &Totals) -> Option<Taken> {
        let start = self.scan(0, self.reserved, n, mask)?;
        self.commit(start, n, totals)
    }

    /// The lowest fit in `[from, to)`, which are pages' edges.
    fn scan(&self, from: u32, to: u32, n: u32, mask: u32) -> Option<u32> {
        let mut at = from / WORD_BITS;
        while at < to / WORD_BITS {
            match bitmap::look(&self.words, at, n, mask) {
                // A later one ends later.
                Ok(start) => return (start + n <= to).then_some(start),
                Err(next) => at = next,
            }
        }
        None
    }
}
