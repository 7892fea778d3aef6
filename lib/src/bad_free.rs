//! # An address that could not be freed, whatever it was to be
//!
//! An error for who can be told, and for `free` of C a line on standard error.
#![allow(unsafe_code)] // ends the process

use crate::heap::HEAP;
use crate::process::{ask_no_more, say};
use allotment_engine::arch::sys;
use allotment_engine::knob::BadFree as Knob;
use allotment_engine::stat::BadPointer;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

unsafe extern "C" {
    fn abort() -> !;
}

/// An address that cannot be freed. It was left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadFree {
    /// The address.
    pub address: usize,
    /// Why.
    pub wrong: BadPointer,
}

impl fmt::Display for BadFree {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x} {}", self.address, self.wrong.what())
    }
}
impl core::error::Error for BadFree {}

/// Lines about one kind of bad pointer; the rest are counted.
const LINES: u32 = 10;

/// Pointers of one kind that were told of, and the process that counted those beyond [`LINES`].
struct Told {
    count: AtomicU32,
    by: AtomicU32,
}

static TOLD: [Told; BadPointer::ALL.len()] =
    [const { Told { count: AtomicU32::new(0), by: AtomicU32::new(0) } }; BadPointer::ALL.len()];

/// Whose reports these are, where it may be asked.
fn own_pid() -> u32 {
    if HEAP.is_confined() { HEAP.pid() } else { sys::pid() }
}

/// Before a line: where system calls are filtered nothing is asked.
fn heed_filter() {
    if HEAP.is_confined() {
        ask_no_more();
    }
}

/// At the end: how many more there were. (A forked child tells of its own.)
pub fn end_reports() {
    for wrong in BadPointer::ALL {
        let (told, what) = (&TOLD[wrong as usize], wrong.what());
        // Relaxed: numbers.
        let more = told.count.load(Relaxed).saturating_sub(LINES);
        if more > 0 && told.by.load(Relaxed) == own_pid() {
            told.count.store(LINES, Relaxed);
            heed_filter();
            say!("and {more} more, where the pointer {what}");
        }
    }
}

/// Tells of a pointer that cannot be freed; it is left alone.
pub fn report(address: usize, wrong: BadPointer) {
    let (told, what) = (&TOLD[wrong as usize], wrong.what());
    let stop = HEAP.cache().knobs.choice::<Knob>() == Knob::Abort;
    // Relaxed: numbers. (Not beyond the last, where it would begin again.)
    let before = told.count.fetch_update(Relaxed, Relaxed, |count| count.checked_add(1)).unwrap_or(u32::MAX);
    if before >= LINES && !stop {
        let own = own_pid();
        if told.by.swap(own, Relaxed) != own {
            // (A forked child: its parent's are not its.)
            told.count.store(LINES + 1, Relaxed);
        }
        return;
    }
    heed_filter();
    say!("free({address:#x}): the pointer {what}{}", if stop { "; aborting (knob bad_free)" } else { "; left alone" });
    if stop {
        // SAFETY: ends the process.
        unsafe { abort() };
    }
}
