//! # The machine, as the first row
//!
//! Figures mean nothing without it: processor, memory, kernel, C library, and
//! the versions of what competed.

use super::harness::{OURS, Row, cpus, median};
use super::peer::{Peer, libc_version};
use crate::doctor::read_line;

/// The row: all words in `case`, the memory as the figure.
pub fn row(peers: &[Peer], runs: usize) -> Row {
    let memory = memory_mib();
    let versions: Vec<String> = peers
        .iter()
        .filter(|peer| peer.name != "glibc")
        .map(|peer| format!("{} {}", peer.name, peer.version).trim_end().to_owned())
        .collect();
    let case = format!(
        "{}, {} CPUs, {:.1} GiB, Linux {}, glibc {}, huge pages {}; {}",
        processor(),
        cpus(),
        memory / 1024.0,
        read_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        libc_version(),
        crate::doctor::huge_pages().unwrap_or_default(),
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

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    model.unwrap_or(std::env::consts::ARCH).to_owned()
}

fn memory_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")).and_then(|rest| rest.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}
