//! # A slab's own words: its descriptor, and which of its objects are free
//!
//! ```text
//! block  ┌ next ⇄ previous, on_list │ class, node, objects │ free, trimmed │ pfn, base ┬ free: a bit each ┬ held: a bit each ┐
//!        └ its list's               │ constant             │ the bitmap's  │ constant  ┴ [u64]            ┴ if checked       ┘
//! pages  [ object 0 │ object 1 │ … ]   which object: (address − base) × reciprocal
//! ```
//! Objects go in and out in stretches that lie behind each other, so that a word of the bitmap is written once for all of its own.
//!
//! Units: objects, by index; words of 64. Invariants: `free` is how many bits of the bitmap are set, and none is behind the last object;
//! what is free the program does not hold. Locks: of the class's list for what is the list's, the slab's bit lock for the
//! bitmap and what is its; who calls takes them (see [`super`]). What is held is atomic. Cost: one multiplication an object,
//! some instructions a word.
#![allow(unsafe_code)] // raw blocks

use super::class::{RECIPROCAL, RECIPROCAL_SHIFT, SIZES, SLAB_ORDER};
use crate::arch::PAGE;
use crate::arch::atomic::AtomicU64;
use crate::arch::atomic::Ordering::Relaxed;
use crate::page::Pfn;
use core::mem::MaybeUninit;
use core::slice;

/// A slab's descriptor; its bitmap follows it, and behind that, if slabs are checked, the one of what the program has.
#[repr(C)]
pub(super) struct Slab {
    /// Under the class's `partial` lock.
    pub(super) next: *mut Slab,
    pub(super) previous: *mut Slab,
    pub(super) on_list: bool,
    /// Constant.
    pub(super) class: u8,
    pub(super) node: u8,
    pub(super) objects: u16,
    /// Under the slab's bit lock.
    pub(super) free: u16,
    /// Likewise: nothing was drawn from it or came back since its free pages were given back.
    pub(super) trimmed: bool,
    pub(super) pfn: Pfn,
    pub(super) base: usize,
}

impl Slab {
    pub(super) const fn words(objects: usize) -> usize {
        objects.div_ceil(64)
    }
    pub(super) const fn bytes(objects: usize) -> usize {
        size_of::<Self>() + Self::words(objects) * 8
    }
    /// The bitmap.
    ///
    /// # Safety
    /// `slab` is live and its bit lock is held (or it is not public yet).
    pub(super) unsafe fn bitmap<'a>(slab: *mut Self) -> &'a mut [u64] {
        // SAFETY: the bitmap follows the descriptor in the same block.
        unsafe { slice::from_raw_parts_mut(slab.add(1).cast::<u64>(), Self::words((*slab).objects as usize)) }
    }
    /// Whether the program has object `index` (of a checked slab): the word and the bit of it.
    ///
    /// # Safety
    /// `slab` is live and has that many objects.
    pub(super) unsafe fn held<'a>(slab: *mut Self, index: usize) -> (&'a AtomicU64, u64) {
        // SAFETY: the second bitmap follows the first in the same block, and is only reached as atomics.
        let word = unsafe {
            let words = slab.add(1).cast::<AtomicU64>().add(Self::words((*slab).objects as usize));
            &*words.add(index / 64)
        };
        (word, 1 << (index % 64))
    }
    /// Whether an object is free: a look, for which nobody need hold anything.
    ///
    /// # Safety
    /// `slab` is live and has that many objects.
    pub(super) unsafe fn is_free(slab: *mut Self, index: usize) -> bool {
        // SAFETY: the bitmap follows the descriptor in the same block. Relaxed: others may be at other objects' bits.
        let word = unsafe { &*slab.add(1).cast::<AtomicU64>().add(index / 64) };
        word.load(Relaxed) >> (index % 64) & 1 == 1
    }
    /// Takes free objects, the lowest into the last of `slots`; how many. (By itself: what it needs of the stack is not its callers'.)
    ///
    /// # Safety
    /// As [`Slab::bitmap`].
    #[inline(never)]
    pub(super) unsafe fn take_free(slab: *mut Self, slots: &mut [MaybeUninit<usize>]) -> usize {
        let n = slots.len();
        let mut slots = slots.iter_mut().rev();
        // SAFETY: the caller's promise.
        unsafe {
            let (base, size) = ((*slab).base, SIZES[(*slab).class as usize] as usize);
            for (at, word) in Self::bitmap(slab).iter_mut().enumerate() {
                if slots.len() == 0 {
                    break;
                }
                let mut bits = *word;
                if bits == 0 {
                    continue;
                }
                let first = base + at * 64 * size;
                let n = (bits.count_ones() as usize).min(slots.len());
                let from = bits.trailing_zeros();
                let run = bits >> from;
                if run & run.wrapping_add(1) == 0 {
                    // All lie behind each other.
                    let mut next = first + from as usize * size;
                    for slot in slots.by_ref().take(n) {
                        slot.write(next);
                        next += size;
                    }
                    bits &= !(u64::MAX >> (64 - n) << from);
                } else {
                    // (Their runs differ, which no processor foresees: one by one.)
                    for slot in slots.by_ref().take(n) {
                        slot.write(first + bits.trailing_zeros() as usize * size);
                        bits &= bits - 1;
                    }
                }
                *word = bits;
            }
            let got = n - slots.len();
            (*slab).free -= got as u16;
            (*slab).trimmed = false;
            got
        }
    }
    /// Makes an object free while nothing is remarkable: the slab is not full, it is not the last one out, and the pointer is right.
    /// Whether it did.
    ///
    /// # Safety
    /// As [`Slab::bitmap`]; the shape is that of its class.
    #[inline(always)]
    pub(super) unsafe fn set_free_one(slab: *mut Self, shape: Shape, object: usize) -> bool {
        // SAFETY: the caller's promise; the index is one of its own.
        unsafe {
            let Some(index) = Shape { base: (*slab).base, ..shape }.index(object) else { return false };
            let free = (*slab).free as usize;
            let plain = free > 0 && free + 1 < shape.objects && !Self::is_free(slab, index);
            if plain {
                Self::set_free(slab, index);
            }
            plain
        }
    }
    /// Makes objects free while nothing is remarkable: neither another's pointer, nor one that is wrong, nor the last one
    /// out. How many. The bitmap's word is in a register from one stretch to the next.
    ///
    /// # Safety
    /// As [`Slab::bitmap`]; the shape is its.
    pub(super) unsafe fn set_free_run(slab: *mut Self, shape: &Shape, batch: &[usize]) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let most = (shape.objects - (*slab).free as usize).saturating_sub(1);
            let mut left = &batch[..batch.len().min(most)];
            let bitmap = Self::bitmap(slab);
            let (mut at, mut word, mut run) = (0, bitmap[0], 0);
            while let Some((index, stretch, bits)) = shape.stretch(left) {
                if index / 64 != at {
                    bitmap[at] = word;
                    at = index / 64;
                    word = bitmap[at];
                }
                if word & bits != 0 {
                    break;
                }
                word |= bits;
                run += stretch;
                left = &left[stretch..];
            }
            bitmap[at] = word;
            if run > 0 {
                (*slab).free += run as u16;
                (*slab).trimmed = false;
            }
            run
        }
    }
    /// Makes an object free.
    ///
    /// # Safety
    /// As [`Slab::bitmap`]; it has that many objects, and this one is not free.
    #[inline(always)]
    pub(super) unsafe fn set_free(slab: *mut Self, index: usize) {
        // SAFETY: the caller's promise; the bitmap follows the descriptor in the same block.
        unsafe {
            *slab.add(1).cast::<u64>().add(index / 64) |= 1 << (index % 64);
            (*slab).free += 1;
            (*slab).trimmed = false;
        }
    }
}

