//! # Sampling for the heap profile
//!
//! ```text
//!  off:  the gate is open, malloc does not come here
//!  on:   the gate is shut ─► malloc_refused ─► count the size down ── not due ─► pop out of line
//!                                             │ due
//!                                             └─► whole pages, stack, table ([`super::samples`])
//! ```
//! Which are sampled: [`super::countdown`]. Sizes are those that were asked for. A change by `realloc` that keeps the place
//! of an area is a free and an allocation.
//!
//! The switch is the heap's gate: off costs nothing on any path but the slow ones, which look at one word. A sampled
//! small object is an area, so that its free leaves the fast path by itself.
//!
//! It is on while the knob is not 0, or while a tracer has raised the semaphores of the probes `otel_memory:alloc` and
//! `free` (then every [`profile::TRACED_BYTES`]); both are looked at on slow paths and by the keeper.
//!
//! A process that begins to filter its own system calls is not sampled any more.
//!
//! Units: bytes. Invariant: the gate is shut while the mean is not 0. Locks: that of the samples.
//! Cost when on: a countdown of its own line per CPU, and the pop out of line.

use super::samples::Process;
use super::state::{Environment, Heap};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::sys;
use crate::knob::Id;
use crate::stat::Mode;
use crate::stat::profile;
use core::marker::PhantomData;

/// The environment, as the samples see it.
struct Seen<E>(PhantomData<E>);

impl<E: Environment> Process for Seen<E> {
    fn module(address: usize, path: &mut [u8]) -> Option<(usize, usize)> {
        E::module(address, path)
    }
    fn file() -> Option<usize> {
        E::profile_file()
    }
    fn withdraw() {
        E::withdraw_profile();
    }
}

impl<E: Environment> Heap<E> {
    /// Puts the knob `profile_bytes` into effect. (In a torn child nothing is sampled.)
    pub fn apply_profile(&self) {
        let Some(_inside) = self.enter_patiently() else { return };
        self.switch_profile(self.profile.traced.load(Relaxed));
    }

    /// Looks whether a tracer is attached.
    #[inline]
    pub(super) fn look_for_tracer(&self) {
        let is_traced = E::is_traced();
        if is_traced != self.profile.traced.load(Relaxed) {
            self.switch_profile(is_traced);
        }
    }

    #[cold]
    fn switch_profile(&self, is_traced: bool) {
        let profile = &self.profile;
        if !self.is_open() {
            return;
        }
        // One at a time. (In a handler that came between: the next look does it.)
        let Some(turn) = profile.samples.enter() else { return };
        profile.traced.store(is_traced, Relaxed);
        let knob = self.cache.knobs.get(Id::ProfileBytes);
        // (The walk of a stack and the file take system calls that a filter may forbid.)
        let mean = match knob {
            _ if self.is_confined() => 0,
            0 if is_traced => profile::TRACED_BYTES,
            knob => knob,
        };
        if mean != profile.mean.load(Relaxed) {
            profile.countdowns.iter().for_each(|countdown| countdown.left.store(0, Relaxed));
        }
        profile.used.store(profile.is_used() || mean != 0, Relaxed);
        profile.mean.store(mean, Relaxed);
        turn.show_mean(mean);
        self.set_gates(mean == 0);
    }

    /// Counts an allocation; whether it is to be sampled.
    #[inline]
    pub(super) fn is_due(&self, size: usize) -> bool {
        self.profile.is_on() && self.is_due_here(size)
    }

    #[inline]
    pub(super) fn is_due_here(&self, size: usize) -> bool {
        let at = match self.cache.sets.mode() {
            Mode::Sequences | Mode::Simulated => self.cache.sets.cpus.index(),
            _ => sys::thread_pointer() >> 12,
        };
        self.profile.is_due(at, size)
    }

    /// Takes a sample: an object of so many bytes at an address that is nobody's yet. False if it was lost.
    #[cold]
    #[inline(never)]
    pub(super) fn sample(&self, address: usize, size: usize) -> bool {
        let samples = &self.profile.samples;
        let mean = self.profile.mean.load(Relaxed);
        let weight = profile::weight(size as u64, mean);
        let Some(mut turn) = samples.enter() else {
            samples.lose(true, weight.0);
            return false;
        };
        let is_kept = turn.ready::<Seen<E>>(mean) && turn.insert::<Seen<E>>(address, weight, E::stack);
        drop(turn);
        // (An area that is sampled goes no fast way: see `front`.)
        self.pages.windows.forget_class(address);
        if is_kept {
            E::sampled(address, size, weight.0);
        } else {
            samples.lose(false, weight.0);
        }
        is_kept
    }

    /// Before the memory at an address is given up: it is no sample any more. Whether it was.
    #[inline]
    pub(super) fn forget(&self, address: usize) -> bool {
        self.profile.samples.may_have(address) && self.forget_sample(address)
    }

    #[cold]
    fn forget_sample(&self, address: usize) -> bool {
        let was = self.profile.samples.enter().is_some_and(|mut turn| turn.remove(address));
        if was {
            E::unsampled(address);
        }
        was
    }

    /// The process ends; whether a profile of its own is left in a file.
    pub fn end_profile(&self) -> bool {
        let Some(_inside) = self.enter() else { return self.profile.samples.header().is_some() };
        self.profile.samples.header().is_some() && self.profile.samples.end(sys::pid())
    }
}
