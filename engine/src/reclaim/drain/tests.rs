//! Which sets a drain reaches, whom it asks, and what it says; what a look of the keeper drains.

use super::*;
use crate::cache::cpuset::WINDOW;
use crate::knob::Id;
use crate::page::Flags;
use crate::reclaim::tests::{HERE, MIB, Rig};
use crate::slab::class;
use crate::stat::Level;
use crate::tests::threads;
use std::vec::Vec;

/// A CPU that no machine has.
const NOWHERE: usize = INDICES - 1;
/// Fake CPUs: all that there can be.
const CPUS: usize = INDICES;

/// Runs `body` beside a thread that runs on a CPU, and does `work` there all the time; not where it may not stay.
#[allow(unsafe_code)]
fn beside(work: impl Fn(usize) + Sync, body: impl FnOnce(usize)) {
    struct Done<'a>(&'a AtomicU32);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(1, Relaxed);
        }
    }
    let done = AtomicU32::new(0);
    threads::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let (done, work) = (&done, &work);
        scope.spawn(move || {
            // SAFETY: a mask of ours.
            let stays = unsafe {
                let cpu = usize::try_from(libc::sched_getcpu()).unwrap_or(0);
                let mut cpus: libc::cpu_set_t = core::mem::zeroed();
                libc::CPU_SET(cpu, &mut cpus);
                (libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus) == 0).then_some(cpu)
            };
            tell.send(stays).unwrap();
            while let (Some(cpu), 0) = (stays, done.load(Relaxed)) {
                work(cpu);
            }
        });
        let _done = Done(done);
        if let Ok(Some(cpu)) = told.recv() {
            body(cpu);
        }
    });
}

/// A fake CPU caches objects; how many all of them do.
fn fill(rig: &Rig, cpu: usize) -> u64 {
    HERE.set(cpu);
    let objects: Vec<_> = (0..20).map(|_| rig.heap.malloc(100)).collect();
    // SAFETY: our own.
    #[allow(unsafe_code)]
    objects.into_iter().for_each(|object| unsafe { rig.heap.free(object) });
    cached(rig)
}
fn cached(rig: &Rig) -> u64 {
    (1..ALL_CLASSES).map(|class| rig.heap.cache.sets.cached(class) as u64).sum()
}
fn holds(rig: &Rig, cpu: usize) -> bool {
    rig.heap.cache.sets.list(cpu, class::offset_of(100) / 16).is_some_and(|list| list.0 > 0)
}

#[test]
fn the_threads_are_looked_at_once_for_each_window() {
    assert!(RunningCpus::unknown().contains(NOWHERE as u32) && RunningCpus::unknown().contains(0));
    // What was seen is believed, whoever runs by now.
    let seen = |cpu: usize, known: bool| {
        let mut cpus = CpuSet::around(cpu);
        cpus.insert(cpu);
        RunningCpus { cpus, known, asked: true }
    };
    let last = NOWHERE - 1;
    let mut running = seen(last, true);
    assert!(running.contains(last as u32) && !running.contains(NOWHERE as u32));
    // There is nothing beyond the last window to look at.
    assert!(!running.contains(INDICES as u32) && !running.contains(u32::MAX) && running.contains(last as u32));
    let mut unknown = seen(last, false);
    assert!(unknown.contains(0) && unknown.contains(NOWHERE as u32) && !unknown.known && unknown.cpus.covers(last));
    // Another window is another look.
    assert!(!running.contains((INDICES - 2 * WINDOW) as u32) && running.cpus.covers(INDICES - 2 * WINDOW));
    assert!(running.known && !running.contains(last as u32) && running.cpus.covers(last), "it did not run");
    for first in [INDICES as u32, u32::MAX] {
        let mut running = RunningCpus::new();
        assert!(!running.contains(first) && running.asked && running.known && running.cpus.covers(NOWHERE));
    }
    beside(
        |_| core::hint::spin_loop(),
        |cpu| {
            let mut running = RunningCpus::new();
            assert!(running.contains(cpu as u32) && !running.contains(NOWHERE as u32));
            assert!(running.contains(cpu as u32), "looked at again");
        },
    );
}

