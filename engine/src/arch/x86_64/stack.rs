//! # Registers of x86-64, as the unwind tables number them
//!
//! Cost: the moves.
#![allow(unsafe_code)] // reads registers

/// Registers that the tables name: rax to r15 in the tables' order, then the return address.
pub type Registers = [usize; 17];

/// The numbers of the frame pointer, the stack pointer and the return address in [`Registers`].
pub const FRAME: usize = 6;
/// See [`FRAME`].
pub const STACK: usize = 7;
/// See [`FRAME`].
pub const RETURN: usize = 16;

/// The registers here (those that calls keep; the others read 0).
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

/// The number of the register in which a caller's tables leave the return address: here a column of its own.
pub const LINK: usize = RETURN;
/// How many registers a function's table may name: those that calls keep, and the return address.
pub const SAVED: usize = 8;
/// Where the kernel's frame of a signal has the registers, from the stack pointer of the trampoline on.
pub const SIGNAL_AT: usize = 40;
/// Which they are there: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
pub const SIGNAL_ORDER: [usize; 17] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16];

/// A return address as it is executed.
#[inline(always)]
#[must_use]
pub fn plain(address: usize) -> usize {
    address
}

/// Whether the code here returns from a signal: its table says so on this processor.
///
/// # Safety
/// Code is mapped there.
#[must_use]
pub unsafe fn is_trampoline(_code: usize) -> bool {
    false
}

/// The frame pointer here.
#[inline(always)]
#[must_use]
pub fn frame_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rbp", out(reg) pointer, options(nostack, nomem, preserves_flags)) };
    pointer
}

/// Looks at the byte so far below the stack pointer.
#[inline(always)]
pub fn probe<const BELOW: usize>() {
    // SAFETY: reads a byte of this thread's stack, which grows as far as it may; changes nothing but flags.
    unsafe { core::arch::asm!("call {look}", look = sym look::<BELOW>) };
}

/// Does that. The stack pointer goes along: what runs programs on a processor of its own making (valgrind) lets a stack grow no further than
/// that, and a walk from a signal's handler here must find the way.
#[unsafe(naked)]
extern "C" fn look<const BELOW: usize>() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, {below}",
        ".cfi_adjust_cfa_offset {below}",
        "cmp byte ptr [rsp], 0",
        "add rsp, {below}",
        ".cfi_adjust_cfa_offset -{below}",
        "ret",
        ".cfi_endproc",
        below = const BELOW - size_of::<usize>(), // (the return address)
    )
}
