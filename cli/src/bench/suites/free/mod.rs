//! # Suite `free`: much memory at once
//!
//! The seed's program: one `malloc` of so many GiB, touched, and the time of its `free`; by sizes, by workers and by
//! the size of a job, beside every peer and beside the kernel alone (`munmap`, and `MADV_DONTNEED` by one and by two
//! threads: the ceiling; for sparse and mixed memory also the seed's alternatives, a thread for each mapping or PUD). Each run is a worker process ([`work`]), with huge pages switched off for
//! all unless the case's name says `huge`. A free that costs nothing is memory kept: what is resident stands beside
//! every time. Blocks of 64 KiB and 1 MiB are in suite `vmap`. Last, the end of a process as its parent sees it.
#![allow(unsafe_code)] // orphans

mod work;

use crate::bench::peer::Peer;
use crate::bench::rows::OURS;
use crate::bench::suite::{Case, Sample, Setup, Suite, Work, lower};
use crate::bench::worker::Worker;
use crate::clock::monotonic_ns;
use crate::proc;
use allotment_engine::knob;
use std::time::{Duration, Instant};
use work::{EXIT, Load, METRICS, WORKS};

/// The suite.
pub const SUITE: Suite =
    Suite::new("free", "much memory at once, and the end of a process", cases).of_workers(work::run, METRICS).quick(12);

/// Allotment by its knobs: name, settings.
type Setting = (&'static str, &'static str);
/// As it comes; and so that the memory is gone when `free` returns.
const MODES: &[Setting] = &[(OURS, ""), ("allotment, synchronous", "sync_free=1")];
/// The same where smaller blocks are allocated meanwhile, which are not to be given back one by one.
const BESIDE: &[Setting] = &[(OURS, ""), ("allotment, synchronous", "sync_free=32M")];
/// Workers.
const WORKERS: &[Setting] = &[
    ("1 worker", "sync_free=1,async_free_threshold=1,max_active=1"),
    ("2 workers", "sync_free=1,async_free_threshold=1,max_active=2"),
    ("4 workers", "sync_free=1,async_free_threshold=1,max_active=4"),
    ("8 workers", "sync_free=1,async_free_threshold=1,max_active=8"),
    ("16 workers", "sync_free=1,async_free_threshold=1,max_active=16"),
    ("32 workers", "sync_free=1,async_free_threshold=1,max_active=32"),
];
/// The size of a job, in the seed's batches of pages: what a worker takes at a time.
const JOBS: &[Setting] = &[
    ("jobs of 38 MiB", "sync_free=1,max_active=2,max_gather_batch_count=19"),
    ("jobs of 1 GiB", "sync_free=1,max_active=2,max_gather_batch_count=512"),
    ("jobs of 2 GiB", "sync_free=1,max_active=2,max_gather_batch_count=1024"),
    ("jobs of 3 GiB", "sync_free=1,max_active=2,max_gather_batch_count=1536"),
];
/// With and without a reaper.
const ENDS: &[Setting] = &[(OURS, ""), ("allotment, reaper", "reap_bytes=1M,reap_parent=any")];

fn cases(setup: &Setup) -> Vec<Case> {
    WORKS.iter().map(|work| case(setup, work)).collect()
}

fn case(setup: &Setup, work: &'static Work<Load>) -> Case {
    let needed = work.bytes(SUITE.scale(false, setup.quick)) as u64 * 9 / 8;
    if let Some(there) = proc::memory("MemAvailable").filter(|&there| there < needed) {
        let why = format!("it takes {} MiB; {} are available", needed >> 20, there >> 20);
        return Case::skipped(work.name, work.about, why);
    }
    let ours = &setup.peers[0];
    let settings = if work.name.starts_with("workers") {
        WORKERS
    } else if work.name.starts_with("jobs") {
        JOBS
    } else if work.is_exit() {
        ENDS
    } else if work.name == "beside" {
        BESIDE
    } else {
        MODES
    };
    let worker = |name: &str, way: &str| Worker::new(SUITE, setup, name, &format!("{}:{way}", work.name), 1);
    let by_malloc = |name: &str, peer: &Peer| worker(name, "malloc").under(peer);
    let ours = settings.iter().filter(|(_, conf)| known(conf)).map(|&(name, conf)| by_malloc(name, ours).set(conf));
    let mut workers: Vec<Worker> = ours.collect();
    if workers.is_empty() {
        return Case::skipped(work.name, work.about, "this build has no such knob".into());
    }
    if [MODES, BESIDE, ENDS].contains(&settings) {
        workers.extend(setup.peers[1..].iter().map(|peer| by_malloc(&peer.name, peer)));
    }
    if !work.is_exit() {
        let raw = [("munmap", "munmap"), ("madvise, 1 thread", "madvise-1"), ("madvise, 2 threads", "madvise-2")];
        let jobs = [("2 threads, by mapping", "mappings"), ("2 threads, by PUD", "puds")];
        let jobs = jobs.into_iter().filter(|_| work.is_uneven());
        workers.extend(raw.into_iter().chain(jobs).map(|(name, way)| worker(name, way)));
    }
    let contender = |worker: Worker| if work.is_exit() { worker.contender_with(end) } else { worker.contender() };
    Case::new(work.name, work.about, 1, workers.into_iter().map(contender).collect())
}

/// Whether this build knows every knob of a setting.
fn known(conf: &str) -> bool {
    conf.split(',').filter(|word| !word.is_empty()).all(|word| knob::parse(word.as_bytes()).is_ok())
}

/// A run of which the worker's end is measured.
fn end(worker: &Worker, warm: bool) -> Result<Vec<Sample>, String> {
    let adopting = adopt();
    let outcome = worker.run(warm)?;
    let ended = monotonic_ns();
    let mut samples = SUITE.samples(&outcome.output)?;
    let began: u64 = last(&outcome.output).ok_or("the worker did not say when it ended")?;
    let gone = if adopting { orphans() } else { ended };
    let ms = |until: u64| (until.saturating_sub(began)) as f64 / 1e6;
    // Until its parent has waited for it and its output has ended; and until all that it left behind has.
    samples.extend([lower("wait", "ms").is(ms(ended)), lower("gone", "ms").is(ms(gone))]);
    Ok(samples)
}

/// When the worker began to end.
fn last(output: &str) -> Option<u64> {
    output.lines().find_map(|line| line.strip_prefix(EXIT))?.trim().parse().ok()
}

/// Orphans of our children come to us from now on.
fn adopt() -> bool {
    // SAFETY: a number.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) == 0 }
}

/// Waits for all of them; when the last had ended.
fn orphans() -> u64 {
    let began = Instant::now();
    // SAFETY: without a place for the status. (Every other child of ours has been waited for.)
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } >= 0
        && began.elapsed() < Duration::from_secs(60)
    {
        std::thread::sleep(Duration::from_micros(200));
    }
    monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_read() {
        assert_eq!(last("sample touch 1\nending 77\n"), Some(77));
        assert_eq!(last("sample touch 1\n"), None);
    }

    #[test]
    fn settings_are_of_known_knobs_or_left_out() {
        assert!(known("") && known("reap_bytes=1M,reap_parent=any"));
        assert!(!known("reap_bytes=1M,nobody=1"));
    }
}
