//! # Nodes: the front, where the areas freed last wait, by exact size
//!
//! ```text
//! node of a CPU index   held │ bits: which lists have something │ heads[64] ──► area ──► area ──► …
//!                                                                  list = pages mod 64, linked through descriptors
//! ```
//! A free puts its area on the list of the node of the CPU index that runs it; an allocation looks there
//! first and then at the other nodes whose bit is set, so that what one thread frees another finds (Linux
//! `mm/vmalloc.c`, `struct vmap_node`). Nobody waits for a node: who finds it held goes to the next, or to the
//! lists of the space under its lock. So a preempted holder stops nobody, and a fork that holds all nodes
//! leaves the way through the space.
//!
//! | `held` | meaning |
//! |---|---|
//! | 0 | free |
//! | 1 | in somebody's turn: a few loads and stores, nothing that sleeps |
//! | 2 | held by a fork |
//!
//! Units: pages. Invariant: an area is on one list or in one hand; a bit is set exactly while its list has
//! something. Ordering: a turn begins with Acquire and ends with Release, which orders lists and descriptors.
//! Cost: one compare-and-swap for a turn (none while the process has one thread).

use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicU32, AtomicU64};
use crate::arch::sys;
use crate::page::{Kind, Pfn, Windows};

/// Lists of a node; sizes that differ by this many pages share one.
pub const LISTS: usize = 64;
/// Areas of a list looked at for one of the right size, alignment and kind.
const LOOKS: usize = 16;
/// How long who must have the node sleeps between two looks, in ns.
const PATIENCE: u64 = 50_000;
/// How often.
const TRIES: usize = 100;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Lists of lazily freed areas. Atomics only because others peek; who changes them has a turn or a lock.
#[derive(Debug)]
pub struct Lists {
    bits: AtomicU64,
    heads: [AtomicU32; LISTS],
    /// Areas here.
    count: AtomicU32,
}

/// What an allocation wants.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Exactly so many pages.
    pub pages: usize,
    /// Aligned to so many.
    pub align: usize,
    /// With these of the bits `mask` in the descriptor's rest.
    pub flags: u32,
    /// See `flags`.
    pub mask: u32,
}

impl Default for Lists {
    fn default() -> Self {
        Self::new()
    }
}

impl Lists {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self { bits: AtomicU64::new(0), heads: [const { AtomicU32::new(0) }; LISTS], count: AtomicU32::new(0) }
    }

    /// Whether the list of that size has something; a look without a turn, which may be out of date.
    #[inline]
    pub fn may_have(&self, pages: usize) -> bool {
        self.bits.load(Relaxed) >> (pages % LISTS) & 1 != 0
    }

    /// Whether there is anything; likewise.
    pub fn is_empty(&self) -> bool {
        self.bits.load(Relaxed) == 0
    }

    /// Areas here.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Puts an area.
    #[inline]
    pub fn put(&self, windows: &Windows, area: Pfn, pages: usize) {
        let list = pages % LISTS;
        let head = &self.heads[list];
        windows.desc(area).set_links(Pfn(head.load(Relaxed)), Pfn::NONE);
        head.store(area.0, Relaxed);
        self.bits.store(self.bits.load(Relaxed) | 1 << list, Relaxed);
        self.count.store(self.count.load(Relaxed) + 1, Relaxed);
    }

    /// Takes an area that fits.
    #[inline]
    pub fn take(&self, windows: &Windows, want: Want) -> Option<Pfn> {
        let list = want.pages % LISTS;
        let head = &self.heads[list];
        let (mut previous, mut at) = (Pfn::NONE, Pfn(head.load(Relaxed)));
        for _ in 0..LOOKS {
            if at == Pfn::NONE {
                return None;
            }
            let desc = windows.desc(at);
            let next = desc.links().0;
            if desc.len() == want.pages
                && desc.rest() & want.mask == want.flags
                && (at.0 as usize).is_multiple_of(want.align)
            {
                self.unlink(windows, list, previous, next);
                return Some(at);
            }
            (previous, at) = (at, next);
        }
        None
    }

    /// Takes just this area out, if it is here and not far down its list.
    #[cold]
    pub fn take_this(&self, windows: &Windows, area: Pfn, pages: usize) -> bool {
        let list = pages % LISTS;
        let (mut previous, mut at) = (Pfn::NONE, Pfn(self.heads[list].load(Relaxed)));
        for _ in 0..LISTS {
            if at == Pfn::NONE {
                return false;
            }
            let next = windows.desc(at).links().0;
            if at == area && windows.desc(at).len() == pages {
                self.unlink(windows, list, previous, next);
                return true;
            }
            (previous, at) = (at, next);
        }
        false
    }

    /// What is behind `previous` on a list is `next` now.
    #[inline(always)]
    fn unlink(&self, windows: &Windows, list: usize, previous: Pfn, next: Pfn) {
        if previous != Pfn::NONE {
            windows.desc(previous).set_links(next, Pfn::NONE);
        } else {
            self.heads[list].store(next.0, Relaxed);
            if next == Pfn::NONE {
                self.bits.store(self.bits.load(Relaxed) & !(1 << list), Relaxed);
            }
        }
        self.count.store(self.count.load(Relaxed) - 1, Relaxed);
    }

    /// Takes everything: the heads of the lists, and how many areas there are.
    pub fn take_all(&self) -> ([Pfn; LISTS], u32) {
        let mut heads = [Pfn::NONE; LISTS];
        let mut bits = self.bits.load(Relaxed);
        while bits != 0 {
            let list = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            heads[list] = Pfn(self.heads[list].load(Relaxed));
            self.heads[list].store(0, Relaxed);
        }
        self.bits.store(0, Relaxed);
        let count = self.count.load(Relaxed);
        self.count.store(0, Relaxed);
        (heads, count)
    }
}

