//! # Tasks that share our memory
//!
//! [`thread`] is `clone` as the C library makes threads, with a block of the caller's choice instead of its own: see
//! [`super::crew`]. [`spawn`] is `clone` with a stack of the caller's choice and no C library around it: the new
//! task has no thread-local data (its thread pointer is the *creator's*, whose data it must not
//! touch), no rseq area, no `errno`. It runs raw system calls only, and never returns.
//!
//! [`image`] is where the code itself lies: all that such a task needs when everything else is
//! unmapped under it. Where `clone` is not written for a processor there are no such tasks.
#![allow(unsafe_code)] // clone; our own ELF header

use super::platform;
use super::sys::Errno;

/// A process of its own that shares our memory and, to begin with, our descriptors; signals nobody
/// when it ends (until it is an orphan: then as every child), and no debugger follows into it. The
/// word that [`spawn`] is given becomes zero when it ends.
pub const PROCESS: usize = CLONE_VM | CLONE_FILES | CLONE_UNTRACED | CLONE_CHILD_CLEARTID;
/// One more thread of the calling process.
pub const THREAD: usize =
    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_UNTRACED;

/// Sharing of memory; what [`is_alone`] asks about.
const CLONE_VM: usize = 0x100;
const CLONE_FS: usize = 0x200;
const CLONE_FILES: usize = 0x400;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_SYSVSEM: usize = 0x4_0000;
const CLONE_SETTLS: usize = 0x8_0000;
const CLONE_PARENT_SETTID: usize = 0x10_0000;
const CLONE_CHILD_CLEARTID: usize = 0x20_0000;
const CLONE_UNTRACED: usize = 0x80_0000;

/// Starts `body(argument)` on the stack that ends at `top` (aligned to 16).
///
/// # Safety
/// The stack and what `body` uses outlive the task; `body` touches no thread-local data and never
/// returns. The caller's signals are blocked, if the task is not to take any.
///
/// # Errors
/// As `clone`; `ENOSYS` where this is not written for.
pub unsafe fn spawn(
    flags: usize,
    top: usize,
    word: *mut u32,
    body: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { clone([flags, top, 0, word as usize, 0], body, argument) }
}

/// Starts a thread of this process that runs `body(pointer)` on the stack that ends at `top` (aligned to 16), with
/// `pointer` for its thread pointer. Its number stands at `thread` before this returns; the word becomes zero when it
/// ends.
///
/// # Safety
/// As [`spawn`]; what is thread-local to `body` lies around `pointer`.
///
/// # Errors
/// As [`spawn`].
pub unsafe fn thread(
    top: usize,
    word: *mut u32,
    thread: *mut u32,
    pointer: usize,
    body: extern "C" fn(usize) -> !,
) -> Result<(), Errno> {
    // As the C library's own: a debugger follows it, and what emulates threads takes these flags together or not at all.
    let flags = THREAD & !CLONE_UNTRACED | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    // SAFETY: the caller's promise.
    unsafe { clone([flags, top, thread as usize, word as usize, pointer], body, pointer) }.map(drop)
}

