//! Step by step: all that is counted, after each.

use super::*;
use crate::vmap::Fresh;
use crate::vmap::space::Space;

type Changes<'a> = &'a [(&'static str, i64)];

fn fresh(world: &World, changes: Changes<'_>, alloc: impl FnOnce(&Vmap<'_>) -> Option<Fresh>) -> (Area, bool) {
    let fresh = world.step(changes, || alloc(&world.vmap())).expect("memory");
    (world.found(Some(fresh)), fresh.zero)
}

/// What an area is made of, and where what is freed goes.
#[test]
fn each_step_counts_what_it_does() {
    let (world, first) = World::with_free(4000);
    let vmap = world.vmap();
    let (one, zero) = fresh(world, &[("areas", p(40)), ("area_alloc", 1)], |vmap| vmap.alloc(40 * PAGE - 7, 1));
    assert_eq!((one.pfn, one.bytes, zero), (first, 40 * PAGE, true));
    let other = world.step(&[("areas", p(20)), ("area_alloc", 1)], || world.area(20));
    let freed = |pages| [("areas", -p(pages)), ("lazy", p(pages)), ("untold", p(pages)), ("area_free", 1)];
    let reused = |pages| [("areas", p(pages)), ("lazy", -p(pages)), ("untold", -p(pages)), ("area_reuse", 1)];
    assert_eq!(world.step(&freed(40), || vmap.free(&one)), Freed::Quietly);
    assert_eq!(world.step(&[], || vmap.free(&one)), Freed::Not);
    assert_eq!(vmap.find(vmap.windows.address(first)), None);
    let (part, zero) = fresh(world, &reused(30), |vmap| vmap.alloc(30 * PAGE, PAGE));
    assert_eq!((part.pfn, part.bytes, zero), (first, 30 * PAGE, false));
    // What is left of it is too short, and beside it is nothing free; then there is.
    let (behind, zero) = fresh(world, &[("areas", p(25)), ("area_alloc", 1)], |vmap| vmap.alloc(25 * PAGE, PAGE));
    assert_eq!((behind.pfn, zero), (first.add(60), true));
    world.step(&freed(25), || vmap.free(&behind));
    let mixed = [("areas", p(35)), ("lazy", -p(25)), ("area_alloc", 1)];
    let (mixed, zero) = fresh(world, &mixed, |vmap| vmap.alloc(35 * PAGE, PAGE));
    assert_eq!((mixed.pfn, mixed.bytes, zero), (first.add(60), 35 * PAGE, false));
    // The other half of what may be: zeros, aligned to more.
    world.step(&freed(35), || vmap.free(&mixed));
    let (aligned, zero) = fresh(world, &[("areas", p(36)), ("area_alloc", 1)], |vmap| vmap.alloc(36 * PAGE, 2 * PAGE));
    assert_eq!((aligned.pfn, zero), (first.add(96), true));
    world.step(&freed(36), || vmap.free(&aligned));
    // (35, one that is free, 36.) For zeros a part of a dirty run only below the bound, and none of just that length at or above.
    let (sparse, zero) =
        fresh(world, &[("areas", p(12)), ("area_alloc", 1)], |vmap| vmap.alloc_zero(12 * PAGE, PAGE, 12 * PAGE));
    assert_eq!((sparse.pfn, zero), (first.add(132), true));
    let (dense, zero) = fresh(world, &reused(12), |vmap| vmap.alloc_zero(12 * PAGE, PAGE, 12 * PAGE + 1));
    assert_eq!((dense.pfn, zero), (first.add(60), false));
    // Nobody's address, or the inside of an area.
    assert_eq!([1, PAGE, 12 * PAGE].map(|at| vmap.find(vmap.windows.address(dense.pfn) + at)), [None; 3]);
    for area in [other, part, sparse, dense] {
        vmap.free(&area);
    }
    world.step(
        &[
            ("lazy", -p(143)),
            // (The 25 dirty pages with free ones beside them were told at once.)
            ("untold", -p(168)),
            ("purged", 2),
            ("purge", 1),
            ("purge_bytes", p(143)),
            ("timed", 1),
            ("slices", 1),
        ],
        || assert_eq!(vmap.purge(usize::MAX), 143 * PAGE),
    );
    world.step(&[], || assert_eq!([vmap.purge(usize::MAX), vmap.purge_pending(usize::MAX)], [0, 0]));
}

/// A guard page is one more, which the program never sees; what merges with nothing is reused as a whole, or gathered with all.
#[test]
fn guarded_areas_count_their_guards() {
    let (world, first) = World::with_free(4000);
    let vmap = world.vmap();
    let guarded = |pages: usize| move |vmap: &Vmap<'_>| vmap.alloc_guarded(pages * PAGE, PAGE);
    let (one, zero) = fresh(world, &[("areas", p(41)), ("area_alloc", 1)], guarded(40));
    assert_eq!((one.pfn, one.bytes, one.flags, zero), (first, 40 * PAGE, GUARD, true));
    let (two, _) = fresh(world, &[("areas", p(41)), ("area_alloc", 1)], guarded(40));
    assert_eq!(two.pfn, first.add(41));
    let freed = |pages| [("areas", -p(pages)), ("lazy", p(pages)), ("untold", p(pages)), ("area_free", 1)];
    world.step(&freed(41), || vmap.free(&one));
    world.step(&[], || vmap.free(&one));
    // One of another length, or without a guard, is not made of it.
    let (other, _) = fresh(world, &[("areas", p(40)), ("area_alloc", 1)], guarded(39));
    let plain = world.step(&[("areas", p(41)), ("area_alloc", 1)], || world.area(41));
    let reused = [("areas", p(41)), ("lazy", -p(41)), ("untold", -p(41)), ("area_reuse", 1)];
    let (again, zero) = fresh(world, &reused, guarded(40));
    assert_eq!((again, zero), (one, false));
    // It neither grows nor is cut, but may stay as it is.
    let resize = |pages: usize| vmap.resize(&again, pages * PAGE);
    world.step(&[], || assert_eq!([41, 40, 20, 19, 1].map(resize), [false, true, true, false, false]));
    assert_eq!([41, 40].map(|pages| vmap.fresh_behind(&again, pages * PAGE)), [None; 2]);
    world.step(&freed(40), || vmap.free(&other));
    world.step(&freed(41), || vmap.free(&plain));
    world.step(&freed(41), || vmap.free(&again));
    // Of some of what is lazy the dirty run is enough.
    let purged = |runs: i64, pages: usize| {
        [("lazy", -p(pages)), ("purged", runs), ("purge", 1), ("purge_bytes", p(pages)), ("timed", 1), ("slices", 1)]
    };
    let told = ("untold", -p(41 + 40 + 41));
    let mut changes = purged(1, 41).to_vec();
    changes.push(told);
    world.step(&changes, || assert_eq!(vmap.purge(PAGE), 41 * PAGE));
    // Nothing else is dirty.
    world.step(&purged(2, 81), || assert_eq!(vmap.purge(usize::MAX), 81 * PAGE));
    vmap.free(&two);
    let mut changes = purged(1, 41).to_vec();
    changes.push(("untold", -p(41)));
    world.step(&changes, || assert_eq!(vmap.purge(PAGE), 41 * PAGE));
    // Where the system has no such pages: none, and the pages are what they were.
    let no_guards = |seen: &Seen| {
        (seen.call == Call::Advise && seen.args[2] == Advice::GuardInstall as usize).then_some(Err(Errno::EINVAL))
    };
    let changes = [("lazy", p(41)), ("untold", p(41)), ("area_alloc", 1), ("area_free", 1)];
    let (none, seen) = watched(no_guards, || world.step(&changes, || vmap.alloc_guarded(40 * PAGE, PAGE)));
    assert!(none.is_none());
    let advised: Vec<_> = seen.iter().map(|seen| (seen.args[0], seen.args[1])).collect();
    assert_eq!(advised, [(vmap.windows.address(first) + 40 * PAGE, PAGE)]);
    // A giant one has none, and nothing is lost where there is no memory.
    world.step(&[], || assert!(vmap.alloc_guarded(600 << 20, PAGE).is_none()));
    let (none, _) = watched(|_| NO, || world.step(&[], || vmap.alloc_guarded(5000 * PAGE, PAGE)));
    assert!(none.is_none());
    world.set(Id::HardLimit, 1 << 40);
    let (none, _) = watched(|_| NO, || world.step(&[], || vmap.alloc_guarded(5000 * PAGE, PAGE)));
    assert!(none.is_none());
    // Its guard is charged, too.
    let held = world.cache.sets.board().held() as usize;
    world.set(Id::HardLimit, held + 60 * PAGE);
    world.step(&[], || assert!(vmap.alloc_guarded(60 * PAGE, PAGE).is_none()));
    fresh(world, &[("areas", p(60)), ("area_alloc", 1)], guarded(59));
    world.set(Id::HardLimit, 0);
    // What got no guard is as others are.
    assert_eq!(vmap.reuse(41 * PAGE, PAGE).map(|fresh| fresh.address), Some(vmap.windows.address(first)));
    world.set(Id::HugeBytes, PAGE);
    assert_eq!(world.found(vmap.alloc_guarded(40 * PAGE, PAGE)).flags, GUARD | 1);
}

/// With a hard limit what is fresh is counted before it is taken; the limit itself may be reached.
#[test]
fn a_hard_limit_is_kept_to_the_page() {
    let (world, first) = World::with_free(4000);
    let vmap = world.vmap();
    let charge = |pages: usize, credit: usize| vmap.charge(pages * PAGE, credit * PAGE);
    world.step(&[], || assert_eq!((charge(1 << 30, 0), charge(1, 0)), (Some(false), Some(false))));
    world.step(&[], || vmap.discharge(false, PAGE));
    let base = world.cache.sets.board().held() as usize / PAGE;
    world.set(Id::HardLimit, (base + 100) * PAGE);
    world.step(&[], || assert_eq!([charge(101, 0), charge(1 << 40, 0), charge(104, 3)], [None; 3]));
    // (So much that it would be less than nothing.)
    world.step(&[], || assert_eq!(vmap.charge(usize::MAX - PAGE + 1, 0), None));
    world.step(&[("areas", p(100))], || assert_eq!((charge(100, 0), charge(1, 0)), (Some(true), None)));
    world.step(&[("areas", -p(100))], || vmap.discharge(true, 100 * PAGE));
    world.step(&[("areas", p(103))], || assert_eq!(charge(103, 3), Some(true)));
    vmap.discharge(true, 103 * PAGE);
    // An area, what is behind it, and what is reused: that is counted already.
    world.step(&[], || assert!(vmap.alloc(101 * PAGE, PAGE).is_none()));
    let (one, _) = fresh(world, &[("areas", p(90)), ("area_alloc", 1)], |vmap| vmap.alloc(90 * PAGE, PAGE));
    world.step(&[], || assert!(!vmap.resize(&one, 101 * PAGE)));
    world.step(&[("areas", p(10)), ("area_grow", 1)], || assert!(vmap.resize(&one, 100 * PAGE)));
    let one = vmap.find(vmap.windows.address(first)).unwrap();
    assert_eq!(one.bytes, 100 * PAGE);
    vmap.free(&one);
    world.step(&[], || assert!(vmap.alloc(101 * PAGE, PAGE).is_none()));
    let reused = [("areas", p(100)), ("lazy", -p(100)), ("untold", -p(100)), ("area_reuse", 1)];
    let (one, _) = fresh(world, &reused, |vmap| vmap.alloc(100 * PAGE, PAGE));
    vmap.free(&one);
    vmap.purge(usize::MAX);
    // Refused by the system: the charge is not needed after all. (The free run is too short.)
    world.set(Id::HardLimit, (base + 5000) * PAGE);
    let (none, _) = watched(|_| NO, || world.step(&[], || vmap.alloc(4900 * PAGE, PAGE)));
    assert!(none.is_none());
    let one = world.area(3000);
    let (grown, _) = watched(|_| NO, || world.step(&[], || vmap.resize(&one, 4200 * PAGE)));
    assert!(!grown);
    // A giant one, too, is counted once.
    let bytes = 600 << 20;
    world.set(Id::HardLimit, world.cache.sets.board().held() as usize + bytes);
    let before = world.exact(Level::Areas);
    assert!(vmap.alloc(bytes, PAGE).is_some() && vmap.alloc(PAGE, PAGE).is_none());
    assert_eq!(world.exact(Level::Areas) - before, bytes);
}

/// What a space has not told is bounded: by twice the area, between a sixty-fourth of the soft limit and 1 to 8 MiB.
#[test]
fn a_space_tells_when_it_owes_too_much() {
    const MIB: isize = 1 << 20;
    let world = World::new();
    let vmap = world.vmap();
    let board = world.cache.sets.board();
    let most = DIFFERENTIAL as isize;
    // The soft limit; what becomes lazy; what is untold then, and whether the levels were told.
    let steps = [
        (1, MIB / 2, MIB / 2, false),
        (1, MIB / 2, MIB, false),
        (1, 1, MIB / 2, true),
        (1, -MIB, -MIB / 2, false),
        (1, -MIB / 2, -MIB, false),
        (1, -1, -MIB / 2, true),
        (1, MIB / 2, 0, false),
        // Twice its own.
        (1, 2 * MIB, 2 * MIB, false),
        (1, 2 * MIB, 4 * MIB, false),
        (1, 2 * MIB, 2 * MIB, true),
        (1, -2 * MIB, 0, false),
        (1, 3 * MIB, 3 * MIB, false),
        (1, 3 * MIB, 6 * MIB, false),
        (1, -6 * MIB, 0, false),
        // And no more than that.
        (1, most, most, false),
        (1, 2 * MIB, 2 * MIB, true),
        (1, -2 * MIB, 0, false),
        (1, most + 1, most / 2, true),
        (1, -most / 2, 0, false),
        // A soft limit of 128 MiB: 2 MiB; one of 1 MiB: the least.
        (128 << 20, 3 * MIB / 2, 3 * MIB / 2, false),
        (128 << 20, MIB, MIB, true),
        (128 << 20, -MIB, 0, false),
        (MIB as usize, MIB, MIB, false),
        (MIB as usize, 1, MIB / 2, true),
        (MIB as usize, -MIB / 2, 0, false),
        (1 << 46, most, most, false),
        (1 << 46, 1, MIB / 2, true),
    ];
    for flags in [0, 1 << HOME_SHIFT, 1] {
        let space = vmap.space(flags);
        let state = space.state.lock();
        let words = || [Level::Areas, Level::Lazy].map(|level| board.levels[level as usize].load(Relaxed) as isize);
        let untold = || board.spaces[Space::number(flags)].differential.load(Relaxed) as isize;
        for (n, (limit, bytes, then, told)) in steps.into_iter().enumerate() {
            world.set(Id::SoftLimit, limit);
            let (before, had) = (words(), untold());
            board.set(Level::Taken, 100);
            board.set(Level::TakenPeak, 0);
            assert_eq!(vmap.differ(flags, &state, bytes), told, "step {n}");
            let gone = had + bytes - untold();
            assert_eq!((untold(), gone != 0), (then, told), "step {n}");
            assert_eq!(words(), [before[0] - gone, before[1] + gone], "step {n}");
            assert_eq!(board.level(Level::TakenPeak) >= 100, told, "step {n}");
        }
        let (before, had) = (words(), untold());
        vmap.fold(Space::number(flags), &state);
        assert_eq!((words(), untold()), ([before[0] - had, before[1] + had], 0));
    }
}

/// Pages, alignment and space of an area.
#[test]
fn shapes_of_areas() {
    const GIANT: usize = WINDOW_PAGES / 2;
    let world = World::new();
    let vmap = world.vmap();
    let huge = 32 << 20;
    assert_eq!(vmap.shape(0, 0), (1, 1, Some(0)));
    assert_eq!(vmap.shape(PAGE, 1), (1, 1, Some(0)));
    assert_eq!(vmap.shape(PAGE + 1, PAGE + 1), (2, 2, Some(0)));
    assert_eq!(vmap.shape(4095 * PAGE, PAGE), (4095, 1, Some(0)));
    assert_eq!(vmap.shape(4096 * PAGE, PAGE), (4096, 512, Some(0)));
    assert_eq!(vmap.shape(4096 * PAGE, 1024 * PAGE), (4096, 1024, Some(0)));
    assert_eq!(vmap.shape(huge - 1, PAGE), (huge / PAGE, 512, Some(0)));
    assert_eq!(vmap.shape(huge, PAGE), (huge / PAGE, 512, Some(1)));
    assert_eq!([huge - 1, huge].map(|bytes| vmap.is_plain(bytes, PAGE)), [true, false]);
    assert_eq!(vmap.shape((GIANT - 1) * PAGE, PAGE), (GIANT - 1, 512, Some(1)));
    assert_eq!(vmap.shape(GIANT * PAGE, PAGE), (GIANT, 1, None));
    assert_eq!(vmap.shape(PAGE, (GIANT - 1) * PAGE), (1, GIANT - 1, Some(0)));
    assert_eq!(vmap.shape(PAGE, GIANT * PAGE), (1, GIANT, None));
    assert_eq!(vmap.shape(usize::MAX, PAGE).2, None);
    world.set(Id::HugeBytes, 0);
    assert_eq!(vmap.shape((GIANT - 1) * PAGE, PAGE).2, Some(0));
    world.areas.split();
    for (index, home) in [0, 1, 2, 3, 0, 1].into_iter().enumerate() {
        HERE.set(index);
        assert_eq!(vmap.shape(PAGE, PAGE).2, Some(home << HOME_SHIFT));
    }
    HERE.set(0);
}

/// The peak is looked at whenever what is in use grows.
#[test]
fn growth_is_a_peak() {
    let (world, _) = World::with_free(3000);
    let (vmap, board) = (world.vmap(), world.cache.sets.board());
    let peak = |body: &dyn Fn()| {
        vmap.fold(0, &vmap.space(0).state.lock());
        board.set(Level::TakenPeak, 0);
        body();
        board.level(Level::TakenPeak) as usize / PAGE
    };
    let area = world.area(100);
    assert_eq!(peak(&|| assert!(vmap.resize(&area, 2000 * PAGE))), 2000);
    let area = vmap.find(vmap.windows.address(area.pfn)).unwrap();
    assert_eq!(peak(&|| assert!(vmap.resize(&area, 1000 * PAGE))), 0);
    assert_eq!(peak(&|| _ = world.area(2000)), 3000);
    assert_eq!(peak(&|| _ = vmap.alloc(600 << 20, PAGE)), 3000 + (600 << 20) / PAGE);
}
