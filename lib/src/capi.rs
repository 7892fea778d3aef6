//! # The C library: `include/allotment.h`
//!
//! Every function is the method of [`crate::counter`] with the same name. An event counter's pointer is its address in
//! nobody's unit, so that counting needs no load for it; level and quota counters lie in blocks of memory of our own,
//! because the malloc of the program is none of our business.
#![allow(unsafe_code)] // C

use crate::counter::{Comparison, EventCounter, LevelCounter, Mode, QuotaCounter, indices_in_use, mode};
use crate::memory::PERCPU;
use crate::process::Line;
use allotment_engine::arch::lock::Lock;
use allotment_engine::arch::sys::{self, Access, Errno};
use allotment_engine::percpu::Handle;
use core::ffi::{c_char, c_int, c_uint};
use core::fmt::Write;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};

#[link(name = "c")]
unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// Bytes of a block: any counter.
const BLOCK: usize = 256;
/// Bytes that are mapped at once.
const BLOCKS_BYTES: usize = 64 << 10;
const _: () = assert!(size_of::<LevelCounter>() <= BLOCK && size_of::<QuotaCounter>() <= BLOCK);

/// Free blocks: a list through their first words, and the untouched rest of the last mapping.
struct Free {
    list: usize,
    rest: usize,
    end: usize,
}

/// Where level and quota counters of C lie.
static BLOCKS: Lock<Free> = Lock::new(Free { list: 0, rest: 0, end: 0 });

fn block() -> Option<NonNull<u8>> {
    let _inside = PERCPU.units.gate.enter_patiently();
    let mut free = BLOCKS.lock();
    if free.list != 0 {
        let block = free.list;
        // SAFETY: a free block begins with the address of the next one.
        free.list = unsafe { *(block as *const usize) };
        return NonNull::new(block as *mut u8);
    }
    if free.rest == free.end {
        free.rest = sys::map(0, BLOCKS_BYTES, Access::ReadWrite).ok()?;
        free.end = free.rest + BLOCKS_BYTES;
    }
    free.rest += BLOCK;
    NonNull::new((free.rest - BLOCK) as *mut u8)
}

/// Puts a new counter into a block; null and `ENOMEM` if there is none.
fn place<T>(counter: Result<T, crate::counter::Error>) -> *mut T {
    if let Ok(counter) = counter
        && let Some(block) = block()
    {
        let place = block.as_ptr().cast::<T>();
        // SAFETY: a block is large enough and aligned, and nobody's.
        unsafe { place.write(counter) };
        return place;
    }
    no_memory()
}

fn no_memory<T>() -> *mut T {
    // SAFETY: the calling thread's errno.
    unsafe { *__errno_location() = Errno::ENOMEM.0 };
    ptr::null_mut()
}

/// # Safety
/// The counter is in a block of ours and unused.
unsafe fn unplace<T>(counter: *mut T) {
    if !counter.is_null() {
        // SAFETY: the caller's promise.
        unsafe { counter.drop_in_place() };
        let _inside = PERCPU.units.gate.enter_patiently();
        let mut free = BLOCKS.lock();
        // SAFETY: a block that is free now.
        unsafe { *counter.cast::<usize>() = free.list };
        free.list = counter as usize;
    }
}

/// Defines C functions.
macro_rules! exported {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As `include/allotment.h` says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $out)? $body
    )*};
}

mod area;
mod drain;
mod pages;
mod percpu;

/// An event counter, as C sees it.
#[repr(C)]
pub struct Event([u64; 1]);

/// # Safety
/// It came from `allotment_counter_event_new`.
#[inline(always)]
unsafe fn handle(counter: *const Event) -> Handle {
    // SAFETY: an address in unit 0.
    unsafe { Handle::new(NonZeroUsize::new_unchecked(counter as usize)) }
}

