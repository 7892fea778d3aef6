//! The queue: how runs are cut and sorted, and what several threads take of it.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::arch::sys::fault::{Call, watched};
use crate::stat::Level;
use crate::vmap::space::HUGE;
use crate::vmap::tests::{NO, World, nothing};
use std::cell::Cell;
use std::vec::Vec;

const MIB: usize = 1 << 20;
const NOTHING: Run = Run { first: Pfn::NONE, pages: 0, flags: 0, end: End::Dirty };

/// A list of lazy areas: where each begins, its pages and flags.
fn list(vmap: &Vmap<'_>, first: Pfn, areas: &[(usize, usize, u32)]) -> Pfn {
    let mut next = Pfn::NONE;
    for &(at, pages, flags) in areas.iter().rev() {
        let desc = vmap.windows.desc(first.add(at));
        desc.set(Kind::Lazy, flags);
        desc.set_len(pages);
        desc.set_links(next, Pfn::NONE);
        next = first.add(at);
    }
    next
}
fn listed(vmap: &Vmap<'_>, first: Pfn, head: Pfn) -> Vec<(usize, usize, u32)> {
    vmap.giants(head)
        .map(|at| {
            let desc = vmap.windows.desc(at);
            assert_eq!(desc.kind(), Kind::Lazy);
            ((at.0 - first.0) as usize, desc.len(), desc.rest())
        })
        .collect()
}

/// What is pending, what may be taken of its first and whether that is a slice's first; the pages of the run, and what is pending then.
#[test]
fn runs_are_merged_and_cut() {
    type Areas = &'static [(usize, usize, u32)];
    let cases: &[(Areas, usize, bool, usize, Areas)] = &[
        // Whole where it is short enough.
        (&[(0, 74, 0)], 74, false, 74, &[]),
        (&[(0, 74, 0)], 75, true, 74, &[]),
        // To a page table's end, below what may be taken if there is one; a first one to the next.
        (&[(0, 74, 0)], 50, true, 74, &[]),
        (&[(0, 74, 0)], 50, false, 0, &[(0, 74, 0)]),
        (&[(0, 600, 0)], 100, true, 512, &[(512, 88, 0)]),
        (&[(0, 600, 0)], 100, false, 0, &[(0, 600, 0)]),
        (&[(0, 512, 0)], 100, true, 512, &[]),
        (&[(0, 600, 0)], 512, false, 512, &[(512, 88, 0)]),
        (&[(0, 600, 0)], 511, false, 0, &[(0, 600, 0)]),
        (&[(500, 600, 0)], 100, true, 12, &[(512, 588, 0)]),
        (&[(500, 600, 0)], 100, false, 12, &[(512, 588, 0)]),
        (&[(500, 600, 0)], 11, true, 12, &[(512, 588, 0)]),
        (&[(500, 600, 0)], 11, false, 0, &[(500, 600, 0)]),
        (&[(10, 600, 0)], 502, false, 502, &[(512, 98, 0)]),
        (&[(10, 600, 0)], 501, true, 502, &[(512, 98, 0)]),
        (&[(0, 1100, 0)], 1100, false, 1100, &[]),
        (&[(0, 1100, 0)], 1099, false, 1024, &[(1024, 76, 0)]),
        (&[(0, 1024, 0)], 1023, false, 512, &[(512, 512, 0)]),
        (&[(0, 600, 0), (700, 9, 0)], 520, false, 512, &[(512, 88, 0), (700, 9, 0)]),
        (&[(0, 600, 0), (700, 9, 0)], 600, false, 600, &[(700, 9, 0)]),
        // With its neighbours, as many as are wanted.
        (&[(0, 100, 0), (100, 100, 0), (200, 100, 0)], 100, true, 100, &[(100, 100, 0), (200, 100, 0)]),
        (&[(0, 100, 0), (100, 100, 0), (200, 100, 0)], 101, true, 200, &[(200, 100, 0)]),
        (&[(0, 100, 0), (100, 100, 0), (200, 100, 0)], 101, false, 0, &[(0, 200, 0), (200, 100, 0)]),
        (&[(0, 100, 0), (100, 100, 0), (200, 100, 0)], 300, false, 300, &[]),
        (&[(0, 300, 0), (300, 300, 0), (900, 9, 0)], 550, false, 512, &[(512, 88, 0), (900, 9, 0)]),
        // What does not touch, or is of another kind, is another run; what merges with nothing is whole.
        (&[(0, 100, 0), (101, 100, 0)], 900, true, 100, &[(101, 100, 0)]),
        (&[(0, 100, 0), (100, 100, HUGE)], 900, true, 100, &[(100, 100, HUGE)]),
        (&[(0, 100, HUGE), (100, 100, HUGE)], 900, true, 200, &[]),
        (&[(0, 600, GUARD), (600, 100, GUARD)], 10, false, 600, &[(600, 100, GUARD)]),
        (&[(0, 600, MOVED), (600, 100, MOVED)], 900, true, 600, &[(600, 100, MOVED)]),
        (&[(0, 100, 0), (100, 100, GUARD)], 900, true, 100, &[(100, 100, GUARD)]),
    ];
    let (world, first) = World::with_free(5000);
    let vmap = world.vmap();
    let (at, _) = vmap.hand_over(2048).expect("pages");
    assert!(at == first && at.0.is_multiple_of(2048));
    for &(areas, left, is_first, pages, expected) in cases {
        let head = list(&vmap, first, areas);
        let (run, next) = vmap.cut(head, left, is_first);
        let text = std::format!("{areas:?} {left} {is_first}");
        assert_eq!((run.first, run.pages(), run.flags), (head, pages, areas[0].2), "{text}");
        assert!(run.end == End::Dirty);
        // (What is too short stays the first.)
        let then = listed(&vmap, first, if pages == 0 { head } else { next });
        assert_eq!(then, expected, "{text}");
        // Nothing else says that it is an area.
        let known = |at: usize| at == areas[0].0 || expected.iter().any(|area| area.0 == at);
        assert!((0..2048).all(|at| known(at) || vmap.windows.desc(first.add(at)).kind() == Kind::None), "{text}");
        (0..2048).for_each(|at| vmap.windows.desc(first.add(at)).set(Kind::None, 0));
    }
}

