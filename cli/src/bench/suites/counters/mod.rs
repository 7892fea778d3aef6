//! # Suite `counters`: the seed's experiment
//!
//! The seed measured `inc_zone_page_state` with interrupts off, by a local `cmpxchg`, and by a local increment. Here
//! are their likenesses in user space ([`ops`]) beside shared atomics, each with 1, 2 and twice the CPUs
//! threads; then what a read costs. Everything runs in this process: no allocator is in the way.
//!
//! Instructions are those of one operation, inlined, in the release build: from the disassembly that
//! `tests/counters.rs` compares with `tests/golden/counters.txt`.

mod ops;

use crate::bench::rows::OURS;
use crate::bench::suite::{Case, Contender, Setup, Suite, lower};
use crate::bench::team::{cpus, stay, together};
use crate::clock::thread_ns;
use allotment::counter::{Mode, mode};
use ops::{AtomicQuota, Bytes, Cmpxchg, Counter, Event, Hand, Level, Locked, Plain, Quota, Signals, Tight, Words};
use std::hint::black_box;

/// Operations of a run, all threads together; a quick run does a fifth, a warm-up a fiftieth.
const OPS: u64 = 40_000_000;
/// Counters that are counted on in turn.
const ROTATING: usize = 8;
/// Steps up before as many down: far enough to cross any threshold.
const ACROSS: u64 = 512;
/// Counted by `tests/counters.rs`: `family contender instructions locked`.
const GOLDEN: &str = include_str!("../../../../tests/golden/counters.txt");

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    One,
    Rotating,
    Down,
    Across,
    Pairs,
}

/// Runs `ops` of a pattern.
#[inline(always)]
fn repeat<H: Hand>(hands: [H; ROTATING], pattern: Pattern, ops: u64) {
    match pattern {
        Pattern::One => (0..ops).for_each(|_| hands[0].up()),
        Pattern::Down => (0..ops).for_each(|_| hands[0].down()),
        Pattern::Rotating => (0..ops / ROTATING as u64).for_each(|_| hands.into_iter().for_each(H::up)),
        Pattern::Across => (0..ops / (2 * ACROSS)).for_each(|_| {
            (0..ACROSS).for_each(|_| hands[0].up());
            (0..ACROSS).for_each(|_| hands[0].down());
        }),
        Pattern::Pairs => (0..ops / 2).for_each(|_| {
            hands[0].up();
            hands[0].down();
        }),
    }
}

/// By how much `ops` of a pattern change the value.
fn change(pattern: Pattern, ops: u64) -> i64 {
    match pattern {
        Pattern::One => ops as i64,
        Pattern::Rotating => (ops / ROTATING as u64) as i64,
        Pattern::Down => -(ops as i64),
        Pattern::Across | Pattern::Pairs => 0,
    }
}

/// Nanoseconds of a CPU for one operation, by `threads` that begin together: of the threads' own CPU clocks, so that
/// what else the machine does costs nobody (who waits for a cache line does not sleep).
fn time<C: Counter>(pattern: Pattern, threads: usize, ops: u64) -> Result<f64, String> {
    let counters = (0..ROTATING).map(|_| C::new(threads)).collect::<Result<Vec<C>, _>>()?;
    let ops = (ops / threads as u64).next_multiple_of(2 * ACROSS * ROTATING as u64);
    let times = together(threads, |thread, start| {
        let hands: [C::Hand<'_>; ROTATING] = std::array::from_fn(|at| counters[at].hand(thread));
        if threads > 1 {
            stay(thread);
        }
        start.wait();
        let began = thread_ns();
        repeat(hands, pattern, ops);
        thread_ns() - began
    })?;
    // A contender that loses counts is not measured, it is wrong.
    let counted = change(pattern, ops) * threads as i64;
    if let Some(value) = counters[0].value().filter(|&value| value != counted) {
        return Err(format!("{value} were counted of {counted}"));
    }
    Ok(times.iter().sum::<u64>() as f64 / (ops * threads as u64) as f64)
}

/// Instructions of an operation, if they were counted.
fn instructions(family: &str, contender: &str) -> Option<f64> {
    let line = GOLDEN.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(family) && words.next() == Some(contender)).then_some(words)
    });
    line?.next()?.parse().ok()
}

