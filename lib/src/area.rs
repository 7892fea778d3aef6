//! # Areas
//!
//! Whole pages, as malloc gives them above 16 KiB: rounded to pages (from 64 KiB to 1 MiB by up to an eighth), reused at once when freed, given back in
//! bulk later. With a guard page behind on request: whoever runs over the end faults instead of writing into what comes
//! next. The guard costs a page of address space and no mapping, and a reused area has its guard already.
//!
//! ```
//! use allotment::area;
//!
//! let stack = area::alloc_guarded(64 << 10, 4096)?;
//! assert_eq!(area::size(stack), Some(64 << 10));
//! // SAFETY: the area is ours, and is not used after it was freed.
//! unsafe {
//!     stack.as_ptr().add((64 << 10) - 1).write(1); // one further would end the program
//!     area::free(stack)?;
//!     assert!(area::free(stack).is_err(), "a double free is refused");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Works whether or not the program's malloc is this heap, and opens it at the first call. `docs/areas.md` has layout,
//! costs and failure modes.
#![allow(unsafe_code)] // addresses

use crate::heap::HEAP;
use core::fmt;
use core::ptr::NonNull;

pub use crate::pages::BadFree;

/// Why there is no area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The alignment is no power of two.
    Align,
    /// The system has no more memory; or it has no guard pages (before Linux 6.13), or none for areas that with
    /// guard and alignment come to half a GiB or more.
    Exhausted,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Align => "the alignment is no power of two",
            Self::Exhausted => "no memory, or no guard pages",
        })
    }
}
impl core::error::Error for Error {}

fn checked(bytes: usize, align: usize, guard: bool) -> Result<NonNull<u8>, Error> {
    if !align.is_power_of_two() {
        return Err(Error::Align);
    }
    let area = HEAP.area_alloc(bytes, align, guard).ok_or(Error::Exhausted)?;
    NonNull::new(area as *mut u8).ok_or(Error::Exhausted)
}

/// At least `bytes`, aligned to `align` and to pages; from 64 KiB to 1 MiB up to an eighth more ([`size`]). Contents: zeros, or what was there before. Cost: a few tens of ns
/// for a reused one, else a look into a tree and now and then a system call.
///
/// # Errors
/// [`Error`]; nothing was changed.
pub fn alloc(bytes: usize, align: usize) -> Result<NonNull<u8>, Error> {
    checked(bytes, align, false)
}

/// The same with a page behind the last whole page where every access faults. Cost: a system call more for one that is
/// not reused.
///
/// # Errors
/// [`Error`]; nothing was changed.
pub fn alloc_guarded(bytes: usize, align: usize) -> Result<NonNull<u8>, Error> {
    checked(bytes, align, true)
}

/// Takes an area back: one of these, or of malloc's. Cost: a few tens of ns; now and then a slice of a purge.
///
/// # Errors
/// [`BadFree`]: a free twice, an address inside an area, a foreign one. Nothing was changed. (Up to 64 KiB a second free on another CPU may
/// pass: it is reported later, as `malloc`'s is; at once with the knob `bad_free=abort`.)
///
/// # Safety
/// If it is an area, nobody uses it any more.
pub unsafe fn free(area: NonNull<u8>) -> Result<(), BadFree> {
    let address = area.as_ptr() as usize;
    // SAFETY: the caller's promise.
    unsafe { HEAP.area_free(address) }.map_err(|wrong| BadFree { address, wrong })
}

/// Bytes of an area in use, a multiple of pages and without its guard; `None` if it is none.
#[must_use]
pub fn size(area: NonNull<u8>) -> Option<usize> {
    HEAP.area_size(area.as_ptr() as usize)
}
