//! A zone against a plain list of pages, from several threads, and what it refuses.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::stat::Level;
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

/// By small pages.
pub(super) const GROWTH: Growth = Growth { node: 0, bind: false, huge: usize::MAX };

/// A zone with windows of its own.
pub(super) struct Place {
    // For ever, as its windows: where a new one looks for addresses depends on where it is itself.
    pub(super) windows: &'static Windows,
    pub(super) board: Box<Board>,
    pub(super) zone: Zone,
    growth: Growth,
}

impl Place {
    pub(super) fn new() -> Self {
        unsafe {
            let (windows, board) = (Box::<Windows>::new_zeroed(), Box::<Board>::new_zeroed());
            Self {
                windows: Box::leak(windows.assume_init()),
                board: board.assume_init(),
                zone: Zone::new(),
                growth: GROWTH,
            }
        }
    }
    pub(super) fn alloc(&self, order: usize, n: usize, flags: Flags) -> Vec<(Pfn, bool)> {
        let mut got = Vec::new();
        let want = ZoneRequest { growth: self.growth, order, flags, limit: u64::MAX };
        let take = |word: &BatchWord| {
            word.addresses(self.windows, |at| got.push((self.windows.find(at).unwrap().1, word.clean)));
        };
        let (count, _) = self.zone.alloc(self.windows, &self.board, want, n, take);
        assert_eq!(count, got.len());
        got
    }
    /// The same with a whole block opened at once.
    pub(super) fn opened() -> Self {
        let place = Self::new();
        let block = place.alloc(9, 1, Flags::NONE)[0].0;
        assert_eq!((place.free(&[(block, 9)]), place.zone.managed()), (0, 512));
        place
    }
    /// How many pages were refused.
    pub(super) fn free(&self, blocks: &[(Pfn, usize)]) -> usize {
        let mut refused = 0;
        for some in blocks.chunks(8) {
            let mut gather = Gather::<64>::new();
            for &(block, order) in some {
                if !gather.has_room(order) {
                    refused += self.zone.free(self.windows, &self.board, &gather);
                    gather.clear();
                }
                refused += usize::from(!gather.add(block, order)) << order;
            }
            refused += self.zone.free(self.windows, &self.board, &gather);
        }
        refused
    }
    pub(super) fn verify(&self) {
        self.zone.verify(self.windows, &self.board, 0);
        let levels = [Level::PagesFree, Level::PagesDirty].map(|level| self.board.level(level) as usize / PAGE);
        assert_eq!(levels, [self.zone.free_pages(), self.zone.dirty_pages()]);
    }
}

/// What each page is, and nothing else.
#[derive(Default)]
struct Model {
    first: u32,
    /// (free, dirty)
    pages: Vec<(bool, bool)>,
    live: BTreeMap<u32, usize>,
}

impl Model {
    /// The zone grew: fresh pages are free and clean.
    fn grow(&mut self, place: &Place, seen: Pfn) {
        if self.first == 0 {
            self.first = seen.0 & !(1024 - 1);
        }
        self.pages.resize(place.zone.managed(), (true, false));
    }
    fn at(&mut self, page: u32) -> &mut (bool, bool) {
        &mut self.pages[(page - self.first) as usize]
    }
    /// Aligned runs of 2^order pages that are free (and dirty).
    fn runs(&self, order: usize, dirty: bool) -> usize {
        self.pages.chunks_exact(1 << order).filter(|run| run.iter().all(|page| page.0 && (!dirty || page.1))).count()
    }
    fn buddyinfo(&self) -> [usize; ORDERS] {
        let runs: Vec<_> = (0..ORDERS).map(|order| self.runs(order, false)).chain([0]).collect();
        core::array::from_fn(|order| runs[order] - 2 * runs[order + 1])
    }
    fn take(&mut self, place: &Place, block: Pfn, order: usize, clean: bool) {
        assert!(block.0.is_multiple_of(1 << order));
        assert!(self.live.insert(block.0, order).is_none());
        if order < 9 && place.windows.is_huge(block.block()) {
            // The first of a huge page's: all are resident.
            let whole = block.0 & !511..(block.0 | 511) + 1;
            if whole.clone().all(|page| *self.at(page) == (true, false)) {
                whole.for_each(|page| *self.at(page) = (true, true));
            }
        }
        for page in block.0..block.0 + (1 << order) {
            let page = self.at(page);
            assert!(page.0, "handed out twice");
            assert!(!clean || !page.1, "called clean");
            *page = (false, false);
        }
    }
    fn give(&mut self, block: u32, order: usize) {
        assert_eq!(self.live.remove(&block), Some(order));
        (block..block + (1 << order)).for_each(|page| *self.at(page) = (true, true));
    }
}

