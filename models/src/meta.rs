//! Blocks for models: never used twice, poisoned when given back, and checked at the end.
#![allow(unsafe_code)] // raw blocks

use crate::machine;
use crate::stat::Board;
use core::ptr::NonNull;

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
        NonNull::new(machine::mapping(bytes, bytes.next_power_of_two()) as *mut u8)
    }
    /// One that is never anything else: none is used twice.
    #[must_use]
    pub fn alloc_stable(&self, board: &Board, bytes: usize) -> Option<NonNull<u8>> {
        self.alloc(board, bytes)
    }
    /// Takes a block back.
    ///
    /// # Safety
    /// It came from [`Meta::alloc`] and is unused.
    pub unsafe fn free(&self, block: NonNull<u8>, _: usize) {
        machine::retire(block.as_ptr() as usize);
    }
    /// The same.
    ///
    /// # Safety
    /// It came from [`Meta::alloc_stable`] and is unused. (Whoever looks at it finds no sheaf.)
    pub unsafe fn free_stable(&self, block: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.free(block, bytes) };
    }
}
