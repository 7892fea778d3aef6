//! # Emptying another CPU's set while its owner goes on
//!
//! After Nicolas Saenz Julienne, "mm/page_alloc: Remote per-cpu lists drain support" (Linux, 2022).
//!
//! ```text
//! slots[CPU] ────► home[CPU]     used by its threads    other[CPU]     used by nobody: empty, or to be collected
//!       └───── switch ─────► the two change places; then what is in `other` belongs to whoever takes the lock
//! ```
//! What makes sure that no sequence still uses the set that was switched off:
//!
//! | mode | who switches | the proof | the owner |
//! |---|---|---|---|
//! | *parked* | the owner, before it says that it will not allocate for a while | committed by a sequence on its own CPU: any other thread of it has been preempted since it began, and aborts | is not touched |
//! | *asked* | the owner, at its next slow path, because of the set's mark | the same | one sequence on a slow path |
//! | *fence* | the drainer | the fence of that CPU (`sets.rs`) | one interruption, if our process runs there; else none |
//!
//! | [`mark`](Set::mark) | of | means |
//! |---|---|---|
//! | `NONE` | any | nothing |
//! | `ASKED` | `home` | the owner is to switch at its next slow path |
//! | `PARKED` | `home` | the slot is void; whoever allocates there puts `home` back |
//! | `UNFENCED` | `other` | the system refused the fence: sequences may still be in it |
//!
//! Invariant: no sequence uses `other[CPU]`, unless it is `UNFENCED`. A thread that holds the lock of the slots may take
//! what is in it. So an answer waits there for whoever asked, and survives a fork.
//!
//! Unreached is what an isolated CPU's set, or a *gentle* drain's, holds when nobody answers; it is reported.
//! Locks: the slots' (`Cpus::state`), for the switches, the fence, and the copying of one set's words.
//! Cost: a store and a fence for each CPU (0.4–1.3 µs), or one fence for all; the owner's answer is one sequence.
#![allow(unsafe_code)] // sequences

use super::cpuset::CpuSet;
use super::layout::Word;
use super::set::{ASKED, NONE, PARKED, Set, UNFENCED};
use super::sets::{STEP, Sets, Words};
use crate::arch::atomic::Ordering::{Relaxed, Release};
use crate::arch::lock::Held;
use crate::arch::outcome::Outcome;
use crate::arch::seq;
use crate::arch::sys;
use crate::stat::board::FIRST_FRONT;
use crate::stat::{Event, Mode};

/// A CPU that never is: its fence interrupts nobody and tells whether there are fences.
const NO_CPU: u32 = 0x7fff_ffff;

/// What a round of switching came to.
#[derive(Clone, Copy, Debug)]
pub struct Switched {
    /// Indices whose old sets are to be collected now.
    pub done: CpuSet,
    /// Sets that the system gave no fence for, or that there was no other set for.
    pub refused: usize,
    /// Fences sent.
    pub fences: u64,
}

impl Set {
    /// Whether it holds objects. (Racy where the set is in use, as the kernel's look at its lists.)
    fn holds(&self) -> bool {
        self.has_sheaves() || self.near_full.load(Relaxed) > 0
    }

    /// Whether it holds objects but in its barns, which a thread that has lost the set to a drain may still fill.
    pub(super) fn has_sheaves(&self) -> bool {
        self.pairs[1..].iter().any(|pair| pair.main.load(Relaxed) != 0 || pair.spare.load(Relaxed) != 0)
    }
}

impl Sets {
    /// The set that CPU `index` uses when nothing is in flight.
    pub fn home_of(&self, index: usize) -> Option<&Set> {
        // Relaxed: whoever trusts what is in the set holds the lock.
        let home = self.home[index].load(Relaxed);
        (home != 0).then(|| self.set_at(home))
    }

    /// Whether there is something to drain at `index`.
    pub fn holds(&self, index: usize) -> bool {
        self.home_of(index).is_some_and(Set::holds)
    }

    /// Whether `index` caches areas (see `heap::front`).
    #[must_use]
    pub fn holds_areas(&self, index: usize) -> bool {
        let fronts = |set: &Set| set.pairs[FIRST_FRONT..].iter().any(|pair| pair.main().serves(false));
        self.home_of(index).is_some_and(fronts)
    }

    /// Whether the owner of `index` has parked.
    pub fn is_parked(&self, index: usize) -> bool {
        self.home_of(index).is_some_and(|set| set.mark.load(Relaxed) == PARKED)
    }

