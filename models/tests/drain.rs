//! Push and pop against a drain, and sets that follow their indices (DESIGN 5; `engine/src/cache/drain.rs`: fences, answers, parking;
//! `sets.rs`: `ready`, `follow`).
//!
//! Bound: 2 workers × 4 operations against 3 drains on 2 and 3 CPUs whose indices move,
//! in mode `Sequences` (40,000 schedules each) and in mode `Fallback` (20,000): 10 seconds, 0.2 minutes.
//! At the end every object and every sheaf is in exactly one place.
#![allow(unsafe_code, missing_docs)]

use allotment_models::arch::outcome::Outcome;
use allotment_models::arch::rseq;
use allotment_models::arch::seq::RseqArea;
use allotment_models::cache::Sheaf;
use allotment_models::cache::cpuset::CpuSet;
use allotment_models::cache::layout::Word;
use allotment_models::cache::sets::Sets;
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::{self, Sabotage};
use allotment_models::meta::Meta;
use allotment_models::stat::Mode;
use std::ops::Range;
use std::sync::Arc;

/// (Class 0 is the self-test's.)
const CLASS: usize = 1;

const WORKERS: usize = 2;
const LIMIT: usize = 4;

fn sets(mode: Mode) -> Arc<Sets> {
    let sets = Arc::new(Sets::new());
    let area = RseqArea { base: 0, index: rseq::INDEX };
    // SAFETY: a zeroed mapping for as long as the schedule lasts.
    unsafe { sets.open(machine::sets(), mode, area, None) };
    sets
}

/// A sheaf with `count` of the numbers from `first`.
fn sheaf(sets: &Sets, first: usize, count: usize) -> Word {
    let mut sheaf = Sheaf::new(&Meta, sets.board(), LIMIT).expect("memory");
    (first..first + count).for_each(|object| _ = sheaf.push(object));
    sheaf.into_word(LIMIT)
}
fn objects(word: Word) -> Vec<usize> {
    machine::flush();
    // SAFETY: a sheaf that we own.
    unsafe { Sheaf::from_word(word) }.map_or(vec![], |mut sheaf| sheaf.objects().to_vec())
}

fn indices(some: Range<usize>) -> CpuSet {
    let mut indices = CpuSet::around(0);
    some.for_each(|index| indices.insert(index));
    indices
}

#[derive(Default)]
struct Found {
    objects: Vec<usize>,
    sheaves: Vec<u64>,
}
impl Found {
    fn sheaf(&mut self, word: Word) {
        if word != Word::NONE {
            self.objects.extend(objects(word));
            self.sheaves.push(word.objects());
        }
    }
    fn collect(&mut self, sets: &Sets, index: usize) {
        // (All classes of the model are of the first step.)
        if let Some(words) = sets.collect(index, 0) {
            words.into_iter().flatten().for_each(|word| self.sheaf(word));
        }
    }
    /// With a fence.
    fn drain(&mut self, sets: &Sets, index: usize) {
        self.collect(sets, index);
        sets.switch_off(&indices(index..index + 1));
        self.collect(sets, index);
    }
    /// All, with one fence.
    fn drain_all(&mut self, sets: &Sets) {
        sets.switch_off(&indices(0..sets.top()));
        (0..machine::cpus()).for_each(|index| self.collect(sets, index));
    }
}

/// Four operations; what the thread has in the end.
fn work(sets: &Sets, thread: usize, parks: bool) -> Found {
    let mut hand = vec![thread * 100 + 50];
    let mut own = Some(sheaf(sets, thread * 100 + 60, 1));
    for _ in 0..4 {
        if parks && machine::choose(4) == 0 {
            sets.park();
        }
        if sets.ready().is_none() {
            continue;
        }
        let refused = if let Some(object) = hand.pop() {
            // SAFETY: a number.
            let outcome = unsafe { sets.push(CLASS, object) };
            if outcome != Outcome::Done(()) {
                hand.push(object);
            }
            outcome == Outcome::Refused
        } else {
            let outcome = sets.pop(CLASS);
            if let Outcome::Done(object) = outcome {
                hand.push(object);
            }
            outcome == Outcome::Refused
        };
        // SAFETY: the sheaf is ours, and there if done.
        if refused && own.is_some_and(|own| unsafe { sets.swap(CLASS, false, Word::NONE, own) } == Outcome::Done(())) {
            own = None;
        }
    }
    let mut found = Found { objects: hand, sheaves: vec![] };
    found.sheaf(own.unwrap_or_default());
    found
}

/// How the drainer goes about it.
#[derive(Clone, Copy, PartialEq)]
enum DrainMode {
    /// Fences one CPU.
    One,
    /// Fences all.
    All,
    /// Owners answer, or park; and now and then a fence.
    Gentle,
    /// Not at all.
    None,
}

fn model(mode: Mode, way: DrainMode) {
    model_of(&sets(mode), way, false);
}

