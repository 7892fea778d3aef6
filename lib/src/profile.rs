//! # The heap profile: its file, and the probes for tracers
//!
//! The samples are the engine's (`heap::profile`); here is what they need of the process: a name for the
//! file that shows them, `/dev/shm/allotment-NAMESPACE-PID.heap` (of this user alone; removed at the end unless
//! `allotment run` waits for it), and two probes with OpenTelemetry's names.
#![allow(unsafe_code)] // probes, and words of a section of their own

use crate::heap::HEAP;
use crate::process::is_secure;
use crate::publish::{Path, has_heir};
use allotment_engine::arch::sys;
use allotment_engine::stat::profile::{HEAP_SUFFIX, PROFILE_BYTES};
use core::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// A new file to show the profile in; none where a filter may forbid it, or it cannot be had.
pub fn file() -> Option<usize> {
    if HEAP.is_confined() || is_secure() {
        return None;
    }
    sys::create_private(Path::of(sys::pid(), HEAP_SUFFIX).as_c(), PROFILE_BYTES).ok()
}

/// The file is not used after all.
pub fn withdraw() {
    sys::unlink(Path::of(sys::pid(), HEAP_SUFFIX).as_c());
}

/// The process ends.
pub fn end() {
    // (A filter may kill for any of this.)
    if HEAP.is_confined() {
        return;
    }
    if HEAP.end_profile() && !has_heir() {
        withdraw();
    }
}

/// Raised by tracers of `otel_memory:alloc` while they are attached.
#[unsafe(link_section = ".probes")]
#[used]
static ALLOC_SEMAPHORE: AtomicU16 = AtomicU16::new(0);
/// The same for `otel_memory:free`.
#[unsafe(link_section = ".probes")]
#[used]
static FREE_SEMAPHORE: AtomicU16 = AtomicU16::new(0);

/// See `define_probe`.
#[unsafe(link_section = ".stapsdt.base")]
#[used]
static BASE: u8 = 0;

/// Whether a tracer is attached.
#[inline]
pub fn is_traced() -> bool {
    // Volatile in effect: an atomic that another process changes.
    ALLOC_SEMAPHORE.load(Relaxed) != 0
}

allotment_engine::define_probe!(
    /// `otel_memory:alloc(ptr, size, weighted_bytes)`.
    sampled(address, size, weight),
    "otel_memory", "alloc", ALLOC_SEMAPHORE, BASE
);
allotment_engine::define_probe!(
    /// `otel_memory:free(ptr)`.
    unsampled(address),
    "otel_memory", "free", FREE_SEMAPHORE, BASE
);
