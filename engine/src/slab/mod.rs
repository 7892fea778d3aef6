//! # `slab`: objects up to 16 KiB
//!
//! ```text
//! node, class ─► partial ──► Slab ⇄ Slab ⇄ …  slabs with free objects, not in a refiller's hands
//!                       │ bitmap: 1 = free      (external: nothing is written into a free object)
//!                       └► pages [ object │ object │ … ]   descriptors and class bytes lead back
//! ```
//! Objects travel between slabs and the per-CPU sets in whole sheaves; an object
//! in a sheaf counts as taken here. Where a pointer's slab is, its page's
//! descriptor says; which object it is, one multiplication (`bits.rs`).
//!
//! | slab is | on the partial list | free objects |
//! |---|---|---|
//! | full | no | 0 |
//! | partial | yes | some |
//! | in hand (being filled from) | no | some |
//! | empty | goes back to `page` at once, unless in hand | all |
//!
//! A slab belongs to the node of its pages and is listed there.
//!
//! Locks: `partial` of a node and class, then one of 64 `bits` locks (by slab), once
//! for those that come back one behind the other. Double, interior and foreign frees are seen when a
//! pointer comes back here, reported and refused.
//!
//! *Checked* (knob `bad_free=abort` when the heap opens), a slab has a second bitmap, of the objects that the program has,
//! and each `malloc` and `free` passes by: a wrong pointer is seen by the `free` that brings it.
//! Cost: per sheaf one list lock, and a bit lock per slab touched.
#![allow(unsafe_code)] // slab descriptors are raw blocks

mod bits;
pub mod class;

use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicBool, AtomicIsize, AtomicU64};
use crate::arch::lock::{Guard, Lock};
use crate::arch::sys::program_is_single;
use crate::arch::{PAGE, prefetch};
use crate::cache::{Cache, Sheaf, Source};
use crate::cpu::NODES;
use crate::page::{BIASED, Kind, PageSource, Pages};
use crate::stat::{BadPointer, Event, Level, Mode};
use bits::{Shape, Slab};
use class::{CLASSES, SIZES, SLAB_ORDER, SLAB_PAGES_MAX};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::slice;

const BIT_LOCKS: usize = 64;
/// Objects whose slabs are looked up together: what has to be waited for is waited for at once.
const TOGETHER: usize = 16;
/// Objects to a page from which they are drawn in order rather than taken as they were freed: what is written one behind the other
/// should lie so.
const DENSE: usize = 32;
/// Bytes of free objects in a class's slabs from which these may be hollow.
const HOLLOW: usize = 512 << 10;
/// Slabs that a `free` visits at most: of objects from everywhere each costs two misses.
pub(crate) const VISITS: usize = 192;

/// The slabs of all classes.
#[derive(Debug)]
pub struct Slabs {
    /// By node and class.
    partial: [[Lock<Partial>; CLASSES]; NODES],
    bits: [BitLock; BIT_LOCKS],
    /// By class: free objects in slabs.
    free: [AtomicIsize; CLASSES],
    /// Set before the first slab is made.
    checked: AtomicBool,
}

/// On a line of its own: other CPUs take those beside it.
#[derive(Debug)]
#[repr(align(64))]
struct BitLock(Lock<()>);

#[derive(Debug)]
struct Partial(*mut Slab);
// SAFETY: the slabs of the list belong to whoever holds the lock.
unsafe impl Send for Partial {}

/// The slabs with what they need: the source of the size classes.
#[derive(Debug)]
pub struct SlabSource<'a> {
    /// The slabs.
    pub slabs: &'a Slabs,
    /// Sets, barns, blocks, knobs.
    pub cache: &'a Cache,
    /// The page layer.
    pub pages: &'a Pages,
    /// Told of a pointer that cannot be freed.
    pub report: fn(usize, BadPointer),
}

impl Default for Slabs {
    fn default() -> Self {
        Self::new()
    }
}

