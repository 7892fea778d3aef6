//! Drains by each of their ways, on two fake CPUs that nobody leaves unless a test says so.

use super::*;
use crate::cache::cpuset::CpuSet;
use crate::cache::drain::tests::HANDLER;
use crate::page::Flags;
use crate::reclaim::keeper::{Duty, QUIET};

fn all() -> CpuSet {
    let mut all = CpuSet::around(0);
    (0..64).for_each(|index| all.insert(index));
    all
}

/// CPU `cpu` caches objects; how many.
fn fill(heap: &Heap<Test>, cpu: usize) -> u64 {
    NODE.set(cpu);
    let objects: Vec<_> = (0..20).map(|_| heap.malloc(100)).collect();
    objects.iter().for_each(|&object| unsafe { heap.free(object) });
    cached(heap)
}
fn cached(heap: &Heap<Test>) -> u64 {
    (1..ALL_CLASSES).map(|class| heap.cache.sets.cached(class) as u64).sum()
}
fn drain(heap: &Heap<Test>, mode: DrainMode, mut runs: impl FnMut(u32) -> bool) -> (DrainReport, CpuSet) {
    let (mut report, mut asked) = (DrainReport::default(), all());
    heap.cache.drain(&heap.mm().everything(), &mut asked, mode, &mut runs, &mut report);
    (report, asked)
}
fn fences(heap: &Heap<Test>) -> u64 {
    heap.cache.sets.event(Event::Fence)
}

#[test]
fn an_expedited_drain_takes_all_with_one_fence() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    fill(&HEAP, 0);
    let before = fill(&HEAP, 1);
    let (report, asked) = drain(&HEAP, DrainMode::Expedited, |_| unreachable!("it does not matter who runs"));
    assert!(before > 0 && asked.is_empty());
    assert_eq!((report.reached, report.unreached, report.objects, report.fences), (2, 0, before, 1));
    assert_eq!(fences(&HEAP), 1);
    assert_empty(&HEAP);
}

#[test]
fn what_is_empty_is_not_switched() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    fill(&HEAP, 0);
    drain(&HEAP, DrainMode::Expedited, |_| true);
    // (Pages of slabs that the first emptied.)
    drain(&HEAP, DrainMode::Expedited, |_| true);
    let sets = HEAP.cache.sets.board().sets.load(Relaxed);
    let (report, _) = drain(&HEAP, DrainMode::Expedited, |_| true);
    assert_eq!((report, HEAP.cache.sets.board().sets.load(Relaxed)), (DrainReport::default(), sets));
}

#[test]
fn a_gentle_drain_interrupts_nobody_and_the_owner_answers() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    fill(&HEAP, 0);
    let before = fill(&HEAP, 1);
    // CPU 1 runs somebody, CPU 0 does not.
    let (report, mut asked) = drain(&HEAP, DrainMode::Gentle, |cpu| cpu == 1);
    assert_eq!((report.reached, report.fences), (1, 1), "a fence of the idle CPU");
    assert_eq!(asked.iter().collect::<Vec<_>>(), [1]);
    assert!(!HEAP.cache.sets.is_answered(1));
    // Its fast path goes on with the same set; a slow path answers.
    NODE.set(1);
    let mut objects = vec![];
    while !HEAP.cache.sets.is_answered(1) {
        objects.push(HEAP.malloc(100));
        assert!(objects.len() < 1000, "the owner never answered");
    }
    let mut late = DrainReport::default();
    HEAP.cache.collect(&HEAP.mm().everything(), &mut asked, &mut late);
    assert!(asked.is_empty());
    assert_eq!((late.reached, HEAP.cache.sets.event(Event::Answer), fences(&HEAP)), (1, 1, 1));
    assert!(before > 0 && late.objects > 0);
    objects.iter().for_each(|&object| unsafe { HEAP.free(object) });
    assert_empty(&HEAP);
}

