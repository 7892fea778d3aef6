//! # Freed memory that is used again
//!
//! The front of this node, of any other, a list of what merges with nothing, the shortest dirty run that the request fits
//! into; and where none is long enough, a dirty run with the free pages beside it. See the picture of [`super`].
//!
//! Units: pages; bytes at the door. Locks: a turn, or the space's. Cost: some 25 loads, or a lock and 40.

use super::node::Want;
use super::{Fresh, Kind, LIKE, Vmap};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::page::Pfn;
use crate::stat::Event;

impl Vmap<'_> {
    /// An area of freed memory with its old contents: one of that size, or a part of a dirty run; `None` if there is none.
    /// Cost: a turn, or a turn and a lock.
    pub fn reuse(&self, bytes: usize, align: usize) -> Option<Fresh> {
        let asked = align.div_ceil(PAGE).max(1);
        let (pages, align, flags) = self.shape(bytes, align);
        let Some(flags) = flags else { return self.reuse_giant(pages, align) };
        // (What is reused is aligned as was asked, not as moves like it.)
        self.reuse_like(Want { pages, align: asked, flags, mask: LIKE })
            .or_else(|| self.reuse_part(flags, pages, asked))
    }

    /// The same, only of that very size: what is cleared as a whole should be what was used as a whole.
    pub(super) fn reuse_whole(&self, bytes: usize, align: usize) -> Option<Fresh> {
        let (pages, align, flags) = self.shape(bytes, align);
        self.reuse_like(Want { pages, align, flags: flags?, mask: LIKE })
    }

    /// A part of a dirty run.
    fn reuse_part(&self, flags: u32, pages: usize, align: usize) -> Option<Fresh> {
        let mut state = self.space(flags).state.lock_elided();
        let pfn = state.dirty.take(self.windows, pages, align)?;
        self.take_in(pfn, pages, flags);
        self.differ(Self::space_node(flags), &state, -((pages * PAGE) as isize));
        drop(state);
        self.cache.sets.count(Event::AreaReuse, 1);
        Some(Fresh { address: self.windows.address(pfn), zero: false })
    }

    /// A dirty run with the free pages beside it, where no dirty run is long enough: fewer pages to fault in than in a
    /// free run.
    pub(super) fn reuse_mixed(&self, bytes: usize, align: usize) -> Option<Fresh> {
        let (pages, _, flags) = self.shape(bytes, align);
        // (With a hard limit every fresh page is charged before it is taken.)
        if align > PAGE || self.cache.knobs.hard_limit() != u64::MAX {
            return None;
        }
        let flags = flags?;
        let mut state = self.space(flags).state.lock_elided();
        let (pfn, dirty) = state.take_mixed(self.windows, pages)?;
        self.take_in(pfn, pages, flags);
        drop(state);
        self.account((pages * PAGE) as isize, -((dirty * PAGE) as isize));
        Some(Fresh { zero: false, ..self.begin(pfn, Event::AreaAlloc) })
    }

    #[inline]
    pub(super) fn reuse_like(&self, want: Want) -> Option<Fresh> {
        let pfn = self.reuse_from(self.home(), want).or_else(|| self.reuse_elsewhere(want))?;
        Some(self.reused(pfn))
    }

    /// A lazy area in our hand is somebody's again.
    #[inline]
    fn reused(&self, pfn: Pfn) -> Fresh {
        let desc = self.windows.desc(pfn);
        desc.set(Kind::Area, desc.rest());
        self.cache.sets.count(Event::AreaReuse, 1);
        Fresh { address: self.windows.address(pfn), zero: false }
    }

    #[inline]
    fn reuse_from(&self, at: usize, want: Want) -> Option<Pfn> {
        let node = &self.areas.nodes[at];
        if !node.may_have(want.pages) {
            return None;
        }
        let turn = node.enter()?;
        let pfn = turn.take(self.windows, want)?;
        self.differ(at, &turn, -((want.pages * PAGE) as isize));
        Some(pfn)
    }

    /// From any node, or one that merges with nothing.
    #[cold]
    fn reuse_elsewhere(&self, want: Want) -> Option<Pfn> {
        let top = self.areas.top.load(Relaxed) as usize;
        (0..top).find_map(|at| self.reuse_from(at, want)).or_else(|| {
            let space = self.space(want.flags);
            if !space.rest.may_have(want.pages) {
                return None;
            }
            let state = space.state.lock_elided();
            let pfn = space.rest.take(self.windows, want)?;
            self.differ(Self::space_node(want.flags), &state, -((want.pages * PAGE) as isize));
            Some(pfn)
        })
    }
}
