//! Each real sequence, alone with memory of its own: what it does where it may, and that it does nothing where it may
//! not. The rseq area is a made-up one, which no kernel knows: it says which CPU and which index "run" the test, so that
//! no move of the thread changes an answer.
#![allow(clippy::unwrap_used, unsafe_code, missing_docs)]
#![allow(clippy::undocumented_unsafe_blocks)] // said once for each table

extern crate std;
use crate::arch::PAGE;
use crate::arch::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::arch::outcome::Outcome;
use crate::arch::rseq;
use crate::arch::seq::{self, COUNTS, MAIN, RseqArea, SLOTS, TALLY};
use crate::arch::sys::{self, Access};
use crate::arch::unit_seq::{self, Place, UNIT};
use crate::cache::layout::Word;
use core::cell::Cell;
use std::boxed::Box;

/// `struct rseq` that nobody registered, of 64 bytes. The sequences store their descriptors' addresses into it, and may
/// write nothing else: a kernel would kill for it.
#[repr(C, align(64))]
pub struct Made {
    cpu_id_start: u32,
    cpu_id: u32,
    rseq_cs: Cell<u64>,
    flags: u32,
    node_id: u32,
    mm_cid: u32,
    /// `slice_ctrl`, and what kernels to come will have.
    rest: [u32; 9],
    /// Not of the area: the index and the CPU that it was made with.
    made: (u32, u32),
}

/// What is in words that no sequence looks at: among them the node.
pub const REST: u32 = 0xa5a5_a5a5;

impl Made {
    pub fn new(index: u32, cpu_id: u32) -> Box<Self> {
        let (rseq_cs, made) = (Cell::new(0), (index, cpu_id));
        let rest = [REST; 9];
        Box::new(Self { cpu_id_start: index, cpu_id, rseq_cs, flags: 0, node_id: REST, mm_cid: index, rest, made })
    }
    fn base(&self) -> isize {
        ((&raw const *self) as usize).wrapping_sub(sys::thread_pointer()) as isize
    }
    pub fn area(&self) -> RseqArea {
        RseqArea { base: self.base(), index: self.base() + rseq::MM_CID }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let (index, cpu) = self.made;
        let mut wanted = [REST; 16];
        (wanted[0], wanted[1], wanted[4], wanted[6]) = (index, cpu, 0, index);
        let at = (&raw const *self).cast::<u32>();
        // SAFETY: 16 words of its own. (Volatile: the assembly had the address.)
        let found: [u32; 16] = core::array::from_fn(|word| unsafe { at.add(word).read_volatile() });
        (wanted[2], wanted[3]) = (found[2], found[3]);
        assert!(found == wanted || std::thread::panicking(), "written: {found:x?}");
    }
}

const INDEX: usize = 3;
const OWNER: u32 = 5;
const CLASS: usize = 2 * 16;
const OBJECT: usize = 0x5550;
/// What no object is, and no barrier.
const FREE: usize = usize::MAX;

/// A board whose CPU 5 leads to a set: two objects in a sheaf that takes two more, and a spare with four.
struct Board {
    map: usize,
    base: usize,
    /// Of main and of the spare: four slots between two barriers.
    sheaves: Box<[[Cell<usize>; 6]; 2]>,
}

impl Board {
    const SET: usize = 16 * PAGE;
    /// Of which a part is at a multiple of 2 × TALLY, as sets are.
    const BYTES: usize = 4 * TALLY;

