//! # Sequences on malloc's sets, for x86-64
//!
//! What each does, may be refused for and leaves behind: [`crate::arch::contract`]. Every line of assembly carries its line of
//! that page. Orderings are the processor's own: no load passes a load here, no store a store.
//!
//! Pop and push address the word by one register: processors that foresee which store a load will be served from (Intel's
//! since Golden Cove) do so for a register and a constant only. With two registers, a pop behind a push waited
//! until the push knew its object's class: a pair of the same size took 8.4 ns instead of 3.6. So with the slot, whose address is the
//! word without its lowest bits: sheaves lie low (see `meta`). The instructions of both stand in the order that took least time of some
//! hundreds (docs/performance.md).
//!
//! `set` comes in as what is to be added to the slot: the board, and the class where only its words are wanted.
//!
//! Cost: pop and push 13 instructions each, no locked one; 2.6–6 ns a pair.
#![allow(unsafe_code)] // the assembly

use crate::arch::operands::{BITS, COUNT, COUNTS, MAIN, ONE, ROOM, SLOTS, TALLY, TOP};
use crate::arch::outcome::Outcome;

use core::arch::asm;

/// How every sequence begins.
macro_rules! beginning {
    () => {
        concat!(
            "lea {t}, [rip + 23b]\n",
            "mov fs:[{area} + 8], {t}\n", // area.rseq_cs = descriptor
            "22:\n",
            "movsxd {t}, dword ptr fs:[{area} + 4]\n", // cpu_id
            "add {set}, [{board} + {t}*8 + {SLOTS}]"   // set += slots[cpu_id]
        )
    };
}

/// Begins what unwinders are told of an abort stub, where the caller is `BARE`: it has nothing on its stack, so the stub is one frame
/// from who called it. (A signal that meets a sequence finds the thread at the stub, and a profiler walks from there. Elsewhere the walk
/// ends at the stub: how much the caller has on its stack the compiler tells of its own section only.)
macro_rules! walkable {
    () => {
        ".if {BARE}\n.cfi_startproc\n.endif"
    };
}

/// Ends it.
macro_rules! walked {
    () => {
        ".if {BARE}\n.cfi_endproc\n.endif"
    };
}

/// Frames a body that brings something out: descriptor and abort stub out of line, the common beginning
/// before it. The body puts label 25 behind its committing store. `t` is a scratch
/// register and in the end the result: 0 refused (label 26), 1 aborted (label 28), else done.
macro_rules! sequence_with_result {
    ($($body:expr),+ ; $($operands:tt)*) => {
        asm!(
            descriptor!(),
            walkable!(),
            "mov {t:e}, 1",
            "jmp 27f",
            "26:",
            "xor {t:e}, {t:e}",
            "jmp 27f",
            walked!(),
            ".popsection",
            beginning!(),
            dawdle!(),
            $($body,)+
            "27:",
            SLOTS = const SLOTS,
            $($operands)*
            options(nostack)
        )
    };
}

