//! # A plain locked buddy: what the per-CPU lists stand before
//!
//! ```text
//! heads[order] ──► block ⇄ block ⇄ …      orders 0–10, linked through 12-byte descriptors apart from the pages
//! ```
//! The buddy of page p at order o is p XOR 2ᵒ; a free merges upwards while the buddy is free. Everything is under one
//! mutex, which is why it is slow with threads: an alternative to measure, not a part of Allotment.
#![allow(unsafe_code)] // maps its memory

pub use allotment_engine::arch::PAGE;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Orders 0–10.
pub const ORDERS: usize = 11;
/// Pages at most: 8 GiB.
const PAGES: usize = 2 << 20;
/// Pages of the largest block.
const LARGEST: usize = 1 << (ORDERS - 1);
const NONE: u32 = u32::MAX;

/// A free block's neighbours on its list; `state` is its order + 1, or 0 where no free block begins.
#[derive(Clone, Copy, Debug, Default)]
struct Desc {
    next: u32,
    before: u32,
    state: u8,
}

#[derive(Debug)]
struct State {
    descs: Vec<Desc>,
    heads: [u32; ORDERS],
    /// No page from here on was ever handed out.
    next: usize,
}

/// The allocator.
#[derive(Debug)]
pub struct Buddy {
    memory: usize,
    base: usize,
    state: Mutex<State>,
}

/// The lock, held for a batch.
#[derive(Debug)]
pub struct Held<'a>(MutexGuard<'a, State>, usize);

impl Buddy {
    /// With all of its address space and no memory.
    pub fn new() -> Self {
        let bytes = (PAGES + LARGEST) * PAGE;
        // SAFETY: a new mapping; untouched memory costs address space only.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert!(memory != libc::MAP_FAILED, "no address space");
        let state = State { descs: vec![Desc::default(); PAGES], heads: [NONE; ORDERS], next: 0 };
        let memory = memory as usize;
        Self { memory, base: memory.next_multiple_of(LARGEST * PAGE), state: Mutex::new(state) }
    }
    /// For as many blocks as the holder likes.
    pub fn lock(&self) -> Held<'_> {
        Held(self.state.lock().unwrap_or_else(PoisonError::into_inner), self.base)
    }
    #[cfg(test)]
    /// Pages that are free, of those that were ever handed out.
    pub fn free_pages(&self) -> usize {
        let held = self.lock();
        let free = held.0.descs[..held.0.next].iter().filter(|desc| desc.state > 0);
        free.map(|desc| 1 << (desc.state - 1)).sum()
    }
    #[cfg(test)]
    /// Pages that were ever handed out, whole largest blocks.
    pub fn grown_pages(&self) -> usize {
        self.lock().0.next
    }
}

impl Drop for Buddy {
    fn drop(&mut self) {
        // SAFETY: as it was mapped.
        unsafe { libc::munmap(self.memory as *mut libc::c_void, (PAGES + LARGEST) * PAGE) };
    }
}

impl Held<'_> {
    /// A block's address.
    pub fn alloc(&mut self, order: usize) -> Option<usize> {
        let state = &mut *self.0;
        let found = (order..ORDERS).find(|&larger| state.heads[larger] != NONE);
        let (block, mut larger) = match found {
            Some(larger) => (state.heads[larger] as usize, larger),
            None if state.next < PAGES => {
                state.push(state.next, ORDERS - 1);
                state.next += LARGEST;
                (state.next - LARGEST, ORDERS - 1)
            }
            None => return None,
        };
        state.unlink(block);
        while larger > order {
            larger -= 1;
            state.push(block + (1 << larger), larger);
        }
        Some(self.1 + block * PAGE)
    }
    /// Takes it back.
    pub fn free(&mut self, address: usize, order: usize) {
        let state = &mut *self.0;
        let (mut block, mut order) = ((address - self.1) / PAGE, order);
        while order < ORDERS - 1 {
            let buddy = block ^ (1 << order);
            if usize::from(state.descs[buddy].state) != order + 1 {
                break;
            }
            state.unlink(buddy);
            block &= buddy;
            order += 1;
        }
        state.push(block, order);
    }
}

impl State {
    fn push(&mut self, block: usize, order: usize) {
        let next = self.heads[order];
        if next != NONE {
            self.descs[next as usize].before = block as u32;
        }
        self.descs[block] = Desc { next, before: NONE, state: order as u8 + 1 };
        self.heads[order] = block as u32;
    }
    fn unlink(&mut self, block: usize) {
        let Desc { next, before, state } = self.descs[block];
        if next != NONE {
            self.descs[next as usize].before = before;
        }
        match before {
            NONE => self.heads[usize::from(state) - 1] = next,
            before => self.descs[before as usize].next = next,
        }
        self.descs[block].state = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_disjoint_aligned_and_merge() {
        let buddy = Buddy::new();
        let all: Vec<(usize, usize)> =
            (0..2000).map(|at| (buddy.lock().alloc(at % ORDERS).expect("memory"), at % ORDERS)).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|two| two[0].0 + (PAGE << two[0].1) <= two[1].0));
        assert!(all.iter().all(|&(address, order)| (address - buddy.base).is_multiple_of(PAGE << order)));
        all.iter().rev().step_by(2).for_each(|&(address, order)| buddy.lock().free(address, order));
        all.iter().rev().skip(1).step_by(2).for_each(|&(address, order)| buddy.lock().free(address, order));
        assert_eq!(buddy.free_pages(), buddy.grown_pages());
        // Everything is of the largest order again.
        let held = buddy.lock();
        assert!(held.0.heads[..ORDERS - 1].iter().all(|&head| head == NONE));
    }
}