    /// Whether there is something that [`Sets::collect`] would return.
    pub fn is_answered(&self, index: usize) -> bool {
        self.other_of(index).is_some_and(Set::has_sheaves)
    }

    /// The set that `index` had before its last drain.
    pub(super) fn other_of(&self, index: usize) -> Option<&Set> {
        let other = self.other[index].load(Relaxed);
        (other != 0).then(|| self.set_at(other))
    }

    /// The empty set that takes the place of `set`, entitled to what it was; `None` if there are no more, or
    /// the last one has not been collected. The caller holds the lock.
    fn substitute(&self, state: &Held<'_>, index: usize, set: &Set) -> Option<usize> {
        let new = match self.other[index].load(Relaxed) {
            0 => {
                let new = self.fresh(state)?;
                // The drainer touches it first, the owner uses it.
                if self.cpus.nodes() > 1 {
                    sys::bind(
                        self.set_at(new) as *const Set as usize,
                        crate::arch::PAGE,
                        set.node.load(Relaxed) as usize,
                    );
                }
                new
            }
            kept => kept,
        };
        let fresh = self.set_at(new);
        if fresh.mark.load(Relaxed) == UNFENCED && !self.cpus.fence_all() {
            return None;
        }
        fresh.mark.store(NONE, Relaxed);
        if fresh.has_sheaves() {
            return None;
        }
        fresh.node.store(set.node.load(Relaxed), Relaxed);
        // (What areas may stay begins anew: see `heap::front`.)
        for (to, from) in fresh.limits.iter().zip(&set.limits).take(FIRST_FRONT) {
            // Added: a thread that was about to raise the old set's limit when that was drained
            // last may have raised it since, and the budget was charged for it.
            let moved = from.swap(0, Relaxed);
            to.store(to.load(Relaxed).saturating_add(moved), Relaxed);
        }
        fresh.forget_areas();
        for (to, from) in fresh.batches.iter().zip(&set.batches) {
            to.store(from.load(Relaxed), Relaxed);
        }
        Some(new)
    }

    /// Switches off the sets of these indices that hold something, with a fence of each one's CPU, or one
    /// for all where that is cheaper and no isolated CPU could be disturbed. Parked sets need none.
    pub fn switch_off(&self, wanted: &CpuSet) -> Switched {
        let none = wanted.none();
        let mut switched = Switched { done: none, refused: 0, fences: 0 };
        let mut fenced = none;
        let state = self.cpus.lock();
        let closed = self.cpus.is_closed();
        let mut able = None;
        for index in wanted.iter() {
            let old = self.home[index].load(Relaxed);
            if old == 0 {
                continue;
            }
            if self.is_answered(index) {
                switched.done.insert(index);
                continue;
            }
            let set = self.set_at(old);
            if !set.holds() {
                continue;
            }
            let parked = set.mark.load(Relaxed) == PARKED;
            // Asked before anything is switched: a fence that nobody feels.
            if closed || !parked && !*able.get_or_insert_with(|| self.cpus.fence_cpu(NO_CPU)) {
                switched.refused += 1;
                continue;
            }
            let Some(new) = self.substitute(&state, index, set) else {
                switched.refused += 1;
                continue;
            };
            // In this order: a handler that forks here opens none that is parked.
            self.home[index].store(new, Relaxed);
            self.other[index].store(old, Relaxed);
            set.mark.store(NONE, Relaxed);
            switched.done.insert(index);
            if !parked {
                // Release: the new set is seen whole.
                self.slots[index].store(new, Release);
                fenced.insert(index);
            }
        }
        // (The fences order: what they interrupt goes on behind our stores.)
        let mut fences = |done: bool| {
            switched.fences += 1;
            done
        };
        let all = fenced.len() > 1 && self.isolated.is_empty();
        let fenced_all = all && fences(self.cpus.fence_all());
        for index in fenced.iter() {
            let set = self.set_at(self.other[index].load(Relaxed));
            if !fenced_all && (all || !fences(self.cpus.fence_cpu(index as u32))) {
                set.mark.store(UNFENCED, Relaxed);
                switched.done.remove(index);
                switched.refused += 1;
            }
        }
        drop(state);
        self.count(Event::Fence, switched.fences);
        switched
    }

