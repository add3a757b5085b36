//! Resource URIs, brought to one spelling before they are compared (RFC 3986, section 6).

/// Why a URI is denied whatever the rules say: servers disagree about what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsafeUri {
    /// A `.` or `..` segment, also when written with `%2e`.
    DotSegment,
    /// `%2f` or `%5c`: a separator that some servers decode.
    EncodedSeparator,
    /// A backslash, a space or a control character.
    BadCharacter,
    /// A `%` without two hexadecimal digits behind it.
    BadEscape,
}

/// Lower-case scheme and host, upper-case escapes, no escape for what needs none.
pub fn normalise(uri: &str) -> Result<String, UnsafeUri> {
    let mut text = String::with_capacity(uri.len());
    let mut rest = uri;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c == '\\' || c == ' ' || c.is_control() {
            return Err(UnsafeUri::BadCharacter);
        }
        if c != '%' {
            text.push(c);
            continue;
        }
        let digits = rest.get(..2).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(digits) = digits else {
            return Err(UnsafeUri::BadEscape);
        };
        rest = &rest[2..];
        let byte = u8::from_str_radix(digits, 16).map_err(|_| UnsafeUri::BadEscape)?;
        match byte {
            b'/' | b'\\' => return Err(UnsafeUri::EncodedSeparator),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            _ => {
                text.push('%');
                text.push_str(&digits.to_ascii_uppercase());
            }
        }
    }
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest.to_string()),
        None => return dot_free(text),
    };
    let rest = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let (user, host) = match authority.rsplit_once('@') {
                Some((user, host)) => (format!("{user}@"), host),
                None => (String::new(), authority),
            };
            format!("//{user}{}{path}", host.to_ascii_lowercase())
        }
    };
    dot_free(format!("{scheme}:{rest}"))
}

fn dot_free(uri: String) -> Result<String, UnsafeUri> {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let dotted = path.split(['/', ':']).any(|segment| segment == "." || segment == "..");
    if dotted { Err(UnsafeUri::DotSegment) } else { Ok(uri) }
}
