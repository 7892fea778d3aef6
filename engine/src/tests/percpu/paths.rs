//! Where an allocation comes from: what was parked, a hole, the claim, listed chunks, others' claims, a new chunk.

extern crate std;

use super::ways::{alloc, alloc_how, chunk_of, fresh_threads, full_first, multithreaded, owners};
use super::{free, fresh, space};
use crate::arch::atomic::Ordering::Relaxed;
use crate::percpu::bitmap::FAR;
use crate::percpu::chunk::{BITS, Body, GRANULE};
use crate::percpu::memory::Memory;
use crate::percpu::slots::slot_of;
use crate::percpu::space::{CLAIMS, Error, How, RESERVED};
use crate::percpu::units::UNIT;
use crate::stat::{BadPointer, Mode};
use crate::tests::units::{between, stand};
use std::vec::Vec;

#[test]
fn an_alignment_is_refused_before_a_size_and_a_page_is_one() {
    use crate::arch::PAGE;
    let space = fresh();
    assert_eq!(space.alloc(UNIT + 1, PAGE, How::Normal), Err(Error::TooLarge));
    assert_eq!(space.alloc(UNIT + 1, 2 * PAGE, How::Normal), Err(Error::Align));
}

#[test]
fn what_is_freed_is_taken_again_by_its_size_the_last_first() {
    for index in [0, 1, CLAIMS + 2] {
        let space = space(Mode::Simulated, CLAIMS + 4).unwrap();
        stand(index, index as u32);
        let claim = space.claim(index % CLAIMS);
        for n in [1, 2, 63, 64] {
            let size = n * GRANULE;
            let taken: Vec<usize> = (0..6).map(|_| alloc(space, size)).collect();
            free(space, taken[1]);
            free(space, taken[3]);
            assert_eq!(claim.sizes.load(Relaxed), 1 << (n - 1));
            assert!(space.totals().parked.load(Relaxed));
            assert_eq!(alloc(space, size - 3), taken[3], "{n} granules of index {index}");
            assert_eq!(space.bodies(Body::keeps_nothing), [false], "the other one stays");
            assert_eq!(alloc(space, size), taken[1], "{n} granules of index {index}");
            assert_eq!(claim.sizes.load(Relaxed), 0);
            space.verify();
        }
        assert_eq!(claim.full.load(Relaxed), 0, "parked, and no hole");
        assert_eq!(owners(space), [index as u32 % CLAIMS as u32 + 1]);
        assert_eq!(space.bodies(|body| body.first), [true]);
        let stats = space.stats();
        assert_eq!((stats.smallest, stats.largest), (1, 256));
    }
}

#[test]
fn holes_are_filled_from_their_beginning_the_last_first() {
    let space = fresh();
    let claim = space.claim(0);
    let taken: Vec<usize> = (0..5).map(|_| alloc(space, 330 * GRANULE)).collect();
    // (So that there is a cursor for this size.)
    let last = alloc(space, (FAR as usize + 1) * GRANULE);
    free(space, taken[0]);
    free(space, taken[2]);
    let slot = 1 << slot_of(330);
    assert_eq!(claim.full.load(Relaxed), slot);
    // What is larger is looked for by the bitmap: the lowest. Then that hole is none any more.
    assert_eq!(alloc(space, (FAR as usize + 1) * GRANULE), taken[0]);
    assert_eq!(alloc(space, FAR as usize * GRANULE), taken[2]);
    assert_eq!(claim.full.load(Relaxed), slot | 1 << slot_of(74), "its rest");
    assert_eq!(alloc(space, 42 * GRANULE), taken[2] + 256 * GRANULE);
    assert_eq!(claim.full.load(Relaxed), slot | 1 << slot_of(32));
    assert_eq!(alloc(space, 125), taken[2] + 298 * GRANULE);
    assert_eq!(claim.full.load(Relaxed), slot, "no rest");
    let stats = space.stats();
    assert_eq!((stats.smallest, stats.largest), (125, 1320));
    assert!(alloc(space, 256 * GRANULE) > last, "the first hole is stale");
    assert_eq!(claim.full.load(Relaxed), 0);
    space.verify();
}

