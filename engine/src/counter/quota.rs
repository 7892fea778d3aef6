//! # The quota counter: adds up to a limit, never past it, and refuses nothing that fits
//!
//! ```text
//! per index:  stock: u64            charged beforehand, not used yet
//! shared:     cap │ batch │ limit   charged │ phase
//! used = charged - Σ stocks <= charged <= limit
//! ```
//! [`Quota::try_add`] takes from this index's stock, [`Quota::sub`] gives to it, in one sequence that also
//! compares with `cap`: a stock stays below it. A stock that is empty is refilled with a batch charged from the
//! shared total; one that is full gives a batch back.
//!
//! | phase | `cap` | stocks | a refusal |
//! |---|---|---|---|
//! | loose (even) | 2 × batch + 1 | of their owners | none: whoever finds that a batch does not fit any more makes it tight |
//! | tight (odd) | 0: every sequence refuses | all 0 | is exact: `charged` is what is used |
//!
//! ## Becoming tight
//! Under the lock: `cap = 0`; one fence (membarrier); sweep every stock into the total; `phase` odd. Every sequence
//! that saw the old `cap` has committed before the fence ended, or aborts; later ones are refused. So between the
//! fence and the next loose phase the stocks are the sweeper's, and afterwards 0. Without the fence a sequence could
//! give to a stock that has been swept: that much would be refused though it fits (`models/tests/counters.rs`
//! fails then). It becomes loose again when `slack` fits (see there): hysteresis,
//! so that a fence is paid at most once for so many units returned.
//!
//! All that moves an amount between a stock and the total happens under the lock, so nothing is in between when a
//! tight phase begins, nor when a process forks. In the fallback a stock is changed by compare-and-swap: who changed one reads
//! `cap` again, and if it has become 0 sweeps his own stock into the total. (Either the sweeper's exchange comes later and finds
//! the amount, or the re-read finds 0; both are SeqCst.)
//!
//! ## Why a refusal is exact
//! It reads `phase` (odd), `charged`, and `phase` again (the same). All stocks are 0 in between and every use and return went to
//! `charged`: at the moment of its read, `used + n > limit`.
//!
//! ## Why the limit holds
//! `charged` grows only by a compare-and-swap to at most `limit`, and stocks are part of `charged`. A smaller limit begins
//! with a tight phase if less than `charged`.
//!
//! If the kernel refuses the fence, or may not be asked any more (a filter, or the promise that lets one), no stock is used from the first refusal on. Each goes
//! into the total with the next update of its index that the total refuses: the limit holds, refusals may come early by what other
//! indices had.
//!
//! Locks: `Units::folding`; not for signal handlers. Cost: 20 instructions inlined and none locked, a
//! lock and a compare-and-swap per batch; while tight one compare-and-swap on the shared total.
#![allow(unsafe_code)] // passes the promise of the handle on

use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::arch::atomic::{AtomicU32, AtomicU64};
use crate::arch::outcome::Outcome;
use crate::percpu::{Handle, Units};
use crate::stat::Mode;

/// Bytes of the per-CPU allocation, aligned to 8.
pub const BYTES: usize = 8;
/// Largest limit.
pub const LIMIT_MAX: u64 = 1 << 62;
/// Largest batch.
pub const BATCH_MAX: u64 = 1 << 40;

/// See the module.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Quota {
    // What every update reads, and what changes rarely.
    at: Handle,
    cap: AtomicU64,
    batch: AtomicU64,
    limit: AtomicU64,
    phase: AtomicU32,
    /// What is charged, on a line of its own: whoever takes that line takes it to write.
    shared: Shared,
}

#[repr(C, align(64))]
#[derive(Debug)]
struct Shared(AtomicU64);

/// A batch for a limit: all stocks together hold at most an eighth of it.
#[must_use]
pub const fn default_batch(limit: u64, cpus: u32) -> u64 {
    let batch = limit / (16 * if cpus == 0 { 1 } else { cpus as u64 });
    if batch == 0 {
        1
    } else if batch > BATCH_MAX {
        BATCH_MAX
    } else {
        batch
    }
}

const fn cap_of(batch: u64) -> u64 {
    2 * batch + 1
}

impl Quota {
    /// Nothing used. Both are clamped: the limit to 2^62, the batch to `1..=2^40`.
    ///
    /// # Safety
    /// `at` is a zeroed allocation of [`BYTES`] aligned to 8 that nothing else uses, and every call is given the units
    /// that it is of.
    #[must_use]
    pub const unsafe fn new(at: Handle, limit: u64, batch: u64) -> Self {
        let limit = if limit > LIMIT_MAX { LIMIT_MAX } else { limit };
        let batch = if batch == 0 {
            1
        } else if batch > BATCH_MAX {
            BATCH_MAX
        } else {
            batch
        };
        Self {
            at,
            cap: AtomicU64::new(cap_of(batch)),
            batch: AtomicU64::new(batch),
            limit: AtomicU64::new(limit),
            phase: AtomicU32::new(0),
            shared: Shared(AtomicU64::new(0)),
        }
    }

