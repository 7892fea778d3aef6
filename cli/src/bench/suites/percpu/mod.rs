//! # Suite `percpu`: the seed's table
//!
//! Each run is a worker process ([`work`]) with one thread (but for the cases with two), so that histories do not mix.
//! Beside Allotment runs the seed's own baseline, the area map ([`area`]), with fewer objects where it is slow: how many
//! stands in its name; and, where there is one, the floor: the zeroing that an allocation must do, or the cache miss
//! that a free at a random place must take.

mod area;
mod work;

use crate::bench::suite::{Case, Setup, Suite};
use crate::bench::worker::contenders;
use work::{METRICS, WORKS};

/// The suite.
pub const SUITE: Suite = Suite::new("percpu", "per-CPU memory, as when Linux got its bitmap allocator", cases)
    .of_workers(work::run, METRICS);

fn cases(setup: &Setup) -> Vec<Case> {
    Case::of(WORKS, |work, threads| contenders(SUITE, setup, work, threads))
}
