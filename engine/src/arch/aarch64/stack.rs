//! # Registers of aarch64, as the unwind tables number them
//!
//! Cost: the moves.
#![allow(unsafe_code)] // reads registers

/// Registers that the tables name: x0 to x30 and the stack pointer, by their numbers. Behind them the address of the code,
/// for which the tables have no column: a caller's is what its callee's table says of x30.
pub type Registers = [usize; 33];

/// The numbers of the frame pointer, the stack pointer and the address of the code in [`Registers`].
pub const FRAME: usize = 29;
/// See [`FRAME`].
pub const STACK: usize = 31;
/// See [`FRAME`].
pub const RETURN: usize = 32;
/// The number of the register in which a caller's tables leave the return address.
pub const LINK: usize = 30;
/// How many registers a function's table may name: x19 to x30, d8 to d15, whether the return address is signed, and some to
/// spare.
pub const SAVED: usize = 24;
/// Where the kernel's frame of a signal has the registers, from the stack pointer of the trampoline on: behind a `siginfo`
/// (128 bytes), a `ucontext` up to its machine's part (176) and the fault's address.
pub const SIGNAL_AT: usize = 128 + 176 + 8;
/// Which they are there: x0 to x30, sp, pc.
pub const SIGNAL_ORDER: [usize; 33] = {
    let mut order = [0; 33];
    let mut at = 0;
    while at < 33 {
        order[at] = at;
        at += 1;
    }
    order
};

/// The registers here (those that calls keep; the others read 0).
#[inline(always)]
#[must_use]
pub fn registers() -> Registers {
    let mut registers = [0; 33];
    // SAFETY: copies registers into 264 bytes of ours.
    unsafe {
        core::arch::asm!(
            "stp x19, x20, [{at}, 152]",
            "stp x21, x22, [{at}, 168]",
            "stp x23, x24, [{at}, 184]",
            "stp x25, x26, [{at}, 200]",
            "stp x27, x28, [{at}, 216]",
            "stp x29, x30, [{at}, 232]",
            "mov {t}, sp",
            "str {t}, [{at}, 248]",
            "adr {t}, .",
            "str {t}, [{at}, 256]",
            at = in(reg) registers.as_mut_ptr(), t = out(reg) _, options(nostack, preserves_flags));
    }
    registers
}

/// A return address as it is executed: without the signature that processors with pointer authentication put into it.
#[inline(always)]
#[must_use]
pub fn plain(address: usize) -> usize {
    let plain: usize;
    // SAFETY: changes one register (`xpaclri`, which other processors take for a nop).
    unsafe {
        core::arch::asm!("hint 7", inlateout("x30") address => plain, options(nostack, nomem, preserves_flags));
    }
    plain
}

/// Whether the code here returns from a signal: `mov x8, 139; svc 0`. (Its table does not say so on this processor.)
///
/// # Safety
/// Code is mapped there.
#[must_use]
pub unsafe fn is_trampoline(code: usize) -> bool {
    // SAFETY: the caller's promise; an instruction does not lie across pages.
    code.is_multiple_of(8) && unsafe { (code as *const [u32; 2]).read() } == [0xd280_1168, 0xd400_0001]
}

/// The frame pointer here.
#[inline(always)]
#[must_use]
pub fn frame_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, x29", out(reg) pointer, options(nostack, nomem, preserves_flags)) };
    pointer
}

/// Looks at the byte so far below the stack pointer.
#[inline(always)]
pub fn probe<const BELOW: usize>() {
    // SAFETY: reads a byte of this thread's stack, which grows as far as it may; changes nothing but the link register (and what a linker's
    // veneer to far code changes).
    unsafe { core::arch::asm!("bl {look}", look = sym look::<BELOW>, out("x16") _, out("x17") _, out("x30") _) };
}

/// Does that, as x86-64's: the stack pointer goes along.
#[unsafe(naked)]
extern "C" fn look<const BELOW: usize>() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub sp, sp, #{below}",
        ".cfi_adjust_cfa_offset {below}",
        "ldrb wzr, [sp]",
        "add sp, sp, #{below}",
        ".cfi_adjust_cfa_offset -{below}",
        "ret",
        ".cfi_endproc",
        below = const BELOW,
    )
}
