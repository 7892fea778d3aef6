//! # The board: what a process shows of its heap
//!
//! One small mapping of a file that others read: one that `allotment run` made, or the process's own where it
//! publishes (knob `publish`); elsewhere the same layout in private memory. Its pages are made sure of before they are
//! written ([`crate::arch::sys::make_sure`]): a full file system costs what others see, never the process.
//!
//! ```text
//!   0        16 KiB         TALLIES                        TALLIES + 4 KiB × SETS_MAX
//!   ┌────────┬──────────────┬─────────┬─────────┬── … ──┐
//!   │ Board  │ show (4 MiB) │ tally 0 │ tally 1 │       │   one tally (a page) per set ever made
//!   └────────┴──────────────┴─────────┴─────────┴── … ──┘
//! In memory the tallies follow the board, and the texts are a mapping of their own. All of the file but what was used is holes.
//! ```
//! Counters change as the program runs. What must be walked (zones, lists, areas) is written as text into the
//! [`Show`] when somebody asks for it at the [`Mailbox`].
//!
//! Units: bytes unless a name says otherwise. Invariant: every word has one
//! meaning under one [`VERSION`]; readers sum over `0..sets` tallies.
//! A level that every slow path changes has a differential in each tally, as the kernel's `vm_stat_diff`: the level is
//! the board's word and all differentials; the word alone is off by at most [`LEVEL_THRESHOLD`] for each set, and one
//! change for each thread between its two steps. Limits look at the word, reports at the sum.
//! Locks: none; all words are relaxed atomics, a reader sees each word whole.
//! Cost: the fast paths add one `inc` to a word of their own tally, nothing else.
//! An interrupted sequence may have counted before it was aborted, so
//! `allocs` and `frees` are each too high by at most [`Event::SeqAbort`].

use super::event::{Event, Level, Timing};
use super::version::{Hash, fields};
use crate::arch::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::knob;

/// First word of a board ("ALOTMENT", little endian).
pub const MAGIC: u64 = u64::from_le_bytes(*b"ALOTMENT");
/// What a reader must know of a board (see [`super::version`]): of another one nothing can be read.
pub const VERSION: u32 = version();
/// Most sets (and so tallies) a process can have: two for each CPU that Linux can have ([`crate::cpu::INDICES`]), but for the
/// few pages that the board takes (sets and board together are 64 MiB of addresses, see [`crate::arch::seq::TALLY`]).
pub const SETS_MAX: usize = 16_380;
/// Room for classes: size classes of slabs first, then the page orders; in the end those of areas.
pub const CLASSES_MAX: usize = 128;
/// What a set's differential of a level may grow to, in bytes, before it is folded into the board's word.
pub const LEVEL_THRESHOLD: u64 = 32 * 1024;
/// Bytes of the board before the first tally.
pub const BOARD_BYTES: usize = 16 * 1024;
/// Bytes of one tally.
pub const TALLY_BYTES: usize = 4096;
/// Bytes of the text that is written when it is asked for: some 600 for each index, and the areas.
pub const SHOW_BYTES: usize = 4 << 20;
/// Where it begins in the file.
pub const SHOW: usize = BOARD_BYTES;
/// Where the tallies begin in the file.
pub const TALLIES: usize = SHOW + SHOW_BYTES;
/// Bytes of the whole file.
pub const SHARE_BYTES: usize = TALLIES + SETS_MAX * TALLY_BYTES;
/// Room for the values of knobs.
pub const KNOBS_MAX: usize = 64;
/// The last classes of a set, which hold areas (see `heap::front`); their operations count as events, too.
pub const FRONT_CLASSES: usize = 50;
/// The first of them.
pub const FIRST_FRONT: usize = CLASSES_MAX - FRONT_CLASSES;
/// Spaces of areas (see `vmap`): of small pages, of huge pages, and more of small pages.
pub const SPACES: usize = 5;
/// Buckets of a histogram of times: below 2^9 ticks, then one for each power of two.
pub const TIMES: usize = 24;
/// Ticks of the first bucket, as a power of two.
pub const TIMES_SHIFT: u32 = 9;
/// Environment: `PATH:PID`; a process with that id maps the file at PATH as its board.
pub const SHARE_ENV: &str = "ALLOTMENT_SHARE";
/// Environment: `key=value,…`, see [`crate::knob`].
pub const CONF_ENV: &str = "ALLOTMENT_CONF";

