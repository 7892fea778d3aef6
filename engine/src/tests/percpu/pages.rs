//! Which pages are filled, given back and written, and what asks for it.

extern crate std;

use super::ways::{alloc, alloc_how, chunk_of, fresh_threads, full_first, owners};
use super::{free, fresh};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::percpu::chunk::{Body, PAGES};
use crate::percpu::memory::Memory;
use crate::percpu::space::{Balanced, EMPTY_LEAST, Error, HIGH, How, LOW, RESERVED, Space};
use crate::percpu::units::UNIT;
use crate::tests::units::stand;
use std::vec::Vec;

/// Whether a page of index 0's copy has memory.
fn is_resident(at: usize) -> bool {
    let mut resident = 0_u8;
    // SAFETY: fills a byte for the one page.
    assert_eq!(unsafe { libc::mincore((at + UNIT) as *mut libc::c_void, PAGE, &raw mut resident) }, 0);
    resident & 1 == 1
}

fn balanced(depopulated: usize, populated: usize) -> Balanced {
    Balanced { depopulated, populated }
}

#[test]
fn clean_pages_are_not_written() {
    let space = fresh();
    space.units.raise(0);
    let small = alloc(space, 64);
    assert!(!is_resident(small & !(PAGE - 1)));
    let page = alloc(space, PAGE);
    let beside = alloc(space, PAGE - 64);
    assert_eq!((page, beside), (small + 64, small + 64 + PAGE));
    assert_eq!(small % PAGE, 0);
    // The third page is clean, the second dirty.
    free(space, beside);
    let crossing = alloc(space, 2 * PAGE - 64);
    assert_eq!(crossing, beside);
    assert!(is_resident(small + PAGE));
    assert!(!is_resident(small + 2 * PAGE));
    space.verify();
}

/// What crosses pages is zeroed to its last byte and no further, in each unit in use.
#[test]
fn dirty_pages_are_zeroed_for_the_allocation_and_not_for_its_neighbours() {
    let space = fresh();
    space.units.raise(1);
    let sizes = [4, 8, 12, 16, 20, 28, 32, 36, 100, 300, PAGE, 3 * PAGE + 8, 40];
    let taken = sizes.map(|size| (alloc(space, size), size));
    let fill = |byte: u8, (at, size): (usize, usize)| {
        // SAFETY: live copies.
        (1..3).for_each(|unit| unsafe { ((at + unit * UNIT) as *mut u8).write_bytes(byte, size) });
    };
    let holds = |byte: u8, (at, size): (usize, usize)| {
        // SAFETY: live copies.
        let bytes = |unit: usize| unsafe { core::slice::from_raw_parts((at + unit * UNIT) as *const u8, size) };
        (1..3).all(|unit| bytes(unit).iter().all(|&now| now == byte))
    };
    taken.into_iter().for_each(|one| fill(7, one));
    for (number, &(at, size)) in taken.iter().enumerate().rev() {
        free(space, at);
        let again = (alloc(space, size), size);
        assert_eq!(again.0, at, "{size}");
        assert!(holds(0, again), "{size}");
        let others = taken.iter().enumerate().filter(|(other, _)| *other < number);
        others.for_each(|(_, &other)| assert!(holds(7, other), "beside {size}"));
    }
}

