//! # Areas that grow and shrink where they are, and areas that move
//!
//! ```text
//! │ area │ lazy, dirty or free pages │ … window's end │      grows over them, and over the end
//! │ area │ what is cut: dirty        │                      shrinks
//! │ mapped afresh, free │ … │ area   │                      moves: its pages' tables; where the system refuses that, bytes, a huge page at a time
//! ```
//! A giant area has nothing behind it: it moves when it grows, and its end is unmapped when it shrinks.
//!
//! Units: pages; bytes at the door. Locks: those of what lies behind. Cost: O(log n), or three system calls for a move.

use super::areas::{Area, GIANT, Vmap};
use super::purge::SLICE;
use super::space::{GUARD, HUGE, MOVED};
use super::sparse::copy;
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::sys::{self, Access};
use crate::knob::Id;
use crate::page::{BLOCK_PAGES, Kind, Pfn, give_back};
use crate::stat::{Event, Level};

/// Bytes that a move by copy has twice, at most: a huge page.
const PIECE: usize = BLOCK_PAGES * PAGE;

impl Vmap<'_> {
    /// Makes an area `bytes` long where it is; false if that cannot be had (it is as it was then, but what was to be cut off may be
    /// empty).
    #[must_use]
    pub fn resize(&self, area: &Area, bytes: usize) -> bool {
        let (now, then) = (area.bytes / PAGE, bytes.max(1).div_ceil(PAGE));
        if now == then {
            return true;
        }
        if self.is_giant(area) {
            let is_cut = then < now && self.cut_giant(area, then);
            self.cache.sets.count(Event::AreaGrow, u64::from(is_cut));
            return is_cut;
        }
        // A guard page stays where it is.
        if then > GIANT || (then > now && area.flags & GUARD != 0) {
            return false;
        }
        self.forget_class(area.pfn);
        let desc = self.windows.desc(area.pfn);
        if then < now {
            if area.flags & GUARD != 0 || !self.may_be_two(area) {
                return now / 2 <= then;
            }
            desc.set_len(then);
            self.put_lazy(area.pfn.add(then), now - then, area.flags);
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
            if kind == Kind::Lazy && rest == flags && len > 0 && self.take_pending_one(at, len, flags) {
                let bytes = (len * PAGE) as isize;
                self.account(bytes, -bytes);
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

    /// Pages of an area that is cut are lazy.
    fn put_lazy(&self, first: Pfn, pages: usize, flags: u32) {
        self.windows.desc(first).set(Kind::Lazy, flags);
        self.put_aside(first, pages, flags);
    }

    /// Whether an area may be cut: of a moved one either part is mapped afresh by itself.
    fn may_be_two(&self, area: &Area) -> bool {
        area.flags & MOVED == 0
            || self.may_move() && {
                self.count_moved(1);
                true
            }
    }

    /// Whether there may be one more area whose mapping merges with no neighbour.
    fn may_move(&self) -> bool {
        u64::from(self.areas.moved.load(Relaxed)) < self.cache.knobs.get(Id::MoveLimit)
    }

    /// The end of a giant area goes back to the system: its memory first, beside which others may map, then its addresses.
    fn cut_giant(&self, area: &Area, pages: usize) -> bool {
        let (at, bytes, end) = (self.windows.address(area.pfn), pages * PAGE, area.bytes);
        for slice in (bytes..end).step_by(SLICE) {
            if self.gate.is_wanted() {
                break;
            }
            // SAFETY: the caller's, who gives it up. (What is refused is unmapped with the rest.)
            let _ = unsafe { give_back(at + slice, SLICE.min(end - slice)) };
        }
        // SAFETY: as above.
        let is_cut = unsafe { self.windows.cut_giant(self.board(), area.pfn, bytes) };
        if is_cut {
            self.board().lower(Level::Mapped, end - bytes);
            self.account(-((end - bytes) as isize), 0);
        }
        is_cut
    }

    /// Takes up to `pages` pages of the dirty run that begins there, if there still is one; how many.
    fn take_dirty_behind(&self, at: Pfn, pages: usize, flags: u32) -> usize {
        let mut state = self.space(flags).state.lock();
        // (Under the lock nobody else makes a run one or takes it; a window's end was looked at before.)
        if !self.windows.desc(at).is(Kind::Dirty, flags) {
            return 0;
        }
        let got = state.dirty.take_at(self.windows, at, pages);
        self.differ(flags, &state, -((got * PAGE) as isize));
        got
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

    /// Whether an area is to be moved sooner than to grow to `bytes` where it is: one that was moved is a mapping of its own, and what it grew
    /// over is another's, so that the kernel would refuse to move it again and all of it would be copied.
    #[must_use]
    pub fn moves_on(&self, area: &Area, bytes: usize) -> bool {
        let threshold = self.cache.knobs.size(Id::MoveBytes);
        area.flags & MOVED != 0 && threshold > 0 && bytes.saturating_sub(area.bytes) >= threshold
    }

    /// Moves an area into a new one of `bytes`, which never takes memory for both: by page tables, or a piece at a time where the system
    /// refuses that; its address. `None` if that cannot be done here (nothing has changed then).
    ///
    /// # Safety
    /// The caller owns the area and gives it up if this succeeds.
    pub unsafe fn relocate(&self, area: &Area, bytes: usize) -> Option<usize> {
        let threshold = self.cache.knobs.size(Id::MoveBytes);
        // (A guard page would go with it, and be in the middle.)
        if threshold == 0 || area.bytes < threshold || area.flags & GUARD != 0 || bytes <= area.bytes {
            return None;
        }
        let was_moved = area.flags & MOVED != 0;
        if !was_moved && !self.is_giant(area) && !self.may_move() {
            return None;
        }
        // Where nothing is ever clean again, each move would take fresh pages, and nobody those that are freed. (A hard limit may not allow
        // for a copy.)
        if self.areas.kept.load(Relaxed) && !self.is_giant(area) && self.cache.knobs.hard_limit() == u64::MAX {
            return None;
        }
        // (Its pages move: what it has counts as gone. And not dirty pages, which the move would throw away.)
        let (pages, align, flags) = self.shape(bytes, PAGE);
        let fresh = self.alloc_charged(flags, pages, [align, 1], area.bytes, true)?;
        let target = self.find(fresh.address)?;
        let was_huge = self.is_huge(area);
        // The kernel refuses what is not one mapping (one that was moved, and grew where it is).
        // SAFETY: both are ours; the target's contents are not needed.
        let is_moved = unsafe { self.move_to(area, &target) };
        if !is_moved {
            // It may have unmapped the target before it gave up. (Then another thread could map something there in between, if it asked for
            // this very address: nobody is given it who asks for none, but where addresses are scarce.)
            // SAFETY: ours, but for that, and nothing in it is needed.
            if unsafe { sys::map_over(fresh.address, target.bytes, Access::ReadWrite) }.is_err() {
                self.lose(&target);
                return None;
            }
            self.advise(fresh.address, target.bytes, target.flags);
            // SAFETY: both are ours, and the target is mapped.
            unsafe { self.copy_to(area, &target) };
        }
        if was_moved {
            self.count_moved(-1);
        }
        if !is_moved {
            return Some(fresh.address);
        }
        // (Its mapping is as the source's was.)
        if was_huge != self.is_huge(&target) {
            self.advise(fresh.address, target.bytes, if was_huge { 0 } else { HUGE });
        }
        // (A giant area's mapping goes with it.)
        if !self.is_giant(&target) {
            self.count_moved(1);
            self.windows.desc(target.pfn).set(Kind::Area, target.flags | MOVED);
        }
        self.cache.sets.count(Event::AreaMove, 1);
        Some(fresh.address)
    }

    /// The move itself; false if the system refuses. The source is free then, or nobody's.
    ///
    /// # Safety
    /// As [`Vmap::relocate`], and nothing in the target is needed.
    unsafe fn move_to(&self, area: &Area, target: &Area) -> bool {
        let (from, to) = (self.windows.address(area.pfn), self.windows.address(target.pfn));
        let desc = self.windows.desc(area.pfn);
        if self.is_giant(area) {
            desc.set(Kind::None, 0);
            // SAFETY: the caller's promise.
            let is_moved = unsafe { self.windows.move_giant(self.board(), area.pfn, to, target.bytes) };
            if is_moved {
                self.board().lower(Level::Mapped, area.bytes);
                self.account(-(area.bytes as isize), 0);
                self.cache.sets.count(Event::AreaFree, 1);
            } else {
                desc.set(Kind::Area, area.flags);
            }
            return is_moved;
        }
        self.forget_class(area.pfn);
        // SAFETY: the caller's promise.
        if unsafe { sys::move_longer(from, area.bytes, to, target.bytes) }.is_err() {
            return false;
        }
        self.leave(area, sys::map_hole(from, area.bytes).is_ok());
        true
    }

    /// The same by a copy: each huge page of the source goes back to the system when its bytes are there, so that whoever has just so much
    /// memory can be served.
    ///
    /// # Safety
    /// As [`Vmap::relocate`], and the target is mapped and zero.
    unsafe fn copy_to(&self, area: &Area, target: &Area) {
        let (from, to) = (self.windows.address(area.pfn), self.windows.address(target.pfn));
        let mut at = 0;
        while at < area.bytes {
            let piece = (PIECE - (from + at) % PIECE).min(area.bytes - at);
            // SAFETY: within both; then nothing in that piece of the source is needed. (What is refused goes with the rest.)
            unsafe {
                copy((from + at) as *const u8, (to + at) as *mut u8, piece);
                let _ = give_back(from + at, piece);
            }
            at += piece;
        }
        // SAFETY: the caller gives it up.
        self.leave(area, unsafe { sys::map_over(from, area.bytes, Access::ReadWrite) }.is_ok());
    }

    /// What had an area that is elsewhere by now is free if it is mapped afresh, and lost else.
    fn leave(&self, area: &Area, is_afresh: bool) {
        if is_afresh {
            self.advise(self.windows.address(area.pfn), area.bytes, area.flags);
            self.free_empty(area);
        } else {
            self.lose(area);
        }
    }

    /// Whether its mapping is for huge pages.
    fn is_huge(&self, area: &Area) -> bool {
        let huge_bytes = self.cache.knobs.size(Id::HugeBytes);
        area.flags & HUGE != 0 || self.is_giant(area) && huge_bytes > 0 && area.bytes >= huge_bytes
    }

    /// Frees an area that is mapped, empty and zero.
    fn free_empty(&self, area: &Area) {
        self.cache.sets.count(Event::AreaFree, 1);
        if self.is_giant(area) {
            return self.drop_giant(area);
        }
        self.account(-(area.bytes as isize), 0);
        self.space(area.flags).state.lock().tree.insert(self.windows, area.pfn, area.bytes / PAGE);
    }

    /// An area that perhaps is not mapped any more, and perhaps by now is somebody else's: address space that is never used again.
    fn lose(&self, area: &Area) {
        self.cache.sets.count(Event::AreaFree, 1);
        self.account(-(area.bytes as isize), 0);
        self.windows.desc(area.pfn).set(Kind::None, 0);
    }
}
