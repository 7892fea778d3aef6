//! # Start, attendance and end of a program
//!
//! The child is a plain fork in the same process group; what happens to signals
//! meanwhile is in [`super::signals`].
//!
//! The child restores the mask and the dispositions that the command was started
//! with. Between fork and exec only async-signal-safe calls run; the one word
//! that the parent cannot know, the child's id in the board's variable, is
//! written by the child into a buffer made before.
#![allow(unsafe_code)] // fork, exec, signals, wait: on buffers of this module

use super::origin;
use super::signals::{Finish, Signals};
use super::watch::Watch;
use crate::clock::{Used, monotonic_ns, ticks};
use crate::proc;
use crate::report::End;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::process::ExitCode;
use std::ptr;

/// Why a program did not start.
#[derive(Debug)]
pub enum NotStarted {
    /// Something here failed: one line.
    Own(String),
    /// exec failed.
    Exec(io::Error),
}

/// The environment of the program: `NAME=VALUE` words.
#[derive(Debug)]
pub struct Environment(Vec<Vec<u8>>);

impl Environment {
    /// Our own, as it is.
    pub fn inherited() -> Self {
        let join = |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
        Self(std::env::vars_os().map(join).collect())
    }
    /// Sets one variable.
    pub fn set(&mut self, name: &str, value: &OsStr) {
        let prefix = [name.as_bytes(), b"="].concat();
        self.0.retain(|word| !word.starts_with(&prefix));
        self.0.push([&prefix, value.as_bytes()].concat());
    }
    /// As exec wants it. A NUL cannot be: such words came from outside C.
    fn strings(self) -> Vec<CString> {
        self.0.into_iter().filter_map(|word| CString::new(word).ok()).collect()
    }
}

/// Pointers with a null behind.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// The arguments as exec wants them.
fn arguments(program: &[OsString]) -> Result<Vec<CString>, NotStarted> {
    let string = |word: &OsString| CString::new(word.clone().into_vec());
    program
        .iter()
        .map(string)
        .collect::<Result<_, _>>()
        .map_err(|_| NotStarted::Own("an argument holds a NUL byte".into()))
}

/// Becomes the program; returns only if it cannot.
pub fn replace(program: &[OsString], environment: Environment) -> NotStarted {
    let strings = match arguments(program) {
        Ok(strings) => strings,
        Err(failure) => return failure,
    };
    let environment = environment.strings();
    let (argv, envp) = (pointers(&strings), pointers(&environment));
    // Not undone on failure but for the streams: messages still need one.
    let streams = Streams::kept();
    origin::undo();
    // SAFETY: both arrays end in null and point at strings that live on.
    unsafe { libc::execvpe(argv[0], argv.as_ptr(), envp.as_ptr()) };
    let error = io::Error::last_os_error();
    streams.back();
    NotStarted::Exec(error)
}

/// A copy of standard error across [`origin::undo`].
struct Streams(i32);

impl Streams {
    fn kept() -> Self {
        // SAFETY: duplicates a descriptor; the copy closes on exec.
        Self(unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 3) })
    }
    fn back(self) {
        // SAFETY: at worst both are closed, and the calls fail.
        unsafe {
            libc::dup2(self.0, 2);
            libc::close(self.0);
        }
    }
}

/// A sealed size in an anonymous file that closes on exec; size 0: it may grow.
pub fn memfd(name: &CStr, bytes: u64) -> io::Result<File> {
    // SAFETY: the name ends in NUL; a descriptor that is not -1 is new and ours.
    let file = unsafe {
        let descriptor = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if descriptor == -1 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(descriptor)
    };
    if bytes > 0 {
        // SAFETY: all-zero bytes are a valid rlimit, which the call fills. Beyond it the kernel sends a signal that ends us.
        let limit = unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit);
            limit.rlim_cur
        };
        if limit < bytes {
            return Err(io::Error::other(format!(
                "files may be {} long (ulimit -f), it takes {}",
                crate::term::bytes(limit),
                crate::term::bytes(bytes)
            )));
        }
        file.set_len(bytes)?;
        // A board that a program could cut short would end its other readers by SIGBUS.
        // SAFETY: an operation on a descriptor that is ours, without pointers.
        unsafe {
            libc::fcntl(
                file.as_raw_fd(),
                libc::F_ADD_SEALS,
                libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
            )
        };
    }
    Ok(file)
}

/// Room for the digits of a process id.
const DIGITS: usize = 11;

/// Writes `number` and a NUL; async-signal-safe.
fn decimal(into: &mut [u8], number: u32) {
    let mut digits = [0_u8; DIGITS];
    let (mut rest, mut count) = (number, 0);
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    for at in 0..count {
        into[at] = digits[count - 1 - at];
    }
    into[count] = 0;
}

