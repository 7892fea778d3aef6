//! Threads against each other; and the words of a gate, step by step, with threads that are not here in its rooms.

use super::*;
use crate::arch::crew::Crew;
use crate::arch::tests::{
    comes_to_sleep, in_a_single_child, sleeps_until, status_of_a_child, thread_number, wakes_two,
};
use crate::tests::threads;
use core::time::Duration;
use std::thread;

mod late;
mod vforks;

#[test]
fn nobody_is_inside_beside_a_fork_and_nobody_waits() {
    let (gate, inside, turned_away) = (Gate::new(), AtomicU32::new(0), AtomicU32::new(0));
    let ended = AtomicU32::new(0);
    threads::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while ended.load(Relaxed) < 2 {
                    let Some(_inside) = gate.enter() else {
                        turned_away.fetch_add(1, Relaxed);
                        continue;
                    };
                    inside.fetch_add(1, Relaxed);
                    core::hint::spin_loop();
                    inside.fetch_sub(1, Relaxed);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    gate.fork_begin(|| assert_eq!(inside.load(Relaxed), 0));
                    assert_eq!(inside.load(Relaxed), 0);
                    thread::yield_now();
                    assert_eq!(inside.load(Relaxed), 0);
                    gate.fork_end(false, || {});
                }
                ended.fetch_add(1, Relaxed);
            });
        }
    });
    assert!(turned_away.load(Relaxed) > 0 && gate.state.load(Relaxed) == 0);
}

#[test]
fn a_fork_in_a_handler_passes_its_own_frames() {
    let gate = Gate::new();
    let outer = gate.enter().expect("nobody forks");
    gate.fork_begin(|| {});
    assert!(gate.enter().is_none());
    // Another, in the middle of the first: its child goes on with the first, and one that has a vfork in flight with that.
    let begun = gate.vfork_begin(false);
    gate.fork_begin(|| unreachable!("sealed"));
    assert!(!gate.fork_end(true, || unreachable!("the first goes on")) && gate.enter().is_none());
    assert_eq!(gate.own_vforks(), 1);
    assert_eq!((gate.vfork_end(begun), gate.own_vforks()), (1, 0));
    let mut opened = false;
    assert!(!gate.fork_end(true, || opened = true) && opened);
    drop(outer);
    gate.fork_begin(|| {});
    gate.fork_end(false, || {});
    assert!(gate.enter().is_some() && gate.rooms.iter().all(|room| room.0.load(Relaxed) == 0));
}

#[test]
fn who_is_alone_is_alone_and_what_is_abroad_is_waited_for() {
    let (gate, inside) = (Gate::new(), AtomicU32::new(0));
    let ours = AtomicU32::new(0);
    let hold = |n: u32| {
        assert_eq!(inside.swap(n, Relaxed), 0);
        core::hint::spin_loop();
        assert_eq!(inside.swap(0, Relaxed), n);
    };
    threads::scope(|scope| {
        for n in 1..3 {
            let (gate, ours, hold) = (&gate, &ours, &hold);
            scope.spawn(move || {
                while ours.load(Relaxed) < 400 {
                    let Some(_alone) = gate.enter_alone() else { continue };
                    hold(n);
                    assert!(gate.is_alone() && gate.enter().is_some());
                    gate.abroad(|| ours.fetch_add(1, Relaxed));
                    // (The test's process has several threads: it may come back beside others.)
                    if gate.is_alone() {
                        hold(n);
                    }
                }
            });
        }
        while ours.load(Relaxed) < 400 {
            let entered = gate.enter().expect("nobody forks");
            hold(9);
            gate.abroad(thread::yield_now);
            hold(9);
            drop(entered);
        }
    });
    threads::scope(|scope| {
        let (gate, inside) = (&gate, &inside);
        let (arrived, left) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let _inside = gate.enter();
            gate.abroad(|| {
                arrived.send(()).expect("somebody waits");
                thread::sleep(Duration::from_millis(20));
                inside.store(5, Relaxed);
            });
        });
        left.recv().expect("it comes");
        gate.fork_begin(|| assert_eq!(inside.load(Relaxed), 5));
        gate.fork_end(false, || {});
    });
}

/// The thread pointer of a thread that is not here.
const OTHER: usize = 0x1234_5678_9000;

