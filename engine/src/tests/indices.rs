//! Units on areas that a test fills in itself, which no kernel knows: whatever index it likes, or none; and what closes them.
#![allow(clippy::unwrap_used, unsafe_code, missing_docs)]

extern crate std;
use super::units::{Fixture, stand};
use crate::arch::atomic::{AtomicU32, AtomicU64};
use crate::arch::outcome::Outcome;
use crate::arch::rseq;
use crate::arch::seq::RseqArea;
use crate::arch::sys::{self, Access};
use crate::percpu::units::{Handle, UNIT, Units};
use crate::stat::Mode;
use crate::tests::threads;
use core::cell::UnsafeCell;
use core::num::NonZeroUsize;
use std::boxed::Box;

/// Words before an area and of it; those around hold what no index and no CPU is.
const BEFORE: usize = 16;
const WORDS: usize = 16;
#[repr(align(64))]
struct Own(UnsafeCell<[u32; BEFORE + WORDS]>);
std::thread_local! {
    static OWN: Own = const { Own(UnsafeCell::new([u32::MAX; BEFORE + WORDS])) };
}

/// Fills the thread's area in: `cpu` is what a sequence finds, `start` what others do. The area's distance.
fn fill(start: u32, cpu: u32, cid: u32) -> isize {
    OWN.with(|own| {
        let mut words = [u32::MAX; BEFORE + WORDS];
        let at = |offset: isize| BEFORE + offset as usize / 4;
        words[at(rseq::CPU_ID_START)] = start;
        words[at(rseq::CPU_ID)] = cpu;
        words[at(rseq::MM_CID)] = cid;
        // SAFETY: the thread's own, in which no kernel writes.
        unsafe { *own.0.get() = words };
        own.0.get() as isize + BEFORE as isize * 4 - sys::thread_pointer() as isize
    })
}

/// A word of a copy, or of nobody's.
fn word(at: Handle, index: Option<usize>) -> u64 {
    let address = at.address() + index.map_or(0, |index| (index + 1) * UNIT);
    // SAFETY: an allocation, in units that are mapped.
    unsafe { *(address as *const u64) }
}

/// By each of the two words that are an index: which one it is, of the two that [`fill`] gets.
const BY: [(isize, bool); 2] = [(rseq::CPU_ID_START, false), (rseq::MM_CID, true)];

#[test]
fn a_copy_is_that_of_the_word_that_is_the_index() {
    let (threshold, cap) = (AtomicU32::new(3), AtomicU64::new(10));
    for (offset, by_cid) in BY {
        for (cpu, cid) in [(5, 9), (0, 9), (9, 0)] {
            let base = fill(cpu, cpu, cid);
            let fixture = Fixture::by_area(RseqArea { base, index: base + offset });
            let (units, index) = (&fixture.units, if by_cid { cid } else { cpu } as usize);
            assert!(!units.is_closed());
            assert_eq!((units.mode(), units.here(), units.high()), (Mode::Sequences, index, 1));
            let [sum, byte, stock, changed] = [8; 4].map(|size| fixture.alloc(size));
            // SAFETY: allocations, each used in its way.
            unsafe {
                units.add(sum, 1);
                assert_eq!((units.high(), word(sum, Some(index)), word(sum, None)), (index + 1, 1, 0));
                units.add(sum, 2);
                assert_eq!((units.sum(sum), word(sum, Some(index))), (3, 3));
                assert_eq!(units.this_cpu(sum), sum.address() + (index + 1) * UNIT);
                for (delta, done, after) in
                    [(3, true, 3), (1, false, 3), (-6, true, -3), (-1, false, -3), (0, true, -3), (6, true, 3)]
                {
                    let outcome = if done { Outcome::Done(()) } else { Outcome::Refused };
                    assert_eq!(units.step(byte, delta, &threshold), outcome, "{delta}");
                    assert_eq!(units.byte(byte, Some(index)), after, "{delta}");
                }
                units.set_byte(byte, Some(index), 5);
                assert_eq!(units.step(byte, 0, &threshold), Outcome::Refused, "beyond, and no way down");
                assert_eq!(units.move_within(stock, 9, &cap), Outcome::Done(()));
                assert_eq!(units.move_within(stock, 1, &cap), Outcome::Refused);
                assert!(!units.move_slowly(stock, 1, &cap));
                assert!(units.move_slowly(stock, 0_u64.wrapping_sub(4), &cap));
                assert_eq!(word(stock, Some(index)), 5);
                assert!(units.change_byte(changed, |old| Some(old + 4)));
                assert!(!units.change_byte(changed, |_| None));
                assert_eq!((units.byte(changed, Some(index)), units.byte(changed, None)), (4, 0));
            }
            assert!(!units.nobody_used());
        }
        // A byte, where the index is new.
        let base = fill(6, 6, 7);
        let fixture = Fixture::by_area(RseqArea { base, index: base + offset });
        let at = fixture.alloc(8);
        // SAFETY: an allocation.
        unsafe {
            assert!(fixture.units.change_byte(at, |old| Some(old - 2)));
            assert_eq!(fixture.units.byte(at, Some(if by_cid { 7 } else { 6 })), -2);
        }
        assert!(!fixture.units.nobody_used());
    }
}

