//! Boards that others see, and forks: each test in a child of its own that has no other thread, so that what is mapped is what it
//! mapped; it ends with the line that is not as it must be.

use super::*;
use crate::arch::PAGE;
use crate::arch::atomic::AtomicU64;
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::seq::TALLY;
use crate::arch::sys::{self, Access, Advice, fault};
use crate::cache::sets::room::FIRST;
use crate::cache::sets::tests::{alone, pages};
use crate::stat::Level;
use crate::stat::board::{BOARD_BYTES, SETS_MAX, SHARE_BYTES, SHOW, SHOW_BYTES, TALLIES, TALLY_BYTES};

macro_rules! must {
    ($what:expr) => {
        if !$what {
            return line!() as i32 % 250 + 1;
        }
    };
}

/// A file in memory, of so many bytes.
fn file(bytes: usize) -> usize {
    let file = unsafe { libc::memfd_create(c"board".as_ptr(), 0) };
    assert!(file >= 0 && unsafe { libc::ftruncate(file, bytes as i64) } == 0);
    file as usize
}
/// Bytes of it that there are.
fn bytes(file: usize) -> usize {
    let mut stat = unsafe { core::mem::zeroed::<libc::stat>() };
    assert_eq!(unsafe { libc::fstat(file as i32, &raw mut stat) }, 0);
    stat.st_blocks as usize * 512
}

/// Sets in the fallback, in memory for few.
fn private() -> &'static Sets {
    let sets: &'static Sets = Box::leak(Box::default());
    let room = (0x1b00..).find_map(|slot| Room::at(slot << 30)).unwrap();
    unsafe { sets.open(room.base, Mode::Fallback, RseqArea::default(), None) };
    sets.roomy(room);
    sets
}
/// The same whose board others see.
fn shared(bytes: usize) -> (&'static Sets, usize) {
    let (sets, file) = (private(), file(bytes));
    assert!(sets.share(file));
    (sets, file)
}
/// So many sets at least; whether they are there.
fn make(sets: &Sets, upto: usize) -> bool {
    let state = sets.cpus.lock();
    while sets.made.load(Relaxed) < upto {
        if sets.fresh(&state).is_none() {
            return false;
        }
    }
    true
}

fn word(at: usize) -> &'static AtomicU64 {
    unsafe { &*(at as *const AtomicU64) }
}
/// A word of a set.
fn set(sets: &Sets, number: usize) -> &'static AtomicU64 {
    word(sets.base.load(Relaxed) + number * PAGE + 80)
}
/// Writes into each set that is mapped.
fn mark(sets: &Sets) {
    (1..sets.there()).for_each(|number| set(sets, number).store(100 + number as u64, Relaxed));
}
/// Whether each has that, or nothing.
fn marked(sets: &Sets, upto: usize, is_marked: bool) -> bool {
    (1..upto).all(|number| set(sets, number).load(Relaxed) == if is_marked { 100 + number as u64 } else { 0 })
}
/// A word of a tally: here, and in the file.
fn tally(sets: &Sets, number: usize) -> &'static AtomicU64 {
    word(sets.base.load(Relaxed) + TALLY + number * TALLY_BYTES)
}
fn in_file(file: usize, number: usize) -> u64 {
    let mut word = 0_u64;
    let at = (TALLIES + number * TALLY_BYTES) as i64;
    assert_eq!(unsafe { libc::pread(file as i32, (&raw mut word).cast(), 8, at) }, 8);
    word
}
/// Writes its number into each tally.
fn number(sets: &Sets) {
    (0..sets.tallied()).for_each(|number| tally(sets, number).store(number as u64, Relaxed));
}
fn numbered(sets: &Sets) -> bool {
    (0..sets.tallied()).all(|number| tally(sets, number).load(Relaxed) == number as u64)
}

/// What makes the system refuse just these of the next calls that manage memory.
fn refusing(refused: &[bool]) -> u64 {
    let page = sys::map(0, PAGE, Access::ReadWrite).unwrap();
    let works = |_| unsafe { sys::advise(page, PAGE, Advice::NoHuge) }.is_ok();
    let seed = (1..).find(|&seed| {
        fault::storm(2, seed);
        (0..refused.len()).map(works).eq(refused.iter().map(|&refused| !refused))
    });
    fault::storm(0, 1);
    seed.unwrap()
}

