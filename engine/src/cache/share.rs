//! # A board that others see, and its children's
//!
//! ```text
//! file:   board │ texts │ tally 0 │ tally 1 │ …           sets: private, wiped in a child ([`Sets::watch`])
//!            │ mapped over the private ones, as far as pages are made sure of
//! fork:   copy of board, tallies and sets ─► child: a board of its own, in a file or private, as it was before the fork
//! ```
//! A file may have no room, and no page of it is touched before it is there: what is missing is private, and others see a part
//! of the numbers. A child counts nothing into its parent's board: told of the fork it begins with a copy made before; one that nobody
//! told finds its witness wiped, and its sets empty.
//!
//! Locks: that of the switch ([`crate::cpu`]), or nobody else is there. Cost: system calls where a board is shared or forked.
#![allow(unsafe_code)] // mappings of board and sets

use super::sets::Sets;
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicU32, AtomicU64};
use crate::arch::naps::Naps;
use crate::arch::seq::TALLY;
use crate::arch::sys::{self, Access, Advice};
use crate::stat::board::{BOARD_BYTES, SETS_MAX, SHOW, SHOW_BYTES, TALLIES, TALLY_BYTES};
use crate::stat::{Board, Level};

/// Tallies that have their pages when a board is shared: nobody's, and the first set's.
const FIRST_TALLIES: usize = 2;
/// Bytes of a set and its tally in the copy for a fork.
const COPIED: usize = TALLY_BYTES + PAGE;

impl Sets {
    /// Shows the board in a file, of which other processes are the readers; false, and as it was, if that cannot be.
    /// Nobody else uses the board yet.
    pub fn share(&self, file: usize) -> bool {
        const NOW: usize = FIRST_TALLIES * TALLY_BYTES;
        // Elsewhere first: what refuses has changed nothing then.
        let Ok(trial) = sys::map_file(TALLIES + NOW, file) else { return false };
        let sure = |at, bytes| {
            // SAFETY: fresh and ours, here and below; nobody needs what an image before an exec left there.
            unsafe { sys::make_sure(trial + at, bytes) }.is_ok()
        };
        let has_room = sure(0, BOARD_BYTES) && sure(TALLIES, NOW);
        // SAFETY: as above.
        let _ = unsafe { sys::unmap(trial, TALLIES + NOW) };
        if !has_room {
            return false;
        }
        let (board, tallies) = (self.base.load(Relaxed) + SETS_MAX * PAGE, self.base.load(Relaxed) + TALLY);
        // SAFETY: the part for the board of our own mapping, and that for the tallies. (A board alone in the file is as good as
        // private: nobody finds tallies there, and `board.sets` is still 0.)
        let is_shared = unsafe {
            sys::map_file_over(board, BOARD_BYTES, file, 0).is_ok()
                && sys::map_file_over(tallies, self.there() * TALLY_BYTES, file, TALLIES).is_ok()
        };
        if is_shared {
            self.board().magic.store(0, Relaxed);
            // SAFETY: as above. An image that ran here before `exec` left its numbers.
            unsafe { core::ptr::write_bytes(board as *mut u8, 0, BOARD_BYTES + NOW) };
            self.share.sure.store(FIRST_TALLIES, Relaxed);
        }
        is_shared
    }

    /// Makes sure of the tallies below `end`, which are mapped and which nobody counts on yet, and that they are zero. Where there is no room in the file, what is missing
    /// and all behind are private from then on, and others see a part of the numbers. False if not even that can be.
    pub fn ensure(&self, end: usize) -> bool {
        // Relaxed, here and below: under the lock of the slots, or before anybody else is there.
        if !self.is_shared() || end <= self.share.sure.load(Relaxed) {
            return true;
        }
        let sure = self.share.sure.load(Relaxed);
        let at = self.base.load(Relaxed) + TALLY + sure * TALLY_BYTES;
        let bytes = (end - sure) * TALLY_BYTES;
        // SAFETY: tallies of our own mapping that are nobody's yet, here and below.
        if unsafe { sys::make_sure(at, bytes) }.is_ok() {
            // SAFETY: as above. An image that ran here before `exec` left its numbers.
            unsafe { core::ptr::write_bytes(at as *mut u8, 0, bytes) };
            self.share.sure.store(end, Relaxed);
            return true;
        }
        // SAFETY: as above.
        if unsafe { sys::map_over(at, (self.there() - sure) * TALLY_BYTES, Access::ReadWrite) }.is_err() {
            return false;
        }
        self.board().unseen.store(sure as u64, Relaxed);
        self.board().raise(Level::Mappings, 2);
        self.share.sure.store(SETS_MAX, Relaxed);
        true
    }

