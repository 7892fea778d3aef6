//! # Allotment
//!
//! The Linux kernel's per-CPU memory management in user space: a global allocator whose caches belong to CPUs instead of threads, on
//! restartable sequences, and its parts for programs that keep their own.
//!
//! ```
//! #[global_allocator]
//! static GLOBAL: allotment::Allotment = allotment::Allotment;
//!
//! let numbers: Vec<u64> = (0..1000).collect();
//! assert_eq!(numbers.len(), 1000);
//! ```
//!
//! It is for programs with many threads, big heaps or long lives: nothing stays stranded in caches of threads that sleep, an idle
//! program gives its memory back, and the command `allotment` (crate `allotment-cli`) shows and steers the heap while it runs.
//!
//! # Its parts
//!
//! None of them needs the program's malloc to be this one.
//!
//! | module | gives | one operation |
//! |---|---|---|
//! | [`counter`] | counters that each CPU keeps for itself: events, levels with a stated error, quotas | 0.6–1.1 ns |
//! | [`percpu`] | memory of any size that exists once per CPU | a sequence |
//! | [`pages`] | blocks of 2^order pages, aligned to their size, on each NUMA node | 9 ns for a page and back |
//! | [`area`] | whole pages of any length, with a guard page on request | tens of ns if reused |
//! | [`drain`] | what other CPUs cache, given back while their owners go on | a fence, or none |
//! | [`reclaim`] | free memory given back now, knobs of the running heap | an advice call for a run of pages |
//! | [`stat`] | what the heap holds and did, as a snapshot | some µs |
//! | [`Allotment`] | the allocator, `trim`, objects in bulk | 26 and 32 instructions, none locked |
//!
//! ```
//! use allotment::{counter::LevelCounter, drain, pages, percpu::PerCpu};
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//!
//! // A level that any thread changes without a shared cache line, and that one load tells with a stated error.
//! let open = LevelCounter::new()?;
//! open.add(1);
//! assert!(open.approximate().abs_diff(1) <= open.error_bound() && open.exact() == 1);
//!
//! // A word for each CPU.
//! let hits = PerCpu::<AtomicU64>::new()?;
//! hits.this_cpu().fetch_add(1, Relaxed);
//! assert_eq!(hits.sum(|word| word.load(Relaxed)), 1);
//!
//! // 16 KiB at a multiple of 16 KiB.
//! let block = pages::alloc(2, None, pages::Flags::NONE)?;
//! assert!((block.as_ptr() as usize).is_multiple_of(16 << 10));
//! // SAFETY: the block is ours, and is not used any more.
//! unsafe { pages::free(block)? };
//!
//! // What other CPUs cache, without an interruption of any.
//! println!("{} bytes", drain::idle().bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Whole programs in `examples/`: `metrics` (100,000 counters), `buffer_pool` (a storage engine's, on pages), `polling` (a thread that
//! no drain interrupts), `huge_drop` (1 GiB dropped at once), `plugin` (a shared library with a heap of its own).
//!
//! # Where it runs
//!
//! Linux on x86-64 with glibc. Where there are no restartable sequences the same caches are used under locks
//! ([`counter::mode`] says which). `ALLOTMENT_CONF=KEY=VALUE,...` in the environment sets knobs. There are no cargo features. A
//! program links one version of the crate: it has one heap.
//!
//! # Inside
//!
//! This crate is the outermost layer: it owns the engine's one static, knows
//! the environment (libc, environment variables, fork) and gives the heap to
//! Rust ([`Allotment`]) and, built with `--cfg allotment_preload`, to C (`abi`), and the
//! counters to Rust ([`counter`]) and, with `--cfg allotment_capi`, to C (`capi`). Both are set by the
//! scripts that build those libraries and are no features, so that nobody who depends on the crate can turn them on.
#![no_std]

pub mod area;
mod bad_free;
mod conf;
pub mod counter;
pub mod drain;
mod exit;
mod fork;
mod global;
mod heap;
mod keeper;
mod machine;
mod memory;
pub mod pages;
pub mod percpu;
#[cfg(not(allotment_capi))]
mod pin;
mod process;
mod profile;
mod publish;
pub mod reclaim;
mod start;
pub mod stat;
mod unwind;

#[cfg(allotment_preload)]
mod abi;
#[cfg(allotment_capi)]
mod capi;
#[cfg(allotment_preload)]
mod operators;

pub use global::Allotment;
