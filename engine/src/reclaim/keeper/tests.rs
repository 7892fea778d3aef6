//! What the keeper decides, how it is started, called and sent away.

use super::*;
use crate::tests::threads;

#[test]
fn idleness_grows_until_all_is_due_and_work_ends_it() {
    let mut watch = Watch::default();
    assert_eq!(watch.look(1000, 3), Duty::Usual);
    assert_eq!(watch.look(1000 + NOISE, 3), Duty::Fall);
    assert_eq!(watch.look(1000 + NOISE, 3), Duty::Fall);
    assert_eq!(watch.look(1000 + NOISE, 3), Duty::All);
    assert_eq!(watch.look(1001 + 2 * NOISE, 3), Duty::Usual);
}

#[test]
fn limits_are_looked_at_now_and_then() {
    let mut watch = Watch::default();
    let looks = (0..2 * RECENT).filter(|_| watch.looks_at_limits()).count();
    assert_eq!(looks, 2);
}

#[test]
fn it_rests_after_two_looks_in_vain() {
    let mut watch = Watch::default();
    assert!(!watch.rests(Duty::All, 0));
    assert!(!watch.rests(Duty::All, 4096));
    assert!(!watch.rests(Duty::All, 0));
    assert!(watch.rests(Duty::All, 0));
    assert!(!watch.rests(Duty::Fall, 0));
}

#[test]
fn without_a_thread_what_is_due_comes_by_time() {
    let tending = Tending::new();
    let ask = |periods: u64, allocs| tending.is_due(TICKS * periods + 5, || allocs, 5);
    assert_eq!(ask(10, 1000), Some((Duty::Usual, true)), "at first: the limits, and no idleness");
    assert_eq!(ask(10, 2000), None, "once a period");
    assert_eq!(ask(11, 1000 + 2 * NOISE), Some((Duty::Usual, false)));
    assert_eq!(ask(12, 1000 + 3 * NOISE), Some((Duty::Fall, false)));
    assert_eq!(ask(16, 1000 + 3 * NOISE), Some((Duty::Fall, false)));
    assert_eq!(ask(21, 1000 + 3 * NOISE), Some((Duty::All, false)));
    assert_eq!(ask(30, 1000 + 3 * NOISE), Some((Duty::All, true)), "after a long silence");
    assert_eq!(ask(31, 9000), Some((Duty::Usual, false)));
    tending.put_off(TICKS * 31 + 5, 18_000);
    assert_eq!(ask(31, 18_000), None);
    assert_eq!(ask(32, 18_000), Some((Duty::Fall, false)), "a period after a thread ended");
    let limits = (33..33 + 2 * RECENT).filter(|&period| ask(period, 0).unwrap().1).count();
    assert_eq!(limits, 2);
}

#[test]
fn a_refused_start_is_tried_again_later_and_later() {
    let keeper = Keeper::new();
    let mut now = 7;
    for before in 0..20 {
        assert!(keeper.claim(now) && !keeper.claim(now), "one at a time");
        assert_eq!(keeper.is_out(|| now), before > 0);
        keeper.refused(now);
        assert!(keeper.is_none() && keeper.is_out(|| now));
        now += TICKS << before.min(PATIENCE);
        assert!(!keeper.claim(now - 1));
    }
    assert!(keeper.claim(now) && keeper.begin());
    keeper.is_well();
    keeper.end();
    assert!(!keeper.is_out(|| now) && keeper.claim(now));
}

#[test]
fn after_a_fork_none_is_started_for_a_while() {
    let keeper = Keeper::new();
    keeper.rest(7);
    assert!(keeper.is_out(|| 6 + REST) && !keeper.claim(6 + REST) && keeper.is_resting());
    assert!(!keeper.is_out(|| 7 + REST), "the next slow path starts one");
    assert!(keeper.claim(7 + REST) && !keeper.is_resting());
    keeper.refused(7 + REST);
    keeper.rest(8 + REST);
    assert!(!keeper.claim(8 + 2 * REST), "a refusal keeps it away for longer");
}