/// A gate with these in its first rooms and notes.
fn with(words: &[usize]) -> Gate {
    let gate = Gate::new();
    for (at, &word) in words.iter().enumerate() {
        if word & (FORKS | VFORKS | LATE) == 0 {
            gate.rooms[at].0.store(word, Relaxed);
        } else {
            gate.notes[at].store(word, Relaxed);
            gate.noted.fetch_add(1, Relaxed);
        }
    }
    gate
}
fn taken(gate: &Gate) -> std::vec::Vec<usize> {
    let rooms = gate.rooms.iter().map(|room| &room.0);
    rooms.chain(&gate.notes).map(|word| word.load(Relaxed)).filter(|&who| who != 0).collect()
}
fn state(gate: &Gate) -> u32 {
    gate.state.load(Relaxed)
}
/// How often somebody was told to look while `body` ran.
fn told(gate: &Gate, body: impl FnOnce()) -> u32 {
    let before = gate.left.load(Relaxed);
    body();
    gate.left.load(Relaxed) - before
}
/// From now on this process has had threads: the C library, which counts them, says so.
fn be_several() {
    threads::spawn(|| ()).join().expect("it ends");
    assert!(!sys::single_threaded() && !sys::program_is_single());
}

#[test]
fn the_words_say_who_forks_who_is_alone_and_who_is_waited_for() {
    let (gate, me) = (Gate::new(), sys::thread_pointer());
    for forks in 0..3 {
        for is_alone in [0, ALONE] {
            for waits in [0, 1, 2, u32::MAX] {
                for alone in [0, me, OTHER] {
                    gate.state.store(forks * FORK + is_alone, Relaxed);
                    gate.waits.store(waits, Relaxed);
                    gate.alone.store(alone, Relaxed);
                    assert_eq!(gate.is_forking(), forks > 0);
                    assert_eq!(gate.is_wanted(), forks > 0 || waits == 1 || waits == 2);
                    assert_eq!(gate.is_alone(), is_alone != 0 && alone == me);
                }
            }
        }
    }
    gate.waits.store(0, Relaxed);
    let mut waits = 0;
    gate.wanting(|| waits = gate.waits.load(Relaxed));
    assert_eq!((waits, gate.waits.load(Relaxed)), (1, 0));
}

#[test]
fn a_thread_counts_its_own_rooms_by_what_it_is_at() {
    let me = sys::thread_pointer();
    let gate = with(&[OTHER, OTHER | FORKS, OTHER | VFORKS, OTHER | ABROAD]);
    let own =
        |gate: &Gate| (gate.is_inside(), gate.own(), gate.own_notes(FORKS), gate.own_vforks(), gate.is_forking_self());
    assert_eq!(own(&gate), (false, 0, 0, 0, false));
    let inside = gate.enter();
    assert_eq!(own(&gate), (true, 1, 0, 0, false));
    let begun = [gate.vfork_begin(false), gate.vfork_begin(false)];
    assert!(gate.note(FORKS, &gate.notes));
    assert_eq!(own(&gate), (true, 1, 1, 2, true));
    assert_eq!(gate.vfork_end(begun[1]), 1);
    assert_eq!(own(&gate), (true, 1, 1, 1, true));
    gate.forget(FORKS);
    assert_eq!((gate.vfork_end(begun[0]), gate.vfork_end(begun[0])), (1, 0));
    drop(inside);
    assert_eq!(own(&gate), (false, 0, 0, 0, false));
    assert!(taken(&gate).len() == 4 && !taken(&gate).contains(&me));
}

#[test]
fn every_room_is_found_by_each_thread() {
    be_several();
    let me = sys::thread_pointer();
    for free in 0..ROOMS {
        let gate = with(&[OTHER; ROOMS]);
        gate.rooms[free].0.store(0, Relaxed);
        assert!(gate.find_room(me).is_some_and(|room| core::ptr::eq(room, &raw const gate.rooms[free].0)));
        assert!(gate.rooms[free].0.load(Relaxed) == me && gate.find_room(me).is_none());
    }
}

