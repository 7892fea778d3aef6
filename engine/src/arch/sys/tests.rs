//! Calls that no other test of this room makes: what they do is asked of the system itself.
#![allow(unsafe_code)] // questions to the system

use super::*;
use crate::arch::atomic::{AtomicU32, Ordering::Relaxed};
use crate::arch::crew::Crew;
use crate::arch::tests::{
    in_a_single_child, on_each_cpu, refused, refused_with, sleeps_until, status_of_a_child, wakes_two,
};
use crate::tests::threads;
use std::ffi::CString;
use std::{env, format, fs, process, vec, vec::Vec};

/// A file of a text.
fn file(name: &str, text: &[u8]) -> CString {
    let path = env::temp_dir().join(format!("allotment-sys-{name}-{}", process::id()));
    fs::write(&path, text).unwrap();
    CString::new(path.into_os_string().into_encoded_bytes()).unwrap()
}

#[test]
fn a_thread_knows_its_number_its_cpu_and_its_node() {
    assert_eq!(thread_id(), crate::arch::tests::thread_number() as u32);
    on_each_cpu(|cpu| {
        let (mut own, mut node) = (0_u32, 0_u32);
        // SAFETY: the kernel writes two words.
        unsafe { libc::syscall(libc::SYS_getcpu, &raw mut own, &raw mut node, 0) };
        assert_eq!((current_cpu() as usize, own as usize, current_node()), (cpu, cpu, node));
    });
}

#[test]
fn lines_are_whole_or_left_out() {
    let text = b"one\n\n\ntwo, which is long\nthree\n12345678\n1234567\nfour";
    let naive = |text: &[u8], longest: usize| -> Vec<Vec<u8>> {
        let lines = text.strip_suffix(b"\n").unwrap_or(text).split(|&byte| byte == b'\n');
        lines.filter(|line| line.len() < longest && !text.is_empty()).map(<[u8]>::to_vec).collect()
    };
    for end in 0..=text.len() {
        let text = &text[..end];
        let path = file("lines", text);
        for longest in 1..24 {
            let mut all = vec![];
            lines(&path, &mut vec![0; longest], |line| all.push(line.to_vec()));
            assert_eq!(all, naive(text, longest), "{text:?} {longest}");
        }
        unlink(&path);
    }
    lines(c"/nowhere", &mut [0; 8], |_| unreachable!("there is none"));
}

#[test]
fn what_is_opened_is_not_inherited_and_written_only_if_that_was_asked_for() {
    let path = file("open", b"");
    for writes in [false, true] {
        let file = open(&path, writes).unwrap();
        // SAFETY: a question.
        assert_eq!(unsafe { libc::fcntl(file as i32, libc::F_GETFD) }, libc::FD_CLOEXEC);
        assert_eq!(write(file, b"x"), if writes { Ok(1) } else { Err(Errno::EBADF) });
        close(file);
    }
    unlink(&path);
    assert_eq!(open(&path, false), Err(Errno(libc::ENOENT)));
}

/// Else there would soon be none to have.
#[test]
fn what_is_read_is_closed() {
    let path = file("closed", b"text\n");
    in_a_single_child(|| {
        let few = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: the child's own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
        for _ in 0..100 {
            assert_eq!(slurp(&path, &mut [0; 2]), Ok(&b"te"[..]));
            let mut count = 0;
            lines(&path, &mut [0; 8], |_| count += 1);
            assert_eq!(count, 1);
        }
    });
    unlink(&path);
}

#[test]
fn a_wait_is_slept_until_somebody_wakes_it() {
    /// Some sixty years, in ns.
    const LONG: u64 = 2_000_000_000_000_000_000;
    type Wait = fn(&AtomicU32);
    let waits: [Wait; 4] = [
        |word| futex_wait(word, 0),
        |word| futex_wait_for(word, 0, LONG),
        |word| futex_wait_shared(word, 0),
        |word| futex_wait_shared_for(word, 0, Some(LONG)),
    ];
    for (wait, is_shared) in waits.into_iter().zip([false, false, true, true]) {
        let word = AtomicU32::new(0);
        let waits = || {
            while word.load(Relaxed) == 0 {
                wait(&word);
            }
        };
        let wakes = || {
            word.store(1, Relaxed);
            if is_shared { futex_wake_shared(&word) } else { futex_wake(&word, 1) }
        };
        sleeps_until(waits, wakes);
    }
    let word = AtomicU32::new(0);
    assert!(wakes_two(&word, false, || futex_wake(&word, u32::MAX >> 1)));
    assert!(wakes_two(&word, true, || futex_wake_shared(&word)));
}

