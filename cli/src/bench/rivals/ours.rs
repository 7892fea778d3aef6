//! Allotment's pages as suites `pages` and `drain` call them.
#![allow(unsafe_code)] // hands addresses on

use super::buddy::PAGE;
use allotment::pages::{self, Flags};
use std::ptr::NonNull;

/// A block's address.
#[inline(always)]
pub fn alloc(order: usize) -> Option<usize> {
    pages::alloc(order, None, Flags::NONE).ok().map(|block| block.as_ptr() as usize)
}
/// Takes it back.
///
/// # Safety
/// A block that nobody uses.
#[inline(always)]
pub unsafe fn free(address: usize) {
    let freed = NonNull::new(address as *mut u8).map(|block| {
        // SAFETY: the caller's promise.
        unsafe { pages::free(block) }
    });
    assert!(matches!(freed, Some(Ok(()))), "{freed:?}");
}
/// Fills `into`; how many there are.
pub fn alloc_bulk(order: usize, into: &mut [usize]) -> usize {
    pages::alloc_bulk(order, None, Flags::NONE, into)
}
/// Takes all back.
///
/// # Safety
/// As [`free`].
pub unsafe fn free_bulk(blocks: &[usize]) {
    // SAFETY: the caller's promise.
    let freed = unsafe { pages::free_bulk(blocks) };
    assert!(freed.is_ok(), "{freed:?}");
}
/// Bytes of pages that all CPUs' lists hold.
pub fn held() -> u64 {
    pages::lists().map(|list| ((list.count * PAGE) << list.order) as u64).sum()
}
