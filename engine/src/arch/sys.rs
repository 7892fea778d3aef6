//! # System calls
//!
//! Raw, so that nothing touches `errno`, no symbol can be interposed and a
//! call before libc is ready works. Every call returns the kernel's number:
//! `Ok(value)` or `Err(errno)`. Cost: one system call each.
#![allow(unsafe_code)] // the boundary to the kernel

use super::atomic::Ordering::Relaxed;
use super::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use super::vdso;

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
mod nr {
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
mod nr {
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
unsafe fn call(number: usize, a: [usize; 6]) -> Result<usize, Errno> {
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
unsafe fn call(number: usize, a: [usize; 6]) -> Result<usize, Errno> {
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

/// What a mapping may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Access {
    /// Reserved only.
    None = 0,
    /// Reading and writing.
    ReadWrite = 3,
    /// Code.
    ReadExecute = 5,
}

const MAP_SHARED: usize = 0x01;
const MAP_PRIVATE: usize = 0x02;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const NO_FD: usize = usize::MAX;

/// Maps `len` bytes of private memory, near `hint` if that is free. Readable memory is
/// charged when it is touched only (it is metadata, sparsely used); reserved memory when
/// it is opened, so that the kernel can refuse what it could never back.
///
/// # Errors
/// `ENOMEM`, or what a seccomp filter says.
pub fn map(hint: usize, len: usize, access: Access) -> Result<usize, Errno> {
    let lazily = if access == Access::ReadWrite { MAP_NORESERVE } else { 0 };
    // SAFETY: without MAP_FIXED a new mapping touches no existing memory.
    unsafe { call(nr::MMAP, [hint, len, access as usize, MAP_PRIVATE | MAP_ANONYMOUS | lazily, NO_FD, 0]) }
}

/// The same for memory to be used, which is charged at once, so that the kernel can refuse what it could never back;
/// as [`map_over`] maps it, so that such mappings merge.
///
/// # Errors
/// As [`map`].
pub fn map_charged(hint: usize, len: usize) -> Result<usize, Errno> {
    // SAFETY: without MAP_FIXED a new mapping touches no existing memory.
    unsafe { call(nr::MMAP, [hint, len, Access::ReadWrite as usize, MAP_PRIVATE | MAP_ANONYMOUS, NO_FD, 0]) }
}

/// Replaces `len` bytes at `at` by fresh zeroed private memory.
///
/// # Safety
/// The range is ours and nothing in it is needed any more.
///
/// # Errors
/// As [`map`]; the old mapping may then be gone or still there.
pub unsafe fn map_over(at: usize, len: usize, access: Access) -> Result<usize, Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    // SAFETY: the caller gives up what was there.
    unsafe { call(nr::MMAP, [at, len, access as usize, flags, NO_FD, 0]) }
}

/// Replaces `len` bytes at `at` by the file `fd`, shared.
///
/// # Safety
/// As [`map_over`]; and what other processes write there must be read as atomics.
///
/// # Errors
/// As [`map`].
pub unsafe fn map_file_over(at: usize, len: usize, fd: usize) -> Result<usize, Errno> {
    // SAFETY: the caller gives up what was there.
    unsafe { call(nr::MMAP, [at, len, Access::ReadWrite as usize, MAP_SHARED | MAP_FIXED, fd, 0]) }
}

/// Maps the first `len` bytes of a file, shared.
///
/// # Errors
/// As [`map`].
pub fn map_file(len: usize, fd: usize) -> Result<usize, Errno> {
    // SAFETY: without MAP_FIXED a new mapping touches no existing memory.
    unsafe { call(nr::MMAP, [0, len, Access::ReadWrite as usize, MAP_SHARED, fd, 0]) }
}

/// Maps `more` bytes more of the file that is mapped, shared, at `at`, behind the `len` bytes that are there.
///
/// # Safety
/// The range is ours, and one mapping.
///
/// # Errors
/// `ENOMEM` if there is something behind it; as [`map`].
pub unsafe fn grow(at: usize, len: usize, more: usize) -> Result<(), Errno> {
    // SAFETY: as promised by the caller; nothing that is mapped moves or goes.
    unsafe { call(nr::MREMAP, [at, len, len + more, 0, 0, 0]).map(drop) }
}

/// Maps the first `len` bytes of the file that is mapped, shared and from its beginning, at `at` a second time.
///
/// # Safety
/// Such a mapping is there, and ours.
///
/// # Errors
/// As [`map`].
pub unsafe fn map_again(at: usize, len: usize) -> Result<usize, Errno> {
    const MAYMOVE: usize = 1;
    // SAFETY: of length 0 nothing moves: the new mapping touches no existing memory.
    unsafe { call(nr::MREMAP, [at, 0, len, MAYMOVE, 0, 0]) }
}

/// Unmaps a range.
///
/// # Safety
/// The range is ours and unused.
///
/// # Errors
/// `ENOMEM` when the mapping would have to be split and the limit is reached.
pub unsafe fn unmap(at: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller gives the range up.
    unsafe { call(nr::MUNMAP, [at, len, 0, 0, 0, 0]).map(drop) }
}

/// Changes what a range may be used for.
///
/// # Safety
/// The range is ours; nothing in it is used if access is taken away.
///
/// # Errors
/// `ENOMEM`.
pub unsafe fn protect(at: usize, len: usize, access: Access) -> Result<(), Errno> {
    // SAFETY: as promised by the caller.
    unsafe { call(nr::MPROTECT, [at, len, access as usize, 0, 0, 0]).map(drop) }
}

/// What to advise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Advice {
    /// Give the pages back; they read as zero afterwards.
    DontNeed = 4,
    /// Use huge pages here.
    Huge = 14,
    /// Never use huge pages here.
    NoHuge = 15,
    /// A forked child finds zeros here (Linux 4.14).
    WipeOnFork = 18,
    /// The opposite.
    KeepOnFork = 19,
    /// Fill with pages that can be written (Linux 5.14).
    PopulateWrite = 23,
    /// [`Advice::DontNeed`] that also takes locked pages (Linux 5.18).
    DontNeedLocked = 24,
    /// Every access to these pages is a fault, without a mapping of their own (Linux 6.13).
    GuardInstall = 102,
    /// The opposite.
    GuardRemove = 103,
}

/// A range of memory, as the kernel reads vectors of them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Range {
    /// Where it begins.
    pub at: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// Advises the kernel about a range.
///
/// # Safety
/// The range is ours; for the two `DontNeed`s its contents are given up.
///
/// # Errors
/// As the kernel says; part of the range may have been done.
pub unsafe fn advise(at: usize, len: usize, advice: Advice) -> Result<(), Errno> {
    // SAFETY: as promised by the caller.
    unsafe { call(nr::MADVISE, [at, len, advice as usize, 0, 0, 0]).map(drop) }
}

/// Makes sure of fresh pages of a shared file, which read as zero: from then on a write there ends nobody by a
/// signal, however full the file system is. What stood there may be lost.
///
/// # Safety
/// The range is ours, mapped for writing, whole pages, and nothing in it is needed.
///
/// # Errors
/// There is no room; part of the range may have been done.
pub unsafe fn make_sure(at: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: as promised by the caller; nothing changes.
    match unsafe { advise(at, len, Advice::PopulateWrite) } {
        // (Before Linux 5.14.) SAFETY: as promised by the caller.
        Err(Errno::EINVAL) => unsafe { touch(at, len) },
        done => done,
    }
}

/// [`make_sure`] page by page: where the kernel itself writes and cannot, it says so. (By a call that every C library makes.)
///
/// # Safety
/// As [`make_sure`].
unsafe fn touch(at: usize, len: usize) -> Result<(), Errno> {
    (at..at + len).step_by(super::PAGE).try_for_each(|page| {
        // SAFETY: the kernel writes eight bytes of a page that is the caller's to lose.
        unsafe { call(nr::RT_SIGPROCMASK, [0, 0, page, 8, 0, 0])? };
        // SAFETY: there is a page now.
        unsafe { (page as *mut u64).write_volatile(0) };
        Ok(())
    })
}

/// Advises the kernel about many ranges of ours in one call; the bytes done, from the first range on. At most
/// 1,024 ranges and less than 2 GiB. Without ranges: whether the kernel would (Linux 6.14).
///
/// # Safety
/// As [`advise`], for each.
///
/// # Errors
/// When nothing was done.
pub unsafe fn advise_many(ranges: &[Range], advice: Advice) -> Result<usize, Errno> {
    /// In place of a descriptor.
    const SELF: usize = -10_000_isize as usize;
    // SAFETY: as promised by the caller; the kernel reads the vector.
    unsafe { call(nr::PROCESS_MADVISE, [SELF, ranges.as_ptr() as usize, ranges.len(), advice as usize, 0, 0]) }
}

/// Moves the pages of `[from, from + len)` to `to` by page tables. The source
/// stays mapped, empty and zero.
///
/// # Safety
/// Both ranges are ours, do not overlap, and nothing at `to` is needed.
///
/// # Errors
/// As the kernel says; nothing was moved then, but `to` may be unmapped.
pub unsafe fn move_pages(from: usize, to: usize, len: usize) -> Result<(), Errno> {
    const MAYMOVE_FIXED_DONTUNMAP: usize = 1 | 2 | 4;
    // SAFETY: as promised by the caller.
    unsafe { call(nr::MREMAP, [from, len, len, MAYMOVE_FIXED_DONTUNMAP, to, 0]).map(drop) }
}

/// Prefers one NUMA node for a range, unless the calling thread has a memory policy: the program knows better.
pub fn bind(at: usize, len: usize, node: usize) {
    const MPOL_DEFAULT: i32 = 0;
    const MPOL_PREFERRED: usize = 1;
    let mask = 1_u64 << (node & 63);
    let mut policy = MPOL_DEFAULT;
    // SAFETY: the kernel writes the four bytes of `policy`. Where it refuses, it refuses the other, too.
    let _ = unsafe { call(nr::GET_MEMPOLICY, [&raw mut policy as usize, 0, 0, 0, 0, 0]) };
    if policy != MPOL_DEFAULT {
        return;
    }
    // SAFETY: the kernel reads eight bytes of `mask`. A refusal costs locality only.
    let _ = unsafe { call(nr::MBIND, [at, len, MPOL_PREFERRED, &raw const mask as usize, 65, 0]) };
}

/// `unshare(flags)`.
///
/// # Errors
/// The kernel's.
pub fn unshare(flags: usize) -> Result<usize, Errno> {
    // SAFETY: touches no memory.
    unsafe { call(nr::UNSHARE, [flags, 0, 0, 0, 0, 0]) }
}

/// Gives the calling thread a table of file descriptors of its own, an empty one: what it opens takes no number
/// that the program waits for, and what the program closes is not open here (Linux 5.9).
///
/// # Errors
/// The kernel's; it shares the program's then.
pub fn own_files() -> Result<(), Errno> {
    const UNSHARE: usize = 2;
    // SAFETY: no other thread loses a descriptor.
    unsafe { call(nr::CLOSE_RANGE, [0, u32::MAX as usize, UNSHARE, 0, 0, 0]).map(drop) }
}

/// Names the calling thread (15 bytes at most).
pub fn name_thread(name: &core::ffi::CStr) {
    const PR_SET_NAME: usize = 15;
    // SAFETY: the kernel copies the name. A refusal costs nothing.
    let _ = unsafe { prctl(PR_SET_NAME, [name.as_ptr() as usize, 0, 0, 0]) };
}

/// `prctl(option, …)`.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As the option says.
pub unsafe fn prctl(option: usize, arguments: [usize; 4]) -> Result<usize, Errno> {
    let [a, b, c, d] = arguments;
    // SAFETY: the caller's promise.
    unsafe { call(nr::PRCTL, [option, a, b, c, d, 0]) }
}

/// Sleeps while `*word == value`; may return early.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    // SAFETY: the kernel reads the word, which outlives the call.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 128, value as usize, 0, 0, 0]) };
}

