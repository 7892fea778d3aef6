//! # Large frees, and the threads that take part in them
//!
//! | a free of an area | of half a window at most | of more (giant) |
//! |---|---|---|
//! | deferred | lazy; see `reclaim` for when it goes back | queued; workers give it back. Without any (fewer pages than the threshold, a filter, knobs): at once, by the caller |
//! | synchronous (knob `sync_free`) | at once, by the caller | at once, by the caller and workers |
//!
//! Half a window is at most 16 ms of 4 KiB pages and a millisecond of huge ones: too little to share.
//!
//! Locks: none held when a thread is started. Cost of a deferred free: the queue's lock, and the creation of a thread
//! if there is none.

use super::mm::Mm;
use super::workers::{Allowance, LINGER, NAP};
use crate::arch::{PAGE, cgroup, sys};
use crate::knob::Id;
use crate::stat::Timing;
use crate::vmap::{BATCH, Freed, TURN, Ticket};

/// Smallest free that may start a thread: the C library frees less under locks of its own.
const LARGE: usize = 1 << 20;

impl Mm<'_> {
    /// Whether a free of so many bytes is synchronous.
    fn is_sync(&self, bytes: usize) -> bool {
        let least = self.cache.knobs.size(Id::SyncFree);
        least != 0 && bytes >= least
    }

    /// Frees the area that begins at an address.
    pub fn free_area(&self, address: usize) -> Freed {
        let vmap = self.vmap();
        let Some(area) = vmap.find(address) else { return Freed::Not };
        if self.is_sync(area.bytes) && !vmap.is_giant(&area) {
            let start = self.cache.sets.clock.ticks();
            let is_freed = vmap.free_now(&area);
            self.cache.sets.time(Timing::Free, start);
            return if is_freed { Freed::Told } else { Freed::Not };
        }
        vmap.free(&area)
    }

    /// After a giant area was queued.
    #[inline(never)]
    pub fn give_giant_back(&self, ticket: Ticket) {
        let is_sync = self.is_sync(ticket.bytes);
        let is_called = self.call_workers(ticket.bytes >= LARGE, is_sync);
        if is_sync || !is_called {
            self.vmap().purge_giant(ticket);
        }
    }

    /// Calls workers if so much is queued that they pay, and starts the first if there is none; whether one comes. Now
    /// if the caller waits for them, else soon.
    pub fn call_workers(&self, may_start: bool, waits: bool) -> bool {
        let (knobs, workers, keeper) = (&self.cache.knobs, &self.reclaim.workers, &self.reclaim.keeper);
        let threshold = knobs.size(Id::AsyncFreeThreshold);
        let wanted = threshold != 0 && self.areas.backlog() >= threshold;
        if !wanted || knobs.get(Id::IdleSeconds) == 0 || keeper.is_held() || self.crew() == 0 {
            return false;
        }
        workers.call(waits);
        if workers.alive() > 0 {
            return true;
        }
        may_start && workers.claim(1) && self.start_worker()
    }

    /// Starts the one that was claimed.
    fn start_worker(&self) -> bool {
        // (Looked at behind the claim: whoever holds looks at the two the other way round.)
        let is_started = !self.reclaim.keeper.is_held() && self.host.start_worker();
        if !is_started {
            self.reclaim.workers.unclaim();
        }
        is_started
    }

    /// Workers that there may be now. (With synchronous frees the caller of one is a thread, too; else the program
    /// goes on meanwhile.)
    fn crew(&self) -> u32 {
        let knobs = &self.cache.knobs;
        let is_sync = knobs.get(Id::SyncFree) != 0;
        match knobs.get(Id::MaxActive) as u32 {
            0 => {
                let allowed = self.reclaim.workers.allowed().unwrap_or_else(|| self.allowance(false).threads());
                (allowed - 1).max(u32::from(!is_sync))
            }
            most => most - u32::from(is_sync),
        }
    }

    /// What the system allows, as far as it may be asked: nothing beyond one thread where it filters, and no quota and
    /// no pressure to a thread that may not read files.
    fn allowance(&self, reads: bool) -> Allowance {
        let is_confined = self.reclaim.keeper.is_confined();
        let reads = reads && !is_confined;
        Allowance {
            nodes: self.cache.sets.cpus.nodes() as u32,
            cpus: if is_confined { 1 } else { sys::cpus_told() },
            quota: if reads { cgroup::cpu_quota() } else { None },
            pressure: if reads { cgroup::cpu_pressure() } else { 0 },
        }
    }

    /// A worker's whole life (see [`crate::reclaim::workers`]).
    pub fn work(&self) {
        let (workers, keeper) = (&self.reclaim.workers, &self.reclaim.keeper);
        let reads = self.exposed(|allowed| allowed && sys::own_files().is_ok());
        let mut naps = 0;
        loop {
            let seen = workers.calls();
            self.read(|| workers.ask(&self.cache.sets.clock, || self.allowance(reads)));
            while self.areas.is_pending() && !keeper.is_held() && workers.alive() <= self.crew() {
                self.recruit();
                // As much of a giant area as the knob says, and at least a turn.
                let batches = self.cache.knobs.size(Id::MaxGatherBatchCount);
                self.among_calls(|_| self.vmap().purge_abroad(batches.saturating_mul(BATCH).max(TURN)));
            }
            if keeper.is_held() {
                return workers.unclaim();
            }
            if workers.leave_to(self.crew()) {
                return;
            }
            if self.areas.is_pending() && workers.alive() <= self.crew() {
                continue;
            }
            naps = if workers.sleep(seen, NAP) { 0 } else { naps + 1 };
            if naps >= LINGER / NAP {
                if workers.leave(seen) {
                    return;
                }
                naps = 0;
            }
        }
    }

    /// One more worker, if there is a threshold's worth of work for each.
    fn recruit(&self) {
        let (workers, threshold) = (&self.reclaim.workers, self.cache.knobs.size(Id::AsyncFreeThreshold).max(1));
        let most = (self.areas.backlog() / threshold).min(self.crew() as usize) as u32;
        if workers.alive() < most && workers.claim(most) {
            self.start_worker();
        }
    }

    /// Bytes that wait to be given back.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.areas.backlog() * PAGE
    }
}

#[cfg(test)]
mod tests;
