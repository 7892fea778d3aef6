//! # Numbers as the kernel's files and people write them
//!
//! The one reader of digits. Units: none. Locks: none. Cost: a step for each digit.

/// A number in decimal: digits, at least one and nothing else; `None` also for what has no room.
#[must_use]
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, &byte| {
        let digit = char::from(byte).to_digit(10)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

/// The number at the beginning, behind blanks, in base 10 or 16; 0 where there is none.
#[must_use]
pub fn leading(text: &[u8], base: u32) -> u64 {
    let digits = text.trim_ascii_start().iter().map_while(|&byte| char::from(byte).to_digit(base));
    digits.fold(0, |number, digit| number.wrapping_mul(base.into()).wrapping_add(digit.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_digits_and_nothing_else() {
        for (text, number) in [("0", 0), ("7", 7), ("0042", 42), ("18446744073709551615", u64::MAX)] {
            assert_eq!(decimal(text.as_bytes()), Some(number));
        }
        for text in ["", " 1", "1 ", "-1", "+1", "max", "0x1", "1.0", "18446744073709551616", "\u{0663}"] {
            assert_eq!(decimal(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_leading_number_ends_where_its_digits_do() {
        assert_eq!((leading(b"\t 42 kB", 10), leading(b"  00ff,1", 16), leading(b"x", 10)), (42, 255, 0));
    }
}