#[derive(Clone, Debug)]
enum Op {
    Alloc(usize, usize, bool),
    Free(Vec<usize>),
    FreeAll(usize),
    Double(usize),
    Purge(usize, bool),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let order = prop_oneof![4 => Just(0_usize), 4 => 0..4_usize, 2 => 0..ORDERS];
    let op = prop_oneof![
        6 => (order, 1..200_usize, any::<bool>()).prop_map(|(order, n, atomic)| Op::Alloc(order, n, atomic)),
        6 => prop::collection::vec(any::<usize>(), 1..150).prop_map(Op::Free),
        2 => any::<usize>().prop_map(Op::FreeAll),
        2 => any::<usize>().prop_map(Op::Double),
        2 => (0..ORDERS, any::<bool>()).prop_map(|(order, clean)| Op::Purge(order, clean)),
    ];
    prop::collection::vec(op, 1..80)
}

fn run(ops: Vec<Op>, huge: usize) -> Place {
    let place = Place { growth: Growth { huge, ..GROWTH }, ..Place::new() };
    let mut model = Model::default();
    for op in ops {
        match op {
            Op::Alloc(order, n, atomic) => {
                // Enough to see pairs, not more than a test should touch.
                let n = n.min(3000 >> order).max(1);
                let flags = if atomic { Flags::ATOMIC } else { Flags::NONE };
                let had = model.pages.len();
                let (dirty, free) = (order < 10 && model.runs(order, true) > 0, model.runs(order, false));
                let got = place.alloc(order, n, flags);
                assert!(got.len() <= n && (!got.is_empty() || atomic && free == 0), "{order}: {free} free");
                assert!(!atomic || place.zone.managed() == had, "an atomic request opened memory");
                assert!(!dirty || !got[0].1, "clean before dirty");
                if let Some(&(seen, _)) = got.first() {
                    model.grow(&place, seen);
                }
                got.into_iter().for_each(|(block, clean)| model.take(&place, block, order, clean));
            }
            Op::Free(which) => {
                let mut blocks = Vec::new();
                for which in which {
                    let Some((&block, &order)) = model.live.iter().nth(which % model.live.len().max(1)) else { break };
                    model.give(block, order);
                    blocks.push((Pfn(block), order));
                }
                assert_eq!(place.free(&blocks), 0);
            }
            Op::FreeAll(odd) => {
                // In order, as a bulk free does; every other one, so that the rest stays in pieces.
                let all: Vec<_> = model.live.iter().map(|(&block, &order)| (Pfn(block), order)).collect();
                let some: Vec<_> =
                    all.into_iter().enumerate().filter(|(at, _)| (at ^ odd) & 3 != 0).map(|(_, b)| b).collect();
                some.iter().for_each(|&(block, order)| model.give(block.0, order));
                assert_eq!(place.free(&some), 0);
            }
            Op::Double(which) => {
                // Whatever is free: refused page by page.
                let free: Vec<_> = (0..model.pages.len()).filter(|&page| model.pages[page].0).collect();
                if !free.is_empty() {
                    let page = free[which % free.len()] as u32 + model.first;
                    let n = place.zone.free_pages();
                    assert_eq!(place.free(&[(Pfn(page), 0)]), 1);
                    assert_eq!(place.free(&[(Pfn(page), 0), (Pfn(page), 0)]), 2);
                    assert_eq!(place.zone.free_pages(), n);
                }
            }
            Op::Purge(order, clean) => {
                let mut out = Vec::new();
                while let Some((first, len)) = place.zone.take_dirty(place.windows, &place.board, order) {
                    assert!(len >= 1 << order.min(9));
                    for page in first.0..first.0 + len as u32 {
                        assert_eq!(*model.at(page), (true, true), "taken to be purged");
                        *model.at(page) = (false, false);
                    }
                    out.push((first, len));
                    place.verify();
                }
                assert_eq!(model.runs(order.min(9), true), 0, "left dirty");
                for (first, len) in out {
                    // SAFETY: free, in our hand.
                    assert!(!clean || unsafe { place.zone.give_back(place.windows, &place.board, first, len) });
                    place.zone.cleaned(place.windows, &place.board, first, len, clean);
                    (first.0..first.0 + len as u32).for_each(|page| *model.at(page) = (true, !clean));
                }
            }
        }
        place.verify();
        let dirty = model.pages.iter().filter(|page| page.1).count();
        assert_eq!(place.zone.dirty_pages(), dirty);
        assert_eq!(place.zone.buddyinfo(place.windows, &place.board, 0), model.buddyinfo());
    }
    place
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_zone_is_a_list_of_pages(ops in ops()) {
        run(ops, usize::MAX);
    }

    #[test]
    fn a_zone_of_huge_pages_is_one_too(ops in ops(), from in 0..2048_usize) {
        run(ops, from);
    }
}

