//! What tests of this room share: children, threads that sleep, filters of system calls.
#![allow(unsafe_code, missing_docs)] // children and filters

use super::atomic::{AtomicU32, Ordering::Relaxed};
use super::sys;
use crate::tests::threads;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::{format, fs, mem, thread, vec::Vec};

/// What `wait` says of a child that runs `body`, where it is the only thread: 0 if it holds.
pub fn status_of_a_child(body: impl FnOnce()) -> i32 {
    // SAFETY: the C library's locks are fit for use in a child; it ends here, whatever happens in it.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let holds = catch_unwind(AssertUnwindSafe(body)).is_ok();
        // SAFETY: ends the child.
        unsafe { libc::_exit(if holds { 0 } else { 101 }) };
    }
    let mut status = -1;
    // SAFETY: the status is written where it may be.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// `body` in a child that is a program of one thread.
pub fn in_a_single_child(body: impl FnOnce()) {
    let child = || {
        sys::be_single();
        body();
    };
    assert_eq!(status_of_a_child(child), 0);
}

/// The calling thread's number.
pub fn thread_number() -> i32 {
    // SAFETY: a question.
    unsafe { libc::gettid() }
}

/// Whether a thread of this process sleeps; `None` if it has ended.
fn sleeps(thread: i32) -> Option<bool> {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    Some(stat.rsplit(')').next()?.trim_start().starts_with('S'))
}

/// Whether a thread of this process comes to sleep: not if it ends first, nor if it never does.
pub fn comes_to_sleep(thread: i32) -> bool {
    // (Looks, and no time: a thread that does not get a CPU meanwhile makes these no less.)
    for _ in 0..200_000 {
        match sleeps(thread) {
            Some(false) => thread::yield_now(),
            Some(true) => return true,
            None => return false,
        }
    }
    false
}

/// Runs `call` in a thread of its own, where it is to sleep until `then` was run.
pub fn sleeps_until<T: Send>(call: impl FnOnce() -> T + Send, then: impl FnOnce()) -> T {
    threads::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let thread = scope.spawn(move || {
            tell.send(thread_number()).expect("somebody waits");
            call()
        });
        let slept = comes_to_sleep(told.recv().expect("it begins"));
        then();
        let result = thread.join().expect("it returns");
        assert!(slept, "it did not sleep");
        result
    })
}

/// Whether `wake` wakes two threads that sleep at `word` (as words of this process are slept at, or `shared`).
pub fn wakes_two(word: &AtomicU32, shared: bool, wake: impl FnOnce()) -> bool {
    let operation = if shared { 0 } else { 128 };
    let (value, woken) = (word.load(Relaxed), AtomicU32::new(0));
    threads::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        for _ in 0..2 {
            let (tell, woken) = (tell.clone(), &woken);
            scope.spawn(move || {
                tell.send(thread_number()).expect("somebody waits");
                // (Who is not woken is to end, too.)
                let long = libc::timespec { tv_sec: 10, tv_nsec: 0 };
                // SAFETY: the kernel reads the word and the time.
                if unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, &raw const long) } == 0 {
                    woken.fetch_add(1, Relaxed);
                }
            });
        }
        let threads: Vec<_> = (0..2).map(|_| told.recv().expect("they begin")).collect();
        assert!(threads.into_iter().all(comes_to_sleep));
        wake();
    });
    woken.load(Relaxed) == 2
}

/// Runs `body` in a thread whose system call `number` is refused with `errno`. (Where there are no filters it is not run.)
pub fn refused<T: Send>(number: i64, errno: u32, body: impl FnOnce() -> T + Send) -> Option<T> {
    refused_with(number, None, errno, body)
}

/// The same, with this second argument only, if one is given.
pub fn refused_with<T: Send>(
    number: i64,
    second: Option<u32>,
    errno: u32,
    body: impl FnOnce() -> T + Send,
) -> Option<T> {
    const ERRNO: u32 = 0x0005_0000;
    let filtered = move || {
        let is_set = filter(number, second, ERRNO | errno);
        if !is_set {
            std::eprintln!("skipped: no filters here");
        }
        is_set.then(body)
    };
    threads::scope(|scope| scope.spawn(filtered).join().expect("no panic"))
}

/// Runs `body` in a child that ends where it makes the system call `number`.
pub fn fatal(number: i64, body: impl FnOnce()) {
    const KILL_PROCESS: u32 = 0x8000_0000;
    let child = || {
        if filter(number, None, KILL_PROCESS) {
            body();
        }
    };
    assert_eq!(status_of_a_child(child), 0);
}

/// From now on the system call `number` (with this second argument) of this thread ends so; false where there are no filters.
fn filter(number: i64, second: Option<u32>, action: u32) -> bool {
    const NO_NEW_PRIVILEGES: i32 = 38;
    const FILTER: i32 = 22;
    const LOAD: u16 = 0x20;
    const AND: u16 = 0x54;
    const EQUAL: u16 = 0x15;
    const ANSWER: u16 = 6;
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut code = [
        step(LOAD, 0, 0),
        step(EQUAL, 4, number as u32),
        step(LOAD, 0, 24),
        // (Any, if none is given.)
        step(AND, 0, if second.is_some() { u32::MAX } else { 0 }),
        step(EQUAL, 1, second.unwrap_or(0)),
        step(ANSWER, 0, action),
        step(ANSWER, 0, 0x7fff_0000),
    ];
    let filter = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    // SAFETY: this thread alone gets a filter, which lives through the call.
    unsafe { libc::prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 && libc::prctl(FILTER, 2, &raw const filter) == 0 }
}

/// Runs `body` in a thread on each CPU that this one may run on.
pub fn on_each_cpu(body: impl Fn(usize) + Sync) {
    // SAFETY: zero is an empty set; the kernel fills it.
    let all = unsafe {
        let mut all: libc::cpu_set_t = mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&all), &raw mut all), 0);
        all
    };
    threads::scope(|scope| {
        // SAFETY: looks at a bit of the set.
        for cpu in (0..1024).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &all) }) {
            let body = &body;
            scope.spawn(move || {
                // SAFETY: a set of one, for this thread.
                let is_there = unsafe {
                    let mut one: libc::cpu_set_t = mem::zeroed();
                    libc::CPU_SET(cpu, &mut one);
                    libc::sched_setaffinity(0, size_of_val(&one), &raw const one) == 0
                };
                if is_there {
                    body(cpu);
                }
            });
        }
    });
}

/// A file of this process, as text.
pub fn of_this_process(name: &str) -> String {
    fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default()
}
