//! # `page`: pages, zones, and who owns an address
//!
//! [`windows`] has the windows of address space (`window`), their descriptors (`desc`) and class
//! maps; `block` the bitmaps of 512 pages; [`zone`] the buddy allocator of each node over them, with which words of pages
//! are exchanged (`batch`); this module the page layer's door: blocks of an order, through the per-CPU page lists, from
//! the node's own zone or the nearest other.
//!
//! The page lists are classes of the per-CPU set like any other: class
//! `PAGES + i` caches blocks of order [`LISTED`]`[i]`. One mechanism (sheaf,
//! spare, barn, drain) serves objects and pages.
//!
//! Lock order here: barn, then zone (never both held). Cost: order 0–3 and 9
//! as a small object; other orders one zone lock.

mod api;
mod batch;
mod block;
mod desc;
mod pfn;
mod window;
pub mod windows;
pub mod zone;

pub use crate::arch::sys::give_back;
pub use api::{Error, Flags, ListStats, ZoneStats};
pub use batch::{BatchWord, Gather};
pub use block::{BLOCK_PAGES, ORDERS};
pub use desc::{Desc, Kind};
pub use pfn::Pfn;
pub use window::{Owner, Paging};
pub use windows::{BIASED, HELD, Windows};
pub use zone::{Growth, Zone, ZoneRequest};

use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::settle;
use crate::arch::atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicUsize};
use crate::arch::sort::sort;
use crate::cache::{Cache, Sheaf, Source};
use crate::cpu::NODES;
use crate::stat::{Board, Event, Level};

/// Of all bytes of slabs one part in so many at most is of objects longer than a page, where zones ask for huge pages.
const LONG: u64 = 8;
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
    pub windows: Windows,
    /// One per node.
    pub zones: [Zone; NODES],
    /// By node, the other nodes plus one, nearest first; 0: by their numbers.
    order: [[AtomicU8; NODES]; NODES],
    /// The process filters its system calls: to place memory may kill.
    confined: AtomicBool,
    /// What [`Pages::set_huge`] said, inverted.
    huge: AtomicUsize,
    /// Pages of slabs whose objects are longer than a page.
    long: AtomicIsize,
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

/// Orders of nodes for a table of distances.
fn by_distance(from: usize, distance: impl Fn(usize) -> u8) -> [usize; NODES] {
    // (Of equally distant nodes those with near numbers.)
    let mut order: [_; NODES] =
        core::array::from_fn(|node| (node != from, distance(node), node.abs_diff(from) as u8, node as u8));
    sort(&mut order);
    order.map(|(.., node)| node.into())
}

