//! # The C ABI: glibc's malloc symbols, answering for our heap
//!
//! Exported by the preload library only. Errors as C, POSIX and glibc 2.36
//! have them; `errno` is set to `ENOMEM` (by the heap's environment) or
//! `EINVAL` on failure and never touched otherwise. C++'s `operator new` and `delete` are in [`crate::operators`].
#![allow(unsafe_code)] // C

use crate::heap::HEAP;
use crate::memory::PERCPU;
use allotment_engine::arch::PAGE;
use allotment_engine::arch::atomic::{AtomicUsize, Ordering::Relaxed};
use allotment_engine::arch::sys::{self, Errno};
use allotment_engine::arch::text::Text;
use allotment_engine::stat::{Event, Level};
use allotment_engine::{define_clone, define_dlopen, define_vfork};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::Write;
use core::ptr;

#[link(name = "c")]
unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn fputs(text: *const c_char, stream: *mut c_void) -> c_int;
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    /// The C library's stream, which the program may have put another in place of.
    static stderr: *mut c_void;
}

#[cold]
fn fail(error: Errno) -> *mut c_void {
    // SAFETY: the calling thread's errno.
    unsafe { *__errno_location() = error.0 };
    ptr::null_mut()
}

/// Defines C functions, each exported under its name and under glibc's internal alias.
macro_rules! exported {
    ($($(#[$doc:meta])* fn $name:ident / $alias:ident ($($arg:ident: $type:ty),*) $(-> $out:ty)? $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the C function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $out)? $body

            $(#[$doc])*
            ///
            /// # Safety
            /// As the C function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $alias($($arg: $type),*) $(-> $out)? $body
        )*
    };
}

#[inline(always)]
fn do_malloc(size: usize) -> *mut c_void {
    HEAP.malloc(size).cast()
}

#[inline(always)]
fn do_calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) => HEAP.calloc_bare(bytes).cast(),
        // (What nobody has, by the same way: so this has no frame.)
        None => HEAP.calloc_bare(usize::MAX).cast(),
    }
}

#[inline(always)]
unsafe fn do_realloc(object: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise, both.
    unsafe { HEAP.realloc_or(object.cast(), size, |object, size| realloc_slow(object.cast(), size).cast()) }.cast()
}

/// As glibc: `realloc(NULL, n)` is malloc, `realloc(p, 0)` frees and returns null.
#[inline(never)]
unsafe fn realloc_slow(object: *mut c_void, size: usize) -> *mut c_void {
    if object.is_null() {
        return do_malloc(size);
    }
    if size == 0 {
        // SAFETY: the caller's promise.
        unsafe { HEAP.free(object.cast()) };
        return ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    unsafe { HEAP.realloc_rest(object.cast(), size) }.cast()
}

#[inline(always)]
fn do_memalign(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        return memalign_slow(align, size);
    }
    HEAP.aligned_or(size, align, || memalign_slow(align, size).cast()).cast()
}

/// As glibc: an alignment that is no power of two is rounded up to one.
#[inline(never)]
fn memalign_slow(align: usize, size: usize) -> *mut c_void {
    match align.max(1).checked_next_power_of_two() {
        Some(align) if align <= 1 << 46 => HEAP.aligned_slow(size, align).cast(),
        _ => fail(if align > 1 << 63 { Errno::EINVAL } else { Errno::ENOMEM }),
    }
}

fn do_pvalloc(size: usize) -> *mut c_void {
    match size.max(1).checked_next_multiple_of(PAGE) {
        Some(size) => HEAP.aligned(size, PAGE).cast(),
        None => fail(Errno::ENOMEM),
    }
}

/// As glibc: without memory `errno` says so, too; a wrong alignment leaves it alone.
#[inline(always)]
unsafe fn do_posix_memalign(into: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return Errno::EINVAL.0;
    }
    let object = do_memalign(align, size);
    if object.is_null() {
        return Errno::ENOMEM.0;
    }
    // SAFETY: the caller gave a place for a pointer.
    unsafe { *into = object };
    0
}

