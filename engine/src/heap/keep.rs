//! # The housekeeper's life in a heap
//!
//! When it starts, what it does in turn, when it rests and when it ends. What it decides by, how it is called and how it
//! leaves: [`crate::reclaim::keeper`]; what it answers to who asks from outside: [`super::desk`].
//!
//! Locks: none held when the thread is started; those of what it does. Cost: nothing to fast paths; a slow `malloc` asks
//! whether there is a housekeeper.

use super::{Environment, Heap};
use crate::arch::atomic::Ordering::Acquire;
use crate::arch::cgroup;
use crate::knob::Id;
use crate::reclaim::keeper::{self, PERIOD, Watch};
use crate::stat::{Event, Level};

impl<E: Environment> Heap<E> {
    /// Starts the housekeeper if there is enough to keep. Only ever from a slow `malloc`: the
    /// C library frees under locks that the creation of a thread takes.
    #[cold]
    pub(super) fn consider_keeper(&self) {
        let (board, knobs) = (self.cache.sets.board(), &self.cache.knobs);
        // (A forked child may have more to give back than it uses.)
        let held = board.in_use() + board.level(Level::Lazy);
        let wanted = knobs.get(Id::IdleSeconds) > 0 && (held >= knobs.get(Id::KeeperBytes) || self.is_watched());
        // (Creating a thread allocates: that call finds the start claimed.)
        if wanted && !self.cache.sets.is_closed() && self.reclaim.keeper.claim() {
            if E::start_keeper() {
                self.count_if_open(Event::Keeper);
            } else {
                self.reclaim.keeper.dismiss(self.bell());
            }
        }
    }

    /// There is something to give back again.
    pub(super) fn wake_keeper(&self) {
        if self.reclaim.keeper.is_parked() {
            self.reclaim.keeper.wake(self.bell());
        }
    }

    /// Ends the housekeeper for good, soon; whether there was one.
    pub fn dismiss_keeper(&self) -> bool {
        // Its children, too, are to have none.
        self.reclaim.keeper.confine();
        if self.opened.load(Acquire) != 2 {
            return false;
        }
        let keeper = self.reclaim.keeper.dismiss(self.bell());
        self.reclaim.workers.call(true);
        keeper || self.reclaim.workers.alive() > 0
    }

    /// The housekeeper's whole life (see [`crate::reclaim::keeper`]).
    pub fn keep(&self) {
        let (keeper, sets) = (&self.reclaim.keeper, &self.cache.sets);
        let mut watch = Watch::default();
        if !keeper.begin() {
            return;
        }
        let mut due = 0;
        self.among_calls(|allowed| {
            if allowed {
                keeper.look_for_files();
                due = self.cache.sets.clock.now_ns() + PERIOD;
            }
            if keeper.may_read() {
                self.learn();
                // Now, not with the first look: a program that grows fast is near its limit by then.
                self.learn_limits();
            }
        });
        loop {
            // Acquire: what was asked before the bell rang is seen.
            let rung = self.bell().load(Acquire);
            if keeper.is_dismissed() {
                return self.reclaim.relax();
            }
            // (A filter may kill who asks for the time: then every ring ends a period.)
            let rest = self.among_calls(|allowed| match self.serve() {
                true => None,
                false => Some(if allowed { due.saturating_sub(self.cache.sets.clock.now_ns()) } else { PERIOD }),
            });
            let Some(rest) = rest else { continue };
            if rest > 0 {
                keeper.sleep(self.bell(), rung, rest);
                if !keeper.is_confined() {
                    continue;
                }
            }
            let left = || sets.level(Level::Lazy) + sets.level(Level::PagesDirty);
            // What was freed before this is seen by the look, or is why it does not rest.
            let before = left();
            let rests = self.among_calls(|allowed| {
                due = if allowed { self.cache.sets.clock.now_ns() + PERIOD } else { 0 };
                self.look(&mut watch)
            });
            if rests {
                let is_small = sets.board().in_use() < self.cache.knobs.get(Id::KeeperBytes) / 4;
                if is_small && !sets.is_shared() {
                    self.reclaim.relax();
                    return keeper.end();
                }
                keeper.park(&sets.clock, self.bell(), || self.among_calls(|_| self.serve()), before, left);
            }
        }
    }

    /// What of the work of a thread of ours may take calls that a filter forbids, and whether it may make them; inside the gate, alone
    /// in a program of one thread.
    pub(super) fn among_calls<T>(&self, work: impl FnOnce(bool) -> T) -> T {
        let _inside = self.gate.enter_ours();
        let allowed = self.reclaim.keeper.enter();
        let done = work(allowed);
        if allowed {
            self.reclaim.keeper.leave();
        }
        done
    }

    /// One look of the housekeeper; whether there is nothing left to do.
    fn look(&self, watch: &mut Watch) -> bool {
        if self.reclaim.keeper.may_read() {
            if watch.looks_at_limits() {
                self.learn_limits();
            }
            self.reclaim.set_short(cgroup::pressure() >= keeper::SHORT);
        } else {
            self.reclaim.relax();
        }
        self.look_for_tracer();
        let patience = self.cache.knobs.get(Id::IdleSeconds).max(1);
        let event = |event| self.cache.sets.event(event);
        let duty = watch.look(event(Event::ColdAlloc) + event(Event::AreaReuse), patience);
        self.approach();
        let bytes = self.give_back(duty);
        watch.rests(duty, bytes)
    }
}
