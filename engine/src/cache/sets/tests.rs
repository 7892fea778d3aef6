//! The sets of indices and the switch, in each mode that needs no luck: fake CPUs, and an rseq area that the test made.
#![cfg(not(allotment_models))] // (The models compile the engine's files over a machine of their own.)
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)] // numbers for objects, and memory of the tests' own

use super::room::{FIRST, Room, map_there};
use super::*;
use crate::arch::atomic::AtomicU32;
use crate::arch::sys::{self, Access};
use crate::cache::cpuset::CpuSet;
use crate::cache::tests::simulate;
use crate::stat::Level;
use crate::tests::units::stand;

/// Sets in memory for few, which grows.
fn roomy(sets: &Sets, cpus: usize) {
    simulate(sets, cpus, 2);
    let room = (0x1a00..).find_map(|slot| Room::at(slot << 30)).unwrap();
    unsafe { sets.open(room.base, Mode::Simulated, RseqArea::default(), None) };
    sets.roomy(room);
}
/// This thread's set of an index, on the CPU of that number.
fn ready(sets: &Sets, index: usize) -> &Set {
    stand(index, index as u32);
    sets.ready().unwrap()
}
/// A sheaf with such objects.
fn sheaf(sets: &Sets, objects: &[usize]) -> Word {
    let mut sheaf = Sheaf::new(&Meta::new(), sets.board(), 8).unwrap();
    objects.iter().for_each(|&object| assert!(sheaf.push(object)));
    sheaf.into_word(8)
}

/// Addresses of this process, in pages. (In a child that is alone, nobody else changes them.)
pub(in crate::cache) fn pages() -> usize {
    let mut text = [0; 64];
    let text = sys::slurp(c"/proc/self/statm", &mut text).unwrap_or_default();
    text.iter().take_while(|digit| digit.is_ascii_digit()).fold(0, |n, digit| n * 10 + usize::from(digit - b'0'))
}

/// What a forked child that has no other thread says, and does not panic.
pub(in crate::cache) fn alone(body: impl FnOnce() -> i32) -> i32 {
    /// (What unwinds would end a thread, and with the last of them the process, as if all were well.)
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            unsafe { libc::_exit(255) };
        }
    }
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let _ends = Ends;
            libc::_exit(body());
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -status }
    }
}

#[test]
fn room_is_for_few_at_first() {
    let room = Room::new().unwrap();
    assert_eq!(room.bytes, FIRST * PAGE + BOARD_BYTES + FIRST * TALLY_BYTES, "{room:?}");
    assert!(room.base.is_multiple_of(2 * TALLY) && room.mapped == FIRST);
    assert!(Room::at(room.base).is_none(), "it is taken");
    let last = room.base + SETS_MAX * PAGE + BOARD_BYTES + FIRST * TALLY_BYTES - 8;
    for at in [room.base, room.base + FIRST * PAGE - 8, room.base + SETS_MAX * PAGE, last] {
        unsafe { *(at as *mut u64) += 1 };
    }
    let whole = Room::whole().unwrap();
    assert!(whole.base.is_multiple_of(2 * TALLY) && (whole.bytes, whole.mapped) == (BYTES, 0));
    let trimmed = alone(|| {
        let before = pages();
        let (first, second) = (Room::whole().unwrap(), Room::whole().unwrap());
        i32::from(pages() != before + 2 * BYTES / PAGE) + 2 * i32::from(first.base.abs_diff(second.base) < BYTES)
    });
    assert_eq!(trimmed, 0, "as many addresses as it says");
    // What came elsewhere than it was asked for is not kept.
    let leaked = alone(|| {
        let before = pages();
        let (mapped, taken) = (map_there(room.base, 64 * PAGE), Room::at(room.base).is_some());
        i32::from(before == 0) + 2 * i32::from(pages() != before) + 4 * i32::from(mapped || taken)
    });
    assert_eq!(leaked, 0);
    // (Nor are the sets where there is no room for the board.)
    let leaked = alone(|| {
        let base = room.base + (1 << 30);
        let _ = unsafe { sys::map_over(base + SETS_MAX * PAGE, PAGE, Access::ReadWrite) };
        let before = pages();
        i32::from(Room::at(base).is_some()) + 2 * i32::from(pages() != before)
    });
    assert_eq!(leaked, 0);
}

