//! Pointers that no block begins at, or that were freed before: told, and left alone.

use super::*;

#[test]
fn wrong_pointers_are_reported_and_left_alone() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Fallback));
    let told = |address: usize| BAD.lock().unwrap().iter().filter(|bad| bad.0 == address).map(|bad| bad.1).next_back();
    let local = 0_u64;
    unsafe {
        let foreign = &raw const local as usize;
        HEAP.free(foreign as *mut u8);
        assert_eq!(told(foreign), Some(BadPointer::Foreign));
        let area = HEAP.malloc(100_000);
        HEAP.free(area.add(4096));
        assert_eq!(told(area as usize + 4096), Some(BadPointer::Interior));
        HEAP.free(area);
        HEAP.free(area);
        assert_eq!(told(area as usize), Some(BadPointer::Interior));
        let small: Vec<_> = (0..64).map(|_| HEAP.malloc(100)).collect();
        HEAP.free(small[0].add(16));
        HEAP.trim();
        assert_eq!(told(small[0] as usize + 16), Some(BadPointer::Interior));
        HEAP.free(small[5]);
        HEAP.free(small[5]);
        HEAP.trim();
        assert_eq!(told(small[5] as usize), Some(BadPointer::Double));
        // Of a batch, each.
        small[10..20].iter().for_each(|&object| (0..2).for_each(|_| HEAP.free(object)));
        HEAP.free(small[20].add(8));
        HEAP.trim();
        assert!(small[10..20].iter().all(|&object| told(object as usize) == Some(BadPointer::Double)));
        assert_eq!(told(small[20] as usize + 8), Some(BadPointer::Interior));
    }
}
