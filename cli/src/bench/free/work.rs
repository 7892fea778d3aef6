//! # What a worker of suite `free` does
//!
//! It touches every 4 KiB page of what it has, frees, and watches its own resident memory fall, a look every
//! millisecond. CPU time is the process's, from before the free until nine tenths are gone; set beside the wall time it shows what
//! waiting for the kernel's locks costs: the same bytes, more CPU seconds a GiB (there is no nearer look without performance
//! counters).
#![allow(unsafe_code)] // malloc, mmap and their opposites, on blocks that one owner holds

use super::super::process;
use super::now_ns;
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What is measured, and in what.
pub const METRICS: &[(&str, &str)] = &[
    // Writing a byte of each page.
    ("touch", "ms"),
    // Of the one call, or of all of them; and the longest of them.
    ("free", "ms"),
    ("worst", "us"),
    // Until nine tenths have left memory (looked for two seconds), what was resident then, and the CPU time that it took.
    ("gone", "ms"),
    ("kept", "MiB"),
    ("cpu", "ms/GiB"),
    // What another thread saw meanwhile: malloc and free of 100 bytes, of 100 KiB and of 4 MiB in turn.
    ("stall", "us"),
    ("pair", "ns/op"),
    // Of a process's end: until its parent has waited for it and its output has ended.
    ("wait", "ms"),
];

/// Before the time at which a worker ends.
pub const EXIT: &str = "ending ";

const GIB: usize = 1 << 30;
const MIB: usize = 1 << 20;
const PAGE: usize = 4096;
/// How long memory is watched.
const WATCHED: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One block.
    One,
    /// One page in 512: the range is 512 times as large.
    Sparse,
    /// A half in one block, a half in blocks of 256 KiB.
    Mixed,
    /// One block, beside a thread that allocates.
    Beside,
    /// One block, freed by another thread.
    Other,
    /// One block, and the end.
    Exit,
}

/// A case.
#[derive(Debug)]
pub struct Work {
    /// Its name.
    pub name: &'static str,
    /// What is done.
    pub about: &'static str,
    kind: Kind,
    bytes: usize,
}

impl Work {
    /// Bytes that become resident.
    pub fn bytes(&self, scale: u64) -> usize {
        ((self.bytes as u64 * scale / 100) as usize).max(4 * MIB).next_multiple_of(2 * MIB)
    }
    /// Whether the process's end is measured.
    pub fn is_exit(&self) -> bool {
        self.kind == Kind::Exit
    }
    fn has_huge_pages(&self) -> bool {
        self.name.ends_with("-huge")
    }
}

const fn case(name: &'static str, about: &'static str, kind: Kind, bytes: usize) -> Work {
    Work { name, about, kind, bytes }
}

/// The cases.
pub const CASES: &[Work] = &[
    case("one-1g", "one malloc, touched, and its free: 1 GiB of 4 KiB pages", Kind::One, GIB),
    case("one-4g", "4 GiB", Kind::One, 4 * GIB),
    case("one-12g", "12 GiB", Kind::One, 12 * GIB),
    case("one-1g-huge", "1 GiB, huge pages as each allocator has them by default", Kind::One, GIB),
    case("one-4g-huge", "4 GiB likewise", Kind::One, 4 * GIB),
    case("one-12g-huge", "12 GiB likewise", Kind::One, 12 * GIB),
    case("workers-1g", "1 GiB, synchronous, by numbers of workers", Kind::One, GIB),
    case("workers-4g", "4 GiB likewise", Kind::One, 4 * GIB),
    case("workers-12g", "12 GiB likewise", Kind::One, 12 * GIB),
    case("jobs-12g", "12 GiB, synchronous, by what a worker takes at a time", Kind::One, 12 * GIB),
    case("other-4g", "4 GiB, freed by another thread", Kind::Other, 4 * GIB),
    case("sparse", "one page in 512 of 16 GiB (32 MiB resident)", Kind::Sparse, GIB / 32),
    case("mixed", "2 GiB in one block, then 2 GiB in blocks of 256 KiB", Kind::Mixed, 4 * GIB),
    case("beside", "4 GiB, and what another thread's allocations take meanwhile", Kind::Beside, 4 * GIB),
    case("exit-8g", "the end of a process of 8 GiB, as its parent sees it", Kind::Exit, 8 * GIB),
    case("exit-8g-huge", "the same with huge pages", Kind::Exit, 8 * GIB),
];

/// Who has the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Malloc,
    Unmap,
    /// By so many threads.
    Advise(usize),
}

fn alloc(way: Way, bytes: usize) -> usize {
    // SAFETY: a block, or a mapping, of the caller's.
    let at = unsafe {
        if way == Way::Malloc {
            libc::malloc(bytes)
        } else {
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let at = libc::mmap(std::ptr::null_mut(), bytes, access, flags | libc::MAP_NORESERVE, -1, 0);
            if at == libc::MAP_FAILED { std::ptr::null_mut() } else { at }
        }
    };
    assert!(!at.is_null(), "memory");
    black_box(at) as usize
}

fn free(way: Way, at: usize, bytes: usize) {
    let pointer = at as *mut libc::c_void;
    // SAFETY: made by `alloc`, and nobody's any more.
    unsafe {
        match way {
            Way::Malloc => libc::free(pointer),
            Way::Unmap => _ = libc::munmap(pointer, bytes),
            Way::Advise(1) => _ = libc::madvise(pointer, bytes, libc::MADV_DONTNEED),
            Way::Advise(threads) => std::thread::scope(|scope| {
                // At ends of 2 MiB, so that no two meet in a page table.
                let part = (bytes / threads).next_multiple_of(2 * MIB);
                for begin in (0..bytes).step_by(part) {
                    let length = part.min(bytes - begin);
                    scope.spawn(move || libc::madvise((at + begin) as *mut libc::c_void, length, libc::MADV_DONTNEED));
                }
            }),
        }
    }
}