/// Runs the program as a child, attends it, and reaps it. `share` is the
/// variable that tells the child where its board is, and the board; `is_said`: that it runs without Allotment.
pub fn attend(
    program: &[OsString],
    mut environment: Environment,
    share: Option<(&str, &File)>,
    is_said: bool,
) -> Result<(Finish, Watch), NotStarted> {
    let own = |what: &str| NotStarted::Own(format!("{what}: {}", io::Error::last_os_error()));
    let strings = arguments(program)?;
    if let Some((name, _)) = share {
        environment.set(name, OsStr::new(""));
    }
    let mut words = environment.strings();
    let mut buffer = Vec::new();
    if let Some((name, file)) = share {
        words.pop();
        let path = proc::descriptor(Some(std::process::id()), file.as_raw_fd());
        buffer = [name.as_bytes(), b"=", path.as_os_str().as_bytes(), b":"].concat();
    }
    let digits_at = buffer.len();
    buffer.resize(digits_at + DIGITS + 1, 0);
    let mut envp = pointers(&words);
    if share.is_some() {
        envp.insert(envp.len() - 1, buffer.as_ptr().cast());
    }
    let argv = pointers(&strings);
    let (report, tell) = pipe().map_err(|error| NotStarted::Own(format!("pipe: {error}")))?;
    let signals = Signals::block();
    let start_ns = monotonic_ns();
    // SAFETY: one thread; the child makes only async-signal-safe calls on
    // buffers made above and then execs or exits.
    let child = unsafe { libc::fork() };
    if child == -1 {
        return Err(own("fork"));
    }
    if child == 0 {
        // SAFETY: as above; `buffer` has room for every id; both arrays end in null.
        unsafe {
            decimal(&mut buffer[digits_at..], libc::getpid().cast_unsigned());
            signals.restore();
            origin::undo();
            libc::execvpe(argv[0], argv.as_ptr(), envp.as_ptr());
            let number = *libc::__errno_location();
            libc::write(tell.as_raw_fd(), (&raw const number).cast(), size_of::<i32>());
            libc::_exit(127);
        }
    }
    drop(tell);
    let failed = exec_error(&report);
    let (pid, rss_floor) = (child.cast_unsigned(), Used::by(libc::RUSAGE_SELF).peak);
    let mut finish = Finish { name: None, end: End { pid, rss_floor, ..End::default() } };
    let given = share.and_then(|(_, file)| file.try_clone().ok());
    let mut watch = Watch::new(pid, given, start_ns, is_said);
    let waited = signals.until_end(child, &mut finish, &mut watch);
    signals.restore();
    if let Some(error) = failed {
        return Err(NotStarted::Exec(error));
    }
    waited.map_err(|error| NotStarted::Own(format!("wait: {error}")))?;
    let end = &mut finish.end;
    (end.now_ns, end.ticks) = (monotonic_ns(), ticks());
    end.wall_ns = end.now_ns.saturating_sub(start_ns);
    Ok((finish, watch))
}

/// A pipe that closes on exec: reading end, writing end.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two; both are new and ours if the call succeeds.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Waits for exec; the error if it failed.
fn exec_error(report: &OwnedFd) -> Option<io::Error> {
    let mut number = 0_i32;
    loop {
        // SAFETY: reads at most one i32 into an i32.
        let read = unsafe { libc::read(report.as_raw_fd(), (&raw mut number).cast(), size_of::<i32>()) };
        match read {
            4 => return Some(io::Error::from_raw_os_error(number)),
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}

/// Ends this process as the program ended.
pub fn end_like(status: i32) -> ExitCode {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        // SAFETY: no core of ours beside the program's own; then the signal's
        // default action on this process, which has nothing left to do.
        unsafe {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
            libc::signal(signal, libc::SIG_DFL);
            let mut one: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut one);
            libc::sigaddset(&raw mut one, signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const one, ptr::null_mut());
            libc::raise(signal);
        }
        return ExitCode::from(128_u8.wrapping_add(signal as u8));
    }
    ExitCode::from(libc::WEXITSTATUS(status) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_in_place() {
        for number in [0, 7, 4_194_304, u32::MAX] {
            let mut buffer = [b'x'; DIGITS + 1];
            decimal(&mut buffer, number);
            let text = CStr::from_bytes_until_nul(&buffer).expect("ends");
            assert_eq!(text.to_str().expect("digits"), number.to_string());
        }
    }

    #[test]
    fn a_variable_is_set_once() {
        let mut environment = Environment(vec![b"A=1".to_vec(), b"AB=2".to_vec(), b"A=3".to_vec()]);
        environment.set("A", OsStr::new("4"));
        assert_eq!(environment.0, [b"AB=2".to_vec(), b"A=4".to_vec()]);
    }
}
