//! Pages for C.

use super::no_memory;
use super::percpu::{invalid, text};
use crate::pages::{self, Error, Flags};
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::{NonNull, null_mut};
use core::slice;

/// A node and flags as C writes them; `None` if they mean nothing.
fn how(node: c_int, flags: c_uint) -> Option<(Option<usize>, Flags)> {
    let node = if node == -1 { None } else { Some(usize::try_from(node).ok()?) };
    Some((node, Flags::from_bits(flags)?))
}

exported! {
    /// `pages::alloc`.
    fn allotment_pages_alloc(order: c_uint, node: c_int, flags: c_uint) -> *mut c_void {
        let block = match how(node, flags) {
            Some((node, flags)) => pages::alloc(order as usize, node, flags),
            None => Err(Error::Order),
        };
        match block {
            Ok(block) => block.as_ptr().cast(),
            Err(Error::Exhausted) => no_memory(),
            Err(_) => {
                invalid();
                null_mut()
            }
        }
    }
    /// `pages::free`.
    fn allotment_pages_free(block: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        if NonNull::new(block.cast()).is_none_or(|block| unsafe { pages::free(block) }.is_ok()) {
            return 0;
        }
        invalid();
        -1
    }
    /// `pages::alloc_bulk`.
    fn allotment_pages_alloc_bulk(
        order: c_uint,
        node: c_int,
        flags: c_uint,
        blocks: *mut *mut c_void,
        count: usize
    ) -> usize {
        if count == 0 {
            return 0;
        }
        // SAFETY: the caller's promise; pointers are as large as addresses. (They need no value before.)
        let into = unsafe { slice::from_raw_parts_mut(blocks.cast::<usize>(), count) };
        let got = how(node, flags).map(|(node, flags)| pages::alloc_bulk(order as usize, node, flags, into));
        got.unwrap_or(0)
    }
    /// `pages::free_bulk`.
    fn allotment_pages_free_bulk(blocks: *const *mut c_void, count: usize) -> c_int {
        if count == 0 {
            return 0;
        }
        // SAFETY: as above.
        let blocks = unsafe { slice::from_raw_parts(blocks.cast::<usize>(), count) };
        // SAFETY: the caller's promise.
        if unsafe { pages::free_bulk(blocks) }.is_ok() {
            return 0;
        }
        invalid();
        -1
    }
    /// `pages::buddyinfo`.
    fn allotment_buddyinfo(at: *mut c_char, size: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { text(at, size, pages::buddyinfo) }
    }
    /// `pages::zoneinfo`.
    fn allotment_zoneinfo(at: *mut c_char, size: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { text(at, size, pages::zoneinfo) }
    }
}
