//! # Size classes
//!
//! 16 bytes apart up to 128, then eight to a doubling up to 16 KiB, and one just
//! above each power of two from 512 bytes: buffers with a small header are common
//! (sqlite's 1024 + 8 would waste 10 %). 69 classes, at most 11.1 % internal
//! waste above 112 bytes. Every power of two is a class, so that every alignment
//! up to a page has one. Class 0 is "no small object".
//!
//! A slab is a block of pages that holds at least eight objects, and twice that
//! where one part in 24 of it would be left over.

use crate::arch::PAGE;
use crate::cache::front;
use crate::cache::set::NEAR;
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};

/// Largest small object.
pub const SMALL_MAX: usize = 16 * 1024;
/// Size classes, with the unused class 0.
pub const CLASSES: usize = 70;
/// Largest block of the fast paths: above small objects areas, for which [`front`] has classes.
pub const FAST_MAX: usize = front::UNMARKED * PAGE;
/// Entries of [`Table`]: one per 16 bytes.
pub const STEPS: usize = FAST_MAX / 16;
/// Those of small objects.
const SMALL_STEPS: usize = SMALL_MAX / 16;

/// Size of each class in bytes.
pub const SIZES: [u32; CLASSES] = sizes();
const _: () =
    assert!(SIZES[CLASSES - 1] as usize == SMALL_MAX, "CLASSES is not the number of sizes: raise it with the rule");
const _: () = assert!(CLASSES < FIRST_FRONT, "the number below the first class of areas is a mark");
const _: () =
    assert!(NEAR == CLASSES_MAX || SIZES[NEAR - 1] == 2048, "NEAR of cache/set.rs is the classes up to 2 KiB");
/// Order of each class's slabs.
pub const SLAB_ORDER: [u8; CLASSES] = orders();

/// Above a power of two from this on there is a class for a block with a header.
const HEADER_FROM: u32 = 512;
/// One part in this many of the power of two is the header (of 16 bytes at least).
const HEADER_PART: u32 = 64;

const fn sizes() -> [u32; CLASSES] {
    let mut sizes = [0; CLASSES];
    let mut class = 1;
    let mut size = 16;
    while class < CLASSES {
        sizes[class] = size;
        class += 1;
        if size >= HEADER_FROM && size.is_power_of_two() && class < CLASSES {
            let header = size / HEADER_PART;
            sizes[class] = size + if header < 16 { 16 } else { header };
            class += 1;
        }
        // Eight steps to a doubling, but never finer than 16 bytes.
        let mut step = 16;
        while step * 16 <= size {
            step *= 2;
        }
        size += step;
    }
    sizes
}

const fn orders() -> [u8; CLASSES] {
    let mut orders = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let size = SIZES[class] as usize;
        let mut order = if size <= 1024 { 2 } else { 3 };
        while (PAGE << order) / size < 8 {
            order += 1;
        }
        if order < 5 && (PAGE << order) % size * 24 >= PAGE << order {
            order += 1;
        }
        orders[class] = order;
        class += 1;
    }
    orders
}

/// Pages of the largest slab.
pub const SLAB_PAGES_MAX: usize = 1 << SLAB_ORDER[CLASSES - 1];

/// From a size to the class's offset in a set (16 × class): an entry for each 16 bytes, found by one byte less than the size.
#[derive(Debug)]
pub struct Table(pub [u16; STEPS]);

/// The table.
pub static TABLE: Table = table();

const fn table() -> Table {
    let mut table = [0; STEPS];
    let mut class = 1;
    let mut at = 0;
    while at < SMALL_STEPS {
        if at * 16 >= SIZES[class] as usize {
            class += 1;
        }
        table[at] = class as u16 * 16;
        at += 1;
    }
    while at < STEPS {
        table[at] = front::serves(at * 16 / PAGE + 1) as u16 * 16;
        at += 1;
    }
    Table(table)
}

/// Offset in a set of the class that serves `size` (at most [`SMALL_MAX`]).
#[inline(always)]
#[must_use]
pub fn offset_of(size: usize) -> usize {
    TABLE.0[(size.saturating_sub(1) / 16).min(SMALL_STEPS - 1)] as usize
}

/// The same of any block of the fast paths, without the bounds, by one byte less than the size.
///
/// # Safety
/// `less < FAST_MAX`.
#[inline(always)]
#[must_use]
#[allow(unsafe_code, reason = "the fast path has compared the size already")]
pub unsafe fn offset_of_unchecked(less: usize) -> usize {
    // SAFETY: the table has an entry for every sixteenth below FAST_MAX.
    unsafe { *TABLE.0.get_unchecked(less / 16) as usize }
}

/// The size that is served with such an alignment: the class of a multiple of `align`, a power of two and at most a page, is one, too.
/// 0 for a size of 0, and for none.
#[inline(always)]
#[must_use]
pub const fn aligned(size: usize, align: usize) -> usize {
    size.wrapping_add(align - 1) & align.wrapping_neg()
}

