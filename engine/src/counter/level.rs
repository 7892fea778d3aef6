//! # The level counter: a number that goes up and down, with a stated error
//!
//! ```text
//! per index, one granule:  ┌ d: i8 ┬ S: i8 ┬ … ┬ node total: u64 (more than one node only) ┐
//!                          └───────┴───────┴───┴───────────────────────────────────────────┘
//! shared:                  word = total << 12 | spills and folds in flight
//! ```
//! * `d`, the *differential*: what this index has counted and not yet spilled. Written by its
//!   owner only (sequences of that index; nobody's and the fallback's by compare-and-swap).
//! * `S`, the *shadow*: how much of `d` a folder has added to the total already. Written by
//!   folders only, one at a time. The owner never looks at it.
//! * The node total of node `n` lies in the copy of index `n` (a page of its own, which the
//!   first spill from there makes local).
//!
//! ## The protocol
//! * **Update** by `delta`, `|delta| <= t` (the threshold): `v = d + delta`; not beyond `t` in
//!   delta's direction: commit `d = v`. (Behind it a byte can only be since a larger threshold.) Otherwise **spill**: `word += 1`; commit `d = v - A`, where `A = ±max(t + t/2, |v| - t)`
//!   (the *overstep*: a run in one direction spills every 1.5 t updates); `word += (A << 12) - 1`.
//!   A larger `delta` goes to the total at once.
//! * **Fold** of an index: `x = d - S`; `word += 1`; `S = d` (what was read); `word += (x << 12) - 1`.
//!   No fence, no write to `d`, nothing done on the index's CPU.
//!
//! ## Invariant
//! `value = total + Σ (d - S) + Σ A of spills that have committed and not added yet
//!        + Σ x of folds that have stored S and not added yet`, over all indices and nobody.
//!
//! Proof, by step. An update changes `value` and `d` by `delta`. A spill's commit changes `value`
//! by `delta`, `d` by `delta - A`, and the third term by `A`; its add moves `A` from the third term to the total.
//! A fold's store changes `S` by `x` and the fourth term by `x`; its add moves `x` to the
//! total. That the folder's `d` is stale changes nothing: `S` becomes the value that `x` was
//! computed with, not the value that `d` has. ∎
//!
//! ## Bounds, with `W` the widest threshold that there ever was
//! * `|d| <= W`, always: a byte is only ever stored after it was compared, inside its sequence, so
//!   it cannot wrap however many signal handlers nest. (`|v| <= W + t`; `|v| - |A| <= t` by the choice of `A`;
//!   `|A| <= max(1.5 t, W)`.)
//! * `|S| <= W`, since it was a `d`.
//! * So `|value - total| <= W × n + 1.5 × W × spills in flight` for `n` copies (indices below `high`, and nobody's);
//!   `2 × W × n` instead of `W × n` once anybody has folded. (A fold in flight adds nothing to that: take `S` as
//!   changed at the moment of its add.) [`Level::bound`].
//! * One load shows total and spills in flight of the same moment.
//!
//! ## Reading
//! * [`Level::approximate`]: one load.
//! * [`Level::compare`]: decides if the bound does. Four loads.
//! * [`Level::exact`]: total first, then the copies: what is spilled in between is missed, never counted twice. Again if the word changed or
//!   anything is in flight, 8 times at most. (A fold between the loads of a byte and of its shadow, with a spill, moves the sum by up to
//!   1.5 thresholds either way: seen in 1 of 10^6 to 10^8 reads beside them, where all 8 were disturbed.)
//!
//! In a forked child a spill of another thread that was in flight is lost, and stays counted in flight: the bound goes on
//! to cover it.
//!
//! Range: ±2^51. More than 4,095 threads in spills of one counter at one moment would show as 1 in the total meanwhile.
//! Locks: `Units::folding` (folding). Cost: an update is 20 instructions
//! inlined, none locked; a spill two locked adds (three with nodes) and a sequence, every 1.5 t updates.
#![allow(unsafe_code)] // passes the promise of the handle on

use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicU32, AtomicU64, fence};
use crate::arch::outcome::Outcome;
use crate::percpu::{Handle, Units};
use core::cell::Cell;
use core::cmp::Ordering;

/// Largest threshold: a byte must survive one more step.
pub const THRESHOLD_MAX: u32 = 125;
/// Bytes of the per-CPU allocation of a counter on one node.
pub const BYTES: usize = 2;
/// The same where there are more nodes; aligned to 8.
pub const BYTES_NODES: usize = 16;
const SHADOW: usize = 1;
const NODE: usize = 8;
/// Bits of the word that count what is in flight.
const FLIGHT_BITS: u32 = 12;
const FLIGHT: u64 = (1 << FLIGHT_BITS) - 1;

/// What a comparison knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The counter is less.
    Less,
    /// The counter is greater.
    Greater,
    /// The bound does not decide.
    CannotTell,
}

