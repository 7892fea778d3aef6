//! # The tree of free runs
//!
//! ```text
//!            run {left, right, pages, largest below}          ordered by address; a treap
//!           ╱   ╲                                             (priority: a hash of the page number)
//!        run     run
//! ```
//! Every node knows the largest run of its subtree, so that the lowest run that
//! is large enough is found in one descent (Linux `mm/vmalloc.c`,
//! `find_vmap_lowest_match`). Nodes are the descriptors of the runs' first pages.
//!
//! Invariants: runs neither overlap nor touch (neighbours are merged);
//! `largest(n) = max(pages(n), largest(left), largest(right))`.
//! Lock: the area space's. Cost: O(log n) expected.

use crate::page::{Kind, Pfn, Windows};

/// Runs that are looked at for an aligned piece where none has one wherever it lies.
const LOOKS: usize = 256;

/// Free runs of one area space.
#[derive(Debug)]
pub struct Tree {
    root: Pfn,
}

/// The windows with the node arithmetic.
#[derive(Clone, Copy)]
struct Nodes<'a>(&'a Windows);

impl Nodes<'_> {
    fn left(self, node: Pfn) -> Pfn {
        self.0.desc(node).links().0
    }
    fn right(self, node: Pfn) -> Pfn {
        self.0.desc(node).links().1
    }
    fn pages(self, node: Pfn) -> usize {
        self.0.desc(node).len()
    }
    fn largest(self, node: Pfn) -> usize {
        if node == Pfn::NONE { 0 } else { self.0.desc(node).rest() as usize }
    }
    fn set(self, node: Pfn, left: Pfn, right: Pfn) {
        let desc = self.0.desc(node);
        desc.set_links(left, right);
        let largest = desc.len().max(self.largest(left)).max(self.largest(right));
        desc.set(Kind::Run, largest as u32);
    }
    const fn priority(node: Pfn) -> u32 {
        // A bijection, so that priorities differ.
        node.0.wrapping_mul(0x9e37_79b1).swap_bytes().wrapping_mul(0x85eb_ca6b)
    }
    /// All nodes of `tree` below `at`, and the rest.
    fn split(self, tree: Pfn, at: Pfn) -> (Pfn, Pfn) {
        if tree == Pfn::NONE {
            return (Pfn::NONE, Pfn::NONE);
        }
        let (left, right) = (self.left(tree), self.right(tree));
        if tree < at {
            let (low, high) = self.split(right, at);
            self.set(tree, left, low);
            (tree, high)
        } else {
            let (low, high) = self.split(left, at);
            self.set(tree, high, right);
            (low, tree)
        }
    }
    /// One tree of two, all of `low` before all of `high`.
    fn join(self, low: Pfn, high: Pfn) -> Pfn {
        if low == Pfn::NONE {
            return high;
        }
        if high == Pfn::NONE {
            return low;
        }
        if Self::priority(low) > Self::priority(high) {
            let right = self.join(self.right(low), high);
            self.set(low, self.left(low), right);
            low
        } else {
            let left = self.join(low, self.left(high));
            self.set(high, left, self.right(high));
            high
        }
    }
    /// The lowest run of so many pages.
    fn lowest(self, tree: Pfn, pages: usize) -> Option<Pfn> {
        if self.largest(tree) < pages {
            return None;
        }
        let mut run = tree;
        loop {
            if self.largest(self.left(run)) >= pages {
                run = self.left(run);
            } else if self.pages(run) >= pages {
                return Some(run);
            } else {
                run = self.right(run);
            }
        }
    }
    /// The same from `from` on.
    fn lowest_from(self, mut tree: Pfn, from: Pfn, pages: usize) -> Option<Pfn> {
        // The latest on the way that is not before `from`, and has so many pages, or a run behind it.
        let mut found = Pfn::NONE;
        while self.largest(tree) >= pages {
            if tree < from {
                tree = self.right(tree);
                continue;
            }
            if self.pages(tree) >= pages || self.largest(self.right(tree)) >= pages {
                found = tree;
            }
            tree = self.left(tree);
        }
        if found == Pfn::NONE || self.pages(found) >= pages {
            return Some(found).filter(|&found| found != Pfn::NONE);
        }
        self.lowest(self.right(found), pages)
    }
    fn last(self, mut tree: Pfn) -> Pfn {
        while tree != Pfn::NONE && self.right(tree) != Pfn::NONE {
            tree = self.right(tree);
        }
        tree
    }
    fn first(self, mut tree: Pfn) -> Pfn {
        while tree != Pfn::NONE && self.left(tree) != Pfn::NONE {
            tree = self.left(tree);
        }
        tree
    }
}

