//! What takes, frees and parks count: allocations, pages, what is dirty, what is left to do.

extern crate std;

use super::made::{Made, full, made};
use crate::arch::atomic::Ordering::Relaxed;
use crate::percpu::chunk::{BITS, Body, Chunk, NO_SLOT, PAGE_BITS, PAGES, PARKED};
use crate::percpu::totals::DRIFT;
use crate::percpu::units::UNIT;
use crate::stat::BadPointer;
use std::vec;
use std::vec::Vec;

/// A page's bit.
fn bit(page: u32) -> u64 {
    1 << page
}

#[test]
fn live_allocations_are_told_when_they_have_moved_far_enough() {
    let Made { chunk, totals } = made(0);
    let mut body = chunk.body.lock();
    let (mut live, mut told, mut most) = (0_i64, 0_i64, 0_i64);
    let mut starts = vec![];
    for (count, up) in [(300, true), (280, false), (400, true), (1, false), (420, false), (130, true)] {
        for _ in 0..count.min(if up { usize::MAX } else { starts.len() }) {
            if up {
                let taken = body.take(1, 0, &totals);
                starts.extend(taken.map(|taken| body.granule(taken)));
                live += 1;
            } else if let Some(start) = starts.pop() {
                body.give(start, start + 1, &totals);
                live -= 1;
            }
            if (live - told).abs() > i64::from(DRIFT) {
                told = live;
                most = most.max(told);
            }
            assert_eq!(totals.live().load(Relaxed) as i64, told, "{live} are live");
            assert_eq!(totals.live_most().load(Relaxed) as i64, most, "{live} are live");
        }
    }
    assert_eq!(i64::from(body.live), live);
    body.fold(&totals);
    assert_eq!(totals.live().load(Relaxed) as i64, live);
    assert_eq!(totals.live_most().load(Relaxed) as i64, most);
}

#[test]
fn the_smallest_and_largest_sizes_are_noted() {
    let Made { chunk, .. } = made(0);
    let mut body = chunk.body.lock();
    for (size, sizes) in [(20, (20, 20)), (20, (20, 20)), (9, (9, 20)), (15, (9, 20)), (21, (9, 21)), (8, (8, 21))] {
        body.note_size(size);
        assert_eq!((body.smallest, body.largest), sizes);
    }
}

#[test]
fn an_address_is_found_only_where_something_live_begins() {
    let Made { chunk, totals } = made(0);
    let mut body = chunk.body.lock();
    assert_eq!(Chunk::new().body.lock().find(64), Err(BadPointer::Foreign), "without memory");
    assert!(body.take(100, 0, &totals).is_some());
    let at = body.base;
    assert_eq!(body.find(at), Ok((0, 100)));
    for foreign in [at - 4, at + UNIT, at + UNIT + 4, at + 16 * UNIT, 0, 64] {
        assert_eq!(body.find(foreign), Err(BadPointer::Foreign), "{foreign:#x}");
    }
    assert_eq!(body.find(at + UNIT - 4), Err(BadPointer::Double));
    assert_eq!(body.find(at + 4), Err(BadPointer::Interior));
}

