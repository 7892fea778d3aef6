//! The orderings of aarch64's sequences (`engine/src/arch/aarch64/seq.rs`), on a memory that reorders all it may.
//!
//! ```text
//! a thread: instructions in a row; each may be performed before those above it, but
//!   where one takes what the other loads      an address or a value made of it, a store behind a branch on it
//!   where both are of one region              (a processor sees its own accesses to one place in order)
//!   where it is told                          acquire: all below wait; release: waits for all above; fence: both
//! ```
//! A load waits for no branch. A performed store is seen by all at once, as the architecture has it; what a processor sees of
//! its own stores early is left out. A fence of a CPU (`membarrier`) finds its thread before a sequence's commit, which
//! it aborts: what was performed of it stays performed if it is a store, and is forgotten if it is a load; or behind the commit, and then
//! waits until all above is performed.
//!
//! Bound: every state of two threads with at most two sequences each: some thousands, 0.1 s.
#![allow(missing_docs)]

use std::collections::HashSet;

const REGISTERS: usize = 8;
type Values = [u8; REGISTERS];
/// A function of registers, and those that it takes.
type Of<T> = (&'static [usize], fn(&Values) -> T);

const ALWAYS: Of<bool> = (&[], |_| true);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// Into a register.
    Load(usize),
    Store,
    Fence,
    /// Of the CPU of the other thread, if a condition holds.
    FenceCpu,
}

#[derive(Clone, Copy)]
struct Instruction {
    kind: Kind,
    at: Of<u8>,
    value: Of<u8>,
    /// Behind a branch: performed as nothing where it is false.
    only_if: Of<bool>,
    acquire: bool,
    release: bool,
    /// Of which sequence; and whether it commits that.
    sequence: Option<(usize, bool)>,
}

const NOTHING: Of<u8> = (&[], |_| 0);

fn load(to: usize, at: Of<u8>) -> Instruction {
    let kind = Kind::Load(to);
    Instruction { kind, at, value: NOTHING, only_if: ALWAYS, acquire: false, release: false, sequence: None }
}
fn store(at: Of<u8>, value: Of<u8>) -> Instruction {
    Instruction { kind: Kind::Store, value, ..load(0, at) }
}
fn fence() -> Instruction {
    Instruction { kind: Kind::Fence, ..load(0, NOTHING) }
}
fn fence_cpu() -> Instruction {
    Instruction { kind: Kind::FenceCpu, ..load(0, NOTHING) }
}

impl Instruction {
    fn only_if(self, only_if: Of<bool>) -> Self {
        Self { only_if, ..self }
    }
    fn acquire(self) -> Self {
        Self { acquire: true, ..self }
    }
    fn release_if(self, release: bool) -> Self {
        Self { release, ..self }
    }
}

/// One sequence; its last instruction commits.
fn sequence(number: usize, body: &[Instruction]) -> Vec<Instruction> {
    let last = body.len() - 1;
    body.iter().enumerate().map(|(at, of)| Instruction { sequence: Some((number, at == last)), ..*of }).collect()
}

// Places. A region is a place's upper half.
const SLOT: u8 = 0x00;
const CPU: u8 = 0x10;
/// The words of set 1 and of set 2 (of 0, the void set, too): which cell is behind the last object; and their cells, two each between two
/// barriers, which are 0.
const fn word(set: u8) -> u8 {
    0x20 + set
}
const fn cell(set: u8, at: u8) -> u8 {
    0x30 + set * 4 + (at & 3)
}
const PLACES: usize = 0x40;

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    memory: Vec<u8>,
    /// Bits of instructions.
    performed: [u16; 2],
    values: [Values; 2],
    /// Bits of registers that are loaded.
    known: [u8; 2],
    /// Sequences that a fence aborted, bits; all behind such a one never runs.
    aborted: [u8; 2],
}

struct Model {
    threads: [Vec<Instruction>; 2],
    start: Vec<(u8, u8)>,
    check: fn(&Model, &State) -> Result<(), String>,
}

