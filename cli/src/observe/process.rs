//! # What `/proc` says of a process
//!
//! Texts of the kernel, read once each; what cannot be read is absent, never wrong.

use super::sys;
use crate::term::printable;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// A page of memory, bytes.
const PAGE: u64 = 4096;

/// What `/proc/PID/status` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The first letter of `State`.
    pub state: char,
    /// Its id in each namespace, from ours inwards.
    pub ids: Vec<u32>,
    /// Real, effective, saved and file-system user.
    pub users: Vec<u32>,
    /// `Seccomp`: 2 is a filter.
    pub seccomp: u32,
    /// Highest resident memory, bytes.
    pub peak: u64,
}

impl Status {
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().split_whitespace()
        };
        let numbers = |name: &str| field(name).filter_map(|word| word.parse().ok()).collect();
        Self {
            state: field("State").next().and_then(|word| word.chars().next()).unwrap_or('?'),
            ids: numbers("NSpid"),
            users: numbers("Uid"),
            seccomp: field("Seccomp").next().and_then(|word| word.parse().ok()).unwrap_or(0),
            peak: field("VmHWM").next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024),
        }
    }
    /// Of a process.
    ///
    /// # Errors
    /// As reading the file.
    pub fn of(pid: u32) -> io::Result<Self> {
        fs::read_to_string(format!("/proc/{pid}/status")).map(|text| Self::parse(&text))
    }
}

/// Times and faults of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time, ns.
    pub cpu_ns: u64,
    /// Since its start, ns.
    pub wall_ns: u64,
    /// Page faults without input or output.
    pub minor_faults: u64,
    /// With.
    pub major_faults: u64,
    /// When it started, in clock ticks since the machine did: tells a process from a later one of its number.
    pub born: u64,
}

impl Usage {
    fn parse(text: &str, up_ns: u64, tick_ns: u64) -> Option<Self> {
        // The name in brackets may hold anything.
        let (_, rest) = text.rsplit_once(')')?;
        let words: Vec<u64> = rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        let word = |at: usize| words.get(at - 3).copied();
        let born = word(22)?;
        Some(Self {
            minor_faults: word(10)?,
            major_faults: word(12)?,
            cpu_ns: word(14)?.saturating_add(word(15)?).saturating_mul(tick_ns),
            wall_ns: up_ns.saturating_sub(born.saturating_mul(tick_ns)),
            born,
        })
    }
    /// Of a process.
    pub fn of(pid: u32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let up = fs::read_to_string("/proc/uptime").ok()?;
        let up: f64 = up.split_whitespace().next()?.parse().ok()?;
        // (Uptime is positive and far below 2⁶⁴ ns.)
        Self::parse(&String::from_utf8_lossy(&text), (up * 1e9) as u64, 1_000_000_000 / sys::clock_ticks())
    }
}

/// Resident memory now, bytes.
pub fn resident(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(PAGE))
}

/// The name of a process, printable.
pub fn name(pid: u32) -> String {
    let text = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    printable(String::from_utf8_lossy(&text).trim_end())
}

/// Its command line, printable; its name where there is none.
pub fn command(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes.split(|&byte| byte == 0).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return name(pid);
    }
    printable(&words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" "))
}

/// Whether one of its threads has this name.
pub fn has_thread(pid: u32, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.into_iter().any(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name))
}

/// The inode of its pid namespace.
///
/// # Errors
/// As `readlink`.
pub fn namespace(pid: u32) -> io::Result<u64> {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid"))?;
    let text = link.to_string_lossy();
    let number = text.strip_prefix("pid:[").and_then(|rest| rest.strip_suffix(']')).and_then(|word| word.parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What a process maps of files.
#[derive(Clone, Debug, Default)]
pub struct Maps(String);

impl Maps {
    /// Of a process.
    ///
    /// # Errors
    /// As reading the file.
    pub fn of(pid: u32) -> io::Result<Self> {
        fs::read(format!("/proc/{pid}/maps")).map(|bytes| Self(String::from_utf8_lossy(&bytes).into_owned()))
    }
    /// A process that is ending, or a kernel thread.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Whether this file is among them.
    pub fn has(&self, info: &fs::Metadata) -> bool {
        let device = format!("{:02x}:{:02x}", libc::major(info.dev()), libc::minor(info.dev()));
        let inode = info.ino().to_string();
        self.0.lines().any(|line| {
            let mut words = line.split_whitespace().skip(3);
            words.next() == Some(device.as_str()) && words.next() == Some(inode.as_str())
        })
    }
    /// Whether the C library is: preloads are mapped before it.
    pub fn has_libc(&self) -> bool {
        self.0.lines().any(|line| line.contains("/libc.so") || line.contains("/ld-musl"))
    }
    /// Whether our library is.
    pub fn has_library(&self) -> bool {
        self.0.lines().any(|line| line.contains("liballotment"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read_by_name() {
        let text =
            "Name:\ta) b\nState:\tT (stopped)\nUid:\t5\t6\t7\t8\nNSpid:\t4242\t17\nVmHWM:\t    2048 kB\nSeccomp:\t2\n";
        let status = Status::parse(text);
        assert_eq!((status.state, status.seccomp, status.peak), ('T', 2, 2 << 20));
        assert_eq!((status.ids, status.users), (vec![4242, 17], vec![5, 6, 7, 8]));
        assert_eq!(Status::parse("").state, '?');
    }

    #[test]
    fn a_name_with_brackets_is_no_field() {
        let text = "7 (a) R 1) S 1 2 3 4 5 6 70 8 90 10 250 50 0 0 20 0 1 0 1000 0 0";
        let usage = Usage::parse(text, 30_000_000_000, 10_000_000).expect("fields");
        assert_eq!((usage.minor_faults, usage.major_faults, usage.born), (70, 90, 1000));
        assert_eq!((usage.cpu_ns, usage.wall_ns), (3_000_000_000, 20_000_000_000));
        assert_eq!(Usage::parse("7 (a", 0, 1), None);
        assert_eq!(Usage::parse("7 (a) S 1", 0, 1), None);
    }

    #[test]
    fn this_process_is_there() {
        let pid = std::process::id();
        assert!(resident(pid).expect("readable") > 0);
        assert!(namespace(pid).expect("readable") > 0);
        assert!(Usage::of(pid).is_some() && !command(pid).is_empty());
        let own = fs::metadata("/proc/self/exe").expect("there");
        // (On some file systems maps name another device than stat: then nothing is believed, which is not this test's.)
        let maps = Maps::of(pid).expect("readable");
        assert!(
            maps.0.contains(&own.ino().to_string()) && !maps.has(&fs::metadata("/proc/self/status").expect("there"))
        );
    }
}
