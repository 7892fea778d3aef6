//! What tests of a space's ways need.
#![allow(clippy::unwrap_used)]

extern crate std;

use super::fresh;
use crate::percpu::space::{How, RESERVED, Space};
use crate::percpu::units::UNIT;

pub fn alloc(space: &'static Space, size: usize) -> usize {
    alloc_how(space, size, How::Normal)
}
pub fn alloc_how(space: &'static Space, size: usize, how: How) -> usize {
    space.alloc(size, 4, how).unwrap().address()
}
/// Where the chunk of an address begins.
pub fn chunk_of(address: usize) -> usize {
    address & !(UNIT - 1)
}
/// Owners of the chunks that have memory, the newest first.
pub fn owners(space: &'static Space) -> std::vec::Vec<u32> {
    space.bodies(|body| body.owner)
}
/// Fills the first chunk, by one allocation.
pub fn full_first(space: &'static Space) {
    alloc(space, UNIT - RESERVED);
}
/// From now on the process has had more than one thread, whoever runs the test.
pub fn multithreaded() {
    assert!(crate::tests::threads::spawn(|| ()).join().is_ok());
    assert!(!crate::arch::sys::single_threaded());
}
/// [`fresh`], in a process that has had more than one thread.
pub fn fresh_threads() -> &'static Space {
    multithreaded();
    fresh()
}
