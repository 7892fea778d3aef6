//! # What is known of the process without its heap
//!
//! Whether it is a set-uid program; lines to its standard error; what is done once in it.
#![allow(unsafe_code)] // libc

use allotment_engine::arch::sys;
use allotment_engine::arch::text::Text;
use core::ffi::c_ulong;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

unsafe extern "C" {
    fn getauxval(kind: c_ulong) -> c_ulong;
}

/// Something that is done once. (True at first, and [`NOBODY`] is not 0: a static with a value lies on a page that the
/// loader writes anyhow. Without one it would cost every process a page that it writes for this alone.)
pub struct Once(AtomicBool);

impl Once {
    /// Not done.
    pub const fn new() -> Self {
        Self(AtomicBool::new(true))
    }
    /// Whether to do it now: true for one caller.
    pub fn is_now(&self) -> bool {
        // Relaxed: what is done is seen by its own means.
        self.0.swap(false, Relaxed)
    }
}

/// In place of a process's number: none.
pub const NOBODY: u32 = u32::MAX;

/// Whether standard error may be asked if it takes a line (true at first, as [`Once`]). Relaxed: a flag.
static MAY_ASK: AtomicBool = AtomicBool::new(true);

/// From now on a filter of system calls may kill for a question.
pub fn ask_no_more() {
    MAY_ASK.store(false, Relaxed);
}

/// A line for standard error, without memory of its own.
pub struct Line(Text<[u8; 512]>);

impl Line {
    /// Begins with the program's name.
    pub fn new() -> Self {
        let mut line = Self(Text::empty());
        line.0.push(b"allotment: ");
        line
    }
    /// Writes it out, unless nobody reads it: what a program inherits must neither end nor stop it.
    pub fn end(mut self) {
        if !MAY_ASK.load(Relaxed) || sys::takes(2) {
            sys::complain(self.0.as_line());
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.write_str(text)
    }
}

/// One line on standard error.
macro_rules! say {
    ($($words:tt)*) => {{
        let mut line = $crate::process::Line::new();
        let _ = core::fmt::Write::write_fmt(&mut line, format_args!($($words)*));
        line.end();
    }};
}
pub(crate) use say;

/// Whether this is a set-uid program or the like.
pub fn is_secure() -> bool {
    const AT_SECURE: c_ulong = 23;
    // SAFETY: reads what the kernel gave the process.
    unsafe { getauxval(AT_SECURE) != 0 }
}
