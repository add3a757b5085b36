//! Names whose values are secrets: `password`, `api_keys`, `X-Auth-Token`.

use serde_json::Value;

/// Parts of names of secrets. A plural contains its singular.
const PARTS: [&str; 25] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
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
    "masterkey",
    "hmackey",
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

/// Whole names of secrets, too short to be searched for in others.
const WHOLE: [&str; 7] = ["pwd", "pin", "otp", "auth", "pass", "sig", "sas"];

/// Ordinary words that contain a part.
const ORDINARY: [&str; 5] = ["secretar", "tokeniz", "tokenis", "passwordless", "cookiecutter"];

/// Names of numbers of tokens.
const COUNTS: [&str; 3] = ["tokencount", "tokenlimit", "tokenbudget"];

/// Words before `tokens` in names of numbers of tokens, and of tokens that a language model knows.
const COUNTED: [&str; 18] = [
    "max",
    "min",
    "num",
    "total",
    "prompt",
    "completion",
    "input",
    "output",
    "cached",
    "reasoning",
    "thinking",
    "remaining",
    "used",
    "budget",
    "context",
    "new",
    "stop",
    "special",
];

/// The meaning of a name for its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Ordinary,
    Secret,
    /// `tokens`: secrets, unless the value is a number.
    Tokens,
}

pub(super) fn meaning(name: &str) -> Meaning {
    let plain: String =
        name.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
    let singular = plain.strip_suffix('s').unwrap_or(&plain);
    if WHOLE.contains(&&*plain) || WHOLE.contains(&singular) || plain.ends_with("dsn") {
        return Meaning::Secret;
    }
    let is_ordinary = ORDINARY.iter().any(|word| plain.contains(word))
        || COUNTS.iter().any(|name| plain.ends_with(name));
    if is_ordinary || !PARTS.iter().any(|part| plain.contains(part)) {
        return Meaning::Ordinary;
    }
    match plain.strip_suffix("tokens") {
        Some("n") => Meaning::Ordinary,
        Some(before) if COUNTED.iter().any(|counted| before.ends_with(counted)) => {
            Meaning::Ordinary
        }
        Some(_) => Meaning::Tokens,
        None => Meaning::Secret,
    }
}

/// Whether a value consists of numbers.
pub(super) fn is_number(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => is_number_text(text),
        Value::Array(items) => items.iter().all(is_number),
        Value::Object(members) => members.values().all(is_number),
    }
}

/// Whether a text is a number such as `4096`, `1,000` or `8k`. Longer ones may be secrets.
pub(super) fn is_number_text(text: &str) -> bool {
    let digits = text.strip_suffix(['k', 'K', 'M']).unwrap_or(text);
    text.len() <= 9 && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'_' | b'.'))
}