#[test]
fn targets_are_all_one_or_those_where_nobody_runs() {
    beside(
        |_| core::hint::spin_loop(),
        |here| {
            let rig = Rig::new(CPUS, 1);
            let mm = rig.mm();
            for (target, left) in [
                (DrainTarget::Cpu(NOWHERE as u32), [true, true, false]),
                (DrainTarget::Cpu(5), [true, true, true]),
                (DrainTarget::Idle, [true, false, false]),
                (DrainTarget::All, [false; 3]),
            ] {
                let cpus = [here, NOWHERE - 1, NOWHERE];
                cpus.iter().for_each(|&cpu| _ = fill(&rig, cpu));
                let (timed, before) = (rig.timed(Timing::Drain), cached(&rig));
                let report = mm.drain(target, DrainMode::Expedited);
                assert_eq!(cpus.map(|cpu| holds(&rig, cpu)), left, "{target:?}");
                assert_eq!((report.unreached, rig.timed(Timing::Drain) - timed), (0, 1));
                assert_eq!(report.objects > 0, left.contains(&false));
                assert!(report.objects <= before);
            }
            assert!(!rig.heap.reclaim.learns(), "the first of them has read what the system says");
            // One that its own thread has left is drained wherever it runs.
            fill(&rig, here);
            assert!(rig.heap.park());
            mm.drain(DrainTarget::Idle, DrainMode::Gentle);
            assert!(!holds(&rig, here));
            assert_eq!(rig.event(Event::DrainMissed), 0);
        },
    );
}

#[test]
fn who_does_not_answer_is_told_and_need_not_any_more() {
    beside(
        |_| core::hint::spin_loop(),
        |here| {
            let rig = Rig::new(CPUS, 1);
            fill(&rig, NOWHERE);
            fill(&rig, here);
            let report = rig.mm().drain(DrainTarget::All, DrainMode::Gentle);
            assert_eq!((report.reached, report.unreached, report.answers, report.fences), (1, 1, 0, 1));
            assert!(holds(&rig, here) && !holds(&rig, NOWHERE) && !rig.heap.cache.sets.withdraw(here));
            assert_eq!((rig.event(Event::DrainMissed), rig.event(Event::Answer)), (1, 0));
            rig.verify();
        },
    );
}

#[test]
fn answers_are_collected_as_they_come() {
    let rig = Rig::new(CPUS, 1);
    // The owner goes on meanwhile: it takes objects until it comes by a slow path, which answers.
    let owner = |here: usize| {
        HERE.set(here);
        let objects: Vec<_> = (0..300).map(|_| rig.heap.malloc(100)).collect();
        // SAFETY: our own.
        #[allow(unsafe_code)]
        objects.into_iter().for_each(|object| unsafe { rig.heap.free(object) });
    };
    beside(owner, |here| {
        HERE.set(NOWHERE);
        // (Who has no CPU does not answer in time, and has nothing before it begins.)
        let (mut asked, mut answers) = (0, 0);
        while asked < 200 {
            let report = rig.mm().drain(DrainTarget::Cpu(here as u32), DrainMode::Gentle);
            let all = report.answers + report.unreached as u64;
            assert!(all <= 1 && report.reached as u64 >= report.answers);
            answers += report.answers;
            asked += all;
            if answers >= 3 {
                assert!(rig.event(Event::Answer) >= 3);
                return;
            }
            if all == 0 {
                std::thread::yield_now();
            }
        }
        panic!("{answers} answers");
    });
    rig.verify();
}

#[test]
fn what_the_system_says_is_read_by_whoever_drains_or_trims_first() {
    let (first, second, confined) = (Rig::new(1, 1), Rig::new(1, 1), Rig::new(1, 1));
    // As of a node that nobody has said anything of, unless this machine has several.
    let order = |rig: &Rig| rig.heap.pages.fallback(0);
    let mut distances = [u8::MAX; NODES];
    let unknown = order(&first);
    let is_known = (topology::distances(0, &mut distances) > 0) && topology::distances(1, &mut distances) > 0;
    first.mm().drain(DrainTarget::All, DrainMode::Auto);
    fill(&second, 0);
    let _ = second.mm().trim();
    assert_eq!(cached(&second), 0);
    assert!(!first.heap.reclaim.learns() && !second.heap.reclaim.learns());
    assert!(is_known || order(&first) == unknown);
    confined.heap.reclaim.keeper.confine();
    confined.mm().learn();
    assert!(confined.heap.reclaim.learns());
    confined.mm().learn();
    assert!(is_known || order(&confined) == unknown);
}

