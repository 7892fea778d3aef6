//! # What the cgroup allows, and whether memory or CPUs are short
//!
//! ```text
//! /proc/self/cgroup   0::/a/b            version 2   /sys/fs/cgroup/a/b/memory.max, …/a/memory.max, …; cpu.max
//!                     4:memory:/a/b      version 1   /sys/fs/cgroup/memory/a/b/memory.limit_in_bytes, …
//!                     5:cpu,cpuacct:/a   version 1   /sys/fs/cgroup/cpu/a/cpu.cfs_quota_us over …/cpu.cfs_period_us
//! /proc/pressure/memory   some avg10=0.12 …          per cent of the last ten seconds in which somebody waited for memory
//! /proc/pressure/cpu      the same                   for a CPU
//! ```
//! A limit holds for all below it, so the smallest on the way up counts; in a container the path may lead
//! nowhere, and its beginning is ours. Read by the keeper and for large frees, never in a `malloc`. What cannot
//! be read is no limit and no pressure. Units: bytes, CPUs, hundredths of a per cent. Cost: a few small files.

use super::number::decimal;
use super::sys;
use super::text::Text;
use core::ffi::CStr;

/// Longest path that is followed.
const LONGEST: usize = 1024;

/// Where a controller is and how its limit is read: from the directory of a group.
struct Controller {
    /// In the list of a line of `/proc/self/cgroup`.
    name: &'static [u8],
    /// Where version 1 has it.
    at: &'static [u8],
    two: fn(&[&[u8]; 3]) -> Option<u64>,
    one: fn(&[&[u8]; 3]) -> Option<u64>,
}

const MEMORY: Controller = Controller {
    name: b"memory",
    at: b"/memory",
    two: |group| bytes(group, b"/memory.max"),
    one: |group| bytes(group, b"/memory.limit_in_bytes"),
};
/// Above it the group is slowed down. (Version 1 has nothing like it.)
const HIGH: Controller = Controller { two: |group| bytes(group, b"/memory.high"), one: |_| None, ..MEMORY };
const CPU: Controller = Controller {
    name: b"cpu",
    at: b"/cpu",
    two: |group| {
        let mut text = [0; 64];
        let mut words = read(group, b"/cpu.max", &mut text)?.split(|&byte| byte == b' ');
        hundredths(decimal(words.next()?)?, decimal(words.next()?)?)
    },
    one: |group| {
        let (mut quota, mut period) = ([0; 32], [0; 32]);
        hundredths(
            decimal(read(group, b"/cpu.cfs_quota_us", &mut quota)?)?,
            decimal(read(group, b"/cpu.cfs_period_us", &mut period)?)?,
        )
    },
};

/// Hundredths of a CPU, at least one.
fn hundredths(quota: u64, period: u64) -> Option<u64> {
    Some((quota.checked_mul(100)? / if period == 0 { return None } else { period }).max(1))
}

/// The smallest memory limit on the way from our cgroup to the root, in bytes.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    ours(&MEMORY)
}

/// The smallest `memory.high` on the way, above which the kernel slows the group down.
#[must_use]
pub fn memory_high() -> Option<u64> {
    ours(&HIGH)
}

/// How many CPUs the cgroup may use at a time by its quota, rounded up: the smallest on the way to the root.
#[must_use]
pub fn cpu_quota() -> Option<u32> {
    ours(&CPU).map(|hundredths| u32::try_from(hundredths.div_ceil(100)).unwrap_or(u32::MAX))
}

fn ours(controller: &Controller) -> Option<u64> {
    limit(controller, b"/sys/fs/cgroup", c"/proc/self/cgroup")
}

/// In how much of the last ten seconds something waited for memory: hundredths of a per cent.
#[must_use]
pub fn pressure() -> u64 {
    pressure_in(c"/proc/pressure/memory")
}

/// The same for a CPU.
#[must_use]
pub fn cpu_pressure() -> u64 {
    pressure_in(c"/proc/pressure/cpu")
}

fn pressure_in(path: &CStr) -> u64 {
    let mut text = [0; 256];
    sys::slurp(path, &mut text).ok().and_then(waited).unwrap_or(0)
}

