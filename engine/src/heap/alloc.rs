//! # An allocation: the fast path, then what is due, then by size
//!
//! ```text
//! malloc ─► size ≤ gates.small? ─► class ─► pop (sequence) ─► object, or an area of up to 64 KiB
//!            │ no                           │ refused, aborted
//!            │ (in the fallback: pop by the bias, then)
//!            └────────► cold path ◄─────────┘   set, barn, slab, pages; or an area
//! ```
//! What is to be aligned to a page or less is what a multiple of the alignment is (`class::aligned`).
//!
//! Beside a fork it is the side arena's ([`super::side`]). While allocations are sampled all come here.
//!
//! Cost: the golden table of the fast paths is in `cli/tests/golden`.
#![allow(unsafe_code)] // hands out memory

use super::state::{Environment, Heap};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::arch::stack;
use crate::arch::{PAGE, is_below, opaque, sys};
use crate::cache::Sets;
use crate::cache::front::LONG;
use crate::knob::GRADED_BYTES;
use crate::slab::class::{self, CLASSES, SMALL_MAX};
use crate::stat::{Event, Timing};
use crate::vmap::Fresh;
use core::hint;
use core::mem::offset_of;
use core::ptr::{self, NonNull};

/// Bytes in use from which a heap asks whose it is.
const LARGE: u64 = 16 << 20;

/// Why a fast path has no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No gate lets such a size pass: it is above, or they are shut.
    Gates,
    /// A sequence was aborted.
    Aborted,
    /// Who asks is not served here.
    Unserved,
    /// Whatever else.
    Other,
}

impl<E: Environment> Heap<E> {
    /// From the sets to the gate.
    const GATE: isize = offset_of!(Self, gates.small) as isize - offset_of!(Self, parts.cache.sets) as isize;
    /// And to that of the thread that the fallback favours.
    const BIASED_GATE: isize = offset_of!(Self, gates.biased) as isize - offset_of!(Self, parts.cache.sets) as isize;
    /// And to that of others.
    const OTHERS_GATE: isize = offset_of!(Self, gates.others) as isize - offset_of!(Self, parts.cache.sets) as isize;

    /// `size` bytes aligned to 16; null without memory.
    #[inline(always)]
    pub fn malloc(&self, size: usize) -> *mut u8 {
        self.malloc_or::<false>(size, |why| self.malloc_rest(size, why))
    }

    /// The same, inlined into a function that has no frame: a walk of the stack from inside finds who called that.
    #[inline(always)]
    pub fn malloc_bare(&self, size: usize) -> *mut u8 {
        self.malloc_or::<true>(size, |why| self.malloc_rest(size, why))
    }

    /// The same for who asks by another name ([`Self::serve_others`]): where the fast path refuses, what `refused` returns, which is told why
    /// and goes on by [`Self::malloc_large`], or where a sequence was aborted by [`Self::malloc_refused`]. `is_served` says once more whether he is served.
    #[inline(always)]
    pub fn malloc_others(
        &self,
        size: usize,
        is_served: impl FnOnce() -> bool,
        refused: impl FnOnce(Refused) -> *mut u8,
    ) -> *mut u8 {
        match self.malloc_fast::<true, true>(size, is_served) {
            Ok(object) => object as *mut u8,
            Err(why) => refused(why),
        }
    }

    /// The fast path; where it refuses, what `refused` returns. (`BARE`: see [`Self::malloc_bare`].)
    #[inline(always)]
    fn malloc_or<const BARE: bool>(&self, size: usize, refused: impl FnOnce(Refused) -> *mut u8) -> *mut u8 {
        match self.malloc_fast::<BARE, false>(size, || true) {
            Ok(object) => object as *mut u8,
            Err(why) => refused(why),
        }
    }

    /// The fast path, through the gate of others or not.
    #[inline(always)]
    fn malloc_fast<const BARE: bool, const OTHERS: bool>(
        &self,
        size: usize,
        is_served: impl FnOnce() -> bool,
    ) -> Result<usize, Refused> {
        // Opaque, as in `free`: the gate is found by the address that the sequence wants.
        let sets = opaque((&raw const self.cache.sets) as usize);
        // One below: size 0 wraps, and comes again as 1 where the gate is open ([`Self::malloc_wide`]).
        let less = size.wrapping_sub(1);
        // SAFETY: the gate's word, of this heap.
        if !unsafe { is_below!(less, sets, const { if OTHERS { Self::OTHERS_GATE } else { Self::GATE } }) } {
            if !is_served() {
                return Err(Refused::Unserved);
            }
            if let Some(object) = self.malloc_biased(sets, less) {
                return Ok(object);
            }
            return Err(Refused::Gates);
        }
        // SAFETY: a part of this heap.
        let sets = unsafe { &*(sets as *const Sets) };
        // SAFETY: the gate lets no size above FAST_MAX pass.
        match sets.pop_fast::<BARE>(unsafe { class::offset_of_unchecked(less) }) {
            Outcome::Done(object) => Ok(object),
            Outcome::Aborted => Err(Refused::Aborted),
            Outcome::Refused => Err(Refused::Other),
        }
    }

