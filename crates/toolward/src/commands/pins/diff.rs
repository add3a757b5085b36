//! Word diffs of definitions and policies, with escapes visible.

use similar::ChangeTag;
use toolward_config::sanitize;

use crate::pin_review::word_diff::{DiffLine, changed_lines};
use crate::render::{DIM, GREEN, RED, paint};

/// The differences between two texts: changed lines, with the changed words marked as `[-old-]{+new+}`. Control and
/// invisible characters are escaped.
pub(crate) fn word_diff(old: &str, new: &str, indent: usize) -> String {
    let space = " ".repeat(indent);
    let line = |line: &DiffLine| match line {
        None => format!("{space}{}", paint(DIM, "…")),
        Some(pieces) => {
            let shown: String = pieces.iter().map(|(tag, text)| marked(*tag, text)).collect();
            format!("{space}{shown}").trim_end().to_string()
        }
    };
    changed_lines(old, new).iter().map(line).collect::<Vec<_>>().join("\n")
}

fn marked(tag: ChangeTag, text: &str) -> String {
    let text = sanitize(text);
    match tag {
        ChangeTag::Equal => text.into_owned(),
        ChangeTag::Delete => paint(RED, format!("[-{text}-]")),
        ChangeTag::Insert => paint(GREEN, format!("{{+{text}+}}")),
    }
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
