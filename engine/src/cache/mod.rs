//! # `cache`: malloc's per-CPU caches
//!
//! One set per CPU ([`set`], of words as in [`layout`]), one pointer to it that is the only switch ([`sets`]), how somebody else empties one
//! ([`drain`]), sheaves and barns ([`sheaf`]); [`steps`] are the sequences once more, for the fallback and for tests. Here: the way
//! from a refused fast path to the source of objects.
//!
//! ## Behind the fast path: spare, barn, source
//! ```text
//! pop refused:  main empty ──► exchange with spare ──► full sheaf from a barn ──► fill one from the source
//! push refused: main full  ──► exchange with spare ──► empty sheaf from a barn; the full one goes to
//!                                                      the spare's place, a barn, or the source
//! ```
//! Where one of the two is full and the other empty, they do not change places but are [evened out](pair): else whoever frees and
//! allocates at random comes back here every few operations.
//!
//! Of small objects a set has a barn to itself, of two full sheaves a class, which is asked before the node's.
//! Every arrow that touches a set is one committed compare-and-store of a word
//! ([`Sets::swap`]), so that each sheaf always has one owner, whoever preempts
//! whom. A thread that was interrupted three times in a row, or that finds the
//! sets closed, is served object by object from the source.
//!
//! How much a sheaf may hold starts small and doubles with every visit here,
//! within one budget for all sets together (see [`Cache::entitle`]), in which a CPU's classes that do nothing give way ([`idle`]).
//! Locks: none held while calling the source. Cost: one visit per half sheaf.
#![allow(unsafe_code)] // sheaves change owners

pub mod cpuset;
pub mod drain;
pub mod front;
mod idle;
pub mod layout;
mod pair;
pub mod runs;
pub mod set;
pub mod sets;
mod share;
mod shared;
pub mod sheaf;
pub mod steps;
mod tally;

use crate::arch::atomic::AtomicU16;
use crate::arch::atomic::Ordering::{Acquire, Relaxed};
use crate::arch::outcome::Outcome;
use crate::cpu::NODES;
use crate::knob::{Id, Knobs, TABLE};
use crate::meta::Meta;
use crate::stat::board::CLASSES_MAX;
use crate::stat::{Event, Level, Mode};
use core::iter;
use core::ops::Range;
use cpuset::CpuSet;
use layout::{OBJECTS, Word};
use set::{NEAR, Set};
use sets::STEP;
pub use sets::Sets;
pub use sheaf::Sheaf;
use sheaf::{Barn, FULL_MAX};

/// Interruptions in a row after which a thread goes past the sets.
const ABORTS: u32 = 3;
/// Visits after which it does so whatever happened (each one found another thread's work).
const VISITS: u32 = 64;
/// Barns together may hold one part in this many of what sets may.
const BARNS: u64 = 4;
/// Most full sheaves that the barn of a set keeps of a class.
const NEAR_MAX: u32 = 2;

/// The bytes from which a soft limit is near: seven eighths of it.
#[must_use]
pub const fn near(soft: u64) -> u64 {
    soft - soft / 8
}

/// Where the objects of a class come from.
pub trait Source {
    /// Puts up to `n` objects into the sheaf, which has slots for them; none when there is no memory.
    fn fill(&self, class: usize, sheaf: &mut Sheaf, n: usize);
    /// Takes all objects out of the sheaf.
    fn flush(&self, class: usize, sheaf: &mut Sheaf);
    /// Takes objects out of the sheaf, the oldest first: one at least, and as many as a caller who frees one may wait for.
    fn relieve(&self, class: usize, sheaf: &mut Sheaf) {
        self.flush(class, sheaf);
    }
    /// One object, past the sets.
    fn take(&self, class: usize) -> Option<usize>;
    /// Takes one object, past the sets.
    fn give(&self, class: usize, object: usize);
    /// Bytes of an object.
    fn size(&self, class: usize) -> usize;
    /// Bytes of a sheaf's objects.
    fn bytes(&self, class: usize, sheaf: &mut Sheaf) -> usize {
        sheaf.len() * self.size(class)
    }
    /// Whether an object lies on the node that runs us. (Where there is one node all do.)
    fn is_near(&self, _object: usize) -> bool {
        true
    }
    /// Whether hardly anything of a class's slabs is out, so that what is cached of it keeps much more than itself.
    fn is_hollow(&self, _class: usize) -> bool {
        false
    }
    /// Whether a full sheaf's objects are better drawn anew than given out again as they are.
    fn is_scattered(&self, _class: usize, _objects: &[usize]) -> bool {
        false
    }
}

