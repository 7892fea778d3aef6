//! Windows against what the system says is mapped: their pages, what describes these, and what is counted.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::arch::tests::{refused, refused_with};
use crate::page::Kind;
use std::boxed::Box;
use std::fs;
use std::string::String;
use std::vec::Vec;

// (For ever: where a new one looks for addresses depends on where it is itself, and windows stay.)
fn fresh() -> (&'static Windows, &'static Board) {
    unsafe {
        let (windows, board) = (Box::<Windows>::new_zeroed(), Box::<Board>::new_zeroed());
        (Box::leak(windows.assume_init()), Box::leak(board.assume_init()))
    }
}

/// Bytes that are mapped from `from` to `to`.
fn mapped(from: usize, to: usize) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let bounds = |line: &str| {
        let (begin, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        [begin, end].map(|bound| usize::from_str_radix(bound, 16).unwrap().clamp(from, to))
    };
    maps.lines().map(bounds).map(|[begin, end]| end - begin).sum()
}

/// The flags of the mapping that holds an address.
fn flags(at: usize) -> String {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut here = false;
    for line in text.lines() {
        let word = line.split(' ').next().unwrap();
        if let Some((begin, end)) = word.split_once('-')
            && let (Ok(begin), Ok(end)) = (usize::from_str_radix(begin, 16), usize::from_str_radix(end, 16))
        {
            here = (begin..end).contains(&at);
        } else if here && word == "VmFlags:" {
            return line.into();
        }
    }
    panic!("{at:#x} is not mapped");
}

/// All of one window: its edges, its blocks, its descriptors, its class bytes and what is counted of it.
fn check(windows: &Windows, board: &Board, first: Pfn, pages: usize) {
    let (base, end) = (windows.address(first), first.add(pages));
    let slot = base & !(WINDOW - 1);
    assert_eq!((base - slot, windows.end(first)), (ALIGNED * PAGE, end));
    let levels = [Level::Reserved, Level::Mapped, Level::Mappings].map(|level| board.level(level) as usize);
    let meta = descs_end(pages.next_multiple_of(DESCRIBED));
    assert_eq!(levels, [meta + pages * PAGE + WINDOW_PAGES, pages * PAGE, 3]);
    assert_eq!(mapped(slot, slot + WINDOW), levels[0] - WINDOW_PAGES);
    let classes = windows.class_at(slot);
    assert_eq!((classes, mapped(classes, classes + WINDOW_PAGES)), (CLASSES_AT + (slot >> PAGE_SHIFT), WINDOW_PAGES));
    // Its edges.
    let last = end.0 - 1;
    assert_eq!([first.0 - 1, first.0, last, end.0].map(|page| windows.contains(Pfn(page))), [false, true, true, false]);
    let found = |at: usize| windows.find(at).map(|(_, pfn)| pfn);
    assert_eq!([base - 1, base, base + pages * PAGE - 1].map(found), [None, Some(first), Some(Pfn(last))]);
    assert!(windows.find(base + pages * PAGE).is_none() && windows.look(base + pages * PAGE).is_none());
    // Its blocks follow each other, with one for each page and none beside.
    let numbers: Vec<_> = windows.blocks_of(3).collect();
    assert_eq!(numbers, (first.block()..=Pfn(last).block()).collect::<Vec<_>>());
    assert_eq!((windows.blocks_of(2).count(), windows.zone(first)), (0, 3));
    let blocks: Vec<_> = numbers.iter().map(|&number| windows.block(number).unwrap().as_ptr()).collect();
    assert!(blocks.windows(2).all(|pair| pair[0].wrapping_add(1) == pair[1]));
    assert!(windows.block(numbers[0] - 1).is_none() && windows.block(numbers[numbers.len() - 1] + 1).is_none());
    assert_eq!(blocks[0] as usize, slot + BLOCKS_AT);
    // Each page has its own descriptor, mapped.
    for page in [first, first.add(1), first.add(pages / 2), Pfn(last)] {
        windows.desc(page).set_len(page.0 as usize);
        let (seen, desc) = windows.look(windows.address(page) + 1).unwrap();
        assert_eq!((seen, desc.len()), (page, page.0 as usize));
    }
    assert_eq!(windows.desc(Pfn(last)) as *const Desc, (windows.desc(first) as *const Desc).wrapping_add(pages - 1));
    // Class bytes are those of these pages and no others.
    let class = |page: u32| windows.class(windows.address(first) + (page - first.0) as usize * PAGE + PAGE - 1);
    unsafe { windows.set_class(Pfn(last - 2), 2, 7) };
    assert_eq!([last - 3, last - 2, last - 1, last].map(class), [Some(0), Some(7), Some(7), Some(0)]);
    unsafe { windows.set_class(Pfn(last - 2), 2, 0) };
}

