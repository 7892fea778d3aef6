//! The tree of free runs against a plain list; areas of many nodes against a model, in calm and in a storm of
//! refused system calls; threads that free, take and purge.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::tree::Tree;
use super::{Areas, DIFFERENTIAL, Freed, GUARD, Vmap};
use crate::arch::PAGE;
use crate::arch::gate::Gate;
use crate::arch::seq;
use crate::arch::sys::{self, Access, fault};
use crate::cache::{Cache, sets};
use crate::cpu::Simulation;
use crate::page::windows::WINDOW_PAGES;
use crate::page::{Owner, Paging, Pfn, Windows};
use crate::stat::{Board, Event, Level, Mode, Timing};
use proptest::prelude::*;
use std::boxed::Box;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::vec::Vec;

fn board() -> &'static Board {
    std::boxed::Box::leak(unsafe { std::boxed::Box::<Board>::new_zeroed().assume_init() })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every take is the lowest that the list would give, and the runs stay the same.
    #[test]
    fn tree_matches_a_list(ops in prop::collection::vec((1..60_usize, 0..4_u32, any::<usize>()), 1..200)) {
        static REGIONS: std::sync::OnceLock<(std::boxed::Box<Windows>, Pfn)> = std::sync::OnceLock::new();
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN.lock();
        let (windows, first) = REGIONS.get_or_init(|| {
            let windows = unsafe { std::boxed::Box::<Windows>::new_zeroed().assume_init() };
            let (first, _) = windows.reserve(board(), Owner::Areas(Paging::Small), 1000, 1000).unwrap();
            (windows, first)
        });
        let total = 1000;
        let mut tree = Tree::new();
        let mut free: BTreeMap<u32, usize> = BTreeMap::new();
        tree.insert(windows, *first, total);
        free.insert(first.0, total);
        let mut taken: Vec<(Pfn, usize)> = Vec::new();
        for (pages, shift, which) in ops {
            let align = 1 << shift;
            if which % 5 < 3 {
                let expected = free.iter().find(|(_, len)| **len >= pages + align - 1).map(|(&at, &len)| (at, len));
                let got = tree.take(windows, pages, align);
                prop_assert_eq!(got.is_some(), expected.is_some());
                if let (Some(got), Some((at, len))) = (got, expected) {
                    let start = at.next_multiple_of(align as u32);
                    prop_assert_eq!(got.0, start);
                    free.remove(&at);
                    if start > at {
                        free.insert(at, (start - at) as usize);
                    }
                    let end = start + pages as u32;
                    if at + len as u32 > end {
                        free.insert(end, (at + len as u32 - end) as usize);
                    }
                    taken.push((got, pages));
                }
            } else if !taken.is_empty() {
                let (at, pages) = taken.swap_remove(which / 5 % taken.len());
                tree.insert(windows, at, pages);
                let (mut start, mut len) = (at.0, pages);
                if let Some((&before, &n)) = free.range(..start).next_back() && before + n as u32 == start {
                    free.remove(&before);
                    start = before;
                    len += n;
                }
                if let Some(n) = free.remove(&(start + len as u32)) {
                    len += n;
                }
                free.insert(start, len);
            }
            let mut runs = BTreeMap::new();
            tree.verify(windows, &mut |at, pages| { runs.insert(at.0, pages); });
            prop_assert_eq!(&runs, &free);
        }
    }
}

std::thread_local!(static HERE: Cell<usize> = const { Cell::new(0) });
fn here() -> (usize, u32) {
    let index = HERE.get();
    (index, index as u32)
}

/// What a heap has for its areas.
struct World {
    areas: Areas,
    windows: Box<Windows>,
    cache: Box<Cache>,
    gate: Gate,
}

impl World {
    fn new() -> Self {
        let world = Self {
            areas: Areas::new(),
            windows: unsafe { Box::<Windows>::new_zeroed().assume_init() },
            cache: unsafe { Box::<Cache>::new_zeroed().assume_init() },
            gate: Gate::new(),
        };
        let base = sys::map(0, sets::BYTES, Access::ReadWrite).unwrap();
        unsafe {
            world.cache.sets.open(base, Mode::Simulated, seq::RseqArea::default(), Some(Simulation::own(8, 1, here)))
        };
        world.cache.knobs.reset();
        world
    }
    fn vmap(&self) -> Vmap<'_> {
        Vmap { areas: &self.areas, windows: &self.windows, cache: &self.cache, gate: &self.gate }
    }
    fn exact(&self, level: Level) -> usize {
        self.cache.sets.level(level) as usize
    }
}

