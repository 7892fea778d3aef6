//! # Pages that change hands between areas and zones
//!
//! Where the system gives no more memory, or one side has what the other would take anew, what is free here is taken out of the areas for
//! good, or comes in from a zone (`reclaim::scarce`, `reclaim::exchange`). Windows of huge pages give only where memory is `scarce`: they ask for
//! none from then on.
//!
//! Units: pages. Locks: a space's. Cost: that of an allocation; to come in, a store for each page.

use super::areas::Vmap;
use super::space::Space;
use super::tree::Tree;
use crate::arch::PAGE;
use crate::page::{Kind, Pfn};
use crate::stat::Event;

impl Vmap<'_> {
    /// Takes a free run of at least `least` pages, and a multiple of them, out of the areas for good, the largest
    /// there is up to a block of a zone. It is nobody's now, and zero.
    pub fn hand_over(&self, least: usize) -> Option<(Pfn, usize)> {
        const BLOCK: usize = 512;
        let mut pages = BLOCK.max(least);
        loop {
            if let Some(first) = self.hand_over_block(pages, true) {
                return Some((first, pages));
            }
            if pages == least {
                return None;
            }
            pages = (pages / 8).max(least);
        }
    }

    /// The same of so many pages, aligned like itself; the smallest run that has them, like what is asked for.
    pub fn hand_over_block(&self, pages: usize, scarce: bool) -> Option<Pfn> {
        self.hand_over_by(pages, scarce, |tree| tree.take(self.windows, pages, pages))
    }

    /// The same of the last pages that are free.
    pub fn hand_over_last(&self, pages: usize) -> Option<Pfn> {
        self.hand_over_by(pages, true, |tree| tree.take_last(self.windows, pages))
    }

    fn hand_over_by(&self, pages: usize, scarce: bool, take: impl Fn(&mut Tree) -> Option<Pfn>) -> Option<Pfn> {
        Space::givers(scarce).find_map(|flags| {
            let mut state = self.space(flags).state.lock();
            let first = take(&mut state.tree)?;
            state.opened -= pages;
            self.windows.desc(first).set(Kind::None, 0);
            self.windows.mix(first);
            Some(first)
        })
    }

    /// The same with what is dirty, `pages` that are aligned like themselves: nobody's now, with their old contents.
    pub fn hand_over_dirty(&self, pages: usize, scarce: bool) -> Option<Pfn> {
        let (flags, part) =
            Space::givers(scarce).find_map(|flags| Some((flags, self.reuse_part(flags, pages, pages, pages)?)))?;
        let (_, first) = self.windows.find(part.address)?;
        self.space(flags).state.lock().opened -= pages;
        self.account(-((pages * PAGE) as isize), 0);
        // (It was an area for a moment.)
        self.cache.sets.count(Event::AreaFree, 1);
        self.windows.desc(first).set(Kind::None, 0);
        self.windows.mix(first);
        Some(first)
    }

    /// Pages that were nobody's are a free run from now on, zero, or, with their old contents, a dirty one.
    pub fn take_over(&self, first: Pfn, pages: usize, clean: bool) {
        // What they were is over; of a run only the first page says what it is.
        (0..pages).for_each(|page| self.windows.desc(first.add(page)).set(Kind::None, 0));
        self.windows.mix(first);
        let space = &self.areas.spaces[0];
        let mut state = space.state.lock();
        state.opened += pages;
        if clean {
            state.tree.insert(self.windows, first, pages);
        } else {
            self.keep(space, &mut state, first, pages, 0);
            self.account(0, (pages * PAGE) as isize);
        }
    }
}
