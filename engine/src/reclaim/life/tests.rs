//! When the keeper is started, what a look does, what slow paths do in its place, and how its thread comes and goes.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::arch::atomic::Ordering::SeqCst;
use crate::arch::crew::Crew;
use crate::reclaim::tests::{MIB, Rig};
use crate::stat::board::SHARE_BYTES;
use crate::tests::threads;
use core::sync::atomic::AtomicPtr;
use std::boxed::Box;

/// A heap that others can see.
fn shared() -> Rig {
    let file = unsafe { libc::memfd_create(c"board".as_ptr(), 0) };
    assert!(file >= 0 && unsafe { libc::ftruncate(file, SHARE_BYTES as i64) } == 0);
    Rig::shared(1, 1, Some(file as usize))
}

/// One that has something in use, something lazy and something dirty.
fn used(rig: Rig) -> (Rig, u64) {
    rig.lazy(32, MIB);
    rig.dirty(4, 10);
    let board = rig.heap.cache.sets.board();
    let held = board.in_use() + board.level(Level::Lazy) + board.level(Level::PagesDirty);
    rig.set(Id::KeeperBytes, held);
    (rig, held)
}

/// Whether slow paths have done a look.
fn tended(rig: &Rig) -> bool {
    rig.heap.reclaim.tending.is_due(0, || 0, 1).is_none()
}

#[test]
fn a_keeper_is_started_where_there_is_enough_to_keep() {
    // What is changed; threads that were asked for and started, whether there is one then, whether this path did its work.
    type Case = (&'static str, fn(&Rig, u64), (u32, u64, bool, bool));
    let cases: [Case; 7] = [
        ("as much as the knob says", |_, _| (), (1, 1, true, false)),
        ("less", |rig, held| rig.set(Id::KeeperBytes, held + 1), (0, 0, false, false)),
        ("the knob says none", |rig, _| rig.set(Id::IdleSeconds, 0), (0, 0, false, true)),
        ("refused", |rig, _| rig.gives_threads.store(0, SeqCst), (1, 0, false, true)),
        ("held", |rig, _| rig.heap.reclaim.keeper.hold(None), (0, 0, false, true)),
        ("sets are closed", |rig, _| assert!(rig.heap.cache.sets.close()), (0, 0, false, false)),
        ("there is one", |rig, _| assert!(rig.heap.reclaim.keeper.claim(0)), (0, 0, true, false)),
    ];
    for (what, change, (asked, started, is_there, is_tended)) in cases {
        let (rig, held) = used(Rig::new(1, 1));
        change(&rig, held);
        rig.mm().consider_keeper();
        let found =
            (rig.keepers.load(SeqCst), rig.event(Event::Keeper), !rig.heap.reclaim.keeper.is_none(), tended(&rig));
        assert_eq!(found, (asked, started, is_there, is_tended), "{what}");
        // (Beside other threads there is a witness anyway.)
        assert!(rig.heap.cache.sets.is_watched() || asked == 0, "{what}");
        if what == "refused" {
            assert!(rig.heap.reclaim.keeper.is_out(|| 0));
        }
    }
}

#[test]
fn a_process_that_others_see_has_one_when_it_is_no_trifle_or_somebody_asks() {
    let ask = |rig: &Rig| rig.heap.cache.sets.board().mailbox.asked.store(1, SeqCst);
    for is_shared in [false, true] {
        for is_old in [false, true] {
            for is_asked in [false, true] {
                let rig = if is_shared { shared() } else { Rig::new(1, 1) };
                rig.heap.reclaim.youth.begin(if is_old { 0 } else { u64::MAX });
                if is_asked {
                    ask(&rig);
                }
                rig.mm().consider_keeper();
                let starts = is_shared && (is_old || is_asked);
                assert_eq!(rig.keepers.load(SeqCst), u32::from(starts), "{is_shared} {is_old} {is_asked}");
                assert_eq!((rig.mm().is_asked(), tended(&rig)), (is_asked, false));
            }
        }
    }
    // It is no large one all the same: slow paths do nothing for it.
    let rig = shared();
    rig.heap.reclaim.youth.begin(0);
    rig.gives_threads.store(0, SeqCst);
    rig.mm().consider_keeper();
    assert!(rig.keepers.load(SeqCst) == 1 && !tended(&rig));
}

#[test]
fn what_is_freed_wakes_it_or_starts_another() {
    let (rig, _) = used(Rig::new(1, 1));
    let keeper = &rig.heap.reclaim.keeper;
    let bell = || rig.mm().bell().load(SeqCst);
    rig.mm().wake_keeper();
    assert_eq!((rig.keepers.load(SeqCst), bell()), (1, 0));
    assert!(keeper.begin());
    rig.mm().wake_keeper();
    assert_eq!((rig.keepers.load(SeqCst), bell()), (1, 0), "it is awake");
    threads::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let (clock, mm) = (&rig.heap.cache.sets.clock, rig.mm());
            keeper.hibernate(clock, mm.bell(), true, (|| false, || true), (0, || 0))
        });
        while !keeper.is_hibernating() {
            std::thread::yield_now();
        }
        rig.mm().wake_keeper();
        assert!(sleeper.join().unwrap());
    });
    assert_eq!((rig.keepers.load(SeqCst), bell()), (1, 1));
}

