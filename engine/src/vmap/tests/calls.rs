//! The system calls that a purge makes, one by one, and what their answers come to.

use super::*;
use crate::vmap::BATCH;
use std::rc::Rc;

pub(super) const MIB: usize = 1 << 20;

/// Areas of so many pages that do not touch, freed; those with a guard page where `guarded` says so.
fn apart(world: &World, lens: &[usize], guarded: impl Fn(usize) -> bool) -> Vec<Area> {
    let vmap = world.vmap();
    let some = |(at, &pages): (usize, &usize)| {
        let area =
            if guarded(at) { world.found(vmap.alloc_guarded((pages - 1) * PAGE, PAGE)) } else { world.area(pages) };
        (area, world.area(9))
    };
    let areas: Vec<_> = lens.iter().enumerate().map(some).collect();
    areas.iter().for_each(|(area, _)| _ = vmap.free(area));
    areas.into_iter().map(|(area, _)| area).collect()
}

/// Which calls were made, with how many pages each.
pub(super) fn calls(seen: &[Seen]) -> Vec<(Call, Vec<usize>)> {
    let pages = |seen: &Seen| match seen.call {
        Call::AdviseMany => seen.ranges.iter().map(|range| range[1] / PAGE).collect(),
        _ => Vec::from([seen.args[1] / PAGE]),
    };
    seen.iter().filter(|seen| seen.call != Call::Futex).map(|seen| (seen.call, pages(seen))).collect()
}
fn many<const N: usize>(pages: [usize; N]) -> (Call, Vec<usize>) {
    (Call::AdviseMany, pages.to_vec())
}
pub(super) fn one(pages: usize) -> (Call, Vec<usize>) {
    (Call::Advise, Vec::from([pages]))
}

#[test]
fn runs_go_to_the_system_in_vectors() {
    let (world, _) = World::with_free(6000);
    let vmap = world.vmap();
    let areas = apart(world, &[10, 11, 12], |_| false);
    let (gone, seen) = watched(nothing, || vmap.purge(usize::MAX));
    // Asked once.
    assert_eq!((gone, calls(&seen)), (33 * PAGE, Vec::from([many([]), many([10, 11, 12])])));
    let at = |area: &Area| vmap.windows.address(area.pfn);
    assert!(seen[1].ranges.iter().zip(&areas).all(|(range, area)| range[0] == at(area)));
    assert!(seen.iter().all(|seen| seen.args[3] == Advice::DontNeed as usize && seen.args[0] as isize == -10_000));
    apart(world, &[10, 11], |_| false);
    let (_, seen) = watched(nothing, || vmap.purge(usize::MAX));
    assert_eq!(calls(&seen), [many([10, 11])]);
    // One is no vector.
    apart(world, &[10], |_| false);
    let (_, seen) = watched(nothing, || vmap.purge(usize::MAX));
    assert_eq!((calls(&seen), seen[0].args[2]), (Vec::from([one(10)]), Advice::DontNeed as usize));
    vmap.verify();
}

#[test]
fn where_vectors_are_refused_each_goes_alone() {
    let alone = Vec::from([one(10), one(11)]);
    for (way, first) in [(0, [&[many([])], &alone[..]].concat()), (1, alone.clone()), (2, alone.clone())] {
        let (world, _) = World::with_free(6000);
        let vmap = world.vmap();
        if way > 0 {
            world.areas.confine();
        }
        for calls_then in [&first, &alone] {
            apart(world, &[10, 11], |_| false);
            let refused = |seen: &Seen| (seen.call == Call::AdviseMany).then_some(Err(Errno::EPERM));
            let (gone, seen) = watched(refused, || vmap.purge(usize::MAX));
            assert_eq!((gone, &calls(&seen)), (21 * PAGE, calls_then));
        }
        assert_eq!(world.cache.sets.event(Event::PurgeRefused), 0);
        // And it is not asked again.
        apart(world, &[10, 11], |_| false);
        let (_, seen) = watched(nothing, || vmap.purge(usize::MAX));
        assert_eq!(calls(&seen), alone);
    }
}

