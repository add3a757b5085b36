//! What is recorded of text that others wrote: arguments, and names that may hold anything.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// Larger arguments are recorded by their hash alone.
const MOST_BYTES: usize = 64 << 10;

/// What of a call's arguments is recorded.
#[derive(Debug, Clone, Default)]
pub enum Arguments {
    Nothing,
    #[default]
    Hash,
    /// Values without what looks like a secret, and their hash.
    Redacted(Redact),
    /// Values as they are, and their hash.
    Full,
}

/// What is left out, beside what always is: globs on keys, and on words in values.
#[derive(Debug, Clone, Default)]
pub struct Redact(Vec<Glob>);

impl Redact {
    pub fn new(patterns: &[String]) -> Redact {
        let folded = patterns.iter().map(|text| Glob::new(text, Case::Insensitive));
        Redact(folded.collect())
    }

    fn fits(&self, word: &str) -> bool {
        !self.0.is_empty() && {
            let word = word.to_ascii_lowercase();
            self.0.iter().any(|pattern| pattern.matches(&word))
        }
    }

    /// The value without its secrets.
    pub fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.text(&text).into_owned().into(),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => {
                let members = members.into_iter().map(|(key, value)| {
                    let secret = names_a_secret(&key) || self.fits(&key);
                    let value = if secret { REDACTED.into() } else { self.value(value) };
                    // A key that says that its value is a secret is none itself.
                    (Redact::default().text(&key).into_owned(), value)
                });
                Value::Object(members.collect())
            }
            other => other,
        }
    }

    /// The text without what looks like a secret.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if text.contains("PRIVATE KEY-----") {
            return REDACTED.into();
        }
        let secrets = self.secrets(text);
        if secrets.is_empty() {
            return text.into();
        }
        let (mut clean, mut kept) = (String::new(), 0);
        for secret in secrets {
            clean.push_str(text.get(kept..secret.start).unwrap_or_default());
            clean.push_str(REDACTED);
            kept = secret.end;
        }
        (clean + text.get(kept..).unwrap_or_default()).into()
    }

    /// Where secrets stand in a text, in order and apart from each other.
    fn secrets(&self, text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = users(text).collect();
        let mut after_scheme = false;
        for (begin, word) in words(text) {
            let bare = word.trim_matches(['.', '=', '-', '_', '/', '+']);
            if (after_scheme && bare.len() >= 8) || is_token(bare) || self.fits(bare) {
                found.push(begin..begin + word.len());
            }
            after_scheme = ["bearer", "basic"].iter().any(|s| bare.eq_ignore_ascii_case(s));
        }
        found.sort_by_key(|place| place.start);
        let mut apart: Vec<Range<usize>> = Vec::new();
        for place in found {
            match apart.last_mut() {
                Some(last) if place.start < last.end => last.end = last.end.max(place.end),
                _ => apart.push(place),
            }
        }
        apart
    }
}

/// Names and passwords in addresses: `https://user:password@host`.
fn users(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    text.match_indices("://").filter_map(|(at, scheme)| {
        let begin = at + scheme.len();
        let rest = text.get(begin..)?;
        let authority = rest.split(|c: char| c == '/' || c.is_whitespace()).next()?;
        let (user, _) = authority.rsplit_once('@')?;
        user.contains(':').then(|| begin..begin + user.len())
    })
}

impl Arguments {
    /// The members of a record: `arguments`, and `arguments_hash` where that holds the values.
    pub(crate) fn facts(
        &self,
        facts: &mut crate::record::Facts,
        given: toolward_wire::Arguments<'_>,
    ) {
        let bytes = given.raw().bytes();
        let value = match self {
            Arguments::Nothing => return facts.json("arguments", "null"),
            Arguments::Hash => return facts.text("arguments", &super::digest(bytes)),
            _ if bytes.len() > MOST_BYTES => return facts.text("arguments", &super::digest(bytes)),
            Arguments::Redacted(redact) => redact.value(given.to_json()),
            Arguments::Full => given.to_json(),
        };
        facts.json("arguments", &value.to_string());
        facts.text("arguments_hash", &super::digest(bytes));
    }
}

/// What tokens are made of.
fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '=' | '~')
}

/// Words of characters that tokens are made of, with their places.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split(|c: char| !is_of_token(c)).filter_map(move |word| {
        let begin = at;
        // Every separator is one character, whose length the text tells.
        at += word.len();
        at += text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        (!word.is_empty()).then_some((begin, word))
    })
}

