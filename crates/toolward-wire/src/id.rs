//! Request ids and progress tokens: a string or an integer, kept as it was written.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::decimal::{self, Digits};
use crate::raw::{Raw, Shape};
use crate::string;

/// An id or a progress token. It goes back to its owner byte for byte; two are equal when they
/// mean the same (`"a"` and `"\u0061"` do, `1` and `"1"` do not).
#[derive(Clone)]
pub struct Id {
    raw: Text,
}

/// Most ids are counted up, and need no allocation.
#[derive(Clone)]
enum Text {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

const SHORT: usize = 22;

impl Text {
    fn new(raw: &[u8]) -> Text {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..raw.len()) {
            Some(place) => {
                place.copy_from_slice(raw);
                Text::Short { length: raw.len() as u8, bytes }
            }
            None => Text::Long(raw.into()),
        }
    }
}

impl Id {
    /// Takes a string or an integer, and nothing else.
    pub fn of(raw: Raw<'_>) -> Option<Id> {
        let fits = raw.shape() == Shape::String || raw.is_integer();
        fits.then(|| Id { raw: Text::new(raw.bytes()) })
    }

    pub fn number(number: u64) -> Id {
        Id { raw: Text::new(Digits::of(number).bytes()) }
    }

    pub fn text(text: &str) -> Id {
        Id { raw: Text::new(&string::quote(text)) }
    }

    /// As it was written.
    pub fn raw(&self) -> &[u8] {
        match &self.raw {
            Text::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Text::Long(raw) => raw,
        }
    }

    /// The integer that a gateway minted.
    pub fn as_number(&self) -> Option<u64> {
        decimal::parse(self.raw())
    }

    /// What it means: strings with their opening quote and unescaped, so that no string equals a
    /// number.
    fn meaning(&self) -> Cow<'_, [u8]> {
        let raw = self.raw();
        if !raw.contains(&b'\\') {
            return Cow::Borrowed(raw.strip_suffix(b"\"").unwrap_or(raw));
        }
        let mut said = vec![b'"'];
        string::unescape_into(crate::raw::content(raw), &mut said);
        Cow::Owned(said)
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Id) -> bool {
        self.raw() == other.raw() || self.meaning() == other.meaning()
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
        write!(f, "Id({})", String::from_utf8_lossy(self.raw()))
    }
}
