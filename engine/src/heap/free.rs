//! # A free: the fast path, then by what lies at the address; and what was put off
//!
//! ```text
//! free ───► class byte of the address > 0? ─► push (sequence)
//!            │ 0: an area, for the front           │ refused, aborted
//!            │ negative (in the fallback): push by the bias
//!            └────────► cold path ◄────────────────┘   set, barn, slab; front, area; a block of the side arena; foreign
//!                           └── beside a fork: put off ──the fork is over──► pay
//! ```
//! Cost: the golden table of the fast paths is in `cli/tests/golden`.
#![allow(unsafe_code)] // takes objects back

use super::enter::PATIENT;
use super::side::Place;
use super::state::{Environment, Heap};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::gate::Inside;
use crate::arch::outcome::Outcome;
use crate::arch::{PAGE, is_below, is_positive, opaque, opaque_short};
use crate::cache::{Sets, front};
use crate::page::{BIASED, HELD, Kind, Windows};
use crate::slab::class::CLASSES;
use crate::stat::board::FIRST_FRONT;
use crate::stat::{BadPointer, Event, Timing};
use crate::vmap::Freed;
use core::mem::offset_of;

/// What class bytes say, without [`BIASED`]: no class is called so; areas of a length each; the last class.
const HELD_CLASS: u8 = HELD & !BIASED;
const FIRST_CLASS: u8 = FIRST_FRONT as u8;
const LONG_CLASS: u8 = front::LONG as u8;

