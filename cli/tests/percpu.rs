//! Per-CPU memory, pages and areas from C and C++, by the library and header as installed, in both modes.

use crate::common::Scratch;
use crate::common::installed::{LANGUAGES, build, needed, runs};
use std::process::Command;

#[test]
fn a_c_and_a_cxx_program_allocate_in_both_modes() {
    if !needed() {
        return;
    }
    for ((compiler, standard), source) in
        LANGUAGES.iter().flat_map(|&language| ["percpu.c", "pages.c", "area.c"].map(|s| (language, s)))
    {
        let scratch = Scratch::new("c-percpu");
        let program = build(source, compiler, standard, &scratch);
        for tunables in ["", "glibc.pthread.rseq=0"] {
            assert_eq!(runs(Command::new(&program).env("GLIBC_TUNABLES", tunables)), "fine");
        }
    }
}
