//! # Sequences on malloc's sets, for x86-64
//!
//! What each does, may be refused for and leaves behind: [`crate::arch::contract`]. Every line of assembly carries its line of
//! that page. Orderings are the processor's own: no load passes a load here, no store a store.
//!
//! Pop and push address the word by one register: processors that foresee which store a load will be served from (Intel's
//! since Golden Cove) do so for a register and a constant only. With two registers, a pop behind a push waited
//! until the push knew its object's class: a pair of the same size took 8.4 ns instead of 3.6. So with the slot, whose address the word is.
//!
//! `set` comes in as what is to be added to the slot: the board, and the class where only its words are wanted.
//!
//! Cost: pop 13 and push 13 instructions, no locked one; 2.6–6 ns a pair.
#![allow(unsafe_code)] // the assembly

use crate::arch::operands::{BARRIER, COUNTS, MAIN, SLOTS, TALLY};
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
/// register and in the end the result: 0 refused (label 26), 1 aborted (label 28), else done. (Of `pop` the object; a barrier, none of which
/// is 1, says refused.)
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
    if out == 1 { Outcome::Aborted } else { Outcome::Refused }
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
            "test {w}, {w}",                           // 0: refused
            "je 26b",
            "mov {t}, [{w} - 8]",                      // object = *(w - 8)
            "sub {w}, 8",
            "cmp {t}, {BARRIER}",                      // a barrier: refused
            "jbe 27f",
            "inc qword ptr [{set} + {COUNTS}]",        // tally.allocs += 1
            dawdle!(),
            "mov [{set} + {MAIN}], {w}",               // commit: set[class] = w - 8
            "25:"
            ;
            BARE = const BARE as u8, board = in(reg) board, area = in(reg) area,
            set = inout(reg) board as usize + class => _, w = out(reg) _, t = out(reg) object,
            COUNTS = const COUNTS, MAIN = const MAIN, BARRIER = const BARRIER,
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
    // SAFETY: as in `pop`.
    unsafe {
        sequence!(
            "mov {w}, [{set} + {MAIN}]",               // w = set[class]
            "test {w}, {w}",                           // 0: refused
            "je {refused}",
            "cmp qword ptr [{w}], {BARRIER}",          // *w is a barrier: refused
            "jbe {refused}",
            "mov [{w}], {object}",                     // *w = object
            "add {w}, 8",
            "inc qword ptr [{set} + {COUNTS} + 8]",    // tally.frees += 1
            dawdle!(),
            "mov [{set} + {MAIN}], {w}",               // commit: set[class] = w + 8
            "25:"
            ;
            BARE = const BARE as u8, board = in(reg) board, area = in(reg) area,
            set = inout(reg) board as usize + class => _, object = in(reg) object, w = out(reg) _,
            COUNTS = const COUNTS, MAIN = const MAIN, BARRIER = const BARRIER,
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
            "test {w}, {w}",                           // 0: refused
            "je 26b",
            "xor {k:e}, {k:e}",
            "21:",
            "cmp {k}, {n}",
            "je 24f",
            "mov {t}, [{w} - 8]",                      // object = *(w - 8)
            "cmp {t}, {BARRIER}",                      // until a barrier, or n of them
            "jbe 24f",
            "mov [{into} + {k}*8], {t}",               // goes out
            "sub {w}, 8",                              // w -= 8
            "inc {k}",
            "jmp 21b",
            "24:",
            "test {k}, {k}",                           // none: refused
            "je 26b",
            "add [{set} + {COUNTS}], {k}",             // tally.allocs += k
            dawdle!(),
            "mov [{set} + {MAIN}], {w}",               // commit: set[class] = w
            "25:",
            "mov {t:e}, 2"
            ;
            BARE = const 0, board = in(reg) board, area = in(reg) area,
            set = inout(reg) board as usize + class => _, into = in(reg) into, n = in(reg) n, k = out(reg) taken, w = out(reg) _, t = out(reg) out,
            COUNTS = const COUNTS, MAIN = const MAIN, BARRIER = const BARRIER,
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
            "test {w}, {w}",                           // 0: refused
            "je 26b",
            "xor {k:e}, {k:e}",
            "21:",
            "cmp {k}, {n}",
            "je 24f",
            "cmp qword ptr [{w}], {BARRIER}",          // until *w is a barrier, or n of them
            "jbe 24f",
            "mov {t}, [{from} + {k}*8]",
            "mov [{w}], {t}",                          // *w = object
            "add {w}, 8",                              // w += 8
            "inc {k}",
            "jmp 21b",
            "24:",
            "test {k}, {k}",                           // none: refused
            "je 26b",
            "add [{set} + {COUNTS} + 8], {k}",         // tally.frees += k
            dawdle!(),
            "mov [{set} + {MAIN}], {w}",               // commit: set[class] = w
            "25:",
            "mov {t:e}, 2"
            ;
            BARE = const 0, board = in(reg) board, area = in(reg) area,
            set = inout(reg) board as usize + class => _, from = in(reg) from, n = in(reg) n, k = out(reg) given, w = out(reg) _, t = out(reg) out,
            COUNTS = const COUNTS, MAIN = const MAIN, BARRIER = const BARRIER,
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

/// See [`crate::arch::contract`]: main and spare of a class change places, where the spare has what is wanted and main has not: what is no
/// barrier in the slot so many bytes from its word.
///
/// # Safety
/// As [`pop`]; `witness` is the offset of a slot from a word.
#[must_use]
pub unsafe fn exchange(board: *const u8, area: isize, class: usize, witness: isize) -> Outcome<()> {
    // SAFETY: as in `pop`. The two words are aligned to both their lengths (`cache::set`).
    unsafe {
        sequence!(
            "mov {t}, [{set} + {MAIN}]",               // w
            "test {t}, {t}",                           // (0: what is wanted it has not)
            "je 24f",
            "cmp qword ptr [{t} + {witness}], {BARRIER}", // *(w + witness) is no barrier: refused
            "ja {refused}",
            "24:",
            "mov {t}, [{set}]",                        // s
            "test {t}, {t}",                           // 0: refused
            "je {refused}",
            "cmp qword ptr [{t} + {witness}], {BARRIER}", // *(s + witness) is one (as in the void set): refused
            "jbe {refused}",
            "movq {both}, [{set} + {MAIN}]",           // (each by itself: it was stored by itself a moment ago)
            "movhps {both}, [{set}]",
            dawdle!(),
            "movaps [{set}], {both}",                  // commit: (s, w)
            "25:"
            ;
            BARE = const 0, board = in(reg) board, area = in(reg) area,
            set = inout(reg) board as usize + class => _, witness = in(reg) witness, both = out(xmm_reg) _,
            MAIN = const MAIN, BARRIER = const BARRIER,
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
