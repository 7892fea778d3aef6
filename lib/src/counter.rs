//! # Counters that many CPUs change
//!
//! | | an update | a read | for |
//! |---|---|---|---|
//! | [`EventCounter`] | this CPU's word, +n | the sum | what happened: requests, bytes |
//! | [`LevelCounter`] | this CPU's byte, ±n; now and then the shared total | one load with a stated error, or the sum | what there is: open connections, cached bytes |
//! | [`QuotaCounter`] | this CPU's stock, −n; now and then the shared total | one load, or the sum | what there may be: at most a limit |
//!
//! An update is one restartable sequence: no locked instruction and no shared cache line, and safe
//! against preemption, migration and signals. Where the kernel or the C library has none, locked operations on the
//! same memory serve (see [`mode`]). What threads counted that have ended, or on CPUs that went away, stays counted.
//!
//! Nothing here needs [`Allotment`](crate::Allotment) to be the global allocator. A program that makes no counter pays
//! nothing. `docs/counters.md` has costs, error bounds and their proof.
//!
//! ```
//! use allotment::counter::{Comparison, EventCounter, LevelCounter, QuotaCounter};
//!
//! let requests = EventCounter::new()?;
//! requests.add(1);
//! assert_eq!(requests.sum(), 1);
//!
//! let open = LevelCounter::new()?;
//! open.add(3);
//! open.add(-1);
//! assert!(open.approximate().abs_diff(2) <= open.error_bound());
//! assert_eq!(open.exact(), 2);
//! assert_eq!(open.compare(1_000_000), Comparison::Less);
//!
//! let slots = QuotaCounter::new(2)?;
//! assert!(slots.try_add(2) && !slots.try_add(1));
//! slots.sub(1);
//! assert!(slots.try_add(1));
//! # Ok::<(), allotment::counter::Error>(())
//! ```
//!
//! After `fork` the child has counters of its own, with the parent's values. A spill of a level counter that another
//! thread was in the middle of is lost to the child, whose `error_bound` goes on to cover it.
#![allow(unsafe_code)] // per-CPU memory

use crate::machine::cpus;
use crate::memory::PERCPU;
use crate::percpu::How;
use allotment_engine::counter::{Level, Quota, level, quota};
use allotment_engine::percpu::Handle;
use core::fmt;

pub use crate::machine::default_threshold;
pub use allotment_engine::counter::Comparison;
pub use allotment_engine::stat::Mode;

/// Why there is no counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No memory.
    NoMemory,
    /// More than a CPU's unit holds.
    TooLarge,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NoMemory => "no per-CPU memory",
            Self::TooLarge => "more counters at once than a CPU's unit holds",
        })
    }
}

impl core::error::Error for Error {}

/// How counters work in this process: [`Mode::Sequences`], [`Mode::Fallback`], or [`Mode::Closed`] before the first one.
#[must_use]
pub fn mode() -> Mode {
    PERCPU.units.mode()
}

/// CPU indices that have counted so far: what a sum reads.
#[must_use]
pub fn indices_in_use() -> usize {
    PERCPU.units.high()
}

/// Allocates per-CPU bytes that are given back with the value.
#[derive(Debug)]
struct Owned {
    handle: Handle,
}