/// Words of the board that stand for one of several: the enum, the words that stand for none of them, and the names.
macro_rules! words {
    ($($(#[$outer:meta])* $name:ident else $other:ident { $($(#[$doc:meta])* $item:ident = $word:literal,)* })*) => {
        $(
            $(#[$outer])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[repr(u32)]
            pub enum $name { $($(#[$doc])* $item = $word),* }

            impl $name {
                /// From its word.
                #[must_use]
                pub const fn from_word(word: u32) -> Self {
                    match word {
                        $($word => Self::$item,)*
                        _ => Self::$other,
                    }
                }
            }
        )*
        /// All of them with their words, for [`VERSION`].
        const WORDS: &[(&str, usize)] = &[$($((concat!(stringify!($name), "::", stringify!($item)), $word)),*),*];
    };
}

words! {
    /// How the heap reaches its per-CPU sets.
    Mode else Closed {
        /// Not started yet.
        Closed = 0,
        /// Restartable sequences.
        Sequences = 1,
        /// Locked sets chosen by `getcpu`.
        Fallback = 2,
        /// Interpreted sequences on fake CPUs (tests only).
        Simulated = 3,
    }
    /// Why the mode is what it is.
    Reason else Tested {
        /// Everything a sequence needs was there and the self-test passed.
        Tested = 0,
        /// The knob `mode` asked for it.
        Asked = 1,
        /// No sequences are written for this processor.
        Processor = 2,
        /// The C library has no rseq symbols.
        Libc = 3,
        /// The C library registered no area (old kernel, valgrind, or `glibc.pthread.rseq=0`).
        Unregistered = 4,
        /// The kernel refused `membarrier`.
        Membarrier = 5,
        /// The self-test failed.
        SelfTest = 6,
    }
    /// What says which set a CPU without one gets.
    Index else Cpu {
        /// The CPU's number.
        Cpu = 0,
        /// The kernel's compact per-process concurrency id.
        MmCid = 1,
    }
    /// What can be asked for.
    Request else None {
        /// Nothing.
        None = 0,
        /// Write the [`Show`].
        Show = 1,
        /// Set the knob at the first argument to the second.
        Tune = 2,
        /// Drain: the first argument is a CPU, [`EVERY_CPU`] or [`IDLE_CPUS`]; the second a way (0 auto, 1 gentle,
        /// 2 expedited). Results: bytes, and the other fields of the drain's report in their order.
        Drain = 3,
        /// Drain everything and give all free memory back. Result: bytes.
        Purge = 4,
    }
    /// How it went.
    Reply else Unknown {
        /// Done.
        Done = 0,
        /// There is no such request.
        Unknown = 1,
        /// An argument is out of range.
        Range = 2,
        /// The knob is read at the start only.
        Fixed = 3,
        /// The process filters its system calls and may not.
        Confined = 4,
        /// There is no room for it in the file.
        NoRoom = 5,
    }
    /// Sections of the [`Show`], by what they are in `/proc` or the kernel's debugfs.
    Section else Buddyinfo {
        /// `/proc/buddyinfo`.
        Buddyinfo = 0,
        /// `/proc/zoneinfo`.
        Zoneinfo = 1,
        /// `/proc/vmallocinfo`.
        Vmallocinfo = 2,
        /// `percpu_stats`.
        PercpuStats = 3,
        /// What each CPU's set holds: a line of `name=number` each.
        Sets = 4,
    }
}

impl Mode {
    /// As reports print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Sequences => "sequences",
            Self::Fallback => "fallback",
            Self::Simulated => "simulated",
        }
    }
}

impl Reason {
    /// As reports print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tested => "self-test passed",
            Self::Asked => "asked for by the knob `mode`",
            Self::Processor => "no sequences for this processor",
            Self::Libc => "the C library has no rseq symbols (glibc 2.35 has)",
            Self::Unregistered => "no rseq area is registered",
            Self::Membarrier => "the kernel refused membarrier",
            Self::SelfTest => "the self-test failed",
        }
    }
}

/// What there is of one class.
#[repr(C)]
#[derive(Debug)]
pub struct ClassLevels {
    /// Bytes of an object (or block of pages).
    pub size: AtomicU64,
    /// Slabs of this class.
    pub slabs: AtomicU64,
}

/// What one space of `vmap` counts. On a line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SpaceTally {
    /// Bytes that became lazy here less those taken into use again, not yet in the levels
    /// `Areas` and `Lazy` (which are off by the sum; two's complement).
    pub differential: AtomicU64,
    /// Runs of this space that purges took (the kernel's `nr_purged`).
    pub purged: AtomicU64,
}

/// The first page(s) of the mapping.
#[repr(C)]
#[derive(Debug)]
pub struct Board {
    /// [`MAGIC`]; stored last, so a reader that sees it sees the rest.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process.
    pub pid: AtomicU32,
    /// A [`Mode`].
    pub mode: AtomicU32,
    /// A [`Reason`].
    pub reason: AtomicU32,
    /// An [`Index`].
    pub index: AtomicU32,
    /// Sets made so far: tallies `0..sets` count.
    pub sets: AtomicU32,
    /// Classes in use: size classes, then page orders.
    pub classes: AtomicU32,
    /// How many of them are size classes of slabs.
    pub size_classes: AtomicU32,
    /// Time-stamp counter when the heap started.
    pub start_ticks: AtomicU64,
    /// `CLOCK_MONOTONIC` in ns at the same moment; ticks per ns follow from a later pair.
    pub start_ns: AtomicU64,
    /// Levels by [`Level`].
    pub levels: [AtomicU64; Level::ALL.len()],
    /// Levels by class.
    pub class: [ClassLevels; CLASSES_MAX],
    /// 1 when the process has ended in the usual way, in the image that wrote this.
    pub ended: AtomicU64,
    /// Tallies from this number on are in private memory, because the file's file system was full; 0: none are.
    pub unseen: AtomicU64,
    /// By space of `vmap`.
    pub spaces: [SpaceTally; SPACES],
    /// Values of the knobs, in the order of their table.
    pub knobs: [AtomicU64; KNOBS_MAX],
    /// Where others ask for something.
    pub mailbox: Mailbox,
}

/// Where another process asks this one for something (see `control::mailbox`). Whoever asks holds a lock on the file meanwhile,
/// writes `order` and `arguments`, raises `asked`, rings, and waits until `answered` has followed.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Mailbox {
    /// What the keeper sleeps on (a futex that processes share).
    pub bell: AtomicU32,
    /// Requests so far; stored last.
    pub asked: AtomicU32,
    /// The request that was answered last; stored last (a futex).
    pub answered: AtomicU32,
    /// A [`Request`].
    pub order: AtomicU32,
    /// What it takes.
    pub arguments: [AtomicU64; 2],
    /// A [`Reply`].
    pub status: AtomicU32,
    /// What it gave.
    pub results: [AtomicU64; 8],
}

