//! bench
use crate::args;
/// b
pub fn bench(_: &args::Bench) -> std::process::ExitCode { 0.into() }
/// w
pub fn work(_: &args::BenchWorker) -> std::process::ExitCode { 0.into() }
