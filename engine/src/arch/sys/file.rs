//! # Files
//!
//! Opened only to be closed soon: the program counts descriptors. What is made is its owner's alone, and no link is
//! followed to it. Locks: none. Cost: one call each; three for a file that is read.
#![allow(unsafe_code)] // the boundary to the kernel

use super::call::{Errno, call, nr};
use super::process::file_limit;

pub(super) const AT_FDCWD: usize = -100_isize as usize;
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

/// Writes to a descriptor.
///
/// # Errors
/// As `write`.
pub fn write(fd: usize, text: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel reads `text`.
    unsafe { call(nr::WRITE, [fd, text.as_ptr() as usize, text.len(), 0, 0, 0]) }
}

/// Closes a descriptor.
pub fn close(fd: usize) {
    // SAFETY: the descriptor is ours.
    let _ = unsafe { call(nr::CLOSE, [fd, 0, 0, 0, 0, 0]) };
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

/// Whether a write to a descriptor neither waits nor raises SIGPIPE now. (True of one that is not open.)
#[must_use]
pub fn takes(fd: usize) -> bool {
    const POLLOUT: i16 = 4;
    const POLLERR: i16 = 8;
    const POLLNVAL: i16 = 32;
    #[repr(C)]
    struct PollFd {
        fd: i32,
        events: i16,
        revents: i16,
    }
    let (mut file, now) = (PollFd { fd: fd as i32, events: POLLOUT, revents: 0 }, [0_u64; 2]);
    // SAFETY: the kernel reads the time and writes the one file's events.
    let asked = unsafe { call(nr::PPOLL, [&raw mut file as usize, 1, now.as_ptr() as usize, 0, 8, 0]) };
    asked.is_err() || file.revents & POLLNVAL != 0 || file.revents & (POLLOUT | POLLERR) == POLLOUT
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

/// A new file for this user alone, `bytes` long, zero and without pages (see [`make_sure`](super::make_sure)); open for reading and
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
pub(super) fn statx(at: usize, path: &core::ffi::CStr, flags: usize) -> Result<[u32; 64], Errno> {
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