fn scaled(ops: u64, warm: bool, quick: bool) -> u64 {
    ops / if warm {
        50
    } else if quick {
        5
    } else {
        1
    }
}

/// One contender of a case.
fn contender<C: Counter>(
    family: &'static str,
    name: &str,
    pattern: Pattern,
    threads: usize,
    ops: u64,
    quick: bool,
) -> Contender {
    // As the disassembly calls it: padded is the same operation as atomic.
    let counted = instructions(family, if name == "padded" { "atomic" } else { name });
    let name = name.to_owned();
    Contender::new(name.clone(), move |warm| {
        let op = time::<C>(pattern, threads, scaled(ops, warm, quick))?;
        let mut samples = vec![lower("op", "ns/op").is(op)];
        if let Some(value) = counted.filter(|_| threads == 1 && (name != OURS || mode() == Mode::Sequences)) {
            samples.push(lower("instructions", "1/op").is(value));
        }
        Ok(samples)
    })
}

fn events(pattern: Pattern, threads: usize, quick: bool) -> Vec<Contender> {
    let family = "event";
    vec![
        contender::<Event>(family, OURS, pattern, threads, OPS, quick),
        contender::<Words<Plain, true>>(family, "plain", pattern, threads, OPS, quick),
        contender::<Words<Locked, true>>(family, "atomic", pattern, threads, OPS / 4, quick),
        contender::<Words<Locked, false>>(family, "padded", pattern, threads, OPS, quick),
        contender::<Words<Cmpxchg, false>>(family, "cmpxchg", pattern, threads, OPS, quick),
        contender::<Words<Signals, false>>(family, "signals", pattern, threads, OPS / 100, quick),
    ]
}

fn levels(pattern: Pattern, threads: usize, quick: bool) -> Vec<Contender> {
    let family = "level";
    vec![
        contender::<Level>(family, OURS, pattern, threads, OPS, quick),
        contender::<Bytes<Plain>>(family, "plain", pattern, threads, OPS, quick),
        contender::<Words<Locked, true>>(family, "atomic", pattern, threads, OPS / 4, quick),
        contender::<Bytes<Cmpxchg>>(family, "cmpxchg", pattern, threads, OPS, quick),
        contender::<Bytes<Signals>>(family, "signals", pattern, threads, OPS / 100, quick),
    ]
}

fn quotas(pattern: Pattern, threads: usize, quick: bool) -> Vec<Contender> {
    let family = "quota";
    vec![
        contender::<Quota>(family, OURS, pattern, threads, OPS, quick),
        contender::<AtomicQuota>(family, "atomic", pattern, threads, OPS / 4, quick),
    ]
}

/// One way to read a level counter.
fn read(name: &'static str, how: fn(&Level) -> u64, quick: bool) -> Contender {
    Contender::new(format!("{OURS}-{name}"), move |warm| {
        let counter = Level::new(1)?;
        (0..1000).for_each(|_| counter.hand(0).up());
        let n = scaled(OPS / 8, warm, quick);
        let began = thread_ns();
        for _ in 0..n {
            black_box(how(black_box(&counter)));
        }
        let value = (thread_ns() - began) as f64 / n as f64;
        let mut samples = vec![lower(name, "ns/op").is(value)];
        if let Some(value) = instructions("read", name) {
            samples.push(lower("instructions", "1/op").is(value));
        }
        Ok(samples)
    })
}

/// Reads of a level counter.
fn reads(quick: bool) -> Case {
    Case::new(
        "read",
        "a level counter: approximate (one load), compare (by the bound), exact (the sum)",
        1,
        vec![
            read("approximate", ops::approximate, quick),
            read("compare", ops::compare, quick),
            read("exact", ops::exact, quick),
        ],
    )
}