#[test]
fn signals_are_blocked_as_long_as_it_lives() {
    const USER: u64 = 1 << 9;
    threads::spawn(|| {
        for mask in [0, USER] {
            set_signals(mask).unwrap();
            let signals = Signals::block();
            // (But those that nobody can block.)
            assert!(signals.are_blocked() && set_signals(u64::MAX) == Ok(!(1 << 8 | 1 << 18)));
            drop(signals);
            assert_eq!(set_signals(mask), Ok(mask));
        }
    })
    .join()
    .unwrap();
}

#[test]
fn a_process_ends_with_its_status() {
    assert_eq!(status_of_a_child(|| exit(true, 7)), 7 << 8);
}

/// A child that runs `body` until it is waited for.
fn child(body: impl FnOnce()) -> i32 {
    // SAFETY: the child makes system calls and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            body();
            libc::_exit(7);
        }
        assert!(child > 0);
        child
    }
}
/// Whether there was such a child to be waited for.
fn is_left(child: i32) -> bool {
    // SAFETY: nothing is written.
    unsafe { libc::waitpid(child, core::ptr::null_mut(), libc::WNOHANG) >= 0 }
}

#[test]
fn a_child_is_waited_for_and_left_or_taken() {
    let (parent, ended) = (process::id(), child(|| ()));
    assert_eq!(wait_and_leave(ended as usize), Ok((libc::CLD_EXITED, 7)));
    assert_eq!(wait_and_leave(ended as usize), Ok((libc::CLD_EXITED, 7)), "it was left");
    wait_for_dead(ended as usize);
    assert!(!is_left(ended), "it was taken");
    assert_eq!(wait_and_leave(ended as usize), Err(Errno(libc::ECHILD)));
    // SAFETY: the child stops itself.
    let stopped = child(|| _ = unsafe { libc::raise(libc::SIGSTOP) });
    assert_eq!(wait_and_leave(stopped as usize), Ok((libc::CLD_STOPPED, libc::SIGSTOP)));
    wait_for_dead(stopped as usize);
    assert!(is_left(stopped), "it lives");
    // SAFETY: the test's own child.
    unsafe { libc::kill(stopped, libc::SIGCONT) };
    wait_for(stopped as usize);
    assert!(!is_left(stopped));
    assert_eq!(status_of_a_child(|| assert_eq!(parent_pid(), parent)), 0);
    assert_eq!(pid(), parent);
    // SAFETY: the child sleeps until it is killed.
    let sleeps = child(|| _ = unsafe { libc::sleep(100) });
    // SAFETY: as above.
    sleeps_until(|| wait_for(sleeps as usize), || _ = unsafe { libc::kill(sleeps, libc::SIGKILL) });
    assert!(!is_left(sleeps));
    // (A system that says again and again that a signal came is not believed.)
    refused(libc::SYS_wait4, 4, || wait_for(1));
}

static CAME: AtomicU32 = AtomicU32::new(0);

extern "C" fn comes(_: i32) {
    CAME.store(1, Relaxed);
}

#[test]
fn a_signal_does_not_end_the_wait_for_a_child() {
    in_a_single_child(|| {
        // SAFETY: the child's own; a handler that stores a word.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = comes as *const () as usize;
            libc::sigaction(libc::SIGUSR2, &raw const action, core::ptr::null_mut());
        }
        // SAFETY: it sleeps until it is killed.
        let sleeps = child(|| _ = unsafe { libc::sleep(100) });
        let thread = AtomicU32::new(0);
        let waits = || {
            thread.store(thread_id(), Relaxed);
            wait_for(sleeps as usize);
        };
        let interrupts = || {
            // SAFETY: it has a handler.
            unsafe { libc::syscall(libc::SYS_tgkill, pid(), thread.load(Relaxed), libc::SIGUSR2) };
            while CAME.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
            // SAFETY: the test's own child.
            unsafe { libc::kill(sleeps, libc::SIGKILL) };
        };
        sleeps_until(waits, interrupts);
        assert!(!is_left(sleeps));
    });
}

#[test]
fn a_traced_process_is_seized_and_let_go() {
    const SEIZE: usize = 0x4206;
    // SAFETY: the child sleeps until it is killed.
    let traced = child(|| _ = unsafe { libc::sleep(100) });
    let seized = trace(SEIZE, traced as usize, 0);
    assert!(trace(SEIZE, traced as usize, 1 << 30).is_err(), "no such option, or seized already");
    // SAFETY: the test's own child.
    unsafe { libc::kill(traced, libc::SIGKILL) };
    assert_eq!(wait_and_leave(traced as usize), Ok((libc::CLD_KILLED, libc::SIGKILL)));
    wait_for_dead(traced as usize);
    assert!(!is_left(traced));
    assert!(matches!(seized, Ok(_) | Err(Errno::EPERM)));
}