fn touch(at: usize, bytes: usize, step: usize) {
    for offset in (0..bytes).step_by(step) {
        // SAFETY: inside the block.
        unsafe { ((at + offset) as *mut u8).write_volatile(1) };
    }
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * PAGE
}

/// CPU milliseconds of this process so far.
fn cpu_ms() -> f64 {
    // SAFETY: fills a structure of ours.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    [usage.ru_stime, usage.ru_utime].map(|time| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3).iter().sum()
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Allocates in turn until `stop`; the worst of its operations in µs, and their mean in ns.
fn allocate_beside(stop: &AtomicBool) -> (f64, f64) {
    let (mut worst, mut count) = (Duration::ZERO, 0_u32);
    let began = Instant::now();
    while !stop.load(Relaxed) {
        for bytes in [100, 100 << 10, 4 * MIB] {
            let start = Instant::now();
            let block = alloc(Way::Malloc, bytes);
            touch(block, 1, 1);
            free(Way::Malloc, block, bytes);
            worst = worst.max(start.elapsed());
            count += 1;
        }
    }
    (worst.as_secs_f64() * 1e6, began.elapsed().as_nanos() as f64 / f64::from(count.max(1)))
}

fn run(work: &Work, way: Way, scale: u64) {
    let bytes = work.bytes(scale);
    let before = resident();
    // Blocks, and how far apart their pages are touched.
    let (blocks, step): (Vec<usize>, usize) = match work.kind {
        Kind::Sparse => (vec![bytes * 512], 512 * PAGE),
        Kind::Mixed => ([vec![bytes / 2], vec![256 << 10; bytes / 2 / (256 << 10)]].concat(), PAGE),
        _ => (vec![bytes], PAGE),
    };
    let began = Instant::now();
    let blocks: Vec<(usize, usize)> = blocks.into_iter().map(|bytes| (alloc(way, bytes), bytes)).collect();
    blocks.iter().for_each(|&(at, bytes)| touch(at, bytes, step));
    println!("sample touch {}", ms(began));
    if work.is_exit() {
        println!("{EXIT}{}", now_ns());
        let _ = std::io::stdout().flush();
        return;
    }
    let grown = resident().saturating_sub(before).max(1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let beside = (work.kind == Kind::Beside).then(|| {
            let watcher = scope.spawn(|| allocate_beside(&stop));
            std::thread::sleep(Duration::from_millis(20));
            watcher
        });
        let free_all = || {
            let (cpu, began, mut worst) = (cpu_ms(), Instant::now(), Duration::ZERO);
            for &(at, bytes) in &blocks {
                let start = Instant::now();
                free(way, at, bytes);
                worst = worst.max(start.elapsed());
            }
            (cpu, began, ms(began), worst)
        };
        let (cpu, began, took, worst) =
            if work.kind == Kind::Other { scope.spawn(free_all).join().expect("no panic") } else { free_all() };
        let left = |now: usize| now.saturating_sub(before);
        while left(resident()) > grown / 10 && began.elapsed() < WATCHED {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (gone, spent) = (ms(began), cpu_ms() - cpu);
        stop.store(true, Relaxed);
        println!("sample free {took}\nsample worst {}\nsample gone {gone}", worst.as_secs_f64() * 1e6);
        println!(
            "sample kept {}\nsample cpu {}",
            left(resident()) as f64 / MIB as f64,
            spent / grown as f64 * GIB as f64
        );
        if let Some(beside) = beside {
            let (stall, pair) = beside.join().expect("no panic");
            println!("sample stall {stall}\nsample pair {pair}");
        }
    });
}

/// Runs a worker and prints its samples.
pub fn work(what: &str, scale: u64, expect: Option<&Path>) -> Result<(), String> {
    let (case, way) = what.split_once(':').ok_or("no way")?;
    let work = CASES.iter().find(|work| work.name == case).ok_or_else(|| format!("no case {case}"))?;
    let way = match way {
        "malloc" => Way::Malloc,
        "munmap" => Way::Unmap,
        "madvise-1" => Way::Advise(1),
        "madvise-2" => Way::Advise(2),
        other => return Err(format!("no way {other}")),
    };
    if let Some(expect) = expect {
        process::owns_malloc(expect)?;
    }
    if !work.has_huge_pages() {
        // SAFETY: a number. (Where it is refused, huge pages are as the system has them.)
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    }
    run(work, way, scale);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs() {
        for case in CASES {
            for way in ["malloc", "munmap", "madvise-1", "madvise-2"] {
                work(&format!("{}:{way}", case.name), 0, None).expect("runs");
            }
        }
        assert!(work("one-1g:nobody", 0, None).is_err());
        assert!(work("nobody:malloc", 0, None).is_err());
    }

    #[test]
    fn memory_that_is_freed_is_seen_to_go() {
        let before = resident();
        let block = alloc(Way::Unmap, 64 * MIB);
        touch(block, 64 * MIB, PAGE);
        assert!(resident() >= before + 60 * MIB);
        free(Way::Advise(2), block, 64 * MIB);
        assert!(resident() < before + 30 * MIB);
    }
}
