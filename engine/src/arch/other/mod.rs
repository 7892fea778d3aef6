//! # A processor without assembly of its own
//!
//! What a platform has, by means of the C library: the locked fallback serves. (The preloadable library needs more: see
//! `wrap` of the others.)
#![allow(unsafe_code)] // the C library

pub mod below;
pub mod call;
// (Compiled for x86-64 by `--cfg allotment_other`, to be tried.)
#[cfg_attr(target_arch = "x86_64", path = "../x86_64/nr.rs")]
pub mod nr;
pub mod seq;
pub mod stack;
pub mod unit_seq;

pub(crate) use below::{is_below, is_positive};

/// Bits of a program's addresses: as x86-64.
pub const ADDRESS_BITS: u32 = 47;
/// Whether sequences are written for this processor.
pub const HAS_SEQUENCES: bool = false;
/// Nobody asks.
pub const SIGNATURE: u32 = 0;
/// Words from the thread pointer on that a thread inherits from who makes it.
pub const INHERITED: core::ops::Range<usize> = 0..0;

/// The address of a name that another library may define: here none is known.
#[doc(hidden)]
#[macro_export]
macro_rules! weak_address {
    ($name:literal) => {{
        const NONE: usize = 0;
        NONE
    }};
}

/// What tracers' notes have before a register's name.
#[doc(hidden)]
#[macro_export]
macro_rules! register_prefix {
    () => {
        ""
    };
}

/// A word of this thread's area.
///
/// # Safety
/// None needed: there is no area.
pub unsafe fn word(_: isize) -> u32 {
    u32::MAX
}

/// A word that is different in every thread alive.
pub fn thread_pointer() -> usize {
    unsafe extern "C" {
        fn __errno_location() -> *mut i32;
    }
    // SAFETY: the address of the thread's own errno.
    unsafe { __errno_location() as usize }
}

/// No counter: ns.
pub fn ticks() -> u64 {
    let mut time = [0_i64; 2];
    // SAFETY: the kernel writes two words that are ours.
    unsafe { call::call(call::nr::CLOCK_GETTIME, [1, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

/// The same value.
pub const fn opaque_short(value: i32) -> i32 {
    value
}

/// Nothing.
pub fn prefetch(_: *const u8) {}

/// Where the image begins that this code is in.
pub fn header() -> usize {
    unsafe extern "C" {
        static __ehdr_start: u8;
    }
    &raw const __ehdr_start as usize
}
