//! # The texts that a process wrote when it was asked
//!
//! Read by `pread` under the version that is odd while they are written, and again if it has changed. Nothing in them is
//! trusted: places and lengths are cut to the file, letters that a terminal would obey are replaced, a line that does not
//! parse is left out of the numbers (never out of the text).
//!
//! ```text
//! buddyinfo, zoneinfo      text ─► [`Zone`]      sets        index=… ─► [`Set`]
//! percpu_stats             text ─► [`Percpu`]    vmallocinfo range … ─► [`Area`]
//! ```
//!
//! Units: bytes, but for `Zone`s, which count pages as the kernel does.

use crate::term::printable;
use allotment_engine::stat::board::{SECTIONS, SHOW, SHOW_BYTES, Section, Show};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;

/// A CPU number that is none.
pub const NO_CPU: u64 = 0x7fff_ffff;
/// Tries at a text that is being written.
const TRIES: usize = 200;

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// When, by the monotonic clock; 0: never.
    pub at_ns: u64,
    sections: [(String, u64); SECTIONS],
}

impl Texts {
    /// Reads all of them; `None` if nothing was ever written, or what there is cannot be.
    pub fn read(file: &File) -> Option<Self> {
        Self::read_with(|into, at| file.read_exact_at(into, at).is_ok())
    }

    fn read_with(fetch: impl Fn(&mut [u8], u64) -> bool) -> Option<Self> {
        let version = || {
            let mut word = [0; 4];
            fetch(&mut word, (SHOW + offset_of!(Show, version)) as u64).then(|| u32::from_ne_bytes(word))
        };
        for attempt in 0..TRIES {
            let before = version()?;
            if before == 0 {
                return None;
            }
            if before & 1 == 0 {
                let texts = Self::once(&fetch)?;
                if version()? == before {
                    return Some(texts);
                }
            }
            // (A writer takes a millisecond; one that was killed in between never ends.)
            if attempt > 4 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        None
    }

    fn once(fetch: &impl Fn(&mut [u8], u64) -> bool) -> Option<Self> {
        let mut head = vec![0; size_of::<Show>()];
        if !fetch(&mut head, SHOW as u64) {
            return None;
        }
        let long = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let mut texts = Self { at_ns: long(offset_of!(Show, at_ns)), ..Self::default() };
        for (number, (text, cut)) in texts.sections.iter_mut().enumerate() {
            let word = |at: usize| long(offset_of!(Show, sections) + number * 24 + at * 8);
            let (begin, bytes) = (word(0).min(SHOW_BYTES as u64), word(1));
            let mut content = vec![0; bytes.min(SHOW_BYTES as u64 - begin) as usize];
            if !fetch(&mut content, SHOW as u64 + begin) {
                return None;
            }
            *text = String::from_utf8_lossy(&content).lines().map(|line| printable(line) + "\n").collect();
            *cut = word(2);
        }
        Some(texts)
    }

    /// A section's text.
    pub fn text(&self, section: Section) -> &str {
        &self.sections[section as usize].0
    }
    /// Bytes of it that had no room.
    pub fn cut(&self, section: Section) -> u64 {
        self.sections[section as usize].1
    }
    /// For tests: texts made by hand.
    #[cfg(test)]
    pub fn made(at_ns: u64, made: &[(Section, &str)]) -> Self {
        let mut texts = Self { at_ns, ..Self::default() };
        for &(section, text) in made {
            texts.sections[section as usize].0 = text.to_owned();
        }
        texts
    }
}

/// The number behind a name.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// A list of pages of a CPU index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pageset {
    /// The CPU index.
    pub cpu: u64,
    /// Of its pages.
    pub order: u64,
    /// Blocks in it.
    pub count: u64,
    /// How many it may hold.
    pub high: u64,
    /// How many are moved at a time.
    pub batch: u64,
}

/// A zone, in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// Its node.
    pub node: u64,
    /// Its name.
    pub zone: String,
    /// Free, watermarks and the rest by name.
    pub pages: BTreeMap<String, u64>,
    /// Lists.
    pub pagesets: Vec<Pageset>,
}

