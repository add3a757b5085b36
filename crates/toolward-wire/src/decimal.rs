//! Formatting and parsing of unsigned decimal integers.

/// The decimal digits of a number, without an allocation.
pub(crate) struct Digits {
    bytes: [u8; 20],
    from: u8,
}

impl Digits {
    pub(crate) fn of(mut number: u64) -> Digits {
        let mut digits = Digits { bytes: [b'0'; 20], from: 20 };
        for place in digits.bytes.iter_mut().rev() {
            *place = b'0' + (number % 10) as u8;
            number /= 10;
            digits.from -= 1;
            if number == 0 {
                break;
            }
        }
        digits
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(usize::from(self.from)..).unwrap_or_default()
    }
}

/// Parses decimal digits. Unlike the standard parser, it does not accept a sign.
pub(crate) fn parse(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_and_parsed_like_the_standard_library_does() {
        let mut number = u64::MAX;
        loop {
            for near in [number.saturating_sub(1), number, number.saturating_add(1)] {
                let text = near.to_string();
                assert_eq!(Digits::of(near).bytes(), text.as_bytes());
                assert_eq!(parse(text.as_bytes()), Some(near));
            }
            if number == 0 {
                break;
            }
            number /= 10;
        }
        assert_eq!(parse(b"0007"), Some(7));
        for not in ["", "+7", "-7", " 7", "7 ", "1e2", "18446744073709551616", "\u{661}"] {
            assert_eq!(parse(not.as_bytes()), None, "{not}");
        }
    }
}
