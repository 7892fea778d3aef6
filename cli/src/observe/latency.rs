//! # How long things took
//!
//! The board has histograms in ticks of the processor's counter, a bucket for each power of two; here they become
//! times. The length of a tick follows from two moments: the heap's start and now.
//!
//! ```text
//! bucket 0: below 2^9 ticks │ 1: below 2^10 │ … │ the last: any more
//! ```
//!
//! Units: nanoseconds, as `f64`. A quantile is the end of the bucket that it lies in: too high by at most a factor of two.

use crate::report::Histogram;
use allotment_engine::stat::Timing;
use allotment_engine::stat::board::{TIMES, TIMES_SHIFT};
use serde::Serialize;
use std::fmt::Write as _;

/// A bar's letters.
const BAR: usize = 40;

/// Nanoseconds a tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick(pub f64);

impl Tick {
    /// From two moments; `None` where they cannot be of one machine that went on.
    pub fn between(start: (u64, u64), now: (u64, u64)) -> Option<Self> {
        let ticks = now.0.checked_sub(start.0).filter(|&ticks| start.0 > 0 && ticks > 0)?;
        let ns = now.1.checked_sub(start.1).filter(|&ns| ns > 0)?;
        let rate = ns as f64 / ticks as f64;
        (0.01..=100.0).contains(&rate).then_some(Self(rate))
    }
    /// Three digits of it: the ends of buckets stay what they are from one look to the next.
    pub fn rounded(self) -> Self {
        let scale = 10_f64.powf(2.0 - self.0.log10().floor());
        Self((self.0 * scale).round() / scale)
    }
}

/// A bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// Where it ends; the last has no end.
    pub below_ns: Option<f64>,
    /// Times in it.
    pub count: u64,
}

/// A histogram in times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// What was timed.
    #[serde(skip)]
    pub name: &'static str,
    /// In words.
    pub meaning: &'static str,
    /// How often.
    pub count: u64,
    /// Together.
    pub sum_ns: f64,
    /// On average.
    pub mean_ns: f64,
    /// Half took less.
    pub p50_below_ns: Option<f64>,
    /// 99 in 100 took less.
    pub p99_below_ns: Option<f64>,
    /// All took less.
    pub max_below_ns: Option<f64>,
    /// All of them.
    pub buckets: Vec<Bucket>,
}

impl Latency {
    /// Of one histogram.
    pub fn new(timing: Timing, histogram: &Histogram, tick: Tick) -> Self {
        let rounded = tick.rounded();
        let end = |at: usize| (at + 1 < TIMES).then(|| (1_u64 << (TIMES_SHIFT as usize + at)) as f64 * rounded.0);
        let buckets: Vec<Bucket> =
            histogram.buckets.iter().enumerate().map(|(at, &count)| Bucket { below_ns: end(at), count }).collect();
        let count = histogram.buckets.iter().fold(0, |sum: u64, &count| sum.saturating_add(count));
        let sum_ns = histogram.ticks as f64 * tick.0;
        // The first bucket with which at least that part is reached.
        let quantile = |part: f64| {
            let wanted = (count as f64 * part).ceil().max(1.0);
            let mut seen = 0.0;
            let found = buckets.iter().find(|bucket| {
                seen += bucket.count as f64;
                seen >= wanted
            });
            found.and_then(|bucket| bucket.below_ns).filter(|_| count > 0)
        };
        Self {
            name: timing.name(),
            meaning: timing.meaning(),
            count,
            sum_ns,
            mean_ns: if count > 0 { sum_ns / count as f64 } else { 0.0 },
            p50_below_ns: quantile(0.5),
            p99_below_ns: quantile(0.99),
            max_below_ns: quantile(1.0),
            buckets,
        }
    }

