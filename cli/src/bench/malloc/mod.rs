//! # Suite `malloc`: the C functions, in small
//!
//! Each run is a worker process of this same binary ([`work`]) with the
//! contender preloaded. A case's number of threads is 1, 2 or twice the CPUs
//! where more threads make sense.

mod queue;
pub mod work;

use super::harness::{Better, Case, Contender, Sample, Setup, cpus};
use super::process::{self, Limits};
use std::process::Command;
use std::time::Duration;

/// A worker that runs longer than this hangs.
const WORKER_MOST: Duration = Duration::from_secs(300);
/// Per cent of the operations in a quick run, and in a run that only warms up.
const QUICK: u64 = 20;
const WARM: u64 = 2;

/// The cases: every workload with its numbers of threads.
pub fn cases(setup: &Setup) -> Vec<Case> {
    let mut cases = Vec::new();
    for workload in work::WORKLOADS {
        let mut counts: Vec<usize> =
            workload.threads.iter().map(|&threads| if threads == 0 { 2 * cpus() } else { threads }).collect();
        counts.dedup();
        for threads in counts {
            let contenders = setup.peers.iter().map(|peer| {
                let (peer, setup) = (peer.clone(), setup.clone());
                let name = workload.name;
                Contender::new(peer.name.clone(), move |warm| {
                    let scale = if warm {
                        WARM
                    } else if setup.quick {
                        QUICK
                    } else {
                        100
                    };
                    let mut command = Command::new(&setup.program);
                    command.args(["bench-worker", "malloc", name]);
                    command.args(["--threads", &threads.to_string(), "--scale", &scale.to_string()]);
                    command.arg("--expect").arg(&peer.owner);
                    peer.apply(&mut command, &setup.conf);
                    let outcome = process::run(&mut command, Limits { time: WORKER_MOST, ..Limits::default() })?;
                    samples(&outcome.output)
                })
            });
            cases.push(Case::new(workload.name, workload.about, threads, contenders.collect()));
        }
    }
    cases
}

/// Reads a worker's line: `result ns/op MiB`.
fn samples(output: &str) -> Result<Vec<Sample>, String> {
    let line = output.lines().find_map(|line| line.strip_prefix("result ")).ok_or("the worker gave no result")?;
    let mut numbers = line.split(' ').map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(op)), Some(Ok(rss))) => Ok(vec![
            Sample { metric: "op", unit: "ns/op", better: Better::Lower, value: op },
            Sample { metric: "rss", unit: "MiB", better: Better::Lower, value: rss },
        ]),
        _ => Err(format!("the worker said: {line}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workers_line_is_read() {
        let read = samples("noise\nresult 12.5 3.25\n").expect("two numbers");
        assert_eq!((read[0].value, read[1].value), (12.5, 3.25));
        assert!(samples("result x").is_err());
        assert!(samples("").is_err());
    }
}
