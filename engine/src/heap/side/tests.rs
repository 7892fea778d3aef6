//! Blocks and what is put off, alone and by threads at once; chunks that are full, shut and empty.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::chunk::*;
use super::*;
use crate::arch::PAGE;
use crate::arch::sys::fault;
use std::vec::Vec;
extern crate std;

/// Bytes of a block for so many, and its list.
fn length(size: usize) -> (usize, usize) {
    let shape = Shape::of(size, 1);
    (shape.size, shape.list)
}

#[test]
fn blocks_are_apart_aligned_and_known() {
    let side = Side::new();
    let mut blocks = Vec::new();
    for (n, align) in (0..600).map(|n| (n, 16 << (n % 10))) {
        let size = n * 37 % 5000;
        let at = side.alloc(size, align).expect("memory").as_ptr();
        assert_eq!(at as usize % align, 0);
        let real = side.size(at as usize).expect("a block");
        assert!(real >= size && side.size(at as usize + 16).is_none());
        unsafe { at.write_bytes(n as u8, real) };
        blocks.push((at, real, n as u8));
    }
    assert!(side.chunks().count() > 2 && side.size(&raw const side as usize).is_none());
    let largest: Vec<_> = side.chunks().map(|chunk| chunk.bytes).collect();
    assert!(largest.windows(2).all(|pair| pair[0] == 2 * pair[1]), "as much again as there is: {largest:?}");
    for &(at, size, byte) in &blocks {
        assert!((0..size).all(|i| unsafe { *at.add(i) } == byte));
        assert!((16..size).step_by(16).all(|inside| side.size(at as usize + inside).is_none()), "whatever it holds");
        unsafe { side.free(at as usize) };
        assert!(side.size(at as usize).is_none(), "freed");
    }
    assert!(side.chunks().all(|chunk| chunk.word.load(Relaxed) == EMPTY) && side.held() == 0);
    let huge = side.alloc(8 << 20, 4096).expect("memory").as_ptr();
    unsafe { huge.write_bytes(1, 8 << 20) };
    unsafe { side.free(huge as usize) };
    let again = side.alloc(8 << 20, 4096).expect("memory").as_ptr();
    assert!(core::ptr::eq(huge, again) && unsafe { *huge.add(5 << 20) } == 0, "given back and used again");
    // A large one goes back though its chunk has another, which stays.
    let other = side.alloc(100, 16).expect("memory").as_ptr();
    unsafe { (again.write_bytes(1, 8 << 20), other.write_bytes(2, 100)) };
    unsafe { side.free(again as usize) };
    assert_eq!(unsafe { *again.add(5 << 20) }, 0);
    assert!((0..100).all(|at| unsafe { *other.add(at) } == 2));
    assert!(side.alloc(MOST + 1, 16).is_none() && side.alloc(usize::MAX, 16).is_none());
}

#[test]
fn a_chunk_is_used_to_its_last_byte_and_by_as_many_blocks_as_it_counts() {
    let side = Side::new();
    assert!(!side.is_used());
    let rest = 192 << 10;
    let others = CHUNK - size_of::<Chunk>() - rest - HEADER - 48;
    let first = side.alloc(32, 16).expect("memory").as_ptr() as usize;
    assert!((0..others / 32).all(|_| side.alloc(16, 16).is_some()) && others.is_multiple_of(32));
    assert!(side.is_used() && side.has_room(rest) && side.chunks().count() == 1);
    let last = side.alloc(rest, 16).expect("room").as_ptr() as usize;
    let end = first - HEADER - size_of::<Chunk>() + CHUNK;
    assert_eq!((side.chunks().count(), side.size(last), last + rest), (1, Some(rest), end));
    assert!(side.has_room(16) && side.chunks().count() == 2, "no room is left there");
    // Whatever is more than a chunk has.
    for size in (CHUNK - 128..=CHUNK + 16).step_by(16).flat_map(|size| [size, size + PAGE - 128]) {
        let side = Side::new();
        let block = side.alloc(size, 16).and_then(|block| side.size(block.as_ptr() as usize));
        assert_eq!(block, Some(length(size).0));
    }
    let side = Side::new();
    let large = side.alloc(4 << 20, 16).expect("memory").as_ptr() as usize;
    unsafe { side.free(large) };
    let blocks: Vec<_> = (0..70_000).map(|_| side.alloc(1, 1).expect("memory").as_ptr() as usize).collect();
    assert_eq!(side.chunks().count(), 2, "room for more, but no number");
    let mut sorted = blocks.clone();
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|pair| pair[0] + 32 <= pair[1]));
    blocks.into_iter().for_each(|block| unsafe { side.free(block) });
    assert!(side.chunks().all(|chunk| chunk.word.load(Relaxed) == EMPTY) && side.held() == 0);
}