#[test]
fn lists_are_sorted() {
    let (world, first) = World::with_free(5000);
    let vmap = world.vmap();
    assert_eq!(vmap.sort(Pfn::NONE), Pfn::NONE);
    let sorted = |order: &[usize]| {
        let areas: Vec<_> = order.iter().map(|&at| (at * 3, 1 + at % 2, 0)).collect();
        let head = list(&vmap, first, &areas);
        let mut expected = areas;
        expected.sort_unstable();
        assert_eq!(listed(&vmap, first, vmap.sort(head)), expected, "{order:?}");
    };
    // All orders of up to six, and long ones: in order, backwards, and mixed.
    for len in 1..=6_usize {
        for mut number in 0..(1..=len).product() {
            let mut left: Vec<_> = (0..len).collect();
            let next = |count| {
                let at = number % count;
                number /= count;
                left.remove(at)
            };
            sorted(&(1..=len).rev().map(next).collect::<Vec<_>>());
        }
    }
    sorted(&(0..300).collect::<Vec<_>>());
    sorted(&(0..300).rev().collect::<Vec<_>>());
    sorted(&(0..300).map(|at| at * 7 % 300).collect::<Vec<_>>());
    sorted(&(0..256).map(|at| at ^ 0x55).collect::<Vec<_>>());
}

