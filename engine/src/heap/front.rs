//! # The front: areas that were freed a moment ago, by CPU
//!
//! ```text
//! free ──► set[class of its length]: some areas ──full──► dirty runs (vmap), neighbours merged
//! malloc ◄── next class that is long enough ──┘   └── none there: dirty runs
//! ```
//! A sheaf that is full gets twice the room if it was empty meanwhile (its `batch` says so), and its first room whatever was, while
//! what all such sheaves of a CPU may hold is 16 MiB together at most. Else its older half goes.
//! All of them go before a request touches memory that no area used yet: merged with their neighbours they may serve it.
//!
//! The last classes of every set hold no objects but areas of at most [`MOST`] bytes, eight lengths to a doubling
//! ([`crate::cache::front`]): one mechanism with small objects (the sequences `pop` and `push`, drains, forks, the fallback, the counts of a
//! tally), without a barn, a budget or a source that fills. So an area of that size is up to an eighth longer than was asked for.
//!
//! Invariants: an area here is `Front` in its descriptor and counted in use, as an object in a sheaf is; what comes out and
//! is not `Front` any more was freed twice at the same moment, and is left alone. Marks are stored without a locked
//! instruction: of two threads that free an area at the same moment both may pass (as of blocks, see [`super::pages`]).
//! Nothing comes in that a purge treats by itself (guarded, moved, huge), while the soft limit is near, or where
//! frees are synchronous. The class byte of an area's first page is a hint of the class that it came in by ([`Heap::front_free_again`]):
//! nothing depends on it but time. Locks: none. Cost: a sequence, some ten loads and a store each way.
#![allow(unsafe_code)] // sequences

use super::state::{Environment, Heap};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::arch::{PAGE, opaque};
use crate::cache::Source;
use crate::cache::front;
use crate::cache::layout::{OBJECTS, Word};
use crate::cache::set::Set;
use crate::cache::sheaf::Sheaf;
use crate::knob::Id;
use crate::page::{BIASED, Desc, Kind, Pfn};
use crate::slab::class::SMALL_MAX;
use crate::stat::Level;
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};
use crate::vmap::PLAIN;

/// Bytes of the largest area that comes in.
pub const MOST: usize = front::LONGEST * PAGE;
/// Areas that a class may hold at first.
const DEPTH: usize = 2;
/// Pages of all areas that a set may hold: 16 MiB.
const WIDE: usize = 4096;
/// Between an area in use and one of a set's, in a descriptor's tag.
const OTHER: u32 = Kind::Area as u32 ^ Kind::Front as u32;

const _: () = assert!(front::serves(MOST / PAGE) == CLASSES_MAX - 1);

impl<E: Environment> Heap<E> {
    /// Whether areas of so many bytes, which are not small, may be here.
    #[inline(always)]
    pub(super) fn is_for_front(&self, size: usize) -> bool {
        let huge = self.cache.knobs.size(Id::HugeBytes);
        size.wrapping_sub(SMALL_MAX + 1) < MOST - SMALL_MAX && size.wrapping_sub(1) < huge.wrapping_sub(1)
    }

    /// The bytes that an area for a request of `size` should have, to serve as many when it is freed.
    pub(super) fn front_size(&self, size: usize) -> usize {
        let longer = || front::length(front::serves(size.div_ceil(PAGE))) * PAGE;
        // (Not up to where huge pages begin.)
        if self.is_for_front(size) && self.is_for_front(longer()) { longer() } else { size }
    }

    /// A request that is for the front: an area of this CPU's, by a fast path, or else by the slow one.
    #[inline(always)]
    pub(super) fn front_alloc(&self, size: usize) -> *mut u8 {
        let pages = size.div_ceil(PAGE);
        match self.pop_quick(front::serves(pages) * 16) {
            Outcome::Done(address) if self.front_fits(address, pages) => address as *mut u8,
            Outcome::Done(misfit) => self.front_misfit(misfit, size),
            _ => self.malloc_cold(size, false),
        }
    }

    /// A request of `size` met an area that does not fit. (Called last, so that who calls keeps nothing on its stack.)
    #[cold]
    #[inline(never)]
    fn front_misfit(&self, misfit: usize, size: usize) -> *mut u8 {
        self.front_misses(misfit, front::serves(size.div_ceil(PAGE)));
        self.malloc_cold(size, false)
    }

