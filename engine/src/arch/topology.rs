//! # What the kernel's files say about CPUs, nodes, and where our threads run
//!
//! | file | asked for |
//! |---|---|
//! | `/sys/devices/system/cpu/isolated`, `nohz_full` | CPUs that a drain must not interrupt |
//! | `/sys/devices/system/node/nodeN/distance` | which node is the next best |
//! | `/proc/self/task/N/stat` | CPUs on which a fence would interrupt a thread of ours |
//! | `/sys/kernel/mm/transparent_hugepage/…` | whether memory that asks for huge pages may get any |
//!
//! Read where a slow path needs it, and never where a filter of system calls may kill for it: by the
//! keeper when it starts, by an explicit drain. What cannot be read is as if it said nothing.
//! Locks: none. Cost: three system calls a file; one file for each thread.

use super::number::decimal;
use super::sys;
use super::text::Text;
use core::ffi::CStr;
use core::fmt::Write;

/// Most threads that are looked at.
const THREADS: usize = 4096;

/// The ranges (first and last) of a list of the kernel's (`0-3,8`), which a file has as its one line, however long.
pub fn list(path: &CStr, mut each: impl FnMut(usize, usize)) {
    let Ok(file) = sys::open(path, false) else { return };
    let (mut text, mut have) = ([0; 512], 0);
    loop {
        let end = have + sys::read(file, &mut text[have..]).unwrap_or(0);
        // Where the text is full its last range may go on.
        let is_last = end < text.len();
        let cut = if is_last { end } else { text.iter().rposition(|&byte| byte == b',').map_or(end, |at| at + 1) };
        ranges(&text[..cut], &mut each);
        if is_last {
            break;
        }
        text.copy_within(cut..end, 0);
        have = end - cut;
    }
    sys::close(file);
}

fn ranges(text: &[u8], each: &mut impl FnMut(usize, usize)) {
    for range in text.trim_ascii().split(|&byte| byte == b',') {
        let mut ends = range.splitn(2, |&byte| byte == b'-').map(number);
        if let Some(Some(first)) = ends.next()
            && let Some(last) = ends.next().unwrap_or(Some(first))
        {
            each(first, last);
        }
    }
}

/// Whether memory that asks for huge pages may get some: not where the system gives none, nor where the process (or what started
/// it) wants none.
#[must_use]
pub fn huge_pages() -> bool {
    !sys::is_huge_disabled() && {
        // Of this size alone (Linux 6.8), unless that inherits what holds for all.
        let own = gives_huge(c"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled");
        own.or_else(|| gives_huge(c"/sys/kernel/mm/transparent_hugepage/enabled")).unwrap_or(false)
    }
}

/// What such a file chooses (`always [madvise] never`); `None` where it leaves that to another or is not there.
fn gives_huge(path: &CStr) -> Option<bool> {
    let file = sys::open(path, false).ok()?;
    let mut text = [0; 128];
    let len = sys::read(file, &mut text).unwrap_or(0);
    sys::close(file);
    chosen(&text[..len])
}

fn chosen(text: &[u8]) -> Option<bool> {
    let word = text.split(|&byte| byte == b'[').nth(1)?.split(|&byte| byte == b']').next()?;
    match word {
        b"always" | b"madvise" => Some(true),
        b"never" => Some(false),
        _ => None,
    }
}

/// One more than the highest number in such a list; `None` if it cannot be read.
#[must_use]
pub fn list_end(path: &CStr) -> Option<usize> {
    let mut end = None;
    list(path, |_, last| end = end.max(last.checked_add(1)));
    end
}

fn number(text: &[u8]) -> Option<usize> {
    decimal(text).and_then(|number| usize::try_from(number).ok())
}

/// What a file whose path has a number in it says, as far as `into` goes.
fn slurp<'a>(before: &str, number: usize, behind: &str, into: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = Text::<[u8; 64]>::empty();
    write!(path, "{before}{number}{behind}").ok()?;
    sys::slurp(path.as_c()?, into).ok()
}

/// CPUs that the kernel keeps quiet for somebody: isolated from its scheduler, or without its tick.
pub fn isolated(mut each: impl FnMut(usize)) {
    for path in [c"/sys/devices/system/cpu/isolated", c"/sys/devices/system/cpu/nohz_full"] {
        list(path, |first, last| (first..=last.min(first.saturating_add(8192))).for_each(&mut each));
    }
}

