//! A zone's marks, limits and lists, each by itself: what it gives first, what it keeps, what it hands over.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::page::tests::{GROWTH, Place};
use std::println;
use std::vec::Vec;

/// A zone of which all is taken, and so many whole blocks of it, one behind the other.
fn taken(blocks: usize) -> (Place, Vec<Pfn>) {
    let place = Place::new();
    let mut all: Vec<_> = (0..2 * blocks + 8).map(|_| place.alloc(9, 1, Flags::NONE)[0].0).collect();
    while !place.alloc(0, 1000, Flags::ATOMIC).is_empty() {}
    all.sort();
    let follow = |run: &&[Pfn]| run.windows(2).all(|pair| pair[0].add(BLOCK_PAGES) == pair[1]);
    let all = all.windows(blocks).find(follow).expect("blocks behind each other").to_vec();
    (place, all)
}

impl Place {
    /// Pages of a block from one to another are freed.
    fn give(&self, block: Pfn, pages: impl Iterator<Item = usize>) {
        assert_eq!(self.free(&pages.map(|page| (block.add(page), 0)).collect::<Vec<_>>()), 0);
        self.verify();
    }
    /// All that is dirty becomes clean.
    fn clean(&self) {
        while let Some((first, pages)) = self.zone.take_dirty(self.windows, &self.board, 0) {
            self.zone.cleaned(self.windows, &self.board, first, pages, true);
        }
        self.verify();
    }
    fn one(&self, order: usize) -> Pfn {
        self.alloc(order, 1, Flags::ATOMIC)[0].0
    }
    /// How many blocks there are where `pages` more than now are allowed, and whether the zone grew.
    fn within(&self, pages: usize, order: usize, n: usize) -> (usize, bool) {
        let limit = self.board.held() + (pages * PAGE) as u64;
        let want = ZoneRequest { growth: GROWTH, order, flags: Flags::NONE, limit };
        let got = self.zone.alloc(self.windows, &self.board, want, n, |_| ());
        self.verify();
        got
    }
    fn spare(&self, order: usize, n: usize) -> usize {
        let want = ZoneRequest { growth: GROWTH, order, flags: Flags::NONE, limit: u64::MAX };
        self.zone.alloc_spare(self.windows, &self.board, want, n, |_| ())
    }
}

#[test]
fn marks_are_what_the_kernel_says_and_each_is_inside() {
    let zone = Zone::new();
    let marks = |managed| {
        zone.managed.store(managed, Relaxed);
        let Watermarks { min, low, high } = zone.watermarks();
        [min, low, high]
    };
    assert_eq!(marks(MARKED - 1), [0, 0, 0]);
    // √32768; a quarter of it.
    assert_eq!(marks(MARKED), [181, 226, 271]);
    // √4194304; a thousandth of 2^20.
    assert_eq!(marks(1 << 20), [2048, 3096, 4144]);
    let sides = |free| {
        zone.free.store(free, Relaxed);
        (zone.below_low(), zone.above_high())
    };
    assert_eq!([3095, 3096, 4144, 4145].map(sides), [(true, false), (false, false), (false, false), (false, true)]);
}

#[test]
fn a_zone_grows_before_it_is_below_its_mark_and_a_small_one_when_it_is_empty() {
    let grows = |free: usize, order: usize, n: usize| {
        let place = Place::opened();
        while place.zone.managed() < MARKED {
            place.alloc(9, 1, Flags::NONE);
        }
        // (A mark is 181 pages and more: what is asked for is there.)
        let blocks: Vec<_> = (0..24).map(|_| place.alloc(9, 1, Flags::NONE)[0]).collect();
        while !place.alloc(0, 1000, Flags::ATOMIC).is_empty() {}
        let free = place.zone.watermarks().min + free;
        let pages = blocks.iter().flat_map(|block| (0..BLOCK_PAGES).map(|page| (block.0.add(page), 0)));
        assert_eq!(place.free(&pages.take(free).collect::<Vec<_>>()), 0);
        assert_eq!(place.zone.free_pages(), free);
        let (got, grew) = place.within(1 << 30, order, n);
        assert!(got > 0);
        grew
    };
    assert_eq!([grows(10, 0, 10), grows(9, 0, 10)], [false, true]);
    assert_eq!([grows(512, 9, 1), grows(511, 9, 1)], [false, true]);
    // One holding of the lock gives 1024 pages, whatever is asked for.
    assert_eq!([grows(1024, 0, 5000), grows(1023, 0, 5000)], [false, true]);
    assert_eq!([grows(1024, 3, 5000), grows(1023, 3, 5000)], [false, true]);
    let (small, blocks) = taken(1);
    small.give(blocks[0], 0..100);
    assert_eq!(small.within(1 << 30, 0, 200), (100, false));
    assert!(small.within(1 << 30, 0, 200).1);
}

