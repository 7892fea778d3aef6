//! # Functions that the library defines in assembly, for aarch64
//!
//! `vfork` and `clone` ([`crate::arch::vfork`]), `dlopen` ([`crate::arch::dlopen`]), the cold ends of C++'s operators.

/// The end of both: `errno` is minus the result, and -1 is returned. (For the two macros below.)
#[doc(hidden)]
#[macro_export]
macro_rules! errno_and_return {
    () => {
        "neg w0, w0
        stp x0, x30, [sp, -16]!
        bl __errno_location
        ldp x1, x30, [sp], 16
        str w1, [x0]
        mov w0, -1
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
                "stp x29, x30, [sp, -16]!",
                "bl {before}",             // every index points at the void set
                "ldp x29, x30, [sp], 16",  // our return address, kept by the call below
                "mov w9, w0",              // what has begun, likewise
                "mov x0, 0x4111",          // clone(CLONE_VM | CLONE_VFORK | SIGCHLD, the same stack)
                "mov x1, xzr",
                "mov x2, xzr",
                "mov x3, xzr",
                "mov x4, xzr",
                "mov x8, 220",
                "svc 0",
                "cbz x0, 2f",              // the child goes its way
                "stp x0, x30, [sp, -16]!", // (parent) the child may have written over the stack
                "mov w0, w9",
                "bl {after}",
                "ldp x0, x30, [sp], 16",
                "cmn x0, 4095",
                "b.hs 3f",
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
                "cbz x0, 8f",              // no function, no stack: EINVAL
                "and x1, x1, -16",
                "cbz x1, 8f",
                "stp x0, x3, [x1, -16]!",  // the child takes them from its stack
                "stp x19, x30, [sp, -16]!", // flags that matter here, kept by the call
                "mov w9, {seen} & 0xffff",
                "movk w9, {seen} >> 16, lsl 16",
                "and w19, w2, w9",
                "tst w19, {shares}",
                "b.eq 2f",
                "orr w19, w19, 1",         // (no flag)
                "stp x1, x2, [sp, -48]!",
                "stp x4, x5, [sp, 16]",
                "str x6, [sp, 32]",
                "mov w0, w19",
                "bl {before}",
                "mov w9, w0",              // what has begun, kept by the call
                "ldr x6, [sp, 32]",
                "ldp x4, x5, [sp, 16]",
                "ldp x1, x2, [sp], 48",
                "2:",
                "sxtw x0, w2",             // clone(flags, stack, parent_tid, tls, child_tid)
                "mov x2, x4",
                "mov x3, x5",
                "mov x4, x6",
                "mov x8, 220",
                "svc 0",
                "cbz x0, 4f",
                "tbz w19, 0, 3f",
                "str x0, [sp, -16]!",
                "mov x1, x0",
                "mov w0, w19",
                "mov w2, w9",
                "bl {after}",
                "ldr x0, [sp], 16",
                "3:",
                "ldp x19, x30, [sp], 16",
                "cmn x0, 4095",
                "b.hs 9f",
                "ret",
                "4:",                      // the child: the end of every backtrace
                "mov x29, xzr",
                "mov x30, xzr",
                "ldp x9, x0, [sp], 16",
                "blr x9",                  // body(argument)
                "mov x8, 93",              // exit(its result)
                "svc 0",
                "brk 1",
                "8:",
                "mov x0, -22",
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
                "adrp x9, {due}",
                "ldrb w9, [x9, :lo12:{due}]",
                "cbz w9, 3f",
                "stp x0, x1, [sp, -32]!",
                "str x30, [sp, 16]",
                "bl {first}",
                "ldr x30, [sp, 16]",
                "ldp x0, x1, [sp], 32",
                "3:",
                "adrp x9, {keep}",
                "ldrb w9, [x9, :lo12:{keep}]",
                "cbnz w9, 2f",
                "and w1, w1, 0xfffffff7",         // RTLD_DEEPBIND
                "2:",
                "mov w2, w1",              // dlmopen(LM_ID_BASE, file, mode)
                "mov x1, x0",
                "mov x0, xzr",
                "adrp x16, :got:dlmopen",
                "ldr x16, [x16, :got_lo12:dlmopen]",
                "br x16",
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
            "stp x0, x1, [sp, -32]!",
            ".cfi_adjust_cfa_offset 32",
            "stp x2, x30, [sp, 16]",
            ".cfi_offset 30, -8",
            "bl {slow}",
            "ldp x2, x30, [sp, 16]",
            "cbz x0, 2f",
            "add sp, sp, 32",
            "ret",
            "2:",
            "ldp x0, x1, [sp], 32",
            "adrp x16, {next} + 8 * {at}",
            "ldr x16, [x16, :lo12:{next} + 8 * {at}]",
            "br x16",
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
        ""
    };
}

/// A trap, for functions that never run.
#[doc(hidden)]
#[macro_export]
macro_rules! trap {
    () => {
        "brk 1"
    };
}
