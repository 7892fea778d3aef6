//! # Purge: what is lazy goes back to the system
//!
//! ```text
//! gather   every node's lists (a turn each) and the spaces' rests ──► one list, sorted by address: pending
//! slice    first of pending, neighbours merged, up to so many bytes or 128 ranges, cut at a huge-page boundary
//! release  one vector call, or a call for each range; no lock, no turn
//! settle   what the system reported done ──► tree; all else ──► lazy again. Counters once, for all slices
//! ```
//! Only one thread purges at a time (`Reclaim::purging`), which is the right to `pending`. A purge may end
//! after any slice: what is pending stays lazy, in nobody's hand, and the next one goes on there. So the
//! freer's part is bounded, and a fork waits for a slice, not for a purge.
//!
//! Why big slices: releases that overlap in one process make the kernel flush whole TLBs. Cost: a sort of n
//! areas, then one call for each range that does not touch its neighbour (a 128th of one in vectors).

use super::{ALONE, Areas, CONGRUENT, GUARD, HUGE, MOVED, Vmap};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::sys::{self, Access, Advice, Range};
use crate::page::{Kind, Pfn, give_back};
use crate::stat::{Event, Level};

/// Ranges in a slice.
const RANGES: usize = 128;
/// Most bytes in one vector call: above 2 GiB − 4 KiB the kernel stops silently.
const VECTOR_BYTES: usize = 1 << 30;
/// Bytes in a slice of a purge that nobody waits for.
pub const SLICE: usize = 64 << 20;

/// A run of lazy pages in a purge's hand.
#[derive(Clone, Copy)]
struct Run {
    first: Pfn,
    pages: usize,
    flags: u32,
    end: End,
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

impl Areas {
    /// Whether a purge has left something for the next.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.pending.load(Relaxed) != 0
    }
}

