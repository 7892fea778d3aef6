//! # `cpu`: who runs where
//!
//! ```text
//! index ── which copy of per-CPU memory a thread uses: mm_cid or the CPU's number; moves between CPUs
//! CPU   ── where it runs; a fence interrupts the sequences there
//! node  ── the memory that is near
//! ```
//! What malloc's caches ([`crate::cache`]) and per-CPU memory ([`crate::percpu`]) ask the processor and the kernel, once: the
//! mode, this thread's index, CPU and node, fences, the switch that forks and vforks turn, and whom the fallback favours ([`bias`]).
//!
//! | state | what is per CPU |
//! |---|---|
//! | open | is its index's, by sequences |
//! | closed: a fork or vfork is in flight (counted: they overlap) | is nobody's; each user says what that means ([`Cpus::close`]) |
//!
//! Lock: `state`, which guards the switch and what a user makes or takes away behind it; a handler that forks or vforks passes
//! through what its own thread holds ([`Owned`]). Cost: loads.
#![allow(unsafe_code)] // a reference that lives for ever, kept as a word

pub mod bias;
pub mod sim;

use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::arch::atomic::{AtomicIsize, AtomicPtr, AtomicU32, AtomicUsize, fence};
use crate::arch::lock::{Held, Owned};
use crate::arch::rseq::{self, Fence};
use crate::arch::seq::RseqArea;
use crate::arch::sys;
use crate::stat::Mode;
use bias::Bias;

pub use crate::arch::operands::INDICES;
pub use sim::Simulation;

/// NUMA nodes that have barns, partial slabs and a zone of their own; nodes beyond share.
pub const NODES: usize = 8;

/// See the module.
#[repr(C)]
#[derive(Debug)]
pub struct Cpus {
    mode: AtomicU32,
    /// Forks and vforks in flight.
    closed: AtomicU32,
    simulation: AtomicPtr<Simulation>,
    // (Where fast paths write nothing: see `cache::sets::Sets`.)
    area_base: AtomicIsize,
    area_index: AtomicIsize,
    /// Highest node that ever ran us, plus one.
    nodes: AtomicUsize,
    state: Owned,
    /// The process filters its system calls: a fence may kill.
    confined: AtomicU32,
    /// Fallback mode: who needs no lock.
    pub bias: Bias,
}

impl Default for Cpus {
    fn default() -> Self {
        Self::new()
    }
}

impl Cpus {
    /// Bytes from here to the two words that say where a thread's rseq area is.
    pub const AREA: usize = core::mem::offset_of!(Cpus, area_base);

