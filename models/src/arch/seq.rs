//! What `arch/contract.rs` of the engine says of sets, step by step.
//!
//! A sequence begins on the CPU that runs the thread; every step finds out whether it
//! still does. The CPU cannot change within it: that is a preemption.
#![allow(unsafe_code)] // the board's words by address

use super::atomic::{AtomicU64, AtomicUsize};
pub use super::operands::{BARRIER, MAIN, RseqArea};
pub use super::outcome::Outcome;
use crate::cache::layout::Word;
use crate::cache::set::{Pair, Set};
use crate::cache::sets::Sets;
use crate::cache::steps::{self, Steps};
use crate::cpu::sim::Interrupted;
use crate::machine::{self, Sabotage, Ticket};
use crate::stat::board::{BOARD_BYTES, SETS_MAX};

/// Bytes from the board to `slots`.
pub const SLOTS: usize = core::mem::offset_of!(Sets, slots);
/// Bytes from a set to its tally.
pub const TALLY: usize = SETS_MAX * 4096 + BOARD_BYTES;
/// Bytes from a set to its counts by class.
pub const COUNTS: usize = TALLY + core::mem::offset_of!(crate::stat::Tally, class);

pub(super) struct Running(pub(super) Ticket);

impl Running {
    pub(super) fn step<T>(&self, step: impl FnOnce() -> T) -> Result<T, Interrupted> {
        machine::point();
        if self.0.holds() {
            Ok(step())
        } else {
            machine::trace(|| "interrupted".into());
            Err(Interrupted)
        }
    }
    /// `set = board + board.slots[area.cpu_id]`, and whether it is the void set.
    fn set(&self, board: *const u8) -> Result<(&'static Set, bool), Interrupted> {
        // SAFETY: a word of the board.
        let slot = unsafe { &*board.add(SLOTS + self.0.cpu() as usize * 8).cast::<AtomicUsize>() };
        let offset = self.step(|| slot.peek())?;
        // SAFETY: an offset in a slot leads to a set.
        Ok((unsafe { &*board.wrapping_add(offset).cast::<Set>() }, offset == 0))
    }
}

impl Steps for Running {
    fn load(&self, word: &AtomicU64) -> Result<u64, Interrupted> {
        self.step(|| word.peek())
    }
    fn store(&self, word: &AtomicU64, value: u64) -> Result<(), Interrupted> {
        machine::trace(|| format!("stores {value:x} to {:x}", &raw const *word as usize));
        self.step(|| word.poke(value))
    }
    fn store_both(&self, pair: &Pair, main: u64, spare: u64) -> Result<(), Interrupted> {
        machine::trace(|| format!("stores {main:x}, {spare:x} to {:x}", &raw const *pair as usize));
        if machine::sabotage() == Sabotage::ExchangeInHalves {
            self.step(|| pair.main.poke(main))?;
            return self.step(|| pair.spare.poke(spare));
        }
        self.step(|| {
            pair.main.poke(main);
            pair.spare.poke(spare);
        })
    }
    fn slot(&self, address: u64) -> &AtomicU64 {
        // SAFETY: a slot of a sheaf, which is never unmapped.
        unsafe { &*(address as usize as *const AtomicU64) }
    }
    fn allocated(&self, _: usize, _: &AtomicU64) {}
    fn freed(&self, _: usize, _: &AtomicU64) {}
}