/// Sets are mapped before a drain needs them, twice as many each time.
#[test]
fn sets_are_mapped_ahead() {
    let sets: Box<Sets> = Box::default();
    roomy(&sets, 40);
    let mut reserved = 0;
    for index in 0..40 {
        let set = ready(&sets, index);
        let made = index + 1;
        let mapped = (FIRST..).find(|&some| some.is_power_of_two() && some > 2 * made).unwrap();
        assert_eq!((sets.made.load(Relaxed), sets.mapped.load(Relaxed), sets.there()), (made, mapped, mapped));
        assert_eq!((sets.number_of(set), set.node.load(Relaxed)), (made, index as u32 % 2));
        assert_eq!((sets.board().sets.load(Relaxed), sets.top(), sets.tallied()), (made as u32 + 1, made, made + 1));
        reserved = (mapped - FIRST) * (PAGE + TALLY_BYTES);
        assert_eq!(sets.board().level(Level::Reserved), reserved as u64);
        assert_eq!(sets.event(Event::SetAdopt), 0);
        // (The last tally and the last set that there are.)
        sets.tally(mapped - 1).taken[1].fetch_add(1, Relaxed);
        let last = (sets.base.load(Relaxed) + mapped * PAGE - 8) as *const u64;
        assert_eq!(unsafe { last.read_volatile() }, 0);
    }
    assert!(sets.used().eq(0..40));
    // Where there is no room for the tallies, there is none for the sets.
    let (base, mapped) = (sets.base.load(Relaxed), sets.mapped.load(Relaxed));
    let tallies = base + TALLY + mapped * TALLY_BYTES;
    unsafe { sys::map_over(tallies, PAGE, Access::ReadWrite) }.unwrap();
    let state = sets.cpus.lock();
    assert!(!sets.map_more() && sets.mapped.load(Relaxed) == mapped);
    assert!(!sys::is_readable(base + mapped * PAGE), "nothing is left of it");
    unsafe { sys::unmap(tallies, PAGE) }.unwrap();
    while sets.made.load(Relaxed) < mapped - 1 {
        assert!(sets.fresh(&state).is_some());
    }
    assert_eq!(sets.board().level(Level::Reserved), reserved as u64);
    let fresh = sets.fresh(&state).unwrap();
    assert_eq!(sets.mapped.load(Relaxed), 2 * mapped);
    assert_eq!(sets.number_of(sets.set_at(fresh)), mapped);
}

#[test]
fn there_are_no_more_sets_than_the_board_says() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 1, 1);
    sets.made.store(SETS_MAX - 2, Relaxed);
    let state = sets.cpus.lock();
    let offset = sets.fresh(&state).unwrap();
    assert_eq!((sets.number_of(sets.set_at(offset)), sets.tallied()), (SETS_MAX - 1, SETS_MAX));
    assert_eq!((sets.fresh(&state), sets.tallied(), sets.there()), (None, SETS_MAX, SETS_MAX));
    assert!(!sets.map_more());
    drop(state);
    assert!(sets.ready().is_none());
}

/// The last time, fewer than twice as many.
#[test]
fn the_last_sets_are_mapped_up_to_the_board() {
    let sets: Box<Sets> = Box::default();
    roomy(&sets, 1);
    let mapped = SETS_MAX.next_power_of_two() / 2;
    sets.mapped.store(mapped, Relaxed);
    let state = sets.cpus.lock();
    assert!(sets.map_more() && sets.there() == SETS_MAX && !sets.map_more());
    drop(state);
    let last = (sets.base.load(Relaxed) + SETS_MAX * PAGE - 8) as *const u64;
    assert_eq!((unsafe { last.read_volatile() }, sets.tally(SETS_MAX - 1).event(Event::Purge)), (0, 0));
    assert_eq!(sets.board().level(Level::Reserved), ((SETS_MAX - mapped) * (PAGE + TALLY_BYTES)) as u64);
}

#[test]
fn indices_are_found_in_their_windows() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 1300, 1);
    let some = [3, 63, 64, 200, WINDOW - 1, WINDOW, 700, 1200];
    some.iter().for_each(|&index| _ = ready(&sets, index));
    assert_eq!(sets.top(), 1201);
    assert!(sets.used().eq(some));
    for from in CpuSet::windows(1300 + WINDOW) {
        let window: Vec<_> = some.into_iter().filter(|index| (from..from + WINDOW).contains(index)).collect();
        assert!(sets.used_of(from).eq(window), "from {from}");
    }
}