    /// Takes what the set that was switched off at `index` held of [`STEP`] classes from `first` on; `None` if it holds
    /// nothing any more.
    pub fn collect(&self, index: usize, first: usize) -> Option<Words> {
        let _state = self.cpus.lock();
        let other = self.other[index].load(Relaxed);
        if other == 0 || !self.set_at(other).has_sheaves() {
            return None;
        }
        let set = self.set_at(other);
        if set.mark.load(Relaxed) == UNFENCED {
            if !self.cpus.fence_all() {
                return None;
            }
            set.mark.store(NONE, Relaxed);
        }
        // Fallback: whoever was inside has left; whoever comes sees the new pointer.
        let _held = set.held.lock();
        // Relaxed: the fence, or the lock that the owner held when it switched, ordered
        // the owners' stores before these loads.
        let mut words = [[Word::NONE; 2]; STEP];
        // Class 0 is the self-test's.
        for (words, pair) in words.iter_mut().zip(set.pairs.iter().skip(first)).skip(usize::from(first == 0)) {
            *words = [&pair.main, &pair.spare].map(|word| Word(word.swap(0, Relaxed)));
        }
        Some(words)
    }

    /// Asks the owner of `index` to switch at its next slow path; whether it was asked.
    pub fn ask(&self, index: usize) -> bool {
        let _state = self.cpus.lock();
        let Some(set) = self.home_of(index) else { return false };
        // In the fallback anybody may switch; a parked set has been given up already.
        let asked = self.mode() != Mode::Fallback && set.mark.load(Relaxed) == NONE;
        if asked {
            // Relaxed: the owner finds it sooner or later; it takes the lock then.
            set.mark.store(ASKED, Relaxed);
        }
        asked
    }

    /// The owner of `index` need not answer any more; false if it has, or nobody asked.
    pub fn withdraw(&self, index: usize) -> bool {
        let _state = self.cpus.lock();
        let Some(set) = self.home_of(index) else { return false };
        let asked = set.mark.load(Relaxed) == ASKED;
        if asked {
            set.mark.store(NONE, Relaxed);
        }
        asked
    }

    /// The owner's answer: this CPU goes to an empty set. False if it could not be done now.
    #[cold]
    pub(super) fn answer(&self, index: usize, set: &Set) -> bool {
        let Some(state) = self.cpus.try_lock() else { return false };
        let old = self.home[index].load(Relaxed);
        let asked = set.mark.load(Relaxed) == ASKED;
        if self.cpus.is_closed() || !asked || old == 0 || !core::ptr::eq(self.set_at(old), set) {
            return false;
        }
        let Some(new) = self.substitute(&state, index, set) else { return false };
        if self.switch(set, new) != Outcome::Done(()) {
            // Nothing but what `substitute` moved has changed; what the owner is entitled to comes back.
            self.entitle_again(set, self.set_at(new));
            self.other[index].store(new, Relaxed);
            return false;
        }
        set.mark.store(NONE, Relaxed);
        self.home[index].store(new, Relaxed);
        self.other[index].store(old, Relaxed);
        drop(state);
        self.count(Event::Answer, 1);
        true
    }

    fn entitle_again(&self, set: &Set, unused: &Set) {
        for (to, from) in set.limits.iter().zip(&unused.limits) {
            let moved = from.swap(0, Relaxed);
            let mut seen = to.load(Relaxed);
            // Relaxed: a number; whoever else changes it has charged the budget for that.
            while let Err(now) = to.compare_exchange(seen, seen.saturating_add(moved), Relaxed, Relaxed) {
                seen = now;
            }
        }
    }

    /// The calling thread will not allocate for a while: its CPU's set is given up to whoever drains, without
    /// disturbing this CPU. The next allocation there takes it back. Whether it was done.
    pub fn park(&self) -> bool {
        for _ in 0..16 {
            let Some(set) = self.ready() else { return false };
            let _state = self.cpus.lock();
            if self.cpus.is_closed() {
                return false;
            }
            // Marked first: a handler that allocates behind the switch puts the set back, and takes the mark with it. (A set that was
            // asked has its answer with that.)
            let before = set.mark.swap(PARKED, Relaxed);
            self.parks.store(true, Relaxed);
            let outcome = self.switch(set, 0);
            #[cfg(test)]
            if outcome == Outcome::Done(()) {
                tests::HANDLER.with(|handler| handler.take().into_iter().for_each(|handler| handler()));
            }
            self.parks.store(false, Relaxed);
            if outcome == Outcome::Done(()) {
                return true;
            }
            // Preempted, or on another CPU by now: again from there. A set that was switched off meanwhile, too.
            set.mark.store(before, Relaxed);
            if self.mode() == Mode::Fallback {
                return false;
            }
        }
        false
    }

