//! # What counters take from the machine: its CPUs, and the threshold that follows
//!
//! Asked once, when per-CPU memory opens, or by whoever wants a number before.

use allotment_engine::arch::atomic::AtomicU32;
use allotment_engine::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use allotment_engine::arch::sys;
use allotment_engine::counter::level;

/// CPUs that the process could use, and the default threshold, when per-CPU memory opened (0 before): a filter of system
/// calls that comes later may forbid to ask again.
static CPUS: AtomicU32 = AtomicU32::new(0);
static THRESHOLD: AtomicU32 = AtomicU32::new(0);

/// Asks the system what defaults are made from.
pub fn prepare() {
    let cpus = sys::cpus_allowed();
    THRESHOLD.store(level::default_threshold(cpus, sys::memory_bytes()), Relaxed);
    // Last: whoever sees it sees the other (and on the way here a lock is released).
    CPUS.store(cpus, Release);
}

pub fn cpus() -> u32 {
    // Acquire pairs with `prepare`.
    if CPUS.load(Acquire) == 0 {
        prepare();
    }
    CPUS.load(Relaxed)
}

/// The kernel's threshold for this machine: `min(125, 2 × fls(CPUs) × (1 + fls(memory / 128 MiB)))`.
#[must_use]
pub fn default_threshold() -> u32 {
    cpus();
    THRESHOLD.load(Relaxed)
}