#[test]
fn a_slow_path_does_what_a_look_would_once_a_period() {
    let (rig, _) = used(Rig::new(1, 1));
    let (mm, knobs) = (rig.mm(), &rig.heap.cache.knobs);
    mm.learn_limits();
    let real = knobs.soft_limit();
    let forget = || knobs.set_cgroup(Some(1 << 45), None);
    forget();
    rig.heap.reclaim.set_short(true);
    let now = rig.heap.cache.sets.clock.ticks();
    mm.tend(now);
    // The usual: what passes the limit, and what the system says.
    assert!(!mm.is_passed() && mm.free_resident() == 0 && knobs.soft_limit() == real);
    assert!(!rig.heap.reclaim.learns() && rig.heap.reclaim.keeper.exposed() == 0);
    rig.lazy(32, MIB);
    forget();
    mm.tend(now + 1);
    assert!(mm.free_resident() > 16 << 20 && knobs.soft_limit() == 1 << 45, "once");
    // After a long silence it has been idle; but what worked meanwhile has not.
    rig.heap.reclaim.set_short(false);
    rig.set(Id::LazyFloor, 1 << 36);
    rig.set(Id::SoftLimit, 1 << 20);
    for (event, idles) in [(Event::AreaReuse, false), (Event::AllocSlowpath, false), (Event::Purge, true)] {
        rig.heap.reclaim.tending.end_rest();
        let relieved = rig.event(Event::SoftLimit);
        rig.heap.cache.sets.count(event, 65);
        rig.set(Id::SoftLimit, if idles { 1 << 20 } else { 0 });
        rig.set(Id::IdleSeconds, if event == Event::AreaReuse { 0 } else { 5 });
        let before = mm.free_resident();
        mm.tend(now);
        assert_eq!(mm.free_resident(), if idles { 0 } else { before }, "{event:?}");
        assert_eq!(rig.event(Event::SoftLimit) - relieved, u64::from(idles), "near it caches are drained");
    }
    rig.verify();
}

#[test]
fn nothing_is_tended_where_it_may_not_be() {
    // No call is allowed any more.
    let (rig, _) = used(Rig::new(1, 1));
    let left = rig.mm().free_resident();
    rig.heap.reclaim.freeze();
    rig.mm().tend(9);
    assert!(!tended(&rig) && rig.mm().free_resident() == left);
    // A fork is in flight: the next does it.
    let (rig, _) = used(Rig::new(1, 1));
    rig.heap.gate.fork_begin(|| ());
    rig.mm().tend(9);
    assert!(!tended(&rig));
    rig.heap.gate.fork_end(false, || ());
    rig.mm().tend(9);
    // A filter kills for an open file, not for what manages memory.
    let (rig, _) = used(Rig::new(1, 1));
    rig.heap.reclaim.set_short(true);
    rig.heap.reclaim.keeper.confine();
    rig.mm().tend(9);
    assert!(tended(&rig) && rig.heap.reclaim.learns() && rig.heap.reclaim.keeper.exposed() == 0);
    assert_eq!(rig.mm().free_resident(), 0);
}

