//! # Knobs: one table
//!
//! Name, default, range and meaning of everything that can be set. Help texts,
//! `ALLOTMENT_CONF=key=value,…`, `allotment run --set key=value` and the
//! documentation all come from [`TABLE`]. A bad word is reported in one line ([`BadSetting::explain`], the same everywhere):
//! the command line is refused; in the environment, which many programs may share, it stops none, and the default stays.

use crate::arch::atomic::Ordering::{Relaxed, SeqCst};
use crate::arch::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
use crate::arch::number::decimal;
use core::fmt::{self, Display, Formatter};

/// How a knob's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A count.
    Count,
    /// Bytes: `64M`, `64 MiB`, `67,108,864`.
    Bytes,
    /// One of these words; the value is its position.
    Word(&'static [&'static str]),
    /// Bytes, or one of these words, whose value is its position. (0 is the first word; no number of bytes is as
    /// small as another's position.)
    BytesOr(&'static [&'static str]),
}

/// One knob.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// How it is written.
    pub kind: Kind,
    /// Its value when nobody sets it.
    pub default: u64,
    /// Smallest value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// What it does.
    pub meaning: &'static str,
}

macro_rules! knobs {
    ($($id:ident $name:literal $kind:expr, $default:expr, $min:expr, $max:expr, $meaning:literal;)*) => {
        /// The knobs by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Id { $(#[doc = $meaning] $id),* }
        /// The table.
        pub const TABLE: &[Knob] = &[$(Knob {
            name: $name, kind: $kind, default: $default, min: $min, max: $max, meaning: $meaning,
        }),*];
    };
}

/// A knob whose value is one of some words, and what each of them means to the engine.
pub trait Choice: Copy + 'static {
    /// The knob.
    const ID: Id;
    /// What its words are, in the order of the words.
    const ALL: &'static [Self];
    /// How each is written.
    const WORDS: &'static [&'static str];
}

macro_rules! choices {
    ($($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $choice:ident $word:literal),* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $choice),* }
        impl Choice for $name {
            const ID: Id = Id::$name;
            const ALL: &'static [Self] = &[$(Self::$choice),*];
            const WORDS: &'static [&'static str] = &[$($word),*];
        }
    )*};
}