/// The kernel says how many bytes it did, in order: what is not covered whole is tried alone, and stays lazy if that is refused.
#[test]
fn what_a_vector_leaves_is_tried_alone() {
    let cases: [(Result<usize, Errno>, &[usize]); 7] = [
        (Ok(33 * PAGE), &[]),
        (Ok(33 * PAGE - 1), &[12]),
        (Ok(21 * PAGE), &[12]),
        (Ok(21 * PAGE - 1), &[11, 12]),
        (Ok(10 * PAGE), &[11, 12]),
        (Ok(10 * PAGE - 1), &[10, 11, 12]),
        (Err(Errno::EINVAL), &[10, 11, 12]),
    ];
    for (answer, left) in cases {
        let (world, _) = World::with_free(6000);
        let vmap = world.vmap();
        apart(world, &[10, 11], |_| false);
        vmap.purge(usize::MAX);
        apart(world, &[10, 11, 12], |_| false);
        let (gone, seen) =
            watched(move |seen| (seen.call == Call::AdviseMany).then_some(answer), || vmap.purge(usize::MAX));
        let mut expected = Vec::from([many([10, 11, 12])]);
        expected.extend(left.iter().map(|&pages| one(pages)));
        assert_eq!((gone, calls(&seen)), (33 * PAGE, expected));
        assert_eq!(world.cache.sets.event(Event::PurgeRefused), 0);
        // Refused both ways.
        apart(world, &[10, 11, 12], |_| false);
        let refused = move |seen: &Seen| if seen.call == Call::AdviseMany { Some(answer) } else { NO };
        let (gone, _) = watched(refused, || vmap.purge(usize::MAX));
        let stays: usize = left.iter().sum();
        assert_eq!((gone, world.exact(Level::Lazy)), ((33 - stays) * PAGE, stays * PAGE));
        assert_eq!(world.cache.sets.event(Event::PurgeRefused), left.len() as u64);
        vmap.verify();
        assert_eq!(vmap.purge(usize::MAX), stays * PAGE);
    }
}

/// What has a guard page goes alone, its guard last; and the guard stays where the pages do.
#[test]
fn guards_go_last() {
    let (world, _) = World::with_free(6000);
    let vmap = world.vmap();
    let areas = apart(world, &[10, 11, 12, 13], |at| at == 1);
    let (gone, seen) = watched(nothing, || vmap.purge(usize::MAX));
    assert_eq!(gone, 46 * PAGE);
    assert_eq!(calls(&seen), [many([]), many([12, 13]), one(10), one(11), one(1)]);
    let guard = &seen[4];
    let at = vmap.windows.address(areas[1].pfn) + 10 * PAGE;
    assert_eq!((guard.args[0], guard.args[2]), (at, Advice::GuardRemove as usize));
    assert_eq!(seen[3].args[2], Advice::DontNeed as usize);
    for advice in [Advice::DontNeed, Advice::GuardRemove] {
        apart(world, &[11], |_| true);
        let refused = move |seen: &Seen| if seen.args[2] == advice as usize { NO } else { None };
        let (gone, seen) = watched(refused, || vmap.purge(usize::MAX));
        let expected = if advice == Advice::DontNeed { Vec::from([one(11)]) } else { Vec::from([one(11), one(1)]) };
        assert_eq!((gone, calls(&seen), world.exact(Level::Lazy)), (0, expected, 11 * PAGE));
        vmap.verify();
        let (gone, seen) = watched(nothing, || vmap.purge(usize::MAX));
        assert_eq!((gone, calls(&seen)), (11 * PAGE, Vec::from([one(11), one(1)])));
    }
}

