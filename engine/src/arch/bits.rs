//! # Bits of a word that are multiples of a power of two
//!
//! What bitmaps of pages and of granules share. Units: bits. Cost: a load.

/// The bits of a word of 64 whose number is a multiple of 2ⁿ, for n from 0 to 6.
pub const MULTIPLES: [u64; 7] = [
    u64::MAX,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

/// 2^`shift` by each number, rounded up; 0 for 0: what to multiply by in place of a division.
#[must_use]
pub const fn reciprocals<const N: usize>(numbers: &[u32; N], shift: u32) -> [u64; N] {
    let mut table = [0; N];
    let mut at = 0;
    while at < N {
        if numbers[at] != 0 {
            table[at] = (1_u64 << shift).div_ceil(numbers[at] as u64);
        }
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::MULTIPLES;

    #[test]
    fn they_are_the_multiples() {
        for (log, bits) in MULTIPLES.iter().enumerate() {
            assert!((0..64).all(|bit| (bits >> bit & 1 == 1) == (bit % (1 << log) == 0)), "of 2^{log}");
        }
    }
}