#[test]
fn where_all_rooms_are_taken_a_thread_waits_unless_it_has_one() {
    let gate = with(&[OTHER; ROOMS]);
    let entered = || gate.enter().map(|inside| (inside.room.is_some(), gate.is_inside()));
    assert_eq!(sleeps_until(entered, || gate.rooms[7].0.store(0, Relaxed)), Some((true, true)));
    // Who has one, not while a fork wants to be.
    gate.rooms[7].0.store(sys::thread_pointer(), Relaxed);
    assert!(gate.enter().is_some_and(|inside| inside.room.is_none()));
    assert_eq!(taken(&gate).len(), ROOMS);
    let forked_within = || {
        gate.rooms[7].0.store(sys::thread_pointer(), Relaxed);
        gate.state.store(FORK, Relaxed);
        gate.enter().is_none()
    };
    assert!(sleeps_until(forked_within, || gate.rooms[8].0.store(0, Relaxed)));
}

/// However many fork, and wait for each other: threads come in, and each fork ends.
#[test]
fn where_all_notes_are_taken_forks_wait_and_nobody_else() {
    let gate = with(&[OTHER | FORKS; NOTES]);
    assert!(gate.enter().is_some(), "a fork has no room");
    let forks = || {
        gate.fork_begin(|| ());
        gate.fork_end(false, || ());
    };
    let ends = || {
        assert!(gate.turn.try_lock().is_some(), "who waits has the turn, without which none ends");
        gate.notes[7].store(0, Relaxed);
        gate.noted.fetch_sub(1, Relaxed);
    };
    sleeps_until(forks, ends);
    assert_eq!((taken(&gate).len(), gate.noted.load(Relaxed) as usize), (NOTES - 1, NOTES - 1));
}

#[test]
fn who_leaves_tells_those_who_wait_and_nobody_else() {
    for (state, tells) in [(0, 0), (ALONE, 1), (FORK, 1), ((2 * FORK) | ALONE, 1)] {
        let gate = Gate::new();
        let room = gate.take_room(sys::thread_pointer());
        gate.state.store(state, Relaxed);
        assert_eq!(told(&gate, || gate.vacate(room)), tells, "{state}");
        assert!(taken(&gate).is_empty());
    }
    let gate = Gate::new();
    assert!(wakes_two(&gate.left, false, || gate.tell()));
}

#[test]
fn a_nap_is_slept() {
    let (gate, end) = (Gate::new(), AtomicU32::new(0));
    let naps = || {
        while end.load(Relaxed) == 0 {
            gate.nap();
        }
    };
    sleeps_until(naps, || end.store(1, Relaxed));
}

#[test]
fn who_finds_a_fork_that_waits_sleeps_until_it_is_in_flight() {
    // (A moment at most, which may be over before it was seen.)
    let is_seen = (0..50).any(|_| {
        let (gate, is_back) = (with(&[OTHER]), AtomicU32::new(0));
        gate.state.store(FORK, Relaxed);
        threads::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let (gate, is_back) = (&gate, &is_back);
            let thread = scope.spawn(move || {
                tell.send(thread_number()).expect("somebody waits");
                let is_away = gate.enter().is_none();
                is_back.store(1, Relaxed);
                is_away
            });
            let slept = comes_to_sleep(told.recv().expect("it begins")) && is_back.load(Relaxed) == 0;
            gate.sealed.store(1, Release);
            assert!(thread.join().expect("it returns"));
            slept
        })
    });
    assert!(is_seen);
    // Not who is inside or forks itself, nor where it is in flight: they would wait in vain, a tenth of a second.
    let gate = with(&[OTHER, sys::thread_pointer()]);
    gate.state.store(FORK, Relaxed);
    assert!(gate.enter().is_none() && gate.enter_within(1).is_none());
}

#[test]
fn who_is_alone_comes_in_again_and_others_wait() {
    let gate = Gate::new();
    gate.state.store(ALONE, Relaxed);
    gate.alone.store(OTHER, Relaxed);
    assert!(sleeps_until(|| gate.enter().is_some_and(|inside| inside.room.is_some()), || gate.end_alone()));
    assert_eq!((state(&gate), gate.waits.load(Relaxed), taken(&gate)), (0, 0, std::vec![]));
    let alone = gate.enter_alone();
    assert!(alone.is_some() && gate.enter().is_some_and(|inside| inside.room.is_none()));
    assert_eq!(taken(&gate), [sys::thread_pointer() | ABROAD]);
    drop(alone);
    assert_eq!((state(&gate), gate.alone.load(Relaxed), taken(&gate)), (0, 0, std::vec![]));
}