impl Owned {
    fn new(bytes: usize) -> Result<Self, Error> {
        use crate::percpu::Error as Why;
        match PERCPU.alloc(bytes, 8, How::Normal) {
            Ok(handle) => Ok(Self { handle }),
            Err(Why::TooLarge) => Err(Error::TooLarge),
            Err(_) => Err(Error::NoMemory),
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: ours, and its counter is gone.
        let freed = unsafe { PERCPU.free(self.handle.address()) };
        debug_assert!(freed.is_ok());
    }
}

/// Counts what happened: goes up only, and is summed by whoever reads it.
#[derive(Debug)]
pub struct EventCounter(Owned);

impl EventCounter {
    /// A counter at 0. Costs per-CPU memory of 8 bytes.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new() -> Result<Self, Error> {
        Owned::new(8).map(Self)
    }
    /// The counter as its address, which [`EventCounter::from_handle`] takes back.
    #[cfg(allotment_capi)]
    pub(crate) fn into_handle(self) -> Handle {
        core::mem::ManuallyDrop::new(self).0.handle
    }
    /// # Safety
    /// It came from [`EventCounter::into_handle`], once.
    #[cfg(allotment_capi)]
    pub(crate) unsafe fn from_handle(handle: Handle) -> Self {
        Self(Owned { handle })
    }
    /// Counts `n` (wrapping at 2^64). Async-signal-safe. One sequence.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        // SAFETY: an aligned word of ours.
        unsafe { PERCPU.units.add(self.0.handle, n) };
    }
    /// The sum. Takes no lock; exact if nobody counts meanwhile, and never less than what had been counted when it
    /// began. A load per index in use.
    #[must_use]
    pub fn sum(&self) -> u64 {
        // SAFETY: as in `add`.
        unsafe { PERCPU.units.sum(self.0.handle) }
    }
}

/// Many event counters, side by side in each CPU's memory: what is counted together shares cache lines.
#[derive(Debug)]
pub struct EventCounters {
    words: Owned,
    len: usize,
}

impl EventCounters {
    /// `len` counters at 0. Costs per-CPU memory of 8 bytes each.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::TooLarge`] from some thousands on.
    pub fn new(len: usize) -> Result<Self, Error> {
        let bytes = len.max(1).checked_mul(8).ok_or(Error::TooLarge)?;
        Ok(Self { words: Owned::new(bytes)?, len })
    }
    #[inline(always)]
    fn at(&self, number: usize) -> Handle {
        assert!(number < self.len, "no such counter");
        // SAFETY: inside the allocation.
        unsafe { self.words.handle.at(number * 8) }
    }
    /// Counts `n` on one of them. As [`EventCounter::add`].
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline(always)]
    pub fn add(&self, number: usize, n: u64) {
        // SAFETY: an aligned word of ours.
        unsafe { PERCPU.units.add(self.at(number), n) };
    }
    /// The sum of one of them. As [`EventCounter::sum`].
    ///
    /// # Panics
    /// If there is no such counter.
    #[must_use]
    pub fn sum(&self, number: usize) -> u64 {
        // SAFETY: as in `add`.
        unsafe { PERCPU.units.sum(self.at(number)) }
    }
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Counts what there is: goes up and down, and can be read by one load with a stated error.
#[derive(Debug)]
pub struct LevelCounter {
    level: Level,
    _bytes: Owned,
}

