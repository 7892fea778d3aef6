//! # Frees: an area becomes lazy
//!
//! It goes among the dirty runs, where its neighbours are; one that merges with nothing to a list of its space. See the
//! picture of [`super`].
//!
//! Units: pages; bytes at the door. Locks: the space's. Cost: a lock and some 40 loads and stores.

use super::areas::{Area, Freed, Vmap};
use crate::arch::PAGE;
use crate::cache::front;
use crate::page::{Kind, Pfn};
use crate::stat::{BadPointer, Event};

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
        if self.put_aside(area.pfn, desc.len(), area.flags) { Freed::Told } else { Freed::Quietly }
    }

    /// An area that a CPU's front had in this class goes among the others.
    ///
    /// # Errors
    /// There is none any more: it was freed twice, or this is not where it begins.
    pub fn let_go(&self, address: usize, class: usize) -> Result<(), BadPointer> {
        let pfn = self.in_front(address, class)?;
        let desc = self.windows.desc(pfn);
        self.forget_class(pfn);
        desc.set(Kind::Lazy, desc.rest());
        self.put_aside(pfn, desc.len(), desc.rest());
        Ok(())
    }

    /// The bytes of such an area; 0 if it is there no more.
    #[must_use]
    pub fn front_bytes(&self, address: usize, class: usize) -> usize {
        self.in_front(address, class).map_or(0, |pfn| self.windows.desc(pfn).len() * PAGE)
    }

    /// The first page of an area that this class of a front has, as far as its descriptor says.
    fn in_front(&self, address: usize, class: usize) -> Result<Pfn, BadPointer> {
        if !address.is_multiple_of(PAGE) {
            return Err(BadPointer::Interior);
        }
        let (_, pfn) = self.windows.find(address).ok_or(BadPointer::Foreign)?;
        let desc = self.windows.desc(pfn);
        let is_here = match desc.kind() {
            Kind::Front => true,
            Kind::Area => !front::is_marked(class) && front::holds(desc.len()) == class,
            _ => false,
        };
        if is_here { Ok(pfn) } else { Err(BadPointer::Double) }
    }

    /// Puts pages that become lazy where they merge with others, or on the list of their space; whether the levels were told.
    pub(super) fn put_aside(&self, pfn: Pfn, pages: usize, flags: u32) -> bool {
        let space = self.space(flags);
        let mut state = self.lock(space);
        self.keep(space, &mut state, pfn, pages, flags);
        self.differ(flags, &state, (pages * PAGE) as isize)
    }
}
