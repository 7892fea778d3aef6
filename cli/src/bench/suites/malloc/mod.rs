//! # Suite `malloc`: the C functions, in small
//!
//! Each run is a worker process ([`work`]) with the contender preloaded.

mod queue;
mod work;

use crate::bench::suite::{Case, Setup, Suite};
use crate::bench::worker::contenders;
use work::{METRICS, WORKS};

/// The suite.
pub const SUITE: Suite = Suite::new("malloc", "the C functions, in small", cases).of_workers(work::run, METRICS);

fn cases(setup: &Setup) -> Vec<Case> {
    Case::of(WORKS, |work, threads| contenders(SUITE, setup, work, threads))
}
