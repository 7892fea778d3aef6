//! # Frees: an area becomes lazy
//!
//! It goes among the dirty runs, where its neighbours are; one that merges with nothing to a list of its space. See the
//! picture of [`super`].
//!
//! Units: pages; bytes at the door. Locks: the space's. Cost: a lock and some 40 loads and stores.

use super::lists::LISTS;
use super::{ALONE, Area, Freed, Kind, Space, State, Vmap};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{AcqRel, Relaxed};
use crate::arch::sys;
use crate::page::Pfn;
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

    /// Of two that free the same area at the same time one wins.
    #[inline]
    pub(super) fn give_up(&self, area: &Area) -> bool {
        let desc = self.windows.desc(area.pfn);
        let (busy, lazy) = (area.flags << 8 | Kind::Area as u32, area.flags << 8 | Kind::Lazy as u32);
        if sys::single_threaded() {
            let ours = desc.tag.load(Relaxed) == busy;
            if ours {
                desc.tag.store(lazy, Relaxed);
            }
            return ours;
        }
        // AcqRel: nothing of this free happens before it is ours.
        desc.tag.compare_exchange(busy, lazy, AcqRel, Relaxed).is_ok()
    }

    /// An area that a CPU's front had goes among the others. (One that is there no more was freed twice.)
    pub fn let_go(&self, address: usize) {
        let Some((_, pfn)) = self.windows.find(address) else { return };
        let desc = self.windows.desc(pfn);
        if desc.kind() == Kind::Front {
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

    /// Puts lazy pages there, under the space's lock.
    pub(super) fn keep(&self, space: &Space, state: &mut State, pfn: Pfn, pages: usize, flags: u32) {
        if flags & ALONE == 0 {
            state.dirty.insert(self.windows, pfn, pages, flags);
        } else {
            self.windows.desc(pfn).set_len(pages);
            space.rest.put(self.windows, pfn, pages);
        }
    }

    /// The areas of lists that are in our hand. (Each may go elsewhere when it is its turn.)
    pub(super) fn chains(&self, heads: &[Pfn; LISTS]) -> impl Iterator<Item = Pfn> {
        heads.iter().flat_map(move |&head| {
            let mut next = head;
            core::iter::from_fn(move || {
                let at = next;
                (at != Pfn::NONE).then(|| next = self.windows.desc(at).links().0)?;
                Some(at)
            })
        })
    }
}
