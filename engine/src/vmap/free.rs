//! # Frees: an area becomes lazy
//!
//! Small ones go to the front of the node, which sends what it holds among the dirty runs when it is full; larger ones go there at once; those
//! that merge with nothing to a list of their space. See the picture of [`super`].
//!
//! Units: pages; bytes at the door. Locks: a turn, or the space's. Cost: some 25 loads and a compare-and-swap, or a lock and 40.

use super::node::LISTS;
use super::{ALONE, Area, FRONT, FRONT_PAGES, Freed, Kind, Space, State, Vmap};
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
        if self.make_lazy(area.pfn, desc.len(), area.flags) { Freed::Told } else { Freed::Quietly }
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

    /// Puts an area that is `Lazy` and in our hand where the next one looks for it; whether the levels were told.
    fn make_lazy(&self, pfn: Pfn, pages: usize, flags: u32) -> bool {
        let bytes = (pages * PAGE) as isize;
        let front = if pages <= FRONT_PAGES && flags & ALONE == 0 { self.enter() } else { None };
        let Some((at, turn)) = front else { return self.put_aside(pfn, pages, flags) };
        if turn.count() < FRONT {
            turn.put(self.windows, pfn, pages);
            let told = self.differ(at, &turn, bytes);
            drop(turn);
            self.note_top(at);
            return told;
        }
        let (out, _) = turn.take_all();
        let moved = self.chains(&out).map(|at| self.windows.desc(at).len() * PAGE).sum::<usize>().cast_signed();
        turn.put(self.windows, pfn, pages);
        let mut told = self.differ(at, &turn, bytes - moved);
        drop(turn);
        for at in self.chains(&out) {
            let desc = self.windows.desc(at);
            told |= self.put_aside(at, desc.len(), desc.rest());
        }
        told
    }

    /// A node has something.
    fn note_top(&self, at: usize) {
        // Relaxed: a hint for who looks elsewhere, and a purge looks at all.
        if at >= self.areas.top.load(Relaxed) as usize {
            self.areas.top.fetch_max(at as u32 + 1, Relaxed);
        }
    }

    /// Puts pages that become lazy where they merge with others, or on the list of their space; whether the levels were told.
    pub(super) fn put_aside(&self, pfn: Pfn, pages: usize, flags: u32) -> bool {
        let space = self.space(flags);
        let mut state = space.state.lock_elided();
        self.keep(space, &mut state, pfn, pages, flags);
        self.differ(Self::space_node(flags), &state, (pages * PAGE) as isize)
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