exported! {
    /// `malloc`.
    fn malloc / __libc_malloc(size: usize) -> *mut c_void { HEAP.malloc_bare(size).cast() }
    /// `calloc`.
    fn calloc / __libc_calloc(count: usize, size: usize) -> *mut c_void { do_calloc(count, size) }
    /// `realloc`.
    fn realloc / __libc_realloc(object: *mut c_void, size: usize) -> *mut c_void {
        // SAFETY: the caller's promise.
        unsafe { do_realloc(object, size) }
    }
    /// `free`.
    fn free / __libc_free(object: *mut c_void) {
        // SAFETY: the caller's promise.
        unsafe { HEAP.free_bare(object.cast()) }
    }
    /// `memalign`.
    fn memalign / __libc_memalign(align: usize, size: usize) -> *mut c_void { do_memalign(align, size) }
    /// `valloc`.
    fn valloc / __libc_valloc(size: usize) -> *mut c_void { HEAP.aligned(size, PAGE).cast() }
    /// `pvalloc`.
    fn pvalloc / __libc_pvalloc(size: usize) -> *mut c_void { do_pvalloc(size) }
    /// `posix_memalign`.
    fn posix_memalign / __posix_memalign(into: *mut *mut c_void, align: usize, size: usize) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { do_posix_memalign(into, align, size) }
    }
}

/// `aligned_alloc`, as glibc: the size need not be a multiple.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    do_memalign(align, size)
}

/// `reallocarray`.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(object: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { do_realloc(object, bytes) },
        None => fail(Errno::ENOMEM),
    }
}

/// Frees that also tell the size or alignment; neither is needed or believed. (C++'s are its library's, which calls the
/// program's own plain `operator delete` where it has one.)
macro_rules! frees {
    ($($name:ident($($type:ty),*);)*) => {$(
        /// A sized or aligned free.
        ///
        /// # Safety
        /// As [`free`].
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(object: *mut c_void $(, _: $type)*) {
            // SAFETY: the caller's promise.
            unsafe { HEAP.free_bare(object.cast()) }
        }
    )*};
}

frees! {
    free_sized(usize);
    free_aligned_sized(usize, usize);
}

/// `malloc_usable_size`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_usable_size(object: *mut c_void) -> usize {
    HEAP.usable(object.cast()).unwrap_or(0)
}

/// `malloc_trim`: drains every CPU's caches and gives all free memory back; 1 if any was.
/// The bytes to keep are not: there is no top of a heap here.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_: usize) -> c_int {
    c_int::from(HEAP.trim() > 0)
}

/// `mallopt`: glibc's parameters have no meaning here (see the knobs). It answers as glibc does: 1 for all, known to it or
/// not, but for a size of fast bins that they cannot have.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    const M_MXFAST: c_int = 1;
    const MAX_FAST_SIZE: c_int = (80 * size_of::<usize>() / 4) as c_int;
    c_int::from(parameter != M_MXFAST || (0..=MAX_FAST_SIZE).contains(&value))
}

/// What `mallinfo` and `mallinfo2` tell.
struct Info {
    arena: usize,
    areas: usize,
    lazy: usize,
    small: usize,
    free: usize,
    top: usize,
}

fn info() -> Info {
    HEAP.prepare();
    let sets = &HEAP.cache().sets;
    let board = sets.board();
    let level = |level| sets.level(level) as usize;
    let cached: usize = (1..allotment_engine::slab::class::CLASSES)
        .map(|class| HEAP.cached(class) * board.class[class].size.load(Relaxed) as usize)
        .sum();
    let front = HEAP.front_bytes();
    let areas = level(Level::Areas).saturating_sub(front);
    let small = level(Level::Taken).saturating_sub(cached);
    let arena = level(Level::Slabs) + level(Level::PagesFree);
    Info {
        arena,
        areas,
        lazy: level(Level::Lazy) + front,
        small,
        free: arena.saturating_sub(small),
        top: level(Level::PagesDirty) + level(Level::Lazy) + front,
    }
}

/// glibc's `struct mallinfo2` (`T` = `size_t`) and `struct mallinfo` (`int`).
#[repr(C)]
#[derive(Debug)]
pub struct Mallinfo<T> {
    arena: T,
    ordblks: T,
    smblks: T,
    hblks: T,
    hblkhd: T,
    usmblks: T,
    fsmblks: T,
    uordblks: T,
    fordblks: T,
    keepcost: T,
}

fn mallinfo_as<T>(convert: impl Fn(usize) -> T) -> Mallinfo<T> {
    let info = info();
    Mallinfo {
        arena: convert(info.arena),
        ordblks: convert(1),
        smblks: convert(0),
        hblks: convert(0),
        hblkhd: convert(info.areas),
        usmblks: convert(0),
        fsmblks: convert(info.lazy),
        uordblks: convert(info.small),
        fordblks: convert(info.free),
        keepcost: convert(info.top),
    }
}