/// A slice has 32 ranges, or so many page tables as a knob says and a fork may wait for.
#[test]
fn slices_are_bounded() {
    let (world, _) = World::with_free(20_000);
    let vmap = world.vmap();
    apart(world, &[9; 40], |_| false);
    let slices = || world.areas.taken().0;
    let before = slices();
    let (gone, seen) = watched(nothing, || vmap.purge(usize::MAX));
    assert_eq!((gone, slices() - before), (360 * PAGE, 2));
    assert_eq!(calls(&seen), [many([]), many([9; 32]), many([9; 8])]);
    for (batches, expected) in [(1, [512; 24].to_vec()), (20, [9728, 2560].to_vec()), (19, [9728, 2560].to_vec())] {
        world.set(Id::MaxGatherBatchCount, batches);
        let (world, _) = World::with_free(20_000);
        let vmap = world.vmap();
        world.set(Id::MaxGatherBatchCount, batches);
        vmap.free(&world.area(24 * 512));
        let (gone, seen) = watched(nothing, || vmap.purge(usize::MAX));
        assert_eq!(gone, 24 * BATCH);
        assert_eq!(calls(&seen), expected.iter().map(|&pages| one(pages)).collect::<Vec<_>>());
    }
    // Some of it: the end, from where a page table begins.
    vmap.free(&world.area(2000));
    let largest = vmap.space(0).state.lock().dirty.some_longest(vmap.windows).next().unwrap();
    let end = largest.add(2000).0 as usize;
    let pages = end - (end - 300) / 512 * 512;
    assert!(pages > 512);
    let (gone, seen) = watched(nothing, || vmap.purge(300 * PAGE));
    assert_eq!((gone, calls(&seen), world.areas.backlog()), (BATCH, Vec::from([one(512)]), pages - 512));
    let (gone, seen) = watched(nothing, || vmap.purge_pending(usize::MAX));
    assert_eq!((gone, calls(&seen)), ((pages - 512) * PAGE, Vec::from([one(pages - 512)])));
    assert_eq!(vmap.space(0).state.lock().dirty.some_longest(vmap.windows).next(), Some(largest));
}

/// As much as was asked of what waits, and no more; the next ones go on.
#[test]
fn what_waits_goes_as_it_is_asked() {
    let (world, _) = World::with_free(20_000);
    let vmap = world.vmap();
    // | 512 | 9 | 600 with a guard | 9 | 1024 | 9 | 30 |
    let areas = apart(world, &[512, 600, 1024, 30], |at| at == 1);
    let purged = |pages: usize, gathered: i64, backlog: i64| {
        let all = [
            ("lazy", -p(pages)),
            ("purge", 1),
            ("purge_bytes", p(pages)),
            ("timed", 1),
            ("slices", 1),
            ("purged", gathered),
            ("backlog", backlog),
        ];
        all.into_iter().filter(|(_, change)| *change != 0).collect::<Vec<_>>()
    };
    let told = [("untold", -(world.cache.sets.board().differentials() as i64))];
    let changes = [purged(512, 4, 1654), told.to_vec()].concat();
    world.step(&changes, || assert_eq!(vmap.purge_first_of_all(512 * PAGE), 512 * PAGE));
    // Nobody may have it now.
    assert_eq!(vmap.reuse(20 * PAGE, PAGE).map(|fresh| fresh.address), None);
    world.step(&purged(600, 0, -600), || assert_eq!(vmap.purge_pending(PAGE), 600 * PAGE));
    // It ends where a page table does, if it can.
    let begin = areas[2].pfn.0 as usize;
    let to_end = 512 - begin % 512;
    let (gone, seen) =
        watched(nothing, || world.step(&purged(to_end, 0, -(to_end as i64)), || vmap.purge_pending(PAGE)));
    assert_eq!((gone, calls(&seen)), (to_end * PAGE, Vec::from([one(to_end)])));
    // Enough waits: nothing is gathered.
    let other = world.area(40);
    vmap.free(&other);
    world.step(&purged(512, 0, -512), || assert_eq!(vmap.purge(512 * PAGE), 512 * PAGE));
    let left = 1024 - to_end - 512;
    world.step(&purged(left, 0, -(left as i64)), || assert_eq!(vmap.purge(left * PAGE), left * PAGE));
    assert_eq!(world.areas.backlog(), 30);
    world.step(&[("backlog", -30)], || vmap.put_back());
    assert_eq!(vmap.reuse(30 * PAGE, PAGE).map(|fresh| fresh.address), Some(vmap.windows.address(areas[3].pfn)));
    world.step(&[], || assert_eq!(vmap.purge_pending(usize::MAX), 0));
}