/// Rooms of the thread (inside, forks), forks in flight, and whether it comes in at once, patient as it is.
#[test]
fn a_patient_thread_waits_for_forks_that_are_not_its_own() {
    be_several();
    for (inside, own, forks, at_once) in [
        (0, 0, 0, true),
        (0, 0, 1, false),
        (1, 0, 1, true),
        (1, 0, 2, false),
        (0, 1, 1, true),
        (0, 1, 2, false),
        (1, 1, 1, true),
        (0, 2, 2, true),
        (0, 3, 3, true),
        (0, 3, 4, false),
    ] {
        for alone in [0, ALONE] {
            if alone != 0 && forks == 0 {
                continue;
            }
            let gate = Gate::new();
            gate.state.store((forks * FORK) | alone, Relaxed);
            gate.alone.store(OTHER, Relaxed);
            gate.sealed.store(1, Relaxed);
            let enters = || {
                let me = sys::thread_pointer();
                (0..inside).for_each(|_| _ = gate.take_room(me));
                (0..own).for_each(|_| assert!(gate.note(FORKS, &gate.notes)));
                let entered = gate.enter_patiently();
                assert_eq!(gate.own(), inside + 1);
                drop(entered);
                assert_eq!((gate.own(), gate.own_notes(FORKS)), (inside, own));
                state(&gate) > 0
            };
            let ends = || {
                gate.alone.store(0, Relaxed);
                gate.state.store(0, Relaxed);
            };
            if at_once {
                assert_eq!(enters(), forks > 0);
            } else {
                assert!(!sleeps_until(enters, ends), "{inside} {own} {forks}");
            }
        }
    }
}

#[test]
fn who_would_wait_for_a_fork_does_not_where_that_is_in_vain() {
    let me = sys::thread_pointer();
    for (room, torn, looks, comes_in) in
        [(0, 0, 0, false), (0, 0, 1, true), (me, 0, 1, false), (me | FORKS, 0, 1, false), (0, 1, 1, false)]
    {
        let gate = with(&[room]);
        gate.torn.store(torn, Relaxed);
        assert_eq!(gate.enter_within(looks).is_some(), comes_in, "{room:x} {torn} {looks}");
    }
    let gate = Gate::new();
    gate.state.store(FORK, Relaxed);
    assert!(gate.enter_within(3).is_none());
    assert!(sleeps_until(|| gate.enter_within(u32::MAX).is_some(), || gate.state.store(0, Relaxed)));
    gate.state.store(FORK, Relaxed);
    sleeps_until(|| gate.wait_for_forks(), || gate.state.store(ALONE, Relaxed));
}

#[test]
fn alone_is_who_found_nobody_inside_and_no_fork() {
    let me = sys::thread_pointer();
    for (room, now, is_alone) in [
        (0, 0, true),
        (OTHER | ABROAD, 0, true),
        (OTHER | FORKS, 0, true),
        (me | VFORKS, 0, true),
        (OTHER, 0, false),
        (me, 0, false),
        (0, FORK, false),
        (0, ALONE, false),
    ] {
        let gate = with(&[room]);
        gate.state.store(now, Relaxed);
        let alone = gate.enter_alone();
        assert_eq!((alone.is_some(), gate.is_alone()), (is_alone, is_alone), "{room:x} {now}");
        assert_eq!(taken(&gate).contains(&(me | ABROAD)), is_alone);
        assert_eq!((state(&gate), gate.alone.load(Relaxed)), if is_alone { (ALONE, me) } else { (now, 0) });
        drop(alone);
        assert_eq!((state(&gate), gate.alone.load(Relaxed)), (now, 0));
        assert!(taken(&gate).into_iter().eq((room != 0).then_some(room)));
    }
    // Who returns may be what a fork waits for.
    for (room, now, returns, is_alone) in [
        (0, FORK, false, false),
        (0, FORK, true, true),
        (0, 3 * FORK, true, true),
        (0, 0, true, true),
        (0, FORK | ALONE, true, false),
        (OTHER, FORK, true, false),
    ] {
        let gate = with(&[room]);
        gate.state.store(now, Relaxed);
        assert_eq!(gate.begin_alone(returns), is_alone, "{room:x} {now} {returns}");
        assert_eq!(state(&gate), if is_alone { now | ALONE } else { now });
        assert_eq!(gate.is_alone(), is_alone);
    }
}