#[test]
fn work_is_slow_allocations_and_areas_that_are_used_again() {
    let rig = Rig::new(1, 1);
    let before = rig.mm().activity();
    assert_eq!(before, rig.event(Event::AllocSlowpath) + rig.event(Event::AreaReuse));
    rig.heap.cache.sets.count(Event::AllocSlowpath, 5);
    rig.heap.cache.sets.count(Event::AreaReuse, 70);
    assert_eq!(rig.mm().activity(), before + 75);
}

#[test]
fn who_makes_calls_of_its_own_is_inside_and_counted() {
    let rig = Rig::new(1, 1);
    let (mm, keeper, gate) = (rig.mm(), &rig.heap.reclaim.keeper, &rig.heap.gate);
    let seen = |allowed: bool| (allowed, keeper.exposed(), gate.is_inside());
    assert_eq!((mm.exposed(seen), mm.among_calls(seen)), ((true, 1, false), Some((true, 1, true))));
    assert_eq!((keeper.exposed(), gate.is_inside()), (0, false));
    keeper.confine();
    assert_eq!((mm.exposed(seen), mm.among_calls(seen)), ((false, 0, false), Some((false, 0, true))));
    assert_eq!(keeper.exposed(), 0);
}

#[test]
fn a_look_gives_back_by_how_long_the_program_has_been_idle() {
    let (rig, _) = used(Rig::new(1, 1));
    let (mm, mut watch) = (rig.mm(), Watch::default());
    rig.set(Id::IdleSeconds, 2);
    rig.set(Id::SoftLimit, 1 << 20);
    rig.set(Id::LazyFloor, 1 << 36);
    rig.heap.cache.sets.count(Event::AllocSlowpath, 65);
    rig.heap.reclaim.set_short(true);
    rig.heap.cache.knobs.set_cgroup(Some(1 << 45), None);
    // Nobody may look at the pressure: memory is not short.
    assert!(!mm.look(&mut watch) && !rig.heap.reclaim.is_short() && rig.event(Event::SoftLimit) == 1);
    rig.set(Id::SoftLimit, 1);
    rig.lazy(40, 8 * MIB);
    let all = mm.free_resident();
    assert!(!mm.look(&mut watch));
    let half = mm.free_resident();
    assert!(half > 0 && half < all, "{half} of {all}");
    assert!(!mm.look(&mut watch) && mm.free_resident() == 0, "idle for as long as the knob says");
    while !mm.look(&mut watch) {}
    assert!(mm.look(&mut watch));
    assert!(rig.tracers.load(SeqCst) >= 5);
    (0..8).for_each(|_| assert!(mm.look(&mut watch)));
    assert_eq!(rig.heap.cache.knobs.soft_limit(), 1 << 45, "and none opens a file");
    rig.set(Id::SoftLimit, 0);
    rig.heap.cache.sets.count(Event::AllocSlowpath, 65);
    assert!(!mm.look(&mut watch), "it works again");
    // (A knob of nothing is one of a second.)
    rig.set(Id::IdleSeconds, 0);
    rig.lazy(4, MIB);
    assert!(!mm.look(&mut watch) && mm.free_resident() == 0);
}

