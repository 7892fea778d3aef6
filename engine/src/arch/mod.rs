//! # `arch`: the machine and the kernel
//!
//! The only assembly, the only system calls, the only importer of atomics, and
//! the lock. Nothing here knows what memory is used for.

// (`--cfg allotment_other` compiles what serves other processors here.)
#[cfg(all(target_arch = "aarch64", not(allotment_other)))]
#[path = "aarch64/mod.rs"]
mod platform;
#[cfg(all(target_arch = "x86_64", not(allotment_other)))]
#[path = "x86_64/mod.rs"]
mod platform;
#[cfg(any(allotment_other, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "other/mod.rs"]
mod platform;

pub use platform::{ADDRESS_BITS, HAS_SEQUENCES, SIGNATURE};
pub(crate) use platform::{is_below, is_positive};

pub mod atomic;
pub mod bits;
pub mod cgroup;
pub mod contract;
pub mod crew;
pub mod dlopen;
pub mod gate;
pub mod lock;
pub mod naps;
pub mod number;
pub mod operands;
pub mod outcome;
pub mod rseq;
pub mod seq;
pub mod sort;
pub mod stack;
pub mod sys;
pub mod task;
#[cfg(test)]
pub mod tests;
pub mod text;
pub mod topology;
pub mod unit_seq;
pub mod usdt;
pub mod vdso;
pub mod vfork;

/// The same value, of which the compiler knows nothing: it neither folds nor recomputes it.
/// No instruction.
#[inline(always)]
#[must_use]
#[allow(unsafe_code, reason = "an empty assembly")]
pub fn opaque(mut value: usize) -> usize {
    // SAFETY: no instruction.
    unsafe { core::arch::asm!("/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags)) };
    value
}

/// The same of a number that is to stay one of 32 bits, for which a processor may have shorter instructions.
#[inline(always)]
#[must_use]
pub fn opaque_short(value: i32) -> i32 {
    platform::opaque_short(value)
}

/// Fetches the cache line of something that will be read soon; nothing happens if nothing is there.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    platform::prefetch(at.cast());
}

/// Mixes all bits of a word into the upper ones, and many into the others. (Fibonacci hashing: Knuth, The Art of Computer Programming 3, 6.4.)
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ (word >> 29)
}

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// log2 of [`PAGE`].
pub const PAGE_SHIFT: u32 = 12;
