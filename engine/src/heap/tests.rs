//! The heap against a model, under threads, on 64 fake CPUs, in the fallback and,
//! where this machine has them, in sequences that dawdle before every commit.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::{Environment, Heap, Opening};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::rseq::{self, Fence};
use crate::arch::seq::RseqArea;
use crate::cache::layout::OBJECTS;
use crate::cache::{DrainMode, DrainReport};
use crate::cpu::Simulation;
use crate::cpu::sim::Cpu;
use crate::knob::Id;
use crate::reclaim::drain::DrainTarget;
use crate::reclaim::mm::ALL_CLASSES;
use crate::slab::class::{self, CLASSES, FAST_MAX, SMALL_MAX};
use crate::stat::board::LEVEL_THRESHOLD;
use crate::stat::profile as profile_words;
use crate::stat::{BadPointer, Event, Index, Level, Mode, Reason};
use crate::tests::threads;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::vec::Vec;

mod large;
mod model;

use model::{Model, Op, against_the_model, check, fill, live_samples, sizes};

static CPUS: [Cpu; 64] = [const { Cpu::new() }; 64];
static INDICES: [Cpu; 64] = [const { Cpu::new() }; 64];
static SIMULATION: Simulation = Simulation { cpus: &CPUS, indices: &INDICES, here, nodes: 2 };

thread_local! {
    static RANDOM: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
    static HERE: Cell<usize> = const { Cell::new(0) };
}

fn random() -> u64 {
    RANDOM.with(|state| {
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        x
    })
}

/// Each index is 8 CPUs' turn by turn, and a thread moves now and then.
fn here() -> (usize, u32) {
    if random().is_multiple_of(16) {
        HERE.with(|here| here.set(random() as usize % 64));
    }
    let cpu = HERE.with(Cell::get);
    (cpu / 8 * 8 + cpu % 3, cpu as u32)
}

struct Test;

impl Environment for Test {
    fn start(_: &Heap<Self>) {}
    /// (The thread that a test favours.)
    fn is_single() -> bool {
        true
    }
    fn no_memory() {}
    fn report(address: usize, wrong: BadPointer) {
        BAD.lock().map(|mut bad| bad.push((address, wrong))).ok();
    }
}
static BAD: Mutex<Vec<(usize, BadPointer)>> = Mutex::new(Vec::new());

/// Opens a heap with tiny constants, so that refills and flushes happen every few operations.
fn open(heap: &Heap<Test>, mode: Mode) -> bool {
    let mut area = RseqArea::default();
    if mode == Mode::Sequences {
        let Ok((base, usable)) = rseq::area() else { return false };
        if rseq::word(base + rseq::CPU_ID) as i32 == -1 || Fence.register().is_err() {
            return false;
        }
        area = RseqArea { base, index: base + if usable >= rseq::MM_CID_BYTES { rseq::MM_CID } else { 0 } };
    }
    let knobs = &heap.cache.knobs;
    knobs.reset();
    knobs.set(Id::SheafObjects as usize, 4);
    knobs.set(Id::LazyFloor as usize, 1 << 20);
    let opening =
        Opening { mode, reason: Reason::Asked, index: Index::MmCid, area, simulation: Some(&SIMULATION), share: None };
    unsafe { heap.open(&opening) }.unwrap();
    heap.cache.sets.mode() == mode
}

/// Everything was freed: nothing may be left anywhere.
fn assert_empty(heap: &Heap<Test>) {
    heap.trim();
    heap.trim();
    heap.verify();
    for class in 1..CLASSES {
        let levels = &heap.cache.sets.board().class[class];
        assert_eq!(
            (
                heap.cache.sets.taken(class),
                heap.cache.cached(class),
                levels.slabs.load(Relaxed),
                heap.slabs.free(class)
            ),
            (0, 0, 0, 0),
            "class {class}: taken, cached, slabs, free"
        );
    }
    let sets = &heap.cache.sets;
    for level in [Level::Taken, Level::Slabs, Level::Areas, Level::Lazy, Level::PagesDirty, Level::Barns] {
        assert_eq!(sets.level(level), 0, "{}", level.name());
        let word = sets.board().levels[level as usize].load(Relaxed).cast_signed();
        let spaces =
            sets.board().spaces.iter().map(|space| space.differential.load(Relaxed).cast_signed().unsigned_abs());
        let untold = if matches!(level, Level::Areas | Level::Lazy) { spaces.sum() } else { 0 };
        let bound = LEVEL_THRESHOLD * sets.board().sets.load(Relaxed) as u64 + untold;
        assert!(word.unsigned_abs() <= bound, "{}: the word alone is off by {word}", level.name());
    }
    assert_eq!(sets.level(Level::PagesFree) % PAGE as u64, 0);
}