    /// As the kernel's tracing tools print it.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.meaning);
        if self.count == 0 {
            text.push_str("     none so far\n");
            return text;
        }
        let used = |bucket: &Bucket| bucket.count > 0;
        let first = self.buckets.iter().position(used).unwrap_or(0);
        let last = self.buckets.iter().rposition(used).unwrap_or(0);
        let most = self.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1).max(1);
        let _ = writeln!(text, "{:>10} -> {:<10} : {:<8} distribution", "µs", "", "count");
        let mut from = if first == 0 { Some(0.0) } else { self.buckets[first - 1].below_ns };
        for bucket in &self.buckets[first..=last] {
            let stars = (u128::from(bucket.count) * BAR as u128 / u128::from(most)) as usize;
            let to = bucket.below_ns.map_or_else(String::new, micro);
            let from_text = from.map_or_else(String::new, micro);
            let _ = writeln!(text, "{from_text:>10} -> {to:<10} : {:<8} |{:<BAR$}|", bucket.count, "*".repeat(stars));
            from = bucket.below_ns;
        }
        let _ = writeln!(
            text,
            "     mean {}, total {}, count {}; half below {}, 99 % below {}, all below {}",
            time(Some(self.mean_ns)),
            time(Some(self.sum_ns)),
            self.count,
            time(self.p50_below_ns),
            time(self.p99_below_ns),
            time(self.max_below_ns)
        );
        text
    }
}

/// Microseconds with as many digits as mean something.
fn micro(ns: f64) -> String {
    let us = ns / 1e3;
    match us {
        ..10.0 => format!("{us:.2}"),
        10.0..100.0 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}

/// A time for eyes.
pub fn time(ns: Option<f64>) -> String {
    // (`as` cuts to the range of u64.)
    ns.map_or_else(|| "more than measured".into(), |ns| crate::term::nanoseconds(ns.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(counts: &[(usize, u64)], ticks: u64) -> Histogram {
        let mut histogram = Histogram { ticks, ..Histogram::default() };
        counts.iter().for_each(|&(at, count)| histogram.buckets[at] = count);
        histogram
    }

    #[test]
    fn ticks_become_times() {
        let tick = Tick::between((1000, 5000), (5000, 7000)).expect("later");
        assert_eq!(tick, Tick(0.5));
        assert_eq!(Tick::between((1000, 5000), (900, 7000)), None);
        assert_eq!(Tick::between((0, 5000), (900, 7000)), None);
        assert_eq!(Tick::between((1, 5000), (2, 7_000_000)), None);
        assert_eq!(Tick(0.499_999_1).rounded(), Tick(0.5));
        assert_eq!(Tick(1.234_567).rounded(), Tick(1.23));
    }

    #[test]
    fn quantiles_are_ends_of_buckets() {
        let latency = Latency::new(Timing::Purge, &histogram(&[(0, 50), (3, 48), (10, 2)], 100_000), Tick(0.5));
        assert_eq!((latency.count, latency.sum_ns, latency.mean_ns), (100, 50_000.0, 500.0));
        assert_eq!(latency.p50_below_ns, Some(256.0));
        assert_eq!(latency.p99_below_ns, Some(262_144.0));
        assert_eq!(latency.max_below_ns, Some(262_144.0));
        let open = Latency::new(Timing::Purge, &histogram(&[(TIMES - 1, 1)], u64::MAX), Tick(0.5));
        assert_eq!(open.max_below_ns, None);
        assert!(open.text().contains("more than measured"));
    }

    #[test]
    fn text_has_a_row_for_each_bucket_between_the_first_and_the_last() {
        let text = Latency::new(Timing::Drain, &histogram(&[(1, 10), (3, 5)], 30_000), Tick(0.5)).text();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains('|')).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert!(rows[0].contains("0.26 -> 0.51") && rows[0].contains(&"*".repeat(BAR)), "{text}");
        assert!(rows[1].contains(": 0 ") && rows[2].matches('*').count() == BAR / 2, "{text}");
        assert!(Latency::new(Timing::Drain, &histogram(&[], 0), Tick(0.5)).text().contains("none so far"));
        let full = Latency::new(Timing::Drain, &Histogram { buckets: [u64::MAX; TIMES], ticks: u64::MAX }, Tick(0.5));
        assert!(full.text().lines().count() > TIMES);
    }
}