choices! {
    /// How per-CPU sets are reached.
    Mode {
        /// By sequences where they can be had.
        Auto "auto",
        /// The same, and said where they cannot.
        Sequences "sequences",
        /// By locks.
        Fallback "fallback"
    }
    /// What a set belongs to.
    Index {
        /// The kernel's concurrency id where there is one.
        Auto "auto",
        /// The CPU.
        Cpu "cpu"
    }
    /// What follows a bad pointer.
    BadFree {
        /// A line.
        Report "report",
        /// The end.
        Abort "abort"
    }
    /// Whose child a process must be to leave a reaper.
    ReapParent {
        /// Process 1's.
        Init "init",
        /// Anybody's.
        Any "any"
    }
    /// What becomes of `RTLD_DEEPBIND`.
    DeepBind {
        /// It is taken away.
        Drop "drop",
        /// It stays.
        Keep "keep"
    }
    /// Whether this user sees the board.
    Publish {
        /// No.
        Off "off",
        /// Yes.
        On "on"
    }
    /// How far drains that nobody asked for go.
    Drain {
        /// As the CPU allows.
        Auto "auto",
        /// They ask.
        Gentle "gentle",
        /// They interrupt.
        Expedited "expedited",
        /// There are none.
        Off "off"
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

knobs! {
    Mode "mode" Kind::Word(Mode::WORDS), 0, 0, 2,
        "how per-CPU sets are reached: restartable sequences, or locks";
    Index "index" Kind::Word(Index::WORDS), 0, 0, 1,
        "which set a CPU without one gets: that of the kernel's compact concurrency id where there is one, or one of its own";
    SheafObjects "sheaf_objects" Kind::Count, 1020, 2, 1020,
        "most objects in one sheaf of a CPU's set";
    SheafBytes "sheaf_bytes" Kind::Bytes, 128 * KIB, KIB, MIB,
        "most bytes in one sheaf of a CPU's set";
    CacheShare "cache_share" Kind::Count, 3, 1, 1024,
        "the caches of all CPUs together hold at most one part in this many of the bytes in use, the barns behind them a quarter of that";
    CacheFloor "cache_floor" Kind::Bytes, 4 * MIB, 0, GIB,
        "but may always hold this much";
    LazyShare "lazy_share" Kind::Count, 3, 1, 1024,
        "freed areas and free dirty pages hold at most one part in this many of the bytes lately in use";
    LazyFloor "lazy_floor" Kind::Bytes, MIB, 0, 64 * GIB,
        "but may always hold this much";
    LazyCeiling "lazy_ceiling" Kind::Bytes, 1024 * GIB, 0, 1024 * GIB,
        "and never more than this for each doubling of the CPUs";
    HugeBytes "huge_bytes" Kind::Bytes, 32 * MIB, 0, 1024 * GIB,
        "areas from this size ask for huge pages, but for those whose zeros were asked for (0: none does)";
    HugeZeroBytes "huge_zero_bytes" Kind::Bytes, 0, 0, 1024 * GIB,
        "those of zeros, too, from this size (0: none does: of a table that is touched here and there all would be resident)";
    HugeZoneBytes "huge_zone_bytes" Kind::Bytes, 64 * MIB, 0, 1024 * GIB,
        "small objects' memory asks for huge pages from this size on, where the keeper is there to give back what stays free (0: never)";
    MoveBytes "move_bytes" Kind::Bytes, 2 * MIB, 0, 1024 * GIB,
        "realloc moves areas from this size by page tables instead of copying (0: never)";
    MoveLimit "move_limit" Kind::Count, 4096, 0, 16384,
        "most moved areas at a time; each costs two mappings of the 65,530 that a process may have";
    BadFree "bad_free" Kind::Word(BadFree::WORDS), 0, 0, 1,
        "what follows a foreign, misplaced or doubly freed pointer; abort at the start also checks small objects at each free";
    IdleSeconds "idle_seconds" Kind::Count, 5, 0, 3600,
        "a program that is idle for so long has given its free memory back, by a thread of its own (0: no such thread)";
    KeeperBytes "keeper_bytes" Kind::Bytes, 32 * MIB, 0, 1024 * GIB,
        "that thread is started when so many bytes are in use";
    ReapBytes "reap_bytes" Kind::Bytes, 0, 0, 1024 * GIB,
        "a process that ends with so many bytes resident has its heap freed after its death, by a task that it leaves behind (0: never)";
    ReapParent "reap_parent" Kind::Word(ReapParent::WORDS), 0, 0, 1,
        "whose child a process must be to leave that task: process 1's, which alone inherits it then, or anybody's, where a subreaper may find it among its children";
    DeepBind "deepbind" Kind::Word(DeepBind::WORDS), 0, 0, 1,
        "what becomes of dlopen's RTLD_DEEPBIND, with which a plug-in would free our memory by the C library's free";
    SyncFree "sync_free" Kind::Bytes, 0, 0, 1 << 46,
        "areas from this size have left memory when free returns (0: memory falls soon after)";
    MaxActive "max_active" Kind::Count, 0, 0, 256,
        "threads of this process that give memory back at a time, the caller of a synchronous free among them (0: by nodes, CPUs, the cgroup's quota and CPU pressure)";
    AsyncFreeThreshold "async_free_threshold" Kind::Count, 65536, 0, 1 << 34,
        "pages waiting to be given back from which threads of their own take part (0: never)";
    MaxGatherBatchCount "max_gather_batch_count" Kind::Count, 19, 1, 4096,
        "batches of 512 pages that such a thread takes of one area at a time";
    Publish "publish" Kind::Word(Publish::WORDS), 0, 0, 1,
        "show counters in /dev/shm to this user's `allotment stat`, `top`, `tune`, `drain` and `purge`, and do what they ask (on under `allotment run`)";
    ProfileBytes "profile_bytes" Kind::Bytes, 0, 0, 1024 * GIB,
        "mean bytes between two samples of the heap profile (0: off; 1: every allocation)";
    Drain "drain" Kind::Word(Drain::WORDS), 0, 0, 3,
        "how far drains that nobody asked for go: expedited interrupts a busy CPU once, gentle asks its owner, auto is gentle on isolated CPUs only";
    SoftLimit "soft_limit" Kind::BytesOr(&["none", "auto"]), 1, MIB, 1 << 46,
        "the heap gives back what is free, and drains caches, so as to have no more than this (auto: by the cgroup's memory.high or limit)";
    HardLimit "hard_limit" Kind::BytesOr(&["none", "cgroup"]), 0, MIB, 1 << 46,
        "a request with which the heap would have more than this is answered with ENOMEM (cgroup: before its limit is reached)";
}

/// Those that are read at the start only.
pub const FIXED: &[Id] = &[Id::Mode, Id::Index, Id::SheafObjects, Id::SheafBytes, Id::DeepBind, Id::Publish];

/// Bytes of the longest area that a CPU's front may hold (see `heap::front`).
pub const FRONT_BYTES: usize = 8 << 20;
/// And of the longest of those that it holds by their length.
pub const GRADED_BYTES: usize = 1 << 20;

/// The values of one heap.
#[derive(Debug)]
pub struct Knobs {
    values: [AtomicU64; TABLE.len()],
    /// What `auto` and `cgroup` are as limits, soft and hard, in bytes; 0: nobody has said.
    cgroup: [AtomicU64; 2],
    /// What fast paths ask of several knobs at once: see [`Knobs::is_easy`], [`Knobs::front_most`] and [`Knobs::graded_most`].
    easy: AtomicBool,
    front_most: AtomicUsize,
    graded_most: AtomicUsize,
}

/// The value of [`Id::SoftLimit`] and [`Id::HardLimit`] that leaves them to the cgroup.
pub const BY_CGROUP: u64 = 1;

impl Default for Knobs {
    fn default() -> Self {
        Self::new()
    }
}

impl Knobs {
    /// Zeros; [`Knobs::reset`] comes before any use.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            values: [const { AtomicU64::new(0) }; TABLE.len()],
            cgroup: [AtomicU64::new(0), AtomicU64::new(0)],
            easy: AtomicBool::new(false),
            front_most: AtomicUsize::new(0),
            graded_most: AtomicUsize::new(0),
        }
    }
    /// The defaults.
    pub fn reset(&self) {
        for (value, knob) in self.values.iter().zip(TABLE) {
            value.store(knob.default, Relaxed);
        }
        self.derive();
    }
    /// A knob's value now.
    #[inline]
    pub fn get(&self, id: Id) -> u64 {
        // Relaxed: a knob is a number; nothing is published through it.
        self.values[id as usize].load(Relaxed)
    }
    /// What a knob of words is set to: its first word, where the value is none of them.
    #[inline]
    #[must_use]
    pub fn choice<C: Choice>(&self) -> C {
        C::ALL.get(self.size(C::ID)).copied().unwrap_or(C::ALL[0])
    }
    /// The value of the knob at a position of [`TABLE`].
    #[must_use]
    pub fn at(&self, at: usize) -> u64 {
        self.values[at].load(Relaxed)
    }
    /// The same as a size of memory.
    #[inline]
    pub fn size(&self, id: Id) -> usize {
        usize::try_from(self.get(id)).unwrap_or(usize::MAX)
    }
    /// The soft limit in bytes, `u64::MAX` without one.
    #[inline]
    pub fn soft_limit(&self) -> u64 {
        self.limit(Id::SoftLimit, 0)
    }
    /// The hard limit in bytes, `u64::MAX` without one.
    #[inline]
    pub fn hard_limit(&self) -> u64 {
        self.limit(Id::HardLimit, 1)
    }
    #[inline]
    fn limit(&self, id: Id, which: usize) -> u64 {
        let value = self.get(id);
        // Relaxed: as in `get`.
        let bytes = if value == BY_CGROUP { self.cgroup[which].load(Relaxed) } else { value };
        if bytes == 0 { u64::MAX } else { bytes }
    }
    /// Tells what the memory cgroup allows: bytes above which it is slowed down, and bytes that it may not pass. The
    /// soft limit is then the first, or seven eighths of the second; the hard one fifteen sixteenths of that, so
    /// that a request is refused before the kernel kills: stacks, programs and page tables count there, too.
    pub fn set_cgroup(&self, high: Option<u64>, max: Option<u64>) {
        let soft = [high, max.map(|max| max - max / 8)].into_iter().flatten().min();
        let hard = max.map(|max| max - max / 16);
        for (place, bytes) in self.cgroup.iter().zip([soft, hard]) {
            place.store(bytes.map_or(0, |bytes| bytes.max(1)), Relaxed);
        }
        self.derive();
    }
    /// Sets a knob from its position in [`TABLE`]; the value is checked by [`parse`].
    pub fn set(&self, at: usize, value: u64) {
        self.values[at].store(value, Relaxed);
        self.derive();
    }
    /// Whether frees need not look at what the heap has: there is no soft limit, and they are not synchronous.
    #[inline(always)]
    pub fn is_easy(&self) -> bool {
        // Relaxed: as in `get`.
        self.easy.load(Relaxed)
    }
    /// Bytes of the longest area that a CPU's front may hold: of those that ask for huge pages none.
    #[inline(always)]
    pub fn front_most(&self) -> usize {
        // Relaxed: as in `get`.
        self.front_most.load(Relaxed)
    }
    /// The same of one of the classes of a length each: at most [`GRADED_BYTES`].
    #[inline(always)]
    pub fn graded_most(&self) -> usize {
        // Relaxed: as in `get`.
        self.graded_most.load(Relaxed)
    }
    /// Derives what fast paths ask.
    fn derive(&self) {
        let now = || {
            let easy = self.soft_limit() == u64::MAX && self.get(Id::SyncFree) == 0;
            (easy, self.size(Id::HugeBytes).wrapping_sub(1).min(FRONT_BYTES))
        };
        loop {
            // SeqCst, both: of two threads that set something at once the one whose words stay looks again behind them, and sees both.
            fence(SeqCst);
            let (easy, front_most) = now();
            self.easy.store(easy, Relaxed);
            self.front_most.store(front_most, Relaxed);
            self.graded_most.store(front_most.min(GRADED_BYTES), Relaxed);
            fence(SeqCst);
            if now() == (easy, front_most) {
                return;
            }
        }
    }
}