/// Frames a body that leaves nothing behind but what it committed, in the same way: it goes on behind label 25, or leaves by
/// `{refused}` or `{aborted}`, not by a number that is tested afterwards. (Labels beside a result are not stable yet.)
macro_rules! sequence {
    ($($body:expr),+ ; $($operands:tt)*) => {
        asm!(
            descriptor!(),
            walkable!(),
            "jmp {aborted}",
            walked!(),
            ".popsection",
            beginning!(),
            dawdle!(),
            $($body,)+
            SLOTS = const SLOTS,
            refused = label { return Outcome::Refused },
            aborted = label { return Outcome::Aborted },
            t = out(reg) _,
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
    if out == 0 { Outcome::Refused } else { Outcome::Aborted }
}

/// See [`crate::arch::contract`].
///
/// # Safety
/// `board` is a `cache::Sets`, `area` the offset of this thread's rseq area from the thread pointer (see `rseq::area`), `class` a class's offset.
/// `BARE` only where the function that this is inlined into has no frame.
#[inline(always)]
#[must_use]
pub unsafe fn pop<const BARE: bool>(board: *const u8, area: isize, class: usize) -> Outcome<usize> {
    let object: usize;
    // SAFETY: touches the area's `rseq_cs`, the set of this CPU and the sheaf
    // that its word names, all of which are never unmapped.
    unsafe {
        sequence_with_result!(
            "mov {w}, [{set} + {MAIN}]",               // w = set[class]
            "test {w:e}, {COUNT}",                     // count(w) == 0: refused
            "je 26b",
            "mov {t}, {w}",
            "shr {t}, {TOP}",                          // top(w)
            "sub {w}, {ONE}",
            "add qword ptr [{set} + {COUNTS}], 1",     // tally.allocs += 1
            "mov {t}, [{t} - 8]",                      // object = *(top - 8)
            dawdle!(),
            "mov [{set} + {MAIN}], {w}",               // commit: set[class] = w - one
            "25:"
            ;
            BARE = const BARE as u8, board = in(reg) board, area = in(reg) area,
            set = inout(reg) board as usize + class => _, w = out(reg) _, t = out(reg) object,
            COUNTS = const COUNTS, MAIN = const MAIN, ONE = const ONE, COUNT = const COUNT, TOP = const TOP,
        );
    }
    outcome(object, object)
}

/// See [`crate::arch::contract`].
///
/// # Safety
/// As [`pop`]; `object` is a live object of that class, given up by the caller if done.
#[inline(always)]
#[must_use]
pub unsafe fn push<const BARE: bool>(board: *const u8, area: isize, class: usize, object: usize) -> Outcome<()> {
    // SAFETY: as in `pop`.
    unsafe {
        sequence!(
            "mov {w}, [{set} + {MAIN}]",               // w = set[class]
            "mov {t}, {w}",
            "shr {t}, {TOP}",                          // top(w)
            "test {w:e}, {ROOM}",                      // room(w) == 0: refused
            "je {refused}",
            "add {w}, {ONE}",
            "mov [{t}], {object}",                     // *top = object
            "add qword ptr [{set} + {COUNTS} + 8], 1", // tally.frees += 1
            dawdle!(),
            "mov [{set} + {MAIN}], {w}",               // commit: set[class] = w + one
            "25:"
            ;
            BARE = const BARE as u8, board = in(reg) board, area = in(reg) area,
            set = inout(reg) board as usize + class => _, object = in(reg) object, w = out(reg) _,
            COUNTS = const COUNTS, MAIN = const MAIN, ONE = const ONE, ROOM = const ROOM, TOP = const TOP,
        );
    }
    Outcome::Done(())
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
        sequence_with_result!(
            "mov {w}, [{set} + {MAIN}]",               // w = set[class]
            "mov {k:e}, {w:e}",
            "and {k:e}, {COUNT}",
            "cmp {k}, {n}",
            "cmova {k}, {n}",                          // k = min(count(w), n)
            "test {k}, {k}",
            "je 26b",                                  // 0: refused
            "add [{set} + {COUNTS}], {k}",             // tally.allocs += k
            "lea rcx, [{k}*8]",
            "mov rsi, {w}",
            "shr rsi, {TOP}",
            "sub rsi, rcx",                            // from top(w) - k slots
            "mov rdi, {into}",
            "mov rcx, {k}",
            "rep movsq",                               // copies k objects out
            "imul {t}, {k}, {ONE}",
            "sub {w}, {t}",
            dawdle!(),
            "mov [{set} + {MAIN}], {w}",               // commit: set[class] = w - k × one
            "25:",
            "mov {t:e}, 2"
            ;
            BARE = const 0, board = in(reg) board, area = in(reg) area,
            set = inout(reg) board as usize + class => _, into = in(reg) into, n = in(reg) n, k = out(reg) taken, w = out(reg) _, t = out(reg) out,
            out("rcx") _, out("rsi") _, out("rdi") _, COUNTS = const COUNTS, MAIN = const MAIN, ONE = const ONE, COUNT = const COUNT, TOP = const TOP,
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
        sequence_with_result!(
            "mov {w}, [{set} + {MAIN}]",               // w = set[class]
            "mov {k:e}, {w:e}",
            "shr {k:e}, {BITS}",
            "and {k:e}, {COUNT}",
            "cmp {k}, {n}",
            "cmova {k}, {n}",                          // k = min(room(w), n)
            "test {k}, {k}",
            "je 26b",                                  // 0: refused
            "add [{set} + {COUNTS} + 8], {k}",         // tally.frees += k
            "mov rdi, {w}",
            "shr rdi, {TOP}",                          // to top(w)
            "mov rsi, {from}",
            "mov rcx, {k}",
            "rep movsq",                               // copies k objects in
            "imul {t}, {k}, {ONE}",
            "add {w}, {t}",
            dawdle!(),
            "mov [{set} + {MAIN}], {w}",               // commit: set[class] = w + k × one
            "25:",
            "mov {t:e}, 2"
            ;
            BARE = const 0, board = in(reg) board, area = in(reg) area,
            set = inout(reg) board as usize + class => _, from = in(reg) from, n = in(reg) n, k = out(reg) given, w = out(reg) _, t = out(reg) out,
            out("rcx") _, out("rsi") _, out("rdi") _, COUNTS = const COUNTS, MAIN = const MAIN, ONE = const ONE,
            COUNT = const COUNT, BITS = const BITS, TOP = const TOP,
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
    // SAFETY: as in `pop`.
    unsafe {
        sequence!(
            "cmp {set}, {board}",                      // void: refused
            "je {refused}",
            "cmp [{set} + {at}], {old}",               // set[at] != old: refused
            "jne {refused}",
            dawdle!(),
            "mov [{set} + {at}], {new}",               // commit: set[at] = new
            "25:"
            ;
            BARE = const 0, board = in(reg) board, area = in(reg) area, at = in(reg) at,
            old = in(reg) old, new = in(reg) new, set = inout(reg) board => _,
        );
    }
    Outcome::Done(())
}

/// Whether [`exchange`] ever does anything here.
pub const EXCHANGES: bool = true;

/// See [`crate::arch::contract`]: main and spare of a class change places, where the spare has what is `wanted` (the mask of a count or
/// of a room) and main has not.
///
/// # Safety
/// As [`pop`].
#[must_use]
pub unsafe fn exchange(board: *const u8, area: isize, class: usize, wanted: u64) -> Outcome<()> {
    // SAFETY: as in `pop`. The two words are aligned to both their lengths (`cache::set`).
    unsafe {
        sequence!(
            "test [{set} + {MAIN}], {wanted}",         // w & wanted != 0: refused
            "jne {refused}",
            "test [{set}], {wanted}",                  // s & wanted == 0 (as in the void set): refused
            "je {refused}",
            "movq {both}, [{set} + {MAIN}]",           // (each by itself: it was stored by itself a moment ago)
            "movhps {both}, [{set}]",
            dawdle!(),
            "movaps [{set}], {both}",                  // commit: (s, w)
            "25:"
            ;
            BARE = const 0, board = in(reg) board, area = in(reg) area,
            set = inout(reg) board as usize + class => _, wanted = in(reg) wanted, both = out(xmm_reg) _,
            MAIN = const MAIN,
        );
    }
    Outcome::Done(())
}

/// See [`crate::arch::contract`]: the word at offset `at` of this set's tally grows by `n`.
///
/// # Safety
/// As [`pop`]; `at` is the offset of a word in a tally.
#[must_use]
pub unsafe fn add(board: *const u8, area: isize, at: usize, n: u64) -> Outcome<()> {
    // SAFETY: as in `pop`; the void set has no tally, so it is refused.
    unsafe {
        sequence!(
            "cmp {set}, {board}",                      // void: refused
            "je {refused}",
            dawdle!(),
            "add [{set} + {at} + {TALLY}], {n}",       // commit: tally[at] += n
            "25:"
            ;
            BARE = const 0, board = in(reg) board, area = in(reg) area, at = in(reg) at,
            n = in(reg) n, set = inout(reg) board => _, TALLY = const TALLY,
        );
    }
    Outcome::Done(())
}

/// See [`crate::arch::contract`]: this CPU goes to the set at offset `new` (0: nowhere) if it goes to `old` now.
///
/// # Safety
/// As [`pop`]; `old` is the address of a set, `new` the offset of one that nobody else uses, or 0; the
/// caller holds the lock of the slots.
#[must_use]
pub unsafe fn switch(board: *const u8, area: isize, old: usize, new: usize) -> Outcome<()> {
    // SAFETY: as in `pop`; writes the slot of this CPU.
    unsafe {
        sequence!(
            "cmp {set}, {old}",                        // set != old (void, or another CPU's): refused
            "jne {refused}",
            "movsxd {t}, dword ptr fs:[{area} + 4]",   // cpu_id
            dawdle!(),
            "mov [{board} + {t}*8 + {SLOTS}], {new}",  // commit: slots[cpu_id] = new
            "25:"
            ;
            BARE = const 0, board = in(reg) board, area = in(reg) area, old = in(reg) old,
            new = in(reg) new, set = inout(reg) board => _,
        );
    }
    Outcome::Done(())
}
