//! Per-CPU memory from outside, in the mode that this machine gives.
#![allow(unsafe_code)] // frees addresses, forks

use allotment::percpu::{self, BadFree, BadPointer, Error, How, PerCpu};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: what is freed twice must not be another's by then.
static TURN: Mutex<()> = Mutex::new(());
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn typed_copies() {
    let _turn = turn();
    let value = PerCpu::<[AtomicU64; 3]>::new().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10_000).for_each(|_| _ = value.this_cpu()[1].fetch_add(1, Relaxed)));
        }
    });
    assert_eq!(value.sum(|copy| copy[1].load(Relaxed)), 40_000);
    assert_eq!(value.sum(|copy| copy[0].load(Relaxed) + copy[2].load(Relaxed)), 0);
    let last = percpu::indices() - 1;
    value.for_cpu(last).unwrap()[0].store(7, Relaxed);
    assert_eq!(percpu::indices_in_use(), last + 1);
    assert_eq!(value.sum(|copy| copy[0].load(Relaxed)), 7);
    assert!(value.for_cpu(last + 1).is_none());
    drop(value);
    // Zero again, also there.
    let value = PerCpu::<[AtomicU64; 3]>::new().unwrap();
    assert_eq!(value.sum(|copy| copy.iter().map(|word| word.load(Relaxed)).sum()), 0);
}

#[test]
fn errors_are_values() {
    let _turn = turn();
    assert_eq!(percpu::alloc(0, 8, How::Normal).unwrap_err(), Error::Size);
    assert_eq!(percpu::alloc(8, 3, How::Normal).unwrap_err(), Error::Align);
    assert_eq!(percpu::alloc(percpu::LARGEST + 1, 8, How::Normal).unwrap_err(), Error::TooLarge);
    let handle = percpu::alloc(100, 4, How::Normal).unwrap();
    let address = handle.address();
    // SAFETY: refused, all but one.
    unsafe {
        let bad = percpu::free(address + 4).unwrap_err();
        assert_eq!(bad, BadFree { address: address + 4, wrong: BadPointer::Interior });
        assert_eq!(bad.to_string(), format!("{:#x} is not the beginning of a live allocation", address + 4));
        percpu::free(address).unwrap();
        assert_eq!(percpu::free(address).unwrap_err().wrong, BadPointer::Double);
        assert_eq!(percpu::free(&raw const handle as usize).unwrap_err().wrong, BadPointer::Foreign);
    }
    // Of several, what is right is freed.
    let mut several: Vec<usize> = (0..100).map(|_| percpu::alloc(300, 4, How::Normal).unwrap().address()).collect();
    several.insert(50, several[20]);
    // SAFETY: nobody uses them.
    let bad = unsafe { percpu::free_bulk(&several) }.unwrap_err();
    assert_eq!(bad, BadFree { address: several[20], wrong: BadPointer::Double });
    for address in several {
        // SAFETY: refused.
        assert!(unsafe { percpu::free(address) }.is_err());
    }
    let mut text = String::new();
    percpu::report(&mut text).unwrap();
    assert!(text.contains("nr_cur_alloc") && text.contains("<- First Chunk"), "{text}");
}

/// A child goes on with what it inherited, whatever threads did meanwhile.
#[test]
fn fork() {
    let _turn = turn();
    let kept = PerCpu::<AtomicU32>::new().unwrap();
    kept.this_cpu().store(5, Relaxed);
    let stop = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut values = vec![];
                while stop.load(Relaxed) == 0 {
                    values.push(PerCpu::<[AtomicU64; 20]>::new().unwrap());
                    if values.len() > 300 {
                        values.clear();
                    }
                }
            });
        }
        for _ in 0..20 {
            // SAFETY: the child uses per-CPU memory only, and leaves by `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let fine = (0..500).all(|_| {
                    PerCpu::<[AtomicU64; 20]>::new().is_ok_and(|new| new.this_cpu()[3].fetch_add(1, Relaxed) == 0)
                }) && kept.sum(|copy| copy.load(Relaxed).into()) == 5;
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(!fine)) };
            }
            let mut status = 0;
            // SAFETY: waits for the child.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
        stop.store(1, Relaxed);
    });
}
