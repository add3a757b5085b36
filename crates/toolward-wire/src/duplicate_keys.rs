//! The keys of all open objects, to find one that stands twice.

use std::ops::Range;

use crate::span::Span;
use crate::string;

/// Objects up to this size are checked key by key, larger ones sorted at their end: no input costs
/// more than `n log n`, and nothing depends on a hash that could be collided.
const COMPARED_ONE_BY_ONE: usize = 24;

pub(crate) struct KeyTracker {
    keys: Vec<Key>,
    /// Unescaped forms of the keys that hold escapes.
    unescaped: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Key {
    /// Equal for equal keys, and mostly different otherwise.
    fingerprint: u64,
    text: Span,
    /// The text lies in `unescaped`, not in the body.
    owned: bool,
}

impl KeyTracker {
    pub(crate) fn new() -> KeyTracker {
        KeyTracker { keys: Vec::with_capacity(32), unescaped: Vec::new() }
    }

    pub(crate) fn count(&self) -> u32 {
        self.keys.len() as u32
    }

    /// Adds a key of the innermost object, and says whether it repeats another.
    #[inline]
    pub(crate) fn push(&mut self, body: &[u8], content: Range<usize>, from: u32) -> bool {
        let text = Span::new(content.start, content.end);
        let said = body.get(content).unwrap_or_default();
        self.add(Key { fingerprint: fingerprint(said), text, owned: false }, body, from)
    }

    /// The same for a key that holds escapes.
    #[cold]
    pub(crate) fn push_escaped(&mut self, body: &[u8], content: Range<usize>, from: u32) -> bool {
        let start = self.unescaped.len();
        string::unescape_into(body.get(content).unwrap_or_default(), &mut self.unescaped);
        let text = Span::new(start, self.unescaped.len());
        let fingerprint = fingerprint(text.of(&self.unescaped));
        self.add(Key { fingerprint, text, owned: true }, body, from)
    }

    #[inline]
    fn add(&mut self, key: Key, body: &[u8], from: u32) -> bool {
        let repeated = match self.keys.get(from as usize..) {
            Some(earlier) if earlier.len() < COMPARED_ONE_BY_ONE => {
                earlier.iter().any(|other| other.fingerprint == key.fingerprint)
                    && self.is_among(earlier, key, body)
            }
            _ => false,
        };
        self.keys.push(key);
        repeated
    }

    /// Whether a key of the same fingerprint is the same key.
    #[cold]
    fn is_among(&self, earlier: &[Key], key: Key, body: &[u8]) -> bool {
        let text = key.of(body, &self.unescaped);
        earlier.iter().any(|other| {
            other.fingerprint == key.fingerprint && other.of(body, &self.unescaped) == text
        })
    }

    /// The key that was added last, unescaped.
    #[inline]
    pub(crate) fn last<'a>(&'a self, body: &'a [u8]) -> &'a [u8] {
        self.keys.last().map(|key| key.of(body, &self.unescaped)).unwrap_or_default()
    }

    /// Forgets the keys of the innermost object: true where it was large and held one twice.
    #[inline]
    pub(crate) fn close(&mut self, body: &[u8], from: u32) -> bool {
        let from = from as usize;
        let repeated = self.keys.len() - from > COMPARED_ONE_BY_ONE && self.repeats(body, from);
        self.keys.truncate(from);
        if from == 0 {
            self.unescaped.clear();
        }
        repeated
    }

    /// Whether a key stands twice in a large object.
    #[cold]
    fn repeats(&mut self, body: &[u8], from: usize) -> bool {
        let unescaped = &self.unescaped;
        let own = self.keys.get_mut(from..).unwrap_or_default();
        own.sort_unstable_by(|a, b| {
            a.fingerprint
                .cmp(&b.fingerprint)
                .then_with(|| a.of(body, unescaped).cmp(b.of(body, unescaped)))
        });
        own.windows(2).any(|pair| match pair {
            [a, b] => {
                a.fingerprint == b.fingerprint && a.of(body, unescaped) == b.of(body, unescaped)
            }
            _ => false,
        })
    }
}

impl Key {
    fn of<'a>(&self, body: &'a [u8], unescaped: &'a [u8]) -> &'a [u8] {
        self.text.of(if self.owned { unescaped } else { body })
    }
}

/// Eight bytes of each end, and the length.
fn fingerprint(key: &[u8]) -> u64 {
    let length = (key.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if let (Some(first), Some(last)) = (key.first_chunk::<8>(), key.last_chunk::<8>()) {
        return u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(23) ^ length;
    }
    if let (Some(first), Some(last)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return (first as u64 | (last as u64) << 32) ^ length;
    }
    key.iter().fold(0, |word, byte| word << 8 | *byte as u64) ^ length
}
