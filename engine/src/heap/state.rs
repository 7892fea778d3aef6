//! # A heap's state, and what the outermost layer decides for it
//!
//! ```text
//! side arena │ fork's word, process │ door │ gates of the fast paths │ parts (lent to reclaim) │ profile
//! ```
//! Its methods are the other files', by subject; here are those that all of them need: how far it is, whose it is,
//! what giving back works on, and what every slow path ends with.
//!
//! Cost: a few loads each.
#![allow(unsafe_code)] // takes objects back

use super::countdown::Profile;
use super::door::{Door, State};
use super::gates::Gates;
use super::side::Side;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicBool, AtomicU32};
use crate::arch::crew::Crew;
use crate::arch::outcome::Outcome;
use crate::arch::sys;
use crate::cache::Cache;
use crate::page::Windows;
use crate::reclaim::Mm;
use crate::reclaim::mm::Parts;
use crate::slab::SlabSource;
use crate::slab::class::{FAST_MAX, SMALL_MAX};
use crate::stat::{BadPointer, Event, Mode};
use core::marker::PhantomData;
use core::ops::Deref;

/// What the outermost layer decides for a heap.
pub trait Environment: Sized + 'static {
    /// Opens the heap ([`Heap::open`]) when it is first needed.
    fn start(heap: &Heap<Self>);
    /// Is told that a request will be answered with null (C sets `errno`).
    fn no_memory();
    /// The error that the caller would see (C's `errno`), which a request that is served after all leaves as it was.
    fn error() -> i32 {
        0
    }
    /// Sets it.
    fn set_error(_: i32) {}
    /// Whether the program has one thread.
    #[inline(always)]
    fn is_single() -> bool {
        sys::program_is_single()
    }
    /// Is told of a pointer that cannot be freed.
    fn report(address: usize, wrong: BadPointer);
    /// Starts a thread that calls [`Mm::keep`]; false if it cannot.
    fn start_keeper() -> bool {
        false
    }
    /// The threads that serve this heap, where the environment's are of that kind.
    fn crew() -> Option<&'static Crew> {
        None
    }
    /// Is told that this is a child that no handler has told, whose thread has so many vforks in flight.
    fn inherit(_: u32) {}
    /// Is told that the process ends: no thread of its own is left.
    fn ends() {}
    /// Does what another process asked of this heap (`control::mailbox`); false if nothing was.
    fn serve(_: &Heap<Self>) -> bool {
        false
    }
    /// A file for the board of a forked child, where the process publishes it.
    fn publish() -> Option<usize> {
        None
    }
    /// That file is not used after all.
    fn withdraw() {}
    /// Writes the statistics of the process's per-CPU memory.
    ///
    /// # Errors
    /// Those of `out`.
    fn percpu_stats(_: &mut dyn core::fmt::Write) -> core::fmt::Result {
        Ok(())
    }
    /// Starts a thread that calls [`Mm::work`]; false if it cannot.
    fn start_worker() -> bool {
        false
    }
    /// The return addresses of the thread that allocates, innermost first; how many.
    fn stack(_: &mut [usize]) -> usize {
        0
    }
    /// The file mapped at an address: its name into the slice with a zero behind (empty for the program itself),
    /// where it begins and ends.
    fn module(_: usize, _: &mut [u8]) -> Option<(usize, usize)> {
        None
    }
    /// A file to show the heap profile in, [`crate::stat::profile::PROFILE_BYTES`] long.
    fn profile_file() -> Option<usize> {
        None
    }
    /// That file is not used after all.
    fn withdraw_profile() {}
    /// Is told of a sampled allocation: address, size, and the bytes that it stands for.
    fn sampled(_: usize, _: usize, _: u64) {}
    /// Is told that a sampled allocation is freed.
    fn unsampled(_: usize) {}
    /// Whether somebody outside wants to be told.
    fn is_traced() -> bool {
        false
    }
}

/// A heap. Zero bytes until it opens: a static costs no file space and no page.
///
/// What every process touches comes first and together, up to the slots of the first CPUs, and is a page or two: a page
/// costs a process that does next to nothing more than anything else here.
#[repr(C)]
#[derive(Debug)]
pub struct Heap<E> {
    pub(super) side: Side,
    /// Whether the fork in flight had its fence.
    pub(super) fenced: AtomicBool,
    /// Somebody waited for the fork in flight in vain: nobody does again.
    pub(super) vain: AtomicBool,
    /// This process.
    pub(super) pid: AtomicU32,
    pub(super) door: Door,
    pub(super) gates: Gates,
    pub(super) parts: Parts,
    pub(super) profile: Profile,
    environment: PhantomData<fn() -> E>,
}

impl<E: Environment> Default for Heap<E> {
    fn default() -> Self {
        Self::new()
    }
}

