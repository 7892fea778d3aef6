//! # A new allocation, and how it becomes zero
//!
//! What a search hands to the space: an address in nobody's unit, and which of its pages are not known to be zero. Those
//! are zeroed in each unit that may have been written ([`Taken::zero`]), before anybody else has it.
//!
//! Units: bytes; pages as bits of a word. Locks: none. Cost: a store or two for each unit of a small allocation.
#![allow(unsafe_code)] // writes to addresses

use super::units::UNIT;
use crate::arch::{PAGE, PAGE_SHIFT};
use core::num::NonZeroUsize;
use core::ops::RangeInclusive;

/// Where a new allocation lies. Two words, an option of it too, so that it is returned in registers:
/// one that is written to memory in parts and read as a whole waits for every store before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its address, and bit 0 for `low`.
    at: NonZeroUsize,
    /// Pages of it that are not known to be zero.
    pub dirty: u64,
}

impl Taken {
    /// Always some: a chunk with memory does not begin at 0.
    #[inline]
    pub(super) fn new(address: usize, dirty: u64, low: bool) -> Option<Self> {
        NonZeroUsize::new(address | usize::from(low)).map(|at| Self { at, dirty })
    }
    /// Its address in nobody's unit.
    #[inline]
    pub fn address(self) -> usize {
        self.at.get() & !1
    }
    /// It has begun a page, and fewer empty populated ones are left than shall be kept.
    #[inline]
    pub fn low(self) -> bool {
        self.at.get() & 1 != 0
    }
    /// The same, and nothing to do.
    pub fn without_low(self) -> Self {
        NonZeroUsize::new(self.address()).map_or(self, |at| Self { at, ..self })
    }

    /// Zeroes its dirty pages' part of `bytes` in some units.
    #[inline]
    pub fn zero(self, bytes: usize, units: RangeInclusive<usize>) {
        if self.address() % PAGE + bytes > PAGE {
            return self.zero_pages(bytes, units);
        }
        let (mut at, units) = (self.address() + units.start() * UNIT, units.count());
        for _ in 0..units {
            // SAFETY: the allocation's bytes in a unit; nobody else has it yet.
            unsafe { zero_bytes(at, bytes) };
            at += UNIT;
        }
    }

    /// What crosses pages: only the dirty ones are written.
    #[cold]
    #[inline(never)]
    fn zero_pages(self, bytes: usize, units: RangeInclusive<usize>) {
        let base = self.address() & !(UNIT - 1);
        let (begin, end) = (self.address() - base, self.address() - base + bytes);
        for page in (begin >> PAGE_SHIFT)..=((end - 1) >> PAGE_SHIFT) {
            if self.dirty >> page & 1 == 0 {
                continue;
            }
            let (from, to) = (begin.max(page * PAGE), end.min((page + 1) * PAGE));
            for unit in units.clone() {
                // SAFETY: as in `zero`.
                unsafe { core::ptr::write_bytes((base + unit * UNIT + from) as *mut u8, 0, to - from) };
            }
        }
    }
}
const _: () = assert!(size_of::<Option<Taken>>() == 16);

/// Zeroes a multiple of a granule.
///
/// # Safety
/// The bytes are ours.
#[inline]
unsafe fn zero_bytes(at: usize, bytes: usize) {
    let to = at as *mut u8;
    // SAFETY: the caller's promise; all stores lie in `[at, at + bytes)`.
    unsafe {
        match bytes {
            4 => to.cast::<u32>().write(0),
            8..16 => {
                to.cast::<u64>().write_unaligned(0);
                to.add(bytes - 8).cast::<u64>().write_unaligned(0);
            }
            16..32 => {
                to.cast::<u128>().write_unaligned(0);
                to.add(bytes - 16).cast::<u128>().write_unaligned(0);
            }
            _ => to.write_bytes(0, bytes),
        }
    }
}
