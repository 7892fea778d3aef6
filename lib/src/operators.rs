//! # C++'s `operator new` and `operator delete`, all forms
//!
//! ```text
//!  new ──► the gate of others ──► malloc's fast path
//!            │ 0 unless OURS          │ refused
//!            ▼                        ▼
//!          cold (assembly) ──► `slow`: decide, malloc ──► a block, or null: jump to the next definition
//! ```
//! libstdc++'s `new` calls `malloc`, and its sized and aligned `delete` the plain one: two calls where one does. Ours are
//! one. Only without memory does the *next* definition (the C++ library's) get the request, which calls the new-handler
//! and throws. It gets there by a jump, with our frame gone and the registers as they came: what it throws passes no code
//! of ours.
//!
//! | state | who serves |
//! |---|---|
//! | `UNDECIDED` | until our constructor or the first call: nobody yet |
//! | `OURS` | we do |
//! | `THEIRS` | the next definition of each, as if ours were not there |
//!
//! `OURS` only if it makes no difference: if the whole process finds our definition of every form, and of `malloc` and
//! `free` (a program may replace some and count on the library's others to call them), and what stands behind ours is the
//! C++ library's and not, say, a library of the program's that brings its own. One that brings `malloc`, too (a
//! program linked with jemalloc), is hidden as a whole: its `delete` may call `free`, which is ours, on what its `new` took.
//!
//! **A C program** (one without a C++ library in its start-up scope) that loads a plug-in must not find any of these:
//! the plug-in may bring its own, or hidden halves of them. Its first `dlopen` hides ours, which it never used, in our
//! table of symbols ([`hide`]). A C++ program finds its library's own before a plug-in's anyhow.
//!
//! Cost: that of `malloc` and `free`, whose gates have a second value for these; 45 look-ups at the start of a program in C++. Locks: the
//! loader's, in the constructor.
#![allow(unsafe_code)] // C++, assembly and the loader's tables

use crate::heap::HEAP;
use crate::unwind;
use allotment_engine::arch::PAGE;
use allotment_engine::arch::atomic::{AtomicU8, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use allotment_engine::arch::sys::{self, Access};
use allotment_engine::heap::Refused;
use core::ffi::{CStr, c_char, c_int, c_void};

/// Not decided yet. (Not 0: see [`crate::process::Once`].)
const UNDECIDED: u8 = 1;
const OURS: u8 = 2;
const THEIRS: u8 = 3;
static STATE: AtomicU8 = AtomicU8::new(UNDECIDED);

/// The next definitions of [`NAMES`], written before [`STATE`] leaves `UNDECIDED`; [`abort`] where there is none.
static NEXT: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(1) }; NAMES.len()];

unsafe extern "C" {
    fn dlsym(from: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *mut c_char;
    fn dlmopen(space: isize, file: *const c_char, mode: c_int) -> *mut c_void;
    fn abort() -> !;
}

#[inline(always)]
fn is_ours() -> bool {
    // Relaxed: what `OURS` allows needs nothing that `decide` wrote.
    STATE.load(Relaxed) == OURS
}

/// Defines forms of `new`, `delete`, and their names.
macro_rules! operators {
    (new: $($new_at:literal $new:ident $cold:ident $align:ident $slow:ident;)* delete: $($delete_at:literal $delete:ident;)*) => {
        $(
            /// A form of `operator new`.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "C++'s name")]
            pub extern "C" fn $new(size: usize, second: usize, third: usize) -> *mut u8 {
                operators!(@$align $cold size second third)
            }

            /// The rest of it: the slow way, then the next definition, with what we were called with.
            #[cold]
            #[unsafe(naked)]
            extern "C" fn $cold(size: usize, second: usize, third: usize) -> *mut u8 {
                allotment_engine::call_or_pass_on!($slow, NEXT, $new_at)
            }
        )*
        $(
            /// A form of `operator delete`: size and alignment are not needed, nor believed.
            ///
            /// # Safety
            /// As C++'s.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "C++'s name")]
            pub unsafe extern "C" fn $delete(object: *mut u8, second: usize, third: usize) {
                // SAFETY: the caller's promise.
                unsafe { HEAP.free_others(object, || delete_cold(object, second, third, $delete_at)) }
            }
        )*
        const NAMES: &[&CStr] = &[
            $(operators!(@name $new),)*
            $(operators!(@name $delete),)*
        ];
    };
    (@plain $cold:ident $size:ident $second:ident $third:ident) => {
        HEAP.malloc_others($size, is_ours, |why| match why {
            Refused::Unserved => $cold($size, $second, $third),
            why => $cold($size, if why == Refused::Aborted { ABORTED } else { 0 }, 0),
        })
    };
    (@aligned $cold:ident $size:ident $second:ident $third:ident) => {
        if is_ours() && $second.is_power_of_two() {
            HEAP.aligned_or($size, $second, || $cold($size, $second, $third))
        } else {
            $cold($size, $second, $third)
        }
    };
    (@name $name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!(),
        }
    };
}

