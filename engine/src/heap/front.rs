//! # The front: areas that were freed a moment ago, by CPU
//!
//! ```text
//! free ──► set[class of its length]: some areas ──full──► dirty runs (vmap), neighbours merged
//! malloc ◄── next class that is long enough ──┘   └── none there: a class behind it, or dirty runs
//! ```
//! A sheaf that is full gets twice the room if it was empty meanwhile (its `batch` says so), and its first room whatever was, while
//! what all such sheaves of a CPU may hold is 20 MiB together at most (where they may already, one that idles loses half). Else its older
//! half goes, or all of eight and more where none was asked for since it was full last.
//! Where a CPU never asked for areas of a class those that others give it to free go among the dirty runs at once, which serve whoever asks.
//! Of areas above 1 MiB a set has one, and serves from it what is shorter by a ninth at most.
//! All of them go before a request touches memory that no area used yet: merged with their neighbours they may serve it.
//!
//! The last classes of every set hold no objects but areas of at most [`FRONT_BYTES`](crate::knob::FRONT_BYTES), up to 1 MiB eight lengths or more to a doubling
//! ([`crate::cache::front`]): one mechanism with small objects (the sequences `pop` and `push`, drains, forks, the fallback, the counts of a
//! tally), without a barn, a budget or a source that fills. So an area of that size is up to an eighth longer than was asked for.
//!
//! Those of at most [`UNMARKED`](crate::cache::front::UNMARKED) pages come and go by the paths of small objects, which ask no descriptor:
//! here they look as if they were in use, and what was freed twice is found when it goes on, as of objects.
//!
//! Invariants: a longer one (and any where objects are checked) is marked while it is here: its class byte is [`HELD`], or where it is of the last
//! class its descriptor `Front`. All are counted in use, as an object in a
//! sheaf is; what comes out and is not marked any more was freed twice at the same moment, and is left alone. Marks are stored without a
//! locked instruction: of two threads that free an area at the same moment both may pass (as of blocks, see [`super::pages`]).
//! Nothing comes in that a purge treats by itself (guarded, moved, huge), while the soft limit is near, or where
//! frees are synchronous.
//!
//! The class byte of an area's first page is its class from when it first came in to when it goes, changes its length or is sampled
//! ([`Windows::forget_class`](crate::page::Windows::forget_class)), but while that is the mark: so long it is in use or in a front, plain, and as
//! long as areas of that class are. That is all that a fast path asks. Locks: none. Cost: a sequence; of
//! marked ones some loads and a store more each way.
#![allow(unsafe_code)] // sequences

use super::state::{Environment, Heap};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::arch::{PAGE, opaque};
use crate::cache::Source;
use crate::cache::front;
use crate::cache::layout::{OBJECTS, Word};
use crate::cache::set::{LACKED, Set, WANTED};
use crate::cache::sheaf::Sheaf;
use crate::knob::Id;
use crate::page::{BIASED, Desc, HELD, Kind, Pfn};
use crate::slab::class::SMALL_MAX;
use crate::stat::board::{CLASSES_MAX, FIRST_FRONT};
use crate::stat::{Level, Mode};
use crate::vmap::PLAIN;

/// Areas that a class may hold at first: as many as come to 512 KiB, from two to eight. (Where they are only freed a slow path lets all of them go.)
const fn depth(class: usize) -> usize {
    let few = 128 / front::length(class);
    if few < 2 {
        2
    } else if few > SOME {
        SOME
    } else {
        few
    }
}
/// Areas of a class that are so many at least are no longer asked for if none was while half of them came. (Of fewer that may be chance.)
const SOME: usize = 8;
/// Pages of all areas that a set may hold, but for a long one: 20 MiB.
const WIDE: usize = 5120;
/// Pages of a class of which half is worth to go to slabs: 1 MiB.
const MUCH: usize = 256;
/// Areas behind one that comes in for the first time whose descriptor is fetched.
const AHEAD: usize = 4;
/// Between an area in use and one of the last class of a set, in a descriptor's tag.
const OTHER: u32 = Kind::Area as u32 ^ Kind::Front as u32;

const _: () = assert!(front::serves(front::GRADED) + 1 == front::LONG);
const _: () = assert!(front::SHORTEST * PAGE == SMALL_MAX);

impl<E: Environment> Heap<E> {
    /// Whether areas of so many bytes, which are not small, may be here.
    #[inline(always)]
    pub(super) fn is_for_front(&self, size: usize) -> bool {
        size > SMALL_MAX && size <= self.cache.knobs.front_most()
    }