/// How far a drain goes for what another CPU caches (see [`drain`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainMode {
    /// *Gentle* for isolated CPUs, *expedited* for all others.
    Auto,
    /// No CPU that runs a thread of ours is interrupted: its owner is asked.
    Gentle,
    /// Each CPU that runs a thread of ours is interrupted once, for 1–2 µs.
    Expedited,
}

impl DrainMode {
    /// The mode with this number, in requests.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        [Self::Auto, Self::Gentle, Self::Expedited].into_iter().find(|&mode| mode as u64 == word)
    }
}

/// What a drain took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainReport {
    /// Sets emptied.
    pub reached: usize,
    /// Sets that hold something and could not be reached: nobody answered, or the system refused the fence.
    pub unreached: usize,
    /// Objects and blocks of pages taken.
    pub objects: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Fences sent. (Whether one interrupted anybody cannot be known from inside.)
    pub fences: u64,
    /// Sets that their owners gave up when asked.
    pub answers: u64,
}

/// All per-CPU caches with what stands behind them.
#[repr(C)]
#[derive(Debug)]
pub struct Cache {
    /// Blocks for sheaves.
    pub meta: Meta,
    /// The settings.
    pub knobs: Knobs,
    /// Most objects in a sheaf of a class.
    most: [AtomicU16; CLASSES_MAX],
    /// The sets.
    pub sets: Sets,
    /// By node and class.
    barns: [[Barn; CLASSES_MAX]; NODES],
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}

