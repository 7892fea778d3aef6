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
mod back;
mod bulk;
mod fork;
mod front;
mod open;
mod pages;
pub mod profile;
mod resize;
pub mod samples;
pub mod side;

use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use crate::arch::crew::Crew;
use crate::arch::outcome::Outcome;
use crate::arch::{PAGE, opaque, sys};
use crate::cache::{Cache, Sets};
use crate::page::Windows;
use crate::reclaim::Mm;
use crate::reclaim::mm::Parts;
use crate::slab::SlabSource;
use crate::slab::class::{self, CLASSES, SMALL_MAX};
use crate::stat::BadPointer;
use crate::stat::{Event, Mode, Timing};
use crate::vmap::{Freed, Fresh};
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr;
use open::Door;
pub use open::Opening;
use side::Side;

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
    /// Starts a thread that calls [`Mm::keep`]; false if it cannot.
    fn start_keeper() -> bool {
        false
    }
    /// The threads that serve this heap, where the environment's are of that kind.
    fn crew() -> Option<&'static Crew> {
        None
    }
    /// Is told that the process ends: no thread of its own is left.
    fn ends() {}
    /// Does what another process asked of this heap (`control::mailbox`); false if nothing was.
    fn serve(_: &Heap<Self>) -> bool {
        false
    }
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
    /// Starts a thread that calls [`Mm::work`]; false if it cannot.
    fn start_worker() -> bool {
        false
    }
    /// The return addresses of the thread that allocates, innermost first; how many.
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

/// Bytes in use from which a heap asks whose it is.
const LARGE: u64 = 16 << 20;

/// A heap. Zero bytes until it opens: a static costs no file space and no page.
///
/// What every process touches comes first and together, up to the slots of the first CPUs, and is a page or two: a page
/// costs a process that does next to nothing more than anything else here.
#[repr(C)]
#[derive(Debug)]
pub struct Heap<E> {
    side: Side,
    /// Whether the fork in flight had its fence.
    fenced: AtomicBool,
    /// This process.
    pid: AtomicU32,
    door: Door,
    /// Sizes from 1 to this are the fast path's; 0 until open, and in the fallback.
    small: AtomicUsize,
    parts: Parts,
    profile: profile::Profile,
    environment: PhantomData<fn() -> E>,
}

impl<E: Environment> Default for Heap<E> {
    fn default() -> Self {
        Self::new()
    }
}

