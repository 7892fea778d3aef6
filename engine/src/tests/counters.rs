//! Level and quota counters in every mode, against naive ones.
#![allow(clippy::unwrap_used, unsafe_code, missing_docs)]

extern crate std;
use super::units::{Fixture, MODES, between, stand};
use crate::arch::atomic::Ordering::{Relaxed, SeqCst};
use crate::counter::level::{BYTES, BYTES_NODES, default_threshold};
use crate::counter::quota::{LIMIT_MAX, default_batch};
use crate::counter::{Comparison, Level, Quota};
use crate::stat::Mode;
use crate::tests::threads;
use core::cell::Cell;
use core::cmp::Ordering;
use proptest::prelude::*;
use std::rc::Rc;
use std::sync::atomic::AtomicI64;
use std::vec::Vec;

fn level(fixture: &Fixture, threshold: u32, nodes: u32) -> Level {
    // SAFETY: an allocation of its own, in these units.
    unsafe { Level::new(fixture.alloc(BYTES_NODES), threshold, nodes) }
}
fn quota(fixture: &Fixture, limit: u64, batch: u64) -> Quota {
    // SAFETY: an allocation of its own, in these units.
    unsafe { Quota::new(fixture.alloc(8), limit, batch) }
}

/// Moves among `cpus` fake CPUs, in ways that make threads meet.
fn wander(step: usize, number: usize, cpus: usize) {
    let index = (step / 7 + number * 3) % cpus;
    stand(index, ((index * 5 + step / 50) % cpus) as u32);
}

fn fixtures() -> impl Iterator<Item = Fixture> {
    let sizes = [(Mode::Sequences, 4096), (Mode::Fallback, 4096), (Mode::Simulated, 64), (Mode::Simulated, 448)];
    assert!(sizes.iter().all(|size| MODES.contains(&size.0)));
    sizes.into_iter().map(|(mode, indices)| Fixture::new(mode, indices)).chain([Fixture::by_cpu()]).flatten()
}

const ROUNDS: usize = 20_000;

#[test]
fn a_level_loses_nothing_and_keeps_its_bound() {
    for fixture in fixtures() {
        for (threshold, nodes) in [(1, 1), (5, 2), (125, 1)] {
            let counter = level(&fixture, threshold, nodes);
            let (counter, fixture) = (&counter, &fixture);
            let cpus = fixture.units.indices().min(448);
            let deltas = [1_i64, -1, 3, 1, 300, -2, 7, -300, 1, 1];
            threads::scope(|scope| {
                for number in 0..4 {
                    scope.spawn(move || {
                        for step in 0..ROUNDS {
                            wander(step, number, cpus);
                            counter.add(&fixture.units, deltas[(step + number) % 10]);
                            if number == 0 && step % 100 == 0 {
                                counter.fold(&fixture.units);
                            }
                        }
                    });
                }
            });
            let expected: i64 = (0..4).flat_map(|n| (0..ROUNDS).map(move |step| deltas[(step + n) % 10])).sum();
            let units = &fixture.units;
            assert_eq!(counter.exact(units), expected);
            let bound = counter.bound(units);
            assert_eq!(bound, u64::from(threshold) * (units.high() as u64 + 1) * 2, "folded, none in flight");
            assert!((counter.approximate() - expected).unsigned_abs() <= bound);
            assert_eq!(counter.compare_exact(units, expected), Ordering::Equal);
            assert_eq!(counter.compare_exact(units, expected + 1), Ordering::Less);
            assert_eq!(counter.compare(units, expected + 2 * bound as i64 + 1), Comparison::Less);
            assert_eq!(counter.compare(units, expected - 2 * bound as i64 - 1), Comparison::Greater);
            // Folded with nobody counting, the total is the value.
            counter.fold(units);
            assert_eq!(counter.approximate(), expected);
            assert!(!counter.fold(units), "nothing is left to fold");
            if nodes == 2 && units.mode() == Mode::Simulated {
                let nodes = counter.node(units, 0) + counter.node(units, 1);
                assert!((nodes - expected).unsigned_abs() <= bound);
            }
        }
    }
}

