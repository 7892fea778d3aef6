//! # Areas as a product: whole pages for the program itself, with a guard page behind them if it wants one
//!
//! An area is the same as one of malloc's above 16 KiB, whatever its size, and freed the same way; so a reused one
//! costs no system call, with or without its guard (`vmap`). Cost: see there; a thread waits while another one forks. In a torn child
//! there are none.

use super::state::{Environment, Heap};
use crate::arch::PAGE;
use crate::page::Kind;
use crate::stat::BadPointer;
use crate::stat::Event;
use crate::vmap::Fresh;

impl<E: Environment> Heap<E> {
    /// An area of at least `bytes`, aligned to `align` (a power of two) and to pages, with whatever contents; behind
    /// its last page one where every access faults if `guard`. `None` without memory; with a guard also from half
    /// a GiB on, alignment included, and where the kernel has no such pages (before Linux 6.13).
    pub fn area_alloc(&self, bytes: usize, align: usize, guard: bool) -> Option<usize> {
        let start = self.cache.sets.clock.ticks();
        let _inside = self.enter_patiently()?;
        if !self.opened() {
            return None;
        }
        let align = align.max(PAGE);
        let fresh = if guard {
            self.approach();
            let alloc = || self.vmap().alloc_guarded(bytes, align);
            self.mm().take(bytes, alloc, || self.mm().scrape_area(bytes, alloc))
        } else {
            let front = self.front_alloc_slow(bytes, align).map(|address| Fresh { address, zero: false });
            front.or_else(|| self.reuse_dirty(bytes, align)).or_else(|| self.alloc_area(bytes, align, false))
        };
        self.cold_end(Event::AllocSlowpath, start, fresh.is_none());
        let address = fresh?.address;
        if self.is_due(bytes) {
            self.sample(address, bytes);
        }
        Some(address)
    }

    /// Takes an area back: one of [`Heap::area_alloc`], or of malloc's.
    ///
    /// # Errors
    /// It is no area in use; nothing was changed.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub unsafe fn area_free(&self, address: usize) -> Result<(), BadPointer> {
        if !self.is_open() {
            return Err(BadPointer::Foreign);
        }
        if self.vmap().find(address).is_some() {
            if self.front_has(address) {
                return Err(BadPointer::Double);
            }
            // SAFETY: the caller's promise. (Of two that free it at once the second is reported, as malloc's.)
            unsafe { self.free(address as *mut u8) };
            return Ok(());
        }
        if self.pages.windows.find(address).is_none() {
            return Err(BadPointer::Foreign);
        }
        Err(if self.is_freed(address) { BadPointer::Double } else { BadPointer::Interior })
    }

    /// Whether what lay at an address in a page of ours is free: it was an area, or is in one's pages.
    pub(super) fn is_freed(&self, address: usize) -> bool {
        let free = |kind| matches!(kind, Kind::Front | Kind::Lazy | Kind::Dirty | Kind::Tail | Kind::Run);
        let page = self.pages.windows.find(address);
        page.is_some_and(|(_, pfn)| free(self.pages.windows.desc(pfn).kind())) || self.pages.windows.is_held(address)
    }

    /// Bytes of an area in use, without its guard; `None` if it is none.
    #[must_use]
    pub fn area_size(&self, address: usize) -> Option<usize> {
        let area = self.vmap().find(address).filter(|_| !self.front_has(address))?;
        Some(area.bytes)
    }
}
