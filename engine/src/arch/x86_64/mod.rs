//! # x86-64
//!
//! All of its assembly. What is in here is in the directory of each platform under the same names; `arch` names them.
//!
//! | file | has |
//! |---|---|
//! | `seq`, `unit_seq` | the sequences |
//! | `call` | the system call, the numbers, `clone` |
//! | `stack` | registers as the unwind tables number them |
//! | `wrap` | functions that the library defines in assembly |
#![allow(unsafe_code)] // the assembly

// Preemption is injected, not hoped for: in the crate's own tests every sequence
// dawdles where a lost race would show (before its first load and before its commit).
#[cfg(test)]
macro_rules! dawdle {
    () => {
        // (No register, so that none is kept free for it in the library.)
        "pause"
    };
}
#[cfg(not(test))]
macro_rules! dawdle {
    () => {
        ""
    };
}

// What the kernel reads of a sequence that begins at 22 and is done at 25, and the beginning of its abort stub: from here on
// in a section apart, which the caller leaves.
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

/// Whether a number is below the word (an atomic one's) so many bytes from an address: by one instruction, where the compiler takes two.
/// Relaxed.
///
/// # Safety
/// There is such a word.
macro_rules! is_below {
    ($number:expr, $address:expr, $offset:expr) => {
        'is_below: {
            core::arch::asm!(
                "cmp {number}, [{address} + {offset}]",
                "jae {not}",
                number = in(reg) $number,
                address = in(reg) $address,
                offset = const $offset,
                not = label { break 'is_below false },
                options(readonly, nostack)
            );
            true
        }
    };
}
pub(crate) use is_below;

/// Whether the word of this number in a table (of atomics) so many bytes from an address is above 0, taken as signed: by one instruction, too.
/// Relaxed.
///
/// # Safety
/// There is such a word.
macro_rules! is_positive {
    ($number:expr, $address:expr, $offset:expr) => {
        'is_positive: {
            core::arch::asm!(
                "cmp qword ptr [{address} + {number}*8 + {offset}], 0",
                "jle {not}",
                number = in(reg) $number,
                address = in(reg) $address,
                offset = const $offset,
                not = label { break 'is_positive false },
                options(readonly, nostack)
            );
            true
        }
    };
}
pub(crate) use is_positive;

pub mod call;
pub mod nr;
pub mod seq;
pub mod stack;
pub mod unit_seq;
pub mod wrap;

/// Bits of a program's addresses: half of 48 bits is the kernel's.
pub const ADDRESS_BITS: u32 = 47;
/// Whether sequences are written for this processor.
pub const HAS_SEQUENCES: bool = true;
/// What stands before every abort stub: the C library registers areas with it.
pub const SIGNATURE: u32 = 0x5305_3053;
/// Words from the thread pointer on that a thread inherits from who makes it: the stack protector's and the pointer guard.
pub const INHERITED: core::ops::Range<usize> = 5..7;

/// The address of a name that another library may define: 0 if none does.
#[doc(hidden)]
#[macro_export]
macro_rules! weak_address {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: loads a word that the loader wrote before any code of ours ran; a missing weak symbol is 0.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address, options(pure, readonly, nostack, preserves_flags));
        }
        address
    }};
}

/// A word of this thread's area, `at` bytes from the thread pointer.
///
/// # Safety
/// There is one.
#[inline(always)]
pub unsafe fn word(at: isize) -> u32 {
    let word: u32;
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("mov {:e}, fs:[{}]", out(reg) word, in(reg) at, options(nostack, readonly, preserves_flags));
    }
    word
}

/// The thread pointer.
#[inline(always)]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the ABI keeps the thread pointer's own address at fs:0.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

/// The time-stamp counter.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// See [`crate::arch::opaque_short`].
#[inline(always)]
pub fn opaque_short(mut value: i32) -> i32 {
    // SAFETY: no instruction.
    unsafe { core::arch::asm!("/* {0:e} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags)) };
    value
}

/// Fetches a cache line.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    // SAFETY: changes nothing but the cache, and does not fault.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast()) };
}

/// The ELF header of the file that holds this code.
pub fn header() -> usize {
    let base: usize;
    // SAFETY: the linker's own name; an address.
    unsafe {
        core::arch::asm!(
            ".hidden __ehdr_start",
            "lea {}, [rip + __ehdr_start]",
            out(reg) base, options(nomem, nostack, preserves_flags));
    }
    base
}
