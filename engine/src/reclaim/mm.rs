//! # The context that giving back works on
//!
//! ```text
//!                     ┌ parts  gate (who is inside), reclaim (what was decided and done lately), cache, pages, slabs, areas
//! heap ──lends──► Mm ─┤
//!                     └ host   what only those above know: threads, requests, other people's pointers
//! ```
//! Everything of this room is a method of [`Mm`], of the plain state in [`Reclaim`], or of numbers alone ([`super::policy`]).
//! The host is asked on slow paths and in threads of ours only.
//!
//! Locks: none. Cost: three words that are put together where a slow path begins.

use super::state::Reclaim;
use crate::arch::PAGE;
use crate::arch::atomic::AtomicU32;
use crate::arch::atomic::Ordering::{Acquire, Relaxed};
use crate::arch::crew::Crew;
use crate::arch::gate::{self, Gate, Inside};
use crate::cache::{Cache, Sheaf, Source};
use crate::page::{LISTED, PageSource, Pages};
use crate::slab::class::{CLASSES, SIZES};
use crate::slab::{SlabSource, Slabs};
use crate::stat::BadPointer;
use crate::stat::board::FIRST_FRONT;
use crate::vmap::{Areas, Vmap};
use core::fmt;
use core::mem::offset_of;
use core::ops::Deref;

/// All classes of a set: sizes, then page lists.
pub const ALL_CLASSES: usize = CLASSES + LISTED.len();
// (Behind them are the classes of areas.)
const _: () =
    assert!(ALL_CLASSES <= FIRST_FRONT, "FIRST_FRONT of stat/board.rs is behind the sizes and the page orders");

/// Bytes of an object (or block of pages) of a class.
#[must_use]
pub fn bytes_of(class: usize) -> usize {
    if class < CLASSES { SIZES[class] as usize } else { PAGE << LISTED[class - CLASSES] }
}

/// What those above do for it.
pub trait Host {
    /// Comes in; `None` beside a fork.
    fn enter(&self) -> Option<Inside<'_>>;
    /// What is told of a pointer that cannot be freed.
    fn reporter(&self) -> fn(usize, BadPointer);
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

/// What memory consists of; the heap owns it. (In this order: see [`Heap`](crate::heap::Heap).)
#[repr(C)]
#[derive(Debug)]
pub struct Parts {
    /// Decisions, limits, threads.
    pub reclaim: Reclaim,
    /// Where a fork waits for those inside.
    pub gate: Gate,
    /// The per-CPU sets, with knobs and board.
    pub cache: Cache,
    /// Zones and lists.
    pub pages: Pages,
    /// Objects.
    pub slabs: Slabs,
    /// Areas.
    pub areas: Areas,
}

const _: () = assert!(offset_of!(Parts, gate) + gate::TOUCHED <= PAGE && offset_of!(Parts, reclaim) == 0);

impl Default for Parts {
    fn default() -> Self {
        Self::new()
    }
}

impl Parts {
    /// Closed, and zero bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            reclaim: Reclaim::new(),
            gate: Gate::new(),
            cache: Cache::new(),
            pages: Pages::new(),
            slabs: Slabs::new(),
            areas: Areas::new(),
        }
    }
    /// Zones as the page lists' source.
    #[must_use]
    pub fn page_source(&self) -> PageSource<'_> {
        PageSource { pages: &self.pages, cache: &self.cache, first: CLASSES }
    }
    /// Slabs as the sets' source; `report` is told of pointers that cannot be freed.
    #[must_use]
    pub fn slab_source(&self, report: fn(usize, BadPointer)) -> SlabSource<'_> {
        SlabSource { slabs: &self.slabs, cache: &self.cache, pages: &self.pages, report }
    }
    /// Areas, with what they need.
    #[must_use]
    pub fn vmap(&self) -> Vmap<'_> {
        Vmap { areas: &self.areas, windows: &self.pages.windows, cache: &self.cache, gate: &self.gate }
    }
}

/// What giving back works on: small, because it lies on small stacks.
#[derive(Clone, Copy)]
pub struct Mm<'a> {
    /// Memory.
    pub parts: &'a Parts,
    /// Those above.
    pub host: &'a dyn Host,
}

impl Deref for Mm<'_> {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        self.parts
    }
}

impl fmt::Debug for Mm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Mm").field("reclaim", &self.reclaim).finish_non_exhaustive()
    }
}

impl<'a> Mm<'a> {
    /// The source of every class.
    #[must_use]
    pub fn everything(&self) -> Everything<'a> {
        Everything {
            slabs: self.parts.slab_source(self.host.reporter()),
            pages: self.parts.page_source(),
            areas: self.parts.vmap(),
        }
    }
}

/// What stands in the mailbox that threads of ours look at; the heap is open.
impl Mm<'_> {
    /// What the keeper sleeps on.
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
    /// Whether a slow allocation should start the keeper because others look at this process.
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
    /// Of the classes that hold areas, which it only takes.
    pub areas: Vmap<'a>,
}

impl Everything<'_> {
    /// An area of a front goes among the others, or is told to be none. (Out of line: a drain needs nothing of this frame.)
    #[inline(never)]
    fn let_go(&self, class: usize, area: usize) {
        if let Err(wrong) = self.areas.let_go(area, class) {
            self.slabs.bad(area, wrong);
        }
    }
}

impl Source for Everything<'_> {
    fn fill(&self, class: usize, sheaf: &mut Sheaf, n: usize) {
        match class {
            ..CLASSES => self.slabs.fill(class, sheaf, n),
            CLASSES..FIRST_FRONT => self.pages.fill(class, sheaf, n),
            _ => {}
        }
    }
    fn flush(&self, class: usize, sheaf: &mut Sheaf) {
        match class {
            ..CLASSES => self.slabs.flush(class, sheaf),
            CLASSES..FIRST_FRONT => self.pages.flush(class, sheaf),
            _ => {
                sheaf.objects().iter().for_each(|&area| self.let_go(class, area));
                sheaf.clear();
            }
        }
    }
    fn take(&self, class: usize) -> Option<usize> {
        match class {
            ..CLASSES => self.slabs.take(class),
            CLASSES..FIRST_FRONT => self.pages.take(class),
            _ => None,
        }
    }
    fn give(&self, class: usize, object: usize) {
        match class {
            ..CLASSES => self.slabs.give(class, object),
            CLASSES..FIRST_FRONT => self.pages.give(class, object),
            _ => self.let_go(class, object),
        }
    }
    fn size(&self, class: usize) -> usize {
        match class {
            ..CLASSES => self.slabs.size(class),
            CLASSES..FIRST_FRONT => self.pages.size(class),
            // Each its own: see `bytes`.
            _ => 0,
        }
    }
    fn bytes(&self, class: usize, sheaf: &mut Sheaf) -> usize {
        if class < FIRST_FRONT {
            return sheaf.len() * self.size(class);
        }
        sheaf.objects().iter().map(|&area| self.areas.front_bytes(area, class)).sum()
    }
    fn is_near(&self, object: usize) -> bool {
        self.pages.is_near(object)
    }
}

#[cfg(test)]
mod tests;
