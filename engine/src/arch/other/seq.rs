//! # No sequences on malloc's sets
//!
//! Each is refused: the locked sets behind the cold call serve this processor.
#![allow(unsafe_code)] // the signatures of those that are written

use crate::arch::outcome::Outcome;

/// Always refused: the locked sets behind the cold call serve this processor.
///
/// # Safety
/// None needed.
#[must_use]
pub unsafe fn pop<const BARE: bool>(_: *const u8, _: isize, _: usize) -> Outcome<usize> {
    Outcome::Refused
}
/// As [`pop`].
///
/// # Safety
/// None needed.
#[must_use]
pub unsafe fn push<const BARE: bool>(_: *const u8, _: isize, _: usize, _: usize) -> Outcome<()> {
    Outcome::Refused
}
/// As [`pop`].
///
/// # Safety
/// None needed.
#[must_use]
pub unsafe fn pop_batch(_: *const u8, _: isize, _: usize, _: *mut usize, _: usize) -> Outcome<usize> {
    Outcome::Refused
}
/// As [`pop`].
///
/// # Safety
/// None needed.
#[must_use]
pub unsafe fn push_batch(_: *const u8, _: isize, _: usize, _: *const usize, _: usize) -> Outcome<usize> {
    Outcome::Refused
}
/// As [`pop`].
///
/// # Safety
/// None needed.
#[must_use]
pub unsafe fn swap(_: *const u8, _: isize, _: usize, _: u64, _: u64) -> Outcome<()> {
    Outcome::Refused
}
/// As [`exchange`].
pub const EXCHANGES: bool = false;
/// As [`pop`].
///
/// # Safety
/// None needed.
#[must_use]
pub unsafe fn exchange(_: *const u8, _: isize, _: usize, _: isize) -> Outcome<()> {
    Outcome::Refused
}
/// As [`pop`].
///
/// # Safety
/// None needed.
#[must_use]
pub unsafe fn add(_: *const u8, _: isize, _: usize, _: u64) -> Outcome<()> {
    Outcome::Refused
}
/// As [`pop`].
///
/// # Safety
/// None needed.
#[must_use]
pub unsafe fn switch(_: *const u8, _: isize, _: usize, _: usize) -> Outcome<()> {
    Outcome::Refused
}