/// Near the limit, where a quota is one compare-and-swap on the shared total.
fn tight(pattern: Pattern, threads: usize, quick: bool) -> Vec<Contender> {
    vec![
        contender::<Tight>("tight", OURS, pattern, threads, OPS / 4, quick),
        contender::<AtomicQuota>("quota", "atomic", pattern, threads, OPS / 4, quick),
    ]
}

type Make = fn(Pattern, usize, bool) -> Vec<Contender>;

/// The suite.
pub const SUITE: Suite = Suite::new("counters", "per-CPU counters beside their alternatives", cases);

fn cases(setup: &Setup) -> Vec<Case> {
    ops::keep();
    let table: [(&'static str, &'static str, Pattern, Make); 9] = [
        ("event-one", "add 1 to one counter", Pattern::One, events),
        ("event-rotating", "add 1 to eight counters in turn", Pattern::Rotating, events),
        ("level-up", "one level counter, up", Pattern::One, levels),
        ("level-down", "one level counter, down", Pattern::Down, levels),
        ("level-across", "512 up, 512 down: across its threshold both ways", Pattern::Across, levels),
        ("level-rotating", "up on eight level counters in turn", Pattern::Rotating, levels),
        ("quota-use", "try_add(1), the limit far away", Pattern::One, quotas),
        ("quota-pair", "try_add(1), sub(1)", Pattern::Pairs, quotas),
        ("quota-tight", "try_add(1), sub(1) near the limit", Pattern::Pairs, tight),
    ];
    let mut counts = vec![1, 2, 2 * cpus()];
    counts.dedup();
    let mut cases = Vec::new();
    for (name, about, pattern, make) in table {
        for &threads in &counts {
            cases.push(Case::new(name, about, threads, make(pattern, threads, setup.quick)));
        }
    }
    cases.push(reads(setup.quick));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_counts_right() {
        for threads in [1, 3] {
            for pattern in [Pattern::One, Pattern::Rotating, Pattern::Down, Pattern::Across, Pattern::Pairs] {
                let all = [
                    time::<Event>(pattern, threads, 20_000),
                    time::<Level>(pattern, threads, 20_000),
                    time::<Words<Locked, true>>(pattern, threads, 20_000),
                    time::<Words<Cmpxchg, false>>(pattern, threads, 20_000),
                    time::<Bytes<Plain>>(pattern, threads, 20_000),
                    time::<Bytes<Cmpxchg>>(pattern, threads, 20_000),
                ];
                for (at, result) in all.into_iter().enumerate() {
                    assert!(result.as_ref().is_ok_and(|&ns| ns > 0.0), "{at} {pattern:?} {threads}: {result:?}");
                }
            }
        }
        for pattern in [Pattern::One, Pattern::Pairs] {
            assert!(time::<Quota>(pattern, 3, 20_000).is_ok() && time::<AtomicQuota>(pattern, 3, 20_000).is_ok());
        }
    }

    #[test]
    fn a_contender_that_loses_is_refused() {
        /// Counts every second time.
        struct Half(std::sync::atomic::AtomicI64);
        impl Counter for Half {
            type Hand<'a> = &'a Self;
            fn new(_: usize) -> Result<Self, String> {
                Ok(Self(0.into()))
            }
            fn hand(&self, _: usize) -> &Self {
                self
            }
            fn value(&self) -> Option<i64> {
                Some(self.0.load(std::sync::atomic::Ordering::Relaxed) / 2)
            }
        }
        impl Hand for &Half {
            fn up(self) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            fn down(self) {}
        }
        assert!(time::<Half>(Pattern::One, 2, 20_000).is_err());
    }

    #[test]
    fn the_table_of_instructions_is_read() {
        assert!(instructions("event", OURS).is_some_and(|n| n > 5.0));
        assert_eq!(instructions("event", "nobody"), None);
    }
}
