//! # The sets of all CPUs, and the one switch
//!
//! ```text
//! Sets: ┌ void ┬ … ┬ slots[CPU] ──────────┐      slots: where the fast path goes now (offset from Sets; 0 = void)
//!       └──────┴───┴ home[CPU] ───────────┤      home:  where it goes when nothing is in flight
//!                                         ▼
//! sets mapping:  set 0 │ set 1 │ …  SETS_MAX │ board │ tally 0 │ tally 1 │ …        at a multiple of 2 × TALLY
//! ```
//! Set 0 serves no CPU; its tally counts what happens outside any set. Sets and tallies are mapped as they are made
//! (see [`room`]). Of a shared board the texts are a mapping of their own.
//!
//! | state | slots | who may change a set |
//! |---|---|---|
//! | open | = home | sequences on its CPU |
//! | closed (fork or vfork in flight) | all void | nobody |
//! | drained | home is another set, this one in `other` | the drainer that switched it off |
//!
//! ## Switching a set off
//! Store the new pointer into the slot and fence that CPU: the old set is the drainer's.
//!
//! ## As many sets as threads run at once
//! A thread that comes to a CPU without a set has an index, which the kernel gives to one running thread at a time, as low as may be
//! (`mm_cid`; where there is none it is the CPU). The set of the CPU on which that index was last comes along
//! ([`Sets::follow`]): switched off there, behind the fence it is this CPU's. So there are as a rule no more sets than indices, but
//! where the system refuses the fence or an isolated CPU would feel it. Another thread may run on that other CPU by now: it takes its own
//! index's set in the same way.
//!
//! Locks: `state`, taken before any other, also outside the gate, by vforks; a handler that forks or vforks passes through
//! what it interrupted, and leaves slots void then: [`Sets::ready`] fills them one by one. Cost: nothing on the fast path but the load of the slot.
#![allow(unsafe_code)] // addresses of sets and tallies

pub mod room;

use super::cpuset::{Isolated, WINDOW, bits};
use super::layout::Word;
use super::set::{ASKED, NONE, PARKED, Pair, Set, UNFENCED};
use super::shared::Share;
use super::sheaf::{Barn, Sheaf};
use super::steps::{self, Locked, Simulated, Steps};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::arch::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize};
use crate::arch::lock::Held;
use crate::arch::outcome::Outcome;
use crate::arch::seq::{self, RseqArea, TALLY};
use crate::arch::sys::Clock;
use crate::cpu::sim::{self, Interrupted};
use crate::cpu::{Cpus, INDICES, Simulation};
use crate::meta::Meta;
use crate::stat::board::{BOARD_BYTES, CLASSES_MAX, ClassOps, FIRST_FRONT, SETS_MAX, TALLY_BYTES};
use crate::stat::{Board, Event, Mode, Tally};

/// Bytes of sets, board and tallies, all that can ever be.
pub const BYTES: usize = TALLY + SETS_MAX * TALLY_BYTES;

// What the assembly takes for granted.
const _: () =
    assert!(size_of::<Set>() <= PAGE && size_of::<Pair>() == 16 && core::mem::offset_of!(Pair, main) == seq::MAIN);
const _: () = assert!(core::mem::offset_of!(Sets, void) == 0, "a slot is an offset from the void set");
const _: () =
    assert!(core::mem::offset_of!(Sets, slots) == seq::SLOTS, "SLOTS of arch/operands.rs is where the slots are");
// What an unregistered thread reads as its CPU.
const _: () = assert!(core::mem::offset_of!(Sets, strangers) + 2 * size_of::<usize>() == seq::SLOTS);
const _: () = assert!(SETS_MAX * PAGE + BOARD_BYTES == TALLY);
const _: () = assert!(TALLY + core::mem::offset_of!(Tally, class) == seq::COUNTS && size_of::<ClassOps>() == 16);
const _: () = assert!(core::mem::offset_of!(ClassOps, allocs) == 0 && core::mem::offset_of!(ClassOps, frees) == 8);
// Behind the words of most classes, and before the counts.
const _: () = assert!(core::mem::offset_of!(Sets, cpus) % PAGE >= 64 * size_of::<Pair>());
const _: () = assert!(seq::SLOTS % PAGE < PAGE / 2);
// Neither word of the area's is at 8 of 32 bytes.
const _: () = assert!(cfg!(allotment_models) || (core::mem::offset_of!(Sets, cpus) + Cpus::AREA) % 32 >= 16);

