//! What is looked for where there is no memory: in which order, how often, and what becomes of it.

use super::*;
use crate::arch::sys::fault;
use crate::meta::Meta;
use crate::reclaim::tests::{HERE, MIB, Rig};
use crate::slab::class::CLASSES;
use core::cell::{Cell, RefCell};
use std::vec::Vec;

/// What there is at each try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    lazy: u64,
    barns: u64,
    cached: usize,
    managed: usize,
}

fn seen(rig: &Rig) -> Seen {
    Seen {
        lazy: rig.level(Level::Lazy),
        barns: rig.level(Level::Barns),
        cached: (1..CLASSES).map(|class| rig.heap.cache.sets.cached(class)).sum(),
        managed: rig.heap.pages.zones.iter().map(crate::page::Zone::managed).sum(),
    }
}

/// Objects of a class that lie in sets and barns.
#[allow(unsafe_code)]
fn fill(rig: &Rig, size: usize) {
    let objects: Vec<_> = (0..4000).map(|_| rig.heap.malloc(size)).collect();
    // SAFETY: our own.
    objects.into_iter().for_each(|object| unsafe { rig.heap.free(object) });
}

/// All tries of a request until one finds what it looks for.
fn tries(look: impl Fn(&dyn Fn() -> Option<()>) -> Option<()>, mut finds: impl FnMut() -> (Seen, bool)) -> Vec<Seen> {
    let (all, finds) = (RefCell::new(Vec::new()), RefCell::new(&mut finds));
    let found = look(&|| {
        let (seen, found) = (*finds.borrow_mut())();
        all.borrow_mut().push(seen);
        found.then_some(())
    });
    let all = all.into_inner();
    assert!(found.is_some() || !all.is_empty());
    all
}

/// Free runs of the areas become the zone's: none is left to be taken at once.
fn without_runs(rig: &Rig) {
    rig.heap.vmap().purge(usize::MAX);
    while rig.mm().areas_to_pages(1) {}
}

#[test]
fn what_was_found_is_looked_for_again() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    assert!(!rig.heap.malloc(MIB).is_null());
    for _ in 0..4 {
        assert!(mm.scrape_pages(3, || Some(())).is_some());
        assert!(mm.scrape_area(PAGE, || Some(())).is_some());
    }
}

#[test]
fn what_was_not_found_is_nothing_new_for_more_of_it() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    rig.heap.malloc(MIB);
    let count = |order: usize| {
        let tried = Cell::new(0);
        assert!(
            mm.scrape_pages(order, || -> Option<()> {
                tried.set(tried.get() + 1);
                None
            })
            .is_none()
        );
        tried.get()
    };
    while count(3) > 0 {}
    assert_eq!((count(4), count(3)), (0, 0));
    assert!(count(2) > 0, "less may be there");
    while count(2) > 0 {}
    assert!(count(0) > 0 && count(3) == 0);
    // What nothing could give is not looked for.
    let mapped = rig.heap.cache.sets.board().level(Level::Mapped) as usize;
    assert!(mm.scrape_area(mapped + 1, || -> Option<()> { unreachable!("there is not so much") }).is_none());
    assert!(mm.scrape_area(mapped, || Some(())).is_some());
}

#[test]
fn a_look_is_repeated_only_where_it_may_have_missed_something() {
    let rig = Rig::new(2, 1);
    let mm = rig.mm();
    let count = |moves: bool, finds: usize| {
        let looks = Cell::new(0);
        HERE.set(0);
        let found = mm.wherever(|| {
            looks.set(looks.get() + 1);
            if moves {
                HERE.set(1 - HERE.get());
            }
            (looks.get() == finds).then_some(())
        });
        HERE.set(0);
        (looks.get(), found.is_some())
    };
    assert_eq!((count(false, 9), count(false, 1)), ((1, false), (1, true)));
    assert_eq!((count(true, 9), count(true, 3)), ((LOOKS, false), (3, true)), "the thread was moved");
}

