//! Detection of duplicate keys.
//!
//! The scanner adds each key once and checks whether the same object already has it. Keys are
//! compared after unescaping.

use std::ops::Range;

use crate::names::{is_own_key, meta::OWN_PREFIX};
use crate::span::Span;
use crate::string;

/// Up to this many keys are compared pairwise; larger objects are sorted when they are closed.
///
/// So no input costs more than `n log n`, and there is no hash table to attack with collisions.
const MAX_PAIRWISE_KEYS: usize = 24;

/// The keys of all open objects.
pub(crate) struct KeyTracker {
    keys: Vec<Key>,
    /// The unescaped form of each key that contains an escape sequence.
    unescaped: Vec<u8>,
    /// Whether any key was one of the gateway's own `_meta` keys.
    has_own: bool,
}

#[derive(Clone, Copy)]
struct Key {
    /// Equal for equal keys, and usually different for different keys.
    fingerprint: u64,
    text: Span,
    /// Whether the text is in `unescaped` instead of the body.
    owned: bool,
}

impl KeyTracker {
    pub(crate) fn new() -> KeyTracker {
        KeyTracker { keys: Vec::with_capacity(32), unescaped: Vec::new(), has_own: false }
    }

    pub(crate) fn count(&self) -> u32 {
        self.keys.len() as u32
    }

    /// Adds a key to the innermost object, and returns whether it duplicates another.
    ///
    /// `from` is the number of keys that belong to enclosing objects. In a large object, duplicates
    /// are found by [`close`](Self::close).
    #[inline]
    pub(crate) fn push(&mut self, body: &[u8], content: Range<usize>, from: u32) -> bool {
        let text = Span::new(content.start, content.end);
        let key = body.get(content).unwrap_or_default();
        self.note_own(key);
        self.add(Key { fingerprint: fingerprint(key), text, owned: false }, body, from)
    }

    /// Like [`push`](Self::push), for a key that contains an escape sequence.
    #[cold]
    pub(crate) fn push_escaped(&mut self, body: &[u8], content: Range<usize>, from: u32) -> bool {
        let start = self.unescaped.len();
        string::unescape_into(body.get(content).unwrap_or_default(), &mut self.unescaped);
        let text = Span::new(start, self.unescaped.len());
        let key = text.of(&self.unescaped);
        let fingerprint = fingerprint(key);
        self.has_own |= is_own_key(key);
        self.add(Key { fingerprint, text, owned: true }, body, from)
    }

    /// Whether any key, at any depth, is one of the gateway's own `_meta` keys.
    pub(crate) fn has_own(&self) -> bool {
        self.has_own
    }

    #[inline]
    fn note_own(&mut self, key: &[u8]) {
        if key.first_chunk().is_some_and(may_be_own) {
            self.note_own_key(key);
        }
    }

    #[cold]
    fn note_own_key(&mut self, key: &[u8]) {
        self.has_own |= is_own_key(key);
    }

    #[inline]
    fn add(&mut self, key: Key, body: &[u8], from: u32) -> bool {
        let repeated = match self.keys.get(from as usize..) {
            Some(earlier) if earlier.len() < MAX_PAIRWISE_KEYS => {
                earlier.iter().any(|other| other.fingerprint == key.fingerprint)
                    && self.is_among(earlier, key, body)
            }
            _ => false,
        };
        self.keys.push(key);
        repeated
    }

    /// Whether an earlier key with the same fingerprint is equal to `key`.
    #[cold]
    fn is_among(&self, earlier: &[Key], key: Key, body: &[u8]) -> bool {
        let text = key.of(body, &self.unescaped);
        earlier.iter().any(|other| {
            other.fingerprint == key.fingerprint && other.of(body, &self.unescaped) == text
        })
    }

    /// The key added last, unescaped.
    #[inline]
    pub(crate) fn last<'a>(&'a self, body: &'a [u8]) -> &'a [u8] {
        self.keys.last().map(|key| key.of(body, &self.unescaped)).unwrap_or_default()
    }

    /// Removes the keys of the innermost object, and returns whether it was a large object with a
    /// duplicate key.
    #[inline]
    pub(crate) fn close(&mut self, body: &[u8], from: u32) -> bool {
        let from = from as usize;
        let repeated = self.keys.len() - from > MAX_PAIRWISE_KEYS && self.repeats(body, from);
        self.keys.truncate(from);
        if from == 0 {
            self.unescaped.clear();
        }
        repeated
    }

    /// Whether a large object has a duplicate key.
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

/// Whether a key that starts with these bytes may be one of the gateway's own, ignoring case.
#[inline(always)]
fn may_be_own(first: &[u8; 8]) -> bool {
    const LOWER_CASE: u64 = u64::from_le_bytes([0x20; 8]);
    const PREFIX: u64 = match OWN_PREFIX.as_bytes().first_chunk() {
        Some(first) => u64::from_le_bytes(*first),
        None => 0,
    };
    u64::from_le_bytes(*first) | LOWER_CASE == PREFIX | LOWER_CASE
}

/// A cheap fingerprint of a key: up to eight bytes from each end, and its length.
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