/// What every sequence begins with, then `body`.
fn sequence<T>(board: *const u8, body: impl FnOnce(&Running, &'static Set) -> Outcome<T>) -> Outcome<T> {
    let running = Running(machine::begin());
    machine::trace(|| format!("sequence: index {} cpu {}", running.0.index(), running.0.cpu()));
    let done = (|| -> Result<_, Interrupted> {
        let (set, void) = running.set(board)?;
        // (The void set holds nothing to pop and has no room to push, and the contracts that would write to it refuse it.)
        if void && machine::sabotage() != Sabotage::VoidServes {
            return Ok(Outcome::Refused);
        }
        Ok(body(&running, set))
    })();
    done.unwrap_or(Outcome::Aborted)
}

/// See the contracts.
///
/// # Safety
/// `board` is a `cache::Sets`.
pub unsafe fn pop<const BARE: bool>(board: *const u8, _: isize, class: usize) -> Outcome<usize> {
    sequence(board, |running, set| steps::pop(running, set, class / 16))
}
/// See the contracts.
///
/// # Safety
/// As [`pop`].
pub unsafe fn push<const BARE: bool>(board: *const u8, _: isize, class: usize, object: usize) -> Outcome<()> {
    sequence(board, |running, set| steps::push(running, set, class / 16, object))
}
/// See the contracts.
///
/// # Safety
/// As [`pop`]; `into` has room for `n`.
pub unsafe fn pop_batch(board: *const u8, _: isize, class: usize, into: *mut usize, n: usize) -> Outcome<usize> {
    // SAFETY: `at < n`.
    batch(board, class, n, true, |at, slot| unsafe { into.add(at).write(slot.peek() as usize) })
}
/// See the contracts.
///
/// # Safety
/// As [`pop`]; `from` has `n`.
pub unsafe fn push_batch(board: *const u8, _: isize, class: usize, from: *const usize, n: usize) -> Outcome<usize> {
    // SAFETY: `at < n`.
    batch(board, class, n, false, |at, slot| slot.poke(unsafe { from.add(at).read() } as u64))
}
fn batch(board: *const u8, class: usize, n: usize, out: bool, copy: impl Fn(usize, &AtomicU64)) -> Outcome<usize> {
    sequence(board, |running, set| {
        let done = (|| -> Result<_, Interrupted> {
            let main = &set.pairs[class / 16].main;
            let (mut word, mut k) = (Word(running.load(main)?), 0);
            while word != Word::NONE && k < n {
                let slot = running.slot(if out { word.popped() } else { word }.0);
                if Word::is_barrier(running.load(slot)?) {
                    break;
                }
                running.step(|| copy(k, slot))?;
                word = if out { word.popped() } else { word.pushed() };
                k += 1;
            }
            if k == 0 {
                return Ok(Outcome::Refused);
            }
            running.store(main, word.0)?;
            Ok(Outcome::Done(k))
        })();
        done.unwrap_or(Outcome::Aborted)
    })
}
/// See the contracts. What the caller then does with the old sheaf are plain accesses, which
/// do not see the buffer here: it is written first.
///
/// # Safety
/// As [`pop`]; `at` is the offset of a word in a set.
pub unsafe fn swap(board: *const u8, _: isize, at: usize, old: u64, new: u64) -> Outcome<()> {
    let outcome = sequence(board, |running, set| {
        // SAFETY: a word of the set.
        let word = unsafe { &*(&raw const *set).cast::<u8>().add(at).cast::<AtomicU64>() };
        steps::swap(running, word, old, new)
    });
    machine::flush();
    outcome
}
/// As on x86-64.
pub const EXCHANGES: bool = true;
/// See the contracts.
///
/// # Safety
/// As [`pop`].
pub unsafe fn exchange(board: *const u8, _: isize, class: usize, witness: isize) -> Outcome<()> {
    sequence(board, |running, set| steps::exchange(running, set, class / 16, witness))
}
/// Counting is no step.
///
/// # Safety
/// None needed.
#[must_use]
pub const unsafe fn add(_: *const u8, _: isize, _: usize, _: u64) -> Outcome<()> {
    Outcome::Done(())
}
/// See the contracts.
///
/// # Safety
/// As [`pop`]; `old` is the address of a set, `new` an offset for a slot.
pub unsafe fn switch(board: *const u8, _: isize, old: usize, new: usize) -> Outcome<()> {
    let outcome = sequence(board, |running, set| {
        if &raw const *set as usize != old {
            return Outcome::Refused;
        }
        // SAFETY: a word of the board.
        let slot = unsafe { &*board.add(SLOTS + running.0.cpu() as usize * 8).cast::<AtomicUsize>() };
        if machine::sabotage() == Sabotage::SwitchAnyhow {
            machine::point();
            slot.poke(new);
            return Outcome::Done(());
        }
        running.step(|| slot.poke(new)).map_or(Outcome::Aborted, Outcome::Done)
    });
    machine::flush();
    outcome
}