#[test]
fn who_need_not_answer_any_more_does_not() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    fill(&HEAP, 1);
    let (_, asked) = drain(&HEAP, DrainMode::Gentle, |_| true);
    assert!(asked.contains(1) && HEAP.cache.sets.withdraw(1) && !HEAP.cache.sets.withdraw(1));
    let objects: Vec<_> = (0..200).map(|_| HEAP.malloc(100)).collect();
    assert_eq!(HEAP.cache.sets.event(Event::Answer), 0);
    objects.iter().for_each(|&object| unsafe { HEAP.free(object) });
    assert_empty(&HEAP);
}

#[test]
fn a_parked_set_is_drained_without_a_fence_and_comes_back_with_the_next_allocation() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    let before = fill(&HEAP, 1);
    assert!(HEAP.park() && HEAP.cache.sets.is_parked(1));
    let (report, asked) = drain(&HEAP, DrainMode::Gentle, |_| true);
    assert!(asked.is_empty());
    assert_eq!((report.reached, report.objects, report.fences), (1, before, 0));
    let object = HEAP.malloc(100);
    assert!(!HEAP.cache.sets.is_parked(1));
    unsafe { HEAP.free(object) };
    // Parked with something in it, and used again before anybody drained.
    assert!(HEAP.park());
    let again = HEAP.malloc(100);
    assert!(again == object && !HEAP.cache.sets.is_parked(1), "its own object");
    unsafe { HEAP.free(again) };
    assert_empty(&HEAP);
}

#[test]
fn parking_survives_a_fork() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    fill(&HEAP, 1);
    assert!(HEAP.park());
    assert!(HEAP.fork_begin(u32::MAX));
    HEAP.fork_end(false);
    assert!(HEAP.cache.sets.is_parked(1));
    assert_eq!(drain(&HEAP, DrainMode::Gentle, |_| true).0.fences, 0);
    assert_empty(&HEAP);
}

#[test]
fn auto_is_gentle_to_isolated_cpus_only() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    HEAP.cache.sets.isolated.insert(1);
    fill(&HEAP, 0);
    fill(&HEAP, 1);
    let (report, asked) = drain(&HEAP, DrainMode::Auto, |_| true);
    assert_eq!((report.reached, report.fences, asked.iter().collect::<Vec<_>>()), (1, 1, vec![1]));
    let (report, asked) = drain(&HEAP, DrainMode::Expedited, |_| true);
    assert!(report.reached >= 1 && report.unreached == 0 && asked.is_empty());
    assert_empty(&HEAP);
}

#[test]
fn entitlements_decay_by_an_eighth_and_the_budget_gets_it_back() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    let charged = || HEAP.cache.sets.board().level(Level::Charged);
    NODE.set(0);
    let objects: Vec<_> = (0..3000).map(|_| HEAP.malloc(100)).collect();
    let class = class::offset_of(100) / 16;
    let limit = |index: usize| HEAP.cache.sets.home_of(index).unwrap().limits[class].load(Relaxed);
    let full = limit(0);
    assert!(full > 16);
    HEAP.cache.decay(&HEAP.mm().everything(), 0);
    assert_eq!(limit(0), full - full.div_ceil(8));
    // A drain moves what a CPU is entitled to.
    drain(&HEAP, DrainMode::Expedited, |_| true);
    assert_eq!(limit(0), full - full.div_ceil(8));
    for _ in 0..200 {
        HEAP.cache.decay(&HEAP.mm().everything(), 0);
    }
    assert_eq!((limit(0), charged()), (0, 0), "the budget is exact");
    objects.iter().for_each(|&object| unsafe { HEAP.free(object) });
    assert!(charged() > 0);
    assert_empty(&HEAP);
}

#[test]
fn refills_double_and_frees_halve_them() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    NODE.set(0);
    let class = class::offset_of(64) / 16;
    let batch = || HEAP.cache.sets.home_of(0).unwrap().batches[class].load(Relaxed);
    let mut objects: Vec<_> = (0..20).map(|_| HEAP.malloc(64)).collect();
    let some = batch();
    objects.extend((0..12_000).map(|_| HEAP.malloc(64)));
    let more = batch();
    assert!(some < more, "{some} {more}");
    // (Behind what the set's own barn takes.)
    objects.drain(..8000).for_each(|object| unsafe { HEAP.free(object) });
    assert!(batch() < more / 2, "{} after {more}", batch());
    objects.iter().for_each(|&object| unsafe { HEAP.free(object) });
    assert_empty(&HEAP);
}

