//! # The sets of all CPU indices, and the one switch
//!
//! ```text
//! Sets: ┌ void ┬ … ┬ slots[index] ────────┐      slots: where the fast path goes now (offset from Sets; 0 = void)
//!       └──────┴───┴ home[index] ─────────┤      home:  where it goes when nothing is in flight
//!                                         ▼
//! sets mapping:  set 0 │ set 1 │ …  SETS_MAX │ board │ tally 0 │ tally 1 │ …
//! ```
//! Set 0 serves no index; its tally counts what happens outside any set. Sets and tallies are mapped as they are made, in
//! pieces that double; of a shared board the file's next pages, by `mremap`: nobody keeps it open. Its texts are a mapping of their own.
//!
//! | state | slots | who may change a set |
//! |---|---|---|
//! | open | = home | sequences of its index on its CPU |
//! | closed (fork or vfork in flight) | all void | nobody |
//! | drained | home is another set, this one in `other` | the drainer that switched it off |
//!
//! ## Switching a set off
//! Store the new pointer into the slot; full fence; read `set.cpu`; fence that
//! CPU: the old set is the drainer's. An owner whose index moves to another CPU commits the new
//! CPU into the set, then a full fence, then reads the slot again. Of the two
//! either the drainer sees the new CPU or the owner sees the new pointer.
//!
//! Locks: `state`, taken before any other, also outside the gate, by vforks; a handler that forks or vforks passes through
//! what it interrupted, and leaves slots void then: [`Sets::ready`] fills them one by one. Cost: nothing on the fast path but the load of the slot.
#![allow(unsafe_code)] // addresses of sets and tallies

use super::drain::{ASKED, Isolated, NONE, PARKED, UNFENCED};
use super::layout::{Pair, Set, Word};
use super::sheaf::Sheaf;
use super::steps::{self, Steps};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::arch::atomic::{AtomicU64, AtomicUsize, fence};
use crate::arch::lock::Held;
use crate::arch::outcome::Outcome;
use crate::arch::seq::{self, Area, TALLY};
use crate::arch::sys::{self, Access, Advice, Clock};
use crate::cpu::sim::{self, Interrupted};
use crate::cpu::{Cpus, INDICES, Simulation};
use crate::meta::Meta;
use crate::stat::board::{
    self, BOARD_BYTES, LEVEL_THRESHOLD, SETS_MAX, SHARE_BYTES, SHOW, SHOW_BYTES, TALLY_BYTES, TIMES, Times, settle,
};
use crate::stat::{Board, Event, Level, Mode, Tally, Timing};

/// A CPU that never is, and that no unregistered thread reads as its own (those read −1 or −2).
const NO_CPU: u32 = 0x7fff_ffff;
/// Bytes of sets, board and tallies, all that can ever be.
pub const BYTES: usize = TALLY + SETS_MAX * TALLY_BYTES;
/// Sets (and tallies) that are there at first.
const FIRST: usize = 4;

// What the assembly takes for granted.
const _: () = assert!(size_of::<Set>() <= PAGE && size_of::<Pair>() == 16);
const _: () = assert!(core::mem::offset_of!(Sets, void) == 0, "a slot is an offset from the void set");
const _: () = assert!(core::mem::offset_of!(Sets, slots) == seq::SLOTS);
const _: () = assert!(core::mem::offset_of!(Set, cpu) == seq::CPU);
const _: () = assert!(SETS_MAX * PAGE + BOARD_BYTES == TALLY);
const _: () = assert!(super::layout::ONE == seq::ONE as u64);

/// Tallies that have their pages when a board is shared: nobody's, and the first set's.
const FIRST_TALLIES: usize = 2;
/// Bytes of a set and its tally in the copy for a fork.
const COPIED: usize = TALLY_BYTES + PAGE;
/// See the module.
#[repr(C)]
#[derive(Debug)]
pub struct Sets {
    void: Set,
    /// Who runs where, and the switch of all slots.
    pub cpus: Cpus,
    /// Address of set 0.
    base: AtomicUsize,
    /// Highest index that ever had a set, plus one.
    top: AtomicUsize,
    /// Of a shared board that was forked: a private copy of it and of the sets while a fork is under way; or 0.
    copy: AtomicUsize,
    /// What slow paths know the time by.
    pub clock: Clock,
    /// Sets made so far: 1 to this (set 0 serves no index). Under the lock of the switch.
    made: AtomicUsize,
    /// CPUs that drains leave alone. (Between what is written and what fast paths read.)
    pub isolated: Isolated,
    pub(crate) slots: [AtomicUsize; INDICES],
    pub(super) home: [AtomicUsize; INDICES],
    /// The set that an index had before its last drain: empty, or to be collected (see [`super::drain`]).
    pub(super) other: [AtomicUsize; INDICES],
    /// The board's texts; 0 until there are any.
    text: AtomicUsize,
    /// Sets that are mapped; 0: all. Changed under the lock of the state.
    mapped: AtomicUsize,
    /// Of a shared board: tallies that have their pages, and bytes of texts that do (see [`Sets::ensure`]). No tallies: nobody
    /// else sees the board; [`SETS_MAX`]: further ones are private.
    sure: AtomicUsize,
    sure_texts: AtomicUsize,
    /// A word that is not zero, but in a forked child that nobody has told so; 0: there is none (see [`Sets::watch`]).
    witness: AtomicUsize,
    /// Sets (and tallies) that the copy has room for.
    copied: AtomicUsize,
}

/// Memory for [`Sets::open`].
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Where it begins.
    pub base: usize,
    /// Its bytes now.
    pub bytes: usize,
    /// Sets in it; 0: all.
    mapped: usize,
}

impl Room {
    /// As much as most processes need, where there is room to map the rest when it is used: address space counts, too.
    ///
    /// # Errors
    /// Without memory.
    pub fn new() -> Result<Self, sys::Errno> {
        const SLOT: usize = 1 << 30;
        // Below the windows of memory (`page::region`), where hardly ever anybody is.
        let base = (0x1000 + (core::ptr::from_ref(&SLOT) as usize >> 12 & 0x7ff)) * SLOT;
        match Self::at(base) {
            Some(room) => Ok(room),
            None => Ok(Self { base: sys::map(0, BYTES, Access::ReadWrite)?, bytes: BYTES, mapped: 0 }),
        }
    }

