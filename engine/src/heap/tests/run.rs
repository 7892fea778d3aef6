//! The run: what is cut of it, what comes back to it, and when it is cut at all.

use super::front::{each, give, soon};
use super::model::{check, fill};
use super::*;
use crate::cache::front::{LONG, LONGEST, length};
use crate::page::Kind;
use std::collections::BTreeMap;

const MIB: usize = 1 << 20;

/// Where this CPU's run begins, and its pages.
fn run(heap: &Heap<Test>) -> Option<(usize, usize)> {
    let mut found = None;
    if let Some(set) = heap.cache.sets.present() {
        heap.cache.sets.peek_into(set, LONG, |run| found = Some(run));
    }
    let (_, desc) = heap.pages.windows.look(found?)?;
    assert_eq!(desc.kind(), Kind::Front);
    Some((found?, desc.len()))
}

/// Pairs of one length after another, till the run is cut and lends; it has as many pages as may be.
fn lends(heap: &Heap<Test>) {
    for _ in 0..100 {
        [8 * MIB, 2 * MIB, 4 * MIB].into_iter().for_each(|bytes| give(heap, heap.malloc(bytes) as usize));
    }
    // (What it was cut of may have gone meanwhile.)
    give(heap, heap.malloc(8 * MIB) as usize);
}

#[test]
fn areas_are_cut_and_come_back() {
    each(|heap| {
        soon(|| {
            lends(heap);
            let Some((whole, LONGEST)) = run(heap) else { return false };
            let mut is_cut = true;
            for bytes in [3 * MIB, MIB + PAGE, 2 * MIB] {
                let area = heap.malloc(bytes) as usize;
                is_cut &= area == whole && heap.usable(area as *const u8) == Some(bytes);
                is_cut &= run(heap) == Some((whole + bytes, LONGEST - bytes / PAGE));
                give(heap, area);
                is_cut &= run(heap) == Some((whole, LONGEST));
            }
            // Two at a time are not cut, nor is one then for a while.
            let two = [(); 2].map(|()| heap.malloc(3 * MIB) as usize);
            is_cut &= run(heap).is_none();
            two.into_iter().for_each(|area| give(heap, area));
            heap.vmap().verify();
            heap.trim();
            assert!(run(heap).is_none());
            is_cut || !heap.is_quick()
        });
    });
}

#[test]
fn aligned_areas_are_cut_where_they_fit() {
    each(|heap| {
        soon(|| {
            lends(heap);
            let Some((whole, LONGEST)) = run(heap) else { return false };
            let aligned = heap.aligned(100 * PAGE, 4 * MIB) as usize;
            assert!(aligned.is_multiple_of(4 * MIB));
            let length = heap.usable(aligned as *const u8);
            let is_cut = (whole..whole + 8 * MIB).contains(&aligned) && length == Some(heap.front_size(100 * PAGE));
            // The longer piece is the run.
            let rest = run(heap);
            let is_longer = rest.is_some_and(|(_, pages)| pages >= LONGEST / 2 - 100);
            give(heap, aligned);
            heap.vmap().verify();
            heap.trim();
            is_cut && is_longer || !heap.is_quick()
        });
    });
}

/// A class that has none is lent of the run; one that asks again and again has its own from then on.
#[test]
fn other_classes_are_lent() {
    each(|heap| {
        soon(|| {
            lends(heap);
            let Some((whole, LONGEST)) = run(heap) else { return false };
            let bytes = 100 * PAGE;
            let pairs: Vec<usize> = (0..8)
                .map(|_| {
                    let area = heap.malloc(bytes) as usize;
                    give(heap, area);
                    area
                })
                .collect();
            let is_lent = pairs.iter().all(|&area| area == whole);
            let has_its_own = run(heap) == Some((whole + bytes, LONGEST - 100));
            heap.trim();
            is_lent && has_its_own || !heap.is_quick()
        });
    });
}

/// Where what is cut is kept the run is cut no more, but to see once in a while.
#[test]
fn what_programs_keep_is_not_cut() {
    each(|heap| {
        soon(|| {
            let mut kept = Vec::new();
            let mut cut = 0;
            for round in 0..400 {
                let freed = heap.malloc((3 + round % 5) * MIB) as usize;
                kept.push(heap.malloc(MIB + PAGE) as usize);
                give(heap, freed);
                let next = heap.malloc(2 * MIB + round * PAGE) as usize;
                cut += usize::from(next == freed && run(heap).is_some());
                kept.push(next);
            }
            kept.iter().for_each(|&area| give(heap, area));
            heap.trim();
            // (It may be where it was by the dirty runs, too.)
            cut <= 100
        });
    });
}