operators! {
    new:
    0 _Znwm new_cold plain slow;
    1 _Znam new_array_cold plain slow;
    2 _ZnwmRKSt9nothrow_t new_nothrow_cold plain slow;
    3 _ZnamRKSt9nothrow_t new_array_nothrow_cold plain slow;
    4 _ZnwmSt11align_val_t new_aligned_cold aligned slow_aligned;
    5 _ZnamSt11align_val_t new_array_aligned_cold aligned slow_aligned;
    6 _ZnwmSt11align_val_tRKSt9nothrow_t new_aligned_nothrow_cold aligned slow_aligned;
    7 _ZnamSt11align_val_tRKSt9nothrow_t new_array_aligned_nothrow_cold aligned slow_aligned;
    delete:
    8 _ZdlPv;
    9 _ZdaPv;
    10 _ZdlPvm;
    11 _ZdaPvm;
    12 _ZdlPvRKSt9nothrow_t;
    13 _ZdaPvRKSt9nothrow_t;
    14 _ZdlPvSt11align_val_t;
    15 _ZdaPvSt11align_val_t;
    16 _ZdlPvmSt11align_val_t;
    17 _ZdaPvmSt11align_val_t;
    18 _ZdlPvSt11align_val_tRKSt9nothrow_t;
    19 _ZdaPvSt11align_val_tRKSt9nothrow_t;
}

/// In place of the second argument: a sequence was aborted. (What plain forms have there is at most a `nothrow_t`, which is
/// empty: nobody reads it. And whoever has this number there by chance is counted as one more.)
const ABORTED: usize = 1;

/// A block, if we serve and there is memory; null: the next definition is to go on.
extern "C" fn slow(size: usize, second: usize) -> *mut u8 {
    if !decide() {
        return core::ptr::null_mut();
    }
    if second == ABORTED { HEAP.malloc_refused(size, true) } else { HEAP.malloc_large(size) }
}

/// The same, aligned. (What is no alignment is the next definition's to refuse.)
extern "C" fn slow_aligned(size: usize, align: usize) -> *mut u8 {
    if decide() && align.is_power_of_two() && align <= 1 << 46 {
        HEAP.aligned_slow(size, align)
    } else {
        core::ptr::null_mut()
    }
}

#[cold]
#[inline(never)]
unsafe fn delete_cold(object: *mut u8, second: usize, third: usize, at: usize) {
    if decide() {
        // SAFETY: the caller's promise.
        return unsafe { HEAP.free_refused(object) };
    }
    // Relaxed: `decide` saw the state after it.
    let next = NEXT[at].load(Relaxed);
    // SAFETY: the definition that the loader found behind ours, or `abort`; arguments too many stay in registers that nobody reads.
    unsafe {
        let next: unsafe extern "C" fn(*mut u8, usize, usize) = core::mem::transmute(next);
        next(object, second, third);
    }
}

/// Whether we serve.
#[inline(always)]
fn decide() -> bool {
    // Acquire: with the store below; whoever sees a decision sees `NEXT`.
    match STATE.load(Acquire) {
        UNDECIDED => decide_first(),
        state => state == OURS,
    }
}

/// Who comes first decides; two at a time decide the same.
#[cold]
#[inline(never)]
fn decide_first() -> bool {
    let state = if find_next() { OURS } else { THEIRS };
    // First: who is stopped in between (or forked from) has been served.
    if state == OURS {
        HEAP.serve_others();
    }
    STATE.store(state, Release);
    state == OURS
}

/// Fills [`NEXT`]; whether all that is seen is ours, and all that is next the C++ library's (or a whole allocator's).
fn find_next() -> bool {
    const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
    const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
    // SAFETY: names that end with zero.
    let look = |from, name: &CStr| unsafe { dlsym(from, name.as_ptr()) } as usize;
    let mut is_plain = [c"malloc", c"free"].iter().all(|name| unwind::own(look(RTLD_DEFAULT, name)));
    // An allocator behind us, whose `malloc` ours hides: its operators go with it. Who refuses is the C++ library.
    let hidden = unwind::module(look(RTLD_NEXT, c"malloc"), &mut []);
    let is_hidden = hidden.is_some_and(|(start, end)| (start..end).contains(&look(RTLD_NEXT, c"_Znwm")));
    let cxx = if is_hidden { cxx_library(look(RTLD_DEFAULT, c"_ZSt15get_new_handlerv")) } else { None };
    let mut is_missing = false;
    for (slot, name) in NEXT.iter().zip(NAMES) {
        let next = look(cxx.unwrap_or(RTLD_NEXT), name);
        is_plain &= unwind::own(look(RTLD_DEFAULT, name)) && (next == 0 || is_cxx(next));
        is_missing |= next == 0;
        // Relaxed: published by `STATE`.
        slot.store(if next == 0 { abort as *const () as usize } else { next }, Relaxed);
    }
    if is_missing {
        // SAFETY: forgets what the loader had to say of it.
        unsafe { dlerror() };
    }
    is_plain
}

