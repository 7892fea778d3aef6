//! # Page numbers
//!
//! A page has a number in the heap, whatever its address: windows of 1 GiB, each with 2¹⁸ of them. Units: pages, blocks of
//! 512. Cost: shifts.

use super::block::BLOCK_SHIFT;
use crate::arch::PAGE;

/// log2 of a window's bytes.
pub const WINDOW_SHIFT: u32 = 30;

/// Bytes of a window.
pub const WINDOW: usize = 1 << WINDOW_SHIFT;

/// Pages of a window.
pub const WINDOW_PAGES: usize = WINDOW / PAGE;

/// Windows there can be: 16 TiB of heap.
pub const WINDOWS: usize = 1 << 14;

/// A page's number in the heap: window number × 2¹⁸ + page in window. 0 is never
/// handed out (window 0 is not used) and serves as "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pfn(pub u32);

impl Pfn {
    /// No page.
    pub const NONE: Self = Self(0);
    /// The page `pages` further on.
    #[must_use]
    pub const fn add(self, pages: usize) -> Self {
        Self(self.0 + pages as u32)
    }
    /// Whether both lie in one window: page numbers follow each other across windows, addresses need not.
    #[must_use]
    pub const fn same_window(self, other: Self) -> bool {
        self.window() == other.window()
    }
    pub(super) const fn window(self) -> usize {
        self.0 as usize / WINDOW_PAGES
    }
    pub(super) const fn page(self) -> usize {
        self.0 as usize % WINDOW_PAGES
    }
    /// The block that it is in: numbers of blocks, too, go on from window to window.
    #[must_use]
    pub const fn block(self) -> u32 {
        self.0 >> BLOCK_SHIFT
    }
}

/// Calls for each bit that is set, from the lowest on.
#[inline(always)]
pub fn each(bits: u64, mut body: impl FnMut(usize)) {
    if bits == u64::MAX {
        return (0..64).for_each(body);
    }
    let mut left = bits;
    while left != 0 {
        body(left.trailing_zeros() as usize);
        left &= left - 1;
    }
}
