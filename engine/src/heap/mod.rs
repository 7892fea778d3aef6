//! # `heap`: what malloc means
//!
//! ```text
//! malloc ─► size ≤ gate.small? ─► class ─► pop (sequence) ─► object
//!            │ no                           │ refused, aborted
//!            └────────► cold path ◄─────────┘   set, barn, slab, pages; or an area
//! free ───► class byte of the address > 0? ─► push (sequence)
//! ```
//! The gate is closed until the heap is open, and in the fallback for ever: no
//! size passes it, and no address has a class byte, so the fast paths have no
//! test of their own for that. The same where every `malloc` and `free` is checked (knob `bad_free=abort`).
//!
//! Invariant: an address that the program holds belongs to a slab (class byte
//! not 0 in sequences) or begins an area; anything else is foreign.
//! Cost: the golden table of the fast paths is in `cli/tests/golden`.
#![allow(unsafe_code)] // hands out memory

mod area;
pub mod drain;
mod fork;
mod give;
mod keep;
mod limit;
pub mod mailbox;
mod pages;
pub mod profile;
pub mod reaper;
pub mod samples;
mod scarce;
mod show;
pub mod side;

use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use crate::arch::crew::Crew;
use crate::arch::gate::Gate;
use crate::arch::outcome::Outcome;
use crate::arch::seq::RseqArea;
use crate::arch::{PAGE, opaque, sys};
use crate::cache::sets::{Room, Sets};
use crate::cache::{Cache, Sheaf, Source};
use crate::cpu::Simulation;
use crate::knob::{BY_CGROUP, BadFree, Id};
use crate::page::{LISTED, PageSource, Pages, Regions};
use crate::reclaim::Reclaim;
use crate::slab::class::{self, CLASSES, SIZES, SMALL_MAX};
use crate::slab::{SlabSource, Slabs};
use crate::stat::BadPointer;
use crate::stat::board::{MAGIC, VERSION};
use crate::stat::{Event, Index, Level, Mode, Reason, Timing};
use crate::vmap::{Areas, Freed, Fresh, Vmap};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use side::Side;

/// All classes of a set: sizes, then page lists.
pub const ALL_CLASSES: usize = CLASSES + LISTED.len();
const _: () = assert!(ALL_CLASSES <= crate::stat::board::CLASSES_MAX);

/// [`Heap::opened`]: nobody has asked; somebody opens it; so, and others sleep until it is done; done.
const CLOSED: u32 = 0;
const OPENING: u32 = 1;
const OPEN: u32 = 2;
const AWAITED: u32 = 3;

/// What the outermost layer decides for a heap.
pub trait Environment: Sized + 'static {
    /// Opens the heap ([`Heap::open`]) when it is first needed.
    fn start(heap: &Heap<Self>);
    /// Is told that a request will be answered with null (C sets `errno`).
    fn no_memory();
    /// The error that the caller would see (C's `errno`), which a request that is served after all leaves as it was.
    fn error() -> i32 {
        0
    }
    /// Sets it.
    fn set_error(_: i32) {}
    /// Is told of a pointer that cannot be freed.
    fn report(address: usize, wrong: BadPointer);
    /// Starts a thread that calls [`Heap::keep`]; false if it cannot.
    fn start_keeper() -> bool {
        false
    }
    /// The threads that serve this heap, where the environment's are of that kind.
    fn crew() -> Option<&'static Crew> {
        None
    }
    /// Is told that the process ends: no thread of its own is left.
    fn ends() {}
    /// A file for the board of a forked child, where the process publishes it.
    fn publish() -> Option<usize> {
        None
    }
    /// That file is not used after all.
    fn withdraw() {}
    /// Writes the statistics of the process's per-CPU memory.
    ///
    /// # Errors
    /// Those of `out`.
    fn percpu_stats(_: &mut dyn core::fmt::Write) -> core::fmt::Result {
        Ok(())
    }
    /// Starts a thread that calls [`Heap::work`]; false if it cannot.
    fn start_worker() -> bool {
        false
    }
    /// The return addresses of who allocates, innermost first; how many.
    fn stack(_: &mut [usize]) -> usize {
        0
    }
    /// The file mapped at an address: its name into the slice with a zero behind (empty for the program itself),
    /// where it begins and ends.
    fn module(_: usize, _: &mut [u8]) -> Option<(usize, usize)> {
        None
    }
    /// A file to show the heap profile in, [`crate::stat::profile::PROFILE_BYTES`] long.
    fn profile_file() -> Option<usize> {
        None
    }
    /// That file is not used after all.
    fn withdraw_profile() {}
    /// Is told of a sampled allocation: address, size, and the bytes that it stands for.
    fn sampled(_: usize, _: usize, _: u64) {}
    /// Is told that a sampled allocation is freed.
    fn unsampled(_: usize) {}
    /// Whether somebody outside wants to be told.
    fn is_traced() -> bool {
        false
    }
}

