//! # What a user of pages says and hears

use super::block::ORDERS;
use core::ops::BitOr;

/// How a block of pages is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// As it comes.
    pub const NONE: Self = Self(0);
    /// All zero. Costs nothing where the pages are known to be.
    pub const ZERO: Self = Self(1);
    /// From what is there: the system is asked for nothing, and what is kept back below `min` may be taken.
    pub const ATOMIC: Self = Self(2);
    /// From the node that was asked for, or not at all.
    pub const THIS_NODE: Self = Self(4);

    /// The flags of these bits; `None` if a bit means nothing.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits < 8 { Some(Self(bits)) } else { None }
    }
    /// Whether all of these are set.
    #[inline]
    #[must_use]
    pub const fn has(self, these: Self) -> bool {
        self.0 & these.0 == these.0
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Why there is no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The order is above 10.
    Order,
    /// There is no such node: 0 to 7 have a zone each. (Of one that the machine has not, memory is of any.)
    Node,
    /// The system has no more memory, or may not be asked.
    Exhausted,
}

/// A zone in numbers, all in pages but `by_order`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneStats {
    /// Its node.
    pub node: usize,
    /// Opened so far: free, in lists, and in use.
    pub managed: usize,
    /// Free in the zone.
    pub free: usize,
    /// Of these, those that may be resident.
    pub dirty: usize,
    /// Below this, free pages are kept for [`Flags::ATOMIC`].
    pub min: usize,
    /// Below this, the keeper opens more.
    pub low: usize,
    /// Above this, a purge takes dirty pages here first.
    pub high: usize,
    /// Free blocks of each order.
    pub by_order: [usize; ORDERS],
}

/// The list of an order that an index has, its spare included; in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListStats {
    /// Whose.
    pub index: usize,
    /// Of which order.
    pub order: usize,
    /// Blocks in it.
    pub count: usize,
    /// Most blocks that it may hold now.
    pub high: usize,
    /// Blocks that move at once.
    pub batch: usize,
}
