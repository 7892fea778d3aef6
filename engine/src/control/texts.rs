//! # What must be walked to be seen, as the kernel prints it
//!
//! `buddyinfo`, `zoneinfo`, `vmallocinfo`, and a line for each CPU's set: written anywhere, and into the board's
//! [`Show`] when somebody asks at the mailbox. `percpu_stats` is the environment's.
//!
//! Locks: those of what is walked, one at a time, none while text is written; areas are walked without any, so
//! that one which changes at that moment is shown as before, as after, or not at all. Cost: of zones, a walk of their
//! blocks; of areas, a load for each area and page of slabs.
#![allow(unsafe_code)] // text in a mapping

use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::atomic::fence;
use crate::arch::text::{Room, Text};
use crate::cache::Sets;
use crate::cache::sheaf::Barn;
use crate::cpu::NODES;
use crate::heap::{Environment, Heap};
use crate::reclaim::mm::{ALL_CLASSES, bytes_of};
use crate::stat::board::{SECTIONS, SHOW_BYTES, Section, Show};
use crate::vmap::Shown;
use core::fmt::{self, Write};

/// Areas in `vmallocinfo`, at most: each takes about 80 bytes.
const AREAS: usize = 8 * 1024;

/// A section's text, from `begin` of the [`Show`] on: as far as there is room in the file.
struct Part<'a> {
    sets: &'a Sets,
    begin: usize,
}

impl Room for Part<'_> {
    fn put(&mut self, at: usize, text: &[u8]) -> usize {
        let end = self.begin + at;
        let fits = end + text.len() <= SHOW_BYTES && self.sets.ensure_texts(end + text.len());
        let n = if fits { text.len() } else { 0 };
        // SAFETY: the room is ours; readers are other processes.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), (self.sets.show() + end) as *mut u8, n) };
        n
    }
}

/// Free blocks by order, as `/proc/buddyinfo` has them.
///
/// # Errors
/// Those of `out`.
pub fn buddyinfo<E: Environment>(heap: &Heap<E>, out: &mut impl Write) -> fmt::Result {
    for zone in (0..NODES).filter_map(|node| heap.zone_stats(node)) {
        write!(out, "Node {}, zone {:>8} ", zone.node, "Normal")?;
        zone.by_order.iter().try_for_each(|n| write!(out, "{n:6} "))?;
        out.write_str("\n")?;
    }
    Ok(())
}

/// Zones and page lists, as `/proc/zoneinfo` has them. Lists stand with the first zone.
///
/// # Errors
/// Those of `out`.
pub fn zoneinfo<E: Environment>(heap: &Heap<E>, out: &mut impl Write) -> fmt::Result {
    for (at, zone) in (0..NODES).filter_map(|node| heap.zone_stats(node)).enumerate() {
        writeln!(out, "Node {}, zone {:>8}", zone.node, "Normal")?;
        writeln!(out, "  pages free     {}", zone.free)?;
        let numbers = [
            ("boost", 0),
            ("min", zone.min),
            ("low", zone.low),
            ("high", zone.high),
            ("spanned", zone.managed),
            ("present", zone.managed),
            ("managed", zone.managed),
        ];
        numbers.iter().try_for_each(|(name, n)| writeln!(out, "        {name:<8} {n}"))?;
        writeln!(out, "      nr_free_pages {}", zone.free)?;
        writeln!(out, "      nr_free_dirty {}", zone.dirty)?;
        writeln!(out, "  pagesets")?;
        for list in heap.page_lists().filter(|_| at == 0) {
            writeln!(out, "    cpu: {} order: {}", list.index, list.order)?;
            writeln!(out, "              count:    {}", list.count)?;
            writeln!(out, "              high:     {}", list.high)?;
            writeln!(out, "              batch:    {}", list.batch)?;
        }
    }
    Ok(())
}

