//! # What a worker of suite `drain` does
//!
//! ```text
//! CPU of the drainer:  … drain …… drain ……… drain …      8 to 12 ms apart, out of step with the clock's ticks
//! CPU of the owner:    ▓▓▓▓▓▓▓░▓▓▓▓▓▓▓▓▓░▓▓▓▓▓▓▓░▓▓      looks at the time stamp counter; ░: it looked away
//! ```
//! An owner that only spins fills its cache again after each drain, so that every drain has something to take; it
//! does not look meanwhile.

use super::systems::{Drained, Ours, Owner as _, PATIENCE, System};
use super::watch::{self, INTERRUPTS, LEAST, Seen, Span};
use crate::bench::paired;
use crate::bench::rivals::lists::{Queued, Spinning};
use crate::bench::rows::{OURS, median};
use crate::bench::suite::{Job, Metric, Who, Work, higher, lower, who, work};
use crate::bench::team::{Random, hurry, stay, this_cpu};
use crate::bench::worker::sample;
use crate::clock::{stamp, thread_ns};
use std::sync::Barrier;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What is measured, and in what.
pub const METRICS: &[Metric] = &[
    // A drain: median and the worst one.
    lower("latency", "us"),
    lower("worst", "us"),
    higher("reached", "%"),
    higher("recovered", "%"),
    lower("fences", "1/drain"),
    // What an owner sees.
    lower("gaps", "1/s"),
    lower("largest", "us"),
    lower("lost", "% of time"),
    lower("at-drains", "gaps/drain"),
    lower("interruption", "us"),
    lower("lost-at-drains", "% of time"),
    lower("irq-CAL", "1/s"),
    lower("irq-TLB", "1/s"),
    lower("irq-LOC", "1/s"),
    lower("irq-RES", "1/s"),
    // Slices with and without: the median difference and its interval, by the wall; and by the owner's clock,
    // which other programs cannot touch.
    lower("pair", "ns/op"),
    lower("slower", "%"),
    lower("slower-from", "%"),
    lower("slower-to", "%"),
    lower("slower-cpu", "%"),
    lower("slower-cpu-from", "%"),
    lower("slower-cpu-to", "%"),
];

const NOBODY: Who = who("none", "no drains");
const EXPEDITED: Who = who("expedited", OURS);
const GENTLE: Who = who("gentle", "allotment, gentle");
const QUIESCENT: Who = who("quiescent", "allotment, owner quiescent");
const FENCE: Who = who("fence", "a fence alone");
const IDLE: Who = who("idle", "allotment, idle CPUs");
const QUEUED: Who = who("queued", "work queued");
const SPINNING: Who = who("spinning", "per-CPU spinlocks");

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Latency; the owner sleeps.
    Asleep,
    /// Latency; the owner allocates.
    Busy,
    /// Latency of all CPUs at once, one of them busy.
    All,
    /// What an owner sees that only spins.
    Spins,
    /// What one sees that allocates.
    Allocates,
    /// Pairs in slices.
    Pairs,
}

/// The cases.
pub const WORKS: &[Work<Kind>] = &[
    work(
        "asleep",
        "drain a CPU whose owner sleeps; a drain that is not answered counts 10,000 us",
        &[1],
        &[EXPEDITED, GENTLE, QUEUED, SPINNING],
        Kind::Asleep,
    ),
    work(
        "busy",
        "the same, the owner allocates and frees up to 1,000 pages at a time",
        &[1],
        &[EXPEDITED, GENTLE, QUEUED, SPINNING],
        Kind::Busy,
    ),
    work("all", "drain all CPUs; one is busy", &[1], &[EXPEDITED, GENTLE, SPINNING], Kind::All),
    work(
        "spins",
        "100 drains a second of an owner that reads the clock: gaps above 0.5 us",
        &[1],
        &[NOBODY, FENCE, EXPEDITED, GENTLE, QUIESCENT, IDLE, QUEUED, SPINNING],
        Kind::Spins,
    ),
    work(
        "allocates",
        "the same of one that also allocates and frees a page each time",
        &[1],
        &[NOBODY, EXPEDITED, GENTLE, IDLE, QUEUED, SPINNING],
        Kind::Allocates,
    ),
    work(
        "pairs",
        "a page, allocate and free: slices of 50 ms with and without 100 drains a second",
        &[1],
        &[NOBODY, EXPEDITED, GENTLE, IDLE, QUEUED, SPINNING],
        Kind::Pairs,
    ),
];