#[test]
fn a_board_is_shared_or_as_it_was() {
    let (sets, others, file) = (private(), private(), file(SHARE_BYTES));
    // A trial, and what it makes sure of; then the board, and the tallies.
    let seed = refusing(&[false, false, false, false, true]);
    let failed = alone(|| {
        sets.board().magic.store(5, Relaxed);
        tally(sets, 1).store(6, Relaxed);
        let before = pages();
        must!(sets.share(file) && sets.is_shared() && pages() == before);
        must!(sets.board().magic.load(Relaxed) == 0 && tally(sets, 1).load(Relaxed) == 0);
        must!(sets.share.sure.load(Relaxed) == 2);
        fault::storm(2, seed);
        let is_shared = others.share(file);
        fault::storm(0, 1);
        must!(!is_shared && !others.is_shared());
        0
    });
    assert_eq!(failed, 0);
}

/// What there is no room for in the file is private; others see how far they see.
#[test]
fn a_board_whose_file_is_full_goes_on_alone() {
    let (sets, file) = shared(TALLIES + 4 * TALLY_BYTES);
    let failed = alone(|| {
        let mappings = sets.board().level(Level::Mappings);
        must!(make(sets, 3) && sets.board().unseen.load(Relaxed) == 0 && sets.share.sure.load(Relaxed) == 4);
        must!(make(sets, 4) && sets.board().unseen.load(Relaxed) == 4);
        must!(sets.board().level(Level::Mappings) == mappings + 2 && sets.share.sure.load(Relaxed) == SETS_MAX);
        let end = sets.base.load(Relaxed) + TALLY + sets.there() * TALLY_BYTES;
        must!(sys::is_readable(end - 8) && !sys::is_readable(end));
        must!(make(sets, 3 * FIRST) && sets.there() == 4 * FIRST);
        must!(sets.board().unseen.load(Relaxed) == 4 && sets.board().level(Level::Mappings) == mappings + 2);
        number(sets);
        must!(numbered(sets) && (0..4).all(|number| in_file(file, number) == number as u64));
        0
    });
    assert_eq!(failed, 0);
}

#[test]
fn texts_have_their_pages_when_they_are_written() {
    const STEP: usize = 16 << 10;
    let ((sets, file), alone_sets) = (shared(SHARE_BYTES), private());
    let failed = alone(|| {
        let (before, reserved) = (bytes(file), sets.board().level(Level::Reserved));
        for (wanted, made) in [(8, 1), (8, 1), (STEP, 1), (STEP + 1, 2), (5 * STEP, 5)] {
            must!(sets.ensure_texts(wanted) && bytes(file) == before + made * STEP);
        }
        must!(sets.board().level(Level::Reserved) == reserved + SHOW_BYTES as u64);
        let at = sets.show();
        word(at + STEP).store(77, Relaxed);
        let mut found = 0_u64;
        must!(
            unsafe { libc::pread(file as i32, (&raw mut found).cast(), 8, (SHOW + STEP) as i64) } == 8 && found == 77
        );
        // In a child of its own they are made anew.
        sets.restore(true);
        sets.attest();
        sets.unshare(None);
        must!(!sets.is_shared() && !sys::is_readable(at) && sets.share.sure_texts.load(Relaxed) == 0);
        for sets in [sets, alone_sets] {
            let reserved = sets.board().level(Level::Reserved);
            must!(sets.ensure_texts(8) && sets.board().level(Level::Reserved) == reserved);
            let at = sets.show();
            must!(at != 0 && sets.board().level(Level::Reserved) == reserved + SHOW_BYTES as u64);
            word(at).store(5, Relaxed);
            word(at + SHOW_BYTES - 8).store(5, Relaxed);
            // Nobody else sees them: there is nothing to be done in a child.
            sets.unshare(None);
            must!(sets.show() == at && word(at).load(Relaxed) == 5);
        }
        0
    });
    assert_eq!(failed, 0);
}

