//! What the sets' source says of each class.

use super::*;
use crate::arch::atomic::Ordering::SeqCst;
use crate::cache::front;
use crate::reclaim::tests::{MIB, Rig};
use crate::stat::Level;

#[test]
fn classes_are_sizes_then_orders_then_areas() {
    for (class, &size) in SIZES.iter().enumerate() {
        assert_eq!(bytes_of(class), size as usize);
    }
    let orders: [usize; LISTED.len()] = core::array::from_fn(|order| bytes_of(CLASSES + order));
    assert_eq!(orders, LISTED.map(|order| PAGE * (1 << order)));
    assert_eq!(orders[0], PAGE);
}

#[test]
fn a_sheaf_has_as_many_bytes_as_what_is_in_it() {
    let rig = Rig::new(1, 1);
    let source = rig.mm().everything();
    let mut sheaf = Sheaf::new(&rig.heap.cache.meta, rig.heap.cache.sets.board(), 8).unwrap();
    for class in 1..ALL_CLASSES {
        assert_eq!((source.size(class), source.bytes(class, &mut sheaf)), (bytes_of(class), 0), "{class}");
        source.fill(class, &mut sheaf, 3);
        // (Of blocks as large as a huge page it takes fewer.)
        assert!((1..=3).contains(&sheaf.len()));
        assert_eq!(source.bytes(class, &mut sheaf), sheaf.len() * bytes_of(class), "{class}");
        // Objects that are out of slabs, bytes that are out of zones.
        let out = || match class {
            ..CLASSES => rig.heap.cache.sets.taken(class),
            _ => rig.level(Level::PagesManaged) - rig.level(Level::PagesFree),
        };
        let filled = out();
        source.flush(class, &mut sheaf);
        let before = out();
        assert!(sheaf.is_empty() && before < filled, "{class}");
        let one = source.take(class).unwrap();
        assert!(out() > before);
        source.give(class, one);
        assert_eq!(out(), before, "{class}");
    }
    // Areas: each its own; what is none of a CPU's has no bytes there.
    assert_eq!((source.size(FIRST_FRONT), source.take(FIRST_FRONT)), (0, None));
    let area = rig.heap.vmap().alloc(MIB, PAGE).unwrap().address;
    assert!(sheaf.push(area));
    assert_eq!(source.bytes(FIRST_FRONT, &mut sheaf), 0);
    sheaf.clear();
    sheaf.discard(&rig.heap.cache.meta);
    rig.verify();
}

#[test]
fn the_areas_of_a_cpus_front_have_their_bytes() {
    let rig = Rig::new(1, 1);
    let source = rig.mm().everything();
    let mut sheaf = Sheaf::new(&rig.heap.cache.meta, rig.heap.cache.sets.board(), 8).unwrap();
    let area = rig.heap.malloc(64 << 10);
    // SAFETY: our own.
    #[allow(unsafe_code)]
    unsafe {
        rig.heap.free(area);
    }
    assert!(rig.heap.cache.sets.holds_areas(0) && sheaf.push(area as usize));
    let class = front::holds(16);
    assert_eq!([class, class - 1].map(|class| source.bytes(class, &mut sheaf)), [64 << 10, 0]);
    // It goes among the others; the front, which has it still, finds that it is gone.
    source.flush(class, &mut sheaf);
    assert_eq!((sheaf.len(), rig.heap.vmap().front_bytes(area as usize, class)), (0, 0));
    sheaf.discard(&rig.heap.cache.meta);
}

#[test]
fn somebody_waits_while_what_was_asked_is_not_answered() {
    let rig = Rig::new(1, 1);
    let (mm, mailbox) = (rig.mm(), &rig.heap.cache.sets.board().mailbox);
    assert!(!mm.is_asked() && !mm.is_watched());
    mailbox.asked.store(7, SeqCst);
    assert!(mm.is_asked() && !mm.is_watched(), "nobody sees it");
    mailbox.answered.store(7, Relaxed);
    assert!(!mm.is_asked());
}

#[test]
fn an_object_is_near_where_its_node_runs() {
    use crate::reclaim::tests::HERE;
    let rig = Rig::new(2, 2);
    let objects = [0, 1].map(|cpu| {
        HERE.set(cpu);
        rig.heap.malloc(100) as usize
    });
    for cpu in [0, 1] {
        HERE.set(cpu);
        assert_eq!(objects.map(|object| rig.mm().everything().is_near(object)), [cpu == 0, cpu == 1]);
    }
    assert!(std::format!("{:?}", rig.mm()).contains("reclaim"));
}
