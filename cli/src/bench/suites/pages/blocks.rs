//! # Who gives blocks of pages, behind one door
#![allow(unsafe_code)] // blocks of memory that one owner holds

use crate::bench::rivals::buddy::{Buddy, PAGE};
use crate::bench::rivals::lists::Spinning;
use crate::bench::rivals::ours;

/// Who gives blocks.
pub trait Blocks: Sync {
    /// A block's address.
    fn alloc(&self, order: usize) -> Option<usize>;
    /// Takes it back.
    fn free(&self, block: usize, order: usize);
    /// Fills `into`; how many there are.
    fn alloc_bulk(&self, order: usize, into: &mut [usize]) -> usize {
        into.iter_mut().map_while(|place| self.alloc(order).map(|block| *place = block)).count()
    }
    /// Takes all back.
    fn free_bulk(&self, order: usize, blocks: &[usize]) {
        blocks.iter().for_each(|&block| self.free(block, order));
    }
}

/// Ours, in bulk or not.
#[derive(Debug)]
pub struct Ours<const BULK: bool>;
impl<const BULK: bool> Blocks for Ours<BULK> {
    #[inline(always)]
    fn alloc(&self, order: usize) -> Option<usize> {
        ours::alloc(order)
    }
    #[inline(always)]
    fn free(&self, block: usize, _: usize) {
        // SAFETY: the worker frees what it has, once.
        unsafe { ours::free(block) };
    }
    fn alloc_bulk(&self, order: usize, into: &mut [usize]) -> usize {
        if BULK {
            return ours::alloc_bulk(order, into);
        }
        into.iter_mut().map_while(|place| self.alloc(order).map(|block| *place = block)).count()
    }
    fn free_bulk(&self, order: usize, blocks: &[usize]) {
        if BULK {
            // SAFETY: as above.
            return unsafe { ours::free_bulk(blocks) };
        }
        blocks.iter().for_each(|&block| self.free(block, order));
    }
}

impl Blocks for Buddy {
    #[inline(always)]
    fn alloc(&self, order: usize) -> Option<usize> {
        self.lock().alloc(order)
    }
    #[inline(always)]
    fn free(&self, block: usize, order: usize) {
        self.lock().free(block, order);
    }
    /// A lock for each call.
    fn alloc_bulk(&self, order: usize, into: &mut [usize]) -> usize {
        let mut held = self.lock();
        into.iter_mut().map_while(|place| held.alloc(order).map(|block| *place = block)).count()
    }
    fn free_bulk(&self, order: usize, blocks: &[usize]) {
        let mut held = self.lock();
        blocks.iter().for_each(|&block| held.free(block, order));
    }
}

impl Blocks for Spinning {
    #[inline(always)]
    fn alloc(&self, order: usize) -> Option<usize> {
        Self::alloc(self, order)
    }
    #[inline(always)]
    fn free(&self, block: usize, order: usize) {
        Self::free(self, block, order);
    }
}

/// Whatever is preloaded, or the C library's own.
#[derive(Debug)]
pub struct Libc;
impl Blocks for Libc {
    #[inline(always)]
    fn alloc(&self, order: usize) -> Option<usize> {
        // SAFETY: plain calls.
        let block = unsafe { libc::aligned_alloc(PAGE << order, PAGE << order) };
        (!block.is_null()).then_some(block as usize)
    }
    #[inline(always)]
    fn free(&self, block: usize, _: usize) {
        // SAFETY: the worker frees what it has, once.
        unsafe { libc::free(block as *mut libc::c_void) };
    }
}

/// A mapping for each block (which aligns it to a page only).
#[derive(Debug)]
pub struct Kernel;
impl Blocks for Kernel {
    fn alloc(&self, order: usize) -> Option<usize> {
        // SAFETY: a new mapping.
        let block = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), PAGE << order, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        (block != libc::MAP_FAILED).then_some(block as usize)
    }
    fn free(&self, block: usize, order: usize) {
        // SAFETY: the worker's own mapping.
        let refused = unsafe { libc::munmap(block as *mut libc::c_void, PAGE << order) };
        assert!(refused == 0, "munmap refused: too many mappings?");
    }
}

/// Writes a byte of each page.
#[inline(always)]
pub fn touch(block: usize, bytes: usize) {
    for page in (block..block + bytes).step_by(PAGE) {
        // SAFETY: a live block of the worker's.
        unsafe { (page as *mut u8).write_volatile(7) };
    }
}
