//! Chunks of per-CPU memory against a naive model, every bound checked by a linear scan.
#![allow(clippy::unwrap_used, missing_docs)]

extern crate std;
use super::random::Random;
use crate::percpu::bitmap::GRANULE_SHIFT;
use crate::percpu::chunk::{BITS, Body, Chunk, GRANULE, PARK_MOST};
use crate::percpu::space::RESERVED;
use crate::percpu::totals::Totals;
use crate::percpu::units::UNIT;
use crate::stat::BadPointer;
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

const BASE: usize = 16 * UNIT;

fn chunk(reserved: u32) -> (Box<Chunk>, Totals) {
    let chunk = Box::new(Chunk::new());
    chunk.body.lock().begin(BASE, reserved, reserved != 0);
    (chunk, Totals::new())
}

fn granule(address: usize) -> u32 {
    ((address - BASE) >> GRANULE_SHIFT) as u32
}

/// One allocation or free; what is chosen by numbers of any size.
#[derive(Clone, Debug)]
enum Step {
    Take(u32, u32),
    Give(usize),
    /// Frees a stretch of allocations, in order or in reverse.
    Many(usize, usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![8 => 1_u32..5, 8 => 1_u32..80, 4 => 60_u32..600, 1 => 1000_u32..5000];
    let log = prop_oneof![6 => Just(0_u32), 4 => 1_u32..4, 1 => 4_u32..11];
    prop_oneof![
        10 => (size, log).prop_map(|(n, log)| Step::Take(n, (1 << log) - 1)),
        8 => any::<usize>().prop_map(Step::Give),
        1 => (any::<usize>(), 1_usize..60, any::<bool>()).prop_map(|(at, n, back)| Step::Many(at, n, back)),
    ]
}

/// Runs steps on one chunk beside a map of what is live; checks everything every `often` steps.
fn run(body: &mut Body, totals: &Totals, steps: impl Iterator<Item = Step>, often: usize) {
    let mut live: BTreeMap<u32, u32> = BTreeMap::new();
    let give = |body: &mut Body, live: &mut BTreeMap<u32, u32>, start: u32| {
        let address = BASE + ((start as usize) << GRANULE_SHIFT);
        live.remove(&start).unwrap();
        let (from, end) = body.find(address).unwrap();
        // Some of them are parked.
        if !start.is_multiple_of(3) || end - from > PARK_MOST || body.park(from, end - from, totals).is_none() {
            body.give(from, end, totals);
        }
        assert_eq!(body.find(address), Err(BadPointer::Double));
        if end - from > 1 {
            assert_eq!(body.find(address + GRANULE), Err(BadPointer::Double));
        }
    };
    for (number, step) in steps.enumerate() {
        match step {
            Step::Take(n, mask) => match body.take(n, mask, totals) {
                Some(taken) => {
                    let start = granule(taken.address());
                    assert_eq!(start & mask, 0);
                    assert!(start >= body.reserved && start + n <= BITS);
                    let before = live.range(..start + n).next_back();
                    assert!(before.is_none_or(|(at, length)| at + length <= start), "handed out twice");
                    live.insert(start, n);
                }
                None => assert!(!body.fits(n, mask), "{n} at {mask:#x} was not found"),
            },
            Step::Give(any) if !live.is_empty() => {
                let (&start, &n) = live.iter().nth(any % live.len()).unwrap();
                if n > 1 {
                    let inside = BASE + ((start as usize + 1) << GRANULE_SHIFT);
                    assert_eq!(body.find(inside), Err(BadPointer::Interior));
                }
                give(body, &mut live, start);
            }
            Step::Give(_) => {}
            Step::Many(at, n, back) => {
                let mut starts: Vec<u32> =
                    live.keys().copied().skip(if live.is_empty() { 0 } else { at % live.len() }).take(n).collect();
                if back {
                    starts.reverse();
                }
                starts.into_iter().for_each(|start| give(body, &mut live, start));
            }
        }
        if number % often == 0 {
            body.verify(&live.iter().map(|(&start, &n)| (start, n)).collect::<Vec<_>>());
        }
    }
    body.verify(&live.iter().map(|(&start, &n)| (start, n)).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Hints, cursors, reach, counts: all of the table, against linear scans.
    #[test]
    fn a_chunks_bounds_hold(steps in proptest::collection::vec(step(), 1..400), first in any::<bool>()) {
        let (chunk, totals) = chunk(if first { (RESERVED / GRANULE) as u32 } else { 0 });
        run(&mut chunk.body.lock(), &totals, steps.into_iter(), 7);
    }
}

/// A nearly full chunk, where bounds are lowered and raised all the time.
#[test]
fn a_full_chunks_bounds_hold() {
    for (seed, largest, align) in
        [(1, 3, 0), (2, 20, 0), (3, 20, 1), (4, 70, 3), (5, 300, 0), (6, 300, 1), (7, 1500, 6)]
    {
        let (chunk, totals) = chunk(0);
        let random = Random::new(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let steps = (0..60_000).map(|number| {
            let n = 1 + random.below(largest) as u32;
            if number < 70_000 / largest.min(100) || random.below(20) < 11 {
                Step::Take(n, if random.below(2) == 0 { 0 } else { (1 << random.below(align + 1)) - 1 })
            } else {
                Step::Give(random.below(usize::MAX))
            }
        });
        run(&mut chunk.body.lock(), &totals, steps, 1999);
    }
}

/// The canary: with one hint lowered below the truth, the check must fail.
#[test]
fn a_wrong_hint_is_found() {
    let (chunk, totals) = chunk(0);
    let mut body = chunk.body.lock();
    let taken = body.take(100, 0, &totals).unwrap();
    let (start, end) = body.find(taken.address()).unwrap();
    body.give(start, end, &totals);
    body.verify(&[]);
    body.contig_hint = BITS - 1;
    drop(body);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| chunk.body.lock().verify(&[])));
    assert!(result.is_err());
}
