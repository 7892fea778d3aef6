//! What a search and a free leave in every bound, on chunks whose layout is given granule by granule.

extern crate std;

use super::made::{Made, full, made};
use crate::arch::atomic::Ordering::Relaxed;
use crate::percpu::bitmap::{FAR, WORD_BITS};
use crate::percpu::chunk::{BITS, Body, Chunk, GRANULE, KEYS, NO_SLOT, PAGE_BITS};
use crate::tests::random::Random;
use std::vec;
use std::vec::Vec;

const WORDS: u32 = BITS / WORD_BITS;
/// The longest run that a word's bound can tell.
const REACH: u32 = 255;

#[test]
fn words_that_reach_far_enough_are_found_as_by_a_linear_scan() {
    let random = Random::new(77);
    for round in 0..400 {
        let mut reach = [0_u8; WORDS as usize];
        let (count, most) = ([0, 1, 3, 40, 800][round % 5], [2, 0x7f, 0x82, 0x100][round % 4]);
        for _ in 0..count {
            reach[random.below(WORDS as usize)] = random.below(most) as u8;
        }
        for least in [1, 2, 0x40, 0x7e, 0x7f, 0x80, 0x81, 0xfe, 0xff] {
            for from in [0, 1, 7, 8, 63, 64, random.below(WORDS as usize), WORDS as usize - 1, WORDS as usize] {
                let expect = (from..WORDS as usize).find(|&at| reach[at] >= least);
                assert_eq!(Body::next_reach(&reach, from, least), expect, "{least} from {from} in round {round}");
            }
        }
    }
}

/// Keys that are used together push each other out: those of usual sizes take all places, in like numbers.
#[test]
fn keys_are_spread_over_all_places() {
    for sizes in [1..17, 1..65, 100..164] {
        for masks in [&[0][..], &[0, 1, 3], &[1, 3, 7, 15, 31, 63]] {
            let mut counts = [0; KEYS];
            for n in sizes.clone() {
                masks.iter().for_each(|&mask| counts[Body::place(n, mask)] += 1);
            }
            let even = sizes.len() * masks.len() / KEYS;
            assert!(counts.iter().all(|&count| count <= 2 * even + 1), "{sizes:?} {masks:?}: {counts:?}");
        }
    }
}

#[test]
fn pages_and_their_parts_are_those_of_a_linear_scan() {
    for start in [0, 1, PAGE_BITS - 1, PAGE_BITS, 5 * PAGE_BITS - 3, BITS - PAGE_BITS, BITS - 1] {
        for n in [1, 2, 3, PAGE_BITS - 1, PAGE_BITS, PAGE_BITS + 1, 3 * PAGE_BITS, BITS - start] {
            if start + n > BITS {
                continue;
            }
            let mut counts: Vec<(u32, u32)> = vec![];
            for page in (start..start + n).map(|at| at / PAGE_BITS) {
                match counts.last_mut() {
                    Some((last, count)) if *last == page => *count += 1,
                    _ => counts.push((page, 1)),
                }
            }
            let pages = counts.iter().map(|(page, _)| 1 << page).sum::<u64>();
            assert_eq!(Body::pages(start, start + n), (pages, counts));
        }
    }
}

/// A search that fails proves how long the longest run is: for a key that is new, and for one that has a cursor.
#[test]
fn a_search_that_fails_lowers_the_hint_to_what_is_true() {
    for reserved in [0, 2048] {
        let Made { chunk, totals } = made(reserved);
        let mut body = chunk.body.lock();
        let mut starts = vec![];
        while let Some(taken) = body.take(3, 0, &totals) {
            starts.push(body.granule(taken));
        }
        for round in 0..2 {
            // Six granules, of which three are taken again: the hint stays.
            body.give(starts[10], starts[10] + 3, &totals);
            body.give(starts[11], starts[11] + 3, &totals);
            body.give(starts[90], starts[90] + 3, &totals);
            body.put(starts[10], 3, &totals);
            assert_eq!(body.contig_hint, 6, "{round}");
            assert_eq!(body.cursor(5, 0).is_some(), round == 1, "new, then known");
            assert!(body.take(5, 0, &totals).is_none());
            assert_eq!(body.contig_hint, 3, "{round}");
            assert_eq!(body.cursor(5, 0), Some(WORDS));
            for at in [11, 90] {
                body.put(starts[at], 3, &totals);
            }
            body.verify(&body.live());
        }
    }
}