/// Without memory for a note it lies in the object itself, where that holds one.
#[test]
fn without_memory_a_note_lies_in_the_object() {
    #[repr(align(16))]
    struct Object([usize; 2]);
    let side = Side::new();
    let mut objects: Vec<_> = (0..4).map(|_| Object([7; 2])).collect();
    let at: Vec<_> = objects.iter_mut().map(|object| (&raw mut object.0) as usize).collect();
    let is_object = |entry: usize| if at.contains(&entry) { Place::Object } else { Place::Nowhere };
    fault::storm(1, 1);
    assert!(!side.has_room(100) && !side.put_off(at[0], Place::Nowhere) && !side.is_owing());
    assert!(at[..3].iter().all(|&address| side.put_off(address, Place::Object)));
    fault::storm(0, 1);
    assert!(side.put_off(at[3], Place::Object));
    assert_eq!(side.take(is_object).collect::<Vec<_>>(), [at[3], at[2], at[1], at[0]]);
    assert!(!side.is_owing() && side.held() == 0);
    // Somebody who writes to what was freed leads nobody astray.
    let side = Side::new();
    for (entry, found) in [([1 << 60, 3], 1), ([1 << 60, at[2]], 2), ([1 << 60 | ITSELF, at[2]], 2)] {
        fault::storm(1, 1);
        assert!(at.iter().all(|&address| side.put_off(address, Place::Object)));
        fault::storm(0, 1);
        unsafe { (at[2] as *mut [usize; 2]).write(entry) };
        assert_eq!(side.take(is_object).collect::<Vec<_>>(), [at[3], at[2]][..found]);
    }
    // Nor does what is freed twice.
    fault::storm(1, 1);
    assert!([0, 1, 0, 0].iter().all(|&twice| side.put_off(at[twice], Place::Object)));
    fault::storm(0, 1);
    assert_eq!(side.take(is_object).collect::<Vec<_>>(), [at[0]]);
    // Where the system refuses as much as usual, what is needed.
    assert!(side.has_room(100) && side.has_room(192 << 10) && side.chunks().count() == 1);
    assert!(side.has_room(CHUNK) && side.chunks().count() == 2);
}

#[test]
fn lengths_are_a_quarter_apart_at_most() {
    for size in (0..5000).chain((5..27).flat_map(|shift| [(1 << shift) - 1, 1 << shift, (1 << shift) + 1])) {
        let (bytes, list) = length(size);
        assert!(bytes >= size && bytes % 16 == 0 && bytes <= (size + 15).max(16) + size / 4, "{size}: {bytes}");
        assert!(list < LISTS && length(bytes) == (bytes, list) && length(bytes + 1).1 == list + 1);
    }
    assert!(length(MOST).1 >= LISTS);
}

/// Beside the place of its first block a list's head counts.
#[test]
fn heads_count_their_changes() {
    let side = Side::new();
    side.alloc(100, 16).expect("memory");
    let chunk = side.chunks().next().unwrap();
    let last = chunk.base() + (((1 << 28) - 1) << 4);
    let heads = [chunk.base() + 4096, last, 0].into_iter().scan(u64::MAX << 28, |head, address| {
        *head = chunk.changed(*head, address);
        Some((chunk.first_of(*head), *head >> 28))
    });
    assert_eq!(heads.collect::<Vec<_>>(), [(chunk.base() + 4096, 0), (last, 1), (0, 2)]);
}

