//! Sets that change places, and who may ask for that; each step by hand.

use super::*;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::outcome::Outcome;
use crate::cache::cpuset::CpuSet;
use crate::cache::layout::Word;
use crate::cache::set::{ASKED, NONE, PARKED, Set, UNFENCED};
use crate::cache::sheaf::FULL_MAX;
use crate::cache::{DrainMode, DrainReport};
use crate::meta::Meta;
use crate::stat::board::FIRST_FRONT;
use crate::tests::units::between;

const CLASS: usize = 2;

fn of(some: &[usize]) -> CpuSet {
    let mut set = CpuSet::around(0);
    some.iter().for_each(|&index| set.insert(index));
    set
}
fn list(set: &CpuSet) -> Vec<usize> {
    set.iter().collect()
}
/// Gives main of this thread's set a sheaf with objects.
fn put(sets: &Sets, objects: usize) {
    let mut sheaf = Sheaf::new(&Meta::new(), sets.board(), 4).unwrap();
    (0..objects).for_each(|object| assert!(sheaf.push(object << 4)));
    assert!(sets.ready().is_some());
    assert_eq!(unsafe { sets.swap(CLASS, false, Word::NONE, sheaf.into_word(4)) }, Outcome::Done(()));
}
/// Objects that are collected at `index`.
fn collected(sets: &Sets, index: usize) -> Option<u64> {
    Some(sets.collect(index, 0)?.as_flattened().iter().map(|word| word.count()).sum())
}
fn home(sets: &Sets, index: usize) -> &Set {
    sets.home_of(index).unwrap()
}
fn slot(sets: &Sets, index: usize) -> usize {
    sets.slots[index].load(Relaxed)
}

#[test]
fn what_takes_the_place_of_a_set_is_entitled_to_the_same() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 4, 2);
    stand(1, 1);
    assert!(sets.home_of(1).is_none() && sets.other_of(1).is_none() && !sets.holds(1));
    put(&sets, 2);
    let first = home(&sets, 1);
    first.limits[CLASS].store(5, Relaxed);
    first.limits[CLASS + 1].store(100, Relaxed);
    first.batches[CLASS].store(7, Relaxed);
    first.batches[FIRST_FRONT + 1].store(3, Relaxed);
    first.entitle_areas(FIRST_FRONT + 1, 2);
    let switched = sets.switch_off(&of(&[0, 1, 2]));
    assert_eq!((list(&switched.done), switched.refused, switched.fences), (vec![1], 0, 1));
    let second = home(&sets, 1);
    assert!(!core::ptr::eq(first, second) && core::ptr::eq(sets.other_of(1).unwrap(), first));
    let numbers = |set: &Set| {
        let limits = [CLASS, CLASS + 1, FIRST_FRONT + 1].map(|class| set.limits[class].load(Relaxed));
        let batches = [CLASS, FIRST_FRONT + 1].map(|class| set.batches[class].load(Relaxed));
        (limits, batches, set.fronts.load(Relaxed), set.mark.load(Relaxed))
    };
    assert_eq!((numbers(first).0, numbers(second)), ([0, 0, 2], ([5, 100, 0], [7, 3], 0, NONE)));
    assert_eq!((second.node.load(Relaxed), sets.event(Event::SetAdopt)), (1, 0));
    put(&sets, 1);
    assert!(core::ptr::eq(sets.ready().unwrap(), second));
    // Not collected yet: what is there comes first.
    let switched = sets.switch_off(&of(&[1]));
    assert_eq!((list(&switched.done), switched.refused, switched.fences), (vec![1], 0, 0));
    assert!(sets.is_answered(1) && core::ptr::eq(home(&sets, 1), second));
    assert_eq!((collected(&sets, 1), collected(&sets, 1)), (Some(2), None));
    // A limit that was raised in the first since is not lost, and none begins anew for being too high.
    first.limits[CLASS].store(4, Relaxed);
    first.limits[CLASS + 1].store(u16::MAX - 99, Relaxed);
    first.mark.store(UNFENCED, Relaxed);
    let switched = sets.switch_off(&of(&[1]));
    assert_eq!((list(&switched.done), switched.refused), (vec![1], 0));
    assert!(core::ptr::eq(home(&sets, 1), first) && core::ptr::eq(sets.other_of(1).unwrap(), second));
    assert_eq!(numbers(first), ([9, u16::MAX, 0], [7, 3], 0, NONE));
    assert_eq!(collected(&sets, 1), Some(1));
}

