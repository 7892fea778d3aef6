//! A program run under a tracer that refuses single system calls of one library, as a kernel would: the call is not
//! made, and its error is what the caller sees.
//!
//! ```text
//! program ── enters a call ──► tracer: is the instruction the library's? is it this one's turn?
//!            not made ◄── yes: the number is taken away         no ──► made
//!         ── leaves it ──────► tracer: the error is put in its place
//! ```
//! A call belongs to whom its instruction belongs: the engine's are in the middle of its own code. A [`Site`] is such an
//! instruction, by its place in the library's file, and what the call does; it is the same from run to run.
//!
//! The tracer is the calling thread, and waits for its own tracees alone: several run side by side. Threads and forked
//! children are traced, too; another program that a child becomes is let go. A run ends when all of them have ended.
#![allow(unsafe_code)] // ptrace and waitpid, which std does not have

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::ops::Range;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// What a call does, as far as it matters here: `madvise DONTNEED`.
pub type Name = String;
/// Where the library makes a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub name: Name,
    /// The call's.
    pub number: u64,
    /// Of the instruction, in the library's file.
    pub offset: u64,
}

/// Which calls are refused.
#[derive(Clone, Debug)]
pub enum Which {
    None,
    /// The one of this number (from 1) at a place.
    One(Site, u32),
    /// This one and all later ones there.
    From(Site, u32),
    /// All that do this.
    All(Name),
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Exit(i32),
    Signal(i32),
    /// Not at all; where its threads were.
    Hang(String),
}

/// What there is to say of it.
#[derive(Debug)]
pub struct Run {
    pub end: End,
    pub out: String,
    pub err: String,
    /// How often each place was passed.
    pub sites: BTreeMap<Site, u32>,
    /// Calls that were refused.
    pub refused: u32,
}