/// Drains of a latency, full.
const DRAINS: u64 = 300;
/// How long is looked, full, ms.
const LOOK: u64 = 3_000;
/// Pairs of slices, full, and how long a slice is, ms.
const PAIRS: u64 = 100;
const SLICE: u64 = 50;
/// What a drain of nobody lasts, as far as gaps at drains go.
const NOTHING: Duration = Duration::from_micros(2);

/// Where the owner stays, of the CPUs that this process may use, and the drainer.
const OWNER: usize = 1;
const DRAINER: usize = 0;

/// Latency, and what came of it.
#[derive(Debug, Default)]
struct Latencies {
    us: Vec<f64>,
    reached: usize,
    fences: u64,
    recovered: Vec<f64>,
}

impl Latencies {
    fn time(&mut self, drain: impl FnOnce() -> Drained) -> Drained {
        let began = Instant::now();
        let drained = drain();
        self.us.push(if drained.reached { began.elapsed() } else { PATIENCE }.as_nanos() as f64 / 1e3);
        self.reached += usize::from(drained.reached);
        self.fences += drained.fences;
        drained
    }
    fn print(&self) {
        let drains = self.us.len().max(1) as f64;
        sample("latency", median(&self.us));
        sample("worst", self.us.iter().copied().fold(0.0, f64::max));
        sample("reached", 100.0 * self.reached as f64 / drains);
        if !self.recovered.is_empty() {
            sample("recovered", self.recovered.iter().sum::<f64>() / self.recovered.len() as f64);
        }
        sample("fences", self.fences as f64 / drains);
    }
}

/// The owner fills its cache and sleeps.
fn asleep(system: &impl System, drains: usize) {
    let (filled, drained) = (Barrier::new(2), Barrier::new(2));
    let cpu = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stay(OWNER);
            cpu.store(this_cpu(), Relaxed);
            let mut owner = system.owner();
            for _ in 0..drains {
                owner.fill();
                filled.wait();
                drained.wait();
            }
        });
        scope.spawn(|| {
            stay(DRAINER);
            let mut latencies = Latencies::default();
            for _ in 0..drains {
                filled.wait();
                // Until it sleeps.
                std::thread::sleep(Duration::from_micros(300));
                let held = system.held();
                let cpu = cpu.load(Relaxed);
                let taken = latencies.time(|| system.drain(cpu)).bytes;
                // What a second drain finds, the first has left.
                let all = (taken + system.drain(cpu).bytes).max(held);
                latencies.recovered.push(if all > 0 { 100.0 * taken as f64 / all as f64 } else { 0.0 });
                drained.wait();
            }
            latencies.print();
        });
    });
}

/// The owner allocates and frees up to 1,000 pages at a time.
fn busy(system: &impl System, drains: usize, all: bool) {
    let stop = AtomicBool::new(false);
    let cpu = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stay(OWNER);
            let mut owner = system.owner();
            let mut pages = Vec::with_capacity(1000);
            let mut random = Random::new(1);
            while !stop.load(Relaxed) {
                (0..random.below(1000)).for_each(|_| pages.push(owner.alloc()));
                pages.drain(..).for_each(|page| owner.free(page));
                cpu.store(this_cpu(), Relaxed);
            }
        });
        scope.spawn(|| {
            stay(DRAINER);
            let mut latencies = Latencies::default();
            for at in 0..drains as u64 {
                std::thread::sleep(Duration::from_micros(700 + at * 37 % 600));
                let cpu = cpu.load(Relaxed);
                latencies.time(|| if all { system.drain_all() } else { system.drain(cpu) });
            }
            stop.store(true, Relaxed);
            latencies.print();
        });
    });
}

