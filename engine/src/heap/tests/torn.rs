//! A child that was forked past all handlers while another thread was inside.

use super::*;
use crate::arch::gate::Inside;
use crate::arch::tests::status_of_a_child;
use crate::page::{Error, Flags, ORDERS};
use std::sync::mpsc;

/// A child of such a heap, for which somebody is inside.
fn torn(heap: &'static Heap<Test>, body: impl FnOnce()) {
    heap.cache.sets.watch();
    assert!(heap.cache.sets.is_watched());
    let (comes, came) = mpsc::channel();
    let (leave, leaves) = mpsc::channel();
    threads::scope(|scope| {
        scope.spawn(move || {
            let inside: Option<Inside<'_>> = heap.gate.enter();
            comes.send(inside.is_some()).unwrap();
            leaves.recv().unwrap();
        });
        assert!(came.recv().unwrap());
        let status = status_of_a_child(|| {
            // SAFETY: ends the child if it waits for ever.
            unsafe { libc::alarm(20) };
            body();
        });
        leave.send(()).unwrap();
        assert_eq!(status, 0);
    });
}

/// It lives on the side arena; what is inside is neither had, nor given back, nor waited for.
#[test]
fn a_torn_child_waits_for_nothing() {
    static HEAPS: [Heap<Test>; 2] = [const { Heap::new() }; 2];
    for (heap, mode) in HEAPS.iter().zip([Mode::Simulated, Mode::Fallback]) {
        assert!(open(heap, mode));
        let area = heap.area_alloc(5 << 20, PAGE, false).unwrap();
        let (block, other) = (heap.pages_alloc(2, None, Flags::NONE), heap.pages_alloc(5, Some(0), Flags::NONE));
        let (block, other) = (block.unwrap(), other.unwrap());
        let object = heap.malloc(100);
        torn(heap, || {
            let fresh = heap.malloc(100);
            assert!(!fresh.is_null() && heap.cache.sets.event(Event::AllocAside) == 1);
            for guard in [false, true] {
                assert_eq!(heap.area_alloc(1 << 20, PAGE, guard), None);
            }
            unsafe {
                assert_eq!((heap.area_size(area), heap.area_free(area)), (Some(5 << 20), Ok(())));
                assert_eq!(heap.area_free(area + PAGE), Err(BadPointer::Interior));
            }
            for (order, node) in [(0, None), (0, Some(0)), (10, None)] {
                assert_eq!(heap.pages_alloc(order, node, Flags::NONE), Err(Error::Exhausted));
                assert_eq!(heap.pages_alloc_bulk(order, node, Flags::NONE, &mut [0; 4]), 0);
            }
            unsafe {
                assert_eq!((heap.pages_free(block), heap.pages_free(block)), (Ok(()), Err(BadPointer::Double)));
                assert_eq!(heap.pages_free(other + PAGE), Err(BadPointer::Interior));
                assert_eq!(
                    heap.pages_free_bulk(&[object as usize, other]),
                    Err((object as usize, BadPointer::Foreign))
                );
                assert_eq!(heap.pages_free_bulk(&[other]), Err((other, BadPointer::Double)));
            }
            assert_eq!((heap.buddyinfo(), heap.zone_stats(0).is_none()), ([0; ORDERS], true));
            let report = heap.drain(DrainTarget::All, DrainMode::Expedited);
            assert_eq!((report.reached, heap.trim(), heap.purge(), heap.park()), (0, 0, 0, false));
            heap.apply_profile();
            heap.confine();
            unsafe { [fresh, object].into_iter().for_each(|object| heap.free(object)) };
            assert!(heap.gate.is_torn());
        });
        assert!(!heap.gate.is_torn());
        unsafe {
            assert_eq!((heap.area_free(area), heap.pages_free_bulk(&[block, other])), (Ok(()), Ok(())));
            heap.free(object);
        }
        assert_empty(heap);
    }
}
