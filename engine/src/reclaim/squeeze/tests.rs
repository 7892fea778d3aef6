//! Limits that are near: what is drained for them, how often, and what a request is told.

use super::*;
use crate::arch::sys::fault;
use crate::knob::Id;
use crate::reclaim::mm::ALL_CLASSES;
use crate::reclaim::tests::{HERE, MIB, Rig};
use crate::slab::class;
use crate::stat::Level;
use crate::tests::threads;
use core::cell::Cell;
use std::vec::Vec;

#[allow(unsafe_code)]
fn fill(rig: &Rig, cpu: usize) {
    HERE.set(cpu);
    let objects: Vec<_> = (0..20).map(|_| rig.heap.malloc(100)).collect();
    // SAFETY: our own.
    objects.into_iter().for_each(|object| unsafe { rig.heap.free(object) });
    assert!(holds(rig, cpu));
}
fn holds(rig: &Rig, cpu: usize) -> bool {
    rig.heap.cache.sets.list(cpu, class::offset_of(100) / 16).is_some_and(|list| list.0 > 0)
}
fn cached(rig: &Rig) -> usize {
    (1..ALL_CLASSES).map(|class| rig.heap.cache.sets.cached(class)).sum()
}

#[test]
fn near_the_soft_limit_caches_are_drained_now_and_then() {
    let rig = Rig::new(2, 1);
    let mm = rig.mm();
    let area = rig.heap.malloc(8 * MIB);
    fill(&rig, 0);
    fill(&rig, 1);
    mm.approach();
    assert_eq!((rig.event(Event::SoftLimit), rig.timed(Timing::Drain)), (0, 0), "there is none");
    rig.set(Id::SoftLimit, 4 * MIB as u64);
    let held = rig.heap.reclaim.lock();
    mm.approach();
    drop(held);
    assert_eq!((rig.event(Event::SoftLimit), cached(&rig) > 0), (0, true), "somebody else drains, who had its turn");
    let rig = Rig::new(2, 1);
    let mm = rig.mm();
    let more = rig.heap.malloc(8 * MIB);
    let objects: Vec<_> = (0..4000).map(|_| rig.heap.malloc(3000)).collect();
    // SAFETY: our own.
    #[allow(unsafe_code)]
    objects.into_iter().for_each(|object| unsafe { rig.heap.free(object) });
    fill(&rig, 0);
    assert!(rig.level(Level::Barns) > 0);
    rig.set(Id::SoftLimit, 4 * MIB as u64);
    mm.approach();
    assert_eq!((rig.event(Event::SoftLimit), rig.timed(Timing::Drain), cached(&rig)), (1, 1, 0));
    assert_eq!(rig.level(Level::Barns), 0);
    assert!(mm.reclaim.try_lock().is_some(), "and goes on");
    // One that took long rests for long.
    mm.reclaim.limits.relieved(0, u64::MAX >> 6);
    fill(&rig, 0);
    mm.approach();
    assert!(rig.event(Event::SoftLimit) == 1 && holds(&rig, 0));
    rig.set(Id::SoftLimit, 0);
    assert!(!area.is_null() && !more.is_null());
    rig.verify();
}

#[test]
fn who_runs_is_asked_where_drains_are_gentle() {
    let rig = Rig::new(2, 1);
    let mm = rig.mm();
    rig.set(Id::Drain, 1);
    fill(&rig, 0);
    fill(&rig, 1);
    let held = rig.heap.reclaim.lock();
    mm.empty_caches(|_| true);
    assert!(holds(&rig, 0) && !holds(&rig, 1), "but for what this CPU has, whose owner is here");
    mm.empty_caches(|cpu| cpu == 1);
    assert!(!holds(&rig, 0));
    fill(&rig, 0);
    assert_eq!(rig.timed(Timing::Drain), 2);
    // Off: barns only.
    rig.set(Id::Drain, 3);
    mm.empty_caches(|_| false);
    assert_eq!((holds(&rig, 0), rig.timed(Timing::Drain)), (true, 2));
    drop(held);
    rig.verify();
}

#[test]
fn behind_a_filter_only_what_was_left_is_reached() {
    let rig = Rig::new(3, 1);
    let mm = rig.mm();
    (0..3).for_each(|cpu| fill(&rig, cpu));
    assert!(rig.heap.park());
    HERE.set(1);
    rig.heap.reclaim.keeper.confine();
    let _held = rig.heap.reclaim.lock();
    mm.empty_caches_by(DrainMode::Expedited, &mut |_| unreachable!("nobody may look"));
    assert_eq!([0, 1, 2].map(|cpu| holds(&rig, cpu)), [true, false, false]);
    assert_eq!(rig.event(Event::Fence), 0);
}

