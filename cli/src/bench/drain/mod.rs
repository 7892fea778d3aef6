//! # Suite `drain`: what it costs to empty another CPU's cache
//!
//! Each run is a worker process of this same binary ([`work`]): an owner stays on one CPU, a drainer on another. Beside
//! Allotment run the seed's alternatives (`pages/lists.rs`): work queued to the owner, and lists under per-CPU
//! spinlocks; `no drains`, whose drainer does nothing at the same moments: what a machine's own noise is; and `a fence
//! alone`: what the system call costs that an expedited drain makes.
//!
//! `allotment` is the *expedited* way, which `Auto` takes on every CPU that is not isolated.

mod systems;
mod watch;
pub mod work;

use super::harness::{Case, OURS, Setup, cpus};
use super::pages::contender;

/// What is measured, and in what.
pub const METRICS: &[(&str, &str)] = &[
    // A drain: median and the worst one.
    ("latency", "us"),
    ("worst", "us"),
    ("reached", "%"),
    ("recovered", "%"),
    ("fences", "1/drain"),
    // What an owner sees.
    ("gaps", "1/s"),
    ("largest", "us"),
    ("lost", "% of time"),
    ("at-drains", "gaps/drain"),
    ("interruption", "us"),
    ("lost-at-drains", "% of time"),
    ("irq-CAL", "1/s"),
    ("irq-TLB", "1/s"),
    ("irq-LOC", "1/s"),
    ("irq-RES", "1/s"),
    // Slices with and without: the median difference and its interval, by the wall; and by the owner's clock,
    // which other programs cannot touch.
    ("pair", "ns/op"),
    ("slower", "%"),
    ("slower-from", "%"),
    ("slower-to", "%"),
    ("slower-cpu", "%"),
    ("slower-cpu-from", "%"),
    ("slower-cpu-to", "%"),
];
/// Of them, those of which more is better.
pub const HIGHER: &[&str] = &["reached", "recovered"];

/// Keys and names of who competes.
const NOBODY: (&str, &str) = ("none", "no drains");
const EXPEDITED: (&str, &str) = ("expedited", OURS);
const GENTLE: (&str, &str) = ("gentle", "allotment, gentle");
const QUIESCENT: (&str, &str) = ("quiescent", "allotment, owner quiescent");
const FENCE: (&str, &str) = ("fence", "a fence alone");
const IDLE: (&str, &str) = ("idle", "allotment, idle CPUs");
const QUEUED: (&str, &str) = ("queued", "work queued");
const SPINNING: (&str, &str) = ("spinning", "per-CPU spinlocks");

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Latency; the owner sleeps.
    Asleep,
    /// Latency; the owner allocates.
    Busy,
    /// Latency of all CPUs at once, one of them busy.
    All,
    /// What an owner sees that only spins.
    Spins,
    /// What one sees that allocates.
    Allocates,
    /// Pairs in slices.
    Pairs,
}

/// A case.
#[derive(Debug)]
pub struct Work {
    /// Its name.
    pub name: &'static str,
    /// What is done.
    pub about: &'static str,
    /// Who competes.
    pub who: &'static [(&'static str, &'static str)],
    /// What is done.
    pub kind: Kind,
}

/// The cases.
pub const CASES: &[Work] = &[
    Work {
        name: "asleep",
        about: "drain a CPU whose owner sleeps; a drain that is not answered counts 10,000 us",
        who: &[EXPEDITED, GENTLE, QUEUED, SPINNING],
        kind: Kind::Asleep,
    },
    Work {
        name: "busy",
        about: "the same, the owner allocates and frees up to 1,000 pages at a time",
        who: &[EXPEDITED, GENTLE, QUEUED, SPINNING],
        kind: Kind::Busy,
    },
    Work { name: "all", about: "drain all CPUs; one is busy", who: &[EXPEDITED, GENTLE, SPINNING], kind: Kind::All },
    Work {
        name: "spins",
        about: "100 drains a second of an owner that reads the clock: gaps above 0.5 us",
        who: &[NOBODY, FENCE, EXPEDITED, GENTLE, QUIESCENT, IDLE, QUEUED, SPINNING],
        kind: Kind::Spins,
    },
    Work {
        name: "allocates",
        about: "the same of one that also allocates and frees a page each time",
        who: &[NOBODY, EXPEDITED, GENTLE, IDLE, QUEUED, SPINNING],
        kind: Kind::Allocates,
    },
    Work {
        name: "pairs",
        about: "a page, allocate and free: slices of 50 ms with and without 100 drains a second",
        who: &[NOBODY, EXPEDITED, GENTLE, IDLE, QUEUED, SPINNING],
        kind: Kind::Pairs,
    },
];

/// All cases, each with its contenders.
pub fn cases(setup: &Setup) -> Vec<Case> {
    let case = |work: &Work| {
        if cpus() < 2 {
            return Case::skipped(work.name, work.about, "an owner and a drainer need two CPUs".into());
        }
        let contenders = work
            .who
            .iter()
            .map(|&(key, name)| contender("drain", name.to_owned(), format!("{}:{key}", work.name), 1, setup, None));
        Case::new(work.name, work.about, 1, contenders.collect())
    };
    CASES.iter().map(case).collect()
}