/// What is wrong with a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSetting {
    /// No knob has that name; the nearest one's position.
    Name(usize),
    /// The value cannot be read or is out of range; the knob's position.
    Value(usize),
    /// There is no `=`; the position of the knob with the nearest name.
    Form(usize),
}

/// Reads one `key=value`; the knob's position in [`TABLE`] and the value.
///
/// # Errors
/// [`BadSetting`], with enough to say what would have been right.
pub fn parse(word: &[u8]) -> Result<(usize, u64), BadSetting> {
    let split = word.iter().position(|&byte| byte == b'=').ok_or_else(|| BadSetting::Form(nearest(word)))?;
    let (name, value) = (&word[..split], &word[split + 1..]);
    let at =
        TABLE.iter().position(|knob| knob.name.as_bytes() == name).ok_or_else(|| BadSetting::Name(nearest(name)))?;
    let knob = &TABLE[at];
    let word = |words: &[&str]| words.iter().position(|w| w.as_bytes() == value).map(|n| n as u64);
    let number = match knob.kind {
        Kind::Word(words) => word(words),
        Kind::Count => number(value, false),
        Kind::Bytes => number(value, true),
        // (A small number is no word.)
        Kind::BytesOr(words) => word(words).or_else(|| number(value, true).filter(|&n| n == 0 || n >= knob.min)),
    };
    number.filter(|&n| knob.takes(n)).map(|n| (at, n)).ok_or(BadSetting::Value(at))
}

