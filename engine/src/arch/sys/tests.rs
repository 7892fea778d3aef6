//! Calls that no other test of this room makes: what they do is asked of the system itself.
#![allow(unsafe_code)] // questions to the system

use super::*;
use crate::arch::atomic::{AtomicU32, Ordering::Relaxed};
use crate::arch::tests::{in_a_single_child, on_each_cpu, sleeps_until, status_of_a_child, wakes_two};
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
    type Wait = fn(&AtomicU32);
    let waits: [Wait; 4] = [
        |word| futex_wait(word, 0),
        |word| futex_wait_for(word, 0, 900_000_000),
        |word| futex_wait_shared(word, 0),
        |word| futex_wait_shared_for(word, 0, Some(900_000_000)),
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
    std::thread::spawn(|| {
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
