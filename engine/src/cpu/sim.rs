//! # Fake CPUs
//!
//! The simulated backend: sequences run step by step on CPUs that exist only
//! here, so that 64 of them, migrations and interruptions at every step can be
//! tested on two. A fake CPU is an epoch under a lock. Beginning a sequence on
//! it starts a new epoch (whoever was in one there has been preempted), and so
//! does a fence; every step checks, under the lock, that the epoch is still its own.
//! An index is guarded in the same way: the kernel gives it to one running
//! thread at a time, so a thread that begins with it has seen its last user preempted.
//!
//! This file is also compiled over a model checker's atomics and locks.

use crate::arch::lock::Lock;

/// The fake CPUs of a simulation and who runs where.
#[derive(Debug)]
pub struct Simulation {
    /// The CPUs.
    pub cpus: &'static [Cpu],
    /// The indices.
    pub indices: &'static [Cpu],
    /// The calling thread's index and CPU.
    pub here: fn() -> (usize, u32),
    /// NUMA nodes; CPUs take turns.
    pub nodes: usize,
}

impl Simulation {
    /// Begins a sequence where the calling thread runs; its index and CPU.
    pub fn begin(&self) -> (Running<'_>, usize, u32) {
        let (index, cpu) = (self.here)();
        (self.cpus[cpu as usize].begin_with(&self.indices[index]), index, cpu)
    }
}

#[cfg(test)]
impl Simulation {
    /// A simulation of so many CPUs and as many indices whose sequences no other test's interrupt.
    pub fn own(cpus: usize, nodes: usize, here: fn() -> (usize, u32)) -> &'static Self {
        let idle = || (0..cpus).map(|_| Cpu::new()).collect::<std::vec::Vec<_>>().leak();
        std::boxed::Box::leak(std::boxed::Box::new(Self { cpus: idle(), indices: idle(), here, nodes }))
    }
}

/// The thread was preempted: the sequence is over.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted;

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
    /// One step of the sequence.
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
}
