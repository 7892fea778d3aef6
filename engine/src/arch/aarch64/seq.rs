//! # Sequences on malloc's sets, for aarch64
//!
//! What each does, may be refused for and leaves behind: [`crate::arch::contract`]. Every line of assembly carries its line of
//! that page.
//!
//! ## Orderings
//! This processor keeps no order between accesses to different places but where one depends on the other, or where it is told.
//!
//! | access | is | because |
//! |---|---|---|
//! | `cpu_id`, `rseq_cs` | plain | this thread's and this CPU's; the kernel writes them while the thread is not running |
//! | `slots[cpu_id]`, then the set | plain loads, the second's address made of the first's value | a set is filled before its slot leads to it (a release of the switcher); a dependent load sees that |
//! | the set's word, the sheaf | plain, dependent | as above; the last to write them ran on this CPU (one sees one's own stores), or on another behind whose fence the set was given back, or came here |
//! | commit of `pop`, `push`, batches, `add` | plain store | others read a set only behind a fence of this CPU (`membarrier`), or as a number that may be late |
//! | `tally` words | plain | numbers that may be late |
//! | commit of `swap` | release (`stlr`) | it publishes a sheaf: who looks at another's set sees what the sheaf holds before its word |
//! | commit of `switch` | release (`stlr`) | a set switched off by its own CPU is drained without a fence: who acquires the slot sees all that was done here |
//!
//! `models/tests/weak.rs` checks these on a memory that reorders all it may.
//!
//! Cost: pop 21 instructions, push 21, none of them exclusive or a barrier.
#![allow(unsafe_code)] // the assembly

use crate::arch::operands::{BARRIER, COUNTS, MAIN, SLOTS, TALLY};
use crate::arch::outcome::Outcome;

use core::arch::asm;

/// [`SLOTS`] as additions take it: 12 bits, and 12 bits higher up.
const SLOTS_HIGH: usize = SLOTS >> 12;
const SLOTS_LOW: usize = SLOTS & 0xfff;
// [`TALLY`] is further away than an addition reaches: one bit, which no address of a set has, is set instead.
const _: () = assert!(TALLY.is_power_of_two());
const _: () = assert!(SLOTS.is_multiple_of(8) && SLOTS < 1 << 15);

/// Frames a body: descriptor and abort stub out of line, the common beginning
/// before it. The body puts label 25 behind its committing store. `t` is a scratch
/// register and in the end the result: 0 refused (label 26), 1 aborted (label 28), else done (of `pop` the object; a barrier,
/// none of which is 1, says refused). `p` is another.
macro_rules! sequence {
    ($($body:expr),+ ; $($operands:tt)*) => {
        asm!(
            descriptor!(),
            "mov {t}, 1",
            "b 27f",
            "26:",
            "mov {t}, 0",
            "b 27f",
            ".subsection 0",
            "mrs {set}, tpidr_el0",
            "adrp {t}, 23b",
            "add {t}, {t}, :lo12:23b",
            "add {set}, {set}, {area}",
            "str {t}, [{set}, 8]",                   // area.rseq_cs = descriptor
            "22:",
            "ldrsw {t}, [{set}, 4]",                 // cpu_id
            "add {set}, {board}, {t}, lsl 3",
            "ldr {set}, [{set}, {SLOTS}]",
            "add {set}, {set}, {board}",             // set = board + slots[cpu_id]
            dawdle!(),
            $($body,)+
            "27:",
            SLOTS = const SLOTS,
            p = out(reg) _,
            out("x16") _, // for `dawdle!`
            $($operands)*
            options(nostack)
        )
    };
}

/// 0 refused, 1 aborted, else done.
#[inline(always)]
fn outcome<T>(out: usize, done: T) -> Outcome<T> {
    if out > 1 {
        return Outcome::Done(done);
    }
    unlikely(out)
}

