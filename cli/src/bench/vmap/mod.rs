//! # Suite `vmap`: areas
//!
//! Each run is a worker process of this same binary ([`work`]): the C functions with the contender preloaded, or
//! `mmap` and `munmap`, or the seed's two ways to settle a [`purge`]. The cases of Linux's
//! `lib/test_vmalloc.c` have its names; in a page's place stand sixteen, since areas begin above 32 KiB.
//! Its `pcpu_alloc` is suite `percpu`; `kvfree_rcu_*`, `vm_map_ram` and `no_block_alloc` have no counterpart.

mod purge;
pub mod work;

use super::harness::{Better, Case, Contender, Sample, Setup, cpus};
use super::process::{self, Limits};
use std::process::Command;
use std::time::Duration;
use work::{METRICS, WORKS, Work};

/// A worker that runs longer than this hangs.
const WORKER_MOST: Duration = Duration::from_secs(300);
/// Per cent of the operations in a quick run, and in a run that only warms up.
const QUICK: u64 = 20;
const WARM: u64 = 1;

/// All cases, each with its contenders.
pub fn cases(setup: &Setup) -> Vec<Case> {
    let mut cases = Vec::new();
    for work in WORKS {
        let beside = work.ways().is_some();
        let mut counts: Vec<usize> = work.threads.iter().map(|&n| if n == 0 && !beside { cpus() } else { n }).collect();
        counts.dedup();
        for threads in counts {
            let mut contenders = Vec::new();
            if let Some(ways) = work.ways() {
                for way in ways {
                    contenders.push(contender(setup, work, threads, way.name.to_owned(), way.key, None));
                }
            } else {
                for peer in &setup.peers {
                    contenders.push(contender(setup, work, threads, peer.name.clone(), "malloc", Some(peer.clone())));
                }
                if work.maps() {
                    contenders.push(contender(setup, work, threads, "mmap/munmap".to_owned(), "mmap", None));
                }
            }
            cases.push(Case::new(work.name, work.about, threads, contenders));
        }
    }
    cases
}

fn contender(
    setup: &Setup,
    work: &'static Work,
    threads: usize,
    name: String,
    way: &'static str,
    peer: Option<super::peer::Peer>,
) -> Contender {
    let setup = setup.clone();
    Contender::new(name, move |warm| {
        let scale = if warm {
            WARM
        } else if setup.quick {
            QUICK
        } else {
            100
        };
        let mut command = Command::new(&setup.program);
        command.args(["bench-worker", "vmap", &format!("{}:{way}", work.name)]);
        command.args(["--threads", &threads.to_string(), "--scale", &scale.to_string()]);
        if let Some(peer) = &peer {
            command.arg("--expect").arg(&peer.owner);
            peer.apply(&mut command, &setup.conf);
        }
        let outcome = process::run(&mut command, Limits { time: WORKER_MOST, ..Limits::default() })?;
        samples(&outcome.output)
    })
}

/// Reads a worker's lines: `sample metric value`.
fn samples(output: &str) -> Result<Vec<Sample>, String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("sample "));
    let samples: Result<Vec<Sample>, String> = lines
        .map(|line| {
            let (metric, value) = line.split_once(' ').ok_or("no value")?;
            let (metric, unit) = METRICS.iter().find(|(name, _)| *name == metric).ok_or("an unknown metric")?;
            let value = value.parse().map_err(|_| format!("the worker said: {line}"))?;
            Ok(Sample { metric, unit, better: Better::Lower, value })
        })
        .collect();
    samples.and_then(|samples| if samples.is_empty() { Err("the worker gave no result".into()) } else { Ok(samples) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workers_lines_are_read() {
        let read = samples("noise\nsample op 12.5\nsample worst 3\n").expect("two samples");
        assert_eq!((read[0].metric, read[0].value, read[1].value), ("op", 12.5, 3.0));
        assert!(samples("sample speed 1").is_err());
        assert!(samples("").is_err());
    }
}