/// A heap. Zero bytes until it opens: a static costs no file space and no page.
///
/// What every process touches comes first and together, up to the slots of the first CPUs, and is a page or two: a page
/// costs a process that does next to nothing more than anything else here.
#[repr(C)]
#[derive(Debug)]
pub struct Heap<E> {
    /// Where a fork waits for those inside.
    gate: Gate,
    side: Side,
    /// Whether the fork in flight had its fence.
    fenced: AtomicBool,
    /// This process; and which one began, and which one ended, to leave a reaper.
    pid: AtomicU32,
    reaping: AtomicU32,
    reaped: AtomicU32,
    /// Slow allocations of this process while it had no housekeeper, and ticks when it began to use the heap.
    slow: AtomicU32,
    born: AtomicU64,
    reclaim: Reclaim,
    opened: AtomicU32,
    /// The thread that is opening it.
    opener: AtomicUsize,
    /// Sizes from 1 to this are the fast path's; 0 until open, and in the fallback.
    small: AtomicUsize,
    cache: Cache,
    pages: Pages,
    slabs: Slabs,
    areas: Areas,
    profile: profile::Profile,
    /// What blocks of pages and areas were looked for in vain.
    barren: [scarce::Barren; 2],
    environment: PhantomData<fn() -> E>,
}

/// The source of every class of a set.
struct Everything<'a> {
    slabs: SlabSource<'a>,
    pages: PageSource<'a>,
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

/// What the environment decided about a heap that opens.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// How sets are reached.
    pub mode: Mode,
    /// Why.
    pub reason: Reason,
    /// What indexes them.
    pub index: Index,
    /// This process's rseq areas.
    pub area: RseqArea,
    /// For tests.
    pub simulation: Option<&'static Simulation>,
    /// A file to share the board through, or none.
    pub share: Option<usize>,
}

