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
