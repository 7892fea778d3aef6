//! # Windows of address space, and the owner of any pointer
//!
//! ```text
//! root[address >> 30] ──► window's metadata            classes + (address >> 12) ──► class byte
//!
//! 1 GiB slot:  ┌────────┬────────┬──────────────────────┐8 MiB┌─────────────────┐     256 KiB of
//!              │ Window │ blocks │ descriptors, 16 B a  │     │ pages that are  │     class bytes
//!              │        │ 96 KiB │ page, as needed ─►   │     │ ours  ─►        │     elsewhere
//!              └────────┴────────┴──────────────────────┘     └─────────────────┘
//! ```
//! A window is what of an aligned 1 GiB of addresses is ours. Its pages are mapped as they are needed, each
//! step right behind the one before, and so are their descriptors: nothing is only reserved, for `ulimit -v` and
//! `mlockall` count that, too. A neighbour in the way ends a window; the next one begins elsewhere. Null in the
//! root means foreign; the highest bit, a giant area's window, which has no class bytes.
//!
//! All class bytes are as far from `classes` as their pages from address 0, a byte a page: of these addresses only those of our
//! windows are mapped. So the class of an address (0: no small object; negative: in the fallback) is one load, which waits for
//! nothing but the address; that the address is ours is known by a branch beside it. Where `malloc` takes one class after the other,
//! a load more in that chain doubled the time of a pair (docs/performance.md).
//!
//! A window is a zone's or an area space's, who alone make it longer. Under a limit its free pages may change
//! hands (see `reclaim::scarce`); then it is *mixed*, and those that a zone has go back to that zone, as blocks.
//!
//! Invariants: windows are never given back (but giant ones, see `vmap`), so a
//! descriptor may be read at any time; a descriptor's `tag` says who may write
//! the rest. Locks: `windows` for making windows, their owner's for making them longer. Cost: four system
//! calls per window and one for its class bytes, two per step.
#![allow(unsafe_code)] // address space by number

mod giant;

use super::block::{BLOCK_PAGES, BLOCK_SHIFT, Block};
use super::desc::Desc;
use super::pfn::{Pfn, WINDOW, WINDOW_SHIFT, WINDOWS, each};
use super::window::{
    BLOCKS_AT, DATA_AT, DESCS_AT, Giant, MOST_PAGES, NOT_HUGE, Owner, Paging, Refused, Window, desc_of, descs_end,
    map_at, map_behind, map_plain,
};
use crate::arch::atomic::Ordering::{self, Acquire, Relaxed, Release};
use crate::arch::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};
use crate::arch::lock::Lock;
use crate::arch::sys::{self, Access, Advice};
use crate::arch::{ADDRESS_BITS, PAGE, PAGE_SHIFT, opaque, prefetch};
use crate::stat::board::FIRST_FRONT;
use crate::stat::{Board, Level};
use core::ptr::NonNull;

pub use super::pfn::WINDOW_PAGES;
pub use super::window::ALIGNED;

/// Entries of the root: one for each window that there may be.
const ROOT: usize = 1 << (ADDRESS_BITS - WINDOW_SHIFT);

/// Pages whose descriptors are mapped at a time: 16 MiB of memory, 64 KiB of descriptors.
const DESCRIBED: usize = 4096;

/// Slots tried for a window where others have taken the first.
const SLOTS: usize = 16;

/// Where windows are looked for first, and giant ones: slots that the kernel does not choose by itself.
const FIRST_SLOT: usize = 0x2000;

const FIRST_GIANT: usize = 0x8000;

/// Where class bytes are looked for first: 32 GiB of addresses that the kernel does not choose by itself either, below those of
/// `cache`'s sets.
const CLASSES_AT: usize = 0xc00 << WINDOW_SHIFT;

/// In a root's entry: a giant area's window.
const GIANT: usize = 1 << (usize::BITS - 1);

/// In a class byte: of what sequences do not serve; in the fallback of all, else of areas that a front marks
/// ([`is_marked`](crate::cache::front::is_marked)). The fast path of sequences takes it for none.
pub const BIASED: u8 = 1 << 7;

/// The class byte of a marked area while a front has it: no class is called so. (What is freed then was freed twice.)
pub const HELD: u8 = BIASED | (FIRST_FRONT as u8 - 1);

