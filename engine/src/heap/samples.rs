//! # The samples of a heap profile
//!
//! ```text
//!  private:  buckets ─► sample (address, stack) ─► …          by address, to find what is freed
//!            buckets ─► stack ─► …                            by hash, to find one seen before
//!  shown:    header │ modules │ stacks │ frames               stat::profile, a file if there can be one
//! ```
//! Made with the first sample, of fixed room that is touched as it fills: nothing here is ever moved, and nothing is
//! given back before the process ends or forks. What finds no room is counted as lost.
//!
//! A sampled object is whole pages, so that `free` does not find it on its fast path; a count for each 1,024th of
//! the page numbers says to all other frees of whole pages that theirs is none (*filter*).
//!
//! A forked child begins with nothing: its parent's samples are its parent's.
//!
//! Units: bytes; objects are 65,536ths. Invariants: a sample is in the filter, in one chain, and in `live` of its stack, or in none
//! of them; the file is never touched where the system has not said that there is a page (a full `/dev/shm` would
//! end the process by a signal).
//! Lock: `Samples::state`, a leaf; a thread that has it and is interrupted by a signal whose handler allocates goes without.
//! Cost: a sample with its free is 4 µs with a stack of 5 frames, half a µs more for each frame more; any other free of whole
//! pages one load.
#![allow(unsafe_code)] // words by address

use crate::arch::atomic::Ordering::{Relaxed, Release};
use crate::arch::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use crate::arch::lock::{Guard, Lock};
use crate::arch::sys::{self, Access, Advice};
use crate::arch::{PAGE, PAGE_SHIFT, mix};
use crate::stat::profile::{
    DEPTH, FRAMES, FRAMES_AT, Header, MAGIC, MODULES, MODULES_AT, Module, PROFILE_BYTES, STACKS, STACKS_AT, Stack,
    VERSION, add,
};

/// Room for live samples.
const SAMPLES: usize = 1 << 20;
const SAMPLE_BUCKETS: usize = 1 << 16;
const STACK_BUCKETS: usize = 1 << 14;
/// Pages of the file asked for at a time, in bytes.
const STEP: usize = 64 << 10;
const FILTER: usize = 1024;
/// Bytes of a module's name, with a zero behind.
const PATH: usize = 240;
/// Looks at a lock whose owner is not known yet.
const PATIENCE: u32 = 2000;
/// And then, with naps of so many ns between them.
const NAPS: u32 = 40;
const NAP: u64 = 100_000;

/// A live sample; number 0 is none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Sample {
    address: usize,
    bytes: u64,
    objects: u64,
    stack: u32,
    /// The next of its chain, or of the free ones.
    next: u32,
}

/// The private part, as it lies in memory; zero when fresh. Stacks are numbered from 1 here.
#[repr(C)]
struct Private {
    by_address: [u32; SAMPLE_BUCKETS],
    by_hash: [u32; STACK_BUCKETS],
    next_stack: [u32; STACKS],
    samples: [Sample; SAMPLES],
    /// For the thread that takes a sample: too much for a small stack.
    frames: [usize; DEPTH],
    path: [u8; PATH],
}

/// Under the lock.
#[derive(Debug)]
pub struct Table {
    private: usize,
    shown: usize,
    /// Bytes of modules, stacks and frames that are sure to be there.
    sure: [usize; 3],
    is_file: bool,
    /// Samples used so far, and the first of those given back.
    used: u32,
    free: u32,
}

/// What is to be known of the process to keep a sample.
pub trait Process {
    /// The file mapped at an address: its name into `path` with a zero behind (if that has room), where it
    /// begins and ends.
    fn module(address: usize, path: &mut [u8]) -> Option<(usize, usize)>;
    /// A file of [`PROFILE_BYTES`] to be shown, or none.
    fn file() -> Option<usize>;
    /// That file is not used after all.
    fn withdraw();
}

/// The samples.
#[derive(Debug)]
pub struct Samples {
    state: Lock<Table>,
    /// The thread that has the lock, if it has said so.
    owner: AtomicUsize,
    /// Where what is shown begins; 0 without.
    shown: AtomicUsize,
    filter: [AtomicU32; FILTER],
}

