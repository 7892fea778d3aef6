//! # The seed's alternatives: how else a CPU's lists can be drained
//!
//! Both keep the kernel's lists (orders 0–3 and 9; `batch` 63, `high` 4 × `batch`, a refill takes a batch) before the
//! [`Buddy`]:
//!
//! - [`Spinning`]: one set of lists for each CPU, under a spinlock. The owner takes it for every operation, by the CPU
//!   number that the C library has; a drainer takes it from elsewhere. (What the seed rejected: "the performance
//!   degradation was too big"; what the kernel does since 6.0, with a trylock.)
//! - [`Queued`]: one set for each owner, without a lock. A drainer leaves a request, and the owner serves it at
//!   its next operation. (What the seed replaced.) An owner is a thread that stays on its CPU: user space cannot
//!   hold off preemption.
#![allow(unsafe_code)] // what a lock or an owner alone may touch

use super::buddy::{Buddy, PAGE};
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Orders with lists.
const LISTED: [usize; 5] = [0, 1, 2, 3, 9];
/// Pages of a refill.
const BATCH: usize = 63;
/// Pages above which a batch goes back.
const HIGH: usize = 4 * BATCH;

/// A CPU's lists.
#[derive(Debug)]
struct Lists {
    blocks: [Vec<usize>; LISTED.len()],
    /// In pages.
    count: usize,
}

impl Lists {
    fn new() -> Self {
        Self { blocks: LISTED.map(|order| Vec::with_capacity(2 * (HIGH >> order) + 4)), count: 0 }
    }
    #[inline(always)]
    fn alloc(&mut self, buddy: &Buddy, order: usize) -> Option<usize> {
        let Some(at) = LISTED.iter().position(|&listed| listed == order) else { return buddy.lock().alloc(order) };
        if self.blocks[at].is_empty() {
            self.refill(buddy, at);
        }
        let block = self.blocks[at].pop()?;
        self.count -= 1 << order;
        Some(block)
    }
    #[inline(always)]
    fn free(&mut self, buddy: &Buddy, address: usize, order: usize) {
        let Some(at) = LISTED.iter().position(|&listed| listed == order) else {
            return buddy.lock().free(address, order);
        };
        self.blocks[at].push(address);
        self.count += 1 << order;
        if self.count > HIGH + (1 << order) {
            self.give(buddy, at);
        }
    }
    #[cold]
    #[inline(never)]
    fn refill(&mut self, buddy: &Buddy, at: usize) {
        let order = LISTED[at];
        let mut held = buddy.lock();
        for _ in 0..(BATCH >> order).max(2) {
            let Some(block) = held.alloc(order) else { return };
            self.blocks[at].push(block);
            self.count += 1 << order;
        }
    }
    /// The coldest of one list.
    #[cold]
    #[inline(never)]
    fn give(&mut self, buddy: &Buddy, at: usize) {
        let order = LISTED[at];
        let n = (BATCH >> order).max(1).min(self.blocks[at].len());
        let mut held = buddy.lock();
        self.blocks[at].drain(..n).for_each(|block| held.free(block, order));
        self.count -= n << order;
    }
    /// Everything; the bytes.
    fn drain(&mut self, buddy: &Buddy) -> u64 {
        let bytes = (self.count * PAGE) as u64;
        if bytes > 0 {
            let mut held = buddy.lock();
            for (list, order) in self.blocks.iter_mut().zip(LISTED) {
                list.drain(..).for_each(|block| held.free(block, order));
            }
            self.count = 0;
        }
        bytes
    }
}

/// A CPU's lists and their lock, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Locked {
    held: AtomicBool,
    lists: UnsafeCell<Lists>,
}
// SAFETY: the lists are touched by who holds the lock only.
unsafe impl Sync for Locked {}

impl Locked {
    #[inline(always)]
    fn with<R>(&self, what: impl FnOnce(&mut Lists) -> R) -> R {
        // Acquire pairs with the release below: what the last holder did is seen.
        if self.held.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            self.wait();
        }
        // SAFETY: the lock is held.
        let result = what(unsafe { &mut *self.lists.get() });
        self.held.store(false, Release);
        result
    }
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        for spins in 0_u32.. {
            if !self.held.load(Relaxed) && self.held.compare_exchange(false, true, Acquire, Relaxed).is_ok() {
                return;
            }
            // The holder may be preempted: in user space nobody can forbid that.
            if spins % 128 == 127 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

/// Lists under per-CPU spinlocks.
#[derive(Debug)]
pub struct Spinning {
    buddy: Buddy,
    cpus: Vec<Locked>,
}

impl Spinning {
    /// Empty.
    pub fn new() -> Self {
        // SAFETY: asks for a number.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as usize;
        let locked = || Locked { held: AtomicBool::new(false), lists: UnsafeCell::new(Lists::new()) };
        Self { buddy: Buddy::new(), cpus: (0..cpus).map(|_| locked()).collect() }
    }
    #[inline(always)]
    fn here(&self) -> &Locked {
        // SAFETY: reads the number that the C library shares with the kernel.
        let cpu = unsafe { libc::sched_getcpu() };
        &self.cpus[cpu as usize % self.cpus.len()]
    }
    /// A block.
    #[inline(always)]
    pub fn alloc(&self, order: usize) -> Option<usize> {
        self.here().with(|lists| lists.alloc(&self.buddy, order))
    }
    /// Takes it back.
    #[inline(always)]
    pub fn free(&self, address: usize, order: usize) {
        self.here().with(|lists| lists.free(&self.buddy, address, order));
    }
    /// Drains a CPU's lists, from anywhere; the bytes.
    pub fn drain(&self, cpu: usize) -> u64 {
        self.cpus[cpu % self.cpus.len()].with(|lists| lists.drain(&self.buddy))
    }
    /// Drains all; the bytes.
    pub fn drain_all(&self) -> u64 {
        (0..self.cpus.len()).map(|cpu| self.drain(cpu)).sum()
    }
    /// Bytes that all lists hold.
    pub fn held(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.with(|lists| (lists.count * PAGE) as u64)).sum()
    }
}

