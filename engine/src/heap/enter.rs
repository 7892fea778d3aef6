//! # Coming in
//!
//! Whoever takes a lock of the heap is inside its gate ([`crate::arch::gate`]). Here is where a child that no handler has told finds
//! out that it is one.
//!
//! Locks: none. Cost: a look at the page that a fork wipes, and the gate's.

use super::side;
use super::state::{Environment, Heap};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::gate::{Inside, SEAL_NAPS};
use crate::arch::{stack, sys};
use crate::stat::{Event, Level};

/// Bytes of a request that waits for a fork.
pub(super) const LARGE: usize = 2 << 20;
/// Looks of a request that has no other way.
pub(super) const PATIENT: u32 = 4 * SEAL_NAPS;
/// Bytes that are touched while a thread looks once: 32 pages in 50 µs.
const TOUCHED: usize = 128 << 10;

impl<E: Environment> Heap<E> {
    /// Comes in; `None` beside a fork, and in the thread that is just opening the heap (what it calls for that may allocate).
    #[inline]
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        // Before anything is taken: a stack that ends here ends while a program's handler may jump out of its fault.
        stack::probe();
        if self.is_opener() {
            return None;
        }
        self.look_around();
        self.gate.enter()
    }

    /// Before somebody comes in, or does what depends on whose threads are there: whether this is a child that nobody has told so. A process of several threads, of which a child may miss
    /// one that is inside, has a witness of that from the first on that comes in.
    #[inline]
    pub(super) fn look_around(&self) {
        let sets = &self.cache.sets;
        if sets.is_orphan() {
            self.notice();
        }
        // (Where the program filters its calls there is none: a filter may kill for it.)
        if !sets.watches() && !sys::single_threaded() && self.is_open() && !self.is_confined() {
            sets.watch();
        }
    }

    /// Comes in for so many bytes. Beside a fork a large request waits for it, no longer than its pages take to touch: what is moved by
    /// page tables inside is copied aside. One for which there is nothing aside, by the hard limit or the system's, waits, too: what is
    /// free is inside.
    #[inline]
    pub(super) fn enter_for(&self, bytes: usize) -> Option<Inside<'_>> {
        self.enter().or_else(|| self.enter_later(bytes))
    }

    #[cold]
    #[inline(never)]
    fn enter_later(&self, bytes: usize) -> Option<Inside<'_>> {
        if self.is_opener() {
            return None;
        }
        let looks = match bytes {
            _ if self.is_refused_aside(bytes) => PATIENT,
            ..LARGE if !self.side.has_room(bytes) => PATIENT,
            ..LARGE => 0,
            _ => u32::try_from(bytes / TOUCHED).map_or(SEAL_NAPS, |looks| looks.min(SEAL_NAPS)),
        };
        let inside = self.enter_after_fork(looks)?;
        // What was put off is there for this request.
        self.pay_inside(&inside);
        Some(inside)
    }

    /// Comes in when the fork in flight is over, if that is within so many looks (see [`crate::arch::gate::Gate::enter_within`]). Who waited
    /// for all of them waited in vain, and for every other: the fork may wait for one of these threads.
    pub(super) fn enter_after_fork(&self, looks: u32) -> Option<Inside<'_>> {
        // Relaxed, both: policy.
        if self.vain.load(Relaxed) {
            return None;
        }
        let inside = self.gate.enter_within(looks);
        let is_mine = self.gate.is_inside() || self.gate.is_forking_self();
        if inside.is_none() && looks == PATIENT && self.gate.is_forking() && !is_mine {
            self.vain.store(true, Relaxed);
            // (It may have ended in between.)
            if !self.gate.is_forking() {
                self.vain.store(false, Relaxed);
            }
        }
        inside
    }

    /// Whether the hard limit refuses so many bytes more beside a fork.
    pub(super) fn is_refused_aside(&self, bytes: usize) -> bool {
        // (What is kept is held already, but for pages that have gone back.)
        let bytes = if self.side.holds(bytes) { 0 } else { bytes };
        let aside = self.side.held().saturating_add(bytes as u64);
        self.is_open() && aside > side::LEAST && self.mm().is_limited(bytes)
    }

    /// The level of what the side arena gave is what it is.
    pub(super) fn tell_aside(&self) {
        if self.is_open() {
            self.side.tell(|bytes| self.cache.sets.board().shift(Level::Aside, bytes));
        }
    }

    /// Comes in, when no fork is in flight but this thread's own. `None` in a torn child, whose fork never ends: there is no memory, and
    /// nothing to give back.
    pub(super) fn enter_patiently(&self) -> Option<Inside<'_>> {
        stack::probe();
        self.look_around();
        if self.gate.is_torn() { None } else { Some(self.gate.enter_patiently()) }
    }

    /// This is a child that was forked past the C library's `fork`, so that no handler has told it (`_Fork` of a program that does not
    /// find ours, `clone`, a raw system call). If somebody was inside the heap at that moment the child lives on the side arena.
    #[cold]
    fn notice(&self) {
        let _signals = sys::Signals::block();
        // (With a fork of its own in flight this thread is told in a moment, and gets memory from the side arena till then.)
        // (Nor where it has begun a thread, and that one is at it.)
        if self.cache.sets.is_orphan() && !self.gate.is_forking_self() && self.cache.sets.claim() {
            let vforks = self.gate.own_vforks();
            let torn = self.gate.inherit_unasked();
            self.cache.sets.restore(false);
            self.unshare();
            self.cache.sets.inherit(vforks, false);
            self.reclaim.relax();
            self.areas.inherit(true);
            self.vain.store(false, Relaxed);
            E::inherit(vforks);
            if !torn {
                self.profile.samples.inherit();
                self.cache.sets.reopen();
            }
            self.cache.sets.attest();
            self.count_if_open(Event::Fork);
        }
    }

    /// In a forked child: a board of its own, and none of its parent's threads.
    pub(super) fn unshare(&self) {
        self.unshare_board();
        let aside = self.side.inherit();
        let board = self.cache.sets.board();
        if self.is_open() && board.level(Level::Aside) != aside {
            board.set(Level::Aside, aside);
        }
    }

    fn unshare_board(&self) {
        let sets = &self.cache.sets;
        self.reclaim.keeper.gone();
        self.reclaim.workers.gone();
        if let Some(crew) = E::crew() {
            crew.gone();
        }
        if !matches!(self.pid(), 0 | u32::MAX) {
            self.learn_pid(!self.is_confined());
        }
        self.reclaim.youth.begin(sets.clock.ticks());
        if !sets.is_shared() {
            return;
        }
        let file = E::publish();
        sets.unshare(file);
        if let Some(file) = file {
            sys::close(file);
            if !sets.is_shared() {
                E::withdraw();
            }
        }
        let board = sets.board();
        // (A filter may kill for the question; then the board is the child's alone.)
        board.pid.store(if self.is_confined() { 0 } else { sys::pid() }, Relaxed);
        // Nobody has asked the child.
        board.mailbox.answered.store(board.mailbox.asked.load(Relaxed), Relaxed);
    }
}