#[test]
fn the_profile_is_switched_under_threads() {
    static HEAP: Heap<Test> = Heap::new();
    if !open(&HEAP, Mode::Sequences) {
        return;
    }
    let (stop, switched) = (AtomicBool::new(false), std::sync::atomic::AtomicUsize::new(0));
    threads::scope(|scope| {
        let switch = scope.spawn(|| {
            while !stop.load(Relaxed) {
                let next = [0, 1, 700, 0, 30_000][switched.fetch_add(1, Relaxed) % 5];
                HEAP.cache.knobs.set(Id::ProfileBytes as usize, next);
                HEAP.apply_profile();
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
            HEAP.cache.knobs.set(Id::ProfileBytes as usize, 0);
            HEAP.apply_profile();
        });
        // Whatever fails: who waits for it must end.
        let ends = Ends(&stop);
        stress_threads(&HEAP, 4, 6_000);
        while switched.load(Relaxed) < 6 {
            stress_threads(&HEAP, 4, 600);
        }
        let mut bulk = [0; 40];
        let got = HEAP.malloc_bulk(100, &mut bulk);
        assert_eq!(got, bulk.len());
        drop(ends);
        switch.join().unwrap();
        unsafe { HEAP.free_bulk(100, &bulk) };
    });
    assert!(HEAP.gates.small.load(Relaxed) == FAST_MAX, "the gate is open again");
    assert!(HEAP.profile.samples.header().is_some_and(|header| header.samples.load(Relaxed) > 0));
    assert_eq!(live_samples(&HEAP), (0, 0, 0));
    assert_empty(&HEAP);
}

/// Tells others to stop when it goes.
struct Ends<'a>(&'a AtomicBool);
impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Threads that allocate, check, hand over and free, while another drains and trims; then nothing is left.
fn stress(heap: &Heap<Test>, threads: u64, rounds: u64) {
    stress_threads(heap, threads, rounds);
    assert_empty(heap);
}

fn stress_threads(heap: &Heap<Test>, threads: u64, rounds: u64) {
    let shared: Mutex<Vec<(usize, usize, u8)>> = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    let (shared, stop) = (&shared, &stop);
    threads::scope(|scope| {
        let drainer = scope.spawn(move || {
            let mut trims = 0_u64;
            let mut taken = DrainReport::default();
            while !stop.load(Relaxed) {
                let report = match trims % 5 {
                    0 => heap.drain(DrainTarget::All, DrainMode::Expedited),
                    1 => heap.drain(DrainTarget::Cpu((trims / 5 % 64) as u32), DrainMode::Auto),
                    2 => heap.drain(DrainTarget::All, DrainMode::Gentle),
                    3 => heap.drain(DrainTarget::Idle, DrainMode::Expedited),
                    _ => {
                        heap.trim();
                        DrainReport::default()
                    }
                };
                taken.reached += report.reached;
                taken.answers += report.answers;
                taken.objects += report.objects;
                trims += 1;
                std::thread::yield_now();
            }
            // (One that got no CPU beside the others finds what they left.)
            let last = heap.drain(DrainTarget::All, DrainMode::Expedited);
            taken.reached += last.reached;
            taken.objects += last.objects;
            assert!(taken.reached > 0 && taken.objects > 0);
            // In the fallback, and on fake CPUs, nobody is interrupted and nobody needs to be asked.
            println!("{trims} rounds: {taken:?}");
            trims
        });
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    RANDOM.with(|state| state.set(0x1234_5678_9abc_def1 ^ thread << 40));
                    let mut mine = Vec::new();
                    for _ in 0..rounds {
                        let size = match random() % 16 {
                            0 => 40_000 + random() as usize % 100_000,
                            1..=3 => 1000 + random() as usize % 30_000,
                            _ => 1 + random() as usize % 600,
                        };
                        if random().is_multiple_of(256) {
                            heap.park();
                        }
                        let at = heap.malloc(size) as usize;
                        assert!(at.is_multiple_of(16) && at != 0);
                        let seed = random() as u8;
                        unsafe { fill(at, size, seed) };
                        mine.push((at, size, seed));
                        if random().is_multiple_of(4) {
                            shared.lock().unwrap().append(&mut mine);
                        }
                        let gone = if random().is_multiple_of(2) { mine.pop() } else { shared.lock().unwrap().pop() };
                        if let Some((at, size, seed)) = gone {
                            unsafe {
                                check(at, size, seed, size);
                                heap.free(at as *mut u8);
                            }
                        }
                    }
                    shared.lock().unwrap().append(&mut mine);
                })
            })
            .collect();
        // All of them, then the drainer: one that nobody stops would hide who failed.
        let done: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Relaxed);
        drainer.join().unwrap();
        assert!(done.iter().all(Result::is_ok), "a worker failed");
    });
    for (at, size, seed) in shared.lock().unwrap().drain(..) {
        unsafe {
            check(at, size, seed, size);
            heap.free(at as *mut u8);
        }
    }
}

