//! What is recorded of text that others wrote: arguments, and names that may hold anything.

mod shapes;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;

use self::shapes::{Command, Secret, begins_with_token, spanning};

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

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

    /// Whether what is called so is a secret.
    fn is_secret(&self, name: &str) -> bool {
        names_a_secret(name) || self.fits(name)
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
            Value::Array(items) => {
                // A name and its value, as headers are written now and then.
                let named = matches!(&items[..], [Value::String(name), Value::String(_)]
                    if self.is_secret(name));
                let mut command = Command::default();
                let mut announced: Option<Secret> = None;
                let item = |(at, item): (usize, Value)| {
                    let secret = match (announced.take(), &item) {
                        (Some(Secret::Next(kind)), Value::String(text)) => kind.is_secret(text),
                        (Some(Secret::Named), Value::String(_) | Value::Number(_)) => true,
                        _ => named && at == 1,
                    };
                    if secret {
                        return REDACTED.into();
                    }
                    // An argument list: a flag and its value are two items.
                    announced = item.as_str().and_then(|word| {
                        let names = word.starts_with('-') && !word.contains(['=', ' ']);
                        match names && self.is_secret(word) {
                            true => Some(Secret::Named),
                            false => command.secret(word),
                        }
                    });
                    self.value(item)
                };
                items.into_iter().enumerate().map(item).collect()
            }
            Value::Object(members) => {
                let named = NAMES.iter().any(|name| {
                    members.get(*name).and_then(Value::as_str).is_some_and(|n| self.is_secret(n))
                });
                let members = members.into_iter().map(|(key, value)| {
                    let secret = self.is_secret(&key) || (named && VALUES.contains(&&*key));
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
        let mut found: Vec<Range<usize>> =
            users(text).chain(assigned(text)).chain(spanning(text)).collect();
        let mut after_scheme = false;
        for (begin, word) in words(text) {
            let bare = word.trim_matches(['.', '=', '-', '_', '/', '+']);
            if (after_scheme && bare.len() >= 8) || self.fits(bare) {
                found.push(begin..begin + word.len());
            } else if let Some(at) = token_in(word) {
                found.push(begin + at..begin + word.len());
            }
            let last = word.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
            after_scheme = SCHEMES.iter().any(|scheme| last.eq_ignore_ascii_case(scheme));
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

/// Members that say how another one is called, and that hold what is called so.
const NAMES: [&str; 6] = ["name", "key", "header", "field", "Name", "Key"];
const VALUES: [&str; 6] = ["value", "values", "val", "content", "Value", "Values"];

/// What comes before a credential.
const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// Values that a text assigns to what is called like a secret: `PASSWORD=x`, `token: x`, `--token x`.
fn assigned(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut covered = 0;
    text.match_indices(['=', ':', ' ']).filter_map(move |(at, sign)| {
        // What is inside of a value already needs no further look.
        if at < covered {
            return None;
        }
        let before = text.get(..at)?.trim_end_matches(['"', '\'', '\\']);
        let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let begin = before.rfind(|c| !of_name(c)).map_or(0, |other| {
            other
                + before.get(other..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
        });
        let name = before.get(begin..)?;
        let flag = name.starts_with("--") && before.len() == at;
        if name.is_empty() || (sign == " " && !flag) || !names_a_secret(name) {
            return None;
        }
        let rest = text.get(at + 1..)?;
        let value = rest.trim_start_matches([' ', '"', '\'', '\\', '=']);
        let begin = at + 1 + (rest.len() - value.len());
        let plain = name.to_ascii_lowercase();
        // These hold several words, and the first of them may be no secret.
        let (value, begin) = match plain.contains("authorization") || plain.contains("cookie") {
            false => (
                value.split(|c: char| c.is_whitespace() || "&;,\"'\\)]}".contains(c)).next()?,
                begin,
            ),
            true => {
                let line = value.split(['\n', '\r', '"', '\'', '\\']).next()?.trim_end();
                let scheme = line.split(' ').next().filter(|word| word.len() < line.len());
                let scheme = scheme.filter(|word| word.chars().all(|c| c.is_ascii_alphabetic()));
                let skipped = scheme.map_or(0, |scheme| scheme.len() + 1);
                (line.get(skipped..)?, begin + skipped)
            }
        };
        covered = begin + value.len();
        (!value.is_empty()).then_some(begin..covered)
    })
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
    const WORDS: [&str; 22] = [
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
        "accountkey",
        "sharedkey",
        "bearer",
        "jwt",
        "csrf",
        "xsrf",
        "signature",
    ];
    let plain: String =
        key.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
    // `max_tokens` and its like are numbers of tokens.
    let counts = ["tokens", "tokencount", "tokenlimit", "tokenizer"];
    WORDS.iter().any(|name| plain.contains(name))
        && !(plain.contains("token") && counts.iter().any(|end| plain.ends_with(end)))
        || matches!(&*plain, "pwd" | "pin" | "otp" | "auth" | "pass" | "sig" | "sas")
        || plain.ends_with("dsn")
}

/// Where a token begins in a word: at its beginning, or behind what is no letter or digit.
fn token_in(word: &str) -> Option<usize> {
    let bytes = word.as_bytes();
    let inside = |at: &usize| at.checked_sub(1).and_then(|before| bytes.get(before));
    let begins = |at: &usize| inside(at).is_none_or(|before| !before.is_ascii_alphanumeric());
    let mut places = (0..bytes.len()).filter(begins);
    places.find(|at| word.get(*at..).is_some_and(begins_with_token))
}

/// Names and ids that others chose, as far as a record needs them.
pub(crate) fn outside(text: &str) -> Cow<'_, str> {
    const MOST_CHARS: usize = 256;
    // Secrets are long words, or stand in addresses, or behind what they are called.
    let (mut run, mut longest) = (0, 0);
    for byte in text.bytes() {
        run = if is_of_token(byte.into()) { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    if longest < 8 && text.len() <= MOST_CHARS && !text.contains(['=', ':']) {
        return text.into();
    }
    let short = match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => text.get(..end).unwrap_or_default(),
        None => text,
    };
    Redact::default().text(short)
}

#[cfg(test)]
mod tests;
