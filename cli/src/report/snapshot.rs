//! # A board, read
//!
//! The bytes come from another process that may have been stopped anywhere or
//! may have written anything: lengths and counts are cut to what the layout can
//! hold, and nobody may assume more than that every number is a `u64`.

use allotment_engine::knob::TABLE;
use allotment_engine::stat::board::{
    BOARD_BYTES, Board, CLASSES_MAX, ClassLevels, ClassOps, FIRST_FRONT, KNOBS_MAX, MAGIC, SETS_MAX, SPACES,
    SpaceTally, TALLIES, TALLY_BYTES, TIMES, Tally, Times, VERSION, fold,
};
use allotment_engine::stat::{Event, Level, Timing};
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

/// One class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Bytes of an object; 0 means that there is no such class.
    pub size: u64,
    /// Objects out of slabs.
    pub taken: u64,
    /// Slabs.
    pub slabs: u64,
    /// Objects handed out, summed over the sets.
    pub allocs: u64,
    /// Objects taken back.
    pub frees: u64,
}

/// How long something took, summed over the sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Times by bucket (see [`allotment_engine::stat::board::bucket`]).
    pub buckets: [u64; TIMES],
    /// Ticks together.
    pub ticks: u64,
}

/// Fast and slow operations of one set, all classes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetOps {
    /// Objects and blocks of pages handed out.
    pub allocs: u64,
    /// Taken back.
    pub frees: u64,
}

/// What a board said at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The process, by the id that it has for itself.
    pub pid: u32,
    /// Mode, reason and index, as words.
    pub mode: u32,
    /// Why the mode is what it is.
    pub reason: u32,
    /// What an index is.
    pub index: u32,
    /// Sets made.
    pub sets: u32,
    /// Size classes of slabs.
    pub size_classes: Vec<Class>,
    /// Orders of pages.
    pub page_orders: Vec<Class>,
    /// By [`Level`].
    pub levels: Vec<u64>,
    /// By [`Event`], summed over the sets.
    pub events: Vec<u64>,
    /// Time-stamp counter at the heap's start.
    pub start_ticks: u64,
    /// Monotonic clock at the heap's start.
    pub start_ns: u64,
    /// By [`Timing`].
    pub times: Vec<Histogram>,
    /// Values of the knobs, in the order of their table.
    pub knobs: Vec<u64>,
    /// By set.
    pub by_set: Vec<SetOps>,
    /// Areas that purges took.
    pub purged: u64,
    /// Sets whose numbers are missing, because the file's file system was full.
    pub unseen: u32,
}

/// Why there is no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Nobody wrote a board.
    Empty,
    /// The file is shorter than a board.
    Short,
    /// Another version's board.
    Version(u32),
    /// The file cannot be read.
    Unreadable,
}

impl Missing {
    /// Half a line.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Empty => {
                "it ended too early, dropped LD_PRELOAD, changed its process before its last exec, or could not read its board"
            }
            Self::Short => "the shared board was cut short",
            Self::Version(_) => "the preloaded library is of another version than this command",
            Self::Unreadable => "the shared board cannot be read",
        }
    }
}

/// Numbers at places of one read.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn long(&self, at: usize) -> u64 {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
    fn short(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }
}