/// Runs `command`; the calls of the library whose path is `library` are refused with `errno` as `which` says. An error
/// where this process may trace nobody.
pub fn run(
    mut command: Command,
    library: &Path,
    which: &Which,
    errno: i32,
    hang: Duration,
    scratch: &Path,
) -> io::Result<Run> {
    let file = |name: &str| {
        let name = format!("{name}-{:?}", std::thread::current().id());
        File::options().read(true).write(true).create(true).truncate(true).open(scratch.join(name))
    };
    let (mut out, mut err) = (file("out")?, file("err")?);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(err.try_clone()?);
    // SAFETY: between fork and exec one system call is made that touches no memory.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let first = command.spawn()?.id() as i32;
    let alive = Arc::new(Mutex::new(BTreeSet::from([first])));
    let (ended, watched) = mpsc::channel::<()>();
    let watch = std::thread::spawn({
        let alive = Arc::clone(&alive);
        move || matches!(watched.recv_timeout(hang), Err(mpsc::RecvTimeoutError::Timeout)).then(|| stop(&lock(&alive)))
    });
    let mut tracer = Tracer {
        first,
        library,
        which,
        errno,
        alive,
        ours: None,
        others: vec![],
        due: BTreeSet::new(),
        sites: BTreeMap::new(),
        refused: 0,
    };
    let status = tracer.trace();
    drop(ended);
    let hung = watch.join().expect("the watch");
    let end = match hung {
        Some(threads) => {
            let (site, count) =
                tracer.sites.iter().max_by_key(|one| one.1).map_or((None, 0), |one| (Some(one.0), *one.1));
            End::Hang(format!("{threads}  most calls: {count} of {site:?}"))
        }
        None if libc::WIFSIGNALED(status) => End::Signal(libc::WTERMSIG(status)),
        None => End::Exit(libc::WEXITSTATUS(status)),
    };
    let text = |file: &mut File| {
        let mut bytes = vec![];
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(Run { end, out: text(&mut out)?, err: text(&mut err)?, sites: tracer.sites, refused: tracer.refused })
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says where these threads are, and kills them.
fn stop(threads: &BTreeSet<i32>) -> String {
    let said = threads.iter().map(|id| {
        let read = |name| fs::read_to_string(format!("/proc/{id}/{name}")).unwrap_or_default().trim().to_owned();
        format!("  {id} {} {} [{}]\n", read("comm"), read("wchan"), read("syscall"))
    });
    let said = said.collect();
    for &id in threads {
        // SAFETY: a thread of the traced program, which the tracer has not yet counted out.
        unsafe { libc::kill(id, libc::SIGKILL) };
    }
    said
}

struct Tracer<'a> {
    first: i32,
    library: &'a Path,
    which: &'a Which,
    errno: i32,
    alive: Arc<Mutex<BTreeSet<i32>>>,
    /// Where the library's code is mapped, and what from there to the place in its file.
    ours: Option<(Range<u64>, u64)>,
    /// Other code.
    others: Vec<Range<u64>>,
    /// Threads in a call that was refused.
    due: BTreeSet<i32>,
    sites: BTreeMap<Site, u32>,
    refused: u32,
}

impl Tracer<'_> {
    /// Until nobody is left; the status of the first process.
    fn trace(&mut self) -> i32 {
        let (mut end, mut begun) = (0, false);
        loop {
            let mut status = 0;
            // SAFETY: waits for the children and tracees of this thread alone.
            let id = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
            if id < 0 {
                match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    _ => return end,
                }
            }
            if !libc::WIFSTOPPED(status) {
                lock(&self.alive).remove(&id);
                if id == self.first {
                    end = status;
                }
                continue;
            }
            let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
            let deliver = if signal == libc::SIGTRAP | 0x80 {
                self.at_call(id);
                0
            } else if !begun {
                // Its own `exec`.
                begun = true;
                let options = libc::PTRACE_O_TRACESYSGOOD
                    | libc::PTRACE_O_TRACECLONE
                    | libc::PTRACE_O_TRACEFORK
                    | libc::PTRACE_O_TRACEVFORK
                    | libc::PTRACE_O_TRACEEXEC
                    | libc::PTRACE_O_EXITKILL;
                // SAFETY: options of a stopped tracee.
                unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, id, 0, options) };
                0
            } else if event == libc::PTRACE_EVENT_EXEC {
                lock(&self.alive).remove(&id);
                // SAFETY: a stopped tracee.
                unsafe { libc::ptrace(libc::PTRACE_DETACH, id, 0, 0) };
                continue;
            } else if event != 0 {
                0
            } else if lock(&self.alive).insert(id) && signal == libc::SIGSTOP {
                // A new one's first stop.
                0
            } else {
                signal
            };
            // SAFETY: a stopped tracee goes on to its next call.
            unsafe { libc::ptrace(libc::PTRACE_SYSCALL, id, 0, deliver) };
        }
    }

    /// A thread enters a call, or leaves it.
    fn at_call(&mut self, id: i32) {
        const RAX: usize = 10 * 8;
        const ORIG_RAX: usize = 15 * 8;
        // SAFETY: all-zero bytes are valid; the kernel writes at most its size.
        let info = unsafe {
            let mut info: libc::ptrace_syscall_info = std::mem::zeroed();
            if libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, id, size_of_val(&info), &raw mut info) <= 0 {
                return; // It was killed.
            }
            info
        };
        if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
            let Some(offset) = self.offset(id, info.instruction_pointer) else { return };
            // SAFETY: at an entry this is what the kernel wrote.
            let entry = unsafe { info.u.entry };
            let Some(name) = name(entry.nr, &entry.args) else { return };
            let site = Site { name, number: entry.nr, offset };
            let count = self.sites.entry(site.clone()).or_default();
            *count += 1;
            let now = match self.which {
                Which::None => false,
                Which::One(at, number) => *at == site && *number == *count,
                Which::From(at, number) => *at == site && *number <= *count,
                Which::All(name) => *name == site.name,
            };
            if now {
                self.refused += 1;
                self.due.insert(id);
                // SAFETY: a register of a stopped tracee; no call has this number.
                unsafe { libc::ptrace(libc::PTRACE_POKEUSER, id, ORIG_RAX, -1_i64) };
            }
        } else if self.due.remove(&id) {
            // SAFETY: as above.
            unsafe { libc::ptrace(libc::PTRACE_POKEUSER, id, RAX, -i64::from(self.errno)) };
        }
    }

    /// Where in the library's file an instruction is, if it is there. (What is mapped once stays: nothing is unloaded,
    /// and forked children have it at the same place.)
    fn offset(&mut self, id: i32, at: u64) -> Option<u64> {
        if self.ours.is_none() && !self.others.iter().any(|range| range.contains(&at)) {
            for line in fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default().lines() {
                let mut words = line.split_whitespace();
                let number = |word: &str| u64::from_str_radix(word, 16).ok();
                let range = words.next().and_then(|word| word.split_once('-'));
                let range = range.and_then(|(start, end)| Some(number(start)?..number(end)?));
                let (Some(range), Some(access), Some(offset)) = (range, words.next(), words.next()) else { continue };
                if !access.contains('x') {
                    continue;
                }
                if words.nth(2).map(Path::new) == Some(self.library) {
                    let offset = number(offset).unwrap_or(0);
                    self.ours = Some((range.clone(), offset.wrapping_sub(range.start)));
                } else if !self.others.contains(&range) {
                    self.others.push(range);
                }
            }
        }
        let (range, add) = self.ours.as_ref()?;
        range.contains(&at).then(|| at.wrapping_add(*add))
    }
}