impl<E: Environment> Heap<E> {
    /// Takes an object back; null is ignored, foreign pointers are reported.
    ///
    /// # Safety
    /// `object` came from this heap and nobody uses it any more.
    #[inline(always)]
    pub unsafe fn free(&self, object: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.free_from::<false>(object) };
    }

    /// The same, inlined into a function that has no frame: a walk of the stack from inside finds who called that.
    ///
    /// # Safety
    /// As [`Heap::free`].
    #[inline(always)]
    pub unsafe fn free_bare(&self, object: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.free_from::<true>(object) };
    }

    #[inline(always)]
    unsafe fn free_from<const BARE: bool>(&self, object: *mut u8) {
        // SAFETY: the caller's promise; it says what `free_or` asks.
        unsafe {
            self.free_or::<BARE>(
                object,
                |window, sets| window < Windows::ALL && is_positive!(window, sets, Self::ROOT),
                || Self::free_cold(object, self, false),
            )
        };
    }

    /// The rest of [`Heap::free_others`], where `foreign` finds that he is served.
    ///
    /// # Safety
    /// As [`Heap::free`].
    pub unsafe fn free_refused(&self, object: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { Self::free_cold(object, self, false) };
    }

    /// The same for who asks by another name ([`Heap::serve_others`]); `foreign` unless he is served, and where the address is nobody's.
    ///
    /// # Safety
    /// As [`Heap::free`].
    #[inline(always)]
    pub unsafe fn free_others(&self, object: *mut u8, foreign: impl FnOnce()) {
        // SAFETY: the caller's promise; the word is 0 or what `free_or` asks, and this heap's.
        unsafe {
            self.free_or::<true>(
                object,
                |window, sets| is_below!(window, sets, Self::OTHERS_WINDOWS) && is_positive!(window, sets, Self::ROOT),
                foreign,
            )
        };
    }

    /// From the sets to the words of windows.
    const ROOT: isize = (offset_of!(Self, parts.pages.windows) + Windows::ROOT_AT) as isize
        - offset_of!(Self, parts.cache.sets) as isize;

    /// From the sets to what windows others give back to.
    const OTHERS_WINDOWS: isize =
        offset_of!(Self, gates.windows) as isize - offset_of!(Self, parts.cache.sets) as isize;

    /// The fast path: `is_looked_at` says whether an address in such a window is looked at, given where the sets are; what is none of ours is
    /// `foreign`'s.
    ///
    /// # Safety
    /// As [`Heap::free`]; no window is looked at but as [`Windows::class_where`] asks.
    #[inline(always)]
    unsafe fn free_or<const BARE: bool>(
        &self,
        object: *mut u8,
        is_looked_at: impl FnOnce(usize, usize) -> bool,
        foreign: impl FnOnce(),
    ) {
        // Opaque, so that one address is computed, once: that of the sets, which the sequence wants.
        let sets = opaque((&raw const self.cache.sets) as usize);
        let windows = sets + (offset_of!(Self, parts.pages.windows) - offset_of!(Self, parts.cache.sets));
        // SAFETY: a part of this heap; the caller's promise.
        let class =
            unsafe { (*(windows as *const Windows)).class_where(object as usize, |window| is_looked_at(window, sets)) };
        let Some(class) = class else {
            return foreign();
        };
        // SAFETY: a part of this heap.
        let sets = unsafe { &*(sets as *const Sets) };
        // (Short, so that the path ends where its second cache line does.)
        let class = opaque_short(i32::from(class.cast_signed()));
        if class <= 0 {
            // SAFETY: the caller's promise.
            return unsafe { Self::free_apart(object, self, class as u8 ^ BIASED) };
        }
        // SAFETY: the caller's promise; the class byte names its class.
        match unsafe { sets.push_fast::<BARE>((class.cast_unsigned() << 4) as usize, object as usize) } {
            Outcome::Done(()) => {}
            // SAFETY: the caller's promise.
            Outcome::Refused => unsafe { Self::free_cold(object, self, false) },
            // SAFETY: the caller's promise.
            Outcome::Aborted => unsafe { Self::free_aborted(object, self) },
        }
    }

    /// What sequences do not serve. (What it calls it calls last, so that it costs nothing of the stack.)
    ///
    /// # Safety
    /// As [`Heap::free`]; the class byte names `class`, or says nothing: [`BIASED`].
    #[cold]
    #[inline(never)]
    unsafe fn free_apart(object: *mut u8, this: &Self, class: u8) {
        // (The two that are in a hurry first.)
        if class.wrapping_sub(FIRST_CLASS) < LONG_CLASS - FIRST_CLASS {
            // SAFETY: the caller's promise; said here.
            return unsafe { Self::free_area(object, this, class) };
        }
        if class < HELD_CLASS {
            // SAFETY: the caller's promise.
            return unsafe { Self::free_biased(object, this, class) };
        }
        if class == LONG_CLASS {
            // SAFETY: the caller's promise.
            return unsafe { Self::free_cut(object, this) };
        }
        // (It is in a front, or nothing is known of it.)
        // SAFETY: the caller's promise.
        unsafe { Self::free_first(object, this) };
    }

    /// What was interrupted. (By itself: else the fast path has ready which of the two it was.)
    ///
    /// # Safety
    /// As [`Heap::free`].
    #[cold]
    #[inline(never)]
    unsafe fn free_aborted(object: *mut u8, this: &Self) {
        // SAFETY: the caller's promise.
        unsafe { Self::free_cold(object, this, true) };
    }

    /// The fast path of an object of the fallback: of the thread that it favours.
    ///
    /// # Safety
    /// As [`Heap::free`]; the class byte names `class`.
    #[cold]
    #[inline(never)]
    unsafe fn free_biased(object: *mut u8, this: &Self, class: u8) {
        // SAFETY: the caller's promise.
        if !unsafe { this.cache.sets.push_biased(class.into(), object as usize) }.is_done() {
            // SAFETY: the caller's promise.
            unsafe { Self::free_cold(object, this, false) };
        }
    }

    /// The fast path of an area that came in before. (What it calls it calls last, so that it costs nothing of the stack.)
    ///
    /// # Safety
    /// As [`Heap::free`]; the class byte names `class`, which is not the last.
    #[inline(always)]
    unsafe fn free_area(object: *mut u8, this: &Self, class: u8) {
        match this.front_free_again(object as usize, class.into()) {
            Some(true) => {}
            // (There is no room, nor is there if one asks once more.)
            // SAFETY: the caller's promise.
            Some(false) => unsafe { Self::free_cold(object, this, false) },
            // SAFETY: the caller's promise.
            None => unsafe { Self::free_first(object, this) },
        }
    }

    /// The same of an area that was cut of a run, or may be one.
    ///
    /// # Safety
    /// As [`Heap::free`].
    #[cold]
    #[inline(never)]
    unsafe fn free_cut(object: *mut u8, this: &Self) {
        let is_back = this.run_joins(object as usize) || this.long_free_again(object as usize);
        if !is_back {
            // (By its length.)
            // SAFETY: the caller's promise.
            unsafe { Self::free_first(object, this) };
        }
    }

    /// The same of an area that comes in for the first time, or where a fast path does not do.
    ///
    /// # Safety
    /// As [`Heap::free`].
    #[cold]
    #[inline(never)]
    unsafe fn free_first(object: *mut u8, this: &Self) {
        if !this.front_free(object as usize) && !this.free_wide(object as usize) {
            // SAFETY: the caller's promise.
            unsafe { Self::free_cold(object, this, false) };
        }
    }

    /// One that no CPU keeps waits for the next request, where those come soon; false if it is the caller's still. (Not where a limit is set, nor in
    /// a large program that no thread of ours looks after.)
    fn free_wide(&self, address: usize) -> bool {
        let knobs = &self.cache.knobs;
        self.areas.wide.is_used()
            && knobs.is_easy()
            && knobs.hard_limit() == u64::MAX
            && self.gates.small.load(Relaxed) != 0
            && (!self.reclaim.keeper.is_none() || self.mm().is_small())
            && !self.profile.samples.may_have(address)
            && self.vmap().put_wide(address)
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

    #[cold]
    #[inline(never)]
    pub(super) unsafe fn free_cold(object: *mut u8, this: &Self, aborted: bool) {
        if object.is_null() {
            return;
        }
        let address = object as usize;
        // SAFETY: the caller's promise.
        if !aborted && unsafe { this.free_spare(address) } {
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

    /// Frees into this CPU's spare, by sequences alone, as on the fast path; false if it is the caller's still.
    ///
    /// # Safety
    /// As [`Heap::free`].
    #[inline]
    unsafe fn free_spare(&self, address: usize) -> bool {
        let Some(class) = self.pages.windows.class(address).filter(|class| class.cast_signed() > 0) else {
            return false;
        };
        let class_offset = usize::from(class) * 16;
        self.gates.small.load(Relaxed) != 0
            && self.cache.exchange_at_once(class_offset, true)
            // SAFETY: the caller's promise; the class byte names its class.
            && unsafe { self.cache.sets.push_fast::<false>(class_offset, address) }.is_done()
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
                    unsafe { this.side.free(address) };
                    return this.tell_aside();
                }
                Freed::Not => this.no_block(address),
            }
            if !this.mm().is_passed() && !this.areas.is_pending() {
                return this.mm().wake_keeper();
            }
        }
        let start = this.cache.sets.clock.ticks();
        if let Some(class) = class {
            // SAFETY: the caller's promise.
            unsafe { this.cache.free(&this.slab_source(), class, address) };
            this.cache.feed(&this.slab_source(), 1..CLASSES);
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

    /// Tells of an address at which no block begins.
    #[cold]
    pub(super) fn no_block(&self, address: usize) {
        let ours = self.pages.windows.find(address).is_some();
        self.bad_free(address, if ours { BadPointer::Interior } else { BadPointer::Foreign });
    }

    #[cold]
    fn bad_free(&self, address: usize, why: BadPointer) {
        self.count_if_open(Event::BadFree);
        E::report(address, why);
    }

    /// An object that is freed beside a fork, or a block of the side arena that is freed at any time.
    ///
    /// # Safety
    /// As [`Heap::free`].
    #[cold]
    pub(super) unsafe fn free_aside(&self, address: usize) {
        if self.pages.windows.find(address).is_none() {
            if self.side.size(address).is_some() {
                // SAFETY: the caller's promise.
                unsafe { self.side.free(address) };
                return self.tell_aside();
            }
            return self.no_block(address);
        }
        // (Now: when the fork is over it may be somebody's again.)
        if self.is_freed(address) {
            return self.bad_free(address, BadPointer::Double);
        }
        let place = self.place_of_note(address);
        if let Place::Area(desc) = place
            && desc.kind() == Kind::Area
        {
            // (Before the note, behind which it is anybody's: no fast path takes it meanwhile.)
            self.pages.windows.forget_class(address);
        }
        let is_noted = self.side.put_off(address, place);
        self.tell_aside();
        // (A giant area has no descriptor for a note, and not everything else a place: for the fork it is worth waiting a while.)
        if !is_noted && let Some(inside) = self.enter_after_fork(PATIENT) {
            // SAFETY: the caller's promise.
            unsafe { self.free_inside(address, false) };
            drop(inside);
            return self.pay();
        }
        self.count_if_open(if is_noted { Event::PutOff } else { Event::LostAside });
        // SeqCst, after the note: either this sees that the fork is over, or the fork's end sees the note.
        if !self.gate.is_forking() {
            self.pay();
        }
    }

    /// Where a note may lie that what is at an address is to be freed.
    fn place_of_note(&self, address: usize) -> Place<'_> {
        if self.slab_source().is_object(address) {
            return Place::Object;
        }
        match self.pages.windows.look(address) {
            Some((_, desc)) if address.is_multiple_of(PAGE) => Place::Area(desc),
            _ => Place::Nowhere,
        }
    }

    /// Frees what was put off, unless a fork is in flight or this is the handler of a signal that came to a thread that is inside.
    pub fn pay(&self) {
        if !self.side.is_owing() || self.gate.is_inside() {
            return;
        }
        if let Some(inside) = self.enter() {
            self.pay_inside(&inside);
        }
    }

    /// The same, inside, so that a fork finds all of it paid or none of it taken; no frame below is inside.
    pub(super) fn pay_inside(&self, _inside: &Inside<'_>) {
        if !self.side.is_owing() {
            return;
        }
        for address in self.side.take(|entry| self.place_of_note(entry)) {
            // SAFETY: whoever freed it promised so.
            unsafe { self.free_inside(address, false) };
        }
        self.tell_aside();
    }
}
