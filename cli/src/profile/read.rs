//! # A heap profile, read
//!
//! The bytes are another process's, which writes meanwhile, may have been stopped anywhere or may have written
//! anything: what is not a profile is refused with one line, and within one every number is
//! checked before it is used.

use crate::file::Found;
use crate::observe::find;
use crate::proc::{self, Maps, Status};
use allotment_engine::stat::profile::{
    DEPTH, FRAMES, FRAMES_AT, HEAP_SUFFIX, Header, MAGIC, MODULES, MODULES_AT, Module as ModuleWords, PROFILE_BYTES,
    STACKS, STACKS_AT, Stack as StackWords, VERSION,
};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// A file that was mapped at an address of some stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Where its first page was.
    pub start: u64,
    /// Behind its last.
    pub end: u64,
    /// Its path; empty for the program itself.
    pub path: String,
}

/// What samples stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The samples themselves.
    pub samples: i64,
    /// Bytes.
    pub bytes: i64,
    /// 65,536ths of an object.
    pub objects: i64,
}

impl Amount {
    /// What was added since.
    pub fn since(self, before: Self) -> Self {
        Self {
            samples: self.samples.wrapping_sub(before.samples),
            bytes: self.bytes.wrapping_sub(before.bytes),
            objects: self.objects.wrapping_sub(before.objects),
        }
    }
    /// Both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            samples: self.samples.saturating_add(other.samples),
            bytes: self.bytes.saturating_add(other.bytes),
            objects: self.objects.saturating_add(other.objects),
        }
    }
    /// Whole objects.
    pub fn whole(self) -> i64 {
        (self.objects.saturating_add(1 << 15)) >> 16
    }
}

/// A place that allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Return addresses, innermost first.
    pub frames: Vec<u64>,
    /// Ever.
    pub allocated: Amount,
    /// Not freed.
    pub live: Amount,
}

/// A whole profile.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The process, as it counts itself.
    pub pid: u32,
    /// Mean bytes between samples; 0: off now.
    pub mean: u64,
    /// `CLOCK_MONOTONIC` in ns when it was begun.
    pub start_ns: u64,
    /// Samples that were due and not taken: no room.
    pub lost_room: u64,
    /// The same: in a signal's handler.
    pub lost_busy: u64,
    /// Bytes that they would have stood for.
    pub lost_bytes: u64,
    /// Whether the process said that it ended.
    pub ended: bool,
    /// Files.
    pub modules: Vec<Module>,
    /// Stacks.
    pub stacks: Vec<Stack>,
}

/// A word at a place of some bytes.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}
fn half(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes) as usize
}

/// A part of a file, whole.
fn part(file: &File, at: usize, bytes: usize) -> Result<Vec<u8>, String> {
    let mut part = vec![0; bytes];
    file.read_exact_at(&mut part, at as u64).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => "the profile is cut short".to_owned(),
        _ => error.to_string(),
    })?;
    Ok(part)
}

