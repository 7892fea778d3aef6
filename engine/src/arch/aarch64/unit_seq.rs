//! # Sequences on per-CPU memory, for aarch64
//!
//! What each does, may be refused for and leaves behind: [`crate::arch::contract`]. Every line of assembly carries its line of
//! that page. They leave by jumps, as those of x86-64.
//!
//! ## Orderings
//! | access | is | because |
//! |---|---|---|
//! | index, `cpu_id`, `rseq_cs` | plain | this thread's and this CPU's; the kernel writes them while the thread is not running |
//! | `high` | acquire (`ldar`) | what is behind it depends on it by a branch only, which no load waits for; it is raised by a release when units are opened again, and what others did to them before must be seen |
//! | `threshold`, `cap` | plain | numbers; who changes one and relies on it fences the CPU |
//! | the copy | plain | the CPU's own; an index that went to another CPU went there through the kernel, which orders |
//! | commits of `add`, `up`, `down` | plain stores | numbers; what must not be seen before them is added by a release of the caller |
//! | commit of `move_within` | release (`stlr`) | a stock is charged before it is given: a sum that sees the stock sees the charge (`counter/quota.rs`) |
//! | commit of `swap` | release (`stlrb`) | a spill announces itself before (`counter/level.rs`) |
//!
//! Cost: `add` 16 instructions, `up`, `down` and `move_within` 19; none of them exclusive.
#![allow(unsafe_code)] // the assembly

use crate::arch::atomic::{AtomicU32, AtomicU64};
use crate::arch::operands::{Place, UNIT, UNIT_SHIFT};
use crate::arch::outcome::Outcome;
use core::arch::asm;

/// [`UNIT`] as additions take it: 12 bits, 12 bits higher up.
const UNIT_HIGH: usize = UNIT >> 12;
const _: () = assert!(UNIT == UNIT_HIGH << 12 && UNIT_HIGH < 1 << 12);

/// Frames a body: descriptor and abort stub out of line, the common beginning before it,
/// in `u` the address of this index's copy. The body puts label 25
/// behind its committing store and may jump to `{refused}`.
macro_rules! sequence {
    ($place:expr; $($body:expr),+ ; $($operands:tt)*) => {
        asm!(
            descriptor!(),
            "b {aborted}",
            ".subsection 0",
            "mrs {p}, tpidr_el0",
            "add {p}, {p}, {area}",
            "adrp {u}, 23b",
            "add {u}, {u}, :lo12:23b",
            "str {u}, [{p}, 8]",                 // area.rseq_cs = descriptor
            "22:",
            dawdle!(),
            "ldr {u:w}, [{p}, {INDEX}]",         // i = area[INDEX]
            "ldar {v}, [{high}]",                // (acquire: see above)
            "cmp {u}, {v}",                      // i >= high: refused
            "b.hs {refused}",
            "ldr {v:w}, [{p}, 4]",
            "tbnz {v:w}, 31, {refused}",         // area.cpu_id < 0: refused
            "add {u}, {at}, {u}, lsl {UNIT_SHIFT}",
            "add {u}, {u}, {UNIT_HIGH}, lsl 12", // u = at + (i + 1) × UNIT
            $($body,)+
            area = in(reg) $place.base,
            INDEX = const INDEX,
            high = in(reg) $place.high.as_ptr(),
            at = in(reg) $place.at,
            UNIT_SHIFT = const UNIT_SHIFT,
            UNIT_HIGH = const UNIT_HIGH,
            refused = label { return Outcome::Refused },
            aborted = label { return Outcome::Aborted },
            p = out(reg) _, u = out(reg) _, v = out(reg) _,
            out("x16") _, // for `dawdle!`
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
            "ldr {v}, [{u}]",
            "add {v}, {v}, {n}",
            dawdle!(),
            "str {v}, [{u}]",                    // commit: u64[u] += n (plain: a number)
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
            "ldrsb {v:w}, [{u}]",
            "add {v:w}, {v:w}, {delta:w}",       // v = i8[u] + delta
            "ldr {p:w}, [{threshold}]",
            "cmp {v:w}, {p:w}",                  // v > threshold: refused
            "b.gt {refused}",
            dawdle!(),
            "strb {v:w}, [{u}]",                 // commit: i8[u] = v (plain: a number)
            "25:"
            ;
            delta = in(reg) delta, threshold = in(reg) threshold.as_ptr(),
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
            "ldrsb {v:w}, [{u}]",
            "sub {v:w}, {v:w}, {delta:w}",       // v = i8[u] - delta
            "ldr {p:w}, [{threshold}]",
            "cmn {p:w}, {v:w}",                  // v + threshold < 0: refused
            "b.mi {refused}",
            dawdle!(),
            "strb {v:w}, [{u}]",                 // commit: i8[u] = v (plain: a number)
            "25:"
            ;
            delta = in(reg) delta, threshold = in(reg) threshold.as_ptr(),
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
            "ldr {v}, [{u}]",
            "add {v}, {v}, {delta}",             // v = u64[u] + delta
            "ldr {p}, [{cap}]",
            "cmp {v}, {p}",                      // v >= cap: refused
            "b.hs {refused}",
            dawdle!(),
            "stlr {v}, [{u}]",                   // commit: u64[u] = v (release: it was charged before)
            "25:"
            ;
            delta = in(reg) delta, cap = in(reg) cap.as_ptr(),
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
            "ldrb {v:w}, [{u}]",
            "cmp {v:w}, {old:w}",                // u8[u] != old: refused
            "b.ne {refused}",
            dawdle!(),
            "stlrb {new:w}, [{u}]",              // commit: u8[u] = new (release: what went before is seen before it)
            "25:"
            ;
            old = in(reg) u32::from(old), new = in(reg) u32::from(new),
        );
    }
    Outcome::Done(())
}