    /// The bytes that an area for a request of `size` should have, to serve as many when it is freed.
    pub(super) fn front_size(&self, size: usize) -> usize {
        let class = front::serves(size.div_ceil(PAGE));
        let longer = || front::length(class) * PAGE;
        // (Not up to where huge pages begin.)
        if class != front::LONG && self.is_for_front(size) && self.is_for_front(longer()) { longer() } else { size }
    }

    /// A request that is for the front: an area of this CPU's, by a fast path (`pop`), or else by the slow one.
    #[inline(always)]
    pub(super) fn front_alloc(&self, size: usize, pop: impl FnOnce(usize) -> Outcome<usize>) -> *mut u8 {
        let more = (size - 1) / PAGE;
        let offset = front::offset(more);
        match pop(offset) {
            Outcome::Done(address) if self.front_fits(address, offset / 16, more) => address as *mut u8,
            Outcome::Done(misfit) => self.front_misfit(misfit, offset / 16, size),
            _ => self.front_next(size),
        }
    }

    /// The same with sequences, of one page more than so many, of a class of one length above what gates let pass: its areas are marked.
    #[inline(always)]
    pub(super) fn front_alloc_graded(&self, size: usize, more: usize) -> *mut u8 {
        let offset = front::offset(more);
        match self.cache.sets.pop_fast::<false>(offset) {
            Outcome::Done(address) if self.graded_turns::<false>(address, offset / 16) => address as *mut u8,
            // (Or the gates were lower a moment ago: it is not marked, and goes where any may be found.)
            Outcome::Done(misfit) => self.front_misfit(misfit, offset / 16, size),
            _ => self.front_next(size),
        }
    }

    /// The same of the next classes, whose areas are longer by an eighth or a page.
    #[cold]
    #[inline(never)]
    pub(super) fn front_next(&self, size: usize) -> *mut u8 {
        let more = (size - 1) / PAGE;
        for next in front::next(front::serves(more + 1)) {
            match self.pop_quick(next * 16) {
                Outcome::Done(address) if self.front_fits(address, next, more) => return address as *mut u8,
                Outcome::Done(misfit) => return self.front_misfit(misfit, next, size),
                _ => {}
            }
        }
        self.front_next_run(size)
    }

    /// The same of the run.
    #[cold]
    #[inline(never)]
    fn front_next_run(&self, size: usize) -> *mut u8 {
        if front::serves(size.div_ceil(PAGE)) != front::LONG
            && let Some(area) = self.run_lends::<false>(size, PAGE)
        {
            return area as *mut u8;
        }
        self.malloc_cold(size, false)
    }

    /// A request of `size` met an area that does not fit. (Called last, so that who calls keeps nothing on its stack.)
    #[cold]
    #[inline(never)]
    fn front_misfit(&self, misfit: usize, class: usize, size: usize) -> *mut u8 {
        if class != front::LONG {
            self.front_misses::<false>(misfit, class);
        } else if let Some(area) = self.run_serves::<false>(misfit, size, PAGE) {
            return area as *mut u8;
        }
        self.malloc_cold(size, false)
    }

    /// The same in every mode, inside, aligned to `align`: the area that comes next is, or it goes where any may be found.
    pub(super) fn front_alloc_slow(&self, size: usize, align: usize) -> Option<usize> {
        if !self.is_for_front(size) || !self.is_open() {
            return None;
        }
        self.front_pop::<true>(size, align)
    }

    /// Whether a request for zeros is served here, and cleared: of a long area perhaps little will be used.
    pub(super) fn front_may_clear(&self, size: usize) -> bool {
        size <= front::GRADED * PAGE || size < self.mm().sparse()
    }

    /// The same by a fast path, anywhere.
    pub(super) fn front_alloc_quick(&self, size: usize, align: usize) -> Option<usize> {
        self.is_for_front(size).then(|| self.front_pop::<false>(size, align))?
    }

    /// Takes an area of a class; refused if there is none. (`INSIDE`: in every mode; else by a fast path.)
    #[inline(always)]
    pub(super) fn front_take<const INSIDE: bool>(&self, class: usize) -> Outcome<usize> {
        if INSIDE { self.cache.sets.pop(class) } else { self.pop_quick(class * 16) }
    }

