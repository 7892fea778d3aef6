//! # `percpu_stats`: what is in per-CPU memory
//!
//! The kernel's fields, in the kernel's layout (`/sys/kernel/debug/percpu_stats`). Numbers of a
//! chunk are exact at the moment that its lock is held; `nr_max_alloc` is the largest that was
//! noted, which chunks do when they have changed by [`super::totals::DRIFT`]: it may be that much too low for each
//! chunk. Fragmentation is found by a walk over both bitmaps.
//!
//! Locks: the space's for its numbers, then each chunk's for its own. Cost: a walk of all
//! bitmaps, about 5 µs a chunk.

use super::chunk::{BITS, Body, GRANULE};
use super::space::{RESERVED, Space};
use super::units::UNIT;
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use core::fmt::{self, Write};

/// Numbers of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Allocations ever.
    pub allocs: u64,
    /// Frees ever.
    pub frees: u64,
    /// Allocations now.
    pub live: u64,
    /// The most there were (see the module).
    pub live_most: u64,
    /// Chunks with memory.
    pub chunks: usize,
    /// The most there were.
    pub chunks_most: usize,
    /// Bytes of the smallest allocation ever; 0 if there was none.
    pub smallest: u32,
    /// Bytes of the largest.
    pub largest: u32,
    /// Populated pages of a unit.
    pub populated_pages: usize,
    /// Of them without an allocation.
    pub empty_pages: usize,
    /// Bytes allocated, of a unit.
    pub bytes: usize,
    /// Bytes of metadata.
    pub metadata: usize,
}

impl Space {
    /// The numbers now.
    #[must_use]
    pub fn stats(&'static self) -> Stats {
        let _inside = self.units.gate.enter_patiently();
        let mut state = self.state.lock();
        self.settle_all(&mut state, true);
        let mut sizes = state.gone;
        let mut stats = Stats { chunks: state.chunks, chunks_most: state.chunks_most, ..Stats::default() };
        for chunk in self.memory.chunks() {
            stats.metadata += size_of_val(chunk);
            let mut body = chunk.body.lock();
            if body.base == 0 {
                continue;
            }
            body.fold(&self.totals);
            sizes.add(body.allocs, body.smallest, body.largest);
            stats.live += u64::from(body.live);
            stats.populated_pages += body.populated.count_ones() as usize;
            stats.empty_pages += body.empty as usize;
            stats.bytes += (BITS - body.reserved - body.free) as usize * GRANULE;
        }
        drop(state);
        (stats.allocs, stats.smallest, stats.largest) = (sizes.allocs, sizes.smallest, sizes.largest);
        stats.frees = stats.allocs - stats.live;
        // (Walking, chunks told in turn, and the sum of that may be below what there is.)
        stats.live_most = (self.totals.live_most().load(Relaxed) as u64).max(stats.live);
        stats
    }

    /// The text of the kernel's `percpu_stats`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn report(&'static self, out: &mut impl Write) -> fmt::Result {
        write_totals(out, &self.stats())?;
        let first = &raw const self.first;
        for chunk in self.memory.chunks() {
            // Under the lock only numbers are gathered: `out` may allocate.
            let inside = self.units.gate.enter_patiently();
            let body = chunk.body.lock();
            if body.base == 0 {
                continue;
            }
            let is_first = core::ptr::eq(chunk, first);
            let reserved = is_first.then(|| Region::of(&body, 0, body.reserved));
            let whole = Region::of(&body, body.reserved, BITS);
            let tag = if is_first {
                " <- First Chunk"
            } else if body.owner != 0 {
                " <- claimed"
            } else {
                ""
            };
            let (empty, contig) = (body.empty, body.contig() as usize * GRANULE);
            let largest = body.largest;
            drop((body, inside));
            if let Some(reserved) = reserved {
                let longest = reserved.longest;
                reserved.write(out, " <- Reserved Chunk", largest, 0, longest)?;
            }
            whole.write(out, tag, largest, empty, contig)?;
        }
        Ok(())
    }
}

