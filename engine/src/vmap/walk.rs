//! # Walks over all areas: as they are shown, and their check
//!
//! Units: bytes as shown, pages in the check. Locks: none to show them; the check takes each space's and the queue's. Cost:
//! a load for each area and each page of no area.

use super::areas::Vmap;
use super::space::{GUARD, HUGE, MOVED, PLAIN};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::{PAGE, PAGE_SHIFT};
use crate::cache::front;
use crate::page::{BIASED, HELD, Kind, Pfn};

/// An area as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "as many flags as an area has")]
pub struct Shown {
    /// Where it begins.
    pub address: usize,
    /// Its bytes, a guard page among them.
    pub bytes: usize,
    /// Freed a moment ago, and a CPU's own still.
    pub cached: bool,
    /// Freed, still mapped.
    pub lazy: bool,
    /// Of huge pages.
    pub huge: bool,
    /// Moved by page tables.
    pub moved: bool,
    /// With a guard page.
    pub guard: bool,
    /// In a window of its own.
    pub giant: bool,
}

impl Vmap<'_> {
    /// Calls for each area, busy and lazy, by windows and addresses. Takes no lock: one that changes meanwhile is
    /// shown as before, as after, or not at all.
    pub fn each(&self, mut each: impl FnMut(Shown)) {
        self.windows.each_of_areas(|first, pages| {
            let mut at = 0;
            while at < pages {
                let pfn = first.add(at);
                let desc = self.windows.desc(pfn);
                let (kind, flags, len) = (desc.kind(), desc.rest(), desc.len());
                if matches!(kind, Kind::Area | Kind::Front | Kind::Lazy | Kind::Dirty) {
                    let giant = self.windows.giant(pfn).bytes.load(Relaxed);
                    let address = self.windows.address(pfn);
                    each(Shown {
                        address,
                        bytes: if len == 0 { giant } else { len << PAGE_SHIFT },
                        cached: kind == Kind::Front || kind == Kind::Area && self.windows.is_held(address),
                        lazy: matches!(kind, Kind::Lazy | Kind::Dirty),
                        huge: flags & HUGE != 0,
                        moved: flags & MOVED != 0,
                        guard: flags & GUARD != 0,
                        giant: len == 0,
                    });
                }
                // (A word that changes meanwhile may say anything: one step on, nothing is missed for long.)
                at += if matches!(kind, Kind::Area | Kind::Front | Kind::Lazy | Kind::Dirty | Kind::Run) {
                    len.clamp(1, pages - at)
                } else {
                    1
                };
            }
        });
    }

    /// Checks all structures; for tests, when nobody else uses them. Pages that are free or lazy.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn verify(&self) -> usize {
        let mut pages = 0;
        for space in &self.areas.spaces {
            space.rest.verify(self.windows, &mut |len| pages += len);
            let state = space.state.lock();
            state.dirty.verify(self.windows, &mut |_, len| pages += len);
            let mut last = Pfn::NONE;
            state.tree.verify(self.windows, &mut |at, len| {
                assert!(at > last.add(1) || !at.same_window(last), "runs overlap or touch");
                last = at.add(len - 1);
                pages += len;
            });
        }
        let queue = self.areas.flights.lock();
        let (mut at, mut queued) = (queue.pending, 0);
        while at != Pfn::NONE {
            let desc = self.windows.desc(at);
            assert_eq!(desc.kind(), Kind::Lazy);
            assert!(desc.links().0 == Pfn::NONE || desc.links().0 > at, "pending is not in order");
            queued += desc.len();
            at = desc.links().0;
        }
        pages += queued;
        at = queue.giants;
        while at != Pfn::NONE {
            let (desc, giant) = (self.windows.desc(at), self.windows.giant(at));
            assert_eq!((desc.kind(), giant.out.load(Relaxed)), (Kind::Lazy, 0));
            queued += (giant.bytes.load(Relaxed) - giant.handed.load(Relaxed)) / PAGE;
            at = desc.links().0;
        }
        assert_eq!(queued, self.areas.backlog(), "the backlog is not what is queued");
        self.verify_classes();
        pages
    }

    /// A fast path knows an area that is in use or in a front, plain and of a length of its class, or cut out of a run, or none.
    fn verify_classes(&self) {
        self.windows.each_of_areas(|first, pages| {
            for pfn in (0..pages).map(|at| first.add(at)) {
                let (desc, class) = (self.windows.desc(pfn), self.windows.class(self.windows.address(pfn)));
                let Some(class) = class.filter(|&class| class != 0 && desc.kind() != Kind::Slab) else { continue };
                let plain = [Kind::Area, Kind::Front].map(|kind| kind as u32);
                assert!(plain.contains(&(desc.tag.load(Relaxed) & PLAIN)), "{pfn:?}: {:?}", desc.kind());
                if class == HELD {
                    assert!(
                        desc.kind() == Kind::Area && desc.len() <= front::GRADED,
                        "{pfn:?} of {} pages",
                        desc.len()
                    );
                    continue;
                }
                let (known, holds) = (usize::from(class & !BIASED), front::holds(desc.len()));
                assert!(known == holds || known == front::LONG, "{pfn:?} of {} pages: {known}", desc.len());
                assert!(class & BIASED != 0 || !front::is_marked(known), "{pfn:?} of {} pages", desc.len());
            }
        });
    }
}
