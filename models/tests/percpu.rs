//! Per-CPU memory (`engine/src/percpu/space.rs`): claims that are taken away, chunks that are given back, while others
//! allocate, free, and hold old pointers to them.
//!
//! Bound: 3 threads × 8 operations on 2 CPUs whose indices move, with 2 claims; chunks of a page, four objects each,
//! so that one is claimed, released, taken away or given back every few operations. What is checked: nothing is handed out
//! twice, no live object lies in memory that was given back, frees are never refused, and at the end nothing is live.
//! 20,000 schedules.
#![allow(unsafe_code, missing_docs)]

use allotment_models::arch::rseq;
use allotment_models::arch::seq::RseqArea;
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::{self, Sabotage};
use allotment_models::stat::Mode;

const INDICES: usize = 2;
/// What is parked when it is freed, what is not, and what no other fits beside.
const SIZES: [usize; 4] = [256, 1024, 2048, 4096];
/// Of a part that is looked at.
const PART: usize = 256;

macro_rules! space_models {
    ($name:ident: $space:ident) => {
        mod $name {
            use super::*;
            use allotment_models::$space::{How, MISSING, Space};

            fn thread(space: &'static Space, number: usize) {
                let mut live = Vec::new();
                for round in 0..8 {
                    if live.len() < 2 || (round + number) % 3 == 0 && live.len() < 4 {
                        let size = SIZES[machine::choose(SIZES.len())];
                        let at = space.alloc(size, 4, How::Normal).expect("VIOLATION: no memory").address();
                        machine::assert_inside(at);
                        // Each part of it is nobody else's.
                        (at..at + size).step_by(PART).for_each(machine::take);
                        live.push((at, size));
                    } else {
                        let (at, size) = live.swap_remove(machine::choose(live.len()));
                        machine::assert_inside(at);
                        (at..at + size).step_by(PART).for_each(machine::give);
                        // SAFETY: it is ours.
                        let freed = unsafe { space.free(at) };
                        assert!(freed.is_ok(), "VIOLATION: {at:#x}: {freed:?}");
                    }
                }
                for (at, size) in live {
                    machine::assert_inside(at);
                    (at..at + size).step_by(PART).for_each(machine::give);
                    // SAFETY: as above.
                    let freed = unsafe { space.free(at) };
                    assert!(freed.is_ok(), "VIOLATION: {at:#x}: {freed:?}");
                }
            }

            pub fn model() {
                assert_eq!(MISSING, &[""; 0]);
                // SAFETY: zero bytes are a space, which stays for as long as the schedule lasts.
                let space: &'static Space = unsafe { &*(machine::mapping(size_of::<Space>(), 4096) as *const Space) };
                // SAFETY: first of all, with the machine's area.
                unsafe {
                    space.units.open(Mode::Sequences, RseqArea { base: 64, index: rseq::INDEX }, INDICES, None);
                    space.open();
                }
                let threads: Vec<_> = (0..3).map(|number| spawn(move || thread(space, number))).collect();
                threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
                assert!(machine::used().is_empty());
                // The first, two claims, one to spare, and one for each claim that was not yet idle.
                assert!(space.chunk_count() <= 6, "VIOLATION: {} chunks are left", space.chunk_count());
            }
        }
    };
}
space_models!(real: space);
space_models!(claim_stays: space_claim_stays);
space_models!(returns_blindly: space_returns_blindly);

#[test]
fn claims_move_and_chunks_go_back() {
    holds("claims and chunks", 2, 20_000, real::model);
}

#[test]
fn canary_a_claim_is_used_without_a_look() {
    fails("claim stays", 2, 100_000, Sabotage::None, claim_stays::model);
}

#[test]
fn canary_a_chunk_is_given_back_without_a_look() {
    fails("returns blindly", 2, 100_000, Sabotage::None, returns_blindly::model);
}
