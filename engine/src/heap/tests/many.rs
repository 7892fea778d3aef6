//! As many CPUs as Linux can have, of which few are used or all, on fake ones.

use super::*;
use crate::reclaim::keeper::Duty;
use crate::stat::Tally;
use crate::stat::board::{SETS_MAX, SHARE_BYTES, Section, Show, TALLIES, TALLY_BYTES};
use core::fmt::Write;
use std::string::String;
use std::time::Instant;

/// Possible indices: those of the kernels that distributions build.
const MANY: usize = 8192;
/// Of which these are used.
const USED: usize = 4096;

thread_local! {
    static AT: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" {
    fn memfd_create(name: *const core::ffi::c_char, flags: u32) -> i32;
    fn ftruncate(file: i32, length: i64) -> i32;
    fn pread(file: i32, into: *mut u64, bytes: usize, at: i64) -> isize;
}

/// A heap on so many fake CPUs, whose board is in a file; and the file.
fn opened(heap: &Heap<Test>) -> i32 {
    let file = unsafe { memfd_create(c"board".as_ptr(), 0) };
    assert!(file >= 0 && unsafe { ftruncate(file, SHARE_BYTES as i64) } == 0);
    heap.cache.knobs.reset();
    // (So that each of them may cache something.)
    heap.cache.knobs.set(Id::CacheFloor as usize, 64 << 20);
    let opening = Opening {
        mode: Mode::Simulated,
        reason: Reason::Asked,
        index: Index::Cpu,
        area: RseqArea::default(),
        simulation: Some(Simulation::own(MANY, 1, || (AT.get(), AT.get() as u32))),
        share: Some(file as usize),
    };
    unsafe { heap.open(&opening) }.unwrap();
    assert!(heap.cache.sets.is_shared());
    file
}

/// Index `index` caches an object.
fn fill(heap: &Heap<Test>, index: usize) {
    AT.set(index);
    let object = heap.malloc(100);
    unsafe { heap.free(object) };
}

/// Objects handed out, as whoever reads the file adds them up.
fn seen(file: i32, sets: usize) -> u64 {
    let mut tally = std::vec![0_u64; TALLY_BYTES / 8];
    let mut sum = 0;
    for set in 0..sets {
        let at = (TALLIES + set * TALLY_BYTES) as i64;
        assert_eq!(unsafe { pread(file, tally.as_mut_ptr(), TALLY_BYTES, at) }, TALLY_BYTES as isize);
        let first = core::mem::offset_of!(Tally, class) / 8;
        sum += (0..CLASSES).map(|class| tally[first + 2 * class]).sum::<u64>();
    }
    sum
}

#[test]
fn thousands_of_indices_have_sets_are_drained_and_seen() {
    static HEAP: Heap<Test> = Heap::new();
    let file = opened(&HEAP);
    let sets = &HEAP.cache.sets;
    // Every other one, up to the last.
    let indices = || (0..USED).map(|at| MANY - 1 - at * 2);
    indices().for_each(|index| fill(&HEAP, index));
    assert_eq!((sets.top(), sets.used().count()), (MANY, USED));
    assert!(sets.used().all(|index| index % 2 == 1 && sets.holds(index)));
    let made = sets.board().sets.load(Relaxed) as usize;
    assert!(made > USED && sets.board().unseen.load(Relaxed) == 0);
    assert_eq!(seen(file, made), USED as u64);
    // The texts name each of them, and lose nothing.
    let mut text = String::new();
    crate::control::texts::sets(&HEAP, &mut text).unwrap();
    assert_eq!(text.lines().count(), USED);
    assert!(text.contains("index=8191 cpu=8191 "));
    assert!(crate::control::texts::publish(&HEAP));
    let show = unsafe { &*(sets.show() as *const Show) };
    for section in [Section::Zoneinfo, Section::Sets, Section::Vmallocinfo] {
        let [len, lost] = [1, 2].map(|word: usize| show.sections[section as usize][word].load(Relaxed));
        assert!(lost == 0 && (len > 0 || section == Section::Vmallocinfo), "{section:?} {len} {lost}");
    }
    // A drain reaches all, each gets its second set, and a fork closes and opens all.
    let report = HEAP.drain(DrainTarget::All, DrainMode::Expedited);
    assert_eq!((report.reached, report.unreached), (USED, 0));
    // (What slabs gave back waits in the page lists of whoever drained.)
    assert!(sets.used().filter(|&index| sets.holds(index)).count() <= 1);
    assert!(HEAP.fork_begin(u32::MAX) && sets.ready().is_none());
    HEAP.fork_end(false);
    indices().for_each(|index| fill(&HEAP, index));
    assert_eq!(HEAP.drain(DrainTarget::Cpu(MANY as u32 - 1), DrainMode::Expedited).reached, 1);
    assert_eq!(seen(file, sets.board().sets.load(Relaxed) as usize), 2 * USED as u64);
    // Isolated CPUs of any number are left alone.
    sets.isolated.insert(MANY - 3);
    let report = HEAP.drain(DrainTarget::All, DrainMode::Gentle);
    assert_eq!(report.reached + report.unreached, USED - 1);
    assert_empty(&HEAP);
}

