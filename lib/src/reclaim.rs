//! # Giving memory back
//!
//! What is freed stays with the heap, to be used again: in what CPUs cache, in areas freed lazily, in free pages. The heap
//! gives it back as the program grows quiet. A program that knows more (a query is over, the night begins, the
//! container gets smaller) says so:
//!
//! ```
//! use allotment::reclaim;
//!
//! let cache = vec![1_u8; 8 << 20];
//! drop(cache);
//! let bytes = reclaim::purge(); // what is free; caches of CPUs stay
//! let more = reclaim::trim(); // and what CPUs cache
//! println!("{bytes} and {more} bytes given back");
//!
//! reclaim::tune("soft_limit=2G")?; // any knob that a running heap can change
//! assert!(reclaim::tune("soft_limit=much").is_err());
//! # Ok::<(), reclaim::TuneError>(())
//! ```
//!
//! [`crate::drain`] empties caches of CPUs without giving anything back to the system; [`crate::stat`] says what there is.
//! Nothing here needs [`Allotment`](crate::Allotment) to be the global allocator: areas and pages of [`crate::area`] and
//! [`crate::pages`] are of the same heap.

use crate::heap::HEAP;
use allotment_engine::control::mailbox;
use allotment_engine::knob::{self, BadSetting};
use allotment_engine::stat::board::Reply;
use core::fmt;

/// Gives free memory back to the system, and leaves what CPUs cache; the bytes given back. Another thread's `fork`
/// comes first: what is left then is given back later. Cost: an advice call for each run of free pages, some
/// 50 ms for a GiB that was touched.
pub fn purge() -> usize {
    HEAP.purge()
}

/// Drains every CPU's caches first, then as [`purge`]: the same as [`Allotment::trim`](crate::Allotment::trim). Cost: a fence
/// for each CPU in use besides.
pub fn trim() -> usize {
    HEAP.trim()
}

/// Sets a knob of this heap, as `ALLOTMENT_CONF` writes it (`lazy_floor=64M`; `docs/tuning.md` has all). Such as the decay and
/// the limits work with the new value from their next look on. Cost: a look at the table of knobs.
///
/// # Errors
/// [`TuneError`]; nothing is changed then.
pub fn tune(setting: &str) -> Result<(), TuneError<'_>> {
    let wrong = |why| TuneError { setting, why };
    let (at, value) = knob::parse(setting.as_bytes()).map_err(|bad| wrong(Why::Bad(bad)))?;
    // (What is set before is overwritten by what the environment says.)
    HEAP.prepare();
    match mailbox::tune(&HEAP, at as u64, value) {
        Reply::Done => Ok(()),
        _ => Err(wrong(Why::Fixed)),
    }
}

/// Why a knob was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuneError<'a> {
    setting: &'a str,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Bad(BadSetting),
    Fixed,
}

/// One line: what is wrong, and what would be right.
impl fmt::Display for TuneError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Why::Bad(bad) => bad.explain(self.setting.as_bytes()).fmt(f),
            Why::Fixed => write!(f, "`{}` is read when the heap opens; set it in ALLOTMENT_CONF", self.setting),
        }
    }
}

impl core::error::Error for TuneError<'_> {}