#[test]
fn a_limit_is_met_to_the_page_and_what_is_dirty_is_paid_for() {
    let place = Place::new();
    assert_eq!(place.within(0, 0, 1), (0, false));
    assert_eq!(place.within(1, 0, 5), (1, true));
    assert_eq!(place.within(8, 3, 5), (1, false));
    // Whole blocks, dirty and clean, and pairs of them.
    let (place, blocks) = taken(8);
    let even = usize::from(blocks[0].block() % 2 == 1);
    let pairs = &blocks[even..even + 4];
    pairs.iter().for_each(|&block| place.give(block, 0..BLOCK_PAGES));
    assert_eq!(place.within(0, 10, 2), (2, false), "dirty: the heap has them");
    pairs.iter().for_each(|&block| place.give(block, 0..BLOCK_PAGES));
    assert_eq!(
        (place.within(0, 0, 1), place.within(0, 3, 1), place.within(0, 9, 1)),
        ((1, false), (1, false), (1, false))
    );
    let (place, blocks) = taken(8);
    let pairs = &blocks[even..even + 4];
    pairs.iter().for_each(|&block| place.give(block, 0..BLOCK_PAGES));
    place.clean();
    assert_eq!(place.within(2 * BLOCK_PAGES - 1, 10, 2), (0, false));
    assert_eq!(place.within(2 * BLOCK_PAGES, 10, 2), (1, false));
    // Half of the other pair is dirty, and only the rest counts.
    let left = place.zone.buddyinfo(place.windows, &place.board, 0);
    assert_eq!((left[10], place.zone.free_pages()), (1, 2 * BLOCK_PAGES));
    let pair = place.one(10);
    place.give(pair, 0..BLOCK_PAGES);
    place.clean();
    place.give(pair, BLOCK_PAGES..2 * BLOCK_PAGES);
    // (It may open more, which costs addresses alone.)
    assert_eq!([place.within(BLOCK_PAGES - 1, 10, 1).0, place.within(BLOCK_PAGES, 10, 1).0], [0, 1]);
}

#[test]
fn others_get_what_is_above_the_mark() {
    let (place, blocks) = taken(20);
    assert!(place.zone.watermarks().min > 0);
    assert_eq!(place.spare(0, 100), 0);
    place.give(blocks[0], 0..BLOCK_PAGES);
    let above = BLOCK_PAGES - place.zone.watermarks().min;
    assert_eq!(place.spare(2, 100), (above >> 2).min(100));
    assert_eq!(place.spare(0, 1000), above - ((above >> 2).min(100) << 2));
    assert_eq!((place.zone.free_pages(), place.spare(0, 1)), (place.zone.watermarks().min, 0));
}

#[test]
fn pages_that_were_touched_are_given_first_and_whole_blocks_last() {
    // Of blocks with as long free runs the one with a dirty page, whichever became free first.
    for dirty in [0, 1] {
        let (place, blocks) = taken(2);
        blocks.iter().for_each(|&block| place.give(block, 0..32));
        place.clean();
        place.give(blocks[dirty], 100..101);
        let first = place.one(5);
        assert_eq!(first, blocks[dirty], "{dirty}");
        // Put back clean, and the dirty page gone: then it is behind the other.
        place.give(first, 0..32);
        place.clean();
        place.give(blocks[dirty], 200..201);
        assert_eq!(place.one(0), blocks[dirty].add(200));
        assert_eq!(place.one(5), blocks[1 - dirty], "{dirty}");
    }
    // Of blocks with as long dirty runs the one that is not free as a whole.
    for whole in [0, 1] {
        for first in [0, 1] {
            let (place, blocks) = taken(2);
            place.give(blocks[whole], 0..BLOCK_PAGES);
            place.give(blocks[1 - whole], 32..64);
            place.clean();
            let page = [place.one(0), place.one(0)];
            assert!(page.iter().all(|page| page.block() == blocks[1 - whole].block()), "the smallest that suffices");
            // (Of the whole one the last page, dirty again.)
            let run = place.alloc(9, 1, Flags::ATOMIC)[0].0;
            place.give(run, 0..BLOCK_PAGES - 1);
            place.clean();
            for at in [first, 1 - first] {
                if at == 0 {
                    place.give(run, BLOCK_PAGES - 1..BLOCK_PAGES);
                } else {
                    place.give(page[0], 0..1);
                }
            }
            assert_eq!(place.zone.dirty_pages(), 2);
            assert_eq!(place.one(0), page[0], "{whole} {first}");
        }
    }
}

