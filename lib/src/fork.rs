//! # `fork` and `vfork`
//!
//! One set of handlers for the whole engine ([`Heap::fork_begin`]), registered before any library's where that can be had, so that it
//! runs last before a fork and first after it. In between no thread waits for the fork: the heap serves all from
//! elsewhere. Threads that want per-CPU memory, or blocks of pages, wait.
//!
//! Signals are blocked while the engine is closed and opened, so that a handler that forks or vforks finds it one or the other.
#![allow(unsafe_code)] // registers with libc

use crate::heap::HEAP;
use crate::memory::PERCPU;
use crate::process::Once;
#[cfg(allotment_preload)]
use allotment_engine::arch::gate::{Begun, SEAL_NAPS};
use allotment_engine::arch::sys;
#[cfg(allotment_preload)]
use allotment_engine::arch::vfork::CLONE_VFORK;
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
fn uninterrupted<T>(body: impl FnOnce() -> T) -> T {
    let _signals = sys::Signals::block();
    body()
}

/// Before a fork; false, and all as it was, if threads were still inside after so many looks.
fn begin(looks: u32) -> bool {
    let mut is_told = false;
    uninterrupted(|| {
        // In this order: a thread that shows the heap looks at per-CPU memory, too.
        is_told = HEAP.fork_begin(looks);
        if is_told && !PERCPU.units.fork_begin(looks) {
            HEAP.fork_end(false);
            is_told = false;
        }
    });
    is_told
}

unsafe extern "C" fn prepare() {
    begin(u32::MAX);
}

fn end(child: bool) {
    uninterrupted(|| {
        let vforks = HEAP.own_vforks();
        PERCPU.units.fork_end(child, vforks);
        HEAP.fork_end(child);
    });
    // (In a child its next slow path does.)
    if !child {
        HEAP.after_fork();
    }
}

unsafe extern "C" fn parent() {
    end(false);
}

unsafe extern "C" fn child() {
    end(true);
}

/// What `_Fork` returns, told as the C library's `fork` tells its handlers: unless a thread is stopped inside by a handler of the program,
/// which may be why it calls this and not `fork`. The child then notices for itself, as one that a system call made.
#[cfg(allotment_preload)]
pub fn around(fork: impl FnOnce() -> i32) -> i32 {
    let is_told = begin(SEAL_NAPS);
    let result = fork();
    if is_told {
        end(result == 0);
    }
    result
}

/// Before a vfork, or the like, whose child has a stack of its own if it is `apart`.
#[cfg(allotment_preload)]
fn close(apart: bool) -> Begun {
    uninterrupted(|| {
        // (As the sets: noted when all is closed.)
        PERCPU.units.close();
        HEAP.vfork_begin(apart)
    })
}

/// Before a vfork.
#[cfg(allotment_preload)]
pub extern "C" fn vfork_begin() -> Begun {
    close(false)
}

/// After it, in the parent.
#[cfg(allotment_preload)]
pub extern "C" fn vfork_end(begun: Begun) {
    uninterrupted(|| {
        let ended = HEAP.vfork_end(begun);
        (0..ended).for_each(|_| PERCPU.units.reopen());
    });
}

/// Before a `clone` whose child shares memory and is no thread.
#[cfg(allotment_preload)]
pub extern "C" fn clone_begin(flags: i32) -> Begun {
    if flags & CLONE_VFORK == 0 {
        // The child goes on beside us, and the C library does not know of it.
        sys::share();
    }
    close(true)
}

/// After it, in the parent. The child may share memory for as long as it lives: the sets stay closed then, also behind its end,
/// which nobody tells.
#[cfg(allotment_preload)]
pub extern "C" fn clone_end(flags: i32, result: isize, begun: Begun) {
    if flags & CLONE_VFORK != 0 || result < 0 {
        vfork_end(begun);
    } else {
        uninterrupted(|| HEAP.shared_for_good(begun));
    }
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
