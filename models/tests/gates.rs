//! The gates of the heap's fast paths (`engine/src/heap/gates.rs`): one thread opens and shuts them while another makes it that others are
//! served, too.
//!
//! Bound: 2 threads, 3 and 1 changes; 20,000 schedules: a second. What is checked: in the end the gate of others is the other.
#![allow(missing_docs)]

use allotment_models::harness::{fails, holds, spawn};
use allotment_models::machine::Sabotage;
use std::sync::Arc;

/// The model over the engine's, and over a broken one.
macro_rules! models {
    ($($gates:ident)*) => {$(
        mod $gates {
            use super::*;
            use allotment_models::$gates::Gates;

            fn model(last: usize) {
                let gates = Arc::new(Gates::new());
                let served = {
                    let gates = Arc::clone(&gates);
                    spawn(move || gates.serve_others(7))
                };
                for small in [5, 0, last] {
                    gates.set(small, 1);
                }
                served.join().expect("no panic");
                let [small, biased, others, windows] = gates.sizes();
                assert!((small, biased, windows) == (last, 1, 7));
                assert!(others == last, "VIOLATION: others pass up to {others}, not {last}");
            }

            pub fn shut() {
                model(0);
            }
            pub fn open() {
                model(5);
            }
        }
    )*};
}
models! { gates gates_looks_once }

#[test]
fn others_are_served_as_all_are() {
    holds("gates that are shut", 2, 10_000, gates::shut);
    holds("gates that are open", 2, 10_000, gates::open);
}
#[test]
fn canary_does_not_look_behind_it() {
    fails("gates that are shut", 2, 20_000, Sabotage::None, gates_looks_once::shut);
    fails("gates that are open", 2, 20_000, Sabotage::None, gates_looks_once::open);
}