    #[inline(always)]
    fn malloc_rest(&self, size: usize, why: Refused) -> *mut u8 {
        match why {
            Refused::Gates => self.malloc_large(size),
            _ => self.malloc_refused(size, why == Refused::Aborted),
        }
    }

    /// A size above those, or 0; or any, where the gates are shut or nothing was found behind them.
    #[cold]
    #[inline(never)]
    pub fn malloc_large(&self, size: usize) -> *mut u8 {
        let less = size.wrapping_sub(1);
        // (One comparison for what is shut and what has opened since.)
        if less <= self.gates.small.load(Relaxed).wrapping_sub(1) {
            return self.malloc_refused(size, false);
        }
        if less >= self.cache.knobs.graded_most() {
            return self.malloc_long(size);
        }
        // SAFETY: `graded_most` is no more.
        unsafe { hint::assert_unchecked(less < GRADED_BYTES) };
        self.front_alloc_graded(size, less / PAGE)
    }

    /// The same of one above the classes of a length each.
    #[cold]
    #[inline(never)]
    fn malloc_long(&self, size: usize) -> *mut u8 {
        if size.wrapping_sub(1) >= self.cache.knobs.front_most() {
            return self.malloc_wide(size);
        }
        self.front_alloc(size, |class_offset| self.cache.sets.pop_fast::<false>(class_offset))
    }

    /// The same of one that no CPU keeps: what was freed last, if it waits, or else the slow path.
    #[cold]
    #[inline(never)]
    fn malloc_wide(&self, size: usize) -> *mut u8 {
        // (What wraps at every gate, and they are open.)
        if size == 0 {
            return self.malloc_or::<false>(1, |why| self.malloc_refused(1, why == Refused::Aborted));
        }
        if self.areas.wide.is_used()
            && let Some(area) = self.vmap().take_wide(size, |misfit| self.front_lets_go::<false>(misfit, LONG))
        {
            return area as *mut u8;
        }
        self.malloc_cold(size, false)
    }

    /// The rest of [`Self::malloc`], after [`Self::malloc_or`].
    #[cold]
    #[inline(never)]
    pub fn malloc_refused(&self, size: usize, aborted: bool) -> *mut u8 {
        if !self.is_for_front(size) {
            return self.malloc_cold(size, aborted);
        }
        // (What the gates let pass has found nothing there.)
        if size <= self.gates.small.load(Relaxed) {
            return self.front_next(size);
        }
        self.front_alloc(size, |class_offset| self.pop_quick(class_offset))
    }

    /// The fast path of the thread that the fallback favours, for one byte less than is wanted. `sets` is where they are.
    #[inline(always)]
    fn malloc_biased(&self, sets: usize, less: usize) -> Option<usize> {
        // SAFETY: the gate's word, of this heap.
        if !unsafe { is_below!(less, sets, Self::BIASED_GATE) } || !E::is_single() {
            return None;
        }
        // SAFETY: the gate lets no size above FAST_MAX pass.
        match unsafe { self.cache.sets.pop_biased(class::offset_of_unchecked(less) / 16) } {
            Outcome::Done(object) => Some(object),
            _ => None,
        }
    }

