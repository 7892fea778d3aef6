//! # Suite `threads`: what goes from thread to thread
//!
//! Servers whose threads free each other's blocks, pipes between producers and consumers, threads that sleep between bursts,
//! storms of short-lived ones, and cache lines that two threads share because an allocator put their objects side by side.
//! Each run is a worker process with the contender preloaded; see [`crate::bench::load`].

use crate::bench::load::{Heirloom, Load, METRICS, Team, cases, free, load, malloc, replace, run, size, touch};
use crate::bench::suite::{CPUS, Suite, TWICE_CPUS, Work, work};
use crate::bench::team::Random;
use std::time::Duration;

/// The suite.
pub const SUITE: Suite = Suite::new("threads", "what goes from thread to thread", |setup| cases(SUITE, WORKS, setup))
    .of_workers(|job| run(job, WORKS), METRICS);

const WORKS: &[Work<Load>] = &[
    work(
        "mixed",
        "each thread replaces a random one of its 4,000 objects of 16 to 256 bytes",
        &[CPUS, TWICE_CPUS],
        &[],
        load(4_000_000, |_, number, ops| replace(4000, number, ops, |random| 16 + random.below(241))),
    ),
    work(
        "server",
        "replace a random one of 20,000 objects that all threads share, 16 to 1,024 bytes",
        &[CPUS, TWICE_CPUS],
        &[],
        load(1_000_000, server),
    ),
    work(
        "pipes",
        "half of the threads make, the others free: each from all; 64 to 512 bytes",
        &[2, TWICE_CPUS],
        &[],
        load(1_000_000, pipes),
    ),
    work(
        "gusts",
        "makers that run 10,000 objects ahead, then sleep a millisecond; time on CPUs",
        &[2],
        &[],
        load(500_000, gusts).sleeps(),
    ),
    work(
        "bursts",
        "5,000 objects of 16 to 1,024 bytes come and go, then 2 ms of sleep; time on CPUs",
        &[CPUS, TWICE_CPUS],
        &[],
        load(500_000, bursts).sleeps(),
    ),
    work(
        "storm",
        "threads of 100 objects each, half of which their parents free",
        &[1, CPUS],
        &[],
        load(200_000, storm),
    ),
    work(
        "line-own",
        "malloc(8), write it 500 times, free: each thread its own",
        &[1, CPUS],
        &[],
        load(50_000, line_own),
    ),
    work(
        "line-given",
        "the same, beginning with objects that one thread made for all",
        &[1, CPUS],
        &[],
        load(50_000, line_given),
    ),
];

fn server(team: &Team, number: usize, ops: u64) -> u64 {
    let mut random = Random::new(number as u64);
    for _ in 0..ops {
        let object = malloc(size(&mut random, 6));
        touch(object, 0);
        free(team.exchange(random.below(team.shared.len()), object));
    }
    ops
}

fn pipes(team: &Team, number: usize, ops: u64) -> u64 {
    let half = team.threads / 2;
    let ops = ops.next_multiple_of(half as u64);
    if number < half {
        let mut random = Random::new(number as u64);
        let mut known: Vec<usize> = (0..half).map(|to| team.queues[number * half + to].seen_head()).collect();
        for at in 0..ops {
            let to = at as usize % half;
            let object = malloc(64 + random.below(449));
            touch(object, 0);
            team.queues[number * half + to].put(object, &mut known[to]);
        }
        ops
    } else {
        let to = number - half;
        let mut known: Vec<usize> = (0..half).map(|from| team.queues[from * half + to].own_head()).collect();
        for at in 0..ops {
            let from = at as usize % half;
            let object = team.queues[from * half + to].take(&mut known[from]);
            touch(object, 1);
            free(object);
        }
        0
    }
}

fn gusts(team: &Team, number: usize, ops: u64) -> u64 {
    const GUST: u64 = 1000;
    let queue = &team.queues[0];
    if number == 0 {
        let mut random = Random::new(0);
        let mut known = queue.seen_head();
        for at in 0..ops {
            let object = malloc(64 + random.below(449));
            touch(object, 0);
            queue.put(object, &mut known);
            if at % GUST == GUST - 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        ops
    } else {
        let mut known = queue.own_head();
        for at in 0..ops {
            if at % GUST == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            free(queue.take(&mut known));
        }
        0
    }
}

fn bursts(_: &Team, number: usize, ops: u64) -> u64 {
    const BURST: u64 = 5000;
    let mut random = Random::new(number as u64);
    let mut objects = Vec::with_capacity(BURST as usize);
    let rounds = ops.div_ceil(BURST);
    for _ in 0..rounds {
        for _ in 0..BURST {
            let object = malloc(size(&mut random, 6));
            touch(object, 0);
            objects.push(object);
        }
        random.shuffle(&mut objects);
        objects.drain(..).for_each(free);
        std::thread::sleep(Duration::from_millis(2));
    }
    rounds * BURST
}

fn storm(_: &Team, number: usize, ops: u64) -> u64 {
    const EACH: u64 = 100;
    let rounds = ops.div_ceil(EACH);
    for round in 0..rounds {
        let born = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let mut random = Random::new(round ^ number as u64);
            let mut objects: Vec<_> = (0..EACH).map(|_| malloc(size(&mut random, 6))).collect();
            objects.iter().for_each(|&object| touch(object, 0));
            objects.drain(EACH as usize / 2..).for_each(free);
            Heirloom(objects)
        });
        born.expect("a thread").join().expect("it ends").0.into_iter().for_each(free);
    }
    rounds * EACH
}

const WRITES: usize = 500;

fn line_own(_: &Team, _: usize, ops: u64) -> u64 {
    for _ in 0..ops {
        let object = malloc(8);
        (0..WRITES).for_each(|at| touch(object, at % 8));
        free(object);
    }
    ops
}

fn line_given(team: &Team, number: usize, ops: u64) -> u64 {
    if number == 0 {
        (0..team.threads).for_each(|other| free(team.exchange(other, malloc(8))));
    }
    team.meeting.wait();
    let mut object = team.exchange(number, std::ptr::null_mut());
    for _ in 0..ops {
        (0..WRITES).for_each(|at| touch(object, at % 8));
        free(object);
        object = malloc(8);
    }
    free(object);
    // Nobody begins again while another still takes.
    team.meeting.wait();
    ops
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_load_does_what_it_was_asked() {
        crate::bench::load::tests::all_do(super::WORKS);
    }
}
