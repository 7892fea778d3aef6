//! # Draining what CPUs cache
//!
//! Each CPU caches free objects and pages. A drain empties such caches from any thread, while their owners go on
//! allocating: it exchanges the one pointer through which a CPU reaches its cache, makes sure that nobody still uses
//! the old one, and takes it (seed: Nicolas Saenz Julienne's remote drain of per-CPU page lists, 2022).
//!
//! ```
//! use allotment::drain::{self, DrainMode};
//!
//! let taken = drain::all(DrainMode::Auto);
//! println!("{} bytes from {} CPUs", taken.bytes, taken.reached);
//!
//! // A thread that must not be interrupted and will not allocate gives its CPU's cache up beforehand.
//! drain::quiescent(|| { /* a time-critical loop */ });
//! ```
//!
//! | way | a CPU that runs none of our threads | one that does | isolated (`isolcpus`, `nohz_full`) |
//! |---|---|---|---|
//! | [`DrainMode::Auto`] | emptied | emptied, after one interruption of 1–2 µs | as *gentle* |
//! | [`DrainMode::Gentle`] | emptied | asked: it answers when it next leaves its fast path, or has given its cache up | as others |
//! | [`DrainMode::Expedited`] | emptied | emptied, after one interruption | as others |
//!
//! What is drained becomes free memory of the heap; [`crate::Allotment::trim`] gives that back to the system, too.
//! `docs/drain.md` has protocol and costs.

use crate::heap::HEAP;
use allotment_engine::reclaim::drain::DrainTarget;

pub use allotment_engine::cache::{DrainMode, DrainReport};

/// Drains the caches of CPU number `cpu`.
pub fn cpu(cpu: u32, way: DrainMode) -> DrainReport {
    HEAP.drain(DrainTarget::Cpu(cpu), way)
}

/// Drains the caches of all CPUs: with one interruption of each that runs us, at once, if `way` allows it and no
/// CPU is isolated.
pub fn all(way: DrainMode) -> DrainReport {
    HEAP.drain(DrainTarget::All, way)
}

/// Drains the caches of the CPUs that run none of our threads: nobody is interrupted. Looks at each thread
/// of the process (some µs each).
pub fn idle() -> DrainReport {
    HEAP.drain(DrainTarget::Idle, DrainMode::Expedited)
}

/// Gives up what this CPU caches, so that drains empty it without disturbing this CPU, until the next allocation
/// or free here. Whether it was done: not while a fork is under way, nor without restartable sequences, where a
/// drain interrupts nobody anyway.
pub fn park() -> bool {
    HEAP.park()
}

/// Runs `section`, which should not allocate (it may), after [`park`].
pub fn quiescent<R>(section: impl FnOnce() -> R) -> R {
    park();
    section()
}
