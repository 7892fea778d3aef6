//! # The heap as Rust's global allocator

use crate::heap::HEAP;
use core::alloc::{GlobalAlloc, Layout};

/// The process's heap as Rust's global allocator. All values are the same heap.
///
/// Cost beyond `malloc`'s: what is aligned to more than 16 bytes is copied to grow, and cleared where zeros are asked for, unless it is above
/// 16 KiB and aligned to a page or less; then pages that nobody used yet are left alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allotment;

impl Allotment {
    /// Drains every CPU's caches and gives all free memory back to the system; the bytes
    /// given back. Cost: a fence per CPU in use, and system calls.
    #[must_use]
    pub fn trim(self) -> usize {
        HEAP.trim()
    }
    /// Bytes that the object at this address has room for; `None` if it is not of this heap.
    /// Cost: a few loads.
    #[must_use]
    pub fn usable_size(self, object: *const u8) -> Option<usize> {
        HEAP.usable(object)
    }
    /// Fills `into` with addresses of objects of `size` bytes (at most 16 KiB), a sheaf at a
    /// time; how many there are (fewer only without memory). Cost: a copy per object.
    #[must_use]
    pub fn alloc_bulk(self, size: usize, into: &mut [usize]) -> usize {
        HEAP.malloc_bulk(size, into)
    }
    /// Takes the objects of an [`Allotment::alloc_bulk`] of the same `size` back.
    ///
    /// # Safety
    /// Each is an object of that size that nobody uses any more.
    #[allow(unsafe_code, reason = "passes the caller's promise on")]
    pub unsafe fn free_bulk(self, size: usize, objects: &[usize]) {
        // SAFETY: the caller's promise.
        unsafe { HEAP.free_bulk(size, objects) };
    }
}

#[allow(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]
// SAFETY: the heap hands out disjoint live memory of at least the layout's size and
// alignment, never unwinds, and uses no thread-local storage.
unsafe impl GlobalAlloc for Allotment {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP.aligned(layout.size(), layout.align())
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            return HEAP.calloc(layout.size());
        }
        HEAP.calloc_aligned(layout.size(), layout.align())
    }
    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, _: Layout) {
        // SAFETY: the caller's promise.
        unsafe { HEAP.free(object) };
    }
    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= 16 {
            // SAFETY: the caller's promise.
            return unsafe { HEAP.realloc(object, size) };
        }
        if HEAP.stays(object, size) {
            return object;
        }
        let fresh = HEAP.aligned(size, layout.align());
        if !fresh.is_null() {
            // SAFETY: two different live objects; then the old one is given up.
            unsafe {
                core::ptr::copy_nonoverlapping(object, fresh, layout.size().min(size));
                HEAP.free(object);
            }
        }
        fresh
    }
}
