//! # `vfork` and `clone`, wrapped
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
//!
//! The C library's `clone` starts such a child, too, on a stack of its own, if it is told to share memory and
//! not to be a thread. With `CLONE_VFORK` the parent sleeps until the child has gone its way; without, both go on for as long as they
//! like, and the sets stay closed.

/// The end of both: `errno` is minus the result, and -1 is returned. (For the two macros below.)
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! errno_and_return {
    () => {
        "neg eax
        push rax
        call qword ptr [rip + __errno_location@GOTPCREL]
        pop rdx
        mov [rax], edx
        mov eax, -1
        ret"
    };
}

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
                $crate::errno_and_return!(),
                before = sym $before,
                after = sym $after,
            )
        }
    };
}

/// `clone`'s flags: memory is shared; the parent sleeps; a thread.
pub const CLONE_VM: i32 = 0x100;
/// See there.
pub const CLONE_VFORK: i32 = 0x4000;
/// See there.
pub const CLONE_THREAD: i32 = 0x1_0000;

/// Defines the function `$name` as the C library's `clone`, that calls `$before` (`extern "C" fn(flags: i32)`) and `$after`
/// (`extern "C" fn(flags: i32, result: isize)`) around a child that shares memory and is no thread; of the flags they see these three.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! define_clone {
    ($name:ident, $before:path, $after:path) => {
        /// `clone` with the per-CPU sets closed while a child shares memory.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(
            body: Option<unsafe extern "C" fn(*mut core::ffi::c_void) -> i32>,
            stack: *mut core::ffi::c_void,
            flags: i32,
            argument: *mut core::ffi::c_void,
        ) -> i32 {
            core::arch::naked_asm!(
                "test rdi, rdi",           // no function, no stack: EINVAL
                "jz 8f",
                "and rsi, -16",
                "jz 8f",
                "sub rsi, 16",             // the child takes them from its stack
                "mov [rsi], rdi",
                "mov [rsi + 8], rcx",
                "mov r10, [rsp + 8]",      // the seventh argument
                "push rbx",                // flags that matter here, kept by the call
                "mov ebx, edx",
                "and ebx, {seen}",
                "mov eax, ebx",
                "and eax, {kind}",
                "cmp eax, {shares}",
                "jne 2f",
                "or ebx, 1",               // (no flag)
                "push rsi",
                "push rdx",
                "push r8",
                "push r9",
                "push r10",
                "sub rsp, 8",              // align the stack
                "mov edi, ebx",
                "call {before}",
                "add rsp, 8",
                "pop r10",
                "pop r9",
                "pop r8",
                "pop rdx",
                "pop rsi",
                "2:",
                "movsxd rdi, edx",         // clone(flags, stack, parent_tid, child_tid, tls)
                "mov rdx, r8",
                "mov r8, r9",
                "mov eax, 56",
                "syscall",
                "test rax, rax",
                "jz 4f",
                "test ebx, 1",
                "jz 3f",
                "push rax",
                "sub rsp, 8",
                "mov edi, ebx",
                "mov rsi, rax",
                "call {after}",
                "add rsp, 8",
                "pop rax",
                "3:",
                "pop rbx",
                "cmp rax, -4095",
                "jae 9f",
                "ret",
                "4:",                      // the child: the end of every backtrace
                "xor ebp, ebp",
                "pop rax",
                "pop rdi",
                "call rax",                // body(argument)
                "mov edi, eax",
                "mov eax, 60",             // exit(its result)
                "syscall",
                "ud2",
                "8:",
                "mov eax, -22",
                "9:",
                $crate::errno_and_return!(),
                seen = const $crate::arch::vfork::CLONE_VM | $crate::arch::vfork::CLONE_VFORK | $crate::arch::vfork::CLONE_THREAD,
                kind = const $crate::arch::vfork::CLONE_VM | $crate::arch::vfork::CLONE_THREAD,
                shares = const $crate::arch::vfork::CLONE_VM,
                before = sym $before,
                after = sym $after,
            )
        }
    };
}
