//! Giant areas on their way: the slices that they go in, step by step, and what is refused.

use super::calls::{MIB, calls, one};
use super::*;
use crate::vmap::{BATCH, SLICE};

/// A giant area: each slice, its counts, its calls; then it is unmapped, and who waits is woken.
#[test]
fn giants_go_in_slices() {
    let world = World::leaked();
    let vmap = world.vmap();
    let bytes = 600 * MIB + 5 * PAGE;
    let pages = bytes / PAGE;
    world.area(9);
    let before = world.counts();
    let area = world.found(vmap.alloc(bytes, PAGE));
    let after = world.counts();
    let grown: Vec<_> = ["areas", "mapped", "area_alloc", "mappings"].map(|name| after[name] - before[name]).to_vec();
    assert_eq!(grown, [bytes as i64, bytes as i64, 1, 3]);
    assert!(vmap.is_giant(&area) && area.bytes == bytes && area.flags == 0);
    let freed = [("areas", -(bytes as i64)), ("lazy", bytes as i64), ("area_free", 1), ("backlog", pages as i64)];
    let freed_now = world.step(&freed, || vmap.free(&area));
    let Freed::Queued(ticket) = freed_now else { panic!("not queued") };
    assert_eq!(ticket.bytes, bytes);
    world.step(&[], || assert_eq!(vmap.free(&area), Freed::Not));
    let purged = |bytes: usize, slices: i64| {
        [
            ("lazy", -(bytes as i64)),
            ("purge", 1),
            ("purge_bytes", bytes as i64),
            ("timed", 1),
            ("slices", slices),
            ("backlog", -((bytes / PAGE) as i64)),
        ]
    };
    for (most, lens) in
        [(1, &[512][..]), (BATCH + PAGE, &[512, 512]), (BATCH, &[512]), (3 * BATCH + PAGE, &[1536, 512])]
    {
        let bytes = lens.iter().sum::<usize>() * PAGE;
        let changes = purged(bytes, lens.len() as i64);
        let (gone, seen) = watched(nothing, || world.step(&changes, || vmap.purge_pending(most)));
        assert_eq!((gone, calls(&seen)), (bytes, lens.iter().map(|&pages| one(pages)).collect::<Vec<_>>()));
    }
    // 16 MiB are gone. 38 MiB each, by default.
    let rest = bytes - 8 * BATCH;
    let changes = [("mapped", -(bytes as i64)), ("mappings", -2), ("landed", 1)];
    let changes = [&purged(rest, 16)[..], &changes].concat();
    let (gone, seen) = watched(nothing, || world.step(&changes, || vmap.purge_pending(usize::MAX)));
    let mut expected: Vec<_> = [one(9728)].iter().cycle().take(15).cloned().collect();
    expected.extend([one(rest / PAGE - 15 * 9728), (Call::Unmap, Vec::from([pages]))]);
    assert_eq!((gone, calls(&seen)), (rest, expected));
    let woken: Vec<_> = seen.iter().filter(|seen| seen.call == Call::Futex).map(|seen| seen.args).collect();
    assert!(woken.len() == 1 && woken[0][1] & 127 == 1 && woken[0][2] == i32::MAX as usize, "{woken:?}");
    assert_eq!(woken[0][0], world.areas.landed.as_ptr() as usize);
    assert_eq!(vmap.find(vmap.windows.address(area.pfn)), None);
    vmap.each(|shown| assert!(!shown.giant, "it has gone"));
    // The window is used again, and what it said is forgotten.
    let again = world.found(vmap.alloc(bytes, PAGE));
    assert!(again.pfn == area.pfn && vmap.is_giant(&again));
    vmap.free(&world.area(600));
    vmap.purge_first_of_all(1);
    assert!(world.areas.backlog() > 0);
    world.step(&[], || vmap.purge_giant(ticket));
    assert!(vmap.find(vmap.windows.address(again.pfn)).is_some(), "an old ticket");
    vmap.purge(usize::MAX);
    // By its ticket, whatever else waits.
    let other = world.found(vmap.alloc(bytes, PAGE));
    let [Freed::Queued(first), Freed::Queued(second)] = [vmap.free(&again), vmap.free(&other)] else { panic!() };
    let changes = [&purged(bytes, 16)[..], &[("mapped", -(bytes as i64)), ("mappings", -2), ("landed", 1)]].concat();
    world.step(&changes, || vmap.purge_giant(first));
    world.step(&[], || vmap.purge_giant(first));
    world.step(&changes, || vmap.purge_giant(second));
}

