//! # What a process shows, at one moment
//!
//! ```text
//! board, tallies ─► Snapshot ─► Report      read at once, while the program goes on
//! Show           ─► Texts                   written by the process when it was asked, just before
//! /proc/PID      ─► program, times, resident memory
//! ```
//!
//! Sums are taken from one read, so that classes always add up to their totals. Words change while they are read: a
//! number is off by what happened during the read, and the texts are as old as `shown_age_ns` says.

use super::ask::{self, SOON, refusal};
use super::find::Target;
use super::latency::{Latency, Tick};
use super::show::Texts;
use crate::clock::{monotonic_ns, ticks};
use crate::proc;
use crate::report::{Class, End, Missing, Report, Running, Snapshot};
use allotment_engine::arch::PAGE;
use allotment_engine::knob::{Id, TABLE};
use allotment_engine::slab::class::{SIZES, SLAB_ORDER};
use allotment_engine::stat::board::Request;
use allotment_engine::stat::{Event, Level, Timing};

/// All of it.
#[derive(Clone, Debug)]
pub struct View {
    /// The process.
    pub pid: u32,
    /// Its command line; empty for a copy.
    pub program: String,
    /// Whether it is a running process's.
    pub live: bool,
    /// The board.
    pub snapshot: Snapshot,
    /// What follows from it.
    pub report: Report,
    /// The texts, if they were ever written.
    pub texts: Texts,
    /// Why the texts are not of now.
    pub silence: Option<String>,
    /// When the board was read, by the monotonic clock.
    pub now_ns: u64,
    /// The length of a tick.
    pub tick: Option<Tick>,
}

/// One line of `vmstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its name.
    pub name: &'static str,
    /// Its number.
    pub value: u64,
    /// Only ever counted up.
    pub counter: bool,
    /// In words.
    pub meaning: &'static str,
}

/// One line of `slabinfo`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Slab {
    /// `allot-64`.
    pub name: String,
    /// In use by the program.
    pub active_objs: u64,
    /// In slabs.
    pub num_objs: u64,
    /// Bytes of one.
    pub objsize: u64,
    /// In one slab.
    pub objperslab: u64,
    /// Of one slab.
    pub pagesperslab: u64,
    /// Most in one sheaf.
    pub limit: u64,
    /// Slabs.
    pub num_slabs: u64,
    /// Out of slabs and not in use: in sets and barns.
    pub sharedavail: u64,
    /// Handed out so far.
    pub allocs: u64,
    /// Taken back so far.
    pub frees: u64,
}

impl View {
    /// Looks. If `asking`, the process writes its texts first.
    ///
    /// # Errors
    /// One line.
    pub fn take(target: &Target, asking: bool) -> Result<Self, String> {
        let asked = if asking && target.live {
            ask::ask(target, Request::Show, [0; 2], SOON).map(|(answer, _)| refusal(target.pid, answer))
        } else {
            Ok(None)
        };
        let silence = match asked {
            Ok(refused) => refused,
            Err(ask::Silence::Ended) => return Err(ask::Silence::Ended.line(target.pid)),
            Err(silence) => Some(silence.line(target.pid)),
        };
        let snapshot = Snapshot::read(&target.file).map_err(|missing| match missing {
            Missing::Short => format!("{}: the board is truncated", target.path.display()),
            missing => format!("{}: {}", target.path.display(), missing.reason()),
        })?;
        let (ticks, now_ns) = (ticks(), monotonic_ns());
        let texts = Texts::read(&target.file).unwrap_or_default();
        let end = if target.live { running(target.pid) } else { copied(target) };
        Ok(Self::new(target.pid, target.live, snapshot, texts, silence, End { ticks, now_ns, ..end }))
    }

    /// From its parts.
    pub fn new(pid: u32, live: bool, snapshot: Snapshot, texts: Texts, silence: Option<String>, end: End) -> Self {
        let now_ns = end.now_ns;
        let tick = Tick::between((snapshot.start_ticks, snapshot.start_ns), (end.ticks, now_ns));
        let program = end.program.clone();
        let mut report = Report::new(&snapshot, end);
        if tick.is_none() {
            report.slow = None;
        }
        Self { pid, program, live, report, snapshot, texts, silence, now_ns, tick }
    }

    /// How old the texts are; `None` if there are none.
    pub fn age_ns(&self) -> Option<u64> {
        (self.texts.at_ns > 0).then(|| self.now_ns.saturating_sub(self.texts.at_ns))
    }

    /// Histograms; without a known tick none.
    pub fn latencies(&self) -> Vec<Latency> {
        let Some(tick) = self.tick else { return Vec::new() };
        Timing::ALL
            .iter()
            .zip(&self.snapshot.times)
            .map(|(&timing, histogram)| Latency::new(timing, histogram, tick))
            .collect()
    }

