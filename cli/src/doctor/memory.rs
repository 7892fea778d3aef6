//! # What decides how memory comes and goes
//!
//! Files of `/proc` and `/sys`, limits of this process, and calls tried on a page of our own: a sandbox that
//! refuses one says so only when asked.
#![allow(unsafe_code)] // limits, and advice for a page of our own

use super::finding::Finding;
use crate::proc::{self, Status};
use crate::term::bytes;
use allotment_engine::arch::{PAGE, cgroup, topology};
use std::ptr;

/// What the advice is called where the C library has no name for it yet.
const MADV_POPULATE_WRITE: i32 = 23;
const MADV_GUARD_INSTALL: i32 = 102;
const MPOL_PREFERRED: i64 = 1;
pub fn findings() -> Vec<Finding> {
    vec![huge(), defrag(), overcommit(), mappings(), limits(), group(), cpus(), pressure(), nodes(), filter(), calls()]
}

fn yes(there: bool) -> &'static str {
    if there { "yes" } else { "no" }
}

fn huge() -> Finding {
    let chosen = proc::huge_pages();
    let never = chosen.as_deref() == Some("never");
    Finding::new(
        "huge pages",
        chosen.unwrap_or_else(|| "not known".into()),
        "areas from 32 MiB ask for them (knob huge_bytes): faults and frees a tenth as long",
    )
    .notice_if(never, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
}

fn defrag() -> Finding {
    let line = proc::line("/sys/kernel/mm/transparent_hugepage/defrag");
    let chosen = line.as_deref().and_then(proc::chosen).unwrap_or("not known").to_owned();
    let stalls = chosen == "always";
    Finding::new("defrag", chosen, "whether a fault that wants a huge page waits until the kernel has made one")
        .notice_if(stalls, "echo defer+madvise > /sys/kernel/mm/transparent_hugepage/defrag, if faults stall")
}

fn overcommit() -> Finding {
    let number = proc::line("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    let value = match number.as_str() {
        "0" => "0 (guessed)",
        "1" => "1 (always)",
        "2" => "2 (never)",
        "" => "not known",
        other => other,
    };
    Finding::new("overcommit", value, "whether memory counts when it is mapped or when it is touched")
        .notice_if(number == "2", "what is opened counts as used: watch `mapped` beside CommitLimit in /proc/meminfo")
}

fn mappings() -> Finding {
    let most = proc::line("/proc/sys/vm/max_map_count");
    let few = most.as_deref().and_then(|text| text.parse::<u64>().ok()).is_some_and(|most| most < 65_530);
    Finding::new(
        "map limit",
        most.unwrap_or_else(|| "not known".into()),
        "mappings that a process may have; ours are two a GiB and what realloc has moved (knob move_limit)",
    )
    .notice_if(few, "below the kernel's default: sysctl vm.max_map_count=65530, or a smaller move_limit")
}

fn limits() -> Finding {
    let [space, data] = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(|which| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a variable of our own.
        unsafe { libc::getrlimit(which, &raw mut limit) };
        limit.rlim_cur
    });
    let of = |limit| if limit == libc::RLIM_INFINITY { "none".to_owned() } else { bytes(limit) };
    let limited = space != libc::RLIM_INFINITY || data != libc::RLIM_INFINITY;
    Finding::new("ulimit", format!("address space {}, data {}", of(space), of(data)), "what ulimit -v and -d allow")
        .notice_if(
            limited,
            "address space is opened in steps and small objects' is kept: leave room, or limit the cgroup",
        )
}

fn group() -> Finding {
    Finding::new(
        "cgroup memory",
        match (cgroup::memory_limit(), cgroup::memory_high()) {
            (None, None) => "no limit".into(),
            (Some(max), None) => bytes(max),
            (max, Some(high)) => {
                format!("{}, slowed down from {}", max.map_or_else(|| "no limit".into(), bytes), bytes(high))
            }
        },
        "the soft limit is memory.high or 7/8 of the limit (knob soft_limit); hard_limit=cgroup: ENOMEM before it is reached",
    )
}

