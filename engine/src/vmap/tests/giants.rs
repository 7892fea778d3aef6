//! Giant areas, areas that move, and what is freed at once.

use super::*;
use crate::knob::Id;
use crate::vmap::Ticket;

/// Giant areas: stamps at a few places only, so that they cost no memory.
struct Giants<'a> {
    world: &'a World,
    live: Vec<(usize, usize)>,
    tickets: Vec<Ticket>,
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
                // (What was cut short is copied.)
                if area.bytes < self.world.cache.knobs.size(Id::MoveBytes) {
                    return;
                }
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
        world.cache.knobs.set(Id::MaxGatherBatchCount as usize, batches);
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
    giants_against_the_model(0, if long() { 100 } else { 40 });
}

#[test]
fn giants_lose_nothing_in_a_storm() {
    for storm in [2, 5, 30] {
        giants_against_the_model(storm, if long() { 60 } else { 24 });
    }
}

/// The kernel may refuse to move what the program has made several mappings of: then it is copied, and as it was where it was nothing is.
#[test]
fn what_is_not_one_mapping_is_copied() {
    let world = World::new();
    let vmap = world.vmap();
    let levels = || [Level::Areas, Level::Lazy, Level::Mapped, Level::Mappings].map(|level| world.exact(level));
    for bytes in [4 << 20, 600 << 20] {
        let wall = vmap.alloc(PAGE, PAGE).unwrap().address;
        let mut before = None;
        // (The first time address space is opened.)
        for _ in 0..10 {
            let at = vmap.alloc(bytes, PAGE).unwrap().address;
            let words = [at, at + bytes / 2 - PAGE, at + bytes / 2, at + bytes - PAGE].map(|at| at as *mut usize);
            words.iter().for_each(|&word| unsafe { word.write(word as usize) });
            unsafe { sys::protect(at, bytes / 2, Access::ReadExecute) }.unwrap();
            let to = unsafe { vmap.relocate(&vmap.find(at).unwrap(), 2 * bytes) }.expect("copied");
            let word = |word: *mut usize| unsafe { word.byte_add(to.wrapping_sub(at)).read() };
            assert!(words.iter().all(|&at| word(at) == at as usize), "contents are gone");
            assert_eq!(vmap.find(at), None);
            vmap.free(&vmap.find(to).unwrap());
            vmap.purge(usize::MAX);
            vmap.verify();
            let now = levels();
            assert!(before.replace(now).is_none_or(|before| before == now), "Areas, Lazy, Mapped, Mappings");
        }
        vmap.free(&vmap.find(wall).unwrap());
        vmap.purge(usize::MAX);
    }
    assert_eq!(world.cache.sets.event(Event::AreaMove), 0);
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
    world.cache.knobs.set(Id::MaxGatherBatchCount as usize, 64);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stop = &stop;
    crate::tests::threads::scope(|scope| {
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
                    for round in 0..if long() { 600 } else { 200 } {
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
