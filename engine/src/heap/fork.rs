//! # Fork and vfork of the whole
//!
//! ```text
//! prepare: nobody comes in, those inside leave ([`crate::arch::gate`]) ─► every slot void, a fence ─► the board copied
//! parent:                                  slots back ─► others come in ─► what was put off is freed
//! child:   a board of its own, no threads, slots back ─► others come in ─► what was put off is freed
//! ```
//! In between every thread, the forking one too, gets memory from the side arena ([`super::side`]), and what it frees is put off.
//! So no thread waits for a fork, whatever locks it and the forking thread hold: the C library's fork takes the list of streams and
//! the lock of the name services after our handlers, under which other threads allocate.
//!
//! Invariants: while a fork is in flight no lock of the heap is held and nothing is in a thread's hand, but in frames that the forking
//! thread itself interrupted. A child that its parent could not fence leaves behind what the sets had cached.
//! Locks: none. Cost: a look at the rooms and slots, a fence; to others a walk of the side arena.

use super::{Environment, Heap};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::gate::Inside;
use crate::arch::{stack, sys};
use crate::stat::BadPointer;
use crate::stat::Event;
use core::ptr;

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

    /// Before a fork; or false, and all as it was, after so many looks (see [`crate::arch::gate::Gate::fork_begin_within`]). Signals are
    /// blocked.
    #[must_use]
    pub fn fork_begin(&self, looks: u32) -> bool {
        self.mm().dismiss_threads();
        self.gate.fork_begin_within(looks, || {
            let fenced = self.cache.sets.close();
            self.fenced.store(fenced, Relaxed);
            self.cache.sets.snapshot();
        })
    }

    /// After a fork, in the parent (`child` false) or in the child. Signals are blocked.
    pub fn fork_end(&self, child: bool) {
        let vforks = self.gate.own_vforks();
        if child {
            self.cache.sets.restore(true);
            self.unshare();
            self.cache.sets.inherit(vforks, !self.fenced.load(Relaxed));
            self.profile.samples.inherit();
            self.reclaim.relax();
        }
        let lost = self.gate.fork_end(child, || self.cache.sets.reopen());
        if child {
            self.areas.inherit(lost);
        }
        self.mm().rest_threads();
        self.count_if_open(Event::Fork);
    }

    /// In a forked child: a board of its own, and none of its parent's threads.
    fn unshare(&self) {
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

    /// Behind a fork, in the parent: pays what was put off, and does what no keeper may be there to do.
    pub fn after_fork(&self) {
        self.pay();
        let keeper = &self.reclaim.keeper;
        let is_due = keeper.is_resting() && keeper.is_none() && self.is_open();
        if is_due && !self.gate.is_inside() && !self.gate.is_forking() {
            self.mm().consider_keeper();
        }
    }

    /// Before a vfork. Signals are blocked.
    pub fn vfork_begin(&self) {
        self.gate.vfork_begin();
        self.cache.sets.close();
    }
    /// After a vfork, in the parent. Signals are blocked.
    pub fn vfork_end(&self) {
        self.cache.sets.reopen();
        self.gate.vfork_end();
        self.count_if_open(Event::Vfork);
    }
    /// A child shares this memory from now on: the sets stay closed, but not in children that do not share it.
    pub fn shared_for_good(&self) {
        self.gate.vfork_end();
        self.count_if_open(Event::Vfork);
    }
    /// Vforks that this thread has in flight.
    #[must_use]
    pub fn own_vforks(&self) -> u32 {
        self.gate.own_vforks()
    }

    /// `size` bytes beside a fork.
    #[cold]
    pub(super) fn alloc_aside(&self, size: usize, align: usize) -> *mut u8 {
        let block = self.side.alloc(size, align);
        self.count_if_open(if block.is_some() { Event::AllocAside } else { Event::NoMemory });
        block.map_or_else(
            || {
                E::no_memory();
                ptr::null_mut()
            },
            ptr::NonNull::as_ptr,
        )
    }

    /// An object that is freed beside a fork, or a block of the side arena that is freed at any time.
    ///
    /// # Safety
    /// As [`Heap::free`].
    #[cold]
    pub(super) unsafe fn free_aside(&self, address: usize) {
        if self.pages.windows.find(address).is_none() {
            if self.side.size(address).is_some() {
                // SAFETY: the caller's promise.
                return unsafe { self.side.free(address) };
            }
            self.count_if_open(Event::BadFree);
            return E::report(address, BadPointer::Foreign);
        }
        let is_noted = self.side.put_off(address);
        self.count_if_open(if is_noted { Event::PutOff } else { Event::LostAside });
        // SeqCst, after the note: either this sees that the fork is over, or the fork's end sees the note.
        if !self.gate.is_forking() {
            self.pay();
        }
    }

    /// Frees what was put off, unless a fork is in flight or this is the handler of a signal that came to a thread that is inside.
    pub fn pay(&self) {
        if !self.side.is_owing() || self.gate.is_inside() {
            return;
        }
        // Inside, so that a fork finds all of it paid or none of it taken.
        let Some(_inside) = self.enter() else { return };
        for address in self.side.take() {
            // SAFETY: whoever freed it promised so.
            unsafe { self.free_inside(address, false) };
        }
    }
}