/// A thread that comes to a CPU without a set is refused, until the set of the CPU where its index was has come along.
#[test]
fn a_set_follows_its_index() {
    let sets: Box<Sets> = Box::default();
    let simulation = simulate(&sets, 8, 1);
    let first = ready(&sets, 1);
    let word = sheaf(&sets, &[16, 32]);
    assert_eq!(unsafe { sets.swap(2, false, Word::NONE, word) }, Outcome::Done(()));
    stand(1, 2);
    assert_eq!((sets.pop(2), unsafe { sets.push(2, 48) }), (Outcome::Refused, Outcome::Refused));
    assert_eq!(unsafe { sets.swap(2, true, Word::NONE, Word::NONE) }, Outcome::Refused);
    let running = [1, 2, 3].map(|cpu| simulation.cpus[cpu].begin());
    assert!(sets.ready().is_some_and(|set| core::ptr::eq(set, first)));
    assert_eq!(running.map(|running| running.step(|| ()).is_err()), [true, false, false], "behind a fence of that CPU");
    assert_eq!([1, 2].map(|cpu| sets.home_of(cpu).is_some()), [false, true]);
    assert_eq!((sets.slots[1].load(Relaxed), sets.event(Event::SetAdopt), sets.made.load(Relaxed)), (0, 1, 1));
    assert_eq!(sets.event(Event::Fence), 1);
    assert_eq!(sets.pop(2), Outcome::Done(32));
    // Whose index was nowhere gets another; who comes to a CPU that has one takes that, and nothing moves.
    stand(2, 1);
    assert!(sets.ready().is_some_and(|set| !core::ptr::eq(set, first)));
    stand(1, 1);
    assert!(sets.ready().is_some_and(|set| !core::ptr::eq(set, first)));
    assert_eq!((sets.event(Event::SetAdopt), sets.made.load(Relaxed)), (1, 2));
    // No CPU has such a number.
    stand(1, INDICES as u32);
    assert!(sets.ready().is_none());
    // What was parked needs no fence, and is parked no more.
    stand(1, 2);
    assert!(sets.park());
    stand(1, 3);
    let running = simulation.cpus[2].begin();
    assert!(sets.ready().is_some_and(|set| core::ptr::eq(set, first)) && running.step(|| ()).is_ok());
    assert!(!sets.is_parked(3) && sets.event(Event::SetAdopt) == 2);
    // The set that waits for the next drain comes along.
    let all = || {
        let mut all = CpuSet::around(0);
        sets.used_of(0).for_each(|index| all.insert(index));
        all
    };
    assert_eq!(sets.switch_off(&all()).done.iter().collect::<Vec<_>>(), [3]);
    // But not while it is to be collected.
    let stays = |cpu: usize| {
        let made = sets.made.load(Relaxed);
        stand(1, cpu as u32);
        sets.ready().is_some() && sets.made.load(Relaxed) == made + 1 && sets.home_of(3).is_some()
    };
    assert!(stays(4));
    assert!((0..CLASSES_MAX).step_by(STEP).any(|first| sets.collect(3, first).is_some()));
    sets.last[1].store(4, Relaxed);
    sets.other_of(3).unwrap().mark.store(UNFENCED, Relaxed);
    assert!(stays(5));
    sets.other_of(3).unwrap().mark.store(NONE, Relaxed);
    // Nor one that was asked, nor from a CPU that is not to be interrupted.
    sets.last[1].store(4, Relaxed);
    assert!(sets.ask(3) && stays(6) && sets.withdraw(3));
    sets.last[1].store(4, Relaxed);
    sets.isolated.insert(3);
    assert!(stays(7));
    // A void slot alone proves nothing; a set that was parked is fenced.
    sets.last[1].store(4, Relaxed);
    let parked = sets.set_at(sets.home[3].load(Relaxed));
    sets.slots[3].store(0, Relaxed);
    stand(1, 0);
    let fences = sets.event(Event::Fence);
    parked.mark.store(PARKED, Relaxed);
    assert!(sets.ready().is_some() && core::ptr::eq(sets.other_of(0).unwrap(), first));
    assert!(sets.other_of(3).is_none() && sets.home_of(3).is_none() && sets.event(Event::SetAdopt) == 3);
    assert_eq!((sets.event(Event::Fence), parked.mark.load(Relaxed)), (fences, NONE));
}