/// A thread that the kernel does not know, and an index that cannot be: both work on nobody's, and raise nothing.
#[test]
fn who_has_no_index_works_on_nobodys() {
    let (unknown, far) = (u32::MAX, 0x7fff_0000);
    for (offset, _) in BY {
        for (start, cpu, cid) in [(5, unknown, 9), (far, far, far)] {
            let base = fill(start, cpu, cid);
            let fixture = Fixture::by_area(RseqArea { base, index: base + offset });
            let units = &fixture.units;
            let [sum, byte, stock] = [8; 3].map(|size| fixture.alloc(size));
            assert!(!units.nobody_used());
            // SAFETY: allocations, each used in its way.
            unsafe {
                units.add(sum, 3);
                assert!(units.nobody_used(), "{cpu:#x}");
                assert_eq!((units.sum(sum), word(sum, None), units.high()), (3, 3, 1), "{cpu:#x}");
                assert!(units.change_byte(byte, |old| Some(old + 1)));
                assert!(!units.change_byte(byte, |_| None));
                assert_eq!((units.byte(byte, None), units.high()), (1, 1), "{cpu:#x}");
                assert!(!units.move_slowly(stock, 1, &AtomicU64::new(9)), "never");
            }
        }
    }
}

/// Units of one index, whose memory ends where the next one's would begin; what is there cannot be read.
struct Single {
    units: Units,
    base: usize,
}
impl Single {
    fn new(mode: Mode, area: RseqArea) -> Self {
        let base = sys::map(0, 3 * UNIT, Access::ReadWrite).unwrap();
        // SAFETY: ours; nobody reads it.
        assert_eq!(unsafe { libc::mprotect((base + 2 * UNIT) as *mut libc::c_void, UNIT, libc::PROT_NONE) }, 0);
        let units = Units::new();
        // SAFETY: first of all.
        unsafe { units.open(mode, area, 1, None) };
        Self { units, base }
    }
    fn at(&self, offset: usize) -> Handle {
        // SAFETY: in unit 0 of the mapping.
        unsafe { Handle::new(NonZeroUsize::new(self.base + offset).unwrap()) }
    }
}
impl Drop for Single {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        let _ = unsafe { sys::unmap(self.base, 3 * UNIT) };
    }
}

#[test]
fn the_index_behind_the_last_has_no_copy() {
    let check = |single: &Single| {
        let (units, sum, byte, stock) = (&single.units, single.at(64), single.at(72), single.at(80));
        // SAFETY: allocations, each used in its way.
        unsafe {
            units.add(sum, 1);
            assert_eq!((word(sum, None), units.high()), (1, 1));
            assert!(units.change_byte(byte, |old| Some(old + 1)));
            assert_eq!((units.byte(byte, None), units.high()), (1, 1));
            assert!(!units.move_slowly(stock, 1, &AtomicU64::new(9)));
        }
    };
    for (offset, _) in BY {
        let base = fill(1, 1, 1);
        check(&Single::new(Mode::Sequences, RseqArea { base, index: base + offset }));
    }
    // The fallback's index is the CPU: on one that is not the first, if there is one.
    on_cpu(1, || check(&Single::new(Mode::Fallback, RseqArea::default())));
}

/// Does something on a CPU, if there is such a one for this process.
fn on_cpu(cpu: usize, then: impl FnOnce() + Send) {
    threads::scope(|scope| {
        scope.spawn(move || {
            // SAFETY: bits of a set, and this thread's own.
            let moved = unsafe {
                let mut set: libc::cpu_set_t = core::mem::zeroed();
                libc::CPU_SET(cpu, &mut set);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
            };
            if moved {
                then();
            }
        });
    });
}

