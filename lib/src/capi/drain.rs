//! Draining: the functions of [`crate::drain`].

use super::__errno_location;
use crate::drain::{self, DrainMode, DrainReport};
use allotment_engine::arch::sys::Errno;
use core::ffi::{c_int, c_uint};

/// `allotment_drained`.
#[repr(C)]
pub struct Drained {
    reached: u64,
    unreached: u64,
    objects: u64,
    bytes: u64,
    fences: u64,
    answers: u64,
}

fn fail(errno: Errno) -> c_int {
    // SAFETY: the calling thread's errno.
    unsafe { *__errno_location() = errno.0 };
    -1
}

fn told(report: &DrainReport, into: *mut Drained) -> c_int {
    if !into.is_null() {
        let (reached, unreached) = (report.reached as u64, report.unreached as u64);
        let DrainReport { objects, bytes, fences, answers, .. } = *report;
        // SAFETY: the caller's promise.
        unsafe { into.write(Drained { reached, unreached, objects, bytes, fences, answers }) };
    }
    if report.unreached == 0 { 0 } else { fail(Errno::EAGAIN) }
}

fn way(number: c_uint) -> Option<DrainMode> {
    [DrainMode::Auto, DrainMode::Gentle, DrainMode::Expedited].get(number as usize).copied()
}

exported! {
    /// `drain::cpu`, or `drain::all`.
    fn allotment_drain(cpu: c_int, way_number: c_uint, into: *mut Drained) -> c_int {
        let Some(way) = way(way_number).filter(|_| cpu >= -1) else {
            return fail(Errno::EINVAL);
        };
        told(&u32::try_from(cpu).map_or_else(|_| drain::all(way), |cpu| drain::cpu(cpu, way)), into)
    }
    /// `drain::idle`.
    fn allotment_drain_idle(into: *mut Drained) -> c_int {
        told(&drain::idle(), into)
    }
    /// `drain::park`.
    fn allotment_park() -> c_int {
        if drain::park() { 0 } else { fail(Errno::EAGAIN) }
    }
}
