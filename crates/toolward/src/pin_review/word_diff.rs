//! The words in which two texts differ, line by line.

use similar::{ChangeTag, TextDiff};

/// Unchanged lines around a change.
const CONTEXT: usize = 1;

/// A line as pieces that are unchanged, removed or added. `None`: unchanged lines are left out here.
pub(crate) type DiffLine = Option<Vec<(ChangeTag, String)>>;

/// The changed lines of two texts, with a little context.
pub(crate) fn changed_lines(old: &str, new: &str) -> Vec<DiffLine> {
    let lines = lines(old, new);
    let is_changed = |at: usize| {
        let pieces = lines.get(at).map(Vec::as_slice).unwrap_or_default();
        pieces.iter().any(|(tag, _)| *tag != ChangeTag::Equal)
    };
    let mut out = Vec::new();
    let mut skipped = false;
    for (at, line) in lines.iter().enumerate() {
        if !(at.saturating_sub(CONTEXT)..=at + CONTEXT).any(is_changed) {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            out.push(None);
        }
        out.push(Some(line.clone()));
    }
    out
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
