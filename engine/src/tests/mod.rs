//! Tests of modules whose files are also compiled over a model checker, where these cannot run.

pub mod areas;
pub mod bitmap;
pub mod chunk;
pub mod counters;
mod cpu;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(allotment_other)))]
mod indices;
pub mod level_states;
pub mod percpu;
mod random;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(allotment_other)))]
pub mod sequences;
pub mod threads;
pub mod units;
