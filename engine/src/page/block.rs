//! # Blocks: 512 pages and which of them are free
//!
//! ```text
//! free  [u64; 8]   the truth: a bit for each page            ┐ both are read as buddies: the free
//! dirty [u64; 8]   of the free ones those that may be resident ┘ blocks of order o are the maximal aligned runs
//! ```
//! A run of order k begins where one of order k − 1 begins and another follows it, so the
//! starts of all runs of a word come from it by five shifts and ands (`Starts`), and those of
//! orders 6–9 in the same way from the byte that says which words are full. Nothing is ever
//! merged or split: a bit is set, and its run is longer.
//!
//! Units: pages of the block, words of 64 pages. Invariants: `dirty` ⊆ `free`; the counts are
//! those of the bits; a key is the largest order of its bitmap plus one (0: none is set), or
//! that of the pair where two adjacent blocks are whole. Whoever holds the zone's lock has the block.
//! Cost: two cache lines and some ten instructions a word.

use crate::arch::bits::MULTIPLES;

/// log2 of a block's pages.
pub const BLOCK_SHIFT: u32 = 9;
/// Pages of a block: 2 MiB.
pub const BLOCK_PAGES: usize = 1 << BLOCK_SHIFT;
/// Words of a bitmap.
pub const WORDS: usize = BLOCK_PAGES / 64;
/// Orders 0–10.
pub const ORDERS: usize = 11;
/// A bit for each page of a block.
pub type Bits = [u64; WORDS];

/// The bitmap of all free pages.
pub const FREE: usize = 0;
/// The bitmap of those that may be resident.
pub const DIRTY: usize = 1;

/// A block, in the metadata of its window; zeroed: nothing is free. Bitmaps first, a line each.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Block {
    /// By [`FREE`] and [`DIRTY`].
    pub bits: [Bits; 2],
    /// Bits set in each.
    pub count: [u16; 2],
    /// Largest order of each, plus one: the list that it is on.
    pub key: [u8; 2],
    /// The block before on each list (0: none).
    pub previous: [u32; 2],
    /// The block behind.
    pub next: [u32; 2],
}
const _: () = assert!(size_of::<Block>() == 192);

/// From the starts of free runs of 2^order bits those of twice as long ones, all aligned.
const fn doubled(starts: u64, order: usize) -> u64 {
    starts & starts >> (1 << order) & MULTIPLES[order + 1]
}
/// The largest order of a word's runs; 6 if it is full. The word is not 0.
fn largest_of_word(word: u64) -> usize {
    let (mut starts, mut order) = (word, 0);
    while order < 6 {
        let next = doubled(starts, order);
        if next == 0 {
            break;
        }
        (starts, order) = (next, order + 1);
    }
    order
}
/// The `n` lowest bits that are set.
fn lowest(bits: u64, n: usize) -> u64 {
    if n >= bits.count_ones() as usize {
        return bits;
    }
    let rest = (0..n).fold(bits, |rest, _| rest & (rest - 1));
    bits ^ rest
}
/// `len` bits from `at` on; at least one, all in the word.
pub const fn span(at: usize, len: usize) -> u64 {
    u64::MAX >> (64 - len) << at
}
/// Which words are full.
fn full_words(bits: &Bits) -> u64 {
    bits.iter().enumerate().fold(0, |full, (word, &bits)| full | u64::from(bits == u64::MAX) << word)
}

/// Whether no bit is set. (A comparison with zeros would be a call.)
pub fn is_none(bits: &Bits) -> bool {
    bits.iter().fold(0, |any, word| any | word) == 0
}

/// The largest order of the block's runs, 0 to 9; `None` if no bit is set.
pub fn largest(bits: &Bits) -> Option<usize> {
    let full = full_words(bits);
    if full != 0 {
        // (Bits above the eighth are 0.)
        return Some(6 + largest_of_word(full));
    }
    let (mut starts, mut order) = (*bits, 0);
    if is_none(&starts) {
        return None;
    }
    loop {
        let next = starts.map(|word| doubled(word, order));
        if is_none(&next) {
            return Some(order);
        }
        (starts, order) = (next, order + 1);
    }
}

