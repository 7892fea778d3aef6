//! Slabs by themselves, past the sheaves: each object once, every wrong pointer told, pages that come and go.

use super::*;
use crate::cache::{Sheaf, Source};
use crate::page::{BIASED, Kind, LISTED, PageSource, Zone};
use crate::slab::class::{SIZES, SLAB_ORDER, SMALL_MAX};
use crate::slab::{SlabSource, VISITS};

static WRONG: Mutex<Vec<(usize, BadPointer)>> = Mutex::new(Vec::new());

fn report(address: usize, wrong: BadPointer) {
    WRONG.lock().unwrap().push((address, wrong));
}
/// What was told of addresses from `base` on, in the order of the telling; other tests tell, too.
fn told(base: usize, bytes: usize) -> Vec<(usize, BadPointer)> {
    let mut all = WRONG.lock().unwrap();
    let here = all.iter().filter(|(at, _)| (base..base + bytes).contains(at)).map(|&(at, wrong)| (at - base, wrong));
    let here = here.collect();
    all.retain(|(at, _)| !(base..base + bytes).contains(at));
    here
}

/// Whether a heap's objects were ever wrong. (Others' tests run beside it.)
fn is_told(heap: &Heap<Test>) -> bool {
    WRONG.lock().unwrap().iter().any(|&(at, _)| heap.pages.windows.find(at).is_some())
}

/// A heap on one fake CPU, with its set made.
fn opened(heap: &'static Heap<Test>) -> SlabSource<'static> {
    let simulation = Some(Simulation::own(1, 1, || (0, 0)));
    let opening = Opening {
        mode: Mode::Simulated,
        reason: Reason::Asked,
        index: Index::Cpu,
        area: RseqArea::default(),
        simulation,
        share: None,
    };
    heap.cache.knobs.reset();
    unsafe { heap.open(&opening) }.unwrap();
    let object = heap.malloc(SIZES[CLASSES - 1] as usize);
    unsafe { heap.free(object) };
    heap.trim();
    heap.parts.slab_source(report)
}
fn class_of(size: u32) -> usize {
    SIZES.iter().position(|&of| of == size).unwrap()
}
fn slab_bytes(class: usize) -> usize {
    PAGE << SLAB_ORDER[class]
}
fn event(source: &SlabSource<'_>, event: Event) -> u64 {
    source.cache.sets.event(event)
}
/// Takes all objects of one new slab, lowest address first.
fn all_of_one(source: &SlabSource<'_>, class: usize) -> Vec<usize> {
    let objects: Vec<_> = (0..slab_bytes(class) / SIZES[class] as usize).map(|_| source.take(class).unwrap()).collect();
    let bases: Vec<_> = (0..objects.len()).map(|at| objects[0] + at * SIZES[class] as usize).collect();
    assert!(objects == bases, "each once, in order");
    objects
}
/// Numbers by chance, the same for a seed.
fn numbers(mut seed: u64) -> impl FnMut() -> usize {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    }
}
/// Gives objects back in one go.
fn flush(source: &SlabSource<'_>, class: usize, objects: &[usize]) {
    let mut sheaf = Sheaf::new(&source.cache.meta, source.cache.sets.board(), 64).unwrap();
    assert!(objects.iter().all(|&object| sheaf.push(object)));
    let before = event(source, Event::SheafFlush);
    source.flush(class, &mut sheaf);
    assert_eq!((sheaf.len(), event(source, Event::SheafFlush)), (0, before + 1));
    sheaf.discard(&source.cache.meta);
    source.verify();
}
/// As a thread that frees one more does.
#[test]
fn a_full_sheaf_is_relieved_of_what_lies_in_few_slabs() {
    static HEAP: Heap<Test> = Heap::new();
    let source = opened(&HEAP);
    let class = class_of(1024);
    let slabs: Vec<_> = (0..VISITS + 1).map(|_| all_of_one(&source, class)).collect();
    let per = slabs[0].len();
    assert!(per >= 2, "a slab has several");
    let mut sheaf = Sheaf::new(&source.cache.meta, source.cache.sets.board(), 600).unwrap();
    // Two of each, one after the other: they are of one visit.
    slabs.iter().flat_map(|slab| &slab[..2]).for_each(|&object| assert!(sheaf.push(object)));
    let (before, newest) = (event(&source, Event::SheafFlush), slabs[VISITS][..2].to_vec());
    source.relieve(class, &mut sheaf);
    assert_eq!(sheaf.objects(), newest, "the newest stay");
    assert_eq!(event(&source, Event::SheafFlush), before + 1);
    source.relieve(class, &mut sheaf);
    assert!(sheaf.is_empty());
    sheaf.discard(&source.cache.meta);
    slabs.iter().for_each(|slab| slab[2..].chunks(60).for_each(|some| flush(&source, class, some)));
    assert!(!is_told(&HEAP));
    assert_empty(&HEAP);
}
/// Which of these pages are resident.
fn resident(at: usize, pages: usize) -> Vec<bool> {
    let mut here = std::vec![0_u8; pages];
    assert_eq!(unsafe { libc::mincore(at as *mut libc::c_void, pages * PAGE, here.as_mut_ptr()) }, 0);
    here.into_iter().map(|page| page & 1 == 1).collect()
}