    /// The same in every mode, inside.
    pub(super) fn front_alloc_slow(&self, size: usize) -> Option<usize> {
        let pages = size.div_ceil(PAGE);
        if !self.is_for_front(size) || !self.is_open() {
            return None;
        }
        match self.cache.sets.pop(front::serves(pages)) {
            Outcome::Done(address) if self.front_fits(address, pages) => Some(address),
            Outcome::Done(misfit) => {
                self.front_misses(misfit, front::serves(pages));
                None
            }
            _ => {
                self.front_lacks(size);
                None
            }
        }
    }

    /// This CPU had no area for a request of so many bytes: what says that more room would have served.
    pub(super) fn front_lacks(&self, size: usize) {
        if self.is_for_front(size)
            && let Some(set) = self.cache.sets.ready()
        {
            // Relaxed: a hint.
            set.batches[front::serves(size.div_ceil(PAGE))].store(1, Relaxed);
        }
    }

    /// What came out is the program's, if it is that long.
    #[inline(always)]
    fn front_fits(&self, address: usize, pages: usize) -> bool {
        // SAFETY: a set's classes of areas hold what `front_takes` took: pages of zones.
        let desc = unsafe { self.pages.windows.desc_at(address) };
        // Relaxed: it was pushed by a thread that this CPU ran before.
        let tag = desc.tag.load(Relaxed);
        let fits = tag & PLAIN == Kind::Front as u32 && desc.len() >= pages;
        if fits {
            desc.tag.store(tag ^ OTHER, Relaxed);
        }
        fits
    }

    #[cold]
    #[inline(never)]
    fn front_misses(&self, address: usize, class: usize) {
        if let Some(_inside) = self.enter() {
            self.cache.sets.uncount_alloc(class);
            return self.mm().everything().give(class, address);
        }
        // Beside a fork it is in use again, and freed when that is over.
        if let Some((_, desc)) = self.pages.windows.look(address)
            && desc.kind() == Kind::Front
        {
            desc.set(Kind::Area, desc.rest());
            // SAFETY: nobody else has it.
            unsafe { self.free_aside(address) };
        }
    }

    /// The class of an area that may come in as far as its descriptor tells, which has this tag: its own, of a length that comes in, and
    /// never sampled.
    #[inline(always)]
    fn front_class(&self, address: usize, desc: &Desc, tag: u32) -> Option<usize> {
        let pages = desc.len();
        let is_plain = tag & PLAIN == Kind::Area as u32 && address.is_multiple_of(PAGE);
        // (A giant area has no length, and goes elsewhere.)
        let comes_in = is_plain && pages.wrapping_sub(1) < MOST / PAGE && !self.profile.samples.may_have(address);
        (comes_in && self.cache.knobs.size(Id::SyncFree) == 0).then(|| front::holds(pages))
    }

    /// The first page of an area that may come in, its descriptor, and its class.
    #[inline(always)]
    fn front_takes(&self, address: usize) -> Option<(Pfn, &Desc, usize)> {
        let (pfn, desc) = self.pages.windows.look(address)?;
        let class = self.front_class(address, desc, desc.tag.load(Relaxed))?;
        (!self.cache.is_tight()).then_some((pfn, desc, class))
    }

    /// Takes an area into this CPU's front by a sequence; the class that it was of if it is the caller's still.
    ///
    /// `hint` is the class that the area was of when it came in last. It must be right, by a branch: so the set's word is stored without
    /// waiting for the descriptor, and the next `malloc`, which loads that word, does not wait either.
    #[inline(always)]
    pub(super) fn front_free_again(&self, address: usize, hint: usize) -> Result<(), usize> {
        if self.small.load(Relaxed) == 0 || self.cache.knobs.soft_limit() < u64::MAX {
            return Err(hint);
        }
        // (Opaque: else the compiler takes what it is compared with.)
        let offset = opaque(hint * 16);
        // SAFETY: a class byte says that the page was an area's first: a zone's.
        let desc = unsafe { self.pages.windows.desc_at(address) };
        let tag = desc.tag.load(Relaxed);
        if self.front_class(address, desc, tag) != Some(hint) {
            return Err(hint);
        }
        // Relaxed: whoever takes it out runs on this CPU behind us, or has drained the set with a fence.
        desc.tag.store(tag ^ OTHER, Relaxed);
        // SAFETY: an area that the caller gives up; its mark was ours to take.
        if unsafe { self.cache.sets.push_fast::<false>(offset, address) }.is_done() {
            return Ok(());
        }
        // (Looked up again, so that nothing is kept for it.)
        // SAFETY: as above.
        let desc = unsafe { self.pages.windows.desc_at(opaque(address)) };
        desc.set(Kind::Area, desc.rest());
        Err(offset / 16)
    }

