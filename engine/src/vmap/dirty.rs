//! # Dirty runs: what was freed and still has its pages
//!
//! ```text
//! bits  0 1 0 0 1 …            a bucket for each length up to 64 pages, then 32 to a doubling
//! heads   │     │
//!         ▼     ▼
//!        run ⇄ run ⇄ …         run: │ Dirty: pages, next, previous │ None … │ Tail: the first page │
//! ```
//! Neighbours merge when a run comes in: the page before it is the tail of one, or the page behind it the first of another.
//! So blocks of random sizes that come and go find room in what others of other sizes left, and fault nothing in. A request
//! takes the shortest run that it fits into, of a few looked at; what is left of it stays.
//!
//! Units: pages. Invariants: runs of one window with the same flags do not touch; a run is in the bucket of its length, a bit
//! is set exactly while its bucket has something; all have the space's flags; only first pages are `Dirty`, only last ones of two and more `Tail`.
//! Lock: the area space's. Cost: some ten loads and stores for each link.
//!
//! What else was tried: docs/performance.md.

use crate::page::{Kind, Pfn, Windows};

/// Lengths up to this have a bucket of their own.
const EXACT: usize = 64;
/// Buckets of each doubling above, as a shift.
const PART: u32 = 5;
/// Runs are shorter than a window (2¹⁸ pages), or as long.
const BUCKETS: usize = EXACT + (13 << PART);
const WORDS: usize = BUCKETS.div_ceil(64);
/// Runs of a bucket that are looked at for the shortest that fits.
const LOOKS: usize = 8;

/// Dirty runs of one area space.
#[derive(Debug)]
pub struct Dirty {
    bits: [u64; WORDS],
    heads: [Pfn; BUCKETS],
}

/// The bucket of runs of so many pages.
const fn bucket(pages: usize) -> usize {
    if pages <= EXACT {
        return pages - 1;
    }
    let log = pages.ilog2();
    let part = (pages >> (log - PART)) - (1 << PART);
    EXACT + (((log - EXACT.ilog2()) as usize) << PART) + part
}

/// Pages that are left out before the first one aligned to `align`.
const fn skipped(at: Pfn, align: usize) -> usize {
    (at.0 as usize).next_multiple_of(align) - at.0 as usize
}