#[test]
fn one_thread_starts_and_a_parked_one_is_woken() {
    let (keeper, bell) = (Keeper::new(), AtomicU32::new(0));
    let hibernate = |lives: bool| keeper.hibernate(&Clock::new(), &bell, true, (|| false, || lives), (0, || 0));
    assert!(keeper.is_none() && keeper.claim(0) && !keeper.claim(0) && !keeper.is_none());
    assert!(keeper.begin());
    threads::scope(|scope| {
        let hibernating = scope.spawn(|| assert!(hibernate(true)));
        while !hibernating.is_finished() {
            keeper.wake(&bell);
            std::thread::yield_now();
        }
    });
    assert!(!hibernate(false), "the process has ended");
    keeper.end();
    assert!(keeper.claim(0) && keeper.begin());
    keeper.hold(Some(&bell));
    keeper.hold(None);
    assert!(!hibernate(true) && keeper.is_held());
    keeper.end();
    keeper.release();
    assert!(!keeper.claim(0), "held by another");
    keeper.release();
    assert!(keeper.claim(0));
    keeper.hold(None);
    assert!(!keeper.begin() && keeper.is_none(), "held before it ran");
    keeper.gone();
    assert!(keeper.claim(0));
    keeper.gone();
    keeper.confine();
    assert!(!keeper.claim(0) && keeper.is_out(|| 0), "confined");
}

/// One that others may ask stays, and sleeps; both look whether the process lives while they wait.
#[test]
fn one_that_nobody_watches_ends_after_a_period_without_work() {
    let keepers = [Keeper::new(), Keeper::new()];
    let (watched, bells) = (&keepers[1], [AtomicU32::new(0), AtomicU32::new(0)]);
    let (looks, asked) = ([AtomicU32::new(0), AtomicU32::new(0)], AtomicU32::new(0));
    let (stays, meanwhile) = (AtomicU32::new(0), AtomicU32::new(0));
    let hibernate = |which: usize| {
        let lives = || looks[which].fetch_add(1, SeqCst) < u32::MAX;
        let left = || {
            // (The first look behind a period asks, once.)
            assert!(looks[which].load(SeqCst) > 1 && asked.fetch_add(1, SeqCst) < 2);
            0
        };
        assert!(keepers[which].claim(0) && keepers[which].begin());
        keepers[which].hibernate(&Clock::new(), &bells[which], which == 1, (|| false, lives), (0, left))
    };
    threads::scope(|scope| {
        let other = scope.spawn(|| assert!(hibernate(1), "woken"));
        while !watched.is_hibernating() {
            std::thread::yield_now();
        }
        assert!(!hibernate(0) && keepers[0].is_none());
        // (Until the other's period is over, too, and twice more.)
        let (mut rings, is_over) = (0, || asked.load(SeqCst) == 2);
        while rings < 2 {
            rings += u32::from(is_over());
            let before = looks[1].load(SeqCst);
            ring(&bells[1]);
            while looks[1].load(SeqCst) == before {
                std::thread::yield_now();
            }
        }
        let before = looks[1].load(SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(20));
        stays.store((watched.is_hibernating() && !other.is_finished()).into(), SeqCst);
        meanwhile.store(looks[1].load(SeqCst) - before, SeqCst);
        watched.wake(&bells[1]);
    });
    // (One look, at most, unless the test itself sleeps for seconds.)
    assert!(meanwhile.load(SeqCst) < 10, "it does not sleep");
    assert_eq!(stays.load(SeqCst), 1);
    let looks = looks.map(|looks| looks.load(SeqCst));
    assert!(looks.iter().all(|&looks| looks < 1000), "{looks:?} looks: it does not sleep");
    assert_eq!(asked.load(SeqCst), 2);
}