/// A handler above who has the lock changes nothing that this may be at; above one that parks it puts a set back, and no more.
#[test]
fn a_handler_above_the_lock_makes_nothing() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 4, 1);
    let set = ready(&sets, 1);
    let state = sets.cpus.lock();
    sets.slots[1].store(0, Relaxed);
    assert!(sets.ready().is_none(), "it may be about to follow");
    stand(1, 2);
    assert!(sets.ready().is_none() && sets.home_of(2).is_none());
    sets.parks.store(true, Relaxed);
    assert!(sets.ready().is_none() && sets.home_of(2).is_none());
    stand(1, 1);
    assert!(sets.ready().is_some_and(|ready| core::ptr::eq(ready, set)));
    sets.parks.store(false, Relaxed);
    drop(state);
    assert_eq!((sets.made.load(Relaxed), sets.event(Event::SetAdopt)), (1, 0));
}

/// A fork comes before it is fetched.
#[test]
fn what_was_not_fetched_is_not_counted() {
    let sets: &'static Sets = Box::leak(Box::default());
    simulate(sets, 4, 1);
    let set = ready(sets, 1);
    stand(1, 2);
    assert!(sets.close());
    assert!(sets.ready().is_none());
    assert!(core::ptr::eq(sets.home_of(1).unwrap(), set) && sets.event(Event::SetAdopt) == 0);
}

/// By class, main and spare; many at once as far as there are some.
fn operate(sets: &Sets) {
    assert!(sets.ready().is_some());
    let main = |class: usize| sets.ready().unwrap().pairs[class].main.load(Relaxed);
    for class in [2, 5] {
        let (word, spare) = (sheaf(sets, &[16, 32, 48, 64]), sheaf(sets, &[80]));
        unsafe {
            assert_eq!(sets.swap(class, false, Word::NONE, word), Outcome::Done(()));
            assert_eq!(sets.swap(class, true, word, spare), Outcome::Refused);
            assert_eq!(sets.swap(class, true, Word::NONE, spare), Outcome::Done(()));
            let pair = &sets.ready().unwrap().pairs[class];
            assert_eq!((pair.main.load(Relaxed), pair.spare.load(Relaxed)), (word.0, spare.0));
            let mut some = [0; 3];
            assert_eq!((sets.pop_batch(class, &mut some[..2]), sets.pop(class)), (2, Outcome::Done(32)));
            some[..2].sort_unstable();
            assert_eq!((some, Word(main(class)).count()), ([48, 64, 0], 1));
            assert_eq!((sets.pop_batch(class, &mut some), some[0]), (1, 16));
            assert_eq!((sets.pop_batch(class, &mut some), sets.pop(class)), (0, Outcome::Refused));
            assert_eq!((sets.push(class, 70), sets.push_batch(class, &[10, 20, 30])), (Outcome::Done(()), 3));
            assert_eq!(sets.push_batch(class, &[40, 50, 60, 80, 90, 100]), 4, "as far as there is room");
            assert_eq!((sets.push_batch(class, &[110]), sets.push(class, 110)), (0, Outcome::Refused));
            assert_eq!(Word(main(class)).count(), 8);
            let mut all = Vec::new();
            sets.peek(sets.cpus.cpu(), class, |object| all.push(object));
            assert_eq!((all[0], all.len(), all[8]), (70, 9, 80));
        }
        assert_eq!((sets.cached(class), sets.cached(class + 1)), (9, 0));
        assert_eq!([1, 2].map(|next| Word(main(class + next))), [Word::NONE; 2]);
    }
}

#[test]
fn operations_are_of_their_class() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 4, 1);
    ready(&sets, 2);
    operate(&sets);
}

/// Keeps this thread on the last CPU that it may run on; its number.
fn pinned() -> usize {
    unsafe {
        let mut set = core::mem::zeroed::<libc::cpu_set_t>();
        let bytes = size_of_val(&set);
        assert_eq!(libc::sched_getaffinity(0, bytes, &raw mut set), 0);
        let last = (0..8 * bytes).rfind(|&cpu| libc::CPU_ISSET(cpu, &set)).unwrap();
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(last, &mut set);
        assert_eq!(libc::sched_setaffinity(0, bytes, &raw const set), 0);
        last
    }
}