/// Just one area of what is pending: among the first 32, and as it was seen.
#[test]
fn one_area_is_taken_off_the_queue() {
    let (world, first) = World::with_free(5000);
    let vmap = world.vmap();
    assert!(!vmap.take_pending_one(first, 5, 0));
    vmap.hand_over(2048).expect("pages");
    let areas: Vec<_> = (0..34).map(|at| (at * 10 + 10, 5, 0)).collect();
    let fill = || {
        world.areas.flights.lock().pending = list(&vmap, first, &areas);
        world.areas.backlog.store(34 * 5, Relaxed);
    };
    let pending = || listed(&vmap, first, world.areas.flights.lock().pending);
    for at in 0..34 {
        fill();
        let taken = vmap.take_pending_one(first.add(areas[at].0), 5, 0);
        assert_eq!(taken, at < RANGES, "{at}");
        let left: Vec<_> =
            areas.iter().copied().enumerate().filter(|(n, _)| !taken || *n != at).map(|(_, area)| area).collect();
        assert_eq!((pending(), world.areas.backlog()), (left, 5 * (34 - usize::from(taken))));
    }
    fill();
    // It is none of these, or another by now.
    for (at, pages, flags) in [(0, 5, 0), (15, 5, 0), (9, 5, 0), (400, 5, 0), (10, 4, 0), (10, 6, 0), (10, 5, HUGE)] {
        assert!(!vmap.take_pending_one(first.add(at), pages, flags), "{at} {pages} {flags}");
    }
    assert_eq!((pending(), world.areas.backlog()), (areas.clone(), 170));
    // A shorter queue ends.
    world.areas.flights.lock().pending = list(&vmap, first, &areas[..2]);
    world.areas.backlog.store(10, Relaxed);
    assert!(!vmap.take_pending_one(first.add(500), 5, 0));
    assert!(vmap.take_pending_one(first.add(20), 5, 0) && vmap.take_pending_one(first.add(10), 5, 0));
    assert_eq!((pending(), world.areas.backlog()), (Vec::new(), 0));
    assert!(!vmap.take_pending_one(first.add(10), 5, 0), "nothing waits");
    // A hint, which may be late.
    world.areas.backlog.store(5, Relaxed);
    assert!(!vmap.take_pending_one(first.add(10), 5, 0));
    world.areas.backlog.store(0, Relaxed);
    assert_eq!(vmap.take_pending(), Pfn::NONE);
    fill();
    assert_eq!(listed(&vmap, first, vmap.take_pending()), areas);
    assert_eq!((pending(), world.areas.backlog()), (Vec::new(), 0));
}

/// What a thread takes, as the queue's words say: of giant areas first, of the latest first, then of what is pending.
fn part(vmap: &Vmap<'_>, most: usize) -> Option<(Pfn, usize, usize)> {
    let mut runs = [NOTHING; RANGES];
    match vmap.take(&mut vmap.areas.flights.lock(), most, None, &mut runs) {
        Some(Slice::Part(pfn, from, bytes)) => Some((pfn, from, bytes)),
        _ => None,
    }
}

fn giant(world: &'static World, bytes: usize) -> Area {
    let area = world.vmap().find(world.vmap().alloc_zero(bytes, PAGE, 0).expect("memory").address).expect("an area");
    assert!(matches!(world.vmap().free(&area), crate::vmap::Freed::Queued(_)));
    area
}

/// Several have parts of one giant area in hand: the last to land unmaps it.
#[test]
fn the_last_slice_unmaps_a_giant() {
    let world = World::leaked();
    let vmap = world.vmap();
    world.area(9);
    world.set(Id::MaxGatherBatchCount, 4096);
    let bytes = 600 * MIB;
    let area = giant(world, bytes);
    let words = || {
        let giant = vmap.windows.giant(area.pfn);
        [giant.handed.load(Relaxed) / MIB, giant.clean.load(Relaxed) / MIB, giant.out.load(Relaxed) as usize]
    };
    assert_eq!(words(), [0, 0, 0]);
    assert_eq!(part(&vmap, 200 * MIB), Some((area.pfn, 0, 200 * MIB)));
    assert_eq!(part(&vmap, 100 * MIB), Some((area.pfn, 200 * MIB, 100 * MIB)));
    assert_eq!((words(), world.areas.backlog()), ([300, 0, 2], 300 * MIB / PAGE));
    assert_eq!(part(&vmap, usize::MAX), Some((area.pfn, 300 * MIB, 300 * MIB)));
    assert_eq!((part(&vmap, usize::MAX), words(), world.areas.backlog()), (None, [600, 0, 3], 0));
    // Handed out as a whole, it is neither kept nor taken back.
    assert!(!vmap.gather(usize::MAX) && words() == [600, 0, 3]);
    assert!(vmap.reuse(bytes, PAGE).is_none());
    // A fork in the middle: what is behind has gone out, so what is left goes with the rest.
    world.gate.fork_begin(|| {});
    let (released, seen) = watched(nothing, || vmap.release_part(area.pfn, 0, 200 * MIB, false));
    world.gate.fork_end(false, || {});
    assert_eq!((released, seen.len(), words()), ((38 * MIB, 38 * MIB), 1, [600, 38, 2]));
    assert_eq!(world.areas.backlog(), 0);
    // The same at the end of what was handed out: it waits again.
    world.gate.fork_begin(|| {});
    let released = vmap.release_part(area.pfn, 300 * MIB, 300 * MIB, false);
    world.gate.fork_end(false, || {});
    assert_eq!((released, words()), ((38 * MIB, 38 * MIB), [338, 76, 1]));
    assert_eq!(world.areas.backlog(), 262 * MIB / PAGE);
    assert_eq!(part(&vmap, usize::MAX), Some((area.pfn, 338 * MIB, 262 * MIB)));
    assert_eq!((words(), world.areas.backlog()), ([600, 76, 2], 0));
    // Refused: it counts as tried.
    let (released, _) = watched(|_| NO, || vmap.release_part(area.pfn, 200 * MIB, 100 * MIB, false));
    assert_eq!((released, words()), ((100 * MIB, 0), [600, 76, 1]));
    assert_eq!(world.cache.sets.event(Event::PurgeRefused), 3);
    let landed = world.areas.landed.load(Relaxed);
    assert_eq!(vmap.release_part(area.pfn, 338 * MIB, 262 * MIB, false), (262 * MIB, 262 * MIB + 262 * MIB));
    assert_eq!((vmap.find(vmap.windows.address(area.pfn)), world.areas.landed.load(Relaxed)), (None, landed + 1));
    assert_eq!(world.areas.flights.lock().giants, Pfn::NONE);
}