    /// Makes sure of the first `bytes` of the board's texts; false for lack of room. The writer's of the texts alone.
    pub fn ensure_texts(&self, bytes: usize) -> bool {
        const STEP: usize = 16 * 1024;
        // Relaxed: one thread's.
        let sure = self.share.sure_texts.load(Relaxed);
        if !self.is_shared() || bytes <= sure {
            return true;
        }
        let (at, end) = (self.show(), bytes.next_multiple_of(STEP).min(SHOW_BYTES));
        // SAFETY: a part of our own mapping that was never written.
        let has_room = at != 0 && unsafe { sys::make_sure(at + sure, end - sure) }.is_ok();
        if has_room {
            self.share.sure_texts.store(end, Relaxed);
        }
        has_room
    }

    /// Whether other processes see the board.
    pub fn is_shared(&self) -> bool {
        self.share.sure.load(Relaxed) != 0
    }

    /// Where the board's texts are, mapped when they are first asked for; 0 without memory.
    #[must_use]
    pub fn show(&self) -> usize {
        // Relaxed: the mapping is zero for whoever sees it, and one thread writes it.
        if self.share.text.load(Relaxed) == 0
            && let Ok(at) = self.map_texts()
        {
            if self.share.text.compare_exchange(0, at, Relaxed, Relaxed).is_ok() {
                self.board().raise(Level::Reserved, SHOW_BYTES);
            } else {
                // SAFETY: fresh, ours and unused.
                let _ = unsafe { sys::unmap(at, SHOW_BYTES) };
            }
        }
        self.share.text.load(Relaxed)
    }
    fn map_texts(&self) -> Result<usize, sys::Errno> {
        if !self.is_shared() {
            return sys::map(0, SHOW_BYTES, Access::ReadWrite);
        }
        // SAFETY: the board's file is mapped there, from its beginning.
        let at = unsafe { sys::map_again(self.base.load(Relaxed) + SETS_MAX * PAGE, SHOW + SHOW_BYTES) }?;
        // SAFETY: fresh and ours. (If it is left there it does no harm.)
        let _ = unsafe { sys::unmap(at, SHOW) };
        Ok(at + SHOW)
    }
    fn forget_texts(&self) {
        let at = self.share.text.swap(0, Relaxed);
        if at != 0 {
            // SAFETY: ours; in a forked child whose only thread this is.
            let _ = unsafe { sys::unmap(at, SHOW_BYTES) };
        }
        self.share.sure_texts.store(0, Relaxed);
    }

    /// Bytes of board and tallies that are in use.
    fn board_used(&self) -> usize {
        BOARD_BYTES + self.tallied() * TALLY_BYTES
    }

    /// From now on a forked child finds a witness of that, whoever forked it and how; and, where others see the board, all sets empty:
    /// nothing is counted before it is noticed.
    pub fn watch(&self) {
        if self.is_watched() {
            return;
        }
        let base = self.base.load(Relaxed);
        let bytes = if self.is_shared() { self.there() * PAGE } else { PAGE };
        // (Behind set 0, which serves no CPU.)
        let witness = base + PAGE - size_of::<AtomicU64>();
        // SAFETY: our own mapping; nothing changes in this process.
        if unsafe { sys::advise(base, bytes, Advice::WipeOnFork) }.is_ok() {
            // SAFETY: a word of our own mapping.
            unsafe { &*(witness as *const AtomicU64) }.store(1, Relaxed);
            // Release: whoever knows the witness sees what it says.
            self.share.witness.store(witness, Release);
        }
        self.share.watches.store(true, Release);
    }
    /// Whether a witness was asked for, which the system may have refused.
    #[inline]
    pub fn watches(&self) -> bool {
        // Acquire: who need not ask finds the witness.
        self.share.watches.load(Acquire)
    }
    /// Whether there is a witness.
    pub fn is_watched(&self) -> bool {
        self.share.witness.load(Relaxed) != 0
    }
    fn witness(&self) -> Option<&AtomicU64> {
        // Acquire: pairs with `watch`.
        let witness = self.share.witness.load(Acquire);
        // SAFETY: a word of our own mapping, if there is one.
        unsafe { (witness as *const AtomicU64).as_ref() }
    }
    /// What there is to be done in a forked child is done.
    pub fn attest(&self) {
        // Release: whoever sees it sees what was done.
        self.witness().inspect(|witness| witness.store(1, Release));
    }
    /// Whether this is a forked child that has not been told so, or another thread of it is at what that takes.
    #[inline]
    pub fn is_orphan(&self) -> bool {
        // Acquire: see `attest`.
        self.witness().map_or(1, |witness| witness.load(Acquire)) != 1
    }
    /// In such a child: whether it is this thread that does it, up to [`Sets::attest`]. Waits for another that does.
    pub fn claim(&self) -> bool {
        let (me, never, mut naps) = (sys::thread_pointer() as u64, AtomicU32::new(0), Naps::for_ever());
        let Some(witness) = self.witness() else { return false };
        loop {
            // Acquire: see `attest`.
            match witness.compare_exchange(0, me, Acquire, Acquire) {
                Ok(_) => return true,
                Err(who) if who == 1 || who == me => return false,
                Err(_) => sys::futex_wait_for(&never, 0, naps.longer()),
            }
        }
    }