impl Pages {
    /// Nothing reserved yet; zero bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            windows: Windows::new(),
            zones: [const { Zone::new() }; NODES],
            order: [const { [const { AtomicU8::new(0) }; NODES] }; NODES],
            confined: AtomicBool::new(false),
            huge: AtomicUsize::new(0),
            long: AtomicIsize::new(0),
        }
    }

    /// Zones of so many pages and more ask for huge ones for what they grow by (`usize::MAX`: none does).
    pub fn set_huge(&self, pages: usize) {
        // Relaxed: policy. (Zero bytes are none.)
        settle!(self.huge, !pages);
    }

    /// So many pages more are of slabs whose objects are longer than a page.
    pub fn note_long(&self, pages: isize) {
        // Relaxed: policy.
        self.long.fetch_add(pages, Relaxed);
    }

    /// Whether programs touch what slabs have, as far as can be said: of an object that is no longer than a page they touch each page as a rule, of
    /// longer ones (buffers, stacks) perhaps a few bytes.
    fn is_dense(&self, slabs: u64) -> bool {
        self.long.load(Relaxed).max(0) as u64 * PAGE as u64 * LONG <= slabs
    }

    /// How the zone of a node grows, with so many nodes in use, and so many bytes of slabs.
    fn growth(&self, node: usize, nodes: usize, slabs: u64) -> Growth {
        let huge = if self.is_dense(slabs) { !self.huge.load(Relaxed) } else { usize::MAX };
        Growth { node, bind: self.places(node, nodes), huge }
    }

    /// The process is about to filter its system calls: new memory lies where it is first touched from now on.
    pub fn confine(&self) {
        // Relaxed: the filter comes after this in the caller's own order.
        self.confined.store(true, Relaxed);
    }

    /// Whether new memory of a node is to be placed there, with so many nodes in use.
    fn places(&self, node: usize, nodes: usize) -> bool {
        (nodes > 1 || node > 0) && !self.confined.load(Relaxed)
    }

    /// Tells how far nodes are from each other, as `/sys/devices/system/node/node*/distance` does.
    pub fn set_distances(&self, distances: &[[u8; NODES]; NODES]) {
        for (from, distances) in distances.iter().enumerate() {
            for (at, node) in by_distance(from, |to| distances[to]).into_iter().enumerate() {
                // Relaxed: a request that reads half a table asks some node twice and some not at all.
                self.order[from][at].store(node as u8 + 1, Relaxed);
            }
        }
    }

    /// The nodes in the order in which a request for `node` asks them.
    pub fn fallback(&self, node: usize) -> [usize; NODES] {
        if self.order[node][0].load(Relaxed) == 0 {
            return by_distance(node, |_| 0);
        }
        core::array::from_fn(|at| (self.order[node][at].load(Relaxed).saturating_sub(1)) as usize)
    }

    /// Gives pages in the caller's hand back to the system (see [`Zone::give_back`]); whether it took them.
    ///
    /// # Safety
    /// As there.
    #[allow(unsafe_code, reason = "gives pages up")]
    pub unsafe fn give_back(&self, board: &Board, first: Pfn, pages: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.zones[self.windows.zone(first)].give_back(&self.windows, board, first, pages) }
    }

    /// Takes a block of any order back, past the lists; false if it was free already.
    pub fn free(&self, board: &Board, block: Pfn, order: usize) -> bool {
        let mut gather = Gather::<16>::new();
        gather.add(block, order);
        self.zones[self.windows.zone(block)].free(&self.windows, board, &gather) == 0
    }
}