/// Keeps the two rare results apart, away from the common one.
#[cold]
#[inline(always)]
fn unlikely<T>(out: usize) -> Outcome<T> {
    if out == 1 { Outcome::Aborted } else { Outcome::Refused }
}

/// See [`crate::arch::contract`].
///
/// # Safety
/// `board` is a `cache::Sets`, `area` the offset of this thread's rseq area from the thread pointer (see `rseq::area`), `class` a class's offset.
#[inline(always)]
#[must_use]
pub unsafe fn pop<const BARE: bool>(board: *const u8, area: isize, class: usize) -> Outcome<usize> {
    let object: usize;
    // SAFETY: touches the area's `rseq_cs`, the set of this CPU and the sheaf
    // that its word names, all of which are never unmapped.
    unsafe {
        sequence!(
            "add {set}, {set}, {class}",
            "ldr {w}, [{set}, {MAIN}]",                // w = set[class]
            "cbz {w}, 26b",                            // 0: refused
            "ldur {t}, [{w}, -8]",                     // object = *(w - 8)
            "cmp {t}, {BARRIER}",                      // a barrier: refused
            "b.ls 27f",
            "orr {p}, {set}, {TALLY}",
            "ldr {k}, [{p}, {COUNTS}]",
            "add {k}, {k}, 1",
            "str {k}, [{p}, {COUNTS}]",                // tally.allocs += 1
            "sub {w}, {w}, 8",
            dawdle!(),
            "str {w}, [{set}, {MAIN}]",                // commit: set[class] = w - 8 (plain: the CPU's own)
            "25:"
            ;
            board = in(reg) board, area = in(reg) area, class = in(reg) class,
            w = out(reg) _, set = out(reg) _, k = out(reg) _, t = out(reg) object,
            TALLY = const TALLY, COUNTS = const COUNTS - TALLY, MAIN = const MAIN, BARRIER = const BARRIER,
        );
    }
    if object as u64 > BARRIER {
        return Outcome::Done(object);
    }
    unlikely(object)
}

/// See [`crate::arch::contract`].
///
/// # Safety
/// As [`pop`]; `object` is a live object of that class, given up by the caller if done.
#[inline(always)]
#[must_use]
pub unsafe fn push<const BARE: bool>(board: *const u8, area: isize, class: usize, object: usize) -> Outcome<()> {
    let out: usize;
    // SAFETY: as in `pop`.
    unsafe {
        sequence!(
            "add {set}, {set}, {class}",
            "ldr {w}, [{set}, {MAIN}]",                // w = set[class]
            "cbz {w}, 26b",                            // 0: refused
            "ldr {t}, [{w}]",                          // *w is a barrier: refused (else above 1: in the end that says that this is done)
            "cmp {t}, {BARRIER}",
            "b.ls 26b",
            "orr {p}, {set}, {TALLY}",
            "ldr {k}, [{p}, {COUNTS} + 8]",
            "add {k}, {k}, 1",
            "str {k}, [{p}, {COUNTS} + 8]",            // tally.frees += 1
            "str {object}, [{w}]",                     // *w = object
            "add {w}, {w}, 8",
            dawdle!(),
            "str {w}, [{set}, {MAIN}]",                // commit: set[class] = w + 8 (plain: the CPU's own)
            "25:"
            ;
            board = in(reg) board, area = in(reg) area, class = in(reg) class,
            object = in(reg) object, set = out(reg) _, k = out(reg) _, t = out(reg) out, w = out(reg) _,
            TALLY = const TALLY, COUNTS = const COUNTS - TALLY, MAIN = const MAIN, BARRIER = const BARRIER,
        );
    }
    outcome(out, ())
}