/// The distances of node `node` from nodes 0, 1, … as the firmware tells them (10 is itself); how many there are.
pub fn distances(node: usize, into: &mut [u8]) -> usize {
    let mut text = [0; 512];
    let Some(text) = slurp("/sys/devices/system/node/node", node, "/distance", &mut text) else { return 0 };
    let words = text.split(u8::is_ascii_whitespace).filter_map(number);
    into.iter_mut().zip(words).map(|(to, word)| *to = word.min(255) as u8).count()
}

/// The CPUs on which threads of this process run or are about to, the calling one left out; false if that cannot
/// be known.
pub fn running(mut each: impl FnMut(usize)) -> bool {
    let Ok(directory) = sys::open(c"/proc/self/task", false) else { return false };
    let mut entries = [0; 1024];
    let mut threads = 0;
    let known = loop {
        let bytes = match sys::entries(directory, &mut entries) {
            Ok(0) => break true,
            Ok(bytes) => bytes,
            Err(_) => break false,
        };
        let mut rest = &entries[..bytes];
        // Each: inode and offset (8 bytes each), length (2), type (1), name with a zero behind it.
        while let Some(length) = rest.get(16..18).map(|two| usize::from(two[0]) | usize::from(two[1]) << 8)
            && length > 19
            && let Some(name) = rest.get(19..length)
        {
            rest = &rest[length..];
            let Some(thread) = name.split(|&byte| byte == 0).next().and_then(number) else { continue };
            threads += 1;
            if thread != sys::thread_id() as usize
                && let Some(cpu) = cpu_of(thread)
            {
                each(cpu);
            }
        }
        if threads > THREADS {
            break false;
        }
    };
    sys::close(directory);
    known
}

