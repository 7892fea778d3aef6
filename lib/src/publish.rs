//! # Publishing: the board in a file that its owner's other programs read
//!
//! ```text
//! /dev/shm/allotment-<pid namespace>-<pid>      mode 0600, as long as a board, sparse
//! ```
//! Named by the process as its namespace knows it, and by the number of that namespace, because containers may share
//! `/dev/shm`. Made when the heap opens, and afresh in a forked child; what `exec` leaves is replaced by the next
//! image's, or swept by the command like what a killed process leaves. Removed at the process's end, unless
//! `allotment run` waits for it ([`HEIR_ENV`](allotment_engine::stat::profile::HEIR_ENV)).
//! Where there is no `/dev/shm`, or it is full, or somebody else's file has the name, or the process may write no file so
//! long, it runs without. Set-uid programs never publish. A process that filters system calls leaves the file behind,
//! and its children make none.
//!
//! Invariant: the file is open for writing, or mapped so, from its making until its process is gone or has another
//! image. The command's sweep rests on that.
//!
//! Cost: ten system calls at the start, as many in a forked child.

use crate::heap::HEAP;
use crate::process::{NOBODY, is_secure};
use allotment_engine::arch::number::{decimal, leading};
use allotment_engine::arch::sys;
use allotment_engine::arch::text::Text;
use allotment_engine::knob::Publish;
use allotment_engine::stat::board::SHARE_BYTES;
use core::ffi::CStr;
use core::fmt::Write;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The process whose file there is.
static PUBLISHED: AtomicU32 = AtomicU32::new(NOBODY);

/// The process that reads what is published after this one's end.
static HEIR: AtomicU32 = AtomicU32::new(NOBODY);

/// Who waits for it, from the environment.
pub fn set_heir(text: Option<&[u8]>) {
    let number = text.and_then(decimal).and_then(|number| number.try_into().ok());
    HEIR.store(number.unwrap_or(NOBODY), Relaxed);
}

/// Whether the process that started this one reads after its end what it shows.
pub fn has_heir() -> bool {
    // Relaxed: a number.
    HEIR.load(Relaxed) == sys::parent_pid()
}

/// The path of a file of process `pid`; `suffix` says what it is.
pub struct Path(Text<[u8; 96]>);

impl Path {
    /// See [`Path`].
    pub fn of(pid: u32, suffix: &str) -> Self {
        let mut link = [0; 64];
        // `pid:[4026531836]`; without /proc, 0.
        let namespace = sys::link(c"/proc/self/ns/pid", &mut link).unwrap_or(b"");
        let namespace = leading(namespace.strip_prefix(b"pid:[").unwrap_or(b""), 10);
        let mut path = Text::empty();
        // Numbers are at most 20 and 10 digits long: it has room.
        let _ = write!(path, "/dev/shm/allotment-{namespace}-{pid}{suffix}");
        Self(path)
    }
    /// As the system takes it.
    pub fn as_c(&self) -> &CStr {
        self.0.as_c().unwrap_or(c"")
    }
}

/// A file for this process's board, if it is to publish one.
pub fn file() -> Option<usize> {
    if HEAP.cache().knobs.choice::<Publish>() == Publish::Off || is_secure() || HEAP.is_confined() {
        return None;
    }
    let pid = sys::pid();
    let file = sys::create_private(Path::of(pid, "").as_c(), SHARE_BYTES).ok()?;
    // Relaxed: a number that this process alone acts on.
    PUBLISHED.store(pid, Relaxed);
    Some(file)
}

/// The process ends: removes its file, unless somebody waits to read it.
pub fn withdraw() {
    // (A filter may kill for any of what follows.)
    if HEAP.is_confined() {
        return;
    }
    HEAP.note_end();
    // Relaxed: as in `file`.
    if PUBLISHED.load(Relaxed) != NOBODY && !has_heir() {
        remove();
    }
}

/// Removes this process's file; the child of a `vfork`, which shares this memory, is another process.
pub fn remove() {
    let pid = sys::pid();
    // Relaxed: as in `file`.
    if PUBLISHED.compare_exchange(pid, NOBODY, Relaxed, Relaxed).is_ok() {
        sys::unlink(Path::of(pid, "").as_c());
    }
}
