//! # A window's own words, and where they lie
//!
//! ```text
//! ┌────────┬────────┬──────────────────────┐8 MiB┌─────────────────┐
//! │ Window │ blocks │ descriptors, 16 B a  │     │ pages that are  │
//! │        │ 96 KiB │ page, as needed ─►   │     │ ours  ─►        │
//! └────────┴────────┴──────────────────────┘     └─────────────────┘
//! ```
//! Written once but for what grows under its owner's lock. Units: pages of the window, bytes where a name says so.
#![allow(unsafe_code)] // maps by address

use super::block::{BLOCK_SHIFT, Block};
use super::desc::Desc;
use super::pfn::{WINDOW, WINDOW_PAGES};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use crate::arch::sys::{self, Advice};

/// Bytes before the blocks.
pub(super) const BLOCKS_AT: usize = PAGE;

/// Bytes of so many blocks.
pub(super) const fn blocks_bytes(blocks: usize) -> usize {
    (blocks * size_of::<Block>()).next_multiple_of(PAGE)
}

/// Bytes at a slot's beginning that are kept for metadata: blocks of order 10 stay aligned behind them.
pub(super) const DATA_AT: usize = 8 << 20;
/// Bytes before the descriptors. Not whole pages: those of areas at multiples of a mebibyte would have the place in a CPU's first cache
/// that the beginnings of all areas have, which programs write.
pub(super) const DESCS_AT: usize = BLOCKS_AT + blocks_bytes(WINDOW_PAGES >> BLOCK_SHIFT) + 256;
const _: () = assert!(descs_end(WINDOW_PAGES) <= DATA_AT);

/// Bytes before the end of so many pages' descriptors.
pub(super) const fn descs_end(pages: usize) -> usize {
    (DESCS_AT + pages * size_of::<Desc>()).next_multiple_of(PAGE)
}
/// Pages that the first of a window is aligned to.
pub const ALIGNED: usize = DATA_AT / PAGE;

/// Most pages of a window.
pub const MOST_PAGES: usize = WINDOW_PAGES - DATA_AT / PAGE;

/// Which advice a new window gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    /// 4 KiB pages.
    Small,
    /// Huge pages where possible.
    Huge,
}

/// No page of a window asks for huge ones by itself.
pub(super) const NOT_HUGE: u32 = u32::MAX;

/// Whose a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A node's zone.
    Zone(usize),
    /// Areas of such pages.
    Areas(Paging),
    /// One giant area.
    Giant,
}

impl Owner {
    pub(super) const fn paging(self) -> Paging {
        match self {
            Self::Areas(paging) => paging,
            _ => Paging::Small,
        }
    }
}

/// Where the descriptor of an address's page is, in a window that is no giant area's: known without a look at that.
#[inline(always)]
pub(super) const fn desc_of(address: usize) -> *const Desc {
    const FROM: usize = Window::descs_from(DESCS_AT, (DATA_AT / PAGE) as u32);
    let (slot, page) = (address & !(WINDOW - 1), address % WINDOW / PAGE);
    (slot + FROM + page * size_of::<Desc>()) as *const Desc
}

/// A window's own words.
#[repr(C)]
#[derive(Debug)]
pub struct Window {
    /// Address of its first page, 1 GiB aligned.
    pub(super) base: usize,
    /// Where the descriptor of its page 0 would be, if that were ours.
    pub(super) descs: usize,
    /// Its number.
    pub(super) number: u32,
    /// First page that is ours.
    pub(super) first: u32,
    /// Page behind the last that is ours; grows, under the owner's lock.
    pub(super) end: AtomicU32,
    /// What that may become.
    pub(super) most: u32,
    /// Pages that have descriptors, from the first of ours on; grows likewise.
    pub(super) described: AtomicU32,
    /// Address of its first block; 0 for a giant area's.
    pub(super) blocks: usize,
    /// The zone that its pages go back to, as far as they are a zone's.
    pub(super) zone: u32,
    /// Whose it is.
    pub(super) owner: Owner,
    /// It has pages of a zone and areas.
    pub(super) mixed: AtomicBool,
    /// Page from which on those of a zone ask for huge ones, to the next; [`NOT_HUGE`] where none does. Under the zone's lock.
    pub(super) huge: AtomicU32,
    /// Page behind the last that does.
    pub(super) huge_end: AtomicU32,
    /// Of a giant area's window.
    pub giant: Giant,
}