#[test]
fn a_window_grows_in_steps_with_all_that_describes_it() {
    let (windows, board) = fresh();
    assert_eq!(windows.class(0), None);
    assert_eq!([ROOT << WINDOW_SHIFT, usize::MAX].map(|at| windows.class(at)), [None; 2], "no address of a program");
    let (first, pages) = windows.reserve(board, Owner::Zone(3), 100, 600).unwrap();
    assert_eq!(pages, 600);
    check(windows, board, first, 600);
    // Within the descriptors that are there, up to their end, over it, and far.
    let mut all = 600;
    for more in [8, DESCRIBED - 608, 1, 3 * DESCRIBED] {
        assert_eq!(windows.extend(board, first, more, more), Some((first.add(all), more)));
        all += more;
        check(windows, board, first, all);
    }
    // Less than wanted where there is no room for that; never less than needed.
    let room = MOST_PAGES - all;
    assert_eq!(windows.extend(board, first, room + 1, room + 1), None);
    assert_eq!(windows.extend(board, first, room - 8, room + 8), Some((first.add(all), room)));
    check(windows, board, first, MOST_PAGES);
    assert_eq!(windows.extend(board, first, 1, 1), None);
    assert_eq!(windows.in_use().count(), 1);
}

/// `vm.max_map_count` is reached: the mappings of descriptors and pages become longer, or all stays as it was.
#[test]
fn where_no_mapping_more_is_to_be_had_the_last_ones_grow() {
    const NO_MEMORY: u32 = libc::ENOMEM as u32;
    let (windows, board) = fresh();
    let (first, _) = windows.reserve(board, Owner::Zone(3), 8, 8).unwrap();
    let extend = |pages: usize| windows.extend(board, first, pages, pages);
    let Some(grown) = refused(libc::SYS_mmap, NO_MEMORY, || extend(DESCRIBED)) else { return };
    assert_eq!(grown, Some((first.add(8), DESCRIBED)));
    let all = DESCRIBED + 8;
    check(windows, board, first, all);
    unsafe { *(windows.address(first.add(all - 1)) as *mut u8) = 1 };
    // What cannot be opened there (as behind a guard) does not stay. (A length that nobody else asks for.)
    let closed = || refused_with(libc::SYS_mmap, Some((23 * PAGE) as u32), NO_MEMORY, || extend(23));
    assert_eq!(refused_with(libc::SYS_mprotect, Some((23 * PAGE) as u32), NO_MEMORY, closed), Some(Some(None)));
    check(windows, board, first, all);
    // Where descriptors are there already the system is not asked for any.
    assert_eq!(refused(libc::SYS_mremap, NO_MEMORY, || extend(8)), Some(Some((first.add(all), 8))));
    check(windows, board, first, all + 8);
}

#[test]
fn what_is_needed_to_the_last_page_is_given() {
    let (windows, board) = fresh();
    assert_eq!(windows.reserve(board, Owner::Zone(3), MOST_PAGES + 1, MOST_PAGES + 1), None);
    let (first, pages) = windows.reserve(board, Owner::Zone(3), MOST_PAGES, MOST_PAGES).unwrap();
    check(windows, board, first, pages);
    assert_eq!(pages, MOST_PAGES);
    let (windows, board) = fresh();
    let (first, _) = windows.reserve(board, Owner::Zone(3), 8, 8).unwrap();
    assert_eq!(windows.extend(board, first, MOST_PAGES - 8, MOST_PAGES).map(|(_, pages)| pages), Some(MOST_PAGES - 8));
}

