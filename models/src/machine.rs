//! # The machine: CPUs, indices, store buffers, futexes
//!
//! | here | stands for |
//! |---|---|
//! | [`point`] | a moment at which anything may happen elsewhere; the own buffer may shrink |
//! | [`here`], [`begin`] | the thread runs on some CPU; whoever ran there is preempted |
//! | an index moves | the kernel's `mm_cid`: both CPUs concerned are between threads |
//! | [`interrupt`] | a membarrier: the CPU's sequence aborts, its stores are written |
//! | [`buffer`], [`flush`] | a CPU's store buffer (in order, own loads see it) |
//!
//! Invariants: at most one thread is on a CPU, and a CPU has one index that no other
//! has; a preempted thread's buffer is empty.
//!
//! All of it lies in one thread's memory: shuttle runs its threads as coroutines, and
//! nothing here switches but [`point`] and [`futex_wait`].
#![allow(unsafe_code)] // writes buffered stores, hands out raw blocks

use crate::arch::PAGE;
use crate::cache::sets::BYTES;
use crate::stat::board::SETS_MAX;
use core::cell::RefCell;
use core::ops::Range;
use core::sync::atomic::Ordering::SeqCst;
use shuttle::rand::RngCore;
use shuttle::sync::atomic::AtomicBool;
use shuttle::thread::Thread;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Mutex;

/// What a canary leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// Fences against sequences do nothing.
    NoFence,
    /// Sequences write to the void set.
    VoidServes,
    /// A futex sleeps without comparing its word.
    BlindSleep,
    /// An owner's switch is committed though the thread was preempted.
    SwitchAnyhow,
    /// Main and spare change places by a store each.
    ExchangeInHalves,
}

#[derive(Default)]
struct Cpu {
    epoch: u64,
    on: Option<usize>,
    index: u32,
}

struct Block {
    address: usize,
    layout: Layout,
    retired: bool,
}

#[derive(Default)]
struct World {
    cpus: Vec<Cpu>,
    place: Vec<usize>,
    buffers: Vec<VecDeque<(usize, usize, u64)>>,
    sleepers: Vec<(usize, usize, Thread)>,
    blocks: Vec<Block>,
    quiet: Range<usize>,
    used: BTreeSet<usize>,
    point: Option<Rc<AtomicBool>>,
    sabotage: Sabotage,
    /// The relaxed load that a thread repeats, and how often.
    spin: (usize, usize, u32),
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}
/// Most threads of a model, with the first.
const THREADS: usize = 8;
const POISON: u8 = 0xa5;

fn with<T>(f: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(f)
}

/// A number below `n`, chosen by the checker.
#[must_use]
pub fn choose(n: usize) -> usize {
    (shuttle::rand::thread_rng().next_u64() % n as u64) as usize
}
/// The calling thread's number.
#[must_use]
pub fn me() -> usize {
    usize::from(shuttle::current::me())
}

/// Before a schedule: a machine with `cpus` CPUs.
pub fn reset(cpus: usize, sabotage: Sabotage) {
    with(|world| {
        world.blocks.drain(..).for_each(|block| {
            // SAFETY: ours, and the schedule that used it is over.
            unsafe { give_back(block.address, block.layout) };
        });
        *world = World {
            cpus: (0..cpus).map(|index| Cpu { index: index as u32, ..Cpu::default() }).collect(),
            place: vec![usize::MAX; THREADS],
            buffers: (0..THREADS).map(|_| VecDeque::new()).collect(),
            point: Some(Rc::new(AtomicBool::new(false))),
            sabotage,
            ..World::default()
        };
    });
}
/// After a schedule: nothing was written into what had been given back.
pub fn verify() {
    flush();
    with(|world| {
        for block in world.blocks.iter().filter(|block| block.retired) {
            // SAFETY: blocks are kept until the next schedule.
            let bytes = unsafe { core::slice::from_raw_parts(block.address as *const u8, block.layout.size()) };
            assert!(bytes.iter().all(|&byte| byte == POISON), "VIOLATION: a block was written after it was given back");
        }
    });
}

/// Pages of low memory that nobody uses, all together.
static LOW: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Where it ends.
pub const LOW_ENDS: usize = 1 << 44;
/// Pages that are mapped, once: more than any schedule has.
const LOW_PAGES: usize = 1 << 18;

/// Zeroed memory, low where a page is enough.
fn fresh(layout: Layout) -> usize {
    if layout.size() > PAGE {
        // SAFETY: not empty.
        return unsafe { alloc_zeroed(layout) } as usize;
    }
    let mut low = LOW.lock().expect("nobody panics with it");
    if low.is_empty() {
        // SAFETY: touches no memory that exists; a hint only.
        let at = unsafe {
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap((LOW_ENDS / 2) as *mut _, LOW_PAGES * PAGE, access, flags, -1, 0) as usize
        };
        assert!(at < LOW_ENDS - LOW_PAGES * PAGE, "low addresses are free");
        low.extend((0..LOW_PAGES).rev().map(|page| at + page * PAGE));
    }
    low.pop().expect("some are there")
}
/// Takes it back.
///
/// # Safety
/// It came from [`fresh`] with this layout, and is unused.
unsafe fn give_back(address: usize, layout: Layout) {
    if layout.size() > PAGE {
        // SAFETY: from there.
        return unsafe { dealloc(address as *mut u8, layout) };
    }
    // SAFETY: a page of ours.
    unsafe { (address as *mut u8).write_bytes(0, PAGE) };
    LOW.lock().expect("nobody panics with it").push(address);
}

