//! Every claim of the chunk's table, by linear scans.
#![allow(clippy::unwrap_used)]

extern crate std;

use super::take::{next_reach, place};
use super::{BITS, Body, GRANULE, KEYS, NO_RUN, PAGE_BITS, PAGES, REACH, WORDS, bit, pages, parts};
use crate::percpu::bitmap::{self, WORD_BITS};
use crate::percpu::taken::Taken;
use crate::percpu::totals::Totals;
use std::vec::Vec;

impl Body {
    /// The address of a granule.
    pub fn address(&self, granule: u32) -> usize {
        self.base + granule as usize * GRANULE
    }
    /// Allocates `n` free granules from a place on.
    pub fn put(&mut self, start: u32, n: u32, totals: &Totals) {
        assert!(self.take_at(self.address(start), n, totals).is_some(), "{start} is not free");
    }
    /// The granule where an allocation begins.
    pub fn granule(&self, taken: Taken) -> u32 {
        ((taken.address() - self.base) / GRANULE) as u32
    }
    /// What is live, by both bitmaps: start, and granules.
    pub fn live(&self) -> Vec<(u32, u32)> {
        self.live_from(0).map(|(start, end)| (start, end - start)).collect()
    }
    /// The cursor of a size and alignment, if it has one.
    pub fn cursor(&self, n: u32, mask: u32) -> Option<u32> {
        let key = place(n, mask);
        let known = (self.sizes[key], self.masks[key]) == ((n - 1) as u16, mask as u16);
        known.then(|| u32::from(self.cursors[key]))
    }
    /// Where a key's cursor is kept.
    pub fn place(n: u32, mask: u32) -> usize {
        place(n, mask)
    }
    /// Where what has no cursor is looked for first, and the free run around the last free.
    pub fn rover(&self) -> (u32, (u32, u32)) {
        (u32::from(self.rover), self.run)
    }
    /// Bounds of free runs by the words that they begin in.
    pub fn reach(&mut self) -> &mut [u8] {
        &mut self.reach
    }
    /// The first word from `from` on that reaches `least`, of such bounds.
    pub fn next_reach(reach: &[u8], from: usize, least: u8) -> Option<usize> {
        next_reach(reach.try_into().unwrap(), from, least)
    }
    /// Pages that a range touches, and how much of each.
    pub fn pages(start: u32, end: u32) -> (u64, Vec<(u32, u32)>) {
        (pages(start, end), parts(start, end).collect())
    }
    /// Places of what is parked.
    pub fn kept(&self) -> u16 {
        self.kept
    }
    /// `live` when it was last added to the space's.
    pub fn folded(&self) -> u32 {
        self.folded
    }

    /// Every claim of the module's table, by a linear scan; `live` allocations as (start, granules).
    pub fn verify(&self, live: &[(u32, u32)]) {
        let taken: Vec<bool> = (0..BITS).map(|at| self.words[(at / 64) as usize].alloc >> (at % 64) & 1 == 1).collect();
        assert!(self.kept == 0 || self.live != 0, "a chunk that may go keeps something");
        let parked = self.parked().map(|(start, end)| (start, end - start));
        let all: Vec<(u32, u32)> = live.iter().copied().chain(parked).collect();
        let mut count = 0;
        for &(start, n) in &all {
            assert!(taken[start as usize..(start + n) as usize].iter().all(|taken| *taken), "lost bits");
            assert_eq!(bitmap::end(&self.words, start), start + n, "length of {start}");
            count += n;
        }
        assert_eq!(taken.iter().filter(|taken| **taken).count() as u32, count, "leaked bits");
        assert_eq!(self.live as usize, live.len());
        let outside: u32 = all.iter().filter(|(start, _)| *start >= self.reserved).map(|(_, n)| n).sum();
        assert_eq!(self.free, BITS - self.reserved - outside);
        for page in 0..PAGES {
            let bits = &taken[(page * PAGE_BITS) as usize..((page + 1) * PAGE_BITS) as usize];
            assert_eq!(u32::from(self.used[page as usize]), bits.iter().filter(|taken| **taken).count() as u32);
            assert!(self.used[page as usize] == 0 || self.populated & bit(page) != 0);
        }
        assert_eq!(self.empty, self.empty_pages().count_ones());
        let bare = (self.reserved / PAGE_BITS..PAGES).filter(|&page| self.used[page as usize] == 0);
        let bare = bare.filter(|&page| self.populated & bit(page) == 0).map(bit).sum::<u64>();
        assert_eq!(self.bare_pages(), bare);
        // Free runs by where they begin.
        let mut run = std::vec![0_u32; BITS as usize + 1];
        for at in (self.reserved..BITS).rev() {
            run[at as usize] = if taken[at as usize] { 0 } else { run[at as usize + 1] + 1 };
        }
        let longest = run.iter().copied().max().unwrap();
        assert!(self.contig() >= longest, "hint {} below the longest run {longest}", self.contig());
        for word in self.reserved / WORD_BITS..WORDS {
            let longest = (word * 64..word * 64 + 64).map(|at| run[at as usize]).max().unwrap();
            assert!(u32::from(self.reach[word as usize]) >= longest.min(REACH), "reach of {word}");
        }
        for key in 0..KEYS {
            let (n, mask) = (u32::from(self.sizes[key]) + 1, u32::from(self.masks[key]));
            let below = u32::from(self.cursors[key]).min(WORDS) * WORD_BITS;
            let fit = (0..below).filter(|at| at & mask == 0).find(|&at| run[at as usize] >= n);
            assert_eq!(fit, None, "{n} at {mask:#x} fits below its cursor {below}");
        }
        let (from, to) = self.run;
        assert!(from > to || self.run == NO_RUN || run[from as usize] >= to - from, "remembered run");
    }

    /// Whether nothing is parked.
    pub fn keeps_nothing(&self) -> bool {
        self.kept == 0
    }

    /// Whether `n` granules fit anywhere, by a linear scan.
    pub fn fits(&self, n: u32, mask: u32) -> bool {
        let mut at = self.reserved;
        while at + n <= BITS {
            let start = (at + mask) & !mask;
            match (start..(start + n).min(BITS))
                .rev()
                .find(|at| self.words[(at / 64) as usize].alloc >> (at % 64) & 1 == 1)
            {
                Some(taken) => at = taken + 1,
                None => return start + n <= BITS,
            }
        }
        false
    }
}
