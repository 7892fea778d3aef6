//! The fallback's bias: what its owner does without a lock, beside handlers, drains, forks and those who take it away.

use super::*;
use crate::page::Flags;
use crate::stat::board::ClassOps;
use crate::tests::threads;
use std::sync::atomic::AtomicUsize;

/// The calling thread has the sets of a heap in the fallback to itself, as the only thread of a program has. Nobody else is at them.
fn favour(heap: &Heap<Test>) -> bool {
    let can = Fence.register_barrier().is_ok();
    if can {
        heap.cache.sets.cpus.bias.grant(heap.cache.sets.cpus.index());
        heap.set_gates(true);
    }
    can
}

/// Operations on `class` in the tally of the calling thread's set.
fn ops(heap: &Heap<Test>, class: usize) -> (u64, u64) {
    let sets = &heap.cache.sets;
    let set = sets.ready().unwrap();
    let ClassOps { allocs, frees } = &sets.tally_of(set).class[class];
    (allocs.load(Relaxed), frees.load(Relaxed))
}

#[test]
fn heap_matches_the_model_by_the_bias() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Fallback));
    if favour(&HEAP) {
        against_the_model(&HEAP, 60);
        assert!(HEAP.cache.sets.cpus.bias.is_mine());
    }
}

/// Nothing but the fast path: no slow path is counted, and each operation in the tally of the owner's set.
#[test]
fn its_owner_needs_no_slow_path() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Fallback));
    if !favour(&HEAP) {
        return;
    }
    let slow = || [Event::AllocSlowpath, Event::FreeSlowpath, Event::Direct].map(|event| HEAP.cache.sets.event(event));
    for size in [1, 100, 2000, SMALL_MAX, 64 << 10] {
        unsafe { HEAP.free(HEAP.malloc(size)) };
        unsafe { HEAP.free(HEAP.malloc(size)) };
        let class =
            if size > SMALL_MAX { crate::cache::front::serves(size / PAGE) } else { class::offset_of(size) / 16 };
        let (before, counted) = (slow(), ops(&HEAP, class));
        for _ in 0..100 {
            let object = HEAP.malloc(size);
            assert!(size > SMALL_MAX || HEAP.usable(object) == Some(class::SIZES[class] as usize));
            unsafe { HEAP.free(object) };
        }
        assert_eq!((slow(), ops(&HEAP, class)), (before, (counted.0 + 100, counted.1 + 100)), "{size}");
    }
    let block = HEAP.pages_alloc(0, None, Flags::NONE).unwrap();
    unsafe { HEAP.pages_free(block) }.unwrap();
    assert_empty(&HEAP);
}

/// Another thread takes the bias away, or drains, at any moment of the owner's; again and again.
#[test]
fn what_is_taken_away_is_nobodys_twice() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Fallback));
    for round in 0..400 {
        if !favour(&HEAP) {
            return;
        }
        let is_gone = AtomicBool::new(false);
        let both: Vec<Vec<usize>> = threads::scope(|scope| {
            let other = scope.spawn(|| {
                (0..random() % 2000).for_each(|_| core::hint::spin_loop());
                if round % 2 == 0 {
                    HEAP.drain(DrainTarget::All, DrainMode::Expedited);
                }
                let objects = (0..50).map(|_| HEAP.malloc(48) as usize).collect();
                is_gone.store(true, Relaxed);
                objects
            });
            let mut mine: Vec<usize> = Vec::new();
            while !is_gone.load(Relaxed) || mine.len() < 60 {
                mine.push(HEAP.malloc(48) as usize);
                if mine.len() > 80 {
                    mine.drain(20..).for_each(|object| unsafe { HEAP.free(object as *mut u8) });
                }
            }
            assert!(!HEAP.cache.sets.cpus.bias.is_granted(), "a thread allocated beside its owner");
            [mine, other.join().unwrap()].into()
        });
        let all = both.concat();
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert!(different.len() == all.len() && !different.contains(&0), "handed out twice");
        all.iter().for_each(|&object| unsafe { HEAP.free(object as *mut u8) });
    }
    assert_empty(&HEAP);
}

static HANDLED: Heap<Test> = Heap::new();
static KEPT: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
static HANDLERS: AtomicUsize = AtomicUsize::new(0);

/// Allocates, and frees what it kept eight signals ago: from whatever fast path it interrupts.
extern "C" fn churn(_: i32) {
    // (Not above a slow path: that may hold a lock.)
    if HANDLED.gate.is_inside() {
        return;
    }
    let at = HANDLERS.fetch_add(1, Relaxed) % KEPT.len();
    let fresh = HANDLED.malloc(48);
    // SAFETY: ours, and nobody has written it since.
    unsafe {
        fresh.cast::<usize>().write(!(fresh as usize));
        let old = KEPT[at].swap(fresh as usize, Relaxed) as *mut usize;
        if !old.is_null() {
            assert!(*old == !(old as usize), "handed out twice");
            HANDLED.free(old.cast());
        }
    }
}

/// A handler comes between any two instructions of the owner's, and drains beside it.
#[test]
fn handlers_above_its_owner_lose_nothing() {
    assert!(open(&HANDLED, Mode::Fallback));
    if !favour(&HANDLED) {
        return;
    }
    // SAFETY: a handler for a signal that nobody else here uses.
    unsafe { libc::signal(libc::SIGUSR2, churn as *const () as usize) };
    let (stop, owner) = (AtomicBool::new(false), unsafe { libc::pthread_self() });
    threads::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                // SAFETY: the owner waits for this thread.
                unsafe { libc::pthread_kill(owner, libc::SIGUSR2) };
                (0..random() % 500).for_each(|_| core::hint::spin_loop());
            }
        });
        let mut live: Vec<*mut usize> = Vec::new();
        // A busy machine may let the two run in turns for a while.
        let came_inside = || HANDLERS.load(Relaxed) > 1000 && HANDLED.cache.sets.event(Event::Direct) > 10;
        for round in 0..30_000_000 {
            if round > 300_000 && round % 10_000 == 0 && came_inside() {
                break;
            }
            let fresh = HANDLED.malloc(48).cast::<usize>();
            // SAFETY: ours.
            unsafe { fresh.write(fresh as usize) };
            live.push(fresh);
            if live.len() > 100 || random().is_multiple_of(3) {
                let old = live.swap_remove(random() as usize % live.len());
                // SAFETY: as above.
                unsafe {
                    assert!(*old == old as usize, "handed out twice");
                    HANDLED.free(old.cast());
                }
            }
        }
        stop.store(true, Relaxed);
        live.iter().for_each(|&object| unsafe { HANDLED.free(object.cast()) });
    });
    KEPT.iter().for_each(|kept| unsafe { HANDLED.free(kept.swap(0, Relaxed) as *mut u8) });
    assert!(HANDLED.cache.sets.cpus.bias.is_mine());
    assert!(HANDLED.cache.sets.event(Event::Direct) > 0, "no handler came inside: the test tests nothing");
    assert_empty(&HANDLED);
}
