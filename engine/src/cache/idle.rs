//! # Classes that do nothing give way to those that starve, or grow
//!
//! ```text
//! entitle: the budget is spent ──► set.starves;  a slab is made, or an area of fresh pages ──► set.grew
//! a slow path's end: either?  ──► hand ──► class: has it done anything since the last look? ── no ──► a sheaf of its to the
//!                                   ▲         │                                                     source; with the last one what it
//!                                   │         ├ yes, it grew, and its slabs are hollow ─────────────► was entitled to to the budget
//!                                   └── LOOKS └ yes, and it grew ──► one of a barn that nobody wanted since then, likewise
//!
//! a class of areas lacks room, and the set has no more ──► another hand ──► class of areas: idle? half of what it holds (`heap::front`)
//!
//! the keeper, each second ──► barns: all that nobody wanted since
//! ```
//! A program that goes from one phase to the next leaves sheaves behind of classes that it needs no more, and the whole budget with
//! them; and each object in them keeps a slab of up to 128 KiB, from which others may be long gone. So before memory is taken for one class, or for an area, others give
//! back what they do not use. The hand goes round as that of a clock: a class has until it comes by again to do something.
//!
//! Units: classes, bytes of the budget. Invariant: what is lowered here was raised for that class by [`Cache::entitle`]. Locks: those of
//! barns and source, none of them while another is held. Cost: the way to the set and a load a slow path while the budget
//! suffices, then some loads more; a sheaf where one gives way, so that nobody waits for more.
#![allow(unsafe_code)] // sheaves change owners

use super::layout::Word;
use super::set::{LACKED, SEEN, Set, WANTED};
use super::sheaf::{Barn, Sheaf};
use super::{Cache, Source};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};
use crate::stat::{Event, Level};
use core::ops::Range;

/// Classes that a slow path looks at.
const LOOKS: usize = 4;

impl Cache {
    /// If a class of this CPU's starved, or took memory: takes from one of these that does nothing.
    #[inline]
    pub fn feed(&self, source: &impl Source, classes: Range<usize>) {
        // Relaxed, as all here: hints of this CPU's threads.
        if let Some(set) = self.sets.ready()
            && (set.starves.load(Relaxed) || set.grew.load(Relaxed))
        {
            let grew = set.grew.load(Relaxed);
            set.starves.store(false, Relaxed);
            set.grew.store(false, Relaxed);
            self.take_from_idle(source, set, classes, grew);
        }
    }