#[test]
fn what_is_parked_keeps_its_place_until_it_is_taken() {
    let Made { chunk, totals } = made(64);
    let mut body = chunk.body.lock();
    let starts: Vec<u32> = (0..PARKED as u32 + 4).map(|at| 64 + 8 * at).collect();
    for &start in &starts {
        body.put(start, 8, &totals);
    }
    assert!(body.take_reserved(8, 0, &totals).is_some());
    assert_eq!(body.park(0, 8, &totals), None, "of the reserved region");
    for (place, &start) in starts[..PARKED].iter().enumerate() {
        assert_eq!(body.park(start, 8, &totals), Some(place));
    }
    assert_eq!(body.park(starts[PARKED], 8, &totals), None, "there is no room");
    let allocs = body.allocs;
    let address = body.address(starts[3]);
    for (address, place, n) in [
        (address, 2, 8),
        (address, 3, 7),
        (address + 4, 3, 8),
        (address + UNIT, 3, 8),
        (address + (1 << 26), 3, 8),
        (address - 8 * UNIT, 3, 8),
        (64, 3, 8),
    ] {
        assert_eq!(body.unpark(address, place, n, &totals), None, "{address:#x} {place} {n}");
    }
    let taken = body.unpark(address, 3, 8, &totals);
    assert_eq!(taken.map(|taken| (taken.address(), taken.dirty, taken.low())), Some((address, bit(0), false)));
    assert_eq!((body.allocs, body.live), (allocs + 1, 4 + 2));
    assert_eq!(body.park(starts[PARKED], 8, &totals), Some(3));
    let (address, place) = (body.address(starts[PARKED]), PARKED + 3);
    assert!(body.unpark(address, place, 8, &totals).is_some(), "whatever a claim remembers is a place");
    // A free of another leaves it parked; the last one's frees all of it.
    let kept = body.kept();
    body.give(starts[PARKED + 1], starts[PARKED + 1] + 8, &totals);
    assert_eq!((body.kept(), body.live), (kept, 5));
    for &start in [starts[3], starts[PARKED], starts[PARKED + 2], starts[PARKED + 3]].iter() {
        body.give(start, start + 8, &totals);
        assert_eq!(body.kept(), kept);
        body.verify(&body.live());
    }
    assert_eq!(body.park(0, 8, &totals), None, "the last one");
    body.give(0, 8, &totals);
    assert_eq!((body.kept(), body.live), (0, 0));
    body.verify(&[]);
}

/// The last free of a listed chunk asks for its move; that of any other does not.
#[test]
fn a_chunk_without_allocations_is_moved_if_it_is_listed() {
    for (slot, others, relocate) in [(5, 0, true), (NO_SLOT, 0, false), (5, 1, false), (NO_SLOT, 1, false)] {
        let Made { chunk, totals } = made(0);
        let mut body = chunk.body.lock();
        (0..=others).for_each(|_| assert!(body.take(100, 0, &totals).is_some()));
        (body.slot, body.raise_at) = (slot, u32::MAX);
        let after = body.give(0, 100, &totals);
        assert_eq!((after.relocate, after.balance), (relocate, others == 0), "in {slot} with {others} others");
        assert_eq!(after.any(), others == 0);
    }
}

#[test]
fn a_balance_is_asked_for_when_too_many_pages_are_empty() {
    let Made { chunk, totals } = made(0);
    let mut body = chunk.body.lock();
    totals.empty_most.store(3, Relaxed);
    let take = |body: &mut Body, page: u32| {
        body.put(page * PAGE_BITS, 8, &totals);
        page * PAGE_BITS
    };
    let starts: Vec<u32> = (1..9).map(|page| take(&mut body, page)).collect();
    for (at, balance) in [(0, false), (1, false), (2, false), (3, true)] {
        assert_eq!(body.give(starts[at], starts[at] + 8, &totals).balance, balance, "the page {at}");
        assert_eq!(totals.empty().load(Relaxed), at as isize + 1);
    }
    // What is parked asks, too, when it is freed.
    totals.empty_most.store(5, Relaxed);
    assert!(body.park(starts[4], 8, &totals).is_some() && body.park(starts[5], 8, &totals).is_some());
    assert!(body.free_parked(&totals), "the sixth");
    assert!(!body.free_parked(&totals), "there is nothing");
    totals.empty_most.store(7, Relaxed);
    assert!(body.park(starts[6], 8, &totals).is_some());
    assert!(body.give(starts[7], starts[7] + 8, &totals).balance, "the eighth is that of what was parked");
    body.verify(&[]);
}

