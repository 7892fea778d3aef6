//! What is given back, to the byte: by a free, by a slice, until a limit is kept, and all of it.

use super::*;
use crate::arch::atomic::Ordering::SeqCst;
use crate::arch::sys::fault;
use crate::page::windows::WINDOW_PAGES;
use crate::reclaim::policy::{HELP, HELP_MORE};
use crate::reclaim::tests::{MIB, Rig, queued};

const M: u64 = MIB as u64;
/// Pages of what waits to be given back: no area that the ballast would be.
const QUEUED: usize = WINDOW_PAGES * 3 / 4;

/// Nobody looks later: a free gives back what passes the limit.
fn alone(rig: &Rig) {
    rig.set(Id::IdleSeconds, 0);
}
/// In use as much as ever, so that only the floor counts.
fn ballast(rig: &Rig) {
    rig.heap.vmap().alloc(WINDOW_PAGES * PAGE, PAGE).unwrap();
    rig.set(Id::LazyShare, 1024);
}
/// So many bytes may stay.
fn let_stay(rig: &Rig, bytes: u64) {
    rig.set(Id::LazyFloor, bytes);
    assert_eq!(rig.mm().limit(), bytes);
}

#[test]
fn what_may_stay_is_what_the_policy_says_of_the_heaps_numbers() {
    let rig = Rig::new(1, 1);
    let (mm, board) = (rig.mm(), rig.heap.cache.sets.board());
    rig.lazy(4, 40 * MIB);
    rig.dirty(3, 10);
    let idle = board.level(Level::Lazy) + board.level(Level::PagesDirty);
    assert!(mm.idle() == idle && board.level(Level::Lazy) > 0 && board.level(Level::PagesDirty) >= 12 * M);
    assert_eq!(mm.free_resident(), rig.level(Level::Lazy) + rig.level(Level::PagesDirty));
    // What was in use a moment ago.
    let in_use = board.in_use();
    board.set(Level::Recent, in_use + 300 * M);
    assert_eq!(rig.heap.reclaim.highs.look(board, mm.window(), in_use) - in_use, 300 * M);
    let rules = Rules { share: 3, floor: M, ceiling: 1 << 40, soft: None };
    let now = |is_alone| Use { in_use, below_recent: 300 * M, given: 0, busy: 0, is_alone };
    let expected = |is_alone| policy::may_stay(now(is_alone), rules, || 1);
    assert_eq!(mm.limit(), expected(false));
    assert_eq!(mm.is_passed(), idle > expected(false));
    assert_eq!(mm.sparse(), policy::sparse(policy::is_much(idle, expected(false))));
    for (knob, value) in [(Id::LazyShare, 7), (Id::LazyFloor, 1 << 32), (Id::LazyCeiling, 5 * M)] {
        rig.set(knob, value);
        let rules = Rules {
            share: if knob == Id::LazyShare { value } else { 3 },
            floor: if knob == Id::LazyFloor { value } else { M },
            ceiling: if knob == Id::LazyCeiling { value } else { 1 << 40 },
            soft: None,
        };
        assert_eq!(mm.limit(), policy::may_stay(now(false), rules, || rig.heap.reclaim.cpus()), "{knob:?}");
        rig.set(knob, crate::knob::TABLE[knob as usize].default);
    }
    let soft = board.held() + 30 * M;
    rig.set(Id::SoftLimit, soft);
    let busy = board.held() - idle;
    assert_eq!(mm.limit(), policy::may_stay(Use { busy, ..now(false) }, Rules { soft: Some(soft), ..rules }, || 1));
    // Near it, where the policy would leave more.
    let soft = busy / 27 * 32;
    rig.set(Id::SoftLimit, soft);
    let room = policy::may_stay(Use { busy, ..now(false) }, Rules { soft: Some(soft), ..rules }, || 1);
    assert!(mm.limit() == room && (soft / 64..soft / 20).contains(&room), "{room} of {soft}");
    rig.set(Id::SoftLimit, 0);
    // Without a keeper.
    assert!(!mm.is_alone());
    alone(&rig);
    assert!(mm.is_alone() && mm.limit() == expected(true));
    rig.set(Id::IdleSeconds, 5);
    rig.heap.reclaim.keeper.refused(0);
    assert!(mm.is_alone() && mm.limit() == expected(true));
    // Memory is short; nothing is allowed any more.
    rig.heap.reclaim.set_short(true);
    assert_eq!((mm.limit(), mm.is_passed(), mm.sparse()), (0, true, 32 << 20));
    rig.heap.reclaim.freeze();
    assert_eq!((mm.limit(), mm.is_passed()), (u64::MAX, false));
}

