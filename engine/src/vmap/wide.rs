//! # What was freed last of what no CPU keeps
//!
//! ```text
//! free of 8 to 64 MiB ──► slot │ slot ──► the next request of about its length, whichever thread's
//!                           │ a slow path takes memory, for anything; idle for a look
//!                           └──► dirty runs
//! ```
//! A program that takes and frees a buffer of such a size again and again pays two visits to the dirty runs each time, which tell the levels each
//! time. Where it has done so some times in a row ([`Wide::is_used`]) what it frees waits in one of these slots for it. The process has them, not each
//! CPU: a thread that moves would leave as much behind as it uses.
//!
//! Invariants: an address is in one slot at most, and of an area that is marked as a front's: whoever stored 0 for it has it. Such areas are counted as in use.
//! Locks: none. Cost: a locked instruction each way.

use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicU32, AtomicUsize};

/// Areas there may be.
const SLOTS: usize = 2;
/// Requests, more than others, that took what was freed last, before it waits for them.
const SURE: u32 = 8;

/// A slot, in a cache line of its own.
#[repr(align(64))]
#[derive(Debug)]
struct Slot {
    area: AtomicUsize,
    /// Requests that were served from here since somebody looked.
    served: AtomicU32,
}

/// The slots, and whether they are used.
#[derive(Debug)]
pub struct Wide {
    slots: [Slot; SLOTS],
    /// What went among the dirty runs last.
    last: AtomicUsize,
    /// Requests that took just that, less those that did not.
    score: AtomicU32,
}

impl Wide {
    /// Empty, and not used: zero bytes.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a part of a heap")]
    pub const fn new() -> Self {
        Self {
            slots: [const { Slot { area: AtomicUsize::new(0), served: AtomicU32::new(0) } }; SLOTS],
            last: AtomicUsize::new(0),
            score: AtomicU32::new(0),
        }
    }

    /// Whether what is freed may wait here.
    #[inline]
    pub fn is_used(&self) -> bool {
        // Relaxed: policy.
        self.score.load(Relaxed) >= SURE
    }

    /// Whether nothing does.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.peek().next().is_none()
    }

    /// An area went past here.
    pub fn went(&self, area: usize) {
        self.last.store(area, Relaxed);
    }

    /// One was taken past here.
    pub fn came(&self, area: usize) {
        // Relaxed, all: policy; of two at once one may not be counted.
        let score = self.score.load(Relaxed);
        let is_last = self.last.swap(0, Relaxed) == area;
        self.score.store(if is_last { (score + 1).min(2 * SURE) } else { score.saturating_sub(1) }, Relaxed);
    }

    /// The slots in the order in which a thread of a CPU looks at them.
    #[inline]
    fn from(&self, cpu: usize) -> impl Iterator<Item = &Slot> {
        (0..SLOTS).map(move |at| &self.slots[(cpu + at) % SLOTS])
    }

    /// Takes one that `fits`, which is asked before it is taken: it may be out of date by then.
    #[inline]
    pub fn take(&self, cpu: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
        self.from(cpu).find_map(|slot| {
            // Acquire pairs with the Release in `put`: what its last user did is done, and its descriptor is as he left it.
            let area = slot.area.load(Acquire);
            let takes = area != 0 && fits(area) && slot.area.compare_exchange(area, 0, Acquire, Relaxed).is_ok();
            if takes {
                slot.served.store(slot.served.load(Relaxed).wrapping_add(1), Relaxed);
            }
            takes.then_some(area)
        })
    }

    /// Takes what is there; of what comes meanwhile no more than that.
    pub fn take_all(&self) -> impl Iterator<Item = usize> + '_ {
        (0..SLOTS).filter_map(|_| self.take(0, |_| true))
    }

    /// Leaves one here; false if there is no room.
    #[inline]
    pub fn put(&self, cpu: usize, area: usize) -> bool {
        self.from(cpu).any(|slot| {
            // Release: see `take`.
            slot.area.load(Relaxed) == 0 && slot.area.compare_exchange(0, area, Release, Relaxed).is_ok()
        })
    }

    /// What is there, as far as can be seen.
    pub fn peek(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().map(|slot| slot.area.load(Relaxed)).filter(|&area| area != 0)
    }

    /// Whether nobody was served since the last time: then nothing waits here until it is worth it again.
    pub fn is_stale(&self) -> bool {
        // Relaxed: policy.
        let is_stale = self.slots.iter().fold(true, |none, slot| none & (slot.served.swap(0, Relaxed) == 0));
        if is_stale {
            self.score.store(0, Relaxed);
        }
        is_stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_waits_where_the_next_request_takes_it() {
        let wide = Wide::new();
        let pair = |area: usize, taken: usize| {
            wide.went(area);
            wide.came(taken);
        };
        (0..7).for_each(|_| pair(1 << 30, 1 << 30));
        assert!(!wide.is_used());
        pair(1 << 30, 2 << 30);
        pair(1 << 30, 1 << 30);
        assert!(!wide.is_used());
        pair(1 << 30, 1 << 30);
        assert!(wide.is_used());
        // Nobody was served; then somebody.
        assert!(wide.is_stale() && !wide.is_used());
        (0..30).for_each(|_| pair(1 << 30, 1 << 30));
        assert!(wide.put(0, 4096) && wide.take(1, |_| true) == Some(4096));
        assert!(!wide.is_stale() && wide.is_used());
        // As many the other way as count at most.
        (0..9).for_each(|_| pair(1 << 30, 2 << 30));
        assert!(!wide.is_used());
    }

    #[test]
    fn as_many_wait_as_there_is_room_for() {
        let wide = Wide::new();
        assert!(wide.is_empty() && wide.take(0, |_| true).is_none());
        assert!(wide.put(1, 1 << 12) && wide.put(1, 2 << 12) && !wide.put(1, 3 << 12) && !wide.is_empty());
        assert_eq!(wide.take(1, |area| area > 1 << 12), Some(2 << 12));
        assert_eq!(wide.take(0, |area| area > 1 << 12), None);
        assert!(wide.put(7, 4 << 12));
        assert!(wide.peek().eq([4 << 12, 1 << 12]) && wide.take_all().eq([4 << 12, 1 << 12]));
        assert!(wide.is_empty());
    }
}