/// Where there are many nodes a set that a drainer makes is near its owner's.
#[test]
fn a_second_set_is_on_the_node_of_the_first() {
    /// Whether a page prefers a node; none where that cannot be known.
    fn prefers(at: usize) -> Option<bool> {
        const OF_ADDRESS: usize = 2;
        let mut policy = -1_i32;
        let none = core::ptr::null::<u8>();
        let told = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut policy, none, 0_usize, at, OF_ADDRESS) };
        (told == 0).then_some(policy == 1)
    }
    let page = crate::arch::sys::map(0, crate::arch::PAGE, crate::arch::sys::Access::ReadWrite).unwrap();
    crate::arch::sys::bind(page, crate::arch::PAGE, 0);
    if prefers(page) != Some(true) {
        return;
    }
    for nodes in [1, 2] {
        let sets: Box<Sets> = Box::default();
        simulate(&sets, 2, nodes);
        // (Both nodes have been seen.)
        [1, 0].into_iter().for_each(|cpu| (stand(cpu, cpu as u32), assert!(sets.ready().is_some())).1);
        put(&sets, 1);
        assert_eq!(list(&sets.switch_off(&of(&[0])).done), [0]);
        let at = core::ptr::from_ref(home(&sets, 0)) as usize;
        assert_eq!(prefers(at), Some(nodes == 2), "{nodes} nodes");
    }
}

#[test]
fn a_fence_is_for_one_cpu_or_for_all() {
    let sets: Box<Sets> = Box::default();
    let simulation = simulate(&sets, 4, 1);
    let fill = |some: &[usize]| {
        some.iter().for_each(|&index| {
            stand(index, index as u32);
            put(&sets, 1);
        });
    };
    let runs = || [0, 1, 2, 3].map(|cpu| simulation.cpus[cpu].begin());
    let fenced = |wanted: &[usize]| {
        let running = runs();
        let switched = sets.switch_off(&of(wanted));
        assert_eq!((list(&switched.done), switched.refused), (wanted.to_vec(), 0));
        let interrupted = running.map(|running| running.step(|| ()).is_err());
        wanted.iter().for_each(|&index| assert_eq!(collected(&sets, index), Some(1)));
        (switched.fences, interrupted)
    };
    fill(&[1]);
    assert_eq!(fenced(&[1]), (1, [false, true, false, false]));
    fill(&[1, 2]);
    assert_eq!(fenced(&[1, 2]), (1, [true; 4]), "one is cheaper than two");
    sets.isolated.insert(3);
    fill(&[1, 2]);
    assert_eq!(fenced(&[1, 2]), (2, [false, true, true, false]), "an isolated CPU is left alone");
    assert_eq!(sets.event(Event::Fence), 4);
    // A parked one needs none.
    fill(&[2]);
    assert!(sets.park() && slot(&sets, 2) == 0 && sets.is_parked(2));
    assert_eq!((fenced(&[2]), sets.is_parked(2), slot(&sets, 2)), ((0, [false; 4]), false, 0));
    assert_eq!(sets.other_of(2).unwrap().mark.load(Relaxed), NONE);
    // While a fork is in flight nothing is switched.
    fill(&[1]);
    sets.close();
    let switched = sets.switch_off(&of(&[1]));
    assert_eq!((list(&switched.done), switched.refused, switched.fences), (vec![], 1, 0));
    sets.reopen();
    assert_eq!(fenced(&[1]).0, 1);
}

#[test]
fn who_asks_and_who_need_not_answer() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 2, 1);
    assert!(!sets.ask(0) && !sets.withdraw(0), "there is no set");
    assert!(sets.ready().is_some());
    let mark = &home(&sets, 0).mark;
    for (before, asked, after) in [(NONE, true, ASKED), (ASKED, false, ASKED), (PARKED, false, PARKED)] {
        mark.store(before, Relaxed);
        assert_eq!((sets.ask(0), mark.load(Relaxed)), (asked, after), "asked when it was {before}");
    }
    for (before, withdrawn, after) in [(NONE, false, NONE), (ASKED, true, NONE), (PARKED, false, PARKED)] {
        mark.store(before, Relaxed);
        assert_eq!((sets.withdraw(0), mark.load(Relaxed)), (withdrawn, after), "withdrawn when it was {before}");
    }
    unsafe { sets.cpus.open(Mode::Fallback, RseqArea::default(), None) };
    mark.store(NONE, Relaxed);
    assert_eq!((sets.ask(0), mark.load(Relaxed)), (false, NONE), "in the fallback anybody may switch");
}

