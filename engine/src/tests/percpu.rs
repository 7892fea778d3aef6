//! Per-CPU memory: every hint against a linear scan, the space against naive models, in every mode.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)] // reads and writes copies, frees

mod bounds;
mod claim;
mod counts;
mod made;
mod memory;
mod pages;
mod paths;
mod report;
mod ways;

extern crate std;
use super::random::Random;
use super::units::{MODES, area, stand};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::seq::RseqArea;
use crate::cpu::Simulation;
use crate::cpu::sim::Cpu;
use crate::percpu::chunk::{Body, GRANULE, PAGES};
use crate::percpu::memory::Memory;
use crate::percpu::space::{EMPTY_LEAST, Error, How, LOW, RESERVED, Space};
use crate::percpu::units::UNIT;
use crate::stat::BadPointer;
use crate::stat::Mode;
use crate::tests::threads;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

/// What tests need of a space; leaked, as a static is.
pub fn space(mode: Mode, indices: usize) -> Option<&'static Space> {
    let area = if mode == Mode::Sequences { area()? } else { RseqArea::default() };
    let simulation = (mode == Mode::Simulated).then(|| {
        let cpus = || (0..indices).map(|_| Cpu::new()).collect::<Vec<_>>().leak() as &'static [Cpu];
        &*Box::leak(Box::new(Simulation { cpus: cpus(), indices: cpus(), here: super::units::here, nodes: 1 }))
    });
    let space: &'static Space = Box::leak(Box::new(Space::new()));
    // SAFETY: first of all, with this machine's own area; the space stays.
    unsafe {
        space.units.open(mode, area, indices, simulation);
        space.open();
    }
    Some(space)
}
/// One whose only index is 0.
pub fn fresh() -> &'static Space {
    stand(0, 0);
    space(Mode::Simulated, 4).unwrap()
}
fn alloc(space: &'static Space, size: usize, align: usize) -> usize {
    space.alloc(size, align, How::Normal).unwrap().address()
}
pub fn free(space: &'static Space, address: usize) {
    // SAFETY: tests free what they have.
    unsafe { space.free(address) }.unwrap();
}
fn copy(address: usize, index: usize) -> *mut u8 {
    (address + (index + 1) * UNIT) as *mut u8
}

#[test]
fn requests_that_cannot_be() {
    static CLOSED: Space = Space::new();
    assert_eq!(CLOSED.alloc(8, 8, How::Normal), Err(Error::Closed));
    let space = fresh();
    assert_eq!(space.alloc(0, 8, How::Normal), Err(Error::Size));
    assert_eq!(space.alloc(8, 0, How::Normal), Err(Error::Align));
    assert_eq!(space.alloc(8, 24, How::Normal), Err(Error::Align));
    assert_eq!(space.alloc(8, 2 * PAGE, How::Normal), Err(Error::Align));
    assert_eq!(space.alloc(UNIT + 1, 8, How::Normal), Err(Error::TooLarge));
    assert_eq!(space.alloc(usize::MAX, 1, How::Normal), Err(Error::TooLarge));
    let whole = alloc(space, UNIT, PAGE);
    assert_eq!(whole % UNIT, 0);
    for align in [1, 2, 4, 8, 64, 256, 1024, PAGE] {
        for size in [1, 3, 4, 5, 64, 100, 256, 257, 4096, 5000, 30_000] {
            assert_eq!(alloc(space, size, align) % align.max(GRANULE), 0);
        }
    }
}

#[test]
fn bad_frees_are_refused_and_change_nothing() {
    let space = fresh();
    let first = alloc(space, 100, 4);
    let second = alloc(space, 8, 4);
    let bad = |address: usize, wrong: BadPointer| {
        // SAFETY: refused.
        assert_eq!(unsafe { space.free(address) }, Err(wrong));
    };
    let local = 5_u8;
    for address in [0, 1, PAGE, &raw const local as usize, usize::MAX, first + UNIT, first - UNIT] {
        bad(address, BadPointer::Foreign);
    }
    bad(first + 4, BadPointer::Interior);
    bad(first + 96, BadPointer::Interior);
    bad(first + 1, BadPointer::Interior);
    bad(second + 8, BadPointer::Double);
    free(space, second);
    bad(second, BadPointer::Double);
    free(space, first);
    bad(first, BadPointer::Double);
    assert_eq!(space.stats().live, 0);
}

