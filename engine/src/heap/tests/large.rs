//! Large blocks: how they move.

use super::*;

/// The kernel moves one mapping: an area that was moved and grew over another's would be copied when it must move again.
#[test]
fn a_moved_area_that_grows_much_moves_again() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    HEAP.cache.knobs.set(Id::HugeBytes as usize, 0);
    HEAP.cache.knobs.set(Id::MoveBytes as usize, 2 << 20);
    let (mut at, mut blocks) = (HEAP.malloc(4 << 20), Vec::new());
    unsafe { at.write_bytes(5, 4 << 20) };
    for (n, bytes) in [8 << 20, 16 << 20, 32 << 20].into_iter().enumerate() {
        // In the way of the first and of the last.
        if n != 1 {
            blocks.push(HEAP.malloc(4 << 20));
        }
        at = unsafe { HEAP.realloc(at, bytes) };
        assert!((0..1024).all(|page| unsafe { *at.add(page * PAGE + 7) } == 5));
        unsafe { at.add(bytes - 1).write(5) };
    }
    assert_eq!(HEAP.cache.sets.event(Event::AreaMove), 3);
    blocks.into_iter().chain([at]).for_each(|block| unsafe { HEAP.free(block) });
    assert_empty(&HEAP);
}