#[test]
fn who_was_alone_tells_those_who_wait() {
    for (forks, waits, tells) in [(0, 0, 0), (0, 1, 1), (0, 2, 1), (1, 0, 1), (2, 1, 1)] {
        let gate = Gate::new();
        gate.state.store((forks * FORK) | ALONE, Relaxed);
        gate.waits.store(waits, Relaxed);
        gate.alone.store(OTHER, Relaxed);
        assert_eq!(told(&gate, || gate.end_alone()), tells, "{forks} {waits}");
        assert_eq!((state(&gate), gate.alone.load(Relaxed)), (forks * FORK, 0));
    }
    let gate = Gate::new();
    gate.state.store(ALONE, Relaxed);
    gate.waits.store(2, Relaxed);
    assert!(wakes_two(&gate.state, false, || gate.end_alone()));
}

#[test]
fn who_is_abroad_lets_others_in_and_returns_when_nobody_is_alone() {
    be_several();
    let (gate, me) = (Gate::new(), sys::thread_pointer());
    // From inside.
    let inside = gate.enter();
    assert_eq!(gate.abroad(|| taken(&gate)), [me | ABROAD]);
    assert_eq!(taken(&gate), [me]);
    drop(inside);
    // From outside: as it is.
    assert_eq!(gate.abroad(|| taken(&gate)), []);
    // From alone inside.
    let alone = gate.enter_alone().expect("nobody is inside");
    assert_eq!(gate.abroad(|| (state(&gate), gate.is_alone(), taken(&gate))), (0, false, std::vec![me | ABROAD]));
    assert_eq!((state(&gate), gate.is_alone(), taken(&gate)), (ALONE, true, std::vec![me | ABROAD]));
    // While another has come in, in a program of several threads: from then on beside it.
    gate.abroad(|| _ = gate.take_room(OTHER));
    assert_eq!((state(&gate), gate.is_alone(), gate.own()), (0, false, 1));
    drop(alone);
    assert_eq!((state(&gate), taken(&gate)), (0, std::vec![OTHER]));
    // While another is alone.
    let gate = Gate::new();
    let goes = || {
        let _inside = gate.enter();
        let tells = told(&gate, || {
            gate.abroad(|| {
                gate.alone.store(OTHER, Relaxed);
                gate.state.store(ALONE, Relaxed);
            });
        });
        (state(&gate), gate.own(), tells > 0)
    };
    let looks = || {
        // It looks whether it may be back, and steps back again.
        let is_abroad = |taken: &[usize]| matches!(taken, [who] if who & ABROAD != 0);
        assert!((0..1_000_000).any(|_| is_abroad(&taken(&gate))));
        gate.alone.store(0, Relaxed);
        gate.state.store(0, Relaxed);
    };
    assert_eq!(sleeps_until(goes, looks), (0, 1, true));
    assert_eq!((gate.waits.load(Relaxed), taken(&gate)), (0, std::vec![]));
}

#[test]
fn a_fork_waits_for_those_inside_or_gives_it_up() {
    be_several();
    let me = sys::thread_pointer();
    for (rooms, begins) in [
        ([0, 0], true),
        ([me, 0], true),
        ([me, me], true),
        ([me | FORKS, me | VFORKS], true),
        ([OTHER | FORKS, OTHER | VFORKS], true),
        ([0, OTHER], false),
        ([0, OTHER | ABROAD], false),
        // (In a program of several threads nobody makes way for what a handler interrupted.)
        ([me, OTHER | ABROAD], false),
    ] {
        let gate = with(&rooms);
        let own = gate.own_notes(FORKS);
        let mut sealed = 0;
        let seal = |again: bool| {
            assert!(!again);
            sealed += 1;
            assert_eq!((state(&gate), gate.own_notes(FORKS), gate.sealed.load(Relaxed)), (FORK, own + 1, 0));
        };
        assert_eq!(gate.fork_begin_within(2, seal, || unreachable!("nobody sealed")), begins, "{rooms:x?}");
        assert_eq!((sealed, gate.sealed.load(Relaxed)), (u32::from(begins), u32::from(begins)));
        assert_eq!((state(&gate), gate.own_notes(FORKS)), if begins { (FORK, own + 1) } else { (0, own) });
        assert!(gate.turn.try_lock().is_some());
        if begins {
            let mut opened = 0;
            assert!(!gate.fork_end(false, || opened += 1));
            assert_eq!((opened, state(&gate), gate.own_notes(FORKS), gate.sealed.load(Relaxed)), (1, 0, own, 0));
        }
        let (mut before, mut after) = (taken(&with(&rooms)), taken(&gate));
        before.sort_unstable();
        after.sort_unstable();
        assert_eq!(before, after);
    }
    let gate = with(&[OTHER]);
    sleeps_until(|| gate.fork_begin(|| assert!(taken(&gate).len() == 1)), || gate.rooms[0].0.store(0, Relaxed));
    assert_eq!((state(&gate), gate.sealed.load(Relaxed)), (FORK, 1));
}

