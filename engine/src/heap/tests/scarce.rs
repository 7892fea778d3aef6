//! Pages change hands between zones and areas: none is lost, none is in two places, and what areas get is zero.

use super::*;
use crate::page::Zone;
use crate::stat::Board;
use core::cell::Cell;

fn board(heap: &Heap<Test>) -> &Board {
    heap.cache.sets.board()
}

/// Pages that nobody uses: free in zones, lazy or free in areas.
fn unused(heap: &Heap<Test>) -> usize {
    heap.verify();
    heap.pages.zones.iter().map(Zone::free_pages).sum::<usize>() + heap.vmap().verify()
}
fn managed(heap: &Heap<Test>) -> usize {
    heap.pages.zones.iter().map(Zone::managed).sum()
}

#[test]
fn pages_change_hands_and_none_is_lost() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let heap = &HEAP;
    let fill = |size: usize, count: usize| -> Vec<usize> {
        let blocks: Vec<usize> = (0..count).map(|_| heap.malloc(size) as usize).collect();
        blocks.iter().for_each(|&at| unsafe { core::ptr::write_bytes(at as *mut u8, 0xa5, size) });
        blocks
    };
    let drop_all = |blocks: Vec<usize>| blocks.into_iter().for_each(|at| unsafe { heap.free(at as *mut u8) });
    for round in 0..4 {
        // Small ones, of which a few stay in the way.
        let mut small = fill(3000, 8000);
        let stay = small.split_off(7990 + round);
        drop_all(small);
        heap.trim();
        let (before, had, mapped) = (unused(heap), managed(heap), board(heap).level(Level::Mapped));
        assert!(heap.mm().scrape_area(8 << 20, || None::<()>).is_none());
        assert_eq!(unused(heap), before);
        assert!(managed(heap) + 2048 < had, "{} of {had} pages", managed(heap));
        let areas = fill(1 << 20, 4);
        drop_all(areas);
        for size in [100_000, 3 << 20] {
            let zero = heap.calloc(size);
            assert!((0..size).all(|at| unsafe { *zero.add(at) } == 0));
            unsafe { heap.free(zero) };
        }
        heap.trim();
        // And back, a block of a zone at a time.
        let had = managed(heap);
        for order in [0, 3, 9] {
            let before = (unused(heap), managed(heap), board(heap).level(Level::Meta));
            assert!(heap.mm().scrape_pages(order, || (managed(heap) > before.1).then_some(())).is_some());
            // (Our own structures take some pages for good, if they are short of memory.)
            let fed = (board(heap).level(Level::Meta) - before.2) as usize / PAGE;
            assert!([0, 1, 8, 32].contains(&fed), "{fed} pages fed: all that there is to feed at once");
            assert_eq!(unused(heap) + fed, before.0);
            assert!(managed(heap) + fed >= before.1 + (1 << order));
        }
        // Where nothing serves, all of them.
        assert!(heap.mm().scrape_pages(0, || None::<()>).is_none());
        assert!(managed(heap) > had && board(heap).level(Level::Mapped) >= mapped);
        let small = fill(3000, 2000);
        drop_all(small);
        drop_all(stay);
        assert_empty(heap);
    }
}

#[test]
fn areas_that_a_cpu_caches_serve_pages() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let heap = &HEAP;
    // (Where a CPU frees what it asked for before.)
    (0..200).for_each(|_| unsafe { heap.free(heap.malloc(1 << 20)) });
    // Only what caches hold is left: runs that are free already change hands first.
    heap.vmap().purge(usize::MAX);
    while let Some((first, pages)) = heap.vmap().hand_over(1) {
        heap.pages.zones[0].take_over(&heap.pages.windows, board(heap), first, pages, true);
    }
    let hold_areas = || heap.cache.sets.used().any(|index| heap.cache.sets.holds_areas(index));
    assert!(hold_areas());
    let before = managed(heap);
    assert!(heap.mm().scrape_pages(8, || None::<()>).is_none());
    assert!(managed(heap) > before, "{before} pages before and after");
    assert!(!hold_areas());
    assert_empty(heap);
}

#[test]
fn what_is_not_there_is_looked_for_once_until_something_is_freed() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let heap = &HEAP;
    let looks = |bytes: usize| {
        let count = Cell::new(0);
        assert!(
            heap.mm()
                .scrape_area(bytes, || {
                    count.set(count.get() + 1);
                    None::<()>
                })
                .is_none()
        );
        count.get()
    };
    let (small, large) = (heap.malloc(3000), heap.malloc(1 << 20));
    // (What the first one gives back is news for the second.)
    while looks(1 << 20) > 0 {}
    assert_eq!(looks(2 << 20), 0);
    assert!(looks(1 << 19) > 0, "less may be there");
    while looks(1 << 19) > 0 {}
    unsafe { heap.free(small) };
    assert!(looks(1 << 20) > 0, "an object was freed");
    while looks(1 << 20) > 0 {}
    unsafe { heap.free(large) };
    assert!(looks(1 << 20) > 0, "an area was freed");
    assert_empty(heap);
}

#[test]
fn what_shrinks_stays_where_there_is_no_memory() {
    use crate::arch::sys::fault;
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let heap = &HEAP;
    let blocks: Vec<(*mut u8, usize)> =
        [10_000, 30_000, 100_000, 3 << 20].map(|size| (heap.malloc(size), size)).to_vec();
    for &(block, size) in &blocks {
        unsafe { core::ptr::write_bytes(block, size as u8, size) };
    }
    // All that maps is refused.
    fault::storm(1, 7);
    while !heap.malloc(20).is_null() {}
    for &(block, size) in &blocks {
        let less = unsafe { heap.realloc(block, 20) };
        assert!(!less.is_null() && (0..20).all(|at| unsafe { *less.add(at) } == size as u8));
        unsafe { heap.free(less) };
    }
    fault::storm(0, 0);
    heap.verify();
}