/// See [`crate::arch::contract`]. Up to `n` objects go to `into`; returns how many.
///
/// # Safety
/// As [`pop`]; `into` has room for `n`.
#[must_use]
pub unsafe fn pop_batch(board: *const u8, area: isize, class: usize, into: *mut usize, n: usize) -> Outcome<usize> {
    let out: usize;
    let taken: usize;
    // SAFETY: as in `pop`; copies at most `n` words to `into`.
    unsafe {
        sequence!(
            "add {set}, {set}, {class}",
            "ldr {w}, [{set}, {MAIN}]",                // w = set[class]
            "cbz {w}, 26b",                            // 0: refused
            "mov {k}, 0",
            "21:",
            "cmp {k}, {n}",
            "b.eq 24f",
            "ldur {x}, [{w}, -8]",                     // object = *(w - 8)
            "cmp {x}, {BARRIER}",                      // until a barrier, or n of them
            "b.ls 24f",
            "str {x}, [{into}, {k}, lsl 3]",           // goes out
            "sub {w}, {w}, 8",                         // w -= 8
            "add {k}, {k}, 1",
            "b 21b",
            "24:",
            "cbz {k}, 26b",                            // none: refused
            "orr {p}, {set}, {TALLY}",
            "ldr {t}, [{p}, {COUNTS}]",
            "add {t}, {t}, {k}",
            "str {t}, [{p}, {COUNTS}]",                // tally.allocs += k
            "mov {t}, 2",
            dawdle!(),
            "str {w}, [{set}, {MAIN}]",                // commit: set[class] = w (plain: the CPU's own)
            "25:"
            ;
            board = in(reg) board, area = in(reg) area, class = in(reg) class,
            into = in(reg) into, n = in(reg) n, k = out(reg) taken, w = out(reg) _, set = out(reg) _, t = out(reg) out,
            x = out(reg) _, TALLY = const TALLY, COUNTS = const COUNTS - TALLY, MAIN = const MAIN, BARRIER = const BARRIER,
        );
    }
    outcome(out, taken)
}

/// See [`crate::arch::contract`]. Up to `n` objects come from `from`; returns how many.
///
/// # Safety
/// As [`push`], for each of the `n` objects at `from`.
#[must_use]
pub unsafe fn push_batch(board: *const u8, area: isize, class: usize, from: *const usize, n: usize) -> Outcome<usize> {
    let out: usize;
    let given: usize;
    // SAFETY: as in `push`; reads at most `n` words at `from`.
    unsafe {
        sequence!(
            "add {set}, {set}, {class}",
            "ldr {w}, [{set}, {MAIN}]",                // w = set[class]
            "cbz {w}, 26b",                            // 0: refused
            "mov {k}, 0",
            "21:",
            "cmp {k}, {n}",
            "b.eq 24f",
            "ldr {x}, [{w}]",                          // until *w is a barrier, or n of them
            "cmp {x}, {BARRIER}",
            "b.ls 24f",
            "ldr {x}, [{from}, {k}, lsl 3]",
            "str {x}, [{w}], 8",                       // *w = object, w += 8
            "add {k}, {k}, 1",
            "b 21b",
            "24:",
            "cbz {k}, 26b",                            // none: refused
            "orr {p}, {set}, {TALLY}",
            "ldr {t}, [{p}, {COUNTS} + 8]",
            "add {t}, {t}, {k}",
            "str {t}, [{p}, {COUNTS} + 8]",            // tally.frees += k
            "mov {t}, 2",
            dawdle!(),
            "str {w}, [{set}, {MAIN}]",                // commit: set[class] = w (plain: the CPU's own)
            "25:"
            ;
            board = in(reg) board, area = in(reg) area, class = in(reg) class,
            from = in(reg) from, n = in(reg) n, k = out(reg) given, w = out(reg) _, set = out(reg) _, t = out(reg) out,
            x = out(reg) _, TALLY = const TALLY, COUNTS = const COUNTS - TALLY, MAIN = const MAIN, BARRIER = const BARRIER,
        );
    }
    outcome(out, given)
}