#[test]
fn an_owner_answers_who_asked() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 4, 1);
    put(&sets, 3);
    let first = home(&sets, 0);
    let unchanged = |mark| {
        core::ptr::eq(home(&sets, 0), first) && sets.event(Event::Answer) == 0 && first.mark.load(Relaxed) == mark
    };
    assert!(!sets.answer(0, first) && unchanged(NONE), "nobody asked");
    first.limits[CLASS].store(9, Relaxed);
    assert!(sets.ask(0));
    sets.close();
    assert!(!sets.answer(0, first) && unchanged(ASKED), "a fork is in flight");
    sets.reopen();
    stand(1, 1);
    assert!(sets.ready().is_some());
    let another = home(&sets, 1);
    another.mark.store(ASKED, Relaxed);
    assert!(!sets.answer(0, another) && unchanged(ASKED), "it is another's");
    another.mark.store(NONE, Relaxed);
    // It moved: what was moved for the other set comes back, and the other set is kept.
    stand(0, 0);
    between(0, || stand(1, 1));
    assert!(!sets.answer(0, first) && unchanged(ASKED));
    let kept = sets.other_of(0).unwrap();
    assert_eq!([first, kept].map(|set| set.limits[CLASS].load(Relaxed)), [9, 0]);
    assert!(!sets.is_answered(0) && slot(&sets, 1) != 0);
    // What was not collected is in the way.
    stand(0, 0);
    kept.pairs[CLASS].spare.store(1, Relaxed);
    assert!(!sets.answer(0, first) && unchanged(ASKED));
    kept.pairs[CLASS].spare.store(0, Relaxed);
    assert!(sets.ready().is_some_and(|set| core::ptr::eq(set, kept)), "a slow path answers");
    assert_eq!(first.mark.load(Relaxed), NONE);
    assert!(core::ptr::eq(home(&sets, 0), kept) && core::ptr::eq(sets.other_of(0).unwrap(), first));
    assert_eq!((sets.event(Event::Answer), sets.event(Event::Fence), collected(&sets, 0)), (1, 0, Some(3)));
    assert!(sets.cpus.try_lock().is_some());
}

#[test]
fn who_parks_gives_up_the_set_that_it_is_on() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 4, 1);
    stand(1, 1);
    assert!(sets.ready().is_some());
    stand(0, 0);
    assert!(sets.ready().is_some());
    // It moves between the look and the switch: then it is the other set's turn.
    between(1, || stand(1, 1));
    assert!(sets.park());
    assert_eq!([0, 1].map(|index| (sets.is_parked(index), slot(&sets, index) == 0)), [(false, false), (true, true)]);
    // A fork comes between the two.
    stand(0, 0);
    assert!(sets.cpus.close(|| ()));
    assert!(!sets.park() && !sets.is_parked(0) && slot(&sets, 0) != 0);
    sets.reopen();
    assert!(sets.is_parked(1) && slot(&sets, 1) == 0, "it stays parked");
    stand(1, 1);
    assert!(sets.ready().is_some() && !sets.is_parked(1));
    unsafe { sets.cpus.open(Mode::Fallback, RseqArea::default(), None) };
    assert!(!sets.park(), "in the fallback there is nothing to park");
}

/// One CPU's caches, full: main, spare and the set's own barn; what they hold.
fn fill(cache: &Cache, bag: &Bag, cpu: usize) -> usize {
    stand(cpu, cpu as u32);
    let before = cache.cached(CLASS);
    let objects: Vec<_> = (0..20).map(|_| cache.alloc(bag, CLASS).unwrap()).collect();
    objects.into_iter().for_each(|object| unsafe { cache.free(bag, CLASS, object) });
    cache.cached(CLASS) - before
}