    /// Before a fork, when nobody is inside: what a child's board and sets begin with.
    pub fn snapshot(&self) {
        if !self.is_shared() {
            return;
        }
        let base = self.base.load(Relaxed);
        if self.snapshot_board() {
            let copy = self.copied_sets();
            // SAFETY: both are mappings of ours, as long as that. The sets are closed.
            unsafe { core::ptr::copy_nonoverlapping(base as *const u8, copy as *mut u8, self.tallied() * PAGE) };
        } else {
            // A child finds its sets, at least. (One that nobody tells counts on its parent's board until it is noticed.)
            // SAFETY: our own mapping; nothing changes in this process.
            let _ = unsafe { sys::advise(base + PAGE, (self.there() - 1) * PAGE, Advice::KeepOnFork) };
        }
    }
    fn copied_sets(&self) -> usize {
        self.share.copy.load(Relaxed) + BOARD_BYTES + self.share.copied.load(Relaxed) * TALLY_BYTES
    }

    /// What a child's board begins with; also in a child that nobody has told, from its parent's board. False, and no copy,
    /// without memory.
    fn snapshot_board(&self) -> bool {
        if self.share.copied.load(Relaxed) < self.tallied() {
            self.forget_copy();
            let room = self.tallied().next_power_of_two();
            if let Ok(copy) = sys::map(0, BOARD_BYTES + room * COPIED, Access::ReadWrite) {
                self.share.copy.store(copy, Relaxed);
                self.share.copied.store(room, Relaxed);
            }
        }
        let (copy, board) = (self.share.copy.load(Relaxed), self.base.load(Relaxed) + SETS_MAX * PAGE);
        if copy == 0 {
            return false;
        }
        // SAFETY: both are mappings of ours, as long as that. Other threads may count while we copy: on
        // x86-64 and every Linux machine words are copied whole or the count is off by what they added.
        unsafe { core::ptr::copy_nonoverlapping(board as *const u8, copy as *mut u8, self.board_used()) };
        true
    }

    fn forget_copy(&self) {
        let (copy, room) = (self.share.copy.swap(0, Relaxed), self.share.copied.swap(0, Relaxed));
        if copy != 0 {
            // SAFETY: ours, and there is no fork under way that needs it.
            let _ = unsafe { sys::unmap(copy, BOARD_BYTES + room * COPIED) };
        }
    }

    /// In a forked child, first of all, and before [`Sets::attest`]: the sets as they were, or, if nobody `told` that there would be a fork, empty.
    pub fn restore(&self, told: bool) {
        let (base, is_shared) = (self.base.load(Relaxed), self.is_shared());
        if is_shared && told {
            if self.share.copy.load(Relaxed) != 0 && self.is_orphan() {
                let (copy, bytes) = (self.copied_sets(), self.tallied() * PAGE);
                // SAFETY: as in `snapshot`; there is nobody else in this process.
                unsafe { core::ptr::copy_nonoverlapping(copy as *const u8, base as *mut u8, bytes) };
            }
        } else if is_shared {
            // (They are, unless they are kept.)
            // SAFETY: the sets there are; there is nobody else in this process.
            unsafe { core::ptr::write_bytes((base + PAGE) as *mut u8, 0, self.made.load(Relaxed) * PAGE) };
            if self.snapshot_board() {
                // SAFETY: the copy begins with a board. What sets were entitled to is gone with them.
                let copied = unsafe { &*(self.share.copy.load(Relaxed) as *const Board) };
                copied.levels[Level::Charged as usize].store(0, Relaxed);
            }
        }
    }

