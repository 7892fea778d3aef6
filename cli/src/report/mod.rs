//! # What a heap did, added up
//!
//! [`Snapshot`] is the board as it was read; [`Report`] is what follows from
//! it and from the process's end; [`Report::text`] prints it, and
//! `observe::json` the same numbers.
//!
//! Equations (all saturating, for the board may hold anything):
//! - objects in use of a class = allocs − frees, each too high by at most the
//!   interrupted sequences: that sum is the printed `±`;
//! - bytes in slabs in use = Σ size × objects over the size classes;
//! - bytes in use = bytes in slabs in use + areas;
//! - bytes in caches = bytes taken from slabs − bytes in slabs in use;
//! - fast operations = all − those that left the fast path.

pub mod snapshot;
mod text;

pub use snapshot::{Class, Histogram, Missing, Snapshot};

use allotment_engine::stat::{Event, Index, Level, Mode, Reason};
use serde::Serialize;
use std::collections::BTreeMap;

/// How the process ended and what the kernel counted.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// What was asked to run.
    pub program: String,
    /// Its id.
    pub pid: u32,
    /// As `wait` gives it.
    pub status: i32,
    /// It has not ended: times and memory are those of now.
    pub running: Option<Running>,
    /// From fork to end.
    pub wall_ns: u64,
    /// User and system time.
    pub cpu_ns: u64,
    /// Highest resident memory, bytes.
    pub rss_peak: u64,
    /// Below this the kernel's figure is the command's own.
    pub rss_floor: u64,
    /// Page faults without input or output.
    pub minor_faults: u64,
    /// Page faults with.
    pub major_faults: u64,
    /// Time-stamp counter at the end; 0 if there is none.
    pub ticks: u64,
    /// Monotonic clock at the same moment.
    pub now_ns: u64,
}

/// What is only known while a process runs, or is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Resident now, bytes; `None` for a board without its process.
    pub resident: Option<u64>,
}

/// Bytes by where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// In use: in slabs and areas.
    pub in_use: u64,
    /// Objects of slabs in use.
    pub in_use_slab_bytes: u64,
    /// How many.
    pub in_use_slab_objects: u64,
    /// Areas in use.
    pub in_use_area_bytes: u64,
    /// How many, from the events.
    pub in_use_areas: u64,
    /// How far the objects may be off, either way.
    pub objects_off_by: u64,
    /// Out of slabs, in caches of CPUs.
    pub in_caches: u64,
    /// Areas freed lazily.
    pub lazy: u64,
    /// Free pages that may be resident.
    pub free_dirty: u64,
    /// Free pages that are not.
    pub free_clean: u64,
    /// Slabs altogether.
    pub slabs: u64,
    /// Opened for reading and writing.
    pub mapped: u64,
    /// Address space.
    pub reserved: u64,
    /// Metadata.
    pub metadata: u64,
    /// Highest sum of taken and areas.
    pub peak: u64,
}

/// Operations of the whole heap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// Objects handed out.
    pub allocs: u64,
    /// By the fast path.
    pub allocs_fast: u64,
    /// Objects taken back.
    pub frees: u64,
    /// By the fast path.
    pub frees_fast: u64,
}

/// A class that was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassReport {
    /// Bytes of an object.
    pub size: u64,
    /// Handed out.
    pub allocs: u64,
    /// Taken back.
    pub frees: u64,
    /// In use.
    pub objects: u64,
    /// Slabs.
    pub slabs: u64,
}

/// Time in slow paths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Slow {
    /// Nanoseconds.
    pub ns: u64,
    /// Of the process's time on CPUs.
    pub percent_of_cpu: Option<f64>,
}

