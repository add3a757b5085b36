//! Secrets that are known by their shape: the beginnings that issuers give to their tokens, and
//! forms that span several words.

use std::ops::Range;

use super::prefixes::{is_of_words, prefixes};

/// The maximum length of tokens with a known structure, in bytes.
const MAX_PART: usize = 200;
/// The two dots of a JWT are searched for in this many bytes.
const MAX_JWT: usize = 8192;

/// The minimum number of characters after a known prefix.
const LEAST: usize = 12;

/// Whether a text contains a private key. Its lines are not distinguished: none of the text is kept.
pub(super) fn is_private_key(text: &str) -> bool {
    const MARKS: [&str; 5] = [
        "PRIVATE KEY-----",
        "PRIVATE KEY BLOCK-----",
        "PRIVATE KEY ----",
        "PuTTY-User-Key-File-",
        "-----BEGIN OpenVPN Static key",
    ];
    MARKS.iter().any(|mark| text.contains(mark))
}

/// Whether a text begins with a token, although it follows a letter or digit: its prefix occurs in no word.
pub(super) fn begins_with_unmistakable_token(text: &str, before: u8) -> bool {
    let is_marked = |prefix: &str| {
        let has_sign = prefix.bytes().any(|b| matches!(b, b'_' | b'-' | b'.' | b'$' | b'~'));
        let is_long = if has_sign { prefix.len() >= 4 } else { prefix.len() >= 8 };
        is_long && !is_of_words(prefix)
    };
    // This is tried at every position; most words are too short.
    text.len() >= 4 + LEAST
        && (prefixes(text).any(|prefix| is_marked(prefix) && is_token_of(prefix, text))
            || (!is_upper(&before)
                && FIXED.iter().any(|one| one.of == Of::Upper && one.fits(text))))
}

/// Whether a text is a prefix and the random characters of a token. Words of a sentence or an identifier
/// (`npm_config_registry`) have no digits in long parts.
fn is_token_of(prefix: &str, text: &str) -> bool {
    let Some(rest) = text.strip_prefix(prefix).filter(|rest| rest.len() >= LEAST) else {
        return false;
    };
    if rest.bytes().take(LEAST).any(|b| b == b'/' || b == b'=') {
        return false;
    }
    let mut parts = beginning_of(rest, MAX_PART).split(['-', '_', '.', '/', '=', '~', '+']);
    let is_ordinary = is_of_words(prefix);
    parts.any(|part| {
        let has = |is: fn(&u8) -> bool| part.bytes().any(|b| is(&b));
        let mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
        (part.len() >= 6 && has(u8::is_ascii_digit)) || (part.len() >= 16 && mixed && !is_ordinary)
    })
}

/// Whether a text begins with a token in an issuer's known format.
pub(super) fn begins_with_token(text: &str) -> bool {
    let signed = text.starts_with("eyJ")
        && text.len() >= 32
        && memchr::memchr_iter(b'.', beginning_of(text, MAX_JWT).as_bytes()).nth(1).is_some();
    signed
        || prefixes(text).any(|prefix| is_token_of(prefix, text))
        || FIXED.iter().any(|shape| shape.fits(text))
        || in_parts(beginning_of(text, MAX_PART))
}

/// Tokens of a fixed length.
struct Fixed {
    begin: &'static str,
    /// The number of characters after the prefix.
    length: usize,
    of: Of,
}

/// The characters of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Upper,
    Hex,
    Alphanumeric,
}

impl Of {
    fn has(self, byte: u8) -> bool {
        match self {
            Of::Upper => is_upper(&byte),
            Of::Hex => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            Of::Alphanumeric => byte.is_ascii_alphanumeric(),
        }
    }
}

const FIXED: [Fixed; 20] = [
    // AWS
    Fixed { begin: "ABIA", length: 16, of: Of::Upper },
    Fixed { begin: "ACCA", length: 16, of: Of::Upper },
    // ElevenLabs
    Fixed { begin: "sk_", length: 48, of: Of::Hex },
    // SonarQube
    Fixed { begin: "squ_", length: 40, of: Of::Hex },
    Fixed { begin: "sqp_", length: 40, of: Of::Hex },
    Fixed { begin: "sqa_", length: 40, of: Of::Hex },
    // Octopus Deploy
    Fixed { begin: "API-", length: 26, of: Of::Upper },
    // NuGet, crates.io
    Fixed { begin: "oy2", length: 43, of: Of::Alphanumeric },
    Fixed { begin: "cio", length: 32, of: Of::Alphanumeric },
    // EasyPost
    Fixed { begin: "EZAK", length: 54, of: Of::Alphanumeric },
    Fixed { begin: "EZTK", length: 54, of: Of::Alphanumeric },
    // Infracost
    Fixed { begin: "ico-", length: 32, of: Of::Alphanumeric },
    // ClickHouse Cloud
    Fixed { begin: "4b1d", length: 38, of: Of::Alphanumeric },
    Fixed { begin: "AKIA", length: 16, of: Of::Upper },
    Fixed { begin: "ASIA", length: 16, of: Of::Upper },
    // Twilio
    Fixed { begin: "SK", length: 32, of: Of::Hex },
    // Mailgun
    Fixed { begin: "key-", length: 32, of: Of::Hex },
    // Vault before 1.10
    Fixed { begin: "s.", length: 24, of: Of::Alphanumeric },
    Fixed { begin: "b.", length: 24, of: Of::Alphanumeric },
    // Airtable
    Fixed { begin: "pat", length: 14, of: Of::Alphanumeric },
];

