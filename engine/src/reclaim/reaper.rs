//! # The reaper: a task that frees a dead process's heap
//!
//! ```text
//!  process ── exit() … handlers … clone ─┬─► _exit ─► dead, but only its tracer knows ──► wait() returns to the parent
//!                                        │                  │ (its memory has another user still)  ▲
//!                                   ready│                  ▼                                      │ waits for it
//!                                  reaper└─ traces, sleeps ─► alone? ─► lets go of all but the heap ┘
//!                                                                       gives the heap back in parallel, ends
//! ```
//! The kernel frees a process's memory before it tells the parent: 8 GiB of 4 KiB pages take 230 ms.
//! A memory that somebody else uses is not freed. So a process that ends with much of it leaves a task
//! that shares the memory and nothing else: no descriptor (a reader of its pipes sees the end at once), no
//! session, group or terminal, no working directory, no signal, no thread-local data. It stays in the
//! cgroup, with the priority and the CPUs of the process, so those who made the garbage pay for it.
//!
//! Off unless asked for: see what is left, below.
//!
//! Invariants:
//! - **A live heap is never touched.** Nothing is released before the kernel itself says that no other task uses
//!   this memory ([`task::is_alone`]). That holds for threads that were slow to die, for a child between
//!   `vfork` and `exec`, and for a process that did not die but became another program. Where the kernel does not
//!   answer that question (a container that forbids `unshare`) there is no reaper.
//! - **The process goes on only when the reaper has dropped all that it shared**, or is gone.
//! - **Whoever waits for the process finds nothing of it but the heap.** The reaper traces the process from before its
//!   end: the kernel tells a tracer of a death first, and the parent when the tracer has waited, or is gone. In between
//!   everything else is unmapped: files, devices, System V memory, libraries; our own code goes on in a copy without
//!   a file, and the process's program is replaced by an empty file without a name, so that the real one can be written
//!   and its mount removed. Whether all of that is permitted is found out before. Where something fails after all, or
//!   others use the memory, the parent is told no earlier than it would be without a reaper.
//! - **A subreaper gets no stranger**, unless the knob `reap_parent` allows it: an orphan goes to the nearest ancestor
//!   that asked for orphans, and the kernel tells nobody which that is; only a child of the first process of the
//!   namespace (or of one outside of it) has no such ancestor for sure.
//! - After the death the reaper reads the windows and takes no lock: a thread that held one is dead.
//! - Once the rest is unmapped only code of this file and of `sys` runs: no C library, no `memcpy`.
//!
//! An orphan is waited for by the first process of its PID namespace. One that does not do that would collect the
//! dead; see [`waits`]. The first process itself leaves none: its namespace ends with it.
//!
//! Not undone until the reaper ends: the memory counts as used, the cgroup has a task and cannot be removed, namespaces
//! and a root directory of its own live on. Nobody is told its CPU time. Freeing is ten times faster than touching, so
//! a program that follows does not run into its predecessor's memory.
//!
//! Cost: see docs/areas.md.
#![allow(unsafe_code)] // tasks, and memory by number

use super::mm::Mm;
use super::state::Reaper;
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicU32, AtomicUsize};
use crate::arch::number::leading;
use crate::arch::sys::{self, Access, Advice, Errno, Range};
use crate::arch::text::Text;
use crate::arch::{ADDRESS_BITS, PAGE, task};
use crate::knob::{Id, ReapParent};
use crate::page::Windows;
use crate::stat::{Event, Level};

/// The name of its task, in lists of processes.
pub const NAME: &core::ffi::CStr = c"allotment-reap";

/// What one task releases at a time.
const PIECE: usize = 256 << 20;
/// Most pieces: 16 TiB.
const PIECES: usize = 1 << 16;
/// Tasks that release. The kernel's own lists of free pages are what they wait for: two a node is what pays.
const TASKS: u32 = 2;
const STACK: usize = 32 << 10;
const STACKS: usize = TASKS as usize * STACK;
/// How long the reaper leaves the CPUs to those who were told of the death, ns.
const HEAD_START: u64 = 1_000_000;
/// Behind the last address of a process.
const END: usize = (1 << ADDRESS_BITS) - PAGE;

/// How far the reaper is, in [`Handover::word`]; zero when it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum State {
    /// It is being made.
    Starting = 1,
    /// It may not trace the process unless the process allows that (Yama).
    Asking,
    /// That is allowed.
    Allowed,
    /// The process may die.
    Ready,
}