#[test]
fn a_comparison_that_decides_is_right() {
    for fixture in fixtures() {
        let (fixture, counter) = (&fixture, &level(&fixture, 3, 1));
        let cpus = fixture.units.indices().min(448);
        // The counter only grows: it lies between these at every moment.
        let (ended, begun) = (&AtomicI64::new(0), &AtomicI64::new(0));
        let decided = &AtomicI64::new(0);
        threads::scope(|scope| {
            for number in 0..3 {
                scope.spawn(move || {
                    for step in 0..ROUNDS {
                        wander(step, number, cpus);
                        begun.fetch_add(1, SeqCst);
                        counter.add(&fixture.units, 1);
                        ended.fetch_add(1, SeqCst);
                    }
                });
            }
            scope.spawn(move || {
                for round in 0..ROUNDS as i64 {
                    let before = ended.load(SeqCst);
                    let bound = counter.bound(&fixture.units) as i64;
                    let value = before + round % (4 * bound + 3) - 2 * bound - 1;
                    let told = counter.compare(&fixture.units, value);
                    let after = begun.load(SeqCst);
                    match told {
                        Comparison::Less => assert!(before < value, "{before} < {value}"),
                        Comparison::Greater => assert!(after > value, "{after} > {value}"),
                        Comparison::CannotTell => continue,
                    }
                    decided.fetch_add(1, SeqCst);
                    if round % 50 == 0 {
                        counter.fold(&fixture.units);
                    }
                }
            });
        });
        assert!(decided.load(SeqCst) > 0);
    }
}

#[test]
fn the_bound_is_reached_at_its_edge() {
    let fixture = Fixture::new(Mode::Simulated, 448).unwrap();
    let counter = level(&fixture, 10, 1);
    for index in 0..448 {
        stand(index, index as u32);
        for _ in 0..10 {
            counter.add(&fixture.units, 1);
        }
    }
    assert_eq!(counter.approximate(), 0, "nothing spilled at the threshold");
    assert_eq!(counter.exact(&fixture.units), 4480);
    let bound = counter.bound(&fixture.units);
    assert_eq!(bound, 4490, "448 indices and nobody's");
    assert_eq!(counter.compare(&fixture.units, 4490), Comparison::CannotTell);
    assert_eq!(counter.compare(&fixture.units, 4491), Comparison::Less);
    assert_eq!(counter.compare(&fixture.units, -4490), Comparison::CannotTell);
    assert_eq!(counter.compare(&fixture.units, -4491), Comparison::Greater);
    counter.add(&fixture.units, 1);
    assert_eq!(counter.approximate(), 15, "a spill takes 1.5 thresholds");
    counter.set_threshold(20);
    assert_eq!(counter.bound(&fixture.units), 449 * 20);
    counter.set_threshold(3);
    assert_eq!(counter.bound(&fixture.units), 449 * 20, "what idle indices hold, they hold");
    for index in 0..448 {
        stand(index, index as u32);
        counter.add(&fixture.units, 1);
    }
    assert_eq!(counter.exact(&fixture.units), 4480 + 449);
}

#[test]
fn a_delta_beyond_the_threshold_goes_to_the_total_whole() {
    for fixture in fixtures() {
        let (counter, units) = (level(&fixture, 10, 1), &fixture.units);
        stand(0, 0);
        counter.add(units, (1 << 32) + 1);
        assert_eq!(counter.approximate(), (1 << 32) + 1, "more than a byte, which looks like 1");
        counter.add(units, 10);
        assert_eq!(counter.approximate(), (1 << 32) + 1, "the byte has room for it");
        counter.add(units, 11);
        assert_eq!(counter.approximate(), (1 << 32) + 12);
        assert_eq!(counter.exact(units), (1 << 32) + 22);
    }
}