/// A chunk gives its empty pages if they are a quarter of it, and enough are elsewhere.
#[test]
fn a_balance_takes_a_quarter_of_a_chunk_if_enough_are_elsewhere() {
    let space = fresh();
    alloc(space, 8);
    assert_eq!(space.totals().empty_most.load(Relaxed), EMPTY_LEAST);
    alloc(space, UNIT - RESERVED - 8);
    let pages: Vec<usize> = (0..3 * PAGES).map(|_| alloc(space, PAGE)).collect();
    let chunks: Vec<&[usize]> = pages.chunks(PAGES as usize).collect();
    assert_eq!(owners(space), [1, 0, 0, 0]);
    let of = |at: usize| space.bodies(|body| body.empty)[2 - at];
    let most = |rest: isize| assert_eq!(space.totals().empty_most.load(Relaxed), rest + EMPTY_LEAST);
    let quarter = PAGES as usize / 4;
    let frees = |at: usize, pages: core::ops::Range<usize>| chunks[at][pages].iter().for_each(|&at| free(space, at));
    frees(0, 0..quarter);
    frees(1, 0..HIGH as usize);
    assert_eq!((of(0), of(1), of(2)), (16, 4, 0));
    assert_eq!(space.balance(), balanced(0, 0), "too few are elsewhere");
    most(20);
    frees(2, 0..1);
    space.memory.refuse.store(Memory::REFUSE_DONT_NEED, Relaxed);
    assert_eq!(space.balance(), balanced(0, 0), "refused");
    assert_eq!((of(0), of(1), of(2)), (16, 4, 1));
    space.memory.refuse.store(0, Relaxed);
    assert_eq!(space.balance(), balanced(16, 0));
    assert_eq!((of(0), of(1), of(2)), (0, 4, 1));
    most(5);
    frees(0, quarter..2 * quarter - 1);
    frees(1, HIGH as usize..quarter);
    assert_eq!((of(0), of(1), of(2)), (15, 16, 1));
    assert_eq!(space.balance(), balanced(16, 0), "less than a quarter stays");
    assert_eq!((of(0), of(1), of(2)), (15, 0, 1));
    most(16);
    space.verify();
}

#[test]
fn the_first_chunk_keeps_its_pages() {
    let space = fresh();
    let parts: Vec<usize> = (0..(UNIT - RESERVED) / PAGE).map(|_| alloc(space, PAGE)).collect();
    let pages: Vec<usize> = (0..PAGES).map(|_| alloc(space, PAGE)).collect();
    parts[..30].iter().chain(&pages[..10]).for_each(|&at| free(space, at));
    assert_eq!(space.bodies(|body| body.empty), [10, 30]);
    assert_eq!(space.balance(), balanced(0, 0));
    assert_eq!(space.bodies(|body| body.empty), [10, 30]);
    space.verify();
}

/// An eighth of what is populated may be empty, without the chunks that are gone.
#[test]
fn empty_pages_are_as_many_as_an_eighth_of_those_populated() {
    let space = fresh();
    full_first(space);
    let wholes: Vec<usize> = (0..12).map(|_| alloc(space, UNIT)).collect();
    assert_eq!(space.balance(), Balanced::default());
    let populated = (62 + 12 * PAGES) as isize;
    assert_eq!(space.totals().empty_most.load(Relaxed), populated / 8);
    wholes[4..7].iter().for_each(|&at| free(space, at));
    assert_eq!(space.chunk_count(), 11, "two are gone, one is kept");
    space.balance();
    let kept = space.bodies(|body| body.empty).into_iter().sum::<u32>() as isize;
    assert_eq!(kept, 64);
    assert_eq!(space.totals().empty_most.load(Relaxed), kept + (populated - 128) / 8);
    space.verify();
}

#[test]
fn pages_are_filled_when_somebody_wants_them_and_no_more_than_enough() {
    let space = fresh();
    space.units.raise(0);
    full_first(space);
    // One that is gone, with a page that was populated.
    alloc(space, UNIT);
    let one = alloc(space, 400);
    let two = alloc(space, UNIT);
    alloc(space, UNIT);
    free(space, two);
    free(space, one);
    assert_eq!((space.chunk_count(), space.stats().empty_pages), (4, 64));
    assert_eq!(chunk_of(alloc(space, UNIT)), two);
    let part = alloc(space, 400);
    assert_eq!(space.stats().empty_pages, 0);
    assert_eq!(space.balance(), balanced(0, 0), "nobody wants any");
    assert_eq!(space.alloc(2 * PAGE, 4, How::Populated), Err(Error::Exhausted));
    assert_eq!(space.totals().empty_least.load(Relaxed), LOW);
    space.memory.refuse.store(Memory::REFUSE_POPULATE, Relaxed);
    assert_eq!(space.balance(), balanced(0, 0), "refused");
    space.memory.refuse.store(0, Relaxed);
    assert_eq!(space.balance(), balanced(0, HIGH as usize));
    assert_eq!(space.stats().empty_pages, HIGH as usize);
    assert_eq!(space.balance(), balanced(0, 0));
    let base = chunk_of(part);
    let resident = (0..PAGES as usize).filter(|page| is_resident(base + page * PAGE)).collect::<Vec<_>>();
    assert_eq!(resident, [60, 61, 62, 63]);
    space.verify();
}

