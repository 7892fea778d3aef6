//! # Lists of areas by exact size
//!
//! ```text
//! bits: which lists have something │ heads[64] ──► area ──► area ──► …
//!                                    list = pages mod 64, linked through descriptors
//! ```
//! For areas that merge with nothing: with a guard page, or moved by page tables.
//!
//! Units: pages. Invariant: an area is on one list or in one hand; a bit is set exactly while its list has
//! something. Locks: the space's, but for a look. Cost: a few loads for each area looked at.

use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicU32, AtomicU64};
use crate::page::{Kind, Pfn, Windows};

/// Sizes that differ by this many pages share one.
pub const LISTS: usize = 64;
/// Areas of a list looked at for one of the right size, alignment and kind.
const LOOKS: usize = 16;
/// Lists of lazily freed areas. Atomics only because others peek; whoever changes them has the lock.
#[derive(Debug)]
pub struct Lists {
    bits: AtomicU64,
    heads: [AtomicU32; LISTS],
    /// Areas here.
    count: AtomicU32,
}

/// What an allocation wants.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Exactly so many pages.
    pub pages: usize,
    /// Aligned to so many.
    pub align: usize,
    /// With these of the bits `mask` in the descriptor's rest.
    pub flags: u32,
    /// See `flags`.
    pub mask: u32,
}

impl Default for Lists {
    fn default() -> Self {
        Self::new()
    }
}

impl Lists {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self { bits: AtomicU64::new(0), heads: [const { AtomicU32::new(0) }; LISTS], count: AtomicU32::new(0) }
    }

    /// Whether the list of that size has something; a look without the lock, which may be out of date.
    #[inline]
    pub fn may_have(&self, pages: usize) -> bool {
        self.bits.load(Relaxed) >> (pages % LISTS) & 1 != 0
    }

    /// Whether there is anything; likewise.
    pub fn is_empty(&self) -> bool {
        self.bits.load(Relaxed) == 0
    }

    /// Areas here.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Puts an area.
    #[inline]
    pub fn put(&self, windows: &Windows, area: Pfn, pages: usize) {
        let list = pages % LISTS;
        let head = &self.heads[list];
        windows.desc(area).set_links(Pfn(head.load(Relaxed)), Pfn::NONE);
        head.store(area.0, Relaxed);
        self.bits.store(self.bits.load(Relaxed) | 1 << list, Relaxed);
        self.count.store(self.count.load(Relaxed) + 1, Relaxed);
    }

    /// Takes an area that fits.
    #[inline]
    pub fn take(&self, windows: &Windows, want: Want) -> Option<Pfn> {
        let list = want.pages % LISTS;
        let head = &self.heads[list];
        let (mut previous, mut at) = (Pfn::NONE, Pfn(head.load(Relaxed)));
        for _ in 0..LOOKS {
            if at == Pfn::NONE {
                return None;
            }
            let desc = windows.desc(at);
            let next = desc.links().0;
            if desc.len() == want.pages
                && desc.rest() & want.mask == want.flags
                && (at.0 as usize).is_multiple_of(want.align)
            {
                self.unlink(windows, list, previous, next);
                return Some(at);
            }
            (previous, at) = (at, next);
        }
        None
    }

    /// What is behind `previous` on a list is `next` now.
    #[inline(always)]
    fn unlink(&self, windows: &Windows, list: usize, previous: Pfn, next: Pfn) {
        if previous != Pfn::NONE {
            windows.desc(previous).set_links(next, Pfn::NONE);
        } else {
            self.heads[list].store(next.0, Relaxed);
            if next == Pfn::NONE {
                self.bits.store(self.bits.load(Relaxed) & !(1 << list), Relaxed);
            }
        }
        self.count.store(self.count.load(Relaxed) - 1, Relaxed);
    }

    /// Takes everything: the heads of the lists, and how many areas there are.
    pub fn take_all(&self) -> ([Pfn; LISTS], u32) {
        let mut heads = [Pfn::NONE; LISTS];
        let mut bits = self.bits.load(Relaxed);
        while bits != 0 {
            let list = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            heads[list] = Pfn(self.heads[list].load(Relaxed));
            self.heads[list].store(0, Relaxed);
        }
        self.bits.store(0, Relaxed);
        let count = self.count.load(Relaxed);
        self.count.store(0, Relaxed);
        (heads, count)
    }
}

