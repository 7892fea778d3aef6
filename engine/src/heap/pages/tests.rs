//! Pages of a heap: four fake nodes, threads on 64 fake CPUs, in the fallback and in sequences.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::arch::rseq::{self, Fence};
use crate::arch::seq::RseqArea;
use crate::cpu::Simulation;
use crate::cpu::sim::Cpu;
use crate::heap::Opening;
use crate::knob::Id;
use crate::page::{Growth, LISTED, ZoneRequest};
use crate::stat::{Event, Index, Level, Mode, Reason};
use std::cell::Cell;
use std::vec::Vec;

static CPUS: [Cpu; 64] = [const { Cpu::new() }; 64];
static INDICES: [Cpu; 64] = [const { Cpu::new() }; 64];
static MANY: Simulation = Simulation { cpus: &CPUS, indices: &INDICES, here: wander, nodes: 2 };

thread_local! {
    static HERE: Cell<usize> = const { Cell::new(0) };
    static RANDOM: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

fn random() -> usize {
    let mut x = RANDOM.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    RANDOM.set(x);
    (x >> 8) as usize
}

/// Each index is 3 CPUs' turn by turn, and a thread moves now and then.
fn wander() -> (usize, u32) {
    if random().is_multiple_of(16) {
        HERE.set(random() % 64);
    }
    let cpu = HERE.get();
    (cpu / 8 * 8 + cpu % 3, cpu as u32)
}

struct Test;
impl Environment for Test {
    fn start(_: &Heap<Self>) {}
    fn no_memory() {}
    fn report(_: usize, _: BadPointer) {}
}

/// Opens a heap with short lists, so that they are filled and emptied every few operations.
fn open(heap: &Heap<Test>, mode: Mode, simulation: &'static Simulation) -> bool {
    let mut area = RseqArea::default();
    if mode == Mode::Sequences {
        let Ok((base, usable)) = rseq::area() else { return false };
        if rseq::word(base + rseq::CPU_ID) as i32 == -1 || Fence.register().is_err() {
            return false;
        }
        area = RseqArea { base, index: base + if usable >= rseq::MM_CID_BYTES { rseq::MM_CID } else { 0 } };
    }
    heap.cache.knobs.reset();
    heap.cache.knobs.set(Id::SheafObjects as usize, 4);
    let opening =
        Opening { mode, reason: Reason::Asked, index: Index::MmCid, area, simulation: Some(simulation), share: None };
    unsafe { heap.open(&opening) }.unwrap();
    heap.cache.sets.mode() == mode
}

fn assert_empty(heap: &Heap<Test>) {
    heap.trim();
    heap.trim();
    heap.verify();
    let board = heap.cache.sets.board();
    let managed: usize = heap.pages.zones.iter().map(|zone| zone.managed() * PAGE).sum();
    assert_eq!(board.level(Level::PagesFree) as usize, managed, "every page is free");
    assert_eq!(board.level(Level::PagesDirty), 0);
}

#[test]
fn blocks_come_from_the_node_asked_for_or_the_nearest_and_go_back_to_their_own() {
    static HEAP: Heap<Test> = Heap::new();
    let heap = &HEAP;
    let four_nodes = Simulation::own(4, 4, || (HERE.get(), HERE.get() as u32));
    assert!(open(heap, Mode::Simulated, four_nodes));
    let zone_of = |block: usize| heap.pages.windows.zone(heap.pages.windows.find(block).unwrap().1);
    let free_of = |node: usize| heap.pages.zones[node].free_pages();
    for node in 0..4 {
        HERE.set(node);
        for order in [0, 3, 4, 10] {
            let here = heap.pages_alloc(order, None, Flags::NONE).unwrap();
            let there = heap.pages_alloc(order, Some(3 - node), Flags::NONE).unwrap();
            assert_eq!((zone_of(here), zone_of(there)), (node, 3 - node));
            let before = free_of(3 - node);
            unsafe {
                heap.pages_free(there).unwrap();
                assert_eq!(free_of(3 - node), before + (1 << order), "past the lists of this node");
                assert_eq!(heap.pages_free(there), Err(BadPointer::Double));
                heap.pages_free(here).unwrap();
            }
        }
    }
    heap.trim();
    // What is free, by distance: 0 asks 3 first.
    let mut distances = [[20; NODES]; NODES];
    distances[0] = [10, 30, 20, 15, 40, 40, 40, 40];
    heap.pages.set_distances(&distances);
    HERE.set(0);
    let mut held = Vec::new();
    for zone in [0, 3, 2, 1] {
        assert!(free_of(zone) > 0);
        while free_of(zone) > 0 {
            let block = heap.pages_alloc(0, None, Flags::ATOMIC).unwrap();
            assert_eq!(zone_of(block), zone);
            held.push(block);
        }
        let own = heap.pages_alloc(0, None, Flags::ATOMIC | Flags::THIS_NODE);
        assert_eq!(own, Err(Error::Exhausted), "of this node or none");
    }
    assert_eq!(heap.pages_alloc(0, None, Flags::ATOMIC), Err(Error::Exhausted));
    held.push(heap.pages_alloc(0, None, Flags::NONE).unwrap());
    assert_eq!(zone_of(*held.last().unwrap()), 0, "grown");
    unsafe { heap.pages_free_bulk(&held) }.unwrap();
    assert_empty(heap);
}

#[test]
fn only_so_many_other_nodes_are_asked() {
    static HEAP: Heap<Test> = Heap::new();
    let heap = &HEAP;
    assert!(open(heap, Mode::Simulated, Simulation::own(1, 1, || (0, 0))));
    let mm = heap.mm();
    let (pages, board, source) = (&heap.pages, heap.cache.sets.board(), mm.page_source());
    // Zones 1 and 2 have pages, 0 has none and is not to grow.
    for node in [1, 2] {
        let mut block = None;
        let want = ZoneRequest {
            growth: Growth { node, bind: false, huge: usize::MAX },
            order: 0,
            flags: Flags::NONE,
            limit: u64::MAX,
        };
        pages.zones[node].alloc(&pages.windows, board, want, 1, |word| block = Some(word.first));
        assert!(pages.free(board, block.unwrap(), 0), "it was not free");
        assert!(!pages.free(board, block.unwrap(), 0), "it was");
    }
    let from = |node, others| {
        let mut zone = None;
        let got = source.alloc_many(node, 0, 1, Flags::ATOMIC, others, |_, at| zone = Some(at));
        assert_eq!(got, usize::from(zone.is_some()));
        zone
    };
    assert_eq!([from(0, 0), from(0, 1), from(0, 2)], [None, None, Some(1)]);
    assert_eq!([from(3, 1), from(3, 2), from(3, 3)], [None, Some(1), Some(2)], "the nearest of them");
}

#[test]
fn refills_flushes_and_growth_are_counted() {
    static HEAP: Heap<Test> = Heap::new();
    let heap = &HEAP;
    assert!(open(heap, Mode::Simulated, Simulation::own(1, 1, || (0, 0))));
    let zone = &heap.pages.zones[0];
    let now = || {
        let events = [Event::PageRefill, Event::PageFlush, Event::ZoneGrow, Event::BadFree];
        (events.map(|event| heap.cache.sets.event(event)), zone.free_pages(), zone.managed())
    };
    let mut held = Vec::new();
    for order in [0, 3, 9, 4, 10].into_iter().flat_map(|order| [order; 40]) {
        let (events, free, managed) = now();
        held.push((order, heap.pages_alloc(order, None, Flags::NONE).unwrap()));
        let ([refills, flushes, grown, bad], free_now, managed_now) = now();
        let is_refill = LISTED.contains(&order) && (free, managed) != (free_now, managed_now);
        assert_eq!(refills > events[0], is_refill, "order {order}");
        assert_eq!(grown > events[2], managed != managed_now, "order {order}");
        assert_eq!((flushes, bad), (events[1], 0));
    }
    let ([refills, _, grown, _], ..) = now();
    assert!((4..100).contains(&refills) && (3..100).contains(&grown), "{refills} refills, {grown} steps");
    for (order, block) in held {
        let (events, free, _) = now();
        unsafe { heap.pages_free(block) }.unwrap();
        let ([refills, flushes, grown, bad], free_now, _) = now();
        let is_flush = LISTED.contains(&order) && free != free_now;
        assert_eq!(flushes > events[1], is_flush, "order {order}");
        assert_eq!((refills, grown, bad), (events[0], events[2], 0));
    }
    assert!(now().0[1] > 3);
}

#[test]
fn blocks_that_are_free_already_are_counted_one_by_one() {
    static HEAP: Heap<Test> = Heap::new();
    let heap = &HEAP;
    assert!(open(heap, Mode::Simulated, Simulation::own(1, 1, || (0, 0))));
    let mm = heap.mm();
    let source = mm.page_source();
    let bad = || heap.cache.sets.event(Event::BadFree);
    let [one, two] = [4, 4].map(|order| source.alloc(order).unwrap());
    let taken = heap.pages.zones[0].free_pages();
    unsafe { source.free(one, 4) };
    assert_eq!((bad(), heap.pages.zones[0].free_pages()), (0, taken + 16));
    unsafe { source.free(one, 4) };
    assert_eq!((bad(), heap.pages.zones[0].free_pages()), (1, taken + 16));
    // All 16 pages of the first, which is behind a good one, and a page twice in one gather.
    source.free_all([(two, 4), (one, 4)].into_iter());
    assert_eq!((bad(), heap.pages.zones[0].free_pages()), (17, taken + 32));
    let [page, other] = [5, 5].map(|order| source.alloc(order).unwrap());
    source.free_all([(page, 5), (other, 5)].into_iter());
    assert_eq!(bad(), 17);
    let page = source.alloc(4).unwrap();
    source.free_all([(page, 4), (page, 4)].into_iter());
    assert_eq!(bad(), 18);
    // Of more than one gather takes: each counts once.
    let many: Vec<_> = (0..100).map(|_| (source.alloc(6).unwrap(), 6)).collect();
    source.free_all(many.iter().copied());
    assert_eq!(bad(), 18);
    source.free_all(many.into_iter());
    assert_eq!(bad(), 18 + 6400);
}

#[test]
fn a_zone_that_is_below_its_mark_is_opened_before_somebody_waits() {
    static HEAP: Heap<Test> = Heap::new();
    let heap = &HEAP;
    assert!(open(heap, Mode::Simulated, Simulation::own(1, 1, || (0, 0))));
    let mm = heap.mm();
    let (zone, source) = (&heap.pages.zones[0], mm.page_source());
    let grown = || heap.cache.sets.event(Event::ZoneGrow);
    source.prepare_more();
    assert_eq!((grown(), zone.managed()), (0, 0), "a small zone has no mark");
    while zone.managed() < 20_000 {
        source.alloc(9).unwrap();
    }
    while !zone.below_low() {
        source.alloc_many(0, 0, 1, Flags::ATOMIC, 0, |_, _| ());
    }
    let (before, managed) = (grown(), zone.managed());
    source.prepare_more();
    assert!(!zone.below_low() && zone.managed() > managed);
    assert_eq!(grown(), before + 1);
    source.prepare_more();
    assert_eq!(grown(), before + 1, "there is enough");
}

/// Threads that take, stamp, pass on and give blocks of all orders, beside objects of malloc and drains.
fn torture(heap: &Heap<Test>, rounds: usize) {
    let basket = std::sync::Mutex::new(Vec::<(usize, usize)>::new());
    crate::tests::threads::scope(|scope| {
        for thread in 1..=4_usize {
            let basket = &basket;
            scope.spawn(move || {
                RANDOM.set(thread as u64 * 0x1234_5678_9abc_def1);
                HERE.set(thread);
                let mut held: Vec<(usize, usize)> = Vec::new();
                let stamp = |at: usize, order: usize| unsafe {
                    (at as *mut usize).write(at);
                    ((at + (PAGE << order)) as *mut usize).sub(1).write(at);
                };
                let check = |at: usize, order: usize| unsafe {
                    assert_eq!((at as *const usize).read(), at, "another has it");
                    assert_eq!(((at + (PAGE << order)) as *const usize).sub(1).read(), at, "another has it");
                };
                for _ in 0..rounds {
                    match random() % 16 {
                        0..6 => {
                            let order = [0, 0, 0, 1, 2, 3, 9, 4, 5, 10][random() % 10];
                            let flags = [Flags::NONE, Flags::NONE, Flags::ZERO, Flags::ATOMIC][random() % 4];
                            if let Ok(block) = heap.pages_alloc(order, None, flags) {
                                let first = unsafe { (block as *const usize).read() };
                                assert!(flags != Flags::ZERO || first == 0);
                                stamp(block, order);
                                held.push((block, order));
                            }
                        }
                        6..11 if !held.is_empty() => {
                            let (block, order) = held.swap_remove(random() % held.len());
                            check(block, order);
                            unsafe {
                                assert!(heap.pages_free(block + 8).is_err());
                                heap.pages_free(block).unwrap();
                            }
                        }
                        11 => {
                            let mut blocks = [0; 100];
                            let order = random() % 3;
                            let n = heap.pages_alloc_bulk(order, None, Flags::NONE, &mut blocks);
                            blocks[..n].iter().for_each(|&block| stamp(block, order));
                            blocks[..n].iter().for_each(|&block| check(block, order));
                            unsafe { heap.pages_free_bulk(&blocks[..n]) }.unwrap();
                        }
                        12 => {
                            let objects: Vec<_> = (0..50).map(|_| heap.malloc(random() % 3000) as usize).collect();
                            unsafe {
                                assert!(heap.pages_free(objects[0]).is_err());
                                objects.iter().for_each(|&object| heap.free(object as *mut u8));
                            }
                        }
                        13 => basket.lock().unwrap().append(&mut held),
                        14 => held.append(&mut basket.lock().unwrap()),
                        _ if random().is_multiple_of(20) => {
                            heap.trim();
                        }
                        _ => {}
                    }
                }
                let all: Vec<_> = held.iter().map(|&(block, _)| block).collect();
                held.iter().for_each(|&(block, order)| check(block, order));
                unsafe { heap.pages_free_bulk(&all) }.unwrap();
            });
        }
    });
    for (block, _) in basket.into_inner().unwrap() {
        unsafe { heap.pages_free(block) }.unwrap();
    }
    assert_empty(heap);
}

#[test]
fn threads_on_64_fake_cpus_share_blocks() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated, &MANY));
    torture(&HEAP, 2000);
}

#[test]
fn threads_share_blocks_in_the_fallback() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Fallback, &MANY));
    torture(&HEAP, 5000);
}

#[test]
fn threads_share_blocks_in_sequences() {
    static HEAP: Heap<Test> = Heap::new();
    if open(&HEAP, Mode::Sequences, &MANY) {
        torture(&HEAP, 5000);
    }
}