/// The largest order of the runs in or around a word: at least that of those in it, at most that of the block.
#[inline]
pub fn largest_at(bits: &Bits, word: usize) -> Option<usize> {
    match bits[word] {
        0 => None,
        u64::MAX => Some(6 + largest_of_word(full_words(bits))),
        bits => Some(largest_of_word(bits)),
    }
}

/// Up to `n` aligned runs of 2^order pages, order 0 to 9, out of the smallest runs that suffice:
/// the bits where they begin, and how many.
pub fn pick(bits: &Bits, count: usize, order: usize, n: usize) -> (Bits, usize) {
    let mut picked = [0; WORDS];
    if order == 0 && n >= count {
        return (*bits, count);
    }
    let full = full_words(bits);
    let mut left = n;
    if order < 6 {
        let mut starts: Bits = core::array::from_fn(|word| if full >> word & 1 == 1 { 0 } else { bits[word] });
        for below in 0..order {
            starts = starts.map(|word| doubled(word, below));
        }
        for at in order..6 {
            if is_none(&starts) {
                break;
            }
            let next = starts.map(|word| doubled(word, at));
            for word in 0..WORDS {
                // What is no half of a longer run.
                let exact = starts[word] & !(next[word] | next[word] << (1 << at));
                if exact != 0 {
                    // All their pages; then where a run of `order` may begin.
                    let pages = exact.wrapping_mul(span(0, 1 << at));
                    let taken = lowest(pages & MULTIPLES[order], left);
                    picked[word] |= taken;
                    left -= taken.count_ones() as usize;
                    if left == 0 {
                        return (picked, n);
                    }
                }
            }
            starts = next;
        }
    }
    // Runs of whole words, the same on the byte.
    let (in_word, of_words) = (MULTIPLES[order.min(6)], order.saturating_sub(6));
    let mut starts = full;
    for below in 0..of_words {
        starts = doubled(starts, below);
    }
    for at in of_words..4 {
        if starts == 0 {
            break;
        }
        let next = if at < 3 { doubled(starts, at) } else { 0 };
        let exact = starts & !(next | next << (1 << at));
        let mut words = exact.wrapping_mul(span(0, 1 << at)) & MULTIPLES[of_words];
        while words != 0 {
            let word = words.trailing_zeros() as usize;
            words &= words - 1;
            let taken = lowest(in_word, left);
            picked[word] |= taken;
            left -= taken.count_ones() as usize;
            if left == 0 {
                return (picked, n);
            }
        }
        starts = next;
    }
    (picked, n - left)
}

/// All pages of the runs of 2^order pages that begin at these bits.
pub fn pages_of(starts: &Bits, order: usize) -> Bits {
    if order < 6 {
        return starts.map(|word| word.wrapping_mul(span(0, 1 << order)));
    }
    let mut pages = [0; WORDS];
    for (word, _) in starts.iter().enumerate().filter(|(_, starts)| **starts != 0) {
        pages[word..word + (1 << (order - 6))].fill(u64::MAX);
    }
    pages
}

/// Bits that are set.
pub fn ones(bits: &Bits) -> usize {
    bits.iter().map(|word| word.count_ones() as usize).sum()
}

/// Free blocks of orders 0 to 9.
pub fn by_order(bits: &Bits) -> [usize; 10] {
    let mut orders = [0; 10];
    let full = full_words(bits);
    let mut add = |word: u64, base: usize, most: usize| {
        let mut starts = word;
        for order in 0..=most {
            let next = if order < most { doubled(starts, order) } else { 0 };
            orders[base + order] += starts.count_ones() as usize - 2 * next.count_ones() as usize;
            starts = next;
        }
    };
    bits.iter().filter(|&&word| word != u64::MAX).for_each(|&word| add(word, 0, 5));
    add(full, 6, 3);
    orders
}

/// The longest run of bits, aligned or not; of equal ones the first. (begin, length)
pub fn longest(bits: &Bits) -> (usize, usize) {
    let (mut best, mut begin, mut at) = ((0, 0), 0, 0);
    while at < BLOCK_PAGES {
        let (word, bit) = (at / 64, at % 64);
        let ahead = bits[word] >> bit;
        if ahead & 1 == 0 {
            at = if ahead == 0 { (word + 1) * 64 } else { at + ahead.trailing_zeros() as usize };
            begin = at;
        } else {
            // (To the word's end at most: above it `ahead` has zeros.)
            at += ahead.trailing_ones() as usize;
            if at - begin > best.1 {
                best = (begin, at - begin);
            }
        }
    }
    best
}

