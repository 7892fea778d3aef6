//! Classes that do nothing give way to those that starve.

use super::*;
use crate::arch::atomic::Ordering::Relaxed;
use crate::cache::set::{LACKED, WANTED};
use crate::cache::sheaf::Barn;
use crate::stat::Level;
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};

const BUSY: usize = 2;
const IDLE: usize = 5;
const CLASSES: core::ops::Range<usize> = 1..9;
/// Slow paths in which the hand goes round among so many.
const ROUND: usize = 4;

/// Allocates so many and frees them.
fn use_class(cache: &Cache, bag: &Bag, class: usize, objects: usize) {
    let taken: Vec<_> = (0..objects).map(|_| cache.alloc(bag, class).unwrap()).collect();
    taken.into_iter().for_each(|object| unsafe { cache.free(bag, class, object) });
}

/// Caches whose budget one class has all of.
fn spent() -> (&'static Cache, Bag) {
    let (cache, bag) = (caches(1, 1, 254, 64), Bag::new(64, 10_000));
    cache.knobs.set(Id::CacheFloor as usize, 2 * 254 * 64 + 2 * 16 * 64);
    use_class(cache, &bag, IDLE, 2000);
    use_class(cache, &bag, BUSY, 100);
    (cache, bag)
}

#[track_caller]
fn assert_none_is_lost(cache: &Cache, bag: &Bag) {
    let total = bag.len() + (0..10).map(|class| cache.cached(class)).sum::<usize>();
    assert_eq!(total, 10_000, "none is lost");
}

fn limit(cache: &Cache, class: usize) -> usize {
    cache.sets.list(0, class).unwrap().1
}

#[test]
fn who_does_nothing_gives_way_to_who_starves() {
    let (cache, bag) = spent();
    let board = cache.sets.board();
    assert_eq!((limit(cache, IDLE), limit(cache, BUSY)), (254, 16), "the first has the budget");
    assert!(cache.cached(IDLE) > 500);
    let (mut looks, mut had) = (0, std::vec![cache.cached(IDLE)]);
    while limit(cache, IDLE) == 254 {
        use_class(cache, &bag, BUSY, 100);
        cache.feed(&bag, CLASSES);
        looks += 1;
        had.push(cache.cached(IDLE));
    }
    had.dedup();
    assert_none_is_lost(cache, &bag);
    assert!(had.windows(2).all(|two| two[0] - two[1] <= 254) && had.len() > 2, "a sheaf at a time: {had:?}");
    assert!((ROUND..2 * ROUND + had.len()).contains(&looks), "when it is looked at again, {looks}");
    assert_eq!((limit(cache, IDLE), cache.sets.event(Event::ClassIdle)), (0, 1));
    assert_eq!(board.level(Level::Charged), 16 * 64 * 2, "the budget has it back");
    let near = cache.sets.near(IDLE).map(Barn::objects).sum::<usize>();
    assert_eq!((cache.sets.list(0, IDLE).unwrap().0, near), (0, 0), "its sheaves are gone");
    assert!(cache.barn(IDLE).empties() > 0, "and serve again");
    for now in [32, 64, 128, 254] {
        use_class(cache, &bag, BUSY, 2000);
        assert!(limit(cache, BUSY) >= now, "it grows");
    }
    // It begins anew, as any class.
    use_class(cache, &bag, IDLE, 100);
    assert_eq!(limit(cache, IDLE), 16);
}

/// Nobody gains anything by what a class began with.
#[test]
fn who_has_little_keeps_it() {
    let (cache, bag) = spent();
    const LITTLE: usize = 7;
    use_class(cache, &bag, LITTLE, 10);
    let set = cache.sets.ready().unwrap();
    for _ in 0..40 * ROUND {
        set.starves.store(true, Relaxed);
        cache.feed(&bag, CLASSES);
        assert!(!set.starves.load(Relaxed), "until it is refused again");
    }
    assert_eq!((limit(cache, LITTLE), limit(cache, IDLE)), (16, 0));
    assert_eq!(cache.sets.event(Event::ClassIdle), 1);
}

#[test]
fn who_does_something_keeps_what_it_has() {
    let (cache, bag) = spent();
    for _ in 0..20 * ROUND {
        use_class(cache, &bag, BUSY, 100);
        use_class(cache, &bag, IDLE, 1);
        cache.feed(&bag, CLASSES);
    }
    assert_eq!((limit(cache, IDLE), limit(cache, BUSY)), (254, 16));
    assert_eq!(cache.sets.event(Event::ClassIdle), 0);
}

#[test]
fn while_nobody_starves_nobody_gives_way() {
    let (cache, bag) = spent();
    let set = cache.sets.ready().unwrap();
    set.starves.store(false, Relaxed);
    (0..20 * ROUND).for_each(|_| cache.feed(&bag, CLASSES));
    assert_eq!((limit(cache, IDLE), cache.sets.event(Event::ClassIdle)), (254, 0));
}

/// While memory is taken, barns give up what nobody wanted since the last look, of busy classes, too; what is wanted stays.
#[test]
fn while_memory_grows_barns_give_up_what_is_unused() {
    let (cache, bag) = spent();
    let set = cache.sets.ready().unwrap();
    set.starves.store(false, Relaxed);
    let near = || cache.sets.near(IDLE).map(Barn::objects).sum::<usize>();
    let (before, in_bag) = (near(), bag.len());
    assert!(before >= 254, "{before}");
    let grow = |objects: usize| {
        for _ in 0..4 * ROUND {
            use_class(cache, &bag, IDLE, objects);
            cache.grew();
            cache.feed(&bag, CLASSES);
            assert!(!set.grew.load(Relaxed));
        }
    };
    // All that is there comes and goes.
    grow(254 * 5);
    assert_eq!((near(), limit(cache, IDLE)), (before, 254));
    grow(1);
    assert_eq!((near(), limit(cache, IDLE)), (0, 254), "what its sheaves hold it keeps");
    assert!(bag.len() >= in_bag + before, "they went home");
    assert_none_is_lost(cache, &bag);
}