/// An allocation of about its size takes a giant area back that waits; what of it is clean was in nobody's count.
#[test]
fn giants_are_taken_back() {
    let world = World::leaked();
    let vmap = world.vmap();
    let bytes = 640 * MIB;
    let [one, two] = [0; 2].map(|_| world.found(vmap.alloc(bytes, PAGE)));
    let Freed::Queued(ticket) = vmap.free(&one) else { panic!() };
    assert!(matches!(vmap.free(&two), Freed::Queued(_)));
    world.step(&[], || {
        // Too long, too short for the request, or aligned to less.
        let eight_ninths = bytes / PAGE * 8 / 9;
        assert!(vmap.reuse((bytes / PAGE + 1) * PAGE, PAGE).is_none());
        assert!(vmap.reuse(eight_ninths * PAGE, PAGE).is_none());
        assert!(vmap.reuse(bytes, 1 << 45).is_none() && vmap.reuse(bytes, 1 << 62).is_none());
        assert!(vmap.reuse(1 << 60, PAGE).is_none() && vmap.reuse(usize::MAX, PAGE).is_none());
    });
    // The latest; then the one of which a part has gone.
    let gone = vmap.purge_pending(100 * BATCH);
    assert_eq!(gone, 100 * BATCH);
    let counts = |clean: usize| {
        [
            ("areas", bytes as i64),
            ("lazy", -((bytes - clean) as i64)),
            ("area_reuse", 1),
            ("backlog", -(((bytes - clean) / PAGE) as i64)),
        ]
    };
    let least = (bytes / PAGE * 8).div_ceil(9) * PAGE;
    let fresh = world.step(&counts(gone), || vmap.alloc(least, PAGE).unwrap());
    assert!(!fresh.zero && fresh.address == vmap.windows.address(two.pfn));
    let again = world.found(Some(fresh));
    assert!(vmap.is_giant(&again) && again.bytes == bytes);
    // Not for zeros.
    let zero = vmap.alloc_zero(bytes, PAGE, usize::MAX).unwrap();
    assert!(zero.zero && zero.address != vmap.windows.address(one.pfn));
    let fresh = world.step(&counts(0), || vmap.reuse(bytes, PAGE).unwrap());
    assert_eq!(fresh.address, vmap.windows.address(one.pfn));
    world.step(&[], || vmap.purge_giant(ticket));
    // With a hard limit what is clean is fresh.
    assert!(matches!(vmap.free(&again), Freed::Queued(_)));
    vmap.purge_pending(100 * BATCH);
    let held = world.cache.sets.board().held() as usize;
    world.set(Id::HardLimit, held + 100 * BATCH - 1);
    world.step(&[], || assert!(vmap.reuse(bytes, PAGE).is_none()));
    world.set(Id::HardLimit, held + 100 * BATCH);
    world.step(&counts(100 * BATCH), || assert!(vmap.reuse(bytes, PAGE).is_some()));
}

/// Refused by the system: kept as a whole, and tried again by the next purge.
#[test]
fn giants_that_stay_are_kept() {
    let world = World::leaked();
    let vmap = world.vmap();
    world.area(9);
    let bytes = 600 * MIB;
    let area = world.found(vmap.alloc(bytes, PAGE));
    vmap.free(&area);
    let no = |which: Call| move |seen: &Seen| if seen.call == which { NO } else { None };
    let changes = [
        ("lazy", -(bytes as i64)),
        ("purge", 1),
        ("purge_bytes", bytes as i64),
        // (Twice in one purge: the second time it has gathered.)
        ("purge_refused", 2),
        ("timed", 1),
        ("slices", 32),
        ("backlog", -((bytes / PAGE) as i64)),
        ("landed", 2),
    ];
    let (gone, _) = watched(no(Call::Unmap), || world.step(&changes, || vmap.purge(usize::MAX)));
    assert_eq!(gone, bytes);
    assert!(world.areas.backlog() == 0 && !vmap.areas.is_pending());
    // It waits for who wants one of its size, and is clean.
    let reused = [("areas", bytes as i64), ("area_reuse", 1)];
    let again = world.step(&reused, || vmap.reuse(bytes, PAGE)).expect("the one that is kept");
    assert_eq!(again.address, vmap.windows.address(area.pfn));
    vmap.free(&area);
    let (gone, _) = watched(no(Call::Unmap), || vmap.purge_pending(usize::MAX));
    assert_eq!((gone, world.areas.backlog()), (bytes, 0));
    // It is not given back a second time, but tried.
    let changes = [("purge", 1), ("purge_refused", 1), ("timed", 1), ("slices", 16), ("landed", 1)];
    world.step(&[], || assert_eq!(vmap.purge_pending(usize::MAX), 0));
    let (gone, _) = watched(no(Call::Unmap), || world.step(&changes, || vmap.purge(usize::MAX)));
    assert_eq!(gone, 0);
    let changes =
        [("purge", 1), ("timed", 1), ("slices", 16), ("landed", 1), ("mapped", -(bytes as i64)), ("mappings", -2)];
    world.step(&changes, || assert_eq!(vmap.purge(usize::MAX), 0));
    // No slice goes, but the whole does.
    let area = world.found(vmap.alloc(bytes, PAGE));
    vmap.free(&area);
    let changes = [
        ("lazy", -(bytes as i64)),
        ("purge", 1),
        ("purge_bytes", bytes as i64),
        ("purge_refused", 16),
        ("timed", 1),
        ("slices", 16),
        ("backlog", -((bytes / PAGE) as i64)),
        ("landed", 1),
        ("mapped", -(bytes as i64)),
        ("mappings", -2),
    ];
    let (gone, _) = watched(no(Call::Advise), || world.step(&changes, || vmap.purge_pending(usize::MAX)));
    assert_eq!(gone, bytes);
    // Neither: all of it is lazy still.
    let area = world.found(vmap.alloc(bytes, PAGE));
    vmap.free(&area);
    let (gone, _) = watched(|_| NO, || vmap.purge(usize::MAX));
    assert_eq!((gone, world.exact(Level::Lazy), world.areas.backlog()), (0, bytes, 0));
    assert_eq!(vmap.purge(usize::MAX), bytes);
    assert_eq!(vmap.find(vmap.windows.address(area.pfn)), None);
}