    /// In mode `Closed`.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            mode: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            simulation: AtomicPtr::new(core::ptr::null_mut()),
            area_base: AtomicIsize::new(0),
            area_index: AtomicIsize::new(0),
            nodes: AtomicUsize::new(0),
            state: Owned::new(),
            confined: AtomicU32::new(0),
            bias: Bias::new(),
        }
    }

    /// Tells how what is per CPU is reached.
    ///
    /// # Safety
    /// Nobody else uses it yet. In mode `Sequences`, `area` is right, and membarrier is registered.
    pub unsafe fn open(&self, mode: Mode, area: RseqArea, simulation: Option<&'static Simulation>) {
        self.area_base.store(area.base, Relaxed);
        self.area_index.store(area.index, Relaxed);
        if let Some(simulation) = simulation {
            self.simulation.store((&raw const *simulation).cast_mut(), Relaxed);
        }
        // Release: whoever sees the mode sees the rest.
        self.mode.store(mode as u32, Release);
    }

    /// How it is reached.
    #[inline]
    pub fn mode(&self) -> Mode {
        Mode::from_word(self.mode.load(Acquire))
    }

    /// This process's rseq areas.
    #[inline]
    pub fn area(&self) -> RseqArea {
        // Relaxed: stored before there was anything per CPU.
        RseqArea { base: self.area_base(), index: self.area_index.load(Relaxed) }
    }

    /// Where they begin, from the thread pointer.
    #[inline]
    pub fn area_base(&self) -> isize {
        // Relaxed: as in `area`.
        self.area_base.load(Relaxed)
    }

    /// The fake CPUs.
    ///
    /// # Panics
    /// Without any.
    pub fn simulation(&self) -> &'static Simulation {
        let simulation = self.simulation.load(Relaxed);
        assert!(!simulation.is_null(), "simulated mode without a simulation");
        // SAFETY: `open` stored a reference that lives for ever.
        unsafe { &*simulation }
    }

    /// This thread's index and CPU now (both may change at once). The CPU of a thread that the kernel knows no area of (a child of a
    /// vfork that was not wrapped) is none.
    #[inline]
    pub fn here(&self) -> (usize, u32) {
        if self.mode() == Mode::Sequences {
            let area = self.area();
            return (rseq::word(area.index) as usize, rseq::word(area.base + rseq::CPU_ID));
        }
        self.here_else()
    }

    #[inline(never)]
    fn here_else(&self) -> (usize, u32) {
        match self.mode() {
            Mode::Simulated => (self.simulation().here)(),
            Mode::Fallback if self.bias.is_mine() => (self.bias.index(), self.bias.index() as u32),
            _ => {
                let cpu = sys::current_cpu();
                (cpu as usize, cpu)
            }
        }
    }

    /// The index that runs us now; a moment later it may be another's.
    #[inline]
    pub fn index(&self) -> usize {
        self.here().0 % INDICES
    }

    /// The CPU that runs us now; a moment later it may be another.
    #[inline]
    pub fn cpu(&self) -> usize {
        self.here().1 as usize % INDICES
    }

    /// The NUMA node that runs us now, below [`Cpus::nodes`]. The caller holds no lock.
    pub fn node(&self) -> usize {
        let node = match self.mode() {
            Mode::Simulated => self.here().1 as usize % self.simulation().nodes,
            // An area with an `mm_cid` has a `node_id`.
            Mode::Sequences if self.area().index == self.area().base + rseq::MM_CID => {
                rseq::word(self.area().base + rseq::NODE_ID) as usize
            }
            _ => sys::current_node() as usize,
        } % NODES;
        // Relaxed: a node's lists are there before they are used.
        if node >= self.nodes.load(Relaxed) {
            self.nodes.fetch_max(node + 1, Relaxed);
        }
        node
    }

    /// Highest node that ever ran us, plus one.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.load(Relaxed)
    }

    /// The process is about to filter its system calls: from now on every fence is as good as refused.
    pub fn confine(&self) {
        self.bias.take(|| self.barrier());
        // Relaxed: as in `Keeper::confine`.
        self.confined.store(1, Relaxed);
    }
    fn is_confined(&self) -> bool {
        self.confined.load(Relaxed) != 0
    }

    /// Whether we are in no sequence, and there is nobody else.
    fn is_alone(&self) -> bool {
        sys::single_threaded() && self.mode() == Mode::Sequences
    }

    /// Whether a fence may be asked for: else it is as good as refused.
    #[must_use]
    pub fn may_fence(&self) -> bool {
        self.is_alone() || !self.is_confined()
    }

    /// Interrupts the sequences that may run on `cpu`: what they go on with is behind what the caller had stored. False if the kernel refuses.
    #[must_use]
    pub fn fence_cpu(&self, cpu: u32) -> bool {
        match self.mode() {
            _ if self.is_alone() => true,
            Mode::Sequences => !self.is_confined() && Fence.cpu(cpu).is_ok(),
            Mode::Simulated => {
                if let Some(cpu) = self.simulation().cpus.get(cpu as usize) {
                    cpu.fence();
                }
                true
            }
            _ => self.bias.fence(|| self.barrier()),
        }
    }

    /// After it every sequence that had begun has committed or will abort, and what it committed is seen; later ones see what
    /// the caller had stored. False if the kernel refuses.
    #[must_use]
    pub fn fence_all(&self) -> bool {
        match self.mode() {
            _ if self.is_alone() => true,
            Mode::Sequences => !self.is_confined() && Fence.all().is_ok(),
            Mode::Simulated => {
                self.simulation().cpus.iter().for_each(sim::Cpu::fence);
                true
            }
            _ => self.bias.fence(|| self.barrier()),
        }
    }

    /// A full fence on every CPU that runs us. False if the kernel refuses.
    fn barrier(&self) -> bool {
        !self.is_confined() && Fence.barrier().is_ok()
    }

    /// In the fallback, before anybody uses a set: the calling thread has them to itself, while it is the only one and there are barriers.
    pub fn favour(&self) {
        if self.mode() == Mode::Fallback && sys::program_is_single() && Fence.register_barrier().is_ok() {
            self.bias.grant(sys::current_cpu() as usize % INDICES);
        }
    }

    /// In the fallback: whether the calling thread may use sets now, by the bias or under their locks.
    #[inline]
    #[must_use]
    pub fn may_use(&self) -> bool {
        self.bias.allows(|| self.barrier())
    }

    /// The lock of the switch.
    pub fn lock(&self) -> Held<'_> {
        self.state.lock()
    }
    /// The same where nobody has it.
    pub fn try_lock(&self) -> Option<Held<'_>> {
        self.state.try_lock()
    }

    /// Turns everything off by `off`; counted, so that forks and vforks may overlap. False if the kernel gives no fence: then
    /// sequences that had begun may still commit.
    pub fn close(&self, off: impl FnOnce()) -> bool {
        let _state = self.lock();
        self.closed.fetch_add(1, Relaxed);
        off();
        // What `off` stored is seen by every sequence that begins after the fence.
        fence(SeqCst);
        // (An owner of the bias whose handler forks goes on in the child, too.)
        self.fence_all() || self.bias.was_mine()
    }

    /// Ends one [`Cpus::close`]; the last turns everything on again by `on`, which is told whether another frame of this thread, which
    /// a handler interrupted, holds the lock.
    pub fn reopen(&self, on: impl FnOnce(&Held<'_>)) {
        let state = self.lock();
        if self.closed.fetch_sub(1, Relaxed) == 1 {
            on(&state);
        }
    }

    /// Whether a fork or vfork is in flight.
    pub fn is_closed(&self) -> bool {
        // Relaxed: exact under the lock only.
        self.closed.load(Relaxed) > 0
    }

    /// In a forked child, whose thread has so many vforks in flight: they and the fork close it.
    pub fn inherit(&self, vforks: u32) {
        self.state.inherit();
        self.bias.inherit();
        self.closed.store(vforks + 1, Relaxed);
    }
}
