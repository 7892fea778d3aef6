//! Spaces: their numbers, how their windows get longer, and what goes from one to another or to a zone.

use super::*;
use crate::cache::front;
use crate::page::Kind;
use crate::stat::BadPointer::{Double, Foreign, Interior};
use crate::stat::board::FIRST_FRONT;
use crate::vmap::Shown;
use crate::vmap::space::{HOME, HUGE, MOVED, Space, State};

#[test]
fn spaces_have_numbers() {
    let homes = [0, 1, 2, 3].map(|home| home << HOME_SHIFT);
    assert_eq!(homes.map(Space::number), [0, 2, 3, 4]);
    assert_eq!([HUGE, HUGE | MOVED, MOVED, GUARD, GUARD | HUGE].map(Space::number), [1, 1, 0, 0, 1]);
    assert_eq!(Space::number(HOME | MOVED | GUARD), 4);
    let others = |flags: u32| Space::others(flags).collect::<Vec<_>>();
    assert_eq!(others(0), [8, 16, 24, HUGE]);
    assert_eq!(others(16), [0, 8, 24, HUGE]);
    assert_eq!(others(HUGE), homes);
    assert_eq!(others(u32::MAX), [0, 8, 16, 24, HUGE]);
    assert_eq!(
        [0, 8, HUGE, HUGE | MOVED].map(Space::paging),
        [Paging::Small, Paging::Small, Paging::Huge, Paging::Huge]
    );
}

/// The free runs of a space.
fn runs(state: &State, windows: &Windows) -> Vec<(Pfn, usize)> {
    let mut all = Vec::new();
    state.tree.verify(windows, &mut |at, pages| all.push((at, pages)));
    all
}

/// Takes what is behind: free, or what the newest window gets behind its end.
#[test]
fn a_space_takes_what_is_behind() {
    let world = World::new();
    let (windows, board) = (&*world.windows, board());
    let space = Space::new();
    let mut state = space.state.lock();
    let first = state.grow(windows, board, Paging::Small, 20, 1).unwrap();
    assert_eq!((state.opened, runs(&state, windows)), (128, Vec::from([(first.add(20), 108)])));
    let mapped = || board.level(Level::Mapped) as usize / PAGE;
    let before = mapped();
    // A part of a free run; where none begins, or it is too short and in the middle.
    assert!(state.take_behind(windows, board, first.add(20), 10));
    assert!(!state.take_behind(windows, board, first.add(31), 2));
    assert!(state.tree.take_at(windows, first.add(30), 50));
    state.tree.insert(windows, first.add(40), 5);
    for pages in [6, 100] {
        assert!(!state.take_behind(windows, board, first.add(40), pages));
    }
    assert!(!state.take_behind(windows, board, first.add(30), 1));
    assert_eq!((mapped(), state.opened), (before, 128));
    assert_eq!(runs(&state, windows), [(first.add(40), 5), (first.add(80), 48)]);
    assert!(state.take_behind(windows, board, first.add(40), 5));
    // The last one goes on behind the end: by what is missing, or a step; then all of it, and from the end itself.
    assert!(state.take_behind(windows, board, first.add(80), 50));
    assert_eq!((mapped() - before, state.opened), (128, 256));
    assert_eq!(runs(&state, windows), [(first.add(130), 126)]);
    assert!(state.take_behind(windows, board, first.add(130), 126));
    assert_eq!((mapped() - before, runs(&state, windows).len()), (128, 0));
    assert!(state.take_behind(windows, board, first.add(256), 1000));
    assert_eq!((mapped() - before, state.opened, runs(&state, windows).len()), (1128, 1256, 0));
    // Refused.
    let end = first.add(1256);
    let (taken, seen) = watched(|_| NO, || state.take_behind(windows, board, end, 1));
    assert!(!taken && !seen.is_empty() && state.opened == 1256);
    // An older window is as long as it is.
    let newer = windows.reserve(board, Owner::Areas(Paging::Small), 10, 10).unwrap().0;
    let other = Space::new();
    let mut none = other.state.lock();
    assert!(!none.take_behind(windows, board, newer.add(10), 1));
    let second = none.grow(windows, board, Paging::Small, 128, 1).unwrap();
    let (taken, seen) = watched(nothing, || none.take_behind(windows, board, newer.add(10), 1));
    assert!(!taken && seen.is_empty());
    assert!(none.take_behind(windows, board, second.add(128), 1));
}

