//! Areas that a CPU's set caches: which come in, who gets them, and how they go.

use super::*;
use crate::cache::front as lengths;
use crate::cache::layout::OBJECTS;
use crate::knob::FRONT_BYTES;
use crate::page::BIASED;
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};

const BYTES: usize = lengths::UNMARKED * PAGE;
/// The same of those that say whether they are in a front.
const MARKED: usize = BYTES + 4 * PAGE;

/// A heap in each mode that this machine has, whose thread stays on one CPU (in sequences, as good as).
pub(super) fn each(test: impl Fn(&Heap<Test>)) {
    for mode in [Mode::Fallback, Mode::Sequences] {
        let heap: &Heap<Test> =
            std::boxed::Box::leak(unsafe { std::boxed::Box::<Heap<Test>>::new_zeroed().assume_init() });
        if open(heap, mode) {
            test(heap);
            assert_empty(heap);
        }
    }
}

/// Tries `test` until no migration comes between; ten in a row do not happen.
pub(super) fn soon(test: impl Fn() -> bool) {
    assert!((0..10).any(|_| test()));
}

fn take(heap: &Heap<Test>, bytes: usize) -> usize {
    let area = heap.malloc(bytes) as usize;
    let (usable, least) = (heap.usable(area as *const u8).unwrap(), heap.front_size(bytes).next_multiple_of(PAGE));
    // (Or one of the next class.)
    assert!(usable == least || usable > least && usable == heap.front_size(least + 1), "{bytes}: {usable}");
    area
}
pub(super) fn give(heap: &Heap<Test>, area: usize) {
    unsafe { heap.free(area as *mut u8) };
}
/// Areas that sets cache.
fn cached(heap: &Heap<Test>) -> usize {
    let (mut count, mut shown, mut marked) = (0, 0, 0);
    for index in heap.cache.sets.used() {
        for class in FIRST_FRONT..CLASSES_MAX {
            heap.cache.sets.peek(index, class, |_| {
                count += 1;
                marked += usize::from(lengths::is_marked(class));
            });
        }
    }
    heap.vmap().each(|area| shown += usize::from(area.cached));
    assert_eq!(shown, marked);
    count
}

