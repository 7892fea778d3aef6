//! What vforks note, and what ends with them.

use super::*;

/// A vfork waits for none, and leaves forks some.
#[test]
fn where_all_notes_are_taken_a_vfork_goes_on() {
    let gate = with(&[OTHER | VFORKS; NOTES / 2]);
    let begun: std::vec::Vec<_> = (0..3)
        .map(|n| {
            assert_eq!((gate.own_vforks(), gate.unnoted.load(Relaxed)), (u32::from(n > 0), n));
            gate.vfork_begin(false)
        })
        .collect();
    gate.fork_begin(|| ());
    gate.fork_end(false, || ());
    for (begun, n) in begun.into_iter().rev().zip([3, 2, 1]) {
        assert_eq!((gate.own_vforks(), gate.unnoted.load(Relaxed)), (1, n));
        assert_eq!(gate.vfork_end(begun), 1);
    }
    assert_eq!((gate.own_vforks(), taken(&gate).len()), (0, NOTES / 2));
}

/// A child that is killed in a vfork of its own ends that with it; but not what it had begun beside it, on another stack, nor
/// what other threads have in flight.
#[test]
fn a_vfork_ends_with_the_one_that_its_child_had_begun() {
    let gate = with(&[OTHER | VFORKS, OTHER | VFORKS]);
    for (apart, inner) in
        [(false, [false, false]), (true, [false, false]), (false, [true, false]), (true, [false, true])]
    {
        let outer = gate.vfork_begin(apart);
        let noted = 1 + inner.iter().filter(|&&apart| !apart).count() as u32;
        let lost: std::vec::Vec<_> = inner.iter().map(|&apart| gate.vfork_begin(apart)).collect();
        assert_eq!((gate.own_notes(VFORKS), gate.unnoted.load(Relaxed)), (noted, 3 - noted), "{apart} {inner:?}");
        // One of the child's own that is over.
        let own = gate.vfork_begin(false);
        assert_eq!((gate.vfork_end(own), gate.vfork_end(outer)), (1, noted));
        assert_eq!((gate.own_notes(VFORKS), gate.unnoted.load(Relaxed)), (0, 3 - noted));
        // The one that goes on, at its end.
        for (begun, apart) in lost.into_iter().zip(inner).rev() {
            assert_eq!(gate.vfork_end(begun), u32::from(apart));
        }
        assert_eq!((gate.own_vforks(), taken(&gate).len()), (0, 2));
    }
    // One without a note, above which its child had one.
    let gate = with(&[OTHER | VFORKS; NOTES / 2]);
    let outer = gate.vfork_begin(false);
    gate.notes[0].store(0, Relaxed);
    let _ = gate.vfork_begin(false);
    assert_eq!((gate.vfork_end(outer), gate.own_vforks()), (2, 0));
    // In the child of a fork that a handler made meanwhile.
    let outer = [gate.vfork_begin(false), gate.vfork_begin(false)];
    gate.inherit();
    assert_eq!((gate.own_vforks(), gate.vfork_end(outer[1]), gate.vfork_end(outer[0])), (1, 1, 1));
}
