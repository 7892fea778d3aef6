//! # Windows of address space, and the owner of any pointer
//!
//! ```text
//! root[address >> 30] ──► window's metadata, shifted so that  *(root + (address >> 12))  is the class byte
//!
//! 1 GiB slot:  ┌────────┬───────────────────┬────────┬──────────────────────┐8 MiB┌─────────────────┐
//!              │ Window │ class map 256 KiB │ blocks │ descriptors, 16 B a  │     │ pages that are  │
//!              │        │ (the whole slot)  │ 96 KiB │ page, as needed ─►   │     │ ours  ─►        │
//!              └────────┴───────────────────┴────────┴──────────────────────┘     └─────────────────┘
//! ```
//! A window is what of an aligned 1 GiB of addresses is ours. Its pages are mapped as they are needed, each
//! step right behind the one before, and so are their descriptors: nothing is only reserved, for `ulimit -v` and
//! `mlockall` count that, too. A neighbour in the way ends a window; the next one begins elsewhere. Null in the
//! root means foreign. The class of an address is two loads: root and class byte (0: no small object).
//!
//! A window is a zone's or an area space's, who alone make it longer. Under a limit its free pages may change
//! hands (see `reclaim::scarce`); then it is *mixed*, and those that a zone has go back to that zone, as blocks.
//!
//! Invariants: windows are never given back (but giant ones, see `vmap`), so a
//! descriptor may be read at any time; a descriptor's `tag` says who may write
//! the rest. Locks: `regions` for making windows, their owner's for making them longer. Cost: four system
//! calls per window, two per step.
#![allow(unsafe_code)] // address space by number

use super::block::{BLOCK_SHIFT, Block};
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use crate::arch::lock::Lock;
use crate::arch::sys::{self, Access, Advice};
use crate::arch::{PAGE, PAGE_SHIFT, opaque};
use crate::stat::{Board, Level};
use core::ptr::NonNull;

/// log2 of a window's bytes.
pub const WINDOW_SHIFT: u32 = 30;
/// Bytes of a window.
pub const WINDOW: usize = 1 << WINDOW_SHIFT;
/// Pages of a window.
pub const WINDOW_PAGES: usize = WINDOW / PAGE;
/// Windows there can be: 16 TiB of heap.
pub const WINDOWS: usize = 1 << 14;
/// Entries of the root: 47 bits of address.
const ROOT: usize = 1 << (47 - WINDOW_SHIFT);
/// Bytes before the class map.
const HEAD: usize = PAGE;
/// Bytes before the blocks.
const BLOCKS_AT: usize = HEAD + WINDOW_PAGES;
/// Bytes of so many pages' blocks, and of their descriptors.
const fn blocks_bytes(blocks: usize) -> usize {
    (blocks * size_of::<Block>()).next_multiple_of(PAGE)
}
const fn descs_bytes(pages: usize) -> usize {
    (pages * size_of::<Desc>()).next_multiple_of(PAGE)
}
/// Bytes at a slot's beginning that are kept for metadata: blocks of order 10 stay aligned behind them.
const DATA_AT: usize = 8 << 20;
const _: () = assert!(BLOCKS_AT + blocks_bytes(WINDOW_PAGES >> BLOCK_SHIFT) + descs_bytes(WINDOW_PAGES) <= DATA_AT);
/// Pages that the first of a window is aligned to.
pub const ALIGNED: usize = DATA_AT / PAGE;
/// Most pages of a window.
pub const MOST_PAGES: usize = WINDOW_PAGES - DATA_AT / PAGE;
/// Pages whose descriptors are mapped at a time: 16 MiB of memory, 64 KiB of descriptors.
const DESCRIBED: usize = 4096;
/// Slots tried for a window where others have taken the first.
const SLOTS: usize = 16;
/// Where windows are looked for first, and giant ones: slots that the kernel does not choose by itself.
const FIRST_SLOT: usize = 0x2000;
const FIRST_GIANT: usize = 0x8000;

/// A page's number in the heap: window number × 2¹⁸ + page in window. 0 is never
/// handed out (window 0 is not used) and serves as "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pfn(pub u32);

