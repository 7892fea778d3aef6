//! # The suites
//!
//! One file (or folder) each, with a constant `SUITE` and a line in [`SUITES`]. None uses another: what two share stands
//! in `bench`.

mod apps;
mod blocks;
mod contention;
mod counters;
mod drain;
mod free;
mod large;
mod malloc;
mod pages;
mod percpu;
mod phases;
mod threads;
mod vmap;

use super::suite::Suite;

/// All suites.
pub const SUITES: &[Suite] = &[
    // In the order in which they run.
    counters::SUITE,
    percpu::SUITE,
    pages::SUITE,
    drain::SUITE,
    vmap::SUITE,
    free::SUITE,
    malloc::SUITE,
    blocks::SUITE,
    large::SUITE,
    threads::SUITE,
    phases::SUITE,
    apps::SUITE,
    contention::SUITE,
];

#[cfg(test)]
mod tests {
    use super::super::peer::Peer;
    use super::super::suite::{Job, Setup};
    use super::*;

    /// Every job of every suite that has workers, tiny, in this process.
    #[test]
    fn every_worker_does_its_job() {
        let [ours, glibc] = ["allotment", "glibc"].map(|name| Peer {
            name: name.into(),
            library: None,
            owner: "".into(),
            version: String::new(),
        });
        let setup = Setup {
            peers: vec![ours, glibc],
            quick: true,
            program: "".into(),
            conf: None,
            scratch: std::env::temp_dir(),
        };
        for suite in SUITES {
            let Some((work, _)) = suite.work else { continue };
            let mut jobs: Vec<Job> = Vec::new();
            for contender in (suite.cases)(&setup).into_iter().flat_map(|case| case.contenders) {
                let job = Job { scale: 0, ..contender.job.expect("a worker") };
                if !jobs.contains(&job) {
                    jobs.push(job);
                }
            }
            for job in jobs {
                work(&job).unwrap_or_else(|why| panic!("{} {}: {why}", suite.name, job.word()));
            }
            assert!(work(&Job::new("nothing:ours", 1, 0)).is_err_and(|why| why.contains("nothing")), "{}", suite.name);
        }
    }

    #[test]
    fn no_metric_is_listed_twice() {
        for suite in SUITES {
            let names = suite.work.map_or(&[][..], |(_, metrics)| metrics).iter().map(|metric| metric.name);
            let names: Vec<&str> = names.collect();
            for name in &names {
                assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name} of {}", suite.name);
            }
        }
    }
}
