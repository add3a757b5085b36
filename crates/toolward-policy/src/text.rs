//! Truncates and escapes text that a response echoes.

use std::borrow::Cow;

/// At most this many characters of a name or an argument are echoed.
pub(crate) const MAX_ECHOED: usize = 200;

/// A caller's text, truncated for a response: no response grows with the request.
pub fn brief(text: &str) -> Cow<'_, str> {
    cut(text, MAX_ECHOED)
}

/// The first `most` characters, followed by `…` if the text was cut.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

/// The text with control characters, bidirectional controls and invisible characters escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match is_invisible(c) {
            true => clean.extend(c.escape_unicode()),
            false => clean.push(c),
        }
    }
    clean
}

/// Whether a character could move the cursor, change a terminal's colors, reorder a line or be
/// invisible.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}