/// Of several giant areas the latest first; one in the middle of the queue leaves it.
#[test]
fn giants_leave_the_queue_wherever_they_are() {
    for gone in 0..3 {
        let world = World::leaked();
        let vmap = world.vmap();
        world.set(Id::MaxGatherBatchCount, 4096);
        let areas = [0; 3].map(|_| giant(world, 600 * MIB));
        let queue = || vmap.giants(world.areas.flights.lock().giants).collect::<Vec<_>>();
        let all: Vec<_> = areas.iter().rev().map(|area| area.pfn).collect();
        assert_eq!(queue(), all);
        let serials: Vec<_> = all.iter().map(|&at| vmap.windows.desc(at).len()).collect();
        assert_eq!(serials, [3, 2, 1]);
        let ticket = Ticket { pfn: all[gone], serial: serials[gone] as u32, bytes: 600 * MIB };
        assert!(vmap.is(all[gone], ticket) && !vmap.is(all[(gone + 1) % 3], ticket));
        // Nothing of one that was freed at another time.
        for serial in [0, 4] {
            world.step(&[], || vmap.purge_giant(Ticket { serial, ..ticket }));
        }
        vmap.purge_giant(ticket);
        assert_eq!(queue(), all.iter().copied().filter(|&at| at != all[gone]).collect::<Vec<_>>());
        assert_eq!(vmap.purge_pending(usize::MAX), 1200 * MIB);
        assert_eq!(queue(), []);
        world.areas.flights.lock().serial = u32::MAX - 1;
        let one = giant(world, 600 * MIB);
        assert_eq!(vmap.windows.desc(one.pfn).len(), u32::MAX as usize);
    }
}