/// More memory: behind the last free run of the newest window, as it is aligned; a new window where that cannot be.
#[test]
fn a_space_grows_by_what_is_missing() {
    let world = World::new();
    let (windows, board) = (&*world.windows, board());
    let space = Space::new();
    let mut state = space.state.lock();
    let first = state.grow(windows, board, Paging::Small, 100, 1).unwrap();
    assert_eq!((first.0 as usize % 2048, state.opened), (0, 128));
    // | 100 | 28 free |: two more pages, aligned to 64; and as many as fit just so.
    assert_eq!(state.grow(windows, board, Paging::Small, 64, 64), Some(first.add(128)));
    assert_eq!((state.opened, runs(&state, windows)), (256, Vec::from([(first.add(100), 28), (first.add(192), 64)])));
    let (at, seen) = watched(nothing, || state.grow(windows, board, Paging::Small, 64, 64));
    assert_eq!((at, seen.len(), state.opened), (Some(first.add(192)), 0, 256));
    assert_eq!(state.grow(windows, board, Paging::Small, 300, 1), Some(first.add(256)));
    assert_eq!((state.opened, runs(&state, windows)), (556, Vec::from([(first.add(100), 28)])));
    // Somebody is in the way: a window elsewhere, with a run that is aligned to more than windows are.
    let wall = sys::map(windows.address(first) + 556 * PAGE, PAGE, Access::None).unwrap();
    assert_eq!(wall, windows.address(first) + 556 * PAGE);
    let next = state.grow(windows, board, Paging::Small, 10, 4096).unwrap();
    assert!(!next.same_window(first) && (next.0 as usize).is_multiple_of(4096));
    assert_eq!(state.opened, 556 + 10 + 2048);
    assert_eq!(runs(&state, windows)[1..], [(Pfn(next.0 - 2048), 2048)]);
    assert_eq!(state.grow(windows, board, Paging::Small, 5, 1), Some(next.add(10)));
    unsafe { sys::unmap(wall, PAGE) }.unwrap();
    let (none, _) = watched(|_| NO, || state.grow(windows, board, Paging::Small, 5000, 1));
    assert_eq!(none, None);
}

/// A dirty run with free pages beside it: the longest that is enough with those, as many of them behind as there are.
#[test]
fn dirty_runs_are_made_longer() {
    let world = World::new();
    let (windows, board) = (&*world.windows, board());
    // Free pages before, dirty ones, free ones behind; what is wanted; where it begins and how many of it were dirty.
    let cases = [
        (10, 20, 30, 61, None),
        (10, 20, 30, 60, Some((0, 20))),
        (10, 20, 30, 59, Some((1, 20))),
        (10, 20, 30, 51, Some((9, 20))),
        (10, 20, 30, 50, Some((10, 20))),
        (10, 20, 30, 21, Some((10, 20))),
        (10, 20, 30, 20, Some((10, 20))),
        (10, 20, 30, 7, Some((10, 7))),
        (0, 20, 30, 50, Some((0, 20))),
        (0, 20, 30, 51, None),
        (10, 20, 0, 30, Some((0, 20))),
        (10, 20, 0, 25, Some((5, 20))),
        (10, 20, 0, 31, None),
        (0, 20, 0, 21, None),
    ];
    for (before, dirty, behind, wanted, expected) in cases {
        let space = Space::new();
        let mut state = space.state.lock();
        let (first, _) = windows.reserve(board, Owner::Areas(Paging::Small), 200, 200).unwrap();
        for (at, pages) in [(0, before), (before + dirty, behind)] {
            if pages > 0 {
                state.tree.insert(windows, first.add(at), pages);
            }
        }
        assert_eq!(state.take_mixed(windows, 3), None);
        state.dirty.insert(windows, first.add(before), dirty, 0);
        let got = state.take_mixed(windows, wanted);
        assert_eq!(got, expected.map(|(at, dirty)| (first.add(at), dirty)), "{before} {dirty} {behind} {wanted}");
        // What is left of each.
        let all: usize = runs(&state, windows).iter().map(|run| run.1).sum();
        let mut left = 0;
        state.dirty.verify(windows, &mut |_, pages| left += pages);
        let (pages, of_them) = got.map_or((0, 0), |(_, of_them)| (wanted, of_them));
        assert_eq!((all, left), (before + behind + of_them - pages, dirty - of_them));
        // And where.
        let expected: Vec<_> = match got {
            None => [(0, before), (before + dirty, behind)].into_iter().filter(|run| run.1 > 0).collect(),
            Some((at, _)) => {
                let (at, end) = ((at.0 - first.0) as usize, (at.0 - first.0) as usize + pages);
                let after = end.max(before + dirty);
                [(0, at.min(before)), (after, before + dirty + behind - after)]
                    .into_iter()
                    .filter(|run| run.1 > 0)
                    .collect()
            }
        };
        let offsets: Vec<_> = runs(&state, windows).iter().map(|run| ((run.0.0 - first.0) as usize, run.1)).collect();
        assert_eq!(offsets, expected, "{before} {dirty} {behind} {wanted}");
    }
    // Of two that are enough the longer; at a window's end, where nothing is behind.
    let space = Space::new();
    let mut state = space.state.lock();
    let (first, _) = windows.reserve(board, Owner::Areas(Paging::Small), 200, 200).unwrap();
    for (at, dirty) in [(0, 20), (50, 25), (100, 22)] {
        state.dirty.insert(windows, first.add(at), dirty, 0);
        state.tree.insert(windows, first.add(at + dirty), 20);
    }
    assert_eq!(state.take_mixed(windows, 40), Some((first.add(50), 25)));
    state.dirty.insert(windows, first.add(170), 30, 0);
    state.tree.insert(windows, first.add(160), 10);
    assert_eq!(state.take_mixed(windows, 41), Some((first.add(100), 22)));
    assert_eq!(state.take_mixed(windows, 40), Some((first.add(160), 30)));
    assert_eq!(state.take_mixed(windows, 40), Some((first, 20)));
}

