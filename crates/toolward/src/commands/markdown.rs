//! Text in tables of Markdown, for comments on pull requests.

/// Text in a cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

pub(super) fn code(text: &str) -> String {
    format!("`{}`", cell(&text.replace('`', "'")))
}
