//! # The engine of Allotment
//!
//! `no_std` without `alloc`: "no heap inside malloc" is a compile error. Layers
//! from the bottom up; a layer uses only those before it.
#![cfg_attr(not(test), no_std)]

pub mod arch;

pub mod knob;
pub mod stat;

pub mod meta;

pub mod cpu;

pub mod cache;
pub mod percpu;

pub mod counter;
pub mod page;

pub mod vmap;

pub mod slab;

pub mod reclaim;

pub mod heap;

pub mod control;

#[cfg(test)]
mod tests;
