//! # Where the calling thread runs, and fences
//!
//! CPU and node by the C library's quick way, the thread pointer, and what a thread registers with the kernel. Locks:
//! none. Cost: some ns where the C library has it, else one call.
#![allow(unsafe_code)] // the boundary to the kernel and to the C library

use super::call::{Errno, call, nr};
use crate::arch::platform;

/// The CPU that runs us, by the C library's quick way.
#[must_use]
pub fn current_cpu() -> u32 {
    unsafe extern "C" {
        fn sched_getcpu() -> i32;
    }
    // SAFETY: reads a word of the rseq area or calls the vdso; keeps errno unless it fails.
    unsafe { sched_getcpu() }.max(0) as u32
}

/// The NUMA node that runs us, by the C library's quick way (no system call where there is a vdso).
#[must_use]
pub fn current_node() -> u32 {
    unsafe extern "C" {
        fn getcpu(cpu: *mut u32, node: *mut u32) -> i32;
    }
    let (mut cpu, mut node) = (0, 0);
    // SAFETY: writes two words that are ours.
    unsafe { getcpu(&raw mut cpu, &raw mut node) };
    node
}

/// How many CPUs we may run on (at least 1).
#[must_use]
pub fn cpus_allowed() -> u32 {
    let mut mask = [0_u64; 128];
    // SAFETY: the kernel writes at most the mask's bytes.
    let filled = unsafe { call(nr::SCHED_GETAFFINITY, [0, size_of_val(&mask), mask.as_mut_ptr() as usize, 0, 0, 0]) };
    let words = filled.unwrap_or(0) / 8;
    mask.iter().take(words).map(|word| word.count_ones()).sum::<u32>().max(1)
}

/// `membarrier(command, flags, cpu)`.
///
/// # Errors
/// `ENOSYS`, `EINVAL`, `EPERM`: not available or not registered.
pub fn membarrier(command: usize, flags: usize, cpu: usize) -> Result<usize, Errno> {
    // SAFETY: a fence; touches no memory.
    unsafe { call(nr::MEMBARRIER, [command, flags, cpu, 0, 0, 0]) }
}

/// Registers the calling thread's rseq area, with the C library's signature.
///
/// # Errors
/// The kernel's; nothing is registered then.
///
/// # Safety
/// The area is the thread's alone as long as it lives.
pub unsafe fn register_rseq(area: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call(nr::RSEQ, [area, bytes, 0, platform::SIGNATURE as usize, 0, 0]).map(drop) }
}

/// A word that is different in every thread alive: the thread pointer.
#[inline]
#[must_use]
pub fn thread_pointer() -> usize {
    platform::thread_pointer()
}

/// Where the C library keeps `errno`, in bytes from the thread pointer: the same in every thread.
#[must_use]
pub fn errno_offset() -> isize {
    unsafe extern "C" {
        fn __errno_location() -> *mut i32;
    }
    // SAFETY: the address of the thread's own errno.
    (unsafe { __errno_location() as isize }) - thread_pointer() as isize
}