#[test]
fn the_reserved_region_is_for_who_asks() {
    let space = fresh();
    let mut taken = vec![];
    while let Ok(handle) = space.alloc(512, 8, How::Reserved) {
        taken.push(handle.address());
    }
    assert_eq!(taken.len(), RESERVED / 512);
    let first = taken[0] & !(UNIT - 1);
    for _ in 0..2 * UNIT / 1024 {
        let address = alloc(space, 1024, 4);
        assert!(address.wrapping_sub(first) >= RESERVED);
    }
    free(space, taken.pop().unwrap());
    assert!(space.alloc(512, 8, How::Reserved).is_ok());
    assert_eq!(space.alloc(512, 8, How::Reserved), Err(Error::Exhausted));
}

/// Memory is zero in every unit when it is handed out, whatever was there; with 64 and 448 indices.
#[test]
fn every_copy_is_zero_and_its_own() {
    for indices in [3, 64, 448] {
        let space = space(Mode::Simulated, indices).unwrap();
        let random = Random::new(indices as u64 + 7);
        let mut live: Vec<(usize, usize, u8)> = vec![];
        for number in 0..3000 {
            // CpuSet come one by one.
            let high = 1 + number * indices / 3000;
            if random.below(5) < 3 {
                let size = 1 + random.below(if number % 50 == 0 { 9000 } else { 200 });
                let address = alloc(space, size, 1 << random.below(4));
                let tag = number as u8 | 1;
                for index in (0..indices).step_by(1 + indices / 8) {
                    // SAFETY: the copy of this index, of which nobody else knows.
                    let bytes = unsafe { core::slice::from_raw_parts_mut(copy(address, index), size) };
                    assert!(bytes.iter().all(|byte| *byte == 0), "not zero in {index} at {number}");
                    if index < high {
                        stand(index, index as u32);
                        space.units.raise(index);
                        bytes.fill(tag ^ index as u8);
                    }
                }
                live.push((address, size, tag));
            } else if !live.is_empty() {
                let (address, size, tag) = live.swap_remove(random.below(live.len()));
                for index in (0..indices).step_by(1 + indices / 8) {
                    // SAFETY: as above.
                    let bytes = unsafe { core::slice::from_raw_parts(copy(address, index), size) };
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                    assert!(bytes[0] == 0 || bytes[0] == tag ^ index as u8, "another's content");
                }
                free(space, address);
            }
        }
        space.verify();
    }
}

/// Units of indices that were never used are never written: they stay without memory.
#[test]
fn units_that_nobody_used_stay_untouched() {
    let space = space(Mode::Fallback, 4).unwrap();
    space.units.raise(1);
    let handles: Vec<usize> = (0..200).map(|_| alloc(space, 900, 4)).collect();
    for index in 0..2 {
        // SAFETY: live copies.
        handles.iter().for_each(|&at| unsafe { copy(at, index).write_bytes(1, 900) });
    }
    handles.iter().step_by(2).for_each(|&at| free(space, at));
    (0..100).for_each(|_| assert_ne!(alloc(space, 900, 4), 0));
    let base = handles[0] & !(UNIT - 1);
    for (unit, used) in [(0, false), (1, true), (2, true), (3, false), (4, false)] {
        let mut pages = [0_u8; PAGES as usize];
        let at = (base + unit * UNIT) as *mut libc::c_void;
        // SAFETY: fills a byte a page.
        assert_eq!(unsafe { libc::mincore(at, UNIT, pages.as_mut_ptr()) }, 0);
        assert_eq!(pages.iter().any(|page| page & 1 == 1), used, "unit {unit}");
    }
}

