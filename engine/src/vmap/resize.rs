//! # Areas that grow and shrink where they are, and areas that move
//!
//! ```text
//! │ area │ lazy, dirty or free pages │ … window's end │      grows over them, and over the end
//! │ area │ what is cut: dirty        │                      shrinks
//! │ empty, free now │ … │ area       │                      moves: its pages' tables, not their bytes
//! ```
//! Units: pages; bytes at the door. Locks: those of what lies behind. Cost: O(log n), or two system calls for a move.

use super::{ALONE, Area, GIANT, GUARD, Kind, MOVED, Vmap};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::sys::{self, Access};
use crate::knob::Id;
use crate::page::Pfn;
use crate::stat::{Event, Level};

impl Vmap<'_> {
    /// Makes an area `bytes` long where it is; false if its neighbour is in the way.
    #[must_use]
    pub fn resize(&self, area: &Area, bytes: usize) -> bool {
        let (now, then) = (area.bytes / PAGE, bytes.max(1).div_ceil(PAGE));
        if now == then {
            return true;
        }
        // A guard page stays where it is.
        if self.is_giant(area) || then > GIANT || (then > now && area.flags & GUARD != 0) {
            return false;
        }
        let desc = self.windows.desc(area.pfn);
        if then < now {
            // The tail becomes a lazy area of its own. A moved area stays whole: its tail
            // could not be mapped afresh with it.
            if area.flags & ALONE != 0 {
                return now / 2 <= then;
            }
            desc.set_len(then);
            let tail = area.pfn.add(then);
            self.put_lazy(tail, now - then, area.flags);
        } else {
            // What is behind it: lazy, with its old contents; free; not there yet. (A moved area's mapping may be another's
            // than theirs: it is mapped afresh with them when it is purged.)
            let (tail, more, flags) = (area.pfn.add(now), then - now, area.flags & !MOVED);
            if self.may_take_behind(tail, more, flags).is_none() {
                return false;
            }
            let got = self.take_behind(tail, more, flags);
            if got < more {
                if got > 0 {
                    self.put_lazy(tail, got, flags);
                }
                return false;
            }
            desc.set_len(then);
            self.board().grown();
        }
        self.cache.sets.count(Event::AreaGrow, 1);
        true
    }

    /// Pages without memory that an area would have more if it grew to `bytes` where it is; `None` if it cannot. A look.
    #[must_use]
    pub fn fresh_behind(&self, area: &Area, bytes: usize) -> Option<usize> {
        let (now, then) = (area.bytes / PAGE, bytes.div_ceil(PAGE));
        if self.is_giant(area) || then > GIANT || area.flags & GUARD != 0 {
            return None;
        }
        self.may_take_behind(area.pfn.add(now), then.checked_sub(now)?, area.flags & !MOVED)
    }

    /// Whether so many pages from `tail` on are lazy or free, or would lie behind the window's end: how many of them are
    /// not lazy. A look.
    fn may_take_behind(&self, tail: Pfn, pages: usize, flags: u32) -> Option<usize> {
        let end = self.windows.end(Pfn(tail.0 - 1));
        let (mut at, mut lazy) = (tail, 0);
        while at < end && ((at.0 - tail.0) as usize) < pages {
            let desc = self.windows.desc(at);
            match (desc.kind(), desc.rest()) {
                (Kind::Lazy | Kind::Dirty, rest) if rest == flags => lazy += desc.len(),
                (Kind::Run, _) => {}
                _ => return None,
            }
            // (Of a giant area, which is none of these, it is 0.)
            at = at.add(desc.len().max(1));
        }
        Some(pages.saturating_sub(lazy))
    }

    /// Takes up to `pages` such pages; how many.
    fn take_behind(&self, tail: Pfn, pages: usize, flags: u32) -> usize {
        let end = self.windows.end(Pfn(tail.0 - 1));
        let mut got = 0;
        while got < pages {
            let (at, left) = (tail.add(got), pages - got);
            let (kind, rest, len) = if at < end {
                let desc = self.windows.desc(at);
                (desc.kind(), desc.rest(), desc.len())
            } else {
                (Kind::Run, 0, 0)
            };
            if kind == Kind::Dirty && rest == flags {
                let some = self.take_dirty_behind(at, left, flags);
                if some > 0 {
                    got += some;
                    continue;
                }
            }
            if kind == Kind::Lazy && rest == flags && len > 0 && self.take_this(at, len, flags) {
                self.windows.desc(at).set(Kind::None, 0);
                if len > left {
                    self.put_lazy(at.add(left), len - left, flags);
                }
                got += len.min(left);
                continue;
            }
            // The last one goes on behind the window's end.
            let some = if at.add(len) < end { len.min(left) } else { left };
            if kind != Kind::Run || !self.take_free_behind(at, some, flags) {
                break;
            }
            got += some;
        }
        got
    }

    /// Pages of an area that is cut are dirty.
    fn put_lazy(&self, first: Pfn, pages: usize, flags: u32) {
        self.put_aside(first, pages, flags);
    }

    /// Takes up to `pages` pages of the dirty run that begins there, if there still is one; how many.
    fn take_dirty_behind(&self, at: Pfn, pages: usize, flags: u32) -> usize {
        let mut state = self.space(flags).state.lock();
        // (Under the lock nobody else makes a run one or takes it; a window's end was looked at before.)
        if self.windows.desc(at).kind() != Kind::Dirty || self.windows.desc(at).rest() != flags {
            return 0;
        }
        let got = state.dirty.take_at(self.windows, at, pages);
        self.differ(flags, &state, -((got * PAGE) as isize));
        got
    }

    /// Takes a lazy area off whichever list it is on; false if it is in somebody's hand, or hard to find.
    fn take_this(&self, area: Pfn, pages: usize, flags: u32) -> bool {
        let space = self.space(flags);
        let is_here = space.rest.may_have(pages) && {
            let _state = space.state.lock();
            space.rest.take_this(self.windows, area, pages)
        };
        let is_here = is_here || self.take_pending_one(area, pages);
        if is_here {
            let bytes = (pages * PAGE) as isize;
            self.account(bytes, -bytes);
        }
        is_here
    }

    /// Takes exactly these pages, if they are free or can be had where a window ends.
    fn take_free_behind(&self, tail: Pfn, pages: usize, flags: u32) -> bool {
        let Some(charged) = self.charge(pages * PAGE, 0) else { return false };
        let mut state = self.space(flags).state.lock();
        let is_ours = state.take_behind(self.windows, self.board(), tail, pages);
        drop(state);
        if !is_ours {
            self.discharge(charged, pages * PAGE);
        } else if !charged {
            self.account((pages * PAGE) as isize, 0);
        }
        is_ours
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
        if threshold == 0 || area.bytes < threshold || area.flags & ALONE != 0 || bytes <= area.bytes {
            return None;
        }
        if u64::from(self.areas.moved.load(Relaxed)) >= self.cache.knobs.get(Id::MoveLimit) {
            return None;
        }
        // (Its pages move: what it has counts as gone.)
        let (pages, align, flags) = self.shape(bytes, PAGE);
        // (Not dirty pages, which the move would throw away.)
        let fresh = self.alloc_charged(flags, pages, [align, 1], area.bytes)?;
        let target = self.find(fresh.address)?;
        let from = self.windows.address(area.pfn);
        // SAFETY: both are ours; the target's contents are not needed.
        if unsafe { sys::move_pages(from, fresh.address, area.bytes) }.is_err() {
            // The kernel may have unmapped the target before it gave up.
            // SAFETY: ours, and nothing in it is needed.
            let mapped = unsafe { sys::map_over(fresh.address, area.bytes, Access::ReadWrite) };
            if mapped.is_ok() {
                self.advise(fresh.address, area.bytes, target.flags);
                self.free(&target);
            } else {
                // Perhaps it is not mapped any more, and perhaps by now it is somebody else's: address
                // space that is never used again.
                self.windows.desc(target.pfn).set(Kind::None, 0);
                self.account(-(target.bytes as isize), 0);
                self.cache.sets.count(Event::AreaFree, 1);
            }
            return None;
        }
        if target.flags & MOVED == 0 {
            // A giant area's mappings go with it; the mark only says that it is two.
            if !self.is_giant(&target) {
                self.areas.moved.fetch_add(1, Relaxed);
                self.board().raise(Level::Mappings, 2);
            }
            self.windows.desc(target.pfn).set(Kind::Area, target.flags | MOVED);
        }
        self.cache.sets.count(Event::AreaMove, 1);
        if self.is_giant(area) {
            self.cache.sets.count(Event::AreaFree, 1);
            self.drop_giant(area);
            return Some(fresh.address);
        }
        // The source is mapped, empty and zero: free at once.
        self.account(-(area.bytes as isize), 0);
        self.space(area.flags).state.lock().tree.insert(self.windows, area.pfn, area.bytes / PAGE);
        Some(fresh.address)
    }
}
