//! Areas for C.

use super::no_memory;
use super::percpu::invalid;
use crate::area::{self, Error};
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{NonNull, null_mut};

/// `ALLOTMENT_AREA_GUARD`.
const GUARD: c_uint = 1;

exported! {
    /// `area::alloc`, `area::alloc_guarded`.
    fn allotment_area_alloc(size: usize, alignment: usize, flags: c_uint) -> *mut c_void {
        let area = match flags {
            0 => area::alloc(size, alignment.max(1)),
            GUARD => area::alloc_guarded(size, alignment.max(1)),
            _ => Err(Error::Align),
        };
        match area {
            Ok(area) => area.as_ptr().cast(),
            Err(Error::Exhausted) => no_memory(),
            Err(_) => {
                invalid();
                null_mut()
            }
        }
    }
    /// `area::free`.
    fn allotment_area_free(area: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        if NonNull::new(area.cast()).is_none_or(|area| unsafe { area::free(area) }.is_ok()) {
            return 0;
        }
        invalid();
        -1
    }
    /// `area::size`.
    fn allotment_area_size(area: *const c_void) -> usize {
        NonNull::new(area.cast_mut().cast()).and_then(area::size).unwrap_or(0)
    }
}
