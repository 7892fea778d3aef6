//! What `arch/contract.rs` of the engine says of units, step by step.
#![allow(unsafe_code)] // words of units by address

use super::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use super::outcome::Outcome;
use super::seq::Running;
use crate::cpu::sim::Interrupted;
use crate::machine;

/// log2 of [`UNIT`]: small units, so that a schedule's memory is.
pub const UNIT_SHIFT: u32 = 12;
/// Bytes of a unit.
pub const UNIT: usize = 1 << UNIT_SHIFT;

/// As in the engine.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// This thread's area.
    pub base: isize,
    /// The switch.
    pub high: &'a AtomicUsize,
    /// The address in nobody's unit.
    pub at: usize,
}

/// What every sequence begins with, then `body` with the address of this index's copy.
fn sequence(place: Place<'_>, body: impl FnOnce(&Running, usize) -> Result<Outcome<()>, Interrupted>) -> Outcome<()> {
    let running = Running(machine::begin());
    let index = running.0.index() as usize;
    let done = (|| -> Result<_, Interrupted> {
        if index >= running.step(|| place.high.peek())? {
            return Ok(Outcome::Refused);
        }
        body(&running, place.at + (index + 1) * UNIT)
    })();
    done.unwrap_or(Outcome::Aborted)
}

/// See the contracts.
///
/// # Safety
/// `place.at` is a word of a chunk.
pub unsafe fn add<const INDEX: isize>(place: Place<'_>, n: u64) -> Outcome<()> {
    sequence(place, |running, at| {
        // SAFETY: a word of a unit.
        let word = unsafe { &*(at as *const AtomicU64) };
        running.step(|| word.poke(word.peek().wrapping_add(n)))?;
        Ok(Outcome::Done(()))
    })
}
/// What `up` and `down` are.
fn step(place: Place<'_>, delta: i32, refuse: impl Fn(i32) -> bool) -> Outcome<()> {
    sequence(place, |running, at| {
        // SAFETY: a byte of a unit.
        let byte = unsafe { &*(at as *const AtomicU8) };
        let value = i32::from(running.step(|| byte.peek())? as i8) + delta;
        if running.step(|| refuse(value))? {
            return Ok(Outcome::Refused);
        }
        running.step(|| byte.poke(value as u8))?;
        Ok(Outcome::Done(()))
    })
}
/// See the contracts.
///
/// # Safety
/// As [`add`].
pub unsafe fn up<const INDEX: isize>(place: Place<'_>, delta: u32, threshold: &AtomicU32) -> Outcome<()> {
    step(place, delta as i32, |value| value > threshold.peek() as i32)
}
/// See the contracts.
///
/// # Safety
/// As [`add`].
pub unsafe fn down<const INDEX: isize>(place: Place<'_>, delta: u32, threshold: &AtomicU32) -> Outcome<()> {
    step(place, -(delta as i32), |value| value < -(threshold.peek() as i32))
}
/// See the contracts.
///
/// # Safety
/// As [`add`].
pub unsafe fn move_within<const INDEX: isize>(place: Place<'_>, delta: u64, cap: &AtomicU64) -> Outcome<()> {
    sequence(place, |running, at| {
        // SAFETY: a word of a unit.
        let word = unsafe { &*(at as *const AtomicU64) };
        let value = running.step(|| word.peek())?.wrapping_add(delta);
        if value >= running.step(|| cap.peek())? {
            return Ok(Outcome::Refused);
        }
        running.step(|| word.poke(value))?;
        Ok(Outcome::Done(()))
    })
}
/// See the contracts.
///
/// # Safety
/// As [`add`].
pub unsafe fn swap<const INDEX: isize>(place: Place<'_>, old: u8, new: u8) -> Outcome<()> {
    sequence(place, |running, at| {
        // SAFETY: a byte of a unit.
        let byte = unsafe { &*(at as *const AtomicU8) };
        if running.step(|| byte.peek())? != old {
            return Ok(Outcome::Refused);
        }
        running.step(|| byte.poke(new))?;
        Ok(Outcome::Done(()))
    })
}
