//! # The areas, and what all that is done to them is made of
//!
//! ```text
//! Vmap ──► Areas: spaces │ the queue of what is to go back to the system │ how many were moved
//!   └────► windows (descriptors), cache (knobs, events, levels), gate
//! ```
//! Finding an area, its space, whose its free is when two free it, the hard limit, and what the levels are told.
//!
//! Units: pages inside, bytes at the door. Locks: taken by none of these but [`Vmap::lock`], for whoever asks. The
//! levels `Areas` and `Lazy` are off by what the spaces have not folded yet: [`DIFFERENTIAL`] bytes each, see `Sets::level`.
//! Cost: a few loads and stores each.

use super::flight::Flights;
use super::space::{ALONE, CONGRUENT, GUARD, HOME, HOME_SHIFT, HUGE, Space, State};
use super::wide::Wide;
use crate::arch::atomic::Ordering::{AcqRel, Relaxed};
use crate::arch::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize};
use crate::arch::gate::Gate;
use crate::arch::lock::Guard;
use crate::arch::sys::{self, Advice};
use crate::arch::{PAGE, PAGE_SHIFT};
use crate::cache::Cache;
use crate::knob::Id;
use crate::page::windows::WINDOW_PAGES;
use crate::page::{Kind, Pfn, Windows};
use crate::stat::board::SPACES;
use crate::stat::{Board, Event, Level};

/// [`Areas::takes_vectors`], [`Areas::may_ask`], [`Areas::has_room`]: nobody has asked, yes, no.
const UNKNOWN: u8 = 0;
const TAKEN: u8 = 1;
const REFUSED: u8 = 2;
/// Bytes by which a space's part of the levels may be off at most before it is told; an eighth of it for small areas, and
/// where a soft limit is small.
pub const DIFFERENTIAL: usize = 8 << 20;
/// Areas from this many pages begin at a page table's beginning, so that those move whole. (Smaller ones move quickly
/// enough, and the gaps before them would be a part of all.)
const MOVES_WHOLE: usize = 8 * CONGRUENT;
/// Areas above this many pages get a window of their own.
pub(super) const GIANT: usize = WINDOW_PAGES / 2;
/// Most bytes of one, and of its alignment: half of the addresses that there are.
pub(super) const MOST: usize = 1 << 46;
/// Times that threads want a space at the same moment, within a window of time, before it is more than one: where they touch what they
/// get it is fewer, and one space takes less memory.
pub(super) const CONTENDED: u32 = 4096;
/// Ticks of such a window, as a power of two: some 7 ms.
pub(super) const WINDOW: u32 = 24;

/// All areas.
#[derive(Debug)]
pub struct Areas {
    pub(super) spaces: [Space; SPACES],
    /// What was freed last of what no CPU keeps.
    pub wide: Wide,
    /// What is to go back to the system.
    pub(super) flights: Flights<Queue>,
    /// Pages on that queue; changed under its lock.
    pub(super) backlog: AtomicUsize,
    /// Giant areas that have left the queue; who waits for one, or for any flight, sleeps here.
    pub(super) landed: AtomicU32,
    /// No filter was inherited that may kill for a call that programs seldom make, and none is set.
    asks: AtomicU8,
    /// The kernel takes vectors of ranges from us.
    vectors: AtomicU8,
    /// Addresses are not limited.
    roomy: AtomicU8,
    /// Areas that carry [`MOVED`](super::space::MOVED).
    pub(super) moved: AtomicU32,
    /// The system took nothing back when it was asked last (`mlockall`, a filter).
    pub(super) kept: AtomicBool,
    /// Times that a thread found its space locked in the latest window, up to [`CONTENDED`].
    contended: AtomicU32,
    /// Which window that is.
    window: AtomicU32,
    /// This is a forked child, and parts of giant areas were in hands that it has not: they never land.
    pub(super) orphaned: AtomicBool,
}

/// What purges have gathered, and giant areas that were freed.
#[derive(Debug)]
pub(super) struct Queue {
    /// First of the areas that a purge has gathered and nobody has released yet, in order.
    pub(super) pending: Pfn,
    /// First of the giant areas, linked through their descriptors.
    pub(super) giants: Pfn,
    pub(super) serial: u32,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { pending: Pfn::NONE, giants: Pfn::NONE, serial: 0 }
    }
}

/// A giant area on the queue: its first page and the number that its descriptor carries meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) pfn: Pfn,
    pub(super) serial: u32,
    /// Its bytes.
    pub bytes: usize,
}

