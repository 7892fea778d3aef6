//! Units in every mode. The sequences dawdle in test builds (see `arch`), so that
//! preemption falls into them.
#![allow(clippy::unwrap_used, unsafe_code, missing_docs)]

extern crate std;
use crate::arch::PAGE;
use crate::arch::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use crate::arch::outcome::Outcome;
use crate::arch::rseq::{self, Fence};
use crate::arch::seq::RseqArea;
use crate::arch::sys::{self, Access};
use crate::cpu::Simulation;
use crate::cpu::sim::Cpu;
use crate::percpu::units::{Handle, UNIT, Units};
use crate::stat::Mode;
use core::cell::Cell;
use core::num::NonZeroUsize;
use std::boxed::Box;
use std::vec::Vec;

/// Units that are open, with one chunk.
pub struct Fixture {
    pub units: Units,
    base: usize,
    next: Cell<usize>,
}
// SAFETY: tests allocate before they start threads.
unsafe impl Sync for Fixture {}

type Then = Box<dyn FnOnce()>;
std::thread_local! {
    static HERE: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
    static NEXT: Cell<Option<(u32, Then)>> = const { Cell::new(None) };
}
/// Puts this thread on a fake CPU.
pub fn stand(index: usize, cpu: u32) {
    HERE.with(|here| here.set((index, cpu)));
}

/// Where it stands.
pub fn here() -> (usize, u32) {
    match NEXT.take() {
        Some((0, then)) => then(),
        next => NEXT.set(next.map(|(left, then)| (left - 1, then))),
    }
    HERE.with(Cell::get)
}
/// Does `then` in the middle of what this thread does next: it has been asked so many times where it stands, and is
/// asked again.
pub fn between(asked: u32, then: impl FnOnce() + 'static) {
    NEXT.set(Some((asked, Box::new(then))));
}

/// The sequences' area, if this machine has one.
pub fn area() -> Option<RseqArea> {
    let (base, usable) = rseq::area().ok()?;
    let registered = rseq::word(base + rseq::CPU_ID) as i32 >= 0 && Fence.register().is_ok();
    let index = if usable >= rseq::MM_CID_BYTES { rseq::MM_CID } else { rseq::CPU_ID_START };
    registered.then_some(RseqArea { base, index: base + index })
}

impl Fixture {
    /// `None` where the mode cannot be had.
    pub fn new(mode: Mode, indices: usize) -> Option<Self> {
        Some(Self::open(mode, indices, if mode == Mode::Sequences { area()? } else { RseqArea::default() }, 1))
    }
    /// Fake CPUs that take turns on nodes.
    pub fn on_nodes(indices: usize, nodes: usize) -> Self {
        Self::open(Mode::Simulated, indices, RseqArea::default(), nodes)
    }
    /// Sequences by an area of the test's own.
    pub fn by_area(area: RseqArea) -> Self {
        Self::open(Mode::Sequences, 4096, area, 1)
    }
    /// Sequences by the CPU's number, as on kernels without `mm_cid`.
    pub fn by_cpu() -> Option<Self> {
        let area = area()?;
        Some(Self::open(Mode::Sequences, 4096, RseqArea { index: area.base + rseq::CPU_ID_START, ..area }, 1))
    }
    fn open(mode: Mode, indices: usize, area: RseqArea, nodes: usize) -> Self {
        let simulation = (mode == Mode::Simulated).then(|| {
            let cpus = || (0..indices).map(|_| Cpu::new()).collect::<Vec<_>>().leak() as &'static [Cpu];
            &*Box::leak(Box::new(Simulation { cpus: cpus(), indices: cpus(), here, nodes }))
        });
        let base = sys::map(0, (indices + 1) * UNIT, Access::ReadWrite).unwrap();
        let units = Units::new();
        // SAFETY: first of all, with this machine's own area.
        unsafe { units.open(mode, area, indices, simulation) };
        Self { units, base, next: Cell::new(64) }
    }
    pub fn alloc(&self, size: usize) -> Handle {
        let at = self.next.get();
        self.next.set((at + size).next_multiple_of(8));
        assert!(self.next.get() <= PAGE);
        // SAFETY: in unit 0 of the mapping.
        unsafe { Handle::new(NonZeroUsize::new(self.base + at).unwrap()) }
    }
    pub fn indices(mode: Mode) -> usize {
        if mode == Mode::Simulated { 64 } else { 4096 }
    }
}
impl Drop for Fixture {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        let _ = unsafe { sys::unmap(self.base, (self.units.indices() + 1) * UNIT) };
    }
}

