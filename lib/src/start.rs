//! # Start: what the environment decides
//!
//! Runs once, at the first allocation or in the library's constructor,
//! whichever comes first; also before libc's own constructors. Opens no file
//! but the board: that which `allotment run` names, or the process's own ([`crate::publish`]).
#![allow(unsafe_code)] // environment and libc

use crate::HEAP;
use allotment_engine::arch::crew::Crew;
use allotment_engine::arch::number::decimal;
use allotment_engine::arch::rseq::{self, Fence};
use allotment_engine::arch::text::Text;
use allotment_engine::arch::{PAGE, seq::RseqArea, sys};
use allotment_engine::heap::{Environment, Heap, Opening};
use allotment_engine::knob::{self, BadFree, DeepBind, Knobs};
use allotment_engine::stat::BadPointer;
use allotment_engine::stat::board::{CONF_ENV, SHARE_ENV};
use allotment_engine::stat::profile::HEIR_ENV;
use allotment_engine::stat::{Index, Mode, Reason};
use core::ffi::{CStr, c_char, c_ulong};
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

unsafe extern "C" {
    static environ: *const *const c_char;
    fn getauxval(kind: c_ulong) -> c_ulong;
    fn abort() -> !;
    fn __errno_location() -> *mut i32;
}

/// Something that is done once. (True at first, and [`NOBODY`] is not 0: a static with a value lies on a page that the
/// loader writes anyhow. Without one it would cost every process a page that it writes for this alone.)
pub struct Once(AtomicBool);

impl Once {
    /// Not done.
    pub const fn new() -> Self {
        Self(AtomicBool::new(true))
    }
    /// Whether to do it now: true for one caller.
    pub fn is_now(&self) -> bool {
        // Relaxed: what is done is seen by its own means.
        self.0.swap(false, Relaxed)
    }
}

/// In place of a process's number: none.
pub const NOBODY: u32 = u32::MAX;

/// A line for standard error, without memory of its own.
pub struct Line(Text<[u8; 512]>);