#[test]
fn pages_of_chunks_that_are_gone_are_not_filled() {
    let space = fresh();
    space.units.raise(0);
    full_first(space);
    let kept = alloc(space, UNIT);
    let half = alloc(space, UNIT / 2);
    let gone = alloc(space, UNIT / 2 + PAGE);
    alloc(space, UNIT);
    free(space, kept);
    free(space, gone);
    assert!(space.memory.chunk_of(gone).is_none());
    assert_eq!(alloc(space, UNIT), kept);
    assert_eq!((space.chunk_count(), space.stats().empty_pages), (4, 0));
    space.totals().empty_least.store(LOW, Relaxed);
    // A walk comes by the one that is gone, which has bare pages, before the one that can be filled.
    assert_eq!(space.balance(), balanced(0, HIGH as usize));
    let resident = (0..PAGES as usize).filter(|page| is_resident(chunk_of(half) + page * PAGE));
    assert_eq!(resident.collect::<Vec<_>>(), [60, 61, 62, 63]);
    space.verify();
}

/// Without waiting and without the system: from the own claim, from what is parked, from the kept chunk.
#[test]
fn populated_ones_come_from_the_own_claim_first() {
    let space = fresh_threads();
    let first = alloc(space, 64);
    stand(1, 1);
    let own = alloc(space, 64);
    assert_ne!(chunk_of(own), chunk_of(first));
    assert_eq!(alloc_how(space, 3, How::Populated), own + 64);
    assert_eq!(space.stats().smallest, 3);
    stand(0, 0);
    assert_eq!(alloc_how(space, 800, How::Populated), first + 64);
    assert_eq!(alloc_how(space, 900, How::Reserved), chunk_of(first));
    assert_eq!(space.stats().largest, 900);
    stand(2, 2);
    assert_eq!(chunk_of(alloc_how(space, 64, How::Populated)), chunk_of(first), "others' when there is nothing else");
    space.verify();
}

#[test]
fn populated_ones_come_from_what_is_parked() {
    let space = fresh();
    let parts: Vec<usize> = (0..(UNIT - RESERVED) / 256).map(|_| alloc(space, 256)).collect();
    parts[32..48].iter().for_each(|&at| free(space, at));
    assert_eq!(space.bodies(Body::keeps_nothing), [false]);
    assert_eq!(parts[32] % PAGE, 0);
    assert_eq!(alloc_how(space, PAGE, How::Populated), parts[32]);
    assert_eq!(space.chunk_count(), 1);
    space.verify();
}

#[test]
fn populated_ones_come_from_listed_chunks_and_the_kept_one_last() {
    let space = fresh();
    full_first(space);
    let pages: Vec<usize> = (0..PAGES).map(|_| alloc(space, PAGE)).collect();
    let kept = alloc(space, UNIT);
    alloc(space, UNIT);
    free(space, kept);
    free(space, pages[5]);
    assert_eq!(owners(space), [1, 0, 0, 0]);
    space.verify();
    assert_eq!(alloc_how(space, PAGE, How::Populated), pages[5]);
    space.verify();
    let one = alloc_how(space, PAGE, How::Populated);
    assert_eq!(chunk_of(one), kept);
    space.verify();
    free(space, one);
    space.verify();
    assert_eq!(space.chunk_count(), 4);
}

/// A thread that must not wait goes past what another holds, and what is parked there stays for the next look.
#[test]
fn populated_ones_wait_for_nobody() {
    let space: &'static Space = fresh_threads();
    let taken: Vec<usize> = (0..3).map(|_| alloc(space, 32)).collect();
    free(space, taken[1]);
    let held = space.chunk_claimed(0).unwrap().body.lock();
    let (tell, hear) = std::sync::mpsc::channel();
    crate::tests::threads::spawn(move || {
        stand(0, 0);
        let _ = tell.send(space.alloc(32, 4, How::Populated));
    });
    let heard = hear.recv_timeout(std::time::Duration::from_secs(20));
    assert_eq!(heard, Ok(Err(Error::Exhausted)), "it waits for a lock");
    assert!(space.totals().parked.load(Relaxed), "something is parked still");
    drop(held);
    assert_eq!(alloc_how(space, 32, How::Populated), taken[2] + 32);
    space.balance();
    assert_eq!(space.bodies(Body::keeps_nothing), [true]);
}