/// Or a filter would kill the process in the middle of a look.
#[test]
fn a_filter_waits_for_who_looks() {
    let (keeper, outside) = (Keeper::new(), AtomicU32::new(0));
    threads::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while keeper.enter() {
                    std::thread::sleep(std::time::Duration::from_millis(3));
                    assert_eq!(outside.load(SeqCst), 0, "the filter came while a thread looked");
                    keeper.leave();
                }
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        keeper.confine();
        outside.store(1, SeqCst);
    });
    assert!(!keeper.enter() && keeper.exposed.load(Relaxed) == 0);
}

#[test]
fn who_parks_serves_and_sees_what_was_freed_at_that_moment() {
    let (keeper, bell, served) = (Keeper::new(), AtomicU32::new(0), AtomicU32::new(0));
    assert!(keeper.claim(0) && keeper.begin());
    // Nobody wakes it: there is more than before its last look.
    let looks = AtomicU32::new(0);
    let more = || u64::from(looks.fetch_add(1, Relaxed)) + 1;
    assert!(keeper.hibernate(&Clock::new(), &bell, false, (|| false, || true), (0, more)));
    assert!(!keeper.is_hibernating() && looks.load(Relaxed) == 1);
    let serve = || served.compare_exchange(1, 2, Relaxed, Relaxed).is_ok();
    threads::scope(|scope| {
        let hibernating = scope.spawn(|| keeper.hibernate(&Clock::new(), &bell, true, (serve, || true), (0, || 0)));
        while !keeper.is_hibernating() {
            std::thread::yield_now();
        }
        served.store(1, Relaxed);
        ring(&bell);
        while served.load(Relaxed) != 2 {
            std::thread::yield_now();
        }
        assert!(!hibernating.is_finished(), "serving does not wake it");
        keeper.wake(&bell);
    });
}

#[test]
fn a_process_is_no_trifle_by_its_age_and_its_slow_paths() {
    // Slow allocations before, ticks since it began: whether the next one should start the keeper.
    let counts = [0, FEW - 1, FEW, FEW + 1];
    for (age, over) in [(0, [false; 4]), (EARLY, [false; 4]), (SOON, [false, false, true, true]), (SOON + 1, [true; 4])]
    {
        for (slow, over) in counts.into_iter().zip(over) {
            let youth = Youth::new();
            youth.begin(1000);
            (0..slow).for_each(|_| assert!(!youth.is_over(1000)));
            assert_eq!(youth.is_over(1000 + age), over, "{age} ticks, {slow} slow allocations");
        }
    }
    let youth = Youth::new();
    assert!(youth.is_over(SOON + 1), "never begun");
    (0..FEW).for_each(|_| _ = youth.is_over(0));
    assert!(youth.is_over(EARLY + 1));
    // In a forked child it begins anew.
    youth.begin(5 * SOON);
    assert!(!youth.is_over(6 * SOON) && !youth.is_over(0) && youth.is_over(6 * SOON + 1));
}

#[test]
fn after_eight_periods_of_silence_the_limits_are_due() {
    for (silence, looks) in [(RECENT - 1, false), (RECENT, true)] {
        let tending = Tending::new();
        assert_eq!(tending.is_due(0, || 0, 99), Some((Duty::Usual, true)));
        assert_eq!(tending.is_due(TICKS * silence, || 0, 99), Some((Duty::Fall, looks)));
    }
}

#[test]
fn what_a_thread_has_looked_at_is_due_a_period_later() {
    let tending = Tending::new();
    tending.put_off(5, 1000);
    assert_eq!(tending.is_due(4 + TICKS, || 0, 5), None);
    assert_eq!(tending.is_due(5 + TICKS, || 1000 + NOISE, 5), Some((Duty::Fall, true)), "as much was counted by then");
}

#[test]
fn only_who_starts_it_ends_its_rest() {
    let keeper = Keeper::new();
    assert!(keeper.claim(0));
    keeper.rest(7);
    assert!(!keeper.claim(7 + REST) && keeper.is_resting(), "somebody starts it already");
    assert!(keeper.is_starting() && keeper.begin() && !keeper.is_starting() && !keeper.is_none());
}

