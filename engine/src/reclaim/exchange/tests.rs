//! What changes hands: when, how much, and that neither side grows or loses anything.

use super::*;
use crate::reclaim::tests::{MIB, Rig};
use crate::stat::Event;
use std::vec::Vec;

/// Bytes of a block on its way to a zone.
const BLOCK: u64 = (PAGE << TO_ZONE) as u64;

/// What each side has: opened, free and resident.
fn sides(rig: &Rig) -> [u64; 3] {
    rig.verify();
    [rig.level(Level::PagesManaged), rig.level(Level::PagesDirty), rig.level(Level::Lazy)]
}

#[test]
fn a_zone_without_a_dirty_block_gets_one_of_the_areas() {
    let rig = Rig::new(1, 1);
    // (A slab of one page is there, and clean pages behind it.)
    assert!(!rig.heap.malloc(16).is_null());
    rig.lazy(8, MIB);
    let [managed, dirty, lazy] = sides(&rig);
    assert!(dirty == 0 && lazy >= 7 * MIB as u64);
    rig.mm().dirty_to_zone(2, || unreachable!("they have some"));
    // (A clean block came back for it, if the zone had one.)
    let after = sides(&rig);
    assert_eq!(after[1..], [BLOCK, lazy - BLOCK]);
    assert!(after[0] == managed || after[0] == managed + BLOCK);
    rig.mm().dirty_to_zone(2, || unreachable!("the zone has one"));
    assert_eq!(sides(&rig), after);
    // Slabs are made of it.
    let mapped = rig.level(Level::Mapped);
    let objects: Vec<_> = (0..8).map(|_| rig.heap.malloc(4096)).collect();
    assert!(objects.iter().all(|object| !object.is_null()) && rig.level(Level::PagesDirty) < BLOCK);
    assert_eq!(rig.level(Level::Mapped), mapped);
    rig.verify();
}

#[test]
fn where_areas_have_little_more_is_asked_for() {
    let rig = Rig::new(1, 1);
    assert!(!rig.heap.malloc(16).is_null());
    let before = sides(&rig);
    let mut asked = 0;
    rig.mm().dirty_to_zone(TO_ZONE, || {
        asked += 1;
        false
    });
    assert_eq!((asked, sides(&rig)), (1, before));
    // Less than a block is little, a block is enough.
    rig.lazy(2, BLOCK as usize - PAGE);
    let before = sides(&rig);
    rig.mm().dirty_to_zone(TO_ZONE, || {
        asked += 1;
        true
    });
    assert_eq!((asked, before[2], sides(&rig)), (2, BLOCK - PAGE as u64, before));
    rig.heap.trim();
    rig.lazy(2, BLOCK as usize);
    assert_eq!(rig.level(Level::Lazy), BLOCK);
    rig.mm().dirty_to_zone(TO_ZONE, || unreachable!("they have one"));
    rig.heap.trim();
    rig.mm().dirty_to_zone(TO_ZONE, || {
        rig.lazy(4, MIB);
        true
    });
    assert_eq!(rig.level(Level::PagesDirty), BLOCK);
    rig.verify();
}

#[test]
fn an_area_gets_a_dirty_block_that_is_long_enough_and_a_clean_one_goes_back() {
    const SHORT: u64 = (PAGE << TO_AREAS) as u64;
    let rig = Rig::new(1, 1);
    // Runs of the areas that are clean.
    rig.lazy(4, 2 * MIB);
    rig.heap.trim();
    rig.dirty(8, 8);
    let before = sides(&rig);
    assert!(before[1] >= 8 * MIB as u64 && before[2] == 0);
    let mapped = rig.level(Level::Mapped);
    rig.mm().dirty_to_areas(40 << 10);
    assert_eq!(sides(&rig), [before[0], before[1] - SHORT, SHORT]);
    rig.mm().dirty_to_areas(MIB);
    assert_eq!(sides(&rig), [before[0], before[1] - SHORT - MIB as u64, SHORT + MIB as u64]);
    // What is longer than a block of 2 MiB is left to others.
    rig.mm().dirty_to_areas(3 * MIB);
    assert_eq!(rig.level(Level::Lazy), SHORT + MIB as u64);
    let reused = rig.event(Event::AreaReuse);
    assert!(!rig.heap.malloc(MIB).is_null() && rig.level(Level::Mapped) == mapped);
    assert_eq!(rig.event(Event::AreaReuse), reused + 1);
    rig.verify();
}

#[test]
fn below_half_of_what_may_stay_nothing_changes_hands() {
    use crate::knob::Id;
    let rig = Rig::new(1, 1);
    assert!(!rig.heap.malloc(16).is_null());
    rig.lazy(4, MIB);
    rig.dirty(4, 8);
    rig.set(Id::LazyFloor, 1 << 30);
    let before = sides(&rig);
    rig.mm().dirty_to_areas(40 << 10);
    assert_eq!(sides(&rig), before);
    rig.heap.trim();
    rig.lazy(4, MIB);
    let before = sides(&rig);
    rig.mm().dirty_to_zone(2, || unreachable!("they have some"));
    assert_eq!(sides(&rig), before);
    // Nor while somebody purges.
    rig.set(Id::LazyFloor, 0);
    let held = rig.heap.reclaim.lock();
    rig.mm().dirty_to_zone(2, || unreachable!("they have some"));
    assert_eq!(sides(&rig), before);
    drop(held);
    rig.mm().dirty_to_zone(2, || unreachable!("they have some"));
    assert_eq!(sides(&rig)[1..], [BLOCK, before[2] - BLOCK]);
}
