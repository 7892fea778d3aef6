//! # Suite `blocks`: small blocks, one thread
//!
//! What fast paths, slab filling and caches cost apart: pairs, batches of every depth, random replacement of few and many.
//! Each run is a worker process with the contender preloaded; see [`crate::bench::load`].

use crate::bench::load::{Load, METRICS, Team, calloc, cases, free, load, look, malloc, realloc, replace, run, touch};
use crate::bench::suite::{Suite, Work, work};
use crate::bench::team::Random;

/// The suite.
pub const SUITE: Suite = Suite::new("blocks", "small blocks, one thread", |setup| cases(SUITE, WORKS, setup))
    .of_workers(|job| run(job, WORKS), METRICS);

const ONE: &[usize] = &[1];

const WORKS: &[Work<Load>] = &[
    work("pair-16", "malloc(16), write, free", ONE, &[], load(16_000_000, |_, _, ops| pairs(ops, |_| 16))),
    work(
        "pair-1k",
        "256 B to 1 KiB, write, free",
        ONE,
        &[],
        load(16_000_000, |_, _, ops| pairs(ops, |at| 256 << (at % 3))),
    ),
    work("chain-16", "each size depends on what the last block held", ONE, &[], load(16_000_000, chain)),
    work(
        "batch-32",
        "1,000 × malloc(32), then 1,000 × free in the same order",
        ONE,
        &[],
        load(8_000_000, |_, _, ops| batch(ops, 1000, 32)),
    ),
    work("batch-128", "the same with 128 bytes", ONE, &[], load(8_000_000, |_, _, ops| batch(ops, 1000, 128))),
    work("batch-512", "the same with 512 bytes", ONE, &[], load(8_000_000, |_, _, ops| batch(ops, 1000, 512))),
    work(
        "many-32",
        "100,000 × malloc(32), then 100,000 × free in the same order",
        ONE,
        &[],
        load(8_000_000, |_, _, ops| batch(ops, 100_000, 32)),
    ),
    work("many-512", "the same with 512 bytes", ONE, &[], load(3_000_000, |_, _, ops| batch(ops, 100_000, 512))),
    work(
        "replace-512",
        "replace a random one of 4,096 objects of 16 to 512 bytes",
        ONE,
        &[],
        load(4_000_000, |_, number, ops| replace(4096, number, ops, |random| 16 + random.below(497))),
    ),
    work(
        "replace-8k",
        "of 4,096 of 16 to 8,192 bytes",
        ONE,
        &[],
        load(2_000_000, |_, number, ops| replace(4096, number, ops, |random| 16 + random.below(8177))),
    ),
    work(
        "replace-many",
        "of 262,144 of 16 to 256 bytes",
        ONE,
        &[],
        load(4_000_000, |_, number, ops| replace(1 << 18, number, ops, |random| 16 + random.below(241))),
    ),
    work(
        "after-others",
        "replace-512 after 1,000 objects of each of 64 other sizes came and went",
        ONE,
        &[],
        load(4_000_000, after_others),
    ),
    work("calloc-64", "calloc(64), free", ONE, &[], load(10_000_000, zeroed)),
    work("realloc-double", "grow a block from 16 bytes to 64 KiB by doubling", ONE, &[], load(1_000_000, doubling)),
];

fn pairs(ops: u64, size: impl Fn(u64) -> usize) -> u64 {
    for at in 0..ops {
        let object = malloc(size(at));
        touch(object, 0);
        free(object);
    }
    ops
}

fn chain(_: &Team, _: usize, ops: u64) -> u64 {
    let mut held = 0;
    for _ in 0..ops {
        let object = malloc(16 + usize::from(held & 2));
        touch(object, 0);
        held = look(object, 0);
        free(object);
    }
    ops
}

fn batch(ops: u64, deep: usize, bytes: usize) -> u64 {
    let mut objects = vec![std::ptr::null_mut(); deep];
    let rounds = ops.div_ceil(deep as u64);
    for _ in 0..rounds {
        for object in &mut objects {
            *object = malloc(bytes);
        }
        objects.iter().for_each(|&object| free(object));
    }
    rounds * deep as u64
}

fn after_others(_: &Team, number: usize, ops: u64) -> u64 {
    for size in 0..64 {
        batch(2000, 1000, 600 + size * 100);
    }
    replace(4096, number, ops, |random| 16 + random.below(497))
}

fn zeroed(_: &Team, _: usize, ops: u64) -> u64 {
    for _ in 0..ops {
        free(calloc(64));
    }
    ops
}

fn doubling(_: &Team, number: usize, ops: u64) -> u64 {
    // 13 sizes, the first by malloc.
    let rounds = ops.div_ceil(13);
    let mut random = Random::new(number as u64);
    for _ in 0..rounds {
        let mut object = malloc(16);
        for doubled in 1..13 {
            object = realloc(object, 16 << doubled);
            touch(object, random.below(16));
        }
        free(object);
    }
    rounds * 13
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_load_does_what_it_was_asked() {
        crate::bench::load::tests::all_do(super::WORKS);
    }
}
