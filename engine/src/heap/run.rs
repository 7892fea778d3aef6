//! # The run: the long area of a CPU's front, from which areas are cut
//!
//! ```text
//!                    ├── area ──┤──── the run, at most 8 MiB ────┤
//! malloc above 1 MiB: the next pages of it ▲    free of what lies beside it: it is the run's again
//! aligned to more than a page: from an address that is so, and what is before goes among the dirty runs
//! ```
//! The last class of a front holds one area of any length ([`crate::cache::front`]). What asks for that class and finds it longer than it needs
//! gets its beginning; the rest stays. So sizes that mix are served from one piece, as a heap's end serves them elsewhere, without a lock; while each comes back
//! before the next is asked for ([`crate::cache::runs`]). What it does not serve sends it among the dirty runs, and where it serves what is aligned a slow path takes of those some times as
//! much as is asked for ([`GRASP`]): the next run.
//!
//! Invariants: whoever popped the run, or an area, owns all its descriptors; those inside are none's. What was cut has the run's class in its
//! class byte, however short it is, and comes back by that. (Where it cannot, it goes by its length, and is known by that from then on.) A walk that
//! meets both halves of a change sees the longer one or the two: what lies behind is written first.
//!
//! Locks: none, but where the run goes. Cost: two sequences each way, one that counts, and some ten loads and stores.
#![allow(unsafe_code)] // sequences, descriptors

use super::state::{Environment, Heap};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::cache::front::{LONG, LONGEST, serves};
use crate::cache::set::Set;
use crate::knob::Id;
use crate::page::windows::WINDOW_PAGES;
use crate::page::{BIASED, Desc, Kind};

/// So many times what is asked for is taken of a dirty run, if that is so long.
const GRASP: usize = 4;
/// Bytes of a window, at a multiple of which it begins.
const WINDOW: usize = WINDOW_PAGES * PAGE;
/// The class byte of what was cut.
const CUT: u8 = LONG as u8 | BIASED;

impl<E: Environment> Heap<E> {
    /// The descriptor of an area's first page.
    #[inline(always)]
    fn first_page(&self, area: usize) -> &Desc {
        // SAFETY: of areas that sets had or have, and of what lies inside of those: pages of zones.
        unsafe { self.pages.windows.desc_at(area) }
    }

    /// Puts a piece of the run there; what finds no room goes among the dirty runs.
    #[inline]
    fn run_puts<const INSIDE: bool>(&self, piece: usize) {
        // SAFETY: the caller owns it, and it says where it is.
        if unsafe { self.front_put::<INSIDE>(LONG, piece) } {
            // (It was no allocation.)
            self.cache.sets.uncount_free(LONG);
        } else {
            self.front_lets_go::<INSIDE>(piece, LONG);
        }
    }

    /// Of an area that nobody has the first pages become one by themselves, of `kind`; where the rest begins, which is the front's.
    #[inline(always)]
    fn run_split(&self, area: usize, pages: usize, kind: Kind) -> usize {
        let (desc, rest) = (self.first_page(area), area + pages * PAGE);
        let behind = self.first_page(rest);
        behind.set_len(desc.len() - pages);
        behind.link.store(0, Relaxed);
        behind.set(Kind::Front, desc.rest());
        desc.set_len(pages);
        desc.link.store(0, Relaxed);
        desc.set(kind, desc.rest());
        rest
    }

    /// Cuts so many pages, aligned, out of the run, which the caller popped; `None`, and nothing is done, where it has none such.
    #[inline]
    fn run_cut<const INSIDE: bool>(&self, run: usize, pages: usize, align: usize) -> Option<usize> {
        let desc = self.first_page(run);
        let skip = (run.next_multiple_of(align.max(PAGE)) - run) / PAGE;
        if desc.kind() != Kind::Front || desc.len() < skip + pages {
            return None;
        }
        if skip > 0 {
            return Some(self.run_cut_behind::<INSIDE>(run, skip, pages));
        }
        if desc.len() > pages {
            let rest = self.run_split(run, pages, Kind::Area);
            self.run_puts::<INSIDE>(rest);
        } else {
            desc.begin_area(desc.rest());
        }
        Some(run)
    }

    /// The same behind its first pages.
    #[cold]
    #[inline(never)]
    fn run_cut_behind<const INSIDE: bool>(&self, run: usize, skip: usize, pages: usize) -> usize {
        let area = run + skip * PAGE;
        let rest = self.first_page(run).len() - skip - pages;
        let behind = if rest > 0 { self.run_split(run, skip + pages, Kind::Front) } else { run };
        self.run_split(run, skip, Kind::Front);
        let its = self.first_page(area);
        its.begin_area(its.rest());
        // The longer piece stays.
        let (kept, gone) = if rest >= skip { (behind, run) } else { (run, behind) };
        self.run_puts::<INSIDE>(kept);
        if gone != kept {
            self.front_lets_go::<INSIDE>(gone, LONG);
        }
        area
    }

    /// A request for the run's class, or for an aligned area, which popped it; what does not serve goes.
    pub(super) fn run_serves<const INSIDE: bool>(&self, run: usize, size: usize, align: usize) -> Option<usize> {
        let set = self.cache.sets.present().filter(|set| set.runs.may_cut());
        let area = set.and_then(|set| {
            let area = self.run_cut::<INSIDE>(run, self.front_size(size).div_ceil(PAGE), align)?;
            self.run_knows(area);
            set.runs.cut();
            Some(area)
        });
        if area.is_none() {
            self.front_misses::<INSIDE>(run, LONG);
        }
        area
    }