#[test]
fn thresholds_are_of_a_byte() {
    let fixture = Fixture::new(Mode::Simulated, 4).unwrap();
    assert_eq!([0, 1, 60, 125, 126].map(|threshold| level(&fixture, threshold, 1).threshold()), [1, 1, 60, 125, 125]);
    let counter = level(&fixture, 60, 1);
    counter.set_threshold(7);
    assert_eq!(counter.threshold(), 7);
    counter.add(&fixture.units, 8);
    assert_eq!(counter.approximate(), 8, "beyond the new one");
    counter.set_threshold(0);
    assert_eq!(counter.threshold(), 1);
}

#[test]
fn what_a_node_has_spilled_shows_there() {
    let fixture = Fixture::on_nodes(4, 2);
    let (counter, units) = (level(&fixture, 10, 2), &fixture.units);
    stand(0, 1);
    counter.add(units, 100);
    assert_eq!([0, 1].map(|node| counter.node(units, node)), [0, 100]);
    assert_eq!(units.high(), 2, "what is written in the copy of index 1 is cleared when it is freed");
}

#[test]
fn on_one_node_there_is_nothing_behind_the_two_bytes() {
    let fixture = Fixture::new(Mode::Simulated, 4).unwrap();
    let units = &fixture.units;
    // SAFETY: an allocation of its own, in these units.
    let counter = unsafe { Level::new(fixture.alloc(BYTES), 10, 1) };
    let beside = fixture.alloc(8);
    assert!(beside.address() - counter.handle().address() < BYTES_NODES);
    stand(0, 0);
    counter.add(units, 100);
    assert_eq!(counter.node(units, 0), 100, "the total");
    // SAFETY: an allocation of its own.
    assert_eq!(unsafe { units.sum(beside) }, 0);
}

#[test]
fn a_spill_in_flight_widens_the_bound() {
    let fixture = Rc::new(Fixture::new(Mode::Simulated, 4).unwrap());
    let counter = Rc::new(level(&fixture, 10, 1));
    stand(0, 0);
    counter.add(&fixture.units, 10);
    let seen = Rc::new(Cell::new((0, 0)));
    // It has found that there is no room, and is about to commit.
    let look = (Rc::clone(&fixture), Rc::clone(&counter), Rc::clone(&seen));
    between(1, move || look.2.set((look.1.bound(&look.0.units), look.1.exact(&look.0.units))));
    counter.add(&fixture.units, 1);
    assert_eq!(seen.get(), (2 * 10 + 15, 10));
    assert_eq!((counter.bound(&fixture.units), counter.exact(&fixture.units)), (2 * 10, 11));
}

/// Who comes to another index in the middle of a spill finds another byte there: with room, up to the threshold.
#[test]
fn a_spill_that_finds_room_leaves_it_in_the_byte() {
    let fixture = Fixture::new(Mode::Simulated, 4).unwrap();
    let (counter, units) = (level(&fixture, 10, 1), &fixture.units);
    for (index, count) in [(1, 9), (0, 10)] {
        stand(index, index as u32);
        counter.add(units, count);
    }
    between(1, || stand(1, 1));
    counter.add(units, 1);
    assert_eq!((counter.approximate(), counter.exact(units)), (0, 20));
}

#[test]
fn threads_that_went_away_still_count() {
    let Some(fixture) = Fixture::new(Mode::Sequences, 4096) else { return };
    let (fixture, counter) = (&fixture, &level(&fixture, 125, 1));
    for _ in 0..50 {
        threads::scope(|scope| {
            scope.spawn(|| counter.add(&fixture.units, 1));
        });
    }
    assert_eq!(counter.exact(&fixture.units), 50);
}