#[test]
fn threads_get_different_pages_and_nothing_is_lost() {
    let place = Place::new();
    crate::tests::threads::scope(|scope| {
        for thread in 0..4_usize {
            let place = &place;
            scope.spawn(move || {
                let mut held: Vec<(Pfn, usize)> = Vec::new();
                let mut random = thread as u64 + 1;
                for round in 0..3000_usize {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let order = [0, 0, 1, 3, 9][(random >> 33) as usize % 5];
                    for (block, _) in place.alloc(order, 1 + (random >> 40) as usize % 60, Flags::NONE) {
                        let at = place.windows.address(block) as *mut usize;
                        // (Read as it was left: by nobody or by a thread that gave it back.)
                        unsafe { at.write(thread << 32 | block.0 as usize) };
                        held.push((block, order));
                    }
                    while held.len() > 100 || round % 50 == 0 && !held.is_empty() {
                        let (block, order) = held.swap_remove((random >> 35) as usize % held.len());
                        let at = place.windows.address(block) as *const usize;
                        assert_eq!(unsafe { at.read() }, thread << 32 | block.0 as usize, "two have it");
                        assert_eq!(place.free(&[(block, order)]), 0);
                    }
                    if round % 64 == 0
                        && let Some((first, len)) = place.zone.take_dirty(place.windows, &place.board, 2)
                    {
                        let clean = unsafe { give_back(place.windows.address(first), len * PAGE) };
                        place.zone.cleaned(place.windows, &place.board, first, len, clean);
                    }
                }
                assert_eq!(place.free(&held), 0);
            });
        }
    });
    place.verify();
    assert_eq!(place.zone.free_pages(), place.zone.managed());
}

#[test]
fn clean_pages_are_zero() {
    let place = Place::new();
    let word = |block: Pfn| unsafe { (place.windows.address(block) as *mut u64).as_mut().unwrap() };
    for round in 0..3 {
        let (mut held, mut clean_ones) = (Vec::new(), 0);
        for order in [0, 3, 5, 9, 10] {
            for (block, clean) in place.alloc(order, 3, Flags::NONE) {
                clean_ones += usize::from(clean);
                assert!(!clean || (0..1 << order).all(|page| *word(block.add(page)) == 0), "called clean");
                (0..1 << order).for_each(|page| *word(block.add(page)) = 7);
                held.push((block, order));
            }
        }
        assert!(round == 1 || clean_ones > 0, "fresh or given back");
        place.free(&held);
        while round == 1
            && let Some((first, len)) = place.zone.take_dirty(place.windows, &place.board, 0)
        {
            let clean = unsafe { give_back(place.windows.address(first), len * PAGE) };
            place.zone.cleaned(place.windows, &place.board, first, len, clean);
        }
    }
}

#[test]
fn fragmented_blocks_are_used_up_first_and_whole_ones_stay_whole() {
    let place = Place::opened();
    let pages = place.alloc(0, 512, Flags::NONE);
    let more: Vec<_> = (0..4).flat_map(|_| place.alloc(9, 1, Flags::NONE)).collect();
    assert_eq!((pages.len(), more.len()), (512, 4));
    place.free(&more.iter().map(|&(block, _)| (block, 9)).collect::<Vec<_>>());
    // Every other page: no two are neighbours.
    place.free(&pages.iter().step_by(2).map(|&(page, _)| (page, 0)).collect::<Vec<_>>());
    let whole = || place.zone.buddyinfo(place.windows, &place.board, 0)[9..].to_vec();
    let before = whole();
    for _ in 0..256 {
        let got = place.alloc(0, 1, Flags::NONE);
        assert_eq!(got[0].0.block(), pages[0].0.block());
    }
    assert_eq!(whole(), before);
    assert_ne!(place.alloc(0, 1, Flags::NONE)[0].0.block(), pages[0].0.block());
}

