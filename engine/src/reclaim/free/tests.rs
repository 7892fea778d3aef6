//! Large frees: what goes at once, who is called for the rest, and how many of them there are.

use super::*;
use crate::arch::atomic::Ordering::SeqCst;
use crate::arch::sys::Clock;
use crate::page::windows::WINDOW_PAGES;
use crate::reclaim::tests::{HERE, MIB, Rig, queued};
use crate::stat::Level;

/// Pages of a giant area.
const PAGES: usize = WINDOW_PAGES * 5 / 8;

#[test]
fn an_area_is_gone_when_its_free_returns_from_the_knobs_size_on() {
    let rig = Rig::new(1, 1);
    let (mm, vmap) = (rig.mm(), rig.heap.vmap());
    for (knob, bytes, is_sync) in
        [(0, MIB, false), (MIB, MIB, true), (MIB + 1, MIB, false), (MIB, 2 * MIB, true), (1, 600 * MIB, false)]
    {
        rig.set(Id::SyncFree, knob as u64);
        let at = vmap.alloc(bytes, PAGE).unwrap().address;
        let (lazy, timed) = (rig.level(Level::Lazy), rig.timed(Timing::Free));
        let freed = mm.free_area(at);
        let stays = if is_sync { 0 } else { bytes as u64 };
        assert_eq!(rig.level(Level::Lazy) - lazy, stays, "{knob} {bytes}");
        assert_eq!(rig.timed(Timing::Free) - timed, u64::from(is_sync));
        match freed {
            Freed::Queued(ticket) => {
                // A giant waits for whoever comes.
                assert!(bytes > 512 * MIB && mm.backlog() == bytes);
                mm.give_giant_back(ticket);
                assert_eq!((mm.backlog(), rig.level(Level::Lazy)), (0, lazy));
            }
            freed => assert!(freed != Freed::Not && (freed == Freed::Told || !is_sync)),
        }
        assert_eq!(mm.free_area(at), Freed::Not, "twice");
    }
    rig.verify();
}

/// Calls: whether somebody comes, calls that were told, threads that were started, and workers behind it.
fn called(rig: &Rig, may_start: bool) -> (bool, u32, u32, u32) {
    let workers = &rig.heap.reclaim.workers;
    let (calls, started) = (workers.calls(), rig.workers.load(SeqCst));
    let comes = rig.mm().call_workers(may_start, true);
    (comes, workers.calls() - calls, rig.workers.load(SeqCst) - started, workers.alive())
}

#[test]
fn workers_are_called_where_there_may_be_any_for_as_much_as_pays() {
    const NOBODY: (bool, u32, u32, u32) = (false, 0, 0, 0);
    let rig = Rig::new(1, 1);
    let (workers, keeper) = (&rig.heap.reclaim.workers, &rig.heap.reclaim.keeper);
    let ticket = queued(&rig, PAGES);
    let backlog = rig.heap.areas.backlog() as u64;
    assert_eq!(backlog, PAGES as u64);
    rig.set(Id::MaxActive, 2);
    for threshold in [0, backlog + 1] {
        rig.set(Id::AsyncFreeThreshold, threshold);
        assert_eq!(called(&rig, true), NOBODY, "{threshold}");
    }
    rig.set(Id::AsyncFreeThreshold, backlog);
    assert_eq!(called(&rig, false), (false, 1, 0, 0), "called, and there is none");
    assert_eq!(called(&rig, true), (true, 1, 1, 1));
    assert_eq!(called(&rig, true), (true, 1, 0, 1), "it is there");
    assert_eq!(called(&rig, false), (true, 1, 0, 1));
    workers.unclaim();
    rig.gives_threads.store(0, SeqCst);
    assert_eq!(called(&rig, true), (false, 1, 1, 0), "refused");
    rig.gives_threads.store(1, SeqCst);
    rig.set(Id::IdleSeconds, 0);
    assert_eq!(called(&rig, true), NOBODY);
    rig.set(Id::IdleSeconds, 5);
    keeper.hold(None);
    assert_eq!(called(&rig, true), NOBODY);
    assert!(workers.claim(1) && !rig.mm().start_worker(), "held since it was claimed");
    assert_eq!((workers.alive(), rig.workers.load(SeqCst)), (0, 2));
    keeper.release();
    // One at a time, and that is who frees.
    rig.set(Id::MaxActive, 1);
    rig.set(Id::SyncFree, 1 << 40);
    assert_eq!(called(&rig, true), NOBODY);
    rig.set(Id::SyncFree, 0);
    assert_eq!(called(&rig, true), (true, 1, 1, 1));
    rig.mm().give_giant_back(ticket);
    assert_eq!(rig.heap.areas.backlog(), PAGES, "it is there and does it");
    rig.set(Id::SyncFree, 1);
    rig.set(Id::MaxActive, 2);
    rig.mm().give_giant_back(ticket);
    assert_eq!((rig.heap.areas.backlog(), rig.level(Level::Lazy)), (0, 0), "with who frees, before he returns");
}