/// The state that loses chunks in the kernel: free 92 % sparing each chunk's first page, and
/// allocate as many again.
#[test]
fn no_chunk_is_made_while_there_is_room() {
    for (size, align, count) in [(4, 4, 300_000), (16, 8, 200_000), (64, 8, 60_000), (1024, 8, 6_000), (36, 4, 60_000)]
    {
        let space = fresh();
        let random = Random::new(99);
        let mut handles: Vec<usize> = (0..count).map(|_| alloc(space, size, align)).collect();
        let chunks = space.chunk_count();
        let mut freed = 0;
        for handle in &mut handles {
            if *handle % UNIT >= PAGE && random.below(1000) < 934 {
                free(space, core::mem::take(handle));
                freed += 1;
            }
        }
        assert!(freed * 100 > count * 88, "{freed} of {count}");
        for handle in handles.iter_mut().filter(|handle| **handle == 0) {
            *handle = alloc(space, size, align);
        }
        assert!(space.chunk_count() <= chunks, "{size}: {chunks} became {}", space.chunk_count());
        space.verify();
    }
}

/// A chunk is made only if no listed or claimed one of this thread has a fit, for any size and alignment.
#[test]
fn a_chunk_is_made_only_if_nothing_fits() {
    let space = fresh();
    let random = Random::new(4711);
    let mut live: Vec<usize> = vec![];
    let mut made = 0;
    for number in 0..60_000 {
        // Grows and shrinks.
        if random.below(100) < if number / 6000 % 2 == 0 { 62 } else { 45 } {
            let size = 1 + random.below([16, 100, 700, 9000][random.below(4)]);
            let align = 1 << random.below(7);
            let before = space.chunk_count();
            let (n, mask) = (size.div_ceil(4) as u32, (align as u32).div_ceil(4) - 1);
            let fits = number % 16 == 0 && space.bodies(|body| body.fits(n, mask)).into_iter().any(|fits| fits);
            live.push(alloc(space, size, align));
            if space.chunk_count() != before {
                made += 1;
                assert!(
                    space.bodies(Body::keeps_nothing).into_iter().all(|nothing| nothing),
                    "made one although some is parked"
                );
            }
            assert!(!fits || space.chunk_count() == before, "made one although {size} at {align} fits");
        } else if !live.is_empty() {
            free(space, live.swap_remove(random.below(live.len())));
        }
    }
    assert!(made > 5);
    // And every time that one was made, nothing fitted: replay the last state to its edge.
    space.verify();
    let chunks = space.chunk_count();
    while {
        // (Frees what is parked.)
        space.balance();
        space.bodies(|body| body.fits(30, 1)).into_iter().any(|fits| fits)
    } {
        live.push(alloc(space, 120, 8));
        assert_eq!(space.chunk_count(), chunks);
    }
    live.push(alloc(space, 120, 8));
    assert_eq!(space.chunk_count(), chunks + 1);
}

#[test]
fn empty_chunks_go_back_but_one() {
    let space = fresh();
    let handles: Vec<usize> = (0..20 * UNIT / 512).map(|_| alloc(space, 512, 4)).collect();
    assert!(space.chunk_count() >= 20);
    handles.iter().for_each(|&at| free(space, at));
    // The first, the claimed one, and one to spare.
    assert!(space.chunk_count() <= 3, "{} chunks", space.chunk_count());
    // SAFETY: refused.
    assert_eq!(unsafe { space.free(handles[handles.len() / 2]) }, Err(BadPointer::Foreign));
    let again: Vec<usize> = (0..20 * UNIT / 512).map(|_| alloc(space, 512, 4)).collect();
    again.iter().for_each(|&at| free(space, at));
    space.verify();
}