#[test]
fn a_page_is_dirty_from_a_free_in_it_until_it_goes_back() {
    let Made { chunk, totals } = made(0);
    let mut body = chunk.body.lock();
    let whole = 3 * PAGE_BITS;
    let take = |body: &mut Body, n: u32| body.take(n, 0, &totals).map(|taken| taken.dirty);
    assert_eq!(take(&mut body, whole), Some(0), "fresh");
    body.give(0, whole, &totals);
    assert_eq!(take(&mut body, PAGE_BITS + 8), Some(0b11), "only its own pages");
    assert_eq!(take(&mut body, 2 * PAGE_BITS), Some(0b110), "and a fresh one");
    body.give(PAGE_BITS + 8, 3 * PAGE_BITS + 8, &totals);
    body.give(0, PAGE_BITS + 8, &totals);
    assert_eq!((body.empty_pages(), body.bare_pages()), (0b1111, u64::MAX << 4));
    body.depopulated(0b1000, false, &totals);
    body.depopulated(0b0010, true, &totals);
    assert_eq!((body.empty_pages(), body.bare_pages()), (0b1101, u64::MAX << 4 | 0b10));
    assert_eq!((body.empty, totals.empty().load(Relaxed)), (3, 3));
    assert_eq!(take(&mut body, 5 * PAGE_BITS), Some(0b1101));
    assert_eq!(body.bare_pages(), u64::MAX << 5);
    body.verify(&[(0, 5 * PAGE_BITS)]);
}

/// Who enters an empty page hears when fewer are left than shall be kept.
#[test]
fn an_entered_page_is_told_of_when_few_are_left() {
    let Made { chunk, totals } = made(0);
    let mut body = chunk.body.lock();
    body.repopulated(0b1111, &totals);
    let take = |body: &mut Body, n: u32| {
        let taken = body.take(n, 0, &totals)?;
        assert_eq!((taken.without_low().address(), taken.without_low().low()), (taken.address(), false));
        Some(taken.low())
    };
    assert_eq!(take(&mut body, PAGE_BITS), Some(false), "nobody wants any");
    totals.empty_least.store(2, Relaxed);
    assert_eq!(totals.empty().load(Relaxed), 3);
    assert_eq!(take(&mut body, 8), Some(false), "two are left");
    assert_eq!(take(&mut body, 8), Some(false), "entered before");
    assert_eq!(take(&mut body, PAGE_BITS), Some(true), "one is left");
    assert_eq!(take(&mut body, 8), Some(false), "entered before");
    assert_eq!(take(&mut body, PAGE_BITS), Some(true), "none is");
}

#[test]
fn populated_pages_are_taken_to_the_last_granule() {
    let mut made = full(&[0, PAGE_BITS, 3 * PAGE_BITS, BITS]);
    let Made { chunk, totals } = &mut made;
    let mut body = chunk.body.lock();
    body.give(PAGE_BITS, 3 * PAGE_BITS, totals);
    assert_eq!(body.contig(), 2 * PAGE_BITS);
    assert_eq!(body.take_populated(2 * PAGE_BITS + 1, 0, totals), None);
    let taken = body.take_populated(2 * PAGE_BITS, 0, totals);
    assert_eq!(taken.map(|taken| body.granule(taken)), Some(PAGE_BITS));
    body.give(PAGE_BITS, 3 * PAGE_BITS, totals);
    body.depopulated(bit(1), true, totals);
    assert_eq!(body.take_populated(PAGE_BITS + 1, 0, totals), None, "one of them is bare");
    let taken = body.take_populated(PAGE_BITS, 0, totals);
    assert_eq!(taken.map(|taken| body.granule(taken)), Some(2 * PAGE_BITS));
    // The last page of a unit.
    body.give(3 * PAGE_BITS, BITS, totals);
    body.depopulated(u64::MAX << 3 & !bit(PAGES - 1), true, totals);
    let taken = body.take_populated(PAGE_BITS, 0, totals);
    assert_eq!(taken.map(|taken| body.granule(taken)), Some(BITS - PAGE_BITS));
    body.verify(&body.live());
}

/// Pages of the reserved region are never among the empty ones: not when they are entered again either.
#[test]
fn a_reserved_page_is_entered_again_without_being_counted() {
    let Made { chunk, totals } = made(2 * PAGE_BITS);
    let mut body = chunk.body.lock();
    for _ in 0..3 {
        assert!(body.take_reserved(2 * PAGE_BITS, 0, &totals).is_some());
        assert_eq!(body.take_reserved(1, 0, &totals), None);
        assert!(!body.give(0, 2 * PAGE_BITS, &totals).any());
        assert_eq!((body.empty, totals.empty().load(Relaxed)), (0, 0));
        body.verify(&[]);
    }
}