/// All that the reaper has: the beginning of a mapping that ends with its stacks.
#[repr(C)]
struct Handover {
    /// How far it is; a futex.
    word: AtomicU32,
    /// The process that dies.
    process: u32,
    /// Tasks that are to release.
    tasks: u32,
    /// Bytes from which it is worth it.
    least: u64,
    /// Where the heap's windows are listed.
    windows: *const Windows,
    /// The code that runs, up to where it is from a file, and where that part's copy is made.
    image: core::ops::Range<usize>,
    file_end: usize,
    copy: usize,
    /// The next piece to be released.
    next: AtomicUsize,
    /// How many there are.
    count: usize,
    pieces: [Range; PIECES],
}

/// Bytes of the mapping.
const HANDOVER: usize = size_of::<Handover>().next_multiple_of(PAGE) + STACKS;

impl Mm<'_> {
    /// Leaves a reaper, if this process, whose number was `own`, is large enough and may; whether it did. For the end of a
    /// process: it takes no lock and may be called in a signal handler, in the child of a `fork` or of a `vfork` (which
    /// leaves none), and by several threads.
    #[must_use]
    pub fn leave_reaper(&self, own: u32) -> bool {
        let Reaper { reaping, reaped } = &self.reclaim.reaper;
        let (knobs, board) = (&self.cache.knobs, self.cache.sets.board());
        let least = knobs.get(Id::ReapBytes);
        let here = board.in_use() + board.level(Level::Lazy) + board.level(Level::PagesDirty);
        if least == 0 || here < least || sys::pid() != own || own == 1 || self.reclaim.keeper.is_confined() {
            return false;
        }
        if knobs.choice::<ReapParent>() == ReapParent::Init && sys::parent_pid() > 1 {
            return false;
        }
        // A handler that ends the process must not wait below for the thread that it interrupted.
        let signals = sys::Signals::block();
        // Relaxed: whoever comes second does nothing. A forked child may leave its own.
        let first = reaping.swap(own, Relaxed) != own;
        let left =
            first && signals.are_blocked() && leave(own, &self.pages.windows, sys::cpus_allowed().min(TASKS), least);
        if first {
            // Release: the reaper is ready, or there is none.
            reaped.store(own, Release);
            sys::futex_wake(reaped, u32::MAX >> 1);
        }
        // Acquire: pairs with the store above. Whoever comes second ends the first.
        loop {
            let seen = reaped.load(Acquire);
            if seen == own {
                break;
            }
            sys::futex_wait(reaped, seen);
        }
        drop(signals);
        if left {
            self.cache.sets.count(Event::Reaper, 1);
        }
        left
    }
}

/// Bytes of this process that are resident.
fn resident() -> u64 {
    let mut text = [0; 128];
    let text = sys::slurp(c"/proc/self/statm", &mut text).unwrap_or(&[]);
    text.split(|&byte| byte == b' ').nth(1).map_or(0, |pages| leading(pages, 10)) * PAGE as u64
}

/// Whether orphans are waited for here, so that no dead reapers collect.
///
/// The first process of the namespace does so if it takes notice of `SIGCHLD` in any way. If it does
/// not, it may still look from time to time, or be no init at all (`sleep` in a container). That shows in our own
/// dead: while there are few of them, a reaper is left.
fn waits() -> bool {
    const CHILD: u64 = 1 << 16;
    const FEW: usize = 8;
    let mut text = [0; 2048];
    let Ok(text) = sys::slurp(c"/proc/1/status", &mut text) else { return false };
    let line = |name: &[u8]| text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name));
    let has = |name| line(name).is_some_and(|mask| leading(mask, 16) & CHILD != 0);
    has(b"SigBlk:") || has(b"SigIgn:") || has(b"SigCgt:") || dead(FEW).is_some_and(|dead| dead < FEW)
}

/// Our own dead that nobody waits for, up to `most`; `None` in a crowd, where looking takes too long.
fn dead(most: usize) -> Option<usize> {
    const CROWD: usize = 1024;
    /// Where a directory entry has its length and name, and the first number behind `(name) `.
    const LENGTH: usize = 16;
    const ENTRY: usize = 19;
    let directory = sys::open(c"/proc", false).ok()?;
    let mut buffer = [0; 4096];
    let (mut seen, mut found) = (0, 0);
    while let Ok(filled) = sys::entries(directory, &mut buffer)
        && filled > 0
    {
        let mut at = 0;
        while let Some(&[low, high, ..]) = buffer[..filled].get(at + LENGTH..) {
            let name = buffer[at + ENTRY..filled].split(|&byte| byte == 0).next().unwrap_or(&[]);
            at += usize::from(u16::from_le_bytes([low, high])).max(ENTRY);
            if !name.first().is_some_and(u8::is_ascii_digit) {
                continue;
            }
            seen += 1;
            found += usize::from(is_dead(name));
        }
        if seen > CROWD || found >= most {
            break;
        }
    }
    sys::close(directory);
    (seen <= CROWD).then_some(found)
}

