//! # The kernel's own shared object
//!
//! The clock without a system call, and without the C library's function of that name: other libraries define it, too (to
//! fake the time, to trace), and theirs allocate, or need a thread that the C library knows.
//!
//! ```text
//! auxiliary vector ─► ELF header ─► program headers ─► dynamic section ─► symbols [ … ] names
//! ```
//! The symbols end where the names begin: so the kernel links it, with either kind of hash.
#![allow(unsafe_code)] // reads what the kernel has mapped

use core::ffi::{CStr, c_ulong};
use core::ptr;

/// `clock_gettime` of the kernel's.
pub type ClockGettime = unsafe extern "C" fn(clock: i32, time: *mut [i64; 2]) -> i32;

const NAME: &CStr = if cfg!(target_arch = "aarch64") { c"__kernel_clock_gettime" } else { c"__vdso_clock_gettime" };
/// More symbols than it has ever had.
const MOST: usize = 256;

/// A program header.
#[repr(C)]
#[derive(Clone, Copy)]
struct Program {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    rest: [usize; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// The kernel's function; `None` without a vdso, or in one of another shape.
#[must_use]
pub fn clock_gettime() -> Option<ClockGettime> {
    unsafe extern "C" {
        fn getauxval(kind: c_ulong) -> c_ulong;
    }
    const AT_SYSINFO_EHDR: c_ulong = 33;
    // SAFETY: a question.
    let header = unsafe { getauxval(AT_SYSINFO_EHDR) } as usize;
    if header == 0 || !header.is_multiple_of(4096) {
        return None;
    }
    // SAFETY: the kernel has mapped an ELF file there, whole and for ever.
    let found = unsafe { find(header) }?;
    // SAFETY: the function of that name is of that type.
    Some(unsafe { core::mem::transmute::<usize, ClockGettime>(found) })
}

/// # Safety
/// An ELF file of 64 bits is mapped at `header`.
unsafe fn find(header: usize) -> Option<usize> {
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    // SAFETY: the caller's promise, here and below; the fields of an ELF header.
    let (programs, count) =
        unsafe { (header + ptr::read((header + 32) as *const usize), ptr::read((header + 56) as *const u16) as usize) };
    // SAFETY: the table of program headers.
    let all = unsafe { core::slice::from_raw_parts(programs as *const Program, count) };
    let load = all.iter().find(|program| program.kind == LOAD)?;
    let bias = header.wrapping_add(load.offset).wrapping_sub(load.address);
    let mut entry = bias.wrapping_add(all.iter().find(|program| program.kind == DYNAMIC)?.address);
    let (mut names, mut symbols) = (0, 0);
    loop {
        // SAFETY: the dynamic section, which ends with a zero.
        match unsafe { ptr::read(entry as *const [usize; 2]) } {
            [0, _] => break,
            [5, at] => names = bias.wrapping_add(at),
            [6, at] => symbols = bias.wrapping_add(at),
            _ => {}
        }
        entry += 16;
    }
    let bytes = names.checked_sub(symbols).filter(|_| symbols != 0)?;
    let count = (bytes / size_of::<Symbol>()).min(MOST);
    // SAFETY: the symbols, which end where the names begin.
    let symbols = unsafe { core::slice::from_raw_parts(symbols as *const Symbol, count) };
    symbols.iter().find_map(|symbol| {
        // SAFETY: a name that the table of names has.
        let name = unsafe { CStr::from_ptr((names + symbol.name as usize) as *const _) };
        (symbol.section != 0 && name == NAME).then(|| bias.wrapping_add(symbol.value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the made-up object says that it lies, unlike where it does.
    const AT: usize = 0x1000;
    const DYNAMIC: usize = 0x200;
    const SYMBOLS: usize = 0x300;
    const VALUE: usize = 0x234;

    /// An object of some symbols: name, section. Behind them, where its names are, is what looks like one more.
    fn object(symbols: &[(&CStr, u16)]) -> std::vec::Vec<u64> {
        let mut bytes = std::vec![0_u8; SYMBOLS + MOST * size_of::<Symbol>()];
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        let mut words = |at: usize, words: &[usize]| {
            words.iter().enumerate().for_each(|(word, value)| put(at + 8 * word, &value.to_ne_bytes()));
        };
        let names = SYMBOLS + symbols.len() * size_of::<Symbol>();
        words(32, &[64]);
        // (kind and flags) offset, address: a note that is elsewhere, what is loaded, the dynamic section.
        words(56, &[3]);
        words(64, &[4, 0x40, 0x7040]);
        words(64 + 56, &[1, 0, AT]);
        words(64 + 112, &[2, DYNAMIC, AT + DYNAMIC]);
        words(DYNAMIC, &[14, 1, 5, AT + names, 6, AT + SYMBOLS, 0, 0]);
        let mut name_at = size_of::<Symbol>();
        for (index, (_, section)) in symbols.iter().chain([&(NAME, 1)]).enumerate() {
            let at = SYMBOLS + index * size_of::<Symbol>();
            words(at, &[name_at | usize::from(*section) << 48, AT + VALUE + index]);
            name_at += 32;
        }
        for (index, (name, _)) in symbols.iter().chain([&(NAME, 1)]).enumerate() {
            bytes[names + size_of::<Symbol>() + 32 * index..][..name.count_bytes()].copy_from_slice(name.to_bytes());
        }
        bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn the_function_is_the_defined_one_of_its_name() {
        let found = |symbols: &[(&CStr, u16)]| {
            let object = object(symbols);
            let header = object.as_ptr() as usize;
            // SAFETY: an object that lies there.
            unsafe { find(header) }.map(|found| found - header - VALUE)
        };
        assert_eq!(found(&[(c"", 0), (c"other", 1), (NAME, 0), (NAME, 1), (c"another", 1)]), Some(3));
        assert_eq!(found(&[(c"", 0), (c"other", 1), (NAME, 0)]), None);
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn the_function_tells_the_time() {
        let Some(clock) = clock_gettime() else { return };
        let of_libc = || {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the time goes where it may.
            assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) }, 0);
            [time.tv_sec, time.tv_nsec]
        };
        let (before, mut time) = (of_libc(), [0; 2]);
        // SAFETY: as above.
        assert_eq!(unsafe { clock(libc::CLOCK_MONOTONIC, &raw mut time) }, 0);
        assert!(before <= time && time <= of_libc());
    }
}
