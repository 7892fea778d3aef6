//! The counters as a Rust program uses them, without Allotment as its allocator.
#![allow(clippy::unwrap_used, missing_docs)]

use allotment::counter::{
    Comparison, Error, EventCounter, EventCounters, LevelCounter, Mode, QuotaCounter, default_threshold, mode,
};
use std::sync::OnceLock;
use std::thread;

const THREADS: usize = 4;
const ROUNDS: usize = 100_000;

#[test]
fn a_static_counter_is_everybodys() {
    static REQUESTS: OnceLock<EventCounter> = OnceLock::new();
    let counter = || REQUESTS.get_or_init(|| EventCounter::new().unwrap());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..ROUNDS).for_each(|_| counter().add(3)));
        }
    });
    assert_eq!(counter().sum(), (3 * THREADS * ROUNDS) as u64);
    assert!(matches!(mode(), Mode::Sequences | Mode::Fallback));
}

#[test]
fn many_events_side_by_side() {
    let counters = EventCounters::new(100).unwrap();
    assert_eq!((counters.len(), counters.is_empty()), (100, false));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..ROUNDS).for_each(|round| counters.add(round % 100, 1)));
        }
    });
    assert!((0..100).all(|number| counters.sum(number) == (THREADS * ROUNDS / 100) as u64));
    assert!(EventCounters::new(0).unwrap().is_empty());
    assert_eq!(EventCounters::new(usize::MAX).err(), Some(Error::TooLarge));
    assert_eq!(EventCounters::new(1 << 20).err(), Some(Error::TooLarge));
    assert!(!Error::TooLarge.to_string().is_empty());
}

#[test]
#[should_panic(expected = "no such counter")]
fn there_is_no_counter_beyond_the_last() {
    EventCounters::new(2).unwrap().add(2, 1);
}

/// A counter's bytes are the next one's: it begins at 0 wherever its owner counted.
#[test]
fn a_dropped_counter_leaves_nothing_to_the_next() {
    for _ in 0..200 {
        let (event, level, quota) =
            (EventCounter::new().unwrap(), LevelCounter::new().unwrap(), QuotaCounter::new(1000).unwrap());
        assert_eq!((event.sum(), level.exact(), quota.used()), (0, 0, 0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    event.add(7);
                    level.add(-3);
                    level.fold();
                    assert!(quota.try_add(9));
                });
            }
        });
        assert_eq!((event.sum(), level.exact(), quota.used()), (28, -12, 36));
    }
}

#[test]
fn a_level_goes_up_and_down() {
    let level = LevelCounter::new().unwrap();
    assert_eq!(level.threshold(), default_threshold());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                (0..ROUNDS).for_each(|_| level.add(2));
                (0..ROUNDS).for_each(|_| level.add(-1));
                level.add(1 << 40);
            });
        }
    });
    let expected = (THREADS * ROUNDS) as i64 + ((THREADS as i64) << 40);
    assert_eq!(level.exact(), expected);
    assert!(level.approximate().abs_diff(expected) <= level.error_bound());
    assert_eq!(level.compare(0), Comparison::Greater);
    assert!(level.compare_exact(expected).is_eq() && level.compare_exact(expected + 1).is_lt());
    level.fold();
    assert_eq!(level.approximate(), expected);
    level.set_threshold(0);
    assert_eq!(level.threshold(), 1);
}

#[test]
fn a_quota_is_used_to_the_last() {
    let quota = QuotaCounter::with_batch(10_000, 10).unwrap();
    let had: u64 = thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(|| (0..ROUNDS).filter(|_| quota.try_add(1)).count() as u64));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((had, quota.used(), quota.charged(), quota.limit()), (10_000, 10_000, 10_000, 10_000));
    assert!(quota.sub(5) && quota.try_add(5) && !quota.try_add(1));
    quota.set_limit(9_000);
    assert!(quota.sub(1_000) && !quota.try_add(1) && quota.sub(1) && quota.try_add(1));
    assert!(!quota.sub(10_000), "more than is used");
}
