//! # Suite `free`: much memory at once
//!
//! The seed's program: one `malloc` of so many GiB, touched, and the time of its `free`; by sizes, by workers and by
//! the size of a job, beside every peer and beside the kernel alone (`munmap`, and `MADV_DONTNEED` by one and by two
//! threads: the ceiling; for sparse and mixed memory also the seed's alternatives, a thread for each mapping or PUD). Each run is a worker process of this same binary ([`work`]), with huge pages switched off for
//! all unless the case's name says `huge`. A free that costs nothing is memory kept: what is resident stands beside
//! every time. Blocks of 64 KiB and 1 MiB are in suite `vmap`. Last, the end of a process as its parent sees it.
#![allow(unsafe_code)] // orphans

pub mod work;

use super::harness::{Better, Case, Contender, OURS, Sample, Setup};
use super::peer::Peer;
use super::process::{self, Limits};
use crate::clock::monotonic_ns;
use crate::proc;
use allotment_engine::knob;
use allotment_engine::stat::board::CONF_ENV;
use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};
use work::{CASES, EXIT, METRICS, Work};

/// A worker that runs longer than this hangs.
const WORKER_MOST: Duration = Duration::from_secs(300);
/// Per cent of the bytes in a quick run, and in a run that only warms up.
const QUICK: u64 = 12;
const WARM: u64 = 2;

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

/// All cases, each with its contenders.
pub fn cases(setup: &Setup) -> Vec<Case> {
    CASES.iter().map(|work| case(setup, work)).collect()
}

fn case(setup: &Setup, work: &'static Work) -> Case {
    let scale = if setup.quick { QUICK } else { 100 };
    let (needed, there) = (work.bytes(scale) as u64 * 9 / 8, proc::memory("MemAvailable"));
    if there.is_some_and(|there| there < needed) {
        let why = format!("it takes {} MiB; {} are available", needed >> 20, there.unwrap_or(0) >> 20);
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
    let mut contenders: Vec<Contender> = settings
        .iter()
        .filter(|(_, conf)| known(conf))
        .map(|&(name, conf)| contender(setup, work, name.to_owned(), "malloc", Some(ours), conf))
        .collect();
    if contenders.is_empty() {
        return Case::skipped(work.name, work.about, "this build has no such knob".into());
    }
    if [MODES, BESIDE, ENDS].contains(&settings) {
        let others = setup.peers[1..].iter();
        contenders.extend(others.map(|peer| contender(setup, work, peer.name.clone(), "malloc", Some(peer), "")));
    }
    if !work.is_exit() {
        let raw = [("munmap", "munmap"), ("madvise, 1 thread", "madvise-1"), ("madvise, 2 threads", "madvise-2")];
        let jobs = [("2 threads, by mapping", "mappings"), ("2 threads, by PUD", "puds")];
        let jobs = jobs.into_iter().filter(|_| work.is_uneven());
        let raw = raw.into_iter().chain(jobs);
        contenders.extend(raw.map(|(name, way)| contender(setup, work, name.to_owned(), way, None, "")));
    }
    Case::new(work.name, work.about, 1, contenders)
}

/// Whether this build knows every knob of a setting.
fn known(conf: &str) -> bool {
    conf.split(',').filter(|word| !word.is_empty()).all(|word| knob::parse(word.as_bytes()).is_ok())
}

fn contender(
    setup: &Setup,
    work: &'static Work,
    name: String,
    way: &'static str,
    peer: Option<&Peer>,
    conf: &'static str,
) -> Contender {
    let (setup, peer) = (setup.clone(), peer.cloned());
    Contender::new(name, move |warm| {
        let scale = if warm {
            WARM
        } else if setup.quick {
            QUICK
        } else {
            100
        };
        let mut command = Command::new(&setup.program);
        command.args(["bench-worker", "free", &format!("{}:{way}", work.name), "--scale", &scale.to_string()]);
        command.env_remove("LD_PRELOAD").env_remove(CONF_ENV).env_remove("ALLOTMENT_SHARE");
        if let Some(peer) = &peer {
            command.arg("--expect").arg(&peer.owner);
            peer.apply(&mut command, &setup.conf);
            if peer.name == OURS && !conf.is_empty() {
                let before = setup.conf.clone().unwrap_or_default();
                let all = [before, conf.into()].into_iter().filter(|word| !word.is_empty());
                command.env(CONF_ENV, all.collect::<Vec<OsString>>().join(OsString::from(",").as_os_str()));
            }
        }
        let adopting = work.is_exit() && adopt();
        let outcome = process::run(&mut command, Limits { time: WORKER_MOST, ..Limits::default() })?;
        let ended = monotonic_ns();
        let mut samples = samples(&outcome.output)?;
        if work.is_exit() {
            let began: u64 = last(&outcome.output).ok_or("the worker did not say when it ended")?;
            let gone = if adopting { orphans() } else { ended };
            let ms = |until: u64| (until.saturating_sub(began)) as f64 / 1e6;
            samples.push(Sample { metric: "wait", unit: "ms", better: Better::Lower, value: ms(ended) });
            samples.push(Sample { metric: "gone", unit: "ms", better: Better::Lower, value: ms(gone) });
        }
        Ok(samples)
    })
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
        let read = samples("noise\nsample free 12.5\nsample kept 3\nending 77\n").expect("two samples");
        assert_eq!((read[0].metric, read[0].value, read[1].unit), ("free", 12.5, "MiB"));
        assert_eq!(last("sample touch 1\nending 77\n"), Some(77));
        assert!(samples("sample speed 1").is_err());
        assert!(samples("").is_err());
    }

    #[test]
    fn settings_are_of_known_knobs_or_left_out() {
        assert!(known("") && known("reap_bytes=1M,reap_parent=any"));
        assert!(!known("reap_bytes=1M,nobody=1"));
    }
}
