//! Sanitizes text for terminals and logs.
//!
//! Text from files, servers and agents may contain characters that move the cursor, color the terminal, reorder
//! the line or are invisible. Each is replaced by one visible character, so that columns stay the same.

use std::borrow::Cow;

use toolward_policy::text::is_invisible;

/// Replaces an unsafe character by one visible character, so that columns do not shift.
pub(crate) fn sanitize_char(c: char) -> char {
    match c {
        '\0'..='\u{1f}' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        _ if is_invisible(c) => '\u{fffd}',
        _ => c,
    }
}

/// Replaces every unsafe character by a visible one.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_invisible) {
        Cow::Owned(text.chars().map(sanitize_char).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Quotes a word for messages: in backticks, sanitized, and truncated.
pub(crate) fn quoted(word: &str) -> String {
    const MOST: usize = 60;
    let word = sanitize(word);
    match word.char_indices().nth(MOST) {
        Some((cut, _)) => format!("`{}…`", &word[..cut]),
        None => format!("`{word}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hostile_survives() {
        let text = "a\u{1b}[31mb\u{202e}c\u{200b}d\r\n\u{85}\u{2066}";
        let shown = sanitize(text);
        assert!(!shown.chars().any(is_invisible), "{shown:?}");
        assert_eq!(shown.chars().count(), text.chars().count());
    }

    #[test]
    fn long_words_are_cut() {
        assert_eq!(quoted(&"é".repeat(200)).chars().count(), 63);
    }
}
