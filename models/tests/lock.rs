//! The futex lock (`engine/src/arch/lock.rs`), with forks that pass through it.
//!
//! Bound: 3 threads × 3 critical sections, one of them with a fork and two passages in it, and
//! the same with two forking threads; 20,000 schedules each: 2 seconds. The value is right, the others wait, and all end.
#![allow(missing_docs)]

use allotment_models::arch::lock::Lock;
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::{self, Sabotage};
use std::sync::Arc;

/// One more, slowly.
fn add(lock: &Lock<u64>) {
    let mut guard = lock.lock();
    let value = *guard;
    machine::point();
    *guard = value + 1;
}

fn model(forkers: usize) {
    let lock = Arc::new(Lock::new(0_u64));
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let lock = Arc::clone(&lock);
            spawn(move || {
                add(&lock);
                if thread < forkers {
                    lock.fork_begin();
                    assert!(lock.try_lock().is_none(), "VIOLATION: free in a fork");
                    let before = *lock.lock();
                    machine::point();
                    assert!(*lock.lock() == before, "VIOLATION: changed in a fork");
                    add(&lock);
                    lock.fork_end();
                } else {
                    add(&lock);
                }
                add(&lock);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert!(*lock.lock() == 9, "VIOLATION: {}", *lock.lock());
}

fn one_forks() {
    model(1);
}
fn two_fork() {
    model(2);
}

#[test]
fn lock_and_fork() {
    holds("lock, one forks", 1, 20_000, one_forks);
}
#[test]
fn lock_and_two_forks() {
    holds("lock, two fork", 1, 20_000, two_fork);
}
#[test]
fn canary_sleeps_without_looking() {
    fails("lock", 1, 50_000, Sabotage::BlindSleep, one_forks);
}
