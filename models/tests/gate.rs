//! Forks beside threads that come in, stay outside, go abroad, and come in alone (`engine/src/arch/gate.rs`, as
//! `heap/enter.rs` and `heap/fork.rs` use it).
//!
//! Bound: 2 threads of a program and one of ours, 3 turns each, against 2 forks; 20,000 schedules: 20 seconds. What a
//! forked child would find: everything in its place, nothing in a hand, no lock held; nothing moves until the fork is over,
//! and what was put off meanwhile is done in the end. Nobody waits for a fork: all turns end while it is in flight.
//! Forks in handlers, vforks, and who waits for forks that overlap, by themselves: see there.
#![allow(missing_docs)]

use allotment_models::arch::atomic::{AtomicU32, Ordering::SeqCst};
use allotment_models::arch::lock::{Lock, Owned};
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::{self, Sabotage};
use std::sync::Arc;

const THINGS: u32 = 3;

/// Each in a thread of its own, until all have ended.
fn together<World: Send + Sync + 'static, const N: usize>(world: &Arc<World>, bodies: [fn(&World); N]) {
    let threads = bodies.map(|body| {
        let world = Arc::clone(world);
        spawn(move || body(&world))
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

macro_rules! model {
    ($name:ident, $gate:ty) => {
        mod $name {
            use super::*;
            type Gate = $gate;

            struct World {
                gate: Gate,
                here: Lock<Vec<u32>>,
                there: Lock<Vec<u32>>,
                /// Turns that were put off; counted by threads outside.
                put_off: AtomicU32,
                done: AtomicU32,
                /// Of two forks in flight one looks at a time.
                looking: Lock<()>,
            }

            impl World {
                /// One thing from here to there, or back; in a hand between.
                fn carry(&self) {
                    let thing = self.here.lock().pop();
                    machine::point();
                    match thing {
                        Some(thing) => self.there.lock().push(thing),
                        None => std::mem::swap(&mut *self.here.lock(), &mut *self.there.lock()),
                    }
                    self.done.fetch_add(1, SeqCst);
                }
                fn pay(&self) {
                    while self.put_off.load(SeqCst) > 0 && !self.gate.is_forking() {
                        let owed = self.put_off.swap(0, SeqCst);
                        (0..owed).for_each(|_| self.turn());
                    }
                }
                fn turn(&self) {
                    match self.gate.enter() {
                        Some(_inside) => self.carry(),
                        None => {
                            self.put_off.fetch_add(1, SeqCst);
                            if !self.gate.is_forking() {
                                self.pay();
                            }
                        }
                    }
                }
                fn check(&self) {
                    let _looking = self.looking.lock();
                    let [here, there] = [&self.here, &self.there].map(Lock::try_lock);
                    let (Some(here), Some(there)) = (here, there) else {
                        panic!("VIOLATION: a lock is held in a fork")
                    };
                    let mut all = [here.as_slice(), there.as_slice()].concat();
                    all.sort_unstable();
                    assert!(all.iter().copied().eq(0..THINGS), "VIOLATION: a child would find {all:?}");
                }
            }

            fn program(world: &World) {
                world.turn();
                let inside = world.gate.enter();
                if inside.is_some() {
                    world.gate.abroad(machine::point);
                    world.carry();
                }
                drop(inside);
                world.turn();
            }

            fn ours(world: &World) {
                for _ in 0..3 {
                    let Some(_alone) = world.gate.enter_alone() else { continue };
                    let before = world.done.load(SeqCst);
                    world.carry();
                    machine::point();
                    assert!(world.done.load(SeqCst) == before + 1, "VIOLATION: not alone");
                    world.gate.abroad(machine::point);
                    world.carry();
                }
            }

            fn fork(world: &World) {
                world.gate.fork_begin(|| world.check());
                let before = world.done.load(SeqCst);
                for _ in 0..machine::choose(6) {
                    machine::point();
                }
                world.check();
                assert!(world.done.load(SeqCst) == before, "VIOLATION: something moved in a fork");
                world.gate.fork_end(false, || {});
                world.pay();
            }

            pub fn model() {
                let world = Arc::new(World {
                    gate: Gate::new(),
                    here: Lock::new((0..THINGS).collect()),
                    there: Lock::new(vec![]),
                    put_off: AtomicU32::new(0),
                    done: AtomicU32::new(0),
                    looking: Lock::new(()),
                });
                let bodies: [fn(&World); 5] = [program, program, ours, fork, fork];
                together(&world, bodies);
                world.check();
                assert!(world.put_off.load(SeqCst) == 0, "VIOLATION: put off for ever");
                assert!(world.done.load(SeqCst) >= 4, "VIOLATION: a turn was lost");
            }
        }
    };
}

/// A gate with a rule taken out, every text of which is still the engine's, fails.
macro_rules! canary {
    ($test:ident, $model:literal, $gate:ident, $world:ident) => {
        #[test]
        fn $test() {
            assert_eq!(allotment_models::$gate::MISSING, &[""; 0]);
            fails($model, 2, 20_000, Sabotage::None, $world::model);
        }
    };
}

model!(as_it_is, allotment_models::arch::gate::Gate);
model!(rushes, allotment_models::gate_rushes::Gate);
model!(blind, allotment_models::gate_blind::Gate);
model!(beside, allotment_models::gate_alone_beside::Gate);

#[test]
fn forks_and_those_inside() {
    assert_eq!(allotment_models::arch::gate::MISSING, &[""; 0]);
    holds("gate", 2, 20_000, as_it_is::model);
}
canary!(canary_a_fork_waits_for_nobody, "gate", gate_rushes, rushes);
canary!(canary_nobody_looks_for_a_fork, "gate", gate_blind, blind);
canary!(canary_alone_beside_others, "gate", gate_alone_beside, beside);

/// A handler forks above a frame that is inside and goes on afterwards, beside a fork that waits for that frame, and one that waits for a moment
/// only. What is sealed and opened comes in turns, and whoever forks has a copy of what is there now. (Two such frames would wait for each
/// other: README says so.)
macro_rules! handlers {
    ($name:ident, $gate:ty) => {
        mod $name {
            use super::*;

            #[derive(Default)]
            struct World {
                gate: $gate,
                things: AtomicU32,
                copy: AtomicU32,
                closed: AtomicU32,
            }

            fn fork(world: &World, looks: u32) {
                let seal = |again: bool| {
                    assert!(world.closed.swap(1, SeqCst) == u32::from(again), "VIOLATION: sealed twice");
                    world.copy.store(world.things.load(SeqCst), SeqCst);
                };
                let open = || assert!(world.closed.swap(0, SeqCst) == 1, "VIOLATION: opened twice");
                if world.gate.fork_begin_within(looks, seal, open) {
                    let things = world.things.load(SeqCst);
                    assert!(world.copy.load(SeqCst) == things, "VIOLATION: an old copy");
                    machine::point();
                    assert!(world.closed.load(SeqCst) == 1, "VIOLATION: open in a fork");
                    assert!(world.things.load(SeqCst) == things, "VIOLATION: something moved in a fork");
                    world.gate.fork_end(false, open);
                }
            }

            fn handler(world: &World) {
                let Some(_inside) = world.gate.enter() else { return };
                world.things.fetch_add(1, SeqCst);
                fork(world, u32::MAX);
                world.things.fetch_add(1, SeqCst);
            }

            fn turn(world: &World) {
                if let Some(_inside) = world.gate.enter() {
                    world.things.fetch_add(1, SeqCst);
                }
            }

            pub fn model() {
                let world = Arc::new(World::default());
                let bodies: [fn(&World); 4] =
                    [handler, turn, |world| fork(world, u32::MAX), |world| fork(world, machine::choose(3) as u32)];
                together(&world, bodies);
                assert!(world.closed.load(SeqCst) == 0, "VIOLATION: closed for good");
                assert!(world.gate.enter().is_some(), "VIOLATION: nobody comes in");
            }
        }
    };
}
handlers!(handlers_as_they_are, allotment_models::arch::gate::Gate);
handlers!(handlers_with_old_copies, allotment_models::gate_is_never_stale::Gate);
handlers!(handlers_left_closed, allotment_models::gate_leaves_closed::Gate);
#[test]
fn forks_in_handlers() {
    holds("handlers", 2, 20_000, handlers_as_they_are::model);
}
canary!(canary_a_frame_goes_on_behind_a_copy, "handlers", gate_is_never_stale, handlers_with_old_copies);
canary!(canary_who_gives_up_opens_nothing, "handlers", gate_leaves_closed, handlers_left_closed);

/// Vforks in three threads, whose children begin some, too, and may be killed in them: 3 deep, with two notes for all. The sets are closed as
/// long as one is in flight, and open when all are over: but not where one was killed whose child may go on apart, nor where one had no note.
macro_rules! vforks {
    ($name:ident, $gate:ty) => {
        mod $name {
            use super::*;

            struct World {
                gate: $gate,
                closed: AtomicU32,
                /// Children on stacks of their own, whose parents were killed.
                apart: AtomicU32,
            }

            /// Whether it is over; else its process was killed, which is the child of another.
            fn vfork(world: &World, depth: u32) -> bool {
                world.closed.fetch_add(1, SeqCst);
                let apart = machine::choose(4) == 0;
                let begun = world.gate.vfork_begin(apart);
                // (If its child is killed it goes on itself.)
                if depth < 3 && machine::choose(2) == 0 {
                    let _ = vfork(world, depth + 1);
                }
                machine::point();
                assert!(world.closed.load(SeqCst) >= depth, "VIOLATION: open beside a child");
                if depth > 1 && machine::choose(2) == 0 {
                    world.apart.fetch_add(u32::from(apart), SeqCst);
                    return false;
                }
                let ended = world.gate.vfork_end(begun);
                assert!(world.closed.fetch_sub(ended, SeqCst) >= ended, "VIOLATION: more ends than there were");
                true
            }

            pub fn model() {
                let world =
                    Arc::new(World { gate: <$gate>::new(), closed: AtomicU32::new(0), apart: AtomicU32::new(0) });
                let some: fn(&World) = |world| (0..2).for_each(|_| assert!(vfork(world, 1)));
                together(&world, [some; 3]);
                let closed = world.closed.load(SeqCst);
                assert!(closed >= world.apart.load(SeqCst), "VIOLATION: open beside a child of one that was killed");
                assert!((closed > 0) == (world.gate.own_vforks() > 0), "VIOLATION: closed for good");
            }
        }
    };
}

vforks!(vforks_as_they_are, allotment_models::arch::gate::Gate);
vforks!(vforks_end_all, allotment_models::gate_ends_all::Gate);
vforks!(vforks_note_apart, allotment_models::gate_notes_apart::Gate);
vforks!(vforks_end_one, allotment_models::gate_ends_one::Gate);

#[test]
fn vforks_end_with_those_of_their_children() {
    holds("vforks", 2, 20_000, vforks_as_they_are::model);
}
canary!(canary_a_vfork_ends_its_parents, "vforks", gate_ends_all, vforks_end_all);
canary!(canary_a_vfork_ends_what_is_apart, "vforks", gate_notes_apart, vforks_note_apart);
canary!(canary_a_vfork_ends_none_of_its_child, "vforks", gate_ends_one, vforks_end_one);

/// Forks of three threads, one behind the other, and a thread that waits for them twice: none goes before it that asks when it waits already, but
/// who has made way for it once. (Three asked before that, at most; so may one more each that finds their forks in flight.)
macro_rules! overlaps {
    ($name:ident, $gate:ty) => {
        mod $name {
            use super::*;

            struct World {
                gate: $gate,
                came: AtomicU32,
            }

            fn forks(world: &World) {
                let (mut before, mut passed) = (u32::MAX, 0);
                for _ in 0..8 {
                    let (came, is_late) = (world.came.load(SeqCst), world.gate.has_late());
                    world.gate.fork_begin(|| ());
                    if is_late && world.came.load(SeqCst) == came {
                        passed = if before == came { passed + 1 } else { 1 };
                        before = came;
                        assert!(passed <= 3, "VIOLATION: forks keep a thread out");
                    }
                    (0..machine::choose(6)).for_each(|_| machine::point());
                    world.gate.fork_end(false, || ());
                }
            }

            pub fn model() {
                let world = Arc::new(World { gate: <$gate>::new(), came: AtomicU32::new(0) });
                let comes = |world: &World| {
                    for _ in 0..2 {
                        let inside = world.gate.enter_patiently();
                        world.came.fetch_add(1, SeqCst);
                        drop(inside);
                    }
                };
                let bodies: [fn(&World); 4] = [comes, forks, forks, forks];
                together(&world, bodies);
                assert!(world.came.load(SeqCst) == 2 && !world.gate.has_late(), "VIOLATION: it waits for ever");
            }
        }
    };
}

overlaps!(overlaps_as_they_do, allotment_models::gate_patient::Gate);
overlaps!(overlaps_keep_out, allotment_models::gate_makes_no_way::Gate);

#[test]
fn forks_make_way() {
    assert_eq!(allotment_models::gate_patient::MISSING, &[""; 0]);
    holds("overlaps", 2, 20_000, overlaps_as_they_do::model);
}
canary!(canary_forks_make_no_way, "overlaps", gate_makes_no_way, overlaps_keep_out);

/// A lock that its owner passes through; one more each, slowly.
#[test]
fn owned_lock() {
    holds("owned lock", 1, 20_000, || {
        let world = Arc::new((Owned::new(), AtomicU32::new(0)));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let world = Arc::clone(&world);
                spawn(move || {
                    let _held = world.0.lock();
                    assert!(world.0.lock().is_through() && world.0.try_lock().is_none(), "VIOLATION: not its owner's");
                    let count = world.1.load(SeqCst);
                    machine::point();
                    world.1.store(count + 1, SeqCst);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(world.1.load(SeqCst) == 3, "VIOLATION: two at a time");
    });
}
