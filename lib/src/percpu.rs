//! # Per-CPU memory of the process
//!
//! Opens at the first counter, not before: a program that makes none pays nothing. What it then costs is
//! one file of `/sys` read (how many CPUs there can be), one reservation, and the fork handlers.
#![allow(unsafe_code)] // addresses

use crate::counter::Error;
use crate::start;
use allotment_engine::arch::atomic::AtomicU32;
use allotment_engine::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use allotment_engine::arch::lock::Lock;
use allotment_engine::arch::sys::{self, Access};
use allotment_engine::knob::Knobs;
use allotment_engine::percpu::units::{Handle, UNIT, Units};
use allotment_engine::stat::Mode;
use core::num::NonZeroUsize;

/// Bytes of a granule.
const GRANULE: usize = 16;

/// A chunk of which granules are given out.
struct Chunk {
    base: usize,
    used: [u64; UNIT / GRANULE / 64],
}

/// See the module.
pub struct PerCpu {
    /// Where a thread's copy is.
    pub units: Units,
    chunk: Lock<Chunk>,
    opened: AtomicU32,
    nodes: AtomicU32,
    /// Whether it was open when the fork under way began.
    forked: AtomicU32,
}

/// The per-CPU memory of this process.
pub static PERCPU: PerCpu = PerCpu {
    units: Units::new(),
    chunk: Lock::new(Chunk { base: 0, used: [0; UNIT / GRANULE / 64] }),
    opened: AtomicU32::new(0),
    nodes: AtomicU32::new(1),
    forked: AtomicU32::new(0),
};

/// Where sequences have been tried and found wanting, none are used.
fn open_units(base: usize, indices: usize) {
    let knobs = Knobs::new();
    start::configure(&knobs);
    let opening = start::decide(&knobs);
    // SAFETY: the first words of unit 0, of which nobody knows yet.
    let probe = unsafe { Handle::new(NonZeroUsize::MIN.saturating_add(base - 1)) };
    let mut mode = opening.mode;
    if mode == Mode::Sequences {
        let units = Units::new();
        // SAFETY: the C library's own area, with membarrier registered; a chunk of these indices.
        let good = unsafe {
            units.open(mode, opening.area, indices, None);
            units.self_test(probe)
        };
        if !good {
            mode = Mode::Fallback;
        }
    }
    // SAFETY: as above; the lock is held, and nobody has a handle.
    unsafe { PERCPU.units.open(mode, opening.area, indices, None) };
}

impl PerCpu {
    /// NUMA nodes of the machine.
    pub fn nodes(&self) -> u32 {
        self.nodes.load(Relaxed)
    }

    /// Whether any counter was ever made.
    pub fn is_open(&self) -> bool {
        self.opened.load(Acquire) != 0
    }

    /// `size` zeroed bytes in every unit, aligned to `align`.
    pub fn alloc(&self, size: usize, align: usize) -> Result<Handle, Error> {
        if size == 0 || size > UNIT / 4 || align > GRANULE {
            return Err(Error::TooLarge);
        }
        if !self.is_open() {
            crate::fork::register();
        }
        let mut chunk = self.chunk.lock();
        if chunk.base == 0 {
            let indices = sys::list_end(c"/sys/devices/system/cpu/possible").unwrap_or(4096).clamp(1, 8192);
            let nodes = sys::list_end(c"/sys/devices/system/node/possible").unwrap_or(1);
            let base = sys::map(0, (indices + 1) * UNIT, Access::ReadWrite).map_err(|_| Error::NoMemory)?;
            open_units(base, indices);
            self.nodes.store(nodes as u32, Relaxed);
            chunk.base = base;
            // Release: whoever sees it sees the units open.
            self.opened.store(1, Release);
        }
        let granules = size.div_ceil(GRANULE);
        let total = UNIT / GRANULE;
        let used = |chunk: &Chunk, at: usize| chunk.used[at / 64] >> (at % 64) & 1 == 1;
        let mut at = 0;
        let first = loop {
            if at + granules > total {
                return Err(Error::NoMemory);
            }
            match (at..at + granules).rev().find(|&at| used(&chunk, at)) {
                Some(taken) => at = taken + 1,
                None => break at,
            }
        };
        for at in first..first + granules {
            chunk.used[at / 64] |= 1 << (at % 64);
        }
        let address = chunk.base + first * GRANULE;
        // SAFETY: in unit 0 of the chunk.
        let handle = unsafe { Handle::new(NonZeroUsize::MIN.saturating_add(address - 1)) };
        // What earlier owners left.
        for copy in (0..self.units.high()).map(|index| handle.copy(index)).chain([address]) {
            // SAFETY: nobody else has these bytes.
            unsafe { core::ptr::write_bytes(copy as *mut u8, 0, granules * GRANULE) };
        }
        Ok(handle)
    }

    /// Takes an allocation of `size` bytes back.
    ///
    /// # Safety
    /// It came from [`PerCpu::alloc`] and nobody uses it any more.
    pub unsafe fn free(&self, handle: Handle, size: usize) {
        let mut chunk = self.chunk.lock();
        let first = (handle.address() - chunk.base) / GRANULE;
        for at in first..first + size.div_ceil(GRANULE) {
            chunk.used[at / 64] &= !(1 << (at % 64));
        }
    }

    /// Before a fork: nobody counts but on nobody's unit, by locked operations.
    pub fn fork_begin(&self) {
        // Nor opens it.
        self.chunk.fork_begin();
        #[cfg(feature = "capi")]
        crate::capi::BLOCKS.fork_begin();
        self.forked.store(self.opened.load(Relaxed), Relaxed);
        if self.forked.load(Relaxed) != 0 {
            self.units.fork_begin();
        }
    }
    /// After a fork, in the parent and in the child.
    pub fn fork_end(&self, child: bool) {
        // (Another library's handler may have opened it between.)
        if self.forked.load(Relaxed) != 0 {
            self.units.fork_end(child);
        }
        #[cfg(feature = "capi")]
        crate::capi::BLOCKS.fork_end();
        self.chunk.fork_end();
    }
}