/// See [`crate::arch::contract`]: `set[at]` becomes `new` if it is `old`.
///
/// # Safety
/// As [`pop`]; `at` is the offset of a word in a set, `new` a valid word for it.
#[must_use]
pub unsafe fn swap(board: *const u8, area: isize, at: usize, old: u64, new: u64) -> Outcome<()> {
    let out: usize;
    // SAFETY: as in `pop`.
    unsafe {
        sequence!(
            "cmp {set}, {board}",                      // void: refused
            "b.eq 26b",
            "add {p}, {set}, {at}",
            "ldr {t}, [{p}]",
            "cmp {t}, {old}",                          // set[at] != old: refused
            "b.ne 26b",
            "mov {t}, 2",
            dawdle!(),
            "stlr {new}, [{p}]",                       // commit: set[at] = new (release: what the sheaf holds is seen before it)
            "25:"
            ;
            board = in(reg) board, area = in(reg) area, at = in(reg) at,
            old = in(reg) old, new = in(reg) new, set = out(reg) _, t = out(reg) out,
        );
    }
    outcome(out, ())
}

/// Whether [`exchange`] ever does anything here.
pub const EXCHANGES: bool = false;

/// See [`crate::arch::contract`]. Refused: an interruption may come between the two stores of an `stp` (without `FEAT_LSE2`).
///
/// # Safety
/// None needed.
#[must_use]
pub const unsafe fn exchange(_: *const u8, _: isize, _: usize, _: isize) -> Outcome<()> {
    Outcome::Refused
}

/// See [`crate::arch::contract`]: the word at offset `at` of this set's tally grows by `n`.
///
/// # Safety
/// As [`pop`]; `at` is the offset of a word in a tally.
#[must_use]
pub unsafe fn add(board: *const u8, area: isize, at: usize, n: u64) -> Outcome<()> {
    let out: usize;
    // SAFETY: as in `pop`; the void set has no tally, so it is refused.
    unsafe {
        sequence!(
            "cmp {set}, {board}",                      // void: refused
            "b.eq 26b",
            "orr {p}, {set}, {TALLY}",
            "ldr {w}, [{p}, {at}]",
            "add {w}, {w}, {n}",
            "mov {t}, 2",
            dawdle!(),
            "str {w}, [{p}, {at}]",                    // commit: tally[at] += n (plain: a number)
            "25:"
            ;
            board = in(reg) board, area = in(reg) area, at = in(reg) at,
            n = in(reg) n, set = out(reg) _, t = out(reg) out, w = out(reg) _, TALLY = const TALLY,
        );
    }
    outcome(out, ())
}

/// See [`crate::arch::contract`]: this CPU goes to the set at offset `new` (0: nowhere) if it goes to `old` now.
///
/// # Safety
/// As [`pop`]; `old` is the address of a set, `new` the offset of one that nobody else uses, or 0; the
/// caller holds the lock of the slots.
#[must_use]
pub unsafe fn switch(board: *const u8, area: isize, old: usize, new: usize) -> Outcome<()> {
    let out: usize;
    // SAFETY: as in `pop`; writes the slot of this CPU.
    unsafe {
        sequence!(
            "cmp {set}, {old}",                        // set != old (void, or another CPU's): refused
            "b.ne 26b",
            "mrs {p}, tpidr_el0",
            "add {p}, {p}, {area}",
            "ldrsw {t}, [{p}, 4]",                     // cpu_id
            "add {p}, {board}, {t}, lsl 3",
            "add {p}, {p}, {SLOTS_HIGH}, lsl 12",
            "add {p}, {p}, {SLOTS_LOW}",
            "mov {t}, 2",
            dawdle!(),
            "stlr {new}, [{p}]",                       // commit: slots[cpu_id] = new (release: all that was done here is seen before it)
            "25:"
            ;
            board = in(reg) board, area = in(reg) area, old = in(reg) old,
            new = in(reg) new, set = out(reg) _, t = out(reg) out,
            SLOTS_HIGH = const SLOTS_HIGH, SLOTS_LOW = const SLOTS_LOW,
        );
    }
    outcome(out, ())
}
