//! # Whether a program runs on Allotment
//!
//! ```text
//!   allotment run -- LAUNCHER … PROGRAM        one process, several images: which of them had the library?
//!        │  looks at the process now and then: is a board or the library mapped?
//!        └─ reads, at its end, the board that it was given, or else the one that it published
//! ```
//! A launcher may drop the environment, or become a user or a file that the library does not reach. Two looks in a row that find
//! the same program without it are one line, at once; a program that ends before that is known by what it left: no board, or one that
//! the image which wrote it did not close (`Board::ended`) although the process ended by itself and under another name.
//!
//! Cost: a few reads of `/proc` in the first seconds.

use super::program;
use crate::clock::monotonic_ns;
use crate::file::{Found, euid};
use crate::observe::find;
use crate::proc::{self, Maps};
use crate::term::say;
use allotment_engine::stat::board::{BOARD_BYTES, Board};
use std::fs::{self, File};
use std::mem::offset_of;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// When to look, after the start: one look that is late delays those behind it.
const LOOKS: [u64; 7] = [10, 50, 200, 600, 1500, 5000, 15_000];

/// What is seen of a process from its start to its end.
#[derive(Debug)]
pub struct Watch {
    pid: u32,
    start: Instant,
    start_ns: u64,
    looks: usize,
    /// The board that the process was given.
    given: Option<File>,
    was_given: bool,
    /// The one that it made itself.
    published: Option<File>,
    /// The program that the last look found without the library.
    without: Option<PathBuf>,
    /// The program that it found with the library.
    with: Option<PathBuf>,
    is_said: bool,
    /// When the last look found one without, and when the last program began, as far as the end tells.
    without_ns: u64,
    last_start: u64,
}

impl Watch {
    /// Of a process that was just started; `is_said`: that it runs without.
    pub fn new(pid: u32, given: Option<File>, start_ns: u64, is_said: bool) -> Self {
        let start = Instant::now();
        Self {
            pid,
            start,
            start_ns,
            looks: 0,
            was_given: given.is_some(),
            given,
            published: None,
            without: None,
            with: None,
            is_said,
            without_ns: 0,
            last_start: 0,
        }
    }

    fn due(&self) -> Option<Instant> {
        Some(self.start + Duration::from_millis(*LOOKS.get(self.looks)?))
    }

    /// How long until the next look; `None`: there is none.
    pub fn next(&self) -> Option<Duration> {
        Some(self.due()?.saturating_duration_since(Instant::now()))
    }

    /// Looks, if it is time.
    pub fn look(&mut self) {
        let now = Instant::now();
        let Some(due) = self.due().filter(|&due| due <= now) else { return };
        self.start += now - due;
        self.looks += 1;
        // (One that may not be looked into, or is ending.)
        let Some(maps) = Maps::of(self.pid).ok().filter(|maps| !maps.is_empty()) else { return };
        let has =
            |file: &Option<File>| file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|info| maps.has(&info)));
        let is_on = maps.has_library() || has(&self.given);
        let Ok(program) = proc::program(self.pid) else { return };
        if is_on {
            (self.with, self.without) = (Some(program), None);
            return self.find_published();
        }
        // (In an exec, or its dynamic linker is not that far: nothing is known yet.)
        if !maps.has_libc() && program::inspect(&program).why_not().is_none() {
            return;
        }
        (self.with, self.without_ns) = (None, monotonic_ns());
        if self.without.as_ref() == Some(&program) && !self.is_said {
            self.tell(&program, &self.why(&program));
        }
        self.without = Some(program);
    }

    fn tell(&mut self, program: &Path, why: &str) {
        say(&format!("{} is run without Allotment: {why}", program.display()));
        self.is_said = true;
    }

    /// Why a program runs without.
    fn why(&self, program: &Path) -> String {
        if let Some(why) = program::inspect(program).why_not() {
            return why;
        }
        let preload = proc::variable(self.pid, "LD_PRELOAD").unwrap_or_default();
        if preload.to_string_lossy().contains("liballotment") {
            "the dynamic linker could not load the library there".to_owned()
        } else {
            "what started it dropped LD_PRELOAD from the environment".to_owned()
        }
    }

    fn published_name(&self) -> PathBuf {
        find::name(proc::namespace(std::process::id()).unwrap_or(0), self.pid, "")
    }

    /// What the process publishes itself: one that became another user cannot open what it was given.
    fn find_published(&mut self) {
        let Ok(found) = Found::at(&self.published_name(), false) else { return };
        let own = euid();
        if found.info.uid() == own || own == 0 {
            self.published = found.open(false).ok().or(self.published.take());
        }
    }

    /// When the process has ended: the board of its last image on Allotment. `name` is what it was called at its end, `program` what
    /// was asked for; `has_left` if no signal ended it.
    pub fn end(&mut self, name: Option<&str>, program: &Path, has_left: bool) -> Option<File> {
        self.find_published();
        if self.published.is_some() {
            let _ = fs::remove_file(self.published_name());
        }
        let word = |file: &File, at: usize| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, at as u64).ok().map(|()| u64::from_ne_bytes(word))
        };
        const { assert!(size_of::<Board>() <= BOARD_BYTES) };
        // Of this process, not of an earlier one of its number.
        let is_own = |file: &File| word(file, offset_of!(Board, start_ns)).is_some_and(|start| start >= self.start_ns);
        let board = self.published.take().filter(|file| is_own(file)).or(self.given.take().filter(|file| is_own(file)));
        let is_closed = board.as_ref().is_some_and(|file| word(file, offset_of!(Board, ended)) == Some(1));
        let is_other = name.filter(|name| !name.is_empty()).is_some_and(|name| {
            let is = |path: &Path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
            !is(program) && !self.with.as_deref().is_some_and(is)
        });
        let is_left = board.is_some() && !is_closed && has_left && is_other;
        let start = board.as_ref().and_then(|file| word(file, offset_of!(Board, start_ns)));
        // (One without the library began after whatever was sampled.)
        self.last_start = if is_left { u64::MAX } else { self.without_ns.max(start.unwrap_or(0)) };
        if !self.is_said && is_left {
            let other = name.unwrap_or_default().to_owned();
            self.tell(Path::new(&other), "the library was not reached there, only before");
        }
        board
    }

    /// Whether the process was given a board.
    pub const fn was_given(&self) -> bool {
        self.was_given
    }
    /// After the end: what was sampled before (`CLOCK_MONOTONIC`, ns) is not of its last program; 0: not known.
    pub const fn last_start(&self) -> u64 {
        self.last_start
    }
    /// Whether it was said that the program runs without.
    pub const fn is_said(&self) -> bool {
        self.is_said
    }
    /// Whether the last look found the library.
    pub const fn is_on(&self) -> bool {
        self.with.is_some()
    }
}