/// Guarded ones that were gathered go back to their list.
#[test]
fn what_is_put_back_is_where_it_was() {
    let (world, _) = World::with_free(20_000);
    let vmap = world.vmap();
    let areas = apart(world, &[512, 20, 30], |at| at == 1);
    vmap.purge_first_of_all(PAGE);
    assert_eq!(world.areas.backlog(), 50);
    world.step(&[("backlog", -50)], || vmap.put_back());
    world.step(&[], || vmap.put_back());
    let guarded = vmap.alloc_guarded(19 * PAGE, PAGE).unwrap();
    assert_eq!((guarded.address, guarded.zero), (vmap.windows.address(areas[1].pfn), false));
    assert_eq!(vmap.alloc(30 * PAGE, PAGE).unwrap().address, vmap.windows.address(areas[2].pfn));
}

/// What no memory is that long: nobody is asked for it.
#[test]
fn what_is_too_long_is_not_asked_for() {
    let world = World::leaked();
    let vmap = world.vmap();
    for (bytes, align, asked) in [
        ((1 << 46) + PAGE, PAGE, false),
        (usize::MAX - PAGE, PAGE, false),
        (1 << 60, PAGE, false),
        (PAGE, 1 << 47, false),
        (PAGE, 1 << 63, false),
        (1 << 46, PAGE, true),
        (PAGE, 1 << 46, true),
    ] {
        let (none, seen) = watched(|_| NO, || world.step(&[], || vmap.alloc(bytes, align)));
        assert!(none.is_none() && seen.is_empty() != asked, "{bytes:x} {align:x}: {seen:?}");
    }
}

/// A worker makes its calls abroad; others hold what they have.
#[test]
fn workers_are_abroad_while_they_call() {
    let world = World::leaked();
    world.set(Id::HugeBytes, 0);
    let vmap = world.vmap();
    let run = || {
        vmap.free(&world.area(600));
        vmap.purge_first_of_all(1);
    };
    let _inside = world.gate.enter().unwrap();
    for abroad in [false, true] {
        let purge = |most: usize| if abroad { vmap.purge_abroad(most) } else { vmap.purge_pending(most) };
        for giant in [false, true] {
            if giant {
                vmap.free(&world.found(vmap.alloc(600 * MIB, PAGE)));
            } else {
                run();
            }
            let inside = Rc::new(Cell::new((0, 0)));
            let noted = inside.clone();
            let watch = move |seen: &Seen| {
                if seen.call == Call::Advise {
                    let (calls, those) = noted.get();
                    noted.set((calls + 1, those + i32::from(world.gate.is_inside())));
                }
                None
            };
            let before = world.exact(Level::Lazy);
            let (gone, _) = watched(watch, || purge(usize::MAX));
            assert_eq!((gone, world.exact(Level::Lazy)), (before, 0));
            let (calls, those) = inside.get();
            assert_eq!((calls > 0, those), (true, if abroad { 0 } else { calls }), "{abroad} {giant}");
            assert!(world.gate.is_inside());
        }
    }
}

