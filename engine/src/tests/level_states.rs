//! Every state of the level counter's protocol, for small cases: owners that step, commit and spill, a folder,
//! and a reader that sums, in all interleavings. What a step computes is the engine's own arithmetic
//! (`counter::level::spill`); what is one step is argued in `counter/level.rs`.
#![allow(missing_docs)]

extern crate std;
use crate::counter::level::spill;
use std::collections::HashSet;
use std::vec::Vec;

const INDICES: usize = 2;
const THREADS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Owner {
    #[default]
    Idle,
    /// In flight, not committed: of an index, by a delta.
    Begun(usize, i8),
    /// Committed, not added.
    Committed(i8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Folder {
    #[default]
    Idle,
    /// Has read `d` of an index.
    Read(usize, i8),
    /// In flight.
    Begun(usize, i8),
    /// The shadow is stored: what is still to add.
    Stored(i8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Reader {
    Idle,
    /// Total when it began, what it has summed of how many indices, and what changed meanwhile: each
    /// index's least and most, and moves begun or ended since.
    Summing {
        total: i8,
        sum: i8,
        at: usize,
        least: [i8; INDICES],
        most: [i8; INDICES],
        moves: u8,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    d: [i8; INDICES],
    shadow: [i8; INDICES],
    /// What each index has really counted.
    truth: [i8; INDICES],
    total: i8,
    flight: u8,
    owners: [Owner; THREADS],
    folder: Folder,
    folded: bool,
    reader: Reader,
    steps: u8,
    folds: u8,
}

/// What the protocol leaves out, for canaries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The folder takes `d` back to 0, as the kernel does on the CPU itself.
    FolderWrites,
    /// The spill is added before the byte is committed.
    SpillFirst,
    /// The bound forgets the spills in flight.
    NoFlight,
}

struct Case {
    threshold: i8,
    deltas: &'static [i8],
    steps: u8,
    folds: u8,
    reads: bool,
    broken: Broken,
}

struct Found {
    states: usize,
    /// Largest error without a spill in flight, with one, and after a fold without one.
    settled: i32,
    flying: i32,
    folded: i32,
}

fn value(state: &State) -> i32 {
    state.truth.iter().map(|&count| i32::from(count)).sum()
}

/// What the module says, of one state.
fn check(case: &Case, state: &State, found: &mut Found) -> Result<(), &'static str> {
    let owners = state.owners.iter().map(|owner| if let Owner::Committed(amount) = owner { *amount } else { 0 });
    let folding = if let Folder::Stored(x) = state.folder { x } else { 0 };
    let differences = (0..INDICES).map(|index| i32::from(state.d[index]) - i32::from(state.shadow[index]));
    let sum =
        i32::from(state.total) + differences.sum::<i32>() + owners.map(i32::from).sum::<i32>() + i32::from(folding);
    if sum != value(state) {
        return Err("invariant");
    }
    if state.d.iter().chain(&state.shadow).any(|byte| byte.unsigned_abs() > case.threshold as u8) {
        return Err("byte");
    }
    let threshold = i32::from(case.threshold);
    let flight = if case.broken == Broken::NoFlight { 0 } else { i32::from(state.flight) };
    let bound = threshold * INDICES as i32 * (1 + i32::from(state.folded)) + (3 * threshold + 1) / 2 * flight;
    let error = (value(state) - i32::from(state.total)).abs();
    if error > bound {
        return Err("bound");
    }
    match (state.folded, state.flight) {
        (false, 0) => found.settled = found.settled.max(error),
        (false, 1) => found.flying = found.flying.max(error),
        (true, 0) => found.folded = found.folded.max(error),
        _ => {}
    }
    Ok(())
}

/// A spill or fold begins or ends.
fn moved(state: &mut State) {
    if let Reader::Summing { moves, .. } = &mut state.reader {
        *moves += 1;
    }
}

fn count(state: &mut State, index: usize, delta: i8) {
    state.truth[index] += delta;
    if let Reader::Summing { least, most, .. } = &mut state.reader {
        least[index] = least[index].min(state.truth[index]);
        most[index] = most[index].max(state.truth[index]);
    }
}

/// All states that one step leads to.
fn next(case: &Case, state: &State, into: &mut Vec<State>) -> Result<(), &'static str> {
    let t = i32::from(case.threshold);
    for thread in 0..THREADS {
        match state.owners[thread] {
            Owner::Idle if state.steps < case.steps => {
                for index in 0..INDICES {
                    for &delta in case.deltas {
                        let mut new = *state;
                        new.steps += 1;
                        let v = i32::from(state.d[index]) + i32::from(delta);
                        if v.abs() <= t {
                            new.d[index] = v as i8;
                            count(&mut new, index, delta);
                        } else {
                            new.flight += 1;
                            moved(&mut new);
                            new.owners[thread] = Owner::Begun(index, delta);
                        }
                        into.push(new);
                    }
                }
            }
            Owner::Idle => {}
            Owner::Begun(index, delta) => {
                // The byte may be another by now: the sequence takes what it finds.
                let mut new = *state;
                let v = i32::from(state.d[index]) + i32::from(delta);
                let (byte, amount) = if v.abs() <= t { (v as i8, 0) } else { spill(v, t) };
                if case.broken == Broken::SpillFirst {
                    new.total += amount as i8;
                    new.owners[thread] = Owner::Committed(0);
                    into.push(new);
                    continue;
                }
                new.d[index] = byte;
                count(&mut new, index, delta);
                new.owners[thread] = Owner::Committed(amount as i8);
                into.push(new);
            }
            Owner::Committed(amount) => {
                let mut new = *state;
                new.total += amount;
                new.flight -= 1;
                moved(&mut new);
                new.owners[thread] = Owner::Idle;
                into.push(new);
            }
        }
    }
    match state.folder {
        Folder::Idle if state.folds < case.folds => {
            for index in 0..INDICES {
                let new = State {
                    folder: Folder::Read(index, state.d[index]),
                    folded: true,
                    folds: state.folds + 1,
                    ..*state
                };
                into.push(new);
            }
        }
        Folder::Idle => {}
        Folder::Read(index, d) => {
            let mut new = State { folder: Folder::Idle, ..*state };
            if d != state.shadow[index] {
                new.folder = Folder::Begun(index, d);
                new.flight += 1;
                moved(&mut new);
            }
            into.push(new);
        }
        Folder::Begun(index, d) => {
            let mut new = *state;
            if case.broken == Broken::FolderWrites {
                new.d[index] = 0;
                new.folder = Folder::Stored(d);
            } else {
                new.folder = Folder::Stored(d - state.shadow[index]);
                new.shadow[index] = d;
            }
            into.push(new);
        }
        Folder::Stored(x) => {
            let mut new = State { folder: Folder::Idle, total: state.total + x, flight: state.flight - 1, ..*state };
            moved(&mut new);
            into.push(new);
        }
    }
    if !case.reads {
        return Ok(());
    }
    match state.reader {
        Reader::Idle => into.push(State {
            reader: Reader::Summing {
                total: state.total,
                sum: state.total,
                at: 0,
                least: state.truth,
                most: state.truth,
                moves: state.flight,
            },
            ..*state
        }),
        Reader::Summing { total, sum, at, least, most, moves } if at < INDICES => {
            let sum = sum + state.d[at] - state.shadow[at];
            into.push(State { reader: Reader::Summing { total, sum, at: at + 1, least, most, moves }, ..*state });
        }
        Reader::Summing { sum, least, most, moves, .. } => {
            let least: i32 = least.iter().map(|&count| i32::from(count)).sum();
            let most: i32 = most.iter().map(|&count| i32::from(count)).sum();
            // Nothing spilled or folded meanwhile: what was counted at some moments of the read.
            let slack = if moves == 0 { 0 } else { 2 * t * i32::from(moves) };
            if i32::from(sum) < least - slack || i32::from(sum) > most + slack {
                return Err("read");
            }
            into.push(State { reader: Reader::Idle, ..*state });
        }
    }
    Ok(())
}

fn explore(case: &Case) -> Result<Found, &'static str> {
    let first = State {
        d: [0; INDICES],
        shadow: [0; INDICES],
        truth: [0; INDICES],
        total: 0,
        flight: 0,
        owners: [Owner::Idle; THREADS],
        folder: Folder::Idle,
        folded: false,
        reader: Reader::Idle,
        steps: 0,
        folds: 0,
    };
    let mut found = Found { states: 0, settled: 0, flying: 0, folded: 0 };
    let mut seen = HashSet::from([first]);
    let mut todo = Vec::from([first]);
    let mut new = Vec::new();
    while let Some(state) = todo.pop() {
        check(case, &state, &mut found)?;
        next(case, &state, &mut new)?;
        todo.extend(new.drain(..).filter(|state| seen.insert(*state)));
    }
    found.states = seen.len();
    Ok(found)
}

fn case(threshold: i8, deltas: &'static [i8], steps: u8, folds: u8) -> Case {
    Case { threshold, deltas, steps, folds, reads: false, broken: Broken::Nothing }
}

#[test]
fn bounds_hold_in_every_state_and_are_reached() {
    // Up only, to the edge: two indices at the threshold, beside a spill of 1.5 thresholds in flight.
    let found = explore(&case(2, &[1], 10, 0)).unwrap();
    assert_eq!((found.settled, found.flying), (4, 4 + 3), "{} states", found.states);
    let found = explore(&case(1, &[1, -1], 7, 0)).unwrap();
    assert_eq!(found.settled, 2, "{} states", found.states);
}

#[test]
fn folding_keeps_the_invariant_and_doubles_the_bound() {
    let mut states = 0;
    for (threshold, deltas, steps, folds) in
        [(1, &[1, -1][..], 6, 3), (2, &[1, -1], 6, 2), (2, &[2, -1], 6, 3), (3, &[3, -2], 5, 3)]
    {
        let found = explore(&case(threshold, deltas, steps, folds)).unwrap();
        states += found.states;
    }
    // Two indices folded at +2, then counted down to -2: 8.
    let found = explore(&case(2, &[2, -2], 6, 2)).unwrap();
    assert_eq!(found.folded.max(8), found.folded, "the bound of 2 thresholds is reached");
    std::println!("{} states", states + found.states);
}

#[test]
fn reads_miss_nothing_but_what_moves_meanwhile() {
    for (threshold, deltas, steps, folds) in [(1, &[1, -1][..], 4, 1), (2, &[2, -1], 4, 1)] {
        let found = explore(&Case { reads: true, ..case(threshold, deltas, steps, folds) }).unwrap();
        std::println!("{} states", found.states);
    }
}

#[test]
fn canaries_fail() {
    let broken = |broken, reads| explore(&Case { broken, reads, ..case(2, &[1, -1], 7, 1) }).err();
    assert!(broken(Broken::FolderWrites, false).is_some());
    assert!(broken(Broken::SpillFirst, false).is_some());
    assert_eq!(broken(Broken::NoFlight, false), Some("bound"));
}

#[test]
fn every_spill_leaves_a_byte_within_the_threshold() {
    for threshold in 1..=125 {
        for widest in threshold..=125 {
            // From a byte that a wider threshold allowed, by a delta that this one does.
            for v in threshold + 1..=widest + threshold {
                for v in [v, -v] {
                    let (byte, amount) = spill(v, threshold);
                    assert_eq!(i32::from(byte) + amount, v);
                    assert!(i32::from(byte).abs() <= threshold, "{v} {threshold}: {byte}");
                    assert!(amount.abs() <= (3 * widest + 1) / 2, "{v} {threshold}: {amount}");
                }
            }
        }
    }
    // A run of single steps spills every 1.5 thresholds.
    let (mut d, mut spills) = (0, 0);
    for _ in 0..36_000 {
        let v = d + 1;
        (d, spills) = if v > 24 { (i32::from(spill(v, 24).0), spills + 1) } else { (v, spills) };
    }
    assert_eq!(spills, 1000);
}
