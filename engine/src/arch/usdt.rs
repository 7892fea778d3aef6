//! # Probes for tracers: user-level statically defined ones
//!
//! A probe is a `nop` and a note in the file (`.note.stapsdt`) that says where the nop is, in which registers its
//! arguments are, and where its *semaphore* is: a word that a tracer raises while it is attached. (`readelf -n`
//! shows them; `perf`, `bpftrace`, `gdb` and eBPF profilers put a breakpoint there.) Cost: the nop.
//!
//! Only where our sampling hands an object out or takes it back are there any, with OpenTelemetry's names, so that its profiler
//! finds them: `otel_memory:alloc(ptr, size, weighted_bytes)` and `otel_memory:free(ptr)`.

/// Defines the function `$name` as a probe of up to three words, with the semaphore `$semaphore`, an `AtomicU16` of
/// the section `.probes`. `$base` is a byte of the section `.stapsdt.base`, by which tools see that a file was moved
/// after it was linked.
#[macro_export]
macro_rules! define_probe {
    ($(#[$doc:meta])* $name:ident($first:ident $(, $more:ident)*), $provider:literal, $probe:literal, $semaphore:path, $base:path) => {
        $(#[$doc])*
        #[inline(never)]
        pub fn $name($first: usize $(, $more: usize)*) {
            // SAFETY: a nop. What follows goes into a section that is not loaded (type 3 of owner "stapsdt": place,
            // base, semaphore, three names).
            unsafe {
                core::arch::asm!(
                    "990: nop",
                    ".pushsection .note.stapsdt,\"\",@note",
                    ".balign 4",
                    ".4byte 992f-991f, 994f-993f, 3",
                    "991: .asciz \"stapsdt\"",
                    "992: .balign 4",
                    "993: .8byte 990b",
                    ".8byte {base}",
                    ".8byte {semaphore}",
                    concat!(".asciz \"", $provider, "\""),
                    concat!(".asciz \"", $probe, "\""),
                    concat!(".ascii \"8@", $crate::register_prefix!(), "{", stringify!($first), "}\""),
                    $(concat!(".ascii \" 8@", $crate::register_prefix!(), "{", stringify!($more), "}\""),)*
                    ".byte 0",
                    "994: .balign 4",
                    ".popsection",
                    semaphore = sym $semaphore,
                    base = sym $base,
                    $first = in(reg) $first,
                    $($more = in(reg) $more,)*
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}
