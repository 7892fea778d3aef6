//! # Giant areas: freed onto the queue, taken off it again, unmapped
//!
//! A giant area's last slice to land takes it off the queue and unmaps it: empty by then, which is quick, where to
//! unmap resident memory stalls every other thread's `mmap`. If the system refuses, the area is *kept*: queued,
//! lazy as a whole, for the next purge to try again or for an allocation of its size.
//!
//! | giant area | `handed` | `out` |
//! |---|---|---|
//! | waits | less than all | any |
//! | lands | all | more than 0 |
//! | kept | all | 0 |
//!
//! Units: pages; bytes at the door. Locks: the queue's (see [`super::flight`]). Cost: a walk of the queue's giant areas.

use super::areas::{Area, Freed, Fresh, MOST, Queue, Ticket, Vmap};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::sys;
use crate::page::{Kind, Pfn};
use crate::stat::{Event, Level};

impl Vmap<'_> {
    pub(super) fn giants(&self, first: Pfn) -> impl Iterator<Item = Pfn> {
        let some = |at: Pfn| (at != Pfn::NONE).then_some(at);
        core::iter::successors(some(first), move |&at| some(self.next(at)))
    }

    pub(super) fn is(&self, at: Pfn, ticket: Ticket) -> bool {
        at == ticket.pfn && self.windows.desc(at).len() == ticket.serial as usize
    }

    /// Queues a giant area that its owner gave up and that is in our hand, which it leaves. `clean` bytes of it are empty.
    fn enqueue(&self, queue: &mut Queue, pfn: Pfn, clean: usize) -> Ticket {
        let (giant, desc) = (self.windows.giant(pfn), self.windows.desc(pfn));
        let bytes = giant.bytes.load(Relaxed);
        giant.handed.store(clean, Relaxed);
        giant.clean.store(clean, Relaxed);
        debug_assert_eq!(giant.out.load(Relaxed), 0, "somebody has a part of it");
        queue.serial = (queue.serial + 1).max(1);
        desc.set_len(queue.serial as usize);
        desc.set_links(queue.giants, Pfn::NONE);
        queue.giants = pfn;
        self.areas.shift_backlog(((bytes - clean) / PAGE) as isize);
        Ticket { pfn, serial: queue.serial, bytes }
    }

    pub(super) fn dequeue(&self, queue: &mut Queue, pfn: Pfn) {
        let next = self.next(pfn);
        match self.giants(queue.giants).find(|&at| self.next(at) == pfn) {
            Some(before) => self.windows.desc(before).set_links(next, Pfn::NONE),
            None => queue.giants = next,
        }
    }

    /// Frees a giant area: it waits on the queue.
    pub(super) fn free_giant(&self, area: &Area) -> Freed {
        let mut queue = self.areas.flights.lock();
        if !self.give_up(area) {
            return Freed::Not;
        }
        // Told first: nothing may be given back that was not lazy.
        self.account(-(area.bytes as isize), area.bytes as isize);
        Freed::Queued(self.enqueue(&mut queue, area.pfn, 0))
    }

    /// The same for one without pages: unmapped now.
    pub(super) fn drop_giant(&self, area: &Area) {
        let flight = self.areas.flights.begin(|_| self.give_up(area).then_some(()));
        if flight.is_some() {
            let giant = self.windows.giant(area.pfn);
            giant.clean.store(area.bytes, Relaxed);
            self.account(-(area.bytes as isize), 0);
            self.finish(area.pfn);
        }
    }

    /// A giant area that waits and has about the right size, with what is left of its contents.
    pub(super) fn reuse_giant(&self, pages: usize, align: usize) -> Option<Fresh> {
        if pages > MOST / PAGE {
            return None;
        }
        let wanted = pages * PAGE;
        let mut queue = self.areas.flights.lock();
        let pfn = self.giants(queue.giants).find(|&at| {
            let giant = self.windows.giant(at);
            let bytes = giant.bytes.load(Relaxed);
            giant.out.load(Relaxed) == 0
                && (wanted..=wanted + wanted / 8).contains(&bytes)
                && self.windows.address(at).is_multiple_of(align * PAGE)
        })?;
        let (giant, desc) = (self.windows.giant(pfn), self.windows.desc(pfn));
        let (bytes, handed, clean) = (giant.bytes.load(Relaxed), giant.handed.load(Relaxed), giant.clean.load(Relaxed));
        // (What is lazy is counted already.)
        let charged = if self.charge(clean, 0)? { clean } else { 0 };
        self.dequeue(&mut queue, pfn);
        self.areas.shift_backlog(-(((bytes - handed) / PAGE) as isize));
        desc.set_len(0);
        desc.begin_area(desc.rest());
        self.account((bytes - charged) as isize, -((bytes - clean) as isize));
        drop(queue);
        Some(self.begin(pfn, Event::AreaReuse))
    }

    /// Unmaps a giant area that was taken off the queue, in flight; the bytes that no slice had given back. If the
    /// system refuses, it is kept.
    pub(super) fn finish(&self, pfn: Pfn) -> usize {
        let giant = self.windows.giant(pfn);
        let (bytes, clean) = (giant.bytes.load(Relaxed), giant.clean.load(Relaxed));
        let (desc, flags) = (self.windows.desc(pfn), self.windows.desc(pfn).rest());
        desc.set(Kind::None, 0);
        // SAFETY: a giant area that its owner gave up and that is on no list.
        let is_gone = unsafe { self.windows.release_giant(self.board(), pfn) };
        if is_gone {
            self.board().lower(Level::Mapped, bytes);
        } else {
            self.cache.sets.count(Event::PurgeRefused, 1);
            desc.set(Kind::Lazy, flags);
            let mut queue = self.areas.flights.lock();
            self.enqueue(&mut queue, pfn, bytes);
            giant.clean.store(clean, Relaxed);
        }
        // Whoever waits for it looks again.
        self.areas.landed.fetch_add(1, Relaxed);
        sys::futex_wake(&self.areas.landed, u32::MAX >> 1);
        if is_gone { bytes - clean } else { 0 }
    }
}
