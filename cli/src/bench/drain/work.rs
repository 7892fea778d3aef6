//! # What a worker of suite `drain` does
//!
//! ```text
//! CPU of the drainer:  … drain …… drain ……… drain …      8 to 12 ms apart, out of step with the clock's ticks
//! CPU of the owner:    ▓▓▓▓▓▓▓░▓▓▓▓▓▓▓▓▓░▓▓▓▓▓▓▓░▓▓      looks at the time stamp counter; ░: it looked away
//! ```
//! An owner that only spins fills its cache again after each drain, so that every drain has something to take; it
//! does not look meanwhile.

use super::super::counters::ops::stay;
use super::super::harness::median;
use super::super::pages::lists::{Queued, Spinning};
use super::super::pages::pft::drain_at_times;
use super::super::paired;
use super::systems::{Drained, Ours, Owner as _, PATIENCE, System};
use super::watch::{self, INTERRUPTS, LEAST, Seen, Span};
use super::{CASES, Kind};
use crate::clock::{stamp, thread_ns};
use std::sync::Barrier;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc;
use std::time::{Duration, Instant};

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

fn sample(metric: &str, value: f64) {
    println!("sample {metric} {value}");
}

/// The number of the CPU that runs us.
#[allow(unsafe_code)]
fn this_cpu() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::sched_getcpu() }.max(0) as usize
}

/// Other programs have to wait, if that is allowed.
#[allow(unsafe_code)]
pub fn hurry() {
    // SAFETY: a number of this process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) };
}

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
            let mut random = 1_u64;
            while !stop.load(Relaxed) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (0..(random >> 33) % 1000).for_each(|_| pages.push(owner.alloc()));
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
            drain_at_times(&on, &over, || {
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
            drain_at_times(&on, &stop, || {
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

fn run(system: &impl System, kind: Kind, scale: u64) {
    let drains = (DRAINS * scale / 100).max(3) as usize;
    let look = Duration::from_millis((LOOK * scale / 100).max(50));
    match kind {
        Kind::Asleep => asleep(system, drains),
        Kind::Busy => busy(system, drains, false),
        Kind::All => busy(system, drains, true),
        Kind::Spins => sees(system, look, false),
        Kind::Allocates => sees(system, look, true),
        Kind::Pairs => {
            let slice = Duration::from_millis(if scale == 0 { 2 } else { SLICE });
            pairs(system, (PAIRS * scale / 100).max(2) as usize, slice);
        }
    }
}

/// Runs `CASE:WHO` and prints its samples.
pub fn work(what: &str, scale: u64) -> Result<(), String> {
    let (name, who) = what.split_once(':').unwrap_or((what, "expedited"));
    let case = CASES.iter().find(|case| case.name == name).ok_or_else(|| format!("no case {name}"))?;
    if scale > 0 {
        hurry();
    }
    match who {
        "none" => run(&Ours::Nobody, case.kind, scale),
        "expedited" => run(&Ours::Expedited, case.kind, scale),
        "gentle" => run(&Ours::Gentle, case.kind, scale),
        "quiescent" => run(&Ours::Quiescent, case.kind, scale),
        "idle" => run(&Ours::Idle, case.kind, scale),
        "fence" => run(&Ours::Fence, case.kind, scale),
        "queued" => run(&Queued::new(), case.kind, scale),
        "spinning" => run(&Spinning::new(), case.kind, scale),
        other => return Err(format!("no {other} in {name}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::harness::cpus;
    use super::*;

    /// Every case runs, tiny, with everybody.
    #[test]
    fn cases_run() {
        if cpus() < 2 {
            return;
        }
        for case in CASES {
            for (who, _) in case.who {
                work(&format!("{}:{who}", case.name), 0).unwrap_or_else(|why| panic!("{}: {why}", case.name));
            }
        }
        assert!(work("spins:nobody", 0).is_err());
        assert!(work("nothing:expedited", 0).is_err());
    }
}
