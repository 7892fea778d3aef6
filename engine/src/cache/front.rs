//! # Classes of areas: eight lengths to each doubling, a page apart at least; to the half from 384 KiB on eight
//!
//! ```text
//! pages      … 4 │ 5 6 7  8 │ 9 10 … 16 │ 18 20 22 … 32 │ 36 … 64 │ 72 80 88 96 100 104 … 128 │ 144 … 256
//! class  FIRST +0 │ 1 2 3  4 │ 5  6 … 12 │ 13 14 15 … 20 │ … 28    │ 29 30 31 32  33  34 … 40  │ … 48
//! ```
//! The last classes of every set hold no objects but areas (see `heap::front`). A request is served by the first class whose areas are
//! all long enough, and is as long as the shortest of them where it takes memory from elsewhere; an area comes into the class of
//! the longest of these lengths that it has. So an area is longer than the pages that were asked for by an eighth at most, and serves whatever its class serves.
//! (Where sizes are many it is the long ones that make the peak.)
//!
//! Units: pages. Invariant: `fronts` of a set is the sum of its classes' limits times their lengths. Locks: none.
#![allow(unsafe_code)] // a table read without a check

use super::set::Set;
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::knob::FRONT_BYTES;
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};

/// Pages of the areas of the first class, from which no request is served: as many as the largest small object has.
pub const SHORTEST: usize = 4;
/// Pages of the longest areas that fast paths take and give as they do small objects: nothing says of one whether it is in use or in a set.
/// (One path for sizes that mix: one of 1,000 blocks of 1 to 32 KB replaced took 22 ns where the processor had to guess which, and takes 9.)
pub const UNMARKED: usize = 16;

/// Whether areas of a class say where they are: longer ones, and those from which no request is served.
#[inline(always)]
#[must_use]
pub const fn is_marked(class: usize) -> bool {
    class == FIRST_FRONT || class > holds(UNMARKED)
}

/// Pages from which on there are eight lengths to half of a doubling, and up to which.
const FINE: usize = 96;
const FINE_ENDS: usize = 128;

/// Pages of the longest areas that a class holds.
pub const LONGEST: usize = FRONT_BYTES / PAGE;

/// The class into which an area of so many pages comes, at most [`LONGEST`].
#[must_use]
pub const fn holds(pages: usize) -> usize {
    let pages = if pages < SHORTEST { SHORTEST } else { pages };
    let doublings = if pages < 8 { 0 } else { pages.ilog2() as usize - 3 };
    let of_doubling = match pages {
        ..FINE => pages >> doublings,
        FINE..FINE_ENDS => (pages >> (doublings - 1)) - 12,
        _ => (pages >> doublings) + 4,
    };
    FIRST_FRONT + 8 * doublings + of_doubling - SHORTEST
}

/// From a request of so many pages and one to the offset in a set (16 × class) of the class that serves it.
static OFFSET: [u16; LONGEST] = {
    let mut table = [0; LONGEST];
    let mut pages = SHORTEST;
    while pages < LONGEST {
        table[pages] = serves(pages + 1) as u16 * 16;
        pages += 1;
    }
    table
};

/// The offset in a set of the class that serves a request of one page more than so many.
///
/// # Safety
/// At least `SHORTEST`, and fewer than [`LONGEST`].
#[inline(always)]
#[must_use]
pub unsafe fn offset_unchecked(pages: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { *OFFSET.get_unchecked(pages) as usize }
}

/// The class that serves a request of so many pages, more than `SHORTEST`.
#[must_use]
pub const fn serves(pages: usize) -> usize {
    holds(pages - 1) + 1
}

/// The shortest areas of a class (but the first, into which what no request is served from comes).
#[must_use]
pub const fn length(class: usize) -> usize {
    let at = class - FIRST_FRONT + SHORTEST;
    const FIRST: usize = 36;
    const END: usize = FIRST + 8;
    match at {
        ..8 => at,
        8..FIRST => (8 + at % 8) << (at / 8 - 1),
        FIRST..END => FINE + 4 * (at - FIRST),
        _ => (8 + (at - 4) % 8) << ((at - 4) / 8 - 1),
    }
}

/// The classes behind one whose areas are longer by an eighth (or a page) at most: one, or where they are close two.
#[must_use]
pub fn next(class: usize) -> core::ops::Range<usize> {
    const FIRST: usize = holds(FINE);
    const END: usize = holds(FINE_ENDS) - 1;
    let two = usize::from((FIRST..END).contains(&class));
    class + 1..(class + 2 + two).min(CLASSES_MAX)
}

impl Set {
    /// A class of areas may hold so many here from now on.
    pub fn entitle_areas(&self, class: usize, areas: usize) {
        // Relaxed: hints; exact, so that nothing is forgotten if a thread of another CPU comes between.
        if self.limits[class].load(Relaxed) as usize == areas {
            return;
        }
        let before = self.limits[class].swap(areas as u16, Relaxed);
        self.fronts.fetch_add((areas * length(class)) as u32, Relaxed);
        self.fronts.fetch_sub((before as usize * length(class)) as u32, Relaxed);
    }

    /// No class of areas may hold any, and none was asked for.
    pub fn forget_areas(&self) {
        (0..CLASSES_MAX).skip(FIRST_FRONT).for_each(|class| {
            self.entitle_areas(class, 0);
            self.batches[class].store(0, Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_class_holds_is_as_long_as_what_it_serves() {
        let mut lengths = std::vec::Vec::new();
        for class in (0..CLASSES_MAX).skip(FIRST_FRONT) {
            assert_eq!(holds(length(class)), class);
            assert!(class == FIRST_FRONT || serves(length(class)) == class);
            lengths.push(length(class));
        }
        assert!(
            lengths.starts_with(&[4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20])
                && lengths.ends_with(&[240, 256])
        );
        for pages in 5..=256 {
            let class = serves(pages);
            // The shortest that is long enough, by an eighth at most.
            assert!(length(class) >= pages && length(class - 1) < pages && length(class) - pages <= pages / 8);
            assert!(length(holds(pages)) <= pages);
            assert!(!(96..=128).contains(&pages) || length(class) - pages <= 3, "close lengths");
            assert!(next(class).all(|next| length(next) <= length(class) + (length(class) / 8).max(1)), "{class}");
        }
        let marked = |pages| is_marked(holds(pages));
        assert!(
            [1, 4, UNMARKED + 2, LONGEST].into_iter().all(marked) && (5..=UNMARKED + 1).all(|pages| !marked(pages))
        );
        assert!((1..=4).all(|pages| holds(pages) == FIRST_FRONT));
        assert_eq!(holds(LONGEST), CLASSES_MAX - 1);
    }

    #[test]
    fn a_sets_areas_add_up() {
        let set = Set::VOID;
        set.entitle_areas(FIRST_FRONT + 12, 4);
        set.entitle_areas(CLASSES_MAX - 1, 2);
        assert_eq!(set.fronts.load(Relaxed), 4 * 16 + 2 * 256);
        set.entitle_areas(FIRST_FRONT + 12, 1);
        assert_eq!(set.fronts.load(Relaxed), 16 + 2 * 256);
        set.forget_areas();
        assert_eq!(set.fronts.load(Relaxed), 0);
    }
}