impl Line {
    /// Begins with the program's name.
    pub fn new() -> Self {
        let mut line = Self(Text::empty());
        line.0.push(b"allotment: ");
        line
    }
    /// Writes it out, unless nobody reads it: what a program inherits must neither end nor stop it. (A filter may kill for the question.)
    pub fn end(mut self) {
        if HEAP.is_confined() || sys::takes(2) {
            sys::complain(self.0.as_line());
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.write_str(text)
    }
}

/// One line on standard error.
macro_rules! say {
    ($($words:tt)*) => {{
        let mut line = Line::new();
        let _ = write!(line, $($words)*);
        line.end();
    }};
}

/// Ends the process where the kernel's pages are not ours: nothing here could be mapped, or given back, page by page.
fn refuse_pages() {
    const AT_PAGESZ: c_ulong = 6;
    // SAFETY: reads what the kernel gave the process.
    let bytes = unsafe { getauxval(AT_PAGESZ) } as usize;
    if bytes != PAGE && bytes != 0 {
        say!(
            "this kernel's pages have {} KiB, and the library is for pages of {} KiB: run the program without it, or on a kernel with such pages",
            bytes / 1024,
            PAGE / 1024
        );
        sys::exit(true, 127);
    }
}

/// Whether this is a set-uid program or the like.
pub fn is_secure() -> bool {
    const AT_SECURE: c_ulong = 23;
    // SAFETY: reads what the kernel gave the process.
    unsafe { getauxval(AT_SECURE) != 0 }
}

/// A variable of the environment; none in a set-uid program.
fn variable(name: &str) -> Option<&'static [u8]> {
    if is_secure() {
        return None;
    }
    // SAFETY: `environ` is null or an array of strings that ends with null; nobody changes
    // it yet (the heap opens before `main`, or at the program's first allocation).
    unsafe {
        let mut at = if environ.is_null() { early_environment() } else { environ };
        while !at.is_null() && !(*at).is_null() {
            let text = CStr::from_ptr(*at).to_bytes();
            if let Some(value) = text.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

/// The environment before the C library has looked at it: behind the arguments on the stack.
unsafe fn early_environment() -> *const *const c_char {
    unsafe extern "C" {
        static __libc_stack_end: *const usize;
    }
    // SAFETY: the loader keeps the stack pointer of the program's start: argc, argv, null, environment.
    unsafe {
        if __libc_stack_end.is_null() { core::ptr::null() } else { __libc_stack_end.add(2 + *__libc_stack_end).cast() }
    }
}

/// Reads `ALLOTMENT_CONF`; what is wrong costs a line, never the program.
pub fn configure(knobs: &Knobs) {
    knobs.reset();
    let Some(conf) = variable(CONF_ENV) else { return };
    for word in conf.split(|&byte| byte == b',').filter(|word| !word.is_empty()) {
        match knob::parse(word) {
            Ok((at, value)) => knobs.set(at, value),
            Err(wrong) => say!("{CONF_ENV}: {}; ignored", wrong.explain(word)),
        }
    }
}

/// The board's file, if `allotment run` named one for this very process.
fn share() -> Option<usize> {
    let value = variable(SHARE_ENV)?;
    let colon = value.iter().rposition(|&byte| byte == b':')?;
    let pid: u32 = decimal(&value[colon + 1..])?.try_into().ok()?;
    if pid != sys::pid() {
        return None;
    }
    let mut path = [0; 128];
    path.get_mut(..colon)?.copy_from_slice(&value[..colon]);
    sys::open(CStr::from_bytes_until_nul(&path).ok()?, true).ok()
}

/// Decides how sets and units are reached.
pub fn decide(knobs: &Knobs) -> Opening {
    let mut opening = Opening {
        mode: Mode::Fallback,
        reason: Reason::Asked,
        index: Index::Cpu,
        area: RseqArea::default(),
        simulation: None,
        share: None,
    };
    if knobs.choice::<knob::Mode>() == knob::Mode::Fallback {
        return opening;
    }
    let (base, usable) = match rseq::area() {
        Ok(found) => found,
        Err(reason) => return Opening { reason, ..opening },
    };
    // The C library has a place for it, but this thread may not be registered.
    if rseq::word(base + rseq::CPU_ID) as i32 >= 0 {
        opening.reason = if Fence.register().is_ok() { Reason::Tested } else { Reason::Membarrier };
    } else {
        opening.reason = Reason::Unregistered;
    }
    if opening.reason != Reason::Tested {
        return opening;
    }
    if usable >= rseq::MM_CID_BYTES && knobs.choice::<knob::Index>() == knob::Index::Auto {
        opening.index = Index::MmCid;
    }
    let index = if opening.index == Index::MmCid { rseq::MM_CID } else { rseq::CPU_ID_START };
    opening.area = RseqArea { base, index: base + index };
    opening.mode = Mode::Sequences;
    opening
}

/// The process as a heap's environment.
#[derive(Debug)]
pub struct Process;

impl Environment for Process {
    fn start(heap: &Heap<Self>) {
        start(heap);
    }
    fn no_memory() {
        Self::set_error(sys::Errno::ENOMEM.0);
    }
    fn error() -> i32 {
        // SAFETY: the calling thread's errno.
        unsafe { *__errno_location() }
    }
    fn set_error(error: i32) {
        // SAFETY: the calling thread's errno.
        unsafe { *__errno_location() = error };
    }
    fn report(address: usize, wrong: BadPointer) {
        report(address, wrong);
    }
    fn publish() -> Option<usize> {
        crate::publish::file()
    }
    fn withdraw() {
        crate::publish::remove();
    }
    fn percpu_stats(mut out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        crate::percpu::report(&mut out)
    }
    fn start_keeper() -> bool {
        crate::keeper::start()
    }
    fn start_worker() -> bool {
        crate::keeper::start_worker()
    }
    fn crew() -> Option<&'static Crew> {
        Some(&crate::keeper::CREW)
    }
    fn ends() {
        crate::publish::withdraw();
    }
    fn serve(heap: &Heap<Self>) -> bool {
        allotment_engine::control::mailbox::serve(heap)
    }
    fn stack(into: &mut [usize]) -> usize {
        crate::unwind::stack(into)
    }
    fn module(address: usize, path: &mut [u8]) -> Option<(usize, usize)> {
        crate::unwind::module(address, path)
    }
    fn profile_file() -> Option<usize> {
        crate::profile::file()
    }
    fn withdraw_profile() {
        crate::profile::withdraw();
    }
    fn sampled(address: usize, size: usize, weight: u64) {
        crate::profile::sampled(address, size, weight as usize);
    }
    fn unsampled(address: usize) {
        crate::profile::unsampled(address);
    }
    fn is_traced() -> bool {
        crate::profile::is_traced()
    }
}

/// The knob `deepbind`, where assembly finds it (a byte; see `arch::dlopen`).
pub static KEEP_DEEPBIND: AtomicBool = AtomicBool::new(false);

fn start(heap: &Heap<Process>) {
    refuse_pages();
    let knobs = &heap.cache().knobs;
    configure(knobs);
    crate::profile::set_heir(variable(HEIR_ENV));
    if knobs.choice::<DeepBind>() == DeepBind::Keep {
        // Relaxed: a number. (Written only then: it lies on a page of its own, see [`Once`].)
        KEEP_DEEPBIND.store(true, Relaxed);
    }
    let opening = Opening { share: share().or_else(crate::publish::file), ..decide(knobs) };
    // SAFETY: the area is the C library's own; the knobs are set.
    let opened = unsafe { heap.open(&opening) };
    if let Some(file) = opening.share {
        sys::close(file);
    }
    if opened.is_ok()
        && knobs.choice::<knob::Mode>() == knob::Mode::Sequences
        && heap.cache().sets.mode() != Mode::Sequences
    {
        let reason =
            Reason::from_word(heap.cache().sets.board().reason.load(allotment_engine::arch::atomic::Ordering::Relaxed));
        say!("mode=sequences cannot be had here: {}", reason.name());
    }
    // C's malloc is not this heap, so that the C library may allocate here.
    #[cfg(not(allotment_preload))]
    {
        crate::fork::register();
        crate::exit::register();
    }
}

/// Lines about one kind of bad pointer; the rest are counted.
const LINES: u32 = 10;

/// Pointers of one kind that were told of, and the process that counted those beyond [`LINES`].
struct Told {
    count: AtomicU32,
    by: AtomicU32,
}
static TOLD: [Told; BadPointer::ALL.len()] =
    [const { Told { count: AtomicU32::new(0), by: AtomicU32::new(0) } }; BadPointer::ALL.len()];

/// Whose reports these are, where it may be asked.
fn own_pid() -> u32 {
    if HEAP.is_confined() { HEAP.pid() } else { sys::pid() }
}

/// At the end: how many more there were. (A forked child tells of its own.)
pub fn end_reports() {
    for wrong in BadPointer::ALL {
        let (told, what) = (&TOLD[wrong as usize], wrong.what());
        // Relaxed: numbers.
        let more = told.count.load(Relaxed).saturating_sub(LINES);
        if more > 0 && told.by.load(Relaxed) == own_pid() {
            told.count.store(LINES, Relaxed);
            say!("and {more} more, where the pointer {what}");
        }
    }
}

/// Tells of a pointer that cannot be freed; it is left alone.
fn report(address: usize, wrong: BadPointer) {
    let (told, what) = (&TOLD[wrong as usize], wrong.what());
    let stop = HEAP.cache().knobs.choice::<BadFree>() == BadFree::Abort;
    // Relaxed: numbers. (Not beyond the last, where it would begin again.)
    let before = told.count.fetch_update(Relaxed, Relaxed, |count| count.checked_add(1)).unwrap_or(u32::MAX);
    if before >= LINES && !stop {
        let own = own_pid();
        if told.by.swap(own, Relaxed) != own {
            // (A forked child: its parent's are not its.)
            told.count.store(LINES + 1, Relaxed);
        }
        return;
    }
    say!("free({address:#x}): the pointer {what}{}", if stop { "; aborting (knob bad_free)" } else { "; left alone" });
    if stop {
        // SAFETY: ends the process.
        unsafe { abort() };
    }
}

/// The preloaded library's constructor: opens the heap and registers the handlers of fork and exit. (Elsewhere
/// both wait for the first allocation or the first counter: who uses neither pays nothing.)
#[cfg(allotment_preload)]
extern "C" fn constructor() {
    HEAP.prepare();
    crate::abi::look_up();
    crate::operators::prepare();
    crate::fork::register();
    crate::exit::register();
}

#[cfg(allotment_preload)]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
