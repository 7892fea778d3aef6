//! # `vmap`: areas of whole pages, above 32 KiB
//!
//! ```text
//! busy ──free──► lazy (still mapped, in the pool of its exact size) ──purge──► free run (clean, in the tree)
//!   ▲             │                                                             │
//!   └── reuse ────┘◄──────────────────────── take lowest fit ───────────────────┘
//! ```
//! A freed area is lazy: an allocation of the same size takes it back in a few
//! loads, with its old contents. A purge takes all lazy areas at once, sorts
//! and merges them, gives them back to the system in one pass without any
//! lock, and settles the counters once (Linux `mm/vmalloc.c`,
//! `__purge_vmap_area_lazy`). No rounding: 36 KiB cost 36 KiB.
//!
//! | kind of the first page's descriptor | resident | in |
//! |---|---|---|
//! | `Area` | yes | the program's hands |
//! | `Lazy` | yes | pool of its size, or a purge's hand |
//! | `Run` | no (zero when touched) | tree |
//!
//! Huge-page areas live in a space (and windows) of their own. Areas above half
//! a window have a window of their own and are unmapped when freed.
//! Lock: one per space (`areas`), held across no advice but the opening of
//! fresh address space; that of the small-page space also guards the levels
//! `Areas` and `Lazy` and comes after the other. Cost: reuse ≈ 20 loads and a
//! lock; else O(log n).
#![allow(unsafe_code)] // address space by number

pub mod tree;

use crate::arch::atomic::AtomicU32;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::lock::Lock;
use crate::arch::sys::{self, Access, Advice};
use crate::arch::{PAGE, PAGE_SHIFT};
use crate::knob::Id;
use crate::page::region::WINDOW_PAGES;
use crate::page::{Kind, Paging, Pfn, Regions, give_back};
use crate::percpu::Cache;
use crate::stat::{Board, Event, Level};
use tree::Tree;

/// Sizes up to this many pages have a pool each; larger ones share the last.
const POOLS: usize = 1024;
/// Larger lazy areas looked at for one of the right size.
const LOOKS: usize = 16;
/// Areas from this many pages begin at a huge-page boundary, so that page tables move whole.
const CONGRUENT: usize = 512;
/// Areas above this many pages get a window of their own.
const GIANT: usize = WINDOW_PAGES / 2;
/// Pages opened at a time, at least.
const STEP: usize = 512;

/// In an area's rest: in the huge-page space.
const HUGE: u32 = 1;
/// Moved here by page tables: its mapping merges with no neighbour until it is mapped afresh.
const MOVED: u32 = 2;

/// Areas of one kind of pages.
#[derive(Debug)]
struct Space {
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    pools: [Pfn; POOLS + 1],
    opened: usize,
}

/// All areas.
#[derive(Debug)]
pub struct Areas {
    spaces: [Space; 2],
    /// Areas that carry [`MOVED`].
    moved: AtomicU32,
}

/// An area found by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first page.
    pub pfn: Pfn,
    /// Its bytes (whole pages).
    pub bytes: usize,
    flags: u32,
}

/// A new area.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// Where it begins.
    pub address: usize,
    /// Whether all of it reads as zero.
    pub zero: bool,
}

/// Areas with what they need.
#[derive(Clone, Copy, Debug)]
pub struct Vmap<'a> {
    /// The areas.
    pub areas: &'a Areas,
    /// Address space.
    pub regions: &'a Regions,
    /// Knobs and events.
    pub cache: &'a Cache,
}

impl Default for Areas {
    fn default() -> Self {
        Self::new()
    }
}

impl Areas {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        const fn space() -> Space {
            Space { state: Lock::new(State { tree: Tree::new(), pools: [Pfn::NONE; POOLS + 1], opened: 0 }) }
        }
        Self { spaces: [const { space() }; 2], moved: AtomicU32::new(0) }
    }
    /// See [`Lock::fork_begin`]. The small-page space's comes last, as everywhere.
    pub fn fork_begin(&self) {
        self.spaces.iter().rev().for_each(|space| space.state.fork_begin());
    }
    /// See [`Lock::fork_end`].
    pub fn fork_end(&self) {
        self.spaces.iter().for_each(|space| space.state.fork_end());
    }
}

impl State {
    fn pool(&mut self, pages: usize) -> &mut Pfn {
        &mut self.pools[pages.min(POOLS)]
    }

