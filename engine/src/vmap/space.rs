//! # A space: where areas of one kind of pages lie
//!
//! ```text
//! lock ─► free runs (tree) │ dirty runs │ its newest window, which gets longer when all runs are too short
//!         rest: what merges with nothing
//! ```
//! What belongs to which space stands in the flags of an area's first descriptor, so that whoever frees it finds the one
//! that it is from.
//!
//! Units: pages. Invariant: a page that is free is in one run of one space. Locks: this one's. Cost: of the structures that
//! are asked; [`State::grow`] maps memory.

use super::dirty::Dirty;
use super::lists::Lists;
use super::tree::Tree;
use crate::arch::lock::Lock;
use crate::page::windows;
use crate::page::{Owner, Paging, Pfn, Windows};
use crate::stat::Board;
use crate::stat::board::SPACES;

/// In an area's rest: in the huge-page space.
pub(super) const HUGE: u32 = 1;
/// Moved here by page tables: its mapping merges with no neighbour until it is mapped afresh.
pub(super) const MOVED: u32 = 2;
/// Its last page is a guard page, which is not the program's.
pub(super) const GUARD: u32 = 4;
/// Bits of the number of its space, where that is not the first one or the huge pages'.
pub(super) const HOME: u32 = 0b11 << HOME_SHIFT;
pub(super) const HOME_SHIFT: u32 = 3;
const _: () = assert!(SPACES == 2 + (HOME >> HOME_SHIFT) as usize);
/// What an area must have like the one that it is reused as.
pub(super) const LIKE: u32 = HUGE | GUARD | HOME;
/// Areas that a purge neither merges with neighbours nor cuts.
pub(super) const ALONE: u32 = MOVED | GUARD;
/// Of a descriptor's tag what says that an area is small, plain and in use, or a CPU's own: the same for all spaces.
pub const PLAIN: u32 = !(HOME << 8);
/// Pages of a page table.
pub(super) const CONGRUENT: usize = 512;

/// Areas of one kind of pages.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) state: Lock<State>,
    /// Lazy areas that merge with nothing ([`ALONE`]); under the lock, but for a peek.
    pub(super) rest: Lists,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) tree: Tree,
    pub(super) dirty: Dirty,
    /// Pages of its windows.
    pub(super) opened: usize,
    /// A page of the newest of them.
    newest: Pfn,
}

impl Space {
    /// Nothing in it.
    pub(super) const fn new() -> Self {
        Self {
            state: Lock::new(State { tree: Tree::new(), dirty: Dirty::new(), opened: 0, newest: Pfn::NONE }),
            rest: Lists::new(),
        }
    }

    /// The number of the space that areas with such flags are in.
    pub(super) const fn number(flags: u32) -> usize {
        match flags & HOME {
            0 => (flags & HUGE) as usize,
            home => 1 + (home >> HOME_SHIFT) as usize,
        }
    }

    /// The other spaces: their flags.
    pub(super) fn others(flags: u32) -> impl Iterator<Item = u32> {
        let all = (0..=HOME >> HOME_SHIFT).map(|home| home << HOME_SHIFT).chain([HUGE]);
        all.filter(move |&other| other != flags)
    }

    /// The spaces that give pages to zones: all where memory is `scarce`, or those of small pages.
    pub(super) fn givers(scarce: bool) -> impl Iterator<Item = u32> {
        Self::others(if scarce { u32::MAX } else { HUGE })
    }

    pub(super) fn paging(flags: u32) -> Paging {
        if flags & HUGE != 0 { Paging::Huge } else { Paging::Small }
    }
}

impl State {
    /// `need` pages more, or some, behind a window's end; false where that cannot be had.
    fn extend(&mut self, windows: &Windows, board: &Board, page: Pfn, need: usize) -> bool {
        let want = windows::step(self.opened);
        let Some((first, pages)) = windows.extend(board, page, need, want) else { return false };
        self.opened += pages;
        self.tree.insert(windows, first, pages);
        true
    }

    /// Takes exactly the `more` pages from `tail` on, if they are free, or the window ends there and gets longer.
    pub(super) fn take_behind(&mut self, windows: &Windows, board: &Board, tail: Pfn, more: usize) -> bool {
        if self.tree.take_at(windows, tail, more) {
            return true;
        }
        let (page, end) = (Pfn(tail.0 - 1), windows.end(Pfn(tail.0 - 1)));
        let is_last = tail == end || self.tree.ends_at(windows, end) == Some(tail);
        let owned = self.newest != Pfn::NONE && page.same_window(self.newest);
        is_last
            && owned
            && self.extend(windows, board, page, (tail.0 as usize + more).saturating_sub(end.0 as usize))
            && self.tree.take_at(windows, tail, more)
    }

    /// `pages` pages of a dirty run with free ones behind and before it, as many dirty ones as can be had; with their number.
    pub(super) fn take_mixed(&mut self, windows: &Windows, pages: usize) -> Option<(Pfn, usize)> {
        // The run, its pages, and the free ones behind and before it.
        let mut best = (Pfn::NONE, 0, 0, 0);
        for run in self.dirty.some_longest(windows) {
            let len = windows.desc(run).len();
            if len >= pages {
                // (Another thread has freed it since this one looked.)
                self.dirty.take_at(windows, run, pages);
                return Some((run, pages));
            }
            let end = run.add(len);
            let behind = if run.same_window(end) { self.tree.begins_at(windows, end) } else { 0 };
            let before = self.tree.ends_at(windows, run).map_or(0, |free| windows.desc(free).len());
            if len > best.1 && len + behind + before >= pages {
                best = (run, len, behind, before);
            }
        }
        let (run, len, behind, free) = best;
        if run == Pfn::NONE {
            return None;
        }
        let behind = behind.min(pages - len);
        let before = pages - len - behind;
        let first = Pfn(run.0 - before as u32);
        self.dirty.unlink(windows, run);
        let whole = behind == 0 || self.tree.take_at(windows, run.add(len), behind);
        if before > 0 {
            self.tree.carve(windows, Pfn(run.0 - free as u32), first, before);
        }
        debug_assert!(whole, "it was there");
        Some((first, len))
    }

    /// A free run from more memory: the newest window's last run made longer, or a new window.
    pub(super) fn grow(
        &mut self,
        windows: &Windows,
        board: &Board,
        paging: Paging,
        pages: usize,
        align: usize,
    ) -> Option<Pfn> {
        let aligned = |at: Pfn| Pfn(at.0.next_multiple_of(align as u32));
        if self.newest != Pfn::NONE {
            let end = windows.end(self.newest);
            let run = self.tree.ends_at(windows, end).unwrap_or(end);
            let then = aligned(run).add(pages);
            // (A run that has room as it is would have been taken, but for its alignment.)
            if then <= end || self.extend(windows, board, self.newest, (then.0 - end.0) as usize) {
                return Some(self.tree.carve(windows, run, aligned(run), pages));
            }
        }
        // A window begins well aligned: for half of one that is enough.
        let pad = align.saturating_sub(windows::ALIGNED);
        let (first, len) = windows.reserve(board, Owner::Areas(paging), pages + pad, windows::step(self.opened))?;
        self.newest = first;
        self.opened += len;
        self.tree.insert(windows, first, len);
        Some(self.tree.carve(windows, first, aligned(first), pages))
    }
}