/// Zeroed memory until the end of the schedule.
#[must_use]
pub fn mapping(bytes: usize, align: usize) -> usize {
    let layout = Layout::from_size_align(bytes.next_multiple_of(align), align).expect("a small block");
    let address = fresh(layout);
    with(|world| world.blocks.push(Block { address, layout, retired: false }));
    address
}
/// A number for the page of an address, small and different for all mappings; none of ours is far away.
#[must_use]
pub fn page_number(address: usize) -> usize {
    with(|world| {
        let inside = |block: &Block| (block.address..block.address + block.layout.size()).contains(&address);
        world
            .blocks
            .iter()
            .position(inside)
            .map_or(usize::MAX >> 12, |at| at * 8 + (address - world.blocks[at].address) / PAGE)
    })
}
/// The address lies in a mapping that was not given back.
pub fn assert_inside(address: usize) {
    let inside = with(|world| {
        world
            .blocks
            .iter()
            .any(|block| !block.retired && (block.address..block.address + block.layout.size()).contains(&address))
    });
    assert!(inside, "VIOLATION: {address:#x} is used after it was given back");
}
/// The mapping that `Sets::open` wants. Its counters are no steps.
#[must_use]
pub fn sets() -> usize {
    let base = mapping(BYTES, PAGE);
    with(|world| world.quiet = base + SETS_MAX * PAGE..base + BYTES);
    base
}
/// Whether an access of `address` is no step.
#[must_use]
pub fn quiet(address: usize) -> bool {
    with(|world| world.quiet.contains(&address))
}
/// Poisons a mapping.
pub fn retire(address: usize) {
    flush();
    with(|world| {
        let block = world.blocks.iter_mut().find(|block| block.address == address).expect("a block");
        assert!(!block.retired, "VIOLATION: a block was given back twice");
        block.retired = true;
        // SAFETY: ours.
        unsafe { core::ptr::write_bytes(address as *mut u8, POISON, block.layout.size()) };
    });
}

/// The block was not given back.
pub fn assert_live(address: usize) {
    let live = with(|world| world.blocks.iter().any(|block| block.address == address && !block.retired));
    assert!(live, "VIOLATION: a block is used after it was given back");
}
/// Blocks of `bytes` that were not given back.
#[must_use]
pub fn live(bytes: usize) -> usize {
    with(|world| world.blocks.iter().filter(|block| block.layout.size() == bytes && !block.retired).count())
}

/// A thread of the model has `object` now.
pub fn take(object: usize) {
    with(|world| assert!(world.used.insert(object), "VIOLATION: object {object:#x} was handed out twice"));
}
/// It gives it up.
pub fn give(object: usize) {
    with(|world| assert!(world.used.remove(&object), "VIOLATION: object {object:#x} is not used"));
}
/// Objects that threads have.
#[must_use]
pub fn used() -> Vec<usize> {
    with(|world| world.used.iter().copied().collect())
}
/// None of them is here.
pub fn assert_unused(range: Range<usize>) {
    with(|world| {
        let used = world.used.range(range).next();
        assert!(used.is_none(), "VIOLATION: object {used:x?} is used while its page goes");
    });
}

/// What the canary leaves out.
#[must_use]
pub fn sabotage() -> Sabotage {
    with(|world| world.sabotage)
}
impl World {
    /// Writes the oldest buffered store of a thread.
    fn write_one(&mut self, thread: usize) {
        let Some((address, bytes, value)) = self.buffers[thread].pop_front() else { return };
        // SAFETY: the address of an atomic of that size, which lives as long as the schedule.
        unsafe {
            match bytes {
                1 => (address as *mut u8).write_volatile(value as u8),
                2 => (address as *mut u16).write_volatile(value as u16),
                4 => (address as *mut u32).write_volatile(value as u32),
                _ => (address as *mut u64).write_volatile(value),
            }
        }
    }
    fn write_all(&mut self, thread: usize) {
        while !self.buffers[thread].is_empty() {
            self.write_one(thread);
        }
    }
    /// Whoever is on `cpu` leaves it.
    fn vacate(&mut self, cpu: usize) {
        self.cpus[cpu].epoch += 1;
        if let Some(thread) = self.cpus[cpu].on.take() {
            self.write_all(thread);
            self.place[thread] = usize::MAX;
        }
    }
    /// The CPU that runs `thread`, which may be another than before.
    fn run(&mut self, thread: usize) -> usize {
        let place = self.place[thread];
        if place != usize::MAX && choose(6) > 0 {
            return place;
        }
        if place != usize::MAX {
            self.vacate(place);
        }
        self.write_all(thread);
        let cpu = choose(self.cpus.len());
        self.vacate(cpu);
        if choose(3) == 0 {
            let other = choose(self.cpus.len());
            self.vacate(other);
            let index = self.cpus[other].index;
            self.cpus[other].index = core::mem::replace(&mut self.cpus[cpu].index, index);
        }
        self.cpus[cpu].on = Some(thread);
        self.place[thread] = cpu;
        cpu
    }
}