impl Lists {
    /// Checks the lists, for tests, and tells of each area's pages.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn verify(&self, windows: &Windows, each: &mut impl FnMut(usize)) {
        let mut count = 0;
        for (list, head) in self.heads.iter().enumerate() {
            let mut at = Pfn(head.load(Relaxed));
            assert_eq!(self.bits.load(Relaxed) >> list & 1 != 0, at != Pfn::NONE, "a bit says otherwise");
            while at != Pfn::NONE {
                let desc = windows.desc(at);
                assert_eq!((desc.kind(), desc.len() % LISTS), (Kind::Lazy, list));
                each(desc.len());
                count += 1;
                at = desc.links().0;
            }
        }
        assert_eq!(count, self.count.load(Relaxed));
    }
}

/// The lists of some CPU indices. On lines of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Node {
    held: AtomicU32,
    lists: Lists,
}

/// The right to a node's lists.
#[derive(Debug)]
pub struct Turn<'a> {
    node: &'a Node,
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

impl Node {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self { held: AtomicU32::new(FREE), lists: Lists::new() }
    }

    /// See [`Lists::may_have`].
    #[inline]
    pub fn may_have(&self, pages: usize) -> bool {
        self.lists.may_have(pages)
    }

    /// Its lists, for a look.
    pub(super) fn lists(&self) -> &Lists {
        &self.lists
    }

    /// See [`Lists::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// A turn, if nobody has one.
    #[inline]
    pub fn enter(&self) -> Option<Turn<'_>> {
        // Without a locked instruction while the process has one thread, see `Lock::lock_elided`.
        if sys::single_threaded() {
            if self.held.load(Relaxed) != FREE {
                return None;
            }
            self.held.store(HELD, Relaxed);
        } else {
            // Acquire: pairs with the Release of the turn before.
            self.held.compare_exchange(FREE, HELD, Acquire, Relaxed).ok()?;
        }
        Some(Turn { node: self })
    }

    /// A turn, waited for. `None` if its holder does not come to run.
    pub fn enter_patiently(&self) -> Option<Turn<'_>> {
        for _ in 0..TRIES {
            if let Some(turn) = self.enter() {
                return Some(turn);
            }
            // The turn is over in a few ns, unless its thread was preempted: nobody wakes us.
            sys::futex_wait_for(&self.held, HELD, PATIENCE);
        }
        None
    }
}

impl core::ops::Deref for Turn<'_> {
    type Target = Lists;
    #[inline]
    fn deref(&self) -> &Lists {
        &self.node.lists
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: what was done to the lists is seen by the next turn.
        self.node.held.store(FREE, Release);
    }
}
