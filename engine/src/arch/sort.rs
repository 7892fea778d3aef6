//! # Sorting on a small stack
//!
//! The core library's unstable sort takes a kilobyte of stack at each of its levels, which a thread of
//! `PTHREAD_STACK_MIN` has not. What is sorted here are a few dozen addresses: Shell's sort, in place.
//! Cost: about n^1.3 comparisons.

/// Distances that serve up to a few hundred items well (Ciura).
const GAPS: [usize; 6] = [132, 57, 23, 10, 4, 1];

/// Sorts a few items.
pub fn sort<T: Ord + Copy>(items: &mut [T]) {
    for gap in GAPS {
        for end in gap..items.len() {
            let item = items[end];
            let mut at = end;
            while at >= gap && items[at - gap] > item {
                items[at] = items[at - gap];
                at -= gap;
            }
            items[at] = item;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sort;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorts(mut items in prop::collection::vec(any::<(u8, u64)>(), 0..300)) {
            let mut wanted = items.clone();
            wanted.sort_unstable();
            sort(&mut items);
            prop_assert_eq!(items, wanted);
        }
    }
}
