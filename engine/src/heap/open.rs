//! # How a heap opens
//!
//! Whoever comes first opens it: maps the sets and the board, chooses the mode (sequences only if the self-test passes), opens the
//! gate. Others sleep. What the opening itself asks for gets memory from the side arena.
//!
//! Invariant: the door is open last of all ([`super::door`]). Cost: a load.
#![allow(unsafe_code)] // opens the sets

use super::door::State;
use super::state::{Environment, Heap};
use crate::arch::atomic::Ordering::{Relaxed, Release};
use crate::arch::seq::RseqArea;
use crate::arch::sys;
use crate::cache::sets::room::Room;
use crate::cpu::Simulation;
use crate::knob::{BY_CGROUP, BadFree, Id};
use crate::reclaim::mm::{ALL_CLASSES, bytes_of};
use crate::slab::class::CLASSES;
use crate::stat::board::{MAGIC, VERSION};
use crate::stat::{Index, Level, Mode, Reason};

/// What the environment decided about a heap that opens.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// How sets are reached.
    pub mode: Mode,
    /// Why.
    pub reason: Reason,
    /// What indexes them.
    pub index: Index,
    /// This process's rseq areas.
    pub area: RseqArea,
    /// For tests.
    pub simulation: Option<&'static Simulation>,
    /// A file to share the board through, or none.
    pub share: Option<usize>,
}

impl<E: Environment> Heap<E> {
    /// Maps the sets and the board, chooses the mode (sequences only if the self-test
    /// passes) and opens the gate. Called once, by `start`.
    ///
    /// # Errors
    /// Without memory for the sets; the heap stays closed.
    ///
    /// # Safety
    /// `opening.area` is right for mode `Sequences`; the knobs are set.
    pub unsafe fn open(&self, opening: &Opening) -> Result<(), sys::Errno> {
        let sets = &self.cache.sets;
        let room = Room::new()?;
        let base = room.base;
        // SAFETY: fresh and zeroed, for ever; still closed.
        unsafe { sets.open(base, Mode::Closed, opening.area, opening.simulation) };
        sets.roomy(room);
        if let Some(file) = opening.share {
            if sets.share(file) {
                sets.watch();
            } else {
                E::withdraw();
            }
        }
        let sizes = (0..ALL_CLASSES).map(bytes_of);
        self.cache.size_classes(sizes);
        if opening.reason == Reason::Unregistered {
            // (An emulator, as likely as not.)
            self.areas.confine();
        }
        if self.cache.knobs.choice::<BadFree>() == BadFree::Abort {
            self.slabs.check();
        }
        let board = sets.board();
        board.sets.store(1, Relaxed);
        board.set(Level::Reserved, room.bytes as u64);
        // Of a board in a file the tallies lie elsewhere in it.
        board.set(Level::Mappings, 2 + u64::from(sets.is_shared()));
        // SAFETY: the same mapping, now with its mode.
        unsafe { sets.open(base, opening.mode, opening.area, opening.simulation) };
        let (mut mode, mut reason) = (opening.mode, opening.reason);
        if mode == Mode::Sequences && !sets.self_test(&self.cache.meta) {
            (mode, reason) = (Mode::Fallback, Reason::SelfTest);
            // SAFETY: as above.
            unsafe { sets.open(base, mode, opening.area, opening.simulation) };
        }
        if sets.is_shared() {
            self.learn_pid(true);
            board.pid.store(self.pid(), Relaxed);
        }
        self.describe(mode, reason, opening.index);
        self.cache.publish_knobs();
        self.reclaim.youth.begin(self.cache.sets.clock.ticks());
        if self.cache.knobs.get(Id::HardLimit) == BY_CGROUP {
            self.mm().learn_limits();
        }
        // (Who asks for the fallback may live behind a filter that kills for what a bias needs.)
        if reason != Reason::Asked {
            sets.cpus.favour();
        }
        self.door.end(State::Open);
        self.set_gates(true);
        // (It is off already, on pages that nobody has touched; or another thread has begun to sample meanwhile.)
        if self.cache.knobs.get(Id::ProfileBytes) != 0 || self.profile.is_on() {
            self.apply_profile();
        }
        Ok(())
    }

    /// Writes the board's constants.
    fn describe(&self, mode: Mode, reason: Reason, index: Index) {
        let board = self.cache.sets.board();
        for class in 1..ALL_CLASSES {
            board.class[class].size.store(bytes_of(class) as u64, Relaxed);
        }
        board.version.store(VERSION, Relaxed);
        board.mode.store(mode as u32, Relaxed);
        board.reason.store(reason as u32, Relaxed);
        board.index.store(index as u32, Relaxed);
        board.classes.store(ALL_CLASSES as u32, Relaxed);
        board.size_classes.store(CLASSES as u32, Relaxed);
        board.start_ticks.store(self.cache.sets.clock.ticks(), Relaxed);
        board.start_ns.store(self.cache.sets.clock.now_ns(), Relaxed);
        // Release: a reader that sees the magic sees the rest.
        board.magic.store(MAGIC, Release);
    }

    /// Opens the heap if nobody has; false without memory.
    #[inline]
    pub(super) fn opened(&self) -> bool {
        self.is_open() || self.open_or_wait()
    }

    #[cold]
    #[inline(never)]
    fn open_or_wait(&self) -> bool {
        let door = &self.door;
        while !self.is_open() {
            if door.turns(State::Closed, State::Opening) {
                // Relaxed: read by this thread and its handlers; others find another name.
                door.opener.store(sys::thread_pointer(), Relaxed);
                E::start(self);
                door.opener.store(0, Relaxed);
                // Without success the next call tries again.
                if !self.is_open() {
                    door.end(State::Closed);
                }
                return self.is_open();
            }
            // (Asleep: whoever opens it may have to run on this CPU.)
            if door.is(State::Awaited) || door.turns(State::Opening, State::Awaited) {
                sys::futex_wait(&door.state, State::Awaited as u32);
            }
        }
        true
    }

    /// Opens the heap now (a constructor would).
    pub fn prepare(&self) {
        let _inside = self.enter();
        self.opened();
    }

    /// The process is about to forbid itself all system calls but four.
    pub fn freeze(&self) {
        let inside = self.enter_patiently();
        if inside.is_some() && self.opened() {
            self.cache.meta.stock(self.cache.sets.board());
        }
        self.reclaim.freeze();
    }

    /// The process is about to filter its own system calls, or promises what lets it: no thread of ours is there any
    /// more, and slow paths do without.
    pub fn confine(&self) {
        self.look_around();
        if self.is_open() && self.reclaim.keeper.enter() {
            // For good: nobody may read them later.
            self.mm().learn_limits();
            self.reclaim.keeper.leave();
        }
        self.areas.confine();
        self.pages.confine();
        self.cache.sets.cpus.confine();
        self.reclaim.keeper.confine();
        // (Released, they stay away: for good.)
        self.hold_threads();
        self.release_threads();
        self.apply_profile();
    }

    /// The process ends in the usual way: says so to those who read its board. (Not what a child of `vfork` does.)
    pub fn note_end(&self) {
        if self.is_open() && self.cache.sets.is_shared() && self.pid() == sys::pid() {
            self.cache.sets.board().ended.store(1, Relaxed);
        }
    }
}