/// `mallinfo2`: `arena` bytes of slabs and free pages, `hblkhd` of areas, `uordblks` of small objects in use,
/// `fordblks` free, `keepcost` what a trim could give back.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> Mallinfo<usize> {
    mallinfo_as(|value| value)
}

/// `mallinfo`: the same, cut to 31 bits.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> Mallinfo<c_int> {
    mallinfo_as(|value| value.min(c_int::MAX as usize) as c_int)
}

/// `malloc_info`: the levels and events as XML.
///
/// # Safety
/// `stream` is an open `FILE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut c_void) -> c_int {
    if options != 0 {
        return Errno::EINVAL.0;
    }
    HEAP.prepare();
    // SAFETY: an open stream and a string.
    let put = |text: &CStr| unsafe { fputs(text.as_ptr(), stream) };
    let tell = |kind, name, value| element(kind, name, value).as_c().map(put);
    put(c"<malloc version=\"allotment-1\">\n");
    for level in Level::ALL {
        let value = HEAP.cache().sets.level(*level);
        tell("level", level.name(), value);
    }
    for event in Event::ALL {
        tell("event", event.name(), HEAP.cache().sets.event(*event));
    }
    put(c"</malloc>\n");
    0
}

/// One XML element.
fn element(kind: &str, name: &str, value: u64) -> Text<[u8; 128]> {
    let mut text = Text::empty();
    let _ = writeln!(text, "<{kind} name=\"{name}\" value=\"{value}\"/>");
    text
}

/// `malloc_stats`: on standard error, in glibc's words, for whoever reads them there. The one arena is what small objects
/// have; mapped regions are areas, as they are now: their highs are not kept.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    let info = info();
    let sets = &HEAP.cache().sets;
    let areas =
        (sets.event(Event::AreaAlloc) + sets.event(Event::AreaReuse)).saturating_sub(sets.event(Event::AreaFree));
    let (system, used) = (info.arena + info.areas + info.lazy, info.small + info.areas);
    let mut text = Text::<[u8; 512]>::empty();
    let _ = write!(
        text,
        "Arena 0:\nsystem bytes     = {:10}\nin use bytes     = {:10}\nTotal (incl. mmap):\nsystem bytes     = {system:10}\n\
         in use bytes     = {used:10}\nmax mmap regions = {:10}\nmax mmap bytes   = {:10}\n",
        info.arena, info.small, areas, info.areas,
    );
    let Some(text) = text.as_c() else { return };
    const DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: the program's open stream, and a string; a word of ours. (No point where a thread is cancelled, as it is none in the C library.)
    unsafe {
        pthread_setcancelstate(DISABLE, &raw mut before);
        fputs(text.as_ptr(), stderr);
        pthread_setcancelstate(before, ptr::null_mut());
    }
}

/// `prctl`, watched: before a process filters its own system calls it asks here for the filter,
/// or for the promise without which the kernel takes none from it; and a thread that gives up the processor's counter. (libc's is variadic; on
/// Linux its arguments come in registers all the same.)
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    const PR_SET_SECCOMP: c_int = 22;
    const PR_SET_NO_NEW_PRIVS: c_int = 38;
    const PR_SET_TSC: c_int = 26;
    const SECCOMP_MODE_STRICT: usize = 1;
    // Whoever is in that mode may not read the processor's counter, either.
    if option == PR_SET_TSC || option == PR_SET_SECCOMP && a == SECCOMP_MODE_STRICT {
        HEAP.cache().sets.clock.stop();
    }
    if option == PR_SET_SECCOMP && a == SECCOMP_MODE_STRICT {
        HEAP.freeze();
    }
    if matches!(option, PR_SET_SECCOMP | PR_SET_NO_NEW_PRIVS) {
        HEAP.confine();
        // (A quota that becomes tight and a fork fence, too.)
        PERCPU.units.confine();
    }
    // SAFETY: the caller's promise.
    match unsafe { sys::prctl(option as usize, [a, b, c, d]) } {
        Ok(result) => result as c_int,
        Err(error) => {
            fail(error);
            -1
        }
    }
}

