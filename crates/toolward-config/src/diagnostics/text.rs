//! Source text with spans, lines and columns. Every value that is read from a file keeps its span.

use std::sync::{Arc, Mutex, PoisonError};

pub use toolward_policy::source::Place;

/// Larger files are rejected, so that offsets fit into 32 bits.
pub(crate) const MAX_BYTES: usize = 256 << 20;

/// A range of bytes of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub fn new(start: usize, end: usize) -> Self {
        let clamp = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Span { start: clamp(start), end: clamp(end.max(start)) }
    }
}

/// The text of a file, flag, variable or request, with its display name.
#[derive(Debug)]
pub struct Text {
    name: String,
    content: String,
    /// Offset at which each line begins; never empty.
    line_starts: Vec<u32>,
    /// Spans of known secrets.
    secrets: Mutex<Vec<Span>>,
}

impl Text {
    pub fn new(name: impl Into<String>, content: impl Into<String>) -> Arc<Self> {
        let content = content.into();
        let breaks = content.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0)
            .chain(breaks.map(|(at, _)| Span::new(at + 1, at + 1).start))
            .collect();
        Arc::new(Text { name: name.into(), content, line_starts, secrets: Mutex::default() })
    }

    /// Marks a span as secret: no diagnostic prints it.
    pub(crate) fn hide(&self, span: Span) {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        if !secrets.contains(&span) {
            secrets.push(span);
        }
    }

    /// Marks many spans as secret.
    pub(crate) fn hide_all(&self, spans: Vec<Span>) {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
    }

    /// Whether a span overlaps a secret.
    pub(crate) fn hides(&self, span: Span) -> bool {
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.iter().any(|secret| secret.start < span.end && span.start < secret.end)
    }

    /// Spans of secrets.
    pub(crate) fn hidden(&self) -> Vec<Span> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn content(&self) -> &str {
        &self.content
    }

    /// The text of a span; empty if the span is out of bounds.
    pub fn slice(&self, span: Span) -> &str {
        self.content.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Line and column (in characters) of an offset, both from 1.
    pub fn place(&self, offset: u32) -> Place {
        Places::new(self).of(offset)
    }

    /// The offset of a line and column.
    pub fn offset(&self, place: Place) -> Option<u32> {
        let (start, end) = self.line(place.line)?;
        let column = place.column.checked_sub(1)? as usize;
        let line = self.content.get(start as usize..end as usize)?;
        let inside = line.char_indices().map(|(at, _)| at).chain([line.len()]).nth(column)?;
        Some(start + Span::new(inside, inside).start)
    }

    /// First and last offset of a line (from 1), without its line break.
    pub(crate) fn line(&self, line: u32) -> Option<(u32, u32)> {
        let index = line.checked_sub(1)? as usize;
        let start = *self.line_starts.get(index)?;
        let end = match self.line_starts.get(index + 1) {
            Some(next) => next - 1,
            None => Span::new(self.content.len(), 0).start,
        };
        let line = self.content.get(start as usize..end as usize)?;
        Some((start, end - u32::from(line.ends_with('\r'))))
    }

    fn line_of(&self, offset: u32) -> (u32, u32) {
        let index = self.line_starts.partition_point(|start| *start <= offset).saturating_sub(1);
        let start = self.line_starts.get(index).copied().unwrap_or_default();
        (u32::try_from(index + 1).unwrap_or(u32::MAX), start)
    }
}

/// Locations of mostly ascending offsets. Columns are counted from the last position, so a whole
/// policy on one line costs one walk over the line, not one per entry.
#[derive(Debug)]
pub(crate) struct Places<'t> {
    text: &'t Text,
    last: u32,
    line: u32,
    column: u32,
}

impl<'t> Places<'t> {
    pub(crate) fn new(text: &'t Text) -> Self {
        Places { text, last: 0, line: 1, column: 1 }
    }

    pub(crate) fn of(&mut self, offset: u32) -> Place {
        let (line, start) = self.text.line_of(offset);
        if line != self.line || offset < self.last {
            (self.line, self.column, self.last) = (line, 1, start);
        }
        let between = self.text.slice(Span { start: self.last, end: offset });
        self.column += Span::new(between.chars().count(), 0).start;
        self.last = offset;
        Place { line: self.line, column: self.column }
    }
}

/// A span of a specific text.
#[derive(Debug, Clone)]
pub struct Mark {
    pub text: Arc<Text>,
    pub span: Span,
}

impl Mark {
    pub fn place(&self) -> Place {
        self.text.place(self.span.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_and_go_both_ways() {
        let text = Text::new("t", "a\né: x\r\n\nlast");
        for offset in [0u32, 1, 2, 4, 6, 7, 9, 10, 14] {
            let place = text.place(offset);
            assert_eq!(text.offset(place), Some(offset), "{place:?}");
        }
        assert_eq!(text.place(6), Place { line: 2, column: 4 });
        assert_eq!(text.line(2), Some((2, 7)));
    }

    #[test]
    fn ascending_and_descending_questions_agree() {
        let text = Text::new("t", "[\"é\", \"b\", \"c\"]");
        let mut places = Places::new(&text);
        let there: Vec<_> = (0..text.content().len() as u32)
            .filter(|at| text.content().is_char_boundary(*at as usize))
            .map(|at| (at, places.of(at)))
            .collect();
        for (at, place) in there.into_iter().rev() {
            assert_eq!(places.of(at), place);
        }
    }
}
