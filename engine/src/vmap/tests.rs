//! The tree of free runs against a plain list; areas of many nodes against a model, in calm and in a storm of
//! refused system calls; threads that free, take and purge.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::areas::{CONTENDED, WINDOW};
use super::space::{GUARD, HOME_SHIFT};
use super::tree::Tree;
use super::{Area, Areas, DIFFERENTIAL, Freed, Vmap};
use crate::arch::PAGE;
use crate::arch::gate::Gate;
use crate::arch::seq;
use crate::arch::sys::fault::{Call, Seen, watched};
use crate::arch::sys::{self, Access, Advice, Errno, fault};
use crate::cache::{Cache, sets};
use crate::cpu::Simulation;
use crate::knob::Id;
use crate::page::windows::WINDOW_PAGES;
use crate::page::{Owner, Paging, Pfn, Windows};
use crate::stat::{Board, Event, Level, Mode, Timing};
use proptest::prelude::*;
use std::boxed::Box;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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
                let is_last = which % 5 == 2;
                let of = |(&at, &len): (&u32, &usize)| (at, len);
                let (got, expected) = if is_last {
                    (tree.take_last(windows, pages), free.iter().rev().find(|(_, len)| **len >= pages).map(of))
                } else {
                    let enough = |run: &(&u32, &usize)| *run.1 >= pages + align - 1;
                    // (Or else the lowest that happens to lie well.)
                    let fits = |run: &(&u32, &usize)| {
                        (run.0.next_multiple_of(align as u32) - run.0) as usize + pages <= *run.1
                    };
                    let expected = free.iter().find(enough).or_else(|| free.iter().find(fits)).map(of);
                    (tree.take(windows, pages, align), expected)
                };
                prop_assert_eq!(got.is_some(), expected.is_some());
                if let (Some(got), Some((at, len))) = (got, expected) {
                    let start = if is_last { at + (len - pages) as u32 } else { at.next_multiple_of(align as u32) };
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
pub(super) struct World {
    pub(super) areas: Areas,
    windows: Box<Windows>,
    pub(super) cache: Box<Cache>,
    pub(super) gate: Gate,
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
    pub(super) fn vmap(&self) -> Vmap<'_> {
        Vmap { areas: &self.areas, windows: &self.windows, cache: &self.cache, gate: &self.gate }
    }
    pub(super) fn exact(&self, level: Level) -> usize {
        self.cache.sets.level(level) as usize
    }
    /// One that stays, for what is watched.
    pub(super) fn leaked() -> &'static Self {
        Box::leak(Box::new(Self::new()))
    }
    /// One with so many free pages in a row, and its first page.
    pub(super) fn with_free(pages: usize) -> (&'static Self, Pfn) {
        let world = Self::leaked();
        world.cache.knobs.set(Id::HugeBytes as usize, 0);
        let area = world.area(pages);
        world.vmap().free(&area);
        world.vmap().purge(usize::MAX);
        (world, area.pfn)
    }
    pub(super) fn set(&self, knob: Id, value: usize) {
        self.cache.knobs.set(knob as usize, value as u64);
    }
    /// A new area of so many pages.
    pub(super) fn area(&self, pages: usize) -> Area {
        self.found(self.vmap().alloc(pages * PAGE, PAGE))
    }
    fn found(&self, fresh: Option<super::Fresh>) -> Area {
        self.vmap().find(fresh.expect("memory").address).expect("an area")
    }
    /// All that is counted (but peaks, and what is another's business).
    fn counts(&self) -> BTreeMap<&'static str, i64> {
        const OTHERS: [&str; 6] = ["taken_peak", "recent", "reserved", "meta", "slowpath_ticks", "large_free"];
        let sets = &self.cache.sets;
        let levels = Level::ALL.iter().map(|&level| (level.name(), sets.level(level)));
        let events = Event::ALL.iter().map(|&event| (event.name(), sets.event(event)));
        let purged = sets.board().spaces.iter().map(|space| space.purged.load(Relaxed)).sum();
        let own = [
            ("backlog", self.areas.backlog() as u64),
            ("landed", u64::from(self.areas.landed.load(Relaxed))),
            ("moved", u64::from(self.areas.moved.load(Relaxed))),
            ("purged", purged),
            ("slices", u64::from(self.areas.taken().0)),
            ("timed", sets.times(Timing::Purge).0.iter().sum()),
            ("untold", sets.board().differentials()),
        ];
        let all = levels.chain(events).chain(own).filter(|(name, _)| !OTHERS.contains(name));
        all.map(|(name, value)| (name, value as i64)).collect()
    }
    /// Runs `body`, which changes what is counted by just so much; all structures are checked.
    #[track_caller]
    pub(super) fn step<T>(&self, changes: &[(&'static str, i64)], body: impl FnOnce() -> T) -> T {
        let before = self.counts();
        let result = body();
        self.changed(&before, changes);
        result
    }
    /// (Not with each body: it is most of what is compiled for a step.)
    #[track_caller]
    fn changed(&self, before: &BTreeMap<&'static str, i64>, changes: &[(&'static str, i64)]) {
        let mut after = self.counts();
        after.iter_mut().for_each(|(name, value)| *value -= before[name]);
        after.retain(|_, change| *change != 0);
        assert_eq!(after, changes.iter().copied().collect::<BTreeMap<_, _>>());
        assert_eq!(self.areas.taken().1, self.areas.flying() > 0);
        self.vmap().verify();
    }
}