impl Knob {
    /// Whether a value is one that it can have.
    #[must_use]
    pub fn takes(&self, value: u64) -> bool {
        let is_word = matches!(self.kind, Kind::BytesOr(words) if value < words.len() as u64);
        is_word || (self.min..=self.max).contains(&value)
    }
    /// What it takes, in words.
    #[must_use]
    pub fn range(&self) -> impl Display {
        let Self { kind, min, max, .. } = *self;
        fmt::from_fn(move |f| match kind {
            Kind::Word(words) => list(f, "one of ", words, ""),
            Kind::Count => write!(f, "a number from {min} to {max}"),
            Kind::Bytes => write!(f, "bytes from {} to {}", short(min), short(max)),
            Kind::BytesOr(words) => {
                list(f, "", words, " or ")?;
                write!(f, "bytes from {} to {}", short(min), short(max))
            }
        })
    }
    /// A value as one would write it.
    #[must_use]
    pub fn show(&self, value: u64) -> impl Display {
        let kind = self.kind;
        fmt::from_fn(move |f| {
            let word = |words: &'static [&str]| words.get(usize::try_from(value).ok()?).copied();
            match kind {
                Kind::Count => write!(f, "{value}"),
                Kind::Bytes => write!(f, "{}", short(value)),
                Kind::Word(words) => f.write_str(word(words).unwrap_or("?")),
                Kind::BytesOr(words) => match word(words) {
                    Some(word) => f.write_str(word),
                    None => write!(f, "{}", short(value)),
                },
            }
        })
    }
}

