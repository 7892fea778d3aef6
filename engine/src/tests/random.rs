//! Numbers at random, from a seed that a failure prints.

use core::cell::Cell;

/// A random number generator with a seed that a failure prints.
pub struct Random(Cell<u64>);
impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed | 1))
    }
    pub fn next(&self) -> u64 {
        let mut word = self.0.get();
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        self.0.set(word);
        word
    }
    pub fn below(&self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
