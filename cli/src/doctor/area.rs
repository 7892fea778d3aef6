//! # What the kernel keeps in a thread's rseq area
//!
//! How long the area is, which of its words are used, whether the kernel rewrites them at each switch (as it always did for
//! areas of 32 bytes, but in 6.19 and 7.0) or when they change, and whether it extends time slices. Each is
//! tried: kernels are patched, and configured, so that their numbers say little.
#![allow(unsafe_code)] // fork, a word of our own area, prctl

use super::finding::Finding;
use allotment_engine::arch::rseq::{CPU_ID, CPU_ID_START, MM_CID_BYTES, Told, told};
use allotment_engine::arch::sys;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// When the words that the kernel keeps are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// At each switch.
    AtSwitches,
    /// When they change.
    OnChange,
    /// Nobody else may write them at all.
    Guarded,
    /// It could not be tried.
    Unknown,
}

/// Whether threads may ask for a longer slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slices {
    Offered,
    /// The kernel does not know the question (before 7.0).
    No,
    /// It knows it, and is configured or booted without, or the area is one of 32 bytes.
    Off,
    /// Something else is in the way, a seccomp filter as like as not.
    Refused(i32),
}

/// See the module.
pub struct Area {
    told: Option<Told>,
    written: Written,
    slices: Slices,
}

impl Area {
    pub fn look() -> Self {
        let told = told();
        let written = told.filter(|told| told.usable() > 0).map_or(Written::Unknown, Written::look);
        Self { told, written, slices: Slices::look() }
    }
    /// Whether the C library knows of areas.
    pub fn is_known(&self) -> bool {
        self.told.is_some()
    }
    pub fn findings(&self) -> Vec<Finding> {
        let (size, feature) = self.told.map_or((0, 0), |told| (told.size, told.feature));
        let usable = self.told.map_or(0, Told::usable);
        let (registered, compact) = (usable > 0, usable >= MM_CID_BYTES);
        vec![
            Finding::new(
                "rseq",
                if registered {
                    format!("registered yes, area {}, feature size {feature}, usable {usable} bytes", size.max(32))
                } else {
                    format!("registered no, feature size {feature}")
                },
                "the kernel restarts what it interrupts, so the fast path needs no locked instruction",
            )
            .bad_if(!registered, "take glibc.pthread.rseq=0 out of GLIBC_TUNABLES; valgrind and gVisor have none"),
            Finding::new(
                "mm_cid",
                if compact { "yes, and node_id" } else { "no" },
                "caches by concurrency id: as many as threads run at once, not one for each CPU",
            )
            .notice_if(!compact && registered, "Linux 6.3 or later has it; until then each CPU gets its caches"),
            Finding::new(
                "rseq words",
                self.written.name(),
                "Allotment reads them in sequences and writes none: it runs alike on each kind (docs/platforms.md)",
            ),
            Finding::new(
                "time slices",
                self.slices.name(),
                "whether a thread may ask for some µs more before it is preempted; Allotment does not ask (docs/platforms.md)",
            ),
        ]
    }
}

impl Written {
    /// Writes a word of a child's area, where the kernel writes it again or not. The child runs on one CPU, or the word would change.
    fn look(told: Told) -> Self {
        const STRANGE: u32 = 0x7fff;
        const REWRITTEN: i32 = 10;
        const KEPT: i32 = 11;
        // SAFETY: the child makes system calls and touches its own copy of the area, whose place the C library told; nothing
        // in it needs the word again.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let area = sys::thread_pointer().wrapping_add_signed(told.offset);
                let word = |at: isize| &*(area.wrapping_add_signed(at) as *const AtomicU32);
                let mut here: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(word(CPU_ID).load(Relaxed) as usize % libc::CPU_SETSIZE as usize, &mut here);
                let pinned = libc::sched_setaffinity(0, size_of_val(&here), &raw const here);
                let nap = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
                libc::nanosleep(&raw const nap, std::ptr::null_mut());
                word(CPU_ID_START).store(STRANGE, Relaxed);
                libc::nanosleep(&raw const nap, std::ptr::null_mut());
                let kept = word(CPU_ID_START).load(Relaxed) == STRANGE;
                libc::_exit(if pinned != 0 {
                    0
                } else if kept {
                    KEPT
                } else {
                    REWRITTEN
                });
            }
            let mut status = 0;
            if child < 0 || libc::waitpid(child, &raw mut status, 0) != child {
                return Self::Unknown;
            }
            match libc::WEXITSTATUS(status) {
                _ if libc::WIFSIGNALED(status) => Self::Guarded,
                KEPT => Self::OnChange,
                REWRITTEN => Self::AtSwitches,
                _ => Self::Unknown,
            }
        }
    }
    fn name(self) -> &'static str {
        match self {
            Self::AtSwitches => "written at each switch",
            Self::OnChange => "written when they change",
            Self::Guarded => "written by the kernel alone",
            Self::Unknown => "not known",
        }
    }
}

