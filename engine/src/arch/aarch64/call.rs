//! # The kernel's convention on aarch64
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
    // SAFETY: the kernel's convention: number in x8, arguments in x0 to x5, the result in x0; it keeps all other
    // registers. What it does to memory is the caller's promise.
    unsafe {
        core::arch::asm!("svc 0", in("x8") number, inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
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
    const CLONE: usize = 220;
    let result: isize;
    // SAFETY: the kernel's convention, as in `call` (the thread pointer comes before the child's word here); the child
    // has its own stack from the first instruction on and does not come back.
    unsafe {
        core::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",           // the creator goes on
            "mov x29, xzr",          // the child: the end of every backtrace
            "mov x30, xzr",
            "mov x0, x9",
            "blr x10",               // body(argument)
            "brk 1",
            "2:",
            in("x8") CLONE, inlateout("x0") flags => result,
            in("x1") top, in("x2") parent, in("x3") pointer, in("x4") child,
            in("x9") argument, in("x10") body, out("x30") _, options(nostack));
    }
    result
}