#[derive(Clone, Debug)]
enum Op {
    Alloc(usize, u32),
    Guarded(usize),
    Part(usize, u32),
    Free(usize),
    Resize(usize, usize),
    Move(usize, usize),
    Purge(usize),
    PutBack,
    /// Free pages of either kind become a zone's, and come back as small ones.
    Around,
    Go(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let pages = || prop_oneof![6 => 9..14_usize, 3 => 14..300_usize, 1 => 500..1600_usize];
    let op = prop_oneof![
        8 => (pages(), 0..10_u32).prop_map(|(pages, shift)| Op::Alloc(pages, if shift < 7 { 0 } else { shift })),
        1 => pages().prop_map(Op::Guarded),
        4 => (pages(), 0..3_u32).prop_map(|(pages, shift)| Op::Part(pages, shift)),
        7 => any::<usize>().prop_map(Op::Free),
        2 => (any::<usize>(), pages()).prop_map(|(which, pages)| Op::Resize(which, pages)),
        1 => (any::<usize>(), pages()).prop_map(|(which, pages)| Op::Move(which, pages)),
        1 => prop_oneof![1..20_usize, 20..2000_usize, Just(usize::MAX / PAGE)].prop_map(Op::Purge),
        1 => Just(Op::PutBack),
        1 => Just(Op::Around),
        2 => (0..8_usize).prop_map(Op::Go),
    ];
    prop::collection::vec(op, 1..250)
}

/// Live areas by address: pages, and the word that each page begins with.
struct Model<'a> {
    world: &'a World,
    live: BTreeMap<usize, (usize, usize)>,
    stamp: usize,
    /// Pages of address space that the model knows of, and those that a refusal may have lost.
    storm: bool,
    /// Areas that were cut.
    parts: usize,
}

impl Model<'_> {
    fn stamps(at: usize, pages: usize) -> impl Iterator<Item = *mut usize> {
        (0..pages).flat_map(move |page| [at + page * PAGE, at + page * PAGE + PAGE - 8]).map(|at| at as *mut usize)
    }
    fn add(&mut self, fresh: Option<super::Fresh>, pages: usize, align: usize) {
        let Some(fresh) = fresh else {
            assert!(self.storm, "no memory");
            return;
        };
        let at = fresh.address;
        assert!(at.is_multiple_of(align.max(1) * PAGE));
        let before = self.live.range(..=at).next_back().is_none_or(|(&other, &(len, _))| other + len * PAGE <= at);
        let after = self.live.range(at..).next().is_none_or(|(&other, _)| at + pages * PAGE <= other);
        assert!(before && after, "handed out twice");
        if fresh.zero {
            let bytes = unsafe { core::slice::from_raw_parts(at as *const u64, pages * PAGE / 8) };
            assert!(bytes.iter().all(|&word| word == 0), "not zero");
        }
        self.stamp += 1;
        Self::stamps(at, pages).for_each(|word| unsafe { word.write(self.stamp) });
        self.live.insert(at, (pages, self.stamp));
    }
    fn pick(&self, which: usize) -> Option<(usize, usize, usize)> {
        let nth = which % self.live.len().max(1);
        self.live.iter().nth(nth).map(|(&at, &(pages, stamp))| (at, pages, stamp))
    }
    fn check(at: usize, pages: usize, stamp: usize) {
        assert!(Self::stamps(at, pages).all(|word| unsafe { word.read() } == stamp), "contents are gone");
    }
    fn run(&mut self, op: &Op) {
        let vmap = self.world.vmap();
        match *op {
            Op::Alloc(pages, shift) => {
                let align = 1 << shift;
                self.add(vmap.alloc(pages * PAGE, align * PAGE), pages, align);
            }
            Op::Guarded(pages) => {
                if let Some(fresh) = vmap.alloc_guarded(pages * PAGE, PAGE) {
                    let area = vmap.find(fresh.address).unwrap();
                    assert!(area.flags & GUARD != 0 && area.bytes == pages * PAGE);
                    self.add(Some(fresh), pages, 1);
                }
            }
            Op::Part(pages, shift) => {
                if let Some(fresh) = vmap.reuse(pages * PAGE, PAGE << shift) {
                    let area = vmap.find(fresh.address).unwrap();
                    assert!(area.flags & GUARD == 0 && area.bytes == pages * PAGE && !fresh.zero);
                    self.add(Some(fresh), pages, 1 << shift);
                    self.parts += 1;
                }
            }
            Op::Free(which) => {
                let Some((at, pages, stamp)) = self.pick(which) else { return };
                Self::check(at, pages, stamp);
                let area = vmap.find(at).unwrap();
                assert_ne!(vmap.free(&area), Freed::Not);
                assert_eq!(vmap.free(&area), Freed::Not, "freed twice");
                self.live.remove(&at);
            }
            Op::Resize(which, then) => {
                let Some((at, pages, stamp)) = self.pick(which) else { return };
                if vmap.resize(&vmap.find(at).unwrap(), then * PAGE) {
                    let now = vmap.find(at).unwrap().bytes / PAGE;
                    assert!(now >= then);
                    Self::check(at, pages.min(then), stamp);
                    self.live.remove(&at);
                    self.add(Some(super::Fresh { address: at, zero: false }), now, 1);
                }
            }
            Op::Move(which, then) => {
                let Some((at, pages, stamp)) = self.pick(which) else { return };
                if let Some(moved) = unsafe { vmap.relocate(&vmap.find(at).unwrap(), then * PAGE) } {
                    Self::check(moved, pages, stamp);
                    self.live.remove(&at);
                    self.add(Some(super::Fresh { address: moved, zero: false }), then, 1);
                }
                Self::check(
                    self.live.get(&at).map_or(at, |_| at),
                    if self.live.contains_key(&at) { pages } else { 0 },
                    stamp,
                );
            }
            Op::Purge(pages) => {
                let before = self.world.exact(Level::Lazy);
                let bytes = vmap.purge(pages.saturating_mul(PAGE));
                assert_eq!(self.world.exact(Level::Lazy), before - bytes);
            }
            Op::PutBack => vmap.put_back(),
            Op::Around => {
                if let Some((first, pages)) = vmap.hand_over(8) {
                    vmap.take_over(first, pages, true);
                }
            }
            Op::Go(index) => HERE.set(index),
        }
    }
}

