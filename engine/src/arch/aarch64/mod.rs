//! # aarch64
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
        "mov w16, 40\n24: subs w16, w16, 1\nb.ne 24b"
    };
}
#[cfg(not(test))]
macro_rules! dawdle {
    () => {
        ""
    };
}

// What the kernel reads of a sequence that begins at 22 and is done at 25, and the beginning of its abort stub: from here on
// behind the function (a conditional branch reaches no other section), until the caller goes back to subsection 0.
macro_rules! descriptor {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "23:\n",
            ".long 0, 0\n",                // version, flags
            ".quad 22f, 25f - 22f, 28f\n", // start, length, abort
            ".popsection\n",
            ".subsection 1\n",
            ".inst 0xd428bc00\n", // the C library's signature: a brk
            "28:"
        )
    };
}

#[path = "../other/below.rs"]
pub mod below;
pub mod call;
#[path = "../other/nr.rs"]
pub mod nr;
pub mod seq;
pub mod stack;
pub mod unit_seq;
pub mod wrap;

pub(crate) use below::{is_below, is_positive};

/// Bits of a program's addresses: more only for who asks by a hint.
pub const ADDRESS_BITS: u32 = 48;
/// Whether sequences are written for this processor.
pub const HAS_SEQUENCES: bool = true;
/// What stands before every abort stub: the C library registers areas with it.
pub const SIGNATURE: u32 = 0xd428_bc00;
/// Words from the thread pointer on that a thread inherits from who makes it: none, they are the process's here.
pub const INHERITED: core::ops::Range<usize> = 0..0;

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
                concat!("adrp {address}, :got:", $name),
                concat!("ldr {address}, [{address}, :got_lo12:", $name, "]"),
                address = out(reg) address, options(pure, readonly, nostack, preserves_flags));
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
    // SAFETY: the caller's promise. Volatile: the kernel changes it.
    unsafe { (thread_pointer().wrapping_add_signed(at) as *const u32).read_volatile() }
}

/// The thread pointer.
#[inline(always)]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags)) };
    pointer
}

/// The virtual counter. (It may run ahead of instructions before it: what is measured is longer.)
#[inline(always)]
pub fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that Linux lets programs read.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nostack, nomem, preserves_flags)) };
    ticks
}

/// See [`crate::arch::opaque_short`].
#[inline(always)]
pub fn opaque_short(mut value: i32) -> i32 {
    // SAFETY: no instruction.
    unsafe { core::arch::asm!("/* {0:w} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags)) };
    value
}

/// Fetches a cache line.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    // SAFETY: changes nothing but the cache, and does not fault.
    unsafe { core::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, readonly, preserves_flags)) };
}

/// The ELF header of the file that holds this code.
pub fn header() -> usize {
    let base: usize;
    // SAFETY: the linker's own name; an address.
    unsafe {
        core::arch::asm!(
            ".hidden __ehdr_start",
            "adrp {base}, __ehdr_start",
            "add {base}, {base}, :lo12:__ehdr_start",
            base = out(reg) base, options(nomem, nostack, preserves_flags));
    }
    base
}
