//! # The per-CPU memory of this process
//!
//! Opened by [`crate::percpu`]; closed and opened again around forks.

use allotment_engine::arch::atomic::AtomicU32;
use allotment_engine::arch::atomic::Ordering::{Acquire, Relaxed};
use allotment_engine::arch::lock::Lock;
use allotment_engine::percpu::space::Space;
use core::ops::Deref;

/// The per-CPU memory of this process, and when it was opened.
pub struct Memory {
    pub space: Space,
    pub opening: Lock<()>,
    pub opened: AtomicU32,
    pub nodes: AtomicU32,
}

/// The one.
pub static PERCPU: Memory =
    Memory { space: Space::new(), opening: Lock::new(()), opened: AtomicU32::new(0), nodes: AtomicU32::new(0) };

impl Deref for Memory {
    type Target = Space;
    #[inline(always)]
    fn deref(&self) -> &Space {
        &self.space
    }
}

impl Memory {
    /// NUMA nodes of the machine.
    pub fn nodes(&self) -> u32 {
        self.nodes.load(Relaxed).max(1)
    }

    /// Whether anything was ever allocated.
    pub fn is_open(&self) -> bool {
        self.opened.load(Acquire) != 0
    }
}
