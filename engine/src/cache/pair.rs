//! # Main and spare
//!
//! ```text
//! main empty, spare not   or   main full, spare not     ──► they change places: at once, or one after the other
//! one full, the other empty, and it is time             ──► they are evened out: both have objects and room
//! main taken out                                        ──► installed again, in a block that is large enough
//! ```
//! Two sheaves of a set's class, and what a slow path does with these alone. Each is a committed compare-and-store of a word
//! ([`Sets::swap`](super::Sets::swap)), or one of both ([`Sets::exchange`](super::Sets::exchange)); who took a sheaf out owns it until he keeps it here again, and gives it up where somebody was
//! faster. Units: objects. Locks: none. Cost: a sequence each, two for a change of places in steps, four and a copy to even out.
#![allow(unsafe_code)] // sheaves change owners

use super::layout::Word;
use super::set::{Pair, Set};
use super::sheaf::Sheaf;
use super::{Cache, Source};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::stat::Event;

/// Objects from which on two sheaves are evened out, after one in so many allocations (few in models, whose sheaves hold few).
const EVENED: u64 = if cfg!(allotment_models) { 2 } else { 8 };
/// See [`EVENED`].
const EVENED_ONCE_IN: u64 = if cfg!(allotment_models) { 2 } else { 7 };
/// Most objects that go over then.
const EVENED_MOST: u64 = 32;
impl Cache {
    /// Main, or the spare in its place, if either `serves`.
    ///
    /// # Errors
    /// Main and spare, of which none does: what they are when they are taken must be what was looked at.
    #[inline]
    pub(super) fn look(
        &self,
        source: &impl Source,
        set: &Set,
        class: usize,
        serves: impl Fn(Word) -> bool,
    ) -> Result<(), (Word, Word)> {
        let (main, spare) = Self::words(set, class);
        if serves(main) {
            return Ok(());
        }
        if serves(spare) {
            let (newer, older) = self.turn(set, class, main, spare);
            self.keep(source, class, false, newer);
            self.keep(source, class, true, older);
            return Ok(());
        }
        Err((main, spare))
    }

    /// Exchanges main and spare where the spare serves and main does not: at once (that needs no gate, and serves fast paths), or false.
    #[inline]
    pub fn exchange_at_once(&self, class_offset: usize, room: bool) -> bool {
        let class = class_offset / size_of::<Pair>();
        if self.sets.present().is_some_and(|set| self.is_uneven(set, class)) {
            return false;
        }
        let is_done = self.sets.exchange(class_offset, room) == Outcome::Done(());
        if is_done {
            self.sets.count(Event::SheafSwap, 1);
        }
        is_done
    }

    /// Whether one of the two is full and the other empty, and it is time to change that: after one in seven allocations, since who comes
    /// here all the time comes soon after one of those, and who takes and frees a thousand at a time need not pay for it.
    fn is_uneven(&self, set: &Set, class: usize) -> bool {
        // Relaxed: any number will do.
        if !self.sets.tally_of(set).class[class].allocs.load(Relaxed).is_multiple_of(EVENED_ONCE_IN) {
            return false;
        }
        let (main, spare) = Self::words(set, class);
        let (full, empty) = if main.serves(false) { (main, spare) } else { (spare, main) };
        let is_one_sided = !full.serves(true) && !empty.serves(false) && empty.serves(true);
        is_one_sided && full.count() >= EVENED && empty.room() >= EVENED
    }

    /// Has the spare serve in main's place: what the caller is to [`keep`](Cache::keep) as main and as spare. Each sheaf has one owner at
    /// any time. (Out of line: what its callers do next needs none of this frame.)
    #[inline(never)]
    pub(super) fn turn(&self, set: &Set, class: usize, main: Word, spare: Word) -> (Word, Word) {
        if self.is_uneven(set, class) { self.even(set, class, main, spare) } else { self.exchange(class, main, spare) }
    }

    /// Takes main and spare out and evens them out: the newest of the full one's objects, half of them or [`EVENED_MOST`], go into the empty
    /// one, which is main then. So both have room and objects, and it takes as many operations to or fro until the next visit, not one.
    /// Cost: four sequences and a copy.
    pub(super) fn even(&self, set: &Set, class: usize, main: Word, spare: Word) -> (Word, Word) {
        // SAFETY: takes the spare out; if done, it is ours.
        if unsafe { self.sets.swap(class, true, spare, Word::NONE) } != Outcome::Done(()) {
            return (Word::NONE, Word::NONE);
        }
        let Some(first) = self.take_main(class, main, 0) else { return (Word::NONE, spare) };
        // SAFETY: as said.
        let Some(second) = (unsafe { Sheaf::from_word(spare) }) else { return (first.into_word(0), Word::NONE) };
        let is_main_full = main.serves(false);
        let (mut full, mut empty) = if is_main_full { (first, second) } else { (second, first) };
        let (count, room) = if is_main_full { (main.count(), spare.room()) } else { (spare.count(), main.room()) };
        full.give_newest(&mut empty, (count.min(room) / 2).min(EVENED_MOST) as usize);
        let limit = (set.limits[class].load(Relaxed) as usize).max(room as usize);
        let newer = empty.fitting(&self.meta, self.sets.board(), limit);
        (newer.into_word(limit), full.into_word(count as usize))
    }

    /// Exchanges main and spare, in steps.
    pub(super) fn exchange(&self, class: usize, main: Word, spare: Word) -> (Word, Word) {
        // SAFETY: takes the spare out; if done, it is ours.
        if unsafe { self.sets.swap(class, true, spare, Word::NONE) } != Outcome::Done(()) {
            return (Word::NONE, Word::NONE);
        }
        // SAFETY: the spare is ours to put in; if done, the old main is ours.
        if unsafe { self.sets.swap(class, false, main, spare) } != Outcome::Done(()) {
            return (Word::NONE, spare);
        }
        self.sets.count(Event::SheafSwap, 1);
        (Word::NONE, main)
    }

    /// Puts a sheaf where main was taken out, with slots for `limit` objects, unless somebody else put one there.
    pub(super) fn install(&self, source: &impl Source, class: usize, sheaf: Sheaf, limit: usize) {
        self.keep(source, class, false, sheaf.fitting(&self.meta, self.sets.board(), limit).into_word(limit));
    }

    /// Keeps a sheaf of ours as main, or as the spare, if that place is empty.
    pub(super) fn keep(&self, source: &impl Source, class: usize, spare: bool, word: Word) {
        if word == Word::NONE {
            return;
        }
        // SAFETY: the sheaf is ours to put in.
        if unsafe { self.sets.swap(class, spare, Word::NONE, word) } != Outcome::Done(()) {
            self.release(source, class, word);
        }
    }
}
