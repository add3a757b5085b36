//! Numbers as written, and whether every reader gets the same value.
//!
//! Conditions evaluate numbers as 64-bit integers or doubles, but the server gets the digits that
//! were sent and may read them with more precision: `100.00000000000000001` is 100 as a double. A
//! condition that reads such a number fails to evaluate.

/// How a JSON number is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// An integer that is exact as a 64-bit integer and as a double.
    Integer,
    /// An integer that is exact as a 64-bit integer, and not as a double.
    WideInteger,
    /// A double whose shortest decimal form has the value that was written.
    Double,
    /// Neither.
    Inexact,
}

impl Precision {
    /// The precision of a number as written in JSON.
    ///
    /// ```
    /// use toolward_policy::number::Precision;
    ///
    /// assert_eq!(Precision::of("1.50"), Precision::Double);
    /// assert_eq!(Precision::of("100.00000000000000001"), Precision::Inexact);
    /// ```
    pub fn of(text: &str) -> Precision {
        let is_integer = !text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
        let integer = text.parse::<i128>().ok().filter(|_| is_integer && text != "-0");
        if let Some(integer) = integer
            && (i64::MIN.into()..=u64::MAX.into()).contains(&integer)
        {
            // Both conversions saturate or round; a value that survives the round trip is exact.
            return match (integer as f64) as i128 == integer {
                true => Precision::Integer,
                false => Precision::WideInteger,
            };
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && same_value(text, &format!("{number:e}")) => {
                Precision::Double
            }
            _ => Precision::Inexact,
        }
    }
}

fn same_value(one: &str, other: &str) -> bool {
    matches!((Decimal::parse(one), Decimal::parse(other)), (Some(one), Some(other)) if one == other)
}

/// A decimal number: `0.DIGITS` times ten to the power of the exponent.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    /// Without zeros at either end; empty for zero.
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    /// `None` if the text is not a number or its exponent is too large.
    fn parse(text: &str) -> Option<Decimal> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole.as_bytes(), fraction.as_bytes()].concat();
        if all.is_empty() || !all.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let first = all.iter().position(|digit| *digit != b'0');
        let Some(first) = first else {
            // Zero has no sign and no exponent.
            return Some(Decimal { negative: false, digits: Vec::new(), exponent: 0 });
        };
        let last = all.iter().rposition(|digit| *digit != b'0')?;
        let exponent: i64 = exponent.parse().ok()?;
        let point = i64::try_from(whole.len()).ok()?.checked_sub(i64::try_from(first).ok()?)?;
        let exponent = exponent.checked_add(point)?;
        let digits = all.get(first..=last)?.to_vec();
        Some(Decimal { negative, digits, exponent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_exact_if_its_shortest_form_has_the_same_value() {
        for (text, precision) in [
            ("0", Precision::Integer),
            ("-7", Precision::Integer),
            ("9007199254740992", Precision::Integer),
            ("9007199254740993", Precision::WideInteger),
            ("9223372036854775807", Precision::WideInteger),
            ("-9223372036854775808", Precision::Integer),
            ("18446744073709551615", Precision::WideInteger),
            ("18446744073709551616", Precision::Inexact),
            ("-9223372036854775809", Precision::Inexact),
            ("100000000000000000000", Precision::Double),
            ("100000000000000000001", Precision::Inexact),
            ("-0", Precision::Double),
            ("0.1", Precision::Double),
            ("1.50", Precision::Double),
            ("1e2", Precision::Double),
            ("1E+2", Precision::Double),
            ("0.0001e6", Precision::Double),
            ("100.0", Precision::Double),
            ("-0.0e99999999999999999999", Precision::Double),
            ("1.7976931348623157e308", Precision::Double),
            ("5e-324", Precision::Double),
            ("100.00000000000000001", Precision::Inexact),
            ("-100.00000000000000001", Precision::Inexact),
            ("99.99999999999999999999", Precision::Inexact),
            ("10000000000000000001e-17", Precision::Inexact),
            ("0.1000000000000000055511151231257827", Precision::Inexact),
            ("9007199254740993.0", Precision::Inexact),
            ("9007199254740993e0", Precision::Inexact),
            ("1e400", Precision::Inexact),
            ("1e-400", Precision::Inexact),
            ("1e99999999999999999999", Precision::Inexact),
            ("1e-99999999999999999999", Precision::Inexact),
        ] {
            assert_eq!(Precision::of(text), precision, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_double_is_exact_in_the_forms_that_programs_write(bits: u64) {
            let number = f64::from_bits(bits);
            proptest::prop_assume!(number.is_finite());
            for text in [format!("{number:?}"), format!("{number:e}"), format!("{number:E}")] {
                proptest::prop_assert_ne!(Precision::of(&text), Precision::Inexact);
            }
        }
    }
}
