//! # Waiting for a word
//!
//! Private waits for words of this process, shared ones for those that the kernel wakes itself (a thread that ends) or
//! that lie in a file. A wait may end early: the caller looks again. Units: ns. Locks: none. Cost: one call each.
#![allow(unsafe_code)] // the boundary to the kernel

use super::call::{Errno, call, nr};
use crate::arch::atomic::AtomicU32;

/// Sleeps while `*word == value`; may return early.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    // SAFETY: the kernel reads the word, which outlives the call.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 128, value as usize, 0, 0, 0]) };
}

/// The same for at most `ns` nanoseconds.
pub fn futex_wait_for(word: &AtomicU32, value: u32, ns: u64) {
    let time = [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64];
    // SAFETY: the kernel reads the word and the time, which outlive the call.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 128, value as usize, time.as_ptr() as usize, 0, 0]) };
}

/// Wakes up to `count` sleepers of `word`.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    // SAFETY: the kernel uses the address as a key only.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 129, count as usize, 0, 0, 0]) };
}

/// [`futex_wait`] for a word that the kernel itself wakes when a task ends.
pub fn futex_wait_shared(word: &AtomicU32, value: u32) {
    // SAFETY: the kernel reads the word, which outlives the call.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 0, value as usize, 0, 0, 0]) };
}

/// The same for at most `ns` nanoseconds, if any are given.
pub fn futex_wait_shared_for(word: &AtomicU32, value: u32, ns: Option<u64>) {
    let time = ns.map(|ns| [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64]);
    let time = time.as_ref().map_or(0, |time| time.as_ptr() as usize);
    // SAFETY: the kernel reads the word and the time, which outlive the call.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 0, value as usize, time, 0, 0]) };
}

/// The opposite of [`futex_wait_shared`].
pub fn futex_wake_shared(word: &AtomicU32) {
    // SAFETY: the kernel uses the address as a key only.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 1, i32::MAX as usize, 0, 0, 0]) };
}

/// Whether a word can be read at an address (a multiple of four): by a call that compares it, and then wakes and moves
/// nobody. No filter of system calls forbids it, and an emulator has nothing to say against it. (If one does: no.)
#[must_use]
pub fn is_readable(at: usize) -> bool {
    const COMPARE_AND_REQUEUE: usize = 4 | 128;
    // SAFETY: the kernel reads four bytes, or says that there are none, and changes nothing.
    let compared = unsafe { call(nr::FUTEX, [at, COMPARE_AND_REQUEUE, 0, 0, at, 0]) };
    // (Equal, or not.)
    matches!(compared, Ok(_) | Err(Errno::EAGAIN))
}

#[cfg(test)]
mod tests {
    use super::super::memory::{Access, map, protect, unmap};
    use super::*;

    #[test]
    fn what_can_be_read_is_readable() {
        let page = map(0, crate::arch::PAGE * 2, Access::ReadWrite).expect("two pages");
        // SAFETY: ours, fresh.
        unsafe {
            assert!(is_readable(page));
            *(page as *mut u32) = 7;
            assert!(is_readable(page) && *(page as *const u32) == 7);
            protect(page + crate::arch::PAGE, crate::arch::PAGE, Access::None).expect("one page");
            assert!(!is_readable(page + crate::arch::PAGE));
            unmap(page, crate::arch::PAGE).expect("the other");
        }
        assert!(!is_readable(page) && !is_readable(4096) && !is_readable(usize::MAX - 4095));
    }

    #[test]
    fn what_a_filter_does_not_tell_is_not_readable() {
        let page = map(0, crate::arch::PAGE, Access::ReadWrite).expect("a page");
        // A thread of its own: it has the filter.
        crate::tests::threads::spawn(move || {
            const NUMBER: u32 = 0;
            let (load, equal, answer) = (0x20, 0x15, 6);
            let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
            // The second argument of `futex`, the requeue that compares: ENOSYS.
            let mut code = [
                step(load, 0, NUMBER),
                step(equal, 3, nr::FUTEX as u32),
                step(load, 0, 24),
                step(equal, 1, 4 | 128),
                step(answer, 0, 0x0005_0000 | 38),
                step(answer, 0, 0x7fff_0000),
            ];
            let filter = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
            assert!(is_readable(page));
            // SAFETY: this thread alone gets a filter, which lives through the call.
            let filtered = unsafe { libc::prctl(38, 1, 0, 0, 0) == 0 && libc::prctl(22, 2, &raw const filter) == 0 };
            if !filtered {
                std::eprintln!("skipped: no filters here");
                return;
            }
            assert!(!is_readable(page));
        })
        .join()
        .unwrap();
        // SAFETY: ours.
        unsafe { unmap(page, crate::arch::PAGE).expect("ours") };
    }
}
