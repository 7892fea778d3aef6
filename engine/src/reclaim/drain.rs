//! # Draining, as it is asked for: by the program, by `malloc_trim`, by the keeper
//!
//! | asked by | which sets | mode | waits for answers |
//! |---|---|---|---|
//! | the program | a CPU's, all, those of CPUs that run none of our threads | as asked | [`PATIENCE`] |
//! | `trim` | all; the caller's own, which it gives up itself, and those that need no fence, once the program filters its system calls | knob `drain`, *auto* if that is off | no |
//! | the keeper | of CPUs that do nothing, or whose page lists do nothing and hold another node's pages; all when the program is idle | knob `drain` | until it looks again |
//!
//! Lock: `Reclaim::purging` while sets are switched and emptied; not while it waits.

use super::keeper::{Duty, QUIET};
use super::mm::{ALL_CLASSES, Mm};
use super::policy;
use crate::arch::atomic::AtomicU32;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::{sys, topology};
use crate::cache::cpuset::CpuSet;
use crate::cache::{DrainMode, DrainReport};
use crate::cpu::{INDICES, NODES};
use crate::knob::Drain;
use crate::slab::class::CLASSES;
use crate::stat::{Event, Level, Timing};

/// Nanoseconds that a gentle drain waits for owners to answer.
pub const PATIENCE: u64 = 10_000_000;
/// Nanoseconds between two looks for answers.
const STEP: u64 = 100_000;

/// Which sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainTarget {
    /// Every one.
    All,
    /// Those of this CPU.
    Cpu(u32),
    /// Those of CPUs that run no thread of ours now: no fence interrupts anybody there.
    Idle,
}

/// The CPUs on which a fence would interrupt a thread of ours; all, if that cannot be known.
struct RunningCpus {
    /// Of the window of numbers that was asked for last.
    cpus: CpuSet,
    known: bool,
    asked: bool,
}

impl RunningCpus {
    const fn new() -> Self {
        Self { cpus: CpuSet::around(0), known: false, asked: false }
    }
    /// Where nobody may look: all of them.
    const fn unknown() -> Self {
        Self { cpus: CpuSet::around(0), known: false, asked: true }
    }
    /// Whether `cpu` is one. Looks at the threads once (for each [`WINDOW`](crate::cache::cpuset::WINDOW) of CPUs),
    /// when this is first asked.
    fn contains(&mut self, cpu: u32) -> bool {
        let cpu = cpu as usize;
        if !self.asked || self.known && !self.cpus.covers(cpu) && cpu < INDICES {
            self.asked = true;
            let mut cpus = CpuSet::around(cpu.min(INDICES - 1));
            self.known = topology::running(|cpu| {
                if cpus.covers(cpu) {
                    cpus.insert(cpu);
                }
            });
            self.cpus = cpus;
        }
        !self.known || self.cpus.contains(cpu)
    }
}

