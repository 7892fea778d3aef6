//! # The policy of giving back: numbers in, numbers out
//!
//! ```text
//!                 may stay                 2 × may stay
//! 0 ──────────────────┬──────────────────────────┬──────────────► bytes free and resident
//!     nothing is done │  HELP, by one thread     │  HELP_MORE, by all who come
//!                     └─ 15/16 of it are left    └─ a thread that frees waits a little
//! ```
//! What may stay is a share of the recent high, plus the distance to it, less what a soft limit leaves: what is resident
//! stays below 4/3 of what was in use a moment ago. (Fourteen policies were tried: docs/performance.md.) No
//! function here reads memory, a clock or a knob: each line has its test below, and a change of the policy is a change here.
//!
//! Units: bytes; ticks of the time-stamp counter.

use super::limits::room;

/// Bytes that a free gives back when the limit is passed.
pub const HELP: usize = 8 << 20;
/// The same past twice the limit.
pub const HELP_MORE: usize = 32 << 20;
/// Bytes that may stay, because they were in use a moment ago, where nobody takes them back later; of a program that [`churns`] eight times as
/// many. (glibc keeps up to 64 MiB, too, of a program that frees blocks of up to 32.)
pub const FORGOTTEN: u64 = 8 << 20;
/// Orders of free blocks worth a system call when a limit was passed; a trim takes all.
pub const PURGE_ORDER: usize = 4;
/// Of the first bytes in use a quarter of the share may stay: a small program's blocks that grow by doubling leave few
/// behind that fit again (sqlite's peak was 2 MiB of 28 higher with half of it), those of a large one do: from eight times as many in use on
/// the rest of the share comes back, by a quarter of what is more.
pub const FIRST: u64 = 32 << 20;
/// Bytes of free objects in slabs from which these may be [hollow](is_hollow).
pub const HOLLOW: u64 = 32 << 20;
/// So many times the recent high is given back in a second or two by a program that [`churns`].
pub const CHURN: u64 = 2;
/// log2 of the ticks of a window, some eighth of a second: the recent high is that of the last [`WINDOWS`].
const WINDOW: u32 = 28;
/// Windows of the recent high. (Of half as many, programs that work in waves of 0.7 s lost what they needed again.)
pub const WINDOWS: usize = 8;

/// What the limit depends on.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// Bytes in use.
    pub in_use: u64,
    /// How far that is below its recent high.
    pub below_recent: u64,
    /// Bytes that were given back in the last second or two because they were more than may stay.
    pub given: u64,
    /// Bytes that are not free and resident: what the soft limit counts besides those.
    pub busy: u64,
    /// There is no keeper, and none to be had: nobody gives back later what is not given back now.
    pub is_alone: bool,
}

/// The knobs that it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// One part in this many of the recent high may stay.
    pub share: u64,
    /// As much may stay always.
    pub floor: u64,
    /// And at most so much for each doubling of the CPUs.
    pub ceiling: u64,
    /// The soft limit.
    pub soft: Option<u64>,
}

/// Bytes that may be free and resident. How many CPUs there are for us is asked for where it matters.
#[must_use]
pub fn may_stay(now: Use, rules: Rules, cpus: impl FnOnce() -> u32) -> u64 {
    // Alone, a quarter of it: it stays till the program frees again.
    let recent = now.in_use.saturating_add(now.below_recent);
    let high = if now.is_alone { now.in_use / 4 } else { recent };
    let left_out = (high.min(FIRST) / 4 * 3).saturating_sub(high.saturating_sub(8 * FIRST) / 4);
    let mut base = ((high - left_out) / rules.share).max(rules.floor);
    let churns = churns(now.given, recent);
    if churns && !now.is_alone {
        base = base.max(high / rules.share).max(rules.floor.saturating_mul(4));
    }
    if base > rules.ceiling {
        // fls(cpus), as in the kernel.
        let doublings = if rules.ceiling == 0 { 0 } else { u32::BITS - cpus().leading_zeros() };
        base = base.min(rules.ceiling.saturating_mul(doublings.into()));
    }
    let forgotten = if churns { 8 * FORGOTTEN } else { FORGOTTEN };
    let usual = base + if now.is_alone { now.below_recent.min(forgotten) } else { now.below_recent };
    rules.soft.map_or(usual, |soft| usual.min(room(soft, now.busy)))
}

/// Whether so much was `given` back in a second or two that it must have been taken again each time: more may stay, so that it is
/// found again. (A program that only shrinks gives its recent `high` back once.)
#[must_use]
pub const fn churns(given: u64, high: u64) -> bool {
    given > high.saturating_mul(CHURN)
}