#[test]
fn threads_and_drains_lose_nothing_on_64_fake_cpus() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    stress(&HEAP, 8, 8_000);
}

#[test]
fn threads_and_drains_lose_nothing_in_the_fallback() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Fallback));
    stress(&HEAP, 6, 20_000);
}

#[test]
fn threads_drains_and_preemptions_lose_nothing_in_sequences() {
    static HEAP: Heap<Test> = Heap::new();
    if open(&HEAP, Mode::Sequences) {
        // More threads than CPUs, sequences that dawdle: they are preempted in the middle.
        stress(&HEAP, 8, 40_000);
    }
}

extern "C" fn nothing(_: i32) {}

#[test]
fn signals_in_the_middle_of_sequences_lose_nothing() {
    static HEAP: Heap<Test> = Heap::new();
    if !open(&HEAP, Mode::Sequences) {
        return;
    }
    unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as usize) };
    let stop = AtomicBool::new(false);
    let target = std::sync::atomic::AtomicUsize::new(0);
    let (stop, target) = (&stop, &target);
    threads::scope(|scope| {
        scope.spawn(move || {
            while !stop.load(Relaxed) {
                let thread = target.load(Relaxed);
                if thread != 0 {
                    unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR1) };
                }
            }
        });
        let worker = scope.spawn(move || {
            target.store(unsafe { libc::pthread_self() } as usize, Relaxed);
            let mut live = std::collections::BTreeSet::new();
            // A busy machine may let the two run in turns for a while.
            let interrupted = || HEAP.cache.sets.event(Event::SeqAbort) > 0;
            for round in 0..30_000_000_u64 {
                if round > 300_000 && round % 100_000 == 0 && interrupted() {
                    break;
                }
                let at = HEAP.malloc(48) as usize;
                assert!(live.insert(at), "handed out twice");
                if round % 3 != 0 || live.len() > 500 {
                    let gone = *live.iter().nth(random() as usize % live.len().min(8)).unwrap();
                    live.remove(&gone);
                    unsafe { HEAP.free(gone as *mut u8) };
                }
            }
            target.store(0, Relaxed);
            for at in live {
                unsafe { HEAP.free(at as *mut u8) };
            }
        });
        let done = worker.join();
        stop.store(true, Relaxed);
        assert!(done.is_ok(), "the worker failed");
    });
    assert!(HEAP.cache.sets.event(Event::SeqAbort) > 0, "no sequence was interrupted: the test tests nothing");
    assert_empty(&HEAP);
}

#[test]
fn bulk_takes_and_gives_every_object_once() {
    for mode in [Mode::Fallback, Mode::Sequences] {
        let heap: &Heap<Test> =
            std::boxed::Box::leak(unsafe { std::boxed::Box::<Heap<Test>>::new_zeroed().assume_init() });
        if !open(heap, mode) {
            continue;
        }
        let mut objects = [0; 1000];
        assert_eq!(heap.malloc_bulk(100, &mut objects), 1000);
        let mut sorted = objects;
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 100));
        unsafe { heap.free_bulk(100, &objects) };
        assert_empty(heap);
    }
}

#[test]
fn sets_closed_for_a_vfork_are_bypassed_and_reopen() {
    static HEAP: Heap<Test> = Heap::new();
    if !open(&HEAP, Mode::Sequences) {
        return;
    }
    let before = HEAP.malloc(64);
    let begun = HEAP.vfork_begin(false);
    let direct = HEAP.cache.sets.event(Event::Direct);
    let during = HEAP.malloc(64);
    unsafe { HEAP.free(before) };
    assert_eq!(HEAP.cache.sets.event(Event::Direct), direct + 2);
    // The child has begun one, and is killed in it.
    let _ = HEAP.vfork_begin(false);
    assert_eq!(HEAP.vfork_end(begun), 2);
    assert!(during != before && !HEAP.cache.sets.cpus.is_closed());
    unsafe { HEAP.free(during) };
    assert_eq!((HEAP.cache.sets.event(Event::Direct), HEAP.cache.sets.event(Event::Vfork)), (direct + 2, 2));
    assert_empty(&HEAP);
}

