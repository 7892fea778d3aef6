//! # Suite `malloc`: the C functions, in small
//!
//! Each run is a worker process with the contender preloaded; see [`crate::bench::load`] for what is measured. The suites
//! `blocks`, `large`, `threads` and `phases` go further into each.

use crate::bench::load::{
    Heirloom, Load, METRICS, Object, Team, calloc, cases, free, load, look, malloc, realloc, replace, run, size, touch,
    touch_all,
};
use crate::bench::suite::{Suite, TWICE_CPUS, Work, work};
use crate::bench::team::Random;
use allotment_engine::arch::PAGE;

/// The suite.
pub const SUITE: Suite = Suite::new("malloc", "the C functions, in small", |setup| cases(SUITE, WORKS, setup))
    .of_workers(|job| run(job, WORKS), METRICS);

/// The loads. Full runs take 0.1 to 0.5 s each.
const WORKS: &[Work<Load>] = &[
    work("pair-64", "malloc(64) and free, one after the other", &[1, 2, TWICE_CPUS], &[], load(16_000_000, pair)),
    work("batch-1000", "1,000 × malloc(64), then 1,000 × free in the same order", &[1, 2], &[], load(8_000_000, batch)),
    work(
        "mixed",
        "replace a random one of 4,000 objects of 16 to 8,192 bytes",
        &[1, 2, TWICE_CPUS],
        &[],
        load(2_000_000, mixed),
    ),
    work(
        "pass",
        "malloc in one thread, free in another, 64 to 512 bytes",
        &[2, TWICE_CPUS],
        &[],
        load(1_500_000, pass),
    ),
    work(
        "churn",
        "as a server: threads come, inherit 1,000 objects, replace them, go",
        &[1, 2, TWICE_CPUS],
        &[],
        load(2_000_000, churn),
    ),
    work("realloc-half", "grow a block from 4 KiB to 64 MiB by half, touching it", &[1], &[], load(200, grow_half)),
    work("realloc-4k", "grow a block from 4 KiB to 64 MiB by 4 KiB, touching it", &[1], &[], load(49_149, grow_page)),
    work(
        "large-64k",
        "malloc(64 KiB), touch one page, free",
        &[1, 2],
        &[],
        load(4_000_000, |_, _, ops| large(ops, 64 << 10, false)),
    ),
    work(
        "large-64k-all",
        "malloc(64 KiB), touch all pages, free",
        &[1, 2],
        &[],
        load(500_000, |_, _, ops| large(ops, 64 << 10, true)),
    ),
    work(
        "large-1m",
        "malloc(1 MiB), touch one page, free",
        &[1, 2],
        &[],
        load(2_000_000, |_, _, ops| large(ops, 1 << 20, false)),
    ),
    work(
        "large-1m-all",
        "malloc(1 MiB), touch all pages, free",
        &[1, 2],
        &[],
        load(10_000, |_, _, ops| large(ops, 1 << 20, true)),
    ),
    work(
        "large-32m",
        "malloc(32 MiB), touch one page, free",
        &[1],
        &[],
        load(10_000, |_, _, ops| large(ops, 32 << 20, false)),
    ),
    work(
        "large-32m-all",
        "malloc(32 MiB), touch all pages, free",
        &[1],
        &[],
        load(40, |_, _, ops| large(ops, 32 << 20, true)),
    ),
    work(
        "calloc-small",
        "replace a random one of 4,000 zeroed objects of 16 to 2,048 bytes",
        &[1, 2],
        &[],
        load(2_000_000, calloc_small),
    ),
    work("calloc-256k", "calloc(256 KiB), read every page, free", &[1], &[], load(10_000, calloc_large)),
];

fn pair(_: &Team, _: usize, ops: u64) -> u64 {
    for _ in 0..ops {
        let object = malloc(64);
        touch(object, 0);
        free(object);
    }
    ops
}

fn batch(_: &Team, _: usize, ops: u64) -> u64 {
    const BATCH: u64 = 1000;
    let mut objects = [std::ptr::null_mut(); BATCH as usize];
    let rounds = ops.div_ceil(BATCH);
    for _ in 0..rounds {
        for object in &mut objects {
            *object = malloc(64);
            touch(*object, 0);
        }
        for object in objects {
            free(object);
        }
    }
    rounds * BATCH
}