#[test]
fn a_slab_is_made_and_unmade_with_all_that_is_known_of_it() {
    static HEAP: Heap<Test> = Heap::new();
    let source = opened(&HEAP);
    let (sets, windows) = (&HEAP.cache.sets, &HEAP.pages.windows);
    let class = class_of(64);
    let known = || {
        let events = [Event::AllocSlab, Event::FreeSlab].map(|of| event(&source, of));
        let slabs = sets.board().class[class].slabs.load(Relaxed) as usize;
        (
            events,
            slabs,
            sets.level(Level::Slabs) as usize,
            sets.taken(class) as usize,
            sets.level(Level::Taken) as usize,
        )
    };
    let ([made, unmade], zero, bytes, ..) = known();
    assert_eq!((zero, bytes), (0, 0));
    let mut first = None;
    for round in 1..10 {
        let objects = all_of_one(&source, class);
        let n = objects.len();
        let (_, pfn) = windows.find(objects[0]).unwrap();
        let block = windows.desc(pfn).link.load(Relaxed) as *mut u8;
        assert_eq!(known(), ([made + round, unmade + round - 1], 1, n * 64, n, n * 64));
        assert_eq!([objects[0], objects[n - 1] + 63].map(|at| source.class_of(at)), [Some(class); 2]);
        // Odd ones, then even ones: bits of one word at a time and of several.
        for odd in [1, 0] {
            let some: Vec<_> = objects.iter().copied().skip(odd).step_by(2).collect();
            some.chunks(if round % 2 == 0 { 1 } else { 20 }).for_each(|some| flush(&source, class, some));
        }
        assert_eq!(known(), ([made + round, unmade + round], 0, 0, 0, 0));
        for page in 0..n * 64 / PAGE {
            let (_, pfn) = windows.find(objects[0] + page * PAGE).unwrap();
            let kind = if page == 0 { Kind::Pages } else { Kind::None };
            assert_eq!((source.class_of(objects[0] + page * PAGE), windows.desc(pfn).kind()), (None, kind));
        }
        // What describes a slab, and its pages, come back for the next.
        let again = HEAP.cache.meta.alloc(sets.board(), 64 + n / 8).unwrap();
        assert_eq!(again.as_ptr(), block);
        unsafe { HEAP.cache.meta.free(again, 64 + n / 8) };
        HEAP.trim();
        let free: usize = HEAP.pages.zones.iter().map(Zone::free_pages).sum();
        let now = (sets.level(Level::Meta), sets.board().level(Level::PagesManaged), free);
        assert_eq!(*first.get_or_insert(now), now);
    }
    assert!(!is_told(&HEAP));
    assert_empty(&HEAP);
}
/// Stretches of a slab's objects, upwards, downwards and single ones, each object in one of them.
fn stretches(objects: &[usize], random: &mut impl FnMut() -> usize) -> Vec<usize> {
    let mut rest: Vec<_> = objects.to_vec();
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let mut piece = rest.split_off(rest.len() - (1 + random() % 100).min(rest.len()));
        match random() % 4 {
            0 => piece.reverse(),
            1 => (0..piece.len()).for_each(|at| piece.swap(at, random() % (at + 1))),
            2 => piece = piece.iter().step_by(2).chain(piece.iter().skip(1).step_by(2)).copied().collect(),
            _ => {}
        }
        pieces.insert(random() % (pieces.len() + 1), piece);
    }
    pieces.concat()
}