#[test]
fn a_look_that_may_read_asks_what_is_short_and_now_and_then_for_the_limits() {
    let rig = Rig::new(1, 1);
    let rig = &rig;
    threads::scope(|scope| {
        scope.spawn(move || {
            let (mm, knobs) = (rig.mm(), &rig.heap.cache.knobs);
            mm.learn_limits();
            let real = knobs.soft_limit();
            rig.heap.reclaim.keeper.withdraw();
            if !rig.heap.reclaim.keeper.may_read() {
                return;
            }
            knobs.set_cgroup(Some(1 << 45), None);
            let (mut watch, mut read) = (Watch::default(), 0);
            for look in 1..=16 {
                let was_short = cgroup::pressure() >= keeper::SHORT;
                rig.heap.reclaim.set_short(true);
                mm.look(&mut watch);
                if knobs.soft_limit() == real {
                    read += look;
                    knobs.set_cgroup(Some(1 << 45), None);
                }
                let is_short = cgroup::pressure() >= keeper::SHORT;
                assert!(is_short || was_short || !rig.heap.reclaim.is_short());
                if !is_short && !was_short {
                    let asks = look >= 8 && crate::arch::topology::huge_pages();
                    let from = if asks { (64 << 20) / PAGE } else { usize::MAX };
                    assert_eq!((rig.heap.reclaim.has_huge(), rig.heap.pages.huge_from()), (asks, from));
                }
            }
            assert!(read == 8 + 16 || real == 1 << 45, "{read}");
        });
    });
}

#[test]
fn zones_ask_for_huge_pages_where_there_are_any_and_no_limit_is_near() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    let from = |rig: &Rig| {
        rig.mm().allow_huge();
        rig.heap.pages.huge_from()
    };
    assert_eq!(from(&rig), usize::MAX, "nobody has asked the system");
    rig.heap.reclaim.learn_huge();
    let has = rig.heap.reclaim.has_huge();
    assert_eq!(has, crate::arch::topology::huge_pages());
    let some = |pages: usize| if has { pages } else { usize::MAX };
    assert_eq!(from(&rig), some((64 << 20) / PAGE));
    rig.set(Id::HugeZoneBytes, PAGE as u64 + 1);
    assert_eq!(from(&rig), some(2));
    rig.set(Id::HugeZoneBytes, 0);
    assert_eq!(from(&rig), usize::MAX);
    rig.set(Id::HugeZoneBytes, 1);
    rig.heap.reclaim.set_short(true);
    assert_eq!(from(&rig), usize::MAX);
    rig.heap.reclaim.set_short(false);
    rig.set(Id::HardLimit, 1 << 45);
    assert_eq!(from(&rig), usize::MAX);
    rig.set(Id::HardLimit, 0);
    assert_eq!(from(&rig), some(1));
    rig.heap.malloc(8 * MIB);
    rig.set(Id::SoftLimit, 1 << 20);
    assert_eq!(from(&rig), usize::MAX);
    rig.set(Id::SoftLimit, 0);
    assert_eq!(from(&rig), some(1));
    // A fork leaves none, whoever forks.
    mm.dismiss_threads();
    assert_eq!(rig.heap.pages.huge_from(), usize::MAX);
}

#[test]
fn a_thread_of_ours_lives_with_its_process_and_its_owner() {
    let mut rig = Rig::new(1, 1);
    let tasks = sys::tasks();
    assert!(rig.mm().lives(tasks), "of no kind that ends with the process");
    rig.crew = Some(Box::leak(Box::new(Crew::new())));
    assert!(rig.mm().lives(None) && rig.mm().lives(tasks));
    let other = tasks.map(|tasks| sys::Tasks { owner: tasks.owner.map(|id| id ^ 1), ..tasks });
    assert_eq!(rig.mm().lives(other), tasks.is_none());
    assert_eq!((rig.ends.load(SeqCst), rig.mm().parting()), (0, 0));
    assert!(!rig.heap.reclaim.keeper.is_held() && !rig.heap.reclaim.keeper.is_outlived());
}

