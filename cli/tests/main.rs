//! # Tests of the command and of the library under real programs
//!
//! One program: what many tests share is compiled once, and where one of them waits, others run. A module each:
//! `cargo test --test command MODULE::`.

mod common;

mod apps;
mod arm64;
mod bench;
mod binary;
mod counters;
mod database;
mod drain;
mod layers;
mod limits;
mod observe;
mod percpu;
mod profile;
mod programs;
mod refused;
mod run;
mod statistics;
mod stress;
mod unload;