/// Where the system gives nothing more an area is of huge pages' space, or aligned only as was asked.
#[test]
fn without_more_memory_it_is_anothers() {
    let world = World::leaked();
    world.areas.split();
    world.set(Id::HugeBytes, PAGE);
    let vmap = world.vmap();
    vmap.free(&world.area(5000));
    vmap.purge(usize::MAX);
    world.set(Id::HugeBytes, 0);
    HERE.set(2);
    let no = |_: &Seen| NO;
    let (one, seen) = watched(no, || world.step(&[("areas", p(20)), ("area_alloc", 1)], || world.area(20)));
    assert!(one.flags == HUGE && !seen.is_empty());
    // Aligned as moves like it, if that is to be had.
    let rest = world.area(1);
    let big = |pages: usize| watched(no, || vmap.alloc(pages * PAGE, PAGE)).0.map(|fresh| fresh.address);
    let at = big(4096).expect("another's");
    assert_eq!(vmap.find(at).unwrap().flags, HUGE);
    assert_eq!(at, vmap.windows.address(one.pfn) + 20 * PAGE);
    vmap.free(&vmap.find(at).unwrap());
    let _ = rest;
    // Its own, too, only as was asked.
    world.set(Id::HugeBytes, PAGE);
    vmap.purge(usize::MAX);
    assert_eq!([4500, 5000].map(big), [Some(at), None]);
    HERE.set(0);
    vmap.verify();
}