impl Tree {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self { root: Pfn::NONE }
    }

    /// Adds a run; it is merged with the runs of its window that it touches.
    pub fn insert(&mut self, windows: &Windows, mut at: Pfn, mut pages: usize) {
        let nodes = Nodes(windows);
        let (mut low, mut high) = nodes.split(self.root, at);
        let before = nodes.last(low);
        if before != Pfn::NONE && before.add(nodes.pages(before)) == at && before.same_window(at) {
            (low, _) = nodes.split(low, before);
            windows.desc(at).set(Kind::None, 0);
            pages += nodes.pages(before);
            at = before;
        }
        let after = nodes.first(high);
        if after != Pfn::NONE && at.add(pages) == after && at.same_window(after) {
            (_, high) = nodes.split(high, after.add(1));
            windows.desc(after).set(Kind::None, 0);
            pages += nodes.pages(after);
        }
        windows.desc(at).set_len(pages);
        nodes.set(at, Pfn::NONE, Pfn::NONE);
        let low = nodes.join(low, at);
        self.root = nodes.join(low, high);
    }

    fn remove(&mut self, windows: &Windows, run: Pfn) {
        let nodes = Nodes(windows);
        let (low, rest) = nodes.split(self.root, run);
        let (_, high) = nodes.split(rest, run.add(1));
        self.root = nodes.join(low, high);
        windows.desc(run).set(Kind::None, 0);
    }

    /// Moves all runs to another tree, where they merge with what they touch; their pages. Cost: O(log n) for each.
    pub fn move_to(&mut self, windows: &Windows, other: &mut Self) -> usize {
        let mut moved = 0;
        while self.root != Pfn::NONE {
            let run = Nodes(windows).first(self.root);
            let pages = windows.desc(run).len();
            self.remove(windows, run);
            other.insert(windows, run, pages);
            moved += pages;
        }
        moved
    }

    /// Takes `pages` pages aligned to `align` pages: the lowest that fit, of runs that are long enough wherever they lie, or else of some that
    /// happen to lie well.
    pub fn take(&mut self, windows: &Windows, pages: usize, align: usize) -> Option<Pfn> {
        let nodes = Nodes(windows);
        let aligned = |run: Pfn| Pfn(run.0.next_multiple_of(align as u32));
        let fits = |run: &Pfn| (aligned(*run).0 - run.0) as usize + pages <= nodes.pages(*run);
        let run = nodes.lowest(self.root, pages + align - 1).or_else(|| {
            let next = |&run: &Pfn| nodes.lowest_from(self.root, run.add(1), pages);
            let first = if align > 1 { nodes.lowest(self.root, pages) } else { None };
            core::iter::successors(first, next).take(LOOKS).find(fits)
        })?;
        Some(self.carve(windows, run, aligned(run), pages))
    }

    /// Takes the last `pages` pages of the highest run that has them.
    pub fn take_last(&mut self, windows: &Windows, pages: usize) -> Option<Pfn> {
        let nodes = Nodes(windows);
        if nodes.largest(self.root) < pages {
            return None;
        }
        let mut run = self.root;
        loop {
            if nodes.largest(nodes.right(run)) >= pages {
                run = nodes.right(run);
            } else if nodes.pages(run) >= pages {
                break;
            } else {
                run = nodes.left(run);
            }
        }
        Some(self.carve(windows, run, run.add(nodes.pages(run) - pages), pages))
    }

    /// Takes `pages` pages from `at` on out of a run that has them; the rest of it stays.
    pub fn carve(&mut self, windows: &Windows, run: Pfn, at: Pfn, pages: usize) -> Pfn {
        let (len, skipped) = (windows.desc(run).len(), (at.0 - run.0) as usize);
        debug_assert!(skipped + pages <= len, "they are not in it");
        self.remove(windows, run);
        if skipped > 0 {
            self.insert(windows, run, skipped);
        }
        if len > skipped + pages {
            self.insert(windows, at.add(pages), len - skipped - pages);
        }
        at
    }

    /// The run that ends right before `end`.
    #[must_use]
    pub fn ends_at(&self, windows: &Windows, end: Pfn) -> Option<Pfn> {
        let nodes = Nodes(windows);
        let (mut at, mut last) = (self.root, Pfn::NONE);
        while at != Pfn::NONE {
            (at, last) = if at < end { (nodes.right(at), at) } else { (nodes.left(at), last) };
        }
        (last != Pfn::NONE && last.add(nodes.pages(last)) == end && last.same_window(Pfn(end.0 - 1))).then_some(last)
    }

    /// Pages of the run that begins at `at`; 0 if none of this tree does. (A window's pages may be in another one's.)
    #[must_use]
    pub fn begins_at(&self, windows: &Windows, at: Pfn) -> usize {
        if !windows.contains(at) || windows.desc(at).kind() != Kind::Run {
            return 0;
        }
        let nodes = Nodes(windows);
        let mut node = self.root;
        while node != Pfn::NONE && node != at {
            node = if at < node { nodes.left(node) } else { nodes.right(node) };
        }
        if node == at { nodes.pages(at) } else { 0 }
    }

    /// Takes exactly the `pages` pages that begin at `at`, if a run begins there and is long enough.
    pub fn take_at(&mut self, windows: &Windows, at: Pfn, pages: usize) -> bool {
        let len = self.begins_at(windows, at);
        if len < pages.max(1) {
            return false;
        }
        self.remove(windows, at);
        if len > pages {
            self.insert(windows, at.add(pages), len - pages);
        }
        true
    }

    /// Largest free run in pages.
    #[must_use]
    pub fn largest(&self, windows: &Windows) -> usize {
        Nodes(windows).largest(self.root)
    }

    /// Checks the invariants and calls `each` with every run in order; for tests.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn verify(&self, windows: &Windows, each: &mut impl FnMut(Pfn, usize)) {
        fn walk(nodes: Nodes<'_>, node: Pfn, each: &mut impl FnMut(Pfn, usize)) -> usize {
            if node == Pfn::NONE {
                return 0;
            }
            let (left, right) = (nodes.left(node), nodes.right(node));
            for child in [left, right].into_iter().filter(|child| *child != Pfn::NONE) {
                assert!(Nodes::priority(child) < Nodes::priority(node));
            }
            assert!(left < node && (right == Pfn::NONE || right > node));
            let low = walk(nodes, left, each);
            each(node, nodes.pages(node));
            let largest = nodes.pages(node).max(low).max(walk(nodes, right, each));
            assert_eq!(largest, nodes.largest(node));
            largest
        }
        walk(Nodes(windows), self.root, each);
    }
}