    /// A request of another class, which has none.
    pub(super) fn run_lends<const INSIDE: bool>(&self, size: usize, align: usize) -> Option<usize> {
        let is_its = align > PAGE;
        let set = self.cache.sets.present().filter(|_| self.is_for_front(size))?;
        if !(if is_its { set.runs.may_cut() } else { set.runs.may_lend() }) {
            return None;
        }
        let Outcome::Done(run) = self.front_take::<INSIDE>(LONG) else { return None };
        self.front_lacks(size);
        if is_its {
            return self.run_serves::<INSIDE>(run, size, align);
        }
        let pages = self.front_size(size).div_ceil(PAGE);
        let Some(area) = self.run_cut::<INSIDE>(run, pages, align) else {
            self.front_restores::<INSIDE>(LONG, run);
            return None;
        };
        if set.runs.lends_again(serves(pages)) {
            // (It comes into its class, which is wanted.)
            self.pages.windows.forget_class(area);
        } else {
            self.run_knows(area);
            set.runs.cut();
        }
        Some(area)
    }

    /// The run goes, whether what was cut of it is in use or not.
    pub(super) fn run_goes(&self) {
        if let Some(set) = self.cache.sets.present() {
            set.runs.goes();
        }
    }

    /// An area that was cut, or was the run, is its beginning again where it lies before it. False if it is the caller's still.
    pub(super) fn run_joins(&self, area: usize) -> bool {
        if !area.is_multiple_of(PAGE) || !self.cache.knobs.is_easy() {
            return false;
        }
        let its = self.first_page(area);
        let len = its.len();
        let end = area + len * PAGE;
        let may = |desc: &Desc| desc.is(Kind::Front, its.rest()) && len + desc.len() <= LONGEST;
        if !self.may_be_run(end).is_some_and(may) {
            return false;
        }
        let Outcome::Done(run) = self.front_take::<false>(LONG) else { return false };
        let behind = self.first_page(run);
        if run != end || !may(behind) || its.kind() != Kind::Area {
            self.front_restores::<false>(LONG, run);
            return false;
        }
        if let Some(set) = self.cache.sets.present() {
            set.runs.came_back();
        }
        self.vmap().unite(its, behind, run);
        self.cache.sets.uncount_alloc(LONG);
        // SAFETY: both are ours, and one.
        if !unsafe { self.front_put::<false>(LONG, area) } {
            self.cache.sets.count_direct(LONG, 0, 1);
            self.front_lets_go::<false>(area, LONG);
        }
        true
    }

    /// What a front has from the end of an area on, as far as can be seen: this CPU's run, perhaps.
    #[inline(always)]
    fn may_be_run(&self, end: usize) -> Option<&Desc> {
        if end.is_multiple_of(WINDOW) {
            return None;
        }
        let (_, desc) = self.pages.windows.look(end)?;
        (desc.kind() == Kind::Front).then_some(desc)
    }

    /// Before an area grows where it is, inside: the run behind it is among what it may grow over.
    pub(super) fn run_gives_way(&self, end: usize) {
        if self.may_be_run(end).is_none() {
            return;
        }
        match self.front_take::<true>(LONG) {
            Outcome::Done(run) if run == end => self.front_misses::<true>(run, LONG),
            Outcome::Done(run) => self.front_restores::<true>(LONG, run),
            _ => {}
        }
    }

    /// The bytes that a slow path for `size` takes of a dirty run at most: some times as much, where the run serves such requests.
    pub(super) fn run_wants(&self, size: usize, align: usize) -> usize {
        let wants = align > PAGE && self.cache.sets.present().is_some_and(|set| set.runs.would_cut());
        if wants { self.run_most(size).min(GRASP * size) } else { 0 }
    }

    /// The same for any request behind which all that this CPU keeps has gone.
    pub(super) fn run_wants_all(&self, size: usize) -> usize {
        let wants = self.cache.sets.present().is_some_and(|set| set.runs.lasts());
        if wants { self.run_most(size) } else { 0 }
    }

    fn run_most(&self, size: usize) -> usize {
        let may = self.is_for_front(size) && !self.cache.is_tight() && self.cache.knobs.size(Id::SyncFree) == 0;
        if may { LONGEST * PAGE } else { 0 }
    }

    /// What a slow path took for `size`, inside, is as long as that; the rest is the run.
    pub(super) fn run_begins(&self, area: usize, size: usize) {
        let pages = size.div_ceil(PAGE);
        if self.first_page(area).len() <= pages {
            return;
        }
        let rest = self.run_split(area, pages, Kind::Area);
        self.run_knows(area);
        let keeps = |set: &Set| {
            // SAFETY: nobody's yet, and it says where it is.
            let is_kept = unsafe { self.front_keeps(set, LONG, rest) };
            // (Behind it: what it may have to make way for is another run.)
            set.runs.cut();
            is_kept
        };
        let is_kept = self.cache.sets.ready().is_some_and(keeps);
        if is_kept {
            // (It was no allocation.)
            self.cache.sets.uncount_free(LONG);
        } else {
            self.front_lets_go::<true>(rest, LONG);
        }
    }

    /// An area that was cut comes back by that.
    #[inline]
    fn run_knows(&self, area: usize) {
        if self.pages.windows.class(area) != Some(CUT)
            && let Some((pfn, _)) = self.pages.windows.look(area)
        {
            // SAFETY: ours, and plain, as the run is.
            unsafe { self.pages.windows.set_class(pfn, 1, CUT) };
        }
    }
}