impl Vmap<'_> {
    /// Gives lazily freed areas back to the system, about `most` bytes of them; the bytes given back. The
    /// caller has the right to purge (`Reclaim::purging`). In one call every area is tried once.
    pub fn purge(&self, most: usize) -> usize {
        self.purge_some(most, true)
    }

    /// The same, only of what an earlier purge left.
    pub fn purge_pending(&self, most: usize) -> usize {
        self.purge_some(most, false)
    }

    fn purge_some(&self, most: usize, mut gather: bool) -> usize {
        let start = sys::ticks();
        let (mut bytes, mut tried) = (0, 0);
        while tried < most {
            let (sliced, released) = self.purge_slice(SLICE.min(most - tried));
            tried += sliced;
            bytes += released;
            if sliced == 0 {
                // What could not be released lies on the spaces' lists, and this purge gathers once.
                if !core::mem::take(&mut gather) || !self.gather() {
                    break;
                }
            }
        }
        if tried > 0 {
            // One settlement per purge, not one per area (seed 000).
            self.account(0, -(bytes as isize));
            self.cache.sets.count(Event::Purge, 1);
            self.cache.sets.count(Event::PurgeBytes, bytes as u64);
            self.board().purged(sys::ticks().saturating_sub(start));
        }
        bytes
    }

    /// Puts what a purge left back where allocations look for it.
    pub fn put_back(&self) {
        let mut at = self.take_pending();
        while at != Pfn::NONE {
            let next = self.next(at);
            let desc = self.regions.desc(at);
            self.put_aside(at, desc.len(), desc.rest());
            at = next;
        }
    }

    fn take_pending(&self) -> Pfn {
        // Relaxed, as all of `pending`: the lock that is the right to it orders it.
        let at = Pfn(self.areas.pending.load(Relaxed));
        self.areas.pending.store(0, Relaxed);
        at
    }

    /// Makes everything lazy pending; false if there is nothing. Nothing was pending before.
    fn gather(&self) -> bool {
        let mut list = Pfn::NONE;
        let mut chain = |heads: &[Pfn]| {
            for &head in heads {
                let mut at = head;
                while at != Pfn::NONE {
                    let next = self.next(at);
                    self.regions.desc(at).set_links(list, Pfn::NONE);
                    list = at;
                    at = next;
                }
            }
        };
        // All of them: `top` may lag. A look at a node that was never used is two loads.
        for (node, tally) in self.areas.nodes.iter().zip(&self.board().nodes) {
            if node.is_empty() && tally.lent.load(Relaxed) == 0 {
                continue;
            }
            // (During a fork there is none; the next purge comes.)
            let Some(turn) = node.enter_patiently() else { continue };
            let (heads, count) = turn.take_all();
            // Relaxed: both words are changed in a turn only.
            let lent = tally.lent.load(Relaxed) as isize;
            tally.lent.store(0, Relaxed);
            drop(turn);
            tally.purged.fetch_add(u64::from(count), Relaxed);
            self.account(-lent, lent);
            chain(&heads);
        }
        for space in self.areas.spaces.iter().filter(|space| !space.rest.is_empty()) {
            let state = space.state.lock();
            let (heads, _) = space.rest.take_all();
            drop(state);
            chain(&heads);
        }
        self.areas.pending.store(self.sort(list).0, Relaxed);
        list != Pfn::NONE
    }

    /// Releases the first of what is pending: the bytes tried, and those given back.
    fn purge_slice(&self, most: usize) -> (usize, usize) {
        const NOTHING: Run = Run { first: Pfn::NONE, pages: 0, flags: 0, end: End::Dirty };
        let mut runs = [NOTHING; RANGES];
        let (mut count, mut left) = (0, most.div_ceil(PAGE));
        let mut at = Pfn(self.areas.pending.load(Relaxed));
        while at != Pfn::NONE && left > 0 && count < RANGES {
            let (run, next) = self.cut(at, left, count == 0);
            if run.pages == 0 {
                break;
            }
            left = left.saturating_sub(run.pages);
            at = next;
            runs[count] = run;
            count += 1;
        }
        self.areas.pending.store(at.0, Relaxed);
        let runs = &mut runs[..count];
        self.release(runs);
        self.settle(runs);
        let bytes = |run: &Run| run.pages * PAGE;
        let gone = runs.iter().filter(|run| run.end != End::Dirty).map(bytes).sum();
        (runs.iter().map(bytes).sum(), gone)
    }

    /// The run of lazy pages that begins at `at`, at most about `left` pages of it, and what comes after. Without
    /// pages if it would have to be cut to less than a huge page, unless it is the `first` of its slice.
    fn cut(&self, at: Pfn, left: usize, first: bool) -> (Run, Pfn) {
        let desc = self.regions.desc(at);
        let flags = desc.rest();
        let (mut pages, mut next) = (desc.len(), desc.links().0);
        if flags & ALONE != 0 {
            return (Run { first: at, pages, flags, end: End::Dirty }, next);
        }
        while pages < left && next == at.add(pages) && at.same_window(next) && self.regions.desc(next).rest() == flags {
            let neighbour = self.regions.desc(next);
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
                let tail = self.regions.desc(at.add(fit));
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
        (Run { first: at, pages, flags, end: End::Dirty }, next)
    }

    /// Asks the system to take the runs; each is clean if the system said so for all of it.
    fn release(&self, runs: &mut [Run]) {
        let plain = |run: &Run| run.flags & ALONE == 0;
        if self.areas.vectors.load(Relaxed) {
            let mut from = 0;
            while from < runs.len() {
                let mut ranges = [Range::default(); RANGES];
                let (mut count, mut bytes) = (0, 0);
                for run in runs[from..].iter().take_while(|run| plain(run)) {
                    if bytes + run.pages * PAGE > VECTOR_BYTES {
                        break;
                    }
                    ranges[count] = Range { at: self.regions.address(run.first), bytes: run.pages * PAGE };
                    bytes += ranges[count].bytes;
                    count += 1;
                }
                if count > 1 {
                    // SAFETY: lazy memory in our hand.
                    let mut done = unsafe { sys::advise_many(&ranges[..count], Advice::DontNeed) }.unwrap_or(0);
                    for run in &mut runs[from..from + count] {
                        // Done in order, so what is not covered whole ends it.
                        if done < run.pages * PAGE {
                            break;
                        }
                        done -= run.pages * PAGE;
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
    }

    fn release_one(&self, run: &Run) -> End {
        let (at, bytes) = (self.regions.address(run.first), run.pages * PAGE);
        if run.flags & MOVED != 0 {
            // SAFETY: lazy memory in our hand.
            if unsafe { sys::map_over(at, bytes, Access::ReadWrite) }.is_err() {
                return End::Lost;
            }
            self.areas.moved.fetch_sub(1, Relaxed);
            self.board().lower(Level::Mappings, 2);
            self.advise(at, bytes, run.flags);
            return End::Clean;
        }
        // SAFETY: lazy memory in our hand; the advice of its last page takes the guard away.
        let clean = unsafe {
            (run.flags & GUARD == 0 || sys::advise(at + bytes - PAGE, PAGE, Advice::GuardRemove).is_ok())
                && give_back(at, bytes)
        };
        if clean { End::Clean } else { End::Dirty }
    }

    /// Puts what is clean into the trees, and the rest where it is lazy again.
    fn settle(&self, runs: &[Run]) {
        const BATCH: usize = 16;
        for batch in runs.chunks(BATCH) {
            for (number, space) in self.areas.spaces.iter().enumerate() {
                let ours = |run: &&Run| (run.flags & HUGE) as usize == number;
                if !batch.iter().any(|run| ours(&run)) {
                    continue;
                }
                let mut state = space.state.lock();
                for run in batch.iter().filter(ours) {
                    let desc = self.regions.desc(run.first);
                    match run.end {
                        End::Clean => state.tree.insert(self.regions, run.first, run.pages),
                        End::Lost => desc.set(Kind::None, 0),
                        End::Dirty => {
                            desc.set_len(run.pages);
                            space.rest.put(self.regions, run.first, run.pages);
                        }
                    }
                }
            }
        }
    }

    fn next(&self, at: Pfn) -> Pfn {
        self.regions.desc(at).links().0
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
            self.regions.desc(last).set_links(Pfn::NONE, Pfn::NONE);
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
                self.regions.desc(tail).set_links(node, Pfn::NONE);
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
