//! # Windows of address space, and the owner of any pointer
//!
//! ```text
//! root[address >> 30] ──► window's metadata, shifted so that  *(root + (address >> 12))  is the class byte
//!                         ┌────────┬───────────────────┬──────────────────────────┬────────────────────┐
//!                         │ Window │ class map 256 KiB │ descriptors, 16 B a page │ a zone's: blocks   │
//!                         └────────┴───────────────────┴──────────────────────────┴────────────────────┘
//! address space:          [ 1 GiB window: opened, opened, … | reserved (PROT_NONE) ]
//! ```
//! A window is 1 GiB of address space, aligned; what of it is ours is reserved
//! `PROT_NONE` in one piece (less than 1 GiB where the system refuses that
//! much) and opened in steps. Null in the root means foreign. The class of an
//! address is two loads: root and class byte (0: no small object).
//!
//! Invariants: windows are never given back (but giant ones, see `vmap`), so a
//! descriptor may be read at any time; a descriptor's `tag` says who may write
//! the rest. Locks: `regions` for making windows. Cost: two system calls per
//! window and one per step.
#![allow(unsafe_code)] // address space by number

use super::block::{BLOCK_SHIFT, Block};
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
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
/// Bytes before the blocks, of a window with `pages` pages of ours.
const fn blocks_at(pages: usize) -> usize {
    HEAD + WINDOW_PAGES + (pages * size_of::<Desc>()).next_multiple_of(PAGE)
}
/// Bytes of its metadata with as many blocks.
const fn meta_bytes(pages: usize, blocks: usize) -> usize {
    blocks_at(pages) + (blocks * size_of::<Block>()).next_multiple_of(PAGE)
}
/// What is reserved where the system refuses a whole window: 8 MiB, or what is asked for.
const FRUGAL: usize = 8 << 20;
/// Smallest piece of address space worth a window.
const SMALLEST: usize = 4 << 20;

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
    /// Page behind the last that is ours.
    end: u32,
    /// Address of its first block; 0 if it is no zone's.
    blocks: usize,
    /// Page behind the last that was opened.
    opened: AtomicU32,
    /// The zone that its pages go back to.
    zone: u32,
    /// A page of that zone's window before this one.
    older: Pfn,
    /// Of a giant area's window.
    pub giant: Giant,
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
}