    fn new() -> Self {
        let map = sys::map(0, Self::BYTES, Access::ReadWrite).unwrap();
        let base = map.next_multiple_of(2 * TALLY);
        let lists = [[7, OBJECT, OBJECT + 16, FREE, FREE, 0], [2, OBJECT, OBJECT, OBJECT, OBJECT, 0]];
        let board = Self { map, base, sheaves: Box::new(lists.map(|list| list.map(Cell::new))) };
        board.word(SLOTS + OWNER as usize * 8).store(Self::SET as u64, Relaxed);
        board.word(Self::SET + CLASS + MAIN).store(board.full().0, Relaxed);
        board.word(Self::SET + CLASS).store(board.spare().0, Relaxed);
        board
    }
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: inside our own mapping.
        unsafe { &*((self.base + at) as *const AtomicU64) }
    }
    /// The word of the sheaf as it is at first.
    fn full(&self) -> Word {
        Word(&raw const self.sheaves[0][3] as u64)
    }
    /// The spare's at first.
    fn spare(&self) -> Word {
        Word(&raw const self.sheaves[1][5] as u64)
    }
    /// All that a sequence may change.
    fn state(&self) -> ([u64; 7], [[usize; 6]; 2]) {
        let [spare, main, tally, counts] = [0, MAIN, TALLY, COUNTS].map(|at| Self::SET + CLASS + at);
        let all = [SLOTS + OWNER as usize * 8, main, spare, tally, tally + 8, counts, counts + 8];
        (
            all.map(|at| self.word(at).load(Relaxed)),
            self.sheaves.each_ref().map(|sheaf| sheaf.each_ref().map(Cell::get)),
        )
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        let _ = unsafe { sys::unmap(self.map, Self::BYTES) };
    }
}

/// A sequence on sets: whether it was done.
type OnSet = fn(&Board, RseqArea) -> Outcome<()>;

fn done<T>(outcome: Outcome<T>) -> Outcome<()> {
    match outcome {
        Outcome::Done(_) => Outcome::Done(()),
        Outcome::Refused => Outcome::Refused,
        Outcome::Aborted => Outcome::Aborted,
    }
}

/// All, each with arguments for which nothing else is in its way.
// SAFETY (of all of them): the board, the set, the sheaf and the area are the test's own.
const ON_SETS: &[(&str, OnSet)] = &[
    ("pop", |board, area| done(unsafe { seq::pop::<false>(board.base as *const u8, area.base, CLASS) })),
    ("push", |board, area| unsafe { seq::push::<false>(board.base as *const u8, area.base, CLASS, OBJECT + 32) }),
    ("pop_batch", |board, area| {
        let mut into = [0; 2];
        done(unsafe { seq::pop_batch(board.base as *const u8, area.base, CLASS, into.as_mut_ptr(), 2) })
    }),
    ("push_batch", |board, area| {
        let from = [OBJECT + 32, OBJECT + 48];
        done(unsafe { seq::push_batch(board.base as *const u8, area.base, CLASS, from.as_ptr(), 2) })
    }),
    ("swap", |board, area| unsafe { seq::swap(board.base as *const u8, area.base, CLASS + MAIN, board.full().0, 0) }),
    #[cfg(target_arch = "x86_64")]
    ("exchange", |board, area| unsafe { seq::exchange(board.base as *const u8, area.base, CLASS, -24) }),
    ("add", |board, area| unsafe { seq::add(board.base as *const u8, area.base, CLASS, 7) }),
    ("switch", |board, area| unsafe { seq::switch(board.base as *const u8, area.base, board.base + Board::SET, 0) }),
];

/// On its own CPU each is done; a CPU without a set and a thread that is not registered are refused, and nothing has changed.
#[test]
fn sequences_refuse_who_has_no_set() {
    for (name, run) in ON_SETS {
        let board = Board::new();
        let before = board.state();
        for stranger in [OWNER + 1, 0, u32::MAX, u32::MAX - 1] {
            let made = Made::new(INDEX as u32, stranger);
            assert_eq!(run(&board, made.area()), Outcome::Refused, "{name} on CPU {stranger}");
            assert_eq!(board.state(), before, "{name} on CPU {stranger}");
            assert_ne!(made.rseq_cs.get(), 0, "{name} announces itself");
        }
        let made = Made::new(INDEX as u32, OWNER);
        assert_eq!(run(&board, made.area()), Outcome::Done(()), "{name}");
        let after = board.state();
        assert_ne!(after, before, "{name}");
        let counted = [5, 6].map(|at| after.0[at] - before.0[at]);
        let operations = if name.ends_with("_batch") { 2 } else { 1 };
        let wanted = ["pop", "push"].map(|word| if name.starts_with(word) { operations } else { 0 });
        assert_eq!(counted, wanted, "allocations and frees by {name}");
    }
}