impl Pfn {
    /// No page.
    pub const NONE: Self = Self(0);
    /// The page `pages` further on.
    #[must_use]
    pub const fn add(self, pages: usize) -> Self {
        Self(self.0 + pages as u32)
    }
    /// Whether both lie in one window: page numbers follow each other across windows, addresses need not.
    #[must_use]
    pub const fn same_window(self, other: Self) -> bool {
        self.window() == other.window()
    }
    const fn window(self) -> usize {
        self.0 as usize / WINDOW_PAGES
    }
    const fn page(self) -> usize {
        self.0 as usize % WINDOW_PAGES
    }
    /// The block that it is in: numbers of blocks, too, go on from window to window.
    #[must_use]
    pub const fn block(self) -> u32 {
        self.0 >> BLOCK_SHIFT
    }
}

/// Calls for each bit that is set, from the lowest on.
#[inline(always)]
pub fn each(bits: u64, mut body: impl FnMut(usize)) {
    if bits == u64::MAX {
        return (0..64).for_each(body);
    }
    let mut left = bits;
    while left != 0 {
        body(left.trailing_zeros() as usize);
        left &= left - 1;
    }
}

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Nothing of ours, or the inside of something.
    None = 0,
    /// First page of a block of a zone that is or was in use (not a slab).
    Pages = 2,
    /// Any page of a slab: `link` is the slab.
    Slab = 3,
    /// First page of an area in use.
    Area = 4,
    /// First page of a lazily freed area.
    Lazy = 5,
    /// First page of a free run of `vmap`.
    Run = 6,
}

/// One page's descriptor. 16 bytes; every field is a relaxed atomic because the
/// owner of one block looks at the tags of its neighbours.
#[repr(C)]
#[derive(Debug)]
pub struct Desc {
    /// Two page numbers (list or tree), or the slab.
    pub link: AtomicU64,
    /// Pages of the block, run or area.
    pub pages: AtomicU32,
    /// Kind (8 bits), order or flags (4 bits), the rest is the kind's.
    pub tag: AtomicU32,
}
const _: () = assert!(size_of::<Desc>() == 16);

impl Desc {
    /// What the page is.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self.tag.load(Relaxed) as u8 {
            2 => Kind::Pages,
            3 => Kind::Slab,
            4 => Kind::Area,
            5 => Kind::Lazy,
            6 => Kind::Run,
            _ => Kind::None,
        }
    }
    /// The twelve bits and more behind the kind.
    #[inline]
    pub fn rest(&self) -> u32 {
        self.tag.load(Relaxed) >> 8
    }
    /// Sets both.
    #[inline]
    pub fn set(&self, kind: Kind, rest: u32) {
        self.tag.store(rest << 8 | kind as u32, Relaxed);
    }
    /// The two page numbers.
    #[inline]
    pub fn links(&self) -> (Pfn, Pfn) {
        let link = self.link.load(Relaxed);
        (Pfn(link as u32), Pfn((link >> 32) as u32))
    }
    /// Sets both page numbers.
    #[inline]
    pub fn set_links(&self, first: Pfn, second: Pfn) {
        self.link.store(u64::from(first.0) | u64::from(second.0) << 32, Relaxed);
    }
    /// Pages of what begins here.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "what begins at a page has at least one")]
    pub fn len(&self) -> usize {
        self.pages.load(Relaxed) as usize
    }
    /// Sets it.
    #[inline]
    pub fn set_len(&self, pages: usize) {
        self.pages.store(pages as u32, Relaxed);
    }
}

/// A window's own words.
#[repr(C)]
#[derive(Debug)]
pub struct Window {
    /// Address of its first page, 1 GiB aligned.
    base: usize,
    /// Address of the first page's descriptor.
    descs: usize,
    /// Its number.
    number: u32,
    /// First page that is ours.
    first: u32,
    /// Page behind the last that is ours; grows, under the owner's lock.
    end: AtomicU32,
    /// What that may become.
    most: u32,
    /// Pages that have descriptors, from the first of ours on; grows likewise.
    described: AtomicU32,
    /// Address of its first block; 0 for a giant area's.
    blocks: usize,
    /// The zone that its pages go back to, as far as they are a zone's.
    zone: u32,
    /// Whose it is.
    owner: Owner,
    /// It has pages of a zone and areas.
    mixed: AtomicBool,
    /// Of a giant area's window.
    pub giant: Giant,
}

