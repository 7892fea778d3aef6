//! # Frees: an area becomes lazy
//!
//! It goes among the dirty runs, where its neighbours are; one that merges with nothing to a list of its space. See the
//! picture of [`super`].
//!
//! Units: pages; bytes at the door. Locks: the space's. Cost: a lock and some 40 loads and stores.

use super::areas::{Area, Freed, Vmap};
use super::space::{HUGE, PLAIN};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{AcqRel, Relaxed};
use crate::arch::sys;
use crate::cache::front;
use crate::page::{Desc, Kind, Pfn};
use crate::stat::{BadPointer, Event};

/// Pages of the longest areas that wait for a request of about their length: 64 MiB.
const WIDEST: usize = (64 << 20) / PAGE;

impl Vmap<'_> {
    /// Frees an area lazily.
    pub fn free(&self, area: &Area) -> Freed {
        let desc = self.windows.desc(area.pfn);
        if desc.kind() == Kind::Area && desc.len() == 0 {
            let freed = self.free_giant(area);
            self.cache.sets.count(Event::AreaFree, u64::from(freed != Freed::Not));
            return freed;
        }
        if !self.give_up(area) {
            return Freed::Not;
        }
        self.cache.sets.count(Event::AreaFree, 1);
        // (Read when it is ours: of two that free it at once, the other's pages may be somebody's by now.)
        let pages = desc.len();
        if pages > front::LONGEST {
            self.areas.wide.went(self.windows.address(area.pfn));
        }
        if self.put_aside(area.pfn, pages, area.flags) { Freed::Told } else { Freed::Quietly }
    }

    /// Takes an area of 8 to 64 MiB that waits for a request of about so many bytes. One that does not serve after all is for `lets_go`: nobody need be inside.
    pub fn take_wide(&self, bytes: usize, lets_go: impl FnOnce(usize)) -> Option<usize> {
        let (pages, _, flags) = self.shape(bytes, PAGE);
        let flags = flags?;
        let fits = |area: usize| {
            let Some((_, desc)) = self.windows.look(area) else { return false };
            let len = desc.len();
            desc.kind() == Kind::Front && len >= pages && len - pages <= pages / 8 && (desc.rest() ^ flags) & HUGE == 0
        };
        let area = self.areas.wide.take(self.cache.sets.cpus.index(), fits)?;
        let desc = self.windows.look(area)?.1;
        if !fits(area) {
            // (Another of that address came in between.)
            lets_go(area);
            return None;
        }
        desc.begin_area(desc.rest());
        self.cache.sets.count(Event::AreaReuse, 1);
        Some(area)
    }

    /// An area that is given up waits for such a request; false if it is the caller's still.
    pub fn put_wide(&self, address: usize) -> bool {
        let Some((_, desc)) = self.windows.look(address) else { return false };
        let tag = desc.tag.load(Relaxed);
        let is_plain = tag & PLAIN & !(HUGE << 8) == Kind::Area as u32 && address.is_multiple_of(PAGE);
        if !is_plain || !(front::LONGEST + 1..=WIDEST).contains(&desc.len()) {
            return false;
        }
        // Of two that free it at once one goes on. (AcqRel: as in `claim`.)
        let marked = tag & !0xff | Kind::Front as u32;
        if sys::single_threaded() {
            desc.tag.store(marked, Relaxed);
        } else if desc.tag.compare_exchange(tag, marked, AcqRel, Relaxed).is_err() {
            return false;
        }
        let is_put = self.areas.wide.put(self.cache.sets.cpus.index(), address);
        if is_put {
            self.cache.sets.count(Event::AreaFree, 1);
        } else {
            desc.set(Kind::Area, desc.rest());
        }
        is_put
    }

    /// Bytes that wait.
    #[must_use]
    pub fn wide_bytes(&self) -> usize {
        let bytes = |area| self.front_bytes(area, front::LONG);
        self.areas.wide.peek().map(bytes).sum()
    }

    /// What waits goes among the others, inside.
    #[inline]
    pub fn empty_wide(&self) {
        if !self.areas.wide.is_empty() {
            self.empty_wide_now();
        }
    }

    #[cold]
    #[inline(never)]
    fn empty_wide_now(&self) {
        for area in self.areas.wide.take_all() {
            let _ = self.let_go(area, front::LONG);
        }
    }

    /// An area that a CPU's front had in this class goes among the others.
    ///
    /// # Errors
    /// There is none any more: it was freed twice, or this is not where it begins.
    pub fn let_go(&self, address: usize, class: usize) -> Result<(), BadPointer> {
        let (pfn, desc) = self.in_front(address, class)?;
        self.forget_class(pfn);
        desc.set(Kind::Lazy, desc.rest());
        self.put_aside(pfn, desc.len(), desc.rest());
        Ok(())
    }

    /// The bytes of such an area; 0 if it is there no more.
    #[must_use]
    pub fn front_bytes(&self, address: usize, class: usize) -> usize {
        self.in_front(address, class).map_or(0, |(_, desc)| desc.len() * PAGE)
    }

    /// The first page of an area that this class of a front has, as far as its descriptor says, and that.
    fn in_front(&self, address: usize, class: usize) -> Result<(Pfn, &Desc), BadPointer> {
        if !address.is_multiple_of(PAGE) {
            return Err(BadPointer::Interior);
        }
        let (pfn, desc) = self.windows.look(address).ok_or(BadPointer::Foreign)?;
        let is_here = match desc.kind() {
            Kind::Front => true,
            Kind::Area if front::is_marked(class) => self.windows.is_held(address),
            Kind::Area => front::holds(desc.len()) == class,
            _ => false,
        };
        if is_here { Ok((pfn, desc)) } else { Err(BadPointer::Double) }
    }

    /// Two areas that a front has, or had until now, are one if they lie beside each other: where it begins. Both are the caller's.
    pub fn join_front(&self, one: usize, other: usize, class: usize) -> Option<usize> {
        let (first, second) = (one.min(other), one.max(other));
        // (One that was freed twice is told when it goes by itself.)
        let ((before, its), (behind, last)) = (self.in_front(first, class).ok()?, self.in_front(second, class).ok()?);
        let is_beside = before.add(its.len()) == behind && before.same_window(behind);
        if !is_beside || its.rest() != last.rest() {
            return None;
        }
        self.unite(its, last, second);
        Some(first)
    }

    /// An area that is nobody's and the front's that begins at `second`, behind it, are one, which is the front's.
    #[inline(always)]
    pub fn unite(&self, its: &Desc, last: &Desc, second: usize) {
        its.set_len(its.len() + last.len());
        its.link.store(0, Relaxed);
        its.set(Kind::Front, its.rest());
        last.set(Kind::None, 0);
        self.windows.forget_class(second);
    }

    /// Puts pages that become lazy where they merge with others, or on the list of their space; whether the levels were told.
    pub(super) fn put_aside(&self, pfn: Pfn, pages: usize, flags: u32) -> bool {
        let space = self.space(flags);
        let mut state = self.lock(space);
        self.keep(space, &mut state, pfn, pages, flags);
        self.differ(flags, &state, (pages * PAGE) as isize)
    }
}