#[test]
fn nothing_is_no_more_than_nothing() {
    let rig = Rig::new(1, 1);
    rig.heap.reclaim.set_short(true);
    let mm = rig.mm();
    assert_eq!((mm.idle(), mm.limit(), mm.is_passed(), mm.sparse()), (0, 0, false, 1 << 20));
}

#[test]
fn a_free_leaves_to_workers_what_they_were_called_for() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    let manned = |threshold: u64| {
        rig.set(Id::AsyncFreeThreshold, threshold);
        mm.is_manned()
    };
    assert!(!manned(0) && !manned(1));
    queued(&rig, QUEUED);
    let backlog = rig.heap.areas.backlog() as u64;
    assert!(!manned(1) && !manned(0), "nobody is there");
    assert!(rig.heap.reclaim.workers.claim(1));
    assert!(manned(1) && manned(backlog) && !manned(backlog + 1) && !manned(0));
    // The limit is passed, but not by far.
    let idle = mm.idle();
    ballast(&rig);
    let_stay(&rig, idle - 20 * M);
    manned(1);
    mm.check(0);
    assert_eq!(rig.heap.areas.backlog() as u64, backlog);
    // Who takes much helps all the same, and so does who comes where nobody is.
    mm.check(HELP_MORE);
    let (took, page) = (backlog - rig.heap.areas.backlog() as u64, PAGE as u64);
    assert!((20 * M / page..WINDOW_PAGES as u64 / 4).contains(&took), "{took}");
    rig.heap.reclaim.workers.unclaim();
    let before = rig.heap.areas.backlog();
    let_stay(&rig, mm.idle() - M);
    mm.check(0);
    let took = (before - rig.heap.areas.backlog()) * PAGE;
    assert!((HELP..=HELP + 2 * MIB).contains(&took), "{took}");
    rig.heap.vmap().purge(usize::MAX);
    rig.verify();
}

#[test]
fn a_free_below_the_limit_goes_on_with_what_is_queued_and_no_further() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    rig.lazy(32, MIB);
    let (lazy, purges) = (rig.level(Level::Lazy), rig.event(Event::Purge));
    ballast(&rig);
    let_stay(&rig, 1 << 36);
    mm.check(0);
    assert_eq!((rig.level(Level::Lazy), rig.event(Event::Purge)), (lazy, purges), "nothing is queued");
    let idle = mm.idle();
    let_stay(&rig, idle);
    mm.check(0);
    assert_eq!((mm.idle(), rig.event(Event::Purge)), (idle, purges), "as much as may stay");
    queued(&rig, QUEUED);
    ballast(&rig);
    let_stay(&rig, 1 << 36);
    for (is_alone, stays) in [(false, 1 << 36), (true, 1 << 36), (true, mm.idle() - 2 * HELP as u64)] {
        rig.set(Id::IdleSeconds, if is_alone { 0 } else { 5 });
        let_stay(&rig, stays);
        let before = rig.heap.areas.backlog();
        mm.check(0);
        let took = (before - rig.heap.areas.backlog()) * PAGE;
        assert!((HELP..=HELP + 2 * MIB).contains(&took), "{took}");
    }
    rig.heap.vmap().purge(usize::MAX);
    rig.verify();
}

