//! The only importer of atomics. The model package compiles the protocol files
//! over a checker's atomics under this same path.

pub use core::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    compiler_fence, fence,
};
