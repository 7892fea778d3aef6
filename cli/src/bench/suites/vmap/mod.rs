//! # Suite `vmap`: areas
//!
//! Each run is a worker process ([`work`]): the C functions with the contender preloaded, or
//! `mmap` and `munmap`, or the seed's two ways to settle a [`purge`]. The cases of Linux's
//! `lib/test_vmalloc.c` have its names; in a page's place stand sixteen, since areas begin above 16 KiB.
//! Its `pcpu_alloc` is suite `percpu`; `kvfree_rcu_*`, `vm_map_ram` and `no_block_alloc` have no counterpart.

mod purge;
mod work;

use crate::bench::suite::{Case, Setup, Suite};
use crate::bench::worker::{Worker, contenders};
use work::{METRICS, WORKS};

/// The suite.
pub const SUITE: Suite = Suite::new("vmap", "large areas: the kernel's test_vmalloc, purge, 1 GiB in blocks", cases)
    .of_workers(work::run, METRICS);

fn cases(setup: &Setup) -> Vec<Case> {
    Case::of(WORKS, |work, threads| {
        let mut all = contenders(SUITE, setup, work, threads);
        if work.maps() {
            let what = format!("{}:mmap", work.name);
            all.push(Worker::new(SUITE, setup, "mmap/munmap", &what, threads).contender());
        }
        all
    })
}