/// Somebody on the drainer's CPU who fills its cache when asked, and sleeps: what a drain of idle CPUs finds.
struct Stranger {
    ask: mpsc::Sender<()>,
    done: mpsc::Receiver<()>,
}

impl Stranger {
    fn new<'scope>(scope: &'scope std::thread::Scope<'scope, '_>, system: &'scope impl System) -> Self {
        let ((ask, asked), (tell, done)) = (mpsc::channel(), mpsc::channel());
        scope.spawn(move || {
            stay(DRAINER);
            while asked.recv().is_ok() {
                system.owner().fill();
                if tell.send(()).is_err() {
                    break;
                }
            }
        });
        Self { ask, done }
    }
    fn fill(&self) {
        if self.ask.send(()).is_ok() && self.done.recv().is_ok() {
            // Until it sleeps.
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

/// What an owner sees who spins, or allocates meanwhile.
fn sees(system: &impl System, look: Duration, allocates: bool) {
    let rate = watch::rate();
    let least = (LEAST * rate) as u64;
    let stop = AtomicBool::new(false);
    let (drains, filled) = (AtomicU64::new(0), AtomicU64::new(0));
    let cpu = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            stay(OWNER);
            cpu.store(this_cpu(), Relaxed);
            let mut owner = system.owner();
            let mut seen = Seen::new();
            while !stop.load(Relaxed) {
                let now = drains.load(Acquire);
                owner.fill();
                filled.store(now + 1, Release);
                if allocates {
                    seen.watch(least, || {
                        let page = owner.alloc();
                        owner.free(std::hint::black_box(page));
                        !stop.load(Relaxed)
                    });
                } else {
                    // Relaxed: whose drain it was is not looked at here.
                    owner.quiet(|| seen.watch(least, || drains.load(Relaxed) == now && !stop.load(Relaxed)));
                }
            }
            seen
        });
        let drainer = scope.spawn(|| {
            stay(DRAINER);
            let stranger = system.elsewhere().then(|| Stranger::new(scope, system));
            let mut spans: Vec<Span> = Vec::new();
            let mut reached = 0;
            while filled.load(Acquire) == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
            let cpu = cpu.load(Relaxed);
            let (on, over) = (AtomicBool::new(true), AtomicBool::new(false));
            let (began, before) = (Instant::now(), watch::interrupts(cpu));
            paired::disturb(&on, &over, || {
                if let Some(stranger) = &stranger {
                    stranger.fill();
                }
                // Acquire: the cache is full. An owner that spins fills it before each drain, unless it is preempted.
                let asked = Instant::now();
                while !allocates && filled.load(Acquire) <= drains.load(Relaxed) && asked.elapsed() < PATIENCE {
                    std::thread::sleep(Duration::from_micros(100));
                }
                let begin = stamp();
                let drained = system.drain(cpu);
                // While nobody answers, nothing is done; nor where there is no drain.
                let end = if drained.reached { stamp() } else { begin };
                spans.push([begin, end.max(begin + (NOTHING.as_nanos() as f64 * rate) as u64)]);
                reached += usize::from(drained.reached);
                // Release: the owner fills after this drain.
                drains.fetch_add(1, Release);
                if began.elapsed() >= look {
                    over.store(true, Relaxed);
                }
            });
            let (after, seconds) = (watch::interrupts(cpu), began.elapsed().as_secs_f64());
            stop.store(true, Relaxed);
            let irqs: [f64; 4] = std::array::from_fn(|at| after[at].wrapping_sub(before[at]) as f64 / seconds);
            (spans, irqs, reached)
        });
        let (spans, irqs, reached) = drainer.join().expect("no panic");
        let seen = owner.join().expect("no panic");
        let figures = watch::figures(&seen, &spans, rate);
        sample("reached", 100.0 * reached as f64 / spans.len().max(1) as f64);
        sample("at-drains", figures.at_drains);
        sample("interruption", figures.interruption);
        sample("lost-at-drains", figures.lost_at_drains);
        sample("gaps", figures.gaps);
        sample("largest", figures.largest);
        sample("lost", figures.lost);
        for (kind, irq) in INTERRUPTS.into_iter().zip(irqs) {
            sample(&format!("irq-{kind}"), irq);
        }
    });
}

