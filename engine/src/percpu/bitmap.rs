//! # The two bitmaps of a chunk
//!
//! ```text
//! word w:   alloc  1 = granule 64 w + b is allocated               the truth
//!           bound  1 = an allocation begins here, or ended before  read only where `alloc` says so
//! ```
//! An allocation `[start, end)` has its `alloc` bits set, `bound` bits at `start` and at `end`,
//! and none between. A free clears `alloc` only: boundaries inside free memory are stale until
//! something is allocated over them. The two words of the same granules lie side by side, so
//! a free at a random place misses one cache line, not two.
//!
//! Units: granules of 4 bytes; `Fit::mask` is alignment in granules, minus one. The word
//! behind the last is wholly allocated, so that nothing runs over the end.
//! Locks: none; the chunk's owner holds its lock.

use crate::arch::bits::MULTIPLES;

/// log2 of the bytes of a granule.
pub const GRANULE_SHIFT: u32 = 2;
/// Granules of a word.
pub const WORD_BITS: u32 = 64;

/// How far [`free_from`] and [`free_to`] look.
pub const FAR: u32 = 256;

/// 64 granules.
#[derive(Clone, Copy, Debug)]
pub struct MapWord {
    /// Which are allocated.
    pub alloc: u64,
    /// Where allocations begin, and where the one before ended.
    pub bound: u64,
}

impl MapWord {
    /// Nothing allocated.
    pub const FREE: Self = Self { alloc: 0, bound: 0 };
    /// Behind the end.
    pub const END: Self = Self { alloc: u64::MAX, bound: 0 };
}

/// `n` low bits, 1 to 64.
#[inline]
pub const fn ones(n: u32) -> u64 {
    u64::MAX >> (WORD_BITS - n)
}

/// Bits at which `n` (1 to 64) set bits of `free` in a row begin.
#[inline]
pub const fn runs(mut free: u64, n: u32) -> u64 {
    let mut have = 1;
    while 2 * have <= n {
        free &= free >> have;
        have *= 2;
    }
    if n > have { free & (free >> (n - have)) } else { free }
}

/// Bits of word `word` that are a multiple of `mask + 1`, a power of two.
#[inline]
pub const fn aligned(word: u32, mask: u32) -> u64 {
    let shift = mask.trailing_ones() as usize;
    if shift < 6 { MULTIPLES[shift] } else { (word & (mask >> 6) == 0) as u64 }
}

/// Looks for the lowest run of `n` free granules, aligned, that begins in word `at`; else the
/// next word in which one may begin.
#[inline]
pub fn look(words: &[MapWord], at: u32, n: u32, mask: u32) -> Result<u32, u32> {
    let free = !words[at as usize].alloc;
    if n <= WORD_BITS {
        let fits = runs(free, n) & aligned(at, mask);
        if fits != 0 {
            return Ok(at * WORD_BITS + fits.trailing_zeros());
        }
    }
    if free >> (WORD_BITS - 1) == 0 {
        return Err(at + 1);
    }
    // It may begin in the free granules at the word's end and go on in the next words.
    let edge = (at + 1) * WORD_BITS;
    let start = (edge - free.leading_ones() + mask) & !mask;
    if start >= edge {
        return Err(at + 1);
    }
    let end = free_until(words, edge, start + n);
    // Whatever begins before the granule that ended the run ends there too.
    if end >= start + n { Ok(start) } else { Err((end / WORD_BITS).max(at + 1)) }
}

/// The first allocated granule from `from` on, which begins a word; or some granule at or
/// behind `enough`.
#[inline]
fn free_until(words: &[MapWord], from: u32, enough: u32) -> u32 {
    let mut at = from;
    while at < enough {
        let Some(word) = words.get((at / WORD_BITS) as usize) else { break };
        if word.alloc != 0 {
            return at + word.alloc.trailing_zeros();
        }
        at += WORD_BITS;
    }
    at
}

/// The longest free run that begins in word `at`; of one longer than `enough`, some length above that.
pub fn longest(words: &[MapWord], at: u32, enough: u32) -> u32 {
    let free = !words[at as usize].alloc;
    // `all`: where `have` free ones begin. Doubled while that goes, then back in halves.
    let (mut all, mut have) = (free, u32::from(free != 0));
    let mut steps = [(0, 0); 6];
    let mut depth = 0;
    while have < WORD_BITS && all & (all >> have) != 0 {
        steps[depth] = (all, have);
        all &= all >> have;
        have *= 2;
        depth += 1;
    }
    for &(step, by) in steps[..depth].iter().rev() {
        if have < WORD_BITS && all & (step >> have) != 0 {
            all &= step >> have;
            have += by;
        }
    }
    let tail = free.leading_ones();
    if tail == 0 {
        return have;
    }
    let edge = (at + 1) * WORD_BITS;
    have.max(tail + free_until(words, edge, edge + enough) - edge)
}