fn against_the_model(world: &World, storm: u64, cases: u32) {
    let parts = Cell::new(0);
    proptest!(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }, |(ops in ops(), seed in any::<u64>())| {
        let vmap = world.vmap();
        let (total, mapped) = (vmap.verify(), world.exact(Level::Mapped));
        let mut model = Model { world, live: BTreeMap::new(), stamp: 0, storm: storm > 0, parts: 0 };
        fault::storm(storm, seed);
        for op in &ops {
            model.run(op);
        }
        let struck = fault::storm(0, 0);
        parts.set(parts.get() + model.parts);
        // Every page is live, or free or lazy once: none is lost unless a mapping was.
        let live: usize = model.live.values().map(|&(pages, _)| pages).sum();
        let guards = model.live.keys().filter(|&&at| vmap.find(at).unwrap().flags & GUARD != 0).count();
        let sum = vmap.verify() + live + guards;
        let grown = sum.wrapping_sub(total + (world.exact(Level::Mapped) - mapped) / PAGE);
        prop_assert!(grown == 0 || storm > 0, "{} pages of {} and {}", grown, sum, total);
        prop_assert_eq!(world.exact(Level::Areas), (live + guards) * PAGE);
        while let Some((at, ..)) = model.pick(0) {
            model.run(&Op::Free(0));
            assert!(!model.live.contains_key(&at));
        }
        vmap.purge(usize::MAX);
        vmap.purge(usize::MAX);
        prop_assert_eq!(world.exact(Level::Lazy), 0, "after {} faults", struck);
        prop_assert_eq!(world.cache.sets.board().level(Level::Areas), 0);
        vmap.verify();
    });
    assert!(parts.get() > 0, "nothing was cut");
}

#[test]
fn areas_match_the_model() {
    let world = World::new();
    against_the_model(&world, 0, 150);
    let board = world.cache.sets.board();
    assert!(board.spaces[0].purged.load(std::sync::atomic::Ordering::Relaxed) > 0);
    let purges: u64 = world.cache.sets.times(Timing::Purge).0.iter().sum();
    assert_eq!(purges, world.cache.sets.event(Event::Purge));
}

#[test]
fn areas_of_both_kinds_match_the_model() {
    let world = World::new();
    world.cache.knobs.set(crate::knob::Id::HugeBytes as usize, 100 * PAGE as u64);
    against_the_model(&world, 0, 60);
}

/// A window's pages in the hands of both spaces: a dirty run does not take the other's free pages for its own.
#[test]
fn a_neighbour_may_be_of_the_other_kind() {
    let world = World::new();
    world.cache.knobs.set(crate::knob::Id::HugeBytes as usize, 100 * PAGE as u64);
    let vmap = world.vmap();
    let [one, other] = [300, 300].map(|pages| vmap.alloc(pages * PAGE, PAGE).unwrap().address);
    vmap.free(&vmap.find(other).unwrap());
    vmap.purge(usize::MAX);
    // All free pages of huge windows become small ones.
    let given: Vec<_> = core::iter::from_fn(|| vmap.hand_over(1)).collect();
    given.iter().for_each(|&(first, pages)| vmap.take_over(first, pages, true));
    vmap.free(&vmap.find(one).unwrap());
    for pages in [400, 450, 40, 60] {
        let at = vmap.alloc(pages * PAGE, PAGE).unwrap().address;
        assert!(pages < 100 || !(one..one + 600 * PAGE).contains(&(at + pages * PAGE - 1)), "{pages}");
    }
    vmap.verify();
}