#[test]
fn who_enters_is_counted_until_it_leaves_and_nobody_enters_behind_a_filter() {
    let keeper = Keeper::new();
    let exposed = || keeper.exposed.load(Relaxed);
    assert!(keeper.enter() && exposed() == 1 && keeper.enter() && exposed() == 2);
    keeper.leave();
    keeper.leave();
    assert_eq!(exposed(), 0);
    keeper.confine();
    assert!(keeper.is_confined() && keeper.is_held() && !keeper.enter() && exposed() == 0);
}

#[test]
fn a_forked_child_has_nobody_and_nothing_of_its_parents() {
    let keeper = Keeper::new();
    assert!(keeper.enter() && keeper.claim(0));
    keeper.hold(None);
    keeper.outlives();
    assert!(keeper.is_outlived());
    keeper.gone();
    assert!(!keeper.is_outlived() && !keeper.is_held() && keeper.is_none() && keeper.exposed.load(Relaxed) == 0);
}

/// Its files are its own from [`Keeper::withdraw`] on, till it ends; where it filters its calls it opens none.
#[test]
fn files_are_read_by_a_thread_that_has_its_own() {
    let reads = |keeper: &Keeper| {
        assert!(!keeper.may_read(), "the program's");
        // (The calling thread has none of the process's files any more.)
        keeper.withdraw();
        keeper.may_read()
    };
    threads::spawn(move || {
        // SAFETY: this thread has no places of its own but these.
        #[allow(unsafe_code)]
        let has_places = unsafe { libc::unshare(libc::CLONE_FS) } == 0;
        let (ended, confined) = (Keeper::new(), Keeper::new());
        if !reads(&ended) {
            // (Refused here.)
            return;
        }
        assert!(
            !has_places || std::env::current_dir().unwrap() == std::path::Path::new("/"),
            "where nobody is disturbed"
        );
        ended.end();
        assert!(!ended.may_read() && reads(&confined));
        confined.confine();
        assert!(!confined.may_read() && confined.files.load(Relaxed));
    })
    .join()
    .unwrap();
}

/// Or the filter would be there in the middle of the start of a thread.
#[test]
fn a_filter_waits_for_who_starts_the_thread() {
    let (keeper, begun) = (Keeper::new(), AtomicU32::new(0));
    assert!(keeper.claim(0));
    threads::scope(|scope| {
        scope.spawn(|| {
            keeper.confine();
            assert_eq!(begun.load(SeqCst), 1);
        });
        while !keeper.is_confined() {
            std::thread::yield_now();
        }
        begun.store(1, SeqCst);
        assert!(!keeper.begin());
    });
}

/// A sleeper that nobody wakes sleeps for ever here.
#[test]
fn a_ring_ends_a_sleep_and_nothing_else_does() {
    const FOR_EVER: u64 = 1 << 62;
    let (keeper, bell, rang) = (Keeper::new(), AtomicU32::new(7), AtomicU32::new(0));
    keeper.sleep(&bell, 6, FOR_EVER);
    let ways: [fn(&Keeper, &AtomicU32); 2] = [|keeper, bell| keeper.hold(Some(bell)), |_, bell| ring(bell)];
    for rings in ways {
        let rung = bell.load(SeqCst);
        rang.store(0, SeqCst);
        threads::scope(|scope| {
            scope.spawn(|| {
                keeper.sleep(&bell, rung, FOR_EVER);
                assert_eq!(rang.load(SeqCst), 1);
            });
            // (Asleep by then, unless others have the CPU.)
            std::thread::sleep(std::time::Duration::from_millis(5));
            rang.store(1, SeqCst);
            rings(&keeper, &bell);
        });
        assert_eq!(bell.load(SeqCst), rung + 1);
    }
    keeper.state.store(State::Hibernating as u32, Relaxed);
    keeper.wake(&bell);
    assert_eq!((bell.load(Relaxed), keeper.is_hibernating()), (10, false));
    keeper.wake(&bell);
    assert_eq!(bell.load(Relaxed), 10, "it is awake");
}
