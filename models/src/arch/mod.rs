//! The machine that the engine's files find here.

pub mod atomic;
pub mod rseq;
pub mod seq;
pub mod sys;
pub mod unit_seq;

/// The engine's, with few rooms.
#[allow(clippy::items_after_test_module, reason = "the engine's")]
pub mod gate {
    include!(concat!(env!("OUT_DIR"), "/gate.rs"));
}
#[path = "../../../engine/src/arch/bits.rs"]
pub mod bits;
#[path = "../../../engine/src/arch/lock.rs"]
pub mod lock;
#[path = "../../../engine/src/arch/naps.rs"]
pub mod naps;
#[path = "../../../engine/src/arch/number.rs"]
pub mod number;
#[path = "../../../engine/src/arch/operands.rs"]
pub mod operands;
#[path = "../../../engine/src/arch/outcome.rs"]
pub mod outcome;

/// No line is far away here.
pub fn prefetch<T>(_at: *const T) {}

/// Bits of a program's addresses.
pub const ADDRESS_BITS: u32 = 47;
/// Bytes of a page.
pub const PAGE: usize = 4096;
/// log2 of [`PAGE`].
pub const PAGE_SHIFT: u32 = 12;

/// The same value: what the compiler knows of it makes no difference here.
pub const fn opaque(value: usize) -> usize {
    value
}

/// What the engine's own tests share, which are compiled here and never run.
#[cfg(test)]
pub mod tests {
    /// No child is made.
    pub fn in_a_single_child(_: impl FnOnce()) {}
    /// Nobody sleeps.
    pub fn sleeps_until<T: Send>(call: impl FnOnce() -> T + Send, _: impl FnOnce()) -> T {
        call()
    }
}
