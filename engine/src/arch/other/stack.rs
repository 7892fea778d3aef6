//! # No registers
//!
//! The tables are not read on this processor, and its frame pointer is not known.
#![allow(unsafe_code)] // the signature

/// None.
pub type Registers = [usize; 3];
/// The numbers of the frame pointer, the stack pointer and the return address in [`Registers`].
pub const FRAME: usize = 0;
/// See [`FRAME`].
pub const STACK: usize = 1;
/// See [`FRAME`].
pub const RETURN: usize = 2;
/// See [`FRAME`].
pub const LINK: usize = RETURN;
/// How many registers a function's table may name: those that calls keep, and the return address.
pub const SAVED: usize = 1;
/// None.
pub const SIGNAL_AT: usize = 0;
/// None.
pub const SIGNAL_ORDER: [usize; 0] = [];

/// Zeros.
#[must_use]
pub fn registers() -> Registers {
    [0; 3]
}
/// A return address as it is executed.
#[must_use]
pub fn plain(address: usize) -> usize {
    address
}
/// Not known.
///
/// # Safety
/// None needed.
#[must_use]
pub unsafe fn is_trampoline(_code: usize) -> bool {
    false
}
/// Not known.
#[must_use]
pub fn frame_pointer() -> usize {
    0
}
/// Nothing.
pub fn probe<const BELOW: usize>() {}
