//! Areas that grow over what is behind them, shrink, and move.

use super::*;
use crate::vmap::space::{HUGE, MOVED};

/// So many busy pages, so many dirty ones, and so on in turn; the last of an even number is dirty with free pages behind it.
fn rows<const N: usize>(lens: [usize; N]) -> (&'static World, Pfn, [Area; N]) {
    let (world, first) = World::with_free(6000);
    let areas = lens.map(|pages| world.area(pages));
    for area in areas.iter().skip(1).step_by(2) {
        world.vmap().free(area);
    }
    (world, first, areas)
}

fn again(world: &World, area: &Area) -> Area {
    world.vmap().find(world.vmap().windows.address(area.pfn)).expect("it is there")
}

#[test]
fn areas_grow_over_what_is_behind_them() {
    let (world, first, [one, _, two, _]) = rows([40, 20, 30, 10]);
    let vmap = world.vmap();
    let behind = |area: &Area, pages: usize| vmap.fresh_behind(area, pages * PAGE);
    // A look: pages that have no memory; none where somebody is in the way.
    assert_eq!([40, 41, 50, 60].map(|pages| behind(&one, pages)), [Some(0); 4]);
    assert_eq!([61, 100, 39].map(|pages| behind(&one, pages)), [None; 3]);
    assert_eq!([30, 40, 41, 60].map(|pages| behind(&two, pages)), [Some(0), Some(0), Some(1), Some(20)]);
    // Up to half a window, more than there is.
    assert_eq!(behind(&two, WINDOW_PAGES / 2), Some(WINDOW_PAGES / 2 - 40));
    assert_eq!(behind(&two, WINDOW_PAGES / 2 + 1), None);
    let resize = |area: &Area, pages: usize| vmap.resize(area, pages * PAGE);
    world.step(&[], || assert_eq!([40, 61, 100].map(|pages| resize(&one, pages)), [true, false, false]));
    world.step(&[], || assert!(vmap.resize(&one, 40 * PAGE - 1)));
    let grown = |dirty: i64| [("areas", dirty), ("lazy", -dirty), ("untold", -dirty), ("area_grow", 1)];
    world.step(&grown(p(15)), || assert!(resize(&one, 55)));
    let one = again(world, &one);
    assert_eq!(one.bytes, 55 * PAGE);
    world.step(&grown(p(5)), || assert!(vmap.resize(&one, 60 * PAGE - 3)));
    // Dirty ones, and free ones.
    let changes = [("areas", p(25)), ("lazy", -p(10)), ("untold", -p(10)), ("area_grow", 1)];
    world.step(&changes, || assert!(resize(&two, 55)));
    let two = again(world, &two);
    // Smaller: what is cut off is dirty.
    world
        .step(&[("areas", -p(25)), ("lazy", p(25)), ("untold", p(25)), ("area_grow", 1)], || assert!(resize(&two, 30)));
    let two = again(world, &two);
    assert_eq!((two.bytes, two.pfn), (30 * PAGE, first.add(60)));
    let cut = vmap.windows.desc(first.add(90));
    assert_eq!((cut.kind(), cut.len()), (crate::page::Kind::Dirty, 25));
    // What lies there is another space's: not ours.
    let tag = cut.tag.load(Relaxed);
    for kind in [crate::page::Kind::Dirty, crate::page::Kind::Lazy] {
        cut.set(kind, HUGE);
        assert_eq!(behind(&two, 31), None);
        assert!(!resize(&two, 31));
    }
    cut.set(crate::page::Kind::Lazy, 0);
    assert_eq!(behind(&two, 31), Some(0));
    // (Lazy, in a purge's hand: it is on no queue.)
    world.areas.flights.lock();
    assert!(!resize(&two, 31));
    cut.tag.store(tag, Relaxed);
    assert_eq!([behind(&two, 55), behind(&two, 56)], [Some(0), Some(1)]);
    vmap.verify();
}

/// Free pages, and dirty ones behind those.
#[test]
fn areas_grow_over_all_that_is_behind_them() {
    let (world, _, [one, _, dirty, _]) = rows([40, 20, 30, 9]);
    let vmap = world.vmap();
    vmap.purge(usize::MAX);
    vmap.free(&dirty);
    let behind = [60, 61, 90, 99].map(|pages| vmap.fresh_behind(&one, pages * PAGE));
    assert_eq!(behind, [Some(20), Some(0), Some(20), Some(29)]);
    let changes = [("areas", p(45)), ("lazy", -p(25)), ("untold", -p(25)), ("area_grow", 1)];
    world.step(&changes, || assert!(vmap.resize(&one, 85 * PAGE)));
}