#[test]
fn who_wants_them_gone_waits_for_threads_and_not_for_ever() {
    let mut rig = Rig::new(1, 1);
    let calls = |rig: &Rig| rig.heap.reclaim.workers.calls();
    rig.mm().await_threads(1000);
    assert_eq!(calls(&rig), 0, "there are none of that kind");
    rig.crew = Some(Box::leak(Box::new(Crew::new())));
    rig.mm().await_threads(1000);
    assert_eq!(calls(&rig), 1);
    let (rig, left) = (&rig, &AtomicU32::new(0));
    let (workers, keeper) = (&rig.heap.reclaim.workers, &rig.heap.reclaim.keeper);
    for which in 0..2 {
        assert!(if which == 0 { workers.claim(1) } else { keeper.claim(0) });
        left.store(0, SeqCst);
        threads::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(3));
                left.store(1, SeqCst);
                if which == 0 {
                    workers.unclaim();
                } else {
                    keeper.end();
                }
            });
            rig.mm().await_threads(60_000);
            assert_eq!(left.load(SeqCst), 1);
        });
    }
    // One that does not leave.
    assert!(workers.claim(1));
    rig.mm().await_threads(2);
    assert_eq!((workers.alive(), calls(rig)), (1, 4));
}

/// As a thread of ours does it, but for the thread: see [`Mm::keep`].
#[test]
fn a_keeper_lives_from_its_start_to_its_end() {
    let mut rig = Rig::new(1, 1);
    rig.crew = Some(Box::leak(Box::new(Crew::new())));
    let keeper = &rig.heap.reclaim.keeper;
    rig.set(Id::IdleSeconds, 1);
    rig.mm().learn_limits();
    let real = rig.heap.cache.knobs.soft_limit();
    rig.heap.cache.knobs.set_cgroup(Some(1 << 45), None);
    // Held before it runs.
    assert!(keeper.claim(0));
    keeper.hold(None);
    rig.mm().keep();
    assert!(keeper.is_none() && !keeper.is_out(|| 0));
    keeper.release();
    keeper.refused(0);
    assert!(keeper.claim(u64::MAX));
    rig.requests.store(3, SeqCst);
    // (What it cannot give back, it leaves.)
    rig.dirty(1, 10);
    let rig = &rig;
    let keep = move || {
        crate::arch::sys::fault::storm(1, 7);
        rig.mm().keep();
    };
    let nap = || std::thread::sleep(std::time::Duration::from_millis(1));
    let is_served = |n: u32| {
        while rig.served.load(SeqCst) < n {
            nap();
        }
    };
    let ask = || {
        rig.requests.store(1, SeqCst);
        rig.mm().bell().fetch_add(1, SeqCst);
        sys::futex_wake_shared(rig.mm().bell());
    };
    threads::scope(|scope| {
        scope.spawn(keep);
        // It serves before it looks.
        is_served(3);
        assert_eq!((keeper.is_none(), keeper.is_starting(), keeper.is_out(|| 0)), (false, false, false));
        assert!(rig.tracers.load(SeqCst) == 0 && !rig.heap.reclaim.learns());
        assert!(!keeper.may_read() || rig.heap.cache.knobs.soft_limit() == real);
        // (Where it may ask, and the system gives any.)
        let huge = rig.heap.reclaim.has_huge();
        assert!(!keeper.may_read() || huge == crate::arch::topology::huge_pages());
        assert_eq!(rig.heap.pages.huge_from(), if huge { (64 << 20) / PAGE } else { usize::MAX });
        // Woken between two looks it serves, too.
        ask();
        is_served(4);
        // Two looks that find nothing.
        while !keeper.is_hibernating() {
            nap();
        }
        assert_eq!(rig.tracers.load(SeqCst), 2);
        // It serves, and goes on when it is woken.
        ask();
        is_served(5);
        assert!(keeper.is_hibernating() || rig.tracers.load(SeqCst) > 2);
        keeper.wake(rig.mm().bell());
        ask();
        is_served(6);
        assert!(!keeper.is_none());
        rig.heap.reclaim.set_short(true);
        keeper.hold(Some(rig.mm().bell()));
    });
    assert!(keeper.is_none() && !rig.heap.reclaim.is_short() && keeper.exposed() == 0);
    assert_eq!((rig.ends.load(SeqCst), rig.keepers.load(SeqCst)), (0, 0));
    let asks = rig.asks.load(SeqCst);
    assert!(asks < 1000, "{asks} looks for requests: it does not sleep");
    // Held between two looks.
    let looks = AtomicU32::new(0);
    keeper.release();
    assert!(keeper.claim(u64::MAX));
    threads::scope(|scope| {
        scope.spawn(keep);
        ask();
        is_served(7);
        looks.store(rig.tracers.load(SeqCst), SeqCst);
        keeper.hold(Some(rig.mm().bell()));
    });
    // (One may have begun.)
    assert!(keeper.is_none() && rig.tracers.load(SeqCst) <= looks.load(SeqCst) + 1);
}