/// A frame is inside, another thread's fork waits for it, and a handler above the frame forks, too.
#[test]
fn a_fork_above_a_frame_inside_passes_one_that_waits_for_it() {
    let gate = Gate::new();
    let (sealed, anew, opened) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let seal = |again: bool| _ = if again { &anew } else { &sealed }.fetch_add(1, SeqCst);
    let open = || _ = opened.fetch_add(1, SeqCst);
    let counts = || [&sealed, &anew, &opened].map(|count| count.load(SeqCst));
    let inside = gate.enter().unwrap();
    threads::scope(|scope| {
        let other = scope.spawn(|| {
            assert!(gate.fork_begin_within(u32::MAX, seal, open));
            gate.fork_end(false, open);
        });
        while state(&gate) != FORK {
            thread::yield_now();
        }
        assert!(gate.fork_begin_within(u32::MAX, seal, open));
        // One that does not wait for long goes, and leaves all as it is.
        let third = scope.spawn(|| assert!(!gate.fork_begin_within(0, seal, open)));
        third.join().unwrap();
        assert_eq!((counts(), state(&gate)), ([1, 0, 0], 2 * FORK));
        gate.fork_end(false, open);
        assert_eq!((counts(), gate.sealed.load(Relaxed)), ([1, 0, 0], STALE));
        drop(inside);
        other.join().unwrap();
    });
    assert_eq!((counts(), state(&gate), gate.sealed.load(Relaxed)), ([1, 1, 1], 0, OPEN));
    assert!(gate.enter().is_some());
    // Who gives up last opens what another, which is over, has sealed.
    let gate = with(&[OTHER]);
    gate.sealed.store(STALE, Relaxed);
    assert!(!gate.fork_begin_within(0, seal, open));
    assert_eq!((counts(), state(&gate), gate.sealed.load(Relaxed)), ([1, 1, 2], 0, OPEN));
}

#[test]
fn the_first_of_several_forks_seals_and_the_last_opens() {
    let gate = Gate::new();
    assert!(wakes_two(&gate.sealed, false, || gate.fork_begin(|| ())), "who naps until it is in flight is told");
    gate.fork_begin(|| unreachable!("sealed"));
    assert_eq!((state(&gate), gate.own_notes(FORKS)), (2 * FORK, 2));
    gate.fork_end(false, || unreachable!("another goes on"));
    assert_eq!((state(&gate), gate.own_notes(FORKS), gate.sealed.load(Relaxed)), (FORK, 1, 1));
    // (A thread that was alone inside went abroad before.)
    gate.state.fetch_add(ALONE, Relaxed);
    let mut opened = 0;
    gate.fork_end(false, || opened += 1);
    assert_eq!((opened, state(&gate), gate.own_notes(FORKS), gate.sealed.load(Relaxed)), (1, ALONE, 0, 0));
    // Those who wait for its end, or for the end of one that gave up, are told.
    let gate = Gate::new();
    gate.fork_begin(|| ());
    assert!(wakes_two(&gate.state, false, || assert!(!gate.fork_end(false, || ()))));
    let gate = with(&[OTHER]);
    gate.state.store(FORK, Relaxed);
    assert!(wakes_two(&gate.state, false, || assert!(!gate.fork_begin_within(
        0,
        |_| unreachable!("somebody is inside"),
        || unreachable!("another goes on")
    ))));
    assert!(wakes_two(&gate.sealed, false, || assert!(!gate.fork_begin_within(
        0,
        |_| unreachable!("somebody is inside"),
        || unreachable!("another goes on")
    ))));
    assert_eq!(state(&gate), FORK);
}

