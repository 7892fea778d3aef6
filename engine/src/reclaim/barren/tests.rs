//! What is news for who looked in vain.

use super::*;
use crate::reclaim::tests::Rig;
use std::collections::BTreeSet;

/// A free by a slow path counts twice; of two such the signature was what it was before, and what they left was not looked for.
#[test]
fn no_two_states_have_one_signature() {
    let rig = Rig::new(1, 1);
    let sets = &rig.heap.cache.sets;
    let mut seen = BTreeSet::from([signature(sets)]);
    for n in 1..=64 {
        for event in [Event::FreeSlowpath, Event::AreaFree, Event::AreaGrow, Event::AreaMove] {
            sets.count(event, 1);
            assert!(seen.insert(signature(sets)), "{event:?} {n}");
        }
        for level in [Level::Lazy, Level::PagesFree, Level::Mapped] {
            sets.shift(level, 4096);
            assert!(seen.insert(signature(sets)), "{} {n}", level.name());
        }
        let object = rig.heap.malloc(100);
        let before = signature(sets);
        // SAFETY: our own.
        #[allow(unsafe_code)]
        unsafe {
            rig.heap.free(object);
        }
        assert_ne!(signature(sets), before, "a free");
    }
}

#[test]
fn what_was_found_is_no_reason_not_to_look() {
    let (rig, barren) = (Rig::new(1, 1), Barren::new());
    let sets = &rig.heap.cache.sets;
    let looks = |bytes: usize, found: Option<u32>| {
        let mut looked = false;
        let got = barren.look(sets, bytes, || {
            looked = true;
            found
        });
        assert_eq!(got, if looked { found } else { None });
        looked
    };
    assert!(looks(100, Some(1)) && looks(100, Some(2)) && looks(100, None));
    assert!(
        !looks(100, Some(1)) && !looks(101, Some(1)) && looks(99, Some(1)) && looks(99, None) && !looks(99, Some(1))
    );
    sets.count(Event::AreaFree, 1);
    assert!(looks(100, None) && looks(99, Some(3)) && !looks(100, Some(3)));
}