/// Who comes when there are no more sets lives without a cache: nothing is lost, and nobody gets another's.
#[test]
fn without_a_set_there_is_memory_and_no_cache() {
    static HEAP: Heap<Test> = Heap::new();
    opened(&HEAP);
    let sets = &HEAP.cache.sets;
    let state = sets.cpus.lock();
    while sets.fresh(&state).is_some() {}
    drop(state);
    assert_eq!(sets.board().sets.load(Relaxed) as usize, SETS_MAX);
    AT.set(MANY - 1);
    let objects: Vec<_> = (0..1000).map(|_| HEAP.malloc(100)).collect();
    assert!(objects.iter().all(|object| !object.is_null()) && !sets.holds(MANY - 1));
    assert_eq!(objects.iter().collect::<std::collections::BTreeSet<_>>().len(), 1000);
    objects.iter().for_each(|&object| unsafe { HEAP.free(object) });
    let area = HEAP.malloc(1 << 20);
    assert!(!area.is_null());
    unsafe { HEAP.free(area) };
    assert_empty(&HEAP);
}

/// Microseconds of what walks the indices, by how many there are and which are used: to be read, and compared by docs/many-cpus.md.
#[test]
#[ignore = "measures; run it alone, in release"]
fn walks_cost_by_what_was_used() {
    type Walk = (&'static str, fn(&Heap<Test>));
    const WALKS: &[Walk] = &[
        ("drain of all that holds nothing", |heap| _ = heap.drain(DrainTarget::All, DrainMode::Expedited)),
        ("fork: close and open", |heap| {
            assert!(heap.fork_begin(u32::MAX));
            heap.fork_end(false);
        }),
        ("the keeper's look", |heap| _ = heap.mm().give_back(Duty::Usual)),
        ("trim (a squeeze)", |heap| _ = heap.trim()),
        ("a level, exact", |heap| _ = std::hint::black_box(heap.cache.sets.level(Level::Taken))),
        ("an event, summed", |heap| _ = std::hint::black_box(heap.cache.sets.event(Event::Fence))),
        ("objects cached of a class", |heap| _ = std::hint::black_box(heap.cache.sets.cached(1))),
        ("texts of a report", |heap| assert!(crate::control::texts::publish(heap))),
    ];
    let shapes: [(&str, Vec<usize>); 5] = [
        ("0, 1", (0..2).collect()),
        ("0-63", (0..64).collect()),
        ("4 of 64", (0..4).map(|at| at * 21).collect()),
        ("4 of 4096", (0..4).map(|at| at * 1365).collect()),
        ("0-4095", (0..4096).collect()),
    ];
    let mut table = String::new();
    for (name, indices) in shapes {
        let heap: &'static Heap<Test> = std::boxed::Box::leak(std::boxed::Box::new(Heap::new()));
        opened(heap);
        indices.iter().for_each(|&index| fill(heap, index));
        heap.trim();
        for (walk, run) in WALKS {
            let mut times: Vec<f64> = (0..21)
                .map(|_| {
                    let begin = Instant::now();
                    run(heap);
                    begin.elapsed().as_secs_f64() * 1e6
                })
                .collect();
            times.sort_by(f64::total_cmp);
            writeln!(table, "{name:>10} | {walk:<32} | {:10.2} µs ({:.2}–{:.2})", times[10], times[2], times[18])
                .unwrap();
        }
        writeln!(table, "{name:>10} | addresses of sets and tallies    | {:10} KiB", sys_reserved(heap) >> 10).unwrap();
    }
    std::println!("{table}");
}

fn sys_reserved(heap: &Heap<Test>) -> u64 {
    heap.cache.sets.board().level(Level::Reserved)
}