impl LevelCounter {
    /// A counter at 0 with the kernel's default threshold for this machine.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new() -> Result<Self, Error> {
        Self::with_threshold(default_threshold())
    }
    /// A counter at 0 whose indices spill beyond `threshold` (clamped to `1..=125`): the larger, the rarer a
    /// shared access, and the larger the error.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn with_threshold(threshold: u32) -> Result<Self, Error> {
        // How many nodes there are is known once anything was allocated.
        let mut bytes = Owned::new(level::BYTES)?;
        let nodes = PERCPU.nodes();
        if nodes > 1 {
            bytes = Owned::new(level::BYTES_NODES)?;
        }
        // SAFETY: an allocation of ours in the only units there are.
        let level = unsafe { Level::new(bytes.handle, threshold, nodes) };
        Ok(Self { level, _bytes: bytes })
    }
    /// Counts `delta` up or down. Async-signal-safe. One sequence; every 1.5 thresholds two locked adds on the total.
    #[inline(always)]
    pub fn add(&self, delta: i64) {
        self.level.add(&PERCPU.units, delta);
    }
    /// The total: off by at most [`LevelCounter::error_bound`]. One load.
    #[inline]
    #[must_use]
    pub fn approximate(&self) -> i64 {
        self.level.approximate()
    }
    /// By how much [`LevelCounter::approximate`] may be off now: threshold × (indices in use + 1), twice that once
    /// somebody has folded, and 1.5 × threshold for each thread inside a spill. Four loads.
    #[must_use]
    pub fn error_bound(&self) -> u64 {
        self.level.bound(&PERCPU.units)
    }
    /// The sum. Exact if nobody counts meanwhile. Takes no lock; two loads per index in use.
    #[must_use]
    pub fn exact(&self) -> i64 {
        self.level.exact(&PERCPU.units)
    }
    /// Whether the counter is less or greater than `value`, if the approximate read and its bound decide. Four loads.
    #[must_use]
    pub fn compare(&self, value: i64) -> Comparison {
        self.level.compare(&PERCPU.units, value)
    }
    /// The same, by the sum where the bound does not decide.
    #[must_use]
    pub fn compare_exact(&self, value: i64) -> core::cmp::Ordering {
        self.level.compare_exact(&PERCPU.units, value)
    }
    /// Brings the total up to date for whoever reads approximately; whether it changed. By anybody, by period; the CPUs
    /// concerned are not disturbed. Takes turns with other folders: not in signal handlers.
    pub fn fold(&self) -> bool {
        self.level.fold(&PERCPU.units)
    }
    /// What was counted on NUMA node `node`, approximately; on a machine with one node, the total.
    #[must_use]
    pub fn node(&self, node: usize) -> i64 {
        self.level.node(&PERCPU.units, node)
    }
    /// The threshold.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.level.threshold()
    }
    /// Changes the threshold (clamped to `1..=125`). The error bound goes by the largest that there was.
    pub fn set_threshold(&self, threshold: u32) {
        self.level.set_threshold(threshold);
    }
}

/// Counts what is in use of something limited: adding never exceeds the limit, and what fits is never refused.
///
/// (Where `membarrier` is refused, or may not be asked because the process filters its calls, what fits may be refused by what other indices
/// have in stock, until each of them has an update that the total refuses.)
#[derive(Debug)]
pub struct QuotaCounter {
    quota: Quota,
    _bytes: Owned,
}

impl QuotaCounter {
    /// Nothing in use of `limit` (at most 2^62). The CPUs' stocks together hold at most an eighth of it.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(limit: u64) -> Result<Self, Error> {
        Self::with_batch(limit, quota::default_batch(limit, cpus()))
    }
    /// The same with a batch of one's own (`1..=2^40`): what a CPU's stock is refilled with. More than a
    /// batch at once is charged directly.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn with_batch(limit: u64, batch: u64) -> Result<Self, Error> {
        let bytes = Owned::new(quota::BYTES)?;
        // SAFETY: an allocation of ours in the only units there are.
        let quota = unsafe { Quota::new(bytes.handle, limit, batch) };
        Ok(Self { quota, _bytes: bytes })
    }
    /// Uses `n` if they fit; whether they did. One sequence; a lock per batch; near the limit one
    /// compare-and-swap on the shared total. Not in signal handlers.
    #[inline(always)]
    #[must_use]
    pub fn try_add(&self, n: u64) -> bool {
        self.quota.try_add(&PERCPU.units, n)
    }
    /// Returns `n` that were used. False, and nothing done, if it is seen that they were not. Costs as
    /// [`QuotaCounter::try_add`].
    #[inline(always)]
    pub fn sub(&self, n: u64) -> bool {
        self.quota.sub(&PERCPU.units, n)
    }
    /// At least what is in use, and more by at most two batches per index in use. One load.
    #[inline]
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.quota.charged()
    }
    /// What is in use. Exact if nobody changes it meanwhile. Takes no lock; a load per index in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.quota.used(&PERCPU.units)
    }
    /// The limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.quota.limit()
    }
    /// Changes the limit. When it returns nothing more can be used beyond the new one; what is in use stays so.
    pub fn set_limit(&self, limit: u64) {
        self.quota.set_limit(&PERCPU.units, limit);
    }
}
