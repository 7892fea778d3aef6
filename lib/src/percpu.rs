//! # Per-CPU memory
//!
//! Memory of which every CPU index has a copy: any size up to 256 KiB, any power-of-two alignment up to a page, zeroed.
//!
//! ```
//! use allotment::percpu::PerCpu;
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//!
//! let hits = PerCpu::<[AtomicU64; 4]>::new()?;
//! hits.this_cpu()[2].fetch_add(1, Relaxed); // a line that other CPUs do not touch
//! assert_eq!(hits.sum(|copy| copy[2].load(Relaxed)), 1);
//! # Ok::<(), allotment::percpu::Error>(())
//! ```
//!
//! An *index* is a CPU as the kernel numbers those of one process (`mm_cid`), or a CPU's number. Memory costs a copy for
//! each index in use, filled page by page when it is touched; copies of indices that never ran cost nothing.
//! `docs/percpu.md` has layout, costs and failure modes.
//!
//! Opens at the first allocation (or counter), not before: a program that makes none pays nothing. What it then costs
//! is two files of `/sys` read, reservations, and the fork handlers.
#![allow(unsafe_code)] // addresses

use crate::memory::{Memory, PERCPU};
use crate::{conf, fork, machine};
use allotment_engine::arch::sys::{self, Access};
use allotment_engine::arch::topology;
use allotment_engine::knob::Knobs;
use allotment_engine::percpu::units::{UNIT, Units};
use allotment_engine::stat::Mode;
use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicIsize, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};

pub use crate::bad_free::BadFree;
pub use allotment_engine::percpu::Handle;
pub use allotment_engine::percpu::report::Stats;
pub use allotment_engine::percpu::space::{Balanced, How};
pub use allotment_engine::stat::BadPointer;

/// Largest allocation, in bytes.
pub const LARGEST: usize = UNIT;

/// Why there is no allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The size is zero.
    Size,
    /// The alignment is no power of two, or above a page.
    Align,
    /// More than [`LARGEST`].
    TooLarge,
    /// The system has no more memory; or, for [`How::Populated`] and [`How::Reserved`], there is none of that kind.
    Exhausted,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Size => "an allocation of no bytes",
            Self::Align => "the alignment is no power of two up to a page",
            Self::TooLarge => "more than a CPU's unit holds",
            Self::Exhausted => "no per-CPU memory",
        })
    }
}
impl core::error::Error for Error {}

/// Where sequences have been tried and found wanting, none are used.
fn open_units(indices: usize) -> Result<(), Error> {
    machine::prepare();
    let knobs = Knobs::new();
    conf::configure(&knobs);
    let opening = conf::decide(&knobs);
    let mut mode = opening.mode;
    if mode == Mode::Sequences {
        let len = (indices + 1) * UNIT;
        let base = sys::map(0, len, Access::ReadWrite).map_err(|_| Error::Exhausted)?;
        // (Not on the stack: 12 KiB are more than a small one has left.)
        static TRIAL: Units = Units::new();
        // SAFETY: the C library's own area, with membarrier registered; units of these indices, of
        // which nobody else knows (the lock is held), and the first word of the first one.
        let good = unsafe {
            TRIAL.open(mode, opening.area, indices, None);
            let good = TRIAL.self_test(Handle::new(NonZeroUsize::MIN.saturating_add(base - 1)));
            let _ = sys::unmap(base, len);
            good
        };
        if !good {
            mode = Mode::Fallback;
        }
    }
    // SAFETY: as above; the lock is held, nobody has a handle, and the space is a static.
    unsafe {
        PERCPU.units.open(mode, opening.area, indices, None);
        PERCPU.space.open();
    }
    Ok(())
}