impl Model {
    /// Whether `later` waits for `earlier`, which is above it and not performed.
    fn waits(earlier: &Instruction, later: &Instruction) -> bool {
        let is_fence = |of: &Instruction| matches!(of.kind, Kind::Fence | Kind::FenceCpu);
        let region = |of: &Instruction, values: &Values| (of.at.1)(values) >> 4;
        is_fence(earlier)
            || is_fence(later)
            || earlier.acquire
            || later.release
            // (The same with any registers: regions do not depend on them.)
            || region(earlier, &[0; REGISTERS]) == region(later, &[0; REGISTERS])
    }

    fn is_known(state: &State, thread: usize, registers: &[usize]) -> bool {
        registers.iter().all(|&register| state.known[thread] >> register & 1 == 1)
    }

    /// The states after one more instruction of a thread.
    fn step(&self, state: &State, thread: usize, number: usize) -> Option<State> {
        let of = &self.threads[thread][number];
        let is_done = |at: usize| state.performed[thread] >> at & 1 == 1;
        let above = self.threads[thread][..number].iter().enumerate();
        let waits = above.into_iter().any(|(at, earlier)| !is_done(at) && Self::waits(earlier, of));
        let needs_branch = !matches!(of.kind, Kind::Load(_));
        if is_done(number)
            || waits
            || !Self::is_known(state, thread, of.at.0)
            || !Self::is_known(state, thread, of.value.0)
            || needs_branch && !Self::is_known(state, thread, of.only_if.0)
        {
            return None;
        }
        let mut next = state.clone();
        next.performed[thread] |= 1 << number;
        let values = &state.values[thread];
        match of.kind {
            Kind::Load(to) => {
                next.values[thread][to] = state.memory[(of.at.1)(values) as usize];
                next.known[thread] |= 1 << to;
            }
            Kind::Store if (of.only_if.1)(values) => {
                next.memory[(of.at.1)(values) as usize] = (of.value.1)(values);
            }
            Kind::FenceCpu if (of.only_if.1)(values) => return self.fenced(next, 1 - thread),
            _ => {}
        }
        Some(next)
    }

    /// What the fence leaves of the thread: `None` if it has to go on first.
    fn fenced(&self, mut state: State, thread: usize) -> Option<State> {
        let all = &self.threads[thread];
        let is_done = |at: usize| state.performed[thread] >> at & 1 == 1;
        // The thread stands behind the last store that is seen: all above it is performed.
        let last = (0..all.len()).rev().find(|&at| is_done(at) && all[at].kind == Kind::Store).map_or(0, |at| at + 1);
        if !(0..last).all(is_done) {
            return None;
        }
        // In a sequence: it is aborted, and what is below never runs.
        let here = (last..all.len()).find_map(|at| all[at].sequence.filter(|_| !is_done(at)));
        if let Some((number, _)) = here {
            state.aborted[thread] |= 1 << number;
            state.performed[thread] = (1 << all.len()) - 1;
        }
        Some(state)
    }

    fn committed(&self, state: &State, thread: usize, number: usize) -> bool {
        let first = state.aborted[thread].trailing_zeros() as usize;
        let commit = self.threads[thread].iter().find(|of| of.sequence == Some((number, true))).unwrap();
        number < first && (commit.only_if.1)(&state.values[thread])
    }

    /// Every state; how many ends there are.
    fn run(&self) -> Result<usize, String> {
        let mut memory = vec![0; PLACES];
        self.start.iter().for_each(|&(at, value)| memory[at as usize] = value);
        let first = State { memory, performed: [0; 2], values: [[0; REGISTERS]; 2], known: [0; 2], aborted: [0; 2] };
        let (mut seen, mut todo, mut ends) = (HashSet::from([first.clone()]), vec![first], 0);
        while let Some(state) = todo.pop() {
            let all = (0..2).flat_map(|thread| (0..self.threads[thread].len()).map(move |number| (thread, number)));
            let before = todo.len();
            let mut moved = false;
            for next in all.filter_map(|(thread, number)| self.step(&state, thread, number)) {
                moved = true;
                if seen.insert(next.clone()) {
                    todo.push(next);
                }
            }
            if !moved {
                assert_eq!(before, todo.len());
                let is_over =
                    (0..2).all(|thread| state.performed[thread].count_ones() as usize == self.threads[thread].len());
                assert!(is_over, "stuck");
                ends += 1;
                (self.check)(self, &state)?;
            }
        }
        Ok(ends)
    }
}