#[test]
fn a_giant_that_nobody_is_called_for_goes_at_once() {
    let rig = Rig::new(1, 1);
    let (mm, vmap) = (rig.mm(), rig.heap.vmap());
    rig.set(Id::AsyncFreeThreshold, 1);
    rig.set(Id::MaxActive, 2);
    // What was cut to less than a MiB starts no thread.
    for (bytes, starts) in [(MIB - PAGE, 0), (MIB, 1)] {
        let at = vmap.alloc(PAGES * PAGE, PAGE).unwrap().address;
        assert!(vmap.resize(&vmap.find(at).unwrap(), bytes));
        let Freed::Queued(ticket) = mm.free_area(at) else { panic!("a giant is queued") };
        assert_eq!(ticket.bytes, bytes);
        mm.give_giant_back(ticket);
        assert_eq!((rig.workers.load(SeqCst), rig.heap.areas.is_pending()), (starts, starts == 1));
    }
    vmap.purge(usize::MAX);
    rig.verify();
}

#[test]
fn so_many_may_give_back_at_a_time() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    let crew = |active: u64, sync: u64| {
        rig.set(Id::MaxActive, active);
        rig.set(Id::SyncFree, sync);
        mm.crew()
    };
    let told = mm.allowance(false).threads();
    assert_eq!((crew(0, 0), crew(0, 1)), ((told - 1).max(1), told - 1), "nobody has asked");
    for (nodes, cpus, threads) in [(1, 1, 1), (1, 2, 2), (3, 64, 6)] {
        // (A second is a name of its own there: another heap's.)
        let rig = Rig::new(1, 1);
        rig.heap.reclaim.workers.ask(&Clock::new(), || Allowance { nodes, cpus, quota: None, pressure: 0 });
        for (sync, most) in [(0, (threads - 1).max(1)), (1, threads - 1)] {
            rig.set(Id::SyncFree, sync);
            assert_eq!(rig.mm().crew(), most, "{threads}");
        }
    }
    for active in [1, 2, 5] {
        assert_eq!((crew(active, 0), crew(active, 1)), (active as u32, active as u32 - 1));
    }
}

#[test]
fn where_calls_are_filtered_the_system_is_not_asked() {
    let rig = Rig::new(2, 2);
    for cpu in [0, 1] {
        HERE.set(cpu);
        assert!(!rig.heap.malloc(100).is_null());
    }
    let is = |allowed: Allowance, cpus: u32, quota: Option<u32>| {
        assert_eq!((allowed.nodes, allowed.cpus, allowed.quota), (2, cpus, quota));
        allowed.pressure
    };
    is(rig.mm().allowance(true), sys::cpus_told(), cgroup::cpu_quota());
    assert_eq!(is(rig.mm().allowance(false), sys::cpus_told(), None), 0);
    rig.heap.reclaim.keeper.confine();
    assert_eq!(is(rig.mm().allowance(true), 1, None), 0);
}

/// Runs a worker to its end; it has files of its own.
fn work(rig: &Rig, beside: impl FnOnce()) {
    crate::tests::threads::scope(|scope| {
        scope.spawn(|| rig.mm().work());
        beside();
    });
}

#[test]
fn a_worker_too_many_leaves_and_one_that_is_held_does_nothing() {
    let rig = Rig::new(1, 1);
    let workers = &rig.heap.reclaim.workers;
    queued(&rig, PAGES);
    rig.set(Id::MaxActive, 1);
    rig.set(Id::SyncFree, 1 << 40);
    assert!(workers.claim(1));
    work(&rig, || ());
    assert_eq!((workers.alive(), rig.heap.areas.backlog(), rig.workers.load(SeqCst)), (0, PAGES, 0));
    rig.set(Id::SyncFree, 0);
    rig.heap.reclaim.keeper.hold(None);
    assert!(workers.claim(1));
    work(&rig, || ());
    assert_eq!((workers.alive(), rig.heap.areas.backlog(), rig.workers.load(SeqCst)), (0, PAGES, 0));
    rig.heap.vmap().purge(usize::MAX);
}

#[test]
fn workers_start_others_while_there_is_work_for_each_and_end_without() {
    let rig = Rig::new(1, 1);
    let workers = &rig.heap.reclaim.workers;
    // Three turns' worth.
    queued(&rig, PAGES);
    assert!((2 * TURN + 1..=3 * TURN).contains(&(PAGES * PAGE)));
    rig.set(Id::MaxActive, 3);
    // (All that a turn takes, but for the last.)
    rig.set(Id::AsyncFreeThreshold, 64);
    assert!(workers.claim(1));
    work(&rig, || {
        while rig.heap.areas.is_pending() || rig.level(Level::Lazy) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(workers.alive(), 3, "as many as the knob says: two were started");
        assert!(workers.allowed().is_some(), "it has asked");
    });
    assert_eq!((workers.alive(), rig.workers.load(SeqCst)), (2, 2));
    rig.verify(); // Less than two thresholds' worth is one worker's; then it is held.
    workers.gone();
    queued(&rig, PAGES);
    rig.set(Id::AsyncFreeThreshold, PAGES as u64 / 2 + 1);
    assert!(workers.claim(1));
    work(&rig, || {
        while rig.heap.areas.is_pending() || rig.level(Level::Lazy) > 0 {
            std::thread::yield_now();
        }
        rig.heap.reclaim.keeper.hold(None);
    });
    assert_eq!((workers.alive(), rig.workers.load(SeqCst)), (0, 2));
}
