//! # Pages
//!
//! Blocks of 2^order pages, aligned to their size: 4 KiB (order 0) to 4 MiB (order 10), from per-CPU lists over a buddy
//! allocator for each NUMA node. What is free goes back to the system in time, as all memory of the heap.
//!
//! ```
//! use allotment::pages::{self, Flags};
//!
//! let block = pages::alloc(3, None, Flags::ZERO)?; // 32 KiB
//! // SAFETY: the block is ours, and is not used after it was freed.
//! unsafe {
//!     assert_eq!(*block.as_ptr().add(32767), 0);
//!     pages::free(block)?;
//!     assert!(pages::free(block).is_err(), "a double free is refused");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Works whether or not the program's malloc is this heap, and opens it at the first call. `docs/pages.md` has
//! layout, costs and failure modes.
#![allow(unsafe_code)] // addresses

use crate::heap::HEAP;
use allotment_engine::control::texts;
use allotment_engine::cpu::NODES;
use allotment_engine::page;
use core::fmt;
use core::ptr::NonNull;

pub use crate::bad_free::BadFree;
pub use allotment_engine::page::{Flags, ListStats, ORDERS, ZoneStats};
pub use allotment_engine::stat::BadPointer;

/// Why there is no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The order is above 10.
    Order,
    /// There is no such node: 0 to 7 have a zone each. (Of one that the machine has not, memory is of any.)
    Node,
    /// The system has no more memory, or [`Flags::ATOMIC`] forbids to ask it.
    Exhausted,
}

impl From<page::Error> for Error {
    fn from(error: page::Error) -> Self {
        match error {
            page::Error::Order => Self::Order,
            page::Error::Node => Self::Node,
            _ => Self::Exhausted,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Order => "the order is above 10",
            Self::Node => "there is no such node",
            Self::Exhausted => "no pages",
        })
    }
}
impl core::error::Error for Error {}

/// A block of 2^`order` pages at a multiple of its size; from the node that runs us, or from `node`, or where neither
/// has memory from the nearest that has. Cost: for orders 0–3 and 9 a sequence on this CPU's list, now and then a
/// refill; for the others, or another node's, a lock.
///
/// # Errors
/// [`Error`]; nothing was changed.
#[inline]
pub fn alloc(order: usize, node: Option<usize>, flags: Flags) -> Result<NonNull<u8>, Error> {
    let block = HEAP.pages_alloc(order, node, flags)?;
    NonNull::new(block as *mut u8).ok_or(Error::Exhausted)
}

/// Takes a block back; its order is known. Cost: as [`alloc`].
///
/// # Errors
/// [`BadFree`]: a free twice, an address inside a block, a foreign one, or memory of malloc. Nothing was changed.
///
/// # Safety
/// If it is a block, nobody uses it any more.
#[inline]
pub unsafe fn free(block: NonNull<u8>) -> Result<(), BadFree> {
    let address = block.as_ptr() as usize;
    // SAFETY: the caller's promise.
    unsafe { HEAP.pages_free(address) }.map_err(|wrong| BadFree { address, wrong })
}

/// Fills `into` with addresses of blocks; how many there are: fewer only without memory. Past the per-CPU lists. Cost:
/// a few nanoseconds a block, and a lock per batch.
#[must_use]
pub fn alloc_bulk(order: usize, node: Option<usize>, flags: Flags, into: &mut [usize]) -> usize {
    HEAP.pages_alloc_bulk(order, node, flags, into)
}

/// Takes blocks back, of whatever orders, by their addresses. Cheapest in the order of addresses.
///
/// # Errors
/// The first that is none, as in [`free`]. All others were taken.
///
/// # Safety
/// Nobody uses those that are blocks any more.
pub unsafe fn free_bulk(blocks: &[usize]) -> Result<(), BadFree> {
    // SAFETY: the caller's promise.
    unsafe { HEAP.pages_free_bulk(blocks) }.map_err(|(address, wrong)| BadFree { address, wrong })
}

/// The zones that have memory. Cost: a lock and a walk over the free blocks of each.
pub fn zones() -> impl Iterator<Item = ZoneStats> {
    (0..NODES).filter_map(|node| HEAP.zone_stats(node))
}

/// The page lists of all CPU indices. A list holds blocks of whatever node.
pub fn lists() -> impl Iterator<Item = ListStats> {
    HEAP.page_lists()
}

/// Writes free blocks by order as `/proc/buddyinfo` does.
///
/// # Errors
/// Those of `out`.
pub fn buddyinfo(out: &mut impl fmt::Write) -> fmt::Result {
    texts::buddyinfo(&HEAP, out)
}

/// Writes zones and lists as `/proc/zoneinfo` does: `managed` is what was opened, `nr_free_pages` what is free in the
/// zone, and each CPU index has a pageset for each order. Lists stand with the first zone.
///
/// # Errors
/// Those of `out`.
pub fn zoneinfo(out: &mut impl fmt::Write) -> fmt::Result {
    texts::zoneinfo(&HEAP, out)
}