/// Main and spare change places where the spare has what is wanted and main has not.
#[test]
#[cfg(target_arch = "x86_64")]
fn places_are_changed_for_what_is_wanted() {
    let made = Made::new(INDEX as u32, OWNER);
    let board = Board::new();
    // SAFETY: the test's own board and area.
    let exchange = |witness| unsafe { seq::exchange(board.base as *const u8, made.area().base, CLASS, witness) };
    let before = board.state();
    // Two objects and four, room for two and for none.
    for (room, has) in [(false, "both have objects"), (true, "main has room")] {
        assert_eq!((exchange(Word::witness(room)), board.state()), (Outcome::Refused, before), "{has}");
    }
    let main = board.word(Board::SET + CLASS + MAIN);
    let full = main.swap(&raw const board.sheaves[0][5] as u64, Relaxed);
    assert_eq!(exchange(Word::witness(true)), Outcome::Refused, "neither has room");
    main.store(full, Relaxed);
    // (Where main has its lower barrier the spare has an object.)
    assert_eq!(exchange(-24), Outcome::Done(()));
    let mut changed = before;
    changed.0.swap(1, 2);
    assert!(board.state() == changed && changed != before);
    assert_eq!(exchange(Word::witness(true)), Outcome::Done(()), "the spare has room, main has none");
    assert_eq!(board.state(), before);
}

type OnUnit = fn(Place<'_>) -> Outcome<()>;

fn on_units<const INDEX: isize>() -> [(&'static str, OnUnit); 5] {
    static THRESHOLD: AtomicU32 = AtomicU32::new(9);
    static CAP: AtomicU64 = AtomicU64::new(9);
    // SAFETY (of all of them): the units and the area are the test's own.
    [
        ("add", |place| unsafe { unit_seq::add::<INDEX>(place, 1) }),
        ("up", |place| unsafe { unit_seq::up::<INDEX>(place, 1, &THRESHOLD) }),
        ("down", |place| unsafe { unit_seq::down::<INDEX>(place, 1, &THRESHOLD) }),
        ("move_within", |place| unsafe { unit_seq::move_within::<INDEX>(place, 1, &CAP) }),
        ("swap", |place| unsafe { unit_seq::swap::<INDEX>(place, 0, 1) }),
    ]
}

/// A unit is its index's: an index that was never raised (all, while closed) and a thread that is not registered are
/// refused, and only the own copy is written.
#[test]
fn sequences_on_units_refuse_strangers() {
    let base = sys::map(0, 5 * UNIT, Access::ReadWrite).unwrap();
    // SAFETY: inside our own mapping.
    let copies = || [0, 1, 2, 3, 4].map(|unit| unsafe { &*((base + unit * UNIT) as *const AtomicU64) });
    for (name, run) in on_units::<{ rseq::MM_CID }>().into_iter().chain(on_units::<{ rseq::CPU_ID_START }>()) {
        for (index, cpu, high) in [(3, 0, 3), (3, 0, 0), (0, 0, 0), (3, u32::MAX, 4), (3, u32::MAX - 1, 4)] {
            let (made, high) = (Made::new(index, cpu), AtomicUsize::new(high));
            let place = Place { base: made.base(), high: &high, at: base };
            assert_eq!(run(place), Outcome::Refused, "{name} of index {index} on CPU {cpu} below {high:?}");
            assert!(copies().iter().all(|copy| copy.load(Relaxed) == 0), "{name}");
            assert_ne!(made.rseq_cs.get(), 0, "{name} announces itself");
        }
        let (made, high) = (Made::new(2, OWNER), AtomicUsize::new(3));
        assert_eq!(run(Place { base: made.base(), high: &high, at: base }), Outcome::Done(()), "{name}");
        assert_eq!(copies().map(|copy| copy.swap(0, Relaxed) != 0), [false, false, false, true, false], "{name}");
    }
    // SAFETY: nobody uses it any more.
    let _ = unsafe { sys::unmap(base, 5 * UNIT) };
}