/// In [`Request::Drain`]: all CPUs.
pub const EVERY_CPU: u64 = u64::MAX;
/// In [`Request::Drain`]: those that run none of the process's threads.
pub const IDLE_CPUS: u64 = u64::MAX - 1;

/// How many sections there are.
pub const SECTIONS: usize = 5;

/// Texts, as they were when somebody last asked.
#[repr(C)]
#[derive(Debug)]
pub struct Show {
    /// Odd while it is being written; a reader that finds another value behind than before reads again.
    pub version: AtomicU32,
    /// `CLOCK_MONOTONIC` in ns; 0 if the process could not tell.
    pub at_ns: AtomicU64,
    /// Where each section begins, from the beginning of the [`Show`]; its bytes; and those that had no room.
    pub sections: [[AtomicU64; 3]; SECTIONS],
    /// The first byte of the text is behind this.
    pub text: [u8; 0],
}

/// How long something took, in ticks, of one set: a histogram and the sum.
#[repr(C)]
#[derive(Debug)]
pub struct Times {
    /// Bucket 0: fewer than `1 << TIMES_SHIFT` ticks; bucket n: fewer than `1 << (TIMES_SHIFT + n)`; the last: any more.
    pub buckets: [AtomicU64; TIMES],
    /// Ticks together.
    pub ticks: AtomicU64,
}