/// The end of a giant area goes in slices before its addresses do, as long as no fork waits.
#[test]
fn giants_are_cut() {
    let world = World::leaked();
    let vmap = world.vmap();
    world.area(9);
    let (bytes, then) = (600 * MIB, 100 * MIB + 3 * PAGE);
    let area = world.found(vmap.alloc(bytes, PAGE));
    world.step(&[], || assert!(vmap.resize(&area, bytes) && !vmap.resize(&area, bytes + PAGE)));
    let at = vmap.windows.address(area.pfn);
    let (cut, seen) = watched(
        |seen| if seen.call == Call::Unmap { NO } else { None },
        || world.step(&[], || vmap.resize(&area, then)),
    );
    assert!(!cut);
    let gone = bytes - then;
    let advised: Vec<_> = seen.iter().filter(|seen| seen.call == Call::Advise).collect();
    assert_eq!(advised.len(), gone.div_ceil(SLICE));
    for (n, seen) in advised.iter().enumerate() {
        let from = then + n * SLICE;
        assert_eq!((seen.args[0], seen.args[1]), (at + from, SLICE.min(bytes - from)));
    }
    let less = -(gone as i64);
    let wanted = move |seen: &Seen| {
        if seen.call == Call::Advise {
            world.gate.fork_begin(|| {});
        }
        None
    };
    let changes = [("areas", less), ("mapped", less), ("area_grow", 1)];
    let (cut, seen) = watched(wanted, || world.step(&changes, || vmap.resize(&area, then)));
    world.gate.fork_end(false, || {});
    assert!(cut);
    assert_eq!(calls(&seen), [one(SLICE / PAGE), (Call::Unmap, Vec::from([gone / PAGE]))]);
    assert_eq!(vmap.find(at).unwrap().bytes, then);
    assert_eq!(vmap.fresh_behind(&vmap.find(at).unwrap(), then + PAGE), None);
    // It moves where it no longer is one.
    let cut = vmap.find(at).unwrap();
    let (moved, _) = watched(nothing, || unsafe { vmap.relocate(&cut, then + PAGE) }.expect("moved"));
    assert_eq!((vmap.find(at), vmap.find(moved).unwrap().bytes), (None, then + PAGE));
}

