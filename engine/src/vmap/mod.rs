//! # `vmap`: areas of whole pages, above 32 KiB
//!
//! ```text
//! busy ───────── free ──────────► dirty runs (neighbours merged)
//!  ▲ └──── shortest run that it fits into ──┘      │ gather: the longest
//!  │                                               ▼
//!  └── lowest fit ── free runs (clean, in the tree) ◄── purge ── pending (sorted, merged)
//! ```
//! A freed area keeps its pages: an allocation takes a part of a dirty run and faults nothing; only where there is none
//! fresh memory is used. (What a CPU freed a moment ago and takes again is a layer above: `heap::front`.) A purge takes
//! dirty runs, the longest first, gives them back to the system in slices without any lock, and settles the counters once
//! (Linux `mm/vmalloc.c`, `__purge_vmap_area_lazy`). No rounding: 36 KiB cost 36 KiB.
//!
//! | kind of the first page's descriptor | resident | in |
//! |---|---|---|
//! | `Area` | yes | the program's hands |
//! | `Front` | yes | a CPU's set |
//! | `Lazy` | yes | pending, a purge's hand; with a guard or moved: [`lists`] of its space |
//! | `Dirty` | yes | [`dirty`] |
//! | `Run` | no (zero when touched) | [`tree`] |
//!
//! Huge-page areas live in a space (and windows) of their own. All others are of one space, too, until threads are in each other's way
//! there: from then on every fourth CPU has one of its own ([`Vmap::home`]). What has a space's number goes back there when it is freed, whoever frees
//! it; a space that has no dirty run long enough takes a large piece of another's ([`reuse`]), so that what is resident is everybody's. Areas above half
//! a window (*giant* ones) have a window of their own, are not reused but given back: at once or soon, in slices,
//! by several threads (see [`purge`]), then unmapped.
//!
//! Units: pages inside, bytes at the door. Locks: one per space (`areas`), held across no advice but of fresh memory. The
//! levels `Areas` and `Lazy` are off by what the spaces have not folded yet: [`DIFFERENTIAL`] bytes each, see `Sets::level`.
//! Cost: of a dirty run a lock and ≈ 40 loads and stores; else O(log n).
#![allow(unsafe_code)] // address space by number

pub mod dirty;
pub mod flight;
mod free;
pub mod lists;
mod purge;
mod resize;
mod reuse;
pub mod tree;

pub use purge::{BATCH, SLICE, TURN, Ticket};

use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize};
use crate::arch::gate::Gate;
use crate::arch::lock::{Guard, Lock};
use crate::arch::sys::{self, Advice};
use crate::arch::{PAGE, PAGE_SHIFT};
use crate::cache::Cache;
use crate::knob::Id;
use crate::page::windows::{self, WINDOW_PAGES};
use crate::page::{Kind, Owner, Paging, Pfn, Windows};
use crate::stat::board::SPACES;
use crate::stat::{Board, Event, Level};
use dirty::Dirty;
use flight::Flights;
use lists::{Lists, Want};
use purge::Queue;
use tree::Tree;

/// [`Areas::takes_vectors`]: nobody has asked, it does, it does not.
const UNKNOWN: u8 = 0;
const TAKEN: u8 = 1;
const REFUSED: u8 = 2;
/// Bytes by which a space's part of the levels may be off at most before it is told; an eighth of it for small areas, and
/// where a soft limit is small.
pub const DIFFERENTIAL: usize = 8 << 20;
/// Pages of a page table.
const CONGRUENT: usize = 512;
/// Areas from this many pages begin at a page table's beginning, so that those move whole. (Smaller ones move quickly
/// enough, and the gaps before them would be a part of all.)
const MOVES_WHOLE: usize = 8 * CONGRUENT;
/// Areas above this many pages get a window of their own.
const GIANT: usize = WINDOW_PAGES / 2;
/// Most bytes of one, and of its alignment: half of the addresses that there are.
const MOST: usize = 1 << 46;

