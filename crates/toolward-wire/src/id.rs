//! Request ids and progress tokens: a string or an integer, kept as it was written.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::raw::{Raw, Shape};
use crate::string;

/// An id or a progress token. It goes back to its owner byte for byte; two are equal when they
/// mean the same (`"a"` and `"\u0061"` do, `1` and `"1"` do not).
#[derive(Clone)]
pub struct Id {
    raw: Box<[u8]>,
}

impl Id {
    /// Takes a string or an integer, and nothing else.
    pub fn of(raw: Raw<'_>) -> Option<Id> {
        let fits = raw.shape() == Shape::String || raw.is_integer();
        fits.then(|| Id { raw: raw.bytes().into() })
    }

    pub fn number(number: u64) -> Id {
        Id { raw: number.to_string().into_bytes().into() }
    }

    pub fn text(text: &str) -> Id {
        Id { raw: string::quote(text).into() }
    }

    /// As it was written.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The integer that a gateway minted.
    pub fn as_number(&self) -> Option<u64> {
        std::str::from_utf8(&self.raw).ok()?.parse().ok()
    }

    /// What it means: strings with their opening quote and unescaped, so that no string equals a
    /// number.
    fn meaning(&self) -> Cow<'_, [u8]> {
        if !self.raw.contains(&b'\\') {
            return Cow::Borrowed(self.raw.strip_suffix(b"\"").unwrap_or(&self.raw));
        }
        let mut said = vec![b'"'];
        string::unescape_into(crate::raw::content(&self.raw), &mut said);
        Cow::Owned(said)
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Id) -> bool {
        self.raw == other.raw || self.meaning() == other.meaning()
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.meaning().hash(state);
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", String::from_utf8_lossy(&self.raw))
    }
}
