//! # Which allocations are sampled: the switch and the countdowns
//!
//! Allocations are sampled by bytes: from one sample to the next there are so many as an exponential
//! distribution with the mean of the knob `profile_bytes` says, so an allocation of `size` bytes is sampled with
//! probability `1 − exp(−size / mean)` whatever came before, and its weight is `size` over that
//! ([`profile::weight`]): sums of weights are unbiased. What is done about it is [`super::profile`]'s.
//!
//! Units: bytes. Locks: none. Cost when on: a countdown of its own line per CPU.

use super::samples::Samples;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicBool, AtomicU64};
use crate::arch::sys;
use crate::stat::profile;

/// Countdowns; CPUs beyond share.
const COUNTDOWNS: usize = 64;

/// Bytes to the next sample of a CPU, on a line of its own. Changed without a lock: what two threads of a CPU
/// overwrite of each other's is a countdown that is off by an allocation.
#[repr(align(64))]
#[derive(Debug)]
pub(super) struct Countdown {
    /// 0: not drawn yet.
    pub(super) left: AtomicU64,
    random: AtomicU64,
}

/// The switch and the countdowns.
#[derive(Debug)]
pub struct Profile {
    /// Mean bytes between samples; 0: off.
    pub(super) mean: AtomicU64,
    /// A tracer is attached.
    pub(super) traced: AtomicBool,
    /// It was ever on in this heap: small objects may be areas.
    pub(super) used: AtomicBool,
    pub(super) countdowns: [Countdown; COUNTDOWNS],
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
    pub(super) fn is_due(&self, at: usize, size: usize) -> bool {
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
