//! Every claim of the chunk's table, by linear scans.
#![allow(clippy::unwrap_used)]

extern crate std;

use super::{BITS, Body, KEYS, NO_RUN, PAGE_BITS, PAGES, REACH, WORDS, bit};
use crate::percpu::bitmap::{self, WORD_BITS};
use std::vec::Vec;

impl Body {
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
