//! An address that could not be freed, whatever it was to be.

use allotment_engine::stat::BadPointer;
use core::fmt;

/// An address that cannot be freed. It was left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadFree {
    /// The address.
    pub address: usize,
    /// Why.
    pub wrong: BadPointer,
}

impl fmt::Display for BadFree {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x} {}", self.address, self.wrong.what())
    }
}
impl core::error::Error for BadFree {}
