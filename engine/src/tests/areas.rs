//! Sequences on rseq areas that the test registers by itself, of every length that there is: 32 bytes, which every kernel knows
//! and keeps as it always did, and longer ones, in which Linux 7.1 writes its words only when they change and kills who
//! writes them. And beside a program that has its time slices extended (Linux 7.0, where it is configured).
#![allow(clippy::unwrap_used, unsafe_code, missing_docs)]

extern crate std;
use super::units::Fixture;
use crate::arch::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use crate::arch::rseq::{self, Fence, Told};
use crate::arch::seq::RseqArea;
use crate::arch::{SIGNATURE, sys};
use crate::tests::threads;
use core::cell::UnsafeCell;
use std::{eprintln, thread};

const WORDS: usize = 16;
const UNTOUCHED: u32 = 0xa5a5_a5a5;
/// Words behind the last field of today's kernels (`end`, at 33), which no kernel of today writes.
const BEHIND: core::ops::Range<usize> = 9..WORDS;

/// A thread's own area; without a destructor, so that it is at the same distance from every thread pointer.
#[repr(align(64))]
struct Own(UnsafeCell<[u32; WORDS]>);

std::thread_local! {
    static OWN: Own = const { Own(UnsafeCell::new([UNTOUCHED; WORDS])) };
}

/// The calling thread's, while it is registered in place of the C library's.
struct Registered {
    at: usize,
    bytes: usize,
}

fn rseq_call(at: usize, bytes: usize, flags: usize) -> bool {
    // SAFETY: the thread's own area, which lives as long as it is registered.
    unsafe { libc::syscall(libc::SYS_rseq, at, bytes, flags, SIGNATURE) == 0 }
}

impl Registered {
    const UNREGISTER: usize = 1;

    fn offset() -> isize {
        OWN.with(|own| own.0.get() as isize) - sys::thread_pointer() as isize
    }
    /// `None` if the kernel takes no area of that length.
    fn new(bytes: usize) -> Option<Self> {
        if let Some(Told { offset, size: size @ 1.., .. }) = rseq::told() {
            let at = (sys::thread_pointer() as isize + offset) as usize;
            assert!(rseq_call(at, size.max(32), Self::UNREGISTER), "{size}");
        }
        let at = OWN.with(|own| {
            let mut words = [UNTOUCHED; WORDS];
            words[..BEHIND.start].fill(0);
            // SAFETY: nobody else's, and not registered yet.
            unsafe { *own.0.get() = words };
            own.0.get() as usize
        });
        rseq_call(at, bytes, 0).then_some(Self { at, bytes })
    }
    /// As the kernel sees it.
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at < WORDS);
        // SAFETY: in the thread's area; the kernel writes it, and nobody else.
        unsafe { &*(self.at as *const AtomicU32).add(at) }
    }
    /// `slice_ctrl`: request, granted.
    fn slice(&self) -> [&AtomicU8; 2] {
        // SAFETY: as above.
        [28, 29].map(|at| unsafe { &*((self.at + at) as *const AtomicU8) })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let untouched = BEHIND.into_iter().all(|at| self.word(at).load(Relaxed) == UNTOUCHED);
        assert!(untouched || thread::panicking(), "somebody wrote behind the last field");
        assert!(rseq_call(self.at, self.bytes, Self::UNREGISTER), "the thread would end with it");
    }
}

/// The lengths that there are here: the old one, the shortest long one, and a whole line.
fn lengths() -> impl Iterator<Item = usize> {
    let there = |bytes| threads::spawn(move || Registered::new(bytes).is_some()).join().unwrap();
    let feature = rseq::told().map_or(0, |told| told.feature);
    [32, 33, 64].into_iter().filter(move |&bytes| {
        let there = there(bytes);
        // Before Linux 6.3 there is one length; a sandbox may have none at all.
        assert!(there || bytes > 32 && feature == 0 || rseq::area().is_err(), "{bytes} of {feature} refused");
        there
    })
}

