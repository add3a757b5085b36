//! Which bytes may stand where.

use std::net::Ipv6Addr;

use crate::{decimal, swar};

/// The characters of names, methods and codings.
const TOKEN: u8 = 1;
/// The characters of hosts.
const HOST: u8 = 2;

/// What each byte may be part of.
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

/// Each byte, and upper case letters in lower case.
const LOWER: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).to_ascii_lowercase();
        byte += 1;
    }
    table
};

/// Whether two names are the same in any case.
#[inline]
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    let lower = |byte: &u8| LOWER[usize::from(*byte)];
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| lower(a) == lower(b))
}

/// Whether there are bytes, and all are of a class. Without early exits, which would cost more than
/// they save.
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

/// Characters that stand for themselves in a target. A fragment is for the client alone.
pub(super) fn is_target(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#')
}

/// Printable characters of ASCII, and tabs.
fn is_text(bytes: &[u8]) -> bool {
    // Tabs are so rare that they need not be fast.
    !swar::any(bytes, swar::not_text)
        || bytes.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

/// Whether a value arrives unchanged in a field: text without white space around it.
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_space(bytes.first()) && !is_space(bytes.last()) && is_text(bytes)
}

/// Without the white space that HTTP allows around a value.
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

/// `host` or `host:port`. The standard allows more in a name than any real host has; what is left
/// out here could only be read in two ways.
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
