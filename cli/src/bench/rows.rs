//! # Results
//!
//! One [`Row`] for each case, contender and metric, as `--json` has it.

use serde::Serialize;

/// The name that ratios are taken to.
pub const OURS: &str = "allotment";

/// Bytes as rows have them.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
