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
use std::process::{Command, ExitStatus};
use std::{env, fs, io};

/// Variables that change what the inner cargo would build.
const CLEARED: &[&str] = &[
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
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
    for watched in [source("ALLOTMENT"), source("ALLOTMENT_ENGINE")] {
        for part in ["Cargo.toml", "build.rs", "src"] {
            println!("cargo:rerun-if-changed={}", watched.join(part).display());
        }
    }
    let built = match env::var_os("ALLOTMENT_PRELOAD_SO") {
        Some(path) => PathBuf::from(path),
        None => build(),
    };
    let content = fs::read(&built).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    // A copy of our own: a later inner build must not change what was embedded.
    let embed = PathBuf::from(var("OUT_DIR")).join("liballotment.so");
    fs::write(&embed, &content).unwrap_or_else(|error| panic!("{}: {error}", embed.display()));
    println!("cargo:rustc-env=ALLOTMENT_EMBED={}", embed.display());
    println!("cargo:rustc-env=ALLOTMENT_EMBED_HASH={:016x}", fnv(&content));
}

/// Where the sources of a package are that we depend on, as its own build script says.
fn source(package: &str) -> PathBuf {
    PathBuf::from(var(&format!("DEP_{package}_SOURCE")))
}

/// What the inner cargo builds: the manifest, and the engine where that does not say where it is.
///
/// In the repository that is the workspace's own. A package as `cargo package` makes it wants the engine from the registry, and
/// cargo would write a lock file beside it: it is built in a folder of ours, all whose files are links to the package's, but the manifest.
fn package(directory: &Path) -> (PathBuf, Option<PathBuf>) {
    let library = source("ALLOTMENT");
    if !library.join("Cargo.toml.orig").exists() {
        return (library.join("Cargo.toml"), None);
    }
    let linked = directory.join("source");
    let made = || -> io::Result<()> {
        if linked.exists() {
            fs::remove_dir_all(&linked)?;
        }
        fs::create_dir_all(&linked)?;
        for entry in fs::read_dir(&library)? {
            let name = entry?.file_name();
            match name.to_str() {
                Some("Cargo.lock") => {}
                Some("Cargo.toml") => {
                    // (A workspace of its own, wherever the folder is.)
                    let text = fs::read_to_string(library.join(&name))?;
                    fs::write(linked.join(&name), format!("{text}\n[workspace]\n"))?;
                }
                _ => std::os::unix::fs::symlink(library.join(&name), linked.join(&name))?,
            }
        }
        Ok(())
    };
    made().unwrap_or_else(|error| panic!("{}: {error}", linked.display()));
    (linked.join("Cargo.toml"), Some(source("ALLOTMENT_ENGINE")))
}

/// Builds the library; its path.
fn build() -> PathBuf {
    let directory = PathBuf::from(var("OUT_DIR")).join("preload");
    let (manifest, engine) = package(&directory);
    // What this build has fetched for the command is all that the library needs; only if it is not, the registry is asked.
    let is_built = engine.is_some() && inner(&directory, &manifest, engine.as_deref(), &["--offline"]).success();
    let status = if is_built { Default::default() } else { inner(&directory, &manifest, engine.as_deref(), &[]) };
    assert!(status.success(), "building the preload library failed: {status}");
    directory.join(var("TARGET")).join("release/liballotment.so")
}

/// Runs the inner cargo.
fn inner(directory: &Path, manifest: &Path, engine: Option<&Path>, more: &[&str]) -> ExitStatus {
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
        // Packages have no profiles: what the workspace says, again.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "2")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
        .args(["rustc", "--lib", "--release", "--crate-type", "cdylib"])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(directory)
        .args(["--target", &var("TARGET")])
        .args(more);
    if let Some(engine) = engine {
        cargo.arg("--config").arg(format!("patch.crates-io.allotment-engine.path={:?}", engine.display().to_string()));
    }
    // C's functions, and the names of `malloc` (lib/src/lib.rs).
    cargo.args(["--", "--cfg", "allotment_capi", "--cfg", "allotment_preload"]);
    for argument in ["-soname,liballotment.so", "-z,nodelete", "-z,defs", "-z,now"] {
        cargo.arg("-C").arg(format!("link-arg=-Wl,{argument}"));
    }
    cargo.status().unwrap_or_else(|error| panic!("cannot start {}: {error}", var("CARGO")))
}

/// A variable that cargo promises.
fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// FNV-1a: names the file, proves nothing (the content itself is compared).
fn fnv(content: &[u8]) -> u64 {
    content.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