#[test]
fn windows_follow_each_other_until_somebody_is_in_the_way() {
    let (windows, board) = fresh();
    let next = || {
        let (first, _) = windows.reserve(board, Owner::Zone(0), 1, 1).unwrap();
        windows.address(first) >> WINDOW_SHIFT
    };
    let slots: Vec<_> = (0..5).map(|_| next()).collect();
    assert!(slots.iter().all(|slot| (FIRST_SLOT..FIRST_GIANT).contains(slot)), "{slots:x?}");
    assert!(slots.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count() >= 3, "{slots:x?}");
    // Somebody else in the next slot, at one of the places that a window needs, or where its class bytes would be.
    for place in [Some(0), Some(DATA_AT), None] {
        let last = || FIRST_SLOT + windows.made.lock().slot as usize;
        // (Where another test's heap is already, or comes meanwhile, another slot will do.)
        let (last, start, classes, theirs) = loop {
            while mapped((last() + 1) << WINDOW_SHIFT, (last() + 2) << WINDOW_SHIFT) > 0 {
                next();
            }
            let last = last();
            let (start, classes) = ((last + 1) << WINDOW_SHIFT, windows.class_at((last + 1) << WINDOW_SHIFT));
            let at = place.map_or(classes, |place| start + place);
            let theirs = sys::map(at, PAGE, Access::None).unwrap();
            if theirs == at {
                break (last, start, classes, theirs);
            }
            unsafe { sys::unmap(theirs, PAGE) }.unwrap();
        };
        let reserved = board.level(Level::Reserved);
        let slot = next();
        assert!(slot != last + 1 && (FIRST_SLOT..FIRST_GIANT).contains(&slot), "{slot:x}");
        let there = mapped(start, start + WINDOW) + mapped(classes, classes + WINDOW_PAGES);
        assert_eq!(there, PAGE, "nothing of ours stays there");
        assert!(board.level(Level::Reserved) > reserved);
        unsafe { sys::unmap(theirs, PAGE) }.unwrap();
    }
    let other = fresh();
    let (first, _) = other.0.reserve(other.1, Owner::Zone(0), 1, 1).unwrap();
    assert_ne!(other.0.address(first) >> WINDOW_SHIFT, slots[0], "another heap begins elsewhere");
}

/// Where class bytes are looked for first somebody is: with the first window they go elsewhere, all of them.
#[test]
fn class_bytes_are_where_nobody_is() {
    let (windows, board) = fresh();
    let mut made = windows.made.lock();
    // (Another slot, where another test's heap is in the way.)
    let (slot, first) = core::iter::repeat_with(|| {
        let slot = windows.next_slot(&mut made, true);
        let theirs = sys::map(CLASSES_AT + (slot << (WINDOW_SHIFT - PAGE_SHIFT)), PAGE, Access::None).unwrap();
        let first = windows.make(board, &mut made, Owner::Zone(0), slot, 8);
        unsafe { sys::unmap(theirs, PAGE) }.unwrap();
        first.map(|first| (slot, first)).ok()
    })
    .find_map(|made| made)
    .unwrap();
    let at = windows.address(first);
    assert_eq!(windows.class_at(0), (slot / 2) << WINDOW_SHIFT);
    unsafe { windows.set_class(first, 8, 5) };
    assert_eq!([at, at + 8 * PAGE - 1, at + 8 * PAGE].map(|at| windows.class(at)), [Some(5), Some(5), Some(0)]);
    drop(made);
    let (second, _) = windows.reserve(board, Owner::Zone(0), 8, 8).unwrap();
    assert_eq!((windows.class_at(0), windows.class(windows.address(second))), ((slot / 2) << WINDOW_SHIFT, Some(0)));
}

/// Without memory for its class bytes a window is none, and nothing of it stays.
#[test]
fn a_window_without_class_bytes_is_none() {
    let (windows, board) = fresh();
    let mut made = windows.made.lock();
    // (Where no other test's heap is.)
    let slots = core::iter::repeat_with(|| windows.next_slot(&mut made, true));
    let is_empty = |&slot: &usize| mapped(slot << WINDOW_SHIFT, (slot + 1) << WINDOW_SHIFT) == 0;
    let slot = slots.into_iter().find(is_empty).unwrap();
    let start = slot << WINDOW_SHIFT;
    let none = || windows.make(board, &mut made, Owner::Zone(0), slot, 8);
    let made_there = refused_with(libc::SYS_mmap, Some(WINDOW_PAGES as u32), libc::ENOMEM as u32, none);
    let Some(made_there) = made_there else { return };
    assert_eq!((made_there, mapped(start, start + WINDOW), windows.class(start)), (Err(Refused::Limit), 0, None));
    assert_eq!((made.count, board.level(Level::Reserved), windows.class_at(0)), (0, 0, 0));
}