/// Before a space asks for more memory it takes a free run of another one; where none is long enough all of them, which merge.
#[test]
fn free_runs_of_other_spaces_come_in_before_memory_does() {
    let (world, first) = World::with_free(4000);
    let vmap = world.vmap();
    let opened = || [0, 8, 16].map(|flags| vmap.space(flags).state.lock().opened);
    let all = opened()[0];
    HERE.set(1);
    // While spaces are one there is no other.
    let one = world.area(20);
    assert_eq!((one.flags, opened()), (0, [all, 0, 0]));
    world.areas.split();
    let fresh = |pages: usize| {
        let (area, seen) =
            watched(nothing, || world.step(&[("areas", p(pages)), ("area_alloc", 1)], || world.area(pages)));
        assert!(seen.is_empty(), "memory was asked for: {seen:?}");
        area
    };
    let two = fresh(100);
    assert_eq!((two.pfn, two.flags, opened()), (first.add(20), 8, [all - 100, 100, 0]));
    HERE.set(2);
    let three = fresh(200);
    assert_eq!((three.pfn, three.flags, opened()), (first.add(120), 16, [all - 300, 100, 200]));
    // Each is clean, in its own space: 20 │ 100 │ 200 │ the rest. One that its own space has comes from nowhere else.
    [one, two, three].iter().for_each(|area| _ = vmap.free(area));
    vmap.purge(usize::MAX);
    assert_eq!((fresh(150).pfn, opened()), (first.add(120), [all - 300, 100, 200]));
    HERE.set(1);
    assert_eq!((fresh(90).pfn, opened()), (first.add(20), [all - 300, 100, 200]));
    // | 20 | 90 busy, 10 | 150 busy, 50 | the rest |, all of which is in use; then 20, 10 and 50, of three spaces.
    HERE.set(0);
    let rest = vmap.space(0).state.lock().tree.largest(vmap.windows);
    fresh(rest);
    let busy: Vec<_> = [20, 120].map(|page| vmap.find(vmap.windows.address(first.add(page))).unwrap()).into();
    busy.iter().for_each(|area| _ = vmap.free(area));
    vmap.purge(usize::MAX);
    HERE.set(3);
    let merged = fresh(320);
    assert_eq!((merged.pfn, merged.flags, opened()), (first, 3 << HOME_SHIFT, [all - 320, 0, 0]));
    HERE.set(0);
    vmap.verify();
    // None of huge pages, nor for them.
    world.set(Id::HugeBytes, 50 * PAGE);
    let huge = world.area(60);
    assert_eq!(huge.flags, HUGE);
    vmap.free(&huge);
    vmap.purge(usize::MAX);
    assert_ne!(world.area(40).flags, HUGE);
    vmap.verify();
}

/// A purge begins with the space that has most: what is used again and again by one stays, where another has pieces that nobody takes.
#[test]
fn a_purge_takes_of_the_space_that_has_most() {
    let (world, _) = World::with_free(4000);
    let vmap = world.vmap();
    world.areas.split();
    let again = world.area(1000);
    HERE.set(2);
    let pieces: Vec<_> = (0..30).map(|_| (world.area(40), world.area(1))).collect();
    pieces.iter().for_each(|(piece, _)| _ = vmap.free(piece));
    vmap.free(&again);
    let dirty = || [0, 16].map(|flags| vmap.space(flags).state.lock().dirty.pages());
    assert_eq!(dirty(), [1000, 1200]);
    vmap.purge(400 * PAGE);
    assert_eq!(dirty(), [1000, 800]);
    // (Then that is the other, and of both what is wanted.)
    vmap.purge(1100 * PAGE);
    assert_eq!(dirty(), [0, 680]);
    // Huge pages last.
    world.set(Id::HugeBytes, 2000 * PAGE);
    let huge = world.area(2048);
    assert_eq!(huge.flags, HUGE);
    vmap.free(&huge);
    vmap.purge(600 * PAGE);
    assert_eq!((dirty(), vmap.space(HUGE).state.lock().dirty.pages()), ([0, 80], 2048));
    vmap.purge(100 * PAGE);
    assert_eq!(dirty(), [0, 0]);
    assert!(vmap.space(HUGE).state.lock().dirty.pages() < 2048);
    HERE.set(0);
    vmap.verify();
}