/// What is in the way of a part is in the way of all: what is free stays free.
#[test]
fn areas_do_not_grow_by_a_part() {
    let (world, _, [one, _, _wall]) = rows([40, 20, 9]);
    let vmap = world.vmap();
    vmap.purge(usize::MAX);
    world.step(&[], || assert!(!vmap.resize(&one, 61 * PAGE)));
    world.step(&[("areas", p(20)), ("area_grow", 1)], || assert!(vmap.resize(&one, 60 * PAGE)));
}

/// What is behind it may be of its space, whether it was moved or not, and of no other.
#[test]
fn areas_grow_in_their_spaces() {
    let grown = [("areas", p(15)), ("lazy", -p(15)), ("untold", -p(15)), ("area_grow", 1)];
    let world = World::leaked();
    let vmap = world.vmap();
    world.set(Id::HugeBytes, PAGE);
    let [one, two, _wall] = [40, 20, 9].map(|pages| world.area(pages));
    vmap.free(&two);
    assert_eq!((one.flags, vmap.fresh_behind(&one, 55 * PAGE)), (HUGE, Some(0)));
    world.step(&grown, || assert!(vmap.resize(&one, 55 * PAGE)));
    let (world, _) = World::with_free(9000);
    let vmap = world.vmap();
    let [low, two, _wall] = [700, 20, 9].map(|pages| world.area(pages));
    let source = world.area(600);
    vmap.free(&low);
    vmap.purge(usize::MAX);
    let one = vmap.find(unsafe { vmap.relocate(&source, 700 * PAGE) }.expect("moved")).unwrap();
    assert_eq!((one.pfn, one.flags), (low.pfn, MOVED));
    vmap.free(&two);
    assert_eq!(vmap.fresh_behind(&one, 715 * PAGE), Some(0));
    world.step(&grown, || assert!(vmap.resize(&one, 715 * PAGE)));
    assert_eq!(again(world, &one).flags, MOVED);
}

/// What a purge has gathered and nobody has released yet.
#[test]
fn areas_grow_over_what_is_pending() {
    // | 512 dirty | 10 | 40 | 40 dirty | 10 |
    for (more, left) in [(20_usize, 20), (40, 0)] {
        let (world, first) = World::with_free(6000);
        let vmap = world.vmap();
        let [low, _wall, one, behind, _end] = [512, 10, 40, 40, 10].map(|pages| world.area(pages));
        vmap.free(&low);
        vmap.free(&behind);
        assert_eq!(vmap.purge_first_of_all(PAGE), 512 * PAGE);
        assert_eq!(world.areas.backlog(), 40);
        // (Not over more than is there.)
        world.step(&[], || assert!(!vmap.resize(&one, 81 * PAGE)));
        let (grown, rest) = (p(more), p(left));
        let changes = [("areas", grown), ("lazy", -grown), ("untold", rest), ("backlog", -40), ("area_grow", 1)];
        let changes = &changes.into_iter().filter(|(_, change)| *change != 0).collect::<Vec<_>>();
        world.step(changes, || assert!(vmap.resize(&one, (40 + more) * PAGE)));
        let at = vmap.windows.desc(first.add(562 + more));
        let kind = if left > 0 { crate::page::Kind::Dirty } else { crate::page::Kind::Area };
        assert_eq!(at.kind(), kind);
        assert!(left == 0 || at.len() == left);
        assert_eq!(vmap.purge(usize::MAX), left * PAGE);
        vmap.verify();
        // Nothing inside says any more what it was.
        vmap.free(&again(world, &one));
        vmap.verify();
    }
}