/// Who has no other memory gets what is up to four times as long, and no chunk is made for it.
#[test]
fn what_is_kept_serves_shorter_requests_in_need() {
    let side = Side::new();
    let take = |size: usize| side.alloc(size, 16).expect("memory").as_ptr() as usize;
    let (_stays, block) = (take(16), take(40_000));
    // (No room behind it.)
    while side.chunks().next().unwrap().has_room(Shape::of(64, 16)) {
        take(64);
    }
    let count = side.chunks().count();
    assert_eq!(side.alloc_left(10_000, 16), None);
    unsafe { side.free(block) };
    assert_eq!([41_000, usize::MAX].map(|size| side.alloc_left(size, 16)), [None; 2]);
    assert_eq!(side.alloc_left(8_000, 16), None, "it would waste most of it");
    assert_eq!(side.alloc_left(11_000, 16).map(|block| block.as_ptr() as usize), Some(block));
    assert!(side.size(block).unwrap() >= 40_000 && side.chunks().count() == count);
}

#[test]
fn what_is_kept_serves_others_of_its_length_and_goes_in_the_end() {
    let side = Side::new();
    let take = |size: usize| side.alloc(size, 16).expect("memory").as_ptr() as usize;
    let free = |block: usize| unsafe { side.free(block) };
    let sizes = [1, 16, 100, 1000, 5000, 60_000, 3 << 20];
    free(take(8 << 20));
    let (stays, blocks) = (take(100), sizes.map(take));
    let before = side.held();
    assert!(side.chunks().count() == 1 && !side.has_kept(1000));
    blocks.iter().for_each(|&block| free(block));
    assert!(blocks.iter().all(|&block| side.size(block).is_none()) && !side.is_owing());
    assert!(side.held() < before - (3 << 20) + 2 * PAGE as u64, "a large one's pages have gone");
    assert!([16, 1000, 60_000, 3 << 20].iter().all(|&size| side.has_kept(size)) && !side.has_kept(200));
    assert!(side.holds(1000) && ![200, 60_000, 3 << 20].iter().any(|&size| side.holds(size)));
    // (Both of 16 bytes, the last first.)
    assert_eq!([take(16), take(8)], [blocks[1], blocks[0]]);
    assert_eq!(sizes[2..].iter().map(|&size| take(size)).collect::<Vec<_>>(), blocks[2..]);
    assert!(side.held() == before && ![16, 1000, 3 << 20].iter().any(|&size| side.has_kept(size)));
    let more = take(1000);
    assert!(more != blocks[3]);
    // Freed twice it is there once.
    (0..2).for_each(|_| free(blocks[4]));
    let again = take(5000);
    assert!(again == blocks[4] && take(5000) != again);
    // With the last one in use a chunk is empty, and its lists are.
    for base in side.chunks().map(Chunk::base).collect::<Vec<_>>() {
        for at in (base + size_of::<Chunk>() + HEADER..base + side.chunk_of(base).unwrap().bytes).step_by(16) {
            if side.size(at).is_some() {
                assert!(at == stays || side.held() > 0);
                free(at);
            }
        }
    }
    assert!(side.chunks().all(is_empty) && side.held() == 0);
    assert!(!sizes.iter().any(|&size| side.has_kept(size)) && side.chunks().all(|chunk| chunk.gone.load(Relaxed) == 0));
}

fn is_empty(chunk: &Chunk) -> bool {
    let is_kept = chunk.kept.iter().flatten().any(|list| chunk.first_of(list.load(Relaxed)) != 0);
    assert!(!is_kept || chunk.word.load(Relaxed) != EMPTY, "kept of nothing");
    chunk.word.load(Relaxed) == EMPTY
}

