//! # `vfork`, wrapped
//!
//! The child of a `vfork` runs in our memory, with our thread's rseq area but
//! without a registration: its sequences would not be aborted and would lose
//! updates. While one is in flight every index therefore points at the void
//! set: `before` closes the sets, `after` (in the parent, once the child has
//! gone its way) opens them again.
//!
//! It returns twice on one stack, so it is assembly: the return address waits
//! in a register that the system call keeps, because the child overwrites the
//! stack slot it came from.

/// Defines the function `$name` as a `vfork` that calls `$before` and `$after`
/// (both `extern "C" fn()`).
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! define_vfork {
    ($name:ident, $before:path, $after:path) => {
        /// `vfork` with the per-CPU sets closed while it is in flight.
        ///
        /// # Safety
        /// As libc's: the child may only `exec` or `_exit`.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> i32 {
            core::arch::naked_asm!(
                "sub rsp, 8",              // align the stack
                "call {before}",           // every index points at the void set
                "add rsp, 8",
                "pop rdx",                 // our return address, kept by the call below
                "mov eax, 58",             // vfork
                "syscall",
                "push rdx",                // (parent) the child may have written over it
                "test eax, eax",
                "jz 2f",                   // the child goes its way
                "push rax",                // parent: also aligns the stack
                "call {after}",
                "pop rax",
                "cmp eax, -4095",
                "jae 3f",
                "2:",
                "ret",
                "3:",
                "neg eax",
                "push rax",                // errno = -result; return -1
                "call qword ptr [rip + __errno_location@GOTPCREL]",
                "pop rdx",
                "mov [rax], edx",
                "mov eax, -1",
                "ret",
                before = sym $before,
                after = sym $after,
            )
        }
    };
}