/// With a bias, this thread is its owner and one of the workers.
fn model_of(sets: &Arc<Sets>, way: DrainMode, is_biased: bool) {
    // A set with a sheaf for each index.
    for first in [10, 110] {
        let word = sheaf(sets, first, 2);
        // SAFETY: the sheaf is ours until it is done.
        while sets.ready().is_none() || unsafe { sets.swap(CLASS, false, Word::NONE, word) } != Outcome::Done(()) {}
    }
    if is_biased {
        sets.cpus.bias.grant(0);
    }
    let workers: Vec<_> = (0..WORKERS)
        .map(|thread| {
            let sets = Arc::clone(sets);
            (thread > 0 || !is_biased).then(|| spawn(move || work(&sets, thread, way == DrainMode::Gentle)))
        })
        .collect();
    let drainer = {
        let sets = Arc::clone(sets);
        spawn(move || {
            let mut found = Found::default();
            for _ in 0..3 {
                let index = machine::choose(machine::cpus());
                match way {
                    DrainMode::None => {}
                    DrainMode::One => found.drain(&sets, index),
                    DrainMode::All => found.drain_all(&sets),
                    DrainMode::Gentle => {
                        sets.ask(index);
                        found.collect(&sets, machine::choose(machine::cpus()));
                        if machine::choose(3) == 0 {
                            sets.withdraw(index);
                        }
                        if machine::choose(4) == 0 {
                            found.drain(&sets, index);
                        }
                    }
                }
            }
            found
        })
    };
    let own = is_biased.then(|| work(sets, 0, false));
    let mut all = drainer.join().expect("no panic");
    for found in workers.into_iter().flatten().map(|worker| worker.join().expect("no panic")).chain(own) {
        all.objects.extend(found.objects);
        all.sheaves.extend(found.sheaves);
    }
    let cpus = machine::cpus();
    (0..cpus).for_each(|index| all.drain(sets, index));
    assert!((0..cpus).all(|index| !sets.holds(index) && !sets.is_answered(index)), "VIOLATION: something is left");
    all.objects.sort_unstable();
    all.sheaves.sort_unstable();
    let sheaves = all.sheaves.len();
    all.sheaves.dedup();
    let whole: Vec<usize> = (0..WORKERS).flat_map(|t| [10, 11, 50, 60].map(|n| t * 100 + n)).collect();
    assert!(all.objects == whole, "VIOLATION: objects {:?}", all.objects);
    assert!(sheaves == 2 * WORKERS && all.sheaves.len() == sheaves, "VIOLATION: {sheaves} sheaves");
}

fn sequences() {
    model(Mode::Sequences, DrainMode::One);
}
fn sequences_all() {
    model(Mode::Sequences, DrainMode::All);
}
fn sequences_gentle() {
    model(Mode::Sequences, DrainMode::Gentle);
}
fn fallback() {
    model(Mode::Fallback, DrainMode::One);
}

/// An owner of the bias, another thread that takes it away, and a drain.
fn biased() {
    model_of(&sets(Mode::Fallback), DrainMode::One, true);
}

#[test]
fn push_and_pop_by_a_bias_that_is_taken_away() {
    holds("bias", 2, 40_000, biased);
}
#[test]
fn canary_a_bias_without_a_barrier() {
    fails("bias", 2, 50_000, Sabotage::NoFence, biased);
}
#[test]
fn push_and_pop_against_drain() {
    holds("drain, sequences", 2, 40_000, sequences);
}
#[test]
fn push_and_pop_against_a_drain_of_all() {
    holds("drain of all", 2, 20_000, sequences_all);
}
#[test]
fn push_and_pop_against_answers_and_parking() {
    holds("gentle drain", 2, 40_000, sequences_gentle);
}
#[test]
fn push_and_pop_against_drain_in_fallback() {
    holds("drain, fallback", 2, 20_000, fallback);
}
#[test]
fn canary_without_a_fence() {
    fails("drain", 2, 50_000, Sabotage::NoFence, sequences);
}
#[test]
fn canary_without_a_fence_for_all() {
    fails("drain of all", 2, 50_000, Sabotage::NoFence, sequences_all);
}
#[test]
fn canary_an_owner_that_was_preempted_switches() {
    fails("gentle drain", 2, 400_000, Sabotage::SwitchAnyhow, sequences_gentle);
}
#[test]
fn canary_a_void_set_that_serves() {
    fails("drain", 2, 50_000, Sabotage::VoidServes, sequences);
}

/// Nothing but sets that follow.
fn moves() {
    model(Mode::Sequences, DrainMode::None);
}

#[test]
fn sets_follow_their_indices() {
    holds("moves", 3, 40_000, moves);
}
#[test]
fn sets_follow_against_drain() {
    holds("moves and drain", 3, 40_000, sequences);
}
#[test]
fn sets_follow_against_a_drain_of_all() {
    holds("moves and drain of all", 3, 20_000, sequences_all);
}
#[test]
fn sets_follow_against_answers_and_parking() {
    holds("moves and gentle drain", 3, 40_000, sequences_gentle);
}
#[test]
fn canary_a_set_follows_without_a_fence() {
    fails("moves", 3, 400_000, Sabotage::NoFence, moves);
}
