//! Word diffs of definitions and policies, with escapes visible.

use similar::{ChangeTag, TextDiff};
use toolward_config::sanitize;

use crate::render::{DIM, GREEN, RED, paint};

/// Unchanged lines around a change.
const CONTEXT: usize = 1;

/// The differences between two texts: changed lines, with the changed words marked as `[-old-]{+new+}`. Control and
/// invisible characters are escaped.
pub(crate) fn word_diff(old: &str, new: &str, indent: usize) -> String {
    let lines = lines(old, new);
    let is_changed = |at: usize| {
        let pieces = lines.get(at).map(Vec::as_slice).unwrap_or_default();
        pieces.iter().any(|(tag, _)| *tag != ChangeTag::Equal)
    };
    let space = " ".repeat(indent);
    let mut out = Vec::new();
    let mut skipped = false;
    for (at, line) in lines.iter().enumerate() {
        if !(at.saturating_sub(CONTEXT)..=at + CONTEXT).any(is_changed) {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            out.push(format!("{space}{}", paint(DIM, "…")));
        }
        let shown: String = line.iter().map(|(tag, text)| marked(*tag, text)).collect();
        out.push(format!("{space}{shown}").trim_end().to_string());
    }
    out.join("\n")
}

fn marked(tag: ChangeTag, text: &str) -> String {
    let text = sanitize(text);
    match tag {
        ChangeTag::Equal => text.into_owned(),
        ChangeTag::Delete => paint(RED, format!("[-{text}-]")),
        ChangeTag::Insert => paint(GREEN, format!("{{+{text}+}}")),
    }
}

/// The lines of both texts, each as pieces that are unchanged, removed or added.
fn lines(old: &str, new: &str) -> Vec<Vec<(ChangeTag, String)>> {
    let mut lines: Vec<Vec<(ChangeTag, String)>> = vec![Vec::new()];
    for change in TextDiff::from_words(old, new).iter_all_changes() {
        for (at, piece) in change.value().split('\n').enumerate() {
            if at > 0 {
                lines.push(Vec::new());
            }
            let Some(line) = lines.last_mut().filter(|_| !piece.is_empty()) else { continue };
            match line.last_mut() {
                // Neighboring words of the same kind are one piece.
                Some((tag, text)) if *tag == change.tag() => text.push_str(piece),
                _ => line.push((change.tag(), piece.into())),
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_words_are_marked_and_unchanged_lines_left_out() {
        let plain = |old: &str, new: &str| {
            anstream::adapter::strip_str(&word_diff(old, new, 1)).to_string()
        };
        let old = "a\nb\nc\nReads a file.\nd\ne\nf";
        let new = "a\nb\nc\nReads a text file,\u{7} too.\nd\ne\nf";
        assert_eq!(plain(old, new), " …\n c\n Reads a [-file.-]{+text file,\u{2407} too.+}\n d");
        assert_eq!(plain("", "x y"), " {+x y+}");
        assert_eq!(plain("same", "same"), "");
    }
}
