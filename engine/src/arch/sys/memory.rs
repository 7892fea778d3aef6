//! # Mappings
//!
//! Mapping, opening, advising, moving and giving back ranges of pages. A refusal leaves the caller with what it had,
//! but where a function says that part of it may have been done.
//!
//! Units: bytes; ranges are whole pages. Locks: none here; the kernel takes the address space's. Cost: one call each.
#![allow(unsafe_code)] // the boundary to the kernel

use super::call::{Errno, call, nr};
use crate::arch::PAGE;

/// What a mapping may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Access {
    /// Reserved only.
    None = 0,
    /// Reading and writing.
    ReadWrite = 3,
    /// Code.
    ReadExecute = 5,
}

const MAP_SHARED: usize = 0x01;
const MAP_PRIVATE: usize = 0x02;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
const NO_FD: usize = usize::MAX;

/// Maps `len` bytes of private memory, near `hint` if that is free. Readable memory is
/// charged when it is touched only (it is metadata, sparsely used); reserved memory when
/// it is opened, so that the kernel can refuse what it could never back.
///
/// # Errors
/// `ENOMEM`, or what a seccomp filter says.
pub fn map(hint: usize, len: usize, access: Access) -> Result<usize, Errno> {
    let lazily = if access == Access::ReadWrite { MAP_NORESERVE } else { 0 };
    // SAFETY: without MAP_FIXED a new mapping touches no existing memory.
    unsafe { call(nr::MMAP, [hint, len, access as usize, MAP_PRIVATE | MAP_ANONYMOUS | lazily, NO_FD, 0]) }
}

/// As [`map`], for memory to be used, which is charged at once, so that the kernel can refuse what it could never back;
/// as [`map_over`] maps it, so that such mappings merge.
///
/// # Errors
/// As [`map`].
pub fn map_charged(hint: usize, len: usize) -> Result<usize, Errno> {
    // SAFETY: without MAP_FIXED a new mapping touches no existing memory.
    unsafe { call(nr::MMAP, [hint, len, Access::ReadWrite as usize, MAP_PRIVATE | MAP_ANONYMOUS, NO_FD, 0]) }
}

/// Replaces `len` bytes at `at` by fresh zeroed private memory.
///
/// # Safety
/// The range is ours and nothing in it is needed any more.
///
/// # Errors
/// As [`map`]; the old mapping may then be gone or still there.
pub unsafe fn map_over(at: usize, len: usize, access: Access) -> Result<usize, Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    // SAFETY: the caller gives up what was there.
    unsafe { call(nr::MMAP, [at, len, access as usize, flags, NO_FD, 0]) }
}

/// Fresh zeroed private memory where nothing is mapped.
///
/// # Errors
/// As [`map`], and `EEXIST` where something is; nothing has changed then.
pub fn map_hole(at: usize, len: usize) -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    // SAFETY: touches no existing memory.
    let there = unsafe { call(nr::MMAP, [at, len, Access::ReadWrite as usize, flags, NO_FD, 0])? };
    if there == at {
        return Ok(());
    }
    // (Before Linux 4.17 the address is a hint.)
    // SAFETY: fresh, ours and unused.
    let _ = unsafe { unmap(there, len) };
    Err(Errno::EEXIST)
}

/// Replaces `len` bytes at `at` by those of the file `fd` from `from` on, shared.
///
/// # Safety
/// As [`map_over`]; and what other processes write there must be read as atomics.
///
/// # Errors
/// As [`map`].
pub unsafe fn map_file_over(at: usize, len: usize, fd: usize, from: usize) -> Result<usize, Errno> {
    // SAFETY: the caller gives up what was there.
    unsafe { call(nr::MMAP, [at, len, Access::ReadWrite as usize, MAP_SHARED | MAP_FIXED, fd, from]) }
}

/// Maps the first `len` bytes of a file, shared.
///
/// # Errors
/// As [`map`].
pub fn map_file(len: usize, fd: usize) -> Result<usize, Errno> {
    // SAFETY: without MAP_FIXED a new mapping touches no existing memory.
    unsafe { call(nr::MMAP, [0, len, Access::ReadWrite as usize, MAP_SHARED, fd, 0]) }
}

/// Makes the mapping longer that ends `len` bytes behind `at`, by `more` bytes behind those: fresh memory, or of the file that is
/// mapped there the bytes that follow.
///
/// # Safety
/// The range is ours, and of one mapping.
///
/// # Errors
/// `ENOMEM` if there is something behind it; `EFAULT` if the mapping ends elsewhere; as [`map`].
pub unsafe fn grow(at: usize, len: usize, more: usize) -> Result<(), Errno> {
    // SAFETY: as promised by the caller; nothing that is mapped moves or goes.
    unsafe { call(nr::MREMAP, [at, len, len + more, 0, 0, 0]).map(drop) }
}