/// `clone(flags, top, parent's word, child's word, thread pointer)`.
unsafe fn clone(words: [usize; 5], body: extern "C" fn(usize) -> !, argument: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let result = unsafe { platform::call::clone(words, body, argument) };
    if result < 0 { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

/// Whether no other task in the system uses the calling task's memory; `None` if the system will
/// not say. (The kernel lets nobody leave a memory that he shares; who is alone in it may, and
/// nothing happens.)
#[must_use]
pub fn is_alone() -> Option<bool> {
    match super::sys::unshare(CLONE_VM) {
        Ok(_) => Some(true),
        Err(Errno::EINVAL) => Some(false),
        Err(_) => None,
    }
}

/// From where to where the library or program that holds this code is mapped, and up to where from its file.
#[must_use]
pub fn image() -> (core::ops::Range<usize>, usize) {
    // SAFETY: the ELF header, which is mapped first, and its headers with it.
    unsafe { image_at(platform::header()) }
}

/// # Safety
/// At `base` an ELF header of 64 bits is mapped, and with it the program headers that it names.
unsafe fn image_at(base: usize) -> (core::ops::Range<usize>, usize) {
    /// ELF: where the program headers are, how long one is, how many there are.
    const AT_HEADERS: usize = 32;
    const AT_LENGTH: usize = 54;
    const AT_COUNT: usize = 56;
    const PT_LOAD: u32 = 1;
    // SAFETY: the caller's promise: as the ELF format lays them out.
    unsafe {
        let word = |at: usize| ((base + at) as *const u16).read_unaligned();
        let headers = base + ((base + AT_HEADERS) as *const usize).read_unaligned();
        let (mut first, mut last, mut file) = (usize::MAX, 0, 0);
        for number in 0..usize::from(word(AT_COUNT)) {
            let header = headers + number * usize::from(word(AT_LENGTH));
            if (header as *const u32).read_unaligned() == PT_LOAD {
                let at = ((header + 16) as *const usize).read_unaligned();
                let bytes = ((header + 40) as *const usize).read_unaligned();
                let in_file = ((header + 32) as *const usize).read_unaligned();
                (first, last, file) = (first.min(at), last.max(at + bytes), file.max(at + in_file));
            }
        }
        // Addresses in the file are relative to the header, but in programs that are not.
        let shift = base - (first & !(super::PAGE - 1));
        let page = |at: usize| (at + shift).next_multiple_of(super::PAGE);
        (base..page(last), page(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::sys;
    use crate::arch::tests::in_a_single_child;

    #[test]
    fn the_image_holds_code_and_data_and_not_the_stack() {
        static DATA: [u8; 64] = [1; 64];
        let (image, file) = image();
        assert!(image.contains(&(file - 1)), "{image:x?} {file:x}");
        let here = the_image_holds_code_and_data_and_not_the_stack as *const () as usize;
        let stack = 0_u8;
        assert!(image.contains(&here) && image.contains(&(DATA.as_ptr() as usize)), "{image:x?}");
        assert!(!image.contains(&(&raw const stack as usize)), "{image:x?}");
        assert!(image.start.is_multiple_of(crate::arch::PAGE) && image.end - image.start < 1 << 30, "{image:x?}");
    }

    #[test]
    fn a_test_has_other_threads_beside_it() {
        crate::tests::threads::scope(|scope| {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || ended.recv());
            let told = is_alone();
            drop(end);
            // (Or the system will not say.)
            assert_eq!(told, sys::unshare(0).ok().map(|_| false));
        });
        in_a_single_child(|| assert_eq!(is_alone(), sys::unshare(0).ok().map(|_| true)));
    }

    /// A header, behind it headers of 64 bytes each: kind, address, bytes in the file and in memory.
    fn object(headers: &[[usize; 4]]) -> std::vec::Vec<u64> {
        let mut words = std::vec![0; 8];
        // 64 bytes behind; so long, so many.
        words[4] = 64;
        words[6] = 64 << 48;
        words[7] = headers.len() as u64;
        for &[kind, address, file, memory] in headers {
            // (Flags, offset and alignment say nothing of where it is.)
            words.extend([kind as u64 | 5 << 32, 77, address as u64, 88, file as u64, memory as u64, 4096, 0]);
        }
        words
    }

    #[test]
    fn an_image_is_what_is_loaded() {
        for base in [0, 0x40_0000] {
            let object = object(&[
                [6, base + 64, 900_000, 900_000],
                [1, base + 0x123, 0x1000, 0x1000],
                [1, base + 0x2ef0, 0x1234, 0x5000],
                [2, base + 0x9_0000, 0x200, 0x200],
            ]);
            let at = object.as_ptr() as usize;
            // SAFETY: an object is there.
            let (image, file) = unsafe { image_at(at) };
            let shift = at - base;
            let page = |address: usize| (shift + address).next_multiple_of(crate::arch::PAGE);
            assert_eq!(image, at..page(base + 0x7ef0), "{base:x}");
            assert_eq!(file, page(base + 0x4124), "{base:x}");
        }
    }

    #[test]
    #[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
    fn what_the_kernel_refuses_is_an_error() {
        extern "C" fn never(_: usize) -> ! {
            sys::exit(true, 1)
        }
        let mut word = 0;
        // SAFETY: no task is made: a thread shares handlers, too.
        let spawned = unsafe { spawn(CLONE_VM | CLONE_THREAD, 0, &raw mut word, never, 0) };
        assert_eq!(spawned, Err(Errno::EINVAL));
    }
}