/// The CPU that a thread of ours runs on; `None` if it sleeps or is gone.
fn cpu_of(thread: usize) -> Option<usize> {
    let mut text = [0; 512];
    let text = slurp("/proc/self/task/", thread, "/stat", &mut text)?;
    // Behind the name, which may have any bytes: the state, and 36 words later the CPU.
    let behind = text.iter().rposition(|&byte| byte == b')')? + 2;
    let mut words = text.get(behind..)?.split(|&byte| byte == b' ');
    if words.next()? != b"R" {
        return None;
    }
    number(words.nth(35)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &[u8]) -> (std::path::PathBuf, std::ffi::CString) {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let name = format!(
            "allotment-list-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        let c = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        (path, c)
    }

    #[test]
    fn lists_are_read_and_nonsense_is_nothing() {
        let read = |text: &[u8]| {
            let (path, c) = file(text);
            let mut ranges = vec![];
            list(&c, |first, last| ranges.push((first, last)));
            let end = list_end(&c);
            std::fs::remove_file(path).unwrap();
            (ranges, end)
        };
        assert_eq!(read(b"0-3,8\n"), (vec![(0, 3), (8, 8)], Some(9)));
        assert_eq!(read(b"5\n"), (vec![(5, 5)], Some(6)));
        assert_eq!(read(b"\n"), (vec![], None));
        assert_eq!(read(b"(null)\n"), (vec![], None));
        assert_eq!(read(b"1-x,2"), (vec![(2, 2)], Some(3)));
        // Every other one of 8,192 CPUs, which is 20 KiB.
        let odd: Vec<usize> = (0..4096).map(|half| 2 * half + 1).collect();
        let text = odd.iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(read(text.as_bytes()), (odd.iter().map(|&cpu| (cpu, cpu)).collect(), Some(8192)));
        assert_eq!(read(&b"9".repeat(2000)), (vec![], None), "no number at all");
        assert_eq!(list_end(c"/nowhere"), None);
    }

    #[test]
    fn a_spinning_thread_runs_and_a_sleeping_one_does_not() {
        let stop = std::sync::atomic::AtomicBool::new(false);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        crate::tests::threads::scope(|scope| {
            let spinner = scope.spawn(|| {
                let thread = sys::thread_id();
                let told = std::sync::atomic::AtomicBool::new(false);
                while !stop.load(relaxed) {
                    told.store(true, relaxed);
                }
                thread
            });
            let sleeper = scope.spawn(|| {
                std::thread::park();
                sys::thread_id()
            });
            let mut seen = false;
            for _ in 0..1000 {
                let mut any = false;
                assert!(running(|_| any = true));
                seen |= any;
            }
            stop.store(true, relaxed);
            let spun = spinner.join().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
            sleeper.thread().unpark();
            let slept = sleeper.join().unwrap();
            assert!(seen, "the spinner was not seen to run");
            // (Who joins a thread is told a moment before the system forgets it.)
            let are_gone = || [spun, slept].iter().all(|&thread| cpu_of(thread as usize).is_none());
            assert!(
                (0..1000).any(|_| are_gone() || {
                    std::thread::yield_now();
                    false
                }),
                "both are gone"
            );
        });
    }

    /// Whether `body`, which is in a child of one thread and may make system calls only, holds there.
    #[allow(unsafe_code)]
    fn in_a_child(body: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child makes system calls and ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(!body()));
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0) == child && status == 0
        }
    }

    #[test]
    fn who_asks_where_others_run_is_left_out() {
        assert!(cpu_of(sys::thread_id() as usize).is_some(), "it runs");
        assert!(in_a_child(|| {
            let mut any = false;
            running(|_| any = true) && !any
        }));
    }

    #[test]
    fn a_thread_that_waits_runs_nowhere() {
        let (told, tell) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        crate::tests::threads::scope(|scope| {
            scope.spawn(move || {
                told.send(sys::thread_id()).unwrap();
                ended.recv().unwrap();
            });
            let thread = tell.recv().unwrap() as usize;
            while cpu_of(thread).is_some() {
                std::thread::yield_now();
            }
            end.send(()).unwrap();
        });
    }

    /// Else there would soon be none to have.
    #[test]
    #[allow(unsafe_code)]
    fn files_are_closed() {
        let (path, lists) = file(b"0-3");
        let huge = || gives_huge(c"/sys/kernel/mm/transparent_hugepage/enabled");
        let gives = huge();
        assert!(in_a_child(|| {
            let few = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
            // SAFETY: the child's own.
            let is_set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) } == 0;
            is_set && (0..100).all(|_| list_end(&lists) == Some(4) && huge() == gives && running(|_| ()))
        }));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn huge_pages_are_given_as_the_files_choose() {
        for (text, gives) in [
            (&b"[always] madvise never\n"[..], Some(true)),
            (b"always [madvise] never\n", Some(true)),
            (b"always madvise [never]\n", Some(false)),
            (b"always [inherit] madvise never\n", None),
            (b"always", None),
            (b"", None),
        ] {
            let (path, c) = file(text);
            assert_eq!(gives_huge(&c), gives, "{text:?}");
            std::fs::remove_file(path).unwrap();
        }
        assert_eq!(gives_huge(c"/nowhere"), None);
    }

    /// A process that wants no huge pages gets none, whatever there are.
    #[test]
    #[allow(unsafe_code)]
    fn huge_pages_may_be_unwanted() {
        let all = c"/sys/kernel/mm/transparent_hugepage";
        let of = |name| gives_huge(&std::ffi::CString::new(format!("{}/{name}", all.to_str().unwrap())).unwrap());
        let gives = of("hugepages-2048kB/enabled").or_else(|| of("enabled")).unwrap_or(false);
        // SAFETY: the child's own.
        let disable = |flag: libc::c_ulong| unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, flag, 0, 0, 0) };
        assert!(in_a_child(|| disable(1) != 0 || !huge_pages()));
        assert!(in_a_child(|| disable(0) != 0 || huge_pages() == gives));
    }

    #[test]
    fn isolated_cpus_are_those_of_both_files() {
        let mut wanted = vec![];
        for name in ["isolated", "nohz_full"] {
            let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).unwrap_or_default();
            for range in text.trim().split(',') {
                let ends: Vec<usize> = range.split('-').filter_map(|end| end.parse().ok()).collect();
                wanted.extend(ends.first().into_iter().flat_map(|&first| first..=ends[ends.len() - 1]));
            }
        }
        let mut found = vec![];
        isolated(|cpu| found.push(cpu));
        assert_eq!(found, wanted);
    }

    #[test]
    fn this_node_is_ten_away_from_itself() {
        let mut distances_of_0 = [0; 8];
        let told = std::fs::read("/sys/devices/system/node/node0/distance").is_ok();
        assert_eq!(distances(0, &mut distances_of_0) > 0, told);
        assert!(!told || distances_of_0[0] == 10);
        assert_eq!(distances(7_000, &mut [0; 8]), 0);
    }
}