/// Maps the first `len` bytes of the file that is mapped, shared and from its beginning, at `at` a second time.
///
/// # Safety
/// Such a mapping is there, and ours.
///
/// # Errors
/// As [`map`].
pub unsafe fn map_again(at: usize, len: usize) -> Result<usize, Errno> {
    const MAYMOVE: usize = 1;
    // SAFETY: of length 0 nothing moves: the new mapping touches no existing memory.
    unsafe { call(nr::MREMAP, [at, 0, len, MAYMOVE, 0, 0]) }
}

/// Unmaps a range.
///
/// # Safety
/// The range is ours and unused.
///
/// # Errors
/// `ENOMEM` when the mapping would have to be split and the limit is reached.
pub unsafe fn unmap(at: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller gives the range up.
    unsafe { call(nr::MUNMAP, [at, len, 0, 0, 0, 0]).map(drop) }
}

/// Changes what a range may be used for.
///
/// # Safety
/// The range is ours; nothing in it is used if access is taken away.
///
/// # Errors
/// `ENOMEM`.
pub unsafe fn protect(at: usize, len: usize, access: Access) -> Result<(), Errno> {
    // SAFETY: as promised by the caller.
    unsafe { call(nr::MPROTECT, [at, len, access as usize, 0, 0, 0]).map(drop) }
}

/// What to advise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Advice {
    /// Give the pages back; they read as zero afterwards.
    DontNeed = 4,
    /// Use huge pages here.
    Huge = 14,
    /// Never use huge pages here.
    NoHuge = 15,
    /// A forked child finds zeros here (Linux 4.14).
    WipeOnFork = 18,
    /// The opposite.
    KeepOnFork = 19,
    /// Fill with pages that can be written (Linux 5.14).
    PopulateWrite = 23,
    /// Every access to these pages is a fault, without a mapping of their own (Linux 6.13).
    GuardInstall = 102,
    /// The opposite.
    GuardRemove = 103,
}

/// A range of memory, as the kernel reads vectors of them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Range {
    /// Where it begins.
    pub at: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// Advises the kernel about a range.
///
/// # Safety
/// The range is ours; for the two `DontNeed`s its contents are given up.
///
/// # Errors
/// As the kernel says; part of the range may have been done.
pub unsafe fn advise(at: usize, len: usize, advice: Advice) -> Result<(), Errno> {
    // SAFETY: as promised by the caller.
    unsafe { call(nr::MADVISE, [at, len, advice as usize, 0, 0, 0]).map(drop) }
}

/// Which pages of a mapped range are in memory: the lowest bit of a byte each (not of one that is swapped out); false if the system
/// does not say.
#[must_use]
pub fn resident(at: usize, pages: &mut [u8]) -> bool {
    // SAFETY: the kernel writes these bytes.
    unsafe { call(nr::MINCORE, [at, pages.len() * PAGE, pages.as_mut_ptr() as usize, 0, 0, 0]) }.is_ok()
}

/// Gives memory back to the system; true if all of it reads as zero now. Not what the program has locked (`mlockall`): it wants
/// no fault there ever.
///
/// # Safety
/// The range is ours and its contents are not needed.
#[must_use]
pub unsafe fn give_back(at: usize, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { advise(at, bytes, Advice::DontNeed).is_ok() }
}

/// Makes sure of fresh pages of a shared file, which read as zero: from then on a write there ends nobody by a
/// signal, however full the file system is. What stood there may be lost.
///
/// # Safety
/// The range is ours, mapped for writing, whole pages, and nothing in it is needed.
///
/// # Errors
/// There is no room; part of the range may have been done.
pub unsafe fn make_sure(at: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: as promised by the caller; nothing changes.
    match unsafe { advise(at, len, Advice::PopulateWrite) } {
        // (Before Linux 5.14.) SAFETY: as promised by the caller.
        Err(Errno::EINVAL) => unsafe { touch(at, len) },
        done => done,
    }
}

/// [`make_sure`] page by page: where the kernel itself writes and cannot, it says so. (By a call that every C library makes.)
///
/// # Safety
/// As [`make_sure`].
unsafe fn touch(at: usize, len: usize) -> Result<(), Errno> {
    (at..at + len).step_by(PAGE).try_for_each(|page| {
        // SAFETY: the kernel writes eight bytes of a page that is the caller's to lose.
        unsafe { call(nr::RT_SIGPROCMASK, [0, 0, page, 8, 0, 0])? };
        // SAFETY: there is a page now.
        unsafe { (page as *mut u64).write_volatile(0) };
        Ok(())
    })
}