impl Dirty {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self { bits: [0; WORDS], heads: [Pfn::NONE; BUCKETS] }
    }

    /// Puts a run that touches no other of its flags.
    fn link(&mut self, windows: &Windows, at: Pfn, pages: usize, flags: u32) {
        let desc = windows.desc(at);
        let number = bucket(pages);
        let head = core::mem::replace(&mut self.heads[number], at);
        if head != Pfn::NONE {
            windows.desc(head).set_links(windows.desc(head).links().0, at);
        }
        self.bits[number / 64] |= 1 << (number % 64);
        desc.set_links(head, Pfn::NONE);
        desc.set_len(pages);
        desc.set(Kind::Dirty, flags);
        if pages > 1 {
            let tail = windows.desc(at.add(pages - 1));
            tail.set_links(at, Pfn::NONE);
            tail.set(Kind::Tail, 0);
        }
    }

    /// Takes a whole run out; its pages.
    pub fn unlink(&mut self, windows: &Windows, at: Pfn) -> usize {
        let desc = windows.desc(at);
        let (pages, (next, previous)) = (desc.len(), desc.links());
        if next != Pfn::NONE {
            windows.desc(next).set_links(windows.desc(next).links().0, previous);
        }
        if previous != Pfn::NONE {
            windows.desc(previous).set_links(next, windows.desc(previous).links().1);
        } else {
            let number = bucket(pages);
            self.heads[number] = next;
            if next == Pfn::NONE {
                self.bits[number / 64] &= !(1 << (number % 64));
            }
        }
        desc.set(Kind::None, 0);
        windows.desc(at.add(pages - 1)).set(Kind::None, 0);
        pages
    }

    /// Adds pages that are in nobody's hand any more; they are merged with the runs that they touch.
    pub fn insert(&mut self, windows: &Windows, mut at: Pfn, mut pages: usize, flags: u32) {
        windows.desc(at).set(Kind::None, 0);
        if let Some(before) = self.ends_at(windows, at, flags) {
            pages += self.unlink(windows, before);
            at = before;
        }
        let after = at.add(pages);
        if at.same_window(after)
            && windows.contains(after)
            && windows.desc(after).kind() == Kind::Dirty
            && windows.desc(after).rest() == flags
        {
            pages += self.unlink(windows, after);
        }
        self.link(windows, at, pages, flags);
    }

    /// The run with these flags that ends right before `end`. (Pages of the other space may lie there, whose lock is not held:
    /// what is read of them may be out of date, but is never a run with our flags.)
    fn ends_at(&self, windows: &Windows, end: Pfn, flags: u32) -> Option<Pfn> {
        let last = Pfn(end.0 - 1);
        if !last.same_window(end) || !windows.contains(last) {
            return None;
        }
        let first = match windows.desc(last).kind() {
            Kind::Dirty => last,
            Kind::Tail => windows.desc(last).links().0,
            _ => return None,
        };
        let desc = windows.desc(first);
        (desc.kind() == Kind::Dirty && desc.rest() == flags && first.add(desc.len()) == end).then_some(first)
    }

    /// The runs of a bucket, the latest first.
    fn runs<'a>(&self, windows: &'a Windows, number: usize) -> impl Iterator<Item = Pfn> + use<'a> {
        let some = |at: Pfn| (at != Pfn::NONE).then_some(at);
        core::iter::successors(some(self.heads[number]), move |&at| some(windows.desc(at).links().0))
    }

    /// The first bucket from `number` on that has something.
    fn next(&self, number: usize) -> Option<usize> {
        let (word, bit) = (number / 64, number % 64);
        let here = *self.bits.get(word)? & u64::MAX << bit;
        let found = |at: usize, bits: u64| at * 64 + bits.trailing_zeros() as usize;
        if here != 0 {
            return Some(found(word, here));
        }
        (word + 1..WORDS).find(|&at| self.bits[at] != 0).map(|at| found(at, self.bits[at]))
    }

    /// Takes `pages` pages aligned to `align` out of the shortest run that has them, of those looked at.
    pub fn take(&mut self, windows: &Windows, pages: usize, align: usize) -> Option<Pfn> {
        let mut number = self.next(bucket(pages))?;
        loop {
            let fits = |&at: &Pfn| skipped(at, align) + pages <= windows.desc(at).len();
            let best = self.runs(windows, number).take(LOOKS).filter(fits).min_by_key(|&at| windows.desc(at).len());
            if let Some(run) = best {
                let skip = skipped(run, align);
                return Some(self.carve(windows, run, skip, pages));
            }
            // (A run of this length holds an aligned piece wherever it lies.)
            number = self.next(number + 1)?;
        }
    }

    /// Takes `pages` pages behind the first `skip` ones of a run; the rest stays.
    fn carve(&mut self, windows: &Windows, run: Pfn, skip: usize, pages: usize) -> Pfn {
        let flags = windows.desc(run).rest();
        let len = self.unlink(windows, run);
        let (at, end) = (run.add(skip), skip + pages);
        if skip > 0 {
            self.link(windows, run, skip, flags);
        }
        if len > end {
            self.link(windows, run.add(end), len - end, flags);
        }
        at
    }

    /// Takes up to `pages` pages from `at` on, if a run begins there; how many.
    pub fn take_at(&mut self, windows: &Windows, at: Pfn, pages: usize) -> usize {
        let pages = pages.min(windows.desc(at).len());
        self.carve(windows, at, 0, pages);
        pages
    }

    fn last(&self) -> Option<usize> {
        let word = self.bits.iter().rposition(|&bits| bits != 0)?;
        Some(word * 64 + self.bits[word].ilog2() as usize)
    }

    /// Takes one of the longest runs, or its end where it is longer than `most`; with its pages and flags. It is cut where
    /// a page table begins.
    pub fn take_longest(&mut self, windows: &Windows, most: usize, cut: usize) -> Option<(Pfn, usize, u32)> {
        let run = self.heads[self.last()?];
        let (len, flags) = (windows.desc(run).len(), windows.desc(run).rest());
        let end = run.0 as usize + len;
        // What is taken begins at a multiple of `cut`, and is `most` or a little more.
        let from = end.saturating_sub(most) / cut * cut;
        let skip = from.saturating_sub(run.0 as usize);
        Some((self.carve(windows, run, skip, len - skip), len - skip, flags))
    }

    /// A few of the longest runs, in some order.
    pub fn some_longest<'a>(&self, windows: &'a Windows) -> impl Iterator<Item = Pfn> + use<'a> {
        let mut found = [Pfn::NONE; LOOKS];
        let mut count = 0;
        let mut number = self.last();
        while let Some(at) = number
            && count < LOOKS
        {
            for run in self.runs(windows, at).take(LOOKS - count) {
                found[count] = run;
                count += 1;
            }
            number = (0..at).rev().find(|&lower| self.bits[lower / 64] >> (lower % 64) & 1 != 0);
        }
        found.into_iter().take(count)
    }

    /// Checks the invariants and calls `each` with every run; for tests.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn verify(&self, windows: &Windows, each: &mut impl FnMut(Pfn, usize)) {
        for number in 0..BUCKETS {
            assert_eq!(self.bits[number / 64] >> (number % 64) & 1 != 0, self.heads[number] != Pfn::NONE);
            let mut previous = Pfn::NONE;
            for at in self.runs(windows, number) {
                let desc = windows.desc(at);
                assert_eq!((desc.kind(), bucket(desc.len()), desc.links().1), (Kind::Dirty, number, previous));
                if desc.len() > 1 {
                    let tail = windows.desc(at.add(desc.len() - 1));
                    assert_eq!((tail.kind(), tail.links().0), (Kind::Tail, at));
                }
                let inside = 1..desc.len().saturating_sub(1);
                assert!(inside.into_iter().all(|page| windows.desc(at.add(page)).kind() == Kind::None));
                assert_eq!(self.ends_at(windows, at, desc.rest()), None, "runs touch");
                previous = at;
                each(at, desc.len());
            }
        }
    }
}

impl Default for Dirty {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_go_up_with_the_length() {
        assert_eq!((bucket(1), bucket(64), bucket(65), bucket(66)), (0, 63, 64, 65));
        assert_eq!(bucket(1 << 18), BUCKETS - 32);
        let mut last = 0;
        for pages in 1..=1 << 18 {
            let number = bucket(pages);
            assert!(number == last || number == last + 1, "{pages}");
            last = number;
        }
    }
}