impl Profile {
    /// Reads a file.
    ///
    /// # Errors
    /// One line: what the file is instead.
    pub fn read(file: &File) -> Result<Self, String> {
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        let mut beginning = [0; 16];
        if file.read_exact_at(&mut beginning, 0).is_err() || word(&beginning, 0) != MAGIC {
            let unfinished = length == PROFILE_BYTES as u64 && beginning == [0; 16];
            return Err(if unfinished { "is being made; try again" } else { "is no heap profile of Allotment" }.into());
        }
        let version = half(&beginning, offset_of!(Header, version));
        if version != VERSION as usize {
            return Err(format!(
                "is a profile made by another version than this command ({version:08x}, not {VERSION:08x})"
            ));
        }
        if length < PROFILE_BYTES as u64 {
            return Err("the profile is cut short".into());
        }
        let header = part(file, 0, size_of::<Header>())?;
        let count = |at, most: usize, what| {
            let count = half(&header, at);
            if count > most { Err(format!("is damaged: {count} {what}")) } else { Ok(count) }
        };
        let module_count = count(offset_of!(Header, modules), MODULES, "modules")?;
        let stack_count = count(offset_of!(Header, stacks), STACKS, "stacks")?;
        let frame_count = count(offset_of!(Header, frames), FRAMES, "frames")?;
        let modules = part(file, MODULES_AT, module_count * size_of::<ModuleWords>())?;
        let stacks = part(file, STACKS_AT, stack_count * size_of::<StackWords>())?;
        let frames = part(file, FRAMES_AT, frame_count * 8)?;
        let header_word = |at| word(&header, at);
        let mut profile = Self {
            pid: half(&header, offset_of!(Header, pid)) as u32,
            mean: header_word(offset_of!(Header, mean)),
            start_ns: header_word(offset_of!(Header, start_ns)),
            lost_room: header_word(offset_of!(Header, lost_room)),
            lost_busy: header_word(offset_of!(Header, lost_busy)),
            lost_bytes: header_word(offset_of!(Header, lost_bytes)),
            ended: half(&header, offset_of!(Header, ended)) != 0,
            modules: Vec::with_capacity(module_count),
            stacks: Vec::with_capacity(stack_count),
        };
        for bytes in modules.chunks_exact(size_of::<ModuleWords>()) {
            let path = &bytes[offset_of!(ModuleWords, path)..];
            let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
            profile.modules.push(Module {
                start: word(bytes, offset_of!(ModuleWords, start)),
                end: word(bytes, offset_of!(ModuleWords, end)),
                path: String::from_utf8_lossy(path).into_owned(),
            });
        }
        for bytes in stacks.chunks_exact(size_of::<StackWords>()) {
            let first = half(bytes, offset_of!(StackWords, first));
            let depth = half(bytes, offset_of!(StackWords, depth));
            let Some(frames) = first.checked_add(depth).and_then(|end| frames.get(first * 8..end * 8)) else {
                return Err(format!("is damaged: a stack of {depth} frames at {first}"));
            };
            if depth > DEPTH {
                return Err(format!("is damaged: a stack of {depth} frames"));
            }
            let amount = |samples, bytes_at, objects| Amount {
                samples: word(bytes, samples).cast_signed(),
                bytes: word(bytes, bytes_at).cast_signed(),
                objects: word(bytes, objects).cast_signed(),
            };
            profile.stacks.push(Stack {
                frames: frames.chunks_exact(8).map(|frame| word(frame, 0)).collect(),
                allocated: amount(
                    offset_of!(StackWords, samples),
                    offset_of!(StackWords, allocated_bytes),
                    offset_of!(StackWords, allocated_objects),
                ),
                live: amount(
                    offset_of!(StackWords, live),
                    offset_of!(StackWords, live_bytes),
                    offset_of!(StackWords, live_objects),
                ),
            });
        }
        Ok(profile)
    }

    /// What was added since an earlier reading of the same file.
    pub fn since(mut self, before: &Self) -> Self {
        for (stack, before) in self.stacks.iter_mut().zip(&before.stacks) {
            stack.allocated = stack.allocated.since(before.allocated);
            stack.live = stack.live.since(before.live);
        }
        self.lost_room = self.lost_room.wrapping_sub(before.lost_room);
        self.lost_busy = self.lost_busy.wrapping_sub(before.lost_busy);
        self.lost_bytes = self.lost_bytes.wrapping_sub(before.lost_bytes);
        self
    }

    /// All stacks together: ever, and not freed.
    #[cfg(test)]
    pub fn totals(&self) -> (Amount, Amount) {
        let none = Amount::default();
        self.stacks
            .iter()
            .fold((none, none), |(allocated, live), stack| (allocated.plus(stack.allocated), live.plus(stack.live)))
    }
}

/// The file of a running process.
///
/// # Errors
/// One line.
pub fn of_process(pid: u32) -> Result<File, String> {
    let status = Status::of(pid).map_err(|_| format!("there is no process {pid}"))?;
    let namespace = proc::namespace(pid).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => format!("process {pid} belongs to somebody else"),
        _ => format!("process {pid}: {error}"),
    })?;
    let inner = status.ids.last().copied().unwrap_or(pid);
    let name = find::name(namespace, inner, HEAP_SUFFIX);
    let found = Found::below(&proc::root(pid), &name).and_then(|found| {
        let maps = Maps::of(pid)?;
        // A program before its last exec may have left one.
        if maps.has(&found.info) { Ok(found) } else { Err(io::ErrorKind::NotFound.into()) }
    });
    match found.map(|found| (find::foreign(&found.info, &status.users, true), found.open(false))) {
        Ok((Some(why), _)) => Err(format!("process {pid}: its file {} is not believed: {why}", name.display())),
        Ok((None, Ok(file))) => Ok(file),
        Ok((_, Err(error))) | Err(error) => Err(match error.kind() {
            io::ErrorKind::PermissionDenied => format!("process {pid} belongs to somebody else"),
            io::ErrorKind::NotFound => format!(
                "process {pid} has no heap profile: `allotment tune {pid} profile_bytes=512K` switches it on, or `allotment run --set \
                 profile_bytes=512K -- PROGRAM` from the start; and it must have allocated so much since"
            ),
            _ => format!("process {pid}: {}", crate::term::plain(&error)),
        }),
    }
}

