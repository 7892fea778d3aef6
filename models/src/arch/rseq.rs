//! Index, CPU and fences.

use super::sys::Errno;
use crate::machine::{self, Sabotage};

/// Offset of `cpu_id_start`. (No model has its index there.)
pub const CPU_ID_START: isize = 0;
/// Offset of `cpu_id`.
pub const CPU_ID: isize = 4;
/// Offset of the index.
pub const INDEX: isize = 24;

/// Offset of an `mm_cid`, which these areas do not have (nor a node's number).
pub const MM_CID: isize = -1;
/// See [`MM_CID`].
pub const NODE_ID: isize = -1;

/// A word of this thread's area.
#[must_use]
pub fn word(at: isize) -> u32 {
    let (index, cpu) = machine::here();
    if at == CPU_ID { cpu } else { index }
}

/// Fences against sequences.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fence;

impl Fence {
    /// `membarrier(PRIVATE_EXPEDITED_RSEQ, FLAG_CPU, cpu)`.
    ///
    /// # Errors
    /// Never.
    pub fn cpu(self, cpu: u32) -> Result<(), Errno> {
        machine::trace(|| format!("fence of cpu {cpu}"));
        if machine::sabotage() != Sabotage::NoFence {
            machine::interrupt(cpu as usize);
        }
        Ok(())
    }
    /// `membarrier(REGISTER_PRIVATE_EXPEDITED)`.
    ///
    /// # Errors
    /// Never.
    pub const fn register_barrier(self) -> Result<(), Errno> {
        Ok(())
    }
    /// `membarrier(PRIVATE_EXPEDITED)`: what every thread has stored is seen.
    ///
    /// # Errors
    /// Never.
    pub fn barrier(self) -> Result<(), Errno> {
        if machine::sabotage() != Sabotage::NoFence {
            machine::barrier();
        }
        Ok(())
    }
    /// The same for all CPUs, one after the other.
    ///
    /// # Errors
    /// Never.
    pub fn all(self) -> Result<(), Errno> {
        if machine::sabotage() != Sabotage::NoFence {
            (0..machine::cpus()).for_each(machine::interrupt);
        }
        Ok(())
    }
}