/// The same for at most `ns` nanoseconds.
pub fn futex_wait_for(word: &AtomicU32, value: u32, ns: u64) {
    let time = [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64];
    // SAFETY: the kernel reads the word and the time, which outlive the call.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 128, value as usize, time.as_ptr() as usize, 0, 0]) };
}

/// Wakes up to `count` sleepers of `word`.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    // SAFETY: the kernel uses the address as a key only.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 129, count as usize, 0, 0, 0]) };
}

/// [`futex_wait`] for a word that the kernel itself wakes when a task ends.
pub fn futex_wait_shared(word: &AtomicU32, value: u32) {
    // SAFETY: the kernel reads the word, which outlives the call.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 0, value as usize, 0, 0, 0]) };
}

/// The same for at most `ns` nanoseconds, if any are given.
pub fn futex_wait_shared_for(word: &AtomicU32, value: u32, ns: Option<u64>) {
    let time = ns.map(|ns| [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64]);
    let time = time.as_ref().map_or(0, |time| time.as_ptr() as usize);
    // SAFETY: the kernel reads the word and the time, which outlive the call.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 0, value as usize, time, 0, 0]) };
}

/// The opposite of [`futex_wait_shared`].
pub fn futex_wake_shared(word: &AtomicU32) {
    // SAFETY: the kernel uses the address as a key only.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 1, i32::MAX as usize, 0, 0, 0]) };
}