#[test]
fn a_long_run_is_remembered_by_as_much_as_a_hole_may_have_and_a_longer_one_not() {
    let space = fresh();
    let taken: Vec<usize> = (0..3).map(|_| alloc(space, 2000 * GRANULE)).collect();
    free(space, taken[1]);
    assert_eq!(space.claim(0).full.load(Relaxed), 1 << slot_of(4 * FAR));
    free(space, taken[0]);
    assert_eq!(space.claim(0).full.load(Relaxed), 1 << slot_of(4 * FAR), "it goes on too far");
    space.verify();
}

/// What an index has freed in a chunk that another has claimed since is not its to take.
#[test]
fn no_index_takes_parked_ones_or_holes_of_a_chunk_that_another_has_claimed() {
    let space = fresh_threads();
    let small: Vec<usize> = (0..6).map(|_| alloc(space, 32)).collect();
    let large: Vec<usize> = (0..6).map(|_| alloc(space, 1200)).collect();
    let first = chunk_of(small[0]);
    alloc(space, UNIT);
    assert_eq!(owners(space), [1, 0], "the first is listed");
    // Nobody's: it may be parked, and taken again.
    stand(1, 1);
    free(space, small[1]);
    free(space, small[3]);
    free(space, large[1]);
    free(space, large[3]);
    assert_eq!(space.claim(1).sizes.load(Relaxed), 1 << 7);
    assert_eq!(space.claim(1).full.load(Relaxed), 1 << slot_of(300));
    assert_eq!(alloc(space, 32), small[3]);
    assert_eq!(alloc(space, 1024), large[3]);
    assert_eq!(owners(space), [1, 0], "by no claim");
    stand(0, 0);
    alloc(space, 64);
    assert_eq!(owners(space), [0, 1], "index 0 has it");
    stand(1, 1);
    let before = space.bodies(|body| body.live);
    for size in [32, 1024] {
        assert_ne!(chunk_of(alloc(space, size)), first, "{size}");
    }
    assert_eq!(space.bodies(|body| body.live)[1..], before);
    // Nor does it park there.
    space.balance();
    free(space, small[5]);
    assert!(space.bodies(Body::keeps_nothing).into_iter().all(|nothing| nothing));
    assert_eq!(space.claim(1).sizes.load(Relaxed), 0);
    space.verify();
}

#[test]
fn a_claim_that_another_has_taken_meanwhile_is_not_used() {
    let space = fresh();
    let first = alloc(space, 64);
    let chunk = space.chunk_claimed(0).unwrap();
    // As if index 6 had taken it since its pointer was read here.
    chunk.body.lock().owner = 7;
    space.claim(6).chunk.store((&raw const *chunk).cast_mut(), Relaxed);
    let second = alloc(space, 64);
    assert_ne!(chunk_of(second), chunk_of(first));
    assert_eq!(owners(space), [1, 7]);
    space.verify();
}

#[test]
fn what_another_thread_of_the_index_has_found_meanwhile_serves_both() {
    let space = fresh();
    between(1, move || _ = alloc(space, 64));
    alloc(space, 7);
    let stats = space.stats();
    assert_eq!((stats.allocs, stats.smallest, stats.largest, stats.chunks), (2, 7, 64, 1));
    space.verify();
}

/// A claim is taken away if its index has allocated nothing between two looks.
#[test]
fn a_claim_in_use_stays() {
    let space = fresh_threads();
    stand(1, 1);
    alloc(space, 64);
    stand(0, 0);
    alloc(space, 64);
    assert_eq!(owners(space), [1, 2], "index 1 has been here since nobody looked");
    stand(1, 1);
    alloc(space, 64);
    stand(0, 0);
    alloc(space, UNIT);
    assert_eq!(owners(space), [1, 0, 2], "and again");
    alloc(space, UNIT);
    assert_eq!(owners(space), [1, 0, 0, 0], "and then no more");
    space.verify();
}