/// A part of what was to come is given back to where it was.
#[test]
fn what_cannot_grow_is_as_it_was() {
    let world = World::leaked();
    world.set(Id::HugeBytes, 0);
    let vmap = world.vmap();
    // The only window, to its end.
    let one = world.area(100);
    let rest = world.area(28);
    vmap.free(&rest);
    let mapped = world.exact(Level::Mapped);
    let (grown, seen) = watched(|_| NO, || world.step(&[], || vmap.resize(&one, 200 * PAGE)));
    assert!(!grown && !seen.is_empty());
    assert_eq!((vmap.fresh_behind(&one, 200 * PAGE), world.exact(Level::Mapped)), (Some(72), mapped));
    // Just as much as is missing, or a step.
    assert!(vmap.resize(&one, 200 * PAGE));
    assert_eq!(world.exact(Level::Mapped) - mapped, 128 * PAGE);
    assert_eq!(vmap.find(vmap.windows.address(one.pfn)).unwrap().bytes, 200 * PAGE);
    vmap.verify();
}

/// To half a window and no further; and not over a window's end.
#[test]
fn areas_end_where_windows_do() {
    const GIANT: usize = WINDOW_PAGES / 2;
    let world = World::leaked();
    world.set(Id::HugeBytes, 0);
    let vmap = world.vmap();
    let small = world.area(10);
    assert!(!vmap.resize(&small, (GIANT + 1) * PAGE));
    assert!(vmap.resize(&small, GIANT * PAGE));
    let small = again(world, &small);
    assert_eq!(small.bytes, GIANT * PAGE);
    assert!(vmap.resize(&small, 10 * PAGE));
    vmap.purge(usize::MAX);
    // All of the window is in use, and then it is as long as it may be.
    let all = WINDOW_PAGES - (8 << 20) / PAGE;
    let big = world.area(GIANT - 512);
    let last = world.area(all - (GIANT - 512) - 512);
    let end = vmap.windows.end(last.pfn);
    assert!(last.pfn.add(last.bytes / PAGE) == end && !end.same_window(last.pfn), "{big:?} {last:?} {end:?}");
    assert!(!vmap.resize(&last, last.bytes + PAGE));
    assert_eq!(vmap.fresh_behind(&last, last.bytes + 5 * PAGE), Some(5));
    // Nor does a younger window get longer for it.
    let next = world.area(600);
    assert!(next.pfn.0 > end.0);
    world.step(&[], || assert!(!vmap.resize(&last, last.bytes + PAGE)));
    // What is cut off there is a run like others, and so is what is free.
    assert!(vmap.resize(&last, last.bytes - 50 * PAGE));
    let last = again(world, &last);
    assert!(!vmap.resize(&last, last.bytes + 51 * PAGE) && vmap.resize(&last, last.bytes + 20 * PAGE));
    vmap.verify();
    vmap.purge(usize::MAX);
    let last = again(world, &last);
    assert!(!vmap.resize(&last, last.bytes + 31 * PAGE) && vmap.resize(&last, last.bytes + 30 * PAGE));
    let last = again(world, &last);
    vmap.free(&last);
    vmap.purge(usize::MAX);
    vmap.verify();
}