#[test]
fn what_is_too_long_for_a_words_reach_lowers_the_hint_below_what_was_asked() {
    let mut made = full(&[0, 1000, 1280, 1420, BITS]);
    let Made { chunk, totals } = &mut made;
    let mut body = chunk.body.lock();
    body.give(1000, 1280, totals);
    body.give(1280, 1420, totals);
    body.put(1280, 140, totals);
    assert_eq!(body.contig_hint, 420);
    // (The first sixty granules of the chunk are free, too, so that there is enough in all.)
    body.give(0, 1000, totals);
    body.put(60, 940, totals);
    body.contig_hint = 420;
    assert!(body.take(300, 0, totals).is_none());
    assert_eq!(body.contig_hint, 299, "a run is longer than a byte tells: only that this does not fit");
    assert!(body.take(280, 0, totals).is_some());
    body.verify(&body.live());
}

#[test]
fn what_fails_for_its_alignment_leaves_the_longest_run_in_the_hint() {
    let mut made = full(&[0, 3, 9, 64, BITS]);
    let Made { chunk, totals } = &mut made;
    let mut body = chunk.body.lock();
    body.give(3, 9, totals);
    body.give(64, BITS, totals);
    body.put(64, BITS - 64, totals);
    assert!(body.take(4, 7, totals).is_none());
    assert_eq!(body.contig_hint, 6);
    assert!(body.take(6, 0, totals).is_some());
}

/// What a lone free changes: the words it lies in, and keys that fit now.
#[test]
fn a_free_raises_bounds_to_what_is_true_and_no_further() {
    for (raise_at, relocate) in [(7, true), (8, true), (9, false), (u32::MAX, false)] {
        let mut made = full(&[0, 128, 136, 1024, 1028, BITS]);
        let Made { chunk, totals } = &mut made;
        let mut body = chunk.body.lock();
        for (n, mask) in [(8, 0), (9, 0), (8, 7), (1, 0)] {
            assert!(body.take(n, mask, totals).is_none());
            assert_eq!(body.cursor(n, mask), Some(WORDS));
        }
        body.give(1024, 1028, totals);
        assert_eq!(body.cursor(1, 0), Some(16));
        (body.slot, body.raise_at) = (3, raise_at);
        let after = body.give(128, 136, totals);
        assert_eq!(after.hole, (body.address(128), 8));
        assert_eq!((body.contig_hint, body.free), (8, 12));
        assert_eq!(after.relocate, relocate, "at {raise_at}");
        let raised: Vec<(usize, u8)> =
            body.reach().iter().copied().enumerate().filter(|(_, reach)| *reach != 0).collect();
        assert_eq!(raised, [(2, 8), (16, 4)]);
        assert_eq!(body.rover(), (2, (128, 136)));
        let cursors = [(8, 0), (9, 0), (8, 7), (1, 0)].map(|(n, mask)| body.cursor(n, mask));
        assert_eq!(cursors, [Some(2), Some(WORDS), Some(2), Some(2)]);
        body.slot = NO_SLOT;
        body.verify(&body.live());
    }
}

#[test]
fn a_run_that_is_cut_off_on_either_side_is_no_hole_and_may_be_all_that_is_free() {
    let cuts = [0, 640, 940, 948, 1248, 2000, BITS];
    for (before, right, left) in [(vec![], false, false), (vec![1], false, true), (vec![3], true, false)] {
        let mut made = full(&cuts);
        let Made { chunk, totals } = &mut made;
        let mut body = chunk.body.lock();
        body.give(2000, BITS, totals);
        body.put(2100, BITS - 2100, totals);
        for at in before {
            let _: u32 = cuts[at];
            body.give(cuts[at], cuts[at + 1], totals);
        }
        body.contig_hint = 300;
        let after = body.give(940, 948, totals);
        if left || right {
            assert_eq!(after.hole.1, 0, "{left} {right}");
            assert_eq!(body.contig_hint, body.free);
        } else {
            assert_eq!(after.hole, (body.address(940), 8));
            assert_eq!(body.contig_hint, 300);
        }
        body.verify(&body.live());
    }
}

/// What did not fit before may begin further left than a free looks, and end further right.
#[test]
fn cursors_are_lowered_for_what_goes_beyond_where_a_free_looks() {
    let mut made = full(&[0, 64, 1064, 1164, BITS]);
    let Made { chunk, totals } = &mut made;
    let mut body = chunk.body.lock();
    body.give(64, 1064, totals);
    assert!(body.take(1090, 0, totals).is_none());
    assert_eq!(body.cursor(1090, 0), Some(WORDS));
    body.give(1064, 1164, totals);
    body.verify(&body.live());
    let taken = body.take(1090, 0, totals);
    assert_eq!(taken.map(|taken| body.granule(taken)), Some(64));
    drop(body);

    let mut made = full(&[0, 128, 136, 536, BITS]);
    let Made { chunk, totals } = &mut made;
    let mut body = chunk.body.lock();
    body.give(136, 536, totals);
    assert!(body.take(405, 0, totals).is_none());
    body.give(128, 136, totals);
    assert_eq!(body.cursor(405, 0), Some(2));
    body.verify(&body.live());
    let taken = body.take(405, 0, totals);
    assert_eq!(taken.map(|taken| body.granule(taken)), Some(128));
}

