//! Large blocks: how they move, what they wait for beside forks, and what the hard limit allows there.

use super::*;
use crate::slab::class::SMALL_MAX;
use crate::tests::threads;

/// The kernel moves one mapping: an area that was moved and grew over another's would be copied when it must move again.
#[test]
fn a_moved_area_that_grows_much_moves_again() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    HEAP.cache.knobs.set(Id::HugeBytes as usize, 0);
    HEAP.cache.knobs.set(Id::MoveBytes as usize, 2 << 20);
    let (mut at, mut blocks) = (HEAP.malloc(4 << 20), Vec::new());
    unsafe { at.write_bytes(5, 4 << 20) };
    for (n, bytes) in [8 << 20, 16 << 20, 32 << 20].into_iter().enumerate() {
        // In the way of the first and of the last.
        if n != 1 {
            blocks.push(HEAP.malloc(4 << 20));
        }
        at = unsafe { HEAP.realloc(at, bytes) };
        assert!((0..1024).all(|page| unsafe { *at.add(page * PAGE + 7) } == 5));
        unsafe { at.add(bytes - 1).write(5) };
    }
    assert_eq!(HEAP.cache.sets.event(Event::AreaMove), 3);
    blocks.into_iter().chain([at]).for_each(|block| unsafe { HEAP.free(block) });
    assert_empty(&HEAP);
}

/// What goes to and fro about a length stays where it is, whether or not it has room to grow; what shrinks by more does not.
#[test]
fn a_block_that_shrinks_by_little_stays() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let realloc = |block, size| unsafe { HEAP.realloc(block, size) };
    for (short, long) in [(16_384, 16_385), (16_000, 18_000), (32_768, 32_769), (131_072, 131_073), (56_000, 60_000)] {
        let block = realloc(HEAP.malloc(short), long);
        let usable = HEAP.usable(block).unwrap();
        for size in [short, long, short] {
            assert_eq!((realloc(block, size), HEAP.usable(block)), (block, Some(usable)), "{short} {long}");
        }
        let shorter = realloc(block, short / 2 + 1);
        assert!(HEAP.usable(shorter).unwrap() <= short / 8 * 7);
        unsafe { HEAP.free(shorter) };
    }
    let large = HEAP.malloc(3 << 20);
    let cut = realloc(large, (3 << 20) - PAGE);
    assert_eq!(HEAP.usable(cut), Some((3 << 20) - PAGE));
    unsafe { HEAP.free(cut) };
    assert_empty(&HEAP);
}

/// What a fork has left of the side arena is there where the heap has nothing more.
#[test]
fn what_forks_leave_serves_who_is_refused() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    HEAP.cache.knobs.set(Id::HardLimit as usize, 8 << 20);
    assert!(HEAP.fork_begin(u32::MAX));
    let aside = [(); 12].map(|()| HEAP.malloc(40_000));
    HEAP.fork_end(false);
    let is_aside = |block: &*mut u8| HEAP.side.size(*block as usize).is_some();
    assert!(aside.iter().all(is_aside));
    aside[1..].iter().for_each(|&block| unsafe { HEAP.free(block) });
    // Also for what is shorter, aligned or zeroed.
    let request = |at: usize| match at % 3 {
        0 => HEAP.malloc(40_000),
        1 => HEAP.aligned(20_000, 16),
        _ => HEAP.calloc(30_000),
    };
    let got: Vec<*mut u8> = (0..).map(request).take_while(|block| !block.is_null()).collect();
    // (Those of the chunk that was not empty meanwhile. For more of another the limit has no room.)
    assert_eq!(got.iter().filter(|block| is_aside(block)).count(), 5);
    assert!(got.iter().skip(2).step_by(3).all(|&block| (0..30_000).all(|at| unsafe { *block.add(at) } == 0)));
    got.into_iter().chain([aside[0]]).for_each(|block| unsafe { HEAP.free(block) });
    HEAP.cache.knobs.set(Id::HardLimit as usize, 0);
    assert_empty(&HEAP);
}

