//! The caches alone, without a heap: sets of fake CPUs, or of an rseq area that the test made, over a bag of numbers.
#![cfg(not(allotment_models))] // (The models compile the engine's files over a machine of their own.)
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)] // numbers for objects, and memory of the tests' own

use super::sets::room::Room;
use super::{Cache, Sets, Sheaf, Source};
use crate::arch::seq::RseqArea;
use crate::cpu::Simulation;
use crate::knob::Id;
use crate::stat::{Event, Mode};
use crate::tests::units::{here, stand};
use std::cell::{Cell, RefCell};

mod barns;
mod boards;
mod budget;
mod drains;
mod idle;
mod indices;
mod refused;
mod tallies;
mod walk;

/// Sets of so many fake CPUs, which take turns on nodes; this thread stands on the first.
pub(super) fn simulate(sets: &Sets, cpus: usize, nodes: usize) -> &'static Simulation {
    let simulation = Simulation::own(cpus, nodes, here);
    unsafe { sets.open(Room::whole().unwrap().base, Mode::Simulated, RseqArea::default(), Some(simulation)) };
    stand(0, 0);
    simulation
}

/// Caches of fake CPUs, with sheaves of so many objects.
fn caches(cpus: usize, nodes: usize, objects: u64, size: usize) -> &'static Cache {
    let cache: &'static Cache = Box::leak(Box::default());
    cache.knobs.reset();
    cache.knobs.set(Id::SheafObjects as usize, objects);
    cache.size_classes([size; 64].into_iter());
    simulate(&cache.sets, cpus, nodes);
    cache
}

/// How often each of these was counted.
fn events<const N: usize>(sets: &Sets, of: [Event; N]) -> [u64; N] {
    of.map(|event| sets.event(event))
}

type Then = (usize, Box<dyn FnOnce()>);

/// A bag of numbers, all of one size.
struct Bag {
    size: Cell<usize>,
    objects: RefCell<Vec<usize>>,
    is_near: Cell<bool>,
    is_scattered: Cell<bool>,
    /// The class that is.
    hollow: Cell<usize>,
    /// What somebody else does when the size is asked for, which is in the middle of most things; after so many such moments.
    then: Cell<Option<Then>>,
}

impl Bag {
    fn new(size: usize, objects: usize) -> Self {
        Self {
            size: Cell::new(size),
            objects: RefCell::new((1..=objects).map(|at| at << 4).collect()),
            is_near: Cell::new(true),
            is_scattered: Cell::new(false),
            hollow: Cell::new(0),
            then: Cell::new(None),
        }
    }
    fn len(&self) -> usize {
        self.objects.borrow().len()
    }
    fn meanwhile(&self, moments: usize, then: impl FnOnce() + 'static) {
        self.then.set(Some((moments, Box::new(then))));
    }
}

impl Source for Bag {
    fn fill(&self, _: usize, sheaf: &mut Sheaf, n: usize) {
        let mut objects = self.objects.borrow_mut();
        let from = objects.len().saturating_sub(n);
        objects.drain(from..).for_each(|object| assert!(sheaf.push(object)));
    }
    fn flush(&self, _: usize, sheaf: &mut Sheaf) {
        assert!(!sheaf.is_empty(), "an empty sheaf is no flush");
        self.objects.borrow_mut().extend_from_slice(sheaf.objects());
        sheaf.clear();
    }
    fn take(&self, _: usize) -> Option<usize> {
        self.objects.borrow_mut().pop()
    }
    fn give(&self, _: usize, object: usize) {
        self.objects.borrow_mut().push(object);
    }
    fn size(&self, _: usize) -> usize {
        match self.then.take() {
            Some((0, then)) => then(),
            other => self.then.set(other.map(|(moments, then)| (moments - 1, then))),
        }
        self.size.get()
    }
    fn is_near(&self, _: usize) -> bool {
        self.is_near.get()
    }
    fn is_hollow(&self, class: usize) -> bool {
        self.hollow.get() == class
    }
    fn is_scattered(&self, _: usize, objects: &[usize]) -> bool {
        assert!(!objects.is_empty());
        self.is_scattered.get()
    }
}

/// Sets reached by the processor's own sequences, in an area that says who runs this thread: no move of the thread changes that.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(allotment_other)))]
pub(super) mod made {
    use super::*;
    pub use crate::tests::sequences::Made;

    /// From now on this thread is who `made` says.
    pub fn stand_as(sets: &Sets, made: &Made) {
        unsafe { sets.cpus.open(Mode::Sequences, made.area(), None) };
    }

    /// Fresh sets for index 3, on CPU 5; none where the system has no fences for sequences.
    pub fn open(sets: &Sets) -> Option<Box<Made>> {
        crate::arch::rseq::Fence.register().ok()?;
        let made = Made::new(3, 5);
        unsafe { sets.open(Room::whole().unwrap().base, Mode::Sequences, made.area(), None) };
        Some(made)
    }
}
