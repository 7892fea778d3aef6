//! # What decides the mode
//!
//! Restartable sequences need the C library's registration of them, a kernel that keeps to the contract, and a
//! fence that ends other threads' sequences. What a program really gets, only a program can say: [`self_test`].
#![allow(unsafe_code)] // membarrier

use super::area::Area;
use super::finding::Finding;
use crate::proc;
use allotment_engine::arch::HAS_SEQUENCES;
use serde::Deserialize;
use std::process::{Command, Stdio};

const MEMBARRIER_QUERY: libc::c_int = 0;
const MEMBARRIER_PRIVATE_EXPEDITED_RSEQ: i64 = 1 << 7;

/// Major and minor number of a kernel.
type Release = (u32, u32);

/// Kernels whose sequences are broken: processor, from, before, what is wrong.
const BROKEN: &[(&str, Release, Release, &str)] = &[(
    "aarch64",
    (6, 19),
    (7, 1),
    "a sequence that is preempted on its own CPU is not aborted: Linux before 6.19 or from 7.1 on",
)];

/// What a program was told.
#[derive(Debug, Deserialize)]
pub struct Test {
    pub mode: String,
    pub reason: String,
}

/// Runs this program on Allotment, for a moment.
pub fn self_test() -> Result<Test, String> {
    let file = std::env::temp_dir().join(format!("allotment-doctor-{}.json", std::process::id()));
    let stats = format!("--stats={}", file.display());
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let ran = Command::new(&me).args(["run", &stats, "--"]).arg(&me).arg("--version").stdout(Stdio::null()).output();
    let text = std::fs::read(&file);
    let _ = std::fs::remove_file(&file);
    let ran = ran.map_err(|error| error.to_string())?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned());
    }
    text.map_err(|error| error.to_string())
        .and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()))
}

pub fn findings() -> Vec<Finding> {
    let area = Area::look();
    // SAFETY: no pointers.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_QUERY, 0, 0) };
    let fences = commands > 0 && commands & MEMBARRIER_PRIVATE_EXPEDITED_RSEQ != 0;
    let release = proc::release();
    let arch = std::env::consts::ARCH;
    let broken = broken(arch, &release);
    let libc = proc::libc_version();
    let mut findings = vec![
        Finding::new(
            "kernel",
            format!("Linux {release}, {arch}"),
            "sequences are written for x86-64 and arm64; others get locks",
        )
        .bad_if(!HAS_SEQUENCES, "no other processor has sequences here yet")
        .bad_if(broken.is_some(), broken.unwrap_or_default()),
        Finding::new(
            "C library",
            if libc.is_empty() { "not known".into() } else { format!("glibc {libc}") },
            "from 2.35 on it registers each thread for restartable sequences (rseq)",
        )
        .bad_if(HAS_SEQUENCES && !area.is_known(), "glibc 2.35 or later; musl and older ones get locks"),
    ];
    findings.extend(area.findings());
    findings.push(
        Finding::new(
            "membarrier",
            format!("commands {:#x}, rseq fences {}", commands.max(0), if fences { "yes" } else { "no" }),
            "ends the sequences of other CPUs, so that their caches can be drained",
        )
        .bad_if(!fences, "Linux 5.10 or later, and a seccomp filter that lets membarrier through"),
    );
    findings
}

/// What is wrong with a kernel's sequences.
fn broken(arch: &str, release: &str) -> Option<&'static str> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return None };
    BROKEN
        .iter()
        .find(|(of, from, before, _)| *of == arch && (*from..*before).contains(&(major, minor)))
        .map(|(.., why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_kernels_are_known_by_their_number() {
        assert!(broken("aarch64", "6.19.3-arm64").is_some());
        assert!(broken("aarch64", "7.0").is_some());
        for (arch, release) in [("aarch64", "6.18.44-x"), ("aarch64", "7.1.0"), ("x86_64", "6.19.1"), ("aarch64", "x")]
        {
            assert_eq!(broken(arch, release), None, "{arch} {release}");
        }
    }
}