    /// Levels, sums and events.
    pub fn vmstat(&self) -> Vec<Line> {
        let (memory, operations) = (&self.report.memory, &self.report.operations);
        let level = |name, value, meaning| Line { name, value, counter: false, meaning };
        let counter = |name, value, meaning| Line { name, value, counter: true, meaning };
        let mut lines = vec![
            level("in_use", memory.in_use, "bytes of objects and areas in use"),
            level("in_use_objects", memory.in_use_slab_objects, "objects in use (count)"),
            level("in_use_areas", memory.in_use_areas, "areas in use (count)"),
            level("in_caches", memory.in_caches, "bytes of objects out of slabs and not in use: in sets and barns"),
        ];
        lines.extend(Level::ALL.iter().map(|&at| level(at.name(), self.snapshot.level(at), at.meaning())));
        lines.push(level("sets", self.snapshot.sets.into(), "sets made (count)"));
        lines.extend([
            counter("allocs", operations.allocs, "objects handed out"),
            counter("allocs_fast", operations.allocs_fast, "of them by the fast path"),
            counter("frees", operations.frees, "objects taken back"),
            counter("frees_fast", operations.frees_fast, "of them by the fast path"),
            counter("areas_purged", self.snapshot.purged, "areas that purges gave back"),
        ]);
        lines.extend(Event::ALL.iter().map(|&at| counter(at.name(), self.snapshot.event(at), at.meaning())));
        lines
    }

    /// A knob's value now.
    pub fn knob(&self, at: usize) -> u64 {
        self.snapshot.knobs.get(at).copied().unwrap_or(0)
    }

    /// Size classes.
    pub fn slabs(&self) -> Vec<Slab> {
        let (objects, bytes) = (self.knob(Id::SheafObjects as usize), self.knob(Id::SheafBytes as usize));
        let slab = |class: &Class| {
            let at = SIZES.iter().position(|&size| u64::from(size) == class.size);
            let pages = at.map_or(0, |at| 1_u64 << SLAB_ORDER[at]);
            let objperslab = (pages * PAGE as u64).checked_div(class.size).unwrap_or(0);
            let in_use = class.allocs.saturating_sub(class.frees);
            Slab {
                name: format!("allot-{}", class.size),
                active_objs: in_use,
                num_objs: class.slabs.saturating_mul(objperslab),
                objsize: class.size,
                objperslab,
                pagesperslab: pages,
                limit: (bytes / class.size.max(1)).max(1).min(objects),
                num_slabs: class.slabs,
                sharedavail: class.taken.saturating_sub(in_use),
                allocs: class.allocs,
                frees: class.frees,
            }
        };
        self.snapshot.size_classes.iter().filter(|class| class.size != 0).map(slab).collect()
    }

    /// Of the bytes in slabs, those that are in use by nobody, in per cent.
    pub fn fragmentation(&self) -> f64 {
        let memory = &self.report.memory;
        let free = memory.slabs.saturating_sub(memory.in_use_slab_bytes);
        if memory.slabs == 0 { 0.0 } else { free as f64 * 100.0 / memory.slabs as f64 }
    }

    /// Every knob: its place and value.
    pub fn knobs(&self) -> impl Iterator<Item = (usize, u64)> {
        self.snapshot.knobs.iter().copied().enumerate().take(TABLE.len())
    }
}

/// A command line as far as a line has room.
fn shortened(command: &str) -> String {
    const MOST: usize = 72;
    if command.chars().count() <= MOST {
        return command.to_owned();
    }
    command.chars().take(MOST - 1).chain(['…']).collect()
}

/// What `/proc` says of a running process.
fn running(pid: u32) -> End {
    let usage = proc::Usage::of(pid).unwrap_or_default();
    let resident = proc::resident(pid);
    End {
        program: shortened(&proc::command(pid)),
        pid,
        running: Some(Running { resident: resident.or(Some(0)) }),
        wall_ns: usage.wall_ns,
        cpu_ns: usage.cpu_ns,
        rss_peak: proc::Status::of(pid).map_or(0, |status| status.peak),
        // Nothing of the command's is in it.
        rss_floor: 0,
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        ..End::default()
    }
}

