//! # Freed memory that is used again
//!
//! A list of what merges with nothing, the shortest dirty run that the request fits into; where none is long enough, a large piece of another
//! space's that nobody is in, which is this one's from then on; and where there is none, a dirty run with the free pages beside it. See the picture of
//! [`super`].
//!
//! Units: pages; bytes at the door. Locks: the space's. Cost: a lock and some 40 loads and stores.

use super::areas::{Fresh, Vmap};
use super::lists::Want;
use super::space::{HUGE, LIKE, Space, State};
use crate::arch::PAGE;
use crate::cache::front::LONGEST;
use crate::page::Pfn;
use crate::stat::Event;

/// Pages of a piece of another space's, at least.
const PIECE: usize = 512;

impl Vmap<'_> {
    /// An area of freed memory with its old contents: one of that size, or a part of a dirty run; `None` if there is none.
    pub fn reuse(&self, bytes: usize, align: usize) -> Option<Fresh> {
        self.reuse_more(bytes, bytes, align)
    }

    /// The same; where a dirty run has more than that behind it, up to `most` bytes in all.
    pub fn reuse_more(&self, bytes: usize, most: usize, align: usize) -> Option<Fresh> {
        let asked = align.div_ceil(PAGE).max(1);
        let (pages, align, flags) = self.shape(bytes, align);
        let Some(flags) = flags else { return self.reuse_giant(pages, align) };
        // (What is reused is aligned as was asked, not as moves like it.)
        self.reuse_like(Want { pages, align: asked, flags, mask: LIKE })
            .or_else(|| self.reuse_part(flags, pages, pages.max(most / PAGE), asked))
            .or_else(|| self.reuse_others(flags, pages, asked))
    }

    /// A part of a dirty run, of `pages` pages at least and `most` at most.
    pub(super) fn reuse_part(&self, flags: u32, pages: usize, most: usize, align: usize) -> Option<Fresh> {
        let mut state = self.lock(self.space(flags));
        let (pfn, pages) = state.dirty.take_more(self.windows, pages, most, align)?;
        Some(self.reused(&state, pfn, pages, flags))
    }

    /// Pages that were dirty are an area, under the lock of their space.
    fn reused(&self, held: &State, pfn: Pfn, pages: usize, flags: u32) -> Fresh {
        self.take_in(pfn, pages, flags);
        self.differ(flags, held, -((pages * PAGE) as isize));
        self.cache.sets.count(Event::AreaReuse, 1);
        let address = self.windows.address(pfn);
        if pages > LONGEST {
            self.areas.wide.came(address);
        }
        Fresh { address, zero: false }
    }

    /// A part of a dirty run of another space's.
    fn reuse_others(&self, flags: u32, pages: usize, align: usize) -> Option<Fresh> {
        if !self.areas.is_split() || flags & HUGE != 0 || align > 1 {
            return None;
        }
        Space::givers(false).filter(|&other| other != flags).find_map(|other| {
            let (pfn, len) = self.emigrate(other, pages)?;
            let mut state = self.lock(self.space(flags));
            state.opened += len;
            state.dirty.insert(self.windows, pfn, len, flags);
            self.differ(flags, &state, (len * PAGE) as isize);
            let pfn = state.dirty.take(self.windows, pages, align)?;
            Some(self.reused(&state, pfn, pages, flags))
        })
    }

    /// Takes a piece of at least so many pages out of a space for good, with its length; in use and nobody's.
    fn emigrate(&self, flags: u32, pages: usize) -> Option<(Pfn, usize)> {
        // (Nobody waits for what is a hope.)
        let mut state = self.space(flags).state.try_lock()?;
        let (pfn, len, _) = state.dirty.take_highest(self.windows, pages.max(PIECE), 1)?;
        if len < pages {
            state.dirty.insert(self.windows, pfn, len, flags);
            return None;
        }
        state.opened -= len;
        self.differ(flags, &state, -((len * PAGE) as isize));
        Some((pfn, len))
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
        let mut state = self.lock(self.space(flags));
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
        let state = self.lock(space);
        let pfn = space.rest.take(self.windows, want)?;
        self.differ(want.flags, &state, -((want.pages * PAGE) as isize));
        drop(state);
        let desc = self.windows.desc(pfn);
        desc.begin_area(desc.rest());
        self.cache.sets.count(Event::AreaReuse, 1);
        Some(Fresh { address: self.windows.address(pfn), zero: false })
    }
}
