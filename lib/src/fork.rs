//! # `fork`
//!
//! One set of handlers for the whole engine. Before: every index points at the
//! void set, no sequence is under way, every lock is held by the forking
//! thread, which alone may pass through them (other libraries' handlers run
//! between ours and may allocate). After, in parent and child: locks free,
//! slots back; the child also gets a board of its own.
#![allow(unsafe_code)] // registers with libc

use crate::HEAP;
use crate::percpu::PERCPU;
use crate::start::Once;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> i32;
}

/// Whether the fence of the fork under way was had; written and read by the forking
/// thread only, between taking and releasing all locks.
static FENCED: AtomicBool = AtomicBool::new(true);

unsafe extern "C" fn prepare() {
    PERCPU.fork_begin();
    let fenced = HEAP.fork_begin();
    FENCED.store(fenced, Relaxed);
}

unsafe extern "C" fn parent() {
    HEAP.fork_end(false, true);
    PERCPU.fork_end(false);
}

unsafe extern "C" fn child() {
    HEAP.fork_end(true, FENCED.load(Relaxed));
    PERCPU.fork_end(true);
}

/// Registers the handlers, once.
pub fn register() {
    static FIRST: Once = Once::new();
    if !FIRST.is_now() {
        return;
    }
    // SAFETY: the handlers live as long as the process (`-z nodelete`).
    unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}
