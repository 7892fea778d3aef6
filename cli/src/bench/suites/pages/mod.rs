//! # Suite `pages`: blocks of pages
//!
//! Each run is a worker process ([`work`]). Beside Allotment's pages run the C library's and mimalloc's `aligned_alloc`
//! (mimalloc by preload), the kernel through `mmap` and `munmap`, a plain locked buddy and lists under per-CPU spinlocks
//! before it (what the seed rejected). Last comes the seed's page-fault test ([`pft`]).

mod blocks;
mod pft;
mod work;

use crate::bench::peer::Peer;
use crate::bench::rows::OURS;
use crate::bench::suite::{Case, Contender, Setup, Suite, Who, Work};
use crate::bench::worker::Worker;
use work::{METRICS, PEERS, WORKS};

/// The suite.
pub const SUITE: Suite = Suite::new("pages", "blocks of pages, and a page-fault test under drains", cases)
    .of_workers(work::run, METRICS)
    .with_table(pft::table);

fn cases(setup: &Setup) -> Vec<Case> {
    Case::of(WORKS, |work, threads| work.who.iter().flat_map(|who| contenders(setup, work, threads, who)).collect())
}

/// One; or one for each peer that competes.
fn contenders<K>(setup: &Setup, work: &Work<K>, threads: usize, who: &Who) -> Vec<Contender> {
    let what = format!("{}:{}", work.name, who.key);
    let worker = |name: &str| Worker::new(SUITE, setup, name, &what, threads);
    match who.key {
        PEERS => {
            let peers = setup.peers.iter().filter(|peer| competes(peer));
            peers.map(|peer| worker(&format!("{} {}", peer.name, who.name)).under(peer).contender()).collect()
        }
        pft::KEPT => vec![worker(who.name).set(pft::KEEP).contender()],
        _ => vec![worker(who.name).contender()],
    }
}

/// The C library's, mimalloc's, and who was named with a path.
fn competes(peer: &Peer) -> bool {
    ![OURS, "jemalloc", "tcmalloc"].contains(&peer.name.as_str())
}