/// A giant area that moves leaves with its mapping; where that is refused, the target is dropped and the source is what it was.
#[test]
fn giants_move_or_stay() {
    let world = World::leaked();
    let vmap = world.vmap();
    world.area(9);
    let bytes = 600 * MIB;
    let area = world.found(vmap.alloc(bytes, PAGE));
    // (Metadata of the target's window is there then.)
    let spare = world.found(vmap.alloc(2 * bytes, PAGE));
    vmap.drop_giant(&spare);
    world.step(&[], || vmap.drop_giant(&spare));
    let relocate = |area: &Area| unsafe { vmap.relocate(area, 2 * bytes) };
    // Neither moved nor mapped afresh: the target is lost, its mapping with it, and the source is what it was.
    let changes = [("area_alloc", 1), ("area_free", 1), ("mapped", p(2 * bytes / PAGE)), ("mappings", 2)];
    let no = |seen: &Seen| {
        let is_target = seen.call == Call::Map && seen.args[3] & 0x10 != 0;
        if seen.call == Call::Remap || is_target { NO } else { None }
    };
    let (moved, _) = watched(no, || world.step(&changes, || relocate(&area)));
    assert_eq!((moved, vmap.find(vmap.windows.address(area.pfn))), (None, Some(area)));
    // Copied: the source is unmapped at once, and nothing flies; where that is refused it is kept, without pages that are lazy.
    let no_move = |seen: &Seen| if seen.call == Call::Remap { NO } else { None };
    let source = world.found(vmap.alloc(bytes, PAGE));
    let ((copy, flying), seen) = watched(no_move, || (relocate(&source).expect("copied"), world.areas.flying()));
    assert!(flying == 0 && seen.iter().any(|seen| seen.call == Call::Unmap && seen.args[1] == bytes));
    vmap.drop_giant(&vmap.find(copy).unwrap());
    let source = world.found(vmap.alloc(bytes, PAGE));
    let no = |seen: &Seen| if matches!(seen.call, Call::Remap | Call::Unmap) { NO } else { None };
    let kept = [
        ("areas", bytes as i64),
        ("area_alloc", 1),
        ("area_free", 1),
        ("landed", 1),
        ("slices", 1),
        ("purge_refused", 1),
        ("mapped", p(2 * bytes / PAGE)),
        ("mappings", 2),
    ];
    let (copy, _) = watched(no, || world.step(&kept, || relocate(&source).expect("copied")));
    let gone = [("mapped", -p(bytes / PAGE)), ("mappings", -2)];
    let tried = [("purge", 1), ("timed", 1), ("slices", 16), ("landed", 1)];
    world.step(&[&gone[..], &tried].concat(), || assert_eq!(vmap.purge(usize::MAX), 0));
    vmap.drop_giant(&vmap.find(copy).unwrap());
    let changes =
        [("areas", bytes as i64), ("mapped", bytes as i64), ("area_alloc", 1), ("area_free", 1), ("area_move", 1)];
    // (However many others have moved: its mapping goes with it.)
    world.set(Id::MoveLimit, 0);
    let moved = world.step(&changes, || relocate(&area).expect("moved"));
    let moved = vmap.find(moved).unwrap();
    assert!(vmap.is_giant(&moved) && moved.flags == 0);
    assert_eq!(vmap.find(vmap.windows.address(area.pfn)), None);
    let counts = [
        ("areas", -p(2 * bytes / PAGE)),
        ("mapped", -p(2 * bytes / PAGE)),
        ("mappings", -2),
        ("landed", 1),
        ("slices", 1),
    ];
    world.step(&counts, || vmap.drop_giant(&moved));
    vmap.each(|shown| assert!(!shown.giant, "it has gone"));
}

/// A fork that wants to be ends a slice after the call that is on its way: what is left of it waits.
#[test]
fn a_fork_ends_a_slice() {
    let world = World::leaked();
    let vmap = world.vmap();
    world.area(9);
    world.set(Id::MaxGatherBatchCount, 100);
    let bytes = 600 * MIB;
    let area = world.found(vmap.alloc(bytes, PAGE));
    vmap.free(&area);
    let count = Cell::new(0);
    let watch = move |seen: &Seen| {
        if seen.call == Call::Advise {
            count.set(count.get() + 1);
            if count.get() == 2 {
                world.gate.fork_begin(|| {});
            }
        }
        None
    };
    let changes = [
        ("lazy", -(200 * MIB as i64)),
        ("purge", 1),
        ("purge_bytes", 200 * MIB as i64),
        ("timed", 1),
        ("slices", 5),
        ("backlog", -((200 * MIB / PAGE) as i64)),
    ];
    let (gone, seen) = watched(watch, || world.step(&changes, || vmap.purge_pending(200 * MIB)));
    world.gate.fork_end(false, || {});
    assert_eq!(gone, 200 * MIB);
    let at = vmap.windows.address(area.pfn);
    let expected: Vec<_> =
        [0, 38, 76, 114, 152, 190].iter().map(|from| (at + from * MIB, (200 - from).min(38))).collect();
    let advised: Vec<_> = seen.iter().map(|seen| (seen.args[0], seen.args[1] / MIB)).collect();
    assert_eq!(advised, expected);
    // Without one the same slice has six calls.
    let before = world.areas.taken().0;
    let (_, seen) = watched(nothing, || vmap.purge_pending(200 * MIB));
    let lens: Vec<_> = seen.iter().map(|seen| seen.args[1] / MIB).collect();
    assert_eq!((lens, world.areas.taken().0 - before), ([38, 38, 38, 38, 38, 10].to_vec(), 1));
}
