//! # Descriptors: what a page is
//!
//! 16 bytes for each page of ours, beside its window. Invariant: a descriptor may be read at any time; its tag says who
//! may write the rest. Locks: none; every field is relaxed. Cost: a load.

use super::pfn::Pfn;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicU32, AtomicU64};

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
    /// First page of a dirty run of `vmap`.
    Dirty = 7,
    /// Last page of a dirty run of two pages and more: `link` is its first.
    Tail = 8,
    /// First page of a long area that a CPU's set caches (see `heap::front`; shorter ones have their mark in the class byte), of one that waits
    /// (`vmap::wide`), or whose free is put off.
    Front = 9,
}

/// One page's descriptor. 16 bytes; every field is a relaxed atomic because the
/// owner of one block looks at the tags of its neighbours.
#[repr(C)]
#[derive(Debug)]
pub struct Desc {
    /// Two page numbers (list or tree), the slab, or the pages that were asked for of an area that has room to grow.
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
            7 => Kind::Dirty,
            8 => Kind::Tail,
            9 => Kind::Front,
            _ => Kind::None,
        }
    }
    /// The twelve bits and more behind the kind.
    #[inline]
    pub fn rest(&self) -> u32 {
        self.tag.load(Relaxed) >> 8
    }
    /// Whether both are just these, in one look: what another changes meanwhile is neither.
    #[inline]
    pub fn is(&self, kind: Kind, rest: u32) -> bool {
        self.tag.load(Relaxed) == rest << 8 | kind as u32
    }
    /// Sets both.
    #[inline]
    pub fn set(&self, kind: Kind, rest: u32) {
        self.tag.store(rest << 8 | kind as u32, Relaxed);
    }
    /// An area in use begins here, which has no room to grow.
    #[inline]
    pub fn begin_area(&self, flags: u32) {
        self.link.store(0, Relaxed);
        self.set(Kind::Area, flags);
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