#[test]
fn an_area_comes_back_for_what_its_class_serves() {
    each(|heap| {
        soon(|| {
            let area = take(heap, BYTES);
            give(heap, area);
            let longer = take(heap, BYTES + PAGE);
            let (same, aligned) = (take(heap, BYTES), heap.aligned(BYTES, 1 << 21) as usize);
            [longer, same, aligned].into_iter().for_each(|area| give(heap, area));
            assert!(longer != area || same != area);
            same == area
        });
        // Up to an eighth less is served, too, by the whole of it.
        soon(|| {
            let area = take(heap, 2 * BYTES);
            give(heap, area);
            let less = take(heap, 2 * BYTES - PAGE);
            assert_eq!(heap.usable(less as *const u8), Some(2 * BYTES));
            give(heap, less);
            less == area
        });
        // Where that class has none, a fast path takes one of the next, which comes into its own again.
        soon(|| {
            heap.trim();
            let areas = [(); 2].map(|()| take(heap, BYTES + 2 * PAGE));
            areas.iter().for_each(|&area| give(heap, area));
            let less = take(heap, BYTES);
            let is_longer = areas.contains(&less) && heap.usable(less as *const u8) == Some(BYTES + 2 * PAGE);
            give(heap, less);
            let same = take(heap, BYTES + 2 * PAGE);
            give(heap, same);
            is_longer && same == less || !heap.is_quick()
        });
        // Zeroed on the way.
        soon(|| {
            let area = take(heap, BYTES);
            unsafe { (area as *mut u8).write_bytes(0xa5, BYTES) };
            give(heap, area);
            let zeroed = heap.calloc(BYTES);
            let bytes = unsafe { core::slice::from_raw_parts(zeroed, BYTES) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            give(heap, zeroed as usize);
            zeroed as usize == area
        });
    });
}

/// Of areas above 1 MiB a set has one of any length, which serves what is shorter by a ninth at most.
#[test]
fn one_long_area_comes_back_for_about_its_length() {
    const LONG: usize = 4 << 20;
    each(|heap| {
        soon(|| {
            let (one, other) = (take(heap, LONG), take(heap, LONG + 5 * PAGE));
            [one, other].into_iter().for_each(|area| give(heap, area));
            // (The latest; what was there before went among the dirty runs.)
            let is_one = cached(heap) == 1;
            let same = heap.malloc(LONG - 90 * PAGE) as usize;
            let bytes = heap.usable(same as *const u8).unwrap();
            give(heap, same);
            let half = take(heap, LONG / 2);
            give(heap, half);
            heap.trim();
            is_one && (same, bytes) == (other, LONG + 5 * PAGE)
        });
        // What does not fit gives way: neither is memory touched for another length that it may serve.
        soon(|| {
            let long = take(heap, LONG);
            give(heap, long);
            let part = take(heap, LONG / 2);
            let rest = take(heap, LONG / 2);
            [part, rest].into_iter().for_each(|area| give(heap, area));
            heap.trim();
            [part, rest].iter().all(|area| (long..long + LONG).contains(area))
        });
        // Zeros of which perhaps little is touched are fresh, while little is idle.
        soon(|| {
            let long = take(heap, LONG);
            unsafe { (long as *mut u8).write_bytes(0xa5, LONG) };
            give(heap, long);
            let zeroed = heap.calloc(LONG) as usize;
            assert!((0..LONG).step_by(PAGE).all(|at| unsafe { *((zeroed + at) as *const u8) } == 0));
            let is_fresh = zeroed != long;
            give(heap, zeroed);
            heap.trim();
            is_fresh
        });
    });
}

#[test]
fn each_operation_counts_once() {
    each(|heap| {
        let events = || {
            let of = |event| heap.cache.sets.event(event);
            (of(Event::AreaAlloc) + of(Event::AreaReuse), of(Event::AreaFree))
        };
        let before = events();
        for round in 0..1000 {
            let bytes = BYTES + round % 3 * PAGE;
            give(heap, take(heap, bytes));
        }
        let after = events();
        // (An interruption may count one twice; a thousand pairs see few.)
        assert!((1000..1050).contains(&(after.0 - before.0)), "{before:?} {after:?}");
        assert!((1000..1050).contains(&(after.1 - before.1)), "{before:?} {after:?}");
    });
}

/// Allocates and frees so many areas of each length in turn.
fn pass(heap: &Heap<Test>, bytes: &[usize], count: usize) {
    let areas: Vec<usize> = (0..count).map(|at| take(heap, bytes[at % bytes.len()])).collect();
    areas.iter().for_each(|&area| give(heap, area));
}

#[test]
fn few_of_several_lengths_are_cached_and_a_drain_takes_them() {
    each(|heap| {
        pass(heap, &[BYTES, BYTES + PAGE, BYTES + 2 * PAGE, BYTES + 3 * PAGE, BYTES + 4 * PAGE], 40);
        // (16, of each of two CPUs if the thread was moved.)
        assert!((1..=2 * 16).contains(&cached(heap)), "{}", cached(heap));
        let left = heap.cache.sets.level(Level::Areas);
        let _inside = heap.enter();
        let report = heap.mm().drain(DrainTarget::All, DrainMode::Auto);
        assert!(report.unreached > 0 || cached(heap) == 0 && report.bytes >= left, "{report:?}");
        assert!(report.unreached > 0 || heap.cache.sets.level(Level::Areas) == 0);
    });
}

/// Two neighbours that are cached serve a request as long as both, before memory is touched for it.
#[test]
fn what_is_cached_gives_way_to_another_length_before_memory_is_touched() {
    each(|heap| {
        soon(|| {
            let areas = [(); 2].map(|()| take(heap, 512 << 10));
            areas.iter().for_each(|&area| give(heap, area));
            let were_cached = cached(heap) >= 2;
            let both = take(heap, 1 << 20);
            let is_left = cached(heap) > 0;
            give(heap, both);
            heap.trim();
            were_cached && !is_left && areas.contains(&both)
        });
    });
}

/// Where nobody asks for a length it is only freed: there it serves others.
#[test]
fn areas_that_nobody_asked_for_here_are_not_cached() {
    for size in [BYTES, MARKED] {
        each(|heap| {
            let made = || {
                let inside = heap.enter().unwrap();
                let area = heap.alloc_area(size, PAGE, false).unwrap().address;
                drop(inside);
                area
            };
            (0..4).for_each(|_| give(heap, made()));
            assert_eq!(cached(heap), 0);
            soon(|| {
                let area = take(heap, size);
                give(heap, area);
                let is_cached = cached(heap) == 1;
                heap.trim();
                is_cached
            });
        });
    }
}

/// An area of a page more than those that carry no mark is in no front: it would carry none either.
#[test]
fn what_is_between_marked_and_unmarked_stays_out() {
    each(|heap| {
        // (Its class is wanted.)
        let wanted = take(heap, BYTES);
        let area = unsafe { heap.realloc(heap.malloc(3 * BYTES), BYTES + PAGE) } as usize;
        let was = cached(heap);
        assert_eq!(heap.usable(area as *const u8), Some(BYTES + PAGE));
        give(heap, area);
        assert_eq!(cached(heap), was);
        give(heap, wanted);
    });
}

/// What was freed before a fork, or beside it, and is freed again beside it is told then: later it may be somebody's.
#[test]
fn what_is_freed_twice_beside_a_fork_is_told_at_once() {
    each(|heap| {
        let areas = [BYTES, MARKED, 1 << 20, 4 << 20].map(|bytes| [(); 2].map(|()| take(heap, bytes)));
        // (The unmarked of a front look as if they were in use.)
        areas[1..].iter().for_each(|area| give(heap, area[0]));
        let told = BAD.lock().unwrap().len();
        assert!(heap.fork_begin(u32::MAX));
        let again = areas[1..].iter().map(|area| area[0]);
        again.clone().for_each(|area| give(heap, area));
        let beside = areas.iter().map(|area| area[1]);
        beside.clone().for_each(|area| give(heap, area));
        beside.clone().for_each(|area| give(heap, area));
        let all: Vec<_> = again.chain(beside).map(|area| (area, BadPointer::Double)).collect();
        let is_ours = |bad: &&(usize, BadPointer)| all.iter().any(|one| one.0 == bad.0);
        assert_eq!(BAD.lock().unwrap()[told..].iter().filter(is_ours).copied().collect::<Vec<_>>(), all);
        heap.fork_end(false);
        heap.pay();
        give(heap, areas[0][0]);
        assert_eq!(BAD.lock().unwrap()[told..].iter().filter(is_ours).count(), all.len());
        heap.trim();
    });
}

/// What came in twice (two threads freed it at the same moment) is handed out once, and the other time told to be freed twice.
#[test]
fn what_came_in_twice_comes_out_once() {
    each(|heap| {
        soon(|| {
            let area = take(heap, MARKED);
            give(heap, area);
            let same = take(heap, MARKED);
            give(heap, same);
            let class = lengths::holds(MARKED / PAGE);
            if !heap.pages.windows.is_held(area) || !unsafe { heap.cache.sets.push(class, area) }.is_done() {
                return false;
            }
            let told = BAD.lock().unwrap().len();
            let out = [(); 3].map(|()| take(heap, MARKED));
            assert!(out[0] != out[1] && out[1] != out[2] && out[0] != out[2], "{out:x?}");
            // (Where a thread was moved in between it is told when that set is drained.)
            let is_told = BAD.lock().unwrap()[told..].contains(&(area, BadPointer::Double));
            let told = BAD.lock().unwrap().len();
            out.into_iter().for_each(|area| give(heap, area));
            assert!(BAD.lock().unwrap()[told..].iter().all(|bad| !is_told || bad.0 != area), "it was in use once");
            heap.trim();
            is_told
        });
    });
}

/// What is freed once and not wanted again makes no more room than two.
#[test]
fn areas_that_are_freed_for_good_are_not_cached() {
    each(|heap| {
        pass(heap, &[BYTES], 200);
        assert!(cached(heap) <= 2 * 8, "{}", cached(heap));
    });
}

/// One length alone has its CPU's 16 MiB; what goes where there is no room for more is the older half.
#[test]
fn areas_of_one_length_are_cached_up_to_a_bound() {
    each(|heap| {
        for bytes in [BYTES, BYTES + PAGE, 1 << 20, 36 << 10] {
            let most = ((16 << 20) / heap.front_size(bytes)).min(OBJECTS);
            let count = most.min(126);
            soon(|| {
                // Twice as much each time that they were too few.
                (0..8).for_each(|_| pass(heap, &[bytes], count));
                let areas: Vec<usize> = (0..count).map(|_| take(heap, bytes)).collect();
                areas.iter().for_each(|&area| give(heap, area));
                // (Of two CPUs, if the thread was moved, as many each; below, too.)
                assert!(cached(heap) <= 2 * count, "{} of {count}", cached(heap));
                let again: Vec<usize> = (0..count).map(|_| take(heap, bytes)).collect();
                again.iter().for_each(|&area| give(heap, area));
                let all = again.iter().rev().eq(&areas);
                // (Of what they are cached by now, twice as many.)
                pass(heap, &[bytes], 2 * most);
                assert!(cached(heap) <= 2 * (most + 8), "{} of {most}", cached(heap));
                heap.trim();
                all
            });
        }
    });
}

/// One that comes when others have it all takes of theirs, though nobody asks for them any more.
#[test]
fn a_class_takes_room_from_one_that_idles() {
    each(|heap| {
        soon(|| {
            // (From the longest on, so that none needs memory that no area used yet.)
            for pages in (18..=96).rev().step_by(6) {
                (0..10).for_each(|_| pass(heap, &[pages * PAGE], 4096 / pages));
            }
            (0..200).for_each(|_| pass(heap, &[5 * PAGE], 16));
            let areas: Vec<usize> = (0..16).map(|_| take(heap, 5 * PAGE)).collect();
            areas.iter().for_each(|&area| give(heap, area));
            let again: Vec<usize> = (0..16).map(|_| take(heap, 5 * PAGE)).collect();
            again.iter().for_each(|&area| give(heap, area));
            let all = again.iter().rev().eq(&areas);
            heap.trim();
            all
        });
    });
}

/// All classes have 20 MiB together.
#[test]
fn classes_share_the_bound() {
    each(|heap| {
        (16..80).flat_map(|pages| [pages; 8]).for_each(|pages| pass(heap, &[pages * PAGE], 300));
        let held = heap.cache.sets.level(Level::Areas);
        // (Of at most two CPUs if the thread was moved.)
        assert!(held <= 2 * (20 << 20), "{held}");
    });
}

#[test]
fn what_a_purge_or_a_limit_treats_by_itself_stays_out() {
    each(|heap| {
        let knobs = &heap.cache.knobs;
        let stays_out = |bytes| {
            let area = take(heap, bytes);
            give(heap, area);
            cached(heap) == 0
        };
        assert!(stays_out(FRONT_BYTES + PAGE));
        let known = take(heap, MARKED);
        give(heap, known);
        let known = take(heap, MARKED);
        knobs.set(Id::SyncFree as usize, 1);
        assert!(stays_out(BYTES));
        // Nor does one whose class is known.
        give(heap, known);
        assert_eq!(cached(heap), 0);
        knobs.set(Id::SyncFree as usize, 0);
        knobs.set(Id::SoftLimit as usize, 1 << 20);
        let full = take(heap, 2 << 20);
        assert!(heap.cache.is_tight() && stays_out(BYTES));
        give(heap, full);
        knobs.set(Id::SoftLimit as usize, 0);
        heap.trim();
        knobs.set(Id::HugeBytes as usize, BYTES as u64);
        assert!(stays_out(BYTES));
        knobs.set(Id::HugeBytes as usize, 0);
        // (What is interrupted may stay out.)
        soon(|| !stays_out(BYTES));
    });
}

/// A fast path knows an area from when it first came in, and none that went, changed its length or was sampled.
#[test]
fn an_area_is_known_while_it_is_what_it_was() {
    for size in [BYTES, MARKED] {
        each(|heap| is_known_while_it_is_what_it_was(heap, size));
    }
}

fn is_known_while_it_is_what_it_was(heap: &Heap<Test>, size: usize) {
    let windows = &heap.pages.windows;
    let is_known = |area: usize| match windows.class(area) {
        Some(0) => false,
        Some(class) => {
            let is_fast = size == BYTES && heap.cache.sets.mode() == Mode::Sequences;
            let holds = lengths::holds(heap.usable(area as *const u8).unwrap() / PAGE) as u8;
            class == holds | if is_fast { 0 } else { BIASED }
        }
        None => false,
    };
    // An area that came in, and is in use again.
    let known = || {
        let found = (0..10).find_map(|_| {
            let area = take(heap, size);
            give(heap, area);
            let same = take(heap, size);
            let is_one = same == area && (is_known(area) || !heap.is_quick());
            if !is_one {
                give(heap, same);
            }
            is_one.then_some(area)
        });
        heap.vmap().verify();
        found.expect("no migration comes between ten times in a row")
    };
    let is_gone = |area| assert_eq!(windows.class(area), Some(0));
    for bytes in [size / 2 + PAGE, size + PAGE, 2 * size] {
        let area = known();
        let other = unsafe { heap.realloc(area as *mut u8, bytes) } as usize;
        assert!(!is_known(other) && heap.usable(other as *const u8).unwrap() >= bytes);
        heap.vmap().verify();
        give(heap, other);
        heap.vmap().verify();
        let same = take(heap, bytes.next_multiple_of(16 * PAGE));
        give(heap, same);
    }
    let area = known();
    heap.cache.knobs.set(Id::MoveBytes as usize, size as u64);
    let moved = unsafe { heap.vmap().relocate(&heap.vmap().find(area).unwrap(), 2 * size) }.expect("it moves");
    is_gone(area);
    give(heap, moved);
    let area = known();
    heap.vmap().free(&heap.vmap().find(area).unwrap());
    is_gone(area);
    let area = known();
    give(heap, area);
    heap.trim();
    is_gone(area);
    let area = known();
    heap.sample(area, size);
    is_gone(area);
    heap.forget(area);
    give(heap, area);
    heap.vmap().verify();
}

/// The first byte alone is an area's, whatever its class byte says.
#[test]
fn a_pointer_into_a_known_area_is_reported() {
    each(|heap| {
        let area = take(heap, MARKED);
        give(heap, area);
        let area = take(heap, MARKED);
        for inside in [16, PAGE, MARKED - 16] {
            let told = BAD.lock().unwrap().len();
            give(heap, area + inside);
            assert!(BAD.lock().unwrap()[told..].iter().any(|bad| bad.0 == area + inside), "{inside}");
        }
        assert_eq!(heap.usable(area as *const u8), Some(MARKED));
        give(heap, area);
    });
}

/// Of two frees of one area the second is reported, wherever the area is; and it is handed out once.
#[test]
fn a_double_free_is_reported() {
    each(|heap| {
        for other in [0, 1, 2, 5] {
            let area = take(heap, MARKED);
            let others: Vec<usize> = (0..other).map(|_| take(heap, MARKED)).collect();
            give(heap, area);
            others.iter().for_each(|&area| give(heap, area));
            let told = BAD.lock().unwrap().len();
            give(heap, area);
            assert!(BAD.lock().unwrap()[told..].iter().any(|bad| bad.0 == area));
            let told = BAD.lock().unwrap().len();
            assert!(unsafe { heap.realloc(area as *mut u8, 2 * MARKED) }.is_null());
            assert!(
                BAD.lock().unwrap()[told..].contains(&(area, BadPointer::Interior)),
                "an address of ours is not foreign"
            );
            // (Among dirty pages nobody knows where an area began.)
            let wrong = unsafe { heap.area_free(area) };
            assert!(wrong == Err(BadPointer::Double) || other >= 2 && wrong == Err(BadPointer::Interior), "{wrong:?}");
            let both = [take(heap, MARKED), take(heap, MARKED)];
            assert!(both[0] != both[1]);
            both.into_iter().for_each(|area| give(heap, area));
        }
    });
}

/// Of two frees of an area that says nothing the second is found when it goes on, and at once by whoever frees it as an area.
#[test]
fn a_double_free_is_found_when_it_goes_on() {
    each(|heap| {
        soon(|| {
            let area = take(heap, BYTES);
            give(heap, area);
            if !heap.front_has(area) {
                return false;
            }
            let told = BAD.lock().unwrap().len();
            let at_once = unsafe { heap.area_free(area) } == Err(BadPointer::Double);
            if at_once {
                give(heap, area);
            }
            heap.trim();
            assert!(BAD.lock().unwrap()[told..].contains(&(area, BadPointer::Double)));
            at_once
        });
        // And where it begins is looked at then, too.
        let area = take(heap, BYTES);
        let told = BAD.lock().unwrap().len();
        give(heap, area + 16);
        heap.trim();
        assert!(BAD.lock().unwrap()[told..].contains(&(area + 16, BadPointer::Interior)));
        give(heap, area);
    });
}
