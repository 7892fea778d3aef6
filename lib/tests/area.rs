//! Areas as a Rust program has them, beside the C library's malloc.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use allotment::area::{self, Error};
use allotment::pages::BadPointer;
use std::ptr::NonNull;

/// One test: what is freed twice must not be another's by then. On one CPU, whose front knows it.
#[test]
fn areas_are_aligned_sized_and_freed_once() {
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
    }
    for shift in 0..23 {
        let bytes = (1 + shift * 5) * 4096 - shift;
        let areas: Vec<_> = (0..5).map(|_| area::alloc(bytes, 1 << shift).unwrap()).collect();
        for &at in &areas {
            assert!((at.as_ptr() as usize).is_multiple_of(4096.max(1 << shift)));
            // (From 64 KiB to 1 MiB of one of eight lengths to a doubling.)
            let size = area::size(at).unwrap();
            assert!(size.is_multiple_of(4096) && size >= bytes && size <= bytes.next_multiple_of(4096) / 8 * 9);
            unsafe { at.as_ptr().write_bytes(shift as u8, bytes) };
        }
        for &at in &areas {
            unsafe {
                assert!((0..bytes).all(|byte| at.as_ptr().add(byte).read() == shift as u8));
                let inside = NonNull::new(at.as_ptr().add(4096)).unwrap();
                if bytes > 4096 {
                    assert_eq!(area::free(inside).unwrap_err().wrong, BadPointer::Interior);
                }
                assert_eq!(area::free(at), Ok(()));
                assert_eq!(area::free(at).unwrap_err().wrong, BadPointer::Double);
            }
            assert_eq!(area::size(at), None);
        }
    }
    assert_eq!(area::alloc(4096, 3), Err(Error::Align));
    assert_eq!(area::alloc(usize::MAX, 1), Err(Error::Exhausted));
    assert_eq!(area::alloc_guarded(1 << 30, 1), Err(Error::Exhausted));
    let local = 0_u64;
    let foreign = unsafe { area::free(NonNull::from(&local).cast()) };
    assert_eq!(foreign.unwrap_err().wrong, BadPointer::Foreign);
    guards();
}

fn guards() {
    let Ok(first) = area::alloc_guarded(40_000, 1) else {
        return eprintln!("skipped: this kernel has no guard pages");
    };
    assert_eq!(area::size(first), Some(40_960));
    unsafe { first.as_ptr().write_bytes(1, 40_960) };
    // The kernel refuses to read the page behind, and reads the last.
    let readable = |at: usize| {
        let mut pipe = [0; 2];
        unsafe {
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
            let done = libc::write(pipe[1], at as *const libc::c_void, 1) == 1;
            libc::close(pipe[0]);
            libc::close(pipe[1]);
            done
        }
    };
    let end = first.as_ptr() as usize + 40_960;
    assert!(readable(end - 1) && !readable(end));
    unsafe { area::free(first) }.unwrap();
    let again = area::alloc_guarded(40_000, 1).unwrap();
    assert_eq!(again, first, "reused");
    assert!(!readable(end));
    unsafe { area::free(again) }.unwrap();
    // Given back, the guard goes.
    let _ = allotment::Allotment.trim();
    let plain = area::alloc(45_056, 1).unwrap();
    unsafe {
        plain.as_ptr().write_bytes(2, 45_056);
        area::free(plain).unwrap();
    }
}
