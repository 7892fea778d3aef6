//! # Whether there is one thread
//!
//! What a program of one thread is spared: locked instructions, the gate's turns. The C library knows of its own threads
//! (`c_is_single`); of those that it does not know, and of children that share this memory, the two words here do.
//!
//! Invariant: a "yes" is true until the calling thread itself starts somebody. Locks: none. Cost: two loads.
#![allow(unsafe_code)] // the C library's byte

use crate::arch::atomic::AtomicBool;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::settle;

/// Whether no thread of ours has ever been started in this process. (True at first: a static with a value lies on a page
/// that the loader writes anyhow.)
static ALONE: AtomicBool = AtomicBool::new(true);
/// Whether no child that is no thread has shared this memory (see [`share`]). True at first: as above.
static UNSHARED: AtomicBool = AtomicBool::new(true);

/// Whether neither the C library nor [`crate::arch::crew`] has ever started a second thread.
#[inline]
#[must_use]
pub fn single_threaded() -> bool {
    // Relaxed: written before the clone, by which the thread that reads is ordered, or read by the one that clones.
    c_is_single() && ALONE.load(Relaxed)
}

/// Whether the program has one thread, whatever threads of ours there are.
#[inline]
#[must_use]
pub fn program_is_single() -> bool {
    // Relaxed: as in `single_threaded`.
    c_is_single() && UNSHARED.load(Relaxed)
}

#[inline]
fn c_is_single() -> bool {
    unsafe extern "C" {
        static __libc_single_threaded: u8;
    }
    // SAFETY: a byte that the C library keeps (glibc 2.32); a stale one only says "no" later.
    unsafe { __libc_single_threaded != 0 }
}

/// The caller is about to start a task that shares this memory, of which the C library does not know: from now on nobody
/// is the only thread.
pub fn share() {
    // Relaxed: as in `single_threaded`.
    UNSHARED.store(false, Relaxed);
    ALONE.store(false, Relaxed);
}

/// The caller is about to start a thread of ours, or (`false`) is a forked child, which has none, or has seen all of them dead.
pub(in crate::arch) fn has_ours(are: bool) {
    // Relaxed: as in `single_threaded`.
    settle!(ALONE, !are);
}

/// A child of a test, which has one thread, is to be as a program of one is: whatever threads there were where it comes from.
#[cfg(test)]
pub fn be_single() {
    unsafe extern "C" {
        static mut __libc_single_threaded: u8;
    }
    // SAFETY: the child's own byte, of which it tells the truth.
    unsafe { __libc_single_threaded = 1 };
    UNSHARED.store(true, Relaxed);
    ALONE.store(true, Relaxed);
}
