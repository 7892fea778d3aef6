//! What is asked at the mailbox is done, refused or ignored, and the texts that it writes are whole.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::mailbox::serve;
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::seq::RseqArea;
use crate::arch::sys::fault;
use crate::cpu::Simulation;
use crate::heap::{Environment, Heap, Opening};
use crate::knob::Id;
use crate::reclaim::mm::ALL_CLASSES;
use crate::stat::BadPointer;
use crate::stat::board::{
    BOARD_BYTES, EVERY_CPU, IDLE_CPUS, Mailbox, Reply, Request, SECTIONS, SHARE_BYTES, Section, Show, TALLIES,
};
use crate::stat::{Index, Level, Mode, Reason};
use std::string::String;
use std::vec::Vec;

unsafe extern "C" {
    fn memfd_create(name: *const core::ffi::c_char, flags: u32) -> i32;
    fn ftruncate(file: i32, length: i64) -> i32;
}

struct Test;

impl Environment for Test {
    fn start(_: &Heap<Self>) {}
    fn no_memory() {}
    fn report(address: usize, wrong: BadPointer) {
        panic!("{address:#x}: {wrong:?}");
    }
}

/// A heap that others can see.
fn shared(heap: &Heap<Test>) -> &Mailbox {
    open_in(heap, SHARE_BYTES);
    assert!(heap.cache().sets.is_shared());
    &heap.cache().sets.board().mailbox
}

/// A heap with a file that has room for so many bytes.
fn open_in(heap: &Heap<Test>, room: usize) {
    let file = unsafe { memfd_create(c"board".as_ptr(), 0) };
    assert!(file >= 0 && unsafe { ftruncate(file, room as i64) } == 0);
    heap.cache().knobs.reset();
    let opening = Opening {
        mode: Mode::Simulated,
        reason: Reason::Asked,
        index: Index::MmCid,
        area: RseqArea::default(),
        simulation: Some(Simulation::own(1, 1, || (0, 0))),
        share: Some(file as usize),
    };
    unsafe { heap.open(&opening) }.unwrap();
}

/// Beyond a file's end there is as little room as in a full file system: the heap works, and others see what has room.
#[test]
fn a_file_without_room_costs_what_is_seen_and_nothing_else() {
    static NONE: Heap<Test> = Heap::new();
    static BOARD: Heap<Test> = Heap::new();
    static TEXTS: Heap<Test> = Heap::new();
    static NO_TEXTS: Heap<Test> = Heap::new();
    for (heap, room) in [(&NONE, BOARD_BYTES), (&NO_TEXTS, TALLIES)] {
        open_in(heap, room);
        assert!(!heap.cache().sets.is_shared());
    }
    open_in(&BOARD, TALLIES + 2 * PAGE);
    open_in(&TEXTS, SHARE_BYTES);
    for (heap, unseen) in [(&BOARD, 2), (&TEXTS, 0)] {
        let sets = &heap.cache().sets;
        assert!(sets.is_shared());
        let state = sets.cpus.lock();
        assert!((0..5).all(|_| sets.fresh(&state).is_some()));
        drop(state);
        assert_eq!(sets.board().unseen.load(Relaxed), unseen);
        (0..6).for_each(|tally| sets.tally(tally).events[0].store(tally as u64, Relaxed));
        assert_eq!((0..6).map(|tally| sets.tally(tally).events[0].load(Relaxed)).sum::<u64>(), 15);
        // Texts of more than has room: for none, and for the first 16 KiB.
        let areas: Vec<_> = (0..600).map(|_| heap.malloc(40_000)).collect();
        fault::storm(1, 1);
        assert_eq!(ask(heap, Request::Show as u32, [0; 2]).0, Reply::NoRoom);
        assert!(fault::storm(0, 0) == 1 && sets.ensure_texts(16 * 1024));
        fault::storm(1, 1);
        assert_eq!(ask(heap, Request::Show as u32, [0; 2]).0, Reply::Done);
        assert_eq!(fault::storm(0, 0), 1);
        // SAFETY: as in `text`.
        let show = unsafe { &*(sets.show() as *const Show) };
        let [at, len, lost] =
            [0, 1, 2].map(|word: usize| show.sections[Section::Vmallocinfo as usize][word].load(Relaxed));
        assert!(lost > 0 && len > 0, "{at} {len} {lost}");
        areas.into_iter().for_each(|area| unsafe { heap.free(area) });
    }
    let object = NONE.malloc(100);
    assert!(!object.is_null());
    unsafe { NONE.free(object) };
}

