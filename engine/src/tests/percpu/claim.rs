//! What a claim remembers, beside naive stacks.

extern crate std;

use crate::arch::atomic::Ordering::Relaxed;
use crate::percpu::chunk::{GRANULE, PARK_MOST};
use crate::percpu::claim::{Claim, HOLE_MOST};
use crate::percpu::slots::slot_of;
use crate::tests::random::Random;
use std::vec;
use std::vec::Vec;

/// Parked ones of a size, and holes of a slot, that a claim remembers at most.
const SHEAF: usize = 16;
const DEPTH: usize = 4;
const HOLES: usize = slot_of(HOLE_MOST) as usize + 1;
/// An address that a chunk might have.
const BASE: usize = 0x7f12_3454_0000;

#[test]
fn parked_places_come_back_last_first_by_size() {
    let (claim, random) = (Claim::new(), Random::new(5));
    let mut stacks: Vec<Vec<(usize, usize)>> = vec![vec![]; PARK_MOST as usize + 1];
    for round in 0..6000 {
        let n = if round % 3 == 0 { [1, 2, 63, 64][random.below(4)] } else { 1 + random.below(PARK_MOST as usize) };
        let (n, stack) = (n as u32, &mut stacks[n]);
        assert_eq!(claim.has_room(n), stack.len() < SHEAF, "{n} with {} of them", stack.len());
        if claim.has_room(n) && random.below(12) < 7 {
            let one = (BASE + random.below(5000) * GRANULE, random.below(16));
            claim.push(one.0, one.1, n);
            stack.push(one);
        } else if let Some(&last) = stack.last() {
            // (Who asks has seen the size's bit.)
            let mask = [0, 0, 1, 7][random.below(4)];
            let aligned = last.0 % ((mask as usize + 1) * GRANULE) == 0;
            assert_eq!(claim.pop(n, mask), aligned.then_some(last), "{n} at {mask}");
            if aligned {
                stack.pop();
            }
        }
        let sizes = (1..).zip(&stacks[1..]).filter(|(_, stack)| !stack.is_empty());
        assert_eq!(claim.sizes.load(Relaxed), sizes.map(|(n, _)| 1_u64 << (n - 1)).sum::<u64>());
    }
    assert!(!claim.has_room(PARK_MOST + 1), "that is not parked");
    assert_eq!(claim.full.load(Relaxed), 0);
}

/// Where holes go that are remembered and recalled: by slots, the last of a slot first, the fourth overwritten.
#[test]
fn holes_come_back_by_slots_if_they_are_large_enough() {
    let (claim, random) = (Claim::new(), Random::new(9));
    let mut slots: Vec<Vec<(usize, u32)>> = vec![vec![]; HOLES];
    let mut found = 0;
    for _ in 0..20_000 {
        let most = [4, 40, HOLE_MOST as usize][random.below(3)];
        let (n, address) = (1 + random.below(most) as u32, BASE + random.below(5000) * GRANULE);
        if random.below(2) == 0 {
            claim.remember(address, n);
            let slot = &mut slots[slot_of(n) as usize];
            slot.truncate(DEPTH - 1);
            slot.push((address, n));
        } else {
            let mask = [0, 0, 1, 15][random.below(4)];
            let first = slot_of(n - 1) as usize + 1;
            let slot = (first..HOLES).find(|&slot| !slots[slot].is_empty());
            let expect = slot.and_then(|slot| slots[slot].pop()).and_then(|(begin, length)| {
                let at = begin.next_multiple_of((mask as usize + 1) * GRANULE);
                let rest = (begin + length as usize * GRANULE).checked_sub(at + n as usize * GRANULE)?;
                Some((at, rest))
            });
            found += usize::from(expect.is_some());
            assert_eq!(claim.recall(claim.full.load(Relaxed), n, mask), expect, "{n} at {mask}");
        }
        let full = slots.iter().enumerate().filter(|(_, slot)| !slot.is_empty());
        assert_eq!(claim.full.load(Relaxed), full.map(|(slot, _)| 1_u64 << slot).sum::<u64>());
    }
    assert!(found > 5000, "{found}");
    assert_eq!(claim.recall(0, 1, 0), None);
    assert_eq!(claim.sizes.load(Relaxed), 0);
}
