//! A page layer for models: a few numbered pages without memory (nothing is written
//! into free objects), which tells when a page goes while somebody uses an object of it.
#![allow(unsafe_code)] // the engine's signatures

use crate::arch::PAGE;
use crate::arch::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::arch::lock::Lock;
use crate::cache::Cache;
use crate::machine;
use crate::stat::Board;

/// Pages that there are.
pub const PAGES: usize = 16;
/// Pages of a block: all are slabs'.
const BLOCK: usize = 2;
const BASE: usize = 0x10_0000;

/// A page's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pfn(pub u32);
impl Pfn {
    /// The page `pages` further on.
    #[must_use]
    pub const fn add(self, pages: usize) -> Self {
        Self(self.0 + pages as u32)
    }
}
/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    None = 0,
    /// A block in use.
    Pages = 2,
    /// A slab's.
    Slab = 3,
}
/// A page's descriptor.
#[derive(Debug)]
pub struct Desc {
    /// The slab.
    pub link: AtomicU64,
    tag: AtomicU32,
    class: AtomicU8,
}
impl Desc {
    /// What the page is.
    pub fn kind(&self) -> Kind {
        match self.tag.load(Relaxed) {
            2 => Kind::Pages,
            3 => Kind::Slab,
            _ => Kind::None,
        }
    }
    /// Sets it.
    pub fn set(&self, kind: Kind, _: u32) {
        self.tag.store(kind as u32, Relaxed);
    }
}
/// All descriptors.
#[derive(Debug)]
pub struct Windows([Desc; PAGES]);
impl Windows {
    /// Which page an address is in.
    #[must_use]
    pub fn find(&self, address: usize) -> Option<((), Pfn)> {
        let page = address.checked_sub(BASE)? / PAGE;
        (page < PAGES).then_some(((), Pfn(page as u32)))
    }
    /// Which page an address is in, and its descriptor.
    #[must_use]
    pub fn look(&self, address: usize) -> Option<(Pfn, &Desc)> {
        self.find(address).map(|(_, pfn)| (pfn, self.desc(pfn)))
    }
    /// Its address.
    #[must_use]
    pub const fn address(&self, pfn: Pfn) -> usize {
        BASE + pfn.0 as usize * PAGE
    }
    /// Its descriptor.
    #[must_use]
    pub const fn desc(&self, pfn: Pfn) -> &Desc {
        &self.0[pfn.0 as usize]
    }
    /// Its zone.
    #[must_use]
    pub const fn zone(&self, _: Pfn) -> usize {
        0
    }
    /// Its class.
    pub fn class(&self, address: usize) -> Option<u8> {
        self.find(address).map(|(_, pfn)| self.desc(pfn).class.load(Relaxed))
    }
    /// Sets the class.
    ///
    /// # Safety
    /// As the engine's.
    pub unsafe fn set_class(&self, pfn: Pfn, pages: usize, class: u8) {
        (0..pages).for_each(|page| self.desc(pfn.add(page)).class.store(class, Relaxed));
    }
}
/// As the engine's.
pub const BIASED: u8 = 1 << 7;

/// The page layer.
#[derive(Debug)]
pub struct Pages {
    /// The pages.
    pub windows: Windows,
    used: Lock<[bool; PAGES / BLOCK]>,
}
impl Default for Pages {
    fn default() -> Self {
        Self::new()
    }
}
impl Pages {
    /// All free.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            windows: Windows(
                [const { Desc { link: AtomicU64::new(0), tag: AtomicU32::new(0), class: AtomicU8::new(0) } }; PAGES],
            ),
            used: Lock::new([false; PAGES / BLOCK]),
        }
    }
    /// Nobody may have an object there, whenever the system takes the pages.
    ///
    /// # Safety
    /// As the engine's, and checked here.
    #[must_use]
    pub unsafe fn give_back(&self, _: &Board, first: Pfn, pages: usize) -> bool {
        let at = self.windows.address(first);
        machine::point();
        machine::assert_unused(at..at + pages * PAGE);
        true
    }
    /// Nobody grows here.
    pub fn note_long(&self, _: isize) {}
    /// Blocks in use.
    pub fn used(&self) -> usize {
        self.used.lock().iter().filter(|&&used| used).count()
    }
}
/// Pages for the layer above.
#[derive(Debug)]
pub struct PageSource<'a> {
    /// The pages.
    pub pages: &'a Pages,
    /// Unused here.
    pub cache: &'a Cache,
    /// Unused here.
    pub first: usize,
}
impl PageSource<'_> {
    /// A block.
    #[must_use]
    pub fn alloc(&self, _: usize) -> Option<Pfn> {
        let mut used = self.pages.used.lock();
        let free = used.iter().position(|&used| !used)?;
        used[free] = true;
        Some(Pfn((free * BLOCK) as u32))
    }
    /// Takes a block back.
    ///
    /// # Safety
    /// As the engine's, and checked here.
    pub unsafe fn free(&self, block: Pfn, _: usize) {
        let mut used = self.pages.used.lock();
        assert!(core::mem::take(&mut used[block.0 as usize / BLOCK]), "VIOLATION: page {block:?} freed twice");
        let base = self.pages.windows.address(block);
        machine::assert_unused(base..base + BLOCK * PAGE);
    }
    /// One node.
    #[must_use]
    pub fn is_near(&self, _: usize) -> bool {
        true
    }
}