/// Everything.
#[derive(Clone, Debug)]
pub struct Report {
    /// The process's end.
    pub end: End,
    /// How sets are reached.
    pub mode: &'static str,
    /// Why.
    pub reason: &'static str,
    /// What a set's index is.
    pub index: &'static str,
    /// Sets made.
    pub sets: u32,
    /// Bytes.
    pub memory: Memory,
    /// Operations.
    pub operations: Operations,
    /// Time in slow paths, if it can be told.
    pub slow: Option<Slow>,
    /// Every event by name.
    pub events: BTreeMap<&'static str, u64>,
    /// Every level by name.
    pub levels: BTreeMap<&'static str, u64>,
    /// Size classes that were used.
    pub classes: Vec<ClassReport>,
    /// Page orders that were used.
    pub page_orders: Vec<ClassReport>,
}

impl Report {
    /// Adds up.
    pub fn new(board: &Snapshot, end: End) -> Self {
        let classes = used(&board.size_classes);
        let sum = |of: fn(&ClassReport) -> u64| classes.iter().map(of).fold(0, u64::saturating_add);
        let (allocs, frees) = (sum(|class| class.allocs), sum(|class| class.frees));
        let slab_bytes = sum(|class| class.size.saturating_mul(class.objects));
        let areas = board.level(Level::Areas);
        let memory = Memory {
            in_use: slab_bytes.saturating_add(areas),
            in_use_slab_bytes: slab_bytes,
            in_use_slab_objects: sum(|class| class.objects),
            in_use_area_bytes: areas,
            in_use_areas: board
                .event(Event::AreaAlloc)
                .saturating_add(board.event(Event::AreaReuse))
                .saturating_sub(board.event(Event::AreaFree)),
            objects_off_by: board.event(Event::SeqAbort),
            in_caches: board.level(Level::Taken).saturating_sub(slab_bytes),
            lazy: board.level(Level::Lazy),
            free_dirty: board.level(Level::PagesDirty),
            free_clean: board.level(Level::PagesFree).saturating_sub(board.level(Level::PagesDirty)),
            slabs: board.level(Level::Slabs),
            mapped: board.level(Level::Mapped),
            reserved: board.level(Level::Reserved),
            metadata: board.level(Level::Meta),
            // (Noted when a differential is folded.)
            peak: board.level(Level::TakenPeak).max(board.level(Level::Taken).saturating_add(areas)),
        };
        Self {
            slow: slow(board, &end),
            end,
            mode: Mode::from_word(board.mode).name(),
            reason: Reason::from_word(board.reason).name(),
            index: if board.index == Index::MmCid as u32 { "mm_cid" } else { "cpu" },
            sets: board.sets,
            memory,
            operations: Operations {
                allocs,
                allocs_fast: allocs.saturating_sub(board.event(Event::AllocSlowpath)),
                frees,
                frees_fast: frees.saturating_sub(board.event(Event::FreeSlowpath)),
            },
            events: Event::ALL.iter().map(|&event| (event.name(), board.event(event))).collect(),
            levels: Level::ALL.iter().map(|&level| (level.name(), board.level(level))).collect(),
            classes,
            page_orders: used(&board.page_orders),
        }
    }

    /// An event.
    pub fn event(&self, event: Event) -> u64 {
        self.events.get(event.name()).copied().unwrap_or(0)
    }
}

/// Classes that exist and were touched.
fn used(classes: &[Class]) -> Vec<ClassReport> {
    let touched = |class: &&Class| class.size != 0 && (class.allocs | class.frees | class.slabs | class.taken) != 0;
    let report = |class: &Class| ClassReport {
        size: class.size,
        allocs: class.allocs,
        frees: class.frees,
        objects: class.allocs.saturating_sub(class.frees),
        slabs: class.slabs,
    };
    classes.iter().filter(touched).map(report).collect()
}

/// Ticks in slow paths as time; the rate follows from the start and the end.
fn slow(board: &Snapshot, end: &End) -> Option<Slow> {
    let ticks = end.ticks.checked_sub(board.start_ticks).filter(|&ticks| ticks > 0)?;
    let ns = end.now_ns.checked_sub(board.start_ns).filter(|&ns| ns > 0)?;
    let slow = board.event(Event::SlowpathTicks) as f64 * (ns as f64 / ticks as f64);
    let percent = (end.cpu_ns > 0).then(|| slow * 100.0 / end.cpu_ns as f64);
    // `as` cuts to the range of u64; the product cannot be NaN.
    Some(Slow { ns: slow as u64, percent_of_cpu: percent })
}