impl Slabs {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            partial: [const { [const { Lock::new(Partial(core::ptr::null_mut())) }; CLASSES] }; NODES],
            bits: [const { BitLock(Lock::new(())) }; BIT_LOCKS],
            free: [const { AtomicIsize::new(0) }; CLASSES],
            checked: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    fn bit_lock(&self, slab: *mut Slab) -> Guard<'_, ()> {
        self.bits[(slab as usize >> 7) % BIT_LOCKS].0.lock_brief()
    }

    /// A slab of the list, now in the caller's hand.
    fn take_partial(&self, node: usize, class: usize) -> Option<*mut Slab> {
        let mut partial = self.partial[node][class].lock();
        let slab = NonNull::new(partial.0)?.as_ptr();
        // SAFETY: the head of the list is on it.
        unsafe { partial.remove(slab) };
        Some(slab)
    }

    /// Free objects in a class's slabs, all nodes'; a look.
    #[must_use]
    pub fn free(&self, class: usize) -> usize {
        // Relaxed, as what counts it.
        self.free[class].load(Relaxed).max(0) as usize
    }

    /// From now on slabs know what the program has. Before the first is made.
    pub fn check(&self) {
        // Relaxed: the heap opens later.
        self.checked.store(true, Relaxed);
    }
    /// Whether they do.
    #[inline]
    pub fn is_checked(&self) -> bool {
        self.checked.load(Relaxed)
    }
}

impl Partial {
    /// # Safety
    /// `slab` is live, of this class, and not on the list.
    unsafe fn add(&mut self, slab: *mut Slab) {
        // SAFETY: the list's slabs are live and the list's lock is held.
        unsafe {
            (*slab).next = self.0;
            (*slab).previous = core::ptr::null_mut();
            (*slab).on_list = true;
            if let Some(next) = NonNull::new(self.0) {
                (*next.as_ptr()).previous = slab;
            }
        }
        self.0 = slab;
    }
    /// # Safety
    /// `slab` is on the list.
    unsafe fn remove(&mut self, slab: *mut Slab) {
        // SAFETY: as in `add`.
        unsafe {
            let (next, previous) = ((*slab).next, (*slab).previous);
            match NonNull::new(previous) {
                Some(previous) => (*previous.as_ptr()).next = next,
                None => self.0 = next,
            }
            if let Some(next) = NonNull::new(next) {
                (*next.as_ptr()).previous = previous;
            }
            (*slab).on_list = false;
        }
    }
}

