//! # Suite `drain`: what it costs to empty another CPU's cache
//!
//! Each run is a worker process ([`work`]): an owner stays on one CPU, a drainer on another. Beside
//! Allotment run the seed's alternatives ([`crate::bench::rivals::lists`]): work queued to the owner, and lists under per-CPU
//! spinlocks; `no drains`, whose drainer does nothing at the same moments: what a machine's own noise is; and `a fence
//! alone`: what the system call costs that an expedited drain makes.
//!
//! `allotment` is the *expedited* way, which `Auto` takes on every CPU that is not isolated.

mod systems;
mod watch;
mod work;

use crate::bench::suite::{Case, Setup, Suite};
use crate::bench::team::cpus;
use crate::bench::worker::contenders;
use work::{METRICS, WORKS};

/// The suite.
pub const SUITE: Suite =
    Suite::new("drain", "emptying another CPU's cache, and what its owner sees", cases).of_workers(work::run, METRICS);

fn cases(setup: &Setup) -> Vec<Case> {
    if cpus() < 2 {
        let why = || "an owner and a drainer need two CPUs".to_owned();
        return WORKS.iter().map(|work| Case::skipped(work.name, work.about, why())).collect();
    }
    Case::of(WORKS, |work, threads| contenders(SUITE, setup, work, threads))
}
