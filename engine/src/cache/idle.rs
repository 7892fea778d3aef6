//! # Classes that do nothing give way to those that starve
//!
//! ```text
//! entitle: the budget is spent ──► set.starves
//! a slow path's end: it does? ──► hand ──► class: has it done anything since the last look? ── yes ──► the next
//!                                   ▲                └ no ──► a sheaf of its to the barn or the source; with the last
//!                                   └── LOOKS at a time            one what it was entitled to back to the budget
//! ```
//! A program that goes from one phase to the next leaves sheaves behind of classes that it needs no more, and the whole budget with
//! them. The hand goes round as that of a clock: a class has until it comes by again to do something.
//!
//! Units: classes, bytes of the budget. Invariant: what is lowered here was raised for that class by [`Cache::entitle`]. Locks: those of
//! barns and source, none of them while another is held. Cost: the way to the set and a load a slow path while the budget
//! suffices, then some loads more; a sheaf where one gives way, so that nobody waits for more.
#![allow(unsafe_code)] // sheaves change owners

use super::layout::Word;
use super::set::Set;
use super::{Cache, Source};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::stat::{Event, Level};
use core::ops::Range;

/// Classes that a slow path looks at.
const LOOKS: usize = 2;

impl Cache {
    /// If a class of this CPU's starved: takes from one of these that does nothing.
    #[inline]
    pub fn feed(&self, source: &impl Source, classes: Range<usize>) {
        // Relaxed, as all here: hints of this CPU's threads.
        if let Some(set) = self.sets.ready()
            && set.starves.load(Relaxed)
        {
            set.starves.store(false, Relaxed);
            self.take_from_idle(source, set, classes);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_from_idle(&self, source: &impl Source, set: &Set, classes: Range<usize>) {
        for _ in 0..LOOKS {
            let class = set.hand.load(Relaxed) as usize % classes.len() + classes.start;
            let gives =
                set.limits[class].load(Relaxed) as usize > Self::least(source.size(class)) && self.is_idle(set, class);
            let stays = gives && self.give_way(source, set, class);
            set.hand.store((class - classes.start + usize::from(!stays)) as u8, Relaxed);
            if gives {
                break;
            }
        }
    }

    /// Whether a class has done nothing since this was asked last (or as many operations as come to the same byte).
    fn is_idle(&self, set: &Set, class: usize) -> bool {
        let ops = &self.sets.tally_of(set).class[class];
        let now = ops.allocs.load(Relaxed).wrapping_add(ops.frees.load(Relaxed)) as u8;
        let is_idle = set.done[class].load(Relaxed) == now;
        set.done[class].store(now, Relaxed);
        is_idle
    }

    /// A class of this CPU's gives a sheaf up; with the last it begins anew, entitled to nothing. Whether there is more.
    fn give_way(&self, source: &impl Source, set: &Set, class: usize) -> bool {
        if let Some(full) = self.take_near(source, set, class) {
            self.release(source, class, full.into_word(0));
            return true;
        }
        let (main, spare) = Self::words(set, class);
        let (is_spare, word) = if spare == Word::NONE { (false, main) } else { (true, spare) };
        // SAFETY: takes it out; if done, it is ours.
        if word != Word::NONE && unsafe { self.sets.swap(class, is_spare, word, Word::NONE) } == Outcome::Done(()) {
            self.release(source, class, word);
        }
        if is_spare {
            return true;
        }
        let limit = set.limits[class].swap(0, Relaxed) as usize;
        self.sets.board().lower(Level::Charged, limit * source.size(class) * 2);
        self.sets.count(Event::ClassIdle, 1);
        false
    }
}