#[test]
fn empty_pages_go_back() {
    let space = fresh();
    space.units.raise(0);
    let handles: Vec<usize> = (0..8 * UNIT / 1024).map(|_| alloc(space, 1024, 4)).collect();
    // SAFETY: live copies.
    handles.iter().for_each(|&at| unsafe { copy(at, 0).write_bytes(7, 1024) });
    // One object stays in each chunk.
    let kept: Vec<usize> = handles.iter().copied().filter(|at| at % UNIT == 8192).collect();
    handles.iter().filter(|at| *at % UNIT != 8192).for_each(|&at| free(space, at));
    // By itself, but for what may wait.
    let waiting = EMPTY_LEAST as usize + PAGES as usize / 4 * space.chunk_count() + PAGES as usize;
    assert!(space.stats().empty_pages <= waiting, "{} of at most {waiting}", space.stats().empty_pages);
    space.balance();
    let kept_empty = space.bodies(|body| if body.first { 0 } else { body.empty });
    assert!(kept_empty.iter().all(|empty| *empty < PAGES / 4), "{kept_empty:?}");
    space.verify();
    // And they are zero again.
    for _ in 0..handles.len() {
        let at = alloc(space, 1024, 4);
        // SAFETY: a live copy.
        assert!(unsafe { core::slice::from_raw_parts(copy(at, 0), 1024) }.iter().all(|byte| *byte == 0));
    }
    kept.into_iter().for_each(|at| free(space, at));
}

/// Pages of the reserved region are nobody's to take: they are not among the empty ones.
#[test]
fn reserved_pages_are_not_empty_ones() {
    let space = fresh();
    let taken: Vec<usize> =
        (0..RESERVED / 512).map(|_| space.alloc(512, 8, How::Reserved).unwrap().address()).collect();
    taken.into_iter().for_each(|at| free(space, at));
    assert_eq!(space.stats().empty_pages, 0);
    assert_eq!(space.alloc(64, 8, How::Populated), Err(Error::Exhausted));
    alloc(space, 64, 8);
    assert!(space.alloc(4096, 4096, How::Populated).is_ok(), "reserved pages passed for filled ones");
    space.verify();
}

#[test]
fn populated_memory_without_a_system_call() {
    for indices in [4, 64, 448] {
        stand(0, 0);
        let space = space(Mode::Simulated, indices).unwrap();
        // Nothing is populated yet.
        assert_eq!(space.alloc(64, 8, How::Populated), Err(Error::Exhausted));
        space.units.raise(indices - 1);
        let one = alloc(space, 64, 8);
        assert!(space.stats().empty_pages as isize >= LOW, "the next normal allocation keeps some ready");
        let mut taken = vec![one];
        while let Ok(handle) = space.alloc(4096, 4096, How::Populated) {
            taken.push(handle.address());
            // Filled in every unit in use: nobody's is not.
            for index in (0..indices).step_by(1 + indices / 20).chain([indices - 1]) {
                let mut filled = 0_u8;
                // SAFETY: fills a byte for the one page.
                unsafe {
                    assert_eq!(libc::mincore(copy(handle.address(), index).cast(), PAGE, &raw mut filled), 0);
                }
                assert_eq!(filled & 1, 1, "index {index} of {indices}");
            }
        }
        assert!(taken.len() > LOW as usize);
        taken.push(alloc(space, 4096, 4096));
        assert!(space.alloc(4096, 4096, How::Populated).is_ok(), "kept ready again");
        space.memory.refuse.store(Memory::REFUSE_MAP | Memory::REFUSE_POPULATE | Memory::REFUSE_DONT_NEED, Relaxed);
        taken.into_iter().for_each(|at| free(space, at));
        assert!(space.alloc(4096, 4096, How::Populated).is_ok());
        space.verify();
    }
}