/// Whether a process is a dead reaper and a child of the first.
fn is_dead(pid: &[u8]) -> bool {
    let mut path = Text::<[u8; 32]>::empty();
    [&b"/proc/"[..], pid, b"/stat"].into_iter().for_each(|part| path.push(part));
    let Some(path) = path.as_c() else { return false };
    let mut text = [0; 128];
    let text = sys::slurp(path, &mut text).unwrap_or(&[]);
    let rest = text.strip_prefix(pid).and_then(|text| text.strip_prefix(b" ("));
    let rest = rest.and_then(|text| text.strip_prefix(NAME.to_bytes()));
    rest.is_some_and(|rest| rest.starts_with(b") Z 1 "))
}

/// Makes the task and waits until it holds nothing but the memory; false if there is none. Signals are blocked.
fn leave(process: u32, windows: &Windows, tasks: u32, least: u64) -> bool {
    let Ok(at) = sys::map(0, HANDOVER, Access::ReadWrite) else { return false };
    let handover = at as *mut Handover;
    // SAFETY: fresh, zeroed and large enough; nobody else knows it yet.
    let word = unsafe {
        (*handover).process = process;
        (*handover).tasks = tasks;
        (*handover).least = least;
        (*handover).windows = windows;
        let (image, file_end) = task::image();
        (&raw mut (*handover).image).write(image);
        (*handover).file_end = file_end;
        (*handover).word.store(State::Starting as u32, Relaxed);
        &(*handover).word
    };
    // SAFETY: the stack and the handover stay mapped as long as the task lives, unless it says that it
    // does not want to; the heap is static. Signals are blocked.
    let made = unsafe { task::spawn(task::PROCESS, at + HANDOVER, word.as_ptr(), reaper, at) };
    // Acquire: what it did before it was ready is done. (It may be killed: then the kernel wakes us.)
    while let (Ok(reaper), state) = (made, word.load(Acquire))
        && ![0, State::Ready as u32].contains(&state)
    {
        if state == State::Asking as u32 {
            const PR_SET_PTRACER: usize = 0x5961_6d61;
            // SAFETY: a number.
            let _ = unsafe { sys::prctl(PR_SET_PTRACER, [reaper, 0, 0, 0]) };
            // Relaxed: the kernel knows. (If it was killed, the word stays what it is.)
            let _ = word.compare_exchange(State::Asking as u32, State::Allowed as u32, Relaxed, Relaxed);
            sys::futex_wake_shared(word);
        } else {
            sys::futex_wait_shared(word, state);
        }
    }
    let left = made.is_ok() && word.load(Acquire) == State::Ready as u32;
    if !left {
        // Nobody else would before we end.
        made.into_iter().for_each(sys::wait_for);
        // SAFETY: no task uses it: there is none, or the kernel has cleared its word.
        let _ = unsafe { sys::unmap(at, HANDOVER) };
    }
    left
}

/// The life of the reaper.
extern "C" fn reaper(handover: usize) -> ! {
    let handover = handover as *mut Handover;
    // SAFETY: our own handover; its creator waits.
    let (word, least, process) = unsafe { (&(*handover).word, (*handover).least, (*handover).process as usize) };
    sys::name_thread(NAME);
    sys::leave_session();
    // (Files are opened in the reaper's own table, where no number can be the program's.)
    let can = sys::own_files().is_ok() && task::is_alone().is_some() && resident() >= least && waits();
    // SAFETY: as above.
    let program = if can && trace(word, process) { unsafe { prepare(handover) } } else { None };
    let Some(program) = program else { sys::exit(true, 0) };
    // Release: pairs with the wait for it.
    word.store(State::Ready as u32, Release);
    sys::futex_wake_shared(word);
    outlive(process);
    let mut told = false;
    if task::is_alone() != Some(true) {
        // Others use this memory, whoever waits for the process: it has all the same effects without us.
        tell(process);
        told = true;
        if !wait_alone() {
            sys::exit(true, 0);
        }
    }
    // SAFETY: nobody else uses this memory: it is ours.
    unsafe { release_all(handover, program, (!told).then_some(process)) }
}

