//! # What is installed beside the command
//!
//! The library, and pages and completions made from what the command says of itself ([`crate::args`]), for `packaging/install`:
//!
//! ```text
//!   DIRECTORY/liballotment.so
//!   DIRECTORY/man1/allotment.1, allotment-run.1, ...
//!   DIRECTORY/completions/allotment.bash, _allotment (zsh), allotment.fish
//! ```
//! Only commands that `--help` shows have a page.

use crate::args::{Args, Unpack};
use crate::{run, term};
use clap::CommandFactory as _;
use clap_complete::Shell;
use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

/// Writes all of them.
pub fn unpack(asked: &Unpack) -> ExitCode {
    let done =
        write(&asked.directory).map_err(|error| format!("{}: {}", asked.directory.display(), term::plain(&error)));
    term::finish(done)
}

fn write(directory: &Path) -> io::Result<()> {
    let (pages, completions) = (directory.join("man1"), directory.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    fs::write(directory.join("liballotment.so"), run::LIBRARY)?;
    clap_mangen::generate_to(Args::command(), &pages)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Args::command(), "allotment", &completions)?;
    }
    Ok(())
}