/// Moves by page tables: what is moved, what is not, and what is counted.
#[test]
fn areas_move_when_they_are_long_enough() {
    let (world, _first) = World::with_free(30_000);
    let vmap = world.vmap();
    let threshold = 600;
    world.set(Id::MoveBytes, threshold * PAGE);
    let relocate = |area: &Area, pages: usize| unsafe { vmap.relocate(area, pages * PAGE) };
    let [short, long] = [threshold - 1, threshold].map(|pages| world.area(pages));
    let guarded = world.found(vmap.alloc_guarded(threshold * PAGE, PAGE));
    world.step(&[], || {
        assert_eq!(relocate(&short, 2000), None);
        assert_eq!(relocate(&guarded, 2000), None);
        assert_eq!([relocate(&long, threshold), relocate(&long, 10)], [None; 2]);
    });
    world.set(Id::MoveBytes, 0);
    world.step(&[], || assert_eq!(relocate(&long, 2000), None));
    world.set(Id::MoveBytes, threshold * PAGE);
    world.set(Id::MoveLimit, 0);
    world.step(&[], || assert_eq!(relocate(&long, 2000), None));
    world.set(Id::MoveLimit, 1);
    unsafe { (vmap.windows.address(long.pfn) as *mut usize).write(77) };
    let changes =
        [("areas", p(1400)), ("area_alloc", 1), ("area_free", 1), ("area_move", 1), ("moved", 1), ("mappings", 2)];
    let (at, seen) = watched(nothing, || world.step(&changes, || relocate(&long, 2000).expect("moved")));
    let calls: Vec<_> = seen.iter().map(|seen| (seen.call, seen.args[0], seen.args[1])).collect();
    let (from, bytes) = (vmap.windows.address(long.pfn), threshold * PAGE);
    assert_eq!(calls, [(Call::Remap, from, bytes), (Call::Map, from, bytes), (Call::Advise, from, bytes)]);
    assert_eq!(seen[2].args[2], Advice::NoHuge as usize);
    assert_eq!(unsafe { (at as *const usize).read() }, 77);
    let moved = vmap.find(at).unwrap();
    assert_eq!((moved.bytes, moved.flags & MOVED), (2000 * PAGE, MOVED));
    // As many as there may be. What was moved moves on, and is one still.
    let other = world.area(threshold);
    world.step(&[], || assert_eq!(relocate(&other, 2000), None));
    let all = vmap.find(at).unwrap();
    // Not cut into two, then: shorter by up to half it stays as it is.
    world.step(&[], || assert_eq!([1000, 999].map(|pages| vmap.resize(&all, pages * PAGE)), [true, false]));
    assert_eq!([600, 599, 0].map(|more| vmap.moves_on(&moved, (2000 + more) * PAGE)), [true, false, false]);
    assert!(!vmap.moves_on(&other, 9000 * PAGE));
    world.set(Id::MoveBytes, 0);
    assert!(!vmap.moves_on(&moved, 9000 * PAGE));
    world.set(Id::MoveBytes, threshold * PAGE);
    let changes = [("areas", p(1000)), ("area_alloc", 1), ("area_free", 1), ("area_move", 1)];
    let at = world.step(&changes, || relocate(&moved, 3000).expect("moved"));
    assert_eq!(unsafe { (at as *const usize).read() }, 77);
    let moved = vmap.find(at).unwrap();
    // Of two parts either is mapped afresh by itself.
    world.set(Id::MoveLimit, 2);
    let changes =
        [("areas", -p(1000)), ("lazy", p(1000)), ("untold", p(1000)), ("area_grow", 1), ("moved", 1), ("mappings", 2)];
    world.step(&changes, || assert!(vmap.resize(&moved, 2000 * PAGE)));
    let moved = vmap.find(at).unwrap();
    world.step(&[], || assert_eq!([1000, 999].map(|pages| vmap.resize(&moved, pages * PAGE)), [true, false]));
    // As a whole it serves who wants zeros, too, if it is just as long.
    vmap.free(&moved);
    assert!(vmap.alloc_zero(1999 * PAGE, PAGE, 0).unwrap().zero);
    let whole = vmap.alloc_zero(2000 * PAGE, PAGE, 0).unwrap();
    assert_eq!((whole.address, whole.zero), (at, false));
    let moved = vmap.find(at).unwrap();
    assert_eq!((moved.bytes, moved.flags & MOVED), (2000 * PAGE, MOVED));
    vmap.free(&moved);
    assert_eq!(vmap.purge(usize::MAX), 3000 * PAGE);
    assert_eq!((world.areas.moved.load(Relaxed), world.exact(Level::Mappings)), (0, 3));
}

