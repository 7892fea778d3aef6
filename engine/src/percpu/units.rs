//! # Where this thread's unit is
//!
//! ```text
//! a chunk:  ┌ nobody's ┬ index 0 ┬ index 1 ┬ … ┬ index `indices` - 1 ┐     UNIT bytes each
//!           └──▲───────┴──▲──────┴─────────┴───┴─────────────────────┘
//!           handle   handle + (index + 1) × UNIT
//! ```
//! All chunks have this shape, so a handle (an address in nobody's unit) and an index
//! make an address by one shift and one add, inside a sequence ([`crate::arch::unit_seq`]).
//!
//! | word | meaning |
//! |---|---|
//! | `top` | highest index that ever wrote a unit, plus one; only grows. A unit at or above it is still as it was mapped |
//! | `high` | the switch of the fast path: `top` while open, 0 while closed (a fork or vfork in flight), in the fallback, and before [`Units::open`] |
//!
//! A sequence that finds its index at or above `high` is refused; the cold path raises both
//! words, or, while closed, works on nobody's unit, where every operation is locked.
//! Invariants: nobody's unit is changed by locked operations only; a unit of an index is
//! changed by sequences of that index only (fallback: by locked operations only).
//!
//! Signals: everything here but [`Units::close`] and its likes may run in a handler that
//! interrupted itself: no lock is taken.
//!
//! Cost: [`Units::add`] is a load, a test and the sequence, inlined where the index is the
//! kernel's `mm_cid` (Linux 6.3); a call more where it is the CPU's number.
#![allow(unsafe_code)] // addresses of copies

use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::arch::atomic::{AtomicIsize, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};
use crate::arch::gate::{self, Gate, Inside};
use crate::arch::lock::{Guard, Lock};
use crate::arch::outcome::Outcome;
use crate::arch::rseq;
use crate::arch::seq::RseqArea;
use crate::arch::unit_seq::{self as seq, Place};
pub use crate::arch::unit_seq::{UNIT, UNIT_SHIFT};
use crate::cpu::sim::Interrupted;
use crate::cpu::{Cpus, Simulation};
use crate::stat::Mode;
use core::cell::Cell;
use core::num::NonZeroUsize;

/// Attempts at a sequence before the cold path goes to nobody's unit (a thread that is
/// single-stepped never commits).
const ATTEMPTS: usize = 3;
/// Locks that counters share for folding.
const FOLDING: usize = 32;

/// An allocation of per-CPU memory, or a place inside one: an address in nobody's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(NonZeroUsize);

impl Handle {
    /// From an address.
    ///
    /// # Safety
    /// It lies in unit 0 of a chunk of `indices + 1` units that is mapped for reading and
    /// writing as far as this allocation is used.
    #[must_use]
    pub const unsafe fn new(address: NonZeroUsize) -> Self {
        Self(address)
    }
    /// The address in nobody's unit.
    #[inline]
    #[must_use]
    pub const fn address(self) -> usize {
        self.0.get()
    }
    /// The place `bytes` further into the same allocation.
    ///
    /// # Safety
    /// It is inside the allocation.
    #[inline]
    #[must_use]
    pub const unsafe fn at(self, bytes: usize) -> Self {
        // SAFETY: an address in an allocation is not zero.
        Self(unsafe { NonZeroUsize::new_unchecked(self.0.get() + bytes) })
    }
    /// The address of the copy of `index`. Not for users: who may write there calls [`Units::raise`] first.
    #[inline]
    const fn copy(self, index: usize) -> usize {
        self.0.get() + ((index + 1) << UNIT_SHIFT)
    }
}