/// An area grows over the run that lies behind it.
#[test]
fn an_area_grows_over_the_run() {
    each(|heap| {
        soon(|| {
            lends(heap);
            let Some((whole, LONGEST)) = run(heap) else { return false };
            let area = heap.malloc(2 * MIB) as usize;
            let is_cut = run(heap).is_some_and(|(rest, _)| rest == whole + 2 * MIB);
            let grown = unsafe { heap.realloc(area as *mut u8, 5 * MIB) } as usize;
            let is_same = grown == area;
            give(heap, grown);
            heap.vmap().verify();
            heap.trim();
            is_cut && is_same || !heap.is_quick()
        });
    });
}

/// Every allocation and every free is counted once, whatever the run does for it.
#[test]
fn what_is_cut_counts_once() {
    each(|heap| {
        let sums = || {
            let of = |event| heap.cache.sets.event(event);
            (of(Event::AreaAlloc) + of(Event::AreaReuse), of(Event::AreaFree))
        };
        lends(heap);
        let before = sums();
        for round in 0..1000 {
            let bytes = [2 * MIB, MIB + 5 * PAGE, 60 * PAGE, 3 * MIB][round % 4];
            let area = if round % 3 == 0 { heap.aligned(bytes, 64 << 10) } else { heap.malloc(bytes) } as usize;
            let inner = heap.malloc(MIB + 9 * PAGE) as usize;
            give(heap, inner);
            give(heap, area);
        }
        let after = sums();
        let counted = (after.0 - before.0, after.1 - before.1);
        assert!((2000..2100).contains(&counted.0) && (2000..2100).contains(&counted.1), "{counted:?}");
    });
}

/// Live areas never overlap, keep what was written there, and leave nothing behind, whatever comes and goes in which order.
#[test]
fn the_run_matches_the_model() {
    for seed in 1..=4_u64 {
        each(|heap| {
            let mut random = seed;
            let mut next = |below: usize| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) as usize % below
            };
            let mut live: BTreeMap<usize, (usize, u8)> = BTreeMap::new();
            let mut order: Vec<usize> = Vec::new();
            for round in 0..3000 {
                // In phases: stacks, and any order.
                let is_stack = round / 200 % 2 == 0;
                if order.len() < 4 || order.len() < 24 && next(2) == 0 {
                    let bytes = match next(4) {
                        0 => 17 * 1024 + next(MIB),
                        _ => MIB + next(7 * MIB),
                    };
                    let align = if next(3) == 0 { PAGE << next(11) } else { 16 };
                    let area = heap.aligned(bytes, align) as usize;
                    assert!(area != 0 && area.is_multiple_of(align));
                    let usable = heap.usable(area as *const u8).unwrap();
                    assert!(usable >= bytes);
                    let before = live.range(..=area).next_back().map_or(0, |(&at, &(len, _))| at + len);
                    let after = live.range(area..).next().map_or(usize::MAX, |(&at, _)| at);
                    assert!(before <= area && area + usable <= after, "areas overlap");
                    unsafe { fill(area, bytes, round as u8) };
                    live.insert(area, (bytes, round as u8));
                    order.push(area);
                } else {
                    let at = if is_stack { order.len() - 1 } else { next(order.len()) };
                    let area = order.swap_remove(at);
                    let (bytes, seed) = live.remove(&area).unwrap();
                    unsafe { check(area, bytes, seed, bytes) };
                    if next(8) == 0 {
                        let more = bytes + next(2 * MIB);
                        let grown = unsafe { heap.realloc(area as *mut u8, more) } as usize;
                        unsafe { check(grown, bytes, seed, bytes) };
                        give(heap, grown);
                    } else {
                        give(heap, area);
                    }
                }
                if round % 97 == 0 {
                    heap.vmap().verify();
                }
                if next(400) == 0 {
                    heap.trim();
                }
            }
            for (area, (bytes, seed)) in live {
                unsafe { check(area, bytes, seed, bytes) };
                give(heap, area);
            }
            assert!(length(LONG) == LONGEST);
        });
    }
}