/// The window that `ticks` are in.
#[must_use]
pub const fn window(ticks: u64) -> u64 {
    ticks >> WINDOW
}

/// How a thread that frees, or takes memory, helps to keep the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Help {
    /// It gives back so many bytes at most.
    pub most: usize,
    /// Beside others that do, after a few naps if there are too many of them; else it leaves that to them.
    pub is_pressed: bool,
    /// It waits (naps) for its turn at what needs a lock.
    pub waits: bool,
}

/// What a thread does that takes or frees `bytes` with so many `idle` (free and resident) and so many that may stay.
#[must_use]
pub fn help(idle: u64, limit: u64, bytes: usize) -> Help {
    let far = idle > limit.saturating_mul(2);
    let above = idle.saturating_sub(limit);
    // A slice of what was queued before is worth it below the limit, too. An allocation gives back what it takes.
    let most = if far { HELP_MORE } else { HELP }.max(bytes);
    Help {
        // As much as there is, but not below what may stay.
        most: most.min(usize::try_from(above).unwrap_or(most).max(HELP)),
        is_pressed: far || bytes >= HELP_MORE,
        // (Nobody waits for the little that a small program frees.)
        waits: far && above > HELP_MORE as u64,
    }
}

/// Whether so much is `idle` that fresh memory would soon be purged for.
#[must_use]
pub const fn is_much(idle: u64, limit: u64) -> bool {
    idle > limit / 2
}

/// Bytes from which zeros are fresh memory, of which perhaps little will be used, and not dirty memory cleared: more where
/// [much](is_much) is idle.
#[must_use]
pub const fn sparse(is_much: bool) -> usize {
    if is_much { 32 << 20 } else { 1 << 20 }
}

/// Bytes of addresses that are never too many.
pub const MANY: u64 = 1 << 30;

/// Whether addresses, `mapped` bytes of them, are so many times what is `used` that the free ones must lie in pieces.
#[must_use]
pub const fn is_scattered(mapped: u64, used: u64) -> bool {
    mapped / 4 > used && mapped - used > MANY
}

/// The bytes mapped at which that is asked again: when they have grown by as much as may have gone back meanwhile.
#[must_use]
pub const fn asked_again(mapped: u64, used: u64) -> u64 {
    mapped.saturating_add(if used > MANY / 16 { used } else { MANY / 16 })
}

/// What is left when the limit was passed: so much less that the next free does not pass it again.
#[must_use]
pub const fn keep(limit: u64) -> u64 {
    limit - limit / 16
}

/// Whether slabs are hollow: of so many bytes hardly any are `taken`, by objects that each keep a slab. Then pages of theirs that have none
/// go back even while the program works. (Of objects whose sizes drift one in a hundred that stays would keep all memory else.)
#[must_use]
pub const fn is_hollow(slabs: u64, taken: u64) -> bool {
    slabs.saturating_sub(taken) >= HOLLOW && slabs / 4 > taken
}

/// What a look at a program that is idle leaves of what is free and resident.
#[must_use]
pub const fn after_idle(left: u64) -> u64 {
    left / 2
}