/// The parts of memory are the heap's own.
impl<E> Deref for Heap<E> {
    type Target = Parts;
    #[inline(always)]
    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl<E: Environment> Heap<E> {
    /// A closed heap.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            side: Side::new(),
            fenced: AtomicBool::new(false),
            pid: AtomicU32::new(0),
            door: Door::new(),
            small: AtomicUsize::new(0),
            parts: Parts::new(),
            profile: profile::Profile::new(),
            environment: PhantomData,
        }
    }

    /// The per-CPU caches, with knobs and board.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// What giving back works on.
    #[inline]
    #[must_use]
    pub fn mm(&self) -> Mm<'_> {
        Mm { parts: &self.parts, host: self }
    }
    fn slab_source(&self) -> SlabSource<'_> {
        self.parts.slab_source(E::report)
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

    /// `size` bytes aligned to 16; null without memory.
    #[inline(always)]
    pub fn malloc(&self, size: usize) -> *mut u8 {
        self.malloc_or(size, |aborted| self.malloc_refused(size, aborted))
    }

    /// The fast path of [`Self::malloc`]; where it refuses, what `refused` returns, which is told whether a sequence was
    /// aborted and goes on by [`Self::malloc_refused`].
    #[inline(always)]
    pub fn malloc_or(&self, size: usize, refused: impl FnOnce(bool) -> *mut u8) -> *mut u8 {
        // One below: size 0 wraps, and is slow while closed and while open (it is rare).
        if size.wrapping_sub(1) >= self.small.load(Relaxed) {
            return refused(false);
        }
        // SAFETY: the gate lets no size above SMALL_MAX pass.
        match self.cache.sets.pop_fast(unsafe { class::offset_of_unchecked(size) }) {
            Outcome::Done(object) => object as *mut u8,
            outcome => refused(outcome == Outcome::Aborted),
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
        let windows =
            sets + (core::mem::offset_of!(Self, parts.pages.windows) - core::mem::offset_of!(Self, parts.cache.sets));
        // SAFETY: references to parts of this heap.
        let (sets, windows) = unsafe { (&*(sets as *const Sets), &*(windows as *const Windows)) };
        let mut aborted = false;
        if let Some(class) = windows.class(object as usize)
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

    /// The rest of [`Self::malloc`], after [`Self::malloc_or`].
    #[cold]
    #[inline(never)]
    pub fn malloc_refused(&self, size: usize, aborted: bool) -> *mut u8 {
        match self.front_alloc(size) {
            Some(area) => area as *mut u8,
            None => self.malloc_cold(size, aborted),
        }
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
            self.mm().consider_keeper();
        }
        if self.side.is_owing() {
            self.pay();
        }
    }

    /// An object of this CPU's own set, or an area that was freed lately.
    #[inline]
    fn malloc_quick(&self, size: usize, aborted: bool) -> Option<usize> {
        if size > SMALL_MAX {
            return if self.is_open() { self.reuse_area(size, PAGE) } else { None };
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
            self.mm().check(0);
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

    /// An area of freed memory, with its old contents.
    fn reuse_area(&self, size: usize, align: usize) -> Option<usize> {
        // (With sequences, whoever wants no more than a page's alignment has looked.)
        let looked = align <= PAGE && self.small.load(Relaxed) != 0;
        let front = match looked {
            true => {
                self.front_lacks(size);
                None
            }
            false if align > PAGE => None,
            false => self.front_alloc_slow(size),
        };
        front.or_else(|| Some(self.reuse_dirty(size, align)?.address))
    }

    /// One that no front has.
    fn reuse_dirty(&self, size: usize, align: usize) -> Option<Fresh> {
        self.vmap().reuse(self.front_size(size), align)
    }

    /// An area. Fresh memory beside lazily freed areas of other sizes may pass the limit of
    /// what is free and resident; and when there is no memory, caches are given up first.
    fn alloc_area(&self, size: usize, align: usize, zero: bool) -> Option<Fresh> {
        self.approach();
        let size = self.front_size(size);
        if !zero && self.vmap().is_plain(size, align) {
            self.front_gives_way();
        }
        let sparse = if zero { self.mm().sparse() } else { 0 };
        let alloc = || if zero { self.vmap().alloc_zero(size, align, sparse) } else { self.vmap().alloc(size, align) };
        let area = alloc().or_else(|| {
            if self.mm().is_limited(size) {
                return self.mm().squeezed(size, alloc);
            }
            self.mm().scrape_area(size, alloc)
        })?;
        if area.zero {
            self.mm().check(size);
        }
        Some(area)
    }

    /// Before a slow path takes more memory: asks whose the heap is once it is large, and keeps the soft limit.
    #[inline]
    fn approach(&self) {
        if self.pid() == 0 && self.cache.sets.board().in_use() >= LARGE && !self.is_confined() {
            // (A filter that was inherited may kill for it: then nobody has asked.)
            self.learn_pid(!sys::status().0);
        }
        self.mm().approach();
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
        self.cache.alloc_own(&self.slab_source(), class)
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
        unsafe { self.cache.free_own(&self.slab_source(), class, object) }
    }

    /// An object of a class; when there is no memory, once more after the barns were given up
    /// (the sets of other CPUs would take a fence, which a filter may forbid by now).
    fn alloc_class(&self, class: usize) -> Option<usize> {
        self.cache.alloc(&self.slab_source(), class).or_else(|| {
            let slab = PAGE << class::SLAB_ORDER[class];
            if self.mm().is_limited(slab) {
                return self.mm().squeezed(slab, || self.cache.alloc(&self.slab_source(), class));
            }
            self.mm().scrape_pages(class::SLAB_ORDER[class] as usize, || self.cache.alloc(&self.slab_source(), class))
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
            self.mm().consider_keeper();
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn free_cold(object: *mut u8, this: &Self, aborted: bool) {
        if object.is_null() {
            return;
        }
        let address = object as usize;
        if this.front_free(address) {
            return;
        }
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
            let front = this.front_free_slow(address).map(|told| if told { Freed::Told } else { Freed::Quietly });
            match front.unwrap_or_else(|| this.mm().free_area(address)) {
                Freed::Quietly => return this.mm().wake_keeper(),
                Freed::Told => {}
                Freed::Queued(ticket) => {
                    let start = this.cache.sets.clock.ticks();
                    this.mm().give_giant_back(ticket);
                    this.mm().wake_keeper();
                    this.cache.sets.time(Timing::Free, start);
                    return this.cold_end(Event::FreeSlowpath, start, false);
                }
                Freed::Not if this.side.size(address).is_some() => {
                    // SAFETY: the caller's promise.
                    return unsafe { this.side.free(address) };
                }
                Freed::Not => {
                    let ours = this.pages.windows.find(address).is_some();
                    this.cache.sets.count(Event::BadFree, 1);
                    E::report(address, if ours { BadPointer::Interior } else { BadPointer::Foreign });
                }
            }
            if !this.mm().is_passed() && !this.areas.is_pending() {
                return this.mm().wake_keeper();
            }
        }
        let start = this.cache.sets.clock.ticks();
        if let Some(class) = class {
            // SAFETY: the caller's promise.
            unsafe { this.cache.free(&this.slab_source(), class, address) };
        }
        this.mm().check(0);
        this.mm().wake_keeper();
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
        let front = self.front_alloc_slow(size).map(|address| Fresh { address, zero: false });
        let fresh = front.or_else(|| self.alloc_area(size, PAGE, true));
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
                let front = if align <= PAGE { self.front_alloc_slow(size) } else { None };
                front.or_else(|| {
                    let area = self.reuse_dirty(size, align).or_else(|| self.alloc_area(size, align, false));
                    area.map(|area| area.address)
                })
            }
        };
        if is_due && let Some(object) = object {
            self.sample(object, size);
        }
        self.cold_end(Event::AllocSlowpath, start, object.is_none());
        self.checked(object.unwrap_or(0) as *mut u8)
    }

    /// Objects of a class that are in sets and barns; beside a fork, in sets without their barns.
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
                .zip(zone.buddyinfo(&self.pages.windows, self.cache.sets.board(), node))
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
        let (windows, board) = (&self.pages.windows, self.cache.sets.board());
        self.pages.zones.iter().enumerate().for_each(|(node, zone)| zone.verify(windows, board, node));
    }
}

#[cfg(test)]
mod tests;