#[test]
fn areas_match_the_model_without_vectors() {
    let world = World::new();
    world.areas.confine();
    against_the_model(&world, 0, 50);
}

#[test]
fn refused_and_partial_calls_lose_nothing() {
    for (storm, vectors) in [(2, true), (2, false), (5, true), (30, true)] {
        let world = World::new();
        if !vectors {
            world.areas.confine();
        }
        against_the_model(&world, storm, 60);
        // (A vector that is refused is tried range by range: where one call in 30 fails, all may go.)
        assert!(storm > 5 || world.cache.sets.event(Event::PurgeRefused) > 0);
    }
}

/// Whoever frees because memory is short must not need some.
#[test]
fn frees_and_purges_ask_for_no_memory() {
    let world = World::new();
    let vmap = world.vmap();
    let fresh = (0..400_usize).map(|n| {
        HERE.set(n % 8);
        let bytes = (9 + n * 37 % 700) * PAGE;
        let fresh = if n % 5 == 0 { vmap.alloc_guarded(bytes, PAGE) } else { vmap.alloc(bytes, PAGE) };
        let mut at = fresh.or_else(|| vmap.alloc(bytes, PAGE)).unwrap().address;
        if n % 7 == 0 {
            at = unsafe { vmap.relocate(&vmap.find(at).unwrap(), 2 * bytes) }.unwrap_or(at);
        }
        unsafe { (at as *mut u8).write(1) };
        at
    });
    let live: Vec<usize> = fresh.collect();
    let wanted = fault::wanted();
    assert!(wanted > 0, "the count counts");
    for (n, &at) in live.iter().enumerate() {
        HERE.set(n % 3);
        assert_ne!(vmap.free(&vmap.find(at).unwrap()), Freed::Not);
        if n % 50 == 0 {
            vmap.purge(100 * PAGE);
        }
    }
    vmap.put_back();
    vmap.purge(usize::MAX);
    assert_eq!(world.exact(Level::Lazy), 0);
    assert_eq!(fault::wanted(), wanted);
}

#[test]
fn a_space_owes_at_most_what_it_may() {
    let world = World::new();
    let vmap = world.vmap();
    let mut live = Vec::new();
    for round in 0..2000_usize {
        HERE.set(round % 8);
        if round * 7 % 16 < 9 {
            live.extend(vmap.alloc((9 + round * 13 % 400) * PAGE, PAGE));
        } else if !live.is_empty() {
            let fresh = live.swap_remove(round * 31 % live.len());
            vmap.free(&vmap.find(fresh.address).unwrap());
        }
        let board = world.cache.sets.board();
        for space in &board.spaces {
            let differential = space.differential.load(std::sync::atomic::Ordering::Relaxed) as isize;
            assert!(differential.unsigned_abs() <= DIFFERENTIAL);
        }
    }
}

/// Threads on three nodes that take, stamp, check and free, beside one that purges and one that forks: a soak, of two
/// seconds, or a minute with `ALLOTMENT_TEST_LONG=1`.
#[test]
fn threads_and_purges_hand_nothing_out_twice() {
    let world = World::new();
    let world = &world;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stop = &stop;
    let long = std::env::var_os("ALLOTMENT_TEST_LONG").is_some_and(|value| value != "0");
    let seconds = if long { 60 } else { 2 };
    std::thread::scope(|scope| {
        let purger = scope.spawn(move || {
            let mut bytes = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _inside = world.gate.enter_patiently();
                bytes += world.vmap().purge(if bytes % 3 == 0 { usize::MAX } else { 40 * PAGE });
                std::thread::yield_now();
            }
            bytes
        });
        scope.spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                world.gate.fork_begin(|| {});
                std::thread::yield_now();
                world.gate.fork_end(false, || {});
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let workers: Vec<_> = (0..6_usize)
            .map(|thread| {
                scope.spawn(move || {
                    let mut live: Vec<(usize, usize)> = Vec::new();
                    let mut x = 88_172_645_463_325_252_u64 ^ (thread as u64) << 20;
                    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
                    for round in (0..).take_while(|round| round % 64 != 0 || std::time::Instant::now() < end) {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        HERE.set(x as usize % 3);
                        let _inside = world.gate.enter_patiently();
                        let pages = 9 + (x >> 20) as usize % 4;
                        let part = if x >> 60 < 8 { world.vmap().reuse(pages * PAGE, PAGE) } else { None };
                        let fresh = part.or_else(|| world.vmap().alloc(pages * PAGE, PAGE)).unwrap();
                        if fresh.zero {
                            assert!(Model::stamps(fresh.address, pages).all(|word| unsafe { word.read() } == 0));
                        }
                        let stamp = thread << 32 | round;
                        Model::stamps(fresh.address, pages).for_each(|word| unsafe { word.write(stamp) });
                        live.push((fresh.address, stamp));
                        while live.len() > (x >> 40) as usize % 8 {
                            let (at, stamp) = live.swap_remove((x >> 50) as usize % live.len());
                            let area = world.vmap().find(at).unwrap();
                            Model::check(at, area.bytes / PAGE, stamp);
                            assert_ne!(world.vmap().free(&area), Freed::Not);
                        }
                    }
                    for (at, _) in live {
                        world.vmap().free(&world.vmap().find(at).unwrap());
                    }
                })
            })
            .collect();
        let done: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(purger.join().unwrap() > 0);
        assert!(done.iter().all(Result::is_ok));
    });
    world.vmap().purge(usize::MAX);
    assert_eq!((world.exact(Level::Lazy), world.exact(Level::Areas)), (0, 0));
    world.vmap().verify();
}