/// Where the system refuses to move, bytes are copied, a piece at a time; where it does not even map afresh what it may have unmapped, that
/// is lost.
#[test]
fn moves_that_are_refused() {
    const PIECE: usize = 512 * PAGE;
    let (world, _) = World::with_free(30_000);
    let vmap = world.vmap();
    world.set(Id::MoveBytes, 600 * PAGE);
    let area = world.area(1000);
    let from = vmap.windows.address(area.pfn);
    for page in (0..1000).filter(|page| page % 3 > 0) {
        unsafe { ((from + page * PAGE) as *mut usize).write(page) };
    }
    let relocate = |area: &Area| unsafe { vmap.relocate(area, 2000 * PAGE) };
    let no_move = |seen: &Seen| if seen.call == Call::Remap { NO } else { None };
    let copied = [("areas", p(1000)), ("area_alloc", 1), ("area_free", 1)];
    let (to, seen) = watched(no_move, || world.step(&copied, || relocate(&area).expect("copied")));
    let calls: Vec<_> = seen.iter().map(|seen| (seen.call, seen.args[0], seen.args[1])).collect();
    let first = PIECE - from % PIECE;
    let mut expected =
        vec![(Call::Remap, from, 1000 * PAGE), (Call::Map, to, 2000 * PAGE), (Call::Advise, to, 2000 * PAGE)];
    expected.push((Call::Advise, from, first));
    expected.push((Call::Advise, from + first, PIECE.min(1000 * PAGE - first)));
    if first + PIECE < 1000 * PAGE {
        expected.push((Call::Advise, from + first + PIECE, 1000 * PAGE - PIECE - first));
    }
    expected.extend([(Call::Map, from, 1000 * PAGE), (Call::Advise, from, 1000 * PAGE)]);
    assert_eq!(calls, expected);
    assert_eq!(seen[3].args[2], Advice::DontNeed as usize);
    for page in 0..2000 {
        let number = if page < 1000 && page % 3 > 0 { page } else { 0 };
        assert_eq!(unsafe { ((to + page * PAGE) as *const usize).read() }, number);
    }
    assert!((0..1000).all(|page| unsafe { ((from + page * PAGE) as *const usize).read() } == 0));
    assert_eq!(vmap.find(from), None);
    let all = vmap.find(to).unwrap();
    assert_eq!((all.bytes, all.flags), (2000 * PAGE, 0));
    vmap.free(&all);
    vmap.purge(usize::MAX);
    let free = |pages| vmap.space(0).state.lock().tree.largest(vmap.windows) >= pages;
    assert!(free(29_000), "what was copied is not free");
    // Nothing at all: the area is what it was, and the target is lost.
    let area = world.area(1000);
    let (moved, seen) = watched(|_| NO, || world.step(&[("area_alloc", 1), ("area_free", 1)], || relocate(&area)));
    let target = seen[0].args[4];
    assert_eq!((moved, vmap.find(target)), (None, None));
    assert_eq!(vmap.windows.desc(vmap.windows.find(target).unwrap().1).kind(), crate::page::Kind::None);
    // The source is lost where it cannot be mapped again.
    let at = vmap.windows.address(area.pfn);
    let no_source = move |seen: &Seen| if seen.call == Call::Remap || seen.args[0] == at { NO } else { None };
    let (moved, seen) = watched(no_source, || world.step(&copied, || relocate(&area)));
    assert!(moved.is_some_and(|to| to == seen[0].args[4] && to >= target + 2000 * PAGE), "what is lost is used again");
    assert_eq!(vmap.windows.desc(area.pfn).kind(), crate::page::Kind::None);
}