#[test]
fn a_thread_may_have_files_and_a_directory_of_its_own() {
    let file = open(c"/proc/self/stat", false).unwrap();
    let before = env::current_dir().unwrap();
    let own = threads::spawn(move || {
        let shared = read(file, &mut [0; 1]);
        let own = own_files();
        assert_eq!((shared, read(file, &mut [0; 1]).is_err()), (Ok(1), own.is_ok()));
        own_root();
        env::current_dir().unwrap()
    });
    let own = own.join().unwrap();
    assert_eq!((read(file, &mut [0; 1]), env::current_dir().unwrap()), (Ok(1), before));
    close(file);
    // (Where the system lets it.)
    assert!(own.as_os_str() == "/" || unshare(0x200).is_err());
    in_a_single_child(|| {
        refused(libc::SYS_unshare, 1, own_root);
        assert_ne!(env::current_dir().unwrap().as_os_str(), "/");
    });
}

#[test]
fn a_program_without_a_name_may_be_executed_and_is_not_inherited() {
    let Ok(file) = nameless_program() else { return };
    let mut status = [0_u32; 1];
    // SAFETY: the status goes where it may.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        assert_eq!(libc::fstat(file as i32, &raw mut stat), 0);
        status[0] = stat.st_mode & 0o111;
        assert_eq!(libc::fcntl(file as i32, libc::F_GETFD), libc::FD_CLOEXEC);
    }
    assert_eq!((status, write(file, b"x")), ([0o111], Ok(1)));
    close(file);
    // Where the flag is unknown, without it; and what is refused is.
    const FLAGS: u32 = 1 | 16;
    for (errno, is_made) in [(22, true), (13, false)] {
        if let Some(made) = refused_with(libc::SYS_memfd_create, Some(FLAGS), errno, nameless_program) {
            assert_eq!(made.is_ok(), is_made, "{made:?}");
            made.map_or_else(|error| assert_eq!(error, Errno(errno as i32)), close);
        }
    }
    if let Some(made) = refused(libc::SYS_memfd_create, 22, nameless_program) {
        assert_eq!(made, Err(Errno::EINVAL));
    }
}

#[test]
fn who_leaves_its_session_leads_one_and_is_nowhere() {
    in_a_single_child(|| {
        leave_session();
        // SAFETY: a question.
        assert_eq!(unsafe { libc::getsid(0) }, pid() as i32);
        assert_eq!(env::current_dir().unwrap().as_os_str(), "/");
    });
}

static CREW: Crew = Crew::new();
static GO: AtomicU32 = AtomicU32::new(0);

extern "C" fn stays(_: usize) -> ! {
    while GO.load(Relaxed) == 0 {
        futex_wait(&GO, 0);
    }
    exit(false, 0)
}
extern "C" fn outlives(_: usize) -> ! {
    while leader_lives() {
        futex_wait_for(&GO, 0, 1_000_000);
    }
    exit(true, 40 + leader_status())
}

#[test]
#[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
fn tasks_are_counted_and_a_dead_leader_is_known() {
    in_a_single_child(|| {
        // SAFETY: questions.
        let owner = unsafe { [libc::geteuid(), libc::getegid()] };
        let told = tasks();
        let of = |count| told.map(|_| Tasks { count, owner });
        assert!(told == of(1) && leader_lives());
        assert_eq!(told.is_some(), fs::exists("/proc/self/task").unwrap());
        CREW.start(stays).unwrap();
        assert_eq!(tasks(), of(2));
        GO.store(1, Relaxed);
        futex_wake(&GO, 1);
        assert!(CREW.wait_gone(10_000));
        assert_eq!(tasks(), of(1));
    });
    let status = status_of_a_child(|| {
        CREW.start(outlives).unwrap();
        exit(false, 2)
    });
    assert_eq!(status, 42 << 8);
}

/// A pipe's ends: to be read from, to be written to.
fn pipe() -> [usize; 2] {
    let mut ends = [0; 2];
    // SAFETY: two descriptors go where they may.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) }, 0);
    ends.map(|end| end as usize)
}

#[test]
fn what_takes_a_write_neither_is_full_nor_has_no_reader() {
    // (Alone: a child that another test's thread forks would have the pipe's readers, too.)
    in_a_single_child(|| {
        let [from, to] = pipe();
        assert!(takes(to) && !takes(from) && takes(usize::MAX >> 40));
        while write(to, &[0; 4096]).is_ok() {}
        assert!(!takes(to));
        while read(from, &mut [0; 4096]).is_ok() {}
        assert!(takes(to));
        close(from);
        assert!(!takes(to), "SIGPIPE");
    });
}