/// What the side arena gives counts for the hard limit, and what is freed counts no more. The forking thread waits for nothing.
#[test]
fn the_side_arena_keeps_the_hard_limit() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let sets = &HEAP.cache.sets;
    let first = HEAP.malloc(8 << 20);
    HEAP.cache.knobs.set(Id::HardLimit as usize, 32 << 20);
    assert!(HEAP.fork_begin(u32::MAX));
    let aside = HEAP.malloc(20 << 20);
    assert!(!aside.is_null() && HEAP.side.held() >= 20 << 20);
    assert_eq!(sets.board().level(Level::Aside), HEAP.side.held());
    assert!(HEAP.malloc(8 << 20).is_null() && sets.event(Event::LimitRefused) == 1);
    assert!(sets.board().held() <= 32 << 20);
    // A block that shrinks is never refused, and none is lost that cannot grow.
    assert_eq!(unsafe { HEAP.realloc(first, 3 << 20) }, first);
    assert!(unsafe { HEAP.realloc(first, 30 << 20) }.is_null());
    unsafe { HEAP.free(aside) };
    assert!(HEAP.side.held() < 1 << 20 && HEAP.malloc(100) as usize > 0);
    let again = HEAP.malloc(20 << 20);
    HEAP.fork_end(false);
    // What it has, others cannot have.
    assert!(!again.is_null() && HEAP.malloc(8 << 20).is_null());
    unsafe { HEAP.free(again) };
    let last = HEAP.malloc(8 << 20);
    assert!(!last.is_null() && sets.board().level(Level::Aside) == HEAP.side.held());
    [first, last].into_iter().for_each(|block| unsafe { HEAP.free(block) });
}

/// A large request waits for a fork as long as its pages take to touch, and is served inside then; a small one goes its way at once.
#[test]
fn large_requests_wait_a_moment_for_a_fork() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let aside = || HEAP.cache.sets.event(Event::AllocAside);
    let block = HEAP.malloc(64 << 20) as usize;
    assert!(HEAP.fork_begin(u32::MAX));
    threads::scope(|scope| {
        let (told, tells) = std::sync::mpsc::channel();
        let other = scope.spawn(move || {
            let small = HEAP.malloc(100_000);
            assert_eq!(aside(), 1);
            told.send(()).unwrap();
            unsafe { HEAP.free(small) };
            let grown = unsafe { HEAP.realloc(block as *mut u8, 600 << 20) };
            assert!(!grown.is_null() && aside() == 1, "copied");
            unsafe { HEAP.free(grown) };
        });
        tells.recv().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(3));
        HEAP.fork_end(false);
        other.join().unwrap();
    });
    // Its own fork it does not wait for; and another no longer than that.
    assert!(HEAP.fork_begin(u32::MAX));
    let own = HEAP.malloc(64 << 20);
    threads::scope(|scope| scope.spawn(|| unsafe { HEAP.free(HEAP.malloc(3 << 20)) }).join().unwrap());
    assert_eq!(aside(), 3);
    HEAP.fork_end(false);
    unsafe { HEAP.free(own) };
    HEAP.pay();
    assert_empty(&HEAP);
}

/// Blocks that grow by little to 32 KiB at most get the next length of four to a doubling, by fast paths and slow ones; others what they ask for.
#[test]
fn small_blocks_that_grow_have_some_room_and_no_more() {
    static HEAPS: [Heap<Test>; 3] = [const { Heap::new() }; 3];
    for (heap, mode) in HEAPS.iter().zip([Mode::Simulated, Mode::Fallback, Mode::Sequences]) {
        if !open(heap, mode) {
            continue;
        }
        let lengths = [
            (48, 49, 64),
            (112, 113, 128),
            (144, 150, 160),
            (160, 161, 192),
            (7680, 7732, 8192),
            (8192, 8193, 10240),
            (14_336, 14_337, 16_384),
            (16_000, 16_384, 16_384),
            // As areas, too, up to 32 KiB; then they get a quarter more than they had.
            (16_384, 16_385, 20_480),
            (24_576, 24_577, 28_672),
            (32_700, 32_760, 32_768),
            (32_768, 32_769, 40_960),
            // By a quarter or more, or to less.
            (144, 200, 208),
            (160, 200, 208),
            (4096, 8192, 8192),
            (4096, 5121, 5632),
            (16_384, 20_481, 24_576),
            (8192, 900, 960),
        ];
        // (Fast paths have objects of all classes.)
        (16..=SMALL_MAX).step_by(16).for_each(|size| unsafe { heap.free(heap.malloc(size)) });
        for _ in 0..3 {
            for (old, new, long) in lengths {
                let grown = unsafe { heap.realloc(heap.malloc(old), new) };
                // (A front that has no area of that length may have one of the next.)
                let longest = if long > SMALL_MAX { long + PAGE } else { long };
                let is = heap.usable(grown).unwrap();
                assert!((long..=longest).contains(&is), "{mode:?}: {old} to {new}: {is}");
                unsafe { heap.free(grown) };
            }
        }
        assert_empty(heap);
    }
}

