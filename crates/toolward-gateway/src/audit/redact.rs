//! Redaction of untrusted text for the audit log: arguments, and names that may contain anything.

mod assignments;
mod command_line;
mod names;
mod prefixes;
mod shapes;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;

use self::assignments::assigned;
use self::command_line::{Command, Secret, flags};
use self::names::{Meaning, is_number, meaning};
use self::shapes::{begins_with_token, begins_with_unmistakable_token, is_private_key, spanning};

/// Replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// The part of a call's arguments that is recorded.
#[derive(Debug, Clone, Default)]
pub enum Arguments {
    Nothing,
    #[default]
    Hash,
    /// Values with likely secrets redacted, and their hash.
    Redacted(Redact),
    /// Unredacted values, and their hash.
    Full,
}

/// Additional redaction patterns: globs on keys, and on words in values.
#[derive(Debug, Clone, Default)]
pub struct Redact(Vec<Glob>);

impl Redact {
    pub fn new(patterns: &[String]) -> Redact {
        let folded = patterns.iter().map(|text| Glob::new(text, Case::Insensitive));
        Redact(folded.collect())
    }

    /// Whether a value with this name is a secret.
    fn is_secret(&self, name: &str, value: &Value) -> bool {
        match meaning(name) {
            Meaning::Secret => true,
            Meaning::Tokens if !is_number(value) => true,
            Meaning::Tokens | Meaning::Ordinary => self.fits(name),
        }
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
                // A name and its value, as headers are sometimes written.
                let named = matches!(&items[..], [Value::String(name), value @ Value::String(_)]
                    if self.is_secret(name, value));
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
                        match names && self.is_secret(word, &REDACTED.into()) {
                            true => Some(Secret::Named),
                            false => command.secret(word),
                        }
                    });
                    self.value(item)
                };
                items.into_iter().enumerate().map(item).collect()
            }
            Value::Object(members) => {
                let names = NAMES.iter().filter_map(|name| members.get(*name)?.as_str());
                let names: Vec<String> = names.map(String::from).collect();
                let is_private_jwk = members.contains_key("kty");
                let members = members.into_iter().map(|(key, value)| {
                    let mut names = names.iter().filter(|_| VALUES.contains(&&*key));
                    let secret = self.is_secret(&key, &value)
                        || names.any(|name| self.is_secret(name, &value))
                        || (is_private_jwk && JWK_SECRETS.contains(&&*key));
                    let value = if secret { REDACTED.into() } else { self.value(value) };
                    // A key that marks its value as a secret is not a secret itself.
                    (Redact::default().text(&key).into_owned(), value)
                });
                Value::Object(members.collect())
            }
            other => other,
        }
    }

    /// The text with likely secrets redacted.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if is_private_key(text) {
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

    /// The ranges of secrets in a text, in order and without overlaps.
    fn secrets(&self, text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> =
            users(text).chain(assigned(text)).chain(spanning(text)).chain(flags(text)).collect();
        let mut scheme = None;
        for (begin, word) in words(text) {
            let bare = word.trim_matches(['.', '=', '-', '_', '/', '+']);
            let end = begin + word.len();
            if is_credential(text, scheme, bare, end) || self.fits(bare) {
                found.push(begin..end);
            } else if let Some(at) = token_in(word, escape_before(text, begin)) {
                found.push(begin + at..end);
            }
            let last = word.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
            let is_scheme = SCHEMES.iter().any(|scheme| last.eq_ignore_ascii_case(scheme));
            scheme = is_scheme.then_some(end - last.len());
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

/// Members that contain the name of a value, and members that contain the value.
const NAMES: [&str; 6] = ["name", "key", "header", "field", "Name", "Key"];
const VALUES: [&str; 6] = ["value", "values", "val", "content", "Value", "Values"];

/// Members of a JSON Web Key that are secret.
const JWK_SECRETS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// Authentication schemes, which precede a credential.
const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// Credentials in addresses: `https://user:password@host`, `https://TOKEN@host`.
fn users(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    text.match_indices("://").filter_map(|(at, sign)| {
        let begin = at + sign.len();
        let rest = text.get(begin..)?;
        let authority = rest.split(|c: char| c == '/' || c.is_whitespace()).next()?;
        let (user, _) = authority.rsplit_once('@')?;
        if user.contains(':') {
            return Some(begin..begin + user.len());
        }
        let (user, _) =
            authority.split(|c: char| "?#\"'`<>()[]{},;\\".contains(c)).next()?.rsplit_once('@')?;
        let scheme = text.get(..at)?;
        let is_http = scheme.ends_with("http") || scheme.ends_with("https");
        // With HTTP, a user without a password is usually a token; elsewhere, it is usually a name.
        let has = |is: fn(&u8) -> bool| user.bytes().any(|b| is(&b));
        let random = user.len() >= 16 && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
        (!user.is_empty() && (is_http || random)).then(|| begin..begin + user.len())
    })
}

/// Whether a character can be part of a token.
fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '=' | '~')
}

/// Words of characters that can be part of a token, with their positions.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split(|c: char| !is_of_token(c)).filter_map(move |word| {
        let begin = at;
        // Every separator is a single character, of one or more bytes.
        at += word.len();
        at += text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        (!word.is_empty()).then_some((begin, word))
    })
}

/// Whether a word is a credential because of the scheme in front of it, as in `Bearer x`. An ordinary word is one only
/// where a header's value is written: `basic knowledge` is not.
fn is_credential(text: &str, scheme: Option<usize>, word: &str, end: usize) -> bool {
    let Some(scheme) = scheme.filter(|_| word.len() >= 8) else { return false };
    let mut further = word.bytes().skip(1);
    if !word.bytes().all(|b| b.is_ascii_alphabetic()) || further.any(|b| b.is_ascii_uppercase()) {
        return true;
    }
    match text.get(..scheme).unwrap_or_default().trim_end_matches(' ').chars().next_back() {
        None => end == text.len(),
        Some(before) => matches!(before, '"' | '\'' | '`' | '=' | ':'),
    }
}

/// The start of a token in a word: at its beginning, after a character that is not a letter or digit, or
/// after an escape sequence of this length. Tokens that cannot be mistaken begin anywhere.
fn token_in(word: &str, escape: usize) -> Option<usize> {
    let bytes = word.as_bytes();
    (0..bytes.len()).find(|at| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        let begins = *at == escape || before.is_none_or(|before| !before.is_ascii_alphanumeric());
        word.get(*at..).is_some_and(|rest| match before {
            Some(before) if !begins => begins_with_unmistakable_token(rest, *before),
            _ => begins_with_token(rest),
        })
    })
}

/// The length of what belongs to an escape sequence at a word's beginning: `n` of `\n`, `3D` of `%3D`.
fn escape_before(text: &str, begin: usize) -> usize {
    let before = text.get(..begin).unwrap_or_default().chars().next_back();
    let first = text.get(begin..).unwrap_or_default().chars().next();
    match (before, first) {
        (Some('%'), _) => 2,
        (Some('\\'), Some('u')) => 5,
        (Some('\\'), Some('x')) => 3,
        (Some('\\'), Some(_)) => 1,
        _ => 0,
    }
}

/// Names and ids from outside, truncated and redacted for the audit log.
pub(crate) fn outside(text: &str) -> Cow<'_, str> {
    const MOST_CHARS: usize = 256;
    // Secrets are long words, or part of URLs, or follow their names.
    let (mut run, mut longest) = (0, 0);
    for byte in text.bytes() {
        run = if is_of_token(byte.into()) { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    if longest < 8 && text.len() <= MOST_CHARS && !text.contains(['=', ':', '>', '"', '\'']) {
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
