//! # What a worker of suite `free` does
//!
//! It touches every 4 KiB page of what it has, frees, and watches its own resident memory fall, a look every
//! millisecond, for a second and until nine tenths are gone. CPU time is the process's, from before the free until then;
//! set beside the wall time it shows what waiting for the kernel's locks costs: the same bytes, more CPU seconds a GiB. (How
//! long it waited for which lock, `perf lock contention` says, for root.)
#![allow(unsafe_code)] // malloc, mmap and their opposites, on blocks that one owner holds

use crate::bench::suite::{Job, Metric, Work, lower, work};
use crate::bench::worker::sample;
use crate::clock::{Used, monotonic_ns};
use crate::proc;
use allotment_engine::arch::PAGE;
use std::hint::black_box;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What is measured, and in what.
pub const METRICS: &[Metric] = &[
    // Writing a byte of each page.
    lower("touch", "ms"),
    // Of the one call, or of all of them; and the longest of them.
    lower("free", "ms"),
    lower("worst", "us"),
    // Until half has left memory, and nine tenths (looked for two seconds); the CPU time until then. How long, until
    // then, memory did not fall: the longest time between two looks that saw less.
    lower("half", "ms"),
    lower("gone", "ms"),
    lower("cpu", "ms/GiB"),
    lower("flat", "ms"),
    // What is resident still 100 ms from the beginning of the free (or at the first look after that), and at the end.
    lower("left", "MiB"),
    lower("kept", "MiB"),
    // What another thread saw meanwhile: malloc and free of 100 bytes, of 100 KiB and of 4 MiB in turn.
    lower("stall", "us"),
    lower("pair", "ns/op"),
];

/// Before the time at which a worker ends.
pub const EXIT: &str = "ending ";

const GIB: usize = 1 << 30;
const MIB: usize = 1 << 20;
/// How long memory is watched at most, and at least where the run is more than a warm-up.
const WATCHED: Duration = Duration::from_secs(2);
const WATCHED_LEAST: Duration = Duration::from_secs(1);
/// Per cent from which it is.
const MEASURED: u64 = 10;
/// When memory is looked at on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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

/// How much memory, and how.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    kind: Kind,
    bytes: usize,
}

impl Work<Load> {
    /// Bytes that become resident.
    pub fn bytes(&self, scale: u64) -> usize {
        ((self.kind.bytes as u64 * scale / 100) as usize).max(4 * MIB).next_multiple_of(2 * MIB)
    }
    /// Whether the process's end is measured.
    pub fn is_exit(&self) -> bool {
        self.kind.kind == Kind::Exit
    }
    /// Whether mappings, and the memory in a GiB of addresses, differ in size.
    pub fn is_uneven(&self) -> bool {
        matches!(self.kind.kind, Kind::Sparse | Kind::Mixed)
    }
    fn has_huge_pages(&self) -> bool {
        self.name.ends_with("-huge")
    }
}

const fn case(name: &'static str, about: &'static str, kind: Kind, bytes: usize) -> Work<Load> {
    work(name, about, &[1], &[], Load { kind, bytes })
}

/// The cases.
pub const WORKS: &[Work<Load>] = &[
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
    /// The seed's alternatives: by two threads, a mapping each …
    Mappings,
    /// … or 1 GiB of addresses each: a page upper directory, PUD.
    Puds,
}

/// What watching found, in ms and MiB.
struct Seen {
    half: f64,
    gone: f64,
    flat: f64,
    left: f64,
    kept: f64,
    cpu: f64,
}

