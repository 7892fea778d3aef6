//! # Classes of areas: eight lengths to each doubling, a page apart at least; to the half from 384 KiB on eight
//!
//! ```text
//! pages      … 4 │ 5 6 7  8 │ 9 10 … 16 │ 18 20 22 … 32 │ 36 … 64 │ 72 80 88 96 100 104 … 128 │ 144 … 256
//! class  FIRST +0 │ 1 2 3  4 │ 5  6 … 12 │ 13 14 15 … 20 │ … 28    │ 29 30 31 32  33  34 … 40  │ … 48
//!
//! pages      257 … 2048, of any length: class FIRST + 49
//! ```
//! The last classes of every set hold no objects but areas (see `heap::front`). A request is served by the first class whose areas are
//! all long enough, and is as long as the shortest of them where it takes memory from elsewhere; an area comes into the class of
//! the longest of these lengths that it has. So an area is longer than the pages that were asked for by an eighth at most, and serves whatever its class serves.
//! (Where sizes are many it is the long ones that make the peak.) The last class has one area, of any length above the others': the same length again
//! and again is what it serves.
//!
//! Units: pages. Invariant: `fronts` of a set is the sum of its classes' limits times their lengths. Locks: none.

use super::set::Set;
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::knob::{FRONT_BYTES, GRADED_BYTES};
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

/// Pages of the longest areas that a class holds: the last, of areas above [`GRADED`].
pub const LONGEST: usize = FRONT_BYTES / PAGE;
/// Pages of the longest areas in classes of a length each.
pub const GRADED: usize = GRADED_BYTES / PAGE;
/// The class of those that are longer.
pub const LONG: usize = CLASSES_MAX - 1;
const _: () = assert!(FIRST_FRONT == CLASSES_MAX || holds(GRADED) + 1 == LONG);

/// The class into which an area of so many pages comes, at most [`LONGEST`].
#[must_use]
pub const fn holds(pages: usize) -> usize {
    if pages > GRADED {
        return LONG;
    }
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
static OFFSET: [u16; GRADED] = {
    let mut table = [0; GRADED];
    let mut pages = SHORTEST;
    while pages < GRADED {
        table[pages] = serves(pages + 1) as u16 * 16;
        pages += 1;
    }
    table
};

/// The offset in a set of the class that serves a request of one page more than so many.
/// (At least `SHORTEST`.)
#[inline(always)]
#[must_use]
pub fn offset(pages: usize) -> usize {
    OFFSET.get(pages).map_or(LONG * 16, |&offset| offset.into())
}

/// The class that serves a request of so many pages, more than `SHORTEST`.
#[must_use]
pub const fn serves(pages: usize) -> usize {
    if pages > GRADED { LONG } else { holds(pages - 1) + 1 }
}

/// Whether an area of the last class, which has more pages than `more` and one less, is no longer than it may be.
#[inline(always)]
#[must_use]
pub const fn is_close(len: usize, more: usize) -> bool {
    len - more <= 1 + more / 8
}

/// The shortest areas of a class (but the first, into which what no request is served from comes); of the last the longest.
#[must_use]
pub const fn length(class: usize) -> usize {
    if class == LONG {
        return LONGEST;
    }
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
    class + 1..(class + 2 + two).min(LONG)
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
        for class in (0..LONG).skip(FIRST_FRONT) {
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
        // One class of all that are longer; what it serves has a ninth more at most.
        assert_eq!((LONG, length(LONG), next(holds(GRADED))), (CLASSES_MAX - 1, LONGEST, LONG..LONG));
        for pages in GRADED + 1..=LONGEST {
            assert_eq!((holds(pages), serves(pages), offset(pages - 1)), (LONG, LONG, LONG * 16));
            let most = pages + (pages - 1) / 8;
            assert!(is_close(most, pages - 1) && !is_close(most + 1, pages - 1));
        }
        assert!((5..=GRADED).all(|pages| offset(pages - 1) == serves(pages) * 16));
    }

    #[test]
    fn a_sets_areas_add_up() {
        let set = Set::VOID;
        set.entitle_areas(FIRST_FRONT + 12, 4);
        set.entitle_areas(LONG - 1, 2);
        set.entitle_areas(LONG, 1);
        assert_eq!(set.fronts.load(Relaxed), 4 * 16 + 2 * 256 + 2048);
        set.entitle_areas(FIRST_FRONT + 12, 1);
        assert_eq!(set.fronts.load(Relaxed), 16 + 2 * 256 + 2048);
        set.forget_areas();
        assert_eq!(set.fronts.load(Relaxed), 0);
    }
}