/// The fallback works on copies, by locked operations; only in it and in simulations no sequence is tried.
#[test]
fn copies_are_used_in_every_mode_and_nobodys_while_closed() {
    let cap = AtomicU64::new(10);
    let base = fill(3, 3, 3);
    let sequences = Fixture::by_area(RseqArea { base, index: base + rseq::CPU_ID_START });
    let others = [Mode::Fallback, Mode::Simulated].map(|mode| Fixture::new(mode, Fixture::indices(mode)).unwrap());
    for fixture in others.into_iter().chain([sequences]) {
        stand(0, 0);
        let (units, [sum, byte, stock]) = (&fixture.units, [8; 3].map(|size| fixture.alloc(size)));
        // SAFETY: allocations, each used in its way.
        unsafe {
            units.add(sum, 5);
            assert!(units.change_byte(byte, |old| Some(old + 3)));
            assert!(units.move_slowly(stock, 4, &cap));
            assert_eq!((units.sum(sum), word(sum, None), units.byte(byte, None)), (5, 0, 0));
            if units.mode() != Mode::Sequences {
                assert_eq!(units.step(byte, 1, &AtomicU32::new(9)), Outcome::Refused);
                assert_eq!(units.move_within(stock, 1, &cap), Outcome::Refused);
            }
        }
        assert!(!units.is_closed() && !units.nobody_used());
        // (The kernel may not have been asked for fences.)
        let _ = units.close();
        assert!(units.is_closed());
        // SAFETY: as above.
        unsafe {
            units.add(sum, 7);
            assert_eq!(units.sum(sum), 12);
            assert_eq!(word(sum, None), if units.mode() == Mode::Fallback { 0 } else { 7 });
        }
        assert_eq!(units.nobody_used(), units.mode() != Mode::Fallback);
        units.reopen();
        assert!(!units.is_closed());
        // SAFETY: as above.
        unsafe {
            units.add(sum, 1);
            assert_eq!((units.sum(sum), word(sum, None) % 7), (13, 0));
        }
    }
}

#[test]
fn a_stock_stays_below_its_cap_where_there_are_no_sequences() {
    let cap = AtomicU64::new(10);
    for mode in [Mode::Fallback, Mode::Simulated] {
        let fixture = Fixture::new(mode, Fixture::indices(mode)).unwrap();
        stand(0, 0);
        let at = fixture.alloc(8);
        // SAFETY: an allocation; what another CPU has of it begins at 0 (the fallback's thread may move).
        unsafe {
            assert!(!fixture.units.move_slowly(at, 10, &cap));
            assert!(fixture.units.move_slowly(at, 9, &cap));
        }
    }
}

#[test]
fn nobodys_is_used_by_whoever_says_so() {
    let uses: [fn(&Units, Handle); 4] = [
        |units, _| units.use_nobody(),
        // SAFETY: an allocation.
        |units, at| unsafe { units.set_byte(at, None, 3) },
        |units, at| {
            units.close();
            // SAFETY: an allocation.
            assert!(unsafe { units.change_byte(at, |old| Some(old + 1)) });
        },
        |units, at| {
            units.close();
            // SAFETY: an allocation.
            unsafe { units.add(at, 1) };
        },
    ];
    for uses in uses {
        let fixture = Fixture::new(Mode::Simulated, 4).unwrap();
        stand(0, 0);
        let at = fixture.alloc(8);
        // SAFETY: an allocation.
        unsafe { fixture.units.set_byte(at, Some(0), 0) };
        assert!(!fixture.units.nobody_used());
        uses(&fixture.units, at);
        assert!(fixture.units.nobody_used());
    }
}

#[test]
fn an_index_that_cannot_be_raises_nothing() {
    let fixture = Fixture::new(Mode::Simulated, 4).unwrap();
    let (units, at) = (&fixture.units, fixture.alloc(8));
    for index in [4, 5, usize::MAX - 1] {
        assert_eq!(units.for_cpu(at, index), None);
        units.raise(index);
        assert_eq!(units.high(), 1, "{index}");
    }
    let fixture = Fixture::new(Mode::Simulated, 4).unwrap();
    let (units, at) = (&fixture.units, fixture.alloc(8));
    stand(1, 1);
    assert_eq!(units.this_cpu(at), at.address() + 2 * UNIT);
    assert_eq!(units.high(), 2, "it may be written from now on");
    assert_eq!(units.for_cpu(at, 2), Some(at.address() + 3 * UNIT));
    assert_eq!(units.high(), 3, "and so may this");
    units.raise(3);
    units.raise(0);
    assert_eq!(units.high(), 4);
}