    fn at(base: usize) -> Option<Self> {
        let board = base + SETS_MAX * PAGE;
        if !map_there(base, FIRST * PAGE) {
            return None;
        }
        if !map_there(board, BOARD_BYTES + FIRST * TALLY_BYTES) {
            // SAFETY: fresh, ours and unused.
            let _ = unsafe { sys::unmap(base, FIRST * PAGE) };
            return None;
        }
        Some(Self { base, bytes: FIRST * PAGE + BOARD_BYTES + FIRST * TALLY_BYTES, mapped: FIRST })
    }
}

/// Maps memory exactly there, or not at all.
fn map_there(at: usize, len: usize) -> bool {
    let Ok(found) = sys::map(at, len, Access::ReadWrite) else { return false };
    if found != at {
        // SAFETY: fresh, ours and unused.
        let _ = unsafe { sys::unmap(found, len) };
    }
    found == at
}

/// Classes of a set that are collected in one step.
pub const STEP: usize = 8;
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
            cpus: Cpus::new(),
            base: AtomicUsize::new(0),
            top: AtomicUsize::new(0),
            copy: AtomicUsize::new(0),
            clock: Clock::new(),
            made: AtomicUsize::new(0),
            text: AtomicUsize::new(0),
            mapped: AtomicUsize::new(0),
            isolated: Isolated::new(),
            slots: [const { AtomicUsize::new(0) }; INDICES],
            home: [const { AtomicUsize::new(0) }; INDICES],
            other: [const { AtomicUsize::new(0) }; INDICES],
            sure: AtomicUsize::new(0),
            sure_texts: AtomicUsize::new(0),
            witness: AtomicUsize::new(0),
            copied: AtomicUsize::new(0),
        }
    }

    /// Gives the mapping (sets, then board, then tallies) and the way to reach sets.
    ///
    /// # Safety
    /// `base` is a zeroed mapping of [`BYTES`] for ever, or that of a [`Room`] that [`Sets::roomy`] is told of next;
    /// called before anything else. In mode `Sequences`, `area` is right.
    pub unsafe fn open(&self, base: usize, mode: Mode, area: Area, simulation: Option<&'static Simulation>) {
        self.base.store(base, Relaxed);
        // SAFETY: the caller's promise. (Whoever sees the mode sees the rest.)
        unsafe { self.cpus.open(mode, area, simulation) };
    }

    /// Of the memory for [`Sets::open`] only so much is there.
    pub fn roomy(&self, room: Room) {
        self.mapped.store(room.mapped, Relaxed);
    }

    /// How sets are reached.
    #[inline]
    pub fn mode(&self) -> Mode {
        self.cpus.mode()
    }

    #[inline]
    pub(super) fn area(&self) -> Area {
        self.cpus.area()
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
    fn number_of(&self, set: &Set) -> usize {
        ((&raw const *set) as usize - self.base.load(Relaxed)) / PAGE
    }

    /// The set of this index, made and adopted if need be; `None` while closed.
    pub fn ready(&self) -> Option<&Set> {
        // A thread that is single-stepped never commits; others need one or two rounds.
        for _ in 0..16 {
            let (index, cpu) = self.cpus.here();
            let index = index % INDICES;
            // Acquire pairs with the Release in `make`: a set is seen whole.
            let offset = self.slots[index].load(Acquire);
            if offset == 0 {
                if !self.make(index) {
                    return None;
                }
                continue;
            }
            let set = self.set_at(offset);
            if set.cpu.load(Relaxed) == cpu || self.mode() == Mode::Fallback {
                if set.mark.load(Relaxed) == ASKED && self.answer(index, set) {
                    continue;
                }
                return Some(set);
            }
            if cpu as usize >= INDICES {
                return None; // an unregistered thread (a child of vfork that was not wrapped)
            }
            self.adopt();
        }
        None
    }

    /// Makes the set of this index this CPU's.
    fn adopt(&self) {
        let outcome = match self.mode() {
            // SAFETY: `self` is the board and the area is right.
            Mode::Sequences => unsafe { seq::adopt(self.board_pointer(), self.area()) },
            Mode::Simulated => self.simulated(
                |_, _| true,
                |running, _, set, cpu| running.step(|| set.cpu.store(cpu, SeqCst)).map(Outcome::Done),
            ),
            _ => Outcome::Refused,
        };
        // The store of the new CPU comes before our next load of the slot: pairs with
        // the fence in `switch`.
        fence(SeqCst);
        if outcome == Outcome::Done(()) {
            self.count(Event::SetAdopt, 1);
        }
    }

    /// The set of `index` into its slot, a new one if it has none; false while closed, or when there are no more.
    fn make(&self, index: usize) -> bool {
        let node = self.cpus.node();
        let state = self.cpus.lock();
        if self.cpus.is_closed() || self.mode() == Mode::Closed {
            return false;
        }
        if self.home[index].load(Relaxed) == 0 {
            let Some(offset) = self.fresh(&state) else { return false };
            self.home[index].store(offset, Relaxed);
            self.top.fetch_max(index + 1, Relaxed);
        }
        let home = self.home[index].load(Relaxed);
        let set = self.set_at(home);
        set.node.store(node as u32, Relaxed);
        if set.mark.load(Relaxed) == PARKED {
            set.mark.store(NONE, Relaxed);
        }
        // Release: the set's words are seen by whoever sees the pointer.
        self.slots[index].store(home, Release);
        true
    }

    /// The offset of a set that nobody uses.
    pub(crate) fn fresh(&self, _: &Held<'_>) -> Option<usize> {
        // Relaxed: under the lock.
        let number = self.made.load(Relaxed) + 1;
        if number >= SETS_MAX || number == self.mapped.load(Relaxed) && !self.map_more() || !self.ensure(number + 1) {
            return None;
        }
        self.made.store(number, Relaxed);
        self.board().sets.store(number as u32 + 1, Relaxed);
        let address = self.base.load(Relaxed) + number * PAGE;
        let offset = address.wrapping_sub((&raw const *self) as usize);
        // No CPU may use it yet.
        self.set_at(offset).cpu.store(NO_CPU, Relaxed);
        Some(offset)
    }

    /// As many sets again as there are, with their tallies; false if there is no room.
    #[cold]
    fn map_more(&self) -> bool {
        // Relaxed: under the lock.
        let (base, more) = (self.base.load(Relaxed), self.mapped.load(Relaxed));
        let (sets, board, tallies) = (base + more * PAGE, base + SETS_MAX * PAGE, base + TALLY + more * TALLY_BYTES);
        if !map_there(sets, more * PAGE) {
            return false;
        }
        let is_wiped = !(self.is_shared() && self.is_watched())
            // SAFETY: fresh, ours and unused, here and below.
            || unsafe { sys::advise(sets, more * PAGE, Advice::WipeOnFork) }.is_ok();
        let has_tallies = is_wiped
            && match self.sure.load(Relaxed) {
                0 | SETS_MAX => map_there(tallies, more * TALLY_BYTES),
                // SAFETY: the mapping of the file, which ends with the tallies there are.
                _ => unsafe { sys::grow(board, tallies - board, more * TALLY_BYTES) }.is_ok(),
            };
        if !has_tallies {
            // SAFETY: as above.
            let _ = unsafe { sys::unmap(sets, more * PAGE) };
            return false;
        }
        self.board().raise_quietly(Level::Reserved, more * (PAGE + TALLY_BYTES));
        self.mapped.store(2 * more, Relaxed);
        true
    }

    /// Runs `body` as a sequence on a fake CPU.
    fn simulated<T>(
        &self,
        owned: impl FnOnce(&Set, u32) -> bool,
        body: impl FnOnce(&sim::Running<'_>, usize, &Set, u32) -> Result<Outcome<T>, Interrupted>,
    ) -> Outcome<T> {
        let (running, index, cpu) = self.cpus.simulation().begin();
        // SeqCst as all steps of a simulation: pairs with the store in `switch`.
        let offset = self.slots[index].load(SeqCst);
        if offset == 0 {
            return Outcome::Refused;
        }
        let set = self.set_at(offset);
        match running.step(|| set.cpu.load(SeqCst) == cpu) {
            Ok(owns) if owns || owned(set, cpu) => body(&running, index, set, cpu).unwrap_or(Outcome::Aborted),
            Ok(_) => Outcome::Refused,
            Err(Interrupted) => Outcome::Aborted,
        }
    }

    /// Runs `body` under the lock of this CPU's set (fallback).
    fn locked<T>(&self, body: impl FnOnce(&Locked<'_>, &Set) -> Outcome<T>) -> Outcome<T> {
        let (index, _) = self.cpus.here();
        // Acquire: as in `ready`.
        let offset = self.slots[index % INDICES].load(Acquire);
        if offset == 0 {
            return Outcome::Refused;
        }
        let set = self.set_at(offset);
        let _held = set.held.lock();
        // A set that was switched off meanwhile is the drainer's.
        if self.slots[index % INDICES].load(Acquire) != offset {
            return Outcome::Aborted;
        }
        body(&Locked { tally: self.tally(self.number_of(set)) }, set)
    }

    /// `switch` of the contracts on a fake CPU.
    pub(super) fn switch_simulated(&self, old: &Set, new: usize) -> Outcome<()> {
        self.simulated(
            |_, _| false,
            |running, index, set, _| {
                if !core::ptr::eq(set, old) {
                    return Ok(Outcome::Refused);
                }
                // SeqCst as all steps of a simulation.
                running.step(|| self.slots[index].store(new, SeqCst)).map(Outcome::Done)
            },
        )
    }

    fn stepped<T>(&self, body: impl FnOnce(&dyn Steps, &Set) -> Outcome<T>) -> Outcome<T> {
        match self.mode() {
            Mode::Fallback => self.locked(|steps, set| body(steps, set)),
            Mode::Simulated => self.simulated(
                |_, _| false,
                |running, _, set, _| Ok(body(&Simulated { running, tally: self.tally(self.number_of(set)) }, set)),
            ),
            _ => Outcome::Refused,
        }
    }

    /// The fast `pop`, in mode `Sequences`; refused in every other.
    #[inline(always)]
    pub fn pop_fast(&self, class_offset: usize) -> Outcome<usize> {
        // SAFETY: `self` is the board; before `open` nobody comes here (the heap's gate).
        unsafe { seq::pop(self.board_pointer(), self.area(), class_offset) }
    }

    /// The fast `push`, in mode `Sequences`; refused in every other.
    ///
    /// # Safety
    /// `object` is a live object of that class, given up by the caller if done.
    #[inline(always)]
    pub unsafe fn push_fast(&self, class_offset: usize, object: usize) -> Outcome<()> {
        // SAFETY: as in `pop_fast`, and the caller's promise.
        unsafe { seq::push(self.board_pointer(), self.area(), class_offset, object) }
    }

    /// Takes an object of `class` out of this CPU's main sheaf, in any mode.
    pub fn pop(&self, class: usize) -> Outcome<usize> {
        match self.mode() {
            Mode::Sequences => self.pop_fast(class * 16),
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
            Mode::Sequences => unsafe { self.push_fast(class * 16, object) },
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
        let at = class * 16 + usize::from(spare) * 8;
        match self.mode() {
            // SAFETY: `at` is a word of a set, the rest is the caller's promise.
            Mode::Sequences => unsafe { seq::swap(self.board_pointer(), self.area(), at, old.0, new.0) },
            _ => self.stepped(|steps, set| {
                let pair = &set.pairs[class];
                steps::swap(steps, if spare { &pair.spare } else { &pair.main }, old.0, new.0)
            }),
        }
    }

    /// Adds `n` to the word at offset `at` of this CPU's tally, modulo 2⁶⁴; to that of nobody's tally if that cannot be done.
    fn add(&self, at: usize, n: u64) {
        if self.mode() == Mode::Sequences {
            for _ in 0..3 {
                // SAFETY: `self` is the board, `at` a word of a tally.
                if unsafe { seq::add(self.board_pointer(), self.area(), at, n) } == Outcome::Done(()) {
                    return;
                }
            }
        }
        // Tally 0 belongs to no set: everybody adds to it with a locked add.
        self.word(self.tally(0), at).fetch_add(n, Relaxed);
    }

    fn word<'a>(&self, tally: &'a Tally, at: usize) -> &'a AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at < TALLY_BYTES);
        // SAFETY: a tally is words, and a page.
        unsafe { &*(&raw const *tally).cast::<u8>().add(at).cast::<AtomicU64>() }
    }

    /// Counts events in this CPU's tally.
    pub fn count(&self, event: Event, n: u64) {
        self.add(core::mem::offset_of!(Tally, events) + event as usize * 8, n);
    }

    /// Notes in this CPU's tally how long something took that began at `start` (see [`Clock`]).
    pub fn time(&self, timing: Timing, start: u64) {
        let ticks = self.clock.ticks().saturating_sub(start);
        let at = core::mem::offset_of!(Tally, times) + timing as usize * size_of::<Times>();
        self.add(at + core::mem::offset_of!(Times, buckets) + board::bucket(ticks) * 8, 1);
        self.add(at + core::mem::offset_of!(Times, ticks), ticks);
    }

    /// How often something took how long, by [`board::bucket`], and its ticks together: over all tallies.
    #[must_use]
    pub fn times(&self, timing: Timing) -> ([u64; TIMES], u64) {
        let (mut counts, mut ticks) = ([0; TIMES], 0);
        for times in self.tallies().map(|tally| &tally.times[timing as usize]) {
            counts.iter_mut().zip(&times.buckets).for_each(|(sum, bucket)| *sum += bucket.load(Relaxed));
            ticks += times.ticks.load(Relaxed);
        }
        (counts, ticks)
    }

    /// Changes a level by this CPU's differential, which is folded into the board's word when it has grown past
    /// [`LEVEL_THRESHOLD`]; whether it was. Cost: a sequence and a few loads, no locked instruction but to fold.
    pub fn shift(&self, level: Level, by: isize) -> bool {
        let at = core::mem::offset_of!(Tally, levels) + level as usize * 8;
        if self.mode() != Mode::Sequences {
            self.board().levels[level as usize].fetch_add(by as u64, Relaxed);
            return true;
        }
        self.add(at, by as u64);
        // The tally of this index; 0 while closed, whose differential is folded at once.
        let offset = self.slots[self.cpus.here().0 % INDICES].load(Acquire);
        let number = if offset == 0 { 0 } else { self.number_of(self.set_at(offset)) };
        let word = self.word(self.tally(number), at);
        let differential = word.load(Relaxed);
        if differential.cast_signed().unsigned_abs() <= LEVEL_THRESHOLD {
            return false;
        }
        // What is added here is taken from whatever tally this thread finds itself at: the sum is the same, and
        // a reader between the two is off by it. Relaxed: a level publishes nothing.
        self.board().levels[level as usize].fetch_add(differential, Relaxed);
        self.add(at, differential.wrapping_neg());
        true
    }

    /// A level: the board's word, all differentials, and what nodes of `vmap` have not told. Exact when nobody changes it.
    #[must_use]
    pub fn level(&self, level: Level) -> u64 {
        let at = core::mem::offset_of!(Tally, levels) + level as usize * 8;
        let word = self.board().levels[level as usize].load(Relaxed);
        let sum = self.tallies().fold(word, |sum, tally| sum.wrapping_add(self.word(tally, at).load(Relaxed)));
        settle(level, sum, self.board().lent())
    }

    /// Objects of a class went out of slabs (or came back, if negative).
    pub fn take(&self, class: usize, objects: isize) {
        self.add(core::mem::offset_of!(Tally, taken) + class * 8, objects as u64);
    }

    /// Objects of a class that are out of slabs, in use or cached. Exact when nobody changes it.
    #[must_use]
    pub fn taken(&self, class: usize) -> u64 {
        let sum = self.tallies().fold(0_u64, |sum, tally| sum.wrapping_add(tally.taken[class].load(Relaxed)));
        sum.cast_signed().max(0) as u64
    }

    /// Objects of all classes that were ever freed, in sets and past them.
    #[must_use]
    pub fn frees(&self) -> u64 {
        let all = self.tallies().flat_map(|tally| &tally.class);
        all.fold(0_u64, |sum, ops| sum.wrapping_add(ops.frees.load(Relaxed)))
    }

    /// Counts operations that went past the sets.
    pub fn count_direct(&self, class: usize, allocs: u64, frees: u64) {
        let ops = &self.tally(0).class[class];
        ops.allocs.fetch_add(allocs, Relaxed);
        ops.frees.fetch_add(frees, Relaxed);
    }

    fn tallies(&self) -> impl Iterator<Item = &Tally> {
        (0..self.tallied()).map(|number| self.tally(number))
    }
    /// Tallies that are in use. (In a child that nobody has told, the board itself may say more: its parent goes on.)
    fn tallied(&self) -> usize {
        self.made.load(Relaxed) + 1
    }
    /// Tallies, and sets, that are mapped.
    fn there(&self) -> usize {
        match self.mapped.load(Relaxed) {
            0 => SETS_MAX,
            mapped => mapped,
        }
    }

    /// Sum of an event over all tallies.
    #[must_use]
    pub fn event(&self, event: Event) -> u64 {
        self.tallies().map(|tally| tally.events[event as usize].load(Relaxed)).sum()
    }

    /// For the housekeeper alone: for how many looks the set of `index` has done no operation, and for how many
    /// none on the page lists, which begin at class `pages`.
    pub fn quiet(&self, index: usize, pages: usize) -> [u32; 2] {
        let Some((set, _)) = self.home_of(index) else { return [0; 2] };
        let ops = &self.tally(self.number_of(set)).class;
        let mut sums = [0_u64; 2];
        for (class, ops) in ops.iter().enumerate() {
            let sum = ops.allocs.load(Relaxed).wrapping_add(ops.frees.load(Relaxed));
            sums[0] = sums[0].wrapping_add(sum);
            sums[1] = sums[1].wrapping_add(if class < pages { 0 } else { sum });
        }
        core::array::from_fn(|at| {
            let changed = set.seen[at].swap(sums[at], Relaxed) != sums[at];
            let quiet = if changed { 0 } else { set.quiet[at].load(Relaxed) + 1 };
            set.quiet[at].store(quiet, Relaxed);
            quiet
        })
    }

    /// Objects of `class` that the set of `index` may hold, as far as can be seen while it is in use: each was
    /// in this list a moment ago, or in another of these classes.
    pub fn peek(&self, index: usize, class: usize, mut each: impl FnMut(usize)) {
        let Some((set, _)) = self.home_of(index) else { return };
        let pair = &set.pairs[class];
        for word in [&pair.main, &pair.spare].map(|word| Word(word.load(Acquire))) {
            for at in 0..word.count() {
                // SAFETY: a slot of a sheaf, which is never unmapped. Relaxed: it may be written meanwhile.
                let slot = unsafe { &*((word.objects() + at * super::layout::SLOT) as usize as *const AtomicU64) };
                each(slot.load(Relaxed) as usize);
            }
        }
    }

    /// Highest index that ever had a set, plus one.
    #[must_use]
    pub fn top(&self) -> usize {
        self.top.load(Relaxed)
    }

    /// Every index to the void set until [`Sets::reopen`]; counted, so that forks and
    /// vforks may overlap. False if the kernel gives no fence: then sequences that had
    /// begun may still commit.
    pub fn close(&self) -> bool {
        self.cpus.close(|| self.slots[..self.top()].iter().for_each(|slot| slot.store(0, Relaxed)))
    }

    /// Ends one [`Sets::close`].
    pub fn reopen(&self) {
        self.cpus.reopen(|state| {
            if state.is_through() {
                return;
            }
            for (slot, home) in self.slots.iter().zip(&self.home).take(self.top()) {
                let home = home.load(Relaxed);
                if home != 0 && self.set_at(home).mark.load(Relaxed) != PARKED {
                    // Release: as in `make`.
                    slot.store(home, Release);
                }
            }
        });
    }

    /// Shows the board in a file, of which other processes are the readers; false, and as it was, if that cannot be.
    /// Nobody else uses the board yet.
    pub fn share(&self, file: usize) -> bool {
        const NOW: usize = BOARD_BYTES + FIRST_TALLIES * TALLY_BYTES;
        // Elsewhere first: what refuses has changed nothing then.
        let Ok(trial) = sys::map_file(NOW, file) else { return false };
        // SAFETY: fresh and ours, here and below; nobody needs what an image before an exec left there.
        let has_room = unsafe { sys::make_sure(trial, NOW) }.is_ok();
        // SAFETY: as above.
        let _ = unsafe { sys::unmap(trial, NOW) };
        if !has_room {
            return false;
        }
        let bytes = BOARD_BYTES + self.there() * TALLY_BYTES;
        // SAFETY: the part for board and tallies of our own mapping.
        let is_shared = unsafe { sys::map_file_over(self.base.load(Relaxed) + SETS_MAX * PAGE, bytes, file) }.is_ok();
        if is_shared {
            self.board().magic.store(0, Relaxed);
            // SAFETY: as above. An image that ran here before `exec` left its numbers.
            unsafe { core::ptr::write_bytes(core::ptr::from_ref(self.board()).cast_mut().cast::<u8>(), 0, NOW) };
            self.sure.store(FIRST_TALLIES, Relaxed);
        }
        is_shared
    }

    /// Makes sure of the tallies below `end`, which are mapped and which nobody counts on yet, and that they are zero. Where there is no room in the file, what is missing
    /// and all behind are private from then on, and others see a part of the numbers. False if not even that can be.
    pub fn ensure(&self, end: usize) -> bool {
        // Relaxed, here and below: under the lock of the slots, or before anybody else is there.
        if !self.is_shared() || end <= self.sure.load(Relaxed) {
            return true;
        }
        let sure = self.sure.load(Relaxed);
        let at = self.base.load(Relaxed) + TALLY + sure * TALLY_BYTES;
        let bytes = (end - sure) * TALLY_BYTES;
        // SAFETY: tallies of our own mapping that are nobody's yet, here and below.
        if unsafe { sys::make_sure(at, bytes) }.is_ok() {
            // SAFETY: as above. An image that ran here before `exec` left its numbers.
            unsafe { core::ptr::write_bytes(at as *mut u8, 0, bytes) };
            self.sure.store(end, Relaxed);
            return true;
        }
        // SAFETY: as above.
        if unsafe { sys::map_over(at, (self.there() - sure) * TALLY_BYTES, Access::ReadWrite) }.is_err() {
            return false;
        }
        self.board().unseen.store(sure as u64, Relaxed);
        self.board().raise(Level::Mappings, 2);
        self.sure.store(SETS_MAX, Relaxed);
        true
    }

    /// Makes sure of the first `bytes` of the board's texts; false for lack of room. The writer's of the texts alone.
    pub fn ensure_texts(&self, bytes: usize) -> bool {
        const STEP: usize = 16 * 1024;
        // Relaxed: one thread's.
        let sure = self.sure_texts.load(Relaxed);
        if !self.is_shared() || bytes <= sure {
            return true;
        }
        let (at, end) = (self.show(), bytes.next_multiple_of(STEP).min(SHOW_BYTES));
        // SAFETY: a part of our own mapping that was never written.
        let has_room = at != 0 && unsafe { sys::make_sure(at + sure, end - sure) }.is_ok();
        if has_room {
            self.sure_texts.store(end, Relaxed);
        }
        has_room
    }

    /// Whether other processes see the board.
    pub fn is_shared(&self) -> bool {
        self.sure.load(Relaxed) != 0
    }

    /// Where the board's texts are, mapped when they are first asked for; 0 without memory.
    #[must_use]
    pub fn show(&self) -> usize {
        // Relaxed: the mapping is zero for whoever sees it, and one thread writes it.
        if self.text.load(Relaxed) == 0
            && let Ok(at) = self.map_texts()
        {
            if self.text.compare_exchange(0, at, Relaxed, Relaxed).is_ok() {
                self.board().raise_quietly(Level::Reserved, SHOW_BYTES);
            } else {
                // SAFETY: fresh, ours and unused.
                let _ = unsafe { sys::unmap(at, SHOW_BYTES) };
            }
        }
        self.text.load(Relaxed)
    }
    fn map_texts(&self) -> Result<usize, sys::Errno> {
        if !self.is_shared() {
            return sys::map(0, SHOW_BYTES, Access::ReadWrite);
        }
        // SAFETY: the board's file is mapped there, from its beginning.
        let at = unsafe { sys::map_again(self.base.load(Relaxed) + SETS_MAX * PAGE, SHARE_BYTES) }?;
        // SAFETY: fresh and ours. (If it is left there it does no harm.)
        let _ = unsafe { sys::unmap(at, SHOW) };
        Ok(at + SHOW)
    }
    fn forget_texts(&self) {
        let at = self.text.swap(0, Relaxed);
        if at != 0 {
            // SAFETY: ours; in a forked child whose only thread this is.
            let _ = unsafe { sys::unmap(at, SHOW_BYTES) };
        }
        self.sure_texts.store(0, Relaxed);
    }

    /// Bytes of board and tallies that are in use.
    fn board_used(&self) -> usize {
        BOARD_BYTES + self.tallied() * TALLY_BYTES
    }

    /// From now on a forked child finds a witness of that, whoever forked it and how; and, where others see the board, all sets empty:
    /// nothing is counted before it is noticed.
    pub fn watch(&self) {
        let base = self.base.load(Relaxed);
        let bytes = if self.is_shared() { self.there() * PAGE } else { PAGE };
        // (Behind set 0, which serves no index.)
        let witness = base + PAGE - size_of::<AtomicU64>();
        // SAFETY: our own mapping; nothing changes in this process.
        if unsafe { sys::advise(base, bytes, Advice::WipeOnFork) }.is_ok() {
            // SAFETY: a word of our own mapping.
            unsafe { &*(witness as *const AtomicU64) }.store(1, Relaxed);
            // Release: whoever knows the witness sees what it says.
            self.witness.store(witness, Release);
        }
    }
    /// Whether there is a witness.
    pub fn is_watched(&self) -> bool {
        self.witness.load(Relaxed) != 0
    }
    fn attest(&self) {
        let witness = self.witness.load(Relaxed);
        if witness != 0 {
            // SAFETY: a word of our own mapping.
            unsafe { &*(witness as *const AtomicU64) }.store(1, Relaxed);
        }
    }
    /// Whether this is a forked child that has not been told so.
    #[inline]
    pub fn is_orphan(&self) -> bool {
        // Acquire: pairs with `watch`.
        let witness = self.witness.load(Acquire);
        // SAFETY: as above.
        witness != 0 && unsafe { &*(witness as *const AtomicU64) }.load(Relaxed) == 0
    }

    /// Before a fork, when nobody is inside: what a child's board and sets begin with.
    pub fn snapshot(&self) {
        if !self.is_shared() {
            return;
        }
        let base = self.base.load(Relaxed);
        if self.snapshot_board() {
            let copy = self.copied_sets();
            // SAFETY: both are mappings of ours, as long as that. The sets are closed.
            unsafe { core::ptr::copy_nonoverlapping(base as *const u8, copy as *mut u8, self.tallied() * PAGE) };
        } else {
            // A child finds its sets, at least. (One that nobody tells counts on its parent's board until it is noticed.)
            // SAFETY: our own mapping; nothing changes in this process.
            let _ = unsafe { sys::advise(base + PAGE, (self.there() - 1) * PAGE, Advice::KeepOnFork) };
        }
    }
    fn copied_sets(&self) -> usize {
        self.copy.load(Relaxed) + BOARD_BYTES + self.copied.load(Relaxed) * TALLY_BYTES
    }

    /// What a child's board begins with; also in a child that nobody has told, from its parent's board. False, and no copy,
    /// without memory.
    fn snapshot_board(&self) -> bool {
        if self.copied.load(Relaxed) < self.tallied() {
            self.forget_copy();
            let room = self.tallied().next_power_of_two();
            if let Ok(copy) = sys::map(0, BOARD_BYTES + room * COPIED, Access::ReadWrite) {
                self.copy.store(copy, Relaxed);
                self.copied.store(room, Relaxed);
            }
        }
        let (copy, board) = (self.copy.load(Relaxed), self.base.load(Relaxed) + SETS_MAX * PAGE);
        if copy == 0 {
            return false;
        }
        // SAFETY: both are mappings of ours, as long as that. Other threads may count while we copy: on
        // x86-64 and every Linux machine words are copied whole or the count is off by what they added.
        unsafe { core::ptr::copy_nonoverlapping(board as *const u8, copy as *mut u8, self.board_used()) };
        true
    }

    fn forget_copy(&self) {
        let (copy, room) = (self.copy.swap(0, Relaxed), self.copied.swap(0, Relaxed));
        if copy != 0 {
            // SAFETY: ours, and there is no fork under way that needs it.
            let _ = unsafe { sys::unmap(copy, BOARD_BYTES + room * COPIED) };
        }
    }

    /// In a forked child, first of all: the sets as they were, or, if nobody `told` that there would be a fork, empty.
    pub fn restore(&self, told: bool) {
        let (base, is_shared) = (self.base.load(Relaxed), self.is_shared());
        if is_shared && told {
            if self.copy.load(Relaxed) != 0 && self.is_orphan() {
                let (copy, bytes) = (self.copied_sets(), self.tallied() * PAGE);
                // SAFETY: as in `snapshot`; there is nobody else in this process.
                unsafe { core::ptr::copy_nonoverlapping(copy as *const u8, base as *mut u8, bytes) };
            }
        } else if is_shared {
            // (They are, unless they are kept.)
            // SAFETY: the sets there are; there is nobody else in this process.
            unsafe { core::ptr::write_bytes((base + PAGE) as *mut u8, 0, self.made.load(Relaxed) * PAGE) };
            if self.snapshot_board() {
                // SAFETY: the copy begins with a board. What sets were entitled to is gone with them.
                let copied = unsafe { &*(self.copy.load(Relaxed) as *const Board) };
                copied.levels[Level::Charged as usize].store(0, Relaxed);
            }
        }
        self.attest();
    }

    /// In a forked child, after that: a board of its own, as it was before the fork, in `file` or private.
    pub fn unshare(&self, file: Option<usize>) {
        let (copy, board) = (self.copy.load(Relaxed), self.base.load(Relaxed) + SETS_MAX * PAGE);
        if !self.is_shared() {
            return;
        }
        self.forget_texts();
        let is_ours = copy != 0 && file.is_some_and(|file| self.share(file)) && self.ensure(self.tallied());
        if is_ours {
            let unseen = self.board().unseen.load(Relaxed);
            // SAFETY: both are mappings of ours, as long as that.
            unsafe { core::ptr::copy_nonoverlapping(copy as *const u8, board as *mut u8, self.board_used()) };
            self.board().unseen.store(unseen, Relaxed);
        } else {
            if !self.make_private() {
                return;
            }
            self.sure.store(0, Relaxed);
            self.forget_copy();
            self.board().unseen.store(0, Relaxed);
            // Its own children find the sets as they are.
            // SAFETY: our own mapping; nothing changes in this process.
            let _ =
                unsafe { sys::advise(self.base.load(Relaxed) + PAGE, (self.there() - 1) * PAGE, Advice::KeepOnFork) };
        }
        // (Its parent may have made more since.)
        self.board().sets.store(self.tallied() as u32, Relaxed);
    }

    /// The board and its tallies private, with what the copy has, or, without one, what they have now.
    #[cold]
    #[inline(never)]
    fn make_private(&self) -> bool {
        let (copy, board) = (self.copy.load(Relaxed), self.base.load(Relaxed) + SETS_MAX * PAGE);
        let (used, all) = (self.board_used(), BOARD_BYTES + self.there() * TALLY_BYTES);
        if copy != 0 {
            // SAFETY: the mapping of board and tallies; there is nobody else in this process.
            let is_private = unsafe { sys::map_over(board, all, Access::ReadWrite) }.is_ok();
            if is_private {
                // SAFETY: both are mappings of ours, as long as that.
                unsafe { core::ptr::copy_nonoverlapping(copy as *const u8, board as *mut u8, used) };
            }
            return is_private;
        }
        // A mapping over another needs no more addresses; what it holds waits in set 0, which is nobody's.
        let aside = self.base.load(Relaxed);
        let are_private = (board..board + used).step_by(PAGE).all(|at| {
            // SAFETY: a page of that mapping, and ours; there is nobody else in this process.
            unsafe { core::ptr::copy_nonoverlapping(at as *const u8, aside as *mut u8, PAGE) };
            // SAFETY: as above.
            let is_private = unsafe { sys::map_over(at, PAGE, Access::ReadWrite) }.is_ok();
            if is_private {
                // SAFETY: as above.
                unsafe { core::ptr::copy_nonoverlapping(aside as *const u8, at as *mut u8, PAGE) };
            }
            is_private
        });
        // SAFETY: as above.
        unsafe { core::ptr::write_bytes(aside as *mut u8, 0, PAGE) };
        self.attest();
        // SAFETY: as above; nothing there is in use.
        are_private && (used == all || unsafe { sys::map_over(board + used, all - used, Access::ReadWrite) }.is_ok())
    }

    /// Runs every sequence once on the unused class 0; whether each did what its contract says.
    pub fn self_test(&self, meta: &Meta) -> bool {
        let Some(sheaf) = Sheaf::new(meta, self.board()) else { return false };
        let word = sheaf.into_word(4);
        let mut objects = [0; 4];
        let count = self.event(Event::Direct);
        // An interruption may spoil a round; ten in a row do not happen.
        for _ in 0..10 {
            self.count(Event::Direct, 1);
            if self.ready().is_none() {
                return false;
            }
            let seen = self.ready().map_or(Word::NONE, |set| Word(set.pairs[0].main.load(Relaxed)));
            // SAFETY: class 0 has no objects: the numbers pushed are just numbers, and the
            // sheaf is ours. A round that was spoiled leaves it there: `seen`.
            let good = unsafe {
                self.swap(0, false, seen, word) == Outcome::Done(())
                    && self.push(0, 0x1230) == Outcome::Done(())
                    && self.refuses_strangers()
                    && self.push_batch(0, &[0x4560, 0x7890]) == 2
                    && self.pop(0) == Outcome::Done(0x7890)
                    && self.pop_batch(0, &mut objects) == 2
                    && objects[..2] == [0x1230, 0x4560]
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

    /// Whether every sequence leaves this index's set alone while it is another CPU's; class 0 has an object and room.
    ///
    /// # Safety
    /// As in [`Sets::self_test`], which owns all of it.
    unsafe fn refuses_strangers(&self) -> bool {
        let (board, area) = (self.board_pointer(), self.area());
        let Some(set) = self.ready() else { return false };
        let (word, at) = (set.pairs[0].main.load(Relaxed), &raw const *set as usize);
        let cpu = set.cpu.swap(NO_CPU, Relaxed);
        let mut objects = [0; 2];
        // SAFETY: the caller's promise; a sequence that is done after all does no harm: it moves numbers of class 0.
        let refused = unsafe {
            seq::pop(board, area, 0) == Outcome::Refused
                && seq::push(board, area, 0, 0x1230) == Outcome::Refused
                && seq::pop_batch(board, area, 0, objects.as_mut_ptr(), 2) == Outcome::Refused
                && seq::push_batch(board, area, 0, objects.as_ptr(), 2) == Outcome::Refused
                && seq::swap(board, area, 0, word, word) == Outcome::Refused
                && seq::add(board, area, 0, 0) == Outcome::Refused
                && seq::switch(board, area, at, at.wrapping_sub(board as usize)) == Outcome::Refused
        };
        set.cpu.store(cpu, Relaxed);
        refused
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
        offsets[..self.top()].iter().map(|at| at.load(Relaxed)).filter(|&at| at != 0).map(|at| self.set_at(at))
    }
    fn homes(&self) -> impl Iterator<Item = &Set> {
        self.at(&self.home)
    }
    /// Those that wait to be collected or for the next drain. In the fallback somebody may hold one for a moment
    /// still, until it sees that its slot leads elsewhere.
    fn others(&self) -> impl Iterator<Item = &Set> {
        self.at(&self.other)
    }
    fn all(&self) -> impl Iterator<Item = &Set> {
        self.homes().chain(self.others())
    }

    /// Objects of `class` that an index has in main and spare, how many each may hold, and how many the next refill
    /// takes; `None` without a set.
    #[must_use]
    pub fn list(&self, index: usize, class: usize) -> Option<(usize, usize, usize)> {
        let (set, _) = self.home_of(index)?;
        let pair = &set.pairs[class];
        let count = Word(pair.main.load(Relaxed)).count() + Word(pair.spare.load(Relaxed)).count();
        let (limit, batch) = (set.limits[class].load(Relaxed) as usize, set.batches[class].load(Relaxed) as usize);
        Some((count as usize, limit, batch.min(limit)))
    }

    /// Objects of `class` in the sheaves of all sets, those that wait to be collected too (exact when nobody changes them).
    #[must_use]
    pub fn cached(&self, class: usize) -> usize {
        self.all()
            .map(|set| {
                let pair = &set.pairs[class];
                Word(pair.main.load(Relaxed)).count() + Word(pair.spare.load(Relaxed)).count()
            })
            .sum::<u64>() as usize
    }
}

/// Steps under the lock of a set: none can be interrupted.
struct Locked<'a> {
    tally: &'a Tally,
}

impl Steps for Locked<'_> {
    fn load(&self, word: &AtomicU64) -> Result<u64, Interrupted> {
        Ok(word.load(Relaxed))
    }
    fn store(&self, word: &AtomicU64, value: u64) -> Result<(), Interrupted> {
        word.store(value, Relaxed);
        Ok(())
    }
    fn slot(&self, address: u64) -> &AtomicU64 {
        // SAFETY: as in `sim`: a slot of a sheaf, which is never unmapped.
        unsafe { &*(address as usize as *const AtomicU64) }
    }
    fn allocs(&self, class: usize, n: u64) {
        add_under_lock(&self.tally.class[class].allocs, n);
    }
    fn frees(&self, class: usize, n: u64) {
        add_under_lock(&self.tally.class[class].frees, n);
    }
}

/// Steps on a fake CPU, counted.
struct Simulated<'a> {
    running: &'a sim::Running<'a>,
    tally: &'a Tally,
}

impl Steps for Simulated<'_> {
    fn load(&self, word: &AtomicU64) -> Result<u64, Interrupted> {
        self.running.load(word)
    }
    fn store(&self, word: &AtomicU64, value: u64) -> Result<(), Interrupted> {
        self.running.store(word, value)
    }
    fn slot(&self, address: u64) -> &AtomicU64 {
        self.running.slot(address)
    }
    fn allocs(&self, class: usize, n: u64) {
        self.tally.class[class].allocs.fetch_add(n, Relaxed);
    }
    fn frees(&self, class: usize, n: u64) {
        self.tally.class[class].frees.fetch_add(n, Relaxed);
    }
}