/// Whose a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A node's zone.
    Zone(usize),
    /// Areas of such pages.
    Areas(Paging),
    /// One giant area.
    Giant,
}

impl Owner {
    const fn paging(self) -> Paging {
        match self {
            Self::Areas(paging) => paging,
            _ => Paging::Small,
        }
    }
}

/// Why an address range is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// Somebody else is there.
    Taken,
    /// The system gives no more.
    Limit,
}

impl Window {
    /// Page behind the last that is ours.
    #[inline(always)]
    fn end(&self) -> usize {
        // Relaxed: who holds a pointer into a step was handed it after the step was taken in, and others only
        // look at what may be or not.
        self.end.load(Relaxed) as usize
    }
    #[inline(always)]
    fn has(&self, page: usize) -> bool {
        page >= self.first as usize && page < self.end()
    }
}

/// A giant area (see `vmap`), and how far it is on its way back to the system. All but `bytes` belongs to whoever
/// holds the purge's queue.
#[derive(Debug, Default)]
pub struct Giant {
    /// Its bytes; 0 if this window has none.
    pub bytes: AtomicUsize,
    /// Bytes from its beginning on that were handed out in slices.
    pub handed: AtomicUsize,
    /// Bytes that the system has taken, and that are not counted as lazy any more.
    pub clean: AtomicUsize,
    /// Slices in flight.
    pub out: AtomicU32,
}

/// All windows.
#[derive(Debug)]
pub struct Regions {
    root: [AtomicUsize; ROOT],
    windows: [AtomicPtr<Window>; WINDOWS],
    made: Lock<Made>,
    /// The system gave nothing more, not even what was needed: steps are not asked for until it does.
    refused: AtomicBool,
}

#[derive(Debug)]
struct Made {
    /// Numbers given out so far: 1 to this (0 is not used).
    count: u32,
    /// Numbers of giant areas' windows that were given back, linked through `giant.bytes`.
    spare: u32,
    /// The slot to try next, counted from [`FIRST_SLOT`].
    slot: u32,
}

impl Default for Regions {
    fn default() -> Self {
        Self::new()
    }
}

/// Which advice a new window gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    /// 4 KiB pages.
    Small,
    /// Huge pages where possible.
    Huge,
}