/// The bucket of a time.
#[must_use]
pub const fn bucket(ticks: u64) -> usize {
    let at = (u64::BITS - (ticks >> TIMES_SHIFT).leading_zeros()) as usize;
    if at < TIMES { at } else { TIMES - 1 }
}

/// Fast-path operations of one class on one set.
#[repr(C)]
#[derive(Debug)]
pub struct ClassOps {
    /// Objects handed out by the fast path or a slow path of this set.
    pub allocs: AtomicU64,
    /// Objects taken back.
    pub frees: AtomicU64,
}

/// What fast paths count, in the second half of a [`Tally`]: a set's words are in the first of its page, at the same offsets but
/// for that. A processor that looks for what was stored a moment ago by the twelve lowest bits of its address finds no other word.
#[repr(C, align(2048))]
#[derive(Debug)]
pub struct ByClass(pub [ClassOps; CLASSES_MAX]);

impl core::ops::Deref for ByClass {
    type Target = [ClassOps; CLASSES_MAX];
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// What one set counts; a page of its own.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Tally {
    /// By [`Event`].
    pub events: [AtomicU64; Event::ALL.len()],
    /// By [`Level`]: what this set changed and has not folded into the board yet, modulo 2⁶⁴.
    pub levels: [AtomicU64; Level::ALL.len()],
    /// Objects out of slabs, in use or cached, by class: what this set took less what it gave back, modulo 2⁶⁴.
    pub taken: [AtomicU64; FIRST_FRONT],
    /// By [`Timing`].
    pub times: [Times; Timing::ALL.len()],
    /// By class.
    pub class: ByClass,
}

impl Tally {
    /// An event as this set counted it, areas of its front among them.
    #[must_use]
    pub fn event(&self, event: Event) -> u64 {
        let front = &self.class[FIRST_FRONT..];
        let ops = |word: fn(&ClassOps) -> &AtomicU64| {
            front.iter().fold(0_u64, |sum, ops| sum.wrapping_add(word(ops).load(Relaxed)))
        };
        let front = match event {
            Event::AreaReuse => ops(|ops| &ops.allocs),
            Event::AreaFree => ops(|ops| &ops.frees),
            _ => 0,
        };
        self.events[event as usize].load(Relaxed).wrapping_add(front)
    }
}

/// Of all names and places. (Of events, levels and timings the hash takes the names in their order, which is their number.)
const fn version() -> u32 {
    let mut hash = Hash::new();
    let mut at = 0;
    while at < Event::ALL.len() {
        hash = hash.name(Event::ALL[at].name());
        at += 1;
    }
    at = 0;
    while at < Level::ALL.len() {
        hash = hash.name(Level::ALL[at].name());
        at += 1;
    }
    at = 0;
    while at < Timing::ALL.len() {
        hash = hash.name(Timing::ALL[at].name());
        at += 1;
    }
    at = 0;
    while at < knob::TABLE.len() {
        hash = hash.name(knob::TABLE[at].name);
        at += 1;
    }
    hash.fields(WORDS)
        .fields(
            fields!(Board: magic version pid mode reason index sets classes size_classes start_ticks start_ns levels
            class ended unseen spaces knobs mailbox),
        )
        .fields(fields!(Mailbox: bell asked answered order arguments status results))
        .fields(fields!(ClassLevels: size slabs))
        .fields(fields!(SpaceTally: differential purged))
        .fields(fields!(Show: version at_ns sections text))
        .fields(fields!(Tally: events levels taken times class))
        .fields(fields!(Times: buckets ticks))
        .fields(fields!(ClassOps: allocs frees))
        .number(BOARD_BYTES)
        .number(SHOW)
        .number(TALLIES)
        .number(SHARE_BYTES)
        .number(TIMES_SHIFT as usize)
        .word()
}

