//! Level and quota counters (DESIGN 6; `engine/src/counter`, `engine/src/percpu/units.rs`) on a machine whose threads
//! are preempted anywhere and whose stores wait.
//!
//! Bound: level: 2 counting threads × 6 steps, a folder and a reader on 2 CPUs whose indices move, threshold 2;
//! quota: 3 threads × 5 operations on a limit of 4 with batches of 1; both also in mode `Fallback`; a fork closes
//! and reopens meanwhile. What is checked: nothing is lost, a comparison that decides is right, the limit
//! is never exceeded, and a refusal had a moment at which it was true. 70,000 schedules: 10 seconds in release.
//! (All interleavings of the level's protocol without store buffers are walked in `engine/src/tests/level_states.rs`,
//! with a canary for the spills in flight.)
#![allow(unsafe_code, missing_docs)]

use allotment_models::arch::rseq;
use allotment_models::arch::seq::RseqArea;
use allotment_models::counter::Quota;
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::{self, Sabotage};
use allotment_models::percpu::units::{Handle, UNIT, Units};
use allotment_models::stat::Mode;
use core::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

const INDICES: usize = 2;

/// Open units and an allocation. (An area at 0 is none.)
fn units(mode: Mode) -> (Arc<Units>, Handle) {
    let units = Arc::new(Units::new());
    let area = RseqArea { base: 64, index: rseq::INDEX };
    // SAFETY: first of all, with the machine's area.
    unsafe { units.open(mode, area, INDICES, None) };
    let base = machine::mapping((INDICES + 1) * UNIT, 4096);
    // SAFETY: in unit 0 of zeroed memory for as long as the schedule lasts.
    (units, unsafe { Handle::new(NonZeroUsize::new(base).expect("an address")) })
}

/// The models of level counters, over the engine's and over broken ones.
macro_rules! level_models {
    ($name:ident: $($level:ident)::*) => {
        mod $name {
            use super::*;
            use $($level)::*::{Comparison, Level};

            fn deltas(thread: usize) -> [i64; 6] {
                if thread == 0 { [1, 1, 2, 1, 1, 1] } else { [2, 1, 1, 3, 1, 2] }
            }

            pub fn model(mode: Mode, forks: bool) {
                let (units, at) = units(mode);
                // SAFETY: an allocation of its own.
                let counter = Arc::new(unsafe { Level::new(at, 2, 1) });
                let (begun, ended) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
                let owners: Vec<_> = (0..2)
                    .map(|thread| {
                        let (units, counter) = (Arc::clone(&units), Arc::clone(&counter));
                        let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
                        spawn(move || {
                            for delta in deltas(thread) {
                                begun.fetch_add(delta, SeqCst);
                                counter.add(&units, delta);
                                machine::flush();
                                ended.fetch_add(delta, SeqCst);
                            }
                        })
                    })
                    .collect();
                let folder = {
                    let (units, counter) = (Arc::clone(&units), Arc::clone(&counter));
                    spawn(move || {
                        for round in 0..3 {
                            counter.fold(&units);
                            if forks && round == 1 {
                                assert!(units.fork_begin(u32::MAX));
                                machine::point();
                                counter.add(&units, 1);
                                units.fork_end(false, 0);
                                counter.add(&units, -1);
                            }
                        }
                    })
                };
                for round in 0..4 {
                    // It only grows (but for the fork's one): between what had ended and what had begun.
                    let before = ended.load(SeqCst);
                    let value = before + [1, 13, -9, 9][round];
                    let told = counter.compare(&units, value);
                    let after = begun.load(SeqCst) + i64::from(forks);
                    match told {
                        Comparison::Less => assert!(before < value, "VIOLATION: {before} is not less than {value}"),
                        Comparison::Greater => assert!(after > value, "VIOLATION: {after} is not greater than {value}"),
                        Comparison::CannotTell => {}
                    }
                }
                owners.into_iter().for_each(|owner| owner.join().expect("no panic"));
                folder.join().expect("no panic");
                let expected: i64 = (0..2).flat_map(deltas).sum();
                let got = counter.exact(&units);
                assert!(got == expected, "VIOLATION: {got} were counted of {expected}");
                let error = (counter.approximate() - expected).unsigned_abs();
                assert!(error <= 2 * 2 * (INDICES as u64 + 1), "VIOLATION: off by {error}");
                counter.fold(&units);
                assert!(counter.approximate() == expected, "VIOLATION: folded {}", counter.approximate());
            }
            pub fn sequences() {
                model(Mode::Sequences, false);
            }
            #[allow(dead_code)] // the engine's own only
            pub fn fallback() {
                model(Mode::Fallback, false);
            }
            #[allow(dead_code)] // the engine's own only
            pub fn forks() {
                model(Mode::Sequences, true);
            }
        }
    };
}
level_models!(level: allotment_models::counter::level);
level_models!(folder_writes: allotment_models::level_folder_writes);