impl Slices {
    /// Turns it on for this thread, and off again.
    fn look() -> Self {
        const PR_RSEQ_SLICE_EXTENSION: libc::c_int = 79;
        const SET: libc::c_ulong = 2;
        const ENABLE: libc::c_ulong = 1;
        let none: libc::c_ulong = 0;
        // SAFETY: a flag of this thread, which asks for nothing.
        let set = |flag: libc::c_ulong| match unsafe { libc::prctl(PR_RSEQ_SLICE_EXTENSION, SET, flag, none, none) } {
            0 => 0,
            _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        };
        let error = set(ENABLE);
        if error == 0 {
            set(none);
        }
        Self::of(error)
    }
    fn of(error: i32) -> Self {
        /// The kernel's own, which no C library names.
        const ENOTSUPP: i32 = 524;
        match error {
            0 => Self::Offered,
            libc::EINVAL => Self::No,
            ENOTSUPP | libc::ENXIO => Self::Off,
            error => Self::Refused(error),
        }
    }
    fn name(self) -> String {
        match self {
            Self::Offered => "extended on request".into(),
            Self::No => "not extended (Linux 7.0 may)".into(),
            Self::Off => "not extended (configured without, or an area of 32 bytes: glibc before 2.41)".into(),
            Self::Refused(error) => format!("not extended (error {error})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(size: usize, feature: usize, written: Written, error: i32) -> Vec<String> {
        let told = Some(Told { offset: 0, size, feature });
        let area = Area { told, written, slices: Slices::of(error) };
        area.findings().into_iter().map(|finding| finding.value).collect()
    }

    #[test]
    fn lines_follow_from_what_was_found() {
        let wanted = [
            "registered yes, area 32, feature size 28, usable 28 bytes",
            "yes, and node_id",
            "written at each switch",
            "not extended (Linux 7.0 may)",
        ];
        assert_eq!(values(20, 28, Written::AtSwitches, libc::EINVAL), wanted);
        let off = "not extended (configured without, or an area of 32 bytes: glibc before 2.41)";
        let wanted = [
            "registered yes, area 33, feature size 33, usable 33 bytes",
            "yes, and node_id",
            "written when they change",
            off,
        ];
        assert_eq!(values(33, 33, Written::OnChange, 524), wanted);
        let wanted = ["registered no, feature size 33", "no", "not known", off];
        assert_eq!(values(0, 33, Written::Unknown, libc::ENXIO), wanted);
        let wanted = ["registered yes, area 32, feature size 0, usable 20 bytes", "no", "written at each switch"];
        assert_eq!(values(32, 0, Written::AtSwitches, libc::EPERM)[..3], wanted);
        assert_eq!(values(32, 0, Written::AtSwitches, libc::EPERM)[3], "not extended (error 1)");
        assert_eq!(values(64, 64, Written::Guarded, 0)[2..], ["written by the kernel alone", "extended on request"]);
    }

    #[test]
    fn only_what_is_missing_gets_advice() {
        let area = |told| Area { told, written: Written::Unknown, slices: Slices::No }.findings();
        let advised =
            |told| area(told).into_iter().filter(|finding| finding.advice.is_some()).map(|finding| finding.name);
        assert_eq!(advised(None).collect::<Vec<_>>(), ["rseq"]);
        let told = |size, feature| Some(Told { offset: 0, size, feature });
        assert_eq!(advised(told(32, 0)).collect::<Vec<_>>(), ["mm_cid"]);
        for (size, feature) in [(20, 28), (28, 28), (33, 33), (64, 64)] {
            assert_eq!(advised(told(size, feature)).next(), None, "{size} {feature}");
        }
    }

    /// What this kernel does is found out: it is one of the two wherever there is an area.
    #[test]
    fn this_kernel_is_tried() {
        let area = Area::look();
        let usable = area.told.map_or(0, Told::usable);
        assert_eq!(area.written == Written::Unknown, usable == 0, "{:?} of {:?}", area.written, area.told);
        assert!(area.slices != Slices::Offered || usable > 32, "{:?}", area.told);
    }
}
