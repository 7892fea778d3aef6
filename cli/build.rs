//! Builds the library that the command preloads and hands it to the command.
//!
//! The library is `no_std` and must be a `cdylib` with aborting panics, which a
//! dependency of a program cannot be; so this script runs a second cargo for it
//! in `$OUT_DIR/preload`, with everything cleared from the environment that
//! would make that build depend on how the outer one was started (clippy's
//! wrapper, coverage flags, another target directory).
//!
//! What the command gets:
//! - `ALLOTMENT_EMBED`: the path of `liballotment.so`, for `include_bytes!`;
//! - `ALLOTMENT_EMBED_HASH`: 16 hexadecimal digits of its content.
//!
//! `ALLOTMENT_PRELOAD_SO=PATH` at build time embeds that file instead; the same
//! variable at run time is used instead of what was embedded.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Variables that change what the inner cargo would build.
const CLEARED: &[&str] = &[
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
    "RUSTC",
    "RUSTDOC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_LINKER",
    "CLIPPY_ARGS",
    "CLIPPY_CONF_DIR",
    "CARGO_INCREMENTAL",
    "CARGO_TARGET_DIR",
    "CARGO_PRIMARY_PACKAGE",
    "LLVM_PROFILE_FILE",
    "OPT_LEVEL",
    "PROFILE",
    "DEBUG",
    "OUT_DIR",
    "TARGET",
    "HOST",
    "LD_PRELOAD",
];

/// The same, by how the name begins.
const CLEARED_FAMILIES: &[&str] =
    &["CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_FEATURE_", "CARGO_CFG_", "CARGO_PKG_", "CARGO_MANIFEST_", "DEP_"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=ALLOTMENT_PRELOAD_SO");
    let root = PathBuf::from(var("CARGO_MANIFEST_DIR")).join("..");
    for watched in ["Cargo.toml", "engine/Cargo.toml", "engine/src", "lib/Cargo.toml", "lib/src"] {
        println!("cargo:rerun-if-changed={}", root.join(watched).display());
    }
    let built = match env::var_os("ALLOTMENT_PRELOAD_SO") {
        Some(path) => PathBuf::from(path),
        None => build(&root),
    };
    let content = fs::read(&built).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    // A copy of our own: a later inner build must not change what was embedded.
    let embed = PathBuf::from(var("OUT_DIR")).join("liballotment.so");
    fs::write(&embed, &content).unwrap_or_else(|error| panic!("{}: {error}", embed.display()));
    println!("cargo:rustc-env=ALLOTMENT_EMBED={}", embed.display());
    println!("cargo:rustc-env=ALLOTMENT_EMBED_HASH={:016x}", fnv(&content));
}

/// Runs the inner cargo; the path of the library.
fn build(root: &Path) -> PathBuf {
    let target = var("TARGET");
    let directory = PathBuf::from(var("OUT_DIR")).join("preload");
    let mut cargo = Command::new(var("CARGO"));
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let per_target = text.starts_with("CARGO_TARGET_") && !text.ends_with("_LINKER");
        if CLEARED.contains(&text) || per_target || CLEARED_FAMILIES.iter().any(|family| text.starts_with(family)) {
            cargo.env_remove(&name);
        }
    }
    cargo
        // Goes before the flags of any configuration file. Every process has all of the library's text resident:
        // inlining less than usual makes it a third smaller, and no fast path longer (`tests/golden`). Functions begin with a
        // line of the cache: a twentieth more text, and a tenth less time where `malloc` or `free` began behind its middle.
        .env("CARGO_ENCODED_RUSTFLAGS", "-Cllvm-args=-inline-threshold=50\u{1f}-Cllvm-args=-align-all-functions=6")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "2")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        .args(["rustc", "-p", "allotment", "--lib", "--release", "--features", "preload", "--crate-type", "cdylib"])
        .arg("--manifest-path")
        .arg(root.join("lib/Cargo.toml"))
        .arg("--target-dir")
        .arg(&directory)
        .args(["--target", &target])
        .arg("--");
    for argument in ["-soname,liballotment.so", "-z,nodelete", "-z,defs", "-z,now"] {
        cargo.arg("-C").arg(format!("link-arg=-Wl,{argument}"));
    }
    let status = cargo.status().unwrap_or_else(|error| panic!("cannot start {}: {error}", var("CARGO")));
    assert!(status.success(), "building the preload library failed: {status}");
    directory.join(target).join("release/liballotment.so")
}

/// A variable that cargo promises.
fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// FNV-1a: names the file, proves nothing (the content itself is compared).
fn fnv(content: &[u8]) -> u64 {
    content.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
