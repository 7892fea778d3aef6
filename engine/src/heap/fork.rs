//! # Fork and vfork of the whole
//!
//! ```text
//! prepare: nobody comes in, those inside leave ([`crate::arch::gate`]) ─► every slot void, a fence ─► the board copied
//! parent:                                  slots back ─► others come in ─► what was put off is freed
//! child:   a board of its own, no threads, slots back ─► others come in ─► what was put off is freed
//! ```
//! In between every thread, the forking one too, gets memory from the side arena ([`super::side`]), and what it frees is put off.
//! So no thread waits for a fork, whatever locks it and the forking thread hold: the C library's fork takes the list of streams and
//! the lock of the name services after our handlers, under which other threads allocate. (But for a while, where there is nothing aside: see
//! [`super::enter`].)
//!
//! Invariants: while a fork is in flight no lock of the heap is held and nothing is in a thread's hand, but in frames that the forking
//! thread itself interrupted. A child that its parent could not fence leaves behind what the sets had cached.
//! Locks: none. Cost: a look at the rooms and slots, a fence; to others a walk of the side arena.

use super::state::{Environment, Heap};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::settle;
use crate::arch::gate::Begun;
use crate::stat::Event;

impl<E: Environment> Heap<E> {
    /// Before a fork; or false, and all as it was, after so many looks (see [`crate::arch::gate::Gate::fork_begin_within`]). Signals are
    /// blocked.
    #[must_use]
    pub fn fork_begin(&self, looks: u32) -> bool {
        // (A child that no handler has told would wait for threads of its parent.)
        self.look_around();
        self.mm().dismiss_threads();
        let seal = |is_closed: bool| {
            if !is_closed {
                settle!(self.fenced, self.cache.sets.close());
            }
            self.cache.sets.snapshot();
        };
        self.gate.fork_begin_within(looks, seal, || self.cache.sets.reopen())
    }

    /// After a fork, in the parent (`child` false) or in the child. Signals are blocked.
    pub fn fork_end(&self, child: bool) {
        let vforks = self.gate.own_vforks();
        if child {
            // (A torn child of nobody's telling seals nothing, so there is no copy for its own: what there is is its parent's.)
            self.cache.sets.restore(!self.gate.is_torn());
            self.cache.sets.attest();
            self.unshare();
            self.cache.sets.inherit(vforks, !self.fenced.load(Relaxed));
            self.profile.samples.inherit();
            self.reclaim.relax();
            self.gates.follow();
        }
        settle!(self.vain, false);
        let lost = self.gate.fork_end(child, || self.cache.sets.reopen());
        if child {
            self.areas.inherit(lost);
        }
        self.mm().rest_threads();
        self.count_if_open(Event::Fork);
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

    /// Before a vfork; what its end is to be told ([`Gate::vfork_begin`](crate::arch::gate::Gate::vfork_begin)). Signals are blocked.
    #[must_use]
    pub fn vfork_begin(&self, apart: bool) -> Begun {
        // (A lock that a thread of the parent had at a fork that nobody told is nobody's here.)
        self.look_around();
        // In this order, and at the end in the reverse: of one that is killed in between the sets stay closed.
        self.cache.sets.close();
        self.gate.vfork_begin(apart)
    }
    /// After a vfork, in the parent; how many are over by that. Signals are blocked.
    pub fn vfork_end(&self, begun: Begun) -> u32 {
        let ended = self.gate.vfork_end(begun);
        for _ in 0..ended {
            self.cache.sets.reopen();
            self.count_if_open(Event::Vfork);
        }
        ended
    }
    /// A child shares this memory from now on: the sets stay closed, but not in children that do not share it.
    pub fn shared_for_good(&self, begun: Begun) {
        self.gate.vfork_end(begun);
        self.count_if_open(Event::Vfork);
    }
    /// Vforks that this thread has in flight.
    #[must_use]
    pub fn own_vforks(&self) -> u32 {
        self.gate.own_vforks()
    }
}
