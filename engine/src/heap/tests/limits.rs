//! Limits: what the heap has never passes a hard one, what is refused leaves all as it was, and a soft one keeps
//! free memory away. On fake CPUs, in the fallback and in sequences.

use super::*;
use crate::knob::BY_CGROUP;
use crate::page::Flags;
use crate::stat::Board;

const MIB: u64 = 1 << 20;
/// What the refills of two nodes may add at the same moment (see `reclaim::limits`).
const AT_ONCE: u64 = 2 * 32 * 1024;

fn board(heap: &Heap<Test>) -> &Board {
    heap.cache.sets.board()
}

/// What the limit is about, but for metadata that came meanwhile: it is counted, and not refused.
fn held(heap: &Heap<Test>, meta: u64) -> u64 {
    board(heap).held() - (board(heap).level(Level::Meta) - meta)
}

fn refused(heap: &Heap<Test>) -> u64 {
    heap.cache.sets.event(Event::LimitRefused)
}

/// Sets a hard limit so far above what there is.
fn limit(heap: &Heap<Test>, more: u64) -> u64 {
    let limit = board(heap).held() + more;
    heap.cache.knobs.set(Id::HardLimit as usize, limit);
    limit
}

fn large_sizes() -> impl Strategy<Value = usize> {
    prop_oneof![4 => sizes(), 3 => 1_000_000..9_000_000_usize]
}

/// Whatever is asked for: served below the limit, or refused when nothing known to be free is left.
fn keeps_to_the_limit(heap: &Heap<Test>, cases: u32) {
    let all = Cell::new(0);
    proptest!(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }, |(
        ops in prop::collection::vec((0..8_u8, large_sizes(), any::<usize>(), 4..22_u32), 1..200)
    )| {
        heap.trim();
        let (most, meta) = (limit(heap, 12 * MIB), board(heap).level(Level::Meta));
        let mut model = Model::new(heap);
        for (kind, size, which, shift) in ops {
            let mut before = refused(heap);
            let (at, align) = match kind {
                0..=2 => (heap.malloc(size) as usize, 16),
                3 => (heap.calloc(size) as usize, 16),
                4 => (heap.aligned(size, 1 << shift) as usize, 1 << shift),
                5 => {
                    let Some((old, len, seed)) = model.pick(which) else { continue };
                    let new = unsafe { heap.realloc(old as *mut u8, size) } as usize;
                    // Refused, it is what and where it was.
                    unsafe { check(if new == 0 { old } else { new }, len, seed, if new == 0 { len } else { size }) };
                    if new != 0 {
                        model.live.remove(&old);
                    }
                    // What shrinks, or has room, stays where it is if there is no memory for another one.
                    prop_assert!(new != 0 || size > len);
                    if new == old {
                        before = refused(heap);
                    }
                    (new, 16)
                }
                _ => {
                    model.run(&Op::Free(which));
                    continue;
                }
            };
            prop_assert!(held(heap, meta) <= most, "{} of {most}", held(heap, meta));
            if at == 0 {
                // (Of a block that grows by little perhaps the room that it would have had, too.)
                let times = refused(heap) - before;
                prop_assert!(times == 1 || kind == 5 && times == 2, "refused {times} times");
                prop_assert!(board(heap).held() + size.max(1).next_multiple_of(PAGE).max(PAGE) as u64 * 16 > most);
                prop_assert_eq!(heap.mm().free_resident(), 0, "refused beside free memory");
            } else {
                prop_assert!(refused(heap) <= before + u64::from(kind == 5), "kind {kind}, {size} bytes");
                model.add(at, size, align);
            }
        }
        all.set(refused(heap));
        model.end();
        // Others can have it now, all but new metadata. What caches got since the last drain may be much: that rests for as
        // long as it pays, and it took long if others had the CPU.
        heap.reclaim.limits.end_rest();
        let large = heap.malloc((9 << 20) - (board(heap).level(Level::Meta) - meta) as usize);
        prop_assert!(!large.is_null(), "{} held of {most}", board(heap).held());
        unsafe { heap.free(large) };
        heap.cache.knobs.set(Id::HardLimit as usize, 0);
        assert_empty(heap);
    });
    assert!(all.get() > 0, "nothing was ever refused");
}

#[test]
fn a_hard_limit_is_kept_on_fake_cpus() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    keeps_to_the_limit(&HEAP, 60);
}

#[test]
fn a_hard_limit_is_kept_in_the_fallback() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Fallback));
    keeps_to_the_limit(&HEAP, 60);
}

