//! The system calls that the engine's files make.

use super::atomic::AtomicU32;
use crate::machine;

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno;
/// Access of a mapping.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// Both.
    ReadWrite,
}

/// Advice about a mapping.
#[derive(Clone, Copy, Debug)]
pub enum Advice {
    /// Give back.
    DontNeed,
    /// Huge pages.
    Huge,
    /// None of them.
    NoHuge,
    /// Zeros in a child.
    WipeOnFork,
    /// The opposite.
    KeepOnFork,
    /// Fill.
    PopulateWrite,
}
/// Nothing is given back.
///
/// # Safety
/// None needed.
#[must_use]
#[allow(unsafe_code, reason = "the engine's signature")]
pub const unsafe fn give_back(_: usize, _: usize) -> bool {
    false
}
/// No model has nodes.
pub const fn bind(_: usize, _: usize, _: usize) {}
/// Nothing is given back.
///
/// # Errors
/// Always.
///
/// # Safety
/// None needed.
#[allow(unsafe_code, reason = "the engine's signature")]
pub const unsafe fn advise(_: usize, _: usize, _: Advice) -> Result<(), Errno> {
    Err(Errno)
}
/// Nothing is mapped.
///
/// # Errors
/// Never.
///
/// # Safety
/// None needed.
#[allow(unsafe_code, reason = "the engine's signature")]
pub const unsafe fn unmap(_: usize, _: usize) -> Result<(), Errno> {
    Ok(())
}
/// Always refused: no model shares a board.
///
/// # Errors
/// Always.
pub const fn map(_: usize, _: usize, _: Access) -> Result<usize, Errno> {
    Err(Errno)
}
/// Always refused.
///
/// # Errors
/// Always.
///
/// # Safety
/// None needed.
#[allow(unsafe_code, reason = "the engine's signature")]
pub const unsafe fn map_over(_: usize, _: usize, _: Access) -> Result<(), Errno> {
    Err(Errno)
}
/// Nor are files.
///
/// # Errors
/// Always.
///
/// # Safety
/// None needed.
#[allow(unsafe_code, reason = "the engine's signature")]
pub const unsafe fn map_file_over(_: usize, _: usize, _: usize, _: usize) -> Result<(), Errno> {
    Err(Errno)
}
/// The same anywhere.
///
/// # Errors
/// Always.
pub const fn map_file(_: usize, _: usize) -> Result<usize, Errno> {
    Err(Errno)
}
/// There are no files.
///
/// # Errors
/// Always.
///
/// # Safety
/// None needed.
#[allow(unsafe_code, reason = "the engine's signature")]
pub const unsafe fn make_sure(_: usize, _: usize) -> Result<(), Errno> {
    Err(Errno)
}
/// No model looks at times.
#[must_use]
pub const fn ticks() -> u64 {
    0
}
/// The CPU that runs this thread.
#[must_use]
pub fn current_cpu() -> u32 {
    machine::here().1
}
/// The NUMA node that runs this thread: there is one.
#[must_use]
pub const fn current_node() -> u32 {
    0
}
/// What tells threads apart; aligned, as a thread pointer is.
#[must_use]
pub fn thread_pointer() -> usize {
    (machine::me() + 1) * 16
}
/// Sleeps while `*word == value`.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    machine::futex_wait(&raw const *word as usize, || word.peek() == value);
}
/// The same for a time, which is over at once: others go on.
pub fn futex_wait_for(_: &AtomicU32, _: u32, _: u64) {
    machine::nap();
}
/// Wakes all sleepers of `word`.
pub fn futex_wake(word: &AtomicU32, _: u32) {
    machine::futex_wake(&raw const *word as usize);
}
/// Never, as far as a model's locks can know.
#[must_use]
pub const fn single_threaded() -> bool {
    false
}
/// Neither.
#[must_use]
pub const fn program_is_single() -> bool {
    false
}
/// Its first thread lives.
pub fn end_with_leader(_: impl FnOnce()) {}
/// A clock that stands still.
#[derive(Debug, Default)]
pub struct Clock;
impl Clock {
    /// One.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
    /// No time passes.
    #[must_use]
    pub const fn ticks(&self) -> u64 {
        0
    }
}
/// Nothing is mapped.
///
/// # Errors
/// Always.
///
/// # Safety
/// None needed.
#[allow(unsafe_code, reason = "the engine's signature")]
pub const unsafe fn grow(_: usize, _: usize, _: usize) -> Result<(), Errno> {
    Err(Errno)
}
/// The same.
///
/// # Errors
/// Always.
///
/// # Safety
/// None needed.
#[allow(unsafe_code, reason = "the engine's signature")]
pub const unsafe fn map_again(_: usize, _: usize) -> Result<usize, Errno> {
    Err(Errno)
}
