//! What is mapped and given back, to the page.
#![allow(clippy::unwrap_used)]

extern crate std;

use super::{free, space};
use crate::arch::{PAGE, sys};
use crate::percpu::chunk::Chunk;
use crate::percpu::memory::{Memory, Pool};
use crate::percpu::space::{How, RESERVED};
use crate::percpu::units::UNIT;
use crate::stat::Mode;
use crate::tests::units::stand;
use std::boxed::Box;
use std::vec::Vec;

/// Bytes of metadata that are mapped the first time, and later.
const AREA: usize = 512 << 10;
const AREA_HUGE: usize = 2 << 20;

/// Whether this process is one of the test's own, where nobody else maps anything; else it has run in one and passed.
fn is_alone(name: &str) -> bool {
    const CHILD: &str = "ALLOTMENT_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let name = std::format!("tests::percpu::memory::{name}");
    let child = std::process::Command::new(program).args([&*name, "--exact"]).env(CHILD, "1").output().unwrap();
    assert!(child.status.success(), "{}", std::string::String::from_utf8_lossy(&child.stdout));
    false
}

/// Bytes of address space that this process has.
fn mapped() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').next().unwrap().parse::<usize>().unwrap() * PAGE
}

#[test]
fn what_is_mapped_to_be_aligned_leaves_nothing_behind() {
    if !is_alone("what_is_mapped_to_be_aligned_leaves_nothing_behind") {
        return;
    }
    let memory = Box::new(Memory::new());
    let before = mapped();
    for round in 0..64 {
        let (len, align) = ((1 + round * 37 % 50) << 22, 1 << 30);
        let at = memory.map_aligned(0, len, align).unwrap();
        assert!(at.is_multiple_of(align));
        // The whole of it is there.
        for page in [at, at + len - PAGE] {
            let mut resident = 0_u8;
            // SAFETY: fills a byte for the one page.
            assert_eq!(unsafe { libc::mincore(page as *mut libc::c_void, PAGE, &raw mut resident) }, 0);
        }
        // SAFETY: ours, and nobody has it.
        assert!(unsafe { sys::unmap(at, len) }.is_ok());
    }
    let left = mapped().saturating_sub(before);
    assert!(left < 64 << 20, "{left} bytes are left");
}

#[test]
fn chunks_go_back_with_all_of_their_units() {
    if !is_alone("chunks_go_back_with_all_of_their_units") {
        return;
    }
    stand(0, 0);
    let space = space(Mode::Simulated, 16).unwrap();
    let alloc = |size| space.alloc(size, 4, How::Normal).unwrap().address();
    alloc(UNIT - RESERVED);
    let round = || {
        let taken: Vec<usize> = (0..8).map(|_| alloc(UNIT)).collect();
        assert_eq!(space.chunk_count(), 9);
        taken.into_iter().for_each(|at| free(space, at));
        assert!(space.chunk_count() <= 3);
    };
    round();
    let before = mapped();
    (0..8).for_each(|_| round());
    let left = mapped().saturating_sub(before);
    // (Of 48 chunks. The test's own heap may have grown.)
    assert!(left < 20 * UNIT, "{left} bytes are left");
}

#[test]
fn metadata_lies_side_by_side_in_a_small_area_and_in_large_ones() {
    let memory: &'static Memory = Box::leak(Box::new(Memory::new()));
    let (mut pool, size) = (Pool::new(), size_of::<Chunk>());
    assert!(!AREA.is_multiple_of(size) && !AREA_HUGE.is_multiple_of(size));
    let all: Vec<usize> = (0..AREA / size + AREA_HUGE / size + 1)
        .map(|_| &raw const *memory.metadata(&mut pool).unwrap() as usize)
        .collect();
    let ends = all.windows(2).zip(1..).filter(|(pair, _)| pair[1] != pair[0] + size).map(|(_, at)| at);
    assert_eq!(ends.collect::<Vec<usize>>(), [AREA / size, AREA / size + AREA_HUGE / size]);
    // A walk finds all, the newest first.
    let walked = || memory.chunks().map(|chunk| &raw const *chunk as usize).collect::<Vec<_>>();
    assert!(walked().iter().eq(all.iter().rev()));
    // What is kept is given before what is untouched, and is found once.
    let newest: Vec<&'static Chunk> = memory.chunks().take(3).collect();
    newest.iter().for_each(|chunk| pool.keep(chunk));
    for chunk in newest.iter().rev() {
        assert!(core::ptr::eq(memory.metadata(&mut pool).unwrap(), *chunk));
    }
    assert!(!all.contains(&(&raw const *memory.metadata(&mut pool).unwrap() as usize)));
    assert_eq!(walked().len(), all.len() + 1);
}
