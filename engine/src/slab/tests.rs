//! What a slab computes, against plain loops: its block, stretches of objects, which are taken first.

use super::*;
use crate::page::Pfn;
use class::{RECIPROCAL, SMALL_MAX};
use std::vec::Vec;

static CACHE: Cache = Cache::new();
static PAGES: Pages = Pages::new();

#[test]
fn a_block_holds_a_slab_and_its_bitmaps_and_no_more() {
    assert_eq!([0, 1, 64, 65, 128, 4096].map(Slab::words), [0, 1, 1, 2, 2, 64]);
    for checked in [false, true] {
        let slabs = Slabs::new();
        if checked {
            slabs.check();
        }
        let source = SlabSource { slabs: &slabs, cache: &CACHE, pages: &PAGES, report: |_, _| () };
        for objects in [1_usize, 4, 63, 64, 65, 170, 256] {
            let bitmaps = objects.div_ceil(64) * 8 * if checked { 2 } else { 1 };
            assert_eq!(source.block_bytes(objects), size_of::<Slab>() + bitmaps);
        }
    }
}

#[test]
fn an_address_is_an_object_where_one_begins() {
    for class in 1..CLASSES {
        let (size, objects) = (SIZES[class] as usize, (PAGE << SLAB_ORDER[class]) / SIZES[class] as usize);
        let shape = Shape { base: SMALL_MAX << 9, size, objects, reciprocal: RECIPROCAL[class] };
        for at in 0..objects + 2 {
            let index = |off: isize| shape.index((shape.base + at * size).wrapping_add_signed(off));
            assert_eq!([-1, 0, 1].map(index), [None, (at < objects).then_some(at), None], "{class}: {at}");
        }
        assert_eq!([0, shape.base - size, usize::MAX].map(|address| shape.index(address)), [None; 3]);
    }
}

/// Of runs of any length, in both directions, from any object, that go on, turn, skip one or leave their slab.
#[test]
fn a_stretch_is_what_goes_on_within_a_word() {
    let class = (1..CLASSES).find(|&class| SIZES[class] == 48).unwrap();
    let (base, objects) = (1 << 20, ((PAGE << SLAB_ORDER[class]) / 48) as isize);
    let shape = Shape { base, size: 48, objects: objects as usize, reciprocal: RECIPROCAL[class] };
    assert!(shape.stretch(&[]).is_none() && shape.stretch(&[base + 1]).is_none());
    let address = |index: isize| base.wrapping_add_signed(index * 48);
    for first in 0..objects {
        for step in [1, -1, 2, -2, 0] {
            for (len, then) in [(1, 0), (1, 1), (1, -1), (2, 7), (3, -1), (40, 1), (64, 0), (64, 3), (100, 0)] {
                let mut indices: Vec<_> = (0..len).map(|at| first + at * step).collect();
                indices.extend([first + (len - 1) * step + then, -5]);
                // The second says which way it goes.
                let way = indices[1] - first;
                let goes_on = |at: &usize| {
                    let next = first + *at as isize * way;
                    way.abs() == 1 && indices[*at] == next && (0..objects).contains(&next) && next / 64 == first / 64
                };
                let more = (1..indices.len()).take_while(goes_on).count();
                let bits = (0..=more as isize).fold(0_u64, |bits, at| bits | 1 << ((first + at * way) % 64));
                let batch: Vec<_> = indices.into_iter().map(address).collect();
                let expected = Some((first as usize, 1 + more, bits));
                assert_eq!(shape.stretch(&batch), expected, "{first} by {step}, {len}, then {then}");
            }
        }
    }
    let alone = 1 << ((objects - 1) % 64);
    assert_eq!(shape.stretch(&[address(objects - 1)]), Some((objects as usize - 1, 1, alone)));
}

#[test]
fn objects_are_scattered_where_most_do_not_lie_beside_the_next() {
    let upwards: Vec<_> = (0..1022).map(|at| (1 << 30) + at * 64).collect();
    let downwards: Vec<_> = upwards.iter().rev().copied().collect();
    let far: Vec<_> = (0..1022).map(|at| (1 << 30) + at * 7919 % 1022 * 3 * PAGE).collect();
    // In pairs: each lies beside one of its two.
    let pairs: Vec<_> = far.iter().flat_map(|&at| [at, at + 64]).take(1022).collect();
    for (objects, expected) in [(upwards, false), (downwards, false), (far, true), (pairs, false)] {
        assert_eq!(are_scattered(&objects), expected);
        assert!(!are_scattered(&objects[..5]), "too few to say");
    }
    assert!(!are_scattered(&[]));
}

#[test]
fn the_lowest_free_objects_are_taken_first_and_each_once() {
    // A descriptor with three words of bits, as in its block.
    #[repr(C)]
    struct Block(Slab, [u64; 3]);
    let class = (1..CLASSES).find(|&class| SIZES[class] == 16).unwrap();
    let mut random = 1_u64;
    for round in 0..2000 {
        let mut bits = [0; 3];
        for word in &mut bits {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *word = [random, 0, u64::MAX, random | random >> 7, u64::MAX << (random >> 58)][random as usize >> 20 & 3];
        }
        let free: Vec<_> = (0..192).filter(|at| bits[at / 64] >> (at % 64) & 1 == 1).collect();
        let slab = Slab {
            next: core::ptr::null_mut(),
            previous: core::ptr::null_mut(),
            on_list: false,
            class: class as u8,
            node: 0,
            objects: 192,
            free: free.len() as u16,
            trimmed: true,
            pfn: Pfn::NONE,
            base: 1 << 20,
        };
        let mut block = Block(slab, bits);
        let want = [0, 1, 5, 63, 64, 100, 192][round % 7];
        let mut slots = [MaybeUninit::new(7); 192];
        // SAFETY: the bitmap follows it, and nobody else knows it.
        let got = unsafe { Slab::take_free((&raw mut block).cast(), &mut slots[..want]) };
        let taken = &free[..want.min(free.len())];
        assert_eq!((got, block.0.free as usize, block.0.trimmed), (taken.len(), free.len() - taken.len(), false));
        for at in 0..192 {
            let is_free = free.contains(&at) && !taken.contains(&at);
            assert_eq!(block.1[at / 64] >> (at % 64) & 1 == 1, is_free);
        }
        // SAFETY: all were written above.
        let slots = slots.map(|slot| unsafe { slot.assume_init() });
        let objects: Vec<_> = slots[..want].iter().rev().copied().take(got).collect();
        assert_eq!(objects, taken.iter().map(|at| (1 << 20) + at * 16).collect::<Vec<_>>());
        assert!(slots[..want - got].iter().all(|&slot| slot == 7));
    }
}
