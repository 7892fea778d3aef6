//! Push and pop against a drain (DESIGN 5; `engine/src/percpu/sets.rs`: `ready`, `adopt`, `drain`).
//!
//! Bound: 2 workers × 4 operations against 3 drains on 2 CPUs whose indices move,
//! in mode `Sequences` (40,000 schedules) and in mode `Fallback` (20,000): 10 seconds, 0.2 minutes.
//! At the end every object and every sheaf is in exactly one place.
#![allow(unsafe_code, missing_docs)]

use allotment_models::arch::atomic::{AtomicU64, Ordering::Relaxed};
use allotment_models::arch::outcome::Outcome;
use allotment_models::arch::rseq;
use allotment_models::arch::seq::Area;
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::{self, Place, Sabotage};
use allotment_models::percpu::layout::Word;
use allotment_models::percpu::sets::Sets;
use allotment_models::stat::Mode;
use std::sync::Arc;

/// (Class 0 is the self-test's.)
const CLASS: usize = 1;

const WORKERS: usize = 2;
const LIMIT: u64 = 4;

fn sets(mode: Mode) -> Arc<Sets> {
    let sets = Arc::new(Sets::new());
    let area = Area { base: 0, index: rseq::INDEX };
    // SAFETY: a zeroed mapping for as long as the schedule lasts.
    unsafe { sets.open(machine::sets(), mode, area, None) };
    sets
}

/// A sheaf with `count` of the numbers from `first`.
fn sheaf(first: u64, count: u64) -> Word {
    let slots = machine::mapping(LIMIT as usize * 8, 128);
    for at in 0..count {
        // SAFETY: a slot of the sheaf.
        unsafe { &*((slots + at as usize * 8) as *const AtomicU64) }.store(first + at, Relaxed);
    }
    Word::new(slots as u64, count, LIMIT)
}
fn objects(word: Word) -> impl Iterator<Item = usize> {
    (0..word.count()).map(move |at| {
        // SAFETY: a slot of a sheaf that we own.
        unsafe { &*((word.objects() + at * 8) as usize as *const AtomicU64) }.load(Relaxed) as usize
    })
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
    fn drain(&mut self, sets: &Sets, index: usize) {
        if let Some(words) = sets.drain(index) {
            words.into_iter().flatten().for_each(|word| self.sheaf(word));
        }
    }
}

/// Four operations; what the thread has in the end.
fn work(sets: &Sets, thread: u64) -> Found {
    let mut hand = vec![thread as usize * 100 + 50];
    let mut own = Some(sheaf(thread * 100 + 60, 1));
    for _ in 0..4 {
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

fn model(mode: Mode) {
    let sets = sets(mode);
    // A set with a sheaf for each index.
    for first in [0, 100] {
        let word = sheaf(first, 2);
        // SAFETY: the sheaf is ours until it is done.
        while sets.ready().is_none() || unsafe { sets.swap(CLASS, false, Word::NONE, word) } != Outcome::Done(()) {}
    }
    let workers: Vec<_> = (0..WORKERS as u64)
        .map(|thread| {
            let sets = Arc::clone(&sets);
            spawn(move || work(&sets, thread))
        })
        .collect();
    let drainer = {
        let sets = Arc::clone(&sets);
        spawn(move || {
            let mut found = Found::default();
            for _ in 0..3 {
                found.drain(&sets, machine::choose(2));
            }
            found
        })
    };
    let mut all = drainer.join().expect("no panic");
    for worker in workers {
        let found = worker.join().expect("no panic");
        all.objects.extend(found.objects);
        all.sheaves.extend(found.sheaves);
    }
    (0..2).for_each(|index| all.drain(&sets, index));
    all.objects.sort_unstable();
    all.sheaves.sort_unstable();
    let sheaves = all.sheaves.len();
    all.sheaves.dedup();
    let whole: Vec<usize> = (0..WORKERS).flat_map(|t| [0, 1, 50, 60].map(|n| t * 100 + n)).collect();
    assert!(all.objects == whole, "VIOLATION: objects {:?}", all.objects);
    assert!(sheaves == 2 * WORKERS && all.sheaves.len() == sheaves, "VIOLATION: {sheaves} sheaves");
}

fn sequences() {
    model(Mode::Sequences);
}
fn fallback() {
    model(Mode::Fallback);
}

#[test]
fn push_and_pop_against_drain() {
    holds("drain, sequences", 2, 40_000, sequences);
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
fn canary_fence_of_the_cpu_read_before_the_switch() {
    fails("drain", 2, 50_000, Sabotage::EarlyCpu, sequences);
}
#[test]
fn canary_adopt_without_a_second_look() {
    fails("drain", 2, 50_000, Sabotage::AdoptStays, sequences);
}
#[test]
fn canary_without_the_full_fences() {
    fails("drain", 2, 50_000, Sabotage::NoStoreFence, sequences);
}
#[test]
fn canary_void_set_of_cpu_0() {
    fails("drain", 2, 50_000, Sabotage::VoidOfCpu0, sequences);
}

/// A thread is stopped in `adopt` (its CPU with it), while its set is drained and the other
/// index drained twice, which must not make that set another index's. The old CPU that it then stores
/// must not lead the second drain to the wrong CPU.
fn stopped_in_adopt() {
    let sets = sets(Mode::Sequences);
    while sets.top() < 2 {
        let _ = sets.ready();
    }
    let adopter = {
        let sets = Arc::clone(&sets);
        spawn(move || {
            machine::script(Place::Adopting, 1, 3);
            let _ = sets.ready();
            machine::reach(1);
            machine::wait_for(3);
            machine::flush();
            machine::reach(4);
        })
    };
    let owner = {
        let sets = Arc::clone(&sets);
        spawn(move || {
            let own = sheaf(0, 1);
            machine::wait_for(2);
            let _ = sets.ready();
            machine::script(Place::Owning, 3, 5);
            // SAFETY: the sheaf is ours, and there if done.
            let gone = unsafe { sets.swap(CLASS, false, Word::NONE, own) } == Outcome::Done(());
            machine::reach(3);
            let mut found = Found::default();
            found.sheaf(if gone { Word::NONE } else { own });
            found
        })
    };
    let drainer = {
        let sets = Arc::clone(&sets);
        spawn(move || {
            let mut found = Found::default();
            let index = machine::choose(2);
            machine::wait_for(1);
            found.drain(&sets, index);
            found.drain(&sets, 1 - index);
            machine::reach(2);
            machine::wait_for(4);
            found.drain(&sets, 1 - index);
            machine::reach(5);
            found
        })
    };
    adopter.join().expect("no panic");
    let mut all = drainer.join().expect("no panic");
    all.sheaves.extend(owner.join().expect("no panic").sheaves);
    (0..2).for_each(|index| all.drain(&sets, index));
    assert!(all.sheaves.len() == 1, "VIOLATION: {} sheaves instead of one", all.sheaves.len());
}

#[test]
fn a_late_adopt_does_not_mislead_a_drain() {
    holds("late adopt", 2, 5_000, stopped_in_adopt);
}
