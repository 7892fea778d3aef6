//! # The process's end
//!
//! A process that ends with much memory leaves a reaper ([`Heap::leave_reaper`]), so that its
//! parent does not wait while the kernel frees; one that published its board removes the file. As late as possible: handlers that are
//! registered in the library's constructor run after all others and after all destructors;
//! only the C library's streams are flushed later. Who leaves by `_exit` (as programs do that cannot
//! wait for their own destructors) passes `abi` on the way. A signal's death leaves none.
#![allow(unsafe_code)] // registers with libc

use crate::heap::HEAP;
use crate::process::{Once, is_secure};
#[allow(unused_imports, reason = "for the link above")]
use allotment_engine::heap::Heap;
use core::ffi::{c_int, c_void};
use core::ptr;

unsafe extern "C" {
    fn __cxa_atexit(handler: extern "C" fn(*mut c_void), argument: *mut c_void, library: *mut c_void) -> c_int;
    fn __cxa_at_quick_exit(handler: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}

/// Called when this process ends.
pub extern "C" fn leave(_: *mut c_void) {
    crate::profile::end();
    crate::bad_free::end_reports();
    if !is_secure() {
        HEAP.leave_reaper();
        crate::publish::withdraw();
    }
}

/// Registers the handlers, once.
pub fn register() {
    static FIRST: Once = Once::new();
    if !FIRST.is_now() {
        return;
    }
    // SAFETY: the handler lives as long as the process (`-z nodelete`); without a library's name it
    // is called at the process's end only.
    unsafe {
        __cxa_atexit(leave, ptr::null_mut(), ptr::null_mut());
        __cxa_at_quick_exit(leave, ptr::null_mut());
    }
}