#[test]
fn no_window_is_made_where_one_of_ours_is_or_beyond_all() {
    let (windows, board) = fresh();
    let mut made = windows.made.lock();
    made.slot = 7;
    // (As if they were there; nobody looks.)
    let ours = [FIRST_SLOT + 8, FIRST_SLOT + 9];
    ours.iter().for_each(|&slot| windows.root[slot].store(1, Relaxed));
    assert_eq!(windows.next_slot(&mut made, false), FIRST_SLOT + 10, "they are passed over");
    for slot in [ours[0], ours[1], ROOT, ROOT + 1] {
        assert_eq!(windows.make(board, &mut made, Owner::Zone(0), slot, 1), Err(Refused::Taken), "{slot:x}");
    }
    assert_eq!((made.count, board.level(Level::Reserved)), (0, 0));
    ours.iter().for_each(|&slot| windows.root[slot].store(0, Relaxed));
}

#[test]
fn steps_are_not_asked_for_while_the_system_gives_nothing() {
    let (windows, board) = fresh();
    windows.refused.store(true, Relaxed);
    let (first, pages) = windows.reserve(board, Owner::Zone(0), 8, 512).unwrap();
    assert_eq!((pages, windows.refused.load(Relaxed)), (8, false));
    windows.refused.store(true, Relaxed);
    assert_eq!(windows.extend(board, first, 8, 512), Some((first.add(8), 8)));
    assert_eq!(windows.extend(board, first, 8, 512), Some((first.add(16), 512)));
    assert_eq!(windows.sizes(8, 512).collect::<Vec<_>>(), [512, 128, 32, 8]);
    assert_eq!(windows.sizes(8, 4).collect::<Vec<_>>(), [8]);
    // There are no more numbers.
    windows.made.lock().count = WINDOWS as u32 - 2;
    assert!(windows.reserve(board, Owner::Zone(0), 8, 512).is_some());
    assert!(windows.reserve(board, Owner::Zone(0), 8, 512).is_none() && windows.refused.load(Relaxed));
    assert!(windows.reserve_giant(board, WINDOW + PAGE, WINDOW).is_none());
}

#[test]
fn steps_grow_with_what_there_is() {
    let pages = [0, 127, 200, 511, 512, 8192, 8208, 16 << 10, 256 << 10, 1 << 24];
    assert_eq!(pages.map(step), [128, 128, 200, 511, 512, 512, 1024, 1024, 16 << 10, 16 << 10]);
}