/// Sets the calling thread's mask of blocked signals; what it was.
///
/// # Errors
/// What a filter says; the mask is as it was then.
pub fn set_signals(mask: u64) -> Result<u64, Errno> {
    const SIG_SETMASK: usize = 2;
    let mut before = 0_u64;
    let (new, old) = (&raw const mask as usize, &raw mut before as usize);
    // SAFETY: the kernel reads and writes eight bytes of ours.
    unsafe { call(nr::RT_SIGPROCMASK, [SIG_SETMASK, new, old, 8, 0, 0]) }?;
    Ok(before)
}

/// All signals of the calling thread, blocked until this is dropped. Where that is refused its mask is never touched.
#[derive(Debug)]
pub struct Signals {
    before: Option<u64>,
}

impl Signals {
    /// Blocks them.
    #[must_use]
    pub fn block() -> Self {
        Self { before: set_signals(u64::MAX).ok() }
    }
    /// Whether they are.
    #[must_use]
    pub fn are_blocked(&self) -> bool {
        self.before.is_some()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        /// A thread that stays deaf is worse than some calls more: this one worked before.
        const TRIES: u32 = 16;
        if let Some(before) = self.before {
            let _ = (0..TRIES).any(|_| set_signals(before).is_ok());
        }
    }
}

/// Whether a word can be read at an address (a multiple of four): by a call that compares it, and then wakes and moves
/// nobody. No filter of system calls forbids it, and an emulator has nothing to say against it. (If one does: no.)
#[must_use]
pub fn is_readable(at: usize) -> bool {
    const COMPARE_AND_REQUEUE: usize = 4 | 128;
    // SAFETY: the kernel reads four bytes, or says that there are none, and changes nothing.
    let compared = unsafe { call(nr::FUTEX, [at, COMPARE_AND_REQUEUE, 0, 0, at, 0]) };
    // (Equal, or not.)
    matches!(compared, Ok(_) | Err(Errno::EAGAIN))
}

/// Waits at most `ns` nanoseconds for a signal of the set (which is blocked); whether it came.
#[must_use]
pub fn signal_wait(set: u64, ns: u64) -> bool {
    let time = [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64];
    // SAFETY: the kernel reads set and time, which are ours.
    unsafe { call(nr::RT_SIGTIMEDWAIT, [&raw const set as usize, 0, time.as_ptr() as usize, 8, 0, 0]) }.is_ok()
}

