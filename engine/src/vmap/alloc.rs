//! # A new area: of freed memory, else fresh
//!
//! ```text
//! reuse: a list, a dirty run, another space's ─► a dirty run with free pages beside it ─► the lowest free run
//!                                                ─► another space's ─► all of theirs, merged ─► more memory
//! ```
//! Where there is no more memory: a free run of another space's that stays its own, then one that is aligned only as was asked. Giant ones
//! get a window of their own.
//!
//! Units: pages; bytes at the door. Locks: a space's, held across the `mmap` of the next step. Cost: O(log n) where nothing
//! is reused.

use super::areas::{Fresh, MOST, Vmap};
use super::lists::Want;
use super::space::{GUARD, HUGE, LIKE, Space};
use super::tree::Tree;
use crate::arch::PAGE;
use crate::arch::sys::{self, Advice};
use crate::cache::front;
use crate::knob::Id;
use crate::page::Kind;
use crate::stat::{Event, Level};

impl Vmap<'_> {
    /// A new area of at least `bytes`, aligned to `align` bytes; `None` without memory.
    pub fn alloc(&self, bytes: usize, align: usize) -> Option<Fresh> {
        self.reuse(bytes, align).or_else(|| self.reuse_mixed(bytes, align)).or_else(|| self.alloc_fresh(bytes, align))
    }

    /// Whether such an area lies among those that a CPU's front may have: neither giant nor of huge pages.
    #[must_use]
    pub fn is_plain(&self, bytes: usize, align: usize) -> bool {
        self.shape(bytes, align).2.is_some_and(|flags| flags & HUGE == 0)
    }

    /// The same for a caller that wants zeros: no giant area with old contents, of which no more than a part may be in memory,
    /// and from `sparse` bytes on no part of a dirty run, where clearing costs more than it may be worth. Nor huge pages, of which a table
    /// that is touched here and there would have all resident, unless a knob says so.
    pub fn alloc_zero(&self, bytes: usize, align: usize, sparse: usize) -> Option<Fresh> {
        let (pages, aligned, flags) = self.shape(bytes, align);
        let huge_bytes = self.cache.knobs.size(Id::HugeZeroBytes);
        let may_be_huge = huge_bytes > 0 && bytes >= huge_bytes;
        let flags = flags.map(|flags| if flags & HUGE == 0 || may_be_huge { flags } else { self.home() });
        let reused = match flags {
            None => None,
            Some(_) if bytes < sparse => self.reuse(bytes, align),
            Some(flags) => self.reuse_like(Want { pages, align: aligned, flags, mask: LIKE }),
        };
        reused.or_else(|| self.alloc_charged(flags, pages, [aligned, align.div_ceil(PAGE).max(1)], 0, may_be_huge))
    }

    /// An area with a page behind it where every access faults; `None` without memory, for giants, and where the
    /// kernel has no such pages (before Linux 6.13). The guard costs no mapping, and stays while the area is
    /// lazy: a reused one costs no system call.
    pub fn alloc_guarded(&self, bytes: usize, align: usize) -> Option<Fresh> {
        let (pages, align, flags) = self.shape(bytes, align);
        let (pages, flags) = (pages + 1, flags? | GUARD);
        if let Some(fresh) = self.reuse_like(Want { pages, align, flags, mask: LIKE }) {
            return Some(fresh);
        }
        let charged = self.charge(pages * PAGE, 0)?;
        let Some(fresh) = self.alloc_run(flags & !GUARD, pages, align, true, charged) else {
            self.discharge(charged, pages * PAGE);
            return None;
        };
        let area = self.find(fresh.address)?;
        // SAFETY: the last page of a fresh area.
        if unsafe { sys::advise(fresh.address + (pages - 1) * PAGE, PAGE, Advice::GuardInstall) }.is_err() {
            self.free(&area);
            return None;
        }
        self.windows.desc(area.pfn).set(Kind::Area, area.flags | GUARD);
        Some(fresh)
    }

    fn alloc_fresh(&self, bytes: usize, align: usize) -> Option<Fresh> {
        let least = align.div_ceil(PAGE).max(1);
        let (pages, align, flags) = self.shape(bytes, align);
        self.alloc_charged(flags, pages, [align, least], 0, true)
    }

    /// Fresh pages, aligned as is best or at least as is asked; `credit` as in [`Vmap::charge`]. Whether a giant one `may_be_huge`.
    pub(super) fn alloc_charged(
        &self,
        flags: Option<u32>,
        pages: usize,
        aligns: [usize; 2],
        credit: usize,
        may_be_huge: bool,
    ) -> Option<Fresh> {
        let [align, least] = aligns;
        let bytes = pages.checked_mul(PAGE)?;
        let charged = self.charge(bytes, credit)?;
        let fresh = match flags {
            None => self.alloc_giant(pages, align, charged, may_be_huge),
            // Where there is no more memory: a run of another space's, or one that is aligned as was asked.
            Some(flags) => self
                .alloc_others(flags, pages, align, charged)
                .or_else(|| self.alloc_run(flags, pages, align, true, charged))
                .or_else(|| Space::others(flags).find_map(|other| self.alloc_run(other, pages, least, false, charged)))
                .or_else(|| self.alloc_run(flags, pages, least, true, charged)),
        };
        if fresh.is_none() {
            self.discharge(charged, bytes);
        }
        fresh
    }

    fn alloc_run(&self, flags: u32, pages: usize, align: usize, grow: bool, charged: bool) -> Option<Fresh> {
        let (windows, board) = (self.windows, self.board());
        let mut state = self.lock(self.space(flags));
        let mut run = state.tree.take(windows, pages, align);
        if run.is_none() && grow {
            run = state.grow(windows, board, Space::paging(flags), pages, align);
        }
        let pfn = run?;
        self.take_in(pfn, pages, flags);
        drop(state);
        // (The first class byte that is written in 16 MiB takes a page fault: now, beside those of the area, and not when it is freed.)
        if pages <= front::LONGEST {
            // SAFETY: ours, of a window that is no giant area's; no fast path knows its class.
            unsafe { windows.set_class(pfn, 1, 0) };
        }
        if !charged {
            self.account((pages * PAGE) as isize, 0);
        }
        Some(self.begin(pfn, Event::AreaAlloc))
    }

    /// A free run, where CPUs have spaces of their own: this one's, or one that comes in from another space for good. Where none has one so
    /// long all of their runs come in, and merge: pieces that change hands ([`Vmap::reuse`]) cut up what the spaces have, all of which together
    /// may be any number of times what is asked for.
    fn alloc_others(&self, flags: u32, pages: usize, align: usize, charged: bool) -> Option<Fresh> {
        if !self.areas.is_split() || flags & HUGE != 0 {
            return None;
        }
        let fresh = || self.alloc_run(flags, pages, align, false, charged);
        fresh().or_else(|| {
            let one = |tree: &mut Tree| {
                let mut run = Tree::new();
                run.insert(self.windows, tree.take(self.windows, pages, align)?, pages);
                Some(run)
            };
            let others = || Space::givers(false).filter(|&other| other != flags);
            let comes_in = others().any(|other| self.immigrate(other, flags, one));
            if !comes_in {
                others().for_each(|other| _ = self.immigrate(other, flags, |tree| Some(core::mem::take(tree))));
            }
            fresh()
        })
    }

    /// What `take` takes of a space's free runs comes into another one for good; whether anything did.
    fn immigrate(&self, from: u32, to: u32, take: impl FnOnce(&mut Tree) -> Option<Tree>) -> bool {
        // (In between the runs are nobody's.)
        let runs = take(&mut self.lock(self.space(from)).tree);
        let Some(mut runs) = runs else { return false };
        let mut state = self.lock(self.space(to));
        let pages = runs.move_to(self.windows, &mut state.tree);
        state.opened += pages;
        drop(state);
        self.space(from).state.lock().opened -= pages;
        pages > 0
    }

    fn alloc_giant(&self, pages: usize, align: usize, charged: bool, may_be_huge: bool) -> Option<Fresh> {
        let bytes = pages.checked_mul(PAGE)?;
        if align > MOST / PAGE || bytes > MOST {
            return None;
        }
        let pfn = self.windows.reserve_giant(self.board(), bytes, align * PAGE)?;
        debug_assert!(self.windows.address(pfn).is_multiple_of(align * PAGE));
        let huge_bytes = self.cache.knobs.size(Id::HugeBytes);
        if may_be_huge && huge_bytes > 0 && bytes >= huge_bytes {
            // SAFETY: fresh and ours; the window's small-page advice is replaced.
            let _ = unsafe { sys::advise(self.windows.address(pfn), bytes, Advice::Huge) };
        }
        let desc = self.windows.desc(pfn);
        desc.set_len(0);
        desc.begin_area(0);
        self.board().raise(Level::Mapped, bytes);
        if !charged {
            self.account(bytes as isize, 0);
        }
        Some(self.begin(pfn, Event::AreaAlloc))
    }
}