/// Pairs in slices with and without drains.
fn pairs(system: &impl System, pairs: usize, slice: Duration) {
    let rate = watch::rate();
    let slice = (slice.as_nanos() as f64 * rate) as u64;
    let (on, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let cpu = AtomicUsize::new(0);
    let slices: Vec<[[f64; 2]; 2]> = std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            stay(OWNER);
            cpu.store(this_cpu(), Relaxed);
            let mut owner = system.owner();
            let mut slices = vec![[[0.0; 2]; 2]; pairs];
            for (at, with) in paired::order(pairs).enumerate() {
                on.store(with, Relaxed);
                let (cpu, begin) = (thread_ns(), stamp());
                let mut done = 0_u64;
                let mut now = begin;
                while now - begin < slice {
                    for _ in 0..64 {
                        let page = owner.alloc();
                        owner.free(std::hint::black_box(page));
                    }
                    done += 64;
                    now = stamp();
                }
                let wall = (now - begin) as f64 / rate;
                slices[at / 2][usize::from(with)] = [wall / done as f64, (thread_ns() - cpu) as f64 / done as f64];
            }
            stop.store(true, Relaxed);
            slices
        });
        scope.spawn(|| {
            stay(DRAINER);
            let stranger = system.elsewhere().then(|| Stranger::new(scope, system));
            paired::disturb(&on, &stop, || {
                if let Some(stranger) = &stranger {
                    stranger.fill();
                }
                system.drain(cpu.load(Relaxed));
            });
        });
        owner.join().expect("no panic")
    });
    let of = |clock: usize| slices.iter().map(|pair| [pair[0][clock], pair[1][clock]]).collect::<Vec<_>>();
    sample("pair", median(&of(1).iter().map(|pair| pair[0]).collect::<Vec<_>>()));
    let [wall, cpu] = [0, 1].map(|clock| paired::spread(&paired::changes(&of(clock))));
    sample("slower", wall.median);
    sample("slower-from", wall.low);
    sample("slower-to", wall.high);
    sample("slower-cpu", cpu.median);
    sample("slower-cpu-from", cpu.low);
    sample("slower-cpu-to", cpu.high);
}

fn measure(system: &impl System, kind: Kind, job: &Job) {
    let drains = job.part(DRAINS, 3) as usize;
    let look = Duration::from_millis(job.part(LOOK, 50));
    match kind {
        Kind::Asleep => asleep(system, drains),
        Kind::Busy => busy(system, drains, false),
        Kind::All => busy(system, drains, true),
        Kind::Spins => sees(system, look, false),
        Kind::Allocates => sees(system, look, true),
        Kind::Pairs => {
            let slice = Duration::from_millis(if job.scale == 0 { 2 } else { SLICE });
            pairs(system, job.part(PAIRS, 2) as usize, slice);
        }
    }
}

/// Does a job.
pub fn run(job: &Job) -> Result<(), String> {
    let kind = job.find(WORKS)?.kind;
    if job.scale > 0 {
        hurry();
    }
    match job.who.as_str() {
        "none" => measure(&Ours::Nobody, kind, job),
        "expedited" => measure(&Ours::Expedited, kind, job),
        "gentle" => measure(&Ours::Gentle, kind, job),
        "quiescent" => measure(&Ours::Quiescent, kind, job),
        "idle" => measure(&Ours::Idle, kind, job),
        "fence" => measure(&Ours::Fence, kind, job),
        "queued" => measure(&Queued::new(), kind, job),
        "spinning" => measure(&Spinning::new(), kind, job),
        _ => return Err(job.nobody()),
    }
    Ok(())
}
