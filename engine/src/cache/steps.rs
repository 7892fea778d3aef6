//! # The sequences as steps
//!
//! The contracts of `arch/contract.rs` once more in Rust: the locked
//! fallback runs them under the set's lock, or as the bias's owner, where no step can fail; the
//! simulated backend and the model checker run them on fake CPUs, where any
//! step may find that the thread was preempted.
//!
//! A step is a load or a store of one word. The last store is the commit.

use super::layout::Word;
use super::set::{Pair, Set};
use crate::arch::atomic::AtomicU64;
use crate::arch::atomic::Ordering::{Relaxed, SeqCst};
use crate::arch::opaque;
use crate::arch::outcome::Outcome;
use crate::arch::seq::{COUNTS, MAIN};
use crate::cpu::sim::{Interrupted, Running};
use crate::stat::Tally;

/// How one step is done.
pub trait Steps {
    /// Reads a word.
    ///
    /// # Errors
    /// [`Interrupted`]: nothing was done.
    fn load(&self, word: &AtomicU64) -> Result<u64, Interrupted>;
    /// Writes a word, before the commit or as the commit.
    ///
    /// # Errors
    /// [`Interrupted`]: nothing was done.
    fn store(&self, word: &AtomicU64, value: u64) -> Result<(), Interrupted>;
    /// Writes both words of a pair at once, as the commit.
    ///
    /// # Errors
    /// [`Interrupted`]: nothing was done.
    fn store_both(&self, pair: &Pair, main: u64, spare: u64) -> Result<(), Interrupted>;
    /// A slot of a sheaf by its address.
    #[allow(unsafe_code, reason = "a slot is known by its address only")]
    fn slot(&self, address: u64) -> &AtomicU64 {
        // SAFETY: the address came out of a word of a set, so it is a slot of a
        // sheaf, or its lower barrier; sheaves are never unmapped.
        unsafe { &*(address as usize as *const AtomicU64) }
    }
    /// Counts an allocation of a class, whose main word this is (not exact under interruption, as in the assembly).
    fn allocated(&self, class: usize, main: &AtomicU64);
    /// Counts a free likewise.
    fn freed(&self, class: usize, main: &AtomicU64);
}

fn outcome<T>(result: Result<Option<T>, Interrupted>) -> Outcome<T> {
    match result {
        Ok(Some(done)) => Outcome::Done(done),
        Ok(None) => Outcome::Refused,
        Err(Interrupted) => Outcome::Aborted,
    }
}

/// The same word, addressed by one register and a constant: what the sequences do so that a load is served from the store before it
/// (`arch/x86_64/seq.rs`).
#[inline(always)]
#[allow(unsafe_code, reason = "the address of a reference")]
fn by_register(word: &AtomicU64) -> &AtomicU64 {
    // SAFETY: it is the same.
    unsafe { &*(opaque((&raw const *word) as usize) as *const AtomicU64) }
}

/// `pop` of the contracts.
pub fn pop(steps: &(impl Steps + ?Sized), set: &Set, class: usize) -> Outcome<usize> {
    outcome((|| {
        let main = by_register(&set.pairs[class].main);
        let word = Word(opaque(steps.load(main)? as usize) as u64);
        if word == Word::NONE {
            return Ok(None);
        }
        let object = steps.load(steps.slot(word.popped().0))?;
        if Word::is_barrier(object) {
            return Ok(None);
        }
        steps.allocated(class, main);
        steps.store(main, word.popped().0)?;
        Ok(Some(object as usize))
    })())
}

/// `push` of the contracts.
pub fn push(steps: &(impl Steps + ?Sized), set: &Set, class: usize, object: usize) -> Outcome<()> {
    outcome((|| {
        let main = by_register(&set.pairs[class].main);
        let word = Word(opaque(steps.load(main)? as usize) as u64);
        if word == Word::NONE {
            return Ok(None);
        }
        let slot = steps.slot(word.0);
        if Word::is_barrier(steps.load(slot)?) {
            return Ok(None);
        }
        steps.store(slot, object as u64)?;
        steps.freed(class, main);
        steps.store(main, word.pushed().0)?;
        Ok(Some(()))
    })())
}

