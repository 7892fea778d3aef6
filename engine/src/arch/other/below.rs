//! # Words compared, by a load and a compare

/// Whether a number is below the word (an atomic one's) so many bytes from an address. Relaxed.
///
/// # Safety
/// There is such a word.
macro_rules! is_below {
    ($number:expr, $address:expr, $offset:expr) => {
        $number
            < (*($address.wrapping_add_signed($offset) as *const $crate::arch::atomic::AtomicUsize))
                .load($crate::arch::atomic::Ordering::Relaxed)
    };
}
pub(crate) use is_below;

/// Whether the word of this number in a table (of atomics) so many bytes from an address is above 0, taken as signed. Relaxed.
///
/// # Safety
/// There is such a word.
macro_rules! is_positive {
    ($number:expr, $address:expr, $offset:expr) => {
        (*($address.wrapping_add_signed($offset) as *const $crate::arch::atomic::AtomicUsize).add($number))
            .load($crate::arch::atomic::Ordering::Relaxed)
            .cast_signed()
            > 0
    };
}
pub(crate) use is_positive;