#[test]
fn the_kernels_thresholds() {
    // The table above calculate_normal_threshold(): CPUs, GiB, threshold.
    for (cpus, gib, threshold) in [(1, 1, 8), (2, 2, 24), (8, 1, 32), (64, 4, 84), (1024, 16, 125)] {
        let got = default_threshold(cpus, gib << 30);
        // (The formula's two lines of the table differ by what "1 GB" has left after the kernel's own.)
        assert!(got.abs_diff(threshold) <= threshold / 4 + 4, "{cpus} CPUs, {gib} GiB: {got}, not {threshold}");
    }
    assert_eq!(default_threshold(0, 0), 1);
    assert_eq!(default_threshold(u32::MAX, u64::MAX), 125);
    assert_eq!(default_batch(0, 0), 1);
    assert_eq!(default_batch(1600, 10), 10, "ten stocks of two are an eighth");
    assert_eq!(default_batch(u64::MAX, 1), 1 << 40);
}

#[test]
fn a_quota_is_never_exceeded_and_refuses_nothing_that_fits() {
    for fixture in fixtures() {
        for (limit, batch) in [(1, 1), (7, 2), (1000, 30), (50_000, 1)] {
            let counter = quota(&fixture, limit, batch);
            let (counter, fixture) = (&counter, &fixture);
            let cpus = fixture.units.indices().min(448);
            let used = &AtomicI64::new(0);
            threads::scope(|scope| {
                for number in 0..4 {
                    scope.spawn(move || {
                        let mut mine = 0_u64;
                        for step in 0..ROUNDS / 4 {
                            wander(step, number, cpus);
                            let n = [1_u64, 2, 1, 5, 40][(step + number) % 5];
                            if (step / 100 + number) % 3 < 2 {
                                if counter.try_add(&fixture.units, n) {
                                    // Counted after it was had, and no longer before it is given back.
                                    let now = used.fetch_add(n as i64, SeqCst) + n as i64;
                                    assert!(now as u64 <= limit, "{now} of {limit}");
                                    mine += n;
                                }
                            } else if mine >= n {
                                used.fetch_sub(n as i64, SeqCst);
                                assert!(counter.sub(&fixture.units, n));
                                mine -= n;
                            }
                        }
                    });
                }
            });
            let units = &fixture.units;
            let used = used.load(Relaxed) as u64;
            assert_eq!(counter.used(units), used);
            assert!(counter.charged() <= limit);
            // All that fits, to the last one, and no more.
            let mut left = limit - used;
            while left > 0 {
                let n = left.min(1 + left / 3);
                wander(left as usize, 1, cpus);
                assert!(counter.try_add(units, n), "{n} of {left} left of {limit}");
                left -= n;
            }
            assert!(!counter.try_add(units, 1));
            assert!(counter.is_tight());
            assert!(!counter.try_add(units, u64::MAX));
            // A larger limit, a smaller one.
            counter.set_limit(units, limit + 3);
            assert!(counter.try_add(units, 3) && !counter.try_add(units, 1));
            assert!(counter.sub(units, limit + 3));
            assert_eq!(counter.used(units), 0);
            assert!(!counter.sub(units, limit + 4), "more than is charged");
            counter.set_limit(units, 1);
            assert!(counter.try_add(units, 1) && !counter.try_add(units, 1));
            assert!(counter.sub(units, 1));
        }
    }
}

/// What is charged and used, and whether it is loose.
fn of(quota: &Quota, fixture: &Fixture) -> (u64, u64, bool) {
    (quota.charged(), quota.used(&fixture.units), !quota.is_tight())
}

