//! Character classes of HTTP syntax.

use std::net::Ipv6Addr;

use crate::{decimal, swar};

/// Characters of field names, methods and transfer codings.
const TOKEN: u8 = 1;
/// Characters of host names.
const HOST: u8 = 2;

/// The classes of each byte.
const CLASSES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' => TOKEN | HOST,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'^' | b'`' | b'|' | b'~' => {
                TOKEN
            }
            _ => 0,
        };
        byte += 1;
    }
    table
};

/// Maps ASCII letters to lower case.
const LOWER: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).to_ascii_lowercase();
        byte += 1;
    }
    table
};

/// Compares two names, ignoring ASCII case.
#[inline]
pub(super) fn eq_ignore_case(a: &[u8], b: &[u8]) -> bool {
    let lower = |byte: &u8| LOWER[usize::from(*byte)];
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| lower(a) == lower(b))
}

/// Whether `bytes` is not empty and all bytes are in a class.
///
/// Does not return early, which would cost more than it saves.
#[inline]
fn all(bytes: &[u8], class: u8) -> bool {
    !bytes.is_empty()
        && bytes.iter().fold(class, |still, byte| still & CLASSES[usize::from(*byte)]) != 0
}

pub(super) fn is_token_byte(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & TOKEN != 0
}

pub(super) fn is_token(bytes: &[u8]) -> bool {
    all(bytes, TOKEN)
}

/// Whether all bytes are allowed in a request target. A fragment is never sent to a server.
pub(super) fn is_target(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#')
}

/// Whether all bytes are printable ASCII characters or tabs.
fn is_text(bytes: &[u8]) -> bool {
    // Tabs are rare, so they take the slow path.
    !swar::any(bytes, swar::not_text)
        || bytes.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

/// Whether a field value is transmitted unchanged: text without surrounding whitespace.
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_space(bytes.first()) && !is_space(bytes.last()) && is_text(bytes)
}

/// Strips the whitespace that HTTP allows around a value.
pub(super) fn trim(bytes: &[u8]) -> &[u8] {
    let mut bytes = trim_start(bytes);
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

pub(super) fn trim_start(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

/// Whether `text` is `host` or `host:port`.
///
/// Stricter than the standard, which allows characters that no real host name has and that parsers
/// interpret differently.
pub(super) fn is_authority(text: &str) -> bool {
    let (host_is_fine, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((address, port)) = rest.split_once(']') else { return false };
            (address.parse::<Ipv6Addr>().is_ok(), port.as_bytes())
        }
        None => {
            let text = text.as_bytes();
            let (name, port) = text.split_at(swar::find(text, swar::colons));
            (all(name, HOST), port)
        }
    };
    host_is_fine && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port))
}

fn is_port(digits: &[u8]) -> bool {
    digits.len() <= 5 && decimal::parse(digits).is_some_and(|port| port <= u16::MAX.into())
}
