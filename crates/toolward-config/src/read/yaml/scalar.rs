//! Plain scalars in the core schema of YAML 1.2: `no` and `on` are strings.

use std::borrow::Cow;

use granit_parser::ScalarStyle;

use crate::read::node::Value;

pub(super) fn resolve(text: Cow<'_, str>, style: ScalarStyle) -> Value<'_> {
    if !matches!(style, ScalarStyle::Plain) {
        return Value::Str(text);
    }
    match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        word => number(word).unwrap_or(Value::Str(text)),
    }
}

fn number<'t>(word: &str) -> Option<Value<'t>> {
    // Nearly all scalars are names, whose first character rules out a number.
    if !word.starts_with(['-', '+', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        return None;
    }
    let radix = |digits: &str, radix: u32| {
        let fits = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        fits.then(|| {
            i64::from_str_radix(digits, radix).map_or(Value::Float(f64::INFINITY), Value::Int)
        })
    };
    if let Some(digits) = word.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = word.strip_prefix("0o") {
        return radix(digits, 8);
    }
    let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
    match unsigned {
        ".inf" | ".Inf" | ".INF" => return Some(Value::Float(f64::INFINITY)),
        ".nan" | ".NaN" | ".NAN" if unsigned == word => return Some(Value::Float(f64::NAN)),
        _ => {}
    }
    if !is_decimal(unsigned) {
        return None;
    }
    if let Ok(value) = word.parse() {
        return Some(Value::Int(value));
    }
    if let Ok(value) = word.parse() {
        return Some(Value::UInt(value));
    }
    word.parse().ok().map(Value::Float)
}

/// `[0-9]+(\.[0-9]*)?` or `\.[0-9]+`, then an optional exponent.
fn is_decimal(word: &str) -> bool {
    let (mantissa, exponent) = match word.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (word, None),
    };
    let digits = |part: &str| part.bytes().all(|c| c.is_ascii_digit());
    let whole = match mantissa.split_once('.') {
        Some((before, after)) => {
            digits(before) && digits(after) && !(before.is_empty() && after.is_empty())
        }
        None => digits(mantissa) && !mantissa.is_empty(),
    };
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['-', '+']).unwrap_or(exponent));
    whole && exponent.is_none_or(|exponent| digits(exponent) && !exponent.is_empty())
}
