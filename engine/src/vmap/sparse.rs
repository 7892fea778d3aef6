//! # A copy that takes no memory for zeros
//!
//! ```text
//! from │ ab │ 00 │ cd │ 00 │
//! to   │ 00 │ 00 │ 00 │ xy │     written: the first, the third, the last
//! ```
//! Pages that are zero on either side stay as they are: reading one takes no memory, writing it would.
//!
//! Units: bytes; pages of the target. Cost: one look at each page more than a copy, from [`SPARSE`] on.
#![allow(unsafe_code)] // copies what is the caller's

use crate::arch::PAGE;
use core::ptr;

/// Bytes from which a copy looks for pages that it need not touch.
const SPARSE: usize = 128 << 10;

/// Copies `bytes` bytes, but leaves pages that are zero on either side as they are: reading them takes no memory, writing would.
///
/// # Safety
/// As [`ptr::copy_nonoverlapping`].
#[inline(never)]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: within what the caller promised.
    let line = |at: *const u8, n: usize| unsafe { at.cast::<[u64; 8]>().add(n).read_unaligned() };
    let is_zero = |at: *const u8| (0..PAGE / 64).all(|n| line(at, n).into_iter().fold(0, |all, word| all | word) == 0);
    // What is copied next begins there.
    let mut begin = 0;
    let mut copy_until = |end: usize, then: usize| {
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(from.add(begin), to.add(begin), end - begin) };
        begin = then;
    };
    if bytes >= SPARSE {
        let first = (to as usize).next_multiple_of(PAGE) - to as usize;
        for page in (first..=bytes - PAGE).step_by(PAGE) {
            // SAFETY: as above.
            if is_zero(unsafe { from.add(page) }) && is_zero(unsafe { to.add(page) }) {
                copy_until(page, page + PAGE);
            }
        }
    }
    copy_until(bytes, bytes);
}

#[cfg(test)]
#[allow(clippy::undocumented_unsafe_blocks)]
mod tests {
    use super::{SPARSE, copy};
    use crate::arch::PAGE;
    use crate::arch::sys::{self, Access};
    extern crate std;
    use std::vec;

    #[test]
    fn a_copy_leaves_out_only_what_is_zero_on_either_side() {
        for (skew, end) in [(0, 0), (16, 0), (16, 100), (4080, 7), (1, 1)] {
            let bytes = SPARSE + 3 * PAGE + end;
            let (mut from, mut to) = (vec![0_u8; bytes + PAGE], vec![0_u8; bytes + 2 * PAGE]);
            from[bytes - 1] = 1;
            for at in [3 * PAGE, 7 * PAGE + 4095, 8 * PAGE, 20 * PAGE + 2000] {
                from[at] = 2;
            }
            // Old contents where zeros are to be.
            to[skew + 5 * PAGE..skew + 6 * PAGE].fill(3);
            to[skew + 30 * PAGE + 4000] = 3;
            to[skew + bytes] = 4;
            unsafe { copy(from.as_ptr(), to.as_mut_ptr().add(skew), bytes) };
            assert!(to[skew..skew + bytes] == from[..bytes] && to[skew + bytes] == 4, "{skew} {end}");
        }
        // What is zero is not written: here it could not be.
        for bytes in [SPARSE, SPARSE + PAGE] {
            let to = sys::map(0, bytes, Access::ReadExecute).expect("memory");
            unsafe { copy(vec![0_u8; bytes].as_ptr(), to as *mut u8, bytes) };
            unsafe { sys::unmap(to, bytes) }.expect("ours");
        }
    }
}
