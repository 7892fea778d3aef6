//! # Functions that the library defines in assembly, for x86-64
//!
//! `vfork` and `clone` ([`crate::arch::vfork`]), `dlopen` ([`crate::arch::dlopen`]), the cold ends of C++'s operators.

/// The end of both: `errno` is minus the result, and -1 is returned. (For the two macros below.)
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

/// Defines the function `$name` as a `vfork` that calls `$before` (`extern "C" fn() -> Begun`) and `$after` (`extern "C" fn(Begun)`).
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
                "mov esi, eax",            // what has begun, likewise
                "mov eax, 58",             // vfork
                "syscall",
                "push rdx",                // (parent) the child may have written over it
                "test eax, eax",
                "jz 2f",                   // the child goes its way
                "push rax",                // parent: also aligns the stack
                "mov edi, esi",
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

/// Defines the function `$name` as the C library's `clone`, that calls `$before` (`extern "C" fn(flags: i32) -> Begun`) and `$after`
/// (`extern "C" fn(flags: i32, result: isize, begun: Begun)`) around a child that shares memory; of the flags they see these two.
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
                "test ebx, {shares}",
                "jz 2f",
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
                "mov r9d, eax",            // what has begun, kept by the call
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
                "mov edx, r9d",
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
                seen = const $crate::arch::vfork::CLONE_VM | $crate::arch::vfork::CLONE_VFORK,
                shares = const $crate::arch::vfork::CLONE_VM,
                before = sym $before,
                after = sym $after,
            )
        }
    };
}

/// Defines the function `$name` as `dlopen` that drops `RTLD_DEEPBIND` while the
/// byte `$keep` is 0, and calls `$first` (`extern "C" fn()`) as long as the byte `$due` is not.
#[macro_export]
macro_rules! define_dlopen {
    ($name:ident, $keep:path, $due:path, $first:path) => {
        /// `dlopen` without `RTLD_DEEPBIND` (see the knob `deepbind`).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(
            file: *const core::ffi::c_char,
            mode: core::ffi::c_int,
        ) -> *mut core::ffi::c_void {
            core::arch::naked_asm!(
                "cmp byte ptr [rip + {due}], 0",
                "je 3f",
                "push rdi",
                "push rsi",
                "sub rsp, 8",              // align the stack
                "call {first}",
                "add rsp, 8",
                "pop rsi",
                "pop rdi",
                "3:",
                "cmp byte ptr [rip + {keep}], 0",
                "jne 2f",
                "and esi, ~8",             // RTLD_DEEPBIND
                "2:",
                "mov edx, esi",            // dlmopen(LM_ID_BASE, file, mode)
                "mov rsi, rdi",
                "xor edi, edi",
                "jmp qword ptr [rip + dlmopen@GOTPCREL]",
                keep = sym $keep,
                due = sym $due,
                first = sym $first,
            )
        }
    };
}

/// The body of a naked function of three arguments that calls `$slow` with them and returns what it does, or, if that is null,
/// jumps with them to the address in the word `$at` of `$next`. (A heap profile's walk passes here: it has tables.)
#[doc(hidden)]
#[macro_export]
macro_rules! call_or_pass_on {
    ($slow:ident, $next:ident, $at:literal) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",                // (also aligns the stack)
            ".cfi_adjust_cfa_offset 8",
            "call {slow}",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "test rax, rax",
            "jz 2f",
            "ret",
            "2:",
            "jmp qword ptr [rip + {next} + 8 * {at}]",
            ".cfi_endproc",
            slow = sym $slow,
            next = sym $next,
            at = const $at,
        )
    };
}

/// What tracers' notes have before a register's name.
#[doc(hidden)]
#[macro_export]
macro_rules! register_prefix {
    () => {
        "%"
    };
}

/// A trap, for functions that never run.
#[doc(hidden)]
#[macro_export]
macro_rules! trap {
    () => {
        "ud2"
    };
}
