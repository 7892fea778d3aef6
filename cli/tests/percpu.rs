//! Per-CPU memory from C and C++, by the library and header as installed, in both modes.

mod common;
use common::Scratch;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn output(command: &mut Command) -> String {
    let done = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {text}");
    String::from_utf8(done.stdout).expect("text")
}

#[test]
fn a_c_and_a_cxx_program_allocate_in_both_modes() {
    if ["cc", "c++", "pkg-config"].iter().any(|tool| Command::new(tool).arg("--version").output().is_err()) {
        eprintln!("skipped: no compiler or pkg-config (packages gcc, g++, pkg-config)");
        return;
    }
    let scratch = Scratch::new("c-percpu");
    let prefix = scratch.join("prefix");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-target-percpu");
    output(
        Command::new(root().join("include/install"))
            .arg(&prefix)
            .env("CARGO_TARGET_DIR", target)
            .env_remove("RUSTFLAGS"),
    );
    let flags = output(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "allotment"])
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
    );
    for (compiler, standard) in [("cc", &["-std=c11"][..]), ("c++", &["-x", "c++", "-std=c++17"])] {
        let program = scratch.join(compiler);
        output(
            Command::new(compiler)
                .args(standard)
                .args(["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2", "-pthread"])
                .arg(root().join("cli/tests/c/percpu.c"))
                .arg("-o")
                .arg(&program)
                .args(flags.split_whitespace())
                .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display())),
        );
        for tunables in ["", "glibc.pthread.rseq=0"] {
            assert_eq!(output(Command::new(&program).env("GLIBC_TUNABLES", tunables)), "fine\n");
        }
    }
}
