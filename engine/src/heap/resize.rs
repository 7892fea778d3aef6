//! # `realloc`, and how long an object is
//!
//! | from, to | what is done |
//! |---|---|
//! | fits, and wastes less than half; an area that would be as long for the new size, or has room to grow for it | nothing |
//! | area to area that is half as long again, or longer, for which pages would have to be faulted in | copied to an area that has its pages, if there is one |
//! | area from 2 MiB to one that is a quarter as long, or less | copied, so that it holds no place among large ones; stays where there is no other memory |
//! | area to area else | grows or shrinks where it is; or moves by page tables; or is copied |
//! | else | copied, but for pages that are zero on either side: they may have no memory |
//!
//! An area that grows by less than a quarter will do so again: it gets a quarter more, so that what is copied in all is a small multiple of what
//! it has in the end. That costs addresses where the memory is fresh, and is given back by whoever asks for less than before. What comes to
//! no more than [`BRIEF`] bytes so gets the next length of four to a doubling ([`brief_room`]): what it has beyond what it asked for it has for good.
//!
//! An object that shrinks is never lost and never refused. Cost: a copy, or two system calls where page tables move.
#![allow(unsafe_code)] // copies objects

use super::enter::LARGE;
use super::state::{Environment, Heap};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::cache::front::GRADED;
use crate::knob::Id;
use crate::page::BIASED;
use crate::slab::class::{self, SIZES, SLAB_ORDER, SMALL_MAX};
use crate::stat::Event;
use crate::vmap::{Area, copy};
use core::ptr::{self, NonNull};

/// Beside an area's address: the object was sampled.
const SAMPLED: usize = 1;
/// An area from [`LARGE`] that shrinks to one part in so many, or less, is copied if that is less than [`LARGE`]: of a longer one its place is
/// hardly more than what it keeps, and a copy would have it resident twice.
const SHRUNK: usize = 4;

/// Whether a small object of `old` bytes serves for `size`: it fits, and wastes less than half, or less than copying would cost. (Size 0
/// wraps.)
const fn serves(old: usize, size: usize) -> bool {
    size.wrapping_sub(1) < old && (size * 2 > old || old <= 64)
}

/// Whether an area that was to have `old` bytes stays as it is for `size`, less by an eighth or a page at most: a program that goes to and fro
/// about a length would have it copied each time.
const fn is_hardly_less(old: usize, size: usize) -> bool {
    let part = if old / 8 > PAGE { old / 8 } else { PAGE };
    old <= GRADED * PAGE && size <= old && size.next_multiple_of(PAGE) + part >= old
}

/// Whether what has `old` bytes will do so again: some room is for that.
const fn grows_by_little(old: usize, size: usize) -> bool {
    size > old && size < old.saturating_add(old / 4)
}

/// Up to so many bytes the room to grow is the next length of four to a doubling. (Short areas as a rule are made of dirty pages, whose room is
/// resident: 2,000 blocks that grow in turn to 32 KB took 87 MiB with a quarter more, and 78 with this.)
const BRIEF: usize = 32 << 10;
const _: () = assert!(SMALL_MAX <= BRIEF);

/// The bytes that what had `old` should have when it comes to `size`, at most [`BRIEF`]: what grows by little passes by every second class,
/// so that they lie four to a doubling.
const fn brief_room(old: usize, size: usize) -> usize {
    if grows_by_little(old, size) && size > 64 { size.next_multiple_of(1 << ((size - 1).ilog2() - 2)) } else { size }
}

impl<E: Environment> Heap<E> {
    /// The bytes of a small object that sequences serve.
    #[inline(always)]
    fn small_size(&self, object: *const u8) -> Option<usize> {
        let class = self.pages.windows.class(object as usize)?;
        if class.cast_signed() > 0 { SIZES.get(class as usize).map(|&size| size as usize) } else { None }
    }

    /// Bytes that the object at this address has; `None` if it is not one of ours. Cost: some loads for a small one.
    #[inline(always)]
    #[must_use]
    pub fn usable(&self, object: *const u8) -> Option<usize> {
        self.small_size(object).or_else(|| self.usable_slow(object))
    }

