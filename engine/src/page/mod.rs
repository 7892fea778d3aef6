//! # `page`: pages, zones, and who owns an address
//!
//! [`region`] has the windows of address space, their descriptors and class
//! maps; [`zone`] the buddy allocator of each node; this module the page
//! layer's door: blocks of an order, through the per-CPU page lists.
//!
//! The page lists are classes of the per-CPU set like any other: class
//! `PAGES + i` caches blocks of order [`LISTED`]`[i]`. One mechanism (sheaf,
//! spare, barn, drain) serves objects and pages.
//!
//! Lock order here: barn, then zone (never both held). Cost: order 0–3 and 9
//! as a small object; other orders one zone lock.

mod api;
pub mod region;
pub mod zone;

pub use api::{Error, Flags, ListStats, ZoneStats};
pub use region::{Desc, Kind, Paging, Pfn, Regions};
pub use zone::{ORDERS, Zone};

use crate::arch::PAGE;
use crate::arch::sys::{self, Advice};
use crate::percpu::{Cache, NODES, Sheaf, Source};
use crate::stat::{Board, Event};

/// Orders that have per-CPU lists: the kernel's (order 9 is a huge page).
pub const LISTED: [usize; 5] = [0, 1, 2, 3, 9];
/// In a descriptor's tag: the block is the program's own.
const USER_BIT: u32 = 1 << 13;
/// And goes back past the lists, to another node's zone.
pub const FAR_BIT: u32 = 1 << 14;
/// Both.
pub const USER_BITS: u32 = USER_BIT | FAR_BIT;
/// The tag of a user's block of order 0; a higher order is added at bit 8.
pub const USER_TAG: u32 = USER_BIT | Kind::Pages as u32;

/// The page layer.
#[derive(Debug)]
pub struct Pages {
    /// Address space.
    pub regions: Regions,
    /// One per node.
    pub zones: [Zone; NODES],
}

impl Default for Pages {
    fn default() -> Self {
        Self::new()
    }
}

/// The page layer as the source of the page lists.
#[derive(Debug)]
pub struct PageSource<'a> {
    /// The pages.
    pub pages: &'a Pages,
    /// For events and levels.
    pub cache: &'a Cache,
    /// Class of the first page list.
    pub first: usize,
}

impl Pages {
    /// Nothing reserved yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { regions: Regions::new(), zones: [const { Zone::new() }; NODES] }
    }

    /// Takes a block of any order back, past the lists.
    pub fn free(&self, board: &Board, block: Pfn, order: usize) {
        self.zones[self.regions.zone(block)].free(&self.regions, board, core::iter::once(block), order);
    }

    /// See [`crate::arch::lock::Lock::fork_begin`].
    pub fn fork_begin(&self) {
        self.zones.iter().for_each(Zone::fork_begin);
        self.regions.fork_begin();
    }
    /// See [`crate::arch::lock::Lock::fork_end`].
    pub fn fork_end(&self) {
        self.regions.fork_end();
        self.zones.iter().for_each(Zone::fork_end);
    }
}

