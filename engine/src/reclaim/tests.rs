//! What the tests of this room stand on: a heap of their own on fake CPUs, and a host that does as it is told.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::mm::{Host, Mm, Parts};
use crate::arch::atomic::AtomicU32;
use crate::arch::atomic::Ordering::SeqCst;
use crate::arch::crew::Crew;
use crate::arch::gate::Inside;
use crate::arch::seq::RseqArea;
use crate::cpu::Simulation;
use crate::heap::{Environment, Heap, Opening};
use crate::knob::Id;
use crate::stat::{BadPointer, Event, Index, Level, Mode, Reason, Timing};
use std::boxed::Box;
use std::cell::Cell;
use std::vec::Vec;

pub(super) const MIB: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Test;

impl Environment for Test {
    fn start(_: &Heap<Self>) {}
    fn no_memory() {}
    fn report(address: usize, wrong: BadPointer) {
        panic!("{address:#x}: {wrong:?}");
    }
}

std::thread_local! {
    /// The index of the calling thread, and the fake CPU that it is on.
    pub(super) static HERE: Cell<usize> = const { Cell::new(0) };
}

/// A heap and its host.
pub(super) struct Rig {
    pub(super) heap: &'static Heap<Test>,
    /// Whether a thread can be had, and how many of either kind were asked for.
    pub(super) gives_threads: AtomicU32,
    pub(super) keepers: AtomicU32,
    pub(super) workers: AtomicU32,
    /// How often it was asked to serve; requests that wait, and those that were served.
    pub(super) asks: AtomicU32,
    pub(super) requests: AtomicU32,
    pub(super) served: AtomicU32,
    /// How often it was told to look for a tracer, and that the process ends.
    pub(super) tracers: AtomicU32,
    pub(super) ends: AtomicU32,
    pub(super) crew: Option<&'static Crew>,
}

impl Host for Rig {
    fn enter(&self) -> Option<Inside<'_>> {
        self.heap.gate.enter()
    }
    fn reporter(&self) -> fn(usize, BadPointer) {
        Test::report
    }
    fn start_keeper(&self) -> bool {
        self.keepers.fetch_add(1, SeqCst);
        self.gives_threads.load(SeqCst) > 0
    }
    fn start_worker(&self) -> bool {
        self.workers.fetch_add(1, SeqCst);
        self.gives_threads.load(SeqCst) > 0
    }
    fn crew(&self) -> Option<&'static Crew> {
        self.crew
    }
    fn ends(&self) {
        self.ends.fetch_add(1, SeqCst);
    }
    fn serve(&self) -> bool {
        self.asks.fetch_add(1, SeqCst);
        let served = self.requests.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        self.served.fetch_add(served.into(), SeqCst);
        served
    }
    fn look_for_tracer(&self) {
        self.tracers.fetch_add(1, SeqCst);
    }
}

impl Rig {
    /// On so many fake CPUs and nodes; its own slow paths start no thread and do no thread's work.
    pub(super) fn new(cpus: usize, nodes: usize) -> Self {
        Self::shared(cpus, nodes, None)
    }
    /// The same with a board in a file.
    pub(super) fn shared(cpus: usize, nodes: usize, share: Option<usize>) -> Self {
        let heap: &'static Heap<Test> = Box::leak(unsafe { Box::<Heap<Test>>::new_zeroed().assume_init() });
        let here = || (HERE.get(), HERE.get() as u32);
        let opening = Opening {
            mode: Mode::Simulated,
            reason: Reason::Asked,
            index: Index::Cpu,
            area: RseqArea::default(),
            simulation: Some(Simulation::own(cpus, nodes, here)),
            share,
        };
        heap.cache.knobs.reset();
        heap.cache.knobs.set(Id::KeeperBytes as usize, 1 << 40);
        unsafe { heap.open(&opening) }.unwrap();
        let zero = || AtomicU32::new(0);
        Self {
            heap,
            gives_threads: AtomicU32::new(1),
            keepers: zero(),
            workers: zero(),
            asks: zero(),
            requests: zero(),
            served: zero(),
            tracers: zero(),
            ends: zero(),
            crew: None,
        }
    }
    pub(super) fn mm(&self) -> Mm<'_> {
        let parts: &Parts = self.heap;
        Mm { parts, host: self }
    }
    pub(super) fn set(&self, id: Id, value: u64) {
        self.heap.cache.knobs.set(id as usize, value);
    }
    pub(super) fn event(&self, event: Event) -> u64 {
        self.heap.cache.sets.event(event)
    }
    pub(super) fn level(&self, level: Level) -> u64 {
        self.heap.cache.sets.level(level)
    }
    /// How often something was timed.
    pub(super) fn timed(&self, timing: Timing) -> u64 {
        self.heap.cache.sets.times(timing).0.iter().sum()
    }
    /// Areas of so many bytes that are freed and lie apart, resident: each goes back by itself.
    pub(super) fn lazy(&self, areas: usize, bytes: usize) {
        let vmap = self.heap.vmap();
        let all: Vec<_> = (0..2 * areas).map(|_| vmap.alloc(bytes, crate::arch::PAGE).unwrap().address).collect();
        for &at in all.iter().step_by(2) {
            let area = vmap.find(at).unwrap();
            vmap.free(&area);
        }
        // (Who looks for some is told what spaces have not told: the first of them goes.)
        vmap.purge(1);
    }
    /// Free pages of a zone that are dirty: so many blocks of 2^`order`.
    pub(super) fn dirty(&self, blocks: usize, order: usize) {
        use crate::page::Flags;
        let all: Vec<_> = (0..2 * blocks).map(|_| self.heap.pages_alloc(order, None, Flags::NONE).unwrap()).collect();
        for block in all.into_iter().step_by(2) {
            unsafe { self.heap.pages_free(block) }.unwrap();
        }
    }
    /// Nothing is lost and nothing in two places.
    pub(super) fn verify(&self) {
        self.heap.verify();
    }
}

/// A giant area, freed: it waits to be given back.
pub(super) fn queued(rig: &Rig, pages: usize) -> crate::vmap::Ticket {
    let vmap = rig.heap.vmap();
    let at = vmap.alloc(pages * crate::arch::PAGE, crate::arch::PAGE).unwrap().address;
    let crate::vmap::Freed::Queued(ticket) = rig.mm().free_area(at) else { panic!("not queued") };
    ticket
}
