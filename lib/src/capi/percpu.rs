//! Per-CPU memory for C. A handle's pointer is its address in nobody's unit.

use super::{__errno_location, handle, no_memory};
use crate::percpu::{self, Error, How};
use allotment_engine::arch::sys::Errno;
use allotment_engine::arch::text::{Room, Text};
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::fmt;
use core::ptr::null_mut;

/// An allocation, as C sees it.
#[repr(C)]
pub struct Memory([u8; 1]);

pub(super) fn invalid() {
    // SAFETY: the calling thread's errno.
    unsafe { *__errno_location() = Errno::EINVAL.0 };
}

fn alloc(size: usize, align: usize, how: How) -> *mut Memory {
    match percpu::alloc(size, align, how) {
        Ok(handle) => handle.address() as *mut Memory,
        Err(Error::Exhausted) => no_memory(),
        Err(_) => {
            invalid();
            null_mut()
        }
    }
}

/// As `snprintf` has it: a caller's bytes, the last of which ends the text.
pub(super) struct Bytes {
    at: *mut u8,
    room: usize,
}

impl Room for Bytes {
    fn put(&mut self, at: usize, text: &[u8]) -> usize {
        let fits = text.len().min(self.room.saturating_sub(1).saturating_sub(at));
        if fits != 0 {
            // SAFETY: inside the caller's `room` bytes.
            unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), self.at.add(at), fits) };
        }
        fits
    }
}

/// Writes a report into `size` bytes at `at`, and counts all of it, as `snprintf`.
///
/// # Safety
/// They are the caller's.
pub(super) unsafe fn text(at: *mut c_char, size: usize, report: impl FnOnce(&mut Text<Bytes>) -> fmt::Result) -> usize {
    let mut out = Text::new(Bytes { at: at.cast(), room: size });
    let _ = report(&mut out);
    if size != 0 {
        // SAFETY: inside those bytes.
        unsafe { at.cast::<u8>().add(out.len()).write(0) };
    }
    out.len() + out.lost()
}

exported! {
    /// `percpu::alloc`.
    fn allotment_percpu_alloc(size: usize, align: usize) -> *mut Memory {
        alloc(size, align, How::Normal)
    }
    /// The same, `How::Populated`.
    fn allotment_percpu_alloc_populated(size: usize, align: usize) -> *mut Memory {
        alloc(size, align, How::Populated)
    }
    /// The same, `How::Reserved`.
    fn allotment_percpu_alloc_reserved(size: usize, align: usize) -> *mut Memory {
        alloc(size, align, How::Reserved)
    }
    /// `percpu::free`.
    fn allotment_percpu_free(memory: *mut Memory) -> c_int {
        // SAFETY: the caller's promise.
        if memory.is_null() || unsafe { percpu::free(memory as usize) }.is_ok() {
            return 0;
        }
        invalid();
        -1
    }
    /// `percpu::free_bulk`.
    fn allotment_percpu_free_bulk(memories: *const *mut Memory, count: usize) -> c_int {
        if count == 0 {
            return 0;
        }
        // SAFETY: the caller's promise; a pointer is an address.
        let freed = unsafe { percpu::free_bulk(core::slice::from_raw_parts(memories.cast::<usize>(), count)) };
        if freed.is_ok() {
            return 0;
        }
        invalid();
        -1
    }
    /// `percpu::this_cpu`.
    fn allotment_percpu_this_cpu(memory: *const Memory) -> *mut c_void {
        // SAFETY: the caller's promise.
        percpu::this_cpu(unsafe { handle(memory.cast()) }).cast()
    }
    /// `percpu::for_cpu`.
    fn allotment_percpu_for_cpu(memory: *const Memory, index: c_uint) -> *mut c_void {
        // SAFETY: the caller's promise.
        percpu::for_cpu(unsafe { handle(memory.cast()) }, index as usize).map_or(null_mut(), <*mut u8>::cast)
    }
    /// `percpu::indices`.
    fn allotment_percpu_indices() -> c_uint {
        percpu::indices() as c_uint
    }
    /// `percpu::indices_in_use`.
    fn allotment_percpu_indices_in_use() -> c_uint {
        percpu::indices_in_use() as c_uint
    }
    /// `percpu::balance`.
    fn allotment_percpu_balance() -> usize {
        percpu::balance().depopulated
    }
    /// `percpu::report`.
    fn allotment_percpu_stats(at: *mut c_char, size: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { text(at, size, percpu::report) }
    }
}