/// Giant areas: stamps at a few places only, so that they cost no memory.
struct Giants<'a> {
    world: &'a World,
    live: Vec<(usize, usize)>,
    tickets: Vec<super::Ticket>,
    stamp: usize,
    /// Nobody else takes back what was freed.
    alone: bool,
}

impl Giants<'_> {
    const PLACES: usize = 9;
    fn places(at: usize, bytes: usize) -> impl Iterator<Item = *mut usize> {
        (0..Self::PLACES).map(move |place| (at + (bytes / PAGE - 1) / (Self::PLACES - 1) * PAGE * place) as *mut usize)
    }
    fn alloc(&mut self, pages: usize, zero: bool, storm: bool) {
        let vmap = self.world.vmap();
        let fresh = if zero { vmap.alloc_zero(pages * PAGE, PAGE, 256 * PAGE) } else { vmap.alloc(pages * PAGE, PAGE) };
        let Some(fresh) = fresh else { return assert!(storm, "no memory") };
        let at = fresh.address;
        assert!(fresh.zero || !zero);
        assert!(!fresh.zero || Self::places(at, pages * PAGE).all(|word| unsafe { word.read() } == 0), "not zero");
        self.stamp += 1;
        Self::places(at, pages * PAGE).for_each(|word| unsafe { word.write(self.stamp ^ at) });
        let apart = self.live.iter().all(|&(other, _)| {
            let bytes = vmap.find(other).unwrap().bytes;
            other + bytes <= at || at + pages * PAGE <= other
        });
        assert!(apart, "handed out twice");
        self.live.push((at, pages * PAGE));
    }
    fn free(&mut self, which: usize) {
        if self.live.is_empty() {
            return;
        }
        let (at, bytes) = self.live.swap_remove(which % self.live.len());
        let stamps: Vec<_> = Self::places(at, bytes).map(|word| unsafe { word.read() }).collect();
        assert!(stamps.iter().all(|&stamp| stamp == stamps[0] && stamp != 0), "contents are gone");
        let area = self.world.vmap().find(at).unwrap();
        let Freed::Queued(ticket) = self.world.vmap().free(&area) else { panic!("not queued") };
        // (Beside others it may be somebody's again by now.)
        if self.alone {
            assert_eq!(self.world.vmap().free(&area), Freed::Not, "freed twice");
        }
        self.tickets.push(ticket);
    }
    fn run(&mut self, step: (u8, usize, usize), storm: bool) {
        let (op, pages, which) = step;
        let vmap = self.world.vmap();
        match op {
            0..4 => self.alloc(pages, which.is_multiple_of(3), storm),
            4..7 => self.free(which),
            7 => _ = vmap.purge_pending(pages / 4 * PAGE),
            8 => _ = vmap.purge(pages / 2 * PAGE),
            9 => {
                if let Some(&ticket) = self.tickets.get(which % self.tickets.len().max(1)) {
                    vmap.purge_giant(ticket);
                }
            }
            10 => _ = vmap.purge_abroad(pages / 8 * PAGE),
            11 => {
                // Its end goes.
                let Some(&(at, bytes)) = self.live.get(which % self.live.len().max(1)) else { return };
                let area = vmap.find(at).unwrap();
                let stamp = unsafe { (at as *const usize).read() };
                let then = bytes / PAGE * (1 + which % 7) / 8;
                let is_cut = vmap.resize(&area, then * PAGE);
                assert!(is_cut || storm, "not cut");
                // (What was to go may have gone, if it is refused.)
                let bytes = if is_cut { then * PAGE } else { bytes };
                assert_eq!(is_cut, vmap.find(at).unwrap().bytes == then * PAGE);
                self.live.retain(|&(other, _)| other != at);
                self.live.push((at, bytes));
                Self::places(at, bytes).for_each(|word| unsafe { word.write(stamp) });
            }
            // (A move that is refused twice may cost the target's mapping.)
            _ if storm => {}
            _ => {
                // Moves by page tables, from one giant area to a longer one, as often as it is asked.
                let Some(&(at, bytes)) = self.live.get(which % self.live.len().max(1)) else { return };
                let area = vmap.find(at).unwrap();
                let then = area.bytes.max(WINDOW_PAGES / 2 * PAGE) + 4096 * PAGE;
                let moved = unsafe { vmap.relocate(&area, then) }.expect("moved");
                assert_eq!(vmap.find(at), None, "it is there still");
                self.live.retain(|&(other, _)| other != at);
                self.live.push((moved, bytes));
            }
        }
    }
}