/// What a zone is given leaves the areas for good, and what it gives comes in.
#[test]
fn pages_change_hands() {
    let (world, first) = World::with_free(4096 + 70);
    let vmap = world.vmap();
    let opened = || vmap.space(0).state.lock().opened;
    let all = opened();
    let mixed = || vmap.windows.blocks_of(0).count();
    assert_eq!(mixed(), 0);
    // A block; of what is shorter the largest by eighths.
    let given = world.step(&[], || vmap.hand_over(8));
    assert_eq!(given, Some((first, 512)));
    assert_eq!((opened(), vmap.windows.desc(first).kind(), mixed() > 0), (all - 512, Kind::None, true));
    assert_eq!(vmap.hand_over(1024), Some((first.add(1024), 1024)));
    // (Aligned like itself, of the runs that are long enough wherever they lie, or else of one that lies well.)
    let some = [512, 512, 512, 512, 8, 1].map(|least| vmap.hand_over(least));
    let offsets = some.map(|some| some.map(|(at, pages)| ((at.0 - first.0) as usize, pages)));
    let expected = [(2048, 512), (2560, 512), (3072, 512), (512, 512), (3584, 512), (4096, 64)].map(Some);
    assert_eq!(offsets, expected);
    let given = 512 + 1024 + 5 * 512 + 64;
    assert_eq!(opened(), all - given);
    let small = World::leaked();
    small.set(Id::HugeBytes, 0);
    let wall = small.area(108);
    assert_eq!(small.vmap().hand_over(4), Some((wall.pfn.add(112), 8)));
    assert_eq!(small.vmap().hand_over(9), None);
    // Back: zero, or with what was in them.
    let before = vmap.verify();
    world.step(&[], || vmap.take_over(first, 512, true));
    assert_eq!((vmap.verify() - before, opened()), (512, all - given + 512));
    assert_eq!(vmap.windows.desc(first).kind(), Kind::Run);
    // (What they were is over, on every page.)
    (1024..2048).for_each(|page| vmap.windows.desc(first.add(page)).set(Kind::Pages, 0));
    world.step(&[("lazy", p(1024))], || vmap.take_over(first.add(1024), 1024, false));
    assert_eq!(vmap.windows.desc(first.add(1024)).kind(), Kind::Dirty);
    assert!((1025..2047).all(|page| vmap.windows.desc(first.add(page)).kind() == Kind::None));
    // What is dirty, aligned like itself.
    let changes = [("lazy", -p(64)), ("untold", -p(64)), ("area_reuse", 1), ("area_free", 1)];
    let before = opened();
    let given = world.step(&changes, || vmap.hand_over_dirty(64, true));
    assert_eq!((given, opened()), (Some(first.add(1024)), before - 64));
    assert_eq!(vmap.windows.desc(first.add(1024)).kind(), Kind::None);
    assert_eq!(world.step(&[], || vmap.hand_over_dirty(1024, true)), None);
    // Of windows of huge pages only where memory is scarce: they ask for none from then on.
    let other = World::leaked();
    other.set(Id::HugeBytes, PAGE);
    let vmap = other.vmap();
    let area = other.area(512);
    vmap.free(&area);
    assert_eq!(other.step(&[], || (vmap.hand_over_dirty(512, false), vmap.hand_over_block(8, false))), (None, None));
    assert!(vmap.windows.blocks_of(0).next().is_none());
    let opened = || vmap.space(HUGE).state.lock().opened;
    let before = opened();
    let changes = [("lazy", -p(512)), ("untold", -p(512)), ("area_reuse", 1), ("area_free", 1)];
    let (given, seen) = watched(nothing, || other.step(&changes, || vmap.hand_over_dirty(512, true)));
    assert_eq!((given, before - opened()), (Some(area.pfn), 512));
    let advised: Vec<_> = seen.iter().map(|seen| (seen.call, seen.args)).collect();
    let (from, end) = (vmap.windows.address(area.pfn), vmap.windows.address(vmap.windows.end(area.pfn)));
    let [at, bytes, advice, ..] = advised[0].1;
    assert_eq!((advised[0].0, at, at + bytes, advice), (Call::Advise, from, end, Advice::NoHuge as usize));
    assert_eq!(advised.len(), 1);
    // Nor what is mapped behind it.
    let (_, seen) = watched(nothing, || other.area(8192));
    let advice: Vec<_> = seen.iter().filter(|seen| seen.call == Call::Advise).map(|seen| seen.args[2]).collect();
    assert!(!advice.is_empty() && advice.iter().all(|&advice| advice == Advice::NoHuge as usize), "{advice:?}");
    let next = other.area(512);
    vmap.free(&next);
    let (given, seen) = watched(nothing, || vmap.hand_over_dirty(512, true));
    assert_eq!((given.is_some(), seen.len()), (true, 0), "once");
    assert!(vmap.windows.blocks_of(0).next().is_some());
    // Taken over, it is small.
    vmap.take_over(area.pfn, 512, false);
    other.set(Id::HugeBytes, 0);
    assert_eq!(vmap.reuse(512 * PAGE, PAGE).map(|fresh| fresh.address), Some(vmap.windows.address(area.pfn)));
    let another = World::leaked();
    let (at, _) = another.windows.reserve(another.cache.sets.board(), Owner::Areas(Paging::Small), 10, 10).unwrap();
    another.vmap().take_over(at, 10, true);
    assert!(another.windows.blocks_of(0).next().is_some(), "a zone's pages may be there");
}

