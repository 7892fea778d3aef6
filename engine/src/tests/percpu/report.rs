//! The numbers of spaces whose every allocation is known.

extern crate std;

use super::ways::{alloc, alloc_how, chunk_of, full_first};
use super::{free, fresh};
use crate::percpu::chunk::{BITS, GRANULE};
use crate::percpu::space::{How, RESERVED, Space};
use crate::percpu::units::UNIT;
use core::fmt::{self, Write};
use std::string::{String, ToString};
use std::vec::Vec;

/// Takes text while nothing of the space is held: whoever writes it may allocate.
struct Watch(&'static Space, String);
impl Write for Watch {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        assert!(self.0.is_unheld());
        assert!(self.0.memory.chunks().all(|chunk| chunk.body.try_lock().is_some()));
        self.1.push_str(text);
        Ok(())
    }
}

/// The totals, and each chunk's tag and numbers.
fn report(space: &'static Space) -> (Vec<usize>, Vec<(String, Vec<usize>)>) {
    let mut watch = Watch(space, String::new());
    assert!(space.report(&mut watch).is_ok());
    let mut parts = watch.1.split("\nChunk:");
    let numbers = |part: &str| {
        part.lines().filter_map(|line| line.rsplit_once(": ")?.1.trim().parse().ok()).collect::<Vec<usize>>()
    };
    let totals = numbers(parts.next().unwrap_or_default());
    let chunks = parts.map(|part| (part.lines().next().unwrap_or_default().trim().to_string(), numbers(part)));
    (totals, chunks.collect())
}

#[test]
fn a_report_has_each_number_of_the_kernels() {
    let space = fresh();
    // In the first chunk: 25 live, 2 free, 2 live, 100 free, 10 live granules, and nothing behind.
    let taken: Vec<usize> = [100, 8, 8, 400, 40].map(|size| alloc(space, size)).into();
    let reserved = alloc_how(space, 512, How::Reserved);
    assert_eq!(taken[0], reserved + RESERVED);
    free(space, taken[1]);
    free(space, taken[3]);
    let tail = UNIT - RESERVED - 139 * GRANULE;
    let (totals, chunks) = report(space);
    let sizes = [UNIT, 0, RESERVED, UNIT - RESERVED, 4096, UNIT];
    assert_eq!(totals, [&sizes[..], &[6, 2, 4, 4, 1, 1, 8, 512, 0]].concat());
    let of_reserved = [1, 512, 0, 128, RESERVED - 512, RESERVED - 512, 0, 0, 512, 512, 512];
    assert_eq!(chunks[0], ("<- Reserved Chunk".to_string(), of_reserved.into()));
    let first = (BITS as usize / 32) + 25;
    let free_bytes = tail + 408;
    let of_first = [3, 512, 0, first, free_bytes, free_bytes, 408, 400, 8, 40, 100];
    assert_eq!(chunks[1], ("<- First Chunk".to_string(), of_first.into()));
    assert_eq!(chunks.len(), 2);
    // The median of four is the second, as in the kernel.
    let whole = alloc(space, 200);
    let (_, chunks) = report(space);
    assert_eq!(chunks[1].1[8..], [8, 40, 200]);
    assert_eq!(chunk_of(whole), chunk_of(reserved));
    space.verify();
}

#[test]
fn a_report_has_each_chunk_that_has_memory() {
    let space = fresh();
    full_first(space);
    let wholes: Vec<usize> = (0..4).map(|_| alloc(space, UNIT)).collect();
    // One goes, one is kept.
    free(space, wholes[1]);
    free(space, wholes[2]);
    let part = alloc(space, 800);
    let (totals, chunks) = report(space);
    // (The fifth was gone before anybody looked.)
    assert_eq!(totals[6..], [6, 2, 4, 4, 4, 5, 800, UNIT, 63]);
    let whole = |largest: usize| [1, largest, 0, BITS as usize, 0, 0, 0, 0, largest, largest, largest].into();
    let none = [0, 0, 0, 0, RESERVED, RESERVED, 0, 0, 0, 0, 0].into();
    let expect: [(&str, Vec<usize>); 5] = [
        ("", whole(UNIT)),
        ("<- claimed", [1, UNIT, 63, 200, UNIT - 800, UNIT - 800, 0, 0, 800, 800, 800].into()),
        ("", whole(UNIT)),
        ("<- Reserved Chunk", none),
        ("<- First Chunk", whole(UNIT - RESERVED)),
    ];
    for (chunk, (tag, mut numbers)) in chunks.iter().zip(expect) {
        if tag.contains("Reserved") {
            numbers[1] = UNIT - RESERVED;
            numbers[3] = 0;
        }
        assert_eq!((&*chunk.0, &chunk.1), (tag, &numbers));
    }
    assert_eq!(chunks.len(), 5);
    free(space, part);
    space.verify();
}

#[test]
fn the_most_that_were_live_stays() {
    let space = fresh();
    let taken: Vec<usize> = (0..100).map(|_| alloc(space, 100)).collect();
    let stats = space.stats();
    assert_eq!((stats.live, stats.live_most, stats.bytes), (100, 100, 10_000));
    taken[..60].iter().for_each(|&at| free(space, at));
    let stats = space.stats();
    assert_eq!((stats.live, stats.live_most, stats.bytes), (40, 100, 4_000));
    assert_eq!((stats.allocs, stats.frees, stats.populated_pages, stats.empty_pages), (100, 60, 3, 1));
}