#[test]
fn a_claim_is_given_up_with_nothing_parked() {
    let space = fresh();
    let taken: Vec<usize> = (0..6).map(|_| alloc(space, 32)).collect();
    free(space, taken[1]);
    free(space, taken[3]);
    alloc(space, UNIT);
    assert_eq!(owners(space), [1, 0]);
    assert!(space.bodies(Body::keeps_nothing).into_iter().all(|nothing| nothing));
    space.verify();
    // Also where another chunk has room, so that nobody looks for what is parked.
    let space = fresh();
    let first = alloc(space, 600 * GRANULE);
    alloc(space, UNIT - RESERVED - 600 * GRANULE);
    let taken: Vec<usize> = (0..6).map(|_| alloc(space, 32)).collect();
    alloc(space, UNIT - 192);
    free(space, first);
    free(space, taken[1]);
    free(space, taken[3]);
    assert_eq!(space.bodies(Body::keeps_nothing), [false, true]);
    assert_eq!(alloc(space, 520 * GRANULE), first);
    assert_eq!(owners(space), [0, 1]);
    assert_eq!(space.bodies(Body::keeps_nothing), [true, true]);
    space.verify();
}

/// Of claims without an allocation that are given up one is kept, and the others' chunks go back.
#[test]
fn claims_without_allocations_leave_one_chunk() {
    let space = fresh_threads();
    full_first(space);
    // Both allocate again after they were looked at.
    for index in [1, 2, 1, 2] {
        stand(index, index as u32);
        free(space, alloc(space, UNIT));
    }
    assert_eq!(owners(space), [3, 2, 0]);
    stand(0, 0);
    alloc(space, UNIT);
    assert_eq!(owners(space), [1, 3, 2, 0], "in use, for all that is known");
    alloc(space, UNIT);
    assert_eq!((space.chunk_count(), space.bodies(|body| body.live)), (3, [1, 1, 1].into()));
    space.verify();
}

/// A search that proves less than the slot says moves the chunk there.
#[test]
fn a_chunk_that_holds_less_than_its_slot_says_is_moved() {
    let space = fresh();
    let parts: Vec<usize> = [1000, 4, 1000].map(|n| alloc(space, n * GRANULE)).into();
    alloc(space, UNIT - RESERVED - 2004 * GRANULE);
    alloc(space, UNIT);
    let slot = || space.bodies(|body| (body.slot, body.contig())).last().copied().unwrap();
    assert_eq!(slot(), (slot_of(0), 0), "full");
    free(space, parts[0]);
    assert_eq!(slot(), (slot_of(1000), 1000));
    free(space, parts[2]);
    for expect in [parts[2], parts[2] + 1024, parts[2] + 2048, parts[0]] {
        assert_eq!(alloc(space, 256 * GRANULE), expect, "holes, the smallest first");
    }
    assert_eq!(slot(), (slot_of(1000), 976), "744 and 232");
    alloc(space, 800 * GRANULE);
    assert_eq!(slot(), (slot_of(799), 799));
    assert_ne!(slot_of(799), slot_of(1000));
    space.verify();
}

/// Where a fit is certain comes before the own slot, of which some hold less.
#[test]
fn chunks_above_the_own_slot_are_looked_at_before_it() {
    let space = fresh();
    let first = alloc(space, 600 * GRANULE);
    alloc(space, UNIT - RESERVED - 600 * GRANULE);
    let second = alloc(space, 700 * GRANULE);
    alloc(space, UNIT - 700 * GRANULE);
    alloc(space, UNIT);
    free(space, first);
    free(space, second);
    assert_eq!(slot_of(520), slot_of(600));
    assert_eq!(slot_of(520) + 1, slot_of(700));
    assert_eq!(alloc(space, 520 * GRANULE), second);
    space.verify();
}