#[test]
fn the_hard_limit_is_the_last_byte_that_may_be_had() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    assert!(!rig.heap.malloc(8 * MIB).is_null());
    assert!(!mm.is_limited(usize::MAX));
    let held = rig.heap.cache.sets.board().held();
    rig.set(Id::HardLimit, held + 5000);
    assert!(!mm.is_limited(5000) && mm.is_limited(5001) && mm.is_limited(usize::MAX) && !mm.is_limited(0));
    rig.set(Id::HardLimit, held - 1);
    assert!(mm.is_limited(0));
}

#[test]
fn a_refused_request_is_tried_again_when_all_was_given_back() {
    let rig = Rig::new(1, 1);
    let (mm, limits) = (rig.mm(), &rig.heap.reclaim.limits);
    let tried = Cell::new(0);
    let ask = |bytes: usize, serves: bool| {
        let served = mm.squeezed(bytes, || {
            tried.set(tried.get() + 1);
            serves.then_some(7)
        });
        (served, tried.get(), limits.squeezed(), rig.event(Event::LimitRefused))
    };
    rig.set(Id::HardLimit, 64 * MIB as u64);
    assert_eq!(ask(64 * MIB + 1, true), (None, 0, 0, 1), "nothing could serve it");
    rig.lazy(8, MIB);
    fill(&rig, 0);
    // Nothing has drained yet: this one does, and gives back.
    assert_eq!(ask(64 * MIB, true), (Some(7), 1, 1, 1));
    assert_eq!((mm.free_resident(), cached(&rig), rig.timed(Timing::Drain)), (0, 0, 1));
    // A drain that took long rests for long. Meanwhile only what is known to be free is given back.
    limits.drained(0, u64::MAX >> 6, 0);
    limits.end(0);
    fill(&rig, 0);
    let rests = || !limits.squeezes(rig.heap.cache.sets.clock.ticks(), 0, || 0);
    assert!(rests());
    let before = (mm.free_resident(), cached(&rig));
    if before.0 == 0 {
        assert_eq!(ask(1, true), (None, 1, 2, 2), "there is nothing");
    }
    rig.lazy(8, MIB);
    assert_eq!(ask(1, true), (Some(7), 2, 3, if before.0 == 0 { 2 } else { 1 }));
    assert_eq!((mm.free_resident(), cached(&rig), rig.timed(Timing::Drain)), (0, before.1, 1));
    assert!(rests(), "it rests on");
    let told = rig.event(Event::LimitRefused);
    rig.lazy(8, MIB);
    assert_eq!(ask(1, false), (None, 3, 4, told + 1), "again in vain");
    rig.lazy(1, MIB);
    // As much as could not be given back is nothing new.
    limits.end(mm.free_resident());
    assert_eq!(ask(1, true), (None, 3, 5, told + 2));
    // Much that caches have is not left for a rest, but once, if it stays there.
    let objects: Vec<_> = (0..MIB / 1000).map(|_| rig.heap.malloc(1000)).collect();
    rig.set(Id::HardLimit, rig.heap.cache.sets.board().held().max(32 * MIB as u64));
    // SAFETY: our own.
    #[allow(unsafe_code)]
    objects.into_iter().for_each(|object| unsafe { rig.heap.free(object) });
    assert!(mm.cached_bytes() > MIB as u64 / 2, "{}", mm.cached_bytes());
    limits.end(u64::MAX);
    assert_eq!(ask(1, true), (Some(7), 4, 7, told + 2));
    assert!(cached(&rig) == 0 && mm.cached_bytes() == 0);
    rig.set(Id::Drain, 3);
    let objects: Vec<_> = (0..MIB / 1000).map(|_| rig.heap.malloc(1000)).collect();
    // SAFETY: our own.
    #[allow(unsafe_code)]
    objects.into_iter().for_each(|object| unsafe { rig.heap.free(object) });
    rig.mm().empty_caches(|_| true);
    let stays = mm.cached_bytes();
    rig.set(Id::HardLimit, (stays - 1) * 128);
    assert!(mm.squeeze() && !mm.squeeze() && mm.cached_bytes() == stays, "{stays}");
    limits.drained(0, 0, 0);
    rig.set(Id::Drain, 0);
    mm.empty_caches(|_| true);
    // Where drains may be again, one is worth another try, whatever is known to be free.
    limits.end_rest();
    limits.end(u64::MAX);
    assert_eq!(ask(1, true), (Some(7), 5, 10, told + 2));
    assert!(limits.finds(1) && cached(&rig) == 0);
    rig.verify();
}

