//! # What a user of per-CPU memory asks for, and hears

use super::chunk::GRANULE;
use super::units::UNIT;
use crate::arch::PAGE;

/// Why there is no allocation. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The size is zero.
    Size,
    /// The alignment is no power of two, or above a page.
    Align,
    /// More than a unit holds.
    TooLarge,
    /// The system has no more memory; for [`How::Populated`] and [`How::Reserved`], there is
    /// none of that kind.
    Exhausted,
    /// [`super::space::Space::open`] has not been called.
    Closed,
}

/// From where to allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    /// From anywhere.
    #[default]
    Normal,
    /// From pages that are populated, without a system call and without waiting (the kernel's
    /// atomic allocation). A page is populated if anything was ever allocated in it, or a
    /// balance has filled it.
    Populated,
    /// From the reserved region of the first chunk.
    Reserved,
}

/// What a [`super::space::Space::balance`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balanced {
    /// Pages of a unit given back.
    pub depopulated: usize,
    /// Pages of a unit filled.
    pub populated: usize,
}

/// Size and alignment as granules and mask.
#[inline]
pub(crate) fn request(size: usize, align: usize) -> Result<(u32, u32), Error> {
    // One test for the usual case; `size` 0 wraps.
    if size.wrapping_sub(1) >= UNIT || !align.is_power_of_two() || align > PAGE {
        return Err(wrong_request(size, align));
    }
    Ok((size.div_ceil(GRANULE) as u32, (align.div_ceil(GRANULE) - 1) as u32))
}

#[cold]
fn wrong_request(size: usize, align: usize) -> Error {
    if size == 0 {
        Error::Size
    } else if !align.is_power_of_two() || align > PAGE {
        Error::Align
    } else {
        Error::TooLarge
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) claim: usize,
    pub(crate) size: u32,
    pub(crate) n: u32,
    pub(crate) mask: u32,
}
