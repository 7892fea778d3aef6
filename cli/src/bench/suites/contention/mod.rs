//! # Suite `contention`: what many CPUs would pay
//!
//! ```text
//!  this machine: a line between two CPUs, an operation on one's own ──► model ──► beside what 1, 2 and more threads measure
//!  the seeds' figures: some calibrate, others are predicted ([`seeds`]) ──► model ──► beside what the seeds measured
//! ```
//! Two contenders everywhere: `model`, and `measured` (here) or `seed` (there). The suite's own table gives the model's error.
//! See docs/many-cpus.md for how to read it, and for where the model is bad.

mod model;
mod seeds;

use crate::bench::rows::Row;
use crate::bench::suite::{Case, Contender, Metric, Setup, Suite, lower};
use crate::bench::team::{cpus, stay, together};
use crate::clock::thread_ns;
use allotment::counter::LevelCounter;
use model::{Line, cycle};
use seeds::Use;
use std::fmt::Write as _;
use std::hint::{black_box, spin_loop};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

/// The suite.
pub const SUITE: Suite =
    Suite::new("contention", "a model of many CPUs, calibrated here and by the seeds' figures", cases)
        .with_table(table);

const OP: Metric = lower("op", "ns/op");
const MODEL: &str = "model";
/// Operations of a thread in a run.
const OPS: u64 = 2_000_000;
/// Rounds of work between two operations.
const THINKS: [(&str, u64); 3] = [("word", 0), ("word-think-20", 20), ("word-think-200", 200)];
/// Of our level counter.
const THRESHOLDS: [(&str, u32); 3] = [("level-1", 1), ("level-8", 8), ("level-125", 125)];

/// A word on lines of its own.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Word(AtomicU64);

fn cases(setup: &Setup) -> Vec<Case> {
    let ops = if setup.quick { OPS / 5 } else { OPS };
    let mut all = vec![costs(ops)];
    let counts = |least| [1, 2, 4].into_iter().filter(move |&threads| threads >= least);
    for (name, rounds) in THINKS {
        let about = "fetch_add on one word, with so many rounds of own work between, which are taken off";
        all.extend(counts(1).map(|threads| {
            let measured = Contender::new("measured", move |warm| {
                let own = Here::get()?.round * rounds as f64;
                Ok(vec![OP.is(word(threads, rounds, scaled(ops, warm))? - own)])
            });
            let model = Contender::new(MODEL, move |_| {
                let here = Here::get()?;
                Ok(vec![OP.is(here.line().visit(threads.min(cpus()), here.round * rounds as f64))])
            });
            Case::new(name, about, threads, vec![measured, model])
        }));
    }
    for (name, threshold) in THRESHOLDS {
        let about = "our level counter with that threshold, counting up: two additions to its word in 1.5 × threshold";
        all.extend(counts(1).map(|threads| {
            let measured =
                Contender::new("measured", move |warm| Ok(vec![OP.is(level(threads, threshold, scaled(ops, warm))?)]));
            let model = Contender::new(MODEL, move |_| {
                let (here, cpus) = (Here::get()?, threads.min(cpus()));
                // (With a threshold of 1 every other one.)
                let run = f64::from(threshold + threshold / 2 + 1);
                let own = run.mul_add(here.step, here.spill - here.step);
                let away = here.line().service(cpus) - here.local;
                Ok(vec![OP.is(cycle(cpus, own, &[away, away]) / run)])
            });
            Case::new(name, about, threads, vec![measured, model])
        }));
    }
    for protocol in seeds::protocols() {
        let metric = lower("time", protocol.unit);
        for figure in protocol.figures {
            let constant = |name: &str, value: f64| Contender::new(name, move |_| Ok(vec![metric.is(value)]));
            let seed = figure.seed.map(|value| constant("seed", value));
            let contenders = seed.into_iter().chain([constant(MODEL, figure.model)]).collect();
            all.push(Case::new(protocol.name, protocol.about, figure.at, contenders));
        }
    }
    all
}