/// Asks as another process would; the heap is its own keeper.
fn ask(heap: &Heap<Test>, order: u32, arguments: [u64; 2]) -> (Reply, [u64; 8]) {
    let mailbox = &heap.cache().sets.board().mailbox;
    mailbox.order.store(order, Relaxed);
    mailbox.arguments.iter().zip(arguments).for_each(|(word, n)| word.store(n, Relaxed));
    mailbox.asked.fetch_add(1, Release);
    assert!(serve(heap) && !serve(heap), "served once");
    assert_eq!(mailbox.answered.load(Acquire), mailbox.asked.load(Relaxed));
    (Reply::from_word(mailbox.status.load(Relaxed)), core::array::from_fn(|at| mailbox.results[at].load(Relaxed)))
}

fn text(heap: &Heap<Test>, section: Section) -> String {
    let address = heap.cache().sets.show();
    let show = unsafe { &*(address as *const Show) };
    assert!(show.version.load(Acquire).is_multiple_of(2) && show.at_ns.load(Relaxed) > 0);
    let [at, len, lost] = [0, 1, 2].map(|word: usize| show.sections[section as usize][word].load(Relaxed) as usize);
    assert_eq!(lost, 0);
    let bytes = unsafe { core::slice::from_raw_parts((address + at) as *const u8, len) };
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn what_is_asked_for_is_done_or_refused() {
    static HEAP: Heap<Test> = Heap::new();
    let mailbox = shared(&HEAP);
    assert!(!serve(&HEAP), "nobody has asked");
    let tune = Request::Tune as u32;
    let at = Id::LazyFloor as u64;
    assert_eq!(ask(&HEAP, tune, [at, 7 << 20]).0, Reply::Done);
    assert_eq!(HEAP.cache().knobs.get(Id::LazyFloor), 7 << 20);
    assert_eq!(HEAP.cache().sets.board().knobs[at as usize].load(Relaxed), 7 << 20);
    for (arguments, answer) in [
        ([at, u64::MAX], Reply::Range),
        ([u64::MAX, 1], Reply::Range),
        ([crate::knob::TABLE.len() as u64, 1], Reply::Range),
        ([Id::Mode as u64, 1], Reply::Fixed),
    ] {
        assert_eq!(ask(&HEAP, tune, arguments).0, answer, "{arguments:?}");
    }
    assert_eq!(HEAP.cache().knobs.get(Id::LazyFloor), 7 << 20);
    assert_eq!(ask(&HEAP, 99, [0; 2]).0, Reply::Unknown);
    assert_eq!(ask(&HEAP, Request::None as u32, [0; 2]).0, Reply::Unknown);

    // Objects and pages that were freed lie in sets; a drain takes them, a purge gives them back.
    let objects: Vec<*mut u8> = (0..100).map(|_| HEAP.malloc(1000)).collect();
    objects.iter().for_each(|&object| unsafe { HEAP.free(object) });
    let drain = Request::Drain as u32;
    assert_eq!(ask(&HEAP, drain, [u64::from(u32::MAX) + 1, 0]).0, Reply::Range);
    assert_eq!(ask(&HEAP, drain, [EVERY_CPU, 3]).0, Reply::Range);
    let (answer, results) = ask(&HEAP, drain, [EVERY_CPU, 2]);
    assert!(answer == Reply::Done && results[0] > 0 && results[2] > 0 && results[3] == 0, "{results:?}");
    assert_eq!(ask(&HEAP, drain, [IDLE_CPUS, 2]).0, Reply::Done);
    let area = HEAP.malloc(1 << 20);
    unsafe { area.write_bytes(1, 1 << 20) };
    unsafe { HEAP.free(area) };
    let (answer, results) = ask(&HEAP, Request::Purge as u32, [0; 2]);
    assert!(answer == Reply::Done && results[0] >= 1 << 20, "{results:?}");
    assert_eq!(HEAP.cache().sets.level(Level::Lazy), 0);

    HEAP.confine();
    assert_eq!(ask(&HEAP, drain, [EVERY_CPU, 0]).0, Reply::Confined);
    assert_eq!(mailbox.asked.load(Relaxed), mailbox.answered.load(Relaxed));
}

#[test]
fn texts_have_what_there_is() {
    static HEAP: Heap<Test> = Heap::new();
    shared(&HEAP);
    let small = HEAP.malloc(100);
    let areas: Vec<*mut u8> = (1..=10).map(|n| HEAP.malloc(n * 100_000)).collect();
    // (Those that a CPU may cache are up to an eighth longer.)
    let lengths: Vec<usize> = areas.iter().map(|&area| HEAP.usable(area).unwrap()).collect();
    unsafe { HEAP.free(areas[3]) };
    let giant = HEAP.malloc(700 << 20);
    let show = Request::Show as u32;
    for _ in 0..3 {
        assert_eq!(ask(&HEAP, show, [0; 2]).0, Reply::Done);
    }
    let vmalloc = text(&HEAP, Section::Vmallocinfo);
    for (at, &area) in areas.iter().enumerate().chain(core::iter::once((10, &giant))) {
        let line = vmalloc.lines().find(|line| line.starts_with(&std::format!("{:#018x}-", area as usize)));
        let line = line.unwrap_or_else(|| panic!("no {area:?} in\n{vmalloc}"));
        let bytes = if at == 10 { 700 << 20 } else { lengths[at] };
        let asked = if at == 10 { bytes } else { (at + 1) * 100_000 };
        assert!(bytes >= asked && bytes < asked + asked / 8 + PAGE);
        assert!(line.contains(&std::format!(" {bytes} pages={} ", bytes / PAGE)), "{line}");
        assert_eq!(line.contains(" cached"), at == 3, "{line}");
        assert_eq!(line.contains(" giant"), at == 10, "{line}");
    }
    let busy: usize = vmalloc
        .lines()
        .filter(|line| line.contains(" busy"))
        .map(|line| line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(busy as u64, HEAP.cache().sets.level(Level::Areas));
    let buddy = text(&HEAP, Section::Buddyinfo);
    assert!(buddy.starts_with("Node 0, zone   Normal "), "{buddy}");
    assert!(text(&HEAP, Section::Zoneinfo).contains("nr_free_pages"));
    let sets = text(&HEAP, Section::Sets);
    let cached: usize =
        sets.split_whitespace().filter_map(|word| word.strip_prefix("objects=")?.parse::<usize>().ok()).sum();
    let here: usize = (1..ALL_CLASSES).map(|class| HEAP.cache().cached(class)).sum();
    assert_eq!(cached, here, "{sets}");
    assert_eq!(text(&HEAP, Section::PercpuStats), "");
    areas.iter().filter(|&&area| area != areas[3]).for_each(|&area| unsafe { HEAP.free(area) });
    unsafe { HEAP.free(giant) };
    unsafe { HEAP.free(small) };
    ask(&HEAP, show, [0; 2]);
    let left = text(&HEAP, Section::Vmallocinfo);
    assert!(left.lines().all(|line| !line.contains(" busy") || line.ends_with(" cached")), "{left}");
    const _: () = assert!(SECTIONS == 5);
}