/// Six threads on two CPUs or more add, move and are fenced on areas of the same kind, and nothing is lost.
#[test]
#[cfg_attr(allotment_other, ignore = "no sequences are written there")]
fn sequences_run_on_areas_of_every_length() {
    const ROUNDS: u64 = 100_000;
    if Fence.register().is_err() {
        return eprintln!("skipped: the kernel refuses membarrier");
    }
    let feature = rseq::told().map_or(0, |told| told.feature);
    for bytes in lengths() {
        let told = Told { offset: Registered::offset(), size: bytes, feature };
        let indices = [(rseq::CPU_ID_START, 20), (rseq::MM_CID, rseq::MM_CID_BYTES)];
        for (index, _) in indices.into_iter().filter(|&(_, needs)| told.usable() >= needs) {
            let fixture = Fixture::by_area(RseqArea { base: told.offset, index: told.offset + index });
            let (fixture, at, done) = (&fixture, fixture.alloc(16), AtomicBool::new(false));
            threads::scope(|scope| {
                let adders: std::vec::Vec<_> = (0..6)
                    .map(|_| {
                        scope.spawn(move || {
                            let area = Registered::new(bytes).unwrap();
                            assert_eq!(Registered::offset(), told.offset, "a constant of the process");
                            assert!((area.word(1).load(Relaxed) as i32) >= 0, "registered");
                            for round in 0..ROUNDS {
                                // SAFETY: an allocation.
                                unsafe { fixture.units.add(at, 1) };
                                if round % 256 == 0 {
                                    thread::yield_now();
                                }
                            }
                        })
                    })
                    .collect();
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        assert!(Fence.all().is_ok());
                        thread::yield_now();
                    }
                });
                let ended = adders.into_iter().map(thread::ScopedJoinHandle::join).all(|ended| ended.is_ok());
                done.store(true, Relaxed);
                assert!(ended);
            });
            // SAFETY: an allocation.
            assert_eq!(unsafe { fixture.units.sum(at) }, 6 * ROUNDS, "{bytes} bytes, index at {index}");
        }
    }
}

const PR_RSEQ_SLICE_EXTENSION: i32 = 79;
const SET: usize = 2;
const ENABLE: usize = 1;
const RSEQ_SLICE_YIELD: i64 = 471;

/// A program asks for longer slices around what we do for it, and nothing is lost. Runs where the kernel has it.
#[test]
#[cfg_attr(allotment_other, ignore = "no sequences are written there")]
fn a_program_may_have_its_slices_extended() {
    const ROUNDS: u64 = 200_000;
    if Fence.register().is_err() || !lengths().any(|bytes| bytes == 64) {
        return eprintln!("skipped: no area of 64 bytes");
    }
    let base = threads::spawn(Registered::offset).join().unwrap();
    let fixture = Fixture::by_area(RseqArea { base, index: base + rseq::MM_CID });
    let (fixture, at) = (&fixture, fixture.alloc(16));
    let extended = threads::scope(|scope| {
        let program = || {
            let area = Registered::new(64).unwrap();
            // SAFETY: a flag of the calling thread.
            if unsafe { libc::prctl(PR_RSEQ_SLICE_EXTENSION, SET, ENABLE, 0, 0) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
            let [request, granted] = area.slice();
            let mut grants = 0;
            for _ in 0..ROUNDS {
                request.store(1, Relaxed);
                // SAFETY: an allocation.
                unsafe { fixture.units.add(at, 1) };
                request.store(0, Relaxed);
                if granted.load(Relaxed) != 0 {
                    grants += 1;
                    // SAFETY: gives the CPU back.
                    unsafe { libc::syscall(RSEQ_SLICE_YIELD) };
                }
            }
            Ok(grants)
        };
        let threads: std::vec::Vec<_> = (0..6).map(|_| scope.spawn(program)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<std::vec::Vec<u64>, _>>()
    });
    match extended {
        Err(error) => return eprintln!("skipped: this kernel extends no slices ({error})"),
        Ok(grants) => eprintln!("extended: {grants:?}"),
    }
    // SAFETY: an allocation.
    assert_eq!(unsafe { fixture.units.sum(at) }, 6 * ROUNDS);
}