/// Frees in order do not raise their words again; those between two of them were free before.
#[test]
fn words_of_a_run_that_grows_in_order_reach_all_of_it() {
    let mut made = full(&[0, 64, 128, 256, 320, 330, 600, BITS]);
    let Made { chunk, totals } = &mut made;
    let mut body = chunk.body.lock();
    body.give(128, 256, totals);
    for (start, end) in [(0, 64), (64, 128), (256, 320), (320, 330)] {
        body.give(start, end, totals);
        body.verify(&body.live());
    }
    assert_eq!(body.rover(), ((320 - FAR) / WORD_BITS, (320 - FAR, 330)));
    body.give(330, 600, totals);
    body.verify(&body.live());
    assert_eq!(body.contig_hint, body.free);
}

#[test]
fn a_new_key_begins_at_the_last_free_and_a_known_one_at_its_cursor() {
    let Made { chunk, totals } = made(0);
    let mut body = chunk.body.lock();
    while body.take(4, 0, &totals).is_some() {}
    let (word, far) = (80 / WORD_BITS, 40_000 / WORD_BITS);
    body.give(80, 84, &totals);
    body.give(40_000, 40_004, &totals);
    let take = |body: &mut Body, n: u32| {
        let taken = body.take(n, 0, &totals);
        taken.map(|taken| body.granule(taken))
    };
    // Known: the lowest, and the rover stays.
    assert_eq!((body.cursor(4, 0), body.rover().0), (Some(word), far));
    assert_eq!(take(&mut body, 4), Some(80));
    assert_eq!((body.cursor(4, 0), body.rover().0), (Some(word), far));
    // New: at the rover, and it is not yet remembered.
    body.give(80, 84, &totals);
    assert_eq!(body.give(40_004, 40_008, &totals).hole.1, 8);
    assert_eq!(body.cursor(2, 0), None);
    assert_eq!(take(&mut body, 2), Some(40_000));
    assert_eq!((body.cursor(2, 0), body.rover().0), (None, far));
    // A word as a whole, too.
    (700 * WORD_BITS..701 * WORD_BITS).step_by(4).for_each(|at| _ = body.give(at, at + 4, &totals));
    assert_eq!(take(&mut body, 64), Some(700 * WORD_BITS));
    assert_eq!((body.cursor(64, 0), body.rover().0), (None, 700));
    // Known, with too little in the cursor's word: the next that is enough.
    body.put(80, 2, &totals);
    body.give(2000, 2004, &totals);
    body.give(50_000, 50_004, &totals);
    assert_eq!(body.cursor(4, 0), Some(word));
    assert_eq!(take(&mut body, 4), Some(2000));
    assert_eq!(body.cursor(4, 0), Some(2000 / WORD_BITS));
    body.verify(&body.live());
}

#[test]
fn words_that_are_taken_whole_reach_nothing() {
    for (start, n, whole) in
        [(0, 64, 0..1), (64, 63, 1..1), (65, 64, 0..0), (10, 200, 1..3), (128, 128, 2..4), (63, 65, 1..2)]
    {
        let Made { chunk, totals } = made(0);
        let mut body = chunk.body.lock();
        body.put(start, n, &totals);
        for word in 0..8 {
            let expect = if whole.contains(&word) { 0 } else { REACH };
            assert_eq!(u32::from(body.reach()[word as usize]), expect, "word {word} of {n} at {start}");
        }
    }
}

#[test]
fn allocations_at_an_address_are_free_ones_of_the_chunk() {
    let Made { chunk, totals } = made(2048);
    let mut body = chunk.body.lock();
    let at = |start: u32| 16 * crate::percpu::units::UNIT + start as usize * GRANULE;
    assert_eq!(body.take_at(at(2047), 1, &totals), None, "reserved");
    assert_eq!(body.take_at(at(BITS), 1, &totals), None);
    assert_eq!(body.take_at(at(2 * BITS), 1, &totals), None);
    assert_eq!(body.take_at(at(2048) - GRANULE, 1, &totals), None);
    assert_eq!(body.take_at(0, 1, &totals), None);
    let taken = body.take_at(at(2048), 10, &totals);
    assert_eq!(taken.map(|taken| (taken.address(), taken.low())), Some((at(2048), false)));
    assert_eq!(body.take_at(at(2057), 1, &totals), None, "taken");
    assert_eq!(body.take_at(at(2048), 1, &totals), None);
    assert!(body.take_at(at(2058), BITS - 2058, &totals).is_some());
    body.verify(&[(2048, 10), (2058, BITS - 2058)]);
    assert_eq!(Chunk::new().body.lock().take_at(64, 1, &totals), None, "without memory");
    assert_eq!(totals.empty().load(Relaxed), 0);
}