/// The least limit of the groups that the file `groups` (`/proc/self/cgroup`) names, below `root`.
fn limit(controller: &Controller, root: &[u8], groups: &CStr) -> Option<u64> {
    let mut least = None;
    // (A longer line has a path that is not followed.)
    sys::lines(groups, &mut [0; LONGEST + 256], |line| {
        let mut words = line.splitn(3, |&byte| byte == b':').skip(1);
        let (Some(kinds), Some(path)) = (words.next(), words.next()) else { return };
        let (at, value): (&[u8], _) = if kinds.is_empty() {
            (b"", controller.two)
        } else if kinds.split(|&byte| byte == b',').any(|kind| kind == controller.name) {
            (controller.at, controller.one)
        } else {
            return;
        };
        let mut path = path.strip_suffix(b"/").unwrap_or(path);
        loop {
            least = [least, value(&[root, at, path])].into_iter().flatten().min();
            let Some(up) = path.iter().rposition(|&byte| byte == b'/') else { break };
            path = &path[..up];
        }
    });
    least
}

/// The text of a file of a group, trimmed; `None` without one.
fn read<'a>(group: &[&[u8]; 3], name: &[u8], text: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = Text::<[u8; LONGEST]>::empty();
    group.iter().copied().chain([name]).for_each(|part| path.push(part));
    Some(sys::slurp(path.as_c()?, text).ok()?.trim_ascii())
}

/// The number of bytes in a file of a group.
fn bytes(group: &[&[u8]; 3], name: &[u8]) -> Option<u64> {
    // Version 1 writes the largest number of pages for "none".
    decimal(read(group, name, &mut [0; 32])?).filter(|&bytes| bytes < 1 << 62)
}