fn mixed(_: &Team, number: usize, ops: u64) -> u64 {
    replace(4000, number, ops, |random| size(random, 9))
}

fn calloc_small(_: &Team, number: usize, ops: u64) -> u64 {
    const LIVE: usize = 4000;
    let mut random = Random::new(number as u64);
    let mut objects: Vec<Object> = vec![std::ptr::null_mut(); LIVE];
    for _ in 0..ops {
        let at = random.below(LIVE);
        free(objects[at]);
        objects[at] = calloc(size(&mut random, 7));
        touch(objects[at], 0);
    }
    objects.into_iter().for_each(free);
    ops
}

fn calloc_large(_: &Team, _: usize, ops: u64) -> u64 {
    const BYTES: usize = 256 << 10;
    for _ in 0..ops {
        let object = calloc(BYTES);
        let sum: u64 = (0..BYTES).step_by(PAGE).map(|at| u64::from(look(object, at))).sum();
        assert_eq!(sum, 0, "calloc gave memory that is not zero");
        // The next one must be cleared again.
        touch(object, BYTES / 2);
        free(object);
    }
    ops
}

fn large(ops: u64, bytes: usize, all: bool) -> u64 {
    for _ in 0..ops {
        let object = malloc(bytes);
        touch_all(object, if all { bytes } else { 1 });
        free(object);
    }
    ops
}

/// Grows blocks to 64 MiB by `step` until `ops` reallocs are done.
fn grow(ops: u64, step: fn(usize) -> usize) -> u64 {
    const MOST: usize = 64 << 20;
    let mut done = 0;
    while done < ops {
        let mut bytes = PAGE;
        let mut object = malloc(bytes);
        touch(object, 0);
        while bytes < MOST && done < ops {
            let more = step(bytes).min(MOST);
            object = realloc(object, more);
            (bytes..more).step_by(PAGE).for_each(|at| touch(object, at));
            bytes = more;
            done += 1;
        }
        free(object);
    }
    done
}

fn grow_half(_: &Team, _: usize, ops: u64) -> u64 {
    // 24 steps reach 64 MiB: whole growths only, for the last steps cost most.
    grow(ops.next_multiple_of(24), |bytes| bytes + bytes / 2)
}

fn grow_page(_: &Team, _: usize, ops: u64) -> u64 {
    // 16,383 steps reach 64 MiB: whole growths here too, quick runs included.
    grow(ops.next_multiple_of(16_383), |bytes| bytes + PAGE)
}

/// Even threads make, odd ones free; both count half of each object.
fn pass(team: &Team, number: usize, ops: u64) -> u64 {
    let queue = &team.queues[number / 2];
    if number.is_multiple_of(2) {
        let mut random = Random::new(number as u64);
        let mut known = queue.seen_head();
        for _ in 0..ops {
            let object = malloc(64 + random.below(449));
            touch(object, 0);
            queue.put(object, &mut known);
        }
        ops
    } else {
        let mut known = queue.own_head();
        for _ in 0..ops {
            let object = queue.take(&mut known);
            touch(object, 1);
            free(object);
        }
        0
    }
}

fn churn(_: &Team, number: usize, ops: u64) -> u64 {
    const LIVE: usize = 1000;
    const LIFE: u64 = 10_000;
    let mut random = Random::new(number as u64);
    let mut heirloom = Heirloom((0..LIVE).map(|_| malloc(size(&mut random, 6))).collect());
    let generations = ops.div_ceil(LIFE);
    for generation in 0..generations {
        let seed = number.wrapping_mul(7919).wrapping_add(generation as usize);
        let born = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let mut heirloom = heirloom;
            let objects = &mut { &mut heirloom }.0;
            let mut random = Random::new(seed as u64);
            for _ in 0..LIFE {
                let at = random.below(LIVE);
                free(objects[at]);
                objects[at] = malloc(size(&mut random, 6));
                touch(objects[at], 0);
            }
            heirloom
        });
        heirloom = born.expect("a thread").join().expect("it ends");
    }
    heirloom.0.into_iter().for_each(free);
    generations * LIFE
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_load_does_what_it_was_asked() {
        crate::bench::load::tests::all_do(super::WORKS);
    }
}