/// What is aligned serves again what is aligned so; where the system gives nothing, what is kept is room.
#[test]
fn kept_blocks_serve_their_alignment_again() {
    for align in [16, 32, 64, 1024, PAGE] {
        let side = Side::new();
        let stays = side.alloc(1, 16).expect("memory").as_ptr() as usize;
        for size in (0..4000).map(|n| n % 3 * 700 + 1) {
            let block = side.alloc(size, align).expect("memory").as_ptr() as usize;
            assert!(block.is_multiple_of(align) && side.size(block) == Some(length(size).0));
            unsafe { side.free(block) };
        }
        assert!(side.held() < 16 * PAGE as u64 && side.chunks().count() == 1, "{align}: {}", side.held());
        unsafe { side.free(stays) };
        assert!(side.held() == 0 && side.chunks().all(is_empty), "{align}");
    }
    // More is not kept; nor is there a list for it.
    let side = Side::new();
    let block = side.alloc(100, 2 * PAGE).expect("memory").as_ptr() as usize;
    let stays = side.alloc(1000, 16).expect("memory").as_ptr() as usize;
    unsafe { side.free(block) };
    assert!(side.held() > 1000 && !side.has_kept(100));
    // All of a chunk is taken, one block is kept.
    while side.chunks().count() == 1 && side.chunks().any(|chunk| chunk.has_room(any(1024))) {
        assert!(side.alloc(1000, 16).is_some());
    }
    unsafe { side.free(stays) };
    fault::storm(1, 1);
    assert!(side.has_kept(1000) && side.has_room(1000) && !side.has_room(2000) && !side.has_kept(2000));
    assert_eq!(side.alloc(1001, 16).map(|block| block.as_ptr() as usize), Some(stays));
    assert!(!side.has_room(1000));
    fault::storm(0, 1);
}

/// Beside blocks that stay, memory is what is in use at a time, however many come and go.
#[test]
fn what_comes_and_goes_beside_what_stays_takes_no_more() {
    let side = Side::new();
    let mut live: [usize; 300] = core::array::from_fn(|_| side.alloc(1, 16).expect("memory").as_ptr() as usize);
    let (mut random, mut most) = (1_usize, 0);
    for n in 0..60_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (random >> 40) % live.len();
        unsafe { side.free(live[at]) };
        live[at] = side.alloc((random >> 20) % 4000, 16).expect("memory").as_ptr() as usize;
        if n == 20_000 {
            most = side.held();
        }
    }
    assert!(side.held() < most + most / 4 && most < 3 << 20, "{most} {}", side.held());
    live.iter().for_each(|&block| unsafe { side.free(block) });
    assert!(side.held() == 0 && side.chunks().all(is_empty));
}

/// One that is being emptied gives nothing, and one that has as many blocks as it counts nothing that it keeps.
#[test]
fn a_chunk_that_is_shut_gives_nothing() {
    let side = Side::new();
    let blocks = [(); 2].map(|()| side.alloc(100, 16).expect("memory").as_ptr() as usize);
    unsafe { side.free(blocks[0]) };
    let chunk = side.chunks().next().unwrap();
    let word = chunk.word.swap(SHUT, Relaxed);
    assert!(
        !chunk.count() && !chunk.has_room(any(16)) && chunk.take(any(16), &side.held).is_none() && chunk.held() == 0
    );
    assert!(chunk.take_kept(any(112), &side.held).is_none() && side.has_kept(100));
    chunk.word.store(word | (BLOCKS * BLOCK), Relaxed);
    assert!(!chunk.count() && chunk.take_kept(any(112), &side.held).is_none());
    chunk.word.store(word, Relaxed);
    assert!(chunk.take_kept(any(112), &side.held).is_some_and(|block| block.as_ptr() as usize == blocks[0]));
    blocks.iter().for_each(|&block| unsafe { side.free(block) });
    assert!(is_empty(chunk) && side.held() == 0);
}

