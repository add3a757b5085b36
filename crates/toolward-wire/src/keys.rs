//! The keys of all open objects, to find one that stands twice.

use crate::span::Span;
use crate::string;

/// Objects up to this size are checked key by key, larger ones sorted at their end: no input costs
/// more than `n log n`, and nothing depends on a hash that could be collided.
const COMPARED_ONE_BY_ONE: usize = 24;

pub(crate) struct Keys {
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

impl Keys {
    pub(crate) fn new() -> Keys {
        Keys { keys: Vec::with_capacity(32), unescaped: Vec::new() }
    }

    pub(crate) fn len(&self) -> u32 {
        self.keys.len() as u32
    }

    /// Adds a key of the innermost object: how many that has now, and whether this one repeats
    /// another.
    #[inline]
    pub(crate) fn push(
        &mut self,
        body: &[u8],
        content: Span,
        escaped: bool,
        from: u32,
    ) -> (usize, bool) {
        let mut key = Key { fingerprint: 0, text: content, owned: escaped };
        if escaped {
            let start = self.unescaped.len();
            string::unescape_into(content.of(body), &mut self.unescaped);
            key.text = Span::new(start, self.unescaped.len());
        }
        key.fingerprint = fingerprint(key.of(body, &self.unescaped));
        let earlier = self.keys.get(from as usize..).unwrap_or_default();
        let repeated = earlier.len() < COMPARED_ONE_BY_ONE
            && earlier.iter().any(|other| {
                other.fingerprint == key.fingerprint
                    && other.of(body, &self.unescaped) == key.of(body, &self.unescaped)
            });
        let count = earlier.len() + 1;
        self.keys.push(key);
        (count, repeated)
    }

    /// The key that was added last, unescaped.
    pub(crate) fn last<'a>(&'a self, body: &'a [u8]) -> &'a [u8] {
        self.keys.last().map(|key| key.of(body, &self.unescaped)).unwrap_or_default()
    }

    /// Forgets the keys of the innermost object: true where it was large and held one twice.
    #[inline]
    pub(crate) fn close(&mut self, body: &[u8], from: u32) -> bool {
        let from = from as usize;
        let mut repeated = false;
        if self.keys.len() - from > COMPARED_ONE_BY_ONE {
            let unescaped = &self.unescaped;
            let own = self.keys.get_mut(from..).unwrap_or_default();
            own.sort_unstable_by(|a, b| {
                a.fingerprint
                    .cmp(&b.fingerprint)
                    .then_with(|| a.of(body, unescaped).cmp(b.of(body, unescaped)))
            });
            repeated = own.windows(2).any(|pair| match pair {
                [a, b] => {
                    a.fingerprint == b.fingerprint && a.of(body, unescaped) == b.of(body, unescaped)
                }
                _ => false,
            });
        }
        self.keys.truncate(from);
        if from == 0 {
            self.unescaped.clear();
        }
        repeated
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
