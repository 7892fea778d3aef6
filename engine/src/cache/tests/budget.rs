//! How much sheaves, and barns, may hold.

use super::*;
use crate::arch::atomic::Ordering::Relaxed;
use crate::cache::layout::OBJECTS;
use crate::cache::{BARNS, near};
use crate::stat::Level;

const CLASS: usize = 2;

#[test]
fn sheaves_begin_with_a_page_and_end_at_the_knobs() {
    let least = [(1, 16), (16, 16), (256, 16), (257, 15), (1024, 4), (2049, 1), (4096, 1), (1 << 20, 1)];
    least.iter().for_each(|&(size, objects)| assert_eq!(Cache::least(size), objects, "{size} bytes"));
    let cache: Box<Cache> = Box::default();
    cache.knobs.reset();
    let sizes = [0, 64, 128, 129, 1024, 65_536, 65_537, 1 << 20];
    cache.size_classes(sizes.into_iter());
    let most = || sizes.iter().zip(&cache.most).map(|(_, most)| most.load(Relaxed)).collect::<Vec<_>>();
    assert_eq!(most(), [1020, 1020, 1020, 1016, 128, 2, 1, 1]);
    cache.knobs.set(Id::SheafObjects as usize, 4);
    cache.knobs.set(Id::SheafBytes as usize, 1024);
    cache.size_classes(sizes.into_iter());
    assert_eq!(most(), [4, 4, 4, 4, 1, 1, 1, 1]);
}

/// Twice as much with each visit, as long as two such sheaves fit into the budget.
#[test]
fn what_a_sheaf_may_hold_doubles_within_the_budget() {
    let cache = caches(1, 1, 254, 64);
    let (set, bag, board) = (cache.sets.ready().unwrap(), Bag::new(64, 0), cache.sets.board());
    cache.knobs.set(Id::CacheFloor as usize, 0);
    assert_eq!(cache.entitle(&bag, set, CLASS), 16, "the first is free");
    assert_eq!((cache.entitle(&bag, set, CLASS), board.level(Level::Charged)), (16, 16 * 128));
    for (now, next) in [(16, 32), (32, 64), (64, 128), (128, 254)] {
        let charged = next as u64 * 128;
        cache.knobs.set(Id::CacheFloor as usize, charged - 1);
        assert_eq!((cache.entitle(&bag, set, CLASS), board.level(Level::Charged)), (now, now as u64 * 128));
        cache.knobs.set(Id::CacheFloor as usize, charged);
        assert_eq!((cache.entitle(&bag, set, CLASS), board.level(Level::Charged)), (next, charged));
        assert_eq!(set.limits[CLASS].load(Relaxed) as usize, next);
    }
    assert_eq!((cache.entitle(&bag, set, CLASS), board.level(Level::Charged)), (254, 254 * 128));
    // A drain may have added what was raised meanwhile.
    set.limits[CLASS].store(255, Relaxed);
    assert_eq!((cache.entitle(&bag, set, CLASS), board.level(Level::Charged)), (255, 254 * 128));
    // Whoever changes it meanwhile has the newer reason.
    for (now, meanwhile, entitled) in [(0, 9, 1), (20, 9, 20)] {
        set.limits[CLASS].store(now, Relaxed);
        bag.meanwhile(0, move || cache.sets.ready().unwrap().limits[CLASS].store(meanwhile, Relaxed));
        cache.knobs.set(Id::CacheFloor as usize, 1 << 30);
        assert_eq!((cache.entitle(&bag, set, CLASS), board.level(Level::Charged)), (entitled, 254 * 128));
    }
}

#[test]
fn refills_double_and_flushes_halve_them() {
    let cache = caches(1, 1, 254, 64);
    let set = cache.sets.ready().unwrap();
    let stored = || set.batches[CLASS].load(Relaxed) as usize;
    for (batch, next) in [(16, 32), (32, 64), (64, 128), (128, 256), (254, 512), (254, OBJECTS), (254, OBJECTS)] {
        assert_eq!((cache.batch(set, CLASS, 64, 254), stored()), (batch, next));
    }
    assert_eq!((cache.batch(set, CLASS, 64, 100), stored()), (100, OBJECTS));
    let bag = Bag::new(64, 300);
    assert!(cache.make_room(&bag, set, CLASS));
    assert_eq!(stored(), OBJECTS / 2);
}

#[test]
fn caches_have_their_part_of_what_is_in_use() {
    let cache = caches(1, 1, 254, 64);
    let (board, knobs) = (cache.sets.board(), &cache.knobs);
    board.set(Level::Slabs, 9000);
    board.set(Level::Areas, 3000);
    knobs.set(Id::CacheFloor as usize, 900);
    knobs.set(Id::CacheShare as usize, 3);
    for (part, most) in [(1, 4000), (2, 2000), (4, 1000), (5, 900)] {
        assert!(cache.affordable(most, part) && !cache.affordable(most + 1, part), "one part in {part}");
    }
    assert!(!cache.affordable(u64::MAX, 4));
    board.set(Level::Barns, 12_000 / (3 * BARNS) - 100);
    assert!(cache.barns_afford(100) && !cache.barns_afford(101));
    // Nothing while the soft limit is near, even if all that is free went back.
    let soft = 8 << 20;
    board.set(Level::Areas, near(soft));
    assert!(!cache.is_tight() && cache.affordable(900, 1));
    knobs.set(Id::SoftLimit as usize, soft);
    assert!(!cache.is_tight() && cache.affordable(900, 1));
    board.raise(Level::Areas, 1);
    assert!(cache.is_tight() && !cache.affordable(0, 1) && !cache.barns_afford(0));
    board.raise(Level::Meta, 1);
    for level in [Level::Lazy, Level::PagesDirty] {
        board.raise(level, 7);
    }
    assert!(cache.is_tight(), "what is free is held, too, until it goes");
    board.lower(Level::Areas, 1);
    assert!(cache.is_tight());
    board.lower(Level::Meta, 1);
    assert!(!cache.is_tight());
}

#[test]
fn knobs_are_shown_on_the_board() {
    let cache = caches(1, 1, 254, 64);
    cache.knobs.set(Id::CacheFloor as usize, 12_345);
    cache.publish_knobs();
    let shown: Vec<_> = cache.sets.board().knobs.iter().map(|word| word.load(Relaxed)).collect();
    assert!((0..crate::knob::TABLE.len()).all(|at| shown[at] == cache.knobs.at(at)));
    assert_eq!(shown[Id::CacheFloor as usize], 12_345);
}

/// Where a source does not say, all that it has is near, and a sheaf's bytes are those of its objects.
#[test]
fn what_sources_have_in_common() {
    struct Plain;
    impl Source for Plain {
        fn fill(&self, _: usize, _: &mut Sheaf, _: usize) {}
        fn flush(&self, _: usize, _: &mut Sheaf) {}
        fn take(&self, _: usize) -> Option<usize> {
            None
        }
        fn give(&self, _: usize, _: usize) {}
        fn size(&self, class: usize) -> usize {
            class * 100
        }
    }
    let cache = caches(1, 1, 4, 64);
    let mut sheaf = Sheaf::new(&cache.meta, cache.sets.board(), 4).unwrap();
    (1..4).for_each(|object| assert!(sheaf.push(object << 4)));
    assert_eq!((Plain.bytes(5, &mut sheaf), Plain.is_near(16), Plain.is_scattered(5, &[16])), (1500, true, false));
}