    /// Commits `slots[this CPU] = new` if that is `old` now. The caller holds the lock.
    fn switch(&self, old: &Set, new: usize) -> Outcome<()> {
        match self.mode() {
            // SAFETY: `self` is the board, the area right, `new` a set that nobody uses, or none.
            Mode::Sequences => unsafe { seq::switch(self.board_pointer(), self.area(), &raw const *old as usize, new) },
            Mode::Simulated => self.switch_simulated(old, new),
            _ => Outcome::Refused,
        }
    }

    /// One eighth less of what this index's sheaves are entitled to (the kernel's decay of `high`), and told
    /// by `lowered` (class, objects), so that the budget gets it back.
    pub fn decay(&self, index: usize, mut lowered: impl FnMut(usize, usize)) {
        let Some(set) = self.home_of(index) else { return };
        for (class, limit) in set.limits.iter().enumerate().take(FIRST_FRONT) {
            let now = limit.load(Relaxed);
            let less = now.div_ceil(8);
            // Whoever else changes it has the newer reason. Relaxed: a number.
            if now > 0 && limit.compare_exchange(now, now - less, Relaxed, Relaxed).is_ok() {
                lowered(class, less as usize);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::sets::BYTES;
    use super::super::sheaf::Sheaf;
    use super::*;
    use crate::arch::seq::RseqArea;
    use crate::meta::Meta;
    use crate::stat::board::CLASSES_MAX;

    const CLASS: usize = 1;

    std::thread_local! {
        /// What a signal's handler does that comes right behind the switch of a set that is parked.
        pub static HANDLER: core::cell::Cell<Option<fn()>> = const { core::cell::Cell::new(None) };
    }

    /// Sets in the fallback, and the index of one that has been drained.
    fn drained(sets: &Sets) -> usize {
        let base = sys::map(0, BYTES, sys::Access::ReadWrite).unwrap();
        // SAFETY: a fresh mapping, kept for ever.
        unsafe { sets.open(base, Mode::Fallback, RseqArea::default(), None) };
        let index = sets.cpus.index();
        fill(sets, index);
        assert!(switch_off(sets).done.contains(index));
        // (A class at a time: what is left is collected, and then there is nothing.)
        assert!((0..CLASSES_MAX).step_by(STEP).any(|first| sets.collect(index, first).is_some()));
        assert!(sets.collect(index, 0).is_none());
        index
    }

    /// Switches off all that a set of this machine's CPUs may be.
    fn switch_off(sets: &Sets) -> Switched {
        let mut all = CpuSet::around(0);
        sets.used_of(0).for_each(|index| all.insert(index));
        sets.switch_off(&all)
    }

    /// Puts an object into the set of a CPU, when this thread happens to run there.
    fn fill(sets: &Sets, index: usize) {
        while !sets.holds(index) {
            let word = Sheaf::new(&Meta::new(), sets.board(), 4).unwrap().into_word(4);
            sets.ready();
            // SAFETY: a sheaf of ours.
            let _ = unsafe { sets.swap(CLASS, false, Word::NONE, word) };
        }
    }

    /// What a set lost after its switch, while the fence for it was refused, makes no difference later.
    #[test]
    fn an_empty_set_without_its_fence_is_used_again() {
        static SETS: Sets = Sets::new();
        let index = drained(&SETS);
        SETS.set_at(SETS.other[index].load(Relaxed)).mark.store(UNFENCED, Relaxed);
        fill(&SETS, index);
        let switched = switch_off(&SETS);
        // (With those of other CPUs on which this thread ran meanwhile.)
        assert_eq!((switched.done.contains(index), switched.refused), (true, 0));
    }

    /// A sequence of the parent may have been about to commit when the child's memory was copied.
    #[test]
    fn a_child_without_a_fence_forgets_what_was_switched_off_without_one() {
        static SETS: Sets = Sets::new();
        let index = drained(&SETS);
        fill(&SETS, index);
        assert!(switch_off(&SETS).done.contains(index));
        let other = SETS.set_at(SETS.other[index].load(Relaxed));
        for (mark, left) in [(NONE, true), (UNFENCED, false)] {
            other.mark.store(mark, Relaxed);
            SETS.close();
            SETS.inherit(0, true);
            SETS.reopen();
            assert_eq!(other.has_sheaves(), left);
        }
    }
}
