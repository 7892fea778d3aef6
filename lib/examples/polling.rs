//! A thread that polls and is never interrupted by the memory management of the others.
//!
//! It gives up what its CPU caches before it begins to poll (`quiescent`), so that drains, which the rest of the program asks
//! for a hundred times a second, take that memory without an interruption of this CPU. It prints the longest time between two
//! looks at its queue, and how many interruptions the drains made. (The longest gap is the scheduler's where the CPU is not the
//! thread's alone: `isolcpus`, `nohz_full`.) `cargo run --release -p allotment --example polling`

use allotment::drain::{self, DrainMode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

#[global_allocator]
static GLOBAL: allotment::Allotment = allotment::Allotment;

/// What others leave for the polling thread: the last packet's number.
static QUEUE: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicBool = AtomicBool::new(false);

/// Polls until the end; packets seen, and the longest time between two looks.
fn poll() -> (u64, Duration) {
    // Whatever is needed is allocated before; then this CPU's caches are given up.
    drain::quiescent(|| {
        let (mut seen, mut last, mut longest, mut before) = (0, 0, Duration::ZERO, Instant::now());
        while !DONE.load(Relaxed) {
            let packet = QUEUE.load(Relaxed);
            seen += u64::from(packet != last);
            last = packet;
            let now = Instant::now();
            longest = longest.max(now - before);
            before = now;
        }
        (seen, longest)
    })
}

/// The rest of the program: allocates and frees, and answers when a drain asks for what its CPU caches.
fn work() {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut number = 0_usize;
    while !DONE.load(Relaxed) {
        number += 1;
        kept.push(vec![0; number * 7919 % 5000]);
        if kept.len() == 10_000 {
            kept.clear();
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn main() {
    let (poller, worker) = (thread::spawn(poll), thread::spawn(work));
    let (mut bytes, mut answers, mut fences) = (0, 0, 0);
    for packet in 1..=100 {
        let report = drain::all(DrainMode::Gentle);
        bytes += report.bytes;
        answers += report.answers;
        fences += report.fences;
        QUEUE.store(packet, Relaxed);
        thread::sleep(Duration::from_millis(10));
    }
    DONE.store(true, Relaxed);
    let (seen, longest) = poller.join().expect("the poller");
    worker.join().expect("the worker");
    println!("{seen} packets seen; longest time between two looks {longest:.1?}");
    println!("100 gentle drains: {bytes} bytes, {answers} answers, {fences} fences (of CPUs that did not run us)");
}
