//! Which bytes may stand where.

use std::net::Ipv6Addr;

/// The characters of names, methods and codings.
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(
            byte as u8,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_'
                | b'`' | b'|' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z'
        );
        byte += 1;
    }
    table
};

pub(super) fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| is_token_byte(*byte))
}

/// Characters that stand for themselves in a target. A fragment is for the client alone.
pub(super) fn is_target(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#')
}

/// Without the white space that HTTP allows around a value.
pub(super) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
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
            (address.parse::<Ipv6Addr>().is_ok(), port)
        }
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let fits =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            (!name.is_empty() && name.bytes().all(fits), port)
        }
    };
    host_is_fine && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u16>().is_ok()
}
