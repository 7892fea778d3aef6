//! # Suite `pages`: blocks of pages
//!
//! Each run is a worker process of this same binary ([`work`]). Beside Allotment's pages run the C library's and
//! mimalloc's `aligned_alloc` (mimalloc by preload), the kernel through `mmap` and `munmap`, a plain locked buddy
//! ([`buddy`]) and lists under per-CPU spinlocks before it ([`lists`]: what the seed rejected). Last comes the seed's
//! page-fault test ([`pft`]).

pub mod buddy;
pub mod lists;
pub mod ours;
pub mod pft;
pub mod work;

use super::harness::{Better, Case, Contender, Sample, Setup, cpus};
use super::peer::Peer;
use super::process::{self, Limits};
use allotment_engine::stat::board::CONF_ENV;
use std::process::Command;
use std::time::Duration;

/// A worker that runs longer than this hangs.
const WORKER_MOST: Duration = Duration::from_secs(300);
/// Per cent of the operations in a quick run, and in a run that only warms up.
const QUICK: u64 = 20;
const WARM: u64 = 2;

/// All cases, each with its contenders.
pub fn cases(setup: &Setup) -> Vec<Case> {
    let mut cases = Vec::new();
    for case in work::CASES {
        let mut counts: Vec<usize> =
            case.threads.iter().map(|&threads| if threads == 0 { 2 * cpus() } else { threads }).collect();
        counts.dedup();
        for threads in counts {
            let mut contenders = Vec::new();
            for who in case.who {
                let what = format!("{}:{}", case.name, who.key);
                if who.key != "libc" {
                    contenders.push(contender("pages", who.name.to_owned(), what, threads, setup, None));
                    continue;
                }
                for peer in setup.peers.iter().filter(|peer| competes(peer)) {
                    let name = format!("{} {}", peer.name, who.name);
                    contenders.push(contender("pages", name, what.clone(), threads, setup, Some(peer.clone())));
                }
            }
            cases.push(Case::new(case.name, case.about, threads, contenders));
        }
    }
    for threads in pft::THREADS {
        let contenders = pft::WHO.map(|(key, name)| {
            contender("pages", name.to_owned(), format!("{}:{key}", pft::NAME), threads, setup, None)
        });
        cases.push(Case::new(pft::NAME, pft::ABOUT, threads, contenders.into()));
    }
    cases
}

/// The C library's, mimalloc's, and who was named with a path.
fn competes(peer: &Peer) -> bool {
    !["allotment", "jemalloc", "tcmalloc"].contains(&peer.name.as_str())
}

/// Somebody who runs as a worker, under a peer's preload if there is one.
pub fn contender(
    suite: &'static str,
    name: String,
    what: String,
    threads: usize,
    setup: &Setup,
    peer: Option<Peer>,
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
        command.args(["bench-worker", suite, &what, "--threads", &threads.to_string()]);
        command.args(["--scale", &scale.to_string()]);
        match &peer {
            Some(peer) => {
                command.arg("--expect").arg(&peer.owner);
                peer.apply(&mut command, &None);
            }
            None => {
                command.env_remove("LD_PRELOAD").env_remove(CONF_ENV).env_remove("ALLOTMENT_SHARE");
                if what.ends_with(pft::KEPT) {
                    command.env(CONF_ENV, pft::KEEP);
                } else if let Some(conf) = &setup.conf {
                    command.env(CONF_ENV, conf);
                }
            }
        }
        let outcome = process::run(&mut command, Limits { time: WORKER_MOST, ..Limits::default() })?;
        samples(&outcome.output)
    })
}

/// Reads a worker's lines: `sample metric value`.
fn samples(output: &str) -> Result<Vec<Sample>, String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("sample "));
    let known = || work::METRICS.iter().chain(pft::METRICS).chain(super::drain::METRICS);
    let samples: Result<Vec<Sample>, String> = lines
        .map(|line| {
            let (metric, value) = line.split_once(' ').ok_or("no value")?;
            let (metric, unit) = known().find(|(name, _)| *name == metric).ok_or("an unknown metric")?;
            let value = value.parse().map_err(|_| format!("the worker said: {line}"))?;
            let better = if super::drain::HIGHER.contains(metric) { Better::Higher } else { Better::Lower };
            Ok(Sample { metric, unit, better, value })
        })
        .collect();
    samples.and_then(|samples| if samples.is_empty() { Err("the worker gave no result".into()) } else { Ok(samples) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workers_lines_are_read() {
        let read = samples("noise\nsample pair 12.5\nsample recovered 100\n").expect("two samples");
        assert_eq!((read[0].metric, read[0].value, read[0].better), ("pair", 12.5, Better::Lower));
        assert_eq!(read[1].better, Better::Higher);
        assert!(samples("sample speed 1").is_err());
        assert!(samples("sample pair x").is_err());
        assert!(samples("").is_err());
    }
}
