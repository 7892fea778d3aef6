//! # What the system says: `/proc`, `/sys`
//!
//! The one place that reads them. Texts of the kernel, read once each; what cannot be read is absent, never wrong.
//!
//! Units: bytes, nanoseconds, seconds where a name ends so.
#![allow(unsafe_code)] // sysconf, kill without a signal

use crate::term::printable;
use allotment_engine::arch::PAGE;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

// The machine.

/// The first line of a file, without blanks around it.
pub fn line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(|line| line.trim().to_owned())
}

/// The words behind `name:` in a text of lines.
fn field<'text>(text: &'text str, name: &str) -> std::str::SplitWhitespace<'text> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    line.unwrap_or_default().split_whitespace()
}

/// Bytes of a line `name: N kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    field(text, name).next()?.parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
}

/// A line of `/proc/meminfo`, bytes.
pub fn memory(name: &str) -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, name)
}

/// The kernel's release.
pub fn release() -> String {
    line("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// The C library's version; empty where it is not glibc.
pub fn libc_version() -> String {
    let asked = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    text.strip_prefix("glibc ").unwrap_or(&text).to_owned()
}

/// The processor's name.
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    model.unwrap_or(std::env::consts::ARCH).to_owned()
}

/// The chosen word of the huge-page setting.
pub fn huge_pages() -> Option<String> {
    chosen(&line("/sys/kernel/mm/transparent_hugepage/enabled")?).map(str::to_owned)
}

/// `always [madvise] never` → `madvise`.
pub fn chosen(line: &str) -> Option<&str> {
    line.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

/// The load average of the last minute.
pub fn load() -> f64 {
    let line = line("/proc/loadavg").unwrap_or_default();
    line.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// Seconds in which somebody ran on a CPU, all CPUs together, other machines on the same processor among them. (The system
/// counts in hundredths.)
pub fn busy_seconds() -> Option<f64> {
    busy(&fs::read_to_string("/proc/stat").ok()?).map(|ticks| ticks / 100.0)
}

fn busy(text: &str) -> Option<f64> {
    let mut words =
        text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(|word| word.parse().unwrap_or(0.0));
    let all: [f64; 8] = std::array::from_fn(|_| words.next().unwrap_or(0.0));
    let [user, nice, system, _idle, _waiting, interrupts, soft, stolen] = all;
    Some(user + nice + system + interrupts + soft + stolen)
}

/// Interrupts of these kinds that a CPU has taken; zero where the system does not say.
pub fn interrupts<const N: usize>(kinds: [&str; N], cpu: usize) -> [u64; N] {
    count_interrupts(&fs::read_to_string("/proc/interrupts").unwrap_or_default(), kinds, cpu)
}

fn count_interrupts<const N: usize>(text: &str, kinds: [&str; N], cpu: usize) -> [u64; N] {
    let mut lines = text.lines();
    let name = format!("CPU{cpu}");
    let column = lines.next().and_then(|head| head.split_whitespace().position(|word| word == name));
    let mut counts = [0; N];
    for line in lines {
        let mut words = line.split_whitespace();
        let label = words.next().unwrap_or("").trim_end_matches(':');
        if let (Some(at), Some(column)) = (kinds.iter().position(|&kind| kind == label), column) {
            counts[at] = words.nth(column).and_then(|word| word.parse().ok()).unwrap_or(0);
        }
    }
    counts
}

/// The CPUs that there may be, as the kernel lists them: `0-3,8`; empty where it does not say.
pub fn possible_cpus() -> String {
    line("/sys/devices/system/cpu/possible").unwrap_or_default()
}

/// Whether a number is in one of the kernel's lists, `0-3,8`; any is where the list is empty.
pub fn is_listed(number: u32, list: &str) -> bool {
    let is_in = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse().is_ok_and(|first: u32| last.parse().is_ok_and(|last: u32| (first..=last).contains(&number)))
    };
    list.is_empty() || list.split(',').any(is_in)
}

/// The processes, in the order of their numbers.
pub fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut ids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// Whether there is a process of this number, visible or not.
pub fn is_process(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: numbers; signal 0 is none.
    unsafe { libc::kill(pid, 0) == 0 || *libc::__errno_location() != libc::ESRCH }
}

/// Clock ticks a second in `/proc/PID/stat`.
fn clock_ticks() -> u64 {
    // SAFETY: a constant of the system.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}

// A process.

/// A text of a process, in which names may be any bytes.
fn text(pid: u32, file: &str) -> io::Result<String> {
    fs::read(format!("/proc/{pid}/{file}")).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// What `/proc/PID/status` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The first letter of `State`.
    pub state: char,
    /// Its id in each namespace, from ours inwards.
    pub ids: Vec<u32>,
    /// Real, effective, saved and file-system user.
    pub users: Vec<u32>,
    /// `Seccomp`: 2 is a filter; `None` where the kernel does not say.
    pub seccomp: Option<u32>,
    /// Highest resident memory, bytes.
    pub peak: u64,
}

impl Status {
    fn parse(text: &str) -> Self {
        let numbers = |name: &str| field(text, name).filter_map(|word| word.parse().ok()).collect();
        Self {
            state: field(text, "State").next().and_then(|word| word.chars().next()).unwrap_or('?'),
            ids: numbers("NSpid"),
            users: numbers("Uid"),
            seccomp: field(text, "Seccomp").next().and_then(|word| word.parse().ok()),
            peak: kibibytes(text, "VmHWM").unwrap_or(0),
        }
    }
    /// Of a process.
    ///
    /// # Errors
    /// As reading the file.
    pub fn of(pid: u32) -> io::Result<Self> {
        text(pid, "status").map(|text| Self::parse(&text))
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
        let text = text(pid, "stat").ok()?;
        let up = fs::read_to_string("/proc/uptime").ok()?;
        let up: f64 = up.split_whitespace().next()?.parse().ok()?;
        // (Uptime is positive and far below 2⁶⁴ ns.)
        Self::parse(&text, (up * 1e9) as u64, 1_000_000_000 / clock_ticks())
    }
}

/// Resident memory now, bytes.
pub fn resident(pid: u32) -> Option<u64> {
    let text = text(pid, "statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(PAGE as u64))
}

/// What a process is called; `None` if it is gone.
pub fn comm(pid: u32) -> Option<OsString> {
    let mut name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    name.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(name))
}

/// The same, printable; empty if it is gone.
pub fn name(pid: u32) -> String {
    printable(comm(pid).unwrap_or_default().to_string_lossy().trim_end())
}

/// Whether a process stands, stopped by a signal.
pub fn is_stopped(pid: u32) -> bool {
    Status::of(pid).is_ok_and(|status| matches!(status.state, 'T'))
}

/// Its program's file.
///
/// # Errors
/// As `readlink`.
pub fn program(pid: u32) -> io::Result<PathBuf> {
    fs::read_link(program_link(pid))
}

/// The link to its program's file, which opens it even where its name is gone.
pub fn program_link(pid: u32) -> PathBuf {
    format!("/proc/{pid}/exe").into()
}

/// The directory that is a process's root.
pub fn root(pid: u32) -> PathBuf {
    format!("/proc/{pid}/root").into()
}

/// A descriptor of a process, as a path that others can open; `None`: of whoever opens it.
pub fn descriptor(pid: Option<u32>, number: i32) -> PathBuf {
    let of = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    format!("/proc/{of}/fd/{number}").into()
}

/// Process and descriptor that such a path names.
pub fn named_descriptor(path: &str) -> Option<(u32, u32)> {
    let (owner, number) = path.strip_prefix("/proc/")?.split_once("/fd/")?;
    Some((owner.parse().ok()?, number.parse().ok()?))
}

/// The directory of descriptors of a process, below somebody's root.
pub fn descriptors(pid: u32) -> PathBuf {
    Path::new("proc").join(pid.to_string()).join("fd")
}

/// The value of a variable in the environment that a process began with.
pub fn variable(pid: u32, name: &str) -> Option<OsString> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = [name.as_bytes(), b"="].concat();
    let value = environment.split(|&byte| byte == 0).find_map(|word| word.strip_prefix(prefix.as_slice()))?;
    Some(OsStr::from_bytes(value).to_owned())
}

/// The lines of `/proc/PID/cgroup`.
pub fn cgroups(pid: u32) -> String {
    text(pid, "cgroup").unwrap_or_default()
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
        text(pid, "maps").map(Self)
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
    /// Whether the file of this whole name is.
    pub fn names(&self, file: &Path) -> bool {
        let wanted = file.to_string_lossy();
        self.0.lines().any(|line| line.len() > wanted.len() && line.ends_with(wanted.as_ref()))
    }
    /// The kernel's text.
    pub fn text(&self) -> &str {
        &self.0
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
        assert_eq!((status.state, status.seccomp, status.peak), ('T', Some(2), 2 << 20));
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
    fn the_chosen_word_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("never"), None);
    }

    #[test]
    fn the_machine_s_texts_are_read() {
        assert_eq!(busy("cpu  10 2 3 1000 50 1 1 4 0 0\ncpu0 1"), Some(21.0));
        assert_eq!(busy("nothing"), None);
        assert_eq!(kibibytes("MemTotal:   8 kB\nMemFree: 4 kB\n", "MemFree"), Some(4096));
        assert_eq!(kibibytes("MemTotal: 8 kB\n", "Mem"), None);
        assert!(memory("MemTotal").is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn interrupts_are_read_by_column() {
        let text = "      CPU0  CPU2\n 4: 1 2 chip\nLOC: 10 20 Local timer\nCAL: 3 4 Function call\nERR: 0\n";
        let count = |text, cpu| count_interrupts(text, ["CAL", "TLB", "LOC", "RES"], cpu);
        assert_eq!(count(text, 2), [4, 0, 20, 0]);
        assert_eq!(count(text, 0), [3, 0, 10, 0]);
        assert_eq!(count(text, 1), [0; 4]);
        assert_eq!(count("", 0), [0; 4]);
    }

    #[test]
    fn lists_of_cpus_are_the_kernels() {
        for (cpu, is) in [(0, true), (3, true), (4, false), (8, true), (9, false)] {
            assert_eq!(is_listed(cpu, "0-3,8"), is, "{cpu}");
        }
        assert!(is_listed(99, ""));
    }

    #[test]
    fn mappings_are_found_by_whole_path() {
        let maps = Maps("7f-80 r-xp 0 0:0 1   /usr/lib/liba.so\n80-81 rw-p 0 0:0 0\n".into());
        assert!(maps.names(Path::new("/usr/lib/liba.so")) && !maps.names(Path::new("/usr/lib/libb.so")));
    }

    #[test]
    fn descriptors_are_named_as_they_are_read() {
        let path = descriptor(Some(7), 12);
        assert_eq!(named_descriptor(path.to_str().expect("ASCII")), Some((7, 12)));
        assert_eq!(named_descriptor("/tmp/7/fd/12"), None);
    }

    #[test]
    fn this_process_is_there() {
        let pid = std::process::id();
        assert!(resident(pid).expect("readable") > 0);
        assert!(namespace(pid).expect("readable") > 0);
        assert!(Usage::of(pid).is_some() && !command(pid).is_empty());
        assert!(is_process(pid) && !is_stopped(pid) && processes().contains(&pid));
        assert_eq!(variable(pid, "PATH"), std::env::var_os("PATH"));
        let own = fs::metadata(program_link(pid)).expect("there");
        // (On some file systems maps name another device than stat: then nothing is believed, which is not this test's.)
        let maps = Maps::of(pid).expect("readable");
        assert!(
            maps.0.contains(&own.ino().to_string()) && !maps.has(&fs::metadata("/proc/self/status").expect("there"))
        );
    }
}