/// The file of a process that was started from here.
pub fn of_child(pid: u32) -> PathBuf {
    // (Without /proc a process takes 0 for its namespace.)
    find::name(proc::namespace(std::process::id()).unwrap_or(0), pid, HEAP_SUFFIX)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::io::Write as _;

    /// A profile of two stacks, in a file.
    pub fn sample() -> Vec<u8> {
        let mut bytes = vec![0; PROFILE_BYTES];
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        put(0, MAGIC);
        put(offset_of!(Header, version), u64::from(VERSION) | 77 << 32);
        put(offset_of!(Header, mean), 4096);
        put(offset_of!(Header, modules), 1 | 2 << 32);
        put(offset_of!(Header, frames), 3);
        put(MODULES_AT, 0x1000);
        put(MODULES_AT + 8, 0x9000);
        put(MODULES_AT + 16, u64::from_le_bytes(*b"/lib/a\0\0"));
        for (number, (first, depth)) in [(0, 2_u64), (2, 1)].into_iter().enumerate() {
            let at = STACKS_AT + number * size_of::<StackWords>();
            put(at + offset_of!(StackWords, first), first | depth << 32);
            put(at + offset_of!(StackWords, samples), 5);
            put(at + offset_of!(StackWords, allocated_bytes), 5000);
            put(at + offset_of!(StackWords, allocated_objects), 50 << 16);
            put(at + offset_of!(StackWords, live), 1);
            put(at + offset_of!(StackWords, live_bytes), 1000 + number as u64);
            put(at + offset_of!(StackWords, live_objects), 10 << 16);
        }
        for (at, frame) in [0x1234, 0x2345, 0x7777_0000].into_iter().enumerate() {
            put(FRAMES_AT + at * 8, frame);
        }
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Result<Profile, String> {
        let path = std::env::temp_dir().join(format!(
            "allotment-heap-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        File::create(&path).and_then(|mut file| file.write_all(bytes)).expect("written");
        let profile = Profile::read(&File::open(&path).expect("there"));
        let _ = std::fs::remove_file(&path);
        profile
    }

    #[test]
    fn what_was_written_is_read() {
        let profile = parse(&sample()).expect("whole");
        assert_eq!((profile.pid, profile.mean), (77, 4096));
        assert_eq!(profile.modules, [Module { start: 0x1000, end: 0x9000, path: "/lib/a".into() }]);
        assert_eq!(profile.stacks[0].frames, [0x1234, 0x2345]);
        assert_eq!(profile.stacks[1].frames, [0x7777_0000]);
        let (allocated, live) = profile.totals();
        assert_eq!((allocated.samples, allocated.bytes, allocated.whole()), (10, 10_000, 100));
        assert_eq!((live.samples, live.bytes, live.whole()), (2, 2001, 20));
        let later = profile.clone().since(&profile);
        assert_eq!(later.totals(), (Amount::default(), Amount::default()));
    }

    #[test]
    fn what_is_no_profile_is_refused_in_one_line() {
        let whole = sample();
        assert!(parse(b"").unwrap_err().contains("no heap profile"));
        assert!(parse(b"ALOTHEA").unwrap_err().contains("no heap profile"));
        assert!(parse(&vec![7; PROFILE_BYTES]).unwrap_err().contains("no heap profile"));
        assert!(parse(&vec![0; PROFILE_BYTES]).unwrap_err().contains("being made"));
        assert!(parse(&whole[..5000]).unwrap_err().contains("cut short"));
        let mut other = whole.clone();
        other[8] = !VERSION as u8;
        assert!(parse(&other).unwrap_err().contains("made by another version"));
        let mut wild = whole.clone();
        wild[offset_of!(Header, stacks)..][..4].fill(0xff);
        assert!(parse(&wild).unwrap_err().contains("damaged"));
        let mut deep = whole;
        deep[STACKS_AT + offset_of!(StackWords, depth)] = 200;
        assert!(parse(&deep).unwrap_err().contains("damaged"));
    }

    /// Garbage behind a true beginning: an answer or a line, never a panic.
    #[test]
    fn garbage_is_read_or_refused() {
        let seed =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |age| age.as_nanos()) as u64;
        println!("seed {seed}");
        let (mut random, whole) = (seed | 1, sample());
        let mut draw = move |most: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) as usize % most
        };
        let (mut read, mut refused) = (0, 0);
        for _ in 0..40 {
            let mut bytes = whole.clone();
            for _ in 0..=draw(20) {
                let parts = [(12, 120), (MODULES_AT, 300), (STACKS_AT, 128), (FRAMES_AT, 24)];
                let (from, length) = parts[draw(4)];
                bytes[from + draw(length)] = draw(256) as u8;
            }
            if draw(4) == 0 {
                bytes.truncate(draw(PROFILE_BYTES));
            }
            match parse(&bytes) {
                Ok(profile) => {
                    read += 1;
                    let _ = profile.totals();
                    let _ = profile.clone().since(&profile);
                }
                Err(line) => {
                    refused += 1;
                    assert!(!line.contains('\n'));
                }
            }
        }
        println!("{read} read, {refused} refused");
        assert!(refused > 0);
    }
}
