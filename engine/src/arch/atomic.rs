//! The only importer of atomics. The model package compiles the protocol files
//! over a checker's atomics under this same path.

pub use core::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    compiler_fence, fence,
};

/// Stores a value where another is, in a word that nobody else writes now: a page that a forked child does not write stays its parent's, too.
macro_rules! settle {
    ($word:expr, $value:expr) => {{
        let (word, value) = (&$word, $value);
        if word.load($crate::arch::atomic::Ordering::Relaxed) != value {
            word.store(value, $crate::arch::atomic::Ordering::Relaxed);
        }
    }};
}
pub(crate) use settle;