    #[cold]
    #[inline(never)]
    fn usable_slow(&self, object: *const u8) -> Option<usize> {
        // (An area's is of no small size.)
        let small = |class: u8| if class > 0 { SIZES.get((class & !BIASED) as usize) } else { None };
        if let Some(&size) = self.pages.windows.class(object as usize).and_then(small) {
            return Some(size as usize);
        }
        match self.slab_source().class_of(object as usize) {
            Some(class) => Some(SIZES[class] as usize),
            None => match self.vmap().find(object as usize) {
                Some(area) => Some(area.bytes),
                None => self.side.size(object as usize),
            },
        }
    }

    /// The bytes of a small object with which fast paths may do what they like. (Where objects are checked the gate lets nothing pass.)
    #[inline(always)]
    fn quick_size(&self, object: *const u8) -> Option<usize> {
        if self.gates.small.load(Relaxed) != 0 { self.small_size(object) } else { None }
    }

    /// Whether [`Self::realloc`] would do nothing, where that takes no more than a look: a small object fits, and wastes less than half.
    #[inline(always)]
    #[must_use]
    pub fn stays(&self, object: *const u8, size: usize) -> bool {
        self.quick_size(object).is_some_and(|old| serves(old, size))
    }

    /// Changes an object's size, keeping its contents up to the smaller one; null without
    /// memory (the object is untouched then). `size` is not 0.
    ///
    /// # Safety
    /// `object` came from this heap; it is given up unless null is returned.
    #[inline(always)]
    pub unsafe fn realloc(&self, object: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise, both.
        unsafe { self.realloc_or(object, size, |object, size| self.realloc_rest(object, size)) }
    }

    /// The fast path of [`Self::realloc`]; where that does not serve, what `slow` returns, and nothing was done: it goes on by
    /// [`Self::realloc_rest`]. (And is called last, so that what stays needs no frame.)
    ///
    /// # Safety
    /// As there, but that `object` may be anything where `slow` takes that, and `size` 0.
    #[inline(always)]
    pub unsafe fn realloc_or(
        &self,
        object: *mut u8,
        size: usize,
        slow: impl FnOnce(*mut u8, usize) -> *mut u8,
    ) -> *mut u8 {
        match self.quick_size(object) {
            Some(old) if serves(old, size) => object,
            // SAFETY: the caller's promise.
            Some(old) => unsafe { self.move_small(object, size, old, slow) },
            None => slow(object, size),
        }
    }

    /// A small object copied to one of a size that sequences serve, if a sheaf has one. `size` may be 0.
    ///
    /// # Safety
    /// As [`Self::realloc`]; `old` is what the object has.
    #[inline(never)]
    unsafe fn move_small(
        &self,
        object: *mut u8,
        size: usize,
        old: usize,
        slow: impl FnOnce(*mut u8, usize) -> *mut u8,
    ) -> *mut u8 {
        let less = size.wrapping_sub(1);
        if less >= SMALL_MAX {
            return slow(object, size);
        }
        // SAFETY: no size above SMALL_MAX, which is a power of two.
        let class = unsafe { class::offset_of_unchecked(brief_room(old, size).wrapping_sub(1)) };
        let Outcome::Done(fresh) = self.cache.sets.pop_fast::<false>(class) else {
            return slow(object, size);
        };
        let fresh = fresh as *mut u8;
        // SAFETY: two different live objects, both at least that long; then the old one is given up.
        unsafe {
            ptr::copy_nonoverlapping(object, fresh, old.min(size));
            self.free(object);
        }
        fresh
    }

