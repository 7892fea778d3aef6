//! # Clocks, and what was used
//!
//! Units: nanoseconds, bytes. What the kernel cannot say is 0.
#![allow(unsafe_code)] // calls that fill a structure of ours

use allotment_engine::arch::sys;

/// The monotonic clock, which all processes share.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Time on CPUs that this thread has had.
pub fn thread_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills one timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.cast_unsigned())
}

/// The processor's counter; 0 where there is none that this knows.
#[inline(always)]
pub fn ticks() -> u64 {
    if HAS_COUNTER { sys::ticks() } else { 0 }
}

/// Whether there is one.
const HAS_COUNTER: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// The processor's counter, or the monotonic clock where there is none.
#[inline(always)]
pub fn stamp() -> u64 {
    if HAS_COUNTER { ticks() } else { monotonic_ns() }
}

/// What somebody used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Time in programs, ns.
    pub user_ns: u64,
    /// Time in the kernel, ns.
    pub system_ns: u64,
    /// Highest resident memory, bytes.
    pub peak: u64,
    /// Page faults without input or output.
    pub minor_faults: u64,
    /// With.
    pub major_faults: u64,
}

impl Used {
    /// By `RUSAGE_SELF`, `RUSAGE_THREAD` or `RUSAGE_CHILDREN`.
    pub fn by(who: libc::c_int) -> Self {
        // SAFETY: all-zero bytes are a valid rusage, which the call fills.
        Self::of(&unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        })
    }
    /// From the kernel's structure.
    pub fn of(usage: &libc::rusage) -> Self {
        let positive = |number: i64| u64::try_from(number).unwrap_or(0);
        let time = |time: libc::timeval| positive(time.tv_sec) * 1_000_000_000 + positive(time.tv_usec) * 1_000;
        Self {
            user_ns: time(usage.ru_utime),
            system_ns: time(usage.ru_stime),
            peak: positive(usage.ru_maxrss).saturating_mul(1024),
            minor_faults: positive(usage.ru_minflt),
            major_faults: positive(usage.ru_majflt),
        }
    }
    /// On CPUs, ns.
    pub const fn cpu_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_on_and_work_is_seen() {
        let (began, cpu) = (monotonic_ns(), thread_ns());
        while thread_ns() < cpu + 5_000_000 {}
        assert!(monotonic_ns() > began);
        let used = Used::by(libc::RUSAGE_SELF);
        assert!(used.cpu_ns() >= 1_000_000 && used.peak > 1 << 20, "{used:?}");
    }
}
