//! The tree of free runs against a plain list, and areas that grow, shrink and move.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use super::tree::Tree;
use crate::page::{Paging, Pfn, Regions};
use crate::stat::Board;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

fn board() -> &'static Board {
    std::boxed::Box::leak(unsafe { std::boxed::Box::<Board>::new_zeroed().assume_init() })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every take is the lowest that the list would give, and the runs stay the same.
    #[test]
    fn tree_matches_a_list(ops in prop::collection::vec((1..60_usize, 0..4_u32, any::<usize>()), 1..200)) {
        static REGIONS: std::sync::OnceLock<(std::boxed::Box<Regions>, Pfn)> = std::sync::OnceLock::new();
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN.lock();
        let (regions, first) = REGIONS.get_or_init(|| {
            let regions = unsafe { std::boxed::Box::<Regions>::new_zeroed().assume_init() };
            let (first, _) = regions.reserve(board(), Paging::Small, 1, 0).unwrap();
            (regions, first)
        });
        let total = 1000;
        let mut tree = Tree::new();
        let mut free: BTreeMap<u32, usize> = BTreeMap::new();
        tree.insert(regions, *first, total);
        free.insert(first.0, total);
        let mut taken: Vec<(Pfn, usize)> = Vec::new();
        for (pages, shift, which) in ops {
            let align = 1 << shift;
            if which % 5 < 3 {
                let expected = free.iter().find(|(_, len)| **len >= pages + align - 1).map(|(&at, &len)| (at, len));
                let got = tree.take(regions, pages, align);
                prop_assert_eq!(got.is_some(), expected.is_some());
                if let (Some(got), Some((at, len))) = (got, expected) {
                    let start = at.next_multiple_of(align as u32);
                    prop_assert_eq!(got.0, start);
                    free.remove(&at);
                    if start > at {
                        free.insert(at, (start - at) as usize);
                    }
                    let end = start + pages as u32;
                    if at + len as u32 > end {
                        free.insert(end, (at + len as u32 - end) as usize);
                    }
                    taken.push((got, pages));
                }
            } else if !taken.is_empty() {
                let (at, pages) = taken.swap_remove(which / 5 % taken.len());
                tree.insert(regions, at, pages);
                let (mut start, mut len) = (at.0, pages);
                if let Some((&before, &n)) = free.range(..start).next_back() && before + n as u32 == start {
                    free.remove(&before);
                    start = before;
                    len += n;
                }
                if let Some(n) = free.remove(&(start + len as u32)) {
                    len += n;
                }
                free.insert(start, len);
            }
            let mut runs = BTreeMap::new();
            tree.verify(regions, &mut |at, pages| { runs.insert(at.0, pages); });
            prop_assert_eq!(&runs, &free);
        }
    }
}