impl Mm<'_> {
    /// Empties what CPUs cache into the free memory of the heap while their owners go on, and says what it
    /// took. Cost: see [`crate::cache::drain`]; with [`DrainTarget::Idle`] and *gentle* drains also
    /// a look at each thread, and up to [`PATIENCE`]. (Out of line: its frame comes behind the look at the stack.)
    #[inline(never)]
    pub fn drain(&self, target: DrainTarget, mode: DrainMode) -> DrainReport {
        let mut report = DrainReport::default();
        self.learn();
        let sets = &self.cache.sets;
        let start = sets.clock.ticks();
        if target == DrainTarget::All {
            self.vmap().empty_wide();
        }
        let (mut running, mut patience) = (RunningCpus::new(), PATIENCE / STEP);
        for window in CpuSet::windows(sets.top()) {
            self.drain_window(window, target, mode, &mut running, &mut patience, &mut report);
        }
        sets.time(Timing::Drain, start);
        sets.count(Event::DrainMissed, report.unreached as u64);
        report
    }

    /// The same for the indices of a window, with so many looks for answers left.
    fn drain_window(
        &self,
        window: usize,
        target: DrainTarget,
        mode: DrainMode,
        running: &mut RunningCpus,
        patience: &mut u64,
        report: &mut DrainReport,
    ) {
        let (sets, everything) = (&self.cache.sets, self.everything());
        let mut wanted = CpuSet::around(window);
        for index in sets.used_of(window) {
            if sets.home_of(index).is_none() {
                continue;
            }
            let cpu = index as u32;
            let is_wanted = match target {
                DrainTarget::All => true,
                DrainTarget::Cpu(number) => cpu == number,
                DrainTarget::Idle => sets.is_parked(index) || !running.contains(cpu),
            };
            if is_wanted {
                wanted.insert(index);
            }
        }
        let held = self.reclaim.lock();
        let asked = &mut wanted;
        self.cache.drain(&everything, asked, mode, &mut |cpu| running.contains(cpu), report);
        drop(held);
        // Answers are collected as they come; whoever has not answered in the end need not any more.
        let nobody = AtomicU32::new(0);
        while !asked.is_empty() {
            let is_last = *patience == 0;
            if is_last {
                asked.iter().for_each(|index| _ = sets.withdraw(index));
            } else {
                self.gate.abroad(|| sys::futex_wait_for(&nobody, 0, STEP));
            }
            if asked.iter().any(|index| sets.is_answered(index)) {
                let _held = self.reclaim.lock();
                let before = asked.len();
                self.cache.collect(&everything, asked, report);
                report.answers += (before - asked.len()) as u64;
            }
            if is_last {
                break;
            }
            *patience -= 1;
        }
        report.unreached += asked.len();
    }

    /// Drains every set and gives all free memory back; the bytes given back.
    #[must_use]
    pub fn trim(&self) -> usize {
        self.learn();
        let everything = self.everything();
        let held = self.reclaim.lock();
        let mut running = RunningCpus::new();
        self.empty_caches_by(self.background().unwrap_or(DrainMode::Auto), &mut |cpu| running.contains(cpu));
        everything.slabs.trim(|| self.gate.is_wanted()) + self.purge(held)
    }

    /// How far drains that nobody asked for go; `None` if there are to be none.
    pub fn background(&self) -> Option<DrainMode> {
        match self.cache.knobs.choice() {
            Drain::Auto => Some(DrainMode::Auto),
            Drain::Gentle => Some(DrainMode::Gentle),
            Drain::Expedited => Some(DrainMode::Expedited),
            Drain::Off => None,
        }
    }

    /// What one look of the keeper asks for; the bytes given back.
    pub fn give_back(&self, duty: Duty) -> usize {
        let everything = self.everything();
        let sets = &self.cache.sets;
        if duty == Duty::All || self.areas.wide.is_stale() {
            self.vmap().empty_wide();
        }
        let held = self.reclaim.lock();
        if let Some(mode) = self.background()
            && !self.reclaim.keeper.is_confined()
        {
            // (A thread that may not look takes all to run.)
            let mut running = if self.reclaim.keeper.may_read() { RunningCpus::new() } else { RunningCpus::unknown() };
            for window in CpuSet::windows(sets.top()) {
                self.drain_quiet(window, duty, mode, &mut running);
            }
        }
        if duty == Duty::All {
            self.cache.empty_barns(&everything, ALL_CLASSES);
        } else if !self.reclaim.keeper.is_none() {
            self.cache.relieve_barns(&everything, 1..CLASSES, || self.gate.is_wanted());
        }
        // (Hollow ones not in a slow path of the program's own, where there is no keeper.)
        let is_hollow = || policy::is_hollow(sets.level(Level::Slabs), sets.level(Level::Taken));
        let trims = duty == Duty::All || !self.reclaim.keeper.is_none() && is_hollow();
        let trimmed = if trims { everything.slabs.trim(|| self.gate.is_wanted()) } else { 0 };
        match duty {
            Duty::Usual => {
                drop(held);
                self.balance();
                self.call_workers(true, true);
                self.page_source().prepare_more();
                trimmed
            }
            Duty::Fall => trimmed + self.fall(held),
            Duty::All => trimmed + self.purge(held),
        }
    }

    /// Drains what stands unused at the indices of a window, and lets all of them decay.
    /// (Out of line: what gives back afterwards needs none of this frame.)
    #[inline(never)]
    fn drain_quiet(&self, window: usize, duty: Duty, mode: DrainMode, running: &mut RunningCpus) {
        let mut wanted = self.stranded(window, duty);
        if !wanted.is_empty() {
            let start = self.cache.sets.clock.ticks();
            let running = &mut |cpu| running.contains(cpu);
            self.cache.drain(&self.everything(), &mut wanted, mode, running, &mut DrainReport::default());
            self.cache.sets.time(Timing::Drain, start);
        }
    }

    /// The indices of a window at which something stands unused; all of the window decay. (Out of line, as above.)
    #[inline(never)]
    fn stranded(&self, window: usize, duty: Duty) -> CpuSet {
        let (sets, everything) = (&self.cache.sets, self.everything());
        let mut stranded = CpuSet::around(window);
        for index in sets.used_of(window) {
            // (Asked of each at every look: that is what counts its quiet periods.)
            let [all, pages, areas] = sets.quiet(index, CLASSES);
            let is_quiet = duty == Duty::All || all >= QUIET || sets.is_answered(index) || sets.is_parked(index);
            let areas = areas >= QUIET && sets.holds_areas(index);
            if is_quiet || areas || pages >= QUIET && self.holds_foreign_pages(index) {
                stranded.insert(index);
            }
            self.cache.decay(&everything, index);
        }
        stranded
    }

    /// Whether the page lists of an index hold pages of another node.
    fn holds_foreign_pages(&self, index: usize) -> bool {
        let (sets, windows) = (&self.cache.sets, &self.pages.windows);
        let Some(set) = sets.home_of(index).filter(|_| sets.cpus.nodes() > 1) else { return false };
        let node = set.node.load(Relaxed) as usize;
        let mut foreign = false;
        for class in CLASSES..ALL_CLASSES {
            sets.peek(index, class, |address| {
                foreign |= windows.find(address).is_some_and(|(_, pfn)| windows.zone(pfn) != node);
            });
        }
        foreign
    }

    /// Reads once what the system says about CPUs and nodes.
    pub fn learn(&self) {
        if self.reclaim.keeper.is_confined() || !self.reclaim.learns() {
            return;
        }
        topology::isolated(|cpu| self.cache.sets.isolated.insert(cpu));
        let mut distances = [[u8::MAX; NODES]; NODES];
        let known = (0..NODES).take_while(|&node| topology::distances(node, &mut distances[node]) > 0).count();
        if known > 1 {
            self.pages.set_distances(&distances);
        }
    }
}

#[cfg(test)]
mod tests;