    /// Its allocation.
    #[must_use]
    pub const fn handle(&self) -> Handle {
        self.at
    }

    /// Uses `n` if they fit; whether they did.
    #[inline(always)]
    #[must_use]
    pub fn try_add(&self, units: &Units, n: u64) -> bool {
        // (More than `2^63` would wrap into a return.)
        // SAFETY: `new` was promised the word.
        if n <= LIMIT_MAX && unsafe { units.move_within(self.at, n.wrapping_neg(), &self.cap) } == Outcome::Done(()) {
            return true;
        }
        self.try_add_cold(units, n)
    }

    /// Returns `n`, which were used. False, and nothing done, if it is seen that they were not (a return into a
    /// stock is not compared with what is used elsewhere).
    #[inline(always)]
    pub fn sub(&self, units: &Units, n: u64) -> bool {
        // SAFETY: as in `try_add`.
        if n <= LIMIT_MAX && unsafe { units.move_within(self.at, n, &self.cap) } == Outcome::Done(()) {
            return true;
        }
        self.sub_cold(units, n)
    }

    /// Charges the total with `n` if they fit.
    fn charge(&self, n: u64) -> bool {
        // Acquire, so that a second look at `phase` comes after.
        let mut now = self.shared.0.load(Acquire);
        loop {
            let Some(new) = now.checked_add(n).filter(|&new| new <= self.limit.load(Relaxed)) else { return false };
            // SeqCst, with the look behind it and the store in `set_limit`: who charges without the lock finds a smaller limit, or was
            // before it. (Who owns the stocks is decided by `phase` and the fence.)
            match self.shared.0.compare_exchange(now, new, SeqCst, Acquire) {
                Ok(_) if new <= self.limit.load(SeqCst) => return true,
                // (Meanwhile others were refused, as beside each change of the limit.)
                Ok(_) => {
                    self.discharge(n);
                    return false;
                }
                Err(other) => now = other,
            }
        }
    }

    /// Takes `n` off the total; false if there are not so many.
    fn discharge(&self, n: u64) -> bool {
        // Without a look at it first, which would fetch the line twice. Relaxed: as above.
        if self.shared.0.fetch_sub(n, Relaxed) >= n {
            return true;
        }
        // Meanwhile others were refused, as if everything were used.
        self.shared.0.fetch_add(n, Relaxed);
        false
    }

    /// One move of this index's stock in any mode, with the second look of the fallback.
    fn move_stock(&self, units: &Units, delta: u64, held: bool) -> bool {
        // SAFETY: the word of `new`.
        let done = unsafe { units.move_slowly(self.at, delta, &self.cap) };
        if done && units.mode() == Mode::Fallback && self.cap.load(SeqCst) == 0 {
            // Swept already, or about to be: one of us finds it. Under the lock: what is swept is in nobody's hand
            // while somebody else becomes tight, and in a fork.
            let _turn = (!held).then(|| units.folding(self.at));
            if self.cap.load(SeqCst) == 0 {
                self.sweep(units);
            }
        }
        done
    }

    /// The stock of this index into the total, where there was no fence for the others. The lock is held.
    fn give_own(&self, units: &Units) {
        /// `cap` refuses all sequences by now, but this one.
        static OPEN: AtomicU64 = AtomicU64::new(LIMIT_MAX);
        let index = units.here();
        if index >= units.high() {
            return;
        }
        // SAFETY: the word of `new`, read.
        let stock = unsafe { units.shared_word(self.at, index) }.load(Relaxed);
        // SAFETY: the word of `new`. (A thread that is moved takes as much of another's, or is refused.)
        if stock > 0 && unsafe { units.move_slowly(self.at, stock.wrapping_neg(), &OPEN) } {
            self.discharge(stock);
        }
    }