impl Lists {
    /// Checks the lists, for tests, and tells of each area's pages.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn verify(&self, windows: &Windows, each: &mut impl FnMut(usize)) {
        let mut count = 0;
        for (list, head) in self.heads.iter().enumerate() {
            let mut at = Pfn(head.load(Relaxed));
            assert_eq!(self.bits.load(Relaxed) >> list & 1 != 0, at != Pfn::NONE, "a bit says otherwise");
            while at != Pfn::NONE {
                let desc = windows.desc(at);
                assert_eq!((desc.kind(), desc.len() % LISTS), (Kind::Lazy, list));
                each(desc.len());
                count += 1;
                at = desc.links().0;
            }
        }
        assert_eq!(count, self.count.load(Relaxed));
    }
}

#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Owner, Paging};
    use crate::stat::Board;
    use std::boxed::Box;
    use std::vec::Vec;

    #[test]
    fn lists_give_what_fits_and_keep_the_others() {
        let (windows, board) = unsafe {
            let (windows, board) = (Box::<Windows>::new_zeroed(), Box::<Board>::new_zeroed());
            (Box::leak(windows.assume_init()), board.assume_init())
        };
        let (first, _) = windows.reserve(&board, Owner::Areas(Paging::Small), 4096, 4096).unwrap();
        let lists = Lists::new();
        let put = |at: usize, pages: usize, flags: u32| {
            let area = first.add(at);
            windows.desc(area).set(Kind::Lazy, flags);
            windows.desc(area).set_len(pages);
            lists.put(windows, area, pages);
            area
        };
        let take = |pages: usize, align: usize, flags: u32| lists.take(windows, Want { pages, align, flags, mask: 3 });
        let verify = |count: u32| {
            let mut seen = 0;
            lists.verify(windows, &mut |_| seen += 1);
            assert_eq!((seen, lists.count(), lists.is_empty()), (count, count, count == 0));
        };
        verify(0);
        assert!((0..200).all(|pages| !lists.may_have(pages)) && take(3, 1, 0).is_none());
        // Two lengths that share a list, two flags, two alignments; the bit 4 is not asked for.
        let [short, long, flagged, even, other] =
            [put(1, 3, 0), put(5, 3 + LISTS, 0), put(81, 3, 1), put(96, 3, 4), put(101, 70, 0)];
        verify(5);
        assert_eq!(
            [3, 3 + LISTS, 6, 70, 4, 64].map(|pages| lists.may_have(pages)),
            [true, true, true, true, false, false]
        );
        assert_eq!([take(3, 1, 2), take(6, 1, 0), take(3 + 2 * LISTS, 1, 0)], [None; 3]);
        verify(5);
        // The latest first; in the middle, at the end and alone.
        assert_eq!(take(3, 32, 0), Some(even));
        assert_eq!(take(3 + LISTS, 1, 0), Some(long));
        verify(3);
        assert_eq!(take(3, 1, 0), Some(short));
        assert_eq!((take(3, 1, 0), lists.may_have(3)), (None, true));
        assert_eq!((take(3, 1, 1), lists.may_have(3)), (Some(flagged), false));
        assert_eq!((take(70, 1, 0), lists.is_empty()), (Some(other), true));
        verify(0);
        let some: Vec<_> = [0, 2].into_iter().map(|at| put(at * 10, 7, 0)).collect();
        verify(2);
        let (heads, count) = lists.take_all();
        assert_eq!((heads[7], count), (some[1], 2));
        assert_eq!(windows.desc(some[1]).links().0, some[0]);
        assert_eq!(heads.iter().filter(|head| **head != Pfn::NONE).count(), 1);
        verify(0);
        // So many are looked at, and no more.
        let many: Vec<_> = (0..LOOKS + 1).map(|at| put(at * 10, 7, u32::from(at > 1))).collect();
        assert_eq!((take(7, 1, 0), lists.count()), (Some(many[1]), LOOKS as u32));
        assert_eq!(take(7, 1, 0), Some(many[0]));
        let many: Vec<_> = (50..50 + LOOKS + 1).map(|at| put(at * 10, 7, u32::from(at > 50))).collect();
        let count = lists.count();
        assert_eq!((take(7, 1, 0), lists.count()), (None, count), "{:?} is too far down", many[0]);
    }
}
