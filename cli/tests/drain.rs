//! Draining from C and C++, by the library and header as installed, in both modes: with another's malloc, and with ours.

use crate::common::installed::{LANGUAGES, build, needed, runs};
use crate::common::{ALLOTMENT, Scratch};
use std::process::Command;

#[test]
fn threads_that_are_drained_in_every_way_lose_nothing() {
    if !needed() {
        return;
    }
    for (compiler, standard) in LANGUAGES {
        let scratch = Scratch::new("c-drain");
        let program = build("drain.c", compiler, standard, &scratch);
        for tunables in ["", "glibc.pthread.rseq=0"] {
            runs(Command::new(&program).env("GLIBC_TUNABLES", tunables));
            for set in ["drain=auto", "drain=gentle", "index=cpu"] {
                let mut run = Command::new(ALLOTMENT);
                run.args(["run", "--set", set, "--"]).arg(&program).arg("expect");
                runs(run.env("GLIBC_TUNABLES", tunables));
            }
        }
    }
}