/// While memory is taken, a class gives up all that is cached of it, though it works, if slabs are hollow for it; but not one that grows.
#[test]
fn while_memory_grows_who_keeps_hollow_slabs_gives_way() {
    let (cache, bag) = spent();
    let set = cache.sets.ready().unwrap();
    set.starves.store(false, Relaxed);
    bag.hollow.set(IDLE);
    let look = || {
        cache.feed(&bag, CLASSES);
        set.starves.store(false, Relaxed);
    };
    let work = |batch: u16, grows: bool| {
        for _ in 0..8 * ROUND {
            // (It does something between any two looks.)
            use_class(cache, &bag, IDLE, 1);
            set.batches[IDLE].store(batch, Relaxed);
            if grows {
                cache.grew();
            }
            look();
        }
    };
    let before = cache.cached(IDLE);
    assert!(before > 500);
    work(0, false);
    assert_eq!(cache.cached(IDLE), before, "nobody takes memory");
    // (In barns is what nobody wants.)
    work(254, true);
    assert!(cache.cached(IDLE) >= 254, "it grows: {}", cache.cached(IDLE));
    work(0, true);
    assert!(cache.cached(IDLE) <= 16, "{}", cache.cached(IDLE));
    assert_none_is_lost(cache, &bag);
}

/// All barns give up what nobody wanted since the last look, and nothing else.
#[test]
fn once_in_a_while_barns_give_up_what_is_unused() {
    let (cache, bag) = spent();
    let set = cache.sets.ready().unwrap();
    let near = || cache.sets.near(IDLE).map(Barn::objects).sum::<usize>();
    let full = |sheaves: usize| {
        // (A node's barn takes what a set's has no room for.)
        for _ in 0..sheaves {
            let mut sheaf = Sheaf::new(&cache.meta, cache.sets.board(), 254).unwrap();
            bag.fill(IDLE, &mut sheaf, 10);
            cache.sets.shift(Level::Barns, 640);
            cache.barn(IDLE).put_full(sheaf, 32).ok().unwrap();
        }
    };
    full(3);
    cache.relieve_barns(&bag, CLASSES, || false);
    let (now, in_bag) = (near(), bag.len());
    assert!(now >= 254 && cache.barn(IDLE).objects() == 30, "the first look");
    let wanted = cache.barn(IDLE).take_full().unwrap();
    cache.barn(IDLE).put_full(wanted, 32).ok().unwrap();
    full(1);
    cache.relieve_barns(&bag, CLASSES, || true);
    assert_eq!((near(), cache.barn(IDLE).objects()), (now, 40), "somebody waits");
    // Somebody comes when the first has gone.
    let left = || cache.barn(IDLE).objects() + near();
    cache.relieve_barns(&bag, CLASSES, || left() < now + 40);
    assert!((20 + 1..now + 40).contains(&left()), "{}", left());
    cache.relieve_barns(&bag, CLASSES, || false);
    assert_eq!((near(), cache.barn(IDLE).objects(), set.near_full.load(Relaxed)), (0, 20, 0), "{in_bag}");
    assert!(cache.cached(IDLE) > 254, "what its sheaves hold it keeps");
    cache.relieve_barns(&bag, CLASSES, || false);
    assert_eq!((cache.barn(IDLE).objects(), cache.sets.board().level(Level::Barns)), (0, 0));
    assert_none_is_lost(cache, &bag);
}

/// Of the classes of areas that may hold some, another hand finds those that have done nothing since it came by last.
#[test]
fn lengths_that_do_nothing_are_found_as_a_hand_goes_round() {
    let cache = caches(1, 1, 254, 64);
    cache.alloc(&Bag::new(64, 100), BUSY).unwrap();
    let set = cache.sets.ready().unwrap();
    let (one, other) = (FIRST_FRONT + 3, FIRST_FRONT + 7);
    if other >= CLASSES_MAX {
        return;
    }
    [one, other].iter().for_each(|&class| set.limits[class].store(2, Relaxed));
    // Until it has come round, past three classes more perhaps, which are none of these.
    let round = || {
        let hand = || usize::from(set.hands[1].load(Relaxed));
        set.hands[1].store(0, Relaxed);
        let mut found = Vec::new();
        let mut looks = 0;
        loop {
            let before = hand();
            found.extend(cache.idle_areas(set));
            looks += 1;
            if hand() <= before || hand() == CLASSES_MAX - FIRST_FRONT {
                break;
            }
        }
        assert!(looks <= (CLASSES_MAX - FIRST_FRONT).div_ceil(4) + found.len(), "four at a time");
        found
    };
    let work = |class: usize| cache.sets.tally_of(set).class[class].frees.fetch_add(1, Relaxed);
    set.batches[other].store(LACKED | WANTED, Relaxed);
    assert_eq!(round(), [one, other]);
    work(other);
    assert_eq!(round(), [one]);
    assert_eq!(round(), [one, other], "it has done nothing since");
    work(one);
    set.limits[other].store(0, Relaxed);
    assert!(round().is_empty(), "one works, and the other may hold none");
    assert_eq!(set.batches[other].load(Relaxed) & (LACKED | WANTED), LACKED | WANTED);
}