fn giants_against_the_model(storm: u64, cases: u32) {
    let world = World::new();
    let mapped = world.exact(Level::Mapped);
    let steps = prop::collection::vec((0..13_u8, WINDOW_PAGES / 2 + 1..WINDOW_PAGES * 5 / 4, any::<usize>()), 1..60);
    proptest!(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }, |(steps in steps, batches in 1..200_u64, seed in any::<u64>())| {
        world.cache.knobs.set(crate::knob::Id::MaxGatherBatchCount as usize, batches);
        let mut giants = Giants { world: &world, live: Vec::new(), tickets: Vec::new(), stamp: 0, alone: true };
        fault::storm(storm, seed);
        for step in steps {
            giants.run(step, storm > 0);
            let queued = world.areas.backlog() * PAGE;
            prop_assert!(world.exact(Level::Lazy) >= queued || storm > 0);
        }
        fault::storm(0, 0);
        world.vmap().verify();
        let live: usize = giants.live.iter().map(|&(at, _)| world.vmap().find(at).unwrap().bytes).sum();
        prop_assert_eq!(world.exact(Level::Areas), live);
        while !giants.live.is_empty() {
            giants.free(0);
        }
        world.vmap().purge(usize::MAX);
        world.vmap().verify();
        prop_assert_eq!((world.exact(Level::Lazy), world.exact(Level::Areas)), (0, 0));
        prop_assert!(!world.areas.is_pending());
        prop_assert_eq!(world.exact(Level::Mapped), mapped, "a giant area is not unmapped");
    });
    assert!(world.cache.sets.event(Event::AreaReuse) > 0, "none was taken back");
    assert_eq!(world.cache.sets.event(Event::PurgeRefused) > 0, storm > 0);
}

#[test]
fn giants_match_the_model() {
    giants_against_the_model(0, 100);
}

#[test]
fn giants_lose_nothing_in_a_storm() {
    for storm in [2, 5, 30] {
        giants_against_the_model(storm, 60);
    }
}

/// The kernel may refuse to move what the program has made several mappings of: then all is as it was.
#[test]
fn what_is_not_one_mapping_is_not_moved() {
    let world = World::new();
    let vmap = world.vmap();
    for bytes in [4 << 20, 600 << 20] {
        let (at, wall) = (vmap.alloc(bytes, PAGE).unwrap().address, vmap.alloc(PAGE, PAGE).unwrap().address);
        let words = [at, at + bytes / 2 - PAGE, at + bytes / 2, at + bytes - PAGE].map(|at| at as *mut usize);
        words.iter().for_each(|&word| unsafe { word.write(word as usize) });
        let levels = || [Level::Areas, Level::Lazy, Level::Mapped, Level::Mappings].map(|level| world.exact(level));
        unsafe { sys::protect(at, bytes / 2, Access::None) }.unwrap();
        // (The first time address space is opened.)
        assert_eq!(unsafe { vmap.relocate(&vmap.find(at).unwrap(), 2 * bytes) }, None);
        let before = levels();
        for _ in 0..10 {
            assert_eq!(unsafe { vmap.relocate(&vmap.find(at).unwrap(), 2 * bytes) }, None);
        }
        assert_eq!(levels(), before, "Areas, Lazy, Mapped, Mappings");
        unsafe { sys::protect(at, bytes, Access::ReadWrite) }.unwrap();
        assert!(words.iter().all(|&word| unsafe { word.read() } == word as usize), "contents are gone");
        let moved = unsafe { vmap.relocate(&vmap.find(at).unwrap(), 2 * bytes) }.expect("one mapping again");
        assert!(words.iter().all(|&word| unsafe { word.byte_add(moved.wrapping_sub(at)).read() } == word as usize));
        for at in [moved, wall] {
            vmap.free(&vmap.find(at).unwrap());
        }
        vmap.purge(usize::MAX);
        vmap.verify();
    }
}

