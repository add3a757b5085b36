//! Redacts comments of a configuration file.
//!
//! Prose is shown unchanged. Masked are repeated secrets of the file, values of commented-out settings, and words
//! that look like credentials.

use std::collections::HashSet;

use super::MASK;

/// Keys whose values are secrets, or lists and maps of them.
const SECRET_KEYS: [&str; 12] = [
    "args",
    "env",
    "exec",
    "headers",
    "headers_for",
    "jwks",
    "oauth",
    "pat",
    "sinks",
    "store",
    "tokens",
    "url",
];
/// Parts of names under which people keep secrets.
const SECRET_WORDS: [&str; 14] = [
    "auth",
    "bearer",
    "cookie",
    "cred",
    "csrf",
    "dsn",
    "jwt",
    "key",
    "passphrase",
    "passw",
    "private",
    "secret",
    "signature",
    "token",
];
/// How credentials begin.
const PREFIXES: [&str; 19] = [
    "AGE-SECRET-KEY-",
    "AKIA",
    "ASIA",
    "AIza",
    "dp.pt.",
    "eyJ",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hvs.",
    "npm_",
    "pypi-",
    "sha256:",
    "sk-",
    "sk_",
    "xoxb-",
    "xoxp-",
];
/// A word of letters and digits of at least this length looks like a credential.
const LONG: usize = 20;

/// Context for redacting a comment.
pub(super) struct Around<'a> {
    /// Values that are masked elsewhere in the file.
    pub(super) secrets: &'a [String],
    /// A masked value is on its line, or on the line before.
    pub(super) near: bool,
    /// It is below a key of secrets that was commented out.
    pub(super) below: bool,
}

/// A comment, with its `#`, as it may be seen.
pub(super) fn shown(comment: &str, around: &Around<'_>) -> String {
    let (mark, text) = comment.split_at(comment.len() - comment.trim_start_matches('#').len());
    if around.below {
        return format!("{mark}{}", masked_value(text).unwrap_or_else(|| format!(" {MASK}")));
    }
    if let Some(masked) = masked_setting(text, around.near) {
        return format!("{mark}{masked}");
    }
    let words = text.split_whitespace().count();
    let alone = around.near && words <= 1;
    let text = around
        .secrets
        .iter()
        .fold(text.to_string(), |text, secret| text.replace(secret.as_str(), MASK));
    let mut out = String::from(mark);
    let mut after_scheme = false;
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        let space = piece.get(word.len()..).unwrap_or_default();
        let bare = word.trim_matches(|c: char| {
            matches!(c, '"' | '\'' | '`' | ',' | ';' | '(' | ')' | '[' | ']' | '{' | '}' | '.')
        });
        let secret = !bare.is_empty()
            && bare != "-"
            && (alone
                || after_scheme
                || is_credential(bare)
                || (around.near && has_digit_and_letter(bare)));
        match secret {
            true => out.push_str(&word.replacen(bare, MASK, 1)),
            false => out.push_str(&without_userinfo(word)),
        }
        out.push_str(space);
        if !bare.is_empty() {
            after_scheme = matches!(bare, "Bearer" | "Basic" | "bearer" | "basic");
        }
    }
    out
}

/// The lines of comments below a key of secrets that was commented out, from 1.
pub(super) fn below_secrets(text: &str) -> HashSet<u32> {
    let mut below = HashSet::new();
    let mut open: Option<usize> = None;
    for (line, number) in text.lines().zip(1u32..) {
        let Some(comment) = line.trim_start().strip_prefix('#') else {
            open = None;
            continue;
        };
        let comment = comment.trim_start_matches('#');
        let indent = comment.len() - comment.trim_start().len();
        if open.is_some_and(|key| indent <= key) {
            open = None;
        }
        if open.is_some() {
            below.insert(number);
            continue;
        }
        let setting = comment.trim().trim_start_matches("- ").split_once(':');
        if let Some((key, value)) = setting
            && is_secret_key(key)
            && matches!(value.trim(), "" | "|" | ">" | "|-" | ">-" | "[" | "{")
        {
            open = Some(indent);
        }
    }
    below
}

/// A commented-out setting without its value; `None` if the line is not a setting or not secret.
fn masked_setting(text: &str, near: bool) -> Option<String> {
    let at = text.find([':', '='])?;
    let (name, value) = (text.get(..at)?, text.get(at + 1..)?);
    let value = value.trim();
    // `https://…` is not a setting.
    if value.is_empty() || value.starts_with("//") || is_reference(value) {
        return None;
    }
    let key = name.trim().trim_start_matches("- ").trim_matches(['"', '\'']);
    let last = key.rsplit(char::is_whitespace).next()?;
    let one_word = value.split_whitespace().count() == 1;
    let variable = key.len() > 1
        && key.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    let secret = is_secret_key(last) || (one_word && variable) || (one_word && near && last == key);
    secret.then(|| masked_value(text)).flatten()
}

/// A line without everything behind its key or dash.
fn masked_value(text: &str) -> Option<String> {
    let at = match text.find([':', '=']) {
        Some(at) => at + 1,
        None => {
            text.find("- ")
                .filter(|at| text.get(..*at).is_some_and(|before| before.trim().is_empty()))?
                + 1
        }
    };
    match text.get(at..)?.trim().is_empty() {
        true => Some(text.trim_end().into()),
        false => Some(format!("{} {MASK}", text.get(..at)?)),
    }
}

fn is_secret_key(key: &str) -> bool {
    let key = key.trim().trim_matches(['"', '\'', '`', '(', '{', '[']).to_lowercase();
    SECRET_KEYS.contains(&key.as_str()) || SECRET_WORDS.iter().any(|word| key.contains(word))
}

fn is_reference(value: &str) -> bool {
    let value = value.trim_matches(['"', '\'']);
    value.starts_with("${") && value.ends_with('}') && !value.contains(char::is_whitespace)
}

fn is_credential(word: &str) -> bool {
    let begins = |prefix: &&str| word.strip_prefix(*prefix).is_some_and(|rest| rest.len() >= 8);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '=');
    PREFIXES.iter().any(begins)
        || (word.len() >= LONG && word.chars().all(plain) && has_digit_and_letter(word))
}

fn has_digit_and_letter(word: &str) -> bool {
    word.bytes().any(|b| b.is_ascii_digit()) && word.bytes().any(|b| b.is_ascii_alphabetic())
}

/// A URL without user, password and query.
fn without_userinfo(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.into() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{MASK}@{host}"),
        None => authority.into(),
    };
    match path.split_once('?') {
        Some((path, _)) => format!("{scheme}://{host}{path}?{MASK}"),
        None => format!("{scheme}://{host}{path}"),
    }
}