/// Zones of `zoneinfo`.
pub fn zones(text: &str) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in text.lines() {
        if let Some((node, zone)) = head(line) {
            zones.push(Zone { node, zone, ..Zone::default() });
            continue;
        }
        let Some(zone) = zones.last_mut() else { continue };
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["pages", "free", value] => {
                number(value).map(|value| zone.pages.insert("free".to_owned(), value));
            }
            ["cpu:", cpu, "order:", order] => {
                if let (Some(cpu), Some(order)) = (number(cpu), number(order)) {
                    zone.pagesets.push(Pageset { cpu, order, ..Pageset::default() });
                }
            }
            [name, value] => {
                let Some(value) = number(value) else { continue };
                match (name, zone.pagesets.last_mut()) {
                    ("count:", Some(list)) => list.count = value,
                    ("high:", Some(list)) => list.high = value,
                    ("batch:", Some(list)) => list.batch = value,
                    _ => {
                        zone.pages.insert(name.to_owned(), value);
                    }
                }
            }
            _ => {}
        }
    }
    zones
}

/// `Node 0, zone   Normal` at a line's beginning.
fn head(line: &str) -> Option<(u64, String)> {
    let (node, rest) = line.strip_prefix("Node ")?.split_once(',')?;
    Some((number(node)?, rest.trim_start().strip_prefix("zone")?.split_whitespace().next()?.to_owned()))
}

/// Free blocks of a zone by order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Buddy {
    /// Its node.
    pub node: u64,
    /// Its name.
    pub zone: String,
    /// Free blocks of order 0 first.
    pub free: Vec<u64>,
}

/// Zones of `buddyinfo`.
pub fn buddies(text: &str) -> Vec<Buddy> {
    let buddy = |line: &str| {
        let (node, zone) = head(line)?;
        let rest = line.split_once("zone")?.1;
        let free = rest.split_whitespace().skip(1).map(number).collect::<Option<_>>()?;
        Some(Buddy { node, zone, free })
    };
    text.lines().filter_map(buddy).collect()
}

/// What a CPU's set holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Set {
    /// Its CPU index.
    pub index: u64,
    /// The CPU that the index was on last; none: nobody used it.
    pub cpu: Option<u64>,
    /// The node whose memory it holds.
    pub node: u64,
    /// Objects and blocks of pages.
    pub objects: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Its owner has given it up.
    pub parked: bool,
}

/// Sets of `sets`.
pub fn sets(text: &str) -> Vec<Set> {
    let set = |line: &str| {
        let value =
            |name: &str| number(line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?);
        Some(Set {
            index: value("index")?,
            cpu: value("cpu").filter(|&cpu| cpu != NO_CPU),
            node: value("node")?,
            objects: value("objects")?,
            bytes: value("bytes")?,
            parked: value("parked") == Some(1),
        })
    };
    text.lines().filter_map(set).collect()
}

/// An area of `vmallocinfo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Area {
    /// Where it begins.
    pub start: String,
    /// And the first byte behind it.
    pub end: String,
    /// Bytes.
    pub bytes: u64,
    /// Pages.
    pub pages: u64,
    /// Freed, still mapped.
    pub lazy: bool,
    /// Other words: huge, guard, moved, giant.
    pub flags: Vec<String>,
}

/// Areas, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Areas {
    /// By address.
    pub areas: Vec<Area>,
    /// Beyond those that are listed.
    pub more: u64,
    /// Bytes of them.
    pub more_bytes: u64,
}

/// Areas of `vmallocinfo`.
pub fn areas(text: &str) -> Areas {
    let mut all = Areas::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["...", more, "more", "areas,", bytes, "bytes"] => {
                all.more = number(more).unwrap_or(0);
                all.more_bytes = number(bytes).unwrap_or(0);
            }
            [range, bytes, pages, state, ref flags @ ..] => {
                let area = || {
                    let (start, end) = range.split_once('-')?;
                    let of = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
                    let (from, to, bytes) = (of(start)?, of(end)?, number(bytes)?);
                    (to.checked_sub(from)? == bytes).then_some(())?;
                    let lazy = match state {
                        "lazy" => true,
                        "busy" => false,
                        _ => return None,
                    };
                    let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
                    let pages = number(pages.strip_prefix("pages=")?)?;
                    Some(Area { start: start.to_owned(), end: end.to_owned(), bytes, pages, lazy, flags })
                };
                all.areas.extend(area());
            }
            _ => {}
        }
    }
    all
}