/// What `call` returns, made while this process has no thread of ours.
fn without_threads<T>(call: impl FnOnce() -> T) -> T {
    HEAP.hold_threads();
    let result = call();
    HEAP.release_threads();
    result
}

/// `unshare`, without our threads: the kernel gives no user namespace to a process of several, and what the program
/// leaves is not kept alive by them.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    match without_threads(|| sys::unshare(flags as usize)) {
        Ok(_) => 0,
        Err(error) => {
            fail(error);
            -1
        }
    }
}

/// Defines functions that change what every thread of the process is: the C library's own, which tells its threads, called
/// while there is none of ours.
macro_rules! for_all_threads {
    ($($number:literal $name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            /// The C library's, while there is no thread of ours.
            ///
            /// # Safety
            /// As the C library's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                if NEXT[$number].load(Relaxed) == UNKNOWN {
                    look_up(); // (A constructor calls that runs before ours.)
                }
                let next = NEXT[$number].load(Relaxed);
                if next == 0 {
                    fail(Errno::ENOSYS);
                    return -1;
                }
                // SAFETY: the definition that the loader found behind ours, of C's own type.
                let next: unsafe extern "C" fn($($type),*) -> c_int = unsafe { core::mem::transmute(next) };
                // SAFETY: the caller's promise.
                without_threads(|| unsafe { next($($argument),*) })
            }
        )*
        /// Their names.
        const NAMES: &[&CStr] = &[$(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!(),
        }),*];
    };
}

for_all_threads! {
    0 setuid(user: u32);
    1 setgid(group: u32);
    2 seteuid(user: u32);
    3 setegid(group: u32);
    4 setreuid(real: u32, effective: u32);
    5 setregid(real: u32, effective: u32);
    6 setresuid(real: u32, effective: u32, saved: u32);
    7 setresgid(real: u32, effective: u32, saved: u32);
    8 setgroups(count: usize, groups: *const u32);
    9 initgroups(user: *const c_char, group: u32);
    10 setns(file: c_int, kind: c_int);
    11 capset(header: *mut c_void, data: *const c_void);
}

/// `_Fork`, with what `fork` has its handlers for.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub extern "C" fn _Fork() -> c_int {
    if NEXT_FORK.load(Relaxed) == UNKNOWN {
        look_up();
    }
    let next = NEXT_FORK.load(Relaxed);
    if next == 0 {
        fail(Errno::ENOSYS);
        return -1;
    }
    // SAFETY: the definition that the loader found behind ours, of C's own type.
    let next: unsafe extern "C" fn() -> c_int = unsafe { core::mem::transmute(next) };
    // SAFETY: as the caller's.
    crate::fork::around(|| unsafe { next() })
}

/// As [`NEXT`], for [`_Fork`].
static NEXT_FORK: AtomicUsize = AtomicUsize::new(UNKNOWN);

/// In [`NEXT`]: not looked up yet. (Not 0: see [`crate::process::Once`].)
const UNKNOWN: usize = 1;
/// The next definitions of [`NAMES`]; 0: there is none.
static NEXT: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(UNKNOWN) }; NAMES.len()];

/// Looks the definitions up that ours call. In the constructor: later the loader's lock may be a fork's, or the caller a
/// signal handler.
pub fn look_up() {
    unsafe extern "C" {
        fn dlsym(from: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
    for (next, name) in NEXT.iter().zip(NAMES).chain([(&NEXT_FORK, &c"_Fork")]) {
        // SAFETY: a name that ends with zero. Relaxed: a number.
        next.store(unsafe { dlsym(RTLD_NEXT, name.as_ptr()) } as usize, Relaxed);
    }
}

/// `_exit`, by way of [`crate::exit`]. (In the child of a `vfork` or of a bare `clone` that does nothing.)
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    crate::exit::leave(ptr::null_mut());
    sys::exit(true, status)
}

/// `_Exit`: the same.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

define_vfork!(vfork, crate::fork::vfork_begin, crate::fork::vfork_end);
define_vfork!(__vfork, crate::fork::vfork_begin, crate::fork::vfork_end);

define_clone!(clone, crate::fork::clone_begin, crate::fork::clone_end);
define_clone!(__clone, crate::fork::clone_begin, crate::fork::clone_end);

define_dlopen!(dlopen, crate::conf::KEEP_DEEPBIND, crate::operators::HIDE, crate::operators::hide);

const _: () = assert!(size_of::<Mallinfo<usize>>() == 80);