#[test]
fn pages_are_looked_for_in_barns_then_areas_then_caches() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    fill(&rig, 3000);
    without_runs(&rig);
    fill(&rig, 3000);
    let before = seen(&rig);
    assert!(before.barns > 0 && before.cached > 0);
    let all = tries(|again| mm.scrape_pages(8, again), || (seen(&rig), true));
    assert!(all.len() == 1 && all[0].barns == 0 && all[0].cached > 0, "{before:?} {all:?}");
    // What is lazy becomes the zone's, clean; what CPUs have is left to them.
    rig.lazy(2, 4 * MIB);
    without_runs_but_lazy(&rig);
    let (before, dirty) = (seen(&rig), rig.level(Level::PagesDirty));
    let all = tries(
        |again| mm.scrape_pages(8, again),
        || {
            let now = seen(&rig);
            (now, now.managed > before.managed)
        },
    );
    let last = all[all.len() - 1];
    assert!(before.lazy > 0 && last.lazy == 0 && last.managed >= before.managed + 256, "{before:?} {all:?}");
    assert_eq!((last.cached, rig.level(Level::PagesDirty)), (all[0].cached, dirty));
    // Then caches go.
    fill(&rig, 3000);
    without_runs(&rig);
    let all = tries(
        |again| mm.scrape_pages(8, again),
        || {
            let now = seen(&rig);
            (now, now.cached == 0)
        },
    );
    assert!(all[0].cached > 0 && all[all.len() - 1].cached == 0, "{all:?}");
    rig.verify();
}

/// The same but for what is lazy.
fn without_runs_but_lazy(rig: &Rig) {
    while rig.mm().areas_to_pages(1) {}
}

#[test]
fn an_area_is_looked_for_in_what_is_lazy_then_caches_then_zones() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    let area = |bytes: usize| {
        let at = rig.heap.malloc(bytes);
        // SAFETY: our own.
        #[allow(unsafe_code)]
        unsafe {
            rig.heap.free(at);
        }
    };
    // (Before anything is lazy: slabs would take that.)
    fill(&rig, 3000);
    rig.lazy(4, MIB);
    // (A CPU's front has it.)
    area(64 << 10);
    let before = seen(&rig);
    assert!(before.lazy > 0 && rig.heap.cache.sets.holds_areas(0));
    let all = tries(|again| mm.scrape_area(2 * MIB, again), || (seen(&rig), false));
    assert!(all.len() >= 2 && all[0].lazy == 0 && all[0].cached == before.cached, "{before:?} {all:?}");
    // (Pages of the zones came between.)
    assert!(all[1].lazy == 0 && all[1].cached == 0 && all[1].managed + 512 <= all[0].managed, "{all:?}");
    assert!(!rig.heap.cache.sets.holds_areas(0));
    assert!(seen(&rig).managed < all[1].managed || all.len() == 2, "{all:?}");
    // Pieces that are too small alone are tried together, once; where there is none nothing is tried.
    let blocks: Vec<_> = (0..64).map(|_| rig.heap.malloc(128 << 10)).collect();
    assert!(blocks.iter().all(|block| !block.is_null()));
    while mm.pages_to_areas(1, usize::MAX) {}
    let all = tries(|again| mm.scrape_area(2 * MIB, again), || (seen(&rig), false));
    assert_eq!(all.len(), 1, "no zone has a run");
    rig.verify();
}

#[test]
fn pieces_of_a_zone_are_tried_together() {
    use crate::page::Flags;
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    // Every other block of 64 KiB is free, none is longer.
    let blocks: Vec<_> = (0..256).map(|_| rig.heap.pages_alloc(4, None, Flags::NONE).unwrap()).collect();
    while mm.pages_to_areas(1, usize::MAX) {}
    // SAFETY: our own.
    #[allow(unsafe_code)]
    blocks.iter().step_by(2).for_each(|&block| unsafe { rig.heap.pages_free(block) }.unwrap());
    rig.heap.trim();
    let before = seen(&rig);
    let all = tries(|again| mm.scrape_area(MIB, again), || (seen(&rig), false));
    assert_eq!(all.len(), 2, "{before:?} {all:?}");
    assert!(all[1].managed + 128 * 16 <= before.managed, "{before:?} {all:?}");
    assert_eq!(seen(&rig).managed, all[1].managed);
    rig.verify();
}