/// `ptrace(request, pid, 0, data)`, of the requests that touch no memory.
///
/// # Errors
/// The kernel's.
pub fn trace(request: usize, pid: usize, data: usize) -> Result<usize, Errno> {
    // SAFETY: touches no memory of ours: other requests are not used.
    unsafe { call(nr::PTRACE, [request, pid, 0, data, 0, 0]) }
}

/// Waits until a child or traced process ends or stops, and leaves that for another wait: what `siginfo` says,
/// code and status.
///
/// # Errors
/// The kernel's.
pub fn wait_and_leave(pid: usize) -> Result<(i32, i32), Errno> {
    const P_PID: usize = 1;
    const STOPPED_EXITED_NOWAIT_ALL: usize = 2 | 4 | 0x0100_0000 | 0x4000_0000;
    let mut info = [0_i32; 32];
    // SAFETY: the kernel writes 128 bytes.
    unsafe { call(nr::WAITID, [P_PID, pid, info.as_mut_ptr() as usize, STOPPED_EXITED_NOWAIT_ALL, 0, 0]) }?;
    Ok((info[2], info[6]))
}

/// A file without a name that may be executed; none where the system forbids those.
///
/// # Errors
/// The kernel's.
pub fn nameless_program() -> Result<usize, Errno> {
    const CLOEXEC: usize = 1;
    const EXEC: usize = 16;
    let create = |flags| {
        // SAFETY: the kernel reads the name.
        unsafe { call(nr::MEMFD_CREATE, [c"allotment".as_ptr() as usize, flags, 0, 0, 0, 0]) }
    };
    // (Before Linux 6.3 all may be executed, and the flag is unknown.)
    create(CLOEXEC | EXEC).or_else(|error| if error == Errno::EINVAL { create(CLOEXEC) } else { Err(error) })
}

/// Waits for the end of a child or traced process that signals nobody, or anybody. (Signals are blocked: a system that
/// says again and again that one came is not believed.)
pub fn wait_for(pid: usize) {
    const ALL: usize = 0x4000_0000;
    const TRIES: u32 = 1000;
    // SAFETY: without places for status and usage.
    let _ = (0..TRIES).any(|_| unsafe { call(nr::WAIT4, [pid, 0, ALL, 0, 0, 0]) } != Err(Errno::EINTR));
}

/// Takes the death of a child or traced process, if it has died.
pub fn wait_for_dead(pid: usize) {
    const NOHANG: usize = 1;
    const ALL: usize = 0x4000_0000;
    // SAFETY: without places for status and usage.
    let _ = unsafe { call(nr::WAIT4, [pid, 0, NOHANG | ALL, 0, 0, 0]) };
}

/// Leaves session, process group, terminal and working directory.
pub fn leave_session() {
    // SAFETY: the kernel reads the path. Refusals cost nothing.
    unsafe {
        let _ = call(nr::SETSID, [0; 6]);
        let _ = call(nr::CHDIR, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]);
    }
}

