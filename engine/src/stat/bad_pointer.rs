//! # What is wrong with an address that a program gives back
//!
//! One type for all that is allocated here (objects, blocks of pages, areas, per-CPU memory), and one wording each. Whoever
//! finds one leaves the memory as it is.

/// Why something cannot be freed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPointer {
    /// Not an address of this heap, or of another part of it.
    Foreign,
    /// Inside a live allocation, or where nothing begins.
    Interior,
    /// Free already.
    Double,
}

impl BadPointer {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::Foreign, Self::Interior, Self::Double];

    /// As every report says it: "the pointer …".
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::Foreign => "is not of this heap",
            Self::Interior => "is not the beginning of a live allocation",
            Self::Double => "was freed twice",
        }
    }
}