#[test]
fn a_stock_is_filled_and_emptied_by_batches() {
    let fixture = Fixture::new(Mode::Simulated, 64).unwrap();
    let (counter, units) = (quota(&fixture, 1000, 10), &fixture.units);
    assert_eq!((counter.limit(), counter.batch()), (1000, 10));
    stand(0, 0);
    assert!(counter.try_add(units, 1));
    assert_eq!(of(&counter, &fixture), (11, 1, true), "with a batch for later");
    assert!(counter.try_add(units, 10));
    assert_eq!(of(&counter, &fixture), (11, 11, true), "from the stock");
    assert!(counter.try_add(units, 10));
    assert_eq!(of(&counter, &fixture), (31, 21, true));
    assert!(counter.sub(units, 10));
    assert_eq!(of(&counter, &fixture), (31, 11, true), "into the stock, which is full");
    assert!(counter.sub(units, 1));
    assert_eq!(of(&counter, &fixture), (21, 10, true), "it gave a batch back");
    assert!(counter.try_add(units, 15));
    assert_eq!(of(&counter, &fixture), (36, 25, true), "more than a batch is charged by itself");
    assert!(counter.sub(units, 15));
    assert_eq!(of(&counter, &fixture), (21, 10, true), "and is returned so");
}

#[test]
fn what_no_quota_has_is_refused() {
    for fixture in fixtures() {
        let (counter, units) = (quota(&fixture, 1000, 10), &fixture.units);
        stand(0, 0);
        for n in [LIMIT_MAX + 1, u64::MAX] {
            assert!(counter.try_add(units, 1));
            // (u64::MAX to one side is 1 to the other, which the stock would have.)
            assert!(!counter.try_add(units, n) && !counter.sub(units, n), "{n}");
            assert!(counter.sub(units, 1));
            assert_eq!(counter.used(units), 0);
        }
        let largest = quota(&fixture, u64::MAX, 1);
        assert_eq!(largest.limit(), LIMIT_MAX);
        assert!(largest.try_add(units, LIMIT_MAX) && !largest.try_add(units, 1));
        assert!(largest.sub(units, LIMIT_MAX));
        assert_eq!(largest.used(units), 0);
    }
}

#[test]
fn a_batch_that_does_not_fit_makes_it_tight() {
    let fixture = Fixture::new(Mode::Simulated, 64).unwrap();
    let counter = quota(&fixture, 15, 10);
    stand(0, 0);
    assert!(counter.try_add(&fixture.units, 10));
    assert_eq!(of(&counter, &fixture), (10, 10, false), "there is no room for a stock");
}

/// Full, and tight: until there is room for two batches for each index in use, a quarter of the limit at most, but for
/// two batches at least.
#[test]
fn it_is_loose_again_when_there_is_room_for_stocks() {
    for (limit, high, room) in [(1000, 1, 20), (1000, 5, 100), (1000, 64, 250), (40, 64, 20)] {
        let fixture = Fixture::new(Mode::Simulated, 64).unwrap();
        let (counter, units) = (quota(&fixture, limit, 10), &fixture.units);
        stand(0, 0);
        units.raise(high - 1);
        assert!(counter.try_add(units, limit) && !counter.is_tight());
        assert!(!counter.try_add(units, 1) && counter.is_tight());
        assert!(counter.sub(units, room - 1));
        assert_eq!(of(&counter, &fixture), (limit - room + 1, limit - room + 1, false));
        assert!(counter.sub(units, 1));
        assert_eq!(of(&counter, &fixture), (limit - room, limit - room, true));
        assert!(counter.try_add(units, 1));
        assert_eq!(of(&counter, &fixture), (limit - room + 11, limit - room + 1, true), "a stock again");
    }
}

#[test]
fn a_limit_decides_whether_it_is_tight() {
    let fixture = Fixture::new(Mode::Simulated, 64).unwrap();
    let (counter, units) = (quota(&fixture, 1000, 10), &fixture.units);
    stand(0, 0);
    assert!(counter.try_add(units, 1));
    for (limit, charged, is_loose) in [
        (500, 11, true),
        (11, 11, true), // the stock fits
        (10, 1, false), // it does not
        (20, 1, false), // two batches want to fit beside what is used
        (21, 1, true),
        (LIMIT_MAX, 1, true),
    ] {
        counter.set_limit(units, limit);
        assert_eq!((counter.limit(), of(&counter, &fixture)), (limit, (charged, 1, is_loose)));
    }
    counter.set_limit(units, u64::MAX);
    assert_eq!(counter.limit(), LIMIT_MAX);
}