/// Anything may happen here.
pub fn point() {
    if std::thread::panicking() {
        return;
    }
    let me = me();
    loop {
        let point = with(|world| world.point.clone());
        point.expect("a machine").load(SeqCst);
        if with(|world| world.buffers[me].is_empty()) || choose(3) > 0 {
            return;
        }
        with(|world| world.write_one(me));
    }
}
/// The same before an access of `address`. A spinning load is not looked at every time.
pub fn point_of(address: usize, relaxed: bool) {
    let me = me();
    let skip = with(|world| {
        if relaxed && world.spin.0 == me && world.spin.1 == address {
            world.spin.2 += 1;
        } else {
            world.spin = (me, address, 0);
        }
        world.spin.2 > 2 && world.spin.2 % 40 != 0
    });
    if !skip {
        point();
    }
}

/// The newest buffered store of this thread to `address`.
#[must_use]
pub fn buffered(address: usize) -> Option<u64> {
    let me = me();
    with(|world| world.buffers[me].iter().rev().find(|entry| entry.0 == address).map(|entry| entry.2))
}
/// Stores into this thread's buffer.
pub fn buffer(address: usize, bytes: usize, value: u64) {
    let me = me();
    with(|world| {
        world.buffers[me].push_back((address, bytes, value));
        if world.buffers[me].len() > 8 {
            world.write_one(me);
        }
    });
}
/// Writes this thread's buffer.
pub fn flush() {
    let me = me();
    with(|world| world.write_all(me));
}

/// CPUs.
#[must_use]
pub fn cpus() -> usize {
    with(|world| world.cpus.len())
}
/// A membarrier for one CPU (none if there is no such).
pub fn interrupt(cpu: usize) {
    point();
    flush();
    with(|world| {
        let Some(on) = world.cpus.get_mut(cpu) else { return };
        on.epoch += 1;
        if let Some(thread) = on.on {
            world.write_all(thread);
        }
    });
}
/// A membarrier without sequences: every thread writes its buffer.
pub fn barrier() {
    point();
    with(|world| (0..world.buffers.len()).for_each(|thread| world.write_all(thread)));
}
/// This thread's index and CPU now.
#[must_use]
pub fn here() -> (u32, u32) {
    point();
    let me = me();
    with(|world| {
        let cpu = world.run(me);
        (world.cpus[cpu].index, cpu as u32)
    })
}

/// The right to go on with a sequence.
#[derive(Debug)]
pub struct Ticket {
    cpu: usize,
    index: u32,
    epoch: u64,
}
impl Ticket {
    /// Whether nothing came in between.
    #[must_use]
    pub fn holds(&self) -> bool {
        with(|world| world.cpus[self.cpu].epoch == self.epoch)
    }
    /// The CPU.
    #[must_use]
    pub const fn cpu(&self) -> u32 {
        self.cpu as u32
    }
    /// Its index.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }
}
/// Begins a sequence.
#[must_use]
pub fn begin() -> Ticket {
    point();
    let me = me();
    with(|world| {
        let cpu = world.run(me);
        Ticket { cpu, index: world.cpus[cpu].index, epoch: world.cpus[cpu].epoch }
    })
}

/// Lets others go on; what this thread has stored is seen.
pub fn nap() {
    point();
    flush();
    // Not a `point`, which PCT takes for progress.
    shuttle::thread::yield_now();
}

/// Sleeps until somebody wakes the word at an address, if it `is_still` what the caller saw.
pub fn futex_wait(address: usize, is_still: impl FnOnce() -> bool) {
    point();
    flush();
    let me = me();
    if !is_still() && sabotage() != Sabotage::BlindSleep {
        return;
    }
    with(|world| world.sleepers.push((address, me, shuttle::thread::current())));
    while with(|world| world.sleepers.iter().any(|sleeper| sleeper.1 == me)) {
        shuttle::thread::park();
    }
}
/// Wakes all that sleep on the word at an address.
pub fn futex_wake(address: usize) {
    point();
    flush();
    let woken = with(|world| world.sleepers.extract_if(.., |sleeper| sleeper.0 == address).collect::<Vec<_>>());
    woken.into_iter().for_each(|sleeper| sleeper.2.unpark());
}

/// Prints a line of a replay (`ALLOTMENT_MODEL_TRACE=1`).
pub fn trace(line: impl FnOnce() -> String) {
    use std::sync::LazyLock;
    static ON: LazyLock<bool> = LazyLock::new(|| std::env::var_os("ALLOTMENT_MODEL_TRACE").is_some());
    if *ON {
        let me = me();
        println!("{me}: {}", line());
    }
}
