//! # Noise: whether a winner is one, and what made it doubtful
//!
//! Contenders take turns, so a machine that drifts does so for all. What is left is judged by the exact rank-sum test
//! (Mann and Whitney): of all orders of the runs of two contenders, how many favour one at least as much. Below
//! one in a hundred it wins; with fewer than [`RUNS_MIN`] runs of each no order is so rare.
//!
//! Other work is what the machine did beside us: `/proc/stat` less our own and our children's times.
#![allow(unsafe_code)] // sched_setscheduler

use crate::clock::{Used, monotonic_ns};
use crate::file::euid;
use crate::proc;
use crate::term::plain;
use std::io;

/// Fewest runs of each with which one may win: 1 of 252 orders.
pub const RUNS_MIN: usize = 5;
/// Chance that is taken.
const CHANCE: f64 = 0.01;
/// CPUs of other work that are worth a line.
pub const BUSY: f64 = 0.1;
/// Priority among tasks in real time: above all others, and low among those.
const PRIORITY: i32 = 5;
/// Runs of each from which the distribution is the normal one.
const MANY: usize = 30;

/// Whether `a` is better than `b` by more than chance.
pub fn wins(a: &[f64], b: &[f64], higher: bool) -> bool {
    let better = |a: f64, b: f64| if higher { a > b } else { a < b };
    let score = |a: f64, b: f64| if better(a, b) { 1.0 } else { f64::from(u8::from(a == b)) / 2.0 };
    let sum: f64 = a.iter().flat_map(|&a| b.iter().map(move |&b| score(a, b))).sum();
    !a.is_empty() && !b.is_empty() && chance(a.len(), b.len(), sum) < CHANCE
}

/// How probable it is that chance makes at least `sum` of the `n` × `m` pairs.
fn chance(n: usize, m: usize, sum: f64) -> f64 {
    let pairs = (n * m) as f64;
    if n.max(m) > MANY {
        let spread = (pairs * (n + m + 1) as f64 / 12.0).sqrt();
        return tail((sum - 0.5 - pairs / 2.0) / spread);
    }
    // (Ties count as the less favourable.)
    let least = sum.floor() as usize;
    let orders = orders(n, m);
    orders.iter().skip(least).sum::<f64>() / orders.iter().sum::<f64>()
}

/// By the number of pairs that one of two contenders wins, how many orders of `n` and `m` runs have it.
fn orders(n: usize, m: usize) -> Vec<f64> {
    // The last run of all is one of ours, and beats all `m` of the others, or one of theirs.
    let mut rows = vec![vec![1.0]; m + 1];
    for i in 1..=n {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for j in 1..=m {
            let mut sum = vec![0.0; i * j + 1];
            rows[j].iter().enumerate().for_each(|(at, count)| sum[at + j] += count);
            next[j - 1].iter().enumerate().for_each(|(at, count)| sum[at] += count);
            next.push(sum);
        }
        rows = next;
    }
    rows.swap_remove(m)
}

/// What of the normal distribution is above `z` (Abramowitz and Stegun 26.2.17; to seven digits).
fn tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - tail(-z);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series
}

/// Seconds: of the wall, busy on all CPUs, and ours.
#[derive(Clone, Copy, Debug)]
pub struct Others([f64; 3]);

impl Others {
    /// Now.
    pub fn begin() -> Self {
        Self(times().unwrap_or_default())
    }
    /// CPUs that others used since; nothing where the time was too short to tell, or cannot be told.
    pub fn end(self) -> Option<f64> {
        let now = times()?;
        let [wall, busy, ours] = [0, 1, 2].map(|at: usize| now[at] - self.0[at]);
        // (The system counts in hundredths of a second.)
        (self.0[0] > 0.0 && wall >= 0.1).then(|| ((busy - ours) / wall).max(0.0))
    }
}

fn times() -> Option<[f64; 3]> {
    let ours: u64 = [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN].map(|who| Used::by(who).cpu_ns()).iter().sum();
    Some([monotonic_ns() as f64 / 1e9, proc::busy_seconds()?, ours as f64 / 1e9])
}

/// Has this process, and all that it starts, run before others.
///
/// # Errors
/// One line.
pub fn realtime() -> Result<(), String> {
    let parameter = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: reads one structure that lives through the call.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameter) } == 0 {
        return Ok(());
    }
    let error = plain(&io::Error::last_os_error());
    Err(format!("--realtime: {error}: it needs root, CAP_SYS_NICE or `ulimit -r {PRIORITY}`"))
}

/// Whether this process runs before others.
pub fn is_realtime() -> bool {
    // SAFETY: no pointers.
    matches!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_RR | libc::SCHED_FIFO)
}

/// Whether it may ask to.
pub fn may_be_realtime() -> bool {
    euid() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_counted() {
        assert_eq!(orders(1, 1), [1.0, 1.0]);
        assert_eq!(orders(2, 2), [1.0, 1.0, 2.0, 1.0, 1.0]);
        assert_eq!(orders(5, 5).iter().sum::<f64>(), 252.0);
        assert_eq!(orders(3, 4).len(), 13);
        // Tables of Mann and Whitney: of 7 and 7, eight pairs lost are 1.9 %, six 0.9 %.
        assert!((chance(7, 7, 41.0) - 0.0189).abs() < 1e-3 && (chance(7, 7, 43.0) - 0.0087).abs() < 1e-3);
        // The normal distribution goes on where the exact one ends.
        let (exact, normal) = (chance(30, 30, 600.0), chance(31, 31, 640.0));
        assert!((exact - 0.0132).abs() < 1e-3 && (normal - 0.0125).abs() < 2e-3, "{exact} {normal}");
    }

    #[test]
    fn a_winner_is_one_by_more_than_chance() {
        let low = [1.0, 1.1, 1.2, 1.3, 1.4];
        let high = low.map(|value| value + 1.0);
        assert!(wins(&low, &high, false) && wins(&high, &low, true));
        assert!(!wins(&high, &low, false) && !wins(&low, &low, false) && !wins(&[], &low, false));
        // One pair the other way is as rare as is taken; two are not. Four runs are too few.
        assert!(wins(&[1.0, 1.1, 1.2, 1.3, 2.05], &high, false));
        assert!(!wins(&[1.0, 1.1, 1.2, 1.3, 2.15], &high, false));
        assert!(!wins(&low[..RUNS_MIN - 1], &high[..RUNS_MIN - 1], false));
        assert!(!wins(&[2.0; 9], &[2.0; 9], false));
    }

    #[test]
    fn other_work_is_what_is_not_ours() {
        let begin = Others::begin();
        std::thread::sleep(std::time::Duration::from_millis(150));
        assert!(begin.end().is_some_and(|cpus| (0.0..10_000.0).contains(&cpus)));
        assert_eq!(Others::begin().end(), None);
    }
}
