//! # Many objects of one size at once
//!
//! Cost: a sequence for a batch, and a slow path where a sheaf ends.
#![allow(unsafe_code)] // takes objects back

use super::state::{Environment, Heap};
use crate::slab::class::{self, SMALL_MAX};
use core::ptr::NonNull;

impl<E: Environment> Heap<E> {
    /// Up to `into.len()` objects of `size` bytes at once (at most 16 KiB each); how many.
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
}
