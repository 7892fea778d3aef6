//! # Where the C library keeps our rseq area
//!
//! glibc ≥ 2.35 registers one area per thread and tells its place by
//! `__rseq_offset` (bytes from the thread pointer) and `__rseq_size`. The only
//! field that we ever write is `rseq_cs`; Linux ≥ 7.1 kills who writes others.
//!
//! ```text
//! struct rseq   0 cpu_id_start · 4 cpu_id · 8 rseq_cs · 16 flags · 20 node_id · 24 mm_cid · 28 slice_ctrl · 33 end
//! ```
//! An area that is registered with 32 bytes is the old kind for ever: every switch rewrites the words that the kernel keeps. One
//! with more (glibc ≥ 2.41 on Linux ≥ 7.0) has them written when they change, and from Linux 7.1 on guarded. Here nothing
//! differs: they are read inside sequences, and that they were rewritten tells nobody anything.
//!
//! An unregistered thread (after `vfork`, or with registration switched off)
//! has a `cpu_id` that is no CPU: −1 or −2.
#![allow(unsafe_code)] // weak symbols

use super::platform::{self, HAS_SEQUENCES};
use super::sys;
use crate::stat::board::Reason;

/// Offset of `cpu_id_start`: a valid index even where nothing is registered.
pub const CPU_ID_START: isize = 0;
/// Offset of `cpu_id`.
pub const CPU_ID: isize = 4;
/// Offset of `node_id`.
pub const NODE_ID: isize = 20;
/// Offset of `mm_cid`.
pub const MM_CID: isize = 24;
/// Usable bytes from which there is an `mm_cid`.
pub const MM_CID_BYTES: usize = 28;

/// What the C library and the kernel say about areas.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Where each thread's is, in bytes from its thread pointer; there is that much memory even if it is not registered.
    pub offset: isize,
    /// What the C library calls its size: 0 if it has registered none.
    pub size: usize,
    /// Up to where this kernel has fields; 0 before Linux 6.3.
    pub feature: usize,
}

impl Told {
    /// Bytes of the area that the kernel fills for us; 0 without one.
    ///
    /// Up to 32, the size stands for the area of 32 bytes (glibc 2.35 says 32, 2.40 says 20, 2.41 what the kernel has), of
    /// which the kernel fills what it has, and at least the 20 of the beginning. Larger ones are literal.
    #[must_use]
    pub const fn usable(self) -> usize {
        match (self.size, self.feature) {
            (0, _) => 0,
            (1..=32, ..=20) => 20,
            (1..=32, 32..) => 32,
            (1..=32, feature) => feature,
            (size, _) => size,
        }
    }
}

/// Where the C library has a place for the area, and what fills it; `None` if it knows of none, or no sequence is written
/// for this processor.
#[must_use]
pub fn told() -> Option<Told> {
    use core::ffi::{c_uint, c_ulong};
    unsafe extern "C" {
        fn getauxval(kind: c_ulong) -> c_ulong;
    }
    const AT_RSEQ_FEATURE_SIZE: c_ulong = 27;
    if !HAS_SEQUENCES {
        return None;
    }
    let offset = crate::weak_address!("__rseq_offset") as *const isize;
    let size = crate::weak_address!("__rseq_size") as *const c_uint;
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: both are the C library's constants; the last reads the auxiliary vector.
    unsafe { Some(Told { offset: *offset, size: *size as usize, feature: getauxval(AT_RSEQ_FEATURE_SIZE) as usize }) }
}

/// Where the area is, and bytes of it that the kernel fills for us.
///
/// # Errors
/// Why there is no area.
pub fn area() -> Result<(isize, usize), Reason> {
    if !HAS_SEQUENCES {
        return Err(Reason::Processor);
    }
    let told = told().ok_or(Reason::Libc)?;
    match told.usable() {
        0 => Err(Reason::Unregistered),
        usable => Ok((told.offset, usable)),
    }
}

