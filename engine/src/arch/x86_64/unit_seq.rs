//! # Sequences on per-CPU memory, for x86-64
//!
//! What each does, may be refused for and leaves behind: [`crate::arch::contract`]. Every line of assembly carries its line of
//! that page. Orderings are the processor's own.
//!
//! A sequence leaves by one of three ways and by jumps, not by a number that is tested
//! afterwards: inlined, a done `add` falls through.
//!
//! Which word of the area is the index is part of the instruction (`INDEX`), not a register: a load and
//! a register less on the way that everybody takes.
//!
//! Cost: `add` 9 instructions, `up` 12, `down` 13, `move_within` 12; no locked one.
#![allow(unsafe_code)] // the assembly

use crate::arch::atomic::{AtomicU32, AtomicU64};
use crate::arch::operands::{Place, UNIT, UNIT_SHIFT};
use crate::arch::outcome::Outcome;
use core::arch::asm;

/// Frames a body: descriptor and abort stub out of line, the common beginning before it,
/// in `rax` the distance of this index's unit from the first. The body puts label 25
/// behind its committing store and may jump to `{refused}`.
macro_rules! sequence {
    ($place:expr; $($body:expr),+ ; $($operands:tt)*) => {
        asm!(
            descriptor!(),
            "jmp {aborted}",
            ".popsection",
            "lea rax, [rip + 23b]",
            "mov fs:[{area} + 8], rax",          // area.rseq_cs = descriptor
            "22:",
            dawdle!(),
            "mov eax, fs:[{area} + {INDEX}]",    // i = area[INDEX]
            "cmp rax, [{high}]",                 // i >= high: refused
            "jae {refused}",
            "cmp dword ptr fs:[{area} + 4], 0",  // area.cpu_id < 0: refused
            "jl {refused}",
            "shl rax, {UNIT_SHIFT}",             // u = at + (i + 1) × UNIT
            $($body,)+
            area = in(reg) $place.base,
            INDEX = const INDEX,
            high = in(reg) $place.high.as_ptr(),
            at = in(reg) $place.at,
            UNIT_SHIFT = const UNIT_SHIFT,
            UNIT = const UNIT,
            refused = label { return Outcome::Refused },
            aborted = label { return Outcome::Aborted },
            out("rax") _,
            $($operands)*
            options(nostack)
        )
    };
}

/// See [`crate::arch::contract`].
///
/// # Safety
/// `place.base` is this thread's area's (see `rseq::area`), with an index word at `INDEX`; `place.at` is an aligned `u64` of an
/// allocation whose units below `high` are mapped for writing, as atomics.
#[inline(always)]
pub unsafe fn add<const INDEX: isize>(place: Place<'_>, n: u64) -> Outcome<()> {
    // SAFETY: touches the area's `rseq_cs` and the copy of this index.
    unsafe {
        sequence!(place;
            dawdle!(),
            "add [{at} + rax + {UNIT}], {n}",    // commit: u64[u] += n
            "25:"
            ;
            n = in(reg) n,
        );
    }
    Outcome::Done(())
}

/// See [`crate::arch::contract`]. `delta` is at most 128.
///
/// # Safety
/// As [`add`], but for a byte.
#[inline(always)]
pub unsafe fn up<const INDEX: isize>(place: Place<'_>, delta: u32, threshold: &AtomicU32) -> Outcome<()> {
    // SAFETY: as in `add`.
    unsafe {
        sequence!(place;
            "movsx ecx, byte ptr [{at} + rax + {UNIT}]",
            "add ecx, {delta:e}",                // v = i8[u] + delta
            "cmp ecx, [{threshold}]",            // v > threshold: refused
            "jg {refused}",
            dawdle!(),
            "mov [{at} + rax + {UNIT}], cl",     // commit: i8[u] = v
            "25:"
            ;
            delta = in(reg) delta, threshold = in(reg) threshold.as_ptr(), out("rcx") _,
        );
    }
    Outcome::Done(())
}

/// See [`crate::arch::contract`]. `delta` is at most 128.
///
/// # Safety
/// As [`add`], but for a byte.
#[inline(always)]
pub unsafe fn down<const INDEX: isize>(place: Place<'_>, delta: u32, threshold: &AtomicU32) -> Outcome<()> {
    // SAFETY: as in `add`.
    unsafe {
        sequence!(place;
            "movsx ecx, byte ptr [{at} + rax + {UNIT}]",
            "sub ecx, {delta:e}",                // v = i8[u] - delta
            "mov r11d, [{threshold}]",
            "add r11d, ecx",                     // v + threshold < 0: refused
            "js {refused}",
            dawdle!(),
            "mov [{at} + rax + {UNIT}], cl",     // commit: i8[u] = v
            "25:"
            ;
            delta = in(reg) delta, threshold = in(reg) threshold.as_ptr(), out("rcx") _, out("r11") _,
        );
    }
    Outcome::Done(())
}

/// See [`crate::arch::contract`].
///
/// # Safety
/// As [`add`].
#[inline(always)]
pub unsafe fn move_within<const INDEX: isize>(place: Place<'_>, delta: u64, cap: &AtomicU64) -> Outcome<()> {
    // SAFETY: as in `add`.
    unsafe {
        sequence!(place;
            "mov rcx, [{at} + rax + {UNIT}]",
            "add rcx, {delta}",                  // v = u64[u] + delta
            "cmp rcx, [{cap}]",                  // v >= cap: refused
            "jae {refused}",
            dawdle!(),
            "mov [{at} + rax + {UNIT}], rcx",    // commit: u64[u] = v
            "25:"
            ;
            delta = in(reg) delta, cap = in(reg) cap.as_ptr(), out("rcx") _,
        );
    }
    Outcome::Done(())
}

/// See [`crate::arch::contract`].
///
/// # Safety
/// As [`add`], but for a byte.
pub unsafe fn swap<const INDEX: isize>(place: Place<'_>, old: u8, new: u8) -> Outcome<()> {
    // SAFETY: as in `add`.
    unsafe {
        sequence!(place;
            "cmp [{at} + rax + {UNIT}], {old}",  // u8[u] != old: refused
            "jne {refused}",
            dawdle!(),
            "mov [{at} + rax + {UNIT}], {new}",  // commit: u8[u] = new
            "25:"
            ;
            old = in(reg_byte) old, new = in(reg_byte) new,
        );
    }
    Outcome::Done(())
}
