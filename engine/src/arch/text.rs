//! # Text without memory of its own
//!
//! The one writer of the engine and the crate: paths, lines, reports. What there is no room for is counted and left out,
//! and nothing follows it: a text may end early, and has no hole. It never fails.
//!
//! Units: bytes. Invariant: `len + lost` are the bytes of all that was written. Locks: none. Cost: a copy.

use core::ffi::CStr;
use core::fmt;

/// Where text goes.
pub trait Room {
    /// Puts `text` behind the `at` bytes that are there; how many bytes of it there was room for.
    fn put(&mut self, at: usize, text: &[u8]) -> usize;
}

/// An array: its last byte is kept for what ends the text.
impl<const BYTES: usize> Room for [u8; BYTES] {
    fn put(&mut self, at: usize, text: &[u8]) -> usize {
        let fits = text.len().min(BYTES - 1 - at);
        self[at..at + fits].copy_from_slice(&text[..fits]);
        fits
    }
}

/// See the module.
#[derive(Debug)]
pub struct Text<R> {
    room: R,
    len: usize,
    lost: usize,
}

impl<R: Room> Text<R> {
    /// Nothing yet.
    pub const fn new(room: R) -> Self {
        Self { room, len: 0, lost: 0 }
    }
    /// Bytes that are there.
    pub const fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Bytes that had no room.
    pub const fn lost(&self) -> usize {
        self.lost
    }
    /// Writes bytes that need not be text.
    pub fn push(&mut self, bytes: &[u8]) {
        let fits = if self.lost == 0 { self.room.put(self.len, bytes) } else { 0 };
        self.len += fits;
        self.lost += bytes.len() - fits;
    }
}

impl<const BYTES: usize> Text<[u8; BYTES]> {
    /// Nothing yet.
    #[must_use]
    pub const fn empty() -> Self {
        Self::new([0; BYTES])
    }
    /// What was written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.room[..self.len]
    }
    /// All of it as a C string, as far as its first zero; `None` if something had no room.
    pub fn as_c(&self) -> Option<&CStr> {
        if self.lost > 0 { None } else { CStr::from_bytes_until_nul(&self.room).ok() }
    }
    /// As a line: with an end, whole or not.
    pub fn as_line(&mut self) -> &[u8] {
        self.room[self.len] = b'\n';
        &self.room[..=self.len]
    }
}

impl<R: Room> fmt::Write for Text<R> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;

    #[test]
    fn a_text_ends_where_its_room_does_and_has_no_hole() {
        let mut text = Text::<[u8; 8]>::empty();
        write!(text, "/{}", 42).unwrap();
        assert!(!text.is_empty());
        assert_eq!((text.as_bytes(), text.as_c(), text.lost()), (&b"/42"[..], Some(c"/42"), 0));
        write!(text, "abcdef").unwrap();
        write!(text, "g").unwrap();
        assert_eq!((text.as_bytes(), text.as_c(), text.len(), text.lost()), (&b"/42abcd"[..], None, 7, 3));
        assert_eq!(text.as_line(), b"/42abcd\n");
    }

    #[test]
    fn an_empty_text_is_a_string() {
        let text = Text::<[u8; 1]>::empty();
        assert!(text.is_empty() && text.as_c() == Some(c""));
    }
}
