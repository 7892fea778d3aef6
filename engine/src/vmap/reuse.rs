//! # Freed memory that is used again
//!
//! A list of what merges with nothing, the shortest dirty run that the request fits into; and where none is long enough, a
//! dirty run with the free pages beside it. See the picture of [`super`].
//!
//! Units: pages; bytes at the door. Locks: the space's. Cost: a lock and some 40 loads and stores.

use super::lists::Want;
use super::{Fresh, Kind, LIKE, Vmap};
use crate::arch::PAGE;
use crate::stat::Event;

impl Vmap<'_> {
    /// An area of freed memory with its old contents: one of that size, or a part of a dirty run; `None` if there is none.
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
    pub(super) fn reuse_part(&self, flags: u32, pages: usize, align: usize) -> Option<Fresh> {
        let mut state = self.space(flags).state.lock_elided();
        let pfn = state.dirty.take(self.windows, pages, align)?;
        self.take_in(pfn, pages, flags);
        self.differ(flags, &state, -((pages * PAGE) as isize));
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

    /// An area that merges with nothing.
    #[inline]
    pub(super) fn reuse_like(&self, want: Want) -> Option<Fresh> {
        let space = self.space(want.flags);
        if !space.rest.may_have(want.pages) {
            return None;
        }
        let state = space.state.lock_elided();
        let pfn = space.rest.take(self.windows, want)?;
        self.differ(want.flags, &state, -((want.pages * PAGE) as isize));
        drop(state);
        let desc = self.windows.desc(pfn);
        desc.set(Kind::Area, desc.rest());
        self.cache.sets.count(Event::AreaReuse, 1);
        Some(Fresh { address: self.windows.address(pfn), zero: false })
    }
}