const fn scaled(ops: u64, warm: bool) -> u64 {
    if warm { ops / 20 } else { ops }
}

/// What this machine takes for what the model is made of, ns.
#[derive(Clone, Copy, Debug)]
struct Here {
    /// An addition to a word that nobody else uses.
    local: f64,
    /// A line that another CPU wrote.
    transfer: f64,
    /// A round of own work.
    round: f64,
    /// A step of a level counter that does not spill; one that does, alone.
    step: f64,
    spill: f64,
}

impl Here {
    /// Measured once.
    fn get() -> Result<Self, String> {
        static HERE: OnceLock<Result<Here, String>> = OnceLock::new();
        HERE.get_or_init(Self::measure).clone()
    }
    fn measure() -> Result<Self, String> {
        let best = |run: &dyn Fn() -> Result<f64, String>| {
            (0..5).map(|_| run()).try_fold(f64::MAX, |least, value| value.map(|value| least.min(value)))
        };
        let local = best(&|| word(1, 0, OPS / 4))?;
        let busy = best(&|| word(1, 1000, OPS / 200))?;
        let step = best(&|| level(1, 125, OPS / 4))?;
        let spilling = best(&|| level(1, 1, OPS / 4))?;
        Ok(Self {
            local,
            transfer: if cpus() > 1 { (best(&|| pass(20_000))? - local).max(0.0) } else { 0.0 },
            round: (busy - local) / 1000.0,
            step,
            // (With a threshold of 1 every other step spills.)
            spill: (2.0 * spilling - step).max(step),
        })
    }
    const fn line(self) -> Line {
        Line { local: self.local, transfer: self.transfer }
    }
}

/// Nanoseconds for each addition to one word by so many threads, with so many rounds of own work.
fn word(threads: usize, rounds: u64, ops: u64) -> Result<f64, String> {
    let word = Word::default();
    let ops = (ops / (1 + rounds / 20)).max(1000);
    let times = together(threads, |thread, start| {
        stay(thread);
        start.wait();
        let began = thread_ns();
        for _ in 0..ops {
            word.0.fetch_add(1, Relaxed);
            (0..rounds).for_each(|round| _ = black_box(round));
        }
        thread_ns() - began
    })?;
    if word.0.load(Relaxed) != ops * threads as u64 {
        return Err("an addition was lost".into());
    }
    Ok(times.iter().sum::<u64>() as f64 / (ops * threads as u64) as f64)
}

fn level(threads: usize, threshold: u32, ops: u64) -> Result<f64, String> {
    let counter = LevelCounter::with_threshold(threshold).map_err(|error| error.to_string())?;
    let times = together(threads, |thread, start| {
        stay(thread);
        start.wait();
        let began = thread_ns();
        (0..ops).for_each(|_| counter.add(1));
        thread_ns() - began
    })?;
    if counter.exact() != (ops * threads as u64).cast_signed() {
        return Err("a count was lost".into());
    }
    Ok(times.iter().sum::<u64>() as f64 / (ops * threads as u64) as f64)
}

/// Nanoseconds for handing a word from one CPU to another: half a round trip.
fn pass(rounds: u64) -> Result<f64, String> {
    let ball = Word::default();
    let times = together(2, |thread, start| {
        stay(thread);
        start.wait();
        let began = Instant::now();
        for round in 0..rounds {
            while ball.0.load(Acquire) != 2 * round + thread as u64 {
                spin_loop();
            }
            ball.0.store(2 * round + thread as u64 + 1, Release);
        }
        began.elapsed().as_nanos() as f64
    })?;
    Ok(times.iter().copied().fold(0.0, f64::max) / (2 * rounds) as f64)
}