#[test]
fn what_is_large_comes_from_a_chunk_without_allocations_first() {
    let space = fresh();
    full_first(space);
    let half = alloc(space, UNIT / 2);
    let whole = alloc(space, UNIT);
    alloc(space, UNIT);
    free(space, whole);
    assert_eq!(chunk_of(alloc(space, 24_576 * GRANULE)), whole);
    assert_eq!(chunk_of(alloc(space, BITS as usize / 2 * GRANULE)), whole);
    assert_eq!(chunk_of(alloc(space, BITS as usize / 2 * GRANULE)), chunk_of(half));
    space.verify();
}

/// Of listed chunks without an allocation one is kept, the others go back and leave their metadata.
#[test]
fn one_chunk_is_kept_and_the_others_leave_their_metadata() {
    let space = fresh();
    full_first(space);
    let many: Vec<usize> = (0..200).map(|_| alloc(space, 1300)).collect();
    let wholes: Vec<usize> = (0..3).map(|_| alloc(space, UNIT)).collect();
    let (metadata, most) = (space.stats().metadata, space.stats().chunks_most);
    assert_eq!((space.chunk_count(), most), (5, 5));
    free(space, wholes[0]);
    assert_eq!(space.chunk_count(), 5, "kept");
    space.verify();
    many.into_iter().for_each(|at| free(space, at));
    space.verify();
    free(space, wholes[1]);
    assert_eq!(space.chunk_count(), 3, "the first, the kept and the claimed one");
    space.verify();
    for (whole, known) in [(wholes[0], true), (wholes[1], false), (wholes[2], true)] {
        assert_eq!(space.memory.chunk_of(whole).is_some(), known);
    }
    let stats = space.stats();
    assert_eq!((stats.allocs, stats.frees, stats.live), (204, 202, 2));
    assert_eq!((stats.smallest, stats.largest, stats.chunks, stats.chunks_most), (1300, UNIT as u32, 3, 5));
    assert_eq!(alloc(space, UNIT), wholes[0], "the kept one");
    alloc(space, UNIT);
    assert_eq!((space.chunk_count(), space.stats().metadata), (4, metadata));
    space.verify();
    // A chunk that cannot be mapped leaves its metadata, too.
    space.memory.refuse.store(Memory::REFUSE_MAP, Relaxed);
    let metadata: Vec<usize> = (0..4)
        .map(|_| {
            assert_eq!(space.alloc(UNIT, 4, How::Normal), Err(Error::Exhausted));
            space.stats().metadata
        })
        .collect();
    assert!(metadata.iter().all(|&bytes| bytes == metadata[0]), "{metadata:?}");
    space.verify();
}

/// A hole in a chunk that has no allocation any more is left alone: the chunk may be given back.
#[test]
fn no_hole_is_filled_in_a_chunk_without_allocations() {
    let space = fresh();
    full_first(space);
    let taken: Vec<usize> = (0..3).map(|_| alloc(space, 1200)).collect();
    alloc(space, UNIT);
    for at in [1, 0, 2] {
        free(space, taken[at]);
    }
    assert_ne!(space.claim(0).full.load(Relaxed), 0, "a hole is remembered");
    space.verify();
    assert_eq!(chunk_of(alloc(space, 1000)), chunk_of(taken[0]));
    assert_eq!(owners(space), [0, 1, 0], "claimed, not entered by the hole");
    space.verify();
}

/// A free that moves a listed chunk does so, and nothing else.
#[test]
fn a_free_that_moves_a_chunk_leaves_what_is_parked_elsewhere() {
    let space = fresh();
    let listed: Vec<usize> = (0..3).map(|_| alloc(space, 400)).collect();
    alloc(space, UNIT - RESERVED - 1200);
    let taken: Vec<usize> = (0..3).map(|_| alloc(space, 32)).collect();
    free(space, taken[1]);
    let slot = || space.bodies(|body| body.slot).last().copied();
    assert_eq!(slot(), Some(slot_of(0)));
    free(space, listed[1]);
    assert_eq!(slot(), Some(slot_of(100)));
    assert_eq!(space.bodies(Body::keeps_nothing), [false, true]);
    space.verify();
    // What was parked in a listed chunk moves it when it is settled.
    free(space, alloc(space, 32));
    space.verify();
    space.balance();
    assert!(!space.totals().parked.load(Relaxed));
    assert!(space.bodies(Body::keeps_nothing).into_iter().all(|nothing| nothing));
    space.verify();
}