/// The parts of memory are the heap's own.
impl<E> Deref for Heap<E> {
    type Target = Parts;
    #[inline(always)]
    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl<E: Environment> Heap<E> {
    /// A closed heap.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            side: Side::new(),
            fenced: AtomicBool::new(false),
            vain: AtomicBool::new(false),
            pid: AtomicU32::new(0),
            door: Door::new(),
            gates: Gates::new(),
            parts: Parts::new(),
            profile: Profile::new(),
            environment: PhantomData,
        }
    }

    /// The per-CPU caches, with knobs and board.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// What giving back works on.
    #[inline]
    #[must_use]
    pub fn mm(&self) -> Mm<'_> {
        Mm { parts: &self.parts, host: self }
    }

    pub(super) fn slab_source(&self) -> SlabSource<'_> {
        self.parts.slab_source(E::report)
    }

    /// Asks for it once the heap is large or can be looked into: small programs start with few calls.
    pub(super) fn learn_pid(&self, is_allowed: bool) {
        // Relaxed: a number; no process has the other.
        self.pid.store(if is_allowed { sys::pid() } else { u32::MAX }, Relaxed);
    }

    /// The process whose heap this is; 0 while nobody has asked.
    #[must_use]
    pub fn pid(&self) -> u32 {
        // Relaxed: changes at a fork only.
        self.pid.load(Relaxed)
    }

    /// Whether the heap is open.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.door.is(State::Open)
    }

    /// Whether the calling thread is opening the heap. (Some library's definition of what that calls has come back to us.)
    #[inline]
    pub(super) fn is_opener(&self) -> bool {
        // Relaxed: see `open_or_wait`.
        !self.is_open() && self.door.opener.load(Relaxed) == sys::thread_pointer()
    }

    /// Whether it filters its system calls, as far as is known.
    #[must_use]
    pub fn is_confined(&self) -> bool {
        self.reclaim.keeper.is_confined()
    }

    /// Opens the gates of the fast paths, or shuts them.
    pub(super) fn set_gates(&self, are_open: bool) {
        // (Areas as far as fronts hold them.)
        let most = self.cache.knobs.front_most().clamp(SMALL_MAX, FAST_MAX);
        let gate = |is_its: bool| if is_its && are_open && !self.slabs.is_checked() { most } else { 0 };
        let mode = self.cache.sets.mode();
        let is_biased = mode == Mode::Fallback && self.cache.sets.cpus.bias.is_granted();
        self.gates.set(gate(mode == Mode::Sequences), gate(is_biased));
    }

    /// From now on those are served, too, who ask by another name than `malloc` and `free` ([`Heap::malloc_others`], [`Heap::free_others`]).
    pub fn serve_others(&self) {
        self.gates.serve_others(Windows::ALL);
    }

    /// Whether fast paths serve what is no small object: with sequences, or the thread that the fallback favours.
    #[inline(always)]
    pub(super) fn is_quick(&self) -> bool {
        self.gates.small.load(Relaxed) != 0
            || self.gates.biased.load(Relaxed) != 0 && self.cache.sets.cpus.bias.is_mine()
    }

    /// The fast `pop` of either, from the class at this offset; refused where the gates let nothing pass.
    #[inline(always)]
    pub(super) fn pop_quick(&self, class_offset: usize) -> Outcome<usize> {
        if self.gates.small.load(Relaxed) != 0 {
            return self.cache.sets.pop_fast::<false>(class_offset);
        }
        if self.gates.biased.load(Relaxed) == 0 {
            return Outcome::Refused;
        }
        // SAFETY: the offset of a class.
        unsafe { self.cache.sets.pop_biased(class_offset / 16) }
    }

    /// The fast `push` of either.
    ///
    /// # Safety
    /// As [`Sets::push_fast`](crate::cache::Sets::push_fast).
    #[inline(always)]
    pub(super) unsafe fn push_quick(&self, class_offset: usize, object: usize) -> Outcome<()> {
        if self.gates.small.load(Relaxed) != 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.cache.sets.push_fast::<false>(class_offset, object) };
        }
        if self.gates.biased.load(Relaxed) == 0 {
            return Outcome::Refused;
        }
        // SAFETY: as above.
        unsafe { self.cache.sets.push_biased(class_offset / 16, object) }
    }

    /// Whether a fast path has tried before.
    pub(super) fn has_fast_path(&self) -> bool {
        self.cache.sets.mode() != Mode::Fallback && !self.slabs.is_checked()
    }

    pub(super) fn cold_end(&self, event: Event, start: u64, failed: bool) {
        let sets = &self.cache.sets;
        sets.count(event, 1);
        sets.count(Event::SlowpathTicks, self.cache.sets.clock.ticks().saturating_sub(start));
        if failed {
            sets.count(Event::NoMemory, 1);
            E::no_memory();
        }
        if event == Event::AllocSlowpath && self.reclaim.keeper.is_none() {
            self.mm().consider_keeper();
        }
    }

    pub(super) fn count_if_open(&self, event: Event) {
        if self.is_open() {
            self.cache.sets.count(event, 1);
        }
    }
}