/// What the model is made of, and what else protocols pay.
fn costs(ops: u64) -> Case {
    const METRICS: [Metric; 5] = [
        lower("own-line", "ns"),
        lower("transfer", "ns"),
        lower("step", "ns"),
        lower("spill", "ns"),
        lower("system-call", "ns"),
    ];
    let measured = Contender::new("measured", move |warm| {
        let here = Here::measure()?;
        let calls = scaled(ops / 20, warm);
        let began = thread_ns();
        (0..calls).for_each(|_| _ = std::os::unix::process::parent_id());
        let call = (thread_ns() - began) as f64 / calls as f64;
        let values = [here.local, here.transfer, here.step, here.spill, call];
        Ok(METRICS.iter().zip(values).map(|(metric, value)| metric.is(value)).collect())
    });
    Case::new(
        "costs",
        "a line one has, one from another CPU; a level's step, its spill; a system call",
        1,
        vec![measured],
    )
}

/// The model's figures beside the others, and by how much they are off.
fn table(rows: &[Row]) -> String {
    let own: Vec<&Row> = rows.iter().filter(|row| row.suite == SUITE.name).collect();
    let calibrated: Vec<(&str, usize)> = seeds::protocols()
        .iter()
        .flat_map(|protocol| {
            let known = protocol.figures.iter().filter(|figure| figure.is == Use::Calibrated);
            known.map(|figure| (protocol.name, figure.at)).collect::<Vec<_>>()
        })
        .collect();
    let mut text = String::new();
    for model in own.iter().filter(|row| row.name == MODEL) {
        if text.is_empty() {
            let _ = writeln!(
                text,
                "\n{:<16} {:>6}  {:>12} {:>12}  {:>8}  model was",
                "case", "CPUs", "measured", "model", "off by"
            );
        }
        let other = own.iter().find(|row| row.name != MODEL && row.case == model.case && row.threads == model.threads);
        let figure = |value: f64| crate::bench::table::figure(value);
        let off = other.map_or_else(String::new, |row| format!("{:+.0} %", 100.0 * (model.median / row.median - 1.0)));
        let _ = writeln!(
            text,
            "{:<16} {:>6}  {:>12} {:>12}  {off:>8}  {} ({})",
            model.case,
            model.threads,
            other.map_or_else(|| "-".to_owned(), |row| figure(row.median)),
            figure(model.median),
            match other.map(|row| row.name.as_str()) {
                None => "alone",
                Some("seed") if calibrated.contains(&(&model.case, model.threads)) => "fitted to it",
                Some("seed") => "not told",
                Some(_) => "told of lines and single threads only",
            },
            model.unit
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_what_is_modelled() {
        for threads in [1, 2] {
            assert!(word(threads, 0, 1000).expect("a time") > 0.0);
            assert!(level(threads, 1, 1000).expect("a time") > 0.0);
        }
        if cpus() > 1 {
            assert!(pass(100).expect("a time") > 0.0);
        }
    }

    #[test]
    fn the_table_says_what_the_model_was_told() {
        let row = |case: &str, name: &str, threads, median| Row {
            suite: SUITE.name.into(),
            case: case.into(),
            name: name.into(),
            threads,
            metric: "time".into(),
            unit: "s".into(),
            median,
            min: median,
            max: median,
            runs: 1,
            higher_is_better: false,
            values: vec![median],
        };
        let rows = [
            row("purge-old", "seed", 192, 100.0),
            row("purge-old", MODEL, 192, 90.0),
            row("purge-old", "seed", 448, 10.0),
            row("purge-old", MODEL, 448, 10.0),
            row("free-ours", MODEL, 8, 4.0),
        ];
        let text = table(&rows);
        let said: Vec<&str> =
            text.lines().filter(|line| line.starts_with("purge") || line.starts_with("free")).collect();
        assert!(said[0].contains("-10 %") && said[0].contains("not told"), "{text}");
        assert!(said[1].contains("+0 %") && said[1].contains("fitted to it") && said[2].contains("alone"), "{text}");
        assert!(table(&[]).is_empty());
    }
}