/// Areas by address, busy and lazy ones, in the manner of `/proc/vmallocinfo`; what is beyond [`AREAS`] is counted.
///
/// # Errors
/// Those of `out`.
pub fn vmallocinfo<E: Environment>(heap: &Heap<E>, out: &mut impl Write) -> fmt::Result {
    let (mut lines, mut more, mut bytes, mut result) = (0, 0_usize, 0_usize, Ok(()));
    heap.mm().vmap().each(|area: Shown| {
        lines += 1;
        if lines > AREAS || result.is_err() {
            (more, bytes) = (more + 1, bytes + area.bytes);
            return;
        }
        let (from, to) = (area.address, area.address + area.bytes);
        let word = |is: bool, word: &'static str| if is { word } else { "" };
        result = writeln!(
            out,
            "{from:#018x}-{to:#018x} {:>10} pages={} {}{}{}{}{}{}",
            area.bytes,
            area.bytes / crate::arch::PAGE,
            if area.lazy { "lazy" } else { "busy" },
            word(area.cached, " cached"),
            word(area.huge, " huge"),
            word(area.guard, " guard"),
            word(area.moved, " moved"),
            word(area.giant, " giant"),
        );
    });
    result?;
    if more > 0 { writeln!(out, "... {more} more areas, {bytes} bytes") } else { Ok(()) }
}

/// A line for each CPU that has a set: what it caches.
///
/// # Errors
/// Those of `out`.
pub fn sets<E: Environment>(heap: &Heap<E>, out: &mut impl Write) -> fmt::Result {
    let sets = &heap.cache().sets;
    for index in sets.used() {
        let Some(set) = sets.home_of(index) else { continue };
        let (mut objects, mut bytes) = (0, 0);
        for class in 1..ALL_CLASSES {
            let near = set.near.get(class).map_or(0, Barn::objects);
            let count = near + sets.list(index, class).map_or(0, |(count, _, _)| count);
            objects += count;
            bytes += count * bytes_of(class);
        }
        let (node, parked) = (set.node.load(Relaxed), u32::from(sets.is_parked(index)));
        writeln!(out, "index={index} cpu={index} node={node} objects={objects} bytes={bytes} parked={parked}")?;
    }
    Ok(())
}

/// Writes all of it into the board; false if there is no room for any. The keeper's alone.
pub fn publish<E: Environment>(heap: &Heap<E>) -> bool {
    let sets = &heap.cache().sets;
    if !sets.ensure_texts(size_of::<Show>()) {
        return false;
    }
    let address = sets.show();
    if address == 0 {
        return false;
    }
    // SAFETY: the last part of the board's mapping, all atomics, for ever.
    let show = unsafe { &*(address as *const Show) };
    // Odd, and seen before any of the text changes; even again, and seen after all of it.
    show.version.fetch_or(1, Relaxed);
    fence(Release);
    let mut at = size_of::<Show>();
    let mut section = |section: Section, write: &dyn Fn(&mut Text<Part>) -> fmt::Result| {
        let mut text = Text::new(Part { sets, begin: at });
        // (The text itself never fails.)
        let _ = write(&mut text);
        let words = [at, text.len(), text.lost()];
        show.sections[section as usize].iter().zip(words).for_each(|(to, n)| to.store(n as u64, Relaxed));
        at += text.len();
    };
    const _: () = assert!(SECTIONS == 5);
    section(Section::Buddyinfo, &|out| buddyinfo(heap, out));
    section(Section::Zoneinfo, &|out| zoneinfo(heap, out));
    section(Section::Sets, &|out| self::sets(heap, out));
    section(Section::PercpuStats, &|out| E::percpu_stats(out));
    section(Section::Vmallocinfo, &|out| vmallocinfo(heap, out));
    // (A process that filters system calls is not asked for the time.)
    show.at_ns.store(if heap.is_confined() { 0 } else { heap.cache().sets.clock.now_ns() }, Relaxed);
    // Acquire is not needed to read our own word; Release orders the text before it.
    let version = show.version.load(Acquire);
    show.version.store(version.wrapping_add(1), Release);
    true
}