/// The bits from `at` to `end`.
pub fn range(at: usize, end: usize) -> Bits {
    core::array::from_fn(|word| {
        let (from, to) = (at.clamp(word * 64, word * 64 + 64), end.clamp(word * 64, word * 64 + 64));
        if from < to { span(from - word * 64, to - from) } else { 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bit(bits: &Bits, page: usize) -> bool {
        bits[page / 64] >> (page % 64) & 1 == 1
    }
    /// The order of the maximal aligned run that holds the page, by looking at every page.
    fn naive_order(bits: &Bits, page: usize) -> Option<usize> {
        (0..=9).rev().find(|&order| {
            let base = page >> order << order;
            (base..base + (1 << order)).all(|page| bit(bits, page))
        })
    }
    fn some_bits() -> impl Strategy<Value = Bits> {
        let word = prop_oneof![
            3 => Just(0_u64),
            4 => Just(u64::MAX),
            2 => any::<u64>(),
            2 => (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, c)| a | b | c),
            1 => (0..64_usize, 1..=64_usize).prop_map(|(at, len)| span(at, len.min(64 - at))),
        ];
        let few = prop::array::uniform8(word);
        prop_oneof![8 => few, 1 => Just([u64::MAX; WORDS]), 1 => Just([0; WORDS])]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn words_say_what_a_look_at_every_page_says(bits in some_bits()) {
            let orders: std::vec::Vec<_> = (0..BLOCK_PAGES).filter_map(|page| naive_order(&bits, page)).collect();
            prop_assert_eq!(largest(&bits), orders.iter().copied().max());
            let count = |order| orders.iter().filter(|&&of| of == order).count() >> order;
            prop_assert_eq!(by_order(&bits), core::array::from_fn(count));
            prop_assert_eq!(ones(&bits), orders.len());
            let (at, len) = longest(&bits);
            prop_assert_eq!(ones(&range(at, at + len)), len);
            prop_assert!((at..at + len).all(|page| bit(&bits, page)));
            let (mut run, mut best) = (0, 0);
            for page in 0..BLOCK_PAGES {
                run = if bit(&bits, page) { run + 1 } else { 0 };
                best = best.max(run);
            }
            prop_assert_eq!(len, best);
        }

        #[test]
        fn picked_runs_are_free_aligned_as_many_as_there_are_and_of_the_smallest(
            bits in some_bits(), order in 0..10_usize, n in 1..600_usize,
        ) {
            let (starts, got) = pick(&bits, ones(&bits), order, n);
            let pages = pages_of(&starts, order);
            prop_assert_eq!(ones(&starts), got);
            prop_assert_eq!(ones(&pages), got << order, "disjoint");
            let all: usize = (0..BLOCK_PAGES >> order)
                .filter(|run| (run << order..(run + 1) << order).all(|page| bit(&bits, page)))
                .count();
            prop_assert_eq!(got, all.min(n));
            let (mut most, mut left) = (0, [0; 10]);
            for page in 0..BLOCK_PAGES {
                prop_assert!(!bit(&starts, page) || page.is_multiple_of(1 << order));
                if bit(&pages, page) {
                    prop_assert!(bit(&bits, page));
                    most = most.max(naive_order(&bits, page).unwrap());
                } else if let Some(of) = naive_order(&bits, page) {
                    left[of] += 1;
                }
            }
            // No smaller run that suffices was left for a larger one.
            prop_assert!(got == 0 || (order..most).all(|of| left[of] == 0));
        }

        #[test]
        fn what_is_set_is_seen_from_its_word(bits in some_bits(), word in 0..WORDS) {
            let most = (word * 64..word * 64 + 64).filter_map(|page| naive_order(&bits, page)).max();
            let seen = largest_at(&bits, word);
            // (A run of full words elsewhere may be seen, too: the caller takes the larger of old and new.)
            prop_assert!(seen >= most && seen <= largest(&bits) && seen.is_some() == most.is_some());
        }
    }
}
