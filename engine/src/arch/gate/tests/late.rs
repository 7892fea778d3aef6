//! Who waits for forks that overlap, and forks that make way.

use super::*;

const PATIENT: u32 = SEAL_NAPS + 1;

fn forks(gate: &Gate) -> u32 {
    gate.fork_begin(|| ());
    let state = state(gate);
    gate.fork_end(false, || ());
    state
}
fn comes(gate: &Gate) {
    gate.notes[0].store(0, Relaxed);
    gate.noted.fetch_sub(1, Relaxed);
}

#[test]
fn a_fork_makes_way_for_who_has_no_other_way() {
    let gate = with(&[OTHER | LATE]);
    assert!(gate.has_late() && ![0, OTHER, OTHER | FORKS, OTHER | VFORKS].iter().any(|&who| with(&[who]).has_late()));
    assert_eq!(sleeps_until(|| forks(&gate), || comes(&gate)), FORK);
    assert_eq!((taken(&gate), gate.vain.load(Relaxed)), (std::vec![], 0));
    // Also for who has not come in yet behind a fork.
    let gate = with(&[OTHER | LATE]);
    gate.state.store(FORK, Relaxed);
    let ends = || {
        gate.state.store(0, Relaxed);
        gate.gaps.store(1, Relaxed);
        thread::sleep(Duration::from_millis(5));
        assert_eq!(state(&gate), 0);
        comes(&gate);
    };
    assert_eq!(sleeps_until(|| forks(&gate), ends), FORK);
}

#[test]
fn a_fork_makes_way_once_and_not_in_vain() {
    // For a thread with a frame that is inside, forks, vforks or waits it is in vain.
    for own in [0, 1, 2, 3, 4] {
        let gate = with(&[OTHER | LATE]);
        let _inside = (own == 1).then(|| gate.enter());
        let flag = [0, 0, FORKS, VFORKS, LATE][own];
        assert!(flag == 0 || gate.note(flag, &gate.notes));
        gate.torn.store(u32::from(own == 0), Relaxed);
        assert!(forks(&gate) >= FORK && gate.vain.load(Relaxed) == 0, "{own}");
    }
    // Others wait until nobody has come for long; and then none does.
    let gate = with(&[OTHER | LATE]);
    assert_eq!(sleeps_until(|| forks(&gate), || ()), FORK);
    assert_eq!((gate.vain.load(Relaxed), forks(&gate), gate.has_late()), (1, FORK, true));
    // Until somebody has: not who had no time left.
    gate.state.store(FORK, Relaxed);
    drop(gate.be_late());
    assert_eq!(gate.vain.load(Relaxed), 1);
    gate.state.store(ALONE, Relaxed);
    drop(gate.be_late());
    assert_eq!((gate.vain.load(Relaxed), taken(&gate)), (0, std::vec![OTHER | LATE]));
    // Others went before it when all in flight had ended.
    let gate = with(&[OTHER | LATE]);
    gate.state.store(FORK, Relaxed);
    assert_eq!(sleeps_until(|| forks(&gate), || gate.gaps.store(1, Relaxed)), 2 * FORK);
    assert_eq!((gate.has_late(), gate.vain.load(Relaxed)), (true, 0));
}

#[test]
fn who_has_no_other_way_says_so_while_it_waits() {
    be_several();
    let ways: [fn(&Gate) -> bool; 4] = [
        |gate| gate.enter_patiently().room.is_some(),
        |gate| gate.beside(|| true),
        |gate| gate.enter_within(PATIENT).is_some(),
        |gate| gate.enter_within(SEAL_NAPS).is_some(),
    ];
    for (at, way) in ways.into_iter().enumerate() {
        let gate = Gate::new();
        [&gate.sealed, &gate.vain].into_iter().for_each(|word| word.store(1, Relaxed));
        gate.state.store(FORK, Relaxed);
        let ends = || {
            assert_eq!(gate.has_late(), at < 3, "{at}");
            gate.state.store(0, Relaxed);
            sys::futex_wake(&gate.state, 9);
        };
        assert!(sleeps_until(|| way(&gate), ends));
        assert_eq!((taken(&gate), gate.vain.load(Relaxed)), (std::vec![], u32::from(at == 3)));
    }
    // Not in vain, nor where there is no fork; and half of the notes are there for it.
    let gate = with(&[sys::thread_pointer()]);
    assert!(gate.enter_within(PATIENT).is_none() && gate.noted.load(Relaxed) == 0);
    let gate = with(&[OTHER | FORKS; NOTES / 2]);
    let late = gate.be_late();
    assert!(!late.is_noted && !gate.has_late());
    drop(late);
    assert_eq!(taken(&gate).len(), NOTES / 2);
    let gate = Gate::new();
    let mut late = Some(gate.be_late());
    assert!(gate.has_late() && wakes_two(&gate.noted, false, || drop(late.take())) && !gate.has_late());
}

#[test]
fn patience_is_as_long_again_when_a_fork_has_ended() {
    let naps = |patience: &mut Patience, state| (0..).take_while(|_| patience.nap(state).is_some()).count();
    let mut patience = Patience::of(7, 2);
    let all = [3, 3, 2, 4, 3, 2, 1].map(|forks| naps(&mut patience, forks * FORK));
    assert_eq!(all, [3, 0, 3, 0, 3, 0, 0]);
    let mut patience = Patience::of(7, 9);
    assert_eq!([(2 * FORK) | ALONE, 2 * FORK, ALONE].map(|state| naps(&mut patience, state)), [3, 0, 3]);
    assert_eq!(naps(&mut Patience::of(0, 9), FORK), 0);
}

#[test]
fn forks_count_the_gaps_between_them() {
    let gate = Gate::new();
    let gaps = || gate.gaps.load(Relaxed);
    (0..2).for_each(|_| gate.fork_begin(|| ()));
    gate.fork_end(false, || ());
    assert_eq!(gaps(), 0);
    gate.fork_end(false, || assert_eq!(gaps(), 0));
    assert_eq!(gaps(), 1);
    // A child has nobody that is late, but what waits below its own frame.
    let gate = with(&[OTHER | LATE, sys::thread_pointer() | LATE]);
    gate.vain.store(1, Relaxed);
    gate.inherit();
    assert_eq!((taken(&gate), gate.vain.load(Relaxed)), (std::vec![sys::thread_pointer() | LATE], 0));
}