#[test]
fn a_hard_limit_is_kept_in_sequences() {
    static HEAP: Heap<Test> = Heap::new();
    if open(&HEAP, Mode::Sequences) {
        keeps_to_the_limit(&HEAP, 60);
    }
}

/// Threads at the limit, while another watches what the heap has.
fn threads_at_the_limit(heap: &Heap<Test>) {
    heap.trim();
    let (most, meta) = (limit(heap, 24 * MIB), board(heap).level(Level::Meta));
    let stop = AtomicBool::new(false);
    let stop = &stop;
    let nulls = crate::tests::threads::scope(|scope| {
        let watcher = scope.spawn(move || {
            let mut high = 0;
            while !stop.load(Relaxed) {
                // (Read first: it only grows.)
                let more = board(heap).level(Level::Meta) - meta;
                high = high.max(board(heap).held().saturating_sub(more));
                std::thread::yield_now();
            }
            high
        });
        let workers: Vec<_> = (0..6_u64)
            .map(|thread| {
                scope.spawn(move || {
                    RANDOM.with(|state| state.set(0x1234_5678_9abc_def1 ^ thread << 40));
                    let (mut mine, mut nulls) = (Vec::new(), 0_u64);
                    for _ in 0..3000 {
                        let size = match random() % 8 {
                            0 => 40_000 + random() as usize % 3_000_000,
                            1..=3 => 1000 + random() as usize % 30_000,
                            _ => 1 + random() as usize % 600,
                        };
                        let at = heap.malloc(size) as usize;
                        if at == 0 {
                            nulls += 1;
                        } else {
                            let seed = random() as u8;
                            unsafe { fill(at, size, seed) };
                            mine.push((at, size, seed));
                        }
                        if at == 0 || random().is_multiple_of(3) {
                            let which = random() as usize % mine.len().max(1);
                            if which < mine.len() {
                                let (at, size, seed) = mine.swap_remove(which);
                                unsafe {
                                    check(at, size, seed, size);
                                    heap.free(at as *mut u8);
                                }
                            }
                        }
                    }
                    for (at, size, seed) in mine {
                        unsafe {
                            check(at, size, seed, size);
                            heap.free(at as *mut u8);
                        }
                    }
                    nulls
                })
            })
            .collect();
        let done: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Relaxed);
        let high = watcher.join().unwrap();
        // (What is on its way from dirty to clean is counted as neither for a moment, or as both: 8 MiB at most.)
        assert!(high <= most + AT_ONCE + (8 << 20), "{high} of {most}");
        done.into_iter().map(|nulls| nulls.expect("a worker failed")).sum::<u64>()
    });
    assert!(nulls > 0, "nothing was refused");
    assert_eq!(refused(heap), nulls);
    heap.cache.knobs.set(Id::HardLimit as usize, 0);
    assert_empty(heap);
}

#[test]
fn threads_at_a_hard_limit_on_fake_cpus() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    threads_at_the_limit(&HEAP);
}

#[test]
fn threads_at_a_hard_limit_in_the_fallback() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Fallback));
    threads_at_the_limit(&HEAP);
}

#[test]
fn threads_at_a_hard_limit_in_sequences() {
    static HEAP: Heap<Test> = Heap::new();
    if open(&HEAP, Mode::Sequences) {
        threads_at_the_limit(&HEAP);
    }
}

/// Blocks of pages and areas of the program's own are limited, too; giants; and what the limit does not concern is not.
#[test]
fn every_way_to_ask_is_limited() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let heap = &HEAP;
    limit(heap, 8 * MIB);
    let mut blocks = [0; 4096];
    let got = heap.pages_alloc_bulk(0, None, Flags::NONE, &mut blocks);
    assert!((1900..=2048).contains(&got), "{got} pages of 8 MiB");
    assert_eq!(heap.pages_alloc(9, None, Flags::NONE), Err(crate::page::Error::Exhausted));
    assert_eq!(heap.pages_alloc(10, None, Flags::NONE), Err(crate::page::Error::Exhausted));
    assert!(heap.area_alloc(1 << 20, PAGE, false).is_none() && heap.area_alloc(1 << 20, PAGE, true).is_none());
    assert!(heap.malloc(1 << 30).is_null() && heap.malloc(1 << 50).is_null());
    assert!(heap.aligned(64 << 10, 1 << 20).is_null());
    unsafe { heap.pages_free_bulk(&blocks[..got]) }.unwrap();
    // Free pages become anything else.
    let area = heap.area_alloc(7 << 20, PAGE, false).unwrap();
    assert_eq!(heap.pages_alloc(10, None, Flags::NONE), Err(crate::page::Error::Exhausted));
    unsafe { heap.area_free(area) }.unwrap();
    let block = heap.pages_alloc(10, None, Flags::NONE).unwrap();
    unsafe { heap.pages_free(block) }.unwrap();
    // A limit below what there is refuses what is new, and nothing else.
    let (kept, area) = (heap.malloc(1000), heap.malloc(1 << 20));
    heap.cache.knobs.set(Id::HardLimit as usize, 1 << 20);
    assert!(heap.malloc(8 << 20).is_null());
    unsafe {
        heap.free(kept);
        assert!(heap.realloc(area, 2 << 20).is_null());
        assert!(!heap.realloc(area, 700_000).is_null());
        heap.free(area);
    }
    heap.cache.knobs.set(Id::HardLimit as usize, 0);
    assert_empty(heap);
}

