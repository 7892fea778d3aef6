//! # A queue between two threads
//!
//! One producer, one consumer, 1,024 slots; each end remembers what it last saw
//! of the other, so that the lines move once per lap and not per object.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A bounded queue between two threads.
#[derive(Debug)]
pub struct Queue {
    slots: Vec<AtomicPtr<libc::c_void>>,
    head: Apart,
    tail: Apart,
}

/// A word with its cache lines to itself.
#[derive(Debug)]
#[repr(align(128))]
struct Apart(AtomicUsize);

impl Queue {
    const ROOM: usize = 1024;

    /// An empty one.
    pub fn new() -> Self {
        Self {
            slots: (0..Self::ROOM).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect(),
            head: Apart(AtomicUsize::new(0)),
            tail: Apart(AtomicUsize::new(0)),
        }
    }
    /// The producer's end; `known` is what it last saw of the consumer's.
    pub fn put(&self, object: *mut libc::c_void, known: &mut usize) {
        self.put_within(object, known, Self::ROOM);
    }
    /// The same, with at most so many (not more than there is room for) under way.
    pub fn put_within(&self, object: *mut libc::c_void, known: &mut usize, most: usize) {
        let tail = self.tail.0.load(Relaxed);
        let mut spins = 0;
        while tail.wrapping_sub(*known) >= most.min(Self::ROOM) {
            // Acquire pairs with the consumer's release: the slot is read before it is written again.
            *known = self.head.0.load(Acquire);
            wait(&mut spins);
        }
        self.slots[tail % Self::ROOM].store(object, Relaxed);
        // Release: the slot and the object's bytes before the index.
        self.tail.0.store(tail.wrapping_add(1), Release);
    }
    /// The consumer's end; `known` is what it last saw of the producer's.
    pub fn take(&self, known: &mut usize) -> *mut libc::c_void {
        let head = self.head.0.load(Relaxed);
        let mut spins = 0;
        while *known == head {
            // Acquire pairs with the producer's release.
            *known = self.tail.0.load(Acquire);
            wait(&mut spins);
        }
        let object = self.slots[head % Self::ROOM].load(Relaxed);
        self.head.0.store(head.wrapping_add(1), Release);
        object
    }
    /// What a producer may begin with knowing.
    pub fn seen_head(&self) -> usize {
        self.head.0.load(Acquire)
    }
    /// What the consumer may begin with knowing.
    pub fn own_head(&self) -> usize {
        self.head.0.load(Relaxed)
    }
}

/// Spins a little, then lets another thread run.
fn wait(spins: &mut u32) {
    *spins += 1;
    if *spins > 64 {
        std::thread::yield_now();
    } else {
        spin_loop();
    }
}
