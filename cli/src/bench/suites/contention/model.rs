//! # The model: CPUs that queue for a line
//!
//! ```text
//!  n CPUs ──► think (own work) ──► station: a line or a lock, one CPU at a time ──┐
//!    ▲                                                                            │
//!    └────────────────────────────────────────────────────────────────────────────┘
//! ```
//! A cache line that all write is a server: whoever wants it waits for those before, then the line travels. That is the
//! machine repairman of queueing theory, solved by mean value analysis (exact for service times that vary as exponential ones):
//! an arriving CPU finds the queue that there would be without it. What it leaves out: that a CPU which has the line keeps
//! it for a while, that near CPUs win, that waiting CPUs slow the line down, frequency and hyperthreads.
//!
//! Units: whatever the caller's are, all the same. Cost: a few additions for each CPU and station.

/// A line that CPUs write in turn.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// An operation on it by the CPU that has it.
    pub local: f64,
    /// What it takes to get it from another.
    pub transfer: f64,
}

impl Line {
    /// An operation, where any of `cpus` had it last.
    pub fn service(self, cpus: usize) -> f64 {
        self.transfer.mul_add(1.0 - 1.0 / cpus.max(1) as f64, self.local)
    }
    /// A visit with its wait, by one of so many CPUs that work for `think` between two.
    pub fn visit(self, cpus: usize, think: f64) -> f64 {
        cycle(cpus, think, &[self.service(cpus)]) - think
    }
}

/// The time of one round of each of `cpus`: its own work, and a visit to each station with the wait there.
pub fn cycle(cpus: usize, think: f64, stations: &[f64]) -> f64 {
    let mut queues = vec![0.0; stations.len()];
    let mut round = think;
    for present in 1..=cpus.max(1) {
        let visits: Vec<f64> = stations.iter().zip(&queues).map(|(service, queue)| service * (1.0 + queue)).collect();
        round = think + visits.iter().sum::<f64>();
        let rate = present as f64 / round;
        queues.iter_mut().zip(&visits).for_each(|(queue, visit)| *queue = rate * visit);
    }
    round
}

/// How long so many CPUs take for work that one does in `alone + shared`, of which `shared` is at so many stations.
pub fn elapsed(cpus: usize, alone: f64, shared: f64, stations: usize) -> f64 {
    cycle(cpus, alone, &vec![shared / stations as f64; stations]) / cpus as f64
}

/// The share of `whole` that a function which rises with it gives `wanted` for.
pub fn solve(whole: f64, wanted: f64, of: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, whole);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        *(if of(middle) < wanted { &mut low } else { &mut high }) = middle;
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line = Line { local: 5.0, transfer: 70.0 };

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * b.abs()
    }

    #[test]
    fn one_cpu_waits_for_nobody() {
        for think in [0.0, 1.0, 1e6] {
            assert!(near(LINE.visit(1, think), LINE.local));
        }
        assert!(near(elapsed(1, 3.0, 4.0, 5), 7.0));
    }

    #[test]
    fn a_line_gives_no_more_than_one_visit_in_its_service_time() {
        // Nothing else to do: all wait for each other.
        assert!(near(LINE.visit(448, 0.0), 448.0 * LINE.service(448)));
        // Much else to do, and yet too many.
        let (cpus, think) = (448, 1000.0);
        let rate = cpus as f64 / (think + LINE.visit(cpus, think));
        assert!(near(rate, 1.0 / LINE.service(cpus)), "{rate}");
        // Too much else to do for anybody to meet.
        assert!(LINE.visit(2, 1e9) < LINE.service(2) * 1.001);
        assert!(near(elapsed(1000, 1.0, 4.0, 1), 4.0) && near(elapsed(1000, 0.0, 4.0, 4), 1.0 * 1003.0 / 1000.0));
    }

    #[test]
    fn more_cpus_wait_longer_and_more_thought_waits_less() {
        for think in [0.0, 10.0, 1000.0, 1e5] {
            let waits: Vec<f64> = (1..200).map(|cpus| LINE.visit(cpus, think)).collect();
            assert!(waits.windows(2).all(|two| two[0] <= two[1]), "{think}");
            assert!(LINE.visit(64, think) >= LINE.visit(64, think + 100.0));
        }
        let times: Vec<f64> = (1..200).map(|cpus| elapsed(cpus, 4.0, 4.0, 1)).collect();
        assert!(times.windows(2).all(|two| two[0] >= two[1]) && times[198] >= 4.0);
    }

    #[test]
    fn a_share_is_found() {
        let share = solve(8.0, 4.5, |share| elapsed(4, 8.0 - share, share, 1));
        assert!(near(elapsed(4, 8.0 - share, share, 1), 4.5), "{share}");
    }
}
