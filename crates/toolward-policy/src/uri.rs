//! Resource URIs, brought to one spelling before they are compared (RFC 3986, section 6).

/// Why a URI is denied whatever the rules say: servers disagree about what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsafeUri {
    /// A `.` or `..` segment, also when written with `%2e`.
    DotSegment,
    /// `%2f` or `%5c`: a separator that some servers decode.
    EncodedSeparator,
    /// A backslash, a space, a control character, or a file's path that servers read differently.
    BadCharacter,
    /// A `%` without two hexadecimal digits behind it.
    BadEscape,
    /// Not a URI at all.
    NoScheme,
}

/// One spelling for URIs that servers take for the same resource: lower-case scheme and host, no
/// default or empty port, upper-case escapes and none that is not needed, no fragment, no empty
/// query, and for files no host `localhost` and three slashes.
pub fn normalise(uri: &str) -> Result<String, UnsafeUri> {
    let text = unescape(uri)?;
    let text = text.split('#').next().unwrap_or_default();
    let text = text.strip_suffix('?').unwrap_or(text);
    let Some((scheme, rest)) = text.split_once(':') else { return Err(UnsafeUri::NoScheme) };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.bytes().all(plain) {
        return Err(UnsafeUri::NoScheme);
    }
    let scheme = scheme.to_ascii_lowercase();
    let (authority, path) = match rest.strip_prefix("//") {
        None => (None, rest),
        Some(rest) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            (Some(authority), path)
        }
    };
    let segments = path.split('?').next().unwrap_or_default();
    if segments.split(['/', ':']).any(|segment| segment == "." || segment == "..") {
        return Err(UnsafeUri::DotSegment);
    }
    if scheme == "file" {
        let host = authority.unwrap_or_default().to_ascii_lowercase();
        let host = if host == "localhost" { String::new() } else { host };
        if segments.contains("//") || !segments.starts_with('/') {
            return Err(UnsafeUri::BadCharacter);
        }
        return Ok(format!("file://{host}{path}"));
    }
    let Some(authority) = authority else { return Ok(format!("{scheme}:{path}")) };
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (format!("{user}@"), host),
        None => (String::new(), authority),
    };
    let host = host.to_ascii_lowercase();
    let default = match scheme.as_str() {
        "http" | "ws" => ":80",
        "https" | "wss" => ":443",
        _ => ":",
    };
    let host = host.strip_suffix(default).or_else(|| host.strip_suffix(':')).unwrap_or(&host);
    let path = if path.is_empty() && default != ":" { "/" } else { path };
    Ok(format!("{scheme}://{user}{host}{path}"))
}

/// Escapes in one spelling, and none for what needs none.
fn unescape(uri: &str) -> Result<String, UnsafeUri> {
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
        let Some(digits) = digits else { return Err(UnsafeUri::BadEscape) };
        rest = &rest[2..];
        let byte = u8::from_str_radix(digits, 16).map_err(|_| UnsafeUri::BadEscape)?;
        match byte {
            b'/' | b'\\' => return Err(UnsafeUri::EncodedSeparator),
            0..=0x1f | 0x7f => return Err(UnsafeUri::BadCharacter),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            _ => {
                text.push('%');
                text.push_str(&digits.to_ascii_uppercase());
            }
        }
    }
    Ok(text)
}