fn cpus() -> Finding {
    let allowed = std::thread::available_parallelism().map_or(0, usize::from);
    // (`isolcpus` and `nohz_full` often name the same ones.)
    let mut isolated = std::collections::BTreeSet::new();
    topology::isolated(|cpu| {
        isolated.insert(cpu);
    });
    let quiet = isolated.len();
    Finding::new(
        "CPUs",
        format!("{allowed} for this process (affinity and quota), {quiet} isolated"),
        "each running thread's CPU has caches; isolated ones are drained without an interruption",
    )
}

fn pressure() -> Finding {
    let there = proc::line("/proc/pressure/memory").is_some();
    Finding::new(
        "pressure",
        if there { format!("{:.2} % of the last 10 s", cgroup::pressure() as f64 / 100.0) } else { "not told".into() },
        "how long something waited for memory; from 1 % on nothing free stays resident",
    )
    .notice_if(!there, "a kernel with CONFIG_PSI, booted with psi=1")
}

fn nodes() -> Finding {
    let nodes = topology::list_end(c"/sys/devices/system/node/online").unwrap_or(1);
    let placed = nodes < 2
        || try_on_a_page(|page| {
            let node: u64 = 1;
            // SAFETY: a page of ours; one word of nodes.
            unsafe { libc::syscall(libc::SYS_mbind, page, PAGE, MPOL_PREFERRED, &raw const node, 64, 0) == 0 }
        });
    Finding::new("NUMA nodes", nodes.to_string(), "each has a zone of pages and slabs of its own")
        .notice_if(!placed, "mbind is refused (Docker's filter does): pages lie where they are first touched")
}

fn filter() -> Finding {
    let mode = Status::of(std::process::id()).ok().and_then(|status| status.seccomp);
    let (value, filtered) = match mode {
        Some(0) => ("none", false),
        Some(1 | 2) => ("yes", true),
        _ => ("not known", false),
    };
    Finding::new("seccomp", value, "a filter may refuse what Allotment asks of the kernel, or kill for it").notice_if(
        filtered,
        "let membarrier, madvise, process_madvise and mbind through; `run --stats` counts refusals",
    )
}

/// What the kernel takes of the calls that make purges cheap.
fn calls() -> Finding {
    let vectors = try_on_a_page(|page| {
        let range = libc::iovec { iov_base: page, iov_len: PAGE };
        // SAFETY: this process, and a page of ours whose contents nobody needs.
        unsafe {
            let me = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
            let done = libc::syscall(libc::SYS_process_madvise, me, &raw const range, 1, libc::MADV_DONTNEED, 0);
            libc::close(me as i32);
            done == PAGE as i64
        }
    });
    // SAFETY: as above.
    let [guards, populate] = [MADV_GUARD_INSTALL, MADV_POPULATE_WRITE]
        .map(|advice| try_on_a_page(|page| unsafe { libc::madvise(page, PAGE, advice) == 0 }));
    Finding::new(
        "advice",
        format!("vectors {}, guard pages {}, populate {}", yes(vectors), yes(guards), yes(populate)),
        "vectors: 128 ranges go back in one call, a fifth of the time; guards: a page that faults, without a mapping",
    )
    .notice_if(
        !vectors,
        "Linux 6.13 or later and a filter that lets process_madvise through: one call a range until then",
    )
}

/// Tries something on a fresh page.
fn try_on_a_page(body: impl FnOnce(*mut libc::c_void) -> bool) -> bool {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, which is unmapped again.
    unsafe {
        let page = libc::mmap(ptr::null_mut(), PAGE, access, kind, -1, 0);
        page != libc::MAP_FAILED && {
            let done = body(page);
            libc::munmap(page, PAGE);
            done
        }
    }
}