/// 2^[`RECIPROCAL_SHIFT`] by each class's size, rounded up: a slab's offset times this is the object's index, exactly
/// where the offset is that of an object (the error, below offset / 2^32, does not reach the next whole number), and
/// where it is not, some index that does not lead back to the offset.
pub static RECIPROCAL: [u64; CLASSES] = crate::arch::bits::reciprocals(&SIZES, RECIPROCAL_SHIFT);
/// Offsets are below 2^20 (checked here), so products stay below 2^52 / size.
pub const RECIPROCAL_SHIFT: u32 = 32;
const _: () = assert!(SLAB_PAGES_MAX * PAGE <= 1 << 20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_end_at_the_largest_small_size() {
        assert_eq!(SIZES[CLASSES - 1] as usize, SMALL_MAX);
    }

    #[test]
    #[allow(unsafe_code, reason = "as the fast path does")]
    fn without_the_bounds_it_is_the_same_class() {
        for size in 1..=SMALL_MAX {
            // SAFETY: no more than that.
            assert_eq!(unsafe { offset_of_unchecked(size - 1) }, offset_of(size), "{size}");
        }
        for size in SMALL_MAX + 1..=FAST_MAX {
            // SAFETY: as above.
            let class = unsafe { offset_of_unchecked(size - 1) } / 16;
            assert_eq!((class, front::length(class)), (front::serves(size.div_ceil(PAGE)), size.div_ceil(PAGE)));
        }
    }

    #[test]
    fn waste_is_bounded_and_every_size_fits() {
        for size in 1..=SMALL_MAX {
            let class = offset_of(size) / 16;
            let got = SIZES[class] as usize;
            assert!(got >= size && (class == 1 || (SIZES[class - 1] as usize) < size));
            if size > 112 {
                assert!((got - size) * 8 <= got, "{size} wastes {}", got - size);
            }
        }
        assert_eq!(offset_of(0), 16);
        assert_eq!(offset_of(SMALL_MAX + 17) / 16, CLASSES - 1, "no entry lies behind the last");
    }

    #[test]
    fn every_alignment_has_a_class() {
        for align in (1..=12).map(|shift| 1 << shift) {
            for size in 1..=SMALL_MAX - PAGE {
                let served = aligned(size, align);
                assert!(served >= size && served - size < align);
                assert!((SIZES[offset_of(served) / 16] as usize).is_multiple_of(align), "{size} {align}");
            }
            assert_eq!((aligned(0, align), aligned(usize::MAX - align + 2, align)), (0, 0));
        }
    }

    #[test]
    fn the_largest_slab_is_the_last_class_s() {
        assert!(SLAB_ORDER.iter().all(|&order| 1 << order <= SLAB_PAGES_MAX));
    }

    #[test]
    fn a_slab_wastes_little_of_its_pages() {
        for class in 1..CLASSES {
            let (size, bytes) = (SIZES[class] as usize, PAGE << SLAB_ORDER[class]);
            assert!((bytes % size) * 8 <= bytes, "class {class}");
        }
    }

    /// All of them, written out: memory that programs take depends on each.
    #[test]
    fn the_classes_are_these() {
        let sizes = [
            16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448,
            480, 512, 528, 576, 640, 704, 768, 832, 896, 960, 1024, 1040, 1152, 1280, 1408, 1536, 1664, 1792, 1920,
            2048, 2080, 2304, 2560, 2816, 3072, 3328, 3584, 3840, 4096, 4160, 4608, 5120, 5632, 6144, 6656, 7168, 7680,
            8192, 8320, 9216, 10240, 11264, 12288, 13312, 14336, 15360, 16384,
        ];
        for (class, size) in (1..).zip(sizes) {
            assert_eq!(SIZES[class], size, "class {class}");
        }
        assert_eq!(SIZES.len(), sizes.len() + 1);
        // (Order, up to this size.)
        let orders = [
            (2, 1024),
            (3, 2048),
            (4, 2080),
            (3, 2304),
            (4, 3328),
            (3, 3584),
            (4, 3840),
            (3, 4096),
            (5, 4160),
            (4, 4608),
            (5, 6656),
            (4, 7168),
            (5, 7680),
            (4, 8192),
            (5, 16384),
        ];
        let mut class = 1;
        for (order, last) in orders {
            while class < CLASSES && SIZES[class] <= last {
                assert_eq!(SLAB_ORDER[class], order, "{}", SIZES[class]);
                class += 1;
            }
        }
        assert_eq!((SIZES[0], SLAB_ORDER[0], SLAB_PAGES_MAX), (0, 0, 32));
        assert_eq!((CLASSES, SMALL_STEPS, STEPS), (70, 1024, 4096));
    }

    #[test]
    fn an_alignment_takes_the_smallest_class_that_has_it() {
        for (size, align, class_size) in [
            (1, 1, 16),
            (17, 32, 32),
            (100, 64, 128),
            (520, 8, 528),
            (1000, 1024, 1024),
            (4097, 4096, 8192),
            (16_000, 4096, 16_384),
        ] {
            assert_eq!(SIZES[offset_of(aligned(size, align)) / 16], class_size, "{size} {align}");
        }
    }

    /// Every offset of every class: an object's leads to its index, any other to one that does not lead back.
    #[test]
    fn reciprocals_divide() {
        for class in 1..CLASSES {
            let size = SIZES[class] as usize;
            for offset in 0..PAGE << SLAB_ORDER[class] {
                let index = (offset as u64 * RECIPROCAL[class]) as usize >> RECIPROCAL_SHIFT;
                assert_eq!(index * size == offset, offset % size == 0, "class {class}, offset {offset}");
            }
        }
    }
}
