//! # Suite `large`: blocks from 32 KiB up
//!
//! What comes and goes in random sizes, touched as programs do and untouched: here allocators differ by whether freed pages
//! are found again, so page faults and peak memory stand beside the time. Each run is a worker process with the contender
//! preloaded; see [`crate::bench::load`].

use crate::bench::load::{Load, METRICS, Team, cases, free, load, malloc, replace, replace_with, run, touch_all};
use crate::bench::suite::{Suite, Work, work};
use crate::bench::team::Random;

/// The suite.
pub const SUITE: Suite =
    Suite::new("large", "blocks from 32 KiB up, touched and untouched", |setup| cases(SUITE, WORKS, setup))
        .of_workers(|job| run(job, WORKS), METRICS);

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const WORKS: &[Work<Load>] = &[
    work(
        "pair-64k",
        "malloc(64 KiB) and free, untouched",
        &[1, 2],
        &[],
        load(4_000_000, |_, _, ops| pairs(ops, 64 * KIB)),
    ),
    work("pair-1m", "the same with 1 MiB", &[1, 2], &[], load(2_000_000, |_, _, ops| pairs(ops, MIB))),
    work(
        "random-500k",
        "replace a random one of 256 of 32 to 500 KiB, untouched",
        &[1, 2],
        &[],
        load(500_000, |_, number, ops| replace(256, number, ops, |random| between(random, 32 * KIB, 500 * KIB))),
    ),
    work(
        "touched-66k",
        "of 2,000 of 16 to 66 KiB, every page written",
        &[1],
        &[],
        load(200_000, |_, number, ops| {
            replace_with(2000, number, ops, |random| between(random, 16 * KIB, 66 * KIB), touch_all)
        }),
    ),
    work(
        "touched-500k",
        "of 256 of 32 to 500 KiB",
        &[1, 2],
        &[],
        load(60_000, |_, number, ops| {
            replace_with(256, number, ops, |random| between(random, 32 * KIB, 500 * KIB), touch_all)
        }),
    ),
    work(
        "touched-25m",
        "of 20 of 1 to 25 MiB",
        &[1],
        &[],
        load(1000, |_, number, ops| replace_with(20, number, ops, |random| between(random, MIB, 25 * MIB), touch_all)),
    ),
    work(
        "touched-any",
        "of 200 of 32 KiB to 16 MiB, every doubling equally often",
        &[1],
        &[],
        load(2000, |_, number, ops| {
            replace_with(
                200,
                number,
                ops,
                |random| {
                    let base = (32 * KIB) << random.below(9);
                    between(random, base, 2 * base)
                },
                touch_all,
            )
        }),
    ),
    work("pass-1m", "malloc(1 MiB) and write it in one thread, free in another", &[2], &[], load(2000, pass)),
    work(
        "waves",
        "160 MiB in blocks of 32 to 500 KiB, touched, nine tenths of them freed, again",
        &[1],
        &[],
        load(6000, waves),
    ),
];

fn between(random: &mut Random, least: usize, most: usize) -> usize {
    least + random.below(most - least)
}

fn pairs(ops: u64, bytes: usize) -> u64 {
    for _ in 0..ops {
        free(malloc(bytes));
    }
    ops
}

fn pass(team: &Team, number: usize, ops: u64) -> u64 {
    let queue = &team.queues[number / 2];
    if number.is_multiple_of(2) {
        let mut known = queue.seen_head();
        for _ in 0..ops {
            let object = malloc(MIB);
            touch_all(object, MIB);
            // At most 16 under way.
            queue.put_within(object, &mut known, 16);
        }
        ops
    } else {
        let mut known = queue.own_head();
        for _ in 0..ops {
            free(queue.take(&mut known));
        }
        0
    }
}

fn waves(_: &Team, number: usize, ops: u64) -> u64 {
    let mut random = Random::new(number as u64);
    let (mut held, mut done) = (Vec::with_capacity(1000), 0);
    while done < ops {
        let mut bytes = 0;
        while bytes < 160 * MIB && done < ops {
            let size = between(&mut random, 32 * KIB, 500 * KIB);
            let object = malloc(size);
            touch_all(object, size);
            held.push(object);
            (bytes, done) = (bytes + size, done + 1);
        }
        random.shuffle(&mut held);
        held.drain(held.len() / 10..).for_each(free);
    }
    held.into_iter().for_each(free);
    done
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_load_does_what_it_was_asked() {
        crate::bench::load::tests::all_do(super::WORKS);
    }
}
