//! Objects come and go on one CPU: what main, spare, both barns and the source hold after each step.

use super::*;
use crate::arch::atomic::Ordering::Relaxed;
use crate::cache::layout::Word;
use crate::stat::Level;

const CLASS: usize = 2;

struct Walk {
    cache: &'static Cache,
    bag: Bag,
    hand: Vec<usize>,
}

/// Objects in main, spare (−1: there is none), the set's own barn and the node's; and the empty sheaves of both barns.
type State = ([i64; 2], [usize; 2], [usize; 2]);

impl Walk {
    fn new(objects: u64, size: usize) -> Self {
        Self { cache: caches(2, 2, objects, size), bag: Bag::new(size, 60), hand: Vec::new() }
    }
    fn alloc(&mut self) {
        self.hand.push(self.cache.alloc(&self.bag, CLASS).unwrap());
    }
    fn free(&mut self) {
        unsafe { self.cache.free(&self.bag, CLASS, self.hand.pop().unwrap()) };
    }
    fn state(&self) -> State {
        let set = self.cache.sets.home_of(here().1 as usize).unwrap();
        let pair = &set.pairs[CLASS];
        let words = [&pair.main, &pair.spare].map(|word| Word(word.load(Relaxed)));
        let (near, node) = (&set.near[CLASS], self.cache.barn(CLASS));
        let state = (
            words.map(|word| if word == Word::NONE { -1 } else { word.count() as i64 }),
            [near.objects(), node.objects()],
            [near.empties(), node.empties()],
        );
        let cached = state.0.iter().map(|&n| n.max(0) as usize).sum::<usize>() + state.1.iter().sum::<usize>();
        assert_eq!((self.cache.cached(CLASS), cached + self.hand.len() + self.bag.len()), (cached, 60));
        let board = self.cache.sets.board();
        assert_eq!(board.level(Level::Barns), (state.1.iter().sum::<usize>() * self.bag.size.get()) as u64);
        state
    }
}

