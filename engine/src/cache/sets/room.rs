//! # The addresses of sets, board and tallies, and what is mapped there
//!
//! ```text
//! base   ┌ sets ──► mapped │ room … SETS_MAX ┌ board ┌ tallies ──► mapped │ room … SETS_MAX
//!        └ 8 at first, then twice as many    └ whole └ as many as sets; of a shared board the file's
//! ```
//! Of a shared board the tallies are made longer by `mremap`, by the file's next pages: nobody keeps it open. Where the system maps
//! nothing at an address of ours all is mapped at once (`mapped` is 0 then, and stays so).
//!
//! Units: sets and tallies, a page and [`TALLY_BYTES`] each; bytes where a name says so. Invariants: as many tallies as sets are
//! mapped, for ever; what no set was made of reads as zero, and more sets than those that are there have no place but right behind
//! them. Locks: that of the switch ([`crate::cpu`]), or nobody else is there. Cost: two or three system calls each time that sets double.
#![allow(unsafe_code)] // maps by address

use super::{BYTES, Sets};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::seq::TALLY;
use crate::arch::sys::{self, Access, Advice};
use crate::meta;
use crate::stat::Level;
use crate::stat::board::{BOARD_BYTES, SETS_MAX, TALLY_BYTES};

/// Sets (and tallies) that are there at first.
pub(in crate::cache) const FIRST: usize = 8;

/// Memory for [`Sets::open`].
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Where it begins.
    pub base: usize,
    /// Its bytes now.
    pub bytes: usize,
    /// Sets in it; 0: all.
    pub(super) mapped: usize,
}

impl Room {
    /// As much as most processes need, where there is room to map the rest when it is used: address space counts, too.
    ///
    /// # Errors
    /// Without memory.
    pub fn new() -> Result<Self, sys::Errno> {
        const SLOT: usize = 1 << 30;
        /// Slots that are tried.
        const TRIES: usize = 64;
        let room = (0..TRIES).find_map(|slot| Self::at(meta::place() + slot * SLOT));
        room.map_or_else(Self::whole, Ok)
    }

    /// All that there can ever be at once, where the system maps nothing at an address of ours.
    pub(crate) fn whole() -> Result<Self, sys::Errno> {
        const ALIGN: usize = 2 * TALLY;
        let at = sys::map(0, BYTES + ALIGN, Access::ReadWrite)?;
        let base = at.next_multiple_of(ALIGN);
        // SAFETY: fresh, ours and unused: both ends. (A refusal costs addresses.)
        let _ = unsafe { sys::unmap(base + BYTES, at + ALIGN - base) };
        if base > at {
            // SAFETY: as above.
            let _ = unsafe { sys::unmap(at, base - at) };
        }
        Ok(Self { base, bytes: BYTES, mapped: 0 })
    }

    pub(in crate::cache) fn at(base: usize) -> Option<Self> {
        let board = base + SETS_MAX * PAGE;
        if !map_there(base, FIRST * PAGE) {
            return None;
        }
        if !map_there(board, BOARD_BYTES + FIRST * TALLY_BYTES) {
            // SAFETY: fresh, ours and unused.
            let _ = unsafe { sys::unmap(base, FIRST * PAGE) };
            return None;
        }
        Some(Self { base, bytes: FIRST * PAGE + BOARD_BYTES + FIRST * TALLY_BYTES, mapped: FIRST })
    }
}

impl Sets {
    /// Of the memory for [`Sets::open`] only so much is there.
    pub fn roomy(&self, room: Room) {
        self.mapped.store(room.mapped, Relaxed);
    }

    /// Tallies, and sets, that are mapped.
    pub(in crate::cache) fn there(&self) -> usize {
        match self.mapped.load(Relaxed) {
            0 => SETS_MAX,
            mapped => mapped,
        }
    }

    /// As many sets again as there are, or all that can be, with their tallies; false if there is no room.
    #[cold]
    pub(super) fn map_more(&self) -> bool {
        // Relaxed: under the lock.
        let (base, mapped) = (self.base.load(Relaxed), self.mapped.load(Relaxed));
        let more = mapped.min(SETS_MAX - mapped);
        if more == 0 {
            return false;
        }
        let (sets, tallies) = (base + mapped * PAGE, base + TALLY + mapped * TALLY_BYTES);
        if !map_there(sets, more * PAGE) {
            return false;
        }
        let is_wiped = !(self.is_shared() && self.is_watched())
            // SAFETY: fresh, ours and unused, here and below.
            || unsafe { sys::advise(sets, more * PAGE, Advice::WipeOnFork) }.is_ok();
        let has_tallies = is_wiped
            && match self.share.sure.load(Relaxed) {
                0 | SETS_MAX => map_there(tallies, more * TALLY_BYTES),
                // SAFETY: the mapping of the file's tallies, as many as there are.
                _ => unsafe { sys::grow(base + TALLY, mapped * TALLY_BYTES, more * TALLY_BYTES) }.is_ok(),
            };
        if !has_tallies {
            // SAFETY: as above.
            let _ = unsafe { sys::unmap(sets, more * PAGE) };
            return false;
        }
        self.board().raise(Level::Reserved, more * (PAGE + TALLY_BYTES));
        self.mapped.store(mapped + more, Relaxed);
        true
    }
}

/// Maps memory exactly there, or not at all.
pub(super) fn map_there(at: usize, len: usize) -> bool {
    let Ok(found) = sys::map(at, len, Access::ReadWrite) else { return false };
    if found != at {
        // SAFETY: fresh, ours and unused.
        let _ = unsafe { sys::unmap(found, len) };
    }
    found == at
}