/// Runs `body` in a child of this process, which has one thread, whatever the C library says; the first of its questions that was answered with no, from 1.
pub(in crate::reclaim) fn in_a_child(says: bool, body: impl FnOnce(&mut dyn FnMut(bool))) -> i32 {
    unsafe extern "C" {
        static mut __libc_single_threaded: u8;
    }
    unsafe {
        let child = libc::fork();
        if child == 0 {
            __libc_single_threaded = says.into();
            let (mut asked, mut failed) = (0, 0);
            body(&mut |is_so| {
                asked += 1;
                if !is_so && failed == 0 {
                    failed = asked;
                }
            });
            libc::_exit(failed);
        }
        let mut status = 0;
        assert!(child > 0 && libc::waitpid(child, &raw mut status, 0) == child);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -status }
    }
}

/// What counts threads behind a fork counts the program's own.
#[test]
fn a_fork_of_a_program_of_one_thread_leaves_none_of_ours_and_nothing_to_do() {
    let (mut rig, _) = used(Rig::new(1, 1));
    let mm = rig.mm();
    rig.heap.reclaim.set_short(true);
    // This one has several, and would have to be sure of them; and there is none of ours.
    mm.dismiss_threads();
    mm.rest_threads();
    let keeper = &rig.heap.reclaim.keeper;
    assert!(!keeper.is_resting() && mm.is_passed());
    rig.crew = Some(Box::leak(Box::new(Crew::new())));
    let (mm, keeper) = (rig.mm(), &rig.heap.reclaim.keeper);
    assert!(keeper.claim(0) && keeper.begin());
    mm.dismiss_threads();
    assert!(!keeper.is_resting() && mm.is_passed() && mm.bell().load(SeqCst) == 0);
    let wrong = in_a_child(true, |is| {
        let inside = mm.gate.enter();
        mm.dismiss_threads();
        is(!keeper.is_resting() && mm.bell().load(SeqCst) == 0 && mm.is_passed());
        drop(inside);
        mm.gate.fork_begin(|| ());
        mm.dismiss_threads();
        is(!keeper.is_resting() && mm.bell().load(SeqCst) == 0);
        mm.gate.fork_end(false, || ());
        let now = rig.heap.cache.sets.clock.ticks();
        mm.dismiss_threads();
        // It was called, may be started again, but not soon; and what it would have given back has gone.
        is(mm.bell().load(SeqCst) == 1 && !keeper.is_held() && keeper.is_resting() && keeper.is_out(|| now));
        is(rig.heap.reclaim.workers.calls() == 1);
        is(!mm.is_passed());
        is(rig.heap.reclaim.tending.is_due(now, || 0, 1).is_none() && keeper.exposed() == 0);
        is(!mm.gate.is_wanted() && mm.gate.enter().is_some());
        // Behind the fork, in both.
        keeper.end();
        is(!keeper.claim(now) && keeper.claim(u64::MAX) && !keeper.is_resting());
        mm.rest_threads();
        is(keeper.is_resting());
    });
    assert_eq!(wrong, 0);
    // In a program of several it is put off where it was.
    keeper.rest(0);
    keeper.end();
    mm.rest_threads();
    assert!(keeper.is_resting() && !keeper.claim(rig.heap.cache.sets.clock.ticks()));
}