#[test]
fn objects_that_come_back_in_stretches_are_each_free_once() {
    static HEAP: Heap<Test> = Heap::new();
    let source = opened(&HEAP);
    let mut random = numbers(1);
    for round in 0..60 {
        for size in [16, 48, 64, 112, 512, 1024] {
            let class = class_of(size);
            let objects = all_of_one(&source, class);
            let taken = source.cache.sets.taken(class);
            let back = stretches(&objects, &mut random);
            let (last, most) = back.split_last().unwrap();
            most.chunks(64).for_each(|some| flush(&source, class, some));
            assert_eq!(taken - source.cache.sets.taken(class), most.len() as u64);
            assert_eq!(told(objects[0], slab_bytes(class)), []);
            // Only the last is out: all others come again, and each once.
            let mut again: Vec<_> = most.iter().map(|_| source.take(class).unwrap()).collect();
            again.sort_unstable();
            let mut left = most.to_vec();
            left.sort_unstable();
            assert_eq!(again, left);
            // One in the middle of a stretch that is free by then is told, and nothing else.
            let at = round % (objects.len() - 4);
            flush(&source, class, &objects[at + 1..at + 2]);
            let (some, out) = (&objects[at..at + 4], objects[at]);
            let some: Vec<_> = if round % 2 == 0 { some.to_vec() } else { some.iter().rev().copied().collect() };
            flush(&source, class, &some);
            let double = (objects[at + 1] - objects[0], BadPointer::Double);
            assert_eq!(told(objects[0], slab_bytes(class)), [double], "{size} {out:#x}");
            let rest: Vec<_> = objects.iter().copied().filter(|object| !some.contains(object)).collect();
            rest.chunks(50).for_each(|some| flush(&source, class, some));
            assert_eq!(told(objects[0], slab_bytes(class)), [], "{last:#x}");
        }
    }
    assert_empty(&HEAP);
}
#[test]
fn a_full_slab_is_listed_again_by_what_is_freed_and_only_once() {
    static HEAP: Heap<Test> = Heap::new();
    let source = opened(&HEAP);
    for size in [16, 64, 1024, SMALL_MAX as u32] {
        let class = class_of(size);
        let objects = all_of_one(&source, class);
        for at in [0, objects.len() / 2, objects.len() - 1] {
            source.give(class, objects[at]);
            source.verify();
            assert_eq!(source.take(class), Some(objects[at]));
        }
        let (made, unmade) = (event(&source, Event::AllocSlab), event(&source, Event::FreeSlab));
        // All but one, in pieces and in any order; the last one lets the slab go.
        let (last, rest) = objects.split_last().unwrap();
        rest.chunks(30).rev().for_each(|some| flush(&source, class, some));
        assert_eq!(event(&source, Event::FreeSlab), unmade);
        flush(&source, class, &[*last]);
        assert_eq!((event(&source, Event::AllocSlab), event(&source, Event::FreeSlab)), (made, unmade + 1));
    }
    // Of two slabs, turn by turn.
    let class = class_of(1024);
    let (one, two) = (all_of_one(&source, class), all_of_one(&source, class));
    let turns: Vec<_> = one.iter().zip(&two).flat_map(|(one, two)| [*one, *two]).collect();
    let unmade = event(&source, Event::FreeSlab);
    flush(&source, class, &turns);
    assert_eq!(event(&source, Event::FreeSlab), unmade + 2);
    assert_eq!(HEAP.cache.sets.taken(class), 0);
    assert_empty(&HEAP);
}