#[test]
fn walks_see_each_window_that_serves() {
    let (windows, board) = fresh();
    let opened = || {
        let mut all = Vec::new();
        windows.each_opened(|at, bytes| all.push((at, bytes)));
        all
    };
    let of_areas = || {
        let mut all = Vec::new();
        windows.each_of_areas(|first, pages| all.push((first, pages)));
        all
    };
    assert_eq!((opened(), of_areas()), (Vec::new(), Vec::new()));
    let (zone, _) = windows.reserve(board, Owner::Zone(1), 10, 10).unwrap();
    let (areas, _) = windows.reserve(board, Owner::Areas(Paging::Huge), 20, 20).unwrap();
    let count = || [Level::Reserved, Level::Mappings].map(|level| board.level(level) as usize);
    let before = count();
    let giant = windows.reserve_giant(board, WINDOW + PAGE, 4 * WINDOW).unwrap();
    assert_eq!(count(), [before[0] + WINDOW + PAGE + giant::META, before[1] + 3]);
    let (zone_at, areas_at, giant_at) = (windows.address(zone), windows.address(areas), windows.address(giant));
    assert!(giant_at.is_multiple_of(4 * WINDOW));
    assert_eq!(opened(), [(zone_at, 10 * PAGE), (areas_at, 20 * PAGE), (giant_at, WINDOW + PAGE)]);
    assert_eq!(of_areas(), [(areas, 20), (giant, 1)]);
    assert!(windows.block(giant.block()).is_none() && windows.look(giant_at).is_none());
    assert_eq!([zone_at, areas_at, giant_at].map(|at| windows.class(at)), [Some(0), Some(0), None]);
    windows.mix(zone);
    assert_eq!(of_areas(), [(zone, 10), (areas, 20), (giant, 1)]);
    // What the system was asked for: huge pages for these areas alone.
    let has_pages = fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap();
    let has =
        |flag: &str| [zone_at, areas_at, giant_at].map(|at| has_pages && flags(at).split(' ').any(|word| word == flag));
    assert_eq!((has("hg"), has("nh")), ([false, has_pages, false], [has_pages, false, has_pages]));
    // A zone's blocks are those of areas' windows, too, once pages went over; those ask for huge ones no more.
    assert_eq!((windows.blocks_of(1).count(), windows.blocks_of(0).count()), (1, 0));
    windows.mix(areas);
    assert_eq!(windows.blocks_of(0).collect::<Vec<_>>(), [areas.block()]);
    assert_eq!((has("hg"), has("nh")), ([false; 3], [has_pages; 3]));
    // The giant's range goes back, and is counted; its number waits for the next.
    let before = count();
    assert!(unsafe { windows.release_giant(board, giant) });
    assert_eq!(count(), [before[0] - WINDOW - PAGE, before[1] - 2]);
    assert_eq!(mapped(giant_at, giant_at + WINDOW + PAGE), 0);
    assert_eq!((opened().len(), of_areas().len()), (2, 2));
    assert!(windows.find(giant_at).is_none());
    let again = windows.reserve_giant(board, WINDOW + 2 * PAGE, WINDOW).unwrap();
    assert_eq!(again.0 / WINDOW_PAGES as u32, giant.0 / WINDOW_PAGES as u32);
    assert_eq!(count(), [before[0] + PAGE, before[1]]);
    assert_eq!(opened()[2], (windows.address(again), WINDOW + 2 * PAGE));
}

/// Where somebody has the place that is asked for, the system's own choice is cut to what was wanted, and nothing else stays.
#[test]
fn an_address_that_is_not_aligned_has_a_way_out() {
    // (Other tests map and unmap beside this one, far less than that.)
    const LEN: usize = 1 << 37;
    const ALIGN: usize = 1 << 38;
    let all = || mapped(0, usize::MAX) / (LEN / 4);
    let before = all();
    // (From one place, so that each looks in the same.)
    let at: Vec<_> = (0..4).map(|_| Windows::aligned(LEN, ALIGN, 0).unwrap()).collect();
    assert!(at.iter().all(|at| at.is_multiple_of(ALIGN) && mapped(*at, at + LEN) == LEN), "{at:x?}");
    assert!((15..=17).contains(&(all() - before)), "nothing beside what was wanted");
    at.iter().for_each(|&at| unsafe { sys::unmap(at, LEN) }.unwrap());
    assert!(all() <= before + 1);
    // Longer than all addresses, with and without room to align it.
    assert_eq!([(1 << 47) - PAGE, 1 << 47, 1 << 50].map(|len| Windows::aligned(len, WINDOW, 0)), [None; 3]);
}

