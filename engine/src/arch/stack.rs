//! # Where a stack walk begins: this function's own registers
//!
//! Callee-saved registers as they are here, numbered as the unwind tables number them, with an address of this
//! code. A walk that starts with them finds the callers by the tables of this very function.
#![allow(unsafe_code)] // a weak name

use super::platform;
pub use super::platform::stack::{
    FRAME, LINK, RETURN, Registers, SAVED, SIGNAL_AT, SIGNAL_ORDER, STACK, frame_pointer, is_trampoline, plain,
    registers,
};

/// The most that the allocator takes of a thread's stack (see docs/limits.md), from where it comes in.
const TAKEN: usize = 4096;

/// Looks at the stack as far down as the caller's callees may go. Where it ends before, the fault comes here: a program whose
/// handler jumps out of it (on a stack of its own) leaves nothing half done.
#[inline(always)]
pub fn probe() {
    platform::stack::probe::<TAKEN>();
}

/// The address of `_dl_find_object` (glibc 2.35: what is mapped at an address, without a lock), or 0.
#[must_use]
pub fn finder() -> usize {
    crate::weak_address!("_dl_find_object")
}