#[test]
fn wrong_pointers_are_told_and_the_others_are_taken() {
    static HEAP: Heap<Test> = Heap::new();
    let source = opened(&HEAP);
    // (48 bytes do not fill their slab: behind the last object there is room for none.)
    let (class, other) = (class_of(48), class_of(64));
    let objects = all_of_one(&source, class);
    let (base, bytes, n) = (objects[0], slab_bytes(class), objects.len());
    assert!(n * 48 < bytes);
    let taken = || HEAP.cache.sets.taken(class) as usize;
    let bad = || event(&source, Event::BadFree);
    let none = bad();
    source.give(class, base + n * 48);
    assert_eq!(told(base, bytes), [(n * 48, BadPointer::Interior)]);
    source.give(class, base + 47);
    assert_eq!((told(base, bytes), taken(), bad()), (std::vec![(47, BadPointer::Interior)], n, none + 2));
    // Between good ones.
    flush(&source, class, &[objects[3], objects[4] + 16, objects[5]]);
    assert_eq!((told(base, bytes), taken(), bad()), (std::vec![(4 * 48 + 16, BadPointer::Interior)], n - 2, none + 3));
    flush(&source, class, &[objects[30] + 1, objects[30], objects[31], objects[32]]);
    assert_eq!((told(base, bytes), taken(), bad()), (std::vec![(30 * 48 + 1, BadPointer::Interior)], n - 5, none + 4));
    // Twice, in two frees, in one, and with another word between.
    source.give(class, objects[3]);
    assert_eq!((told(base, bytes), taken()), (std::vec![(3 * 48, BadPointer::Double)], n - 5));
    flush(&source, class, &[objects[9], objects[9], objects[10]]);
    assert_eq!((told(base, bytes), taken()), (std::vec![(9 * 48, BadPointer::Double)], n - 7));
    flush(&source, class, &[objects[11], objects[100], objects[11], objects[12]]);
    assert_eq!((told(base, bytes), taken()), (std::vec![(11 * 48, BadPointer::Double)], n - 10));
    // Of another class, beside good ones before and behind.
    let stranger = source.take(other).unwrap();
    flush(&source, class, &[objects[20], stranger, objects[21]]);
    assert_eq!(told(stranger, 64), [(0, BadPointer::Foreign)]);
    assert_eq!((told(base, bytes), taken(), HEAP.cache.sets.taken(other)), (std::vec![], n - 12, 1));
    assert_eq!(bad(), none + 8);
    source.give(other, stranger);
    // The last one, twice at once: the slab goes once.
    let gone = [3, 5, 9, 10, 11, 100, 12, 20, 21, 30, 31, 32];
    let rest: Vec<_> = (0..n - 1).filter(|at| !gone.contains(at)).map(|at| objects[at]).collect();
    rest.chunks(30).for_each(|some| flush(&source, class, some));
    let unmade = event(&source, Event::FreeSlab);
    flush(&source, class, &[objects[n - 1], objects[n - 1]]);
    assert_eq!((told(base, bytes), taken()), (std::vec![((n - 1) * 48, BadPointer::Foreign)], 0), "nothing is there");
    assert_eq!(event(&source, Event::FreeSlab), unmade + 1);
    assert_empty(&HEAP);
}

/// One of each slab in turn, in any order, so that all go one by one; among them each kind of wrong one, and those that let a slab go.
#[test]
fn objects_from_everywhere_are_each_taken_once_and_wrong_ones_told() {
    static HEAP: Heap<Test> = Heap::new();
    let source = opened(&HEAP);
    let mut random = numbers(7);
    for size in [16, 48, 1024, 4096, SMALL_MAX as u32] {
        let (class, other) = (class_of(size), class_of(64));
        let slabs: Vec<_> = (0..24).map(|_| all_of_one(&source, class)).collect();
        let (n, stranger) = (slabs[0].len(), source.take(other).unwrap());
        let unmade = event(&source, Event::FreeSlab);
        let mut wrong = Vec::new();
        for turn in 0..n {
            let mut some: Vec<_> = slabs.iter().map(|slab| slab[turn]).collect();
            (1..some.len()).for_each(|at| some.swap(at, random() % (at + 1)));
            if turn + 1 < n {
                let at = random() % some.len();
                let (address, how) = match turn % 4 {
                    0 => (stranger, BadPointer::Foreign),
                    1 => (some[at] + 8, BadPointer::Interior),
                    // One of those before it; its slab is there still.
                    2 => (some[at / 2], BadPointer::Double),
                    _ => (0x10, BadPointer::Foreign),
                };
                some.insert(at + 1, address);
                wrong.push((address, how));
            }
            flush(&source, class, &some);
        }
        let mut all: Vec<_> = slabs
            .iter()
            .flat_map(|slab| told(slab[0], slab_bytes(class)).into_iter().map(|(at, how)| (slab[0] + at, how)))
            .collect();
        all.extend(told(stranger, 64).into_iter().map(|(_, how)| (stranger, how)));
        all.extend(told(0x10, 1).into_iter().map(|_| (0x10, BadPointer::Foreign)));
        all.sort_unstable_by_key(|&(at, _)| at);
        wrong.sort_unstable_by_key(|&(at, _)| at);
        assert_eq!(all, wrong, "{size}");
        assert_eq!((HEAP.cache.sets.taken(class), event(&source, Event::FreeSlab)), (0, unmade + 24), "{size}");
        source.give(other, stranger);
    }
    assert_empty(&HEAP);
}