    /// Memory was taken for a class.
    pub fn grew(&self) {
        if let Some(set) = self.sets.ready() {
            set.grew.store(true, Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_from_idle(&self, source: &impl Source, set: &Set, classes: Range<usize>, grew: bool) {
        for _ in 0..LOOKS {
            let class = set.hands[0].load(Relaxed) as usize % classes.len() + classes.start;
            let has_much = set.limits[class].load(Relaxed) as usize > Self::least(source.size(class));
            let is_idle = self.is_idle(set, class) && has_much || grew && Self::is_hollow(source, set, class);
            let stays = is_idle && self.give_way(source, set, class);
            set.hands[0].store((class - classes.start + usize::from(!stays)) as u8, Relaxed);
            if is_idle || grew && self.barns_give_way(source, set, class) {
                break;
            }
        }
    }

    /// A class of areas is full: whether one was lacked since it was so last, and whether none was asked for (or as many as come to the same
    /// six bits).
    pub fn area_fills(&self, set: &Set, class: usize) -> (bool, bool) {
        // Relaxed, both: hints, of this CPU's threads alone but for a moment.
        let asked = (self.sets.tally_of(set).class[class].allocs.load(Relaxed) as u16) << 2 & SEEN;
        let before = set.batches[class].swap(WANTED | asked, Relaxed);
        (before & LACKED != 0, before & (LACKED | SEEN) == asked)
    }

    /// A class of areas that may hold some and has done nothing since another hand was there last, if that comes to one now.
    pub fn idle_areas(&self, set: &Set) -> Option<usize> {
        let classes = FIRST_FRONT..CLASSES_MAX;
        (0..LOOKS).find_map(|_| {
            let class = set.hands[1].load(Relaxed) as usize % classes.len() + classes.start;
            set.hands[1].store((class + 1 - classes.start) as u8, Relaxed);
            let (now, word) = (self.done(set, class), &set.batches[class]);
            let [flags, last] = word.load(Relaxed).to_le_bytes();
            word.store(u16::from_le_bytes([flags, now]), Relaxed);
            (last == now && set.limits[class].load(Relaxed) > 0).then_some(class)
        })
    }

    /// Whether a class has done nothing since this was asked last (or as many operations as come to the same byte).
    fn is_idle(&self, set: &Set, class: usize) -> bool {
        let now = self.done(set, class);
        let is_idle = set.done[class].load(Relaxed) == now;
        set.done[class].store(now, Relaxed);
        is_idle
    }

    /// The lowest byte of a class's operations.
    fn done(&self, set: &Set, class: usize) -> u8 {
        let ops = &self.sets.tally_of(set).class[class];
        ops.allocs.load(Relaxed).wrapping_add(ops.frees.load(Relaxed)) as u8
    }

    /// Whether what is cached of a class keeps slabs of which hardly anything is out, and more comes back of it than is asked for.
    fn is_hollow(source: &impl Source, set: &Set, class: usize) -> bool {
        let shrinks = usize::from(set.batches[class].load(Relaxed)) <= Self::least(source.size(class));
        shrinks && source.is_hollow(class)
    }

    /// What a sheaf of ours holds goes where it came from: in a barn it would keep whole slabs from being given up. (But for what
    /// would take long, which may go the next time.)
    fn send_home(&self, source: &impl Source, class: usize, mut sheaf: Sheaf) {
        source.relieve(class, &mut sheaf);
        self.release(source, class, sheaf.into_word(0));
    }

    /// The barn that this set has to itself or the node's gives up a sheaf that nobody wanted since the last look.
    fn barns_give_way(&self, source: &impl Source, set: &Set, class: usize) -> bool {
        let near = set.near.get(class).and_then(Barn::take_unused).inspect(|_| set.near_left());
        let unused = near.or_else(|| self.barn(class).take_unused());
        let is_one = unused.is_some();
        if let Some(full) = unused {
            self.left_barn(source, class, &full);
            self.send_home(source, class, full);
        }
        is_one
    }

    /// All barns give up what nobody wanted since the last look, or less if somebody waits. For a thread of ours. (Out of line:
    /// what gives back afterwards needs none of this frame.)
    #[inline(never)]
    pub fn relieve_barns(&self, source: &impl Source, classes: Range<usize>, waits: impl Fn() -> bool) {
        let unused = |class, barn: &Barn| {
            let full = if waits() { None } else { barn.next_unused() };
            full.inspect(|full| self.left_barn(source, class, full))
        };
        for class in classes {
            // (Where none is full none is unused: a look, that spares a lock.)
            for set in self.sets.all().filter(|set| set.near_full.load(Relaxed) > 0) {
                let near = || unused(class, set.near.get(class)?).inspect(|_| set.near_left());
                self.flush_all(source, class, self.barn(class), near, |_| ());
            }
            for barns in &self.barns[..self.sets.cpus.nodes()] {
                self.flush_all(source, class, &barns[class], || unused(class, &barns[class]), |_| ());
            }
        }
    }

    /// A class of this CPU's gives a sheaf up; with the last it begins anew, entitled to nothing. Whether there is more.
    fn give_way(&self, source: &impl Source, set: &Set, class: usize) -> bool {
        let near = self.take_near(source, set, class);
        let from_barn = || if source.is_hollow(class) { self.take_full(source, class, self.barn(class)) } else { None };
        if let Some(full) = near.or_else(from_barn) {
            self.send_home(source, class, full);
            return true;
        }
        let (main, spare) = Self::words(set, class);
        let (is_spare, word) = if spare == Word::NONE { (false, main) } else { (true, spare) };
        // SAFETY: takes it out; if done, it is ours.
        let is_ours =
            word != Word::NONE && unsafe { self.sets.swap(class, is_spare, word, Word::NONE) } == Outcome::Done(());
        // SAFETY: a committed swap gave it to us.
        if is_ours && let Some(sheaf) = unsafe { Sheaf::from_word(word) } {
            self.send_home(source, class, sheaf);
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