/// In an area's rest: in the huge-page space.
const HUGE: u32 = 1;
/// Moved here by page tables: its mapping merges with no neighbour until it is mapped afresh.
const MOVED: u32 = 2;
/// Its last page is a guard page, which is not the program's.
const GUARD: u32 = 4;
/// Bits of the number of its space, where that is not the first one or the huge pages'.
const HOME: u32 = 0b11 << HOME_SHIFT;
const HOME_SHIFT: u32 = 3;
const _: () = assert!(SPACES == 2 + (HOME >> HOME_SHIFT) as usize);
/// What an area must have like the one that it is reused as.
const LIKE: u32 = HUGE | GUARD | HOME;
/// Areas that a purge neither merges with neighbours nor cuts.
const ALONE: u32 = MOVED | GUARD;
/// Of a descriptor's tag what says that an area is small, plain and in use, or a CPU's own: the same for all spaces.
pub const PLAIN: u32 = !(HOME << 8);
/// Times that threads want a space at the same moment, within a window of time, before it is more than one: where they touch what they
/// get it is fewer, and one space takes less memory.
const CONTENDED: u32 = 4096;
/// Ticks of such a window, as a power of two: some 7 ms.
const WINDOW: u32 = 24;

/// Areas of one kind of pages.
#[derive(Debug)]
struct Space {
    state: Lock<State>,
    /// Lazy areas that merge with nothing ([`ALONE`]); under the lock, but for a peek.
    rest: Lists,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    dirty: Dirty,
    /// Pages of its windows.
    opened: usize,
    /// A page of the newest of them.
    newest: Pfn,
}

/// All areas.
#[derive(Debug)]
pub struct Areas {
    spaces: [Space; SPACES],
    /// What is to go back to the system.
    flights: Flights<Queue>,
    /// Pages on that queue; changed under its lock.
    backlog: AtomicUsize,
    /// Giant areas that have left the queue; who waits for one, or for any flight, sleeps here.
    landed: AtomicU32,
    /// Ranges go to the kernel one by one: it takes no vectors of them from us.
    vectors: AtomicU8,
    /// Areas that carry [`MOVED`].
    moved: AtomicU32,
    /// Times that a thread found its space locked in the latest window, up to [`CONTENDED`].
    contended: AtomicU32,
    /// Which window that is.
    window: AtomicU32,
    /// This is a forked child, and parts of giant areas were in hands that it has not: they never land.
    orphaned: AtomicBool,
}

/// An area found by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first page.
    pub pfn: Pfn,
    /// Its bytes (whole pages).
    pub bytes: usize,
    flags: u32,
}

/// An area as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "as many flags as an area has")]
pub struct Shown {
    /// Where it begins.
    pub address: usize,
    /// Its bytes, a guard page among them.
    pub bytes: usize,
    /// Freed a moment ago, and a CPU's own still.
    pub cached: bool,
    /// Freed, still mapped.
    pub lazy: bool,
    /// Of huge pages.
    pub huge: bool,
    /// Moved by page tables.
    pub moved: bool,
    /// With a guard page.
    pub guard: bool,
    /// In a window of its own.
    pub giant: bool,
}

/// A new area.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// Where it begins.
    pub address: usize,
    /// Whether all of it reads as zero.
    pub zero: bool,
}

/// What became of an area that was to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// It was not in use (freed by somebody else meanwhile).
    Not,
    /// It is lazy, and the levels are as they were.
    Quietly,
    /// The levels have changed: a limit may be passed.
    Told,
    /// It has a window of its own, and waits to be given back.
    Queued(Ticket),
}

/// Areas with what they need.
#[derive(Clone, Copy, Debug)]
pub struct Vmap<'a> {
    /// The areas.
    pub areas: &'a Areas,
    /// Address space.
    pub windows: &'a Windows,
    /// Knobs and events.
    pub cache: &'a Cache,
    /// Where a fork waits.
    pub gate: &'a Gate,
}

impl Default for Areas {
    fn default() -> Self {
        Self::new()
    }
}