/// Possible CPUs cost address space, and no time: with one index in use an allocation and a free take as long.
#[test]
fn cost_does_not_grow_with_possible_cpus() {
    stand(0, 0);
    let spaces = [4, 448].map(|indices| space(Mode::Simulated, indices).unwrap());
    let round = |space: &'static Space| {
        let began = std::time::Instant::now();
        let taken: Vec<usize> = (0..4000).map(|_| alloc(space, 64, 8)).collect();
        taken.into_iter().for_each(|at| free(space, at));
        began.elapsed()
    };
    // Fresh pages are not zeroed: not the usual case.
    let _ = spaces.map(round);
    // The least of many, in turns: noise only adds. (112 times as many units would be seen.)
    let mut least = [std::time::Duration::MAX; 2];
    for _ in 0..20 {
        for (space, least) in spaces.iter().zip(&mut least) {
            *least = round(space).min(*least);
        }
    }
    assert!(least[1] < 3 * least[0], "{least:?}");
}

/// What the system refuses is an error or costs memory, never contents.
#[test]
fn refusals() {
    let space = fresh();
    space.memory.refuse.store(Memory::REFUSE_MAP, Relaxed);
    assert_eq!(space.alloc(8, 8, How::Normal), Err(Error::Exhausted));
    assert_eq!(space.alloc(8, 8, How::Reserved), Err(Error::Exhausted));
    space.memory.refuse.store(0, Relaxed);
    let mut handles: Vec<usize> = (0..6 * UNIT / 4096).map(|_| alloc(space, 4096, 4)).collect();
    space.memory.refuse.store(Memory::REFUSE_MAP, Relaxed);
    let chunks = space.chunk_count();
    while let Ok(handle) = space.alloc(100, 4, How::Normal) {
        handles.push(handle.address());
    }
    assert_eq!(space.chunk_count(), chunks);
    // Exhausted, and yet what fits is found.
    free(space, handles.swap_remove(5));
    handles.push(alloc(space, 100, 4));
    space.units.raise(0);
    // SAFETY: live copies (of at least 100 bytes).
    handles.iter().for_each(|&at| unsafe { copy(at, 0).write_bytes(9, 100) });
    space.memory.refuse.store(Memory::REFUSE_MAP | Memory::REFUSE_DONT_NEED, Relaxed);
    let many = handles.split_off(8);
    many.into_iter().for_each(|at| free(space, at));
    space.balance();
    for _ in 0..100 {
        let at = alloc(space, 4000, 4);
        // SAFETY: a live copy.
        assert!(unsafe { core::slice::from_raw_parts(copy(at, 0), 4000) }.iter().all(|byte| *byte == 0));
    }
    space.verify();
}

/// Threads on their own indices, in every mode: contents stay, and each thread has its own chunk.
#[test]
fn threads_allocate_free_and_pass_on() {
    for mode in MODES {
        let indices = if mode == Mode::Simulated { 64 } else { 4096 };
        let Some(space) = space(mode, indices) else { continue };
        let passed: std::sync::Mutex<Vec<(usize, usize, u8)>> = std::sync::Mutex::new(vec![]);
        threads::scope(|scope| {
            for number in 0..4_usize {
                let passed = &passed;
                scope.spawn(move || {
                    let random = Random::new(number as u64 * 77 + 5);
                    let mut live: Vec<(usize, usize, u8)> = vec![];
                    for round in 0..40_000_usize {
                        let index = (number * 16 + round / 500) % 64;
                        stand(index, index as u32);
                        if random.below(20) < 11 {
                            let size = 1 + random.below(300);
                            let at = alloc(space, size, 4);
                            let tag = (round + number) as u8;
                            let index = number * 3 % indices;
                            space.units.raise(index);
                            // SAFETY: a live copy; others write to other indices' or objects.
                            unsafe {
                                let bytes = core::slice::from_raw_parts_mut(copy(at, index), size);
                                assert!(bytes.iter().all(|byte| *byte == 0));
                                bytes.fill(tag);
                            }
                            live.push((at, size | index << 32, tag));
                        } else if !live.is_empty() {
                            let mut one = live.swap_remove(random.below(live.len()));
                            if random.below(4) == 0 {
                                let mut passed = passed.lock().unwrap();
                                passed.push(one);
                                let other = random.below(passed.len());
                                one = passed.swap_remove(other);
                            }
                            let (at, size, tag) = one;
                            // SAFETY: a live copy.
                            let bytes =
                                unsafe { core::slice::from_raw_parts(copy(at, size >> 32), size & 0xffff_ffff) };
                            assert!(bytes.iter().all(|byte| *byte == tag), "somebody wrote here");
                            free(space, at);
                        }
                    }
                });
            }
        });
        space.verify();
    }
}