/// An area found by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first page.
    pub pfn: Pfn,
    /// Its bytes (whole pages).
    pub bytes: usize,
    pub(super) flags: u32,
}

/// A new area.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// Where it begins.
    pub address: usize,
    /// Whether all of it reads as zero.
    pub zero: bool,
}

/// What became of an area that was to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// It was not in use (freed by somebody else meanwhile).
    Not,
    /// It is lazy, and the levels are as they were.
    Quietly,
    /// The levels have changed: a limit may be passed.
    Told,
    /// It has a window of its own, and waits to be given back.
    Queued(Ticket),
}

/// Areas with what they need.
#[derive(Clone, Copy, Debug)]
pub struct Vmap<'a> {
    /// The areas.
    pub areas: &'a Areas,
    /// Address space.
    pub windows: &'a Windows,
    /// Knobs and events.
    pub cache: &'a Cache,
    /// Where a fork waits.
    pub gate: &'a Gate,
}

impl Default for Areas {
    fn default() -> Self {
        Self::new()
    }
}

impl Areas {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            spaces: [const { Space::new() }; SPACES],
            wide: Wide::new(),
            flights: Flights::new(Queue::new()),
            backlog: AtomicUsize::new(0),
            landed: AtomicU32::new(0),
            asks: AtomicU8::new(UNKNOWN),
            vectors: AtomicU8::new(UNKNOWN),
            roomy: AtomicU8::new(UNKNOWN),
            orphaned: AtomicBool::new(false),
            moved: AtomicU32::new(0),
            kept: AtomicBool::new(false),
            contended: AtomicU32::new(0),
            window: AtomicU32::new(0),
        }
    }

    /// CPUs have spaces of their own from now on.
    #[cfg(test)]
    pub(super) fn split(&self) {
        self.contended.store(CONTENDED, Relaxed);
    }

    /// A thread found its space locked, lately.
    #[cfg(test)]
    pub(super) fn is_contended(&self) -> bool {
        self.contended.load(Relaxed) > 0
    }

    /// A thread found its space locked, at `now` ticks.
    #[cold]
    pub(super) fn was_locked(&self, now: u64) {
        // Relaxed, and a window that two begin is counted from either's beginning: policy.
        let window = (now >> WINDOW) as u32;
        if self.is_split() {
            return;
        }
        if self.window.swap(window, Relaxed) == window {
            self.contended.fetch_add(1, Relaxed);
        } else {
            self.contended.store(1, Relaxed);
        }
    }

    pub(super) fn is_split(&self) -> bool {
        // Relaxed: policy.
        self.contended.load(Relaxed) >= CONTENDED
    }

    /// Whether the kernel takes vectors of ranges. Asked when the first is to go; whoever may not ask goes range by range.
    pub(super) fn takes_vectors(&self) -> bool {
        // SAFETY: no range.
        known(&self.vectors, || self.may_ask() && unsafe { sys::advise_many(&[], Advice::DontNeed) } == Ok(0))
    }

    /// Whether addresses are many: no limit of them, nor of data, was set when this was asked first.
    pub fn has_room(&self) -> bool {
        known(&self.roomy, || self.may_ask() && !sys::is_space_limited())
    }

    /// Whether calls may be made that programs seldom make: a filter that was inherited may kill for one.
    pub(super) fn may_ask(&self) -> bool {
        known(&self.asks, || !sys::is_filtered())
    }
    /// In a forked child; whether threads of the parent had slices in hand ([`crate::arch::gate`]).
    pub fn inherit(&self, lost: bool) {
        self.flights.lose();
        if lost {
            // Relaxed: there is nobody else.
            self.orphaned.store(true, Relaxed);
        }
    }

    /// From now on only plain calls: the process is about to filter its own, or is emulated.
    pub fn confine(&self) {
        self.asks.store(REFUSED, Relaxed);
        self.vectors.store(REFUSED, Relaxed);
    }

    /// Whether a purge has left something for the next, or a giant area waits.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.backlog() != 0
    }

    /// Pages that wait on the queue and are in nobody's hand.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.backlog.load(Relaxed)
    }

    /// See [`Flights::taken`].
    #[must_use]
    pub fn taken(&self) -> (u32, bool) {
        self.flights.taken()
    }

    /// Slices in flight.
    #[must_use]
    pub fn flying(&self) -> u32 {
        self.flights.flying()
    }

    /// In the lock of the queue only.
    pub(super) fn shift_backlog(&self, pages: isize) {
        self.backlog.store(self.backlog.load(Relaxed).wrapping_add_signed(pages), Relaxed);
    }
}