pub const MODES: [Mode; 3] = [Mode::Sequences, Mode::Fallback, Mode::Simulated];

/// Runs `body` on six threads in every mode; simulated ones move among 64 CPUs.
fn everywhere(body: impl Fn(&Fixture, Handle, usize) + Sync, check: impl Fn(&Fixture, Handle)) {
    let fixtures = MODES.into_iter().map(|mode| Fixture::new(mode, Fixture::indices(mode)));
    for fixture in fixtures.chain([Fixture::by_cpu()]).flatten() {
        let at = fixture.alloc(16);
        let (fixture, body) = (&fixture, &body);
        crate::tests::threads::scope(|scope| {
            for number in 0..6 {
                scope.spawn(move || body(fixture, at, number));
            }
        });
        check(fixture, at);
    }
}

/// Moves now and then, in ways that make threads meet.
fn wander(step: usize, number: usize) {
    let index = (step / 7 + number * 3) % 64;
    stand(index, ((index * 5 + step / 50) % 64) as u32);
}

const ROUNDS: usize = 20_000;

#[test]
fn adds_are_never_lost() {
    everywhere(
        |fixture, at, number| {
            for step in 0..ROUNDS {
                wander(step, number);
                // SAFETY: an allocation.
                unsafe { fixture.units.add(at, 1 + number as u64) };
            }
        },
        // SAFETY: an allocation.
        |fixture, at| assert_eq!(unsafe { fixture.units.sum(at) }, (ROUNDS * 21) as u64),
    );
}

#[test]
fn adds_are_never_lost_while_forks_close() {
    everywhere(
        |fixture, at, number| {
            for step in 0..ROUNDS / 10 {
                wander(step, number);
                if number == 0 && step % 10 == 0 {
                    assert!(fixture.units.close());
                    assert!(fixture.units.is_closed());
                    fixture.units.raise(3);
                    fixture.units.reopen();
                }
                // SAFETY: an allocation.
                unsafe { fixture.units.add(at, 1) };
            }
        },
        // SAFETY: an allocation.
        |fixture, at| assert_eq!(unsafe { fixture.units.sum(at) }, (ROUNDS / 10 * 6) as u64),
    );
}

#[test]
fn bytes_keep_their_threshold_and_lose_nothing() {
    let threshold = AtomicU32::new(9);
    let total = AtomicU64::new(0);
    everywhere(
        |fixture, at, number| {
            for step in 0..ROUNDS {
                wander(step, number);
                let delta = [1, 3, -2, 9, -9, 1][(step + number) % 6];
                // SAFETY: an allocation.
                if unsafe { fixture.units.step(at, delta, &threshold) } != Outcome::Done(()) {
                    let out = Cell::new(0);
                    let change = |old: i8| {
                        let new = i32::from(old) + delta;
                        out.set(if new.abs() > 9 { new } else { 0 });
                        Some(if new.abs() > 9 { 0 } else { new as i8 })
                    };
                    // SAFETY: an allocation.
                    unsafe { fixture.units.change_byte(at, change) };
                    total.fetch_add(out.get() as u64, Relaxed);
                }
            }
        },
        |fixture, at| {
            let indices = (0..fixture.units.high()).map(Some).chain([None]);
            // SAFETY: an allocation.
            let bytes: Vec<i64> = indices.map(|index| i64::from(unsafe { fixture.units.byte(at, index) })).collect();
            assert!(bytes.iter().all(|byte| byte.abs() <= 9), "{bytes:?}");
            let value = bytes.iter().sum::<i64>() + total.swap(0, Relaxed) as i64;
            // Six threads; each sums 3 in six steps and begins at another of them.
            let expected: i64 =
                (0..6).flat_map(|n| (0..ROUNDS).map(move |step| [1, 3, -2, 9, -9, 1][(step + n) % 6])).sum();
            assert_eq!(value, expected);
        },
    );
}

