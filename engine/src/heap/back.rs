//! # Giving back when somebody asks, and what the heap is to [`crate::reclaim`]
//!
//! Cost: see there. A thread that drains waits while another one forks; one that trims or parks does nothing then. In a torn child
//! nothing is drained, either.

use super::state::{Environment, Heap};
use crate::arch::crew::Crew;
use crate::arch::gate::Inside;
use crate::cache::{DrainMode, DrainReport};
use crate::reclaim::Host;
use crate::reclaim::drain::DrainTarget;
use crate::reclaim::life::{SECOND, SHORTLY};
use crate::stat::{BadPointer, Event};

impl<E: Environment> Host for Heap<E> {
    fn enter(&self) -> Option<Inside<'_>> {
        self.enter()
    }
    fn reporter(&self) -> fn(usize, BadPointer) {
        E::report
    }
    fn start_keeper(&self) -> bool {
        E::start_keeper()
    }
    fn start_worker(&self) -> bool {
        E::start_worker()
    }
    fn crew(&self) -> Option<&'static Crew> {
        E::crew()
    }
    fn ends(&self) {
        E::ends();
    }
    fn serve(&self) -> bool {
        E::serve(self)
    }
    fn look_for_tracer(&self) {
        self.look_for_tracer();
    }
}

impl<E: Environment> Heap<E> {
    /// Empties what CPUs cache into the free memory of the heap while their owners go on, and says what it took
    /// ([`Mm::drain`](crate::reclaim::Mm::drain)).
    pub fn drain(&self, target: DrainTarget, mode: DrainMode) -> DrainReport {
        if !self.is_open() {
            return DrainReport::default();
        }
        let Some(_inside) = self.enter_patiently() else { return DrainReport::default() };
        self.mm().drain(target, mode)
    }

    /// Drains every set and gives all free memory back; the bytes given back. Nothing, beside a fork.
    pub fn trim(&self) -> usize {
        if !self.is_open() {
            return 0;
        }
        let Some(_inside) = self.enter() else { return 0 };
        self.mm().trim()
    }

    /// Gives all free memory back, and leaves what CPUs cache; the bytes given back. Nothing, beside a fork.
    pub fn purge(&self) -> usize {
        if !self.is_open() {
            return 0;
        }
        let Some(_inside) = self.enter() else { return 0 };
        self.mm().purge(self.reclaim.lock())
    }

    /// The calling thread will not allocate for a while: what its CPU caches may be drained without disturbing
    /// it. The next allocation on that CPU takes it back. Cost: a lock and a sequence.
    pub fn park(&self) -> bool {
        let Some(_inside) = self.enter() else { return false };
        let parked = self.is_open() && self.cache.sets.park();
        if parked {
            self.cache.sets.count(Event::Park, 1);
        }
        parked
    }

    /// Leaves a reaper, if this process is large enough and may ([`Mm::leave_reaper`](crate::reclaim::Mm::leave_reaper)).
    pub fn leave_reaper(&self) -> bool {
        self.is_open() && self.mm().leave_reaper(self.pid())
    }

    /// No thread of ours is there when this returns (after a second at most), nor is started until
    /// [`Heap::release_threads`]: what the process does meanwhile to itself it does to all of its threads. The next keeper may be started
    /// a while later only, as after a fork: a program that does this without end waits for few.
    ///
    /// In a signal's handler whose thread was inside, ours may wait for what the frame below has: then they are waited for shortly, and
    /// once. One that stays sees at its next look that the process is another's.
    pub fn hold_threads(&self) {
        self.look_around();
        let (mm, keeper) = (self.mm(), &self.reclaim.keeper);
        let (is_there, was_asked) = (!keeper.is_none(), keeper.is_resting());
        keeper.hold(self.is_open().then(|| mm.bell()));
        mm.await_threads(match (self.gate.is_inside(), was_asked) {
            (false, _) => SECOND,
            (true, false) => SHORTLY,
            (true, true) => 0,
        });
        if is_there {
            keeper.rest(self.cache.sets.clock.ticks());
        }
    }

    /// The opposite of one [`Heap::hold_threads`].
    pub fn release_threads(&self) {
        self.reclaim.keeper.release();
    }
}