#[test]
fn watermarks_keep_pages_for_the_atomic_and_small_zones_have_none() {
    let place = Place::opened();
    let mut held = place.alloc(0, 512, Flags::NONE);
    assert_eq!((place.zone.managed(), place.zone.free_pages()), (512, 0), "a small zone gives its last page");
    while place.zone.managed() < 20_000 {
        held.extend(place.alloc(9, 1, Flags::NONE));
    }
    let marks = place.zone.watermarks();
    assert_eq!(marks.min, (place.zone.managed() * 4).isqrt());
    assert!(marks.min < marks.low && marks.low < marks.high);
    // Down to the mark without more than a step; then it grows instead.
    let managed = place.zone.managed();
    while place.zone.managed() == managed {
        assert!(place.zone.free_pages() >= marks.min);
        assert_eq!(place.alloc(0, 1, Flags::NONE).len(), 1);
    }
    // Atomic requests have the rest, and open nothing.
    let (managed, mut n) = (place.zone.managed(), 0);
    while !place.alloc(0, 100, Flags::ATOMIC).is_empty() {
        n += 1;
    }
    assert!(n > 0);
    assert_eq!((place.zone.managed(), place.zone.free_pages()), (managed, 0));
    assert!(place.zone.below_low() && place.zone.prepare_more(place.windows, &place.board, GROWTH));
    assert!(!place.zone.below_low() && !place.zone.prepare_more(place.windows, &place.board, GROWTH));
    place.verify();
}