/// The least order of free blocks that such a slice gives back.
#[must_use]
pub const fn least_order(most: usize) -> usize {
    // Small runs alone could pass twice the limit, and nobody is to wait for what is never taken.
    if most > HELP { 0 } else { PURGE_ORDER }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const NOW: Use = Use { in_use: 1000 * MIB, below_recent: 0, given: 0, busy: 1000 * MIB, is_alone: false };
    const RULES: Rules = Rules { share: 50, floor: 8 * MIB, ceiling: 32 * MIB, soft: None };

    /// A fiftieth of 1,000 MiB.
    const USUAL: u64 = 1000 * MIB / 50;

    fn on(cpus: u32, now: Use, rules: Rules) -> u64 {
        super::may_stay(now, rules, || cpus)
    }
    fn may_stay(now: Use, rules: Rules) -> u64 {
        on(1, now, rules)
    }

    #[test]
    fn addresses_are_scattered_where_they_are_four_times_what_is_used_and_many() {
        let asked = |mapped, used| is_scattered(mapped * MIB, used * MIB);
        assert!(!asked(1024, 0) && asked(1025, 0) && !asked(1100, 76) && asked(1100, 75));
        assert!(!asked(40_000, 10_000) && asked(40_004, 10_000));
        assert_eq!((asked_again(MANY, 0), asked_again(MANY, 70 * MIB)), (1088 * MIB, 1094 * MIB));
    }

    #[test]
    fn slabs_are_hollow_where_hardly_anything_is_taken_of_much() {
        let hollow = [(100, 24), (1000, 0), (33, 0), (32, 0)];
        let dense = [(100, 25), (100, 100), (31, 0), (0, 0), (1, 2)];
        assert!(hollow.iter().all(|&(slabs, taken)| is_hollow(slabs * MIB, taken * MIB)));
        assert!(!dense.iter().any(|&(slabs, taken)| is_hollow(slabs * MIB, taken * MIB)));
    }

    #[test]
    fn a_share_of_what_is_in_use_may_stay() {
        assert_eq!(may_stay(NOW, RULES), USUAL);
        assert_eq!(may_stay(NOW, Rules { share: 100, ..RULES }), 10 * MIB);
    }

    #[test]
    fn at_least_the_floor() {
        assert_eq!(may_stay(Use { in_use: MIB, ..NOW }, RULES), 8 * MIB);
        assert_eq!(may_stay(Use { in_use: 0, ..NOW }, RULES), 8 * MIB);
    }

    #[test]
    fn at_most_the_ceiling_for_each_doubling_of_the_cpus() {
        let large = Use { in_use: 1 << 50, ..NOW };
        for (cpus, times) in [(1, 1), (2, 2), (3, 2), (4, 3), (64, 7), (448, 9)] {
            assert_eq!(on(cpus, large, RULES), times * 32 * MIB, "{cpus}");
        }
        // Below it the CPUs count for nothing, and a ceiling of 0 is one.
        assert_eq!(super::may_stay(NOW, RULES, || unreachable!("below the ceiling")), USUAL);
        let nothing = Rules { ceiling: 0, floor: 0, ..RULES };
        assert_eq!(super::may_stay(large, nothing, || unreachable!("nothing, on however many")), 0);
        assert_eq!(may_stay(large, Rules { ceiling: u64::MAX, ..RULES }), (1 << 50) / 50);
    }

    #[test]
    fn of_the_first_bytes_a_quarter_of_the_share() {
        let rules = Rules { floor: MIB, share: 4, ceiling: u64::MAX, ..RULES };
        let small = |mib: u64| may_stay(Use { in_use: mib * MIB, ..NOW }, rules);
        assert_eq!((FIRST, small(16), small(32), small(64)), (32 * MIB, MIB, 2 * MIB, 10 * MIB));
        // Of many the whole share; it comes back by a quarter of what is more.
        assert_eq!([256, 304, 352, 1000].map(small), [58 * MIB, 73 * MIB, 88 * MIB, 250 * MIB]);
    }

    #[test]
    fn what_was_in_use_a_moment_ago_may_stay_besides() {
        let waves = Use { below_recent: 300 * MIB, ..NOW };
        assert_eq!(may_stay(waves, RULES), 300 * MIB + 1300 * MIB / 50, "and the share is one of the high");
        // But little where nobody takes it back later.
        assert_eq!(may_stay(Use { is_alone: true, ..waves }, RULES), (8 + 8) * MIB);
        assert_eq!(may_stay(Use { is_alone: true, below_recent: MIB, ..NOW }, RULES), (8 + 1) * MIB);
        assert_eq!(may_stay(Use { is_alone: true, ..NOW }, Rules { share: 10, ..RULES }), 226 * MIB / 10);
    }

    #[test]
    fn a_program_that_takes_again_what_it_gave_back_may_keep_more() {
        let rules = Rules { share: 4, floor: MIB, ceiling: 1 << 40, soft: None };
        let gave = |given: u64, in_use: u64| Use { in_use: in_use * MIB, below_recent: 4 * MIB, given, ..NOW };
        let usual = may_stay(gave(32 * MIB, 12), rules);
        assert_eq!((CHURN, usual), (2, (1 + 4) * MIB), "its recent high twice, as if it had shrunk, grown and shrunk");
        assert_eq!(
            may_stay(gave(32 * MIB + 1, 12), rules),
            (4 + 4) * MIB,
            "once more: the whole share, or four floors"
        );
        assert_eq!(may_stay(gave(1 << 40, 20), rules), (6 + 4) * MIB, "the share");
        assert_eq!(may_stay(gave(1 << 40, 0), rules), (4 + 4) * MIB, "four floors");
        assert_eq!(may_stay(gave(1 << 40, 200), rules), may_stay(gave(0, 200), rules) + 6 * MIB, "of the first 32 MiB");
        assert_eq!(
            may_stay(gave(1 << 40, 1000), Rules { floor: 16 * MIB, ..RULES }),
            (32 + 4) * MIB,
            "no more than the ceiling"
        );
        let soft = Rules { soft: Some(16 * MIB), ..rules };
        assert_eq!(may_stay(Use { busy: 10 * MIB, ..gave(1 << 40, 12) }, soft), room(16 * MIB, 10 * MIB));
        assert_eq!(may_stay(gave(1 << 40, 12), Rules { floor: 0, share: 1024, ..rules }), 4 * MIB + MIB / 64);
        // Where nobody takes it back later, of its recent high alone.
        let alone = |given: u64, below: u64| {
            may_stay(Use { is_alone: true, below_recent: below * MIB, ..gave(given, 12) }, rules) / MIB
        };
        assert_eq!((alone(0, 100), alone(224 * MIB, 100), alone(224 * MIB + 1, 100)), (1 + 8, 1 + 8, 1 + 64));
        assert_eq!((alone(1 << 40, 30), alone(1 << 40, 4)), (1 + 30, 1 + 4));
    }

    #[test]
    fn and_no_more_than_a_soft_limit_leaves() {
        let soft = |soft: u64| Rules { soft: Some(soft), ..RULES };
        assert_eq!(may_stay(NOW, soft(1 << 40)), USUAL, "far away");
        assert_eq!(may_stay(NOW, soft(1152 * MIB)), room(1152 * MIB, NOW.busy));
        assert_eq!(may_stay(NOW, soft(1152 * MIB)), 9 * MIB, "near");
        assert_eq!(may_stay(Use { busy: 2000 * MIB, ..NOW }, soft(1024 * MIB)), 8 * MIB, "passed: a 128th");
    }

    #[test]
    fn a_window_is_some_eighth_of_a_second() {
        assert_eq!((window((1 << 28) - 1), window(1 << 28), window(5 << 28)), (0, 1, 5));
    }

    #[test]
    fn zeros_are_fresh_sooner_where_little_is_idle() {
        assert_eq!((is_much(50 * MIB, 100 * MIB), is_much(50 * MIB + 1, 100 * MIB)), (false, true));
        assert_eq!((is_much(0, 0), is_much(1, 0)), (false, true));
        assert_eq!((sparse(false), sparse(true)), (1 << 20, 32 << 20));
    }

    #[test]
    fn a_free_helps_by_how_far_the_limit_is_passed() {
        let limit = 100 * MIB;
        let helps = |idle: u64, bytes: usize| help(idle * MIB, limit, bytes);
        assert_eq!((HELP as u64, HELP_MORE as u64), (8 * MIB, 32 * MIB));
        assert_eq!(helps(50, 0), Help { most: HELP, is_pressed: false, waits: false }, "what is queued");
        assert_eq!(helps(101, 0), Help { most: HELP, is_pressed: false, waits: false });
        assert_eq!(helps(200, 0), Help { most: HELP, is_pressed: false, waits: false });
        assert_eq!(helps(201, 0), Help { most: HELP_MORE, is_pressed: true, waits: true });
    }

    #[test]
    fn an_allocation_gives_back_what_it_takes_but_not_what_may_stay() {
        let limit = 100 * MIB;
        assert_eq!(help(150 * MIB, limit, 20 << 20).most, 20 << 20);
        assert_eq!(help(150 * MIB, limit, 90 << 20).most, 50 << 20);
        assert_eq!(help(99 * MIB, limit, 90 << 20).most, HELP);
        // One of much is in it with those who are pressed.
        assert!(!help(150 * MIB, limit, HELP_MORE - 1).is_pressed && help(150 * MIB, limit, HELP_MORE).is_pressed);
    }

    #[test]
    fn nobody_waits_for_the_little_that_a_small_program_frees() {
        let small = help(3 * MIB, MIB, 0);
        assert!(small.is_pressed && !small.waits);
        assert!(!help(MIB + HELP_MORE as u64, MIB, 0).waits && help(MIB + HELP_MORE as u64 + 1, MIB, 0).waits);
        assert!(help(1, 0, 0).is_pressed, "where nothing may stay every byte is too much");
    }

    #[test]
    fn a_sixteenth_goes_and_small_blocks_only_where_it_is_far_passed() {
        assert_eq!((keep(0), keep(160)), (0, 150));
        assert_eq!((after_idle(100), after_idle(1), after_idle(0)), (50, 0, 0));
        assert_eq!((least_order(HELP), least_order(HELP + 1)), (PURGE_ORDER, 0));
    }
}