/// More comes back than was used, to stocks, which do not know: nothing is charged when they have been swept.
#[test]
fn a_return_of_what_was_not_used_leaves_nothing_charged() {
    let fixture = Fixture::new(Mode::Simulated, 64).unwrap();
    let (counter, units) = (quota(&fixture, 100, 10), &fixture.units);
    stand(0, 0);
    assert!(counter.try_add(units, 20));
    for (index, count) in [(1, 3), (2, 4)] {
        stand(index, index as u32);
        (0..count).for_each(|_| assert!(counter.sub(units, 5)));
    }
    assert_eq!(of(&counter, &fixture), (20, 0, true));
    assert!(!counter.try_add(units, 101));
    assert_eq!(of(&counter, &fixture), (0, 0, false));
}

/// A kernel that refuses the fence: stocks of other CPUs are left where they are, what does not fit beside them is refused.
#[test]
fn without_a_fence_the_limit_holds() {
    let Some(fixture) = Fixture::new(Mode::Sequences, 4096) else { return };
    let (counter, units) = (quota(&fixture, 1000, 10), &fixture.units);
    // It has been tight before.
    assert!(counter.try_add(units, 1000) && !counter.try_add(units, 1) && counter.is_tight());
    assert!(counter.sub(units, 1000) && !counter.is_tight());
    units.confine();
    assert!(counter.try_add(units, 1));
    // Its own it gives up. (If the thread is moved, not at once.)
    let given = (0..10).any(|_| !counter.try_add(units, 1000) && counter.charged() == 1);
    assert!(given && counter.used(units) == 1);
    assert!(counter.try_add(units, 999) && !counter.try_add(units, 1));
    assert!(counter.sub(units, 1000) && counter.try_add(units, 1000) && !counter.try_add(units, 1));
    assert_eq!(counter.used(units), 1000);
}

/// A return takes no lock, which a thread would wait for, while somebody forks.
#[test]
fn returns_do_not_wait_for_a_fork() {
    for mode in [Mode::Simulated, Mode::Fallback] {
        let fixture = &Fixture::new(mode, Fixture::indices(mode)).unwrap();
        let (counter, units) = (&quota(fixture, 1000, 10), &fixture.units);
        assert!(counter.try_add(units, 6));
        assert!(units.fork_begin(u32::MAX));
        threads::scope(|scope| scope.spawn(|| assert!(counter.sub(units, 5))).join().unwrap());
        assert!(units.is_closed());
        units.fork_end(false, 0);
        assert_eq!(counter.used(units), 1);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Stand(usize),
    Add(i64),
    Event(u64),
    Fold,
    Threshold(u32),
    TryAdd(u64),
    Sub(u64),
    Limit(u64),
    Close,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0_usize..448).prop_map(Op::Stand),
        2 => (0_usize..3).prop_map(Op::Stand),
        4 => (-10_i64..10).prop_map(Op::Add),
        1 => (-200_i64..200).prop_map(Op::Add),
        1 => any::<u32>().prop_map(|n| Op::Event(u64::from(n))),
        1 => Just(Op::Fold),
        1 => (0_u32..200).prop_map(Op::Threshold),
        5 => (0_u64..30).prop_map(Op::TryAdd),
        4 => (0_u64..30).prop_map(Op::Sub),
        1 => (0_u64..300).prop_map(Op::Limit),
        1 => Just(Op::Close),
        1 => Just(Op::Reopen),
    ]
}

