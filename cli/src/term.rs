//! # What goes to terminals
//!
//! Emphasis only where a terminal shows it, and one-line messages.

use crate::code::{DONE, Failure};
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether standard output was closed when the command began. (What stands in its place takes everything.)
pub static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether a stream shows emphasis.
#[derive(Clone, Copy, Debug)]
pub struct Paint(bool);

impl Paint {
    /// For a stream: a terminal that is not dumb, and no `NO_COLOR`.
    pub fn of(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|word| !word.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|word| word == "dumb");
        Self(stream.is_terminal() && !refused && !dumb)
    }
    /// For files.
    pub const fn none() -> Self {
        Self(false)
    }
    /// Bold.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }
    /// Green: the best of a row.
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }
    /// Yellow: worth a look.
    pub fn notice(self, text: &str) -> String {
        self.wrap("33", text)
    }
    /// Faint: what an expert skips.
    pub fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }
    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Writes to standard output: whether somebody reads on. A reader that has gone is no failure.
///
/// # Errors
/// One line.
pub fn is_read(text: impl AsRef<[u8]>) -> Result<bool, String> {
    if IS_CLOSED.load(Relaxed) {
        return Err("cannot write: standard output is closed".into());
    }
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("cannot write: {}", plain(&error))),
    }
}

/// The same, where nothing more is printed.
///
/// # Errors
/// One line.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), String> {
    is_read(text).map(|_| ())
}

/// The exit code of what was done; what failed is said.
pub fn finish(done: Result<(), impl Into<Failure>>) -> ExitCode {
    match done.map_err(Into::into) {
        Ok(()) => DONE.into(),
        Err(failure) => {
            if !failure.line.is_empty() {
                say(&failure.line);
            }
            failure.into()
        }
    }
}

/// One line on standard error, whatever is in it; a closed stream is no reason to fail.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "allotment: {}", printable(line));
}

/// A stranger's text without what a terminal would obey: controls, and letters that turn or hide what follows. What others
/// named goes through here before it is printed, stored or exported.
pub fn printable(text: &str) -> String {
    let is_obeyed = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    text.chars().map(|letter| if is_obeyed(letter) { '?' } else { letter }).collect()
}

/// An error's text without the number behind it.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// A count with separators: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What a noun ends with, of so many.
pub const fn plural(number: u64) -> &'static str {
    if number == 1 { "" } else { "s" }
}

/// Bytes for eyes: `12.3 MiB`.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{number} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Nanoseconds for eyes.
pub fn nanoseconds(number: u64) -> String {
    let value = number as f64;
    match number {
        0..1_000 => format!("{number} ns"),
        1_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_do_not_steer_the_terminal() {
        assert_eq!(printable("a\x1b[31mb\nc\u{9b}\u{202e}ä…"), "a?[31mb?c??ä…");
    }

    #[test]
    fn numbers_for_eyes() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!([0, 1, 2].map(plural), ["s", "", "s"]);
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(nanoseconds(1_500), "1.5 µs");
        assert_eq!(nanoseconds(2_500_000_000), "2.50 s");
    }
}
