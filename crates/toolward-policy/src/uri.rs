//! Resource URIs, normalized before comparison (RFC 3986, section 6).

/// Why a URI is denied regardless of the rules: servers disagree about its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsafeUri {
    /// A `.` or `..` segment, including `%2e`, in the path, the query or the fragment.
    DotSegment,
    /// `%2f` or `%5c`: a separator that some servers decode.
    EncodedSeparator,
    /// A backslash, a space, a control character, or a file path that servers interpret
    /// differently.
    BadCharacter,
    /// A host that servers interpret differently: a file on another host, or for web addresses a user, a missing or
    /// internationalized host, or an odd port.
    BadAuthority,
    /// A `%` that is not followed by two hexadecimal digits.
    BadEscape,
    /// Not a URI at all.
    NoScheme,
}

/// One spelling for URIs that servers treat as the same resource: lower-case scheme and host, no
/// default or empty port, upper-case escapes and no unnecessary ones, no fragment, no empty query,
/// and for files no host `localhost` and three slashes.
pub fn normalise(uri: &str) -> Result<String, UnsafeUri> {
    let text = unescape(uri)?;
    // Some servers take everything after the scheme as a path.
    if text.split(['/', ':', '?', '#', '&', '=']).any(|part| part == "." || part == "..") {
        return Err(UnsafeUri::DotSegment);
    }
    let (text, fragment) = text.split_once('#').unwrap_or((&text, ""));
    if fragment.contains(['/', '%']) {
        return Err(UnsafeUri::BadCharacter);
    }
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
    if scheme == "file" {
        // Many servers ignore the host.
        if !authority.is_none_or(|host| host.is_empty() || host.eq_ignore_ascii_case("localhost")) {
            return Err(UnsafeUri::BadAuthority);
        }
        if segments.contains("//") || !segments.starts_with('/') {
            return Err(UnsafeUri::BadCharacter);
        }
        return Ok(format!("file://{path}"));
    }
    if matches!(scheme.as_str(), "http" | "https" | "ws" | "wss") {
        check_web_authority(authority)?;
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

/// Clients and servers of the web repair odd authorities, each in its own way.
fn check_web_authority(authority: Option<&str>) -> Result<(), UnsafeUri> {
    let authority = authority.filter(|text| !text.is_empty()).ok_or(UnsafeUri::BadAuthority)?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, ""),
    };
    let odd_port = port.starts_with('0') || !port.bytes().all(|b| b.is_ascii_digit());
    let odd_host = host.is_empty() || host.ends_with('.') || host.contains('@') || !host.is_ascii();
    match odd_port || odd_host || host.contains('%') {
        true => Err(UnsafeUri::BadAuthority),
        false => Ok(()),
    }
}

/// The names that a resource template expands to, as a pattern: every expression may be anything.
pub(crate) fn template_pattern(template: &str) -> String {
    let (mut pattern, mut rest) = (String::new(), template);
    let literal = |text: &str, pattern: &mut String| {
        for c in text.chars() {
            match c {
                '*' | '?' | '[' => pattern.extend(['[', c, ']']),
                c => pattern.push(c),
            }
        }
    };
    while let Some((before, expression)) = rest.split_once('{') {
        literal(before, &mut pattern);
        pattern.push('*');
        rest = expression.split_once('}').map_or("", |(_, after)| after);
    }
    literal(rest, &mut pattern);
    pattern
}

/// Normalizes escapes and decodes unnecessary ones.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_authorities_are_unsafe() {
        for uri in [
            "file://localhost:/secret/key",
            "file://localhost:80/secret/key",
            "file://localhost./secret/key",
            "file://@/secret/key",
            "file://:/secret/key",
            "file://user@localhost/secret/key",
            "file://127.0.0.1/secret/key",
            "file://[::1]/secret/key",
            "file://otherhost/secret/key",
            "https://user@host/a",
            "https://@host/a",
            "https://:@host/a",
            "https://host:0443/a",
            "https://host./a",
            "https:/host/a",
            "https:host/a",
            "https:///host/a",
            "https://ho\u{3002}st/a",
            "https://host:x/a",
        ] {
            assert_eq!(normalise(uri), Err(UnsafeUri::BadAuthority), "{uri}");
        }
        for (uri, expected) in [
            ("file:///a", "file:///a"),
            ("FILE://LocalHost/a", "file:///a"),
            ("https://Host:443/a", "https://host/a"),
            ("https://host:8443/a", "https://host:8443/a"),
            ("https://[::1]:8443/a", "https://[::1]:8443/a"),
            ("postgres://user@host/db/table", "postgres://user@host/db/table"),
        ] {
            assert_eq!(normalise(uri).as_deref(), Ok(expected), "{uri}");
        }
    }

    #[test]
    fn dot_segments_are_unsafe_wherever_they_are() {
        for uri in [
            "file:///pub/a?/../../secret",
            "file:///pub/a#/../../secret",
            "ok://pub/1#/../secret",
            "ok://pub/1?path=../secret",
            "ok://pub/1?path=%2e%2e",
        ] {
            assert_eq!(normalise(uri), Err(UnsafeUri::DotSegment), "{uri}");
        }
        assert_eq!(normalise("ok://pub/1#a/b"), Err(UnsafeUri::BadCharacter));
        assert_eq!(normalise("ok://pub/1#part-2").as_deref(), Ok("ok://pub/1"));
    }
}