/// The kernel's formula (`calculate_normal_threshold` of mm/vmstat.c): grows with the logarithms of CPUs and memory.
#[must_use]
pub const fn default_threshold(cpus: u32, memory_bytes: u64) -> u32 {
    const fn fls(n: u64) -> u32 {
        64 - n.leading_zeros()
    }
    let threshold = 2 * fls(cpus as u64) * (1 + fls(memory_bytes >> 27));
    if threshold > THRESHOLD_MAX {
        THRESHOLD_MAX
    } else if threshold == 0 {
        1
    } else {
        threshold
    }
}

/// What a spill leaves in the byte and what it takes to the total, for a sum `v` beyond the threshold.
#[inline]
#[must_use]
pub const fn spill(v: i32, threshold: i32) -> (i8, i32) {
    let overstepped = threshold + threshold / 2;
    let beyond = v.abs() - threshold;
    let amount = if beyond > overstepped { beyond } else { overstepped } * v.signum();
    ((v - amount) as i8, amount)
}

/// See the module.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Level {
    // What every update reads.
    at: Handle,
    threshold: AtomicU32,
    nodes: u32,
    /// The widest threshold that there ever was. Only grows.
    widest: AtomicU32,
    /// 1 once somebody has folded.
    folded: AtomicU32,
    /// On a line of its own.
    shared: Shared,
}

#[repr(C, align(64))]
#[derive(Debug)]
struct Shared(AtomicU64);

impl Level {
    /// Zero. `threshold` is clamped to `1..=125`.
    ///
    /// # Safety
    /// `at` is a zeroed allocation of [`BYTES`] (with more than one node [`BYTES_NODES`], aligned to 8) that nothing
    /// else uses, and every call is given the units that it is of.
    #[must_use]
    pub const unsafe fn new(at: Handle, threshold: u32, nodes: u32) -> Self {
        let threshold = clamp(threshold);
        Self {
            at,
            threshold: AtomicU32::new(threshold),
            nodes,
            widest: AtomicU32::new(threshold),
            folded: AtomicU32::new(0),
            shared: Shared(AtomicU64::new(0)),
        }
    }

    /// Its allocation.
    #[must_use]
    pub const fn handle(&self) -> Handle {
        self.at
    }

    /// Counts `delta` up or down. Async-signal-safe. `units` are those of the allocation.
    #[inline(always)]
    pub fn add(&self, units: &Units, delta: i64) {
        if delta == i64::from(delta as i8)
            // SAFETY: `new` was promised the byte; a delta of a byte's size.
            && unsafe { units.step(self.at, delta as i32, &self.threshold) } == Outcome::Done(())
        {
            return;
        }
        self.add_cold(units, delta);
    }

    #[cold]
    #[inline(never)]
    fn add_cold(&self, units: &Units, delta: i64) {
        let threshold = self.threshold.load(Relaxed) as i32;
        if delta.unsigned_abs() > threshold as u64 {
            // Relaxed: one whole change of the value.
            self.shared.0.fetch_add((delta << FLIGHT_BITS) as u64, Relaxed);
            self.count_node(units, delta);
            return;
        }
        let delta = delta as i32;
        // Without a spill first: the fast path was aborted or refused for its index, or there is none.
        let fits = |d: i8| {
            let v = i32::from(d) + delta;
            (v.abs() <= threshold).then_some(v as i8)
        };
        // SAFETY: the byte of `new`.
        if unsafe { units.change_byte(self.at, fits) } {
            return;
        }
        // In flight before the commit can be seen: a locked operation, in order with the store.
        self.shared.0.fetch_add(1, Acquire);
        let amount = Cell::new(0);
        // SAFETY: as above.
        unsafe {
            units.change_byte(self.at, |d| {
                let v = i32::from(d) + delta;
                let (byte, out) = if v.abs() <= threshold { (v as i8, 0) } else { spill(v, threshold) };
                amount.set(out);
                Some(byte)
            });
        }
        let amount = i64::from(amount.get());
        // Release: the committed byte is seen by who sees this.
        self.shared.0.fetch_add(((amount << FLIGHT_BITS) - 1) as u64, Release);
        self.count_node(units, amount);
    }

    fn count_node(&self, units: &Units, amount: i64) {
        if self.nodes > 1 {
            let node = units.node() % units.indices();
            units.raise(node);
            // SAFETY: `new` was promised a word there.
            unsafe { units.shared_word(self.at.at(NODE), node) }.fetch_add(amount as u64, Relaxed);
        }
    }

    const fn total(word: u64) -> i64 {
        word as i64 >> FLIGHT_BITS
    }

    /// The total. Off by at most [`Level::bound`]. One load.
    #[inline]
    #[must_use]
    pub fn approximate(&self) -> i64 {
        // Relaxed: one word.
        Self::total(self.shared.0.load(Relaxed))
    }

    /// The total with the bound of the same moment.
    fn bounded(&self, units: &Units) -> (i64, u64) {
        // Acquire: what is loaded next only grows, and is as it was at this moment or later.
        let word = self.shared.0.load(Acquire);
        let copies = units.high() as u64 + 1;
        let widest = u64::from(self.widest.load(Relaxed));
        let settled = widest * copies * u64::from(1 + self.folded.load(Relaxed));
        (Self::total(word), settled + (3 * widest).div_ceil(2) * (word & FLIGHT))
    }