#[test]
fn a_child_has_the_frames_of_its_thread_and_nothing_of_others() {
    let me = sys::thread_pointer();
    for abroad in [0, 1] {
        for torn in [0, 1] {
            let mine = [me, me | ABROAD, me | FORKS, me | FORKS, me | VFORKS];
            let others = [OTHER, OTHER | FORKS, OTHER | VFORKS, OTHER | ABROAD];
            let gate = with(&[&others[..3 + abroad], &mine].concat());
            gate.state.store((5 * FORK) | ALONE, Relaxed);
            gate.alone.store(OTHER, Relaxed);
            gate.waits.store(3, Relaxed);
            gate.torn.store(torn, Relaxed);
            threads::scope(|scope| _ = scope.spawn(|| core::mem::forget(gate.turn.lock())));
            assert_eq!(gate.inherit(), abroad == 1);
            assert_eq!(taken(&gate), mine);
            assert_eq!((gate.alone.load(Relaxed), gate.waits.load(Relaxed)), (0, 0));
            assert_eq!(state(&gate), (2 + torn) * FORK);
            assert!(gate.turn.try_lock().is_some(), "whoever had the turn is not here");
        }
    }
    // By the way that forks take.
    for (rooms, lost) in [([OTHER | ABROAD, OTHER | FORKS], true), ([OTHER | FORKS, OTHER | ABROAD], true)] {
        let gate = Gate::new();
        gate.fork_begin(|| ());
        gate.state.fetch_add(FORK, Relaxed);
        for who in rooms {
            let words: &mut dyn Iterator<Item = &AtomicUsize> =
                if who & FORKS != 0 { &mut gate.notes.iter() } else { &mut gate.rooms.iter().map(|room| &room.0) };
            words.last().expect("there are some").store(who, Relaxed);
        }
        let mut opened = 0;
        assert_eq!(gate.fork_end(true, || opened += 1), lost);
        assert_eq!((opened, state(&gate), taken(&gate)), (1, 0, std::vec![]));
    }
}

#[test]
fn a_child_that_nobody_asked_for_does_without_if_somebody_was_inside() {
    let me = sys::thread_pointer();
    for (room, alone, torn) in [
        (0, 0, false),
        (me, 0, false),
        (me | ABROAD, 0, false),
        (me | ABROAD, me, false),
        (OTHER | FORKS, 0, false),
        (OTHER | VFORKS, 0, false),
        (OTHER, 0, true),
        (OTHER | ABROAD, 0, false),
        (OTHER | ABROAD, OTHER, true),
    ] {
        let gate = with(&[0, room]);
        gate.alone.store(alone, Relaxed);
        gate.state.store(if alone == 0 { 0 } else { ALONE }, Relaxed);
        assert_eq!(gate.inherit_unasked(), torn, "{room:x}");
        assert_eq!(gate.inherit_unasked(), torn, "and its children");
        assert_eq!((state(&gate), gate.sealed.load(Relaxed)), (u32::from(torn) * FORK, u32::from(torn)));
        gate.rooms[1].0.store(0, Relaxed);
        assert_eq!(gate.enter().is_none(), torn);
        assert_eq!(gate.enter_within(2).is_none(), torn);
        // A fork of such a child opens nothing.
        gate.fork_begin(|| assert!(!torn));
        gate.fork_end(true, || assert!(!torn));
        assert_eq!((state(&gate), gate.enter().is_none()), (u32::from(torn) * FORK, torn));
    }
}