impl Snapshot {
    /// Reads the whole board.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn read(file: &File) -> Result<Self, Missing> {
        if file.metadata().is_ok_and(|info| info.is_file() && info.len() < TALLIES as u64) {
            return Err(Missing::Short);
        }
        Self::read_with(|into, at| file.read_exact_at(into, at).is_ok())
    }

    fn read_with(fetch: impl Fn(&mut [u8], u64) -> bool) -> Result<Self, Missing> {
        let mut page = vec![0; BOARD_BYTES];
        if !fetch(&mut page, 0) {
            return Err(Missing::Unreadable);
        }
        let board = Words(&page);
        if board.long(offset_of!(Board, magic)) != MAGIC {
            return Err(Missing::Empty);
        }
        let version = board.short(offset_of!(Board, version));
        if version != VERSION {
            return Err(Missing::Version(version));
        }
        let sets = board.short(offset_of!(Board, sets)).min(SETS_MAX as u32);
        let classes = (board.short(offset_of!(Board, classes)) as usize).min(CLASSES_MAX);
        let size_classes = (board.short(offset_of!(Board, size_classes)) as usize).min(classes);
        let class = |at: usize| {
            let base = offset_of!(Board, class) + at * size_of::<ClassLevels>();
            Class {
                size: board.long(base + offset_of!(ClassLevels, size)),
                slabs: board.long(base + offset_of!(ClassLevels, slabs)),
                ..Class::default()
            }
        };
        let mut all: Vec<Class> = (0..classes).map(class).collect();
        let mut events = vec![0_u64; Event::ALL.len()];
        let mut fronts = [0_u64; 2];
        let mut levels: Vec<u64> =
            (0..Level::ALL.len()).map(|at| board.long(offset_of!(Board, levels) + at * size_of::<u64>())).collect();
        let mut times = vec![Histogram::default(); Timing::ALL.len()];
        let mut by_set = Vec::with_capacity(sets as usize);
        let mut page = vec![0; TALLY_BYTES];
        for set in 0..sets as usize {
            if !fetch(&mut page, (TALLIES + set * TALLY_BYTES) as u64) {
                return Err(Missing::Unreadable);
            }
            let tally = Words(&page);
            let mut own = SetOps::default();
            for (at, class) in all.iter_mut().enumerate() {
                let base = offset_of!(Tally, class) + at * size_of::<ClassOps>();
                let allocs = tally.long(base + offset_of!(ClassOps, allocs));
                let frees = tally.long(base + offset_of!(ClassOps, frees));
                class.allocs = class.allocs.saturating_add(allocs);
                class.frees = class.frees.saturating_add(frees);
                if class.size != 0 {
                    own.allocs = own.allocs.saturating_add(allocs);
                    own.frees = own.frees.saturating_add(frees);
                }
            }
            by_set.push(own);
            for (at, time) in times.iter_mut().enumerate() {
                let base = offset_of!(Tally, times) + at * size_of::<Times>();
                for (bucket, count) in time.buckets.iter_mut().enumerate() {
                    let at = base + offset_of!(Times, buckets) + bucket * size_of::<u64>();
                    *count = count.saturating_add(tally.long(at));
                }
                time.ticks = time.ticks.saturating_add(tally.long(base + offset_of!(Times, ticks)));
            }
            // (Levels are sums modulo 2⁶⁴: what one set took another gave back.)
            for (at, class) in all.iter_mut().enumerate().take(FIRST_FRONT) {
                class.taken = class.taken.wrapping_add(tally.long(offset_of!(Tally, taken) + at * size_of::<u64>()));
            }
            for (at, level) in levels.iter_mut().enumerate() {
                *level = level.wrapping_add(tally.long(offset_of!(Tally, levels) + at * size_of::<u64>()));
            }
            for (at, event) in events.iter_mut().enumerate() {
                *event = event.saturating_add(tally.long(offset_of!(Tally, events) + at * size_of::<u64>()));
            }
            // (What came out and was no allocation may be taken back from another tally: sums modulo 2⁶⁴, too.)
            for class in FIRST_FRONT..CLASSES_MAX {
                let base = offset_of!(Tally, class) + class * size_of::<ClassOps>();
                let words = [offset_of!(ClassOps, allocs), offset_of!(ClassOps, frees)];
                for (sum, at) in fronts.iter_mut().zip(words) {
                    *sum = sum.wrapping_add(tally.long(base + at));
                }
            }
        }
        for (event, sum) in [Event::AreaReuse, Event::AreaFree].into_iter().zip(fronts) {
            let word = &mut events[event as usize];
            *word = word.saturating_add(sum.cast_signed().max(0).cast_unsigned());
        }
        let space = |at: usize| offset_of!(Board, spaces) + at * size_of::<SpaceTally>();
        let differential = (0..SPACES)
            .map(|at| board.long(space(at) + offset_of!(SpaceTally, differential)))
            .fold(0_u64, u64::wrapping_add);
        let purged = (0..SPACES)
            .map(|at| board.long(space(at) + offset_of!(SpaceTally, purged)))
            .fold(0_u64, u64::saturating_add);
        let knobs = (0..TABLE.len().min(KNOBS_MAX))
            .map(|at| board.long(offset_of!(Board, knobs) + at * size_of::<u64>()))
            .collect();
        for (&level, word) in Level::ALL.iter().zip(&mut levels) {
            *word = fold(level, *word, differential);
        }
        all.iter_mut().for_each(|class| class.taken = class.taken.cast_signed().max(0).cast_unsigned());
        let page_orders = all.split_off(size_classes);
        Ok(Self {
            pid: board.short(offset_of!(Board, pid)),
            mode: board.short(offset_of!(Board, mode)),
            reason: board.short(offset_of!(Board, reason)),
            index: board.short(offset_of!(Board, index)),
            sets,
            size_classes: all,
            page_orders,
            levels,
            events,
            start_ticks: board.long(offset_of!(Board, start_ticks)),
            start_ns: board.long(offset_of!(Board, start_ns)),
            times,
            knobs,
            by_set,
            purged,
            unseen: match board.long(offset_of!(Board, unseen)) {
                0 => 0,
                first => sets.saturating_sub(u32::try_from(first).unwrap_or(u32::MAX)),
            },
        })
    }

    /// A level.
    pub fn level(&self, level: Level) -> u64 {
        self.levels.get(level as usize).copied().unwrap_or(0)
    }
    /// An event.
    pub fn event(&self, event: Event) -> u64 {
        self.events.get(event as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use allotment_engine::stat::board::SHARE_BYTES;

    /// A board made by hand.
    pub struct Fabric(pub Vec<u8>);

    impl Fabric {
        pub fn new() -> Self {
            let mut fabric = Self(vec![0; SHARE_BYTES]);
            fabric.long(offset_of!(Board, magic), MAGIC);
            fabric.short(offset_of!(Board, version), VERSION);
            fabric
        }
        pub fn long(&mut self, at: usize, value: u64) {
            self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        pub fn short(&mut self, at: usize, value: u32) {
            self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        pub fn class(&mut self, at: usize, size: u64) {
            self.long(offset_of!(Board, class) + at * size_of::<ClassLevels>(), size);
        }
        pub fn level(&mut self, level: Level, value: u64) {
            self.long(offset_of!(Board, levels) + level as usize * 8, value);
        }
        pub fn ops(&mut self, set: usize, class: usize, allocs: u64, frees: u64) {
            let class = offset_of!(Tally, class) + class * size_of::<ClassOps>();
            let base = TALLIES + set * TALLY_BYTES + class;
            self.long(base, allocs);
            self.long(base + 8, frees);
        }
        pub fn differential(&mut self, set: usize, level: Level, value: u64) {
            self.long(TALLIES + set * TALLY_BYTES + offset_of!(Tally, levels) + level as usize * 8, value);
        }
        pub fn event(&mut self, set: usize, event: Event, value: u64) {
            self.long(TALLIES + set * TALLY_BYTES + offset_of!(Tally, events) + event as usize * 8, value);
        }
        pub fn slabs(&mut self, class: usize, value: u64) {
            let base = offset_of!(Board, class) + class * size_of::<ClassLevels>();
            self.long(base + offset_of!(ClassLevels, slabs), value);
        }
        pub fn taken(&mut self, set: usize, class: usize, value: u64) {
            self.long(TALLIES + set * TALLY_BYTES + offset_of!(Tally, taken) + class * 8, value);
        }
        pub fn time(&mut self, set: usize, timing: Timing, bucket: usize, count: u64, ticks: u64) {
            let base = TALLIES + set * TALLY_BYTES + offset_of!(Tally, times) + timing as usize * size_of::<Times>();
            self.long(base + offset_of!(Times, buckets) + bucket * 8, count);
            self.long(base + offset_of!(Times, ticks), ticks);
        }
        pub fn read(&self) -> Result<Snapshot, Missing> {
            Snapshot::read_with(|into, at| {
                let at = usize::try_from(at).expect("small");
                let Some(from) = self.0.get(at..at + into.len()) else { return false };
                into.copy_from_slice(from);
                true
            })
        }
    }

    #[test]
    fn tallies_are_summed_over_the_sets_made() {
        let mut fabric = Fabric::new();
        fabric.short(offset_of!(Board, sets), 2);
        fabric.short(offset_of!(Board, classes), 3);
        fabric.short(offset_of!(Board, size_classes), 2);
        fabric.class(1, 16);
        fabric.class(2, 4096);
        fabric.ops(0, 1, 10, 4);
        fabric.ops(1, 1, 5, 3);
        fabric.ops(2, 1, 99, 99);
        fabric.ops(1, 2, 7, 7);
        fabric.level(Level::Taken, 100);
        fabric.differential(0, Level::Taken, 20);
        fabric.differential(1, Level::Taken, 10_u64.wrapping_neg());
        fabric.differential(1, Level::Lazy, 10_u64.wrapping_neg());
        fabric.event(0, Event::Fence, 2);
        fabric.event(1, Event::Fence, 3);
        fabric.time(0, Timing::Drain, 3, 5, 5000);
        fabric.time(1, Timing::Drain, 3, 1, 1000);
        fabric.time(2, Timing::Drain, 3, 99, 99);
        let read = fabric.read().expect("a board");
        assert_eq!(read.times[Timing::Drain as usize].buckets[3], 6);
        assert_eq!(read.times[Timing::Drain as usize].ticks, 6000);
        // Class 0 has no size and no operations that count.
        assert_eq!(read.by_set, [SetOps { allocs: 10, frees: 4 }, SetOps { allocs: 12, frees: 10 }]);
        assert_eq!(read.size_classes[1], Class { size: 16, allocs: 15, frees: 7, ..Class::default() });
        assert_eq!(read.page_orders, [Class { size: 4096, allocs: 7, frees: 7, ..Class::default() }]);
        assert_eq!(read.event(Event::Fence), 5);
        assert_eq!((read.level(Level::Taken), read.level(Level::Lazy)), (110, 0));
    }

    #[test]
    fn thousands_of_sets_are_read() {
        let mut fabric = Fabric::new();
        fabric.short(offset_of!(Board, sets), 9000);
        fabric.short(offset_of!(Board, classes), 2);
        fabric.short(offset_of!(Board, size_classes), 2);
        fabric.class(1, 16);
        [1, 8999, 9000].iter().for_each(|&set| fabric.ops(set, 1, 10, 4));
        let read = fabric.read().expect("a board");
        assert_eq!((read.by_set.len(), read.size_classes[1].allocs), (9000, 20));
        assert_eq!(read.by_set[8999], SetOps { allocs: 10, frees: 4 });
    }

    /// An area that came out of a CPU's front in vain is taken back from whichever tally the thread found.
    #[test]
    fn areas_of_fronts_count_as_events() {
        let mut fabric = Fabric::new();
        fabric.short(offset_of!(Board, sets), 2);
        fabric.event(0, Event::AreaReuse, 100);
        fabric.ops(0, FIRST_FRONT, 3_u64.wrapping_neg(), 0);
        fabric.ops(1, FIRST_FRONT, 10, 8);
        fabric.ops(1, CLASSES_MAX - 1, 1, 1);
        let read = fabric.read().unwrap();
        assert_eq!((read.event(Event::AreaReuse), read.event(Event::AreaFree)), (108, 9));
    }

    #[test]
    fn garbage_is_cut_to_the_layout() {
        let mut fabric = Fabric(vec![0xff; SHARE_BYTES]);
        fabric.long(offset_of!(Board, magic), MAGIC);
        fabric.short(offset_of!(Board, version), VERSION);
        let read = fabric.read().expect("a board");
        assert_eq!(read.sets as usize, SETS_MAX);
        assert_eq!(read.size_classes.len(), CLASSES_MAX);
        assert!(read.events.iter().all(|&event| event == u64::MAX));
    }

    #[test]
    fn absence_is_told_apart() {
        let mut fabric = Fabric(vec![0; SHARE_BYTES]);
        assert_eq!(fabric.read().expect_err("empty"), Missing::Empty);
        fabric = Fabric::new();
        fabric.short(offset_of!(Board, version), !VERSION);
        assert_eq!(fabric.read().expect_err("another"), Missing::Version(!VERSION));
        assert_eq!(Fabric(vec![0; 8]).read().expect_err("short"), Missing::Unreadable);
    }
}