impl Cache {
    /// Closed and empty.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sets: Sets::new(),
            barns: [const { [const { Barn::new() }; CLASSES_MAX] }; NODES],
            meta: Meta::new(),
            knobs: Knobs::new(),
            most: [const { AtomicU16::new(0) }; CLASSES_MAX],
        }
    }

    /// Shows the knobs' values.
    pub fn publish_knobs(&self) {
        let words = &self.sets.board().knobs;
        (0..TABLE.len()).for_each(|at| words[at].store(self.knobs.at(at), Relaxed));
    }

    /// An object of `class`; `None` without memory.
    pub fn alloc(&self, source: &impl Source, class: usize) -> Option<usize> {
        let pop = || self.sets.pop(class);
        if let Some(object) = self.attempt(pop, |set| self.refill(source, set, class)) {
            return Some(object);
        }
        let object = source.take(class)?;
        self.sets.count(Event::Direct, 1);
        self.sets.count_direct(class, 1, 0);
        Some(object)
    }

    /// What `sequence` does with this CPU's set, after each refusal of which `again` prepares for the next attempt, or not; `None` where
    /// the caller goes past the sets.
    fn attempt<T>(&self, sequence: impl Fn() -> Outcome<T>, again: impl Fn(&Set) -> bool) -> Option<T> {
        let mut aborts = 0;
        for _ in 0..VISITS {
            let set = self.sets.ready()?;
            match sequence() {
                Outcome::Done(done) => return Some(done),
                Outcome::Aborted => {
                    self.sets.count(Event::SeqAbort, 1);
                    aborts += 1;
                    if aborts == ABORTS {
                        break;
                    }
                }
                Outcome::Refused => {
                    if !again(set) {
                        break;
                    }
                }
            }
        }
        None
    }

    /// Takes an object of `class` back.
    ///
    /// # Safety
    /// `object` is a live object of that class that nobody uses any more.
    pub unsafe fn free(&self, source: &impl Source, class: usize, object: usize) {
        // SAFETY: the caller's promise.
        let push = || unsafe { self.sets.push(class, object) };
        if self.attempt(push, |set| self.make_room(source, set, class)).is_some() {
            return;
        }
        source.give(class, object);
        self.sets.count(Event::Direct, 1);
        self.sets.count_direct(class, 0, 1);
    }

    /// The barn of `class` on the node that runs us.
    pub fn barn(&self, class: usize) -> &Barn {
        &self.barns[self.sets.cpus.node()][class]
    }

    fn words(set: &Set, class: usize) -> (Word, Word) {
        let pair = &set.pairs[class];
        // Acquire: only a hint (the swap decides), but what it names should be seen whole.
        (Word(pair.main.load(Acquire)), Word(pair.spare.load(Acquire)))
    }

    /// After a refused pop: gives this CPU's set something to pop. False without memory.
    fn refill(&self, source: &impl Source, set: &Set, class: usize) -> bool {
        let Err((main, _)) = self.refill_own(source, set, class) else { return true };
        let limit = self.entitle(source, set, class);
        let Some(empty) = self.take_main(class, main, limit) else { return main != Word::NONE };
        let sheaf = match self.barn(class).trade_empty(empty) {
            Ok(full) => {
                self.left_barn(source, class, &full);
                self.sets.count(Event::BarnGet, 1);
                full
            }
            Err(empty) => {
                let mut empty = empty.fitting(&self.meta, self.sets.board(), limit);
                let n = self.batch(set, class, source.size(class), limit).min(empty.slots());
                source.fill(class, &mut empty, n);
                if empty.is_empty() {
                    self.barn(class).put_empty(&self.meta, empty);
                    return false;
                }
                empty
            }
        };
        self.install(source, class, sheaf, limit);
        true
    }

    /// Takes the main sheaf out (an empty one, for `limit` objects if it is new, where there is none yet): ours, until
    /// [`Cache::install`] puts one in. `None` if somebody was faster, or without memory.
    fn take_main(&self, class: usize, main: Word, limit: usize) -> Option<Sheaf> {
        if main == Word::NONE {
            return self.barn(class).take_empty(&self.meta, self.sets.board(), limit);
        }
        // SAFETY: if done, the sheaf is ours.
        let taken = unsafe { self.sets.swap(class, false, main, Word::NONE) } == Outcome::Done(());
        // SAFETY: as above.
        if taken { unsafe { Sheaf::from_word(main) } } else { None }
    }

    /// After a refused push: gives this CPU's set room. False without memory for a sheaf.
    fn make_room(&self, source: &impl Source, set: &Set, class: usize) -> bool {
        let Err((main, spare)) = self.make_room_own(source, set, class) else { return true };
        let limit = self.entitle(source, set, class);
        set.batches[class].store(set.batches[class].load(Relaxed) / 2, Relaxed);
        let Some(mut sheaf) = self.take_main(class, main, limit) else { return main != Word::NONE };
        if !sheaf.is_empty() {
            let spare_is_free = spare == Word::NONE;
            let traded = if spare_is_free {
                self.keep(source, class, true, sheaf.into_word(main.count() as usize));
                Ok(None)
            } else {
                self.to_barn(source, class, sheaf)
            };
            sheaf = match traded {
                Ok(Some(empty)) => empty,
                Ok(None) => {
                    let barn = self.barn(class);
                    let Some(new) = barn.take_empty(&self.meta, self.sets.board(), limit) else { return false };
                    new
                }
                Err(mut full) => {
                    source.relieve(class, &mut full);
                    full
                }
            };
        }
        self.install(source, class, sheaf, limit);
        true
    }

    /// The main sheaf that `set`, this CPU's, has of a class that has neither barn nor budget, if it is `wanted`: `room` takes objects out of it,
    /// or not, and says how many it may hold from now on. False where that cannot be.
    pub fn renew_main(
        &self,
        source: &impl Source,
        set: &Set,
        class: usize,
        wanted: impl Fn(Word) -> bool,
        room: impl Fn(&mut Sheaf) -> usize,
    ) -> bool {
        let (main, _) = Self::words(set, class);
        if !wanted(main) {
            return true;
        }
        let Some(mut sheaf) = self.take_main(class, main, 0) else { return false };
        let limit = room(&mut sheaf);
        self.install(source, class, sheaf, limit);
        true
    }

    /// Something to pop from what is the set's: its spare, or a sheaf of its barn, where main is empty.
    ///
    /// # Errors
    /// Main and spare, both empty, as looked at.
    #[inline]
    fn refill_own(&self, source: &impl Source, set: &Set, class: usize) -> Result<(), (Word, Word)> {
        self.look(source, set, class, |word| word.serves(false))
            .or_else(|(main, spare)| if self.pull_near(source, set, class, main) { Ok(()) } else { Err((main, spare)) })
    }

    /// Room for a push in what is the set's: its spare, or what its barn takes main for, where main is full.
    ///
    /// # Errors
    /// Main and spare, without room, as looked at.
    #[inline]
    fn make_room_own(&self, source: &impl Source, set: &Set, class: usize) -> Result<(), (Word, Word)> {
        self.look(source, set, class, |word| word.serves(true)).or_else(|(main, spare)| {
            let is_kept = main != Word::NONE && spare != Word::NONE && self.push_near(source, set, class, main);
            if is_kept { Ok(()) } else { Err((main, spare)) }
        })
    }

    /// A sheaf with objects from the barn that `set` has to itself, for its empty main.
    fn pull_near(&self, source: &impl Source, set: &Set, class: usize, main: Word) -> bool {
        let Some(full) = self.take_near(source, set, class) else { return false };
        self.sets.count(Event::BarnGet, 1);
        let limit = self.entitle(source, set, class);
        let word = full.fitting(&self.meta, self.sets.board(), limit).into_word(limit);
        // SAFETY: the sheaf is ours to put in; if done, main is ours.
        if unsafe { self.sets.swap(class, false, main, word) } != Outcome::Done(()) {
            self.release(source, class, word);
            return false;
        }
        // SAFETY: as above.
        if let Some(empty) = unsafe { Sheaf::from_word(main) } {
            set.near[class].put_empty(&self.meta, empty);
        }
        true
    }

    /// The full main to the barn that `set` has to itself, for an empty sheaf; false if it did not come there.
    fn push_near(&self, source: &impl Source, set: &Set, class: usize, main: Word) -> bool {
        let Some(near) = set.near.get(class) else { return false };
        let bytes = main.count() as usize * source.size(class);
        if !self.barns_afford(bytes) {
            return false;
        }
        let (board, limit) = (self.sets.board(), self.entitle(source, set, class));
        let Some(empty) = near.take_empty_below(NEAR_MAX, &self.meta, board, limit) else { return false };
        let Some(mut full) = self.take_main(class, main, limit) else {
            near.put_empty(&self.meta, empty);
            return false;
        };
        let kept = if Self::is_kept(source, class, &mut full) { near.put_full(full, NEAR_MAX) } else { Err(full) };
        let is_kept = kept.is_ok();
        let sheaf = match kept {
            Ok(()) => {
                set.near_full.fetch_add(1, Relaxed);
                self.sets.shift(Level::Barns, bytes as isize);
                self.sets.count(Event::BarnPut, 1);
                empty
            }
            Err(full) => {
                near.put_empty(&self.meta, empty);
                full
            }
        };
        self.install(source, class, sheaf, limit);
        is_kept
    }

    /// A sheaf with objects out of the barn that `set` has to itself.
    fn take_near(&self, source: &impl Source, set: &Set, class: usize) -> Option<Sheaf> {
        // Relaxed: a look, that spares a lock; what it misses is found later, or by a drain.
        let near = set.near.get(class).filter(|_| set.near_full.load(Relaxed) > 0)?;
        let full = self.take_full(source, class, near)?;
        set.near_left();
        Some(full)
    }

    /// Gives a full sheaf to the node's barn, for an empty one if that has one.
    ///
    /// # Errors
    /// The sheaf, if the class has no barn, or that or the budget no room for it; or if barns do not keep such.
    fn to_barn(&self, source: &impl Source, class: usize, mut sheaf: Sheaf) -> Result<Option<Sheaf>, Sheaf> {
        let bytes = sheaf.len() * source.size(class);
        // (Areas have no size in common, and no barn.)
        if bytes == 0 || !self.barns_afford(bytes) || !Self::is_kept(source, class, &mut sheaf) {
            return Err(sheaf);
        }
        let empty = self.barn(class).trade_full(sheaf, FULL_MAX)?;
        self.sets.shift(Level::Barns, bytes as isize);
        self.sets.count(Event::BarnPut, 1);
        Ok(empty)
    }

    /// Whether barns may hold so many bytes more.
    fn barns_afford(&self, bytes: usize) -> bool {
        self.affordable(self.sets.board().level(Level::Barns) + bytes as u64, BARNS)
    }

    /// Whether barns keep a full sheaf, to give it out as it is: not one of another node's objects, by the last of them, which go home (else
    /// this node's threads would be given them again), nor what is better drawn anew.
    fn is_kept(source: &impl Source, class: usize, sheaf: &mut Sheaf) -> bool {
        let objects = sheaf.objects();
        objects.last().is_none_or(|&object| source.is_near(object)) && !source.is_scattered(class, objects)
    }

    /// Gives up a sheaf of ours: to the barn while the budget allows, else its objects to the source.
    pub fn release(&self, source: &impl Source, class: usize, word: Word) {
        // SAFETY: a committed swap or a drain gave it to us.
        let Some(mut sheaf) = (unsafe { Sheaf::from_word(word) }) else { return };
        if !sheaf.is_empty() {
            sheaf = match self.to_barn(source, class, sheaf) {
                Ok(None) => return,
                Ok(Some(empty)) => empty,
                Err(mut full) => {
                    source.flush(class, &mut full);
                    full
                }
            };
        }
        self.barn(class).put_empty(&self.meta, sheaf);
    }

    /// Objects that a sheaf of `class` in this set may hold. Doubles with every call up to
    /// the knobs' limits, while two such sheaves fit into the budget of all sets together:
    /// one part in `cache_share` of the bytes in use, at least `cache_floor`.
    fn entitle(&self, source: &impl Source, set: &Set, class: usize) -> usize {
        // Relaxed: a heuristic; a lost doubling costs a visit.
        let now = set.limits[class].load(Relaxed) as usize;
        let most = self.most[class].load(Relaxed) as usize;
        if now >= most {
            return now;
        }
        let (board, size) = (self.sets.board(), source.size(class));
        let next = if now == 0 { Self::least(size) } else { now * 2 }.min(most);
        let more = (next - now) * size * 2;
        if now > 0 && !self.affordable(board.level(Level::Charged) + more as u64, 1) {
            set.starves.store(true, Relaxed);
            return now;
        }
        // Exact, so that the budget is: a drain or the decay may change it at the same time.
        if set.limits[class].compare_exchange(now as u16, next as u16, Relaxed, Relaxed).is_err() {
            return now.max(1);
        }
        board.raise(Level::Charged, more);
        next
    }

    /// Objects of a class that its sheaves begin with: a page of them, 16 at most.
    fn least(size: usize) -> usize {
        (4096 / size).clamp(1, 16)
    }

    /// Objects that a refill takes: twice as many as the last, up to the sheaf's limit; half as many after a flush
    /// (the kernel's `alloc_factor`). So a CPU that only allocates asks seldom, and one that
    /// also frees does not take what it then gives back.
    fn batch(&self, set: &Set, class: usize, size: usize, limit: usize) -> usize {
        let now = (set.batches[class].load(Relaxed) as usize).max(Self::least(size));
        // Relaxed, as the limits: a lost doubling costs a visit.
        set.batches[class].store((now * 2).min(OBJECTS) as u16, Relaxed);
        now.min(limit)
    }

    /// Whether sets (or, as one part in so many of theirs, barns) may hold so many bytes: one part in `cache_share` of
    /// the bytes in use, or `cache_floor`; nothing while the soft limit is near.
    fn affordable(&self, bytes: u64, part: u64) -> bool {
        if self.is_tight() {
            return false;
        }
        let board = self.sets.board();
        let in_use = board.level(Level::Slabs) + board.level(Level::Areas);
        bytes <= self.knobs.get(Id::CacheFloor) || bytes.saturating_mul(part * self.knobs.get(Id::CacheShare)) <= in_use
    }

    /// Whether the soft limit is near, even if all that is known to be free went back.
    #[inline]
    #[must_use]
    pub fn is_tight(&self) -> bool {
        let soft = self.knobs.soft_limit();
        soft < u64::MAX && self.is_near(soft)
    }

    #[cold]
    #[inline(never)]
    fn is_near(&self, soft: u64) -> bool {
        let board = self.sets.board();
        board.held().saturating_sub(board.level(Level::Lazy) + board.level(Level::PagesDirty)) > near(soft)
    }

    /// A full sheaf of a barn.
    fn take_full(&self, source: &impl Source, class: usize, barn: &Barn) -> Option<Sheaf> {
        barn.take_full().inspect(|sheaf| self.left_barn(source, class, sheaf))
    }

    /// A sheaf that a barn had is ours.
    fn left_barn(&self, source: &impl Source, class: usize, full: &Sheaf) {
        self.sets.shift(Level::Barns, -((full.len() * source.size(class)) as isize));
    }

    /// Tells the sizes of classes, by the knobs' limits. Called when the heap opens.
    pub fn size_classes(&self, sizes: impl Iterator<Item = usize>) {
        for (most, size) in self.most.iter().zip(sizes) {
            let objects = self.knobs.size(Id::SheafBytes) / size.max(1);
            most.store(objects.clamp(1, self.knobs.size(Id::SheafObjects)) as u16, Relaxed);
        }
    }

    /// An object of this CPU's spare or of its set's own barn, if that is all it takes.
    pub fn alloc_own(&self, source: &impl Source, class: usize) -> Option<usize> {
        let set = self.sets.ready()?;
        match self.refill_own(source, set, class).map(|()| self.sets.pop(class)) {
            Ok(Outcome::Done(object)) => Some(object),
            _ => None,
        }
    }

    /// Frees into this CPU's spare, or after its set's own barn took a sheaf, if that is all it takes.
    ///
    /// # Safety
    /// As [`Cache::free`] if true; the object is still the caller's if false. (Out of line, for the sake of its callers' frames.)
    #[inline(never)]
    pub unsafe fn free_own(&self, source: &impl Source, class: usize, object: usize) -> bool {
        self.sets.ready().is_some_and(|set| self.make_room_own(source, set, class).is_ok())
            // SAFETY: the caller's promise.
            && unsafe { self.sets.push(class, object) } == Outcome::Done(())
    }

    /// Empties the sets of the `wanted` CPUs into the source, while their owners go on, as far as `mode` reaches.
    /// What is left of them was asked; [`Cache::collect`] has the answers later.
    ///
    /// `runs` says whether a thread of ours runs on a CPU: a fence there would interrupt it. (Out of line: what its
    /// callers do next needs none of this frame.)
    #[inline(never)]
    pub fn drain(
        &self,
        source: &impl Source,
        wanted: &mut CpuSet,
        mode: DrainMode,
        runs: &mut dyn FnMut(u32) -> bool,
        report: &mut DrainReport,
    ) {
        let sets = &self.sets;
        // What an earlier drain had asked for makes room for what this one takes.
        let mut taken = *wanted;
        taken.retain(|index| sets.is_answered(index));
        self.collect(source, &mut taken, report);
        taken = wanted.none();
        wanted.retain(|index| {
            if sets.home_of(index).is_none() {
                return false;
            }
            let cpu = index as u32;
            let gentle = mode == DrainMode::Gentle || mode == DrainMode::Auto && sets.isolated.contains(cpu);
            let silent =
                gentle && sets.mode() != Mode::Fallback && sets.holds(index) && !sets.is_parked(index) && runs(cpu);
            if !silent {
                taken.insert(index);
            }
            silent
        });
        let mut switched = sets.switch_off(&taken);
        report.fences += switched.fences;
        report.unreached += switched.refused;
        self.collect(source, &mut switched.done, report);
        wanted.retain(|index| sets.ask(index));
    }

    /// Takes what was switched off at these CPUs. What is no longer to be waited for is removed.
    pub fn collect(&self, source: &impl Source, indices: &mut CpuSet, report: &mut DrainReport) {
        indices.retain(|index| {
            let mut waits = true;
            // Small objects first: emptied slabs become pages, which follow.
            for first in (0..CLASSES_MAX).step_by(STEP) {
                let Some(words) = self.sets.collect(index, first) else { break };
                if waits {
                    waits = false;
                    report.reached += 1;
                    self.sets.count(Event::Drain, 1);
                }
                for (at, word) in words.as_flattened().iter().enumerate() {
                    let class = first + at / 2;
                    // SAFETY: it was switched off and is ours.
                    if let Some(mut sheaf) = unsafe { Sheaf::from_word(*word) } {
                        report.objects += sheaf.len() as u64;
                        report.bytes += source.bytes(class, &mut sheaf) as u64;
                        source.flush(class, &mut sheaf);
                        self.barn(class).put_empty(&self.meta, sheaf);
                    }
                }
            }
            if let Some(set) = self.sets.other_of(index) {
                self.empty_near(source, set, 0..NEAR, |class, sheaf| {
                    report.objects += sheaf.len() as u64;
                    report.bytes += source.bytes(class, sheaf) as u64;
                });
            }
            waits
        });
    }

    /// One eighth less for each sheaf of this CPU, back to the budget.
    pub fn decay(&self, source: &impl Source, index: usize) {
        self.sets.decay(index, |class, objects| {
            self.sets.board().lower(Level::Charged, objects * source.size(class) * 2);
        });
    }

    /// Empties all barns of the first `classes` classes into the source, those of the sets, too.
    pub fn empty_barns(&self, source: &impl Source, classes: usize) {
        self.sets.all().for_each(|set| self.empty_near(source, set, 0..classes, |_, _| ()));
        for barns in &self.barns[..self.sets.cpus.nodes()] {
            for (class, barn) in barns.iter().enumerate().take(classes) {
                self.flush_all(source, class, barn, || self.take_full(source, class, barn), |_| ());
            }
        }
    }

    /// Empties the barns that `set` has to itself of these classes; each sheaf is shown first.
    fn empty_near(
        &self,
        source: &impl Source,
        set: &Set,
        classes: Range<usize>,
        mut shown: impl FnMut(usize, &mut Sheaf),
    ) {
        for class in classes.start..classes.end.min(NEAR) {
            let near = || self.take_near(source, set, class);
            self.flush_all(source, class, self.barn(class), near, |sheaf| shown(class, sheaf));
        }
    }

    /// Empties the sheaves that come, each shown first, into the source, and keeps them in `barn`.
    fn flush_all(
        &self,
        source: &impl Source,
        class: usize,
        barn: &Barn,
        sheaves: impl FnMut() -> Option<Sheaf>,
        mut shown: impl FnMut(&mut Sheaf),
    ) {
        for mut sheaf in iter::from_fn(sheaves) {
            shown(&mut sheaf);
            source.flush(class, &mut sheaf);
            barn.put_empty(&self.meta, sheaf);
        }
    }

    /// Objects of `class` in sets and barn.
    #[must_use]
    pub fn cached(&self, class: usize) -> usize {
        self.sets.cached(class)
            + self.sets.near(class).map(Barn::objects).sum::<usize>()
            + self.barns[..self.sets.cpus.nodes()].iter().map(|barns| barns[class].objects()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
