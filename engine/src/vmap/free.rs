//! # Frees: an area becomes lazy
//!
//! It goes among the dirty runs, where its neighbours are; one that merges with nothing to a list of its space. See the
//! picture of [`super`].
//!
//! Units: pages; bytes at the door. Locks: the space's. Cost: a lock and some 40 loads and stores.

use super::areas::{Area, Freed, Vmap};
use crate::arch::PAGE;
use crate::page::{Kind, Pfn};
use crate::stat::Event;

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

    /// An area that a CPU's front had goes among the others. (One that is there no more was freed twice.)
    pub fn let_go(&self, address: usize) {
        let Some((_, pfn)) = self.windows.find(address) else { return };
        let desc = self.windows.desc(pfn);
        if desc.kind() == Kind::Front {
            self.forget_class(pfn);
            desc.set(Kind::Lazy, desc.rest());
            self.put_aside(pfn, desc.len(), desc.rest());
        }
    }

    /// The bytes of such an area; 0 if it is there no more.
    #[must_use]
    pub fn front_bytes(&self, address: usize) -> usize {
        let desc = self.windows.find(address).map(|(_, pfn)| self.windows.desc(pfn));
        desc.filter(|desc| desc.kind() == Kind::Front).map_or(0, |desc| desc.len() * PAGE)
    }

    /// Puts pages that become lazy where they merge with others, or on the list of their space; whether the levels were told.
    pub(super) fn put_aside(&self, pfn: Pfn, pages: usize, flags: u32) -> bool {
        let space = self.space(flags);
        let mut state = self.lock(space);
        self.keep(space, &mut state, pfn, pages, flags);
        self.differ(flags, &state, (pages * PAGE) as isize)
    }
}
