//! # Signals while a program runs
//!
//! The program is in our process group, so the terminal's own signals reach it
//! without us. What this process does with a signal:
//!
//! | who sent it | what happens |
//! |---|---|
//! | the kernel (terminal keys, hang-up, limits): `si_code > 0` | nothing: the child has it too |
//! | the child itself, to its group or its parent | nothing |
//! | anybody else, by `kill`, `sigqueue`, `tgkill` | sent on, with its value |
//! | a job-control stop that also stopped the child | this process stops as well, so the shell sees a stopped job |
//! | `SIGCONT` after that | sent on if the child still stands |
//!
//! All signals but those of our own faults are blocked before the fork and
//! taken with `sigwaitinfo`: there are no handlers. One case cannot be told
//! apart: a `kill` to the whole group reaches the child twice.
//!
//! A process that a signal kills frees its memory itself before its parent is told, by one thread. Who sent the
//! signal may do a part of that: `process_mrelease`, which the kernel refuses unless the process is dying, and is
//! to leave no core. It must be called before the process has begun: right after the signal, by nobody else.
#![allow(unsafe_code)] // sigprocmask, sigwaitinfo, wait4, kill

use super::watch::Watch;
use crate::clock::Used;
use crate::proc;
use crate::report::End;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr;

/// Signals of this process's own faults, and those that cannot be blocked.
const LEFT: &[i32] = &[
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// The mask before, the signals taken, and SIGCHLD's disposition before.
pub struct Signals {
    before: libc::sigset_t,
    taken: libc::sigset_t,
    child_action: libc::sigaction,
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Finish {
    /// Its name at the end, as `/proc` has it.
    pub name: Option<String>,
    /// What it used; not yet what was asked to run.
    pub end: End,
}

/// What happened to the child.
enum Change {
    Ended,
    Stopped(i32),
    Continued,
}

impl Signals {
    /// Blocks what is to be taken, and makes children waitable.
    pub fn block() -> Self {
        // SAFETY: all-zero bytes are valid for these C structures; each call
        // gets pointers to them and to nothing else.
        unsafe {
            let mut all: Self = std::mem::zeroed();
            libc::sigfillset(&raw mut all.taken);
            for &signal in LEFT {
                libc::sigdelset(&raw mut all.taken, signal);
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGCHLD, &raw const action, &raw mut all.child_action);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const all.taken, &raw mut all.before);
            all
        }
    }

    /// As it was. Async-signal-safe.
    pub fn restore(&self) {
        // SAFETY: values that an earlier call filled.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &raw const self.child_action, ptr::null_mut());
            libc::sigprocmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut());
        }
    }

    /// Takes signals until the child has ended, and looks at it meanwhile.
    ///
    /// # Errors
    /// The child cannot be waited for.
    pub fn until_end(&self, child: libc::pid_t, finish: &mut Finish, watch: &mut Watch) -> io::Result<()> {
        let mut stopped = None;
        // Job-control stops that came to us and may have come to the child.
        let mut asked_to_stop = 0_u64;
        let mut resumed = false;
        loop {
            while let Some(change) = reap(child, finish)? {
                match change {
                    Change::Ended => return Ok(()),
                    Change::Stopped(signal) => stopped = Some(signal),
                    Change::Continued => (stopped, asked_to_stop) = (None, 0),
                }
            }
            if let Some(signal) = stopped
                && asked_to_stop & bit(signal) != 0
            {
                (stopped, asked_to_stop) = (None, 0);
                stop_too(signal);
                resumed = true;
            }
            // SAFETY: all-zero bytes are a valid siginfo, which the call fills.
            let (signal, info) = unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let taken = match watch.next() {
                    None => libc::sigwaitinfo(&raw const self.taken, &raw mut info),
                    Some(left) => {
                        let left = libc::timespec {
                            tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(0),
                            tv_nsec: left.subsec_nanos().into(),
                        };
                        libc::sigtimedwait(&raw const self.taken, &raw mut info, &raw const left)
                    }
                };
                (taken, info)
            };
            watch.look();
            match signal {
                -1 | libc::SIGCHLD => continue,
                libc::SIGCONT if std::mem::take(&mut resumed) && !proc::is_stopped(child.cast_unsigned()) => continue,
                libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => asked_to_stop |= bit(signal),
                _ => {}
            }
            pass(child, signal, &info);
        }
    }
}

/// A signal's bit; numbers end at 64.
fn bit(signal: i32) -> u64 {
    1_u64.checked_shl(signal.cast_unsigned().wrapping_sub(1)).unwrap_or(0)
}

/// Sends a signal on, unless the child has it already.
fn pass(child: libc::pid_t, signal: i32, info: &libc::siginfo_t) {
    if info.si_code > 0 {
        return;
    }
    // SAFETY: codes below 1 carry the sender and, if queued, a value; the
    // child is not reaped yet, so its id is its own.
    unsafe {
        if info.si_pid() == child {
            return;
        }
        let descriptor = descriptor(child);
        if info.si_code == libc::SI_QUEUE {
            libc::sigqueue(child, signal, info.si_value());
        } else {
            libc::kill(child, signal);
        }
        if let Some(descriptor) = descriptor {
            libc::syscall(libc::SYS_process_mrelease, descriptor.as_raw_fd(), 0);
        }
    }
}

/// A descriptor of the child; `None` before Linux 5.3.
fn descriptor(child: libc::pid_t) -> Option<OwnedFd> {
    // SAFETY: numbers; a descriptor that is not negative is new and ours.
    unsafe {
        let descriptor = i32::try_from(libc::syscall(libc::SYS_pidfd_open, child, 0)).ok().filter(|&fd| fd >= 0)?;
        Some(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Stops by the signal that stopped the child, until continued.
fn stop_too(signal: i32) {
    // SAFETY: raises one blocked signal and lets it through once; job-control
    // signals stop by default, and do nothing where nobody could continue us.
    unsafe {
        let mut one: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut one);
        libc::sigaddset(&raw mut one, signal);
        libc::raise(signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const one, ptr::null_mut());
        libc::sigprocmask(libc::SIG_BLOCK, &raw const one, ptr::null_mut());
    }
}

/// The next change of the child, if there is one; its end fills `finish`.
fn reap(child: libc::pid_t, finish: &mut Finish) -> io::Result<Option<Change>> {
    // What it is called at its end: the name goes with the process.
    // SAFETY: all-zero bytes are a valid siginfo, which the call fills.
    let has_ended = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, child.cast_unsigned(), &raw mut info, how) == 0 && info.si_pid() == child
    };
    if has_ended {
        finish.name = proc::comm(child.cast_unsigned()).map(|name| name.to_string_lossy().trim_end().to_owned());
    }
    let flags = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid rusage; the call fills it and `status`.
    let (found, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(child, &raw mut status, flags, &raw mut usage), usage)
    };
    match found {
        0 => Ok(None),
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(error),
        },
        _ if libc::WIFSTOPPED(status) => Ok(Some(Change::Stopped(libc::WSTOPSIG(status)))),
        _ if libc::WIFCONTINUED(status) => Ok(Some(Change::Continued)),
        _ => {
            let (used, end) = (Used::of(&usage), &mut finish.end);
            (end.status, end.cpu_ns, end.rss_peak) = (status, used.cpu_ns(), used.peak);
            (end.minor_faults, end.major_faults) = (used.minor_faults, used.major_faults);
            Ok(Some(Change::Ended))
        }
    }
}