    /// Puts an area there, whose mark says so where its class has any; false where there is no room.
    ///
    /// # Safety
    /// It is the caller's, and of that class; it is given up if true.
    #[inline(always)]
    pub(super) unsafe fn front_put<const INSIDE: bool>(&self, class: usize, area: usize) -> bool {
        // SAFETY: the caller's promise, both.
        let put = unsafe { if INSIDE { self.cache.sets.push(class, area) } else { self.push_quick(class * 16, area) } };
        put.is_done()
    }

    /// What was taken goes back, as if it had not been; where there is no room any more, where any may be found.
    pub(super) fn front_restores<const INSIDE: bool>(&self, class: usize, area: usize) {
        // SAFETY: just taken.
        if unsafe { self.front_put::<INSIDE>(class, area) } {
            self.cache.sets.uncount_free(class);
            self.cache.sets.uncount_alloc(class);
        } else {
            self.front_misses::<INSIDE>(area, class);
        }
    }

    #[inline(always)]
    fn front_pop<const INSIDE: bool>(&self, size: usize, align: usize) -> Option<usize> {
        let pages = size.div_ceil(PAGE);
        let class = front::serves(pages);
        match self.front_take::<INSIDE>(class) {
            Outcome::Done(area) if area.is_multiple_of(align) && self.front_fits(area, class, pages - 1) => {
                return Some(area);
            }
            Outcome::Done(run) if class == front::LONG => return self.run_serves::<INSIDE>(run, size, align),
            Outcome::Done(misfit) => self.front_misses::<INSIDE>(misfit, class),
            _ if INSIDE => self.front_lacks(size),
            _ => {}
        }
        // (Inside, dirty memory comes first, which more may be made of.)
        if align > PAGE || !INSIDE { self.run_lends::<INSIDE>(size, align) } else { None }
    }

    /// This CPU had no area for a request of so many bytes: what says that more room would have served.
    pub(super) fn front_lacks(&self, size: usize) {
        if self.is_for_front(size)
            && let Some(set) = self.cache.sets.ready()
        {
            // Relaxed: a hint.
            set.batches[front::serves(size.div_ceil(PAGE))].store(LACKED | WANTED, Relaxed);
        }
    }

    /// Whether areas of a class say where they are. (Where objects are checked, all do.)
    #[inline(always)]
    fn is_marked(&self, class: usize) -> bool {
        front::is_marked(class) || self.slabs.is_checked()
    }

    /// What came out of a class is the program's, if it has more pages than that.
    #[inline(always)]
    fn front_fits(&self, address: usize, class: usize, pages: usize) -> bool {
        if class != front::LONG {
            return !self.is_marked(class) || self.graded_turns::<false>(address, class);
        }
        // SAFETY: a set's classes of areas hold what `front_takes` took: pages of zones.
        let len = unsafe { self.pages.windows.desc_at(address) }.len();
        len > pages && front::is_close(len, pages) && self.long_turns::<false>(address)
    }

    /// Turns the mark of an area of a class: as it comes into a front (`IN`), or is the program's. False, and nothing was done, if it was so
    /// already: it was freed twice.
    #[inline(always)]
    fn front_turns<const IN: bool>(&self, address: usize, class: usize) -> bool {
        if class == front::LONG { self.long_turns::<IN>(address) } else { self.graded_turns::<IN>(address, class) }
    }

    /// The same of a class of one length, in the class byte.
    #[inline(always)]
    fn graded_turns<const IN: bool>(&self, address: usize, class: usize) -> bool {
        let known = class as u8 | BIASED;
        let (from, to) = if IN { (known, HELD) } else { (HELD, known) };
        // SAFETY: areas of a front, or such as may come in: pages of zones.
        let byte = unsafe { self.pages.windows.class_byte(address) };
        // Relaxed, both: whoever takes it out runs on this CPU behind us, or has drained the set with a fence.
        let turns = byte.load(Relaxed) == from;
        if turns {
            byte.store(to, Relaxed);
        }
        turns
    }

    /// The same of the last class, in the descriptor: what its class byte says is whether it was cut.
    #[inline(always)]
    fn long_turns<const IN: bool>(&self, address: usize) -> bool {
        // SAFETY: as above.
        let word = &unsafe { self.pages.windows.desc_at(address) }.tag;
        // Relaxed, both: as above.
        let (tag, from) = (word.load(Relaxed), if IN { Kind::Area } else { Kind::Front });
        let turns = tag as u8 == from as u8;
        if turns {
            word.store(tag ^ OTHER, Relaxed);
        }
        turns
    }

