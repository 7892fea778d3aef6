//! # Time
//!
//! Ticks of the processor for what is measured, nanoseconds for what is waited for. Units: ticks or ns, as a name says.
//! Locks: none. Cost: some ns; a system call where the processor may not be asked.
#![allow(unsafe_code)] // calls the kernel's function

use super::call::{call, nr};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicU64, AtomicUsize};
use crate::arch::{platform, vdso};

/// `CLOCK_MONOTONIC` in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let mut time = [0_i64; 2];
    // SAFETY: the kernel writes two words that are ours.
    let _ = unsafe { call(nr::CLOCK_GETTIME, [1, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

/// The processor's counter (ns where there is none).
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    platform::ticks()
}

/// The time in [`ticks`], also where the processor may not be asked for it: reading the counter ends a thread that has
/// given it up (`PR_SET_TSC`, `SECCOMP_MODE_STRICT`), and the kernel's own clock reads the same counter. From then on each
/// look is taken for [`Clock::STEP`] ticks: what is to happen now and then still does.
#[derive(Debug)]
pub struct Clock {
    /// 0: the processor's. Else the last look.
    stopped: AtomicU64,
    /// The kernel's function for the time in ns ([`vdso`]), [`Clock::UNKNOWN`] or [`Clock::NONE`].
    quick: AtomicUsize,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    const STEP: u64 = 1 << 16;
    /// Not looked for yet.
    const UNKNOWN: usize = 0;
    /// There is none.
    const NONE: usize = 1;

    /// The processor's.
    #[must_use]
    pub const fn new() -> Self {
        Self { stopped: AtomicU64::new(0), quick: AtomicUsize::new(Self::UNKNOWN) }
    }
    /// The ticks now.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> u64 {
        // Relaxed: a thread that has given the counter up has stopped the clock before.
        if self.stopped.load(Relaxed) == 0 { ticks() } else { self.stopped.fetch_add(Self::STEP, Relaxed) }
    }
    /// `CLOCK_MONOTONIC` in nanoseconds, without a system call as long as the processor may be asked.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        // Relaxed: as in `ticks`.
        if self.stopped.load(Relaxed) != 0 {
            return now_ns();
        }
        // Relaxed: whoever looks finds the same.
        let quick = match self.quick.load(Relaxed) {
            Self::UNKNOWN => {
                let found = vdso::clock_gettime().map_or(Self::NONE, |at| at as usize);
                self.quick.store(found, Relaxed);
                found
            }
            known => known,
        };
        if quick == Self::NONE {
            return now_ns();
        }
        // SAFETY: the kernel's own function, found by its name.
        let quick: vdso::ClockGettime = unsafe { core::mem::transmute(quick) };
        let mut time = [0_i64; 2];
        // SAFETY: writes two words that are ours.
        unsafe { quick(1, &raw mut time) };
        time[0] as u64 * 1_000_000_000 + time[1] as u64
    }
    /// A thread is about to give the counter up.
    pub fn stop(&self) {
        if self.stopped.load(Relaxed) == 0 {
            // Relaxed: a number; of two the first.
            let _ = self.stopped.compare_exchange(0, ticks() | 1, Relaxed, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_goes_on() {
        let clock = Clock::new();
        let before = clock.ticks();
        clock.stop();
        let (first, second) = (clock.ticks(), clock.ticks());
        assert!(before <= first && second == first + Clock::STEP);
        clock.stop();
        assert_eq!(clock.ticks(), second + Clock::STEP);
    }

    #[test]
    fn the_clock_without_a_call_tells_what_the_call_tells() {
        let clock = Clock::new();
        let (before, quick, after) = (now_ns(), clock.now_ns(), now_ns());
        assert!(
            (before..=after).contains(&quick) && clock.quick.load(Relaxed) > Clock::NONE,
            "{before} {quick} {after}"
        );
    }

    #[test]
    fn the_counter_counts_and_a_clock_tells_it() {
        let clock = Clock::new();
        for _ in 0..3 {
            let (before, told, after) = (ticks(), clock.ticks(), ticks());
            assert!(before <= told && told <= after && clock.stopped.load(Relaxed) == 0);
        }
        let first = ticks();
        assert!((0..1_000_000).any(|_| ticks() > first));
    }

    /// A clock of the kernel's that stands.
    unsafe extern "C" fn standing(_: i32, time: *mut [i64; 2]) -> i32 {
        // SAFETY: the caller's words.
        unsafe { *time = [7, 5] };
        0
    }

    #[test]
    fn the_kernels_function_is_asked_as_long_as_the_processor_may_be() {
        let clock = Clock::new();
        clock.quick.store(standing as *const () as usize, Relaxed);
        assert_eq!(clock.now_ns(), 7_000_000_005);
        clock.stop();
        let (before, told, after) = (now_ns(), clock.now_ns(), now_ns());
        assert!((before..=after).contains(&told));
        let clock = Clock::new();
        clock.quick.store(Clock::NONE, Relaxed);
        let (before, told, after) = (now_ns(), clock.now_ns(), now_ns());
        assert!((before..=after).contains(&told) && clock.quick.load(Relaxed) == Clock::NONE);
    }
}
