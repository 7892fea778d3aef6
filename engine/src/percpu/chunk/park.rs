//! # Parked allocations: freed, and kept whole
//!
//! See [`super`]: both bitmaps hold what is parked as allocated, `live` does not count it. [`Body::free_parked`] frees all
//! of it. Locks: the chunk's. Cost: half of an allocation and of a free.

use super::{Body, PARKED, pages};
use crate::percpu::bitmap::GRANULE_SHIFT;
use crate::percpu::taken::Taken;
use crate::percpu::totals::Totals;
use crate::percpu::units::UNIT;

impl Body {
    /// Keeps the live allocation `[start, start + n)` whole instead of freeing it, if there is room: to both bitmaps
    /// it stays one, to who counts it is free. Its place.
    #[inline]
    pub fn park(&mut self, start: u32, n: u32, totals: &Totals) -> Option<usize> {
        let place = self.kept.trailing_ones() as usize;
        // The last one: then the chunk may go.
        if place >= PARKED || self.live == 1 || start < self.reserved {
            return None;
        }
        self.parked[place] = start << 8 | n;
        self.kept |= 1 << place;
        self.count(-1, totals);
        Some(place)
    }

    /// Allocates what is parked at this address and place, with `n` granules.
    #[inline]
    pub fn unpark(&mut self, address: usize, place: usize, n: u32, totals: &Totals) -> Option<Taken> {
        let offset = address.wrapping_sub(self.base);
        if offset >= UNIT || self.base == 0 {
            return None;
        }
        let start = (offset >> GRANULE_SHIFT) as u32;
        let place = place % PARKED;
        if self.parked[place] != start << 8 | n {
            return None;
        }
        self.forget(place);
        self.count(1, totals);
        self.allocs += 1;
        // Its pages are dirty, said or not.
        Taken::new(address, pages(start, start + n), false)
    }

    /// Whether this is parked.
    #[inline]
    pub(super) fn is_parked(&self, start: u32, n: u32) -> bool {
        // Vector instructions.
        self.parked.iter().fold(0, |any, &what| any | u32::from(what == start << 8 | n)) != 0
    }

    #[inline]
    fn forget(&mut self, place: usize) {
        self.parked[place] = 0;
        self.kept &= !(1 << place);
    }

    /// What is parked.
    pub(super) fn parked(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let parked = self.parked.iter().filter(|&&what| what != 0);
        parked.map(|&what| (what >> 8, (what >> 8) + (what & 0xff)))
    }

    /// Frees all that is parked; whether more pages are empty than may be.
    #[inline(never)]
    pub fn free_parked(&mut self, totals: &Totals) -> bool {
        let mut balance = false;
        while self.kept != 0 {
            let place = self.kept.trailing_zeros() as usize;
            let what = self.parked[place];
            self.forget(place);
            balance |= self.release(what >> 8, (what >> 8) + (what & 0xff), totals).balance;
        }
        balance
    }
}
