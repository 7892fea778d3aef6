//! # Processes that are measured
//!
//! Start, a limit on time, output, wall time and peak memory by `wait4`; and
//! the checks that a preload really took: a worker asks the dynamic linker who
//! owns `malloc`, other programs are looked at from outside while they run.
#![allow(unsafe_code)] // wait4, poll, kill, dlsym, dladdr

use super::rows::mib;
use crate::clock::Used;
use crate::proc::Maps;
use std::ffi::{CStr, OsStr};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a run may take and must show.
#[derive(Debug)]
pub struct Limits {
    /// Longer means hung.
    pub time: Duration,
    /// A library that must be seen in the program's mappings.
    pub mapped: Option<PathBuf>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(600), mapped: None }
    }
}

/// What a run was.
#[derive(Debug)]
pub struct Outcome {
    /// Its standard output.
    pub output: String,
    /// Seconds.
    pub wall: f64,
    /// MiB, of the process or the largest child it waited for. A process inherits the peak of
    /// the one that started it, so what is below ours is not known.
    pub rss: Option<f64>,
}

/// Runs to the end. Standard error is shown only in the reason of a failure.
pub fn run(command: &mut Command, limits: Limits) -> Result<Outcome, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{name}: {error}"))?;
    // Read beside the wait, or a talkative program would stand still.
    let (output, errors) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let seen = limits.mapped.as_deref().map(|library| wait_mapped(child.id(), library));
    let ended = wait(&mut child, limits.time.saturating_sub(began.elapsed()));
    let wall = began.elapsed().as_secs_f64();
    let (output, errors) = (collect(output), collect(errors));
    let (status, rss) = ended.ok_or_else(|| format!("{name}: still running after {} s", limits.time.as_secs()))?;
    if status != 0 {
        let how = if libc::WIFSIGNALED(status) {
            format!("ended by signal {}", libc::WTERMSIG(status))
        } else {
            format!("ended with status {}", libc::WEXITSTATUS(status))
        };
        let last = errors.lines().last().map_or_else(String::new, |line| format!(": {line}"));
        return Err(format!("{name}: {how}{last}"));
    }
    if seen == Some(false) {
        return Err(format!("{name}: the preload did not take"));
    }
    // Our own grows slowly, and only that at the start is inherited: a little more is doubtful, too.
    let rss = (rss > own_peak() * 1.1).then_some(rss);
    Ok(Outcome { output, wall, rss })
}

type Reader = Option<std::thread::JoinHandle<String>>;

fn reader(stream: Option<impl std::io::Read + Send + 'static>) -> Reader {
    stream.map(|mut stream| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stream.by_ref().take(64 << 20).read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    })
}

fn collect(reader: Reader) -> String {
    reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
}

/// Our own peak of resident memory in MiB.
fn own_peak() -> f64 {
    mib(Used::by(libc::RUSAGE_SELF).peak)
}

/// Waits for the end; status and peak MiB. `None`: too long, and killed.
pub fn wait(child: &mut Child, most: Duration) -> Option<(i32, f64)> {
    let id = child.id().cast_signed();
    let most = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `child` is not reaped before this function does it, so the id is
    // its own; the structures are filled by the calls.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, id, 0);
        let mut late = false;
        if let Ok(descriptor) = i32::try_from(descriptor)
            && descriptor >= 0
        {
            let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
            late = libc::poll(&raw mut poll, 1, most) == 0;
            libc::close(descriptor);
        }
        if late {
            libc::kill(id, libc::SIGKILL);
        }
        let mut status = 0;
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::wait4(id, &raw mut status, 0, &raw mut usage) != id || late {
            return None;
        }
        Some((status, mib(Used::of(&usage).peak)))
    }
}

/// Watches a process until the library is mapped; `false` if it ended before.
pub fn wait_mapped(pid: u32, library: &Path) -> bool {
    let wanted = std::fs::canonicalize(library).unwrap_or_else(|_| library.to_path_buf());
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        match Maps::of(pid) {
            Ok(maps) if maps.names(&wanted) => return true,
            // A zombie has no mappings: it ended unseen.
            Ok(maps) if maps.is_empty() => return false,
            Ok(_) => std::thread::sleep(Duration::from_micros(200)),
            Err(_) => return false,
        }
    }
    false
}

/// Whether `expect` owns this process's malloc: a path, or the name of a file.
pub fn owns_malloc(expect: &Path) -> Result<(), String> {
    for symbol in [c"malloc", c"free", c"calloc", c"realloc"] {
        let owner = owner(symbol).ok_or_else(|| format!("nobody owns {symbol:?}"))?;
        let same = if expect.as_os_str().as_bytes().contains(&b'/') {
            std::fs::canonicalize(expect).ok() == std::fs::canonicalize(&owner).ok()
        } else {
            owner.file_name() == expect.file_name()
        };
        if !same {
            let symbol = symbol.to_string_lossy();
            return Err(format!(
                "the preload did not take: {symbol} is {}'s, not {}'s",
                owner.display(),
                expect.display()
            ));
        }
    }
    Ok(())
}

/// The file that a symbol of this process comes from.
fn owner(symbol: &CStr) -> Option<PathBuf> {
    // SAFETY: `symbol` ends in NUL; `info` is filled by a call that succeeded,
    // and its name lives as long as the library is loaded.
    unsafe {
        let address = libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr());
        let mut info: libc::Dl_info = std::mem::zeroed();
        if address.is_null() || libc::dladdr(address, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(PathBuf::from(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_output_time_and_memory() {
        let outcome = run(Command::new("sh").args(["-c", "echo hello"]), Limits::default()).expect("runs");
        assert_eq!(outcome.output, "hello\n");
        assert!(outcome.wall > 0.0 && outcome.rss.is_none(), "a small program's peak is ours");
        let grown = run(
            Command::new("sh").args(["-c", "x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo ${#x}"]),
            Limits::default(),
        );
        let grown = grown.expect("runs");
        assert_eq!(grown.output, "100000000\n");
        // (Other tests in this process may have used more.)
        assert!(grown.rss.map_or(own_peak() > 80.0, |rss| rss > 90.0), "{:?}", grown.rss);
    }

    #[test]
    fn failures_are_told() {
        let failed = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"]), Limits::default());
        assert_eq!(failed.expect_err("fails"), "sh: ended with status 3: why");
        let killed = run(Command::new("sh").args(["-c", "kill -9 $$"]), Limits::default());
        assert_eq!(killed.expect_err("fails"), "sh: ended by signal 9");
        let limits = Limits { time: Duration::from_millis(50), ..Limits::default() };
        assert!(run(Command::new("sleep").arg("9"), limits).expect_err("hangs").contains("still running"));
        let limits = Limits { mapped: Some("/nonexistent.so".into()), ..Limits::default() };
        assert!(run(Command::new("sleep").arg("0.05"), limits).expect_err("unmapped").contains("did not take"));
    }

    #[test]
    fn malloc_has_an_owner() {
        assert_eq!(owns_malloc(Path::new("libc.so.6")), Ok(()));
        assert!(owns_malloc(Path::new("libnobody.so")).expect_err("wrong").contains("malloc is"));
    }
}