/// Whether `n` granules from `start` on are free.
#[inline]
pub fn is_free(words: &[MapWord], start: u32, n: u32) -> bool {
    let (at, bit) = ((start / WORD_BITS) as usize, start % WORD_BITS);
    if n > WORD_BITS {
        let edge = (at as u32 + 1) * WORD_BITS;
        return words[at].alloc >> bit == 0 && free_until(words, edge, start + n) >= start + n;
    }
    let range = ones(n);
    words[at].alloc & range << bit == 0 && words[at + 1].alloc & range >> 1 >> (WORD_BITS - 1 - bit) == 0
}

/// Marks `[start, start + n)` allocated, with its boundaries.
#[inline]
pub fn set(words: &mut [MapWord], start: u32, n: u32) {
    let (at, bit) = ((start / WORD_BITS) as usize, start % WORD_BITS);
    let end = start + n;
    if bit + n <= WORD_BITS {
        let range = ones(n) << bit;
        let word = &mut words[at];
        word.alloc |= range;
        word.bound = word.bound & !range | 1 << bit;
    } else {
        words[at].alloc |= u64::MAX << bit;
        words[at].bound = words[at].bound & !(u64::MAX << bit) | 1 << bit;
        let last = (end / WORD_BITS) as usize;
        words[at + 1..last].fill(MapWord { alloc: u64::MAX, bound: 0 });
        let rest = end % WORD_BITS;
        if rest != 0 {
            words[last].alloc |= ones(rest);
            words[last].bound &= !ones(rest);
        }
    }
    words[(end / WORD_BITS) as usize].bound |= 1 << (end % WORD_BITS);
}

/// Where the allocation that begins at `start` ends.
#[inline]
pub fn end(words: &[MapWord], start: u32) -> u32 {
    let (mut at, bit) = ((start / WORD_BITS) as usize, start % WORD_BITS);
    // No branch: at a random place it would be guessed wrong, and known only after a miss.
    let near = words[at].bound >> bit >> 1 | words[at + 1].bound << (WORD_BITS - 1 - bit);
    if near != 0 {
        return start + 1 + near.trailing_zeros();
    }
    loop {
        at += 1;
        // All of the first one's bits but some that are known to be clear.
        let bound = words[at].bound;
        if bound != 0 {
            return at as u32 * WORD_BITS + bound.trailing_zeros();
        }
    }
}

/// Marks `[start, end)` free.
#[inline]
pub fn clear(words: &mut [MapWord], start: u32, end: u32) {
    let (at, bit) = ((start / WORD_BITS) as usize, start % WORD_BITS);
    let n = end - start;
    if n <= WORD_BITS {
        let range = ones(n);
        words[at].alloc &= !(range << bit);
        words[at + 1].alloc &= !(range >> 1 >> (WORD_BITS - 1 - bit));
        return;
    }
    words[at].alloc &= !(u64::MAX << bit);
    let last = (end / WORD_BITS) as usize;
    for word in &mut words[at + 1..last] {
        word.alloc = 0;
    }
    let rest = end % WORD_BITS;
    if rest != 0 {
        words[last].alloc &= !ones(rest);
    }
}

/// Where the free run begins that goes on at `start`; not below `least`. If it is longer than
/// [`FAR`] it may be cut off, behind that.
#[inline]
pub fn free_from(words: &[MapWord], start: u32, least: u32) -> u32 {
    let (at, bit) = (start / WORD_BITS, start % WORD_BITS);
    let mut alloc = words[at as usize].alloc & !(u64::MAX << bit);
    let mut edge = (at + 1) * WORD_BITS;
    let stop = least.max(start.saturating_sub(FAR));
    while alloc == 0 {
        edge -= WORD_BITS;
        if edge <= stop {
            return edge.max(least);
        }
        alloc = words[(edge / WORD_BITS) as usize - 1].alloc;
    }
    (edge - alloc.leading_zeros()).max(least)
}

/// Where the free run ends that went on until `end`. Cut off in the same way.
#[inline]
pub fn free_to(words: &[MapWord], end: u32) -> u32 {
    let (at, bit) = (end / WORD_BITS, end % WORD_BITS);
    let alloc = words[at as usize].alloc >> bit;
    if alloc != 0 { end + alloc.trailing_zeros() } else { free_until(words, (at + 1) * WORD_BITS, end + FAR) }
}

/// Runs of set bits: first, and how many.
pub fn runs_of(mut pages: u64) -> impl Iterator<Item = (usize, usize)> {
    core::iter::from_fn(move || {
        if pages == 0 {
            return None;
        }
        let page = pages.trailing_zeros();
        let count = (pages >> page).trailing_ones();
        pages &= !((u64::MAX >> (64 - count)) << page);
        Some((page as usize, count as usize))
    })
}