/// Every sequence does what its contract says, and there are fences; else there are none to be used.
#[test]
fn sequences_pass_their_own_test_and_nothing_else_does() {
    threads::spawn(|| ()).join().unwrap();
    let fences = rseq::Fence.register().is_ok();
    for (offset, _) in BY {
        let base = fill(2, 2, 2);
        let fixture = Fixture::by_area(RseqArea { base, index: base + offset });
        let at = fixture.alloc(8);
        for confined in [false, true] {
            // SAFETY: an allocation.
            assert_eq!(unsafe { fixture.units.self_test(at) }, fences && !confined);
            assert_eq!([word(at, None), word(at, Some(2))], [0, 0], "left as it was");
            fixture.units.confine();
        }
    }
    let fixture = Fixture::new(Mode::Fallback, 4096).unwrap();
    let at = fixture.alloc(8);
    // SAFETY: an allocation.
    assert!(!unsafe { fixture.units.self_test(at) });
}

/// An area that may not be used, because there are no fences, is not.
#[test]
fn the_fallback_leaves_the_area_alone() {
    on_cpu(0, || {
        for (offset, _) in BY {
            let base = fill(0, 0, 0);
            let single = Single::new(Mode::Fallback, RseqArea { base, index: base + offset });
            let at = single.at(64);
            // SAFETY: an allocation.
            unsafe { single.units.add(at, 1) };
            assert_eq!((word(at, Some(0)), word(at, None)), (1, 0));
        }
    });
}

#[test]
fn nodes_are_those_of_the_cpus() {
    let fixture = Fixture::on_nodes(4, 2);
    for cpu in [1, 0, 3, 2] {
        stand(0, cpu);
        assert_eq!(fixture.units.node(), cpu as usize % 2);
    }
}

#[test]
fn units_that_are_opened_while_a_fork_is_in_flight_stay_closed_until_it_ends() {
    let base = fill(2, 2, 2);
    for offset in [rseq::CPU_ID_START, rseq::MM_CID] {
        let units = Units::new();
        assert!(units.close());
        let memory = sys::map(0, 5 * UNIT, Access::ReadWrite).unwrap();
        // SAFETY: first of all; the area is the test's own.
        unsafe { units.open(Mode::Sequences, RseqArea { base, index: base + offset }, 4, None) };
        // SAFETY: in unit 0 of the mapping.
        let at = unsafe { Handle::new(NonZeroUsize::new(memory + 64).unwrap()) };
        units.raise(2);
        // SAFETY: an allocation.
        unsafe { units.add(at, 1) };
        assert_eq!((word(at, None), word(at, Some(2))), (1, 0));
        units.reopen();
        // SAFETY: an allocation.
        unsafe { units.add(at, 1) };
        assert_eq!((word(at, None), word(at, Some(2))), (1, 1));
        // SAFETY: nobody uses it any more.
        assert!(unsafe { sys::unmap(memory, 5 * UNIT) }.is_ok());
    }
}

/// A child inherits the vforks of its thread and no more; a parent keeps what it has.
#[test]
fn a_child_is_closed_by_the_vforks_that_its_thread_has_in_flight() {
    for (child, vforks, closed) in [(true, 2, 2), (true, 0, 0), (false, 2, 0)] {
        let fixture = Fixture::new(Mode::Simulated, 4).unwrap();
        let units = &fixture.units;
        assert!(units.fork_begin(u32::MAX));
        assert!(units.is_closed());
        units.fork_end(child, vforks);
        for _ in 0..closed {
            assert!(units.is_closed());
            units.reopen();
        }
        assert!(!units.is_closed(), "{child} {vforks}");
    }
}

#[test]
fn a_fence_is_refused_where_system_calls_are_filtered() {
    threads::spawn(|| ()).join().unwrap();
    let base = fill(0, 0, 0);
    let fixture = Fixture::by_area(RseqArea { base, index: base + rseq::MM_CID });
    fixture.units.confine();
    assert!(!fixture.units.fence());
    let fixture = Fixture::new(Mode::Simulated, 4).unwrap();
    assert!(fixture.units.fence());
}

/// Who folds one counter does not wait for who folds its neighbour.
#[test]
fn neighbours_are_folded_side_by_side() {
    let fixture: &'static Fixture = Box::leak(Box::new(Fixture::new(Mode::Simulated, 4).unwrap()));
    let [first, second] = [8; 2].map(|size| fixture.alloc(size));
    let held = fixture.units.folding(first);
    let (tell, hear) = std::sync::mpsc::channel();
    threads::spawn(move || {
        drop(fixture.units.folding(second));
        let _ = tell.send(());
    });
    assert_eq!(hear.recv_timeout(std::time::Duration::from_secs(20)), Ok(()), "it waits");
    drop(held);
}