impl Areas {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        const fn space() -> Space {
            Space {
                state: Lock::new(State { tree: Tree::new(), dirty: Dirty::new(), opened: 0, newest: Pfn::NONE }),
                rest: Lists::new(),
            }
        }
        Self {
            spaces: [const { space() }; SPACES],
            flights: Flights::new(Queue::new()),
            backlog: AtomicUsize::new(0),
            landed: AtomicU32::new(0),
            vectors: AtomicU8::new(UNKNOWN),
            orphaned: AtomicBool::new(false),
            moved: AtomicU32::new(0),
            contended: AtomicU32::new(0),
            window: AtomicU32::new(0),
        }
    }

    /// CPUs have spaces of their own from now on.
    #[cfg(test)]
    fn split(&self) {
        self.contended.store(CONTENDED, Relaxed);
    }

    /// A thread found its space locked, at `now` ticks.
    #[cold]
    fn was_locked(&self, now: u64) {
        // Relaxed, and a window that two begin is counted from either's beginning: policy.
        let window = (now >> WINDOW) as u32;
        if self.is_split() {
            return;
        }
        if self.window.swap(window, Relaxed) == window {
            self.contended.fetch_add(1, Relaxed);
        } else {
            self.contended.store(1, Relaxed);
        }
    }

    fn is_split(&self) -> bool {
        // Relaxed: policy.
        self.contended.load(Relaxed) >= CONTENDED
    }

    /// Whether the kernel takes vectors of ranges. Asked when the first is to go: a filter that was inherited may kill for
    /// it, so that whoever has one goes range by range.
    fn takes_vectors(&self) -> bool {
        // Relaxed: policy.
        if self.vectors.load(Relaxed) == UNKNOWN {
            // SAFETY: no range.
            let taken = !sys::status().0 && unsafe { sys::advise_many(&[], Advice::DontNeed) } == Ok(0);
            let known = if taken { TAKEN } else { REFUSED };
            let _ = self.vectors.compare_exchange(UNKNOWN, known, Relaxed, Relaxed);
        }
        self.vectors.load(Relaxed) == TAKEN
    }
    /// In a forked child; whether threads of the parent had slices in hand ([`crate::arch::gate`]).
    pub fn inherit(&self, lost: bool) {
        self.flights.lose();
        // Relaxed: there is nobody else.
        self.orphaned.fetch_or(lost, Relaxed);
    }

    /// From now on only plain calls: the process is about to filter its own, or is emulated.
    pub fn confine(&self) {
        self.vectors.store(REFUSED, Relaxed);
    }
}

impl State {
    /// `need` pages more, or some, behind a window's end; false where that cannot be had.
    fn extend(&mut self, windows: &Windows, board: &Board, page: Pfn, need: usize) -> bool {
        let want = windows::step(self.opened);
        let Some((first, pages)) = windows.extend(board, page, need, want) else { return false };
        self.opened += pages;
        self.tree.insert(windows, first, pages);
        true
    }

    /// Takes exactly the `more` pages from `tail` on, if they are free, or the window ends there and gets longer.
    fn take_behind(&mut self, windows: &Windows, board: &Board, tail: Pfn, more: usize) -> bool {
        if self.tree.take_at(windows, tail, more) {
            return true;
        }
        let (page, end) = (Pfn(tail.0 - 1), windows.end(Pfn(tail.0 - 1)));
        let is_last = tail == end || self.tree.ends_at(windows, end) == Some(tail);
        let owned = self.newest != Pfn::NONE && page.same_window(self.newest);
        is_last
            && owned
            && self.extend(windows, board, page, (tail.0 as usize + more).saturating_sub(end.0 as usize))
            && self.tree.take_at(windows, tail, more)
    }

    /// `pages` pages of a dirty run with free ones behind and before it, as many dirty ones as can be had; with their number.
    fn take_mixed(&mut self, windows: &Windows, pages: usize) -> Option<(Pfn, usize)> {
        // The run, its pages, and the free ones behind and before it.
        let mut best = (Pfn::NONE, 0, 0, 0);
        for run in self.dirty.some_longest(windows) {
            let len = windows.desc(run).len();
            if len >= pages {
                // (Another thread has freed it since this one looked.)
                self.dirty.take_at(windows, run, pages);
                return Some((run, pages));
            }
            let end = run.add(len);
            let behind = if run.same_window(end) { self.tree.begins_at(windows, end) } else { 0 };
            let before = self.tree.ends_at(windows, run).map_or(0, |free| windows.desc(free).len());
            if len > best.1 && len + behind + before >= pages {
                best = (run, len, behind, before);
            }
        }
        let (run, len, behind, free) = best;
        if run == Pfn::NONE {
            return None;
        }
        let behind = behind.min(pages - len);
        let before = pages - len - behind;
        let first = Pfn(run.0 - before as u32);
        self.dirty.unlink(windows, run);
        let mut whole = behind == 0 || self.tree.take_at(windows, run.add(len), behind);
        if before > 0 {
            whole &= self.tree.carve(windows, Pfn(run.0 - free as u32), first, before).is_some();
        }
        debug_assert!(whole, "it was there");
        Some((first, len))
    }

