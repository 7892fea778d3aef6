//! # The call itself
//!
//! The kernel's convention for each processor, the numbers, and what an error is. `fault` (tests only) refuses calls that
//! manage memory, or does them in part. Locks: none. Cost: the call.
#![allow(unsafe_code)] // the boundary to the kernel

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Not permitted.
    pub const EPERM: Self = Self(1);
    /// No such descriptor.
    pub const EBADF: Self = Self(9);
    /// A signal came.
    pub const EINTR: Self = Self(4);
    /// Not now.
    pub const EAGAIN: Self = Self(11);
    /// No memory.
    pub const ENOMEM: Self = Self(12);
    /// No such call.
    pub const ENOSYS: Self = Self(38);
    /// In use.
    pub const EBUSY: Self = Self(16);
    /// Invalid argument.
    pub const EINVAL: Self = Self(22);
    /// A file would become too long.
    pub const EFBIG: Self = Self(27);
}

#[cfg(target_arch = "x86_64")]
pub(super) mod nr {
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

/// The numbers that newer architectures share (aarch64, riscv64, loongarch64).
#[cfg(not(target_arch = "x86_64"))]
pub(super) mod nr {
    pub const CHDIR: usize = 49;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const EXIT: usize = 93;
    pub const WAIT4: usize = 260;
    pub const EXIT_GROUP: usize = 94;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const RT_SIGTIMEDWAIT: usize = 137;
    pub const SETSID: usize = 157;
    pub const CLOSE_RANGE: usize = 436;
    pub const FTRUNCATE: usize = 46;
    pub const READLINKAT: usize = 78;
    pub const STATX: usize = 291;
    pub const UNLINKAT: usize = 35;
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const FUTEX: usize = 98;
    pub const CLOCK_GETTIME: usize = 113;
    pub const SCHED_GETAFFINITY: usize = 123;
    pub const UNSHARE: usize = 97;
    pub const PRCTL: usize = 167;
    pub const PTRACE: usize = 117;
    pub const WAITID: usize = 95;
    pub const MEMFD_CREATE: usize = 279;
    pub const GETDENTS64: usize = 61;
    pub const GETPID: usize = 172;
    pub const GETPPID: usize = 173;
    pub const PRLIMIT64: usize = 261;
    pub const GETTID: usize = 178;
    pub const TGKILL: usize = 131;
    pub const RSEQ: usize = 293;
    pub const SYSINFO: usize = 179;
    pub const MUNMAP: usize = 215;
    pub const MREMAP: usize = 216;
    pub const MMAP: usize = 222;
    pub const MPROTECT: usize = 226;
    pub const MADVISE: usize = 233;
    pub const MBIND: usize = 235;
    pub const GET_MEMPOLICY: usize = 236;
    pub const MEMBARRIER: usize = 283;
    pub const PROCESS_MADVISE: usize = 440;
}

/// One system call.
///
/// # Safety
/// As the call itself: its arguments must not make the kernel touch memory
/// that Rust owns otherwise.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) unsafe fn call(number: usize, a: [usize; 6]) -> Result<usize, Errno> {
    #[cfg(test)]
    if let Some(result) = fault::strike(number, a) {
        return result;
    }
    let result: isize;
    // SAFETY: the kernel's convention: number in rax, arguments in rdi rsi rdx
    // r10 r8 r9; it changes rax, rcx and r11 only. What it does to memory is
    // the caller's promise.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn call(number: usize, a: [usize; 6]) -> Result<usize, Errno> {
    unsafe extern "C" {
        fn syscall(number: core::ffi::c_long, ...) -> core::ffi::c_long;
        fn __errno_location() -> *mut i32;
    }
    // SAFETY: libc's own entry; errno is put back as it was.
    unsafe {
        let errno = __errno_location();
        let before = *errno;
        let result = syscall(number as core::ffi::c_long, a[0], a[1], a[2], a[3], a[4], a[5]);
        let code = *errno;
        *errno = before;
        if result == -1 { Err(Errno(code)) } else { Ok(result as usize) }
    }
}

/// Faults for tests: calls that manage memory are refused, or done in part and then refused.
#[cfg(test)]
pub mod fault {
    use crate::arch::sys::call::{Errno, call, nr};
    use std::cell::Cell;

    const MAP_FIXED: usize = 0x10;

    std::thread_local! {
        /// One call in so many of this thread fails; 0: none.
        static ONE_IN: Cell<u64> = const { Cell::new(0) };
        static RANDOM: Cell<u64> = const { Cell::new(1) };
        static STRUCK: Cell<u64> = const { Cell::new(0) };
        /// Calls of this thread that wanted fresh memory.
        static WANTED: Cell<u64> = const { Cell::new(0) };
    }

    /// Calls of this thread so far that wanted fresh memory, or to open what was reserved.
    pub fn wanted() -> u64 {
        WANTED.get()
    }

    /// From now on one call in `one_in` of this thread fails (0: none); how many did so far.
    pub fn storm(one_in: u64, seed: u64) -> u64 {
        ONE_IN.with(|cell| cell.set(one_in));
        RANDOM.with(|cell| cell.set(seed | 1));
        STRUCK.with(|cell| cell.replace(0))
    }

    fn random() -> u64 {
        RANDOM.with(|cell| {
            let mut x = cell.get();
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            cell.set(x);
            x
        })
    }

    pub(super) fn strike(number: usize, a: [usize; 6]) -> Option<Result<usize, Errno>> {
        const FAIL: [usize; 6] = [nr::MMAP, nr::MPROTECT, nr::MREMAP, nr::MADVISE, nr::PROCESS_MADVISE, nr::MUNMAP];
        if number == nr::MPROTECT || number == nr::MMAP && a[3] & MAP_FIXED == 0 {
            WANTED.set(WANTED.get() + 1);
        }
        let one_in = ONE_IN.get();
        if one_in == 0 || !FAIL.contains(&number) || !(random() >> 8).is_multiple_of(one_in) {
            return None;
        }
        ONE_IN.with(|cell| cell.set(0));
        let mut result = Err(Errno([4, 11, 12, 22][(random() >> 8) as usize % 4]));
        // In part: half of the range, half of the vector, or what `MAP_FIXED` unmaps first.
        // SAFETY: a part of what the caller may do.
        unsafe {
            match number {
                nr::MADVISE => _ = call(number, [a[0], a[1] / 2 / 4096 * 4096, a[2], 0, 0, 0]),
                nr::PROCESS_MADVISE if a[2] > 1 => {
                    let half = a[2] / 2;
                    result = call(number, [a[0], a[1], half, a[3], a[4], a[5]]);
                    if random() & 256 == 0 && result.is_ok() {
                        // And the first page of the next range, which may be in the sum.
                        let [next, _] = *(a[1] as *const [usize; 2]).add(half);
                        let _ = call(nr::MADVISE, [next, 4096, a[3], 0, 0, 0]);
                        result = result.map(|done| done + 4096);
                    }
                }
                // (Not really unmapped: another thread would be given the hole.)
                nr::MMAP if a[3] & MAP_FIXED != 0 => _ = call(nr::MADVISE, [a[0], a[1], 4, 0, 0, 0]),
                _ => {}
            }
        }
        ONE_IN.with(|cell| cell.set(one_in));
        STRUCK.with(|cell| cell.set(cell.get() + 1));
        Some(result)
    }
}
