//! Sheaves and barns, and the metadata that they are made of.

use super::*;
use crate::arch::sys::fault;
use crate::arch::tests::in_a_single_child;
use crate::cache::layout::OBJECTS;
use crate::cache::sheaf::{Barn, FULL_MAX};
use crate::meta::Meta;
use crate::stat::{Board, Level};
use std::fs;

/// Metadata, and a board to count it on.
fn with(body: impl FnOnce(&Meta, &Board)) {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 1, 1);
    body(&Meta::new(), sets.board());
}

/// What is in stock is what comes next: no chunk is taken for it, and nothing is in stock twice.
#[test]
fn metadata_in_stock_comes_without_the_system() {
    with(|meta, board| {
        meta.alloc(board, 4096).unwrap();
        meta.stock(board);
        let mapped = board.level(Level::Mapped);
        assert!(mapped > 1 << 20);
        meta.stock(board);
        for _ in 0..(1 << 20) / Meta::LARGEST {
            meta.alloc(board, Meta::LARGEST).unwrap();
        }
        assert_eq!(board.level(Level::Mapped), mapped);
        // (And what is left of the first chunk, if both are one.)
        for _ in 0..8 {
            meta.alloc(board, Meta::LARGEST).unwrap();
        }
        assert!(board.level(Level::Mapped) > mapped);
    });
}

/// Where its block is.
fn block(sheaf: Sheaf) -> (u64, Sheaf) {
    let len = sheaf.len();
    let word = sheaf.into_word(OBJECTS);
    assert_eq!(word.count() as usize, len);
    (word.objects(), unsafe { Sheaf::from_word(word) }.unwrap())
}

#[test]
fn a_sheaf_has_the_block_that_its_objects_need() {
    with(|meta, board| {
        let sizes =
            [(1, 28), (32, 28), (33, 124), (128, 124), (129, 252), (256, 252), (257, 508), (512, 508), (513, OBJECTS)];
        for (objects, slots) in sizes.into_iter().chain([(OBJECTS, OBJECTS)]) {
            let mut sheaf = Sheaf::new(meta, board, objects).unwrap();
            assert_eq!((sheaf.slots(), sheaf.len(), sheaf.is_empty()), (slots, 0, true));
            for at in 0..slots {
                assert!(sheaf.push(at));
            }
            assert!(!sheaf.push(slots), "{slots} slots are taken");
            assert_eq!((sheaf.len(), sheaf.objects().last()), (slots, Some(&(slots - 1))));
            assert_eq!(sheaf.into_word(OBJECTS).room(), 0);
        }
    });
}

#[test]
fn a_sheaf_moves_to_a_larger_block_only() {
    with(|meta, board| {
        let mut sheaf = Sheaf::new(meta, board, 4).unwrap();
        for at in 1..=28 {
            assert!(sheaf.push(at));
        }
        let (first, sheaf) = block(sheaf);
        let (same, sheaf) = block(sheaf.fitting(meta, board, 32));
        assert_eq!(same, first, "it fits");
        let (larger, mut sheaf) = block(sheaf.fitting(meta, board, 33));
        assert!(larger != first && sheaf.slots() == 124);
        assert!(sheaf.objects().iter().copied().eq(1..=28), "the same objects");
        let (same, _sheaf) = block(sheaf.fitting(meta, board, 4));
        assert_eq!(same, larger, "it is large enough");
        assert_eq!(block(Sheaf::new(meta, board, 4).unwrap()).0, first, "the block that it left is free");
    });
}

/// Without memory for a large block a sheaf begins with a small one, and one that has objects keeps them.
#[test]
fn a_sheaf_does_with_the_block_that_there_is() {
    with(|meta, board| {
        let mut sheaf = Sheaf::new(meta, board, 200).unwrap();
        (1..=200).for_each(|object| assert!(sheaf.push(object)));
        fault::storm(1, 1);
        while Sheaf::new(meta, board, OBJECTS).unwrap().slots() == OBJECTS {}
        let small = Sheaf::new(meta, board, OBJECTS).unwrap();
        let mut same = sheaf.fitting(meta, board, OBJECTS);
        while Sheaf::new(meta, board, 1).is_some() {}
        fault::storm(0, 1);
        assert_eq!((small.slots(), same.slots()), (28, 252));
        assert!(same.objects().iter().copied().eq(1..=200));
    });
}

/// What the board knows of metadata; and mappings.
fn told(board: &Board) -> ([u64; 3], u64) {
    ([Level::Meta, Level::Mapped, Level::Reserved].map(|level| board.level(level)), board.level(Level::Mappings))
}