/// Both: the rule holds; with it taken out something is found.
fn rule(model: impl Fn(bool) -> Model) {
    let ends = model(true).run().unwrap_or_else(|error| panic!("{error}"));
    assert!(ends > 1, "nothing happened");
    assert!(model(false).run().is_err(), "the canary lives");
}

const OLD: u8 = 1;
const NEW: u8 = 2;
/// The objects: one in the old set's first cell, one in the worker's hand.
const A: u8 = 7;
const B: u8 = 9;
/// In a cell that is free.
const FREE: u8 = 3;

/// `pop` into register 2, by way of registers 0 (the set) and 1 (its word).
fn pop(number: usize) -> Vec<Instruction> {
    sequence(
        number,
        &[
            load(0, (&[], |_| SLOT)),
            load(1, (&[0], |r| word(r[0]))),
            load(2, (&[0, 1], |r| cell(r[0], r[1].wrapping_sub(1)))),
            store((&[0], |r| word(r[0])), (&[1], |r| r[1].wrapping_sub(1))).only_if((&[2], |r| r[2] != 0)),
        ],
    )
}

/// `push` of B, by way of registers 3, 4 and 5.
fn push(number: usize) -> Vec<Instruction> {
    const MAY: Of<bool> = (&[5], |r| r[5] != 0);
    sequence(
        number,
        &[
            load(3, (&[], |_| SLOT)),
            load(4, (&[3], |r| word(r[3]))),
            load(5, (&[3, 4], |r| cell(r[3], r[4]))),
            store((&[3, 4], |r| cell(r[3], r[4])), (&[], |_| B)).only_if(MAY),
            store((&[3], |r| word(r[3])), (&[4], |r| r[4] + 1)).only_if(MAY),
        ],
    )
}

/// What a drainer reads of the old set: its word into 0, its cells into 1 and 2.
fn gather() -> Vec<Instruction> {
    vec![load(0, (&[], |_| word(OLD))), load(1, (&[], |_| cell(OLD, 1))), load(2, (&[], |_| cell(OLD, 2)))]
}

/// Everything is in one place: what the drainer gathered, the new set, the worker's hand.
fn nothing_is_lost(state: &State, hand: &[u8]) -> Result<(), String> {
    let drained = &state.values[1];
    let mut all = hand.to_vec();
    all.extend(&drained[1..drained[0] as usize]);
    all.extend((1..state.memory[word(NEW) as usize]).map(|at| state.memory[cell(NEW, at) as usize]));
    all.sort_unstable();
    if all == [A, B] { Ok(()) } else { Err(format!("objects {all:?}")) }
}

/// Thread 0 pops and pushes, thread 1 drains.
fn after_pop_and_push(model: &Model, state: &State) -> Result<(), String> {
    let mut hand = Vec::new();
    if model.committed(state, 0, 0) {
        hand.push(state.values[0][2]);
    }
    if !model.committed(state, 0, 1) {
        hand.push(B);
    }
    nothing_is_lost(state, &hand)
}

fn starts() -> Vec<(u8, u8)> {
    let new = [(word(NEW), 1), (cell(NEW, 1), FREE), (cell(NEW, 2), FREE)];
    [vec![(SLOT, OLD), (word(OLD), 2), (cell(OLD, 1), A), (cell(OLD, 2), FREE)], new.to_vec()].concat()
}

/// Pop and push commit by plain stores: the drainer's fence of their CPU is enough, and needed.
#[test]
fn a_drain_behind_a_fence_takes_what_is_there() {
    rule(|fenced| {
        let mut drain = vec![store((&[], |_| SLOT), (&[], |_| NEW)).release_if(true), fence()];
        drain.extend(fenced.then(fence_cpu));
        drain.extend(gather());
        Model { threads: [[pop(0), push(1)].concat(), drain], start: starts(), check: after_pop_and_push }
    });
}

