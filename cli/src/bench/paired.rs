//! # Short slices in pairs: with and without
//!
//! What is to be seen is smaller than what a machine drifts by in a second. So slices of a few dozen milliseconds are
//! taken in pairs, the order within a pair alternating (A B, B A, …); each pair gives one difference, and the median
//! of the differences has a confidence interval by ranks, whatever their distribution.

use super::rows::median;
use super::team::Random;
use crate::clock::Used;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The median of differences, and the interval that holds it with 95 %.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The middle.
    pub median: f64,
    /// From here
    pub low: f64,
    /// to here.
    pub high: f64,
}

/// Per cent that `with` is above `without`, pair by pair.
pub fn changes(pairs: &[[f64; 2]]) -> Vec<f64> {
    pairs.iter().map(|[without, with]| 100.0 * (with - without) / without).collect()
}

/// The median and its interval: the ranks n/2 ± 0.98 √n (the binomial distribution's, by its normal one).
pub fn spread(values: &[f64]) -> Spread {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let aside = 0.98 * n.sqrt();
    let at = |rank: f64| sorted.get(rank.clamp(0.0, (n - 1.0).max(0.0)) as usize).copied().unwrap_or(f64::NAN);
    Spread { median: median(values), low: at((n / 2.0 - aside).floor()), high: at((n / 2.0 + aside).floor()) }
}

/// The order of the slices of `pairs` pairs: whether each is one `with`.
pub fn order(pairs: usize) -> impl Iterator<Item = bool> {
    (0..pairs).flat_map(|pair| if pair % 2 == 0 { [false, true] } else { [true, false] })
}

/// Does something a hundred times a second while `on`, until `stop`: a drainer beside those that are measured; its own CPU
/// seconds.
pub fn disturb(on: &AtomicBool, stop: &AtomicBool, mut what: impl FnMut()) -> f64 {
    let mut due = Instant::now();
    let mut jitter = Random::new(1);
    while !stop.load(Relaxed) {
        // Not in step with the clock's ticks: 8 to 12 ms.
        due = (due + Duration::from_micros(8_000 + jitter.below(4_000) as u64)).max(Instant::now());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // Relaxed: what is measured is not handed over by it.
        if on.load(Relaxed) {
            what();
        }
    }
    Used::by(libc::RUSAGE_THREAD).cpu_ns() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_median() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let spread = spread(&values);
        assert_eq!((spread.median, spread.low, spread.high), (49.5, 40.0, 59.0));
        let one = super::spread(&[3.0]);
        assert_eq!((one.median, one.low, one.high), (3.0, 3.0, 3.0));
    }

    #[test]
    fn pairs_alternate() {
        assert_eq!(order(3).collect::<Vec<_>>(), [false, true, true, false, false, true]);
        assert_eq!(changes(&[[100.0, 101.0], [50.0, 49.0]]), [1.0, -2.0]);
    }
}
