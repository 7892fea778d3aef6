//! # Fake CPUs
//!
//! The simulated backend: sequences run as [`Steps`] on CPUs that exist only
//! here, so that 64 of them, migrations and interruptions at every step can be
//! tested on two. A fake CPU is an epoch under a lock. Beginning a sequence on
//! it starts a new epoch (whoever was in one there has been preempted), and so
//! does a fence; every step checks, under the lock, that the epoch is still its own.
//! An index is guarded in the same way: the kernel gives it to one running
//! thread at a time, so who begins with it has seen its last user preempted.
//!
//! This file is also compiled over a model checker's atomics and locks.

use super::layout::Set;
use super::steps::{Interrupted, Steps};
use crate::arch::atomic::AtomicU64;
use crate::arch::atomic::Ordering::SeqCst;
use crate::arch::lock::Lock;

/// One fake CPU.
#[derive(Debug)]
pub struct Cpu(Lock<u64>);

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

impl Cpu {
    /// Idle.
    #[must_use]
    pub const fn new() -> Self {
        Self(Lock::new(0))
    }
    /// Interrupts whatever sequence runs here.
    pub fn fence(&self) {
        *self.0.lock() += 1;
    }
    /// Begins a sequence here.
    pub fn begin(&self) -> Running<'_> {
        let mut epoch = self.0.lock();
        *epoch += 1;
        Running { cpu: self, epoch: *epoch, index: None }
    }
    /// The same with an index that moves between CPUs.
    pub fn begin_with<'a>(&'a self, index: &'a Self) -> Running<'a> {
        let mut index_epoch = index.0.lock();
        *index_epoch += 1;
        let index = Some((index, *index_epoch));
        Running { index, ..self.begin() }
    }
}

/// A sequence in progress on a fake CPU.
#[derive(Debug)]
pub struct Running<'a> {
    cpu: &'a Cpu,
    epoch: u64,
    index: Option<(&'a Cpu, u64)>,
}

impl Running<'_> {
    /// One step of a sequence that [`Steps`] has no word for.
    ///
    /// # Errors
    /// [`Interrupted`]: nothing was done.
    pub fn step<T>(&self, step: impl FnOnce() -> T) -> Result<T, Interrupted> {
        // Both locks are held during the step; index before CPU, as in `begin_with`.
        let index = self.index.map(|(index, epoch)| (index.0.lock(), epoch));
        if index.as_ref().is_some_and(|(now, epoch)| **now != *epoch) {
            return Err(Interrupted);
        }
        let epoch = self.cpu.0.lock();
        if *epoch == self.epoch { Ok(step()) } else { Err(Interrupted) }
    }
    /// Whether the set belongs to CPU number `cpu` (a step of the sequence).
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn owns(&self, set: &Set, cpu: u32) -> Result<bool, Interrupted> {
        self.step(|| set.cpu.load(SeqCst) == cpu)
    }
    /// Writes the set's CPU: the commit of `adopt`.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn adopt(&self, set: &Set, cpu: u32) -> Result<(), Interrupted> {
        self.step(|| set.cpu.store(cpu, SeqCst))
    }
}

impl Steps for Running<'_> {
    fn load(&self, word: &AtomicU64) -> Result<u64, Interrupted> {
        self.step(|| word.load(SeqCst))
    }
    fn store(&self, word: &AtomicU64, value: u64) -> Result<(), Interrupted> {
        self.step(|| word.store(value, SeqCst))
    }
    #[allow(unsafe_code, reason = "a slot is known by its address only")]
    fn slot(&self, address: u64) -> &AtomicU64 {
        // SAFETY: the address came out of a word of a set, so it is a slot of a
        // sheaf (or the one behind its last, when room is 0 and it is not used);
        // sheaves are never unmapped.
        unsafe { &*(address as usize as *const AtomicU64) }
    }
    fn allocs(&self, _: usize, _: u64) {}
    fn frees(&self, _: usize, _: u64) {}
}