/// A word that an operation reads and writes once.
trait Exchanged {
    type Value: Copy + PartialEq;
    fn read(&self) -> Self::Value;
    fn write(&self, value: Self::Value);
    fn exchange(&self, old: Self::Value, new: Self::Value) -> bool;
}
macro_rules! word {
    ($atomic:ident $value:ident) => {
        impl Exchanged for $atomic {
            type Value = $value;
            fn read(&self) -> $value {
                // SeqCst as all steps of a simulation.
                self.load(SeqCst)
            }
            fn write(&self, value: $value) {
                self.store(value, SeqCst);
            }
            // SeqCst: the quota counter's fallback pairs it with its switch.
            fn exchange(&self, old: $value, new: $value) -> bool {
                self.compare_exchange(old, new, SeqCst, Relaxed).is_ok()
            }
        }
    };
}
word!(AtomicU8 u8);
word!(AtomicU64 u64);

/// A sequence by the index that this process has; `None` in the modes without.
macro_rules! sequence {
    ($units:expr, $at:expr, $name:ident($($argument:expr),*)) => {
        if let Some(place) = $units.place(&$units.by_mm_cid, $at) {
            Some(seq::$name::<{ rseq::MM_CID }>(place, $($argument),*))
        } else if let Some(place) = $units.place(&$units.by_cpu_id, $at) {
            Some(seq::$name::<{ rseq::CPU_ID }>(place, $($argument),*))
        } else {
            None
        }
    };
}

/// See the module.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Units {
    // What the fast path reads, on one line.
    high: AtomicUsize,
    /// Offset of the rseq area if its `mm_cid` is the index, else 0.
    by_mm_cid: AtomicIsize,
    /// The same if its `cpu_id` is.
    by_cpu_id: AtomicIsize,
    top: AtomicUsize,
    indices: AtomicUsize,
    /// Whether nobody's unit of some chunk was ever written.
    nobody: AtomicU32,
    cpus: Cpus,
    /// See [`Units::folding`].
    folding: [Lock<()>; FOLDING],
    /// Who holds a lock of per-CPU memory or of a counter is inside; a fork waits for them, and they for a fork.
    pub gate: Gate,
}
const _: () = assert!(core::mem::offset_of!(Units, gate) + gate::TOUCHED <= PAGE && align_of::<Units>() == PAGE);

/// The turn to fold a counter.
#[derive(Debug)]
pub struct Folding<'a> {
    _turn: Guard<'a, ()>,
    _inside: Inside<'a>,
}

impl Default for Units {
    fn default() -> Self {
        Self::new()
    }
}

impl Units {
    /// Closed for good until [`Units::open`].
    #[must_use]
    pub const fn new() -> Self {
        Self {
            high: AtomicUsize::new(0),
            by_mm_cid: AtomicIsize::new(0),
            by_cpu_id: AtomicIsize::new(0),
            top: AtomicUsize::new(0),
            indices: AtomicUsize::new(0),
            nobody: AtomicU32::new(0),
            cpus: Cpus::new(),
            folding: [const { Lock::new(()) }; FOLDING],
            gate: Gate::new(),
        }
    }