/// Ends the calling task, or all of its process.
pub fn exit(whole: bool, status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        let _ = unsafe { call(if whole { nr::EXIT_GROUP } else { nr::EXIT }, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// `membarrier(command, flags, cpu)`.
///
/// # Errors
/// `ENOSYS`, `EINVAL`, `EPERM`: not available or not registered.
pub fn membarrier(command: usize, flags: usize, cpu: usize) -> Result<usize, Errno> {
    // SAFETY: a fence; touches no memory.
    unsafe { call(nr::MEMBARRIER, [command, flags, cpu, 0, 0, 0]) }
}

/// The NUMA node that runs us, by the C library's quick way (no system call where there is a vdso).
#[must_use]
pub fn current_node() -> u32 {
    unsafe extern "C" {
        fn getcpu(cpu: *mut u32, node: *mut u32) -> i32;
    }
    let (mut cpu, mut node) = (0, 0);
    // SAFETY: writes two words that are ours.
    unsafe { getcpu(&raw mut cpu, &raw mut node) };
    node
}

/// Whether neither the C library nor [`super::crew`] has ever started a second thread.
#[must_use]
pub fn single_threaded() -> bool {
    c_is_single() && super::crew::is_none()
}

/// Whether the program has one thread, whatever threads of ours there are.
#[must_use]
pub fn program_is_single() -> bool {
    c_is_single() && super::crew::is_unshared()
}

fn c_is_single() -> bool {
    unsafe extern "C" {
        static __libc_single_threaded: u8;
    }
    // SAFETY: a byte that the C library keeps (glibc 2.32); a stale one only says "no" later.
    unsafe { __libc_single_threaded != 0 }
}

/// The caller is about to start a task that shares this memory, of which the C library does not know: from now on nobody is the only thread.
pub fn share() {
    super::crew::share();
}

/// The CPU that runs us, by the C library's quick way.
#[must_use]
pub fn current_cpu() -> u32 {
    unsafe extern "C" {
        fn sched_getcpu() -> i32;
    }
    // SAFETY: reads a word of the rseq area or calls the vdso; keeps errno unless it fails.
    unsafe { sched_getcpu() }.max(0) as u32
}

/// How many CPUs we may run on (at least 1).
#[must_use]
pub fn cpus_allowed() -> u32 {
    let mut mask = [0_u64; 128];
    // SAFETY: the kernel writes at most the mask's bytes.
    let filled = unsafe { call(nr::SCHED_GETAFFINITY, [0, size_of_val(&mask), mask.as_mut_ptr() as usize, 0, 0, 0]) };
    let words = filled.unwrap_or(0) / 8;
    mask.iter().take(words).map(|word| word.count_ones()).sum::<u32>().max(1)
}

/// The same, asked for as far as no filter that was inherited may kill for it.
#[must_use]
pub fn cpus_told() -> u32 {
    match status() {
        (true, cpus) => cpus.unwrap_or(1).max(1),
        (false, _) => cpus_allowed(),
    }
}

/// Bytes of the machine's memory (0 if the kernel does not say).
#[must_use]
pub fn memory_bytes() -> u64 {
    // uptime, three loads, total, free, shared, buffers, total and free swap, processes, total
    // and free high memory, unit (of 64-bit machines; with room to spare)
    let mut info = [0_u64; 16];
    // SAFETY: the kernel writes at most 112 bytes, which are ours.
    if unsafe { call(nr::SYSINFO, [info.as_mut_ptr() as usize, 0, 0, 0, 0, 0]) }.is_err() {
        return 0;
    }
    info[4].saturating_mul((info[13] & 0xffff_ffff).max(1))
}

/// `CLOCK_MONOTONIC` in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let mut time = [0_i64; 2];
    // SAFETY: the kernel writes two words that are ours.
    let _ = unsafe { call(nr::CLOCK_GETTIME, [1, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

/// Whether system calls of this process are filtered, and how many CPUs it may run on, by `/proc`: the calls that the
/// loader made to map this library, so that no filter that let it start forbids them. Without `/proc` no filter is known.
#[must_use]
pub fn status() -> (bool, Option<u32>) {
    let (mut filtered, mut cpus) = (false, None);
    lines(c"/proc/self/status", &mut [0; 512], |line| {
        if let Some(mode) = line.strip_prefix(b"Seccomp:") {
            filtered = mode.trim_ascii() != b"0";
        } else if let Some(mask) = line.strip_prefix(b"Cpus_allowed:") {
            let digits = mask.iter().filter_map(|&digit| char::from(digit).to_digit(16));
            cpus = Some(digits.map(u32::count_ones).sum());
        }
    });
    (filtered, cpus)
}

/// This process.
#[must_use]
pub fn pid() -> u32 {
    // SAFETY: takes and touches nothing.
    unsafe { call(nr::GETPID, [0; 6]).unwrap_or(0) as u32 }
}

/// The process that started this one, or took it over.
#[must_use]
pub fn parent_pid() -> u32 {
    // SAFETY: takes and touches nothing.
    unsafe { call(nr::GETPPID, [0; 6]).unwrap_or(0) as u32 }
}

/// How long a file may get that we write.
fn file_limit() -> u64 {
    const RLIMIT_FSIZE: usize = 1;
    limit_of(RLIMIT_FSIZE)
}

/// How many tasks the user of this process may have.
#[must_use]
pub fn task_limit() -> u64 {
    const RLIMIT_NPROC: usize = 6;
    limit_of(RLIMIT_NPROC)
}

/// A soft limit; 0 if it is not known.
fn limit_of(what: usize) -> u64 {
    let mut limit = [0_u64; 2];
    // SAFETY: the kernel writes two words that are ours.
    let _ = unsafe { call(nr::PRLIMIT64, [0, what, 0, limit.as_mut_ptr() as usize, 0, 0]) };
    limit[0]
}

/// This thread.
#[must_use]
pub fn thread_id() -> u32 {
    // SAFETY: takes and touches nothing.
    unsafe { call(nr::GETTID, [0; 6]).unwrap_or(0) as u32 }
}

/// Whether a process has this thread, dead but not yet counted out included. (What cannot be known is no.)
#[must_use]
pub fn is_thread(process: u32, thread: u32) -> bool {
    // SAFETY: no signal is sent.
    thread != 0 && unsafe { call(nr::TGKILL, [process as usize, thread as usize, 0, 0, 0, 0]) }.is_ok()
}

/// Registers the calling thread's rseq area, with the C library's signature.
///
/// # Errors
/// The kernel's; nothing is registered then.
///
/// # Safety
/// The area is the thread's alone as long as it lives.
pub unsafe fn register_rseq(area: usize, bytes: usize) -> Result<(), Errno> {
    const SIGNATURE: usize = 0x5305_3053;
    // SAFETY: the caller's promise.
    unsafe { call(nr::RSEQ, [area, bytes, 0, SIGNATURE, 0, 0]).map(drop) }
}

/// Where the C library keeps `errno`, in bytes from the thread pointer: the same in every thread.
#[must_use]
pub fn errno_offset() -> isize {
    unsafe extern "C" {
        fn __errno_location() -> *mut i32;
    }
    // SAFETY: the address of the thread's own errno.
    (unsafe { __errno_location() as isize }) - thread_pointer() as isize
}

/// What the kernel says of this process to a thread that opens no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// Its threads, one that was first and has ended included as long as there are others.
    pub count: u32,
    /// User and group that its first thread acts as.
    pub owner: [u32; 2],
}

/// The threads of this process; `None` where no `/proc` shows it.
#[must_use]
pub fn tasks() -> Option<Tasks> {
    let status = statx(AT_FDCWD, c"/proc/self/task", 0).ok()?;
    // (The directory and its own entry are links, too.)
    Some(Tasks { count: status[4].saturating_sub(2), owner: [status[5], status[6]] })
}

/// Whether this process's first thread lives: a dead one has no program.
#[must_use]
pub fn leader_lives() -> bool {
    const ENOENT: Errno = Errno(2);
    link(c"/proc/self/exe", &mut [0; 1]) != Err(ENOENT)
}

/// The status with which this process's first thread, which is dead, has ended (0 if that cannot be known).
#[must_use]
pub fn leader_status() -> i32 {
    let mut text = [0; 1024];
    let line = slurp(c"/proc/self/stat", &mut text).unwrap_or(b"");
    // The last field, as `wait` has it.
    let last = line.trim_ascii_end().rsplit(|&byte| byte == b' ').next().unwrap_or(b"");
    let status: i32 = core::str::from_utf8(last).ok().and_then(|last| last.parse().ok()).unwrap_or(0);
    status >> 8 & 0xff
}

/// Gives the calling thread a working directory and a root of its own, away from where the program goes: what it would
/// leave is not kept busy, and where it locks itself in the thread still sees. Refused, they stay the program's.
pub fn own_root() {
    const CLONE_FS: usize = 0x200;
    if unshare(CLONE_FS).is_ok() {
        // SAFETY: the kernel reads the path.
        let _ = unsafe { call(nr::CHDIR, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Entries of an open directory, as the kernel lays them out; 0 at the end.
///
/// # Errors
/// As `getdents64`.
pub fn entries(fd: usize, into: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes into `into` only.
    unsafe { call(nr::GETDENTS64, [fd, into.as_mut_ptr() as usize, into.len(), 0, 0, 0]) }
}

/// The beginning of a file, as far as `into` goes.
///
/// # Errors
/// As `open` and `read`.
pub fn slurp<'a>(path: &core::ffi::CStr, into: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let file = open(path, false)?;
    let read = read(file, into);
    close(file);
    Ok(&into[..read?])
}

/// Calls for each line of a file. `buffer` is as long as the longest line that is wanted; longer ones are left out. What
/// cannot be read has no lines.
pub fn lines(path: &core::ffi::CStr, buffer: &mut [u8], mut each: impl FnMut(&[u8])) {
    let Ok(file) = open(path, false) else { return };
    let (mut have, mut is_whole) = (0, true);
    loop {
        let n = read(file, &mut buffer[have..]).unwrap_or(0);
        let end = have + n;
        let mut start = 0;
        while let Some(len) = buffer[start..end].iter().position(|&byte| byte == b'\n') {
            if core::mem::replace(&mut is_whole, true) {
                each(&buffer[start..start + len]);
            }
            start += len + 1;
        }
        if n == 0 {
            if is_whole && start < end {
                each(&buffer[start..end]);
            }
            return close(file);
        }
        buffer.copy_within(start..end, 0);
        have = end - start;
        if have == buffer.len() {
            // The rest of this line is not read as one.
            (have, is_whole) = (0, false);
        }
    }
}

/// Writes to a descriptor.
///
/// # Errors
/// As `write`.
pub fn write(fd: usize, text: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel reads `text`.
    unsafe { call(nr::WRITE, [fd, text.as_ptr() as usize, text.len(), 0, 0, 0]) }
}

/// Writes to the program's standard error; what cannot be written is lost.
pub fn complain(text: &[u8]) {
    if write(2, text) == Err(Errno::EBADF)
        // A thread with files of its own (see `own_files`) finds the main thread's.
        && let Ok(file) = open_as(c"/proc/self/fd/2", O_WRONLY | O_APPEND | O_NOCTTY)
    {
        let _ = write(file, text);
        close(file);
    }
}

/// A new file for this user alone, `bytes` long, zero and without pages (see [`make_sure`]); open for reading and
/// writing. What an earlier process of this number left there loses the name, and whoever maps it keeps it. The process's
/// limit is asked first: beyond, the kernel sends a signal that ends it.
///
/// # Errors
/// As `open` and `ftruncate`; `EEXIST` where the name is somebody else's, `EFBIG` for the limit.
pub fn create_private(path: &core::ffi::CStr, bytes: usize) -> Result<usize, Errno> {
    const O_CREAT: usize = 0o100;
    const O_EXCL: usize = 0o200;
    const O_NOFOLLOW: usize = 0o400_000;
    if file_limit() < bytes as u64 {
        return Err(Errno::EFBIG);
    }
    unlink(path);
    let file = open_as(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY)?;
    // SAFETY: the descriptor is ours.
    if let Err(error) = unsafe { call(nr::FTRUNCATE, [file, bytes, 0, 0, 0, 0]) } {
        close(file);
        unlink(path);
        return Err(error);
    }
    Ok(file)
}

/// `struct statx` in words: links at 4, owner and group at 5 and 6, mode in 16 bits of 7.
fn statx(at: usize, path: &core::ffi::CStr, flags: usize) -> Result<[u32; 64], Errno> {
    const BASIC: usize = 0x7ff;
    let mut status = [0_u32; 64];
    // SAFETY: the kernel reads the path and writes 256 bytes of ours.
    unsafe { call(nr::STATX, [at, path.as_ptr() as usize, flags, BASIC, status.as_mut_ptr() as usize, 0])? };
    Ok(status)
}

/// What a symbolic link says, as far as `into` goes.
///
/// # Errors
/// As `readlink`.
pub fn link<'a>(path: &core::ffi::CStr, into: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    // SAFETY: the kernel reads the path and writes into `into` only.
    let read = unsafe {
        call(nr::READLINKAT, [AT_FDCWD, path.as_ptr() as usize, into.as_mut_ptr() as usize, into.len(), 0, 0])?
    };
    Ok(&into[..read])
}

/// Removes a name.
pub fn unlink(path: &core::ffi::CStr) {
    // SAFETY: the kernel reads the path.
    let _ = unsafe { call(nr::UNLINKAT, [AT_FDCWD, path.as_ptr() as usize, 0, 0, 0, 0]) };
}

const AT_FDCWD: usize = -100_isize as usize;
const O_WRONLY: usize = 1;
const O_RDWR: usize = 2;
const O_NOCTTY: usize = 0o400;
const O_APPEND: usize = 0o2000;
const O_CLOEXEC: usize = 0o2_000_000;

/// Opens a file (`path` ends with a zero byte) for reading and writing, or reading only.
///
/// # Errors
/// As `open`.
pub fn open(path: &core::ffi::CStr, write: bool) -> Result<usize, Errno> {
    open_as(path, if write { O_RDWR } else { 0 })
}

fn open_as(path: &core::ffi::CStr, flags: usize) -> Result<usize, Errno> {
    // SAFETY: the kernel reads the path, which ends with zero. What is made is its owner's alone.
    unsafe { call(nr::OPENAT, [AT_FDCWD, path.as_ptr() as usize, O_CLOEXEC | flags, 0o600, 0, 0]) }
}

/// Reads from a descriptor.
///
/// # Errors
/// As `read`.
pub fn read(fd: usize, into: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes into `into` only.
    unsafe { call(nr::READ, [fd, into.as_mut_ptr() as usize, into.len(), 0, 0, 0]) }
}

/// Closes a descriptor.
pub fn close(fd: usize) {
    // SAFETY: the descriptor is ours.
    let _ = unsafe { call(nr::CLOSE, [fd, 0, 0, 0, 0, 0]) };
}

/// The time-stamp counter (ns where there is none).
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a counter.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    now_ns()
}

/// The time in [`ticks`], also where the processor may not be asked for it: reading the counter ends a thread that has
/// given it up (`PR_SET_TSC`, `SECCOMP_MODE_STRICT`), and the kernel's own clock reads the same counter. From then on each
/// look is taken for [`Clock::STEP`] ticks: what is to happen now and then still does.
#[derive(Debug)]
pub struct Clock {
    /// 0: the processor's. Else the last look.
    stopped: AtomicU64,
    /// The kernel's function for the time in ns ([`vdso`]); 0: not looked for yet, 1: there is none.
    quick: AtomicUsize,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    const STEP: u64 = 1 << 16;

    /// The processor's.
    #[must_use]
    pub const fn new() -> Self {
        Self { stopped: AtomicU64::new(0), quick: AtomicUsize::new(0) }
    }
    /// The ticks now.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> u64 {
        // Relaxed: a thread that has given the counter up has stopped the clock before.
        if self.stopped.load(Relaxed) == 0 { ticks() } else { self.stopped.fetch_add(Self::STEP, Relaxed) }
    }
    /// `CLOCK_MONOTONIC` in nanoseconds, without a system call as long as the processor may be asked.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        // Relaxed: as in `ticks`.
        if self.stopped.load(Relaxed) != 0 {
            return now_ns();
        }
        // Relaxed: whoever looks finds the same.
        let quick = match self.quick.load(Relaxed) {
            0 => {
                let found = vdso::clock_gettime().map_or(1, |at| at as usize);
                self.quick.store(found, Relaxed);
                found
            }
            known => known,
        };
        if quick == 1 {
            return now_ns();
        }
        // SAFETY: the kernel's own function, found by its name.
        let quick: vdso::ClockGettime = unsafe { core::mem::transmute(quick) };
        let mut time = [0_i64; 2];
        // SAFETY: writes two words that are ours.
        unsafe { quick(1, &raw mut time) };
        time[0] as u64 * 1_000_000_000 + time[1] as u64
    }
    /// A thread is about to give the counter up.
    pub fn stop(&self) {
        if self.stopped.load(Relaxed) == 0 {
            // Relaxed: a number; of two the first.
            let _ = self.stopped.compare_exchange(0, ticks() | 1, Relaxed, Relaxed);
        }
    }
}

/// A word that is different in every thread alive: the thread pointer.
#[inline]
#[must_use]
pub fn thread_pointer() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: usize;
        // SAFETY: the ABI keeps the thread pointer's own address at fs:0.
        unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
        pointer
    }
    #[cfg(target_arch = "aarch64")]
    {
        let pointer: usize;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem)) };
        pointer
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        unsafe extern "C" {
            fn __errno_location() -> *mut i32;
        }
        // SAFETY: the address of the thread's own errno.
        unsafe { __errno_location() as usize }
    }
}

