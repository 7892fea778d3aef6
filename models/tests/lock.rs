//! The futex lock (`engine/src/arch/lock.rs`).
//!
//! Bound: 3 threads × 3 critical sections; 20,000 schedules for either way to take it: 4 seconds. The value is right, and all end.
#![allow(missing_docs)]

use allotment_models::arch::lock::Lock;
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::{self, Sabotage};
use std::sync::Arc;

/// One more, slowly.
fn add(lock: &Lock<u64>, brief: bool) {
    let mut guard = if brief { lock.lock_brief() } else { lock.lock() };
    let value = *guard;
    machine::point();
    *guard = value + 1;
}

fn model(brief: bool) {
    let lock = Arc::new(Lock::new(0_u64));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let lock = Arc::clone(&lock);
            spawn(move || (0..3).for_each(|_| add(&lock, brief)))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert!(*lock.lock() == 9, "VIOLATION: {}", *lock.lock());
}

#[test]
fn counts() {
    holds("lock", 1, 20_000, || model(false));
}
#[test]
fn counts_briefly() {
    holds("brief lock", 1, 20_000, || model(true));
}
#[test]
fn canary_sleeps_without_looking() {
    fails("lock", 1, 50_000, Sabotage::BlindSleep, || model(false));
}
