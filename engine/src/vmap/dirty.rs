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
    /// Pages of all.
    pages: usize,
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
        Self { bits: [0; WORDS], heads: [Pfn::NONE; BUCKETS], pages: 0 }
    }

    /// Pages of all runs.
    #[must_use]
    pub const fn pages(&self) -> usize {
        self.pages
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
        self.pages += pages;
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
        self.pages -= pages;
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
        if at.same_window(after) && windows.contains(after) && windows.desc(after).is(Kind::Dirty, flags) {
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
        // (Links of the other space's may be of any list by now.)
        if first > last || !first.same_window(last) {
            return None;
        }
        let desc = windows.desc(first);
        (desc.is(Kind::Dirty, flags) && first.add(desc.len()) == end).then_some(first)
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
        Some(self.take_more(windows, pages, pages, align)?.0)
    }

    /// The same with what that run has behind them, up to `most` pages in all; the first, and how many.
    pub fn take_more(&mut self, windows: &Windows, pages: usize, most: usize, align: usize) -> Option<(Pfn, usize)> {
        let mut number = self.next(bucket(pages))?;
        loop {
            let fits = |&at: &Pfn| skipped(at, align) + pages <= windows.desc(at).len();
            let best = self.runs(windows, number).take(LOOKS).filter(fits).min_by_key(|&at| windows.desc(at).len());
            if let Some(run) = best {
                let skip = skipped(run, align);
                let taken = most.clamp(pages, windows.desc(run).len() - skip);
                return Some((self.carve(windows, run, skip, taken), taken));
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

    /// Takes that one of a few of the longest runs that lies highest; with its pages and flags. (Fresh runs are the lowest: so what is dirty stays
    /// together, and merges.) See [`Self::take_end`].
    pub fn take_highest(&mut self, windows: &Windows, most: usize, cut: usize) -> Option<(Pfn, usize, u32)> {
        let highest = self.some_longest(windows).max()?;
        Some(self.take_end(windows, highest, most, cut))
    }

    /// Takes a run, or its end where it is longer than `most`, cut where a page table begins.
    fn take_end(&mut self, windows: &Windows, run: Pfn, most: usize, cut: usize) -> (Pfn, usize, u32) {
        let (len, flags) = (windows.desc(run).len(), windows.desc(run).rest());
        let end = run.0 as usize + len;
        // What is taken begins at a multiple of `cut`, and is `most` or a little more.
        let from = end.saturating_sub(most) / cut * cut;
        let skip = from.saturating_sub(run.0 as usize);
        (self.carve(windows, run, skip, len - skip), len - skip, flags)
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

#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Owner, Paging};
    use crate::stat::Board;
    use std::boxed::Box;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    /// Pages of the window that the model has: few, so that runs meet.
    const PAGES: usize = 1500;

    /// Runs as a map from their first pages to their lengths and flags, and nothing clever.
    #[derive(Default)]
    struct Model(BTreeMap<usize, (usize, u32)>);

    impl Model {
        fn insert(&mut self, mut at: usize, mut pages: usize, flags: u32) {
            if let Some((&before, &(len, its))) = self.0.range(..at).next_back()
                && (before + len, its) == (at, flags)
            {
                self.0.remove(&before);
                (at, pages) = (before, pages + len);
            }
            if let Some(&(len, its)) = self.0.get(&(at + pages))
                && its == flags
            {
                self.0.remove(&(at + pages));
                pages += len;
            }
            self.0.insert(at, (pages, flags));
        }
        fn carve(&mut self, at: usize, pages: usize) -> u32 {
            let (&run, &(len, flags)) = self.0.range(..=at).next_back().unwrap();
            assert!(at + pages <= run + len, "{pages} pages at {at}, where nothing is dirty");
            self.0.remove(&run);
            if at > run {
                self.0.insert(run, (at - run, flags));
            }
            if run + len > at + pages {
                self.0.insert(at + pages, (run + len - at - pages, flags));
            }
            flags
        }
    }

    #[test]
    fn dirty_runs_are_a_map() {
        let (windows, board) = unsafe {
            let (windows, board) = (Box::<Windows>::new_zeroed(), Box::<Board>::new_zeroed());
            (Box::leak(windows.assume_init()), board.assume_init())
        };
        let (first, _) = windows.reserve(&board, Owner::Areas(Paging::Small), PAGES, PAGES).unwrap();
        let page = |at: Pfn| (at.0 - first.0) as usize;
        let (mut dirty, mut model) = (Dirty::new(), Model::default());
        // What is in nobody's hand is in one of these, or not ours; first all of it.
        let mut held: Vec<(usize, usize, u32)> = Vec::from([(0, PAGES, 0)]);
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for round in 0..20_000 {
            match next(5) {
                // Freed in pieces, one or some; what remains is freed later.
                0 | 1 if !held.is_empty() => {
                    let (at, pages, flags) = held.swap_remove(next(held.len()));
                    let cut = 1 + next(pages.min(90));
                    if cut < pages {
                        held.push((at + cut, pages - cut, flags));
                    }
                    let flags = next(8).is_multiple_of(8) as u32;
                    dirty.insert(windows, first.add(at), cut, flags);
                    model.insert(at, cut, flags);
                }
                2 => {
                    let most = [3, 64, 300][next(3)];
                    let (pages, align) = (1 + next(most), 1 << next(5));
                    let fits = |&(at, &(len, _)): &(usize, &(usize, u32))| skipped(first.add(at), align) + pages <= len;
                    let shortest = model.0.iter().map(|(&at, run)| (at, run)).filter(fits).map(|(_, run)| run.0).min();
                    let got = dirty.take(windows, pages, align);
                    let Some(shortest) = shortest else {
                        assert_eq!(got, None, "round {round}: {pages} pages, {align}");
                        continue;
                    };
                    let alike = model.0.values().filter(|(len, _)| bucket(*len) == bucket(shortest)).count();
                    let Some(got) = got else {
                        assert!(alike > LOOKS, "round {round}: {pages} pages, {align}");
                        continue;
                    };
                    assert!((got.0 as usize).is_multiple_of(align));
                    let (&run, &(len, _)) = model.0.range(..=page(got)).next_back().unwrap();
                    assert_eq!(page(got) - run, skipped(first.add(run), align), "the first that is aligned");
                    assert!(len == shortest || alike > LOOKS, "round {round}: {len} instead of {shortest}");
                    let flags = model.carve(page(got), pages);
                    held.push((page(got), pages, flags));
                }
                3 if !model.0.is_empty() => {
                    let &at = model.0.keys().nth(next(model.0.len())).unwrap();
                    let (len, flags) = model.0[&at];
                    let pages = 1 + next(2 * len);
                    assert_eq!(dirty.take_at(windows, first.add(at), pages), pages.min(len));
                    model.carve(at, pages.min(len));
                    held.push((at, pages.min(len), flags));
                }
                4 if next(4) == 0 => {
                    let (most, cut) = (1 + next(100), 1 << next(6));
                    let highest = dirty.some_longest(windows).max();
                    let got = dirty.take_highest(windows, most, cut);
                    assert_eq!(got.is_none(), model.0.is_empty());
                    let Some((at, pages, flags)) = got else { continue };
                    let (&run, &(len, _)) = model.0.range(..=page(at)).next_back().unwrap();
                    assert_eq!(Some(first.add(run)), highest);
                    assert_eq!(page(at) + pages, run + len, "the end of it");
                    assert!(pages == len && pages < most + cut || (at.0 as usize).is_multiple_of(cut));
                    assert!(pages >= most.min(len) && pages < most + cut, "{pages} of {len}: {most}, {cut}");
                    assert_eq!(model.carve(page(at), pages), flags);
                    held.push((page(at), pages, flags));
                }
                _ => {
                    let mut longest: Vec<_> = dirty.some_longest(windows).map(|at| model.0[&page(at)].0).collect();
                    let mut all: Vec<_> = model.0.values().map(|run| run.0).collect();
                    all.sort_by_key(|len| core::cmp::Reverse(*len));
                    all.truncate(LOOKS);
                    longest.sort_by_key(|len| core::cmp::Reverse(*len));
                    // (Those of one bucket differ by little.)
                    let buckets = |some: &[usize]| some.iter().map(|&len| bucket(len)).collect::<Vec<_>>();
                    assert_eq!(buckets(&longest), buckets(&all));
                }
            }
            let mut runs = BTreeMap::new();
            dirty.verify(windows, &mut |at, len| _ = runs.insert(page(at), (len, windows.desc(at).rest())));
            assert_eq!(runs, model.0, "round {round}");
        }
    }

    #[test]
    fn runs_end_where_they_say() {
        let (windows, board) = unsafe {
            let (windows, board) = (Box::<Windows>::new_zeroed(), Box::<Board>::new_zeroed());
            (Box::leak(windows.assume_init()), board.assume_init())
        };
        let (first, pages) = windows.reserve(&board, Owner::Areas(Paging::Small), 100, 100).unwrap();
        let mut dirty = Dirty::new();
        dirty.insert(windows, first.add(10), 5, 0);
        dirty.insert(windows, first.add(20), 1, 0);
        dirty.insert(windows, first.add(21), 2, 1);
        dirty.insert(windows, first, 3, 0);
        let ends_at = |at: usize, flags: u32| dirty.ends_at(windows, first.add(at), flags).map(|run| run.0 - first.0);
        let found: Vec<_> = (0..30).filter_map(|at| Some((at, ends_at(at, 0)?))).collect();
        assert_eq!(found, [(3, 0), (15, 10), (21, 20)]);
        let found: Vec<_> = (0..30).filter_map(|at| Some((at, ends_at(at, 1)?))).collect();
        assert_eq!(found, [(23, 21)]);
        // Behind the window's last page, and where it has none.
        assert_eq!((ends_at(pages, 0), ends_at(pages + 1, 0), ends_at(pages + 50, 0)), (None, None, None));
        assert_eq!(dirty.ends_at(windows, Pfn(first.0 & !((1 << 18) - 1)), 0), None);
        // What another space's page says that is no tail any more: of no window, of another one, behind itself.
        let (other, _) = windows.reserve(&board, Owner::Areas(Paging::Small), 100, 100).unwrap();
        for link in [Pfn::NONE, other, first.add(60), first.add(40)] {
            windows.desc(first.add(50)).set_links(link, Pfn::NONE);
            windows.desc(first.add(50)).set(Kind::Tail, 0);
            windows.desc(other).set(Kind::Dirty, 0);
            windows.desc(other).set_len((first.0.wrapping_sub(other.0)) as usize + 51);
            assert_eq!(ends_at(51, 0), None, "{link:?}");
        }
        assert_eq!([0, 1, 4, 5].map(|at| skipped(Pfn(at), 4)), [0, 3, 0, 3]);
        assert_eq!([0, 1, 7].map(|at| skipped(Pfn(at), 1)), [0; 3]);
    }

    #[test]
    fn the_longest_are_looked_at() {
        let (windows, board) = unsafe {
            let (windows, board) = (Box::<Windows>::new_zeroed(), Box::<Board>::new_zeroed());
            (Box::leak(windows.assume_init()), board.assume_init())
        };
        let (first, _) = windows.reserve(&board, Owner::Areas(Paging::Small), 8000, 8000).unwrap();
        let mut dirty = Dirty::new();
        let longest = |dirty: &Dirty| dirty.some_longest(windows).map(|at| windows.desc(at).len()).collect::<Vec<_>>();
        assert_eq!((longest(&dirty), dirty.take_highest(windows, 9, 1)), (Vec::new(), None));
        // Of several words of bits; twelve of one length, of which the latest are the first.
        let lens = [1, 3, 64, 65, 130, 700, 2];
        for (at, len) in lens.into_iter().enumerate() {
            dirty.insert(windows, first.add(at * 1000), len, 0);
        }
        assert_eq!(longest(&dirty), [700, 130, 65, 64, 3, 2, 1]);
        (0..12).for_each(|at| dirty.insert(windows, first.add(7000 + at * 10), 4, 0));
        assert_eq!(longest(&dirty), [700, 130, 65, 64, 4, 4, 4, 4]);
        let four: Vec<_> = dirty.some_longest(windows).skip(4).map(|at| at.0 - first.0 - 7000).collect();
        assert_eq!(four, [110, 100, 90, 80]);
        // The end of the longest, from a multiple on; all of it where it is not longer, or none lies in it.
        let take = |dirty: &mut Dirty, most: usize, cut: usize| {
            let run = dirty.some_longest(windows).next()?;
            Some(dirty.take_end(windows, run, most, cut)).map(|(at, pages, flags)| (at.0 - first.0, pages, flags))
        };
        assert_eq!(first.0 as usize % 2048, 0);
        assert_eq!(take(&mut dirty, 100, 64), Some((5568, 132, 0)));
        assert_eq!(take(&mut dirty, 568, 8), Some((5000, 568, 0)));
        assert_eq!(take(&mut dirty, 100, 1), Some((4030, 100, 0)));
        assert_eq!(take(&mut dirty, 65, 1), Some((3000, 65, 0)));
        assert_eq!(take(&mut dirty, 10, 512), Some((2048, 16, 0)));
        assert_eq!(take(&mut dirty, 10, 4096), Some((2000, 48, 0)));
        assert_eq!(take(&mut dirty, 1000, 1), Some((4000, 30, 0)));
        // And of that one of the eight longest (of 3 pages, 2 and 1, and five of 4) that lies highest.
        assert_eq!(dirty.take_highest(windows, 3, 1), Some((first.add(7111), 3, 0)));
        assert_eq!(dirty.take_highest(windows, 9, 1), Some((first.add(7100), 4, 0)));
        dirty.verify(windows, &mut |_, _| ());
        // Exactly long enough, from its aligned page on; of what is longer the shortest.
        let mut dirty = Dirty::new();
        for (at, len) in [(5, 11), (33, 9), (64, 20)] {
            dirty.insert(windows, first.add(at), len, 0);
        }
        assert_eq!(dirty.take(windows, 9, 8), Some(first.add(64)));
        assert_eq!(dirty.take(windows, 8, 8), Some(first.add(8)));
        assert_eq!(dirty.take(windows, 9, 1), Some(first.add(33)));
        assert_eq!(dirty.take(windows, 12, 1), None);
        assert_eq!(dirty.take(windows, 11, 1), Some(first.add(73)));
        assert_eq!(dirty.take(windows, 3, 1), Some(first.add(5)));
        assert_eq!(dirty.take(windows, 1, 1), None);
    }

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
