//! # The heap of this process
//!
//! The engine's one static. Everything here uses it. What it asks of the process
//! ([`Environment`](allotment_engine::heap::Environment)) needs everything, so that answers stand above: in [`crate::start`].

use allotment_engine::heap::Heap;

/// The process as a heap's environment.
#[derive(Debug)]
pub struct Process;

/// The one.
pub static HEAP: Heap<Process> = Heap::new();