    /// An area that was taken for a request does not serve it, and goes where any may be found.
    #[cold]
    #[inline(never)]
    pub(super) fn front_misses<const INSIDE: bool>(&self, area: usize, class: usize) {
        if class == front::LONG {
            self.run_goes();
        }
        self.cache.sets.uncount_alloc(class);
        self.front_lets_go::<INSIDE>(area, class);
    }

    /// An area that is marked as the front's, and nobody's, goes where any may be found.
    #[inline(never)]
    pub(super) fn front_lets_go<const INSIDE: bool>(&self, area: usize, class: usize) {
        let inside = if INSIDE { None } else { self.enter() };
        if INSIDE || inside.is_some() {
            self.mm().everything().give(class, area);
        } else {
            self.front_waits(area, class);
        }
    }

    /// The same beside a fork: it is in use again, and freed when that is over.
    #[cold]
    #[inline(never)]
    fn front_waits(&self, area: usize, class: usize) {
        if !self.is_marked(class) || self.front_turns::<false>(area, class) {
            // SAFETY: nobody else has it.
            unsafe { self.free_aside(area) };
        }
    }

    /// The first page of an area that may come in, its descriptor, and its class: plain, of a length that comes in, and never sampled.
    #[inline(always)]
    fn front_takes(&self, address: usize) -> Option<(Pfn, &Desc, usize)> {
        let (pfn, desc) = self.pages.windows.look(address)?;
        let pages = desc.len();
        let is_plain = desc.tag.load(Relaxed) & PLAIN == Kind::Area as u32 && address.is_multiple_of(PAGE);
        // (A giant area has no length, and goes elsewhere.)
        let comes_in = is_plain && pages.wrapping_sub(1) < front::LONGEST && !self.profile.samples.may_have(address);
        // (Nor has it a page more than those that are not marked: it would not be either.)
        let comes_in = comes_in && pages != front::UNMARKED + 1;
        let is_free = self.pages.windows.is_held(address);
        let may = comes_in && !is_free && self.cache.knobs.size(Id::SyncFree) == 0 && !self.cache.is_tight();
        may.then(|| (pfn, desc, front::holds(pages)))
    }

    /// Takes an area into this CPU's front by a sequence, as the class byte of its first page has just said; whether it had room, and `None`
    /// where that is not to be done so. (Else than if true it is the caller's still.)
    #[inline(always)]
    pub(super) fn front_free_again(&self, address: usize, class: usize) -> Option<bool> {
        let marks = || {
            // SAFETY: an area's first page. Relaxed: as in `graded_turns`, whose question the caller has just asked.
            unsafe { self.pages.windows.class_byte(address) }.store(HELD, Relaxed);
            true
        };
        // (Opaque, so that nothing is kept for it.)
        self.front_pushes(address, class, marks, || self.graded_turns::<false>(opaque(address), class))
    }

    /// The same of the last class.
    #[inline(always)]
    pub(super) fn long_free_again(&self, address: usize) -> bool {
        let (marks, unmarks) = (|| self.long_turns::<true>(address), || self.long_turns::<false>(opaque(address)));
        self.front_pushes(address, front::LONG, marks, unmarks) == Some(true)
    }

    #[inline(always)]
    fn front_pushes(
        &self,
        address: usize,
        class: usize,
        marks: impl FnOnce() -> bool,
        unmarks: impl FnOnce() -> bool,
    ) -> Option<bool> {
        let may = self.gates.small.load(Relaxed) != 0 && self.cache.knobs.is_easy() && address.is_multiple_of(PAGE);
        if !may || !marks() {
            return None;
        }
        // SAFETY: an area that the caller gives up; its mark was ours to turn.
        let is_in = unsafe { self.cache.sets.push_fast::<false>(class * 16, address) }.is_done();
        if !is_in {
            unmarks();
        }
        Some(is_in)
    }

    /// The class of an area, which may come in, is known from now on.
    #[inline]
    fn front_knows(&self, pfn: Pfn, desc: &Desc, class: usize) {
        let is_fast = !self.is_marked(class) && self.cache.sets.mode() == Mode::Sequences;
        let byte = class as u8 | if is_fast { 0 } else { BIASED };
        if self.pages.windows.class(self.pages.windows.address(pfn)) != Some(byte) {
            // (Whoever gets it here first asked for as much as it has.)
            desc.link.store(0, Relaxed);
            // SAFETY: the caller's, of a length of this class, and plain.
            unsafe { self.pages.windows.set_class(pfn, 1, byte) };
        }
    }