    /// A lazy area of exactly this size (and alignment).
    fn reuse(&mut self, regions: &Regions, pages: usize, align: usize) -> Option<Pfn> {
        let head = self.pool(pages);
        let (mut previous, mut at) = (Pfn::NONE, *head);
        for _ in 0..LOOKS {
            if at == Pfn::NONE {
                return None;
            }
            let desc = regions.desc(at);
            let next = desc.links().0;
            if desc.len() == pages && (at.0 as usize).is_multiple_of(align) {
                if previous == Pfn::NONE {
                    *head = next;
                } else {
                    regions.desc(previous).set_links(next, Pfn::NONE);
                }
                return Some(at);
            }
            (previous, at) = (at, next);
        }
        None
    }

    /// A free run, opened; `None` if there is none or the system refuses.
    fn take(&mut self, regions: &Regions, board: &Board, pages: usize, align: usize) -> Option<Pfn> {
        let at = self.tree.take(regions, pages, align)?;
        let step = (self.opened / 16).next_multiple_of(STEP).clamp(STEP, 32 * STEP);
        let Some(fresh) = regions.open(board, at.add(pages), step) else {
            self.tree.insert(regions, at, pages);
            return None;
        };
        self.opened += (fresh.end.0 - fresh.start.0) as usize;
        Some(at)
    }

    /// The same from more address space.
    fn grow(&mut self, regions: &Regions, board: &Board, paging: Paging, pages: usize, align: usize) -> Option<Pfn> {
        let (first, len) = regions.reserve(board, paging, pages + align, 0)?;
        self.tree.insert(regions, first, len);
        self.take(regions, board, pages, align)
    }
}

