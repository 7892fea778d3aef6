//! Which processes leave no reaper, and what it reads of the system. (What it does after a death: `cli/tests/c/exit.c`.)

use super::*;
use crate::reclaim::tests::{MIB, Rig};

#[test]
fn none_is_left_where_none_was_asked_for_or_may_be() {
    let rig = Rig::new(1, 1);
    let leaves = |own: u32| rig.mm().leave_reaper(own);
    rig.lazy(8, MIB);
    rig.set(Id::ReapParent, 1);
    assert!(!leaves(sys::pid()), "nobody asked for it");
    rig.set(Id::ReapBytes, 1);
    // Of another process, and of the first there is.
    assert!(!leaves(sys::pid() + 1) && !leaves(1));
    let board = rig.heap.cache.sets.board();
    let here = board.in_use() + board.level(Level::Lazy) + board.level(Level::PagesDirty);
    rig.set(Id::ReapBytes, here + 1);
    assert!(!leaves(sys::pid()), "small");
    rig.set(Id::ReapBytes, here);
    rig.set(Id::ReapParent, 0);
    assert!(sys::parent_pid() <= 1 || !leaves(sys::pid()), "another's child");
    rig.set(Id::ReapParent, 1);
    rig.heap.reclaim.keeper.confine();
    assert!(!leaves(sys::pid()), "it filters its calls");
    // None of them has begun.
    let Reaper { reaping, reaped } = &rig.heap.reclaim.reaper;
    assert_eq!((reaping.load(Relaxed), reaped.load(Relaxed), rig.event(Event::Reaper)), (0, 0, 0));
}

#[test]
fn what_is_resident_is_what_the_kernel_says() {
    let all = std::fs::read_to_string("/proc/self/statm").unwrap();
    let about = all.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * PAGE as u64;
    let here = resident();
    assert!(here.is_multiple_of(PAGE as u64) && (about / 4..about * 4).contains(&here), "{here} {about}");
}

#[test]
fn a_process_that_lives_or_has_another_name_is_no_dead_reaper() {
    assert!(!is_dead(b"1") && !is_dead(b"self") && !is_dead(b"4294967295") && !is_dead(&[b'1'; 40]));
    // As many as another look finds; in a crowd nobody looks.
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.map(|entry| entry.file_name().into_encoded_bytes()).filter(|name| name[0].is_ascii_digit());
    let names: std::vec::Vec<_> = numbers.collect();
    let found = names.iter().filter(|name| is_dead(name)).count();
    if names.len() < 900 {
        assert_eq!(dead(usize::MAX), Some(found));
    }
    assert!(dead(0).is_none_or(|few| few <= found));
}

/// Files are counted by their numbers, in a table that no other test opens any in.
#[test]
fn a_look_for_the_dead_leaves_no_file_open() {
    crate::tests::threads::spawn(|| {
        if sys::own_files().is_err() {
            return;
        }
        let next = || sys::open(c"/proc", false).inspect(|&file| sys::close(file)).unwrap();
        let before = next();
        dead(8);
        assert_eq!(next(), before);
    })
    .join()
    .unwrap();
}