impl Default for Tree {
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
    use std::vec::Vec;

    #[test]
    fn runs_move_and_merge() {
        let (windows, board) = unsafe {
            let (windows, board) = (Box::<Windows>::new_zeroed(), Box::<Board>::new_zeroed());
            (Box::leak(windows.assume_init()), board.assume_init())
        };
        let (first, _) = windows.reserve(&board, Owner::Areas(Paging::Small), 1000, 1000).unwrap();
        let runs = |tree: &Tree| {
            let mut all = Vec::new();
            tree.verify(windows, &mut |at, len| all.push((at.0 - first.0, len)));
            all
        };
        let (mut one, mut other) = (Tree::new(), Tree::new());
        assert_eq!(one.move_to(windows, &mut other), 0);
        // Every second piece of ten pages; of some the last page is in neither.
        for at in 0..40 {
            let tree = if at % 2 == 0 { &mut one } else { &mut other };
            tree.insert(windows, first.add(at * 10), if at % 8 == 7 { 9 } else { 10 });
        }
        assert_eq!((one.move_to(windows, &mut other), runs(&one)), (200, Vec::new()));
        assert_eq!(runs(&other), (0..5).map(|at| (at * 80, 79)).collect::<Vec<_>>());
    }

    #[test]
    fn runs_are_found_by_either_end() {
        let (windows, board) = unsafe {
            let (windows, board) = (Box::<Windows>::new_zeroed(), Box::<Board>::new_zeroed());
            (Box::leak(windows.assume_init()), board.assume_init())
        };
        let (first, pages) = windows.reserve(&board, Owner::Areas(Paging::Small), 1000, 1000).unwrap();
        let mut tree = Tree::new();
        assert_eq!((tree.ends_at(windows, first.add(9)), tree.begins_at(windows, first)), (None, 0));
        assert!(!tree.take_at(windows, first, 0) && tree.largest(windows) == 0);
        // Every tenth page, so many of them.
        let lens: Vec<_> = (0..100).map(|at| 1 + at * 7 % 9).collect();
        for at in 0..100 {
            let at = at * 37 % 100;
            tree.insert(windows, first.add(at * 10), lens[at]);
        }
        assert_eq!(tree.largest(windows), 9);
        let begins: Vec<_> = (0..1000).map(|at| tree.begins_at(windows, first.add(at))).collect();
        let ends: Vec<_> =
            (0..=1000).map(|at| tree.ends_at(windows, first.add(at)).map(|run| run.0 - first.0)).collect();
        for at in 0..100 {
            assert_eq!((begins[at * 10], ends[at * 10 + lens[at]]), (lens[at], Some(at as u32 * 10)));
        }
        assert_eq!(begins.iter().filter(|len| **len > 0).count(), 100);
        assert_eq!(ends.iter().flatten().count(), 100);
        // Another's run, the same page with another kind, and no page of ours.
        let mut other = Tree::new();
        assert_eq!(other.begins_at(windows, first), 0);
        assert_eq!(tree.begins_at(windows, first.add(pages)), 0);
        let (next, _) = windows.reserve(&board, Owner::Areas(Paging::Small), 1000, 1000).unwrap();
        other.insert(windows, next, 1000);
        assert_eq!((other.begins_at(windows, next), tree.begins_at(windows, next)), (1000, 0));
        assert_eq!((other.ends_at(windows, next.add(1000)), tree.ends_at(windows, next.add(1000))), (Some(next), None));
        // At the very end of a window.
        const MOST: usize = (1 << 18) - 2048;
        let (last, all) = windows.reserve(&board, Owner::Areas(Paging::Small), MOST, MOST).unwrap();
        let mut third = Tree::new();
        third.insert(windows, last.add(all - 10), 10);
        assert!(!last.same_window(last.add(all)) && last.same_window(last.add(all - 1)));
        assert_eq!(third.ends_at(windows, last.add(all)), Some(last.add(all - 10)));
        assert_eq!(third.begins_at(windows, last.add(all)), 0);
        windows.desc(first).set(Kind::Area, 1);
        assert_eq!(tree.begins_at(windows, first), 0);
        windows.desc(first).set(Kind::Run, lens[0] as u32);
        // Exactly so many, or some of them: what is taken is no run any more.
        let mut left: Vec<_> = lens.iter().enumerate().map(|(at, &len)| (at as u32 * 10, len)).collect();
        for at in (0..100).filter(|at| at % 3 > 0) {
            let (begin, len) = (at as u32 * 10, lens[at]);
            let pages = if at % 3 == 1 { len } else { 1 };
            assert!(!tree.take_at(windows, Pfn(first.0 + begin), len + 1));
            assert!(tree.take_at(windows, Pfn(first.0 + begin), pages));
            assert_eq!(windows.desc(Pfn(first.0 + begin)).kind(), Kind::None);
            left.retain(|run| run.0 != begin);
            if len > pages {
                left.push((begin + 1, len - 1));
            }
            left.sort_unstable();
            let mut runs = Vec::new();
            tree.verify(windows, &mut |at, pages| runs.push((at.0 - first.0, pages)));
            assert_eq!(runs, left);
        }
    }
}