    /// Tells how units are reached, and how many indices there can ever be.
    ///
    /// # Safety
    /// Called once, before any handle is used. In mode `Sequences`, `area` is right, and
    /// membarrier is registered.
    pub unsafe fn open(&self, mode: Mode, area: RseqArea, indices: usize, simulation: Option<&'static Simulation>) {
        let _state = self.cpus.lock();
        self.indices.store(indices, Relaxed);
        self.top.store(1, Relaxed);
        if mode == Mode::Sequences {
            let by = if area.index == area.base + rseq::MM_CID { &self.by_mm_cid } else { &self.by_cpu_id };
            by.store(area.base, Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { self.cpus.open(mode, area, simulation) };
        if !self.cpus.is_closed() {
            self.open_high();
        }
    }

    fn open_high(&self) {
        if matches!(self.mode(), Mode::Sequences | Mode::Simulated) {
            // Release: whoever sees the switch sees what a fork did before.
            self.high.store(self.top.load(Relaxed), Release);
        }
    }

    /// Runs every sequence on the zeroed granule at `at` (8 bytes, aligned); whether each did what its contract
    /// says. Leaves it zeroed.
    ///
    /// # Safety
    /// Nobody else uses it.
    #[must_use]
    pub unsafe fn self_test(&self, at: Handle) -> bool {
        let (threshold, cap) = (AtomicU32::new(3), AtomicU64::new(4));
        // An interruption may spoil a round; ten in a row do not happen.
        let good = (0..10).any(|_| {
            // SAFETY: the caller's promise.
            unsafe {
                self.add(at, 2);
                let own = (0..self.high()).any(|index| self.take_all(at, index) == 2);
                let step = |delta| self.step(at, delta, &threshold);
                let stepped = step(-3) == Outcome::Done(()) && step(-1) == Outcome::Refused;
                let stepped = stepped && step(6) == Outcome::Done(()) && step(1) == Outcome::Refused;
                let stepped = stepped && self.change_byte(at, |old| (old == 3).then_some(-1)) && self.sum(at) == 0xff;
                let _ = (0..self.high()).map(|index| self.take_all(at, index)).sum::<u64>();
                let moved = |delta| self.move_within(at, delta, &cap);
                let bounded = moved(3) == Outcome::Done(()) && moved(1) == Outcome::Refused && self.sum(at) == 3;
                let _ = (0..self.high()).map(|index| self.take_all(at, index)).sum::<u64>();
                let nobody = self.word::<AtomicU64>(at.address()).swap(0, Relaxed);
                own && stepped && bounded && nobody == 0
            }
        });
        good && self.fence()
    }

    /// How units are reached.
    #[inline]
    pub fn mode(&self) -> Mode {
        self.cpus.mode()
    }

    /// Highest index that ever wrote a unit, plus one (also while closed).
    #[inline]
    pub fn high(&self) -> usize {
        // Acquire pairs with the Release in `raise`: not needed for a unit's zeroes (who frees
        // what index i wrote has raised it before), but a reader then sums what i wrote.
        self.top.load(Acquire)
    }

    /// Whether nobody's unit of some chunk was ever written; while it was not, all of them are
    /// as they were mapped. Relaxed: as with [`Units::high`], what frees a word orders it.
    #[inline]
    pub fn nobody_used(&self) -> bool {
        self.nobody.load(Relaxed) != 0
    }
    /// Everybody who writes nobody's unit calls it first.
    pub fn use_nobody(&self) {
        self.nobody.store(1, Relaxed);
    }

    /// How many indices there can ever be: possible CPUs.
    #[inline]
    pub fn indices(&self) -> usize {
        self.indices.load(Relaxed)
    }

    /// Notes that `index` writes its units; everybody who writes a copy calls it first.
    pub fn raise(&self, index: usize) {
        if index >= self.high() && index < self.indices() {
            self.top.fetch_max(index + 1, Release);
        }
        // While closed it stays 0: reopening takes `top`.
        let mut high = self.high.load(Relaxed);
        while high != 0 && high <= index {
            match self.high.compare_exchange(high, index + 1, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => high = now,
            }
        }
    }

    /// This thread's index now (may change at once).
    #[inline]
    pub fn here(&self) -> usize {
        match self.mode() {
            Mode::Sequences => match self.by_mm_cid.load(Relaxed) {
                // (A valid index also where the thread is not registered; the sequences then refuse.)
                0 => rseq::word(self.by_cpu_id.load(Relaxed) + rseq::CPU_ID_START) as usize,
                base => rseq::word(base + rseq::MM_CID) as usize,
            },
            _ => self.cpus.here().0,
        }
    }

    /// The address of this thread's copy. What it does there other threads of this index may do
    /// at the same time, if it is preempted: use atomics, or the operations below.
    #[inline]
    pub fn this_cpu(&self, at: Handle) -> usize {
        let mut index = self.here();
        if index >= self.high() {
            index = self.first_use(index);
        }
        at.copy(index)
    }
    /// Raises a thread's index, and gives the one whose copy it uses. They differ if the system names a CPU that it
    /// did not call possible: two CPUs then share a copy, as two threads of an index do.
    #[cold]
    fn first_use(&self, index: usize) -> usize {
        let index = index % self.indices().max(1);
        self.raise(index);
        index
    }
    /// The address of the copy of an index, for whoever may write it.
    #[inline]
    pub fn for_cpu(&self, at: Handle, index: usize) -> Option<usize> {
        (index < self.indices()).then(|| {
            // Before anything is written: what is freed later is zeroed as far as this.
            self.raise(index);
            at.copy(index)
        })
    }
    /// The addresses of the copies that may have been written; the others are zero.
    pub fn copies(&self, at: Handle) -> impl Iterator<Item = usize> + use<> {
        (0..self.high()).map(move |index| at.copy(index))
    }

    #[inline(always)]
    fn place(&self, base: &AtomicIsize, at: Handle) -> Option<Place<'_>> {
        // Relaxed: set before there was any handle. Without an area there is no word that a
        // sequence could announce itself in.
        let base = base.load(Relaxed);
        (base != 0).then(|| Place { base, high: &self.high, at: at.address() })
    }

    /// A word of a copy, or of nobody's.
    fn word<W>(&self, address: usize) -> &W {
        // SAFETY: a handle promises a chunk of `indices + 1` units; `W` is an atomic of the
        // size and alignment that the operation was promised.
        unsafe { &*(address as *const W) }
    }

    /// Reads, changes and writes one word of this index's copy, in the modes that are not
    /// `Sequences`. Refused if `change` gives nothing.
    fn change<W: Exchanged>(&self, at: Handle, change: impl Fn(W::Value) -> Option<W::Value>) -> Outcome<()> {
        match self.mode() {
            Mode::Simulated => {
                let (running, index, _) = self.cpus.simulation().begin();
                let steps = || -> Result<Outcome<()>, Interrupted> {
                    if index >= running.step(|| self.high.load(SeqCst))? {
                        return Ok(Outcome::Refused);
                    }
                    let word: &W = self.word(at.copy(index));
                    let Some(new) = change(running.step(|| word.read())?) else { return Ok(Outcome::Refused) };
                    running.step(|| word.write(new))?;
                    Ok(Outcome::Done(()))
                };
                steps().unwrap_or(Outcome::Aborted)
            }
            Mode::Fallback => {
                let index = self.here();
                if index >= self.indices() {
                    return Outcome::Refused;
                }
                self.raise(index);
                locked(self.word::<W>(at.copy(index)), change)
            }
            _ => Outcome::Refused,
        }
    }

    /// After a refusal: whether this index can be used now, because it was raised or was high
    /// enough all along (then the operation itself refused).
    fn enter(&self) -> Entry {
        let index = self.here();
        let base = self.by_mm_cid.load(Relaxed) + self.by_cpu_id.load(Relaxed);
        if self.mode() == Mode::Sequences && (rseq::word(base + rseq::CPU_ID) as i32) < 0
            || index >= self.indices()
            || self.mode() == Mode::Closed
        {
            return Entry::Nobody;
        }
        if self.mode() == Mode::Fallback || index < self.high.load(Relaxed) {
            return Entry::Open;
        }
        self.raise(index);
        if self.high.load(Relaxed) == 0 { Entry::Nobody } else { Entry::Raised }
    }

    /// Tries an operation in the mode that there is; `None` if it has to be done on nobody's
    /// unit, else whether the operation refused.
    fn attempt(&self, once: impl Fn() -> Outcome<()>) -> Option<bool> {
        for _ in 0..ATTEMPTS {
            match once() {
                Outcome::Done(()) => return Some(true),
                Outcome::Aborted => {}
                Outcome::Refused => match self.enter() {
                    Entry::Open => return Some(false),
                    Entry::Raised => {}
                    Entry::Nobody => return None,
                },
            }
        }
        None
    }

    /// This index's word at `at` grows by `n` (wrapping). Never fails.
    ///
    /// # Safety
    /// `at` is an aligned `u64` of a live allocation, used by `add` only.
    #[inline(always)]
    pub unsafe fn add(&self, at: Handle, n: u64) {
        if let Some(place) = self.place(&self.by_mm_cid, at) {
            // SAFETY: the caller's promise; the area is right.
            if unsafe { seq::add::<{ rseq::MM_CID }>(place, n) } == Outcome::Done(()) {
                return;
            }
        }
        self.add_cold(at, n);
    }

    #[cold]
    #[inline(never)]
    fn add_cold(&self, at: Handle, n: u64) {
        // SAFETY: as in `add`.
        let once = || match unsafe { sequence!(self, at, add(n)) } {
            Some(outcome) => outcome,
            None => self.change::<AtomicU64>(at, |value| Some(value.wrapping_add(n))),
        };
        if self.attempt(once) != Some(true) {
            self.use_nobody();
            // Relaxed: a number that is summed.
            self.word::<AtomicU64>(at.address()).fetch_add(n, Relaxed);
        }
    }

    /// The sum over all copies and nobody's. Exact if nobody adds meanwhile; else each word is
    /// read whole, at some moment of the call. Takes no lock; a load per index below `high`.
    ///
    /// # Safety
    /// As [`Units::add`].
    #[must_use]
    pub unsafe fn sum(&self, at: Handle) -> u64 {
        let nobody = self.word::<AtomicU64>(at.address()).load(Relaxed);
        (0..self.high())
            .fold(nobody, |sum, index| sum.wrapping_add(self.word::<AtomicU64>(at.copy(index)).load(Relaxed)))
    }

    /// One fast attempt: this index's byte (signed) moves by `delta` unless it would then lie beyond
    /// `threshold` in that direction. Refused in every mode but `Sequences`.
    ///
    /// # Safety
    /// `at` is a byte of a live allocation, used by this and the other byte operations only;
    /// `delta` fits a byte.
    #[inline(always)]
    pub unsafe fn step(&self, at: Handle, delta: i32, threshold: &AtomicU32) -> Outcome<()> {
        match self.place(&self.by_mm_cid, at) {
            // SAFETY: the caller's promise; the area is right.
            Some(place) => unsafe { Self::step_at::<{ rseq::MM_CID }>(place, delta, threshold) },
            None => self.step_by_cpu_id(at, delta, threshold),
        }
    }
    /// Up or down.
    ///
    /// # Safety
    /// As [`Units::step`]; `INDEX` is that of the place's area.
    #[inline(always)]
    unsafe fn step_at<const INDEX: isize>(place: Place<'_>, delta: i32, threshold: &AtomicU32) -> Outcome<()> {
        // SAFETY: the caller's promise.
        unsafe {
            if delta >= 0 {
                seq::up::<INDEX>(place, delta as u32, threshold)
            } else {
                seq::down::<INDEX>(place, delta.unsigned_abs(), threshold)
            }
        }
    }
    #[cold]
    #[inline(never)]
    fn step_by_cpu_id(&self, at: Handle, delta: i32, threshold: &AtomicU32) -> Outcome<()> {
        match self.place(&self.by_cpu_id, at) {
            // SAFETY: the promise of `step`; the area is right.
            Some(place) => unsafe { Self::step_at::<{ rseq::CPU_ID }>(place, delta, threshold) },
            None => Outcome::Refused,
        }
    }

    /// Changes this index's byte, or nobody's, in any mode: `change` gives the new value of the
    /// one it is shown, any number of times, of which the last counts; none: nothing is done. Whether it was.
    ///
    /// # Safety
    /// As [`Units::step`].
    #[cold]
    pub unsafe fn change_byte(&self, at: Handle, change: impl Fn(i8) -> Option<i8>) -> bool {
        let none = Cell::new(false);
        let change = |old: u8| {
            let new = change(old as i8).map(|new| new as u8);
            none.set(new.is_none());
            new
        };
        let once = || match self.mode() {
            Mode::Sequences => {
                let index = self.here();
                if index >= self.high.load(Relaxed) {
                    return Outcome::Refused;
                }
                // A guess: the sequence compares it with the byte of the index that it then has.
                let old = self.word::<AtomicU8>(at.copy(index)).load(Relaxed);
                let Some(new) = change(old) else { return Outcome::Refused };
                // SAFETY: the caller's promise; the area is right.
                unsafe { sequence!(self, at, swap(old, new)) }.unwrap_or(Outcome::Refused)
            }
            _ => self.change::<AtomicU8>(at, change),
        };
        // Not `attempt`: a refusal is final only if `change` gave nothing. (The sequence's own tells that the
        // byte or the index is another by now, which is as good as an interruption.)
        for _ in 0..ATTEMPTS {
            match once() {
                Outcome::Done(()) => return true,
                _ if none.get() => return false,
                Outcome::Refused if self.enter() == Entry::Nobody => break,
                _ => {}
            }
        }
        self.use_nobody();
        locked(self.word::<AtomicU8>(at.address()), change) == Outcome::Done(())
    }

    /// The byte of `index`; of nobody for `None`.
    ///
    /// # Safety
    /// As [`Units::step`].
    #[must_use]
    pub unsafe fn byte(&self, at: Handle, index: Option<usize>) -> i8 {
        self.word::<AtomicU8>(index.map_or(at.address(), |index| at.copy(index))).load(Relaxed) as i8
    }

    /// Sets the byte of `index` (or of nobody), which no operation of this index uses.
    ///
    /// # Safety
    /// It is a byte of a live allocation, and the caller's to write.
    pub unsafe fn set_byte(&self, at: Handle, index: Option<usize>, value: i8) {
        if index.is_none() {
            self.use_nobody();
        }
        let byte: &AtomicU8 = self.word(index.map_or(at.address(), |index| at.copy(index)));
        // Release: who sees it sees that the caller has announced it.
        byte.store(value as u8, Release);
    }

    /// A word in the copy of `index` that everybody uses by locked operations. The caller has
    /// called [`Units::raise`] if it writes.
    ///
    /// # Safety
    /// It is an aligned `u64` of a live allocation, used in this way only.
    #[must_use]
    pub unsafe fn shared_word(&self, at: Handle, index: usize) -> &AtomicU64 {
        self.word(at.copy(index))
    }

    /// One fast attempt: this index's word moves by `delta` (wrapping) if it then lies below
    /// `cap`. Refused in every mode but `Sequences`.
    ///
    /// # Safety
    /// `at` is an aligned `u64` of a live allocation, used by this and [`Units::move_slowly`],
    /// and by whoever has closed `cap` and fenced.
    #[inline(always)]
    pub unsafe fn move_within(&self, at: Handle, delta: u64, cap: &AtomicU64) -> Outcome<()> {
        match self.place(&self.by_mm_cid, at) {
            // SAFETY: the caller's promise; the area is right.
            Some(place) => unsafe { seq::move_within::<{ rseq::MM_CID }>(place, delta, cap) },
            None => self.move_by_cpu_id(at, delta, cap),
        }
    }
    #[cold]
    #[inline(never)]
    fn move_by_cpu_id(&self, at: Handle, delta: u64, cap: &AtomicU64) -> Outcome<()> {
        match self.place(&self.by_cpu_id, at) {
            // SAFETY: the promise of `move_within`; the area is right.
            Some(place) => unsafe { seq::move_within::<{ rseq::CPU_ID }>(place, delta, cap) },
            None => Outcome::Refused,
        }
    }

    /// The same in any mode, with the attempts of the cold path; whether it was done. Never on
    /// nobody's unit.
    ///
    /// # Safety
    /// As [`Units::move_within`].
    #[cold]
    pub unsafe fn move_slowly(&self, at: Handle, delta: u64, cap: &AtomicU64) -> bool {
        // SAFETY: the caller's promise; the area is right.
        let once = || match unsafe { sequence!(self, at, move_within(delta, cap)) } {
            Some(outcome) => outcome,
            None => self.change::<AtomicU64>(at, |old| {
                let new = old.wrapping_add(delta);
                (new < cap.load(SeqCst)).then_some(new)
            }),
        };
        self.attempt(once) == Some(true)
    }

    /// Takes all of the word of `index`, by a locked operation.
    ///
    /// # Safety
    /// As [`Units::move_within`]; no sequence uses the word (`cap` is 0 and a fence came after).
    #[must_use]
    pub unsafe fn take_all(&self, at: Handle, index: usize) -> u64 {
        // SeqCst: the fallback's pair, see `word!`.
        self.word::<AtomicU64>(at.copy(index)).swap(0, SeqCst)
    }

    /// The NUMA node that runs us now (may change at once).
    #[must_use]
    pub fn node(&self) -> usize {
        self.cpus.node()
    }

    /// The turn to fold the counter at `at`: to fold it, to move between its stocks and its total. A fork waits for
    /// all of them, so a child finds none half done, and a thread that begins one waits for a fork. Not for signal handlers.
    pub fn folding(&self, at: Handle) -> Folding<'_> {
        let inside = self.gate.enter_patiently();
        // Neighbours in memory take different ones.
        Folding { _turn: self.folding[at.address() / 8 % FOLDING].lock(), _inside: inside }
    }