/// All windows.
#[derive(Debug)]
pub struct Windows {
    root: [AtomicUsize; ROOT],
    /// Where the class byte of page 0 would be; known with the first window.
    classes: AtomicUsize,
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

impl Default for Windows {
    fn default() -> Self {
        Self::new()
    }
}

impl Windows {
    /// Windows that there may be: one for each such part of all addresses.
    pub const ALL: usize = ROOT;

    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            root: [const { AtomicUsize::new(0) }; ROOT],
            classes: AtomicUsize::new(0),
            windows: [const { AtomicPtr::new(core::ptr::null_mut()) }; WINDOWS],
            made: Lock::new(Made { count: 0, spare: 0, slot: 0 }),
            refused: AtomicBool::new(false),
        }
    }

    /// The class byte of an address (with [`BIASED`] of what the fast path does not serve); `None` if the address is
    /// foreign, or a giant area's.
    #[inline(always)]
    pub fn class(&self, address: usize) -> Option<u8> {
        // SAFETY: said here.
        unsafe {
            self.class_where(address, |window| {
                self.root.get(window).is_some_and(|entry| entry.load(Relaxed).cast_signed() > 0)
            })
        }
    }

    /// From here to the word of the first window, above 0 where class bytes are.
    pub const ROOT_AT: usize = core::mem::offset_of!(Self, root);

    /// The same where the address's window is one of those that are looked at.
    ///
    /// # Safety
    /// None is that is not below [`Windows::ALL`], or whose word (from [`Windows::ROOT_AT`] on) is not above 0.
    #[inline(always)]
    pub unsafe fn class_where(&self, address: usize, is_looked_at: impl FnOnce(usize) -> bool) -> Option<u8> {
        // Opaque: else a compare becomes a second shift of the address.
        // Relaxed, that word and where classes are: a pointer that a program holds was handed to it after these were stored,
        // and however it travelled ordered those stores too.
        if !is_looked_at(opaque(address >> WINDOW_SHIFT)) {
            return None;
        }
        // SAFETY: those of a window that is no giant area's are mapped, for all of its pages.
        Some(unsafe { *(self.class_at(address) as *const u8) })
    }

    /// Where the class byte of an address is.
    #[inline(always)]
    fn class_at(&self, address: usize) -> usize {
        self.classes.load(Relaxed) + (address >> PAGE_SHIFT)
    }

    /// The class byte of a page, to be written while others look.
    ///
    /// # Safety
    /// The page is of a window that is no giant area's.
    #[inline(always)]
    pub unsafe fn class_byte(&self, address: usize) -> &AtomicU8 {
        // SAFETY: mapped for all of that window's pages, for ever.
        unsafe { &*(self.class_at(address) as *const AtomicU8) }
    }

    /// Whether a front has the marked area that begins at an address.
    #[inline(always)]
    pub fn is_held(&self, address: usize) -> bool {
        self.class(address) == Some(HELD)
    }

    /// The window of an address, and which of its pages it is, if it is ours.
    #[inline(always)]
    fn locate(&self, address: usize, ordering: Ordering) -> Option<(&Window, usize)> {
        let index = address >> WINDOW_SHIFT;
        let entry = self.root.get(index)?.load(ordering);
        if entry == 0 {
            return None;
        }
        // SAFETY: a non-zero root entry leads to a window's metadata, which stays for ever.
        let window = unsafe { &*((entry & !GIANT) as *const Window) };
        let page = (address & (WINDOW - 1)) >> PAGE_SHIFT;
        window.has(page).then_some((window, page))
    }

    /// The window of an address and the page's number, if it is ours.
    pub fn find(&self, address: usize) -> Option<(&Window, Pfn)> {
        let (window, page) = self.locate(address, Acquire)?;
        Some((window, Pfn(window.number * WINDOW_PAGES as u32 + page as u32)))
    }

    /// The page of an address and its descriptor, if it may be a zone's.
    #[inline(always)]
    pub fn look(&self, address: usize) -> Option<(Pfn, &Desc)> {
        // Relaxed: as in `class`.
        let (window, page) = self.locate(address, Relaxed)?;
        if window.blocks == 0 {
            return None;
        }
        // SAFETY: every page of a window that is no giant area's has a descriptor.
        let desc = unsafe { &*desc_of(address) };
        Some((Pfn(window.number * WINDOW_PAGES as u32 + page as u32), desc))
    }

    /// Fetches the descriptor of a page that is soon asked for, if there is one.
    #[inline(always)]
    pub fn prefetch(&self, address: usize) {
        prefetch(desc_of(address));
    }

    /// The same of a page that is known to be a zone's, without a look whether it is.
    ///
    /// # Safety
    /// `address` lies in a page that a zone had, ever.
    #[inline(always)]
    pub unsafe fn desc_at(&self, address: usize) -> &Desc {
        // SAFETY: the caller's promise: the window is there, stays for ever, and is no giant area's.
        unsafe { &*desc_of(address) }
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
        // SAFETY: the descriptors lie behind the blocks, one for every page of ours.
        unsafe { &*window.desc(pfn.page()) }
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

    /// Pages of this page's window change hands between a zone and areas. It asks for no huge ones from now on: who has a part of one may
    /// give that back, and the kernel's own thread would make it resident again.
    pub fn mix(&self, page: Pfn) {
        let window = self.window(page);
        // Relaxed: for who walks.
        if !window.mixed.swap(true, Relaxed) && window.owner.paging() == Paging::Huge {
            let (at, bytes) =
                (window.base + window.first as usize * PAGE, (window.end() - window.first as usize) * PAGE);
            // SAFETY: ours; this advice keeps contents, and a refusal costs nothing but itself.
            let _ = unsafe { sys::advise(at, bytes, Advice::NoHuge) };
        }
    }

    /// Pages that were just mapped at a window's end ask for huge ones, block by block. The caller holds the zone's lock.
    pub fn make_huge(&self, board: &Board, first: Pfn, pages: usize) {
        let (window, page) = (self.window(first), first.page());
        // Relaxed, here and below: under the lock.
        let is_first = window.huge.load(Relaxed) == NOT_HUGE;
        // One range: what was grown by small pages in between ends it.
        if !is_first && window.huge_end.load(Relaxed) as usize != page {
            return;
        }
        let from = if is_first { page.next_multiple_of(BLOCK_PAGES) } else { page };
        let Some(bytes) = (page + pages).checked_sub(from).map(|pages| pages * PAGE).filter(|&bytes| bytes > 0) else {
            return;
        };
        // SAFETY: ours; this advice keeps contents.
        if unsafe { sys::advise(window.base + from * PAGE, bytes, Advice::Huge) }.is_err() {
            return;
        }
        if is_first {
            window.huge.store(from as u32, Relaxed);
            board.raise(Level::Mappings, 1);
        }
        window.huge_end.store((page + pages) as u32, Relaxed);
        board.raise(Level::Huge, bytes);
    }

    /// No page of this one's window asks for huge ones any more; what is to be advised so, by the caller, who holds the zone's lock.
    pub fn end_huge(&self, board: &Board, page: Pfn) -> Option<(usize, usize)> {
        let window = self.window(page);
        let from = window.huge.swap(NOT_HUGE, Relaxed);
        (from != NOT_HUGE).then(|| {
            let bytes = (window.huge_end.load(Relaxed) - from) as usize * PAGE;
            board.lower(Level::Mappings, 1);
            board.lower(Level::Huge, bytes);
            (window.base + from as usize * PAGE, bytes)
        })
    }

    /// Whether pages of this one's window ask for huge ones: a look.
    #[must_use]
    pub fn has_huge(&self, page: Pfn) -> bool {
        self.window(page).huge.load(Relaxed) != NOT_HUGE
    }

    /// Whether a block asks for a huge page. The caller holds the zone's lock.
    #[must_use]
    pub fn is_huge(&self, number: u32) -> bool {
        let pfn = Pfn(number << BLOCK_SHIFT);
        let window = self.window(pfn);
        pfn.page() >= window.huge.load(Relaxed) as usize
            && pfn.page() + BLOCK_PAGES <= window.huge_end.load(Relaxed) as usize
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
        let first = window.desc(word.page());
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
        let at = self.class_at(self.address(pfn));
        // SAFETY: of pages of a window that is no giant area's; the caller owns them, readers only look
        // at bytes of pages in which they hold an object.
        unsafe { core::ptr::write_bytes(at as *mut u8, class, pages) };
    }

    /// What a fast path knows of the area that begins at an address does not hold any more, if it knew anything. The area is the caller's.
    pub fn forget_class(&self, address: usize) {
        if self.class(address).is_some_and(|class| class & !BIASED >= HELD & !BIASED) {
            // SAFETY: just read. Relaxed: the caller's.
            unsafe { self.class_byte(address) }.store(0, Relaxed);
        }
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
            let [at, to] = [described, described_then].map(|pages| window.base + descs_end(pages));
            map_behind(at, to - at, Paging::Small)?;
            window.described.store(described_then as u32, Relaxed);
            board.raise(Level::Reserved, to - at);
        }
        let paging = if window.mixed.load(Relaxed) { Paging::Small } else { window.owner.paging() };
        map_behind(window.base + end * PAGE, pages * PAGE, paging)?;
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

    /// Whether the system gave nothing when it was asked last: a look.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.refused.load(Relaxed)
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
        let described = pages.next_multiple_of(DESCRIBED);
        let meta = descs_end(described);
        map_at(start, meta, Paging::Small)?;
        let mapped = map_at(start + DATA_AT, pages * PAGE, owner.paging()).and_then(|()| {
            self.map_classes(slot).inspect_err(|_| {
                // SAFETY: fresh, ours and unused, here and below.
                let _ = unsafe { sys::unmap(start + DATA_AT, pages * PAGE) };
            })
        });
        if let Err(refused) = mapped {
            // SAFETY: as above.
            let _ = unsafe { sys::unmap(start, meta) };
            return Err(refused);
        }
        made.count += 1;
        let first = (DATA_AT / PAGE) as u32;
        let window = Window {
            base: start,
            descs: Window::descs_from(start + DESCS_AT, first),
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
            huge: AtomicU32::new(NOT_HUGE),
            huge_end: AtomicU32::new(0),
            giant: Giant::default(),
        };
        board.raise(Level::Reserved, meta + pages * PAGE + WINDOW_PAGES);
        board.raise(Level::Mapped, pages * PAGE);
        board.raise(Level::Mappings, 1);
        Ok(self.install(board, start, window))
    }

    /// The class bytes of a slot; with the first, where all of them are. (Where there are no such addresses, half as far up as that slot: the
    /// kernel begins at the top.) The caller holds the lock.
    fn map_classes(&self, slot: usize) -> Result<(), Refused> {
        const SHIFT: u32 = WINDOW_SHIFT - PAGE_SHIFT;
        let map = |base: usize| map_plain(base + (slot << SHIFT), WINDOW_PAGES);
        // Relaxed, here and below: under the lock; others see it by the root's entry.
        let known = self.classes.load(Relaxed);
        if known != 0 {
            return map(known);
        }
        let first = |base| map(base).map(|()| self.classes.store(base, Relaxed));
        match first(CLASSES_AT) {
            Err(Refused::Taken) => first((slot / 2) << WINDOW_SHIFT),
            mapped => mapped,
        }
    }

    /// Takes a window in whose metadata is at `meta`; its first page.
    fn install(&self, board: &Board, meta: usize, window: Window) -> Pfn {
        let (number, base, first, is_giant) = (window.number, window.base, window.first, window.owner == Owner::Giant);
        // SAFETY: fresh metadata, ours.
        unsafe { (meta as *mut Window).write(window) };
        // Release: the window is seen whole by whoever finds it.
        self.windows[number as usize].store(meta as *mut Window, Release);
        self.root[base >> WINDOW_SHIFT].store(if is_giant { meta | GIANT } else { meta }, Release);
        board.raise(Level::Mappings, 2);
        Pfn(number * WINDOW_PAGES as u32 + first)
    }

    /// The zone that a page goes back to.
    #[must_use]
    pub fn zone(&self, pfn: Pfn) -> usize {
        self.window(pfn).zone as usize
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
                let known = self.root[window.base >> WINDOW_SHIFT].load(Relaxed);
                window.owner != Owner::Giant || known == &raw const **window as usize | GIANT
            })
    }

    /// Calls for all pages of each window. For a heap that nobody uses any more.
    pub fn each_opened(&self, mut each: impl FnMut(usize, usize)) {
        for (_, window) in self.in_use() {
            let bytes = match window.giant.bytes.load(Relaxed) {
                0 => (window.end() - window.first as usize) * PAGE,
                giant => giant,
            };
            each(window.base + window.first as usize * PAGE, bytes);
        }
    }

    /// Calls for the first page of each window that may have areas, with its pages (one for a giant area's).
    pub fn each_of_areas(&self, mut each: impl FnMut(Pfn, usize)) {
        // Relaxed: as in `blocks_of`.
        let may = |window: &Window| !matches!(window.owner, Owner::Zone(_)) || window.mixed.load(Relaxed);
        for (number, window) in self.in_use().filter(|(_, window)| may(window)) {
            each(Pfn((number * WINDOW_PAGES) as u32 + window.first), window.end() - window.first as usize);
        }
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

#[cfg(test)]
mod tests;