    /// In a forked child, after that: a board of its own, as it was before the fork, in `file` or private.
    pub fn unshare(&self, file: Option<usize>) {
        let (copy, board) = (self.share.copy.load(Relaxed), self.base.load(Relaxed) + SETS_MAX * PAGE);
        if !self.is_shared() {
            return;
        }
        self.forget_texts();
        let is_ours = copy != 0 && file.is_some_and(|file| self.share(file)) && self.ensure(self.tallied());
        if is_ours {
            let unseen = self.board().unseen.load(Relaxed);
            // SAFETY: both are mappings of ours, as long as that.
            unsafe { core::ptr::copy_nonoverlapping(copy as *const u8, board as *mut u8, self.board_used()) };
            self.board().unseen.store(unseen, Relaxed);
        } else {
            if !self.make_private() {
                return;
            }
            self.share.sure.store(0, Relaxed);
            self.forget_copy();
            self.board().unseen.store(0, Relaxed);
            // Its own children find the sets as they are.
            // SAFETY: our own mapping; nothing changes in this process.
            let _ =
                unsafe { sys::advise(self.base.load(Relaxed) + PAGE, (self.there() - 1) * PAGE, Advice::KeepOnFork) };
        }
        // (Its parent may have made more since.)
        self.board().sets.store(self.tallied() as u32, Relaxed);
    }

    /// The board and its tallies private, with what the copy has, or, without one, what they have now.
    #[cold]
    #[inline(never)]
    fn make_private(&self) -> bool {
        let (copy, board) = (self.share.copy.load(Relaxed), self.base.load(Relaxed) + SETS_MAX * PAGE);
        let (used, all) = (self.board_used(), BOARD_BYTES + self.there() * TALLY_BYTES);
        if copy != 0 {
            // SAFETY: the mapping of board and tallies; there is nobody else in this process.
            let is_private = unsafe { sys::map_over(board, all, Access::ReadWrite) }.is_ok();
            if is_private {
                // SAFETY: both are mappings of ours, as long as that.
                unsafe { core::ptr::copy_nonoverlapping(copy as *const u8, board as *mut u8, used) };
            }
            return is_private;
        }
        // A mapping over another needs no more addresses; what it holds waits in set 0, which is nobody's.
        let aside = self.base.load(Relaxed);
        let are_private = (board..board + used).step_by(PAGE).all(|at| {
            // SAFETY: a page of that mapping, and ours; there is nobody else in this process.
            unsafe { core::ptr::copy_nonoverlapping(at as *const u8, aside as *mut u8, PAGE) };
            // SAFETY: as above.
            let is_private = unsafe { sys::map_over(at, PAGE, Access::ReadWrite) }.is_ok();
            if is_private {
                // SAFETY: as above.
                unsafe { core::ptr::copy_nonoverlapping(aside as *const u8, at as *mut u8, PAGE) };
            }
            is_private
        });
        // SAFETY: as above.
        unsafe { core::ptr::write_bytes(aside as *mut u8, 0, PAGE) };
        self.attest();
        // SAFETY: as above; nothing there is in use.
        are_private && (used == all || unsafe { sys::map_over(board + used, all - used, Access::ReadWrite) }.is_ok())
    }
}

#[cfg(test)]
#[allow(clippy::undocumented_unsafe_blocks)] // files and memory of their own
mod tests {
    use super::super::sets::room::{FIRST, Room};
    use super::*;
    use crate::arch::seq::RseqArea;
    use crate::stat::Mode;
    use std::vec::Vec;

    unsafe extern "C" {
        fn memfd_create(name: *const core::ffi::c_char, flags: u32) -> i32;
        fn ftruncate(file: i32, length: i64) -> i32;
        fn pread(file: i32, into: *mut u64, bytes: usize, at: i64) -> isize;
        fn pwrite(file: i32, from: *const u64, bytes: usize, at: i64) -> isize;
    }

    use crate::stat::board::SHARE_BYTES;

    const MANY: usize = 5 * FIRST;