/// The set's lock is held, so nobody else writes the word: no locked add.
fn add_under_lock(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed) + n, Relaxed);
}

#[cfg(test)]
#[allow(clippy::undocumented_unsafe_blocks)] // files and memory of their own
mod tests {
    use super::*;
    use std::vec::Vec;

    unsafe extern "C" {
        fn memfd_create(name: *const core::ffi::c_char, flags: u32) -> i32;
        fn ftruncate(file: i32, length: i64) -> i32;
        fn pread(file: i32, into: *mut u64, bytes: usize, at: i64) -> isize;
        fn pwrite(file: i32, from: *const u64, bytes: usize, at: i64) -> isize;
    }

    const MANY: usize = 5 * FIRST;

    /// Sets in the fallback whose board is in a file where something was before; and the file.
    fn shared(sets: &Sets) -> i32 {
        let file = unsafe { memfd_create(c"board".as_ptr(), 0) };
        assert!(file >= 0 && unsafe { ftruncate(file, SHARE_BYTES as i64) } == 0);
        (0..SHOW).step_by(PAGE).for_each(|at| assert_eq!(unsafe { pwrite(file, &7, 8, at as i64) }, 8));
        let room = (0x1900..).find_map(|slot| Room::at(slot << 30)).unwrap();
        assert!(room.bytes < 64 * 1024, "{room:?}");
        unsafe { sets.open(room.base, Mode::Fallback, Area::default(), None) };
        sets.roomy(room);
        assert!(sets.share(file as usize));
        sets.watch();
        file
    }
    fn make(sets: &Sets, upto: usize) {
        let state = sets.cpus.lock();
        while sets.made.load(Relaxed) < upto {
            sets.fresh(&state).unwrap();
        }
    }
    /// A word of each tally: in the file, and here.
    fn numbers(sets: &Sets, file: i32) -> [Vec<u64>; 2] {
        let in_file = |number: usize| {
            let mut word = 0;
            assert_eq!(unsafe { pread(file, &raw mut word, 8, (BOARD_BYTES + number * TALLY_BYTES) as i64) }, 8);
            word
        };
        let here = |number| sets.word(sets.tally(number), 0).load(Relaxed);
        [(0..sets.tallied()).map(in_file).collect(), (0..sets.tallied()).map(here).collect()]
    }
    fn number(sets: &Sets) {
        (0..sets.tallied()).for_each(|number| sets.word(sets.tally(number), 0).store(number as u64, Relaxed));
    }
    fn counted(sets: &Sets) -> Vec<u64> {
        (0..sets.tallied() as u64).collect()
    }