/// Sets in the fallback, of which this thread has one to itself; its index.
fn fallback(sets: &Sets) -> usize {
    let cpu = pinned();
    unsafe { sets.open(Room::whole().unwrap().base, Mode::Fallback, RseqArea::default(), None) };
    assert!(sets.ready().is_some() && sets.home_of(cpu).is_some());
    cpu
}

#[test]
fn locked_operations_are_of_their_class() {
    let sets: Box<Sets> = Box::default();
    assert!(fallback(&sets) < INDICES);
    operate(&sets);
}

/// In the fallback, who waits for a set that is drained meanwhile leaves it alone.
#[test]
fn who_waited_for_a_drained_set_looks_again() {
    use std::sync::mpsc::channel;
    let sets: Box<Sets> = Box::default();
    let index = fallback(&sets);
    let word = sheaf(&sets, &[16, 32]);
    assert_eq!(unsafe { sets.swap(2, false, Word::NONE, word) }, Outcome::Done(()));
    let (sets, (told, heard)) = (&*sets, channel());
    crate::tests::threads::scope(|scope| {
        let set = sets.home_of(index).unwrap();
        let held = set.held.lock();
        scope.spawn(move || (pinned(), told.send(sets.pop(2)).unwrap()));
        // SAFETY: the word that a lock begins with: 2 once somebody waits.
        let is_awaited = || unsafe { &*core::ptr::from_ref(&set.held).cast::<AtomicU32>() }.load(Relaxed) == 2;
        let mut early = None;
        while !is_awaited() && early.is_none() {
            early = heard.try_recv().ok();
            std::thread::yield_now();
        }
        let mut all = CpuSet::around(index);
        all.insert(index);
        assert_eq!((early, sets.switch_off(&all).done.len()), (None, 1));
        drop(held);
        assert_eq!(heard.recv(), Ok(Outcome::Aborted));
        assert_eq!(Word(set.pairs[2].main.load(Relaxed)).count(), 2);
    });
}

/// What a set did since the keeper looked, on all classes, on pages and on areas.
#[test]
fn a_set_is_quiet_by_what_it_does() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 1, 1);
    assert_eq!(sets.quiet(0, 10), [0; 3], "there is none");
    let number = sets.number_of(ready(&sets, 0));
    // (Class that does something, and how long which of the three have been quiet then.)
    for (class, quiet) in [
        (None, [1, 1, 1]),
        (None, [2, 2, 2]),
        (Some(9), [0, 3, 3]),
        (Some(10), [0, 0, 4]),
        (None, [1, 1, 5]),
        (Some(FIRST_FRONT - 1), [0, 0, 6]),
        (Some(FIRST_FRONT), [0, 1, 0]),
        (Some(127), [0, 2, 0]),
        (None, [1, 3, 1]),
    ] {
        if let Some(class) = class {
            let ops = &sets.tally(number).class[class];
            if class % 2 == 0 { &ops.allocs } else { &ops.frees }.fetch_add(1, Relaxed);
        }
        assert_eq!(sets.quiet(0, 10), quiet, "after {class:?}");
    }
}

/// Closed as often as reopened; what is parked, or in the middle of something, stays void until it is needed.
#[test]
fn sets_are_back_when_the_last_reopens() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 4, 1);
    (0..3).for_each(|index| _ = ready(&sets, index));
    let homes = || [0, 1, 2].map(|index| sets.home[index].load(Relaxed));
    let slots = || [0, 1, 2].map(|index| sets.slots[index].load(Relaxed));
    assert_eq!(slots(), homes());
    assert!(sets.park());
    let parked = [homes()[0], homes()[1], 0];
    assert_eq!(slots(), parked);
    assert!(sets.close() && sets.close());
    assert_eq!((slots(), sets.ready().is_some(), sets.pop(2)), ([0; 3], false, Outcome::Refused));
    sets.reopen();
    assert_eq!(slots(), [0; 3]);
    sets.reopen();
    assert_eq!(slots(), parked);
    // A handler that interrupted who has the lock leaves them void.
    let state = sets.cpus.lock();
    sets.close();
    sets.reopen();
    assert_eq!(slots(), [0; 3]);
    drop(state);
    sets.set_at(homes()[1]).mark.store(ASKED, Relaxed);
    stand(0, 0);
    assert!(sets.ready().is_some());
    assert_eq!(slots(), [homes()[0], 0, 0]);
    assert!(sets.make(1, 1) && sets.make(2, 2));
    let marks = [0, 1, 2].map(|index| sets.set_at(homes()[index]).mark.load(Relaxed));
    assert_eq!((slots(), marks), (homes(), [NONE, ASKED, NONE]));
}

