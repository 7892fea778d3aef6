//! # The switch of the mutants
//!
//! Comes into the engine's copy as `crate::mutants`. `MUTANT=17` in the environment switches mutant 17 on; with
//! `MUTANTS_REACHED=FILE` none is on, and byte 17 of the file is 1 once the place of mutant 17 was reached, by
//! whatever process of the test. Read before `main`, by system calls alone: the engine is what `malloc` stands on.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering::Relaxed};

/// No mutant has it: places are recorded.
const RECORDS: u32 = u32::MAX;
/// Bytes of the file, one a mutant.
const BYTES: usize = 1 << 16;

/// The mutant that is on.
static SELECTED: AtomicU32 = AtomicU32::new(0);
/// The file's bytes, mapped.
static REACHED: AtomicPtr<AtomicU8> = AtomicPtr::new(null_mut());

/// Whether a mutant is on.
#[inline(always)]
pub fn on(mutant: u32) -> bool {
    let selected = SELECTED.load(Relaxed);
    selected == mutant || (selected == RECORDS && reached(mutant))
}

#[cold]
#[inline(never)]
fn reached(mutant: u32) -> bool {
    // SAFETY: there is a byte for each mutant, for as long as the process lives.
    unsafe { (*REACHED.load(Relaxed).add(mutant as usize)).store(1, Relaxed) };
    false
}

unsafe extern "C" {
    safe fn open(path: *const c_char, flags: c_int) -> c_int;
    safe fn close(file: c_int) -> c_int;
    safe fn mmap(at: *mut c_void, bytes: usize, prot: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
}

/// What stands behind `name=` in one string of the environment.
fn value(entry: *const c_char, name: &[u8]) -> Option<*const c_char> {
    // SAFETY: a string of the environment.
    let is_it = unsafe { CStr::from_ptr(entry) }.to_bytes().starts_with(name);
    is_it.then(|| entry.wrapping_add(name.len()))
}

extern "C" fn start(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    let mut next = environment;
    // SAFETY: the environment ends with a null pointer.
    while let entry = unsafe { *next }
        && !entry.is_null()
    {
        next = next.wrapping_add(1);
        if let Some(number) = value(entry, b"MUTANT=") {
            // SAFETY: the rest of that string.
            let digits = unsafe { CStr::from_ptr(number) }.to_bytes();
            SELECTED.store(digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')), Relaxed);
        } else if let Some(path) = value(entry, b"MUTANTS_REACHED=") {
            // O_RDWR; PROT_READ | PROT_WRITE, MAP_SHARED.
            let file = open(path, 2);
            let bytes = mmap(null_mut(), BYTES, 3, 1, file, 0);
            assert!(file >= 0 && bytes as isize != -1);
            close(file);
            REACHED.store(bytes.cast(), Relaxed);
            SELECTED.store(RECORDS, Relaxed);
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;