    /// The rest of [`Self::realloc`], after [`Self::realloc_or`].
    ///
    /// # Safety
    /// As [`Self::realloc`].
    #[inline(never)]
    pub unsafe fn realloc_rest(&self, object: *mut u8, size: usize) -> *mut u8 {
        let Some(old) = self.usable(object) else {
            self.no_block(object as usize);
            E::no_memory();
            return ptr::null_mut();
        };
        if self.slabs.is_checked()
            && let Err(wrong) = self.slab_source().look(object as usize)
        {
            self.slab_source().bad(object as usize, wrong);
            E::no_memory();
            return ptr::null_mut();
        }
        let fits = match old {
            ..=SMALL_MAX => serves(old, size),
            _ => {
                size <= old
                    && (is_hardly_less(old, size) || self.is_as_long(size, old) || self.had_room(object as usize, size))
            }
        };
        // (A sampled object has more room than it shows; it is exchanged for one that is counted.)
        if fits && !(self.profile.is_used() && self.profile.samples.may_have(object as usize)) {
            return object;
        }
        // SAFETY: the caller's promise. (Two calls, one behind the other: what either needs of the stack is not under the other.)
        unsafe {
            match self.resize_here(object, old, size) {
                Ok(object) => object,
                Err(how) => self.copy_elsewhere(object, old, size, how),
            }
        }
    }

    /// The first half of [`Self::realloc`]: an area longer or shorter where it is, or moved by page tables. Else where memory is that
    /// the bytes are to be copied to, or 0; and [`SAMPLED`] if the object was sampled.
    ///
    /// # Safety
    /// As there; `old` is what the object has.
    #[inline(never)]
    unsafe fn resize_here(&self, object: *mut u8, old: usize, size: usize) -> Result<*mut u8, usize> {
        let inside = if old > SMALL_MAX && size > SMALL_MAX { self.enter_for(size) } else { None };
        if inside.is_none() && (LARGE..=old).contains(&size) {
            // Beside a fork it stays what it is, for a copy would take more.
            return Ok(object);
        }
        if inside.is_none() {
            return Err(0);
        }
        self.vmap().empty_wide();
        let Some(area) = self.vmap().find(object as usize) else { return Err(0) };
        // Before the address can be somebody else's.
        let was_sampled = if self.forget(object as usize) { SAMPLED } else { 0 };
        if old >= LARGE && size < LARGE && size <= old / SHRUNK {
            return Err(was_sampled);
        }
        if size > old {
            self.run_gives_way(object as usize + old);
        }
        if let Some(resident) = self.resident_for(&area, size) {
            return Err(resident | was_sampled);
        }
        // SAFETY: the caller's promise.
        let resized = unsafe { self.resize_area(&area, size) };
        resized.map(|address| address as *mut u8).ok_or(was_sampled)
    }

