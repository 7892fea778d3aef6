//! # Tasks: who they are, what they may, how they end
//!
//! Numbers and limits of this process and thread, what a thread of ours unshares, and what a reaper does with a traced
//! process. Locks: none. Cost: one call each.
#![allow(unsafe_code)] // the boundary to the kernel

use super::call::{Errno, call, nr};

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

/// A soft limit; 0 if it is not known.
fn limit_of(what: usize) -> u64 {
    let mut limit = [0_u64; 2];
    // SAFETY: the kernel writes two words that are ours.
    let _ = unsafe { call(nr::PRLIMIT64, [0, what, 0, limit.as_mut_ptr() as usize, 0, 0]) };
    limit[0]
}

/// How long a file may get that we write.
pub(super) fn file_limit() -> u64 {
    const RLIMIT_FSIZE: usize = 1;
    limit_of(RLIMIT_FSIZE)
}

/// How many tasks the user of this process may have.
#[must_use]
pub fn task_limit() -> u64 {
    const RLIMIT_NPROC: usize = 6;
    limit_of(RLIMIT_NPROC)
}

/// Whether the address space of this process, or its data, is limited (or that is not known).
#[must_use]
pub fn is_space_limited() -> bool {
    const RLIMIT_DATA: usize = 2;
    const RLIMIT_AS: usize = 9;
    [RLIMIT_AS, RLIMIT_DATA].into_iter().any(|what| limit_of(what) != u64::MAX)
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

/// Gives the calling thread a working directory and a root of its own, away from where the program goes: what it would
/// leave is not kept busy, and where it locks itself in the thread still sees. Refused, they stay the program's.
pub fn own_root() {
    const CLONE_FS: usize = 0x200;
    if unshare(CLONE_FS).is_ok() {
        // SAFETY: the kernel reads the path.
        let _ = unsafe { call(nr::CHDIR, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Names the calling thread (15 bytes at most).
pub fn name_thread(name: &core::ffi::CStr) {
    const PR_SET_NAME: usize = 15;
    // SAFETY: the kernel copies the name. A refusal costs nothing.
    let _ = unsafe { prctl(PR_SET_NAME, [name.as_ptr() as usize, 0, 0, 0]) };
}

/// Whether the process, or what started it, wants no huge pages (`PR_SET_THP_DISABLE`).
#[must_use]
pub fn is_huge_disabled() -> bool {
    const PR_GET_THP_DISABLE: usize = 42;
    // SAFETY: a question. (3, from Linux 6.18 on: none but where they are asked for.)
    unsafe { prctl(PR_GET_THP_DISABLE, [0; 4]) == Ok(1) }
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
