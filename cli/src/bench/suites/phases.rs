//! # Suite `phases`: what a program's history leaves
//!
//! Programs change what they allocate. What they hold then lies scattered among what they have freed, and how much of that an
//! allocator can use again shows in the peak. Each run is a worker process with the contender preloaded; see
//! [`crate::bench::load`].

use crate::bench::load::{
    Load, METRICS, Object, Team, cases, free, load, malloc, realloc, run, size, touch, touch_all,
};
use crate::bench::suite::{Suite, Work, work};
use crate::bench::team::Random;

/// The suite.
pub const SUITE: Suite =
    Suite::new("phases", "what a program's history leaves: time and peak", |setup| cases(SUITE, WORKS, setup))
        .of_workers(|job| run(job, WORKS), METRICS);

const WORKS: &[Work<Load>] = &[
    work(
        "sizes",
        "10,000 to 80,000 objects of each of ten sizes in turn, seven of eight freed at random",
        &[1],
        &[],
        load(2_000_000, sizes),
    ),
    work(
        "saw",
        "mixed objects of 16 B to 32 KiB: the heap grows to 40,000 of them and shrinks to a tenth",
        &[1],
        &[],
        load(1_000_000, saw),
    ),
    work(
        "survivors",
        "one of 64 objects lives a hundred times longer than the others",
        &[1],
        &[],
        load(2_000_000, survivors),
    ),
    work(
        "strings",
        "replace a random one of 2,000 strings, each grown by half from 32 bytes to 64 KiB at most",
        &[1],
        &[],
        load(1_000_000, strings),
    ),
];

/// Frees all but one of `keep` at random.
fn thin(random: &mut Random, objects: &mut Vec<Object>, keep: usize) {
    random.shuffle(objects);
    let left = objects.len() / keep;
    objects.drain(left..).for_each(free);
}

fn sizes(_: &Team, number: usize, ops: u64) -> u64 {
    let mut random = Random::new(number as u64);
    let (mut held, mut done) = (Vec::new(), 0);
    while done < ops {
        let mut kept: Vec<Object> = Vec::new();
        for phase in 0..10 {
            let bytes = 24 << phase;
            let mut objects: Vec<Object> = Vec::new();
            for _ in 0..(80_000 >> (phase / 2)).max(10_000) {
                let object = malloc(bytes);
                touch_all(object, bytes);
                objects.push(object);
                done += 1;
            }
            thin(&mut random, &mut objects, 8);
            kept.append(&mut objects);
            if done >= ops {
                break;
            }
        }
        held.drain(..).for_each(free);
        held = kept;
    }
    held.into_iter().for_each(free);
    done
}

fn saw(_: &Team, number: usize, ops: u64) -> u64 {
    let mut random = Random::new(number as u64);
    let (mut held, mut done) = (Vec::new(), 0);
    while done < ops {
        while held.len() < 40_000 && done < ops {
            let bytes = size(&mut random, 11);
            let object = malloc(bytes);
            touch_all(object, bytes);
            held.push(object);
            done += 1;
        }
        thin(&mut random, &mut held, 10);
    }
    held.into_iter().for_each(free);
    done
}

fn survivors(_: &Team, number: usize, ops: u64) -> u64 {
    let mut random = Random::new(number as u64);
    let mut short: Vec<Object> = vec![std::ptr::null_mut(); 1000];
    let mut long: Vec<Object> = vec![std::ptr::null_mut(); 20_000];
    for at in 0..ops as usize {
        let objects = if at % 64 == 0 { &mut long } else { &mut short };
        let place = random.below(objects.len());
        free(objects[place]);
        objects[place] = malloc(size(&mut random, 7));
        touch(objects[place], 0);
    }
    short.into_iter().chain(long).for_each(free);
    ops
}

fn strings(_: &Team, number: usize, ops: u64) -> u64 {
    let mut random = Random::new(number as u64);
    let mut strings: Vec<(Object, usize)> = vec![(std::ptr::null_mut(), 0); 2000];
    for _ in 0..ops {
        let (object, bytes) = &mut strings[random.below(2000)];
        if *bytes == 0 || *bytes > 64 << 10 {
            free(*object);
            (*object, *bytes) = (malloc(32), 32);
        } else {
            *bytes += *bytes / 2;
            *object = realloc(*object, *bytes);
        }
        touch(*object, *bytes - 1);
    }
    strings.into_iter().for_each(|(object, _)| free(object));
    ops
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_load_does_what_it_was_asked() {
        crate::bench::load::tests::all_do(super::WORKS);
    }
}
