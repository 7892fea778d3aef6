//! # The keeper's life in a heap
//!
//! When it starts, what it does in turn, when it rests and when it ends; and what slow paths do where there is none. What
//! it decides by, how it is called and how it leaves: [`crate::reclaim::keeper`]; what it answers to those who ask from
//! outside: `control::mailbox`.
//!
//! Locks: none held when the thread is started; those of what it does. Cost: nothing to fast paths; a slow path asks
//! whether there is a keeper.

use super::keeper::{self, LIFE, PERIOD, Watch};
use super::mm::Mm;
use crate::arch::atomic::AtomicU32;
use crate::arch::atomic::Ordering::Acquire;
use crate::arch::{PAGE, cgroup, sys};
use crate::knob::{Id, TABLE};
use crate::stat::{Event, Level};

/// ms that a thread waits for ours that must have them gone.
pub const SECOND: u32 = 1000;
/// The same for a fork, which goes on all the same. (Some 0.1 ms, unless somebody else has the CPU.)
const BRIEF: u32 = 100;
/// For those that may wait for the caller.
pub const SHORTLY: u32 = 10;

impl Mm<'_> {
    /// After a slow path that found no keeper, with no lock held: starts it if there is enough to keep, or does what
    /// it would have done.
    #[cold]
    pub fn consider_keeper(&self) {
        let (knobs, keeper) = (&self.cache.knobs, &self.reclaim.keeper);
        let is_large = self.held() >= knobs.get(Id::KeeperBytes);
        if !is_large && !self.is_watched() || self.cache.sets.cpus.is_closed() {
            return;
        }
        let now = self.cache.sets.clock.ticks();
        if knobs.get(Id::IdleSeconds) > 0 && keeper.claim(now) {
            self.cache.sets.watch();
            if self.host.start_keeper() {
                self.cache.sets.count(Event::Keeper, 1);
            } else {
                keeper.refused(now);
            }
        }
        if is_large && keeper.is_none() {
            self.tend(now);
        }
    }

    /// Whether there is too little for a keeper, which there would be for more.
    pub fn is_small(&self) -> bool {
        let knobs = &self.cache.knobs;
        knobs.get(Id::IdleSeconds) > 0 && self.held() < knobs.get(Id::KeeperBytes)
    }

    /// Bytes in use, and such as may be given back: after a burst of frees there may be more of those.
    fn held(&self) -> u64 {
        let board = self.cache.sets.board();
        board.in_use() + board.level(Level::Lazy) + board.level(Level::PagesDirty)
    }

    /// There is something to give back again.
    pub fn wake_keeper(&self) {
        let keeper = &self.reclaim.keeper;
        if keeper.is_hibernating() {
            keeper.wake(self.bell());
        }
        // (One that was hibernating may have ended instead.)
        if keeper.is_none() {
            self.consider_keeper();
        }
    }

    /// What a look would do now, by the thread that happens to come along.
    fn tend(&self, now: u64) {
        if self.reclaim.is_frozen() {
            return;
        }
        // (Beside a fork the next that comes along does it.)
        let Some(_inside) = self.host.enter() else { return };
        let idle = Id::IdleSeconds as usize;
        let patience = match self.cache.knobs.at(idle) {
            0 => TABLE[idle].default,
            seconds => seconds,
        };
        let Some((duty, at_limits)) = self.reclaim.tending.is_due(now, || self.activity(), patience) else { return };
        // (A file that is open between two instructions of a program's own takes nobody's number.)
        if at_limits && self.reclaim.keeper.enter() {
            self.learn();
            self.learn_limits();
            self.reclaim.keeper.leave();
        }
        self.approach();
        self.give_back(duty);
    }

    /// Slow allocations and reuses of areas: what tells work from idleness. (By itself: the frames of its callers are on every slow path.)
    #[inline(never)]
    fn activity(&self) -> u64 {
        self.cache.sets.event(Event::AllocSlowpath) + self.cache.sets.event(Event::AreaReuse)
    }

    /// Tells zones from which size on they are to ask for huge pages: where the system has any, and no limit is near.
    fn allow_huge(&self) {
        let knobs = &self.cache.knobs;
        let bytes = knobs.size(Id::HugeZoneBytes);
        let is_bounded = self.cache.is_tight() || self.reclaim.is_short() || knobs.hard_limit() < u64::MAX;
        let allowed = bytes > 0 && self.reclaim.has_huge() && !is_bounded;
        self.pages.set_huge(if allowed { bytes.div_ceil(PAGE) } else { usize::MAX });
    }

    /// Before a fork: in a program that has one thread none of ours is there when this returns. A program that counts the
    /// process's threads behind its fork counts its own. (A frame of this thread that is inside keeps ours from ending:
    /// then they stay.)
    pub fn dismiss_threads(&self) {
        // What is written while a child shares it is copied page by page: the keeper's next look allows them again.
        self.pages.set_huge(usize::MAX);
        let (keeper, gate) = (&self.reclaim.keeper, &self.gate);
        let Some(crew) = self.host.crew().filter(|crew| !crew.is_gone() || !keeper.is_none()) else { return };
        if gate.is_inside() || gate.is_forking_self() {
            return;
        }
        // (The C library does not forget threads that have ended.)
        let is_single = || sys::program_is_single() || sys::tasks().is_some_and(|all| all.count <= crew.count() + 1);
        if !is_single() {
            return;
        }
        keeper.hold(Some(self.bell()));
        gate.wanting(|| self.await_threads(BRIEF));
        let now = self.cache.sets.clock.ticks();
        keeper.rest(now);
        keeper.release();
        self.reclaim.tending.put_off(now, self.activity());
        // What it would have given back, but for the little that frees leave where there is none: the program may idle from here on.
        if let Some(_inside) = self.host.enter() {
            self.check(0);
        }
    }

    /// After a fork, in the parent and in the child: no thread of ours is started soon in a program that had none at the fork.
    pub fn rest_threads(&self) {
        if sys::program_is_single() || self.reclaim.keeper.is_resting() {
            self.reclaim.keeper.rest(self.cache.sets.clock.ticks());
        }
    }

    /// Waits until threads of ours that are held are gone; so many ms at most for each of two things.
    pub fn await_threads(&self, ms: u32) {
        let Some(crew) = self.host.crew() else { return };
        let (keeper, workers, nobody) = (&self.reclaim.keeper, &self.reclaim.workers, AtomicU32::new(0));
        workers.call(true);
        // Whoever is just starting one has not seen that they are held, or the one will.
        for _ in 0..10 * ms {
            if !keeper.is_starting() && workers.alive() == 0 {
                break;
            }
            sys::futex_wait_for(&nobody, 0, 100_000);
        }
        crew.wait_gone(ms);
    }

    /// Whether the process has a thread of its own left, and its first one acts as it did at `first`; nothing that is
    /// not known ends a thread.
    fn lives(&self, first: Option<sys::Tasks>) -> bool {
        let (Some(crew), Some(first)) = (self.host.crew(), first) else { return true };
        let Some(now) = sys::tasks() else { return false };
        if !sys::leader_lives() {
            // (Those that are just ending are counted a moment longer by the kernel: the next look is right.)
            if now.count <= crew.count() + 1 {
                self.reclaim.keeper.hold(None);
                self.reclaim.workers.call(true);
                self.host.ends();
                return false;
            }
            self.reclaim.keeper.outlives();
        }
        now.owner == first.owner
    }

    /// The status with which a thread of ours ends: of the last thread of a process it is the process's own (Linux 6.0;
    /// before, that of the first thread always), and that is to be the status of the last that was not ours. The C library's
    /// threads end with 0.
    pub fn parting(&self) -> i32 {
        self.exposed(|allowed| {
            if !allowed || self.reclaim.keeper.is_outlived() || sys::leader_lives() { 0 } else { sys::leader_status() }
        })
    }

    /// The keeper's whole life (see [`crate::reclaim::keeper`]).
    pub fn keep(&self) {
        let keeper = &self.reclaim.keeper;
        if !keeper.begin() {
            return;
        }
        let first = self.exposed(|allowed| {
            let first = if allowed && self.host.crew().is_some() { sys::tasks() } else { None };
            if allowed {
                keeper.withdraw();
            }
            first
        });
        // Where it cannot see who else is left it might be the last, and stay.
        if first.is_none() && self.host.crew().is_some() {
            return keeper.refused(self.cache.sets.clock.ticks());
        }
        keeper.is_well();
        if keeper.may_read() {
            // Now, not with the first look: a program that grows fast is near its limit by then.
            self.read(|| {
                self.learn();
                self.learn_limits();
                self.reclaim.learn_huge();
            });
            self.among_calls(|allowed| {
                if allowed {
                    self.allow_huge();
                }
            });
        }
        self.keep_on(first);
        self.reclaim.relax();
        keeper.end();
    }

    /// Look after look, until it is to end.
    fn keep_on(&self, first: Option<sys::Tasks>) {
        let (keeper, sets) = (&self.reclaim.keeper, &self.cache.sets);
        let mut watch = Watch::default();
        let lives = || self.exposed(|allowed| allowed && self.lives(first));
        let serve = || self.among_calls(|allowed| allowed && self.host.serve()).unwrap_or(false);
        let mut due = sets.clock.now_ns() + PERIOD;
        loop {
            // Acquire: what was asked before the bell rang is seen.
            let rung = self.bell().load(Acquire);
            if keeper.is_held() || !lives() {
                return;
            }
            if serve() {
                continue;
            }
            let rest = due.saturating_sub(self.cache.sets.clock.now_ns());
            if rest > 0 {
                keeper.sleep(self.bell(), rung, rest.min(LIFE));
                continue;
            }
            let left = || sets.level(Level::Lazy) + sets.level(Level::PagesDirty);
            // What was freed before this is seen by the look, or is why it does not rest.
            let before = left();
            due = self.cache.sets.clock.now_ns() + PERIOD;
            if self.look(&mut watch)
                && !keeper.hibernate(&sets.clock, self.bell(), sets.is_shared(), (serve, lives), (before, left))
            {
                return;
            }
        }
    }

    /// What of the work of a thread of ours may take calls that a filter forbids, and whether it may make them; inside the gate, alone
    /// in a program of one thread. `None` where that thread does not leave (see [`crate::arch::gate::Gate::enter_ours`]).
    pub fn among_calls<T>(&self, work: impl FnOnce(bool) -> T) -> Option<T> {
        let _inside = self.gate.enter_ours()?;
        Some(self.exposed(work))
    }

    /// The same for what takes no lock and changes nothing that a child would miss: it need not be inside, where a thread that has
    /// ended in the middle of an allocation would keep it waiting.
    pub fn exposed<T>(&self, work: impl FnOnce(bool) -> T) -> T {
        let allowed = self.reclaim.keeper.enter();
        let done = work(allowed);
        if allowed {
            self.reclaim.keeper.leave();
        }
        done
    }

    /// What reads files, where that is allowed. Nobody waits for it, but a fork, whose child would have one that is open.
    pub fn read(&self, files: impl FnOnce()) {
        self.gate.beside(|| {
            self.exposed(|allowed| {
                if allowed {
                    files();
                }
            });
        });
    }

    /// One look of the keeper; whether there is nothing left to do.
    fn look(&self, watch: &mut Watch) -> bool {
        let reads = self.reclaim.keeper.may_read();
        if reads {
            self.read(|| {
                if watch.looks_at_limits() {
                    self.learn_limits();
                    self.reclaim.learn_huge();
                }
                self.reclaim.set_short(cgroup::pressure() >= keeper::SHORT);
            });
        } else {
            self.reclaim.relax();
        }
        self.among_calls(|allowed| allowed && self.look_inside(watch, reads)).unwrap_or(false)
    }

    /// What of a look is done inside.
    fn look_inside(&self, watch: &mut Watch, reads: bool) -> bool {
        if reads {
            self.allow_huge();
        }
        self.host.look_for_tracer();
        let patience = self.cache.knobs.get(Id::IdleSeconds).max(1);
        let duty = watch.look(self.activity(), patience);
        self.approach();
        let bytes = self.give_back(duty);
        watch.rests(duty, bytes)
    }
}

#[cfg(test)]
pub(super) mod tests;