/// Who frees a giant area waits for those who have parts of it, and for nobody else.
#[test]
fn parts_in_other_hands_are_waited_for() {
    let world = World::leaked();
    let vmap = world.vmap();
    world.set(Id::MaxGatherBatchCount, 4096);
    let (other, area) = (giant(world, 600 * MIB), giant(world, 600 * MIB));
    let ticket = Ticket { pfn: area.pfn, serial: 2, bytes: 600 * MIB };
    let (at, from, bytes) = part(&vmap, 100 * MIB).unwrap();
    assert_eq!((at, from, bytes), (area.pfn, 0, 100 * MIB));
    let inside = world.gate.enter().unwrap();
    let waits = Cell::new(0);
    let watch = move |seen: &sys::fault::Seen| {
        if seen.call != Call::Futex || seen.args[1] & 127 != 0 {
            return None;
        }
        assert!(!world.gate.is_inside(), "it waits where a fork waits for it");
        assert_eq!((seen.args[0], seen.args[2]), (world.areas.landed.as_ptr() as usize, 0));
        waits.set(waits.get() + 1);
        if waits.get() == 2 {
            world.vmap().release_part(at, from, bytes, false);
        }
        Some(Ok(0))
    };
    let ((), seen) = watched(watch, || vmap.purge_giant(ticket));
    drop(inside);
    assert_eq!(seen.iter().filter(|seen| seen.call == Call::Futex).count(), 2);
    assert_eq!(vmap.find(vmap.windows.address(area.pfn)), None);
    // It told of its own part only.
    assert_eq!(world.cache.sets.event(Event::PurgeBytes), 500 * MIB as u64);
    // Another's parts are nobody's business, and those of a child's parent never land.
    let (at, from, bytes) = part(&vmap, 100 * MIB).unwrap();
    assert_eq!(at, other.pfn);
    let ((), seen) = watched(nothing, || vmap.purge_giant(ticket));
    assert_eq!(seen, []);
    let ticket = Ticket { pfn: other.pfn, serial: 1, bytes: 600 * MIB };
    world.areas.orphaned.store(true, Relaxed);
    let ((), seen) = watched(nothing, || vmap.purge_giant(ticket));
    assert_eq!(seen.iter().filter(|seen| seen.call == Call::Futex).count(), 0);
    world.areas.orphaned.store(false, Relaxed);
    vmap.release_part(at, from, bytes, false);
    assert_eq!(vmap.find(vmap.windows.address(other.pfn)), None);
}

/// All, some, and what is kept: what is gathered, how it is queued, and what is said of it.
#[test]
fn gathering_queues_what_is_lazy() {
    let (world, first) = World::with_free(9000);
    let vmap = world.vmap();
    world.step(&[], || assert!(!vmap.gather(usize::MAX) && !vmap.gather(PAGE)));
    let areas = [100, 9, 2000, 9, 700, 9]
        .map(|pages| vmap.find(vmap.alloc(pages * PAGE, PAGE).expect("memory").address).expect("an area"));
    let guarded = vmap.find(vmap.alloc_guarded(49 * PAGE, PAGE).expect("memory").address).expect("an area");
    let pending = || listed(&vmap, first, world.areas.flights.lock().pending);
    for area in [&areas[0], &areas[2], &areas[4], &guarded] {
        vmap.free(area);
    }
    vmap.fold(0, &vmap.space(0).state.lock());
    // The end of the one that lies highest, then more of it, from where a page table begins or the run does.
    let changes = |pages: i64, runs: i64| [("backlog", pages), ("purged", runs)];
    // | 100 | 9 | 109..2109 | 9 | 2118..2818 | 9 | 50 |
    world.step(&changes(258, 1), || assert!(vmap.gather(20 * PAGE)));
    assert_eq!(pending(), [(2560, 258, 0)]);
    world.step(&[("backlog", -258)], || vmap.put_back());
    world.step(&changes(700, 1), || assert!(vmap.gather(259 * PAGE)));
    assert_eq!(pending(), [(2118, 700, 0)]);
    world.step(&[("backlog", -700)], || vmap.put_back());
    // Some of the next one is wanted.
    world.step(&changes(700 + 1597, 2), || assert!(vmap.gather(2000 * PAGE + 1)));
    assert_eq!(pending(), [(512, 1597, 0), (2118, 700, 0)]);
    world.step(&[("backlog", -2297)], || vmap.put_back());
    world.step(&changes(2850, 4), || assert!(vmap.gather(usize::MAX)));
    assert_eq!(pending(), [(0, 100, 0), (109, 2000, 0), (2118, 700, 0), (2827, 50, GUARD)]);
    world.step(&[("backlog", -2850)], || vmap.put_back());
    // What merges with nothing is for who wants all, or finds nothing else.
    world.step(&changes(2800, 3), || assert!(vmap.gather(2850 * PAGE)));
    assert_eq!(vmap.purge_pending(usize::MAX), 2800 * PAGE);
    world.step(&changes(50, 1), || assert!(vmap.gather(PAGE)));
    assert_eq!((pending(), vmap.purge_pending(usize::MAX)), (Vec::from([(2827, 50, GUARD)]), 50 * PAGE));
    assert_eq!(world.exact(Level::Lazy), 0);
}
