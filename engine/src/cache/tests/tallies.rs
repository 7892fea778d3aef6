//! What is counted, where, and what the sums are.

use super::*;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::cache::layout::Word;
use crate::meta::Meta;
use crate::stat::board::{LEVEL_THRESHOLD, TIMES, bucket};
use crate::stat::{Level, Tally, Timing};

/// A sheaf with room for some into this thread's set.
fn install(sets: &Sets, class: usize) {
    let word = Sheaf::new(&Meta::new(), sets.board(), 4).unwrap().into_word(4);
    assert!(sets.ready().is_some());
    assert_eq!(unsafe { sets.swap(class, false, Word::NONE, word) }, Outcome::Done(()));
}

/// Counts everything once, into a tally of its own that `at` says.
fn count_all(sets: &Sets, at: usize) {
    let tally = sets.tally(at);
    let of =
        |tally: &Tally, class: usize| [&tally.class[class].allocs, &tally.class[class].frees].map(|n| n.load(Relaxed));
    let events = tally.events.iter().map(|event| event.load(Relaxed)).collect::<Vec<_>>();
    sets.count(Event::Purge, 3);
    sets.count(Event::Purge, 4);
    let changed: Vec<_> = (0..events.len()).map(|event| tally.events[event].load(Relaxed) - events[event]).collect();
    assert!((0..events.len()).all(|event| changed[event] == if event == Event::Purge as usize { 7 } else { 0 }));
    // What took how long: bucket and sum.
    let ticks = |timing: Timing| tally.times[timing as usize].ticks.load(Relaxed);
    sets.time(Timing::Refill, u64::MAX);
    assert_eq!((tally.times[Timing::Refill as usize].buckets[0].load(Relaxed), ticks(Timing::Refill)), (1, 0));
    let before = sets.clock.ticks();
    sets.time(Timing::Drain, 0);
    let (took, after) = (ticks(Timing::Drain), sets.clock.ticks());
    assert!((before..=after).contains(&took), "{before} {took} {after}");
    let buckets = |timing: Timing| tally.times[timing as usize].buckets.each_ref().map(|n| n.load(Relaxed));
    let wanted = core::array::from_fn::<_, TIMES, _>(|at| u64::from(at == bucket(took)));
    assert_eq!((buckets(Timing::Drain), sets.times(Timing::Drain)), (wanted, (wanted, took)));
    assert_eq!(sets.times(Timing::Purge), ([0; TIMES], 0));
    // Objects that came out of slabs.
    sets.take(2, 5);
    sets.take(2, -2);
    assert_eq!((tally.taken[2].load(Relaxed), sets.taken(2), sets.taken(1)), (3, 3, 0));
    sets.take(1, -1);
    assert_eq!(sets.taken(1), 0, "in another's hand for a moment");
    // An allocation that was none.
    let before = of(tally, 7);
    sets.uncount_alloc(7);
    assert_eq!([before[0].wrapping_sub(1), before[1]], of(tally, 7));
}

#[test]
fn without_sequences_everything_is_counted_on_nobodys_tally() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 2, 1);
    install(&sets, 2);
    count_all(&sets, 0);
    assert_eq!(sets.event(Event::Purge), 7);
    // A level's word itself.
    for by in [LEVEL_THRESHOLD as isize, 1, -5] {
        assert!(sets.shift(Level::Barns, by));
    }
    assert_eq!(
        (sets.level(Level::Barns), sets.board().level(Level::Barns)),
        (LEVEL_THRESHOLD - 4, LEVEL_THRESHOLD - 4)
    );
}

/// Operations on a set are its tally's, by class; those past the sets are nobody's; and all are in the sums.
#[test]
fn operations_are_counted_by_class() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 2, 1);
    operate(&sets);
}

fn operate(sets: &Sets) {
    let ops = |tally, class: usize| {
        let ops = &sets.tally(tally).class[class];
        (ops.allocs.load(Relaxed), ops.frees.load(Relaxed))
    };
    install(sets, 2);
    for (frees, object) in [(1, 16), (2, 32), (3, 48)] {
        assert_eq!(unsafe { sets.push(2, object) }, Outcome::Done(()));
        assert_eq!((ops(1, 2), sets.frees()), ((0, frees), frees));
    }
    assert_eq!((sets.pop(2), ops(1, 2)), (Outcome::Done(48), (1, 3)));
    assert_eq!((sets.pop(3), ops(1, 3)), (Outcome::Refused, (0, 0)));
    sets.count_direct(3, 4, 0);
    sets.count_direct(3, 1, 6);
    assert_eq!((ops(0, 3), ops(0, 2), ops(1, 3), sets.frees()), ((5, 6), (0, 0), (0, 0), 9));
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(allotment_other)))]
mod sequences {
    use super::made::{Made, open, stand_as};
    use super::*;

    #[test]
    fn sequences_count_on_the_tally_of_their_set() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        assert!(sets.ready().is_some());
        count_all(&sets, 1);
        assert_eq!((sets.event(Event::Purge), sets.tally(0).event(Event::Purge)), (7, 0));
        sets.close();
        count_closed(&sets);
    }
    #[test]
    fn sequences_count_operations_by_class() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        operate(&sets);
    }

    /// While the sets are closed what is counted is nobody's, once.
    fn count_closed(sets: &Sets) {
        sets.count(Event::Purge, 9);
        assert_eq!((sets.event(Event::Purge), sets.tally(0).event(Event::Purge)), (16, 9));
    }

    /// A set that is another CPU's counts for it alone.
    #[test]
    fn a_stranger_counts_on_nobodys_tally() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        assert!(sets.ready().is_some());
        let other = Made::new(3, 6);
        stand_as(&sets, &other);
        sets.count(Event::Purge, 9);
        assert_eq!((sets.tally(1).event(Event::Purge), sets.tally(0).event(Event::Purge)), (0, 9));
    }

    #[test]
    fn a_level_is_folded_past_its_threshold() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        assert!(sets.ready().is_some());
        let level = Level::Barns;
        let state = |tally| {
            let word = sets.board().levels[level as usize].load(Relaxed).cast_signed();
            (word, sets.tally(tally).levels[level as usize].load(Relaxed).cast_signed(), sets.level(level))
        };
        const MOST: isize = LEVEL_THRESHOLD as isize;
        // (Change, whether it is folded, the board's word, the differential)
        for (by, folded, word, differential) in [
            (MOST - 1, false, 0, MOST - 1),
            (1, false, 0, MOST),
            (1, true, MOST + 1, 0),
            (-MOST, false, MOST + 1, -MOST),
            (-1, true, 0, 0),
            (70_000, true, 70_000, 0),
            (-3, false, 70_000, -3),
        ] {
            assert_eq!(sets.shift(level, by), folded, "{by}");
            let sum = (word + differential) as u64;
            assert_eq!(state(1), (word as i64, differential as i64, sum), "after {by}");
        }
        assert!(
            (0..sets.tally(1).levels.len())
                .all(|at| at == level as usize || sets.tally(1).levels[at].load(Relaxed) == 0)
        );
        sets.close();
        assert!(!sets.shift(level, MOST), "what is nobody's waits, too");
        assert!(sets.shift(level, 1));
        assert_eq!((state(0), state(1).1), ((70_000 + MOST as i64 + 1, 0, 69_997 + MOST as u64 + 1), -3));
    }
}
