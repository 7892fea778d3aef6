//! # How the command was started
//!
//! Rust's runtime ignores `SIGPIPE` and opens `/dev/null` for standard streams
//! that are closed, before `main`. A program that is run shall find both as the
//! command found them, so an entry of `.init_array`, which runs before the
//! runtime, notes them; [`undo`] restores them between fork and exec.
#![allow(unsafe_code)] // one constructor and system calls on integers

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Standard streams that were closed, one bit each.
static CLOSED: AtomicU32 = AtomicU32::new(0);
/// Whether `SIGPIPE` was ignored.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn note() {
    let mut closed = 0;
    for stream in 0..3 {
        // SAFETY: F_GETFD takes no pointer and changes nothing.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            closed |= 1 << stream;
        }
    }
    // Relaxed: one thread, long before any other.
    CLOSED.store(closed, Relaxed);
    // SAFETY: all-zero bytes are a valid sigaction; the call fills it and reads nothing.
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    };
    PIPE_IGNORED.store(ignored, Relaxed);
}

// SAFETY: the dynamic linker calls every pointer in `.init_array` once, with
// arguments that a C function may ignore; `note` needs neither libc nor Rust
// to be initialised.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

/// Whether standard output was closed.
pub fn is_output_closed() -> bool {
    CLOSED.load(Relaxed) & (1 << 1) != 0
}

/// Puts both back as they were. Only system calls: fit between fork and exec.
pub fn undo() {
    let action = if PIPE_IGNORED.load(Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: a disposition that the process had before; no handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, action) };
    let closed = CLOSED.load(Relaxed);
    for stream in 0..3 {
        if closed & (1 << stream) != 0 {
            // SAFETY: the runtime opened this one; nothing owns it, and exec follows.
            unsafe { libc::close(stream) };
        }
    }
}