exported! {
    /// `EventCounter::new`.
    fn allotment_counter_event_new() -> *mut Event {
        match EventCounter::new() {
            Ok(counter) => counter.into_handle().address() as *mut Event,
            Err(_) => no_memory(),
        }
    }
    /// Drop.
    fn allotment_counter_event_free(counter: *mut Event) {
        if !counter.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { EventCounter::from_handle(handle(counter)) });
        }
    }
    /// `EventCounter::add`.
    fn allotment_counter_event_add(counter: *mut Event, n: u64) {
        // SAFETY: the caller's promise.
        unsafe { PERCPU.units.add(handle(counter), n) };
    }
    /// `EventCounter::sum`.
    fn allotment_counter_event_sum(counter: *const Event) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { PERCPU.units.sum(handle(counter)) }
    }

    /// `LevelCounter::with_threshold`; 0: the default.
    fn allotment_counter_level_new(threshold: c_uint) -> *mut LevelCounter {
        place(if threshold == 0 { LevelCounter::new() } else { LevelCounter::with_threshold(threshold) })
    }
    /// Drop.
    fn allotment_counter_level_free(counter: *mut LevelCounter) {
        // SAFETY: the caller's promise.
        unsafe { unplace(counter) };
    }
    /// `LevelCounter::add`.
    fn allotment_counter_level_add(counter: *mut LevelCounter, delta: i64) {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.add(delta);
    }
    /// `LevelCounter::approximate`.
    fn allotment_counter_level_approximate(counter: *const LevelCounter) -> i64 {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.approximate()
    }
    /// `LevelCounter::error_bound`.
    fn allotment_counter_level_error_bound(counter: *const LevelCounter) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.error_bound()
    }
    /// `LevelCounter::exact`.
    fn allotment_counter_level_exact(counter: *const LevelCounter) -> i64 {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.exact()
    }
    /// `LevelCounter::compare`.
    fn allotment_counter_level_compare(counter: *const LevelCounter, value: i64) -> c_int {
        // SAFETY: the caller's promise.
        match unsafe { &*counter }.compare(value) {
            Comparison::Less => -1,
            Comparison::Greater => 1,
            Comparison::CannotTell => 0,
        }
    }
    /// `LevelCounter::compare_exact`.
    fn allotment_counter_level_compare_exact(counter: *const LevelCounter, value: i64) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.compare_exact(value) as c_int
    }
    /// `LevelCounter::fold`.
    fn allotment_counter_level_fold(counter: *mut LevelCounter) -> c_int {
        // SAFETY: the caller's promise.
        c_int::from(unsafe { &*counter }.fold())
    }
    /// `LevelCounter::node`.
    fn allotment_counter_level_node(counter: *const LevelCounter, node: c_uint) -> i64 {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.node(node as usize)
    }
    /// `LevelCounter::threshold`.
    fn allotment_counter_level_threshold(counter: *const LevelCounter) -> c_uint {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.threshold()
    }
    /// `LevelCounter::set_threshold`.
    fn allotment_counter_level_set_threshold(counter: *mut LevelCounter, threshold: c_uint) {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.set_threshold(threshold);
    }

    /// `QuotaCounter::with_batch`; 0: the default batch.
    fn allotment_counter_quota_new(limit: u64, batch: u64) -> *mut QuotaCounter {
        place(if batch == 0 { QuotaCounter::new(limit) } else { QuotaCounter::with_batch(limit, batch) })
    }
    /// Drop.
    fn allotment_counter_quota_free(counter: *mut QuotaCounter) {
        // SAFETY: the caller's promise.
        unsafe { unplace(counter) };
    }
    /// `QuotaCounter::try_add`.
    fn allotment_counter_quota_try_add(counter: *mut QuotaCounter, n: u64) -> c_int {
        // SAFETY: the caller's promise.
        c_int::from(unsafe { &*counter }.try_add(n))
    }
    /// `QuotaCounter::sub`.
    fn allotment_counter_quota_sub(counter: *mut QuotaCounter, n: u64) -> c_int {
        // SAFETY: the caller's promise.
        c_int::from(unsafe { &*counter }.sub(n))
    }
    /// `QuotaCounter::charged`.
    fn allotment_counter_quota_charged(counter: *const QuotaCounter) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.charged()
    }
    /// `QuotaCounter::used`.
    fn allotment_counter_quota_used(counter: *const QuotaCounter) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.used()
    }
    /// `QuotaCounter::limit`.
    fn allotment_counter_quota_limit(counter: *const QuotaCounter) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.limit()
    }
    /// `QuotaCounter::set_limit`.
    fn allotment_counter_quota_set_limit(counter: *mut QuotaCounter, limit: u64) {
        // SAFETY: the caller's promise.
        unsafe { &*counter }.set_limit(limit);
    }

    /// `counter::mode`.
    fn allotment_counter_mode() -> *const c_char {
        match mode() {
            Mode::Closed => c"closed",
            Mode::Sequences => c"sequences",
            _ => c"fallback",
        }
        .as_ptr()
    }
    /// `counter::indices_in_use`.
    fn allotment_counter_indices() -> c_uint {
        indices_in_use() as c_uint
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut line = Line::new();
    let _ = write!(line, "{info}");
    line.end();
    unsafe extern "C" {
        fn abort() -> !;
    }
    // SAFETY: ends the process.
    unsafe { abort() }
}

// Without optimisation core's unwinding tables name it; nothing here ever unwinds.
core::arch::global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    allotment_engine::trap!()
);
