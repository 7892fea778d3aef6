//! # Zeros where old contents are
//!
//! ```text
//! asked for   │ part │ part │ part │ part │ …      of 256 KiB; which pages are in memory the system says, two MiB at a time
//!               ▓▓▓▓   ▓░▓▓   ░░░░   ░▓░░
//!               cleared ───   go back ───
//! ```
//! A large table that was hardly used is in memory only where it was: cleared, all of it would be. Where a part is in memory by less than half its
//! pages go back to the system instead. (None of them is left as it is: what is swapped out is not in memory, either.)
//!
//! Units: pages; bytes at the door. Locks: none. Cost: a system call for two MiB, where parts are sparse one for each; and the clearing.
#![allow(unsafe_code)] // writes to memory

use super::areas::Vmap;
use crate::arch::PAGE;
use crate::arch::sys;
use crate::page::give_back;
use core::ptr;

/// Pages of a part.
const PART: usize = 64;
/// Pages that are looked at in one call.
const LOOK: usize = 8 * PART;
/// Bytes from which it looks: below, a call is too large a part of what clearing takes.
const LEAST: usize = 512 << 10;

impl Vmap<'_> {
    /// Makes zeros of an area's old contents, or of its first `bytes`. (By itself: what it needs of the stack is not its caller's.)
    ///
    /// # Safety
    /// The area is the caller's, and nothing in it is needed.
    #[inline(never)]
    pub unsafe fn clear(&self, address: usize, bytes: usize) {
        let end = address + bytes;
        // All before is zero.
        let mut from = address;
        let clear = |from: usize, to: usize| {
            // SAFETY: the caller's promise.
            unsafe { ptr::write_bytes(from as *mut u8, 0, to - from) };
        };
        if bytes >= LEAST && self.areas.may_ask() {
            for look in (address..end).step_by(LOOK * PAGE) {
                let mut pages = [0; LOOK];
                let pages = &mut pages[..LOOK.min((end - look) / PAGE)];
                if !sys::resident(look, pages) {
                    break;
                }
                for (at, part) in (look..).step_by(PART * PAGE).zip(pages.chunks(PART)) {
                    let here = part.iter().filter(|&&page| page & 1 != 0).count();
                    let bytes = part.len() * PAGE;
                    // SAFETY: whole pages, as above. (What is refused is cleared.)
                    if here * 2 < part.len() && unsafe { give_back(at, bytes) } {
                        clear(from, at);
                        from = at + bytes;
                    }
                }
            }
        }
        clear(from, end);
    }
}
