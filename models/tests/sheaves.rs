//! Sheaves between main, spare, barn and hands (`engine/src/cache/mod.rs`: `alloc`,
//! `free`, `exchange`, `exchange_at_once`, `even`, `install`, `keep`, `release`, `drain`, `empty_barns`).
//!
//! Bound: 3 threads × 6 operations, one of them with a drain of all sets, 2 CPUs, two-object sheaves;
//! 16,000 schedules (fallback 6,000): 7 seconds, 0.1 minutes.
//! At the end every object is in the source once, and every sheaf in the barn once.
#![allow(unsafe_code, missing_docs)]

use allotment_models::arch::lock::Lock;
use allotment_models::arch::rseq;
use allotment_models::arch::seq::RseqArea;
use allotment_models::cache::cpuset::CpuSet;
use allotment_models::cache::{Cache, Sheaf, Source};
use allotment_models::cache::{DrainMode, DrainReport};
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::knob::Id;
use allotment_models::machine::{self, Sabotage};
use allotment_models::stat::Mode;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

const OBJECTS: usize = 12;
const CLASS: usize = 1;
/// Bytes of a sheaf of the smallest.
const SHEAF: usize = 256;
/// The numbers that are objects.
const ALL: Range<usize> = 10..10 + OBJECTS;

/// A bag of numbers.
struct Bag(Lock<Vec<usize>>);
impl Source for Bag {
    fn fill(&self, _: usize, sheaf: &mut Sheaf, n: usize) {
        let mut bag = self.0.lock();
        for _ in 0..n {
            if let Some(object) = bag.pop() {
                sheaf.push(object);
            }
        }
    }
    fn flush(&self, _: usize, sheaf: &mut Sheaf) {
        self.0.lock().extend_from_slice(sheaf.objects());
        sheaf.clear();
    }
    fn take(&self, _: usize) -> Option<usize> {
        self.0.lock().pop()
    }
    fn give(&self, _: usize, object: usize) {
        self.0.lock().push(object);
    }
    fn size(&self, _: usize) -> usize {
        1024
    }
}

fn work(cache: &Cache, bag: &Bag, drains: bool) {
    let mut hand = vec![];
    for at in 0..6 {
        if drains && at == 3 {
            drain_all(cache, bag);
        }
        if hand.is_empty() || hand.len() < 4 && machine::choose(2) == 0 {
            cache.exchange_at_once(CLASS * 16, false);
            if let Some(object) = cache.alloc(bag, CLASS) {
                machine::take(object);
                hand.push(object);
            }
        } else if let Some(object) = hand.pop() {
            machine::give(object);
            cache.exchange_at_once(CLASS * 16, true);
            // SAFETY: a number.
            unsafe { cache.free(bag, CLASS, object) };
        }
    }
    for object in hand {
        machine::give(object);
        // SAFETY: a number.
        unsafe { cache.free(bag, CLASS, object) };
    }
}

fn model(mode: Mode) {
    let cache = Arc::new(Cache::new());
    cache.knobs.reset();
    cache.knobs.set(Id::SheafObjects as usize, 2);
    cache.size_classes([1024, 1024].into_iter());
    let area = RseqArea { base: 0, index: rseq::INDEX };
    // SAFETY: a zeroed mapping for as long as the schedule lasts.
    unsafe { cache.sets.open(machine::sets(), mode, area, None) };
    let bag = Arc::new(Bag(Lock::new(ALL.collect())));
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let (cache, bag) = (Arc::clone(&cache), Arc::clone(&bag));
            spawn(move || work(&cache, &bag, thread == 0))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    drain_all(&cache, &*bag);
    let mut objects = bag.0.lock().clone();
    objects.sort_unstable();
    assert!(objects == ALL.collect::<Vec<_>>(), "VIOLATION: objects {objects:?}");
    // All sheaves that were made are empty and in the node's barn or that of a set, each once.
    let made = machine::live(SHEAF);
    assert!(made > 0);
    let mut seen = BTreeSet::new();
    let near: Vec<_> = cache.sets.near(CLASS).flat_map(|near| std::iter::repeat_n(near, near.empties())).collect();
    let node = std::iter::repeat_n(cache.barn(CLASS), made - near.len());
    for barn in near.into_iter().chain(node) {
        let sheaf = barn.take_empty(&cache.meta, cache.sets.board(), 2).expect("memory");
        assert!(seen.insert(sheaf.into_word(1).objects()), "VIOLATION: a sheaf is in two places");
    }
    assert!(machine::live(SHEAF) == made, "VIOLATION: a sheaf is lost");
}

fn sequences() {
    model(Mode::Sequences);
}
fn fallback() {
    model(Mode::Fallback);
}

fn drain_all(cache: &Cache, bag: &impl Source) {
    let mut all = CpuSet::around(0);
    (0..cache.sets.top()).for_each(|index| all.insert(index));
    cache.drain(bag, &mut all, DrainMode::Auto, &mut |_| true, &mut DrainReport::default());
    cache.empty_barns(bag, CLASS + 1);
}

#[test]
fn exchange_install_release() {
    holds("sheaves, sequences", 2, 16_000, sequences);
}
#[test]
fn exchange_install_release_in_fallback() {
    holds("sheaves, fallback", 2, 6_000, fallback);
}
#[test]
fn canary_without_a_fence() {
    fails("sheaves", 2, 50_000, Sabotage::NoFence, sequences);
}
#[test]
fn canary_exchange_in_halves() {
    fails("sheaves", 2, 50_000, Sabotage::ExchangeInHalves, sequences);
}
#[test]
fn canary_a_void_set_that_serves() {
    fails("sheaves", 2, 50_000, Sabotage::VoidServes, sequences);
}
