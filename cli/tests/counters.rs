//! The counters from outside: the C library built, installed and used as `docs/c.md` says, its header against its
//! symbols, and the instructions of an operation against the committed tables (`ALLOTMENT_TEST_BLESS=1` writes
//! them anew; those of the bench's contenders in a release test only).

use crate::common::code::{disassembly, output, walk};
use crate::common::installed::{LANGUAGES, build, needed, prefix, root, runs};
use crate::common::{ALLOTMENT, Scratch, need};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn a_c_and_a_cxx_program_count_in_both_modes() {
    if !needed() {
        return;
    }
    for (compiler, standard) in LANGUAGES {
        let scratch = Scratch::new("counters");
        let program = build("counters.c", compiler, standard, &scratch);
        // As it comes; it says how.
        let mode = runs(Command::new(&program).env_remove("GLIBC_TUNABLES"));
        assert!(["sequences", "fallback"].contains(&mode.as_str()), "{mode}");
        // Without a registered area.
        let mode = runs(Command::new(&program).arg("fallback").env("GLIBC_TUNABLES", "glibc.pthread.rseq=0"));
        assert_eq!(mode, "fallback");
        // By the knob.
        let mode = runs(Command::new(&program).arg("fallback").env("ALLOTMENT_CONF", "mode=fallback"));
        assert_eq!(mode, "fallback");
        // And under our malloc, whose library has the same functions.
        runs(Command::new(ALLOTMENT).args(["run", "--"]).arg(&program));
    }
}

#[test]
fn counters_go_on_where_sequences_cannot() {
    if !needed() {
        return;
    }
    let scratch = Scratch::new("counters");
    let program = build("counters_rough.c", "gcc", &["-std=gnu11"], &scratch);
    std::thread::scope(|scope| {
        // By the CPU's number, as where there is no `mm_cid`.
        for (name, value) in
            [("LC_ALL", "C"), ("GLIBC_TUNABLES", "glibc.pthread.rseq=0"), ("ALLOTMENT_CONF", "index=cpu")]
        {
            let program = &program;
            scope.spawn(move || runs(Command::new(program).env(name, value)));
        }
        for knobs in [&[][..], &["--set", "index=cpu"], &["--set", "mode=fallback"]] {
            let program = &program;
            scope.spawn(move || {
                runs(Command::new(ALLOTMENT).arg("run").args(knobs).arg("--").arg(program).arg("vfork"))
            });
        }
    });
}

/// What pkg-config says of a prefix with a space is one word for the shell.
#[test]
fn a_prefix_may_have_a_space() {
    if need("a_prefix_may_have_a_space", "pkg-config", "pkgconf").is_none() {
        return;
    }
    let scratch = Scratch::new("space");
    let template = fs::read_to_string(root().join("packaging/allotment.pc.in")).unwrap();
    let filled = template.replace("@PREFIX@", "/in st").replace("@LIBDIR@", "/in st/lib").replace("@VERSION@", "1");
    fs::write(scratch.join("allotment.pc"), filled).unwrap();
    let script = "eval \"set -- $(pkg-config --cflags --libs allotment)\"; printf '%s,' \"$@\"";
    let said = runs(Command::new("sh").args(["-c", script]).env("PKG_CONFIG_PATH", scratch.path()));
    assert_eq!(said, "-I/in st/include,-L/in st/lib,-lallotment_c,");
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(root().join("include/allotment.h")).unwrap();
    // Without comments.
    let code: String = header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let names = code.match_indices("allotment_").filter_map(|(at, _)| {
        let end = code[at..].find(|letter: char| !letter.is_alphanumeric() && letter != '_')? + at;
        code[end..].starts_with('(').then(|| code[at..end].to_owned())
    });
    names.collect()
}

#[test]
fn the_library_has_what_the_header_declares_and_no_malloc() {
    if need("symbols", "nm", "binutils").is_none() {
        return;
    }
    let library = prefix().join("lib/liballotment_c.so");
    let text = output("nm", &["-D", "--defined-only", library.to_str().unwrap()]);
    let exported: BTreeSet<String> =
        text.lines().filter_map(|line| line.split(' ').nth(2).map(str::to_owned)).collect();
    assert_eq!(exported, declared());
    assert!(exported.len() > 20);
    let dynamic = output("readelf", &["-dW", library.to_str().unwrap()]);
    assert!(dynamic.contains("liballotment_c.so.0") && dynamic.contains("NODELETE"), "{dynamic}");
    let segments = output("readelf", &["-lW", library.to_str().unwrap()]);
    assert!(!segments.lines().any(|line| line.trim_start().starts_with("TLS")), "{segments}");
    // Opens nothing by itself: no constructor of ours.
    let constructors = output("readelf", &["-dW", library.to_str().unwrap()]);
    let bytes = constructors.lines().find(|line| line.contains("INIT_ARRAYSZ")).map(str::to_owned);
    assert!(bytes.is_none_or(|line| line.contains(" 8 (bytes)")), "{constructors}"); // the compiler's own
}

/// Compares with, or writes, a golden file.
fn golden(name: &str, table: &str, listing: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("ALLOTMENT_TEST_BLESS").is_some() {
        fs::write(&path, table).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, table, "instructions have changed\n{listing}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn c_functions_are_the_committed_ones() {
    if need("instructions", "objdump", "binutils").is_none() {
        return;
    }
    let library = prefix().join("lib/liballotment_c.so");
    let (code, symbols) = disassembly(library.to_str().unwrap(), &["-D"]);
    let mut table = String::from("# function instructions branches writes locked calls, with its return\n");
    let mut listing = String::new();
    for name in ["event_add", "level_add", "level_approximate", "quota_try_add", "quota_sub"] {
        writeln!(listing, "{name}:").unwrap();
        let counts = walk(&code, symbols[&format!("allotment_counter_{name}")], &mut listing);
        assert_eq!((counts.locked, counts.calls), (0, 0), "a lock or a call on a fast path\n{listing}");
        writeln!(table, "{name} {} {} {} 0 0", counts.all, counts.branches, counts.writes).unwrap();
    }
    golden("counters_c.txt", &table, &listing);
}

/// Of the release build: what `bench counters` reports.
#[test]
#[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
fn operations_are_the_committed_ones() {
    if need("instructions", "objdump", "binutils").is_none() {
        return;
    }
    let (code, symbols) = disassembly(ALLOTMENT, &[]);
    let mut table = String::from("# family contender instructions locked: one operation inlined, without the return\n");
    let mut listing = String::new();
    for (name, &at) in symbols.iter().filter(|(name, _)| name.starts_with("counted_")) {
        writeln!(listing, "{name}:").unwrap();
        let counts = walk(&code, at, &mut listing);
        let mut words = name.split('_').skip(1);
        let (family, contender) = (words.next().unwrap(), words.next().unwrap());
        // What a function of its own needs and an inlined operation does not.
        let saved = listing.lines().rev().take_while(|line| !line.ends_with(':'));
        let saved = saved.filter(|line| line.contains(" push ") || line.contains(" pop ")).count();
        writeln!(table, "{family} {contender} {} {}", counts.all - 1 - saved, counts.locked).unwrap();
    }
    golden("counters.txt", &table, &listing);
}