/// What is known of a copy's process.
fn copied(target: &Target) -> End {
    End {
        program: crate::term::printable(&target.path.to_string_lossy()),
        pid: target.pid,
        running: Some(Running::default()),
        ..End::default()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::observe::show;
    use crate::report::snapshot::tests::Fabric;
    use allotment_engine::slab::class::CLASSES;
    use allotment_engine::stat::board::Board;
    use std::mem::offset_of;

    /// A heap with all classes, two sets and texts.
    pub fn fabric() -> Fabric {
        let mut fabric = Fabric::new();
        fabric.short(offset_of!(Board, pid), 77);
        fabric.short(offset_of!(Board, sets), 2);
        fabric.short(offset_of!(Board, mode), 1);
        fabric.short(offset_of!(Board, index), 1);
        fabric.short(offset_of!(Board, classes), CLASSES as u32 + 2);
        fabric.short(offset_of!(Board, size_classes), CLASSES as u32);
        for (class, &size) in SIZES.iter().enumerate() {
            fabric.class(class, size.into());
        }
        fabric.class(CLASSES, 4096);
        fabric.class(CLASSES + 1, 8192);
        fabric.ops(0, 4, 100_000, 40_000);
        fabric.ops(1, 4, 20_000, 30_000);
        fabric.ops(1, 20, 10, 3);
        fabric.ops(0, CLASSES, 9, 2);
        fabric.slabs(4, 400);
        fabric.taken(0, 4, 51_000);
        fabric.slabs(20, 1);
        fabric.taken(0, 20, 9);
        fabric.level(Level::Taken, 51_000 * 64 + 9 * u64::from(SIZES[20]));
        fabric.level(Level::Slabs, 400 * 16384);
        fabric.level(Level::Areas, 8 << 20);
        fabric.level(Level::Lazy, 3 << 20);
        fabric.level(Level::PagesManaged, 16 << 20);
        fabric.level(Level::PagesFree, 4 << 20);
        fabric.level(Level::PagesDirty, 1 << 20);
        fabric.level(Level::Mapped, 40 << 20);
        fabric.event(0, Event::AllocSlowpath, 700);
        fabric.event(1, Event::AreaAlloc, 5);
        fabric.event(0, Event::PurgeBytes, 1 << 20);
        fabric.event(0, Event::SlowpathTicks, 1_000_000);
        fabric.time(0, Timing::Refill, 2, 600, 900_000);
        fabric.time(1, Timing::Refill, 5, 100, 1_200_000);
        fabric.time(1, Timing::Purge, 8, 3, 300_000);
        for (at, knob) in TABLE.iter().enumerate() {
            fabric.long(offset_of!(Board, knobs) + at * 8, knob.default);
        }
        fabric.long(offset_of!(Board, start_ticks), 1_000);
        fabric.long(offset_of!(Board, start_ns), 1_000);
        fabric
    }

    /// What is seen of it after two seconds at 2 GHz.
    pub fn view(fabric: &Fabric) -> View {
        let end = End {
            program: "server --port \"1\"\\x".into(),
            pid: 77,
            running: Some(Running { resident: Some(50 << 20) }),
            rss_peak: 60 << 20,
            cpu_ns: 1_500_000_000,
            wall_ns: 2_000_000_000,
            ticks: 4_000_001_000,
            now_ns: 2_000_001_000,
            ..End::default()
        };
        View::new(77, true, fabric.read().expect("a board"), show::tests::texts(1_999_001_000), None, end)
    }

    #[test]
    fn classes_add_up_to_the_totals() {
        let view = view(&fabric());
        let slabs = view.slabs();
        let sum = |of: fn(&Slab) -> u64| slabs.iter().map(of).sum::<u64>();
        assert_eq!(sum(|slab| slab.active_objs * slab.objsize), view.report.memory.in_use_slab_bytes);
        assert_eq!(sum(|slab| slab.active_objs), view.report.memory.in_use_slab_objects);
        assert_eq!(sum(|slab| slab.sharedavail * slab.objsize), view.report.memory.in_caches);
        assert_eq!(sum(|slab| slab.allocs), view.report.operations.allocs);
        assert_eq!(sum(|slab| slab.frees), view.report.operations.frees);
        let slab = &slabs[3];
        assert_eq!((slab.name.as_str(), slab.objperslab, slab.pagesperslab), ("allot-64", 256, 4));
        assert_eq!((slab.active_objs, slab.num_objs, slab.sharedavail, slab.limit), (50_000, 102_400, 1_000, 1020));
    }

    #[test]
    fn every_name_of_vmstat_is_there_once() {
        let lines = view(&fabric()).vmstat();
        let names: std::collections::BTreeSet<&str> = lines.iter().map(|line| line.name).collect();
        assert_eq!(names.len(), lines.len());
        for name in Level::ALL.iter().map(|at| at.name()).chain(Event::ALL.iter().map(|at| at.name())) {
            assert!(names.contains(name), "{name}");
        }
    }
}
