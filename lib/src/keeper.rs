//! # The keeper's thread, and the workers'
//!
//! Threads of this process that the C library does not know ([`allotment_engine::arch::crew`]). What they do is the engine's
//! ([`Mm::keep`](allotment_engine::reclaim::Mm::keep), [`Mm::work`](allotment_engine::reclaim::Mm::work)).

use crate::heap::HEAP;
use allotment_engine::arch::crew::{Crew, enlist};
use allotment_engine::arch::sys;
#[allow(unused_imports, reason = "for the link above")]
use allotment_engine::heap::Heap;

/// All of them.
pub static CREW: Crew = Crew::new();

extern "C" fn keeper(_: usize) -> ! {
    enlist(c"allotment");
    HEAP.mm().keep();
    sys::exit(false, HEAP.mm().parting())
}

extern "C" fn worker(_: usize) -> ! {
    enlist(c"allotment/free");
    HEAP.mm().work();
    sys::exit(false, HEAP.mm().parting())
}

/// Starts the keeper; false if the system has no thread for us.
pub fn start() -> bool {
    CREW.start(keeper).is_ok()
}

/// The same for a worker.
pub fn start_worker() -> bool {
    CREW.start(worker).is_ok()
}