/// Begins to trace the process, so that its death is told here first.
fn trace(word: &AtomicU32, process: usize) -> bool {
    const PTRACE_SEIZE: usize = 0x4206;
    const PTRACE_O_TRACEEXEC: usize = 16;
    // (Another thread may have ended the process meanwhile; then its number may be anybody's, but not our parent's.)
    let is_child = || sys::parent_pid() as usize == process;
    let seize = || sys::trace(PTRACE_SEIZE, process, PTRACE_O_TRACEEXEC);
    match seize() {
        Err(Errno::EPERM) => {}
        done => return done.is_ok() && is_child(),
    }
    // Relaxed: numbers; what is asked for the kernel does.
    word.store(State::Asking as u32, Relaxed);
    sys::futex_wake_shared(word);
    while word.load(Relaxed) == State::Asking as u32 && is_child() {
        sys::futex_wait_shared_for(word, State::Asking as u32, Some(10_000_000));
    }
    is_child() && seize().is_ok() && is_child()
}

/// Finds out whether all but the heap can be let go of later, and gets what is needed for it: the file that is to be
/// this memory's program.
///
/// # Safety
/// The handover is ours.
unsafe fn prepare(handover: *mut Handover) -> Option<usize> {
    const CLONE_NEWUSER: usize = 0x1000_0000;
    // SAFETY: the caller's promise; fresh memory.
    let copied = unsafe {
        let bytes = (*handover).file_end - (*handover).image.start;
        (*handover).copy = sys::map(0, bytes, Access::ReadWrite).ok()?;
        // (Some systems want no code in memory that was written.)
        sys::protect((*handover).copy, bytes, Access::ReadExecute)
            .and_then(|()| sys::protect((*handover).copy, bytes, Access::ReadWrite))
    };
    copied.ok()?;
    let file = sys::nameless_program().ok()?;
    let permitted = |done: Result<usize, Errno>| matches!(done, Ok(_) | Err(Errno::EBUSY));
    // The old one is mapped still: "in use" is the last of the kernel's objections. A name space of one's own gives
    // the right to a process that lacks it.
    let may = permitted(become_program(file)) || sys::unshare(CLONE_NEWUSER).is_ok() && permitted(become_program(file));
    may.then_some(file)
}

/// Makes an open file the program that this memory is of, by whichever way is permitted.
fn become_program(file: usize) -> Result<usize, Errno> {
    const PR_SET_MM: usize = 35;
    const PR_SET_MM_EXE_FILE: usize = 13;
    const PR_SET_MM_MAP: usize = 14;
    /// The kernel's `struct prctl_mm_map`.
    #[repr(C)]
    struct Map {
        places: [usize; 11],
        auxv: usize,
        auxv_size: u32,
        exe_fd: u32,
    }
    // SAFETY: a descriptor; the kernel reads the map. Where what the map says lies is for lists of processes only.
    unsafe {
        sys::prctl(PR_SET_MM, [PR_SET_MM_EXE_FILE, file, 0, 0]).or_else(|_| {
            let somewhere = task::image().0.start;
            let mut map = Map { places: [somewhere; 11], auxv: 0, auxv_size: 0, exe_fd: file as u32 };
            // (Code is not empty.)
            map.places[1] += 1;
            sys::prctl(PR_SET_MM, [PR_SET_MM_MAP, &raw const map as usize, size_of::<Map>(), 0])
        })
    }
}

/// Waits until the process is dead, or became another program. What stops it meanwhile it gets as without a tracer.
fn outlive(process: usize) {
    const PTRACE_CONT: usize = 7;
    const PTRACE_DETACH: usize = 17;
    const PTRACE_LISTEN: usize = 0x4208;
    const PTRACE_EVENT_EXEC: i32 = 4;
    const PTRACE_EVENT_STOP: i32 = 128;
    const CLD_DUMPED: i32 = 3;
    const SIGTRAP: i32 = 5;
    loop {
        match sys::wait_and_leave(process) {
            Err(Errno::EINTR) => {}
            Err(_) | Ok((..=CLD_DUMPED, _)) => return,
            Ok((_, status)) => {
                let (event, signal) = (status >> 8, status & 0x7f);
                let _ = match event {
                    PTRACE_EVENT_EXEC => sys::trace(PTRACE_DETACH, process, 0),
                    PTRACE_EVENT_STOP if signal != SIGTRAP => sys::trace(PTRACE_LISTEN, process, 0),
                    PTRACE_EVENT_STOP => sys::trace(PTRACE_CONT, process, 0),
                    _ => sys::trace(PTRACE_CONT, process, signal as usize),
                };
                if event == PTRACE_EVENT_EXEC {
                    return;
                }
            }
        }
    }
}