const _: () = assert!(size_of::<Board>() <= BOARD_BYTES);
const _: () = assert!(size_of::<Tally>() == TALLY_BYTES);

/// A level with the differentials of the spaces.
#[must_use]
pub fn fold(level: Level, folded: u64, differential: u64) -> u64 {
    let value = match level {
        Level::Areas => folded.wrapping_sub(differential),
        Level::Lazy => folded.wrapping_add(differential),
        _ => folded,
    };
    value.cast_signed().max(0).cast_unsigned()
}

impl Board {
    /// The board's word of a level: one load, without what sets have not folded yet. Where what was raised is lowered
    /// by another thread first it is below zero for a moment, and read as zero.
    #[must_use]
    pub fn level(&self, level: Level) -> u64 {
        // Relaxed: a level is a number for eyes and heuristics, it publishes nothing.
        self.levels[level as usize].load(Relaxed).cast_signed().max(0).cast_unsigned()
    }
    /// What the spaces of `vmap` have not folded yet (see [`fold`]): each one's at most `vmap::DIFFERENTIAL` bytes.
    #[must_use]
    pub fn differentials(&self) -> u64 {
        self.spaces.iter().fold(0, |sum, space| sum.wrapping_add(space.differential.load(Relaxed)))
    }
    /// Raises a level; returns its new value.
    pub fn raise(&self, level: Level, by: usize) -> u64 {
        self.levels[level as usize].fetch_add(by as u64, Relaxed).wrapping_add(by as u64)
    }
    /// Changes a level, up or down.
    pub fn shift(&self, level: Level, by: isize) {
        self.levels[level as usize].fetch_add(by as u64, Relaxed);
    }
    /// Lowers a level.
    pub fn lower(&self, level: Level, by: usize) {
        self.levels[level as usize].fetch_sub(by as u64, Relaxed);
    }
    /// Sets a level.
    pub fn set(&self, level: Level, to: u64) {
        self.levels[level as usize].store(to, Relaxed);
    }
    /// Notes the bytes in use after they grew: the peak and the recent high.
    pub fn grown(&self) {
        self.peak(Level::TakenPeak, self.level(Level::Taken) + self.level(Level::Areas));
        self.peak(Level::Recent, self.in_use());
    }
    /// Bytes in use: objects, areas, and blocks of pages that are the program's own or in lists.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        let [taken, areas, managed, free, slabs] =
            [Level::Taken, Level::Areas, Level::PagesManaged, Level::PagesFree, Level::Slabs].map(|at| self.level(at));
        taken + areas + managed.saturating_sub(free + slabs)
    }
    /// Bytes that the heap has and that may be resident: what is in use, cached or free and dirty, metadata, and what the side
    /// arena gave. What the limits limit. (Areas and lazy ones together are exact, whatever the nodes' differentials; of pages a batch may be
    /// on its way.)
    #[must_use]
    pub fn held(&self) -> u64 {
        // Relaxed: numbers. (Words, not levels: one of them alone may be below nothing for a moment.)
        let word = |level: Level| self.levels[level as usize].load(Relaxed);
        let pages =
            word(Level::PagesManaged).wrapping_sub(word(Level::PagesFree)).wrapping_add(word(Level::PagesDirty));
        let areas = word(Level::Areas).wrapping_add(word(Level::Lazy));
        let others = word(Level::Meta).wrapping_add(word(Level::Aside));
        pages.wrapping_add(areas).wrapping_add(others).cast_signed().max(0).cast_unsigned()
    }
    /// Raises a level to `to` if it is lower.
    pub fn peak(&self, level: Level, to: u64) {
        if self.level(level) < to {
            self.levels[level as usize].fetch_max(to, Relaxed);
        }
    }
}