/// What a call is answered: as the kernel does.
pub(super) fn nothing(_: &Seen) -> Option<Result<usize, Errno>> {
    None
}
/// An answer in the kernel's place.
pub(super) const NO: Option<Result<usize, Errno>> = Some(Err(Errno::ENOMEM));
/// Bytes of so many pages.
pub(super) const fn p(pages: usize) -> i64 {
    (pages * PAGE) as i64
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
        self.stamp += 1;
        // Read and written at once: a page that is read first costs two faults.
        let had = Self::stamps(at, pages).map(|word| unsafe { AtomicUsize::from_ptr(word) }.swap(self.stamp, Relaxed));
        let had = had.fold(0, |all, word| all | word);
        if fresh.zero {
            let words = unsafe { core::slice::from_raw_parts(at as *const usize, pages * PAGE / 8) };
            let between = words.chunks_exact(PAGE / 8).flat_map(|page| &page[1..PAGE / 8 - 1]);
            assert!(had == 0 && between.fold(0, |all, word| all | word) == 0, "not zero");
        }
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
    world.set(Id::HugeBytes, 100 * PAGE);
    against_the_model(&world, 0, 60);
}

/// CPUs with spaces of their own: what one has freed another takes, in pieces that are its own from then on.
#[test]
fn areas_in_spaces_of_cpus_match_the_model() {
    for (storm, huge) in [(0, 1 << 30), (0, 100), (5, 1 << 30)] {
        let world = World::new();
        world.set(Id::HugeBytes, huge * PAGE);
        world.areas.split();
        against_the_model(&world, storm, 60);
    }
}

/// Often in a short time, and then for good; not what adds up in a long one.
#[test]
fn a_contended_space_becomes_several() {
    let areas = Areas::new();
    let each = (1 << WINDOW) / u64::from(CONTENDED);
    for event in 0..10 * u64::from(CONTENDED) {
        areas.was_locked(event * (each + each / 50));
        assert!(!areas.is_split(), "after {event}");
    }
    let begin = 100 << WINDOW;
    for event in 0..u64::from(CONTENDED) {
        assert!(!areas.is_split(), "after {event}");
        areas.was_locked(begin + event * (each - 1));
    }
    areas.was_locked(begin << 2);
    assert!(areas.is_split());
}

#[test]
fn a_space_lends_what_it_has_for_good() {
    let world = World::new();
    world.areas.split();
    let vmap = world.vmap();
    let of = |at: usize| vmap.find(at).unwrap().flags;
    let run = vmap.alloc(4 << 20, PAGE).unwrap().address;
    vmap.free(&vmap.find(run).unwrap());
    // A page and more of another's: a piece of 2 MiB comes along.
    HERE.set(3);
    let [one, two] = [10, 300].map(|pages| vmap.alloc(pages * PAGE, PAGE).unwrap());
    assert!([one, two].iter().all(|fresh| (run..run + (4 << 20)).contains(&fresh.address) && !fresh.zero));
    assert_eq!([one, two].map(|fresh| of(fresh.address) >> HOME_SHIFT), [3, 3]);
    // What is longer than all that is left is fresh; and whoever frees it, each goes where it is from.
    let long = vmap.alloc(3 << 20, PAGE).unwrap();
    assert!(long.zero && of(long.address) >> HOME_SHIFT == 3);
    HERE.set(0);
    assert_eq!(vmap.alloc(2 << 20, PAGE).unwrap().address, run);
    for at in [one, two, long].map(|fresh| fresh.address) {
        vmap.free(&vmap.find(at).unwrap());
    }
    HERE.set(7);
    assert!(!vmap.alloc(2 << 20, PAGE).unwrap().zero, "the spaces of two CPUs are one");
    vmap.verify();
    // What the system gives no more is another's, too.
    fault::storm(1, 1);
    HERE.set(1);
    let some = vmap.alloc(8 * PAGE, PAGE);
    fault::storm(0, 0);
    assert!(some.is_some());
    vmap.purge(usize::MAX);
    vmap.verify();
}

/// A window's pages in the hands of both spaces: a dirty run does not take the other's free pages for its own.
#[test]
fn a_neighbour_may_be_of_the_other_kind() {
    let world = World::new();
    world.set(Id::HugeBytes, 100 * PAGE);
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
    world.areas.split();
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

/// Threads on three nodes that take, stamp, check and free, beside one that purges and one that forks: a soak, of a
/// second, or a minute with `ALLOTMENT_TEST_LONG=1`.
#[test]
fn threads_and_purges_hand_nothing_out_twice() {
    threads_and_purges(false);
}

#[test]
fn threads_and_purges_in_spaces_of_cpus() {
    threads_and_purges(true);
}

/// Whether the long versions are asked for.
fn long() -> bool {
    std::env::var_os("ALLOTMENT_TEST_LONG").is_some_and(|value| value != "0")
}

fn threads_and_purges(split: bool) {
    let world = World::new();
    let world = &world;
    if split {
        world.areas.split();
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stop = &stop;
    let seconds = if long() { 60 } else { 1 };
    crate::tests::threads::scope(|scope| {
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

mod behind;
mod calls;
mod counts;
mod giants;
mod slices;
mod spaces;