/// What `dlsym` looks into to find the definitions of the C++ library that this address is in, if it is one.
fn cxx_library(address: usize) -> Option<*mut c_void> {
    const LM_ID_BASE: isize = 0;
    const RTLD_LAZY: c_int = 1;
    const RTLD_NOLOAD: c_int = 4;
    let path = unwind::file_name(address).filter(|_| is_cxx(address))?;
    // SAFETY: the name of a file that is loaded, as the loader gave it. (Not by `dlopen`, which is our own, too.)
    let handle = unsafe { dlmopen(LM_ID_BASE, path.as_ptr(), RTLD_LAZY | RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle)
}

/// Whether an address is in libstdc++ or libc++, by the file's name.
fn is_cxx(address: usize) -> bool {
    let Some(path) = unwind::file_name(address) else { return false };
    let name = path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    name.starts_with(b"libstdc++.so") || name.starts_with(b"libc++.so") || name.starts_with(b"libc++abi.so")
}

/// Whether a C++ library is in the scope that the program started with (the loader filled in what it found then).
fn has_cxx() -> bool {
    allotment_engine::weak_address!("_ZSt15get_new_handlerv") != 0
}

/// In the constructor: decides for a program in C++. (A program in C needs no answer: nobody asks.)
pub fn prepare() {
    if has_cxx() {
        decide();
    }
}

/// Whether [`hide`] is still due; `dlopen` reads it. (Not 0 at first: see [`crate::process::Once`].)
pub static HIDE: AtomicU8 = AtomicU8::new(1);

/// Before the program's first `dlopen`: in a program in C nobody is to find these any more. (Two at a time do the same.)
pub extern "C" fn hide() {
    if !has_cxx() {
        // SAFETY: called once the loader is done with our library.
        unsafe { hide_symbols() };
    }
    // Relaxed: a thread that comes meanwhile hides once more.
    HIDE.store(0, Relaxed);
}

unsafe extern "C" {
    /// Our own dynamic section: the linker's name, seen by us alone.
    #[link_name = "_DYNAMIC"]
    static DYNAMIC: [usize; 2];
}

/// A symbol as ELF has it.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// Makes each of [`NAMES`] local in our table of symbols, where look-ups by name pass it by. One byte each, so that a
/// look-up beside it finds it or does not. Its pages stay writable: making them read-only again would stop another thread that
/// is in here, too. Where the system refuses, the symbols stay.
///
/// # Safety
/// The loader has mapped and relocated this library.
unsafe fn hide_symbols() {
    const DT_STRTAB: usize = 5;
    const DT_SYMTAB: usize = 6;
    const DT_GNU_HASH: usize = 0x6fff_fef5;
    let (mut strings, mut symbols, mut hash) = (0, 0, 0);
    // SAFETY: pairs, up to one that begins with 0; glibc has made addresses of the offsets.
    unsafe {
        let mut entry = &raw const DYNAMIC;
        while (*entry)[0] != 0 {
            match (*entry)[0] {
                DT_STRTAB => strings = (*entry)[1],
                DT_SYMTAB => symbols = (*entry)[1],
                DT_GNU_HASH => hash = (*entry)[1],
                _ => (),
            }
            entry = entry.add(1);
        }
    }
    if strings == 0 || symbols == 0 || hash == 0 {
        return;
    }
    let (mut low, mut high) = (usize::MAX, 0);
    // SAFETY: tables of this library.
    unsafe {
        each_symbol(strings, symbols, hash, |symbol| {
            (low, high) = (low.min(symbol as usize), high.max(symbol as usize))
        });
        let low = low & !(PAGE - 1);
        if high == 0 || sys::protect(low, high + size_of::<Symbol>() - low, Access::ReadWrite).is_err() {
            return;
        }
        each_symbol(strings, symbols, hash, |symbol| {
            let info = &raw mut (*symbol).info;
            info.write_volatile(*info & 0xf); // STB_LOCAL
        });
    }
}

/// Shows the symbol of each of [`NAMES`].
///
/// # Safety
/// These are the library's tables of names, of symbols, and of their hashes: buckets, first symbol, words of the filter;
/// the filter, buckets, and a word for each symbol, whose lowest bit says that it is its bucket's last.
unsafe fn each_symbol(strings: usize, symbols: usize, hash: usize, mut show: impl FnMut(*mut Symbol)) {
    // SAFETY: the caller's promise.
    unsafe {
        let head = hash as *const u32;
        let (count, first, filter) = (*head as usize, *head.add(1) as usize, *head.add(2) as usize);
        let buckets = head.add(4 + 2 * filter);
        let chains = buckets.add(count);
        for bucket in 0..count {
            let mut at = *buckets.add(bucket) as usize;
            while at >= first {
                let symbol = (symbols as *mut Symbol).add(at);
                if NAMES.contains(&CStr::from_ptr((strings + (*symbol).name as usize) as *const c_char)) {
                    show(symbol);
                }
                at = if *chains.add(at - first) & 1 == 1 { 0 } else { at + 1 };
            }
        }
    }
}