impl BadSetting {
    /// One line about a word that [`parse`] refused: what is wrong, and the knob (or the nearest one) with what it
    /// takes.
    #[must_use]
    pub fn explain(self, word: &[u8]) -> impl Display {
        let at = word.iter().position(|&byte| byte == b'=');
        let (name, value) = (&word[..at.unwrap_or(word.len())], &word[at.map_or(word.len(), |at| at + 1)..]);
        fmt::from_fn(move |f| {
            let (Self::Form(at) | Self::Name(at) | Self::Value(at)) = self;
            let knob = &TABLE[at];
            match self {
                Self::Form(_) if knob.name.as_bytes() == name => write!(f, "`{}` has no value", cut(name))?,
                Self::Form(_) => write!(f, "`{}` is not KEY=VALUE", cut(name))?,
                Self::Name(_) => write!(f, "there is no knob `{}`", cut(name))?,
                Self::Value(_) => write!(f, "`{}` cannot be `{}`", knob.name, cut(value))?,
            }
            if knob.name.as_bytes() == name {
                write!(f, "; it takes {}", knob.range())
            } else {
                write!(f, "; the nearest is `{}`, which takes {}", knob.name, knob.range())
            }
        })
    }
}

fn list(f: &mut Formatter<'_>, before: &str, words: &[&str], after: &str) -> fmt::Result {
    f.write_str(before)?;
    for (at, word) in words.iter().enumerate() {
        f.write_str(if at > 0 { ", " } else { "" })?;
        f.write_str(word)?;
    }
    f.write_str(after)
}

/// Bytes as one would write them.
fn short(bytes: u64) -> impl Display {
    let (shift, suffix) = match bytes.trailing_zeros() {
        30..64 => (30, "G"),
        20..30 => (20, "M"),
        10..20 => (10, "K"),
        _ => (0, ""),
    };
    fmt::from_fn(move |f| write!(f, "{}{suffix}", bytes >> shift))
}