/// What is queued comes first; the rest of a slice is what is lazy, and blocks of pages behind that.
#[test]
fn a_free_gives_back_so_much_of_all_together() {
    let rig = Rig::new(1, 1);
    let (mm, vmap) = (rig.mm(), rig.heap.vmap());
    rig.dirty(8, 10);
    queued(&rig, QUEUED);
    ballast(&rig);
    let_stay(&rig, mm.idle() - 60 * M);
    let (backlog, dirty) = (rig.heap.areas.backlog(), rig.level(Level::PagesDirty));
    mm.check(0);
    assert_eq!((backlog - rig.heap.areas.backlog(), rig.level(Level::PagesDirty)), (HELP / PAGE, dirty));
    vmap.purge(usize::MAX);
    mm.purge_pages(0, 0, || false);
    // A giant that was cut to half of that.
    let at = vmap.alloc(QUEUED * PAGE, PAGE).unwrap().address;
    assert!(vmap.resize(&vmap.find(at).unwrap(), HELP / 2));
    rig.lazy(96, MIB);
    assert!(matches!(mm.free_area(at), crate::vmap::Freed::Queued(_)));
    ballast(&rig);
    let idle = mm.idle();
    let_stay(&rig, idle - 30 * M);
    mm.check(0);
    let took = idle - mm.idle();
    assert!(!rig.heap.areas.is_pending() && (HELP as u64..HELP as u64 + 3 * M).contains(&took), "{took}");
    rig.verify();
}

#[test]
fn alone_a_free_gives_back_all_that_passes_the_limit() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    rig.lazy(96, MIB);
    ballast(&rig);
    // (With a keeper to be had: a slice.)
    let idle = mm.idle();
    let_stay(&rig, idle - 20 * M);
    mm.check(0);
    let slice = idle - mm.idle();
    assert!((HELP as u64..12 * M).contains(&slice), "{slice}");
    // Far above the limit more of it.
    let_stay(&rig, 30 * M);
    let idle = mm.idle();
    mm.check(0);
    let slice = idle - mm.idle();
    assert!((HELP_MORE as u64..40 * M).contains(&slice), "{slice}");
    alone(&rig);
    let_stay(&rig, 16 * M);
    let idle = mm.idle();
    let held = rig.heap.reclaim.lock();
    mm.check(0);
    assert_eq!(mm.idle(), idle, "somebody else does");
    drop(held);
    mm.check(0);
    assert!((8 * M..=16 * M).contains(&mm.idle()), "{}", mm.idle());
    rig.verify();
}

#[test]
fn who_need_not_wait_does_not() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    assert!(mm.wait(false).is_none() && mm.wait(true).is_some());
    let _held = rig.heap.reclaim.lock();
    assert!(mm.wait(true).is_none(), "after as many naps as it takes at most");
}

#[test]
fn a_slice_takes_what_is_above_and_a_sixteenth() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    let board = rig.heap.cache.sets.board();
    rig.lazy(64, MIB);
    let idle = mm.idle();
    // (To the last byte the limit is kept: no slice; a slice takes the longest, whole.)
    assert_eq!((mm.slice(idle, usize::MAX), mm.slice(u64::MAX, usize::MAX), mm.idle()), (0, 0, idle));
    let above = M + idle / 16;
    let took = mm.slice(idle - M, usize::MAX) as u64;
    assert!((above - M..=above + M).contains(&took), "{took}");
    assert_eq!(rig.heap.reclaim.given.kept(), took);
    let took = mm.slice(0, 3 * MIB);
    assert!((3 * MIB..=4 * MIB).contains(&took), "{took}");
    // What is queued goes first, whatever is above.
    queued(&rig, QUEUED);
    let backlog = rig.heap.areas.backlog();
    assert_eq!(mm.slice(u64::MAX, 4 * MIB), 4 * MIB);
    assert_eq!(backlog - rig.heap.areas.backlog(), 4 * MIB / PAGE);
    rig.heap.vmap().purge(usize::MAX);
    assert_eq!(board.level(Level::Lazy), 0);
    // Blocks of pages: where no area is left. (Each is 4 MiB.)
    rig.dirty(8, 10);
    let dirty = mm.idle();
    assert_eq!((mm.slice(dirty, usize::MAX), mm.idle()), (0, dirty));
    let took = mm.slice(dirty - M, MIB) as u64;
    assert_eq!(mm.idle(), dirty - took);
    let above = M + (dirty - M) / 16;
    assert!((above..above + 4 * M).contains(&took), "{took}");
    let dirty = mm.idle();
    let took = mm.slice(0, usize::MAX) as u64;
    assert_eq!((took, mm.idle()), (dirty, 0));
    rig.verify();
}

