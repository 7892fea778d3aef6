//! # The context that giving back works on
//!
//! ```text
//!                     ┌ gate     who is inside, whether a fork waits
//! heap ──lends──► Mm ─┤ reclaim  what was decided and done lately
//!                     │ cache, pages, slabs, areas
//!                     └ host     what only those above know: threads, requests, other people's pointers
//! ```
//! Everything of this room is a method of [`Mm`], of the plain state in [`Reclaim`], or of numbers alone ([`super::policy`]).
//! The host is asked on slow paths and in threads of ours only.
//!
//! Locks: none. Cost: a few words that are put together where a slow path begins.

use super::Reclaim;
use crate::arch::PAGE;
use crate::arch::atomic::AtomicU32;
use crate::arch::atomic::Ordering::{Acquire, Relaxed};
use crate::arch::crew::Crew;
use crate::arch::gate::{Gate, Inside};
use crate::cache::{Cache, Sheaf, Source};
use crate::page::{LISTED, PageSource, Pages};
use crate::slab::class::{CLASSES, SIZES};
use crate::slab::{SlabSource, Slabs};
use crate::stat::BadPointer;
use crate::vmap::{Areas, Vmap};
use core::fmt;

/// All classes of a set: sizes, then page lists.
pub const ALL_CLASSES: usize = CLASSES + LISTED.len();
const _: () = assert!(ALL_CLASSES <= crate::stat::board::CLASSES_MAX);

/// Bytes of an object (or block of pages) of a class.
#[must_use]
pub fn bytes_of(class: usize) -> usize {
    if class < CLASSES { SIZES[class] as usize } else { PAGE << LISTED[class - CLASSES] }
}

/// What those above do for it.
pub trait Host {
    /// Comes in; `None` beside a fork.
    fn enter(&self) -> Option<Inside<'_>>;
    /// Starts a thread that calls [`Mm::keep`]; false if it cannot.
    fn start_keeper(&self) -> bool;
    /// Starts a thread that calls [`Mm::work`]; false if it cannot.
    fn start_worker(&self) -> bool;
    /// Our threads, where they are of that kind.
    fn crew(&self) -> Option<&'static Crew>;
    /// Is told that the process ends: no thread of its own is left.
    fn ends(&self);
    /// Does what another process asked for; false if nothing was.
    fn serve(&self) -> bool;
    /// Looks whether somebody outside wants to be told of allocations.
    fn look_for_tracer(&self);
}

/// What giving back works on.
#[derive(Clone, Copy)]
pub struct Mm<'a> {
    /// Where a fork waits for those inside.
    pub gate: &'a Gate,
    /// Decisions, limits, threads.
    pub reclaim: &'a Reclaim,
    /// The per-CPU sets, with knobs and board.
    pub cache: &'a Cache,
    /// Zones and lists.
    pub pages: &'a Pages,
    /// Objects.
    pub slabs: &'a Slabs,
    /// Areas.
    pub areas: &'a Areas,
    /// Is told of a pointer that cannot be freed.
    pub report: fn(usize, BadPointer),
    /// Those above.
    pub host: &'a dyn Host,
}

impl fmt::Debug for Mm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Mm").field("reclaim", self.reclaim).finish_non_exhaustive()
    }
}

impl<'a> Mm<'a> {
    /// Slabs as the sets' source.
    #[must_use]
    pub fn slab_source(&self) -> SlabSource<'a> {
        SlabSource { slabs: self.slabs, cache: self.cache, pages: self.pages, report: self.report }
    }
    /// Zones as the page lists' source.
    #[must_use]
    pub fn page_source(&self) -> PageSource<'a> {
        PageSource { pages: self.pages, cache: self.cache, first: CLASSES }
    }
    /// The source of every class.
    #[must_use]
    pub fn everything(&self) -> Everything<'a> {
        Everything { slabs: self.slab_source(), pages: self.page_source() }
    }
    /// Areas, with what they need.
    #[must_use]
    pub fn vmap(&self) -> Vmap<'a> {
        Vmap { areas: self.areas, regions: &self.pages.regions, cache: self.cache, gate: self.gate }
    }
}

/// What stands in the mailbox that threads of ours look at; the heap is open.
impl Mm<'_> {
    /// What the housekeeper sleeps on.
    #[must_use]
    pub fn bell(&self) -> &AtomicU32 {
        &self.cache.sets.board().mailbox.bell
    }
    /// Whether somebody waits for an answer.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let mailbox = &self.cache.sets.board().mailbox;
        // Acquire: the request was written before.
        mailbox.asked.load(Acquire) != mailbox.answered.load(Relaxed)
    }
    /// Whether a slow allocation should start the housekeeper because others look at this process.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        let sets = &self.cache.sets;
        sets.is_shared() && (self.reclaim.youth.is_over(sets.clock.ticks()) || self.is_asked())
    }
}

/// The source of every class of a set.
#[derive(Debug)]
pub struct Everything<'a> {
    /// Of the sizes.
    pub slabs: SlabSource<'a>,
    /// Of the page lists.
    pub pages: PageSource<'a>,
}

impl Source for Everything<'_> {
    fn fill(&self, class: usize, sheaf: &mut Sheaf, n: usize) {
        if class < CLASSES { self.slabs.fill(class, sheaf, n) } else { self.pages.fill(class, sheaf, n) }
    }
    fn flush(&self, class: usize, sheaf: &mut Sheaf) {
        if class < CLASSES { self.slabs.flush(class, sheaf) } else { self.pages.flush(class, sheaf) }
    }
    fn take(&self, class: usize) -> Option<usize> {
        if class < CLASSES { self.slabs.take(class) } else { self.pages.take(class) }
    }
    fn give(&self, class: usize, object: usize) {
        if class < CLASSES { self.slabs.give(class, object) } else { self.pages.give(class, object) }
    }
    fn size(&self, class: usize) -> usize {
        if class < CLASSES { self.slabs.size(class) } else { self.pages.size(class) }
    }
}
