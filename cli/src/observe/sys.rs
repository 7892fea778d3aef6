//! # The system calls of observing
//!
//! A shared mapping of a board's first pages that survives being cut, futexes that processes share, a lock on a file, signals that set a flag
//! or put the terminal back. Everything else is read through files.
#![allow(unsafe_code)] // mapping, futex, flock, signal handlers

use allotment_engine::arch::PAGE;
use allotment_engine::stat::board::{BOARD_BYTES, Board, Mailbox};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Once, OnceLock};
use std::time::Duration;

/// Where a mapping is (0: none), and whether a page of it was gone when it was needed. Boards of others may be cut at any moment.
struct Watched {
    at: AtomicUsize,
    is_cut: AtomicBool,
}

/// Mappings at one time, at most.
static WATCHED: [Watched; 64] = [const { Watched { at: AtomicUsize::new(0), is_cut: AtomicBool::new(false) } }; 64];

/// A page of a file that is gone becomes one of zeros, and is noted; any other fault ends the command.
extern "C" fn fault(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo; the system calls are those that a handler may make, on pages of a mapping of ours.
    unsafe {
        let address = (*info).si_addr() as usize;
        // Relaxed: written by this process before it used the mapping; a flag.
        let watched = WATCHED.iter().find(|watched| {
            let at = watched.at.load(Relaxed);
            at != 0 && (at..at + BOARD_BYTES).contains(&address)
        });
        if let Some(watched) = watched {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let page = (address & !(PAGE - 1)) as *mut libc::c_void;
            watched.is_cut.store(true, Relaxed);
            if libc::mmap(page, PAGE, access, flags, -1, 0) != libc::MAP_FAILED {
                return;
            }
        }
        end(signal);
    }
}

/// The first pages of a board, mapped for reading and writing: for the mailbox. Cut short, they read as zero.
#[derive(Debug)]
pub struct Mapping(*mut libc::c_void, usize);

impl Mapping {
    /// Maps them.
    ///
    /// # Errors
    /// As `mmap`.
    pub fn of(file: &File) -> io::Result<Self> {
        static HANDLED: Once = Once::new();
        HANDLED.call_once(|| {
            // SAFETY: all-zero bytes are a valid sigaction; the handler does what a handler may.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = fault as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
            }
        });
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
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Relaxed: read by this thread's handler.
        let free = |watched: &Watched| watched.at.compare_exchange(0, address as usize, Relaxed, Relaxed).is_ok();
        let mapping = Self(address, WATCHED.iter().position(free).unwrap_or(WATCHED.len()));
        let watched = WATCHED.get(mapping.1).ok_or(io::ErrorKind::ResourceBusy)?;
        watched.is_cut.store(false, Relaxed);
        Ok(mapping)
    }
    /// Whether a page of it was gone when it was needed.
    pub fn is_cut(&self) -> bool {
        WATCHED.get(self.1).is_some_and(|watched| watched.is_cut.load(Relaxed))
    }
    /// The mailbox.
    pub fn mailbox(&self) -> &Mailbox {
        // SAFETY: the mapping holds a board (all atomics: any bytes are valid) as long as `self` is.
        unsafe { &(*self.0.cast::<Board>()).mailbox }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody holds a reference into it any more.
        unsafe { libc::munmap(self.0, BOARD_BYTES) };
        if let Some(watched) = WATCHED.get(self.1) {
            watched.at.store(0, Relaxed);
        }
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

/// Standard input's terminal as it was, for what ends the command at once.
static TERMINAL: OnceLock<libc::termios> = OnceLock::new();

/// A signal that cannot be outlived: the terminal is put back, then it does what it does.
extern "C" fn end(signal: libc::c_int) {
    const PLAIN: &[u8] = b"\x1b[?1049l\x1b[?25h";
    // SAFETY: what a handler may call, on values that were made before. (The signal comes when the handler returns.)
    unsafe {
        if let Some(terminal) = TERMINAL.get() {
            libc::tcsetattr(0, libc::TCSANOW, terminal);
            libc::write(1, PLAIN.as_ptr().cast(), PLAIN.len());
        }
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Sets a handler. No `SA_RESTART`: sleeps end.
fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: all-zero bytes are a valid sigaction; the handlers do what a handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

/// From now on SIGINT, SIGTERM, SIGHUP and SIGQUIT raise a flag instead of ending the command.
pub fn stop_on_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        handle(signal, stop);
    }
}

/// The same with every signal that ends a process. Those of its own faults end it, and put the terminal back before. (SIGPIPE is
/// ignored, and SIGBUS handled by [`Mapping`].)
pub fn stop_on_every_signal() {
    const FAULTS: [libc::c_int; 6] =
        [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];
    const OTHERS: [libc::c_int; 10] = [
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGXCPU,
        libc::SIGXFSZ,
        libc::SIGIO,
        libc::SIGPWR,
        libc::SIGSTKFLT,
    ];
    // SAFETY: all-zero bytes are valid for both structures, which the calls fill.
    let (terminal, is_ignored) = unsafe {
        let mut terminal: libc::termios = std::mem::zeroed();
        let is_ignored = |signal| {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, ptr::null(), &raw mut action);
            action.sa_sigaction == libc::SIG_IGN
        };
        ((libc::tcgetattr(0, &raw mut terminal) == 0).then_some(terminal), is_ignored)
    };
    if let Some(terminal) = terminal {
        let _ = TERMINAL.set(terminal);
    }
    stop_on_signals();
    for signal in OTHERS.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
        if !is_ignored(signal) {
            handle(signal, stop);
        }
    }
    FAULTS.into_iter().for_each(|signal| handle(signal, end));
}

/// Whether one of them has come.
pub fn is_stopped() -> bool {
    STOPPED.load(Relaxed)
}

/// Whether the terminal that standard input was is gone: closed at its other end, or hung up.
pub fn is_hung_up() -> bool {
    let mut input = libc::pollfd { fd: 0, events: 0, revents: 0 };
    // SAFETY: one structure, which outlives the call; it waits for nothing.
    unsafe { libc::poll(&raw mut input, 1, 0) == 1 }
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