/// Advises the kernel about many ranges of ours in one call; the bytes done, from the first range on. At most
/// 1,024 ranges and less than 2 GiB. Without ranges: whether the kernel would (Linux 6.14).
///
/// # Safety
/// As [`advise`], for each.
///
/// # Errors
/// When nothing was done.
pub unsafe fn advise_many(ranges: &[Range], advice: Advice) -> Result<usize, Errno> {
    /// In place of a descriptor.
    const SELF: usize = -10_000_isize as usize;
    // SAFETY: as promised by the caller; the kernel reads the vector.
    unsafe { call(nr::PROCESS_MADVISE, [SELF, ranges.as_ptr() as usize, ranges.len(), advice as usize, 0, 0]) }
}

/// Moves the pages of `[from, from + len)` to `to` by page tables. The source
/// stays mapped, empty and zero.
///
/// # Safety
/// Both ranges are ours, do not overlap, and nothing at `to` is needed.
///
/// # Errors
/// As the kernel says; nothing of one mapping was moved then (of several some may be), but `to` may be unmapped.
pub unsafe fn move_pages(from: usize, to: usize, len: usize) -> Result<(), Errno> {
    const MAYMOVE_FIXED_DONTUNMAP: usize = 1 | 2 | 4;
    // SAFETY: as promised by the caller.
    unsafe { call(nr::MREMAP, [from, len, len, MAYMOVE_FIXED_DONTUNMAP, to, 0]).map(drop) }
}

/// Moves the mapping of the `len` bytes at `from` to `to` by page tables, where it is `longer` bytes long. Where it was nothing
/// is mapped any more.
///
/// # Safety
/// Both ranges are ours, do not overlap, and nothing at `to` is needed.
///
/// # Errors
/// As the kernel says, `EFAULT` if it is not one mapping; nothing was moved then, but `to` may be unmapped. (Linux 6.17 moves many
/// mappings in one call, and some of them where it fails: only at the same length.)
pub unsafe fn move_longer(from: usize, len: usize, to: usize, longer: usize) -> Result<(), Errno> {
    const MAYMOVE_FIXED: usize = 1 | 2;
    debug_assert!(longer > len);
    // SAFETY: as promised by the caller.
    unsafe { call(nr::MREMAP, [from, len, longer, MAYMOVE_FIXED, to, 0]).map(drop) }
}

/// Prefers one NUMA node for a range, unless the calling thread has a memory policy: the program knows better.
pub fn bind(at: usize, len: usize, node: usize) {
    const MPOL_DEFAULT: i32 = 0;
    const MPOL_PREFERRED: usize = 1;
    let mask = 1_u64 << (node & 63);
    let mut policy = MPOL_DEFAULT;
    // SAFETY: the kernel writes the four bytes of `policy`. Where it refuses, it refuses the other, too.
    let _ = unsafe { call(nr::GET_MEMPOLICY, [&raw mut policy as usize, 0, 0, 0, 0, 0]) };
    if policy != MPOL_DEFAULT {
        return;
    }
    // SAFETY: the kernel reads eight bytes of `mask`. A refusal costs locality only.
    let _ = unsafe { call(nr::MBIND, [at, len, MPOL_PREFERRED, &raw const mask as usize, 65, 0]) };
}

/// Bytes of the machine's memory (0 if the kernel does not say).
#[must_use]
pub fn memory_bytes() -> u64 {
    // uptime, three loads, total, free, shared, buffers, total and free swap, processes, total
    // and free high memory, unit (of 64-bit machines; with room to spare)
    let mut info = [0_u64; 16];
    // SAFETY: the kernel writes at most 112 bytes, which are ours.
    if unsafe { call(nr::SYSINFO, [info.as_mut_ptr() as usize, 0, 0, 0, 0, 0]) }.is_err() {
        return 0;
    }
    info[4].saturating_mul((info[13] & 0xffff_ffff).max(1))
}

#[cfg(test)]
mod tests {
    use super::super::file::close;
    use super::*;

    const DEFAULT: i32 = 0;

    const PREFERRED: i32 = 1;

    const INTERLEAVE: i32 = 3;

    /// A page's own policy. `None` where the system does not say.
    fn policy_of(at: usize) -> Option<i32> {
        const OF_ADDRESS: usize = 2;
        let mut policy = 0;
        // SAFETY: the kernel writes four bytes.
        unsafe { call(nr::GET_MEMPOLICY, [&raw mut policy as usize, 0, 0, at, OF_ADDRESS, 0]) }.ok()?;
        Some(policy)
    }