#[test]
fn a_drain_reports_what_it_took() {
    let (cache, bag) = (caches(4, 1, 4, 1024), Bag::new(1024, 100));
    let sets = &cache.sets;
    let drain = |mode, runs: bool| {
        let mut report = DrainReport::default();
        let mut asked = of(&[0, 1, 2, 3]);
        cache.drain(&bag, &mut asked, mode, &mut |_| runs, &mut report);
        assert_eq!(report.bytes, report.objects * 1024);
        (report, list(&asked))
    };
    assert_eq!((fill(cache, &bag, 0), fill(cache, &bag, 1)), (20, 16));
    assert_eq!(cache.barn(CLASS).objects(), 4);
    let empties = cache.barn(CLASS).empties();
    let (report, asked) = drain(DrainMode::Expedited, true);
    assert_eq!((report.reached, report.unreached, report.objects, report.fences), (2, 0, 32, 1));
    assert!(asked.is_empty() && cache.cached(CLASS) == 4 && bag.len() == 96);
    assert_eq!((sets.event(Event::Drain), cache.barn(CLASS).empties()), (2, empties + 8), "sheaves wait in the barn");
    // What an earlier drain asked for, and what is there since.
    assert_eq!(fill(cache, &bag, 2), 16);
    let (report, asked) = drain(DrainMode::Gentle, true);
    assert_eq!((report, asked), (DrainReport::default(), vec![2]));
    assert!(sets.ready().is_some() && sets.is_answered(2));
    assert_eq!((fill(cache, &bag, 2), sets.is_answered(2)), (16, true));
    let (report, _) = drain(DrainMode::Expedited, true);
    assert_eq!((report.reached, report.objects, report.fences), (2, 32, 1), "{report:?}");
    // Barns alone: those of sets, and the nodes'.
    fill(cache, &bag, 3);
    let (near, all) = (|| sets.near(CLASS).map(|barn| barn.objects()).sum::<usize>(), cache.cached(CLASS));
    assert!(near() > 0);
    cache.empty_barns(&bag, CLASS);
    assert_eq!(cache.cached(CLASS), all, "of other classes");
    cache.empty_barns(&bag, CLASS + 1);
    assert_eq!((near(), cache.barn(CLASS).objects(), cache.cached(CLASS)), (0, 0, 8));
    assert!(cache.barn(CLASS).empties() <= FULL_MAX as usize && bag.len() == 92);
}

/// Who is asked instead of interrupted, by mode: of an isolated CPU and another, where somebody runs.
#[test]
fn a_drain_is_gentle_where_it_is_told() {
    for (mode, wanted) in [(DrainMode::Auto, vec![1]), (DrainMode::Gentle, vec![0, 1]), (DrainMode::Expedited, vec![])]
    {
        let (cache, bag) = (caches(2, 1, 4, 1024), Bag::new(1024, 60));
        cache.sets.isolated.insert(1);
        [0, 1].into_iter().for_each(|cpu| _ = fill(cache, &bag, cpu));
        let mut report = DrainReport::default();
        let mut asked = of(&[0, 1]);
        cache.drain(&bag, &mut asked, mode, &mut |_| true, &mut report);
        assert_eq!((list(&asked), report.reached), (wanted.clone(), 2 - wanted.len()), "{mode:?}");
        // Nobody runs: nobody is interrupted.
        asked = of(&[0, 1]);
        cache.drain(&bag, &mut asked, mode, &mut |_| false, &mut report);
        assert!(asked.is_empty() && report.reached == 2, "{mode:?}");
    }
}

#[test]
fn modes_of_drains_are_numbers_in_requests() {
    for mode in [DrainMode::Auto, DrainMode::Gentle, DrainMode::Expedited] {
        assert_eq!(DrainMode::from_word(mode as u64), Some(mode));
    }
    assert_eq!(DrainMode::from_word(3), None);
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(allotment_other)))]
mod sequences {
    use super::made::{Made, open, stand_as};
    use super::*;