/// Whether a member's name says that its value is a secret.
fn names_a_secret(key: &str) -> bool {
    const NAMES: [&str; 15] = [
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "apikey",
        "authorization",
        "cookie",
        "credential",
        "privatekey",
        "accesskey",
        "signingkey",
        "encryptionkey",
        "connectionstring",
        "sessionid",
    ];
    let plain: String =
        key.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
    // `max_tokens` and its like are numbers of tokens.
    let counts = ["tokens", "tokencount", "tokenlimit", "tokenizer"];
    NAMES.iter().any(|name| plain.contains(name))
        && !(plain.contains("token") && counts.iter().any(|end| plain.ends_with(end)))
        || matches!(&*plain, "pwd" | "pin" | "otp" | "auth" | "pass")
}

/// Whether a word has the shape that issuers give to their tokens.
fn is_token(word: &str) -> bool {
    const BEGINNINGS: [&str; 30] = [
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "sk-",
        "sk_live_",
        "sk_test_",
        "rk_live_",
        "rk_test_",
        "whsec_",
        "xoxb-",
        "xoxp-",
        "xoxa-",
        "xoxr-",
        "xoxs-",
        "xapp-",
        "npm_",
        "pypi-",
        "hf_",
        "dop_v1_",
        "shpat_",
        "ya29.",
        "SG.",
        "AIza",
        "lin_api_",
        "figd_",
        "ntn_",
    ];
    let long =
        |beginning: &&str| word.starts_with(*beginning) && word.len() >= beginning.len() + 12;
    let aws = |begin: &&str| {
        word.starts_with(*begin)
            && word.len() == 20
            && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
    };
    let signed = word.starts_with("eyJ") && word.len() >= 32 && word.matches('.').count() >= 2;
    signed || BEGINNINGS.iter().any(long) || ["AKIA", "ASIA"].iter().any(aws)
}

/// Names and ids that others chose, as far as a record needs them.
pub(crate) fn outside(text: &str) -> Cow<'_, str> {
    const MOST_CHARS: usize = 256;
    // Secrets are long words, or stand in addresses.
    let (mut run, mut longest) = (0, 0);
    for byte in text.bytes() {
        run = if is_of_token(byte.into()) { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    if longest < 8 && text.len() <= MOST_CHARS && !text.contains("://") {
        return text.into();
    }
    let short = match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => text.get(..end).unwrap_or_default(),
        None => text,
    };
    Redact::default().text(short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_known_by_their_keys_and_by_their_shape() {
        let redact = Redact::new(&["ssn".into(), "ACME-*".into()]);
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlc2ln";
        let given = json!({
            "path": "/srv/a.txt", "max_tokens": 100, "Api-Key": "x", "PASSWORD": {"a": 1}, "SSN": 1,
            "list": ["plain", format!("see {jwt}, then"), "use ghp_0123456789abcdefABCDEF01 now"],
            "header": "Authorization: Bearer abcdefgh12345678",
            "url": "postgres://me:hunter2@db.example/x?a=b",
            "aws": "AKIAIOSFODNN7EXAMPLE", "code": "acme-77",
            "pem": "-----BEGIN RSA PRIVATE KEY-----\nMII",
            "ghp_0123456789abcdefABCDEF01": 1,
        });
        let clean = redact.value(given);
        assert_eq!(
            clean,
            json!({
                "path": "/srv/a.txt", "max_tokens": 100, "Api-Key": REDACTED, "PASSWORD": REDACTED,
                "SSN": REDACTED,
                "list": ["plain", "see [redacted], then", "use [redacted] now"],
                "header": "Authorization: Bearer [redacted]",
                "url": "postgres://[redacted]@db.example/x?a=b",
                "aws": REDACTED, "code": REDACTED, "pem": REDACTED, REDACTED: 1,
            })
        );
    }

    #[test]
    fn ordinary_text_stays() {
        let redact = Redact::default();
        for text in [
            "",
            "a sk- b",
            "naïve ünïcode — text, with: punctuation; and/or paths/like/this.txt",
            "https://example.com:8080/a@b",
            "basic idea",
            "skating",
            "2026-07-28T09:30:00Z",
        ] {
            assert_eq!(redact.text(text), text);
        }
    }
}
