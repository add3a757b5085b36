//! Values of forms and queries.

/// Percent-encodes a value of a form.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'*' => {
                out.push(byte.into());
            }
            b' ' => out.push('+'),
            other => out += &format!("%{other:02X}"),
        }
        out
    })
}

/// A form, or the query of a URL.
pub(crate) fn form(parameters: &[(&str, &str)]) -> String {
    let pairs = parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// The parameters of a query. `None` if one of them is not valid, or occurs twice.
pub(crate) fn parameters(query: &str) -> Option<Vec<(String, String)>> {
    let mut all: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        if all.iter().any(|(known, _)| *known == name) {
            return None;
        }
        all.push((name, value));
    }
    Some(all)
}

fn decoded(text: &str) -> Option<String> {
    let (mut out, mut bytes) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                out.push(u8::try_from(high * 16 + low).ok()?);
            }
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_hold_any_text() {
        assert_eq!(encoded("a b&c=d/ü:~"), "a+b%26c%3Dd%2F%C3%BC%3A%7E");
        let query = form(&[("a", "x y&z=ü"), ("b", "")]);
        let read = parameters(&query).unwrap();
        assert_eq!(read, [("a".into(), "x y&z=ü".into()), ("b".into(), String::new())]);
        for bad in ["a=1&a=2", "a=%", "a=%zz", "a=%ff"] {
            assert_eq!(parameters(bad), None, "{bad}");
        }
    }
}