/// Of several that are refused at once one gives back; the others try again when it has.
#[test]
fn who_waited_for_another_that_gave_all_back_does_not_do_it_again() {
    let rig = Rig::new(1, 1);
    let limits = &rig.heap.reclaim.limits;
    for round in 1.. {
        assert!(round < 100, "nobody relied on another");
        let before = limits.squeezed();
        let held = rig.heap.reclaim.lock();
        threads::scope(|scope| {
            let other = scope.spawn(|| rig.mm().squeeze());
            // (It waits by then, unless others have the CPU.)
            std::thread::sleep(std::time::Duration::from_millis(round));
            limits.end(0);
            drop(held);
            assert!(other.join().unwrap());
        });
        if limits.squeezed() == before + 1 {
            break;
        }
    }
}

#[test]
fn the_cgroup_is_asked_by_who_may_read() {
    let rig = Rig::new(1, 1);
    let (mm, knobs) = (rig.mm(), &rig.heap.cache.knobs);
    let told = || (knobs.soft_limit(), knobs.hard_limit());
    rig.set(Id::HardLimit, crate::knob::BY_CGROUP);
    mm.learn_limits();
    let real = told();
    knobs.set_cgroup(Some(12_345), Some(16_000));
    assert_eq!(told(), (12_345, 15_000));
    mm.learn_limits_if_allowed();
    assert_eq!(told(), (12_345, 15_000), "these files are the program's");
    let other = threads::scope(|scope| {
        scope
            .spawn(|| {
                rig.heap.reclaim.keeper.withdraw();
                rig.mm().learn_limits_if_allowed();
                (rig.heap.reclaim.keeper.may_read(), told())
            })
            .join()
            .unwrap()
    });
    assert_eq!(other, (other.0, if other.0 { real } else { (12_345, 15_000) }));
    mm.learn_limits();
    assert_eq!(told(), real);
}

/// Behind a filter nobody is interrupted; but where the program and we have one thread together, there is nobody.
#[test]
#[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
fn a_program_that_is_alone_again_reaches_all() {
    let mut rig = Rig::new(2, 1);
    let crew: &'static crate::arch::crew::Crew = std::boxed::Box::leak(std::boxed::Box::default());
    rig.crew = Some(crew);
    let wrong = crate::reclaim::life::tests::in_a_child(true, |is| {
        is(crew.start(crate::reclaim::life::tests::brief).is_ok());
        rig.mm().await_threads(60_000);
        is(crew.is_gone() && !sys::single_threaded());
        fill(&rig, 0);
        fill(&rig, 1);
        let _held = rig.heap.reclaim.lock();
        rig.mm().empty_caches_by(DrainMode::Expedited, &mut |_| true);
        is(!sys::single_threaded());
        fill(&rig, 0);
        fill(&rig, 1);
        rig.heap.reclaim.keeper.confine();
        rig.mm().empty_caches_by(DrainMode::Expedited, &mut |_| true);
        is(sys::single_threaded());
        is(!holds(&rig, 0) && !holds(&rig, 1));
    });
    assert_eq!(wrong, 0);
}

#[test]
fn what_the_limit_refused_and_then_would_not_is_asked_again_and_nothing_is_scraped_for_it() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    let ask = |limit: u64, finds_at: u32| {
        rig.set(Id::HardLimit, limit);
        let (tried, scraped) = (Cell::new(0), Cell::new(0));
        let alloc = || {
            tried.set(tried.get() + 1);
            (tried.get() == finds_at).then_some(())
        };
        let found = mm.take(4096, alloc, || {
            scraped.set(scraped.get() + 1);
            None
        });
        (found.is_some(), tried.get(), scraped.get())
    };
    assert_eq!(ask(u64::MAX, 1), (true, 1, 0));
    assert_eq!(ask(u64::MAX, 9), (false, 1, 1), "the system has refused");
    // (So that our own structures have memory.)
    assert!(!rig.heap.malloc(1000).is_null());
    assert_eq!(ask(1 << 40, 3), (true, 3, 0));
    let refused = rig.event(Event::LimitRefused);
    let (found, tried, scraped) = ask(1 << 40, 9);
    assert!(!found && (ASKS as u32..=ASKS as u32 + 1).contains(&tried) && scraped == 0, "{tried} {scraped}");
    assert_eq!(rig.event(Event::LimitRefused), refused + 1);
    // Where the system has refused something, it may be that.
    fault::storm(1, 7);
    let none = rig.heap.malloc(8 << 30);
    fault::storm(0, 0);
    assert!(none.is_null());
    assert_eq!(ask(1 << 40, 9), (false, 1, 1));
    assert!(!rig.heap.malloc(3 << 30).is_null());
    assert_eq!(ask(1 << 40, 9).2, 0, "since then it has given something");
    let refused = rig.event(Event::LimitRefused);
    assert_eq!((ask(4096, 9).2, rig.event(Event::LimitRefused)), (0, refused + 1), "the limit still does");
}
