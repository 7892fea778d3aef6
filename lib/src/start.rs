//! # Start: what the environment decides
//!
//! Runs once, at the first allocation or in the library's constructor,
//! whichever comes first; also before libc's own constructors. Opens no file
//! but the board: that which `allotment run` names, or the process's own ([`crate::publish`]).
#![allow(unsafe_code)] // environment and libc

use crate::conf::{KEEP_DEEPBIND, configure, decide, variable};
#[cfg(allotment_preload)]
use crate::heap::HEAP;
use crate::heap::Process;
use crate::process::say;
use allotment_engine::arch::crew::Crew;
use allotment_engine::arch::number::decimal;
use allotment_engine::arch::{PAGE, sys};
use allotment_engine::heap::{Environment, Heap, Opening};
use allotment_engine::knob::{self, DeepBind};
use allotment_engine::stat::BadPointer;
use allotment_engine::stat::board::SHARE_ENV;
use allotment_engine::stat::profile::HEIR_ENV;
use allotment_engine::stat::{Mode, Reason};
use core::ffi::{CStr, c_ulong};
use core::sync::atomic::Ordering::Relaxed;

unsafe extern "C" {
    fn getauxval(kind: c_ulong) -> c_ulong;
    fn __errno_location() -> *mut i32;
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
        crate::bad_free::report(address, wrong);
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
    fn inherit(vforks: u32) {
        crate::memory::PERCPU.units.inherit(vforks);
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

fn start(heap: &Heap<Process>) {
    refuse_pages();
    let knobs = &heap.cache().knobs;
    configure(knobs);
    crate::publish::set_heir(variable(HEIR_ENV));
    if knobs.choice::<DeepBind>() == DeepBind::Keep {
        // Relaxed: a number. (Written only then: it lies on a page of its own, see [`Once`](crate::process::Once).)
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