/// Lists of one owner that are drained by request.
#[derive(Debug)]
pub struct Queued {
    buddy: Buddy,
    request: AtomicBool,
    /// Bytes of all answers, and how many.
    bytes: AtomicU64,
    answers: AtomicU64,
    lists: UnsafeCell<Lists>,
}
// SAFETY: the lists are touched through the one [`Owner`] only.
unsafe impl Sync for Queued {}

/// The thread that owns a [`Queued`].
#[derive(Debug)]
pub struct Owner<'a>(&'a Queued);

impl Queued {
    /// Empty.
    pub fn new() -> Self {
        Self {
            buddy: Buddy::new(),
            request: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            lists: UnsafeCell::new(Lists::new()),
        }
    }
    /// The right to use it.
    ///
    /// # Safety
    /// There is one at a time.
    pub unsafe fn owner(&self) -> Owner<'_> {
        Owner(self)
    }
    /// Bytes that the lists hold; asked while the owner does nothing.
    pub fn held(&self) -> u64 {
        // SAFETY: nobody else touches them meanwhile.
        unsafe { ((*self.lists.get()).count * PAGE) as u64 }
    }
    /// Asks, and waits for the answer until `most` has passed; the bytes, or `None` without an answer.
    pub fn drain(&self, most: std::time::Duration) -> Option<u64> {
        let (answers, bytes) = (self.answers.load(Acquire), self.bytes.load(Relaxed));
        let began = std::time::Instant::now();
        self.request.store(true, Release);
        while self.answers.load(Acquire) == answers {
            if began.elapsed() > most {
                return None;
            }
            std::hint::spin_loop();
        }
        Some(self.bytes.load(Relaxed) - bytes)
    }
}

impl Owner<'_> {
    /// Work that was queued runs before each operation: a load and a branch.
    #[inline(always)]
    fn work(&mut self) {
        if self.0.request.load(Relaxed) {
            self.answer();
        }
    }
    #[cold]
    #[inline(never)]
    fn answer(&mut self) {
        self.0.request.store(false, Relaxed);
        // SAFETY: the one owner.
        let bytes = unsafe { &mut *self.0.lists.get() }.drain(&self.0.buddy);
        self.0.bytes.fetch_add(bytes, Relaxed);
        // Release: who sees the answer sees its bytes.
        self.0.answers.fetch_add(1, Release);
    }
    /// A block.
    #[inline(always)]
    pub fn alloc(&mut self, order: usize) -> Option<usize> {
        self.work();
        // SAFETY: the one owner.
        unsafe { &mut *self.0.lists.get() }.alloc(&self.0.buddy, order)
    }
    /// Takes it back.
    #[inline(always)]
    pub fn free(&mut self, address: usize, order: usize) {
        self.work();
        // SAFETY: the one owner.
        unsafe { &mut *self.0.lists.get() }.free(&self.0.buddy, address, order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn spinning_lists_lose_nothing() {
        let lists = Spinning::new();
        std::thread::scope(|scope| {
            let worker = || {
                for round in 0..200 {
                    let blocks: Vec<(usize, usize)> =
                        (0..400).map(|at| (lists.alloc(at % 4).expect("memory"), at % 4)).collect();
                    for (number, &(address, _)) in blocks.iter().enumerate() {
                        // SAFETY: a live block.
                        unsafe { (address as *mut usize).write(round << 32 | number) };
                    }
                    for (number, &(address, order)) in blocks.iter().enumerate() {
                        // SAFETY: as above; then it is given up.
                        assert_eq!(unsafe { (address as *const usize).read() }, round << 32 | number);
                        lists.free(address, order);
                    }
                }
            };
            let all: Vec<_> = (0..3).map(|_| scope.spawn(worker)).collect();
            while !all.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                lists.drain_all();
            }
        });
        lists.drain_all();
        assert_eq!(lists.buddy.free_pages(), lists.buddy.grown_pages());
    }

    #[test]
    fn queued_work_waits_for_its_owner() {
        let lists = Queued::new();
        // SAFETY: the only one.
        let mut owner = unsafe { lists.owner() };
        let block = owner.alloc(0).expect("memory");
        owner.free(block, 0);
        assert_eq!(lists.held(), 63 * 4096);
        assert_eq!(lists.drain(Duration::from_millis(1)), None, "nobody answers");
        // The request is still there.
        let block = owner.alloc(3).expect("memory");
        assert_eq!(lists.answers.load(Relaxed), 1);
        owner.free(block, 3);
        let bytes = std::thread::scope(|scope| {
            let drainer = scope.spawn(|| lists.drain(Duration::from_secs(60)));
            while !drainer.is_finished() {
                owner.work();
            }
            drainer.join().expect("no panic")
        });
        assert_eq!(bytes, Some((63 >> 3) * 8 * 4096));
        assert_eq!(lists.buddy.free_pages(), lists.buddy.grown_pages());
    }
}