impl Window {
    /// Where the descriptors of a window that begins with page `first` are counted from, if that one's is at `at`.
    pub(super) const fn descs_from(at: usize, first: u32) -> usize {
        at.wrapping_sub(first as usize * size_of::<Desc>())
    }
    /// Where the descriptor of a page is.
    #[inline(always)]
    pub(super) const fn desc(&self, page: usize) -> *const Desc {
        (self.descs as *const Desc).wrapping_add(page)
    }
    /// Page behind the last that is ours.
    #[inline(always)]
    pub(super) fn end(&self) -> usize {
        // Relaxed: whoever holds a pointer into a step was handed it after the step was taken in, and others only
        // look at what may be or not.
        self.end.load(Relaxed) as usize
    }
    #[inline(always)]
    pub(super) fn has(&self, page: usize) -> bool {
        page >= self.first as usize && page < self.end()
    }
}

/// A giant area (see `vmap`), and how far it is on its way back to the system. All but `bytes` belongs to whoever
/// holds the purge's queue.
#[derive(Debug, Default)]
pub struct Giant {
    /// Its bytes; 0 if this window has none.
    pub bytes: AtomicUsize,
    /// Bytes from its beginning on that were handed out in slices.
    pub handed: AtomicUsize,
    /// Bytes that the system has taken, and that are not counted as lazy any more.
    pub clean: AtomicUsize,
    /// Slices in flight.
    pub out: AtomicU32,
}

/// Why an address range is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Somebody else is there.
    Taken,
    /// The system gives no more.
    Limit,
}

/// Maps fresh memory exactly there. No flag for that: an address where nothing is serves as a hint.
pub(super) fn map_plain(at: usize, len: usize) -> Result<(), Refused> {
    let found = sys::map_charged(at, len).map_err(|_| Refused::Limit)?;
    if found != at {
        // SAFETY: fresh, ours and unused.
        let _ = unsafe { sys::unmap(found, len) };
        return Err(Refused::Taken);
    }
    Ok(())
}

/// The same, with small or with huge pages.
pub(super) fn map_at(at: usize, len: usize, paging: Paging) -> Result<(), Refused> {
    map_plain(at, len)?;
    let advice = if paging == Paging::Huge { Advice::Huge } else { Advice::NoHuge };
    // SAFETY: fresh and ours; a refusal costs nothing but itself.
    let _ = unsafe { sys::advise(at, len, advice) };
    Ok(())
}

/// The same right behind pages of ours. Where the system makes no mapping more (`vm.max_map_count`, a filter) theirs becomes longer.
pub(super) fn map_behind(at: usize, len: usize, paging: Paging) -> Result<(), Refused> {
    let mapped = map_at(at, len, paging);
    if mapped != Err(Refused::Limit) {
        return mapped;
    }
    // SAFETY: the page before is ours; nothing is there behind it, or nothing is done.
    unsafe { sys::grow(at - PAGE, PAGE, len) }.map_err(|_| Refused::Limit)?;
    // (It may have been a guard: then what is behind it is one, too, and a mapping of its own is not to be had.)
    // SAFETY: fresh and ours.
    if unsafe { sys::protect(at, len, sys::Access::ReadWrite) }.is_err() {
        // SAFETY: as above, and unused.
        let _ = unsafe { sys::unmap(at, len) };
        return Err(Refused::Limit);
    }
    Ok(())
}
