//! A minimal JSON reader that finds the value of a member. The input is not validated.

use memchr::memchr2;

/// The JSON of a member's value. Names are compared without unescaping them.
///
/// ```
/// use toolward_testkit::json::member;
///
/// assert_eq!(member(br#"{"a":{"id":1},"id":2}"#, "id"), Some(&b"2"[..]));
/// ```
pub fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut at = blank(object, 0);
    if object.get(at) != Some(&b'{') {
        return None;
    }
    at = blank(object, at + 1);
    while object.get(at) == Some(&b'"') {
        let key_end = string_end(object, at)?;
        let key = object.get(at + 1..key_end - 1)?;
        let colon = blank(object, key_end);
        let start = blank(object, colon + 1);
        let end = value_end(object, start)?;
        if key == name.as_bytes() {
            return object.get(start..end);
        }
        at = blank(object, end);
        if object.get(at) != Some(&b',') {
            return None;
        }
        at = blank(object, at + 1);
    }
    None
}

/// The content of a string member, without its quotes and not unescaped.
pub fn string<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    member(object, name)?.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// Appends text as a JSON string.
pub fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            byte => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn blank(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
        at += 1;
    }
    at
}

/// The offset after the string that starts at `start`.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        match bytes[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

fn value_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    let mut depth = 0u32;
    loop {
        match bytes.get(at)? {
            b'"' => at = string_end(bytes, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            // Part of a number or literal, or punctuation and whitespace inside a container.
            _ if depth > 0 => at += 1,
            _ => {
                let end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r');
                return Some(bytes[at..].iter().position(end).map_or(bytes.len(), |n| at + n));
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_at_their_own_level() {
        let object = br#" { "a" : "x\"}" , "b":[{"id":1}, "]"], "id" : 17 ,"e":{}, "n":null } "#;
        assert_eq!(member(object, "a"), Some(&br#""x\"}""#[..]));
        assert_eq!(string(object, "a"), Some(&br#"x\"}"#[..]));
        assert_eq!(member(object, "b"), Some(&br#"[{"id":1}, "]"]"#[..]));
        assert_eq!(member(object, "id"), Some(&b"17"[..]));
        assert_eq!(member(object, "e"), Some(&b"{}"[..]));
        assert_eq!(member(object, "n"), Some(&b"null"[..]));
        assert_eq!(member(object, "x"), None);
    }

    #[test]
    fn truncated_objects_have_no_members() {
        let whole = br#"{"a":{"b":[1,"\\"]},"id":"x"}"#;
        assert_eq!(member(whole, "id"), Some(&br#""x""#[..]));
        for length in 0..whole.len() - 1 {
            assert_eq!(member(&whole[..length], "id"), None, "{length}");
        }
        for odd in [&b""[..], b"[]", b"17", b"{", b"{}", b"\"id\"", b"{\"id\"", b"{\"id\":"] {
            assert_eq!(member(odd, "id"), None);
        }
    }

    #[test]
    fn quoted_text_can_be_parsed() {
        let text = "a\"b\\c\nd\u{1}é";
        let mut out = Vec::new();
        quote(text.as_bytes(), &mut out);
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }
}
