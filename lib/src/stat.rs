//! # What the heap holds, in numbers
//!
//! [`Snapshot::now`] reads this process's own statistics: the levels and events that `allotment stat` shows from outside.
//!
//! ```
//! use allotment::stat::Snapshot;
//!
//! let before = Snapshot::now();
//! let block = allotment::area::alloc(8 << 20, 4096)?;
//! let after = Snapshot::now();
//! assert!(after.in_use >= before.in_use + (8 << 20));
//! for (name, times) in after.events().filter(|&(_, times)| times > 0) {
//!     println!("{name} {times}");
//! }
//! # // SAFETY: the area is ours, and is not used any more.
//! # unsafe { allotment::area::free(block)? };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Numbers are summed while other threads go on: each is right to what was under way at that moment.
//! [`crate::pages::zones`] has those of each node.

use crate::heap::HEAP;
use allotment_engine::slab::class::SIZES;
use allotment_engine::stat::{Event, Level};

const EVENTS: usize = Event::ALL.len();

/// This process's heap at a moment. Bytes unless said otherwise. Its names grow with versions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// What the program has: objects (by the sizes of their classes), areas (up to 8 MiB that a CPU caches among
    /// them), and blocks of pages.
    pub in_use: u64,
    /// Objects that CPUs cache.
    pub cached: u64,
    /// Areas freed lazily: reused at once, given back by and by.
    pub lazy: u64,
    /// Free pages that may be resident.
    pub dirty: u64,
    /// The heap's own structures.
    pub meta: u64,
    /// What may be resident of the heap: all of the above, and what is free within slabs. What the limits limit.
    pub held: u64,
    /// Opened for reading and writing.
    pub mapped: u64,
    /// Highest sum of objects out of slabs and areas so far.
    pub peak: u64,
    events: [u64; EVENTS],
}

impl Snapshot {
    /// Reads all of them. Cost: a look at each tally, some µs for each CPU that was used; nobody is stopped.
    #[must_use]
    pub fn now() -> Self {
        HEAP.prepare();
        let sets = &HEAP.cache().sets;
        let level = |at| sets.level(at);
        let cached = (1..SIZES.len()).map(|class| HEAP.cached(class) as u64 * u64::from(SIZES[class])).sum();
        let pages = level(Level::PagesManaged).saturating_sub(level(Level::PagesFree) + level(Level::Slabs));
        let (areas, lazy, dirty, meta) =
            (level(Level::Areas), level(Level::Lazy), level(Level::PagesDirty), level(Level::Meta));
        Self {
            in_use: (level(Level::Taken) + areas + pages).saturating_sub(cached),
            cached,
            lazy,
            dirty,
            meta,
            held: level(Level::PagesManaged).saturating_sub(level(Level::PagesFree)) + dirty + areas + lazy + meta,
            mapped: level(Level::Mapped),
            peak: level(Level::TakenPeak),
            events: core::array::from_fn(|at| sets.event(Event::ALL[at])),
        }
    }

    /// What happened so far, by name: each is only ever counted up.
    pub fn events(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Event::ALL.iter().zip(self.events).map(|(event, times)| (event.name(), times))
    }
}
