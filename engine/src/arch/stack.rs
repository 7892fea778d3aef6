//! # Where a stack walk begins: this function's own registers
//!
//! Callee-saved registers as they are here, numbered as the unwind tables number them, with an address of this
//! code. A walk that starts with them finds the callers by the tables of this very function.
#![allow(unsafe_code)] // reads registers

/// Registers that the tables name: rax to r15 in the tables' order, then the return address.
#[cfg(target_arch = "x86_64")]
pub type Registers = [usize; 17];

/// The numbers of the frame pointer, the stack pointer and the return address in [`Registers`].
#[cfg(target_arch = "x86_64")]
pub const FRAME: usize = 6;
/// See [`FRAME`].
#[cfg(target_arch = "x86_64")]
pub const STACK: usize = 7;
/// See [`FRAME`].
#[cfg(target_arch = "x86_64")]
pub const RETURN: usize = 16;

/// The registers here (those that calls keep; the others read 0).
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[must_use]
pub fn registers() -> Registers {
    let mut registers = [0; 17];
    // SAFETY: copies registers into 136 bytes of ours.
    unsafe {
        core::arch::asm!(
            "mov [{at} + 24], rbx",
            "mov [{at} + 48], rbp",
            "mov [{at} + 56], rsp",
            "mov [{at} + 96], r12",
            "mov [{at} + 104], r13",
            "mov [{at} + 112], r14",
            "mov [{at} + 120], r15",
            "lea {pc}, [rip]",
            "mov [{at} + 128], {pc}",
            at = in(reg) registers.as_mut_ptr(), pc = out(reg) _, options(nostack, preserves_flags));
    }
    registers
}

/// The frame pointer here (0 where it is not known).
#[inline(always)]
#[must_use]
pub fn frame_pointer() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: usize;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("mov {}, rbp", out(reg) pointer, options(nostack, nomem, preserves_flags)) };
        pointer
    }
    #[cfg(target_arch = "aarch64")]
    {
        let pointer: usize;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("mov {}, x29", out(reg) pointer, options(nostack, nomem, preserves_flags)) };
        pointer
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        0
    }
}

/// The most that the allocator takes of a thread's stack (see docs/limits.md), from where it comes in.
const TAKEN: usize = 4096;

/// Looks at the stack as far down as the caller's callees may go. Where it ends before, the fault comes here: a program whose
/// handler jumps out of it (on a stack of its own) leaves nothing half done.
#[inline(always)]
pub fn probe() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a byte of this thread's stack, which grows as far as it may.
    unsafe {
        core::arch::asm!("cmp byte ptr [rsp - {taken}], 0", taken = const TAKEN, options(nostack, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("sub {at}, sp, #{taken}", "ldrb {at:w}, [{at}]", at = out(reg) _, taken = const TAKEN,
            options(nostack, readonly, preserves_flags));
    }
}

/// A weak name of the C library (glibc 2.35): what is mapped at an address, without a lock.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod weak {
    core::arch::global_asm!(".weak _dl_find_object");
}

/// The address of `_dl_find_object`, or 0.
#[must_use]
pub fn finder() -> usize {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let address: usize;
        // SAFETY: loads an address from the GOT; a missing weak symbol is 0.
        unsafe {
            core::arch::asm!("mov {}, qword ptr [rip + _dl_find_object@GOTPCREL]", out(reg) address,
                options(nostack, readonly, preserves_flags));
        }
        address
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    {
        0
    }
}
