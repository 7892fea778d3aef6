//! Who is drained, behind one door: Allotment by each of its ways, and the alternatives.
#![allow(unsafe_code)] // pages that one owner holds

use crate::bench::rivals::lists::{self, Queued, Spinning};
use crate::bench::rivals::ours as pages;
use allotment::drain::{self, DrainMode, DrainReport};
use std::alloc::GlobalAlloc as _;
use std::time::Duration;

/// When a drainer gives up, as Allotment does.
pub const PATIENCE: Duration = Duration::from_millis(10);

/// What a drain did.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    /// Whether all that it was to reach was reached.
    pub reached: bool,
    /// Bytes taken.
    pub bytes: u64,
    /// Fences sent.
    pub fences: u64,
}

/// Something with caches.
pub trait System: Sync {
    /// The thread that owns one.
    type Owner<'a>: Owner
    where
        Self: 'a;
    /// For the calling thread. There is one at a time that allocates.
    fn owner(&self) -> Self::Owner<'_>;
    /// Drains the CPU of number `cpu` (or those that it is about).
    fn drain(&self, cpu: usize) -> Drained;
    /// Drains all.
    fn drain_all(&self) -> Drained;
    /// Bytes of pages that caches hold now; asked while no owner runs.
    fn held(&self) -> u64;
    /// Whether it is CPUs other than the owner's that are drained.
    fn elsewhere(&self) -> bool {
        false
    }
}

/// See [`System`].
pub trait Owner {
    /// Takes a page.
    fn alloc(&mut self) -> usize;
    /// Gives it back.
    fn free(&mut self, page: usize);
    /// Spins without allocating.
    fn quiet(&mut self, spin: impl FnOnce()) {
        spin();
    }
    /// Leaves the cache full.
    fn fill(&mut self) {
        let pages: [usize; 256] = std::array::from_fn(|_| self.alloc());
        pages.into_iter().for_each(|page| self.free(page));
    }
}

/// How Allotment is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ours {
    /// Not at all.
    Nobody,
    /// One interruption.
    Expedited,
    /// None.
    Gentle,
    /// None, of an owner who said that it allocates nothing.
    Quiescent,
    /// Idle CPUs only.
    Idle,
    /// Not at all, but the owner's CPU is fenced: what the machine makes of that alone.
    Fence,
}

/// An owner in Allotment; whether it declares itself quiescent.
#[derive(Debug)]
pub struct OursOwner(bool);

fn drained(report: DrainReport) -> Drained {
    Drained { reached: report.unreached == 0, bytes: report.bytes, fences: report.fences }
}

/// Ends all sequences of this process on a CPU.
fn fence(cpu: usize) -> bool {
    const FENCE_RSEQ: i32 = 1 << 7;
    const ONE_CPU: u32 = 1;
    // SAFETY: numbers only. (Allotment has registered this process.)
    unsafe { libc::syscall(libc::SYS_membarrier, FENCE_RSEQ, ONE_CPU, cpu as i32) == 0 }
}

impl Ours {
    fn way(&self) -> DrainMode {
        if *self == Self::Expedited { DrainMode::Expedited } else { DrainMode::Gentle }
    }
}

impl System for Ours {
    type Owner<'a> = OursOwner;
    fn owner(&self) -> OursOwner {
        OursOwner(*self == Self::Quiescent)
    }
    fn drain(&self, cpu: usize) -> Drained {
        match self {
            Self::Nobody => Drained { reached: true, bytes: 0, fences: 0 },
            Self::Idle => drained(drain::idle()),
            Self::Fence => Drained { reached: fence(cpu), bytes: 0, fences: 1 },
            _ => drained(drain::cpu(cpu as u32, self.way())),
        }
    }
    fn drain_all(&self) -> Drained {
        drained(drain::all(self.way()))
    }
    fn held(&self) -> u64 {
        pages::held()
    }
    fn elsewhere(&self) -> bool {
        *self == Self::Idle
    }
}

impl Owner for OursOwner {
    #[inline(always)]
    fn alloc(&mut self) -> usize {
        pages::alloc(0).expect("memory")
    }
    #[inline(always)]
    fn free(&mut self, page: usize) {
        // SAFETY: the owner's own, once.
        unsafe { pages::free(page) };
    }
    fn quiet(&mut self, spin: impl FnOnce()) {
        if self.0 { drain::quiescent(spin) } else { spin() }
    }
    /// Pages, and objects of several sizes.
    fn fill(&mut self) {
        let pages: [usize; 256] = std::array::from_fn(|_| self.alloc());
        pages.into_iter().for_each(|page| self.free(page));
        for size in [16, 64, 512, 4096] {
            let layout = std::alloc::Layout::from_size_align(size, 16).expect("a power of two");
            // SAFETY: not of size zero; each is given back once.
            unsafe {
                let objects: [*mut u8; 64] = std::array::from_fn(|_| allotment::Allotment.alloc(layout));
                objects.into_iter().for_each(|object| allotment::Allotment.dealloc(object, layout));
            }
        }
    }
}

impl System for Spinning {
    type Owner<'a> = &'a Self;
    fn owner(&self) -> &Self {
        self
    }
    fn drain(&self, cpu: usize) -> Drained {
        Drained { reached: true, bytes: Self::drain(self, cpu), fences: 0 }
    }
    fn drain_all(&self) -> Drained {
        Drained { reached: true, bytes: Self::drain_all(self), fences: 0 }
    }
    fn held(&self) -> u64 {
        Self::held(self)
    }
}

impl Owner for &Spinning {
    #[inline(always)]
    fn alloc(&mut self) -> usize {
        Spinning::alloc(self, 0).expect("memory")
    }
    #[inline(always)]
    fn free(&mut self, page: usize) {
        Spinning::free(self, page, 0);
    }
}

impl System for Queued {
    type Owner<'a> = lists::Owner<'a>;
    fn owner(&self) -> lists::Owner<'_> {
        // SAFETY: one at a time, as this trait says.
        unsafe { Self::owner(self) }
    }
    fn drain(&self, _: usize) -> Drained {
        let bytes = Self::drain(self, PATIENCE);
        Drained { reached: bytes.is_some(), bytes: bytes.unwrap_or(0), fences: 0 }
    }
    fn drain_all(&self) -> Drained {
        System::drain(self, 0)
    }
    fn held(&self) -> u64 {
        Self::held(self)
    }
}

impl Owner for lists::Owner<'_> {
    #[inline(always)]
    fn alloc(&mut self) -> usize {
        Self::alloc(self, 0).expect("memory")
    }
    #[inline(always)]
    fn free(&mut self, page: usize) {
        Self::free(self, page, 0);
    }
}