/// See the module.
///
/// A processor looks among what was stored a moment ago by the twelve lowest bits of an address: where a word that is read agrees in these
/// with one that was written, and is not that, it waits. (As chance placed the library that took 7 % of a pair.) So what a fast path reads here
/// is never where one writes: the words of all classes but the longest, at the beginning of a page; their counts, in the second half of one
/// ([`COUNTS`](seq::COUNTS)); and the word of the thread's rseq area, at 8 of 32 bytes (glibc aligns the area to 32; every fourth slot is, too,
/// and its page then decides).
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Sets {
    void: Set,
    /// Address of set 0.
    pub(super) base: AtomicUsize,
    /// Highest CPU that ever had a set, plus one.
    top: AtomicUsize,
    /// What slow paths know the time by.
    pub clock: Clock,
    /// Sets made so far: 1 to this (set 0 serves no CPU). Under the lock of the switch.
    pub(super) made: AtomicUsize,
    /// CPUs that drains leave alone. (Between what is written and what fast paths read.)
    pub isolated: Isolated,
    /// Nothing: what follows is where it says above.
    apart: [usize; 1],
    /// Who runs where, and the switch of all slots.
    pub cpus: Cpus,
    /// The slots of the CPUs −2 and −1: void.
    strangers: [AtomicUsize; 2],
    pub(crate) slots: [AtomicUsize; INDICES],
    pub(super) home: [AtomicUsize; INDICES],
    /// The set that a CPU had before its last drain: empty, or to be collected (see [`super::drain`]).
    pub(super) other: [AtomicUsize; INDICES],
    /// CPUs that ever had a set, a bit each.
    used: [AtomicU64; INDICES / 64],
    /// By index: the CPU that a thread of it made or fetched a set for last, plus one. Under the lock of the switch.
    last: [AtomicU16; INDICES],
    /// Who has the lock parks, and a handler above it may put a set back.
    pub(super) parks: AtomicBool,
    /// Sets that are mapped; 0: all. Changed under the lock of the state.
    mapped: AtomicUsize,
    /// Who else sees the board.
    pub(super) share: Share,
}

/// Classes of a set that are collected in one step (few: their words are on the stack of who drains).
pub const STEP: usize = 4;
/// What a set held of so many classes: main and spare.
pub type Words = [[Word; 2]; STEP];

impl Default for Sets {
    fn default() -> Self {
        Self::new()
    }
}

