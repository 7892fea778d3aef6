//! # `realloc`, and how long an object is
//!
//! | from, to | what is done |
//! |---|---|
//! | fits, and wastes less than half | nothing |
//! | area to area | grows or shrinks where it is; or moves by page tables; or is copied |
//! | else | copied |
//!
//! An object that shrinks is never lost and never refused. Cost: a copy, or two system calls where page tables move.
#![allow(unsafe_code)] // copies objects

use super::{Environment, Heap};
use crate::slab::class::{SIZES, SMALL_MAX};
use crate::stat::BadPointer;
use crate::stat::Event;
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
                    self.mm().check(more);
                    self.cold_end(Event::AllocSlowpath, start, false);
                    return object;
                }
                // SAFETY: the caller's promise.
                if let Some(moved) = unsafe { self.vmap().relocate(&area, size) } {
                    let more = size.saturating_sub(old);
                    self.mm().check(more);
                    self.cold_end(Event::AllocSlowpath, start, false);
                    if self.is_due(size) {
                        self.sample(moved, size);
                    }
                    return moved as *mut u8;
                }
                if is_last || !self.mm().is_limited(size.saturating_sub(old)) || !self.mm().squeeze() {
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
}
