//! # `realloc`, and how long an object is
//!
//! | from, to | what is done |
//! |---|---|
//! | fits, and wastes less than half; an area that would be as long for the new size | nothing |
//! | area to area that is half as long again, or longer, for which pages would have to be faulted in | copied to an area that has its pages, if there is one |
//! | area to area | grows or shrinks where it is; or moves by page tables; or is copied |
//! | else | copied |
//!
//! An object that shrinks is never lost and never refused. Cost: a copy, or two system calls where page tables move.
#![allow(unsafe_code)] // copies objects

use super::state::{Environment, Heap};
use crate::arch::PAGE;
use crate::knob::Id;
use crate::slab::class::{SIZES, SMALL_MAX};
use crate::stat::BadPointer;
use crate::stat::Event;
use crate::vmap::Area;
use core::ptr::{self, NonNull};

impl<E: Environment> Heap<E> {
    /// Bytes that the object at this address has; `None` if it is not one of ours.
    #[must_use]
    pub fn usable(&self, object: *const u8) -> Option<usize> {
        match self.pages.windows.class(object as usize) {
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
        let (mut resident, mut was_sampled) = (None, false);
        if old > SMALL_MAX
            && size > SMALL_MAX
            && let Some(_inside) = self.enter()
            && let Some(area) = self.vmap().find(object as usize)
        {
            // Before the address can be somebody else's.
            was_sampled = self.forget(object as usize);
            resident = self.resident_for(&area, size);
            if resident.is_none()
                // SAFETY: the caller's promise.
                && let Some(address) = unsafe { self.resize_area(&area, size) }
            {
                return address as *mut u8;
            }
        }
        let error = if size <= old { E::error() } else { 0 };
        let fresh = resident.map_or_else(|| self.malloc(size), |address| address as *mut u8);
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
            ptr::copy_nonoverlapping(object, fresh.as_ptr(), old.min(size));
            self.free(object);
        }
        fresh.as_ptr()
    }

    /// An area longer or shorter where it is, or moved; `None` if it can be neither, and is as it was.
    ///
    /// # Safety
    /// As [`Heap::realloc`].
    unsafe fn resize_area(&self, area: &Area, size: usize) -> Option<usize> {
        let start = self.cache.sets.clock.ticks();
        let more = size.saturating_sub(area.bytes);
        let resized = || {
            if size <= area.bytes && self.front_size(size) >= area.bytes {
                return Some(self.pages.windows.address(area.pfn));
            }
            let here = self.vmap().resize(area, size).then(|| self.pages.windows.address(area.pfn));
            // SAFETY: the caller's promise.
            here.or_else(|| unsafe { self.vmap().relocate(area, size) })
        };
        // Once more where the hard limit was in the way: copying would need more than growing.
        let squeezed = || if self.mm().is_limited(more) && self.mm().squeeze() { resized() } else { None };
        let address = resized().or_else(squeezed)?;
        self.mm().check(more);
        self.resized(address, size, start);
        Some(address)
    }

    /// Pages with old contents for an area that grows so much that its bytes are copied sooner than fresh pages are faulted in.
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
        let address = self.front_alloc_slow(size).or_else(|| Some(self.reuse_dirty(size, PAGE)?.address))?;
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