#[test]
fn metadata_comes_in_chunks_that_double() {
    with(|meta, board| {
        let before = told(board);
        let (mut last, mut chunks, mut bytes) = (0, vec![], 0);
        while chunks.len() < 7 {
            bytes += meta.alloc(board, Meta::LARGEST).map_or(0, |_| Meta::LARGEST as u64);
            let now = told(board).0[0] - before.0[0];
            if now > last {
                chunks.push(now - last);
                last = now;
            }
            // (A chunk need not begin as its largest blocks do.)
            let lost = chunks.len() as u64 * Meta::LARGEST as u64;
            assert!(now >= bytes && now - bytes <= chunks[chunks.len() - 1] + lost, "{now} for {bytes}");
        }
        assert_eq!(chunks, [64, 128, 256, 512, 1024, 1024, 1024].map(|kib| kib << 10));
        let (levels, mappings) = told(board);
        assert_eq!(levels, before.0.map(|level| level + last));
        assert!((1..=7).contains(&(mappings - before.1)), "{mappings}");
    });
}

/// Whatever a limit leaves: what is handed out is there to its last byte, and nobody else's.
#[test]
fn metadata_is_there_where_a_limit_leaves_little() {
    for left in [1, 2, 3, 5, 15, 16, 17, 33, 60] {
        in_a_single_child(|| {
            with(|meta, board| {
                // (First, a chunk that ends anywhere.)
                (0..left % 4).for_each(|_| _ = meta.alloc(board, 4096));
                let pages = fs::read_to_string("/proc/self/statm").unwrap();
                let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
                let limit = |rlim_cur| libc::rlimit { rlim_cur, rlim_max: libc::RLIM_INFINITY };
                let mut blocks = Vec::with_capacity(4096);
                // SAFETY: this process's own limit, twice; blocks of ours.
                unsafe {
                    assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit((pages + left) * 4096)), 0);
                    for round in 0..40 {
                        let bytes = [Meta::LARGEST, 64, Meta::LARGEST, 4096, 2048][round % 5];
                        let Some(block) = meta.alloc(board, bytes) else { continue };
                        block.as_ptr().write_bytes(round as u8 + 1, bytes);
                        blocks.push((block.as_ptr(), bytes, round as u8 + 1));
                    }
                    libc::setrlimit(libc::RLIMIT_AS, &limit(libc::RLIM_INFINITY));
                }
                for (block, bytes, round) in blocks {
                    assert!((block as usize).is_multiple_of(bytes));
                    // SAFETY: as above.
                    let content = unsafe { core::slice::from_raw_parts(block, bytes) };
                    assert!(content.iter().all(|&byte| byte == round), "{left} pages: {bytes} bytes of round {round}");
                }
            });
        });
    }
}

/// Where the system gave not even a page, larger blocks are split before it is asked again, for no more than that.
#[test]
fn without_a_chunk_larger_blocks_are_split() {
    with(|meta, board| {
        let large = meta.alloc(board, Meta::LARGEST).unwrap();
        fault::storm(1, 1);
        while meta.alloc(board, Meta::LARGEST).is_some() {}
        while meta.alloc(board, 4096).is_some() {}
        assert!(meta.is_dry());
        // SAFETY: from there, unused.
        unsafe { meta.free(large, Meta::LARGEST) };
        assert!(!meta.is_dry());
        let asked = fault::wanted();
        let two = [4096; 2].map(|bytes| meta.alloc(board, bytes).unwrap().as_ptr() as usize);
        assert_eq!(two, [0, 4096].map(|at| large.as_ptr() as usize + at));
        assert_eq!(fault::wanted(), asked, "nobody asks for more where there is a larger one");
        assert!(meta.alloc(board, 4096).is_none());
        fault::storm(0, 1);
        let before = told(board).0[0];
        assert!(meta.alloc(board, 64).is_some());
        assert_eq!(told(board).0[0] - before, 4096, "a page, after a refusal");
    });
}

#[test]
fn the_oldest_objects_are_the_first() {
    with(|meta, board| {
        let mut sheaf = Sheaf::new(meta, board, 4).unwrap();
        sheaf.fill(4, |slots| {
            (1..4).for_each(|at| _ = slots[at].write(at));
            3
        });
        assert_eq!(sheaf.objects(), [1, 2, 3]);
        sheaf.forget_oldest(2);
        assert_eq!(sheaf.objects(), [3]);
        // As many of the newest take their place.
        sheaf.clear();
        (1..=7).for_each(|at| assert!(sheaf.push(at)));
        sheaf.forget_oldest(2);
        assert_eq!(sheaf.objects(), [6, 7, 3, 4, 5]);
        sheaf.forget_oldest(3);
        assert_eq!(sheaf.objects(), [4, 5]);
        sheaf.forget_oldest(0);
        assert_eq!(sheaf.objects(), [4, 5]);
        sheaf.forget_oldest(2);
        assert!(sheaf.is_empty());
        sheaf.clear();
        assert!(sheaf.is_empty());
    });
}

