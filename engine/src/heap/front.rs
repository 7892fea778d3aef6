//! # The front: areas that were freed a moment ago, by CPU
//!
//! ```text
//! free ──► set[class of its length]: ≤ 2 areas ──full──► dirty runs (vmap), neighbours merged
//! malloc ◄── same length ──┘   └── another length: dirty runs
//! ```
//! A sheaf that is full of areas as long as the next one gets twice the room if it was empty meanwhile (its `batch` says so), while such
//! sheaves of a CPU hold 8 MiB together at most: its limit is what it may hold of the class's longest, in units of 64 KiB; 0 while that is two. Then its older half goes.
//! All of them go before a request touches memory that no area used yet: merged with their neighbours they may serve it.
//!
//! The last five classes of every set hold no objects but areas of at most [`MOST`] bytes, up to twice the length to a class:
//! one mechanism with small objects (the sequences `pop` and `push`, drains, forks, the fallback, the counts of a
//! tally), without a barn, a budget or a source that fills. An area of another length that comes out goes where neighbours merge.
//!
//! Invariants: an area here is `Front` in its descriptor and counted in use, as an object in a sheaf is; what comes out and
//! is not `Front` any more was freed twice at the same moment, and is left alone. Marks are stored without a locked
//! instruction: of two threads that free an area at the same moment both may pass (as of blocks, see [`super::pages`]).
//! Nothing comes in that a purge treats by itself (guarded, moved, huge), while the soft limit is near, or where
//! frees are synchronous. Locks: none. Cost: a sequence, some ten loads and a store each way.
#![allow(unsafe_code)] // sequences

use super::{Environment, Heap};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::cache::Source;
use crate::cache::layout::{OBJECTS, Word};
use crate::cache::set::Set;
use crate::cache::sheaf::Sheaf;
use crate::knob::Id;
use crate::page::{Desc, Kind};
use crate::slab::class::SMALL_MAX;
use crate::stat::Level;
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};

/// Bytes of the largest area that comes in.
pub const MOST: usize = 256 * PAGE;
/// Areas of a class in a set, whatever their lengths.
const DEPTH: usize = 2;
/// What classes with more than that may hold together, in units of the first class's longest area (64 KiB): 8 MiB.
const WIDE: usize = 128;

/// The class of areas of so many pages: up to 64, 128, 256, 512 KiB, 1 MiB. (Those that are no longer than small objects come in, too,
/// so that a second free of one is seen at once.)
#[inline(always)]
const fn class_of(pages: usize) -> usize {
    FIRST_FRONT + ((pages - 1) | 8).ilog2() as usize - 3
}
const _: () = assert!(class_of(1) == FIRST_FRONT && class_of(MOST / PAGE) == CLASSES_MAX - 1);

impl<E: Environment> Heap<E> {
    /// Whether areas of so many bytes, which are not small, may be here.
    #[inline(always)]
    fn is_for_front(&self, size: usize) -> bool {
        let huge = self.cache.knobs.size(Id::HugeBytes);
        size.wrapping_sub(SMALL_MAX + 1) < MOST - SMALL_MAX && size.wrapping_sub(1) < huge.wrapping_sub(1)
    }

    /// An area of this CPU's front, with sequences; anything else is the slow path's.
    #[inline(always)]
    pub(super) fn front_alloc(&self, size: usize) -> Option<usize> {
        // (Closed, and in the fallback, the gate lets nothing pass.)
        if !self.is_for_front(size) || self.small.load(Relaxed) == 0 {
            return None;
        }
        let pages = size.div_ceil(PAGE);
        match self.cache.sets.pop_fast(class_of(pages) * 16) {
            Outcome::Done(address) => self.front_fits(address, pages),
            _ => None,
        }
    }

    /// The same in every mode, inside.
    pub(super) fn front_alloc_slow(&self, size: usize) -> Option<usize> {
        let pages = size.div_ceil(PAGE);
        if !self.is_for_front(size) || !self.is_open() {
            return None;
        }
        match self.cache.sets.pop(class_of(pages)) {
            Outcome::Done(address) => self.front_fits(address, pages),
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
            set.batches[class_of(size.div_ceil(PAGE))].store(1, Relaxed);
        }
    }

    /// What came out is the program's, if it has that length.
    #[inline(always)]
    fn front_fits(&self, address: usize, pages: usize) -> Option<usize> {
        let (_, desc) = self.pages.windows.look(address)?;
        // Relaxed: it was pushed by a thread that this CPU ran before.
        if desc.tag.load(Relaxed) == Kind::Front as u32 && desc.len() == pages {
            desc.tag.store(Kind::Area as u32, Relaxed);
            return Some(address);
        }
        self.front_misses(address, class_of(pages));
        None
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
            && desc.tag.load(Relaxed) == Kind::Front as u32
        {
            desc.tag.store(Kind::Area as u32, Relaxed);
            // SAFETY: nobody else has it.
            unsafe { self.free_aside(address) };
        }
    }

