//! Who is interrupted, too late, or without memory: nothing is lost, and the caller is served.

use super::*;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::arch::sys::fault;
use crate::cache::layout::Word;
use crate::cache::{ABORTS, VISITS};
use crate::stat::Level;

const CLASS: usize = 2;
const SIZE: usize = 1024;

fn cache() -> (&'static Cache, Bag) {
    (caches(1, 1, 4, SIZE), Bag::new(SIZE, 40))
}

/// A sheaf that nobody has, with objects.
fn sheaf(cache: &Cache, bag: &Bag, objects: usize) -> Word {
    let mut sheaf = Sheaf::new(&cache.meta, cache.sets.board(), 4).unwrap();
    bag.fill(CLASS, &mut sheaf, objects);
    assert_eq!(sheaf.len(), objects);
    sheaf.into_word(4)
}
fn words(cache: &Cache) -> (Word, Word) {
    Cache::words(cache.sets.ready().unwrap(), CLASS)
}
/// Puts words where there are none.
fn put(cache: &Cache, main: Word, spare: Word) {
    assert!(cache.sets.ready().is_some());
    for (word, is_spare) in [(main, false), (spare, true)] {
        assert_eq!(unsafe { cache.sets.swap(CLASS, is_spare, Word::NONE, word) }, Outcome::Done(()));
    }
}
/// Somebody else takes main, or spare, out of the set.
fn taken(cache: &'static Cache, word: Word, is_spare: bool) -> impl FnOnce() + 'static {
    move || assert_eq!(unsafe { cache.sets.swap(CLASS, is_spare, word, Word::NONE) }, Outcome::Done(()))
}
/// Objects and empty sheaves of the node's barn.
fn barn(cache: &Cache) -> (usize, usize) {
    (cache.barn(CLASS).objects(), cache.barn(CLASS).empties())
}

#[test]
fn after_three_interruptions_a_thread_goes_past_the_sets() {
    let (cache, _) = cache();
    for interruptions in 0..=2 * ABORTS {
        let left = Cell::new(interruptions);
        let sequence = || match left.get() {
            0 => Outcome::Done(7),
            some => (left.set(some - 1), Outcome::Aborted).1,
        };
        let [before] = events(&cache.sets, [Event::SeqAbort]);
        let done = cache.attempt(sequence, |_| unreachable!("it was not refused"));
        assert_eq!(done, (interruptions < ABORTS).then_some(7), "{interruptions} interruptions");
        assert_eq!(events(&cache.sets, [Event::SeqAbort]), [before + u64::from(interruptions.min(ABORTS))]);
    }
    for most in [1, 5, VISITS, 2 * VISITS] {
        let visits = Cell::new(0);
        let again = |_: &_| (visits.set(visits.get() + 1), visits.get() < most).1;
        assert_eq!(cache.attempt(|| Outcome::<()>::Refused, again), None);
        assert_eq!(visits.get(), most.min(VISITS));
    }
}

#[test]
fn who_finds_the_sets_closed_is_served_by_the_source() {
    let (cache, bag) = cache();
    let ops = &cache.sets.tally(0).class[CLASS];
    let state = || (ops.allocs.load(Relaxed), ops.frees.load(Relaxed), cache.sets.event(Event::Direct), bag.len());
    cache.sets.close();
    let object = cache.alloc(&bag, CLASS).unwrap();
    assert_eq!(state(), (1, 0, 1, 39));
    unsafe { cache.free(&bag, CLASS, object) };
    assert_eq!(state(), (1, 1, 2, 40));
    bag.objects.borrow_mut().clear();
    assert!(cache.alloc(&bag, CLASS).is_none());
    assert_eq!(state(), (1, 1, 2, 0));
    cache.sets.reopen();
    assert!(cache.sets.ready().is_some());
}

/// What was looked at is not there any more when it is to be taken: the caller tries again.
#[test]
fn who_finds_main_gone_tries_again() {
    let (cache, bag) = cache();
    let set = cache.sets.ready().unwrap();
    let empty = sheaf(cache, &bag, 0);
    put(cache, empty, Word::NONE);
    bag.meanwhile(0, taken(cache, empty, false));
    assert!(cache.refill(&bag, set, CLASS));
    assert_eq!((words(cache), barn(cache), bag.len()), ((Word::NONE, Word::NONE), (0, 0), 40));
    set.limits[CLASS].store(0, Relaxed);
    let full = sheaf(cache, &bag, 4);
    put(cache, full, Word::NONE);
    bag.meanwhile(0, taken(cache, full, false));
    assert!(cache.make_room(&bag, set, CLASS));
    assert_eq!((words(cache), barn(cache), bag.len()), ((Word::NONE, Word::NONE), (0, 0), 36));
}

/// A sheaf that was to come from the set's own barn goes to the node's; the empty one that was to be traded stays.
#[test]
fn who_finds_main_gone_keeps_what_was_to_take_its_place() {
    let (cache, bag) = cache();
    let set = cache.sets.ready().unwrap();
    let near = &set.near[CLASS];
    let (full, spare) = (sheaf(cache, &bag, 4), sheaf(cache, &bag, 4));
    put(cache, full, spare);
    bag.meanwhile(0, taken(cache, full, false));
    assert!(!cache.push_near(&bag, set, CLASS, full));
    assert_eq!((near.objects(), near.empties(), set.near_full.load(Relaxed), barn(cache)), (0, 1, 0, (0, 0)));
    put_main(cache, full);
    bag.is_scattered.set(true);
    assert!(!cache.push_near(&bag, set, CLASS, full));
    assert_eq!((words(cache), near.objects(), near.empties(), barn(cache)), ((full, spare), 0, 1, (0, 0)), "as it was");
    bag.is_scattered.set(false);
    assert!(cache.push_near(&bag, set, CLASS, full));
    assert_eq!((near.objects(), near.empties(), set.near_full.load(Relaxed), barn(cache)), (4, 0, 1, (0, 0)));
    let (main, _) = words(cache);
    assert_eq!((main.count(), main.room()), (0, 4));
    bag.meanwhile(0, taken(cache, main, false));
    assert!(!cache.pull_near(&bag, set, CLASS, main));
    assert_eq!((near.objects(), near.empties(), set.near_full.load(Relaxed), barn(cache)), (0, 0, 0, (4, 0)));
    assert_eq!(cache.sets.board().level(Level::Barns), 4 * SIZE as u64);
    assert!(!cache.pull_near(&bag, set, CLASS, Word::NONE), "there is nothing");
    // A barn that may not keep more leaves everything as it is.
    cache.knobs.set(Id::CacheFloor as usize, 0);
    let full = sheaf(cache, &bag, 4);
    put_main(cache, full);
    assert!(!cache.push_near(&bag, set, CLASS, full));
    assert_eq!((words(cache), near.empties(), barn(cache)), ((full, spare), 0, (4, 0)));
}
fn put_main(cache: &Cache, main: Word) {
    assert_eq!(unsafe { cache.sets.swap(CLASS, false, Word::NONE, main) }, Outcome::Done(()));
}

/// Who comes too late to even two sheaves out leaves them as they are, whichever of the two is another now.
#[test]
fn sheaves_are_evened_out_together_or_not_at_all() {
    let (cache, bag) = cache();
    let (empty, full) = (sheaf(cache, &bag, 0), sheaf(cache, &bag, 4));
    put(cache, empty, full);
    let set = cache.sets.ready().unwrap();
    let stale = |word: Word| Word(word.0 + (1 << 30));
    assert_eq!(cache.even(set, CLASS, empty, stale(full)), (Word::NONE, Word::NONE));
    assert_eq!(words(cache), (empty, full));
    let (newer, older) = cache.even(set, CLASS, stale(empty), full);
    assert_eq!((newer, older, words(cache)), (Word::NONE, full, (empty, Word::NONE)));
    cache.keep(&bag, CLASS, true, older);
    let mut objects = unsafe { Sheaf::from_word(full) }.unwrap().objects().to_vec();
    let (newer, older) = cache.even(set, CLASS, empty, full);
    assert_eq!(words(cache), (Word::NONE, Word::NONE));
    assert_eq!([(newer.count(), newer.room()), (older.count(), older.room())], [(2, 2); 2]);
    let [newer_half, older_half] =
        [newer, older].map(|word| unsafe { Sheaf::from_word(word) }.unwrap().objects().to_vec());
    assert_eq!(older_half, objects.drain(..2).collect::<Vec<_>>());
    assert_eq!(newer_half, objects);
    cache.keep(&bag, CLASS, false, newer);
    cache.keep(&bag, CLASS, true, older);
    assert_eq!(words(cache), (newer, older));
}

/// A sheaf is where it was, or in a barn.
#[test]
fn an_exchange_that_is_too_late_loses_no_sheaf() {
    let (cache, bag) = cache();
    let (empty, full) = (sheaf(cache, &bag, 0), sheaf(cache, &bag, 4));
    put(cache, empty, full);
    let stale = Word(full.0 + (1 << 30));
    let swaps = || cache.sets.event(Event::SheafSwap);
    let exchange = |main, spare| {
        let (newer, older) = cache.exchange(CLASS, main, spare);
        assert_eq!(newer, Word::NONE);
        cache.keep(&bag, CLASS, true, older);
    };
    exchange(empty, stale);
    assert_eq!((words(cache), barn(cache), swaps()), ((empty, full), (0, 0), 0));
    exchange(empty, full);
    assert_eq!((words(cache), barn(cache), swaps()), ((full, empty), (0, 0), 1));
    exchange(stale, empty);
    assert_eq!((words(cache), barn(cache), swaps()), ((full, empty), (0, 0), 1));
    let taken = unsafe { cache.sets.swap(CLASS, true, empty, Word::NONE) };
    assert_eq!(taken, Outcome::Done(()));
    cache.release(&bag, CLASS, empty);
    let other = sheaf(cache, &bag, 3);
    cache.keep(&bag, CLASS, true, other);
    assert_eq!((words(cache), barn(cache)), ((full, other), (0, 1)));
    cache.keep(&bag, CLASS, true, sheaf(cache, &bag, 2));
    // (For the empty one that the barn has.)
    assert_eq!((words(cache), barn(cache)), ((full, other), (2, 1)));
    let late = unsafe { Sheaf::from_word(sheaf(cache, &bag, 1)) }.unwrap();
    cache.install(&bag, CLASS, late, 4);
    assert_eq!((words(cache), barn(cache), bag.len()), ((full, other), (3, 1), 30));
    cache.knobs.set(Id::CacheFloor as usize, 0);
    cache.release(&bag, CLASS, sheaf(cache, &bag, 4));
    cache.release(&bag, CLASS, sheaf(cache, &bag, 0));
    cache.release(&bag, CLASS, Word::NONE);
    assert_eq!((barn(cache), bag.len()), ((3, 3), 30));
}

#[test]
fn without_memory_for_sheaves_objects_come_one_by_one() {
    let (cache, bag) = cache();
    let set = cache.sets.ready().unwrap();
    fault::storm(1, 1);
    let (refilled, has_room) = (cache.refill(&bag, set, CLASS), cache.make_room(&bag, set, CLASS));
    let object = cache.alloc(&bag, CLASS);
    fault::storm(0, 1);
    assert_eq!((refilled, has_room, object), (false, false, Some(40 << 4)));
    assert_eq!((words(cache), barn(cache), bag.len()), ((Word::NONE, Word::NONE), (0, 0), 39));
}
