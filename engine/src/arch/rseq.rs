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

// A weak name that nobody defines is null instead of a loader's error.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
core::arch::global_asm!(".weak __rseq_offset", ".weak __rseq_size");

/// Where the C library has a place for the area, relative to the thread pointer, and how large it says that it is: 0 if
/// it has registered none.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) fn place() -> Option<(isize, usize)> {
    use core::ffi::c_uint;
    let (offset, size): (*const isize, *const c_uint);
    // SAFETY: loads two addresses from the GOT; a missing weak symbol is null.
    unsafe {
        core::arch::asm!(
            "mov {}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {}, qword ptr [rip + __rseq_size@GOTPCREL]",
            out(reg) offset, out(reg) size, options(nostack, readonly, preserves_flags));
    }
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: both are the C library's constants.
    Some(unsafe { (*offset, *size as usize) })
}

/// There is none.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(super) fn place() -> Option<(isize, usize)> {
    None
}

/// Bytes of the area that the kernel fills for us.
///
/// # Errors
/// Why there is no area.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub fn area() -> Result<(isize, usize), Reason> {
    use core::ffi::c_ulong;
    unsafe extern "C" {
        fn getauxval(kind: c_ulong) -> c_ulong;
    }
    const AT_RSEQ_FEATURE_SIZE: c_ulong = 27;
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

/// Bytes of the area that the kernel fills for us.
///
/// # Errors
/// Always: no sequences are written for this processor.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub fn area() -> Result<(isize, usize), Reason> {
    Err(Reason::Processor)
}

/// A word of this thread's area.
#[inline]
#[must_use]
pub fn word(at: isize) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        let word: u32;
        // SAFETY: `at` is inside the area that `area` found, which lives as long as the thread.
        unsafe {
            core::arch::asm!("mov {:e}, fs:[{}]", out(reg) word, in(reg) at, options(nostack, readonly, preserves_flags))
        };
        word
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = at;
        0
    }
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
