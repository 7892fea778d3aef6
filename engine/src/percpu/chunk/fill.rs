//! # Which pages are filled
//!
//! What the system has filled or taken back, and what may be asked of it: empty pages go back, bare ones can be filled
//! for those who must not call it. Units: pages, as bits. Locks: the chunk's. Cost: a look at each page's count; a system
//! call for each run of pages in each unit.

use super::{Body, PAGE_BITS, PAGES, bit};
use crate::arch::atomic::Ordering::Relaxed;
use crate::percpu::totals::Totals;

impl Body {
    /// Pages that are empty and populated.
    pub fn empty_pages(&self) -> u64 {
        self.unused_pages() & self.populated
    }

    /// Pages that are empty and not populated.
    pub fn bare_pages(&self) -> u64 {
        self.unused_pages() & !self.populated
    }

    /// Pages without an allocation, but for the reserved region's.
    fn unused_pages(&self) -> u64 {
        let pages = self.reserved / PAGE_BITS..PAGES;
        pages.filter(|&page| self.used[page as usize] == 0).fold(0, |mask, page| mask | bit(page))
    }

    /// The system took these empty pages back; `clean` says whether all of them are zero now.
    pub fn depopulated(&mut self, pages: u64, clean: bool, totals: &Totals) {
        if clean {
            self.populated &= !pages;
            self.dirty &= !pages;
            self.empty -= pages.count_ones();
            totals.empty().fetch_sub(pages.count_ones() as isize, Relaxed);
        }
    }

    /// The system filled these empty pages.
    pub fn repopulated(&mut self, pages: u64, totals: &Totals) {
        self.populated |= pages;
        self.empty += pages.count_ones();
        totals.empty().fetch_add(pages.count_ones() as isize, Relaxed);
    }
}