/// A child finds its witness wiped; and its sets, where others see the board.
#[test]
fn a_child_that_nobody_told_finds_out() {
    let ((public, _), own, unwatched, other) = (shared(SHARE_BYTES), private(), private(), file(PAGE));
    let failed = alone(|| {
        for (sets, kept) in [(public, false), (own, true)] {
            sets.watch();
            let witness = sets.base.load(Relaxed) + PAGE - 8;
            must!(sets.is_watched() && !sets.is_orphan() && sets.share.witness.load(Relaxed) == witness);
            for made in [FIRST - 1, 2 * FIRST] {
                must!(make(sets, made) && sets.there() >= made);
                mark(sets);
                let child = alone(|| {
                    must!(sets.is_orphan() && marked(sets, sets.there(), kept));
                    must!(kept || marked(sets, sets.there(), false));
                    sets.restore(false);
                    sets.attest();
                    must!(!sets.is_orphan() && marked(sets, sets.there(), kept));
                    0
                });
                must!(child == 0);
                must!(!sets.is_orphan() && marked(sets, sets.there(), true));
            }
        }
        // Memory of a file is not wiped: then there is no witness.
        let base = unwatched.base.load(Relaxed);
        must!(unsafe { sys::map_file_over(base, PAGE, other, 0) }.is_ok());
        unwatched.watch();
        must!(!unwatched.is_watched() && !unwatched.is_orphan());
        unwatched.restore(true);
        unwatched.snapshot();
        must!(unwatched.share.copy.load(Relaxed) == 0);
        0
    });
    assert_eq!(failed, 0);
}

/// Another that finds out at the same time waits until all is done.
#[test]
fn one_thread_of_a_child_finds_out() {
    use crate::arch::atomic::AtomicU32;
    use crate::arch::atomic::Ordering::SeqCst;
    use crate::arch::tests::in_a_single_child;
    use crate::tests::threads;
    let sets = private();
    sets.watch();
    in_a_single_child(|| {
        assert!(sets.is_orphan() && sets.claim() && !sets.claim() && sets.is_orphan(), "its own frames go on");
        let (begun, done) = (AtomicU32::new(0), AtomicU32::new(0));
        threads::scope(|scope| {
            let other = scope.spawn(|| {
                begun.store(1, SeqCst);
                assert!(sets.is_orphan() && !sets.claim() && done.load(SeqCst) == 1 && !sets.is_orphan());
            });
            while begun.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(core::time::Duration::from_millis(20));
            done.store(1, SeqCst);
            sets.attest();
            other.join().unwrap();
        });
        assert!(!sets.is_orphan() && !sets.claim());
    });
    assert!(!sets.is_orphan());
}

/// It has the board and the sets of before the fork; nobody's charges without the sets.
#[test]
fn a_child_that_was_told_goes_on() {
    let (sets, parents) = shared(SHARE_BYTES);
    let own = file(SHARE_BYTES);
    // (As many as the copy has room for, and fewer.)
    for (made, room) in [(2 * FIRST - 1, 16), (2 * FIRST + 3, 32)] {
        assert_eq!(alone(|| goes_on(sets, parents, own, made, room)), 0);
    }
}

fn goes_on(sets: &Sets, parents: usize, own: usize, made: usize, room: usize) -> i32 {
    sets.watch();
    must!(make(sets, made));
    mark(sets);
    number(sets);
    sets.board().levels[Level::Charged as usize].store(9, Relaxed);
    sets.board().unseen.store(7, Relaxed);
    sets.snapshot();
    let copy = sets.share.copy.load(Relaxed);
    must!(copy != 0 && sets.share.copied.load(Relaxed) == room);
    // (A parent that goes on.)
    tally(sets, 3).store(99, Relaxed);
    for file in [None, Some(own)] {
        let child = alone(|| {
            must!(sets.is_orphan());
            sets.restore(true);
            sets.attest();
            must!(!sets.is_orphan() && marked(sets, sets.tallied(), true));
            sets.unshare(file);
            must!(numbered(sets) && sets.board().level(Level::Charged) == 9);
            must!(sets.board().unseen.load(Relaxed) == 0 && sets.is_shared() == file.is_some());
            if file.is_none() {
                must!(sets.share.copy.load(Relaxed) == 0 && !sys::is_readable(copy));
                // What is not used yet is private, too.
                let last = sets.there() - 1;
                tally(sets, last).store(55, Relaxed);
                must!(last > made || in_file(parents, last) == made as u64);
                must!(last == made || in_file(parents, last) == 0);
                // Its own children find the sets as they are, and that they are children.
                mark(sets);
                must!(alone(|| (!sets.is_orphan()) as i32 + 2 * i32::from(!marked(sets, sets.there(), true))) == 0);
                must!(make(sets, last + 5) && tally(sets, last).load(Relaxed) == 55);
            } else {
                must!((0..sets.tallied()).all(|number| in_file(own, number) == number as u64));
            }
            0
        });
        must!(child == 0);
    }
    must!(in_file(parents, 3) == 99);
    // Untold, the sets are empty, and so is what they were entitled to.
    let child = alone(|| {
        sets.restore(false);
        sets.attest();
        must!(!sets.is_orphan() && marked(sets, sets.there(), false));
        sets.unshare(None);
        must!(sets.board().level(Level::Charged) == 0 && tally(sets, 3).load(Relaxed) == 99);
        0
    });
    must!(child == 0);
    // Nobody was forked: what changed since is not undone.
    set(sets, 3).store(5, Relaxed);
    sets.restore(true);
    sets.attest();
    must!(set(sets, 3).load(Relaxed) == 5);
    0
}

