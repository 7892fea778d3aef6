//! Close, fork, reopen (`engine/src/cache/sets.rs`: `close`, `reopen`), behind the gate where there are no sequences.
//!
//! Bound: 2 workers × 5 operations against 2 forks, 2 CPUs whose indices move; 20,000 schedules (fallback
//! 10,000): 6 seconds, 0.1 minutes.
//! What the child would find: no set changes between the two, every
//! object is in one sheaf below its top or in a thread's hand, and the forking
//! thread itself gets no set.
#![allow(unsafe_code, missing_docs)]

use allotment_models::arch::atomic::AtomicU64;
use allotment_models::arch::gate::Gate;
use allotment_models::arch::outcome::Outcome;
use allotment_models::arch::rseq;
use allotment_models::arch::seq::RseqArea;
use allotment_models::cache::Sheaf;
use allotment_models::cache::layout::Word;
use allotment_models::cache::set::Set;
use allotment_models::cache::sets::Sets;
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::{self, Sabotage};
use allotment_models::meta::Meta;
use allotment_models::stat::Mode;
use allotment_models::stat::board::SETS_MAX;
use std::sync::Arc;

/// (Class 0 is the self-test's.)
const CLASS: usize = 1;

/// The sets as memory shows them: of each its words and objects.
fn picture(base: usize) -> Vec<(Vec<Word>, Vec<usize>)> {
    (1..SETS_MAX)
        .map(|number| {
            // SAFETY: a set of the mapping.
            let set = unsafe { &*((base + number * 4096) as *const Set) };
            let words: Vec<_> =
                set.pairs.iter().flat_map(|pair| [Word(pair.main.peek()), Word(pair.spare.peek())]).collect();
            let slot = |address| {
                // SAFETY: a slot of a sheaf of the schedule.
                unsafe { &*(address as usize as *const AtomicU64) }.peek() as usize
            };
            let objects =
                words.iter().flat_map(|word| (0..word.count()).map(|at| slot(word.objects() + at * 8))).collect();
            (words, objects)
        })
        .collect()
}

/// Sets, and who is inside: a sequence needs not be.
#[derive(Default)]
struct World {
    sets: Sets,
    gate: Gate,
}

fn work(World { sets, gate }: &World, whole: bool) {
    let mut hand = vec![];
    for _ in 0..5 {
        let inside = gate.enter();
        if inside.is_none() && !whole || inside.is_some() && sets.ready().is_none() {
            continue;
        }
        let inside = inside.filter(|_| !whole);
        match hand.pop() {
            // What is given and taken changes in the same step as the set.
            // SAFETY: a number.
            Some(object) => match unsafe { sets.push(CLASS, object) } {
                Outcome::Done(()) if whole => machine::give(object),
                Outcome::Done(()) => {}
                _ => hand.push(object),
            },
            None => {
                if let Outcome::Done(object) = sets.pop(CLASS) {
                    if whole {
                        machine::take(object);
                    }
                    hand.push(object);
                }
            }
        }
        drop(inside);
    }
}

fn fork(World { sets, gate }: &World, base: usize, whole: bool) {
    gate.fork_begin(|| _ = sets.close());
    let before = picture(base);
    if whole {
        let mut all: Vec<_> = before.iter().flat_map(|set| set.1.clone()).chain(machine::used()).collect();
        all.sort_unstable();
        assert!(all == [10, 11, 12, 20, 21, 22], "VIOLATION: a child would find {all:?}");
    }
    for _ in 0..machine::choose(20) {
        machine::point();
    }
    assert!(sets.ready().is_none() && !matches!(sets.pop(CLASS), Outcome::Done(_)), "VIOLATION: a set while closed");
    assert!(picture(base) == before, "VIOLATION: a set changed while closed");
    gate.fork_end(false, || sets.reopen());
}

fn model(mode: Mode) {
    let world = Arc::new(World::default());
    let sets = &world.sets;
    let base = machine::sets();
    // SAFETY: a zeroed mapping for as long as the schedule lasts.
    unsafe { sets.open(base, mode, RseqArea { base: 0, index: rseq::INDEX }, None) };
    for first in [10, 20] {
        let mut sheaf = Sheaf::new(&Meta, sets.board(), 6).expect("memory");
        (first..first + 3).for_each(|object| _ = sheaf.push(object));
        let word = sheaf.into_word(6);
        // SAFETY: the sheaf is ours until it is done.
        while sets.ready().is_none() || unsafe { sets.swap(CLASS, false, Word::NONE, word) } != Outcome::Done(()) {}
    }
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let world = Arc::clone(&world);
            spawn(move || work(&world, mode == Mode::Sequences))
        })
        .collect();
    (0..2).for_each(|_| fork(&world, base, mode == Mode::Sequences));
    workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
}

fn sequences() {
    model(Mode::Sequences);
}
/// Here a hand changes a few steps after its set: only the stillness is checked.
fn fallback() {
    model(Mode::Fallback);
}

#[test]
fn close_fork_reopen() {
    holds("fork, sequences", 2, 20_000, sequences);
}
#[test]
fn close_fork_reopen_in_fallback() {
    holds("fork, fallback", 2, 10_000, fallback);
}
#[test]
fn canary_without_a_fence() {
    fails("fork", 2, 50_000, Sabotage::NoFence, sequences);
}
