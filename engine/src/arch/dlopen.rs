//! # `dlopen`, without `RTLD_DEEPBIND`
//!
//! With that flag a plug-in finds the C library's `malloc` and `free` before
//! ours, although the program and the C library itself use ours: the first
//! pointer that crosses crashes the process (php's extensions do so under every
//! preloaded allocator). So the flag is dropped, unless the program's owner
//! asks to keep it.
//!
//! The C library looks for the file where the *caller* says (`RUNPATH`), and
//! knows the caller by its return address. So this is a jump, not a call; and
//! it goes to `dlmopen` in the base namespace, which is the same thing under a
//! name that we do not define ourselves. Before the first it calls what is to be done before plug-ins are loaded.

/// Defines the function `$name` as `dlopen` that drops `RTLD_DEEPBIND` while the
/// byte `$keep` is 0, and calls `$first` (`extern "C" fn()`) as long as the byte `$due` is not.
#[cfg(target_arch = "x86_64")]
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