impl PageSource<'_> {
    /// Up to `n` blocks from the zone of the node that runs us; whether the zone had to grow.
    fn alloc_here(&self, order: usize, n: usize, take: impl FnMut(Pfn)) -> bool {
        let (pages, sets) = (self.pages, &self.cache.sets);
        let node = sets.node();
        pages.zones[node].alloc(&pages.regions, sets.board(), node, order, n, take).1
    }

    /// One block of any order, past the lists.
    fn alloc_one(&self, order: usize) -> Option<Pfn> {
        let mut block = None;
        self.alloc_here(order, 1, |pfn| block = Some(pfn));
        block
    }

    /// A block past the lists, from this node's zone; its address, its zone, and whether it reads as zero.
    pub fn alloc_from(&self, node: usize, order: usize, flags: Flags) -> Option<(usize, usize, bool)> {
        let mut found = None;
        self.alloc_many(node, order, 1, flags, |block, zone, clean| found = Some((block, zone, clean)));
        found
    }
    /// Up to `n` of them.
    pub fn alloc_many(
        &self,
        node: usize,
        order: usize,
        n: usize,
        _flags: Flags,
        mut take: impl FnMut(usize, usize, bool),
    ) {
        let (pages, board) = (self.pages, self.cache.sets.board());
        let take = |pfn| take(pages.regions.address(pfn), node, false);
        pages.zones[node].alloc(&pages.regions, board, node, order, n, take);
    }

    fn order(&self, class: usize) -> usize {
        LISTED[class - self.first]
    }
    /// A block of `order` for the layers above: through the list if it has one.
    pub fn alloc(&self, order: usize) -> Option<Pfn> {
        match LISTED.iter().position(|&listed| listed == order) {
            Some(at) => {
                let address = self.cache.alloc(self, self.first + at)?;
                self.pages.regions.find(address).map(|(_, pfn)| pfn)
            }
            None => self.alloc_one(order),
        }
    }
    /// Takes a block back.
    ///
    /// # Safety
    /// It came from [`PageSource::alloc`] with this order and nobody uses it.
    #[allow(unsafe_code, reason = "gives an address up")]
    pub unsafe fn free(&self, block: Pfn, order: usize) {
        match LISTED.iter().position(|&listed| listed == order) {
            // SAFETY: the caller's promise; the block's address is its object.
            Some(at) => unsafe { self.cache.free(self, self.first + at, self.pages.regions.address(block)) },
            None => self.pages.free(self.cache.sets.board(), block, order),
        }
    }
}

impl Source for PageSource<'_> {
    fn fill(&self, class: usize, sheaf: &mut Sheaf, n: usize) {
        let regions = &self.pages.regions;
        let grew = self.alloc_here(self.order(class), n, |block| {
            sheaf.push(regions.address(block));
        });
        self.cache.sets.count(Event::PageRefill, 1);
        if grew {
            self.cache.sets.count(Event::ZoneGrow, 1);
        }
    }
    fn flush(&self, class: usize, sheaf: &mut Sheaf) {
        let (regions, board) = (&self.pages.regions, self.cache.sets.board());
        // Each block to the zone that it came from; almost always one.
        let blocks = sheaf.objects();
        let page = |address: usize| regions.find(address).map(|(_, pfn)| pfn);
        let present = blocks.iter().filter_map(|&at| page(at)).fold(0_u64, |set, pfn| set | 1 << regions.zone(pfn));
        for (number, zone) in self.pages.zones.iter().enumerate().filter(|(number, _)| present >> number & 1 == 1) {
            let ours = blocks.iter().filter_map(|&at| page(at)).filter(|&pfn| regions.zone(pfn) == number);
            zone.free(regions, board, ours, self.order(class));
        }
        sheaf.clear();
        self.cache.sets.count(Event::PageFlush, 1);
    }
    fn take(&self, class: usize) -> Option<usize> {
        let block = self.alloc_one(self.order(class))?;
        Some(self.pages.regions.address(block))
    }
    fn give(&self, class: usize, object: usize) {
        if let Some((_, pfn)) = self.pages.regions.find(object) {
            self.pages.free(self.cache.sets.board(), pfn, self.order(class));
        }
    }
    fn size(&self, class: usize) -> usize {
        PAGE << self.order(class)
    }
}

/// Gives memory back to the system; true if all of it reads as zero now.
///
/// # Safety
/// The range is ours and its contents are not needed.
#[must_use]
#[allow(unsafe_code, reason = "gives contents up")]
pub unsafe fn give_back(at: usize, bytes: usize) -> bool {
    // SAFETY: the caller's promise. Locked pages (`mlockall`) refuse the plain call.
    unsafe {
        sys::advise(at, bytes, Advice::DontNeed).is_ok() || sys::advise(at, bytes, Advice::DontNeedLocked).is_ok()
    }
}