/// `some avg10=1.23 …` as 123.
fn waited(text: &[u8]) -> Option<u64> {
    let mut number =
        text.strip_prefix(b"some avg10=")?.split(|&byte| byte == b' ').next()?.splitn(2, |&byte| byte == b'.');
    let (whole, part) = (number.next()?, number.next()?);
    (part.len() == 2).then_some(decimal(whole)?.saturating_mul(100).saturating_add(decimal(part)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    struct Tree(PathBuf);
    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(std::format!("allotment-cgroup-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
        fn read(&self, controller: &Controller, groups: &str) -> Option<u64> {
            let file = self.0.join("groups");
            fs::write(&file, groups).unwrap();
            let file = std::ffi::CString::new(file.into_os_string().into_encoded_bytes()).unwrap();
            limit(controller, self.0.to_str().unwrap().as_bytes(), &file)
        }
        fn limit(&self, groups: &str) -> Option<u64> {
            self.read(&MEMORY, groups)
        }
        fn quota(&self, groups: &str) -> Option<u64> {
            self.read(&CPU, groups)
        }
    }
    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let tree =
            Tree::new("two", &[("a/b/memory.max", "max\n"), ("a/memory.max", "1000\n"), ("a/c/memory.max", "5\n")]);
        assert_eq!(tree.limit("0::/a/b\n"), Some(1000));
        assert_eq!(tree.limit("0::/a/c\n"), Some(5));
        assert_eq!(tree.limit("0::/a/gone/away\n"), Some(1000));
        assert_eq!(tree.limit("0::/ab\n"), None, "another group's");
        assert_eq!(tree.limit("0::/\n"), None);
        assert_eq!(tree.limit(""), None);
    }

    #[test]
    fn where_the_group_is_slowed_down_is_read() {
        let tree = Tree::new(
            "high",
            &[
                ("a/b/memory.high", "2000\n"),
                ("a/memory.high", "max\n"),
                ("a/memory.max", "9000\n"),
                ("memory/x/y", ""),
            ],
        );
        assert_eq!(tree.read(&HIGH, "0::/a/b\n"), Some(2000));
        assert_eq!(tree.read(&MEMORY, "0::/a/b\n"), Some(9000));
        assert_eq!(tree.read(&HIGH, "0::/a\n"), None);
        assert_eq!(tree.read(&HIGH, "4:memory:/x\n"), None);
        assert!(memory_high().is_none_or(|bytes| bytes > 0));
    }

    /// Thirteen hierarchies with a container's names are more than any one buffer.
    #[test]
    fn the_groups_may_be_many_and_their_names_long() {
        let tree = Tree::new("many", &[("memory/x/memory.limit_in_bytes", "4096\n"), ("z/memory.max", "8192\n")]);
        let others: std::string::String = (1..40)
            .map(|at| std::format!("{at}:other{at}:/{}\n", "name-of-a-container".repeat(at % 12 * 4 + 1)))
            .collect();
        assert!(others.len() > 8 * LONGEST);
        let endless = std::format!("41:name=x:/{}\n", "y".repeat(3 * LONGEST));
        for groups in [
            std::format!("{others}50:memory:/x\n"),
            std::format!("{others}50:memory:/x"),
            std::format!("50:memory:/x\n{others}"),
            std::format!("{endless}50:memory:/x\n{others}"),
            std::format!("0::/z\n{others}{endless}50:cpu,memory:/x\n{endless}"),
        ] {
            assert_eq!(tree.limit(&groups), Some(4096));
        }
        assert_eq!(tree.limit(&std::format!("{others}{endless}0::/z")), Some(8192));
        assert_eq!(tree.limit(&std::format!("50:memory:/{}\n{others}0::/z", "y".repeat(2 * LONGEST))), Some(8192));
    }

    #[test]
    fn version_1_is_read_beside_version_2() {
        let none = "9223372036854771712\n";
        let tree = Tree::new(
            "one",
            &[
                ("memory/memory.limit_in_bytes", none),
                ("memory/x/memory.limit_in_bytes", "4096\n"),
                ("memory.max", "8192\n"),
            ],
        );
        assert_eq!(tree.limit("4:cpu,memory:/x\n1:name=systemd:/\n"), Some(4096));
        assert_eq!(tree.limit("4:memory:/\n"), None);
        assert_eq!(tree.limit("4:memory:/x\n0::/\n"), Some(4096));
        assert_eq!(tree.limit("4:memory:/y\n0::/\n"), Some(8192));
    }

    #[test]
    fn the_smallest_quota_of_either_version_counts() {
        let tree = Tree::new(
            "cpu",
            &[
                ("a/b/cpu.max", "max 100000\n"),
                ("a/cpu.max", "150000 100000\n"),
                ("a/c/cpu.max", "400000 100000\n"),
                ("d/cpu.max", "1 0\n"),
                ("cpu/x/cpu.cfs_quota_us", "50000\n"),
                ("cpu/x/cpu.cfs_period_us", "100000\n"),
                ("cpu/y/cpu.cfs_quota_us", "-1\n"),
                ("cpu/y/cpu.cfs_period_us", "100000\n"),
                ("cpu/z/cpu.cfs_quota_us", "1\n"),
                ("cpu/z/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(tree.quota("0::/a/b\n"), Some(150));
        assert_eq!(tree.quota("0::/a/c\n"), Some(150));
        assert_eq!(tree.quota("0::/d\n"), None);
        assert_eq!(tree.quota("5:cpu,cpuacct:/x\n0::/a\n"), Some(50));
        assert_eq!(tree.quota("5:cpu,cpuacct:/y\n"), None);
        assert_eq!(tree.quota("5:cpuset:/x\n"), None);
        assert_eq!(tree.quota("5:cpu:/z\n"), Some(1));
        assert!(cpu_quota().is_none_or(|cpus| cpus > 0) && cpu_pressure() <= 10_000);
    }

    /// What is asked for is what the system's own files say, and what those say of another is its.
    #[test]
    fn this_process_has_what_its_files_say() {
        let limit = |controller| limit(controller, b"/sys/fs/cgroup", c"/proc/self/cgroup");
        assert_eq!((memory_limit(), memory_high()), (limit(&MEMORY), limit(&HIGH)));
        assert_eq!(cpu_quota().map(u64::from), limit(&CPU).map(|hundredths| hundredths.div_ceil(100)));
        let tree = Tree::new("pressure", &[("some", "some avg10=1.23 avg60=0.00\n"), ("none", "")]);
        let of = |name| {
            let path = tree.0.join(name).into_os_string().into_encoded_bytes();
            pressure_in(&std::ffi::CString::new(path).unwrap())
        };
        assert_eq!((of("some"), of("none"), of("gone")), (123, 0, 0));
        // (It changes every two seconds.)
        assert!((0..3).any(|_| pressure_in(c"/proc/pressure/memory") == pressure()));
        assert!((0..3).any(|_| pressure_in(c"/proc/pressure/cpu") == cpu_pressure()));
    }

    #[test]
    fn nonsense_is_no_limit_and_no_pressure() {
        let tree = Tree::new("none", &[("memory.max", "-3\n"), ("pages/memory.max", "4611686018427387904\n")]);
        assert_eq!(tree.limit("0::/\n"), None);
        assert_eq!(tree.limit("0::/pages\n"), None, "2^62 is no number of bytes");
        assert_eq!(tree.limit(&std::format!("0::/{}\n", "long/".repeat(500))), None);
        assert_eq!(waited(b"some avg10=1.23 avg60=0.00"), Some(123));
        assert_eq!(waited(b"some avg10=0.00 avg60=0.00"), Some(0));
        assert_eq!(waited(b"some avg10=7"), None);
        assert_eq!(waited(b""), None);
        assert!(pressure() <= 10_000);
    }
}