#[test]
fn fresh_pages_are_clean_and_freed_ones_are_not() {
    let place = Place::new();
    let all = [0, 3, 6, 9, 10].map(|order| place.alloc(order, 1, Flags::NONE)[0]);
    assert_eq!(all.map(|(_, clean)| clean), [true; 5]);
    all.iter().for_each(|(block, _)| place.give(*block, 0..1));
    assert_eq!(place.zone.dirty_pages(), 5);
    assert!(!place.alloc(0, 1, Flags::NONE)[0].1);
}

#[test]
fn each_page_that_was_free_is_refused_and_no_other() {
    let (place, blocks) = taken(2);
    let (block, other) = (blocks[0], blocks[1]);
    let free = |pages: &[usize]| {
        let mut gather = Gather::<64>::new();
        let fresh = pages.iter().filter(|page| gather.add(block.add(**page), 0)).count();
        let refused = place.zone.free(place.windows, &place.board, &gather) + pages.len() - fresh;
        place.verify();
        refused
    };
    assert_eq!(free(&[7]), 0);
    assert_eq!(free(&[6, 7, 8]), 1, "in one word");
    assert_eq!(free(&[8, 9, 70, 71]), 1, "in one of two");
    assert_eq!(free(&[9, 10, 71, 72]), 2, "in each of two");
    assert_eq!(free(&[20, 100, 20]), 1, "twice in one");
    assert_eq!(free(&[9, 100, 9]), 3);
    assert_eq!(place.zone.free_pages(), 10);
    let is_free = |page: usize| place.zone.is_free(place.windows, &place.board, block.add(page));
    assert_eq!(
        [5, 6, 10, 11, 20, 21, 69, 70, 72, 73, 511].map(is_free),
        [false, true, true, false, true, false, false, true, true, false, false]
    );
    assert!(!place.zone.is_free(place.windows, &place.board, other));
}

#[test]
fn whole_dirty_blocks_are_taken_with_those_around_four_at_most() {
    let (place, blocks) = taken(8);
    let take =
        || place.zone.take_dirty(place.windows, &place.board, 9).map(|(first, pages)| (first, pages / BLOCK_PAGES));
    // Six beside each other, the fifth of them first; one by itself.
    for at in [4, 5, 0, 1, 2, 3, 7] {
        place.give(blocks[at], 0..BLOCK_PAGES);
    }
    assert_eq!(
        [take(), take(), take(), take()],
        [Some((blocks[2], 4)), Some((blocks[0], 2)), Some((blocks[7], 1)), None]
    );
    // The first of them first: as many, forwards.
    let (forwards, blocks) = taken(6);
    blocks.iter().for_each(|&block| forwards.give(block, 0..BLOCK_PAGES));
    let take = || forwards.zone.take_dirty(forwards.windows, &forwards.board, 9);
    let pages = 4 * BLOCK_PAGES;
    assert_eq!([take(), take()], [Some((blocks[0], pages)), Some((blocks[4], pages / 2))]);
    // Of one that is not whole the longest run, where that is long enough.
    let (place, blocks) = taken(1);
    place.give(blocks[0], (0..10).chain(16..48));
    let take = |order| place.zone.take_dirty(place.windows, &place.board, order);
    assert_eq!(
        [take(6), take(4), take(4), take(3), take(1)],
        [None, Some((blocks[0].add(16), 32)), None, Some((blocks[0], 10)), None]
    );
}

