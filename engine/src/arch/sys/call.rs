//! # The call itself
//!
//! The kernel's convention and the numbers are each processor's own; what an error is stands here. `fault` (tests only) refuses calls that
//! manage memory, or does them in part. Locks: none. Cost: the call.
#![allow(unsafe_code)] // the boundary to the kernel

use crate::arch::platform;
pub(super) use crate::arch::platform::call::nr;

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Not permitted.
    pub const EPERM: Self = Self(1);
    /// No such descriptor.
    pub const EBADF: Self = Self(9);
    /// A signal came.
    pub const EINTR: Self = Self(4);
    /// Not now.
    pub const EAGAIN: Self = Self(11);
    /// No memory.
    pub const ENOMEM: Self = Self(12);
    /// No such call.
    pub const ENOSYS: Self = Self(38);
    /// In use.
    pub const EBUSY: Self = Self(16);
    /// It is there already.
    pub const EEXIST: Self = Self(17);
    /// Invalid argument.
    pub const EINVAL: Self = Self(22);
    /// A file would become too long.
    pub const EFBIG: Self = Self(27);
}

/// One system call.
///
/// # Safety
/// As the call itself: its arguments must not make the kernel touch memory
/// that Rust owns otherwise.
#[inline]
pub(super) unsafe fn call(number: usize, a: [usize; 6]) -> Result<usize, Errno> {
    #[cfg(test)]
    if let Some(result) = fault::strike(number, a) {
        return result;
    }
    // SAFETY: the caller's promise.
    let result = unsafe { platform::call::call(number, a) };
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

/// Faults for tests: calls that manage memory are refused, or done in part and then refused.
#[cfg(test)]
pub mod fault {
    use crate::arch::sys::call::{Errno, call, nr};
    use std::boxed::Box;
    use std::cell::{Cell, RefCell};
    use std::vec::Vec;

    const MAP_FIXED: usize = 0x10;

    /// What a call is, of those that are watched.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Call {
        /// `mmap`.
        Map,
        /// `mprotect`.
        Protect,
        /// `mremap`.
        Remap,
        /// `madvise`.
        Advise,
        /// `process_madvise`.
        AdviseMany,
        /// `munmap`.
        Unmap,
        /// `futex`.
        Futex,
    }

    /// A call, and the ranges that a vector call is given: where they begin and their bytes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Seen {
        /// Which.
        pub call: Call,
        /// Its arguments.
        pub args: [usize; 6],
        /// Of a vector call.
        pub ranges: Vec<[usize; 2]>,
    }

    type Watch = Box<dyn FnMut(&Seen) -> Option<Result<usize, Errno>>>;

    std::thread_local! {
        /// One call in so many of this thread fails; 0: none.
        static ONE_IN: Cell<u64> = const { Cell::new(0) };
        static RANDOM: Cell<u64> = const { Cell::new(1) };
        static STRUCK: Cell<u64> = const { Cell::new(0) };
        /// Calls of this thread that wanted fresh memory.
        static WANTED: Cell<u64> = const { Cell::new(0) };
        /// Whether calls of this thread are watched: no word here but this one is touched by a thread that has none of these.
        static WATCHED: Cell<bool> = const { Cell::new(false) };
        /// What is asked before a call of this thread is made, and those that were.
        static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
        static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
    }

    /// The calls of this thread that manage memory or wait, while `body` runs. Each is told to `watch` before it is made, which may
    /// answer in the kernel's place (its own calls are not watched).
    pub fn watched<T>(
        watch: impl FnMut(&Seen) -> Option<Result<usize, Errno>> + 'static,
        body: impl FnOnce() -> T,
    ) -> (T, Vec<Seen>) {
        WATCH.replace(Some(Box::new(watch)));
        WATCHED.set(true);
        let result = body();
        WATCHED.set(false);
        WATCH.replace(None);
        (result, SEEN.take())
    }

    fn watch(number: usize, args: [usize; 6]) -> Option<Result<usize, Errno>> {
        let call = match number {
            nr::MMAP => Call::Map,
            nr::MPROTECT => Call::Protect,
            nr::MREMAP => Call::Remap,
            nr::MADVISE => Call::Advise,
            nr::PROCESS_MADVISE => Call::AdviseMany,
            nr::MUNMAP => Call::Unmap,
            nr::FUTEX => Call::Futex,
            _ => return None,
        };
        if !WATCHED.replace(false) {
            return None;
        }
        let mut watch = WATCH.take()?;
        let range = |at: usize| {
            // SAFETY: the vector that the kernel is to read.
            unsafe { *(args[1] as *const [usize; 2]).add(at) }
        };
        let ranges = if call == Call::AdviseMany { (0..args[2]).map(range).collect() } else { Vec::new() };
        let seen = Seen { call, args, ranges };
        let answer = watch(&seen);
        WATCH.replace(Some(watch));
        WATCHED.set(true);
        SEEN.with_borrow_mut(|all| all.push(seen));
        answer
    }

    /// Calls of this thread so far that wanted fresh memory, or to open what was reserved.
    pub fn wanted() -> u64 {
        WANTED.get()
    }

    /// From now on one call in `one_in` of this thread fails (0: none); how many did so far.
    pub fn storm(one_in: u64, seed: u64) -> u64 {
        ONE_IN.with(|cell| cell.set(one_in));
        RANDOM.with(|cell| cell.set(seed | 1));
        STRUCK.with(|cell| cell.replace(0))
    }

    fn random() -> u64 {
        RANDOM.with(|cell| {
            let mut x = cell.get();
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            cell.set(x);
            x
        })
    }

    pub(super) fn strike(number: usize, a: [usize; 6]) -> Option<Result<usize, Errno>> {
        const FAIL: [usize; 6] = [nr::MMAP, nr::MPROTECT, nr::MREMAP, nr::MADVISE, nr::PROCESS_MADVISE, nr::MUNMAP];
        if let Some(answer) = watch(number, a) {
            return Some(answer);
        }
        if number == nr::MPROTECT || number == nr::MMAP && a[3] & MAP_FIXED == 0 {
            WANTED.set(WANTED.get() + 1);
        }
        let one_in = ONE_IN.get();
        if one_in == 0 || !FAIL.contains(&number) || !(random() >> 8).is_multiple_of(one_in) {
            return None;
        }
        ONE_IN.with(|cell| cell.set(0));
        let mut result = Err(Errno([4, 11, 12, 22][(random() >> 8) as usize % 4]));
        // In part: half of the range, half of the vector, or what `MAP_FIXED` unmaps first.
        // SAFETY: a part of what the caller may do.
        unsafe {
            match number {
                nr::MADVISE => _ = call(number, [a[0], a[1] / 2 / 4096 * 4096, a[2], 0, 0, 0]),
                nr::PROCESS_MADVISE if a[2] > 1 => {
                    let half = a[2] / 2;
                    result = call(number, [a[0], a[1], half, a[3], a[4], a[5]]);
                    if random() & 256 == 0 && result.is_ok() {
                        // And the first page of the next range, which may be in the sum.
                        let [next, _] = *(a[1] as *const [usize; 2]).add(half);
                        let _ = call(nr::MADVISE, [next, 4096, a[3], 0, 0, 0]);
                        result = result.map(|done| done + 4096);
                    }
                }
                // (Not really unmapped: another thread would be given the hole.)
                nr::MMAP if a[3] & MAP_FIXED != 0 => _ = call(nr::MADVISE, [a[0], a[1], 4, 0, 0, 0]),
                _ => {}
            }
        }
        ONE_IN.with(|cell| cell.set(one_in));
        STRUCK.with(|cell| cell.set(cell.get() + 1));
        Some(result)
    }
}