/// What was moved leaves its place, and what moved is given back and mapped afresh when it is purged; where either is refused it stays, or is lost.
#[test]
fn what_moved_is_mapped_afresh_or_lost() {
    let (world, _) = World::with_free(30_000);
    let vmap = world.vmap();
    world.set(Id::MoveBytes, 600 * PAGE);
    let area = world.area(1000);
    let relocate = || unsafe { vmap.relocate(&area, 2000 * PAGE) };
    // The source is lost where it cannot be mapped again.
    let no_map = |seen: &Seen| if seen.call == Call::Map { NO } else { None };
    let changes =
        [("areas", p(1000)), ("area_alloc", 1), ("area_free", 1), ("area_move", 1), ("moved", 1), ("mappings", 2)];
    let (moved, seen) = watched(no_map, || world.step(&changes, relocate));
    assert_eq!(seen.iter().map(|seen| seen.call).collect::<Vec<_>>(), [Call::Remap, Call::Map]);
    let moved = vmap.find(moved.expect("moved")).unwrap();
    assert_eq!(vmap.find(vmap.windows.address(area.pfn)), None);
    vmap.free(&moved);
    // Moved: given back, then mapped afresh; advised as its neighbours are.
    let refused = |which: Call| move |seen: &Seen| if seen.call == which { NO } else { None };
    let at = vmap.windows.address(moved.pfn);
    let changes =
        [("purge", 1), ("purge_refused", 1), ("purged", 1), ("timed", 1), ("slices", 1), ("untold", -p(2000))];
    let (gone, seen) = watched(refused(Call::Advise), || world.step(&changes, || vmap.purge(usize::MAX)));
    assert_eq!((gone, seen.len()), (0, 1));
    let (changes, lost) = (
        |more: &[(&'static str, i64)]| {
            let all = [
                ("lazy", -p(2000)),
                ("purge", 1),
                ("purge_bytes", p(2000)),
                ("purged", 1),
                ("timed", 1),
                ("slices", 1),
                ("moved", -1),
                ("mappings", -2),
            ];
            [&all[..], more].concat()
        },
        [("purge_refused", 1)],
    );
    let (gone, seen) = watched(nothing, || world.step(&changes(&[]), || vmap.purge(usize::MAX)));
    let calls: Vec<_> = seen.iter().map(|seen| (seen.call, seen.args[0], seen.args[1])).collect();
    assert_eq!(gone, 2000 * PAGE);
    let bytes = 2000 * PAGE;
    assert_eq!(calls, [(Call::Advise, at, bytes), (Call::Map, at, bytes), (Call::Advise, at, bytes)]);
    assert_eq!([seen[0].args[2], seen[2].args[2]], [Advice::DontNeed as usize, Advice::NoHuge as usize]);
    // Once more, and not mapped afresh.
    let area = world.area(1000);
    let moved = vmap.find(unsafe { vmap.relocate(&area, 2000 * PAGE) }.expect("moved")).unwrap();
    vmap.free(&moved);
    vmap.fold(0, &vmap.space(0).state.lock());
    let (gone, _) = watched(refused(Call::Map), || world.step(&changes(&lost), || vmap.purge(usize::MAX)));
    assert_eq!(gone, 2000 * PAGE);
    assert_eq!(vmap.windows.desc(moved.pfn).kind(), crate::page::Kind::None);
}

/// What was moved, and then grew over another mapping, the system moves no more (and may unmap the target, where another test would map):
/// its copy is none that was moved.
#[test]
fn what_is_two_mappings_is_copied() {
    let (world, _) = World::with_free(30_000);
    let vmap = world.vmap();
    world.set(Id::MoveBytes, 600 * PAGE);
    let at = unsafe { vmap.relocate(&world.area(1000), 2000 * PAGE) }.expect("moved");
    assert!(vmap.resize(&vmap.find(at).unwrap(), 2500 * PAGE));
    let (one, two) = (at as *mut usize, (at + 2400 * PAGE) as *mut usize);
    unsafe { (one.write(1), two.write(2)) };
    let two_mappings = vmap.find(at).unwrap();
    let changes = [("areas", p(1500)), ("area_alloc", 1), ("area_free", 1), ("moved", -1), ("mappings", -2)];
    let no_move = |seen: &Seen| if seen.call == Call::Remap { NO } else { None };
    let copy = || unsafe { vmap.relocate(&two_mappings, 4000 * PAGE) }.expect("copied");
    let (to, _) = watched(no_move, || world.step(&changes, copy));
    let (one, two) = (to as *const usize, (to + 2400 * PAGE) as *const usize);
    assert_eq!(unsafe { (one.read(), two.read()) }, (1, 2));
    let all = vmap.find(to).unwrap();
    assert_eq!((all.bytes, all.flags & MOVED), (4000 * PAGE, 0));
}

/// Where the system takes nothing back no page is ever clean again: what would move takes what is dirty instead, by a copy.
#[test]
fn nothing_moves_while_the_system_keeps_all() {
    let (world, _) = World::with_free(30_000);
    let vmap = world.vmap();
    world.set(Id::MoveBytes, 600 * PAGE);
    let [area, other] = [1000, 1000].map(|pages| world.area(pages));
    vmap.free(&other);
    let relocate = || unsafe { vmap.relocate(&area, 2000 * PAGE) };
    let no_advice = |seen: &Seen| if seen.call == Call::Advise { NO } else { None };
    let (gone, _) = watched(no_advice, || vmap.purge(usize::MAX));
    assert_eq!((gone, relocate()), (0, None));
    // But not where a limit may have no room for both.
    world.set(Id::HardLimit, 1 << 40);
    let moved = relocate().expect("moved");
    world.set(Id::HardLimit, u64::MAX as usize);
    assert!(vmap.purge(usize::MAX) > 0);
    let area = vmap.find(moved).unwrap();
    assert!(unsafe { vmap.relocate(&area, 3000 * PAGE) }.is_some(), "it takes something by now");
}

/// Between windows of huge pages and others the mapping stays what it was, and is advised as its new neighbours are.
#[test]
fn what_moves_is_advised_as_its_neighbours() {
    let world = World::leaked();
    let vmap = world.vmap();
    let huge = 4096;
    world.set(Id::HugeBytes, huge * PAGE);
    world.set(Id::MoveBytes, 600 * PAGE);
    let advised = |seen: &[Seen], at: usize| -> Vec<_> {
        let those = seen.iter().filter(|seen| seen.call == Call::Advise && seen.args[0] == at);
        those.map(|seen| (seen.args[1] / PAGE, seen.args[2])).collect()
    };
    // (Where there is room no window is advised.)
    vmap.free(&world.area(8 * huge));
    vmap.purge(usize::MAX);
    let small = world.area(1000);
    let [big, _] = [huge, huge].map(|pages| world.area(pages));
    assert_eq!([small.flags, big.flags], [0, HUGE]);
    let sources = [vmap.windows.address(small.pfn), vmap.windows.address(big.pfn)];
    let (to, seen) = watched(nothing, || unsafe { vmap.relocate(&small, huge * PAGE) }.expect("moved"));
    assert_eq!(vmap.find(to).unwrap().flags, HUGE | MOVED);
    assert_eq!(advised(&seen, to), [(huge, Advice::Huge as usize)]);
    assert_eq!(advised(&seen, sources[0]), [(1000, Advice::NoHuge as usize)]);
    let (to, seen) = watched(nothing, || unsafe { vmap.relocate(&big, 2 * huge * PAGE) }.expect("moved"));
    assert_eq!(advised(&seen, sources[1]), [(huge, Advice::Huge as usize)]);
    assert_eq!(advised(&seen, to), [], "advised in vain");
    // From a window of their own, and into one.
    let giant = WINDOW_PAGES / 2 + 1;
    let (at, seen) = watched(nothing, || vmap.alloc(giant * PAGE, PAGE).unwrap().address);
    assert_eq!(advised(&seen, at), [(giant, Advice::NoHuge as usize), (giant, Advice::Huge as usize)]);
    let (to, seen) = watched(nothing, || {
        unsafe { vmap.relocate(&world.found(Some(super::super::Fresh { address: at, zero: true })), 2 * giant * PAGE) }
            .expect("moved")
    });
    assert_eq!(advised(&seen, to), [(2 * giant, Advice::NoHuge as usize), (2 * giant, Advice::Huge as usize)]);
    world.set(Id::HugeBytes, 0);
    let area = world.area(1000);
    let (to, seen) = watched(nothing, || unsafe { vmap.relocate(&area, giant * PAGE) }.expect("moved"));
    assert_eq!(advised(&seen, to), [(giant, Advice::NoHuge as usize)]);
    let (none, seen) = watched(nothing, || vmap.alloc(giant * PAGE, PAGE).unwrap().address);
    assert_eq!(advised(&seen, none), [(giant, Advice::NoHuge as usize)]);
    world.set(Id::HugeBytes, (giant + 1) * PAGE);
    let (less, seen) = watched(nothing, || vmap.alloc(giant * PAGE, PAGE).unwrap().address);
    assert_eq!(advised(&seen, less).len(), 1);
    // Longer than that it is of huge pages.
    let area = vmap.find(less).unwrap();
    let (to, seen) = watched(nothing, || unsafe { vmap.relocate(&area, (giant + 1) * PAGE) }.expect("moved"));
    assert_eq!(
        advised(&seen, to),
        [Advice::NoHuge, Advice::Huge, Advice::Huge].map(|advice| (giant + 1, advice as usize))
    );
    // And the other way round.
    world.set(Id::HugeBytes, 0);
    let area = vmap.find(to).unwrap();
    world.set(Id::HugeBytes, (giant + 2) * PAGE);
    let big = world.found(vmap.alloc(huge * PAGE, PAGE));
    assert_eq!((big.flags, area.bytes), (0, (giant + 1) * PAGE));
    world.set(Id::HugeBytes, huge * PAGE);
    let big = world.area(huge);
    world.set(Id::HugeBytes, 0);
    let (then, seen) = watched(nothing, || unsafe { vmap.relocate(&big, 2 * huge * PAGE) }.expect("moved"));
    assert_eq!(vmap.find(then).unwrap().flags, MOVED);
    assert_eq!(advised(&seen, then).last(), Some(&(2 * huge, Advice::NoHuge as usize)));
    for at in [to, none, then] {
        vmap.free(&vmap.find(at).unwrap());
    }
    vmap.purge(usize::MAX);
    vmap.verify();
}
