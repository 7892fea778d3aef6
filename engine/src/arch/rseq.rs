//! # Where the C library keeps our rseq area
//!
//! glibc ≥ 2.35 registers one area per thread and tells its place by
//! `__rseq_offset` (bytes from the thread pointer) and `__rseq_size`. The only
//! field that we ever write is `rseq_cs`; Linux ≥ 7.1 kills who writes others.
//!
//! ```text
//! struct rseq   0 cpu_id_start · 4 cpu_id · 8 rseq_cs · 16 flags · 20 node_id · 24 mm_cid
//! ```
//!
//! An unregistered thread (after `vfork`, or with registration switched off)
//! has a `cpu_id` that is no CPU, so that a set's CPU never compares equal.
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

/// Where the C library has a place for the area, relative to the thread pointer, and how large it says that it is: 0 if
/// it has registered none.
pub(super) fn place() -> Option<(isize, usize)> {
    if !HAS_SEQUENCES {
        return None;
    }
    let offset = crate::weak_address!("__rseq_offset") as *const isize;
    let size = crate::weak_address!("__rseq_size") as *const core::ffi::c_uint;
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: both are the C library's constants.
    Some(unsafe { (*offset, *size as usize) })
}

/// Bytes of the area that the kernel fills for us.
///
/// # Errors
/// Why there is no area.
pub fn area() -> Result<(isize, usize), Reason> {
    use core::ffi::c_ulong;
    unsafe extern "C" {
        fn getauxval(kind: c_ulong) -> c_ulong;
    }
    const AT_RSEQ_FEATURE_SIZE: c_ulong = 27;
    if !HAS_SEQUENCES {
        return Err(Reason::Processor);
    }
    let (offset, size) = place().ok_or(Reason::Libc)?;
    // SAFETY: reads the auxiliary vector.
    let feature = unsafe { getauxval(AT_RSEQ_FEATURE_SIZE) as usize };
    if size == 0 {
        return Err(Reason::Unregistered);
    }
    // 20 and 32 both stand for the 32-byte area; how much of it the kernel fills
    // is in the auxiliary vector. Larger sizes are literal.
    let usable = if size <= 32 { feature.clamp(20, 32) } else { size };
    Ok((offset, usable))
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
}