#[test]
fn what_is_handed_over_is_the_first_run_that_is_long_enough() {
    let (place, blocks) = taken(5);
    let mut random = 1_u64;
    for round in 0..60 {
        // Runs of free and taken pages, some longer than blocks.
        let mut free = Vec::new();
        let mut at = 0;
        while at < 5 * BLOCK_PAGES {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let len = [1, 7, 64, 130, 700][(random >> 40) as usize % 5].min(5 * BLOCK_PAGES - at);
            if random >> 60 & 1 == 1 {
                free.extend(at..at + len);
            }
            at += len;
        }
        place.give(blocks[0], free.iter().copied());
        let (managed, all) = (place.zone.managed(), place.zone.free_pages());
        assert_eq!(all, free.len());
        let runs: Vec<(usize, usize)> = free.chunk_by(|a, b| a + 1 == *b).map(|run| (run[0], run.len())).collect();
        for (least, most) in [(1, 1), (1, 5), (7, 3), (64, 64), (65, 1000), (200, 5000), (all, all), (all + 1, all + 1)]
        {
            let expected = runs.iter().find(|(_, len)| *len >= least);
            let expected = expected.map(|&(first, len)| (blocks[0].add(first), len.min(most.max(least))));
            let got = place.zone.hand_over(place.windows, &place.board, 0, least, most, |_, _| true);
            assert_eq!(got, expected, "round {round}: {least} to {most} of {runs:?}");
            if let Some((first, pages)) = got {
                place.verify();
                assert_eq!((place.zone.managed(), place.zone.free_pages()), (managed - pages, all - pages));
                let dirty = place.zone.dirty_pages();
                let clean = round % 2 == 0;
                place.zone.take_over(place.windows, &place.board, first, pages, clean);
                assert_eq!(place.zone.dirty_pages(), dirty + if clean { 0 } else { pages });
            }
            place.verify();
            assert_eq!((place.zone.managed(), place.zone.free_pages()), (managed, all));
        }
        while !place.alloc(0, 1000, Flags::ATOMIC).is_empty() {}
    }
    // All of a zone that is one run.
    place.give(blocks[0], 0..5 * BLOCK_PAGES);
    let all = place.zone.hand_over(place.windows, &place.board, 0, 5 * BLOCK_PAGES, 5 * BLOCK_PAGES, |_, _| true);
    assert_eq!(all, Some((blocks[0], 5 * BLOCK_PAGES)));
    assert_eq!(place.zone.hand_over(place.windows, &place.board, 0, 1, 1, |_, _| true), None);
    // A run that ends where the zone does, and is just long enough.
    let place = Place::opened();
    let all = place.zone.hand_over(place.windows, &place.board, 0, BLOCK_PAGES, 2 * BLOCK_PAGES, |_, _| true);
    assert_eq!(all.map(|(_, pages)| pages), Some(BLOCK_PAGES));
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "they were the zone's already")]
fn pages_of_the_zone_are_not_taken_over() {
    let place = Place::opened();
    let block = place.one(9);
    assert_eq!(place.free(&[(block, 9)]), 0);
    place.zone.take_over(place.windows, &place.board, block, 5, true);
}

#[test]
fn new_memory_is_bound_to_its_node_where_that_is_wanted() {
    let policy = |at: usize| {
        let mut mode = -1_i32;
        // MPOL_F_ADDR: of what is mapped there.
        let result = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, 0, 0, at, 2) };
        (result == 0).then_some(mode)
    };
    for bind in [false, true] {
        let place = Place::new();
        let want = ZoneRequest { growth: Growth { bind, ..GROWTH }, order: 9, flags: Flags::NONE, limit: u64::MAX };
        let mut block = Pfn::NONE;
        place.zone.alloc(place.windows, &place.board, want, 1, |word| block = word.first);
        let (at, pages) = (place.windows.address(block), place.zone.managed());
        let (Some(first), Some(last)) = (policy(at), policy(at + pages * PAGE - 1)) else {
            return println!("skipped: this kernel knows no nodes");
        };
        assert_eq!([first != 0, last != 0], [bind; 2], "MPOL_DEFAULT is 0");
    }
}

#[test]
fn a_block_changes_hands_dirty_before_clean() {
    let (place, blocks) = taken(2);
    let hand = |order, must| {
        let (managed, block) =
            (place.zone.managed(), place.zone.hand_over_block(place.windows, &place.board, order, must));
        let pages = block.map_or(0, |_| 1 << order);
        assert_eq!(place.zone.managed(), managed - pages, "nobody's");
        place.verify();
        block
    };
    assert_eq!((hand(6, true), hand(6, false)), (None, None));
    place.give(blocks[0], 0..512);
    place.clean();
    place.give(blocks[1], 64..192);
    assert!(place.zone.has_dirty(6) && !place.zone.has_dirty(7));
    assert_eq!(hand(7, true), None);
    assert_eq!([hand(6, true), hand(6, false)], [64, 128].map(|at| Some((blocks[1].add(at), false))));
    assert!(!place.zone.has_dirty(6));
    assert_eq!((hand(6, true), hand(6, false)), (None, Some((blocks[0], true))));
    assert_eq!(hand(8, false), Some((blocks[0].add(256), true)));
    assert_eq!(hand(8, false), None);
}
