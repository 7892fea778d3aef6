//! Slabs: the bitmap, the partial list and the rule of the last object
//! (`engine/src/slab`: `draw`, `put_back_slab`, `relist`, `unmake`, `trim`).
//!
//! Bound: 3 threads × 3 rounds of a sheaf of two (or a single object) out and back, or a trim; slabs of
//! four objects on two pages;
//! 30,000 schedules: 4 seconds, 0.1 minutes.
//! No object is handed out twice, is on a page that went or on one that is given back, nothing is written into
//! a slab that went, no slab is listed twice or lost.
#![allow(unsafe_code, missing_docs)]

use allotment_models::arch::seq::RseqArea;
use allotment_models::cache::{Cache, Sheaf, Source};
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::{self, Sabotage};
use allotment_models::page::Pages;
use allotment_models::stat::Mode;
use std::sync::Arc;

macro_rules! model {
    ($name:ident) => {
        fn $name() {
            use allotment_models::$name::{MISSING, SlabSource, Slabs};
            assert!(MISSING.is_empty(), "the slab layer has no {MISSING:?} any more: adapt models/build.rs");
            let heap = Arc::new((Slabs::new(), Cache::new(), Pages::new()));
            // SAFETY: a zeroed mapping for as long as the schedule lasts.
            unsafe { heap.1.sets.open(machine::sets(), Mode::Fallback, RseqArea::default(), None) };
            let report = |address, wrong| panic!("VIOLATION: {address:#x} is {wrong:?}");
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let heap = Arc::clone(&heap);
                    spawn(move || {
                        let (slabs, cache, pages) = &*heap;
                        let source = SlabSource { slabs, cache, pages, report };
                        work(&source, cache, || source.trim(|| false));
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            let (slabs, cache, pages) = &*heap;
            // Slabs that are left are on the list: they serve before a new one is made.
            let (left, source) = (pages.used(), SlabSource { slabs, cache, pages, report });
            source.verify();
            for _ in 0..left * 4 {
                machine::take(source.take(1).expect("an object"));
            }
            assert!(pages.used() == left, "VIOLATION: a slab is lost");
        }
    };
}
model!(slab);
model!(slab_without_last);
model!(slab_full_unlisted);
model!(slab_unlisted);
model!(slab_trim_shared);

fn work(source: &impl Source, cache: &Cache, trim: impl Fn() -> usize) {
    let mut sheaf = Sheaf::new(&cache.meta, cache.sets.board(), 1).expect("memory");
    for _ in 0..3 {
        let what = machine::choose(7);
        if what == 0 {
            trim();
        } else if what < 3 {
            let Some(object) = source.take(1) else { continue };
            machine::take(object);
            machine::point();
            machine::give(object);
            source.give(1, object);
        } else {
            source.fill(1, &mut sheaf, 2);
            sheaf.objects().iter().for_each(|&object| machine::take(object));
            machine::point();
            sheaf.objects().iter().for_each(|&object| machine::give(object));
            source.flush(1, &mut sheaf);
        }
    }
    sheaf.discard(&cache.meta);
}

#[test]
fn last_object_keeps_the_slab() {
    holds("slabs", 1, 30_000, slab);
}
#[test]
fn canary_without_the_rule_of_the_last_object() {
    fails("slabs without the last object's rule", 1, 50_000, Sabotage::None, slab_without_last);
}
#[test]
fn canary_lists_no_slab_that_was_full() {
    fails("full slabs that are not listed", 1, 50_000, Sabotage::None, slab_full_unlisted);
}
#[test]
fn canary_unmakes_a_slab_in_hand() {
    fails("slabs unmade in hand", 1, 50_000, Sabotage::None, slab_unlisted);
}
#[test]
fn canary_trims_slabs_that_others_draw_from() {
    fails("slabs trimmed out of hand", 1, 50_000, Sabotage::None, slab_trim_shared);
}
