//! # The system calls of observing
//!
//! A shared mapping of a board's first pages, futexes that processes share, a lock on a file, signals that set a flag.
//! Everything else is read through files.
#![allow(unsafe_code)] // mapping, futex, flock, signal handlers

use allotment_engine::stat::board::{BOARD_BYTES, Board, Desk};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// The user that files must belong to.
pub fn euid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// Clock ticks a second in `/proc/PID/stat`.
pub fn clock_ticks() -> u64 {
    // SAFETY: a constant of the system.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}

/// The first pages of a board, mapped for reading and writing: for the desk.
#[derive(Debug)]
pub struct Mapping(*mut libc::c_void);

impl Mapping {
    /// Maps them.
    ///
    /// # Errors
    /// As `mmap`. The file must be at least that long: whoever cuts it later ends this process by SIGBUS, which only the
    /// file's owner can.
    pub fn of(file: &File) -> io::Result<Self> {
        // SAFETY: a new mapping of our own; every word in it is read and written as an atomic.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BOARD_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(address)) }
    }
    /// The desk.
    pub fn desk(&self) -> &Desk {
        // SAFETY: the mapping holds a board (all atomics: any bytes are valid) as long as `self` is.
        unsafe { &(*self.0.cast::<Board>()).desk }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody holds a reference into it any more.
        unsafe { libc::munmap(self.0, BOARD_BYTES) };
    }
}

/// Wakes everybody who waits for a word.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the kernel takes the address as a key; not private: others map the same page.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Waits until a word is woken, has another value, or the time is over.
pub fn wait(word: &AtomicU32, value: u32, most: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(most.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: most.subsec_nanos().into(),
    };
    // SAFETY: the kernel reads the word and the time, which outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const time) };
}

/// Tries to take the lock on a file, which its descriptor's end gives back.
pub fn try_lock(file: &File) -> bool {
    // SAFETY: a descriptor that is open.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Gives it back.
pub fn unlock(file: &File) {
    // SAFETY: a descriptor that is open.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

/// Raised by [`stop_on_signals`].
static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    // Relaxed: a flag that nothing is published through.
    STOPPED.store(true, Relaxed);
}

/// From now on SIGINT, SIGTERM, SIGHUP and SIGQUIT raise a flag instead of ending the command.
pub fn stop_on_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: all-zero bytes are a valid sigaction; the handler stores one atomic. No SA_RESTART: sleeps end.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = stop as *const () as usize;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Whether one of them has come.
pub fn is_stopped() -> bool {
    STOPPED.load(Relaxed)
}

/// Sleeps so long, or until a signal of [`stop_on_signals`].
pub fn sleep(duration: Duration) {
    const STEP: Duration = Duration::from_millis(50);
    let mut left = duration;
    while !is_stopped() && !left.is_zero() {
        let step = left.min(STEP);
        std::thread::sleep(step);
        left -= step;
    }
}