/// The keeper's look: what it does in turn, besides drains.
#[test]
fn a_look_at_a_working_program_keeps_the_limit_and_calls_workers() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    rig.lazy(64, MIB);
    rig.heap.reclaim.set_short(true);
    assert!(mm.is_passed() && mm.give_back(Duty::Usual) == 0 && !mm.is_passed());
    assert_eq!(rig.workers.load(core::sync::atomic::Ordering::SeqCst), 0);
    rig.heap.reclaim.set_short(false);
    // (More than that a slice takes.)
    rig.set(Id::LazyFloor, 1 << 40);
    crate::reclaim::tests::queued(&rig, crate::page::windows::WINDOW_PAGES);
    rig.set(Id::AsyncFreeThreshold, 1);
    rig.set(Id::MaxActive, 2);
    // (A fork that waits ends a purge, and workers go on.)
    rig.heap.gate.fork_begin(|| ());
    mm.give_back(Duty::Usual);
    rig.heap.gate.fork_end(false, || ());
    let called = rig.workers.load(core::sync::atomic::Ordering::SeqCst);
    assert_eq!((called, rig.heap.areas.is_pending()), (1, true));
    rig.heap.vmap().purge(usize::MAX);
}

#[test]
fn a_look_drains_what_is_quiet_and_lets_all_decay() {
    let rig = Rig::new(CPUS, 1);
    let mm = rig.mm();
    HERE.set(0);
    let objects: Vec<_> = (0..3000).map(|_| rig.heap.malloc(100)).collect();
    let limit = |cpu: usize| rig.heap.cache.sets.home_of(cpu).unwrap().limits[class::offset_of(100) / 16].load(Relaxed);
    let full = limit(0);
    let looks = |drains: &[u64]| {
        for &drained in drains {
            let timed = rig.timed(Timing::Drain);
            mm.give_back(Duty::Usual);
            assert_eq!(rig.timed(Timing::Drain) - timed, drained);
        }
    };
    looks(&[0]);
    assert_eq!(limit(0), full - full.div_ceil(8));
    // SAFETY: our own.
    #[allow(unsafe_code)]
    objects.into_iter().for_each(|object| unsafe { rig.heap.free(object) });
    fill(&rig, NOWHERE);
    // (The first sees that something was done. What decays are pages of the CPU that looks.)
    HERE.set(1);
    looks(&[0, 0, 0]);
    assert!(holds(&rig, 0) && holds(&rig, NOWHERE));
    let timed = rig.timed(Timing::Drain);
    mm.give_back(Duty::Usual);
    assert!(!holds(&rig, NOWHERE));
    for _ in 0..2 * QUIET {
        mm.give_back(Duty::Usual);
    }
    assert!(!holds(&rig, 0) && rig.timed(Timing::Drain) >= timed + 2);
    rig.verify();
}

/// A thread that may read where the others run interrupts nobody where it need not; one that may not takes all to run.
#[test]
fn a_gentle_look_drains_where_it_sees_that_nobody_runs() {
    threads::spawn(|| {
        let rig = Rig::new(CPUS, 1);
        rig.set(Id::Drain, 1);
        fill(&rig, NOWHERE);
        rig.mm().give_back(Duty::All);
        assert!(holds(&rig, NOWHERE), "asked, for who knows");
        rig.heap.reclaim.keeper.withdraw();
        rig.mm().give_back(Duty::All);
        assert_eq!(holds(&rig, NOWHERE), !rig.heap.reclaim.keeper.may_read());
        fill(&rig, NOWHERE);
        rig.heap.reclaim.keeper.confine();
        rig.mm().give_back(Duty::All);
        assert!(holds(&rig, NOWHERE), "no drain behind a filter");
    })
    .join()
    .unwrap();
}