#[test]
fn sheaves_are_filled_so_that_the_lowest_comes_first() {
    static HEAP: Heap<Test> = Heap::new();
    let source = opened(&HEAP);
    let class = class_of(1024);
    let mut sheaf = Sheaf::new(&HEAP.cache.meta, HEAP.cache.sets.board(), 64).unwrap();
    let refills = event(&source, Event::SheafRefill);
    // More than a slab has: of two.
    source.fill(class, &mut sheaf, 20);
    assert_eq!((sheaf.len(), event(&source, Event::SheafRefill)), (20, refills + 1));
    assert!(sheaf.objects()[4..].windows(2).all(|pair| pair[0] == pair[1] + 1024), "{:x?}", sheaf.objects());
    assert_eq!((HEAP.cache.sets.taken(class), source.size(class)), (20, 1024));
    source.flush(class, &mut sheaf);
    sheaf.discard(&HEAP.cache.meta);
    // The highest sum so far is noted, and stays.
    let large: Vec<_> = (0..64).map(|_| source.take(CLASSES - 1).unwrap()).collect();
    let peak = HEAP.cache.sets.board().level(Level::TakenPeak);
    assert!(peak >= 64 * SMALL_MAX as u64, "{peak}");
    large.iter().for_each(|&object| source.give(CLASSES - 1, object));
    assert_eq!(HEAP.cache.sets.board().level(Level::TakenPeak), peak);
    assert_empty(&HEAP);
}

#[test]
fn a_trim_gives_back_the_pages_without_objects_and_no_other() {
    static HEAP: Heap<Test> = Heap::new();
    let source = opened(&HEAP);
    // (size, objects that are freed, pages that hold no other)
    let cases: [(u32, &[usize], &[usize]); 5] = [
        (1024, &[0, 1, 2, 3, 8, 9, 10, 11], &[0, 2]),
        (1024, &[0, 1, 2, 4, 5, 6, 7, 12, 13, 14, 15], &[1, 3]),
        (1280, &[0, 1, 2, 3], &[0]),
        (1280, &[3, 4, 5, 6], &[1]),
        (2048, &[0, 1, 2, 3, 5], &[0, 1]),
    ];
    for (size, freed, expected) in cases {
        let class = class_of(size);
        let objects = all_of_one(&source, class);
        let pages = slab_bytes(class) / PAGE;
        objects.iter().for_each(|&at| unsafe { core::ptr::write_bytes(at as *mut u8, 0xa5, size as usize) });
        (0..pages).for_each(|page| unsafe { ((objects[0] + page * PAGE) as *mut u8).write_volatile(1) });
        flush(&source, class, &freed.iter().map(|&at| objects[at]).collect::<Vec<_>>());
        assert_eq!(source.trim(|| true), 0, "somebody waits");
        assert_eq!(resident(objects[0], pages), std::vec![true; pages]);
        assert_eq!(source.trim(|| false), expected.len() * PAGE, "{size}: {freed:?}");
        source.verify();
        let left: Vec<_> = (0..pages).map(|page| !expected.contains(&page)).collect();
        assert_eq!(resident(objects[0], pages), left, "{size}: {freed:?}");
        assert_eq!(source.trim(|| false), 0, "nothing has changed");
        // What is left is as it was; what was freed comes back from the same slab.
        for (at, &object) in objects.iter().enumerate().filter(|(at, _)| !freed.contains(at)) {
            let bytes = unsafe { core::slice::from_raw_parts(object as *const u8, size as usize) };
            assert!(bytes[1..].iter().filter(|&&byte| byte != 0xa5).count() <= 1, "{size}: object {at}");
        }
        let again = source.take(class).unwrap();
        assert!(freed.iter().any(|&at| objects[at] == again));
        source.give(class, again);
        assert!(source.trim(|| false) > 0, "looked at again");
        objects
            .iter()
            .enumerate()
            .filter(|(at, _)| !freed.contains(at))
            .for_each(|(_, &object)| source.give(class, object));
    }
    assert_empty(&HEAP);
}