#[test]
fn level_counts_and_folds() {
    holds("level, sequences", 2, 20_000, level::sequences);
}
#[test]
fn level_counts_and_folds_in_fallback() {
    holds("level, fallback", 2, 10_000, level::fallback);
}
#[test]
fn level_counts_and_folds_across_forks() {
    holds("level, forks", 2, 10_000, level::forks);
}
#[test]
fn canary_a_folder_that_writes_the_owners_byte() {
    use allotment_models::level_folder_writes::MISSING;
    assert!(MISSING.is_empty(), "counter/level.rs has no {MISSING:?} any more: adapt models/build.rs");
    fails("level", 2, 50_000, Sabotage::None, folder_writes::sequences);
}

/// What may be used and what is, for who judges an answer.
#[derive(Default)]
struct Ghost {
    /// Uses from their call's begin (if refused, to its end), minus returns from their call's end.
    most: AtomicI64,
    /// The largest that it was since a thread last looked.
    peaks: [AtomicI64; 3],
    /// Uses from their call's end, minus returns from their call's begin.
    least: AtomicI64,
}
impl Ghost {
    fn begin(&self, thread: usize, n: i64) {
        let now = self.most.fetch_add(n, SeqCst) + n;
        self.peaks.iter().for_each(|peak| {
            peak.fetch_max(now, SeqCst);
        });
        self.peaks[thread].store(now, SeqCst);
    }
}

const LIMIT: i64 = 4;

fn quota(mode: Mode) {
    let (units, at) = units(mode);
    // SAFETY: an allocation of its own.
    let quota = Arc::new(unsafe { Quota::new(at, LIMIT as u64, 1) });
    let ghost = Arc::new(Ghost::default());
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let (units, quota, ghost) = (Arc::clone(&units), Arc::clone(&quota), Arc::clone(&ghost));
            spawn(move || {
                let mut had = 0_i64;
                for round in 0..5 {
                    let n = 1 + i64::from((round + thread) % 2 == 0);
                    if had >= n && (round + thread) % 3 != 0 {
                        ghost.least.fetch_sub(n, SeqCst);
                        assert!(quota.sub(&units, n as u64), "VIOLATION: a return was refused");
                        machine::flush();
                        ghost.most.fetch_sub(n, SeqCst);
                        had -= n;
                        continue;
                    }
                    ghost.begin(thread, n);
                    if quota.try_add(&units, n as u64) {
                        let now = ghost.least.fetch_add(n, SeqCst) + n;
                        assert!(now <= LIMIT, "VIOLATION: {now} used of {LIMIT}");
                        had += n;
                    } else {
                        let peak = ghost.peaks[thread].load(SeqCst);
                        assert!(peak > LIMIT, "VIOLATION: {n} were refused, {peak} would have been used at most");
                        ghost.most.fetch_sub(n, SeqCst);
                    }
                }
                had
            })
        })
        .collect();
    let used: i64 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert!(quota.used(&units) as i64 == used, "VIOLATION: {} used, not {used}", quota.used(&units));
    // All that fits, wherever the stocks are, and no more.
    for left in (0..LIMIT - used).rev() {
        assert!(quota.try_add(&units, 1), "VIOLATION: 1 was refused, {} fit", left + 1);
    }
    assert!(!quota.try_add(&units, 1), "VIOLATION: one too many");
}
fn quota_sequences() {
    quota(Mode::Sequences);
}
fn quota_fallback() {
    quota(Mode::Fallback);
}

#[test]
fn quota_uses_and_returns() {
    holds("quota, sequences", 2, 20_000, quota_sequences);
}
#[test]
fn quota_uses_and_returns_in_fallback() {
    holds("quota, fallback", 2, 10_000, quota_fallback);
}
#[test]
fn canary_tight_without_a_fence() {
    fails("quota", 2, 200_000, Sabotage::NoFence, quota_sequences);
}