/// A moved area that is cut is two that are mapped afresh, each by itself.
#[test]
fn moved_areas_are_cut() {
    let world = World::new();
    let vmap = world.vmap();
    let at = vmap.alloc(4 << 20, PAGE).unwrap().address;
    let mappings = world.exact(Level::Mappings);
    unsafe { (at as *mut u8).write_bytes(7, 4 << 20) };
    let at = unsafe { vmap.relocate(&vmap.find(at).unwrap(), 16 << 20) }.expect("moved");
    assert!(vmap.resize(&vmap.find(at).unwrap(), 2 << 20));
    assert_eq!((vmap.find(at).unwrap().bytes, world.exact(Level::Mappings)), (2 << 20, mappings + 4));
    assert!((0..2 << 20).all(|byte| unsafe { (at as *const u8).add(byte).read() } == 7));
    assert_eq!(vmap.purge(usize::MAX), 14 << 20);
    vmap.verify();
    assert_eq!(world.exact(Level::Mappings), mappings + 2);
    // It moves again, and leaves nothing but free pages.
    let then = unsafe { vmap.relocate(&vmap.find(at).unwrap(), 5 << 20) }.expect("moved");
    assert_eq!((vmap.find(at), world.exact(Level::Mappings)), (None, mappings + 2));
    assert!((0..2 << 20).all(|byte| unsafe { (then as *const u8).add(byte).read() } == 7));
    vmap.free(&vmap.find(then).unwrap());
    vmap.purge(usize::MAX);
    vmap.verify();
    let levels = [Level::Mappings, Level::Areas, Level::Lazy].map(|level| world.exact(level));
    assert_eq!(levels, [mappings, 0, 0]);
}

/// A giant area that was cut and grows goes where others of its size are, and its window is spare.
#[test]
fn giants_become_small_again() {
    let world = World::new();
    let vmap = world.vmap();
    vmap.alloc(PAGE, PAGE).unwrap();
    let mapped = world.exact(Level::Mapped);
    let at = vmap.alloc(600 << 20, PAGE).unwrap().address;
    unsafe { (at as *mut u8).write_bytes(7, 8 << 20) };
    assert!(vmap.resize(&vmap.find(at).unwrap(), 8 << 20) && vmap.resize(&vmap.find(at).unwrap(), (4 << 20) - 5));
    assert_eq!((vmap.find(at).unwrap().bytes, world.exact(Level::Mapped)), (4 << 20, mapped + (4 << 20)));
    assert!(!vmap.resize(&vmap.find(at).unwrap(), 5 << 20), "nothing is behind it");
    let then = unsafe { vmap.relocate(&vmap.find(at).unwrap(), 5 << 20) }.expect("moved");
    assert_eq!(vmap.find(at), None);
    assert!((0..4 << 20).all(|byte| unsafe { (then as *const u8).add(byte).read() } == 7));
    assert!((4 << 20..5 << 20).all(|byte| unsafe { (then as *const u8).add(byte).read() } == 0));
    assert!(matches!(vmap.free(&vmap.find(then).unwrap()), Freed::Told | Freed::Quietly));
    vmap.purge(usize::MAX);
    vmap.verify();
    assert_eq!((world.exact(Level::Areas), world.exact(Level::Lazy)), (PAGE, 0));
}

/// What is clean of a giant area that is taken back counts as fresh memory.
#[test]
fn giants_that_are_taken_back_are_limited() {
    let world = World::new();
    let vmap = world.vmap();
    let bytes = 600 << 20;
    let area = vmap.find(vmap.alloc(bytes, PAGE).unwrap().address).unwrap();
    assert!(matches!(vmap.free(&area), Freed::Queued(_)));
    let gone = vmap.purge_pending(500 << 20);
    assert!(gone >= 400 << 20);
    world.cache.knobs.set(crate::knob::Id::HardLimit as usize, 300 << 20);
    assert!(vmap.alloc(bytes, PAGE).is_none(), "{} MiB in use", world.exact(Level::Areas) >> 20);
    world.cache.knobs.set(crate::knob::Id::HardLimit as usize, 601 << 20);
    let again = vmap.find(vmap.alloc(bytes, PAGE).expect("within the limit").address).unwrap();
    assert_eq!((again.pfn, world.exact(Level::Areas), world.exact(Level::Lazy)), (area.pfn, bytes, 0));
    assert!(vmap.reuse(usize::MAX - PAGE, PAGE).is_none());
    vmap.free(&again);
    vmap.purge(usize::MAX);
    vmap.verify();
}

