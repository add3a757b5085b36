//! Byte ranges in a body.

use std::ops::Range;

/// A byte range in a body, stored in 32-bit offsets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    #[inline]
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    #[inline]
    pub(crate) fn length(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// The bytes of `body` in this range, or none if it is out of bounds.
    #[inline]
    pub fn of(self, body: &[u8]) -> &[u8] {
        body.get(self.range()).unwrap_or_default()
    }

    /// This span relative to `offset`.
    pub(crate) fn before(self, offset: u32) -> Span {
        Span { start: self.start.saturating_sub(offset), end: self.end.saturating_sub(offset) }
    }

    /// This span moved forward by `offset`.
    pub(crate) fn after(self, offset: u32) -> Span {
        Span { start: self.start + offset, end: self.end + offset }
    }
}