#[test]
fn a_few_pages_of_a_zone_between_free_runs_join_them() {
    use crate::page::Flags;
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    let blocks: Vec<_> = (0..256).map(|_| rig.heap.pages_alloc(2, None, Flags::NONE).unwrap()).collect();
    #[allow(unsafe_code)]
    let free = |from: usize| {
        // SAFETY: our own.
        blocks.iter().skip(from).step_by(2).for_each(|&block| unsafe { rig.heap.pages_free(block) }.unwrap());
        rig.heap.trim();
    };
    while mm.pages_to_areas(1, usize::MAX) {}
    free(1);
    while mm.pages_to_areas(1, usize::MAX) {}
    // Now every other 16 KiB are the areas'. What lies between is no piece that is worth anything by itself.
    free(0);
    let before = seen(&rig);
    let all = tries(|again| mm.scrape_area(512 << 10, again), || (seen(&rig), false));
    assert_eq!(all.len(), 2, "{before:?} {all:?}");
    assert!(all[1].managed + 120 * 4 <= before.managed, "{before:?} {all:?}");
    rig.verify();
}

/// What the system refuses to take back changes hands with its contents.
#[test]
fn dirty_runs_become_pages_where_nothing_can_be_given_back() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    rig.lazy(4, MIB);
    without_runs_but_lazy(&rig);
    let (before, dirty, meta) = (seen(&rig), rig.level(Level::PagesDirty), rig.level(Level::Meta));
    fault::storm(1, 7);
    let found = mm.scrape_pages(4, || (seen(&rig).managed > before.managed).then_some(()));
    let none = (mm.dirty_to_pages(1 << 20), mm.dirty_to_pages(16));
    fault::storm(0, 0);
    assert_eq!((found, none), (Some(()), (false, true)));
    // (Our own structures take some.)
    let fed = (rig.level(Level::Meta) - meta) as usize / PAGE;
    assert!(fed <= FED[0]);
    // (16 at a time, until there are more than before; and 16 at the end.)
    let moved = 16 * (fed / 16 + 2);
    assert_eq!(seen(&rig).managed + fed, before.managed + moved);
    assert_eq!(rig.level(Level::PagesDirty), dirty + (moved * PAGE) as u64);
    assert_eq!(before.lazy - seen(&rig).lazy, (moved * PAGE) as u64);
    rig.verify();
}

#[test]
fn our_own_structures_get_a_page_where_they_have_none() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    let meta = &rig.heap.cache.meta;
    rig.heap.malloc(100);
    assert!(!meta.is_dry() && !mm.feed_meta(), "they are not short of it");
    // From a zone that has one; else from the areas.
    for zone_has_none in [false, true] {
        while zone_has_none && mm.pages_to_areas(1, usize::MAX) {}
        fault::storm(1, 7);
        while !meta.is_dry() {
            let _ = meta.alloc(rig.heap.cache.sets.board(), PAGE);
        }
        let (told, managed) = (rig.level(Level::Meta), seen(&rig).managed);
        let fed = mm.feed_meta();
        fault::storm(0, 0);
        assert!(fed && !meta.is_dry(), "{zone_has_none}");
        let two = meta.alloc(rig.heap.cache.sets.board(), Meta::LARGEST);
        assert!(two.is_some(), "side by side");
        // SAFETY: from there, unused.
        two.inspect(|&two| unsafe { meta.free(two, Meta::LARGEST) });
        assert_eq!(rig.level(Level::Meta), told + (FED[0] * PAGE) as u64, "some together");
        // (What the areas have becomes the zone's first.)
        assert_eq!(seen(&rig).managed < managed, !zone_has_none);
    }
}

#[test]
fn nothing_is_an_area_of_a_page() {
    let rig = Rig::new(1, 1);
    assert!(!rig.heap.malloc(16).is_null());
    rig.dirty(2, 3);
    let tried = Cell::new(0);
    let nothing = rig.mm().scrape_area(0, || {
        tried.set(tried.get() + 1);
        None::<()>
    });
    assert!(nothing.is_none() && tried.get() >= 2);
    // (Half a GiB and its guard are in no window.)
    assert!(rig.heap.area_alloc(0, 1 << 29, true).is_none());
    rig.verify();
}