/// Each object that is cached keeps a slab; so before areas take fresh memory, classes that do nothing give theirs back.
#[test]
fn before_areas_take_fresh_memory_idle_classes_give_way() {
    static HEAPS: [Heap<Test>; 3] = [const { Heap::new() }; 3];
    for (heap, mode) in HEAPS.iter().zip([Mode::Simulated, Mode::Fallback, Mode::Sequences]) {
        if !open(heap, mode) {
            continue;
        }
        let cached = || heap.cache.sets.board().level(Level::Taken);
        let small: Vec<_> = (0..4000).map(|_| heap.malloc(4096)).collect();
        small.iter().for_each(|&object| unsafe { heap.free(object) });
        let before = cached();
        assert!(before >= 4 * 4096, "{mode:?}: {before}");
        let areas: Vec<_> = (0..4000).map(|_| heap.malloc(64 << 10)).collect();
        assert!(cached() < before / 2, "{mode:?}: {} of {before}", cached());
        areas.iter().for_each(|&area| unsafe { heap.free(area) });
        assert_empty(heap);
    }
}

/// What grows by little is copied a few times, not each time; who asks for less than before gives its room back, and where a limit
/// leaves none there is none.
#[test]
fn blocks_that_grow_in_turn_are_seldom_copied() {
    static HEAPS: [Heap<Test>; 3] = [const { Heap::new() }; 3];
    const STEP: usize = 3000;
    let usable = |heap: &Heap<Test>, block: usize| heap.usable(block as *const u8).unwrap();
    for (heap, mode) in HEAPS.iter().zip([Mode::Simulated, Mode::Fallback, Mode::Sequences]) {
        if !open(heap, mode) {
            continue;
        }
        let resize = |block: usize, size: usize| unsafe { heap.realloc(block as *mut u8, size) } as usize;
        let mut blocks = [0; 8].map(|_| heap.malloc(STEP) as usize);
        let mut moved = 0;
        for size in (2 * STEP..1_000_000).step_by(STEP) {
            for (at, block) in blocks.iter_mut().enumerate() {
                let new = resize(*block, size);
                moved += usize::from(new != *block);
                unsafe { ((new + size - STEP) as *mut u8).write(at as u8) };
                *block = new;
            }
        }
        // (From 32 KiB to a MB by a quarter 16 times, and some times within small classes.)
        assert!(moved <= 8 * 40, "{mode:?}: {moved}");
        for (at, &block) in blocks.iter().enumerate() {
            let mut steps = (STEP..990_000).step_by(STEP);
            assert!(steps.all(|step| unsafe { ((block + step) as *const u8).read() } == at as u8), "{mode:?}");
        }
        // More, within the room; less than was ever asked for with it.
        let (block, long) =
            blocks.iter().map(|&block| (block, usable(heap, block))).max_by_key(|&(_, long)| long).unwrap();
        assert!(resize(block, long) == block && usable(heap, block) == long);
        assert!(resize(block, 600_000) == block && usable(heap, block) < 700_000, "{mode:?}");
        blocks.into_iter().for_each(|block| unsafe { heap.free(block as *mut u8) });
        // Huge ones move by page tables.
        heap.trim();
        let block = heap.malloc(40 << 20) as usize;
        let grown = resize(block, 41 << 20);
        assert_eq!(usable(heap, grown), 50 << 20);
        assert!(resize(grown, 42 << 20) == grown && usable(heap, grown) == 50 << 20);
        assert!(resize(grown, 40 << 20) == grown && usable(heap, grown) == 40 << 20, "{mode:?}");
        // Two MiB are left.
        let held = heap.cache.sets.board().held();
        heap.cache.knobs.set(Id::HardLimit as usize, held + (2 << 20));
        let limited = resize(grown, 41 << 20);
        assert_eq!(usable(heap, limited), 41 << 20, "{mode:?}");
        heap.cache.knobs.set(Id::HardLimit as usize, 0);
        unsafe { heap.free(limited as *mut u8) };
        assert_empty(heap);
    }
}