impl PageSource<'_> {
    /// At most `n` blocks for `node`, words of them to `take` with their zone: from the node's own zone, which may
    /// grow, else from the nearest of `others` that has any free. How many.
    pub fn alloc_many(
        &self,
        node: usize,
        order: usize,
        n: usize,
        flags: Flags,
        others: usize,
        mut take: impl FnMut(&BatchWord, usize),
    ) -> usize {
        let (pages, board) = (self.pages, self.cache.sets.board());
        let limit = self.cache.knobs.hard_limit();
        let growth = pages.growth(node, self.cache.sets.cpus.nodes(), board.level(Level::Slabs));
        let want = ZoneRequest { growth, order, flags, limit };
        let (got, grew) = pages.zones[node].alloc(&pages.windows, board, want, n, |word| take(word, node));
        if grew {
            self.cache.sets.count(Event::ZoneGrow, 1);
        }
        if got > 0 || others == 0 {
            return got;
        }
        let mut spare = |at: usize| pages.zones[at].alloc_spare(&pages.windows, board, want, n, |word| take(word, at));
        let got = pages.fallback(node).into_iter().filter(|&at| at != node && at < others).map(&mut spare);
        got.into_iter().find(|&got| got > 0).unwrap_or(0)
    }

    /// Opens more address space for zones that are below their `low`, before somebody has to wait for it.
    pub fn prepare_more(&self) {
        let (pages, sets) = (self.pages, &self.cache.sets);
        let slabs = sets.board().level(Level::Slabs);
        for (node, zone) in pages.zones.iter().enumerate() {
            if zone.prepare_more(&pages.windows, sets.board(), pages.growth(node, sets.cpus.nodes(), slabs)) {
                sets.count(Event::ZoneGrow, 1);
            }
        }
    }

    /// Blocks for the layers above. (Whoever frees an object of a node's must find its slab's lists, which exist for
    /// the nodes that ran us.)
    fn alloc_here(&self, order: usize, n: usize, mut take: impl FnMut(usize)) {
        let node = self.cache.sets.cpus.node();
        let windows = &self.pages.windows;
        self.alloc_many(node, order, n, Flags::NONE, self.cache.sets.cpus.nodes(), |word, _| {
            word.addresses(windows, &mut take)
        });
    }

    /// One block of any order, past the lists.
    fn alloc_one(&self, order: usize) -> Option<usize> {
        let mut block = None;
        self.alloc_here(order, 1, |address| block = Some(address));
        block
    }

    /// Takes a block back; one that is free already is counted, and left as it is.
    fn free_one(&self, block: Pfn, order: usize) {
        if !self.pages.free(self.cache.sets.board(), block, order) {
            self.cache.sets.count(Event::BadFree, 1);
        }
    }

    fn order(&self, class: usize) -> usize {
        LISTED[class - self.first]
    }
    /// A block of `order` for the layers above: through the list if it has one.
    pub fn alloc(&self, order: usize) -> Option<Pfn> {
        let address = match LISTED.iter().position(|&listed| listed == order) {
            Some(at) => self.cache.alloc(self, self.first + at),
            None => self.alloc_one(order),
        };
        self.pages.windows.find(address?).map(|(_, pfn)| pfn)
    }
    /// Takes a block back; another node's goes past the lists, from which this one's slabs are made.
    ///
    /// # Safety
    /// It came from [`PageSource::alloc`] with this order and nobody uses it.
    #[allow(unsafe_code, reason = "gives an address up")]
    pub unsafe fn free(&self, block: Pfn, order: usize) {
        let address = self.pages.windows.address(block);
        match LISTED.iter().position(|&listed| listed == order) {
            // SAFETY: the caller's promise; the block's address is its object.
            Some(at) if self.is_near(address) => unsafe { self.cache.free(self, self.first + at, address) },
            _ => self.free_one(block, order),
        }
    }

    /// Takes blocks back, past the lists, each with its order: those of one zone in a row in one gather. (Out of line: its frame comes
    /// behind the look at the stack.)
    #[inline(never)]
    pub fn free_all(&self, blocks: impl Iterator<Item = (Pfn, usize)>) {
        const ROOM: usize = 16;
        let (windows, board) = (&self.pages.windows, self.cache.sets.board());
        let (mut gather, mut zone, mut refused) = (Gather::<ROOM>::new(), 0, 0);
        let flush = |gather: &mut Gather<ROOM>, zone: usize| {
            let refused = if gather.is_empty() { 0 } else { self.pages.zones[zone].free(windows, board, gather) };
            gather.clear();
            refused
        };
        for (block, order) in blocks {
            let its = windows.zone(block);
            if its != zone || !gather.has_room(order) {
                refused += flush(&mut gather, zone);
                zone = its;
            }
            refused += usize::from(!gather.add(block, order));
        }
        refused += flush(&mut gather, zone);
        if refused > 0 {
            self.cache.sets.count(Event::BadFree, refused as u64);
        }
    }
}

impl Source for PageSource<'_> {
    fn fill(&self, class: usize, sheaf: &mut Sheaf, n: usize) {
        self.alloc_here(self.order(class), n, |block| {
            let has_room = sheaf.push(block);
            debug_assert!(has_room);
        });
        self.cache.sets.count(Event::PageRefill, 1);
    }
    fn flush(&self, class: usize, sheaf: &mut Sheaf) {
        let order = self.order(class);
        // (A list is in the order of its frees: neighbours seldom stand beside each other.)
        let blocks = sheaf.objects();
        sort(blocks);
        let page = |&address: &usize| self.pages.windows.find(address).map(|(_, pfn)| (pfn, order));
        self.free_all(blocks.iter().filter_map(page));
        sheaf.clear();
        self.cache.sets.count(Event::PageFlush, 1);
    }
    fn take(&self, class: usize) -> Option<usize> {
        self.alloc_one(self.order(class))
    }
    fn give(&self, class: usize, object: usize) {
        if let Some((_, pfn)) = self.pages.windows.find(object) {
            self.free_one(pfn, self.order(class));
        }
    }
    fn size(&self, class: usize) -> usize {
        PAGE << self.order(class)
    }
    fn is_near(&self, object: usize) -> bool {
        let (cpus, windows) = (&self.cache.sets.cpus, &self.pages.windows);
        cpus.nodes() < 2 || windows.find(object).is_none_or(|(_, pfn)| windows.zone(pfn) == cpus.node())
    }
}

#[cfg(test)]
impl Pages {
    /// What [`Pages::set_huge`] said last.
    pub(crate) fn huge_from(&self) -> usize {
        !self.huge.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
