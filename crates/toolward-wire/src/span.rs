//! A place in a body.

use std::ops::Range;

/// A range of bytes in a body, small and `Copy`.
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

    /// The bytes that this span covers; none where it does not belong to `body`.
    #[inline]
    pub fn of(self, body: &[u8]) -> &[u8] {
        body.get(self.range()).unwrap_or_default()
    }

    pub(crate) fn before(self, offset: u32) -> Span {
        Span { start: self.start.saturating_sub(offset), end: self.end.saturating_sub(offset) }
    }

    pub(crate) fn after(self, offset: u32) -> Span {
        Span { start: self.start + offset, end: self.end + offset }
    }
}
