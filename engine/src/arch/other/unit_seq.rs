//! # No sequences on per-CPU memory
//!
//! Each is refused: locked operations behind the cold call serve this processor.
#![allow(unsafe_code)] // the signatures of those that are written

use crate::arch::atomic::{AtomicU32, AtomicU64};
use crate::arch::operands::Place;
use crate::arch::outcome::Outcome;

/// Always refused: locked operations behind the cold call serve this processor.
///
/// # Safety
/// None needed.
pub unsafe fn add<const INDEX: isize>(_: Place<'_>, _: u64) -> Outcome<()> {
    Outcome::Refused
}
/// As [`add`].
///
/// # Safety
/// None needed.
pub unsafe fn up<const INDEX: isize>(_: Place<'_>, _: u32, _: &AtomicU32) -> Outcome<()> {
    Outcome::Refused
}
/// As [`add`].
///
/// # Safety
/// None needed.
pub unsafe fn down<const INDEX: isize>(_: Place<'_>, _: u32, _: &AtomicU32) -> Outcome<()> {
    Outcome::Refused
}
/// As [`add`].
///
/// # Safety
/// None needed.
pub unsafe fn move_within<const INDEX: isize>(_: Place<'_>, _: u64, _: &AtomicU64) -> Outcome<()> {
    Outcome::Refused
}
/// As [`add`].
///
/// # Safety
/// None needed.
pub unsafe fn swap<const INDEX: isize>(_: Place<'_>, _: u8, _: u8) -> Outcome<()> {
    Outcome::Refused
}