    /// Puts an area there by `put`, marked where its class is; false if it is the caller's still, or was freed by another thread at this moment.
    fn front_marks(&self, address: usize, class: usize, put: impl FnOnce() -> bool) -> bool {
        let is_marked = self.is_marked(class);
        if is_marked && !self.front_turns::<true>(address, class) {
            return false;
        }
        let is_in = put();
        if !is_in && is_marked {
            self.front_turns::<false>(address, class);
        }
        is_in
    }

    /// Takes any area that may come in into this CPU's front, with sequences or for the thread that the fallback favours; false if it is the
    /// caller's still. From now on its class is known.
    pub(super) fn front_free(&self, address: usize) -> bool {
        let Some((pfn, desc, class)) = self.front_takes(address).filter(|_| self.is_quick()) else { return false };
        // (Areas of one length that lie side by side are often freed in that order, and their descriptors in no cache.)
        self.pages.windows.prefetch(address.wrapping_add(desc.len() * AHEAD * PAGE));
        self.front_knows(pfn, desc, class);
        // SAFETY: the caller's, and marked where it is to be.
        self.front_marks(address, class, || unsafe { self.push_quick(class * 16, address) }.is_done())
    }

    /// The same in every mode, inside, and after what is there has made room; `None` if it is the caller's still, else whether the
    /// levels were told of what has. (Out of line: what follows a free may purge, and needs none of this frame.)
    #[inline(never)]
    pub(super) fn front_free_slow(&self, address: usize) -> Option<bool> {
        let (pfn, desc, class) = self.front_takes(address)?;
        let set = self.cache.sets.ready().filter(|set| Self::is_wanted(set, class))?;
        let lazy = || self.cache.sets.board().level(Level::Lazy);
        let before = lazy();
        self.front_knows(pfn, desc, class);
        // SAFETY: as in `front_free`.
        let is_in = self.front_marks(address, class, || unsafe { self.front_keeps(set, class, address) });
        is_in.then(|| lazy() != before)
    }

    /// Puts an area there, in every mode, inside, after what is there has made room; false where that cannot be.
    ///
    /// # Safety
    /// As [`Self::front_put`].
    pub(super) unsafe fn front_keeps(&self, set: &Set, class: usize, area: usize) -> bool {
        // SAFETY: the caller's promise.
        let put = || unsafe { self.front_put::<true>(class, area) };
        let room = |sheaf: &mut Sheaf| self.front_room(set, class, sheaf);
        let is_full = |main: Word| !main.serves(true);
        let put_wider = || {
            self.front_makes_room(set, class);
            self.cache.renew_main(&self.mm().everything(), set, class, is_full, room) && put()
        };
        set.pairs[class].main().serves(true) && put() || put_wider()
    }

    /// Whether this CPU ever asked for areas of a class: where only others' come to be freed they serve those, among the dirty runs.
    fn is_wanted(set: &Set, class: usize) -> bool {
        // Relaxed: a hint.
        set.batches[class].load(Relaxed) & WANTED != 0
    }

    /// Before memory is touched that no area used yet: what this CPU keeps goes where it serves any length. Whether it may have had any.
    pub(super) fn front_gives_way(&self) -> bool {
        // Relaxed: this CPU's, or what another will do itself.
        let Some(set) = self.cache.sets.ready().filter(|set| set.fronts.load(Relaxed) != 0) else { return false };
        let holds = |main: Word| main.serves(false);
        for class in FIRST_FRONT..CLASSES_MAX {
            self.cache.renew_main(&self.mm().everything(), set, class, holds, |sheaf| {
                self.front_loses(class, sheaf, sheaf.len());
                set.entitle_areas(class, 0);
                0
            });
        }
        true
    }

    /// For slabs, where the zone has no dirty block: of what this CPU keeps the older half of the class that has most, if that is much. Whether it was.
    pub(super) fn front_gives_some(&self) -> bool {
        // Relaxed: a hint.
        let Some(set) = self.cache.sets.ready().filter(|set| set.fronts.load(Relaxed) != 0) else { return false };
        let pages = |class: usize| set.pairs[class].main().count() as usize * front::length(class);
        let class = (FIRST_FRONT..CLASSES_MAX).max_by_key(|&class| pages(class)).unwrap_or(FIRST_FRONT);
        pages(class) >= MUCH && self.front_halves(set, class)
    }

