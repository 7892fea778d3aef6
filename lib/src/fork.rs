//! # `fork` and `vfork`
//!
//! One set of handlers for the whole engine ([`Heap::fork_begin`]), registered before any library's where that can be had, so that it
//! runs last before a fork and first after it. In between no thread waits for the fork: the heap serves all from
//! elsewhere. Threads that want per-CPU memory, or blocks of pages, wait.
//!
//! Signals are blocked while the engine is closed and opened, so that a handler that forks or vforks finds it one or the other.
#![allow(unsafe_code)] // registers with libc

use crate::HEAP;
use crate::percpu::PERCPU;
use crate::start::Once;
use allotment_engine::arch::sys;
#[allow(unused_imports, reason = "for the link above")]
use allotment_engine::heap::Heap;

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> i32;
}

/// Runs `body` with all signals blocked.
fn uninterrupted(body: impl FnOnce()) {
    let signals = sys::block_signals(u64::MAX);
    body();
    sys::block_signals(signals);
}

unsafe extern "C" fn prepare() {
    uninterrupted(|| {
        PERCPU.units.fork_begin();
        HEAP.fork_begin();
    });
}

fn end(child: bool) {
    uninterrupted(|| {
        let vforks = HEAP.own_vforks();
        HEAP.fork_end(child);
        PERCPU.units.fork_end(child, vforks);
    });
    HEAP.pay();
}

unsafe extern "C" fn parent() {
    end(false);
}

unsafe extern "C" fn child() {
    end(true);
}

/// Before a vfork, or the like.
#[cfg(feature = "preload")]
pub extern "C" fn vfork_begin() {
    uninterrupted(|| {
        HEAP.vfork_begin();
        PERCPU.units.close();
    });
}

/// After it, in the parent.
#[cfg(feature = "preload")]
pub extern "C" fn vfork_end() {
    uninterrupted(|| {
        PERCPU.units.reopen();
        HEAP.vfork_end();
    });
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
