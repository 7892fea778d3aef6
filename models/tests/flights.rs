//! Slices of a purge in flight against reuse, further purges and forks (`engine/src/vmap/flight.rs`, as
//! `vmap/purge.rs` uses it).
//!
//! Bound: 2 threads that take, release and settle three slices, one that gathers, one that reuses and frees, and 2
//! forks; 20,000 schedules: 10 seconds. What a forked child would find: every area once, queued, lazy, free or the
//! program's, none in flight; and nothing moves until the fork is over.
#![allow(missing_docs)]

use allotment_models::arch::lock::Lock;
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::{self, Sabotage};
use std::sync::Arc;

const AREAS: usize = 4;

macro_rules! model {
    ($name:ident, $flight:ident) => {
        mod $name {
            use super::*;
            use allotment_models::$flight::Flights;

            struct World {
                /// `Reclaim::purging`: to gather, and to fork.
                purging: Lock<()>,
                flights: Flights<Vec<usize>>,
                lazy: Lock<Vec<usize>>,
                free: Lock<Vec<usize>>,
                /// The program's own.
                used: Lock<Vec<usize>>,
            }

            fn purge(world: &World) {
                for _ in 0..3 {
                    let Some((_flight, area)) = world.flights.begin(Vec::pop) else { continue };
                    // The system call.
                    machine::point();
                    if machine::choose(3) > 0 {
                        world.free.lock().push(area);
                    } else {
                        // Refused.
                        world.lazy.lock().push(area);
                    }
                }
            }

            fn gather(world: &World) {
                let held = world.purging.lock();
                let taken = std::mem::take(&mut *world.lazy.lock());
                machine::point();
                world.flights.lock().extend(taken);
                drop(held);
            }

            fn program(world: &World) {
                for _ in 0..2 {
                    // Reuse and free change hands in one step here: the program's own threads are not in the child.
                    let mut used = world.used.lock();
                    let area = world.lazy.lock().pop();
                    let area = area.or_else(|| world.free.lock().pop());
                    used.extend(area);
                    drop(used);
                    machine::point();
                    let mut used = world.used.lock();
                    if let Some(area) = used.pop() {
                        world.lazy.lock().push(area);
                    }
                    drop(used);
                }
            }

            fn fork(world: &World) {
                world.purging.fork_begin();
                world.flights.fork_begin();
                // The forking thread may give back itself.
                if machine::choose(2) > 0
                    && let Some((_flight, area)) = world.flights.begin(Vec::pop)
                {
                    world.lazy.lock().push(area);
                }
                world.used.fork_begin();
                world.lazy.fork_begin();
                world.free.fork_begin();
                for _ in 0..2 {
                    let mut all = vec![];
                    for list in [&world.used, &world.lazy, &world.free] {
                        all.extend_from_slice(&list.lock());
                    }
                    all.extend_from_slice(&world.flights.lock());
                    all.sort_unstable();
                    assert!(all.iter().copied().eq(0..AREAS), "VIOLATION: a child would find {all:?}");
                    assert!(world.flights.flying() == 0, "VIOLATION: in flight in a fork");
                    machine::point();
                }
                world.free.fork_end();
                world.lazy.fork_end();
                world.used.fork_end();
                world.flights.fork_end();
                world.purging.fork_end();
            }

            pub fn model() {
                let world = Arc::new(World {
                    purging: Lock::new(()),
                    flights: Flights::new(vec![0, 1]),
                    lazy: Lock::new(vec![2]),
                    free: Lock::new(vec![]),
                    used: Lock::new(vec![3]),
                });
                let bodies: [fn(&World); 6] = [purge, purge, gather, program, fork, fork];
                let threads: Vec<_> = bodies
                    .into_iter()
                    .map(|body| {
                        let world = Arc::clone(&world);
                        spawn(move || body(&world))
                    })
                    .collect();
                threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
                let mut all = [&world.used, &world.lazy, &world.free].map(|list| list.lock().clone()).concat();
                all.extend_from_slice(&world.flights.lock());
                all.sort_unstable();
                assert!(all.iter().copied().eq(0..AREAS), "VIOLATION: in the end there is {all:?}");
            }
        }
    };
}

model!(as_it_is, flight);
model!(rushes, flight_fork_rushes);
model!(late, flight_counted_late);

#[test]
fn slices_reuse_and_forks() {
    holds("flights", 2, 20_000, as_it_is::model);
}
#[test]
fn canary_a_fork_waits_for_nothing() {
    assert_eq!(allotment_models::flight_fork_rushes::MISSING, &[""; 0]);
    fails("flights", 2, 20_000, Sabotage::None, rushes::model);
}
#[test]
fn canary_a_slice_is_counted_late() {
    assert_eq!(allotment_models::flight_counted_late::MISSING, &[""; 0]);
    fails("flights", 2, 50_000, Sabotage::None, late::model);
}