/// A space lends a piece with its dirt and its debts; only of its own kind.
#[test]
fn a_piece_takes_its_debts_along() {
    let (world, first) = World::with_free(4000);
    let vmap = world.vmap();
    vmap.free(&world.area(1000));
    HERE.set(3);
    let home = 3 << HOME_SHIFT;
    // While spaces are one there is no other.
    world.step(&[], || assert!(vmap.reuse(1001 * PAGE, PAGE).is_none()));
    world.areas.split();
    let untold = |flags: u32| world.cache.sets.board().spaces[Space::number(flags)].differential.load(Relaxed) as i64;
    let opened = |flags: u32| vmap.space(flags).state.lock().opened;
    let (all, owed) = (opened(0), untold(0));
    world.step(&[], || {
        assert!(vmap.reuse(1001 * PAGE, PAGE).is_none());
        assert!(vmap.reuse(20 * PAGE, 2 * PAGE).is_none());
        world.set(Id::HugeBytes, 20 * PAGE);
        assert!(vmap.reuse(20 * PAGE, PAGE).is_none());
        world.set(Id::HugeBytes, 0);
    });
    assert_eq!((opened(0), untold(0)), (all, owed));
    // (Who is in it is not waited for.)
    let held = vmap.space(0).state.lock();
    assert!(vmap.reuse(20 * PAGE, PAGE).is_none());
    drop(held);
    // (Of what it owes then it tells most.)
    let changes = [("areas", p(20)), ("lazy", -p(20)), ("untold", -p(20 + 364)), ("area_reuse", 1)];
    let one = world.step(&changes, || world.area(20));
    assert_eq!((one.flags, one.pfn), (home, first.add(488)));
    assert_eq!((opened(0), opened(home)), (all - 512, 512));
    assert_eq!((untold(0), untold(home)), (owed - p(512), p(128)));
    // What is longer than what is left goes back to where it was.
    world.step(&[], || assert!(vmap.reuse(493 * PAGE, PAGE).is_none()));
    assert_eq!((opened(0), opened(home), untold(0)), (all - 512, 512, owed - p(512)));
    // Just as long as it is wanted: below a piece, and above.
    let reused = |pages: usize, tells: i64| {
        [("areas", p(pages)), ("lazy", -p(pages)), ("untold", -p(pages) + tells), ("area_reuse", 1)]
    };
    let two = world.step(&reused(492, 0), || world.area(492));
    let three = world.step(&reused(488, 0), || world.area(488));
    assert_eq!((two.pfn, three.pfn, three.flags), (first.add(508), first, home));
    assert_eq!((opened(0), opened(home)), (all - 1000, 1000));
    HERE.set(0);
}