/// `percpu_stats` in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percpu {
    /// Of the whole space.
    pub totals: BTreeMap<String, u64>,
    /// Of each chunk.
    pub chunks: Vec<BTreeMap<String, u64>>,
}

/// The kernel's `name : value` lines; a line without value begins a chunk.
pub fn percpu(text: &str) -> Percpu {
    let mut all = Percpu::default();
    let mut in_chunks = false;
    for line in text.lines() {
        if line.starts_with("Per Chunk Stats") {
            in_chunks = true;
        } else if in_chunks && line.starts_with("Chunk") {
            all.chunks.push(BTreeMap::new());
        } else if let Some((name, value)) = line.split_once(':')
            && let Some(value) = number(value)
        {
            let into = if in_chunks { all.chunks.last_mut() } else { Some(&mut all.totals) };
            into.map(|map| map.insert(name.trim().to_owned(), value));
        }
    }
    all
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use allotment_engine::stat::board::SHARE_BYTES;

    /// Texts as a process writes them.
    pub const ZONEINFO: &str = "Node 0, zone   Normal\n  pages free     130\n        boost    0\n        min      11\n        low      13\n        high     15\n        spanned  512\n        present  512\n        managed  512\n      nr_free_pages 130\n      nr_free_dirty 30\n  pagesets\n    cpu: 0 order: 0\n              count:    7\n              high:     126\n              batch:    16\n    cpu: 1 order: 9\n              count:    1\n              high:     2\n              batch:    1\n";
    pub const BUDDYINFO: &str =
        "Node 0, zone   Normal      2      0     16      1      0      0      1      0      0      0      0 \n";
    pub const SETS: &str = "index=0 cpu=1 node=0 objects=123 bytes=4567 parked=0\nindex=1 cpu=2147483647 node=0 objects=0 bytes=0 parked=1\n";
    pub const VMALLOCINFO: &str = "0x00007f12c0000000-0x00007f12c0101000    1052672 pages=257 busy\n0x00007f12d0000000-0x00007f12d2000000   33554432 pages=8192 lazy huge moved\n... 3 more areas, 4096 bytes\n";
    pub const PERCPU: &str = "Percpu Memory Statistics\nAllocation Info:\n----------------------------------------\n  unit_size           :       262144\n\nGlobal Stats:\n----------------------------------------\n  nr_alloc            :            5\n  nr_chunks           :            1\n\nPer Chunk Stats:\n----------------------------------------\nChunk: <- First Chunk\n  nr_alloc            :            5\n  max_alloc_size      :           64\n";

    /// All of them.
    pub fn texts(at_ns: u64) -> Texts {
        Texts::made(
            at_ns,
            &[
                (Section::Zoneinfo, ZONEINFO),
                (Section::Buddyinfo, BUDDYINFO),
                (Section::Sets, SETS),
                (Section::Vmallocinfo, VMALLOCINFO),
                (Section::PercpuStats, PERCPU),
            ],
        )
    }

    /// Writes texts into a board as the process does.
    pub fn write(into: &mut [u8], texts: &Texts) {
        let mut at = size_of::<Show>();
        let long =
            |into: &mut [u8], at: usize, value: u64| into[SHOW + at..][..8].copy_from_slice(&value.to_ne_bytes());
        for (number, (text, cut)) in texts.sections.iter().enumerate() {
            for (word, value) in [at as u64, text.len() as u64, *cut].into_iter().enumerate() {
                long(into, offset_of!(Show, sections) + number * 24 + word * 8, value);
            }
            into[SHOW + at..][..text.len()].copy_from_slice(text.as_bytes());
            at += text.len();
        }
        long(into, offset_of!(Show, at_ns), texts.at_ns);
        into[SHOW..][..4].copy_from_slice(&2_u32.to_ne_bytes());
    }

    fn fetch(from: &[u8]) -> impl Fn(&mut [u8], u64) -> bool {
        |into, at| {
            let found = usize::try_from(at).ok().and_then(|at| from.get(at..at.checked_add(into.len())?));
            found.is_some_and(|found| {
                into.copy_from_slice(found);
                true
            })
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut board = vec![0; SHARE_BYTES];
        assert_eq!(Texts::read_with(fetch(&board)), None);
        write(&mut board, &texts(9));
        assert_eq!(Texts::read_with(fetch(&board)), Some(texts(9)));
        // Being written for ever.
        board[SHOW] = 3;
        assert_eq!(Texts::read_with(fetch(&board)), None);
        assert_eq!(Texts::read_with(fetch(&board[..SHOW])), None);
    }

    #[test]
    fn a_text_that_changes_meanwhile_is_read_again() {
        let mut board = vec![0; SHARE_BYTES];
        write(&mut board, &texts(9));
        let looks = std::cell::Cell::new(0_u32);
        let read = Texts::read_with(|into, at| {
            let is_version = at == SHOW as u64 && into.len() == 4;
            looks.set(looks.get() + u32::from(is_version));
            let fetched = fetch(&board)(into, at);
            if is_version && looks.get() <= 3 {
                into.copy_from_slice(&(looks.get() * 2).to_ne_bytes());
            }
            fetched
        });
        assert_eq!(read, Some(texts(9)));
        assert!(looks.get() >= 4, "{} looks", looks.get());
    }

    #[test]
    fn texts_become_numbers() {
        let zones = zones(ZONEINFO);
        assert_eq!((zones.len(), zones[0].pages["free"], zones[0].pages["nr_free_dirty"]), (1, 130, 30));
        assert_eq!(zones[0].pagesets[1], Pageset { cpu: 1, order: 9, count: 1, high: 2, batch: 1 });
        let buddies = buddies(BUDDYINFO);
        let pages: u64 = buddies[0].free.iter().enumerate().map(|(order, n)| n << order).sum();
        assert_eq!((buddies[0].free.len(), pages), (11, 2 + 64 + 8 + 64));
        let sets = sets(SETS);
        assert_eq!(sets[0], Set { index: 0, cpu: Some(1), node: 0, objects: 123, bytes: 4567, parked: false });
        assert_eq!((sets[1].cpu, sets[1].parked), (None, true));
        let areas = areas(VMALLOCINFO);
        assert_eq!((areas.areas.len(), areas.more, areas.more_bytes), (2, 3, 4096));
        assert_eq!((areas.areas[1].lazy, areas.areas[1].flags.join(" ").as_str()), (true, "huge moved"));
        let percpu = percpu(PERCPU);
        assert_eq!((percpu.totals["unit_size"], percpu.totals["nr_alloc"]), (262_144, 5));
        assert_eq!((percpu.chunks.len(), percpu.chunks[0]["max_alloc_size"]), (1, 64));
    }

    /// Any bytes: nothing panics, nothing is longer than the file, nothing reaches a terminal that it would obey.
    #[test]
    fn garbage_is_harmless() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..100 {
            let mut board = vec![0; SHARE_BYTES];
            write(&mut board, &texts(9));
            for _ in 0..1 + round * 8 {
                let at = SHOW + (random() % (size_of::<Show>() as u64 + 2048)) as usize;
                board[at] = random() as u8;
            }
            board[SHOW] &= 0xfe;
            board[SHOW] |= 2;
            let Some(texts) = Texts::read_with(fetch(&board)) else { continue };
            for section in
                [Section::Buddyinfo, Section::Zoneinfo, Section::Vmallocinfo, Section::PercpuStats, Section::Sets]
            {
                let text = texts.text(section);
                assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()));
                let _ = (zones(text), buddies(text), sets(text), areas(text), percpu(text));
            }
        }
    }
}