/// Its full ones are as many as somebody says, its empty ones as many as a barn has at most; what is beyond is free.
#[test]
fn a_barn_counts_its_sheaves() {
    with(|meta, board| {
        let barn = Barn::new();
        let empty = || Sheaf::new(meta, board, 4).unwrap();
        let full = |objects| {
            let mut sheaf = empty();
            (0..objects).for_each(|at| assert!(sheaf.push(at)));
            sheaf
        };
        let state = || (barn.objects(), barn.empties());
        assert!(barn.put_full(full(3), 2).is_ok() && barn.put_full(full(4), 2).is_ok());
        assert_eq!(state(), (7, 0));
        assert_eq!(barn.put_full(full(5), 2).unwrap_err().len(), 5);
        assert!(
            barn.take_empty_below(2, meta, board, 4).is_none() && barn.take_empty_below(3, meta, board, 4).is_some()
        );
        // The last is the first.
        assert_eq!((barn.take_full().unwrap().len(), state()), (4, (3, 0)));
        assert!(barn.take_empty_below(2, meta, board, 4).is_some());
        assert!(barn.put_full(full(6), 2).is_ok(), "one was taken");
        assert_eq!(barn.trade_empty(empty()).unwrap().len(), 6);
        assert_eq!(state(), (3, 1));
        assert!(barn.trade_full(full(2), 1).is_err());
        assert_eq!((barn.trade_full(full(2), 2).unwrap().map(|sheaf| sheaf.len()), state()), (Some(0), (5, 0)));
        assert!(barn.trade_full(full(2), 3).unwrap().is_none());
        assert_eq!([7, 5, 3].map(|before| (barn.objects(), barn.take_full().unwrap().len()).0 - before), [0; 3]);
        assert!(barn.take_full().is_none() && barn.trade_empty(empty()).is_err());
        assert_eq!(state(), (0, 0));
        for at in 0..FULL_MAX as usize {
            barn.put_empty(meta, empty());
            assert_eq!(barn.empties(), at + 1);
        }
        let (beyond, sheaf) = block(empty());
        barn.put_empty(meta, sheaf);
        assert_eq!((barn.empties(), block(empty()).0), (FULL_MAX as usize, beyond), "its block is free");
        let (kept, sheaf) = block(barn.take_empty(meta, board, 4).unwrap());
        assert_eq!(barn.empties(), FULL_MAX as usize - 1);
        barn.put_empty(meta, sheaf);
        assert_eq!((barn.empties(), block(barn.take_empty(meta, board, 4).unwrap()).0), (FULL_MAX as usize, kept));
    });
}

/// Its word leads to the head however many objects it has, and whatever was in the block before: numbers that are lower barriers, say.
#[test]
fn a_word_leads_to_its_block() {
    with(|meta, board| {
        for slots in [28, 124, 252, 508, OBJECTS] {
            let bytes = (slots + 4) * 8;
            // (What was entitled to more once is clean so far.)
            for (dirt, most) in (0..=8_u64).flat_map(|dirt| [(dirt, 0), (dirt, slots)]) {
                let dirty = meta.alloc(board, bytes).unwrap();
                (0..bytes / 8).for_each(|at| unsafe { dirty.cast::<u64>().add(at).write(dirt) });
                unsafe { meta.free(dirty, bytes) };
                let mut sheaf = Sheaf::new(meta, board, slots).unwrap();
                let first = dirty.as_ptr() as u64 + 24;
                for len in 0..=slots {
                    for limit in [0, len, most] {
                        let word = sheaf.into_word(limit);
                        let found = (word.objects(), word.count() as usize, word.room() as usize);
                        assert_eq!(found, (first, len, limit.saturating_sub(len)), "{dirt}, {limit} of {slots}");
                        assert_eq!([false, true].map(|room| word.serves(room)), [len > 0, limit > len]);
                        sheaf = unsafe { Sheaf::from_word(word) }.unwrap();
                    }
                    assert!(sheaf.objects().iter().copied().eq((1..=len).map(|at| at << 4)));
                    assert_eq!(sheaf.push((len + 1) << 4), len < slots);
                }
            }
        }
    });
}

/// What was a sheaf's block is one of that size for ever: nobody else is given it, nor a larger sheaf.
#[test]
fn a_sheafs_block_is_never_anything_else() {
    with(|meta, board| {
        let sheaves: Vec<_> = (0..40).map(|_| block(Sheaf::new(meta, board, 4).unwrap())).collect();
        let words: Vec<_> = sheaves.into_iter().map(|(at, sheaf)| (at, sheaf.into_word(4))).collect();
        for (_, word) in &words {
            unsafe { Sheaf::from_word(*word) }.unwrap().discard(meta);
        }
        let is_one = |at: u64| words.iter().any(|(other, _)| other & !255 == at & !255);
        for bytes in [64, 128, 256, 512, 1024] {
            assert!((0..40).all(|_| !is_one(meta.alloc(board, bytes).unwrap().as_ptr() as u64)), "{bytes}");
        }
        assert!((0..40).all(|_| !is_one(block(Sheaf::new(meta, board, 33).unwrap()).0)));
        // Whoever still looks at one finds where it is, and that it takes four.
        assert!(words.iter().all(|(at, word)| (word.objects(), word.count(), word.room()) == (*at, 0, 4)));
        assert!((0..40).all(|_| is_one(block(Sheaf::new(meta, board, 4).unwrap()).0)));
    });
}