/// Everything that there is, as it is shown.
#[test]
fn each_area_is_shown() {
    let (world, _) = World::with_free(4000);
    let vmap = world.vmap();
    let shown = || {
        let mut all = Vec::new();
        vmap.each(|area| all.push(area));
        all
    };
    assert_eq!(shown(), []);
    let [one, two, front] = [20, 30, 40].map(|pages| world.area(pages));
    let moved = world.area(600);
    let moved = vmap.find(unsafe { vmap.relocate(&moved, 700 * PAGE) }.expect("moved")).unwrap();
    let guarded = world.found(vmap.alloc_guarded(50 * PAGE, PAGE));
    let lazy = world.found(vmap.alloc_guarded(55 * PAGE, PAGE));
    let giant = world.found(vmap.alloc(600 << 20, PAGE));
    world.set(Id::HugeBytes, PAGE);
    let huge = world.area(10);
    world.set(Id::HugeBytes, 0);
    vmap.free(&two);
    vmap.free(&lazy);
    vmap.windows.desc(front.pfn).set(Kind::Front, 0);
    let plain = |area: &Area, pages: usize| Shown {
        address: vmap.windows.address(area.pfn),
        bytes: pages * PAGE,
        cached: false,
        lazy: false,
        huge: false,
        moved: false,
        guard: false,
        giant: false,
    };
    let mut expected = [
        plain(&one, 20),
        Shown { lazy: true, ..plain(&two, 30) },
        Shown { cached: true, ..plain(&front, 40) },
        Shown { moved: true, ..plain(&moved, 700) },
        Shown { guard: true, ..plain(&guarded, 51) },
        Shown { guard: true, lazy: true, ..plain(&lazy, 56) },
        Shown { giant: true, ..plain(&giant, (600 << 20) / PAGE) },
        Shown { huge: true, ..plain(&huge, 10) },
    ];
    let mut all = shown();
    all.sort_by_key(|area| area.address);
    expected.sort_by_key(|area| area.address);
    assert_eq!(all, expected);
    // A word that changes meanwhile: a step of one page, and what is behind it is found.
    let desc = vmap.windows.desc(one.pfn);
    for (kind, len) in [(Kind::Area, 1), (Kind::None, 20), (Kind::Pages, 20)] {
        desc.set(kind, 0);
        desc.set_len(len);
        vmap.windows.desc(one.pfn.add(1)).set(Kind::Lazy, 0);
        vmap.windows.desc(one.pfn.add(1)).set_len(1);
        assert_eq!(shown().len(), if kind == Kind::Area { 9 } else { 8 });
        assert!(shown().iter().any(|area| area.address == vmap.windows.address(one.pfn.add(1))));
    }
    vmap.windows.desc(one.pfn.add(1)).set(Kind::None, 0);
    for len in [0, 20, 4000, usize::MAX >> 32] {
        desc.set(Kind::Run, 0);
        desc.set_len(len);
        let others = shown().len();
        assert_eq!(others, if len <= 20 { 7 } else { 2 }, "{len}");
    }
    desc.set(Kind::Area, 0);
    desc.set_len(20);
    vmap.verify();
}

/// What a CPU's front had goes among the others, once.
#[test]
fn a_front_lets_go_once() {
    let (world, _) = World::with_free(4000);
    let vmap = world.vmap();
    let area = world.area(40);
    let (at, class) = (vmap.windows.address(area.pfn), front::holds(40));
    let strange = [(at, Double), (PAGE, Foreign), (at + 16, Interior), (at + PAGE, Double)];
    for (at, wrong) in strange {
        assert_eq!(vmap.front_bytes(at, class), 0);
        assert_eq!(world.step(&[], || vmap.let_go(at, class)), Err(wrong));
    }
    vmap.windows.desc(area.pfn).set(Kind::Front, 0);
    assert_eq!((vmap.front_bytes(at, class), vmap.find(at)), (40 * PAGE, None));
    assert_eq!(world.step(&[], || vmap.free(&area)), Freed::Not);
    let gone = world.step(&[("areas", -p(40)), ("lazy", p(40)), ("untold", p(40))], || vmap.let_go(at, class));
    assert_eq!((gone, world.step(&[], || vmap.let_go(at, class))), (Ok(()), Err(Double)));
    // One that looks as if it were in use, of its class alone.
    let area = world.area(front::UNMARKED);
    let (at, class) = (vmap.windows.address(area.pfn), front::holds(front::UNMARKED));
    for other in [FIRST_FRONT, class - 1, class + 1] {
        assert_eq!((vmap.front_bytes(at, other), world.step(&[], || vmap.let_go(at, other))), (0, Err(Double)));
    }
    assert_eq!(vmap.front_bytes(at, class), front::UNMARKED * PAGE);
    let bytes = p(front::UNMARKED);
    let gone = world.step(&[("areas", -bytes), ("lazy", bytes), ("untold", bytes)], || vmap.let_go(at, class));
    assert_eq!((gone, world.step(&[], || vmap.let_go(at, class))), (Ok(()), Err(Double)));
    // With a guard it is on a list, as lazy as others.
    let area = world.found(vmap.alloc_guarded(40 * PAGE, PAGE));
    let at = vmap.windows.address(area.pfn);
    vmap.windows.desc(area.pfn).set(Kind::Front, GUARD);
    world.step(&[("areas", -p(41)), ("lazy", p(41)), ("untold", p(41))], || {
        vmap.let_go(at, front::holds(41)).unwrap();
    });
    assert!(vmap.windows.desc(area.pfn).is(Kind::Lazy, GUARD));
    assert_eq!(vmap.alloc_guarded(40 * PAGE, PAGE).unwrap().address, at);
}