    #[test]
    fn a_shared_board_grows_in_its_file() {
        static SETS: Sets = Sets::new();
        let file = shared(&SETS);
        make(&SETS, MANY);
        assert_eq!(numbers(&SETS, file), [const { Vec::new() }; 2].map(|_: Vec<u64>| std::vec![0; MANY + 1]));
        number(&SETS);
        assert_eq!(numbers(&SETS, file)[0], counted(&SETS));
        assert!(SETS.text.load(Relaxed) == 0 && SETS.ensure_texts(8));
        unsafe { *(SETS.show() as *mut u64) = 77 };
        let mut word = 0;
        assert_eq!(unsafe { pread(file, &raw mut word, 8, SHOW as i64) }, 8);
        assert_eq!(word, 77);
    }

    /// With a copy it is as before the fork, without memory for one as it is now; and then nobody sees it, and it grows on.
    #[test]
    fn a_child_has_a_board_of_its_own_with_and_without_a_copy() {
        static COPIED: Sets = Sets::new();
        static BARE: Sets = Sets::new();
        static SHOWN: Sets = Sets::new();
        for sets in [&COPIED, &BARE, &SHOWN] {
            let file = shared(sets);
            make(sets, 2);
            sets.snapshot();
            make(sets, MANY);
            number(sets);
            assert!(sets.ensure_texts(8));
            if core::ptr::eq(sets, &BARE) {
                sets.forget_copy();
            } else {
                sets.snapshot();
                sets.word(sets.tally(3), 0).store(99, Relaxed);
            }
            // (What its parent has made since.)
            sets.board().sets.store(900, Relaxed);
            let own = core::ptr::eq(sets, &SHOWN).then(|| {
                let own = unsafe { memfd_create(c"board".as_ptr(), 0) };
                assert!(unsafe { ftruncate(own, SHARE_BYTES as i64) } == 0);
                own
            });
            sets.restore(true);
            sets.unshare(own.map(|file| file as usize));
            assert_eq!(numbers(sets, file)[1], counted(sets));
            assert_eq!((sets.is_shared(), sets.text.load(Relaxed)), (own.is_some(), 0));
            assert!(sets.is_watched() && !sets.is_orphan());
            assert_eq!(sets.board().sets.load(Relaxed), MANY as u32 + 1);
            make(sets, 3 * MANY);
            sets.word(sets.tally(2), 0).store(5, Relaxed);
            sets.word(sets.tally(3 * MANY), 0).store(6, Relaxed);
            assert_eq!(numbers(sets, file)[0][2], 2, "its parent's file");
            if let Some(own) = own {
                let [in_file, here] = numbers(sets, own);
                assert_eq!(in_file, here);
            }
        }
    }
}