impl Memory {
    /// `size` zeroed bytes in every unit, aligned to `align`.
    #[inline]
    pub fn alloc(&'static self, size: usize, align: usize, how: How) -> Result<Handle, Error> {
        use allotment_engine::percpu::space::Error as Why;
        loop {
            let error = match self.space.alloc(size, align, how) {
                Ok(handle) => return Ok(handle),
                Err(Why::Closed) => {
                    self.open()?;
                    continue;
                }
                Err(Why::Size) => Error::Size,
                Err(Why::Align) => Error::Align,
                Err(Why::TooLarge) => Error::TooLarge,
                Err(Why::Exhausted) => Error::Exhausted,
            };
            return Err(error);
        }
    }

    #[cold]
    fn open(&'static self) -> Result<(), Error> {
        fork::register();
        let _inside = self.units.gate.enter_patiently();
        let _opening = self.opening.lock();
        if !self.is_open() {
            let indices = topology::list_end(c"/sys/devices/system/cpu/possible").unwrap_or(4096).clamp(1, 8192);
            let nodes = topology::list_end(c"/sys/devices/system/node/possible").unwrap_or(1);
            self.nodes.store(nodes as u32, Relaxed);
            open_units(indices)?;
            // Release: whoever sees it sees the units open.
            self.opened.store(1, Release);
        }
        Ok(())
    }

    /// Takes an allocation back.
    ///
    /// # Safety
    /// Nobody uses it any more, if it is one.
    pub unsafe fn free(&'static self, address: usize) -> Result<(), BadFree> {
        // SAFETY: the caller's promise.
        unsafe { self.space.free(address) }.map_err(|wrong| BadFree { address, wrong })
    }
}

/// Allocates `size` bytes at a multiple of `align`, zeroed in every unit. Cost: some 300 instructions, now and then
/// a lock and the search of a chunk, and a system call for each 256 KiB.
///
/// # Errors
/// [`Error`]; nothing was changed.
pub fn alloc(size: usize, align: usize, how: How) -> Result<Handle, Error> {
    PERCPU.alloc(size, align, how)
}

/// Frees an allocation, by its address in nobody's unit ([`Handle::address`]). Its size is known. Cost: some 300
/// instructions, and what it takes to give pages back when many are empty.
///
/// # Errors
/// [`BadFree`]: a free twice, an address inside an allocation, or a foreign one. Nothing was changed.
///
/// # Safety
/// If it is an allocation, nobody uses it any more.
pub unsafe fn free(address: usize) -> Result<(), BadFree> {
    // SAFETY: the caller's promise.
    unsafe { PERCPU.free(address) }
}

/// Frees several. Of many at random places it waits for memory less than as many calls of [`free`] do.
///
/// # Errors
/// The first [`BadFree`]. All others are freed.
///
/// # Safety
/// As [`free`], for each.
pub unsafe fn free_bulk(addresses: &[usize]) -> Result<(), BadFree> {
    let mut first = Ok(());
    // SAFETY: the caller's promise.
    unsafe { PERCPU.space.free_bulk(addresses, |address, wrong| first = first.and(Err(BadFree { address, wrong }))) };
    first
}

/// This CPU's copy. The thread may be elsewhere a moment later, and another thread of this index may run between two
/// instructions: use atomics. A load of the index, a compare, a shift and an add.
#[inline]
#[must_use]
pub fn this_cpu(handle: Handle) -> *mut u8 {
    PERCPU.units.this_cpu(handle) as *mut u8
}

/// The copy of an index; `None` at or above [`indices`].
#[must_use]
pub fn for_cpu(handle: Handle, index: usize) -> Option<*mut u8> {
    PERCPU.units.for_cpu(handle, index).map(|copy| copy as *mut u8)
}

/// How many indices there can ever be: the machine's possible CPUs. 0 before the first allocation.
#[must_use]
pub fn indices() -> usize {
    PERCPU.units.indices()
}

/// How many have been used so far: copies at or above are zero and have no memory.
#[must_use]
pub fn indices_in_use() -> usize {
    PERCPU.units.high()
}

/// Gives empty pages back to the system, and keeps a few filled for [`How::Populated`] if that was ever asked for.
/// Happens by itself when many are empty, or few are filled. Cost: a visit of each chunk, a system call for each run of
/// empty pages in each unit in use.
pub fn balance() -> Balanced {
    PERCPU.space.balance()
}