fn against_naive(fixture: &Fixture, ops: &[Op]) {
    let units = &fixture.units;
    let counter = level(fixture, 4, 1);
    let quota = quota(fixture, 100, 5);
    let event = fixture.alloc(8);
    let (mut value, mut events, mut used, mut limit, mut closed) = (0_i64, 0_u64, 0_u64, 100_u64, 0);
    for op in ops {
        match *op {
            Op::Stand(index) => stand(index, index as u32),
            Op::Add(delta) => {
                counter.add(units, delta);
                value += delta;
            }
            Op::Event(n) => {
                // SAFETY: an allocation of its own.
                unsafe { units.add(event, n) };
                events += n;
            }
            Op::Fold => drop(counter.fold(units)),
            Op::Threshold(threshold) => counter.set_threshold(threshold),
            Op::TryAdd(n) => {
                let fits = used + n <= limit;
                // (Nothing is always had from a stock that is not switched off.)
                if n > 0 {
                    assert_eq!(quota.try_add(units, n), fits, "{n} beside {used} of {limit}");
                    used += if fits { n } else { 0 };
                }
            }
            Op::Sub(n) if n <= used => {
                assert!(quota.sub(units, n));
                used -= n;
            }
            Op::Sub(_) => {}
            Op::Limit(new) => {
                quota.set_limit(units, new);
                limit = new;
            }
            Op::Close => {
                assert!(units.close());
                closed += 1;
            }
            Op::Reopen if closed > 0 => {
                units.reopen();
                closed -= 1;
            }
            Op::Reopen => {}
        }
        assert_eq!(counter.exact(units), value);
        assert!((counter.approximate() - value).unsigned_abs() <= counter.bound(units));
        assert_eq!(counter.compare_exact(units, 3), value.cmp(&3));
        assert_eq!(quota.used(units), used);
        // SAFETY: an allocation of its own.
        assert_eq!(unsafe { units.sum(event) }, events);
    }
    (0..closed).for_each(|_| units.reopen());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn counters_are_what_naive_ones_are(ops in proptest::collection::vec(op(), 1..200), mode in 0_usize..3) {
        if let Some(fixture) = Fixture::new(MODES[mode], 448) {
            against_naive(&fixture, &ops);
        }
    }
}

/// A naive counter that is wrong must be noticed.
#[test]
#[should_panic(expected = "beside")]
fn canary() {
    let fixture = Fixture::new(Mode::Simulated, 448).unwrap();
    // With the limit raised behind its back: the naive one still refuses.
    let units = &fixture.units;
    let quota = quota(&fixture, 100, 5);
    quota.set_limit(units, 200);
    let fits = false;
    assert!((0..150).collect::<Vec<_>>().iter().all(|_| quota.try_add(units, 1)) == fits, "beside");
}

/// What reads cost by the highest index that ever counted, whoever counted below it: to be read, and compared by docs/many-cpus.md.
#[test]
#[ignore = "measures; run it alone, in release"]
fn reads_cost_by_the_highest_index() {
    for indices in [[0, 1].to_vec(), (0..64).collect(), [0, 1365, 2730, 4095].to_vec(), (0..4096).collect()] {
        let fixture = Fixture::new(Mode::Simulated, 4096).unwrap();
        let (counter, quota, units) = (level(&fixture, 125, 1), quota(&fixture, 1 << 40, 64), &fixture.units);
        for &index in &indices {
            stand(index, index as u32);
            counter.add(units, 1);
            assert!(quota.try_add(units, 1));
        }
        let begin = std::time::Instant::now();
        assert_eq!(counter.exact(units), indices.len() as i64);
        let first = begin.elapsed().as_secs_f64() * 1e6;
        let time = |what: &dyn Fn()| {
            let mut times: Vec<f64> = (0..21)
                .map(|_| {
                    let begin = std::time::Instant::now();
                    what();
                    begin.elapsed().as_secs_f64() * 1e6
                })
                .collect();
            times.sort_by(f64::total_cmp);
            times[10]
        };
        let exact = time(&|| _ = core::hint::black_box(counter.exact(units)));
        let fold = time(&|| _ = counter.fold(units));
        let used = time(&|| _ = core::hint::black_box(quota.used(units)));
        std::println!(
            "{} used, highest {}: exact {exact:.2} µs (the first time {first:.2}), fold {fold:.2}, a quota's used {used:.2}",
            indices.len(),
            units.high() - 1
        );
    }
}