impl Sets {
    /// Closed, without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            void: Set::VOID,
            base: AtomicUsize::new(0),
            top: AtomicUsize::new(0),
            clock: Clock::new(),
            made: AtomicUsize::new(0),
            mapped: AtomicUsize::new(0),
            isolated: Isolated::new(),
            apart: [0],
            cpus: Cpus::new(),
            strangers: [const { AtomicUsize::new(0) }; 2],
            slots: [const { AtomicUsize::new(0) }; INDICES],
            home: [const { AtomicUsize::new(0) }; INDICES],
            other: [const { AtomicUsize::new(0) }; INDICES],
            used: [const { AtomicU64::new(0) }; INDICES / 64],
            last: [const { AtomicU16::new(0) }; INDICES],
            parks: AtomicBool::new(false),
            share: Share::new(),
        }
    }

    /// Gives the mapping (sets, then board, then tallies) and the way to reach sets.
    ///
    /// # Safety
    /// `base` is that of a [`room::Room`] that [`Sets::roomy`] is told of next, or a zeroed mapping of [`BYTES`] at a multiple of them, for ever;
    /// called before anything else. In mode `Sequences`, `area` is right.
    pub unsafe fn open(&self, base: usize, mode: Mode, area: RseqArea, simulation: Option<&'static Simulation>) {
        self.base.store(base, Relaxed);
        // SAFETY: the caller's promise. (Whoever sees the mode sees the rest.)
        unsafe { self.cpus.open(mode, area, simulation) };
    }

    /// How sets are reached.
    #[inline]
    pub fn mode(&self) -> Mode {
        self.cpus.mode()
    }

    #[inline]
    pub(super) fn area(&self) -> isize {
        self.cpus.area_base()
    }

    #[inline]
    pub(super) fn board_pointer(&self) -> *const u8 {
        (&raw const *self).cast()
    }

    /// The board behind the sets.
    #[inline]
    pub fn board(&self) -> &Board {
        // SAFETY: `open` was called with a mapping that holds it, all atomics, for ever.
        unsafe { &*((self.base.load(Relaxed) + SETS_MAX * PAGE) as *const Board) }
    }

    /// The tally of set `number`.
    #[must_use]
    pub fn tally(&self, number: usize) -> &Tally {
        debug_assert!(number < SETS_MAX);
        // SAFETY: as in `board`.
        unsafe { &*((self.base.load(Relaxed) + TALLY + number * TALLY_BYTES) as *const Tally) }
    }

    pub(super) fn set_at(&self, offset: usize) -> &Set {
        // SAFETY: a non-zero offset in a slot or home leads to a set of the mapping.
        unsafe { &*(((&raw const *self) as usize).wrapping_add(offset) as *const Set) }
    }
    /// The tally of a set that serves, or served, a CPU.
    pub(crate) fn tally_of(&self, set: &Set) -> &Tally {
        debug_assert!(self.number_of(set) < SETS_MAX);
        // SAFETY: as in `board`; see `TALLY`.
        unsafe { &*(((&raw const *set) as usize + TALLY) as *const Tally) }
    }
    pub(super) fn number_of(&self, set: &Set) -> usize {
        ((&raw const *set) as usize - self.base.load(Relaxed)) / PAGE
    }

    /// The set of this CPU, made or fetched if need be; `None` while closed, and for a thread that is not registered (a child of a vfork
    /// that was not wrapped).
    pub fn ready(&self) -> Option<&Set> {
        let is_fallback = self.mode() == Mode::Fallback;
        if is_fallback && !self.cpus.may_use() {
            return None;
        }
        // A thread that is single-stepped never commits; others need one or two rounds.
        for _ in 0..16 {
            let (index, cpu) = self.cpus.here();
            let cpu = if is_fallback { cpu as usize % INDICES } else { cpu as usize };
            // Acquire pairs with the Release in `make`: a set is seen whole.
            let offset = self.slots.get(cpu)?.load(Acquire);
            if offset == 0 {
                if !self.make(index % INDICES, cpu) {
                    return None;
                }
                continue;
            }
            let set = self.set_at(offset);
            if set.mark.load(Relaxed) == ASKED && self.answer(cpu, set) {
                continue;
            }
            return Some(set);
        }
        None
    }

    /// The set that this CPU has, if it has one, for a look: nothing is made or answered, and no lock taken.
    #[inline]
    pub fn present(&self) -> Option<&Set> {
        // Acquire: as in `ready`. (What is no CPU, as of a thread that is not registered, has no slot.)
        let offset = self.slots.get(self.cpus.here().1 as usize)?.load(Acquire);
        (offset != 0).then(|| self.set_at(offset))
    }

    /// A set into the slot of `cpu`, if it has none the one of the CPU where `index` was, or a new one; false while closed, or when there are
    /// no more.
    fn make(&self, index: usize, cpu: usize) -> bool {
        let node = self.cpus.node();
        let state = self.cpus.lock();
        if self.cpus.is_closed() || self.mode() == Mode::Closed {
            return false;
        }
        // A handler of who has the lock: what that frame is at, it may not change. (Relaxed: this thread's own.)
        if state.is_through() && !(self.parks.load(Relaxed) && self.home[cpu].load(Relaxed) != 0) {
            return false;
        }
        let mut followed = None;
        if self.home[cpu].load(Relaxed) == 0 {
            followed = self.follow(&state, index, cpu);
            if followed.is_none() {
                let Some(offset) = self.fresh(&state) else { return false };
                self.home[cpu].store(offset, Relaxed);
            }
            // Relaxed: walks that must see the set hold the lock; others may miss it.
            self.used[cpu / 64].fetch_or(1 << (cpu % 64), Relaxed);
            self.top.fetch_max(cpu + 1, Relaxed);
            // A drain takes a second set for each CPU, and is what is needed where no memory can be had: there before that.
            if self.mapped.load(Relaxed) <= 2 * self.made.load(Relaxed) {
                self.map_more();
            }
        }
        let home = self.home[cpu].load(Relaxed);
        let set = self.set_at(home);
        set.node.store(node as u32, Relaxed);
        if set.mark.load(Relaxed) == PARKED {
            set.mark.store(NONE, Relaxed);
        }
        self.last[index].store(cpu as u16 + 1, Relaxed);
        // Release: the set's words are seen by whoever sees the pointer.
        self.slots[cpu].store(home, Release);
        drop(state);
        if let Some(fences) = followed {
            self.count(Event::SetAdopt, 1);
            self.count(Event::Fence, fences);
        }
        true
    }

    /// The set of the CPU where `index` was last becomes `cpu`'s, which has none; by how many fences. `None` if that CPU has none either, was asked for
    /// what it has, or drained and not yet collected, or cannot be fenced. The lock is this frame's own.
    fn follow(&self, _: &Held<'_>, index: usize, cpu: usize) -> Option<u64> {
        let from = usize::from(self.last[index].load(Relaxed)).checked_sub(1)?;
        let home = self.home[from].load(Relaxed);
        let is_awaited = |other: &Set| other.has_sheaves() || other.mark.load(Relaxed) == UNFENCED;
        if home == 0 || self.other_of(from).is_some_and(is_awaited) {
            return None;
        }
        let mark = self.set_at(home).mark.load(Relaxed);
        // (A void slot alone proves nothing: a fork that a handler began may have had no fence.)
        if mark != PARKED {
            if mark == ASKED || self.isolated.contains(from as u32) || !self.cpus.may_fence() {
                return None;
            }
            self.slots[from].store(0, Relaxed);
            // (The fence orders: what it interrupts goes on behind our store.)
            if !self.cpus.fence_cpu(from as u32) {
                // Release: as in `make`.
                self.slots[from].store(home, Release);
                return None;
            }
        }
        self.home[from].store(0, Relaxed);
        self.home[cpu].store(home, Relaxed);
        self.other[cpu].store(self.other[from].swap(0, Relaxed), Relaxed);
        Some(u64::from(mark != PARKED))
    }

    /// The offset of a set that nobody uses.
    pub(crate) fn fresh(&self, _: &Held<'_>) -> Option<usize> {
        // Relaxed: under the lock.
        let number = self.made.load(Relaxed) + 1;
        if number >= SETS_MAX || number == self.mapped.load(Relaxed) && !self.map_more() || !self.ensure(number + 1) {
            return None;
        }
        let address = self.base.load(Relaxed) + number * PAGE;
        let offset = address.wrapping_sub((&raw const *self) as usize);
        self.made.store(number, Relaxed);
        self.board().sets.store(number as u32 + 1, Relaxed);
        Some(offset)
    }

    /// Runs `body` as a sequence on a fake CPU.
    fn simulated<T>(
        &self,
        body: impl FnOnce(&sim::Running<'_>, usize, &Set) -> Result<Outcome<T>, Interrupted>,
    ) -> Outcome<T> {
        let (running, _, cpu) = self.cpus.simulation().begin();
        // SeqCst as all steps of a simulation: pairs with the store in `switch`.
        match running.step(|| self.slots[cpu as usize].load(SeqCst)) {
            Ok(0) => Outcome::Refused,
            Ok(offset) => body(&running, cpu as usize, self.set_at(offset)).unwrap_or(Outcome::Aborted),
            Err(Interrupted) => Outcome::Aborted,
        }
    }

    /// Runs `body` on this CPU's set (fallback): by the bias, or under the set's lock.
    fn locked<T>(&self, body: impl FnOnce(&Locked, &Set) -> Outcome<T>) -> Outcome<T> {
        if self.cpus.bias.is_mine() {
            return self.biased(body);
        }
        if !self.cpus.may_use() {
            return Outcome::Aborted;
        }
        let cpu = self.cpus.cpu();
        // Acquire: as in `ready`.
        let offset = self.slots[cpu].load(Acquire);
        if offset == 0 {
            return Outcome::Refused;
        }
        let set = self.set_at(offset);
        let _held = set.held.lock();
        // A set that was switched off meanwhile is the drainer's.
        if self.slots[cpu].load(Acquire) != offset {
            return Outcome::Aborted;
        }
        body(&Locked, set)
    }

    /// Runs `body`, which commits by one store, on the set of the bias's owner; aborted for anybody else, and in a handler above it.
    #[inline(always)]
    fn biased<T>(&self, body: impl FnOnce(&Locked, &Set) -> Outcome<T>) -> Outcome<T> {
        let Some(_inside) = self.cpus.bias.enter() else { return Outcome::Aborted };
        // Acquire: as in `ready`.
        let slot = self.cpus.bias.index();
        // SAFETY: `Bias::grant` looked.
        unsafe { core::hint::assert_unchecked(slot < INDICES) };
        let offset = self.slots[slot].load(Acquire);
        if offset == 0 {
            return Outcome::Refused;
        }
        let set = self.set_at(offset);
        body(&Locked, set)
    }

    /// The fast `pop` of the fallback; aborted where the calling thread is not the bias's owner.
    ///
    /// # Safety
    /// There is such a class.
    #[inline(always)]
    pub unsafe fn pop_biased(&self, class: usize) -> Outcome<usize> {
        // SAFETY: the caller's promise.
        unsafe { core::hint::assert_unchecked(class < CLASSES_MAX) };
        self.biased(|steps, set| steps::pop(steps, set, class))
    }

    /// The fast `push` of the fallback; aborted where the calling thread is not the bias's owner.
    ///
    /// # Safety
    /// As [`Sets::push_fast`]; and as [`Sets::pop_biased`].
    #[inline(always)]
    pub unsafe fn push_biased(&self, class: usize, object: usize) -> Outcome<()> {
        // SAFETY: the caller's promise.
        unsafe { core::hint::assert_unchecked(class < CLASSES_MAX) };
        self.biased(|steps, set| steps::push(steps, set, class, object))
    }

    /// `switch` of the contracts on a fake CPU.
    pub(super) fn switch_simulated(&self, old: &Set, new: usize) -> Outcome<()> {
        self.simulated(|running, cpu, set| {
            if !core::ptr::eq(set, old) {
                return Ok(Outcome::Refused);
            }
            // SeqCst as all steps of a simulation.
            running.step(|| self.slots[cpu].store(new, SeqCst)).map(Outcome::Done)
        })
    }

    fn stepped<T>(&self, body: impl FnOnce(&dyn Steps, &Set) -> Outcome<T>) -> Outcome<T> {
        match self.mode() {
            Mode::Fallback => self.locked(|steps, set| body(steps, set)),
            Mode::Simulated => {
                self.simulated(|running, _, set| Ok(body(&Simulated { running, tally: self.tally_of(set) }, set)))
            }
            _ => Outcome::Refused,
        }
    }

    /// The fast `pop`, in mode `Sequences`. (`BARE`: see [`seq::pop`].)
    #[inline(always)]
    pub fn pop_fast<const BARE: bool>(&self, class_offset: usize) -> Outcome<usize> {
        // SAFETY: `self` is the board; before `open`, and in other modes, nobody comes here (the heap's gate).
        unsafe { seq::pop::<BARE>(self.board_pointer(), self.area(), class_offset) }
    }

    /// The fast `push`, in mode `Sequences`.
    ///
    /// # Safety
    /// `object` is a live object of that class, given up by the caller if done.
    #[inline(always)]
    pub unsafe fn push_fast<const BARE: bool>(&self, class_offset: usize, object: usize) -> Outcome<()> {
        // SAFETY: as in `pop_fast`, and the caller's promise.
        unsafe { seq::push::<BARE>(self.board_pointer(), self.area(), class_offset, object) }
    }

    /// Takes an object of `class` out of this CPU's main sheaf, in any mode.
    pub fn pop(&self, class: usize) -> Outcome<usize> {
        match self.mode() {
            Mode::Sequences => self.pop_fast::<false>(class * 16),
            _ => self.stepped(|steps, set| steps::pop(steps, set, class)),
        }
    }

    /// Puts an object of `class` into this CPU's main sheaf, in any mode.
    ///
    /// # Safety
    /// As [`Sets::push_fast`].
    pub unsafe fn push(&self, class: usize, object: usize) -> Outcome<()> {
        match self.mode() {
            // SAFETY: the caller's promise.
            Mode::Sequences => unsafe { self.push_fast::<false>(class * 16, object) },
            _ => self.stepped(|steps, set| steps::push(steps, set, class, object)),
        }
    }

    /// Takes up to `into.len()` objects of `class` at once; how many.
    pub fn pop_batch(&self, class: usize, into: &mut [usize]) -> usize {
        if self.mode() == Mode::Sequences {
            // SAFETY: as in `pop_fast`; `into` has that room.
            let outcome =
                unsafe { seq::pop_batch(self.board_pointer(), self.area(), class * 16, into.as_mut_ptr(), into.len()) };
            return if let Outcome::Done(taken) = outcome { taken } else { 0 };
        }
        let mut taken = 0;
        while taken < into.len()
            && let Outcome::Done(object) = self.pop(class)
        {
            into[taken] = object;
            taken += 1;
        }
        taken
    }

    /// Gives up to `from.len()` objects of `class` at once; how many.
    ///
    /// # Safety
    /// As [`Sets::push_fast`], for each.
    pub unsafe fn push_batch(&self, class: usize, from: &[usize]) -> usize {
        if self.mode() == Mode::Sequences {
            // SAFETY: the caller's promise.
            let outcome =
                unsafe { seq::push_batch(self.board_pointer(), self.area(), class * 16, from.as_ptr(), from.len()) };
            return if let Outcome::Done(given) = outcome { given } else { 0 };
        }
        // SAFETY: the caller's promise.
        from.iter().take_while(|&&object| unsafe { self.push(class, object) } == Outcome::Done(())).count()
    }

    /// Compare and store on the main (or spare) word of `class` of this CPU's set.
    ///
    /// # Safety
    /// `new` is a word of a sheaf that the caller owns, or none; if done, the set owns
    /// it and the caller owns the sheaf of `old`.
    pub unsafe fn swap(&self, class: usize, spare: bool, old: Word, new: Word) -> Outcome<()> {
        let at = class * 16 + if spare { 0 } else { seq::MAIN };
        match self.mode() {
            // SAFETY: `at` is a word of a set, the rest is the caller's promise.
            Mode::Sequences => unsafe { seq::swap(self.board_pointer(), self.area(), at, old.0, new.0) },
            _ => self.stepped(|steps, set| {
                let pair = &set.pairs[class];
                steps::swap(steps, if spare { &pair.spare } else { &pair.main }, old.0, new.0)
            }),
        }
    }

    /// Main and spare of the class at this offset change places, where the spare has what is wanted and main has not: a count, in order to
    /// pop, or with `room` that. Needs no more than `pop` does: both have an owner at all times. Refused too where the processor does not
    /// write both at once.
    pub fn exchange(&self, class_offset: usize, room: bool) -> Outcome<()> {
        let witness = Word::witness(room);
        match self.mode() {
            // SAFETY: as in `pop_fast`.
            Mode::Sequences => unsafe { seq::exchange(self.board_pointer(), self.area(), class_offset, witness) },
            _ => self.stepped(|steps, set| steps::exchange(steps, set, class_offset / 16, witness)),
        }
    }

    /// For the keeper alone: for how many looks the set of CPU `index` has done no operation, for how many none on the page lists,
    /// which begin at class `pages`, and for how many none on areas.
    pub fn quiet(&self, index: usize, pages: usize) -> [u32; 3] {
        let Some(set) = self.home_of(index) else { return [0; 3] };
        let ops = &self.tally_of(set).class;
        let mut sums = [0_u64; 3];
        for (class, ops) in ops.iter().enumerate() {
            let sum = ops.allocs.load(Relaxed).wrapping_add(ops.frees.load(Relaxed));
            sums[0] = sums[0].wrapping_add(sum);
            match class {
                FIRST_FRONT.. => sums[2] = sums[2].wrapping_add(sum),
                _ if class >= pages => sums[1] = sums[1].wrapping_add(sum),
                _ => {}
            }
        }
        core::array::from_fn(|at| {
            let changed = set.seen[at].swap(sums[at], Relaxed) != sums[at];
            let quiet = if changed { 0 } else { set.quiet[at].load(Relaxed) + 1 };
            set.quiet[at].store(quiet, Relaxed);
            quiet
        })
    }

    /// Objects of `class` that the set of CPU `index` may hold, as far as can be seen while it is in use: each was
    /// in this list a moment ago, or in another of these classes.
    pub fn peek(&self, index: usize, class: usize, each: impl FnMut(usize)) {
        if let Some(set) = self.home_of(index) {
            self.peek_into(set, class, each);
        }
    }
    /// The same of a set.
    pub fn peek_into(&self, set: &Set, class: usize, mut each: impl FnMut(usize)) {
        let pair = &set.pairs[class];
        for word in [&pair.main, &pair.spare].map(|word| Word(word.load(Acquire))) {
            for at in 0..word.count() {
                // SAFETY: a slot of a sheaf, which is never unmapped. Relaxed: it may be written meanwhile.
                let slot = unsafe { &*((word.objects() + at * super::layout::SLOT) as usize as *const AtomicU64) };
                each(slot.load(Relaxed) as usize);
            }
        }
    }

    /// Highest CPU that ever had a set, plus one.
    #[must_use]
    pub fn top(&self) -> usize {
        self.top.load(Relaxed)
    }
    /// The CPUs that ever had a set, in order. Cost: a load for each 64 below the highest, and what each of them costs.
    pub fn used(&self) -> impl Iterator<Item = usize> + '_ {
        self.used_from(0, self.top())
    }
    /// Those of a window.
    pub fn used_of(&self, window: usize) -> impl Iterator<Item = usize> + '_ {
        self.used_from(window, self.top().min(window + WINDOW))
    }
    /// Those from a multiple of 64 on, below `end` (where the next words have no bits).
    fn used_from(&self, from: usize, end: usize) -> impl Iterator<Item = usize> + '_ {
        (from / 64..end.div_ceil(64)).flat_map(|at| bits(self.used[at].load(Relaxed)).map(move |bit| at * 64 + bit))
    }

    /// Every CPU to the void set until [`Sets::reopen`]; counted, so that forks and
    /// vforks may overlap. False if the kernel gives no fence: then sequences that had
    /// begun may still commit.
    pub fn close(&self) -> bool {
        self.cpus.close(|| self.used().for_each(|index| self.slots[index].store(0, Relaxed)))
    }

    /// Ends one [`Sets::close`].
    pub fn reopen(&self) {
        self.cpus.reopen(|state| {
            if state.is_through() {
                return;
            }
            for index in self.used() {
                let home = self.home[index].load(Relaxed);
                if home != 0 && self.set_at(home).mark.load(Relaxed) != PARKED {
                    // Release: as in `make`.
                    self.slots[index].store(home, Release);
                }
            }
        });
    }

    /// Runs every sequence once on the unused class 0; whether each did what its contract says.
    pub fn self_test(&self, meta: &Meta) -> bool {
        let Some(sheaf) = Sheaf::new(meta, self.board(), 4) else { return false };
        let word = sheaf.into_word(4);
        let mut objects = [0; 4];
        let count = self.event(Event::Direct);
        // An interruption may spoil a round; ten in a row do not happen.
        for _ in 0..10 {
            self.count(Event::Direct, 1);
            if self.ready().is_none() {
                return false;
            }
            let seen = |spare: bool| {
                let word = |set: &Set| Word(if spare { &set.pairs[0].spare } else { &set.pairs[0].main }.load(Relaxed));
                self.ready().map_or(Word::NONE, word)
            };
            // SAFETY: class 0 has no objects: the numbers pushed are just numbers, and the
            // sheaf is ours. A round that was spoiled leaves it there: `seen`.
            let good = unsafe {
                self.swap(0, true, seen(true), Word::NONE) == Outcome::Done(())
                    && self.swap(0, false, seen(false), word) == Outcome::Done(())
                    && self.push(0, 0x1230) == Outcome::Done(())
                    && self.refuses_when_void()
                    && self.push_batch(0, &[0x4560, 0x7890]) == 2
                    && (!seq::EXCHANGES || self.changes_places())
                    && self.pop(0) == Outcome::Done(0x7890)
                    && self.pop_batch(0, &mut objects) == 2
                    && objects[..2] == [0x4560, 0x1230]
                    && self.pop(0) == Outcome::Refused
                    && self.swap(0, false, word, Word::NONE) == Outcome::Done(())
            };
            if good {
                // SAFETY: swapped out again.
                if let Some(sheaf) = unsafe { Sheaf::from_word(word) } {
                    sheaf.discard(meta);
                }
                return self.event(Event::Direct) > count && self.cpus.fence_all();
            }
        }
        false
    }

    /// Whether class 0's main, which has objects and room, comes back to its place when it is the spare.
    ///
    /// # Safety
    /// As in [`Sets::self_test`], which owns all of it.
    unsafe fn changes_places(&self) -> bool {
        let Some(pair) = self.ready().map(|set| &set.pairs[0]) else { return false };
        let main = Word(pair.main.load(Relaxed));
        // SAFETY: the caller's promise.
        let is_spare = unsafe {
            self.swap(0, false, main, Word::NONE) == Outcome::Done(())
                && self.swap(0, true, Word::NONE, main) == Outcome::Done(())
        };
        let is_back = is_spare && self.exchange(0, false) == Outcome::Done(());
        // (Main serves now, and there is no spare.)
        let stays = [false, true].map(|room| self.exchange(0, room)) == [Outcome::Refused; 2];
        is_back && stays && Word(pair.main.load(Relaxed)) == main && Word(pair.spare.load(Relaxed)) == Word::NONE
    }

    /// Whether every sequence leaves this CPU's set alone while its slot is void; class 0 has an object and room.
    ///
    /// # Safety
    /// As in [`Sets::self_test`], which owns all of it.
    unsafe fn refuses_when_void(&self) -> bool {
        let (board, area) = (self.board_pointer(), self.area());
        let cpu = self.cpus.cpu();
        let home = self.slots[cpu].swap(0, Relaxed);
        let at = board.wrapping_add(home) as usize;
        let mut objects = [0; 2];
        // SAFETY: the caller's promise; a sequence that is done after all (on another CPU by now) does no harm: it moves numbers of class 0.
        let refused = unsafe {
            seq::pop::<false>(board, area, 0) == Outcome::Refused
                && seq::push::<false>(board, area, 0, 0x1230) == Outcome::Refused
                && seq::pop_batch(board, area, 0, objects.as_mut_ptr(), 2) == Outcome::Refused
                && seq::push_batch(board, area, 0, objects.as_ptr(), 2) == Outcome::Refused
                && seq::swap(board, area, 0, 0, 0) == Outcome::Refused
                && seq::exchange(board, area, 0, Word::witness(false)) == Outcome::Refused
                && seq::add(board, area, 0, 0) == Outcome::Refused
                && seq::switch(board, area, at, home) == Outcome::Refused
        };
        self.slots[cpu].store(home, Relaxed);
        refused && home != 0
    }

    /// In a forked child, whose thread has so many vforks in flight: they and the fork close the sets. If
    /// the parent had no fence the child must not trust its sets: with `forget` it leaves what they cached behind.
    pub fn inherit(&self, vforks: u32, forget: bool) {
        self.cpus.inherit(vforks);
        if forget {
            // (What was switched off and fenced before can be trusted.)
            let unfenced = self.others().filter(|set| set.mark.load(Relaxed) == UNFENCED);
            self.homes().chain(unfenced).flat_map(|set| &set.pairs).for_each(|pair| {
                pair.main.store(0, Relaxed);
                pair.spare.store(0, Relaxed);
            });
        }
    }

    fn at<'a>(&'a self, offsets: &'a [AtomicUsize; INDICES]) -> impl Iterator<Item = &'a Set> {
        self.used().map(|index| offsets[index].load(Relaxed)).filter(|&at| at != 0).map(|at| self.set_at(at))
    }
    fn homes(&self) -> impl Iterator<Item = &Set> {
        self.at(&self.home)
    }
    /// Those that wait to be collected or for the next drain. In the fallback somebody may hold one for a moment
    /// still, until it sees that its slot leads elsewhere.
    fn others(&self) -> impl Iterator<Item = &Set> {
        self.at(&self.other)
    }
    /// Every set that serves a CPU, or did.
    pub(super) fn all(&self) -> impl Iterator<Item = &Set> {
        self.homes().chain(self.others())
    }

    /// Objects of `class` that a CPU has in main and spare, how many each may hold, and how many the next refill
    /// takes; `None` without a set.
    #[must_use]
    pub fn list(&self, index: usize, class: usize) -> Option<(usize, usize, usize)> {
        let set = self.home_of(index)?;
        let pair = &set.pairs[class];
        let (limit, batch) = (set.limits[class].load(Relaxed) as usize, set.batches[class].load(Relaxed) as usize);
        Some((pair.held(), limit, batch.min(limit)))
    }

    /// The barns of `class` that sets have to themselves.
    pub fn near(&self, class: usize) -> impl Iterator<Item = &Barn> {
        self.all().filter_map(move |set| set.near.get(class))
    }

    /// Objects of `class` that all sets have, but for their barns, those that wait to be collected too (exact when nobody changes
    /// them). Takes no lock: a fork may copy one that is held outside the gate.
    #[must_use]
    pub fn cached(&self, class: usize) -> usize {
        self.all().map(|set| set.pairs[class].held()).sum()
    }
}

#[cfg(test)]
pub(super) mod tests;
