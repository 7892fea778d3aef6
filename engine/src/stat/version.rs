//! # What makes two files of one kind readable by the same command
//!
//! A file that others map carries a hash of everything that its reader must know: the names of events, levels and knobs in
//! their order, and every field's name and place. It changes by itself when one of them does; there is no order among
//! hashes, so another one is "another version", neither older nor newer.
//!
//! Units: none. Locks: none. Cost: none, it is computed by the compiler.

/// A hash (FNV-1a) while it is made.
#[derive(Clone, Copy, Debug)]
pub struct Hash(u64);

impl Hash {
    /// Of nothing.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "const")]
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
    const fn byte(self, byte: u8) -> Self {
        Self((self.0 ^ byte as u64).wrapping_mul(0x0100_0000_01b3))
    }
    /// With a name behind what is there.
    #[must_use]
    pub const fn name(mut self, name: &str) -> Self {
        let (name, mut at) = (name.as_bytes(), 0);
        while at < name.len() {
            self = self.byte(name[at]);
            at += 1;
        }
        // (No name has a zero.)
        self.byte(0)
    }
    /// With a number.
    #[must_use]
    pub const fn number(mut self, number: usize) -> Self {
        let (bytes, mut at) = ((number as u64).to_le_bytes(), 0);
        while at < bytes.len() {
            self = self.byte(bytes[at]);
            at += 1;
        }
        self
    }
    /// With several fields and their places.
    #[must_use]
    pub const fn fields(mut self, fields: &[(&str, usize)]) -> Self {
        let mut at = 0;
        while at < fields.len() {
            self = self.name(fields[at].0).number(fields[at].1);
            at += 1;
        }
        self
    }
    /// In a word of a file's head; never 0.
    #[must_use]
    pub const fn word(self) -> u32 {
        (self.0 >> 32 ^ self.0) as u32 | 1
    }
}

/// The fields of a type, with their places, and its size.
macro_rules! fields {
    ($type:ident: $($field:ident)*) => {
        &[$((stringify!($field), core::mem::offset_of!($type, $field)),)* (stringify!($type), size_of::<$type>())]
    };
}
pub(crate) use fields;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_must_know_is_in_the_hash() {
        let of = |names: &[&str]| names.iter().fold(Hash::new(), |hash, name| hash.name(name)).word();
        let all = [of(&["a", "b"]), of(&["b", "a"]), of(&["ab"]), of(&["a", "b", "c"]), of(&["a", "c"]), of(&[])];
        for (at, hash) in all.iter().enumerate() {
            assert!(*hash != 0 && !all[..at].contains(hash), "{all:x?}");
        }
        #[repr(C)]
        struct Pair {
            one: u32,
            other: u32,
        }
        assert_eq!(fields!(Pair: one other), &[("one", 0), ("other", 4), ("Pair", 8)]);
        let pair = Pair { one: 1, other: 2 };
        assert!(pair.one < pair.other && Hash::new().fields(fields!(Pair: one)).word() != Hash::new().word());
    }
}