impl<E: Environment> Default for Heap<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Environment> Heap<E> {
    /// A closed heap.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            gate: Gate::new(),
            side: Side::new(),
            fenced: AtomicBool::new(false),
            pid: AtomicU32::new(0),
            reaping: AtomicU32::new(0),
            reaped: AtomicU32::new(0),
            slow: AtomicU32::new(0),
            born: AtomicU64::new(0),
            reclaim: Reclaim::new(),
            opened: AtomicU32::new(0),
            opener: AtomicUsize::new(0),
            small: AtomicUsize::new(0),
            cache: Cache::new(),
            pages: Pages::new(),
            slabs: Slabs::new(),
            areas: Areas::new(),
            profile: profile::Profile::new(),
            barren: [const { scarce::Barren::new() }; 2],
            environment: PhantomData,
        }
    }

    /// The per-CPU caches, with knobs and board.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Asks for it once the heap is large or can be looked into: small programs start with few calls.
    fn learn_pid(&self, is_allowed: bool) {
        // Relaxed: a number; no process has the other.
        self.pid.store(if is_allowed { sys::pid() } else { u32::MAX }, Relaxed);
    }

    /// The process whose heap this is; 0 while nobody has asked.
    #[must_use]
    pub fn pid(&self) -> u32 {
        // Relaxed: changes at a fork only.
        self.pid.load(Relaxed)
    }

    fn slab_source(&self) -> SlabSource<'_> {
        SlabSource { slabs: &self.slabs, cache: &self.cache, pages: &self.pages, report: E::report }
    }
    fn everything(&self) -> Everything<'_> {
        Everything { slabs: self.slab_source(), pages: self.page_source() }
    }
    fn page_source(&self) -> PageSource<'_> {
        PageSource { pages: &self.pages, cache: &self.cache, first: CLASSES }
    }
    fn vmap(&self) -> Vmap<'_> {
        Vmap { areas: &self.areas, regions: &self.pages.regions, cache: &self.cache, gate: &self.gate }
    }

    /// Maps the sets and the board, chooses the mode (sequences only if the self-test
    /// passes) and opens the gate. Called once, by `start`.
    ///
    /// # Errors
    /// Without memory for the sets; the heap stays closed.
    ///
    /// # Safety
    /// `opening.area` is right for mode `Sequences`; the knobs are set.
    pub unsafe fn open(&self, opening: &Opening) -> Result<(), sys::Errno> {
        let sets = &self.cache.sets;
        let room = Room::new()?;
        let base = room.base;
        // SAFETY: fresh and zeroed, for ever; still closed.
        unsafe { sets.open(base, Mode::Closed, opening.area, opening.simulation) };
        sets.roomy(room);
        if let Some(file) = opening.share {
            if sets.share(file) {
                sets.watch();
            } else {
                E::withdraw();
            }
        }
        let sizes = (0..ALL_CLASSES).map(|class| self.size_of(class));
        self.cache.size_classes(sizes);
        if opening.reason == Reason::Unregistered {
            // (An emulator, as likely as not.)
            self.areas.confine();
        }
        if self.cache.knobs.choice::<BadFree>() == BadFree::Abort {
            self.slabs.check();
        }
        let board = sets.board();
        board.sets.store(1, Relaxed);
        board.set(Level::Reserved, room.bytes as u64);
        board.set(Level::Mappings, 2);
        // SAFETY: the same mapping, now with its mode.
        unsafe { sets.open(base, opening.mode, opening.area, opening.simulation) };
        let (mut mode, mut reason) = (opening.mode, opening.reason);
        if mode == Mode::Sequences && !sets.self_test(&self.cache.meta) {
            (mode, reason) = (Mode::Fallback, Reason::SelfTest);
            // SAFETY: as above.
            unsafe { sets.open(base, mode, opening.area, opening.simulation) };
        }
        if sets.is_shared() {
            self.learn_pid(true);
            board.pid.store(self.pid(), Relaxed);
        }
        self.describe(mode, reason, opening.index);
        self.publish_knobs();
        self.born.store(self.cache.sets.clock.ticks(), Relaxed);
        if self.cache.knobs.get(Id::HardLimit) == BY_CGROUP {
            self.learn_limits();
        }
        self.end_opening(OPEN);
        if mode == Mode::Sequences && !self.slabs.is_checked() {
            // Release: whoever passes the gate sees an open heap.
            self.small.store(SMALL_MAX, Release);
        }
        // (It is off already, on pages that nobody has touched.)
        if self.cache.knobs.get(Id::ProfileBytes) != 0 {
            self.apply_profile();
        }
        Ok(())
    }

    /// Bytes of an object (or block of pages) of a class.
    fn size_of(&self, class: usize) -> usize {
        if class < CLASSES { SIZES[class] as usize } else { PAGE << LISTED[class - CLASSES] }
    }

    /// Writes the board's constants.
    fn describe(&self, mode: Mode, reason: Reason, index: Index) {
        let board = self.cache.sets.board();
        for class in 1..ALL_CLASSES {
            board.class[class].size.store(self.size_of(class) as u64, Relaxed);
        }
        board.version.store(VERSION, Relaxed);
        board.mode.store(mode as u32, Relaxed);
        board.reason.store(reason as u32, Relaxed);
        board.index.store(index as u32, Relaxed);
        board.classes.store(ALL_CLASSES as u32, Relaxed);
        board.size_classes.store(CLASSES as u32, Relaxed);
        board.start_ticks.store(self.cache.sets.clock.ticks(), Relaxed);
        board.start_ns.store(self.cache.sets.clock.now_ns(), Relaxed);
        // Release: a reader that sees the magic sees the rest.
        board.magic.store(MAGIC, Release);
    }

    /// Whether the heap is open.
    #[inline]
    fn is_open(&self) -> bool {
        // Acquire: whoever sees it open sees all of it.
        self.opened.load(Acquire) == OPEN
    }

    /// Opens the heap if nobody has; false without memory.
    #[inline]
    fn opened(&self) -> bool {
        self.is_open() || self.open_or_wait()
    }

    #[cold]
    #[inline(never)]
    fn open_or_wait(&self) -> bool {
        loop {
            match self.opened.load(Acquire) {
                OPEN => return true,
                CLOSED => {
                    if self.opened.compare_exchange(CLOSED, OPENING, Acquire, Relaxed).is_ok() {
                        // Relaxed: read by this thread and its handlers; others find another name.
                        self.opener.store(sys::thread_pointer(), Relaxed);
                        E::start(self);
                        self.opener.store(0, Relaxed);
                        // Without success the next call tries again.
                        return self.is_open() || self.end_opening(CLOSED) == OPEN;
                    }
                }
                OPENING => _ = self.opened.compare_exchange(OPENING, AWAITED, Relaxed, Relaxed),
                // (Asleep: whoever opens it may have to run on this CPU.)
                _ => sys::futex_wait(&self.opened, AWAITED),
            }
        }
    }

    /// It is open, or cannot be opened; what it is then.
    fn end_opening(&self, state: u32) -> u32 {
        // Release: whoever sees it open sees all of it.
        if self.opened.swap(state, Release) == AWAITED {
            sys::futex_wake(&self.opened, u32::MAX >> 1);
        }
        state
    }

    /// Whether the calling thread is opening the heap. (Some library's definition of what that calls has come back to us.)
    #[inline]
    fn is_opener(&self) -> bool {
        // Relaxed: see `open_or_wait`.
        self.opened.load(Relaxed) != OPEN && self.opener.load(Relaxed) == sys::thread_pointer()
    }

    /// Opens the heap now (a constructor would).
    pub fn prepare(&self) {
        let _inside = self.enter();
        self.opened();
    }

    /// `size` bytes aligned to 16; null without memory.
    #[inline(always)]
    pub fn malloc(&self, size: usize) -> *mut u8 {
        // One below: size 0 wraps, and is slow while closed and while open (it is rare).
        if size.wrapping_sub(1) >= self.small.load(Relaxed) {
            return self.malloc_cold(size, false);
        }
        // SAFETY: the gate lets no size above SMALL_MAX pass.
        match self.cache.sets.pop_fast(unsafe { class::offset_of_unchecked(size) }) {
            Outcome::Done(object) => object as *mut u8,
            refused => self.malloc_cold(size, refused == Outcome::Aborted),
        }
    }

    /// Takes an object back; null is ignored, foreign pointers are reported.
    ///
    /// # Safety
    /// `object` came from this heap and nobody uses it any more.
    #[inline(always)]
    pub unsafe fn free(&self, object: *mut u8) {
        // Opaque, so that one address is computed, once: that of the sets, which the sequence wants.
        let sets = opaque((&raw const self.cache.sets) as usize);
        let regions = sets + (core::mem::offset_of!(Self, pages.regions) - core::mem::offset_of!(Self, cache.sets));
        // SAFETY: references to parts of this heap.
        let (sets, regions) = unsafe { (&*(sets as *const Sets), &*(regions as *const Regions)) };
        let mut aborted = false;
        if let Some(class) = regions.class(object as usize)
            && class > 0
        {
            // SAFETY: the caller's promise; the class byte names its class.
            let outcome = unsafe { sets.push_fast(class as usize * 16, object as usize) };
            if matches!(outcome, Outcome::Done(())) {
                return;
            }
            aborted = outcome == Outcome::Aborted;
        }
        // SAFETY: the caller's promise.
        unsafe { Self::free_cold(object, self, aborted) };
    }

    #[cold]
    #[inline(never)]
    fn malloc_cold(&self, size: usize, aborted: bool) -> *mut u8 {
        let Some(inside) = self.enter() else { return self.alloc_aside(size, 16) };
        let is_quick = if self.profile.is_on() { None } else { self.malloc_quick(size, aborted) };
        let Some(object) = is_quick else {
            let object = if self.profile.is_on() { self.malloc_counted(size) } else { self.malloc_slow(size, aborted) };
            drop(inside);
            self.outside();
            return self.checked(object);
        };
        self.checked(object as *mut u8)
    }

    /// An object on its way to the program.
    #[inline]
    fn checked(&self, object: *mut u8) -> *mut u8 {
        if self.slabs.is_checked() && !object.is_null() {
            self.slab_source().hand_out(object as usize);
        }
        object
    }

    /// What is due on a slow path, and not inside.
    fn outside(&self) {
        if self.reclaim.keeper.is_none() && self.is_open() {
            self.consider_keeper();
        }
        if self.side.is_owing() {
            self.pay();
        }
    }

    /// An object of this CPU's own set, or an area that was freed lately.
    #[inline]
    fn malloc_quick(&self, size: usize, aborted: bool) -> Option<usize> {
        if size > SMALL_MAX {
            return if self.is_open() { Some(self.reuse_area(size, PAGE)?.address) } else { None };
        }
        if aborted { None } else { self.alloc_set(class::offset_of(size) / 16) }
    }

    #[cold]
    #[inline(never)]
    fn malloc_slow(&self, size: usize, aborted: bool) -> *mut u8 {
        let start = self.cache.sets.clock.ticks();
        if !self.opened() {
            E::no_memory();
            return ptr::null_mut();
        }
        let object = if size <= SMALL_MAX {
            self.approach();
            // Slabs that grow beside freed areas may pass the limit, too.
            self.reclaim.check(&self.cache, &self.pages, self.vmap(), 0);
            self.alloc_class(class::offset_of(size) / 16)
        } else {
            self.alloc_area(size, PAGE, false).map(|fresh| fresh.address)
        };
        self.cold_end(Event::AllocSlowpath, start, object.is_none());
        if size <= SMALL_MAX {
            self.cache.sets.time(Timing::Refill, start);
        }
        if aborted {
            self.cache.sets.count(Event::SeqAbort, 1);
        }
        self.look_for_tracer();
        object.unwrap_or(0) as *mut u8
    }

    /// The process is about to forbid itself all system calls but four.
    pub fn freeze(&self) {
        self.reclaim.freeze();
    }

    /// The process is about to filter its own system calls, or promises what lets it: no thread of ours is there any
    /// more, and slow paths do without.
    pub fn confine(&self) {
        if self.is_open() && self.reclaim.keeper.enter() {
            // For good: nobody may read them later.
            self.learn_limits();
            self.reclaim.keeper.leave();
        }
        self.areas.confine();
        self.pages.confine();
        self.cache.sets.cpus.confine();
        self.reclaim.keeper.confine();
        self.await_threads(keep::SECOND);
        self.apply_profile();
    }

    /// Whether it filters its system calls, as far as is known.
    #[must_use]
    pub fn is_confined(&self) -> bool {
        self.reclaim.keeper.is_confined()
    }

    /// A lazy area, or a part of one; the heap is open.
    #[inline]
    fn reuse_area(&self, size: usize, align: usize) -> Option<Fresh> {
        self.vmap().reuse(size, align).or_else(|| self.vmap().reuse_part(size, align))
    }

    /// An area. Fresh memory beside lazily freed areas of other sizes may pass the limit of
    /// what is free and resident; and when there is no memory, caches are given up first.
    fn alloc_area(&self, size: usize, align: usize, zero: bool) -> Option<Fresh> {
        self.approach();
        let alloc = || if zero { self.vmap().alloc_zero(size, align) } else { self.vmap().alloc(size, align) };
        let area = alloc().or_else(|| {
            if self.is_limited(size) {
                return self.squeezed(size, alloc);
            }
            self.scrape_area(size, alloc)
        })?;
        if area.zero {
            self.reclaim.check(&self.cache, &self.pages, self.vmap(), size);
        }
        Some(area)
    }

    /// Whether a fast path has tried before.
    fn has_fast_path(&self) -> bool {
        self.cache.sets.mode() != Mode::Fallback && !self.slabs.is_checked()
    }

    /// An object of this CPU's own set, where the fast path did not find it: the fallback's
    /// whole way, or the spare sheaf.
    fn alloc_set(&self, class: usize) -> Option<usize> {
        if !self.has_fast_path()
            && let Outcome::Done(object) = self.cache.sets.pop(class)
        {
            return Some(object);
        }
        self.cache.alloc_spare(&self.slab_source(), class)
    }

    /// Frees into this CPU's own set likewise; false if it is the caller's still.
    ///
    /// # Safety
    /// As [`Heap::free`].
    unsafe fn free_set(&self, class: usize, object: usize) -> bool {
        if !self.has_fast_path()
            // SAFETY: the caller's promise.
            && unsafe { self.cache.sets.push(class, object) } == Outcome::Done(())
        {
            return true;
        }
        // SAFETY: the caller's promise.
        unsafe { self.cache.free_spare(&self.slab_source(), class, object) }
    }

    /// An object of a class; when there is no memory, once more after the barns were given up
    /// (the sets of other CPUs would take a fence, which a filter may forbid by now).
    fn alloc_class(&self, class: usize) -> Option<usize> {
        self.cache.alloc(&self.slab_source(), class).or_else(|| {
            let slab = PAGE << class::SLAB_ORDER[class];
            if self.is_limited(slab) {
                return self.squeezed(slab, || self.cache.alloc(&self.slab_source(), class));
            }
            self.scrape_pages(class::SLAB_ORDER[class] as usize, || self.cache.alloc(&self.slab_source(), class))
        })
    }

    fn cold_end(&self, event: Event, start: u64, failed: bool) {
        let sets = &self.cache.sets;
        sets.count(event, 1);
        sets.count(Event::SlowpathTicks, self.cache.sets.clock.ticks().saturating_sub(start));
        if failed {
            sets.count(Event::NoMemory, 1);
            E::no_memory();
        }
        if event == Event::AllocSlowpath && self.reclaim.keeper.is_none() {
            self.consider_keeper();
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn free_cold(object: *mut u8, this: &Self, aborted: bool) {
        if object.is_null() {
            return;
        }
        let address = object as usize;
        // (Nobody has anything else of a heap that is not open.)
        let inside = if this.is_open() { this.enter() } else { None };
        let Some(inside) = inside else {
            // SAFETY: the caller's promise.
            return unsafe { this.free_aside(address) };
        };
        // SAFETY: the caller's promise.
        unsafe { this.free_inside(address, aborted) };
        drop(inside);
        if this.side.is_owing() {
            this.pay();
        }
    }

    /// # Safety
    /// As [`Heap::free`].
    unsafe fn free_inside(&self, address: usize, aborted: bool) {
        let this = self;
        let class = this.slab_source().class_of(address);
        if class.is_some()
            && this.slabs.is_checked()
            && let Err(wrong) = this.slab_source().hand_in(address)
        {
            return this.slab_source().bad(address, wrong);
        }
        if let Some(class) = class
            && !aborted
            // SAFETY: the caller's promise.
            && unsafe { this.free_set(class, address) }
        {
            return;
        }
        if class.is_none() {
            this.forget(address);
            match this.free_area(address) {
                Freed::Quietly => return this.wake_keeper(),
                Freed::Told => {}
                Freed::Queued(ticket) => {
                    let start = this.cache.sets.clock.ticks();
                    this.give_giant_back(ticket);
                    this.wake_keeper();
                    this.cache.sets.time(Timing::Free, start);
                    return this.cold_end(Event::FreeSlowpath, start, false);
                }
                Freed::Not if this.side.size(address).is_some() => {
                    // SAFETY: the caller's promise.
                    return unsafe { this.side.free(address) };
                }
                Freed::Not => {
                    let ours = this.pages.regions.find(address).is_some();
                    this.cache.sets.count(Event::BadFree, 1);
                    E::report(address, if ours { BadPointer::Interior } else { BadPointer::Foreign });
                }
            }
            if !this.reclaim.is_passed(&this.cache) && !this.areas.is_pending() {
                return this.wake_keeper();
            }
        }
        let start = this.cache.sets.clock.ticks();
        if let Some(class) = class {
            // SAFETY: the caller's promise.
            unsafe { this.cache.free(&this.slab_source(), class, address) };
        }
        this.reclaim.check(&this.cache, &this.pages, this.vmap(), 0);
        this.wake_keeper();
        if class.is_none() {
            this.cache.sets.time(Timing::Free, start);
        }
        this.cold_end(Event::FreeSlowpath, start, false);
        if aborted {
            this.cache.sets.count(Event::SeqAbort, 1);
        }
    }

    /// `size` zeroed bytes; null without memory.
    pub fn calloc(&self, size: usize) -> *mut u8 {
        if size <= SMALL_MAX {
            let object = self.malloc(size);
            if !object.is_null() {
                // SAFETY: a fresh object of at least that size.
                unsafe { ptr::write_bytes(object, 0, size) };
            }
            return object;
        }
        let Some(_inside) = self.enter() else {
            let object = self.alloc_aside(size, 16);
            if !object.is_null() {
                // SAFETY: a fresh block of at least that size.
                unsafe { ptr::write_bytes(object, 0, size) };
            }
            return object;
        };
        let start = self.cache.sets.clock.ticks();
        if !self.opened() {
            E::no_memory();
            return ptr::null_mut();
        }
        let fresh = self.alloc_area(size, PAGE, true);
        self.cold_end(Event::AllocSlowpath, start, fresh.is_none());
        let Some(fresh) = fresh else { return ptr::null_mut() };
        if self.is_due(size) {
            self.sample(fresh.address, size);
        }
        if !fresh.zero {
            // SAFETY: a fresh area of at least that size.
            unsafe { ptr::write_bytes(fresh.address as *mut u8, 0, size) };
        }
        fresh.address as *mut u8
    }

    /// `size` bytes aligned to `align`, a power of two; null without memory.
    pub fn aligned(&self, size: usize, align: usize) -> *mut u8 {
        if align <= 16 {
            return self.malloc(size);
        }
        let Some(_inside) = self.enter() else { return self.alloc_aside(size, align) };
        let start = self.cache.sets.clock.ticks();
        if !self.opened() {
            E::no_memory();
            return ptr::null_mut();
        }
        let class = if align <= PAGE { class::aligned(size, align) } else { None };
        let is_due = self.is_due(size);
        let object = match class {
            Some(class) if !is_due => self.alloc_class(class),
            _ => {
                let area = self.reuse_area(size, align).or_else(|| self.alloc_area(size, align, false));
                area.map(|area| area.address)
            }
        };
        if is_due && let Some(object) = object {
            self.sample(object, size);
        }
        self.cold_end(Event::AllocSlowpath, start, object.is_none());
        self.checked(object.unwrap_or(0) as *mut u8)
    }

    /// Bytes that the object at this address has; `None` if it is not one of ours.
    #[must_use]
    pub fn usable(&self, object: *const u8) -> Option<usize> {
        match self.pages.regions.class(object as usize) {
            Some(class) if class > 0 => Some(SIZES[class as usize] as usize),
            Some(_) => match self.slab_source().class_of(object as usize) {
                Some(class) => Some(SIZES[class] as usize),
                None => match self.vmap().find(object as usize) {
                    Some(area) => Some(area.bytes),
                    None => self.side.size(object as usize),
                },
            },
            None => self.side.size(object as usize),
        }
    }

    /// Changes an object's size, keeping its contents up to the smaller one; null without
    /// memory (the object is untouched then). `size` is not 0.
    ///
    /// # Safety
    /// `object` came from this heap; it is given up unless null is returned.
    pub unsafe fn realloc(&self, object: *mut u8, size: usize) -> *mut u8 {
        let Some(old) = self.usable(object) else {
            self.count_if_open(Event::BadFree);
            E::report(object as usize, BadPointer::Foreign);
            return ptr::null_mut();
        };
        if self.slabs.is_checked()
            && let Err(wrong) = self.slab_source().look(object as usize)
        {
            self.slab_source().bad(object as usize, wrong);
            return ptr::null_mut();
        }
        // Fits, and wastes less than half (of small ones only what copying would cost).
        let fits = size <= old && (size > old / 2 || old <= 64) && old <= SMALL_MAX;
        // (A sampled object has more room than it shows; it is exchanged for one that is counted.)
        if fits && !(self.profile.is_used() && self.profile.samples.may_have(object as usize)) {
            return object;
        }
        if old > SMALL_MAX
            && size > SMALL_MAX
            && let Some(_inside) = self.enter()
            && let Some(area) = self.vmap().find(object as usize)
        {
            let start = self.cache.sets.clock.ticks();
            // Before the address can be somebody else's.
            self.forget(object as usize);
            // Once more where the hard limit was in the way: copying would need more than growing.
            for is_last in [false, true] {
                if self.vmap().resize(&area, size) {
                    if self.is_due(size) {
                        self.sample(object as usize, size);
                    }
                    let more = size.saturating_sub(old);
                    self.reclaim.check(&self.cache, &self.pages, self.vmap(), more);
                    self.cold_end(Event::AllocSlowpath, start, false);
                    return object;
                }
                // SAFETY: the caller's promise.
                if let Some(moved) = unsafe { self.vmap().relocate(&area, size) } {
                    let more = size.saturating_sub(old);
                    self.reclaim.check(&self.cache, &self.pages, self.vmap(), more);
                    self.cold_end(Event::AllocSlowpath, start, false);
                    if self.is_due(size) {
                        self.sample(moved, size);
                    }
                    return moved as *mut u8;
                }
                if is_last || !self.is_limited(size.saturating_sub(old)) || !self.squeeze() {
                    break;
                }
            }
        }
        let error = if size <= old { E::error() } else { 0 };
        let Some(fresh) = NonNull::new(self.malloc(size)) else {
            if size > old {
                return ptr::null_mut();
            }
            // What shrinks has room where it is; and what is behind serves others.
            E::set_error(error);
            if let Some(area) = self.vmap().find(object as usize)
                && let Some(_inside) = self.enter()
            {
                let _ = self.vmap().resize(&area, size);
            }
            return object;
        };
        // SAFETY: two different live objects, both at least that long; then the old one is given up.
        unsafe {
            ptr::copy_nonoverlapping(object, fresh.as_ptr(), old.min(size));
            self.free(object);
        }
        fresh.as_ptr()
    }

    /// Up to `into.len()` objects of `size` bytes at once (at most 32 KiB each); how many.
    pub fn malloc_bulk(&self, size: usize, into: &mut [usize]) -> usize {
        if size > SMALL_MAX {
            return 0;
        }
        let inside = self.enter();
        if inside.is_some() && !self.opened() {
            return 0;
        }
        // (Beside a fork one by one, too.)
        if self.profile.is_on() || self.slabs.is_checked() || inside.is_none() {
            let mut got = 0;
            while got < into.len()
                && let Some(object) = NonNull::new(self.malloc(size))
            {
                into[got] = object.as_ptr() as usize;
                got += 1;
            }
            return got;
        }
        let class = class::offset_of(size) / 16;
        let mut got = self.cache.sets.pop_batch(class, into);
        while got < into.len() {
            let Some(object) = self.alloc_class(class) else { break };
            into[got] = object;
            got += 1;
            got += self.cache.sets.pop_batch(class, &mut into[got..]);
        }
        got
    }

    /// Takes objects back, all from [`Heap::malloc_bulk`] with this size.
    ///
    /// # Safety
    /// As [`Heap::free`] for each.
    pub unsafe fn free_bulk(&self, size: usize, objects: &[usize]) {
        let inside = self.enter();
        if self.profile.is_used() || self.slabs.is_checked() || inside.is_none() || self.side.is_used() {
            // Some may be sampled, and of no class, or come from the side arena, or be put off.
            // SAFETY: the caller's promise.
            objects.iter().for_each(|&object| unsafe { self.free(object as *mut u8) });
            return;
        }
        let class = class::offset_of(size) / 16;
        let mut rest = objects;
        while !rest.is_empty() {
            // SAFETY: the caller's promise.
            let given = unsafe { self.cache.sets.push_batch(class, rest) };
            rest = &rest[given..];
            if let Some((&first, others)) = rest.split_first() {
                // SAFETY: the caller's promise.
                unsafe { Self::free_cold(first as *mut u8, self, false) };
                rest = others;
            }
        }
    }

    /// Objects of a class that are in sets and barns; beside a fork, in sets.
    #[must_use]
    pub fn cached(&self, class: usize) -> usize {
        match self.enter() {
            Some(_inside) => self.cache.cached(class),
            None => self.cache.sets.cached(class),
        }
    }

    /// Free blocks by order, all zones.
    #[must_use]
    pub fn buddyinfo(&self) -> [usize; crate::page::ORDERS] {
        let _inside = self.enter_patiently();
        let mut sum = [0; crate::page::ORDERS];
        for (node, zone) in self.pages.zones.iter().enumerate().filter(|(_, zone)| zone.managed() > 0) {
            sum.iter_mut()
                .zip(zone.buddyinfo(&self.pages.regions, self.cache.sets.board(), node))
                .for_each(|(sum, n)| *sum += n);
        }
        sum
    }

    /// The process ends in the usual way: says so to those who read its board. (Not what a child of `vfork` does.)
    pub fn note_end(&self) {
        if self.is_open() && self.cache.sets.is_shared() && self.pid() == sys::pid() {
            self.cache.sets.board().ended.store(1, Relaxed);
        }
    }

    fn count_if_open(&self, event: Event) {
        if self.is_open() {
            self.cache.sets.count(event, 1);
        }
    }

    /// Walks every structure; for tests, when nobody else uses the heap.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn verify(&self) {
        self.slab_source().verify();
        self.vmap().verify();
        let (regions, board) = (&self.pages.regions, self.cache.sets.board());
        self.pages.zones.iter().enumerate().for_each(|(node, zone)| zone.verify(regions, board, node));
    }
}

#[cfg(test)]
mod tests;
