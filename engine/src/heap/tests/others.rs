//! Who asks by another name: not served until somebody says so, and then as all are.

use super::*;
use crate::heap::Refused;
use crate::page::Windows;

/// What the fast path of others says to a request: an object, or why not.
fn ask(heap: &Heap<Test>, size: usize, is_served: bool) -> Result<usize, Refused> {
    let mut why = None;
    let object = heap.malloc_others(
        size,
        || is_served,
        |refused| {
            why = Some(refused);
            core::ptr::null_mut()
        },
    );
    why.map_or(Ok(object as usize), Err)
}
/// Whether it takes an object back.
fn gives(heap: &Heap<Test>, object: usize) -> bool {
    let mut is_foreign = false;
    // SAFETY: the test's own object, or none of anybody's.
    unsafe { heap.free_others(object as *mut u8, || is_foreign = true) };
    !is_foreign
}
/// Such objects are in this CPU's set now.
fn fill(heap: &Heap<Test>, size: usize) {
    let some: Vec<_> = (0..4).map(|_| heap.malloc(size)).collect();
    // SAFETY: from there.
    some.into_iter().for_each(|object| unsafe { heap.free(object) });
}

fn served_as_all_are(heap: &Heap<Test>, is_easy: bool) {
    let all = [1, 48, 700, 1 << 20];
    assert_eq!(all.map(|size| ask(heap, size, false)), [Err(Refused::Unserved); 4]);
    let object = heap.malloc(48) as usize;
    assert!(!gives(heap, object) && !gives(heap, 0), "nothing is taken before");
    heap.serve_others();
    let [small, _, others, windows] = heap.gates.sizes();
    assert_eq!((others, windows), (small, Windows::ALL));
    assert!(gives(heap, object), "and what is ours afterwards");
    assert_eq!([0, 1 << 40, (Windows::ALL << 30) + 8, usize::MAX].map(|at| gives(heap, at)), [false; 4], "foreign");
    // (A thread that moves finds nothing on the next CPU.)
    let served = |size| {
        (0..100).find_map(|_| {
            fill(heap, size);
            ask(heap, size, true).ok()
        })
    };
    for size in [1, 48, 700] {
        match served(size) {
            Some(object) => assert!(is_easy && heap.usable(object as *const u8) >= Some(size) && gives(heap, object)),
            None => assert!(!is_easy, "{size} bytes"),
        }
    }
    assert_eq!(ask(heap, 1 << 20, true), Err(Refused::Gates));
    // While allocations are sampled none passes, by whatever name.
    heap.cache.knobs.set(Id::ProfileBytes as usize, 1);
    heap.apply_profile();
    fill(heap, 48);
    assert_eq!(ask(heap, 48, true), Err(Refused::Gates));
    heap.cache.knobs.set(Id::ProfileBytes as usize, 0);
    heap.apply_profile();
    assert_eq!(served(48).map(|object| gives(heap, object)).is_some(), is_easy);
}

#[test]
fn others_are_served_by_sequences() {
    static HEAP: Heap<Test> = Heap::new();
    if open(&HEAP, Mode::Sequences) {
        served_as_all_are(&HEAP, true);
        assert_eq!(HEAP.gates.others.load(Relaxed), FAST_MAX);
    }
}

/// Nobody is favoured there: all is the slow path's.
#[test]
fn others_are_served_without_sequences() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Fallback));
    served_as_all_are(&HEAP, false);
}

/// Who is told before the heap opens is served once it is open.
#[test]
fn others_may_be_told_of_first() {
    static HEAP: Heap<Test> = Heap::new();
    HEAP.serve_others();
    assert_eq!((ask(&HEAP, 48, true), gives(&HEAP, 48)), (Err(Refused::Gates), false));
    if open(&HEAP, Mode::Sequences) {
        assert_eq!(HEAP.gates.others.load(Relaxed), FAST_MAX);
    }
}