/// CpuSet in use cost at most a chunk each; an idle claim is taken over.
#[test]
fn claims_cost_a_chunk_each_at_most() {
    let space = space(Mode::Simulated, 64).unwrap();
    // (A test has more than one thread, so a claim is idle only when it was looked at twice.)
    for index in 0..64 {
        stand(index, index as u32);
        alloc(space, 64, 8);
    }
    assert!(space.chunk_count() <= 64);
    let before = space.chunk_count();
    stand(0, 0);
    for _ in 0..before * UNIT / 64 / 2 {
        alloc(space, 64, 8);
    }
    assert!(space.chunk_count() <= before + 1, "idle chunks were not used: {before} became {}", space.chunk_count());
    space.verify();
}

#[test]
fn the_forking_thread_goes_on_and_others_wait() {
    let space = fresh();
    let at = alloc(space, 64, 8);
    assert!(space.units.fork_begin(u32::MAX));
    let other = alloc(space, 64, 8);
    threads::scope(|scope| {
        let waits = scope.spawn(move || {
            stand(0, 0);
            free(space, at);
            alloc(space, 64, 8)
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waits.is_finished(), "another thread changed a chunk in a fork");
        space.units.fork_end(false, 0);
        free(space, waits.join().unwrap());
    });
    free(space, other);
    assert_eq!(space.stats().live, 0);
    space.verify();
}

/// Claims that have become idle and empty keep one chunk among them, not one each.
#[test]
fn idle_empty_claims_go_back() {
    let space = space(Mode::Simulated, 8).unwrap();
    let taken: Vec<usize> = (0..8)
        .map(|index| {
            stand(index, index as u32);
            alloc(space, UNIT - RESERVED, 4)
        })
        .collect();
    assert_eq!(space.chunk_count(), 8);
    taken.into_iter().for_each(|at| free(space, at));
    stand(0, 0);
    // The first chunk, what this index has, and the one that is kept; two looks find the others idle.
    let taken: Vec<usize> = (0..4).map(|_| alloc(space, UNIT, 4)).collect();
    taken.into_iter().for_each(|at| free(space, at));
    assert!(space.chunk_count() <= 3, "{} chunks without an allocation", space.chunk_count());
    space.verify();
}

/// In a process of its own, with address space for a few chunks of a GiB (4,097 units).
#[test]
fn exhaustion_is_an_error() {
    const CHILD: &str = "ALLOTMENT_TEST_EXHAUSTION";
    if std::env::var_os(CHILD).is_none() {
        let program = std::env::current_exe().unwrap();
        let name = "tests::percpu::exhaustion_is_an_error";
        let child = std::process::Command::new(program).args([name, "--exact"]).env(CHILD, "1").output().unwrap();
        assert!(child.status.success(), "{}", std::string::String::from_utf8_lossy(&child.stdout));
        return;
    }
    let limit = libc::rlimit { rlim_cur: 6 << 30, rlim_max: 6 << 30 };
    // SAFETY: of this process only.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let space = space(Mode::Fallback, 4096).unwrap();
    let mut handles = vec![];
    let refused = loop {
        match space.alloc(UNIT / 2, 4, How::Normal) {
            Ok(handle) => handles.push(handle.address()),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, Error::Exhausted);
    assert!((3..12).contains(&handles.len()), "{}", handles.len());
    free(space, handles.pop().unwrap());
    alloc(space, UNIT / 2, 4);
    space.verify();
}

/// The long-running driver: a space beside a map. `ALLOTMENT_FUZZ_SEED` and `_STEPS` repeat and prolong it.
#[test]
fn driver_against_a_map() {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let seed = number("ALLOTMENT_FUZZ_SEED", 20_260_911);
    let steps = number("ALLOTMENT_FUZZ_STEPS", 150_000);
    std::println!("ALLOTMENT_FUZZ_SEED={seed} ALLOTMENT_FUZZ_STEPS={steps}");
    let random = Random::new(seed);
    let space = space(Mode::Simulated, 64).unwrap();
    // Address to size and tag; index 0 holds the tag.
    let mut live: BTreeMap<usize, (usize, u8)> = BTreeMap::new();
    let mut order: Vec<usize> = vec![];
    for step in 0..steps {
        stand(random.below(1 + (step as usize / 1000) % 64), 0);
        let phase = step / 10_000 % 4;
        match random.below(100) {
            0..55 if phase != 3 => {
                let size = 1 + random.below([8, 64, 300, 2000, 40_000][random.below(5).min(random.below(5))]);
                let align = 1 << random.below(13).min(random.below(13));
                let how = [How::Normal, How::Normal, How::Normal, How::Populated, How::Reserved][random.below(5)];
                let Ok(handle) = space.alloc(size, align, how) else {
                    assert_ne!(how, How::Normal);
                    continue;
                };
                let at = handle.address();
                assert_eq!(at % align, 0);
                let end = at + size.next_multiple_of(GRANULE);
                assert!(live.range(..end).next_back().is_none_or(|(start, (size, _))| start + size <= at), "overlap");
                space.units.raise(0);
                // SAFETY: a live copy.
                let bytes = unsafe { core::slice::from_raw_parts_mut(copy(at, 0), size) };
                assert!(bytes.iter().all(|byte| *byte == 0), "not zero at step {step}");
                bytes.fill(step as u8 | 1);
                live.insert(at, (size, step as u8 | 1));
                order.push(at);
            }
            0..=98 if !order.is_empty() => {
                // At random, the last, or the first.
                let which = [random.below(order.len()), order.len() - 1, 0][random.below(3)];
                let at = if which == 0 { order.remove(0) } else { order.swap_remove(which) };
                let (size, tag) = live.remove(&at).unwrap();
                // SAFETY: a live copy.
                let bytes = unsafe { core::slice::from_raw_parts(copy(at, 0), size) };
                assert!(bytes.iter().all(|byte| *byte == tag), "content lost at step {step}");
                free(space, at);
                // SAFETY: refused (or, if its chunk went back, foreign).
                assert!(unsafe { space.free(at) }.is_err());
            }
            99 if step % 50 == 0 => drop(space.balance()),
            _ => {}
        }
        if step % 20_000 == 0 {
            space.verify();
        }
    }
    order.into_iter().for_each(|at| free(space, at));
    space.verify();
    assert_eq!(space.stats().live, 0);
}

#[test]
fn statistics_add_up() {
    let space = fresh();
    let handles: Vec<usize> = (1..=100).map(|size| alloc(space, size, 4)).collect();
    handles.iter().step_by(3).for_each(|&at| free(space, at));
    let stats = space.stats();
    assert_eq!((stats.allocs, stats.frees, stats.live), (100, 34, 66));
    assert_eq!((stats.smallest, stats.largest), (1, 100));
    // What is parked is free.
    let live = (0..100).filter(|at| at % 3 != 0).map(|at| (at + 1_usize).next_multiple_of(GRANULE));
    assert_eq!(stats.bytes, live.sum());
    assert!(stats.live_most >= 66 && stats.live_most <= 100);
    assert_eq!((stats.chunks, stats.chunks_most), (1, 1));
    let mut text = std::string::String::new();
    space.report(&mut text).unwrap();
    for field in
        ["unit_size", "nr_alloc", "nr_cur_alloc", "min_alloc_size", "empty_pop_pages", "sum_frag", "cur_med_alloc"]
    {
        assert!(text.contains(field), "{field} is missing in\n{text}");
    }
}