/// As the keeper looks: `n` times.
fn looks(heap: &Heap<Test>, n: u32) {
    (0..n).for_each(|_| _ = heap.mm().give_back(Duty::Usual));
}

#[test]
fn a_cpu_that_does_nothing_is_drained_after_three_looks() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    fill(&HEAP, 0);
    let held = || HEAP.cache.sets.list(0, class::offset_of(100) / 16).unwrap().0;
    looks(&HEAP, 1);
    assert!(held() > 0);
    looks(&HEAP, QUIET - 1);
    assert!(held() > 0);
    looks(&HEAP, 1);
    assert_eq!(held(), 0);
    assert_empty(&HEAP);
}

#[test]
fn lists_with_another_nodes_pages_are_flushed_after_three_quiet_periods() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    // CPU 0's own pages and those of CPU 1's node, freed on CPU 0, which works on with small objects.
    for (node, flushed) in [(0, false), (1, true)] {
        NODE.set(node);
        let pages: Vec<_> = (0..4).map(|_| HEAP.pages_alloc(0, None, Flags::NONE).unwrap()).collect();
        NODE.set(0);
        pages.into_iter().for_each(|page| unsafe { HEAP.pages_free(page) }.unwrap());
        let held = || HEAP.cache.sets.list(0, CLASSES).unwrap().0;
        assert!(held() >= 4);
        for _ in 0..=QUIET {
            unsafe { HEAP.free(HEAP.malloc(100)) };
            looks(&HEAP, 1);
        }
        assert_eq!(held() == 0, flushed, "node {node}");
    }
    assert_empty(&HEAP);
}

#[test]
fn areas_that_nobody_asks_for_again_go_after_three_looks_at_a_busy_cpu() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    let pair = |bytes| unsafe { HEAP.free(HEAP.malloc(bytes)) };
    pair(64 << 10);
    // Used at each look it stays; then the CPU works on with small objects.
    for is_used in [true, false] {
        for _ in 0..QUIET {
            pair(if is_used { 64 << 10 } else { 100 });
            assert!(HEAP.cache.sets.holds_areas(0));
            looks(&HEAP, 1);
        }
        assert_eq!(HEAP.cache.sets.holds_areas(0), is_used);
    }
    assert_eq!(HEAP.cache.sets.level(Level::Areas), 0);
    assert_empty(&HEAP);
}

#[test]
fn the_knob_switches_background_drains_off() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    HEAP.cache.knobs.set(Id::Drain as usize, 3);
    fill(&HEAP, 0);
    looks(&HEAP, 2 * QUIET);
    assert!(HEAP.cache.sets.holds(0));
    assert!(HEAP.drain(DrainTarget::All, DrainMode::Expedited).reached > 0, "but one that is asked for is done");
    assert_empty(&HEAP);
}

#[test]
fn what_the_system_says_is_read_once_and_not_by_a_confined_process() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    assert!(HEAP.reclaim.learns() && !HEAP.reclaim.learns());
    static CONFINED: Heap<Test> = Heap::new();
    open_on_two_nodes(&CONFINED);
    CONFINED.confine();
    CONFINED.drain(DrainTarget::All, DrainMode::Auto);
    assert!(CONFINED.reclaim.learns(), "it was not read");
}

/// A handler that allocates behind the switch has the set again, and no drain takes it for one that nobody uses.
#[test]
fn a_handler_that_allocates_while_its_thread_parks_is_not_parked() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    fill(&HEAP, 1);
    HANDLER.with(|handler| handler.set(Some(|| unsafe { HEAP.free(HEAP.malloc(100)) })));
    assert!(HEAP.park() && HANDLER.with(core::cell::Cell::take).is_none());
    assert!(!HEAP.cache.sets.is_parked(1));
    assert!(HEAP.park() && HEAP.cache.sets.is_parked(1));
}
