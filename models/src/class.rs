//! Size classes for models: one of four objects to a slab of two pages.

/// Classes with the unused class 0.
pub const CLASSES: usize = 2;
/// Bytes of an object.
pub const SIZES: [u32; CLASSES] = [0, 2048];
/// Order of a slab.
pub const SLAB_ORDER: [u8; CLASSES] = [1, 1];
/// Pages of the largest slab.
pub const SLAB_PAGES_MAX: usize = 2;
/// Of each size, 2^[`RECIPROCAL_SHIFT`] by it.
pub static RECIPROCAL: [u64; CLASSES] = crate::arch::bits::reciprocals(&SIZES, RECIPROCAL_SHIFT);
/// As the engine's.
pub const RECIPROCAL_SHIFT: u32 = 32;