/// Watches memory, of which `resident` tells, fall from `grown` bytes above `before`, for `least` or longer; `when_gone` is called once, when nine
/// tenths have left or time is over.
fn watch(
    resident: impl Fn() -> usize,
    (before, grown): (usize, usize),
    (began, cpu): (Instant, f64),
    least: Duration,
    when_gone: impl FnOnce(),
) -> Seen {
    let mib = |bytes: usize| bytes as f64 / MIB as f64;
    let mut seen = Seen { half: f64::NAN, gone: f64::NAN, flat: 0.0, left: f64::NAN, kept: 0.0, cpu: 0.0 };
    let (mut when_gone, mut fell, mut last) = (Some(when_gone), 0.0, grown);
    loop {
        let left = resident().saturating_sub(before);
        let (now, elapsed) = (ms(began), began.elapsed());
        if seen.half.is_nan() && (left <= grown / 2 || elapsed >= WATCHED) {
            seen.half = now;
        }
        // (A run that is shorter than that has nothing left then.)
        if elapsed <= ON_ITS_WAY || seen.left.is_nan() {
            seen.left = mib(left);
        }
        if when_gone.is_some() {
            seen.flat = f64::max(seen.flat, now - fell);
            // (A page or two of the looker's own.)
            if left + PAGE * 16 <= last {
                (fell, last) = (now, left);
            }
            if left <= grown / 10 || elapsed >= WATCHED {
                (seen.gone, seen.cpu) = (now, cpu_ms() - cpu);
                when_gone.take().into_iter().for_each(|call| call());
            }
        } else if elapsed >= least {
            seen.kept = mib(left);
            return seen;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
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
            Way::Mappings | Way::Puds => free_in_jobs(way, &[(at, bytes)]),
        }
    }
}

/// Gives blocks back by two threads, which take the next job when they are done with one.
fn free_in_jobs(way: Way, blocks: &[(usize, usize)]) {
    let jobs: Vec<(usize, usize)> = match way {
        Way::Puds => blocks.iter().flat_map(|&(at, bytes)| cut(at, bytes)).collect(),
        _ => blocks.to_vec(),
    };
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(&(at, bytes)) = jobs.get(next.fetch_add(1, Relaxed)) {
                    // SAFETY: made by `alloc`, and nobody's any more.
                    unsafe { libc::madvise(at as *mut libc::c_void, bytes, libc::MADV_DONTNEED) };
                }
            });
        }
    });
}

/// A range in parts that do not cross a multiple of 1 GiB.
fn cut(at: usize, bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let (end, mut from) = (at + bytes, at);
    std::iter::from_fn(move || {
        let part = (from, ((from / GIB + 1) * GIB).min(end) - from);
        from += part.1;
        (part.1 > 0).then_some(part)
    })
}

fn touch(at: usize, bytes: usize, step: usize) {
    for offset in (0..bytes).step_by(step) {
        // SAFETY: inside the block.
        unsafe { ((at + offset) as *mut u8).write_volatile(1) };
    }
}

fn resident() -> usize {
    proc::resident(std::process::id()).unwrap_or(0) as usize
}

/// CPU milliseconds of this process so far.
fn cpu_ms() -> f64 {
    Used::by(libc::RUSAGE_SELF).cpu_ns() as f64 / 1e6
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

fn measure(work: &Work<Load>, way: Way, scale: u64) {
    let bytes = work.bytes(scale);
    let before = resident();
    // Blocks, and how far apart their pages are touched.
    let (blocks, step): (Vec<usize>, usize) = match work.kind.kind {
        Kind::Sparse => (vec![bytes * 512], 512 * PAGE),
        Kind::Mixed => ([vec![bytes / 2], vec![256 << 10; bytes / 2 / (256 << 10)]].concat(), PAGE),
        _ => (vec![bytes], PAGE),
    };
    let began = Instant::now();
    let blocks: Vec<(usize, usize)> = blocks.into_iter().map(|bytes| (alloc(way, bytes), bytes)).collect();
    blocks.iter().for_each(|&(at, bytes)| touch(at, bytes, step));
    sample("touch", ms(began));
    if work.is_exit() {
        println!("{EXIT}{}", monotonic_ns());
        let _ = std::io::stdout().flush();
        return;
    }
    let grown = resident().saturating_sub(before).max(1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let beside = (work.kind.kind == Kind::Beside).then(|| {
            let watcher = scope.spawn(|| allocate_beside(&stop));
            std::thread::sleep(Duration::from_millis(20));
            watcher
        });
        let free_all = || {
            let (cpu, began, mut worst) = (cpu_ms(), Instant::now(), Duration::ZERO);
            if way == Way::Mappings || way == Way::Puds {
                free_in_jobs(way, &blocks);
                worst = began.elapsed();
            } else {
                for &(at, bytes) in &blocks {
                    let start = Instant::now();
                    free(way, at, bytes);
                    worst = worst.max(start.elapsed());
                }
            }
            (cpu, began, ms(began), worst)
        };
        let (cpu, began, took, worst) =
            if work.kind.kind == Kind::Other { scope.spawn(free_all).join().expect("no panic") } else { free_all() };
        let least = if scale >= MEASURED { WATCHED_LEAST } else { Duration::ZERO };
        let seen = watch(resident, (before, grown), (began, cpu), least, || stop.store(true, Relaxed));
        sample("free", took);
        sample("worst", worst.as_secs_f64() * 1e6);
        sample("half", seen.half);
        sample("gone", seen.gone);
        sample("flat", seen.flat);
        sample("left", seen.left);
        sample("kept", seen.kept);
        sample("cpu", seen.cpu / grown as f64 * GIB as f64);
        if let Some(beside) = beside {
            let (stall, pair) = beside.join().expect("no panic");
            sample("stall", stall);
            sample("pair", pair);
        }
    });
}