/// A second copy takes the place of the first where there are more sets by now.
#[test]
fn there_is_one_copy() {
    const COPIED: usize = (TALLY_BYTES + PAGE) / PAGE;
    let (sets, _) = shared(SHARE_BYTES);
    let failed = alone(|| {
        sets.watch();
        must!(make(sets, 2));
        let before = pages();
        sets.snapshot();
        must!(pages() == before + 4 * COPIED + BOARD_BYTES / PAGE && sets.share.copied.load(Relaxed) == 4);
        must!(make(sets, 3));
        let before = pages();
        sets.snapshot();
        must!(pages() == before);
        must!(make(sets, 5));
        let before = pages();
        sets.snapshot();
        must!(pages() == before + 4 * COPIED && sets.share.copied.load(Relaxed) == 8);
        0
    });
    assert_eq!(failed, 0);
}

#[test]
fn without_memory_for_a_copy_a_child_has_what_is_there() {
    let (sets, parents) = shared(SHARE_BYTES);
    let failed = alone(|| {
        sets.watch();
        must!(make(sets, FIRST + 3));
        mark(sets);
        number(sets);
        let limit = libc::rlimit { rlim_cur: (pages() * PAGE) as u64, rlim_max: libc::RLIM_INFINITY };
        must!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) } == 0);
        sets.snapshot();
        must!(sets.share.copy.load(Relaxed) == 0);
        let child = alone(|| {
            must!(sets.is_orphan() && marked(sets, sets.there(), true));
            sets.restore(true);
            sets.attest();
            must!(!sets.is_orphan() && marked(sets, sets.there(), true));
            sets.unshare(None);
            must!(!sets.is_shared() && !sets.is_orphan() && numbered(sets) && marked(sets, sets.there(), true));
            (0..sets.there()).for_each(|number| tally(sets, number).store(44, Relaxed));
            must!((0..sets.tallied()).all(|number| in_file(parents, number) == number as u64));
            must!((sets.tallied()..sets.there()).all(|number| in_file(parents, number) == 0));
            0
        });
        must!(child == 0);
        // (Untold, it has none.)
        must!(
            alone(|| {
                sets.restore(false);
                sets.attest();
                i32::from(!marked(sets, sets.tallied(), false))
            }) == 0
        );
        // All that is mapped is in use.
        must!(make(sets, sets.there() - 1) && sets.tallied() == sets.there());
        number(sets);
        must!(
            alone(|| {
                sets.restore(true);
                sets.attest();
                sets.unshare(None);
                must!(!sets.is_shared() && numbered(sets));
                0
            }) == 0
        );
        0
    });
    assert_eq!(failed, 0);
}

/// Where the system gives no private board either, all stays as it is.
#[test]
fn a_child_whose_board_cannot_be_its_own_leaves_its_parents() {
    let (sets, parents) = shared(SHARE_BYTES);
    let (all, first) = (refusing(&[true; 6]), refusing(&[true, false, false]));
    let failed = alone(|| {
        sets.watch();
        must!(make(sets, FIRST + 3));
        number(sets);
        sets.snapshot();
        tally(sets, 3).store(99, Relaxed);
        for (has_copy, seed) in [(true, all), (false, all), (false, first)] {
            let child = alone(|| {
                if !has_copy {
                    sets.share.copy.store(0, Relaxed);
                }
                fault::storm(2, seed);
                sets.unshare(None);
                fault::storm(0, 1);
                must!(sets.is_shared() && in_file(parents, 3) == 99 && tally(sets, 3).load(Relaxed) == 99);
                0
            });
            must!(child == 0);
        }
        0
    });
    assert_eq!(failed, 0);
}
