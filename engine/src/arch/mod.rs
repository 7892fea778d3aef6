//! # `arch`: the machine and the kernel
//!
//! The only assembly, the only system calls, the only importer of atomics, and
//! the lock. Nothing here knows what memory is used for.

// Preemption is injected, not hoped for: in the crate's own tests every sequence
// dawdles where a lost race would show (before its first load and before its commit).
#[cfg(all(test, target_arch = "x86_64"))]
macro_rules! dawdle {
    () => {
        "mov r11d, 40\n24: dec r11d\njnz 24b"
    };
}
#[cfg(all(not(test), target_arch = "x86_64"))]
macro_rules! dawdle {
    () => {
        ""
    };
}

// What the kernel reads of a sequence that begins at 22 and is done at 25, and the beginning of its abort stub: from here on
// in a section apart, which the caller leaves.
#[cfg(target_arch = "x86_64")]
macro_rules! descriptor {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "23:\n",
            ".long 0, 0\n",                // version, flags
            ".quad 22f, 25f - 22f, 28f\n", // start, length, abort
            ".popsection\n",
            ".pushsection __rseq_failure, \"ax\"\n",
            ".byte 0x0f, 0xb9, 0x3d\n", // ud1, so that the signature decodes
            ".long 0x53053053\n",       // the C library's signature
            "28:"
        )
    };
}

pub mod atomic;
pub mod bits;
pub mod cgroup;
pub mod contract;
pub mod crew;
pub mod dlopen;
pub mod gate;
pub mod lock;
pub mod number;
pub mod outcome;
pub mod rseq;
pub mod seq;
pub mod sort;
pub mod stack;
pub mod sys;
pub mod task;
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

/// Fetches the cache line of something that will be read soon; nothing happens if nothing is there.
#[inline(always)]
#[allow(unsafe_code, reason = "a hint")]
pub fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: changes nothing but the cache, and does not fault.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// log2 of [`PAGE`].
pub const PAGE_SHIFT: u32 = 12;
