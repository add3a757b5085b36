//! Request ids and progress tokens.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::decimal::{self, Digits};
use crate::raw::{Raw, Shape};
use crate::string;

/// A request id or progress token: a string or an integer.
///
/// It is returned to its sender byte for byte. Equality compares values, not spelling: `"a"` equals
/// `"\u0061"`, and `1` does not equal `"1"`.
#[derive(Clone)]
pub struct Id {
    raw: IdBytes,
}

/// The JSON of an id. Short ids, such as sequence numbers, need no allocation.
#[derive(Clone)]
enum IdBytes {
    Inline { length: u8, bytes: [u8; MAX_INLINE_BYTES] },
    Heap(Box<[u8]>),
}

const MAX_INLINE_BYTES: usize = 22;

impl IdBytes {
    fn new(raw: &[u8]) -> IdBytes {
        let mut bytes = [0; MAX_INLINE_BYTES];
        match bytes.get_mut(..raw.len()) {
            Some(prefix) => {
                prefix.copy_from_slice(raw);
                IdBytes::Inline { length: raw.len() as u8, bytes }
            }
            None => IdBytes::Heap(raw.into()),
        }
    }
}

impl Id {
    /// Creates an id from a JSON value. Returns `None` unless it is a string or an integer.
    pub fn of(raw: Raw<'_>) -> Option<Id> {
        let fits = raw.shape() == Shape::String || raw.is_integer();
        fits.then(|| Id { raw: IdBytes::new(raw.bytes()) })
    }

    pub fn number(number: u64) -> Id {
        Id { raw: IdBytes::new(Digits::of(number).bytes()) }
    }

    pub fn text(text: &str) -> Id {
        Id { raw: IdBytes::new(&string::quote(text)) }
    }

    /// The JSON of the id, as it was written.
    pub fn raw(&self) -> &[u8] {
        match &self.raw {
            IdBytes::Inline { length, bytes } => {
                bytes.get(..usize::from(*length)).unwrap_or_default()
            }
            IdBytes::Heap(raw) => raw,
        }
    }

    /// The value of an unsigned integer, such as an id that the gateway generated.
    pub fn as_number(&self) -> Option<u64> {
        decimal::parse(self.raw())
    }

    /// The form used to compare and hash ids.
    ///
    /// Strings are unescaped and keep their opening quote, so that no string equals a number.
    fn canonical(&self) -> Cow<'_, [u8]> {
        let raw = self.raw();
        if !raw.contains(&b'\\') {
            return Cow::Borrowed(raw.strip_suffix(b"\"").unwrap_or(raw));
        }
        let mut text = vec![b'"'];
        string::unescape_into(crate::raw::content(raw), &mut text);
        Cow::Owned(text)
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Id) -> bool {
        self.raw() == other.raw() || self.canonical() == other.canonical()
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical().hash(state);
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", String::from_utf8_lossy(self.raw()))
    }
}