/// Blocks go round between threads; none is two threads' at once, and the memory is what is in use.
#[test]
fn threads_have_kept_blocks_once_each() {
    let side = Side::new();
    crate::tests::threads::scope(|scope| {
        for thread in 1..=4_usize {
            let side = &side;
            scope.spawn(move || {
                let mut live: [(usize, usize); 8] = [(0, 0); 8];
                for n in 0..40_000 {
                    let at = n * 7 % 8;
                    let (block, size) = live[at];
                    if block != 0 {
                        let words = unsafe { core::slice::from_raw_parts(block as *const usize, size / 8) };
                        assert!(words.iter().all(|&word| word == (thread << 32) + n - 8), "torn");
                        unsafe { side.free(block) };
                    }
                    let size = [16, 48, 160, 1024][n / 8 % 4];
                    let block = side.alloc(size, 16).expect("memory").as_ptr() as usize;
                    unsafe { core::slice::from_raw_parts_mut(block as *mut usize, size / 8) }.fill((thread << 32) + n);
                    live[at] = (block, size);
                    // (Now and then nothing is in use, and a chunk is emptied.)
                    if n % 500 == 499 {
                        live.iter().for_each(|&(block, _)| unsafe { side.free(block) });
                        live = [(0, 0); 8];
                    }
                }
                live.iter().filter(|&&(block, _)| block != 0).for_each(|&(block, _)| unsafe { side.free(block) });
            });
        }
    });
    assert!(side.held() == 0 && side.chunks().all(is_empty), "{}", side.held());
    assert!(side.chunks().count() < 8);
}

/// A note of an area lies in its descriptor, whether there is memory or not; of one that is noted already there is none.
#[test]
fn a_note_of_an_area_lies_in_its_descriptor() {
    let side = Side::new();
    let desc = || Desc { link: 5.into(), pages: 9.into(), tag: (3 << 8 | Kind::Area as u32).into() };
    let descs = [desc(), desc(), desc()];
    let at = |n: usize| (n + 1) * PAGE;
    let place = |address: usize| descs.get(address / PAGE - 1).map_or(Place::Nowhere, Place::Area);
    let put_off = |n: usize| side.put_off(at(n), place(at(n)));
    fault::storm(1, 1);
    assert!((0..3).all(put_off) && !(0..3).any(put_off) && !put_off(3));
    fault::storm(0, 1);
    assert!(!(0..3).any(put_off));
    assert!(descs.iter().all(|desc| desc.is(Kind::Front, 3)));
    assert_eq!(side.take(place).collect::<Vec<_>>(), [at(2), at(1), at(0)]);
    assert!(descs.iter().all(|desc| desc.is(Kind::Area, 3) && desc.link.load(Relaxed) == 0 && desc.len() == 9));
    assert!(!side.is_owing() && side.held() == 0);
    // An area that is another's by now leads nobody astray, nor does one that two threads freed at the same moment.
    fault::storm(1, 1);
    assert!((0..3).all(put_off));
    descs[1].set(Kind::Area, 3);
    assert_eq!(side.take(place).collect::<Vec<_>>(), [at(2)]);
    descs.iter().for_each(|desc| desc.set(Kind::Area, 3));
    assert!(put_off(0));
    descs[0].set(Kind::Area, 3);
    assert!(put_off(0));
    assert_eq!(side.take(place).collect::<Vec<_>>(), [at(0)]);
    fault::storm(0, 1);
}

#[test]
fn what_threads_put_off_is_found_once() {
    let side = Side::new();
    let mut seen = [0_u8; 8001];
    crate::tests::threads::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let side = &side;
                scope.spawn(move || (1..=2000).for_each(|n| assert!(side.put_off(thread * 2000 + n, Place::Nowhere))))
            })
            .collect();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            side.take(|_| Place::Nowhere).for_each(|n| seen[n] += 1);
        }
    });
    side.take(|_| Place::Nowhere).for_each(|n| seen[n] += 1);
    assert!(seen[1..].iter().all(|&n| n == 1) && !side.is_owing());
}