/// What such a word says; `find` is asked once, unless another has said no.
fn known(word: &AtomicU8, find: impl FnOnce() -> bool) -> bool {
    // Relaxed: policy.
    if word.load(Relaxed) == UNKNOWN {
        let found = if find() { TAKEN } else { REFUSED };
        let _ = word.compare_exchange(UNKNOWN, found, Relaxed, Relaxed);
    }
    word.load(Relaxed) == TAKEN
}

impl Vmap<'_> {
    pub(super) fn space(&self, flags: u32) -> &Space {
        &self.areas.spaces[Space::number(flags)]
    }

    /// The right to a space, whoever is in the way.
    #[inline]
    pub(super) fn lock<'s>(&self, space: &'s Space) -> Guard<'s, State> {
        if sys::single_threaded() {
            return space.state.lock_elided();
        }
        space.state.try_lock().unwrap_or_else(|| {
            self.areas.was_locked(self.cache.sets.clock.ticks());
            space.state.lock()
        })
    }

    /// Where a thread of this CPU takes areas of small pages.
    pub(super) fn home(&self) -> u32 {
        if self.areas.is_split() { (self.cache.sets.cpus.index() as u32) << HOME_SHIFT & HOME } else { 0 }
    }

    pub(super) fn board(&self) -> &Board {
        self.cache.sets.board()
    }

    /// Bytes of areas in use and of lazy areas change.
    pub(super) fn account(&self, areas: isize, lazy: isize) {
        if areas != 0 {
            self.board().shift(Level::Areas, areas);
        }
        if lazy != 0 {
            self.board().shift(Level::Lazy, lazy);
        }
    }

    /// `bytes` become lazy (or, negative, are taken back) under the lock of their space, which is `_held`; whether the levels were told.
    #[inline(always)]
    pub(super) fn differ(&self, flags: u32, _held: &State, bytes: isize) -> bool {
        let tally = &self.board().spaces[Space::number(flags)].differential;
        // Relaxed, and no locked instruction: the word is changed under the lock only.
        let differential = (tally.load(Relaxed) as isize).wrapping_add(bytes);
        // Twice this area: whoever takes and frees areas of its size again and again tells nobody.
        let least = if sys::single_threaded() { DIFFERENTIAL / 64 } else { DIFFERENTIAL / 8 };
        let most = (self.cache.knobs.soft_limit() / 64).clamp(least as u64, DIFFERENTIAL as u64) as usize;
        let most = (2 * bytes.unsigned_abs()).clamp(least, most);
        if differential.unsigned_abs() <= most {
            tally.store(differential as u64, Relaxed);
            return false;
        }
        // Half stays, for the same reason.
        let keep = differential.signum() * (most as isize / 2);
        tally.store(keep as u64, Relaxed);
        self.account(keep - differential, differential - keep);
        self.board().grown();
        true
    }

    /// Tells the levels of all that a space has not told; `_held` is its lock.
    pub(super) fn fold(&self, number: usize, _held: &State) {
        let tally = &self.board().spaces[number].differential;
        // Relaxed: changed under the lock only.
        let differential = tally.load(Relaxed) as isize;
        tally.store(0, Relaxed);
        self.account(-differential, differential);
    }

    /// Whole pages, how they are aligned, and where such areas live; `None` for giants.
    pub(super) fn shape(&self, bytes: usize, align: usize) -> (usize, usize, Option<u32>) {
        let (pages, align) = (bytes.max(1).div_ceil(PAGE), align.div_ceil(PAGE).max(1));
        if pages.saturating_add(align) > GIANT {
            return (pages, align, None);
        }
        let huge_bytes = self.cache.knobs.size(Id::HugeBytes);
        let flags = if huge_bytes > 0 && bytes >= huge_bytes { HUGE } else { self.home() };
        (pages, if pages >= MOVES_WHOLE { align.max(CONGRUENT) } else { align }, Some(flags))
    }

    /// Counts `bytes` that are about to be an area, if there is a hard limit and they do not pass it by more than
    /// `credit` bytes, which go soon: `Some(true)`. Without a limit they are counted afterwards: `Some(false)`.
    /// Counted first and then looked at, so that of two at the same time one sees both.
    pub(super) fn charge(&self, bytes: usize, credit: usize) -> Option<bool> {
        let limit = self.cache.knobs.hard_limit();
        if limit == u64::MAX {
            return Some(false);
        }
        let (board, limit) = (self.board(), limit.saturating_add(credit as u64));
        // (What could never fit is not to be in others' way.)
        if board.held().saturating_add(bytes as u64) > limit {
            return None;
        }
        self.account(bytes as isize, 0);
        if board.held() > limit {
            self.account(-(bytes as isize), 0);
            return None;
        }
        Some(true)
    }

    /// The charge is not needed after all.
    pub(super) fn discharge(&self, charged: bool, bytes: usize) {
        if charged {
            self.account(-(bytes as isize), 0);
        }
    }

    /// Pages that were taken off a structure, under its lock, are an area.
    pub(super) fn take_in(&self, pfn: Pfn, pages: usize, flags: u32) {
        let desc = self.windows.desc(pfn);
        desc.set_len(pages);
        desc.begin_area(flags);
    }

    /// Tells of an area that begins.
    pub(super) fn begin(&self, pfn: Pfn, event: Event) -> Fresh {
        self.board().grown();
        self.cache.sets.count(event, 1);
        Fresh { address: self.windows.address(pfn), zero: event == Event::AreaAlloc }
    }

    /// Of two that free the same area at the same time one wins. No fast path knows it any more.
    #[inline]
    pub(super) fn give_up(&self, area: &Area) -> bool {
        let is_ours = self.claim(area);
        if is_ours {
            self.forget_class(area.pfn);
        }
        is_ours
    }

    /// What a fast path knows of an area does not hold any more (see `heap::front`).
    pub(super) fn forget_class(&self, area: Pfn) {
        self.windows.forget_class(self.windows.address(area));
    }

    #[inline]
    fn claim(&self, area: &Area) -> bool {
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

    /// Puts lazy pages there, under the space's lock.
    pub(super) fn keep(&self, space: &Space, state: &mut State, pfn: Pfn, pages: usize, flags: u32) {
        if flags & ALONE == 0 {
            state.dirty.insert(self.windows, pfn, pages, flags);
        } else {
            self.windows.desc(pfn).set_len(pages);
            space.rest.put(self.windows, pfn, pages);
        }
    }

    pub(super) fn next(&self, at: Pfn) -> Pfn {
        self.windows.desc(at).links().0
    }

    /// The area that begins at `address`.
    #[must_use]
    pub fn find(&self, address: usize) -> Option<Area> {
        if !address.is_multiple_of(PAGE) {
            return None;
        }
        let (window, pfn) = self.windows.find(address)?;
        let desc = self.windows.desc(pfn);
        if desc.kind() != Kind::Area || self.windows.is_held(address) {
            return None;
        }
        let pages = desc.len();
        let flags = desc.rest();
        let guards = ((flags & GUARD) / GUARD) as usize;
        let bytes = if pages == 0 { window.giant.bytes.load(Relaxed) } else { (pages - guards) << PAGE_SHIFT };
        Some(Area { pfn, bytes, flags })
    }

    /// Of an area that has room to grow the pages that were asked for; else 0. (Of one that came out of a CPU's front perhaps what its
    /// last user asked for.)
    #[must_use]
    pub fn asked(&self, area: &Area) -> usize {
        self.windows.desc(area.pfn).link.load(Relaxed) as usize
    }

    /// It has room to grow: so many pages were asked for.
    pub fn ask(&self, area: &Area, pages: usize) {
        self.windows.desc(area.pfn).link.store(pages as u64, Relaxed);
    }

    /// Whether it has a window of its own.
    #[must_use]
    pub fn is_giant(&self, area: &Area) -> bool {
        self.windows.desc(area.pfn).len() == 0
    }

    /// Advises fresh memory as its neighbours are, so that the mappings merge.
    pub(super) fn advise(&self, at: usize, bytes: usize, flags: u32) {
        let advice = if flags & HUGE != 0 { Advice::Huge } else { Advice::NoHuge };
        // SAFETY: memory of ours; this advice keeps contents.
        let _ = unsafe { sys::advise(at, bytes, advice) };
    }

    /// So many more areas carry [`MOVED`](super::space::MOVED), or one less.
    pub(super) fn count_moved(&self, more: i32) {
        if more > 0 {
            self.areas.moved.fetch_add(1, Relaxed);
            self.board().raise(Level::Mappings, 2);
        } else {
            self.areas.moved.fetch_sub(1, Relaxed);
            self.board().lower(Level::Mappings, 2);
        }
    }
}
