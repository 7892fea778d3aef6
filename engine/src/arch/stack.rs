//! # Where a stack walk begins: this function's own registers
//!
//! Callee-saved registers as they are here, numbered as the unwind tables number them, with an address of this
//! code. A walk that starts with them finds the callers by the tables of this very function.
#![allow(unsafe_code)] // a weak name

use super::platform;
pub use super::platform::stack::{
    FRAME, LINK, RETURN, Registers, SAVED, SIGNAL_AT, SIGNAL_ORDER, STACK, frame_pointer, is_trampoline, plain,
    registers,
};

/// The most that the allocator takes of a thread's stack (see docs/limits.md), from where it comes in.
const TAKEN: usize = 4096;
/// The most of it that has been taken where it comes into the heap. (What is left of 4 KiB there must do: a look further would fail
/// where the allocator does not.)
const BEFORE: usize = 608;
/// The same where `malloc`'s slow path begins.
const EARLY: usize = 272;

/// Looks at the stack as far down as the caller's callees may go. Where it ends before, the fault comes here: a program whose
/// handler jumps out of it (on a stack of its own) leaves nothing half done.
#[inline(always)]
pub fn probe() {
    platform::stack::probe::<{ TAKEN - BEFORE }>();
}

/// The same, further down, where `malloc`'s slow path begins: a limit, which takes most, is met behind it.
#[inline(always)]
pub fn probe_early() {
    platform::stack::probe::<{ TAKEN - EARLY }>();
}

/// The address of `_dl_find_object` (glibc 2.35: what is mapped at an address, without a lock), or 0.
#[must_use]
pub fn finder() -> usize {
    crate::weak_address!("_dl_find_object")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::tests::status_of_a_child;
    use crate::arch::{PAGE, sys, task};

    extern "C" fn looks(_: usize) -> ! {
        probe();
        sys::exit(true, 9)
    }
    extern "C" fn looks_early(_: usize) -> ! {
        probe_early();
        sys::exit(true, 9)
    }
    extern "C" fn does_not_look(_: usize) -> ! {
        sys::exit(true, 9)
    }

    #[test]
    fn an_address_is_plain_and_no_trampoline_and_the_frame_is_where_registers_say() {
        let here = does_not_look as *const () as usize;
        assert_eq!((plain(here), plain(0), plain(16)), (here, 0, 16));
        // SAFETY: code is there.
        assert!(!unsafe { is_trampoline(here) });
        // SAFETY: a question.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        assert_eq!(finder(), found as usize);
        let (pointer, registers) = (frame_pointer(), registers());
        assert_eq!(pointer, registers[FRAME]);
    }

    #[test]
    #[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
    fn where_less_stack_is_left_than_may_be_taken_the_fault_comes_at_once() {
        let status = |body: extern "C" fn(usize) -> !, left: usize| {
            status_of_a_child(|| {
                let at = sys::map(0, 2 * PAGE, sys::Access::None).unwrap();
                // SAFETY: the child's own; a fault ends it.
                unsafe {
                    libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                    sys::protect(at + PAGE, PAGE, sys::Access::ReadWrite).unwrap();
                    task::spawn(task::THREAD, at + PAGE + left, core::ptr::null_mut(), body, 0).unwrap();
                }
                // (It ends all.)
                std::thread::sleep(core::time::Duration::from_secs(10));
            })
        };
        let fine = 9 << 8;
        assert_eq!(status(does_not_look, 1024), fine);
        for (body, before) in [(looks as extern "C" fn(usize) -> !, BEFORE), (looks_early, EARLY)] {
            assert_eq!(status(body, TAKEN - before) & 0x7f, libc::SIGSEGV);
            assert_eq!(status(body, TAKEN), fine, "what is promised is enough");
        }
    }
}
