//! # Sampling for the heap profile
//!
//! ```text
//!  off:  the gate is open, malloc does not come here
//!  on:   the gate is shut ─► malloc_refused ─► count the size down ── not due ─► pop out of line
//!                                             │ due
//!                                             └─► whole pages, stack, table ([`super::samples`])
//! ```
//! Allocations are sampled by bytes: from one sample to the next there are so many as an exponential
//! distribution with the mean of the knob `profile_bytes` says, so an allocation of `size` bytes is sampled with
//! probability `1 − exp(−size / mean)` whatever came before, and its weight is `size` over that
//! ([`profile::weight`]): sums of weights are unbiased. Sizes are those that were asked for. A change by `realloc` that keeps the place
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

use super::samples::{Process, Samples};
use super::{Environment, Heap};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{Relaxed, Release};
use crate::arch::atomic::{AtomicBool, AtomicU64};
use crate::arch::outcome::Outcome;
use crate::arch::sys;
use crate::knob::Id;
use crate::slab::class::{self, SMALL_MAX};
use crate::stat::Mode;
use crate::stat::profile;
use core::marker::PhantomData;

/// Countdowns; CPUs beyond share.
const COUNTDOWNS: usize = 64;

/// Bytes to the next sample of a CPU, on a line of its own. Changed without a lock: what two threads of a CPU
/// overwrite of each other's is a countdown that is off by an allocation.
#[repr(align(64))]
#[derive(Debug)]
struct Countdown {
    /// 0: not drawn yet.
    left: AtomicU64,
    random: AtomicU64,
}

/// The switch and the countdowns.
#[derive(Debug)]
pub struct Profile {
    /// Mean bytes between samples; 0: off.
    mean: AtomicU64,
    /// A tracer is attached.
    traced: AtomicBool,
    /// It was ever on in this heap: small objects may be areas.
    used: AtomicBool,
    countdowns: [Countdown; COUNTDOWNS],
    pub(super) samples: Samples,
}

impl Profile {
    pub(super) const fn new() -> Self {
        Self {
            mean: AtomicU64::new(0),
            traced: AtomicBool::new(false),
            used: AtomicBool::new(false),
            countdowns: [const { Countdown { left: AtomicU64::new(0), random: AtomicU64::new(0) } }; COUNTDOWNS],
            samples: Samples::new(),
        }
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.mean.load(Relaxed) != 0
    }
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// Counts an allocation at a countdown; whether it is to be sampled.
    #[inline]
    fn is_due(&self, at: usize, size: usize) -> bool {
        let mean = self.mean.load(Relaxed);
        let (countdown, size) = (&self.countdowns[at % COUNTDOWNS], size.max(1) as u64);
        // Relaxed, and no locked instruction: see `Countdown`.
        let left = countdown.left.load(Relaxed);
        if left > size {
            countdown.left.store(left - size, Relaxed);
            return false;
        }
        mean != 0 && countdown.draw(left, size, mean)
    }
}

impl Countdown {
    #[cold]
    #[inline(never)]
    fn draw(&self, left: u64, size: u64, mean: u64) -> bool {
        if mean == 1 {
            return true;
        }
        if left == 0 {
            let first = profile::interval(self.random(), mean);
            if first > size {
                self.left.store(first - size, Relaxed);
                return false;
            }
        }
        self.left.store(profile::interval(self.random(), mean), Relaxed);
        true
    }

    fn random(&self) -> u64 {
        let mut x = self.random.load(Relaxed);
        if x == 0 {
            x = sys::thread_pointer() as u64 ^ ((&raw const *self) as u64).rotate_left(32) | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Relaxed);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

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
    /// Puts the knob `profile_bytes` into effect.
    pub fn apply_profile(&self) {
        let _inside = self.enter_patiently();
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
        let is_open = mean == 0 && self.cache.sets.mode() == Mode::Sequences && !self.slabs.is_checked();
        // Release: as in `open`.
        self.small.store(if is_open { SMALL_MAX } else { 0 }, Release);
    }

    /// Counts an allocation; whether it is to be sampled.
    #[inline]
    pub(super) fn is_due(&self, size: usize) -> bool {
        self.profile.is_on() && self.is_due_here(size)
    }

    #[inline]
    fn is_due_here(&self, size: usize) -> bool {
        let at = match self.cache.sets.mode() {
            Mode::Sequences | Mode::Simulated => self.cache.sets.cpus.index(),
            _ => sys::thread_pointer() >> 12,
        };
        self.profile.is_due(at, size)
    }

    /// `malloc` while sampling is on.
    #[cold]
    #[inline(never)]
    pub(super) fn malloc_counted(&self, size: usize) -> *mut u8 {
        let is_due = self.is_due_here(size);
        if size > SMALL_MAX {
            let object = self.malloc_slow(size, false);
            if is_due && !object.is_null() {
                self.sample(object as usize, size);
            }
            return object;
        }
        if is_due && let Some(object) = self.sample_small(size) {
            return object as *mut u8;
        }
        match self.cache.sets.pop(class::offset_of(size) / 16) {
            Outcome::Done(object) => object as *mut u8,
            _ => self.malloc_slow(size, false),
        }
    }

    /// A sampled small object; `None` if there is no memory or no room for one.
    fn sample_small(&self, size: usize) -> Option<usize> {
        let area = self.alloc_area(size, PAGE, false)?;
        if self.sample(area.address, size) {
            return Some(area.address);
        }
        self.mm().free_area(area.address);
        None
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