/// Above a window's, too, and up to half of all addresses, where the system has room for that.
#[test]
fn alignments_up_to_half_of_all_addresses() {
    let world = World::new();
    let vmap = world.vmap();
    let mapped = world.exact(Level::Mapped);
    let mut live = Vec::new();
    for shift in 29..64 {
        for _ in 0..2 {
            let Some(fresh) = vmap.alloc(16 * PAGE, 1 << shift) else {
                assert!(shift > 40, "2^{shift}");
                continue;
            };
            assert!(fresh.address.is_multiple_of(1 << shift) && fresh.zero, "2^{shift}");
            unsafe { (fresh.address as *mut usize).write(shift) };
            live.push((fresh.address, shift));
        }
    }
    for (at, shift) in live {
        assert_eq!(unsafe { (at as *const usize).read() }, shift);
        let Freed::Queued(ticket) = vmap.free(&vmap.find(at).unwrap()) else { panic!("not queued") };
        vmap.purge_giant(ticket);
        assert_eq!(vmap.find(at), None);
    }
    assert_eq!(world.exact(Level::Mapped), mapped, "a giant area is not unmapped");
    vmap.verify();
}

/// Several threads take slices of the same giant areas, others take areas back, one stops all as a fork does.
#[test]
fn threads_share_giants_and_forks_find_nothing_in_flight() {
    let world = World::new();
    let world = &world;
    world.cache.knobs.set(crate::knob::Id::MaxGatherBatchCount as usize, 64);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stop = &stop;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let inside = world.gate.enter_patiently();
                    let bytes = world.vmap().purge_abroad(64 << 20);
                    drop(inside);
                    if bytes == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let forker = scope.spawn(move || {
            let mut forks = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                world.gate.fork_begin(|| assert_eq!(world.areas.flying(), 0, "in flight in a fork"));
                let queued = world.areas.backlog();
                std::thread::sleep(std::time::Duration::from_micros(200));
                assert_eq!((world.areas.flying(), world.areas.backlog()), (0, queued), "taken in a fork");
                world.gate.fork_end(false, || {});
                forks += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            forks
        });
        let workers: Vec<_> = (0..3_usize)
            .map(|thread| {
                scope.spawn(move || {
                    HERE.set(thread);
                    let mut giants =
                        Giants { world, live: Vec::new(), tickets: Vec::new(), stamp: thread << 40, alone: false };
                    for round in 0..600 {
                        let _inside = world.gate.enter_patiently();
                        giants.alloc(WINDOW_PAGES / 2 + 1 + round % 7 * 9000, round % 4 == 0, false);
                        if round % 3 > 0 {
                            giants.free(round);
                        }
                        while giants.live.len() > 3 {
                            giants.free(round);
                        }
                        if round % 5 == 0
                            && let Some(&ticket) = giants.tickets.last()
                        {
                            world.vmap().purge_giant(ticket);
                        }
                    }
                    let _inside = world.gate.enter_patiently();
                    while !giants.live.is_empty() {
                        giants.free(0);
                    }
                })
            })
            .collect();
        let done: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(forker.join().unwrap() > 0);
        assert!(done.iter().all(Result::is_ok));
    });
    world.vmap().purge(usize::MAX);
    assert_eq!((world.exact(Level::Lazy), world.exact(Level::Areas)), (0, 0));
    world.vmap().verify();
}

/// What is freed synchronously has gone, guard pages and moved areas as well, or is lazy where the system refuses.
#[test]
fn what_is_freed_now_has_gone() {
    let world = World::new();
    let vmap = world.vmap();
    for round in 0..60_usize {
        fault::storm(if round >= 30 { 2 } else { 0 }, round as u64);
        let fresh =
            if round % 3 == 0 { vmap.alloc_guarded(50 * PAGE, PAGE) } else { vmap.alloc((20 + round) * PAGE, PAGE) };
        if let Some(fresh) = fresh {
            let area = vmap.find(fresh.address).unwrap();
            Model::stamps(fresh.address, area.bytes / PAGE).for_each(|word| unsafe { word.write(1) });
            let lazy = world.exact(Level::Lazy);
            assert!(vmap.free_now(&area) && !vmap.free_now(&area));
            assert!(round >= 30 || world.exact(Level::Lazy) == lazy, "it is lazy");
        }
        fault::storm(0, 0);
        vmap.verify();
    }
    vmap.purge(usize::MAX);
    assert_eq!((world.exact(Level::Lazy), world.exact(Level::Areas)), (0, 0));
}
