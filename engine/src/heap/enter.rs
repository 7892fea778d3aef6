//! # Coming in
//!
//! Whoever takes a lock of the heap is inside its gate ([`crate::arch::gate`]). Here is where a child that no handler has told finds
//! out that it is one.
//!
//! Locks: none. Cost: a look at the page that a fork wipes, and the gate's.

use super::state::{Environment, Heap};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::gate::Inside;
use crate::arch::{stack, sys};
use crate::stat::Event;

impl<E: Environment> Heap<E> {
    /// Comes in; `None` beside a fork, and in the thread that is just opening the heap (what it calls for that may allocate).
    #[inline]
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        // Before anything is taken: a stack that ends here ends while a program's handler may jump out of its fault.
        stack::probe();
        if self.is_opener() {
            return None;
        }
        if self.cache.sets.is_orphan() {
            self.notice();
        }
        self.gate.enter()
    }

    /// Comes in, when no fork is in flight but this thread's own.
    pub(super) fn enter_patiently(&self) -> Inside<'_> {
        stack::probe();
        if self.cache.sets.is_orphan() {
            self.notice();
        }
        self.gate.enter_patiently()
    }

    /// This is a child that was forked past the C library's `fork`, so that no handler has told it (`_Fork` of a program that does not
    /// find ours, `clone`, a raw system call). If somebody was inside the heap at that moment the child lives on the side arena.
    #[cold]
    fn notice(&self) {
        let _signals = sys::Signals::block();
        // (With a fork of its own in flight this thread is told in a moment, and gets memory from the side arena till then.)
        if self.cache.sets.is_orphan() && !self.gate.is_forking_self() {
            let vforks = self.gate.own_vforks();
            let torn = self.gate.inherit_unasked();
            self.cache.sets.restore(false);
            self.unshare();
            self.cache.sets.inherit(vforks, false);
            self.reclaim.relax();
            self.areas.inherit(true);
            if !torn {
                self.profile.samples.inherit();
                self.cache.sets.reopen();
            }
            self.count_if_open(Event::Fork);
        }
    }

    /// In a forked child: a board of its own, and none of its parent's threads.
    pub(super) fn unshare(&self) {
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