    /// After it every sequence that had begun has committed or will abort, and what it
    /// committed is seen; later ones see what the caller had stored. False if the kernel refuses.
    #[must_use]
    pub fn fence(&self) -> bool {
        // The caller's stores come before.
        fence(SeqCst);
        self.cpus.fence_all()
    }

    /// Switches the fast path off, everywhere (see [`Cpus::close`]).
    pub fn close(&self) -> bool {
        // By a locked operation: a `raise` that came before is overwritten, a later one finds 0.
        self.cpus.close(|| _ = self.high.swap(0, SeqCst))
    }
    /// Ends one [`Units::close`].
    pub fn reopen(&self) {
        self.cpus.reopen(|_| self.open_high());
    }
    /// Before a fork: closes, when nobody holds a lock of per-CPU memory any more; or false, and all as it was, after so many looks
    /// (see [`Gate::fork_begin_within`]). Signals are blocked.
    #[must_use]
    pub fn fork_begin(&self, looks: u32) -> bool {
        let seal = |is_closed: bool| {
            if !is_closed {
                self.close();
            }
        };
        self.gate.fork_begin_within(looks, seal, || self.reopen())
    }
    /// After a fork, in the parent or in the child, whose thread has so many vforks in flight. Signals are blocked.
    pub fn fork_end(&self, child: bool, vforks: u32) {
        if child {
            self.cpus.inherit(vforks);
        }
        self.gate.fork_end(child, || self.reopen());
    }
    /// In a child that no handler has told, whose thread has so many vforks in flight: nobody else closes, is inside, nor has the lock.
    pub fn inherit(&self, vforks: u32) {
        self.gate.inherit();
        self.cpus.inherit(vforks);
        self.reopen();
    }
    /// Whether a fork or vfork is in flight.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.cpus.is_closed()
    }

    /// The process is about to filter its system calls: every fence counts as refused from now on (see [`Cpus::confine`]).
    pub fn confine(&self) {
        self.cpus.confine();
    }
}

/// What a refused thread may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// Its index was open: the operation itself refused.
    Open,
    /// Its index is open now: again.
    Raised,
    /// Nobody's unit.
    Nobody,
}

/// Compare and swap until it is done, or `change` gives nothing.
fn locked<W: Exchanged>(word: &W, change: impl Fn(W::Value) -> Option<W::Value>) -> Outcome<()> {
    loop {
        let old = word.read();
        let Some(new) = change(old) else { return Outcome::Refused };
        if word.exchange(old, new) {
            return Outcome::Done(());
        }
    }
}