    /// Where the system refuses fences (here: because the process filters its calls), parked sets are drained and others are
    /// not; nor is what was switched off without one.
    #[test]
    fn without_fences_only_parked_sets_are_drained() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        put(&sets, 2);
        sets.cpus.confine();
        let refused = |switched: crate::cache::drain::Switched| {
            assert_eq!((list(&switched.done), switched.refused, switched.fences), (vec![], 1, 0));
        };
        let first = home(&sets, 5);
        refused(sets.switch_off(&of(&[5])));
        assert!(core::ptr::eq(home(&sets, 5), first));
        assert!(sets.park() && sets.is_parked(5));
        let switched = sets.switch_off(&of(&[5]));
        assert_eq!((list(&switched.done), switched.refused, switched.fences), (vec![5], 0, 0));
        first.mark.store(UNFENCED, Relaxed);
        assert_eq!((collected(&sets, 5), first.mark.load(Relaxed)), (None, UNFENCED), "a sequence may still be in it");
        first.mark.store(NONE, Relaxed);
        assert_eq!(collected(&sets, 5), Some(2));
        // It cannot take the other's place before there is a fence.
        put(&sets, 1);
        first.mark.store(UNFENCED, Relaxed);
        assert!(sets.park());
        refused(sets.switch_off(&of(&[5])));
        assert!(sets.is_parked(5) && first.mark.load(Relaxed) == UNFENCED);
        first.mark.store(NONE, Relaxed);
        assert_eq!(list(&sets.switch_off(&of(&[5])).done), [5]);
        assert_eq!(collected(&sets, 5), Some(1));
    }

    unsafe extern "C" {
        static mut __libc_single_threaded: u8;
    }

    /// From now on this thread's fences of CPU 5 are refused; false where that cannot be.
    fn refuse_fences() -> bool {
        let filter = |code: u32, yes, no, k| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
        let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        let (equal, give) = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::BPF_RET | libc::BPF_K);
        let mut filters = [
            // The call, and the low half of its third argument.
            filter(load, 0, 0, 0),
            filter(equal, 0, 3, libc::SYS_membarrier as u32),
            filter(load, 0, 0, 32),
            filter(equal, 0, 1, 5),
            filter(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            filter(give, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filters.len() as u16, filter: filters.as_mut_ptr() };
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        }
    }

    /// What was switched off and could not be fenced is not done: a sequence may still commit there.
    #[test]
    fn what_a_fence_was_refused_for_waits() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        put(&sets, 2);
        let first = home(&sets, 5);
        let wrong = crate::cache::sets::tests::alone(|| {
            // (Who is alone needs no fences.)
            unsafe { __libc_single_threaded = 0 };
            if !refuse_fences() || sets.cpus.fence_cpu(5) {
                return 0;
            }
            let all = i32::from(!sets.cpus.fence_all());
            let switched = sets.switch_off(&of(&[5]));
            all + 16 * i32::from(!switched.done.is_empty())
                + 2 * i32::from((switched.refused, switched.fences) != (1, 1))
                + 4 * i32::from(first.mark.load(Relaxed) != UNFENCED || core::ptr::eq(home(&sets, 5), first))
                // (All CPUs' fence is not refused.)
                + 8 * i32::from(collected(&sets, 5) != Some(2) || first.mark.load(Relaxed) != NONE)
        });
        assert_eq!(wrong, 0);
    }

    #[test]
    fn with_fences_what_had_none_is_collected() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        put(&sets, 2);
        let first = home(&sets, 5);
        let switched = sets.switch_off(&of(&[5]));
        assert_eq!((list(&switched.done), switched.refused, switched.fences), (vec![5], 0, 1));
        first.mark.store(UNFENCED, Relaxed);
        assert_eq!((collected(&sets, 5), first.mark.load(Relaxed)), (Some(2), NONE));
    }

    /// By sequences, an owner answers and parks on its own CPU alone.
    #[test]
    fn owners_switch_by_sequences() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        put(&sets, 2);
        let first = home(&sets, 5);
        assert!(sets.ask(5));
        let stranger = Made::new(4, 6);
        stand_as(&sets, &stranger);
        assert!(!sets.answer(5, first) && core::ptr::eq(home(&sets, 5), first));
        let owner = Made::new(3, 5);
        stand_as(&sets, &owner);
        assert!(sets.ready().is_some_and(|set| !core::ptr::eq(set, first)), "it answers");
        assert_eq!([Event::SetAdopt, Event::Answer].map(|event| sets.event(event)), [0, 1]);
        assert_eq!(collected(&sets, 5), Some(2));
        assert!(sets.park() && sets.is_parked(5) && slot(&sets, 5) == 0);
    }
}
