//! # How a command ends
//!
//! Exit codes, and what failed: the code with one line. [`crate::term::finish`] says the line and makes the code.

use std::process::ExitCode;

/// Everything was done.
pub const DONE: u8 = 0;
/// A part of what was asked failed.
pub const FAILED: u8 = 1;
/// The command line is wrong (clap's own code too).
pub const USAGE: u8 = 2;
/// `run` itself failed before the program began.
pub const RUN_FAILED: u8 = 125;
/// The program was found and cannot be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// There is no such program.
pub const NOT_FOUND: u8 = 127;

/// Why not all was done: the exit code, and one line; empty where all was said already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One of the above.
    pub code: u8,
    /// For standard error.
    pub line: String,
}

impl Failure {
    /// The command line is wrong.
    pub fn usage(line: impl Into<String>) -> Self {
        Self { code: USAGE, line: line.into() }
    }
    /// A part failed, each of which was said.
    pub fn said() -> Self {
        String::new().into()
    }
}

/// A part of what was asked failed.
impl From<String> for Failure {
    fn from(line: String) -> Self {
        Self { code: FAILED, line }
    }
}

impl From<Failure> for ExitCode {
    fn from(failure: Failure) -> Self {
        failure.code.into()
    }
}
