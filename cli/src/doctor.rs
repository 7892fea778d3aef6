//! # `allotment doctor`: what this machine offers
//!
//! A few lines: what Allotment needs, what is here, what to change.
#![allow(unsafe_code)] // dlsym, getauxval, membarrier

use crate::code;
use crate::term::{Paint, bytes};
use std::io::Write as _;
use std::process::ExitCode;

/// Auxiliary values that the C library may not name yet.
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
/// Bytes of an rseq area that reach behind `mm_cid`.
const WITH_MM_CID: u64 = 28;
const MEMBARRIER_QUERY: libc::c_int = 0;
const MEMBARRIER_PRIVATE_EXPEDITED_RSEQ: i64 = 1 << 7;

/// What there is, and whether it is enough.
struct Finding {
    label: &'static str,
    value: String,
    advice: Option<String>,
}

/// Prints it.
pub fn doctor() -> ExitCode {
    let (symbols, size) = rseq();
    // SAFETY: no pointers.
    let (feature, barriers) =
        unsafe { (libc::getauxval(AT_RSEQ_FEATURE_SIZE), libc::syscall(libc::SYS_membarrier, MEMBARRIER_QUERY, 0, 0)) };
    let fences = barriers > 0 && barriers & MEMBARRIER_PRIVATE_EXPEDITED_RSEQ != 0;
    // The rule of DESIGN 4: an area exists if glibc says so; then the kernel's size counts.
    let usable = if size == 0 { 0 } else { feature.clamp(20, 32) };
    let compact = usable >= WITH_MM_CID;
    let processor = cfg!(target_arch = "x86_64");
    let best = processor && size > 0 && fences;
    let mut findings = vec![
        Finding::new(
            "kernel",
            format!(
                "Linux {}, {}",
                read_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
                std::env::consts::ARCH
            ),
        )
        .unless(processor, "sequences are written for x86-64 only"),
        Finding::new("C library", libc_version())
            .unless(symbols, "glibc 2.35 or later registers restartable sequences"),
        Finding::new(
            "rseq",
            format!(
                "registered {}, feature size {feature}, usable {usable} bytes",
                if size > 0 { "yes" } else { "no" }
            ),
        )
        .unless(size > 0, "take glibc.pthread.rseq=0 out of GLIBC_TUNABLES; not available under valgrind and gVisor"),
        Finding::new("mm_cid", if compact { "yes: sets by concurrency id" } else { "no: sets by CPU number" }.into())
            .unless(compact || size == 0, "Linux 6.3 or later has it"),
        Finding::new(
            "membarrier",
            format!("commands {:#x}, rseq fences {}", barriers.max(0), if fences { "yes" } else { "no" }),
        )
        .unless(fences, "Linux 5.10 or later, and a seccomp filter that lets membarrier through"),
    ];
    findings.extend(memory());
    let mode = if best { "sequences" } else { "fallback (locked sets)" };
    let paint = Paint::of(&std::io::stdout());
    let mut text = String::new();
    for finding in &findings {
        text.push_str(&format!("{:<16}{}\n", finding.label, finding.value));
        if let Some(advice) = &finding.advice {
            text.push_str(&format!("{:<16}{}\n", "", paint.notice(advice)));
        }
    }
    text.push_str(&paint.bold(&format!("{:<16}{mode}", "mode")));
    text.push_str("\nA self-test decides at every start; `allotment run --stats` says what it found.\n");
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    if best { code::DONE } else { code::FAILED }.into()
}

impl Finding {
    const fn new(label: &'static str, value: String) -> Self {
        Self { label, value, advice: None }
    }
    fn unless(mut self, good: bool, advice: &str) -> Self {
        self.advice = (!good).then(|| advice.to_owned());
        self
    }
}

/// Huge pages, overcommit, mappings, the group's limit.
fn memory() -> Vec<Finding> {
    let overcommit = read_line("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    let mappings = read_line("/proc/sys/vm/max_map_count").unwrap_or_default();
    let few = mappings.parse::<u64>().is_ok_and(|count| count < 65_530);
    let meaning = match overcommit.as_str() {
        "0" => "0 (guessed)",
        "1" => "1 (always)",
        "2" => "2 (never)",
        other => other,
    };
    let limit = group_limit().map_or_else(|| "none".to_owned(), bytes);
    vec![
        Finding::new("huge pages", huge_pages().unwrap_or_else(|| "not known".into())),
        Finding::new("overcommit", meaning.to_owned())
            .unless(overcommit != "2", "address space counts: keep an eye on `mapped`"),
        Finding::new("max_map_count", mappings).unless(!few, "below the kernel's default of 65530"),
        Finding::new("cgroup limit", limit),
    ]
}

/// Whether the C library knows sequences, and the size that it registered.
fn rseq() -> (bool, u32) {
    // SAFETY: `__rseq_size` is an unsigned int that glibc sets before `main`
    // and never changes; a null address means that there is none.
    unsafe {
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        if size.is_null() { (false, 0) } else { (true, size.read()) }
    }
}

/// The C library's name and version.
fn libc_version() -> String {
    let version = crate::bench::libc_version();
    if version.is_empty() { "not known".into() } else { format!("glibc {version}") }
}

/// The first line of a file.
pub fn read_line(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()?.lines().next().map(|line| line.trim().to_owned())
}

/// The chosen word of the huge-page setting.
pub fn huge_pages() -> Option<String> {
    let line = read_line("/sys/kernel/mm/transparent_hugepage/enabled")?;
    chosen(&line).map(str::to_owned)
}

/// `always [madvise] never` → `madvise`.
fn chosen(line: &str) -> Option<&str> {
    line.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

/// The smallest memory limit on the way to the root, version 2 or 1.
fn group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    groups
        .lines()
        .filter_map(limit_files)
        .flatten()
        .filter_map(|path| read_line(&path)?.parse().ok())
        .filter(|&limit| limit < 1 << 60)
        .min()
}

/// The limit files of one line of `/proc/self/cgroup`, up to the root.
fn limit_files(line: &str) -> Option<Vec<String>> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        names if names.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let up = std::path::Path::new(path).ancestors();
    Some(up.map(|group| format!("{root}{}/{file}", group.display().to_string().trim_end_matches('/'))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("never"), None);
    }

    #[test]
    fn groups_are_followed_to_the_root() {
        let files = limit_files("0::/a/b").expect("version 2");
        assert_eq!(
            files,
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"]
        );
        assert_eq!(limit_files("4:memory:/x").expect("version 1")[0], "/sys/fs/cgroup/memory/x/memory.limit_in_bytes");
        assert_eq!(limit_files("3:cpu,cpuacct:/x"), None);
    }
}