    /// Pages that the limits of a set's classes come to, but for the last.
    fn graded(set: &Set) -> usize {
        // Relaxed, both: hints, which need not agree.
        let long = set.limits[front::LONG].load(Relaxed) as usize * front::LONGEST;
        (set.fronts.load(Relaxed) as usize).saturating_sub(long)
    }

    /// Before a full class gets room that it lacked: where the classes of this CPU may hold all that a set may, one that idles loses half.
    fn front_makes_room(&self, set: &Set, class: usize) {
        // Relaxed, all: hints.
        let own = (set.limits[class].load(Relaxed) as usize).max(depth(class)) * front::length(class);
        let is_short = set.batches[class].load(Relaxed) & LACKED != 0 && Self::graded(set) + own > WIDE;
        if class != front::LONG
            && is_short
            && let Some(idle) = self.cache.idle_areas(set)
        {
            self.front_halves(set, idle);
        }
    }

    /// The older half of what this CPU keeps of a class goes, and what may be kept of it is what is left. False where that cannot be.
    fn front_halves(&self, set: &Set, class: usize) -> bool {
        let halved = |sheaf: &mut Sheaf| {
            self.front_loses(class, sheaf, sheaf.len() - sheaf.len() / 2);
            set.entitle_areas(class, sheaf.len());
            sheaf.len()
        };
        self.cache.renew_main(&self.mm().everything(), set, class, |_| true, halved)
    }

    /// Bytes of areas that sets cache, as far as can be seen while they are in use.
    #[must_use]
    pub fn front_bytes(&self) -> usize {
        let (sets, areas) = (&self.cache.sets, self.vmap());
        let mut sum = 0;
        for index in sets.used() {
            (FIRST_FRONT..CLASSES_MAX)
                .for_each(|class| sets.peek(index, class, |area| sum += areas.front_bytes(area, class)));
        }
        sum + areas.wide_bytes()
    }

    /// Whether an area that is in use, as far as its descriptor says, is in this CPU's front. (Those of others are theirs to write to.) Cost: a
    /// load for each area of that length that it has.
    pub(super) fn front_has(&self, address: usize) -> bool {
        let Some((_, desc)) = self.pages.windows.look(address) else { return false };
        let class = front::holds(desc.len());
        let mut has = false;
        if desc.len() <= front::LONGEST
            && !self.is_marked(class)
            && let Some(set) = self.cache.sets.ready()
        {
            self.cache.sets.peek_into(set, class, |area| has |= area == address);
        }
        has
    }

    /// The oldest areas of a sheaf of ours go where neighbours merge; those that were freed one behind the other in one piece.
    fn front_loses(&self, class: usize, sheaf: &mut Sheaf, gone: usize) {
        let (source, vmap) = (self.mm().everything(), self.vmap());
        let mut piece = None;
        for &area in &sheaf.objects()[..gone] {
            let joined = piece.and_then(|piece| vmap.join_front(piece, area, class));
            if let (Some(piece), None) = (piece, joined) {
                source.give(class, piece);
            }
            piece = joined.or(Some(area));
        }
        piece.into_iter().for_each(|piece| source.give(class, piece));
        sheaf.forget_oldest(gone);
    }

    /// How many areas a class may hold of which `sheaf` is full when another comes; what must go for it goes.
    fn front_room(&self, set: &Set, class: usize, sheaf: &mut Sheaf) -> usize {
        let held = sheaf.len();
        let (lacked, is_only_freed) = self.cache.area_fills(set, class);
        // Relaxed: as there.
        let own = set.limits[class].load(Relaxed) as usize * front::length(class);
        let others = Self::graded(set).saturating_sub(own);
        let most = match class {
            front::LONG => 1,
            _ => (WIDE.saturating_sub(others) / front::length(class)).min(OBJECTS),
        };
        let wider = (held * 2).max(depth(class)).min(most);
        let (gone, limit) = if wider > held && (lacked || held < depth(class)) {
            (0, wider)
        } else {
            (if is_only_freed && held >= SOME { held } else { held.div_ceil(2) }, held)
        };
        if class == front::LONG && gone > 0 {
            self.run_goes();
        }
        self.front_loses(class, sheaf, gone);
        set.entitle_areas(class, limit);
        limit
    }
}