/// The part about the whole space.
fn write_totals(out: &mut impl Write, stats: &Stats) -> fmt::Result {
    writeln!(out, "Percpu Memory Statistics\nAllocation Info:\n----------------------------------------")?;
    for (name, value) in [
        ("unit_size", UNIT),
        ("static_size", 0),
        ("reserved_size", RESERVED),
        ("dyn_size", UNIT - RESERVED),
        ("atom_size", PAGE),
        ("alloc_size", UNIT),
    ] {
        writeln!(out, "  {name:<20}: {value:12}")?;
    }
    writeln!(out, "\nGlobal Stats:\n----------------------------------------")?;
    for (name, value) in [
        ("nr_alloc", stats.allocs),
        ("nr_dealloc", stats.frees),
        ("nr_cur_alloc", stats.live),
        ("nr_max_alloc", stats.live_most),
        ("nr_chunks", stats.chunks as u64),
        ("nr_max_chunks", stats.chunks_most as u64),
        ("min_alloc_size", stats.smallest.into()),
        ("max_alloc_size", stats.largest.into()),
        ("empty_pop_pages", stats.empty_pages as u64),
    ] {
        writeln!(out, "  {name:<20}: {value:12}")?;
    }
    writeln!(out, "\nPer Chunk Stats:\n----------------------------------------")
}

/// What a walk over a part of a chunk found; sizes in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Region {
    live: usize,
    first_bit: usize,
    free: usize,
    /// Free bytes below the last allocation, and the longest run of them.
    fragments: usize,
    largest_fragment: usize,
    longest: usize,
    smallest: usize,
    median: usize,
    largest: usize,
}

impl Region {
    fn of(body: &Body, from: u32, to: u32) -> Self {
        let mut region = Self { first_bit: to as usize, ..Self::default() };
        // Allocations by their size's power of two and quarter: the median is exact to a slot.
        let mut sizes = [0_usize; super::slots::SLOTS];
        let mut end = from;
        let gap = |region: &mut Self, from: u32, to: u32, below: bool| {
            let bytes = (to - from) as usize * GRANULE;
            if bytes == 0 {
                return;
            }
            region.first_bit = region.first_bit.min(from as usize);
            region.free += bytes;
            region.longest = region.longest.max(bytes);
            if below {
                region.fragments += bytes;
                region.largest_fragment = region.largest_fragment.max(bytes);
            }
        };
        for (start, next) in body.live_from(from).take_while(|(start, _)| *start < to) {
            gap(&mut region, end, start, true);
            let bytes = (next - start) as usize * GRANULE;
            region.smallest = if region.live == 0 { bytes } else { region.smallest.min(bytes) };
            region.largest = region.largest.max(bytes);
            region.live += 1;
            sizes[super::slots::slot_of(next - start) as usize] += 1;
            end = next;
        }
        gap(&mut region, end, to, false);
        let mut below = 0;
        let median = sizes.iter().position(|count| {
            below += count;
            below * 2 >= region.live
        });
        if region.live != 0 {
            let slot = super::slots::least(median.unwrap_or(0) as u32) as usize * GRANULE;
            region.median = slot.clamp(region.smallest, region.largest);
        }
        region
    }

    fn write(self, out: &mut impl Write, tag: &str, largest: u32, empty: u32, contig: usize) -> fmt::Result {
        writeln!(out, "\nChunk:{tag}")?;
        for (name, value) in [
            ("nr_alloc", self.live),
            ("max_alloc_size", largest as usize),
            ("empty_pop_pages", empty as usize),
            ("first_bit", self.first_bit),
            ("free_bytes", self.free),
            ("contig_bytes", contig),
            ("sum_frag", self.fragments),
            ("max_frag", self.largest_fragment),
            ("cur_min_alloc", self.smallest),
            ("cur_med_alloc", self.median),
            ("cur_max_alloc", self.largest),
        ] {
            writeln!(out, "  {name:<20}: {value:12}")?;
        }
        Ok(())
    }
}