    /// By how much [`Level::approximate`] may be off now: threshold × indices in use (twice that once somebody has
    /// folded), and 1.5 × threshold for each thread inside a spill.
    #[must_use]
    pub fn bound(&self, units: &Units) -> u64 {
        self.bounded(units).1
    }

    /// Compares with `value`, by the total and the bound of one moment.
    #[must_use]
    pub fn compare(&self, units: &Units, value: i64) -> Comparison {
        let (total, bound) = self.bounded(units);
        if total.saturating_add_unsigned(bound) < value {
            Comparison::Less
        } else if total.saturating_sub_unsigned(bound) > value {
            Comparison::Greater
        } else {
            Comparison::CannotTell
        }
    }

    /// Compares with `value`: by the bound if that decides, else by the sum.
    #[must_use]
    pub fn compare_exact(&self, units: &Units, value: i64) -> Ordering {
        match self.compare(units, value) {
            Comparison::Less => Ordering::Less,
            Comparison::Greater => Ordering::Greater,
            Comparison::CannotTell => self.exact(units).cmp(&value),
        }
    }

    fn sum_once(&self, units: &Units) -> (i64, bool) {
        // Acquire: the copies are read later, so a spill or fold in this total is in its copy too.
        let word = self.shared.0.load(Acquire);
        let copies = (0..units.high()).map(Some).chain([None]);
        let differences = copies.map(|index| {
            // SAFETY: the two bytes of `new`.
            unsafe { i64::from(units.byte(self.at, index)) - i64::from(units.byte(self.at.at(SHADOW), index)) }
        });
        let value = Self::total(word) + differences.sum::<i64>();
        // The copies were read before the word is read again.
        fence(Acquire);
        // Acquire pairs with every locked operation on the word: if it has not changed, no spill
        // and no fold that the copies showed began after it was first read.
        (value, word & FLIGHT == 0 && self.shared.0.load(Relaxed) == word)
    }

    /// The sum. Exact if nobody changes the counter meanwhile; else every change that ended before the call is in it,
    /// but for 1.5 thresholds for each spill that is in flight or began meanwhile: those are looked
    /// for and the sum is taken again, 8 times at most. A load of two bytes per index. Takes no lock.
    #[must_use]
    pub fn exact(&self, units: &Units) -> i64 {
        let mut sum = self.sum_once(units);
        for _ in 0..7 {
            if sum.1 {
                break;
            }
            core::hint::spin_loop();
            sum = self.sum_once(units);
        }
        sum.0
    }

    /// What was spilled from `node` so far; off by what is in the indices' bytes, as [`Level::approximate`] is. Folding
    /// does not show here: nobody knows from where a byte was counted. On one node, the total.
    #[must_use]
    pub fn node(&self, units: &Units, node: usize) -> i64 {
        if self.nodes <= 1 {
            return self.approximate();
        }
        // SAFETY: `new` was promised a word there.
        unsafe { units.shared_word(self.at.at(NODE), node % units.indices()) }.load(Relaxed) as i64
    }

    /// Brings the total up to date with every index, for whoever reads approximately; whether anything changed. To be called
    /// by period, by anybody. Folders take turns. Nothing is done on any other CPU.
    pub fn fold(&self, units: &Units) -> bool {
        let _turn = units.folding(self.at);
        // Before the first shadow is stored, and seen by who sees the total that comes of it.
        self.folded.store(1, Release);
        let mut changed = false;
        for index in (0..units.high()).map(Some).chain([None]) {
            // SAFETY: the two bytes of `new`; shadows are the lock holder's.
            let (d, shadow) = unsafe { (units.byte(self.at, index), units.byte(self.at.at(SHADOW), index)) };
            let x = i64::from(d) - i64::from(shadow);
            if x != 0 {
                changed = true;
                self.shared.0.fetch_add(1, Acquire);
                // SAFETY: as above.
                unsafe { units.set_byte(self.at.at(SHADOW), index, d) };
                // Release: who sees the new total sees the shadow.
                self.shared.0.fetch_add(((x << FLIGHT_BITS) - 1) as u64, Release);
            }
        }
        changed
    }

    /// The threshold.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold.load(Relaxed)
    }

    /// Sets the threshold (clamped to `1..=125`). The bound goes by the widest that there ever was, because an index
    /// that counts no more holds what it holds.
    pub fn set_threshold(&self, threshold: u32) {
        let threshold = clamp(threshold);
        // Release: widened before anybody steps that far.
        self.widest.fetch_max(threshold, Release);
        self.threshold.store(threshold, Release);
    }
}

const fn clamp(threshold: u32) -> u32 {
    if threshold == 0 {
        1
    } else if threshold > THRESHOLD_MAX {
        THRESHOLD_MAX
    } else {
        threshold
    }
}
