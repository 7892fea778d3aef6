//! Areas of 8 to 64 MiB that wait for the next request (`engine/src/vmap/wide.rs`): threads that take, change and leave them, and one that empties all.
//!
//! Bound: 2 threads on 2 CPUs that take and leave 3 areas, 6 steps each, and one that takes all twice; 20,000 schedules: seconds. What is checked: an area
//! has one owner, who finds it as the last one left it, and none is lost.
#![allow(missing_docs)]

use allotment_models::arch::atomic::AtomicUsize;
use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::Sabotage;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed, Ordering::SeqCst};

/// Areas, beginning with number 1.
const AREAS: usize = 3;

/// An area: who has it, and what its owners left there, plainly.
#[derive(Default)]
struct Area {
    owners: AtomicU8,
    /// Twice, in a machine whose stores wait: a torn pair is one that is not seen whole.
    left: [AtomicUsize; 2],
}

impl Area {
    fn taken(&self) {
        assert!(self.owners.fetch_add(1, SeqCst) == 0, "VIOLATION: two have an area");
        let left = [0, 1].map(|at| self.left[at].load(Relaxed));
        assert!(left[0] == left[1], "VIOLATION: an area is not as it was left: {left:?}");
    }
    fn left(&self) {
        for word in &self.left {
            word.store(word.load(Relaxed) + 1, Relaxed);
        }
        self.owners.fetch_sub(1, SeqCst);
    }
}

/// The models over the engine's, and over broken ones.
macro_rules! models {
    ($($wide:ident)*) => {$(
        mod $wide {
            use super::*;
            use allotment_models::$wide::Wide;

            pub fn model() {
                let wide = Arc::new(Wide::new());
                let areas: Arc<[Area; AREAS]> = Arc::default();
                let gone = Arc::new(std::sync::Mutex::new(vec![]));
                let users: Vec<_> = (0..2)
                    .map(|cpu| {
                        let (wide, areas, gone) = (Arc::clone(&wide), Arc::clone(&areas), Arc::clone(&gone));
                        spawn(move || {
                            let mut own = vec![cpu + 1];
                            if cpu == 0 {
                                own.push(AREAS);
                            }
                            for &area in &own {
                                areas[area - 1].taken();
                            }
                            for round in 0..6 {
                                if let Some(area) = own.pop() {
                                    areas[area - 1].left();
                                    if !wide.put(cpu, area) {
                                        areas[area - 1].taken();
                                        own.push(area);
                                    }
                                }
                                if round % 2 == 1
                                    && let Some(area) = wide.take(cpu + round, |area| area != cpu + 2)
                                {
                                    areas[area - 1].taken();
                                    own.push(area);
                                }
                            }
                            gone.lock().expect("no panic").extend(own);
                        })
                    })
                    .collect();
                for _ in 0..2 {
                    for area in wide.take_all() {
                        areas[area - 1].taken();
                        gone.lock().expect("no panic").push(area);
                    }
                }
                users.into_iter().for_each(|user| user.join().expect("no panic"));
                let mut all = gone.lock().expect("no panic").clone();
                all.extend(wide.take_all());
                all.sort_unstable();
                assert!(all == [1, 2, 3], "VIOLATION: {all:?}");
            }
        }
    )*};
}
models! { wide wide_takes_blindly wide_puts_blindly }

#[test]
fn an_area_has_one_owner() {
    holds("areas that wait", 2, 20_000, wide::model);
}
#[test]
fn canary_takes_what_it_saw() {
    fails("areas that wait", 2, 50_000, Sabotage::None, wide_takes_blindly::model);
}
#[test]
fn canary_leaves_one_where_it_saw_room() {
    fails("areas that wait", 2, 50_000, Sabotage::None, wide_puts_blindly::model);
}