/// Lets the process's parent know of the death, if there was one.
fn tell(process: usize) {
    sys::wait_for_dead(process);
}

/// Waits until no other task uses this memory; false if that does not come to pass in a minute.
fn wait_alone() -> bool {
    const LATE: u64 = 1_000_000_000;
    const MINUTE: u64 = 60 * LATE;
    let (mut pause, end) = (50_000, sys::now_ns() + MINUTE);
    while sys::now_ns() < end {
        match task::is_alone() {
            Some(true) => return true,
            None => return false,
            Some(false) => {}
        }
        let _ = sys::signal_wait(0, pause);
        pause = (pause * 2).min(LATE);
    }
    false
}

/// Frees all memory of the calling task and ends it; in between the parent of `process` is told of its death.
///
/// # Safety
/// Nobody else uses any of it.
unsafe fn release_all(handover: *mut Handover, program: usize, process: Option<usize>) -> ! {
    const PR_SET_DUMPABLE: usize = 4;
    // SAFETY: the handover is ours, and nobody else's memory is here. The windows are not written any more, and mapped
    // until below; the copy is as long as the image, and what it replaces it equals.
    let is_let_go = unsafe {
        let _ = sys::prctl(PR_SET_DUMPABLE, [0; 4]);
        let (pieces, windows) = (&mut (*handover).pieces, &*(*handover).windows);
        let (image, copy) = ((*handover).image.clone(), (*handover).copy);
        let bytes = (*handover).file_end - image.start;
        core::ptr::copy_nonoverlapping(image.start as *const u8, copy as *mut u8, bytes);
        let is_code = sys::protect(copy, bytes, Access::ReadExecute).is_ok();
        let kept = [image.clone(), copy..copy + bytes, handover as usize..handover as usize + HANDOVER];
        let mut count = 0;
        let mut add = |at, bytes| {
            if let Some(piece) = pieces.get_mut(count) {
                *piece = Range { at, bytes };
                count += 1;
            }
        };
        kept.into_iter().for_each(|kept| add(kept.start, kept.end - kept.start));
        windows.each_opened(|at, bytes| {
            (0..bytes).step_by(PIECE).for_each(|done| add(at + done, PIECE.min(bytes - done)));
        });
        pieces[..count].sort_unstable_by_key(|piece| piece.at);
        (*handover).count = count;
        // The rest first, for which others may wait: devices, files, locks on them, shared memory.
        let mut at = 0;
        for piece in &pieces[..count] {
            if piece.at > at {
                let _ = sys::unmap(at, piece.at - at);
            }
            at = piece.at + piece.bytes;
        }
        let _ = sys::unmap(at, END - at);
        is_code && sys::move_pages(copy, image.start, bytes).is_ok() && become_program(program).is_ok()
    };
    sys::close(program);
    if is_let_go {
        process.into_iter().for_each(tell);
        // The parent wakes at the same moment: let it go first.
        let _ = sys::signal_wait(0, HEAD_START);
    }
    // (If something is held still, the parent is told by the end of this task, which is to be the last.)
    let others = if is_let_go || process.is_none() { 1..TASKS as usize } else { 0..0 };
    // SAFETY: stacks of the handover.
    unsafe {
        for number in others.take((*handover).tasks as usize - 1) {
            let top = handover as usize + HANDOVER - number * STACK;
            let _ = task::spawn(task::THREAD, top, core::ptr::null_mut(), release, handover as usize);
        }
    }
    release(handover as usize)
}

/// Gives pieces back until there are none; each of the reaper's tasks runs it. The last one's end frees
/// what is left.
extern "C" fn release(handover: usize) -> ! {
    // SAFETY: the handover stays; it is only read now, but for `next`.
    let work = unsafe { &*(handover as *const Handover) };
    let pieces = work.pieces.get(..work.count).unwrap_or(&[]);
    // Relaxed: a number; the pieces were written before this task was made.
    while let Some(piece) = pieces.get(work.next.fetch_add(1, Relaxed)) {
        let own = [handover, work.image.start, work.copy].contains(&piece.at);
        // SAFETY: nobody else uses this memory, and this is neither our code nor our stacks.
        if !own && unsafe { sys::advise(piece.at, piece.bytes, Advice::DontNeed) }.is_err() {
            // SAFETY: as above.
            let _ = unsafe { sys::unmap(piece.at, piece.bytes) };
        }
    }
    sys::exit(false, 0)
}

#[cfg(test)]
mod tests;