#[test]
fn a_slab_that_empties_in_the_hand_of_a_trim_goes() {
    static HEAP: Heap<Test> = Heap::new();
    let source = opened(&HEAP);
    let class = class_of(1024);
    for last in [false, true] {
        let objects = all_of_one(&source, class);
        let (early, late) = objects.split_at(8);
        flush(&source, class, early);
        let unmade = event(&source, Event::FreeSlab);
        // It is on no list now, so whoever frees leaves it to the trim.
        let frees = Cell::new(true);
        source.trim(|| {
            if frees.replace(false) {
                flush(&source, class, if last { late } else { &late[..7] });
                assert_eq!(event(&source, Event::FreeSlab), unmade);
            }
            last
        });
        assert_eq!(event(&source, Event::FreeSlab), unmade + u64::from(last));
        if !last {
            source.give(class, late[7]);
            assert_eq!(event(&source, Event::FreeSlab), unmade + 1);
        }
    }
    assert_empty(&HEAP);
}

/// More than half of a class's slots are free, and they are much.
#[test]
fn slabs_of_which_hardly_anything_is_out_are_hollow() {
    static HEAP: Heap<Test> = Heap::new();
    let source = opened(&HEAP);
    for (size, slabs, hollow) in [(1024, 100, 801), (1024, 20, 0), (16 << 10, 10, 41)] {
        let class = class_of(size);
        let slots = slab_bytes(class) / size as usize;
        let objects: Vec<_> = (0..slabs * slots).map(|_| source.take(class).unwrap()).collect();
        assert_eq!(HEAP.slabs.free(class), 0);
        // (Of each slab the last stays to the end.)
        let (stay, go): (Vec<_>, Vec<_>) = (0..objects.len()).partition(|at| at % slots == slots - 1);
        for (gone, at) in go.into_iter().enumerate() {
            assert_eq!(source.is_hollow(class), hollow > 0 && gone >= hollow, "{size}: {gone}");
            source.give(class, objects[at]);
            assert_eq!(HEAP.slabs.free(class), gone + 1);
        }
        stay.into_iter().for_each(|at| source.give(class, objects[at]));
        assert!(!source.is_hollow(class));
    }
    assert_empty(&HEAP);
}

#[test]
fn a_checked_slab_knows_what_the_program_has() {
    static HEAP: Heap<Test> = Heap::new();
    HEAP.slabs.check();
    assert!(HEAP.slabs.is_checked());
    let source = opened(&HEAP);
    let class = class_of(64);
    for _ in 0..3 {
        let objects = all_of_one(&source, class);
        let last = objects.len() - 1;
        for at in [0, 1, 63, 64, 130, last] {
            assert_eq!(source.look(objects[at]), Err(BadPointer::Double), "{at} is nobody's");
            source.hand_out(objects[at]);
            assert_eq!(source.look(objects[at]), Ok(()));
            // Its neighbours in the bitmap are not meant.
            assert_eq!(source.look(objects[at ^ 2]), Err(BadPointer::Double));
            assert_eq!(source.hand_in(objects[at]), Ok(()));
            assert_eq!([source.hand_in(objects[at]), source.look(objects[at])], [Err(BadPointer::Double); 2]);
            source.hand_out(objects[at]);
        }
        assert_eq!(source.look(objects[1] + 8), Err(BadPointer::Interior));
        assert_eq!(source.hand_in(objects[1] + 8), Err(BadPointer::Interior));
        // The program's bits are not those of the free objects: nothing is free.
        let more = source.take(class).unwrap();
        assert!(!objects.contains(&more));
        objects.chunks(30).for_each(|some| flush(&source, class, some));
        source.give(class, more);
    }
    // What is known of one slab is not in the next one's way.
    let class = class_of(16);
    let slabs = [0; 6].map(|_| all_of_one(&source, class));
    slabs.iter().flatten().for_each(|&object| source.hand_out(object));
    source.verify();
    assert!(slabs.iter().flatten().all(|&object| source.look(object).is_ok() && source.hand_in(object).is_ok()));
    assert!(slabs.iter().flatten().all(|&object| source.look(object).is_err()));
    slabs.iter().for_each(|objects| objects.chunks(30).for_each(|some| flush(&source, class, some)));
    let area = HEAP.malloc(1 << 20);
    assert_eq!((source.look(area as usize), source.hand_in(area as usize)), (Ok(()), Ok(())));
    unsafe { HEAP.free(area) };
}

