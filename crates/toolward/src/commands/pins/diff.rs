//! Word diffs of definitions and policies, with escapes visible.

use similar::{ChangeTag, TextDiff};
use toolward_config::sanitize;

use crate::render::{DIM, GREEN, RED, paint};

/// Unchanged lines around a change.
const CONTEXT: usize = 1;

/// The differences between two texts: changed lines, with the changed words marked as `[-old-]{+new+}`. Control and
/// invisible characters are escaped.
pub(crate) fn word_diff(old: &str, new: &str, indent: usize) -> String {
    let diff = TextDiff::from_words(old, new);
    // Lines of (text, whether it has a change).
    let mut lines: Vec<(String, bool)> = vec![Default::default()];
    for change in diff.iter_all_changes() {
        for (at, piece) in change.value().split('\n').enumerate() {
            if at > 0 {
                lines.push(Default::default());
            }
            let Some((line, is_changed)) = lines.last_mut() else { continue };
            let shown = sanitize(piece);
            if shown.is_empty() {
                *is_changed |= change.tag() != ChangeTag::Equal && at == 0;
                continue;
            }
            match change.tag() {
                ChangeTag::Equal => line.push_str(&shown),
                ChangeTag::Delete => line.push_str(&paint(RED, format!("[-{shown}-]"))),
                ChangeTag::Insert => line.push_str(&paint(GREEN, format!("{{+{shown}+}}"))),
            }
            *is_changed |= change.tag() != ChangeTag::Equal;
        }
    }
    // Neighboring words of the same kind are one.
    let joined = |line: &str| line.replace("-][-", "").replace("+}{+", "");
    let space = " ".repeat(indent);
    let mut out = Vec::new();
    let mut skipped = false;
    for (at, (line, _)) in lines.iter().enumerate() {
        let near = at.saturating_sub(CONTEXT)..=(at + CONTEXT).min(lines.len() - 1);
        if !near.into_iter().any(|other| lines.get(other).is_some_and(|(_, changed)| *changed)) {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            out.push(format!("{space}{}", paint(DIM, "…")));
        }
        out.push(format!("{space}{}", joined(line)).trim_end().to_string());
    }
    out.join("\n")
}