    /// The program has, or is about to have, a second thread. The C library allocates for it in the first one, before it runs: so as a
    /// rule the owner gives the bias up, which takes no barrier.
    #[cold]
    #[inline(never)]
    fn end_bias(&self) {
        let bias = &self.cache.sets.cpus.bias;
        if bias.is_mine() && bias.take(|| false) {
            // Relaxed: a gate that is open in vain costs a look.
            self.gates.biased.store(0, Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn malloc_cold(&self, size: usize, aborted: bool) -> *mut u8 {
        if self.gates.biased.load(Relaxed) != 0 && !E::is_single() {
            self.end_bias();
        }
        if !aborted && let Some(object) = self.malloc_spare(size) {
            return object as *mut u8;
        }
        stack::probe_early();
        let Some(inside) = self.enter_for(size) else { return self.alloc_aside(size, 16) };
        let is_quick = if self.profile.is_on() { None } else { self.malloc_quick(size, aborted) };
        let Some(object) = is_quick else {
            let object = if self.profile.is_on() { self.malloc_counted(size) } else { self.malloc_slow(size, aborted) };
            drop(inside);
            self.outside();
            return self.checked(object);
        };
        self.checked(object as *mut u8)
    }

    /// An object of this CPU's spare, by sequences alone, as on the fast path.
    #[inline]
    fn malloc_spare(&self, size: usize) -> Option<usize> {
        // (As there, with the same gate.)
        let less = size.wrapping_sub(1);
        if less >= self.gates.small.load(Relaxed) {
            return None;
        }
        // SAFETY: the gate lets no size above FAST_MAX pass.
        let class_offset = unsafe { class::offset_of_unchecked(less) };
        if !self.cache.exchange_at_once(class_offset, false) {
            return None;
        }
        match self.cache.sets.pop_fast::<false>(class_offset) {
            Outcome::Done(object) => Some(object),
            _ => None,
        }
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
            return if self.is_open() { self.reuse_area(size) } else { None };
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
            // Slabs that grow beside freed areas take of them, or may pass the limit, too.
            let class = class::offset_of(size) / 16;
            self.mm().dirty_to_zone(class::SLAB_ORDER[class] as usize, || self.front_gives_some());
            self.mm().check(0);
            let object = self.alloc_class(class);
            self.cache.feed(&self.slab_source(), 1..CLASSES);
            object
        } else {
            self.alloc_area(size, PAGE, false).map(|fresh| fresh.address)
        };
        let object = object.or_else(|| self.alloc_left_aside(size, 16));
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

    /// `malloc` while sampling is on.
    #[cold]
    #[inline(never)]
    fn malloc_counted(&self, size: usize) -> *mut u8 {
        let is_due = self.is_due_here(size);
        if size > SMALL_MAX {
            let object = self.malloc_slow(size, false);
            if is_due && !object.is_null() {
                self.sample(object as usize, size);
            }
            return object;
        }
        if is_due && let Some(object) = self.sample_small(size) {
            return object as *mut u8;
        }
        match self.cache.sets.pop(class::offset_of(size) / 16) {
            Outcome::Done(object) => object as *mut u8,
            _ => self.malloc_slow(size, false),
        }
    }

    /// A sampled small object; `None` if there is no memory or no room for one.
    fn sample_small(&self, size: usize) -> Option<usize> {
        let area = self.alloc_area(size, PAGE, false)?;
        if self.sample(area.address, size) {
            return Some(area.address);
        }
        self.mm().free_area(area.address);
        None
    }

    /// An area of freed memory, with its old contents.
    fn reuse_area(&self, size: usize) -> Option<usize> {
        // (A fast path has looked.)
        let front = if self.is_quick() {
            self.front_lacks(size);
            None
        } else {
            self.front_alloc_slow(size, PAGE)
        };
        front.or_else(|| Some(self.reuse_dirty(size, PAGE)?.address))
    }

    /// One that no class of a front has: of dirty memory, or of the run.
    pub(super) fn reuse_dirty(&self, size: usize, align: usize) -> Option<Fresh> {
        self.vmap().empty_wide();
        self.reuse_more(size, self.run_wants(size, align), align).or_else(|| {
            let address = self.run_lends::<true>(size, align)?;
            Some(Fresh { address, zero: false })
        })
    }

    /// One of dirty memory, behind which the next run is, if there is one: up to `most` bytes in all.
    fn reuse_more(&self, size: usize, most: usize, align: usize) -> Option<Fresh> {
        let bytes = self.front_size(size);
        let fresh = self.vmap().reuse_more(bytes, most, align)?;
        if most > bytes {
            self.run_begins(fresh.address, bytes);
        }
        Some(fresh)
    }

    /// An area, of dirty memory if it is shorter than what is better fresh. Fresh memory beside lazily freed areas of other sizes may pass the limit of
    /// what is free and resident; before it what this CPU's front keeps is dirty memory, too, and when there is none, caches are given up.
    pub(super) fn alloc_area(&self, size: usize, align: usize, zero: bool) -> Option<Fresh> {
        self.approach();
        let size = self.front_size(size);
        let sparse = if zero { self.mm().sparse() } else { usize::MAX };
        if size < sparse {
            let reuse = || self.reuse_more(size, if zero { size } else { self.run_wants_all(size) }, align);
            // (Who wants no zeros has asked before.)
            let reused = if zero { reuse() } else { None };
            let again = || if self.vmap().is_plain(size, align) && self.front_gives_way() { reuse() } else { None };
            if let Some(fresh) = reused.or_else(again) {
                return Some(fresh);
            }
        }
        self.cache.grew();
        self.cache.feed(&self.slab_source(), 1..CLASSES);
        self.mm().dirty_to_areas(size);
        self.mm().mend();
        let alloc = || if zero { self.vmap().alloc_zero(size, align, sparse) } else { self.vmap().alloc(size, align) };
        let area = self.mm().take(size, alloc, || self.mm().scrape_area(size, alloc))?;
        self.mm().check(size);
        Some(area)
    }

    /// Before a slow path takes more memory: asks whose the heap is once it is large, and keeps the soft limit.
    #[inline]
    pub(super) fn approach(&self) {
        self.vmap().empty_wide();
        if self.pid() == 0 && self.cache.sets.board().in_use() >= LARGE && !self.is_confined() {
            // (A filter that was inherited may kill for it: then nobody has asked.)
            self.learn_pid(!sys::is_filtered());
        }
        self.mm().approach();
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

    /// An object of a class; when there is no memory, once more after the barns were given up
    /// (the sets of other CPUs would take a fence, which a filter may forbid by now).
    pub(super) fn alloc_class(&self, class: usize) -> Option<usize> {
        let order = class::SLAB_ORDER[class] as usize;
        let alloc = || self.cache.alloc(&self.slab_source(), class);
        self.mm().take(PAGE << order, alloc, || self.mm().scrape_pages(order, alloc))
    }

    /// `size` zeroed bytes; null without memory.
    #[inline]
    pub fn calloc(&self, size: usize) -> *mut u8 {
        self.calloc_by::<false>(size)
    }

    /// The same, inlined into a function that has no frame (see [`Self::malloc_bare`]).
    #[inline(always)]
    pub fn calloc_bare(&self, size: usize) -> *mut u8 {
        self.calloc_by::<true>(size)
    }

    #[inline(always)]
    fn calloc_by<const BARE: bool>(&self, size: usize) -> *mut u8 {
        if size > SMALL_MAX {
            hint::cold_path();
            return self.calloc_area(size, 16);
        }
        match self.malloc_fast::<BARE, false>(size, || true) {
            Ok(object) => {
                let object = object as *mut u8;
                // SAFETY: a fresh object of at least that size.
                unsafe { ptr::write_bytes(object, 0, size) };
                object
            }
            Err(why) => self.calloc_refused(size, why),
        }
    }

    /// The rest of it. (By itself, so that nothing is kept for it beside the fast path.)
    #[cold]
    #[inline(never)]
    fn calloc_refused(&self, size: usize, why: Refused) -> *mut u8 {
        let object = self.malloc_rest(size, why);
        if !object.is_null() {
            // SAFETY: a fresh object of at least that size, and of a byte. (A library's stores by masks may take 200 ns for none.)
            unsafe { ptr::write_bytes(object, 0, size.max(1)) };
        }
        object
    }

    /// The same, aligned. Cost: above a page, or for what is small, that of writing it.
    pub fn calloc_aligned(&self, size: usize, align: usize) -> *mut u8 {
        if size > SMALL_MAX && align <= PAGE {
            return self.calloc_area(size, align);
        }
        let object = self.aligned(size, align);
        if !object.is_null() {
            // SAFETY: a fresh object of at least that size.
            unsafe { ptr::write_bytes(object, 0, size) };
        }
        object
    }

    /// The same of what is no small object, aligned to a page at most, as areas are. (By itself:
    /// what it needs of registers and of the stack is not small objects'.)
    #[inline(never)]
    fn calloc_area(&self, size: usize, align: usize) -> *mut u8 {
        let Some(_inside) = self.enter_for(size) else {
            let object = self.alloc_aside(size, align);
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
        let front = if self.front_may_clear(size) { self.front_alloc_slow(size, PAGE) } else { None };
        let front = front.map(|address| Fresh { address, zero: false });
        let fresh = front.or_else(|| self.alloc_area(size, PAGE, true));
        let fresh = fresh.or_else(|| Some(Fresh { address: self.alloc_left_aside(size, align)?, zero: false }));
        self.cold_end(Event::AllocSlowpath, start, fresh.is_none());
        let Some(fresh) = fresh else { return ptr::null_mut() };
        if self.is_due(size) {
            self.sample(fresh.address, size);
        }
        if !fresh.zero {
            // SAFETY: a fresh area of at least that size.
            unsafe { self.vmap().clear(fresh.address, size) };
        }
        fresh.address as *mut u8
    }

    /// `size` bytes aligned to `align`, a power of two; null without memory. Cost: that of [`Self::malloc`] up to a page's alignment.
    #[inline(always)]
    pub fn aligned(&self, size: usize, align: usize) -> *mut u8 {
        // (Known where it is inlined.)
        if align <= 16 {
            return self.malloc(size);
        }
        self.aligned_or(size, align, || self.aligned_slow(size, align))
    }

    /// The fast path of [`Self::aligned`]; where it refuses, what `refused` returns, which goes on by [`Self::aligned_slow`].
    #[inline(always)]
    pub fn aligned_or(&self, size: usize, align: usize, refused: impl FnOnce() -> *mut u8) -> *mut u8 {
        if align > PAGE {
            hint::cold_path();
            return refused();
        }
        self.malloc_or::<false>(class::aligned(size, align), |_| refused())
    }

    /// The rest of [`Self::aligned`].
    #[cold]
    #[inline(never)]
    pub fn aligned_slow(&self, size: usize, align: usize) -> *mut u8 {
        if align <= 16 {
            return self.malloc(size);
        }
        // (See `malloc_wide`.)
        if size == 0 {
            return self.aligned(1, align);
        }
        if let Some(area) = self.front_alloc_quick(size, align) {
            return self.checked(area as *mut u8);
        }
        let Some(_inside) = self.enter_for(size) else { return self.alloc_aside(size, align) };
        let start = self.cache.sets.clock.ticks();
        if !self.opened() {
            E::no_memory();
            return ptr::null_mut();
        }
        let small = if align <= PAGE { class::aligned(size, align) } else { 0 };
        let is_due = self.is_due(size);
        let object = if (1..=SMALL_MAX).contains(&small) && !is_due {
            self.alloc_class(class::offset_of(small) / 16)
        } else {
            self.front_alloc_slow(size, align).or_else(|| {
                let area = self.reuse_dirty(size, align).or_else(|| self.alloc_area(size, align, false));
                area.map(|area| area.address)
            })
        };
        let object = object.or_else(|| self.alloc_left_aside(size, align));
        if is_due && let Some(object) = object {
            self.sample(object, size);
        }
        self.cold_end(Event::AllocSlowpath, start, object.is_none());
        self.checked(object.unwrap_or(0) as *mut u8)
    }

    /// Where the heap has no memory: what forks have left of the side arena.
    #[cold]
    #[inline(never)]
    fn alloc_left_aside(&self, size: usize, align: usize) -> Option<usize> {
        if !self.side.is_used() {
            return None;
        }
        // (What was kept is held already.)
        let block = self.take_aside(|| self.side.alloc_left(size, align), 0)?;
        Some(block.as_ptr() as usize)
    }

    /// A block of the side arena, as far as the hard limit allows.
    fn take_aside(&self, take: impl FnOnce() -> Option<NonNull<u8>>, size: usize) -> Option<NonNull<u8>> {
        // Looked at before, and counted and then looked at, as areas are: of two at the same time one sees both.
        let could = if self.is_refused_aside(size) { None } else { take() };
        self.tell_aside();
        let is_over = could.is_some() && self.is_refused_aside(0);
        if let Some(block) = could
            && is_over
        {
            // SAFETY: nobody has seen it.
            unsafe { self.side.free(block.as_ptr() as usize) };
            self.tell_aside();
        }
        if is_over { None } else { could }
    }

    /// `size` bytes beside a fork.
    #[cold]
    fn alloc_aside(&self, size: usize, align: usize) -> *mut u8 {
        let block = self.take_aside(|| self.side.alloc(size, align), size);
        if block.is_none() && self.is_refused_aside(size) {
            self.count_if_open(Event::LimitRefused);
        }
        self.count_if_open(if block.is_some() { Event::AllocAside } else { Event::NoMemory });
        block.map_or_else(
            || {
                E::no_memory();
                ptr::null_mut()
            },
            NonNull::as_ptr,
        )
    }
}
