//! Who runs where, fences, and the switch that forks turn.
#![allow(clippy::unwrap_used, unsafe_code, missing_docs)]

extern crate std;
use super::units;
use crate::arch::rseq::Fence;
use crate::arch::seq::RseqArea;
use crate::arch::sys;
use crate::cpu::sim::Cpu;
use crate::cpu::{Cpus, Simulation};
use crate::stat::Mode;
use crate::tests::threads;
use core::cell::Cell;

fn cpus(mode: Mode, area: RseqArea, simulation: Option<&'static Simulation>) -> Cpus {
    let cpus = Cpus::new();
    // SAFETY: nobody else uses it; an area of this thread.
    unsafe { cpus.open(mode, area, simulation) };
    cpus
}

/// The words of an area that no kernel knows.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(allotment_other)))]
#[test]
fn sequences_are_where_the_area_says() {
    use super::sequences::{Made, REST};
    use crate::arch::rseq;
    use crate::cpu::NODES;
    let made = Made::new(3, 5);
    let area = made.area();
    let by_mm_cid = cpus(Mode::Sequences, area, None);
    assert_eq!((by_mm_cid.area().base, by_mm_cid.area().index), (area.base, area.index));
    assert_eq!((by_mm_cid.here(), by_mm_cid.index()), ((3, 5), 3));
    assert_eq!(by_mm_cid.nodes(), 0);
    assert_eq!((by_mm_cid.node(), by_mm_cid.nodes()), (REST as usize % NODES, REST as usize % NODES + 1));
    // An area that ends before there would be a node: the system is asked.
    let by_cpu = cpus(Mode::Sequences, RseqArea { index: area.base + rseq::CPU_ID_START, ..area }, None);
    let (before, node, after) = (sys::current_node(), by_cpu.node(), sys::current_node());
    assert!(before != after || node == before as usize % NODES, "{node}, not {before}");
}

/// Under a filter of system calls, fences are refused; where one thread is alone it needs none.
#[test]
fn who_filters_its_calls_has_no_fences() {
    let Some(area) = units::area() else { return };
    let cpus = cpus(Mode::Sequences, area, None);
    let fences = || (cpus.fence_cpu(0), cpus.fence_all());
    assert!(cpus.fence_all());
    cpus.confine();
    assert_eq!(fences(), (false, false));
    unsafe extern "C" {
        static mut __libc_single_threaded: u8;
    }
    // SAFETY: the child has one thread, uses memory of its own and ends.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            __libc_single_threaded = 1;
            // (Another test of the same process may have said that it shares its memory.)
            libc::_exit(i32::from(sys::single_threaded() && fences() != (true, true)));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        status
    };
    assert_eq!(status, 0);
}

#[test]
fn a_fence_interrupts_the_sequences_of_its_cpus() {
    let simulation = Simulation::own(2, 1, || (0, 0));
    let cpus = cpus(Mode::Simulated, RseqArea::default(), Some(simulation));
    let run = || [0, 1].map(|cpu| simulation.cpus[cpu].begin());
    let [first, second] = run();
    assert!(cpus.fence_cpu(1));
    assert!(first.step(|| ()).is_ok() && second.step(|| ()).is_err());
    assert!(cpus.fence_cpu(2), "nobody runs there");
    let [first, second] = run();
    assert!(cpus.fence_all());
    assert!(first.step(|| ()).is_err() && second.step(|| ()).is_err());
}

#[test]
fn a_sequence_is_over_when_its_cpu_or_index_has_another() {
    let (cpus, indices) = ([Cpu::new(), Cpu::new()], [Cpu::new(), Cpu::new()]);
    let first = cpus[0].begin_with(&indices[0]);
    assert_eq!(first.step(|| 7).unwrap(), 7);
    let second = cpus[1].begin_with(&indices[0]);
    assert!(first.step(|| ()).is_err(), "the index moved");
    assert_eq!(second.step(|| 7).unwrap(), 7);
    let third = cpus[1].begin_with(&indices[1]);
    assert!(second.step(|| ()).is_err(), "the CPU was taken");
    assert!(third.step(|| ()).is_ok());
}

#[test]
fn the_last_that_reopens_turns_it_on() {
    let (cpus, is_on) = (cpus(Mode::Fallback, RseqArea::default(), None), Cell::new(true));
    let reopen = || {
        cpus.reopen(|_| is_on.set(true));
        (is_on.get(), cpus.is_closed())
    };
    for _ in 0..2 {
        assert!(cpus.close(|| is_on.set(false)));
        assert_eq!((is_on.get(), cpus.is_closed()), (false, true));
    }
    assert_eq!(reopen(), (false, true));
    assert_eq!(reopen(), (true, false));
}

/// A forked child is closed by its own vforks and the fork; threads that are not there have nothing.
#[test]
fn a_child_has_what_its_thread_had() {
    let cpus = cpus(Mode::Fallback, RseqArea::default(), None);
    let on = Cell::new(0);
    (0..5).for_each(|_| assert!(cpus.close(|| ())));
    threads::scope(|scope| scope.spawn(|| core::mem::forget(cpus.lock())).join().unwrap());
    assert!(cpus.try_lock().is_none());
    cpus.inherit(1);
    assert!(cpus.try_lock().is_some());
    for (wanted, is_closed) in [(0, true), (1, false)] {
        cpus.reopen(|_| on.set(on.get() + 1));
        assert_eq!((on.get(), cpus.is_closed()), (wanted, is_closed));
    }
}

/// Whoever forks finds the owner of the bias outside; a child of another thread's has no owner, one of its own keeps it.
#[test]
fn a_child_has_the_bias_of_its_own_thread() {
    let cpus = cpus(Mode::Fallback, RseqArea::default(), None);
    if Fence.register_barrier().is_err() {
        return;
    }
    cpus.bias.grant(3);
    assert!(cpus.bias.is_mine() && cpus.here() == (3, 3) && cpus.may_use());
    assert!(cpus.close(|| ()));
    cpus.inherit(0);
    assert!(cpus.bias.is_mine());
    let inside = cpus.bias.enter().unwrap();
    // A handler that interrupts it: no second time, no drain, but forks, in which the frame below goes on.
    assert!(cpus.bias.enter().is_none() && !cpus.may_use() && !cpus.fence_all() && cpus.close(|| ()));
    let others = || threads::scope(|scope| scope.spawn(|| (cpus.fence_all(), cpus.may_use())).join().unwrap());
    assert_eq!(others(), (false, false));
    // Taken away, but not yet somebody's.
    assert!(!cpus.bias.is_granted() && !cpus.may_use());
    drop(inside);
    assert!(cpus.bias.enter().is_none());
    assert_eq!(others(), (true, true));
    assert!(cpus.may_use() && cpus.fence_all());
    cpus.bias.grant(3);
    threads::scope(|scope| scope.spawn(|| cpus.inherit(0)).join().unwrap());
    assert!(!cpus.bias.is_granted() && cpus.may_use());
}
