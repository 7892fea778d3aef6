//! # The housekeeper's thread, and the workers'
//!
//! Created by the C library, so that the program's `setuid`, its cgroup and its
//! debugger know them: detached, with a small stack, all signals blocked (but the
//! C library's own two), named. What they do is the engine's ([`Heap::keep`], [`Heap::work`]).
#![allow(unsafe_code)] // starts a thread

use crate::HEAP;
#[cfg(feature = "preload")]
use allotment_engine::arch::atomic::AtomicU32;
use allotment_engine::arch::sys;
#[allow(unused_imports, reason = "for the link above")]
use allotment_engine::heap::Heap;
use core::ffi::{c_int, c_ulong, c_void};
use core::ptr;

/// `pthread_attr_t`, as large as the largest of glibc's.
#[repr(C)]
struct Attributes([u64; 8]);
/// `sigset_t`.
type Signals = [c_ulong; 16];

unsafe extern "C" {
    fn pthread_attr_init(attributes: *mut Attributes) -> c_int;
    fn pthread_attr_setdetachstate(attributes: *mut Attributes, state: c_int) -> c_int;
    fn pthread_attr_setstacksize(attributes: *mut Attributes, bytes: usize) -> c_int;
    fn pthread_attr_destroy(attributes: *mut Attributes) -> c_int;
    fn pthread_create(
        thread: *mut usize,
        attributes: *const Attributes,
        body: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const Signals, old: *mut Signals) -> c_int;
    fn __errno_location() -> *mut c_int;
}

/// Enough for the few frames of a drain. Where thread-local data is larger, creation fails.
const STACK_BYTES: usize = 128 * 1024;
const DETACHED: c_int = 1;
const SIG_SETMASK: c_int = 2;

extern "C" fn body(_: *mut c_void) -> *mut c_void {
    sys::name_thread(c"allotment");
    HEAP.keep();
    ptr::null_mut()
}

extern "C" fn worker(_: *mut c_void) -> *mut c_void {
    sys::name_thread(c"allotment/free");
    HEAP.work();
    ptr::null_mut()
}

#[cfg(feature = "preload")]
/// Ends the threads for good and waits until the kernel has seen them go: `done` says whether it
/// has, and is asked every millisecond for a second at most.
pub fn dismiss(mut done: impl FnMut() -> bool) {
    if !HEAP.dismiss_keeper() {
        return;
    }
    let nobody = AtomicU32::new(0);
    for _ in 0..1000 {
        if done() {
            return;
        }
        sys::futex_wait_for(&nobody, 0, 1_000_000);
    }
}

/// Starts the housekeeper; false if the system has no thread for us.
pub fn start() -> bool {
    start_thread(body)
}

/// The same for a worker.
pub fn start_worker() -> bool {
    start_thread(worker)
}

fn start_thread(body: extern "C" fn(*mut c_void) -> *mut c_void) -> bool {
    let mut attributes = Attributes([0; 8]);
    let (all, mut old): (Signals, Signals) = ([c_ulong::MAX; 16], [0; 16]);
    let mut thread = 0;
    // SAFETY: all pointers are to our own variables; the body takes no argument. The C library
    // keeps its own signals open under a full mask; a thread inherits the mask.
    unsafe {
        if pthread_attr_init(&raw mut attributes) != 0 {
            return false;
        }
        // (What the C library's own calls leave there when one is refused.)
        let errno = *__errno_location();
        pthread_attr_setdetachstate(&raw mut attributes, DETACHED);
        pthread_attr_setstacksize(&raw mut attributes, STACK_BYTES);
        pthread_sigmask(SIG_SETMASK, &raw const all, &raw mut old);
        let failed = pthread_create(&raw mut thread, &raw const attributes, body, ptr::null_mut()) != 0;
        pthread_sigmask(SIG_SETMASK, &raw const old, ptr::null_mut());
        pthread_attr_destroy(&raw mut attributes);
        *__errno_location() = errno;
        !failed
    }
}