#[test]
fn class_bytes_say_who_serves_and_go_with_the_slab() {
    static HEAPS: [Heap<Test>; 4] = [const { Heap::new() }; 4];
    let class = class_of(1024);
    let (sequences, fallback) = (class as u8, class as u8 | BIASED);
    let each = [(Mode::Sequences, sequences), (Mode::Fallback, fallback), (Mode::Sequences, 0), (Mode::Simulated, 0)];
    HEAPS[2].slabs.check();
    for (heap, (mode, byte)) in HEAPS.iter().zip(each) {
        if !open(heap, mode) {
            continue;
        }
        let source = heap.parts.slab_source(report);
        let objects: Vec<_> = (0..16).map(|_| source.take(class).unwrap()).collect();
        let bytes = || objects.iter().map(|&at| heap.pages.windows.class(at).unwrap()).collect::<Vec<_>>();
        assert_eq!(bytes(), [byte; 16]);
        let there = objects.clone();
        flush(&source, class, &there);
        assert_eq!(bytes(), [0; 16]);
    }
}

/// Pages by themselves: of each order, of two nodes, to their list or past it.
#[test]
fn pages_come_back_to_the_list_of_their_node_or_to_their_zone() {
    static HEAP: Heap<Test> = Heap::new();
    open_on_two_nodes(&HEAP);
    let source = PageSource { pages: &HEAP.pages, cache: &HEAP.cache, first: CLASSES };
    let free = |node: usize| HEAP.pages.zones[node].free_pages();
    let bad = || HEAP.cache.sets.event(Event::BadFree);
    for (at, &order) in LISTED.iter().enumerate() {
        let class = CLASSES + at;
        assert_eq!(source.size(class), PAGE << order);
        let block = source.take(class).unwrap();
        let (had, none) = (free(0), bad());
        source.give(class, block);
        assert_eq!((free(0), bad()), (had + (1 << order), none));
        source.give(class, block);
        assert_eq!((free(0), bad()), (had + (1 << order), none + 1), "twice");
        // Where there is one node all is near.
        assert!(source.is_near(block) && source.is_near(0));
    }
    NODE.set(1);
    unsafe { HEAP.free(HEAP.malloc(PAGE)) };
    assert_eq!(HEAP.cache.sets.cpus.nodes(), 2);
    for from in [0, 1] {
        NODE.set(from);
        let [near, far] = [0; 2].map(|_| source.alloc(0).unwrap());
        let [near_at, far_at] = [near, far].map(|block| HEAP.pages.windows.address(block));
        assert_eq!((HEAP.pages.windows.zone(far), source.is_near(far_at), source.is_near(0)), (from, true, true));
        let had = free(from);
        unsafe { source.free(near, 0) };
        assert_eq!(free(from), had, "it is the list's");
        assert_eq!(source.alloc(0).map(|block| HEAP.pages.windows.address(block)), Some(near_at));
        unsafe { source.free(near, 0) };
        NODE.set(1 - from);
        assert!(!source.is_near(far_at) && !HEAP.parts.slab_source(report).is_near(far_at));
        unsafe { source.free(far, 0) };
        assert_eq!(free(from), had + 1, "it is the zone's");
    }
    NODE.set(0);
    assert_empty(&HEAP);
}