/// A stranger's word, printable and not long.
fn cut(word: &[u8]) -> impl Display {
    const MOST: usize = 48;
    fmt::from_fn(move |f| {
        let rest = if word.len() > MOST { "…" } else { "" };
        write!(f, "{}{rest}", word[..word.len().min(MOST)].escape_ascii())
    })
}

/// A number as people and our own reports write it: `1234567` and `1,234,567`; a size (if `sized`) also as `12K`,
/// `12KiB`, `12.5 MiB` and `64 B`, in powers of 1024.
fn number(text: &[u8], sized: bool) -> Option<u64> {
    let end = text.iter().position(|&byte| !matches!(byte, b'0'..=b'9' | b',' | b'.')).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let shift = if sized { shift(unit)? } else { unit.is_empty().then_some(0)? };
    let dot = digits.iter().position(|&byte| byte == b'.');
    let whole = grouped(&digits[..dot.unwrap_or(digits.len())])?.checked_mul(1 << shift)?;
    let Some(dot) = dot.filter(|_| shift > 0) else { return dot.is_none().then_some(whole) };
    // (Reports have one digit behind the point.)
    let part = &digits[dot + 1..];
    let scale = *[10, 100, 1000].get(part.len().checked_sub(1)?)?;
    whole.checked_add(decimal(part)?.checked_mul(1 << shift)? / scale)
}

/// The power of two that a unit of bytes stands for: nothing, `B`, or `K`, `KB`, `KiB` and so on, in any case, behind a space or not.
fn shift(unit: &[u8]) -> Option<u32> {
    let unit = unit.strip_prefix(b" ").filter(|rest| !rest.is_empty()).unwrap_or(unit);
    let Some((first, rest)) = unit.split_first() else { return Some(0) };
    if unit.eq_ignore_ascii_case(b"B") {
        return Some(0);
    }
    let power = b"KMGTPE".iter().position(|letter| letter.eq_ignore_ascii_case(first))?;
    let ends = rest.is_empty() || rest.eq_ignore_ascii_case(b"B") || rest.eq_ignore_ascii_case(b"iB");
    ends.then_some(10 * (power as u32 + 1))
}

/// Digits, all of them in groups of three by commas or none.
fn grouped(text: &[u8]) -> Option<u64> {
    let mut groups = text.split(|&byte| byte == b',');
    let first = groups.next()?;
    let mut value = decimal(first)?;
    for group in groups {
        if group.len() != 3 || first.len() > 3 {
            return None;
        }
        value = value.checked_mul(1000)?.checked_add(decimal(group)?)?;
    }
    Some(value)
}

/// The knob whose name is fewest edits away.
fn nearest(name: &[u8]) -> usize {
    let mut best = (usize::MAX, 0);
    for (at, knob) in TABLE.iter().enumerate() {
        let distance = distance(name, knob.name.as_bytes());
        if distance < best.0 {
            best = (distance, at);
        }
    }
    best.1
}