/// The right to the table.
#[derive(Debug)]
pub struct SamplesGuard<'a> {
    samples: &'a Samples,
    table: Guard<'a, Table>,
}

impl Drop for SamplesGuard<'_> {
    fn drop(&mut self) {
        // Relaxed: read by handlers on this thread, in its order; others only wait longer.
        self.samples.owner.store(0, Relaxed);
    }
}

impl Default for Samples {
    fn default() -> Self {
        Self::new()
    }
}

impl Samples {
    /// None, without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: Lock::new(Table::new()),
            owner: AtomicUsize::new(0),
            shown: AtomicUsize::new(0),
            filter: [const { AtomicU32::new(0) }; FILTER],
        }
    }

    fn cell(&self, address: usize) -> &AtomicU32 {
        &self.filter[(address >> PAGE_SHIFT) % FILTER]
    }

    /// Whether there may be a sample at an address: a load.
    #[inline]
    pub fn may_have(&self, address: usize) -> bool {
        // Relaxed: whoever frees has the address from whoever got it, after it was counted here.
        self.cell(address).load(Relaxed) != 0
    }

    /// The table; `None` in the handler of a signal that came while this thread had it.
    pub fn enter(&self) -> Option<SamplesGuard<'_>> {
        let me = sys::thread_pointer();
        let mut looks = 0;
        let table = loop {
            if let Some(table) = self.state.try_lock() {
                break table;
            }
            let owner = self.owner.load(Relaxed);
            if owner == me {
                return None;
            }
            if owner != 0 {
                break self.state.lock();
            }
            // It was taken just now, or is being given back: by this thread itself, perhaps.
            looks += 1;
            if looks == PATIENCE + NAPS {
                return None;
            }
            if looks < PATIENCE {
                core::hint::spin_loop();
            } else {
                // (Its thread was preempted there, more likely than not.)
                sys::futex_wait_for(&AtomicU32::new(0), 0, NAP);
            }
        };
        self.owner.store(me, Relaxed);
        Some(SamplesGuard { samples: self, table })
    }

    /// The first page of what is shown.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        let shown = self.shown.load(Relaxed);
        // SAFETY: if not 0, a mapping that stays, of which the first page is there; all atomics.
        (shown != 0).then(|| unsafe { &*(shown as *const Header) })
    }

    /// A sample was due and could not be taken, because of a signal or for lack of room.
    pub fn lose(&self, busy: bool, bytes: u64) {
        if let Some(header) = self.header() {
            // Without the lock, so with locked instructions.
            (if busy { &header.lost_busy } else { &header.lost_room }).fetch_add(1, Relaxed);
            header.lost_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// The process ends; whether a file of its own is left.
    pub fn end(&self, pid: u32) -> bool {
        let Some(header) = self.header().filter(|header| header.pid.load(Relaxed) == pid) else { return false };
        header.ended.store(1, Relaxed);
        // A process that ends in a handler leaves the file, rather than wait.
        self.enter().is_some_and(|turn| turn.table.is_file)
    }

    /// In a forked child, which forgets all. (If it was forked in a handler that came while this thread had the table, the
    /// frame below goes on with it.)
    pub fn inherit(&self) {
        // (Where nothing was ever sampled there is nothing to forget, and no page to write.)
        if self.shown.load(Relaxed) == 0 {
            return;
        }
        self.shown.store(0, Relaxed);
        if let Some(mut turn) = self.enter() {
            turn.table.drop_all();
        }
        self.filter.iter().for_each(|cell| cell.store(0, Relaxed));
    }
}

impl SamplesGuard<'_> {
    /// Memory for samples, made if there is none; false if there can be none.
    pub fn ready<P: Process>(&mut self, mean: u64) -> bool {
        if self.table.shown == 0 {
            self.table.make::<P>();
            if let Some(header) = self.table.header() {
                header.mean.store(mean, Relaxed);
                // Relaxed: a thread that reads it reads a page that this thread has filled, or has the lock.
                self.samples.shown.store(self.table.shown, Relaxed);
            }
        }
        self.table.shown != 0
    }

    /// Keeps a sample: `weight` is bytes and objects. False for lack of room. (One that is there for
    /// this address was freed behind our back.)
    ///
    /// The return addresses of the thread that allocates are what `walk` leaves: how many of them.
    pub fn insert<P: Process>(
        &mut self,
        address: usize,
        weight: (u64, u64),
        walk: impl FnOnce(&mut [usize]) -> usize,
    ) -> bool {
        self.remove(address);
        let depth = walk(&mut self.table.private_mut().frames);
        let cell = self.samples.cell(address);
        // Before the address is anybody's, so that no free of it can look too early.
        if !self.table.insert::<P>(address, weight, depth) {
            return false;
        }
        cell.fetch_add(1, Relaxed);
        true
    }

    /// Forgets the sample at an address; whether there was one.
    pub fn remove(&mut self, address: usize) -> bool {
        let is_there = self.table.shown != 0 && self.table.remove(address);
        if is_there {
            self.samples.cell(address).fetch_sub(1, Relaxed);
        }
        is_there
    }

    /// Tells the mean, where it is shown.
    pub fn show_mean(&self, mean: u64) {
        if let Some(header) = self.table.header() {
            header.mean.store(mean, Relaxed);
        }
    }
}

