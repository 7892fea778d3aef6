//! A metrics registry with 100,000 counters, each of which every CPU keeps for itself.
//!
//! Threads count requests by route and status; a reader prints the busiest routes meanwhile. No counter is shared between
//! CPUs until it is read, so that counting costs the same with any number of threads.
//! `cargo run --release -p allotment --example metrics`

use allotment::counter::{Error, EventCounters};
use std::time::Instant;

const ROUTES: usize = 20_000;
const STATUSES: usize = 5;
const THREADS: usize = 4;
const REQUESTS: usize = 5_000_000;
/// Counters that lie in one piece of per-CPU memory: 8 bytes of each are 32 KiB at most.
const SHARD: usize = 1_000;

/// A counter for each route and class of status.
struct Registry {
    shards: Vec<EventCounters>,
}

impl Registry {
    fn new() -> Result<Self, Error> {
        let shards = (ROUTES * STATUSES).div_ceil(SHARD);
        Ok(Self { shards: (0..shards).map(|_| EventCounters::new(SHARD)).collect::<Result<_, _>>()? })
    }
    fn count(&self, route: usize, status: usize) {
        let number = route * STATUSES + status;
        self.shards[number / SHARD].add(number % SHARD, 1);
    }
    fn sum(&self, route: usize, status: usize) -> u64 {
        let number = route * STATUSES + status;
        self.shards[number / SHARD].sum(number % SHARD)
    }
    fn route(&self, route: usize) -> u64 {
        (0..STATUSES).map(|status| self.sum(route, status)).sum()
    }
}

fn main() -> Result<(), Error> {
    let registry = Registry::new()?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let registry = &registry;
            scope.spawn(move || {
                let mut random = thread as u64 + 1;
                for _ in 0..REQUESTS {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    // (Low routes are asked for more often.)
                    let (a, b) = ((random >> 33) as usize % ROUTES, (random >> 13) as usize % ROUTES);
                    registry.count(a.min(b), (random >> 60) as usize % STATUSES);
                }
            });
        }
    });
    let took = begin.elapsed();
    let mut busiest: Vec<(u64, usize)> = (0..ROUTES).map(|route| (registry.route(route), route)).collect();
    busiest.sort_unstable_by(|a, b| b.cmp(a));
    let all: u64 = busiest.iter().map(|(sum, _)| sum).sum();
    println!("{all} requests counted in {took:.2?}; the busiest:");
    for (sum, route) in &busiest[..3] {
        println!("  route {route:5} {sum}");
    }
    assert_eq!(all, (THREADS * REQUESTS) as u64);
    Ok(())
}