/// Faults for tests: calls that manage memory are refused, or done in part and then refused.
#[cfg(test)]
pub mod fault {
    use super::{Errno, MAP_FIXED, Range, call, nr};
    use std::cell::Cell;

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
                        let next = *(a[1] as *const Range).add(half);
                        let _ = call(nr::MADVISE, [next.at, 4096, a[3], 0, 0, 0]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_goes_on() {
        let clock = Clock::new();
        let before = clock.ticks();
        clock.stop();
        let (first, second) = (clock.ticks(), clock.ticks());
        assert!(before <= first && second == first + Clock::STEP);
        clock.stop();
        assert_eq!(clock.ticks(), second + Clock::STEP);
    }

    #[test]
    fn what_can_be_read_is_readable() {
        let page = map(0, crate::arch::PAGE * 2, Access::ReadWrite).expect("two pages");
        // SAFETY: ours, fresh.
        unsafe {
            assert!(is_readable(page));
            *(page as *mut u32) = 7;
            assert!(is_readable(page) && *(page as *const u32) == 7);
            protect(page + crate::arch::PAGE, crate::arch::PAGE, Access::None).expect("one page");
            assert!(!is_readable(page + crate::arch::PAGE));
            unmap(page, crate::arch::PAGE).expect("the other");
        }
        assert!(!is_readable(page) && !is_readable(4096) && !is_readable(usize::MAX - 4095));
    }

    #[test]
    fn what_a_filter_does_not_tell_is_not_readable() {
        let page = map(0, crate::arch::PAGE, Access::ReadWrite).expect("a page");
        // A thread of its own: it has the filter.
        std::thread::spawn(move || {
            const NUMBER: u32 = 0;
            let (load, equal, answer) = (0x20, 0x15, 6);
            let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
            // The second argument of `futex`, the requeue that compares: ENOSYS.
            let mut code = [
                step(load, 0, NUMBER),
                step(equal, 3, nr::FUTEX as u32),
                step(load, 0, 24),
                step(equal, 1, 4 | 128),
                step(answer, 0, 0x0005_0000 | 38),
                step(answer, 0, 0x7fff_0000),
            ];
            let filter = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
            assert!(is_readable(page));
            // SAFETY: this thread alone gets a filter, which lives through the call.
            let filtered = unsafe { libc::prctl(38, 1, 0, 0, 0) == 0 && libc::prctl(22, 2, &raw const filter) == 0 };
            if !filtered {
                std::eprintln!("skipped: no filters here");
                return;
            }
            assert!(!is_readable(page));
        })
        .join()
        .unwrap();
        // SAFETY: ours.
        unsafe { unmap(page, crate::arch::PAGE).expect("ours") };
    }

    #[test]
    fn the_status_tells_what_the_calls_tell() {
        let (filtered, cpus) = status();
        // SAFETY: a question.
        let mode = unsafe { prctl(21, [0; 4]) };
        assert!(mode != Ok(0) || !filtered);
        assert!(cpus.is_none_or(|cpus| cpus == cpus_allowed()));
        let clock = Clock::new();
        let (before, quick, after) = (now_ns(), clock.now_ns(), now_ns());
        assert!((before..=after).contains(&quick) && clock.quick.load(Relaxed) > 1, "{before} {quick} {after}");
    }

    const DEFAULT: i32 = 0;
    const PREFERRED: i32 = 1;
    const INTERLEAVE: i32 = 3;

    /// A page's own policy. `None` where the system does not say.
    fn policy_of(at: usize) -> Option<i32> {
        const OF_ADDRESS: usize = 2;
        let mut policy = 0;
        // SAFETY: the kernel writes four bytes.
        unsafe { call(nr::GET_MEMPOLICY, [&raw mut policy as usize, 0, 0, at, OF_ADDRESS, 0]) }.ok()?;
        Some(policy)
    }

    /// Beyond a file's end there is as little room as in a full file system.
    #[test]
    fn pages_that_cannot_be_had_are_an_error_and_no_signal() {
        use crate::arch::PAGE;
        for make in [make_sure, touch] {
            // SAFETY: a descriptor of our own.
            let file = unsafe { libc::memfd_create(c"short".as_ptr(), 0) };
            // SAFETY: as above.
            assert!(file >= 0 && unsafe { libc::ftruncate(file, 2 * PAGE as i64) } == 0);
            let at = map_file(4 * PAGE, file as usize).expect("mapped");
            // SAFETY: fresh and ours.
            unsafe {
                assert_eq!(make(at, 2 * PAGE), Ok(()));
                assert!((at..at + 2 * PAGE).step_by(8).all(|word| *(word as *const u64) == 0));
                assert_eq!(make(at + PAGE, 3 * PAGE), Err(Errno(14)));
                assert_eq!(make(at + 2 * PAGE, PAGE), Err(Errno(14)));
                unmap(at, 4 * PAGE).expect("ours");
            }
            close(file as usize);
        }
    }

    #[test]
    fn a_programs_own_memory_policy_stays() {
        let page = || map(0, crate::arch::PAGE, Access::ReadWrite).expect("a page");
        // A thread of its own: it has the policy.
        std::thread::spawn(move || {
            let free = page();
            bind(free, crate::arch::PAGE, 0);
            let nodes = 1_u64;
            // SAFETY: the kernel reads eight bytes.
            let set = unsafe { libc::syscall(libc::SYS_set_mempolicy, INTERLEAVE, &raw const nodes, 64) };
            let asked = page();
            bind(asked, crate::arch::PAGE, 0);
            if set != 0 || policy_of(free) != Some(PREFERRED) {
                std::eprintln!("skipped: no memory policies here");
                return;
            }
            assert_eq!(policy_of(asked), Some(DEFAULT));
        })
        .join()
        .unwrap();
    }
}
