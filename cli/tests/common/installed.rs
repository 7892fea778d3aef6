//! Programs in C and C++ built against the library and header as `docs/c.md` installs them.

use super::{Scratch, need};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The C library, installed by the documented command; built once.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-prefix");
        let done = Command::new(root().join("packaging/install"))
            .arg("c")
            .env("PREFIX", &prefix)
            .env_remove("DESTDIR")
            .env_remove("LIBDIR")
            .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-target"))
            .env_remove("RUSTFLAGS")
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        prefix
    })
}

/// Whether the tools are there; says what to install if not.
pub fn needed() -> bool {
    let tools = [("gcc", "gcc"), ("g++", "g++"), ("pkg-config", "pkgconf")];
    tools.iter().all(|(program, package)| need("the C library", program, package).is_some())
}

/// Compiler and flags of the two languages that the header is for.
pub const LANGUAGES: [(&str, &[&str]); 2] = [
    ("gcc", &["-std=c11", "-pedantic", "-D_GNU_SOURCE"]),
    ("g++", &["-x", "c++", "-std=c++17", "-pedantic", "-D_GNU_SOURCE"]),
];

/// Builds `tests/c/NAME` by what pkg-config says, with every warning an error.
pub fn build(name: &str, compiler: &str, standard: &[&str], scratch: &Scratch) -> PathBuf {
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "allotment"])
        .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"))
        .output()
        .unwrap();
    assert!(flags.status.success(), "{}", String::from_utf8_lossy(&flags.stderr));
    let program = scratch.join("program");
    let done = Command::new(compiler)
        .args(standard)
        .args(["-Wall", "-Wextra", "-Werror", "-O2", "-pthread"])
        .arg(root().join("cli/tests/c").join(name))
        .arg("-o")
        .arg(&program)
        .args(String::from_utf8(flags.stdout).unwrap().split_whitespace())
        .arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

/// Runs a program; what it prints, trimmed.
pub fn runs(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}\n{}", done.status, String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}