impl SlabSource<'_> {
    fn page_source(&self) -> PageSource<'_> {
        PageSource { pages: self.pages, cache: self.cache, first: CLASSES }
    }

    /// Counts and reports a pointer.
    pub fn bad(&self, address: usize, wrong: BadPointer) {
        self.cache.sets.count(Event::BadFree, 1);
        (self.report)(address, wrong);
    }

    /// Bytes of a slab's block.
    fn block_bytes(&self, objects: usize) -> usize {
        Slab::bytes(objects) + if self.slabs.is_checked() { Slab::words(objects) * 8 } else { 0 }
    }

    /// The word and the bit of a checked object; `None` if its page is no slab's.
    fn held(&self, address: usize) -> Result<Option<(&AtomicU64, u64)>, BadPointer> {
        let Some((slab, _)) = self.find(address) else { return Ok(None) };
        // SAFETY: live while one of its objects is out; else as in `find`. The index is one of its own.
        unsafe { Ok(Some(Slab::held(slab, Shape::of(slab).index(address).ok_or(BadPointer::Interior)?))) }
    }

    /// The program gets this object of a checked slab (others are nothing to it).
    pub fn hand_out(&self, address: usize) {
        if let Ok(Some((word, bit))) = self.held(address) {
            // Relaxed, here and below: whoever frees it has it from whoever got it.
            word.fetch_or(bit, Relaxed);
        }
    }

    /// The program gives this object of a checked slab back.
    ///
    /// # Errors
    /// It has no such object.
    pub fn hand_in(&self, address: usize) -> Result<(), BadPointer> {
        match self.held(address)? {
            Some((word, bit)) if word.fetch_and(!bit, Relaxed) & bit == 0 => Err(BadPointer::Double),
            _ => Ok(()),
        }
    }

    /// Whether the program has this object of a checked slab.
    ///
    /// # Errors
    /// It has not.
    pub fn look(&self, address: usize) -> Result<(), BadPointer> {
        match self.held(address)? {
            Some((word, bit)) if word.load(Relaxed) & bit == 0 => Err(BadPointer::Double),
            _ => Ok(()),
        }
    }

    /// A new slab, in the caller's hand.
    fn make(&self, class: usize) -> Option<*mut Slab> {
        let order = SLAB_ORDER[class] as usize;
        let (size, pages) = (SIZES[class] as usize, 1 << order);
        let objects = (PAGE << order) / size;
        let board = self.cache.sets.board();
        let source = self.page_source();
        let pfn = source.alloc(order)?;
        let Some(block) = self.cache.meta.alloc(board, self.block_bytes(objects)) else {
            // SAFETY: the block is ours and unused.
            unsafe { source.free(pfn, order) };
            return None;
        };
        let slab = block.cast::<Slab>().as_ptr();
        let windows = &self.pages.windows;
        // SAFETY: a fresh block of that size, ours alone until its objects are handed out;
        // the pages are ours and hold no object.
        unsafe {
            slab.write(Slab {
                next: core::ptr::null_mut(),
                previous: core::ptr::null_mut(),
                on_list: false,
                class: class as u8,
                node: windows.zone(pfn) as u8,
                objects: objects as u16,
                free: objects as u16,
                trimmed: false,
                pfn,
                base: windows.address(pfn),
            });
            let bitmap = Slab::bitmap(slab);
            bitmap.fill(u64::MAX);
            if !objects.is_multiple_of(64) {
                bitmap[objects / 64] = (1 << (objects % 64)) - 1;
            }
            if self.slabs.is_checked() {
                let words = (0..Slab::words(objects)).map(|word| Slab::held(slab, word * 64).0);
                words.for_each(|word| word.store(0, Relaxed));
            }
            for page in 0..pages {
                let desc = windows.desc(pfn.add(page));
                desc.link.store(slab as u64, Relaxed);
                desc.set(Kind::Slab, 0);
            }
            // The class byte is the fast paths'; the checked have none (see `heap`).
            match self.cache.sets.mode() {
                _ if self.slabs.is_checked() => {}
                Mode::Sequences => windows.set_class(pfn, pages, class as u8),
                Mode::Fallback => windows.set_class(pfn, pages, class as u8 | BIASED),
                Mode::Closed | Mode::Simulated => {}
            }
        }
        self.note_slab(class, objects, true);
        self.cache.grew();
        Some(slab)
    }

    /// A slab of a class with so many free objects is made, or gone. (Out of line: a drain needs nothing of this frame.)
    #[inline(never)]
    fn note_slab(&self, class: usize, objects: usize, is_made: bool) {
        let (bytes, board) = (PAGE << SLAB_ORDER[class], self.cache.sets.board());
        if is_made {
            board.raise(Level::Slabs, bytes);
        } else {
            board.lower(Level::Slabs, bytes);
        }
        let sign = if is_made { 1 } else { -1 };
        if SIZES[class] as usize > PAGE {
            self.pages.note_long(sign * (bytes / PAGE) as isize);
        }
        self.slabs.free[class].fetch_add(sign * objects as isize, Relaxed);
        board.class[class].slabs.fetch_add(sign as u64, Relaxed);
        self.cache.sets.count(if is_made { Event::AllocSlab } else { Event::FreeSlab }, 1);
    }

    /// Gives a slab's pages back.
    ///
    /// # Safety
    /// The slab is in our hand and all its objects are free.
    unsafe fn unmake(&self, slab: *mut Slab) {
        // SAFETY: ours alone: no object of it is out, so nobody looks it up any more.
        unsafe {
            let (class, pfn, objects) = ((*slab).class as usize, (*slab).pfn, (*slab).objects as usize);
            let order = SLAB_ORDER[class] as usize;
            let windows = &self.pages.windows;
            windows.set_class(pfn, 1 << order, 0);
            for page in 0..1 << order {
                windows.desc(pfn.add(page)).set(Kind::None, 0);
            }
            windows.desc(pfn).set(Kind::Pages, order as u32);
            self.cache.meta.free(NonNull::new_unchecked(slab).cast(), self.block_bytes(objects));
            self.note_slab(class, objects, false);
            self.page_source().free(pfn, order);
        }
    }

    /// Takes objects out of slabs, the lowest into the last of `slots`; how many.
    fn draw(&self, class: usize, slots: &mut [MaybeUninit<usize>]) -> usize {
        let node = self.cache.sets.cpus.node();
        let mut empty = slots.len();
        while empty > 0 {
            // Another node's objects only when there is no memory for new ones.
            let found =
                self.slabs.take_partial(node, class).or_else(|| self.make(class)).or_else(|| {
                    (0..self.cache.sets.cpus.nodes()).find_map(|other| self.slabs.take_partial(other, class))
                });
            let Some(slab) = found else { break };
            let left = {
                let _bits = self.slabs.bit_lock(slab);
                // SAFETY: the slab is in our hand and its bit lock held.
                unsafe {
                    empty -= Slab::take_free(slab, &mut slots[..empty]);
                    (*slab).free
                }
            };
            if left > 0 {
                // SAFETY: in our hand, and not full.
                unsafe { self.relinquish(class, slab) };
            }
        }
        let got = slots.len() - empty;
        self.account(class, got, true);
        got
    }

    /// Puts a slab on its list again, or gives it back if it is empty by now.
    ///
    /// # Safety
    /// The slab is in our hand and was not full when it last left the bit lock: whoever
    /// brought objects meanwhile saw that, so the list is ours to put it on.
    unsafe fn relinquish(&self, class: usize, slab: *mut Slab) {
        // SAFETY: on no list, and nobody else unmakes it. Its node is constant.
        unsafe {
            let mut partial = self.slabs.partial[(*slab).node as usize][class].lock();
            let bits = self.slabs.bit_lock(slab);
            if (*slab).free < (*slab).objects {
                partial.add(slab);
            } else {
                drop((bits, partial));
                self.unmake(slab);
            }
        }
    }

    /// Gives the free pages inside partly used slabs back to the system, or less if somebody waits; the bytes.
    pub fn trim(&self, waits: impl Fn() -> bool) -> usize {
        let lists = (0..self.cache.sets.cpus.nodes()).flat_map(|node| (1..CLASSES).map(move |class| (node, class)));
        lists.map(|(node, class)| self.trim_list(node, class, &waits)).sum()
    }

    fn trim_list(&self, node: usize, class: usize, waits: &impl Fn() -> bool) -> usize {
        // The whole list into our hand; who wants objects meanwhile makes a new slab.
        let mut next = {
            let mut partial = self.slabs.partial[node][class].lock();
            let first = core::mem::replace(&mut partial.0, core::ptr::null_mut());
            let mut at = first;
            while let Some(slab) = NonNull::new(at) {
                // SAFETY: slabs on the list are live while it is locked.
                unsafe {
                    (*slab.as_ptr()).on_list = false;
                    at = (*slab.as_ptr()).next;
                }
            }
            first
        };
        let mut bytes = 0;
        while let Some(slab) = NonNull::new(next) {
            // SAFETY: in our hand, so live and its link ours; on the list it was not full.
            unsafe {
                next = (*slab.as_ptr()).next;
                if !waits() {
                    bytes += self.trim_slab(class, slab.as_ptr());
                }
                self.relinquish(class, slab.as_ptr());
            }
        }
        bytes
    }

    /// # Safety
    /// The slab is in our hand.
    unsafe fn trim_slab(&self, class: usize, slab: *mut Slab) -> usize {
        let (size, pages) = (SIZES[class] as usize, 1_usize << SLAB_ORDER[class]);
        // SAFETY: live, in our hand.
        let (pfn, objects) = unsafe { ((*slab).pfn, (*slab).objects as usize) };
        let mut empty = [false; SLAB_PAGES_MAX + 1];
        {
            let _bits = self.slabs.bit_lock(slab);
            // SAFETY: its bit lock is held.
            unsafe {
                if core::mem::replace(&mut (*slab).trimmed, true) {
                    return 0;
                }
                for (page, empty) in empty[..pages].iter_mut().enumerate() {
                    let first = page * PAGE / size;
                    let end = ((page + 1) * PAGE).div_ceil(size).min(objects);
                    *empty = (first..end).all(|index| Slab::is_free(slab, index));
                }
            }
        }
        let board = self.cache.sets.board();
        // Nobody draws from a slab in our hand, so what is empty stays so.
        let (mut page, mut bytes) = (0, 0);
        while page < pages {
            let first = page;
            while empty[page] {
                page += 1;
            }
            let run = (page - first) * PAGE;
            // SAFETY: pages of ours that hold no live object.
            if run > 0 && unsafe { self.pages.give_back(board, pfn.add(first), page - first) } {
                bytes += run;
            }
            page += 1;
        }
        bytes
    }

    /// Takes objects back into their slabs, in so many visits at most; how many, of the first.
    fn put_back(&self, class: usize, objects: &[usize], visits: usize) -> usize {
        let (mut rest, mut left, mut good) = (objects, visits, 0);
        loop {
            let singles = self.put_back_singles(class, &rest[..rest.len().min(left)]);
            (rest, left, good) = (&rest[singles..], left - singles, good + singles);
            let (Some(&first), 1..) = (rest.first(), left) else { break };
            let (right, all) = match self.slab_of(first, class) {
                Some(slab) => self.put_back_run(class, slab, rest),
                None => {
                    self.bad(first, BadPointer::Foreign);
                    (0, 1)
                }
            };
            (rest, left, good) = (&rest[all..], left - 1, good + right);
        }
        self.account(class, good, false);
        objects.len() - rest.len()
    }

    /// Takes objects back one by one, up to one whose slab has the next, too, or with which something is remarkable (see
    /// [`Slab::set_free_one`]); how many. (By itself: what it needs of the stack is not its caller's.)
    #[inline(never)]
    fn put_back_singles(&self, class: usize, objects: &[usize]) -> usize {
        let shape = Shape::of_class(class);
        let mut done = 0;
        for some in objects.chunks(TOGETHER) {
            // (What was allocated in order is seen without a look.)
            if matches!(some, [first, second, ..] if first.abs_diff(*second) == shape.size) {
                break;
            }
            let mut slabs = [core::ptr::null_mut(); TOGETHER + 1];
            for (slab, &object) in slabs.iter_mut().zip(some) {
                *slab = self.slab_at(object).unwrap_or_default();
                prefetch(*slab);
            }
            for (&object, next) in some.iter().zip(slabs.windows(2)) {
                let slab = next[0];
                if slab.is_null() || slab == next[1] {
                    return done;
                }
                let _bits = self.slabs.bit_lock(slab);
                // SAFETY: live while its object is out, as it was when all were looked up: none of them is the last of its slab. (For a
                // pointer that was freed already, as in `find`.) Its bit lock is held.
                if !unsafe { (*slab).class as usize == class && Slab::set_free_one(slab, shape, object) } {
                    return done;
                }
                done += 1;
            }
        }
        done
    }

    /// Takes those of `objects` back that come first and are one slab's, which has the first: up to another's, the last one out, or one
    /// that is wrong and is told; how many were right, and how many there were.
    ///
    /// The last object out is what keeps a slab alive, so its bit is set only under the
    /// list's lock, where it is known whether the slab may go.
    fn put_back_run(&self, class: usize, slab: *mut Slab, objects: &[usize]) -> (usize, usize) {
        let (mut last, mut wrong) = (None, None);
        let (joins, mut all);
        // SAFETY: live: the first object is out.
        let shape = unsafe { Shape::of(slab) };
        {
            let _bits = self.slabs.bit_lock(slab);
            // SAFETY: as above; its bit lock is held.
            unsafe {
                let was_full = (*slab).free == 0;
                all = Slab::set_free_run(slab, &shape, objects);
                if let Some(&object) = objects.get(all)
                    && (all == 0 || object.wrapping_sub(shape.base) < PAGE << SLAB_ORDER[class])
                {
                    all += 1;
                    match shape.index(object) {
                        None => wrong = Some((object, BadPointer::Interior)),
                        Some(index) if Slab::is_free(slab, index) => wrong = Some((object, BadPointer::Double)),
                        Some(index) if (*slab).free + 1 == (*slab).objects => last = Some(index),
                        Some(index) => Slab::set_free(slab, index),
                    }
                }
                joins = was_full && (*slab).free > 0;
            }
        }
        if joins || last.is_some() {
            self.relist(class, slab, joins, last);
        }
        if let Some((address, how)) = wrong {
            self.bad(address, how);
        }
        (all - usize::from(wrong.is_some()), all)
    }

    /// After a slab stopped being full (`joins`) or is about to be empty (`last`).
    fn relist(&self, class: usize, slab: *mut Slab, joins: bool, last: Option<usize>) {
        let empty = {
            // SAFETY: live, as below; its node is constant.
            let node = unsafe { (*slab).node } as usize;
            let mut partial = self.slabs.partial[node][class].lock();
            // SAFETY: live: if it joins, it is on no list and in no hand, so nobody else can
            // unmake it; if not, its last object is still out.
            unsafe {
                let _bits = self.slabs.bit_lock(slab);
                let mut joins = joins;
                if let Some(index) = last.filter(|&index| !Slab::is_free(slab, index)) {
                    // Somebody may have drawn all the others meanwhile.
                    joins |= (*slab).free == 0;
                    Slab::set_free(slab, index);
                }
                if joins {
                    partial.add(slab);
                }
                let empty = (*slab).free == (*slab).objects && (*slab).on_list;
                if empty {
                    partial.remove(slab);
                }
                empty
            }
        };
        if empty {
            // SAFETY: off the list under the locks, with all objects free: ours.
            unsafe { self.unmake(slab) };
        }
    }

    fn account(&self, class: usize, objects: usize, taken: bool) {
        if objects == 0 {
            return;
        }
        let (sets, sign) = (&self.cache.sets, if taken { 1 } else { -1 });
        sets.take(class, sign * objects as isize);
        self.slabs.free[class].fetch_sub(sign * objects as isize, Relaxed);
        if sets.shift(Level::Taken, sign * (objects * SIZES[class] as usize) as isize) && taken {
            sets.board().grown();
        }
    }

    /// The slab of an address, if it is one of `class`.
    fn slab_of(&self, address: usize, class: usize) -> Option<*mut Slab> {
        let (slab, found) = self.find(address)?;
        (found == class).then_some(slab)
    }

    /// The class of the object at an address, by its page's descriptor.
    #[must_use]
    pub fn class_of(&self, address: usize) -> Option<usize> {
        self.find(address).map(|(_, class)| class)
    }

    /// Whether an object that is out begins at an address, as far as its slab knows.
    #[must_use]
    pub fn is_object(&self, address: usize) -> bool {
        self.find(address).is_some_and(|(slab, _)| {
            // SAFETY: as in `find`.
            unsafe { Shape::of(slab).index(address).is_some_and(|index| !Slab::is_free(slab, index)) }
        })
    }

    /// The slab of an address's page, and its class.
    fn find(&self, address: usize) -> Option<(*mut Slab, usize)> {
        let slab = self.slab_at(address)?;
        // SAFETY: live while one of its objects is out; for a pointer that was freed already
        // it may be gone, but its block is never unmapped.
        let class = unsafe { (*slab).class } as usize;
        (1..CLASSES).contains(&class).then_some((slab, class))
    }

    /// What the page of an address says that its slab is.
    #[inline(always)]
    fn slab_at(&self, address: usize) -> Option<*mut Slab> {
        let (_, desc) = self.pages.windows.look(address)?;
        (desc.kind() == Kind::Slab).then(|| desc.link.load(Relaxed) as *mut Slab)
    }

    /// Checks every listed slab; for tests.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn verify(&self) {
        for (node, class) in (0..NODES).flat_map(|node| (1..CLASSES).map(move |class| (node, class))) {
            let partial = self.slabs.partial[node][class].lock();
            let mut at = partial.0;
            let mut previous = core::ptr::null_mut();
            while !at.is_null() {
                let _bits = self.slabs.bit_lock(at);
                // SAFETY: slabs on the list are live while it is locked.
                unsafe {
                    assert!((*at).on_list && (*at).previous == previous);
                    assert!((*at).node as usize == node && (*at).class as usize == class);
                    let ones: u32 = Slab::bitmap(at).iter().map(|word| word.count_ones()).sum();
                    assert_eq!(ones, u32::from((*at).free));
                    assert!((*at).free > 0);
                    previous = at;
                    at = (*at).next;
                }
            }
        }
    }
}

