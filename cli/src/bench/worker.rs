//! # Worker processes
//!
//! A run that a history must not disturb, or that needs another malloc, is a process of its own: this binary again, as
//! `bench-worker SUITE CASE:WHO`. A peer's library is preloaded, and the worker checks that it took malloc over.

use super::peer::{self, Peer};
use super::process::{self, Limits, Outcome};
use super::suite::{Contender, Job, Sample, Setup, Suite, Who, Work};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A worker that runs longer than this hangs.
const MOST: Duration = Duration::from_secs(300);

/// A contender that runs as a worker.
#[derive(Clone, Debug)]
pub struct Worker {
    suite: Suite,
    setup: Setup,
    /// In tables.
    name: String,
    job: Job,
    peer: Option<Peer>,
    conf: &'static str,
}

impl Worker {
    /// Does `CASE:WHO` of a suite; Allotment's crate and the C library's malloc are what it has.
    pub fn new(suite: Suite, setup: &Setup, name: impl Into<String>, what: &str, threads: usize) -> Self {
        let job = Job::new(what, threads, 100);
        Self { suite, setup: setup.clone(), name: name.into(), job, peer: None, conf: "" }
    }
    /// With a peer's malloc.
    pub fn under(self, peer: &Peer) -> Self {
        Self { peer: Some(peer.clone()), ..self }
    }
    /// With knobs besides those that were asked for.
    pub fn set(self, conf: &'static str) -> Self {
        Self { conf, ..self }
    }
    /// Runs it once.
    ///
    /// # Errors
    /// One line.
    pub fn run(&self, warm: bool) -> Result<Outcome, String> {
        let (job, setup) = (&self.job, &self.setup);
        let mut command = Command::new(&setup.program);
        command.args(["bench-worker", self.suite.name, &job.word(), "--threads", &job.threads.to_string()]);
        command.args(["--scale", &self.suite.scale(warm, setup.quick).to_string()]);
        if let Some(peer) = &self.peer {
            command.arg("--expect").arg(&peer.owner);
        }
        peer::apply(self.peer.as_ref(), &mut command, setup.conf.as_deref(), self.conf);
        process::run(&mut command, Limits { time: MOST, ..Limits::default() })
    }
    /// As a contender whose samples are the worker's.
    pub fn contender(self) -> Contender {
        self.contender_with(|worker, warm| worker.suite.samples(&worker.run(warm)?.output))
    }
    /// As a contender whose samples are made by `run`.
    pub fn contender_with(self, run: impl Fn(&Self, bool) -> Result<Vec<Sample>, String> + 'static) -> Contender {
        Contender {
            #[cfg(test)]
            job: Some(self.job.clone()),
            ..Contender::new(self.name.clone(), move |warm| run(&self, warm))
        }
    }
}

/// Who competes in a case, each a worker: whoever its line names, or every peer's malloc.
pub fn contenders<K>(suite: Suite, setup: &Setup, work: &Work<K>, threads: usize) -> Vec<Contender> {
    let of_key = |who: &Who| Worker::new(suite, setup, who.name, &format!("{}:{}", work.name, who.key), threads);
    let of_peer = |peer: &Peer| Worker::new(suite, setup, &peer.name, work.name, threads).under(peer);
    if work.who.is_empty() {
        setup.peers.iter().map(|peer| of_peer(peer).contender()).collect()
    } else {
        work.who.iter().map(|who| of_key(who).contender()).collect()
    }
}

/// Does a job, in the worker.
///
/// # Errors
/// One line: the library `expect` does not own malloc, or what the suite says.
pub fn work(suite: &Suite, job: &Job, expect: Option<&Path>) -> Result<(), String> {
    let (body, _) = suite.work.ok_or_else(|| format!("no workers in suite {}", suite.name))?;
    expect.map_or(Ok(()), process::owns_malloc)?;
    body(job)
}

/// Reports a number of a metric of the suite's.
pub fn sample(metric: &str, value: f64) {
    println!("sample {metric} {value}");
}