#[cfg(test)]
mod tests {
    use super::snapshot::tests::Fabric;
    use super::*;
    use crate::term::Paint;
    use allotment_engine::stat::board::Board;
    use std::mem::offset_of;

    fn end() -> End {
        End { program: "p".into(), pid: 7, ticks: 5_000, now_ns: 2_000, cpu_ns: 1_000, ..End::default() }
    }

    fn board() -> Fabric {
        let mut fabric = Fabric::new();
        fabric.short(offset_of!(Board, sets), 2);
        fabric.short(offset_of!(Board, mode), 1);
        fabric.short(offset_of!(Board, index), 1);
        fabric.short(offset_of!(Board, classes), 4);
        fabric.short(offset_of!(Board, size_classes), 3);
        fabric.class(1, 16);
        fabric.class(2, 64);
        fabric.class(3, 4096);
        fabric.ops(0, 0, 1000, 0);
        fabric.ops(0, 1, 100, 40);
        fabric.ops(1, 1, 0, 20);
        fabric.ops(1, 2, 10, 0);
        fabric.ops(0, 3, 50, 0);
        fabric.level(Level::Taken, 16 * 50 + 64 * 10);
        fabric.level(Level::Areas, 1 << 20);
        fabric.event(0, Event::AllocSlowpath, 7);
        fabric.event(1, Event::AreaAlloc, 3);
        fabric.event(1, Event::AreaFree, 1);
        fabric.event(0, Event::SlowpathTicks, 1_000);
        fabric.long(offset_of!(Board, start_ticks), 1_000);
        fabric.long(offset_of!(Board, start_ns), 1_000);
        fabric
    }

    #[test]
    fn sums_follow_the_equations() {
        let report = Report::new(&board().read().expect("a board"), end());
        // The class of size 0 and the page order are no objects of the user's.
        assert_eq!(report.memory.in_use_slab_objects, 40 + 10);
        assert_eq!(report.memory.in_use_slab_bytes, 16 * 40 + 64 * 10);
        assert_eq!(report.memory.in_use, 16 * 40 + 64 * 10 + (1 << 20));
        assert_eq!(report.memory.in_caches, 16 * 10);
        assert_eq!(report.memory.in_use_areas, 2);
        assert_eq!(report.operations, Operations { allocs: 110, allocs_fast: 103, frees: 60, frees_fast: 60 });
        // 1,000 ticks at 4 a nanosecond.
        assert_eq!(report.slow, Some(Slow { ns: 250, percent_of_cpu: Some(25.0) }));
        assert_eq!((report.mode, report.index), ("sequences", "mm_cid"));
    }

    #[test]
    fn the_error_is_printed_only_if_there_is_one() {
        let mut fabric = board();
        let text = Report::new(&fabric.read().expect("a board"), end()).text(Paint::none());
        assert!(!text.contains('±'), "{text}");
        fabric.event(1, Event::SeqAbort, 3);
        let text = Report::new(&fabric.read().expect("a board"), end()).text(Paint::none());
        assert!(text.contains("± 3"), "{text}");
    }

    #[test]
    fn garbage_neither_panics_nor_overflows() {
        let mut fabric = Fabric::new();
        fabric.0.iter_mut().skip(12).for_each(|byte| *byte = 0xff);
        let report = Report::new(&fabric.read().expect("a board"), end());
        assert_eq!(report.mode, "closed");
        assert!(!report.text(Paint::none()).is_empty());
    }

    #[test]
    fn lines_are_narrow_and_aligned() {
        let text = Report::new(&board().read().expect("a board"), end()).text(Paint::none());
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
            assert_eq!(line.trim_end(), line);
        }
    }
}
