//! Areas of 8 to 64 MiB that wait for the next request: from when on, for whom, and how they go.

use super::front::{each, give, soon};
use super::*;
use crate::knob::FRONT_BYTES;
use crate::reclaim::keeper::Duty;

const MIB: usize = 1 << 20;

/// Pairs of a size, till what is freed waits; where nothing may, as many.
fn warm(heap: &Heap<Test>, bytes: usize) {
    (0..40).for_each(|_| give(heap, heap.malloc(bytes) as usize));
}
fn waiting(heap: &Heap<Test>) -> Vec<usize> {
    heap.areas.wide.peek().collect()
}

#[test]
fn what_is_taken_again_and_again_waits() {
    each(|heap| {
        let bytes = FRONT_BYTES + 5 * PAGE;
        let first = heap.malloc(bytes) as usize;
        give(heap, first);
        assert!(waiting(heap).is_empty(), "once is not again and again");
        warm(heap, bytes);
        let is_fast = heap.gates.small.load(Relaxed) != 0;
        assert_eq!(waiting(heap).len(), usize::from(is_fast));
        if !is_fast {
            return;
        }
        let events = || [Event::AreaAlloc, Event::AreaReuse, Event::AreaFree].map(|event| heap.cache.sets.event(event));
        let before = events();
        let waited = waiting(heap)[0];
        let area = heap.malloc(bytes - 3 * PAGE) as usize;
        assert!(area == waited && waiting(heap).is_empty() && heap.usable(area as *const u8) == Some(bytes));
        // Two of them; one that is much shorter or longer takes none.
        let other = heap.malloc(bytes) as usize;
        [area, other].into_iter().for_each(|area| give(heap, area));
        assert_eq!(waiting(heap).len(), 2);
        let after = events();
        let [fresh, reused, freed] = [0, 1, 2].map(|at| after[at] - before[at]);
        assert_eq!((fresh + reused, freed), (2, 2), "each counts once");
        let longer = heap.malloc(2 * bytes) as usize;
        assert!(longer != area && longer != other || waiting(heap).is_empty());
        give(heap, longer);
        heap.vmap().verify();
        assert!(heap.front_bytes() >= waiting(heap).len() * bytes);
        heap.trim();
        assert!(waiting(heap).is_empty());
    });
}

#[test]
fn what_waits_gives_way() {
    each(|heap| {
        let bytes = 12 * MIB;
        warm(heap, bytes);
        if waiting(heap).is_empty() {
            return;
        }
        // To whatever asks for memory that no area used yet, and is served of it.
        let waited = waiting(heap)[0];
        let parts: Vec<usize> = (0..11).map(|_| heap.malloc(MIB) as usize).collect();
        assert!(waiting(heap).is_empty());
        assert!(parts.iter().filter(|&part| (waited..waited + bytes).contains(part)).count() >= 10);
        parts.into_iter().for_each(|part| give(heap, part));
        heap.trim();
        // To one that grows, and to zeros.
        for asks in [
            |heap: &Heap<Test>| heap.calloc(20 * MIB) as usize,
            |heap: &Heap<Test>| {
                let area = heap.malloc(9 * MIB) as usize;
                unsafe { heap.realloc(area as *mut u8, 30 * MIB) as usize }
            },
        ] {
            warm(heap, bytes);
            assert_eq!(waiting(heap).len(), 1);
            let area = asks(heap);
            assert!(waiting(heap).is_empty());
            give(heap, area);
            heap.trim();
        }
        // To a look of the keeper's after which nobody was served.
        warm(heap, bytes);
        assert!(!waiting(heap).is_empty());
        let inside = heap.enter();
        (0..2).for_each(|_| _ = heap.mm().give_back(Duty::Usual));
        drop(inside);
        assert!(waiting(heap).is_empty() && !heap.areas.wide.is_used());
    });
}

#[test]
fn nothing_waits_where_it_is_not_to() {
    each(|heap| {
        let knobs = &heap.cache.knobs;
        for (id, value) in [(Id::SyncFree, 1), (Id::SoftLimit, 1 << 30), (Id::HardLimit, 1 << 30), (Id::IdleSeconds, 0)]
        {
            let before = knobs.get(id);
            knobs.set(id as usize, value);
            warm(heap, 10 * MIB);
            assert!(waiting(heap).is_empty(), "{id:?}");
            knobs.set(id as usize, before);
            heap.trim();
        }
        // Of huge pages what is asked for with such, and of small ones what is not.
        soon(|| {
            warm(heap, 10 * MIB);
            let waited = waiting(heap);
            knobs.set(Id::HugeBytes as usize, 9 * MIB as u64);
            let huge = heap.malloc(10 * MIB) as usize;
            let is_other = !waited.contains(&huge);
            knobs.set(Id::HugeBytes as usize, 0);
            give(heap, huge);
            heap.trim();
            is_other
        });
    });
}