/// Steps between two visits beyond main: how many objects main has after each, and what the others have meanwhile.
type Row = (&'static [i64], i64, [usize; 2], [usize; 2]);

const DOWN: &[i64] = &[3, 2, 1, 0];
const UP: &[i64] = &[1, 2, 3, 4];

impl Walk {
    fn follow(&mut self, what: &str, step: impl Fn(&mut Self), rows: &[Row]) {
        for &(mains, spare, full, empty) in rows {
            for &main in mains {
                step(self);
                assert_eq!(self.state(), ([main, spare], full, empty), "{what}, {main} in main");
            }
        }
    }
}

/// Main, spare, the set's barn, the node's, the source; and back.
#[test]
fn objects_go_the_short_way() {
    const COUNTED: [Event; 5] = [Event::BarnGet, Event::BarnPut, Event::SheafSwap, Event::Direct, Event::SeqAbort];
    let mut walk = Walk::new(4, 1024);
    let sets = &walk.cache.sets;
    let none = [0; 2];
    walk.follow("from the source", Walk::alloc, &[(DOWN, -1, none, none); 7]);
    walk.follow("from the source", Walk::alloc, &[(&[3, 2], -1, none, none)]);
    assert_eq!(events(sets, COUNTED), [0; 5]);
    let rows = [
        (&[3, 4][..], -1, none, none),
        (UP, 4, none, none),
        (UP, 4, [4, 0], none),
        (UP, 4, [8, 0], none),
        (UP, 4, [8, 4], none),
        (UP, 4, [8, 8], none),
        (UP, 4, [8, 12], none),
        (UP, 4, [8, 16], none),
    ];
    walk.follow("freed", Walk::free, &rows);
    assert_eq!(events(sets, COUNTED), [0, 6, 0, 0, 0]);
    let rows = [
        (DOWN, 4, [8, 16], none),
        (DOWN, 0, [8, 16], none),
        (DOWN, 0, [4, 16], [1, 0]),
        (DOWN, 0, [0, 16], [2, 0]),
        (DOWN, 0, [0, 12], [2, 1]),
        (DOWN, 0, [0, 8], [2, 2]),
        (DOWN, 0, [0, 4], [2, 3]),
        (DOWN, 0, [0, 0], [2, 4]),
    ];
    walk.follow("from the barns", Walk::alloc, &rows);
    assert_eq!(events(sets, COUNTED), [6, 6, 1, 0, 0]);
    walk.follow("from the source", Walk::alloc, &[(DOWN, 0, none, [2, 4]); 7]);
    // There is no more: the empty main stays with the barn.
    assert!(walk.bag.len() == 0 && walk.cache.alloc(&walk.bag, CLASS).is_none());
    assert_eq!(walk.state(), ([-1, 0], none, [2, 5]));
    let rows = [
        (UP, -1, none, [2, 5]),
        (UP, 4, none, [2, 4]),
        (UP, 4, [4, 0], [1, 4]),
        (UP, 4, [8, 0], [0, 4]),
        (UP, 4, [8, 4], [0, 3]),
    ];
    walk.follow("freed", Walk::free, &rows);
    assert_eq!(events(sets, COUNTED), [6, 9, 2, 0, 0]);
    assert_eq!(sets.board().level(Level::Charged), 4 * 1024 * 2);
    // Nobody else's objects, and nothing beyond the budget, comes into a barn.
    walk.bag.is_near.set(false);
    let left = walk.bag.len();
    walk.follow("of another node", Walk::free, &[(UP, 4, [8, 4], [0, 3])]);
    assert_eq!(walk.bag.len(), left + 4);
    walk.follow(
        "back",
        Walk::alloc,
        &[(&[3, 2, 1, 0], 4, [8, 4], [0, 3]), (DOWN, 0, [8, 4], [0, 3]), (DOWN, 0, [4, 4], [1, 3])],
    );
    // Nor does what comes from everywhere: main and spare are full again, and the set's barn has room.
    walk.bag.is_near.set(true);
    walk.bag.is_scattered.set(true);
    walk.follow(
        "from everywhere",
        Walk::free,
        &[(UP, 0, [4, 4], [1, 3]), (UP, 4, [4, 4], [1, 3]), (UP, 4, [4, 4], [1, 3])],
    );
    walk.bag.is_scattered.set(false);
    walk.cache.knobs.set(Id::CacheFloor as usize, 0);
    walk.follow("without a budget", Walk::free, &[(UP, 4, [4, 4], [1, 3]); 2]);
}

/// A set that has nothing has no spare either, once it has a main.
#[test]
fn the_first_that_comes_is_freed() {
    let mut walk = Walk::new(4, 1024);
    walk.hand.push(walk.bag.take(CLASS).unwrap());
    walk.follow("freed", Walk::free, &[(&[1], -1, [0; 2], [0; 2])]);
}

/// What fast paths that were refused once try: the set's own, or nothing.
#[test]
fn the_own_way_is_spare_and_the_sets_barn() {
    let mut walk = Walk::new(4, 1024);
    let none = [0; 2];
    assert!(walk.cache.alloc_own(&walk.bag, CLASS).is_none());
    assert!(!unsafe { walk.cache.free_own(&walk.bag, CLASS, 16) });
    walk.follow("from the source", Walk::alloc, &[(DOWN, -1, none, none); 10]);
    assert!(walk.cache.alloc_own(&walk.bag, CLASS).is_none());
    walk.follow("freed", Walk::free, &[(UP, -1, none, none)]);
    assert!(!unsafe { walk.cache.free_own(&walk.bag, CLASS, 16) }, "there is no spare yet");
    walk.follow("freed", Walk::free, &[(UP, 4, none, none)]);
    let free = |walk: &mut Walk| {
        let object = walk.hand.pop().unwrap();
        assert!(unsafe { walk.cache.free_own(&walk.bag, CLASS, object) });
    };
    walk.follow("by the own barn", free, &[(UP, 4, [4, 0], none), (UP, 4, [8, 0], none)]);
    assert!(!unsafe { walk.cache.free_own(&walk.bag, CLASS, 16) }, "all is full");
    let alloc = |walk: &mut Walk| walk.hand.push(walk.cache.alloc_own(&walk.bag, CLASS).unwrap());
    let rows = [(DOWN, 4, [8, 0], none), (DOWN, 0, [8, 0], none), (DOWN, 0, [4, 0], [1, 0]), (DOWN, 0, [0, 0], [2, 0])];
    walk.follow("by the own barn", alloc, &rows);
    assert!(walk.cache.alloc_own(&walk.bag, CLASS).is_none(), "all is empty");
    walk.follow("freed", free, &[(UP, 0, none, [2, 0]), (UP, 4, none, [2, 0])]);
}

/// Where one of the two is full and the other empty, one visit in seven evens them out, and who takes and frees at random is served by
/// main alone from then on.
#[test]
fn a_full_and_an_empty_sheaf_are_evened_out() {
    let mut walk = Walk::new(16, 64);
    (0..32).for_each(|_| walk.alloc());
    (0..16).for_each(|_| walk.free());
    assert_eq!(walk.state(), ([16, -1], [0; 2], [0; 2]));
    // A spare comes of the first that finds no room.
    walk.free();
    assert_eq!(walk.state(), ([1, 16], [0; 2], [0; 2]));
    let sets = &walk.cache.sets;
    let allocs = || sets.tally(1).class[CLASS].allocs.load(Relaxed);
    let mut visits = 0;
    while walk.state().0 != [7, 8] {
        assert!(visits < 7, "{:?}", walk.state());
        walk.alloc();
        // Main is empty, the spare full: they change places, but for one time in seven.
        let is_due = allocs().is_multiple_of(7);
        walk.alloc();
        visits += 1;
        if !is_due {
            assert_eq!(walk.state().0, [15, 0]);
            walk.free();
            assert_eq!(walk.state().0, [16, 0]);
            walk.free();
        }
    }
    // Each has room and objects, and nothing is in both.
    let mut cached = walk.hand.clone();
    sets.peek(here().1 as usize, CLASS, |object| cached.push(object));
    cached.sort_unstable();
    cached.dedup();
    assert_eq!(cached.len(), 32);
    let swaps = sets.event(Event::SheafSwap);
    (0..7).for_each(|_| walk.alloc());
    (0..15).for_each(|_| walk.free());
    assert_eq!((walk.state().0, sets.event(Event::SheafSwap)), ([15, 8], swaps));
}

/// A class without barn and budget keeps what `room` says in main, and only where it is `wanted`.
#[test]
fn a_main_is_renewed_where_that_is_wanted() {
    let mut walk = Walk::new(4, 1024);
    (0..3).for_each(|_| walk.alloc());
    let Walk { cache, bag, .. } = &walk;
    let set = cache.sets.ready().unwrap();
    assert!(cache.renew_main(bag, set, CLASS, |_| false, |_| unreachable!("it is not wanted")));
    let flushed = |sheaf: &mut Sheaf| {
        bag.flush(CLASS, sheaf);
        3
    };
    assert!(cache.renew_main(bag, set, CLASS, |main| main.count() == 1, flushed));
    assert_eq!(cache.sets.list(0, CLASS), Some((0, 4, 4)));
    let (main, _) = Cache::words(set, CLASS);
    assert_eq!((main.count(), main.room()), (0, 3));
    cache.sets.close();
    assert!(!cache.renew_main(bag, set, CLASS, |_| true, |_| unreachable!("nobody may change it")));
}