/// What is cleared is zero, and where it was hardly in memory, it is not.
#[test]
fn zeros_of_a_large_table_that_was_hardly_used_take_no_memory() {
    static HEAP: Heap<Test> = Heap::new();
    const BYTES: usize = (5 << 20) + 3 * PAGE + 100;
    const PAGES: usize = BYTES / PAGE;
    assert!(open(&HEAP, Mode::Simulated));
    HEAP.cache.knobs.set(Id::HugeBytes as usize, 0);
    let block = HEAP.malloc(BYTES);
    let bytes = unsafe { core::slice::from_raw_parts_mut(block, BYTES) };
    // A page of each 100; those, but all of a third; all.
    for (every, dense, most) in [(100, 0, 0), (64, BYTES / 3, BYTES / 3 / PAGE + 64), (1, 0, PAGES)] {
        // (What was only read is in memory, too.)
        assert_eq!(unsafe { libc::madvise(block.cast(), BYTES, libc::MADV_DONTNEED) }, 0);
        (0..PAGES).step_by(every).for_each(|page| bytes[page * PAGE + 9] = 7);
        bytes[..dense].fill(5);
        bytes[BYTES - 1] = 1;
        unsafe { HEAP.vmap().clear(block as usize, BYTES) };
        let mut here = std::vec![0_u8; PAGES];
        assert_eq!(unsafe { libc::mincore(block.cast(), PAGES * PAGE, here.as_mut_ptr()) }, 0);
        let here = here.iter().filter(|&&page| page & 1 != 0).count();
        assert!((dense / PAGE..=most).contains(&here) && (every > 1 || here == PAGES), "{here} of {most}");
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
    unsafe { HEAP.free(block) };
    assert_empty(&HEAP);
}

/// What shrinks from 2 MiB or more to a quarter or less, and less than 2 MiB, leaves its place to others; a little less, or of less, stays where it is, and so
/// does what finds no other memory.
#[test]
fn what_shrinks_much_moves() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    let resize = |block: *mut u8, size: usize| unsafe { HEAP.realloc(block, size) };
    for (old, less) in [(2 << 20, 512 << 10), (2 << 20, 40_000), (40 << 20, (2 << 20) - 1), (40 << 20, 50_000)] {
        let block = HEAP.malloc(old);
        unsafe { block.write_bytes(old as u8 ^ 7, less) };
        let stays = resize(block, old / 2);
        assert_eq!(stays, block);
        // (Of what there is by then.)
        let block = resize(resize(stays, old), less);
        assert_ne!(block, stays, "{old} to {less}");
        assert!((0..less).all(|byte| unsafe { block.add(byte).read() } == old as u8 ^ 7));
        assert!(HEAP.usable(block).is_some_and(|usable| (less..old / 2).contains(&usable)));
        unsafe { HEAP.free(block) };
    }
    let [less, block] = [1 << 20, 8 << 20].map(|bytes| HEAP.malloc(bytes));
    assert_eq!(resize(less, 1 << 18), less);
    assert_eq!(resize(block, 2 << 20), block);
    assert_eq!(resize(block, 8 << 20), block);
    HEAP.vmap().purge(usize::MAX);
    HEAP.cache.knobs.set(Id::HardLimit as usize, 1 << 20);
    let same = resize(block, 100 << 10);
    HEAP.cache.knobs.set(Id::HardLimit as usize, u64::MAX);
    assert_eq!(same, block);
    assert!(HEAP.usable(block).is_some_and(|usable| usable < 1 << 20), "what is behind is not others'");
    [less, block].into_iter().for_each(|block| unsafe { HEAP.free(block) });
    assert_empty(&HEAP);
}