#[test]
fn a_soft_limit_keeps_free_memory_away_and_refuses_nothing() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let (heap, knobs) = (&HEAP, &HEAP.cache.knobs);
    let soft = 64 * MIB;
    knobs.set(Id::LazyFloor as usize, 1 << 30);
    knobs.set(Id::LazyCeiling as usize, 1 << 30);
    knobs.set(Id::SoftLimit as usize, soft);
    let mut live = Vec::new();
    // 20 MiB live, then up to 30 times as much freed again: no more than a sixteenth stays.
    for round in 0..600_usize {
        let at = heap.malloc(1_000_000 + round * 4096);
        assert!(!at.is_null());
        if round < 20 {
            live.push(at);
        } else {
            unsafe { heap.free(at) };
        }
        // (Levels may be told up to 1 MiB late by each node.)
        let (idle, held) = (heap.mm().free_resident(), board(heap).held());
        assert!(idle <= soft / 16 + 16 * MIB && held < soft, "{idle} free, {held} held");
    }
    let relieved = || heap.cache.sets.event(Event::SoftLimit);
    assert_eq!(relieved(), 0, "it was not near");
    // Near it caches are drained, again and again, and nothing is refused beyond it.
    for _ in 0..64 {
        live.push(heap.malloc(1_000_000));
    }
    let small: Vec<_> = (0..20_000).map(|_| heap.malloc(1000)).collect();
    assert!(live.iter().chain(&small).all(|at| !at.is_null()) && board(heap).held() > soft);
    assert!(relieved() > 0 && heap.cache.is_tight());
    for at in small.into_iter().chain(live) {
        unsafe { heap.free(at) };
    }
    assert!(!heap.cache.is_tight());
    knobs.set(Id::SoftLimit as usize, 0);
    assert_empty(heap);
}

/// What the cgroup says counts where nobody gave a number.
#[test]
fn the_cgroup_limits_where_asked() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let knobs = &HEAP.cache.knobs;
    // (Else the heap would ask the real one.)
    knobs.set(Id::KeeperBytes as usize, 1 << 40);
    knobs.set_cgroup(None, Some(32 * MIB));
    let first = HEAP.malloc(40 << 20);
    assert!(!first.is_null(), "the hard limit is off unless asked for");
    assert!(HEAP.cache.is_tight(), "the soft one is on unless not asked for");
    unsafe { HEAP.free(first) };
    knobs.set(Id::HardLimit as usize, BY_CGROUP);
    assert!(HEAP.malloc(40 << 20).is_null());
    let second = HEAP.malloc(20 << 20);
    assert!(!second.is_null());
    unsafe { HEAP.free(second) };
    knobs.set_cgroup(None, None);
    assert_empty(&HEAP);
}

/// Nobody comes later: what a burst of frees leaves goes back with it.
#[test]
fn without_a_keeper_frees_give_back_at_once() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    for size in [200 << 10, 3000, 200 << 20] {
        let count = (300 << 20) / size;
        let all: std::vec::Vec<_> = (0..count).map(|_| HEAP.malloc(size)).collect();
        assert!(all.iter().all(|object| !object.is_null()));
        all.iter().for_each(|&object| unsafe { HEAP.free(object) });
        let left = HEAP.mm().free_resident();
        assert!(left <= 12 << 20, "{left} bytes are left of {count} blocks of {size}");
    }
    assert!(HEAP.reclaim.keeper.is_out(|| 0));
    assert_empty(&HEAP);
}