#[test]
fn stocks_are_closed_by_their_cap() {
    let cap = AtomicU64::new(11);
    let spilled = AtomicU64::new(0);
    everywhere(
        |fixture, at, number| {
            for step in 0..ROUNDS {
                wander(step, number);
                let delta = [2_u64, 3, 5, 7][(step + number) % 4];
                // SAFETY: an allocation.
                let done = unsafe { fixture.units.move_within(at, delta, &cap) } == Outcome::Done(())
                    // SAFETY: an allocation.
                    || unsafe { fixture.units.move_slowly(at, delta, &cap) };
                if !done {
                    spilled.fetch_add(delta, Relaxed);
                    let back = 0_u64.wrapping_sub(delta);
                    // SAFETY: an allocation.
                    if unsafe { fixture.units.move_slowly(at, back, &cap) } {
                        spilled.fetch_add(delta, Relaxed);
                    }
                }
            }
        },
        |fixture, at| {
            cap.store(0, SeqCst);
            assert!(fixture.units.fence());
            // SAFETY: an allocation.
            assert!(!unsafe { fixture.units.move_slowly(at, 0, &cap) }, "a cap of 0 refuses everything");
            let stocks: u64 = (0..fixture.units.high())
                .map(|index| {
                    // SAFETY: closed and fenced.
                    let stock = unsafe { fixture.units.take_all(at, index) };
                    assert!(stock < 11, "{stock}");
                    stock
                })
                .sum();
            cap.store(11, SeqCst);
            let given: u64 = (0..6).flat_map(|n| (0..ROUNDS).map(move |step| [2_u64, 3, 5, 7][(step + n) % 4])).sum();
            assert_eq!(stocks + spilled.swap(0, Relaxed), given);
        },
    );
}

/// A CPU that the system did not call possible shares a copy; nobody writes behind the last.
#[test]
fn a_cpu_beyond_the_possible_ones_has_a_copy() {
    for mode in [Mode::Simulated, Mode::Fallback] {
        let fixture = Fixture::new(mode, 1).unwrap();
        let at = fixture.alloc(8);
        stand(9, 9);
        // (In the fallback this may run on CPU 0, which is possible.)
        assert_eq!(Some(fixture.units.this_cpu(at)), fixture.units.for_cpu(at, 0));
    }
    let fixture = Fixture::new(Mode::Simulated, 4).unwrap();
    let at = fixture.alloc(8);
    stand(6, 6);
    assert_eq!(Some(fixture.units.this_cpu(at)), fixture.units.for_cpu(at, 2));
    assert_eq!(fixture.units.high(), 3, "its copy counts as written");
    assert_eq!(fixture.units.for_cpu(at, 4), None);
}

#[test]
fn high_is_raised_by_who_comes_and_stays() {
    let fixture = Fixture::new(Mode::Simulated, 448).unwrap();
    let at = fixture.alloc(8);
    assert_eq!(fixture.units.high(), 1);
    for index in [5, 447, 7] {
        stand(index, index as u32);
        // SAFETY: an allocation.
        unsafe { fixture.units.add(at, 1) };
        assert!(fixture.units.high() > index);
    }
    assert_eq!(fixture.units.high(), 448);
    // SAFETY: an allocation.
    assert_eq!(unsafe { fixture.units.sum(at) }, 3);
    assert_eq!(Some(fixture.units.this_cpu(at)), fixture.units.for_cpu(at, 7));
    fixture.units.close();
    assert_eq!(fixture.units.high(), 448, "the true one, also while closed");
    // SAFETY: an allocation.
    unsafe { fixture.units.add(at, 1) };
    // SAFETY: nobody's word.
    assert_eq!(unsafe { *(at.address() as *const u64) }, 1, "nobody's, while closed");
    fixture.units.reopen();
    // SAFETY: an allocation.
    unsafe { fixture.units.add(at, 1) };
    // SAFETY: an allocation.
    assert_eq!(unsafe { fixture.units.sum(at) }, 5);
}