/// An area that grows much goes to memory that has its pages, where it would grow over some that have none.
#[test]
fn an_area_that_grows_by_half_goes_where_memory_is_resident() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let grow = |at: *mut u8, bytes: usize| unsafe {
        at.write_bytes(5, 1600 * PAGE);
        let grown = HEAP.realloc(at, bytes);
        assert!((0..1600).all(|page| *grown.add(page * PAGE + 7) == 5));
        grown
    };
    HEAP.cache.knobs.set(Id::MoveBytes as usize, 64 << 20);
    let area = |pages: usize| HEAP.malloc(pages * PAGE);
    // (Longer than what a CPU's front has. Behind the last one are pages that nobody used.)
    let (dirty, between, last) = (area(2600), area(300), area(1600));
    unsafe { HEAP.free(dirty) };
    assert_eq!(grow(last, 2500 * PAGE), dirty, "what is behind has no pages");
    unsafe { HEAP.free(dirty) };
    assert_eq!(area(1600), last);
    assert_eq!(grow(last, 2000 * PAGE), last, "by little: where it is");
    assert_eq!(grow(last, 3200 * PAGE), last, "nothing that has its pages is as long");
    assert_eq!(grow(last, 1600 * PAGE), last);
    assert_eq!(grow(last, 2500 * PAGE), last, "what is behind has its pages");
    unsafe { [last, between].into_iter().for_each(|area| HEAP.free(area)) };
    assert_empty(&HEAP);
}

/// While a fork is in flight every thread is served, at once, and what it frees goes back afterwards.
#[test]
fn nobody_waits_for_a_fork() {
    static HEAPS: [Heap<Test>; 2] = [Heap::new(), Heap::new()];
    for (heap, mode) in HEAPS.iter().zip([Mode::Sequences, Mode::Fallback]) {
        if !open(heap, mode) {
            continue;
        }
        let sizes = [0, 16, 500, 20_000, 100_000, 3 << 20];
        let work = move |before: Vec<usize>| -> Vec<usize> {
            let objects: Vec<_> = sizes.iter().map(|&size| (heap.malloc(size), size)).collect();
            let objects: Vec<_> =
                objects.into_iter().chain([(heap.aligned(700, 512), 700), (heap.calloc(60_000), 60_000)]).collect();
            assert!((objects[6].0 as usize).is_multiple_of(512) && unsafe { *objects[7].0.add(59_999) } == 0);
            objects.iter().for_each(|&(object, size)| unsafe { object.write_bytes(7, size) });
            let grown = unsafe { heap.realloc(objects[2].0, 5000) };
            assert!(heap.usable(grown) >= Some(5000) && unsafe { *grown.add(499) } == 7);
            before.into_iter().for_each(|object| unsafe { heap.free(object as *mut u8) });
            let mut many = [0; 40];
            assert_eq!(heap.malloc_bulk(100, &mut many), 40);
            unsafe { heap.free_bulk(100, &many) };
            // Some are freed beside the fork, some after it.
            objects
                .into_iter()
                .enumerate()
                .map(|(at, (object, _))| if at == 2 { grown } else { object } as usize)
                .collect()
        };
        let mut left: Vec<usize> = Vec::new();
        for _ in 0..3 {
            let before =
                |n: usize| -> Vec<usize> { sizes.iter().map(|&size| heap.malloc(size * n) as usize).collect() };
            let (mine, theirs) = (before(1), before(2));
            let used = before(1);
            assert!(heap.fork_begin(u32::MAX));
            let others = threads::scope(|scope| scope.spawn(move || work(theirs)).join().unwrap());
            left.extend(work(mine));
            left.drain(..3).for_each(|object| unsafe { heap.free(object as *mut u8) });
            left.extend(others);
            assert!(heap.cache.sets.event(Event::AllocAside) > 0 && heap.cache.sets.event(Event::PutOff) > 0);
            heap.fork_end(false);
            heap.pay();
            assert!(!heap.side.is_owing());
            used.into_iter().for_each(|object| unsafe { heap.free(object as *mut u8) });
        }
        left.into_iter().for_each(|object| unsafe { heap.free(object as *mut u8) });
        assert_empty(heap);
    }
}