    /// The second half: copies to what the first has found, or to a new block.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn copy_elsewhere(&self, object: *mut u8, old: usize, size: usize, how: usize) -> *mut u8 {
        let (resident, was_sampled) = (how & !SAMPLED, how & SAMPLED != 0);
        let error = if size <= old { E::error() } else { 0 };
        let fresh = if resident == 0 { self.malloc_roomy(size, old) } else { resident as *mut u8 };
        let Some(fresh) = NonNull::new(fresh) else {
            let inside = self.enter();
            if inside.is_some() && was_sampled {
                // It is what it was.
                self.sample(object as usize, old);
            }
            if size > old {
                return ptr::null_mut();
            }
            // What shrinks has room where it is; and what is behind serves others.
            E::set_error(error);
            if inside.is_some()
                && let Some(area) = self.vmap().find(object as usize)
            {
                let _ = self.vmap().resize(&area, size);
            }
            return object;
        };
        // SAFETY: two different live objects, both at least that long; then the old one is given up.
        unsafe {
            copy(object, fresh.as_ptr(), old.min(size));
            self.free(object);
        }
        fresh.as_ptr()
    }

    /// Whether an area for so many bytes would be as long as one that has `bytes`.
    fn is_as_long(&self, size: usize, bytes: usize) -> bool {
        self.front_size(size).next_multiple_of(PAGE) >= bytes
    }

    /// The bytes that a block should have that has `old`, and grows to `size`.
    #[inline(never)]
    fn room(&self, size: usize, old: usize) -> usize {
        let room = if size <= BRIEF { brief_room(old, size) } else { old.saturating_add(old / 4) };
        let takes =
            if room <= SMALL_MAX { PAGE << SLAB_ORDER[class::offset_of(room) / 16] } else { self.front_size(room) };
        // (What is sampled is as long as it was asked for. Room is never taken back for others: where addresses are few areas have none.)
        let may = grows_by_little(old, size) && !self.profile.is_used() && !self.mm().is_limited(takes);
        let may = may && (room <= SMALL_MAX || self.areas.has_room());
        if may { room } else { size }
    }

    /// Whether an area that is too long for `size` has its room to grow for that: no less was asked for than before, or hardly.
    fn had_room(&self, address: usize, size: usize) -> bool {
        let asked = self.vmap().find(address).map_or(0, |area| self.vmap().asked(&area));
        asked > 0 && (asked <= size.div_ceil(PAGE) || is_hardly_less(asked * PAGE, size))
    }

    /// The area there has room to grow, or as much as was asked for.
    fn note_room(&self, address: usize, size: usize) {
        if let Some(area) = self.vmap().find(address) {
            self.vmap().ask(&area, size.div_ceil(PAGE));
        }
    }

    /// `malloc` of `size` bytes for what had `old`, with room to grow if that can be had. (By itself: what it needs of the stack is
    /// not there when it asks for no more than that.)
    #[inline(never)]
    fn malloc_roomy(&self, size: usize, old: usize) -> *mut u8 {
        let room = self.room(size, old);
        // (Beside a fork what there is is little.)
        if room > size && !self.gate.is_forking() {
            let error = E::error();
            let fresh = self.malloc(room);
            if !fresh.is_null() {
                self.note_room(fresh as usize, size);
                return fresh;
            }
            E::set_error(error);
        }
        self.malloc(size)
    }

    /// An area longer or shorter where it is, or moved; `None` if it can be neither, and is as it was.
    ///
    /// # Safety
    /// As [`Heap::realloc`].
    #[inline(never)]
    unsafe fn resize_area(&self, area: &Area, size: usize) -> Option<usize> {
        let start = self.cache.sets.clock.ticks();
        let more = size.saturating_sub(area.bytes);
        let resized = |room: usize| {
            if size <= area.bytes && self.is_as_long(size, area.bytes) {
                return Some(self.pages.windows.address(area.pfn));
            }
            let vmap = self.vmap();
            let is_resized = || vmap.resize(area, room) || room > size && vmap.resize(area, size);
            let here = || is_resized().then(|| self.pages.windows.address(area.pfn));
            // SAFETY: the caller's promise.
            let there = || unsafe { vmap.relocate(area, room) };
            if vmap.moves_on(area, room) { there().or_else(here) } else { here().or_else(there) }
        };
        // Once more where the hard limit was in the way: copying would need more than growing.
        let squeezed = || if self.mm().is_limited(more) && self.mm().squeeze() { resized(size) } else { None };
        let address = resized(self.room(size, area.bytes)).or_else(squeezed)?;
        if more > 0 {
            self.note_room(address, size);
        }
        self.mm().check(more);
        self.resized(address, size, start);
        Some(address)
    }

    /// Pages with old contents for an area that grows so much that its bytes are copied sooner than fresh pages are faulted in.
    #[inline(never)]
    fn resident_for(&self, area: &Area, size: usize) -> Option<usize> {
        let start = self.cache.sets.clock.ticks();
        let more = size.checked_sub(area.bytes)?;
        let move_bytes = self.cache.knobs.size(Id::MoveBytes);
        if move_bytes != 0 && area.bytes >= move_bytes {
            return None;
        }
        let fresh = self.vmap().fresh_behind(area, size).map_or(more, |pages| pages * PAGE);
        if area.bytes / 2 > fresh {
            return None;
        }
        let address = self.front_alloc_slow(size, PAGE).or_else(|| Some(self.reuse_dirty(size, PAGE)?.address))?;
        self.resized(address, size, start);
        Some(address)
    }

    /// Tells of an area of another size.
    fn resized(&self, address: usize, size: usize, start: u64) {
        if self.is_due(size) {
            self.sample(address, size);
        }
        self.cold_end(Event::AllocSlowpath, start, false);
    }
}