/// A word of this thread's area.
#[inline]
#[must_use]
pub fn word(at: isize) -> u32 {
    // SAFETY: `at` is inside the area that `area` found, which lives as long as the thread.
    unsafe { platform::word(at) }
}

/// Fences against sequences of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fence;

impl Fence {
    const EXPEDITED_RSEQ: usize = 1 << 7;
    const REGISTER_EXPEDITED_RSEQ: usize = 1 << 8;
    const FLAG_CPU: usize = 1;
    const EXPEDITED: usize = 1 << 3;
    const REGISTER_EXPEDITED: usize = 1 << 4;

    /// Makes the fences available.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn register(self) -> Result<(), sys::Errno> {
        sys::membarrier(Self::REGISTER_EXPEDITED_RSEQ, 0, 0).map(drop)
    }
    /// After it no sequence that ran on `cpu` before it is still running:
    /// it has committed, or it will abort.
    ///
    /// # Errors
    /// The kernel refuses; nothing is promised then.
    pub fn cpu(self, cpu: u32) -> Result<(), sys::Errno> {
        sys::membarrier(Self::EXPEDITED_RSEQ, Self::FLAG_CPU, cpu as usize).map(drop)
    }
    /// The same for every CPU that runs us now.
    ///
    /// # Errors
    /// The kernel refuses; nothing is promised then.
    pub fn all(self) -> Result<(), sys::Errno> {
        sys::membarrier(Self::EXPEDITED_RSEQ, 0, 0).map(drop)
    }
    /// Makes [`Fence::barrier`] available.
    ///
    /// # Errors
    /// The kernel refuses (before Linux 4.14).
    pub fn register_barrier(self) -> Result<(), sys::Errno> {
        sys::membarrier(Self::REGISTER_EXPEDITED, 0, 0).map(drop)
    }
    /// A full fence in every thread of the process that runs: where there are no sequences.
    ///
    /// # Errors
    /// The kernel refuses; nothing is promised then.
    pub fn barrier(self) -> Result<(), sys::Errno> {
        sys::membarrier(Self::EXPEDITED, 0, 0).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::tests::{on_each_cpu, refused};

    #[test]
    fn the_area_is_where_the_library_says_and_has_the_cpu() {
        let told = told().filter(|told| told.usable() > 0);
        assert_eq!(area().ok(), told.map(|told| (told.offset, told.usable())));
        if let Ok((offset, _)) = area() {
            on_each_cpu(|cpu| assert_eq!(word(offset + CPU_ID) as usize, cpu));
        }
    }

    #[test]
    fn a_fence_that_is_refused_is_none() {
        let fences = || (Fence.register(), Fence.cpu(0), Fence.all());
        if let Some(fences) = refused(libc::SYS_membarrier, 1, fences) {
            assert_eq!(fences, (Err(sys::Errno::EPERM), Err(sys::Errno::EPERM), Err(sys::Errno::EPERM)));
        }
    }

    /// `mm_cid` and `node_id` are read only where the kernel fills them, whatever the C library calls its area.
    #[test]
    fn what_is_usable_follows_from_both_sizes() {
        for (size, feature, usable) in [
            (0, 0, 0),    // valgrind, or switched off
            (0, 33, 0),   // switched off, on a new kernel
            (32, 0, 20),  // glibc 2.35 before Linux 6.3
            (20, 0, 20),  // glibc 2.40 there
            (20, 20, 20), // the smallest that a kernel ever had
            (20, 28, 28), // Linux 6.3 to 6.19
            (28, 28, 28), // glibc 2.41 there
            (32, 28, 28),
            (32, 32, 32),
            (20, 33, 32), // Linux 7.0 and later: 32 bytes are registered
            (32, 33, 32),
            (33, 33, 33), // glibc 2.41 there
            (64, 48, 64),
        ] {
            let told = Told { offset: 0, size, feature };
            assert_eq!(told.usable(), usable, "{told:?}");
            assert_eq!(told.usable() >= MM_CID_BYTES, size > 0 && feature >= 28, "{told:?}");
        }
    }
}