/// Two fake CPUs that nobody leaves, each on a node of its own.
fn two_nodes() -> &'static Simulation {
    Simulation::own(2, 2, || (NODE.get(), NODE.get() as u32))
}
thread_local! {
    static NODE: Cell<usize> = const { Cell::new(0) };
}

/// On these.
fn open_on_two_nodes(heap: &Heap<Test>) {
    let opening = Opening {
        mode: Mode::Simulated,
        reason: Reason::Asked,
        index: Index::Cpu,
        area: RseqArea::default(),
        simulation: Some(two_nodes()),
        share: None,
    };
    heap.cache.knobs.reset();
    unsafe { heap.open(&opening) }.unwrap();
}

#[test]
fn objects_come_from_the_node_that_asks_and_go_back_to_their_own() {
    // Too large for the stack.
    static HEAP: Heap<Test> = Heap::new();
    let heap = &HEAP;
    open_on_two_nodes(heap);
    let node_of = |object: usize| heap.pages.windows.zone(heap.pages.windows.find(object).unwrap().1);
    let objects = [0, 1].map(|node| {
        NODE.set(node);
        let objects: Vec<usize> = (0..2000).map(|_| heap.malloc(100) as usize).collect();
        assert!(objects.iter().all(|&object| node_of(object) == node), "an object of another node");
        objects
    });
    // Freed by the other node: its sheaves hold some, its barns none, and its slabs never.
    for (node, objects) in objects.into_iter().rev().enumerate() {
        NODE.set(node);
        objects.into_iter().for_each(|object| unsafe { heap.free(object as *mut u8) });
    }
    for node in [0, 1] {
        NODE.set(node);
        let again: Vec<usize> = (0..2000).map(|_| heap.malloc(100) as usize).collect();
        let foreign = again.iter().filter(|&&object| node_of(object) != node).count();
        assert!(foreign <= 2 * OBJECTS, "{foreign} objects of another node were given again");
        again.into_iter().for_each(|object| unsafe { heap.free(object as *mut u8) });
    }
    assert_empty(heap);
    for node in [0, 1] {
        NODE.set(node);
        let object = heap.malloc(100) as usize;
        assert_eq!(node_of(object), node, "a slab on the wrong list");
        unsafe { heap.free(object as *mut u8) };
    }
    assert_empty(heap);
}

mod bias;
mod drains;
mod front;
mod limits;
mod many;
mod others;
mod run;
mod scarce;
mod slabs;
mod torn;
mod wide;
mod wrong;

/// A thread that waits for the heap to open must not keep the CPU from the one that opens it.
#[test]
fn who_waits_for_the_heap_to_open_sleeps() {
    static HEAP: Heap<Slow> = Heap::new();
    static BEGUN: AtomicBool = AtomicBool::new(false);
    struct Slow;
    impl Environment for Slow {
        fn start(heap: &Heap<Self>) {
            BEGUN.store(true, Release);
            std::thread::sleep(std::time::Duration::from_millis(100));
            let opening = Opening {
                mode: Mode::Fallback,
                reason: Reason::Asked,
                index: Index::Cpu,
                area: RseqArea::default(),
                simulation: None,
                share: None,
            };
            heap.cache.knobs.reset();
            unsafe { heap.open(&opening) }.unwrap();
        }
        fn no_memory() {}
        fn report(_: usize, _: BadPointer) {}
    }
    /// On CPU 0, before all of lower priority; false if that is not allowed here.
    fn urgent(priority: i32) -> bool {
        let parameter = libc::sched_param { sched_priority: priority };
        unsafe {
            let mut cpus: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(0, &mut cpus);
            libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus) == 0
                && libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0
        }
    }
    let (tell, told) = std::sync::mpsc::channel();
    let work = |priority, waits| {
        let tell = tell.clone();
        threads::spawn(move || {
            let able = urgent(priority);
            while able && waits && !BEGUN.load(Acquire) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            tell.send(able.then(|| HEAP.opened())).unwrap();
        });
    };
    work(1, false);
    work(2, true);
    for _ in 0..2 {
        match told.recv_timeout(std::time::Duration::from_secs(20)) {
            Ok(Some(opened)) => assert!(opened),
            Ok(None) => return std::eprintln!("skipped: no real-time priority here"),
            Err(_) => panic!("a thread waits for ever"),
        }
    }
}