#[test]
fn nodes_are_asked_by_their_distance() {
    let pages = unsafe { Box::<Pages>::new_zeroed().assume_init() };
    assert_eq!(pages.fallback(0), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(pages.fallback(3), [3, 2, 4, 1, 5, 0, 6, 7]);
    let mut distances = [[10; NODES]; NODES];
    distances[0] = [10, 21, 21, 11, 21, 21, 21, 11];
    pages.set_distances(&distances);
    assert_eq!(pages.fallback(0), [0, 3, 7, 1, 2, 4, 5, 6]);
    assert_eq!(pages.fallback(5)[0], 5);
}

#[test]
fn memory_is_placed_where_there_are_nodes_and_no_filter() {
    let pages = unsafe { Box::<Pages>::new_zeroed().assume_init() };
    let places = || [(0, 1), (1, 1), (0, 2), (1, 2)].map(|(node, nodes)| pages.places(node, nodes));
    assert_eq!(places(), [false, true, true, true]);
    pages.confine();
    assert_eq!(places(), [false; 4]);
}

#[test]
fn huge_pages_are_for_zones_that_are_large_enough() {
    let pages = unsafe { Box::<Pages>::new_zeroed().assume_init() };
    assert_eq!(pages.growth(0, 1, 0).huge, usize::MAX, "none is");
    for from in [0, 512, usize::MAX] {
        pages.set_huge(from);
        let Growth { node, bind, huge } = pages.growth(3, 4, 0);
        assert_eq!((node, bind, huge), (3, true, from));
    }
    // And where hardly anything is of objects of which a program may touch little.
    pages.set_huge(512);
    pages.note_long(100);
    let slabs = 800 * PAGE as u64;
    assert_eq!([slabs - 1, slabs, slabs + 1].map(|slabs| pages.growth(0, 1, slabs).huge), [usize::MAX, 512, 512]);
    pages.note_long(-100);
    assert_eq!(pages.growth(0, 1, 0).huge, 512);
}

#[test]
fn a_gather_has_room_to_its_last_word() {
    let mut gather = Gather::<24>::new();
    let room = |gather: &Gather<24>| [0, 5, 6, 7, 9, 10].map(|order| gather.has_room(order));
    assert!(gather.is_empty());
    // Single pages, each in a word of its own; a block of order 10 is 16 words, and there are 24.
    for page in 0..24 {
        assert_eq!(room(&gather), [true, true, true, page < 23, page < 17, page < 9], "{page}");
        assert!(gather.add(Pfn(page * 64 * 2), 0));
        assert!(!gather.is_empty());
    }
    assert_eq!(room(&gather), [false; 6]);
    gather.clear();
    assert!(gather.is_empty() && gather.has_room(10));
    // What is largest, to the last word.
    (0..8).for_each(|page| assert!(gather.add(Pfn(page * 64 * 2), 0)));
    assert!(gather.has_room(10) && gather.add(Pfn(1 << 20), 10));
    assert_eq!(gather.words().len(), 24);
}

#[test]
fn bits_that_mean_nothing_are_no_flags() {
    let all = Flags::ZERO | Flags::ATOMIC | Flags::THIS_NODE;
    assert_eq!(
        [0, 2, 7, 8, 9, u32::MAX].map(Flags::from_bits),
        [Some(Flags::NONE), Some(Flags::ATOMIC), Some(all), None, None, None]
    );
    assert!(all.has(Flags::ZERO) && all.has(all) && !Flags::ZERO.has(all) && Flags::ZERO.has(Flags::NONE));
}

/// How the kernel pages what is there: `hg` asks for huge pages, `nh` for none.
fn paging(at: usize) -> std::string::String {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut here = false;
    for line in maps.lines() {
        let range = line.split(' ').next().unwrap().split_once('-');
        if let Some(ends) = range
            && let (Ok(begin), Ok(end)) = (usize::from_str_radix(ends.0, 16), usize::from_str_radix(ends.1, 16))
        {
            here = (begin..end).contains(&at);
        }
        if here && let Some(flags) = line.strip_prefix("VmFlags:") {
            return flags.split(' ').filter(|flag| ["hg", "nh"].contains(flag)).collect();
        }
    }
    panic!("{at:#x} is not mapped");
}

#[test]
fn the_first_page_of_a_huge_one_makes_all_dirty_until_a_part_is_given_back() {
    // (The first steps are shorter than a huge page.)
    let place = Place { growth: Growth { huge: 512, ..GROWTH }, ..Place::new() };
    let small = place.alloc(9, 1, Flags::NONE)[0].0;
    while !place.alloc(0, 1000, Flags::ATOMIC).is_empty() {}
    let levels = || [Level::Huge, Level::Mappings].map(|level| place.board.level(level) as usize);
    let before = levels();
    assert_eq!((before[0], place.zone.dirty_pages()), (0, 0));

    let (page, clean) = place.alloc(0, 1, Flags::NONE)[0];
    let address = place.windows.address(page);
    assert_eq!((clean, place.zone.dirty_pages()), (false, 511), "all of them are resident");
    assert_eq!(levels(), [512 * PAGE, before[1] + 1]);
    assert_eq!((paging(address), paging(place.windows.address(small))), ("hg".into(), "nh".into()));
    place.verify();
    // Those are taken first; a whole one is nobody's yet, and zero, and both grow into one range.
    let second = place.alloc(9, 1, Flags::NONE)[0];
    assert!(second.1 && place.zone.dirty_pages() == 511 && levels() == [1024 * PAGE, before[1] + 1]);
    let rest: Vec<_> =
        place.alloc(0, 511, Flags::NONE).into_iter().map(|(page, clean)| (page, clean, page.block())).collect();
    assert!(rest.iter().all(|&(_, clean, block)| !clean && block == page.block()));

    // Whole ones go as they came.
    let unsafe_give = |first, pages| unsafe { place.zone.give_back(place.windows, &place.board, first, pages) };
    assert_eq!(place.free(&[(second.0, 9)]), 0);
    assert_eq!(place.zone.take_dirty(place.windows, &place.board, 0), Some((second.0, 512)));
    assert!(unsafe_give(second.0, 512));
    place.zone.cleaned(place.windows, &place.board, second.0, 512, true);
    assert_eq!((levels()[0], paging(address)), (1024 * PAGE, "hg".into()));
    // A part of one does not, and its window's are small from now on.
    assert_eq!(place.free(&[(rest[0].0, 0)]), 0);
    let (first, len) = place.zone.take_dirty(place.windows, &place.board, 0).unwrap();
    assert!((first, len) == (rest[0].0, 1) && unsafe_give(first, len));
    place.zone.cleaned(place.windows, &place.board, first, len, true);
    assert_eq!((levels(), paging(address)), (before, "nh".into()));
    place.alloc(0, 2, Flags::NONE);
    assert_eq!(place.zone.dirty_pages(), 0, "page by page");
    // What it grows by next asks again.
    while !place.alloc(0, 1000, Flags::ATOMIC).is_empty() {}
    let (page, _) = place.alloc(0, 1, Flags::NONE)[0];
    assert_eq!((levels(), paging(place.windows.address(page))), ([512 * PAGE, before[1] + 1], "hg".into()));
    place.verify();
}

#[test]
fn what_lacks_an_edge_of_a_huge_page_is_a_part_of_it() {
    let ends = |(from, pages): (usize, usize)| {
        let place = Place { growth: Growth { huge: 0, ..GROWTH }, ..Place::new() };
        let pair = place.alloc(10, 1, Flags::NONE)[0].0;
        assert!(place.windows.has_huge(pair));
        assert!(unsafe { place.zone.give_back(place.windows, &place.board, pair.add(from), pages) });
        !place.windows.has_huge(pair)
    };
    assert_eq!([(0, 1024), (512, 512)].map(ends), [false; 2]);
    assert_eq!([(0, 511), (1, 511), (1, 512), (511, 1)].map(ends), [true; 4]);
}

#[test]
fn only_where_all_of_a_huge_page_is_free_and_clean_one_page_makes_the_rest_dirty() {
    let place = Place { growth: Growth { huge: 0, ..GROWTH }, ..Place::new() };
    let block = place.alloc(9, 1, Flags::NONE)[0].0;
    let clean = |pages| place.zone.cleaned(place.windows, &place.board, block, pages, true);
    // One page of it is dirty, and a request wants more.
    clean(511);
    assert_eq!(place.free(&[(block.add(511), 0)]), 0);
    assert_eq!((place.alloc(3, 1, Flags::ATOMIC), place.zone.dirty_pages()), ([(block, true)].into(), 1));
    place.verify();
    assert_eq!((place.alloc(0, 1000, Flags::ATOMIC).len(), place.zone.dirty_pages()), (504, 0));
    // Others have its first pages.
    clean(512);
    assert_eq!(place.zone.hand_over(place.windows, &place.board, 0, 100, 100, |_, _| true), Some((block, 100)));
    assert_eq!((place.alloc(0, 1, Flags::ATOMIC), place.zone.dirty_pages()), ([(block.add(100), true)].into(), 0));
    place.verify();
}

#[test]
fn a_part_of_a_huge_page_changes_hands_only_dirty_and_then_none_is_asked_for() {
    let place = Place { growth: Growth { huge: 0, ..GROWTH }, ..Place::new() };
    let block = place.alloc(9, 1, Flags::NONE)[0].0;
    while !place.alloc(0, 1000, Flags::ATOMIC).is_empty() {}
    let hand = |must| place.zone.hand_over_block(place.windows, &place.board, 6, must);
    place.zone.cleaned(place.windows, &place.board, block, 512, true);
    assert_eq!((hand(true), hand(false), place.zone.dirty_pages()), (None, None, 0));
    let some = place.alloc(6, 1, Flags::ATOMIC);
    assert!(some[..] == [(block, false)] && place.zone.dirty_pages() == 448 && place.windows.has_huge(block));
    assert_eq!((hand(true), place.windows.has_huge(block)), (Some((block.add(64), false)), false));
    place.verify();
}

#[test]
fn no_huge_page_passes_a_limit_unseen() {
    let place = Place { growth: Growth { huge: 0, ..GROWTH }, ..Place::new() };
    place.alloc(9, 2, Flags::NONE);
    while !place.alloc(0, 1000, Flags::ATOMIC).is_empty() {}
    let want =
        ZoneRequest { growth: place.growth, order: 0, flags: Flags::NONE, limit: place.board.held() + 4 * PAGE as u64 };
    let held = place.board.held();
    let (got, grew) = place.zone.alloc(place.windows, &place.board, want, 100, |_| ());
    assert!(grew && got > 0);
    assert_eq!(place.board.held(), held + 512 * PAGE as u64, "all of it counts");
    let (more, _) = place.zone.alloc(place.windows, &place.board, want, 600, |_| ());
    assert_eq!(got + more, 512, "what is resident is there to be taken, and nothing else");
}