/// Freed at once: each kind, done and refused.
#[test]
fn what_is_freed_now_is_counted_once() {
    let (world, _) = World::with_free(4000);
    let vmap = world.vmap();
    let area = world.area(50);
    let told = |pages: usize| [("purge", 1), ("purge_bytes", p(pages)), ("timed", 1), ("slices", 1), ("area_free", 1)];
    let changes = [&told(50)[..], &[("areas", -p(50))]].concat();
    let (freed, seen) = watched(nothing, || world.step(&changes, || vmap.free_now(&area)));
    assert_eq!((freed, calls(&seen)), (true, Vec::from([one(50)])));
    world.step(&[], || assert!(!vmap.free_now(&area)));
    let area = world.area(50);
    let changes = [
        ("areas", -p(50)),
        ("lazy", p(50)),
        ("purge", 1),
        ("purge_refused", 1),
        ("timed", 1),
        ("slices", 1),
        ("area_free", 1),
    ];
    let (freed, _) = watched(|_| NO, || world.step(&changes, || vmap.free_now(&area)));
    assert!(freed);
    let area = world.found(vmap.alloc_guarded(50 * PAGE, PAGE));
    let changes = [&told(51)[..], &[("areas", -p(51))]].concat();
    let (_, seen) = watched(nothing, || world.step(&changes, || vmap.free_now(&area)));
    assert_eq!(calls(&seen), [one(51), one(1)]);
}

/// Who waits for those who have a slice in hand looks again and again, unless they never land or a fork comes.
#[test]
fn flights_are_waited_for() {
    let world = World::leaked();
    let vmap = world.vmap();
    let none = |seen: &[Seen]| seen.iter().filter(|seen| seen.call == Call::Futex).count();
    let (_, seen) = watched(nothing, || vmap.wait_flights());
    assert_eq!(none(&seen), 0);
    let (flight, ()) = world.areas.flights.begin(|_| Some(())).unwrap();
    let flight = Cell::new(Some(flight));
    let waits = Cell::new(0);
    let watch = move |_: &Seen| {
        assert!(!world.gate.is_inside());
        waits.set(waits.get() + 1);
        if waits.get() == 3 {
            flight.take();
        }
        Some(Ok(0))
    };
    let inside = world.gate.enter().unwrap();
    let (_, seen) = watched(watch, || vmap.wait_flights());
    drop(inside);
    assert_eq!((none(&seen), world.areas.flying()), (3, 0));
    let word = world.areas.landed.as_ptr() as usize;
    assert!(seen.iter().all(|seen| seen.args[0] == word && seen.args[1] & 127 == 0));
    let _flight = world.areas.flights.begin(|_| Some(())).unwrap();
    let (_, seen) = watched(|_| Some(Ok(0)), || vmap.wait_flights());
    assert_eq!(none(&seen), 1000);
    world.gate.fork_begin(|| {});
    let (_, seen) = watched(|_| Some(Ok(0)), || vmap.wait_flights());
    world.gate.fork_end(false, || {});
    assert_eq!(none(&seen), 0);
    // A child: nothing that the parent's threads had lands.
    world.areas.inherit(false);
    assert_eq!((world.areas.flying(), world.areas.orphaned.load(Relaxed)), (0, false));
    let _flight = world.areas.flights.begin(|_| Some(())).unwrap();
    world.areas.orphaned.store(true, Relaxed);
    let (_, seen) = watched(|_| Some(Ok(0)), || vmap.wait_flights());
    assert_eq!(none(&seen), 0);
    world.areas.inherit(false);
    assert!(world.areas.orphaned.load(Relaxed), "they are lost in its children, too");
    world.areas.orphaned.store(false, Relaxed);
    world.areas.inherit(true);
    assert!(world.areas.orphaned.load(Relaxed));
}

/// Who finds a space locked waits, and that is counted.
#[test]
fn a_locked_space_is_waited_for() {
    let (world, _) = World::with_free(4000);
    let vmap = world.vmap();
    let held = vmap.space(0).state.lock();
    let done = &std::sync::atomic::AtomicBool::new(false);
    crate::tests::threads::scope(|scope| {
        let other = scope.spawn(|| {
            let area = world.area(40);
            done.store(true, Relaxed);
            world.vmap().free(&area)
        });
        while !world.areas.is_contended() && !done.load(Relaxed) {
            std::thread::yield_now();
        }
        assert!(!done.load(Relaxed), "it did not wait");
        drop(held);
        assert_ne!(other.join().unwrap(), Freed::Not);
    });
}