#[test]
fn a_balance_goes_on_until_the_limit_is_kept() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    // More than a slice.
    rig.lazy(20, 8 * MIB);
    rig.dirty(4, 10);
    ballast(&rig);
    let_stay(&rig, 40 * M);
    let before = mm.free_resident();
    let bytes = mm.balance() as u64;
    assert_eq!(mm.free_resident(), before - bytes);
    assert!((24 * M..=40 * M).contains(&mm.idle()), "{}", mm.idle());
    assert_eq!(mm.balance(), 0, "it is kept");
    // A fork that waits ends it after one.
    rig.heap.reclaim.set_short(true);
    rig.heap.gate.fork_begin(|| ());
    let before = mm.free_resident();
    let bytes = mm.balance() as u64;
    assert!(mm.free_resident() == before - bytes && mm.free_resident() > 0 || bytes == before);
    rig.heap.gate.fork_end(false, || ());
    rig.verify();
}

#[test]
fn areas_go_until_as_many_are_left_as_may_be() {
    let rig = Rig::new(1, 1);
    let (mm, vmap) = (rig.mm(), rig.heap.vmap());
    rig.lazy(100, MIB);
    let lazy = rig.level(Level::Lazy);
    assert_eq!((mm.purge_areas(lazy, false), rig.level(Level::Lazy)), (0, lazy));
    // For a fork nothing is begun, and what was queued lies where it is looked for.
    let gone = vmap.purge_first_of_all(1) as u64;
    assert!(rig.heap.areas.is_pending() && gone < lazy);
    rig.heap.gate.fork_begin(|| ());
    assert_eq!((mm.purge_areas(0, true), rig.level(Level::Lazy)), (0, lazy - gone));
    assert!(!rig.heap.areas.is_pending());
    // Or all goes, whoever waits; first what is queued.
    let more = vmap.purge_first_of_all(1) as u64;
    assert!(rig.heap.areas.is_pending());
    assert_eq!(mm.purge_areas(0, false) as u64, lazy - gone - more);
    rig.heap.gate.fork_end(false, || ());
    assert_eq!((rig.level(Level::Lazy), rig.heap.areas.is_pending()), (0, false));
    // What is refused is tried once.
    rig.lazy(8, MIB);
    let lazy = rig.level(Level::Lazy);
    fault::storm(1, 7);
    let gone = mm.purge_areas(0, false) as u64;
    fault::storm(0, 0);
    // (Some calls are done in part.)
    assert!(gone < lazy && rig.level(Level::Lazy) == lazy - gone && !rig.heap.areas.is_pending());
    rig.verify();
}