/// A worker that does not leave is waited for no longer than a fork may take; where there is none nobody waits. The C library
/// does not forget threads that have ended: the kernel does.
#[test]
fn a_fork_goes_on_where_a_thread_of_ours_stays() {
    let (mut rig, _) = used(Rig::new(1, 1));
    rig.crew = Some(Box::leak(Box::new(Crew::new())));
    let (mm, keeper) = (rig.mm(), &rig.heap.reclaim.keeper);
    for says in [true, false] {
        let wrong = in_a_child(says, |is| {
            mm.dismiss_threads();
            is(!keeper.is_resting() && mm.bell().load(SeqCst) == 0);
            is(keeper.claim(0) && rig.heap.reclaim.workers.claim(1));
            mm.dismiss_threads();
            is(keeper.is_resting() && keeper.is_starting() && rig.heap.reclaim.workers.alive() == 1);
        });
        assert_eq!(wrong, 0, "{says}");
    }
}

/// Where [`ours`] finds what it tries.
static RIG: AtomicPtr<Rig> = AtomicPtr::new(core::ptr::null_mut());
static OURS: Crew = Crew::new();

/// A thread of ours in a process whose only other one, the first, has ended.
extern "C" fn ours(_: usize) -> ! {
    let (rig, first) = (unsafe { &*RIG.load(SeqCst) }, sys::tasks());
    await_leaders_death();
    let lives = rig.mm().lives(first);
    let keeper = &rig.heap.reclaim.keeper;
    let told = (keeper.is_held(), keeper.is_outlived(), rig.heap.reclaim.workers.calls(), rig.ends.load(SeqCst));
    sys::exit(true, if lives || told != (true, false, 1, 1) { 2 } else { 0 })
}
/// The first thread of this process is about to end.
fn await_leaders_death() {
    while sys::leader_lives() {
        sys::futex_wait_for(&AtomicU32::new(0), 0, 100_000);
    }
}
fn end_of_leader(status: i32) -> ! {
    unsafe { libc::syscall(libc::SYS_exit, status) };
    unreachable!("it has ended")
}

/// Of the last thread of its own the process ends, and ours with it.
#[test]
#[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
fn ours_end_with_the_last_thread_of_the_program() {
    let mut rig = Rig::new(1, 1);
    rig.crew = Some(&OURS);
    RIG.store(&raw mut rig, SeqCst);
    let wrong = in_a_child(false, |is| {
        is(OURS.start(ours).is_ok());
        end_of_leader(7);
    });
    assert_eq!((wrong, rig.ends.load(SeqCst)), (0, 0));
}

#[test]
fn the_status_is_the_first_threads_unless_another_outlived_it() {
    let (mut rig, confined) = (Rig::new(1, 1), Rig::new(1, 1));
    rig.crew = Some(Box::leak(Box::new(Crew::new())));
    confined.heap.reclaim.keeper.confine();
    let wrong = in_a_child(false, |_| {
        threads::scope(|scope| {
            scope.spawn(|| {
                let (keeper, first) = (&rig.heap.reclaim.keeper, sys::tasks());
                await_leaders_death();
                let is_first = rig.mm().parting() == 7 && confined.mm().parting() == 0 && !keeper.is_outlived();
                // This one is the program's own.
                rig.mm().lives(first);
                let lives = !keeper.is_held() && rig.ends.load(SeqCst) == 0 && keeper.is_outlived();
                sys::exit(true, if is_first && lives && rig.mm().parting() == 0 { 0 } else { 2 });
            });
            end_of_leader(7);
        });
    });
    assert_eq!(wrong, 0);
}

pub(in crate::reclaim) extern "C" fn brief(_: usize) -> ! {
    sys::futex_wait_for(&AtomicU32::new(0), 0, 2_000_000);
    sys::exit(false, 0)
}

#[test]
#[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
fn threads_that_have_been_told_are_waited_for_until_the_kernel_has_seen_them_go() {
    let mut rig = Rig::new(1, 1);
    let crew: &'static Crew = Box::leak(Box::new(Crew::new()));
    rig.crew = Some(crew);
    crew.start(brief).unwrap();
    rig.mm().await_threads(60_000);
    assert!(crew.is_gone() && crew.count() == 0);
}