/// Levenshtein's distance; words beyond 32 bytes are cut.
fn distance(from: &[u8], to: &[u8]) -> usize {
    let (from, to) = (&from[..from.len().min(32)], &to[..to.len().min(32)]);
    let mut row = [0_usize; 33];
    for (at, cell) in row.iter_mut().enumerate() {
        *cell = at;
    }
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(a != b)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_counts_bytes_and_words() {
        assert_eq!(parse(b"mode=fallback"), Ok((Id::Mode as usize, 2)));
        assert_eq!(parse(b"lazy_floor=2M"), Ok((Id::LazyFloor as usize, 2 << 20)));
        assert_eq!(parse(b"sheaf_objects=8"), Ok((Id::SheafObjects as usize, 8)));
    }

    #[test]
    fn sizes_are_read_as_they_are_printed() {
        let read = |text: &str| number(text.as_bytes(), true);
        for (text, value) in [
            ("0", 0),
            ("64 B", 64),
            ("8m", 8 * MIB),
            ("8MB", 8 * MIB),
            ("8MiB", 8 * MIB),
            ("8 MiB", 8 * MIB),
            ("8.0 MiB", 8 * MIB),
            ("12.3 KiB", 12 * KIB + 307),
            ("1.25G", GIB + GIB / 4),
            ("2TiB", 2 << 40),
            ("313,471,168", 313_471_168),
            ("1,024 KiB", MIB),
        ] {
            assert_eq!(read(text), Some(value), "{text}");
        }
        for text in [
            "",
            " ",
            "K",
            "1.",
            ".5M",
            "1.5",
            "1.5B",
            "1.2345M",
            "1..2M",
            "1,2",
            "1,23",
            "1000,000",
            ",123",
            "1 ",
            "1  K",
            "1KK",
            "1iB",
            "1KBi",
            "-1",
            "+1",
            "0x10",
            "16E",
            "99999999999999999999",
            "1.5.K",
            "1,000.5,0K",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(
            (number(b"65,536", false), number(b"64K", false), number(b"1.0", false)),
            (Some(65_536), None, None)
        );
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(parse(b"mode"), Err(BadSetting::Form(Id::Mode as usize)));
        assert_eq!(parse(b"mod=auto"), Err(BadSetting::Name(Id::Mode as usize)));
        assert_eq!(parse(b"lazy_flor=1"), Err(BadSetting::Name(Id::LazyFloor as usize)));
        assert_eq!(parse(b"mode=fast"), Err(BadSetting::Value(Id::Mode as usize)));
        assert_eq!(parse(b"sheaf_objects=1021"), Err(BadSetting::Value(Id::SheafObjects as usize)));
        assert_eq!(parse(b"sheaf_objects="), Err(BadSetting::Value(Id::SheafObjects as usize)));
        assert_eq!(parse(b"lazy_floor=99999999999999999999G"), Err(BadSetting::Value(Id::LazyFloor as usize)));
    }

    #[test]
    fn defaults_are_in_range() {
        for knob in TABLE {
            assert!(knob.takes(knob.default), "{}", knob.name);
        }
    }

    #[test]
    fn a_word_is_what_the_engine_does() {
        let knobs = Knobs::new();
        knobs.reset();
        assert_eq!((knobs.choice::<Mode>(), knobs.choice::<Drain>()), (Mode::Auto, Drain::Auto));
        let (at, value) = parse(b"drain=expedited").unwrap();
        knobs.set(at, value);
        knobs.set(Id::Mode as usize, 77);
        assert_eq!((knobs.choice::<Mode>(), knobs.choice::<Drain>()), (Mode::Auto, Drain::Expedited));
    }

    #[test]
    fn limits_are_numbers_words_or_the_cgroups() {
        let at = Id::SoftLimit as usize;
        for (word, value) in [("none", 0), ("0", 0), ("auto", 1), ("1M", MIB), ("3G", 3 * GIB)] {
            assert_eq!(parse(std::format!("soft_limit={word}").as_bytes()), Ok((at, value)));
        }
        for word in ["1", "2", "1000K", "cgroup", "", "65537G"] {
            assert_eq!(parse(std::format!("soft_limit={word}").as_bytes()), Err(BadSetting::Value(at)), "{word}");
        }
        let knobs = Knobs::new();
        knobs.reset();
        let limits = || (knobs.soft_limit(), knobs.hard_limit());
        assert_eq!(limits(), (u64::MAX, u64::MAX));
        for (high, max, soft, hard) in [
            (None, Some(1600), 1400, 1500),
            (Some(1000), Some(1600), 1000, 1500),
            (Some(1600), Some(1600), 1400, 1500),
            (Some(700), None, 700, u64::MAX),
            (None, None, u64::MAX, u64::MAX),
        ] {
            knobs.set_cgroup(high, max);
            knobs.set(Id::HardLimit as usize, 0);
            assert_eq!(limits(), (soft, u64::MAX));
            knobs.set(Id::HardLimit as usize, BY_CGROUP);
            assert_eq!(limits(), (soft, hard));
        }
        knobs.set_cgroup(Some(700), Some(1600));
        knobs.set(at, 0);
        assert_eq!(limits(), (u64::MAX, 1500));
        knobs.set(at, MIB);
        assert_eq!(limits(), (MIB, 1500));
    }

    #[test]
    fn fast_paths_are_told_of_what_they_ask() {
        let knobs = Knobs::new();
        assert!(!knobs.is_easy() && knobs.front_most() == 0);
        knobs.reset();
        assert!(knobs.is_easy() && knobs.front_most() == FRONT_BYTES);
        for (id, value, is_easy) in [(Id::SoftLimit, MIB, false), (Id::SoftLimit, 0, true), (Id::SyncFree, 1, false)] {
            knobs.set(id as usize, value);
            assert_eq!(knobs.is_easy(), is_easy);
        }
        knobs.set(Id::SyncFree as usize, 0);
        knobs.set(Id::SoftLimit as usize, BY_CGROUP);
        assert!(knobs.is_easy(), "nobody has said");
        for (max, is_easy) in [(Some(1600), false), (None, true)] {
            knobs.set_cgroup(None, max);
            assert_eq!(knobs.is_easy(), is_easy);
        }
        for (huge, most) in
            [(0, FRONT_BYTES), (8 * MIB, FRONT_BYTES - 1), (8 * MIB + 1, FRONT_BYTES), (40 << 10, (40 << 10) - 1)]
        {
            knobs.set(Id::HugeBytes as usize, huge);
            assert_eq!(knobs.front_most(), most);
        }
    }

    /// Every knob's default and range, as they are shown, are read as what they are.
    #[test]
    fn what_is_shown_can_be_set() {
        for (at, knob) in TABLE.iter().enumerate() {
            for value in [knob.default, knob.min, knob.max].into_iter().filter(|&value| knob.takes(value)) {
                let word = std::format!("{}={}", knob.name, knob.show(value));
                assert_eq!(parse(word.as_bytes()), Ok((at, value)), "{word}");
            }
            for value in [knob.min.wrapping_sub(1), knob.max.wrapping_add(1)] {
                let word = std::format!("{}={value}", knob.name);
                assert!(knob.takes(value) || parse(word.as_bytes()) == Err(BadSetting::Value(at)), "{word}");
            }
        }
    }

    /// The one wording: the library, `--set` and who else asks print these lines.
    #[test]
    fn one_line_names_knob_range_and_nearest() {
        let line = |word: &str| std::format!("{}", parse(word.as_bytes()).unwrap_err().explain(word.as_bytes()));
        for (word, said) in [
            ("mode", "`mode` has no value; it takes one of auto, sequences, fallback"),
            ("mod", "`mod` is not KEY=VALUE; the nearest is `mode`, which takes one of auto, sequences, fallback"),
            ("", "`` is not KEY=VALUE; the nearest is `mode`, which takes one of auto, sequences, fallback"),
            (
                "lazy_flor=1",
                "there is no knob `lazy_flor`; the nearest is `lazy_floor`, which takes bytes from 0 to 64G",
            ),
            ("mode=fast", "`mode` cannot be `fast`; it takes one of auto, sequences, fallback"),
            ("sheaf_objects=1021", "`sheaf_objects` cannot be `1021`; it takes a number from 2 to 1020"),
            ("sheaf_objects=", "`sheaf_objects` cannot be ``; it takes a number from 2 to 1020"),
            ("sheaf_bytes=2M", "`sheaf_bytes` cannot be `2M`; it takes bytes from 1K to 1M"),
            (
                "m\n=\u{1}",
                "there is no knob `m\\n`; the nearest is `mode`, which takes one of auto, sequences, fallback",
            ),
        ] {
            assert_eq!(line(word), said);
        }
        let long = std::format!("{}=1", "x".repeat(100));
        assert!(line(&long).starts_with(&std::format!("there is no knob `{}…`; ", "x".repeat(48))));
    }
}
