//! # What the cgroup allows, and whether memory is short
//!
//! ```text
//! /proc/self/cgroup   0::/a/b            version 2   /sys/fs/cgroup/a/b/memory.max, …/a/memory.max, …
//!                     4:memory:/a/b      version 1   /sys/fs/cgroup/memory/a/b/memory.limit_in_bytes, …
//! /proc/pressure/memory   some avg10=0.12 …          per cent of the last ten seconds in which somebody waited for memory
//! ```
//! A limit holds for all below it, so the smallest on the way up counts; in a container the path may lead
//! nowhere, and its beginning is ours. Read by the housekeeper, never in a `malloc`. What cannot be read is
//! no limit and no pressure. Units: bytes, hundredths of a per cent. Cost: a few small files.

use super::sys;
use core::ffi::CStr;

/// Longest path that is followed.
const LONGEST: usize = 1024;

/// The smallest memory limit on the way from our cgroup to the root, in bytes.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    let mut text = [0; 2 * LONGEST];
    limit(b"/sys/fs/cgroup", sys::slurp(c"/proc/self/cgroup", &mut text).ok()?)
}

/// In how much of the last ten seconds something waited for memory: hundredths of a per cent.
#[must_use]
pub fn pressure() -> u64 {
    let mut text = [0; 256];
    sys::slurp(c"/proc/pressure/memory", &mut text).ok().and_then(waited).unwrap_or(0)
}

/// See [`memory_limit`]: of the groups that `groups` (the text of `/proc/self/cgroup`) names, below `root`.
fn limit(root: &[u8], groups: &[u8]) -> Option<u64> {
    let mut least = None;
    for line in groups.split(|&byte| byte == b'\n') {
        let mut words = line.splitn(3, |&byte| byte == b':').skip(1);
        let (Some(kinds), Some(path)) = (words.next(), words.next()) else { continue };
        let (at, file): (&[u8], &[u8]) = if kinds.is_empty() {
            (b"", b"/memory.max\0")
        } else if kinds.split(|&byte| byte == b',').any(|kind| kind == b"memory") {
            (b"/memory", b"/memory.limit_in_bytes\0")
        } else {
            continue;
        };
        let mut path = path.strip_suffix(b"/").unwrap_or(path);
        loop {
            least = [least, bytes(&[root, at, path, file])].into_iter().flatten().min();
            let Some(up) = path.iter().rposition(|&byte| byte == b'/') else { break };
            path = &path[..up];
        }
    }
    least
}

/// The number of bytes in the file whose path the parts make; `None` without one, or for "max".
fn bytes(parts: &[&[u8]]) -> Option<u64> {
    let mut path = [0; LONGEST];
    let mut end = 0;
    for part in parts {
        path.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    let mut text = [0; 32];
    let text = sys::slurp(CStr::from_bytes_until_nul(&path).ok()?, &mut text).ok()?;
    let bytes = core::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()?;
    // Version 1 writes the largest number of pages for "none".
    (bytes < 1 << 62).then_some(bytes)
}

/// `some avg10=1.23 …` as 123.
fn waited(text: &[u8]) -> Option<u64> {
    let number = text.strip_prefix(b"some avg10=")?.split(|&byte| byte == b' ').next()?;
    let (whole, part) = core::str::from_utf8(number).ok()?.split_once('.')?;
    (part.len() == 2).then_some(whole.parse::<u64>().ok()?.saturating_mul(100).saturating_add(part.parse().ok()?))
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
        fn limit(&self, groups: &str) -> Option<u64> {
            limit(self.0.to_str().unwrap().as_bytes(), groups.as_bytes())
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
        assert_eq!(tree.limit("0::/\n"), None);
        assert_eq!(tree.limit(""), None);
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
    fn nonsense_is_no_limit_and_no_pressure() {
        let tree = Tree::new("none", &[("memory.max", "-3\n")]);
        assert_eq!(tree.limit("0::/\n"), None);
        assert_eq!(tree.limit(&std::format!("0::/{}\n", "long/".repeat(500))), None);
        assert_eq!(waited(b"some avg10=1.23 avg60=0.00"), Some(123));
        assert_eq!(waited(b"some avg10=0.00 avg60=0.00"), Some(0));
        assert_eq!(waited(b"some avg10=7"), None);
        assert_eq!(waited(b""), None);
        assert!(pressure() <= 10_000);
    }
}
