//! Which indices, which CPUs, and what a set's areas come to.

use crate::cache::cpuset::{CpuSet, Isolated, WINDOW};
use crate::cpu::INDICES;

#[test]
fn a_set_of_indices_is_of_its_window() {
    for from in [0, WINDOW, 3 * WINDOW] {
        let mut set = CpuSet::around(from + 70);
        assert_eq!((set.is_empty(), set.len(), set.iter().count()), (true, 0, 0));
        let some = [0, 1, 63, 64, 200, WINDOW - 1].map(|at| from + at);
        some.iter().for_each(|&index| set.insert(index));
        assert!(set.iter().eq(some) && set.len() == some.len());
        for index in 0..4 * WINDOW {
            assert_eq!(set.covers(index), (from..from + WINDOW).contains(&index), "{index} of {from}");
            assert_eq!(set.contains(index), some.contains(&index), "{index} of {from}");
        }
        set.remove(from + 64);
        set.remove(from + 65);
        assert!(set.iter().eq(some.into_iter().filter(|&index| index != from + 64)));
        assert!(set.none().is_empty() && set.none().covers(from));
        let mut asked = Vec::new();
        set.retain(|index| {
            asked.push(index);
            index % 2 == 0
        });
        assert!(asked.iter().copied().eq(some.into_iter().filter(|&index| index != from + 64)));
        assert!(set.iter().eq(asked.into_iter().filter(|index| index % 2 == 0)));
    }
    assert!(CpuSet::windows(2 * WINDOW + 1).eq([0, WINDOW, 2 * WINDOW]));
}

#[test]
fn isolated_cpus_are_those_that_can_be() {
    let isolated = Isolated::new();
    assert!(isolated.is_empty());
    isolated.insert(INDICES);
    isolated.insert(usize::MAX);
    assert!(isolated.is_empty());
    isolated.insert(INDICES - 1);
    isolated.insert(65);
    assert!(!isolated.is_empty());
    let all: Vec<_> = (0..=INDICES as u32 + 1).filter(|&cpu| isolated.contains(cpu)).collect();
    assert_eq!(all, [65, INDICES as u32 - 1]);
    assert!(!isolated.contains(u32::MAX));
}
