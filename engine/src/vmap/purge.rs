//! # Purge: what is lazy goes back to the system
//!
//! ```text
//! gather   of the longest dirty runs the highest, as much as is wanted (all of it: what merges with nothing, too) ──► one list, sorted by
//!          address: pending
//! queue    pending, and giant areas as they are freed: those first
//! slice    first of the queue, neighbours merged, up to so many bytes or 32 ranges, cut at a huge-page boundary
//! release  one vector call, or a call for each range; no lock, no turn
//! settle   what the system reported done ──► tree; all else ──► dirty again. Counters once, for all slices
//! ```
//! One thread gathers at a time (`Reclaim::purging`); any number take slices, each its own (see [`super::flight`]).
//! A purge may end after any slice: what is queued stays lazy, in nobody's hand, and the next one goes on there. So
//! the freer's part is bounded, and a fork waits for the slices in flight, not for a purge.
//!
//! A giant area's last slice to land takes it off the queue and unmaps it ([`super::giant`]).
//!
//! Why big slices: releases that overlap in one process make the kernel flush whole TLBs. Cost: a sort of n
//! areas, then one call for each range that does not touch its neighbour (a 32nd of one in vectors).

use super::areas::{Area, Queue, Ticket, Vmap};
use super::lists::LISTS;
use super::space::{ALONE, CONGRUENT, GUARD, HUGE, MOVED, Space};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::sys::{self, Access, Advice, Range};
use crate::knob::Id;
use crate::page::{Kind, Pfn, give_back};
use crate::stat::board::SPACES;
use crate::stat::{Event, Timing};

/// Ranges in a slice. (They are on the stack, which may be small.)
const RANGES: usize = 32;
/// Bytes that a purge gives back between two settlements, where a fork waits for it.
pub const SLICE: usize = 64 << 20;
/// The same for a worker: a fork waits for what is in flight only.
pub const TURN: usize = 256 << 20;
/// Bytes of a gather batch: one page table.
pub const BATCH: usize = CONGRUENT * PAGE;
/// Pages after which a thread that gives back looks for a fork that waits: whole page tables, below the kernel's 10,000.
const YIELD: usize = 10_000 / CONGRUENT * CONGRUENT;
/// All ranges of a slice may be in one vector call, which the kernel ends silently at 2 GiB − 4 KiB: a slice has no more pages than
/// these, and its first run may go on to a page table's end.
const _: () = assert!((YIELD + CONGRUENT) * PAGE < 1 << 30);
/// ns that whoever waits for a giant area sleeps between two looks.
const LOOK: u64 = 1_000_000;

/// What a thread took from the queue.
#[derive(Clone, Copy)]
enum Slice {
    /// So many runs.
    Runs(usize),
    /// A part of a giant area: its first page, where the part begins and its bytes.
    Part(Pfn, usize, usize),
}

/// A run of lazy pages in a purge's hand. (Short: so many are on the stack.)
#[derive(Clone, Copy)]
struct Run {
    first: Pfn,
    pages: u32,
    flags: u32,
    end: End,
}

impl Run {
    const NOTHING: Run = Run::new(Pfn::NONE, 0, 0);

    const fn new(first: Pfn, pages: usize, flags: u32) -> Run {
        // (A run lies in one window, whose pages a descriptor counts in as many bits.)
        Run { first, pages: pages as u32, flags, end: End::Dirty }
    }

    const fn pages(&self) -> usize {
        self.pages as usize
    }

    const fn bytes(&self) -> usize {
        self.pages() * PAGE
    }
}

/// What became of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The system refused, or did a part: lazy as before.
    Dirty,
    /// It reads as zero.
    Clean,
    /// It could not be mapped afresh, and the refused call may have unmapped it: by now it may be somebody
    /// else's mapping. Address space that is never used again.
    Lost,
}

