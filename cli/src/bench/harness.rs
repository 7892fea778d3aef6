//! # Cases, contenders, repetitions
//!
//! A suite is a name and a function that makes its cases. A case has
//! contenders; each is run once to warm up and be checked (the result is
//! dropped), then all are run in turn: A B C, A B C, … so that a machine that
//! drifts drifts for everybody. What comes out is one [`Row`] for each
//! contender and metric: the median, with the smallest and largest.

use super::noise::Others;
use super::peer::Peer;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

/// The name that ratios are taken to.
pub const OURS: &str = "allotment";

/// A suite.
#[derive(Debug)]
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// Makes its cases.
    pub cases: fn(&Setup) -> Vec<Case>,
}

/// What cases are made from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Allocators, ours first.
    pub peers: Vec<Peer>,
    /// Fewer and shorter runs.
    pub quick: bool,
    /// This binary, for workers.
    pub program: PathBuf,
    /// `ALLOTMENT_CONF` for Allotment's runs.
    pub conf: Option<OsString>,
    /// A directory for files, gone at the end.
    pub scratch: PathBuf,
}

/// What is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times, memory.
    Lower,
    /// Rates.
    Higher,
}

/// One number of one run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// What was measured.
    pub metric: &'static str,
    /// In what.
    pub unit: &'static str,
    /// What is better.
    pub better: Better,
    /// How much.
    pub value: f64,
}

/// Runs once; `true` asks for a short run that only warms up.
type Run = Box<dyn FnMut(bool) -> Result<Vec<Sample>, String>>;

/// Who competes.
pub struct Contender {
    name: String,
    run: Run,
}

impl Contender {
    /// From its name and what it does.
    pub fn new(name: String, run: impl FnMut(bool) -> Result<Vec<Sample>, String> + 'static) -> Self {
        Self { name, run: Box::new(run) }
    }
}

/// What is measured.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What is done.
    pub about: &'static str,
    /// By how many threads; 1 where the program decides.
    pub threads: usize,
    /// Who competes.
    pub contenders: Vec<Contender>,
    /// Why it cannot be measured here.
    pub skipped: Option<String>,
}

impl Case {
    /// A case that can be measured.
    pub fn new(name: &'static str, about: &'static str, threads: usize, contenders: Vec<Contender>) -> Self {
        Self { name, about, threads, contenders, skipped: None }
    }
    /// A case that cannot.
    pub fn skipped(name: &'static str, about: &'static str, why: String) -> Self {
        Self { name, about, threads: 1, contenders: Vec::new(), skipped: Some(why) }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} × {}", self.name, self.threads)
    }
}

/// One result.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The suite.
    pub suite: String,
    /// The case.
    pub case: String,
    /// The contender.
    #[serde(rename = "impl")]
    pub name: String,
    /// Threads.
    pub threads: usize,
    /// What was measured.
    pub metric: String,
    /// In what.
    pub unit: String,
    /// The middle of the runs.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many runs.
    pub runs: usize,
    /// What is better; not part of the file.
    #[serde(skip)]
    pub higher_is_better: bool,
    /// The runs; not part of the file.
    #[serde(skip)]
    pub values: Vec<f64>,
}

/// The median; of an even number, the mean of the middle two.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

/// CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Shows how far it is, on a terminal only.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    total: usize,
    done: usize,
}

impl Progress {
    /// For that many runs.
    pub fn new(total: usize) -> Self {
        Self { shown: std::io::stderr().is_terminal(), total, done: 0 }
    }
    fn step(&mut self, what: &str) {
        self.done += 1;
        if self.shown {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K{}/{} {what}", self.done, self.total);
        }
    }
    /// Takes the line away.
    pub fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// What was measured and what went wrong.
#[derive(Debug, Default)]
pub struct Results {
    /// Rows, in the order of the cases.
    pub rows: Vec<Row>,
    /// Contenders that failed, a line each.
    pub failures: Vec<String>,
    /// Cases that cannot be measured here, a line each.
    pub skipped: Vec<String>,
    /// CPUs that others used while a case was measured, case by case.
    pub others: Vec<f64>,
}

/// Measures a case.
pub fn measure(suite: &str, case: &mut Case, runs: usize, progress: &mut Progress, results: &mut Results) {
    let title = format!("{suite}/{}", case.name);
    if let Some(why) = &case.skipped {
        results.skipped.push(format!("{title}: {why}"));
        return;
    }
    let mut samples: Vec<Option<Vec<Vec<Sample>>>> = vec![Some(Vec::new()); case.contenders.len()];
    let quiet = Others::begin();
    for round in 0..=runs {
        for (contender, kept) in case.contenders.iter_mut().zip(&mut samples) {
            progress.step(&format!("{title} × {}: {}", case.threads, contender.name));
            let Some(so_far) = kept else { continue };
            match (contender.run)(round == 0) {
                Ok(_) if round == 0 => {}
                Ok(new) => so_far.push(new),
                Err(why) => {
                    results.failures.push(format!("{title} × {}: {}: {why}", case.threads, contender.name));
                    *kept = None;
                }
            }
        }
    }
    results.others.extend(quiet.end());
    for (contender, kept) in case.contenders.iter().zip(samples) {
        let Some(kept) = kept.filter(|kept| !kept.is_empty()) else { continue };
        for (at, first) in kept[0].iter().enumerate() {
            let values: Vec<f64> = kept.iter().filter_map(|run| run.get(at)).map(|sample| sample.value).collect();
            results.rows.push(Row {
                suite: suite.to_owned(),
                case: case.name.to_owned(),
                name: contender.name.clone(),
                threads: case.threads,
                metric: first.metric.to_owned(),
                unit: first.unit.to_owned(),
                median: median(&values),
                min: values.iter().copied().fold(f64::INFINITY, f64::min),
                max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                runs: values.len(),
                higher_is_better: first.better == Better::Higher,
                values,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn contenders_take_turns_and_the_first_run_is_dropped() {
        let order = Rc::new(RefCell::new(String::new()));
        let contender = |name: &str| {
            let (order, letter) = (Rc::clone(&order), name.to_owned());
            let mut value = 1000.0;
            Contender::new(name.to_owned(), move |warm| {
                order.borrow_mut().push_str(&letter);
                value = if warm { 0.0 } else { value + 1.0 };
                if letter == "C" {
                    return Err("broken".into());
                }
                Ok(vec![Sample { metric: "op", unit: "ns/op", better: Better::Lower, value }])
            })
        };
        let mut case = Case::new("c", "", 2, vec![contender("A"), contender("B"), contender("C")]);
        let mut results = Results::default();
        measure("s", &mut case, 3, &mut Progress::new(12), &mut results);
        assert_eq!(*order.borrow(), "ABCABABAB");
        assert_eq!(results.rows.len(), 2);
        let row = &results.rows[0];
        assert_eq!((row.median, row.min, row.max, row.runs), (2.0, 1.0, 3.0, 3));
        assert_eq!(results.failures, ["s/c × 2: C: broken"]);
        let json = serde_json::to_value(row).expect("plain");
        assert_eq!(json["impl"], "A");
        assert!(json.get("higher_is_better").is_none());
    }
}