impl Regions {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            root: [const { AtomicUsize::new(0) }; ROOT],
            windows: [const { AtomicPtr::new(core::ptr::null_mut()) }; WINDOWS],
            made: Lock::new(Made { count: 0, spare: 0, slot: 0 }),
            refused: AtomicBool::new(false),
        }
    }

    /// The class byte of an address; `None` if the address is foreign.
    #[inline(always)]
    pub fn class(&self, address: usize) -> Option<u8> {
        // Opaque: else the compare becomes a second shift of the address.
        let window = opaque(address >> WINDOW_SHIFT);
        if window >= ROOT {
            return None;
        }
        // Relaxed: a pointer that a program holds was handed to it after this was stored,
        // and however it travelled ordered that store too.
        let map = self.root[window].load(Relaxed);
        if map == 0 {
            return None;
        }
        // SAFETY: the class map of a window is mapped for all of its pages.
        Some(unsafe { *(map.wrapping_add(address >> PAGE_SHIFT) as *const u8) })
    }

    /// The window of an address and the page's number, if it is ours.
    pub fn find(&self, address: usize) -> Option<(&Window, Pfn)> {
        let index = address >> WINDOW_SHIFT;
        let map = self.root.get(index)?.load(Acquire);
        if map == 0 {
            return None;
        }
        let head = map.wrapping_add(index << (WINDOW_SHIFT - PAGE_SHIFT)) - HEAD;
        // SAFETY: a non-zero root entry leads to a window's metadata, which stays for ever.
        let window = unsafe { &*(head as *const Window) };
        let page = (address & (WINDOW - 1)) >> PAGE_SHIFT;
        window.has(page).then_some((window, Pfn(window.number * WINDOW_PAGES as u32 + page as u32)))
    }

    /// The page of an address and its descriptor, if it may be a zone's.
    #[inline(always)]
    pub fn look(&self, address: usize) -> Option<(Pfn, &Desc)> {
        let index = address >> WINDOW_SHIFT;
        // Relaxed: as in `class`.
        let map = self.root.get(index)?.load(Relaxed);
        if map == 0 {
            return None;
        }
        let head = map.wrapping_add(index << (WINDOW_SHIFT - PAGE_SHIFT)) - HEAD;
        // SAFETY: a non-zero root entry leads to a window's metadata, which stays for ever.
        let window = unsafe { &*(head as *const Window) };
        let page = (address & (WINDOW - 1)) >> PAGE_SHIFT;
        if !window.has(page) || window.blocks == 0 {
            return None;
        }
        // SAFETY: every page of a window that is no giant area's has a descriptor.
        let desc = unsafe { &*(window.descs as *const Desc).add(page - window.first as usize) };
        Some((Pfn(window.number * WINDOW_PAGES as u32 + page as u32), desc))
    }

    #[inline]
    fn window(&self, pfn: Pfn) -> &Window {
        // Acquire pairs with the Release in `reserve`.
        let window = self.windows[pfn.window()].load(Acquire);
        debug_assert!(!window.is_null());
        // SAFETY: page numbers are only made for windows that are there, and those stay.
        unsafe { &*window }
    }

    /// Address of a page.
    #[inline]
    #[must_use]
    pub fn address(&self, pfn: Pfn) -> usize {
        self.window(pfn).base + pfn.page() * PAGE
    }

    /// Descriptor of a page.
    #[inline]
    #[must_use]
    pub fn desc(&self, pfn: Pfn) -> &Desc {
        let window = self.window(pfn);
        debug_assert!(window.has(pfn.page()));
        // SAFETY: the descriptors lie behind the class map, one for every page of ours.
        unsafe { &*(window.descs as *const Desc).add(pfn.page() - window.first as usize) }
    }

    /// A block of a zone; `None` where its window has no page of ours, or is a giant area's.
    #[inline]
    #[must_use]
    pub fn block(&self, number: u32) -> Option<NonNull<Block>> {
        let pfn = Pfn(number << BLOCK_SHIFT);
        let window = self.windows.get(pfn.window())?.load(Acquire);
        // SAFETY: as in `window`.
        let window = unsafe { window.as_ref() }?;
        let (first, end) = (window.first >> BLOCK_SHIFT, (window.end() as u32 - 1) >> BLOCK_SHIFT);
        let at = (pfn.page() >> BLOCK_SHIFT) as u32;
        if window.blocks == 0 || at < first || at > end {
            return None;
        }
        // SAFETY: inside the window's blocks.
        NonNull::new(unsafe { (window.blocks as *mut Block).add((at - first) as usize) })
    }

    /// The blocks of windows that may have pages of a zone.
    pub fn blocks_of(&self, zone: usize) -> impl Iterator<Item = u32> {
        // Relaxed: what becomes mixed or longer meanwhile is seen the next time.
        let its = move |window: &Window| match window.owner {
            Owner::Zone(of) => of == zone,
            Owner::Areas(_) => window.zone as usize == zone && window.mixed.load(Relaxed),
            Owner::Giant => false,
        };
        self.in_use().filter(move |(_, window)| its(window)).flat_map(|(number, window)| {
            let base = (number as u32) << (WINDOW_SHIFT - PAGE_SHIFT - BLOCK_SHIFT);
            let (first, end) = (window.first >> BLOCK_SHIFT, (window.end() as u32 - 1) >> BLOCK_SHIFT);
            (first..end + 1).map(move |at| base + at)
        })
    }

    /// Pages of this page's window change hands between a zone and areas.
    pub fn mix(&self, page: Pfn) {
        // Relaxed: for who walks.
        self.window(page).mixed.store(true, Relaxed);
    }

    /// The page behind the last of a window that is ours.
    #[must_use]
    pub fn end(&self, page: Pfn) -> Pfn {
        let window = self.window(page);
        Pfn(window.number * WINDOW_PAGES as u32 + window.end() as u32)
    }

    /// Writes the tags of the pages of a word of 64 whose bits are set.
    #[inline]
    pub fn set_tags(&self, word: Pfn, bits: u64, tag: u32) {
        let window = self.window(word);
        let first = (window.descs as *const Desc).wrapping_add(word.page()).wrapping_sub(window.first as usize);
        let set = |bit: usize| {
            debug_assert!(window.has(word.page() + bit));
            // SAFETY: the descriptor of a page of ours. Relaxed: as all of them.
            unsafe { &*first.wrapping_add(bit) }.tag.store(tag, Relaxed);
        };
        each(bits, set);
    }

    /// Whether the page is part of its window at all (buddies and neighbours may not be).
    #[must_use]
    pub fn contains(&self, pfn: Pfn) -> bool {
        pfn.window() < WINDOWS && {
            let window = self.windows[pfn.window()].load(Acquire);
            // SAFETY: as in `window`.
            !window.is_null() && unsafe { (*window).has(pfn.page()) }
        }
    }

    /// Writes the class byte of `pages` pages.
    ///
    /// # Safety
    /// The pages are the caller's, and no live object in them has another class.
    pub unsafe fn set_class(&self, pfn: Pfn, pages: usize, class: u8) {
        let map = (&raw const *self.window(pfn)) as usize + HEAD + pfn.page();
        // SAFETY: inside the class map; the caller owns these pages, readers only look
        // at bytes of pages in which they hold an object.
        unsafe { core::ptr::write_bytes(map as *mut u8, class, pages) };
    }

    /// `need` to `want` new pages right behind those of this page's window, which read as zero; the first, and how
    /// many. `None` where somebody else is in the way, or the system refuses. The caller holds the lock of the
    /// window's owner.
    pub fn extend(&self, board: &Board, page: Pfn, need: usize, want: usize) -> Option<(Pfn, usize)> {
        let window = self.window(page);
        let room = (window.most as usize).saturating_sub(window.end());
        self.sizes(need, want.min(room)).take_while(|_| need <= room).find_map(|pages| {
            let first = self.end(page);
            self.lengthen(board, window, pages).ok()?;
            self.refused.store(false, Relaxed);
            Some((first, pages))
        })
    }

    fn lengthen(&self, board: &Board, window: &Window, pages: usize) -> Result<(), Refused> {
        let (end, described) = (window.end(), window.described.load(Relaxed) as usize);
        let described_then = (end + pages - window.first as usize).next_multiple_of(DESCRIBED);
        if described_then > described {
            let (at, to) = (window.descs + descs_bytes(described), window.descs + descs_bytes(described_then));
            map_at(at, to - at, Paging::Small)?;
            window.described.store(described_then as u32, Relaxed);
            board.raise(Level::Reserved, to - at);
        }
        map_at(window.base + end * PAGE, pages * PAGE, window.owner.paging())?;
        // Release: with their descriptors.
        window.end.store((end + pages) as u32, Release);
        board.raise(Level::Reserved, pages * PAGE);
        board.raise(Level::Mapped, pages * PAGE);
        Ok(())
    }

    /// A new window that begins with `need` to `want` pages, which read as zero; the first, and how many.
    pub fn reserve(&self, board: &Board, owner: Owner, need: usize, want: usize) -> Option<(Pfn, usize)> {
        let mut made = self.made.lock();
        for pages in self.sizes(need, want.min(MOST_PAGES)).take_while(|_| need <= MOST_PAGES) {
            let mut refused = Refused::Taken;
            for tried in 0..SLOTS {
                let slot = self.next_slot(&mut made, tried > 0);
                match self.make(board, &mut made, owner, slot, pages) {
                    Ok(first) => {
                        self.refused.store(false, Relaxed);
                        return Some((first, pages));
                    }
                    Err(why) => refused = why,
                }
                if refused == Refused::Limit {
                    break;
                }
            }
            // Where there are no such addresses (39 bits of them): below what the system chooses itself.
            if refused == Refused::Taken
                && let Ok(at) = sys::map(0, PAGE, Access::None)
            {
                // SAFETY: fresh, ours and unused.
                let _ = unsafe { sys::unmap(at, PAGE) };
                let slots = (1..=SLOTS).filter_map(|below| (at >> WINDOW_SHIFT).checked_sub(below));
                let mut made_there = slots.filter_map(|slot| self.make(board, &mut made, owner, slot, pages).ok());
                if let Some(first) = made_there.next() {
                    return Some((first, pages));
                }
            }
        }
        self.refused.store(true, Relaxed);
        None
    }

    /// From `want` pages down to `need`, in quarters: a limit may refuse a whole step and allow what is needed. Relaxed: policy.
    fn sizes(&self, need: usize, want: usize) -> impl Iterator<Item = usize> + use<> {
        let most = if self.refused.load(Relaxed) { need } else { want.max(need) };
        core::iter::successors(Some(most), move |&pages| (pages > need).then(|| (pages / 4).max(need)))
    }

    /// A slot that is not ours: the next, or anywhere if somebody else had the last.
    fn next_slot(&self, made: &mut Made, anywhere: bool) -> usize {
        const ALL: usize = FIRST_GIANT - FIRST_SLOT;
        if made.slot == 0 || anywhere {
            let place = (&raw const *self) as usize >> 12 ^ (&raw const made) as usize;
            made.slot = (place as u32 ^ made.slot).wrapping_mul(0x9e37_79b1).rotate_left(15) % ALL as u32;
        }
        loop {
            made.slot = (made.slot + 1) % ALL as u32;
            let slot = FIRST_SLOT + made.slot as usize;
            if self.root[slot].load(Relaxed) == 0 {
                return slot;
            }
        }
    }

    /// A window in a slot.
    fn make(&self, board: &Board, made: &mut Made, owner: Owner, slot: usize, pages: usize) -> Result<Pfn, Refused> {
        if slot >= ROOT || self.root[slot].load(Relaxed) != 0 {
            return Err(Refused::Taken);
        }
        if made.count as usize + 1 >= WINDOWS {
            return Err(Refused::Limit);
        }
        let start = slot << WINDOW_SHIFT;
        let blocks = BLOCKS_AT + blocks_bytes(WINDOW_PAGES >> BLOCK_SHIFT);
        let described = pages.next_multiple_of(DESCRIBED);
        let meta = blocks + descs_bytes(described);
        map_at(start, meta, Paging::Small)?;
        if let Err(refused) = map_at(start + DATA_AT, pages * PAGE, owner.paging()) {
            // SAFETY: fresh, ours and unused.
            let _ = unsafe { sys::unmap(start, meta) };
            return Err(refused);
        }
        made.count += 1;
        let first = (DATA_AT / PAGE) as u32;
        let window = Window {
            base: start,
            descs: start + blocks,
            number: made.count,
            first,
            end: AtomicU32::new(first + pages as u32),
            most: WINDOW_PAGES as u32,
            described: AtomicU32::new(described as u32),
            // (That of the first page.)
            blocks: start + BLOCKS_AT,
            zone: if let Owner::Zone(zone) = owner { zone as u32 } else { 0 },
            owner,
            mixed: AtomicBool::new(false),
            giant: Giant::default(),
        };
        board.raise(Level::Reserved, meta + pages * PAGE);
        board.raise(Level::Mapped, pages * PAGE);
        Ok(self.install(board, start, window))
    }

    /// Takes a window in whose metadata is at `meta`; its first page.
    fn install(&self, board: &Board, meta: usize, window: Window) -> Pfn {
        let (number, base, first) = (window.number, window.base, window.first);
        // SAFETY: fresh metadata, ours.
        unsafe { (meta as *mut Window).write(window) };
        // Release: the window is seen whole by whoever finds it.
        self.windows[number as usize].store(meta as *mut Window, Release);
        self.root[base >> WINDOW_SHIFT].store((meta + HEAD).wrapping_sub(base >> PAGE_SHIFT), Release);
        board.raise(Level::Mappings, 2);
        Pfn(number * WINDOW_PAGES as u32 + first)
    }

    /// The zone that a page goes back to.
    #[must_use]
    pub fn zone(&self, pfn: Pfn) -> usize {
        self.window(pfn).zone as usize
    }

    /// Reserves one window that begins with `bytes` (more than a window can hold) in one
    /// piece, opened; only its first page has a number. Aligned to `align` bytes where there is room for that.
    pub fn reserve_giant(&self, board: &Board, bytes: usize, align: usize) -> Option<Pfn> {
        let mut made = self.made.lock();
        let base = Self::aligned(bytes, align.max(WINDOW), made.count)?;
        let index = base >> WINDOW_SHIFT;
        let usable = index < ROOT && self.root[index].load(Relaxed) == 0;
        // SAFETY: fresh and ours.
        let opened = usable && unsafe { sys::protect(base, bytes, Access::ReadWrite) }.is_ok();
        let place = if opened { self.place(board, &mut made) } else { None };
        let Some((number, meta)) = place else {
            // SAFETY: fresh, ours and unused.
            let _ = unsafe { sys::unmap(base, bytes) };
            return None;
        };
        // SAFETY: ours; a refusal costs memory only.
        let _ = unsafe { sys::advise(base, bytes, Advice::NoHuge) };
        board.raise(Level::Reserved, bytes);
        let first = (base % WINDOW / PAGE) as u32;
        let end = (base % WINDOW + bytes).min(WINDOW) / PAGE;
        let window = Window {
            base: index << WINDOW_SHIFT,
            descs: meta + BLOCKS_AT,
            number,
            first,
            end: AtomicU32::new(end as u32),
            most: end as u32,
            // (Only its first page's descriptor is ever used.)
            described: AtomicU32::new(1),
            blocks: 0,
            zone: 0,
            owner: Owner::Giant,
            mixed: AtomicBool::new(false),
            giant: Giant { bytes: AtomicUsize::new(bytes), ..Giant::default() },
        };
        Some(self.install(board, meta, window))
    }

    /// Windows that serve, with their numbers: not those of giant areas that were given back, which the root does not
    /// know. Takes no lock: what is made meanwhile is missed.
    fn in_use(&self) -> impl Iterator<Item = (usize, &Window)> {
        // Acquire: as in `window`.
        let made = (1..WINDOWS).map(|number| (number, self.windows[number].load(Acquire)));
        made.take_while(|(_, window)| !window.is_null())
            // SAFETY: windows stay for ever.
            .map(|(number, window)| (number, unsafe { &*window }))
            .filter(|(_, window)| {
                let map = &raw const **window as usize + HEAD;
                let known = self.root[window.base >> WINDOW_SHIFT].load(Relaxed);
                window.giant.bytes.load(Relaxed) == 0 || known.wrapping_add(window.base >> PAGE_SHIFT) == map
            })
    }

    /// Calls for all pages of each window. For a heap that nobody uses any more.
    pub fn each_opened(&self, mut each: impl FnMut(usize, usize)) {
        for (_, window) in self.in_use() {
            let bytes = match window.giant.bytes.load(Relaxed) {
                0 => (window.end() - window.first as usize) * PAGE,
                giant => giant,
            };
            if bytes > 0 {
                each(window.base + window.first as usize * PAGE, bytes);
            }
        }
    }

    /// Calls for the first page of each window that may have areas, with its pages (one for a giant area's).
    pub fn each_of_areas(&self, mut each: impl FnMut(Pfn, usize)) {
        // Relaxed: as in `blocks_of`.
        let may = |window: &Window| !matches!(window.owner, Owner::Zone(_)) || window.mixed.load(Relaxed);
        for (number, window) in self.in_use().filter(|(_, window)| may(window)) {
            let is_giant = window.owner == Owner::Giant;
            let pages = if is_giant { 1 } else { window.end() - window.first as usize };
            each(Pfn((number * WINDOW_PAGES) as u32 + window.first), pages);
        }
    }

    /// The giant area that begins at a page.
    #[must_use]
    pub fn giant(&self, pfn: Pfn) -> &Giant {
        &self.window(pfn).giant
    }

    /// Gives the address space of a giant area back; the window's number and metadata wait for the next. False if the
    /// system refuses; nothing has changed then.
    ///
    /// # Safety
    /// `pfn` came from [`Regions::reserve_giant`], nothing in the area is used, and nobody else gives it back.
    #[must_use]
    pub unsafe fn release_giant(&self, board: &Board, pfn: Pfn) -> bool {
        let window = self.window(pfn);
        let bytes = window.giant.bytes.load(Relaxed);
        let entry = &self.root[window.base >> WINDOW_SHIFT];
        // Before the address space is anybody's: another window may begin there at once.
        let map = entry.swap(0, Relaxed);
        // Where it begins, which need not be where its window does.
        let base = window.base + window.first as usize * PAGE;
        // SAFETY: ours and unused, as promised. No lock: this takes as long as there is memory in it.
        if unsafe { sys::unmap(base, bytes) }.is_err() {
            // Release: as in `install`.
            entry.store(map, Release);
            return false;
        }
        let mut made = self.made.lock();
        window.giant.bytes.store(made.spare as usize, Relaxed);
        made.spare = window.number;
        drop(made);
        board.lower(Level::Reserved, bytes);
        board.lower(Level::Mappings, 2);
        true
    }

    /// `len` bytes of reserved address space, aligned to `align`.
    fn aligned(len: usize, align: usize, salt: u32) -> Option<usize> {
        // Where other mappings hardly ever are; the salt is the number of windows, so
        // that they follow each other. The kernel's own choice is the way out.
        let seed = (&raw const len) as usize >> 12 & 0xfff;
        let hint = ((FIRST_GIANT + seed + salt as usize) << WINDOW_SHIFT).next_multiple_of(align);
        if let Ok(at) = sys::map(hint, len, Access::None) {
            if at.is_multiple_of(align) {
                return Some(at);
            }
            // SAFETY: fresh, ours and unused.
            let _ = unsafe { sys::unmap(at, len) };
        }
        if let Ok(at) = sys::map(0, len + align, Access::None) {
            let base = at.next_multiple_of(align);
            // SAFETY: the ends of our own fresh reservation.
            unsafe {
                if base > at {
                    let _ = sys::unmap(at, base - at);
                }
                let _ = sys::unmap(base + len, at + align - base);
            }
            return Some(base);
        }
        None
    }

    /// A number and metadata for a giant area's window.
    fn place(&self, board: &Board, made: &mut Made) -> Option<(u32, usize)> {
        if made.spare != 0 {
            let number = made.spare;
            let window = self.windows[number as usize].load(Relaxed);
            // SAFETY: a spare window's metadata is there and nobody's.
            made.spare = unsafe { (*window).giant.bytes.load(Relaxed) } as u32;
            return Some((number, window as usize));
        }
        if made.count as usize + 1 >= WINDOWS {
            return None;
        }
        let bytes = BLOCKS_AT + descs_bytes(1);
        let meta = sys::map(0, bytes, Access::ReadWrite).ok()?;
        // SAFETY: fresh and ours; a refusal costs memory only.
        let _ = unsafe { sys::advise(meta, bytes, Advice::NoHuge) };
        board.raise(Level::Reserved, bytes);
        board.raise(Level::Mappings, 1);
        made.count += 1;
        Some((made.count, meta))
    }
}

/// The pages that a heap takes at a time, when it has `pages`: as much again while it is small, 2 MiB, a
/// sixteenth of what there is later, at most 64 MiB.
#[must_use]
pub fn step(pages: usize) -> usize {
    const FIRST: usize = 128;
    const STEP: usize = 512;
    const MOST: usize = 16 * 1024;
    if pages < STEP { pages.max(FIRST) } else { (pages / 16).next_multiple_of(STEP).min(MOST) }
}

/// Maps fresh memory exactly there. No flag for that: an address where nothing is serves as a hint.
fn map_at(at: usize, len: usize, paging: Paging) -> Result<(), Refused> {
    let found = sys::map_charged(at, len).map_err(|_| Refused::Limit)?;
    if found != at {
        // SAFETY: fresh, ours and unused.
        let _ = unsafe { sys::unmap(found, len) };
        return Err(Refused::Taken);
    }
    let advice = if paging == Paging::Huge { Advice::Huge } else { Advice::NoHuge };
    // SAFETY: fresh and ours; a refusal costs nothing but itself.
    let _ = unsafe { sys::advise(at, len, advice) };
    Ok(())
}
