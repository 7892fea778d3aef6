//! # Signals of the calling thread
//!
//! Only blocked, waited for, and put back as they were; dispositions are the program's. Locks: none. Cost: one call each.
#![allow(unsafe_code)] // the boundary to the kernel

use super::call::{Errno, call, nr};

/// Sets the calling thread's mask of blocked signals; what it was.
///
/// # Errors
/// What a filter says; the mask is as it was then.
pub fn set_signals(mask: u64) -> Result<u64, Errno> {
    const SIG_SETMASK: usize = 2;
    let mut before = 0_u64;
    let (new, old) = (&raw const mask as usize, &raw mut before as usize);
    // SAFETY: the kernel reads and writes eight bytes of ours.
    unsafe { call(nr::RT_SIGPROCMASK, [SIG_SETMASK, new, old, 8, 0, 0]) }?;
    Ok(before)
}

/// All signals of the calling thread, blocked until this is dropped. Where that is refused its mask is never touched.
#[derive(Debug)]
pub struct Signals {
    before: Option<u64>,
}

impl Signals {
    /// Blocks them.
    #[must_use]
    pub fn block() -> Self {
        Self { before: set_signals(u64::MAX).ok() }
    }
    /// Whether they are.
    #[must_use]
    pub fn are_blocked(&self) -> bool {
        self.before.is_some()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        /// A thread that stays deaf is worse than some calls more: this one worked before.
        const TRIES: u32 = 16;
        if let Some(before) = self.before {
            let _ = (0..TRIES).any(|_| set_signals(before).is_ok());
        }
    }
}

/// Waits at most `ns` nanoseconds for a signal of the set (which is blocked); whether it came.
#[must_use]
pub fn signal_wait(set: u64, ns: u64) -> bool {
    let time = [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64];
    // SAFETY: the kernel reads set and time, which are ours.
    unsafe { call(nr::RT_SIGTIMEDWAIT, [&raw const set as usize, 0, time.as_ptr() as usize, 8, 0, 0]) }.is_ok()
}
