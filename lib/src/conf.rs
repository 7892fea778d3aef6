//! # What the environment says: variables, knobs, and by them how sets and units are reached
#![allow(unsafe_code)] // the environment

use crate::process::{is_secure, say};
use allotment_engine::arch::rseq::{self, Fence};
use allotment_engine::arch::seq::RseqArea;
use allotment_engine::heap::Opening;
use allotment_engine::knob::{self, Knobs};
use allotment_engine::stat::board::CONF_ENV;
use allotment_engine::stat::{Index, Mode, Reason};
use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicBool;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The knob `deepbind`, where assembly finds it (a byte; see `arch::dlopen`).
pub static KEEP_DEEPBIND: AtomicBool = AtomicBool::new(false);

/// A variable of the environment; none in a set-uid program.
pub fn variable(name: &str) -> Option<&'static [u8]> {
    if is_secure() {
        return None;
    }
    // SAFETY: `environ` is null or an array of strings that ends with null; nobody changes
    // it yet (the heap opens before `main`, or at the program's first allocation).
    unsafe {
        let mut at = if environ.is_null() { early_environment() } else { environ };
        while !at.is_null() && !(*at).is_null() {
            let text = CStr::from_ptr(*at).to_bytes();
            if let Some(value) = text.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

/// The environment before the C library has looked at it: behind the arguments on the stack.
unsafe fn early_environment() -> *const *const c_char {
    unsafe extern "C" {
        static __libc_stack_end: *const usize;
    }
    // SAFETY: the loader keeps the stack pointer of the program's start: argc, argv, null, environment.
    unsafe {
        if __libc_stack_end.is_null() { core::ptr::null() } else { __libc_stack_end.add(2 + *__libc_stack_end).cast() }
    }
}

/// Reads `ALLOTMENT_CONF`; what is wrong costs a line, never the program.
pub fn configure(knobs: &Knobs) {
    knobs.reset();
    let Some(conf) = variable(CONF_ENV) else { return };
    for word in conf.split(|&byte| byte == b',').filter(|word| !word.is_empty()) {
        match knob::parse(word) {
            Ok((at, value)) => knobs.set(at, value),
            Err(wrong) => say!("{CONF_ENV}: {}; ignored", wrong.explain(word)),
        }
    }
}

/// Decides how sets and units are reached.
pub fn decide(knobs: &Knobs) -> Opening {
    let mut opening = Opening {
        mode: Mode::Fallback,
        reason: Reason::Asked,
        index: Index::Cpu,
        area: RseqArea::default(),
        simulation: None,
        share: None,
    };
    if knobs.choice::<knob::Mode>() == knob::Mode::Fallback {
        return opening;
    }
    let (base, usable) = match rseq::area() {
        Ok(found) => found,
        Err(reason) => return Opening { reason, ..opening },
    };
    // The C library has a place for it, but this thread may not be registered.
    if rseq::word(base + rseq::CPU_ID) as i32 >= 0 {
        opening.reason = if Fence.register().is_ok() { Reason::Tested } else { Reason::Membarrier };
    } else {
        opening.reason = Reason::Unregistered;
    }
    if opening.reason != Reason::Tested {
        return opening;
    }
    if usable >= rseq::MM_CID_BYTES && knobs.choice::<knob::Index>() == knob::Index::Auto {
        opening.index = Index::MmCid;
    }
    let index = if opening.index == Index::MmCid { rseq::MM_CID } else { rseq::CPU_ID_START };
    opening.area = RseqArea { base, index: base + index };
    opening.mode = Mode::Sequences;
    opening
}