/// Numbers of all per-CPU memory of the process. Cost: a visit of each chunk.
#[must_use]
pub fn stats() -> Stats {
    PERCPU.space.stats()
}

/// Writes the kernel's `percpu_stats` for this process. Cost: a walk over all bitmaps.
///
/// # Errors
/// Those of `out`.
pub fn report(out: &mut impl fmt::Write) -> fmt::Result {
    // (For a thread of ours: as it is inside the heap. Beside a frame of the program's only thread there is no report.)
    let gate = &PERCPU.units.gate;
    let alone = if sys::program_is_single() { gate.enter_alone() } else { None };
    if sys::program_is_single() && alone.is_none() {
        return out.write_str("(per-CPU memory is busy: ask again)\n");
    }
    PERCPU.space.report(out)
}

/// Types whose zero bytes are a value that CPUs may share.
///
/// # Safety
/// All zero bytes are a valid value, and it has nothing to drop.
pub unsafe trait Zeroed: Sync {}

macro_rules! zeroed {
    ($($type:ty)*) => {$(
        // SAFETY: an atomic integer of 0.
        unsafe impl Zeroed for $type {}
    )*};
}
zeroed!(AtomicBool AtomicU8 AtomicU16 AtomicU32 AtomicU64 AtomicUsize AtomicI32 AtomicI64 AtomicIsize);
// SAFETY: zero bytes are an array of zeroed values.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

/// A value of which every CPU index has a copy, at first zero.
pub struct PerCpu<T: Zeroed> {
    handle: Handle,
    value: PhantomData<T>,
}

// SAFETY: copies are shared by reference only, and `T` is `Sync`.
unsafe impl<T: Zeroed> Sync for PerCpu<T> {}
// SAFETY: as above; nothing is dropped.
unsafe impl<T: Zeroed> Send for PerCpu<T> {}

impl<T: Zeroed> PerCpu<T> {
    /// A zero in every unit.
    ///
    /// # Errors
    /// [`Error`], by `T`'s size and alignment.
    pub fn new() -> Result<Self, Error> {
        Self::with(How::Normal)
    }
    /// The same from where is asked.
    ///
    /// # Errors
    /// [`Error`].
    pub fn with(how: How) -> Result<Self, Error> {
        let handle = PERCPU.alloc(size_of::<T>(), align_of::<T>(), how)?;
        Ok(Self { handle, value: PhantomData })
    }
    /// This CPU's copy: see [`this_cpu`].
    #[inline]
    #[must_use]
    pub fn this_cpu(&self) -> &T {
        // SAFETY: a live copy, zero at first, as `Zeroed` allows.
        unsafe { &*this_cpu(self.handle).cast() }
    }
    /// The copy of an index; `None` at or above [`indices`].
    #[must_use]
    pub fn for_cpu(&self, index: usize) -> Option<&T> {
        // SAFETY: as in `this_cpu`.
        for_cpu(self.handle, index).map(|copy| unsafe { &*copy.cast() })
    }
    /// The copies of all indices in use, in their order; the others are zero.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        // SAFETY: as in `this_cpu`.
        PERCPU.units.copies(self.handle).map(|copy| unsafe { &*(copy as *const T) })
    }
    /// The sum of a number of each copy. Exact if nobody changes any meanwhile.
    pub fn sum(&self, number: impl Fn(&T) -> u64) -> u64 {
        self.iter().fold(0, |sum, copy| sum.wrapping_add(number(copy)))
    }
    /// The allocation.
    #[must_use]
    pub const fn handle(&self) -> Handle {
        self.handle
    }
}

impl<T: Zeroed> Drop for PerCpu<T> {
    fn drop(&mut self) {
        // SAFETY: ours, and its borrows are over.
        let freed = unsafe { PERCPU.free(self.handle.address()) };
        debug_assert!(freed.is_ok());
    }
}

impl<T: Zeroed + fmt::Debug> fmt::Debug for PerCpu<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}