#[derive(Debug)]
struct Made {
    /// Numbers given out so far: 1 to this (0 is not used).
    count: u32,
    /// Numbers of giant areas' windows that were given back, linked through `giant.bytes`.
    spare: u32,
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
            made: Lock::new(Made { count: 0, spare: 0 }),
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
        let ours = (window.first as usize..window.end as usize).contains(&page);
        ours.then_some((window, Pfn(window.number * WINDOW_PAGES as u32 + page as u32)))
    }

    /// The page of an address and its descriptor, if it is a zone's.
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
        if page < window.first as usize || page >= window.end as usize || window.blocks == 0 {
            return None;
        }
        // SAFETY: every page of a zone's window has a descriptor.
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
        debug_assert!((window.first as usize..window.end as usize).contains(&pfn.page()));
        // SAFETY: the descriptors lie behind the class map, one for every page of ours.
        unsafe { &*(window.descs as *const Desc).add(pfn.page() - window.first as usize) }
    }

    /// A block of a zone; `None` where its window has no page of ours, or is no zone's.
    #[inline]
    #[must_use]
    pub fn block(&self, number: u32) -> Option<NonNull<Block>> {
        let pfn = Pfn(number << BLOCK_SHIFT);
        let window = self.windows.get(pfn.window())?.load(Acquire);
        // SAFETY: as in `window`.
        let window = unsafe { window.as_ref() }?;
        let (first, end) = (window.first >> BLOCK_SHIFT, (window.end - 1) >> BLOCK_SHIFT);
        let at = (pfn.page() >> BLOCK_SHIFT) as u32;
        if window.blocks == 0 || at < first || at > end {
            return None;
        }
        // SAFETY: inside the window's blocks.
        NonNull::new(unsafe { (window.blocks as *mut Block).add((at - first) as usize) })
    }

    /// The blocks of a zone whose newest window has page `newest` ([`Pfn::NONE`]: there is none), as far as they
    /// are opened now.
    pub fn blocks_of(&self, newest: Pfn) -> impl Iterator<Item = u32> {
        let window = |pfn: Pfn| (pfn != Pfn::NONE).then(|| self.window(pfn));
        core::iter::successors(window(newest), move |last| window(last.older)).flat_map(|window| {
            let base = window.number << (WINDOW_SHIFT - PAGE_SHIFT - BLOCK_SHIFT);
            // Relaxed: what is opened meanwhile is seen the next time.
            let opened = window.opened.load(Relaxed);
            let first = window.first >> BLOCK_SHIFT;
            let end = if opened > window.first { ((opened - 1) >> BLOCK_SHIFT) + 1 } else { first };
            (first..end).map(move |at| base + at)
        })
    }

    /// Writes the tags of the pages of a word of 64 whose bits are set.
    #[inline]
    pub fn set_tags(&self, word: Pfn, bits: u64, tag: u32) {
        let window = self.window(word);
        let first = (window.descs as *const Desc).wrapping_add(word.page()).wrapping_sub(window.first as usize);
        let set = |bit: usize| {
            debug_assert!((window.first as usize..window.end as usize).contains(&(word.page() + bit)));
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
            !window.is_null() && unsafe { ((*window).first as usize..(*window).end as usize).contains(&pfn.page()) }
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

    /// Reserves a window with up to 1 GiB that is ours, at least `pages`; the range of its pages.
    pub fn reserve(&self, board: &Board, paging: Paging, pages: usize, _: usize) -> Option<(Pfn, usize)> {
        self.reserve_for(board, paging, pages, None)
    }
    /// The same for a zone, whose newest window so far has page `older`: with blocks.
    pub fn reserve_zone(&self, board: &Board, pages: usize, zone: usize, older: Pfn) -> Option<(Pfn, usize)> {
        self.reserve_for(board, Paging::Small, pages, Some((zone, older)))
    }
    fn reserve_for(
        &self,
        board: &Board,
        paging: Paging,
        pages: usize,
        zone: Option<(usize, Pfn)>,
    ) -> Option<(Pfn, usize)> {
        let mut made = self.made.lock();
        let least = (pages * PAGE).next_multiple_of(SMALLEST).min(WINDOW);
        // Where a whole window is refused (a limit on address space), no more than needed.
        for len in [WINDOW, FRUGAL.max(least), least] {
            if let Some(base) = Self::aligned(len, WINDOW, made.count) {
                return self.install(board, &mut made, (base, len), paging, zone, false);
            }
        }
        None
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
        // SAFETY: fresh and ours.
        if unsafe { sys::protect(base, bytes, Access::ReadWrite) }.is_err() {
            // SAFETY: fresh, ours and unused.
            let _ = unsafe { sys::unmap(base, bytes) };
            return None;
        }
        let (pfn, _) = self.install(board, &mut made, (base, bytes), Paging::Small, None, true)?;
        // (Only its first page's descriptor is ever used.)
        self.giant(pfn).bytes.store(bytes, Relaxed);
        Some(pfn)
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

    /// Calls for all that is opened in each window. For a heap that nobody uses any more.
    pub fn each_opened(&self, mut each: impl FnMut(usize, usize)) {
        for (_, window) in self.in_use() {
            let opened = (window.opened.load(Relaxed) - window.first) as usize * PAGE;
            let bytes = match window.giant.bytes.load(Relaxed) {
                0 => opened,
                giant => giant,
            };
            if bytes > 0 {
                each(window.base + window.first as usize * PAGE, bytes);
            }
        }
    }

    /// Calls for the first page of each window of areas, with the pages opened there (one for a giant area's).
    pub fn each_of_areas(&self, mut each: impl FnMut(Pfn, usize)) {
        for (number, window) in self.in_use().filter(|(_, window)| window.blocks == 0) {
            let is_giant = window.giant.bytes.load(Relaxed) > 0;
            let pages = if is_giant { 1 } else { window.opened.load(Relaxed).saturating_sub(window.first) };
            each(Pfn((number * WINDOW_PAGES) as u32 + window.first), pages as usize);
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
        let hint = ((0x2000 + seed + salt as usize) << WINDOW_SHIFT).next_multiple_of(align);
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
        if len < align {
            // The kernel's own choice, if it does not cross a window's end; its slot of the
            // root may be taken, though.
            let at = sys::map(0, len, Access::None).ok()?;
            if at >> WINDOW_SHIFT == (at + len - 1) >> WINDOW_SHIFT {
                return Some(at);
            }
            // SAFETY: fresh, ours and unused.
            let _ = unsafe { sys::unmap(at, len) };
        }
        None
    }

    /// Makes a window of fresh address space; gives it back if that cannot be done.
    fn install(
        &self,
        board: &Board,
        made: &mut Made,
        (base, len): (usize, usize),
        paging: Paging,
        zone: Option<(usize, Pfn)>,
        giant: bool,
    ) -> Option<(Pfn, usize)> {
        let index = base >> WINDOW_SHIFT;
        let usable = index < ROOT && self.root[index].load(Relaxed) == 0;
        let pages = len.min(WINDOW) / PAGE;
        let start = index << WINDOW_SHIFT;
        let first = ((base - start) / PAGE) as u32;
        let end = ((base - start + len) / PAGE).min(WINDOW_PAGES) as u32;
        let blocks = if zone.is_some() { ((end - 1) >> BLOCK_SHIFT) - (first >> BLOCK_SHIFT) + 1 } else { 0 };
        let described = if giant { 1 } else { pages };
        let place = if usable { self.place(board, made, described, blocks as usize, giant) } else { None };
        let Some((number, meta)) = place else {
            // SAFETY: fresh, ours and unused.
            let _ = unsafe { sys::unmap(base, len) };
            return None;
        };
        // SAFETY: `meta` is ours; advice costs nothing but itself if refused.
        unsafe {
            let advice = if paging == Paging::Huge { Advice::Huge } else { Advice::NoHuge };
            let _ = sys::advise(base, len, advice);
            (meta as *mut Window).write(Window {
                base: start,
                descs: meta + HEAD + WINDOW_PAGES,
                number,
                first,
                end,
                blocks: if blocks == 0 { 0 } else { meta + blocks_at(pages) },
                opened: AtomicU32::new(first),
                zone: zone.map_or(0, |(number, _)| number as u32),
                older: zone.map_or(Pfn::NONE, |(_, older)| older),
                giant: Giant::default(),
            });
        }
        // Release: the window is seen whole by whoever finds it.
        self.windows[number as usize].store(meta as *mut Window, Release);
        self.root[index].store((meta + HEAD).wrapping_sub(index << (WINDOW_SHIFT - PAGE_SHIFT)), Release);
        board.raise(Level::Reserved, len);
        board.raise(Level::Mappings, 2);
        Some((Pfn(number * WINDOW_PAGES as u32 + first), (end - first) as usize))
    }

    /// A number and metadata for a window.
    fn place(&self, board: &Board, made: &mut Made, pages: usize, blocks: usize, giant: bool) -> Option<(u32, usize)> {
        // Giant areas leave spare windows; only another of them may do with few descriptors.
        if made.spare != 0 && giant {
            let number = made.spare;
            let window = self.windows[number as usize].load(Relaxed);
            // SAFETY: a spare window's metadata is there and nobody's.
            made.spare = unsafe { (*window).giant.bytes.load(Relaxed) } as u32;
            return Some((number, window as usize));
        }
        if made.count as usize + 1 >= WINDOWS {
            return None;
        }
        let bytes = meta_bytes(pages, blocks);
        let meta = sys::map(0, bytes, Access::ReadWrite).ok()?;
        // SAFETY: fresh and ours; a refusal costs memory only.
        let _ = unsafe { sys::advise(meta, bytes, Advice::NoHuge) };
        board.raise(Level::Reserved, bytes);
        board.raise(Level::Mappings, 1);
        made.count += 1;
        Some((made.count, meta))
    }

    /// Opens the window up to `end` at least, in steps of at least `step` pages; pages are
    /// opened from the window's beginning on. The pages newly opened (none if they were open).
    ///
    /// The caller holds the lock of the zone or area space that the window belongs to.
    pub fn open(&self, board: &Board, end: Pfn, step: usize) -> Option<core::ops::Range<Pfn>> {
        let last = Pfn(end.0 - 1);
        let window = self.window(last);
        let opened = window.opened.load(Relaxed);
        let first = Pfn(window.number * WINDOW_PAGES as u32 + opened);
        if last.page() < opened as usize {
            return Some(first..first);
        }
        let wanted = (last.page() + 1).next_multiple_of(step).min(window.end as usize);
        let try_to = |to: usize| {
            let (at, len) = (window.base + opened as usize * PAGE, (to - opened as usize) * PAGE);
            // SAFETY: reserved for us and not in use yet.
            unsafe { sys::protect(at, len, Access::ReadWrite) }.ok().map(|()| to)
        };
        // A limit may refuse the whole step and allow what is needed.
        let to = try_to(wanted).or_else(|| try_to(last.page() + 1))?;
        window.opened.store(to as u32, Relaxed);
        board.raise(Level::Mapped, (to - opened as usize) * PAGE);
        Some(first..Pfn(window.number * WINDOW_PAGES as u32 + to as u32))
    }
}