impl Vmap<'_> {
    fn space(&self, flags: u32) -> &Space {
        &self.areas.spaces[(flags & HUGE) as usize]
    }
    fn paging(flags: u32) -> Paging {
        if flags & HUGE != 0 { Paging::Huge } else { Paging::Small }
    }
    fn board(&self) -> &Board {
        self.cache.sets.board()
    }
    /// Bytes in use and lazy bytes change; the caller holds the lock of the space of `flags`,
    /// or none.
    fn account(&self, flags: u32, areas: isize, lazy: isize) {
        let _levels = (flags & HUGE != 0).then(|| self.areas.spaces[0].state.lock());
        self.board().shift(Level::Areas, areas);
        self.board().shift(Level::Lazy, lazy);
    }
    /// The same where no lock is held.
    fn account_alone(&self, areas: isize, lazy: isize) {
        self.account(HUGE, areas, lazy);
    }

    /// A new area of at least `bytes`, aligned to `align` bytes; `None` without memory.
    pub fn alloc(&self, bytes: usize, align: usize) -> Option<Fresh> {
        self.reuse(bytes, align).or_else(|| self.alloc_fresh(bytes, align))
    }

    /// Whole pages, how they are aligned, and where such areas live; `None` for giants.
    fn shape(&self, bytes: usize, align: usize) -> (usize, usize, Option<u32>) {
        let (pages, align) = (bytes.max(1).div_ceil(PAGE), align.div_ceil(PAGE).max(1));
        if pages.saturating_add(align) > GIANT {
            return (pages, align, None);
        }
        let huge_bytes = self.cache.knobs.size(Id::HugeBytes);
        let flags = if huge_bytes > 0 && bytes >= huge_bytes { HUGE } else { 0 };
        (pages, if pages >= CONGRUENT { align.max(CONGRUENT) } else { align }, Some(flags))
    }

    /// A lazily freed area of that size, with its old contents; `None` if there is none.
    /// Cost: a lock.
    pub fn reuse(&self, bytes: usize, align: usize) -> Option<Fresh> {
        let (pages, align, flags) = self.shape(bytes, align);
        let flags = flags?;
        let mut state = self.space(flags).state.lock_elided();
        let pfn = state.reuse(self.regions, pages, align)?;
        let desc = self.regions.desc(pfn);
        desc.set(Kind::Area, desc.rest());
        let bytes = (pages * PAGE) as isize;
        self.account(flags, bytes, -bytes);
        drop(state);
        Some(self.begin(pfn, Event::AreaReuse))
    }

    /// Tells of an area that begins.
    fn begin(&self, pfn: Pfn, event: Event) -> Fresh {
        self.board().grown();
        self.cache.sets.count(event, 1);
        Fresh { address: self.regions.address(pfn), zero: event == Event::AreaAlloc }
    }

    fn alloc_fresh(&self, bytes: usize, align: usize) -> Option<Fresh> {
        let (pages, align, flags) = self.shape(bytes, align);
        let Some(flags) = flags else { return self.alloc_giant(pages, align) };
        // Where no more windows can be had: a run of the other kind, or exactly these pages.
        let fresh = self.alloc_run(flags, pages, align, true);
        let fresh = fresh.or_else(|| self.alloc_run(flags ^ HUGE, pages, align, false));
        fresh.or_else(|| self.alloc_giant(pages, align))
    }

    fn alloc_run(&self, flags: u32, pages: usize, align: usize, grow: bool) -> Option<Fresh> {
        let (regions, board) = (self.regions, self.board());
        let mut state = self.space(flags).state.lock_elided();
        let mut run = state.take(regions, board, pages, align);
        if run.is_none() && grow {
            run = state.grow(regions, board, Self::paging(flags), pages, align);
        }
        let pfn = run?;
        let desc = self.regions.desc(pfn);
        desc.set_len(pages);
        desc.set(Kind::Area, flags);
        self.account(flags, (pages * PAGE) as isize, 0);
        drop(state);
        Some(self.begin(pfn, Event::AreaAlloc))
    }

    fn alloc_giant(&self, pages: usize, align: usize) -> Option<Fresh> {
        let bytes = pages.checked_mul(PAGE)?;
        if align > WINDOW_PAGES || bytes > 1 << 46 {
            return None;
        }
        let pfn = self.regions.reserve_giant(self.board(), bytes)?;
        if !self.regions.address(pfn).is_multiple_of(align * PAGE) {
            // The kernel's own choice, where there was no room for a better one.
            // SAFETY: fresh and unused.
            unsafe { self.regions.release_giant(self.board(), pfn) };
            return None;
        }
        let huge_bytes = self.cache.knobs.size(Id::HugeBytes);
        if huge_bytes > 0 && bytes >= huge_bytes {
            // SAFETY: fresh and ours; the window's small-page advice is replaced.
            let _ = unsafe { sys::advise(self.regions.address(pfn), bytes, Advice::Huge) };
        }
        let desc = self.regions.desc(pfn);
        desc.set_len(0);
        desc.set(Kind::Area, 0);
        self.board().raise(Level::Mapped, bytes);
        self.account_alone(bytes as isize, 0);
        Some(self.begin(pfn, Event::AreaAlloc))
    }

    /// The area that begins at `address`.
    #[must_use]
    pub fn find(&self, address: usize) -> Option<Area> {
        if !address.is_multiple_of(PAGE) {
            return None;
        }
        let (window, pfn) = self.regions.find(address)?;
        let desc = self.regions.desc(pfn);
        if desc.kind() != Kind::Area {
            return None;
        }
        let pages = desc.len();
        let bytes = if pages == 0 { window.giant.load(Relaxed) } else { pages << PAGE_SHIFT };
        Some(Area { pfn, bytes, flags: desc.rest() })
    }

    fn is_giant(&self, area: &Area) -> bool {
        self.regions.desc(area.pfn).len() == 0
    }

    /// Frees an area: lazily, or at once if it has a window of its own. False if it is not
    /// in use (freed by somebody else meanwhile).
    pub fn free(&self, area: &Area) -> bool {
        if self.is_giant(area) {
            self.regions.desc(area.pfn).set(Kind::None, 0);
            self.account_alone(-(area.bytes as isize), 0);
            self.board().lower(Level::Mapped, area.bytes);
            self.cache.sets.count(Event::AreaFree, 1);
            // SAFETY: a giant area that its owner gave up.
            unsafe { self.regions.release_giant(self.board(), area.pfn) };
            return true;
        }
        {
            let mut state = self.space(area.flags).state.lock_elided();
            let desc = self.regions.desc(area.pfn);
            if desc.kind() != Kind::Area {
                return false;
            }
            self.make_lazy(&mut state, area.pfn, area.bytes / PAGE, area.flags);
            self.account(area.flags, -(area.bytes as isize), area.bytes as isize);
        }
        self.cache.sets.count(Event::AreaFree, 1);
        true
    }

    fn make_lazy(&self, state: &mut State, pfn: Pfn, pages: usize, flags: u32) {
        let desc = self.regions.desc(pfn);
        desc.set_len(pages);
        desc.set(Kind::Lazy, flags);
        let head = state.pool(pages);
        desc.set_links(*head, Pfn::NONE);
        *head = pfn;
    }

    /// Makes an area `bytes` long where it is; false if its neighbour is in the way.
    #[must_use]
    pub fn resize(&self, area: &Area, bytes: usize) -> bool {
        let (now, then) = (area.bytes / PAGE, bytes.max(1).div_ceil(PAGE));
        if now == then {
            return true;
        }
        // A moved area is one mapping and stays so: `relocate` depends on it.
        if self.is_giant(area) || then > GIANT || (then > now && area.flags & MOVED != 0) {
            return false;
        }
        let space = self.space(area.flags);
        let mut state = space.state.lock();
        let desc = self.regions.desc(area.pfn);
        if then < now {
            // The tail becomes a lazy area of its own. A moved area stays whole: its tail
            // could not be mapped afresh with it.
            if area.flags & MOVED != 0 {
                return now / 2 <= then;
            }
            desc.set_len(then);
            self.make_lazy(&mut state, area.pfn.add(then), now - then, area.flags);
            let bytes = ((now - then) * PAGE) as isize;
            self.account(area.flags, -bytes, bytes);
        } else {
            let (tail, more) = (area.pfn.add(now), then - now);
            if !area.pfn.same_window(area.pfn.add(then - 1)) || !state.tree.take_at(self.regions, tail, more) {
                return false;
            }
            let Some(fresh) = self.regions.open(self.board(), tail.add(more), STEP) else {
                state.tree.insert(self.regions, tail, more);
                return false;
            };
            state.opened += (fresh.end.0 - fresh.start.0) as usize;
            desc.set_len(then);
            self.account(area.flags, (more * PAGE) as isize, 0);
            drop(state);
            self.board().grown();
        }
        self.cache.sets.count(Event::AreaGrow, 1);
        true
    }

    /// Moves an area's pages into a new area of `bytes`, by page tables; its address.
    /// `None` if that cannot be done here (nothing has changed then).
    ///
    /// # Safety
    /// The caller owns the area and gives it up if this succeeds.
    pub unsafe fn relocate(&self, area: &Area, bytes: usize) -> Option<usize> {
        let threshold = self.cache.knobs.size(Id::MoveBytes);
        // The source must be one mapping, so that a move that fails has moved nothing; one
        // that was moved here and grew by it is two.
        if threshold == 0 || area.bytes < threshold || area.flags & MOVED != 0 || bytes <= area.bytes {
            return None;
        }
        if u64::from(self.areas.moved.load(Relaxed)) >= self.cache.knobs.get(Id::MoveLimit) {
            return None;
        }
        let fresh = self.alloc(bytes, PAGE)?;
        let target = self.find(fresh.address)?;
        let from = self.regions.address(area.pfn);
        // SAFETY: both are ours; the target's contents are not needed.
        if unsafe { sys::move_pages(from, fresh.address, area.bytes) }.is_err() {
            // The kernel may have unmapped the target before it gave up.
            // SAFETY: ours, and nothing in it is needed.
            let _ = unsafe { sys::map_over(fresh.address, area.bytes, Access::ReadWrite) };
            self.advise(fresh.address, area.bytes, target.flags);
            self.free(&target);
            return None;
        }
        if target.flags & MOVED == 0 {
            // A giant area's mappings go with it; the mark only says that it is two.
            if !self.is_giant(&target) {
                self.areas.moved.fetch_add(1, Relaxed);
                self.board().raise(Level::Mappings, 2);
            }
            self.regions.desc(target.pfn).set(Kind::Area, target.flags | MOVED);
        }
        self.cache.sets.count(Event::AreaMove, 1);
        if self.is_giant(area) {
            self.free(area);
            return Some(fresh.address);
        }
        // The source is mapped, empty and zero: free at once.
        self.account_alone(-(area.bytes as isize), 0);
        self.settle(area.pfn, area.bytes / PAGE, area.flags, true);
        Some(fresh.address)
    }

    /// Advises fresh memory as its neighbours are, so that the mappings merge.
    fn advise(&self, at: usize, bytes: usize, flags: u32) {
        let advice = if flags & HUGE != 0 { Advice::Huge } else { Advice::NoHuge };
        // SAFETY: memory of ours; this advice keeps contents.
        let _ = unsafe { sys::advise(at, bytes, advice) };
    }

    /// Puts clean pages into the tree. `clean`: the system has taken them already.
    fn settle(&self, pfn: Pfn, pages: usize, flags: u32, mut clean: bool) {
        let (at, bytes) = (self.regions.address(pfn), pages * PAGE);
        if flags & MOVED != 0 {
            // SAFETY: free memory of ours.
            clean = unsafe { sys::map_over(at, bytes, Access::ReadWrite) }.is_ok();
            if clean {
                self.areas.moved.fetch_sub(1, Relaxed);
                self.board().lower(Level::Mappings, 2);
                self.advise(at, bytes, flags);
            }
        } else if !clean {
            // SAFETY: free memory of ours.
            clean = unsafe { give_back(at, bytes) };
        }
        let mut state = self.space(flags).state.lock();
        self.regions.desc(pfn).set(Kind::None, 0);
        if clean {
            state.tree.insert(self.regions, pfn, pages);
        } else {
            // Clean are only the bytes that the call reported: it stays lazy.
            self.make_lazy(&mut state, pfn, pages, flags);
            self.account(flags, 0, bytes as isize);
            drop(state);
            self.cache.sets.count(Event::PurgeRefused, 1);
        }
    }

    /// Gives all lazily freed areas back to the system; their bytes.
    pub fn purge(&self) -> usize {
        self.areas.spaces.iter().map(|space| self.purge_space(space)).sum()
    }

    fn purge_space(&self, space: &Space) -> usize {
        // All pools into one list, under the lock.
        let mut list = Pfn::NONE;
        {
            let mut state = space.state.lock();
            for pool in &mut state.pools {
                while *pool != Pfn::NONE {
                    let at = *pool;
                    *pool = self.regions.desc(at).links().0;
                    self.regions.desc(at).set_links(list, Pfn::NONE);
                    list = at;
                }
            }
        }
        if list == Pfn::NONE {
            return 0;
        }
        let mut at = self.sort(list);
        let mut bytes = 0;
        while at != Pfn::NONE {
            let flags = self.regions.desc(at).rest();
            let first = at;
            let mut pages = self.regions.desc(at).len();
            at = self.regions.desc(at).links().0;
            // Neighbours in one call. A moved area has a mapping of its own.
            while flags & MOVED == 0
                && at == first.add(pages)
                && first.same_window(at)
                && self.regions.desc(at).rest() & MOVED == 0
            {
                let next = self.regions.desc(at);
                pages += next.len();
                let after = next.links().0;
                next.set(Kind::None, 0);
                at = after;
            }
            bytes += pages * PAGE;
            self.settle(first, pages, flags, false);
        }
        // One settlement per purge, not one per area (seed 000).
        self.account_alone(0, -(bytes as isize));
        self.cache.sets.count(Event::Purge, 1);
        self.cache.sets.count(Event::PurgeBytes, bytes as u64);
        bytes
    }

    fn next(&self, at: Pfn) -> Pfn {
        self.regions.desc(at).links().0
    }

    /// Sorts a list of areas by address: merges runs of doubling length, no memory.
    fn sort(&self, mut list: Pfn) -> Pfn {
        let mut width = 1;
        loop {
            let (mut head, mut tail, mut rest, mut merges) = (Pfn::NONE, Pfn::NONE, list, 0);
            while rest != Pfn::NONE {
                merges += 1;
                let mut left = rest;
                let mut lefts = 0;
                while lefts < width && rest != Pfn::NONE {
                    rest = self.next(rest);
                    lefts += 1;
                }
                let (mut right, mut rights) = (rest, width);
                while lefts > 0 || (rights > 0 && right != Pfn::NONE) {
                    let from_left = lefts > 0 && (rights == 0 || right == Pfn::NONE || left < right);
                    let node = if from_left { left } else { right };
                    if from_left {
                        left = self.next(left);
                        lefts -= 1;
                    } else {
                        right = self.next(right);
                        rights -= 1;
                    }
                    if tail == Pfn::NONE {
                        head = node;
                    } else {
                        self.regions.desc(tail).set_links(node, Pfn::NONE);
                    }
                    tail = node;
                }
                rest = right;
            }
            if tail != Pfn::NONE {
                self.regions.desc(tail).set_links(Pfn::NONE, Pfn::NONE);
            }
            list = head;
            if merges <= 1 {
                return list;
            }
            width *= 2;
        }
    }

    /// Checks both spaces; for tests.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn verify(&self) {
        for space in &self.areas.spaces {
            let state = space.state.lock();
            let mut end = Pfn::NONE;
            state.tree.verify(self.regions, &mut |at, pages| {
                assert!(at > end || !at.same_window(end), "runs overlap or touch");
                end = at.add(pages);
            });
        }
    }
}

#[cfg(test)]
mod tests;