    /// Beyond a file's end there is as little room as in a full file system.
    #[test]
    fn pages_that_cannot_be_had_are_an_error_and_no_signal() {
        use crate::arch::PAGE;
        for make in [make_sure, touch] {
            // SAFETY: a descriptor of our own.
            let file = unsafe { libc::memfd_create(c"short".as_ptr(), 0) };
            // SAFETY: as above.
            assert!(file >= 0 && unsafe { libc::ftruncate(file, 2 * PAGE as i64) } == 0);
            let at = map_file(4 * PAGE, file as usize).expect("mapped");
            // SAFETY: fresh and ours.
            unsafe {
                assert_eq!(make(at, 2 * PAGE), Ok(()));
                assert!((at..at + 2 * PAGE).step_by(8).all(|word| *(word as *const u64) == 0));
                assert_eq!(make(at + PAGE, 3 * PAGE), Err(Errno(14)));
                assert_eq!(make(at + 2 * PAGE, PAGE), Err(Errno(14)));
                unmap(at, 4 * PAGE).expect("ours");
            }
            close(file as usize);
        }
    }

    #[test]
    fn a_programs_own_memory_policy_stays() {
        let page = || map(0, crate::arch::PAGE, Access::ReadWrite).expect("a page");
        // A thread of its own: it has the policy.
        crate::tests::threads::spawn(move || {
            let free = page();
            bind(free, crate::arch::PAGE, 0);
            let nodes = 1_u64;
            // SAFETY: the kernel reads eight bytes.
            let set = unsafe { libc::syscall(libc::SYS_set_mempolicy, INTERLEAVE, &raw const nodes, 64) };
            let asked = page();
            bind(asked, crate::arch::PAGE, 0);
            if set != 0 || policy_of(free) != Some(PREFERRED) {
                std::eprintln!("skipped: no memory policies here");
                return;
            }
            assert_eq!(policy_of(asked), Some(DEFAULT));
        })
        .join()
        .unwrap();
    }

    /// What is mapped at an address: its flags, as the kernel spells them. `None` where it does not.
    fn flags_of(at: usize) -> Option<std::string::String> {
        let maps = crate::arch::tests::of_this_process("smaps");
        let mut is_there = false;
        for line in maps.lines() {
            let range = line.split(' ').next()?.split_once('-');
            if let Some([Ok(first), Ok(last)]) = range.map(|(a, b)| [a, b].map(|end| usize::from_str_radix(end, 16))) {
                is_there = (first..last).contains(&at);
            } else if is_there && let Some(flags) = line.strip_prefix("VmFlags:") {
                return Some(flags.into());
            }
        }
        None
    }

    #[test]
    fn what_is_charged_when_it_is_touched_is_what_is_mapped_to_be_written() {
        let page = crate::arch::PAGE;
        let never = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2");
        for (at, lazily) in [
            (map(0, page, Access::ReadWrite), true),
            (map(0, page, Access::None), false),
            (map(0, page, Access::ReadExecute), false),
            (map_charged(0, page), false),
        ] {
            let at = at.expect("a page");
            if let Some(flags) = flags_of(at) {
                assert_eq!(flags.contains(" nr"), lazily && !never, "{flags}");
            }
            // SAFETY: the test's own.
            unsafe { unmap(at, page) }.expect("ours");
        }
    }

    #[test]
    fn a_hole_is_filled_and_what_is_there_stays() {
        let page = crate::arch::PAGE;
        let fills = || {
            let at = map(0, 3 * page, Access::ReadWrite).expect("pages");
            // SAFETY: the test's own.
            unsafe {
                unmap(at + page, page).expect("ours");
                let filled = map_hole(at + page, page);
                if filled.is_ok() {
                    (at as *mut u64).byte_add(page).write(7);
                    assert_eq!(map_hole(at + page, page), Err(Errno::EEXIST));
                    assert_eq!((at as *mut u64).byte_add(page).read(), 7);
                    unmap(at + page, page).expect("ours");
                }
                unmap(at, page).expect("ours");
                unmap(at + 2 * page, page).expect("ours");
                filled.is_ok()
            }
        };
        // (Another thread may be given the hole.)
        assert!((0..20).any(|_| fills()));
    }

    #[test]
    fn pages_move_and_leave_zeros() {
        let bytes = 4 * crate::arch::PAGE;
        let at = map_charged(0, bytes).expect("pages");
        let (from, to) = (at, at + bytes / 2);
        // SAFETY: the test's own.
        unsafe {
            (from as *mut u64).write(7);
            (to as *mut u64).write(5);
            move_pages(from, to, bytes / 2).expect("moved");
            assert_eq!(((to as *const u64).read(), (from as *const u64).read()), (7, 0));
            unmap(at, bytes).expect("ours");
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_preferred_by_nothing() {
        let page = map(0, crate::arch::PAGE, Access::ReadWrite).expect("a page");
        bind(page, crate::arch::PAGE, 63);
        if !std::path::Path::new("/sys/devices/system/node/node63").exists() {
            assert!(policy_of(page).is_none_or(|policy| policy == DEFAULT));
        }
        // SAFETY: the test's own.
        unsafe { unmap(page, crate::arch::PAGE) }.expect("ours");
    }
}