/// Whether objects come from everywhere: of four pairs that lie side by side in their sheaf, most do not in memory.
fn are_scattered(objects: &[usize]) -> bool {
    let pairs = objects.chunks_exact(2).step_by((objects.len() / 8).max(1));
    pairs.filter(|pair| pair[0].abs_diff(pair[1]) >= 2 * PAGE).count() > 2
}

impl Source for SlabSource<'_> {
    fn fill(&self, class: usize, sheaf: &mut Sheaf, n: usize) {
        // Lowest address last in, first out: fresh pages are touched in order.
        sheaf.fill(n, |slots| self.draw(class, slots));
        self.cache.sets.count(Event::SheafRefill, 1);
    }
    fn flush(&self, class: usize, sheaf: &mut Sheaf) {
        self.put_back(class, sheaf.objects(), usize::MAX);
        sheaf.clear();
        self.cache.sets.count(Event::SheafFlush, 1);
    }
    fn relieve(&self, class: usize, sheaf: &mut Sheaf) {
        let gone = self.put_back(class, sheaf.objects(), VISITS);
        sheaf.forget_oldest(gone);
        self.cache.sets.count(Event::SheafFlush, 1);
    }
    fn take(&self, class: usize) -> Option<usize> {
        let mut object = MaybeUninit::uninit();
        // SAFETY: written, if that is one.
        (self.draw(class, slice::from_mut(&mut object)) == 1).then(|| unsafe { object.assume_init() })
    }
    fn give(&self, class: usize, object: usize) {
        self.put_back(class, &[object], 1);
    }
    fn size(&self, class: usize) -> usize {
        SIZES[class] as usize
    }
    fn is_near(&self, object: usize) -> bool {
        self.page_source().is_near(object)
    }
    fn is_hollow(&self, class: usize) -> bool {
        let board = self.cache.sets.board();
        let slots =
            (PAGE << SLAB_ORDER[class]) / SIZES[class] as usize * board.class[class].slabs.load(Relaxed) as usize;
        let free = self.slabs.free(class);
        free * SIZES[class] as usize >= HOLLOW && free * 2 > slots
    }
    fn is_scattered(&self, class: usize, objects: &[usize]) -> bool {
        // (Where there are more threads another may want them as they are, and need not visit their slabs.)
        SIZES[class] as usize * DENSE <= PAGE && program_is_single() && are_scattered(objects)
    }
}

#[cfg(test)]
mod tests;