impl Fixed {
    fn fits(&self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(self.begin).map(str::as_bytes) else { return false };
        let next = rest.get(self.length);
        let ends = next.is_none_or(|next| match self.of {
            Of::Upper => !is_upper(next),
            Of::Hex | Of::Alphanumeric => !next.is_ascii_alphanumeric(),
        });
        // Airtable's are followed by a dot and 64 digits; alone, the beginning is a word.
        let whole = self.begin != "pat"
            || rest
                .get(self.length + 1..)
                .is_some_and(|rest| rest.len() >= 64 && next == Some(&b'.'));
        rest.get(..self.length).is_some_and(|part| part.iter().all(|byte| self.of.has(*byte)))
            && ends
            && whole
    }
}

/// At most this many bytes of a text: tokens are looked for at every place of a word, and looking
/// at all of the rest each time would take time quadratic in its length.
fn beginning_of(text: &str, most: usize) -> &str {
    text.get(..most).unwrap_or(text)
}

/// Tokens without a prefix, recognized by the lengths of their parts.
fn in_parts(text: &str) -> bool {
    let of_part =
        |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    // Microsoft Entra: three characters, a digit, `Q~`, and 31 to 34 further characters.
    let entra = text.get(3..6).is_some_and(|middle| {
        middle.ends_with("Q~") && middle.starts_with(|c: char| c.is_ascii_digit())
    }) && (37..=40).contains(&text.len());
    let parts: Vec<&str> = text.splitn(4, '.').collect();
    let dotted = match parts.as_slice() {
        // HCP Terraform
        [id, "atlasv1", secret] => id.len() == 14 && secret.len() >= 60,
        // Bots of Discord: the id in base64, a time, a signature
        [id, time, signature] => {
            let lengths = (24..=28).contains(&id.len()) && time.len() == 6;
            lengths && (27..=38).contains(&signature.len()) && id.starts_with(['M', 'N', 'O'])
        }
        _ => false,
    };
    // 1Password: `A3-XXXXXX-XXXXXX-XXXXX-XXXXX-XXXXX-XXXXX`
    let account = text.starts_with("A3-")
        && text.len() >= 37
        && text.bytes().all(|b| is_upper(&b) || b == b'-')
        && text.bytes().filter(|b| *b == b'-').count() >= 5;
    entra || account || (dotted && parts.iter().all(|part| of_part(part)))
}

fn is_upper(byte: &u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

/// Secrets that span more than one word.
pub(super) fn spanning(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    telegram(text).chain(webhooks(text))
}

/// Telegram's bot tokens: `123456789:` and 35 characters.
fn telegram(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    const SECRET: usize = 35;
    let of_secret = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let bytes = text.as_bytes();
    memchr::memchr_iter(b':', bytes).filter_map(move |colon| {
        let before = bytes.get(..colon)?;
        let digits = before.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let after = bytes.get(colon + 1..)?;
        let secret = after.iter().take_while(|b| of_secret(b)).count();
        let fits = (6..=12).contains(&digits) && secret == SECRET;
        fits.then(|| colon - digits..colon + 1 + secret)
    })
}

/// URLs whose path is the secret.
fn webhooks(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    const PATHS: [&str; 4] = [
        "hooks.slack.com/services/",
        "hooks.slack.com/workflows/",
        "/api/webhooks/",
        "webhook.office.com/",
    ];
    PATHS.iter().flat_map(move |path| {
        text.match_indices(path).filter_map(move |(at, path)| {
            let begin = at + path.len();
            let rest = text.get(begin..)?;
            let secret =
                rest.split(|c: char| c.is_whitespace() || "\"'\\<>)]}".contains(c)).next()?;
            (secret.len() >= 8).then(|| begin..begin + secret.len())
        })
    })
}
