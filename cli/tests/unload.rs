//! Libraries that have the allocator inside, loaded and closed again by a program in C: a plug-in in Rust with the crate
//! as its heap, and the C library. What they have registered and started is there to the end.

use crate::common::installed::{needed, prefix, root, runs};
use crate::common::{ALLOTMENT, compile, preloaded};
use std::path::{Path, PathBuf};
use std::process::Command;

/// `lib/examples/plugin.rs`, in cargo's own directory: `cargo test` has built all of it but the last file.
fn plugin() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "-q", "-p", "allotment", "--example", "plugin", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("debug/examples/libplugin.so")
}

/// As it comes, without a registered area, with a keeper from the start, with little at a time, and in a program
/// whose own malloc is Allotment, too.
fn in_every_way(kind: &str, library: &Path) {
    let Some(program) = compile("unload.c", "unload", &[]) else { return };
    let with = |name: &str, value: &str| {
        let mut command = Command::new(&program);
        command.arg(kind).arg(library).env(name, value);
        assert_eq!(runs(&mut command), "ok", "{kind} {name}={value}");
    };
    with("LC_ALL", "C");
    with("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    with("ALLOTMENT_CONF", "keeper_bytes=0,idle_seconds=1");
    with("ALLOTMENT_CONF", "publish=on,sheaf_objects=2,cache_floor=0");
    if preloaded() {
        let mut command = Command::new(ALLOTMENT);
        assert_eq!(runs(command.args(["run", "--"]).arg(&program).arg(kind).arg(library)), "ok", "{kind} under run");
    }
}

#[test]
fn a_plugin_in_rust_is_loaded_and_closed() {
    in_every_way("rust", &plugin());
}

#[test]
fn the_c_library_is_loaded_and_closed() {
    if needed() {
        in_every_way("c", &prefix().join("lib/liballotment_c.so.0"));
    }
}
