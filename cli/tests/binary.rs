//! What the built library is: its symbols, what it needs from the C library, and
//! the instructions of its fast paths, compared with the committed table
//! `golden/fastpath.txt` (`ALLOTMENT_TEST_BLESS=1` writes it anew).

use crate::common::code::{Counts, Stacks, disassembly, output, walk};
use crate::common::{ALLOTMENT, need};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const EXPORTED: &str = "
    malloc calloc realloc reallocarray free free_sized free_aligned_sized posix_memalign aligned_alloc memalign
    valloc pvalloc malloc_usable_size malloc_trim mallinfo mallinfo2 malloc_info malloc_stats mallopt vfork dlopen prctl unshare
    setuid setgid seteuid setegid setreuid setregid setresuid setresgid setgroups initgroups setns capset
    _exit _Exit
    __libc_malloc __libc_calloc __libc_realloc __libc_free __libc_memalign __libc_valloc __libc_pvalloc
    __posix_memalign
    clone __clone __vfork _Fork
    _Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZnwmSt11align_val_t _ZnamSt11align_val_t
    _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm
    _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t
    _ZdaPvmSt11align_val_t _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t";

/// Everything else the library does by itself or by system calls. None of these allocates,
/// except `fputs` and `fwrite`, which `malloc_info` and `malloc_stats` call for their caller (the latter where nothing is cancelled); `dlsym` and
/// `dlerror` are the constructor's.
const NEEDED: &str = "
    __cxa_atexit __cxa_at_quick_exit clock_gettime __errno_location __register_atfork abort bcmp dlmopen environ fputs fwrite fprintf fflush getauxval getcpu memcmp
    memcpy memmove memset dlsym dlerror pthread_atfork pthread_setcancelstate sched_getcpu __libc_single_threaded __libc_stack_end strlen stderr";
/// May be there or not.
const WEAK: &str = "
    _ZSt15get_new_handlerv __rseq_offset __rseq_size _dl_find_object __cxa_finalize __gmon_start__ _ITM_deregisterTMCloneTable _ITM_registerTMCloneTable";

/// malloc and free of a small size together (glibc 2.36 takes 129, jemalloc and gperftools 67).
const PAIR_MAX: usize = 55;

fn words(text: &str) -> BTreeSet<&str> {
    text.split_whitespace().collect()
}

/// The library that the command preloads: what users get.
fn library() -> String {
    let paths = output(ALLOTMENT, &["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    let path = paths.trim().split(':').next().unwrap();
    assert!(Path::new(path).is_file(), "{path}");
    path.to_owned()
}

#[test]
fn symbols_are_the_listed_ones() {
    if need("symbols", "nm", "binutils").is_none() {
        return;
    }
    let library = library();
    let text = output("nm", &["-D", &library]);
    let (mut exported, mut needed) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (kind, name) = (fields[fields.len() - 2], fields[fields.len() - 1].split('@').next().unwrap());
        match kind {
            "U" => needed.insert(name),
            "w" | "v" => {
                assert!(words(WEAK).contains(name), "weak symbol {name}");
                continue;
            }
            // The parts (`include/allotment.h`; `tests/counters.rs` compares them with the header).
            _ if name.starts_with("allotment_") => continue,
            _ => exported.insert(name),
        };
    }
    assert_eq!(exported, words(EXPORTED), "exported symbols");
    let unlisted: Vec<_> = needed.difference(&words(NEEDED)).copied().collect();
    assert!(unlisted.is_empty(), "needs {unlisted:?}, which is not on the list");
}

#[test]
fn library_has_no_thread_locals_and_no_runtime() {
    if need("library", "readelf", "binutils").is_none() {
        return;
    }
    let library = library();
    let segments = output("readelf", &["-lW", &library]);
    assert!(!segments.lines().any(|line| line.trim_start().starts_with("TLS")), "{segments}");
    let dynamic = output("readelf", &["-dW", &library]);
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.iter().all(|line| line.contains("libc.so.6") || line.contains("ld-linux")), "{needed:?}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    assert!(!dynamic.contains("TEXTREL") && !dynamic.contains("STATIC_TLS"), "{dynamic}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn fast_paths_are_the_committed_ones() {
    if need("fast paths", "objdump", "binutils").is_none() {
        return;
    }
    let (code, symbols) = disassembly(&library(), &["-D"]);
    let mut table =
        String::from("# entry instructions branches writes locked calls lines: fast path of the release library\n");
    let mut listing = String::new();
    let mut by_name = BTreeMap::new();
    for name in [
        "malloc",
        "calloc", // up to memset, its last; without a frame, as the others (a walk from a signal begins there)
        "free",
        "free_sized",
        "_Znwm",
        "_ZdlPvm",
        "aligned_alloc",
        "posix_memalign",
        "realloc",
        "malloc_usable_size",
    ] {
        writeln!(listing, "{name}:").unwrap();
        let counts = walk(&code, symbols[name], &mut listing);
        let Counts { all, branches, writes, locked, calls, lines } = &counts;
        let lines = lines.len();
        writeln!(table, "{name:<18} {all:>3} {branches:>3} {writes:>3} {locked:>3} {calls:>3} {lines:>3}").unwrap();
        by_name.insert(name, counts);
    }
    let (malloc, free) = (&by_name["malloc"], &by_name["free"]);
    for counts in [malloc, free] {
        assert_eq!((counts.locked, counts.calls), (0, 0), "a lock or a call on a fast path\n{listing}");
    }
    // (One more, and a pair takes a cycle longer, whatever is in it: docs/performance.md.)
    for name in ["malloc", "free", "_Znwm", "_ZdlPvm"] {
        assert_eq!(by_name[name].lines.len(), 2, "cache lines of {name}\n{listing}");
    }
    assert!(malloc.all + free.all <= PAIR_MAX, "{} instructions a pair\n{listing}", malloc.all + free.all);
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/fastpath.txt");
    if std::env::var_os("ALLOTMENT_TEST_BLESS").is_some() {
        fs::write(&golden, &table).unwrap();
    }
    let committed = fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(committed, table, "the fast paths have changed\n{listing}");
}

/// What docs/limits.md says of the stack, by the frames of the built library: no chain of calls may come near, however rare. (stack.c
/// measures what the calls of a program meet.)
#[test]
#[cfg(target_arch = "x86_64")]
fn no_entry_point_is_deep() {
    /// Less than the 4,096 promised: room for what is called through pointers unseen, and for the call itself.
    const BOUND: usize = 3840;
    /// What calls what through a pointer, deep down.
    const POINTERS: [(&str, &str); 1] = [("Cache5drain", "RunningCpus8contains")];
    if need("stacks", "objdump", "binutils").is_none() {
        return;
    }
    let (code, symbols) = disassembly(&library(), &[]);
    // Once in a process: the heap opens. And a look as far down as the promise goes takes nothing.
    let is_left_out = |name: &str| name.contains("open_or_wait") || name.contains("5stack4look");
    let mut stacks = Stacks::new(&code, &symbols, &POINTERS, is_left_out);
    let kept: BTreeSet<&str> = words(EXPORTED).into_iter().filter(|name| symbols.contains_key(*name)).collect();
    assert!(kept.len() > 60, "{kept:?}");
    for name in kept {
        let bytes = stacks.deepest(symbols[name]);
        assert!(bytes <= BOUND, "{name} takes {bytes} bytes of stack:\n{}", stacks.chain(symbols[name]));
        assert!(name != "malloc" || bytes > 1024, "{bytes}: the chain of malloc is not seen");
    }
}
