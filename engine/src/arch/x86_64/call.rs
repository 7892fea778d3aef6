//! # The kernel's convention on x86-64
//!
//! Numbers of calls, the call, and `clone`. Cost: the call.
#![allow(unsafe_code)] // the boundary to the kernel

pub use super::nr;

/// One system call; what it returns.
///
/// # Safety
/// As the call itself.
#[inline(always)]
pub unsafe fn call(number: usize, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's convention: number in rax, arguments in rdi rsi rdx
    // r10 r8 r9; it changes rax, rcx and r11 only. What it does to memory is
    // the caller's promise.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// `clone(flags, top, parent's word, child's word, thread pointer)`; the child runs `body(argument)`.
///
/// # Safety
/// As `task::spawn`.
pub unsafe fn clone(
    [flags, top, parent, child, pointer]: [usize; 5],
    body: extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    const CLONE: usize = 56;
    let result: isize;
    // SAFETY: the kernel's convention, as in `call`; the child has its own stack from the first
    // instruction on and does not come back.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",                // the creator goes on
            "xor ebp, ebp",          // the child: the end of every backtrace
            "mov rdi, r12",
            "call r13",              // body(argument)
            "ud2",
            "2:",
            inlateout("rax") CLONE as isize => result,
            in("rdi") flags, in("rsi") top, in("rdx") parent, in("r10") child, in("r8") pointer,
            in("r12") argument, in("r13") body,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}
