//! Blocks for models: never used twice, poisoned when given back, and checked at the end.
#![allow(unsafe_code)] // raw blocks

use crate::arch::operands::REACH;
use crate::machine;
use crate::stat::Board;
use core::ptr::NonNull;

const _: () = assert!(machine::LOW_ENDS <= REACH);

/// See the engine's `meta`.
#[derive(Debug, Default)]
pub struct Meta;

/// Where the engine looks for room for its sets. (Models bring theirs.)
#[must_use]
pub const fn place() -> usize {
    machine::LOW_ENDS / 4
}

impl Meta {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
    /// A block.
    #[must_use]
    pub fn alloc(&self, _: &Board, bytes: usize) -> Option<NonNull<u8>> {
        NonNull::new(machine::mapping(bytes, 128) as *mut u8)
    }
    /// One that words reach: all that the machine maps a page of at most.
    #[must_use]
    pub fn alloc_low(&self, board: &Board, bytes: usize) -> Option<NonNull<u8>> {
        self.alloc(board, bytes)
    }
    /// Takes a block back.
    ///
    /// # Safety
    /// It came from [`Meta::alloc`] and is unused.
    pub unsafe fn free(&self, block: NonNull<u8>, _: usize) {
        machine::retire(block.as_ptr() as usize);
    }
}