    /// A free run from more memory: the newest window's last run made longer, or a new window.
    fn grow(&mut self, windows: &Windows, board: &Board, paging: Paging, pages: usize, align: usize) -> Option<Pfn> {
        let aligned = |at: Pfn| Pfn(at.0.next_multiple_of(align as u32));
        if self.newest != Pfn::NONE {
            let end = windows.end(self.newest);
            let run = self.tree.ends_at(windows, end).unwrap_or(end);
            let then = aligned(run).add(pages);
            // (A run that has room as it is would have been taken, but for its alignment.)
            if then <= end || self.extend(windows, board, self.newest, (then.0 - end.0) as usize) {
                return self.tree.carve(windows, run, aligned(run), pages);
            }
        }
        // A window begins well aligned: for half of one that is enough.
        let pad = align.saturating_sub(windows::ALIGNED);
        let (first, len) = windows.reserve(board, Owner::Areas(paging), pages + pad, windows::step(self.opened))?;
        self.newest = first;
        self.opened += len;
        self.tree.insert(windows, first, len);
        self.tree.carve(windows, first, aligned(first), pages)
    }
}

impl Vmap<'_> {
    fn space(&self, flags: u32) -> &Space {
        &self.areas.spaces[Self::number(flags)]
    }
    /// The right to a space, whoever is in the way.
    #[inline]
    fn lock<'s>(&self, space: &'s Space) -> Guard<'s, State> {
        if sys::single_threaded() {
            return space.state.lock_elided();
        }
        space.state.try_lock().unwrap_or_else(|| {
            self.areas.was_locked(self.cache.sets.clock.ticks());
            space.state.lock()
        })
    }
    /// Where a thread of this CPU takes areas of small pages.
    fn home(&self) -> u32 {
        if self.areas.is_split() { (self.cache.sets.cpus.index() as u32) << HOME_SHIFT & HOME } else { 0 }
    }
    /// The other spaces: their flags.
    fn others(flags: u32) -> impl Iterator<Item = u32> {
        let all = (0..=HOME >> HOME_SHIFT).map(|home| home << HOME_SHIFT).chain([HUGE]);
        all.filter(move |&other| other != flags)
    }
    fn paging(flags: u32) -> Paging {
        if flags & HUGE != 0 { Paging::Huge } else { Paging::Small }
    }
    fn board(&self) -> &Board {
        self.cache.sets.board()
    }
    /// Bytes of areas in use and of lazy areas change.
    fn account(&self, areas: isize, lazy: isize) {
        if areas != 0 {
            self.board().shift(Level::Areas, areas);
        }
        if lazy != 0 {
            self.board().shift(Level::Lazy, lazy);
        }
    }

    /// `bytes` become lazy (or, negative, are taken back) under the lock of their space, which is `_held`; whether the levels were told.
    #[inline(always)]
    fn differ(&self, flags: u32, _held: &State, bytes: isize) -> bool {
        let tally = &self.board().spaces[Self::number(flags)].differential;
        // Relaxed, and no locked instruction: the word is changed under the lock only.
        let differential = (tally.load(Relaxed) as isize).wrapping_add(bytes);
        // Twice this area: whoever takes and frees areas of its size again and again tells nobody.
        let least = if sys::single_threaded() { DIFFERENTIAL / 64 } else { DIFFERENTIAL / 8 };
        let most = (self.cache.knobs.soft_limit() / 64).clamp(least as u64, DIFFERENTIAL as u64) as usize;
        let most = (2 * bytes.unsigned_abs()).clamp(least, most);
        if differential.unsigned_abs() <= most {
            tally.store(differential as u64, Relaxed);
            return false;
        }
        // Half stays, for the same reason.
        let keep = differential.signum() * (most as isize / 2);
        tally.store(keep as u64, Relaxed);
        self.account(keep - differential, differential - keep);
        self.board().grown();
        true
    }

    /// The number of the space that areas with such flags are in.
    const fn number(flags: u32) -> usize {
        match flags & HOME {
            0 => (flags & HUGE) as usize,
            home => 1 + (home >> HOME_SHIFT) as usize,
        }
    }

    /// A new area of at least `bytes`, aligned to `align` bytes; `None` without memory.
    pub fn alloc(&self, bytes: usize, align: usize) -> Option<Fresh> {
        self.reuse(bytes, align).or_else(|| self.reuse_mixed(bytes, align)).or_else(|| self.alloc_fresh(bytes, align))
    }

    /// Whole pages, how they are aligned, and where such areas live; `None` for giants.
    fn shape(&self, bytes: usize, align: usize) -> (usize, usize, Option<u32>) {
        let (pages, align) = (bytes.max(1).div_ceil(PAGE), align.div_ceil(PAGE).max(1));
        if pages.saturating_add(align) > GIANT {
            return (pages, align, None);
        }
        let huge_bytes = self.cache.knobs.size(Id::HugeBytes);
        let flags = if huge_bytes > 0 && bytes >= huge_bytes { HUGE } else { self.home() };
        (pages, if pages >= MOVES_WHOLE { align.max(CONGRUENT) } else { align }, Some(flags))
    }

    /// Whether such an area lies among those that a CPU's front may have: neither giant nor of huge pages.
    #[must_use]
    pub fn is_plain(&self, bytes: usize, align: usize) -> bool {
        self.shape(bytes, align).2.is_some_and(|flags| flags & HUGE == 0)
    }

    /// The same for a caller that wants zeros: no giant area with old contents, of which no more than a part may be in memory,
    /// and from `sparse` bytes on no part of a dirty run, where clearing costs more than it may be worth.
    pub fn alloc_zero(&self, bytes: usize, align: usize, sparse: usize) -> Option<Fresh> {
        let (pages, align_pages, flags) = self.shape(bytes, align);
        if flags.is_none() {
            return self.alloc_charged(flags, pages, [align_pages; 2], 0);
        }
        let reused = if bytes < sparse { self.reuse(bytes, align) } else { self.reuse_whole(bytes, align) };
        reused.or_else(|| self.alloc_fresh(bytes, align))
    }

    /// Counts `bytes` that are about to be an area, if there is a hard limit and they do not pass it by more than
    /// `credit` bytes, which go soon: `Some(true)`. Without a limit they are counted afterwards: `Some(false)`.
    /// Counted first and then looked at, so that of two at the same time one sees both.
    fn charge(&self, bytes: usize, credit: usize) -> Option<bool> {
        let limit = self.cache.knobs.hard_limit();
        if limit == u64::MAX {
            return Some(false);
        }
        let (board, limit) = (self.board(), limit.saturating_add(credit as u64));
        // (What could never fit is not to be in others' way.)
        if board.held().saturating_add(bytes as u64) > limit {
            return None;
        }
        self.account(bytes as isize, 0);
        if board.held() > limit {
            self.account(-(bytes as isize), 0);
            return None;
        }
        Some(true)
    }
    /// The charge is not needed after all.
    fn discharge(&self, charged: bool, bytes: usize) {
        if charged {
            self.account(-(bytes as isize), 0);
        }
    }

    /// Pages that were taken off a structure, under its lock, are an area.
    fn take_in(&self, pfn: Pfn, pages: usize, flags: u32) {
        let desc = self.windows.desc(pfn);
        desc.set_len(pages);
        desc.set(Kind::Area, flags);
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

    /// Tells of an area that begins.
    fn begin(&self, pfn: Pfn, event: Event) -> Fresh {
        self.board().grown();
        self.cache.sets.count(event, 1);
        Fresh { address: self.windows.address(pfn), zero: event == Event::AreaAlloc }
    }

    fn alloc_fresh(&self, bytes: usize, align: usize) -> Option<Fresh> {
        let least = align.div_ceil(PAGE).max(1);
        let (pages, align, flags) = self.shape(bytes, align);
        self.alloc_charged(flags, pages, [align, least], 0)
    }

    /// Fresh pages, aligned as is best or at least as is asked; `credit` as in [`Vmap::charge`].
    fn alloc_charged(&self, flags: Option<u32>, pages: usize, aligns: [usize; 2], credit: usize) -> Option<Fresh> {
        let [align, least] = aligns;
        let bytes = pages.checked_mul(PAGE)?;
        let charged = self.charge(bytes, credit)?;
        let fresh = match flags {
            None => self.alloc_giant(pages, align, charged),
            // Where there is no more memory: a run of another space's, or one that is aligned as was asked.
            Some(flags) => self
                .alloc_run(flags, pages, align, true, charged)
                .or_else(|| Self::others(flags).find_map(|other| self.alloc_run(other, pages, least, false, charged)))
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
            run = state.grow(windows, board, Self::paging(flags), pages, align);
        }
        let pfn = run?;
        self.take_in(pfn, pages, flags);
        drop(state);
        if !charged {
            self.account((pages * PAGE) as isize, 0);
        }
        Some(self.begin(pfn, Event::AreaAlloc))
    }

    fn alloc_giant(&self, pages: usize, align: usize, charged: bool) -> Option<Fresh> {
        let bytes = pages.checked_mul(PAGE)?;
        if align > MOST / PAGE || bytes > MOST {
            return None;
        }
        let pfn = self.windows.reserve_giant(self.board(), bytes, align * PAGE)?;
        if !self.windows.address(pfn).is_multiple_of(align * PAGE) {
            // The kernel's own choice, where there was no room for a better one.
            let desc = self.windows.desc(pfn);
            desc.set_len(0);
            desc.set(Kind::Area, 0);
            self.board().raise(Level::Mapped, bytes);
            self.account(bytes as isize, 0);
            self.drop_giant(&Area { pfn, bytes, flags: 0 });
            return None;
        }
        let huge_bytes = self.cache.knobs.size(Id::HugeBytes);
        if huge_bytes > 0 && bytes >= huge_bytes {
            // SAFETY: fresh and ours; the window's small-page advice is replaced.
            let _ = unsafe { sys::advise(self.windows.address(pfn), bytes, Advice::Huge) };
        }
        let desc = self.windows.desc(pfn);
        desc.set_len(0);
        desc.set(Kind::Area, 0);
        self.board().raise(Level::Mapped, bytes);
        if !charged {
            self.account(bytes as isize, 0);
        }
        Some(self.begin(pfn, Event::AreaAlloc))
    }

    /// The area that begins at `address`.
    #[must_use]
    pub fn find(&self, address: usize) -> Option<Area> {
        if !address.is_multiple_of(PAGE) {
            return None;
        }
        let (window, pfn) = self.windows.find(address)?;
        let desc = self.windows.desc(pfn);
        if desc.kind() != Kind::Area {
            return None;
        }
        let pages = desc.len();
        let flags = desc.rest();
        let guards = ((flags & GUARD) / GUARD) as usize;
        let bytes = if pages == 0 { window.giant.bytes.load(Relaxed) } else { (pages - guards) << PAGE_SHIFT };
        Some(Area { pfn, bytes, flags })
    }

    /// Calls for each area, busy and lazy, by windows and addresses. Takes no lock: one that changes meanwhile is
    /// shown as before, as after, or not at all.
    pub fn each(&self, mut each: impl FnMut(Shown)) {
        self.windows.each_of_areas(|first, pages| {
            let mut at = 0;
            while at < pages {
                let pfn = first.add(at);
                let desc = self.windows.desc(pfn);
                let (kind, flags, len) = (desc.kind(), desc.rest(), desc.len());
                if matches!(kind, Kind::Area | Kind::Front | Kind::Lazy | Kind::Dirty) {
                    let giant = self.windows.giant(pfn).bytes.load(Relaxed);
                    each(Shown {
                        address: self.windows.address(pfn),
                        bytes: if len == 0 { giant } else { len << PAGE_SHIFT },
                        cached: kind == Kind::Front,
                        lazy: matches!(kind, Kind::Lazy | Kind::Dirty),
                        huge: flags & HUGE != 0,
                        moved: flags & MOVED != 0,
                        guard: flags & GUARD != 0,
                        giant: len == 0,
                    });
                }
                // (A word that changes meanwhile may say anything: one step on, nothing is missed for long.)
                at += if matches!(kind, Kind::Area | Kind::Front | Kind::Lazy | Kind::Dirty | Kind::Run) {
                    len.clamp(1, pages - at)
                } else {
                    1
                };
            }
        });
    }

    /// Whether it has a window of its own.
    #[must_use]
    pub fn is_giant(&self, area: &Area) -> bool {
        self.windows.desc(area.pfn).len() == 0
    }

    /// Takes a free run of at least `least` pages, and a multiple of them, out of the areas for good, the largest
    /// there is up to a block of a zone. It is nobody's now, and zero.
    pub fn hand_over(&self, least: usize) -> Option<(Pfn, usize)> {
        const BLOCK: usize = 512;
        for space in &self.areas.spaces {
            let mut state = space.state.lock();
            let mut pages = BLOCK.max(least);
            loop {
                // Aligned like itself; the smallest, like what is asked for.
                if let Some(first) = state.tree.take(self.windows, pages, pages) {
                    state.opened -= pages;
                    self.windows.desc(first).set(Kind::None, 0);
                    self.windows.mix(first);
                    return Some((first, pages));
                }
                if pages == least {
                    break;
                }
                pages = (pages / 8).max(least);
            }
        }
        None
    }

    /// The same with what is dirty, `pages` that are aligned like themselves: nobody's now, with their old contents.
    pub fn hand_over_dirty(&self, pages: usize) -> Option<Pfn> {
        let (flags, part) =
            Self::others(u32::MAX).find_map(|flags| Some((flags, self.reuse_part(flags, pages, pages)?)))?;
        let (_, first) = self.windows.find(part.address)?;
        self.space(flags).state.lock().opened -= pages;
        self.account(-((pages * PAGE) as isize), 0);
        // (It was an area for a moment.)
        self.cache.sets.count(Event::AreaFree, 1);
        self.windows.desc(first).set(Kind::None, 0);
        self.windows.mix(first);
        Some(first)
    }

    /// Pages that were nobody's are a free run from now on, zero, or, with their old contents, a dirty one.
    pub fn take_over(&self, first: Pfn, pages: usize, clean: bool) {
        // What they were is over; of a run only the first page says what it is.
        (0..pages).for_each(|page| self.windows.desc(first.add(page)).set(Kind::None, 0));
        self.windows.mix(first);
        let space = &self.areas.spaces[0];
        let mut state = space.state.lock();
        state.opened += pages;
        if clean {
            state.tree.insert(self.windows, first, pages);
        } else {
            self.keep(space, &mut state, first, pages, 0);
            self.account(0, (pages * PAGE) as isize);
        }
    }

    /// Advises fresh memory as its neighbours are, so that the mappings merge.
    fn advise(&self, at: usize, bytes: usize, flags: u32) {
        let advice = if flags & HUGE != 0 { Advice::Huge } else { Advice::NoHuge };
        // SAFETY: memory of ours; this advice keeps contents.
        let _ = unsafe { sys::advise(at, bytes, advice) };
    }

    /// Checks all structures; for tests, when nobody else uses them. Pages that are free or lazy.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn verify(&self) -> usize {
        let mut pages = 0;
        for space in &self.areas.spaces {
            space.rest.verify(self.windows, &mut |len| pages += len);
            let state = space.state.lock();
            state.dirty.verify(self.windows, &mut |_, len| pages += len);
            let mut last = Pfn::NONE;
            state.tree.verify(self.windows, &mut |at, len| {
                assert!(at > last.add(1) || !at.same_window(last), "runs overlap or touch");
                last = at.add(len - 1);
                pages += len;
            });
        }
        let queue = self.areas.flights.lock();
        let (mut at, mut queued) = (queue.pending, 0);
        while at != Pfn::NONE {
            let desc = self.windows.desc(at);
            assert_eq!(desc.kind(), Kind::Lazy);
            assert!(desc.links().0 == Pfn::NONE || desc.links().0 > at, "pending is not in order");
            queued += desc.len();
            at = desc.links().0;
        }
        pages += queued;
        at = queue.giants;
        while at != Pfn::NONE {
            let (desc, giant) = (self.windows.desc(at), self.windows.giant(at));
            assert_eq!((desc.kind(), giant.out.load(Relaxed)), (Kind::Lazy, 0));
            queued += (giant.bytes.load(Relaxed) - giant.handed.load(Relaxed)) / PAGE;
            at = desc.links().0;
        }
        assert_eq!(queued, self.areas.backlog(), "the backlog is not what is queued");
        pages
    }
}

#[cfg(test)]
mod tests;
