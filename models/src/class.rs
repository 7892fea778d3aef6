//! Size classes for models: one of four objects to a slab.

/// Classes with the unused class 0.
pub const CLASSES: usize = 2;
/// Bytes of an object.
pub const SIZES: [u32; CLASSES] = [0, 1024];
/// Order of a slab.
pub const SLAB_ORDER: [u8; CLASSES] = [0, 0];
