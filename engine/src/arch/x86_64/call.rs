//! # The kernel's convention on x86-64
//!
//! Numbers of calls, the call, and `clone`. Cost: the call.
#![allow(unsafe_code)] // the boundary to the kernel

/// The numbers.
#[allow(missing_docs, reason = "the kernel's names")]
pub mod nr {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const MREMAP: usize = 25;
    pub const MADVISE: usize = 28;
    pub const EXIT: usize = 60;
    pub const WAIT4: usize = 61;
    pub const CHDIR: usize = 80;
    pub const SETSID: usize = 112;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const EXIT_GROUP: usize = 231;
    pub const CLOSE_RANGE: usize = 436;
    pub const FTRUNCATE: usize = 77;
    pub const READLINKAT: usize = 267;
    pub const STATX: usize = 332;
    pub const UNLINKAT: usize = 263;
    pub const GETPID: usize = 39;
    pub const GETPPID: usize = 110;
    pub const PRLIMIT64: usize = 302;
    pub const GETTID: usize = 186;
    pub const TGKILL: usize = 234;
    pub const RSEQ: usize = 334;
    pub const GETDENTS64: usize = 217;
    pub const SYSINFO: usize = 99;
    pub const PRCTL: usize = 157;
    pub const PTRACE: usize = 101;
    pub const WAITID: usize = 247;
    pub const MEMFD_CREATE: usize = 319;
    pub const FUTEX: usize = 202;
    pub const SCHED_GETAFFINITY: usize = 204;
    pub const CLOCK_GETTIME: usize = 228;
    pub const MBIND: usize = 237;
    pub const GET_MEMPOLICY: usize = 239;
    pub const UNSHARE: usize = 272;
    pub const OPENAT: usize = 257;
    pub const MEMBARRIER: usize = 324;
    pub const PROCESS_MADVISE: usize = 440;
}

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
