//! # What was looked for in vain
//!
//! Where nothing was found nothing is looked for again until something was freed: frees only add up, so no two states of
//! the tallies are equal; that two have one signature is as likely as a number of 64 bits guessed. Cost: a sum over the tallies.

use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicU64, AtomicUsize};
use crate::cache::sets::Sets;
use crate::stat::{Event, Level};

/// What was looked for in vain last.
#[derive(Debug)]
pub(super) struct Barren {
    bytes: AtomicUsize,
    signature: AtomicU64,
}

impl Barren {
    pub(super) const fn new() -> Self {
        Self { bytes: AtomicUsize::new(0), signature: AtomicU64::new(0) }
    }

    /// What `look` finds of `bytes`, unless it would be in vain: as little was not there, and nothing was freed since.
    ///
    /// Relaxed, all: no two states have one signature, and what is stored beside an older one is looked
    /// for once more.
    pub(super) fn look<T>(&self, sets: &Sets, bytes: usize, look: impl FnOnce() -> Option<T>) -> Option<T> {
        // Before the look: what is freed meanwhile makes another.
        let signature = signature(sets);
        let is_known = self.signature.load(Relaxed) == signature;
        if is_known && bytes >= self.bytes.load(Relaxed) {
            return None;
        }
        let found = look();
        if found.is_none() {
            self.bytes.store(bytes, Relaxed);
            self.signature.store(signature, Relaxed);
        }
        found
    }
}

/// Changes with everything that may leave free memory.
fn signature(sets: &Sets) -> u64 {
    // (Each a word of its own: a slow free changes two, and what mixed both at once came again.)
    let frees = [sets.frees()];
    let events =
        [Event::FreeSlowpath, Event::AreaFree, Event::AreaGrow, Event::AreaMove].map(|event| sets.event(event));
    let levels = [Level::Lazy, Level::PagesFree, Level::Mapped].map(|level| sets.level(level));
    // (A hash: Knuth's multiplier.)
    let mix = |sum: u64, word: &u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    frees.iter().chain(&events).chain(&levels).fold(1, mix)
}

#[cfg(test)]
mod tests;