    /// The descriptor of an area that may come in, and its class.
    #[inline(always)]
    fn front_takes(&self, address: usize) -> Option<(&Desc, usize)> {
        let (_, desc) = self.pages.windows.look(address)?;
        let pages = desc.len();
        let is_plain = desc.tag.load(Relaxed) == Kind::Area as u32 && address.is_multiple_of(PAGE);
        // (A giant area has no length, and goes elsewhere.)
        if !is_plain || pages.wrapping_sub(1) >= MOST / PAGE || self.profile.samples.may_have(address) {
            return None;
        }
        let is_lazy = self.cache.knobs.size(Id::SyncFree) == 0 && !self.cache.is_tight();
        is_lazy.then(|| (desc, class_of(pages)))
    }

    /// Takes an area into this CPU's front, with sequences; false if it is the caller's still.
    #[inline(always)]
    pub(super) fn front_free(&self, address: usize) -> bool {
        if self.small.load(Relaxed) == 0 {
            return false;
        }
        let Some((desc, class)) = self.front_takes(address) else { return false };
        // Relaxed: whoever takes it out runs on this CPU behind us, or has drained the set with a fence.
        desc.tag.store(Kind::Front as u32, Relaxed);
        // SAFETY: an area that the caller gives up; its mark was ours to take.
        if unsafe { self.cache.sets.push_fast(class * 16, address) } == Outcome::Done(()) {
            return true;
        }
        desc.tag.store(Kind::Area as u32, Relaxed);
        false
    }

    /// The same in every mode, inside, and after what is there has made room; `None` if it is the caller's still, else whether the
    /// levels were told of what has.
    pub(super) fn front_free_slow(&self, address: usize) -> Option<bool> {
        let (desc, class) = self.front_takes(address)?;
        let lazy = || self.cache.sets.board().level(Level::Lazy);
        let before = lazy();
        desc.tag.store(Kind::Front as u32, Relaxed);
        // SAFETY: as in `front_free`.
        let push = || unsafe { self.cache.sets.push(class, address) } == Outcome::Done(());
        let room = |set: &Set, sheaf: &mut Sheaf| self.front_room(set, class, desc.len(), sheaf);
        let is_full = |main: Word| main.room() == 0;
        if push() || self.cache.renew_main(&self.mm().everything(), class, is_full, room) && push() {
            return Some(lazy() != before);
        }
        desc.tag.store(Kind::Area as u32, Relaxed);
        None
    }

    /// Before memory is touched that no area used yet: what this CPU keeps goes where it serves any length.
    pub(super) fn front_gives_way(&self) {
        let holds = |main: Word| main.count() > 0;
        let all = |set: &Set, class: usize, sheaf: &mut Sheaf| {
            self.front_loses(sheaf, sheaf.len());
            // Relaxed: a hint.
            set.limits[class].store(0, Relaxed);
            DEPTH
        };
        for class in FIRST_FRONT..CLASSES_MAX {
            self.cache.renew_main(&self.mm().everything(), class, holds, |set, sheaf| all(set, class, sheaf));
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

    /// How many areas a class may hold of which `sheaf` is full when another of so many pages comes; what must go for it goes.
    fn front_room(&self, set: &Set, class: usize, pages: usize, sheaf: &mut Sheaf) -> usize {
        let areas = self.vmap();
        let (held, limits) = (sheaf.len(), &set.limits);
        let lacked = set.batches[class].swap(0, Relaxed) != 0;
        let is_alike = held >= DEPTH && sheaf.objects().iter().all(|&area| areas.front_bytes(area) == pages * PAGE);
        // Relaxed: hints, of this CPU's threads alone but for a moment.
        let others = (FIRST_FRONT..CLASSES_MAX).filter(|&other| other != class);
        let others: usize = others.map(|other| limits[other].load(Relaxed) as usize).sum();
        let each = 1 << (class - FIRST_FRONT);
        let wider = (held * 2).min(WIDE.saturating_sub(others) / each).min(OBJECTS);
        let (gone, limit) = match is_alike {
            true if lacked && wider > held => (0, wider),
            true => (held / 2, held),
            false => (if held < DEPTH { 0 } else { held }, DEPTH),
        };
        self.front_loses(sheaf, gone);
        limits[class].store(if limit > DEPTH { (limit * each) as u8 } else { 0 }, Relaxed);
        limit
    }
}