#[test]
fn the_programs_only_thread_uses_the_first_rooms_and_ours_come_in_alone() {
    in_a_single_child(|| {
        let me = sys::thread_pointer();
        let gate = Gate::new();
        let inside = [gate.enter(), gate.enter()];
        let rooms = |gate: &Gate| [0, 1, 2].map(|at| gate.rooms[at].0.load(Relaxed));
        assert_eq!((rooms(&gate), taken(&gate).len()), ([me, me, 0], 2));
        drop(inside);
        assert_eq!(taken(&gate), []);
        // A handler's fork passes one of ours that is abroad only where it interrupted somebody inside, for whom ours makes way.
        for (rooms, begins) in [([0, OTHER | ABROAD], false), ([me, OTHER | ABROAD], true), ([me, OTHER], false)] {
            assert_eq!(with(&rooms).fork_begin_within(2, |_| (), || ()), begins, "{rooms:x?}");
        }
        let ours = |gate: &Gate| matches!(gate.enter_ours(), Some(Ours::Alone(_)));
        assert!(ours(&gate) && taken(&gate).is_empty());
        // Beside others from when there are any.
        sys::share();
        assert!(!sys::program_is_single() && matches!(gate.enter_ours(), Some(Ours::Inside(_))));
        let gate = with(&[OTHER]);
        assert!(matches!(gate.enter_ours(), Some(Ours::Inside(_))));
    });
}

static GATE: Gate = Gate::new();
/// The thread of ours in it, and what it has done.
static OURS: AtomicU32 = AtomicU32::new(0);
static STEPS: AtomicU32 = AtomicU32::new(0);

extern "C" fn comes_in_alone(_: usize) -> ! {
    OURS.store(sys::thread_id(), Relaxed);
    let ours = loop {
        // (It gives up after a second.)
        if let Some(ours) = GATE.enter_ours() {
            break ours;
        }
    };
    let was_alone = GATE.is_alone();
    GATE.abroad(|| {
        GATE.rooms[0].0.store(OTHER, Relaxed);
        STEPS.store(1, Relaxed);
    });
    let is_alone = GATE.is_alone();
    drop(ours);
    sys::exit(!(was_alone && is_alone), 9)
}

#[test]
#[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
fn ours_waits_for_the_programs_only_thread_and_again_when_it_was_abroad() {
    in_a_single_child(|| {
        static CREW: Crew = Crew::new();
        GATE.rooms[0].0.store(OTHER, Relaxed);
        CREW.start(comes_in_alone).expect("a thread");
        while OURS.load(Relaxed) == 0 {
            thread::yield_now();
        }
        let ours = OURS.load(Relaxed) as i32;
        assert!(comes_to_sleep(ours) && STEPS.load(Relaxed) == 0);
        GATE.rooms[0].0.store(0, Relaxed);
        while STEPS.load(Relaxed) == 0 {
            thread::yield_now();
        }
        assert!(comes_to_sleep(ours) && !CREW.is_gone());
        GATE.rooms[0].0.store(0, Relaxed);
        assert!(CREW.wait_gone(10_000));
        assert_eq!((state(&GATE), GATE.alone.load(Relaxed), taken(&GATE)), (0, 0, std::vec![]));
    });
}

/// The program's thread ends inside while one of ours is abroad.
#[test]
#[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
fn who_cannot_come_back_ends_with_the_program() {
    extern "C" fn goes_abroad(_: usize) -> ! {
        static GATE: Gate = Gate::new();
        let _ours = GATE.enter_ours();
        GATE.abroad(|| {
            GATE.rooms[0].0.store(OTHER, Relaxed);
            STEPS.store(1, Relaxed);
        });
        sys::exit(true, 9)
    }
    let child = || {
        static CREW: Crew = Crew::new();
        sys::be_single();
        CREW.start(goes_abroad).expect("a thread");
        while STEPS.load(Relaxed) == 0 {
            thread::yield_now();
        }
        sys::exit(false, 5)
    };
    assert_eq!(status_of_a_child(child), 5 << 8);
}

#[test]
fn who_reads_beside_others_is_awaited_by_forks_alone() {
    let (gate, me) = (Gate::new(), sys::thread_pointer());
    let inside = gate.enter();
    gate.beside(|| {
        assert!(taken(&gate).contains(&(me | ABROAD)) && taken(&gate).len() == 2);
        assert!(!with(&[OTHER | ABROAD]).fork_begin_within(2, |_| (), || ()));
    });
    drop(inside);
    assert_eq!(taken(&gate), []);
    gate.state.store(FORK, Relaxed);
    sleeps_until(
        || gate.beside(|| assert_eq!(state(&gate), 0)),
        || {
            gate.state.store(0, Relaxed);
            sys::futex_wake(&gate.state, 9);
        },
    );
}