/// A chunk that was listed when a free looked, and has been claimed since, stays where it is.
#[test]
fn a_chunk_that_is_claimed_meanwhile_is_not_moved() {
    let space = fresh();
    full_first(space);
    free(space, alloc(space, UNIT));
    let chunk = space.chunk_claimed(0).unwrap();
    space.follow_free(chunk);
    assert_eq!(owners(space), [1, 0]);
    space.verify();
}

#[test]
fn what_is_parked_in_a_listed_chunk_moves_it_when_it_is_freed() {
    let space = fresh();
    let listed: Vec<usize> = (0..3).map(|_| alloc(space, 160)).collect();
    alloc(space, UNIT - RESERVED - 480);
    alloc(space, UNIT);
    free(space, listed[1]);
    let slot = || space.bodies(|body| body.slot).last().copied();
    assert_eq!((slot(), space.bodies(Body::keeps_nothing)), (Some(slot_of(0)), [true, false].into()));
    space.balance();
    assert_eq!((slot(), space.bodies(Body::keeps_nothing)), (Some(slot_of(40)), [true, true].into()));
    space.verify();
}

#[test]
fn a_balance_waits_for_a_chunk_that_somebody_holds() {
    let space = fresh_threads();
    let taken: Vec<usize> = (0..3).map(|_| alloc(space, 32)).collect();
    free(space, taken[1]);
    let held = space.chunk_claimed(0).unwrap().body.lock();
    crate::tests::threads::scope(|scope| {
        let other = scope.spawn(move || {
            stand(1, 1);
            space.balance()
        });
        // (Time to come to the lock. If it does not, it finds the chunk free, and all the same.)
        std::thread::sleep(std::time::Duration::from_millis(10));
        drop(held);
        assert!(other.join().is_ok());
    });
    assert_eq!(space.bodies(Body::keeps_nothing), [true]);
}

#[test]
fn bad_frees_beside_the_reserved_region_are_told_apart() {
    let space = fresh();
    let reserved = alloc_how(space, 100, How::Reserved);
    let first = alloc(space, 100);
    assert_eq!(chunk_of(first), chunk_of(reserved));
    free(space, reserved);
    // SAFETY: refused.
    assert_eq!(unsafe { space.free(reserved) }, Err(BadPointer::Double));
    // SAFETY: refused.
    assert_eq!(unsafe { space.free(chunk_of(reserved) + UNIT) }, Err(BadPointer::Foreign));
    assert_eq!(space.claim(0).sizes.load(Relaxed), 0, "what is reserved is not parked");
    multithreaded();
    space.verify();
}

/// Without memory for another chunk there is what others have claimed, in use or not.
#[test]
fn the_last_memory_is_what_others_have_claimed() {
    let space = fresh_threads();
    stand(1, 1);
    let own = alloc(space, 64);
    space.memory.refuse.store(Memory::REFUSE_MAP, Relaxed);
    stand(0, 0);
    let other = alloc(space, 5);
    assert_eq!((chunk_of(other), owners(space)), (chunk_of(own), [2].into()));
    assert_eq!(space.stats().smallest, 5);
    space.verify();
}

#[test]
fn many_are_freed_and_each_wrong_one_is_told() {
    let space = fresh();
    let mut addresses: Vec<usize> = (0..30).map(|at| alloc(space, 40 + at)).collect();
    let (wrong, twice) = (64, addresses[3]);
    addresses.insert(7, wrong);
    addresses.push(twice);
    let mut bad = Vec::new();
    // SAFETY: nobody uses them; the wrong ones are refused.
    unsafe { space.free_bulk(&addresses, |address, why| bad.push((address, why))) };
    assert_eq!(bad, [(wrong, BadPointer::Foreign), (twice, BadPointer::Double)]);
    assert_eq!(space.stats().live, 0);
    space.verify();
}
