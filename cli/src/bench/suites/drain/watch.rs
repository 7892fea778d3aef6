//! # What an owner sees
//!
//! A thread that stays on one CPU reads the time stamp counter in a tight loop, some 20 ns a turn. Where two readings
//! lie further apart than [`LEAST`], something else had the CPU: an interrupt, the hypervisor, another
//! thread. Those that overlap a drain (from its begin to its end, and [`SLACK`]) are told from the rest, which is what
//! a run without drains sees too. From [`OTHERS`] on a gap is a time slice of somebody else's, another program or
//! another guest, and no interruption: it is in `gaps`, `largest` and `lost`, and never at a drain.

use crate::bench::rows::median;
use crate::clock::stamp;
use crate::proc;
use std::time::{Duration, Instant};

/// Gaps from here on count, ns.
pub const LEAST: f64 = 500.0;
/// What is as long is no interruption, ns.
const OTHERS: f64 = 100_000.0;
/// What comes so soon after a drain was, ns, is counted as its own.
const SLACK: f64 = 5_000.0;

/// Ticks of a nanosecond.
pub fn rate() -> f64 {
    let (began, first) = (Instant::now(), stamp());
    std::thread::sleep(Duration::from_millis(20));
    let last = stamp();
    (last - first) as f64 / began.elapsed().as_nanos() as f64
}

/// From when to when, in ticks.
pub type Span = [u64; 2];

/// What was seen in all.
#[derive(Debug, Default)]
pub struct Seen {
    /// Where it looked away.
    pub gaps: Vec<Span>,
    /// How long it looked, ticks.
    pub looked: u64,
}

impl Seen {
    /// With room, so that looking allocates nothing.
    pub fn new() -> Self {
        let mut gaps = vec![[0; 2]; 1 << 17];
        gaps.clear();
        Self { gaps, looked: 0 }
    }
    /// Looks while `on`, which does a step of the owner's and is part of what is seen.
    #[inline(always)]
    pub fn watch(&mut self, least: u64, mut on: impl FnMut() -> bool) {
        let begin = stamp();
        let mut last = begin;
        while on() {
            let now = stamp();
            if now - last > least && self.gaps.len() < self.gaps.capacity() {
                self.gaps.push([last, now]);
            }
            last = now;
        }
        self.looked += last - begin;
    }
}

/// Figures of what was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Gaps a second.
    pub gaps: f64,
    /// The largest, µs.
    pub largest: f64,
    /// Their sum, % of the time.
    pub lost: f64,
    /// Gaps at drains, for each drain.
    pub at_drains: f64,
    /// The median of those, µs; 0 if there are none.
    pub interruption: f64,
    /// Their sum, % of the time.
    pub lost_at_drains: f64,
}

/// Gaps, those at `drains` apart.
pub fn figures(seen: &Seen, drains: &[Span], rate: f64) -> Figures {
    let us = |ticks: u64| ticks as f64 / rate / 1e3;
    let of_time = |sum: u64| 100.0 * sum as f64 / seen.looked.max(1) as f64;
    let (slack, others) = ((SLACK * rate) as u64, (OTHERS * rate) as u64);
    let long = |gap: &Span| gap[1] - gap[0];
    let meets = |gap: &Span| {
        // The last drain that began before the gap ended.
        let after = drains.partition_point(|drain| drain[0] < gap[1]);
        after > 0 && long(gap) < others && gap[0] < drains[after - 1][1] + slack
    };
    let at: Vec<u64> = seen.gaps.iter().filter(|gap| meets(gap)).map(long).collect();
    let lengths: Vec<f64> = at.iter().map(|&gap| us(gap)).collect();
    Figures {
        gaps: seen.gaps.len() as f64 / (seen.looked.max(1) as f64 / rate / 1e9),
        largest: us(seen.gaps.iter().map(long).max().unwrap_or(0)),
        lost: of_time(seen.gaps.iter().map(long).sum()),
        at_drains: at.len() as f64 / drains.len().max(1) as f64,
        interruption: if at.is_empty() { 0.0 } else { median(&lengths) },
        lost_at_drains: of_time(at.iter().sum()),
    }
}

/// Kinds of interrupts that `/proc/interrupts` counts.
pub const INTERRUPTS: [&str; 4] = ["CAL", "TLB", "LOC", "RES"];

/// Interrupts that a CPU has taken, by [`INTERRUPTS`]; zero where the system does not say.
pub fn interrupts(cpu: usize) -> [u64; 4] {
    proc::interrupts(INTERRUPTS, cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_at_drains_are_told_from_others() {
        let mut seen = Seen { gaps: vec![[1_000, 3_000], [50_000, 51_000], [90_000, 96_000]], looked: 1_000_000 };
        // A tick is a nanosecond. One drain meets the first gap, the second's slack ends before the third.
        let found = figures(&seen, &[[2_000, 4_000], [70_000, 72_000]], 1.0);
        assert_eq!((found.gaps, found.largest, found.lost), (3000.0, 6.0, 0.9));
        assert_eq!((found.at_drains, found.interruption, found.lost_at_drains), (0.5, 2.0, 0.2));
        // A gap that begins within the slack is the drain's.
        let found = figures(&seen, &[[45_000, 46_000]], 1.0);
        assert_eq!((found.at_drains, found.interruption), (1.0, 1.0));
        assert_eq!(figures(&seen, &[], 1.0).at_drains, 0.0);
        // Somebody else's time slice is none.
        seen.gaps = vec![[1_000, 201_000]];
        let found = figures(&seen, &[[2_000, 4_000]], 1.0);
        assert_eq!((found.at_drains, found.lost_at_drains, found.lost), (0.0, 0.0, 20.0));
        seen.gaps.clear();
        assert_eq!(figures(&seen, &[[1, 2]], 1.0).interruption, 0.0);
    }

    #[test]
    fn a_pause_is_seen() {
        let rate = rate();
        let mut seen = Seen::new();
        let mut turns = 0;
        seen.watch((LEAST * rate) as u64, || {
            turns += 1;
            if turns == 100 {
                std::thread::sleep(Duration::from_millis(2));
            }
            turns < 200
        });
        let found = figures(&seen, &[], rate);
        assert!(found.largest >= 2_000.0 && found.lost > 50.0, "{found:?}");
    }
}