    /// Sets in the fallback whose board is in a file where something was before; and the file.
    fn shared(sets: &Sets) -> i32 {
        let file = unsafe { memfd_create(c"board".as_ptr(), 0) };
        assert!(file >= 0 && unsafe { ftruncate(file, SHARE_BYTES as i64) } == 0);
        let first = (0..SHOW).chain(TALLIES..TALLIES + 16 * MANY * TALLY_BYTES).step_by(PAGE);
        first.for_each(|at| assert_eq!(unsafe { pwrite(file, &7, 8, at as i64) }, 8));
        let room = (0x1900..).find_map(|slot| Room::at(slot << 30)).unwrap();
        assert!(room.bytes < 128 * 1024, "{room:?}");
        unsafe { sets.open(room.base, Mode::Fallback, RseqArea::default(), None) };
        sets.roomy(room);
        assert!(sets.share(file as usize));
        sets.watch();
        file
    }
    fn make(sets: &Sets, upto: usize) {
        let state = sets.cpus.lock();
        while sets.made.load(Relaxed) < upto {
            sets.fresh(&state).unwrap();
        }
    }
    /// A word of each tally: in the file, and here.
    fn numbers(sets: &Sets, file: i32) -> [Vec<u64>; 2] {
        let in_file = |number: usize| {
            let mut word = 0;
            assert_eq!(unsafe { pread(file, &raw mut word, 8, (TALLIES + number * TALLY_BYTES) as i64) }, 8);
            word
        };
        let here = |number| sets.word(sets.tally(number), 0).load(Relaxed);
        [(0..sets.tallied()).map(in_file).collect(), (0..sets.tallied()).map(here).collect()]
    }
    fn number(sets: &Sets) {
        (0..sets.tallied()).for_each(|number| sets.word(sets.tally(number), 0).store(number as u64, Relaxed));
    }
    fn counted(sets: &Sets) -> Vec<u64> {
        (0..sets.tallied() as u64).collect()
    }

    #[test]
    fn a_shared_board_grows_in_its_file() {
        static SETS: Sets = Sets::new();
        let file = shared(&SETS);
        make(&SETS, MANY);
        assert_eq!(numbers(&SETS, file), [const { Vec::new() }; 2].map(|_: Vec<u64>| std::vec![0; MANY + 1]));
        number(&SETS);
        assert_eq!(numbers(&SETS, file)[0], counted(&SETS));
        assert!(SETS.share.text.load(Relaxed) == 0 && SETS.ensure_texts(8));
        unsafe { *(SETS.show() as *mut u64) = 77 };
        let mut word = 0;
        assert_eq!(unsafe { pread(file, &raw mut word, 8, SHOW as i64) }, 8);
        assert_eq!(word, 77);
    }

    /// With a copy it is as before the fork, without memory for one as it is now; and then nobody sees it, and it grows on.
    #[test]
    fn a_child_has_a_board_of_its_own_with_and_without_a_copy() {
        static COPIED: Sets = Sets::new();
        static BARE: Sets = Sets::new();
        static SHOWN: Sets = Sets::new();
        for sets in [&COPIED, &BARE, &SHOWN] {
            let file = shared(sets);
            make(sets, 2);
            sets.snapshot();
            make(sets, MANY);
            number(sets);
            assert!(sets.ensure_texts(8));
            if core::ptr::eq(sets, &BARE) {
                sets.forget_copy();
            } else {
                sets.snapshot();
                sets.word(sets.tally(3), 0).store(99, Relaxed);
            }
            // (What its parent has made since.)
            sets.board().sets.store(900, Relaxed);
            let own = core::ptr::eq(sets, &SHOWN).then(|| {
                let own = unsafe { memfd_create(c"board".as_ptr(), 0) };
                assert!(unsafe { ftruncate(own, SHARE_BYTES as i64) } == 0);
                own
            });
            sets.restore(true);
            sets.unshare(own.map(|file| file as usize));
            assert_eq!(numbers(sets, file)[1], counted(sets));
            assert_eq!((sets.is_shared(), sets.share.text.load(Relaxed)), (own.is_some(), 0));
            assert!(sets.is_watched() && !sets.is_orphan());
            assert_eq!(sets.board().sets.load(Relaxed), MANY as u32 + 1);
            make(sets, 3 * MANY);
            sets.word(sets.tally(2), 0).store(5, Relaxed);
            sets.word(sets.tally(3 * MANY), 0).store(6, Relaxed);
            assert_eq!(numbers(sets, file)[0][2], 2, "its parent's file");
            if let Some(own) = own {
                let [in_file, here] = numbers(sets, own);
                assert_eq!(in_file, here);
            }
        }
    }
}
