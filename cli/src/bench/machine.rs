//! # The machine, as the first row
//!
//! Figures mean nothing without it: processor, memory, kernel, C library, and
//! the versions of what competed.

use super::peer::Peer;
use super::rows::{OURS, Row, median, mib};
use super::team::cpus;
use crate::proc;

/// The row: all words in `case`, the memory as the figure.
pub fn row(peers: &[Peer], runs: usize) -> Row {
    let memory = mib(proc::memory("MemTotal").unwrap_or(0));
    let versions: Vec<String> = peers
        .iter()
        .filter(|peer| peer.name != "glibc")
        .map(|peer| format!("{} {}", peer.name, peer.version).trim_end().to_owned())
        .collect();
    let case = format!(
        "{}, {} CPUs, {:.1} GiB, Linux {}, glibc {}, huge pages {}; {}",
        proc::processor(),
        cpus(),
        memory / 1024.0,
        proc::release(),
        proc::libc_version(),
        proc::huge_pages().unwrap_or_default(),
        versions.join(", ")
    );
    Row {
        suite: "machine".into(),
        case,
        name: OURS.into(),
        threads: cpus(),
        metric: "memory".into(),
        unit: "MiB".into(),
        median: memory,
        min: memory,
        max: memory,
        runs,
        higher_is_better: true,
        values: vec![memory],
    }
}

/// What else the machine did: the load before and after, and the CPUs that others used while cases were measured.
pub fn others(load: [f64; 2], busy: &[f64]) -> [Row; 2] {
    let of = |case: &str, metric: &str, unit: &str, values: &[f64]| Row {
        suite: "machine".into(),
        case: case.into(),
        name: "others".into(),
        threads: cpus(),
        metric: metric.into(),
        unit: unit.into(),
        median: if values.is_empty() { 0.0 } else { median(values) },
        min: values.iter().copied().reduce(f64::min).unwrap_or(0.0),
        max: values.iter().copied().reduce(f64::max).unwrap_or(0.0),
        runs: values.len(),
        higher_is_better: false,
        values: values.to_vec(),
    };
    [
        of("load average before and after", "load", "tasks", &load),
        of("other work while cases were measured", "busy", "CPUs", busy),
    ]
}
