//! Warns about misspelled hints.
//!
//! Operators may define tags of any name. A tag that differs from a built-in hint only in case or hyphens is
//! almost certainly a typo.

use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::suggest::same_word;
use crate::diagnostics::text::Span;
use crate::read::reader::Reader;

const KNOWN: [&str; 6] =
    ["read-only", "destructive", "idempotent", "open-world", "closed-world", "non-destructive"];

/// Warns about an operator-defined hint that is nearly a built-in one.
pub(crate) fn check_tag(reader: &mut Reader<'_>, tag: &str, span: Span) {
    let meant = KNOWN.into_iter().find(|known| *known != tag && same_word(known, tag));
    if let Some(known) = meant {
        let message = format!("the hint {} is not `{known}`, but a separate tag", quoted(tag));
        reader.warning(span, message, &format!("did you mean `{known}`?"));
    }
}

/// The same for the hints of a selector.
pub(crate) fn check_selector(reader: &mut Reader<'_>, selector: &str, span: Span) {
    if let Some(tags) = selector.strip_prefix("hint:") {
        tags.split('+').for_each(|tag| check_tag(reader, tag, span));
    }
}