    /// The same of any area, with sequences or for the thread that the fallback favours. From now on its class is known.
    pub(super) fn front_free(&self, address: usize, hint: usize) -> bool {
        let Some((pfn, desc, class)) = self.front_takes(address).filter(|_| self.is_quick()) else { return false };
        if hint != class {
            // SAFETY: an area of ours; what a fast path reads there is a hint.
            unsafe { self.pages.windows.set_class(pfn, 1, class as u8 | BIASED) };
        }
        desc.set(Kind::Front, desc.rest());
        // SAFETY: as above.
        let is_in = unsafe { self.push_quick(class * 16, address) }.is_done();
        if !is_in {
            desc.set(Kind::Area, desc.rest());
        }
        is_in
    }

    /// The same in every mode, inside, and after what is there has made room; `None` if it is the caller's still, else whether the
    /// levels were told of what has.
    pub(super) fn front_free_slow(&self, address: usize) -> Option<bool> {
        let (_, desc, class) = self.front_takes(address)?;
        let lazy = || self.cache.sets.board().level(Level::Lazy);
        let before = lazy();
        desc.set(Kind::Front, desc.rest());
        // SAFETY: as in `front_free`.
        let push = || unsafe { self.cache.sets.push(class, address) } == Outcome::Done(());
        let room = |set: &Set, sheaf: &mut Sheaf| self.front_room(set, class, sheaf);
        let is_full = |main: Word| main.room() == 0;
        if push() || self.cache.renew_main(&self.mm().everything(), class, is_full, room) && push() {
            return Some(lazy() != before);
        }
        desc.set(Kind::Area, desc.rest());
        None
    }

    /// Before memory is touched that no area used yet: what this CPU keeps goes where it serves any length.
    pub(super) fn front_gives_way(&self) {
        // Relaxed: this CPU's, or what another will do itself.
        if self.cache.sets.ready().is_none_or(|set| set.fronts.load(Relaxed) == 0) {
            return;
        }
        let holds = |main: Word| main.count() > 0;
        for class in FIRST_FRONT..CLASSES_MAX {
            self.cache.renew_main(&self.mm().everything(), class, holds, |set, sheaf| {
                self.front_loses(sheaf, sheaf.len());
                set.entitle_areas(class, 0);
                0
            });
        }
    }

    /// Bytes of areas that sets cache, as far as can be seen while they are in use.
    #[must_use]
    pub fn front_bytes(&self) -> usize {
        let (sets, areas) = (&self.cache.sets, self.vmap());
        let mut sum = 0;
        for index in sets.used() {
            (FIRST_FRONT..CLASSES_MAX).for_each(|class| sets.peek(index, class, |area| sum += areas.front_bytes(area)));
        }
        sum
    }

    /// The oldest areas of a sheaf of ours go where neighbours merge.
    fn front_loses(&self, sheaf: &mut Sheaf, gone: usize) {
        let areas = self.vmap();
        sheaf.objects()[..gone].iter().for_each(|&area| areas.let_go(area));
        sheaf.forget_oldest(gone);
    }

    /// How many areas a class may hold of which `sheaf` is full when another comes; what must go for it goes.
    fn front_room(&self, set: &Set, class: usize, sheaf: &mut Sheaf) -> usize {
        let held = sheaf.len();
        // Relaxed: hints, of this CPU's threads alone but for a moment.
        let lacked = set.batches[class].swap(0, Relaxed) != 0;
        let own = set.limits[class].load(Relaxed) as usize * front::length(class);
        let others = (set.fronts.load(Relaxed) as usize).saturating_sub(own);
        let most = (WIDE.saturating_sub(others) / front::length(class)).min(OBJECTS);
        let wider = (held * 2).max(DEPTH).min(most);
        let (gone, limit) =
            if wider > held && (lacked || held < DEPTH) { (0, wider) } else { (held.div_ceil(2), held) };
        self.front_loses(sheaf, gone);
        set.entitle_areas(class, limit);
        limit
    }
}
