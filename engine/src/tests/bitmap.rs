//! The bitmaps of a chunk against linear scans.
#![allow(clippy::unwrap_used)]

extern crate std;
use crate::percpu::bitmap::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const WORDS: usize = 12;
const BITS: u32 = WORDS as u32 * WORD_BITS;

/// Words from runs of free and allocated granules in turn.
fn build(lengths: &[u32]) -> (Vec<MapWord>, Vec<bool>) {
    let mut naive = vec![false; BITS as usize];
    let mut at = 0;
    for (turn, length) in lengths.iter().enumerate() {
        for bit in naive.iter_mut().skip(at).take(*length as usize) {
            *bit = turn % 2 == 1;
        }
        at += *length as usize;
    }
    let mut words = vec![MapWord::FREE; WORDS];
    words.push(MapWord::END);
    for (bit, _) in naive.iter().enumerate().filter(|(_, taken)| **taken) {
        words[bit / 64].alloc |= 1 << (bit % 64);
    }
    (words, naive)
}
fn fits(naive: &[bool], start: u32, n: u32) -> bool {
    start + n <= BITS && naive[start as usize..(start + n) as usize].iter().all(|taken| !taken)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn looks_find_what_a_linear_scan_finds(
        lengths in proptest::collection::vec(prop_oneof![1_u32..6, 1_u32..80, 1_u32..300], 1..120),
        n in prop_oneof![1_u32..5, 1_u32..70, 1_u32..400],
        log in 0_u32..8,
        from in 0..WORDS as u32,
    ) {
        let (words, naive) = build(&lengths);
        let mask = (1 << log) - 1;
        let expect = (from * WORD_BITS..BITS).find(|&start| start & mask == 0 && fits(&naive, start, n));
        let mut at = from;
        let mut found = None;
        while at < WORDS as u32 {
            match look(&words, at, n, mask) {
                Ok(start) => { found = Some(start); break }
                Err(next) => { prop_assert!(next > at); at = next }
            }
        }
        prop_assert_eq!(found, expect);
    }

    #[test]
    fn longest_is_longest(
        lengths in proptest::collection::vec(prop_oneof![1_u32..6, 1_u32..80, 1_u32..300], 1..120),
        at in 0..WORDS as u32,
        enough in prop_oneof![Just(100_u32), Just(255), Just(2000)],
    ) {
        let (words, naive) = build(&lengths);
        let length = |start: u32| (start..BITS).take_while(|&bit| !naive[bit as usize]).count() as u32;
        let expect = (at * WORD_BITS..(at + 1) * WORD_BITS).map(length).max().unwrap();
        let found = longest(&words, at, enough);
        prop_assert!(found == expect || (found > enough && expect > enough), "{} {}", found, expect);
    }

    #[test]
    fn set_end_clear_around(
        lengths in proptest::collection::vec(prop_oneof![1_u32..6, 1_u32..80, 1_u32..300], 1..120),
        n in prop_oneof![1_u32..5, 1_u32..70, 1_u32..400],
    ) {
        let (mut words, naive) = build(&lengths);
        let stale = 0x9249_2492_4924_9249;
        words.iter_mut().for_each(|word| word.bound = stale);
        let Some(start) = (0..BITS).find(|&start| fits(&naive, start, n)) else { return Ok(()) };
        let before = words.clone();
        set(&mut words, start, n);
        prop_assert_eq!(end(&words, start), start + n);
        for bit in 0..BITS {
            let now = words[(bit / 64) as usize].alloc >> (bit % 64) & 1 == 1;
            prop_assert_eq!(now, naive[bit as usize] || (start..start + n).contains(&bit));
            let bound = words[(bit / 64) as usize].bound >> (bit % 64) & 1 == 1;
            let expect = if (start..start + n).contains(&bit) { bit == start } else {
                bit == start + n || stale >> (bit % 64) & 1 == 1
            };
            prop_assert_eq!(bound, expect);
        }
        clear(&mut words, start, start + n);
        for (now, before) in words.iter().zip(&before) {
            prop_assert_eq!(now.alloc, before.alloc);
        }
        let (from, to) = (free_from(&words, start, 0), free_to(&words, start + n));
        let begin = (0..start).rev().find(|&bit| naive[bit as usize]).map_or(0, |bit| bit + 1);
        let end = (start + n..BITS).find(|&bit| naive[bit as usize]).unwrap_or(BITS);
        prop_assert!(from == begin || (from > begin && start - from >= FAR), "{} {}", from, begin);
        prop_assert!(to == end || (to < end && to - start - n >= FAR), "{} {}", to, end);
    }
}

/// Every range of a few words in which something is taken here and there.
#[test]
fn a_range_is_free_if_a_linear_scan_says_so() {
    for lengths in
        [&[700_u32][..], &[60, 3, 130, 1, 300], &[64, 64, 64, 64, 192, 1], &[1, 1, 128, 62, 128, 2], &[0, 64]]
    {
        let (words, naive) = build(lengths);
        for start in (0..200).chain([BITS - 130, BITS - 65, BITS - 64, BITS - 1]) {
            for n in (1..=BITS - start).filter(|&n| n < 200 || n % 61 == 0) {
                let expect = naive[start as usize..(start + n) as usize].iter().all(|taken| !taken);
                assert_eq!(is_free(&words, start, n), expect, "{n} at {start} of {lengths:?}");
            }
        }
    }
}