/// Does a job.
pub fn run(job: &Job) -> Result<(), String> {
    let work = job.find(WORKS)?;
    let way = match job.who.as_str() {
        "malloc" => Way::Malloc,
        "munmap" => Way::Unmap,
        "madvise-1" => Way::Advise(1),
        "madvise-2" => Way::Advise(2),
        "mappings" => Way::Mappings,
        "puds" => Way::Puds,
        _ => return Err(job.nobody()),
    };
    if !work.has_huge_pages() {
        // SAFETY: a number. (Where it is refused, huge pages are as the system has them.)
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    }
    measure(work, way, job.scale);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a mapping that are resident: other tests of this process have memory, too.
    fn resident_of(at: usize, bytes: usize) -> usize {
        let mut pages = vec![0_u8; bytes / PAGE];
        // SAFETY: fills a byte for each page.
        unsafe { libc::mincore(at as *mut libc::c_void, bytes, pages.as_mut_ptr()) };
        pages.into_iter().filter(|page| page & 1 == 1).count() * PAGE
    }

    #[test]
    fn memory_that_is_freed_is_seen_to_go() {
        const ALL: usize = 64 * MIB;
        let block = alloc(Way::Unmap, ALL);
        touch(block, ALL, PAGE);
        assert!(resident_of(block, ALL) >= 60 * MIB && resident() >= 60 * MIB);
        free(Way::Advise(2), block, ALL);
        assert!(resident_of(block, ALL) < 30 * MIB);
        touch(block, ALL, PAGE);
        free_in_jobs(Way::Puds, &[(block, ALL)]);
        assert!(resident_of(block, ALL) < 30 * MIB);
        let mut gone = false;
        let seen =
            watch(|| resident_of(block, ALL), (0, ALL), (Instant::now(), cpu_ms()), Duration::ZERO, || gone = true);
        assert!(gone && seen.kept < 30.0 && seen.left < 30.0);
        // And what stays, to stay.
        touch(block, ALL, PAGE);
        let seen = watch(|| resident_of(block, ALL), (0, ALL), (Instant::now(), cpu_ms()), Duration::ZERO, || {});
        assert!(seen.kept > 30.0 && seen.left > 30.0);
        free(Way::Unmap, block, ALL);
    }

    #[test]
    fn parts_end_where_a_page_directory_does() {
        let cut = |at, bytes| cut(at, bytes).collect::<Vec<_>>();
        assert_eq!(cut(3 * GIB, 2 * GIB), [(3 * GIB, GIB), (4 * GIB, GIB)]);
        assert_eq!(cut(GIB - PAGE, 2 * PAGE), [(GIB - PAGE, PAGE), (GIB, PAGE)]);
        assert_eq!(cut(PAGE, PAGE), [(PAGE, PAGE)]);
    }
}
