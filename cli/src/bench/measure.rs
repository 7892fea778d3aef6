//! # Repetitions
//!
//! Each contender of a case is run once to warm up and be checked (the result is dropped), then all are run in turn:
//! A B C, A B C, … so that a machine that drifts drifts for everybody. What comes out is one [`Row`] for each contender
//! and metric: the median, with the smallest and largest.

use super::noise::Others;
use super::rows::{Results, Row, median};
use super::suite::{Better, Case, Sample};
use std::io::{IsTerminal as _, Write as _};

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
                metric: first.metric.name.to_owned(),
                unit: first.metric.unit.to_owned(),
                median: median(&values),
                min: values.iter().copied().fold(f64::INFINITY, f64::min),
                max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                runs: values.len(),
                higher_is_better: first.metric.better == Better::Higher,
                values,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite::{Contender, lower};
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

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
                Ok(vec![lower("op", "ns/op").is(value)])
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