#[test]
fn lists_are_flushed_only_of_another_nodes_pages_and_when_they_are_quiet() {
    for nodes in [1, 2] {
        let rig = Rig::new(2, nodes);
        let mm = rig.mm();
        // CPU 0 has pages of CPU 1's node, which is another if there are two.
        HERE.set(1);
        let pages: Vec<_> = (0..4).map(|_| rig.heap.pages_alloc(0, None, Flags::NONE).unwrap()).collect();
        HERE.set(0);
        assert!(!mm.holds_foreign_pages(0) && !mm.holds_foreign_pages(77));
        // SAFETY: our own.
        #[allow(unsafe_code)]
        pages.into_iter().for_each(|page| unsafe { rig.heap.pages_free(page) }.unwrap());
        let held = || rig.heap.cache.sets.list(0, CLASSES).unwrap().0 > 0;
        assert!(held() && mm.holds_foreign_pages(0) == (nodes == 2) && !mm.holds_foreign_pages(1));
        for look in 0..=QUIET {
            assert!(held(), "{nodes} nodes, look {look}");
            // (It works on, but for those.)
            // SAFETY: our own.
            #[allow(unsafe_code)]
            unsafe {
                rig.heap.free(rig.heap.malloc(100));
            }
            mm.give_back(Duty::Usual);
        }
        assert_eq!(held(), nodes == 1);
        rig.verify();
    }
}

#[test]
fn a_look_opens_more_before_somebody_has_to_wait_for_it() {
    let rig = Rig::new(1, 1);
    let zone = &rig.heap.pages.zones[0];
    rig.heap.pages_alloc(4, None, Flags::NONE).unwrap();
    for _ in 0..10_000 {
        if zone.below_low() {
            break;
        }
        rig.heap.pages_alloc(4, None, Flags::NONE).unwrap();
    }
    let (grown, managed) = (rig.event(Event::ZoneGrow), zone.managed());
    assert!(zone.below_low());
    rig.mm().give_back(Duty::Usual);
    assert_eq!((rig.event(Event::ZoneGrow) - grown, zone.managed() > managed), (1, true));
}

#[test]
fn areas_go_when_nobody_asked_for_some_for_three_looks() {
    let rig = Rig::new(1, 1);
    let pair = |bytes: usize| {
        let object = rig.heap.malloc(bytes);
        // SAFETY: our own.
        #[allow(unsafe_code)]
        unsafe {
            rig.heap.free(object);
        }
    };
    pair(64 << 10);
    rig.mm().give_back(Duty::Usual);
    for look in 1..=QUIET {
        assert!(rig.heap.cache.sets.holds_areas(0), "{look}");
        // (It works on with others.)
        pair(100);
        rig.mm().give_back(Duty::Usual);
    }
    assert!(!rig.heap.cache.sets.holds_areas(0));
}

#[test]
fn an_idle_look_leaves_half_and_a_last_one_nothing() {
    let rig = Rig::new(1, 1);
    let mm = rig.mm();
    rig.lazy(40, 8 * MIB);
    let lazy = rig.level(Level::Lazy);
    let gone = mm.give_back(Duty::Fall) as u64;
    assert_eq!((rig.level(Level::Lazy), gone >= lazy / 2), (lazy - gone, true));
    assert!(rig.level(Level::Lazy) > 0);
    // (Barns have some, too.)
    let objects: Vec<_> = (0..4000).map(|_| rig.heap.malloc(3000)).collect();
    // SAFETY: our own.
    #[allow(unsafe_code)]
    objects.into_iter().for_each(|object| unsafe { rig.heap.free(object) });
    rig.set(Id::Drain, 3);
    assert!(rig.level(Level::Barns) > 0);
    mm.give_back(Duty::All);
    assert!(rig.level(Level::Barns) == 0 && cached(&rig) > 0, "no drain");
    rig.set(Id::Drain, 0);
    while mm.give_back(Duty::All) > 0 {}
    assert_eq!((rig.level(Level::Lazy), rig.level(Level::PagesDirty), cached(&rig)), (0, 0, 0));
}