impl Vmap<'_> {
    /// Gives lazily freed areas back to the system, about `most` bytes of them; the bytes given back. The
    /// caller has the right to gather (`Reclaim::purging`). In one call every area is tried once.
    pub fn purge(&self, most: usize) -> usize {
        self.purge_some(most, most, false)
    }

    /// The same, and all that is lazy waits to be given back then: for [`Vmap::purge_pending`], or [`Vmap::put_back`].
    pub fn purge_first_of_all(&self, most: usize) -> usize {
        self.purge_some(most, usize::MAX, false)
    }

    /// The same, only of what is queued; anybody may.
    pub fn purge_pending(&self, most: usize) -> usize {
        self.purge_some(most, 0, false)
    }

    /// The same for a worker, which holds no lock: the system calls are made abroad ([`crate::arch::gate`]).
    pub fn purge_abroad(&self, most: usize) -> usize {
        self.purge_some(most, 0, true)
    }

    /// About `most` bytes; `gather` of them are gathered where nothing is queued, once.
    fn purge_some(&self, most: usize, mut gather: usize, abroad: bool) -> usize {
        let start = self.cache.sets.clock.ticks();
        let (mut bytes, mut tried) = (0, 0);
        while tried < most {
            let (sliced, released) = self.purge_slice(most - tried, None, abroad);
            tried += sliced;
            bytes += released;
            if sliced == 0 {
                // What could not be released lies on the spaces' lists, and this purge gathers once.
                let wanted = core::mem::take(&mut gather);
                if wanted == 0 || !self.gather(wanted) {
                    break;
                }
            }
        }
        self.told(start, tried, bytes);
        bytes
    }

    /// One settlement per purge, not one per area (seed 000).
    fn told(&self, start: u64, tried: usize, bytes: usize) {
        if tried > 0 {
            self.account(0, -(bytes as isize));
            self.cache.sets.count(Event::Purge, 1);
            self.cache.sets.count(Event::PurgeBytes, bytes as u64);
            self.cache.sets.time(Timing::Purge, start);
        }
    }

    /// Gives a giant area back, with whoever else takes slices of it; returns when all of it has gone, is kept or is
    /// used again.
    pub fn purge_giant(&self, ticket: Ticket) {
        let start = self.cache.sets.clock.ticks();
        let (mut bytes, mut tried) = (0, 0);
        loop {
            let (sliced, released) = self.purge_slice(usize::MAX, Some(ticket), true);
            tried += sliced;
            bytes += released;
            if sliced > 0 {
                continue;
            }
            // Relaxed: the lock of the queue, taken behind, orders it.
            let landed = self.areas.landed.load(Relaxed);
            let queue = self.areas.flights.lock();
            let mut giants = self.giants(queue.giants);
            let waits = giants.any(|at| self.is(at, ticket) && self.windows.giant(at).out.load(Relaxed) > 0);
            drop(queue);
            if !waits || self.areas.orphaned.load(Relaxed) {
                break;
            }
            self.gate.abroad(|| sys::futex_wait_for(&self.areas.landed, landed, LOOK));
        }
        self.told(start, tried, bytes);
    }

    /// Waits until nobody has a slice in hand, a second at most. The caller holds no lock.
    pub fn wait_flights(&self) {
        for _ in 0..1000 {
            // (A flight of small areas wakes nobody; its end is seen at the next look.)
            let landed = self.areas.landed.load(Relaxed);
            if self.areas.flying() == 0 || self.areas.orphaned.load(Relaxed) || self.gate.is_wanted() {
                break;
            }
            self.gate.abroad(|| sys::futex_wait_for(&self.areas.landed, landed, LOOK));
        }
    }

    /// Puts what a purge left back where allocations look for it. The caller has the right to gather.
    pub fn put_back(&self) {
        let mut at = self.take_pending();
        while at != Pfn::NONE {
            let next = self.next(at);
            let desc = self.windows.desc(at);
            let space = self.space(desc.rest());
            self.keep(space, &mut space.state.lock(), at, desc.len(), desc.rest());
            at = next;
        }
    }

    fn take_pending(&self) -> Pfn {
        let mut queue = self.areas.flights.lock();
        let pending = core::mem::replace(&mut queue.pending, Pfn::NONE);
        let pages: usize = self.giants(pending).map(|at| self.windows.desc(at).len()).sum();
        self.areas.shift_backlog(-(pages as isize));
        pending
    }

    /// Takes just this area from what is pending, if it is among the first, and as it was seen.
    pub(super) fn take_pending_one(&self, area: Pfn, pages: usize, flags: u32) -> bool {
        // Relaxed: a hint.
        if !self.areas.is_pending() {
            return false;
        }
        let mut queue = self.areas.flights.lock();
        let (mut previous, mut at) = (Pfn::NONE, queue.pending);
        for _ in 0..RANGES {
            if at == Pfn::NONE || at > area {
                return false;
            }
            let next = self.next(at);
            if at == area {
                if (self.windows.desc(at).len(), self.windows.desc(at).rest()) != (pages, flags) {
                    return false;
                }
                if previous == Pfn::NONE {
                    queue.pending = next;
                } else {
                    self.windows.desc(previous).set_links(next, Pfn::NONE);
                }
                self.areas.shift_backlog(-(pages as isize));
                return true;
            }
            (previous, at) = (at, next);
        }
        false
    }

    /// Makes about `most` bytes of what is lazy pending, and giant areas that are kept wait again; false if there is nothing.
    /// The caller has the right to gather, and nothing was pending before.
    ///
    /// (On its own: the heads of its lists are not on the stack of the slices.)
    #[inline(never)]
    fn gather(&self, most: usize) -> bool {
        let (mut list, mut pages) = (Pfn::NONE, 0);
        let wanted = most.div_ceil(PAGE);
        // Of the space that has most first: else what another has in pieces that nobody takes stays, and what is used again goes each time.
        // (Huge pages last: to have one again takes longest.)
        let huge = Space::number(HUGE);
        let most_of = |number: &usize| self.areas.spaces[*number].state.lock().dirty.pages();
        let first = (0..SPACES).filter(|&number| number != huge).max_by_key(most_of).unwrap_or(0);
        for number in (first..SPACES).chain(0..first).filter(|&number| number != huge).chain([huge]) {
            let space = &self.areas.spaces[number];
            let mut state = space.state.lock();
            // What is given back was told before.
            self.fold(number, &state);
            let mut runs = 0;
            while pages < wanted
                && let Some((at, len, flags)) = state.dirty.take_highest(self.windows, wanted - pages, CONGRUENT)
            {
                let desc = self.windows.desc(at);
                desc.set_len(len);
                desc.set_links(list, Pfn::NONE);
                desc.set(Kind::Lazy, flags);
                list = at;
                pages += len;
                runs += 1;
            }
            self.board().spaces[number].purged.fetch_add(runs, Relaxed);
        }
        let is_all = most == usize::MAX || list == Pfn::NONE;
        for (number, space) in
            self.areas.spaces.iter().enumerate().filter(|(_, space)| is_all && !space.rest.is_empty())
        {
            let state = space.state.lock();
            let (heads, count) = space.rest.take_all();
            drop(state);
            self.board().spaces[number].purged.fetch_add(u64::from(count), Relaxed);
            for at in self.chains(&heads) {
                pages += self.windows.desc(at).len();
                self.windows.desc(at).set_links(list, Pfn::NONE);
                list = at;
            }
        }
        let list = self.sort(list);
        let mut queue = self.areas.flights.lock();
        debug_assert_eq!(queue.pending, Pfn::NONE, "somebody else gathers");
        queue.pending = list;
        for giant in self.giants(queue.giants).map(|at| self.windows.giant(at)) {
            let bytes = giant.bytes.load(Relaxed);
            if giant.out.load(Relaxed) == 0 && giant.handed.load(Relaxed) == bytes {
                giant.handed.store(0, Relaxed);
                pages += bytes / PAGE;
            }
        }
        self.areas.shift_backlog(pages as isize);
        pages > 0
    }

    /// Takes the first of the queue: a part of a giant area (of one only, if it is named), or runs.
    fn take(&self, queue: &mut Queue, most: usize, only: Option<Ticket>, runs: &mut [Run]) -> Option<Slice> {
        let batches = self.cache.knobs.size(Id::MaxGatherBatchCount).max(1);
        let pages = most.div_ceil(PAGE).min(batches * CONGRUENT);
        for at in self.giants(queue.giants).filter(|&at| only.is_none_or(|ticket| self.is(at, ticket))) {
            let giant = self.windows.giant(at);
            let (from, all) = (giant.handed.load(Relaxed), giant.bytes.load(Relaxed));
            if from == all {
                continue;
            }
            // To a huge page's end.
            let base = self.windows.address(at);
            let end = (base + from + pages * PAGE) / BATCH * BATCH;
            let end = if end > base + from { end } else { (base + from + 1).next_multiple_of(BATCH) };
            let bytes = (end - base).min(all) - from;
            giant.handed.store(from + bytes, Relaxed);
            giant.out.store(giant.out.load(Relaxed) + 1, Relaxed);
            self.areas.shift_backlog(-((bytes / PAGE) as isize));
            return Some(Slice::Part(at, from, bytes));
        }
        if only.is_some() {
            return None;
        }
        let (mut count, mut left, mut taken) = (0, pages.min(YIELD), 0);
        let mut at = queue.pending;
        while at != Pfn::NONE && left > 0 && count < runs.len() {
            let (run, next) = self.cut(at, left, count == 0);
            if run.pages() == 0 {
                break;
            }
            left = left.saturating_sub(run.pages());
            taken += run.pages();
            at = next;
            runs[count] = run;
            count += 1;
        }
        queue.pending = at;
        self.areas.shift_backlog(-(taken as isize));
        (count > 0).then_some(Slice::Runs(count))
    }

    /// Releases the first of the queue: the bytes tried, and those given back.
    fn purge_slice(&self, most: usize, only: Option<Ticket>, abroad: bool) -> (usize, usize) {
        let mut runs = [Run::NOTHING; RANGES];
        let flights = &self.areas.flights;
        match flights.begin(|queue| self.take(queue, most, only, &mut runs)) {
            None => (0, 0),
            Some((_flight, Slice::Part(pfn, from, bytes))) => self.release_part(pfn, from, bytes, abroad),
            Some((_flight, Slice::Runs(count))) => {
                let runs = &mut runs[..count];
                if abroad {
                    self.gate.abroad(|| self.release(runs));
                } else {
                    self.release(runs);
                }
                self.settle(runs);
                let gone = runs.iter().filter(|run| run.end != End::Dirty).map(Run::bytes).sum();
                (runs.iter().map(Run::bytes).sum(), gone)
            }
        }
    }

    /// Releases a part of a giant area, in calls short enough for a fork to wait for; unmaps it when it was the last.
    fn release_part(&self, pfn: Pfn, from: usize, bytes: usize, abroad: bool) -> (usize, usize) {
        let at = self.windows.address(pfn) + from;
        let (mut tried, mut gone) = (0, 0);
        let mut calls = || {
            while tried < bytes && (tried == 0 || !self.gate.is_wanted()) {
                let call = (bytes - tried).min(YIELD * PAGE);
                // SAFETY: memory of a giant area that its owner gave up, in our hand.
                if unsafe { give_back(at + tried, call) } {
                    gone += call;
                } else {
                    self.cache.sets.count(Event::PurgeRefused, 1);
                }
                tried += call;
            }
        };
        if abroad {
            self.gate.abroad(calls);
        } else {
            calls();
        }
        let mut queue = self.areas.flights.lock();
        let giant = self.windows.giant(pfn);
        // (What was kept may be given back a second time, and counts once.)
        let clean = giant.clean.load(Relaxed);
        gone = gone.min(giant.bytes.load(Relaxed) - clean);
        giant.clean.store(clean + gone, Relaxed);
        let out = giant.out.load(Relaxed) - 1;
        giant.out.store(out, Relaxed);
        let all = giant.bytes.load(Relaxed);
        if giant.handed.load(Relaxed) == from + bytes {
            // A fork comes first. (If others have taken what is behind, the last of them unmaps this with the rest.)
            giant.handed.store(from + tried, Relaxed);
            self.areas.shift_backlog(((bytes - tried) / PAGE) as isize);
        }
        let last = out == 0 && giant.handed.load(Relaxed) == all;
        if last {
            self.dequeue(&mut queue, pfn);
        }
        drop(queue);
        (tried, gone + if last { self.finish(pfn) } else { 0 })
    }

    /// Frees an area (in use) and gives it back before it returns; false if somebody else has freed it.
    pub fn free_now(&self, area: &Area) -> bool {
        let start = self.cache.sets.clock.ticks();
        let Some((_flight, ())) = self.areas.flights.begin(|_| self.give_up(area).then_some(())) else { return false };
        let pages = self.windows.desc(area.pfn).len();
        let mut run = [Run::new(area.pfn, pages, area.flags)];
        self.cache.sets.count(Event::AreaFree, 1);
        self.account(-((pages * PAGE) as isize), (pages * PAGE) as isize);
        self.release(&mut run);
        self.settle(&run);
        self.told(start, pages * PAGE, if run[0].end == End::Dirty { 0 } else { pages * PAGE });
        true
    }

    /// The run of lazy pages that begins at `at`, at most about `left` pages of it, and what comes after. Without
    /// pages if it would have to be cut to less than a huge page, unless it is the `first` of its slice.
    fn cut(&self, at: Pfn, left: usize, first: bool) -> (Run, Pfn) {
        let desc = self.windows.desc(at);
        let flags = desc.rest();
        let (mut pages, mut next) = (desc.len(), desc.links().0);
        if flags & ALONE != 0 {
            return (Run::new(at, pages, flags), next);
        }
        while pages < left && next == at.add(pages) && at.same_window(next) && self.windows.desc(next).rest() == flags {
            let neighbour = self.windows.desc(next);
            pages += neighbour.len();
            let after = neighbour.links().0;
            neighbour.set(Kind::None, 0);
            next = after;
        }
        if pages > left {
            // At a huge page's end; the rest is a lazy area of its own.
            let end = (at.0 as usize + left) / CONGRUENT * CONGRUENT;
            let fit = end.saturating_sub(at.0 as usize);
            let fit = if fit == 0 && first { CONGRUENT - at.0 as usize % CONGRUENT } else { fit };
            if fit < pages {
                let tail = self.windows.desc(at.add(fit));
                if fit > 0 {
                    tail.set_len(pages - fit);
                    tail.set(Kind::Lazy, flags);
                    tail.set_links(next, Pfn::NONE);
                    (pages, next) = (fit, at.add(fit));
                } else {
                    // It keeps what was merged into it.
                    desc.set_len(pages);
                    desc.set_links(next, Pfn::NONE);
                    pages = 0;
                }
            }
        }
        (Run::new(at, pages, flags), next)
    }

    /// Asks the system to take the runs; each is clean if the system said so for all of it.
    fn release(&self, runs: &mut [Run]) {
        let plain = |run: &Run| run.flags & ALONE == 0;
        if runs.len() > 1 && self.areas.takes_vectors() {
            let mut from = 0;
            while from < runs.len() {
                let mut ranges = [Range::default(); RANGES];
                let mut count = 0;
                for (range, run) in ranges.iter_mut().zip(runs[from..].iter().take_while(|run| plain(run))) {
                    *range = Range { at: self.windows.address(run.first), bytes: run.bytes() };
                    count += 1;
                }
                if count > 1 {
                    // SAFETY: lazy memory in our hand.
                    let mut done = unsafe { sys::advise_many(&ranges[..count], Advice::DontNeed) }.unwrap_or(0);
                    for run in &mut runs[from..from + count] {
                        // Done in order, so what is not covered whole ends it.
                        if done < run.bytes() {
                            break;
                        }
                        done -= run.bytes();
                        run.end = End::Clean;
                    }
                }
                from += count.max(1);
            }
        }
        for run in runs.iter_mut().filter(|run| run.end == End::Dirty) {
            run.end = self.release_one(run);
            if run.end != End::Clean {
                self.cache.sets.count(Event::PurgeRefused, 1);
            }
        }
        // Relaxed: a hint.
        self.areas.kept.store(runs.iter().all(|run| run.end == End::Dirty), Relaxed);
    }

    fn release_one(&self, run: &Run) -> End {
        let (at, bytes) = (self.windows.address(run.first), run.bytes());
        if run.flags & MOVED != 0 {
            // First: a range that cannot be mapped afresh may be a hole by then, and somebody else's, or ours with all that is in it.
            // SAFETY: lazy memory in our hand.
            if !unsafe { give_back(at, bytes) } {
                return End::Dirty;
            }
            self.count_moved(-1);
            // SAFETY: as above.
            if unsafe { sys::map_over(at, bytes, Access::ReadWrite) }.is_err() {
                return End::Lost;
            }
            self.advise(at, bytes, run.flags);
            return End::Clean;
        }
        // (The guard last: what stays lazy has one.)
        // SAFETY: lazy memory in our hand; the advice of its last page takes the guard away.
        let clean = unsafe {
            give_back(at, bytes)
                && (run.flags & GUARD == 0 || sys::advise(at + bytes - PAGE, PAGE, Advice::GuardRemove).is_ok())
        };
        if clean { End::Clean } else { End::Dirty }
    }

    /// Puts what is clean into the trees, and the rest where it is lazy again.
    fn settle(&self, runs: &[Run]) {
        const BATCH: usize = 16;
        for batch in runs.chunks(BATCH) {
            for (number, space) in self.areas.spaces.iter().enumerate() {
                let ours = |run: &&Run| Space::number(run.flags) == number;
                if !batch.iter().any(|run| ours(&run)) {
                    continue;
                }
                let mut state = space.state.lock();
                for run in batch.iter().filter(ours) {
                    let desc = self.windows.desc(run.first);
                    match run.end {
                        End::Clean => state.tree.insert(self.windows, run.first, run.pages()),
                        End::Lost => desc.set(Kind::None, 0),
                        End::Dirty => self.keep(space, &mut state, run.first, run.pages(), run.flags),
                    }
                }
            }
        }
    }

    /// The areas of lists that are in our hand. (Each may go elsewhere when it is its turn.)
    fn chains(&self, heads: &[Pfn; LISTS]) -> impl Iterator<Item = Pfn> {
        heads.iter().flat_map(move |&head| {
            let mut next = head;
            core::iter::from_fn(move || {
                let at = next;
                (at != Pfn::NONE).then(|| next = self.windows.desc(at).links().0)?;
                Some(at)
            })
        })
    }

    /// Sorts a list of areas by address. What lies in order already is one run; a bin holds 2ⁿ of them merged, so
    /// most merges find their areas in the cache (Linux `lib/list_sort.c`). No memory.
    fn sort(&self, mut list: Pfn) -> Pfn {
        let mut bins = [Pfn::NONE; 32];
        while list != Pfn::NONE {
            let (mut run, mut last) = (list, list);
            list = self.next(last);
            while list > last {
                last = list;
                list = self.next(last);
            }
            self.windows.desc(last).set_links(Pfn::NONE, Pfn::NONE);
            for bin in &mut bins {
                let other = core::mem::replace(bin, Pfn::NONE);
                run = self.merge(other, run);
                if other == Pfn::NONE {
                    *bin = run;
                    break;
                }
            }
        }
        bins.into_iter().fold(Pfn::NONE, |sorted, bin| self.merge(sorted, bin))
    }

    /// Of two sorted lists one.
    fn merge(&self, mut left: Pfn, mut right: Pfn) -> Pfn {
        let (mut head, mut tail) = (Pfn::NONE, Pfn::NONE);
        let mut append = |node| {
            if tail == Pfn::NONE {
                head = node;
            } else {
                self.windows.desc(tail).set_links(node, Pfn::NONE);
            }
            tail = node;
        };
        while left != Pfn::NONE && right != Pfn::NONE {
            let least = if left < right { &mut left } else { &mut right };
            append(*least);
            *least = self.next(*least);
        }
        append(if left == Pfn::NONE { right } else { left });
        head
    }
}

#[cfg(test)]
mod tests;
