//! What the global allocator does with layouts that C's `malloc` has no call for.
#![allow(unsafe_code, reason = "calls an allocator")]

use allotment::Allotment;
use std::alloc::{GlobalAlloc, Layout};
use std::fs::read_to_string;

/// Resident pages of this process.
fn resident() -> usize {
    read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn zeros_that_are_aligned_are_zeros_and_take_no_memory_before_they_are_written() {
    const BYTES: usize = 256 << 20;
    for align in [8, 32, 4096, 8192] {
        for size in [1, 40, 5000, 32 << 10, (32 << 10) + 1, 1 << 20] {
            let layout = Layout::from_size_align(size, align).unwrap();
            for _ in 0..3 {
                // SAFETY: the block is ours until it is freed, with its own layout.
                unsafe {
                    let block = Allotment.alloc_zeroed(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align));
                    assert!(std::slice::from_raw_parts(block, size).iter().all(|&byte| byte == 0), "{layout:?}");
                    block.write_bytes(0xa5, size);
                    Allotment.dealloc(block, layout);
                }
            }
        }
    }
    for align in [16, 64, 4096] {
        let layout = Layout::from_size_align(BYTES, align).unwrap();
        let before = resident();
        // SAFETY: as above.
        unsafe {
            let block = Allotment.alloc_zeroed(layout);
            assert!(!block.is_null() && block.addr().is_multiple_of(align));
            let taken = resident().saturating_sub(before) * 4096;
            assert!(taken < BYTES / 4, "{taken} bytes aligned to {align}");
            assert!(*block == 0 && *block.add(BYTES - 1) == 0);
            Allotment.dealloc(block, layout);
        }
    }
}