/// From the first whole block on, in one range, until one grows by small pages or a part is given back.
#[test]
fn huge_pages_are_asked_for_in_one_range_of_a_window() {
    if !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
        return;
    }
    let (windows, board) = fresh();
    let (first, _) = windows.reserve(board, Owner::Zone(0), 1, 100).unwrap();
    let levels = || [Level::Huge, Level::Mappings].map(|level| board.level(level) as usize);
    let (block, before) = (first.block(), levels()[1]);
    let state = || (levels(), [0, 1, 2].map(|at| windows.is_huge(block + at)), windows.has_huge(first));
    let none = ([0, before], [false; 3], false);
    let grow = |from: usize, pages: usize, is_huge: bool| {
        assert_eq!(windows.extend(board, first, pages, pages), Some((first.add(from), pages)));
        if is_huge {
            windows.make_huge(board, first.add(from), pages);
        }
    };
    assert_eq!((state(), windows.end_huge(board, first)), (none, None));
    // Not to the end of a block, and just to it.
    grow(100, 20, true);
    assert_eq!(state(), none);
    grow(120, 392, true);
    assert_eq!(state(), none);
    grow(512, 188, true);
    assert_eq!(state(), ([188 * PAGE, before + 1], [false; 3], true));
    grow(700, 324, true);
    assert_eq!(state(), ([512 * PAGE, before + 1], [false, true, false], true));
    grow(1024, 511, true);
    assert_eq!(state(), ([1023 * PAGE, before + 1], [false, true, false], true));
    grow(1535, 1, true);
    let all = ([1024 * PAGE, before + 1], [false, true, true], true);
    assert_eq!(state(), all);
    // By small pages, and behind those.
    grow(1536, 10, false);
    grow(1546, 1000, true);
    assert_eq!(state(), all);
    let has = |page: usize| flags(windows.address(first.add(page))).split(' ').any(|flag| flag == "hg");
    assert_eq!([0, 511, 512, 1535, 1536, 2000].map(has), [false, false, true, true, false, false]);
    assert_eq!(windows.end_huge(board, first), Some((windows.address(first.add(512)), 1024 * PAGE)));
    assert_eq!((state(), windows.end_huge(board, first)), (none, None));
    // It begins again, in the middle of a block.
    grow(2546, 300, true);
    assert_eq!(state().0, [(2846 - 2560) * PAGE, before + 1]);
}

#[test]
fn a_giant_area_is_cut_moved_or_refused_as_a_whole() {
    let (windows, board) = fresh();
    let reserved = || board.level(Level::Reserved) as usize;
    let giant = windows.reserve_giant(board, WINDOW + 8 * PAGE, WINDOW).unwrap();
    let (at, all) = (windows.address(giant), reserved());
    assert!(unsafe { windows.cut_giant(board, giant, WINDOW + 2 * PAGE) });
    assert_eq!((windows.giant(giant).bytes.load(Relaxed), reserved()), (WINDOW + 2 * PAGE, all - 6 * PAGE));
    assert_eq!(mapped(at, at + WINDOW + 8 * PAGE), WINDOW + 2 * PAGE);
    // Refused (a part of a page is not to be had): all is as it was.
    assert!(!unsafe { windows.cut_giant(board, giant, PAGE + 1) });
    assert_eq!((windows.giant(giant).bytes.load(Relaxed), reserved()), (WINDOW + 2 * PAGE, all - 6 * PAGE));
    let levels = || [Level::Reserved, Level::Mappings].map(|level| board.level(level));
    let before = (levels(), windows.in_use().count());
    assert!(!unsafe { windows.move_giant(board, giant, 1, WINDOW + 3 * PAGE) });
    assert_eq!(((levels(), windows.in_use().count()), windows.address(giant)), (before, at));
    assert!(unsafe { windows.release_giant(board, giant) });
}

#[test]
fn a_giant_area_that_cannot_be_opened_has_no_window() {
    let (windows, board) = fresh();
    let reserve = || windows.reserve_giant(board, WINDOW + PAGE, WINDOW);
    let Some(giant) = refused(libc::SYS_mprotect, libc::ENOMEM as u32, reserve) else { return };
    let levels = [Level::Reserved, Level::Mappings].map(|level| board.level(level));
    assert_eq!((giant, windows.made.lock().count, levels), (None, 0, [0; 2]));
}

#[test]
fn a_descriptor_keeps_what_it_is_told() {
    let (windows, board) = fresh();
    let (first, _) = windows.reserve(board, Owner::Zone(0), 8, 8).unwrap();
    let desc = windows.desc(first);
    assert_eq!(desc.kind(), Kind::None);
    use Kind::{Area, Dirty, Front, Lazy, Pages, Run, Slab, Tail};
    for kind in [Pages, Slab, Area, Lazy, Run, Dirty, Tail, Front, Kind::None] {
        desc.set(kind, 0x1234);
        assert_eq!((desc.kind(), desc.rest()), (kind, 0x1234));
    }
    desc.set_links(Pfn(7), Pfn(u32::MAX));
    assert_eq!(desc.links(), (Pfn(7), Pfn(u32::MAX)));
    assert!(first.same_window(first.add(7)) && !first.same_window(first.add(WINDOW_PAGES)));
}
