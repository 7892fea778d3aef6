//! # Which indices, and which CPUs
//!
//! Indices of a window at a time, so that a set of them lies on a small stack; and the CPUs that drains leave alone.
//!
//! Units: indices, CPUs. Locks: none. Cost: a word for each 64.

use crate::arch::atomic::AtomicU64;
use crate::arch::atomic::Ordering::Relaxed;
use crate::cpu::INDICES;

/// Indices that are looked at together: a set of them is small enough for a small stack.
pub const WINDOW: usize = 256;
const _: () = assert!(INDICES.is_multiple_of(WINDOW));

/// Which indices of a window. Others are none of them.
#[derive(Clone, Copy, Debug)]
pub struct CpuSet {
    from: usize,
    bits: [u64; WINDOW / 64],
}

impl CpuSet {
    /// None of the window that `index` is in.
    #[must_use]
    pub const fn around(index: usize) -> Self {
        Self { from: index / WINDOW * WINDOW, bits: [0; WINDOW / 64] }
    }
    /// None of the same window.
    #[must_use]
    pub const fn none(&self) -> Self {
        Self::around(self.from)
    }
    /// The first index of each window, as far as there are indices below `top`.
    pub fn windows(top: usize) -> impl Iterator<Item = usize> {
        (0..top).step_by(WINDOW)
    }
    /// Whether an index is of the window.
    #[must_use]
    pub const fn covers(&self, index: usize) -> bool {
        index / WINDOW * WINDOW == self.from
    }
    /// One more, of the window.
    pub const fn insert(&mut self, index: usize) {
        self.bits[(index - self.from) / 64] |= 1 << (index % 64);
    }
    /// One less, of the window.
    pub const fn remove(&mut self, index: usize) {
        self.bits[(index - self.from) / 64] &= !(1 << (index % 64));
    }
    /// Keeps those that are to be kept, asked of in order.
    pub fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        for (at, word) in self.bits.iter_mut().enumerate() {
            for bit in bits(*word) {
                if !keep(self.from + at * 64 + bit) {
                    *word &= !(1 << bit);
                }
            }
        }
    }
    /// Whether it is one.
    #[must_use]
    pub const fn contains(&self, index: usize) -> bool {
        self.covers(index) && self.bits[(index - self.from) / 64] >> (index % 64) & 1 == 1
    }
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|&word| word == 0)
    }
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }
    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.bits.iter().enumerate().flat_map(move |(at, &word)| bits(word).map(move |bit| self.from + at * 64 + bit))
    }
}

/// The numbers of the bits of a word, in order.
pub(super) fn bits(word: u64) -> impl Iterator<Item = usize> {
    // Each step drops the lowest bit.
    let rests = core::iter::successors(Some(word), |&rest| (rest != 0).then(|| rest & (rest - 1)));
    rests.take_while(|&rest| rest != 0).map(|rest| rest.trailing_zeros() as usize)
}

/// CPUs that our threads must not be disturbed on: what the kernel calls isolated or `nohz_full`.
#[derive(Debug)]
pub struct Isolated([AtomicU64; INDICES / 64]);

impl Default for Isolated {
    fn default() -> Self {
        Self::new()
    }
}

impl Isolated {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; INDICES / 64])
    }
    /// One more. Numbers that no CPU has are ignored.
    pub fn insert(&self, cpu: usize) {
        if cpu < INDICES {
            // Relaxed: policy; whoever misses it sends one interruption more.
            self.0[cpu / 64].fetch_or(1 << (cpu % 64), Relaxed);
        }
    }
    /// Whether it is one.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        let cpu = cpu as usize;
        cpu < INDICES && self.0[cpu / 64].load(Relaxed) >> (cpu % 64) & 1 == 1
    }
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Relaxed) == 0)
    }
}