/// `swap` of the contracts.
pub fn swap(steps: &(impl Steps + ?Sized), word: &AtomicU64, old: u64, new: u64) -> Outcome<()> {
    outcome((|| {
        if steps.load(word)? != old {
            return Ok(None);
        }
        steps.store(word, new)?;
        Ok(Some(()))
    })())
}

/// `exchange` of the contracts.
pub fn exchange(steps: &(impl Steps + ?Sized), set: &Set, class: usize, witness: isize) -> Outcome<()> {
    outcome((|| {
        let pair = &set.pairs[class];
        let (main, spare) = (steps.load(&pair.main)?, steps.load(&pair.spare)?);
        let serves = |word: u64| {
            let slot = word.wrapping_add_signed(witness as i64);
            Ok(word != 0 && !Word::is_barrier(steps.load(steps.slot(slot))?))
        };
        if serves(main)? || !serves(spare)? {
            return Ok(None);
        }
        steps.store_both(pair, spare, main)?;
        Ok(Some(()))
    })())
}

/// Steps under the lock of a set, or of the bias's owner: none can be interrupted but by a handler, which leaves the set alone.
pub(super) struct Locked;

impl Steps for Locked {
    fn load(&self, word: &AtomicU64) -> Result<u64, Interrupted> {
        Ok(word.load(Relaxed))
    }
    fn store(&self, word: &AtomicU64, value: u64) -> Result<(), Interrupted> {
        word.store(value, Relaxed);
        Ok(())
    }
    fn store_both(&self, pair: &Pair, main: u64, spare: u64) -> Result<(), Interrupted> {
        pair.main.store(main, Relaxed);
        pair.spare.store(spare, Relaxed);
        Ok(())
    }
    fn allocated(&self, _: usize, main: &AtomicU64) {
        add_under_lock(main, COUNTS - MAIN);
    }
    fn freed(&self, _: usize, main: &AtomicU64) {
        add_under_lock(main, COUNTS - MAIN + size_of::<AtomicU64>());
    }
}

/// Steps on a fake CPU, counted.
pub(super) struct Simulated<'a> {
    pub running: &'a Running<'a>,
    pub tally: &'a Tally,
}

impl Steps for Simulated<'_> {
    fn load(&self, word: &AtomicU64) -> Result<u64, Interrupted> {
        self.running.step(|| word.load(SeqCst))
    }
    fn store(&self, word: &AtomicU64, value: u64) -> Result<(), Interrupted> {
        self.running.step(|| word.store(value, SeqCst))
    }
    fn store_both(&self, pair: &Pair, main: u64, spare: u64) -> Result<(), Interrupted> {
        self.running.step(|| {
            pair.main.store(main, SeqCst);
            pair.spare.store(spare, SeqCst);
        })
    }
    fn allocated(&self, class: usize, _: &AtomicU64) {
        self.tally.class[class].allocs.fetch_add(1, Relaxed);
    }
    fn freed(&self, class: usize, _: &AtomicU64) {
        self.tally.class[class].frees.fetch_add(1, Relaxed);
    }
}

/// Adds one to the word of the tally so many bytes from a set's main word, which nobody else writes: no locked add.
#[allow(unsafe_code, reason = "a tally is known by its set's address, as the sequences know it")]
#[inline(always)]
fn add_under_lock(main: &AtomicU64, at: usize) {
    // SAFETY: the word is of a set that serves, or served, a CPU, so it has a tally: see `COUNTS`.
    let word = unsafe { &*(((&raw const *main) as usize + at) as *const AtomicU64) };
    word.store(word.load(Relaxed) + 1, Relaxed);
}