#[test]
fn a_complaint_goes_to_standard_error_of_whoever_has_it() {
    let path = file("complaint", b"");
    in_a_single_child(|| {
        let file = open(&path, true).unwrap();
        // SAFETY: the child's own.
        assert_eq!(unsafe { libc::dup2(file as i32, 2) }, 2);
        complain(b"of the program\n");
        threads::spawn(|| {
            let own = own_files().is_ok();
            assert_eq!(write(2, b""), if own { Err(Errno::EBADF) } else { Ok(0) });
            complain(b"of a thread\n");
            complain(b"and again\n");
            // (What was opened for it is closed.)
            assert!(!own || open(c"/proc/self/stat", false).is_ok_and(|file| file == 0));
        })
        .join()
        .unwrap();
        let mut text = [0; 64];
        assert_eq!(slurp(&path, &mut text), Ok(&b"of the program\nof a thread\nand again\n"[..]));
    });
    unlink(&path);
}

#[test]
fn a_private_file_is_new_its_owners_alone_and_of_its_length() {
    use std::os::unix::fs::MetadataExt;
    let path = file("private", b"of an earlier process");
    let name = path.to_str().unwrap();
    let before = fs::File::open(name).unwrap();
    let made = create_private(&path, 8192).unwrap();
    let status = fs::metadata(name).unwrap();
    assert_eq!((status.len(), status.blocks(), status.mode() & 0o777), (8192, 0, 0o600));
    assert_eq!(before.metadata().unwrap().nlink(), 0, "whoever has the other keeps it");
    assert_eq!((write(made, b"x"), read(made, &mut [1; 2])), (Ok(1), Ok(2)));
    close(made);
    if let Some(made) = refused(libc::SYS_ftruncate, 28, || create_private(&path, 1)) {
        assert_eq!((made, fs::exists(name).unwrap()), (Err(Errno(28)), false));
    }
    in_a_single_child(|| {
        let next = || {
            let next = open(c"/proc/self/stat", false).unwrap();
            close(next);
            next
        };
        let before = next();
        refused(libc::SYS_ftruncate, 28, || create_private(&path, 1));
        assert_eq!(next(), before, "it was closed");
    });
    assert_eq!(create_private(c"/proc", 1), Err(Errno::EEXIST));
    in_a_single_child(|| {
        let limit = libc::rlimit { rlim_cur: 8192, rlim_max: 8192 };
        // SAFETY: the child's own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        assert_eq!(create_private(&path, 8193), Err(Errno::EFBIG));
        assert!(create_private(&path, 8192).is_ok());
    });
    unlink(&path);
    assert!(!fs::exists(name).unwrap());
    // No link is followed, and none replaced but by its own name.
    std::os::unix::fs::symlink("/proc/self/exe", name).unwrap();
    assert_eq!(link(&path, &mut [0; 64]), Ok(&b"/proc/self/exe"[..]));
    assert_eq!(link(&path, &mut [0; 5]), Ok(&b"/proc"[..]));
    close(create_private(&path, 1).unwrap());
    assert!(link(&path, &mut [0; 64]).is_err() && fs::metadata(name).unwrap().len() == 1);
    unlink(&path);
}

#[test]
fn a_signal_is_waited_for() {
    let set = 1_u64 << (libc::SIGUSR2 - 1);
    threads::spawn(move || {
        set_signals(set).unwrap();
        assert!(!signal_wait(set, 1000));
        // SAFETY: blocked, so that nobody is interrupted.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
        assert!(signal_wait(set, 1000) && !signal_wait(set, 1000));
    })
    .join()
    .unwrap();
    let thread = AtomicU32::new(0);
    let waits = || {
        set_signals(set).unwrap();
        thread.store(thread_id(), Relaxed);
        signal_wait(set, 2_000_000_000_000_000_000)
    };
    let sends = || {
        // SAFETY: blocked there.
        unsafe { libc::syscall(libc::SYS_tgkill, pid(), thread.load(Relaxed), libc::SIGUSR2) };
    };
    assert!(sleeps_until(waits, sends));
}

#[test]
fn the_machines_memory_is_what_it_says() {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = told.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    assert!(total.is_none_or(|total: u64| memory_bytes() == total * 1024));
    if let Some(told) = refused(libc::SYS_sysinfo, 38, memory_bytes) {
        assert_eq!(told, 0);
    }
}