impl Table {
    const fn new() -> Self {
        Self { private: 0, shown: 0, sure: [0; 3], is_file: false, used: 0, free: 0 }
    }

    fn header(&self) -> Option<&Header> {
        // SAFETY: as in `Samples::header`.
        (self.shown != 0).then(|| unsafe { &*(self.shown as *const Header) })
    }
    fn module(&self, at: usize) -> &Module {
        debug_assert!(at < MODULES);
        // SAFETY: in the mapping; callers made sure of the page.
        unsafe { &*((self.shown + MODULES_AT) as *const Module).add(at) }
    }
    fn stack(&self, at: usize) -> &Stack {
        debug_assert!(at < STACKS);
        // SAFETY: as above.
        unsafe { &*((self.shown + STACKS_AT) as *const Stack).add(at) }
    }
    fn frame(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < FRAMES);
        // SAFETY: as above.
        unsafe { &*((self.shown + FRAMES_AT) as *const AtomicU64).add(at) }
    }
    fn private(&self) -> &Private {
        // SAFETY: as below.
        unsafe { &*(self.private as *const Private) }
    }
    fn private_mut(&mut self) -> &mut Private {
        // SAFETY: there since `make`, zeroed (which all its words may be), and reached under the lock only.
        unsafe { &mut *(self.private as *mut Private) }
    }

    /// Both mappings: of the file, or without it.
    fn make<P: Process>(&mut self) {
        let Ok(private) = sys::map(0, size_of::<Private>(), Access::ReadWrite) else { return };
        let file = P::file();
        let mut shown = file.and_then(|file| sys::map_file(PROFILE_BYTES, file).ok());
        if let Some(file) = file {
            sys::close(file);
        }
        self.is_file = false;
        if let Some(at) = shown {
            // SAFETY: fresh and ours.
            self.is_file = unsafe { sys::make_sure(at, PAGE) }.is_ok();
            if !self.is_file {
                // SAFETY: as above; nobody has seen it.
                let _ = unsafe { sys::unmap(at, PROFILE_BYTES) };
                shown = None;
            }
        }
        if file.is_some() && !self.is_file {
            P::withdraw();
        }
        let Some(shown) = shown.or_else(|| sys::map(0, PROFILE_BYTES, Access::ReadWrite).ok()) else {
            // SAFETY: fresh and ours.
            let _ = unsafe { sys::unmap(private, size_of::<Private>()) };
            return;
        };
        for (at, bytes) in [(private, size_of::<Private>()), (shown, PROFILE_BYTES)] {
            // SAFETY: ours. A refusal costs memory only.
            let _ = unsafe { sys::advise(at, bytes, Advice::NoHuge) };
        }
        (self.private, self.shown, self.sure, self.used, self.free) = (private, shown, [0; 3], 0, 0);
        if let Some(header) = self.header() {
            header.version.store(VERSION, Relaxed);
            header.pid.store(sys::pid(), Relaxed);
            header.start_ns.store(sys::now_ns(), Relaxed);
            // Release: a reader that sees the magic sees the rest.
            header.magic.store(MAGIC, Release);
        }
    }

    /// In a forked child: the parent's mappings go.
    fn drop_all(&mut self) {
        if self.shown != 0 {
            // SAFETY: the child has one thread, and nothing of it points there any more.
            unsafe {
                let _ = sys::unmap(self.shown, PROFILE_BYTES);
                let _ = sys::unmap(self.private, size_of::<Private>());
            }
        }
        *self = Self::new();
    }

    /// Makes sure of the first `bytes` of a part (0 modules, 1 stacks, 2 frames).
    fn ensure(&mut self, part: usize, bytes: usize) -> bool {
        if !self.is_file {
            return true;
        }
        let (at, most) = [
            (MODULES_AT, STACKS_AT - MODULES_AT),
            (STACKS_AT, FRAMES_AT - STACKS_AT),
            (FRAMES_AT, PROFILE_BYTES - FRAMES_AT),
        ][part];
        while self.sure[part] < bytes {
            let step = STEP.min(most - self.sure[part]);
            // SAFETY: a part of our own mapping that was never written.
            if unsafe { sys::make_sure(self.shown + at + self.sure[part], step) }.is_err() {
                return false;
            }
            self.sure[part] += step;
        }
        true
    }

    fn insert<P: Process>(&mut self, address: usize, weight: (u64, u64), depth: usize) -> bool {
        let recycled = self.free;
        let number = if recycled != 0 { recycled } else { self.used + 1 };
        if number as usize >= SAMPLES {
            return false;
        }
        let Some(stack) = self.stack_of::<P>(depth.min(DEPTH)) else { return false };
        if recycled != 0 {
            self.free = self.private().samples[number as usize].next;
        } else {
            self.used = number;
        }
        let (bytes, objects) = weight;
        let private = self.private_mut();
        let bucket = &mut private.by_address[(mix(address as u64 >> PAGE_SHIFT) >> 48) as usize % SAMPLE_BUCKETS];
        private.samples[number as usize] = Sample { address, bytes, objects, stack: stack as u32, next: *bucket };
        *bucket = number;
        let stack = self.stack(stack);
        for (word, by) in [
            (&stack.samples, 1),
            (&stack.allocated_bytes, bytes),
            (&stack.allocated_objects, objects),
            (&stack.live, 1),
            (&stack.live_bytes, bytes),
            (&stack.live_objects, objects),
        ] {
            add(word, by);
        }
        if let Some(header) = self.header() {
            add(&header.samples, 1);
            add(&header.live, 1);
        }
        true
    }

    fn remove(&mut self, address: usize) -> bool {
        let free = self.free;
        let private = self.private_mut();
        let bucket = (mix(address as u64 >> PAGE_SHIFT) >> 48) as usize % SAMPLE_BUCKETS;
        let (mut before, mut number) = (0, private.by_address[bucket]);
        while number != 0 && private.samples[number as usize].address != address {
            (before, number) = (number, private.samples[number as usize].next);
        }
        if number == 0 {
            return false;
        }
        let sample = private.samples[number as usize];
        if before == 0 {
            private.by_address[bucket] = sample.next;
        } else {
            private.samples[before as usize].next = sample.next;
        }
        private.samples[number as usize].next = free;
        self.free = number;
        let stack = self.stack(sample.stack as usize);
        for (word, by) in [(&stack.live, 1), (&stack.live_bytes, sample.bytes), (&stack.live_objects, sample.objects)] {
            add(word, by.wrapping_neg());
        }
        if let Some(header) = self.header() {
            add(&header.live, u64::MAX);
        }
        true
    }

    /// The stack with these frames; `None` for lack of room.
    /// The stack of the `depth` return addresses that stand in `frames`.
    fn stack_of<P: Process>(&mut self, depth: usize) -> Option<usize> {
        let frames = &self.private().frames[..depth];
        let hash = frames.iter().fold(depth as u64, |hash, &frame| mix(hash.rotate_left(5) ^ frame as u64));
        let bucket = (hash >> 40) as usize % STACK_BUCKETS;
        let mut number = self.private().by_hash[bucket];
        while number != 0 {
            let at = number as usize - 1;
            let stack = self.stack(at);
            let (its_hash, its_depth) = (stack.hash.load(Relaxed), stack.depth.load(Relaxed) as usize);
            let first = stack.first.load(Relaxed) as usize;
            let is_same = |i: usize| self.private().frames[i] as u64 == self.frame(first + i).load(Relaxed);
            if its_hash == hash && its_depth == depth && (0..depth).all(is_same) {
                return Some(at);
            }
            number = self.private().next_stack[at];
        }
        let (at, first) = {
            let header = self.header()?;
            (header.stacks.load(Relaxed) as usize, header.frames.load(Relaxed) as usize)
        };
        if at == STACKS
            || first + depth > FRAMES
            || !self.ensure(1, (at + 1) * size_of::<Stack>())
            || !self.ensure(2, (first + depth) * 8)
        {
            return None;
        }
        for i in 0..depth {
            let frame = self.private().frames[i];
            self.note_module::<P>(frame);
            self.frame(first + i).store(frame as u64, Relaxed);
        }
        let stack = self.stack(at);
        stack.hash.store(hash, Relaxed);
        stack.first.store(first as u32, Relaxed);
        stack.depth.store(depth as u32, Relaxed);
        let header = self.header()?;
        // Release: what they count is filled.
        header.frames.store((first + depth) as u32, Release);
        header.stacks.store(at as u32 + 1, Release);
        let private = self.private_mut();
        private.next_stack[at] = core::mem::replace(&mut private.by_hash[bucket], at as u32 + 1);
        Some(at)
    }

    /// Notes the file that is mapped at an address, unless it is known. (A file without room is shown without a name.)
    fn note_module<P: Process>(&mut self, address: usize) {
        let Some((start, end)) = P::module(address, &mut []) else { return };
        let Some(header) = self.header() else { return };
        let count = header.modules.load(Relaxed) as usize;
        let known = (0..count).any(|at| {
            let module = self.module(at);
            module.start.load(Relaxed) == start as u64 && module.end.load(Relaxed) == end as u64
        });
        if known || count == MODULES || !self.ensure(0, (count + 1) * size_of::<Module>()) {
            return;
        }
        let path = &mut self.private_mut().path;
        path.fill(0);
        if P::module(address, path) != Some((start, end)) {
            return;
        }
        let module = self.module(count);
        let path = &self.private().path;
        module.start.store(start as u64, Relaxed);
        module.end.store(end as u64, Relaxed);
        for (word, bytes) in module.path.iter().zip(path.chunks_exact(8)) {
            word.store(bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)), Relaxed);
        }
        if let Some(header) = self.header() {
            // Release: it is filled.
            header.modules.store(count as u32 + 1, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap};
    use std::vec::Vec;

    /// A walk that finds these.
    fn found(frames: &[usize]) -> impl FnOnce(&mut [usize]) -> usize {
        move |into| {
            into[..frames.len()].copy_from_slice(frames);
            frames.len()
        }
    }

    /// Three files of 64 KiB, one behind the other.
    struct Here;
    impl Process for Here {
        fn module(address: usize, path: &mut [u8]) -> Option<(usize, usize)> {
            let number = address >> 16;
            if let Some(first) = path.first_mut() {
                *first = b'0' + number as u8;
            }
            (number < 3).then_some((number << 16, (number + 1) << 16))
        }
        fn file() -> Option<usize> {
            None
        }
        fn withdraw() {}
    }

    fn unmap(samples: &Samples) {
        samples.enter().expect("free").table.drop_all();
        samples.shown.store(0, Relaxed);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
        /// Against a map: what is live, by stack, and what ever was.
        #[test]
        fn a_table_is_a_map(steps in proptest::collection::vec((0..600_usize, 0..3_u8, 0..12_usize), 1..800)) {
            let samples = Samples::new();
            let mut live = HashMap::new();
            let mut ever: BTreeMap<Vec<usize>, (u64, u64)> = BTreeMap::new();
            for (at, what, place) in steps {
                let address = (at + 1) << 12;
                let mut turn = samples.enter().expect("nobody has it");
                prop_assert!(turn.ready::<Here>(1));
                if what == 0 {
                    prop_assert_eq!(turn.remove(address), live.remove(&address).is_some());
                } else {
                    let frames: Vec<usize> = (0..place).map(|frame| frame * 7919 + place).collect();
                    let bytes = at as u64 * 3 + 1;
                    prop_assert!(turn.insert::<Here>(address, (bytes, 2), found(&frames)));
                    live.insert(address, (frames.clone(), bytes));
                    let sums = ever.entry(frames).or_default();
                    *sums = (sums.0 + 1, sums.1 + bytes);
                }
                drop(turn);
                for &address in live.keys() {
                    prop_assert!(samples.may_have(address));
                }
            }
            let header = samples.header().expect("made");
            prop_assert_eq!(header.live.load(Relaxed), live.len() as u64);
            prop_assert_eq!(header.stacks.load(Relaxed) as usize, ever.len());
            let turn = samples.enter().expect("nobody has it");
            let mut sum = 0;
            for at in 0..ever.len() {
                let stack = turn.table.stack(at);
                let first = stack.first.load(Relaxed) as usize;
                let frames: Vec<usize> = (0..stack.depth.load(Relaxed) as usize)
                    .map(|i| turn.table.frame(first + i).load(Relaxed) as usize)
                    .collect();
                let mine: Vec<u64> = live.values().filter(|(of, _)| *of == frames).map(|(_, bytes)| *bytes).collect();
                prop_assert_eq!(stack.live.load(Relaxed), mine.len() as u64);
                prop_assert_eq!(stack.live_bytes.load(Relaxed), mine.iter().sum::<u64>());
                prop_assert_eq!(stack.live_objects.load(Relaxed), 2 * mine.len() as u64);
                prop_assert_eq!(Some(&(stack.samples.load(Relaxed), stack.allocated_bytes.load(Relaxed))), ever.get(&frames));
                sum += mine.len();
            }
            prop_assert_eq!(sum, live.len());
            drop(turn);
            let filtered: u32 = samples.filter.iter().map(|cell| cell.load(Relaxed)).sum();
            prop_assert_eq!(filtered as usize, live.len());
            unmap(&samples);
        }
    }

    #[test]
    fn files_are_noted_once_and_by_name() {
        let samples = Samples::new();
        let mut turn = samples.enter().expect("nobody has it");
        assert!(turn.ready::<Here>(1));
        assert!(turn.insert::<Here>(4096, (1, 1), found(&[0x1_0000, 0x1_8000, 0x10, 0x9_0000])));
        assert!(turn.insert::<Here>(8192, (1, 1), found(&[0x1_0000, 0x11])));
        assert_eq!(turn.table.header().expect("made").modules.load(Relaxed), 2);
        assert_eq!(turn.table.module(0).path[0].load(Relaxed), u64::from(b'1'));
        assert_eq!(turn.table.module(1).end.load(Relaxed), 0x1_0000);
        drop(turn);
        unmap(&samples);
    }

    #[test]
    fn who_interrupts_itself_goes_without_and_others_wait() {
        let samples = Samples::new();
        let turn = samples.enter().expect("nobody has it");
        assert!(samples.enter().is_none(), "as a handler would");
        crate::tests::threads::scope(|scope| {
            let other = scope.spawn(|| samples.enter().is_some());
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(turn);
            assert_eq!(other.join().ok(), Some(true));
        });
    }

    #[test]
    fn a_full_table_of_stacks_says_so() {
        let samples = Samples::new();
        let mut turn = samples.enter().expect("nobody has it");
        assert!(turn.ready::<Here>(1));
        for at in 0..STACKS {
            assert!(turn.insert::<Here>((at + 1) << 12, (1, 1), found(&[at + 0x9_0000])));
        }
        assert!(!turn.insert::<Here>((STACKS + 1) << 12, (1, 1), found(&[1])));
        assert!(turn.insert::<Here>((STACKS + 1) << 12, (1, 1), found(&[0x9_0000])), "a stack that is known");
        drop(turn);
        unmap(&samples);
    }
}