#[test]
fn a_child_forgets_what_it_cannot_trust() {
    let sets: Box<Sets> = Box::default();
    simulate(&sets, 2, 1);
    let pair = &ready(&sets, 1).pairs[4];
    pair.main.store(7, Relaxed);
    pair.spare.store(8, Relaxed);
    for (vforks, forget, left) in [(0, false, [7, 8]), (2, true, [0; 2])] {
        sets.close();
        sets.inherit(vforks, forget);
        assert_eq!([&pair.main, &pair.spare].map(|word| word.load(Relaxed)), left);
        (0..vforks).for_each(|_| sets.reopen());
        assert!(sets.cpus.is_closed());
        sets.reopen();
        assert!(!sets.cpus.is_closed());
    }
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(allotment_other)))]
mod sequences {
    use super::*;
    use crate::cache::tests::made::{Made, open, stand_as};

    #[test]
    fn sequences_operate_on_their_class() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        operate(&sets);
        assert_eq!(sets.event(Event::SetAdopt), 0);
    }

    /// The set follows an index that moved; to a CPU that cannot be, or one that may not be fenced, none does.
    #[test]
    fn a_set_follows_by_a_fence() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        let set = sets.ready().unwrap();
        for (cpu, is_ready, owner, followed) in
            [(6, true, 6, 1), (INDICES as u32, false, 6, 1), (u32::MAX, false, 6, 1)]
        {
            let made = Made::new(3, cpu);
            stand_as(&sets, &made);
            assert_eq!(sets.ready().is_some(), is_ready, "on CPU {cpu}");
            let is_there = core::ptr::eq(sets.home_of(owner).unwrap(), set);
            assert_eq!((is_there, sets.event(Event::SetAdopt)), (true, followed), "on CPU {cpu}");
        }
        // A slot is as it was where the fence was refused.
        let word = sheaf(&sets, &[16]);
        let made = Made::new(3, 6);
        stand_as(&sets, &made);
        assert_eq!(unsafe { sets.swap(2, false, Word::NONE, word) }, Outcome::Done(()));
        let wrong = alone(|| {
            // (Who is alone needs no fences.)
            unsafe { __libc_single_threaded = 0 };
            sets.cpus.confine();
            let made = Made::new(3, 5);
            stand_as(&sets, &made);
            let has_another = sets.ready().is_some_and(|ready| !core::ptr::eq(ready, set));
            let made = Made::new(3, 6);
            stand_as(&sets, &made);
            i32::from(!has_another) + 2 * i32::from(sets.pop(2) != Outcome::Done(16))
        });
        assert_eq!(wrong, 0);
    }

    unsafe extern "C" {
        static mut __libc_single_threaded: u8;
    }

    #[test]
    fn the_self_test_leaves_nothing() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        let meta = Meta::new();
        let block = |sheaf: Option<Sheaf>| sheaf.unwrap().into_word(4);
        let sheaf = Sheaf::new(&meta, sets.board(), 4);
        let free = block(sheaf);
        unsafe { Sheaf::from_word(free) }.unwrap().discard(&meta);
        assert!(sets.self_test(&meta));
        let set = sets.ready().unwrap();
        assert_eq!((Word(set.pairs[0].main.load(Relaxed)), sets.event(Event::Direct)), (Word::NONE, 1));
        assert_eq!(block(Sheaf::new(&meta, sets.board(), 4)), free, "its sheaf is free");
        let slot = || sets.slots[5].load(Relaxed);
        let (home, refuses) = (slot(), unsafe { sets.refuses_when_void() });
        assert!(refuses && slot() == home && home != 0);
        // Who is not registered has none.
        let nobody = Made::new(3, u32::MAX);
        stand_as(&sets, &nobody);
        assert!(!unsafe { sets.refuses_when_void() } && !sets.self_test(&meta));
    }

    #[test]
    fn the_self_test_fails_without_sets_or_fences() {
        let sets: Box<Sets> = Box::default();
        let Some(_made) = open(&sets) else { return };
        sets.close();
        assert!(!sets.self_test(&Meta::new()));
        assert_eq!(sets.event(Event::Direct), 1, "at once");
        sets.reopen();
        sets.cpus.confine();
        assert!(!sets.self_test(&Meta::new()));
    }
}