#[test]
fn pages_go_until_as_many_are_left_as_may_be() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    let dirty = || rig.level(Level::PagesDirty);
    rig.dirty(8, 10);
    let (before, told) = (dirty(), rig.event(Event::PurgeBytes));
    assert_eq!((mm.purge_pages(0, before, || false), dirty()), (0, before), "as many are left");
    // One block, for whoever waits.
    let one = mm.purge_pages(0, 0, || true) as u64;
    assert!((4 * M..before).contains(&one) && dirty() == before - one);
    assert_eq!(rig.event(Event::PurgeBytes) - told, one);
    let some = mm.purge_pages(0, 8 * M, || false) as u64;
    assert!(dirty() == before - one - some && dirty() <= 8 * M && dirty() > 0);
    // What is refused stays dirty, and ends it.
    let left = dirty();
    fault::storm(1, 7);
    let gone = mm.purge_pages(0, 0, || false);
    fault::storm(0, 0);
    // (A zone that has much is tried first, and then again.)
    assert_eq!((gone, dirty(), (1..=2).contains(&rig.event(Event::PurgeRefused))), (0, left, true));
    assert_eq!((mm.purge_pages(0, 0, || false) as u64, dirty()), (left, 0));
    assert_eq!(rig.event(Event::PurgeBytes) - told, before);
    // (Single pages are not worth a call.)
    rig.dirty(64, 0);
    rig.heap.drain(crate::reclaim::drain::DrainTarget::All, crate::cache::DrainMode::Expedited);
    // (What the list had drawn ahead lies in a row.)
    mm.purge_pages(policy::PURGE_ORDER, 0, || false);
    let few = dirty();
    assert_eq!((mm.purge_pages(policy::PURGE_ORDER, 0, || false), dirty(), few > 0), (0, few, true));
    rig.verify();
}

/// Where addresses are many times what is used all that is dirty goes back, as they grow by as much again, and not before.
#[test]
fn scattered_addresses_are_mended() {
    let rig = Rig::new(1, 1);
    let (mm, board) = (rig.mm(), rig.heap.cache.sets.board());
    let asks = || rig.heap.reclaim.scattered.load(Relaxed);
    rig.lazy(4, 10 * MIB);
    let used = board.in_use() + mm.idle();
    let lazy = rig.level(Level::Lazy);
    let mended = |mapped: u64| {
        board.set(Level::Mapped, mapped);
        mm.mend();
        rig.level(Level::Lazy) < lazy
    };
    // A GiB is never too many.
    assert_eq!((mended(1 << 30), asks()), (false, 0));
    // Too few more than is used; then it is asked again when they are more by as much.
    let (mapped, again) = ((1 << 30) + used, (1 << 30) + used + used.max(64 * M));
    assert_eq!((mended(mapped), asks()), (false, again));
    assert!(!mended(again) && mended(again + 1));
    assert_eq!(rig.level(Level::Lazy), 0);
    // Nor where no call is allowed any more, or somebody else is at it.
    rig.lazy(4, 10 * MIB);
    let lazy = rig.level(Level::Lazy);
    let held = rig.heap.reclaim.purging.lock();
    board.set(Level::Mapped, 1 << 40);
    mm.mend();
    drop(held);
    rig.heap.reclaim.freeze();
    board.set(Level::Mapped, 1 << 41);
    mm.mend();
    assert_eq!(rig.level(Level::Lazy), lazy);
}

#[test]
fn an_idle_program_keeps_half_of_what_is_more() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    rig.lazy(64, MIB);
    rig.dirty(4, 10);
    let (lazy, dirty) = (rig.level(Level::Lazy), rig.level(Level::PagesDirty));
    assert!(dirty < lazy / 2);
    let gone = mm.fall(rig.heap.reclaim.lock()) as u64;
    assert_eq!((rig.level(Level::PagesDirty), rig.level(Level::Lazy)), (dirty, lazy - gone));
    assert!(lazy - gone <= lazy / 2);
    // All of it, but for a fork; and for a request that would be refused, all.
    rig.heap.gate.fork_begin(|| ());
    let left = mm.free_resident();
    let gone = mm.purge(rig.heap.reclaim.lock()) as u64;
    assert!(mm.free_resident() == left - gone && gone < left, "one block");
    assert_eq!(mm.purge_all(rig.heap.reclaim.lock()) as u64, left - gone);
    rig.heap.gate.fork_end(false, || ());
    assert_eq!((mm.free_resident(), rig.workers.load(SeqCst)), (0, 0));
    rig.verify();
}
