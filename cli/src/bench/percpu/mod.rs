//! # Suite `percpu`: the seed's table
//!
//! Each run is a worker process of this same binary ([`work`]) with one thread (but for the case with two), so that
//! histories do not mix. Beside Allotment runs the seed's own baseline, the area map ([`area`]), with fewer objects
//! where it is slow: how many stands in its name; and, where there is one, the floor: the zeroing that an
//! allocation must do, or the cache miss that a free at a random place must take.

mod area;
pub mod work;

use super::harness::{Better, Case, Contender, OURS, Sample, Setup};
use super::process::{self, Limits};
use std::process::Command;
use std::time::Duration;
use work::{CASES, METRICS};

/// A worker that runs longer than this hangs.
const WORKER_MOST: Duration = Duration::from_secs(300);
/// Per cent of the objects in a quick run, and in a run that only warms up.
const QUICK: u64 = 20;
const WARM: u64 = 2;

/// All cases, each with its contenders.
pub fn cases(setup: &Setup) -> Vec<Case> {
    let mut cases = Vec::new();
    for case in CASES {
        for &threads in case.threads {
            let contenders = case.who.iter().map(|&who| {
                let setup = setup.clone();
                let what = format!("{}:{}", case.name, who.key);
                let name = if who.key == "ours" { OURS.to_owned() } else { who.name.to_owned() };
                Contender::new(name, move |warm| {
                    let scale = if warm {
                        WARM
                    } else if setup.quick {
                        QUICK
                    } else {
                        100
                    };
                    let mut command = Command::new(&setup.program);
                    command.args(["bench-worker", "percpu", &what, "--threads", &threads.to_string()]);
                    command.args(["--scale", &scale.to_string()]);
                    let outcome = process::run(&mut command, Limits { time: WORKER_MOST, ..Limits::default() })?;
                    samples(&outcome.output)
                })
            });
            cases.push(Case::new(case.name, case.about, threads, contenders.collect()));
        }
    }
    cases
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
        let read = samples("noise\nsample alloc 12.5\nsample free 3\n").expect("two samples");
        assert_eq!((read[0].metric, read[0].value, read[1].value), ("alloc", 12.5, 3.0));
        assert!(samples("sample speed 1").is_err());
        assert!(samples("sample alloc x").is_err());
        assert!(samples("").is_err());
    }
}