/// What a call does; nothing for those that are never refused.
fn name(number: u64, arguments: &[u64; 6]) -> Option<Name> {
    let [_, b, c, d, ..] = *arguments;
    let one_of = |names: &[(u64, &str)], value: u64| {
        names.iter().find(|one| one.0 == value).map_or_else(|| value.to_string(), |one| one.1.to_owned())
    };
    let name = match number as i64 {
        // No kernel refuses these, to nobody: a task ends, a waiter is woken.
        libc::SYS_exit | libc::SYS_exit_group | libc::SYS_restart_syscall => return None,
        libc::SYS_futex => match b & 127 {
            1 => return None,
            0 if d == 0 => "futex wait",
            0 => "futex wait for",
            4 => "futex compare",
            _ => "futex",
        },
        libc::SYS_mmap => match d {
            _ if d & 1 != 0 => "mmap of a file",
            _ if d & 0x10 != 0 => "mmap over",
            _ => "mmap",
        },
        libc::SYS_madvise => {
            let advice =
                [(4, "DONTNEED"), (14, "HUGEPAGE"), (15, "NOHUGEPAGE"), (18, "WIPEONFORK"), (19, "KEEPONFORK")];
            let more = [(23, "POPULATE_WRITE"), (24, "DONTNEED_LOCKED"), (102, "GUARD_INSTALL"), (103, "GUARD_REMOVE")];
            return Some(format!("madvise {}", one_of(&[&advice[..], &more].concat(), c)));
        }
        libc::SYS_membarrier => {
            let commands =
                [(0, "QUERY"), (8, "PRIVATE"), (16, "REGISTER_PRIVATE"), (128, "RSEQ"), (256, "REGISTER_RSEQ")];
            return Some(format!("membarrier {}", one_of(&commands, arguments[0])));
        }
        libc::SYS_prctl => {
            return Some(format!(
                "prctl {}",
                one_of(&[(15, "NAME"), (38, "NO_NEW_PRIVS"), (0x5961_6d61, "PTRACER")], arguments[0])
            ));
        }
        libc::SYS_mremap => match d {
            0 => "mremap in place",
            1 => "mremap again",
            _ => "mremap move",
        },
        libc::SYS_mprotect => "mprotect",
        libc::SYS_munmap => "munmap",
        libc::SYS_process_madvise => "process_madvise",
        libc::SYS_rt_sigprocmask => "rt_sigprocmask",
        libc::SYS_rt_sigtimedwait => "rt_sigtimedwait",
        libc::SYS_openat => "openat",
        libc::SYS_read => "read",
        libc::SYS_write => "write",
        libc::SYS_close => "close",
        libc::SYS_close_range => "close_range",
        libc::SYS_ftruncate => "ftruncate",
        libc::SYS_unlinkat => "unlinkat",
        libc::SYS_readlinkat => "readlinkat",
        libc::SYS_statx => "statx",
        libc::SYS_getdents64 => "getdents64",
        libc::SYS_chdir => "chdir",
        libc::SYS_wait4 => "wait4",
        libc::SYS_waitid => "waitid",
        libc::SYS_ptrace => "ptrace",
        libc::SYS_memfd_create => "memfd_create",
        libc::SYS_setsid => "setsid",
        libc::SYS_clone => "clone",
        libc::SYS_vfork => "vfork",
        libc::SYS_unshare => "unshare",
        libc::SYS_rseq => "rseq",
        libc::SYS_getpid => "getpid",
        libc::SYS_getppid => "getppid",
        libc::SYS_gettid => "gettid",
        libc::SYS_tgkill => "tgkill",
        libc::SYS_prlimit64 => "prlimit64",
        libc::SYS_sched_getaffinity => "sched_getaffinity",
        libc::SYS_sysinfo => "sysinfo",
        libc::SYS_clock_gettime => "clock_gettime",
        libc::SYS_mbind => "mbind",
        libc::SYS_get_mempolicy => "get_mempolicy",
        other => return Some(format!("call {other}")),
    };
    Some(name.to_owned())
}