/// What of a slab never changes.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) base: usize,
    pub(super) size: usize,
    pub(super) objects: usize,
    pub(super) reciprocal: u64,
}

impl Shape {
    /// # Safety
    /// `slab` is live.
    pub(super) unsafe fn of(slab: *mut Slab) -> Self {
        // SAFETY: constant fields.
        let (base, class) = unsafe { ((*slab).base, (*slab).class as usize) };
        Self { base, ..Self::of_class(class) }
    }
    /// What is every slab's of a class.
    pub(super) fn of_class(class: usize) -> Self {
        let size = SIZES[class] as usize;
        Self { base: 0, size, objects: (PAGE << SLAB_ORDER[class]) / size, reciprocal: RECIPROCAL[class] }
    }
    /// Which object `address` is; none for what is inside of one, and for what is another slab's.
    #[inline]
    pub(super) fn index(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base);
        let index = (offset as u64).wrapping_mul(self.reciprocal) as usize >> RECIPROCAL_SHIFT;
        (index < self.objects && index * self.size == offset).then_some(index)
    }
    /// The first of the addresses, and those behind it that go on upwards or downwards object by object, within a word of the
    /// bitmap: which object it is, how many they are, their bits. What was allocated in order is often freed so.
    #[inline]
    pub(super) fn stretch(&self, batch: &[usize]) -> Option<(usize, usize, u64)> {
        let (&first, rest) = batch.split_first()?;
        let (index, up) = (self.index(first)?, self.size);
        let step = rest.first().map_or(0, |next| next.wrapping_sub(first));
        let bit = index % 64;
        let most = if step == up {
            63.min(self.objects - 1 - (index - bit)) - bit
        } else if step == up.wrapping_neg() {
            bit
        } else {
            return Some((index, 1, 1 << bit));
        };
        let more = in_steps(first, step, &rest[..rest.len().min(most)]);
        let lowest = if step == up { bit } else { bit - more };
        Some((index, 1 + more, u64::MAX >> (63 - more) << lowest))
    }
}

/// How many of `addresses` go on behind `first` in steps, without a gap. By four, as one condition: nearly all are, or none is.
#[inline]
fn in_steps(first: usize, step: usize, addresses: &[usize]) -> usize {
    let mut last = first;
    let mut on = |&address: &usize| {
        last = last.wrapping_add(step);
        address ^ last
    };
    let (fours, _) = addresses.as_chunks::<4>();
    let whole = 4 * fours.iter().take_while(|four| four.iter().map(&mut on).fold(0, |all, off| all | off) == 0).count();
    let mut last = first.wrapping_add(step.wrapping_mul(whole));
    let goes_on = |address: &&usize| {
        last = last.wrapping_add(step);
        **address == last
    };
    whole + addresses[whole..].iter().take_while(goes_on).count()
}