    /// All stocks into the total.
    fn sweep(&self, units: &Units) {
        for index in 0..units.high() {
            // SAFETY: the word of `new`; `cap` is 0, and sequences were fenced.
            let stock = unsafe { units.take_all(self.at, index) };
            // (More than is charged can only be there by a return of what was not used.)
            if stock > 0 && !self.discharge(stock) {
                self.shared.0.store(0, Relaxed);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn try_add_cold(&self, units: &Units, n: u64) -> bool {
        if n > LIMIT_MAX {
            return false;
        }
        // The fast path was aborted, or its index refused, or there is none. (While tight a word more is all.)
        if self.cap.load(Relaxed) != 0 && self.move_stock(units, n.wrapping_neg(), false) {
            return true;
        }
        let batch = self.batch.load(Relaxed);
        loop {
            let phase = self.phase.load(Acquire);
            if phase % 2 == 1 {
                if self.charge(n) {
                    return true;
                }
                // Acquire loads are in order: `charged` was read between the two.
                if self.phase.load(Acquire) == phase {
                    return false;
                }
                continue;
            }
            let _turn = units.folding(self.at);
            if self.cap.load(Relaxed) == 0 {
                if self.phase.load(Relaxed) % 2 == 1 {
                    continue; // tight meanwhile
                }
                // There was no fence: without the stocks.
                self.give_own(units);
                return self.charge(n);
            }
            if n <= batch && self.charge(n + batch) {
                if !self.move_stock(units, batch, true) {
                    self.discharge(batch);
                }
                return true;
            }
            // A large one is no reason to be tight while it fits with room to spare.
            if n > batch && self.charge(n) {
                return true;
            }
            if !self.tighten(units) {
                self.give_own(units);
                return self.charge(n);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn sub_cold(&self, units: &Units, n: u64) -> bool {
        if n > LIMIT_MAX {
            return false;
        }
        let batch = self.batch.load(Relaxed);
        // (A return that leaves no room in the stock even when it is empty goes to the total.)
        if n <= batch && self.cap.load(Relaxed) != 0 {
            if self.move_stock(units, n, false) {
                return true;
            }
            if !units.is_closed() {
                let _turn = units.folding(self.at);
                if self.move_stock(units, batch.wrapping_neg(), true) {
                    self.discharge(batch);
                }
                if self.move_stock(units, n, true) {
                    return true;
                }
            }
        }
        // (`charged` is never less than what is used.)
        if !self.discharge(n) {
            return false;
        }
        if self.phase.load(Relaxed) % 2 == 1 && self.charged().saturating_add(self.slack(units)) <= self.limit() {
            let _turn = units.folding(self.at);
            self.loosen(units);
        }
        true
    }

    /// What must fit before the stocks are used again: two batches for each index, at most a quarter of the limit, but
    /// two batches in any case (else the next refill would be tight at once; a limit of less never has stocks again).
    fn slack(&self, units: &Units) -> u64 {
        let two = 2 * self.batch.load(Relaxed);
        two.saturating_mul(units.high() as u64).min(self.limit() / 4).max(two)
    }

    /// Begins a tight phase; the lock is held. False if there is no fence.
    fn tighten(&self, units: &Units) -> bool {
        // SeqCst: the fallback's pair, see the module.
        self.cap.swap(0, SeqCst);
        if !units.fence() {
            return false;
        }
        self.sweep(units);
        // Release: who sees it sees the swept total.
        self.phase.fetch_add(1, Release);
        true
    }

    /// Ends it; the lock is held.
    fn loosen(&self, units: &Units) {
        if self.phase.load(Relaxed) % 2 == 1 && self.charged().saturating_add(self.slack(units)) <= self.limit() {
            // Before a stock can be given anything.
            self.phase.fetch_add(1, SeqCst);
            self.cap.store(cap_of(self.batch.load(Relaxed)), SeqCst);
        }
    }

    /// What is charged: at least what is used, and more by at most what is in stocks (2 batches for each index in
    /// use). One load.
    #[inline]
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.shared.0.load(Relaxed)
    }

    /// What is used. Exact if nobody changes it meanwhile. A load per index, no lock.
    #[must_use]
    pub fn used(&self, units: &Units) -> u64 {
        // Stocks first: what is moved meanwhile is then counted as used rather than missed.
        let stocks = (0..units.high()).fold(0_u64, |sum, index| {
            // SAFETY: the word of `new`, read.
            sum.saturating_add(unsafe { units.shared_word(self.at, index) }.load(Acquire))
        });
        self.charged().saturating_sub(stocks)
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// The batch.
    #[must_use]
    pub fn batch(&self) -> u64 {
        self.batch.load(Relaxed)
    }

    /// Whether stocks are switched off because the limit is near.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.phase.load(Relaxed) % 2 == 1
    }

    /// Changes the limit (clamped to 2^62). When it returns nothing more can be used beyond the new one; what was, stays
    /// used. Costs a fence if less than that is charged now.
    pub fn set_limit(&self, units: &Units, limit: u64) {
        let _turn = units.folding(self.at);
        // SeqCst: see `charge`.
        self.limit.store(limit.min(LIMIT_MAX), SeqCst);
        if self.is_tight() {
            self.loosen(units);
        } else if self.charged() > limit {
            let _ = self.tighten(units);
        }
    }
}
