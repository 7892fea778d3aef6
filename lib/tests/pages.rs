//! Pages as a Rust program has them, beside the C library's malloc.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use allotment::pages::{self, BadPointer, Error, Flags};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: what is freed twice must not be another's by then.
static TURN: Mutex<()> = Mutex::new(());
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(block: NonNull<u8>) -> usize {
    block.as_ptr() as usize
}

#[test]
fn blocks_of_every_order_are_aligned_disjoint_and_freed_once() {
    let _turn = turn();
    for order in 0..pages::ORDERS {
        let bytes = 4096_usize << order;
        let blocks: Vec<_> = (0..20).map(|_| pages::alloc(order, None, Flags::NONE).unwrap()).collect();
        let unique: BTreeSet<_> = blocks.iter().map(|&block| address(block)).collect();
        assert_eq!(unique.len(), blocks.len());
        for pair in unique.iter().collect::<Vec<_>>().windows(2) {
            assert!(pair[1] - pair[0] >= bytes);
        }
        for &block in &blocks {
            assert!(address(block).is_multiple_of(bytes));
            unsafe { block.as_ptr().add(bytes - 1).write(1) };
        }
        for &block in &blocks {
            unsafe {
                assert_eq!(pages::free(block), Ok(()));
                let again = pages::free(block).unwrap_err();
                assert_eq!((again.address, again.wrong), (address(block), BadPointer::Double));
            }
        }
    }
}

#[test]
fn what_is_no_block_is_refused() {
    let _turn = turn();
    let block = pages::alloc(2, None, Flags::NONE).unwrap();
    let wrong = |at: usize| unsafe { pages::free(NonNull::new(at as *mut u8).unwrap()) }.unwrap_err().wrong;
    assert_eq!(wrong(address(block) + 1), BadPointer::Interior);
    assert_ne!(wrong(address(block) + 4096), BadPointer::Foreign);
    let local = 0_u64;
    assert_eq!(wrong((&raw const local) as usize), BadPointer::Foreign);
    unsafe { pages::free(block) }.unwrap();
    assert_eq!(pages::alloc(11, None, Flags::NONE), Err(Error::Order));
    assert_eq!(pages::alloc(0, Some(100), Flags::NONE), Err(Error::Node));
}

#[test]
fn zeroed_blocks_are_zero_however_dirty_they_were() {
    let _turn = turn();
    for order in [0, 1, 4, 9, 10] {
        for flags in [Flags::NONE, Flags::ZERO, Flags::ZERO, Flags::ZERO | Flags::THIS_NODE] {
            let block = pages::alloc(order, None, flags).unwrap();
            let bytes = unsafe { std::slice::from_raw_parts_mut(block.as_ptr(), 4096 << order) };
            assert!(flags == Flags::NONE || bytes.iter().all(|&byte| byte == 0), "order {order}");
            bytes.fill(0xa5);
            unsafe { pages::free(block) }.unwrap();
        }
    }
}

#[test]
fn bulk_gives_and_takes_and_refuses_the_bad_ones() {
    let _turn = turn();
    let mut blocks = [0; 3000];
    for order in [0, 1, 4, 9] {
        let n = if order == 9 { 40 } else { blocks.len() };
        assert_eq!(pages::alloc_bulk(order, None, Flags::NONE, &mut blocks[..n]), n);
        let unique: BTreeSet<_> = blocks[..n].iter().copied().collect();
        assert_eq!(unique.len(), n);
        let doubled = blocks[n / 2];
        let mut with_bad = blocks[..n].to_vec();
        with_bad.insert(n - 1, doubled);
        with_bad.insert(n - 2, 4096);
        let bad = unsafe { pages::free_bulk(&with_bad) }.unwrap_err();
        assert_eq!((bad.address, bad.wrong), (4096, BadPointer::Foreign));
        let all = unsafe { pages::free_bulk(&blocks[..n]) }.unwrap_err();
        assert_eq!((all.address, all.wrong), (blocks[0], BadPointer::Double), "every one was taken");
    }
}

#[test]
fn threads_pass_blocks_on_and_each_has_its_own() {
    let _turn = turn();
    let (send, receive) = std::sync::mpsc::channel::<(usize, usize)>();
    std::thread::scope(|scope| {
        for thread in 1..=3_usize {
            let send = send.clone();
            scope.spawn(move || {
                for round in 0..5000 {
                    let order = round % 4;
                    let block = pages::alloc(order, None, Flags::NONE).unwrap();
                    unsafe { block.as_ptr().cast::<usize>().write(thread << 32 | round) };
                    send.send((address(block), thread << 32 | round)).unwrap();
                }
            });
        }
        drop(send);
        scope.spawn(move || {
            for (block, stamp) in receive {
                unsafe {
                    assert_eq!((block as *const usize).read(), stamp);
                    pages::free(NonNull::new(block as *mut u8).unwrap()).unwrap();
                }
            }
        });
    });
}

#[test]
fn the_reports_have_the_kernels_form() {
    let _turn = turn();
    let block = pages::alloc(0, None, Flags::NONE).unwrap();
    let (mut buddy, mut zone) = (String::new(), String::new());
    pages::buddyinfo(&mut buddy).unwrap();
    pages::zoneinfo(&mut zone).unwrap();
    let line = buddy.lines().next().unwrap();
    assert!(line.starts_with("Node 0, zone   Normal "), "{line}");
    assert_eq!(line.split_whitespace().count(), 4 + 11, "{line}");
    for word in [
        "  pages free     ",
        "\n        min      ",
        "\n        managed  ",
        "  pagesets\n    cpu: ",
        "              high:     ",
    ] {
        assert!(zone.contains(word), "{word:?} in {zone}");
    }
    assert!(pages::zones().next().unwrap().managed >= 128);
    unsafe { pages::free(block) }.unwrap();
}