/// A set's words before its slot, by a release: whoever makes a set, or switches to one.
#[test]
fn a_set_is_filled_before_its_slot_leads_to_it() {
    rule(|release| {
        // A set with A in it, published; who pops finds A.
        let publish = vec![
            store((&[], |_| cell(NEW, 1)), (&[], |_| A)),
            store((&[], |_| word(NEW)), (&[], |_| 2)),
            store((&[], |_| SLOT), (&[], |_| NEW)).release_if(release),
        ];
        let check = |model: &Model, state: &State| {
            let found = state.values[0][2];
            if model.committed(state, 0, 0) && found != A || state.values[0][0] == NEW && state.values[0][1] != 2 {
                return Err(format!("popped {found} below cell {}", state.values[0][1]));
            }
            Ok(())
        };
        Model { threads: [pop(0), publish], start: vec![], check }
    });
}

/// The loads behind the slot take their addresses from it: without that they would need an acquire.
#[test]
fn dependent_loads_are_in_order() {
    rule(|dependent| {
        let publish =
            vec![store((&[], |_| word(NEW)), (&[], |_| 1)), store((&[], |_| SLOT), (&[], |_| NEW)).release_if(true)];
        let at: Of<u8> = if dependent { (&[0], |r| word(r[0])) } else { (&[], |_| word(NEW)) };
        let look = sequence(
            0,
            &[
                load(0, (&[], |_| SLOT)),
                load(1, at),
                store((&[], |_| CPU), (&[1], |r| r[1])).only_if((&[0], |r| r[0] == NEW)),
            ],
        );
        let check = |_: &Model, state: &State| match state.values[0] {
            [NEW, 0, ..] => Err("the slot, and not the set behind it".into()),
            _ => Ok(()),
        };
        Model { threads: [look, publish], start: vec![], check }
    });
}

/// A set that its own CPU switches off is drained without a fence: the switch releases.
#[test]
fn a_switch_by_the_owner_publishes_what_was_done() {
    rule(|release| {
        let switch = sequence(
            2,
            &[
                load(6, (&[], |_| SLOT)),
                store((&[], |_| SLOT), (&[], |_| 0)).only_if((&[6], |r| r[6] == OLD)).release_if(release),
            ],
        );
        let mut drain = vec![load(3, (&[], |_| SLOT)).acquire()];
        drain.extend(gather());
        let check = |model: &Model, state: &State| {
            // (Not switched yet: nobody drains.)
            if state.values[1][3] == OLD { Ok(()) } else { after_pop_and_push(model, state) }
        };
        Model { threads: [[pop(0), push(1), switch].concat(), drain], start: starts(), check }
    });
}

/// `swap` publishes a sheaf: who sees its word sees what it holds.
#[test]
fn a_swap_publishes_what_the_sheaf_holds() {
    rule(|release| {
        let mut fill = vec![store((&[], |_| cell(OLD, 2)), (&[], |_| B))];
        fill.extend(sequence(
            0,
            &[
                load(0, (&[], |_| SLOT)),
                load(1, (&[0], |r| word(r[0]))),
                store((&[0], |r| word(r[0])), (&[], |_| 3))
                    .only_if((&[0, 1], |r| r[0] == OLD && r[1] == 2))
                    .release_if(release),
            ],
        ));
        let look = vec![load(0, (&[], |_| word(OLD))).acquire(), load(1, (&[], |_| cell(OLD, 2)))];
        let check = |_: &Model, state: &State| match state.values[1] {
            [3, FREE, ..] => Err("the word, and not what the sheaf holds".into()),
            _ => Ok(()),
        };
        Model { threads: [fill, look], start: starts(), check }
    });
}

/// A byte that a spill commits (`unit_seq::swap`) is seen only with what was announced before it; the reader looks
/// at the announcement last (`counter/level.rs`).
#[test]
fn a_committed_state_is_seen_with_what_announced_it() {
    rule(|release| {
        let mut spill = vec![store((&[], |_| SLOT), (&[], |_| 1))];
        spill.extend(sequence(0, &[store((&[], |_| CPU), (&[], |_| 1)).release_if(release)]));
        let look = vec![load(0, (&[], |_| CPU)), fence(), load(1, (&[], |_| SLOT))];
        let check = |_: &Model, state: &State| match state.values[1] {
            [1, 0, ..] => Err("the commit, and not that somebody is in flight".into()),
            _ => Ok(()),
        };
        Model { threads: [spill, look], start: vec![], check }
    });
}
